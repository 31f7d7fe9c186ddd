"""The pages of subscriptions: found, tried, saved unless somebody else did, paused and deleted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.api import BIG, running
from tests.service.console import Browser

# What they test is the same on each core; on the reference it runs with what takes long.
pytestmark = pytest.mark.later_on_the_reference

SMALL = json.dumps(BIG | {"filters": [{"field": "amount", "op": "<", "value": 10}]})
ONE = "/console/subscription?id=big"


@pytest.fixture
def browser(tmp_path: Path, backend: str) -> Iterator[Browser]:
    with running(tmp_path) as api:
        assert api.ask("PUT", "/v1/subscriptions/big", BIG | {"labels": {"team": "payments"}}).status == 201
        for number in range(60):
            assert api.ask("PUT", f"/v1/subscriptions/n{number:02}", BIG).status == 201
        made = Browser(api)
        made.sign_in(api.make_token("acme", "read", "write", "consume"))
        yield made


def send(browser: Browser, status: int, **fields: str) -> str:
    reply = browser.post("/console/subscription", **{"id": "big", **fields})
    assert reply.status == status, reply.body
    return reply.body.decode() if status != 303 else browser.get(reply.headers["location"])


def tag(browser: Browser) -> str:
    return browser.api.ask("GET", "/v1/subscriptions/big").headers["etag"]


def test_they_are_found_a_page_at_a_time(browser: Browser) -> None:
    page = browser.get("/console/subscriptions")
    assert "n48" in page
    assert "n49" not in page
    following = page.partition('class="button" href="/console/subscriptions?')[2].partition('"')[0].replace("&amp;", "&")
    assert "n59" in browser.get(f"/console/subscriptions?{following}")
    for search in ("label=team=payments", "prefix=bi", "text=PAYMENTS"):
        page = browser.get(f"/console/subscriptions?{search}")
        assert ">big<" in page
        assert ">n00<" not in page


def test_one_is_shown_with_how_it_is_found_and_who_changed_it(browser: Browser) -> None:
    page = browser.get(ONE)
    assert "data.amount &gt; 100" in page
    assert "Who changed it" in page
    assert "U+000A" not in page
    assert "New subscription" in browser.get("/console/subscription")
    assert browser.ask("GET", "/console/subscription?id=nosuch").status == 404


def test_it_is_tried_and_then_saved(browser: Browser) -> None:
    page = send(browser, 200, do="try", text=SMALL, etag=tag(browser))
    assert "What would change" in page
    assert "&#34;op&#34;: &#34;&lt;&#34;" in page
    assert "is held, and each later event" in send(browser, 303, do="save", text=SMALL, etag=tag(browser))
    assert browser.api.ask("GET", "/v1/subscriptions/big").json["subscription"]["filters"][0]["op"] == "<"
    assert "expected a value" in send(browser, 422, do="save", text='{"cel": "1 +"}', etag=tag(browser))
    assert "line" in send(browser, 200, do="try", text='{"cel": \n"1 +"}', etag=tag(browser))


def test_who_would_write_over_somebody_elses_change_sees_it_first(browser: Browser) -> None:
    old = tag(browser)
    browser.api.ask("PUT", "/v1/subscriptions/big", BIG | {"labels": {"by": "other"}})
    page = send(browser, 422, do="save", text=SMALL, etag=old)
    assert "What would change" in page
    assert "other" in page
    assert 'op": "<' not in str(browser.api.ask("GET", "/v1/subscriptions/big").json)
    # A new one takes no other's place, either.
    assert "It is not taken" in send(browser, 422, do="save", text=SMALL)


def test_it_is_paused_resumed_and_deleted(browser: Browser) -> None:
    assert "matches nothing until" in send(browser, 303, do="pause")
    assert "paused" in browser.get(ONE)
    assert "matches again" in send(browser, 303, do="resume")
    assert "is deleted" in send(browser, 303, do="delete", etag=tag(browser))
    assert browser.api.ask("GET", "/v1/subscriptions/big").status == 404


def test_who_may_only_read_finds_nothing_to_change(browser: Browser) -> None:
    other = Browser(browser.api)
    other.sign_in(browser.api.make_token("acme", "read"))
    page = other.get(ONE)
    assert "Save" not in page
    assert "Delete" not in page
    assert "write" in send(other, 422, do="delete")
    assert other.api.ask("GET", "/v1/subscriptions/big").status == 200
