"""A subscription in the editor: one text in JSON, and a form of its parts; edits of one update the other.

```
text ──fields_of──► fields        both are shown; `Draft.agreed` has the form in which they were
  ▲                    │
  └────── merged ──────┘          the one that changed since is used; if both did, the user chooses
```

Values never change on the path: a number keeps its digits, and a row contains the type of its value. Parts that a form cannot
show exactly, such as a duplicate name, can only be edited in the text.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, NoReturn, final, get_args

from streamer.model import FilterOperator

OPERATORS: Final[tuple[str, ...]] = get_args(FilterOperator)
#: The types of values, with their names in the form.
TYPES: Final[Mapping[str, str]] = {
    "text": "text",
    "number": "number",
    "boolean": "true or false",
    "null": "null",
    "json": "JSON, as a list",
}
#: What a filter's field is in, with the names in the form: the value of `root`, empty without this member.
ROOTS: Final[Mapping[str, str]] = {"": "document", "envelope": "envelope"}
#: Members that are texts.
TEXTS: Final = ("collection", "gateway_id", "topic", "cel")
#: The most rows of a form; more of them can be edited in the text.
MOST_ROWS: Final = 100
_WIDTH: Final = 100
_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_TOKEN: Final = re.compile(r'"(?:\\.|[^"\\])*"?|[\w.]+|.', re.DOTALL)


class Unfit(Exception):
    """A form cannot show the text."""


@final
class Number(str):
    """A number in its original spelling."""

    __slots__ = ()


class Row(NamedTuple):
    """A filter in a form."""

    field: str = ""
    op: str = "=="
    type: str = "text"
    value: str = ""
    root: str = ""


class Fields(NamedTuple):
    """The parts of a form."""

    texts: tuple[str, ...] = ("",) * len(TEXTS)
    pattern: str = ""
    rows: tuple[Row, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class Draft:
    """A subscription in the editor.

    Attributes:
        fields: None if a form cannot show the text, for the reason *unfit*.
        agreed: how both were shown when they last agreed.
        wrong: why they disagree now, each with its place.
    """

    text: str
    fields: Fields | None = None
    unfit: str = ""
    agreed: str = ""
    wrong: tuple[Mapping[str, Any], ...] = ()


def read(text: str | bytes) -> Any:
    """Parse JSON, keeping the spelling of numbers. Raises ValueError, and RecursionError."""
    return json.loads(text, parse_int=Number, parse_float=Number, parse_constant=_refused, object_pairs_hook=_members)


def _refused(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a name stands twice in an object")
    return members


def neat(value: Any, room: int = 0, indent: str = "") -> str:
    """Return JSON on several lines, with short parts on one line; unprintable characters are escaped to be visible."""
    if not isinstance(value, dict | list):
        return _scalar(value)
    inner = indent + "  "
    within = _WIDTH - len(inner)
    if isinstance(value, dict):
        items = [f"{_scalar(name)}: {neat(each, within, inner)}" for name, each in value.items()]
    else:
        items = [neat(each, within, inner) for each in value]
    begin, end = "{}" if isinstance(value, dict) else "[]"
    flat = begin + ", ".join(items) + end
    if not items or (len(flat) <= room and "\n" not in flat):
        return flat
    return f"{begin}\n{inner}" + f",\n{inner}".join(items) + f"\n{indent}{end}"


def _scalar(value: Any) -> str:
    if isinstance(value, Number):
        return str(value)
    return json.dumps(value, ensure_ascii=isinstance(value, str) and not value.isprintable())


def fields_of(text: str) -> Fields:
    """Return the form of a text. Raises Unfit."""
    try:
        members = read(text)
    except (RecursionError, ValueError):
        raise Unfit("The form is here again once the JSON can be read.") from None
    if not isinstance(members, dict):
        raise Unfit("The form can only show an object.")
    pattern, filters = members.get("pattern"), members.get("filters", [])
    if not isinstance(filters, list) or len(filters) > MOST_ROWS or ("filters" in members and not filters):
        raise Unfit(f"The form shows a list of 1 to {MOST_ROWS} filters: edit them in the JSON.")
    return Fields(
        tuple(_text(members, name) for name in TEXTS),
        "" if "pattern" not in members else neat(pattern, _WIDTH),
        tuple(map(_row, filters)),
    )


def _text(members: Mapping[str, Any], name: str) -> str:
    if name not in members:
        return ""
    value, keep = members[name], "\n\t" if name == "cel" else ""
    if type(value) is not str or not value.strip() or not _is_plain(value, keep):
        raise Unfit(f"The form cannot show {name} as it is: edit it in the JSON.")
    return value


def _is_plain(value: str, keep: str = "") -> bool:
    """Return whether a field of a form preserves a text exactly."""
    return all(char.isprintable() or char in keep for char in value)


def _row(condition: Any) -> Row:
    if not isinstance(condition, dict) or condition.keys() - {"root"} != {"field", "op", "value"}:
        raise Unfit("The form can only show filters of field, op, value and root: edit these in the JSON.")
    for name in ("field", "op", "root"):
        if name in condition and (type(condition[name]) is not str or not condition[name] or not _is_plain(condition[name])):
            raise Unfit(f"The form cannot show the {name} of a filter: edit it in the JSON.")
    return Row(condition["field"], condition["op"], *_shown(condition["value"]), condition.get("root", ""))


def _shown(value: Any) -> tuple[str, str]:
    """Return the type of a value, and its text in a form."""
    match value:
        case Number():
            return "number", value
        case str() if _is_plain(value):
            return "text", value
        case bool():
            return "boolean", _scalar(value)
        case None:
            return "null", ""
    return "json", neat(value, 1 << 60)


def _value(row: Row) -> Any:
    """Return the value of a row. Raises ValueError."""
    text = row.value.strip()
    match row.type:
        case "text":
            return row.value
        case "number":
            if _NUMBER.fullmatch(text) is None:
                raise ValueError("expected a number, as 12 or -0.5")
            return Number(text)
        case "boolean":
            if text not in ("true", "false"):
                raise ValueError("expected true or false")
            return text == "true"
        case "null":
            return None
        case "json":
            return _json(text)
    raise ValueError(f"expected a type: {', '.join(TYPES)}")


def _json(text: str) -> Any:
    try:
        return read(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON: {error.msg} at character {error.pos + 1}") from None
    except RecursionError:
        raise ValueError("invalid JSON: it is nested too deep") from None


def merged(text: str, fields: Fields) -> tuple[str, list[Mapping[str, Any]]]:
    """Return a text with the parts of a form in it, and their errors; other members keep their text."""
    wrong: list[Mapping[str, Any]] = []
    try:
        members = read(text)
        if not isinstance(members, dict):
            raise ValueError("expected an object")
    except (RecursionError, ValueError) as error:
        return text, [{"reason": f"the JSON next to the form cannot be read: {error}"}]
    parts: dict[str, Any] = {name: value for name, value in zip(TEXTS, fields.texts, strict=True) if value.strip()}
    if fields.pattern.strip():
        try:
            parts["pattern"] = _json(fields.pattern)
        except ValueError as error:
            wrong.append({"place": "pattern", "reason": str(error)})
    rows: list[dict[str, Any]] = []
    for at, row in enumerate(fields.rows):
        if not row.field and not row.value:
            continue  # an added row that is still empty
        try:
            rows.append({"field": row.field, "op": row.op, "value": _value(row)} | ({"root": row.root} if row.root else {}))
        except ValueError as error:
            wrong.append({"place": f"filters[{at}].value", "reason": str(error)})
    if rows:
        parts["filters"] = rows
    mine = {*TEXTS, "pattern", "filters"}
    rest = {name: parts.get(name, value) for name, value in members.items() if name not in mine or name in parts}
    return neat(rest | {name: value for name, value in parts.items() if name not in rest}), wrong


def shown(text: str) -> Draft:
    """Return a draft of a text and its form, which agree."""
    try:
        fields = fields_of(text)
    except Unfit as unfit:
        return Draft(text, None, str(unfit), _agreed(text, None))
    return Draft(text, fields, agreed=_agreed(text, fields))


def _agreed(text: str, fields: Fields | None) -> str:
    return " ".join(hashlib.sha256(each.encode(errors="surrogatepass")).hexdigest()[:32] for each in (text, repr(fields)))


def of_form(form: Mapping[str, str]) -> Draft:
    """Return a draft of the submitted page: text and form agree again, or it has the reason."""
    text, do = form.get("text", "").replace("\r\n", "\n"), form.get("do", "")
    if "rows" not in form or do == "take_text":
        return shown(text)
    fields, agreed = _typed(form), form.get("agreed", "")
    was, now = agreed.split(), _agreed(text, fields).split()
    is_same = len(was) == 2 and was[0] == now[0]
    if do == "add":
        fields = fields._replace(rows=(*fields.rows, Row())[:MOST_ROWS])
    elif do.startswith("remove."):
        fields = fields._replace(rows=tuple(row for at, row in enumerate(fields.rows) if do != f"remove.{at}"))
    elif do != "take_form" and len(was) == 2 and was[1] == now[1]:
        return shown(text)
    wanted, wrong = merged(text, fields)
    if wrong:
        return Draft(text, fields, agreed=agreed, wrong=tuple(wrong))
    if is_same or do == "take_form" or _is_equal(text, wanted):
        return Draft(wanted, fields, agreed=_agreed(wanted, fields))
    reason = "the form and the JSON were both changed: take one of them"
    return Draft(text, fields, agreed=agreed, wrong=({"place": "form", "reason": reason},))


def _is_equal(text: str, other: str) -> bool:
    try:
        return neat(read(text)) == neat(read(other))
    except (RecursionError, ValueError):
        return False


def _typed(form: Mapping[str, str]) -> Fields:
    def line(name: str) -> str:
        return form.get(name, "").replace("\r\n", "\n")

    count = int(form["rows"]) if form["rows"].isascii() and form["rows"].isdigit() and len(form["rows"]) < 4 else 0
    rows = (Row(*(line(f"{name}.{at}") for name in Row._fields)) for at in range(min(count, MOST_ROWS)))
    return Fields(tuple(map(line, TEXTS)), line("pattern"), tuple(rows))


def pointed(draft: Draft, errors: Any) -> list[dict[str, Any]]:
    """Return errors with their lines of the text, or of CEL, split into the text before, at and after the error."""
    located = []
    for each in errors:
        error, source = dict(each), draft.text
        line, column = error.get("line"), error.get("column")
        if "cel_line" in error and draft.fields is not None:
            source, line, column = draft.fields.texts[TEXTS.index("cel")], error["cel_line"], error["cel_column"]
        lines = source.split("\n")
        if line and column and line <= len(lines):
            text, at = lines[line - 1], column - 1
            token = _TOKEN.match(text, at)
            end = token.end() if token is not None else at
            error["pointed"] = (line, text[max(0, at - 60) : at], text[at:end][:120] or " ", text[end : end + 60])
        located.append(error)
    return located


def with_wrong(draft: Draft, wrong: Any) -> Draft:
    """Return a draft with additional errors."""
    return replace(draft, wrong=(*draft.wrong, *wrong))
