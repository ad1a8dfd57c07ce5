"""Tokens over REST: who may administrate them, that none is stronger than its maker, and that secrets stay secret."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.asgi_client import AsgiCaller

from sharedmem import Hub, Settings
from sharedmem.faces.auth import Bearer, Rate, TokenFile, new_token
from sharedmem.faces.rest import RestApplication, create_app
from sharedmem.faces.token_registry import TokenRegistry
from sharedmem.redis.scope import covers
from sharedmem.testing import fake_hub

DESK = "desk"
EVERYTHING = [f"{DESK}:*"]
ADMINISTRATOR = Bearer.of(DESK, actor="anna", grants=EVERYTHING, administrator=True)
TOMORROW = datetime.now(UTC) + timedelta(days=1)


@pytest.fixture
async def hub() -> AsyncIterator[Hub]:
    async with fake_hub(settings=Settings(access="namespaced", embedder="hashing")) as hub:
        yield hub


@pytest.fixture
def registry(hub: Hub) -> TokenRegistry:
    return TokenRegistry(hub)


@pytest.fixture
def app(hub: Hub, registry: TokenRegistry) -> RestApplication:
    return create_app(hub, admission=registry)


async def caller_of(app: RestApplication, registry: TokenRegistry, bearer: Bearer, **limits: Any) -> AsgiCaller:
    token, _ = await registry.create(bearer, **limits)
    return AsgiCaller(app, token)


@pytest.fixture
async def anna(app: RestApplication, registry: TokenRegistry) -> AsgiCaller:
    """May do everything in the namespace, and administrate its tokens."""
    return await caller_of(app, registry, ADMINISTRATOR)


async def test_a_token_that_was_made_lets_its_actor_in_until_it_is_revoked(
    app: RestApplication, anna: AsgiCaller
) -> None:
    made = await anna("POST", "/tokens", {"actor": "bob", "label": "the harbour bot", "rate": "100/s"})
    bob = AsgiCaller(app, made.data["token"])
    (own, listed) = (await anna("GET", "/tokens")).data["items"]

    assert (made.status, made.headers["cache-control"]) == (201, "no-store")
    assert (await bob("GET", "/caller")).data["actor"] == "bob"
    assert (own["is_own"], listed["is_own"]) == (True, False)
    assert (listed["id"], listed["label"], listed["rate"]) == (made.data["info"]["id"], "the harbour bot", "100/s")
    assert listed["made_by"] == own["id"]
    assert listed["writable"] == ["desk:bob:*", "desk:shared:*", "global:*"]

    assert (await anna("DELETE", f"/tokens/{listed['id']}")).data == {"ids": [listed["id"]], "within_s": 2.0}
    assert (await bob("GET", "/caller")).status == 401


async def test_secrets_are_neither_listed_nor_logged_nor_kept(
    hub: Hub, anna: AsgiCaller, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    made = await anna("POST", "/tokens", {"actor": "bob"}, headers={"idempotency-key": "once"})
    token = made.data["token"]
    listed = await anna("GET", "/tokens")

    assert token.encode() not in listed.body
    assert b"sha256" not in listed.body
    assert token not in caplog.text
    assert f"made token {made.data['info']['id']}" in caplog.text
    # The answer is not kept for the idempotency key: it would hold the secret.
    again = await anna("POST", "/tokens", {"actor": "bob"}, headers={"idempotency-key": "once"})
    assert again.data["token"] != token


@pytest.mark.parametrize(
    ("wanted", "excess"),
    [
        ({"actor": None}, "speak for the namespace itself"),
        ({"actor": "bob", "operator": True}, "see the health and the metrics of all namespaces"),
        ({"actor": "bob", "subscribe": ["others"]}, "read others:*"),
        ({"actor": "bob", "grants": ["others:shared:*"]}, "read others:shared:*"),
        ({"actor": "bob", "read_only": True, "grants": ["others:*"]}, "read others:*"),
    ],
)
async def test_no_token_makes_one_that_may_do_more(anna: AsgiCaller, wanted: dict[str, Any], excess: str) -> None:
    refused = await anna("POST", "/tokens", wanted)

    assert refused.status == 403
    assert f"this token could {excess}, and yours cannot" in refused.data["detail"]
    assert len((await anna("GET", "/tokens")).data["items"]) == 1


async def test_no_token_makes_an_administrator(anna: AsgiCaller) -> None:
    refused = await anna("POST", "/tokens", {"actor": "bob", "administrator": True})

    assert (refused.status, refused.data["errors"][0]["field"]) == (400, "administrator")


async def test_an_administrator_of_few_rights_gives_no_more_of_them(
    app: RestApplication, registry: TokenRegistry
) -> None:
    ada = await caller_of(app, registry, Bearer.of(DESK, actor="ada", grants=["desk:team*"], administrator=True))

    assert (await ada("POST", "/tokens", {"actor": "ada", "grants": ["desk:team-1:*"]})).status == 201
    assert (await ada("POST", "/tokens", {"actor": "team-2"})).status == 201
    assert (await ada("POST", "/tokens", {"actor": "bob", "read_only": True})).status == 201
    assert "write desk:bob:*" in (await ada("POST", "/tokens", {"actor": "bob"})).data["detail"]
    assert "write desk:te*" in (await ada("POST", "/tokens", {"actor": "ada", "grants": ["desk:te*"]})).data["detail"]


async def test_no_token_makes_one_that_lasts_longer_or_calls_more_often(
    app: RestApplication, registry: TokenRegistry
) -> None:
    bound = await caller_of(app, registry, ADMINISTRATOR, expires=TOMORROW, rate=Rate.of("10/s"))
    later = (TOMORROW + timedelta(seconds=1)).isoformat()
    good = {"actor": "bob", "rate": "600/min", "expires": TOMORROW.isoformat()}

    for worse in ({"expires": None}, {"expires": later}, {"rate": None}, {"rate": "11/s"}):
        assert (await bound("POST", "/tokens", good | worse)).status == 403
    # As many a minute, but all of them at once.
    assert (await bound("POST", "/tokens", good)).status == 403
    assert (await bound("POST", "/tokens", good | {"rate": "10/s"})).status == 201


@pytest.mark.parametrize(
    "bearer",
    [
        Bearer.of(DESK),
        Bearer.of(DESK, actor="bob", grants=EVERYTHING, operator=True),
        Bearer.of("others", actor="eve", administrator=True),
        ADMINISTRATOR.model_copy(update={"read_only": True}),
    ],
)
async def test_only_administrators_of_the_namespace_reach_its_tokens(
    app: RestApplication, registry: TokenRegistry, anna: AsgiCaller, bearer: Bearer
) -> None:
    stranger = await caller_of(app, registry, bearer)
    (own,) = [one["id"] for one in (await anna("GET", "/tokens")).data["items"] if one["is_own"]]

    assert (await stranger("DELETE", f"/tokens/{own}")).status in {403, 404}
    # One who administrates another namespace may make tokens there.
    assert (await stranger("POST", "/tokens", {"actor": "eve"})).status == (201 if bearer.actor == "eve" else 403)
    seen = await stranger("GET", "/tokens")
    assert seen.status == (200 if bearer.administrator else 403)
    assert bearer.namespace == DESK or own.encode() not in seen.body


async def test_a_service_without_tokens_has_no_administrator(hub: Hub) -> None:
    anybody = AsgiCaller(create_app(hub, admission="open_to_all"))

    refused = await anybody("POST", "/tokens", {"actor": "bob"})

    assert refused.status == 403
    assert "sharedmem token create --administrator" in refused.data["detail"]


async def test_stronger_tokens_are_revoked_by_the_operator_alone(anna: AsgiCaller, registry: TokenRegistry) -> None:
    for bearer in (Bearer.of(DESK), ADMINISTRATOR, Bearer.of(DESK, actor="bob", subscribe=["others"])):
        _, entry = await registry.create(bearer)
        refused = await anna("DELETE", f"/tokens/{entry.id}")
        assert refused.status == 403
        assert f"sharedmem token revoke {entry.id}" in refused.data["detail"]

    assert [one["revocable"] for one in (await anna("GET", "/tokens")).data["items"]] == [True, False, False, False]


async def test_a_token_is_revoked_with_those_that_it_made(
    app: RestApplication, anna: AsgiCaller, registry: TokenRegistry
) -> None:
    made = [(await anna("POST", "/tokens", {"actor": name})).data["info"]["id"] for name in ("bob", "cleo")]
    own = (await anna("GET", "/tokens")).data["items"][0]["id"]

    gone = await anna("DELETE", f"/tokens/{own}?made=true")

    assert gone.data["ids"] == [own, *made]
    assert await registry.listed() == []
    assert (await anna("GET", "/tokens")).status == 401


async def test_a_service_that_does_not_ask_the_registry_says_so(hub: Hub) -> None:
    token, entry = new_token(ADMINISTRATOR)
    anna = AsgiCaller(create_app(hub, admission=TokenFile([entry])), token)

    assert (await anna("GET", "/tokens")).data == {"items": [], "admitted": False}


async def test_rights_are_shown_as_rules_of_a_redis_user(anna: AsgiCaller) -> None:
    bob = (await anna("POST", "/tokens", {"actor": "bob"})).data["info"]["id"]
    rita = (await anna("POST", "/tokens", {"actor": "rita", "read_only": True})).data["info"]["id"]

    command = (await anna("GET", f"/tokens/{bob}/acl")).data["command"]
    assert command.startswith("ACL SETUSER bob ")
    assert ">PASSWORD" in command
    # Rules cannot say that a user only reads all of this.
    assert (await anna("GET", f"/tokens/{rita}/acl")).status == 501


@pytest.mark.parametrize(
    ("pattern", "other", "is_covered"),
    [
        ("desk:*", "desk:bob:*", True),
        ("desk:bob:*", "desk:*", False),
        ("desk:team*", "desk:team-1:*", True),
        ("desk:a?c", "desk:abc", True),
        ("desk:a?c", "desk:a*c", False),
        ("desk:*", "desk:?", True),
        ("desk:??", "desk:é", True),
        ("desk:?", "desk:é", False),
        ("desk:*x", "desk:*", False),
    ],
)
def test_a_pattern_covers_another_or_does_not(pattern: str, other: str, is_covered: bool) -> None:  # a column
    assert covers(pattern, other) is is_covered
