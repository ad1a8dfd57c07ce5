"""A server that is no Redis: it lets clients in, and says the same to all of them, or nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import hiredis


@asynccontextmanager
async def non_redis_server(answer: bytes = b"") -> AsyncIterator[int]:
    """Reads whatever clients send, and gives each command the same answer; yields its loopback port.

    Args:
        answer: what it says; nothing for a server that is silent.
    """
    writers: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        with suppress(OSError):
            commands = hiredis.Reader()
            while data := await reader.read(65_536):
                commands.feed(data)
                while commands.gets() is not False:
                    writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)
