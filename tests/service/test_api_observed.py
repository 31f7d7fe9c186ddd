"""What a service tells of itself: status, metrics of the last hours, filters, the configuration in force."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import Metric

import streamer
from streamer.service.api import explain
from streamer.service.connectors.protocols import Progress
from streamer.service.observed.rates import Lags, Rates
from streamer.service.observed.series import MOST, POINTS, Series, quantile
from tests.service.api import BIG, LINES, Api, order, running, until

pytestmark = pytest.mark.later_on_the_reference
EQ = {"field": "amount", "op": "==", "value": 7}
NE = BIG | {"filters": [{"field": "amount", "op": "!=", "value": 7}]}


@pytest.fixture
def api(tmp_path: Path, backend: str) -> Iterator[Api]:
    with running(tmp_path) as api:
        yield api


@pytest.fixture
def admin(api: Api) -> str:
    return api.make_token(None, "admin")


OBSERVED = ("/v1/status", "/v1/metrics/history", "/v1/filters", "/v1/filters/unguarded", "/v1/config")


def test_only_who_runs_the_service_is_told_of_it(api: Api) -> None:
    everything = api.make_token("acme", "read", "write", "consume")
    for path in OBSERVED:
        assert api.ask("GET", path, token=everything).kind == "not-allowed"
    assert api.ask("POST", "/v1/config:check", b"", headers={"Content-Type": "application/yaml"}).kind == "not-allowed"


def test_the_status_tells_rates_lag_and_the_last_error(api: Api, admin: str) -> None:
    api.ask("PUT", "/v1/subscriptions/big", BIG)
    api.read(order(), order(2, amount=1), b"{")

    def told() -> dict[str, object] | None:
        status = api.ask("GET", "/v1/status", token=admin).json
        return status if status["rates_per_s"]["events_read"] is not None else None

    status = until(told)
    assert status["ready"] is True
    assert status["reason"] is None
    assert status["reload"]["good"] is True
    assert status["totals"]["events_read"] == 3
    assert status["totals"]["matches_pending"] == 0
    assert status["dead_letters"] == 1
    assert [each["name"] for each in status["gateways"]] == ["gateways:webhook", "gateways:stream"]
    assert status["routes"] == []
    (source,), (sink,) = status["sources"], status["sinks"]
    assert source["last_error"]["code"] == "malformed_json"
    assert source["rejected"] == 1
    assert source["lag"] == {"positions": 0, "unit": "bytes", "seconds": 0.0}
    assert source["idle_s"] >= 0
    assert (sink["delivered"], sink["oldest_undelivered_s"]) == (1, 0.0)


def test_the_metrics_of_the_last_hours_need_no_prometheus(api: Api, admin: str) -> None:
    def told() -> dict[str, object] | None:
        history = api.ask("GET", "/v1/metrics/history?name=streamer_service_events_read,streamer_sub&points=5", token=admin).json
        return history if history["series"] else None

    history = until(told)
    assert all(each["metric"].startswith(("streamer_service_events_read", "streamer_sub")) for each in history["series"])
    assert all(len(each["values"]) == len(history["at"]) <= 5 for each in history["series"])
    assert api.ask("GET", "/v1/metrics/history?minutes=100000", token=admin).kind == "bad-request"


def test_filters_are_told_with_what_they_stop(api: Api, admin: str) -> None:
    many = b"\n".join(
        b'{"id":"%d","gateway_id":"g","collection":"orders","filters":[{"field":"amount","op":"==","value":%d}]}' % (n, n)
        for n in range(2000)
    )
    imported = api.ask("POST", "/v1/subscriptions:import", many, headers={"Content-Type": "application/x-ndjson"})
    assert imported.status == 200
    api.read(*(order(n, amount=10**6 + n) for n in range(50)))
    filters = api.ask("GET", "/v1/filters", token=admin).json
    assert filters["enabled"] is True
    (one,) = filters["filters"]
    assert (one["tenant"], one["collection"], one["keyed"]) == ("acme", "orders", 2000)
    assert 0 < one["fill"] < 1
    assert 0 <= one["estimated_fp_rate"] <= 1
    assert one["asked"] == 50


def test_the_configuration_in_force_says_where_each_value_comes_from(
    tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path) as api:
        admin = api.make_token(None, "admin")
        told = api.ask("GET", "/v1/config", token=admin).json
        assert "sinks:\n  out:\n" in told["text"]
        fields = {each["place"]: each for each in told["fields"]}
        assert fields["sinks.out.type"]["value"] == "file"
        assert not fields["sinks.out.type"]["needs_restart"]
        assert fields["matching.default_tenant"] == {
            "place": "matching.default_tenant",
            "value": "default",
            "from": ["default"],
            "needs_restart": True,
        }


def check(api: Api, admin: str, text: str) -> dict[str, object]:
    reply = api.ask("POST", "/v1/config:check", text.encode(), token=admin, headers={"Content-Type": "application/yaml"})
    assert reply.status == 200, reply.body
    told: dict[str, object] = reply.json
    return told


def test_a_configuration_is_checked_before_it_is_in_force(api: Api, admin: str) -> None:
    """Errors have their line; what would change says whether it needs a restart; nothing is changed."""
    bad = check(api, admin, "delivery: {attempts: 1}\nsinks:\n  out: {type: nosuch}\n")
    assert bad["good"] is False
    assert bad["changes"] == []
    assert [each["line"] for each in bad["errors"]] == [1, 3]  # type: ignore[attr-defined]
    good = check(api, admin, "matching: {default_tenant: other}\nlogging: {level: debug}\n")
    assert good["good"] is True
    assert good["needs_restart"] is True
    changes = {each["place"]: each for each in good["changes"]}  # type: ignore[attr-defined]
    assert changes["matching.default_tenant"] == {
        "place": "matching.default_tenant",
        "before": "default",
        "after": "other",
        "line": 1,
        "needs_restart": True,
    }
    assert changes["logging.level"]["needs_restart"] is False
    fields = api.ask("GET", "/v1/config", token=admin).json["fields"]
    assert next(each["value"] for each in fields if each["place"] == "matching.default_tenant") == "default"


def test_a_secret_is_told_by_its_name(tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "HOOK_SECRET", "whsec_" + "A" * 32)
    hook = {"type": "webhook", "url": "https://example.com/", "secret": {"env": "HOOK_SECRET"}}
    sinks = {"out": {"type": "file", "path": str(tmp_path / "out.jsonl")}, "hook": hook}
    with running(tmp_path, sinks=sinks, routes=[{"gateway": "*", "sink": "out"}]) as api:
        told = api.ask("GET", "/v1/config", token=api.make_token(None, "admin"))
        assert b"HOOK_SECRET" in told.body
        assert b"whsec_" not in told.body


# The parts


def test_a_rate_is_that_of_the_last_minute() -> None:
    rates = Rates()
    assert rates.of(0, {"a": 5}) == {"a": None}
    for second in range(0, 200, 5):
        rates.add(second, {"a": second * 10})
    assert rates.of(200, {"a": 2000, "b": 65}) == {"a": 10.0, "b": 1.0}


def test_lag_in_time_is_since_the_newest_was_what_is_read_now() -> None:
    lags = Lags()
    for second in range(10):
        lags.add(second, "s", Progress(0, second * 100, "bytes"))
    assert lags.of(10, "s", Progress(900, 900, "bytes")) == 0
    assert lags.of(10, "s", Progress(450, 900, "bytes")) == 6
    lags.add(11, "s", Progress(0, 10, "bytes"))
    assert lags.of(12, "s", Progress(0, 10, "bytes")) == 1, "a new file has no ends of the one before"


def test_the_ring_of_metrics_has_a_bound() -> None:
    family = Metric("streamer_x", "", "gauge")
    for number in range(MOST + 7):
        family.add_sample("streamer_x", {"n": str(number)}, number)
    series = Series(lambda: [family])
    for _ in range(POINTS + 3):
        series.take()
    told = series.read([], 1e9, 10)
    assert (len(told["series"]), told["series_left_out"], len(told["at"])) == (MOST, 7, 10)


def test_a_quantile_lies_within_its_bucket() -> None:
    buckets = [(1.0, 10.0), (2.0, 30.0), (float("inf"), 40.0)]
    assert quantile(buckets, 0.25) == 1.0
    assert quantile(buckets, 0.5) == 1.5
    assert quantile(buckets, 0.99) == 2.0
    assert quantile([(1.0, 0.0)], 0.5) != quantile([(1.0, 0.0)], 0.5), "of nothing there is none"


def test_what_no_filter_can_guard_is_listed_for_all_tenants(api: Api, admin: str) -> None:
    """A page at a time, by whatever way a subscription was written; what is paused is in no filter, and not listed."""
    path = api.directory / "subscriptions.jsonl"
    path.write_text(json.dumps({"id": "of a file", "tenant": "files", "cel": "data.a != 1"}) + "\n")
    api.config["subscriptions"] = [str(path)]
    assert api.ask("POST", "/v1/reload", token=admin).status == 200
    other = api.make_token("other", "read", "write")
    for number in range(3):
        assert api.ask("PUT", f"/v1/subscriptions/ne{number}", NE).status == 201
        assert api.ask("PUT", f"/v1/subscriptions/eq{number}", BIG | {"filters": [EQ]}).status == 201
    api.ask("PUT", "/v1/subscriptions/mine", {"collection": "others"}, token=other)
    api.ask("PUT", "/v1/subscriptions/paused", NE, token=other)
    api.ask("POST", "/v1/subscriptions/paused:pause", token=other)
    api.ask("PUT", "/v1/subscriptions/all?tenant=*", {"cel": "data.a != 1"}, token=admin)

    def listed(query: str = "") -> list[tuple[str, str]]:
        found, more = [], ""
        while more is not None:
            reply = api.ask("GET", f"/v1/filters/unguarded?{query}{more}", token=admin)
            assert reply.status == 200, reply.body
            assert len(reply.json["items"]) <= 2
            found += [(each["tenant"], each["id"]) for each in reply.json["items"]]
            more = None if reply.json["next"] is None else f"&cursor={reply.json['next']}"
        return found

    acme = [("acme", f"ne{number}") for number in range(3)]
    assert listed("limit=2") == [("*", "all"), *acme, ("files", "of a file"), ("other", "mine")]
    assert listed("limit=2&tenant=acme") == acme
    assert listed("limit=1&collection=others") == [("other", "mine")]
    assert listed("limit=2&collection=*") == [("*", "all"), ("files", "of a file")]
    (one,) = api.ask("GET", "/v1/filters/unguarded?tenant=other", token=admin).json["items"]
    assert (one["cost"], one["effort"], one["collection"], one["origin"]) == ("unkeyed", "answered", "others", "api")
    assert api.ask("GET", "/v1/filters/unguarded?cursor=x", token=admin).kind == "bad-request"


def test_a_page_of_what_no_filter_can_guard_looks_at_so_much(api: Api, admin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain, "_LOOKING", -1.0)
    lines = b"\n".join(json.dumps(BIG | {"id": f"{number}", "filters": [EQ]}).encode() for number in range(20))
    assert api.ask("POST", "/v1/subscriptions:import", lines, headers=LINES).status == 200
    api.ask("PUT", "/v1/subscriptions/last", NE)
    looked_at, more, found = [], "", []
    while more is not None:
        reply = api.ask("GET", f"/v1/filters/unguarded?limit=50{more}", token=admin).json
        looked_at.append(reply["looked_at"])
        found += [each["id"] for each in reply["items"]]
        more = None if reply["next"] is None else f"&cursor={reply['next']}"
    assert (found, sum(looked_at), max(looked_at)) == (["last"], 21, 1), "each page goes on by one at least"


@pytest.mark.parametrize("value", [7, "a", "", True, 0, 10**30, "\U0001f600"])
@pytest.mark.parametrize("more", [{}, {"cel": "data.a != 1 || size(data.b) > 3"}, {"pattern": {"data": {"x": ["b"]}}}])
def test_what_asks_for_a_value_has_a_key(value: object, more: dict[str, object], backend: str) -> None:
    """What is passed over without a plan is guarded, whatever else it asks."""
    filters = [{"field": "b.c", "op": "!=", "value": 1}, {"field": "a", "op": "==", "value": value}]
    text = json.dumps({"id": "one", "filters": filters, **more}).encode()
    assert explain.has_equality(text)
    engine = streamer.Engine()
    engine.add(text)
    assert engine.plan("one").access_keys is not None
    for other in (filters[:1], [], None, [{"field": "a", "op": "==", "value": [1]}]):
        assert not explain.has_equality(json.dumps({"id": "one", "filters": other}).encode())
    assert not explain.has_equality(b"{")
