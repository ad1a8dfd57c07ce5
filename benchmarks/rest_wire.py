"""A small HTTP/1.1 client for measurements: persistent connections, and no more parsing than lengths require.

Its cost is part of every figure, so it must be small: it is a small part of the cost of any of the
services.
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
    """A response is not one of the measured ones."""


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
        """Whether the service has not closed the connection, as it does after a long silence."""
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
    """A client of one service, with as many connections as concurrent calls.

    Args:
        url: address of the service.
        headers: headers of every request.
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
        """Return the bytes of a request."""
        about = "" if body is None else f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        return f"{method} {path} HTTP/1.1\r\n{self._headers}{about}\r\n".encode() + (body or b"")

    async def send(self, request: bytes) -> bytes:
        """Return the whole response to a request.

        Raises:
            AnswerError: the response is not a success.
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
        """Open a stream of changes, and record the newest version in it."""
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
    """The newest version in a stream, to wait for."""

    def __init__(self) -> None:
        self._newest = 0
        self._news = asyncio.Event()

    def advance(self, version: int) -> None:
        """Record a newer version."""
        self._newest = version
        self._news.set()

    async def reach(self, version: int) -> None:
        """Return when this version has arrived."""
        while self._newest < version:
            self._news.clear()
            await self._news.wait()


async def _followed(reader: asyncio.StreamReader, versions: Versions) -> None:
    while data := await reader.read(65_536):
        if found := _EVENT.findall(data):
            versions.advance(int(found[-1]))
