"""`Call` runs any operation of the table, and answers what the library answers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from faces.test_operations import NEEDS_AN_ACTOR, STEPS
from pydantic import TypeAdapter
from support import embedded_fixtures

from sharedmem import Hub, Settings
from sharedmem.api.operation import operations
from sharedmem.errors import AccessDeniedError, InvalidError, LimitedError, NotFoundError
from sharedmem.faces.auth import Bearer, Rate, TokenFile, new_token
from sharedmem.faces.grpc import GrpcAddress, MemoryClient, MemoryServer
from sharedmem.testing import fake_hub

data_dir = embedded_fixtures.data_dir
ANYWHERE = GrpcAddress(port=0)


@pytest.fixture
async def memory(fake: Hub) -> AsyncIterator[MemoryClient]:
    async with (
        MemoryServer(fake, ANYWHERE, everyone=Bearer.of("desk", actor="ada")) as server,
        MemoryClient(server.target) as memory,
    ):
        yield memory


async def test_every_operation_can_be_called(data_dir: Path) -> None:
    settings = Settings(data_dir=data_dir, embedded_modules=(), embedder="hashing", access="open")
    async with (
        Hub.open(settings=settings) as hub,
        MemoryServer(hub, ANYWHERE, everyone=Bearer(namespace="n")) as server,
        MemoryClient(server.target) as memory,
    ):
        before: dict[str, Any] = {}
        for name, parameters, expected in STEPS:
            if name in NEEDS_AN_ACTOR:
                continue
            fields = parameters(before) if callable(parameters) else parameters
            adapter: TypeAdapter[Any] = TypeAdapter(cast("type[Any]", operations()[name].gives))
            told = await memory.call(name, **fields)
            answer = before[name] = adapter.validate_json(json.dumps(told))
            assert expected(answer) if callable(expected) else answer == expected, (name, told)


async def test_an_operation_that_does_not_exist_is_not_found(memory: MemoryClient) -> None:
    with pytest.raises(NotFoundError, match=r"value\.wrte"):
        await memory.call("value.wrte", key="a")


async def test_a_field_that_does_not_fit_is_named(memory: MemoryClient) -> None:
    with pytest.raises(InvalidError) as raised:
        await memory.call("value.read", key=7)

    assert raised.value.field == "key"


async def test_rights_are_those_of_the_caller(memory: MemoryClient) -> None:
    with pytest.raises(AccessDeniedError):
        await memory.call("value.write", key="other:shared:plan", value=1)


async def test_a_call_counts_for_the_rate_of_its_token() -> None:
    token, entry = new_token(Bearer.of("desk", actor="ada"), rate=Rate.of("2/min"))
    async with fake_hub() as hub:
        server = MemoryServer(hub, ANYWHERE, tokens=TokenFile([entry]))
        async with server, MemoryClient(server.target, token=token) as memory:
            for _ in range(2):
                await memory.call("key.exists", key="k1")
            with pytest.raises(LimitedError) as refused:
                await memory.call("key.exists", key="k1")
            assert await memory.decisions.sessions() == []

    assert refused.value.retry_after > 0


async def write_for_ever(memory: MemoryClient) -> None:
    values = {f"k{number}": "x" * 100 for number in range(1000)}
    while True:
        await memory.call("value.write_many", values=values)


async def test_bulk_calls_of_a_token_count_for_its_cpu_time(redis_url: str, namespace: str, tmp_path: Path) -> None:
    token, entry = new_token(Bearer.of(namespace, actor="ada"))
    async with Hub.open(redis_url, settings=Settings(data_dir=tmp_path, bulk_cpu_s=1)) as hub:
        server = MemoryServer(hub, ANYWHERE, tokens=TokenFile([entry]))
        async with server, MemoryClient(server.target, token=token) as memory:
            with pytest.raises(LimitedError, match="CPU seconds"):
                await write_for_ever(memory)
            assert await memory.call("key.exists", key="k1") is True
