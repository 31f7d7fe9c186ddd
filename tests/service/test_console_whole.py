"""Once through all pages, as somebody without a mouse and somebody without a script go."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from streamer.service.console.pages import VIEWS
from tests.service.api import BIG, Api, order, running, until
from tests.service.chromium import Window

pytestmark = [pytest.mark.slow, pytest.mark.later_on_the_reference]

LISTED = [view.path for view in VIEWS if view.is_listed]
#: Presses of a key after which it leads nowhere.
MOST = 400
#: What the keyboard is at: what a screen reader would call it, and whether one sees that it is. It is marked as come to.
AT = """() => {
  const at = document.activeElement, style = getComputedStyle(at), labels = [...(at.labels ?? [])].map((each) => each.innerText);
  at.cameTo = true;
  const name = at.getAttribute("aria-label") || labels.join(" ") || at.innerText || at.value || "";
  return [name.replace(/\\s+/g, " ").trim(), at.tagName, style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0];
}"""
#: What can be used and was not come to.
LEFT = """() => [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")]
  .filter((each) => each.checkVisibility() && !each.disabled && each.type !== "hidden" && each.tabIndex >= 0 && !each.cameTo)
  .map((each) => each.outerHTML.slice(0, 100))"""
#: The next press leads to what comes first.
BEGIN = """() => {
  scrollTo(0, 0);
  document.body.tabIndex = -1;
  document.body.focus();
  document.body.removeAttribute("tabindex");
}"""


class Person(Protocol):
    """Who goes through the pages, by what is written on them."""

    page: Any

    def press(self, name: str) -> None: ...

    def write(self, name: str, text: str) -> None: ...

    def choose(self, name: str, text: str) -> None: ...


class Keyboard:
    """Uses nothing but keys: what is named must be come to by the tabulator, and be seen to be."""

    def __init__(self, page: Any) -> None:
        self.page = page

    def _go(self, name: str) -> None:
        for _ in range(MOST):
            self.page.keyboard.press("Tab")
            found, tag, is_seen = self.page.evaluate(AT)
            if tag != "BODY":
                assert is_seen, f"one does not see that {found!r} is used"
            if re.match(rf"{re.escape(name)}(?!\w)", found):
                return
        raise AssertionError(f"the keyboard does not come to {name!r}")

    def press(self, name: str) -> None:
        self._go(name)
        is_box = self.page.evaluate("document.activeElement.type") == "checkbox"
        self.page.keyboard.press("Space" if is_box else "Enter")

    def write(self, name: str, text: str) -> None:
        self._go(name)
        self.page.keyboard.press("ControlOrMeta+A")
        # As from a clipboard: what is typed would be checked letter by letter.
        self.page.keyboard.insert_text(text)

    def choose(self, name: str, text: str) -> None:
        self._go(name)
        for _ in range(MOST):
            if self.page.evaluate("document.activeElement.selectedOptions[0].text").startswith(text):
                return
            self.page.keyboard.press("ArrowDown")
        raise AssertionError(f"{name!r} has no {text!r}")


class Mouse:
    """Clicks; the browser has no script."""

    def __init__(self, page: Any) -> None:
        self.page = page

    def press(self, name: str) -> None:
        button = self.page.get_by_role("button", name=name)
        for each in (button, self.page.get_by_role("link", name=name), self.page.get_by_label(name), self.page.get_by_text(name)):
            if each.count():
                each.first.click()
                return
        raise AssertionError(f"there is no {name!r}")

    def write(self, name: str, text: str) -> None:
        self.page.get_by_label(name).first.fill(text)

    def choose(self, name: str, text: str) -> None:
        options = self.page.get_by_label(name).locator("option").all_inner_texts()
        self.page.get_by_label(name).select_option(label=next(each for each in options if each.startswith(text)))


@pytest.fixture
def api(tmp_path: Path, backend: str) -> Iterator[Api]:
    """A service with a subscription, an event that it matched, and a record that could not be read."""
    with running(tmp_path) as api:
        assert api.ask("PUT", "/v1/subscriptions/big", BIG).status == 201
        api.read(order(1), order(2, amount=1))
        with open(tmp_path / "in.jsonl", "ab") as file:
            file.write(b'{"not": "whole\n')
        until(lambda: api.counts()["events_read"] == 3)
        api.token = api.make_token(None, "admin")
        yield api


@pytest.mark.parametrize("way", ["keyboard", "no script"])
def test_somebody_goes_once_through_everything(chromium: Any, api: Api, way: str) -> None:
    window = Window(chromium, f"http://127.0.0.1:{api.port}", java_script_enabled=way == "keyboard")
    page = window.open("/console/")
    who: Person = Keyboard(page) if way == "keyboard" else Mouse(page)
    sees = lambda text: page.get_by_text(text).first.wait_for()  # noqa: E731

    who.write("Token", api.token)
    who.press("Sign in")
    page.get_by_role("heading", name="Overview", exact=True).wait_for()
    who.write("Tenant", "acme")
    # Nothing that one waits for tells the page that was sent from the one that comes: both have the tenant in the field.
    with page.expect_navigation():
        who.press("Choose")
    assert page.get_by_label("Tenant", exact=True).input_value() == "acme"

    who.press("Subscriptions")
    page.get_by_role("link", name="big").wait_for()
    who.press("New subscription")
    page.get_by_role("heading", name="New subscription").wait_for()
    who.write("Id", "mine")
    who.write("Subscription, as JSON", '{"collection": "orders", "filters": [{"field": "amount", "op": "<", "value": 5}]}')
    who.press("Check and try it")
    sees("it would have matched")
    who.press("Save")
    sees("mine is saved")
    who.press("Pause")
    sees("has no matches until it is resumed")
    who.press("Resume")
    sees("matches again")

    who.press("Subscriptions")
    page.get_by_role("heading", name="Subscriptions", exact=True).wait_for()
    who.press("Import")
    page.get_by_role("heading", name="Import subscriptions").wait_for()
    who.write("Subscriptions, one a line", '{"id": "one", "collection": "orders"}')
    who.press("Only check")
    sees("All lines are good")
    who.press("Write the good ones")
    who.press("Import")
    sees("1 created, 0 replaced")

    who.press("Try")
    page.get_by_role("heading", name="Try", exact=True).wait_for()
    who.choose("Begin with an example", "debezium: an insert")
    who.press("Take it")
    until(lambda: '"op": "c"' in page.get_by_label("Event, as JSON").input_value())
    who.press("Try it")
    page.get_by_role("region", name="What a source makes of it").wait_for()

    who.press("Live")
    page.get_by_role("heading", name="Live", exact=True).wait_for()
    who.write("Subscription", "big")
    who.press("Show")
    page.wait_for_url("**subscription=big**")
    who.press("Why?")
    page.get_by_role("region", name="The way of this event").wait_for()
    sees("Written to the sink out, a file")

    who.press("Deliveries")
    page.get_by_role("heading", name="Deliveries", exact=True).wait_for()
    who.press("Send a test to out")
    sees("A test to out: delivered")
    who.press("all of them")
    who.press("Send again all of malformed_json")
    sees("dead letters are sent again")
    who.press("Drop number")
    sees("is dropped")

    who.press("Metrics")
    page.get_by_role("heading", name="Metrics", exact=True).wait_for()
    who.write("Name begins with", "streamer_events")
    who.press("Show")
    page.wait_for_url("**name=streamer_events**")
    who.press("Filters")
    page.get_by_role("heading", name="Filters", exact=True).wait_for()

    who.press("Configuration")
    page.get_by_role("heading", name="Configuration", exact=True).wait_for()
    who.press("Write or paste one")
    who.write("Configuration, in YAML", "nosuch: 1\n")
    who.press("Check")
    sees("It would be refused")
    who.press("Show all")
    sees("Only fields that are set")
    who.press("Sign out")
    page.get_by_role("heading", name="Sign in").wait_for()
    window.close()


@pytest.mark.integration
def test_the_keyboard_comes_to_all_that_can_be_used_and_leaves_it(window: Window, api: Api) -> None:
    """Once through each page and out of it, so nothing holds it."""
    page = window.sign_in(api.token)
    page.get_by_label("Tenant", exact=True).fill("acme")
    page.get_by_role("button", name="Choose").click()
    for path in (*LISTED, "subscription?id=big", "import", "try?number=1"):
        window.open(f"/console/{path}")
        page.get_by_role("heading", level=1).wait_for()
        if (again := page.get_by_role("button", name="Pause")).count() and path in ("", "live"):
            # What is told anew meanwhile would be counted twice.
            again.click()
            page.evaluate("document.activeElement.blur()")
        page.evaluate(BEGIN)
        for _ in range(MOST):
            page.keyboard.press("Tab")
            name, tag, is_seen = page.evaluate(AT)
            if tag == "BODY":
                break
            assert is_seen, (path, name)
        assert tag == "BODY", f"{path}: the keyboard does not leave the page"
        assert page.evaluate(LEFT) == [], path
