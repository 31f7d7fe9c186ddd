"""Write a subscription as JSON text for the core and for snapshots, and check its length.

```
                 ┌─ exact_text      complete, or None                       stored by the native core
 Subscription ───┼─ partial_text    without parts that JSON lacks           parsed by the native core, next to the object
 dict, bytes     └─ canonical_text  members in order, defaults left out     a line of a snapshot
```

`plain_json` writes plain values and is ten times faster; `write_json` writes all others. It is a loop, because labels are opaque
and may be nested deeper than Python's stack, or contain themselves.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from json.encoder import JSONEncoder, encode_basestring
from math import isfinite
from typing import Any, Final

from streamer.errors import SubscriptionError
from streamer.model import INT64_MIN, UINT64_MAX, BeyondFloat64, Limits, is_unicode
from streamer.subscriptions.groups import group_of
from streamer.subscriptions.parse import parse_subscription
from streamer.subscriptions.subscription import EVERY, Subscription

#: The nesting limit of JSON text that is written: parsers refuse deeper text.
MAX_DEPTH: Final = 512
#: The length limit of JSON text that is written.
MAX_BYTES: Final = 16 * 1024 * 1024
#: The most times that objects are written again. A list that contains a list twice, and so on, is short only in memory.
MAX_REPEATED: Final = 100_000
#: The most parts of a value that `plain_json` writes.
MAX_PLAIN: Final = 1_000_000
_PLAIN = JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))

#: Members of a subscription in their order, with the default that is left out.
_USUAL: Final[Mapping[str, Any]] = {
    member.name: [] if member.name == "filters" else (None if member.name == "id" else member.default)
    for member in fields(Subscription)
}


def exact_text(
    source: Subscription | Mapping[str, Any], most: int, plain_json: Callable[[Any, int], bytes | None]
) -> bytes | None:
    """Return JSON text that expresses a subscription in full; None if that is impossible or takes more than *most* bytes.

    Args:
        plain_json: writes plain values, as the function of that name in this module does.
    """
    try:
        members = source.to_dict() if isinstance(source, Subscription) else source
        if (plain := plain_json(members, most)) is not None:
            return plain
        text, is_exact = write_json(members, max_depth=MAX_DEPTH - 1, max_bytes=most, is_short=True)
    except (AttributeError, TypeError, ValueError, RecursionError):
        # The parser reports the error.
        return None
    return text.encode() if is_exact else None


def partial_text(subscription: Subscription, most: int | None) -> bytes:
    """Return the JSON text of a subscription without its labels. Raises ValueError."""
    members = subscription.to_dict()
    members.pop("labels", None)
    if isinstance(subscription.pattern, bytes):
        members["pattern"] = subscription.pattern.decode("utf-8", "replace")
    if (plain := plain_json(members, MAX_BYTES if most is None else most)) is not None:
        return plain
    return write_json(members, max_bytes=most)[0].encode()


def check_length(source: Subscription | bytes | bytearray | str, limits: Limits) -> None:
    """Refuse a subscription whose JSON text, without its labels, is too long. Raises SubscriptionError."""
    most = limits.max_subscription_bytes
    if isinstance(source, str | bytes | bytearray):
        size = len(source.encode("utf-8", "surrogatepass")) if isinstance(source, str) else len(source)
        if size > most:
            raise SubscriptionError(f"{size} bytes of JSON text; at most {most} are allowed (limits.max_subscription_bytes)")
        return
    try:
        partial_text(source, most)
    except TooLongError:
        reason = f"more than the {most} bytes of JSON text that are allowed (limits.max_subscription_bytes)"
        raise SubscriptionError(reason, subscription_id=source.id) from None
    except ValueError:
        pass  # the parser reports values that JSON cannot express


def canonical_text(source: Subscription | bytes, default_tenant: str | None) -> tuple[str, str, bytes]:
    """Return the tenant, the collection and the compact text of an accepted subscription.

    Raises:
        SubscriptionError: JSON cannot express the subscription in full.
    """
    members = _canonical_members(source)
    text = plain_json(members, MAX_BYTES)
    if text is None:
        if not isinstance(source, Subscription):
            # A number beyond float64, or a subscription that is too large for `plain_json`.
            members = _canonical_members(parse_subscription(source))
        text = _exact(members)
    return str(members.get("tenant", default_tenant)), str(members.get("collection", EVERY)), text


def _canonical_members(source: Subscription | bytes) -> dict[str, Any]:
    if isinstance(source, Subscription):
        members = source.to_dict()
        if "types" in members:
            members["types"] = list(members["types"])
        if isinstance(members.get("pattern"), bytes):
            members["pattern"] = members["pattern"].decode()
        return members
    # The text was accepted, so it has no duplicate names. `plain_json` refuses any value that `json.loads` reads differently.
    try:
        document = json.loads(source)
    except (RecursionError, ValueError):
        # It is nested too deep, or has an integer of more than 4,300 digits.
        return _canonical_members(parse_subscription(source))
    members = {name: document[name] for name, usual in _USUAL.items() if name in document and document[name] != usual}
    if "filters" in members:
        members["filters"] = [_canonical_filter(item) for item in members["filters"]]
    return members


def _canonical_filter(source: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of a filter as `Filter.to_dict` does, and those of a group as `FilterGroup.to_dict` does."""
    if (group := group_of(source)) is not None:
        op, entries = group
        filters = [_canonical_filter(each) for each in entries]
        return {op: filters[0] if op == "not" else filters}
    members = {"field": source["field"], "op": source["op"], "value": source.get("value")}
    if members["op"] == "changed" and members["value"] is None:
        del members["value"]
    if (root := source.get("root", "data")) != "data":
        members["root"] = root
    if source.get("ignore_case", False):
        members["ignore_case"] = True
    return members


def _exact(members: Mapping[str, Any]) -> bytes:
    subscription_id = members["id"]
    try:
        text, is_exact = write_json(members)
    except (ValueError, RecursionError) as error:
        raise SubscriptionError(
            f"a snapshot is JSON, which cannot express it: {error}", subscription_id=subscription_id
        ) from None
    if not is_exact:
        raise SubscriptionError("a snapshot is JSON, which cannot express all of it", subscription_id=subscription_id)
    return text.encode()


def plain_json(value: Any, max_bytes: int) -> bytes | None:
    """Return the text that `write_json` returns, for a value of plain parts; None for any other value, even an invalid one,
    and for a text of more than *max_bytes*.

    It is ten times faster, because it uses the compiled encoder of the standard library. It first checks each part, because
    that encoder silently changes values that JSON cannot express.
    """
    pending = [value]
    remaining, room = MAX_PLAIN, max_bytes
    while pending:
        item = pending.pop()
        kind = type(item)
        if kind is str:
            room -= len(item)
        elif kind is dict:
            for name in item:
                if type(name) is not str:
                    return None
                room -= len(name)
            pending.extend(item.values())
            remaining -= len(item)
        elif kind is list:
            pending.extend(item)
            remaining -= len(item)
        elif kind is int:
            if not INT64_MIN <= item <= UINT64_MAX:
                return None
        elif kind is not bool and item is not None and kind is not float:
            return None
        if remaining < 0 or room < 0:
            return None
    try:
        text = _PLAIN.encode(value).encode()
    except (ValueError, RecursionError):
        return None
    return text if len(text) <= max_bytes else None


def labels_text(labels: Mapping[str, Any]) -> str:
    """Return labels as compact JSON text. They were checked when they were added."""
    plain = plain_json(labels, MAX_BYTES)
    return write_json(labels, max_bytes=None)[0] if plain is None else plain.decode()


class TooLongError(ValueError):
    """A value's JSON text is longer than allowed."""


def write_json(
    value: Any, *, max_depth: int = MAX_DEPTH, max_bytes: int | None = MAX_BYTES, is_short: bool = False
) -> tuple[str, bool]:
    """Return a value as compact JSON text, and whether the text is exact: parsing it gives an equal value of equal types.

    Args:
        is_short: whether integers must fit in 64 bits to be exact, because larger ones are read as floats, except in labels.

    Raises:
        TooLongError: the text is longer than *max_bytes*.
        ValueError: JSON has no such value, it is nested deeper than *max_depth*, or it repeats the same objects too often.
    """
    out: list[str] = []
    is_exact = True
    size = 0  # characters in out
    seen: set[int] = set()
    repeated = 0

    def visit(container: Any) -> None:
        nonlocal repeated
        if id(container) in seen:
            repeated += 1
            if repeated > MAX_REPEATED:
                raise ValueError("the same objects again and again")
        seen.add(id(container))

    def put(text: str) -> None:
        # Check the size at every text: if a name of a million characters repeats at each level, a few texts are too long.
        nonlocal size
        size += len(text)
        if max_bytes is not None and size > max_bytes:
            raise TooLongError(f"longer than {max_bytes} bytes as JSON")
        out.append(text)

    def put_quoted(text: str) -> None:
        if max_bytes is not None and size + len(text) > max_bytes:
            raise TooLongError(f"longer than {max_bytes} bytes as JSON")
        put(_quoted(text))

    # A stack of parts to write: finished texts, and values with their depth.
    pending: list[str | tuple[Any, int]] = [(value, 0)]
    while pending:
        next_ = pending.pop()
        if isinstance(next_, str):
            put(next_)
            continue
        item, depth = next_
        kind = type(item)
        if kind is str:
            put_quoted(item)
        elif item is None or kind is bool:
            put("null" if item is None else "true" if item else "false")
        elif kind is int or kind is float:
            put(_number(item, is_short))
        elif kind is BeyondFloat64:
            put(item.text)
        elif isinstance(item, Mapping):
            visit(item)
            is_exact &= kind is dict
            pending.append("}")
            for at, (name, member) in enumerate(reversed(list(item.items()))):
                if not isinstance(name, str):
                    raise ValueError(f"a member name is a string, not {type(name).__name__}")
                is_exact &= type(name) is str
                comma = "" if at == len(item) - 1 else ","
                pending += [(member, depth + 1), f"{comma}{_quoted(name)}:"]
            pending.append("{")
        elif isinstance(item, list | tuple):
            visit(item)
            is_exact &= kind is list
            pending.append("]")
            for at in range(len(item) - 1, -1, -1):
                pending.append((item[at], depth + 1))
                if at:
                    pending.append(",")
            pending.append("[")
        elif isinstance(item, str):
            is_exact = False
            put_quoted(str.__str__(item))
        elif isinstance(item, int | float):
            is_exact = False
            put(_number(int.__int__(item) if isinstance(item, int) else float.__float__(item), is_short))
        else:
            raise ValueError(f"{kind.__name__} is not a JSON type")
        if depth > max_depth:
            raise ValueError(f"nested deeper than {max_depth} levels, or in itself")
    return "".join(out), is_exact


def event_text(value: Any, max_depth: int) -> bytes:
    """Return a parsed event as compact JSON text.

    Args:
        max_depth: the nesting limit of its members.
    """
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), check_circular=False).encode()
    except RecursionError:
        return write_json(value, max_depth=max_depth + 1, max_bytes=None)[0].encode()


def _quoted(text: str) -> str:
    if not is_unicode(text):
        raise ValueError("a string with half of a surrogate pair")
    return encode_basestring(text)


def _number(value: int | float, is_short: bool) -> str:
    if isinstance(value, float):
        if not isfinite(value):
            raise ValueError(f"{value} is not a JSON number")
        return repr(value)
    if is_short and not INT64_MIN <= value <= UINT64_MAX:
        raise ValueError("an integer beyond 64 bits")
    return str(value)
