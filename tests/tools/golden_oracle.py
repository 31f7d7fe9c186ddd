"""Compare what Streamer reports of golden records with the answers of a database about their rows.

A certain match is true in the database, and a condition without a match is not true there. An uncertain match is right only if
the record lacks a value that the condition mentions.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from streamer import cdc
from streamer.service.connectors.formats import decoder
from tests.tools.golden_conditions import Condition, Unreadable, columns_of, compares_before, write
from tests.tools.golden_debezium import Observed
from tests.tools.golden_source import Configuration, Source

#: How records are read: by an engine with the format, or by the decoder.
ROUTES: Final = ("format", "decoder")
_PLACEHOLDER: Final = "__debezium_unavailable_value"
_BLANK: Final = frozenset(("", "0", "{}", "[]", "P0Y0M0DT0H0M0S", "1970-01-01", "1970-01-01Z", "00:00:00", "00:00:00Z"))
_BLANK_TIMES: Final = ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000000Z", "00000000-0000-0000-0000-000000000000")
_KINDS: Final = {"r": "insert", "c": "insert", "u": "update", "d": "delete"}


class Row(NamedTuple):
    """A record of a change: what it tells of, and which columns it lacks.

    Attributes:
        kind: `insert`, `update`, `delete`; None for a record that reports no change of a row.
        lacks: the columns that the new row lacks; in a delete the old one.
        lacks_before: the columns that the row before an update lacks.
        blank: the columns whose value may stand for a missing one.
        is_shown: whether a delete has more than the key and blank columns, so that it is a whole row.
    """

    text: bytes | None
    key: bytes | None
    kind: str | None
    change: int
    lacks: frozenset[str]
    lacks_before: frozenset[str]
    blank: frozenset[str]
    is_shown: bool


@dataclass
class Counts:
    """What was compared.

    Attributes:
        untrue: the wrong answers, described.
    """

    records: int = 0
    answers: int = 0
    uncertain: int = 0
    ignored: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    untrue: list[str] = field(default_factory=list)


def rows(source: Source, observed: Observed, of: Configuration) -> Iterator[Row]:
    """Yield the records of a configuration, each with the change that it reports, by their order.

    Raises:
        AssertionError: a change has no record, or a record no change.
    """
    expected = {table: [*_expected(observed.changes, table, table in source.keyless, of)] for table in source.tables}
    for record in observed.records[of.name]:
        text, key = (_enveloped(record, part, observed.schemas) for part in ("value", "key"))
        table = record["topic"].rpartition(".")[2]
        body: Any = None if record["value"] is None else json.loads(record["value"])
        op = None if body is None else body.get("__op", body.get("op"))
        if table not in expected or op not in _KINDS:
            yield Row(text, key, None, 0, frozenset(), frozenset(), frozenset(), False)
            continue
        document = body if of.deletes is not None else body["before" if op == "d" else "after"]
        named = document if record["key"] is None else json.loads(record["key"])
        # A snapshot reads rows in an order of its own.
        at = next(index for index, each in enumerate(expected[table]) if op != "r" or each[2] == named["id"])
        change, kind, number = expected[table].pop(at)
        assert (kind, number) == (_KINDS[op], named["id"]), (of.name, record["topic"], change, record["key"])
        row = _row(document, kind, table == "by_key", of.deletes is None and body["before"] is not None)
        if kind == "delete" and not source.may_lack(of):
            row = row._replace(lacks=frozenset(), blank=frozenset())
        elif kind == "delete" and of.deletes is not None and of.schemas:
            fields = json.loads(observed.schemas[record["value_schema"]])["fields"]
            defaults = (each["field"] for each in fields if "default" in each and each["default"] == body[each["field"]])
            row = row._replace(blank=row.blank.union(defaults))
        yield row._replace(text=text, key=key, change=change, is_shown=row.is_shown and key is not None)
    for table, rest in expected.items():
        assert not rest, (of.name, table, rest)


def _expected(
    changes: Iterable[Sequence[Any]], table: str, is_keyless: bool, of: Configuration
) -> Iterator[tuple[int, str, int]]:
    """Yield what each record reports: its change, its kind and its key. A change of the key has two records."""
    deletes = of.deletes is None or of.deletes.startswith("rewrite")
    for change, name, op, old, new in changes:
        if name != table:
            continue
        if op == "UPDATE" and (old == new or is_keyless):
            yield change, "update", new
            continue
        if op != "INSERT" and deletes:
            yield change, "delete", old
        if op != "DELETE":
            yield change, "insert", new


def _enveloped(record: Mapping[str, Any], part: str, schemas: Sequence[str]) -> bytes | None:
    """Return a text as Debezium wrote it, with its schema."""
    text = record[part]
    if text is None or (number := record.get(f"{part}_schema")) is None:
        return None if text is None else text.encode()
    return f'{{"schema":{schemas[number]},"payload":{text}}}'.encode()


def _row(document: Any, kind: str, has_only_key: bool, has_before: bool) -> Row:
    """Return what the row of a record lacks; *has_only_key* if that of a delete may have no other value than its key."""
    names = frozenset(name for name in document if not name.startswith("__"))
    missing = frozenset(name for name in names if _PLACEHOLDER in json.dumps(document[name]))
    blank = frozenset(name for name in names if _is_blank(document[name]))
    is_shown = "id" not in blank and blank != names - {"id"}
    if kind == "delete":
        return Row(None, None, kind, 0, names - {"id"} if has_only_key else frozenset(), frozenset(), blank, is_shown)
    return Row(None, None, kind, 0, missing, frozenset() if has_before else names, frozenset(), True)


def _is_blank(value: Any) -> bool:
    if isinstance(value, dict):
        # A decimal without a fixed scale, or a map.
        return all(map(_is_blank, value.values())) or value == {"scale": 0, "value": "AA=="}
    if isinstance(value, str):
        # With a schema the JSON in a text is read, and a document of nulls is like a missing one.
        document = json.loads(value) if value.startswith("{") and value.endswith("}") else None
        return value in _BLANK or value in _BLANK_TIMES or value == "AA==" or (document is not None and _is_blank(document))
    return not value or (isinstance(value, list) and all(map(_is_blank, value)))


class Asked(NamedTuple):
    """A condition as a subscription: *name* is how it is written, *reported* whether it gets each `leave`."""

    id: str
    name: str
    condition: Condition
    true: set[tuple[int, str]]
    columns: frozenset[str]
    reported: bool
    subscription: dict[str, Any]


def subscriptions(
    source: Source, conditions: Sequence[Condition], answers: Sequence[set[tuple[int, str]]], of: Configuration
) -> list[Asked]:
    """Return the conditions that the records of a configuration can answer, as filters and in CEL."""
    found = []
    for index, (condition, true) in enumerate(zip(conditions, answers, strict=True)):
        try:
            written = write(condition, of, source)
        except Unreadable:
            continue
        columns = frozenset(columns_of(condition))
        for name, body in (("cel", {"cel": written.cel}), ("filters", {"filters": written.filters})):
            if body[name] is not None:
                # Half of them get each transition, with either way of writing.
                reported = (index + (name == "cel")) % 2 == 0 and not compares_before(condition)
                told = {"id": f"{name}-{index}", **body, **({"transitions": True} if reported else {})}
                found.append(Asked(told["id"], name, condition, true, columns, reported, told))
    return found


def compare(
    make: Callable[..., Any], found: Iterable[Row], asked: Sequence[Sequence[Asked]], of: Configuration, route: str
) -> Counts:
    """Match each record against one of the sets of subscriptions, in turn, and compare the answers.

    Args:
        make: makes an engine, of options.
    """
    counts = Counts()
    name: Literal["debezium", "debezium_unwrapped"] = "debezium" if of.deletes is None else "debezium_unwrapped"
    options = {"format": name} if route == "format" else {"layout": cdc.LAYOUT}
    decode = decoder(name) if route == "decoder" else None
    engines: dict[int, Any] = defaultdict(lambda: make(**options))
    for number, row in enumerate(found):
        which = number % len(asked)
        if which not in engines:
            engines[which].add_many([each.subscription for each in asked[which]])
        texts = [row.text or b""] if decode is None else [text for text, _ in decode(row.text or b"", row.key)]
        if row.kind is None:
            for text in texts:
                counts.ignored += 1
                if engines[which].match(text).ignored is None:
                    counts.untrue.append(f"{of.name} {route}: not ignored: {text[:300]!r}")
            continue
        assert len(texts) == 1, texts
        counts.records += 1
        counts.kinds[row.kind] += 1
        matches = {match.subscription_id: match for match in engines[which].match(texts[0])}
        for each in asked[which]:
            if compares_before(each.condition) and row.kind != "update":
                continue
            counts.answers += 1
            match = matches.get(each.id)
            counts.uncertain += match is not None and not match.certain
            if reason := _wrong(row, each, match, of, route):
                counts.untrue.append(f"{of.name} {route}: {reason}: {each.subscription} {texts[0][-3000:].decode()}")
    return counts


def _wrong(row: Row, asked: Asked, match: Any, of: Configuration, route: str) -> str | None:
    """Return why an answer is wrong; None if it is right."""
    side = "o" if row.kind == "delete" else "n"
    new, old = (row.change, side) in asked.true, (row.change, "o") in asked.true
    lacking = bool(asked.columns & row.lacks)
    compared = compares_before(asked.condition)
    # A transition needs the row before; without one an update has none.
    has_before = row.kind == "update" and not row.lacks_before
    leaves = asked.reported and has_before and old and not new
    if match is None:
        return f"no match, and {'true' if new else 'left'} in the database" if new or leaves else None
    if not match.certain:
        may_lack = bool(asked.columns & row.blank) and (route == "format" or not row.is_shown)
        if lacking or may_lack or (compared and asked.columns & row.lacks_before):
            return None
        return "uncertain, and the record has all values"
    if not new and not leaves:
        return "a certain match, and not true in the database"
    if compared or row.kind is None:
        return None
    transition = {"insert": "enter", "delete": "leave"}.get(row.kind)
    if has_before:
        transition = "leave" if not new else "stay" if old else "enter"
    return None if match.transition == transition else f"transition {match.transition}, and {transition} in the database"
