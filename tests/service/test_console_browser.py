"""The console as people see it, in a real browser. `make console` writes the pictures of docs/console.md, too."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamer.service.console.pages import VIEWS
from streamer.service.observed import observer
from streamer.service.observed.matches import MINUTE, _Minute
from streamer.service.store.ids import inside
from tests.service.api import BIG, LINES, Api, order, running, until
from tests.service.chromium import Window
from tests.service.receiver import Receiver

pytestmark = [pytest.mark.slow, pytest.mark.later_on_the_reference]

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>{{7*7}}\u202e\x00\x1b[31m\"'`"
LISTED = [view.path for view in VIEWS if view.is_listed]
LOOKS = (("narrow", "light"), ("wide", "dark"))


@pytest.fixture
def api(tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """A service with a webhook that is down, which looks at itself often."""
    monkeypatch.setattr(observer, "EVERY", 0.2)
    monkeypatch.setattr(observer, "TICK", 0.1)
    sinks = {
        "archive": {"type": "file", "path": str(tmp_path / "out.jsonl")},
        "billing": {
            "type": "webhook",
            "url": "http://127.0.0.1:9/hook",
            "allow_http": True,
            "ports": [9],
            "networks": ["127.0.0.1/32"],
        },
    }
    routes = [{"gateway": "billing", "sink": "billing"}, {"gateway": "*", "sink": "archive"}]
    with running(tmp_path, sinks=sinks, routes=routes) as api:
        yield api


@pytest.fixture
def shown(api: Api) -> Api:
    """The service of `api` with subscriptions, events that matched and some that did not, and one that cannot be read."""
    admin = api.make_token(None, "admin")
    many = b"\n".join(
        b'{"id":"order-%d","gateway_id":"shop","collection":"orders","filters":[{"field":"amount","op":"==","value":%d}]}'
        % (n, n)
        for n in range(500)
    )
    api.ask("POST", "/v1/subscriptions:import", many, headers=LINES)
    api.ask("PUT", "/v1/subscriptions/big", BIG)
    with open(api.directory / "in.jsonl", "ab") as file:
        file.write(b"".join(order(n, amount=n % 700) + b"\n" for n in range(3000)) + b'{"not": "whole\n')
    until(lambda: api.counts()["events_read"] > 3000)
    api.token = admin
    return api


def test_each_page_can_be_read_by_all(window: Window, shown: Api) -> None:
    """Narrow and light, wide and dark: nothing is cut off, and axe finds nothing serious.

    Colours depend on the scheme alone and places on the width alone, so two of the four combinations show both.
    """
    window.open("/console/sign-in")
    assert window.findings() == []
    window.sign_in(shown.token)
    for path in LISTED:
        window.open(f"/console/{path}")
        for width, scheme in LOOKS:
            window.look(width=width, scheme=scheme)
            assert not window.is_scrolled_sideways(), (path, width)
            assert window.findings() == [], (path, width, scheme)


def test_signing_in_and_out_goes_by_keyboard_alone(window: Window, shown: Api) -> None:
    page = window.open("/console/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the page"
    page.get_by_label("Token").focus()
    page.keyboard.type(shown.token)
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Overview", exact=True).wait_for()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.get_by_role("button", name="Sign out").focus()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Sign in").wait_for()


def test_all_is_said_without_a_script(chromium: Any, shown: Api) -> None:
    window = Window(chromium, f"http://127.0.0.1:{shown.port}", java_script_enabled=False)
    page = window.sign_in(shown.token)
    assert page.get_by_role("img", name="The pipeline").is_visible()
    assert page.get_by_role("row").count() > 5
    page.get_by_label("Tenant", exact=True).fill("acme")
    page.get_by_role("button", name="Choose").click()
    assert page.get_by_label("Tenant", exact=True).input_value() == "acme"
    for path in LISTED:
        assert window.open(f"/console/{path}").get_by_role("heading", level=1).is_visible()
    window.close()


def test_what_somebody_wrote_runs_no_script(window: Window, api: Api) -> None:
    api.read(b'{"collection": "' + b"<script>alert(1)</script>" * 3 + b'"')
    page = window.sign_in(api.make_token(None, "admin"))
    page.get_by_label("Tenant", exact=True).fill(HOSTILE.replace("\x00", ""))
    page.get_by_role("button", name="Choose").click()
    for path in LISTED:
        window.open(f"/console/{path}?id={HOSTILE!r}")
    assert page.evaluate("document.querySelectorAll('script:not([src])').length") == 0


def test_the_overview_tells_itself_anew_and_can_be_paused(window: Window, shown: Api) -> None:
    page = window.sign_in(shown.token)
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Continue").click()
    page.evaluate("document.activeElement.blur()")
    before = page.locator("#live time").first.get_attribute("datetime")
    page.wait_for_function("before => document.querySelector('#live time').dateTime !== before", arg=before)


def test_who_asks_why_an_event_did_not_match_is_told(window: Window, shown: Api) -> None:
    page = window.sign_in(shown.make_token("acme", "read"), "/console/try")
    page.get_by_label("Event, as JSON").fill(order(amount=60).decode())
    page.get_by_role("button", name="Try it").click()
    near = page.get_by_role("region", name="Near misses")
    near.get_by_role("row", name="order-61").get_by_text("data.amount == 61").wait_for()
    window.picture("try")
    near.get_by_role("link", name="order-61").click()
    page.get_by_label("Event, as JSON").fill(order(amount=60).decode())
    page.get_by_role("button", name="Try it").click()
    page.get_by_text("does not match").wait_for()
    assert window.findings() == []


@pytest.mark.parametrize("has_script", [True, False])
def test_an_example_of_a_format_is_taken_and_tried(chromium: Any, shown: Api, has_script: bool) -> None:
    """By keyboard alone; with a script, and without one."""
    for collection in ("public.orders", "shop.orders"):
        paid = BIG | {"collection": collection, "filters": [{"field": "status", "op": "==", "value": "paid"}]}
        assert shown.ask("PUT", f"/v1/subscriptions/{collection}?tenant=acme", paid).status == 201
    window = Window(chromium, f"http://127.0.0.1:{shown.port}", java_script_enabled=has_script)
    page = window.sign_in(shown.make_token("acme", "read"), "/console/try")
    page.get_by_label("Begin with an example").select_option(label="debezium: an update, with the row before")
    page.get_by_role("button", name="Take it").press("Enter")
    assert page.get_by_label("Format", exact=True).input_value() == "debezium"
    page.get_by_role("button", name="Try it").press("Enter")
    page.get_by_role("heading", name="1 subscription matches").wait_for()
    made = page.get_by_role("region", name="What a source makes of it")
    assert '"collection": "public.orders"' in made.inner_text()
    page.get_by_label("Begin with an example").select_option(label="canal: an update of two rows")
    page.get_by_role("button", name="Take it").press("Enter")
    page.get_by_role("button", name="Try it").press("Enter")
    made.get_by_role("button", name="Try event 2").press("Enter")
    made.get_by_text("Event 2 is tried below").wait_for()
    if has_script:
        for width, scheme in LOOKS:
            window.look(width=width, scheme=scheme)
            assert window.findings() == []
            assert not window.is_scrolled_sideways()
        window.picture("try-record")
    window.close()


def test_somebody_writes_a_subscription_tries_it_and_pauses_it(window: Window, shown: Api) -> None:
    page = window.sign_in(shown.make_token("acme", "read", "write", "consume"), "/console/subscriptions")
    page.get_by_role("link", name="New subscription").click()
    page.get_by_label("Id").fill("mine")
    text = page.get_by_label("Subscription, as JSON")
    text.fill('{"collection": "orders", "filters": [{"field": "amount", "op": "nearly", "value": 5}]}')
    page.get_by_role("button", name="Check and try it").click()
    page.get_by_role("alert").get_by_text("filters[0]").wait_for()
    text.fill('{"collection": "orders", "filters": [{"field": "amount", "op": ">", "value": 5}]}')
    page.get_by_role("button", name="Check and try it").click()
    page.get_by_text("it would have matched").wait_for()
    page.get_by_role("button", name="Save").click()
    page.get_by_text("mine is saved").wait_for()
    page.get_by_role("button", name="Pause").click()
    page.get_by_text("has no matches until it is resumed").wait_for()
    page.get_by_role("button", name="Resume").click()
    page.get_by_text("matches again").wait_for()
    assert window.findings() == []
    for width in ("wide", "narrow"):
        window.look(width=width)
        assert not window.is_scrolled_sideways()


def test_what_a_subscription_matched_is_drawn(window: Window, shown: Api) -> None:
    running = shown.service._running
    assert running is not None
    # An hour ago, as far as this service knows.
    running.store.database.change(lambda execute: execute("UPDATE subscriptions SET created = created - 3600000"))
    counts, now = running.pipeline.matcher.matches, int(time.time() // MINUTE)
    counts._since -= 3600
    for at, number in enumerate(range(now - 50, now)):
        matched = Counter({inside("acme", "big"): 1500 + number * number % 1700})
        counts._minutes.insert(at, _Minute(number, {1: matched}))
    page = window.sign_in(shown.make_token("acme", "read", "write", "consume"), "/console/subscription?id=big")
    counted = page.get_by_role("region", name="Matches over time")
    counted.get_by_text("matches, counted since").wait_for()
    assert counted.get_by_role("img", name="Matches a minute").is_visible()
    window.picture("subscription")
    counted.get_by_text("Table").click()
    counted.get_by_role("row").filter(has_text="UTC").first.wait_for()
    for width in ("wide", "narrow"):
        for scheme in ("light", "dark"):
            window.look(width=width, scheme=scheme)
            assert not window.is_scrolled_sideways()
            assert window.findings() == [], (width, scheme)


def test_who_operates_finds_what_no_filter_can_guard(window: Window, shown: Api) -> None:
    other = shown.make_token("globex", "write")
    for number, cel in enumerate(("data.amount % 2 == 0", "size(data.note) > 10", "data.amount != 5")):
        shown.ask("PUT", f"/v1/subscriptions/odd-{number}", {"collection": "orders", "cel": cel}, token=other)
    shown.ask("PUT", "/v1/subscriptions/everything?tenant=acme", {"filters": [{"field": "note", "op": "matches", "value": "^x"}]})
    page = window.sign_in(shown.token, "/console/filters")
    part = page.get_by_role("region", name="What no filter can guard").first
    assert part.get_by_role("row").count() == 5
    for width in ("narrow", "wide"):
        for scheme in ("dark", "light"):
            window.look(width=width, scheme=scheme)
            assert not window.is_scrolled_sideways()
            assert window.findings() == [], (width, scheme)
    window.picture("filters-unguarded", of=part)
    part.get_by_label("Collection").fill("orders")
    part.get_by_role("button", name="Search").press("Enter")
    page.get_by_text("3 shown").wait_for()
    page.get_by_role("button", name="show odd-1").click()
    page.get_by_role("heading", name="odd-1").wait_for()
    assert page.get_by_label("Tenant", exact=True).input_value() == "globex"


def test_what_is_typed_is_checked_and_form_and_text_follow_each_other(window: Window, shown: Api) -> None:
    page = window.sign_in(shown.make_token("acme", "read", "write", "consume"), "/console/subscription?id=big")
    value, text = page.get_by_label("Value"), page.get_by_label("Subscription, as JSON")
    value.fill("9007199254740993")
    until(lambda: "9007199254740993" in text.input_value())
    page.get_by_text("no longer").wait_for()
    value.fill("12a")
    page.get_by_role("alert").get_by_text("expected a number").wait_for()
    assert value.get_attribute("aria-invalid") == "true"
    value.fill("300")
    page.get_by_role("alert").wait_for(state="detached")
    text.fill('{"collection": "orders",\n "topic": "a.b",\n "filters": [{"field": "amount", "op": "near", "value": 5}]}')
    page.get_by_role("alert").locator("mark").get_by_text("near").wait_for()
    assert page.get_by_label("Topic").input_value() == "a.b"
    assert page.get_by_label("Operator").get_attribute("aria-invalid") == "true"
    for width in ("wide", "narrow"):
        for scheme in ("light", "dark"):
            window.look(width=width, scheme=scheme)
            assert not window.is_scrolled_sideways()
            assert window.findings() == [], (width, scheme)
    window.picture("edit-narrow")
    window.look()
    window.picture("edit")


def test_a_subscription_is_written_by_the_form_without_a_script(chromium: Any, shown: Api) -> None:
    window = Window(chromium, f"http://127.0.0.1:{shown.port}", java_script_enabled=False)
    page = window.sign_in(shown.make_token("acme", "read", "write", "consume"), "/console/subscription")
    page.get_by_label("Id", exact=True).fill("mine")
    page.get_by_role("button", name="Add a filter").click()
    second = page.get_by_role("group", name="Filter 2")
    second.get_by_label("Field").fill("country")
    second.get_by_label("Value").fill("12")
    page.get_by_role("button", name="Remove filter 1").press("Enter")
    page.get_by_role("button", name="Check and try it").click()
    page.get_by_text("it would have matched").wait_for()
    page.get_by_role("button", name="Save").click()
    page.get_by_text("mine is saved").wait_for()
    window.close()
    held = shown.ask("GET", "/v1/subscriptions/mine?tenant=acme").json["subscription"]
    assert held["filters"] == [{"field": "country", "op": "==", "value": "12"}]


def test_many_are_imported_from_a_file(window: Window, shown: Api) -> None:
    page = window.sign_in(shown.make_token("acme", "read", "write"), "/console/subscriptions")
    page.get_by_role("link", name="Import").click()
    lines = b'{"id": "one", "collection": "orders"}\n{"id": "two", "filters": [{"field": "<b>", "op": "is", "value": 1}]}\n'
    page.get_by_label("File").set_input_files({"name": "many.jsonl", "mimeType": "text/plain", "buffer": lines})
    until(lambda: "two" in page.get_by_label("Subscriptions, one a line").input_value())
    page.get_by_role("button", name="Only check").click()
    page.get_by_role("region", name="What is wrong").get_by_text("unknown operator").wait_for()
    for width in ("wide", "narrow"):
        for scheme in ("light", "dark"):
            window.look(width=width, scheme=scheme)
            assert not window.is_scrolled_sideways()
            assert window.findings() == [], (width, scheme)
    window.look()
    window.picture("import")
    page.get_by_label("Write the good ones").check()
    page.get_by_role("button", name="Import", exact=True).click()
    page.get_by_text("1 created, 0 replaced, 0 unchanged, 1 refused").wait_for()


def come(api: Api, *events: bytes) -> None:
    """Let events come; what is sent to the webhook that is down waits on."""
    with open(api.directory / "in.jsonl", "ab") as file:
        file.write(b"".join(each + b"\n" for each in events))


def test_somebody_watches_pauses_steps_and_asks_why(window: Window, shown: Api) -> None:
    token = shown.make_token("acme", "read", "consume")
    page = window.sign_in(token, "/console/live")
    log = page.get_by_role("log", name="Events as they come")
    page.get_by_text("were shown").wait_for()
    come(shown, order(90_001, amount=60, note="\u202e" + HOSTILE), order(90_002, amount=450, big=9007199254740993))
    log.get_by_role("row").filter(has_text="90002").get_by_text("2 matched").wait_for()
    assert log.get_by_text("9007199254740993").is_visible()
    first = log.get_by_role("row").filter(has_text="90001")
    assert "U+202E" in first.inner_text()
    page.get_by_role("button", name="Pause").focus()
    page.keyboard.press("Enter")
    come(shown, order(90_003), order(90_004))
    page.get_by_text("2 wait").wait_for()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_text("1 wait").wait_for()
    assert log.get_by_text("90003").is_visible()
    assert log.get_by_text("90004").count() == 0
    page.get_by_role("button", name="Continue").click()
    log.get_by_text("90004").wait_for()
    for width in ("narrow", "wide"):
        for scheme in ("dark", "light"):
            window.look(width=width, scheme=scheme)
            assert window.findings() == []
            assert not window.is_scrolled_sideways()
    window.picture("live", is_whole=False)
    first.get_by_role("link", name="Why?").click()
    page.get_by_role("region", name="The way of this event").get_by_text("Read from orders").wait_for()
    near = page.get_by_role("region", name="Near misses")
    near.get_by_role("row", name="order-61").get_by_text("data.amount == 61").wait_for()
    assert window.findings() == []


def test_a_long_event_that_comes_can_be_opened_whole(window: Window, shown: Api) -> None:
    """By keyboard, and as a page of the server does; while it is open its row stays, and nothing in it runs."""
    page = window.sign_in(shown.make_token("acme", "read", "consume"), "/console/live")
    log = page.get_by_role("log", name="Events as they come")
    page.get_by_text("were shown").wait_for()
    come(shown, order(90_001, note=HOSTILE, more="x" * 30_000))
    summary = log.locator("summary", has_text="90001")
    summary.focus()
    page.keyboard.press("Enter")
    opened = summary.locator("xpath=..")
    assert "U+202E" in opened.locator("pre").inner_text()
    assert "<img src=x" in opened.locator("pre").inner_text()
    opened.get_by_text("characters more; use the API to read them").wait_for()
    page.evaluate("document.activeElement.blur()")
    for number in range(4):
        come(shown, *(order(91_000 + 10 * number + at) for at in range(9)))
        log.get_by_text(str(91_000 + 10 * number + 8)).wait_for()
        time.sleep(1)
    assert opened.locator("pre").is_visible()
    assert log.get_by_role("row").count() <= 33
    assert window.findings() == []
    assert not window.is_scrolled_sideways()


def test_who_runs_the_service_sees_what_became_of_an_event(chromium: Any, tmp_path: Path, backend: str) -> None:
    receiver = Receiver()
    receiver.said, receiver.answer = b'{"error": "no room"}', lambda _: 204 if len(receiver.requests) else 503
    sinks = {"hooks": receiver.sink(), "archive": {"type": "file", "path": str(tmp_path / "out.jsonl")}}
    routes = [{"gateway": "billing", "sink": "hooks"}, {"gateway": "*", "sink": "archive"}]
    with running(tmp_path, sinks=sinks, routes=routes) as api:
        api.ask("PUT", "/v1/subscriptions/big", BIG)
        api.ask("PUT", "/v1/subscriptions/shop", BIG | {"gateway_id": "shop"})
        api.read(order())
        window = Window(chromium, f"http://127.0.0.1:{api.port}")
        page = window.sign_in(api.make_token(None, "admin"), "/console/live?subscription=big")
        page.get_by_role("link", name="Why?").first.click()
        way = page.get_by_role("region", name="The way of this event")
        attempts = way.get_by_role("region", name="Attempts to deliver big")
        assert attempts.get_by_role("row", name="delivered").count() == 1
        assert attempts.get_by_role("row", name="tried again later").get_by_text("no room").is_visible()
        assert way.get_by_text("Written to the sink archive, a file").is_visible()
        for width, scheme in LOOKS:
            window.look(width=width, scheme=scheme)
            assert window.findings() == []
            assert not window.is_scrolled_sideways()
        window.picture("way", of=way)
        window.close()
    receiver.close()


def test_times_are_told_in_the_zone_of_the_reader_too(chromium: Any, shown: Api) -> None:
    window = Window(chromium, f"http://127.0.0.1:{shown.port}", timezone_id="Asia/Tokyo")
    told = window.sign_in(shown.token).locator("#live time").first.inner_text()
    assert " UTC (" in told
    assert " here)" in told
    window.close()


@pytest.mark.skipif("not __import__('os').environ.get('STREAMER_PICTURES')", reason="`make console` writes the pictures")
def test_pictures_for_the_documentation(window: Window, shown: Api) -> None:
    window.open("/console/sign-in")
    window.picture("sign-in")
    window.sign_in(shown.token)
    for number in range(40):
        with open(shown.directory / "in.jsonl", "ab") as file:
            file.write(b"".join(order(n, amount=(n * number) % 900) + b"\n" for n in range(50 + 20 * (number % 7))))
        time.sleep(0.1)
    # The tests of these pages draw them, with what somebody asked there.
    for path in (each for each in LISTED if each not in ("try", "live")):
        window.open(f"/console/{path}" + "?show=all" * (path == "configuration"))
        window.picture(path or "overview", is_whole=not path)
    window.open("/console/")
    window.look(scheme="dark")
    window.picture("overview-dark")
    window.look(width="narrow")
    window.picture("overview-narrow", is_whole=False)
