"""The REST service in this process, on fakeredis, as tests ask it: no port, no server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from sharedmem.faces.rest import RestApplication
from support.tokens import bearer_header

PREFIX = "/api/v1"


class AsgiResponse(NamedTuple):
    """What the service said."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def data(self) -> Any:
        """The JSON in it."""
        return json.loads(self.body)


PATIENCE_S = 300
"""Longer than any answer takes on a busy machine: only a test that hangs waits so long."""


@dataclass
class PendingRequest:
    """A request under way, for answers that go on."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    began: asyncio.Event = field(default_factory=asyncio.Event)
    chunks: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)
    """What has come; None is the end."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set it to leave."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the service is done with it."""
    takes: asyncio.Event = field(default_factory=asyncio.Event)
    """Clear it to take nothing more for a while, as a reader does whose buffers are full."""

    def __post_init__(self) -> None:
        self.takes.set()

    def over(self) -> None:
        """The service is done with it."""
        self.began.set()
        self.ended.set()

    async def take(self, message: Any) -> None:
        """What the service sends, as ASGI hands it over."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            self.began.set()
            return
        await self.takes.wait()
        if message.get("body"):
            await self.chunks.put(message["body"])
        if not message.get("more_body"):
            await self.chunks.put(None)


class AsgiCaller:
    """Asks an application in this process.

    Args:
        app: the application.
        token: shown with each request; None shows nothing.
    """

    def __init__(self, app: RestApplication, token: str | None = None) -> None:
        self._app = app
        self._token = token

    async def __call__(
        self, method: str, path: str, body: object = None, *, headers: dict[str, str] | None = None
    ) -> AsgiResponse:
        """Ask, and take the whole answer; below /api/v1, with a body as JSON unless it is bytes."""
        async with self.asking(method, path, body, headers=headers) as asked:
            parts = []
            while (chunk := await asked.chunks.get()) is not None:
                parts.append(chunk)
            return AsgiResponse(asked.status, asked.headers, b"".join(parts))

    @asynccontextmanager
    async def asking(
        self, method: str, path: str, body: object = None, *, headers: dict[str, str] | None = None, reads: bool = True
    ) -> AsyncIterator[PendingRequest]:
        """Ask, and give back what comes while it comes; the end of the block leaves. `reads` is whether it takes it."""
        asked = PendingRequest()
        if not reads:
            asked.takes.clear()
        pieces = body_chunks(body)

        async def receive() -> dict[str, Any]:
            piece = next(pieces, None)
            if piece is not None:
                return piece
            await asked.gone.wait()
            return {"type": "http.disconnect"}

        task = asyncio.ensure_future(self._app(self.scope(method, path, body, headers), receive, asked.take))
        task.add_done_callback(lambda _: asked.over())
        try:
            async with asyncio.timeout(PATIENCE_S):
                await asked.began.wait()
                if task.done():
                    await task
            yield asked
        finally:
            asked.gone.set()
            async with asyncio.timeout(PATIENCE_S):
                await task

    def scope(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """What the application is told of a request."""
        sent = {"host": "test", **(headers or {})}
        if self._token is not None:
            sent = {"authorization": bearer_header(self._token)} | sent
        if body is not None and not isinstance(body, bytes):
            sent = {"content-type": "application/json"} | sent
        parts = urlsplit(path if path.startswith(PREFIX) else PREFIX + path)
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": parts.path,
            "raw_path": parts.path.encode(),
            "query_string": parts.query.encode(),
            "root_path": "",
            "headers": [(name.lower().encode(), value.encode()) for name, value in sent.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
            "state": {},
        }


def body_chunks(body: object) -> Iterator[dict[str, Any]]:
    """A body as the server hands it over: in pieces, when it is long."""
    sent = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    size = 65_536
    pieces = [sent[start : start + size] for start in range(0, len(sent), size)] or [b""]
    for number, piece in enumerate(pieces, start=1):
        yield {"type": "http.request", "body": piece, "more_body": number < len(pieces)}


def quote_segment(part: str) -> str:
    """A name as it is written in a path."""
    return quote(part, safe="")


class StreamEvent(NamedTuple):
    """One event of a stream."""

    name: str
    data: Any
    id: str | None


class EventReader:
    """Reads the events of a stream that was asked for.

    Args:
        asked: the request.
    """

    def __init__(self, asked: PendingRequest) -> None:
        self._asked = asked
        self._text = b""
        self.comments = 0
        self.retry_ms: int | None = None

    async def next(self) -> StreamEvent | None:
        """The next event; None at the end of the stream. Comments are counted on the way."""
        while True:
            block = await self._block()
            if block is None:
                return None
            fields = dict(line.split(": ", 1) for line in block.decode().splitlines())
            if "data" in fields:
                return StreamEvent(fields["event"], json.loads(fields["data"]), fields.get("id"))
            self.comments += "" in {line.partition(":")[0] for line in block.decode().splitlines()}
            self.retry_ms = int(fields["retry"]) if "retry" in fields else self.retry_ms

    async def _block(self) -> bytes | None:
        while b"\n\n" not in self._text:
            async with asyncio.timeout(PATIENCE_S):
                chunk = await self._asked.chunks.get()
            if chunk is None:
                return None
            self._text += chunk
        block, self._text = self._text.split(b"\n\n", 1)
        return block
