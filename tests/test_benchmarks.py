"""Every benchmark runs, and finds the matches that it must."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import (
    bloom,
    build,
    changes,
    console,
    core,
    edge,
    load,
    lowered,
    memory,
    metrics,
    operators,
    python_peers,
    real,
    service,
    shapes,
    snapshot,
    steady,
    streams,
    training,
)
from benchmarks.__main__ import BENCHMARKS
from benchmarks.measure import Case, WrongMatches, run
from examples.flights import generated, records
from examples.flights.__main__ import HAND_WRITTEN
from streamer import Engine
from streamer.engine.costs import play
from tests.tools import postgres

ROOT = Path(__file__).parents[1]
QUICK = "mixed"


@pytest.mark.parametrize(
    "name", ["mixed", *(pytest.param(name, marks=pytest.mark.slow) for name in BENCHMARKS if name != "mixed")]
)
def test_a_benchmark_finds_the_matches_that_it_must(name: str, backend: str) -> None:
    smoke = [case for case in BENCHMARKS[name].CASES if case.smoke]
    assert smoke
    for case in smoke:
        assert name in run(BENCHMARKS[name], case)


def test_a_benchmark_that_finds_another_number_of_matches_fails(backend: str) -> None:
    wrong = Case("mixed", subscriptions=10, events=10, matches=10_000)
    with pytest.raises(WrongMatches, match="matches on the"):
        run(BENCHMARKS["mixed"], wrong)


@pytest.mark.slow
def test_the_edge_finds_the_matches_that_it_must(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    edge.main(["--smoke"])
    told = capsys.readouterr().out
    assert "ns a match" in told
    assert [goal.figure for goal in edge.GOALS if f" {goal.figure} " not in told] == []


@pytest.mark.slow
def test_with_phase_1_and_without_it_and_sketched_the_same_is_found(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    bloom.main(["--smoke"])
    table = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    kinds = len(bloom.KINDS) * len(bloom.KIND_SMOKE)
    assert len(table) == 4 + 3 + (len(bloom.SMOKE) + kinds) * len(bloom.SHARES)


@pytest.mark.slow
def test_what_counting_costs_is_measured_on_the_right_matches(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    metrics.main(["--smoke"])
    assert capsys.readouterr().out.count("each matches one") == 2


@pytest.mark.slow
def test_what_holes_and_old_documents_cost_is_measured_on_the_right_matches(
    backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    changes.main(["--smoke"])
    assert capsys.readouterr().out.count("transitions") == 2


@pytest.mark.slow
def test_cel_and_the_same_as_filters_find_the_same(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    lowered.main(["--smoke"])
    assert "times as long to match" in capsys.readouterr().out


def test_no_way_of_asking_grows_with_the_subscriptions_but_those_known_to(
    backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An event looks at as much in an engine of ten times as many subscriptions; what is known to grow does grow."""
    operators.main(["--smoke"])
    assert capsys.readouterr().out.count(" looked at") == len(operators.WAYS) > 120
    assert operators.KNOWN.keys() < {way.name for way in operators.WAYS}


def test_a_way_of_asking_that_grows_must_be_known() -> None:
    small, large = (operators.Cost(0.0, None, looked_at, looked_at) for looked_at in (3, 300))
    plain, known = (next(way for way in operators.WAYS if (way.name in operators.KNOWN) is known) for known in (False, True))
    for way, costs in ((plain, (small, small)), (known, (small, large))):
        operators.check(way, *costs)
    with pytest.raises(WrongMatches, match="3 looked at, then 300"):
        operators.check(plain, small, large)
    with pytest.raises(WrongMatches, match="add it to OPEN"):
        operators.check(plain, small, operators.Cost(0.0, None, 3, 300))
    with pytest.raises(WrongMatches, match="take it off KNOWN"):
        operators.check(known, small, small)


@pytest.mark.slow
def test_what_could_be_installed_instead_finds_the_same_rules(
    backend: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    python_peers.main(["--smoke"])
    out = capsys.readouterr().out
    header, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in out.splitlines() if line.startswith("|")]
    assert [row[0] for row in rows[1:]] == [f"{count:,}" for count in python_peers.SMOKE]
    assert {"streamer", "lambdas", "cel-python"} <= set(header)
    assert "–" not in {row[header.index("cel-python")] for row in rows}
    monkeypatch.setitem(python_peers.SMOKE, 10, 3)
    with pytest.raises(WrongMatches, match="10 rules: 1 matches, expected 3"):
        python_peers.main(["--smoke", "--peers", "lambdas"])


@pytest.mark.slow
def test_a_peer_that_finds_other_ids_fails_the_run(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = python_peers.Peer("orjson", lambda given: lambda texts: [["0"] for _ in texts])
    monkeypatch.setitem(python_peers.PEERS, "cel-python", wrong)
    with pytest.raises(WrongMatches, match="cel-python finds"):
        python_peers.main(["--smoke", "--peers", "cel-python"])


@pytest.mark.slow
def test_many_conditions_and_columns_of_numpy_find_the_same(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("numpy")
    from benchmarks import dense

    dense.main(["--smoke"])
    told = capsys.readouterr().out
    assert [kind.name for kind in dense.KINDS if kind.name not in told] == []


@pytest.mark.slow
def test_what_was_saved_finds_the_matches_that_it_must(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    snapshot.main(["--smoke"])
    assert f"| matches | {snapshot.CASES[min(snapshot.CASES)]:,} |" in capsys.readouterr().out


@pytest.mark.slow
def test_under_load_the_matches_are_those_that_there_must_be_also_beside_changes(
    backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    load.main(["--smoke"])
    told = capsys.readouterr().out
    assert told.count("| latency | p50 ") == told.count("p99.9 ") / 2 == len(load.SMOKE)
    assert "300 in 2 collections" in told
    assert ", 0 changes/s |" in told
    assert told.count("| CEL cache |") == len(load.SMOKE)


@pytest.mark.slow
def test_each_kind_of_which_memory_is_measured_matches_what_it_must(capsys: pytest.CaptureFixture[str]) -> None:
    memory.main(["--smoke"])
    told = capsys.readouterr().out
    assert all(f"| {kind} | 1" in told for kind in (*memory.KINDS, "all four, 800"))


@pytest.mark.slow
def test_what_two_builds_find_is_compared(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    if backend != "native":
        pytest.skip("a core is what is built")
    build.main(["--smoke"])
    table = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| W")]
    assert len(table) == len(build.SMOKE)


@pytest.mark.slow
def test_a_core_is_trained_with_events_that_match(backend: str) -> None:
    found = training.main(count=500, events=30, rounds=1)
    assert len(found) == 12
    many = {name: matches for name, matches in found.items() if "500 subscriptions" in name}
    assert len(many) == 4
    assert all(many.values())


def test_the_seconds_of_a_crate_are_those_of_cargo() -> None:
    units = '[{"name": "a", "duration": 1.5}, {"name": "a", "duration": 0.5}, {"name": "b", "duration": 1}]'
    assert build.crates(f"<script>\nconst UNIT_DATA = {units};\nlet x = 1;") == {"a": 2.0, "b": 1.0}
    with pytest.raises(ValueError, match="UNIT_DATA"):
        build.crates("<script></script>")


@pytest.mark.integration
def test_events_of_real_shape_match_what_they_must_by_turns_with_another_checkout(
    backend: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real.main(["--smoke"])
    assert capsys.readouterr().out.count("whole over parts") == 4
    # Each kind has a process of its own in each checkout, so those by turns are few.
    made = list(shapes.github_subscriptions(2)), {"events": list(shapes.github_events(5))}
    few = real.Set("github", "document", *made, matches={"events": 0})
    monkeypatch.setattr(real, "sets", lambda *_: [few])
    real.main(["--smoke", "--beside", str(ROOT)])
    assert capsys.readouterr().out.count("| match_ids by turns |") == 1
    few.matches["events"] = 1
    with pytest.raises(WrongMatches, match="github, events"):
        real.main(["--smoke"])


@pytest.mark.slow
def test_each_page_of_the_console_says_what_it_must(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    console.main(["--smoke"])
    told = capsys.readouterr().out
    assert told.count("| 50 |") == 14
    assert f"| {max(console.WATCHERS)} |" in told


def test_an_event_that_waits_for_the_one_before_it_is_late_by_that() -> None:
    class Slow:
        """Takes 50 ms for its first event, nothing for all others."""

        calls = 0

        def match_ids(self, event: bytes) -> list[str]:
            self.calls += 1
            if self.calls == 1:
                time.sleep(0.05)
            return ["a"]

    played = play(Slow().match_ids, [b"{}"], rate=1_000, count=40)
    assert played.matches == 40
    assert min(played.latencies[:30]) > 10_000_000, "due within the first 30 ms, and answered after 50"
    assert sorted(played.alone)[20] < 5_000_000


@pytest.mark.later_on_the_reference
def test_the_demo_replays_real_flights_to_subscriptions_of_every_kind(backend: str) -> None:
    engine = Engine()
    engine.add_jsonl(HAND_WRITTEN)
    written = set(engine)
    engine.add_many(generated.subscriptions(50))
    matched: Counter[str] = Counter()
    for event in records.events(every=1_500):
        matched.update(engine.match_ids(event))
    # The small tables are replayed whole: what their rows say, these must find.
    expected = {"old-planes": 8, "year-unknown": 70, "usairways-tails": 143, "high-airports": 12, "jetblue": 1, "pacific": 100}
    assert {name: matched[name] for name in expected} == expected
    assert len(written & set(matched)) > len(expected)


def test_each_client_of_a_stream_gets_what_it_must(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    streams.main(["--smoke"])
    assert capsys.readouterr().out.count("| 5,000 |") == len(streams.SMOKE)


@pytest.mark.slow
@pytest.mark.parametrize(("what", "rows"), [("restart", 3), ("import", 4)])
def test_a_whole_service_starts_and_imports_what_it_must(what: str, rows: int, capsys: pytest.CaptureFixture[str]) -> None:
    service.main([f"--{what}", "--smoke"])
    assert len(capsys.readouterr().out.splitlines()) == 2 + rows


@pytest.mark.slow
def test_at_a_steady_rate_a_match_is_timed_from_when_its_event_was_due(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    steady.main(["--smoke"])
    table = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len(table) == 2 + len(steady.SMOKE)


def test_the_service_and_a_loop_find_the_matches_that_they_must(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    service.main(["--smoke"])
    out = capsys.readouterr().out
    assert out.count("matches an event") == len(service.SMOKE)
    assert out.count(" a request |") == len(service.POSTING_SMOKE)


def test_changes_of_postgres_find_the_matches_that_they_must(
    backend: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if (reason := postgres.missing()) is not None:
        pytest.skip(reason)
    cluster = postgres.Cluster()
    try:
        monkeypatch.setenv("PG", cluster.dsn())
        service.main(["--smoke", "--postgres", "PG"])
    finally:
        cluster.close()
    assert "from PostgreSQL | 400 |" in capsys.readouterr().out


def test_the_events_of_a_folder_find_what_its_subscriptions_want(tmp_path: Path, backend: str) -> None:
    wanted = [f'{{"id":"s{n}","collection":"c","filters":[{{"field":"a","op":"<=","value":{n}}}]}}' for n in range(4)]
    (tmp_path / "subscriptions.jsonl").write_text("\n".join(wanted))
    (tmp_path / "events.jsonl").write_text("\n".join(f'{{"collection":"c","data":{{"a":{n}}}}}' for n in range(4)))
    figures = core.measure(tmp_path)
    assert (figures.subscriptions, figures.each) == (4, 2.5)
    assert 0 < figures.p50 <= figures.p99
