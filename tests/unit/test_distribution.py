"""What is installed under which name: pyproject.toml, and what pages and error messages tell people to install."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

from streamer.version import VERSION

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
#: `streamer` on the index is somebody else's project.
NAME = "streamer-engine"


def test_the_distribution_has_a_name_of_its_own() -> None:
    assert PROJECT["name"] == NAME


def test_the_wheel_of_the_readme_is_the_one_that_is_built() -> None:
    (named,) = re.findall(r"pip install dist/(streamer_engine\S+)", (ROOT / "README.md").read_text("utf-8"))
    assert named == f"streamer_engine-{VERSION}-cp311-abi3-linux_x86_64.whl"


def test_each_python_that_the_classifiers_name_is_tried_before_a_release() -> None:
    pythons = {row.rpartition(" ")[2] for row in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", row)}
    tried = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]["try"]["strategy"]["matrix"]
    assert pythons <= set(tried["python"])


def test_every_extra_that_people_are_told_to_install_is_ours_and_exists() -> None:
    texts = [
        path
        for folder in ("streamer", "docs", "examples", "tests")
        for kind in ("*.py", "*.md")
        for path in (ROOT / folder).rglob(kind)
    ]
    told = [
        (str(path.relative_to(ROOT)), name, extra.strip())
        for path in (*texts, ROOT / "README.md", ROOT / "pyproject.toml")
        for name, extras in re.findall(r"\b(streamer(?:-engine)?)\[([a-z, ]+)\]", path.read_text("utf-8"))
        for extra in extras.split(",")
    ]
    assert len(told) > 10
    assert [each for each in told if each[1] != NAME or each[2] not in PROJECT["optional-dependencies"]] == []
