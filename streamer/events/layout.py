"""The places of the parts of a change event (semantics.md section 1)."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Any, ClassVar, Final, Literal, TypeAlias, final, get_args

from streamer.errors import ConfigError
from streamer.model import INT64_MAX, INT64_MIN, EventType, Pointer, is_unicode

TimestampFormat = Literal["ms", "us", "ns", "s", "rfc3339"]
FormatName = Literal[
    "change",
    "debezium",
    "debezium_unwrapped",
    "maxwell",
    "canal",
    "dms",
    "wal2json",
    "pgoutput",
    "dynamodb",
    "mongodb",
    "supabase",
    "hasura",
    "sequin",
    "cloudevents",
    "eventbridge",
    "sns",
    "document",
]
EVENT_TYPES: tuple[EventType, ...] = get_args(EventType)
BeforeHolds = Literal["all", "partial", "changed"]
Encoding = Literal["json"]
RecordFormat = Literal[
    "debezium",
    "maxwell",
    "dms",
    "supabase",
    "cloudevents",
    "canal",
    "dynamodb",
    "mongodb",
    "wal2json",
    "pgoutput",
    "debezium_unwrapped",
    "cdc",
]
#: Additional words in `type_map`: an event of such a type has no matches, or counts as an event without a type.
IGNORE = "ignore"
UNTYPED = "none"
MEANINGS = (*EVENT_TYPES, IGNORE, UNTYPED)
NoChange = Literal["match", "ignore"]
PARTS = ("id", "tenant", "collection", "type", "ts", "topic", "data", "before", "unknown")
#: The formats whose records have change events in them, which are what the layout describes; `cdc` is such an event.
WITH_CHANGES = ("canal", "dynamodb", "mongodb", "wal2json", "pgoutput", "debezium_unwrapped")
#: Those of them, and of events, whose rows may be declared whole.
_MAY_BE_WHOLE = (None, "canal", "wal2json", "debezium_unwrapped", "cdc")
#: The prefix of the members that Debezium's transform adds to a row, unless its `add.fields.prefix` is another one.
ADDED: Final = "__"
_WHOLE_OR_OBJECT = ("data", "before", "unknown", "envelope")


@final
@dataclass(frozen=True, slots=True)
class Constant:
    """A part that is the same for every event, such as one tenant for a whole source."""

    value: str | int


Part: TypeAlias = str | Sequence[str] | Constant | None
"""A JSON Pointer; or several, of which the first that is present and not null wins; or a constant; or None, never there.

`collection` may also be a template, or have templates among several: a text with pointers in braces, as
`{/source/schema}.{/source/table}`. It is there if all of its pointers lead to strings.
"""

Way: TypeAlias = tuple[str | Pointer, ...]
"""What a part is made of: one pointer; or of a template, its texts and pointers."""


@final
@dataclass(frozen=True)
class EventLayout:
    """The places of an event's parts, so that events of any shape can be matched.

    Filters and CEL see these parts; patterns see the raw event. `id`, `tenant`, `collection`, `type`, `ts`, `topic`, `data`,
    `before` and `unknown` are each a `Part`; an omitted part has its place in the preset `change`.

    Args:
        type_map: the meaning of the event's own words for `type`, as `{"c": "insert", "t": "ignore"}`: an ignored event has no
            matches, and an event of type `none` has no type; other words are then an `EventError`.
        ts_format: unit of an integer `ts`, or `rfc3339` for text.
        no_change: treatment of an event without `type`, `data`, `before` and `unknown`, such as a heartbeat: `ignore` (it has no
            matches), or `match` (its other parts are matched).
        before_holds: `all` of the document before the change; a `partial` one, in which a member that `data` has and `before`
            lacks is unknown, and in a delete every member that `before` lacks; or only the `changed` members, so that all other
            members are as in `data`.
        envelope: where the record is that filters and CEL read as `envelope`: a pointer, or several, of which the first that
            leads to an object counts; None for none.
        unknown_value: text, or several, that the source writes for a value that it does not carry; such a value below `data` or
            `before` is unknown, and so is the array that has it as an element, or the object that has a member of that name.
        encoded: `json` if `data` and `before` may be strings of JSON.
        whole_rows: the collections whose records have whole rows, such as tables of PostgreSQL with REPLICA IDENTITY FULL; `*`
            for all. Then `before_holds: partial`, and rules of the format for missing columns, do not apply to a row that is
            there. In the format `debezium` also `schema.table` or `db.table`.
        added_prefix: the beginning of the names of members that are no columns of a row of the format `debezium_unwrapped`.
        format: the wire format whose rules define what values mean, and which values a record does not carry (semantics.md
            section 1, "Formats"), as in the preset of that name; other presets use the rules of another format, too. None for no
            such rules.

    Raises:
        ConfigError: a part is invalid; `place` is its name.
    """

    id: Part = "/id"
    tenant: Part = "/tenant"
    collection: Part = "/collection"
    type: Part = "/type"
    ts: Part = "/ts"
    topic: Part = "/topic"
    data: Part = "/data"
    before: Part = "/before"
    unknown: Part = "/unknown"
    # Stored as sorted pairs, so that a layout hashes; the argument and the output are mappings.
    type_map: Mapping[str, str] | tuple[tuple[str, str], ...] | None = None
    ts_format: TimestampFormat = "ms"
    no_change: NoChange = "match"
    before_holds: BeforeHolds = "all"
    envelope: str | Sequence[str] | None = ""
    unknown_value: str | Sequence[str] | None = None
    encoded: Encoding | None = None
    format: RecordFormat | None = None
    whole_rows: str | Sequence[str] | None = None
    added_prefix: str = ADDED

    _ways: dict[str, tuple[Way, ...]] = field(init=False, repr=False, compare=False, default_factory=dict)
    _pointers: dict[str, tuple[Pointer, ...]] = field(init=False, repr=False, compare=False, default_factory=dict)
    _types: dict[str, str] = field(init=False, repr=False, compare=False, default_factory=dict)

    PRESETS: ClassVar[tuple[FormatName, ...]] = get_args(FormatName)

    def __post_init__(self) -> None:
        for name in PARTS:
            part, ways = _check_part(name, getattr(self, name))
            self._ways[name] = ways
            self._pointers[name] = tuple(step for way in ways for step in way if not isinstance(step, str))
            object.__setattr__(self, name, part)
        envelope, ways = _check_part("envelope", self.envelope)
        self._pointers["envelope"] = tuple(step for way in ways for step in way if not isinstance(step, str))
        object.__setattr__(self, "envelope", envelope)
        for before in self._pointers["before"]:
            if any(_lies_in(data, (before,)) for data in self._pointers["data"]):
                raise ConfigError("cannot be at the place of 'data', or contain it", place="before")
        object.__setattr__(self, "type_map", _check_type_map(self.type_map))
        self._types.update({word: word for word in EVENT_TYPES} if self.type_map is None else dict(self.type_map))
        _check_word("ts_format", self.ts_format)
        _check_word("no_change", self.no_change)
        _check_word("before_holds", self.before_holds)
        _check_word("encoded", self.encoded)
        _check_word("format", self.format)
        object.__setattr__(self, "unknown_value", _check_texts("unknown_value", self.unknown_value))
        object.__setattr__(self, "whole_rows", self._check_whole_rows())
        _check_prefix(self.added_prefix)
        if self.added_prefix != ADDED and self.format != "debezium_unwrapped":
            raise ConfigError("expected next to it format: debezium_unwrapped", place="added_prefix")
        if any(_lies_in(at, self._pointers["data"]) for at in self._pointers["before"]):
            if self.encoded is not None:
                raise ConfigError("cannot be inside of 'data' if 'data' is encoded", place="before")
            if self.has_rows:
                raise ConfigError(f"cannot be inside of 'data' in a layout with format {self.format!r}", place="before")

    def _check_whole_rows(self) -> tuple[str, ...] | None:
        """Return the tables in their stored form: in order, each once."""
        tables = _check_texts("whole_rows", self.whole_rows, MAX_TABLES)
        if tables is None:
            return None
        if not self.has_rows and self.format not in _MAY_BE_WHOLE:
            reason = f"a record of the format {self.format} shows itself which values it lacks: expected null"
            raise ConfigError(reason, place="whole_rows")
        return tuple(sorted({*_several(tables)}))

    @property
    def unknown_texts(self) -> tuple[str, ...]:
        """The placeholders for values that the source does not have."""
        return _several(self.unknown_value)

    def has_whole_rows(self, *names: str | None) -> bool:
        """Return whether records of a table have whole rows; *names* are those that it may have in `whole_rows`."""
        return self.whole_rows is not None and not {*names, "*"}.isdisjoint(_several(self.whole_rows))

    def pointers(self, part: str) -> tuple[Pointer, ...]:
        """Return the places to look for a part, in order; empty for a constant and for a part that is never present."""
        return self._pointers[part]

    def ways(self, part: str) -> tuple[Way, ...]:
        """Return the alternatives for a part, in order; empty for a constant and for a part that events never have."""
        return self._ways[part]

    def all_pointers(self) -> Iterator[Pointer]:
        """Yield the possible places of all parts, and those of the envelope."""
        for pointers in self._pointers.values():
            yield from pointers

    def records(self) -> Iterator[Pointer]:
        """Yield the pointers in `envelope` that lead neither to `data` or `before` nor into one of them."""
        documents = (*self._pointers["data"], *self._pointers["before"])
        return (at for at in self._pointers["envelope"] if not _lies_in(at, documents))

    def documents_in(self, record: Pointer) -> frozenset[str]:
        """Return the names of the members of the record at a pointer that contain `data` or `before`."""
        places = (*self._pointers["data"], *self._pointers["before"])
        return frozenset(place[len(record)] for place in places if place[: len(record)] == record)

    def event_type(self, word: str) -> str | None:
        """Return the type, or `ignore`, for the event's word; None for an unknown word."""
        return self._types.get(word)

    @property
    def has_rows(self) -> bool:
        """Whether records are changes of rows, in a format that has rules for missing values."""
        return self.format not in (None, "cloudevents", "cdc", *WITH_CHANGES)

    @property
    def has_changes(self) -> bool:
        """Whether the layout describes the change events in a record, not the record (semantics.md section 1, "Records")."""
        return self.format in WITH_CHANGES

    @property
    def type_words(self) -> tuple[str, ...]:
        """The words that an event may use for its type."""
        return tuple(self._types)

    @staticmethod
    def preset(name: FormatName) -> EventLayout:
        """Return a layout for a common shape of events.

        - `change`: the envelope of semantics.md 1.2.
        - `debezium`: Debezium's change event, with or without the `schema`/`payload` wrapper of Kafka Connect. The collection is
          `source.table` (`source.collection` of MongoDB), the types are `op` with `c` and `r` as insert, `ts` is `source.ts_ms`,
          the commit time in the database, else the connector's `ts_ms`. It has no id, tenant and topic. `before` is partial,
          Debezium's placeholders of an unavailable value are unknown, and so are values that a delete of PostgreSQL may not
          carry; documents may be JSON in a string, as MongoDB's are. Tables of one name in several schemas or databases are one
          collection; a template for `collection` distinguishes them (docs/engine.md). Truncates (`t`), messages (`m`) and records
          without a change are ignored: heartbeats, transactions, changes of the schema.
        - `maxwell`: Maxwell's row. The collection is `table`, `ts` is in seconds, and `old` has only the changed columns. Columns
          that an update or delete lacks may not have been written. Changes of tables and databases are ignored.
        - `canal`, `dynamodb`, `mongodb`, `wal2json`: records of Canal (flat messages), DynamoDB Streams, MongoDB's change streams
          and wal2json (format version 2). An engine reads the change events in a record, which have the parts of `change`, and
          matches each. `before` is partial; the rest of the record is its `envelope`.
        - `pgoutput`: messages of PostgreSQL's own plugin, protocol version 1, as bytes or in hex. Each needs those before it,
          which describe its table: an engine reads one stream, in its order. Its changes are as those of `wal2json`.
        - `debezium_unwrapped`: rows that Debezium's transform ExtractNewRecordState left, with the fields that it adds: `__op`,
          `__table`. Without `__op` the type is unknown. The row before an update is unknown.
        - `dms`: a row of AWS DMS, as it writes to Kinesis and Kafka. The collection is `schema-name.table-name`, a row of the
          first load is an insert; `before-image` and deletes may be partial. Records of `record-type: control` are ignored.
        - `supabase`: a database webhook of Supabase, or a change of Realtime. The collection is `schema.table`; `old_record`, and
          columns that are listed and left out, may not be carried.
        - `hasura`: the payload of an event trigger of Hasura. The collection is `table.schema.table.name`. A row that is sent by
          hand (`MANUAL`) is an insert. It has no `ts`, because newer versions write `created_at` without a time zone.
        - `sequin`: a change message of Sequin. The collection is `table_schema.table_name` of `metadata`, a backfilled row
          (`read`) is an insert. A column that `changes` lacks is unknown in the old row, and so is a null of a deleted row.
        - `cloudevents`: a CloudEvents 1.0 structured event. The collection is `source`; `type` is a dotted word such as
          `com.example.order.paid` and so the topic, and it has no insert, update or delete. Data that is not an object is not a
          document.
        - `eventbridge`: an Amazon EventBridge event. The document is `detail`, the collection `source`, the topic `detail-type`.
        - `sns`: a notification of Amazon SNS. The document is the JSON in `Message`, the collection `TopicArn`, the topic
          `Subject`; it has no type. A `Message` that is text is not a document, and confirmations are ignored.
        - `document`: the whole event is the document, of one tenant.

        Raises:
            ConfigError: the preset is unknown.
        """
        if name not in EventLayout.PRESETS:
            near = _did_you_mean(name, EventLayout.PRESETS)
            raise ConfigError(f"unknown layout {name!r}; expected one of {', '.join(EventLayout.PRESETS)}{near}", place="preset")
        from streamer.events import presets

        return presets.preset(name)

    @staticmethod
    def from_dict(members: Mapping[str, Any]) -> EventLayout:
        """Build a layout from JSON or YAML: pointers as text or lists, a constant as `{"constant": value}`, null for never.

        Omitted members are as in the preset that `"preset"` names, by default `change`.

        Raises:
            ConfigError: a member is unknown, or a part is invalid; `place` is its name.
        """
        for steps, reason in faults(members):
            raise ConfigError(reason, place=steps[0] if steps else "")
        return _made(members)

    def to_dict(self) -> dict[str, Any]:
        """Return all members, ready for `json.dumps`; `from_dict` reads them back."""
        shown: dict[str, Any] = {}
        for name in PARTS:
            part = getattr(self, name)
            shown[name] = (
                {"constant": part.value} if isinstance(part, Constant) else list(part) if isinstance(part, tuple) else part
            )
        return shown | {
            "envelope": _listed(self.envelope),
            "type_map": None if self.type_map is None else dict(self._types),
            "ts_format": self.ts_format,
            "no_change": self.no_change,
            "before_holds": self.before_holds,
            "unknown_value": _listed(self.unknown_value),
            "encoded": self.encoded,
            "format": self.format,
            "whole_rows": _listed(self.whole_rows),
            "added_prefix": self.added_prefix,
        }


def layout_of(
    format: FormatName | None,  # noqa: A002
    layout: EventLayout | Mapping[str, Any] | str | None,
    *,
    stacklevel: int = 4,
) -> EventLayout:
    """Return the layout of events that the options `format` and `layout` describe; the default is the format `change`.

    Args:
        stacklevel: of the warning about a format that is set as `layout`, so that it names the user's line.

    Raises:
        ConfigError: a name or a part is invalid, or both options are set.
    """
    if format is not None and layout is not None:
        raise ConfigError(BOTH, place="layout")
    if isinstance(layout, str):
        # Compat: before there was `format`, the name of a preset was a layout.
        text = f"layout={layout!r} is the name of a format: set format={layout!r}"
        warnings.warn(text, DeprecationWarning, stacklevel=stacklevel)
        return _of_format(layout)
    if layout is None:
        return _of_format("change" if format is None else format)
    return layout if isinstance(layout, EventLayout) else EventLayout.from_dict(layout)


#: The fault of a configuration with both.
BOTH = 'set `format` or `layout`, not both; `{"preset": ...}` in a layout names the format that it starts from'


def _of_format(name: object) -> EventLayout:
    """Return the layout of a format. Raises ConfigError, which names the decoder of a format that no layout describes."""
    if name in EventLayout.PRESETS:
        return EventLayout.preset(name)
    raise ConfigError(unknown_format(name), place="format")


def unknown_format(name: object) -> str:
    """Return why *name* is no format that an engine reads."""
    if not isinstance(name, str):
        return f"expected the name of a format, not {type(name).__name__}"
    near = _did_you_mean(name[:80].lower(), EventLayout.PRESETS)
    return f"unknown format {name[:80]!r}; expected one of {', '.join(EventLayout.PRESETS)}{near}"


_MEMBERS = tuple(member.name for member in fields(EventLayout) if member.init)


def faults(members: Any) -> list[tuple[tuple[str, ...], str]]:
    """Return all faults of the argument of `EventLayout.from_dict`: the names that lead to each, and the reason."""
    if not isinstance(members, Mapping):
        return [((), f"a layout is an object, not {type(members).__name__}")]
    problems: list[tuple[tuple[str, ...], str]] = []
    for name, value in members.items():
        try:
            if name == "preset":
                EventLayout.preset(value)
            elif name in PARTS or name == "envelope":
                _check_part(name, _part(name, value))
            elif name == "type_map":
                problems += [(("type_map", *word), reason) for word, reason in _type_map_faults(value)]
            elif name in _WORDS:
                _check_word(name, value)
            elif name == "unknown_value":
                _check_texts(name, value)
            elif name == "whole_rows":
                _check_texts(name, value, MAX_TABLES)
            elif name == "added_prefix":
                _check_prefix(value)
            else:
                problems.append(((str(name),), f"unknown member; expected one of preset, {', '.join(_MEMBERS)}"))
        except ConfigError as error:
            problems.append(((error.place,), error.reason))
    bad = {steps[0] for steps, _ in problems}
    # Only for good parts can their combination be checked.
    if not bad & {"preset", "data", "before", "encoded", "format"}:
        try:
            _made({name: members[name] for name in ("preset", *_MEMBERS) if name in members and name not in bad})
        except ConfigError as error:
            problems.append(((error.place,), error.reason))
    return problems


def _check_prefix(prefix: Any) -> None:
    if not isinstance(prefix, str) or not prefix or not is_unicode(prefix) or len(prefix.encode()) > MAX_TEXT_BYTES:
        raise ConfigError(f"expected a text of 1 to {MAX_TEXT_BYTES:,} bytes, such as {ADDED!r}", place="added_prefix")


def _made(members: Mapping[str, Any]) -> EventLayout:
    parts = {name: _part(name, value) if name in PARTS else value for name, value in members.items()}
    return replace(EventLayout.preset(parts.pop("preset", "change")), **parts)


def _part(name: str, value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    if set(value) != {"constant"}:
        raise ConfigError('expected a pointer, a list of pointers, {"constant": value} or null', place=name)
    return Constant(value["constant"])


def _did_you_mean(word: object, known: Sequence[str]) -> str:
    near = get_close_matches(str(word), known, 1)
    return f"; did you mean {near[0]!r}?" if near else ""


#: The pointers that `decode_pointer` accepts, except for the empty text, as a pattern of JSON Schema.
POINTER = "/([^~]|~[01])*"


def decode_pointer(text: str) -> Pointer:
    """Return the unescaped tokens of a JSON Pointer (RFC 6901).

    Raises:
        ValueError: the pointer is not empty and does not begin with `/`, or a `~` is not followed by `0` or `1`.
    """
    if not text:
        return ()
    if text[0] != "/":
        raise ValueError("a JSON Pointer is empty or begins with '/'")
    if re.search(r"~(?![01])", text):
        raise ValueError("in a JSON Pointer '~' is followed by '0' or '1'")
    return tuple(token.replace("~1", "/").replace("~0", "~") for token in text[1:].split("/"))


def encode_pointer(pointer: Pointer) -> str:
    """Return a pointer as text (RFC 6901)."""
    return "".join("/" + token.replace("~", "~0").replace("/", "~1") for token in pointer)


#: Limited, because replacing a part follows its pointer by recursion.
MAX_STEPS = 64


def _decode(text: str, name: str) -> Pointer:
    try:
        pointer = decode_pointer(text)
    except ValueError as error:
        raise ConfigError(f"{text!r}: {error}", place=name) from None
    if len(pointer) > MAX_STEPS:
        raise ConfigError(f"a pointer of {len(pointer)} steps; at most {MAX_STEPS} are allowed", place=name)
    return pointer


def _check_unicode(text: str, name: str) -> None:
    if not is_unicode(text):
        raise ConfigError(f"{text!r}: a text with half of a surrogate pair", place=name)


_BRACES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]|[^{}]+")


def _way(text: str, name: str) -> Way:
    """Return the steps of a pointer or a template."""
    _check_unicode(text, name)
    if name != "collection" or text[:1] in ("", "/"):
        return (_decode(text, name),)
    steps: list[str | Pointer] = []
    for match in _BRACES.finditer(text):
        if match[1] is not None:
            steps.append(_decode(match[1], name))
        elif match[0] in ("{", "}"):
            raise ConfigError(f"{text!r}: a brace that is not doubled has no other; a pointer stands in one pair", place=name)
        else:
            steps.append(match[0][:1] if match[0] in ("{{", "}}") else match[0])
    if all(isinstance(step, str) for step in steps):
        raise ConfigError(
            f"{text!r}: a JSON Pointer is empty or begins with '/', and a template has pointers in braces", place=name
        )
    return tuple(steps)


def _check_part(name: str, part: Any) -> tuple[str | tuple[str, ...] | Constant | None, tuple[Way, ...]]:
    """Return a part in its stored form, and its possible sources."""
    if part is None:
        return None, ()
    if isinstance(part, str):
        return part, (_way(part, name),)
    if isinstance(part, Constant):
        return _check_constant(name, part), ()
    if isinstance(part, Sequence) and not isinstance(part, bytes | bytearray) and part and all(isinstance(p, str) for p in part):
        return tuple(part), tuple(_way(text, name) for text in part)
    kinds = "a list of them or None" if name in _WHOLE_OR_OBJECT else "a list of them, a constant or None"
    raise ConfigError(f"expected a JSON Pointer, {kinds}, not {part!r}", place=name)


def _check_constant(name: str, constant: Constant) -> Constant:
    value: object = constant.value
    if name in _WHOLE_OR_OBJECT:
        raise ConfigError("cannot be a constant", place=name)
    is_integer = isinstance(value, int) and not isinstance(value, bool) and INT64_MIN <= value <= INT64_MAX
    if not (isinstance(value, str) or (is_integer and name in ("id", "ts"))):
        raise ConfigError(f"a constant that the part cannot be: {value!r}", place=name)
    if isinstance(value, str):
        _check_unicode(value, name)
    if name in ("tenant", "collection") and value == "*":
        raise ConfigError("'*' means every one and cannot name one", place=name)
    return constant


def _check_type_map(type_map: Any) -> tuple[tuple[str, str], ...] | None:
    for _, reason in _type_map_faults(type_map):
        raise ConfigError(reason, place="type_map")
    return None if type_map is None else _pairs(type_map)


def _pairs(type_map: Any) -> tuple[Any, ...]:
    return tuple(sorted(type_map.items() if isinstance(type_map, Mapping) else type_map, key=str))


def _type_map_faults(type_map: Any) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield an error for each word whose meaning is not a type."""
    if type_map is None:
        return
    if not isinstance(type_map, Mapping | tuple):
        yield (), f"expected an object of words, not {type_map!r}"
        return
    for pair in _pairs(type_map):
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str)):
            yield (), f"expected words that mean {', '.join(MEANINGS)}, not {pair!r}"
        elif pair[1] not in MEANINGS:
            near = _did_you_mean(pair[1], MEANINGS)
            yield (pair[0],), f"expected words that mean {', '.join(MEANINGS)}, not {pair!r}{near}"
        elif not is_unicode(pair[0]):
            yield (pair[0],), f"{pair[0]!r}: a text with half of a surrogate pair"


#: The allowed words of members that are one of a few.
_WORDS: Mapping[str, tuple[str | None, ...]] = {
    "ts_format": get_args(TimestampFormat),
    "no_change": get_args(NoChange),
    "before_holds": get_args(BeforeHolds),
    "encoded": (*get_args(Encoding), None),
    "format": (*get_args(RecordFormat), None),
}


def _check_word(name: str, word: Any) -> None:
    words = _WORDS[name]
    if word not in words or not isinstance(word, str | None):
        known = [known or "null" for known in words]
        raise ConfigError(f"expected one of {', '.join(known)}, not {word!r}{_did_you_mean(word, known)}", place=name)


#: Limited, because each text is searched for in every document.
MAX_UNKNOWN_TEXTS = 16
MAX_TABLES = 10_000
MAX_TEXT_BYTES = 1_024


def _check_texts(name: str, texts: Any, most: int = MAX_UNKNOWN_TEXTS) -> str | tuple[str, ...] | None:
    """Return the texts of a member in their stored form."""
    if texts is None:
        return None
    several = (texts,) if isinstance(texts, str) else texts
    if not isinstance(several, Sequence) or isinstance(several, bytes | bytearray) or not several:
        raise ConfigError(f"expected a text, a list of texts or null, not {texts!r:.80}", place=name)
    if len(several) > most:
        raise ConfigError(f"{len(several)} texts; at most {most} are allowed", place=name)
    for text in several:
        if not isinstance(text, str) or not text or len(text.encode(errors="replace")) > MAX_TEXT_BYTES:
            raise ConfigError(f"expected a text of 1 to {MAX_TEXT_BYTES:,} bytes, not {text!r:.80}", place=name)
        _check_unicode(text, name)
    return texts if isinstance(texts, str) else tuple(texts)


def _several(texts: str | Sequence[str] | None) -> tuple[str, ...]:
    return () if texts is None else (texts,) if isinstance(texts, str) else tuple(texts)


def _listed(texts: str | Sequence[str] | None) -> str | list[str] | None:
    return texts if texts is None or isinstance(texts, str) else list(texts)


def _lies_in(pointer: Pointer, places: Sequence[Pointer]) -> bool:
    """Return whether a pointer is one of some places or leads into one."""
    return any(pointer[: len(place)] == place for place in places)
