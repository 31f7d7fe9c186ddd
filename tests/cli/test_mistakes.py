"""What newcomers write: `lint` and `check` say what was probably meant, and errors what is wrong, in forms that work."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from streamer import Engine, SubscriptionError
from tests.cli.conftest import Run
from tests.conformance.table import TESTDATA

TABLE = tomllib.loads((TESTDATA / "mistakes.toml").read_text())
ROWS: list[Mapping[str, str]] = TABLE["row"]
SLIPS: list[Mapping[str, str]] = TABLE["slip"]
REFUSED: list[Mapping[str, str]] = TABLE["refused"]


def format_of(row: Mapping[str, str]) -> str:
    return row.get("layout", "change")


@pytest.mark.parametrize("row", [pytest.param(row, id=row["name"]) for row in ROWS])
def test_lint_says_what_was_probably_meant(engine: Callable[..., Engine], row: Mapping[str, str]) -> None:
    e = engine(format=format_of(row))
    e.add(row["subscription"])
    said = [finding.reason for finding in e.lint() if finding.code == "probable_mistake"]
    assert said == ([row["says"]] if "says" in row else [])
    if "says" not in row:
        return
    # The cure is what the finding says, and it works.
    cured = json.loads(row["meant"])
    typed = said[0].split("probably meant: ")[1]
    for member in ("cel", "pattern", "topic"):
        if member in cured:
            assert json.dumps(cured[member]) in typed
    for given, each in zip(json.loads(row["subscription"]).get("filters", ()), cured.get("filters", ()), strict=False):
        assert typed.startswith(json.dumps(each["field"]))
        root = each.get("root")
        assert (f'with "root": "{root}"' in typed) == (root != given.get("root"))
    assert not e.matches_any(row["event"])
    e.replace(row["meant"])
    assert e.matches_any(row["event"])
    assert not [finding for finding in e.lint() if finding.code == "probable_mistake"]


@pytest.mark.parametrize("row", [pytest.param(row, id=row["name"]) for row in SLIPS])
def test_a_slip_is_told_and_what_was_probably_meant_works(engine: Callable[..., Engine], row: Mapping[str, str]) -> None:
    e = engine(format=format_of(row))
    e.add(row["subscription"])
    assert [finding.reason for finding in e.lint() if finding.code == "probable_mistake"] == [row["says"]]
    assert not e.matches_any(row["event"])
    e.replace(row["meant"])
    assert e.matches_any(row["event"])
    assert e.lint() == [finding for finding in e.lint() if finding.code == "slow"]


def test_check_tells_what_lint_tells_of_each_kind_of_subscription(run: Run, place: Path) -> None:
    rows = [
        {"id": "filters", "filters": [{"field": "n", "op": ">", "value": 5}, {"field": "n", "op": "<", "value": 3}]},
        {"id": "cel", "cel": "data.n > 5 && data.n < 3"},
        {"id": "types", "types": ["insert"], "cel": "type == 'update'"},
        {"id": "collection", "collection": "orders", "cel": "collection == 'users'"},
        {"id": "mixed", "filters": [{"field": "n", "op": "==", "value": 1}], "cel": "data.n == 2"},
        {"id": "topic", "topic": "orders.new", "cel": "topic == 'orders.old'"},
        {"id": "pattern", "pattern": {"data": {"a": {"$in": [1]}}}},
        {"id": "fine", "filters": [{"field": "n", "op": "!=", "value": 5}]},
        {"id": "slow", "cel": "data.n == data.m"},
    ]
    (place / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))

    def found(command: str) -> list[tuple[str, str]]:
        lines = map(json.loads, run(command, "-s", "rows.jsonl", "-o", "json").stdout.splitlines())
        return [(line["subscription_id"], line["code"]) for line in lines]

    never = [(name, "never_matches") for name in ("filters", "cel", "types", "collection", "mixed", "topic")]
    assert found("check") == [*never, ("pattern", "probable_mistake")]
    assert found("lint") == [*found("check"), ("slow", "slow")]


@pytest.mark.later_on_the_reference
@pytest.mark.parametrize("name", sorted({format_of(row) for row in ROWS}))
def test_lint_and_check_tell_the_line_of_each_mistake(run: Run, place: Path, name: str) -> None:
    rows = [row for row in ROWS if format_of(row) == name]
    texts = [json.dumps({**json.loads(row["subscription"]), "id": f"s{number}"}) for number, row in enumerate(rows, 1)]
    (place / "rows.jsonl").write_text("\n".join(texts))
    expected = [(number, row["says"]) for number, row in enumerate(rows, 1) if "says" in row]
    given = ("-s", "rows.jsonl", "--format", name)

    def found(command: str) -> list[tuple[int, str]]:
        lines = map(json.loads, run(command, *given, "-o", "json").stdout.splitlines())
        return [(line["line"], line["reason"]) for line in lines if line["code"] == "probable_mistake"]

    assert found("lint") == found("check") == expected
    ran = run("check", *given)
    # A hint makes no subscription bad.
    assert ran.returncode == 0
    assert ran.stdout.decode().splitlines() == [
        f"rows.jsonl:{line}: s{line}: probable_mistake: {says}" for line, says in expected
    ]
    assert ran.stderr.decode().startswith(f"{len(rows)} good subscription")
    shown = run("check", *given, "-o", "github").stdout.decode().splitlines()
    for (line, _), annotation in zip(expected, shown, strict=True):
        assert annotation.startswith(f"::warning file=rows.jsonl,line={line},title=probable_mistake::")


@pytest.mark.parametrize("row", [pytest.param(row, id=row["name"]) for row in REFUSED])
def test_an_error_says_what_is_wrong_and_what_was_meant_works(engine: Callable[..., Engine], row: Mapping[str, str]) -> None:
    e = engine()
    with pytest.raises(SubscriptionError) as refused:
        e.add(row["subscription"])
    assert row["says"] in str(refused.value)
    assert len(e) == 0
    e.add(row["meant"])
    assert e.matches_any(row["event"])


def test_check_tells_of_every_refused_row_at_once(run: Run, place: Path) -> None:
    (place / "rows.jsonl").write_text("\n".join(row["subscription"] for row in REFUSED))
    ran = run("check", "-s", "rows.jsonl")
    assert (ran.returncode, ran.stderr) == (1, f"{len(REFUSED)} bad subscriptions\n".encode())
    for number, (row, line) in enumerate(zip(REFUSED, ran.stdout.decode().splitlines(), strict=True), 1):
        assert line.startswith(f"rows.jsonl:{number}: ")
        assert row["says"] in line
