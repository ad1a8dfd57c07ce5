"""A receiver of webhooks that keeps what it was sent, and misbehaves when told to."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson


class ReceivedCall(NamedTuple):
    """A call."""

    path: str
    """With its query."""
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def event(self) -> Any:
        return orjson.loads(self.body)


class Reaction(NamedTuple):
    """What to do about a call."""

    status: int = 200
    headers: Mapping[str, str] = {}
    body: bytes = b"{}"
    hangs: bool = False
    """Never answer."""
    closes: bool = False
    """Close without a word."""
    drips: bool = False
    """Begin the answer, and never come to its end."""


@dataclass
class Receiver:
    """What came, and what is done about the next calls; without more reactions all is well."""

    port: int = 0
    calls: list[ReceivedCall] = field(default_factory=list)
    connections: int = 0
    reactions: deque[Reaction] = field(default_factory=deque)

    def will(self, *reactions: Reaction) -> None:
        self.reactions.extend(reactions)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.split("\r\n")
            pairs = (line.partition(":") for line in lines if line)
            headers = {name.lower(): value.strip() for name, _, value in pairs}
            body = await reader.readexactly(int(headers["content-length"]))
            self.calls.append(ReceivedCall(first.split(" ")[1], headers, body))
            await self._react(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass
        finally:
            writer.close()

    async def _react(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reaction = self.reactions.popleft() if self.reactions else Reaction()
        if reaction.closes:
            return
        lines = [f"HTTP/1.1 {reaction.status} -", *(f"{name}: {value}" for name, value in reaction.headers.items())]
        answer = "\r\n".join([*lines, f"Content-Length: {len(reaction.body)}", "", ""]).encode() + reaction.body
        writer.write(b"" if reaction.hangs else answer[:12] if reaction.drips else answer)
        if reaction.hangs or reaction.drips:
            await reader.read()
            return
        await writer.drain()


@asynccontextmanager
async def running_receiver(tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    """A receiver on a free port of the loopback interface."""
    receiver = Receiver()
    tasks: set[asyncio.Task[None]] = set()

    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(receiver.handle(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
