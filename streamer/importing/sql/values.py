"""Constants of SQL, with the meaning that PostgreSQL gives them (docs/coming-from/sql.md).

Invariant: a constant that a database may read in several ways is refused, for example a number that no float64 has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final, Literal, TypeAlias, final

from streamer.errors import SubscriptionError
from streamer.importing.conditions import Cel, Condition, Path
from streamer.subscriptions.cel_text import cel_literal, present, regexp_of

Kind: TypeAlias = Literal["number", "text", "boolean", "date", "timestamp", "timestamptz", "null"]


@final
@dataclass(frozen=True, slots=True)
class Constant:
    """A constant of a condition.

    Attributes:
        value: of a date its text, and of a timestamp the text of RFC 3339 in UTC.
        is_bare: whether it is a text in quotes without a type, which PostgreSQL reads as the type of the column.
    """

    value: Any
    kind: Kind
    is_bare: bool = False


NULL: Final = Constant(None, "null")
#: The kinds whose values are compared as times.
INSTANTS: Final = ("date", "timestamp", "timestamptz")

#: The names of types for texts, and those for whole numbers with their largest.
TEXTS: Final = ("TEXT", "VARCHAR")
_INTEGERS: Final = {"SMALLINT": 2**15 - 1, "INT": 2**31 - 1, "BIGINT": 2**63 - 1}

_DIGITS: Final = 15
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIMESTAMP: Final = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d(?:\.\d{1,6})?)(Z|[+-]\d\d(?::?\d\d)?)?", re.ASCII)
_MONTH: Final = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)"
)
#: Texts that a column of another type than text would read as its own: numbers, truth values, times, and some with brackets.
_AMBIGUOUS: Final = re.compile(
    r"\s*(?:"
    r"[+-]?\.?\d[\d._]*(?:e[+-]?\d+)?|[+-]?0[box][\da-f_]+|[+-]?inf(?:inity)?|nan|true|false|t|f"
    r"|epoch|now|today|tomorrow|yesterday|allballs|j\d{5,}"
    r"|(?:(?:sun|mon|tue|wed|thu|fri|sat)[a-z]*[ ,]+)?(?:"
    rf"\d{{1,4}}[-/. ]\s*\d{{1,3}}[-/. ]\s*\d{{1,4}}(?:[T ,+-].*)?"
    rf"|\d{{1,4}}[-/., ]*{_MONTH}(?:[^a-z].*)?|{_MONTH}[-/., ]*\d{{1,4}}(?:[^a-z\d].*)?"
    r"|\d{6,8}[T ]\d.*|\d{1,2}:\d\d(?::\d\d(?:\.\d+)?)?(?:\s*[ap]m)?(?:[ Z+-].*)?)"
    r"|[\[{].*|\([^,]*,.*[)\]]|\".*\""
    r")\s*",
    re.I | re.S | re.ASCII,
)
_ELEMENT: Final = re.compile(r"""\s*(?:"([^"\\]*)"|([^\s{}",\\](?:[^{}",\\]*[^\s{}",\\])?))\s*""")
_ARRAY: Final = re.compile(rf"\{{{_ELEMENT.pattern}(?:,{_ELEMENT.pattern})*+\}}")
#: How PostgreSQL reads a UUID, and how it prints one.
_UUID: Final = re.compile(r"[\da-f]{4}(?:-?[\da-f]{4}){7}", re.I | re.ASCII)
_CANONICAL_UUID: Final = re.compile(r"[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}", re.ASCII)
#: What `instant` can read: RFC 3339, and times without a zone.
_RFC3339: Final = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$"
_LOCAL: Final = r"^\d{{4}}-\d\d-\d\d{}\d\d:\d\d:\d\d(\.\d+)?$"
_DAY: Final = r"^\d{4}-\d\d-\d\d$"


def number(text: str, *, is_negative: bool) -> Constant:
    """Return a number: an integer if it is whole, else a float64.

    Raises:
        SubscriptionError: the number is beyond 64 bits, or has more digits than all databases compare alike.
    """
    if not re.fullmatch(r"(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", text[:200], re.ASCII) or len(text) > 200:
        raise SubscriptionError("expected a number such as 12, 1.5 or 1e3")
    value = -Decimal(text) if is_negative else Decimal(text)
    if value.adjusted() >= 20 or not -(2**63) <= value < 2**64:
        raise SubscriptionError("a number beyond 64 bits, which databases round in several ways")
    if value == value.to_integral_value():
        return Constant(int(value), "number")
    if value.adjusted() < -300 or len(value.normalize().as_tuple().digits) > _DIGITS:
        raise SubscriptionError(f"a number with more than {_DIGITS} digits, which float64 rounds; write fewer")
    return Constant(float(value), "number")


def negated(constant: Constant) -> Constant:
    """Return a number with the other sign.

    Raises:
        SubscriptionError: it is beyond 64 bits.
    """
    return number(str(abs(constant.value)), is_negative=constant.value > 0)


def typed(constant: Constant, kind: str) -> Constant:
    """Return a constant with a type, such as `DATE '2026-01-31'` or `5::bigint`.

    Raises:
        SubscriptionError: the type, or this constant of it, has no exact translation.
    """
    if constant.value is None:
        return constant
    if kind in _INTEGERS or kind in ("DECIMAL", "DOUBLE"):
        return _typed_number(constant, kind)
    text = constant.value
    if constant.kind != "text":
        raise SubscriptionError("only a number, or a text in quotes, can have a type")
    if kind in TEXTS:
        return Constant(text, "text")
    if kind == "DATE":
        return Constant(_day(text), "date")
    if kind == "TIMESTAMP":
        return Constant(_instant(f"{text}T00:00:00" if _DATE.fullmatch(text) else text, has_zone=False), "timestamp")
    if kind == "TIMESTAMPTZ":
        return Constant(_instant(text, has_zone=True), "timestamptz")
    raise SubscriptionError("a constant of this type is not supported; expected text, date, timestamp or timestamptz")


def _typed_number(constant: Constant, kind: str) -> Constant:
    if constant.is_bare:
        constant = number(constant.value.removeprefix("-"), is_negative=constant.value.startswith("-"))
    # A column of whole numbers is rounded before it is compared with a double.
    largest = _INTEGERS.get(kind, 2**53 - 1 if kind == "DOUBLE" else None)
    if constant.kind != "number" or (kind in _INTEGERS and not isinstance(constant.value, int)):
        raise SubscriptionError("this constant does not have this type exactly")
    if largest is not None and abs(constant.value) > largest:
        raise SubscriptionError("this number is too large for its type to be compared exactly")
    return constant


def elements(text: str) -> Iterator[Constant]:
    """Yield the elements of a text such as `{a,b}`, as PostgreSQL reads it.

    Raises:
        SubscriptionError: they have escapes, are arrays or NULL, or there are none.
    """
    if not _ARRAY.fullmatch(text):
        raise SubscriptionError("expected an array such as '{a,b}', with elements without escapes; write ARRAY['a', 'b']")
    for quoted, plain in _ELEMENT.findall(text[1:-1]):
        if plain.lower() == "null":
            raise SubscriptionError("expected elements that are not NULL")
        yield Constant(plain or quoted, "text", is_bare=True)


def _day(text: str) -> str:
    try:
        return date.fromisoformat(text if _DATE.fullmatch(text) else "").isoformat()
    except ValueError:
        raise SubscriptionError("expected a date such as DATE '2026-01-31'") from None


def _instant(text: str, *, has_zone: bool) -> str:
    match = _TIMESTAMP.fullmatch(text)
    try:
        if match is None or (match[3] is not None) is not has_zone:
            raise ValueError
        value = datetime.fromisoformat(f"{match[1]}T{match[2]}{match[3] or 'Z'}").astimezone(UTC)
    except (ValueError, OverflowError):
        example = "TIMESTAMPTZ '2026-01-31T12:00:00Z'" if has_zone else "TIMESTAMP '2026-01-31 12:00:00', without a time zone"
        raise SubscriptionError(f"expected a time such as {example}") from None
    return value.isoformat().replace("+00:00", "Z")


def check_bare(constant: Constant, *, is_cast: bool = False) -> None:
    """Raise an error if the meaning of a text in quotes depends on the type of the column.

    Args:
        is_cast: whether it is compared with `column::text`.

    Raises:
        SubscriptionError: it does.
    """
    if is_cast and constant.kind == "text" and _AMBIGUOUS.fullmatch(constant.value):
        raise SubscriptionError("this may be the text of a column of another type; write a column of texts without ::text")
    if not constant.is_bare:
        return
    if _AMBIGUOUS.fullmatch(constant.value):
        raise SubscriptionError(
            "the meaning of this text depends on the column's type; write a number or boolean without quotes, "
            "a time as DATE '…', TIMESTAMP '…' or TIMESTAMPTZ '…', and a text as '…'::text"
        )
    if _UUID.fullmatch(constant.value) and not _CANONICAL_UUID.fullmatch(constant.value):
        raise SubscriptionError(
            "this text may be a UUID; write one as PostgreSQL prints it, in small letters with four '-', and a text as '…'::text"
        )


def check_member(constant: Constant) -> None:
    """Raise an error if `->>` may return a text for a member of JSON that is not a text.

    Raises:
        SubscriptionError: it may.
    """
    if constant.kind != "text":
        raise SubscriptionError("->> returns text; compare it with a text")
    try:
        is_text = isinstance(json.loads(constant.value), str)
    except (ValueError, RecursionError):
        is_text = not constant.value.lstrip().startswith(("[", "{"))
    if not is_text:
        raise SubscriptionError(f"->> returns this text for a text and for other JSON; compare the member in CEL: {_EXAMPLE}")


_EXAMPLE: Final = "data.details.size == 5"


def compared(op: str, one: Constant, other: Constant) -> bool | None:
    """Return the result of a comparison of constants; None if it is unknown.

    Raises:
        SubscriptionError: they have different types.
    """
    if one.value is None or other.value is None:
        return None
    if one.kind != other.kind:
        raise SubscriptionError(f"a comparison of a {one.kind} with a {other.kind}")
    left, right = (datetime.fromisoformat(each.value) if each.kind in INSTANTS else each.value for each in (one, other))
    order = (left > right) - (left < right)
    return {"==": order == 0, "!=": order != 0, "<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0}[op]


def instant(path: Path, op: str, constant: Constant) -> Condition:
    """Return a comparison of a time with a constant. A value that is not a time in one of the known forms counts as null.

    Times with a zone are RFC 3339. Those without one may also be as PostgreSQL prints them, in text or in JSON, and a date is
    its midnight.
    """
    at, value = path.cel(), constant.value if constant.kind != "date" else f"{constant.value}T00:00:00Z"
    forms = [(_RFC3339, f"timestamp({at}) {op} timestamp({cel_literal(value)})")]
    if constant.kind != "timestamptz":
        forms += [(_LOCAL.format(between), _order(at, op, _local(value, between))) for between in (" ", "T")]
        forms.append((_DAY, f"{at} + ' 00:00:00' {op} {cel_literal(_local(value, ' '))}"))
    texts = [f"{at}.matches({cel_literal(form)}) && {comparison}" for form, comparison in forms]
    either = texts[0] if len(texts) == 1 else f"({' || '.join(texts)})"
    return Cel(f"{present(path.root, path.names)} && type({at}) == string && {either}")


def _order(at: str, op: str, text: str) -> str:
    """Return a comparison of times as texts, of which the constant has no zeros at the end of its fraction."""
    zeros = "0*" if "." in text else r"(\.0+)?"
    is_same = f"{at}.matches({cel_literal(f'^{regexp_of(text)}{zeros}$')})"
    order = f"{at} {op} {cel_literal(text)}"
    # A text of the same time with more zeros comes after the constant, which is right for < and >= alone.
    return {"==": is_same, "!=": f"!{is_same}", ">": f"{order} && !{is_same}", "<=": f"({order} || {is_same})"}.get(op, order)


def _local(value: str, between: str) -> str:
    text = value.removesuffix("Z").replace("T", between)
    return text.rstrip("0") if "." in text else text
