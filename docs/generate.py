"""Write what is generated: `make docs`; the tests check that it was run.

- `streamer.schema.json`, the JSON Schema for editors, from the models of the configuration;
- the tables of fields in `configuration.md`, between two comments;
- the tables of goals and of kinds of conditions in `performance.md`, from the newest records;
- the tables of metrics in `metrics.md`, and in `deploy/` the dashboard and the rules;
- the charts in `assets/`, from the newest records; also as PNG if Chromium is installed;
- the docstrings of `streamer/_native.pyi`, from the native core if it is built. The types are only in the stub, and stubtest
  compares its names and signatures with the core.
"""

from __future__ import annotations

import ast
import inspect
import re
import shutil
import subprocess
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

from docs import charts
from docs.goals import goals
from docs.monitoring import dashboard, rules
from docs.monitoring import table as metrics
from docs.operators import growing, operators
from streamer.config.show import json_schema, table

DOCS = Path(__file__).resolve().parent
STUB = DOCS.parent / "streamer/_native.pyi"
#: What is made, by the page that it stands on and the word of the two comments around it.
MADE = {
    ("configuration.md", "fields"): table,
    ("performance.md", "goals"): goals,
    ("performance.md", "operators"): operators,
    ("performance.md", "growing"): growing,
    ("metrics.md", "engine's metrics"): metrics.engine,
    ("metrics.md", "service's metrics"): metrics.of_service,
}


def generated() -> dict[Path, str]:
    """Return each generated file with its text."""
    deploy = DOCS.parent / "deploy"
    found = {
        DOCS / "streamer.schema.json": json_schema(),
        deploy / "grafana.json": dashboard.write(),
        deploy / "prometheus-rules.yaml": rules.write(),
    } | charts.pictures()
    for (name, what), make in MADE.items():
        page, begin, end = DOCS / name, f"<!-- {what}: made by `make docs` -->\n", f"<!-- end of {what} -->\n"
        between = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
        made = f"{begin}\n{make()}\n{end}"
        # A page may have several.
        text = found.get(page) or page.read_text(encoding="utf-8")
        found[page], count = between.subn(lambda _, made=made: made, text)  # type: ignore[misc]
        if count != 1:
            raise ValueError(f"{page.name}: expected one pair of comments around the {what}, found {count}")
    return found


def stub() -> str:
    """Return the stub of the native core with the docstrings that the core has.

    Raises:
        ImportError: no core was built here.
        ValueError: a part of the core has no docstring.
    """
    from streamer import _native

    lines = STUB.read_text(encoding="utf-8").split("\n")
    # From the end, so that the lines before keep their numbers.
    for node, documented in reversed(list(_documented(ast.parse("\n".join(lines)), _native))):
        doc = documented.__doc__
        if not doc:
            raise ValueError(f"{documented} has no docstring")
        _put(lines, node, inspect.cleandoc(doc))
    return "\n".join(lines)


_Documented = ast.Module | ast.ClassDef | ast.FunctionDef


def _documented(node: _Documented, found: object) -> Iterator[tuple[_Documented, object]]:
    """Yield each part of the stub that has a docstring, from the top, with what it stands for."""
    yield node, found
    for member in [] if isinstance(node, ast.FunctionDef) else node.body:
        # What begins so does what Python says of it, or is for types alone.
        if isinstance(member, ast.ClassDef | ast.FunctionDef) and not member.name.startswith("_"):
            yield from _documented(member, getattr(found, member.name))


def _put(lines: list[str], node: _Documented, doc: str) -> None:
    first = node.body[0]
    begin, end = first.lineno - 1, first.end_lineno
    if lines[begin].endswith(": ..."):
        # It stands behind the signature.
        lines[begin] = lines[begin].removesuffix(" ...")
        begin += 1
    elif not (isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)):
        end = begin
    indent = "" if isinstance(node, ast.Module) else " " * (node.col_offset + 4)
    told = f"{doc}\n" if "\n" in doc else doc
    lines[begin:end] = textwrap.indent(f'"""{told}"""', indent).split("\n")


def photograph(path: Path) -> None:
    """Write the PNG of a chart beside its SVG, twice as large as it says, if Chromium is here."""
    if (browser := shutil.which("chromium") or shutil.which("google-chrome")) is None:
        print(f"{path.with_suffix('.png').name} is left as it is: there is no Chromium here")
        return
    with tempfile.TemporaryDirectory() as profile:
        size = f"--window-size={charts.WIDTH},{charts.HEIGHT}"
        options = ["--headless", "--no-sandbox", "--hide-scrollbars", "--force-device-scale-factor=2", size]
        shot = f"--screenshot={path.with_suffix('.png')}"
        subprocess.run([browser, *options, f"--user-data-dir={profile}", shot, path.as_uri()], check=True, capture_output=True)


if __name__ == "__main__":
    try:
        made = {STUB: stub()}
    except ImportError:
        made = {}
        print("the stub of the native core is left as it is: there is no core here")
    for path, text in (generated() | made).items():
        changed = not path.exists() or path.read_text(encoding="utf-8") != text
        path.write_text(text, encoding="utf-8")
        if changed and path.suffix == ".svg":
            photograph(path)
        print(f"wrote {path.relative_to(DOCS.parent)}")
