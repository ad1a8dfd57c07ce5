"""Resources of the MCP face: addresses, pages, rights, and subscriptions in both eras of the protocol."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ResourcesListChanged, ResourceUpdated, Subscription
from mcp.shared.exceptions import MCPError
from mcp_types import ResourceUpdatedNotification, TextResourceContents
from support.mcp_service import URL, McpHarness, called, mcp_service

from sharedmem.faces.auth import Bearer

ADA, EVE = Bearer.of("tides", actor="ada"), Bearer.of("other", actor="eve")
FLOOD = "The harbour of Skarn was flooded in 1962."
SOON_S = 30
# Subscriptions to one address after the other are removed in 2026-07-28.
REMOVED = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")


async def read(client: Client, uri: str) -> dict[str, Any]:
    """The document of a resource."""
    [content] = (await client.read_resource(uri)).contents
    assert isinstance(content, TextResourceContents)
    assert (content.uri, content.mime_type) == (uri, "application/json")
    found: dict[str, Any] = json.loads(content.text)
    return found


async def listed(client: Client) -> list[list[str]]:
    """The addresses on each page of the list."""
    pages, cursor = [], None
    while True:
        page = await client.list_resources(cursor=cursor)
        pages.append([resource.uri for resource in page.resources])
        cursor = page.next_cursor
        if cursor is None:
            return pages


async def next_event(events: Subscription) -> object:
    """The next event of a stream."""
    async with asyncio.timeout(SOON_S):
        return await anext(events)


async def test_memories_threads_and_values_are_listed_and_read() -> None:
    async with mcp_service() as service, Client(service.service.server) as client:
        store = service.hub.store("default")
        memory = (await called(client, "remember", content=FLOOD, thread_id="flood"))["id"]
        await called(client, "write_value", key="plan/größe", value={"a": 1})
        await store.shared.conversations.append("flood", ["When was it?", {"answer": 1962}])

        assert await listed(client) == [["thread://flood", "value://plan%2Fgr%C3%B6%C3%9Fe", f"memory://{memory}"]]
        assert (await read(client, f"memory://{memory}"))["memory"]["content"] == FLOOD
        value = await read(client, "value://plan%2Fgr%C3%B6%C3%9Fe")
        assert (value["value"], value["version"] > 0) == ({"a": 1}, True)
        thread = await read(client, "thread://flood")
        assert [entry["content"] for entry in thread["entries"]] == ["When was it?", {"answer": 1962}]
        assert [each["id"] for each in thread["memories"]] == [memory]
        templates = (await client.list_resource_templates()).resource_templates
        assert {each.uri_template for each in templates} == {"memory://{id}", "thread://{id}", "value://{key}"}


async def test_a_list_comes_in_pages_that_hold_everything_once() -> None:
    async with mcp_service() as service, Client(service.service.server) as client:
        store = service.hub.store("default")
        expected = {f"value://v{number:04}" for number in range(1230)} | {f"thread://t{number}" for number in range(60)}
        for hundred in range(0, 1230, 410):
            await store.shared.write_many({f"v{number:04}": 1 for number in range(hundred, hundred + 410)})
        for number in range(60):
            await store.shared.conversations.append(f"t{number}", ["x"])
        for number in range(60):
            expected.add(f"memory://{(await store.memory.add(f'Ship {number} sank.', dedup=False)).id}")
        pages = await listed(client)
        assert all(len(page) <= 100 for page in pages)
        found = [uri for page in pages for uri in page]
        assert len(found) == len(expected)
        assert set(found) == expected


async def test_a_resource_is_no_longer_than_an_answer_may_be() -> None:
    async with mcp_service(max_tokens=400) as service, Client(service.service.server) as client:
        store = service.hub.store("default")
        await store.shared.write("long", "word " * 5000)
        await store.shared.conversations.append("talk", ["word " * 3000, *(f"line {n} of a talk" for n in range(90))])
        part = await read(client, "value://long")
        rest = await called(client, "read_value", key="long", cursor=part["next_cursor"])
        assert rest["part"]
        thread = await read(client, "thread://talk")
        assert thread["entries"][-1]["content"] == "line 89 of a talk"
        assert thread["earlier_entries"] + len(thread["entries"]) == 91
        assert len(json.dumps(thread)) < 4000


@pytest.mark.parametrize(
    "uri", ["memory://none", "value://none", "thread://none", "value://", "thread://%7B", "nix://a"]
)
async def test_what_does_not_exist_is_an_error_of_the_protocol(uri: str) -> None:
    async with mcp_service() as service, Client(service.service.server) as client:
        with pytest.raises(MCPError) as caught:
            await client.read_resource(uri)
        assert caught.value.error.code == -32602
        with pytest.raises(MCPError, match="nextCursor"):
            await client.list_resources(cursor="nix.1")


async def test_profiles_without_resources_have_none() -> None:
    async with mcp_service(tools=("coordination",)) as service, Client(service.service.server) as client:
        await called(client, "write_value", key="plan", value=1)
        await service.hub.store("default").memory.add(FLOOD)
        assert await listed(client) == [["value://plan"]]
        with pytest.raises(MCPError, match="Unknown resource"):
            await client.read_resource("memory://x")
    async with mcp_service(tools=("graph",)) as service, Client(service.service.server) as client:
        assert await listed(client) == [[]]


async def test_no_resource_reaches_another_tenant() -> None:
    async with mcp_service(ADA, EVE) as service:
        async with service.client("tides/ada") as ada:
            memory = (await called(ada, "remember", content="secret albatross", thread_id="talk"))["id"]
            await called(ada, "write_value", key="plan", value="secret albatross")
            await service.hub.store("tides").conversations.append("talk", ["secret albatross"])
            assert len((await listed(ada))[0]) == 3
        async with service.client("other/eve") as eve:
            assert await listed(eve) == [[]]
            foreign = (f"memory://{memory}", "value://plan", "thread://talk")
            for uri in (*foreign, "value://tides:shared:plan", "thread://tides:shared:talk"):
                with pytest.raises(MCPError) as caught:
                    await eve.read_resource(uri)
                assert "albatross" not in str(caught.value), uri
        async with service.at_port("other/eve") as eve:
            async with eve.listen(resource_subscriptions=[*foreign]) as events:
                store = service.hub.store("tides")
                await store.write("plan", 2)
                await store.memory.delete(memory)
                await called(eve, "write_value", key="plan", value="mine")
                assert await next_event(events) == ResourceUpdated("value://plan")
            with pytest.raises(MCPError, match="no others"):
                async with eve.listen(resource_subscriptions=["value://tides:shared:plan"]):
                    pass


@asynccontextmanager
async def client_over(transport: str, service: McpHarness, **options: Any) -> AsyncIterator[Client]:
    """A client in this process, or over HTTP and a port."""
    if transport == "memory":
        async with Client(service.service.server, **options) as client:
            yield client
        return
    async with service.at_port(**options) as client:
        yield client


@pytest.mark.parametrize("transport", ["memory", "http"])
async def test_a_stream_tells_of_the_resources_that_it_watches(transport: str) -> None:
    async with mcp_service() as service, client_over(transport, service) as client:
        store = service.hub.store("default")
        memory = (await store.memory.add(FLOOD, thread_id="flood")).id
        watched = [f"memory://{memory}", "value://plan", "thread://flood", "test://of-the-operator"]
        async with client.listen(resource_subscriptions=watched, resources_list_changed=True) as events:
            await store.shared.write("other", 1)
            assert await next_event(events) == ResourcesListChanged()
            await store.shared.write("plan", 1)
            assert {await next_event(events), await next_event(events)} == {
                ResourcesListChanged(),
                ResourceUpdated("value://plan"),
            }
            await store.memory.update(memory, memory="It was 1963.")
            assert {await next_event(events), await next_event(events)} == {
                ResourceUpdated(f"memory://{memory}"),
                ResourceUpdated("thread://flood"),
            }
        async with client.listen(resource_subscriptions=["thread://flood"]) as events:
            await store.shared.conversations.append("flood", ["It was 1963."])
            assert await next_event(events) == ResourceUpdated("thread://flood")
            await store.memory.delete(memory)
            assert await next_event(events) == ResourceUpdated("thread://flood")
            await store.clear()
            assert await next_event(events) == ResourceUpdated("thread://flood")


@REMOVED
@pytest.mark.parametrize("transport", ["memory", "http"])
async def test_a_session_of_the_earlier_revisions_is_notified(transport: str) -> None:
    told: asyncio.Queue[str] = asyncio.Queue()

    async def take(message: object) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            told.put_nowait(message.params.uri)

    async with (
        mcp_service() as service,
        client_over(transport, service, mode="legacy", message_handler=take) as client,
    ):
        store = service.hub.store("default")
        await client.subscribe_resource("value://plan")
        await client.subscribe_resource("value://other")
        await store.shared.write("plan", 1)
        async with asyncio.timeout(SOON_S):
            assert await told.get() == "value://plan"
        await client.unsubscribe_resource("value://plan")
        await store.shared.write("plan", 2)
        await store.shared.write("other", 2)
        async with asyncio.timeout(SOON_S):
            assert await told.get() == "value://other"


@REMOVED
async def test_without_sessions_the_earlier_revisions_cannot_subscribe() -> None:
    async with (
        mcp_service(sessions=False) as service,
        service.http() as http,
        Client(streamable_http_client(URL, http_client=http), mode="legacy") as client,
    ):
        with pytest.raises(MCPError, match="server with sessions"):
            await client.subscribe_resource("value://plan")


async def test_streams_end_with_a_word_when_the_server_stops() -> None:
    async with (
        mcp_service() as service,
        Client(service.service.server) as client,
        client.listen(resource_subscriptions=["value://plan"]) as events,
    ):
        service.app.state.service.end_streams()
        async with asyncio.timeout(SOON_S):
            assert [event async for event in events] == []


async def test_too_many_addresses_are_refused() -> None:
    async with mcp_service() as service, Client(service.service.server) as client:
        with pytest.raises(MCPError, match="1000 at most"):
            async with client.listen(resource_subscriptions=[f"value://v{number}" for number in range(1001)]):
                pass
