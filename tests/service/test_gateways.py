"""Tenants' own gateways with a webhook: whose matches go where, without a restart, and with nothing lost or told to others."""

from __future__ import annotations

import base64
import itertools
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from streamer import Config
from streamer.config.loader import Loaded
from streamer.errors import ServiceError
from streamer.service import faults
from streamer.service.run.serve import Service
from streamer.service.store.opened import look
from streamer.service.store.rows import DeadLetter
from streamer.service.store.store import Store
from tests.service.api import BIG, Api, order, running, until
from tests.service.receiver import Receiver

# What they test is the same on each core; on the reference it runs with what takes long.
pytestmark = pytest.mark.later_on_the_reference

SECRETS = ["whsec_" + base64.b64encode(letter * 32).decode() for letter in (b"a", b"b", b"c")]
DELIVERY = {"retry": {"first": "20ms", "most": "50ms", "attempts": 3}}


def rules(receiver: Receiver, **more: Any) -> dict[str, Any]:
    """Return the section that lets tenants post to a receiver."""
    own = {"allow_http": True, "ports": [receiver.port], "networks": ["127.0.0.0/8"]}
    return {"delivery": {**DELIVERY, "gateways": own | more}}


@pytest.fixture
def api(tmp_path: Path, receiver: Receiver, backend: str) -> Iterator[Api]:
    with running(tmp_path, **rules(receiver)) as api:
        assert api.ask("PUT", "/v1/subscriptions/big", BIG).status == 201
        yield api


def billing(api: Api, **members: Any) -> Any:
    reply = api.ask("PUT", "/v1/gateways/billing", members)
    assert reply.status in (200, 201), reply.body
    return reply.json


def balance(api: Api) -> dict[str, int]:
    """Return the counts, which add up."""
    told = api.counts()
    ends = ("delivered", "dead", "dropped", "pending")
    assert told["matches"] == sum(told[f"matches_{end}"] for end in ends), told
    assert told["events_read"] == sum(told[f"events_{end}"] for end in ("matched", "unmatched", "rejected"))
    return {end: told[f"matches_{end}"] for end in ends}


def test_matches_go_to_a_tenants_own_gateway_from_its_answer_on_and_by_the_routes_before_and_after(
    api: Api, receiver: Receiver
) -> None:
    api.read(order(1))
    assert billing(api, url=receiver.url)["state"] == "working"
    api.read(order(2), order(3))
    assert sorted(message["partitionkey"] for message in receiver.messages) == ["2", "3"]
    assert receiver.messages[0]["gateway"] == "billing"
    assert "data" in receiver.messages[0]["data"]["event"]
    assert api.ask("DELETE", "/v1/gateways/billing").status == 204
    api.read(order(4))
    assert [json.loads(line)["partitionkey"] for line in (api.directory / "out.jsonl").read_bytes().splitlines()] == ["1", "4"]
    assert balance(api) == {"delivered": 4, "dead": 0, "dropped": 0, "pending": 0}


def test_a_gateway_is_written_as_subscriptions_are(api: Api, receiver: Receiver) -> None:
    made = api.ask("PUT", "/v1/gateways/billing", {"url": receiver.url, "batch": 5, "event": "none"})
    assert (made.status, made.headers["etag"]) == (201, made.json["etag"])
    assert made.json["gateway"] == {"url": receiver.url, "batch": 5, "per": "match", "event": "none", "enabled": True}
    again = api.ask("PUT", "/v1/gateways/billing", {"url": receiver.url, "batch": 5, "event": "none"})
    assert (again.status, again.json["etag"]) == (200, made.json["etag"])
    other = api.ask("PUT", "/v1/gateways/billing", {"url": receiver.url}, headers={"If-Match": made.json["etag"]})
    assert other.status == 200
    assert other.json["etag"] != made.json["etag"]
    assert other.json["created"] == made.json["created"]
    for method, headers, body in (
        ("PUT", {"If-Match": made.json["etag"]}, {"url": receiver.url}),
        ("PUT", {"If-None-Match": "*"}, {"url": receiver.url}),
        ("DELETE", {"If-Match": made.json["etag"]}, None),
    ):
        assert api.ask(method, "/v1/gateways/billing", body, headers=headers).kind == "precondition"
    assert api.ask("GET", "/v1/gateways/billing", headers={"If-None-Match": other.json["etag"]}).status == 304
    for name in ("a/b", "ünï", "a:pause", "..", "'; --", "*"):
        assert billing_of(api, name).status == 201
    first = api.ask("GET", "/v1/gateways?limit=4").json
    rest = api.ask("GET", f"/v1/gateways?limit=4&cursor={first['next']}").json
    assert [each["id"] for each in first["items"] + rest["items"]] == sorted(
        ["billing", "a/b", "ünï", "a:pause", "..", "'; --", "*"]
    )
    assert rest["next"] is None


def failing(after: int = 0) -> Callable[[], None]:
    """Return what fails once it has passed so often."""
    left = itertools.count(-after)

    def fail() -> None:
        if next(left) >= 0:
            raise OSError("fault")

    return fail


def billing_of(api: Api, name: str, **headers: str) -> Any:
    from urllib.parse import quote

    return api.ask("PUT", f"/v1/gateways/{quote(name, safe='')}", {}, headers=headers)


@pytest.mark.parametrize(
    ("members", "place"),
    [
        ({"url": "http://127.0.0.1:1/"}, "url"),
        ({"url": "https://user:hidden@example.com/"}, "url"),
        ({"url": "ftp://example.com/"}, "url"),
        ({"url": "https://example.com:444/hidden"}, "url"),
        ({"url": "https://" + "x" * 3000}, "url"),
        ({"url": 7}, "url"),
        ({"url": "https://ex ample.com/"}, "url"),
        ({"batch": 0}, "batch"),
        ({"batch": True}, "batch"),
        ({"batch": 2}, "batch"),
        ({"per": []}, "per"),
        ({"event": "all"}, "event"),
        ({"enabled": 1}, "enabled"),
        ({"secrets": [SECRETS[0]]}, "secrets"),
        ({"url": "https://example.com/", "secrets": SECRETS}, "secrets"),
        ({"url": "https://example.com/", "secrets": ["hidden"]}, "secrets[0]"),
        ({"url": "https://example.com/", "secrets": [{"env": "HOME"}]}, "secrets[0]"),
        ({"url": "https://example.com/", "secrets": "hidden"}, "secrets"),
        ({"nonsense": 1}, "nonsense"),
    ],
)
def test_what_cannot_be_a_gateway_is_refused_with_its_place_and_without_what_it_hides(
    tmp_path: Path, members: dict[str, Any], place: str
) -> None:
    from streamer.service.tenants.gateways import GatewayError, read

    with pytest.raises(GatewayError) as caught:
        read(members, Config())
    assert caught.value.place == place
    assert "hidden" not in str(caught.value)


def test_ids_and_bodies_that_are_none_are_refused(api: Api) -> None:
    assert api.ask("PUT", "/v1/gateways/" + "x" * 256, {}).kind == "gateway"
    assert api.ask("PUT", "/v1/gateways/a%00b", {}).kind == "gateway"
    assert api.ask("PUT", "/v1/gateways/%FF", {}).kind == "bad-request"
    assert api.ask("PUT", "/v1/gateways/a", b"[]", headers={"Content-Type": "application/json"}).kind == "bad-request"
    assert api.ask("PUT", "/v1/gateways/a", b'{"url": "\\ud800"}', headers={"Content-Type": "application/json"}).kind == "gateway"
    assert api.ask("GET", "/v1/gateways").json == {"items": [], "next": None}


def test_another_tenants_gateway_is_unknown_and_gets_nothing_of_this_one(api: Api, receiver: Receiver) -> None:
    billing(api, url=receiver.url)
    other = api.make_token("other", "read", "write")
    for method, body in (("GET", None), ("DELETE", None)):
        assert api.ask(method, "/v1/gateways/billing", body, token=other).kind == "unknown"
    assert api.ask("GET", "/v1/gateways", token=other).json["items"] == []
    assert api.ask("GET", "/v1/gateways/billing?tenant=acme", token=other).kind == "not-allowed"
    reader = api.make_token("acme", "read", "consume")
    assert api.ask("PUT", "/v1/gateways/x", {}, token=reader).kind == "not-allowed"
    # Of one name, to the same endpoint: by the path each is told whose it is.
    assert api.ask("PUT", "/v1/gateways/billing", {"url": receiver.url + "&other"}, token=other).status == 201
    assert api.ask("PUT", "/v1/subscriptions/big", BIG, token=other).status == 201
    api.read(order(1, tenant="acme"), order(2, tenant="other"), order(3, tenant="third"))
    told = [(request.path.endswith("other"), request.messages[0]["tenant"]) for request in receiver.requests]
    assert sorted(told) == [(False, "acme"), (True, "other")]


def test_secrets_sign_rotate_and_are_never_told(api: Api, receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    said = [
        api.ask("PUT", "/v1/gateways/billing", {"url": receiver.url, "secrets": SECRETS[:1]}),
        api.ask("PUT", "/v1/gateways/billing", {"url": receiver.url, "secrets": SECRETS[1:]}),
        api.ask("PUT", "/v1/gateways/billing", {"url": receiver.url, "batch": 2}),
        api.ask("GET", "/v1/gateways/billing"),
        api.ask("GET", "/v1/gateways"),
        api.ask("PUT", "/v1/gateways/billing", {"url": receiver.url, "secrets": [SECRETS[0], "whsec_short"]}),
    ]
    assert said[3].json["secrets"] == 2
    api.read(order(1))
    signatures = receiver.requests[0].headers["webhook-signature"].split()
    assert len(signatures) == 2
    assert billing(api, url=receiver.url, secrets=[])["secrets"] == 0
    api.read(order(2))
    assert "webhook-signature" not in receiver.requests[1].headers
    metrics = api.ask("GET", "/metrics", token=api.make_token(None, "admin")).body
    told = b"".join([reply.body for reply in said] + [metrics, caplog.text.encode()])
    assert not any(secret.removeprefix("whsec_").encode() in told for secret in SECRETS)
    assert b"hidden" not in metrics + caplog.text.encode()
    assert b"acme" not in metrics


def test_what_waits_survives_a_restart_in_order_and_is_delivered_by_what_the_store_says(
    tmp_path: Path, receiver: Receiver, backend: str
) -> None:
    receiver.answer = lambda _: 503
    with running(tmp_path, **rules(receiver)) as api:
        api.ask("PUT", "/v1/subscriptions/big", BIG)
        billing(api, url=receiver.url, secrets=SECRETS[:1])
        with open(tmp_path / "in.jsonl", "ab") as file:
            file.write(b"".join(order(number % 3, amount=200 + number) + b"\n" for number in range(30)))
        until(lambda: api.counts()["events_read"] == 30)
    receiver.answer = lambda _: 204
    before = len(receiver.requests)
    with running(tmp_path, **{**rules(receiver), "delivery": {**rules(receiver)["delivery"], "retry": {"first": "10ms"}}}) as api:
        until(lambda: not api.counts()["matches_pending"])
        assert api.ask("GET", "/v1/gateways/billing").json["pending"]["messages"] == 0
        balance(api)
    amounts: dict[str, list[int]] = {}
    dead = [json.loads(letter.record) for letter in look(tmp_path / "data")]
    for message in [message for request in receiver.requests[before:] for message in request.messages] + dead:
        amounts.setdefault(message["partitionkey"], []).append(message["data"]["event"]["data"]["amount"])
    assert sorted(amount for each in amounts.values() for amount in each) == list(range(200, 230))
    assert all("webhook-signature" in request.headers for request in receiver.requests)


def test_410_disables_a_gateway_until_it_is_written_again(api: Api, receiver: Receiver) -> None:
    receiver.answer = lambda _: 410
    billing(api, url=receiver.url)
    with open(api.directory / "in.jsonl", "ab") as file:
        file.write(order(1) + b"\n" + order(2) + b"\n")
    until(lambda: api.ask("GET", "/v1/gateways/billing").json["state"] == "gone")
    until(lambda: api.ask("GET", "/v1/gateways/billing").json["pending"]["messages"] == 2)
    receiver.answer = lambda _: 204
    assert billing(api, url=receiver.url)["state"] == "working"
    until(lambda: balance(api)["delivered"] == 2)


def test_a_disabled_gateway_keeps_what_comes_and_hands_it_out_later(api: Api, receiver: Receiver) -> None:
    assert billing(api, url=receiver.url, enabled=False)["state"] == "off"
    with open(api.directory / "in.jsonl", "ab") as file:
        file.write(order(1) + b"\n")
    until(lambda: api.ask("GET", "/v1/gateways/billing").json["pending"]["messages"] == 1)
    assert receiver.requests == []
    billing(api, url=receiver.url)
    until(lambda: balance(api) == {"delivered": 1, "dead": 0, "dropped": 0, "pending": 0})


def test_deleting_a_gateway_drops_what_is_pending_and_counts_it_once(api: Api, receiver: Receiver) -> None:
    receiver.answer = lambda _: 503
    billing(api, url=receiver.url)
    with open(api.directory / "in.jsonl", "ab") as file:
        file.write(b"".join(order(number) + b"\n" for number in range(20)))
    until(lambda: receiver.requests and api.counts()["events_read"] == 20)
    assert api.ask("DELETE", "/v1/gateways/billing").status == 204
    until(lambda: not balance(api)["pending"])
    told = balance(api)
    assert (told["dropped"] + told["dead"], told["delivered"]) == (20, 0)
    receiver.answer = lambda _: 204
    count = len(receiver.requests)
    billing(api, url=receiver.url)
    api.read(order(77))
    # But for those that were on their way.
    assert len(receiver.requests) - count <= 1 + 4
    assert receiver.messages[-1]["partitionkey"] == "77"
    balance(api)


def test_no_tenant_reaches_an_address_that_is_not_public(tmp_path: Path, receiver: Receiver, backend: str) -> None:
    with running(tmp_path, **rules(receiver, networks=[])) as api:
        api.ask("PUT", "/v1/subscriptions/big", BIG)
        port = receiver.port
        for host in ("127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]", "169.254.169.254"):
            billing(api, url=f"http://{host}:{port}/")
            with open(tmp_path / "in.jsonl", "ab") as file:
                file.write(order(1) + b"\n")
            before = api.counts()["matches_dead"]
            until(lambda: api.counts()["matches_dead"] > before)  # noqa: B023
        assert receiver.connections == 0
        letters = api.ask("GET", "/v1/dead-letters", token=api.make_token(None, "admin")).json["items"]
        assert {letter["code"] for letter in letters} <= {"forbidden_address", "unresolved", "connection"}
        assert letters[0]["sink"] == "gateway:acme/billing"
        balance(api)


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"allow_http": False}, "forbidden_url"),
        ({"ports": [443]}, "forbidden_url"),
        ({"networks": ["10.0.0.0/8"]}, "forbidden_address"),
    ],
    ids=["allow_http", "ports", "networks"],
)
@pytest.mark.parametrize("how", ["reload", "restart"])
def test_an_endpoint_is_judged_by_the_rules_of_today_at_each_attempt(
    tmp_path: Path, receiver: Receiver, backend: str, changed: dict[str, Any], code: str, how: str
) -> None:
    """The gateway was written when all of it was allowed, and its connection is open."""
    with running(tmp_path, **rules(receiver)) as api:
        assert api.ask("PUT", "/v1/subscriptions/big", BIG).status == 201
        billing(api, url=receiver.url)
        api.read(order(1))
        taken = len(receiver.requests)
        assert taken == 1
        if how == "reload":
            api.config["delivery"]["gateways"] |= changed
            assert api.ask("POST", "/v1/reload", token=api.make_token(None, "admin")).status == 200
            _is_refused(api, receiver, code)
            # Once it is allowed again, no one need write the gateway again.
            api.config["delivery"]["gateways"] |= rules(receiver)["delivery"]["gateways"]
            assert api.ask("POST", "/v1/reload", token=api.make_token(None, "admin")).status == 200
            api.read(order(3))
            assert receiver.messages[-1]["partitionkey"] == "3"
    if how == "restart":
        with running(tmp_path, **rules(receiver, **changed)) as api:
            _is_refused(api, receiver, code)


def _is_refused(api: Api, receiver: Receiver, code: str) -> None:
    taken = len(receiver.requests)
    tested = api.ask("POST", "/v1/gateways/billing:test").json
    assert tested["result"] != "delivered"
    assert "allow_http" not in json.dumps(tested)
    api.read(order(2))
    (letter,) = api.ask("GET", "/v1/dead-letters", token=api.make_token(None, "admin")).json["items"]
    assert letter["code"] == code
    assert len(receiver.requests) == taken


def test_a_letter_of_a_gateway_is_replayed_beside_the_service_and_without_it(
    tmp_path: Path, receiver: Receiver, backend: str
) -> None:
    receiver.answer = lambda _: 400
    sections = rules(receiver)
    with running(tmp_path, **sections) as api:
        api.ask("PUT", "/v1/subscriptions/big", BIG)
        billing(api, url=receiver.url)
        api.read(order(1), order(2))
        assert api.ask("GET", "/v1/gateways/billing").json["dead"] == 2
        admin = api.make_token(None, "admin")
        first, second = (each["id"] for each in api.ask("GET", "/v1/dead-letters", token=admin).json["items"])
        receiver.answer = lambda _: 204
        assert api.ask("POST", f"/v1/dead-letters/{first}:replay", token=admin).status == 202
        until(lambda: api.ask("GET", "/v1/gateways/billing").json["delivered"] == 1)
        balance(api)
    config = {
        "sources": {"orders": {"type": "file", "path": str(tmp_path / "in.jsonl"), "follow": False}},
        "service": {"data_dir": str(tmp_path / "data")},
        **sections,
    }
    offline = Service(lambda: Loaded(Config.from_dict(config)))
    assert offline.replay(lambda store: store.letters()) == (1, 0)
    offline.run()
    assert sorted(message["partitionkey"] for message in receiver.messages[-2:]) == ["1", "2"]
    with running(tmp_path, **sections) as api:
        receiver.answer = lambda _: 400
        api.read(order(3))
        (letter,) = api.ask("GET", "/v1/dead-letters", token=admin).json["items"]
        assert api.ask("DELETE", "/v1/gateways/billing").status == 204
        assert api.ask("POST", f"/v1/dead-letters/{letter['id']}:replay", token=admin).kind == "not-replayable"
        assert letter["id"] > second


def test_a_tenant_has_so_many_gateways_and_so_much_room_and_nobody_waits_for_it(
    tmp_path: Path, receiver: Receiver, backend: str
) -> None:
    receiver.answer = lambda request: 503 if request.path.endswith("down") else 204
    quotas = {"gateways": 2, "spool": "32KB"}
    with running(tmp_path, **rules(receiver), api={"quotas": quotas}) as api:
        other = api.make_token("other", "read", "write")
        for token, end in ((api.token, "down"), (other, "up")):
            api.ask("PUT", "/v1/subscriptions/big", BIG, token=token)
            assert (
                api.ask("PUT", "/v1/gateways/billing", {"url": receiver.url + end, "enabled": end == "up"}, token=token).status
                == 201
            )
        assert api.ask("PUT", "/v1/gateways/two", {}).status == 201
        assert api.ask("PUT", "/v1/gateways/three", {}).kind == "quota"
        assert api.ask("PUT", "/v1/gateways/two", {"event": "none"}).status == 200
        notes = {"acme": "x" * 500, "other": ""}
        events = [order(number, tenant=tenant, note=note) for number in range(60) for tenant, note in notes.items()]
        with open(tmp_path / "in.jsonl", "ab") as file:
            file.write(b"\n".join(events) + b"\n")
        until(lambda: api.counts()["events_read"] == 120)
        until(lambda: api.ask("GET", "/v1/gateways/billing", token=other).json["delivered"] == 60)
        until(lambda: api.ask("GET", "/v1/gateways/billing").json["pending"]["bytes"] <= 32_000)
        told = api.ask("GET", "/v1/gateways/billing").json
        assert told["dead"] > 0
        assert told["dead"] + told["pending"]["messages"] == 60
        letters = [letter for letter in look(tmp_path / "data") if letter.code == "spool_full"]
        assert len(letters) == told["dead"]
        balance(api)


def test_no_tenant_has_more_requests_at_once_by_writing_its_gateway_anew(
    tmp_path: Path, receiver: Receiver, backend: str
) -> None:
    begun: list[str] = []
    answered = threading.Event()
    receiver.answer = lambda request: (begun.append(request.path), answered.wait(30), 204)[2]
    with running(tmp_path, **rules(receiver, concurrency_of_a_tenant=1)) as api:
        api.ask("PUT", "/v1/subscriptions/big", BIG)
        for number in (1, 2):
            api.ask("DELETE", "/v1/gateways/billing")
            billing(api, url=receiver.url)
            with open(tmp_path / "in.jsonl", "ab") as file:
                file.write(order(number) + b"\n")
            until(lambda: begun and api.counts()["matches_pending"] == 1)
        time.sleep(0.2)
        assert len(begun) == 1
        answered.set()
        until(lambda: len(begun) == 2 and not api.counts()["matches_pending"])
        assert balance(api) == {"delivered": 1, "dead": 0, "dropped": 1, "pending": 0}


def test_dead_letters_of_gateways_never_end_the_service(tmp_path: Path) -> None:
    store = Store(tmp_path, dead_letter_bytes=16_000)

    def letter(number: int, sink: str, size: int = 500) -> DeadLetter:
        where = {"source": "s", "partition": "p", "position": number, "stage": "deliver", "sink": sink, "message": str(number)}
        return DeadLetter(**where, code="503", reason="", at=1, size=size, record=b"x" * size)  # type: ignore[arg-type]

    for number in range(100):
        store.commit([], [letter(number, "gateway:loud/a" if number % 10 else "gateway:quiet/a")])
    left = [each.sink for each in store.letters()]
    assert left.count("gateway:quiet/a") == 10
    assert 10 < left.count("gateway:loud/a") < 30
    assert store.letters()[-1].position == 99
    store.close()


@pytest.mark.parametrize("point", ["gateways.committed", "store.spooled", "store.committed", "spool.taken", "spool.settling"])
def test_nothing_is_lost_wherever_it_dies_between_the_match_and_the_endpoint(
    tmp_path: Path, receiver: Receiver, backend: str, point: str
) -> None:
    """The service is given up at a point, its store opened by the next one: what was answered is there, in order."""
    (tmp_path / "in.jsonl").write_bytes(b"".join(order(number % 4, amount=200 + number) + b"\n" for number in range(40)))
    (tmp_path / "subs.jsonl").write_text(json.dumps({"id": "big", "tenant": "acme", **BIG}))
    config = {
        "sources": {"orders": {"type": "file", "path": str(tmp_path / "in.jsonl"), "follow": False}},
        "subscriptions": [str(tmp_path / "subs.jsonl")],
        "service": {"data_dir": str(tmp_path / "data")},
        "matching": {"batch_size": 7},
        **rules(receiver),
    }
    (tmp_path / "made").mkdir()
    with running(tmp_path / "made", **rules(receiver)) as api:
        if point == "gateways.committed":
            faults.arm(point, failing())
            assert api.ask("PUT", "/v1/gateways/billing", {"url": receiver.url}).status == 500
            faults.disarm()
        else:
            billing(api, url=receiver.url)
    (tmp_path / "made" / "data").rename(tmp_path / "data")
    with sqlite3.connect(tmp_path / "data" / "store.db") as database:
        database.execute("DELETE FROM positions")
    if point != "gateways.committed":
        faults.arm(point, failing(after=2 if point == "spool.taken" else 0))
        with pytest.raises(Exception, match="fault"):
            Service(lambda: Loaded(Config.from_dict(config))).run()
        faults.disarm()
    Service(lambda: Loaded(Config.from_dict(config))).run()
    amounts: dict[str, list[int]] = {}
    for message in receiver.messages:
        seen = amounts.setdefault(message["partitionkey"], [])
        if (amount := message["data"]["event"]["data"]["amount"]) not in seen:
            seen.append(amount)
    assert sorted(amount for each in amounts.values() for amount in each) == list(range(200, 240))
    assert all(each == sorted(each) for each in amounts.values())


def test_secrets_are_encrypted_in_the_store_with_a_key_that_can_be_replaced(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    monkeypatch.setenv("ONE", base64.b64encode(b"1" * 32).decode())
    monkeypatch.setenv("TWO", base64.urlsafe_b64encode(b"\xff" * 32).decode())

    def stored() -> str:
        with closing(sqlite3.connect(tmp_path / "data" / "store.db")) as store:
            return str(store.execute("SELECT secrets FROM gateways").fetchone()[0])

    def signed(api: Api, number: int) -> bool:
        api.read(order(number))
        until(lambda: receiver.requests)
        return "webhook-signature" in receiver.requests.pop().headers

    with running(tmp_path, **rules(receiver)) as api:
        assert api.ask("PUT", "/v1/subscriptions/big", BIG).status == 201
        billing(api, url=receiver.url, secrets=SECRETS[:1])
        assert stored() == json.dumps(SECRETS[:1])
    sealed = []
    for keys in (["ONE"], ["TWO", "ONE"], ["TWO"]):
        with running(tmp_path, **rules(receiver, keys=[{"env": key} for key in keys])) as api:
            sealed.append(stored())
            assert SECRETS[0] not in sealed[-1]
            assert signed(api, len(sealed))
    assert sealed[0] != sealed[1] == sealed[2]
    for keys, error in ((["ONE"], "no key decrypts"), ([], "no key decrypts"), (["NONE"], r"keys\[0\]: the variable NONE")):
        with pytest.raises(ServiceError, match=error), running(tmp_path, **rules(receiver, keys=[{"env": key} for key in keys])):
            pass
    with running(tmp_path, **rules(receiver, keys=[{"env": "TWO"}])) as api:
        api.config["delivery"]["gateways"]["keys"] = [{"env": "ONE"}, {"env": "TWO"}]
        assert not api.service.reload().errors
        assert stored() not in sealed
        billing(api, url=receiver.url, secrets=SECRETS[1:])
        assert signed(api, 9)
