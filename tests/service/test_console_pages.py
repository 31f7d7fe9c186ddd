"""What the pages of an operator say: configuration, metrics, filters, and the pictures on them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from streamer.service.console import pictures
from streamer.service.console.pages.filters import past
from streamer.service.console.pages.metrics import charts
from streamer.service.observed import observer
from tests.service.api import BIG, LINES, Api, order, running, until
from tests.service.console import Browser

pytestmark = pytest.mark.later_on_the_reference


@pytest.fixture
def api(tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    monkeypatch.setattr(observer, "EVERY", 0.02)
    monkeypatch.setattr(observer, "TICK", 0.02)
    with running(tmp_path) as api:
        yield api


@pytest.fixture
def browser(api: Api) -> Browser:
    made = Browser(api)
    made.sign_in(api.make_token(None, "admin"))
    return made


def test_the_configuration_is_told_field_by_field(browser: Browser) -> None:
    page = browser.get("/console/configuration?show=all")
    row = re.search(r'<code><bdi class="said">sinks.out.type</bdi></code></th><td><bdi class="said">(.*?)</bdi>', page)
    assert row is not None
    assert row[1] == "file"
    assert "fields have their defaults" in browser.get("/console/configuration")


def test_a_text_is_checked_and_nothing_is_changed(browser: Browser) -> None:
    bad = browser.post("/console/configuration", do="check", text="sources:\r\n  orders: {type: nonsense}\r\n").body.decode()
    assert "It would be refused." in bad
    assert '<bdi class="said">2</bdi>' in bad, "the line"
    assert "orders: {type: nonsense}" in bad, "what was typed is there still"
    good = browser.post("/console/configuration", do="check", text="api: {port: 1}").body.decode()
    assert "It is good." in good
    assert "api.port" in good


def test_a_reload_is_taken_or_says_why_not(browser: Browser, api: Api) -> None:
    api.config["delivery"] = {"dead_letter_bytes": "5MiB"}
    assert browser.post("/console/configuration", do="reload").status == 303
    assert "It was accepted: 1 field changed." in browser.get("/console/configuration")
    assert "It was accepted" not in browser.get("/console/configuration")
    api.config["sinks"] = {"out": {"type": "<b>"}}
    reply = browser.post("/console/configuration", do="reload")
    assert reply.status == 422
    assert b"The current configuration stays in use" in reply.body
    assert b"<b>" not in reply.body


def test_metrics_are_drawn_with_their_table(browser: Browser, api: Api) -> None:
    api.ask("PUT", "/v1/subscriptions/big", BIG)
    api.read(order(), order(2))
    page = until(lambda: "streamer_service_events_read" in (told := browser.get("/console/metrics")) and told)
    assert page.count('<svg class="chart"') == page.count("<summary>Table</summary>")
    assert "streamer_segments" not in page
    assert "streamer_segments" in browser.get("/console/metrics?show=all&minutes=15")
    assert "no values of this name" in browser.get("/console/metrics?name=nosuch&minutes=x")


def test_filters_are_drawn_over_time(browser: Browser, api: Api) -> None:
    assert "small ones need none" in browser.get("/console/filters")
    many = b"\n".join(
        b'{"id":"%d","gateway_id":"g","collection":"orders","filters":[{"field":"amount","op":"==","value":%d}]}' % (n, n)
        for n in range(2000)
    )
    assert api.ask("POST", "/v1/subscriptions:import", many, headers=LINES).status == 200
    api.read(*(order(number, amount=-number) for number in range(300)))
    page = until(lambda: "Keys of the filter" in (told := browser.get("/console/filters")) and told)
    assert '<th scope="row"><bdi class="said">orders</bdi>' in page


def test_what_no_filter_can_guard_is_listed_and_leads_to_its_tenant(browser: Browser, api: Api) -> None:
    other = api.make_token("<b>other", "write")
    api.ask("PUT", "/v1/subscriptions/any", {"cel": "data.a != 1"})
    for number in range(60):
        api.ask("PUT", f"/v1/subscriptions/n{number:02}<b>", {"collection": "others"}, token=other)
    page = browser.get("/console/filters")
    assert "50 shown" in page
    assert "n49&lt;b&gt;" in page
    assert "n50" not in page
    assert "<b>" not in page
    following = unescape(re.search(r'href="(/console/filters\?[^"]*)#unguarded">Look further', page)[1])  # type: ignore[index]
    assert "n59&lt;b&gt;" in browser.get(following)
    assert "n00" not in browser.get("/console/filters?collection=nosuch")
    reply = browser.post("/console/tenant", tenant="acme", next="/console/subscription?id=any")
    assert reply.headers["location"] == "/console/subscription?id=any"
    page = browser.get("/console/filters")
    assert 'name="next" value="/console/subscription?id=any"' in page
    assert "n00" not in page, "who chose a tenant sees that one"
    assert browser.ask("GET", "/console/filters?cursor=x").status == 422


def test_the_past_of_a_filter_is_its_own() -> None:
    def state(version: int, asked: int, no: int, **more: Any) -> dict[str, Any]:
        told = {"tenant": "acme", "collection": "orders", "version": version, "asked": asked, "no": no}
        return told | {"keys": 10, "capacity": 20, "stale": 1, "sampled": 0, "false_positives": 0} | more

    samples = [
        {"at": 0.0, "filters": [state(1, 0, 0)]},
        {"at": 10.0, "filters": [state(1, 100, 75), {**state(9, 1, 1), "tenant": "other"}]},
        {"at": 20.0, "filters": [state(2, 100, 75, sampled=1000, false_positives=20)]},
    ]
    told = {"samples": samples, "rebuilds": [{"tenant": "acme", "collection": "orders", "reason": "rate", "count": 1}]}
    found = past(state(2, 100, 75), told)
    assert (found.stopped, found.wrong) == ([None, 0.75, None], [None, None, 0.02])
    assert (found.rebuilt, found.reasons) == ([20.0], {"rate": 1})


def test_of_many_series_those_that_moved_most_are_drawn_and_the_rest_is_told() -> None:
    series = [{"metric": "m", "labels": {"n": f"{n}"}, "kind": "value", "values": [None, float(n)]} for n in range(100)]
    (chart,) = charts(series)
    assert list(chart.lines) == [f"n={n}" for n in range(99, 93, -1)]
    assert (len(chart.rows), chart.more) == (50, 50)


def test_a_metric_has_one_picture_for_all_its_labels() -> None:
    series = [
        {"metric": "m_seconds", "labels": {"n": label}, "kind": kind, "values": [1.0], "quantile": 0.5}
        for label in ("a", "b")
        for kind in ("rate", "quantile")
    ]
    assert [(chart.what, len(chart.lines)) for chart in charts(series)] == [("quantiles", 2), ("a second", 2)]


@pytest.mark.parametrize("values", [[], [None], [0.0], [5.0], [1e-9, 2e-9, None], [1e18, None, 3.0], [-1.0, 2.0, 2.0]])
def test_any_line_can_be_drawn(values: list[float | None]) -> None:
    at = [10.0 * moment for moment in range(len(values))]
    drawn = pictures.lines("<b>\u202e", at, {"<i>": values}, marks=[0.0, 10.0, 99.0])
    assert drawn.startswith('<svg class="chart"')
    assert "<b>" not in drawn
    assert "nan" not in drawn
    assert "&lt;i&gt;" in pictures.legend(["<i>"])


def test_a_pipeline_of_many_parts_shows_those_that_are_ill() -> None:
    sink = {"type": "webhook", "state": "working", "delivered_per_s": None, "oldest_undelivered_s": 0.0}
    sinks = [{**sink, "name": f"s{number}"} for number in range(50)]
    sinks[40] |= {"name": "<ill>", "state": "down", "spool": {"messages": 3, "bytes": 9, "oldest_s": 4.0}}
    rates = {"events_read": None, "matches": 1.5}
    status = {"ready": True, "reason": None, "subscriptions": 0, "rates_per_s": rates, "waiting_bytes": 0}
    drawn = pictures.pipeline({**status, "sources": [], "routes": [], "sinks": sinks})
    assert "&lt;ill&gt;" in drawn
    assert "43 sinks more" in drawn
    assert "no sources" in drawn
