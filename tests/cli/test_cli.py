"""The command line, run as people run it: in a process of its own, on files and pipes."""

from __future__ import annotations

import gzip
import json
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import pytest
import zstandard

from streamer.cli.main import app
from streamer.core.histogram import Histogram
from tests.cli.conftest import COMMAND, EVENTS, SUBSCRIPTIONS, Run

# What they test is the same on each core; on the reference it runs with what takes long.
pytestmark = pytest.mark.later_on_the_reference


def lines(output: bytes) -> list[Any]:
    return [json.loads(line) for line in output.splitlines()]


def test_match_prints_an_object_a_match_and_a_summary_aside(run: Run) -> None:
    ran = run("match", "-s", "subs.jsonl", "events.jsonl")
    assert lines(ran.stdout) == [
        {"line": 1, "subscription_id": "big", "gateway_id": "billing", "transition": "enter", "certain": True},
        {
            "line": 3,
            "subscription_id": "paid",
            "gateway_id": None,
            "transition": None,
            "certain": True,
            "labels": {"colour": "green"},
        },
    ]
    assert ran.stderr.decode().startswith("3 events, 2 matches, 0 bad events; p50 ")
    assert b"events/s" in ran.stderr
    assert ran.returncode == 0


def test_ids_are_an_id_a_match(run: Run) -> None:
    assert run("match", "-s", "subs.jsonl", "events.jsonl", "--output", "ids").stdout == b"big\npaid\n"


def test_a_table_has_aligned_columns(run: Run) -> None:
    header, first, second = run("match", "-s", "subs.jsonl", "events.jsonl", "-o", "table").stdout.decode().splitlines()
    assert header.split() == ["LINE", "SUBSCRIPTION", "GATEWAY", "TRANSITION", "CERTAIN"]
    assert first.split() == ["1", "big", "billing", "enter", "yes"]
    assert second.split() == ["3", "paid", "-", "-", "yes"]
    assert header.index("GATEWAY") == first.index("billing")


def test_an_id_that_would_break_a_line_is_quoted(run: Run, place: Path) -> None:
    (place / "subs.jsonl").write_text(json.dumps({"id": "a\nb\x1b[31m"}))
    assert run("match", "-s", "subs.jsonl", "-o", "ids", "-q", stdin=b"{}").stdout == b'"a\\nb\\u001b[31m"\n'


def test_quiet_prints_nothing_but_matches_and_bad_events(run: Run) -> None:
    assert run("match", "-s", "subs.jsonl", "events.jsonl", "--quiet").stderr == b""


def test_standard_input_is_the_default_and_a_dash(run: Run) -> None:
    named = run("match", "-s", "subs.jsonl", "events.jsonl").stdout
    assert run("match", "-s", "subs.jsonl", stdin=EVENTS).stdout == named
    assert run("match", "-s", "subs.jsonl", "-", stdin=EVENTS).stdout == named
    assert run("match", "-s", "-", "events.jsonl", stdin=SUBSCRIPTIONS).stdout == named


def test_subscriptions_and_events_cannot_share_standard_input(run: Run) -> None:
    ran = run("match", "-s", "-", "-", stdin=EVENTS)
    assert (ran.returncode, ran.stdout) == (2, b"")
    assert b"cannot both come from standard input" in ran.stderr


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.ZstdCompressor().compress], ids=["gzip", "zstd"])
def test_compressed_input_is_recognised_from_a_file_and_from_a_pipe(
    run: Run, place: Path, compress: Callable[[bytes], bytes]
) -> None:
    plain = run("match", "-s", "subs.jsonl", "events.jsonl").stdout
    (place / "packed").write_bytes(compress(EVENTS))
    (place / "subs.packed").write_bytes(compress(SUBSCRIPTIONS))
    assert run("match", "-s", "subs.packed", "packed").stdout == plain
    assert run("match", "-s", "subs.packed", stdin=compress(EVENTS)).stdout == plain


def test_what_was_read_before_compressed_data_is_cut_off_is_matched(run: Run) -> None:
    ran = run("match", "-s", "subs.jsonl", stdin=gzip.compress(EVENTS * 100)[:-9])
    assert ran.returncode == 2
    assert len(lines(ran.stdout)) > 100
    assert b"<stdin>:401: the gzip data is cut off\n" in ran.stderr


def test_the_last_line_needs_no_newline_and_blank_lines_are_no_events(run: Run) -> None:
    ran = run("match", "-s", "subs.jsonl", "-o", "ids", stdin=b"\n  \r\n" + EVENTS.rstrip())
    assert ran.stdout == b"big\npaid\n"
    assert ran.returncode == 0


def test_a_bad_event_is_named_with_line_and_offset_and_the_others_match(run: Run) -> None:
    ran = run("match", "-s", "subs.jsonl", "-o", "ids", stdin=b'{"collection": tru}\n' + EVENTS)
    assert ran.stdout == b"big\npaid\n"
    assert ran.stderr.startswith(b"<stdin>:1: malformed_json at byte 18: ")
    assert b"4 events, 2 matches, 1 bad event;" in ran.stderr
    assert ran.returncode == 1


def test_ignored_events_are_counted_by_reason_and_are_not_bad(run: Run, place: Path) -> None:
    (place / "d.jsonl").write_bytes(
        b'{"op": "c", "after": {"amount": 250}, "source": {"table": "orders"}}\nnull\n{"ts_ms": 1}\n{"op": "t"}\n{"ts_ms": 2}\n'
    )
    ran = run("match", "-s", "subs.jsonl", "--format", "debezium", "d.jsonl")
    assert (ran.returncode, len(lines(ran.stdout))) == (0, 1)
    assert b"5 events, 1 match, 0 bad events; 4 ignored (1 null, 2 no_change, 1 type); p50" in ran.stderr
    assert b"--format" not in ran.stderr
    told = run("stats", "-s", "subs.jsonl", "--format", "debezium", "d.jsonl")
    assert b"5 events: 1 matched, 0 unmatched, 4 ignored (1 null, 1 type, 2 no_change), 0 rejected" in told.stdout


def test_a_layout_that_finds_nothing_in_any_event_is_said_with_the_one_that_would(run: Run, place: Path) -> None:
    event = b'{"op": "c", "after": {"amount": 250}, "source": {"table": "orders"}}\n'
    (place / "d.jsonl").write_bytes(event * 3 + b"null\n")
    says = b"d.jsonl: the events have no collection, type or document at the layout's places; --format debezium would fit\n"
    for command in ("match", "stats"):
        ran = run(command, "-s", "subs.jsonl", "d.jsonl")
        assert ran.returncode == 0
        assert ran.stderr.endswith(says)
        assert says not in run(command, "-s", "subs.jsonl", "events.jsonl").stderr
    assert says not in run("match", "-q", "-s", "subs.jsonl", "d.jsonl").stderr
    ran = run("match", "-s", "subs.jsonl", "--format", "debezium", "events.jsonl")
    assert b"--format change would fit" in ran.stderr


def test_a_huge_line_is_that_lines_error_and_is_not_held(place: Path) -> None:
    piece = b"x" * (1 << 20)
    with subprocess.Popen(
        (*COMMAND, "match", "-s", "subs.jsonl", "-o", "ids"),
        cwd=place,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        for _ in range(400):
            process.stdin.write(piece)
        peak = memory(process.pid)
        output, errors = process.communicate(b"\n" + EVENTS)
    assert output == b"big\npaid\n"
    assert errors.startswith(b"<stdin>:1: too_long at byte 16777216: ")
    assert process.returncode == 1
    assert peak < 200 << 20


def memory(process: int) -> int:
    """Return the resident size of a process in bytes."""
    kilobytes = subprocess.run(["ps", "-o", "rss=", "-p", str(process)], capture_output=True, text=True, check=True).stdout
    return int(kilobytes) * 1024


def test_layout_tenant_and_collection_may_be_given(run: Run, place: Path) -> None:
    (place / "subs.jsonl").write_text(
        '{"id": "s", "tenant": "acme", "collection": "c", "filters": [{"field": "n", "op": "==", "value": 1}]}'
    )
    assert run("match", "-s", "subs.jsonl", "-o", "ids", stdin=b'{"data": {"n": 1}}').stdout == b""
    given = ("--tenant", "acme", "--collection", "c")
    assert run("match", "-s", "subs.jsonl", "-o", "ids", *given, stdin=b'{"data": {"n": 1}}').stdout == b"s\n"
    assert run("match", "-s", "subs.jsonl", "-o", "ids", "--format", "document", *given, stdin=b'{"n": 1}').stdout == b"s\n"
    (place / "layout.json").write_text('{"data": "/payload", "tenant": "/who", "collection": "/what"}')
    event = b'{"payload": {"n": 1}, "who": "acme", "what": "c"}'
    assert run("match", "-s", "subs.jsonl", "-o", "ids", "--layout", "layout.json", stdin=event).stdout == b"s\n"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("--format", "nosuch"), b"--format nosuch: unknown format 'nosuch'; expected one of change, debezium, "),
        (("--format", "json"), b"; for the output set --output json\n"),
        (("--layout", "nosuch"), b"--layout nosuch: No such file or directory"),
        (("--format", "change", "--layout", "subs.jsonl"), b"set --format or --layout, not both"),
    ],
)
def test_a_format_or_layout_that_does_not_exist_is_refused(run: Run, given: tuple[str, ...], says: bytes) -> None:
    ran = run("match", "-s", "subs.jsonl", "events.jsonl", *given)
    assert (ran.returncode, ran.stdout) == (2, b"")
    assert says in ran.stderr


def test_the_name_of_a_format_as_the_layout_still_works_and_names_the_option(run: Run) -> None:
    ran = run("match", "-s", "subs.jsonl", "events.jsonl", "--layout", "change")
    assert ran.stdout == run("match", "-s", "subs.jsonl", "events.jsonl").stdout
    assert ran.stderr.startswith(b"--layout change: it is the name of a format: set --format change\n")


def test_a_bad_subscription_stops_match_and_names_line_and_place(run: Run, place: Path) -> None:
    (place / "subs.jsonl").write_bytes(SUBSCRIPTIONS + b'\n{"id": "x", "filters": [{"field": "a", "op": "~", "value": 1}]}\n')
    ran = run("match", "-s", "subs.jsonl", "events.jsonl")
    assert (ran.returncode, ran.stdout) == (2, b"")
    assert ran.stderr.startswith(b"subs.jsonl:4: ")
    assert b"filters[0].op" in ran.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("match", "-s", "nosuch.jsonl", "events.jsonl"), b"nosuch.jsonl: No such file"),
        (("match", "-s", "subs.jsonl", "nosuch.jsonl"), b"nosuch.jsonl: No such file"),
        (("match", "-s", "subs.jsonl", "."), b".: Is a directory"),
        (("match", "events.jsonl"), b"Missing option"),
        (("match", "-s", "subs.jsonl", "events.jsonl", "--output", "xml"), b"'xml' is not"),
        (("explain", "-s", "subs.jsonl", "--id", "nosuch", "events.jsonl"), b"unknown subscription 'nosuch'"),
        (("plan", "-s", "subs.jsonl", "--id", "nosuch"), b"unknown subscription 'nosuch'"),
        (("nosuch",), b"nosuch"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_usage_is_exit_code_2_and_says_what_is_wrong(run: Run, arguments: Sequence[str], says: bytes) -> None:
    ran = run(*arguments)
    assert ran.returncode == 2
    assert says in ran.stderr
    assert b"Traceback" not in ran.stderr


def test_a_reader_that_goes_away_ends_it_quietly_as_sigpipe_does(place: Path) -> None:
    (place / "events.jsonl").write_bytes(EVENTS * 20_000)
    with subprocess.Popen(
        (*COMMAND, "match", "-s", "subs.jsonl", "events.jsonl"), cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert b'"big"' in process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == -signal.SIGPIPE


def test_output_that_cannot_be_written_is_exit_code_2_and_says_so(place: Path) -> None:
    def full() -> None:
        # A file may grow to 4 KiB; writing on is an error.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    (place / "events.jsonl").write_bytes(EVENTS * 1_000)
    with (place / "out").open("wb") as out:
        command = (*COMMAND, "match", "-s", "subs.jsonl", "events.jsonl", "-q")
        ran = subprocess.run(command, cwd=place, stdout=out, stderr=subprocess.PIPE, preexec_fn=full, timeout=60)
    assert ran.returncode == 2
    assert ran.stderr == b"streamer: File too large\n"


def test_ctrl_c_prints_the_summary_so_far_and_ends_with_130(place: Path) -> None:
    with subprocess.Popen(
        (*COMMAND, "match", "-s", "subs.jsonl", "-o", "ids", "--line-buffered"),
        # A shell starts what it runs in the background with Ctrl-C ignored, and so these tests.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        cwd=place,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(EVENTS)
        process.stdin.flush()
        # Each event is matched as it comes, while the pipe stays open.
        assert process.stdout.readline() + process.stdout.readline() == b"big\npaid\n"
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert errors.startswith(b"interrupted: 3 events, 2 matches")
    assert b"Traceback" not in errors


def test_every_file_of_subscriptions_that_is_named_is_read(run: Run, place: Path) -> None:
    (place / "more.jsonl").write_text('{"id": "more"}\n')
    ran = run("match", "-s", "subs.jsonl", "-s", "more.jsonl", "-o", "ids", "-q", "events.jsonl")
    assert ran.stdout == b"big\nmore\npaid\nmore\nmore\n"
    assert run("check", "-s", "subs.jsonl", "-s", "more.jsonl").stderr == b"3 good subscriptions\n"
    assert run("plan", "-s", "more.jsonl", "-s", "subs.jsonl", "--id", "paid").returncode == 0
    ran = run("match", "-s", "subs.jsonl", "-s", "-", "-o", "ids", "-q", "events.jsonl", stdin=b'{"id": "more"}')
    assert ran.stdout == b"big\nmore\npaid\nmore\nmore\n"
    for given in (("-s", "-", "-s", "-"), ("-s", "subs.jsonl", "-s", "-", "-")):
        ran = run("match", *given)
        assert (ran.returncode, ran.stdout) == (2, b"")
        assert b"cannot both come from standard input" in ran.stderr


def test_an_id_that_two_files_have_is_named_with_its_file(run: Run, place: Path) -> None:
    (place / "more.jsonl").write_text('{"id": "big"}\n{"id": "x"}\n{"id": "x"}\n')
    ran = run("check", "-s", "subs.jsonl", "-s", "more.jsonl")
    assert ran.returncode == 1
    assert ran.stdout.decode().splitlines() == [
        "more.jsonl:1: subscription 'big': id: an earlier file has this id already",
        "more.jsonl:3: subscription 'x': id: this id appears twice in the file",
    ]


def test_explain_tells_of_a_file_with_one_event_and_of_a_line(run: Run, place: Path) -> None:
    (place / "event.json").write_text(json.dumps({"collection": "orders", "data": {"amount": 250}}, indent=2))
    whole = run("explain", "-s", "subs.jsonl", "--id", "big", "event.json")
    assert whole.returncode == 0
    assert b"250" in whole.stdout
    line = run("explain", "-s", "subs.jsonl", "--id", "big", "--line", "3", stdin=EVENTS)
    assert line.returncode == 0
    assert b"7" in line.stdout
    assert whole.stdout != line.stdout


def test_explain_of_a_file_with_several_events_asks_for_a_line(run: Run) -> None:
    ran = run("explain", "-s", "subs.jsonl", "--id", "big", "events.jsonl")
    assert ran.returncode == 1
    assert b"events.jsonl: malformed_json" in ran.stderr
    assert b"--line" in ran.stderr
    assert run("explain", "-s", "subs.jsonl", "--id", "big", "events.jsonl", "--line", "2").returncode == 2


def test_plan_prints_one_or_all(run: Run) -> None:
    one, every = run("plan", "-s", "subs.jsonl", "--id", "paid"), run("plan", "-s", "subs.jsonl")
    assert one.returncode == every.returncode == 0
    assert one.stdout in every.stdout
    assert b"big" in every.stdout
    assert b"big" not in one.stdout


def test_lint_prints_what_it_finds_and_tells_by_its_exit_code(run: Run, place: Path) -> None:
    assert run("lint", "-s", "subs.jsonl").returncode == 0
    never = {"id": "never", "filters": [{"field": "a", "op": ">", "value": 2}, {"field": "a", "op": "<", "value": 1}]}
    (place / "subs.jsonl").write_text(json.dumps(never))
    ran = run("lint", "-s", "subs.jsonl")
    assert ran.returncode == 1
    assert ran.stdout.startswith(b"never: never_matches: ")


def test_lint_of_events_finds_what_none_of_them_has(run: Run, place: Path) -> None:
    lint = ("lint", "-s", "subs.jsonl", "--events", "events.jsonl")
    ran = run(*lint)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"events.jsonl: 3 events looked at\n")
    typo = {"id": "typo", "collection": "orders", "filters": [{"field": "amuont", "op": ">", "value": 2}]}
    with (place / "subs.jsonl").open("a") as file:
        file.write(json.dumps(typo) + "\n")
    ran = run(*lint)
    says = "filters[0].field: data.amuont is in none of 3 events of 'orders'; data.amount is"
    assert (ran.returncode, ran.stdout.decode()) == (1, f"typo: not_in_events: {says}\n")
    (told,) = map(json.loads, run(*lint, "-o", "json").stdout.splitlines())
    assert (told["file"], told["line"], told["code"], told["reason"]) == ("subs.jsonl", 3, "not_in_events", says)
    ran = run(*lint, "-o", "github")
    assert ran.stdout.decode() == f"::warning file=subs.jsonl,line=3,title=not_in_events::typo: not_in_events: {says}\n"


def test_lint_reads_events_as_the_other_commands_do(run: Run, place: Path) -> None:
    (place / "subs.jsonl").write_text('{"id": "s", "collection": "users", "filters": [{"field": "a", "op": "==", "value": 1}]}')
    good = b'{"collection": "users", "data": {"a": 1}}\n'
    for text in (good, gzip.compress(good)):
        assert run("lint", "-s", "subs.jsonl", "--events", "-", stdin=text).returncode == 0
    # Bad lines are named, and the others count.
    ran = run("lint", "-s", "subs.jsonl", "--events", "-", stdin=b"{\n\n" + good + b'{"data": 1}\n')
    assert (ran.returncode, ran.stdout) == (1, b"")
    assert [line.split(b" ")[0] for line in ran.stderr.splitlines()] == [b"<stdin>:1:", b"<stdin>:4:", b"<stdin>:"]
    ran = run("lint", "-s", "subs.jsonl", "--events", "-", "--max-events", "1", stdin=b'{"collection": "x"}\n' + good)
    assert ran.stdout == b"s: not_in_events: collection: 'users' is in none of 1 event\n"
    assert ran.stderr == b"<stdin>: 1 event looked at; there are more, of which --max-events takes some\n"
    ran = run("lint", "-s", "subs.jsonl", "--events", "-", stdin=gzip.compress(good)[:-9])
    assert (ran.returncode, ran.stderr) == (2, b"streamer: <stdin>:2: the gzip data is cut off\n")
    assert run("lint", "-s", "-", "--events", "-", stdin=good).returncode == 2
    assert run("lint", "-s", "subs.jsonl", "--events", "-", "--collection", "*", stdin=good).returncode == 2
    assert run("lint", "-s", "subs.jsonl", "--events", "-", "--collection", "users", stdin=b'{"data": {"a": 1}}').returncode == 0


def test_lint_of_events_that_the_layout_does_not_fit_says_so(run: Run, place: Path) -> None:
    (place / "subs.jsonl").write_text('{"id": "s", "collection": "users", "filters": [{"field": "a", "op": "==", "value": 1}]}')
    record = b'{"payload": {"op": "c", "after": {"a": 1}, "source": {"table": "users"}}}'
    ran = run("lint", "-s", "subs.jsonl", "--events", "-", stdin=record)
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[1].endswith(b"; --format debezium would fit")
    assert run("lint", "-s", "subs.jsonl", "--events", "-", "--format", "debezium", stdin=record).returncode == 0


def test_check_prints_every_error_with_line_and_place(run: Run, place: Path) -> None:
    good = run("check", "-s", "subs.jsonl")
    assert (good.returncode, good.stdout, good.stderr) == (0, b"", b"2 good subscriptions\n")
    bad = b"""\
{"id": "a", "filters": [{"field": "a", "op": "~", "value": 1}]}
{"id": "b"}

{"id": "b"}
{"id": "c", "pattern": {"data": {"x": []}}}
{"id": "d", "cel": "data.a +"}
nonsense
"""
    (place / "subs.jsonl").write_bytes(bad)
    ran = run("check", "-s", "subs.jsonl")
    assert ran.returncode == 1
    printed = ran.stdout.decode().splitlines()
    assert [line.split(": ")[0] for line in printed] == [f"subs.jsonl:{number}" for number in (1, 4, 5, 6, 7)]
    assert "filters[0].op" in printed[0]
    assert "pattern.data.x" in printed[2]
    assert "line 1, column " in printed[3]
    assert ran.stderr == b"5 bad subscriptions\n"


def test_what_each_command_does_fits_a_terminal() -> None:
    for group in (app, *(each for each in app.commands.values() if isinstance(each, click.Group))):
        width = max(map(len, group.commands))
        for name, command in group.commands.items():
            assert not command.get_short_help_str(80 - width - 6).endswith("..."), name


def test_help_names_the_exit_codes(run: Run) -> None:
    ran = run("match", "--help")
    assert ran.returncode == 0
    for words in (b"0 all is well", b"1 some events were bad", b"130 interrupted"):
        assert words in ran.stdout


def test_version_names_the_backend(run: Run, backend: str) -> None:
    assert backend in run("--version").stdout.decode()


def test_percentiles_are_at_most_six_percent_too_low() -> None:
    histogram = Histogram()
    assert histogram.percentile(0.5) == 0
    for nanoseconds in range(1, 100_001):
        histogram.add(nanoseconds)
    for share in (0.01, 0.5, 0.99, 1.0):
        assert 0.94 * share * 100_000 <= histogram.percentile(share) <= share * 100_000


def test_stats_prints_a_table_or_json(run: Run) -> None:
    printed = run("stats", "-s", "subs.jsonl", "events.jsonl")
    assert printed.returncode in (0, 1)
    assert b"COLLECTION" in printed.stdout
    assert b"p50 " in printed.stdout
    assert b", p99.9 " in printed.stdout
    told = json.loads(run("stats", "-s", "subs.jsonl", "events.jsonl", "--output", "json").stdout)
    assert list(told["percentiles"]) == ["p50", "p99", "p99.9"]
    assert 0 < told["percentiles"]["p50"] <= told["percentiles"]["p99.9"]
    assert told["events"] == told["matched"] + told["unmatched"] + told["rejected"] > 0
    assert (printed.returncode == 1) == (told["rejected"] > 0)
    held = run("stats", "-s", "subs.jsonl")
    assert (held.returncode, b"\n0 events" in held.stdout) == (0, True)


def test_help_names_every_default(run: Run) -> None:
    told = " ".join(run("match", "--help").stdout.decode().split())
    assert all(f"[default: {name}]" in told for name in ("change", "default", "full", "jsonl", "-"))


def test_where_nothing_was_matched_no_time_is_told(run: Run) -> None:
    told = run("match", "-s", "subs.jsonl", stdin=b"").stderr.decode()
    assert told.startswith("0 events, 0 matches, 0 bad events; ")
    assert "p50" not in told


def many(place: Path) -> None:
    subs = ({"id": f"s{n}", "collection": "orders", "filters": [{"field": "a", "op": "==", "value": n}]} for n in range(100))
    (place / "many.jsonl").write_text("".join(json.dumps(each) + "\n" for each in subs))
    (place / "all.jsonl").write_text('{"id": "all"}')
    (place / "more.jsonl").write_text("".join(f'{{"collection": "orders", "data": {{"a": {n}}}}}\n' for n in range(2000)))


def test_stats_draws_what_the_filters_did_and_plot_draws_it_again(run: Run, place: Path) -> None:
    pytest.importorskip("matplotlib")
    many(place)
    drawn = run("stats", "-s", "many.jsonl", "more.jsonl", "--plot", "one.png", "--history", "history.jsonl")
    assert (drawn.returncode, drawn.stderr) == (0, b"drawn: one.png\n")
    assert drawn.stdout.startswith(b"100 subscriptions")
    samples = [json.loads(line) for line in (place / "history.jsonl").read_text().splitlines()]
    assert samples[-1]["filters"][0]["asked"] == 2000
    again = run("plot", "history.jsonl", "two.png")
    assert (again.returncode, again.stdout) == (0, b"")
    assert (place / "two.png").read_bytes() == (place / "one.png").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("stats", "-s", "subs.jsonl", "--plot", "a.png"), b"--plot and --history show what happens while EVENTS are matched"),
        (("stats", "-s", "subs.jsonl", "events.jsonl", "--plot", "a.xyz"), b"a.xyz: expected a name that ends in .png, .svg"),
        (("stats", "-s", "all.jsonl", "events.jsonl", "--plot", "a.png"), b"cannot draw: no collection has a filter"),
        (("stats", "-s", "many.jsonl", "more.jsonl", "--plot", "no/a.png"), b"no/a.png: No such file or directory"),
        (("stats", "-s", "many.jsonl", "more.jsonl", "--history", "no/a"), b"no/a: No such file or directory"),
        (("plot", "nothing.jsonl", "a.png"), b"nothing.jsonl: No such file or directory"),
        (("plot", "subs.jsonl", "a.png"), b"subs.jsonl: line 1: this is not a sample of an engine"),
    ],
)
def test_what_cannot_be_drawn_is_said_on_one_line(run: Run, place: Path, arguments: Sequence[str], told: bytes) -> None:
    pytest.importorskip("matplotlib")
    many(place)
    ran = run(*arguments)
    assert ran.returncode == 2
    assert told in ran.stderr
    assert len(ran.stderr.splitlines()) == 1
