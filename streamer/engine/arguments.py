"""Check the arguments of an engine's methods, in the same way on every backend."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, TypeVar

from streamer.core.options import Options
from streamer.core.protocol import Selection
from streamer.errors import ConfigError
from streamer.model import INT64_MAX, is_text, type_of
from streamer.subscriptions.subscription import Subscription

OnError = Literal["raise", "skip"]
T = TypeVar("T")


def check_positive(name: str, value: int) -> None:
    """Raise TypeError or ValueError if an argument is not an integer of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is an integer, not {type(value).__name__}")
    if value < 1:
        raise ValueError(f"{name}: expected at least 1, not {value}")
    if value > INT64_MAX:
        raise ValueError(f"{name}: expected at most {INT64_MAX}, not {value}")


def several(values: Iterable[T]) -> Iterable[T]:
    """Return an iterable of values, but refuse a single value: iterating over a string, mapping or table would be a mistake."""
    if isinstance(values, str | bytes | bytearray | memoryview | Mapping | Subscription):
        raise TypeError(f"expected several in a list or another iterable, not a single {type(values).__name__}")
    if hasattr(values, "columns") and (rows := _rows(values)) is not None:
        raise TypeError(
            f"expected an iterable of rows, not a {type_of(values)}, whose items are its columns; "
            f"pass its {rows}, a mapping a row"
        )
    return values


def _rows(table: object) -> str | None:
    """Return the call that yields the rows of a table of pandas, polars, pyarrow or Spark as mappings; None for another type."""
    # By their methods, so that no library must be imported.
    for method, call in (
        ("to_dicts", ".to_dicts()"),
        ("to_pylist", ".to_pylist()"),
        ("toPandas", ".toJSON().collect(), or match it by streamer.spark"),
        ("to_dict", '.to_dict("records")'),
    ):
        if hasattr(table, method):
            return call
    return None


def check_no_stream(options: Options) -> None:
    """Refuse to read a part of the messages of a stream, or to read them twice. Raises ConfigError."""
    if options.stream is not None:
        raise ConfigError(
            "a message of pgoutput needs those before it, so an array of them is matched whole: match_arrow without max_matches; "
            "on Spark, whose partitions have no order, decode the messages before with streamer.cdc.pgoutput, and match its "
            "events with layout=streamer.cdc.LAYOUT",
            place="format",
        )


def skips(on_error: OnError) -> bool:
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error: expected 'raise' or 'skip', not {on_error!r}")
    return on_error == "skip"


def selection(ids: Iterable[str] | None, gateway_id: str | None, tenant: str | None, collection: str | None) -> Selection:
    for name, value in (("gateway_id", gateway_id), ("tenant", tenant), ("collection", collection)):
        if value is not None and not isinstance(value, str):
            raise TypeError(f"{name} is a string, not {type(value).__name__}")
        if value is not None and not is_text(value):
            return Selection(ids=frozenset())
    wanted = None if ids is None else frozenset(filter(is_text, ids))
    return Selection(ids=wanted, gateway_id=gateway_id, tenant=tenant, collection=collection)
