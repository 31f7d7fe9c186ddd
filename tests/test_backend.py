"""The import seam chooses one backend, and says so where it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
import types
import warnings
from typing import Any

import pytest

import streamer
from streamer import _backend
from streamer.errors import BackendError


@pytest.fixture
def no_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_backend, "native_core", lambda: None)


@pytest.fixture
def a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_backend, "native_core", lambda: types.ModuleType("streamer._native"))


def test_a_build_that_must_have_the_native_core_has_it() -> None:
    if os.environ.get("STREAMER_BUILD_RUST") == "1":
        assert _backend.native_core() is not None
        assert "native" in _backend.available()


def test_the_package_names_the_backend_that_it_runs_on() -> None:
    assert streamer.BACKEND == _backend.choose(os.environ.get("STREAMER_BACKEND", "auto"))


def test_an_unknown_choice_is_refused_with_the_allowed_ones() -> None:
    with pytest.raises(BackendError, match="'rust': expected one of auto, native, reference"):
        _backend.choose("rust")


def test_auto_takes_the_native_engine_where_it_is_built(a_core: None) -> None:
    assert _backend.choose("auto") == "native"
    assert _backend.choose("native") == "native"


def test_native_never_falls_back(no_core: None) -> None:
    with pytest.raises(BackendError, match="no native core: reinstall"):
        _backend.choose("native")


def test_auto_warns_where_the_reference_serves_for_want_of_a_native_core(no_core: None) -> None:
    with pytest.warns(_backend.ReferenceBackendWarning, match="the native core is not installed"):
        assert _backend.choose("auto") == "reference"


def test_the_reference_by_choice_does_not_warn(no_core: None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert _backend.choose("reference") == "reference"


@pytest.fixture
def broken_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed native core whose own import fails."""

    class Finder:
        def find_spec(self, name: str, path: Any, target: Any = None) -> None:
            if name == "streamer._native":
                raise ImportError("libgone.so: cannot open shared object file")

    monkeypatch.delitem(sys.modules, "streamer._native", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])


def test_a_native_core_that_is_there_but_broken_is_not_passed_over(broken_core: None) -> None:
    with pytest.raises(ImportError, match="libgone"):
        _backend.choose("auto")


def test_a_wrong_choice_in_the_environment_fails_at_import() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", "import streamer"],
        env={**os.environ, "STREAMER_BACKEND": "fast"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 1
    assert "BackendError: STREAMER_BACKEND='fast': expected one of auto, native, reference" in ran.stderr


def test_a_wrong_choice_is_one_sentence_of_the_command_line() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", "import _streamer_command; _streamer_command.main()", "config", "check", "x.yaml"],
        env={**os.environ, "STREAMER_BACKEND": "fast", "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "streamer: STREAMER_BACKEND='fast': expected one of auto, native, reference\n"


def test_the_native_core_is_of_the_same_version_as_the_package() -> None:
    core = _backend.native_core()
    if core is not None:
        assert core.__version__ == streamer.__version__
