"""`streamer import` and `streamer export`: rules of other languages become subscriptions, and the way back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from streamer.importing import KINDS
from tests.cli.conftest import Run

#: A rule of each language that wants an amount above 100, and a rule that no subscription expresses, with words of its error.
RULES: dict[str, tuple[str, str, bytes]] = {
    "sql": ("amount > 100", "amount > (SELECT 1)", b"column"),
    "mongo": ('{"amount": {"$gt": 100}}', '{"$where": "1"}', b"$where"),
    "jsonlogic": ('{">": [{"var": "amount"}, 100]}', '{"log": 1}', b"log"),
    "hasura": ('{"amount": {"_gt": 100}}', '{"items": {"price": {"_eq": 1}}}', b"relationships"),
    "supabase": ("amount=gt.100", "amount=fts.paid", b"fts"),
    "eventbridge": ('{"detail": {"amount": [{"numeric": [">", 100]}]}}', '{"detail": {"amount": [{"range": 1}]}}', b"range"),
}


def lines(output: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


@pytest.mark.parametrize("kind", RULES)
def test_a_rule_becomes_a_subscription_that_matches_the_same(run: Run, place: Path, kind: str) -> None:
    good, _, _ = RULES[kind]
    ran = run("import", kind, "--gateway-id", "g", "--tenant", "t", "-", stdin=good.encode())
    assert (ran.returncode, ran.stderr) == (0, b"1 of 1 rules translated\n")
    (made,) = lines(ran.stdout)
    assert (made["id"], made["gateway_id"], made["tenant"]) == (f"{kind}-1", "g", "t")
    (place / "made.jsonl").write_bytes(ran.stdout)
    rows = [{"collection": "orders", "data": {"amount": amount}} for amount in (100, 101, "200", None)]
    if kind == "eventbridge":
        rows = [{"source": "orders", "detail": row["data"]} for row in rows]
    how = ["--format", "eventbridge"] if kind == "eventbridge" else []
    sent = "\n".join(map(json.dumps, rows)).encode()
    matched = run("match", "-s", "made.jsonl", "--tenant", "t", "-q", *how, "-", stdin=sent)
    found = [line["line"] for line in lines(matched.stdout)]
    # A text may be a number there.
    assert found in ([2], [2, 3]) if kind in ("supabase", "jsonlogic") else found == [2], matched.stderr


@pytest.mark.parametrize("kind", RULES)
def test_without_an_exact_translation_nothing_is_printed(run: Run, kind: str) -> None:
    good, bad, words = RULES[kind]
    both = f"{good}\n{bad}\n".encode()
    ran = run("import", kind, "-", stdin=both)
    assert (ran.returncode, ran.stdout) == (1, b"")
    assert words in ran.stderr
    assert b"<stdin>: line 2" in ran.stderr
    ending = (
        b"1 of 2 rules translated, 1 have no exact translation\nprinted none because of these errors; --skip prints the others\n"
    )
    assert ran.stderr.endswith(ending)
    ran = run("import", kind, "--skip", "-q", "-", stdin=both)
    assert (ran.returncode, len(lines(ran.stdout))) == (1, 1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", [b"\xff\xfe", b"[" * 100_000, b"\0", b'{"a": ' * 50_000, b"'", b"(" * 50_000])
def test_what_is_no_rule_is_an_error_in_words(run: Run, kind: str, text: bytes) -> None:
    ran = run("import", kind, "-", stdin=text)
    assert ran.returncode in (1, 2)
    assert b"Traceback" not in ran.stderr
    assert ran.stderr


def test_a_kind_that_is_unknown_is_a_wrong_usage(run: Run) -> None:
    ran = run("import", "cobol", "-", stdin=b"x")
    assert ran.returncode == 2
    assert all(kind.encode() in ran.stderr for kind in KINDS)


def test_ids_and_members_of_a_rule_are_kept(run: Run) -> None:
    rules = [{"id": "a", "gateway_id": "own", "rule": {"x": 1}}, {"id": "a", "rule": {"x": 2}}]
    ran = run("import", "mongo", "--skip", "--gateway-id", "g", "-", stdin=json.dumps(rules).encode())
    (made,) = lines(ran.stdout)
    assert (made["id"], made["gateway_id"]) == ("a", "own")
    assert b"[1]: id: a rule before this one has the id 'a'" in ran.stderr


SUBSCRIPTIONS = b"""\
{"id": "row", "collection": "orders", "filters": [{"field": "amount", "op": ">", "value": 100}]}
{"id": "pattern", "pattern": {"detail": {"amount": [5]}}}
{"id": "cel", "cel": "data.amount > 100 || data.paid == true", "gateway_id": "g"}
"""


def test_an_id_that_is_no_name_of_eventbridge_is_refused(run: Run, place: Path) -> None:
    ids = ["a.b-C_1", "x" * 64, "x" * 65, "a b", "arn:1", "\u00e9"]
    (place / "mine.jsonl").write_text("\n".join(json.dumps({"id": each, "pattern": {"source": ["x"]}}) for each in ids))
    ran = run("export", "--to", "eventbridge", "--skip", "-s", "mine.jsonl")
    assert [line["Name"] for line in lines(ran.stdout)] == ids[:2]
    assert b"'a b': id: the name of a rule of EventBridge has 1 to 64 of the characters" in ran.stderr


def test_a_file_without_a_rule_is_an_error(run: Run) -> None:
    for kind in RULES:
        ran = run("import", kind, "-", stdin=b"\n")
        assert ran.returncode != 0
        assert b"0 of 0" not in ran.stderr


@pytest.mark.parametrize(
    ("to", "options", "ids"),
    [
        ("cel", [], ["row", "cel"]),
        ("eventbridge", [], ["pattern"]),
        ("eventbridge", ["--scalars"], ["row", "pattern"]),
        ("sql", [], ["row", "cel"]),  # a collection is kept though the other has none
    ],
)
def test_exported_rules_come_back_the_same(run: Run, place: Path, to: str, options: list[str], ids: list[str]) -> None:
    (place / "mine.jsonl").write_bytes(SUBSCRIPTIONS)
    ran = run("export", "--to", to, *options, "-s", "mine.jsonl")
    assert (ran.returncode, ran.stdout) == (1, b"")
    assert b"printed none because of these errors; --skip prints the others" in ran.stderr
    ran = run("export", "--to", to, *options, "--skip", "-s", "mine.jsonl")
    assert f"{len(ids)} of 3 subscriptions translated".encode() in ran.stderr
    if to == "cel":
        assert [line["id"] for line in lines(ran.stdout)] == ids
        assert lines(ran.stdout)[1]["gateway_id"] == "g"
        (place / "back.jsonl").write_bytes(ran.stdout)
        assert run("check", "-s", "back.jsonl").returncode == 0
    else:
        back = run("import", to, "-", stdin=ran.stdout)
        assert [line["id"] for line in lines(back.stdout)] == ids


@pytest.mark.parametrize(
    ("text", "collection", "statements"),
    [("it's; --\n/* x", "shop.orders", 4), ("tab\tand\r", "orders", 0), ("two\nlines", None, 0)],
)
def test_sql_keeps_ids_collections_and_texts(run: Run, place: Path, text: str, collection: str | None, statements: int) -> None:
    """What SQL must quote comes back the same: as statements if all have a collection and texts are printable, or as lines."""
    filters = [{"field": "a b", "op": "starts_with", "value": text}]
    given = [
        {"id": "large orders :x", "collection": 'db.Shop."orders"', "filters": filters},
        {"id": '"q"', "collection": "Order s", "filters": filters},
        {"id": " two\nlines", "collection": "shop.orders", "filters": filters},
        {"id": "-- name: é", **({} if collection is None else {"collection": collection}), "filters": filters},
    ]
    (place / "mine.jsonl").write_text("\n".join(map(json.dumps, given)))
    ran = run("export", "--to", "sql", "-s", "mine.jsonl")
    assert (ran.returncode, ran.stdout.count(b"SELECT * FROM ")) == (0, statements), ran.stderr
    assert lines(run("import", "sql", "-q", "-", stdin=ran.stdout).stdout) == given
