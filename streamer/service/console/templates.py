"""Templates and files, read once. Templates escape all values, except the markup of `text.py`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from streamer.service.console import pictures, text
from streamer.version import VERSION

_TYPES: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}

#: Files by name: their content and media type.
STATIC: Final[Mapping[str, tuple[bytes, str]]] = {
    each.name: (each.read_bytes(), _TYPES[each.name.rpartition(".")[2]])
    for each in sorted(files("streamer.service.console").joinpath("static").iterdir(), key=lambda each: each.name)
}
#: A part of the address of each file, so that browsers cache it until the next version.
VERSION_OF_STATIC: Final = hashlib.sha256(b"\0".join(body for body, _ in STATIC.values())).hexdigest()[:16]


def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("streamer.service.console", "html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    filters = (
        text.said,
        text.lines,
        text.plain,
        text.number,
        text.rate,
        text.share,
        text.size,
        text.span,
        text.moment,
        text.pretty,
    )
    made.filters |= {each.__name__: each for each in filters}
    made.globals |= {
        "address": text.address,
        "static": lambda name: f"/console/static/{name}?v={VERSION_OF_STATIC}",
        "pictures": pictures,
        "version": VERSION,
    }
    return made


_ENVIRONMENT: Final = _environment()


def render(template: str, values: Mapping[str, Any]) -> bytes:
    """Return a page. Half of a surrogate pair, which JSON may name and UTF-8 cannot, becomes a question mark."""
    return _ENVIRONMENT.get_template(template).render(values).encode(errors="replace")
