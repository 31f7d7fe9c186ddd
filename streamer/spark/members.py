"""Subscriptions of a DataFrame as JSON texts: from one column of whole subscriptions, or from a column for each member.

```
id │ collection │ filters (JSON text) │ labels (variant) │ updated_at
a  │ orders     │ [{"field": ...}]    │ {"team": "x"}    │ not a member   ─►   {"id": "a", "collection": "orders", "filters": ...}
```

Invariant: the value of a column becomes only the member of its name. A JSON text is inserted as it is, so that its numbers keep
their digits, but only if it is one JSON value: `[], "tenant": "*"` in `filters` is a text, which the engine refuses, and never a
tenant.

Rejected: `parse_json`, which PySpark 3.5 lacks; a pass through Python to look at each text, which the engine reads anyway.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType, StringType, StructType

from streamer.spark.schema import column, field_of, folded, is_case_sensitive
from streamer.subscriptions.parse import MEMBERS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Extra: TypeAlias = Literal["warn", "ignore", "forbid"]
"""What to do with columns that are not members."""
EXTRAS: Final[tuple[Extra, ...]] = ("warn", "ignore", "forbid")

#: Members that are not texts; a column of texts has them as JSON. A pattern is JSON text too, which the engine itself reads.
_AS_JSON: Final = ("types", "filters", "labels")
#: `to_json` leaves out nulls with any settings of the session.
_NO_NULLS: Final = {"ignoreNullFields": "true"}

logger: Final = logging.getLogger("streamer.spark")


def texts_of(source: DataFrame, subscription_col: str | None = None, extra: Extra = "warn") -> DataFrame:
    """Return subscriptions as JSON, in a column `text`.

    Args:
        subscription_col: the column of whole subscriptions; None if that is the only one, or if each member has a column.
        extra: treatment of columns that are not members.

    Raises:
        ValueError: a column is missing or ambiguous; or a column is not a member, and *extra* forbids it or its name
            resembles that of a member without a column.
    """
    if subscription_col is not None:
        name = field_of(source, subscription_col).name
        source = source.select(column(name))
    fields = source.schema.fields
    if len(fields) == 1:
        kind, whole = fields[0].dataType, column(fields[0].name)
        if isinstance(kind, StructType):
            return texts_of_members(source.select(*(whole.getField(each).alias(each) for each in kind.names)), extra)
        text = F.to_json(whole) if _is_variant(kind) else whole.cast("string")
        return source.select(text.alias("text"))
    return texts_of_members(source, extra)


def check_extra(extra: Extra) -> None:
    if extra not in EXTRAS:
        raise ValueError(f"extra: expected {' or '.join(map(repr, EXTRAS))}, not {extra!r}")


def texts_of_members(source: DataFrame, extra: Extra) -> DataFrame:
    """Return subscriptions of a column for each member as JSON, in a column `text`. Null members are left out."""
    is_exact = is_case_sensitive(source)
    there = {folded(name, is_exact=is_exact) for name in source.columns}
    fields = {name: field_of(source, name) for name in MEMBERS if name in there}
    named = {field.name for field in fields.values()}
    _look_at([name for name in source.columns if name not in named], [name for name in MEMBERS if name not in fields], extra)
    plain: list[Column] = []
    parts: list[Column] = []
    for name, field in fields.items():
        value = column(field.name)
        if name in _AS_JSON and isinstance(field.dataType, StringType):
            parts.append(_member_of_json(name, value))
        elif _is_variant(field.dataType):
            # Null in JSON is not null in SQL.
            text = F.to_json(value)
            parts.append(F.when(text != "null", F.concat(F.lit(f'"{name}":'), text)))
        else:
            plain.append(value.alias(name))
    if plain:
        parts.insert(0, _members(F.to_json(F.struct(*plain), _NO_NULLS)))
    return source.select(F.concat(F.lit("{"), F.concat_ws(",", *parts), F.lit("}")).alias("text"))


def _member_of_json(name: str, value: Column) -> Column:
    """Return `"name":value` of JSON texts; a text that is not one JSON value becomes a string, which the engine refuses."""
    strict = {"allowSingleQuotes": "false", "mode": "PERMISSIVE"}
    items = F.from_json(F.concat(F.lit("["), value, F.lit("]")), "array<string>", strict)
    as_text = _members(F.to_json(F.struct(value.alias(name)), _NO_NULLS))
    text = F.when(F.size(items) == 1, F.concat(F.lit(f'"{name}":'), value)).otherwise(as_text)
    return F.when(value.isNotNull() & (F.trim(value) != "null"), text)


def _members(text: Column) -> Column:
    """Return the text between the braces of an object; null if it has no members."""
    return F.when(text != "{}", text.substr(F.lit(2), F.length(text) - 2))


def _look_at(others: Sequence[str], missing: Sequence[str], extra: Extra) -> None:
    """Report columns that are not members. Raises ValueError."""
    if not others or extra == "ignore":
        return
    for name in others:
        if near := get_close_matches(name.lower(), missing, 1, 0.75):
            reason = f"is it {near[0]!r}? Rename it, or pass extra='ignore' to leave it out"
            raise ValueError(f"subscriptions: column {name!r} is not a member: {reason}")
    named = ", ".join(map(repr, others[:20])) + (f" and {len(others) - 20} more" if len(others) > 20 else "")
    if extra == "forbid":
        raise ValueError(f"subscriptions: no members are {named}; there are {', '.join(MEMBERS)}")
    logger.warning("subscriptions: columns that are not members are left out: %s (extra='ignore' suppresses this warning)", named)


def _is_variant(kind: DataType) -> bool:
    # PySpark 3.5 has no such class.
    return kind.typeName() == "variant"
