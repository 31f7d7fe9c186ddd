"""The document of the API is valid, and says what the API does."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import requests

from streamer.service.api.calls import EVENTS
from streamer.service.api.problems import KINDS
from streamer.service.api.routes import ROUTES, find
from tests.service.api import BIG, Api, order, running


@pytest.fixture
def api(tmp_path: Path, backend: str) -> Iterator[Api]:
    with running(tmp_path, dev=True, api={"quotas": {"requests_a_second": 100_000}}) as api:
        yield api


def test_the_document_is_valid_and_lists_every_route(api: Api) -> None:
    from openapi_spec_validator import OpenAPIV31SpecValidator

    document = api.ask("GET", "/v1/openapi.json", token="").json
    OpenAPIV31SpecValidator(document).validate()
    listed = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert listed == {(route.method, route.path) for route in ROUTES}
    names = {operation["operationId"] for methods in document["paths"].values() for operation in methods.values()}
    assert len(names) == len(ROUTES)


def test_answers_are_as_the_document_says(api: Api) -> None:
    document = api.ask("GET", "/v1/openapi.json", token="").json
    api.read(b"{")
    asked = [
        ("PUT", "/v1/subscriptions/big", BIG),
        ("PUT", "/v1/subscriptions/big", BIG),
        ("PUT", "/v1/subscriptions/big", {"cel": "("}),
        ("GET", "/v1/subscriptions/big", None),
        ("GET", "/v1/subscriptions/nosuch", None),
        ("GET", "/v1/subscriptions", None),
        ("POST", "/v1/subscriptions/big:pause", None),
        ("POST", "/v1/subscriptions/big:resume", None),
        ("POST", "/v1/subscriptions/big:renew?lease=100", None),
        ("PUT", "/v1/gateways/billing", {"url": "https://example.com/hook", "batch": 2, "secrets": ["whsec_" + "A" * 32]}),
        ("PUT", "/v1/gateways/billing", {"url": "https://example.com/hook"}),
        ("PUT", "/v1/gateways/own", {}),
        ("PUT", "/v1/gateways/own", {"url": "http://example.com/"}),
        ("GET", "/v1/gateways/own", None),
        ("GET", "/v1/gateways", None),
        ("GET", "/v1/gateways/billing/matches", None),
        ("GET", "/v1/gateways/nosuch/matches", None),
        ("DELETE", "/v1/gateways/own", None),
        ("POST", "/v1/match", order(tenant="default")),
        ("POST", "/v1/match", b"{"),
        ("POST", "/v1/explain", {"id": "big", "event": {}}),
        ("POST", "/v1/explain", {"event": json.loads(order(tenant="default"))}),
        ("POST", "/v1/near-misses", order(tenant="default", amount=1)),
        ("GET", "/v1/formats", None),
        ("POST", "/v1/decode?format=debezium", {"op": "t", "source": {}}),
        ("POST", "/v1/decode?format=debezium", {}),
        ("POST", "/v1/decode", order(tenant="default")),
        ("POST", "/v1/match?format=debezium", b"null"),
        ("POST", "/v1/subscriptions:try", {"subscription": {**BIG, "id": "big"}}),
        ("POST", "/v1/subscriptions:try", {"text": '{"cel": "("}'}),
        ("GET", "/v1/subscriptions/big/plan", None),
        ("GET", "/v1/subscriptions/big/history", None),
        ("GET", "/v1/subscriptions/nosuch/history", None),
        ("GET", "/v1/subscriptions/big/matches", None),
        ("PUT", "/v1/subscriptions/any", {"cel": "data.a != 1"}),
        ("GET", "/v1/filters/unguarded?collection=*", None),
        ("GET", "/v1/subscriptions/nosuch/matches", None),
        ("GET", "/v1/subscriptions?prefix=b&text=AMOUNT&unindexed=false", None),
        ("POST", "/v1/lint", {"id": "a", "cel": "1 > 2"}),
        ("GET", "/v1/dead-letters", None),
        ("GET", "/v1/dead-letters/1", None),
        ("GET", "/v1/dead-letters?stage=decode&sink=nosuch", None),
        ("GET", "/v1/dead-letters:counts", None),
        ("POST", "/v1/replays", {"stage": "decode"}),
        ("POST", "/v1/replays", {}),
        ("GET", "/v1/replays", None),
        ("GET", "/v1/replays/nosuch", None),
        ("POST", "/v1/sinks/out:test", None),
        ("POST", "/v1/gateways/own:test", None),
        ("GET", "/v1/gateways/billing/attempts", None),
        ("GET", "/v1/sources", None),
        ("GET", "/v1/sinks", None),
        ("GET", "/v1/status", None),
        ("GET", "/v1/metrics/history", None),
        ("GET", "/v1/filters", None),
        ("GET", "/v1/config", None),
        ("GET", "/v1/events", None),
        ("GET", "/v1/events/1", None),
        ("GET", "/v1/events/x", None),
        ("GET", "/healthz", None),
        ("GET", "/readyz", None),
        ("DELETE", "/v1/subscriptions/big", None),
    ]
    for method, path, body in asked:
        reply = api.ask(method, path, body, token="")
        found = find(path.partition("?")[0].encode())
        assert found is not None
        response = document["paths"][found.path][method.lower()]["responses"][str(reply.status)]
        if "content" not in response:
            assert reply.body == b""
            continue
        schema = response["content"][reply.headers["content-type"]]["schema"]
        whole = {**schema, "components": document["components"]}
        jsonschema.Draft202012Validator(whole).validate(reply.json)


def test_a_path_leads_to_one_route() -> None:
    for route in ROUTES:
        found = find(route.path.replace("{id}", "a%2Fb").replace("{number}", "7").replace("{name}", "hooks").encode())
        assert found is not None
        assert found.routes[route.method] is route
    for path in (b"/v1/subscriptions/", b"/v1/subscriptions/a/b", b"/v1/subscriptionsXexport", b"/healthz/", b"", b"/metricsx"):
        assert find(path) is None


def test_every_kind_of_problem_is_in_the_guide() -> None:
    guide = (Path(__file__).resolve().parents[2] / "docs" / "api.md").read_text()
    told = dict(re.findall(r"^\| `([a-z-]+)` \| (\d{3}) \|", guide, re.M))
    assert told == {kind: str(status) for kind, (status, _) in KINDS.items()}
    assert set(re.findall(r"`(?:GET|PUT|POST|DELETE) (/\S+?)`", guide)) == {route.path for route in ROUTES}


@pytest.mark.slow
@pytest.mark.later_on_the_reference
def test_nothing_that_the_document_allows_is_a_defect(api: Api) -> None:
    """schemathesis asks for what the document has, and for what it has not."""
    import hypothesis
    import schemathesis

    @schemathesis.serializer("application/x-ndjson")
    def lines(_: object, value: object) -> bytes:
        return json.dumps(value).encode() + b"\n"

    @schemathesis.serializer("application/yaml")
    def yaml(_: object, value: object) -> bytes:
        return str(value).encode(errors="surrogatepass")

    document = api.ask("GET", "/v1/openapi.json", token="").json
    for name in ("Subscription", "Written"):
        # It makes no texts of regexps that look ahead, as those of topics do.
        whole = document["components"]["schemas"][name]
        document["components"]["schemas"][name] = {part: whole[part] for part in ("type", "properties", "required")}
        whole["properties"]["pattern"] = {"type": ["object", "string"]}
        whole["properties"]["filters"] = {"type": "array", "items": {"type": "object"}}
    document["components"]["schemas"] = {
        name: part for name, part in document["components"]["schemas"].items() if not name.startswith("subscription-")
    }
    schema = schemathesis.openapi.from_dict(document)
    asked = 0
    streams: Counter[str] = Counter()
    endless = [route.path for route in ROUTES if route.produces == EVENTS]
    assert api.ask("PUT", "/v1/gateways/own", {}, token="").status == 201
    for result in schema.get_all_operations():
        operation = result.ok()

        @hypothesis.settings(max_examples=10, deadline=None, suppress_health_check=list(hypothesis.HealthCheck), database=None)
        @hypothesis.given(case=operation.as_strategy())
        def ask(case: schemathesis.Case) -> None:
            nonlocal asked
            asked += 1
            if (path := case.operation.path) in endless:
                if asked % 2 and "id" in case.path_parameters:
                    case.path_parameters["id"] = "own"
                given = case.as_transport_kwargs(base_url=f"http://127.0.0.1:{api.port}")
                streams[path] += begun(given, document["paths"][path][case.method.lower()]["responses"]) == 200
                return
            reply = case.call(base_url=f"http://127.0.0.1:{api.port}")
            assert reply.status_code < 500 or reply.status_code == 503, reply.text
            case.validate_response(
                reply,
                checks=[
                    schemathesis.checks.not_a_server_error,
                    schemathesis.checks.status_code_conformance,
                    schemathesis.checks.content_type_conformance,
                    schemathesis.checks.response_schema_conformance,
                ],
            )

        ask()
    assert asked > 6 * len(ROUTES)
    assert all(streams[path] > 3 for path in endless), streams


def begun(request: dict[str, Any], responses: dict[str, Any]) -> int:
    """Send a request for a stream, look at how it begins, and leave; return the status."""
    with requests.request(**request, stream=True, timeout=30) as reply:
        assert reply.status_code < 500 or reply.status_code == 503, reply.text
        documented = responses[str(reply.status_code)].get("content", {})
        assert reply.headers["content-type"] in dict.fromkeys(documented) or not documented
        if reply.status_code == 200:
            # A busy machine may take a while to answer; what follows an answer comes at once, or when there is a match.
            reply.raw.connection.sock.settimeout(0.1)
            with suppress(requests.exceptions.ConnectionError):  # nothing came for a while
                assert len(next(reply.iter_content(1000), b"x")) > 0
        return reply.status_code
