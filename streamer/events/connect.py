"""Convert values by their schema of Kafka Connect, which its JSON converter writes next to the payload.

```
{"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}   "YbI="    250.10
{"type": "int32", "name": "io.debezium.time.Date"}                                                 20484     "2026-01-31"
{"type": "string", "name": "io.debezium.data.Json"}                                                "{…}"     the JSON in it
```

Decimals become exact numbers of any size, dates and times become RFC 3339 text, and JSON text becomes its value. Bytes stay
base64. Every other value stays as it is, including a value that does not fit its schema.

Avro, Protobuf and JSON Schema use the same names for the same types. Their readers get the conversion of a type from the table
in this module, by `conversion`. They pass raw bytes instead of base64.
https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-data-types
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, TypeAlias

from streamer.errors import EventError
from streamer.events import json
from streamer.events.literal_json import Number, number, parsed

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: The limit of a decimal's scale, more than any database writes.
_LARGEST_SCALE: Final = 20_000
#: Up to this scale a decimal is written with all of its zeros.
_PLAIN_SCALE: Final = 100
#: The nesting limit, more than any database value needs.
DEEPEST: Final = 64
#: Converts a value other than null to a value of an event.
Conversion: TypeAlias = Callable[[Any], Any]


def plain(value: Any) -> Any:
    """Return a value with its numbers as those of events. Recursive, as deep as a value of a decoder."""
    if isinstance(value, dict):
        return {name: plain(member) for name, member in value.items()}
    if isinstance(value, list):
        return [plain(element) for element in value]
    return json.parse(value.text.encode()) if isinstance(value, Number) else value


def row(value: Any, schema: Any, keep: Callable[[Any], bool] | None = None) -> Any:
    """Return a row with its columns converted by a schema, or the row itself without a schema.

    Args:
        keep: whether a text or a list is a placeholder, which stays as it is, whatever the schema.
    """
    columns = columns_of(schema)
    if not columns or not isinstance(value, Mapping):
        return value
    return {name: typed(member, columns[name], keep=keep) if name in columns else member for name, member in value.items()}


def columns_of(schema: Any) -> dict[str, Mapping[str, Any]]:
    """Return the schemas of the members of a struct, by name; empty for any other schema."""
    fields = schema.get("fields") if isinstance(schema, Mapping) else None
    if not isinstance(fields, list):
        return {}
    return {field["field"]: field for field in fields if isinstance(field, Mapping) and isinstance(field.get("field"), str)}


def struct_of(schema: Any) -> Mapping[str, Any] | None:
    """Return a schema if its values are structs, else None."""
    is_struct = isinstance(schema, Mapping) and schema.get("type") == "struct"
    return schema if is_struct and conversion(schema.get("name"), schema.get("parameters")) is None else None


def defaults_of(schema: Any) -> dict[str, Any]:
    """Return the defaults of the members of a struct, by name, as they are written."""
    return {name: column["default"] for name, column in columns_of(schema).items() if "default" in column}


def typed(value: Any, schema: Mapping[str, Any], depth: int = 0, keep: Callable[[Any], bool] | None = None) -> Any:
    """Return a value converted by its schema; see `row`."""
    if value is None or depth > DEEPEST:
        return value
    if keep is not None:
        is_scaled = isinstance(value, Mapping) and schema.get("name") == SCALED
        inner = value.get("value") if is_scaled else value
        if isinstance(inner, str | list) and keep(inner):
            return value
    if (convert := conversion(schema.get("name"), schema.get("parameters"))) is not None:
        return convert(value)
    kind = schema.get("type")
    if kind == "array" and isinstance(value, list) and isinstance(items := schema.get("items"), Mapping):
        return [typed(item, items, depth + 1, keep) for item in value]
    if kind == "map" and isinstance(value, Mapping) and isinstance(values := schema.get("values"), Mapping):
        return {key: typed(member, values, depth + 1, keep) for key, member in value.items()}
    if kind == "struct" and isinstance(value, Mapping):
        columns = columns_of(schema)
        return {key: typed(member, columns[key], depth + 1, keep) if key in columns else member for key, member in value.items()}
    return value


def conversion(name: Any, parameters: Any = None) -> Conversion | None:
    """Return the conversion for the name of a schema, or None if values stay as they are.

    Args:
        parameters: the parameters of the schema; those of a decimal contain the scale.
    """
    if name == DECIMAL:
        scale = _scale(parameters.get("scale") if isinstance(parameters, Mapping) else None)
        return lambda value: value if (exact := decimal(value, scale)) is None else exact
    return LOGICAL.get(name) if isinstance(name, str) else None


def decimal(encoded: Any, scale: Any) -> Any:
    """Return the number in a decimal, a big-endian integer in two's complement, raw or in base64; None if it is invalid."""
    if not isinstance(encoded, str | bytes) or not isinstance(scale, int) or not -_LARGEST_SCALE <= scale <= _LARGEST_SCALE:
        return None
    try:
        raw = base64.b64decode(encoded, validate=True) if isinstance(encoded, str) else encoded
        unscaled = int.from_bytes(raw, "big", signed=True)
        digits = str(abs(unscaled))
    except (binascii.Error, ValueError):  # invalid base64, or more digits than Python prints
        return None
    sign = "-" if unscaled < 0 else ""
    if abs(scale) > _PLAIN_SCALE:
        # A short value cannot become a long text.
        return Number(f"{sign}{digits}E{-scale}") if unscaled else 0
    if scale > 0:
        digits = digits.rjust(scale + 1, "0")
        return Number(f"{sign}{digits[:-scale]}.{digits[-scale:]}")
    if unscaled:
        digits += "0" * -scale
    return number(sign + digits)


def _scale(scale: Any) -> Any:
    """Return a scale as a number; the parameters of a schema have it as text."""
    return int(scale) if isinstance(scale, str) and scale.lstrip("-").isdecimal() else scale


def variable_decimal(value: Any) -> Any:
    """Return the number in a decimal with its scale, such as `{"scale": 1, "value": "AQ=="}`; any other value as it is."""
    if (
        isinstance(value, str)
        or not isinstance(value, Mapping)
        or value.keys() != {"scale", "value"}
        or type(value["scale"]) is not int
    ):
        return value
    exact = decimal(value["value"], value["scale"])
    return value if exact is None else exact


def _json(value: Any) -> Any:
    try:
        document = parsed(value, "") if isinstance(value, str) else value
    except EventError:
        return value
    return value if _is_deep(document) else document


def _is_deep(value: Any) -> bool:
    """Return whether a value has more than `DEEPEST` levels."""
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [each for outer in level if isinstance(outer, list | dict) for each in _inside(outer)]
        if not level:
            return False
    return True


def _inside(outer: list[Any] | dict[str, Any]) -> Iterable[Any]:
    # A container counts as a level, even if it is empty.
    return [*(outer.values() if isinstance(outer, dict) else outer), None]


def _integer(read: Callable[[int], str]) -> Conversion:
    def reading(value: Any) -> Any:
        try:
            return read(value) if type(value) is int else value
        except OverflowError:  # beyond the years 1 to 9999
            return value

    return reading


@lru_cache(4096)
def _date(days: int) -> str:
    return (_EPOCH + timedelta(days=days)).date().isoformat()


@lru_cache(3600)
def _minutes(seconds: int) -> str:
    return f"{seconds // 60:02}:{seconds % 60:02}"


def _clock(seconds: int) -> str:
    return f"{seconds // 3600:02}:{_minutes(seconds % 3600)}"


def _time(units: int) -> Callable[[int], str]:
    def read(value: int) -> str:
        seconds, rest = divmod(value, units)
        if not 0 <= seconds <= 86_400:
            raise OverflowError
        return f"{_clock(seconds)}{_fraction(rest, units)}"

    return read


def _timestamp(units: int) -> Callable[[int], str]:
    def read(value: int) -> str:
        seconds, rest = divmod(value, units)
        return f"{_date(seconds // 86_400)}T{_clock(seconds % 86_400)}{_fraction(rest, units)}Z"

    return read


def _fraction(rest: int, units: int) -> str:
    # Adding *units* makes a leading 1, which is cut off, so that leading zeros stay.
    return f".{str(units + rest)[1:].rstrip('0')}" if rest else ""


_THOUSANDTHS, _MILLIONTHS, _BILLIONTHS = 10**3, 10**6, 10**9
DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
SCALED: Final = "io.debezium.data.VariableScaleDecimal"
#: The conversions by the name of a schema, except the one of decimals, which depends on the scale.
LOGICAL: Final[Mapping[str, Conversion]] = {
    SCALED: variable_decimal,
    "io.debezium.data.Json": _json,
    "org.apache.kafka.connect.data.Date": _integer(_date),
    "io.debezium.time.Date": _integer(_date),
    "org.apache.kafka.connect.data.Time": _integer(_time(_THOUSANDTHS)),
    "io.debezium.time.Time": _integer(_time(_THOUSANDTHS)),
    "io.debezium.time.MicroTime": _integer(_time(_MILLIONTHS)),
    "io.debezium.time.NanoTime": _integer(_time(_BILLIONTHS)),
    "org.apache.kafka.connect.data.Timestamp": _integer(_timestamp(_THOUSANDTHS)),
    "io.debezium.time.Timestamp": _integer(_timestamp(_THOUSANDTHS)),
    "io.debezium.time.MicroTimestamp": _integer(_timestamp(_MILLIONTHS)),
    "io.debezium.time.NanoTimestamp": _integer(_timestamp(_BILLIONTHS)),
}
