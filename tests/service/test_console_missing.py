"""Every page shows whatever the API may answer: with each optional part missing, and with the longest and strangest texts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from html import unescape
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from streamer.model import Limits
from streamer.service.api.openapi import document
from streamer.service.api.routes import find
from streamer.service.console import text
from streamer.service.console.client import Client, Reply
from streamer.service.console.pages import VIEWS
from streamer.service.observed import observer
from tests.service.api import LINES, Api, running, until
from tests.service.chromium import Window
from tests.service.console import Browser
from tests.service.receiver import Receiver

# What they test is the same on each core; on the reference it runs with what takes long.
pytestmark = pytest.mark.later_on_the_reference

STRANGE = {
    "html": "</textarea></script><script>alert(1)</script>\"'`{{7777*7}}<!--",
    "control": "\0\x01\x1b[31m\x7f\u0085\u2028\u202e\ufeff\U000e0001",
    "unicode": "e\u0301🏳️‍🌈𝕊ß\u0644\u0627",
    "long": "x<" * 50_000,
    "line ends": "a\r\nb\tc\n",
    "empty": "",
}
#: Half of a pair, which JSON may name, and what no text in UTF-8 has.
HALF = "\ud800x\udfff"
#: The parts of a subscription, and of an event, each of which may be missing.
PARTS: Mapping[str, Any] = {
    "gateway_id": "billing",
    "collection": "orders",
    "topic": "orders.#",
    "types": ["insert", "delete"],
    "labels": {"team": None, "live": True, "of": ["a", 1]},
    "filters": [{"field": "amount", "op": ">", "value": 100}],
    "pattern": {"data": {"note": [{"exists": False}]}},
    "cel": "data.amount > 1",
}
EVENT: Mapping[str, Any] = {
    "id": 1,
    "collection": "orders",
    "type": "insert",
    "topic": "orders.de",
    "ts": 1,
    "tenant": "acme",
    "data": {"amount": 250},
    "before": {"amount": 1},
}
#: What the contract reads, and Python's json does not.
UNREADABLE = (b'{"collection":"orders","data":{"n":%b}}' % (b"9" * 5000), b'{"data":%b}' % (b"[" * 400 + b"]" * 400))
PATHS = [view.path for view in VIEWS if view.path != "live/feed"]


def some(parts: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield an object with all of its parts, without each one, with each one alone, and with none."""
    for count in (len(parts), len(parts) - 1, 1, 0):
        yield from ({name: parts[name] for name in names} for names in combinations(parts, count))


@pytest.fixture
def api(tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """A service with two sinks, whose tenant is `acme` unless an event has one; its token is an administrator's."""
    monkeypatch.setattr(observer, "EVERY", 0.2)
    monkeypatch.setattr(observer, "TICK", 0.1)
    receiver = Receiver()
    receiver.said, receiver.answer = STRANGE["html"].encode() + b"\xff\x00", lambda _: 422
    sinks = {"out": {"type": "file", "path": str(tmp_path / "out.jsonl")}, "hooks": receiver.sink()}
    routes = [{"gateway": "billing", "sink": "hooks"}, {"gateway": "*", "sink": "out"}]
    with running(
        tmp_path, sinks=sinks, routes=routes, matching={"default_tenant": "acme"}, api={"quotas": {"requests_a_second": 100_000}}
    ) as api:
        yield api
    receiver.close()


def fill(api: Api, subscriptions: list[dict[str, Any]], events: list[Any]) -> None:
    lines = [json.dumps(each).encode() for each in subscriptions]
    reply = api.ask("POST", "/v1/subscriptions:import?partly=true", b"\n".join(lines), headers=LINES)
    assert reply.status == 200, reply.body
    api.read(*(each if isinstance(each, bytes) else json.dumps(each).encode() for each in events))


def pages(browser: Browser, ids: list[str]) -> Iterator[str]:
    """Yield the address of each page that the navigation has, of each subscription and of each event that is kept."""
    listed = re.findall(r'<li><a href="(/console/[^"]*)"', browser.get("/console/live").partition("</nav>")[0])
    yield from listed
    yield from (f"{path}?show=all" for path in listed)
    for each in ids:
        yield text.address("subscription", id=each)
        yield text.address("try", id=each)
        yield text.address("live", subscription=each)
    # The row that a script fills has no event.
    rows = browser.get("/console/live").partition("<template>")[0]
    yield from sorted({unescape(each) for each in re.findall(r'href="(/console/try[^"]+)"', rows)})


def look(browser: Browser, ids: list[str]) -> None:
    seen, wrong = list(pages(browser, ids)), []
    if not ids:
        # Everybody's events, of which some are no change, and nobody's.
        seen = [each for each in seen if "live" in each or "number=" in each]
    assert any("number=" in each for each in seen)
    for path in seen:
        reply = browser.ask("GET", path)
        if reply.status != 200 or b"<script>alert" in reply.body or b"54439" in reply.body:
            wrong.append((path, reply.status))
    assert wrong == []


def browsers(api: Api) -> tuple[Browser, Browser]:
    """Return somebody of the tenant, and somebody who runs the service and chose the tenant."""
    own, operator = Browser(api), Browser(api)
    own.sign_in(api.make_token("acme", "read", "write", "consume"))
    operator.sign_in(api.make_token(None, "admin"))
    operator.post("/console/tenant", tenant="acme")
    return own, operator


def test_every_page_shows_what_misses_any_part(api: Api) -> None:
    """The five subscriptions of the README are some of these."""
    subscriptions = [{"id": f"s{at}", **each} for at, each in enumerate(some(PARTS))]
    events = [*some(EVENT), None, {}, {"collection": "orders", "data": None}, {"collection": "orders", "type": "truncate"}]
    fill(api, subscriptions, events)
    for browser in browsers(api):
        look(browser, [each["id"] for each in subscriptions])
    browser.post("/console/tenant", tenant="")
    look(browser, [])


def test_every_page_shows_the_longest_and_strangest_values(api: Api) -> None:
    subscriptions, events = [], []
    for value in (*STRANGE.values(), HALF):
        short = value[:300]
        collection = {} if not value.strip() or value == HALF else {"collection": short}
        subscriptions += [
            {"id": short or "empty", "gateway_id": short, **collection},
            {"id": f"{short} filter", **collection, "filters": [{"field": "note", "op": "==", "value": value}]},
            {"id": f"{short} label", **collection, "labels": {short: value, "of": [value]}},
            {"id": f"{short} cel", "cel": f"data.note == {json.dumps(value)}"},
        ]
        events += [
            {**collection, "type": "insert", "data": {"note": value}},
            {"id": value, "topic": value, "data": {value: value}},
        ]
        events += [
            {"collection": value, "tenant": value or "acme", "data": {}},
            {"collection": value, "type": "insert", "data": {}},
        ]
    fill(api, subscriptions, [*events, HALF, 2**70, [], "<script>alert(1)</script>", *UNREADABLE])
    held = [json.loads(line)["id"] for line in api.ask("GET", "/v1/subscriptions:export").body.splitlines()]
    assert len(held) > 12
    for browser in browsers(api):
        look(browser, held)
    browser.post("/console/tenant", tenant="")
    look(browser, [])


# What the document of the API allows

WORDS = ("".join(each[:21_000] for each in STRANGE.values()), "")
DOCUMENT = document(Limits(), "amqp")
#: A member of an object of an answer, by the names on the way to it, `*` for each of a list.
Way = tuple[str, ...]


def of_answer(path: str, method: str = "GET") -> Mapping[str, Any] | None:
    """Return the schema of what a route answers in JSON."""
    found = find(path.encode())
    assert found is not None, path
    responses = DOCUMENT["paths"][found.path][method.lower()]["responses"]
    content = next(responses[each] for each in ("200", "201", "202", "204") if each in responses).get("content", {})
    schema: Mapping[str, Any] | None = content.get("application/json", {}).get("schema")
    return schema


def optional(schema: Mapping[str, Any], way: Way = ()) -> Iterator[tuple[Way, str]]:
    """Yield what may be null, what may be gone, and what is any text, by its way."""
    if "$ref" in schema:
        at: Any = DOCUMENT
        for name in schema["$ref"].removeprefix("#/").split("/"):
            at = at[name]
        # What a subscription may be is tried with subscriptions.
        if not schema["$ref"].endswith("/Subscription"):
            yield from optional(at, way)
        return
    for each in (*schema.get("anyOf", ()), *schema.get("allOf", ())):
        yield from optional(each, way)
    kinds = schema.get("type", ())
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if "null" in kinds or None in schema.get("enum", ()):
        yield way, "null"
    if "string" in kinds and schema.get("format") != "date-time":
        yield way, "text"
    needed = schema.get("required", ())
    for name, each in schema.get("properties", {}).items():
        if name not in needed:
            yield (*way, name), "gone"
        yield from optional(each, (*way, name))
    if "items" in schema:
        yield from optional(schema["items"], (*way, "*"))


def changed(value: Any, way: Way, change: Callable[[dict[Any, Any] | list[Any], Any], None]) -> bool:
    """Change a member wherever it is in an answer; tell whether it is anywhere."""
    name, *rest = way
    if not isinstance(value, list if name == "*" else dict):
        return False
    if name == "*":
        names: list[Any] = list(range(len(value)))
    else:
        names = [name] if name in value else []
    if rest:
        return any([changed(value[each], tuple(rest), change) for each in names])  # noqa: C419  # each of them
    for each in names:
        change(value, each)
    return bool(names)


def apply(what: str, text_: str) -> Callable[[Any, Any], None]:
    def change(parent: Any, name: Any) -> None:
        if what == "gone":
            del parent[name]
        elif what == "null":
            parent[name] = None
        elif isinstance(parent[name], str):
            parent[name] = text_

    return change


class Changing:
    """Stands between pages and the API, and changes what it answers on one path."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: dict[tuple[str, str], Any] = {}
        self.path, self.change = "", lambda _: None
        real = Client.send

        async def send(client: Client, method: str, path: str, *args: Any, **named: Any) -> Reply:
            reply = await real(client, method, path, *args, **named)
            try:
                told = json.loads(reply.body)
            except ValueError:
                return reply
            self.asked[method, path] = told
            if path == self.path:
                self.change(told)
                reply = Reply(reply.status, reply.headers, json.dumps(told).encode())
            return reply

        monkeypatch.setattr(Client, "send", send)


def test_every_page_shows_whatever_the_document_of_the_api_allows(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each member that may be null or missing is so, one after the other, and each text is any text."""
    # A lease, a label, a pause; matches with a gateway and without; a record that cannot be read, and one that is no change.
    fill(api, [{"id": "s", **PARTS}, {"id": "n", "collection": "orders"}, {"id": "b", "gateway_id": "billing"}], [EVENT, {}])
    with open(api.directory / "in.jsonl", "ab") as file:
        file.write(b'{"not": "whole\n')
    admin = api.make_token(None, "admin")
    until(lambda: api.ask("GET", "/v1/dead-letters:counts", token=admin).json["total"] >= 2)
    assert api.ask("POST", "/v1/replays", {"code": "nosuch"}, token=admin).status == 202
    _, browser = browsers(api)
    changing = Changing(monkeypatch)
    number = re.search(r"/console/try\?number=(\d+)[^\"]*\"", browser.get("/console/live?outcome=matched"))
    assert number is not None
    tried, wrong = 0, []
    for path in (*PATHS, "subscription?id=s", f"try?number={number[1]}"):
        changing.path, changing.asked = "", {}
        browser.get(f"/console/{path}")
        for (method, asked), told in list(changing.asked.items()):
            schema = of_answer(asked, method)
            changing.path = asked
            places = [] if schema is None else sorted({each for each in optional(schema) if each[0]})
            # What is missing may hide what else is shown, so it is so one after the other; texts are all any text at once.
            texts = [way for way, what in places if what == "text"]
            tries = [([way], what, "") for way, what in places if what != "text"] + [(texts, "text", word) for word in WORDS]
            for ways, what, word in tries:
                change = apply(what, word)
                copy = json.loads(json.dumps(told))
                if not any([changed(copy, way, change) for way in ways]):  # noqa: C419  # each of them
                    continue
                changing.change = lambda told, ways=ways, change=change: [changed(told, way, change) for way in ways]
                reply = browser.ask("GET", f"/console/{path}")
                tried += 1
                # A name that there is not may be answered by a page that says so.
                if reply.status != 200 and (what != "text" or reply.status >= 500):
                    wrong.append((path, asked, ways, what, word[:9], reply.status))
                assert b"<script>alert" not in reply.body, (path, asked)
    assert wrong == []
    assert tried > 100


@pytest.mark.parametrize("each", [text.said, text.lines, text.plain, text.number, text.rate, text.share, text.size, text.span])
def test_each_filter_of_a_template_takes_null(each: Callable[[None], str]) -> None:
    assert each(None) in ("–", '<bdi class="said">null</bdi>')


@pytest.mark.slow
def test_a_browser_shows_events_that_miss_any_part_as_they_come(window: Window, api: Api) -> None:
    """The script fills the same rows as the server: a match without a gateway, an event that is null, the longest text."""
    fill(api, [{"id": "any"}, {"id": "s", **PARTS}, {"id": STRANGE["html"], "gateway_id": STRANGE["control"]}], [])
    admin = api.make_token(None, "admin")
    page = window.sign_in(admin, "/console/live")
    page.get_by_text("In the last second").wait_for()
    texts = {name: each for name, each in STRANGE.items() if name != "empty"}
    fill(api, [], [None, {}, EVENT, *({"collection": each[:50], "data": {"note": each}} for each in texts.values())])
    kept = api.ask("GET", "/v1/events", token=admin).json["items"]
    assert len(kept) >= len(texts) + 1
    page.locator("tbody tr").nth(len(kept) - 1).wait_for()
    assert page.get_by_text("to no gateway").count() > len(texts)
    assert page.get_by_text("undefined").count() == 0
    for at in range(page.locator("[data-slot=why]").count()):
        window.open("/console/live")
        page.locator("[data-slot=why]").nth(at).click()
        page.get_by_role("heading", name="Try", exact=True).wait_for()
