"""The page of deliveries: what could not be delivered is found by its reason, sent again, or dropped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.api import order, running, until
from tests.service.console import Browser

# What they test is the same on each core; on the reference it runs with what takes long.
pytestmark = pytest.mark.later_on_the_reference

PAGE = "/console/deliveries"


@pytest.fixture
def browser(tmp_path: Path, backend: str) -> Iterator[Browser]:
    with running(tmp_path) as api:
        with open(tmp_path / "in.jsonl", "ab") as file:
            file.write(b'{"not": "<b>whole\n' * 3 + order() + b"\n")
        until(lambda: api.counts()["events_read"] == 4)
        made = Browser(api)
        made.sign_in(api.make_token(None, "admin"))
        yield made


def send(browser: Browser, **fields: str) -> str:
    reply = browser.post(PAGE, **fields)
    assert reply.status == 303, reply.body
    return browser.get(reply.headers["location"])


def test_dead_letters_are_counted_by_reason_and_shown(browser: Browser) -> None:
    page = browser.get(PAGE)
    assert "malformed_json" in page
    assert "3 in all" in page
    assert "<b>" not in page.partition("<main")[2]
    assert "There are none." in browser.get(f"{PAGE}?code=nothing_of_that")
    assert browser.ask("GET", f"{PAGE}?cursor=nonsense").status == 400


def test_all_of_a_reason_are_sent_again_and_one_is_dropped(browser: Browser) -> None:
    page = send(browser, do="replay", stage="decode", code="malformed_json", source="orders")
    assert "3 dead letters are sent again" in page
    # They are as bad as before.
    until(lambda: "done" in browser.get(PAGE))
    assert "Dead letter 1 is dropped" in send(browser, do="drop_one", name="1")
    assert browser.api.ask("GET", "/v1/dead-letters:counts", token=browser.api.make_token(None, "admin")).json["total"] == 2
    assert browser.post(PAGE, do="drop_one", name="1").status == 404
    assert browser.post(PAGE, do="replay_one", name="2").status == 409


def test_a_test_is_sent(browser: Browser) -> None:
    assert "A test to out: delivered" in send(browser, do="test", name="out")
    assert browser.post(PAGE, do="test", name="nosuch").status == 404


def test_it_is_for_who_runs_the_service_alone(browser: Browser) -> None:
    other = Browser(browser.api)
    other.sign_in(browser.api.make_token("acme", "read", "write", "consume"))
    assert other.ask("GET", PAGE).status == 404
