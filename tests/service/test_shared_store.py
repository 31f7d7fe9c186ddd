"""A store on PostgreSQL does what an embedded one does, and what is another process's is refused."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from psycopg import errors

from streamer.config.schema.service import SharedStore
from streamer.config.secret import SecretValue
from streamer.errors import ServiceError
from streamer.service import faults
from streamer.service.connectors.protocols import Away
from streamer.service.store import postgres
from streamer.service.store.database import Fenced
from streamer.service.store.gateways import GatewayTable, StoredGateway
from streamer.service.store.ids import written
from streamer.service.store.opened import inspected, look, opened
from streamer.service.store.rows import Changes, Confirmed, Spooled, dead_letter
from streamer.service.store.schema import POSTGRES
from streamer.service.store.store import Store
from streamer.service.store.subscriptions import Amount, Stored, Table
from streamer.service.store.vault import Vault
from streamer.service.tenants.gateways import sink_of
from tests.tools.cutting import Cutting, How, hang_up
from tests.tools.postgres import Cluster, missing

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

Make = Callable[[], Store]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    yield made
    made.close()


@pytest.fixture
def section(cluster: Cluster, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SharedStore:
    monkeypatch.setenv("STORE", cluster.dsn())
    return SharedStore(dsn=SecretValue("env", "STORE"), namespace=f"t{abs(hash(request.node.nodeid)) % 10**12}")


@pytest.fixture
def make(section: SharedStore) -> Iterator[Make]:
    """Open the store, as another process does."""
    made: list[Store] = []

    def make() -> Store:
        made.append(Store(section))
        return made[-1]

    yield make
    for store in made:
        store.close()


def spooled(number: int, sink: str = "out", size: int = 3) -> Spooled:
    return Spooled(sink, number % 3, f"id{number}", 2, "s", "p", number, 0, b"x" * size)


def test_looking_at_a_store_makes_nothing_and_says_why_it_could_not_be_used(
    make: Make, section: SharedStore, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = f"SELECT count(*) FROM pg_namespace WHERE nspname = '{section.namespace}'"
    assert inspected(section).positions == {}
    assert cluster.sql(there) == [(0,)]
    cluster.sql("DROP ROLE IF EXISTS weak", "CREATE ROLE weak LOGIN PASSWORD 'secret-word'")
    weak, owner = cluster.dsn("postgres", "weak"), cluster.dsn()
    monkeypatch.setenv("STORE", weak)
    with pytest.raises(ServiceError, match="GRANT CREATE ON DATABASE"):
        inspected(section)
    monkeypatch.setenv("STORE", owner)
    store = make()
    monkeypatch.setenv("STORE", weak)
    with pytest.raises(ServiceError, match="GRANT USAGE, CREATE ON SCHEMA"):
        inspected(section)
    monkeypatch.setenv("STORE", owner)
    store.begin("s", "p", "7")
    assert inspected(section).positions == {"s": {"p": "7"}}
    monkeypatch.setenv("STORE", "host=127.0.0.1 port=1 user=u dbname=d connect_timeout=2")
    with pytest.raises(Away, match="the store cannot be used"):
        inspected(section)


def test_positions_letters_and_messages_are_there_for_the_next_process(make: Make, section: SharedStore) -> None:
    store = make()
    store.begin("s", "p", "0")
    store.begin("s", "o", "0")
    lane = store.lane("out")
    letter = dead_letter("s", "p", "0/16B:3", -1, "bad_value", "no \0", b"\0record")
    ours = [Confirmed("s", name, "5", store.generation("s", name)) for name in "po"]
    taken = store.commit(ours, [letter, replace(letter, position=7)], [], [spooled(1), spooled(2), spooled(3, "nowhere")])
    assert [number - lane.first for number, _ in taken] == [1, 2]
    store.commit([], [letter])
    other = make()
    assert list(other.positions("s").items()) == [("p", "5"), ("o", "5")]
    one, two = other.letters()
    assert (one.position, one.attempts, one.record, one.reason) == ("0/16B:3", 2, b"\0record", "no ␀")
    assert two.position == 7
    assert look(section, number=two.id) == [two]
    found = other.waiting(other.lane("out"), 0, 10, 10**6)
    assert [(each.message, each.position, each.body) for each in found] == [("id1", 1, b"xxx"), ("id2", 2, b"xxx")]
    assert len(other.waiting(other.lane("out"), 0, 10, 1)) == 1
    assert [each.message for each in other.waiting_of(lane, 2, 0, found[-1].number, 9)] == ["id2"]
    assert other.lanes() == [("out", 2, 6)]
    assert other.lead(10)
    settled = other.settle(Changes(delivered=[found[0].number], tried=[(1, 99, found[1].number)]), [spooled(9)])
    assert [number for number, _ in settled] == [found[1].number + 1]
    assert [(each.message, each.attempts, each.due) for each in store.waiting(lane, 0, 10, 10**6)] == [
        ("id2", 1, 99),
        ("id9", 0, 0),
    ]
    assert store.drop(None) == 2
    assert store.clear("out") == 2
    assert other.clear("out") is None


def test_subscriptions_have_versions_in_the_order_of_their_commits(make: Make) -> None:
    tables = [Table(make()), Table(make())]
    for number, table in enumerate(tables):
        assert (
            table.hold(f"files{number}", [written(b'{"id": "a%d"}' % number, "t"), written(b'{"id": "b%d"}' % number, "t")]) == 2
        )
    assert [row.version for row in tables[0].page("t", "").rows] == [1, 3, 2, 4]
    assert tables[1].counts() == {"t": (Amount(4, 0, 4 * len('{"id": "a0"}')), 0)}
    assert [text for _, _, text in tables[0].active(but="files1")] == [b'{"id": "a0"}', b'{"id": "b0"}']
    for table in tables:
        table.close()


def test_subscriptions_of_all_tenants_are_walked_through(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one order, some at a time, each once; an id of one tenant is no reason to pass over another tenant's."""
    monkeypatch.setattr("streamer.service.store.subscriptions.PAGE", 5)
    with closing(Table(make())) as table:
        several = [
            written(b'{"id": "%b"}' % name, tenant) for tenant in ("u", "t", "*") for name in (b"a", b"Z", b"\xc3\xa9", b"b")
        ]
        table.hold("files", several)
        found: list[tuple[str, str]] = []
        is_last, sizes = False, []
        while not is_last:
            rows, is_last = table.walk(found[-1] if found else ("", ""))
            found += [(row.tenant, row.id) for row in rows]
            sizes.append(len(rows))
        assert sizes == [5, 5, 2]
        assert len(found) == 12
        assert set(found) == {(each.tenant, each.id) for each in several}
        monkeypatch.undo()
        for tenant in ("u", "t", "*"):
            assert [row.id for row in table.page(tenant, "").rows] == [id_ for whose, id_ in found if whose == tenant]


def test_a_page_ends_with_its_bytes(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A subscription may have megabytes, and several requests read at once. What others wrote comes so, too."""
    monkeypatch.setattr("streamer.service.store.subscriptions.PAGE_BYTES", 1000)
    with closing(Table(make())) as table:
        several = [written(json.dumps({"id": f"{number}", "labels": {"a": "x" * 400}}).encode(), "t") for number in range(5)]
        table.hold("files", several)
        rows, is_last = table.page("t", "")
        assert ([row.id for row in rows], is_last) == (["0", "1", "2"], False)
        rows, is_last = table.page("t", "2")
        assert ([row.id for row in rows], is_last) == (["3", "4"], True)
        told, bound = table.since(0, 5)
        assert (len(told), bound) == (3, 3)
        told, bound = table.since(3, 5)
        assert (len(told), bound) == (2, 5)


def test_files_take_an_id_whose_lease_is_over(make: Make) -> None:
    with closing(Table(make())) as table:
        over = Stored(tenant="t", id="a", origin="api", text=b'{"id": "a"}', created=1, updated=1, lease=1, expires_at=2)
        table.write([over], [None], who="api")
        assert table.others("files") == []
        assert table.hold("files", [written(b'{"id": "a"}', "t")]) == 1
        (row,) = table.page("t", "").rows
        assert (row.origin, row.expires_at, row.version) == ("files", None, 2)
        assert table.hold("files", []) == 1


def test_who_lost_a_partition_confirms_nothing(make: Make) -> None:
    one, other = make(), make()
    one.begin("s", "p", "0")
    one.lane("out")
    ours = Confirmed("s", "p", "5", one.generation("s", "p"))
    other.begin("s", "p", "0")
    with pytest.raises(Fenced, match="another process reads these now, from their confirmed positions: s: p") as told:
        one.commit([ours], [dead_letter("s", "p", 1, -1, "bad_value", "no", b"")], [], [spooled(1)])
    assert told.value.partitions == {("s", "p", ours.generation)}
    with pytest.raises(Fenced):
        one.commit([replace(ours, position=None)], [], [], [spooled(1)])
    assert (other.positions("s"), other.dead_letters(), other.lanes()) == ({"p": "0"}, 0, [])
    other.commit([Confirmed("s", "p", "9", other.generation("s", "p"))])
    with pytest.raises(Fenced):
        one.commit([replace(ours, position=None, is_over=True)], [], [], [spooled(1)])
    assert (one.positions("s"), other.lanes()) == ({"p": "9"}, [])


def test_a_partition_that_is_over_and_begun_again_is_not_that_of_who_had_it_before(make: Make) -> None:
    one, other = make(), make()
    one.begin("s", "p", "0")
    one.lane("out")
    ours = Confirmed("s", "p", "5", one.generation("s", "p"))
    other.begin("s", "p", "0")
    other.commit([Confirmed("s", "p", None, other.generation("s", "p"), is_over=True)])
    with pytest.raises(Fenced):
        one.commit([replace(ours, position=None, is_over=True)], [], [], [spooled(1)])
    other.begin("s", "p", "1")
    for late in (ours, replace(ours, position=None, is_over=True)):
        with pytest.raises(Fenced):
            one.commit([late], [], [], [spooled(1)])
    assert (other.positions("s"), other.lanes()) == ({"p": "1"}, [])
    # What was never begun may be over.
    one.commit([Confirmed("s", "o", None, is_over=True)])


def test_a_partition_is_not_taken_over_in_the_middle_of_a_commit(make: Make) -> None:
    one, other = make(), make()
    one.begin("s", "p", "0")
    one.lane("out")
    begun = threading.Thread(target=other.begin, args=("s", "p", "0"))

    def meanwhile() -> None:
        begun.start()
        begun.join(0.3)
        assert begun.is_alive()

    faults.arm("store.spooled", meanwhile)
    # More follows of the batch, so that no position is put down.
    one.commit([Confirmed("s", "p", None, one.generation("s", "p"))], [], [], [spooled(1)])
    faults.disarm()
    begun.join()
    assert other.lanes() == [("out", 1, 3)]
    assert other.generation("s", "p") == one.generation("s", "p") + 1


def test_what_comes_while_one_counts_is_counted_once(make: Make) -> None:
    """Who delivers asks for the last numbers first, and then how much there is up to them: else it counts some twice, and the
    spool is full one day of what is not there."""
    one, other = make(), make()
    lane = one.lane("out")
    other.lane("out")
    other.commit([], [], [], [spooled(1)])
    ((_, _, last),) = one.lasts()
    other.commit([], [], [], [spooled(2)])
    before, lane.last = lane.last, last
    assert one.backlog(lane, before)[0] == 1
    ((_, _, lane.last),) = one.lasts()
    assert one.backlog(lane, last)[0] == 1
    assert one.backlog(lane)[0] == 2


def test_a_gateway_that_goes_has_who_delivers_begin_anew(make: Make) -> None:
    """Its lane's number may be given again at once; what was on its way settles nothing there."""
    one, other = make(), make()
    assert one.lead(30)
    table = GatewayTable(other, Vault(tuple))
    row = table.write(StoredGateway(tenant="acme", id="g", settings="{}", created=1, updated=1), None, 10)
    table.delete(row, sink_of("acme", "g"))
    with pytest.raises(Fenced):
        one.settle(Changes(delivered=[1]))


def test_one_process_delivers_at_a_time_and_another_takes_over(make: Make) -> None:
    one, other = make(), make()
    one.lane("out")
    ((number, _),) = one.commit([], [], [], [spooled(1)])
    assert one.lead(0.5)
    assert not other.lead(0.5)
    time.sleep(0.6)
    assert other.lead(30)
    with pytest.raises(Fenced, match="another process delivers the messages in the spool"):
        one.settle(Changes(delivered=[number]))
    assert other.backlog(other.lane("out"))[0] == 1
    assert not one.lead(30)
    other.leave()
    assert one.lead(30)


def test_numbers_of_a_lane_are_seen_in_their_order(make: Make) -> None:
    """Whoever has read on to a number has missed none before it."""
    stores = [make() for _ in range(3)]
    lanes = [store.lane("out") for store in stores]
    ended = threading.Event()

    def add(store: Store) -> None:
        for number in range(60):
            store.commit([], [], [], [spooled(number), spooled(number)])

    seen: list[int] = []
    reader = make()

    def read() -> None:
        while True:
            is_last = ended.is_set()
            rows = reader.waiting(lanes[0], seen[-1] if seen else 0, 1000, 10**9)
            seen.extend(row.number for row in rows)
            if is_last and not rows:
                return

    threads = [threading.Thread(target=add, args=(store,)) for store in stores]
    reading = threading.Thread(target=read)
    for thread in (*threads, reading):
        thread.start()
    for thread in threads:
        thread.join()
    ended.set()
    reading.join()
    assert seen == list(range(lanes[0].first + 1, lanes[0].first + 361))


def once(action: Callable[[], object]) -> Callable[[], None]:
    """Do something the first time alone."""
    left = [action]

    def act() -> None:
        if left:
            left.pop()()

    return act


def test_nothing_of_a_lane_that_is_forgotten_is_found_in_the_next_one(make: Make) -> None:
    """Another process adds to it meanwhile; its number is another sink's then, which may be another tenant's."""
    one, other = make(), make()
    number = one.lane("gateway:a/g").number
    assert other.lane("gateway:a/g").number == number
    forgetting = threading.Thread(target=other.clear, args=("gateway:a/g",))

    def meanwhile() -> None:
        forgetting.start()
        forgetting.join(0.5)

    faults.arm("store.spooled", once(meanwhile))
    one.commit([], [], [], [spooled(1, "gateway:a/g")])
    forgetting.join(10)
    lane = other.lane("gateway:b/g")
    assert lane.number == number
    assert other.waiting(lane, 0, 10, 10**6) == []
    assert [each.message for _, each in other.commit([], [], [], [spooled(2, "gateway:b/g")])] == ["id2"]


def test_lanes_that_are_made_at_once_have_numbers_of_their_own(make: Make) -> None:
    stores = [make() for _ in range(4)]
    failed: list[Exception] = []

    def lanes(at: int) -> None:
        try:
            for number in range(20):
                stores[at].lane(f"s{at}-{number}")
        except ServiceError as error:
            failed.append(error)

    threads = [threading.Thread(target=lanes, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert sorted(store.lane(f"s{at}-{n}").number for at, store in enumerate(stores) for n in range(20)) == list(range(1, 81))


@pytest.mark.parametrize("point", ["store.spooled", "spool.settling"])
def test_a_process_that_is_stopped_amid_a_change_keeps_nothing_from_others(
    make: Make, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """What it had changed by then never was; once it goes on it is told so, or does it again."""
    monkeypatch.setattr(postgres, "IDLE", 1)
    one, other = make(), make()
    lane = one.lane("out")
    other.lane("out")
    ((first, _),) = one.commit([], [], [], [spooled(1)])
    assert one.lead(0.1)
    stopped, goes_on = threading.Event(), threading.Event()

    def stop() -> None:
        stopped.set()
        goes_on.wait(30)

    faults.arm(point, once(stop))
    told: list[Exception] = []

    def change() -> None:
        try:
            if point == "store.spooled":
                one.commit([], [], [], [spooled(2)])
            else:
                one.settle(Changes(delivered=[first]))
        except ServiceError as error:
            told.append(error)

    slow = threading.Thread(target=change)
    slow.start()
    assert stopped.wait(10)
    time.sleep(0.2)
    began = time.monotonic()
    assert other.lead(30)
    other.commit([], [], [], [spooled(3)])
    assert time.monotonic() - began < 10
    goes_on.set()
    slow.join(30)
    messages = [each.message for each in other.waiting(lane, 0, 10, 10**6)]
    if point == "store.spooled":
        assert (messages, told) == (["id1", "id3", "id2"], [])
    else:
        assert messages == ["id1", "id3"]
        assert isinstance(told[0], Fenced)


def test_others_are_told_that_something_changed(make: Make) -> None:
    one, other = make(), make()
    one.lane("out")
    told = threading.Event()
    other.database.follow(told.set)
    for _ in range(3):
        told.clear()
        time.sleep(0.1)
        told.clear()
        began = time.monotonic()
        one.commit([], [], [], [spooled(1)])
        assert told.wait(5)
        if time.monotonic() - began < 0.5:
            return
    pytest.fail("nobody was told before one looked by oneself")


@pytest.mark.slow
def test_a_server_that_is_restarted_is_waited_for(make: Make, cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    store = make()
    store.begin("s", "p", "0")
    lane = store.lane("out")
    confirmed = Confirmed("s", "p", "7", store.generation("s", "p"))
    cluster.stop("immediate")
    with pytest.raises(ServiceError, match="the store cannot be used: ") as told:
        store.dead_letters()
    assert "secret-word" not in str(told.value)
    assert not store.is_writable()
    waiting = threading.Thread(target=store.commit, args=([confirmed],))
    waiting.start()
    # What delivers only reads, most of the time: it waits as well.
    read: list[object] = []
    reads = (
        lambda: store.waiting(lane, 0, 10, 100),
        lambda: store.waiting_of(lane, 1, 0, 2**62, 10),
        lambda: store.backlog(lane),
        lambda: store.oldest_of(lane, 1),
        store.lasts,
        lambda: store.positions("s", patient=True),
    )
    reading = [threading.Thread(target=lambda each=each: read.append(each())) for each in reads]
    for thread in reading:
        thread.start()
    time.sleep(0.5)
    assert read == []
    cluster.start()
    waiting.join(20)
    for thread in reading:
        thread.join(20)
    assert len(read) == len(reads)
    assert store.positions("s") == {"p": "7"}
    assert store.is_writable()
    assert "retrying until it answers" in caplog.text
    assert "secret-word" not in caplog.text


def _done(client: socket.socket, server: socket.socket, said: bytes) -> None:
    """It is committed, and nobody hears that."""
    hang_up(client)
    server.sendall(said)
    time.sleep(0.3)


def _never(client: socket.socket, server: socket.socket, said: bytes) -> None:
    """The server never hears of it."""


def _late(client: socket.socket, server: socket.socket, said: bytes) -> None:
    """It is committed after the client has asked what became of it."""
    hang_up(client)
    time.sleep(1)
    server.sendall(said)
    time.sleep(0.3)


@pytest.fixture
def cutting(cluster: Cluster, section: SharedStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cutting]:
    """Have stores connect through what can cut them off."""
    made = Cutting(cluster.port)
    monkeypatch.setenv("STORE", cluster.dsn().replace(f":{cluster.port}/", f":{made.port}/"))
    yield made
    made.close()


@pytest.mark.parametrize("how", [_done, _never, _late])
def test_a_commit_whose_answer_is_lost_takes_place_once(cutting: Cutting, make: Make, how: How) -> None:
    store = make()
    store.begin("s", "p", "0")
    lane = store.lane("out")
    cutting.cut(how)
    ((number, _),) = store.commit([Confirmed("s", "p", "7", store.generation("s", "p"))], [], [], [spooled(1)])
    assert cutting.cuts == 1
    assert store.positions("s") == {"p": "7"}
    assert [(each.number, each.message) for each in store.waiting(lane, 0, 10, 10**6)] == [(number, "id1")]


@pytest.mark.parametrize("how", [_done, _never, _late])
def test_a_commit_whose_answer_is_lost_takes_place_once_though_another_thread_makes_changes(
    cutting: Cutting, make: Make, how: How, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that gets its turn before the server is asked what became of the commit."""
    store = make()
    lane = store.lane("out")
    store.lane("other")
    cutting.cut(how)
    other = threading.Thread(target=lambda: store.commit([], [], [], [spooled(2, "other")]))

    def away(_: object) -> None:
        if not other.ident:
            other.start()
            other.join(10)

    monkeypatch.setattr(store.database, "_is_away", away)
    store.commit([], [], [], [spooled(1)])
    assert not other.is_alive()
    assert [each.message for each in store.waiting(lane, 0, 10, 10**6)] == ["id1"]
    assert sorted(held[:2] for held in store.lanes()) == [("other", 1), ("out", 1)]


def test_a_store_goes_on_where_its_connection_broke_amid_a_pipeline(make: Make) -> None:
    """As psycopg leaves it where the server's last word comes while rows are sent: it stays in the pipeline, and is open."""
    store = make()
    lane = store.lane("out")
    broken = []

    def change(_: object) -> None:
        if not broken:
            broken.append(store.database._connection)  # type: ignore[attr-defined]
            broken[0].pgconn.enter_pipeline_mode()
            raise psycopg.OperationalError("cannot exit pipeline mode while busy")

    store.database.change(change, patient=True)
    assert broken[0].closed
    store.commit([], [], [], [spooled(1)])
    assert [each.message for each in store.waiting(lane, 0, 10, 10**6)] == ["id1"]


@pytest.mark.parametrize("how", [_done, _never, _late])
def test_who_waits_for_no_server_is_told_that_its_commit_took_place(cutting: Cutting, make: Make, how: How) -> None:
    store = make()
    with closing(Table(store)) as table:
        cutting.cut(how)
        assert table.hold("files", [written(b'{"id": "a"}', "t")]) == 1
        assert (cutting.cuts, [(row.id, row.version) for row in table.page("t", "").rows]) == (1, [("a", 1)])


def test_who_cannot_ask_whether_a_commit_took_place_is_told_so(
    cutting: Cutting, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "_UNDECIDED", 0.3)
    store = make()

    def gone(client: socket.socket, server: socket.socket, said: bytes) -> None:
        cutting.close()
        _done(client, server, said)

    cutting.cut(gone)
    with pytest.raises(ServiceError, match=r"the store cannot be used: .*; whether the last change was made is not known"):
        store.drop(None)


@pytest.mark.slow
def test_a_change_that_a_crash_took_is_made_again(make: Make, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the server has given the number of its transaction to another one since."""
    store = make()
    lane = store.lane("out")
    made = postgres._Sent
    crashes: list[int] = []

    def crash(number: int, found: object) -> object:
        if not crashes:
            crashes.append(number)
            cluster.stop("immediate")
            cluster.start()
            cluster.sql("CREATE TABLE taken (number INT)", *["INSERT INTO taken VALUES (1)"] * 20, "DROP TABLE taken")
        return made(number, found)

    monkeypatch.setattr(postgres, "_Sent", crash)
    store.commit([], [], [], [spooled(1)])
    assert crashes
    assert [each.message for each in store.waiting(lane, 0, 10, 10**6)] == ["id1"]


def test_a_change_waits_for_a_server_that_only_reads(make: Make, cluster: Cluster) -> None:
    """As a standby does until it is promoted."""
    store = make()
    lane = store.lane("out")
    name = "default_transaction_read_only"
    cluster.sql(f"ALTER SYSTEM SET {name} = on", "SELECT pg_reload_conf()")
    waiting = threading.Thread(target=store.commit, args=([], [], [], [spooled(1)]))
    try:
        time.sleep(0.3)
        waiting.start()
        waiting.join(0.5)
        assert waiting.is_alive()
    finally:
        cluster.sql(f"SET {name} = off", f"ALTER SYSTEM RESET {name}", "SELECT pg_reload_conf()")
    waiting.join(20)
    assert [each.message for each in store.waiting(lane, 0, 10, 10**6)] == ["id1"]


def test_a_process_leaves_no_number_of_its_changes_behind(make: Make) -> None:
    one, other = make(), make()
    one.lane("out")
    other.lane("out")
    for number in range(3):
        one.commit([], [], [], [spooled(number)])
        other.commit([], [], [], [spooled(number)])
    counted = "SELECT count(*) FROM commits"
    assert other.database.rows(counted) == [(2,)]
    one.close()
    assert other.database.rows(counted) == [(1,)]


def test_what_was_deleted_before_there_was_a_log_is_in_it(make: Make, section: SharedStore) -> None:
    later = POSTGRES[1:]
    del POSTGRES[1:]
    try:
        # The store itself would read columns that came later.
        with closing(opened(section)) as database:
            database.change(lambda execute: execute("INSERT INTO removed VALUES (7, 'acme', 'big', 5)"))
    finally:
        POSTGRES.extend(later)
    table = Table(make())
    assert table.since(6, 9) == ({("acme", "big"): (7, None)}, 9)
    table.close()


def test_a_process_that_stood_still_while_it_connected_tries_once_more(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time is over then, though the server answered."""
    over = [errors.ConnectionTimeout("connection timeout expired")]
    real = postgres.connect

    def connect(dsn: SecretValue, *, replication: bool) -> psycopg.Connection[Any]:
        if over:
            raise over.pop()
        return real(dsn, replication=replication)

    monkeypatch.setattr(postgres, "connect", connect)
    lane = make().lane("out")
    assert lane.first >= 0
    over += [errors.ConnectionTimeout("connection timeout expired")] * 2
    with pytest.raises(ServiceError, match=r"the store cannot be used: connection timeout expired$"):
        make()


def test_a_process_that_stood_still_amid_its_upgrade_begins_again(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "IDLE", 1)
    stood: list[float] = []
    real = psycopg.Connection.execute

    def execute(self: psycopg.Connection[Any], query: Any, *values: Any, **options: Any) -> Any:
        if query == "SELECT version FROM streamer" and not stood:
            stood.append(time.monotonic())
            time.sleep(1.5)
        return real(self, query, *values, **options)

    monkeypatch.setattr(psycopg.Connection, "execute", execute)
    make().lane("out")
    assert stood


def test_a_store_that_cannot_be_opened_is_one_clear_error(
    section: SharedStore, make: Make, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make()
    store.database.change(lambda execute: execute("UPDATE streamer SET version = 99"))
    with pytest.raises(
        ServiceError, match=f"written by a later version of Streamer: schema 99, but this one supports {len(POSTGRES)}"
    ):
        make()
    monkeypatch.setenv("STORE", cluster.dsn(user="nobody"))
    with pytest.raises(ServiceError, match="the store cannot be used: ") as told:
        make()
    assert "secret-word" not in str(told.value)
    monkeypatch.setenv("STORE", "what is this")
    with pytest.raises(ServiceError, match="dsn: expected a connection string of PostgreSQL"):
        make()


def test_a_lane_that_is_read_anew_is_never_unknown(make: Make) -> None:
    """What is for a sink that is unknown is left out: not while another process begins to deliver."""
    store = make()
    store.lane("out")
    is_over = threading.Event()

    def read_anew() -> None:
        while not is_over.is_set():
            store.lane("out", reread=True)

    reading = threading.Thread(target=read_anew)
    reading.start()
    taken = [store.commit([], [], [], [spooled(number)]) for number in range(200)]
    is_over.set()
    reading.join()
    assert all(taken)


def test_a_store_whose_tables_are_dropped_or_made_anew_takes_no_more_changes(
    make: Make, section: SharedStore, cluster: Cluster
) -> None:
    """Made anew they may be of a backup, or of a process that began after it."""
    store = make()
    store.begin("s", "p", "1")
    assert store.gone() is None
    cluster.sql(f'DROP SCHEMA "{section.namespace}" CASCADE')
    assert "were dropped while this process uses them" in (store.gone() or "")
    with pytest.raises(ServiceError, match="the store cannot be used"):
        store.commit([Confirmed("s", "p", "2", store.generation("s", "p"))])
    other = make()
    other.begin("s", "p", "1")
    assert "were replaced by others" in (store.gone() or "")
    with pytest.raises(ServiceError, match="were replaced by others while this process uses them"):
        store.begin("s", "p", "2")
    assert other.positions("s") == {"p": "1"}
    assert other.gone() is None


def test_the_room_for_dead_letters_is_that_of_all_processes(section: SharedStore, make: Make) -> None:
    one, other = make(), make()
    one.dead_letter_bytes = other.dead_letter_bytes = 1000
    letters = [dead_letter("s", "p", str(number), -1, "bad_value", "no", b"x" * 398) for number in range(4)]
    one.commit([], letters[:1])
    other.commit([], letters[1:2])
    for store in (one, other):
        assert not store.has_room(400)
        with pytest.raises(ServiceError, match="more than the 1,000 bytes"):
            store.commit([], letters[2:3])
    assert one.dead_letters() == 2
    assert one.drop([1]) == 1
    other.commit([], letters[2:3])
    with pytest.raises(ServiceError, match="more than the 1,000 bytes"):
        one.commit([], letters[3:])
