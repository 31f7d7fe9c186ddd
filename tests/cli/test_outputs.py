"""What commands print for programs: JSON on a line each, and annotations of GitHub, with file and line."""

from __future__ import annotations

import gzip
import json
import os
import pty
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import COMMAND, Run

# What they test is the same on each core; on the reference it runs with what takes long.
pytestmark = pytest.mark.later_on_the_reference

BAD = """\
{"id": "good"}

{"id": "op", "filters": [{"field": "a", "op": "=~", "value": 1}]}
{"id": "good", "cel": "true"}
"""


def lines(output: bytes) -> list[Any]:
    return [json.loads(line) for line in output.splitlines()]


def test_match_explain_plan_and_stats_print_json(run: Run) -> None:
    given = ("-s", "subs.jsonl", "--output", "json")
    assert run("match", *given, "events.jsonl").stdout == run("match", "-s", "subs.jsonl", "events.jsonl").stdout
    (told,) = lines(run("explain", *given, "--id", "big", "--line", "3", "events.jsonl").stdout)
    assert (told["subscription_id"], told["matched"], told["conditions"][2]["verdict"]) == ("big", False, "false")
    assert [each["subscription_id"] for each in lines(run("plan", *given).stdout)] == ["big", "paid"]
    (told,) = lines(run("plan", *given, "--id", "paid").stdout)
    assert told["normal_form"]
    (told,) = lines(run("stats", *given, "events.jsonl").stdout)
    assert told["events"] == 3


def test_check_tells_programs_and_github_where(run: Run, place: Path) -> None:
    (place / "bad.jsonl").write_text(BAD)
    ran = run("check", "-s", "bad.jsonl", "--output", "json")
    assert (ran.returncode, ran.stderr) == (1, b"2 bad subscriptions\n")
    first, second = lines(ran.stdout)
    assert (first["file"], first["line"], first["subscription_id"], first["place"]) == ("bad.jsonl", 3, "op", "filters[0].op")
    assert first["reason"].startswith("unknown operator '=~'")
    assert (second["line"], second["reason"]) == (4, "this id appears twice in the file")
    annotations = run("check", "-s", "bad.jsonl", "-o", "github").stdout.decode().splitlines()
    assert annotations[0].startswith("::error file=bad.jsonl,line=3::subscription 'op': filters[0].op: unknown operator")
    (place / "cut.gz").write_bytes(gzip.compress(BAD.encode())[:-9])
    (told,) = lines(run("check", "-s", "cut.gz", "-o", "json").stdout)
    assert (told["file"], told["subscription_id"], told["reason"]) == ("cut.gz", None, "the gzip data is cut off")
    assert isinstance(told["line"], int)


def test_lint_tells_programs_and_github_where(run: Run, place: Path) -> None:
    never = {"id": "never", "filters": [{"field": "a", "op": "in", "value": []}]}
    (place / "more.jsonl").write_text("\n\n" + json.dumps(never))
    ran = run("lint", "-s", "subs.jsonl", "-s", "more.jsonl", "--output", "json")
    assert ran.returncode == 1
    (told,) = lines(ran.stdout)
    assert (told["file"], told["line"], told["subscription_id"], told["code"]) == ("more.jsonl", 3, "never", "never_matches")
    ran = run("lint", "-s", "-", "-o", "github", stdin=json.dumps(never).encode())
    assert ran.stdout.startswith(b"::warning file=<stdin>,title=never_matches::never: never_matches: ")


def test_explain_has_colour_on_a_terminal_unless_nobody_wants_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def shown() -> bytes:
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            (*COMMAND, "explain", "-s", "subs.jsonl", "--id", "big", "--line", "1", "events.jsonl"), cwd=place, stdout=theirs
        ) as process:
            os.close(theirs)
            output = b""
            try:
                while chunk := os.read(ours, 4096):
                    output += chunk
            except OSError:
                pass
            os.close(ours)
        assert process.returncode == 0
        return output

    monkeypatch.setenv("TERM", "xterm")
    assert b"\x1b[" not in shown()
    monkeypatch.delenv("NO_COLOR")
    assert b"\x1b[32m" in shown()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("streamer ", {"test", "why", "explain"}),
        ("streamer match --for", {"--format"}),
        ("streamer lint --output ", {"github"}),
        ("streamer match --format d", {"debezium", "dms", "document"}),
    ],
)
def test_the_shell_completes_commands_options_and_values(place: Path, words: str, offered: set[str]) -> None:
    asked = {"_STREAMER_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
    ran = subprocess.run(COMMAND, cwd=place, env={**os.environ, **asked}, capture_output=True, timeout=60, check=False)
    assert offered <= {line.split(",")[-1] for line in ran.stdout.decode().split()}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_printed(place: Path, shell: str) -> None:
    environment = {**os.environ, "_STREAMER_COMPLETE": f"{shell}_source"}
    ran = subprocess.run(COMMAND, cwd=place, env=environment, capture_output=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    assert b"_STREAMER_COMPLETE" in ran.stdout
