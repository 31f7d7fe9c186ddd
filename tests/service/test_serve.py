"""From events in files to matches in files: what is delivered, where to, how it reads, and what is counted."""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from mmh3 import mmh3_x64_128_digest

from streamer import BulkConfigError, Config
from streamer.config.loader import Loaded
from streamer.service import faults
from streamer.service.delivery.metrics import Counts
from streamer.service.delivery.queue import Part, Waiting
from streamer.service.run.fitting import fitting
from streamer.service.store.opened import look
from tests.service.api import until
from tests.service.conftest import SUBSCRIPTIONS, Make, event, lines


def test_a_match_is_a_cloud_event_with_the_bytes_that_were_read(make: Make, tmp_path: Path) -> None:
    read = b'{"id": 42, "ts":1795342530123, "collection" : "orders", "type": "insert", "data": {"amount": 2.50e2}}'
    (tmp_path / "in.jsonl").write_bytes(read + b"\n")
    make().run()
    written = (tmp_path / "out.jsonl").read_bytes()
    message = json.loads(written)
    identity = message.pop("id")
    assert len(identity) == 32
    assert set(identity) <= set("0123456789abcdef")
    assert message == {
        "specversion": "1.0",
        "source": "/streamer/orders",
        "type": "streamer.match.enter",
        "subject": "big",
        "time": "2026-11-22T10:15:30.123Z",
        "partitionkey": "42",
        "tenant": "default",
        "collection": "orders",
        "gateway": "billing",
        "certain": True,
        "datacontenttype": "application/json",
        "data": {"labels": {}, "event": json.loads(read)},
    }
    assert b'"event":' + read + b"}}\n" in written


def test_what_was_delivered_is_not_delivered_again(make: Make, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(event(1) + b"\n")
    make().run()
    with open(tmp_path / "in.jsonl", "ab") as file:
        file.write(event(2) + b"\n")
    make().run()
    assert [each["partitionkey"] for each in lines(tmp_path / "out.jsonl")] == ["1", "2"]


@pytest.mark.parametrize("kind", ["gzip", "zstd", "plain"])
def test_a_whole_file_may_be_compressed_and_is_read_on_where_it_was_confirmed(
    make: Make, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One part of the file at most waits for delivery, so the first commit has one part.
    monkeypatch.setattr("streamer.service.delivery.queue.MOST_BYTES", 1)
    compress = {"gzip": gzip.compress, "zstd": zstandard.ZstdCompressor().compress, "plain": bytes}[kind]
    text = b"\n".join(event(number, pad="x" * 500) for number in range(3000)) + b"\n"
    (tmp_path / "in.jsonl").write_bytes(compress(text))
    faults.arm("store.committed", fail)
    with pytest.raises(Fault):
        make().run()
    faults.disarm()
    some = [each["id"] for each in lines(tmp_path / "out.jsonl")]
    make().run()
    every = [each["id"] for each in lines(tmp_path / "out.jsonl")]
    assert 0 < len(some) < 3000
    assert len(every) == len(set(every)) == 3000
    assert [each["partitionkey"] for each in lines(tmp_path / "out.jsonl")] == [str(number) for number in range(3000)]


class Fault(Exception):
    """What a test lets happen."""


def fail() -> None:
    raise Fault


def test_a_followed_file_is_not_compressed(make: Make, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(gzip.compress(event(1)))
    source = {"type": "file", "path": str(tmp_path / "in.jsonl")}
    with pytest.raises(Exception, match="compressed, so it cannot be followed; set follow: false"):
        make(sources={"orders": source}).run()


def test_the_first_route_that_fits_decides(make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "in.jsonl").write_bytes(event(1, topic="orders.eu.paid") + b"\n" + event(2, topic="orders.eu.paid") + b"\n")
    sinks = {name: {"type": "file", "path": str(tmp_path / f"{name}.jsonl")} for name in ("a", "b")}
    routes = [{"gateway": "billing", "sink": "a"}, {"gateway": "*", "sink": "b"}, {"gateway": "billing", "sink": "b"}]
    make(sinks=sinks, routes=routes).run()
    assert [each["subject"] for each in lines(tmp_path / "a.jsonl")] == ["big"] * 2
    assert [each["subject"] for each in lines(tmp_path / "b.jsonl")] == ["paid"] * 2
    caplog.set_level(logging.INFO)
    (tmp_path / "data" / "store.db").unlink()
    make(sinks=sinks, routes=routes[:1]).run()
    told = [record.getMessage() for record in caplog.records]
    assert [text for text in told if "no route" in text] == [
        "subscriptions without a gateway: no route; matches are dropped, and counted"
    ]
    assert "ended: 2 events read, 0 rejected, 4 matches, 2 delivered, 2 dropped" in told


def test_messages_say_as_much_of_an_event_as_the_sink_wants(make: Make, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(event(1) + b"\n")
    sink = {"type": "file", "path": str(tmp_path / "out.jsonl")}
    ids = set()
    for wanted in ("full", "reference", "none"):
        make(sinks={"out": sink | {"event": wanted}}).run()
        message = lines(tmp_path / "out.jsonl")[-1]
        ids.add(message["data"].get("reference", {}).get("position"))
        assert ("event" in message["data"], "reference" in message["data"]) == (wanted == "full", wanted == "reference")
        (tmp_path / "data" / "store.db").unlink()
    assert ids == {None, len(event(1)) + 1}


def test_a_message_may_tell_of_all_that_a_gateway_gets(make: Make, tmp_path: Path) -> None:
    (tmp_path / "subs.jsonl").write_bytes(
        b'{"id": "b", "gateway_id": "g", "labels": {"n": 1}}\n{"id": "a", "gateway_id": "g"}\n{"id": "c"}\n'
        b'{"id": "a", "gateway_id": "g", "tenant": "*"}\n'
    )
    (tmp_path / "in.jsonl").write_bytes(event(1) + b"\n")
    make(sinks={"out": {"type": "file", "path": str(tmp_path / "out.jsonl"), "per": "gateway"}}).run()
    messages = lines(tmp_path / "out.jsonl")
    assert {each["type"] for each in messages} == {"streamer.matches"}
    told = sorted((str(each.get("gateway")), [one["id"] for one in each["data"]["subscriptions"]]) for each in messages)
    assert told == [("None", ["c"]), ("g", ["a"]), ("g", ["a", "b"])]
    assert len({each["id"] for each in messages}) == 3
    both = next(each for each in messages if len(each["data"]["subscriptions"]) == 2)
    assert both["data"]["subscriptions"][1] == {"id": "b", "transition": "enter", "certain": True, "labels": {"n": 1}}


@pytest.mark.parametrize("letter", ["k", "ü", '"'])
def test_a_long_key_is_told_by_its_hash(make: Make, tmp_path: Path, letter: str) -> None:
    size = len(letter.encode())
    keys = [letter * (1024 // size), letter * (1024 // size + 1), letter * 100_000]
    (tmp_path / "in.jsonl").write_bytes(b"".join(event(key) + b"\n" for key in keys))  # type: ignore[arg-type]
    make().run()
    hashed = [hashlib.sha256(key.encode()).hexdigest() for key in keys]
    assert [each["partitionkey"] for each in lines(tmp_path / "out.jsonl")] == [keys[0], *hashed[1:]]


def test_tenants_may_use_one_id_and_the_messages_differ(make: Make, tmp_path: Path) -> None:
    (tmp_path / "subs.jsonl").write_bytes(
        b'{"id": "x", "tenant": "acme"}\n{"id": "x", "tenant": "globex"}\n{"id": "x", "tenant": "*"}\n'
    )
    (tmp_path / "in.jsonl").write_bytes(event(1, tenant="acme") + b"\n" + event(2, tenant="initech") + b"\n")
    make().run()
    messages = lines(tmp_path / "out.jsonl")
    assert [(each["subject"], each["tenant"]) for each in messages] == [("x", "acme"), ("x", "acme"), ("x", "initech")]
    assert len({each["id"] for each in messages}) == 3


def test_an_event_that_cannot_be_read_is_a_dead_letter_and_the_others_match(make: Make, tmp_path: Path) -> None:
    bad = b'{"collection": '
    (tmp_path / "in.jsonl").write_bytes(b"\n".join([event(1), bad, b"", event(2, 5), event(3)]) + b"\n")
    make().run()
    assert [each["partitionkey"] for each in lines(tmp_path / "out.jsonl")] == ["1", "3"]
    (letter,) = look(tmp_path / "data")
    assert (letter.source, letter.stage, letter.code, letter.record) == ("orders", "decode", "malformed_json", bad)
    assert letter.position == len(event(1)) + 1 + len(bad) + 1


def test_a_line_that_is_too_long_is_a_dead_letter_with_its_beginning(make: Make, tmp_path: Path) -> None:
    long = event(2, pad="x" * 200_000)
    (tmp_path / "in.jsonl").write_bytes(b"\n".join([event(1), long, event(3)]) + b"\n")
    make(matching={"limits": {"max_event_bytes": 1000}}).run()
    assert [each["partitionkey"] for each in lines(tmp_path / "out.jsonl")] == ["1", "3"]
    (letter,) = look(tmp_path / "data")
    assert (letter.code, letter.size, letter.is_whole) == ("too_long", len(long), False)
    assert long.startswith(letter.record)


def test_dead_letters_have_a_bound_and_nothing_is_confirmed_past_it(make: Make, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(b"{\n" * 100)
    with pytest.raises(Exception, match="more than the 100 bytes of delivery"):
        make(delivery={"dead_letter_bytes": 100}).run()
    assert look(tmp_path / "data") == []
    make().run()
    assert len(look(tmp_path / "data")) == 100


def test_bad_events_wait_in_parts_as_messages_do(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a file of tiny lines that are none would have hundreds of thousands of letters in memory at once."""
    put, letters = Waiting.put, []

    def counted(waiting: Waiting, part: Part) -> None:
        letters.append(len(part.dead))
        put(waiting, part)

    monkeypatch.setattr(Waiting, "put", counted)
    (tmp_path / "in.jsonl").write_bytes(b"{\n" * 10_000)
    make().run()
    assert max(letters) <= 4096
    assert sum(letters) == 10_000
    assert look(tmp_path / "data", after=9_999)[0].position == 20_000


def test_a_record_of_many_bad_events_is_kept_whole_once(make: Make, tmp_path: Path) -> None:
    """Else one record of a few MB would be more than all dead letters may have."""
    deep = json.loads('{"a":' * 600 + "1" + "}" * 600)
    bad = {"specversion": "1.0", "id": "1", "source": "s", "type": "t", "data": {"x": "x" * 150_000, "deep": deep}}
    small = json.dumps([bad | {"data": deep}] * 3)
    (tmp_path / "in.jsonl").write_text(f"{json.dumps([bad] * 5)}\n{small}\n")
    source = {"type": "file", "path": str(tmp_path / "in.jsonl"), "follow": False, "format": "cloudevents"}
    make(sources={"orders": source}).run()
    letters = look(tmp_path / "data")
    assert [letter.is_whole for letter in letters] == [True, False, False, False, False, True, True, True]
    assert {letter.size for letter in letters[:5]} == {len(letters[0].record)}


def test_dead_letters_are_replayed_with_the_ids_that_they_would_have_had(make: Make, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(event(1, pad="x" * 2000) + b"\n{\n")
    small = {"limits": {"max_event_bytes": 1000}}
    make(matching=small).run()
    assert [letter.code for letter in look(tmp_path / "data")] == ["too_long", "malformed_json"]
    assert make().replay(lambda store: store.letters()) == (1, 1)
    (message,) = lines(tmp_path / "out.jsonl")
    (left,) = look(tmp_path / "data")
    assert (left.code, left.attempts) == ("malformed_json", 2)
    hashed = f"orders\0{left.partition}\0{len(event(1, pad='x' * 2000)) + 1}\0{0}\0enter\0default\0big"
    assert message["id"] == mmh3_x64_128_digest(hashed.encode()).hex()


WAL2JSON = {
    "action": "U",
    "schema": "public",
    "table": "orders",
    "columns": [{"name": "id", "type": "integer", "value": 7}, {"name": "amount", "type": "integer", "value": 250}],
    "identity": [{"name": "id", "type": "integer", "value": 7}],
    "pk": [{"name": "id", "type": "integer"}],
}
CANAL = {
    "type": "INSERT",
    "database": "shop",
    "table": "orders",
    "sqlType": {"id": 4, "amount": 4},
    "pkNames": ["id"],
    "data": [{"id": "7", "amount": "250"}, {"id": "8", "amount": "5"}, {"id": "9", "amount": "251"}],
}
MONGODB = {
    "operationType": "insert",
    "ns": {"db": "shop", "coll": "orders"},
    "documentKey": {"_id": {"$oid": "64b7f0"}},
    "fullDocument": {"_id": {"$oid": "64b7f0"}, "amount": 250},
}
DYNAMODB = {
    "Records": [
        {
            "eventName": "INSERT",
            "tableName": "orders",
            "dynamodb": {"Keys": {"id": {"N": number}}, "NewImage": {"id": {"N": number}, "amount": {"N": "250"}}},
        }
        for number in ("7", "8")
    ]
}


@pytest.mark.parametrize(
    ("name", "record", "keys"),
    [
        ("wal2json", WAL2JSON, ["7"]),
        ("canal", CANAL, ["7", "9"]),
        ("mongodb", MONGODB, ["64b7f0"]),
        ("dynamodb", DYNAMODB, ["7", "8"]),
    ],
)
def test_a_decoder_reads_the_records_of_its_source(
    make: Make, tmp_path: Path, name: str, record: object, keys: list[str]
) -> None:
    (tmp_path / "subs.jsonl").write_bytes(b'{"id": "big", "filters": [{"field": "amount", "op": ">", "value": 100}]}\n')
    (tmp_path / "in.jsonl").write_bytes(json.dumps(record).encode() + b'\n{"no": "record"}\n')
    source = {"type": "file", "path": str(tmp_path / "in.jsonl"), "follow": False, "format": name}
    make(sources={"orders": source}).run()
    messages = lines(tmp_path / "out.jsonl")
    assert [each["partitionkey"] for each in messages] == keys
    assert len({each["id"] for each in messages}) == len(keys)
    (letter,) = look(tmp_path / "data")
    assert letter.part == -1
    assert letter.reason.partition(": ")[2].startswith(name)


def test_what_a_service_cannot_do_is_said_at_once(backend: str) -> None:
    def refused(config: object) -> list[str]:
        with pytest.raises(BulkConfigError) as errors:
            fitting(Loaded(Config.from_dict(config)))  # type: ignore[arg-type]
        return [str(error) for error in errors.value.errors]

    assert "matching.validation: expected full" in refused({"matching": {"validation": "lazy"}})[0]
    two = {"a": {"type": "stdin", "format": "canal"}, "b": {"type": "file", "path": "x"}}
    assert "sources.a.format: an engine has one layout" in refused({"sources": two})[0]
    (bare,) = refused({"sources": {"a": {"type": "stdin", "envelope": True}}})
    assert "sources.a.envelope: expected one of the formats canal, cloudevents, debezium, " in bare
    (apart,) = refused({"matching": {"format": "canal"}})
    assert "matching.format: a service delivers each change of a record by itself: expected format canal in a source" in apart
    (stream,) = refused({"matching": {"format": "pgoutput"}})
    assert "a message needs those before it, also after a restart: expected a source of type: postgres" in stream
    one = {"sources": {"a": {"type": "stdin", "format": "canal"}}, "matching": {"layout": "debezium"}}
    assert "matching.layout: sources.a.format is decoded" in refused(one)[0]


@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_a_sink_does_not_write_into_what_is_read(make: Make, tmp_path: Path, link: Callable[[Path, Path], None]) -> None:
    """A last line without an end would be cut off, and each message would be read as an event."""
    (tmp_path / "subs.jsonl").write_bytes(SUBSCRIPTIONS)
    (tmp_path / "in.jsonl").write_bytes(event(1))
    for name in ("subs.jsonl", "in.jsonl"):
        link(tmp_path / name, tmp_path / f"link-{name}")
        before = (tmp_path / name).read_bytes()
        with pytest.raises(BulkConfigError, match=r"sinks\.out\.path: .* this file"):
            make(sinks={"out": {"type": "file", "path": str(tmp_path / f"link-{name}")}})
        assert (tmp_path / name).read_bytes() == before


def test_counts_add_up_at_any_moment(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Counts] = []
    before = Counts.__init__

    def init(self: Counts, letters: object) -> None:
        before(self, letters)  # type: ignore[arg-type]
        made.append(self)

    monkeypatch.setattr(Counts, "__init__", init)
    seen = []

    def look_at_it() -> None:
        seen.append(made[0].totals())

    for name in ("pipeline.matched", "pipeline.queued", "sink.written", "sink.flushed", "pipeline.acknowledged"):
        faults.arm(name, look_at_it)
    (tmp_path / "in.jsonl").write_bytes(b"".join(event(number, number % 200) + b"\n{\n" for number in range(5000)))
    make().run()
    assert len(seen) > 5
    for told in seen:
        assert told["events_read"] == told["events_matched"] + told["events_unmatched"] + told["events_rejected"]
        ends = ("matches_delivered", "matches_dead", "matches_dropped", "matches_pending")
        assert told["matches"] == sum(told[name] for name in ends)
        assert told["matches_pending"] >= 0
    assert seen[-1]["matches_delivered"] == len(lines(tmp_path / "out.jsonl")) == 2475
    assert seen[-1]["events_rejected"] == 5000


def test_subscriptions_stay_in_the_store_and_a_file_replaces_its_own(make: Make, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(event(1) + b"\n")
    make().run()
    service = make(subscriptions=[])
    with open(tmp_path / "in.jsonl", "ab") as file:
        file.write(event(2) + b"\n")
    service.run()
    assert [each["partitionkey"] for each in lines(tmp_path / "out.jsonl")] == ["1", "2"]
    (tmp_path / "subs.jsonl").write_bytes(b'{"id": "other"}\n')
    make().run()
    service = make(subscriptions=[])
    service.run()
    assert len(service.engine) == 1


def test_bad_subscriptions_are_named_with_file_and_line_and_the_users_id(make: Make, tmp_path: Path) -> None:
    (tmp_path / "subs.jsonl").write_bytes(b'{"id": "a"}\n\n{"id": "b", "cel": "data.a +"}\n{"id": "a"}\n{"nope": 1}\n')
    with pytest.raises(BulkConfigError) as refused:
        make().run()
    assert [error.line for error in refused.value.errors] == [5]
    (tmp_path / "subs.jsonl").write_bytes(b'{"id": "a"}\n\n{"id": "b", "cel": "data.a +"}\n{"id": "a"}\n')
    with pytest.raises(BulkConfigError) as refused:
        make().run()
    assert [error.line for error in refused.value.errors] == [3, 4]
    assert "subscription 'b': cel: " in str(refused.value.errors[0])
    assert "twice" in str(refused.value.errors[1])
    assert not (tmp_path / "data").exists()


def test_who_asks_for_a_reload_amid_one_gets_one_more_and_no_end(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    (tmp_path / "in.jsonl").touch()
    service = make(sources={"orders": {"type": "file", "path": str(tmp_path / "in.jsonl")}})
    reloads = []
    before = signal.getsignal(signal.SIGHUP)

    def reload() -> None:
        reloads.append(len(reloads))
        if len(reloads) == 1:
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGHUP)
        else:
            service.stop()

    def ask() -> None:
        until(lambda: signal.getsignal(signal.SIGHUP) is not before)
        os.kill(os.getpid(), signal.SIGHUP)

    monkeypatch.setattr(service, "reload", reload)
    asking = threading.Thread(target=ask)
    asking.start()
    service.run()
    asking.join()
    assert reloads == [0, 1]
    assert [each for each in caplog.messages if "reading has ended" in each] == [
        "SIGTERM: reading has ended, and the events that were read are delivered"
    ]


def test_each_source_of_several_keeps_its_order(make: Make, tmp_path: Path) -> None:
    sources = {}
    for name in ("a", "b", "c"):
        (tmp_path / name).write_bytes(b"".join(event(number) + b"\n" for number in range(2000)))
        sources[name] = {"type": "file", "path": str(tmp_path / name), "follow": False}
    make(sources=sources).run()
    messages = lines(tmp_path / "out.jsonl")
    for name in sources:
        of_source = [each["partitionkey"] for each in messages if each["source"] == f"/streamer/{name}"]
        assert of_source == [str(number) for number in range(2000)]
    assert len({each["id"] for each in messages}) == 6000


def test_an_event_with_very_many_matches_is_delivered_in_parts(make: Make, tmp_path: Path) -> None:
    (tmp_path / "subs.jsonl").write_bytes(b"".join(b'{"id": "%d"}\n' % number for number in range(3000)))
    (tmp_path / "in.jsonl").write_bytes(event(1, pad="x" * 2000) + b"\n")
    make().run()
    assert {each["subject"] for each in lines(tmp_path / "out.jsonl")} == {str(number) for number in range(3000)}
