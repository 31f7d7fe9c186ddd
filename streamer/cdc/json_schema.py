"""Read JSON that was written with a JSON Schema, and convert values of the types of Kafka Connect.

```
{"title": "org.apache.kafka.connect.data.Decimal", "type": "number", "connect.parameters": {"scale": "2"}, …}
```

Only values whose schema has the name of a type of `connect` as its title are converted. Records are not validated: their producer
did that, and Confluent's deserializer does not validate by default, either.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from streamer.events import connect
from streamer.events.literal_json import parsed

_WHAT: Final = "json_schema"
_DEEPEST: Final = 64
_Conversion: TypeAlias = connect.Conversion | None


def reader(schema: str, references: Mapping[str, str]) -> Callable[[bytes], Any]:
    """Return a function that reads records of a schema. It returns their JSON, as bytes if no value needs a conversion.

    Args:
        references: the schemas that the schema refers to, by their names in its references.

    Raises:
        ValueError: the schema or a reference is not JSON.
    """
    try:
        root = json.loads(schema)
        others = {name: json.loads(each) for name, each in references.items()}
    except (RecursionError, ValueError) as error:
        raise ValueError(f"no JSON Schema: {error}") from None
    convert = _conversion(root, root, others, 0)

    def read(record: bytes) -> Any:
        if convert is None:
            return record
        value = parsed(record, _WHAT)
        return None if value is None else convert(value)

    return read


def _conversion(schema: Any, root: Any, others: Mapping[str, Any], depth: int) -> _Conversion:
    """Return the conversion of a schema's values to values of an event, or None if they stay as they are."""
    # The depth limit also ends schemas that refer to themselves; database values are never as deep.
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return None
    if (conversion := connect.conversion(schema.get("title"), schema.get("connect.parameters"))) is not None:
        return conversion
    if isinstance(pointer := schema.get("$ref"), str):
        return _conversion(*_referred(pointer, root, others), others, depth + 1)
    for name in ("oneOf", "anyOf", "allOf"):
        kinds = [each for each in _listed(schema.get(name)) if isinstance(each, Mapping) and each.get("type") != "null"]
        if len(kinds) == 1 and (conversion := _conversion(kinds[0], root, others, depth + 1)) is not None:
            return conversion
    if isinstance(schema.get("items"), Mapping):
        return _each(_conversion(schema["items"], root, others, depth + 1))
    members = schema.get("properties")
    of = {}
    for name, each in (members if isinstance(members, Mapping) else {}).items():
        if (conversion := _conversion(each, root, others, depth + 1)) is not None:
            of[name] = conversion
    rest = _conversion(schema.get("additionalProperties"), root, others, depth + 1)
    return _members(of, rest, members if isinstance(members, Mapping) else {})


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _referred(pointer: str, root: Any, others: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the schema that a reference points to, and the schema document around it."""
    name, _, path = pointer.partition("#")
    target = inside = others.get(name) if name else root
    for step in path.split("/")[1:]:
        target = target.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(target, Mapping) else None
    return target, inside


def _each(of: _Conversion) -> _Conversion:
    if of is None:
        return None
    return lambda value: [None if each is None else of(each) for each in value] if isinstance(value, list) else value


def _members(of: Mapping[str, connect.Conversion], rest: _Conversion, known: Mapping[str, Any]) -> _Conversion:
    if not of and rest is None:
        return None

    def convert(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        for name, member in value.items():
            conversion = of.get(name) or (rest if name not in known else None)
            if member is not None and conversion is not None:
                value[name] = conversion(member)
        return value

    return convert
