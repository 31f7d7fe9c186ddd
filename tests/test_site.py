"""The site has every page that its navigation names, every public name, and the figures of the records."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("pyspark")  # the reference has streamer.spark

from docs import charts, reference, site, terminal
from tests.tools import look_at_site

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def laid_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    site.lay_out(folder)
    return folder


def test_every_relative_link_of_the_pages_leads_to_a_page(laid_out: Path) -> None:
    pages = laid_out / "pages"
    links = 0
    for page in pages.glob("**/*.md"):
        for target, _ in site.LINK.findall(site.FENCE.sub("", page.read_text())):
            assert (page.parent / target).exists(), f"{page.relative_to(pages)} links to {target}"
            assert "/." not in target.replace("../", ""), (
                f"{page.relative_to(pages)} links to {target}, which the site leaves out"
            )
            links += 1
    assert links > 500


def test_the_navigation_names_every_guide(laid_out: Path) -> None:
    navigation = (laid_out / "zensical.toml").read_text()
    for guide in (*(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("*/*.md")):
        assert f'"{site.place(guide)}"' in navigation


def test_blocks_for_several_systems_are_tabs() -> None:
    page = "<!-- tabs -->\nOn Debian:\n\n```console\n$ a\n```\n\nOn macOS:\n\n```console\n$ b\n```\n<!-- /tabs -->\n"
    block = '=== "{}"\n\n    ```console\n    $ {}\n    ```\n'
    assert site.tabbed(page) == f"{block.format('Debian', 'a')}\n{block.format('macOS', 'b')}\n"


def test_the_first_page_leads_to_the_others(laid_out: Path) -> None:
    first = (laid_out / "pages" / "index.md").read_text()
    assert "[Install](overview.md#install)" in first
    assert "import streamer" in first


def test_a_page_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "every_page", lambda: iter([("index.md", "# One page\n")]))
    with pytest.raises(SystemExit, match=r"not there: .*semantics\.md"):
        site.lay_out(tmp_path)


def test_the_reference_has_every_public_name_with_its_text(laid_out: Path) -> None:
    texts = {path.name: path.read_text() for path in (laid_out / "pages" / "reference").iterdir()}
    for place, listed in reference.names().items():
        for name in listed:
            file = "streamer.Engine.md" if name == "Engine" else "streamer.errors.md" if name.endswith("Error") else f"{place}.md"
            assert re.search(rf"^## {name}$", texts[file], re.M), f"{place}.{name}"
    assert "### Engine.match_batch\n" in texts["streamer.Engine.md"]
    assert "- `layout`: the places of the parts of events of another shape" in texts["streamer.Engine.md"]
    # Nothing but its signature stands there for what has no docstring, which constants cannot have.
    bare = [
        found
        for text in texts.values()
        for found in re.findall(r"^##+ ([\w.]+)\n\n```python\n(?!\w+ = )(?:(?!```).*\n)+```\n\n(?=##)", text, re.M)
    ]
    assert bare == []


def test_a_signature_is_written_as_in_python() -> None:
    def called(a: int, /, b: str = "x", *rest: object, key: bool = False, **more: int) -> list[int]: ...

    (line,) = reference.signatures("called", called)
    namespace: dict[str, Callable[..., object]] = {}
    exec(f"from __future__ import annotations\n{line}: ...", namespace)
    assert inspect.signature(namespace["called"]) == inspect.signature(called)


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ("Two:\n- a\n- b", "Two:\n\n- a\n- b"),
        ("- a\n  - b\n  c", "- a\n    - b\n  c"),
        ("1. a\n2. b", "1. a\n2. b"),
    ],
)
def test_lists_are_written_as_python_markdown_reads_them(written: str, wanted: str) -> None:
    assert site.as_python_markdown(written) == wanted


def test_a_block_that_a_reader_saves_shows_its_name() -> None:
    page = "<!-- file: a/b.py -->\n```python\n1\n```\n\n<!-- run, with x.py -->\n```console\n$ ls\n```\n"
    assert site.named_blocks(page) == '```python title="a/b.py"\n1\n```\n\n```console\n$ ls\n```\n'


def test_a_chart_shows_what_the_record_says(tmp_path: Path) -> None:
    record = tmp_path / "record.md"
    record.write_text(
        "| workload | matches an event | streamer | a-tree | streamer ÷ fastest peer | ids |\n|---|--:|--:|--:|--:|---|\n"
        "| W8:10 | 1 | 100 | 1,000 | **0.1** | same |\n| W8 | 1 | 200 | – | – | same |\n\n- W8: more\n"
    )
    lines = "\n".join(charts.beside_peers(record)).replace("\N{NO-BREAK SPACE}", " ")
    assert "held" not in lines
    assert "| 10 | 100 ns | 1 µs |" in lines
    assert "| 10,000 | 200 ns | – |" in lines
    svg = ET.fromstring(lines[lines.index("<svg") : lines.index("</svg>") + 6])
    titles = [title.text for title in svg.iter("title")]
    assert titles == [
        "streamer: 100 ns an event, 10 subscriptions",
        "streamer: 200 ns an event, 10,000 subscriptions",
        "a-tree: 1 µs an event, 10 subscriptions",
    ]


def test_a_chart_of_memory_leaves_out_what_was_not_measured(tmp_path: Path) -> None:
    record = tmp_path / "record.md"
    record.write_text(
        "| workload | matches an event | streamer | a-tree | ids |\n|---|--:|--:|--:|---|\n| W8:10 | 1 | 100 | 1,000 | same |\n"
        "| W8 | 1 | 100 | – | same |\n\n| MB held | streamer | a-tree |\n|---|--:|--:|\n| W8:10 | 2.5 | 0.5 |\n"
        "| W8 | 1,200 | – |\n"
    )
    lines = "\n".join(charts.beside_peers(record)).replace("\N{NO-BREAK SPACE}", " ")
    # Less than a megabyte is noise, of which there is no line.
    assert "| 10 | 2.5 MB |\n| 10,000 | 1.2 GB |" in lines
    assert "streamer: 1.2 GB of memory, 10,000 subscriptions" in lines


def test_a_chart_of_rules_ends_a_line_where_a_peer_was_not_measured(tmp_path: Path) -> None:
    record = tmp_path / "record.md"
    record.write_text(
        "| rules | matches an event | streamer | rule-engine | streamer ÷ fastest | fastest other |\n|--:|--:|--:|--:|--:|---|\n"
        "| 1 | 0 | 1,000 | 5,000 | **0.2** | rule-engine |\n| 10,000 | 4 | 2,000 | – | – | – |\n"
    )
    assert charts.beside_python(record) == {
        "streamer": [(1.0, 1_000.0), (10_000.0, 2_000.0)],
        "rule-engine": [(1.0, 5_000.0)],
    }


def test_a_chart_that_is_a_file_is_svg_by_itself() -> None:
    for path, text in charts.pictures().items():
        assert ET.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg", path
        assert "var(--md-" not in text
        assert "prefers-color-scheme: dark" in text


def test_every_chart_of_the_page_is_drawn_and_no_label_covers_another() -> None:
    page = charts.page()
    drawn = re.findall(r"<svg.*?</svg>", page, re.S)
    assert drawn
    for text in drawn:
        svg = ET.fromstring(text)
        labels = sorted(float(group.findall("text")[-1].attrib["y"]) for group in svg.findall("g"))
        assert all(lower - upper >= charts.LINE - 0.1 for upper, lower in pairwise(labels))
        assert len(list(svg.iter("circle"))) > len(labels)


@pytest.mark.slow
def test_a_broken_link_and_a_broken_anchor_end_the_build(tmp_path: Path) -> None:
    pytest.importorskip("zensical", reason="the extra `docs` is not installed")
    (tmp_path / "pages").mkdir()
    (tmp_path / "zensical.toml").write_text('[project]\nsite_name = "x"\ndocs_dir = "pages"\n')

    def build(text: str) -> int:
        (tmp_path / "pages" / "index.md").write_text(text)
        command = [sys.executable, "-m", "zensical", "build", "--strict"]
        return subprocess.run(command, cwd=tmp_path, check=False, capture_output=True).returncode

    assert build("# Here\n\n[there](#here)\n") == 0
    assert build("# Here\n\n[there](#gone)\n") != 0
    assert build("# Here\n\n[there](gone.md)\n") != 0


@pytest.mark.integration
def test_every_page_shows_itself_in_a_browser() -> None:
    """Nothing is asked of elsewhere, nothing is wider than the window, light and dark switch, and the search finds."""
    pytest.importorskip("playwright", reason="the extra `docs` is not installed")
    if look_at_site.chromium() is None:
        pytest.skip("no Chromium is here")
    if not (site.SITE / "index.html").exists():
        pytest.skip("`make site` was not run")
    assert look_at_site.look(site.SITE, look_at_site.every_page(site.SITE)) == []


def test_a_picture_of_a_terminal_shows_what_the_command_printed() -> None:
    page = '<!-- file: s.jsonl -->\n```json\n{"id": "one"}\n{"id": 2}\n```\n'
    drawn = terminal.picture("streamer check -s s.jsonl", page)
    text = re.sub(r"<[^>]+>", "\n", drawn).replace("&#160;", " ")
    assert "$ streamer check -s s.jsonl" in text.replace("\n", "")
    assert "s.jsonl:2: id: expected a string" in text
    assert "@font-face" not in drawn
    assert "url(http" not in drawn
