"""Who sees the console, what a form needs, and what a page lets in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamer.service.api import tokens
from streamer.service.api.tokens import Token
from streamer.service.console import pages, sessions, text
from streamer.service.console.app import _safe
from streamer.service.console.pages import BY_PATH
from streamer.service.console.sessions import CODE_LASTS, LASTS, MOST, MOST_OF_A_TOKEN, Sessions, Who
from streamer.service.console.templates import STATIC
from streamer.service.console.visit import Piped, View, Visit
from tests.service.api import BIG, Api, order, running, until
from tests.service.console import Browser

pytestmark = pytest.mark.later_on_the_reference

HOSTILE = "<script>alert(1)</script>{{7*7}}\u202e\x00\x1b[31m\"'`"


@pytest.fixture
def api(tmp_path: Path, backend: str) -> Iterator[Api]:
    with running(tmp_path) as api:
        yield api


@pytest.fixture
def browser(api: Api) -> Browser:
    return Browser(api)


@pytest.fixture
def admin(api: Api) -> str:
    return api.make_token(None, "admin")


def test_who_is_not_signed_in_comes_back_to_the_page_after_signing_in(browser: Browser, admin: str) -> None:
    reply = browser.ask("GET", "/console/?a=b")
    assert (reply.status, reply.headers["location"]) == (303, "/console/sign-in?next=/console/%3Fa%3Db")
    page = browser.get(reply.headers["location"])
    assert 'value="/console/?a=b"' in page
    reply = browser.sign_in(admin, "/console/?a=b")
    assert (reply.status, reply.headers["location"]) == (303, "/console/?a=b")
    assert "<h1>Overview</h1>" in browser.get("/console/?a=b")


def test_the_cookie_is_for_the_console_alone_and_no_script_reads_it(browser: Browser, admin: str) -> None:
    cookie = browser.sign_in(admin).headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/console", f"Max-Age={LASTS}"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    assert admin not in cookie
    # Other ports of a host share its cookies.
    assert cookie.startswith(f"streamer_console_{browser.api.port}=")
    assert browser.api.ask("GET", "/v1/status", token="", headers={"cookie": cookie.split(";")[0]}).kind == "no-token"


def test_the_cookie_is_secure_where_a_proxy_speaks_tls(tmp_path: Path, backend: str) -> None:
    with running(tmp_path, api={"origins": ["https://console.example.com"]}) as api:
        browser = Browser(api, headers={"origin": "https://console.example.com"})
        assert "; Secure" in browser.sign_in(api.token).headers["set-cookie"]


def test_a_token_that_is_none_signs_nobody_in(browser: Browser) -> None:
    for token in ("", "nonsense", "strm_00000000_" + "a" * 43, "ü", "a b", "\r\nx: y"):
        reply = browser.sign_in(token)
        assert (reply.status, "set-cookie" in reply.headers) == (403, False)
        assert b"This token is invalid" in reply.body
    assert browser.ask("GET", "/console/").status == 303


def test_a_revoked_token_ends_its_sessions(browser: Browser, api: Api, admin: str) -> None:
    browser.sign_in(admin)
    browser.get("/console/")
    tokens.revoke(api.directory / "tokens.json", admin.split("_")[1])
    assert browser.ask("GET", "/console/").headers["location"].startswith("/console/sign-in")
    assert not browser.cookies


def test_signing_out_ends_the_session_and_not_only_the_cookie(browser: Browser, admin: str) -> None:
    browser.sign_in(admin)
    kept = dict(browser.cookies)
    assert browser.post("/console/sign-out").headers["location"] == "/console/sign-in"
    browser.cookies = kept
    assert browser.ask("GET", "/console/").status == 303


def test_a_form_without_the_value_of_the_session_does_nothing(browser: Browser, api: Api, admin: str) -> None:
    browser.sign_in(admin)
    other = Browser(api)
    other.sign_in(admin)
    for form in ({}, {"form": ""}, {"form": "nonsense"}, {"form": "ü"}, {"form": other.form()}):
        for path in ("/console/", "/console/sign-out", "/console/tenant"):
            assert browser.ask("POST", path, {**form, "tenant": "acme"}).status == 403
    browser.get("/console/")
    assert browser.ask("POST", "/console/", {"form": browser.form()}, origin="https://evil.example").kind == "origin"


def test_an_expired_session_returns_to_the_page_that_the_form_stood_on(browser: Browser, api: Api) -> None:
    stood = f"http://127.0.0.1:{api.port}/console/?x=1"
    reply = browser.ask("POST", "/console/", {"form": "old"}, referer=stood)
    assert reply.headers["location"] == "/console/sign-in?next=/console/%3Fx%3D1"


@pytest.mark.parametrize(
    "address",
    [
        "//evil.example",
        "https://evil.example/console/",
        "/console/..//evil",
        "/console\\evil",
        "/console/\r\nx: y",
        "/v1/",
        "",
        "/console/sign-in",
    ],
)
def test_nobody_is_led_elsewhere(address: str) -> None:
    assert _safe(address) == "/console/"


def test_a_link_signs_in_once(tmp_path: Path, backend: str) -> None:
    told: list[str] = []
    with running(tmp_path, sign_in=told.append, api={"address": "0.0.0.0"}) as api:
        (link,) = until(lambda: told)
        origin, _, code = link.partition("/console/sign-in?code=")
        assert origin == f"http://127.0.0.1:{api.port}"
        browser = Browser(api)
        # Who only looks at the link, as a preview does, uses nothing up.
        for _ in range(2):
            assert f'value="{code}"' in browser.get(f"/console/sign-in?code={code}")
        assert browser.ask("POST", "/console/sign-in", {"code": code}).status == 303
        assert "<h1>Overview</h1>" in browser.get("/console/")
        other = Browser(api)
        assert other.ask("POST", "/console/sign-in", {"code": code}).status == 403
        browser.post("/console/sign-out")
        assert api.service._running is not None
        assert not api.service._running.entrance._lent


def test_a_link_is_told_on_a_terminal_alone(tmp_path: Path, backend: str, caplog: pytest.LogCaptureFixture) -> None:
    told: list[str] = []
    caplog.set_level("DEBUG")
    with running(tmp_path, sign_in=told.append, dev=True):
        assert told == [], "nobody signs in"
    with running(tmp_path, sign_in=told.append) as api:
        until(lambda: told)
        assert f"console: http://127.0.0.1:{api.port}/console/" in caplog.text
        assert "code=" not in caplog.text


def test_codes_and_sessions_end_by_themselves() -> None:
    now = 0.0
    lent: dict[str, Token] = {}
    held = Sessions(lent, lambda: now)
    late, code = held.code(), held.code()
    text_of = held.lend(code)
    assert text_of is not None
    assert held.lend(code) is None
    (token,) = lent.values()
    cookie, _ = held.begin(Who(token.id, "", None, ("admin",)), text_of)
    now = CODE_LASTS + 1.0
    assert held.lend(late) is None
    assert held.find(cookie) is not None
    now = LASTS + 1.0
    assert held.find(cookie) is None
    assert not lent


def test_sessions_are_bounded_and_one_token_cannot_end_those_of_others() -> None:
    held = Sessions({})
    mine, _ = held.begin(Who("mine", "", "acme", ("read",)), "t")
    for _ in range(MOST_OF_A_TOKEN + 5):
        held.begin(Who("loud", "", "other", ("read",)), "t")
    assert len(held) == MOST_OF_A_TOKEN + 1
    assert held.find(mine) is not None
    for number in range(MOST + 5):
        held.begin(Who(f"{number}", "", "other", ("read",)), "t")
    assert len(held) == MOST


def test_a_token_in_memory_is_in_force_until_it_is_taken_back(tmp_path: Path) -> None:
    lent: dict[str, Token] = {}
    held = tokens.Tokens(tmp_path / "tokens.json", lent)
    token, text_of = tokens.lent("console")
    assert held.find(text_of) is None
    lent[token.id] = token
    assert held.find(text_of) == token
    assert held.holds(token)
    lent.clear()
    assert not held.holds(token)


def test_who_is_of_a_tenant_sees_no_page_of_the_operator(browser: Browser, api: Api) -> None:
    browser.sign_in(api.make_token("acme", "consume"))
    page = browser.get("/console/")
    assert "acme" in page
    assert "<h1>Overview</h1>" not in page
    operators = [view.path for view in pages.VIEWS if view.scope == "admin" and view.path]
    assert all(browser.ask("GET", f"/console/{path}").status == 404 for path in operators)
    assert browser.post("/console/", do="enable", name="out").status == 404
    # The choice of a tenant is an administrator's.
    browser.post("/console/tenant", tenant="other")
    assert "other" not in browser.get("/console/")


def test_an_administrator_chooses_the_tenant_and_sees_it(browser: Browser, admin: str) -> None:
    browser.sign_in(admin)
    browser.post("/console/tenant", tenant=HOSTILE)
    page = browser.get("/console/")
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page


def test_each_answer_lets_nothing_else_in(browser: Browser, admin: str) -> None:
    asked = [
        browser.ask("GET", path) for path in ("/console/", "/console/sign-in", "/console/nosuch", "/console/static/console.css")
    ]
    browser.sign_in(admin)
    asked += [browser.ask("GET", path) for path in ("/console/", "/console/nosuch")]
    asked += [browser.ask("POST", "/console/"), browser.ask("DELETE", "/console/")]
    for reply in asked:
        policy = reply.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; ")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["referrer-policy"] == "same-origin"
        assert "no-" in reply.headers["cache-control"]
    assert browser.ask("GET", "/console/", host="evil.example").kind == "host"


def test_a_page_has_no_script_or_style_within(browser: Browser, api: Api, admin: str) -> None:
    browser.sign_in(admin)
    for view in pages.VIEWS:
        page = browser.get(f"/console/{view.path}")
        assert re.search(r"<script(?! src=)|<style|\sstyle=|\son\w+=|javascript:", page) is None, view.path
        assert not re.search(r'(src|href|action)="(?!/|#)', page), view.path


def test_what_is_served_is_small_and_kept_by_browsers(browser: Browser) -> None:
    assert sum(len(body) for body, _ in STATIC.values()) < 100_000
    page = browser.get("/console/sign-in")
    for address in re.findall(r'(?:src|href)="(/console/static/[^"]+)"', page):
        reply = browser.ask("GET", address)
        assert reply.status == 200
        assert "immutable" in reply.headers["cache-control"]
    assert browser.ask("GET", "/console/static/../app.py").status == 404


def test_forms_have_a_bound_and_a_type(browser: Browser, tmp_path: Path) -> None:
    assert browser.api.ask("POST", "/console/sign-in", b"{}", headers={"content-type": "application/json"}).status == 415
    many = {f"f{number}": "" for number in range(2000)}
    assert browser.ask("POST", "/console/sign-in", many).status == 400
    head = b"POST /console/sign-in HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    assert b" 413 " in browser.api.raw(head + b"Content-Length: 999999999\r\nConnection: close\r\n\r\n")


@pytest.mark.parametrize("host", ["localhost:x", "localhost:99999999999", "[::1]:8080", "localhost:", "LOCALHOST:80"])
def test_a_host_of_any_port_is_answered(browser: Browser, host: str) -> None:
    assert browser.ask("GET", "/console/", host=host).status == 303


def test_hostile_addresses_are_refused_or_answered_and_are_no_defect(
    browser: Browser, admin: str, caplog: pytest.LogCaptureFixture
) -> None:
    browser.sign_in(admin)
    told = {
        path: browser.ask("GET", path).status
        for path in (
            "/console/?" + "&".join(f"q{number}=" for number in range(1500)),
            "/console/?%ED%A0%80=%FF",
            "/console/%00",
            "/console/%FF%FE",
            "/console/..%2f..%2fv1%2fstatus",
            "/console/static/..%2fapp.py",
            "/console/sign-in?next=%0d%0aset-cookie:x",
            "/consolex",
        )
    }
    assert 500 not in told.values(), told
    assert "ended in" not in caplog.text
    assert browser.ask("HEAD", "/console/").status == 200


def test_what_the_api_sends_itself_has_the_headers_of_the_console(
    browser: Browser, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def show(visit: Visit) -> Piped:
        return Piped("/v1/subscriptions:export", name="all.jsonl")

    monkeypatch.setitem(BY_PATH, "export", View(path="export", title="Export", scope="read", show=show))
    api.ask("PUT", "/v1/subscriptions/big", BIG)
    browser.sign_in(api.token)
    reply = browser.ask("GET", "/console/export")
    assert reply.lines[0]["id"] == "big"
    assert reply.headers["content-disposition"] == 'attachment; filename="all.jsonl"'
    assert reply.headers["content-security-policy"].startswith("default-src 'none'")


def test_without_tokens_nobody_signs_in_and_forms_are_still_told_apart(tmp_path: Path, backend: str) -> None:
    with running(tmp_path, dev=True) as api:
        browser = Browser(api)
        assert "<h1>Overview</h1>" in browser.get("/console/")
        assert browser.cookies
        assert browser.ask("GET", "/console/sign-in").headers["location"] == "/console/"
        assert browser.ask("POST", "/console/tenant", {"tenant": "acme"}).status == 403
        assert browser.post("/console/tenant", tenant="acme").status == 303
        assert 'value="acme"' in browser.get("/console/")


def test_the_console_may_be_left_out(tmp_path: Path, backend: str) -> None:
    with running(tmp_path, api={"console": False}) as api:
        assert api.ask("GET", "/console/").kind == "unknown"


def test_pages_are_counted_with_the_requests_of_the_api(browser: Browser, admin: str) -> None:
    browser.sign_in(admin)
    browser.get("/console/")
    told = browser.api.ask("GET", "/metrics", token=admin).body.decode()
    assert re.search(r'streamer_service_api_requests_total\{route="/console/",status="200"\} [12]\.0', told)


def test_the_overview_says_what_is_wrong_first(browser: Browser, api: Api, admin: str) -> None:
    browser.sign_in(admin)
    assert "There are no subscriptions, so no event matches." in browser.get("/console/")
    api.ask("PUT", "/v1/subscriptions/big", BIG)
    assert "All is well." in browser.get("/console/")
    api.read(order(), b'{"<script>"')
    page = browser.get("/console/")
    assert "1 dead letter waits." in page
    api.config["sinks"]["out"] = {"type": "nonsense"}
    api.ask("POST", "/v1/reload", token=admin)
    page = browser.get("/console/")
    assert page.index("The last reload was refused") < page.index('<h2 id="picture">')
    assert "nonsense" in page.partition('<h2 id="reload">')[2]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("plain", "plain"),
        ("<b>", "&lt;b&gt;"),
        ("a\u202eb", 'a<span class="control" title="RIGHT-TO-LEFT OVERRIDE">U+202E</span>b'),
        ("\0\0\x1b", '<span class="control" title="control, control, control">U+0000 U+0000 U+001B</span>'),
        ("\0", '<span class="control" title="control">U+0000</span>'),
        ("\ud800", '<span class="control" title="control">U+D800</span>'),
        ({"a": "<"}, "{&#34;a&#34;: &#34;&lt;&#34;}"),
        (None, "null"),
    ],
)
def test_what_somebody_wrote_is_shown_and_does_nothing(value: object, told: str) -> None:
    assert text.said(value) == f'<bdi class="said">{told}</bdi>'


def test_a_long_value_is_cut_and_can_be_opened() -> None:
    told = text.said("<" * 1_000_000)
    assert told.startswith('<details class="said"><summary>')
    assert "1,000,000 characters" in told
    assert "980,000 characters more" in told
    assert len(told) < 100_000
    assert "<<" not in told


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0, "0 s"),
        (0.25, "250 ms"),
        (1.5, "1.5 s"),
        (59, "59 s"),
        (61, "1 min 1 s"),
        (3600, "1 h"),
        (90_000, "1 d 1 h"),
        (None, "–"),
    ],
)
def test_spans_are_told_in_two_units(seconds: float | None, told: str) -> None:
    assert text.span(seconds) == told


def test_a_session_is_told_from_its_cookie_by_a_hash_alone() -> None:
    held = sessions.Sessions({})
    cookie, _ = held.begin(Who("a", "", None, ()), None)
    assert cookie not in held._sessions
