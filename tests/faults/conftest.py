"""What the tests of faults share: a server of their own, which they may hurt."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from redis import Redis
from support.chaos_proxy import ChaosProxy
from support.crash_rounds import both_servers
from support.faulty_hubs import persistent_settings
from support.process_groups import RewindableRedis
from support.redis_process import RedisProcess

from sharedmem import Hub


@pytest.fixture(scope="module")
def module_server() -> Iterator[RedisProcess]:
    with RedisProcess() as server:
        yield server


@pytest.fixture
def bare_server(module_server: RedisProcess) -> RedisProcess:
    """An empty server; a test that kills it starts it again."""
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


@pytest.fixture
async def direct(bare_server: RedisProcess, tmp_path: Path) -> AsyncIterator[Hub]:
    """A hub that no fault reaches."""
    async with Hub.open(settings=persistent_settings(bare_server.url, blob_dir=tmp_path)) as hub:
        yield hub


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, RewindableRedis]]:
    """The servers of all rounds of crashes: earlier rounds leave their keys, as in a system that is used."""
    with both_servers() as servers:
        yield servers
