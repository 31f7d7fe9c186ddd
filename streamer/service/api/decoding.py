"""Decode records for a trial, as a source of their format would, into the events that are matched."""

from __future__ import annotations

import json
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple, final, get_args

from streamer import cdc
from streamer.config.schema.encoded import SourceFormat
from streamer.core.options import Options
from streamer.events.format_options import Tables
from streamer.events.layout import PARTS, EventLayout
from streamer.events.literal_json import parsed, written
from streamer.events.reading import IgnoredEvent
from streamer.service.api.calls import Answer, Call, Param, answer
from streamer.service.api.problems import Problem
from streamer.service.connectors.formats import decoder, no_change_of

FORMATS: Final[tuple[SourceFormat, ...]] = get_args(SourceFormat)
FORMAT: Final = Param(
    "format", "What the event is: a record of this format, decoded as a source would.", {"type": "string", "enum": FORMATS}
)
#: The members and parameters of questions about events.
_QUESTION: Final = {"event", "id", "subscription", "tenant", "format", "limit", "examine", "text", "key"}
#: The most events of a record here. A source accepts more, but an API request must not occupy a core for long.
MOST_EVENTS: Final = 1000
_WHY_IGNORED: Final = {
    "empty": "it is empty",
    "null": "it is null: a tombstone",
    "type": "its type is not that of a change",
    "no_change": "it has no parts of a change",
}


@final
class Read(NamedTuple):
    """An event of a record.

    Attributes:
        ignored: a description of the record if it is not a change; *text* is empty then.
    """

    text: bytes
    type: str | None = None
    key: str | None = None
    ignored: str | None = None


@final
class Records:
    """Makes events of records, for an engine with some options.

    Decoders need the layout of their events, or the default one, which has the same parts. A layout that an operator chose cannot
    read the events of a decoder, so only `json` is possible with it.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        layout = options.layout
        self._is_of_decoders = layout.format == cdc.LAYOUT.format
        self.formats: tuple[SourceFormat, ...] = FORMATS if self._is_of_decoders or layout == EventLayout() else ("json",)

    def events(self, name: SourceFormat, record: bytes, tenant: str | None, key: str | None = None) -> list[Read]:
        """Return the events of a record of a tenant. Raises EventError, and Problem if the format is not possible here."""
        if name not in self.formats:
            reason = f"format: the service reads events of matching.format or matching.layout, not of {name}: expected json"
            raise Problem("bad-request", reason)
        whole = self._options.layout.whole_rows or () if self._is_of_decoders else ()
        decode = decoder(name, most=MOST_EVENTS, tables=Tables(tuple(whole)))
        if decode is None:
            self._refuse_question(record)
            return [self._read(record, key, tenant)]
        read = [
            self._read(self._of_layout(text), own, tenant) if (what := no_change_of(text)) is None else Read(b"", ignored=what)
            for text, own in decode(record, key)
        ]
        return read or [Read(b"", ignored="a batch of no events")]

    def _of_layout(self, text: bytes) -> bytes:
        """Return an event of a decoder for the engine's layout. Only that of decoders knows that a change may be partial."""
        if self._is_of_decoders or b'"partial":true' not in text:
            return text
        event = parsed(text, "")
        if not event.pop("partial", False):
            return text
        return written(event | {"unknown": ["/data"]}).encode()

    def _read(self, text: bytes, key: str | None, tenant: str | None) -> Read:
        """Return an event, or the reason for which an engine would ignore it. Raises EventError."""
        try:
            return Read(text, self._options.read(text, tenant, None).type, key)
        except IgnoredEvent as ignored:
            return Read(b"", ignored=_WHY_IGNORED[ignored.reason.value])

    def _refuse_question(self, event: bytes) -> None:
        """Refuse a body for `explain`, which as an event would match subscriptions without conditions, and hide the mistake."""
        try:
            parsed = json.loads(event, parse_int=float)
        except (RecursionError, ValueError):
            return  # reading the event reports the error
        if not isinstance(parsed, dict) or not isinstance(parsed.get("event"), dict) or not parsed.keys() <= _QUESTION:
            return
        pointers = [pointer for part in PARTS for pointer in self._options.layout.pointers(part)]
        if not any(pointer[:1] in ((), ("event",)) for pointer in pointers):
            reason = "unknown member: the body is the event itself, not an object with this member; did you mean /v1/explain?"
            raise Problem("bad-request", f"event: {reason}", errors=[{"place": "event", "reason": reason}])

    def note(self, name: SourceFormat, events: list[Read]) -> str | None:
        """Return how a source of the format would read these events differently; None if it would not."""
        if name == "json" or self._is_of_decoders or not any(each.type in ("update", "delete") for each in events):
            return None
        return "the service has no such source: in one, values that before lacks are unknown; here they count as missing"

    def one(self, call: Call, record: bytes) -> Read:
        """Return the event that a question is about. Raises EventError, and Problem if the record has several."""
        name = call.query.get("format")
        if name is None:
            self._refuse_question(record)
            return Read(record)
        events = self.events(name, record, call.of_events)
        if len(events) > 1:
            raise Problem("event", f"the record has {len(events):,} events: /v1/decode splits them; send one of them")
        return events[0]


@final
class Decoding:
    """Handlers of records."""

    def __init__(self, options: Options) -> None:
        self._options, self._records = options, Records(options)

    def list_formats(self, _: Call) -> Answer:
        """See the route."""
        items = [
            {
                "format": name,
                "examples": [
                    {"name": each["name"], "record": each["record"]}
                    for each in examples()
                    if each["format"] == name and (name != "json" or self._fits(each["layout"]))
                ],
            }
            for name in self._records.formats
        ]
        return answer({"items": items})

    def _fits(self, preset: Any) -> bool:
        layout = EventLayout() if self._options.layout.format == cdc.LAYOUT.format else self._options.layout
        return layout == EventLayout.preset(preset)

    def decode(self, call: Call) -> Answer:
        """See the route."""
        name, limit = call.query.get("format", "json"), call.query.get("limit", 10)
        records = self._records.events(name, call.body, call.of_events, call.query.get("key"))
        events = b",".join(
            b'{"event":%b,"key":%b,"ignored":%b}' % (each.text or b"null", _json(each.key), _json(each.ignored))
            for each in records[:limit]
        )
        note = self._records.note(name, records)
        # Bytes, because numbers keep their spelling.
        return Answer(b'{"events":[%b],"count":%d,"note":%b}' % (events, len(records), _json(note)))


def _json(value: str | None) -> bytes:
    return json.dumps(value).encode()


@cache
def examples() -> list[dict[str, str]]:
    """Return example records: `format`, `name`, `record`, and for `json` also the preset `layout`."""
    parsed = tomllib.loads(files("streamer.service.api").joinpath("examples.toml").read_text("utf-8"))
    return list(parsed["example"])
