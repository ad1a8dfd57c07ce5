"""Where a slot has gone while it was asked for: two servers that only know how to send their callers on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import hiredis
import pytest
from support.faulty_hubs import impatient_settings

from sharedmem import UnavailableError
from sharedmem.clock import SystemClock
from sharedmem.redis.address import parse_address
from sharedmem.redis.connect import open_client

KEY = b"sm:{research}:ada:plan"
SLOT = 5000


class Signpost:
    """A server of a cluster that answers GET as it is told, the last answer again and again."""

    def __init__(self) -> None:
        self.answers: list[bytes] = []
        self.heard: list[bytes] = []
        self.slots: bytes = b"*0\r\n"
        self.port = 0
        self.callers: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.callers.add(writer)
        parser = hiredis.Reader()
        while data := await reader.read(65_536):
            parser.feed(data)
            while (command := parser.gets()) is not False:
                writer.write(self._answer([bytes(word).upper() for word in command]))
        writer.close()

    def _answer(self, command: list[bytes]) -> bytes:
        if command[:2] == [b"CLUSTER", b"SLOTS"]:
            return self.slots
        if command[0] not in {b"GET", b"ASKING"}:
            return b"+OK\r\n"
        self.heard.append(command[0])
        if command[0] == b"ASKING":
            return b"+OK\r\n"
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@asynccontextmanager
async def signposts() -> AsyncIterator[tuple[Signpost, Signpost]]:
    """Two of them; the first is said to hold every slot."""
    first, second = Signpost(), Signpost()
    async with (
        await asyncio.start_server(first.serve, "127.0.0.1", 0) as one,
        await asyncio.start_server(second.serve, "127.0.0.1", 0) as two,
    ):
        first.port, second.port = (server.sockets[0].getsockname()[1] for server in (one, two))
        first.slots = second.slots = (
            b"*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$9\r\n127.0.0.1\r\n:%d\r\n$1\r\na\r\n" % first.port
        )
        yield first, second
        for caller in first.callers | second.callers:
            caller.close()
            await caller.wait_closed()


async def answer_of(first: Signpost) -> object:
    settings = impatient_settings(f"redis+cluster://127.0.0.1:{first.port}")
    assert settings.redis_url is not None
    line = open_client(parse_address(settings.redis_url, settings), settings, SystemClock())
    try:
        return await line.call("GET", KEY)
    finally:
        await line.close()


async def test_a_slot_that_has_come_back_while_it_was_moving_is_followed() -> None:
    async with signposts() as (first, second):
        first.answers = [b"-ASK %d 127.0.0.1:%d\r\n" % (SLOT, second.port), b"$4\r\nhere\r\n"]
        second.answers = [b"-MOVED %d 127.0.0.1:%d\r\n" % (SLOT, first.port)]

        assert await answer_of(first) == b"here"
        assert second.heard == [b"ASKING", b"GET"]


async def test_a_slot_that_moves_on_and_on_is_given_up() -> None:
    async with signposts() as (first, second):
        first.answers = [b"-MOVED %d 127.0.0.1:%d\r\n" % (SLOT, second.port)]
        second.answers = [b"-MOVED %d 127.0.0.1:%d\r\n" % (SLOT, first.port)]

        with pytest.raises(UnavailableError, match="slots are moving"):
            await answer_of(first)
