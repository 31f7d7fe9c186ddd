"""Read a file and the environment into one `Config`, or list every error in them.

```
file ── yaml.py ──► nodes with marks ─┐
                                      ├─► merged ── schema/ ────► Config, and the origin of each value
environment ── pydantic-settings ─────┘                └────────► errors, each with its place
```
"""

from __future__ import annotations

import difflib
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, TypeAlias, final, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict

from streamer.config.schema.config import Config
from streamer.config.schema.matching import LAYOUT_MEMBERS, as_members
from streamer.config.schema.values import Section
from streamer.config.secret import SecretValue
from streamer.config.yaml import MAX_BYTES, Mark, Node, kind_of, read_yaml, shown
from streamer.errors import BulkConfigError, ConfigError
from streamer.events.layout import EventLayout
from streamer.model import is_unicode

#: The position of a value in the tree: names of sections and fields, and indexes into lists.
Place: TypeAlias = tuple[str | int, ...]

#: The only value with named members that is not a section.
LAYOUT: Final = ("matching", "layout")
PREFIX: Final = "STREAMER_"
BETWEEN: Final = "__"
#: Variables with the prefix that are not part of the configuration (CONTRIBUTING.md).
_OTHERS: Final = ("STREAMER_BACKEND", "STREAMER_BUILD_RUST")
_SERVICE: Final = re.compile("(?:tcp|udp|sctp)://")
_NAMES: Final = "expected a name of lower-case letters and digits, with single underscores between them, such as orders_eu"
_LOGGER: Final = logging.getLogger("streamer.config")


@final
@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a value: `str()` returns `file:line:column`, the name of a variable, or `default`."""

    source: str | None = None
    mark: Mark | None = None

    def __str__(self) -> str:
        if self.source is None:
            return "default"
        return self.source if self.mark is None else f"{self.source}:{self.mark.line}:{self.mark.column}"


@final
@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration with the origin of each of its values.

    Attributes:
        files: the path that errors show for each file of subscriptions, based on the directory of *name* as the caller wrote it.
    """

    config: Config
    name: str | None = None
    root: Node | None = None
    variables: Mapping[Place, str] = field(default_factory=dict)
    files: Mapping[Path, str] = field(default_factory=dict)

    def origins(self, place: Place) -> list[Origin]:
        """Return the origins of the value at *place*: for a layout, the file and each variable that sets a part of it."""
        whole = _variable(self.variables, place)
        above = [Origin(whole)] if whole is not None else []
        if whole is None and len(nodes := walk(self.root, place)) == len(place):
            above = [Origin(self.name, nodes[-1].mark)]
        return [*above, *map(Origin, _parts(self.variables, place))] or [Origin()]

    def origin(self, place: Place) -> Origin:
        """Return the origin of the value at *place*; if it has several, the one that the others override in part."""
        return self.origins(place)[0]

    def file(self, path: Path) -> str:
        """Return the path of a file of subscriptions as errors show it."""
        return self.files.get(path, str(path))

    def error(self, place: Place, reason: str) -> ConfigError:
        """Make an error about the value at *place*. If the value is a default, the error names only the file."""
        origin = self.origin(place)
        line, column = (origin.mark.line, origin.mark.column) if origin.mark is not None else (None, None)
        return ConfigError(reason, place=show_place(place), source=origin.source or self.name, line=line, column=column)


def load(path: str | os.PathLike[str], environment: Mapping[str, str] | None = None, *, name: str | None = None) -> Loaded:
    """Read a file, overridden by the environment; see `Config.load`. Errors show it as *name*, by default *path*."""
    with open(path, "rb") as file:
        # One byte more than the limit is enough to refuse a larger file.
        text = file.read(MAX_BYTES + 1)
    environment = os.environ if environment is None else environment
    return loads(text, os.fspath(path) if name is None else name, directory=Path(path).parent, environment=environment)


def loads(text: bytes, name: str, *, directory: Path, environment: Mapping[str, str]) -> Loaded:
    """Read a text as `load` reads a file.

    Args:
        name: the path of the text, as errors show it.
        directory: the directory that paths in the text are relative to.
        environment: variables; those that do not belong to the configuration are ignored.

    Raises:
        BulkConfigError: the text or a variable is wrong; it lists every error.
    """
    root, errors = read_yaml(text, name)
    plain = root.plain()
    if not isinstance(plain, dict | None):
        raise BulkConfigError([*errors, error_at(name, root.mark, f"expected names and values, not {kind_of(plain)}")])
    variables, values, wrong = _environment(environment)
    members: dict[str, Any] = plain or {}
    named: dict[Path, str] = {}
    base = _absolute(directory)
    if isinstance(files := members.get("subscriptions"), str | list):
        if isinstance(files, str):
            # A single path is short for a list with one path.
            files, root.value["subscriptions"] = [files], Node([node := root.value["subscriptions"]], node.mark)
        named = {base / file: str(Path(name).parent / file) for file in files if isinstance(file, str) and file}
        members["subscriptions"] = files
    _rebased(Config, members, base)
    _with_format(root, members, values, name)
    try:
        config = Config.model_validate(_merged(members, values))
    except ValidationError as invalid:
        faults = [_located(fault, name, root, variables) for fault in _faults(invalid)]
        errors = [*errors, *(error for error in faults if error is not None)]
    else:
        if not errors and not wrong:
            return Loaded(config, name, root, variables, named)
    errors.sort(key=lambda error: (error.line is None, error.line or 0, error.column or 0))
    raise BulkConfigError([*errors, *wrong])


def _with_format(root: Node, members: dict[str, Any], values: Mapping[str, Any], name: str) -> None:
    """Rename `matching.layout` to `matching.format` if it is the name of a format, and no variable sets parts of a layout."""
    # Compat: before there was `format`, the name of a preset was a layout.
    section, layout = LAYOUT
    matching = members.get(section)
    if not isinstance(matching, dict) or matching.get(layout) not in list(EventLayout.PRESETS) or "format" in matching:
        return
    mark = root.value[section].value[layout].mark
    where = f"{name}:{mark.line}:{mark.column}"
    _warn_once(f"{where}: matching.layout: {matching[layout]} is the name of a format: set matching.format")
    if {layout, "format"} & {*values.get(section, {})}:
        return
    matching["format"] = matching.pop(layout)
    node = root.value[section]
    node.value["format"], node.names["format"] = node.value.pop(layout), node.names.pop(layout)


def from_dict(members: Mapping[str, Any]) -> Config:
    """Make a configuration from a mapping; see `Config.from_dict`."""
    if not isinstance(members, Mapping):
        raise BulkConfigError([ConfigError(f"expected a mapping, not {type(members).__name__}")])
    try:
        return Config.model_validate(dict(members))
    except ValidationError as invalid:
        raise BulkConfigError([ConfigError(fault.reason, place=show_place(fault.place)) for fault in _faults(invalid)]) from None


def _rebased(kind: Any, value: Any, directory: Path) -> Any:
    """Prefix the paths in a value with a directory, wherever its schema has paths. Sections are changed in place."""
    if kind is Path:
        return str(directory / value) if isinstance(value, str) and value else value
    if kind is SecretValue:
        if isinstance(value, dict) and "file" in value:
            value["file"] = _rebased(Path, value["file"], directory)
        return value
    if isinstance(kind, type) and issubclass(kind, Section):
        for name, field_ in kind.model_fields.items():
            if isinstance(value, dict) and name in value:
                value[name] = _rebased(field_.annotation, value[name], directory)
        return value
    kinds = get_args(kind)
    if get_origin(kind) in (dict, Mapping):
        return {name: _rebased(kinds[1], each, directory) for name, each in value.items()} if isinstance(value, dict) else value
    if isinstance(value, list) and get_origin(kind) is tuple:
        return [_rebased(kinds[0], each, directory) for each in value]
    for each in kinds:
        value = _rebased(each, value, directory)
    return value


def _absolute(directory: Path) -> Path:
    """Return a directory as an absolute path, so that paths compare equal even if the process changes its directory later.

    A link to a directory is not followed: if a deployment points the link at a new version, the path stays the same.
    """
    absolute = Path(os.path.abspath(directory))
    try:
        # After a link, `..` is the parent of its target, so dropping both names would give another directory.
        return absolute if absolute.samefile(directory) else directory.resolve()
    except OSError:
        return absolute


# Faults


@final
@dataclass(frozen=True, slots=True)
class _Fault:
    """An error at a place: in its value, or in its name."""

    place: Place
    reason: str
    of_name: bool


def _faults(invalid: ValidationError) -> Iterator[_Fault]:
    """Yield the errors that pydantic found."""
    for fault in invalid.errors(include_url=False):
        place = _as_written(fault["loc"])
        context = fault.get("ctx", {})
        if "faults" in context:
            # One error of pydantic carries several of ours, each with its own place in the value.
            pairs = [((*place, *steps), reason) for steps, reason in context["faults"]]
        else:
            if fault["type"] == "union_tag_invalid":
                place = (*place, "type")
            pairs = [(place, _reason(fault["type"], fault["input"], context, fault["msg"]))]
        for inside, reason in pairs:
            if fault["loc"][-1:] == ("[key]",):
                yield _Fault(inside, _NAMES, of_name=True)
                continue
            of_name = fault["type"] == "extra_forbidden" or reason.startswith("unknown member")
            yield _Fault(inside, f"unknown name; {_nearest(inside)}" if of_name else reason, of_name)


def _as_written(place: Place) -> Place:
    """Return a place of pydantic as a file writes it: without the `type` that pydantic inserts for a tagged section."""
    if len(place) > 2 and place[2] != "[key]" and place[2] in (_kinds_at(place[:1]) or ()):
        return (*place[:2], *place[3:])
    return place[:-1] if place[-1:] == ("[key]",) else place


def _reason(kind: str, value: Any, context: Mapping[str, Any], message: str) -> str:
    """Return our message for an error; *kind* is pydantic's name for it."""
    said = _shown_value(value)
    match kind:
        case "int_type" | "int_parsing" | "int_from_float" | "int_parsing_size":
            return f"expected a whole number, not {said}"
        case "float_type" | "float_parsing" | "finite_number":
            return f"expected a number, not {said}"
        case "bool_type" | "bool_parsing":
            return f"expected true or false, not {said}"
        case "string_type":
            hint = f"; write '{shown(value)}' in quotes" if isinstance(value, int | float) else ""
            return f"expected text, not {said}{hint}"
        case "tuple_type":
            return f"expected a list, not {said}"
        case "missing":
            return "expected a value, and there is none"
        case "string_too_short":
            return "expected some text"
        case "union_tag_not_found":
            return "expected a type, and there is none"
        case "union_tag_invalid":
            expected = str(context["expected_tags"])
            return _one_of(" or ".join(expected.split(", ")), value.get("type") if isinstance(value, Mapping) else value)
        case "model_type" | "model_attributes_type" | "dict_type":
            return f"expected names and values, not {said}"
        case "literal_error":
            return _one_of(str(context["expected"]), value) + _ELSEWHERE.get(str(value), "")
        case "greater_than":
            return f"expected more than {context['gt']:g}, not {said}"
        case "greater_than_equal":
            return f"expected at least {context['ge']:,}, not {said}"
        case "less_than":
            return f"expected less than {context['lt']:g}, not {said}"
        case "less_than_equal":
            return f"expected at most {context['le']:,}, not {said}"
        case _:
            return message


#: Words that are right elsewhere, with the next step.
_ELSEWHERE: Final = {
    "pgoutput": "; a message needs those before it, which other sources lack after a restart: expected type: postgres",
}


def _one_of(expected: str, value: Any) -> str:
    near = difflib.get_close_matches(str(value), re.findall("'([^']*)'", expected), 1)
    return f"expected {expected}, not {_shown_value(value)}{f'; did you mean {near[0]!r}?' if near else ''}"


def _shown_value(value: Any) -> str:
    if isinstance(value, str):
        return f"'{shown(value)}'"
    if isinstance(value, bool):
        return str(value).lower()
    return shown(value) if isinstance(value, int | float) else kind_of(value)


def _nearest(place: Place) -> str:
    """Return a hint with the name that was probably meant: a name in the same section, or a similar name elsewhere."""
    *above, name = place
    siblings = _names(tuple(above))
    if name in siblings:
        return f"a section with another 'type' has {str(name)!r}"
    if (near := closest(str(name), siblings, 0.6)) is not None:
        return f"did you mean '{near}'?"
    everywhere = {str(known[-1]): known for known in reversed(list(fields_of(Config)))}
    if (near := closest(str(name), everywhere, 0.8)) is not None:
        return f"did you mean {show_place(everywhere[near])}?"
    return f"expected one of {', '.join(sorted(siblings))}"


def closest(name: str, known: Iterable[str], cutoff: float) -> str | None:
    """Return the known name that is nearest to *name*, or None. A common beginning counts more than a common end (Winkler)."""

    def nearness(other: str) -> float:
        similar = difflib.SequenceMatcher(None, other, name).ratio()
        begins_alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(name, other, strict=False)))
        return similar + (1 - similar) * begins_alike / len(name)

    return max(difflib.get_close_matches(name, known, 5, cutoff), key=nearness, default=None)


def fields_of(section: type[Section] | Section, above: Place = ()) -> Iterator[Place]:
    """Yield the place of each field of a section and of the sections in it, outer ones first.

    For an instance of a section, that includes the sections under names that the user chose, such as the sinks.
    """
    for name, info in (section if isinstance(section, type) else type(section)).model_fields.items():
        place = (*above, name)
        yield place
        value = None if isinstance(section, type) else getattr(section, name)
        if (inner := section_of(info)) is not None:
            yield from fields_of(inner if value is None else value, place)
        elif kinds_of(info) and value is not None:
            for key, each in value.items():
                yield (*place, key)
                yield from fields_of(each, (*place, key))


def section_of(info: FieldInfo) -> type[Section] | None:
    """Return the section class of a field, or None if the field is a plain value."""
    kind = info.annotation
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None


def kinds_of(info: FieldInfo) -> Mapping[str, type[Section]]:
    """Return the classes of the sections that users may name in a field, by their `type`; empty for any other field."""
    if get_origin(info.annotation) is not dict:
        return {}
    union, *_ = get_args(get_args(info.annotation)[1])
    return {get_args(kind.model_fields["type"].annotation)[0]: kind for kind in get_args(union)}


def items_of(info: FieldInfo) -> type[Section] | None:
    """Return the section class of the items of a list field, or None for any other field."""
    item = get_args(info.annotation)[0] if get_origin(info.annotation) is tuple else None
    return item if isinstance(item, type) and issubclass(item, Section) else None


def _kinds_at(place: Place) -> Mapping[str, type[Section]] | None:
    """Return the classes of the sections that users may name at a place, by `type`; None if the schema fixes the names."""
    *above, name = place or ("",)
    for section in _sections_at(tuple(above)):
        if name in section.model_fields and (kinds := kinds_of(section.model_fields[str(name)])):
            return kinds
    return None


def _sections_at(place: Place) -> list[type[Section]]:
    """Return the section classes that a place allows; a file has one of them there."""
    here: list[type[Section]] = [Config]
    steps = iter(place)
    for name in steps:
        infos = [section.model_fields[str(name)] for section in here if name in section.model_fields]
        here = []
        for info in infos:
            if (inner := section_of(info)) is not None:
                here.append(inner)
            elif (kinds := kinds_of(info)) and next(steps, None) is not None:
                here += kinds.values()
            elif (item := items_of(info)) is not None and isinstance(next(steps, None), int):
                here.append(item)
    return here


def _names(above: Place) -> list[str]:
    """Return the names that a section allows."""
    if above == LAYOUT:
        return list(LAYOUT_MEMBERS)
    return list(dict.fromkeys(name for section in _sections_at(above) for name in section.model_fields))


def _is_tree(place: Place) -> bool:
    """Return whether the value at a place has named members, so that values for it are merged by name."""
    return bool(_names(place)) or _kinds_at(place) is not None


def _is_known(place: Place) -> bool:
    """Return whether a variable may set the value at a place."""
    return _kinds_at(place[:-1]) is not None or place[-1] in _names(place[:-1])


def show_place(place: Iterable[str | int]) -> str:
    """Return a place as text, such as `matching.layout.type_map` or `subscriptions[0]`."""
    text = ""
    for step in place:
        text += f"[{step}]" if isinstance(step, int) else f"{'.' if text else ''}{shown(step)}"
    return text


def _located(fault: _Fault, name: str, root: Node, variables: Mapping[Place, str]) -> ConfigError | None:
    """Return a fault as an error with its location, or None if the reader of the file has reported it already."""
    shown_place = show_place(fault.place)
    if (variable := _variable(variables, fault.place)) is not None:
        return ConfigError(fault.reason, place=shown_place, source=variable)
    for node in (nodes := walk(root, fault.place)):
        if node.refused:
            return None
    # If the place itself is not set (a missing name), report a variable that sets another part of its section, because
    # variables override the file.
    for length in range(len(fault.place) - 1, max(len(nodes), 1) - 1, -1):
        if parts := _parts(variables, fault.place[:length]):
            return ConfigError(fault.reason, place=shown_place, source=parts[-1])
    if fault.of_name and len(nodes) == len(fault.place):
        above = nodes[-2] if len(nodes) > 1 else root
        return error_at(name, above.names[str(fault.place[-1])], fault.reason, shown_place)
    return error_at(name, nodes[-1].mark if nodes else root.mark, fault.reason, shown_place)


def error_at(name: str, mark: Mark, reason: str, place: str = "") -> ConfigError:
    """Make an error about the value at a mark in the file *name*."""
    return ConfigError(reason, place=place, source=name, line=mark.line, column=mark.column)


def walk(root: Node | None, place: Place) -> list[Node]:
    """Return the nodes along a place, up to the first step that the file lacks."""
    nodes: list[Node] = []
    node = root
    for step in place:
        if node is not None and isinstance(node.value, dict) and step in node.value:
            node = node.value[str(step)]
        elif node is not None and isinstance(node.value, list) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
        else:
            break
        nodes.append(node)
    return nodes


def _variable(variables: Mapping[Place, str], place: Place) -> str | None:
    """Return the variable that sets a place or a section around it."""
    return next((variables[place[:length]] for length in range(len(place), 0, -1) if place[:length] in variables), None)


def _parts(variables: Mapping[Place, str], place: Place) -> list[str]:
    """Return the variables that set anything below a place, each once."""
    return list(dict.fromkeys(variable for at, variable in variables.items() if len(at) > len(place) and _is_in(at, place)))


def _is_in(place: Place, above: Place) -> bool:
    return place[: len(above)] == above


# The environment


class _Settings(Config, BaseSettings):
    """The schema for pydantic-settings, of which only the source is used: making a `Config` never reads the environment."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_nested_delimiter=BETWEEN)


@final
class _Variables(EnvSettingsSource):
    """Reads a mapping of variables. Lists and mappings in them are YAML as in a file, so they may be JSON."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables
        super().__init__(_Settings)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return {name.lower(): None if value == "null" else value for name, value in self._variables.items()}

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        return _plain_yaml(value)


def _plain_value(text: str) -> Any:
    """Return the value of a variable: a list or mapping is parsed as YAML, other text is used as it is."""
    return _plain_yaml(text) if text.startswith(("[", "{")) else None if text == "null" else text


def _plain_yaml(text: str) -> Any:
    node, errors = read_yaml(text.encode("utf-8", "surrogateescape"), "")
    if errors:
        raise BulkConfigError(errors)
    return node.plain()


def _environment(environment: Mapping[str, str]) -> tuple[dict[Place, str], dict[str, Any], list[ConfigError]]:
    """Return the variable in force for each place, the merged values of all variables, and the errors in variables."""
    variables: dict[Place, str] = {}
    errors: list[ConfigError] = []
    values: dict[str, Any] = {}
    texts: dict[Place, str] = {}
    # Sorted, a section comes before its fields, which override it.
    for name in sorted(environment, key=lambda name: (name.upper(), name)):
        # An empty variable counts as unset: Docker Compose and similar tools pass unset variables as empty ones.
        if not name.upper().startswith(PREFIX) or name.upper() in _OTHERS or not environment[name]:
            continue
        place = tuple(name[len(PREFIX) :].lower().split(BETWEEN))
        if not _is_known(place):
            if len(place) > 1:
                errors.append(ConfigError(f"unknown variable; {_nearest_variable(place)}", source=shown(name)))
            elif meant := _misread(place[0], environment[name]):
                _warn_once(f"{shown(name)}: unknown variable; did you mean {' or '.join(meant)}?")
            continue
        if place in texts:
            errors.append(ConfigError(f"sets the same field as {texts[place]}", source=name))
            continue
        if not is_unicode(environment[name]):
            # Python stores bytes that are not UTF-8 as lone surrogates.
            errors.append(ConfigError("no UTF-8", place=show_place(place), source=name))
            continue
        try:
            said: Mapping[str, Any]
            if place[:-1] == LAYOUT or (len(place) > 1 and _kinds_at(place[:1]) is not None):
                # pydantic-settings supports neither single members of the layout nor names that the user chose.
                said = _plain_value(environment[name])
                for step in reversed(place):
                    said = {step: said}
            else:
                said = _Variables({name: environment[name]})()
        except BulkConfigError as refused:
            errors += [ConfigError(error.reason, place=show_place(place), source=name) for error in refused.errors]
            continue
        texts[place] = name
        values = _merged(values, said)
        for said_of in _leaves(said):
            variables = {at: other for at, other in variables.items() if not _is_in(at, said_of)} | {said_of: name}
    return variables, values, errors


def _nearest_variable(place: tuple[str, ...]) -> str:
    every = [_variable_name(each) for each in fields_of(Config)]
    near = difflib.get_close_matches(_variable_name(place), every, 1)
    return f"did you mean {near[0]}?" if near else "streamer config show lists every field"


def _variable_name(place: Place) -> str:
    return PREFIX + BETWEEN.join(map(str, place)).upper()


def _misread(name: str, value: str) -> list[str]:
    """Return the variables that a name with single underscores probably stands for: it has all steps of a place, or the last.

    That is only a warning, because other programs set variables with the prefix, too. For example, Kubernetes sets
    `STREAMER_PORT=tcp://10.0.0.1:80` for a service named `streamer`, and `STREAMER_METRICS_PORT=tcp://…` for
    `streamer-metrics`; such values are ignored.
    """
    if _SERVICE.match(value):
        return []
    meant: dict[str, list[str]] = {}
    for place in (*fields_of(Config), *((*LAYOUT, part) for part in LAYOUT_MEMBERS)):
        for start in range(len(place)):
            meant.setdefault("_".join(map(str, place[start:])), []).append(_variable_name(place))
    near = difflib.get_close_matches(name, meant, 1, cutoff=0.9)
    return meant[near[0]] if near else []


@cache
def _warn_once(text: str) -> None:
    # Reloads read the configuration repeatedly while an engine runs.
    _LOGGER.warning("%s", text)


# Trees. Sections and the layout are merged name by name; any other value is replaced as a whole.


def _merged(below: Any, above: Any, place: Place = ()) -> Any:
    """Return the value of one source for a place, overridden by the value of another source."""
    if not isinstance(above, Mapping) or not _is_tree(place):
        return above
    under = as_members(below) if place == LAYOUT else below
    for section in _sections_at(place):
        under = section.written_out(under)
    if under is None:
        return above
    # The lower value should be a section but is not. Return it, so that the schema reports it.
    if not isinstance(under, Mapping):
        return below
    return {**under, **{name: _merged(under.get(name), value, (*place, name)) for name, value in above.items()}}


def _leaves(value: Any, place: Place = ()) -> Iterator[Place]:
    """Yield each place whose value in a tree replaces the lower value as a whole."""
    if isinstance(value, Mapping) and _is_tree(place):
        for name, inner in value.items():
            yield from _leaves(inner, (*place, name))
    else:
        yield place
