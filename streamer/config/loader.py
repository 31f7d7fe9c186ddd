"""From a file and the environment to one `Config`, or to everything that is wrong.

```
file ── yaml.py ──► nodes with marks ─┐
                                      ├─► merged ── schema.py ──► Config, and where each value comes from
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
from typing import Any, Final, TypeAlias, final

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict

from streamer.config.schema import LAYOUT_MEMBERS, Config, Section, as_members
from streamer.config.yaml import MAX_BYTES, Mark, Node, kind_of, read_yaml, shown
from streamer.errors import BulkConfigError, ConfigError
from streamer.model import is_unicode

#: Where a value stands in the tree: names of sections and fields, and positions in lists.
Place: TypeAlias = tuple[str | int, ...]

#: The one value that has names of its own.
LAYOUT: Final = ("matching", "layout")
PREFIX: Final = "STREAMER_"
BETWEEN: Final = "__"
#: Variables with the prefix that say something else (CONTRIBUTING.md).
_OTHERS: Final = ("STREAMER_BACKEND", "STREAMER_BUILD_RUST")
_SERVICE: Final = re.compile("(?:tcp|udp|sctp)://")
_LOGGER: Final = logging.getLogger("streamer.config")


@final
@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value comes from: `str()` is `file:line:column`, the name of a variable, or `default`."""

    source: str | None = None
    mark: Mark | None = None

    def __str__(self) -> str:
        if self.source is None:
            return "default"
        return self.source if self.mark is None else f"{self.source}:{self.mark.line}:{self.mark.column}"


@final
@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration, and where each of its values comes from.

    Attributes:
        files: what errors call the files of subscriptions: their paths as they follow from *name*, which is as it was given.
    """

    config: Config
    name: str | None = None
    root: Node | None = None
    variables: Mapping[Place, str] = field(default_factory=dict)
    files: Mapping[Path, str] = field(default_factory=dict)

    def origins(self, place: Place) -> list[Origin]:
        """Tell where the value at *place* comes from: of a layout, the file and each variable that says a part of it."""
        whole = _variable(self.variables, place)
        above = [Origin(whole)] if whole is not None else []
        if whole is None and len(nodes := walk(self.root, place)) == len(place):
            above = [Origin(self.name, nodes[-1].mark)]
        return [*above, *map(Origin, _parts(self.variables, place))] or [Origin()]

    def origin(self, place: Place) -> Origin:
        """Tell where the value at *place* comes from; of several, what the others are laid over."""
        return self.origins(place)[0]

    def file(self, path: Path) -> str:
        """Return what people call a file of subscriptions."""
        return self.files.get(path, str(path))

    def error(self, place: Place, reason: str) -> ConfigError:
        """Make an error of the value at *place*; of one that nobody says, it names the file alone."""
        origin = self.origin(place)
        line, column = (origin.mark.line, origin.mark.column) if origin.mark is not None else (None, None)
        return ConfigError(reason, place=show_place(place), source=origin.source or self.name, line=line, column=column)


def load(path: str | os.PathLike[str], environment: Mapping[str, str] | None = None, *, name: str | None = None) -> Loaded:
    """Read a file, and the environment over it; see `Config.load`. Errors call it *name*, by default the path as it is given."""
    with open(path, "rb") as file:
        # One byte more than is read tells that there are more.
        text = file.read(MAX_BYTES + 1)
    environment = os.environ if environment is None else environment
    return loads(text, os.fspath(path) if name is None else name, directory=Path(path).parent, environment=environment)


def loads(text: bytes, name: str, *, directory: Path, environment: Mapping[str, str]) -> Loaded:
    """Read a text as `load` does a file.

    Args:
        name: the path of the text, as errors call it.
        directory: to which the paths in it are relative.
        environment: variables; others than those of the configuration are passed over.

    Raises:
        BulkConfigError: all that is wrong.
    """
    root, errors = read_yaml(text, name)
    plain = root.plain()
    if not isinstance(plain, dict | None):
        raise BulkConfigError([*errors, error_at(name, root.mark, f"expected names and values, not {kind_of(plain)}")])
    variables, values, wrong = _environment(environment)
    members: dict[str, Any] = plain or {}
    named: dict[Path, str] = {}
    if isinstance(files := members.get("subscriptions"), str | list):
        if isinstance(files, str):
            # One path is short for a list of it.
            files, root.value["subscriptions"] = [files], Node([node := root.value["subscriptions"]], node.mark)
        base = _absolute(directory)
        named = {base / file: str(Path(name).parent / file) for file in files if isinstance(file, str) and file}
        members["subscriptions"] = [base / file if isinstance(file, str) and file else file for file in files]
    try:
        config = Config.model_validate(_merged(members, values))
    except ValidationError as invalid:
        found = [_located(fault, name, root, variables) for fault in _faults(invalid)]
        errors = [*errors, *(error for error in found if error is not None)]
    else:
        if not errors and not wrong:
            return Loaded(config, name, root, variables, named)
    errors.sort(key=lambda error: (error.line is None, error.line or 0, error.column or 0))
    raise BulkConfigError([*errors, *wrong])


def from_dict(members: Mapping[str, Any]) -> Config:
    """Make a configuration from a mapping; see `Config.from_dict`."""
    if not isinstance(members, Mapping):
        raise BulkConfigError([ConfigError(f"expected a mapping, not {type(members).__name__}")])
    try:
        return Config.model_validate(dict(members))
    except ValidationError as invalid:
        raise BulkConfigError([ConfigError(fault.reason, place=show_place(fault.place)) for fault in _faults(invalid)]) from None


def _absolute(directory: Path) -> Path:
    """Write a directory in the one way that tells whether two paths are the same, wherever the process goes to later.

    A link to a directory is not followed: one that is set to a new version, as deployments do, is still the same place.
    """
    absolute = Path(os.path.abspath(directory))
    try:
        # Behind a link, `..` is not what stands before it.
        return absolute if absolute.samefile(directory) else directory.resolve()
    except OSError:
        return absolute


# Faults


@final
@dataclass(frozen=True, slots=True)
class _Fault:
    """What is wrong at a place: its value, or its name."""

    place: Place
    reason: str
    of_name: bool


def _faults(invalid: ValidationError) -> Iterator[_Fault]:
    """Yield what pydantic found."""
    for fault in invalid.errors(include_url=False):
        place: Place = fault["loc"]
        context = fault.get("ctx", {})
        if "faults" in context:
            # Several in one value, of which pydantic knows nothing.
            found = [((*place, *steps), reason) for steps, reason in context["faults"]]
        else:
            found = [(place, _reason(fault["type"], fault["input"], context, fault["msg"]))]
        for inside, reason in found:
            of_name = fault["type"] == "extra_forbidden" or reason.startswith("unknown member")
            yield _Fault(inside, f"no such name; {_nearest(inside)}" if of_name else reason, of_name)


def _reason(kind: str, value: Any, context: Mapping[str, Any], message: str) -> str:
    """Say what is wrong in our words; *kind* is pydantic's name for it."""
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
        case "model_type" | "model_attributes_type":
            return f"expected names and values, not {said}"
        case "literal_error":
            expected = str(context["expected"])
            near = difflib.get_close_matches(str(value), re.findall("'([^']*)'", expected), 1)
            return f"expected {expected}, not {said}{f'; did you mean {near[0]!r}?' if near else ''}"
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


def _shown_value(value: Any) -> str:
    if isinstance(value, str):
        return f"'{shown(value)}'"
    if isinstance(value, bool):
        return str(value).lower()
    return shown(value) if isinstance(value, int | float) else kind_of(value)


def _nearest(place: Place) -> str:
    """Name what was probably meant: a name beside it, or the same name elsewhere in the tree."""
    *above, name = place
    beside = _names(tuple(above))
    if (near := closest(str(name), beside, 0.6)) is not None:
        return f"did you mean '{near}'?"
    everywhere = {known[-1]: known for known in reversed(list(fields_of(Config)))}
    if (near := closest(str(name), everywhere, 0.8)) is not None:
        return f"did you mean {show_place(everywhere[near])}?"
    return f"expected one of {', '.join(sorted(beside))}"


def closest(name: str, known: Iterable[str], cutoff: float) -> str | None:
    """Return the known name nearest to one; of several, one that begins as it does is nearer than one that ends so (Winkler)."""

    def nearness(other: str) -> float:
        similar = difflib.SequenceMatcher(None, other, name).ratio()
        begins_alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(name, other, strict=False)))
        return similar + (1 - similar) * begins_alike / len(name)

    return max(difflib.get_close_matches(name, known, 5, cutoff), key=nearness, default=None)


def fields_of(section: type[Section], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the place of each field of a section, of sections in it too, from the outside in."""
    for name, info in section.model_fields.items():
        yield (*above, name)
        if (inner := section_of(info)) is not None:
            yield from fields_of(inner, (*above, name))


def section_of(info: FieldInfo) -> type[Section] | None:
    """Return the section that a field is; None for a value."""
    kind = info.annotation
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None


def _names(above: Place) -> list[str]:
    """Return the names that may stand in a section."""
    section: type[Section] = Config
    for name in above:
        info = section.model_fields.get(str(name))
        inner = None if info is None else section_of(info)
        if inner is None:
            return list(LAYOUT_MEMBERS) if above == LAYOUT else []
        section = inner
    return list(section.model_fields)


def show_place(place: Iterable[str | int]) -> str:
    """Write a place as `matching.layout.type_map`, `subscriptions[0]`."""
    text = ""
    for step in place:
        text += f"[{step}]" if isinstance(step, int) else f"{'.' if text else ''}{shown(step)}"
    return text


def _located(fault: _Fault, name: str, root: Node, variables: Mapping[Place, str]) -> ConfigError | None:
    """Say where a fault stands; None where all that is to say was said already."""
    shown_place = show_place(fault.place)
    if (variable := _variable(variables, fault.place)) is not None:
        return ConfigError(fault.reason, place=shown_place, source=variable)
    for node in (nodes := walk(root, fault.place)):
        if node.refused:
            return None
    # What nobody says is wrong beside what somebody does, on top of the file where both do.
    for length in range(len(fault.place) - 1, max(len(nodes), 1) - 1, -1):
        if parts := _parts(variables, fault.place[:length]):
            return ConfigError(fault.reason, place=shown_place, source=parts[-1])
    if fault.of_name and len(nodes) == len(fault.place):
        above = nodes[-2] if len(nodes) > 1 else root
        return error_at(name, above.names[str(fault.place[-1])], fault.reason, shown_place)
    return error_at(name, nodes[-1].mark if nodes else root.mark, fault.reason, shown_place)


def error_at(name: str, mark: Mark, reason: str, place: str = "") -> ConfigError:
    """Make an error of what stands at a mark in the file *name*."""
    return ConfigError(reason, place=place, source=name, line=mark.line, column=mark.column)


def walk(root: Node | None, place: Place) -> list[Node]:
    """Return the nodes along a place, as far as there are any."""
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
    """Return the variable that says what stands at a place, or above it."""
    return next((variables[place[:length]] for length in range(len(place), 0, -1) if place[:length] in variables), None)


def _parts(variables: Mapping[Place, str], place: Place) -> list[str]:
    """Return the variables that say what stands below a place, each once."""
    return list(dict.fromkeys(variable for at, variable in variables.items() if len(at) > len(place) and _is_in(at, place)))


def _is_in(place: Place, above: Place) -> bool:
    return place[: len(above)] == above


# The environment


class _Settings(Config, BaseSettings):
    """The tree as pydantic-settings reads it. Only its source is used: making a `Config` never looks at the environment."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_nested_delimiter=BETWEEN)


@final
class _Variables(EnvSettingsSource):
    """Reads given variables, whose lists and mappings are YAML as in a file (and so may be JSON)."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._given = variables
        super().__init__(_Settings)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return {name.lower(): None if value == "null" else value for name, value in self._given.items()}

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        return _plain_yaml(value)


def _plain_yaml(text: str) -> Any:
    node, errors = read_yaml(text.encode("utf-8", "surrogateescape"), "")
    if errors:
        raise BulkConfigError(errors)
    return node.plain()


def _environment(environment: Mapping[str, str]) -> tuple[dict[Place, str], dict[str, Any], list[ConfigError]]:
    """Return which variable says what is in force, by place; what they say; and those that say nothing sensible."""
    variables: dict[Place, str] = {}
    errors: list[ConfigError] = []
    values: dict[str, Any] = {}
    known = set(fields_of(Config))
    given: dict[Place, str] = {}
    # A section comes before what stands in it, which is laid over it.
    for name in sorted(environment, key=lambda name: (name.upper(), name)):
        # An empty one is unset, as Compose and the like leave it.
        if not name.upper().startswith(PREFIX) or name.upper() in _OTHERS or not environment[name]:
            continue
        place = tuple(name[len(PREFIX) :].lower().split(BETWEEN))
        if place not in known and place[:-1] != LAYOUT:
            if len(place) > 1:
                errors.append(ConfigError(f"no such variable; {_nearest_variable(place)}", source=shown(name)))
            elif meant := _misread(place[0], environment[name]):
                _warn_once(f"{shown(name)}: no such variable; did you mean {' or '.join(meant)}?")
            continue
        if place in given:
            errors.append(ConfigError(f"says the same as {given[place]}", source=name))
            continue
        if not is_unicode(environment[name]):
            # So Python holds bytes that are no UTF-8.
            errors.append(ConfigError("no UTF-8", place=show_place(place), source=name))
            continue
        try:
            if place not in known and environment[name].startswith(("[", "{")):
                # pydantic-settings does not know of what a part of the layout may be.
                said: Mapping[str, Any] = {"matching": {"layout": {place[-1]: _plain_yaml(environment[name])}}}
            else:
                said = _Variables({name: environment[name]})()
        except BulkConfigError as refused:
            errors += [ConfigError(error.reason, place=show_place(place), source=name) for error in refused.errors]
            continue
        given[place] = name
        values = _merged(values, said)
        for said_of in _leaves(said):
            variables = {at: other for at, other in variables.items() if not _is_in(at, said_of)} | {said_of: name}
    return variables, values, errors


def _nearest_variable(place: tuple[str, ...]) -> str:
    every = [_variable_name(each) for each in fields_of(Config)]
    near = difflib.get_close_matches(_variable_name(place), every, 1)
    return f"did you mean {near[0]}?" if near else "streamer config show lists every field"


def _variable_name(place: tuple[str, ...]) -> str:
    return PREFIX + BETWEEN.join(place).upper()


def _misread(name: str, value: str) -> list[str]:
    """Return the variables that one without two underscores was probably meant for: it names all steps of a place, or its last.

    It cannot be an error: not all that begins with `STREAMER_` is ours. Of a service of this name Kubernetes says
    `STREAMER_PORT=tcp://10.0.0.1:80`, and of one of its metrics `STREAMER_METRICS_PORT=tcp://…`.
    """
    if _SERVICE.match(value):
        return []
    meant: dict[str, list[str]] = {}
    for place in (*fields_of(Config), *((*LAYOUT, part) for part in LAYOUT_MEMBERS)):
        for start in range(len(place)):
            meant.setdefault("_".join(place[start:]), []).append(_variable_name(place))
    near = difflib.get_close_matches(name, meant, 1, cutoff=0.9)
    return meant[near[0]] if near else []


@cache
def _warn_once(text: str) -> None:
    # A configuration is read again and again while an engine runs.
    _LOGGER.warning("%s", text)


# Trees. What has names of its own, a section and the layout, is put together name by name; any other value is replaced whole.


def _merged(below: Any, above: Any, place: Place = ()) -> Any:
    """Put what one source says of a place over what another says of it."""
    if not isinstance(above, Mapping) or not _names(place):
        return above
    under = as_members(below) if place == LAYOUT else below
    if under is None:
        return above
    # No section is what is wrong here, and nothing over it mends that.
    if not isinstance(under, Mapping):
        return below
    return {**under, **{name: _merged(under.get(name), value, (*place, name)) for name, value in above.items()}}


def _leaves(value: Any, place: Place = ()) -> Iterator[Place]:
    """Yield each place of which a tree says what replaces what is below it."""
    if isinstance(value, Mapping) and _names(place):
        for name, inner in value.items():
            yield from _leaves(inner, (*place, name))
    else:
        yield place
