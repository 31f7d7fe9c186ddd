"""A configuration as text: the current values and the source of each; the table of all fields; the JSON Schema."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import json
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from streamer.config.live import is_live, is_served
from streamer.config.loader import Loaded, Place, items_of, kinds_of, section_of
from streamer.config.schema.config import Config
from streamer.config.schema.matching import shown_layout
from streamer.config.schema.values import Section
from streamer.config.units import format_duration
from streamer.config.yaml import read_yaml
from streamer.events.layout import EventLayout
from streamer.events.schema import DRAFT

# What YAML 1.1 and 1.2 both read as text; three dots end a document.
_PLAIN: Final = re.compile(r"(?!(?i:y|n|yes|no|on|off|\.\.\.)$)[A-Za-z_./][\w./+-]*|[0-9]+[A-Za-z]{2,}|[0-9]+[dhmsw]")

_ALIGNED: Final = 48
#: The placeholder value of a place that has places below.
SECTION: Final = object()


def show(loaded: Loaded) -> str:
    """Return the configuration in force as YAML that can be loaded again, with the origin of each value as a comment."""
    lines = [
        (f"{'  ' * (len(place) - 1)}{place[-1]}:{'' if value is SECTION else ' ' + _value(value)}", ", ".join(origins))
        for place, value, origins in values(loaded)
    ]
    # Ignore long lines, so that one long path or layout does not push all origins off the screen.
    width = max(len(text) for text, _ in lines if len(text) <= _ALIGNED)
    return "\n".join(f"{text:<{width}}  # {origin}" if origin else text for text, origin in lines) + "\n"


def values(loaded: Loaded) -> Iterator[tuple[Place, Any, list[str]]]:
    """Yield each place, its value as in a file, and its source; an empty section is `SECTION`, without a source."""
    return _values(loaded, loaded.config, loaded.config.model_dump(mode="json"), ())


def _values(loaded: Loaded, section: Section, raw: Mapping[str, Any], above: Place) -> Iterator[tuple[Place, Any, list[str]]]:
    for name, info in type(section).model_fields.items():
        place = (*above, name)
        if section_of(info) is not None:
            yield place, SECTION, []
            yield from _values(loaded, getattr(section, name), raw[name], place)
        elif kinds_of(info) and raw[name]:
            yield place, SECTION, []
            for key, each in getattr(section, name).items():
                yield (*place, key), SECTION, []
                yield from _values(loaded, each, raw[name][key], (*place, key))
        else:
            yield place, raw[name], list(map(str, loaded.origins(place)))


def _value(value: Any) -> str:
    """Return a value as YAML on one line: as plain text if YAML reads it as text, else as JSON, which is YAML, too."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and read_yaml(value.encode(), "")[0].value == value:
        return value
    return json.dumps(value, ensure_ascii=True)


class _Schema(GenerateJsonSchema):
    """Writes defaults as a file has them, and leaves out titles, which repeat the names."""

    def encode_default(self, dft: Any) -> Any:
        if isinstance(dft, EventLayout):
            return shown_layout(dft)
        return format_duration(dft) if isinstance(dft, timedelta) else super().encode_default(dft)

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def model_schema(self, schema: Any) -> JsonSchemaValue:
        made = super().model_schema(schema)
        for name, text in meanings(schema["cls"]).items():
            made["properties"][name]["description"] = text
        return made


@functools.cache
def meanings(section: type[Section]) -> Mapping[str, str]:
    """Return what the text below each field of a section says.

    Pydantic can read these texts itself, but only while it makes the class: a quarter of the start of `streamer serve`.
    """
    texts: dict[str, str] = {}
    for each in reversed(section.__mro__):
        if not issubclass(each, Section):
            continue
        body = ast.parse(inspect.getsource(each)).body[0].body  # type: ignore[attr-defined]
        for field, below in itertools.pairwise(body):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    texts[name] = inspect.cleandoc(text)
    return {name: text for name, text in texts.items() if name in section.model_fields}


def json_schema() -> str:
    """Return the JSON Schema of a configuration file, for editors."""
    schema = Config.model_json_schema(mode="validation", schema_generator=_Schema)
    described = {
        "$schema": DRAFT,
        "title": "Streamer",
        "description": _first_line(Config),
    }
    return json.dumps({**described, **{name: value for name, value in schema.items() if name not in described}}, indent=2) + "\n"


def table() -> str:
    """Return all fields as a Markdown table for each section."""
    return "\n".join(_tables(Config, (), Config().model_dump(mode="json")))


def _tables(section: type[Section], above: tuple[str, ...], defaults: Mapping[str, Any], kind: str = "") -> Iterator[str]:
    own = {name: info for name, info in section.model_fields.items() if section_of(info) is None}
    if own:
        yield f"### `{'.'.join(above)}`{kind}\n" if above else "### The top level\n"
        if above:
            yield f"{_first_line(section)}\n"
        yield "| field | default | reload | meaning |\n|---|---|---|---|"
        texts = meanings(section)
        for name, info in own.items():
            place = (*above, name.removesuffix("[]"))
            live = "yes" if is_live(place) else "service" if is_served(place) else "no"
            default = "needed" if info.is_required() else f"`{_value(defaults[name])}`"
            yield f"| `{name}` | {default} | {live} | {' '.join(texts.get(name, '').split())} |"
        yield ""
    for name, info in section.model_fields.items():
        if (inner := section_of(info)) is not None:
            yield from _tables(inner, (*above, name), defaults[name])
        for word, each in kinds_of(info).items():
            yield from _tables(each, (*above, name, "NAME"), _defaults(each), f", `type: {word}`")
        if (item := items_of(info)) is not None:
            yield from _tables(item, (*above, f"{name}[]"), _defaults(item))


def _defaults(section: type[Section]) -> Mapping[str, Any]:
    """Return the defaults of a section of which some fields are needed, as a file has them."""
    return section.model_construct().model_dump(mode="json", warnings=False)


def _first_line(section: type[Section]) -> str:
    return (section.__doc__ or "").splitlines()[0]
