"""What an extra brings and is not there says which extra it is."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from streamer import _backend
from streamer.extras import MODULES, missing, needed

ROOT = Path(__file__).resolve().parents[2]

#: A finder that stands before all others, and finds that the modules are not there.
ABSENT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in {modules}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
"""
ENGINE = "import streamer; engine = streamer.Engine(); engine.add({'id': 'a'})\n"
PORTABLE = "engine.add({'id': 'b', 'cel': 'true', 'cel_evaluator': 'portable'})"
POSTGRES = """
from streamer.config.schema.connectors.postgres import PostgresSource
from streamer.service.connectors.sources import made
made(PostgresSource(type="postgres", dsn={"env": "PG"}), 1)
"""
BLOOM = "portable Bloom filters need pybloom-live"
ANY = "auto" if "native" in _backend.available() else "reference"


def ends(extra: str, code: str, backend: str = ANY) -> str:
    """Run *code* where nothing of an extra is installed; return the last line of its traceback."""
    program = ABSENT.format(modules=MODULES[extra]) + code
    environment = {**os.environ, "STREAMER_BACKEND": backend}
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 1, f"{ran.stdout}{ran.stderr}"
    return ran.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("extra", "code", "who"),
    [
        ("arrow", ENGINE + "engine.match_arrow([])", "events from Arrow need pyarrow"),
        ("arrow", "from streamer.bloom import rows; rows.probe([], None, None, None, None)", "probe_arrow needs pyarrow"),
        ("import", "from streamer.importing import import_rules; import_rules('sql', 'a = 1')", "rules in SQL need sqlglot"),
        ("plot", "from streamer.metrics.plot import plot; plot([], 'a.png')", "drawing needs Matplotlib"),
        ("spark", "from streamer.spark import match_events", "streamer.spark needs PySpark"),
        ("spark", "import runpy; runpy.run_module('streamer.spark.job')", "the job needs PySpark"),
        ("postgres", POSTGRES, "reading PostgreSQL needs psycopg"),
        ("zstd", ENGINE + "list(engine.match_jsonl(b'\\x28\\xb5\\x2f\\xfd'))", "zstd input needs zstandard"),
    ],
)
def test_what_is_missing_says_its_extra(extra: str, code: str, who: str) -> None:
    assert ends(extra, code).endswith(f"Error: {who}: pip install 'streamer-engine[{extra}]'")


def test_the_command_line_names_a_missing_extra() -> None:
    program = ABSENT.format(modules=MODULES["import"]) + "import sys; sys.argv[1:] = ['import', 'sql']\nimport streamer.__main__"
    program += "\nstreamer.__main__.main()"
    ran = subprocess.run([sys.executable, "-c", program], input="a = 1", capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (2, "streamer: rules in SQL need sqlglot: pip install 'streamer-engine[import]'\n")


@pytest.mark.skipif("native" not in _backend.available(), reason="without a native core all of it is needed")
@pytest.mark.parametrize(
    ("code", "who"),
    [
        (ENGINE + PORTABLE, "subscription 'b': cel: the portable evaluator needs cel-python"),
        (ENGINE + "engine.bloom.export('default', 'orders')", BLOOM),
        ("from streamer.bloom import ShippedFilter", BLOOM),
    ],
)
def test_what_the_portable_parts_lack_says_so(code: str, who: str) -> None:
    assert ends("portable", code, "native").endswith(f"Error: {who}: pip install 'streamer-engine[portable]'")


def test_the_reference_says_at_import_what_it_lacks() -> None:
    said = "streamer.errors.BackendError: the reference backend needs rpds-py and pybloom-live"
    assert ends("portable", "import streamer", "reference") == f"{said}: pip install 'streamer-engine[portable]'"


def test_another_missing_module_is_told_as_it_is() -> None:
    with pytest.raises(ModuleNotFoundError, match="no such thing"), needed("drawing needs Matplotlib", "plot"):
        raise ModuleNotFoundError("no such thing", name="numpy.of_another_kind")


def test_every_extra_is_one_of_the_distribution() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(MODULES) <= set(extras)
    assert missing("drawing needs Matplotlib", "plot") == "drawing needs Matplotlib: pip install 'streamer-engine[plot]'"
