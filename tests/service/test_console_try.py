"""The page that tells why an event matches, or does not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

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
    matches, _, near = page.partition('id="near"')
    assert "1 of what is held matches" in matches
    assert "data.amount &gt; 100<" in matches
    assert "data.amount &gt; 1000" not in matches
    assert "data.amount &gt; 1000" in near
    assert "huge" in near
    assert "does not hold" in near


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
    assert "no JSON object" in page
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "It cannot be tried" in (page := tried(browser, 422, event='{"collection": 5}'))
    assert "collection" in page.partition('role="alert"')[2].partition("</section>")[0]


def test_who_has_no_scope_for_it_finds_no_such_page(browser: Browser) -> None:
    other = Browser(browser.api)
    other.sign_in(browser.api.make_token("acme", "consume"))
    assert other.ask("GET", "/console/try").status == 404


def test_another_tenant_learns_nothing(browser: Browser) -> None:
    other = Browser(browser.api)
    other.sign_in(browser.api.make_token("other", "read"))
    page = tried(other)
    assert "big" not in page
    assert "Nothing that is held matches" in page
