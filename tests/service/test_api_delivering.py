"""What became of messages: attempts, tests, and many dead letters delivered again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamer.service.connectors.protocols import Outcome
from streamer.service.observed import attempts as ring
from streamer.service.observed.attempts import Attempts
from tests.service.api import BIG, Api, order, running, until
from tests.service.receiver import Receiver
from tests.service.test_gateways import rules

pytestmark = pytest.mark.later_on_the_reference


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


def ask(api: Api, method: str, path: str, token: str | None = None, body: Any = None) -> Any:
    reply = api.ask(method, path, body, token=token)
    assert reply.status in (200, 202), reply.body
    return reply.json


def test_attempts_are_told_with_how_the_answer_begins(tmp_path: Path, backend: str, receiver: Receiver) -> None:
    """To who runs the service; a tenant is told all but what its endpoint has said."""
    receiver.said = b"no room, " + b"x" * 10_000
    receiver.answer = lambda _: 507
    with running(tmp_path, **rules(receiver)) as api:
        admin, other = api.make_token(None, "admin"), api.make_token("other", "read", "write")
        api.ask("PUT", "/v1/subscriptions/big", BIG)
        api.ask("PUT", "/v1/gateways/billing", {"url": receiver.url})
        with open(tmp_path / "in.jsonl", "ab") as file:
            file.write(order() + b"\n")
        (told, *_) = until(lambda: ask(api, "GET", "/v1/gateways/billing/attempts")["items"])
        assert (told["result"], told["code"], told["messages"]) == ("later", "507", 1)
        assert told["duration_ms"] >= 0
        assert "answer" not in told
        (whole, *_) = ask(api, "GET", "/v1/gateways/billing/attempts?tenant=acme", admin)["items"]
        assert whole["answer"].startswith("no room, x")
        assert len(whole["answer"]) == 512
        for path in ("/v1/gateways/billing/attempts", "/v1/gateways/nosuch/attempts"):
            assert api.ask("GET", path, token=other).kind == "unknown"
        assert api.ask("POST", "/v1/gateways/billing:test", token=other).kind == "unknown"
        assert api.ask("GET", "/v1/sinks/out/attempts").kind == "not-allowed"
        receiver.answer = lambda _: 204


def test_a_test_is_a_marked_message_past_all_that_waits(tmp_path: Path, backend: str, receiver: Receiver) -> None:
    with running(tmp_path, **rules(receiver)) as api:
        admin = api.make_token(None, "admin")
        api.ask("PUT", "/v1/gateways/billing", {"url": receiver.url, "batch": 10})
        api.ask("PUT", "/v1/gateways/streamed", {})
        assert ask(api, "POST", "/v1/gateways/billing:test")["result"] == "delivered"
        (message,) = receiver.messages
        assert (message["type"], message["data"]) == ("streamer.test", {"test": True})
        receiver.answer = lambda _: 503
        assert ask(api, "POST", "/v1/gateways/billing:test")["code"] == "503"
        assert api.ask("POST", "/v1/gateways/streamed:test").kind == "no-test"
        assert ask(api, "POST", "/v1/sinks/out:test", admin)["result"] == "delivered"
        assert b"streamer.test" in (tmp_path / "out.jsonl").read_bytes()
        assert api.ask("POST", "/v1/sinks/nosuch:test", token=admin).kind == "unknown"
        assert api.counts()["matches"] == 0, "a test is no match"


def test_all_dead_letters_of_a_reason_are_delivered_again(tmp_path: Path, backend: str, receiver: Receiver) -> None:
    """With progress; those of other reasons stay, and what cannot be replayed is counted and named."""
    receiver.answer = lambda _: 422
    sinks = {"hooks": receiver.sink()}
    with running(tmp_path, sinks=sinks, delivery={"retry": {"first": "1ms", "most": "1ms", "attempts": 1}}) as api:
        admin = api.make_token(None, "admin")
        api.ask("PUT", "/v1/subscriptions/big", BIG)
        api.read(*(order(number) for number in range(25)), b"{")
        until(lambda: ask(api, "GET", "/v1/dead-letters:counts", admin)["total"] == 26)
        counts = ask(api, "GET", "/v1/dead-letters:counts", admin)
        assert counts["looked_at"] == 26
        assert [(each["stage"], each["sink"], each["count"]) for each in counts["items"]] == [
            ("deliver", "hooks", 25),
            ("decode", "", 1),
        ]
        code = counts["items"][0]["code"]
        chosen = ask(api, "GET", f"/v1/dead-letters?code={code}&sink=hooks&limit=30", admin)["items"]
        assert len(chosen) == 25
        assert ask(api, "GET", "/v1/sinks", admin)["items"][0]["last_error"]["code"] == "422"
        receiver.answer = lambda _: 204
        before = len(receiver.requests)
        begun = ask(api, "POST", "/v1/replays", admin, {"code": code, "stage": "deliver"})
        assert begun["total"] == 25
        job = f"/v1/replays/{begun['id']}"
        done = until(lambda: (told := ask(api, "GET", job, admin))["state"] != "running" and told)
        assert (done["state"], done["replayed"], done["refused"]) == ("done", 25, 0)
        until(lambda: len(receiver.requests) == before + 25)
        (left,) = ask(api, "GET", "/v1/dead-letters", admin)["items"]
        again = ask(api, "POST", "/v1/replays", admin, {"numbers": [left["id"], 10**6]})
        done = until(lambda: (told := ask(api, "GET", f"/v1/replays/{again['id']}", admin))["state"] != "running" and told)
        assert (done["replayed"], done["refused"], done["refused_numbers"]) == (0, 1, [left["id"]])
        assert [each["id"] for each in ask(api, "GET", "/v1/replays", admin)["items"]] == [again["id"], begun["id"]]
        assert ask(api, "DELETE", job, admin)["state"] == "done", "what is over stays as it ended"
        for bad in ({}, {"numbers": []}, {"numbers": [0]}, {"numbers": [1], "code": "x"}, {"code": 1}, {"nosuch": "x"}):
            assert api.ask("POST", "/v1/replays", bad, token=admin).kind == "bad-request", bad
        assert api.ask("GET", "/v1/replays/nosuch", token=admin).kind == "unknown"
        assert api.ask("POST", "/v1/replays", {"stage": "decode"}).kind == "not-allowed"


def test_attempts_that_are_kept_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring, "MOST_SINKS", 2)
    attempts = Attempts()
    for number in range(ring.MOST + 5):
        attempts.add("a", [str(number)], Outcome("later", "503", said=b"x"), 0.1)
    assert len(attempts.last("a")) == ring.MOST
    assert attempts.last("a")[0].first == str(ring.MOST + 4)
    attempts.add("b", [], Outcome("delivered"), 0.1)
    attempts.add("c", [], Outcome("delivered"), 0.1)
    assert attempts.last("a") == []
    assert attempts.failed("a") is None
