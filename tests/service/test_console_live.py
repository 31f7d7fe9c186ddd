"""The page of events as they come: what it shows without a script, to whom, and what leads on from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.api import BIG, order, running, until
from tests.service.console import Browser
from tests.service.receiver import Receiver

# What they test is the same on each core; on the reference it runs with what takes long.
pytestmark = pytest.mark.later_on_the_reference

PAGE = "/console/live"


@pytest.fixture
def browser(tmp_path: Path, backend: str) -> Iterator[Browser]:
    with running(tmp_path) as api:
        assert api.ask("PUT", "/v1/subscriptions/big", BIG).status == 201
        api.read(order(71), order(72, amount=1, note="<script>\u202e"), b"null")
        made = Browser(api)
        made.sign_in(api.make_token("acme", "read", "consume"))
        yield made


def rows(browser: Browser, query: str = "") -> str:
    return browser.get(PAGE + query).partition("<tbody>")[2].partition("</tbody>")[0]


def test_the_last_events_are_shown_and_chosen(browser: Browser) -> None:
    assert rows(browser).count("<tr>") == 2
    assert "1 matched" in (matched := rows(browser, "?outcome=matched&collection=orders&gateway=billing&subscription=big"))
    assert (matched.count("<tr>"), "big" in matched) == (1, True)
    assert (none := rows(browser, "?outcome=unmatched")).count("<tr>") == 1
    assert "<script>" not in none
    assert "U+202E" in none
    assert "There are none yet" in browser.get(f"{PAGE}?collection=nosuch")
    assert browser.ask("GET", f"{PAGE}?outcome=nonsense").status == 422


def test_one_of_them_is_explained_with_its_way(browser: Browser) -> None:
    link = rows(browser, "?outcome=matched").partition('href="')[2].partition('"')[0].replace("&amp;", "&")
    page = browser.get(link)
    assert "Read from orders" in page
    assert "routed by its gateway <bdi>billing</bdi>" in page
    assert "1 subscription matches" in page
    assert page.index('id="way"') < page.index('id="matches"') < page.index('id="trying"'), "the answer stands first"
    assert "To a sink of the service. Its operator sees the attempts" in page
    operator = Browser(browser.api)
    operator.sign_in(browser.api.make_token(None, "admin"))
    assert "Written to the sink out, a file" in operator.get(link)
    gone = browser.ask("GET", "/console/try?number=99999")
    assert (gone.status, b"it has left the list of recent events" in gone.body) == (422, True)


def test_its_way_ends_with_the_attempts_to_deliver_it(tmp_path: Path, backend: str) -> None:
    """What an endpoint has answered is shown to who runs the service, and runs nothing."""
    receiver = Receiver()
    receiver.said, receiver.answer = b"<script>alert(1)</script>\xe2\x80\xae", lambda _: 422
    with running(tmp_path, sinks={"hooks": receiver.sink()}) as api:
        assert api.ask("PUT", "/v1/subscriptions/big", BIG).status == 201
        api.read(order(1))
        operator = Browser(api)
        operator.sign_in(api.make_token(None, "admin"))
        until(lambda: "422" in operator.get("/console/try?number=1"))
        way = operator.get("/console/try?number=1").partition('id="way"')[2].partition("</section>")[0]
        assert "refused" in way
        assert "&lt;script&gt;alert(1)" in way
        assert "<script>" not in way
        assert "U+202E" in way
    receiver.close()


def test_one_of_the_last_events_is_chosen_to_be_tried(browser: Browser) -> None:
    page = browser.get("/console/try")
    chosen = page.partition('id="last"')[2].partition("</section>")[0]
    assert chosen.count("<li>") == 2
    assert "<script>" not in chosen
    link = chosen.partition('href="')[2].partition('"')[0].replace("&amp;", "&")
    assert "No subscription matches this event" in browser.get(link), "the newest is the small one"
    reader = Browser(browser.api)
    reader.sign_in(browser.api.make_token("acme", "read"))
    assert 'id="last"' not in reader.get("/console/try")


def test_another_tenant_sees_nothing(browser: Browser) -> None:
    link = rows(browser, "?outcome=matched").partition('href="')[2].partition('"')[0].replace("&amp;", "&")
    other = Browser(browser.api)
    other.sign_in(browser.api.make_token("other", "read", "consume"))
    assert "<tr>" not in rows(other)
    assert other.ask("GET", link).status == 422
    reader = Browser(browser.api)
    reader.sign_in(browser.api.make_token("acme", "read"))
    assert reader.ask("GET", PAGE).status == 404
    assert reader.ask("GET", link).status == 422


def test_who_runs_the_service_sees_all_that_came(browser: Browser) -> None:
    operator = Browser(browser.api)
    operator.sign_in(browser.api.make_token(None, "admin"))
    assert rows(operator).count("<tr>") == 3
    assert "ignored" in rows(operator)
    assert "3 came" in operator.get(PAGE)


def test_the_stream_is_that_of_the_api(browser: Browser) -> None:
    reply = browser.ask("GET", f"{PAGE}/feed?outcome=matched")
    assert (reply.status, reply.headers["content-type"]) == (200, "text/event-stream")
    assert reply.headers["content-security-policy"].startswith("default-src 'none'")
    assert browser.ask("GET", f"{PAGE}/feed?outcome=nonsense").status == 400
