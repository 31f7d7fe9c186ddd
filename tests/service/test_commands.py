"""`streamer serve` and `streamer dead-letters` as people run them: signals, pipes, reloads, what they print."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run, place, run, warm  # noqa: F401  # fixtures
from tests.service.conftest import SUBSCRIPTIONS, event, lines

# What they test is the same on each core; on the reference it runs with what takes long.
pytestmark = pytest.mark.later_on_the_reference

COMMAND = (sys.executable, "-m", "streamer")
CONFIG = """\
subscriptions: subs.jsonl
sources: {orders: {type: file, path: in.jsonl, poll: 10ms}}
sinks: {out: {type: file, path: out.jsonl}}
service: {data_dir: data}
"""

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(place: Path) -> Iterator[Start]:  # noqa: F811
    """Start a command in *place*; what is left of it is killed."""
    started: list[subprocess.Popen[bytes]] = []
    (place / "subs.jsonl").write_bytes(SUBSCRIPTIONS)
    (place / "in.jsonl").write_bytes(event(1) + b"\n")
    (place / "streamer.yaml").write_text(CONFIG)

    def start(*arguments: str, **more: Any) -> subprocess.Popen[bytes]:
        log = open(place / "log", "ab")  # noqa: SIM115 - the process has it
        started.append(subprocess.Popen((*COMMAND, *arguments), cwd=place, stderr=log, **more))
        log.close()
        return started[-1]

    yield start
    for each in started:
        each.kill()
        each.wait()
        for stream in (each.stdin, each.stdout):
            if stream is not None:
                stream.close()


def until(told: Callable[[], Any]) -> Any:
    """Wait until something is so."""
    deadline = time.monotonic() + 60
    while not (found := told()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


def written(place: Path) -> list[str]:  # noqa: F811
    path = place / "out.jsonl"
    return [each["partitionkey"] for each in lines(path)] if path.exists() and path.read_bytes().endswith(b"\n") else []


def holds_something(pipe: int) -> bool:
    """Tell whether somebody has written into a pipe."""
    return select.select([pipe], [], [], 0)[0] != []


def log(place: Path) -> str:  # noqa: F811
    return (place / "log").read_text()


def test_without_a_configuration_it_reads_standard_input_and_writes_standard_output(start: Start, place: Path) -> None:  # noqa: F811
    running = start("serve", "-s", "subs.jsonl", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert running.stdin is not None
    assert running.stdout is not None
    running.stdin.write(event(1) + b"\n")
    running.stdin.flush()
    # It comes before the input ends.
    assert json.loads(running.stdout.readline())["subject"] == "big"
    running.stdin.write(event(2))
    running.stdin.close()
    assert json.loads(running.stdout.readline())["partitionkey"] == "2"
    assert running.wait(60) == 0
    assert log(place).count("standard input cannot be read again") == 1
    assert (place / "streamer-data" / "store.db").exists()
    assert "ended: 2 events read, 0 rejected, 2 matches, 2 delivered, 0 dropped" in log(place)


def test_two_runs_on_standard_input_never_use_one_id(run: Run, place: Path) -> None:  # noqa: F811
    (place / "subs.jsonl").write_bytes(SUBSCRIPTIONS)
    ids = {json.loads(run("serve", "-s", "subs.jsonl", stdin=event(number)).stdout)["id"] for number in range(2)}
    assert len(ids) == 2


def test_a_reader_that_goes_away_ends_it_cleanly(start: Start, place: Path) -> None:  # noqa: F811
    running = start("serve", "-s", "subs.jsonl", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert running.stdin is not None
    assert running.stdout is not None
    running.stdin.write(event(1) + b"\n")
    running.stdin.flush()
    running.stdout.readline()
    running.stdout.close()
    running.stdin.write(event(2) + b"\n")
    running.stdin.flush()
    assert running.wait(60) == 0
    assert "standard output: its reader went away" in log(place)
    assert "Traceback" not in log(place)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("data/store.db", "the store is in this file"),
        ("data/store.db-wal", "the store is in this file"),
        ("data/lock", "the store is in this file"),
        ("tokens.json", "this is api.tokens.file"),
        ("cert.pem", "this is api.tls.certificate"),
        ("watched/more.jsonl", "service.watch reads this file"),
        ("other.yaml", "this is the configuration"),
        ("subs.jsonl", "subscriptions are read from this file"),
        ("watched/matches.log", ""),
        ("data/matches.jsonl", ""),
    ],
)
def test_no_sink_writes_into_a_file_of_the_service(run: Run, place: Path, path: str, reason: str) -> None:  # noqa: F811
    for folder in ("data", "watched"):
        (place / folder).mkdir(exist_ok=True)
    for file in ("tokens.json", "cert.pem"):
        (place / file).touch()
    api = "" if reason == "" else "api: {tokens: {file: tokens.json}, tls: {certificate: cert.pem}}\n"
    (place / "other.yaml").write_text(
        "subscriptions: subs.jsonl\nsources: {a: {type: file, path: in.jsonl}}\n"
        f"sinks: {{out: {{type: file, path: {path}}}}}\nservice: {{data_dir: data, watch: watched}}\n{api}"
    )
    ended = run("serve", "-c", "other.yaml", "--check")
    assert ended.returncode == (2 if reason else 0), ended.stderr
    if reason:
        assert f"sinks.out.path: {reason}" in ended.stderr.decode()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_once_what_was_read_is_delivered(start: Start, place: Path, number: signal.Signals) -> None:  # noqa: F811
    running = start("serve", "-c", "streamer.yaml")
    until(lambda: written(place) == ["1"])
    with open(place / "in.jsonl", "ab") as file:
        file.write(event(2) + b"\n")
    until(lambda: written(place) == ["1", "2"])
    running.send_signal(number)
    assert running.wait(60) == 0
    assert f"{number.name}: reading has ended" in log(place)
    assert start("serve", "-c", "streamer.yaml").poll() is None
    until(lambda: log(place).count("started: ") == 2)
    assert written(place) == ["1", "2"]


def test_a_second_signal_ends_it_at_once(start: Start, place: Path) -> None:  # noqa: F811
    reading, writing = os.pipe()
    running = start("serve", "-s", "subs.jsonl", stdin=subprocess.PIPE, stdout=writing)
    os.close(writing)
    assert running.stdin is not None
    # More than a pipe holds, and nobody reads it: it cannot be delivered.
    running.stdin.write(b"".join(event(number, pad="x" * 1000) + b"\n" for number in range(200)))
    running.stdin.flush()
    until(lambda: holds_something(reading))
    running.send_signal(signal.SIGTERM)
    until(lambda: "reading has ended" in log(place))
    assert running.poll() is None
    running.send_signal(signal.SIGTERM)
    assert running.wait(60) == 128 + signal.SIGTERM
    os.close(reading)


#: Sends the service signals while it closes what it had open, and once more when the interpreter ends.
ASKED_LATE = """
import atexit, os, signal
from streamer.cli.main import main
from streamer.service.store.store import Store

def ask() -> None:
    for number in (signal.SIGHUP, signal.SIGTERM):
        os.kill(os.getpid(), number)

def close(store, close=Store.close) -> None:
    close(store)
    ask()

Store.close = close
atexit.register(ask)
main()
"""


def test_signals_that_come_while_it_ends_make_no_other_end_of_it(place: Path) -> None:  # noqa: F811
    (place / "subs.jsonl").write_bytes(SUBSCRIPTIONS)
    command = [sys.executable, "-c", ASKED_LATE, "serve", "-s", "subs.jsonl"]
    ran = subprocess.run(command, cwd=place, input=event(1), capture_output=True, check=False, timeout=60)
    assert (ran.returncode, len(ran.stdout.splitlines())) == (0, 1), ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize("fails", [False, True])
def test_a_sink_that_takes_nothing_is_waited_for_10_s_and_the_next_run_delivers(
    start: Start,
    place: Path,  # noqa: F811
    fails: bool,
) -> None:
    reading, writing = os.pipe()
    (place / "in.jsonl").write_bytes(b"".join(event(number, pad="x" * 1000) + b"\n" for number in range(200)))
    (place / "streamer.yaml").write_text(CONFIG.replace("{type: file, path: out.jsonl}", "{type: stdout}"))
    running = start("serve", "-c", "streamer.yaml", stdout=writing)
    os.close(writing)
    until(lambda: holds_something(reading))
    began = time.monotonic()
    if fails:
        # What is no file any more cannot be read on.
        (place / "in.jsonl").unlink()
        (place / "in.jsonl").mkdir()
    else:
        running.send_signal(signal.SIGTERM)
    assert running.wait(60) == (4 if fails else 0)
    assert 8 < time.monotonic() - began
    assert ("in.jsonl: no file" if fails else "some messages were not delivered in 10 s; the next run delivers them") in log(
        place
    )
    os.close(reading)
    if not fails:
        again = start("serve", "-c", "streamer.yaml", stdout=subprocess.PIPE)
        assert again.stdout is not None
        assert [json.loads(again.stdout.readline())["partitionkey"] for _ in range(200)] == [str(each) for each in range(200)]


def test_a_reload_takes_subscriptions_and_what_may_change_or_nothing(start: Start, place: Path) -> None:  # noqa: F811
    running = start("serve", "-c", "streamer.yaml")
    until(lambda: written(place) == ["1"])

    def reload(number: int) -> str:
        running.send_signal(signal.SIGHUP)
        return str(until(lambda: re.findall("(?:INFO|ERROR) .*reload: .*", log(place))[number:])[0])

    (place / "subs.jsonl").write_bytes(b'{"id": "small", "filters": [{"field": "amount", "op": "<", "value": 9}]}\n')
    assert "3 subscriptions changed; the configuration is unchanged" in reload(0)
    with open(place / "in.jsonl", "ab") as file:
        file.write(event(2) + b"\n" + event(3, 5) + b"\n")
    until(lambda: written(place) == ["1", "3"])
    (place / "subs.jsonl").write_bytes(b'{"id": "all"}\n{"id": "bad", "cel": "1 +"}\n')
    assert "subs.jsonl:2: subscription 'bad': cel: " in reload(1)
    until(lambda: "reload: refused, without any change" in log(place))
    (place / "subs.jsonl").write_bytes(b'{"id": "all"}\n')
    (place / "streamer.yaml").write_text(CONFIG.replace("data}", "elsewhere}").replace("out.jsonl", "elsewhere.jsonl"))
    assert "streamer.yaml:4:21: service.data_dir: cannot change while the service runs; start it again" in reload(3)
    with open(place / "in.jsonl", "ab") as file:
        file.write(event(4) + b"\n" + event(5, 5) + b"\n")
    until(lambda: written(place) == ["1", "3", "5"])
    (place / "streamer.yaml").write_text(CONFIG + "matching: {cel: {cache_size: 5}}\nlogging: {level: info}\n")
    assert "2 subscriptions changed; matching.cel.cache_size, logging.level" in reload(5)
    running.send_signal(signal.SIGTERM)
    assert running.wait(60) == 0


def test_checking_changes_nothing_and_says_what_is_wrong(run: Run, start: Start, place: Path) -> None:  # noqa: F811
    ran = run("serve", "-c", "streamer.yaml", "--check")
    assert (ran.returncode, ran.stderr) == (0, b"good: 2 subscriptions\n")
    assert not (place / "data").exists()
    assert not (place / "out.jsonl").exists()
    for wrong, reason in (
        (CONFIG.replace("in.jsonl", "no/such"), "streamer.yaml:2:19: sources.orders: "),
        (CONFIG.replace("out.jsonl", "no/such"), "streamer.yaml:3:14: sinks.out: "),
        (CONFIG.replace("subs.jsonl", "nosuch"), "streamer.yaml:1:16: subscriptions[0]: nosuch: No such file or directory"),
        (CONFIG.replace("type: file, path: in", "type: nats, path: in"), "or 'kafka', not 'nats'"),
    ):
        (place / "streamer.yaml").write_text(wrong)
        ran = run("serve", "-c", "streamer.yaml", "--check")
        assert ran.returncode == 2
        assert reason in ran.stderr.decode()
    assert run("serve", "-s", "-", stdin=b"").returncode == 2


def test_one_process_uses_a_store(run: Run, start: Start, place: Path) -> None:  # noqa: F811
    running = start("serve", "-c", "streamer.yaml")
    until(lambda: written(place) == ["1"])
    ran = run("serve", "-c", "streamer.yaml")
    assert ran.returncode == 4
    assert f"process {running.pid} uses this store" in ran.stderr.decode()
    # A check beside it tells that, and that its sink is written, and finds nothing wrong.
    before = contents(place / "data")
    ran = run("serve", "-c", "streamer.yaml", "--check")
    told = ran.stderr.decode()
    assert ran.returncode == 0, told
    assert f"note: streamer.yaml:4:21: service.data_dir: {place}/data: process {running.pid} uses this store now\n" in told
    assert "note: streamer.yaml:3:14: sinks.out: " in told
    assert contents(place / "data") == before


def contents(directory: Path) -> dict[str, bytes]:
    """Return the files of a store; what processes share while they read it is no content."""
    return {each.name: each.read_bytes() for each in directory.iterdir() if not each.name.endswith("-shm")}


def test_a_check_finds_all_faults_each_with_its_place_and_makes_nothing(run: Run, start: Start, place: Path) -> None:  # noqa: F811
    (place / "file").touch()
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        ports = [each.getsockname()[1] for each in (one, two)]
        (place / "streamer.yaml").write_text(
            "subscriptions: nosuch.jsonl\n"
            "sources: {a: {type: file, path: no/such}, k: {type: kafka, brokers: '127.0.0.1:1', topics: t}}\n"
            "sinks: {b: {type: file, path: no/out}, w: {type: webhook, url: 'https://example.com', secret: {env: NOSUCH}}}\n"
            "routes: [{gateway: '*', sink: b}]\n"
            "service: {data_dir: file/data}\n"
            "delivery: {gateways: {ca: ca.pem}}\n"
            f"api: {{port: {ports[0]}, tokens: {{file: t.json}}, tls: {{certificate: c.pem, key: k.pem}}}}\n"
            f"metrics: {{enabled: true, port: {ports[1]}}}\n"
        )
        before = sorted(place.iterdir())
        ran = run("serve", "-c", "streamer.yaml", "--check")
    faults = [line.split(": ")[1] for line in ran.stderr.decode().splitlines()]
    assert faults == [
        "subscriptions[0]",
        "service.data_dir",
        *("sources.a", "sources.k", "sinks.b", "sinks.w"),
        "delivery.gateways.ca",
        *("api.tokens.file", "api.tls.certificate", "api.tls.key", "api.port"),
        "metrics.port",
    ], ran.stderr
    assert all(line.startswith("streamer.yaml:") for line in ran.stderr.decode().splitlines())
    assert ran.returncode == 2
    assert sorted(place.iterdir()) == before


@pytest.mark.parametrize(
    ("told", "code"),
    [
        ("sources: {a: {type: nats}}", 2),
        ("sources: {a: {type: file, path: no/such}}", 2),
        ("service: {data_dir: file}", 2),
        ("sources: {k: {type: kafka, brokers: '127.0.0.1:1', topics: t}}", 4),
        ("store: {dsn: {env: AWAY}}", 4),
        ("api: {port: PORT, tokens: {file: t.json}}", 4),
        ("metrics: {enabled: true, port: PORT}", 4),
        ("service: {data_dir: damaged}", 3),
    ],
)
def test_each_kind_of_fault_has_its_exit_code(
    run: Run,  # noqa: F811
    start: Start,
    place: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    told: str,
    code: int,
) -> None:
    """Of a check, and of the start where that does not wait."""
    monkeypatch.setenv("AWAY", "host=127.0.0.1 port=1 user=u dbname=d connect_timeout=2")
    (place / "file").touch()
    (place / "t.json").write_text('{"tokens": []}')
    (place / "damaged").mkdir()
    (place / "damaged" / "store.db").write_text("no database" * 1000)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        whole = f"{told.replace('PORT', str(taken.getsockname()[1]))}\n"
        if "sources" not in told:
            whole += "sources: {orders: {type: file, path: in.jsonl, follow: false}}\n"
        (place / "streamer.yaml").write_text(
            f"subscriptions: subs.jsonl\nsinks: {{out: {{type: file, path: out.jsonl}}}}\n{whole}"
        )
        ran = run("serve", "-c", "streamer.yaml", "--check")
        assert ran.returncode == code, ran.stderr
        if "kafka" not in told:
            ran = run("serve", "-c", "streamer.yaml")
            assert ran.returncode == code, ran.stderr


def test_a_service_that_crashes_ends_with_the_code_of_what_may_pass(start: Start, place: Path) -> None:  # noqa: F811
    code = (
        "import sys; from streamer.service.delivery.matching import Matcher; from streamer.cli.main import main\n"
        "def broken(*_): raise ZeroDivisionError('a defect')\n"
        "Matcher.parts = broken; sys.argv = ['streamer', 'serve', '-c', 'streamer.yaml']; main()"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=place, capture_output=True, check=False, timeout=60)
    assert ran.returncode == 4, ran.stderr
    assert b"ZeroDivisionError: a defect" in ran.stderr


def test_dead_letters_are_listed_beside_the_service_and_replayed_and_dropped_without_it(
    run: Run,  # noqa: F811
    start: Start,
    place: Path,  # noqa: F811
) -> None:
    with open(place / "in.jsonl", "ab") as file:
        file.write(event(2, pad="x" * 2000) + b'\n{"a\x1b\xc2\x9b": \n\xff\n')
    limited = CONFIG + "matching: {limits: {max_event_bytes: 1000}}\n"
    (place / "streamer.yaml").write_text(limited)
    running = start("serve", "-c", "streamer.yaml")
    until(lambda: written(place) == ["1"])

    def listing() -> list[str]:
        return run("dead-letters", "list", "-c", "streamer.yaml").stdout.decode().splitlines()

    # A match is in the file before the commit that keeps the dead letters beside it.
    until(lambda: len(listing()) > 1)
    listed = listing()
    assert [line.split()[0] for line in listed] == ["ID", "1", "2", "3"]
    assert [line.split()[4] for line in listed[1:]] == ["too_long", "malformed_json", "bad_utf8"]
    for command in (("drop", "--all"), ("replay", "--all")):
        refused = run("dead-letters", *command, "-c", "streamer.yaml")
        assert refused.returncode == 4
        assert b"uses this store" in refused.stderr
    running.send_signal(signal.SIGTERM)
    assert running.wait(60) == 0
    assert run("dead-letters", "drop", str(2**63), "--data-dir", "data").returncode == 2
    shown = run("dead-letters", "show", "2", "--data-dir", "data").stdout.decode()
    assert 'record: {"a\\x1b\\x9b": ' in shown
    told = json.loads(run("dead-letters", "show", "3", "--data-dir", "data", "-o", "json").stdout)
    assert (told["code"], told["record_base64"]) == ("bad_utf8", "/w==")
    (place / "streamer.yaml").write_text(CONFIG)
    replayed = run("dead-letters", "replay", "1", "2", "-c", "streamer.yaml")
    assert replayed.returncode == 1
    assert b"1 dead letter replayed, 1 could not be read again" in replayed.stderr
    assert written(place) == ["1", "2"]
    assert b"1 dead letter dropped" in run("dead-letters", "drop", "3", "--data-dir", "data").stderr
    left = [json.loads(line) for line in run("dead-letters", "list", "--data-dir", "data", "-o", "json").stdout.splitlines()]
    assert [(each["id"], each["attempts"]) for each in left] == [(2, 2)]
    assert run("dead-letters", "show", "9", "--data-dir", "data").returncode == 1
    for command in ("replay", "drop"):
        ran = run("dead-letters", command, "9", "8", "-c", "streamer.yaml")
        assert ran.returncode == 1
        assert b"dead letter 8, 9 does not exist" in ran.stderr
    assert run("dead-letters", "drop", "--data-dir", "data").returncode == 2
    assert run("dead-letters", "list", "--data-dir", "nosuch").stderr == b"streamer: nosuch: no store\n"


def test_messages_of_a_sink_that_is_none_any_more_are_listed_and_forgotten(run: Run, start: Start, place: Path) -> None:  # noqa: F811
    """They are listed beside the service, too."""
    hook = "{type: webhook, url: 'http://127.0.0.1:9/', allow_http: true, ports: [9], networks: [127.0.0.0/8]}"
    (place / "streamer.yaml").write_text(CONFIG.replace("{type: file, path: out.jsonl}", hook))
    running = start("serve", "-c", "streamer.yaml")
    listed = until(lambda: run("spool", "list", "--data-dir", "data", "-o", "json").stdout)
    told = json.loads(listed)
    assert (told["sink"], told["messages"]) == ("out", 1)
    running.send_signal(signal.SIGTERM)
    assert running.wait(60) == 0
    refused = run("spool", "forget", "out", "-c", "streamer.yaml")
    assert (refused.returncode, b"sinks.out: the configuration has this sink" in refused.stderr) == (2, True)
    (place / "streamer.yaml").write_text(CONFIG)
    assert b"sinks.out: 1 message forgotten" in run("spool", "forget", "out", "-c", "streamer.yaml").stderr
    assert run("spool", "forget", "out", "-c", "streamer.yaml").returncode == 1
    assert run("spool", "list", "-c", "streamer.yaml").stdout.decode().splitlines()[1:] == []


def test_a_source_that_is_renamed_goes_on_where_it_was(run: Run, start: Start, place: Path) -> None:  # noqa: F811
    """The log of the service has the command, which shows what it does."""
    (place / "streamer.yaml").write_text(CONFIG.replace("poll: 10ms", "follow: false"))
    assert run("serve", "-c", "streamer.yaml").returncode == 0
    (place / "streamer.yaml").write_text(CONFIG.replace("orders: {", "shop: {"))
    running = start("serve", "-c", "streamer.yaml")
    command = "streamer positions move orders shop --dry-run"
    until(lambda: b"started: " in (place / "log").read_bytes())
    assert command in (place / "log").read_text()
    running.send_signal(signal.SIGTERM)
    assert running.wait(60) == 0
    (old, new) = map(json.loads, run("positions", "list", "--data-dir", "data", "-o", "json").stdout.splitlines())
    assert (old["source"], new["source"]) == ("orders", "shop")
    shown = run("positions", "move", "orders", "shop", "--dry-run", "-c", "streamer.yaml")
    assert shown.returncode == 0
    assert shown.stdout.decode().splitlines() == [
        f"shop: {old['partition']}: {old['position']}",
        f"shop: {new['partition']}: stays at {new['position']}",
    ]
    assert shown.stderr == b"1 partition of orders would become shop's\n"
    # Back under its name: what was read as `shop` is not read again.
    (place / "streamer.yaml").write_text(CONFIG.replace("poll: 10ms", "follow: false"))
    with open(place / "in.jsonl", "ab") as file:
        file.write(event(2) + b"\n")
    done = run("positions", "move", "shop", "orders", "-c", "streamer.yaml")
    assert done.stderr == b"1 partition of shop became orders's\n"
    (place / "out.jsonl").unlink()
    assert run("serve", "-c", "streamer.yaml").returncode == 0
    assert [each["partitionkey"] for each in lines(place / "out.jsonl")] == ["2"]
    for arguments, code, reason in (
        (("shop", "orders"), 1, b"0 partitions of shop"),
        (("orders", "shop"), 2, b"sources.orders: the configuration has this source"),
        (("shop", "nosuch"), 2, b"sources.nosuch: the configuration has no such source; it has orders"),
        (("shop", "shop"), 2, b"shop: expected two names"),
    ):
        ran = run("positions", "move", *arguments, "-c", "streamer.yaml")
        assert (ran.returncode, reason in ran.stderr) == (code, True), ran.stderr


def test_its_metrics_stand_beside_the_engines(start: Start, place: Path) -> None:  # noqa: F811
    (place / "streamer.yaml").write_text(CONFIG + "metrics: {enabled: true, port: 0}\n")
    start("serve", "-c", "streamer.yaml")
    until(lambda: written(place) == ["1"])
    (url,) = re.findall("metrics: (http.*)", log(place))

    def scraped() -> str:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return str(answer.read(), "utf-8")

    # A match is counted once its position is confirmed, a little after it was written.
    until(lambda: 'streamer_service_matches_delivered_total{sink="out"} 1.0' in scraped())
    text = scraped()
    for sample in (
        'streamer_service_events_read_total{source="orders"} 1.0',
        'streamer_service_matches_delivered_total{sink="out"} 1.0',
        "streamer_service_matches_pending 0.0",
        "streamer_service_dead_letters 0.0",
        'streamer_events_total{engine="1"} 1.0',
    ):
        assert sample in text


def test_no_row_stands_in_the_log(start: Start, place: Path) -> None:  # noqa: F811
    with open(place / "in.jsonl", "ab") as file:
        file.write(b'{"collection": "orders", "type": "a secret of a row"}\n' + event(2) + b"\n")
    (place / "streamer.yaml").write_text(CONFIG + "logging: {level: debug}\n")
    running = start("serve", "-c", "streamer.yaml")
    until(lambda: written(place) == ["1", "2"])
    running.send_signal(signal.SIGTERM)
    running.wait(60)
    assert "a secret" not in log(place)
    assert "1 rejected" in log(place)
