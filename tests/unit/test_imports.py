"""What is imported late is: a program pays for the parts that it uses, and a plain installation suffices for most of them.

Modules are counted in a process of its own, since tests import everything.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from streamer import _backend

#: What takes long to import, or what a plain installation may lack.
WATCHED = {
    "asyncio",
    "bitarray",
    "celpy",
    "lark",
    "matplotlib",
    "mmh3",
    "prometheus_client",
    "pyarrow",
    "pybloom_live",
    "pydantic",
    "pyspark",
    "re2",
    "rich",
    "rpds",
    "streamer.cel_eval.portable",
    "streamer.core.lint",
    "streamer.core.plan",
    "streamer.reference",
    "typer",
    "yaml",
    "zstandard",
}
EVENT = '{"collection": "orders", "type": "insert", "data": {"amount": 250, "status": "paid"}}'
ENGINE = f"""
import streamer
engine = streamer.Engine()
engine.add({{"id": "a", "collection": "orders", "filters": [{{"field": "status", "op": "==", "value": "paid"}}]}})
engine.add({{"id": "b", "cel": "data.amount > 100", "pattern": {{"data": {{"status": ["paid"]}}}}}})
assert sorted(engine.match_ids(b'{EVENT}')) == ["a", "b"]
str(engine.stats())
"""


def imported(code: str, backend: str = "native") -> set[str]:
    """Run *code*; return what it imported of `WATCHED`."""
    told = f"\nimport json, sys\nprint(json.dumps(sorted(set(sys.modules) & set({sorted(WATCHED)}))))"
    environment = {**os.environ, "STREAMER_BACKEND": backend}
    ran = subprocess.run([sys.executable, "-c", code + told], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return set(json.loads(ran.stdout.splitlines()[-1]))


native = pytest.mark.skipif("native" not in _backend.available(), reason="there is no native core here")


@native
def test_importing_the_package_imports_nothing_that_takes_long() -> None:
    assert imported("import streamer") == set()


@native
def test_the_command_line_starts_without_what_only_some_commands_need() -> None:
    assert imported("import streamer.cli.main") <= {"mmh3", "re2", "streamer.core.lint"}


@native
def test_an_engine_of_the_native_core_needs_no_part_of_the_reference() -> None:
    assert imported(ENGINE) <= {"re2"}


@native
def test_explaining_and_linting_need_no_extra() -> None:
    told = imported(ENGINE + f"print(engine.explain(b'{EVENT}', 'b')); print(engine.lint()); print(engine.plan('b'))")
    assert "lark" in told
    assert told <= {"lark", "re2", "streamer.core.lint", "streamer.core.plan", "streamer.reference"}


@native
def test_a_snapshot_needs_no_extra(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = str(tmp_path_factory.mktemp("snapshot") / "engine.snapshot")
    assert imported(ENGINE + f"engine.save({path!r}); len(streamer.Engine.load({path!r}))") <= {"mmh3", "re2"}


@native
def test_metrics_need_prometheus_client_alone() -> None:
    assert imported(ENGINE + "engine.serve_metrics(0).close()") <= {"re2", "prometheus_client"}


def test_the_reference_needs_neither_cel_python_nor_an_extra_of_another_part() -> None:
    told = imported(ENGINE, "reference")
    assert "rpds" in told
    of_streamer = {"streamer.core.lint", "streamer.core.plan", "streamer.reference"}
    assert told <= {"bitarray", "lark", "mmh3", "pybloom_live", "re2", "rpds", *of_streamer}


def test_names_that_are_imported_late_are_found_and_no_others() -> None:
    code = """
import streamer, streamer.bloom, streamer.cel_eval
for module in (streamer, streamer.bloom, streamer.cel_eval):
    assert all(getattr(module, name) is not None for name in module.__all__)
    assert not hasattr(module, "nothing_of_this_name")
"""
    assert "pydantic" in imported(code, "reference")
