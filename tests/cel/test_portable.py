"""Expressions on cel-python: the same matches as natively, under the same limits, on candidates only."""

from __future__ import annotations

import gc
import json
import logging
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamer import CelError, ConfigError, Engine, EventError, Limits, SnapshotError, Subscription, SubscriptionError
from streamer.cel_eval import CelReason, Functions, ProgramCache, evaluate_cel
from streamer.model import Event, Verdict
from tests.differential.cel_expressions import Expressions

MakeEngine = Callable[..., Engine]
LIMITS = Limits()


class Clock:
    """A processor whose time goes on by so many nanoseconds with each look, or when it is told."""

    def __init__(self, step: int = 0) -> None:
        self.now, self.step, self.looks = 0, step, 0

    def __call__(self) -> int:
        self.now += self.step
        self.looks += 1
        return self.now


@pytest.fixture(autouse=True)
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no time go by but where a test says so: how fast a machine is changes nothing here."""
    monkeypatch.setattr("streamer.cel_eval.portable.clock", Clock())


def portable(subscription_id: str, cel: str, **members: Any) -> dict[str, Any]:
    return {"id": subscription_id, "cel": cel, "cel_evaluator": "portable", **members}


def event(data: Any, **members: Any) -> bytes:
    return json.dumps({"type": "insert", "data": data, **members}).encode()


def outcome(source: str, data: dict[str, Any], budget: int = LIMITS.cel_budget, **functions: Callable[..., Any]) -> Any:
    cache = ProgramCache(functions=Functions(functions), evaluator="portable")
    return evaluate_cel(cache.compile(source, LIMITS), Event(raw={}, tenant="t", data=data, data_at=("data",)), budget)


# --- who evaluates


def test_a_subscription_chooses_its_evaluator_and_the_engine_that_of_all_others(engine: MakeEngine) -> None:
    e = engine(cel_evaluator="portable")
    e.add({"id": "said", "cel": "data.n + 1 == 2", "cel_evaluator": "native"})
    e.add(Subscription(id="unsaid", cel="data.n + 1 == 2"))
    e.add(Subscription(id="without"))
    assert [e.plan(name).evaluator for name in e] == ["native", "portable", None]
    assert sorted(e.match_ids(event({"n": 1}))) == ["said", "unsaid", "without"]
    assert e.match_ids(event({"n": 2})) == ["without"]
    assert [e.get(name).cel_evaluator for name in e] == ["native", None, None]


@pytest.mark.parametrize("value", ["cel-python", "", None, 1, ["portable"]])
def test_an_evaluator_that_is_none_is_refused_with_its_place(engine: MakeEngine, value: Any) -> None:
    with pytest.raises(SubscriptionError) as caught:
        engine().add({"id": "s", "cel": "true", "cel_evaluator": value})
    assert (caught.value.place, caught.value.subscription_id) == ("cel_evaluator", "s")
    with pytest.raises(ConfigError) as refused:
        engine(cel_evaluator=value)
    assert refused.value.place == "cel_evaluator"


def test_a_configuration_chooses_for_all_and_needs_a_new_engine_to_choose_otherwise(tmp_path: Path, backend: str) -> None:
    path = tmp_path / "streamer.yaml"
    path.write_text("matching: {cel: {evaluator: portable}}\n")
    e = Engine.from_config(path, cel_functions={"even": lambda n: n % 2 == 0})
    e.add({"id": "s", "cel": "even(data.n) && data.n + 0 == 2"})
    assert e.match_ids(event({"n": 2})) == ["s"]
    path.write_text("matching: {cel: {evaluator: native}}\n")
    with pytest.raises(ConfigError, match="make a new engine"):
        e.reload()
    path.write_text("matching: {cel: {evaluator: portable, evaluation_timeout: 1us}}\n")
    e.reload()
    assert e.match_ids(event({"n": 2})) == []
    assert dict(e.cel_errors) == {"budget": 1}


def test_cel_python_is_imported_by_the_first_expression_that_needs_it(backend: str) -> None:
    program = (
        "import sys, streamer; e = streamer.Engine(); e.add({'id': 's', 'cel': 'data.a > 1'}); e.match({'data': {'a': 2}});"
        "assert 'celpy' not in sys.modules; e.add({'id': 't', 'cel': 'true', 'cel_evaluator': 'portable'});"
        "assert 'celpy' in sys.modules"
    )
    environment = {"STREAMER_BACKEND": backend, "PYTHONPATH": ":".join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)


def test_without_cel_python_the_error_says_what_is_missing(engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "celpy", None)
    monkeypatch.delitem(sys.modules, "streamer.cel_eval.portable", raising=False)
    e = engine()
    with pytest.raises(CelError, match="needs cel-python"):
        e.add(portable("s", "data.only_here == 17"))
    assert len(e) == 0


@pytest.mark.parametrize(
    ("text", "cel"),
    [
        ("0", "duration(data.t) == duration('0s')"),
        ("-0", "duration(data.t) == duration('0s')"),
        ("+0", "duration(data.t) <= duration('0')"),
        ("2024-02-29t12:00:00z", "timestamp(data.t) == timestamp(1709208000)"),
        ("2024-02-29T12:00:00z", "timestamp(data.t).getHours() == 12"),
        ("2024-02-29t13:00:00.5+01:00", "timestamp(data.t) - timestamp('2024-02-29T12:00:00Z') == duration('500ms')"),
    ],
)
def test_times_are_read_in_every_spelling_that_the_contract_reads(engine: MakeEngine, text: str, cel: str) -> None:
    e = engine()
    e.add_many([portable("portable", cel)])
    assert (e.match_ids(event({"t": text})), dict(e.cel_errors)) == (["portable"], {})


# --- the same matches


def test_random_expressions_come_to_the_same_as_on_the_reference() -> None:
    """All but those on times, which cel-python keeps in microseconds and in other zones."""
    cache, seen = ProgramCache(), set()
    for seed in range(1500):
        expressions = Expressions(seed)
        source, data = expressions.program(), expressions.document()
        if any(word in source for word in ("timestamp", "duration", "get", "Timestamp", "Duration", "ts")):
            continue
        try:
            ours = cache.compile(source, LIMITS, "native")
        except CelError:
            with pytest.raises(CelError):
                cache.compile(source, LIMITS, "portable")
            continue
        subject = Event(raw={"data": data}, tenant="t", data=data, data_at=("data",))
        expected = evaluate_cel(ours, subject, LIMITS.cel_budget)
        found = evaluate_cel(cache.compile(source, LIMITS, "portable"), subject, 100 * LIMITS.cel_budget)
        assert (found.verdict, found.reason) == (expected.verdict, expected.reason), source
        seen.add((found.verdict, found.reason))
    assert len(seen) >= 6


def test_sides_holes_and_soft_deletes_are_those_of_a_native_expression(engine: MakeEngine) -> None:
    cel = "data.n > 3 && data.l.exists(x, x == data.n)"
    e = engine(soft_delete="gone")
    for evaluator in ("native", "portable"):
        for name, members in {"plain": {}, "told": {"transitions": True}, "skips": {"on_unknown": "skip"}}.items():
            e.add({"id": f"{name} {evaluator}", "cel": cel, "cel_evaluator": evaluator, **members})
        e.add({"id": f"before {evaluator}", "cel": "before == null || before.n < data.n", "cel_evaluator": evaluator})
    yes, no, gone = {"n": 5, "l": [5]}, {"n": 1, "l": [5]}, {"n": 5, "l": [5], "gone": True}
    hidden = {"n": 5}
    outcomes = set()
    for data in (yes, no, gone, hidden, None):
        for before in (yes, no, gone, hidden, None):
            for kind in ("insert", "update", "delete", None):
                for unknown in ([], ["/data/l"], ["/before/l"], ["/before"], ["/data/n", "/before/n"], ["/data/gone"], ["/type"]):
                    members = {"type": kind, "data": data, "before": before, "unknown": unknown}
                    matches = e.match(json.dumps({name: value for name, value in members.items() if value is not None}))
                    told = {match.subscription_id: (match.transition, match.certain) for match in matches}
                    for name in ("plain", "told", "skips", "before"):
                        assert told.get(f"{name} portable") == told.get(f"{name} native"), (name, members)
                    outcomes |= set(told.values())
    assert len(outcomes) >= 7


@pytest.mark.later_on_the_reference
def test_every_way_of_matching_finds_the_same(engine: MakeEngine) -> None:
    e = engine(cel_functions={"third": lambda n: n % 3 == 0})
    e.add_many(portable(f"s{number}", f"third(data.n) && data.n > {number}", collection="c") for number in range(10))
    e.add({"id": "native", "cel": "data.n * 2 > 20", "collection": "c"})
    events = [event({"n": n}, collection="c") for n in range(300)]
    expected = [sorted(e.match_ids(one)) for one in events]
    assert expected[6] == [f"s{number}" for number in range(6)]
    assert [sorted(e.match(one).ids()) for one in events] == expected
    assert [e.match_count(one) for one in events] == list(map(len, expected))
    assert [e.matches_any(one) for one in events] == list(map(bool, expected))
    for threads in (1, 3):
        assert [sorted(found.ids()) for found in e.match_batch(events, threads=threads)] == expected
    lines = b"\n".join(events)
    assert [sorted(line.matches.ids()) for line in e.match_jsonl(lines)] == expected
    assert [sorted(e.match(json.loads(one)).ids()) for one in events] == expected
    pyarrow = pytest.importorskip("pyarrow")
    for threads in (1, 3):
        rows = e.match_arrow(pyarrow.array(events), threads=threads).matches.to_pylist()
        found = [sorted(row["subscription_id"] for row in rows if row["row"] == at) for at in range(300)]
        assert found == expected


def test_a_removed_or_replaced_subscription_is_no_longer_asked(engine: MakeEngine) -> None:
    e = engine()
    e.add(portable("s", "data.n + 1 == 2"))
    e.replace(portable("s", "data.n + 1 == 3"))
    assert (e.match_ids(event({"n": 1})), e.match_ids(event({"n": 2}))) == ([], ["s"])
    e.replace({"id": "s", "cel": "data.n + 1 == 2"})
    assert (e.match_ids(event({"n": 1})), e.match_ids(event({"n": 2}))) == (["s"], [])
    assert not e.apply([{"id": "s", "cel": "data.n + 1 == 2"}])
    assert e.apply([portable("s", "data.n + 1 == 2")]).replaced == ("s",)
    e.remove("s")
    assert e.match_ids(event({"n": 1})) == []


def test_a_bad_event_is_rejected_also_where_only_an_expression_reads_it(engine: MakeEngine) -> None:
    e = engine(validation="lazy")
    e.add(portable("s", "data.n + 1 == 2"))
    with pytest.raises(EventError):
        e.match_ids(b'{"data": {"n": 1, "o": [1,,2]}}')
    assert e.match_ids(event({"n": 1})) == ["s"]


# --- on candidates only


def test_other_parts_of_a_subscription_spare_the_expression(engine: MakeEngine) -> None:
    asked = []
    e = engine(cel_functions={"note": lambda name: asked.append(name) or True})
    e.add(portable("filter", "note('filter')", filters=[{"field": "a", "op": "==", "value": 7}]))
    e.add(portable("pattern", "note('pattern')", pattern={"data": {"a": [{"numeric": ["<", 3]}]}}))
    e.add(portable("topic", "note('topic')", topic="a.#"))
    e.add(portable("collection", "note('collection')", collection="c"))
    e.add(portable("types", "note('types')", types=["delete"]))
    assert e.match_ids(event({"a": 5})) == []
    assert asked == []
    for name, members in {
        "filter": {"data": {"a": 7}},
        "pattern": {"data": {"a": 2}},
        "topic": {"topic": "a.b"},
        "collection": {"collection": "c"},
        "types": {"type": "delete"},
    }.items():
        assert e.match_ids(json.dumps(members)) == [name]
        assert asked == [name]
        asked.clear()


def test_plan_stats_and_metrics_mark_what_cel_python_evaluates(engine: MakeEngine) -> None:
    from prometheus_client import CollectorRegistry

    e = engine()
    e.add(portable("s", "data.n + 1 == 2", filters=[{"field": "a", "op": "==", "value": 7}]))
    e.add(portable("same", "data.n + 1 == 2"))
    e.add({"id": "native", "cel": "data.n + 1 == 2"})
    plan = e.plan("s")
    assert (plan.evaluator, plan.cel, plan.cost) == ("portable", "data.n + 1 == 2", "keyed")
    assert "evaluated by cel-python on candidates" in str(plan)
    assert "cel-python" in plan.decided_by
    assert "cel-python" not in str(e.plan("native"))
    assert "cel-python" not in str(engine().stats())
    for _ in range(3):
        e.match(event({"n": 1}))
    stats = e.stats()
    assert (stats.portable_programs, stats.portable_runs) == (1, 3)
    assert stats.portable_seconds > 0
    assert "1 CEL program on cel-python, 3 evaluations" in str(stats)
    registry = CollectorRegistry()
    e.metrics.register(registry, name="1")
    told = {
        name: registry.get_sample_value(f"streamer_cel_portable_{name}", {"engine": "1"})
        for name in ("programs", "duration_seconds_count")
    }
    assert told == {"programs": 1, "duration_seconds_count": 3}
    assert "data.n + 1 == 2" in str(e.explain(event({"n": 1}), "s"))


def test_equal_programs_are_compiled_once_whichever_evaluator(engine: MakeEngine) -> None:
    for evaluator in ("native", "portable"):
        e = engine(cel_evaluator=evaluator)
        e.add_many({"id": f"s{number}", "cel": "data.l.exists(x, x > 1)"} for number in range(100))
        e.add({"id": "other", "cel": "data.l.exists(x, x > 2)"})
        cache = e._programs
        assert (cache.misses, cache.hits, cache.programs) == (2, 99, 2)


# --- limits


@pytest.mark.parametrize(
    ("source", "units"),
    [
        ("data.n == 5", 4),
        ("data.l.all(x, x > 0)", 3 + 3 * 4),
        ("data.n + 1 == 6", 6 + 15),
        ("!(data.n == 6)", 5 + 15),
        ("data.s.startsWith('a')", 4 + 1 + 50),
        ("data.s == data.s", 5 + 1),
        ("data.text == data.text", 5 + 7),
        ("data.text.matches('a{30}')", 4 + 196),
        ("second(data.l) == 2", 5 + 10 + 3),
    ],
)
def test_a_step_counts_as_ten_and_the_work_of_cel_python_as_more(source: str, units: int) -> None:
    data = {"n": 5, "l": [1, 2, 3], "s": "abc", "text": "a" * 1000}
    found = outcome(source, data, second=lambda items: items[1])
    assert (found.verdict, found.cost) == (Verdict.TRUE, 10 * units)
    assert outcome(source, data, 10 * units, second=lambda items: items[1]).verdict is Verdict.TRUE
    stopped = outcome(source, data, 10 * units - 1, second=lambda items: items[1])
    assert stopped.reason == "budget"
    assert stopped.detail == f"stopped after {10 * units - 1} cost units"


def test_a_slow_machine_stops_before_the_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    long = "data.l.all(x, data.l.all(y, x == y || true))"
    data = {"l": list(range(100))}
    whole = outcome(long, data)
    assert whole.verdict is Verdict.TRUE
    # A look at the beginning, and one each 2,000 units after.
    for step, looks in ((0, 1 + whole.cost // 20_000), (19_000_000, 6), (30_000_000, 4), (60_000_000, 2)):
        clock = Clock(step)
        monkeypatch.setattr("streamer.cel_eval.portable.clock", clock)
        found = outcome(long, data)
        assert clock.looks == looks
        assert found.verdict is (Verdict.ERROR if step else Verdict.TRUE)
        if step:
            assert found.reason == "budget"
            assert "of the processor's time" in found.detail
            assert found.cost < 20_000 * looks


def test_no_function_is_called_when_the_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, called = Clock(), []
    monkeypatch.setattr("streamer.cel_eval.portable.clock", clock)

    def slow(milliseconds: int) -> bool:
        called.append(milliseconds)
        clock.now += milliseconds * 1_000_000
        return True

    assert outcome("data.l.all(x, slow(10))", {"l": list(range(9))}, slow=slow).verdict is Verdict.TRUE
    assert len(called) == 9
    called.clear()
    stopped = outcome("data.l.all(x, slow(10))", {"l": list(range(1000))}, slow=slow)
    assert (stopped.reason, len(called)) == ("budget", 10)
    # One that nothing follows is not lost, however long it takes.
    assert outcome("slow(5000) && data.l.size() == 1", {"l": [1]}, slow=slow).verdict is Verdict.TRUE


def test_the_time_of_a_collection_of_all_objects_is_not_the_expressions(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("streamer.cel_eval.portable.clock", clock)

    def younger() -> bool:
        return gc.collect(1) >= 0

    def pause(generation: int) -> bool:
        gc.collect(generation)
        clock.now += 5_000_000_000
        return True

    functions = {"younger": younger, "pause": pause}
    assert outcome("younger() && pause(2) && younger()", {}, **functions).verdict is Verdict.TRUE
    assert outcome("younger() && pause(1) && younger()", {}, **functions).reason == "budget"


def test_an_expression_without_end_is_stopped_by_the_budget(engine: MakeEngine) -> None:
    e = engine()
    e.add(portable("cubed", "data.l.all(a, data.l.all(b, data.l.all(c, a + b + c >= 0)))"))
    e.add(portable("good", "data.l.size() + 1 == 61"))
    began = time.process_time()
    assert e.match_ids(event({"l": list(range(60))})) == ["good"]
    assert time.process_time() - began < 20
    assert dict(e.cel_errors) == {"budget": 1}


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("duration(data.evil) == duration('1s')", "bad_value"),
        ("timestamp(data.evil) == ts", "bad_value"),
        ("int(data.evil) == 1 || double(data.evil) == 1.0 || bool(data.evil)", "bad_value"),
        ("data.s.matches('(a+)+$') && data.s.matches(data.evil + '(a+)+$')", None),
        ("data.at.getHours() == 1 || timestamp(0).getHours(data.evil) == 1", "no_such_overload"),
        ("timestamp(0).getHours('../../etc/passwd') == 1", "bad_value"),
        ("[data.s]" + ".map(x, x + x)" * 40 + "[0].size() > 0", "budget"),
        ("{'a': data.l}" + ".map(x, [x, x])" * 2 + " == data.l", None),
    ],
)
def test_no_text_makes_cel_python_run_for_ever(source: str, reason: str | None) -> None:
    data = {"evil": "a" * 60 + "!", "s": "a" * 10_000 + "b", "l": list(range(100)), "at": "x"}
    found = outcome(source, data)
    assert found.reason == reason
    assert found.cost <= 2 * LIMITS.cel_budget


@pytest.mark.parametrize(
    "source",
    [
        "(" * 60 + "true" + ")" * 60,
        "true" + " && true" * 1500,
        "1" + " + 1" * 1500 + " > 0",
        "!" * 3000 + "true",
        "data" + ".a" * 3000 + " == 1",
    ],
)
def test_what_is_long_or_deep_is_evaluated_without_a_deep_stack(source: str) -> None:
    expected = Verdict.ERROR if ".a" in source else Verdict.TRUE
    assert outcome(source, {}).verdict is expected


def test_the_limits_on_an_expression_are_those_of_all(engine: MakeEngine) -> None:
    for evaluator in ("native", "portable"):
        e = engine(limits=Limits(max_cel_bytes=40, max_cel_depth=3), cel_evaluator=evaluator)
        for bad in ("true" + " " * 40, "((((true))))", "data.a ==", "1 + 'a' == 2", "data.s.matches('[')"):
            with pytest.raises(CelError) as caught:
                e.add({"id": "s", "cel": bad})
            assert caught.value.line == 1
        assert len(e) == 0


def test_what_no_index_can_narrow_is_refused_where_that_is_not_allowed(engine: MakeEngine) -> None:
    e = engine(limits=Limits(allow_unindexed=False))
    with pytest.raises(SubscriptionError, match="allow_unindexed"):
        e.add(portable("s", "data.a + 1 == 2"))
    e.add(portable("s", "data.a + 1 == 2", filters=[{"field": "b", "op": "==", "value": 1}]))


def test_a_snapshot_keeps_the_evaluator_and_takes_the_functions_anew(engine: MakeEngine, tmp_path: Path) -> None:
    e = engine(cel_evaluator="portable", cel_functions={"even": _even})
    e.add({"id": "by default", "cel": "data.n + 0 == 2"})
    e.add(portable("calls", "even(data.n)"))
    path = tmp_path / "s.snap"
    e.save(path)
    with pytest.raises(SnapshotError, match=r"unknown function `even`.*cel_functions"):
        Engine.load(path)
    with pytest.raises(ConfigError):
        Engine.load(path, cel_functions={"even": _even}, cel_evaluator="native")
    twin = Engine.load(path, cel_functions={"even": _even})
    assert sorted(twin.match_ids(event({"n": 2}))) == ["by default", "calls"]
    assert [twin.plan(name).evaluator for name in twin] == ["portable", "portable"]


def _even(number: int) -> bool:
    return number % 2 == 0


def test_a_pickled_engine_takes_its_functions_along_where_they_can_be(engine: MakeEngine) -> None:
    e = engine(cel_functions={"even": _even})
    e.add(portable("s", "even(data.n)"))
    twin = pickle.loads(pickle.dumps(e))
    assert (twin.match_ids(event({"n": 2})), twin.match_ids(event({"n": 3}))) == (["s"], [])
    assert dict(twin.cel_functions) == {"even": _even}
    with pytest.raises(pickle.PicklingError, match=r"cel_functions\['odd'\] cannot be pickled.*lambda"):
        pickle.dumps(engine(cel_functions={"odd": lambda n: n % 2}))


def test_errors_are_logged_at_most_once_a_minute_for_a_subscription(engine: MakeEngine, caplog: pytest.LogCaptureFixture) -> None:
    e = engine()
    e.add(portable("s", "data.missing + 1 == 2"))
    with caplog.at_level(logging.INFO, logger="streamer.cel_eval"):
        for _ in range(50):
            e.match_ids(event({}))
    assert [record.getMessage() for record in caplog.records] == [
        "subscription 's': CEL error no_such_field: no such field: 'missing'"
    ]
    assert dict(e.cel_errors) == {CelReason.NO_SUCH_FIELD: 50}


def test_a_snapshot_knows_which_portable_programs_read_before(engine: Callable[..., Engine], tmp_path: Path) -> None:
    held = engine(cel_evaluator="portable")
    held.add({"id": "s", "cel": "before.n + 1 == data.n"})
    held.add({"id": "t", "cel": "before == null || data.n < 0", "transitions": True})
    held.save(tmp_path / "held")
    event = b'{"type": "update", "data": {"n": 2}, "before": {"n": 1}}'
    for each in (held, Engine.load(tmp_path / "held")):
        assert [(match.subscription_id, match.transition) for match in each.match(event)] == [("s", None)]
