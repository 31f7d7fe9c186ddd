"""Several processes with one store: what one is told all do, and one of them delivers.

They run in one process here; what each knows of the others comes from the store.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from streamer import Engine
from streamer.errors import ServiceError
from streamer.service.run.fitting import place_of
from streamer.service.store.ids import Written
from streamer.service.store.store import Store
from streamer.service.store.subscriptions import Table
from streamer.service.tenants.gateways import sink_of
from streamer.service.tenants.subscriptions import MOST_VERSION
from tests.service.api import BIG, Api, order, running, until
from tests.service.receiver import Receiver, Request
from tests.service.test_gateways import rules
from tests.service.test_streams import Client, _clients_are_closed
from tests.tools.postgres import Cluster, missing

pytestmark = [
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
    # What they test is the same on each core; on the reference it runs with what takes long.
    pytest.mark.later_on_the_reference,
]

__all__ = ["_clients_are_closed"]

Start = Callable[..., Api]
ONE = "/v1/subscriptions/big"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    yield made
    made.close()


@pytest.fixture
def start(
    cluster: Cluster,
    tmp_path: Path,
    receiver: Receiver,
    backend: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Start]:
    """Start another process: `one = start()`. It reads a file of its own."""
    monkeypatch.setenv("STORE", cluster.dsn())
    namespace = f"t{abs(hash(request.node.nodeid)) % 10**12}"
    with ExitStack() as opened:

        def start(stack: ExitStack = opened, **sections: Any) -> Api:
            name = f"p{len(list(tmp_path.iterdir()))}"
            (place := tmp_path / name).mkdir()
            shared = {
                "store": {"dsn": {"env": "STORE"}, "namespace": namespace},
                "sources": {name: {"type": "file", "path": str(place / "in.jsonl"), "poll": "5ms"}},
            }
            return stack.enter_context(running(place, **(shared | rules(receiver) | sections)))

        yield start


def holds(api: Api, *ids: str) -> Callable[[], bool]:
    return lambda: sorted(api.service.engine) == sorted(f"acme\0{each}" for each in ids)


def test_what_is_written_to_one_process_is_matched_by_all(start: Start) -> None:
    one, other = start(), start()
    put = one.ask("PUT", ONE, BIG)
    assert put.status == 201
    until(holds(other, "big"), 5)
    other.read(order())
    assert other.delivered() == ["big"]
    again = other.ask("PUT", ONE, BIG | {"filters": [{"field": "amount", "op": "<", "value": 100}]})
    assert again.status == 200
    # A tag is judged by what the store has.
    assert one.ask("PUT", ONE, BIG, headers={"If-Match": put.headers["etag"]}).kind == "precondition"
    until(lambda: not one.service.engine.match(order()))
    assert one.ask("POST", f"{ONE}:pause").status == 200
    until(holds(other), 5)
    assert one.ask("POST", f"{ONE}:resume").status == 200
    until(holds(other, "big"), 5)
    assert other.ask("DELETE", ONE).status == 204
    assert one.ask("GET", ONE).kind == "unknown"
    until(holds(one), 5)
    told = one.ask("GET", f"{ONE}/history").json["items"]
    assert [each["what"] for each in told] == ["delete", "resume", "pause", "put", "put"]
    assert told[-1]["subscription"] == BIG | {"id": "big"}
    assert other.ask("GET", f"{ONE}/history", token=other.make_token("acme", "read")).json["items"] == told


def test_who_missed_what_is_not_known_any_more_reads_all_anew(start: Start) -> None:
    one, other = start(), start()
    for name in "ab":
        assert one.ask("PUT", f"/v1/subscriptions/{name}", BIG).status == 201
    until(holds(other, "a", "b"), 5)
    with other.service.subscriptions._lock:  # it stands still
        assert one.ask("DELETE", "/v1/subscriptions/a").status == 204
        assert one.ask("PUT", "/v1/subscriptions/c", BIG).status == 201
        one.service.subscriptions._table.trim(MOST_VERSION)
        assert one.ask("DELETE", "/v1/subscriptions/b").status == 204
        assert holds(other, "a", "b")()
    until(holds(other, "c"), 5)


def test_what_one_cannot_index_no_other_holds(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = start(), start()
    assert one.ask("PUT", ONE, BIG).status == 201
    until(holds(other, "big"), 5)
    add_many, broken = Engine.add_many, one.service.engine

    def fail(engine: Engine, *given: Any, **named: Any) -> Any:
        if engine is broken and "on_error" not in named:
            until(lambda: len(other.service.engine) == 2 or other.service.engine.match(order(amount=1)), 5)
            raise MemoryError
        return add_many(engine, *given, **named)

    monkeypatch.setattr(Engine, "add_many", fail)
    assert one.ask("PUT", "/v1/subscriptions/new", BIG).status == 500
    until(holds(other, "big"), 5)
    assert one.ask("PUT", ONE, BIG | {"filters": []}).status == 500
    until(lambda: not other.service.engine.match(order(amount=1)), 5)
    for each in (one, other):
        until(holds(each, "big"), 5)
    assert one.ask("GET", ONE).json["subscription"] == BIG | {"id": "big"}


def test_who_begins_has_what_others_wrote_and_no_more(start: Start) -> None:
    one = start()
    for name in "abc":
        assert one.ask("PUT", f"/v1/subscriptions/{name}", BIG).status == 201
    assert one.ask("DELETE", "/v1/subscriptions/b").status == 204
    assert holds(start(), "a", "c")()


def test_of_two_who_write_at_once_one_is_first(start: Start) -> None:
    several = [start(), start()]
    won: list[list[int]] = [[], []]

    def write(number: int) -> None:
        for at in range(30):
            reply = several[number].ask("PUT", f"/v1/subscriptions/s{at}", BIG, headers={"If-None-Match": "*"})
            won[number].append(reply.status)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(sorted(pair) == [201, 412] for pair in zip(*won, strict=True))
    for each in several:
        until(holds(each, *(f"s{at}" for at in range(30))), 5)


def test_files_do_not_take_an_id_that_another_process_writes_in_that_moment(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (watched := tmp_path / "watched").mkdir()
    one, other = start(service={"watch": str(watched)}), start()
    hold = Table.hold

    def late(table: Table, origin: str, found: Iterable[Written]) -> int:
        if other.ask("GET", ONE).status == 404:
            assert other.ask("PUT", ONE, BIG).status == 201
        return hold(table, origin, found)

    monkeypatch.setattr(Table, "hold", late)
    lines = [json.dumps(BIG | {"id": name, "tenant": "acme", "filters": []}) + "\n" for name in ("small", "big")]
    (watched / "a.jsonl").write_text("".join(lines))
    until(lambda: "a.jsonl:2: the API has this id" in caplog.text)
    for each in (one, other):
        until(holds(each, "big"), 5)
        assert not each.service.engine.match(order(amount=1))
    assert other.ask("DELETE", ONE).status == 204
    monkeypatch.setattr(Table, "hold", hold)
    (watched / "a.jsonl").write_text("".join(reversed(lines)))
    for each in (one, other):
        until(holds(each, "big", "small"), 5)
    assert other.ask("PUT", ONE, BIG).kind == "other-origin"


def test_a_process_that_stood_still_reads_all_anew(start: Start) -> None:
    one, other = start(), start()
    other_follow = other.service.subscriptions.follow
    until(lambda: one.ask("PUT", ONE, BIG).status == 201)
    until(holds(other, "big"), 5)
    with other.service.subscriptions._lock:
        # It cannot follow meanwhile.
        assert one.ask("DELETE", ONE).status == 204
        assert one.ask("PUT", "/v1/subscriptions/new", BIG).status == 201
        one.service.subscriptions._table.trim(2**62)
    until(holds(other, "new"), 5)
    other_follow()
    assert holds(other, "new")()


def test_quotas_count_what_all_processes_were_told(start: Start) -> None:
    quota = {"api": {"quotas": {"subscriptions": 3}}}
    one, other = start(**quota), start(**quota)
    for name in "ab":
        assert one.ask("PUT", f"/v1/subscriptions/{name}", BIG).status == 201
    until(lambda: other.service.subscriptions.totals()["held"] == 2, 5)
    assert other.ask("PUT", "/v1/subscriptions/c", BIG).status == 201
    assert other.ask("PUT", "/v1/subscriptions/d", BIG).kind == "quota"


def test_processes_that_write_at_once_do_not_pass_a_quota(start: Start) -> None:
    quota = {"api": {"quotas": {"subscriptions": 9, "unindexed": 3, "gateways": 3}}}
    several = [start(**quota), start(**quota)]
    told: list[list[tuple[str, int, str]]] = [[], []]
    # None of them has its condition looked up.
    every = {"collection": "orders"}

    def write(number: int) -> None:
        for at in range(8):
            for what, body in (("subscriptions", BIG), ("subscriptions", every), ("gateways", {"url": None})):
                reply = several[number].ask("PUT", f"/v1/{what}/{number}-{at}-{body is every}", body)
                told[number].append((what, reply.status, reply.kind if reply.status >= 400 else ""))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    replies = Counter([each for several_told in told for each in several_told])
    assert replies.total() == 48
    assert {kind for _, status, kind in replies if status >= 400} <= {"quota", "busy"}
    rows = [row for each in several[:1] for row in each.service.subscriptions._table.page("acme", "").rows]
    assert len(rows) == 9
    assert sum(row.unindexed for row in rows) == 3
    assert replies["gateways", 201, ""] == 3
    for each in several:
        until(lambda each=each: each.service.subscriptions.totals()["held"] == 9, 10)


def test_a_lease_that_one_process_renews_no_other_takes_out(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = start(), start()
    assert one.ask("PUT", f"{ONE}?lease=1", BIG).status == 201
    for _ in range(4):
        threading.Event().wait(0.4)
        assert other.ask("POST", f"{ONE}:renew").status == 200
    assert one.ask("GET", ONE).status == 200
    until(lambda: one.ask("GET", ONE).status == 404, 10)
    until(holds(one), 5)
    until(holds(other), 5)


def test_one_process_delivers_what_all_spool_and_another_takes_over(start: Start, receiver: Receiver) -> None:
    with ExitStack() as first:
        one = start(first)
        other = start()
        assert one.ask("PUT", ONE, BIG).status == 201
        assert one.ask("PUT", "/v1/gateways/billing", {"url": receiver.url}).status == 201
        until(lambda: other.service.gateways.get("acme", "billing") and holds(other, "big")(), 5)
        for number in range(6):
            (one, other)[number % 2].read(order(number))
        until(lambda: len(receiver.requests) == 6)
        receiver.answer = lambda _: 503
        for number in range(6, 12):
            (one, other)[number % 2].read(order(number))
    # Now one of them has ended, with messages that nobody took.
    receiver.answer = lambda _: 204
    until(lambda: {request.messages[0]["data"]["event"]["id"] for request in receiver.requests} >= set(range(12)))
    until(lambda: other.ask("GET", "/v1/gateways/billing").json["pending"]["messages"] == 0, 20)
    assert other.ask("DELETE", "/v1/gateways/billing").status == 204


def test_a_gateway_that_one_process_forgets_is_forgotten_by_all(start: Start, receiver: Receiver) -> None:
    one, other = start(), start()
    assert one.ask("PUT", ONE, BIG).status == 201
    for _ in range(2):
        assert one.ask("PUT", "/v1/gateways/billing", {"url": receiver.url}).status == 201
        until(lambda: other.service.gateways.get("acme", "billing") and holds(other, "big")(), 5)
        before = len(receiver.requests)
        other.read(order())
        until(lambda: len(receiver.requests) > before)  # noqa: B023
        assert other.ask("DELETE", "/v1/gateways/billing").status == 204
        until(lambda: one.service.gateways.get("acme", "billing") is None, 5)
        assert one.ask("GET", "/v1/gateways/billing").kind == "unknown"
        one.read(order(2))
        assert one.delivered()[-1] == "big"


def test_who_begins_to_deliver_anew_waits_for_what_is_on_its_way(start: Start, receiver: Receiver) -> None:
    """Another process changed what is in the spool. Of a key one message is on its way at a time, also then."""
    one, _ = start(), start()
    assert one.ask("PUT", ONE, BIG).status == 201
    assert one.ask("PUT", "/v1/gateways/billing", {"url": receiver.url}).status == 201
    until(lambda: one.service.gateways.get("acme", "billing") and holds(one, "big")(), 5)
    answered = threading.Event()
    asked: list[bool] = []

    def answer(_: Request) -> int:
        asked.append(answered.is_set())
        answered.wait(20)
        return 204

    receiver.answer = answer
    with open(one.directory / "in.jsonl", "ab") as file:
        file.write(order(1) + b"\n" + order(1) + b"\n")
    until(lambda: asked)
    another = Store(place_of(one.service.config))
    another.drop([])
    another.close()
    time.sleep(2.5)
    assert asked == [False]
    answered.set()
    until(lambda: len(asked) >= 3)
    assert asked == [False, True, True]


@pytest.mark.slow
def test_a_store_that_is_restarted_under_load_is_waited_for(start: Start, receiver: Receiver, cluster: Cluster) -> None:
    """Whatever its processes do in that moment: none ends, nothing is lost, and they follow each other again."""
    several = [start(), start()]
    assert several[0].ask("PUT", ONE, BIG).status == 201
    assert several[0].ask("PUT", "/v1/gateways/billing", {"url": receiver.url}).status == 201
    for each in several:
        until(lambda each=each: each.service.gateways.get("acme", "billing") and holds(each, "big")(), 5)
    ended = threading.Event()
    written = [0, 0]

    def write(at: int) -> None:
        while not ended.wait(0.03):
            with open(several[at].directory / "in.jsonl", "ab") as file:
                for _ in range(5):
                    file.write(order(2 * written[at] + at) + b"\n")
                    written[at] += 1

    writing = [threading.Thread(target=write, args=(at,)) for at in range(2)]
    for thread in writing:
        thread.start()
    for mode, seconds in (("immediate", 0.0), ("fast", 2.0)):
        before = len(receiver.requests)
        until(lambda before=before: len(receiver.requests) > before + 20)
        cluster.stop(mode)
        time.sleep(seconds)
        cluster.start()
    ended.set()
    for thread in writing:
        thread.join()
    wanted = {2 * number + at for at in range(2) for number in range(written[at])}

    def numbers() -> list[int]:
        return [message["data"]["event"]["id"] for request in receiver.requests for message in request.messages]

    until(lambda: set(numbers()) == wanted)
    for each in several:
        assert each.service._running is not None
        assert each.service._running.pipeline.failed is None
    until(lambda: several[0].ask("DELETE", ONE).status == 204, 10)
    until(holds(several[1]), 10)


def test_a_stream_has_what_any_process_found(start: Start) -> None:
    one, other = start(), start()
    assert one.ask("PUT", ONE, BIG).status == 201
    assert one.ask("PUT", "/v1/gateways/billing", {}).status == 201
    until(lambda: other.service.gateways.get("acme", "billing") and holds(other, "big")(), 5)
    client = Client(one, one.make_token("acme", "consume"))
    for number in range(10):
        (one, other)[number % 2].read(order(number))
    assert client.take(10) == list(map(str, range(10)))


def test_a_stream_is_told_of_what_another_process_has_cut(start: Start) -> None:
    """Also before its own process knows of it."""
    one, other = start(), start()
    assert one.ask("PUT", ONE, BIG).status == 201
    assert one.ask("PUT", "/v1/gateways/billing", {}).status == 201
    until(lambda: other.service.gateways.get("acme", "billing") and holds(other, "big")(), 5)
    for number in range(10):
        one.read(order(number))
    client = Client(other, other.make_token("acme", "consume"))
    assert client.take(10) == list(map(str, range(10)))
    seen = [identity for identity, _, _ in client.events]
    spools = [each.service._running.spool for each in (one, other) if each.service._running is not None]
    histories = [spool.histories[sink_of("acme", "billing")] for spool in spools]
    histories[0]._store.trim(histories[0].lane, histories[0].lane.first + 6)
    assert histories[1].first == histories[1].lane.first
    late = Client(other, other.make_token("acme", "consume"), last=seen[1])
    assert late.take(5) == ["reset", "6", "7", "8", "9"]
    assert late.events[0][0] == seen[5]
    histories[1].find()
    assert histories[1].first == histories[1].lane.first + 6


def test_a_source_of_one_process_that_another_reads_ends_the_first(start: Start, tmp_path: Path) -> None:
    def read_what_another_reads() -> None:
        with ExitStack() as first:
            one = start(first)
            assert one.ask("PUT", ONE, BIG).status == 201
            start(sources={"p0": {"type": "file", "path": str(tmp_path / "p0" / "in.jsonl"), "poll": "5ms"}})
            with open(one.directory / "in.jsonl", "ab") as file:
                file.write(order() + b"\n")
            assert one.service._running is not None
            until(lambda: one.service._running is None or one.service._running.pipeline.failed, 20)

    with pytest.raises(ServiceError, match=r"sources\.p0: another process reads it now"):
        read_what_another_reads()


def test_shards_together_match_what_one_process_does(start: Start) -> None:
    tenants = [f"t{number}" for number in range(12)]
    shards = [start(shard={"tenants": f"{number}/3"}) for number in (1, 2, 3)]
    token = {each.port: each.make_token(None, "admin") for each in shards}
    for at, tenant in enumerate(tenants):
        one = shards[at % 3]
        reply = one.ask("PUT", f"{ONE}?tenant={tenant}", BIG, token=token[one.port])
        assert reply.status == 201, reply.body
    until(lambda: sum(len(each.service.engine) for each in shards) == len(tenants), 5)
    assert all(len(each.service.engine) < len(tenants) for each in shards)
    found = []
    for each in shards:
        # Each of them reads all events.
        each.read(*(order(number, tenant=tenant) for number, tenant in enumerate(tenants)))
        found += each.delivered()
        whose = [tenant for tenant in tenants if not each.service.subscriptions.shard.holds(tenant)]
        asked = each.ask("POST", "/v1/match", order(tenant=whose[0]), token=each.make_token(whose[0], "read"))
        assert (asked.kind, asked.status) == ("elsewhere", 421)
        assert each.ask("GET", f"{ONE}?tenant={whose[0]}", token=token[each.port]).status == 200
        # Who matches for a tenant counts its matches, and nobody else says that there are none.
        assert each.ask("GET", f"{ONE}/matches?tenant={whose[0]}", token=token[each.port]).kind == "elsewhere"
        mine = next(tenant for tenant in tenants if tenant not in whose)
        assert each.ask("GET", f"{ONE}/matches?tenant={mine}", token=token[each.port]).json["total"] == 1
    assert len(found) == len(tenants)
