"""The durable tier of a namespace over REST: its lag, what it rejected, verification and restoring with progress."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import fakeredis
import pytest
from support.asgi_client import AsgiCaller, EventReader, StreamEvent
from support.contexts import client_of
from support.waiting import wait_until

from sharedmem import Hub, Settings
from sharedmem.faces.auth import Bearer, TokenFile, new_token
from sharedmem.faces.rest import create_app
from sharedmem.testing.fakes import connect_to_fake

TEAM = "team"


@pytest.fixture
async def hub() -> AsyncIterator[Hub]:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="sm") as folder:
        settings = Settings(data_dir=Path(folder), durable_url=f"sqlite://{folder}/tier.db", embedder="hashing")
        async with Hub(settings=settings, connect=connect_to_fake(fakeredis.FakeServer())) as hub:
            yield hub


def caller_of(hub: Hub, bearer: Bearer) -> AsgiCaller:
    token, entry = new_token(bearer)
    return AsgiCaller(create_app(hub, admission=TokenFile([entry])), token)


@pytest.fixture
def lead(hub: Hub) -> AsgiCaller:
    """Speaks for the namespace itself."""
    return caller_of(hub, Bearer.of(TEAM))


async def wait_until_one_is_rejected(hub: Hub) -> None:
    async def is_rejected() -> bool:
        return bool(await hub.durable.dead_letters(TEAM))

    await wait_until(is_rejected, description="it is a dead letter")


async def reject_one(hub: Hub) -> None:
    """Another client leaves something in the outbox that the tier cannot take."""
    await hub.store(TEAM).write("note", 1, kind="knowledge")
    await client_of(hub).call("XADD", f"sm:{{{TEAM}}}:$outbox", "*", "junk", "?")
    await wait_until_one_is_rejected(hub)


async def events_of(caller: AsgiCaller, path: str) -> list[StreamEvent]:
    async with caller.asking("POST", path) as asked:
        assert asked.status == 200
        reader, found = EventReader(asked), []
        while (event := await reader.next()) is not None:
            found.append(event)
        return found


async def test_an_actor_sees_how_far_the_tier_is_behind_and_no_address(hub: Hub) -> None:
    await hub.store(TEAM).write("note", 1, kind="knowledge")
    await hub.durable.drain(TEAM)
    await hub.store("others").write("secret", 1, kind="knowledge")

    state = (await caller_of(hub, Bearer.of(TEAM, actor="ada"))("GET", "/durable")).data

    assert state == {
        "reachable": True,
        "why": "",
        "lag": {"namespace": TEAM, "waiting": 0, "oldest": 0.0, "delivered": 0, "dead": 0, "recovery": "complete"},
    }


async def test_dead_letters_are_replayed_and_given_up(hub: Hub, lead: AsgiCaller) -> None:
    await reject_one(hub)

    (letter,) = (await lead("GET", "/durable/dead-letters")).data["items"]
    assert (letter["key"], letter["name"]) == ("", "junk")
    assert (await lead("POST", "/durable/dead-letters/replay")).data == {"replayed": 1}

    await wait_until_one_is_rejected(hub)
    (again,) = await hub.durable.dead_letters(TEAM)
    assert (await lead("POST", "/durable/dead-letters/discard", {"ids": [again.id]})).data == {"discarded": 1}
    assert (await lead("GET", "/durable/dead-letters")).data["items"] == []


@pytest.mark.parametrize("path", ["dead-letters/replay", "dead-letters/discard", "drain", "restore", "restore/events"])
async def test_only_those_who_may_write_everything_change_the_tier(hub: Hub, path: str) -> None:
    ada = caller_of(hub, Bearer.of(TEAM, actor="ada"))
    anna = caller_of(hub, Bearer.of(TEAM, actor="anna", grants=[f"{TEAM}:*"]))

    refused = await ada("POST", f"/durable/{path}")

    assert refused.status == 403
    assert "--grant 'team:*'" in refused.data["detail"]
    assert (await anna("POST", f"/durable/{path}")).status < 300


async def test_a_token_that_only_reads_may_compare_and_not_restore(hub: Hub) -> None:
    reader = caller_of(hub, Bearer.of(TEAM, read_only=True))

    assert (await reader("POST", "/durable/verify")).data["differences"] == []
    assert (await reader("POST", "/durable/restore/events")).status == 403


async def test_a_comparison_tells_its_progress_and_what_differs(hub: Hub, lead: AsgiCaller) -> None:
    await hub.store(TEAM).write("note", 1, kind="knowledge")
    await hub.durable.drain(TEAM)
    await client_of(hub).call("SET", f"sm:{{{TEAM}}}:shared:note", "j2")

    first, *_, last = await events_of(lead, "/durable/verify/events")

    assert (first.name, last.name) == ("started", "verified")
    assert [one["key"] for one in last.data["differences"]] == ["team:shared:note"]


async def test_a_lost_namespace_comes_back_while_a_client_watches(hub: Hub, lead: AsgiCaller) -> None:
    for number in range(5):
        await hub.store(TEAM).write(f"note-{number}", number, kind="knowledge")
    await hub.durable.drain(TEAM)
    await client_of(hub).call("FLUSHALL")

    *_, last = await events_of(lead, "/durable/restore/events")

    assert (last.name, last.data) == ("restored", {"restored": 5})
    assert await hub.store(TEAM).read("note-3") == 3


async def test_without_a_tier_the_service_says_how_to_get_one() -> None:
    async with Hub(settings=Settings(), connect=connect_to_fake(fakeredis.FakeServer())) as hub:
        refused = await caller_of(hub, Bearer.of(TEAM))("GET", "/durable")

    assert refused.status == 501
    assert "set durable_url" in refused.data["detail"]
