"""A small client of HTTP/1.1 for measuring: connections that are kept, and no more parsing than lengths take.

What it costs is part of every figure, so that it must not be what is measured: it takes a small part of what any of the
services takes.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Self, cast
from urllib.parse import urlsplit

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_EVENT = re.compile(rb"event: change\nid: (\d+)-")


class AnswerError(Exception):
    """An answer was none of those that were measured for."""


class _HttpConnection(asyncio.Protocol):
    """One connection, with one request at a time."""

    def __init__(self) -> None:
        self._buffer = b""
        self._answer: asyncio.Future[bytes] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0 or self._answer is None:
            return
        length = _LENGTH.search(self._buffer, 0, end)
        if length is None or len(self._buffer) >= end + 4 + int(length[1]):
            answer, self._answer = self._answer, None
            whole, self._buffer = self._buffer, b""
            answer.set_result(whole)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionResetError("the service has closed the connection"))

    @property
    def is_open(self) -> bool:
        """Whether the service has not hung up, as it does on those who are silent for long."""
        return self._transport is not None

    def ask(self, request: bytes) -> asyncio.Future[bytes]:
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._answer

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class HttpClient:
    """A client of one service, with as many connections as calls are under way.

    Args:
        url: where the service listens.
        headers: that go with every request.
    """

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        parts = urlsplit(url)
        self._host, self._port = str(parts.hostname), int(parts.port or 80)
        named = {"host": f"{self._host}:{self._port}", **(headers or {})}
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in named.items())
        self._idle: list[_HttpConnection] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for line in self._idle:
            line.close()

    def spelled(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """Return a request as it goes over the wire."""
        about = "" if body is None else f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        return f"{method} {path} HTTP/1.1\r\n{self._headers}{about}\r\n".encode() + (body or b"")

    async def send(self, request: bytes) -> bytes:
        """Return the whole answer to a request.

        Raises:
            AnswerError: it is none of success.
        """
        line = await self._line()
        answer = await line.ask(request)
        if not answer.startswith(b"HTTP/1.1 2"):
            raise AnswerError(answer.decode("utf-8", "replace"))
        self._idle.append(line)
        return answer

    async def _line(self) -> _HttpConnection:
        while self._idle:
            line = self._idle.pop()
            if line.is_open:
                return line
        _, line = await asyncio.get_running_loop().create_connection(_HttpConnection, self._host, self._port)
        return line

    @asynccontextmanager
    async def changes(self, path: str) -> AsyncIterator[Versions]:
        """A stream of changes: the newest version that it has told of."""
        reader, writer = await asyncio.open_connection(self._host, self._port)
        writer.write(self.spelled("GET", path))
        await reader.readuntil(b"event: started")
        versions = Versions()
        task = asyncio.create_task(_followed(reader, versions))
        try:
            yield versions
        finally:
            task.cancel()
            writer.close()


class Versions:
    """The newest version that was told of, to be waited for."""

    def __init__(self) -> None:
        self._newest = 0
        self._news = asyncio.Event()

    def tell(self, version: int) -> None:
        """There is a newer one."""
        self._newest = version
        self._news.set()

    async def reach(self, version: int) -> None:
        """Return when this version was told of."""
        while self._newest < version:
            self._news.clear()
            await self._news.wait()


async def _followed(reader: asyncio.StreamReader, versions: Versions) -> None:
    while data := await reader.read(65_536):
        if found := _EVENT.findall(data):
            versions.tell(int(found[-1]))
