"""Building blocks for the schemas of the document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

TEXT: Final = {"type": "string"}
TIME: Final = {"type": "string", "format": "date-time"}
COUNT: Final = {"type": "integer", "minimum": 0}
BOOL: Final = {"type": "boolean"}
MAYBE: Final = {"type": ["string", "null"]}
NEXT: Final = {"type": ["string", "null"], "description": "What `cursor` takes for the next page; null on the last."}
#: The type includes null, for an unavailable number.
NUMBER: Final = {"type": "number", "minimum": 0}
MAYBE_NUMBER: Final = {"type": ["number", "null"]}
MAYBE_TIME: Final = {"type": ["string", "null"], "format": "date-time"}
TRANSITION: Final = {"enum": ["enter", "stay", "leave", None]}


def object_of(properties: Mapping[str, Any], *optional: str) -> dict[str, Any]:
    """Return the schema of an object with these members; all but the *optional* ones are required."""
    return {"type": "object", "properties": dict(properties), "required": [name for name in properties if name not in optional]}


def list_of(items: Any) -> dict[str, Any]:
    """Return the schema of a list."""
    return {"type": "array", "items": items}


def ref(name: str) -> dict[str, str]:
    """Return a reference to a schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}
