"""A TCP proxy before a Redis server, or any other, that resets, stalls, refuses and loses replies on command.

It reads requests and replies as RESP frames, so that it knows which reply belongs to which request even
when a client pipelines hundreds of them over one connection. It does not follow connections that
subscribe (their messages answer no request): use `reset_all` for those.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self
from urllib.parse import parse_qs, urlsplit

import hiredis

_CHUNK_BYTES = 65_536
_LINGER_ZERO = struct.pack("ii", 1, 0)
_MORE: Final = object()


class ChaosProxy:
    """Stands between a client and one server; open it as an async context manager.

    Args:
        upstream: URL of the server: `redis://host:port/0` or `unix:///path/to/socket?db=0`.
        tls: what it speaks TLS to clients with; None for plain connections.
        understands: whether what comes through is Redis' protocol, so that replies can be lost one by one.

    Attributes:
        cut: set whenever a reply was lost; clear it before you wait for the next one.
        connected: set whenever a client was let in.
        refused: set whenever a client was turned away.
        held: set whenever the black hole swallowed something.
        cuts: how many replies were lost so far.
    """

    def __init__(self, upstream: str, *, tls: ssl.SSLContext | None = None, understands: bool = True) -> None:
        self.cut = asyncio.Event()
        self.connected = asyncio.Event()
        self.refused = asyncio.Event()
        self.held = asyncio.Event()
        self.cuts = 0
        self._upstream = urlsplit(upstream)
        self._tls = tls
        self.understands = understands
        self._server: asyncio.Server | None = None
        self._links: dict[_Link, asyncio.Task[None]] = {}
        self._losses: list[_Loss] = []
        self._flow = asyncio.Event()
        self._flow.set()
        self._delay_s = 0.0
        self._refuses = False

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._tls)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self._flow.set()
        while self._links:
            self.reset_all()
            await asyncio.gather(*self._links.values())
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        """Where clients connect: loopback, with the credentials and database of the upstream URL."""
        assert self._server is not None, "enter the proxy first"
        port = self.port
        credentials, at, _ = self._upstream.netloc.rpartition("@")
        database = self._upstream.path.lstrip("/")
        if self._upstream.scheme == "unix":
            database = parse_qs(self._upstream.query).get("db", ["0"])[0]
        return f"{'rediss' if self._tls else 'redis'}://{credentials}{at}127.0.0.1:{port}/{database}"

    @property
    def port(self) -> int:
        """The loopback port on which clients are let in."""
        assert self._server is not None, "enter the proxy first"
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def lose_replies(self, match: bytes, times: int = 1, *, skip: int = 0) -> None:
        """Lose the replies of requests still to come: the server answers, the client is reset instead.

        From a matching request on, its connection hears nothing more, not even replies to earlier
        requests that are still on their way.

        Args:
            match: bytes that the arguments of the request contain, joined by blanks, e.g. `b"SET k"`.
            times: how many requests lose their reply, each with a reset of its own.
            skip: how many matching requests are let through before that.
        """
        self._losses.append(_Loss(match, skip, times))

    def reset_all(self) -> int:
        """Reset all connections at once; returns how many there were."""
        for link in self._links:
            link.reset()
        return len(self._links)

    @contextlib.contextmanager
    def black_hole(self) -> Iterator[None]:
        """Nothing comes through in either direction inside the block; what was held comes through after it."""
        self._flow.clear()
        try:
            yield
        finally:
            self._flow.set()

    @contextlib.contextmanager
    def delayed(self, seconds: float) -> Iterator[None]:
        """Every piece of data is that many seconds late inside the block."""
        self._delay_s = seconds
        try:
            yield
        finally:
            self._delay_s = 0.0

    @contextlib.contextmanager
    def refusing(self) -> Iterator[None]:
        """New connections are reset at once inside the block; existing ones go on."""
        self._refuses = True
        try:
            yield
        finally:
            self._refuses = False

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuses:
            _reset(writer)
            self.refused.set()
            return
        link = _Link(self, reader, writer)
        task = self._links[link] = asyncio.create_task(link.run())
        task.add_done_callback(lambda _: self._links.pop(link))
        self.connected.set()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._upstream.scheme == "unix":
            return await asyncio.open_unix_connection(self._upstream.path)
        return await asyncio.open_connection(self._upstream.hostname, self._upstream.port or 6379)

    async def weather(self) -> None:
        """Hold data back as the blocks in force say."""
        if self._delay_s:
            await asyncio.sleep(self._delay_s)
        if not self._flow.is_set():
            self.held.set()
            await self._flow.wait()

    def is_to_be_lost(self, request: bytes) -> bool:
        return any(loss.takes(request) for loss in self._losses)

    def note_cut(self) -> None:
        self.cuts += 1
        self.cut.set()


class _Link:
    """One client's connection and its twin to the server."""

    def __init__(self, proxy: ChaosProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._from_client, self._to_client = reader, writer
        self._to_server: asyncio.StreamWriter | None = None
        self._requests, self._replies = (_Frames() if proxy.understands else _Bytes() for _ in range(2))
        self._last_words: int | None = None  # number of the reply after which the link is cut
        self._is_cut = False

    async def run(self) -> None:
        """Carry bytes both ways until one side leaves or the link is cut."""
        try:
            from_server, self._to_server = await self._proxy.connect()
        except OSError:
            self.reset()
            return
        pumps = [
            asyncio.create_task(self._carry_requests(self._to_server)),
            asyncio.create_task(self._carry_replies(from_server)),
        ]
        done, pending = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pending:
            pump.cancel()
        await asyncio.wait(pumps)
        if self._last_words is not None and not self._is_cut:
            # It ended, e.g. by `reset_all`, before the doomed reply came: lost all the same, and somebody waits for it.
            self._proxy.note_cut()
        await self._close()
        for pump in done:
            pump.result()

    def reset(self) -> None:
        """Let the client see a reset connection, and leave the server."""
        _reset(self._to_client)
        if self._to_server is not None:
            self._to_server.transport.abort()

    async def _carry_requests(self, server: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while chunk := await self._from_client.read(_CHUNK_BYTES):
                await self._proxy.weather()
                self._mark(chunk)
                server.write(chunk)
                await server.drain()

    def _mark(self, chunk: bytes) -> None:
        """Doom the link if a request of this chunk is to lose its reply."""
        seen = self._requests.count
        for number, request in enumerate(self._requests.feed(chunk), start=seen + 1):
            if self._last_words is None and self._proxy.is_to_be_lost(_format_command(request)):
                self._last_words = number

    async def _carry_replies(self, server: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while chunk := await server.read(_CHUNK_BYTES):
                await self._proxy.weather()
                self._replies.feed(chunk)
                if self._last_words is None:
                    self._to_client.write(chunk)
                    await self._to_client.drain()
                elif self._replies.count >= self._last_words:
                    self.reset()
                    self._is_cut = True
                    self._proxy.note_cut()
                    return

    async def _close(self) -> None:
        for writer in (self._to_client, self._to_server):
            if writer is not None:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()


@dataclass(slots=True)
class _Loss:
    """An order to lose replies, and how much of it is still to do."""

    match: bytes
    skip: int
    times: int

    def takes(self, request: bytes) -> bool:
        """Whether this request is the next to lose its reply."""
        if not self.times or self.match not in request:
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.times -= 1
        return True


class _Bytes:
    """One direction of a connection that says we know not what."""

    count = 0

    def feed(self, _: bytes) -> list[object]:
        """Nothing."""
        return []


class _Frames:
    """Cuts one direction of a connection into RESP frames, and counts the ones that belong to a request."""

    def __init__(self) -> None:
        self.count = 0
        self._reader = hiredis.Reader(notEnoughData=_MORE)

    def feed(self, chunk: bytes) -> list[object]:
        """The frames that this chunk completes, without pushed ones."""
        self._reader.feed(chunk)
        frames: list[object] = []
        while (frame := self._reader.gets()) is not _MORE:
            if not isinstance(frame, hiredis.PushNotification):
                frames.append(frame)
        self.count += len(frames)
        return frames


def _format_command(request: object) -> bytes:
    return b" ".join(part for part in request if isinstance(part, bytes)) if isinstance(request, list) else b""


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST instead of FIN, and drop what was not yet sent."""
    if not writer.transport.is_closing():
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
    writer.transport.abort()
