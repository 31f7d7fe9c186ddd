"""Storms: interrupts, signal handlers that write and forks, at random moments of everything that changes something.

```
interrupts   an exception out of a signal handler, anywhere in a call; then another thread and a child take every lock
handlers     a signal handler writes, reloads, matches or forks in the midst of a call of its own thread
forks        a process forks while threads are busy; the child does what they do
```

`python -m tests.tools.storms --interrupts 5000 --handlers 2000 --forks 300` appends a line with its counts to
tests/records/locks.jsonl. A storm that does not end is ended by a watchdog, with the stack of every thread.
"""

from __future__ import annotations

import argparse
import faulthandler
import itertools
import json
import os
import platform
import random
import signal
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry

from streamer import Engine, _backend, locks
from streamer.automaton import Quamina, TopicMatcher
from streamer.automaton.storage import SqlitePatterns
from streamer.errors import ReentryError, SnapshotError, SubscriptionError
from tests.tools.records import append, stamp

#: Seconds after which a child is counted as hung, and a storm that stands still is ended.
PATIENCE: Final = 60
EVENT: Final = b'{"collection": "c", "data": {"a": 1, "t": "2024-03-10T01:00:00Z"}}'
#: More than the filters, and the thread that looks after them, begin with.
MANY: Final = 80

Act = Callable[[], object]


class Interrupt(BaseException):
    """What the handler of the signal raises; not an `Exception`, as `KeyboardInterrupt` is none."""


def wanting(name: str, value: int = 1, **members: Any) -> dict[str, Any]:
    """Return a subscription to events whose `a` is a value."""
    return {"id": name, "collection": "c", "filters": [{"field": "a", "op": "==", "value": value}], **members}


class World:
    """One of everything that promises to be safe for threads, and what can be done with it."""

    def __init__(self, folder: Path) -> None:
        self.config = folder / "streamer.yaml"
        self.config.write_text("matching: {threads: 1}\n")
        self.engine = Engine.from_config(self.config, cel_functions={"twice": lambda value: 2 * value})
        self.engine.add_many([wanting(f"s{n}", n) for n in range(MANY)])
        self.registry = CollectorRegistry()
        self.engine.metrics.register(self.registry)
        self.quamina: Quamina[str] = Quamina()
        self.stored: Quamina[str] = Quamina(pattern_storage=SqlitePatterns(folder / "patterns.db"))
        self.topics: TopicMatcher[str] = TopicMatcher()
        self._numbers = itertools.count()

    def acts(self) -> dict[str, Act]:
        """Return what can be done, by name."""
        engine, many = self.engine, [wanting(f"s{n}", n) for n in range(MANY)]
        # Each in two spellings in turn, so that they are compared in Python.
        spelt = itertools.cycle([many, [{**one, "labels": None} for one in many]])
        return {
            "add": lambda: engine.add(wanting(self._name("a"))),
            "replace": lambda: engine.add(wanting("s1", 1, gateway_id=self._name("g")), replace=True),
            "remove": lambda: engine.remove(f"s{random.randrange(MANY)}"),
            "add_many": lambda: engine.add_many(many, replace=True),
            "apply": lambda: engine.apply(next(spelt)),
            "rebuild": lambda: engine.bloom.rebuild("default", "c"),
            "filters": engine.bloom.filters,
            "reload": self.reload,
            "match": lambda: engine.match_ids(EVENT),
            "native cel": lambda: engine.add(
                wanting(self._name("z"), cel=f'timestamp(data.t).getHours("Europe/Paris") == {next(self._numbers)}')
            ),
            "portable cel": lambda: engine.add(
                wanting(self._name("p"), cel=f"twice(data.a) == {next(self._numbers)}", cel_evaluator="portable")
            ),
            "scrape": lambda: [list(family.samples) for family in self.registry.collect()],
            "quamina add": lambda: self.quamina.add_pattern("x", f'{{"a": [{next(self._numbers)}]}}'),
            "quamina delete": lambda: self.quamina.delete_patterns("x"),
            "quamina match": lambda: self.quamina.matches_for_event('{"a": 1}'),
            "stored add": lambda: self.stored.add_pattern("x", f'{{"a": [{next(self._numbers) % 40}]}}'),
            "stored delete": lambda: self.stored.delete_patterns("x"),
            "bind": lambda: self.topics.bind(f"a.{next(self._numbers) % 50}.#", "x"),
            "unbind": lambda: self.topics.unbind(f"a.{random.randrange(50)}.#", "x"),
            "topic": lambda: self.topics.match("a.1.b"),
        }

    def _name(self, kind: str) -> str:
        return f"{kind}{next(self._numbers)}"

    def reload(self) -> None:
        """Take a configuration that differs from the last in what may change."""
        self.config.write_text(
            f"matching: {{threads: {random.randrange(1, 5)}, bloom: {{fp_rate: 0.0{random.randrange(1, 9)}}}}}\n"
        )
        self.engine.reload()

    def check(self) -> None:
        """Do everything once, and look at what came of it."""
        for name, act in self.acts().items():
            attempt(name, act)
        self.engine.apply([wanting("one"), wanting("other", 2), wanting("three", cel="data.a > 0")])
        assert sorted(self.engine.match_ids(EVENT)) == ["one", "three"]
        assert sorted(self.engine) == ["one", "other", "three"]
        for quamina in (self.quamina, self.stored):
            quamina.delete_patterns("x")
            quamina.add_pattern("mine", '{"a": [1]}')
            assert quamina.matches_for_event('{"a": 1}') == ["mine"]
            assert len(quamina) == 1
        self.topics.bind("only.#", "mine")
        assert self.topics.match("only.this") == ["mine"]
        assert self.topics.unbind("only.#", "mine")
        assert self.topics.match("only.this") == []


def attempt(name: str, act: Act, outcomes: Counter[str] | None = None) -> None:
    """Do it; an id that is held already is no matter."""
    try:
        act()
    except ReentryError:
        if outcomes is not None:
            outcomes[f"refused within a change: {name}"] += 1
    except (SubscriptionError, SnapshotError):
        pass


def all_locks_are_free() -> int:
    """Take every lock in another thread, and return how many there are."""
    taken = []

    def take() -> None:
        for lock in locks._locks:
            if lock.acquire(timeout=PATIENCE):
                taken.append(lock)
                lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    count = len(list(locks._locks))
    assert len(taken) >= count, f"{count - len(taken)} of {count} locks are held by nobody"
    return count


def in_child(act: Act) -> int:
    """Fork; return how the child ended: 0 for well, else the signal or the code. It is ended by an alarm if it hangs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            # Where it hangs is told before the signal ends it.
            faulthandler.register(signal.SIGALRM, chain=True)
            signal.setitimer(signal.ITIMER_REAL, PATIENCE)
            act()
            code = 0
        except BaseException as error:
            print(f"in the child: {error!r}", flush=True)
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def watched() -> None:
    """End this process if nobody calls this again in time."""
    faulthandler.dump_traceback_later(2 * PATIENCE, exit=True)


def after(seconds: float) -> None:
    """Have the signal sent so many seconds from now; 0 for never."""
    signal.setitimer(signal.ITIMER_REAL, seconds)


def interrupts(world: World, count: int) -> dict[str, Any]:
    """Interrupt calls *count* times, and count in which."""
    caught: Counter[str] = Counter()
    durations: dict[str, float] = {}

    # Where another thread takes the signal, this one may hear of it when the call is over.
    is_armed = False

    def handler(*_: object) -> None:
        if is_armed:
            raise Interrupt

    acts = world.acts()
    before = signal.signal(signal.SIGALRM, handler)
    turns = itertools.cycle(acts.items())
    calls = 0
    while caught.total() < count:
        name, act = next(turns)
        watched()
        calls += 1
        began = time.perf_counter()
        try:
            is_armed = True
            after(random.uniform(1e-6, 1.2 * durations.get(name, 1e-3)))
            attempt(name, act)
            is_armed = False
            after(0)
            durations[name] = max(1e-5, time.perf_counter() - began)
        except Interrupt:
            is_armed = False
            caught[name] += 1
        if calls % 50 == 0:
            world.engine.apply([wanting(f"s{n}", n) for n in range(MANY)])
    after(0)
    signal.signal(signal.SIGALRM, before)
    held = all_locks_are_free()
    code = in_child(world.check)
    assert code == 0, f"the child ended with {code}"
    world.check()
    return {"caught": caught.total(), "calls": calls, "in": dict(sorted(caught.items())), "locks_free_after": held}


def handlers(world: World, count: int) -> dict[str, Any]:
    """Let a signal handler do something in the midst of something else *count* times, forks included."""
    done: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    within = [
        "add",
        "remove",
        "add_many",
        "apply",
        "reload",
        "match",
        "quamina add",
        "quamina delete",
        "bind",
        "unbind",
        "filters",
    ]
    acts = world.acts()
    codes: Counter[int] = Counter()
    doing = ""

    def handler(*_: object) -> None:
        if random.random() < 0.02:
            codes[in_child(lambda: attempt("add", acts["add"]))] += 1
            signal.signal(signal.SIGALRM, handler)
            done[f"fork within {doing}"] += 1
            return
        name = random.choice(within)
        attempt(name, acts[name], outcomes)
        done[f"{name} within {doing}"] += 1

    before = signal.signal(signal.SIGALRM, handler)
    durations: dict[str, float] = {}
    turns = itertools.cycle(acts.items())
    calls = 0
    while done.total() < count:
        doing, act = next(turns)
        watched()
        calls += 1
        began = time.perf_counter()
        after(random.uniform(1e-6, 1.2 * durations.get(doing, 1e-3)))
        attempt(doing, act, outcomes)
        after(0)
        durations[doing] = max(1e-5, time.perf_counter() - began)
        if calls % 50 == 0:
            world.engine.apply([wanting(f"s{n}", n) for n in range(MANY)])
    after(0)
    signal.signal(signal.SIGALRM, before)
    assert set(codes) <= {0}, f"children ended with {codes}"
    held = all_locks_are_free()
    world.check()
    return {
        "handled": done.total(),
        "pairs": len(done),
        "forks": codes.total(),
        "refused": dict(outcomes),
        "locks_free_after": held,
    }


def forks(folder: Path, count: int, threads: int = 4) -> dict[str, Any]:
    """Fork *count* times while threads are busy, the first compile of portable CEL among it; each child does everything once."""
    codes: Counter[int] = Counter()
    calls: Counter[str] = Counter()
    world = World(folder)
    is_over = threading.Event()

    def work(number: int) -> None:
        acts = list(world.acts().items())
        random.Random(number).shuffle(acts)
        for name, act in itertools.cycle(acts):
            if is_over.is_set():
                return
            attempt(name, act)
            calls[name] += 1
            if len(world.engine) > 500:
                world.engine.apply([wanting(f"s{n}", n) for n in range(MANY)])

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for _ in range(count):
        watched()
        codes[in_child(world.check)] += 1
    is_over.set()
    for worker in workers:
        worker.join()
    world.check()
    assert set(codes) == {0}, f"children ended with {codes}"
    return {
        "forks": count,
        "threads": threads,
        "calls_beside": calls.total(),
        "children": {str(code): n for code, n in codes.items()},
    }


def storm(*, interrupted: int = 0, handled: int = 0, forked: int = 0) -> Iterator[tuple[str, dict[str, Any]]]:
    """Run storms one after the other, each in a world of its own."""
    for name, count, run in (("forks", forked, None), ("interrupts", interrupted, interrupts), ("handlers", handled, handlers)):
        if count:
            with tempfile.TemporaryDirectory() as folder:
                yield name, forks(Path(folder), count) if run is None else run(World(Path(folder)), count)
    faulthandler.cancel_dump_traceback_later()


def main() -> None:
    """Run the storms that the command line asks for, and record them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    for name in ("interrupts", "handlers", "forks"):
        parser.add_argument(f"--{name}", type=int, default=0)
    parser.add_argument("--no-record", action="store_true", help="print the counts alone")
    asked = parser.parse_args()
    began = time.monotonic()
    found = dict(storm(interrupted=asked.interrupts, handled=asked.handlers, forked=asked.forks))
    line = {
        **stamp(),
        "python": platform.python_version(),
        "backend": _backend.BACKEND,
        "seconds": round(time.monotonic() - began),
        **found,
    }
    print(json.dumps(line))
    if not asked.no_record:
        append("locks", line)


if __name__ == "__main__":
    main()
