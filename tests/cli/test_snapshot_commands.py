"""`streamer snapshot`: written once, looked into at once."""

from __future__ import annotations

import json
from pathlib import Path

from streamer import Engine
from tests.cli.conftest import Run


def test_save_writes_what_load_reads(run: Run, place: Path) -> None:
    ran = run("snapshot", "save", "out.snap", "-s", "subs.jsonl", "--soft-delete", "gone")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"out.snap: 2 subscriptions\n")
    loaded = Engine.load(place / "out.snap")
    assert (list(loaded), loaded._options.soft_delete) == (["big", "paid"], "gone")


def test_info_tells_what_is_in_it(run: Run, place: Path) -> None:
    run("snapshot", "save", "out.snap", "-s", "subs.jsonl")
    ran = run("snapshot", "info", "out.snap", "--verify", "--output", "json")
    told = json.loads(ran.stdout)
    assert (ran.returncode, told["subscriptions"], told["options"]["default_tenant"]) == (0, 2, "default")
    assert [(each["tenant"], each["collection"], each["subscriptions"]) for each in told["sections"]] == [
        ("default", "orders", 2)
    ]
    table = run("snapshot", "info", "out.snap").stdout.decode()
    assert told["digest"] in table
    assert table.splitlines()[-1].split()[:3] == ["default", "orders", "2"]


def test_damage_is_told_by_its_place_and_exit_code(run: Run, place: Path) -> None:
    run("snapshot", "save", "out.snap", "-s", "subs.jsonl")
    data = bytearray((place / "out.snap").read_bytes())
    data[data.index(b'"paid"')] ^= 1
    (place / "out.snap").write_bytes(data)
    assert run("snapshot", "info", "out.snap").returncode == 0
    ran = run("snapshot", "info", "--verify", "out.snap")
    assert (ran.returncode, ran.stdout) == (1, b"out.snap: section default/orders: damaged: the checksum differs\n")
    ran = run("snapshot", "info", "nosuch.snap")
    assert (ran.returncode, ran.stderr) == (2, b"streamer: nosuch.snap: No such file or directory\n")


def test_save_says_what_is_wrong(run: Run, place: Path) -> None:
    (place / "bad.jsonl").write_text('{"id": "x", "cel": "1 +"}\n')
    ran = run("snapshot", "save", "out.snap", "-s", "bad.jsonl")
    assert ran.returncode == 2
    assert not (place / "out.snap").exists()
    ran = run("snapshot", "save", "nosuch/out.snap", "-s", "subs.jsonl")
    assert (ran.returncode, ran.stderr) == (2, b"streamer: nosuch/out.snap: No such file or directory\n")
