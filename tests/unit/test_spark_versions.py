"""Older versions of Spark are tried again after any change to `streamer/spark`, and only then."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.tools import spark_versions


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("streamer/spark/compat.py", "streamer/spark/job/job.py", "tests/spark/test_every_version.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(spark_versions.ROOT / name, tmp_path / name)
    return tmp_path


@pytest.mark.parametrize("name", ["streamer/spark/compat.py", "streamer/spark/job/job.py", "tests/spark/test_every_version.py"])
def test_any_change_of_code_is_seen(root: Path, name: str) -> None:
    before = spark_versions.digest(root)
    with (root / name).open("a") as file:
        file.write("\nNEW = 1\n")
    assert spark_versions.digest(root) != before


def test_a_change_of_comments_and_docstrings_is_none(root: Path) -> None:
    before = spark_versions.digest(root)
    path = root / "streamer/spark/compat.py"
    text = path.read_text()
    assert text.startswith('"""')
    path.write_text(text.replace('"""', '"""Another first line. ', 1) + "\n# A comment.\n")
    assert spark_versions.digest(root) == before


def test_a_module_that_is_renamed_or_new_is_seen(root: Path) -> None:
    before = spark_versions.digest(root)
    (root / "streamer/spark/new.py").touch()
    new = spark_versions.digest(root)
    (root / "streamer/spark/new.py").rename(root / "streamer/spark/other.py")
    assert len({before, new, spark_versions.digest(root)}) == 3


def test_what_has_passed_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = tmp_path / "spark-versions.jsonl"
    assert not spark_versions.was_tried("a", records)
    records.write_text("".join(f"{json.dumps({'tried': tried})}\n" for tried in "ab"))
    assert [spark_versions.was_tried(tried, records) for tried in "abc"] == [True, True, False]


def test_only_a_run_of_all_versions_that_passes_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: list[str] = []
    ran: list[str] = []
    monkeypatch.setattr(spark_versions, "missing", lambda: None)
    monkeypatch.setattr(spark_versions, "digest", lambda: "of this code")
    monkeypatch.setattr(spark_versions, "was_tried", lambda tried: tried in recorded)
    monkeypatch.setattr(spark_versions, "append", lambda name, line: recorded.append(line["tried"]))
    monkeypatch.setattr(spark_versions, "run", lambda version: ran.append(version) or 0)
    monkeypatch.setattr(spark_versions, "run_newest", lambda: ran.append("newest") or 0)
    spark_versions.main(["3.5"])
    assert recorded == []
    spark_versions.main(["--if-changed"])
    assert recorded == ["of this code"]
    assert sorted(ran) == ["3.5", "3.5", "4.0", "4.1"]
    spark_versions.main(["--if-changed"])
    assert len(ran) == 4
    spark_versions.main([])
    assert len(ran) == 8
    assert ran.count("newest") == 1
    monkeypatch.setattr(spark_versions, "run", lambda version: int(version == "4.0"))
    recorded.clear()
    with pytest.raises(SystemExit, match=r"fails on PySpark 4\.0"):
        spark_versions.main([])
    assert recorded == []


def test_what_always_runs_is_there() -> None:
    for name in spark_versions.ALWAYS:
        file, _, test = name.partition("::")
        function = test.partition("[")[0]
        assert f"def {function}(" in (spark_versions.ROOT / file).read_text()
