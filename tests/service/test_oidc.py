"""Tokens of an identity provider with a set of keys of our own."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from streamer import ConfigError
from streamer.config.schema.api import ApiOidc
from streamer.service.api import oidc
from streamer.service.api.oidc import Provider
from streamer.service.api.problems import Problem
from tests.service.api import running

KEYS = {"rsa": rsa.generate_private_key(65_537, 2048), "ec": ec.generate_private_key(ec.SECP256R1())}
OTHER = rsa.generate_private_key(65_537, 2048)


class Idp:
    """A provider that publishes keys, and counts the requests for them.

    Attributes:
        published: the names of the keys in its set.
    """

    def __init__(self) -> None:
        self.published, self.requests, self.is_down = ["rsa"], 0, False
        idp = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                is_set = self.path == "/keys"
                idp.requests += is_set
                body = {"keys": [idp.public(name) for name in idp.published]} if is_set else idp.discovery()
                self.send_response(503 if idp.is_down else 200)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def discovery(self) -> dict[str, str]:
        return {"issuer": self.issuer, "jwks_uri": f"{self.issuer}/keys"}

    @staticmethod
    def public(name: str) -> Any:
        algorithm: Any = RSAAlgorithm if name == "rsa" else ECAlgorithm
        return json.loads(algorithm.to_jwk(KEYS[name].public_key())) | {"kid": name, "use": "sig"}

    def token(self, key: str = "rsa", signer: Any = None, algorithm: str = "", **claims: Any) -> str:
        members = {"iss": self.issuer, "aud": "streamer", "sub": "jane", "exp": time.time() + 60, "tenant": "acme"}
        members |= {"scope": "openid read write"} | claims
        members = {name: value for name, value in members.items() if value is not None}
        algorithm = algorithm or ("ES256" if key == "ec" else "RS256")
        return jwt.encode(members, signer or KEYS.get(key, OTHER), algorithm, headers={"kid": key})


@pytest.fixture
def idp() -> Iterator[Idp]:
    idp = Idp()
    yield idp
    idp.server.shutdown()
    idp.server.server_close()


def section(idp: Idp, **members: Any) -> ApiOidc:
    return ApiOidc(issuer=idp.issuer, audience="streamer", **members)


def test_a_token_has_the_rights_of_its_claims(idp: Idp) -> None:
    provider = Provider(section(idp))
    found = provider.find(idp.token())
    assert found is not None
    assert (found.id, found.tenant, found.scopes, found.is_over()) == ("oidc:jane", "acme", ("read", "write"), False)
    admin = provider.find(idp.token(scope=["admin"], tenant=None))
    assert admin is not None
    assert (admin.tenant, admin.scopes) == (None, ("admin",))
    lasting = provider.find(idp.token(exp=10**15))
    assert lasting is not None
    assert not lasting.is_over()
    renamed = Provider(section(idp, tenant="org", scopes="roles", prefix="streamer:"))
    found = renamed.find(idp.token(org="globex", roles=["streamer:consume", "read"]))
    assert found is not None
    assert (found.tenant, found.scopes) == ("globex", ("consume",))


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda idp: idp.token(signer=OTHER), id="another key"),
        pytest.param(lambda idp: idp.token(exp=time.time() - 60), id="expired"),
        pytest.param(lambda idp: idp.token(exp=None), id="without expiry"),
        pytest.param(lambda idp: idp.token(nbf=time.time() + 90), id="not yet valid"),
        pytest.param(lambda idp: idp.token(aud="another"), id="audience"),
        pytest.param(lambda idp: idp.token(iss="http://127.0.0.1"), id="issuer"),
        pytest.param(lambda idp: idp.token(sub=None), id="without subject"),
        pytest.param(lambda idp: idp.token(tenant=None), id="without tenant"),
        pytest.param(lambda idp: idp.token(tenant="*"), id="all tenants"),
        pytest.param(lambda idp: idp.token(scope="openid"), id="without scope"),
        pytest.param(lambda idp: idp.token(scope=7), id="scope of another type"),
        pytest.param(lambda idp: idp.token(signer="x" * 32, algorithm="HS256"), id="shared secret"),
        pytest.param(lambda idp: jwt.encode({"sub": "a"}, None, "none", headers={"kid": "rsa"}), id="unsigned"),
        pytest.param(lambda idp: idp.token()[:-4] + "AAAA", id="signature"),
        pytest.param(lambda idp: "a.b.c", id="no token"),
        pytest.param(lambda idp: f"{base64.urlsafe_b64encode(b'[' * 10_000).decode()}.b.c", id="deep"),
        pytest.param(lambda idp: "..", id="empty"),
    ],
)
def test_any_other_token_is_refused(idp: Idp, make: Callable[[Idp], str], caplog: pytest.LogCaptureFixture) -> None:
    text = make(idp)
    assert Provider(section(idp)).find(text) is None
    assert text not in caplog.text


def test_a_new_key_is_fetched_once_it_is_used_and_unknown_keys_do_not_flood_the_provider(
    idp: Idp, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = Provider(section(idp))
    assert provider.find(idp.token()) is not None
    assert provider.find(idp.token("ec")) is None
    idp.published.append("ec")
    for _ in range(20):
        provider.find(idp.token("unknown"))
    assert idp.requests == 1
    monkeypatch.setattr(oidc, "_AGAIN", 0.0)
    assert provider.find(idp.token("ec")) is not None
    assert idp.requests == 2
    # Its keys are known, so it may be down, also when they are due to be fetched again.
    idp.is_down = True
    monkeypatch.setattr(oidc, "_LIFESPAN", 0.0)
    assert provider.find(idp.token()) is not None
    assert idp.requests == 3
    idp.is_down, idp.published = False, ["ec"]
    assert provider.find(idp.token()) is None
    idp.is_down = True
    with pytest.raises(Problem, match="cannot be fetched"):
        Provider(section(idp)).find(idp.token())


def test_a_provider_of_another_issuer_is_refused(idp: Idp) -> None:
    provider = Provider(section(idp))
    idp.discovery = lambda: {"issuer": "http://other", "jwks_uri": f"{idp.issuer}/keys"}  # type: ignore[method-assign]
    with pytest.raises(Problem, match="of the issuer http://other"):
        provider.check()


def test_the_api_accepts_them_next_to_those_of_the_file_or_alone(tmp_path: Path, idp: Idp, backend: str) -> None:
    members = {"issuer": idp.issuer, "audience": "streamer"}
    with running(tmp_path, api={"oidc": members}) as api:
        assert api.ask("PUT", "/v1/subscriptions/a", {"topic": "a"}, token=idp.token()).status == 201
        assert api.ask("GET", "/v1/subscriptions/a").status == 200
        shown = api.ask("GET", "/v1/token", token=idp.token(scope="read")).json
        assert (shown["id"], shown["tenant"], shown["scopes"]) == ("oidc:jane", "acme", ["read"])
        assert api.ask("DELETE", "/v1/subscriptions/a", token=idp.token(scope="read")).kind == "not-allowed"
        assert api.ask("GET", "/v1/subscriptions/a", token=idp.token(tenant="globex")).kind == "unknown"
        assert api.ask("GET", "/v1/subscriptions/a", token=idp.token(exp=1)).kind == "no-token"
        history = api.ask("GET", "/v1/subscriptions/a/history").json["items"]
        assert [entry["who"] for entry in history] == ["oidc:jane"]
    with running(tmp_path, api={"tokens": {"file": None}, "oidc": members}) as api:
        assert api.ask("GET", "/v1/subscriptions/a", token=idp.token()).status == 200
        assert api.ask("GET", "/v1/subscriptions/a").kind == "no-token"
        idp.is_down = True
        assert api.ask("GET", "/v1/subscriptions/a", token=idp.token()).status == 200
    with running(tmp_path, api={"oidc": members}) as api:
        refused = api.ask("GET", "/v1/subscriptions/a", token=idp.token())
        assert (refused.kind, refused.headers["retry-after"]) == ("unavailable", "5")


@pytest.mark.parametrize("issuer", ["http://login.example.com", "ftp://login.example.com", "login.example.com", "https://u:p@h"])
def test_an_issuer_is_reached_by_tls(issuer: str) -> None:
    from streamer import Config

    with pytest.raises((ConfigError, ValueError), match=r"api\.oidc\.issuer"):
        Config.from_dict({"api": {"oidc": {"issuer": issuer, "audience": "a"}}})
