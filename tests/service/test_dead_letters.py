"""Dead letters are replayed as they were read, and neither a page of them nor a replay takes much memory."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from streamer.config.schema.connectors.postgres import PostgresSource
from streamer.config.secret import SecretValue
from streamer.errors import EventCode, EventError, ServiceError
from streamer.service.connectors.formats import decoder, events_of
from streamer.service.connectors.protocols import Batch, Refused
from streamer.service.delivery import queue
from streamer.service.delivery.matching import Matcher
from streamer.service.delivery.queue import Part, Waiting
from streamer.service.delivery.setup import Feed
from streamer.service.delivery.writing import Writer
from streamer.service.store.opened import look
from streamer.service.store.rows import Confirmed, DeadLetter, dead_letter
from streamer.service.store.store import Store
from tests.service.api import BIG, order, running, until
from tests.service.conftest import Make, event, lines
from tests.service.test_serve import CANAL, WAL2JSON


def put(place: Path, *letters: DeadLetter) -> None:
    store = Store(place)
    store.commit([], letters)
    store.close()


def test_a_page_reads_no_record_and_says_whether_it_is_whole(tmp_path: Path) -> None:
    whole = dead_letter("orders", "p", 1, -1, "bad_value", "no", b"x" * 1000)
    cut = dead_letter("orders", "p", 2, -1, "bad_value", "no", b"x" * 1000, 5000)
    with closing(Store(tmp_path)) as store:
        store.commit([], [whole, cut])
        first, second = store.letters(records=False)
        assert (first.record, first.bytes_kept, first.is_whole) == (b"", 1000, True)
        assert (second.record, second.bytes_kept, second.is_whole) == (b"", 1000, False)
        assert [(each.record, each.is_whole) for each in store.letters()] == [(b"x" * 1000, True), (b"x" * 1000, False)]
    assert [each.record for each in look(tmp_path, records=False)] == [b"", b""]
    assert [each.record for each in look(tmp_path, number=2)] == [b"x" * 1000]


def test_the_api_lists_dead_letters_without_reading_their_records(
    tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path) as api:
        with open(tmp_path / "in.jsonl", "ab") as file:
            file.write(b'{"not": "whole\n')
        until(lambda: api.counts()["events_read"] == 1)
        admin = api.make_token(None, "admin")
        read: list[str] = []
        rows = type(api.service._running.store.database).rows  # type: ignore[union-attr]

        def counted(database: Any, statement: str, *values: Any, **named: Any) -> Any:
            read.append(statement)
            return rows(database, statement, *values, **named)

        monkeypatch.setattr(type(api.service._running.store.database), "rows", counted)  # type: ignore[union-attr]
        (letter,) = api.ask("GET", "/v1/dead-letters", token=admin).json["items"]
        assert (letter["size"], letter["is_whole"]) == (14, True)
        assert not letter.keys() & {"record", "record_key", "kept", "key", "spooled"}
        (statement,) = [each for each in read if "FROM dead_letters WHERE id >" in each and "sum(" not in each]
        assert "length(record)" in statement
        assert " record," not in statement
        shown = api.ask("GET", f"/v1/dead-letters/{letter['id']}", token=admin).json
        assert shown["record"] == '{"not": "whole'


@pytest.mark.parametrize(("key", "told"), [(b"k1", "k1"), ("k2", "k2"), (b"\xff", "ff"), (None, "1")])
def test_a_replayed_record_has_the_key_that_it_was_read_by(
    make: Make, tmp_path: Path, key: bytes | str | None, told: str | None
) -> None:
    part = Part("orders", Confirmed("orders", "p", None, 0))
    refused = Refused(EventError(EventCode.TOO_LONG, "too long"), event(1), len(event(1)))
    batch = Batch("p", [refused], lambda _: 7, None, keys=[key])
    ((place, error),) = events_of(None, batch).refused
    part.refuse("orders", batch, place, error)
    put(tmp_path / "data", *part.dead)
    assert make().replay(lambda store: store.letters()) == (1, 0)
    (message,) = lines(tmp_path / "out.jsonl")
    assert message.get("partitionkey") == told


def test_a_key_takes_room_of_dead_letters(tmp_path: Path) -> None:
    letter = dead_letter("orders", "p", 1, -1, "bad_value", "no", b"record", None, b"k" * 1000)
    assert letter.room == 1008
    put(tmp_path, letter)
    with closing(Store(tmp_path)) as store:
        assert store._dead == 1008
        assert store.letters()[0].record_key == b"k" * 1000


@pytest.mark.usefixtures("backend")
def test_a_message_of_wal2json_is_decoded_when_it_is_replayed() -> None:
    """The source decodes its messages itself, and a letter has the message as the plugin wrote it."""
    pytest.importorskip("psycopg")
    from streamer.service.connectors.postgres.source import PostgresChanges

    source = PostgresChanges(PostgresSource(type="postgres", dsn=SecretValue("env", "DSN"), slot="s", plugin="wal2json"))
    record = json.dumps(WAL2JSON).replace('{"action": ', '{"action":').encode()
    ((text, key),) = source.again(record, None)
    made = decoder("wal2json")
    assert made is not None
    assert (text, key) == made(record)[0]
    assert json.loads(text)["collection"] == "public.orders"
    assert source.again(b"1\t2") == [(b"1\t2", None)]
    with pytest.raises(EventError):
        source.again(b'{"action":"U","schema":5}')


def test_a_replay_reads_a_whole_message_as_its_source_decodes_it_and_an_event_as_an_event(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = Feed.__init__

    def with_again(feed: Feed, *args: Any, **named: Any) -> None:
        again(feed, *args, **named)
        object.__setattr__(feed, "again", lambda record, key=None, partition=None: [(record.replace(b"<", b"{"), "k")])

    monkeypatch.setattr(Feed, "__init__", with_again)
    raw, decoded = event(1).replace(b"{", b"<"), event(2)
    put(
        tmp_path / "data",
        dead_letter("orders", "p", 1, -1, "bad_value", "no", raw),
        dead_letter("orders", "p", 2, 0, "bad_value", "no", decoded.replace(b"{", b"<", 1)),
    )
    assert make().replay(lambda store: store.letters()) == (1, 1)
    (message,) = lines(tmp_path / "out.jsonl")
    assert message["data"]["event"]["id"] == 1


def test_of_a_replayed_record_one_part_is_in_memory_at_a_time(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "PART_BYTES", 1000)
    record = json.dumps(CANAL | {"data": [{"id": str(number), "amount": "250"} for number in range(50)]}).encode()
    (tmp_path / "subs.jsonl").write_bytes(b'{"id": "all"}\n')
    put(tmp_path / "data", dead_letter("orders", "p", 1, -1, "too_long", "no", record))
    deliver, held = Writer.deliver, []
    made: list[int] = []
    matched = Matcher.parts

    def delivering(writer: Writer, parts: Any) -> None:
        held.append(len(parts))
        # One more was made, to know whether this is the last.
        assert len(made) <= len(held) + 1
        deliver(writer, parts)

    def matching(*args: Any) -> Iterator[Part]:
        for part in matched(*args):
            made.append(part.size)
            yield part

    monkeypatch.setattr(Writer, "deliver", delivering)
    monkeypatch.setattr(Matcher, "parts", matching)
    sources = {"orders": {"type": "file", "path": str(tmp_path / "in.jsonl"), "format": "canal"}}
    assert make(sources=sources).replay(lambda store: store.letters()) == (1, 0)
    assert set(held) == {1}
    assert len(held) > 3
    assert len(lines(tmp_path / "out.jsonl")) == 50
    assert look(tmp_path / "data") == []


def test_a_reload_waits_for_a_replay_no_longer_than_its_bound(
    tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replay whose sinks take nothing holds its turn; the reload is refused, and the next one is taken."""
    with running(tmp_path) as api:
        assert api.ask("PUT", "/v1/subscriptions/big", BIG).status == 201
        put_, go = Waiting.put, threading.Event()
        inside = threading.Event()

        def stalled(waiting: Waiting, part: Part) -> None:
            inside.set()
            go.wait(60)
            put_(waiting, part)

        monkeypatch.setattr(Waiting, "put", stalled)
        running_ = api.service._running
        assert running_ is not None
        letter = dead_letter("orders", "p", 1, -1, "too_long", "no", order(1))
        running_.store.commit([], [letter])
        (letter,) = running_.store.letters()
        replay = threading.Thread(target=running_.pipeline.replay_beside, args=(letter,), daemon=True)
        replay.start()
        assert inside.wait(30)
        with pytest.raises(ServiceError, match="of a replayed dead letter"), running_.pipeline.paused(0.05):
            pass
        go.set()
        replay.join(30)
        with running_.pipeline.paused(30):
            pass
        until(lambda: running_.store.letters() == [])
        assert api.delivered() == ["big"]
