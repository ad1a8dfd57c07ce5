"""Tokens of another issuer: only what it signed for this service is let in, with the rights of its scopes."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
import yaml
from support.mcp_service import called, mcp_service, refused
from support.rest_server import client_of_app
from support.token_issuer import AUDIENCE, ISSUER, FakeIssuer

from sharedmem.errors import ConfigError, UnavailableError
from sharedmem.faces.auth import MissingScopeError, TokenRefusedError
from sharedmem.faces.rest import create_app
from sharedmem.faces.token_registry import IssuerTokens, TokenIssuer, admission_of
from sharedmem.testing import ManualClock, fake_hub

HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
SCOPES = {
    "tides:read": {"namespace": "tides", "read_only": True},
    "tides:write": {"namespace": "tides", "grants": ["tides:ops:*"], "subscribe": ["news"]},
    "other:write": {"namespace": "other"},
    "tenant": {},
}


@pytest.fixture(scope="module")
def served() -> Iterator[FakeIssuer]:
    with FakeIssuer("k1", "k2").serving() as issuer:
        yield issuer


@pytest.fixture
def issuer(served: FakeIssuer) -> FakeIssuer:
    served.public, served.is_down, served.asked = ["k1"], False, 0
    return served


def terms(**changes: Any) -> dict[str, Any]:
    jwks = "https://login.example.org/keys"
    usual = {"issuer": ISSUER, "audience": AUDIENCE, "jwks": jwks, "namespace_claim": "tenant", "scopes": SCOPES}
    return usual | changes


def tokens_of(issuer: FakeIssuer, *, clock: ManualClock | None = None, **changes: Any) -> IssuerTokens:
    return IssuerTokens(TokenIssuer.model_validate(terms(jwks=issuer.url, **changes)), clock=clock)


async def test_a_scope_gives_its_rights_to_the_actor_of_the_token(issuer: FakeIssuer) -> None:
    bearer = await tokens_of(issuer).admit(f"Bearer {issuer.token()}")
    assert (bearer.namespace, bearer.actor, bearer.read_only) == ("tides", "ada", False)
    assert [grant.pattern for grant in bearer.grants] == ["tides:ops:*"]
    assert bearer.subscribe == ("news",)


@pytest.mark.parametrize(
    ("claims", "namespace", "read_only"),
    [
        ({"scope": "tides:read openid"}, "tides", True),
        ({"scope": "tides:read tides:write"}, "tides", False),
        ({"scope": None, "scp": ["tides:read"]}, "tides", True),
        ({"scope": "tenant", "tenant": "acme"}, "acme", False),
        ({"aud": ["https://else.example.org", AUDIENCE]}, "tides", False),
    ],
)
async def test_claims_become_namespace_and_rights(
    issuer: FakeIssuer, claims: dict[str, Any], namespace: str, read_only: bool
) -> None:
    bearer = await tokens_of(issuer).admit(f"Bearer {issuer.token(**claims)}")
    assert (bearer.namespace, bearer.read_only) == (namespace, read_only)


async def test_clocks_may_differ_by_some_seconds(issuer: FakeIssuer) -> None:
    bearer = await tokens_of(issuer).admit(f"Bearer {issuer.token(exp=int(time.time()) - 5)}")
    assert bearer.namespace == "tides"


@pytest.mark.parametrize(
    ("claims", "says"),
    [
        ({"iss": "https://evil.example.org/"}, "not known here"),
        ({"aud": "https://else.example.org"}, "not for https://memory.example.org/mcp"),
        ({"aud": None}, "aud"),
        ({"exp": 1_700_000_000}, "expired"),
        ({"exp": None}, "exp"),
        ({"nbf": 4_000_000_000}, "not valid yet"),
        ({"sub": None}, "sub"),
        ({"sub": "auth0|* x"}, "claim sub"),
        ({"scope": "tenant"}, "claim tenant"),
        ({"scope": "tenant", "tenant": "a:b"}, "claim tenant"),
        ({"scope": "tides:write other:write"}, "several namespaces"),
    ],
)
async def test_a_token_that_says_something_else_is_refused(
    issuer: FakeIssuer, claims: dict[str, Any], says: str
) -> None:
    with pytest.raises(TokenRefusedError, match=says):
        await tokens_of(issuer).admit(f"Bearer {issuer.token(**claims)}")


async def test_only_signatures_by_a_key_of_the_issuer_count(issuer: FakeIssuer) -> None:
    tokens, claims = tokens_of(issuer), issuer.claims()
    stranger = FakeIssuer("k1")
    [public] = json.loads(issuer.document())["keys"]
    secret = base64.urlsafe_b64decode(public["x"] + "==")
    good = issuer.token()
    head, body, signature = good.split(".")
    changed = base64.urlsafe_b64encode(json.dumps(claims | {"sub": "eve"}).encode()).rstrip(b"=").decode()
    for forged in (
        jwt.encode(claims, "", "none", {"kid": "k1"}),
        jwt.encode(claims, secret, "HS256", {"kid": "k1"}),
        stranger.token(),
        issuer.token("k2"),
        f"{head}.{changed}.{signature}",
        f"{head}.{body}.",
        f"{base64.urlsafe_b64encode(b'[' * 5000).decode()}.{body}.{signature}",
        f"{head}.{base64.urlsafe_b64encode(b'[' * 5000).decode()}.{signature}",
        *("smt_unknown", "a.b.c", ".", "\udcff.a.b"),
    ):
        with pytest.raises(TokenRefusedError):
            await tokens.admit(f"Bearer {forged}")
    assert (await tokens.admit(f"Bearer {good}")).actor == "ada"


async def test_a_token_without_a_known_scope_learns_which_would_do(issuer: FakeIssuer) -> None:
    with pytest.raises(MissingScopeError) as missing:
        await tokens_of(issuer).admit(f"Bearer {issuer.token(scope='email')}")
    assert 'error="insufficient_scope"' in missing.value.challenge
    assert "tides:read tides:write" in missing.value.challenge


async def test_clocks_may_differ_by_the_leeway_and_no_more(issuer: FakeIssuer) -> None:
    late = issuer.token(exp=int(time.time()) - 30)
    assert (await tokens_of(issuer, leeway_s=60).admit(f"Bearer {late}")).actor == "ada"
    with pytest.raises(TokenRefusedError, match="expired"):
        await tokens_of(issuer, leeway_s=5).admit(f"Bearer {late}")


async def test_keys_may_be_exchanged(issuer: FakeIssuer) -> None:
    clock = ManualClock()
    tokens = tokens_of(issuer, clock=clock)
    await tokens.admit(f"Bearer {issuer.token('k1')}")
    issuer.public = ["k1", "k2"]
    with pytest.raises(TokenRefusedError, match="not one of its issuer"):  # unknown ids do not ask again and again
        await tokens.admit(f"Bearer {issuer.token('k2')}")
    assert issuer.asked == 1
    clock.advance(11)
    await tokens.admit(f"Bearer {issuer.token('k2')}")
    issuer.public = ["k2"]
    clock.advance(301)
    with pytest.raises(TokenRefusedError, match="not one of its issuer"):
        await tokens.admit(f"Bearer {issuer.token('k1')}")
    assert issuer.asked == 3


async def test_an_issuer_that_is_away_stops_no_caller_whose_key_is_known(issuer: FakeIssuer) -> None:
    clock = ManualClock()
    tokens = tokens_of(issuer, clock=clock)
    issuer.is_down = True
    with pytest.raises(UnavailableError):
        await tokens.admit(f"Bearer {issuer.token()}")
    issuer.is_down = False
    clock.advance(11)
    await tokens.admit(f"Bearer {issuer.token()}")
    issuer.is_down = True
    clock.advance(1000)
    assert (await tokens.admit(f"Bearer {issuer.token()}")).actor == "ada"


async def test_over_mcp_the_metadata_names_the_issuer_and_tenants_stay_apart(issuer: FakeIssuer) -> None:
    ada, eve = issuer.token(), issuer.token(sub="eve", scope="other:write")
    reader = issuer.token(sub="bob", scope="tides:read")
    async with mcp_service(admission=tokens_of(issuer)) as service:
        async with service.http() as http:
            told = (await http.get("/.well-known/oauth-protected-resource/mcp")).json()
            assert told["authorization_servers"] == [ISSUER]
            assert told["scopes_supported"] == sorted(SCOPES)
            stranger = {"authorization": f"Bearer {issuer.token(aud='https://else.example.org')}"}
            assert (await http.post("/mcp", json=PING, headers=HEADERS | stranger)).status_code == 401
            scopeless = {"authorization": f"Bearer {issuer.token(scope='email')}"}
            answer = await http.post("/mcp", json=PING, headers=HEADERS | scopeless)
            assert answer.status_code == 403
            assert "insufficient_scope" in answer.headers["www-authenticate"]
            assert "resource_metadata" in answer.headers["www-authenticate"]
        async with service.client(authorization=f"Bearer {ada}") as client:
            stored = await called(client, "remember", content="The secret is albatross.")
            await called(client, "write_value", key="plan", value="secret albatross")
        async with service.client(authorization=f"Bearer {eve}") as client:
            assert "albatross" not in str(await called(client, "search_memory", query="secret"))
            assert "albatross" not in await refused(client, "get_memory", id=stored["id"])
            assert "albatross" not in await refused(client, "read_value", key="tides:shared:plan")
        async with service.client(authorization=f"Bearer {reader}") as client:
            assert (await called(client, "read_value", key="plan"))["value"] == "secret albatross"
            assert "may only read" in await refused(client, "write_value", key="plan", value="mine")


async def test_rest_takes_the_same_tokens(issuer: FakeIssuer) -> None:
    async with mcp_service(admission=tokens_of(issuer)) as service:
        app = create_app(service.hub, admission=tokens_of(issuer))
        async with client_of_app(app, issuer.token()) as http:
            assert (await http.put("/api/v1/store/values/tides:shared:a", json={"value": 1})).status_code < 300
        async with client_of_app(app, issuer.token(scope="email")) as http:
            answer = await http.get("/api/v1/store/values/tides:shared:a")
            assert answer.status_code == 403
            assert "insufficient_scope" in answer.headers["www-authenticate"]


async def test_a_file_describes_an_issuer_beside_the_registry(issuer: FakeIssuer, tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_bytes(issuer.document())
    described = tmp_path / "issuer.yaml"
    described.write_text(yaml.safe_dump(terms(jwks="keys.json", rate="100/s")))
    async with fake_hub() as hub:
        admission = admission_of(hub, ["registry", str(described)])
        assert admission is not None
        assert (await admission.admit(f"Bearer {issuer.token()}")).actor == "ada"
        with pytest.raises(TokenRefusedError, match="expired"):
            await admission.admit(f"Bearer {issuer.token(exp=1_700_000_000)}")
    assert issuer.asked == 0


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"jwks": "nowhere.json"}, "it has no keys"),
        ({"jwks": "http://login.example.org/keys"}, "https"),
        ({"jwks": "ftp://login.example.org/keys"}, "https"),
        ({"algorithms": ["HS256"]}, "algorithms"),
        ({"algorithms": ["none"]}, "algorithms"),
        ({"namespace_claim": None}, "has no namespace"),
        ({"scopes": {}}, "scopes"),
        ({"scopes": {"a": {"namespace": "a b"}}}, "namespace"),
        ({"scopes": {"a": {"namespace": "a", "writes": True}}}, "writes"),
        ({"audience": []}, "audience"),
        ({"rate": "often"}, "rate"),
        ({"leeway_s": 86_400}, "leeway_s"),
    ],
)
def test_a_wrong_description_is_refused_before_anybody_calls(
    tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    described = tmp_path / "issuer.yaml"
    described.write_text(yaml.safe_dump(terms(**changes)))
    with pytest.raises(ConfigError, match=says):
        IssuerTokens.read(described)
