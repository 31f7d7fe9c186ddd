"""The page that tells why an event matches, or does not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from streamer.service.api.decoding import FORMATS
from tests.service.api import BIG, order, running
from tests.service.console import Browser

# What they test is the same on each core; on the reference it runs with what takes long.
pytestmark = pytest.mark.later_on_the_reference

HUGE = BIG | {"filters": [{"field": "amount", "op": ">", "value": 1000}]}


@pytest.fixture
def browser(tmp_path: Path, backend: str) -> Iterator[Browser]:
    with running(tmp_path) as api:
        for name, each in (("big", BIG), ("huge", HUGE)):
            assert api.ask("PUT", f"/v1/subscriptions/{name}", each).status == 201
        made = Browser(api)
        made.sign_in(api.make_token("acme", "read", "consume"))
        yield made


def tried(browser: Browser, status: int = 200, **fields: str) -> str:
    reply = browser.post("/console/try", **{"event": order().decode(), **fields})
    assert reply.status == status, reply.body
    return reply.body.decode()


def test_what_matches_is_explained_and_what_fails_by_one_condition_is_named(browser: Browser) -> None:
    page = tried(browser)
    assert page.index('id="trying"') < page.index('id="matches"')
    matches, _, near = page.partition('id="near"')
    assert "1 subscription matches" in matches
    assert "data.amount &gt; 100<" in matches
    assert "data.amount &gt; 1000" not in matches
    assert "data.amount &gt; 1000" in near
    assert "huge" in near
    assert "</span> false</span>" in near


def test_one_subscription_is_asked_about(browser: Browser) -> None:
    assert 'value="huge"' in browser.get("/console/try?id=huge")
    page = tried(browser, id="huge")
    assert "does not match" in page
    assert "250" in page
    assert "no such subscription" in tried(browser, 422, id="nosuch")


def test_a_draft_is_tried_beside_and_its_errors_have_places(browser: Browser) -> None:
    draft = json.dumps({"collection": "orders", "filters": [{"field": "amount", "op": "<", "value": 300}]})
    assert "would have matched 0" in (page := tried(browser, draft=draft))
    assert ">The draft<" in page
    wrong = tried(browser, 422, draft='{"collection": "orders",\n "filters": [{"field": "amount", "op": "near", "value": 3}]}')
    assert "It cannot be tried" in wrong
    assert "op" in wrong
    assert list(browser.api.service.engine) == ["acme\0big", "acme\0huge"]


def test_what_is_no_event_is_said_and_what_was_typed_stays(browser: Browser) -> None:
    page = tried(browser, 422, event='{"collection": <script>alert(1)</script>')
    wrong = page.partition('role="alert"')[2].partition("</section>")[0]
    assert "expected a value" in wrong
    assert [re.sub("<.*?>", "", each) for each in re.findall("<code>(.*?)</code>", wrong)] == ["line 1", "column 16"]
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    page = tried(browser, 422, event='{"collection": 5}')
    assert "It cannot be tried" in page
    assert "collection" in page.partition('role="alert"')[2].partition("</section>")[0]


def example(browser: Browser, name: str) -> str:
    """Return a record of the examples, as the form has it."""
    page = browser.get(f"/console/try?example={name}")
    assert re.search(rf'value="{re.escape(name)}" selected', page)
    assert f"<option selected>{name.partition('.')[0]}</option>" in page
    return unescape(page.partition('name="event"')[2].partition(">")[2].partition("</textarea>")[0])


def test_examples_of_every_format_are_taken_and_tried(browser: Browser) -> None:
    page = browser.get("/console/try")
    names = re.findall(r'<option value="([^"]+)"', page)
    assert {name.partition(".")[0] for name in names} == set(FORMATS)
    for name in names:
        page = tried(browser, event=example(browser, name), format=name.partition(".")[0])
        assert "What a source makes of it" in page or name.startswith("json.")
    assert 'value="huge"' in browser.get("/console/try?id=huge&example=json.2")
    assert browser.ask("GET", "/console/try?example=nosuch.1").status == 200


def test_a_record_is_tried_as_the_event_that_a_source_makes_of_it(browser: Browser) -> None:
    paid = {"collection": "public.orders", "gateway_id": "g", "filters": [{"field": "status", "op": "==", "value": "paid"}]}
    assert browser.api.ask("PUT", "/v1/subscriptions/paid", paid).status == 201
    record = example(browser, "debezium.2")
    page = tried(browser, event=record, format="debezium")
    assert "1 subscription matches" in page
    assert "&#34;collection&#34;: &#34;public.orders&#34;" in page.partition('id="read"')[2].partition("</section>")[0]
    assert "as <code>enter</code>" in page
    assert "matches" in tried(browser, event=record, format="debezium", id="paid")
    assert ">The draft<" in tried(browser, event=record, format="debezium", draft=json.dumps(paid))
    assert "status" in tried(browser, event=example(browser, "debezium.1"), format="debezium").partition('id="near"')[2]


def test_what_is_no_change_and_what_cannot_be_decoded_is_said(browser: Browser) -> None:
    page = tried(browser, event=example(browser, "debezium.4"), format="debezium")
    assert "It is not a change, so it has no matches: a truncate." in page
    assert 'id="near"' not in page
    assert "a tombstone" in tried(browser, event="null", format="debezium")
    wrong = tried(browser, 422, event='{"op": "<b>\u202e", "source": {}}', format="debezium").partition('role="alert"')[2]
    assert "/op" in wrong
    assert "<b>" not in wrong.partition("</section>")[0]
    assert "more digits" in tried(browser, 422, event=f'{{"collection": "orders", "data": {{"n": {"9" * 5000}}}}}', format="json")
    for bad in ("nosuch", "<script>alert(1)</script>"):
        assert "<script>alert" not in tried(browser, 422, event="{}", format=bad)
    assert tried(browser, 422, event="[" * 50_000)


def test_what_somebody_wrote_into_a_record_drives_no_page(browser: Browser) -> None:
    """Into names and values of each format, and into the fields of the form."""
    bad = "</textarea><script>alert(1)</script>\"'{{7777*7}}\u202e\x1b"
    for name in re.findall(r'<option value="([^"]+)"', browser.get("/console/try")):
        record = json.loads(example(browser, name))
        for given in (put(record, bad), put(record, bad, names=True)):
            reply = browser.post("/console/try", event=json.dumps(given), format=name.partition(".")[0])
            assert reply.status in (200, 422)
            assert b"<script>alert" not in reply.body
            assert b"54439" not in reply.body
    fields = dict.fromkeys(("id", "draft", "format", "example", "part", "event"), bad)
    for field in fields:
        reply = browser.post("/console/try", **{"event": order().decode(), field: bad})
        assert reply.status in (200, 422)
        assert b"<script>alert" not in reply.body
    big = json.dumps({"op": "c", "source": {"schema": "s", "table": "t"}, "after": {"a": "<b>" * 300_000}})
    assert "<b>" not in tried(browser, event=big, format="debezium").partition("<main")[2]


def put(value: Any, bad: str, *, names: bool = False) -> Any:
    """Return a record with all of its texts, or the names in its rows, in hostile hands."""
    if isinstance(value, dict):
        return {(name + bad if names else name): put(each, bad, names=names) for name, each in value.items()}
    if isinstance(value, list):
        return [put(each, bad, names=names) for each in value]
    return value + bad if isinstance(value, str) and not names and len(value) > 2 else value


def test_of_several_events_one_after_the_other_is_tried(browser: Browser) -> None:
    record = example(browser, "canal.1")
    page = tried(browser, event=record, format="canal")
    assert "Event 1 is tried below" in page
    assert 'form="trying" name="part" value="2"' in page
    assert "Event 2 is tried below" in tried(browser, event=record, format="canal", part="2")
    for bad in ("0", "99", "x", "²"):
        assert "is tried below" in tried(browser, event=record, format="canal", part=bad)


def test_who_has_no_scope_for_it_finds_no_such_page(browser: Browser) -> None:
    other = Browser(browser.api)
    other.sign_in(browser.api.make_token("acme", "consume"))
    assert other.ask("GET", "/console/try").status == 404


def test_another_tenant_learns_nothing(browser: Browser) -> None:
    other = Browser(browser.api)
    other.sign_in(browser.api.make_token("other", "read"))
    page = tried(other)
    assert "big" not in page
    assert "No subscription matches this event" in page
