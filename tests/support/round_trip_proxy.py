"""A TCP proxy before Redis servers that counts how many round trips their clients make one after the other."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from types import TracebackType
from typing import Self

_CHUNK_BYTES = 1 << 20


class RoundTripProxy:
    """Stands between clients and servers on loopback ports; open it as an async context manager.

    Requests pass at once, on any number of connections. Replies are held back until no request has come for
    `quiet_s`: what a client sends without having seen a reply belongs to the same round trip, however many
    connections, commands and packets that takes. Where servers name each other's ports in replies, clients read those
    of the proxy.

    Args:
        ports: of the servers.
        quiet_s: how long no request comes before the replies pass.
        answered: round trips after which no reply passes any more; None for no end.

    Attributes:
        trips: round trips so far.
        connections: connections so far.
    """

    def __init__(self, *ports: int, quiet_s: float = 0.05, answered: int | None = None) -> None:
        self.trips = 0
        self.connections = 0
        self._upstreams = ports
        self._quiet_s = quiet_s
        self._answered = answered
        self._is_new = False  # whether a request came since replies passed
        self._last_request = 0.0
        self._servers: dict[int, asyncio.Server] = {}
        self._carriers: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._held: list[tuple[asyncio.StreamWriter, bytes]] = []
        self._release: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        for port in self._upstreams:
            self._servers[port] = await asyncio.start_server(functools.partial(self._accept, port), "127.0.0.1", 0)
            assert len(str(port)) == len(str(self.port_for(port))), "replies that name a port would change their length"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self._servers.values():
            server.close()
        if self._release is not None:
            self._release.cancel()
        for writer in self._writers:
            writer.transport.abort()
        for carrier in self._carriers:
            carrier.cancel()
        await asyncio.gather(*self._carriers, return_exceptions=True)
        await asyncio.gather(*(writer.wait_closed() for writer in self._writers), return_exceptions=True)

    def port_for(self, upstream: int) -> int:
        """The loopback port on which clients of a server are let in."""
        port: int = self._servers[upstream].sockets[0].getsockname()[1]
        return port

    async def _accept(self, upstream: int, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        self.connections += 1
        from_server, to_server = await asyncio.open_connection("127.0.0.1", upstream)
        self._writers |= {to_client, to_server}
        for carry in (self._requests(from_client, to_server), self._replies(from_server, to_client)):
            task = asyncio.create_task(carry)
            self._carriers.add(task)
            task.add_done_callback(self._carriers.discard)

    async def _requests(self, client: asyncio.StreamReader, server: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while chunk := await client.read(_CHUNK_BYTES):
                self._last_request = asyncio.get_running_loop().time()
                self._is_new = True
                server.write(chunk)
        server.close()

    async def _replies(self, server: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while chunk := await server.read(_CHUNK_BYTES):
                self._hold(client, chunk)
        self._hold(client, b"")

    def _hold(self, client: asyncio.StreamWriter, chunk: bytes) -> None:
        for port in self._upstreams:
            chunk = chunk.replace(b"%d" % port, b"%d" % self.port_for(port))
        self._held.append((client, chunk))
        if self._release is None:
            self._release = asyncio.get_running_loop().call_later(self._quiet_s, self._pass_on)

    def _pass_on(self) -> None:
        """Let what is held pass, unless a request came just now."""
        loop = asyncio.get_running_loop()
        ends_at = self._last_request + self._quiet_s
        if loop.time() < ends_at:
            self._release = loop.call_at(ends_at, self._pass_on)
            return
        self._release = None
        if self._answered is not None and self._is_new and self.trips >= self._answered:
            return
        held, self._held = self._held, []
        # A long answer that comes in pieces is one answer.
        self.trips += self._is_new
        self._is_new = False
        for client, chunk in held:
            if chunk:
                client.write(chunk)
            else:
                client.close()
