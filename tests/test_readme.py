"""Every example of the README and the guides runs, and prints what the page says it prints.

- A ```python block runs; comments directly below a line that prints are lines of its output, in this order; where a ```text
  block follows directly, the output is exactly that. The blocks of one page share their names, as a reader's session does.
- A block below `<!-- file: NAME -->` is written to NAME, for the blocks after it.
- A ```console block below `<!-- run -->` runs; below `<!-- run, with FILE -->` with that file of the repository. Each line
  after `$ ` is a command, the lines below it are what it prints (standard output, then standard error); a line `...` stands for
  any lines.
- Other blocks are left alone.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

import streamer
from streamer import _backend
from tests.cli.warm import Warm

ROOT = Path(__file__).resolve().parents[1]
#: Those of spark.md need a session: tests/spark/test_spark_guide.py runs them.
PAGES = [ROOT / "README.md", *(page for page in sorted((ROOT / "docs").glob("**/*.md")) if page.name != "spark.md")]
#: Needs a server: tests/service/test_tutorial.py runs it.
TUTORIAL = ROOT / "docs/tutorials/webhook.md"
#: Pages whose links are looked after, too.
OTHERS = (
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "benchmarks/README.md",
    "docs/spark.md",
    "testdata/README.md",
)

#: What a shell reads in a line other than words.
SHELL = re.compile(r"[|&;<>$`*~()]")
BLOCK = re.compile(r"(?:<!--\s*(?P<mark>[^>]*?)\s*-->\s*\n)?^```(?P<language>[\w-]*)[^\n]*\n(?P<text>.*?)^```\s*$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    line: int
    language: str
    mark: str
    text: str
    follows: bool  # only blank lines stand between it and the block before


def blocks(page: str) -> list[Block]:
    """Read the fenced blocks of *page*."""
    found = []
    end = 0
    for match in BLOCK.finditer(page):
        found.append(
            Block(
                line=page.count("\n", 0, match.start("text")) + 1,
                language=match["language"],
                mark=match["mark"] or "",
                text=match["text"],
                follows=not page[end : match.start()].strip(),
            )
        )
        end = match.end()
    return found


def same(expected: str, printed: str) -> bool:
    """Compare line by line; a line `...` stands for any lines, `…` in a line for any text."""

    def lines(text: str) -> list[str]:
        return [line.rstrip() for line in text.strip("\n").splitlines()]

    def fits(want: list[str], got: list[str]) -> bool:
        if not want:
            return not got
        if want[0] == "...":
            return any(fits(want[1:], got[i:]) for i in range(len(got) + 1))
        pattern = re.sub(r"([\[*?])", r"[\1]", want[0]).replace("…", "*")
        return bool(got) and fnmatchcase(got[0], pattern) and fits(want[1:], got[1:])

    return fits(lines(expected), lines(printed))


def promised(python: str) -> list[str]:
    """Return the lines of output that comments below printing lines show."""
    shown = []
    printing = False
    for line in python.splitlines():
        if printing and line.startswith("# "):
            shown.append(line.removeprefix("# "))
        else:
            printing = "print(" in line
    return shown


def commands(console: str) -> list[tuple[str, str]]:
    """Split a console block into commands and what each prints."""
    parts = re.split(r"^\$ ", console, flags=re.M)
    assert not parts[0].strip(), "a console block begins with a command"
    return [(command, output) for command, _, output in (part.partition("\n") for part in parts[1:])]


def command_line(directory: Path) -> Path:
    """Make `streamer` and `python` commands of this interpreter; return their folder."""
    folder = directory / ".bin"
    folder.mkdir(exist_ok=True)
    for name, arguments in (("streamer", "-m streamer "), ("python", "")):
        command = folder / name
        command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {arguments}"$@"\n')
        command.chmod(0o755)
    return folder


#: The processes that run most commands, by backend.
WARM: dict[str | None, Warm] = {}


def printed_by(command: str, directory: Path, environment: dict[str, str]) -> str:
    """Run a command of a page; return what it prints. `streamer` alone needs no shell, and no Python of its own."""
    if not command.startswith("streamer ") or SHELL.search(command):
        done = subprocess.run(command, shell=True, cwd=directory, env=environment, capture_output=True)
    else:
        backend = environment.get(_backend.VARIABLE)
        if backend not in WARM:
            WARM[backend] = Warm(environment)
            atexit.register(WARM[backend].close)
        done = WARM[backend].run(shlex.split(command)[1:], directory, environment=environment)
    return (done.stdout + done.stderr).decode()


def run_page(page: str, directory: Path, capture: pytest.CaptureFixture[str], name: str) -> int:
    """Run the examples of *page* in *directory*; return how many there were."""
    names: dict[str, object] = {"__name__": "__main__"}
    environment = {
        **os.environ,
        "PATH": f"{command_line(directory)}{os.pathsep}{os.environ['PATH']}",
        # The package under test, also where it is not installed.
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "COLUMNS": "120",
    }
    printed = ""
    ran = 0
    for number, block in enumerate(found := blocks(page)):
        where = f"{name}:{block.line}"
        if block.mark.startswith("file:"):
            file = directory / block.mark.removeprefix("file:").strip()
            file.parent.mkdir(exist_ok=True)
            file.write_text(block.text)
        elif block.language == "python":
            capture.readouterr()
            exec(compile("\n" * (block.line - 1) + block.text, name, "exec"), names)
            printed = capture.readouterr().out
            lines = [line.rstrip() for line in printed.splitlines()]
            for line in promised(block.text):
                assert line in lines, f"{where} promises {line!r}, printed:\n{printed}"
                del lines[: lines.index(line) + 1]
            ran += 1
        elif block.language == "text" and block.follows and found[number - 1].language == "python":
            assert same(block.text, printed), f"{where} says:\n{block.text}\nprinted:\n{printed}"
        elif block.language == "console" and re.match(r"run\b", block.mark):
            if needed := re.fullmatch(r"run, with (\S+)", block.mark):
                shutil.copy(ROOT / needed[1], directory)
            for command, expected in commands(block.text):
                output = printed_by(command, directory, environment)
                assert same(expected, output), f"{where}: `{command}` says:\n{expected}\nprinted:\n{output}"
                ran += 1
    return ran


def first_match() -> str:
    """Return what a newcomer reads and types, from nothing to the first match on records of Debezium."""
    install = PAGES[0].read_text().partition("\n## In fifteen lines")[0]
    return install + (ROOT / "docs/tutorials/debezium.md").read_text().partition("\n## 3.")[0]


def minutes(page: str) -> float:
    """Estimate how long one reads a page (200 words a minute), types its commands (150 characters) and saves its files (20 s)."""
    prose = BLOCK.sub("", page)
    consoles = [block for block in blocks(page) if block.language == "console"]
    typed = sum(len(line) for block in consoles for line in block.text.splitlines() if line.startswith("$ "))
    printed = sum(len(block.text.split()) for block in consoles)
    files = sum(block.mark.startswith("file:") for block in blocks(page))
    return (len(prose.split()) + printed) / 200 + typed / 150 + files / 3


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize(
    "page",
    [
        PAGES[0],
        *(
            pytest.param(page, marks=[pytest.mark.slow, pytest.mark.later_on_the_reference])
            for page in PAGES[1:]
            if page != TUTORIAL
        ),
    ],
    ids=named,
)
def test_the_examples_of_the_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], backend: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMER_BACKEND", backend)
    ran = run_page(page.read_text(), tmp_path, capsys, page.name)
    assert ran or page.name != "README.md", "the README has examples"


def test_a_newcomer_matches_debeziums_records_within_ten_minutes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    monkeypatch.setenv("STREAMER_BACKEND", backend)
    page = first_match()
    assert 2 < minutes(page) < 10
    assert run_page(page, tmp_path, capsys, "debezium.md") == 2
    assert "streamer match --format debezium" in page


def test_the_files_of_the_readme_are_those_of_the_examples() -> None:
    given = {
        block.mark.removeprefix("file:").strip(): block.text for block in blocks(PAGES[0].read_text()) if "file:" in block.mark
    }
    assert given == {name: (ROOT / "examples" / name).read_text() for name in ("subscriptions.jsonl", "events.jsonl")}


def test_lint_finds_nothing_in_the_four_ways_of_the_readme(engine: Callable[..., streamer.Engine]) -> None:
    ways = re.findall(r"^\| \w+ \| `(\{.*\})` \|", PAGES[0].read_text(), re.M)
    e = engine()
    e.add_many({"id": way, **json.loads(way)} for way in ways)
    # The reference looks up less of CEL than the native core, and says so.
    assert (len(e), [finding for finding in e.lint() if finding.code != "slow"]) == (4, [])


def test_the_readme_begins_with_an_example_and_how_to_install() -> None:
    headings = re.findall(r"^## (.*)$", PAGES[0].read_text(), re.M)
    assert headings[:2] == ["In fifteen lines", "Install"]


def test_an_example_that_prints_something_else_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = "```python\nprint('one')\n```\n\n```text\ntwo\n```\n"
    with pytest.raises(AssertionError, match="printed"):
        run_page(page, tmp_path, capsys, "page")
    with pytest.raises(AssertionError, match=r"promises 'two'"):
        run_page("```python\nprint('one')\n# two\n```\n", tmp_path, capsys, "page")
    with pytest.raises(AssertionError, match="printed"):
        run_page("<!-- run -->\n```console\n$ echo one\ntwo\n```\n", tmp_path, capsys, "page")


def test_a_page_writes_files_runs_commands_and_compares_what_they_print(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (
        "<!-- file: a.txt -->\n```json\n[1]\n```\n\n"
        "<!-- run -->\n```console\n$ cat a.txt; echo took 17 ms\n[1]\ntook … ms\n$ seq 3\n...\n3\n```\n"
    )
    assert run_page(page, tmp_path, capsys, "page") == 2


def test_the_makefile_describes_every_target_it_offers() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.M)
    assert phony is not None
    described = set(re.findall(r"^([a-z-]+):.*## \S", makefile, re.M))
    assert set(phony[1].split()) == described


def local_links(page: Path) -> list[tuple[Path, str]]:
    """Return the file and the anchor of each link of a page that does not leave the repository."""
    targets = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S))
    parts = [target.partition("#") for target in targets if not re.match(r"[a-z]+:", target)]
    return [((page.parent / file).resolve() if file else page, anchor) for file, _, anchor in parts]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page: those of its headings, as GitHub makes them, and those that it names itself."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {
        re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "", heading).lower()).strip().replace(" ", "-") for heading in headings
    } | set(named_anchors(page))


def named_anchors(page: Path) -> list[str]:
    """Return the anchors that a page names itself, in its order."""
    return re.findall(r'<a id="([^"]+)"></a>', page.read_text())


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_a_file_to_be_saved_is_named_where_a_reader_sees_it(page: Path) -> None:
    """The comment that names it for these tests is hidden from who reads the page."""
    text = page.read_text()
    for match in re.finditer(r"^<!-- file: (\S+) -->$", text, re.M):
        assert f"`{match[1]}`" in text[: match.start()].rstrip().rpartition("\n\n")[2], match[1]


@pytest.mark.parametrize("page", [*PAGES, *(ROOT / name for name in OTHERS)], ids=named)
def test_every_link_leads_somewhere(page: Path) -> None:
    for file, anchor in local_links(page):
        assert file.exists(), file
        assert not anchor or anchor in anchors(file), f"{file}#{anchor}"


def test_every_guide_is_linked_from_the_readme() -> None:
    linked = {file for file, _ in local_links(ROOT / "README.md")}
    assert {*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "tutorials").glob("*.md")} <= linked


def test_every_term_of_the_glossary_has_an_anchor_of_its_own() -> None:
    glossary = ROOT / "docs" / "glossary.md"
    rows = [line for line in glossary.read_text().splitlines() if line.startswith("| ") and not line.startswith("| term")]
    assert all(re.match(r'\| <a id="[a-z-]+"></a>\w', row) for row in rows)
    terms = named_anchors(glossary)
    assert len(terms) == len(set(terms)) == len(rows)


def test_the_map_names_each_file_as_it_is_called() -> None:
    """What a link of ARCHITECTURE.md shows is the end of the path that it leads to."""
    links = re.findall(r"\[`([^`]+)`\]\(([^)#]+)\)", (ROOT / "ARCHITECTURE.md").read_text())
    assert {f"streamer/{path.parent.name}" for path in (ROOT / "streamer").glob("*/__init__.py")} <= {
        target for _, target in links
    }
    for shown, target in links:
        path = Path(target).parent if Path(target).name in ("mod.rs", "lib.rs") else Path(target)
        name = shown.rstrip("/")
        assert f"/{path}".endswith(f"/{name}") or str(path) == f"crates/{name}/src", f"{shown} leads to {target}"


@pytest.mark.parametrize(
    "page", sorted({*PAGES, ROOT / "docs/spark.md"} - {ROOT / "docs/glossary.md"}), ids=lambda page: page.name
)
def test_every_guide_links_terms_to_the_glossary(page: Path) -> None:
    """That each of these links leads to a term is among the links that are looked after above."""
    assert {anchor for file, anchor in local_links(page) if file.name == "glossary.md"} - {""}


@pytest.mark.parametrize(
    "page", [*PAGES, *(ROOT / name for name in OTHERS if name != "CHANGELOG.md")], ids=lambda page: page.name
)
def test_sentences_name_their_subject(page: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    assert re.findall(r"(?:^|[.:;|-]\s+)((?:Likewise|That again|The same|So does|So is)\b.*)", prose, re.M) == []


def test_a_sentence_that_hides_its_subject_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("It is one.\nThe same holds here.\n")
    with pytest.raises(AssertionError, match="The same holds here"):
        test_sentences_name_their_subject(page)


def test_comments_name_their_subject() -> None:
    """Comments and docstrings do as pages do, and say that a lock is released, not let go."""
    hidden = re.compile(r'(?:(?://[/!]?|#:?)[ ]|""")(?:Likewise|That again|The same)\b|(?://|#|""").*\blet go\b')
    sources = (*(ROOT / "streamer").rglob("*.py*"), *(ROOT / "crates").glob("*/src/**/*.rs"))
    texts = {path: path.read_text("utf-8") for path in sources if path.suffix in (".py", ".pyi", ".rs")}
    assert len(texts) > 200
    assert [f"{path.relative_to(ROOT)}: {found[0]}" for path, text in texts.items() for found in hidden.finditer(text)] == []


@pytest.mark.parametrize(
    "page", [*PAGES, *(ROOT / name for name in OTHERS if name != "CHANGELOG.md")], ids=lambda page: page.name
)
def test_lines_of_prose_are_at_most_160_columns_wide(page: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    assert [line for line in prose.splitlines() if len(line) > 160 and not line.startswith(("|", "#"))] == []
