"""`streamer test`: the cases of a file pass or fail as written, and what is wrong with the file is named by its place."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from streamer.engine.cases import read_cases
from streamer.errors import BulkConfigError
from tests.cli.conftest import Run

SUBSCRIPTIONS = """\
subscriptions:
  - {id: big, collection: orders, filters: [{field: amount, op: ">", value: 100}]}
  - {id: paid, collection: orders, filters: [{field: status, op: "==", value: paid}], transitions: true}
cases:
"""
GOOD = """\
  - name: a large order
    event: {collection: orders, type: insert, data: {amount: 250}}
    expect: [{id: big, transition: enter, certain: true}]
  - name: nobody wants users
    event: '{"collection": "users", "data": {"amount": 1e400}}'
    expect: []
"""
BAD = """\
  - name: an order that is paid
    events:
      - {collection: orders, type: insert, data: {amount: 250, status: paid}}
      - {collection: orders, type: insert, data: {amount: 5, status: paid}}
      - {collection: orders, type: update, data: {amount: 250, status: open}, before: {amount: 250, status: paid}}
    expect: [big, {id: paid, transition: enter}]
"""


def write(place: Path, text: str, name: str = "cases.yaml") -> None:
    (place / name).write_text(text)


def test_cases_that_hold_pass(run: Run, place: Path) -> None:
    write(place, SUBSCRIPTIONS + GOOD)
    ran = run("test", "cases.yaml")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"cases.yaml ..\n2 passed\n", b"")


def test_others_may_match_where_a_case_says_at_least(run: Run, place: Path) -> None:
    event = "{{collection: orders, type: insert, data: {{amount: 250, status: paid}}}}"
    case = f"  - name: {{0}}\n    event: {event}\n    {{0}}: [{{1}}]\n"
    write(place, SUBSCRIPTIONS + case.format("expect_at_least", "big") + case.format("expect", "big"))
    ran = run("test", "cases.yaml")
    assert ran.returncode == 1
    assert ran.stdout.decode().startswith("cases.yaml .F\n")
    assert "expect - not expected: 'paid'\n1 failed, 1 passed\n" in ran.stdout.decode()
    write(place, SUBSCRIPTIONS + case.format("expect_at_least", "{id: paid, transition: leave}").replace("250", "25"))
    (told,) = map(json.loads, run("test", "cases.yaml", "--output", "json").stdout.splitlines())
    (difference,) = told["differences"]
    assert difference["diff"] == ["- paid (leave)", "+ paid (enter)"]
    write(place, SUBSCRIPTIONS + case.format("expect_at_least", "paid").replace("250, status: paid", "250"))
    (told,) = map(json.loads, run("test", "cases.yaml", "--output", "json").stdout.splitlines())
    assert told["differences"][0]["diff"] == ["- paid"]
    write(place, SUBSCRIPTIONS + case.format("expect_at_least", "") + "    expect: []\n")
    ran = run("test", "cases.yaml")
    assert ran.returncode == 2
    assert "not both" in ran.stderr.decode()
    assert "expected at least one id" in ran.stderr.decode()


def test_a_difference_shows_what_was_expected_and_why_it_is_not(run: Run, place: Path) -> None:
    write(place, SUBSCRIPTIONS + GOOD + BAD)
    ran = run("test", "cases.yaml")
    text = ran.stdout.decode()
    assert (ran.returncode, ran.stderr) == (1, b"")
    assert text.startswith("cases.yaml ..F\n\n=================================== FAILURES ===")
    assert "cases.yaml:11:5\n\nevent 2: {" in text
    assert "event 1: {" not in text
    assert "E   - expected, + matched\nE   - big\nE     paid (enter)\nE\nE   'big' does not match\n" in text
    assert "E     big\nE   - paid (enter)\nE   + paid (leave)\n" in text
    assert "✗ filters[0]  data.amount > 100" in text
    assert text.endswith("FAILED cases.yaml:11 an order that is paid - missing: 'big'\n1 failed, 2 passed\n")


def test_junit_is_xml_that_counts_the_failures(run: Run, place: Path) -> None:
    write(place, SUBSCRIPTIONS + GOOD + BAD.replace("that is paid", '"&<\\u001b[2J'))
    write(place, SUBSCRIPTIONS + GOOD, "more.yaml")
    ran = run("test", "cases.yaml", "more.yaml", "--output", "junit")
    assert (ran.returncode, ran.stderr) == (1, b"1 failed, 4 passed\n")
    suites = ElementTree.fromstring(ran.stdout)
    assert [(suite.get("name"), suite.get("tests"), suite.get("failures")) for suite in suites] == [
        ("cases.yaml", "3", "1"),
        ("more.yaml", "2", "0"),
    ]
    (failure,) = suites.iter("failure")
    assert failure.get("message") == "missing: 'big'"
    assert failure.text is not None
    assert "E   - big" in failure.text
    last = list(suites[0])[-1]
    assert (last.get("name"), last.get("line")) == ('an order "&<\\u001b[2J', "11")


def test_github_gets_an_annotation_a_failed_case(run: Run, place: Path) -> None:
    write(place, SUBSCRIPTIONS + GOOD + BAD.replace("an order that is paid", "'an order: 100%, :: paid'"))
    ran = run("test", "cases.yaml", "-o", "github")
    (line,) = ran.stdout.decode().splitlines()
    assert line.startswith("::error file=cases.yaml,line=11,col=5,title=an order%3A 100%25%2C %3A%3A paid::cases.yaml:11:5%0A")
    assert ran.returncode == 1


def test_json_is_an_object_a_case(run: Run, place: Path) -> None:
    write(place, SUBSCRIPTIONS + GOOD + BAD)
    ran = run("test", "cases.yaml", "-o", "json")
    told = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [(each["name"], each["passed"], each["events"], each["failed"]) for each in told] == [
        ("a large order", True, 1, 0),
        ("nobody wants users", True, 1, 0),
        ("an order that is paid", False, 3, 2),
    ]
    assert [(each["event"], each["missing"], each["unexpected"], each["differing"]) for each in told[2]["differences"]] == [
        (2, ["big"], [], []),
        (3, [], [], ["paid"]),
    ]


def test_subscriptions_may_come_from_files_and_options_win(run: Run, place: Path) -> None:
    (place / "down").mkdir()
    case = "cases:\n  - {event: {collection: orders, data: {amount: 250}}, expect: [big]}\n"
    write(place, "subscriptions: ../subs.jsonl\n" + case, "down/cases.yaml")
    assert run("test", "down/cases.yaml").returncode == 0
    (place / "none.jsonl").write_text('{"id": "big", "collection": "none"}\n')
    ran = run("test", "down/cases.yaml", "-s", "none.jsonl")
    assert (ran.returncode, b"missing: 'big'" in ran.stdout) == (1, True)
    write(place, "subscriptions: [gone.jsonl]\n" + case)
    ran = run("test", "cases.yaml")
    assert (ran.returncode, ran.stdout, ran.stderr) == (2, b"", b"streamer: gone.jsonl: No such file or directory\n")
    write(place, case)
    assert b"cases.yaml: no subscriptions; name them in the file" in run("test", "cases.yaml").stderr
    write(place, "subscriptions: [subs.jsonl]\nmatching: {format: document}\n", "c.yaml")
    document = "cases:\n  - {event: {amount: 250}, collection: orders, expect: [big]}\n"
    write(place, document)
    assert run("test", "cases.yaml", "-c", "c.yaml").returncode == 0
    assert run("test", "cases.yaml", "-s", "subs.jsonl").returncode == 1
    write(place, "format: document\n" + document)
    assert run("test", "cases.yaml", "-s", "subs.jsonl").returncode == 0
    assert run("test", "cases.yaml", "-s", "subs.jsonl", "--format", "change").returncode == 1


def test_events_may_come_from_a_file_of_lines(run: Run, place: Path) -> None:
    lines = (
        b'{"collection": "orders", "data": {"amount": 250}}\n' * 20 + b'\n{"collection": "orders", "data": {"amount": 5}}\n{\n'
    )
    (place / "many.jsonl.gz").write_bytes(gzip.compress(lines))
    write(place, SUBSCRIPTIONS + "  - {file: many.jsonl.gz, expect: [big]}\n")
    ran = run("test", "cases.yaml", "-o", "json")
    told = json.loads(ran.stdout)
    assert (told["name"], told["events"], told["failed"]) == ("cases[0]", 22, 2)
    assert [(each["event"], each["missing"]) for each in told["differences"]] == [(22, ["big"]), (23, ["big"])]
    assert "malformed_json" in told["differences"][1]["error"]


def test_a_file_without_events_does_not_pass(run: Run, place: Path) -> None:
    (place / "empty.jsonl").write_bytes(b"\n")
    write(place, SUBSCRIPTIONS + "  - {file: empty.jsonl, expect: []}\n")
    ran = run("test", "cases.yaml")
    assert (ran.returncode, b"the file has no events" in ran.stdout) == (1, True)
    write(place, SUBSCRIPTIONS + "  - {file: gone.jsonl, expect: []}\n")
    ran = run("test", "cases.yaml")
    assert (ran.returncode, ran.stderr) == (2, b"streamer: cases.yaml:5:5: gone.jsonl: No such file or directory\n")


def test_a_case_is_told_of_its_first_differences_and_how_many_there_are(run: Run, place: Path) -> None:
    (place / "many.jsonl").write_bytes(b"{}\n" * 1_000)
    write(place, SUBSCRIPTIONS + "  - {file: many.jsonl, expect: [big]}\n")
    text = run("test", "cases.yaml").stdout.decode()
    assert text.count("E   - big") == 5
    assert "and 995 more of 1,000 events" in text


EVENT = "event: {a: 1}"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "1:1: expected names and values, not nothing (null)"),
        ("case: []", "1:1: case: unknown name; did you mean 'cases'?"),
        (
            f"{{format: change, layout: {{}}, cases: [{{{EVENT}, expect: []}}]}}",
            "1:26: layout: set `format` or `layout`, not both; ",
        ),
        (f"format: debezum\ncases: [{{{EVENT}, expect: []}}]", "1:9: format: unknown format 'debezum'; expected one of change, "),
        ("layout: change", "1:1: cases: expected a list of cases; there is none"),
        ("cases: []", "1:8: cases: expected at least one of the cases"),
        ("cases: 5", "1:8: cases: expected a list of cases, not a number"),
        ("cases: [5]", "1:9: cases[0]: expected a case: "),
        ("cases: [{expect: []}]", "1:9: cases[0]: expected one of event, events, file"),
        (f"cases: [{{{EVENT}}}]", "1:9: cases[0].expect: expected a list of ids; there is none"),
        (f"cases: [{{{EVENT}, expect: big}}]", "1:33: cases[0].expect: expected a list of ids, not text"),
        ('cases: [{file: "a\\0b", expect: []}]', "1:16: cases[0].file: expected a path without U+0000"),
        (f"cases: [{{{EVENT}, file: x, expect: []}}]", "1:9: cases[0]: expected one of event, events, file; not several"),
        (f"cases: [{{{EVENT}, expected: []}}]", "1:25: cases[0].expected: unknown name; did you mean 'expect'?"),
        ("cases: [{events: [], expect: []}]", "1:18: cases[0].events: expected at least one of the events"),
        (
            "cases: [{event: 5, expect: []}]",
            "1:17: cases[0].event: expected an event: ",
        ),
        (f"cases: [{{{EVENT}, expect: [5]}}]", "1:34: cases[0].expect[0]: expected the id of a subscription, not a number"),
        (f"cases: [{{{EVENT}, expect: [a, a]}}]", "1:37: cases[0].expect[1]: 'a' stands twice"),
        (f"cases: [{{{EVENT}, expect: [{{id: a, transition: in}}]}}]", "expect[0].transition: expected enter, stay, leave, or"),
        (f"cases: [{{{EVENT}, expect: [{{id: a, certain: 1}}]}}]", "expect[0].certain: expected true or false, not a number"),
        (f"cases: [{{{EVENT}, tenant: 5, expect: []}}]", "cases[0].tenant: expected a tenant, not a number; write '5' in quotes"),
        (f"cases: [{{{EVENT}, tenant: '*', expect: []}}]", "cases[0].tenant: expected a tenant, not '*'"),
        (f"layout: debezum\ncases: [{{{EVENT}, expect: []}}]", "1:9: layout: "),
        (f"layout: {{dato: /a}}\ncases: [{{{EVENT}, expect: []}}]", "layout.dato: "),
        (
            f"subscriptions: 5\ncases: [{{{EVENT}, expect: []}}]",
            "1:16: subscriptions: expected the path of a file, or",
        ),
        ("cases: [*a]", "1:9: the alias *a"),
        ("cases: [{", "1:10: "),
    ],
)
def test_what_is_wrong_with_a_file_is_named_by_line_and_column(text: str, says: str) -> None:
    with pytest.raises(BulkConfigError) as told:
        read_cases(text.encode(), "cases.yaml", Path())
    errors = "\n".join(map(str, told.value.errors))
    assert errors.startswith("cases.yaml:1:")
    assert says in errors


def test_a_bad_subscription_and_an_unknown_id_are_named_by_line_and_column(run: Run, place: Path) -> None:
    bad: list[Any] = [
        "subscriptions:",
        "  - id: s",
        "    filters:",
        "      - {field: a, op: =~, value: 1}",
        "  - {id: t}",
        "cases: [{event: {}, expect: [t]}]",
    ]
    write(place, "\n".join(bad))
    ran = run("test", "cases.yaml", "-o", "github")
    assert ran.returncode == 2
    assert ran.stderr.startswith(b"cases.yaml:4:24: subscriptions[0].filters[0].op: unknown operator '=~'")
    assert ran.stdout.startswith(b"::error file=cases.yaml,line=4,col=24::subscriptions[0].filters[0].op: unknown operator")
    write(place, SUBSCRIPTIONS + "  - {event: {}, expect: [paid, bug]}\n")
    ran = run("test", "cases.yaml")
    assert (ran.returncode, ran.stderr) == (
        2,
        b"cases.yaml:5:32: cases[0].expect[1]: unknown subscription 'bug'; did you mean 'big'?\n",
    )
