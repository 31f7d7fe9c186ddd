"""Documentation, docstrings, comments and messages are in plain English: few of the turns that prose.toml lists.

A page has at most three of them per 1,000 words. A page or a kind of text with more has its number in prose_ratchet.toml,
which may only fall. `python tests/test_prose.py` prints all counts, and `--write` lowers the numbers of the ratchet.
"""

from __future__ import annotations

import ast
import functools
import io
import re
import sys
import tokenize
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LISTS = tomllib.loads((ROOT / "tests/prose.toml").read_text("utf-8"))
RATCHET = ROOT / "tests/prose_ratchet.toml"
TICS = {tic["name"]: re.compile(tic["find"], re.I | re.M) for tic in LISTS["tic"]}
#: The most a page may have per 1,000 words.
LIMIT = 3.0

PAGES = sorted({*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md"), ROOT / "testdata/README.md"})


def prose(page: str) -> str:
    """Return the sentences of a page, without code, comments, anchors and targets of links."""
    page = re.sub(r"^```.*?^```\s*?$|<!--.*?-->|<[^>\n]*>", "", page, flags=re.M | re.S)
    page = re.sub(r"`[^`\n]*`", "`", page)  # one sign stays, so that a sentence still begins with something
    page = re.sub(r"\]\([^)\s]*\)", "]", page)
    page = re.sub(r"^\s*(?:[-*>]|\d+\.|#+) +", "\n", page, flags=re.M)
    page = re.sub(r"^\|[-:| ]+\|$", "", page, flags=re.M)
    # Join the lines of a paragraph; each paragraph and each row of a table stays a line of its own.
    return re.sub(r"(?<![|\n])\n(?=[^\n|])", " ", page)


def python_texts(path: Path) -> tuple[list[str], list[str]]:
    """Return the docstrings and comments of a file, and the texts that it shows: literals with a space between words."""
    source = path.read_text("utf-8")
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = [token.string.lstrip("#: ") for token in tokens if token.type == tokenize.COMMENT]
    nodes = [*ast.walk(ast.parse(source))]
    documented = [node for node in nodes if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)]
    docstrings = {ast.get_docstring(node, clean=False) for node in documented}
    literals = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    shown = {text for text in literals - docstrings if re.search(r"[a-z] [a-z]", text)}
    return comments + [text for text in docstrings if text], sorted(shown)


def rust_texts(path: Path) -> tuple[list[str], list[str]]:
    """Return the comments of a file, and the texts that it shows."""
    source = path.read_text("utf-8")
    comments = re.findall(r"^[ \t]*//[/!]?[ \t]?(.*)$", source, re.M)
    code = re.sub(r"^\s*//.*$", "", source, flags=re.M)
    return comments, re.findall(r'"((?:[^"\\\n]|\\.)*[a-z] [a-z](?:[^"\\\n]|\\.)*)"', code)


@functools.cache
def kinds() -> dict[str, str]:
    """Return each kind of text that the ratchet bounds as one, with all of it."""
    found = {}
    for language, read, folder, pattern in (
        ("python", python_texts, "streamer", "*.py"),
        ("rust", rust_texts, "crates", "*/src/**/*.rs"),
    ):
        texts = [read(path) for path in sorted((ROOT / folder).rglob(pattern))]
        found[f"{language} comments"] = "\n\n".join(text for comments, _ in texts for text in comments)
        found[f"{language} messages"] = "\n\n".join(text for _, messages in texts for text in messages)
    return found


def words(text: str) -> int:
    return len(re.findall(r"\b[A-Za-z][A-Za-z'’-]*", text))


def found(text: str) -> dict[str, list[str]]:
    """Return what stands around each tic of *text*, by the tic's name."""
    return {
        name: [text[max(0, hit.start() - 30) : hit.end() + 30].replace("\n", " ") for hit in pattern.finditer(text)]
        for name, pattern in TICS.items()
    }


def rate(text: str) -> float:
    """Return the tics of *text* per 1,000 words."""
    return round(1000 * sum(map(len, found(text).values())) / max(words(text), 1), 1)


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def counted() -> dict[str, str]:
    """Return all prose by the name that the ratchet has for it."""
    return {named(page): prose(page.read_text("utf-8")) for page in PAGES} | {name: prose(text) for name, text in kinds().items()}


def bounds() -> dict[str, float]:
    return tomllib.loads(RATCHET.read_text("utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_a_page_is_in_plain_english(page: Path) -> None:
    text = prose(page.read_text("utf-8"))
    bound = bounds().get(named(page), LIMIT)
    hits = "\n".join(f"{name}: …{hit}…" for name, hits in found(text).items() for hit in hits)
    assert rate(text) <= bound, f"{named(page)} has {rate(text)} tics per 1,000 words, more than {bound}:\n{hits}"


def test_comments_and_messages_get_plainer() -> None:
    bound = bounds()
    over = {name: (rate(prose(text)), bound.get(name, LIMIT)) for name, text in kinds().items()}
    assert {name: both for name, both in over.items() if both[0] > both[1]} == {}


def test_the_ratchet_names_what_exists() -> None:
    assert bounds().keys() <= {*map(named, PAGES), *kinds()}
    assert all(bound > LIMIT for bound in bounds().values())


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Who stops gives that up.", "headless who"),
        ("It is a list for who watches.", "headless who"),
        ("Of each webhook there are five.", "inversion"),
        ("A paragraph.\n\nno rows here", "negation first"),
        ("The endpoint is told.", "tell"),
        ("One sentence. Not in it are secrets.", "inversion"),
        ("The file has what was read.", "headless what"),
    ],
)
def test_a_tic_is_found(text: str, name: str) -> None:
    assert found(text)[name]


def test_code_and_questions_have_no_tics() -> None:
    page = "# What is a match?\n\nUse `told` or this:\n\n```python\nheld = asked\n```\n\n[link](told.md#asked)\n"
    assert rate(prose(page)) == 0


def test_a_comment_in_rust_is_read_line_by_line(tmp_path: Path) -> None:
    file = tmp_path / "a.rs"
    file.write_text("//! One.\n//!\n//! ```text\n//!   told\n//! ```\n//!\n//! Two.\n\nfn a() {}\n", "utf-8")
    comments, _ = rust_texts(file)
    assert comments == ["One.", "", "```text", "  told", "```", "", "Two."]


def report() -> str:
    texts = counted()
    documents = " ".join(texts[named(page)] for page in PAGES)
    lines = [f"{rate(text):6.1f}  {words(text):7,}  {name}" for name, text in texts.items()]
    lines += ["", "per 10,000 words of all pages"]
    for name, pattern in LISTS["words"].items():
        hits = len(re.findall(pattern, documents, re.I))
        lines.append(f"{10_000 * hits / words(documents):6.1f}  {name}")
    return "\n".join(lines)


if __name__ == "__main__":
    if "--write" in sys.argv:
        old = bounds() if RATCHET.exists() else {}
        now = {name: rate(text) for name, text in counted().items()}
        kept = {name: min(now[name], old.get(name, now[name])) for name in old or now if now[name] > LIMIT}
        RATCHET.write_text(
            "# Tics per 1,000 words of what has more than 3 (tests/test_prose.py). A number here may only fall.\n"
            + "".join(f'"{name}" = {value}\n' for name, value in sorted(kept.items())),
            "utf-8",
        )
    print(report())
