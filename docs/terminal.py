"""Pictures of the command line: a command runs on a terminal, and what it printed, colours included, becomes an SVG.

A page asks for one by a comment, `<!-- picture: streamer … -->`, which GitHub does not show. The command finds the files that the
page has its reader save.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from io import StringIO
from pathlib import Path
from typing import Final

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

ROOT: Final = Path(__file__).resolve().parents[1]
COLUMNS: Final = 120
#: Rich's own loads its font from elsewhere.
FORMAT: Final = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.S)
SAVED: Final = re.compile(r"^<!-- file: (\S+) -->\n```\w*\n(.*?)^```$", re.M | re.S)


def printed(command: str, directory: Path) -> str:
    """Run a command in *directory* on a terminal, and return what it printed; it may fail."""
    controlling, terminal = os.openpty()
    environment = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "CI")}
    environment |= {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "PYTHONPATH": str(ROOT)}
    words = re.sub(r"^streamer\b", f"'{sys.executable}' -m streamer", command)
    process = subprocess.Popen(
        words, shell=True, cwd=directory, env=environment, stdin=subprocess.DEVNULL, stdout=terminal, stderr=terminal
    )
    os.close(terminal)
    output = b""
    try:
        while piece := os.read(controlling, 65536):
            output += piece
    except OSError:  # Linux says so that nobody writes to the terminal any more
        pass
    os.close(controlling)
    process.wait()
    return output.decode().replace("\r\n", "\n")


def picture(command: str, page: str) -> str:
    """Return the SVG of a command that finds the files of *page*."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in SAVED.findall(page):
            path = Path(folder, name)
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        output = printed(command, Path(folder))
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.assemble(("$ ", "bold green"), command), Text.from_ansi(output.rstrip("\n")), sep="\n")
    return console.export_svg(title="", code_format=FORMAT, unique_id="terminal")
