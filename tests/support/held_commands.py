"""Hubs on fakeredis whose n-th command is held: what runs in them is suspended there until it is let go."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from fakeredis import FakeServer

from sharedmem.clock import Clock
from sharedmem.config import Settings
from sharedmem.hub import Connect, Connection
from sharedmem.redis.client import RedisClient, Transport
from sharedmem.redis.replies import Command, Load, LostError, Reply
from sharedmem.testing import connect_to_fake
from support.contexts import transport_and_driver_of

T = TypeVar("T")
_TURNS = 20


class HeldCommand:
    """Which command is held, and whether it has come.

    Args:
        at: its number, counted from `armed` on.
        answered: whether the server has done it by then, so that only its reply is held.

    Attributes:
        armed: whether commands count.
        reached: set when it has come.
        closing: set by the test when the hub begins to close: a while later the command goes on.
    """

    def __init__(self, at: int, *, answered: bool) -> None:
        self.armed = False
        self.reached = asyncio.Event()
        self.closing = asyncio.Event()
        self.lost = asyncio.Event()
        self._at = at
        self._answered = answered
        self._seen = 0

    async def carry(self, call: Coroutine[Any, Any, T]) -> T:
        """Carry a command, unless it is the one: then hold it."""
        self._seen += self.armed
        if not self.armed or self._seen != self._at:
            return await call
        if self._answered:
            reply = await call
            await self._wait()
            return reply
        try:
            await self._wait()
        except BaseException:
            call.close()
            raise
        return await call

    async def _wait(self) -> None:
        self.reached.set()
        await self.closing.wait()
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        if self.lost.is_set():
            raise LostError("the connection was closed")

    @property
    def has_come(self) -> bool:
        """Whether that many commands were sent."""
        return self._seen >= self._at


class _HeldTransport:
    def __init__(self, transport: Transport, held: HeldCommand) -> None:
        self._transport = transport
        self._held = held
        self.servers = transport.servers
        self.ready = transport.ready

    @property
    def generation(self) -> int:
        return self._transport.generation

    @property
    def load(self) -> Load:
        return self._transport.load

    def post(self, args: Command) -> None:
        """Leave every command to `send`."""

    def post_many(self, commands: Sequence[Command]) -> None:
        """Leave every transaction to `send_many`."""

    async def send(self, args: Command) -> Reply:
        return await self._held.carry(self._transport.send(args))

    async def send_many(self, commands: Sequence[Command]) -> list[Reply]:
        return await self._held.carry(self._transport.send_many(commands))

    async def send_each(self, commands: Sequence[Command]) -> list[Reply]:
        return await self._held.carry(self._transport.send_each(commands))

    async def close(self) -> None:
        self._held.lost.set()
        await self._transport.close()


def connect_holding(held: HeldCommand, server: FakeServer) -> Connect:
    """What `Hub(connect=...)` takes to have one of its commands held."""
    plain = connect_to_fake(server)

    async def connect(settings: Settings, clock: Clock) -> Connection:
        connection = await plain(settings, clock)
        line = connection.client
        transport, driver = transport_and_driver_of(line)
        held_line = RedisClient(
            _HeldTransport(transport, held),
            lambda: driver,
            address=line.address,
            clock=clock,
            retry_for_s=settings.retry_for_s,
        )
        return Connection(held_line, connection.url, connection.mode, connection.leave)

    return connect
