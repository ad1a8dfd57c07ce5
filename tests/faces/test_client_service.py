"""The client with a real service: every operation can be called, and synthesis works over HTTP as in the library."""

from __future__ import annotations

import asyncio
import inspect
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import closing
from typing import Any

import httpx2
import pytest
from support import backends
from support.rest_server import client_of_app, open_service

from sharedmem import Hub, Settings
from sharedmem.api.operation import operations
from sharedmem.client import SharedMemoryClient
from sharedmem.client.http_protocol import ServiceOperation, parse_routes
from sharedmem.client.sync import SharedMemoryClient as BlockingClient
from sharedmem.client.table import BY_NAME
from sharedmem.errors import AccessDeniedError, InvalidError, NotFoundError, UnsupportedError
from sharedmem.faces.auth import Bearer
from sharedmem.faces.listen_address import ListenAddress
from sharedmem.faces.rest import RestServer, create_app
from sharedmem.faces.rest.server import open_socket
from sharedmem.models import ConversationSummary, Note
from sharedmem.testing import fake_hub

MESSAGES = [{"role": "user", "content": "I moved to Malmö"}]


def public(kind: type) -> Mapping[str, inspect.Signature]:
    named = inspect.getmembers(kind, inspect.isfunction)
    return {name: inspect.signature(function) for name, function in named if not name.startswith("_")}


# -- a real service -----------------------------------------------------------------------------------------


hub = backends.hub_on_fakeredis


@pytest.fixture
async def memory(hub: Hub) -> AsyncIterator[SharedMemoryClient]:
    transport = httpx2.ASGITransport(app=create_app(hub, admission="open_to_all"))
    async with SharedMemoryClient("http://hub", transport=transport) as memory:
        yield memory


async def test_any_operation_of_the_service_can_be_called_with_any_text(memory: SharedMemoryClient, hub: Hub) -> None:
    for key in ("plain", "a/b", "50%", "ä ö?", "q#x&y=z", "..", "a+b"):
        await memory.call("value.write", key=key, value={"n": 1})

        assert await hub.store("default").read(key) == {"n": 1}
        assert await memory.call("value.read", key=key) == {"n": 1}
        assert key in str((await memory.call("key.list", pattern="*"))["items"])


async def test_lists_and_objects_may_stand_in_a_query(memory: SharedMemoryClient) -> None:
    await memory.call("value.write_many", values={"a": 1, "b": 2})

    assert await memory.call("value.read_many", keys=["a", "b"]) == {"a": 1, "b": 2}


async def test_an_operation_that_is_none_is_told_with_those_that_are(memory: SharedMemoryClient) -> None:
    with pytest.raises(UnsupportedError, match=r"'value\.wrte'.*value\.write"):
        await memory.call("value.wrte", key="a")


async def test_a_field_that_is_missing_in_the_path_is_told_before_anything_is_sent(memory: SharedMemoryClient) -> None:
    with pytest.raises(InvalidError, match="key"):
        await memory.call("value.read")


async def test_what_json_cannot_hold_is_refused(memory: SharedMemoryClient) -> None:
    with pytest.raises(InvalidError, match="JSON cannot hold"):
        await memory.call("value.write", key="a", value=object())


def test_a_service_sends_small_answers_at_once() -> None:
    """Without its protocol named, asyncio leaves them to Nagle's algorithm: each answer takes 40 ms."""
    with closing(open_socket(ListenAddress(port=0))) as sock:
        assert sock.proto == socket.IPPROTO_TCP


# -- synthesis over HTTP --------------------------------------------------------------------------------------


def parameters(function: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    found = inspect.signature(function).parameters.values()
    return [(one.name, one.kind, one.default) for one in found]


def test_calls_are_those_of_the_library() -> None:
    from sharedmem.synthesis.synthesis import Synthesis

    own = public(SharedMemoryClient).keys() - {"call", "close"}
    assert len(own) == 15
    assert own <= public(Synthesis).keys()
    for name in own:
        assert parameters(getattr(SharedMemoryClient, name)) == parameters(getattr(Synthesis, name)), name


async def test_routes_that_the_client_knows_are_those_of_the_service(hub: Hub) -> None:
    app = create_app(hub, admission="open_to_all")
    async with client_of_app(app) as http:
        described = parse_routes((await http.get("/openapi.json")).content)

    def shape(known: Mapping[str, ServiceOperation[Any]]) -> dict[str, tuple[object, ...]]:
        return {name: (known[name].method, known[name].path, known[name].as_json) for name in operations()}

    assert shape(BY_NAME) == shape(described)


@pytest.fixture
async def rememberer() -> AsyncIterator[SharedMemoryClient]:
    """A client of a service whose rules take notes for alike when they share some words."""
    near = Settings(
        synthesis_recall_threshold=0, synthesis_score_threshold=0, synthesis_link_threshold=0.3, webhook_private=False
    )
    async with fake_hub(settings=near) as hub:
        transport = httpx2.ASGITransport(app=create_app(hub, admission="open_to_all"))
        async with SharedMemoryClient("http://hub", transport=transport) as memory:
            yield memory


SHE: dict[str, Any] = {"app_id": "shop", "user_id": "mara"}


async def told_of(memory: SharedMemoryClient, text: str) -> Note:
    """The note that a message has become."""
    task = await memory.add_memory(**SHE, messages=[{"role": "user", "content": text}])
    assert task.status == "accepted"
    done = await memory.wait(task.task_id, timeout=60)
    assert done.result is not None
    note = await memory.get_memory(done.result["memory_id"], app_id="shop")
    assert note is not None
    return note


async def test_a_conversation_is_told_found_and_replaced_over_http(rememberer: SharedMemoryClient) -> None:
    old = await told_of(rememberer, "My address is Storgata 77 in Malmö. I like red bikes.")
    new = await told_of(rememberer, "My address is now Kungsgatan 8 in Gothenburg.")

    (hit,) = await rememberer.query_memory(**SHE, query="which address?")
    assert "Kungsgatan 8" in hit.memory_note
    assert set(hit.metadata.sources) == {old.id, new.id}
    chain = await rememberer.traverse_memory_evolution_chain(old.id, app_id="shop")
    assert [note.id for note in chain] == [old.id, hit.metadata.id]
    drawing = await rememberer.draw_evolution(old.id, app_id="shop", format="dot")
    assert drawing.text.startswith("digraph")
    assert rememberer.generate_evolution_graph(chain).text.startswith("flowchart")


async def test_notes_are_deleted_and_brought_back_over_http(rememberer: SharedMemoryClient) -> None:
    note = await told_of(rememberer, "I like red bikes.")

    assert await rememberer.delete_memory(note.id, app_id="shop")
    assert await rememberer.query_memory(**SHE, query="bikes") == []
    again = await rememberer.update_memory_status(note.id, "active", app_id="shop")

    assert again.status == "active"
    assert not await rememberer.delete_memory("note-0", app_id="shop")
    with pytest.raises(NotFoundError):
        await rememberer.update_memory_status("note-0", "deleted", app_id="shop")


async def test_what_an_agent_says_is_kept_and_summed_up_over_http(rememberer: SharedMemoryClient) -> None:
    task = await rememberer.add_agent_memory(**SHE, messages="The customer wants red bikes only.", task_id="once")
    again = await rememberer.add_agent_memory(**SHE, messages="The customer wants red bikes only.", task_id="once")
    summary = await rememberer.summarize_conversation(**SHE, messages="I like red bikes. I am Mara.", mode="full")

    assert task.task_id == again.task_id
    assert isinstance(summary, ConversationSummary)
    assert "red bikes" in summary.summary
    assert (await rememberer.get_connection_pool_stats()).max_connections > 0


async def test_a_webhook_to_the_inside_is_refused_over_http(rememberer: SharedMemoryClient) -> None:
    with pytest.raises(InvalidError, match="webhook_private"):
        await rememberer.add_memory(**SHE, messages=MESSAGES, callback_url="http://127.0.0.1:6379/")


async def test_a_task_that_is_none_is_told_so(rememberer: SharedMemoryClient) -> None:
    with pytest.raises(NotFoundError):
        await rememberer.wait("0000000000000001")


# -- a real port ----------------------------------------------------------------------------------------------


async def test_both_clients_show_their_token_to_a_server_and_are_told_when_it_is_none() -> None:
    async with (
        open_service(Bearer.of("team", actor="ada")) as open_desk,
        RestServer(open_desk.app, has_tokens=True) as server,
    ):
        token = open_desk.tokens["team/ada"]
        async with SharedMemoryClient(server.url, token=token) as memory:
            await memory.call("value.write", key="topic", value="tides")
        with BlockingClient(server.url, token=token) as blocking:
            assert await asyncio.to_thread(blocking.call, "value.read", key="topic") == "tides"
            assert await asyncio.to_thread(blocking.warm_up)
        async with SharedMemoryClient(server.url, token="smt_unknown") as stranger:
            with pytest.raises(AccessDeniedError, match="token"):
                await stranger.warm_up()


async def test_a_client_outlives_a_server_that_is_started_again() -> None:
    async with fake_hub() as hub:
        async with RestServer(create_app(hub, admission="open_to_all"), ListenAddress(port=0)) as first:
            port = first.address.port
            memory = SharedMemoryClient(first.url)
            assert await memory.warm_up()
        asked = asyncio.create_task(memory.get_connection_pool_stats())
        async with RestServer(create_app(hub, admission="open_to_all"), ListenAddress(port=port)):
            assert (await asked).max_connections > 0
            await memory.close()
