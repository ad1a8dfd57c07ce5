"""Tenants: a caller, by whatever name, gets nothing of another namespace, and changes nothing in it.

The requests are made of the service's own description, so that an endpoint which is added is tried too.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import fakeredis
import pytest
from support.asgi_client import AsgiCaller, AsgiResponse, EventReader, quote_segment
from support.footprint import contents_of
from support.rest_requests import Lure, LureRequest, lure_requests

from sharedmem import Grant, Hub
from sharedmem.faces.auth import Bearer, new_token
from sharedmem.faces.rest import RestApplication, create_app
from sharedmem.faces.token_registry import TokenRegistry
from sharedmem.testing import ManualClock, fake_hub

MARKER = "QUINCE-7781"
TEXT = f"The code of the north door is {MARKER}."
# 501 says what this server lacks.
FAILURES = {500, 502, 503, 504}
STREAMS = {"change.watch", "message.subscribe", "memory.subscribe"}


@pytest.fixture(autouse=True)
def _readers_leave_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server of fakeredis holds a reader that waits for as long as it said, also when it has left."""
    monkeypatch.setattr("sharedmem.data.change_feed._WAIT_S", 0.05)


@dataclass(frozen=True)
class Room:
    """A service with the data of one tenant, `acme`, in which every secret holds the marker."""

    server: fakeredis.FakeServer
    hub: Hub
    registry: TokenRegistry
    app: RestApplication
    ids: dict[str, str | int]
    """Of what `acme` has, by the field that takes it; `<part of a path> <field>` where it depends on that."""

    def lure(self, name: str, path: str) -> str | int:
        """What a thief who knows all names of `acme` would put into a field."""
        for part in path.split("/"):
            if (found := self.ids.get(f"{part} {name}")) is not None:
                return found
        return self.ids.get(name, "secret")

    async def caller(self, bearer: Bearer) -> AsgiCaller:
        """A client with a token."""
        return AsgiCaller(self.app, (await self.registry.create(bearer))[0])


@asynccontextmanager
async def planted() -> AsyncIterator[Room]:
    server = fakeredis.FakeServer()
    async with fake_hub(server=server) as hub:
        registry = TokenRegistry(hub)
        yield Room(server, hub, registry, create_app(hub, admission=registry), await secrets_in(hub))


async def secrets_in(hub: Hub) -> dict[str, str | int]:
    acme = hub.store("acme")
    await acme.write("secret", {"text": TEXT})
    await acme.append("secret-list", TEXT)
    await acme.hset("secret-hash", mapping={"colour": TEXT})
    await acme.sadd("secret-set", TEXT)
    await acme.incr("secret-count", 7781)
    await acme.episodes.append_event("desk", {"role": "user", "content": TEXT})
    await acme.decisions.save_plan("desk", "BTC", "BUY", 0.5, TEXT)
    (plan,) = await acme.decisions.get_recent_plans("desk", None, 1)
    claim = await acme.decisions.begin_execution("desk", plan.plan_hash)
    await acme.queue("mail").put({"text": TEXT}, id="job")
    await acme.queue("mail").put({"text": TEXT})
    await acme.rate_limit("index", limit=5, per=60).take()
    remembered = await acme.memory.add(TEXT, thread_id="main")
    answer_id = await acme.cache.put("what is the code of the north door?", TEXT)
    await acme.graph.add_episode(TEXT, group_id="circle", id="first")
    await acme.graph.add_relationship("Ada", "knows", MARKER, group_id="circle")
    task = await acme.synthesis.add_agent_memory(app_id="support", user_id="kim", messages=TEXT)
    while await acme.synthesis.work_once():
        pass
    (note,) = await acme.synthesis.query_memory(app_id="support", query=TEXT)
    return {
        "lists key": "secret-list",
        "hashes key": "secret-hash",
        "sets key": "secret-set",
        "counters key": "secret-count",
        "source": "secret-set",
        "field": "colour",
        "channel": "news",
        "session": "desk",
        "query": "the code of the north door",
        "prompt": "what is the code of the north door?",
        "symbol": "BTC",
        "action": "BUY",
        "plan_hash": plan.plan_hash,
        "fence": claim.fence,
        "token": 1,
        "wait": 0,
        "queue": "mail",
        "name": "index",
        "limit": 5,
        "n": 5,
        "queues id": "job",
        "items id": remembered.id,
        "answers id": answer_id,
        "memory_id": note.metadata.id,
        "task_id": task.task_id,
        "thread_id": "main",
        "group_id": "circle",
        "entity": "Ada",
        "a": "Ada",
        "b": "Ada",
        "episode_id": "first",
        "when": "2021-01-01T00:00:00Z",
        "app_id": "support",
        "user_id": "kim",
        "role": "user",
        "pattern": "*",
    }


def absolutely(lure: Lure) -> Lure:
    """The same names with the namespace before them."""

    def spelled(name: str, path: str) -> str | int:
        found = lure(name, path)
        # What is asked of a search is no name.
        return found if isinstance(found, int) or name in {"query", "prompt", "when"} else f"acme:shared:{found}"

    return spelled


async def asked(caller: AsgiCaller, request: LureRequest) -> AsgiResponse:
    """The whole answer; of a stream, how it begins."""
    body = b"" if request.operation == "namespace.import" else request.body
    if request.operation not in STREAMS:
        return await caller(request.method, request.path, body)
    async with caller.asking(request.method, request.path) as stream:
        return AsgiResponse(stream.status, stream.headers, await stream.chunks.get() or b"")


def all_requests(room: Room, lure: Lure, *, both: bool = True) -> list[LureRequest]:
    """For each endpoint one request with all fields, and `both` one with few; reading ones come first."""
    document = room.app.openapi()
    made = [one for whole in (False, True)[not both :] for one in lure_requests(document, lure, whole=whole)]
    return sorted(made, key=lambda one: one.violence)


# -- who shows no token of any use ----------------------------------------------------------------


async def test_no_endpoint_answers_without_a_token_of_use() -> None:
    clock = ManualClock()
    async with fake_hub(clock=clock) as hub:
        registry = TokenRegistry(hub, clock=clock)
        app = create_app(hub, admission=registry)
        expired, _ = await registry.create(Bearer.of("acme"), expires=clock.now() + timedelta(seconds=1))
        revoked, gone = await registry.create(Bearer.of("acme"))
        await AsgiCaller(app, revoked)("GET", "/store/keys")
        await registry.revoke(gone.id)
        clock.advance(2)
        unknown, _ = new_token(Bearer.of("acme"))
        callers = [AsgiCaller(app, token) for token in (None, "garbage", "smt_", expired, revoked, unknown)]
        made = list(lure_requests(app.openapi(), lambda *_: "x", whole=False))

        answers = [(request, await asked(caller, request)) for request in made for caller in callers]

    wrong = [(request.method, request.path, answer.status) for request, answer in answers if answer.status != 401]
    assert not wrong
    assert len(made) > 100
    for _, answer in answers:
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["www-authenticate"].startswith('Bearer realm="sharedmem"')
        assert answer.data["code"] == "unauthenticated"


# -- who has one, of another tenant ---------------------------------------------------------------

THIEVES = {
    "the namespace itself": Bearer.of("bolt"),
    "an actor with rights": Bearer.of("bolt", actor="bob", subscribe=["news"], grants=["chat:*", Grant(pattern="x:*")]),
}


@pytest.mark.parametrize("who", THIEVES)
async def test_no_endpoint_tells_or_changes_anything_of_another_tenant(who: str) -> None:
    async with planted() as room:
        thief, sleuth = await room.caller(THIEVES[who]), fakeredis.FakeRedis(server=room.server)
        before = of_acme(sleuth)
        found = []
        for request in (*all_requests(room, room.lure), *all_requests(room, absolutely(room.lure), both=False)):
            answer = await asked(thief, request)
            if answer.status in FAILURES or MARKER.encode() in answer.body + repr(answer.headers).encode():
                found.append((request, answer))
        after = of_acme(sleuth)

    assert not found
    assert after == before


def of_acme(server: Any) -> dict[bytes, object]:
    # Its own workers wait for tasks meanwhile: their place in the line of waiters begins anew now and then.
    found = contents_of(server).items()
    return {key: held for key, held in found if b"{acme}" in key and b":$queue.waiters:" not in key}


async def test_absolute_names_of_another_tenant_are_refused() -> None:
    async with planted() as room:
        thief = await room.caller(Bearer.of("bolt"))
        answers = [
            (request, await asked(thief, request))
            for request in all_requests(room, absolutely(room.lure))
            if request.path.startswith(("/store/", "/messages/", "/channels/", "/locks/", "/limits/", "/queues/"))
            and "acme" in request.path
        ]

    assert len(answers) > 60
    assert [(request.path, answer.status) for request, answer in answers if answer.status not in {400, 403}] == []


async def test_the_tenant_itself_is_told_by_the_same_requests() -> None:
    """Otherwise the tests above would show nothing."""
    async with planted() as room:
        owner = await room.caller(Bearer.of("acme"))
        told = {
            request.operation
            for request in all_requests(room, room.lure)
            if MARKER.encode() in (await asked(owner, request)).body
        }

    assert told >= {
        *("value.entry", "value.read", "value.read_many", "list.read", "hash.get_all", "hash.get", "set.members"),
        *("episode.events", "episode.search", "plan.list", "queue.peek", "queue.claim"),
        *("memory.list", "memory.get", "memory.search", "memory.recent", "cache.check"),
        *("graph.entity", "graph.episodes", "graph.draw", "synthesis.query_memory"),
    }


# -- what does not end, and what is kept ----------------------------------------------------------


async def test_streams_of_one_tenant_tell_nothing_of_another() -> None:
    async with planted() as room:
        bob = await room.caller(Bearer.of("bolt"))
        acme, bolt = room.hub.store("acme"), room.hub.store("bolt")
        async with (
            bob.asking("GET", "/changes?pattern=*") as changes,
            bob.asking("GET", "/changes?since=0") as past,
            bob.asking("GET", f"/channels/{quote_segment('*')}/messages") as messages,
        ):
            readers = [EventReader(stream) for stream in (changes, past, messages)]
            for reader in readers:
                await reader.next()
            await acme.write(MARKER, MARKER)
            await acme.publish("news", MARKER)
            await bolt.write("end", "end")
            await bolt.publish("news", "end")
            seen = [json.dumps((await reader.next() or ("", ""))[1]) for reader in readers]

    assert all("bolt:shared:" in one for one in seen)
    assert not [one for one in seen if "acme" in one or MARKER in one]


async def test_memories_of_another_tenant_are_no_events() -> None:
    async with planted() as room:
        bob = await room.caller(Bearer.of("bolt"))
        acme, bolt = room.hub.store("acme"), room.hub.store("bolt")
        async with bob.asking("GET", f"/memory/events?query={quote_segment(MARKER)}&threshold=0") as asked_for:
            events = EventReader(asked_for)
            await events.next()
            await acme.memory.add(MARKER)
            own = await bolt.memory.add("the end")
            event = await events.next()

    assert event is not None
    assert event.data["id"] == own.id


async def test_an_idempotency_key_of_one_tenant_is_another_one_for_the_next() -> None:
    async with planted() as room:
        ada, bob = await room.caller(Bearer.of("acme")), await room.caller(Bearer.of("bolt"))
        headers = {"idempotency-key": "the-same"}
        asked_for = {"prompt": "what is the code of the north door?"}

        first = await ada("POST", "/cache/check", asked_for, headers=headers)
        again = await bob("POST", "/cache/check", asked_for, headers=headers)
        counts = [
            (await caller("POST", "/store/counters/n/increment", {"by": by}, headers=headers)).data
            for caller, by in ((ada, 5), (ada, 5), (bob, 5), (bob, 5))
        ]

    assert MARKER.encode() in first.body
    assert MARKER.encode() not in again.body
    assert counts == [{"value": 5}] * 4


async def test_tokens_themselves_are_out_of_reach() -> None:
    async with planted() as room:
        bob = await room.caller(Bearer.of("bolt"))
        digests = [entry.entry.sha256 for entry in await room.registry.listed()]
        answers = [
            await bob("GET", f"/store/{kind}/{quote_segment(key)}")
            for kind in ("values", "hashes", "lists", "sets")
            for key in ("$tokens", "bolt:$tokens", "sm:$tokens", "bolt}:$tokens", "*")
        ]

    assert digests
    assert not [answer for answer in answers if any(digest.encode() in answer.body for digest in digests)]
