"""Hubs for tests of faults: impatient ones, and one whose operation ids are off, for the controls."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sharedmem import Hub
from sharedmem.clock import Clock
from sharedmem.config import Settings
from sharedmem.hub import Connection
from sharedmem.redis.address import parse_address
from sharedmem.redis.client import RedisClient, Transport
from sharedmem.redis.connect import open_client
from sharedmem.redis.replies import Argument, Command, Load, Reply
from sharedmem.redis.scripts import by_digest
from support.contexts import transport_and_driver_of


def impatient_settings(url: str, **choices: Any) -> Settings:
    """Settings under which a fault is reported within a few seconds, with blob files in a folder of their own."""
    waits = {"connect_timeout_s": 2.0, "response_timeout_s": 0.5, "retry_for_s": 0.3}
    return Settings(redis_url=url, **(waits | {"data_dir": Path("/nonexistent")} | choices))


def persistent_settings(url: str, **choices: Any) -> Settings:
    """Settings under which a hub outlasts every fault that a test lets pass."""
    waits = {"connect_timeout_s": 30.0, "response_timeout_s": 1.0, "retry_for_s": 30.0}
    return Settings(redis_url=url, **(waits | choices))


def hub_without_ids(settings: Settings) -> Hub:
    """A hub that gives every try of a call an operation number of its own: repeats look like new calls."""
    return Hub(settings=settings, connect=_connect_without_operation_ids)


class _RenumberingTransport:
    """Carries calls and changes their operation numbers on the way."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._numbers = itertools.count(1)
        self.generation = 0
        self.load = Load(0, 0)
        self.servers = transport.servers
        self.ready = transport.ready
        self.close = transport.close

    def post(self, args: Command) -> None:
        """Leave every call to `send`, which repeats come by too."""

    def post_many(self, commands: Sequence[Command]) -> None:
        """Leave every transaction to `send_many`."""

    async def send(self, args: Command) -> Reply:
        return await self._transport.send(self._renumbered(args))

    async def send_many(self, commands: Sequence[Command]) -> list[Reply]:
        return await self._transport.send_many(commands)

    async def send_each(self, commands: Sequence[Command]) -> list[Reply]:
        return await self._transport.send_each(commands)

    def _renumbered(self, args: Command) -> Command:
        if _text(args[0]) != "EVALSHA" or "replayed(" not in by_digest()[_text(args[1])].source:
            return args
        # After the keys come the slot and the number (lua/include/mutation.lua).
        number = 3 + int(args[2]) + 1
        return (*args[:number], next(self._numbers), *args[number + 1 :])


def _text(argument: Argument) -> str:
    return argument.decode() if isinstance(argument, bytes) else str(argument)


async def _connect_without_operation_ids(settings: Settings, clock: Clock) -> Connection:
    assert settings.redis_url is not None
    address = parse_address(settings.redis_url, settings)
    line = open_client(address, settings, clock)
    transport, driver = transport_and_driver_of(line)
    forgetful = RedisClient(
        _RenumberingTransport(transport),
        lambda: driver,
        address=line.address,
        clock=clock,
        retry_for_s=settings.retry_for_s,
    )
    return Connection(forgetful, address.url, address.mode, _do_nothing)


async def _do_nothing() -> None:
    """The server is the test's own."""
