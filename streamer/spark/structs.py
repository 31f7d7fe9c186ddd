"""Events that are structs, maps or variants, as tables of Debezium's or Avro's records have them: the JSON of each.

| in Spark | in JSON |
|---|---|
| numbers, decimals too | the number, with all its digits |
| NaN and infinities | `"NaN"`, `"Infinity"`, `"-Infinity"` |
| timestamp | RFC 3339 in UTC, always with six digits of a second: `"2026-11-22T10:15:30.123456Z"` |
| timestamp_ntz, date | without an offset: `"2026-11-22T10:15:30.123456"`, `"2026-11-22"` |
| binary | base64 |
| null | null, at every depth: a member that is there |
| map | an object of its keys as text |

Texts of six digits each are in order as the times are. Whatever the session says of time zones and formats, these are the same.

Rejected: a conversion in the workers (they would take the rows over as Arrow's structs, and Spark's own `to_json` is compiled
with the rest of its plan); nulls left out (`exists` could not tell a null column from one that a source does not carry).
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

#: Of `to_json`, so that nothing depends on the session.
_OPTIONS: Final = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "dateFormat": "yyyy-MM-dd",
}
#: Keys of maps whose text is their value; of others Spark writes how it holds them, as the address of bytes.
_KEYS: Final = (StringType, IntegralType, DecimalType, BooleanType)


def is_object(kind: DataType) -> bool:
    """Tell whether a type is one that `text_of` takes."""
    # PySpark 3.5 has no class of variants.
    return isinstance(kind, StructType | MapType) or kind.typeName() == "variant"


def text_of(value: Column, kind: DataType, name: str) -> Column:
    """Return JSON of a column of structs, maps or variants; null of null.

    Raises:
        TypeError: a map in it has keys that no text stands for; *name* says where.
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
            found = kind.simpleString()
            raise TypeError(f"column {place!r} is {found}; the names of an object are text: cast its keys (transform_keys)")
        _check(kind.valueType, f"{place}{{}}")
