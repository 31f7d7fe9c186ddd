"""Fixtures for every test: the backend under test, and engines on it."""

from __future__ import annotations

import functools
import gc
import os
import signal
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

import streamer
from streamer import _backend

HERE = Path(__file__).parent

# A run of the gates is repeatable and short; `make fuzz` tries new examples for as long as one likes.
hypothesis.settings.register_profile("gate", deadline=None, derandomize=True, print_blob=True, max_examples=50)
hypothesis.settings.register_profile("fuzz", deadline=None, print_blob=True, max_examples=int(os.environ.get("EXAMPLES", "1000")))
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gate"))


# A JVM of a test ends soon: its quick compiler suffices, and one thread that collects garbage.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


# What a shell without job control starts in the background ignores Ctrl-C, and so does all that it starts.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# A case that fails is told with the values that were compared.
pytest.register_assert_rewrite("tests.conformance.runner")


def pytest_xdist_auto_num_workers() -> int:
    """Return the workers of `-n auto`: more than processors, because many tests wait for servers."""
    return (os.cpu_count() or 1) + 2


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--case", metavar="NAME", help="run the cases of the table with NAME in their file::name alone")


#: What takes longest begins first, in this order: a worker that begins a long file last is alone at the end.
LONGEST = (
    "test_benchmarks.py",
    "test_spark_benchmarks.py",
    "test_readme.py",
    "spark",
    "service",
    "conformance",
    "property",
    "cli",
)
#: Where processes are started, and little is about what matches: on the reference, what is quick is slow.
LATER = ("cli",)
#: Where servers, clusters and benchmarks are started, and nothing is about what matches: on the reference all is `integration`.
LAST = ("metrics", "service", "spark", "test_benchmarks.py")


def _folder(item: pytest.Item) -> str:
    """Return the folder or file below this one that a test is in."""
    return item.path.parts[len(HERE.parts)]


def _turn(item: pytest.Item) -> int:
    """Tell how early the file of a test has its turn."""
    name = _folder(item)
    return LONGEST.index(name) if name in LONGEST else len(LONGEST)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, Any, Any]:
    """Keep the garbage collector from looking at thousands of tests, which all live to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before pytest looks at the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Function]) -> None:
    items.sort(key=_turn)
    for item in items:
        if "spark_session" in item.fixturenames:
            item.add_marker(pytest.mark.slow)
    _leave_out_spark(config, items)
    if len(backends_under_test()) > 1:
        for item in items:
            if not _of(item, "reference"):
                continue
            if _folder(item) in LAST or item.get_closest_marker("later_on_the_reference"):
                item.add_marker(pytest.mark.integration)
            elif _folder(item) in LATER:
                item.add_marker(pytest.mark.integration if item.get_closest_marker("slow") else pytest.mark.slow)
    if config.getoption("case") is None:
        return
    of_table = [item for item in items if "cases" in getattr(item, "fixturenames", ())]
    config.hook.pytest_deselected(items=[item for item in items if item not in of_table])
    items[:] = of_table


def _leave_out_spark(config: pytest.Config, items: list[pytest.Function]) -> None:
    """Mark tests of Spark that have passed on this `streamer/spark` as `integration`, unless their folder was named."""
    spark = [item for item in items if _folder(item) == "spark"]
    if not spark or any("spark" in each for each in config.args):
        return
    from tests.tools import spark_versions

    given = getattr(config, "workerinput", {})
    if given[TRIED] if TRIED in given else _spark_was_tried():
        for item in spark:
            if not item.nodeid.startswith(spark_versions.ALWAYS):
                item.add_marker(pytest.mark.integration)


#: What each worker of xdist gets from the process that starts it, since a digest takes seconds.
TRIED = "spark_was_tried"


@functools.cache
def _spark_was_tried() -> bool:
    from tests.tools import spark_versions

    return spark_versions.was_tried(spark_versions.digest())


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    if {str(HERE), HERE.name} & set(node.config.args):
        node.workerinput[TRIED] = _spark_was_tried()


def _of(item: pytest.Function, backend: str) -> bool:
    # A folder may have a fixture of that name with one backend alone.
    return hasattr(item, "callspec") and item.callspec.params.get("backend") == backend


def pytest_report_header() -> str:
    return f"streamer {streamer.__version__} from {os.path.dirname(streamer.__file__)}, backend {streamer.BACKEND}"


def backends_under_test() -> tuple[str, ...]:
    """The backend that STREAMER_BACKEND names, else all that this installation has."""
    named = os.environ.get(_backend.VARIABLE, "auto")
    return _backend.available() if named == "auto" else (_backend.choose(named),)


@pytest.fixture(params=backends_under_test())
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The backend that engines made during this test run on."""
    name: str = request.param
    monkeypatch.setattr(_backend, "BACKEND", name)
    return name


class NotAsked:
    """What stands for the backend where a test does not take it."""

    def __eq__(self, other: object) -> bool:
        pytest.fail("this test depends on the backend: it takes the fixture `backend`, and so runs on each")

    __hash__ = None  # type: ignore[assignment]


@pytest.fixture(autouse=True)
def _no_backend_unasked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test runs once that takes no backend; so it must not depend on one."""
    if "backend" not in request.fixturenames:
        monkeypatch.setattr(_backend, "BACKEND", NotAsked())


@pytest.fixture
def engine(backend: str) -> Callable[..., Any]:
    """Make an engine on the backend under test: `engine(default_tenant=None)`."""
    return streamer.Engine


# What only the native engine can be asked, and what compares it with the reference.
collect_ignore = [] if "native" in backends_under_test() else ["native", "property/test_backends_agree.py"]
