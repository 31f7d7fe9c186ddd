"""Look at the built site as a reader does: every page in a real browser, on a phone and on a desk, light and dark.

    make site && python -m tests.tools.look_at_site [--pictures FOLDER] [PAGE...]

Prints each fault: a request that leaves the site, an error on the console, a page that is wider than the window, a picture that
is not shown, a search that finds nothing, a switch of light and dark that does not switch. Needs Chromium and the extra `docs`.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
WIDTHS = (390, 1280)
SCHEMES = ("light", "dark")
#: What a reader may search for, and a part of the address of the first result.
SEARCHES = {"tombstone": "", "contains list": "cel", "pandas": "arrow", "sns": "sns"}
#: Pages whose pictures say how the site looks.
SHOWN = ("index.html", "tutorials/embed.html", "semantics.html", "reference/streamer.Engine.html", "benchmarks/cost.html")


def chromium() -> str | None:
    """Return the path of the browser that is here."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Quiet(SimpleHTTPRequestHandler):
    """Serves files, and says nothing of it."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on this machine; give the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def look(folder: Path, pages: list[str], pictures: Path | None = None) -> list[str]:
    """Return the faults of the pages of a site."""
    from playwright.sync_api import sync_playwright

    faults: list[str] = []
    with served(folder) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        for width in WIDTHS:
            for scheme in SCHEMES:
                context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
                page = context.new_page()
                where = ""

                def fault(text: str) -> None:
                    faults.append(f"{where} at {width} pixels, {scheme}: {text}")  # noqa: B023 - of this round

                page.on("request", lambda asked: None if local(asked.url, address) else fault(f"asks for {asked.url}"))
                page.on(
                    "requestfailed", lambda asked: None if left(asked) else fault(f"does not get {asked.url}: {asked.failure}")
                )
                page.on("response", lambda told: fault(f"gets {told.status} of {told.url}") if told.status >= 400 else None)
                page.on("console", lambda said: fault(said.text) if said.type in ("error", "warning") else None)
                page.on("pageerror", lambda error: fault(str(error)))
                for where in pages:
                    page.goto(address + where, wait_until="load")
                    for problem in page.evaluate(PROBLEMS):
                        fault(problem)
                    if pictures and where in SHOWN:
                        name = where.removesuffix(".html").replace("/", "-")
                        page.screenshot(path=pictures / f"{name}-{width}-{scheme}.png")
                where = pages[0]
                page.goto(address + where, wait_until="load")
                for problem in use(page):
                    fault(problem)
                context.close()
        browser.close()
    return faults


def local(url: str, address: str) -> bool:
    """Tell whether a request stays on the site."""
    return url.startswith((address, "data:", "blob:"))


def left(asked: Any) -> bool:
    """Tell whether a request ended since the browser went on to the next page."""
    return bool(asked.failure == "net::ERR_ABORTED")


#: What a page tells of itself: is it wider than the window, which pictures are not there?
PROBLEMS = """() => {
    const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
    const found = wide > 0 ? [`is ${wide} pixels wider than the window`] : [];
    for (const image of document.images)
        if (!image.complete || image.naturalWidth === 0) found.push(`does not show ${image.src}`);
    for (const svg of document.querySelectorAll(".chart svg"))
        for (const text of svg.querySelectorAll("text")) {
            const outer = svg.getBoundingClientRect(), inner = text.getBoundingClientRect();
            if (inner.left < outer.left - 1 || inner.right > outer.right + 1) found.push(`cuts '${text.textContent}' off`);
        }
    for (const code of document.querySelectorAll(".language-console code")) {
        // As the copy button marks what it takes the text of.
        code.setAttribute("data-md-copying", "");
        if ([...code.querySelectorAll(".gp, .go")].some(each => each.getClientRects().length))
            found.push(`copies the prompt or the output of '${code.textContent.slice(0, 40)}'`);
        code.removeAttribute("data-md-copying");
    }
    return found;
}"""


def use(page: Any) -> Iterator[str]:
    """Switch light and dark, and search; yield what does not work."""
    ground = "getComputedStyle(document.body).backgroundColor"
    seen = {page.evaluate(ground)}
    for _ in range(3):
        page.locator("form[data-md-component=palette] label:visible").first.click()
        page.wait_for_timeout(300)
        seen.add(page.evaluate(ground))
    if len(seen) < 2:
        yield "has no switch of light and dark that works"
    start = page.url
    for words, place in SEARCHES.items():
        page.goto(start)
        page.wait_for_timeout(500)
        page.keyboard.press("Control+k")
        page.wait_for_timeout(500)
        page.keyboard.type(words, delay=20)
        page.wait_for_timeout(3000)  # or Enter takes a result of the first letters
        before = page.url
        for _ in range(30):
            page.wait_for_timeout(500)
            page.keyboard.press("Enter")  # leads to the first result, once there is one
            if page.url != before:
                break
        if place not in page.url or page.url == before:
            yield f"finds {page.url} first for {words!r}"


def main() -> None:
    """Look, and tell; exit code 1 where there are faults."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.look_at_site", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("pages", nargs="*", help="pages to look at, such as engine.html (default: all)")
    parser.add_argument("--site", type=Path, default=ROOT / "site", help="the folder of the site (site/)")
    parser.add_argument("--pictures", type=Path, help="write screenshots of some pages to this folder")
    options = parser.parse_args()
    if not (options.site / "index.html").exists():
        sys.exit(f"{options.site} has no index.html: run `make site` first")
    if chromium() is None:
        sys.exit("no Chromium is here; on Debian and Ubuntu: apt install chromium")
    if options.pictures:
        options.pictures.mkdir(parents=True, exist_ok=True)
    pages = options.pages or every_page(options.site)
    faults = look(options.site, pages, options.pictures)
    print("\n".join([*faults, f"{len(pages)} pages, {len(WIDTHS)} widths, light and dark: {len(faults)} faults"]))
    sys.exit(1 if faults else 0)


def every_page(folder: Path) -> list[str]:
    """Return the pages of a site, the one that it begins with first; of the pages that show files, one."""
    found = sorted(path.relative_to(folder).as_posix() for path in folder.glob("**/*.html"))
    files = [name for name in found if name.startswith("files/")]
    return ["index.html", *(name for name in found if name not in {"index.html", "404.html", *files}), *files[:1]]


if __name__ == "__main__":
    main()
