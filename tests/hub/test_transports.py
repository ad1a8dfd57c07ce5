"""One suite for every transport: the fast lane, redis-py, and redis-py on fakeredis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import fakeredis
import pytest
from conformance.transport import OpenTransport, TransportSuite
from redis.asyncio import Redis
from support.transports import address_of, pooled_connection_to

from sharedmem import Settings
from sharedmem.clock import SystemClock
from sharedmem.redis.client import Transport
from sharedmem.redis.multiplexer import MultiplexedConnection
from sharedmem.redis.pooled import PooledConnection
from sharedmem.redis.replies import LostError

_CONNECTORS: dict[str, Callable[[Settings], Transport]] = {
    "lane": lambda settings: MultiplexedConnection(
        address_of(settings),
        connect_timeout_s=settings.connect_timeout_s,
        response_timeout_s=settings.response_timeout_s,
    ),
    "driver": lambda settings: pooled_connection_to(settings, SystemClock()),
}


class _OnTheRealServer(TransportSuite):
    kind: str

    @pytest.fixture
    def open_transport(self, redis_url: str) -> OpenTransport:
        def connect(*, username: str | None = None, password: str | None = None) -> Transport:
            named: dict[str, Any] = {"redis_username": username, "redis_password": password}
            return _CONNECTORS[self.kind](Settings(redis_url=redis_url, **named))

        return connect

    @pytest.fixture
    async def drop_connections(self, redis_url: str) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        async with Redis.from_url(redis_url) as admin:

            async def drop() -> None:
                await admin.client_kill_filter(_type="normal", skipme=True)

            yield drop


class TestTheFastLane(_OnTheRealServer):
    kind = "lane"


class TestTheDriver(_OnTheRealServer):
    kind = "driver"


class TestTheDriverOnFakeredis(TransportSuite):
    @pytest.fixture
    def open_transport(self) -> OpenTransport:
        server = fakeredis.FakeServer()

        def connect(*, username: str | None = None, password: str | None = None) -> Transport:
            login: dict[str, Any] = {"username": username, "password": password}
            clients = [fakeredis.aioredis.FakeRedis(server=server, protocol=2, **login) for _ in range(2)]
            return PooledConnection(*clients, response_timeout_s=5.0, at_once=50)

        return connect

    @pytest.fixture
    def drop_connections(self) -> Callable[[], Awaitable[None]]:
        pytest.skip("fakeredis does not drop connections")


@pytest.mark.parametrize("kind", _CONNECTORS)
async def test_a_server_that_says_nothing_counts_as_lost(kind: str) -> None:
    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1000):
            pass
        writer.close()

    async with await asyncio.start_server(swallow, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        patience = {"connect_timeout_s": 0.2, "response_timeout_s": 0.2}
        transport = _CONNECTORS[kind](Settings(redis_url=f"redis://127.0.0.1:{port}", **patience))
        with pytest.raises(LostError):
            await transport.ready()
        await transport.close()


@pytest.mark.parametrize("kind", _CONNECTORS)
async def test_a_server_that_is_not_there_counts_as_lost(kind: str) -> None:
    async with await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
    transport = _CONNECTORS[kind](Settings(redis_url=f"redis://127.0.0.1:{port}"))

    with pytest.raises(LostError):
        await transport.ready()
    await transport.close()
