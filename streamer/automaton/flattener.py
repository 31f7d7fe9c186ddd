"""Convert an event in some format to its leaves: path, value, array position.

Paths do not contain arrays: `{"a": [{"b": 1}, {"b": 3}]}` has two leaves at `("a", "b")`. The array position distinguishes them:

    Leaf(path=("a", "b"), value=1, arrays=((0, 0),))
    Leaf(path=("a", "b"), value=3, arrays=((0, 1),))

Each array of the event gets its own number, so the pairs mean: in array 0 at index 0, in array 0 at index 1. Without them, the
pattern `{"a": {"b": [1], "c": [4]}}` would match if 1 and 4 are in different elements (streamer/reference/patterns.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

from streamer.errors import EventCode, EventError
from streamer.events.layout import EventLayout, encode_pointer
from streamer.events.reading import read_object
from streamer.model import INT64_MIN, UINT64_MAX, BeyondFloat64, Limits
from streamer.reference.patterns import Leaf, leaves

__all__ = ["Flattener", "JsonFlattener", "Leaf", "check_leaf", "leaves"]

_WHOLE = EventLayout.preset("document")


@runtime_checkable
class Flattener(Protocol):
    """Reads one format of events for `Quamina`. Several threads may call it at once.

    If the format is similar to JSON, convert its values to `dict`, `list` and scalars, and return `leaves(value)`.
    """

    def flatten(self, event: Any) -> Iterable[Leaf | tuple[tuple[str, ...], Any, tuple[tuple[int, int], ...]]]:
        """Return the leaves of an event, as `Leaf` or as plain triples of path, value and array position.

        A value is a string, int of 64 bits, finite float, bool or None. In one element, or outside of all arrays, all leaves at
        one path come from one array, or there is one leaf: names that repeat, as in XML, are an array. Leaves that break this are
        an `EventError` if a pattern names their path.

        Raises:
            EventError: *event* is not of this format.
        """
        ...


class JsonFlattener:
    """Reads JSON objects, strictly (semantics.md section 1): bytes, `str`, or a `dict`."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()

    def read(self, event: bytes | str | Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the event as one value. `Quamina` prefers this to leaves, because those in nested arrays repeat positions.

        Raises:
            EventError: the event cannot be read; it has code, byte offset and reason.
        """
        document: Mapping[str, Any] = read_object(event, layout=_WHOLE, limits=self.limits).value
        return document

    def flatten(self, event: bytes | str | Mapping[str, Any]) -> Iterator[Leaf]:
        """Return the leaves of a JSON object."""
        return leaves(self.read(event))


def check_leaf(leaf: Leaf | tuple[Any, ...]) -> Leaf:
    """Return a leaf of a flattener as a `Leaf`, after checking its value.

    Raises:
        EventError: bad_value, if the value has a wrong type or range.
    """
    leaf = Leaf(*leaf)
    value = leaf.value
    good = value is None or isinstance(value, bool | BeyondFloat64) or (isinstance(value, float) and math.isfinite(value))
    what = type(value).__name__
    if isinstance(value, str):
        good = value.isascii() or not any(0xD800 <= ord(char) <= 0xDFFF for char in value)
    elif isinstance(value, int) and not isinstance(value, bool):
        # As in an event that is a dict (semantics.md section 1).
        good, what = INT64_MIN <= value <= UINT64_MAX, "an integer beyond 64 bits"
    if not good:
        raise EventError(
            EventCode.BAD_VALUE,
            f"a flattener gave {what}, not a string, int, finite float, bool or None",
            place=encode_pointer(leaf.path),
        )
    return leaf
