"""Each operation of the table is a typed method of both clients, and returns what the library returns."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from keyword import iskeyword
from pathlib import Path
from typing import Any

import httpx2
import pytest
from faces.test_operations import NEEDS_AN_ACTOR, STEPS
from support import embedded_fixtures
from support.rest_server import running_rest_server

from sharedmem import Hub, Settings
from sharedmem.api.operation import operations
from sharedmem.client import SharedMemoryClient
from sharedmem.client.http_protocol import ListPage
from sharedmem.client.sync import SharedMemoryClient as BlockingClient
from sharedmem.faces.rest import RestOptions, create_app
from sharedmem.testing import fake_hub

data_dir = embedded_fixtures.data_dir


def method_of(client: SharedMemoryClient | BlockingClient, name: str) -> Any:
    noun, _, verb = name.partition(".")
    return getattr(getattr(client, noun), f"{verb}_" if iskeyword(verb) else verb)


def call_of(method: Any, fields: dict[str, Any]) -> Any:
    """Call a method with the fields of a request by their names."""
    left = dict(fields)
    rest = next(
        (one.name for one in inspect.signature(method).parameters.values() if one.kind is one.VAR_POSITIONAL), None
    )
    if rest is None:
        return method(**left)
    values = left.pop(rest)
    before = [left.pop(one) for one in list(inspect.signature(method).parameters) if one in left and one != "ttl"]
    return method(*before, *values, **left)


def as_in_python(name: str, answer: Any) -> Any:
    """An answer as the table's own: pages of names are lists, pages of records have a `cursor`, sets are sets."""
    row = operations()[name]
    if not isinstance(answer, ListPage):
        return set(answer) if name == "set.members" else answer
    if row.http.paging in {"names", "recent"}:
        return answer.items
    kind: Any = row.gives
    return kind.model_construct(items=answer.items, cursor=answer.next_cursor or "", total=answer.total)


async def test_every_operation_is_a_method_that_answers_what_it_answers_in_python(data_dir: Path) -> None:
    settings = Settings(data_dir=data_dir, embedded_modules=(), embedder="hashing", namespace="n", access="open")
    async with Hub.open(settings=settings) as hub:
        app = create_app(hub, admission="open_to_all", terms=RestOptions(longest_wait_s=30))
        async with SharedMemoryClient("http://hub", transport=httpx2.ASGITransport(app=app)) as client:
            before: dict[str, Any] = {}
            for name, parameters, expected in STEPS:
                if name in NEEDS_AN_ACTOR:
                    continue
                fields = parameters(before) if callable(parameters) else parameters
                found = await call_of(method_of(client, name), fields)
                answer = before[name] = as_in_python(name, found)
                assert expected(answer) if callable(expected) else answer == expected, (name, answer)


def test_both_clients_have_every_operation_with_the_same_parameters_and_answer() -> None:
    client, blocking = SharedMemoryClient(), BlockingClient()
    for name in operations():
        method = method_of(client, name)
        assert inspect.iscoroutinefunction(method), name
        assert inspect.signature(method) == inspect.signature(method_of(blocking, name)), name


# -- what users write -----------------------------------------------------------------------------------


@pytest.fixture
async def client() -> AsyncIterator[SharedMemoryClient]:
    async with fake_hub(settings=Settings(embedder="hashing")) as hub:
        transport = httpx2.ASGITransport(app=create_app(hub, admission="open_to_all"))
        async with SharedMemoryClient("http://hub", transport=transport) as client:
            yield client


async def test_a_memory_may_be_given_as_its_text(client: SharedMemoryClient) -> None:
    one = await client.memory.add("The lift in house four is broken")
    (other,) = await client.memory.add_many(["Tea is hot"])

    found = await client.memory.search("what is broken?", limit=1)

    assert [hit.item.id for hit in found.hits] == [one.id]
    assert (await client.memory.get(other.id)) is not None
    assert await client.memory.get("missing") is None


async def test_a_page_leads_to_the_next(client: SharedMemoryClient) -> None:
    await client.value.write_many({"a": 1, "b": 2, "c": 3})

    first = await client.key.list(limit=2)
    second = await client.key.list(limit=2, cursor=first.next_cursor)

    assert [key.rpartition(":")[2] for key in first.items + second.items] == ["a", "b", "c"]
    assert second.next_cursor is None


async def test_none_is_sent_where_the_service_would_assume_another_value(client: SharedMemoryClient) -> None:
    await client.value.write("nothing", None)
    claiming = asyncio.create_task(client.queue.claim("jobs", wait=None))
    await client.queue.put("jobs", {"doc": 17})

    task = await claiming

    assert await client.value.read("nothing") is None
    assert task is not None
    assert task.payload == {"doc": 17}


async def test_the_blocking_client_has_the_groups_too() -> None:
    async with running_rest_server() as (server, _):

        def lock_and_count(url: str) -> tuple[int, bool]:
            with BlockingClient(url) as client:
                grant = client.lease.acquire("index", lease=60)
                return client.counter.increment("runs"), client.lease.release("index", grant.id)

        assert await asyncio.to_thread(lock_and_count, server.url) == (1, True)
