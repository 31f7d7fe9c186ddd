"""Events that are structs, maps or variants, as tables of Debezium's or Avro's records have them: the JSON of each.

| in Spark | in JSON |
|---|---|
| numbers, decimals too | the number, with all its digits |
| NaN and infinities | `"NaN"`, `"Infinity"`, `"-Infinity"` |
| timestamp | RFC 3339 in UTC, always with six digits of a second: `"2026-11-22T10:15:30.123456Z"` |
| timestamp_ntz, date | without an offset: `"2026-11-22T10:15:30.123456"`, `"2026-11-22"` |
| binary | base64 |
| null | null, at every depth: the member exists |
| map | an object of its keys as text |

Texts of six digits sort like their times. They do not depend on the session's time zone and formats.

Rejected: a conversion in the workers (they would get the rows as Arrow's structs, and Spark's own `to_json` is compiled with the
rest of its plan); nulls left out (`exists` could not distinguish a null column from one that a source does not carry).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DecimalType,
    IntegralType,
    MapType,
    StringType,
    StructType,
)

if TYPE_CHECKING:
    from pyspark.sql import Column

#: Options of `to_json` that make it independent of the session.
_OPTIONS: Final = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "dateFormat": "yyyy-MM-dd",
}
#: Keys of maps whose text is their value; for others Spark writes their internal form, such as the address of bytes.
_KEYS: Final = (StringType, IntegralType, DecimalType, BooleanType)


def is_object(kind: DataType) -> bool:
    """Return whether `text_of` accepts a type."""
    # PySpark 3.5 has no class of variants.
    return isinstance(kind, StructType | MapType) or kind.typeName() == "variant"


def text_of(value: Column, kind: DataType, name: str) -> Column:
    """Return JSON of a column of structs, maps or variants; null of null.

    Raises:
        TypeError: a map in it has keys without a text; *name* is the place.
    """
    _check(kind, name)
    return F.to_json(value, _OPTIONS)


def _check(kind: DataType, place: str) -> None:
    if isinstance(kind, StructType):
        for field in kind.fields:
            _check(field.dataType, f"{place}.{field.name}")
    elif isinstance(kind, ArrayType):
        _check(kind.elementType, f"{place}[]")
    elif isinstance(kind, MapType):
        if not isinstance(kind.keyType, _KEYS):
            kind_name = kind.simpleString()
            raise TypeError(f"column {place!r} is {kind_name}; the names of an object are text: cast its keys (transform_keys)")
        _check(kind.valueType, f"{place}{{}}")
