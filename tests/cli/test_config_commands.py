"""`streamer config` and `--config`: the same file for the command line and for engines."""

from __future__ import annotations

import json
import socket
import subprocess
import urllib.request
from pathlib import Path

import pytest

from streamer.config.show import json_schema
from streamer.events.layout import EventLayout
from streamer.events.schema import event_schema
from streamer.subscriptions.schema import subscription_schema
from tests.cli.conftest import COMMAND, EVENTS, Run


def test_check_prints_every_error_and_tells_by_its_exit_code(run: Run, place: Path) -> None:
    (place / "good.yaml").write_text("subscriptions: [subs.jsonl]\n")
    ran = run("config", "check", "good.yaml")
    assert (ran.returncode, ran.stdout) == (0, b"")
    assert ran.stderr == b"good.yaml: a good configuration, 2 subscriptions\n"
    (place / "bad.yaml").write_text('matching:\n  validation: fast\n  "\\e[2J": 1\nsubscriptions: 5\n')
    ran = run("config", "check", "bad.yaml")
    assert ran.returncode == 1
    assert [line.split(": ")[0] for line in ran.stdout.decode().splitlines()] == [
        "bad.yaml:2:15",
        "bad.yaml:3:3",
        "bad.yaml:4:16",
    ]
    assert all(line.isprintable() for line in ran.stdout.decode().splitlines())
    assert ran.stderr == b"3 errors\n"


def test_check_reads_the_subscriptions_too(run: Run, place: Path) -> None:
    (place / "more.jsonl").write_text('{"id": "x", "cel": "1 +"}\n')
    (place / "s.yaml").write_text("subscriptions: [subs.jsonl, more.jsonl, nosuch.jsonl]\n")
    ran = run("config", "check", "s.yaml")
    assert ran.returncode == 1
    first, second = ran.stdout.decode().splitlines()
    assert first.startswith("more.jsonl:1: subscription 'x': cel: ")
    assert second == "s.yaml:1:41: subscriptions[2]: nosuch.jsonl: No such file or directory"


def test_check_tells_programs_and_github_where(run: Run, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "more.jsonl").write_text('\n{"id": "x", "cel": "1 +"}\n')
    (place / "s.yaml").write_text("subscriptions: [subs.jsonl, more.jsonl, nosuch.jsonl]\n")
    first, second = map(json.loads, run("config", "check", "s.yaml", "--output", "json").stdout.splitlines())
    assert (first["source"], first["line"], first["column"]) == ("more.jsonl", 2, None)
    assert first["reason"].startswith("subscription 'x': cel: ")
    assert second == {
        "source": "s.yaml",
        "line": 1,
        "column": 41,
        "place": "subscriptions[2]",
        "reason": "nosuch.jsonl: No such file or directory",
    }
    ran = run("config", "check", "s.yaml", "--output", "github")
    assert (ran.returncode, ran.stderr) == (1, b"2 errors\n")
    first, second = ran.stdout.decode().splitlines()
    assert first.startswith("::error file=more.jsonl,line=2::subscription 'x': cel: ")
    assert second == "::error file=s.yaml,line=1,col=41::subscriptions[2]: nosuch.jsonl: No such file or directory"
    (place / "s.yaml").write_text("")
    monkeypatch.setenv("STREAMER_MATCHING__VALIDATION", "fast")
    annotation = run("config", "check", "s.yaml", "--output", "github").stdout.decode()
    assert annotation.startswith("::error file=s.yaml::STREAMER_MATCHING__VALIDATION: matching.validation: expected")
    assert json.loads(run("config", "check", "s.yaml", "--output", "json").stdout)["source"] == "STREAMER_MATCHING__VALIDATION"


def test_a_slip_in_the_name_of_a_variable_is_told(run: Run, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMER_CACHE_SIZE", "5")
    (place / "s.yaml").write_text("")
    told = b"WARNING streamer.config: STREAMER_CACHE_SIZE: unknown variable; did you mean STREAMER_MATCHING__CEL__CACHE_SIZE?\n"
    ran = run("config", "check", "s.yaml")
    assert (ran.returncode, ran.stderr.partition(b" ")[2]) == (0, told + b"s.yaml: a good configuration, 0 subscriptions\n")
    assert run("config", "show", "s.yaml").stderr.partition(b" ")[2] == told


def test_a_file_that_is_not_there_is_exit_code_2(run: Run) -> None:
    for command in (("config", "check", "nosuch.yaml"), ("config", "show", "nosuch.yaml"), ("match", "-c", "nosuch.yaml")):
        ran = run(*command)
        assert (ran.returncode, ran.stdout) == (2, b"")
        assert ran.stderr == b"streamer: nosuch.yaml: No such file or directory\n"


def test_show_prints_what_is_in_force(run: Run, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMER_MATCHING__CEL__CACHE_SIZE", "7")
    (place / "s.yaml").write_text("matching: {validation: lazy}\n")
    ran = run("config", "show", "s.yaml")
    assert ran.returncode == 0
    lines = ran.stdout.decode().splitlines()
    assert any(line.split() == ["cache_size:", "7", "#", "STREAMER_MATCHING__CEL__CACHE_SIZE"] for line in lines)
    assert any(line.split() == ["validation:", "lazy", "#", "s.yaml:1:24"] for line in lines)
    (place / "s.yaml").write_text("matching: {validation: fast}\n")
    ran = run("config", "show", "s.yaml")
    assert (ran.returncode, ran.stdout) == (2, b"")
    assert ran.stderr.startswith(b"s.yaml:1:24: matching.validation: ")


def test_schema_prints_json_schemas(run: Run, place: Path) -> None:
    assert json.loads(run("schema", "config").stdout) == json.loads(json_schema())
    assert json.loads(run("schema", "subscription").stdout) == subscription_schema()
    assert json.loads(run("schema", "event").stdout) == event_schema()
    of_debezium = json.loads(run("schema", "event", "--format", "debezium").stdout)
    assert of_debezium == event_schema(EventLayout.preset("debezium"))
    (place / "layout.json").write_text('{"data": "/row"}')
    assert "row" in json.loads(run("schema", "event", "--layout", "layout.json").stdout)["properties"]
    assert run("schema", "event", "--format", "nosuch").returncode == 2


def test_an_engine_is_made_as_the_file_says_and_options_win_over_it(run: Run, place: Path) -> None:
    (place / "conf").mkdir()
    (place / "conf/s.jsonl").write_text('{"id": "s", "filters": [{"field": "n", "op": "==", "value": 1}]}\n')
    (place / "conf/streamer.yaml").write_text(
        "matching: {format: document, default_tenant: acme, limits: {max_event_bytes: 100}}\nsubscriptions: [s.jsonl]\n"
    )
    given = ("match", "-c", "conf/streamer.yaml", "-o", "ids", "-q")
    assert run(*given, stdin=b'{"n": 1}').stdout == b"s\n"
    assert run(*given, "--format", "change", stdin=b'{"data": {"n": 1}}').stdout == b"s\n"
    assert run(*given, "--tenant", "other", stdin=b'{"n": 1}').stdout == b""
    (place / "all.jsonl").write_text('{"id": "all"}')
    assert run(*given, "-s", "all.jsonl", stdin=b'{"n": 1}').stdout == b"all\n"
    ran = run(*given, stdin=b'{"n": "' + b"x" * 100 + b'"}')
    assert ran.returncode == 1
    assert ran.stderr.startswith(b"<stdin>:1: too_long at byte 100: ")
    assert b"tenant 'acme'" in run("plan", "-c", "conf/streamer.yaml").stdout
    assert run("check", "-c", "conf/streamer.yaml").stderr == b"1 good subscription\n"
    assert run("lint", "-c", "conf/streamer.yaml").returncode == 0
    assert b"true, saw 1" in run("explain", "-c", "conf/streamer.yaml", "--id", "s", stdin=b'{"n": 1}').stdout


def test_match_serves_the_metrics_that_the_configuration_wants(place: Path) -> None:
    (place / "s.yaml").write_text("subscriptions: [subs.jsonl]\nmetrics: {enabled: true, port: 0, name: cli}\n")
    with subprocess.Popen(
        (*COMMAND, "match", "-c", "s.yaml", "-o", "ids", "--line-buffered"),
        cwd=place,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        said = process.stderr.readline().decode()
        assert said.startswith("metrics: http://127.0.0.1:")
        process.stdin.write(EVENTS)
        process.stdin.flush()
        assert process.stdout.readline() + process.stdout.readline() == b"big\npaid\n"
        with urllib.request.urlopen(said.removeprefix("metrics: ").strip(), timeout=10) as answer:
            served = answer.read()
        assert b'streamer_matches_total{engine="cli"} 2.0' in served
        process.communicate(timeout=20)
    assert process.returncode == 0


def test_where_metrics_cannot_be_served_match_says_so_and_other_commands_serve_none(run: Run, place: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        (place / "s.yaml").write_text(f"subscriptions: [subs.jsonl]\nmetrics: {{enabled: true, port: {port}}}\n")
        ran = run("match", "-c", "s.yaml", "events.jsonl")
        assert (ran.returncode, ran.stdout) == (2, b"")
        assert ran.stderr.startswith(f"streamer: metrics: cannot listen at 127.0.0.1, port {port}: ".encode())
        assert b"STREAMER_METRICS__ENABLED=false" in ran.stderr
        assert run("stats", "-c", "s.yaml", "events.jsonl").returncode == 0
        assert run("check", "-c", "s.yaml").returncode == 0


def test_the_level_of_the_log_is_that_of_the_file(run: Run, place: Path) -> None:
    (place / "s.jsonl").write_text('{"id": "a\\nb", "cel": "data.x + 1 > data.y"}\n')
    for level, says in (("warning", True), ("error", False)):
        (place / "s.yaml").write_text(f"subscriptions: [s.jsonl]\nlogging: {{level: {level}}}\n")
        ran = run("match", "-c", "s.yaml", "-q", stdin=b'{"data": {"x": "s", "y": 1}}')
        assert (b"WARNING streamer.cel_eval: subscription 'a\\nb': CEL error" in ran.stderr) is says


def test_without_subscriptions_it_says_what_is_missing(run: Run, place: Path) -> None:
    (place / "s.yaml").write_text("")
    for arguments in ((), ("-c", "s.yaml")):
        ran = run("match", *arguments)
        assert ran.returncode == 2
        assert b"Missing option '--subscriptions'" in ran.stderr


def test_a_bad_configuration_stops_match_with_every_error(run: Run, place: Path) -> None:
    (place / "s.yaml").write_text("matching: {validation: fast, cel: {cache_size: 0}}\n")
    ran = run("match", "-c", "s.yaml", stdin=b"{}")
    assert (ran.returncode, ran.stdout) == (2, b"")
    assert [line.split(": ")[0] for line in ran.stderr.decode().splitlines()] == ["s.yaml:1:24", "s.yaml:1:48"]
