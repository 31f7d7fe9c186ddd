"""Nobody's data drives the terminal, and what is wrong is named with its file and line."""

from __future__ import annotations

import gzip
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from streamer.terminal import json_text, printable
from tests.cli.conftest import COMMAND, Run

# What they test is the same on each core; on the reference it runs with what takes long.
pytestmark = pytest.mark.later_on_the_reference

#: Clears the screen, begins a C1 sequence, turns the line around, ends the line.
EVIL = "\x1b[2J\x9b31m\u202e\r\nx\u2028\x7f"
ROOT = Path(__file__).resolve().parents[2]


def plain(output: bytes) -> bool:
    """Tell whether output holds nothing but lines of printable text."""
    return all(line.isprintable() for line in output.decode().split("\n"))


def test_what_is_not_printable_is_written_as_python_escapes_it() -> None:
    assert printable("añ…") == "añ…"
    assert printable(EVIL) == "\\x1b[2J\\x9b31m\\u202e\\r\\nx\\u2028\\x7f"
    assert printable("a\nb\x00", keep="\n") == "a\nb\\x00"
    assert printable("\udcff\U000e0001") == "\\udcff\\U000e0001"


@pytest.mark.parametrize("value", [EVIL, {EVIL: [EVIL, None, 1.5]}, "\U000e0001 \U0001f600", ["é", -0.0, 2**64 - 1]])
def test_json_is_printable_and_says_the_same(value: Any) -> None:
    text = json_text(value)
    assert text.isprintable()
    assert json.loads(text) == value


def test_ids_gateways_and_labels_never_reach_the_terminal_as_they_are(run: Run, place: Path) -> None:
    subscription = {"id": EVIL, "gateway_id": EVIL, "labels": {EVIL: EVIL}, "cel": f"data.x != {json.dumps(EVIL)} || true"}
    (place / "subs.jsonl").write_text(json.dumps(subscription))
    for output in ("jsonl", "table", "ids"):
        ran = run("match", "-s", "subs.jsonl", "-o", output, stdin=b'{"data": {"x": 1}}')
        assert ran.returncode == 0
        assert plain(ran.stdout)
        assert plain(ran.stderr)
        if output == "jsonl":
            (shown,) = map(json.loads, ran.stdout.decode().splitlines())
            assert (shown["subscription_id"], shown["gateway_id"], shown["labels"]) == (EVIL, EVIL, {EVIL: EVIL})
        if output == "ids":
            assert json.loads(ran.stdout) == EVIL
    for command in (("plan",), ("lint",), ("explain", "--id", EVIL)):
        ran = run(command[0], "-s", "subs.jsonl", *command[1:], stdin=json.dumps({"data": {"x": EVIL}}).encode())
        assert ran.stdout
        assert plain(ran.stdout)
        assert plain(ran.stderr)


def test_errors_are_one_line_each_whatever_they_quote(run: Run, place: Path) -> None:
    bad: list[Any] = [
        {"id": EVIL, "nosuch" + EVIL: 1},
        {"id": EVIL, "pattern": {EVIL: {EVIL: []}}},
        {"id": EVIL, "filters": [{"field": "a", "op": EVIL, "value": 1}]},
        {"id": EVIL, "cel": f"data.{EVIL}"},
        {"id": EVIL, "types": [EVIL]},
    ]
    (place / "bad.jsonl").write_text("\n".join(map(json.dumps, bad)))
    ran = run("check", "-s", "bad.jsonl")
    assert ran.returncode == 1
    assert plain(ran.stdout)
    assert [line.split(":")[1] for line in ran.stdout.decode().splitlines()] == ["1", "2", "3", "4", "5"]
    ran = run("match", "-s", "bad.jsonl", stdin=b"{}")
    assert ran.returncode == 2
    assert plain(ran.stderr)
    ran = run(
        "match", "-s", "subs.jsonl", "-q", stdin=json.dumps({"type": EVIL, "collection": 5}).encode() + b'\n{"type": "\x1b[2J"}'
    )
    assert ran.returncode == 1
    assert plain(ran.stderr)
    assert len(ran.stderr.splitlines()) == 2


def test_names_of_files_are_printed_without_what_is_in_them(run: Run, place: Path) -> None:
    for name in (f"no{EVIL}such", f"bad{EVIL}name"):
        if name.startswith("bad"):
            (place / name).write_text('{"id": 1}')
        ran = run("check", "-s", name)
        assert ran.returncode in (1, 2)
        assert plain(ran.stdout + ran.stderr)


@pytest.mark.parametrize(
    "labels",
    ['{"x": 1e400}', '{"a": ' * 400 + "1" + "}" * 400, '{"n": 18446744073709551615, "s": "\\ud83d\\ude00\\u009b"}'],
    ids=["beyond float64", "deep", "large"],
)
def test_labels_of_any_json_are_printed(run: Run, place: Path, labels: str) -> None:
    (place / "subs.jsonl").write_text(f'{{"id": "s", "labels": {labels}}}')
    ran = run("match", "-s", "subs.jsonl", "-q", stdin=b"{}")
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert plain(ran.stdout)
    begin, shown = ran.stdout.decode().rstrip("\n").split('"labels": ')
    assert begin.startswith('{"line": 1, "subscription_id": "s"')
    assert json.loads(shown[:-1]) == json.loads(labels)


@pytest.mark.parametrize("command", [("check",), ("match",), ("lint",)])
def test_damaged_input_is_named_with_file_and_line(run: Run, place: Path, command: tuple[str, ...]) -> None:
    many = b"".join(b'{"id": "s%d"}\n' % n for n in range(5_000))
    (place / "cut.gz").write_bytes(gzip.compress(many)[:-20])
    ran = run(*command, "-s", "cut.gz", stdin=b"")
    assert ran.returncode == (1 if command == ("check",) else 2)
    said = (ran.stdout + ran.stderr).decode()
    found = re.search(r"^cut\.gz:(\d+): (the gzip data is cut off|damaged gzip data: .*)$", said, re.MULTILINE)
    assert found is not None, said
    assert int(found[1]) > 1
    assert "Traceback" not in said


def test_every_bad_subscription_of_a_damaged_file_is_named_too(run: Run, place: Path) -> None:
    (place / "events.gz").write_bytes(b"\x1f\x8bnonsense")
    ran = run("match", "-s", "subs.jsonl", "events.gz")
    assert ran.returncode == 2
    assert ran.stderr.startswith(b"events.gz:1: damaged gzip data: ")


@pytest.mark.parametrize(
    ("layout", "says"),
    [
        ('{"dta": "/x"}', "--layout layout.json: dta: unknown member"),
        ('{"ts": [1]}', "--layout layout.json: ts: expected a JSON Pointer"),
        ('{"type_map": {"c": "create"}}', "--layout layout.json: type_map: expected words that mean insert"),
        ('{"data": "x"}', "--layout layout.json: data: 'x': a JSON Pointer"),
        ("[", "--layout layout.json: "),
        ("[1]", "--layout layout.json: a layout is an object, not list"),
        ("[" * 100_000, "--layout layout.json: "),
        ('{"data": "\\u001b[2J"}', "--layout layout.json: data: '\\x1b[2J'"),
    ],
    ids=lambda value: value[:20],
)
def test_an_error_of_a_layout_names_the_file_and_the_member(run: Run, place: Path, layout: str, says: str) -> None:
    (place / "layout.json").write_text(layout)
    ran = run("match", "-s", "subs.jsonl", "--layout", "layout.json", stdin=b"{}")
    assert (ran.returncode, ran.stdout) == (2, b"")
    assert ran.stderr.decode().startswith(f"streamer: {says}")
    assert plain(ran.stderr)


@pytest.mark.parametrize("option", ["--tenant", "--collection"])
def test_a_star_is_no_name(run: Run, option: str) -> None:
    for command in (("match",), ("explain", "--id", "big")):
        ran = run(*command, "-s", "subs.jsonl", option, "*", stdin=b"{}")
        assert (ran.returncode, ran.stdout) == (2, b"")
        assert ran.stderr.startswith(f"streamer: {option}: '*' stands for every one and cannot name one".encode())
    ran = run("match", "-s", "subs.jsonl", "--default-tenant", "*", stdin=b"{}")
    assert ran.returncode == 2
    assert b"default_tenant: '*' is not a tenant" in ran.stderr


INTERRUPTED = """
import os, signal, sys, threading
{when}
from _streamer_command import main
sys.argv = ["streamer", "match", "-s", "subs.jsonl", "-q"]
main()
"""
#: Sends Ctrl-C when a module is looked for, so at a moment that is the same on every machine.
ON_IMPORT = """
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
"""


@pytest.mark.parametrize("module", ["streamer", "click", "streamer.cli.main"])
def test_ctrl_c_while_importing_ends_quietly(place: Path, module: str) -> None:
    program = INTERRUPTED.format(when=ON_IMPORT.format(module=module))
    ran = subprocess.run(
        (sys.executable, "-c", program),
        cwd=place,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ['PYTHONPATH']}"},
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, b"", b"")


def test_ctrl_c_while_subscriptions_are_loaded_ends_quietly(place: Path) -> None:
    os.mkfifo(place / "slow")
    process = subprocess.Popen(
        (*COMMAND, "match", "-s", "slow"),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        cwd=place,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    # Opening waits until the command reads, so it is past its imports.
    with process, (place / "slow").open("wb") as slow:
        slow.write(b'{"id": "s"}\n')
        slow.flush()
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=20)
    assert (process.returncode, output, errors) == (130, b"", b"")


def read_all(terminal: int) -> bytes:
    """Read what a terminal shows until its other side is closed."""
    shown = b""
    try:
        while chunk := os.read(terminal, 4096):
            shown += chunk
    except OSError:
        pass
    os.close(terminal)
    return shown


EVENT = b'{"collection": "orders", "data": {"amount": 250}}\n'


@pytest.mark.parametrize("ended_by", [signal.SIGTERM, signal.SIGKILL], ids=lambda by: by.name)
def test_whatever_ends_match_while_it_shows_progress_leaves_the_cursor_visible(place: Path, ended_by: signal.Signals) -> None:
    ours, theirs = pty.openpty()
    with (
        (place / "out").open("wb") as out,
        subprocess.Popen(
            (*COMMAND, "match", "-s", "subs.jsonl", "--line-buffered"),
            cwd=place,
            env={**os.environ, "TERM": "xterm"},
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=theirs,
        ) as process,
    ):
        os.close(theirs)
        assert process.stdin is not None
        process.stdin.write(EVENT)
        process.stdin.flush()
        # The match comes at once, also while there is progress to show.
        end = time.monotonic() + 60
        while b'"big"' not in (place / "out").read_bytes():
            assert time.monotonic() < end
            time.sleep(0.01)
        process.send_signal(ended_by)
        assert process.wait(20) == -ended_by
    shown = read_all(ours)
    assert b"\x1b[2K" in shown
    assert shown.count(b"\x1b[?25l") == shown.count(b"\x1b[?25h")


def test_nothing_is_shown_where_the_reader_of_a_pipe_may_print(place: Path) -> None:
    """`match … | head`: the progress would stand before its first line."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        (*COMMAND, "match", "-s", "subs.jsonl", "--line-buffered"),
        cwd=place,
        env={**os.environ, "TERM": "xterm"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(EVENT)
        process.stdin.flush()
        assert b'"big"' in process.stdout.readline()
        process.stdout.close()
        process.stdin.write(EVENT)
        process.stdin.flush()
        assert process.wait(20) == -signal.SIGPIPE
    assert read_all(ours) == b""


def test_on_a_terminal_too_nothing_drives_it(place: Path) -> None:
    (place / "subs.jsonl").write_text(json.dumps({"id": EVIL, "labels": {"a": EVIL}}))
    (place / "events.jsonl").write_text('{"type": "\\u001b]0;owned\\u0007"}\n{}\n')
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        (*COMMAND, "match", "-s", "subs.jsonl", "events.jsonl"), cwd=place, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        shown = read_all(ours)
    assert process.returncode == 1
    assert b"]0;owned" in shown
    assert plain(shown.replace(b"\r\n", b"\n"))
