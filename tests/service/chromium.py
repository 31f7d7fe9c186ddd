"""Chromium for tests of the console: what a person sees, and nothing that should not be there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.tools import look_at_site

if TYPE_CHECKING:
    from tests.service.api import Api

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "assets" / "console"
AXE = Path(__file__).parent / "axe" / "axe.min.js"
#: Findings that people are kept out by.
SERIOUS = ("serious", "critical")
WINDOWS = {"wide": {"width": 1280, "height": 900}, "narrow": {"width": 390, "height": 844}}


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """Chromium, started once a file: while Playwright runs, no other event loop does in this thread."""
    path = look_at_site.chromium()
    if path is None:
        pytest.skip("no Chromium is here: tests of the console in a browser are left out")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Root has no sandbox, and tests open nothing but what they serve themselves.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


@pytest.fixture
def window(chromium: Any, api: Api) -> Iterator[Window]:
    """A window on the service that the fixture `api` of the file runs."""
    made = Window(chromium, f"http://127.0.0.1:{api.port}")
    yield made
    made.close()


class Window:
    """A window of a browser without a past, which notes what should not happen.

    Attributes:
        page: Playwright's.
        wrong: errors in the console, reports of the policy, requests elsewhere.
    """

    def __init__(self, browser: Any, origin: str, **options: Any) -> None:
        self.origin, self.wrong = origin, list[str]()
        options = {"viewport": WINDOWS["wide"], "timezone_id": "UTC", **options}
        self._context = browser.new_context(base_url=origin, **options)
        self._context.set_default_timeout(15_000)
        self.page = self._context.new_page()
        self.page.on("console", lambda told: told.type == "error" and self.wrong.append(f"console: {told.text}"))
        self.page.on("pageerror", lambda error: self.wrong.append(f"script: {error}"))
        self.page.on("dialog", lambda dialog: (self.wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        self.page.on("request", lambda asked: asked.url.startswith(origin + "/") or self.wrong.append(f"request: {asked.url}"))

    def open(self, path: str) -> Any:
        """Open a page of the console; return Playwright's page."""
        self.page.goto(path)
        return self.page

    def sign_in(self, token: str, path: str = "/console/") -> Any:
        """Sign in as a person does, and come to a page."""
        self.open(path)
        self.page.get_by_label("Token").fill(token)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.wait_for_url(f"**{path}")
        return self.page

    def look(self, *, width: str = "wide", scheme: str = "light") -> None:
        """Show the page in a window of a width, and in a colour scheme."""
        self.page.set_viewport_size(WINDOWS[width])
        self.page.emulate_media(color_scheme=scheme)

    def findings(self) -> list[str]:
        """Return what axe finds serious. It runs beside the page's policy, which lets no script in."""
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(AXE.read_text())
        told = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{each['id']}: {each['help']}: {node['target']} {node.get('failureSummary', '')[:300]}"
            for each in told["violations"]
            if each["impact"] in SERIOUS
            for node in each["nodes"]
        ]

    def is_scrolled_sideways(self) -> bool:
        """Tell whether the page is wider than the window."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))

    def picture(self, name: str, *, is_whole: bool = True, of: Any = None) -> None:
        """Write what is seen, or a part, for docs/console.md, in few colours so that it is small; if `make console` wants it."""
        if not os.environ.get("STREAMER_PICTURES"):
            return
        from PIL import Image

        PICTURES.mkdir(parents=True, exist_ok=True)
        taken = self.page.screenshot(full_page=is_whole) if of is None else of.screenshot()
        with Image.open(BytesIO(taken)) as image:
            image.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(PICTURES / f"{name}.png", optimize=True)

    def close(self) -> None:
        """Close it. Raises AssertionError: something was wrong."""
        self._context.close()
        assert not self.wrong, self.wrong
