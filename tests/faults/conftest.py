"""What the tests of faults share: a server of their own, which they may hurt."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from redis import Redis
from support.chaos_proxy import ChaosProxy
from support.redis_process import RedisProcess


@pytest.fixture(scope="module")
def module_server() -> Iterator[RedisProcess]:
    with RedisProcess() as server:
        yield server


@pytest.fixture
def bare_server(module_server: RedisProcess) -> RedisProcess:
    """An empty server; whoever kills it starts it again."""
    module_server.tell("FLUSHALL")
    return module_server


@pytest.fixture
def raw(bare_server: RedisProcess) -> Iterator[Redis]:
    """A plain client that sees the server without the proxy."""
    with bare_server.client() as client:
        yield client


@pytest.fixture
async def proxy(bare_server: RedisProcess) -> AsyncIterator[ChaosProxy]:
    async with ChaosProxy(bare_server.url) as proxy:
        yield proxy
