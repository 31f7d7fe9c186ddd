"""A command whose standard streams are closed does what it can without them, or says which one it needs."""

from __future__ import annotations

import itertools
import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import COMMAND

if not os.path.exists("/bin/sh"):
    pytest.skip("these tests close streams by a shell", allow_module_level=True)

STREAMS = ("<&-", ">&-", "2>&-")
#: Each of them, and all; two at a time take longer than they are worth in each run.
CLOSED = [
    *STREAMS,
    " ".join(STREAMS),
    *(pytest.param(" ".join(two), marks=pytest.mark.integration) for two in itertools.combinations(STREAMS, 2)),
]
#: Commands, their exit code if nothing is closed, and what they cannot do without.
COMMANDS = {
    "match -s subs.jsonl events.jsonl": (0, ">&-"),
    "match -q -s subs.jsonl -": (0, "<&-"),
    "check -s subs.jsonl": (0, ""),
    "stats -s subs.jsonl": (0, ">&-"),
    "schema subscription": (0, ">&-"),
    "--version": (0, ">&-"),
    "--help": (0, ">&-"),
    "nonsense": (2, ""),
    "snapshot save held -s subs.jsonl": (0, ""),
}
#: A command of each kind. These are enough if several streams are closed.
OF_EACH_KIND = ("match -s subs.jsonl events.jsonl", "match -q -s subs.jsonl -", "check -s subs.jsonl")


@pytest.mark.later_on_the_reference
@pytest.mark.parametrize("closed", CLOSED)
def test_no_command_ends_in_a_traceback(place: Path, closed: str, backend: str) -> None:
    for arguments in COMMANDS if closed.count("&-") == 1 else OF_EACH_KIND:
        code, needed = COMMANDS[arguments]
        ran = subprocess.run(
            ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *COMMAND, *arguments.split()],
            cwd=place,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        what = f"{arguments} {closed}: {ran.returncode} {ran.stdout!r} {ran.stderr!r}"
        is_missing = bool(needed) and needed in closed.split()
        assert ran.returncode == (2 if is_missing else code), what
        assert b"Traceback" not in ran.stderr, what
        if "2>&-" in closed:
            assert ran.stderr == b"", what
        elif is_missing:
            stream = b"output" if needed == ">&-" else b"input"
            assert ran.stderr.splitlines()[-1].startswith(b"streamer: standard %b is closed" % stream), what
        if arguments.startswith("match -s") and not is_missing:
            assert b'"subscription_id": "big"' in ran.stdout, what


def test_a_full_disk_below_standard_error_loses_no_match(place: Path, backend: str) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("only Linux has /dev/full")
    with open("/dev/full", "wb") as full:
        ran = subprocess.run(
            [*COMMAND, "match", "-s", "subs.jsonl", "events.jsonl"], cwd=place, stdout=subprocess.PIPE, stderr=full, check=False
        )
    assert ran.returncode == 0
    assert b'"subscription_id": "big"' in ran.stdout
