"""Sub-interpreters are refused in words: what the native core calls Python by would wait for ever there."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

INSIDE = """
    import {name} as interpreters
    made = interpreters.create()
    code = "try:\\n import streamer; streamer.Engine()\\nexcept ImportError as error: print('ImportError', error, flush=True)"
    run = getattr(interpreters, "exec", None) or interpreters.run_string
    {before}
    run(made, code)
"""


@pytest.mark.parametrize("before", ["", "import streamer; streamer.Engine()"], ids=["alone", "beside the main interpreter"])
def test_a_sub_interpreter_gets_an_import_error(backend: str, before: str) -> None:
    name = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
    pytest.importorskip(name)
    code = textwrap.dedent(INSIDE.format(name=name, before=before))
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert ran.stdout.startswith("ImportError streamer runs in the main interpreter of a process"), ran.stderr
    assert "a process of its own" in ran.stdout
    assert ran.returncode == 0
