"""Events of MongoDB's change streams, as Extended JSON (`bson.json_util.dumps` of what `watch` yields).

An update has the whole document only if the stream was opened with `full_document`, and the document before the change only with
`full_document_before_change`. Otherwise, they are unknown. `updateLookup` reads the document when the event is read, which may be
later than the change; `required` and `whenAvailable` return the document right after the change.
https://www.mongodb.com/docs/manual/reference/change-events/
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from streamer.cdc.messages import ChangeEvent, ChangeType, Keyed, change, needed, no_change, part, without_document
from streamer.cdc.messages import read as read_object
from streamer.events import extended_json
from streamer.events.literal_json import Message

_TYPES: Final[dict[str, ChangeType]] = {"insert": "insert", "update": "update", "replace": "update", "delete": "delete"}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WHAT: Final = "mongodb"


def decode(message: Message) -> list[ChangeEvent]:
    """Return the change of an event, as `read` does, without its key."""
    return [event for event, _ in read(message)]


def read(message: Message) -> list[Keyed]:
    """Return the change of an event, and the values of its `documentKey`. The collection is `database.collection`.

    In Extended JSON, object ids and UUIDs become text, numbers become numbers, and dates become RFC 3339 text. Other types, such
    as regular expressions, stay objects, and so do values that cannot be read.

    Raises:
        EventError: the message is not an event of a change stream.
    """
    members = read_object(message, _WHAT)
    if "splitEvent" in members and members.get("operationType") is None:
        # The first fragment has the operation; other members may be in the next ones.
        return [(no_change("a fragment of a split event"), None)]
    word = needed(members, "operationType", str, _WHAT)
    kind = _TYPES.get(word)
    if kind is None:
        return [(no_change(f"the operation {word[:40]!r}, which changes no document"), None)]
    space = needed(members, "ns", Mapping, _WHAT)
    collection = f"{needed(space, 'db', str, _WHAT, '/ns')}.{needed(space, 'coll', str, _WHAT, '/ns')}"
    new, before, key = (_document(members, name) for name in ("fullDocument", "fullDocumentBeforeChange", "documentKey"))
    ts, event_id = _milliseconds(members), _token(members)
    if kind == "delete":
        event = change(kind, collection, before=key if before is None else before, ts=ts, event_id=event_id)
    elif new is None and key is not None and "_id" in key:
        # The document is unknown, except its `_id`, which never changes. The rest of the key is a shard key, which may.
        known = {"_id": key["_id"]}
        event = change(kind, collection, data=known, before=before, ts=ts, event_id=event_id) | {"partial": True}
    elif new is None:
        event = without_document(kind, collection, before=before, ts=ts, event_id=event_id)
    else:
        event = change(kind, collection, data=new, before=before, ts=ts, event_id=event_id)
    return [(event, _key(members.get("documentKey")))]


def _key(key: Mapping[str, Any] | None) -> Sequence[Any]:
    values = [key[name] for name in sorted(key)] if key else []
    return [value.get("$oid", value) if isinstance(value, Mapping) else value for value in values]


def _document(members: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    document = part(members, name, Mapping, _WHAT)
    return None if document is None else extended_json.plain(document)


def _token(members: Mapping[str, Any]) -> str | None:
    token = part(members, "_id", Mapping, _WHAT) or {}
    data = token.get("_data")
    return data if isinstance(data, str) else None


def _milliseconds(members: Mapping[str, Any]) -> int | None:
    wall = members.get("wallTime")
    if isinstance(wall, Mapping) and "$date" in wall:
        return (extended_json.moment(wall["$date"], "/wallTime") - _EPOCH) // timedelta(milliseconds=1)
    cluster = members.get("clusterTime")
    stamp = cluster.get("$timestamp") if isinstance(cluster, Mapping) else None
    seconds = stamp.get("t") if isinstance(stamp, Mapping) else None
    return seconds * 1000 if isinstance(seconds, int) and not isinstance(seconds, bool) else None
