"""The pages of subscriptions: found, tried, saved unless somebody else did, paused and deleted."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from streamer.service.console import drafts
from streamer.service.observed import matches
from tests.service.api import BIG, order, running, until
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


def test_who_lands_there_is_told_where_matches_are_seen_and_explained(browser: Browser) -> None:
    _, _, page = browser.get("/console/subscriptions").partition("<h1>")
    assert '<a href="/console/live">' in page
    assert '<a href="/console/try">' in page


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
    assert "is saved, and matches every later event" in send(browser, 303, do="save", text=SMALL, etag=tag(browser))
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
    assert "It has errors" in send(browser, 422, do="save", text=SMALL)


def test_it_is_paused_resumed_and_deleted(browser: Browser) -> None:
    assert "has no matches until" in send(browser, 303, do="pause")
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


def typed(draft: drafts.Draft, **changed: str) -> dict[str, str]:
    """Return what a browser sends of a draft that is shown, with what somebody typed."""
    assert draft.fields is not None, draft.unfit
    form = {"text": draft.text, "agreed": draft.agreed, "pattern": draft.fields.pattern, "rows": str(len(draft.fields.rows))}
    form |= dict(zip(drafts.TEXTS, draft.fields.texts, strict=True))
    form |= {f"{name}.{at}": each for at, row in enumerate(draft.fields.rows) for name, each in row._asdict().items()}
    # A browser ends the lines of what it sends in two characters.
    return {name: value.replace("\n", "\r\n") for name, value in (form | changed).items()}


VALUES = (
    ("9007199254740993", "number"),
    ("0.10000000000000000001", "number"),
    ("1e400", "number"),
    ("-0.0", "number"),
    ('"12"', "text"),
    ('"true"', "text"),
    ('" a "', "text"),
    ('""', "text"),
    ('"<b>&\'ü"', "text"),
    ("true", "boolean"),
    ("null", "null"),
    ('["1", 1, null]', "json"),
    (r'"a\nb"', "json"),
    (r'"\u202ea"', "json"),
    (r'"\ud800"', "json"),
)


@pytest.mark.parametrize(("value", "kind"), VALUES)
def test_a_value_comes_back_from_the_form_as_it_was_written(value: str, kind: str) -> None:
    draft = drafts.shown(f'{{"id": "x", "labels": {{"n": 1.0}}, "filters": [{{"field": "a", "op": "==", "value": {value}}}]}}')
    assert draft.fields is not None
    assert draft.fields.rows[0].type == kind
    after = drafts.of_form(typed(draft, topic="a.b"))
    assert after.wrong == ()
    assert f'"value": {value}}}' in after.text
    assert '{"n": 1.0}' in after.text
    assert json.loads(after.text)["topic"] == "a.b"


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"cel": 1}',
        '{"cel": "1", "cel": "2"}',
        r'{"topic": "a\nb"}',
        r'{"cel": "a\r\nb"}',
        '{"filters": [{"field": "a"}]}',
        '{"filters": [1]}',
        '{"filters": []}',
        '{"filters": [{"field": 1, "op": "==", "value": 1}]}',
        '{"filters": [{"field": "a", "op": "==", "value": 1, "root": ""}]}',
        "[" * 100_000,
        '{"a": NaN}',
    ],
)
def test_what_a_form_cannot_show_is_left_to_the_text(text: str) -> None:
    draft = drafts.shown(text)
    assert (draft.fields, draft.text) == (None, text)
    assert draft.unfit


def test_the_form_and_the_text_follow_each_other() -> None:
    draft = drafts.shown('{"collection": "orders",\n "cel": "1 ==\\n1"}')
    assert drafts.of_form(typed(draft)).text == draft.text, "what nobody changed stays as it was typed"
    more = drafts.of_form(typed(draft, do="add"))
    assert more.fields is not None
    assert more.fields.rows == (drafts.Row(),)
    row = {"field.0": "a", "op.0": "in", "type.0": "json", "value.0": "[1, 2]"}
    filled = drafts.of_form(typed(more, **row))
    condition = {"field": "a", "op": "in", "value": [1, 2]}
    assert json.loads(filled.text)["filters"] == [condition]
    for root in ("envelope", "data"):
        rooted = drafts.of_form(typed(filled, **{"root.0": root}))
        assert json.loads(rooted.text)["filters"] == [condition | {"root": root}]
        assert drafts.of_form(typed(drafts.shown(rooted.text), **{"root.0": ""})).text == filled.text
    assert json.loads(filled.text)["cel"] == "1 ==\n1"
    gone = drafts.of_form(typed(filled, do="remove.0"))
    assert "filters" not in json.loads(gone.text)
    other = drafts.of_form(typed(filled, text='{"topic": "a.b"}'))
    assert other.fields is not None
    assert (other.fields.texts, other.fields.rows) == (("", "", "a.b", ""), ())


def test_were_both_changed_somebody_chooses() -> None:
    draft = drafts.shown('{"collection": "orders"}')
    both = typed(draft, topic="a.b", text='{"collection": "others"}')
    (wrong,) = drafts.of_form(both).wrong
    assert "both changed" in wrong["reason"]
    assert json.loads(drafts.of_form(both | {"do": "take_form"}).text) == {"collection": "orders", "topic": "a.b"}
    assert drafts.of_form(both | {"do": "take_text"}).text == '{"collection": "others"}'


@pytest.mark.parametrize(
    ("kind", "value"), [("number", "12a"), ("number", "01"), ("boolean", "yes"), ("json", "[1,"), ("no", "")]
)
def test_a_value_that_is_not_of_its_type_is_told(kind: str, value: str) -> None:
    draft = drafts.shown('{"filters": [{"field": "a", "op": "==", "value": 1}]}')
    after = drafts.of_form(typed(draft, **{"type.0": kind, "value.0": value}))
    assert [each["place"] for each in after.wrong] == ["filters[0].value"]
    assert after.text == draft.text


def test_a_form_is_saved_and_an_error_is_shown_where_it_is(browser: Browser) -> None:
    page = browser.get(ONE)
    draft = drafts.shown(text_in(page))
    form = typed(draft, **{"value.0": "9007199254740993"})
    wrong = send(browser, 200, **form | {"do": "try", "op.0": "near", "cel": "1 +"}, etag=tag(browser))
    assert 'aria-invalid="true"' in wrong
    assert 'name="root.0" aria-invalid="true"' in send(browser, 200, **form | {"do": "try", "root.0": "near"}, etag=tag(browser))
    assert re.search(r"<mark>.*near.*</mark>", wrong)
    assert "is saved" in send(browser, 303, **form | {"do": "save"}, etag=tag(browser))
    assert b"9007199254740993" in browser.api.ask("GET", "/v1/subscriptions/big").body
    assert "expected a number" in send(browser, 422, **form | {"do": "save", "value.0": "<b>"}, etag=tag(browser))


def text_in(page: str) -> str:
    found: Any = re.search(r'<textarea[^>]* name="text"[^>]*>\n(.*?)</textarea>', page, re.DOTALL)
    return unescape(found[1])


def test_many_are_imported_whole_or_with_each_error_at_its_line(browser: Browser) -> None:
    def sent(status: int, **fields: str) -> str:
        reply = browser.post("/console/import", **fields)
        assert reply.status == status, reply.body
        return reply.body.decode()

    good = json.dumps(BIG | {"id": "first"})
    lines = f'{good}\r\n\r\n{{"id": "<b>"\r\n{{"id": "third", "nosuch": 1}}'
    page = sent(422, do="import", text=lines)
    assert "Nothing was written" in page
    assert re.findall(r"<code>line <bdi[^>]*>(\d+)", page) == ["3", "4"]
    assert "<b>" not in page
    assert browser.api.ask("GET", "/v1/subscriptions/first").status == 404
    assert "Some lines are wrong" in sent(200, do="check", text=lines)
    assert browser.api.ask("GET", "/v1/subscriptions/first").status == 404
    assert "1 created, 0 replaced, 0 unchanged, 2 refused" in sent(200, do="import", text=lines, partly="on")
    assert browser.api.ask("GET", "/v1/subscriptions/first").status == 200
    assert "0 created, 0 replaced, 1 unchanged, 0 refused" in sent(200, do="import", text=good)


def test_another_tenant_imports_for_itself_alone(browser: Browser) -> None:
    """Under an id that is held, too: it is its own there. What says another tenant is refused."""
    before = browser.api.ask("GET", "/v1/subscriptions/big").json
    other = Browser(browser.api)
    token = browser.api.make_token("other", "read", "write")
    other.sign_in(token)
    mine = json.dumps(BIG | {"id": "big", "gateway_id": "theirs"})
    page = other.post("/console/import", do="import", text=mine).body.decode()
    assert "1 created, 0 replaced" in page
    assert browser.api.ask("GET", "/v1/subscriptions/big").json == before
    assert browser.api.ask("GET", "/v1/subscriptions/big", token=token).json["subscription"]["gateway_id"] == "theirs"
    reply = other.post("/console/import", do="import", text=json.dumps(BIG | {"id": "new", "tenant": "acme"}), tenant="acme")
    assert reply.status == 422
    assert "tenant" in reply.body.decode().partition('id="wrong"')[2].partition("</section>")[0]
    assert browser.api.ask("GET", "/v1/subscriptions/new").status == 404
    assert "n00" not in other.get("/console/subscriptions")


def test_an_import_has_the_bounds_of_the_api(tmp_path: Path, backend: str) -> None:
    """What is too long for the API is told, with what was typed; what is too long for any form is refused."""
    with running(tmp_path, api={"limits": {"import_body": "64KiB"}}) as api:
        browser = Browser(api)
        browser.sign_in(api.make_token("acme", "read", "write"))
        line = json.dumps(BIG | {"id": "x" * 100})
        page = browser.post("/console/import", do="import", text="\n".join([line] * 400))
        assert page.status == 422
        assert "Nothing was written. a body has at most 65,536 bytes here" in page.body.decode()
        assert page.body.count(b"x" * 100) == 400, "what was typed is there still"
        assert browser.post("/console/import", do="import", text="\n".join([line] * 4000)).status == 413
        assert api.ask("GET", "/v1/subscriptions").json["items"] == []


def test_who_may_only_read_imports_nothing(browser: Browser) -> None:
    other = Browser(browser.api)
    other.sign_in(browser.api.make_token("acme", "read"))
    assert other.ask("GET", "/console/import").status == 404
    assert other.post("/console/import", do="import", text=json.dumps(BIG | {"id": "new"})).status == 404


def test_the_last_matches_of_one_are_shown_to_who_may_read_events(browser: Browser) -> None:
    browser.api.read(order(7, amount=4711), order(8, amount=3))
    page = until(lambda: "4711" in (told := browser.get(ONE)) and told)
    assert "Last matches" in page
    other = Browser(browser.api)
    other.sign_in(browser.api.make_token("acme", "read"))
    assert "Last matches" not in other.get(ONE)


def test_how_often_one_matched_is_drawn_with_its_table(browser: Browser) -> None:
    """Since when it is counted is said; another tenant's subscription of the same id has counts of its own."""
    browser.api.read(*(order(number) for number in range(23)))
    page = browser.get(ONE)
    assert "23 matches, counted since" in page
    part = page.partition("Matches over time")[2].partition("</section>")[0]
    assert '<svg class="chart"' in part
    assert sum(int(count.replace(",", "")) for count in re.findall(r'<td class="n">([\d,]+)</td>', part)) == 23
    assert "estimate" not in part
    other = Browser(browser.api)
    token = browser.api.make_token("other", "read", "write")
    assert browser.api.ask("PUT", "/v1/subscriptions/big", BIG, token=token).status == 201
    other.sign_in(token)
    assert "0 matches, counted since" in other.get(ONE)


def test_what_is_not_counted_is_said(browser: Browser) -> None:
    counts = browser.api.service._running.pipeline.matcher.matches  # type: ignore[union-attr]
    counts.limit(1)
    page, minute = "", -1.0
    # A new minute is counted again.
    while minute != time.time() // 60:
        minute = time.time() // 60
        browser.api.read(order(1))
        page = browser.get(ONE)
    assert "more than 1 subscriptions match within a minute" in page
    counts.limit(0)
    assert "is 0." in browser.get(ONE)


def test_one_that_another_process_matches_for_is_shown_without_counts(tmp_path: Path, backend: str) -> None:
    with running(tmp_path, shard={"tenants": "1/2"}) as api:
        whose = next(f"t{number}" for number in range(99) if not api.service.subscriptions.shard.holds(f"t{number}"))
        token = api.make_token(whose, "read", "write")
        assert api.ask("PUT", "/v1/subscriptions/big", BIG, token=token).status == 201
        other = Browser(api)
        other.sign_in(token)
        page = other.get(ONE)
        assert "How it is found" in page
        assert "Matches over time" not in page


def test_an_estimate_is_said_to_be_one(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matches, "MANY", 10)
    browser.api.read(order(1))
    page = browser.get(ONE)
    assert "About " in page
    assert "up to 7 was counted" in page


def test_what_somebody_wrote_into_each_part_drives_no_page(browser: Browser) -> None:
    bad = "</textarea><script>alert(1)</script>\"'{{7777*7}}\u202e\x1b"
    filters = [{"field": bad, "op": "==", "value": bad}, {"field": "a", "op": "in", "value": [bad]}]
    parts = {"collection": bad, "gateway_id": bad, "cel": f"data.a == {json.dumps(bad)}", "labels": {"n": bad}}
    for each in ({"filters": filters}, parts, {"pattern": {"data": {bad: [bad]}}}, {"topic": bad}):
        text = json.dumps(each)
        for page in (send(browser, 200, do="try", text=text), send(browser, 200, do="take_text", text=text, rows="0")):
            assert "<script>alert" not in page
            assert "54439" not in page
    plain = typed(drafts.shown('{"filters": [{"field": "a", "op": "==", "value": 1}]}'))
    everywhere = dict.fromkeys(("root.0", "field.0", "op.0", "type.0", "value.0", *drafts.TEXTS, "pattern"), bad)
    assert "<script>alert" not in send(browser, 200, **plain | everywhere, do="try")
