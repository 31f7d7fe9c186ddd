"""Build the documentation as a site in site/: `make site`.

Its pages are the repository's Markdown, which GitHub shows as well; docs/reference.py and docs/charts.py make the others. A file
that a page links to and that is no page becomes one that shows it, so that every link leads somewhere. A broken link or anchor
ends the build with an error. Nothing is loaded from elsewhere.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from docs import charts, terminal
from docs.reference import Reference

ROOT: Final = Path(__file__).resolve().parents[1]
WORK: Final = ROOT / "target" / "site"
SITE: Final = ROOT / "site"

LANGUAGES: Final = {
    ".py": "python",
    ".pyi": "python",
    ".rs": "rust",
    ".yml": "yaml",
    ".jsonl": "json",
    ".md": "markdown",
    "": "text",
}
#: A page shows no more of a file.
MOST_LINES: Final = 1500

FENCE: Final = re.compile(r"^(?P<fence>```+|~~~+).*?^(?P=fence)\s*$", re.M | re.S)
LINK: Final = re.compile(r"\]\((?![a-z]+:)([^)\s#]+)(#[^)\s]*)?\)")
PICTURE: Final = re.compile(r"^<!-- picture: (.*) -->$", re.M)
#: The site leaves out files and folders whose names begin so.
HIDDEN: Final = re.compile(r"(?<![^/])\.")
TABS: Final = re.compile(r"^<!-- tabs -->\n(.*?)^<!-- /tabs -->$", re.M | re.S)
TAB: Final = re.compile(r"^(?:On )?([^`\n]+):\n\n(```.*?^```$)\n", re.M | re.S)
#: Where a reader may go from the first page.
LANDING: Final = {
    "Install": "README.md#install",
    "Embed it in Python": "docs/tutorials/embed.md",
    "Send webhooks from a table": "docs/tutorials/webhook.md",
    "Match on Spark": "docs/tutorials/spark.md",
    "Bring your rules": "docs/coming-from/README.md",
}
ITEM: Final = re.compile(r" *(?:[-*]|\d+\.) ")


def pages() -> list[Path]:
    """Return the Markdown files that are pages."""
    found = [ROOT / f"{name}.md" for name in ("README", "ARCHITECTURE", "CONTRIBUTING", "CHANGELOG", "SECURITY")]
    for folder in ("docs", "benchmarks", "benchmarks/records", "testdata"):
        found += sorted((ROOT / folder).glob("**/*.md" if folder == "docs" else "*.md"))
    return found


def place(file: Path) -> str:
    """Return where a file of the repository, or the page that shows it, stands on the site."""
    path = file.relative_to(ROOT).as_posix()
    if path == "README.md":
        return "overview.md"
    if file.is_dir():
        return place(file / "README.md") if (file / "README.md").exists() else f"files/{HIDDEN.sub('', path)}/index.md"
    path = path.removeprefix("docs/")
    if file in pages() or file.suffix in (".png", ".svg"):
        return path
    return f"files/{HIDDEN.sub('', path)}.md"


def outside_fences(text: str, change: Callable[[str], str]) -> str:
    """Change the prose of a page, and leave its blocks of code alone."""
    parts: list[str] = []
    end = 0
    for block in FENCE.finditer(text):
        parts += change(text[end : block.start()]), block[0]
        end = block.end()
    return "".join([*parts, change(text[end:])])


def as_python_markdown(prose: str) -> str:
    """Write lists as Python-Markdown wants them: a blank line before, four spaces within."""
    lines: list[str] = []
    for line in prose.split("\n"):
        item = ITEM.match(line)
        before = lines[-1] if lines else ""
        if item and before.strip() and not ITEM.match(before) and not before.startswith(" "):
            lines.append("")
        lines.append(" " * (len(line) - len(line.lstrip(" "))) + line if item else line)
    return "\n".join(lines)


def linked(prose: str, page: Path, seen: Callable[[Path], object]) -> str:
    """Make the links of a page lead to places of the site; tell of each file that is linked to."""

    def link(match: re.Match[str]) -> str:
        target = (page.parent / match[1]).resolve()
        seen(target)
        path = os.path.relpath(place(target), Path(place(page)).parent).replace(os.sep, "/")
        return f"]({path}{match[2] or ''})"

    return LINK.sub(link, prose)


def named_blocks(text: str) -> str:
    """Give a block that a reader saves to a file the name as its title."""
    text = re.sub(r"^<!-- file: (\S+) -->\n(```\w*)", r'\2 title="\1"', text, flags=re.M)
    return re.sub(r"^<!-- run\b.*-->\n", "", text, flags=re.M)


def pictured(text: str, page: Path) -> str:
    """Show the pictures of a terminal that a page asks for."""
    folder = os.path.relpath("pictures", Path(place(page)).parent).replace(os.sep, "/")
    return PICTURE.sub(lambda found: f"![$ {found[1]}]({folder}/{picture_name(page, found[1])})", text)


def picture_name(page: Path, command: str) -> str:
    """Return the name of a picture."""
    return f"{page.stem}-{re.sub(r'[^a-z0-9]+', '-', command.lower()).strip('-')}.svg"


def written(page: Path, seen: Callable[[Path], object]) -> str:
    """Return a page as the site has it."""
    text = pictured(named_blocks(page.read_text(encoding="utf-8")), page)
    if page.parent.name == "records":
        text = f"---\nsearch:\n  exclude: true\n---\n\n{text}"
    return outside_fences(tabbed(text), lambda prose: as_python_markdown(linked(prose, page, seen)))


def tabbed(text: str) -> str:
    """Show the blocks between `<!-- tabs -->` and `<!-- /tabs -->` as tabs; the line before each names it."""

    def tab(found: re.Match[str]) -> str:
        return f'=== "{found[1]}"\n\n' + "".join(f"    {line}\n" for line in found[2].splitlines())

    return TABS.sub(lambda found: TAB.sub(tab, found[1]), text)


def landing(seen: Callable[[Path], object]) -> str:
    """Return the first page of the site: what the README begins with, and where to go from there."""
    readme = ROOT / "README.md"
    start, _, _ = readme.read_text(encoding="utf-8").partition("\n## Install")
    title, claim, use, *rest = start.split("\n\n")
    links = "\n".join(f"[{name}]({link})" for name, link in LANDING.items())
    text = "\n\n".join([title, claim, use, f'<div class="start" markdown>\n{links}\n</div>', *rest])
    return "---\nhide:\n  - navigation\n  - toc\n---\n\n" + outside_fences(text, lambda prose: linked(prose, readme, seen))


def shown(file: Path) -> str:
    """Return a page that shows a file, or lists a folder."""
    path = file.relative_to(ROOT).as_posix()
    if file.is_dir():
        listed = sorted(f"{each.name}/" if each.is_dir() else each.name for each in file.iterdir())
        body = "\n".join(f"- `{name}`" for name in listed if not name.startswith((".", "_")))
    else:
        lines = file.read_text(encoding="utf-8").splitlines()
        cut = [f"… {len(lines) - MOST_LINES:,} more lines"] if len(lines) > MOST_LINES else []
        fence = "`" * max(4, *(len(found) + 1 for found in re.findall(r"^`+", "\n".join(lines), re.M)), 0)
        language = LANGUAGES.get(file.suffix, file.suffix[1:])
        body = "\n".join([f"{fence}{language}", *lines[:MOST_LINES], *cut, fence])
    return f"---\nsearch:\n  exclude: true\nhide:\n  - toc\n---\n\n# {path}\n\n{body}\n"


def every_page() -> Iterator[tuple[str, str | Path]]:
    """Yield each page and picture: where it stands on the site, and its text, or the file to copy."""
    linked_to: list[Path] = []
    yield "index.md", landing(linked_to.append)
    for page in pages():
        yield place(page), written(page, linked_to.append)
        text = page.read_text(encoding="utf-8")
        for command in PICTURE.findall(text):
            yield f"pictures/{picture_name(page, command)}", terminal.picture(command, text)
    for target in sorted({*linked_to} - {*pages()}):
        if not target.exists():
            continue  # the build names the link
        if place(target).startswith("files/"):
            yield place(target), shown(target)
        elif target.is_file() and target not in pages():
            yield place(target), target
    yield "benchmarks/cost.md", charts.page()
    for name, text in Reference().pages().items():
        yield f"reference/{name}", text


def lay_out(folder: Path) -> None:
    """Write the pages and the configuration to *folder*."""
    for name, content in every_page():
        path = folder / "pages" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path):
            shutil.copy(content, path)
        else:
            path.write_text(content, encoding="utf-8")
    shutil.copytree(ROOT / "docs" / "assets", folder / "pages" / "assets", dirs_exist_ok=True)
    modules = ", ".join(f'{{ "{title}" = "reference/{Reference.file(title)}" }}' for title in Reference().titles())
    config = (ROOT / "docs" / "zensical.toml").read_text(encoding="utf-8")
    config = re.sub(r"^ *# The pages of the modules.*$", f"    {modules},", config, flags=re.M)
    # Zensical takes a page that is not there for a link.
    if missing := [name for name in re.findall(r'= "(\S+\.md)"', config) if not (folder / "pages" / name).exists()]:
        raise SystemExit(f"docs/zensical.toml: the navigation names pages that are not there: {', '.join(missing)}")
    (folder / "zensical.toml").write_text(config, encoding="utf-8")


def main() -> None:
    """Lay the pages out, build the site, and put it into site/."""
    shutil.rmtree(WORK, ignore_errors=True)
    lay_out(WORK)
    done = subprocess.run([sys.executable, "-m", "zensical", "build", "--strict"], cwd=WORK, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    shutil.rmtree(SITE, ignore_errors=True)
    shutil.copytree(WORK / "html", SITE)
    print(f"open {SITE.relative_to(ROOT)}/index.html")


if __name__ == "__main__":
    main()
