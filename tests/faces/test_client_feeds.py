"""Feeds over HTTP: both clients read changes, messages and events of memories, and go on when a stream breaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from support.rest_server import open_service
from support.waiting import wait_until

from sharedmem import AccessDeniedError, Gap, Hub, InvalidError, Missed, Settings, SharedMemoryStore, UnavailableError
from sharedmem.api.operation import feeds
from sharedmem.client import SharedMemoryClient
from sharedmem.client.service import FEEDS
from sharedmem.client.sync import SharedMemoryClient as BlockingClient
from sharedmem.faces.auth import Bearer
from sharedmem.faces.listen_address import ListenAddress
from sharedmem.faces.rest import RestServer, create_app
from sharedmem.testing import fake_hub

TEA = "Tea is served at four in the green room"


@pytest.fixture
async def hub() -> AsyncIterator[Hub]:
    async with fake_hub(settings=Settings(access="open", embedder="hashing", change_log_length=100)) as hub:
        yield hub


@asynccontextmanager
async def served(hub: Hub, port: int = 0) -> AsyncIterator[RestServer]:
    async with RestServer(create_app(hub, admission="open_to_all"), ListenAddress(port=port), grace_s=0.1) as server:
        yield server


async def is_received(store: SharedMemoryStore) -> bool:
    return bool(await store.publish("news", "hello"))


def test_each_feed_of_the_table_is_one_of_the_client() -> None:
    assert FEEDS.keys() == feeds().keys()


async def test_changes_are_read_as_they_happen(hub: Hub) -> None:
    store = hub.store("default")
    await store.write("before", 0)
    async with served(hub) as server, SharedMemoryClient(server.url) as client:
        changes = client.feeds.changes("*", since=0)
        first = await anext(changes)
        await store.write("text", "line\u2028separator")
        second = await anext(changes)
        await changes.aclose()

    assert (first.key, first.operation, second.key) == ("default:shared:before", "write", "default:shared:text")


async def test_changes_go_on_without_a_loss_when_the_service_was_started_again(hub: Hub) -> None:
    store = hub.store("default")
    async with served(hub) as first:
        client = SharedMemoryClient(first.url, retry_for=60)
        changes = client.feeds.changes()
        waiting = asyncio.ensure_future(anext(changes))
        while not waiting.done():
            await store.write("one", 1)
            await asyncio.wait({waiting}, timeout=0.05)
        last = waiting.result()
        port = first.address.port
    await store.write("two", 2)
    async with served(hub, port):
        seen = [last.key]
        while seen[-1] != "default:shared:two":
            change = await anext(changes)
            assert not isinstance(change, Gap)
            seen.append(change.key)
        await changes.aclose()
        await client.close()


async def test_a_channel_says_where_messages_may_have_been_lost(hub: Hub) -> None:
    store = hub.store("default")
    async with served(hub) as first:
        client = SharedMemoryClient(first.url, retry_for=60)
        messages = client.feeds.messages("news")
        waiting = asyncio.ensure_future(anext(messages))
        await wait_until(lambda: is_received(store), description="the client is subscribed")
        assert (await waiting).value == "hello"
        port = first.address.port
    async with served(hub, port):
        assert isinstance(await anext(messages), Missed)
        await store.publish("news", "again")
        assert (await anext(messages)).value == "again"
        await messages.aclose()
        await client.close()


async def test_memories_that_match_are_followed(hub: Hub) -> None:
    memory = hub.store("default").memory
    async with served(hub) as server, SharedMemoryClient(server.url) as client:
        before = await memory.add("Something else")
        events = client.feeds.memories(TEA, filters={"category": "office"}, since=str(before.version))
        added = await memory.add(TEA, category="office")
        await memory.add(TEA, category="other")

        event = await anext(events)

        assert (event.event, event.id) == ("written", added.id)
        await events.aclose()


async def test_a_refusal_is_the_error_of_the_library(hub: Hub) -> None:
    async with served(hub) as server, SharedMemoryClient(server.url) as client:
        with pytest.raises(InvalidError, match="since"):
            await anext(client.feeds.changes(since="yesterday"))
        with pytest.raises(InvalidError, match="channel"):
            await anext(client.feeds.messages(""))
    async with (
        open_service(Bearer.of("team", actor="ada")) as closed,
        RestServer(closed.app, has_tokens=True) as server,
        SharedMemoryClient(server.url, token="smt_unknown") as stranger,
    ):
        with pytest.raises(AccessDeniedError, match="token"):
            await anext(stranger.feeds.changes())


async def test_a_service_that_is_not_there_is_an_error_after_a_while(hub: Hub) -> None:
    async with served(hub) as server:
        url = server.url
    async with SharedMemoryClient(url, retry_for=0.2) as client:
        with pytest.raises(UnavailableError, match="serve rest"):
            await anext(client.feeds.changes())


async def test_programs_that_block_read_them_with_for(hub: Hub) -> None:
    store = hub.store("default")
    await store.write("one", 1)
    await store.write("two", 2)

    def read(url: str) -> list[str]:
        with BlockingClient(url) as client:
            found = []
            for change in client.feeds.changes(since=0):
                found.append(change.key.rpartition(":")[2])
                if len(found) == 2:
                    break
            return found

    async with served(hub) as server:
        assert await asyncio.to_thread(read, server.url) == ["one", "two"]
