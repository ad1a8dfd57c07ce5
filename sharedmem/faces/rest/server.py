"""The REST server: an application on a port (uvicorn), disconnection of slow clients, graceful shutdown.

uvicorn waits for as long as it takes until the head of a request is complete. A few hundred callers that send a byte
a minute would hold its connections for ever, or a head without an end all its memory. Likewise it waits for ever for
readers that take nothing of their answer.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any, Protocol, Self

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from sharedmem.errors import ConfigError, UnavailableError
from sharedmem.faces.listen_address import ListenAddress, check_access
from sharedmem.hub import Hub
from sharedmem.runtime import get_logger

HEAD_WITHIN_S = 15.0
READ_WITHIN_S = 60.0
MOST_HEAD_BYTES = 256 * 1024
_MOST_JOINED_BYTES = 64 * 1024

# Whichever of its two parsers is installed.
_UvicornProtocol: Any = AutoHTTPProtocol


class _JoinedWrites:
    """A transport that sends the head of an answer together with its body, which uvicorn writes apart.

    Half as many system calls and packets. What no second write follows is sent at the end of the tick.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._held = b""

    def write(self, data: bytes) -> None:
        """Hold data, or send it with what is held; a large body is not copied for that."""
        if len(data) > _MOST_JOINED_BYTES:
            self._flush()
            self._transport.write(data)
        elif self._held:
            self._held += data
            self._flush()
        elif data:
            self._held = data
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        """Close after everything was sent."""
        self._flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def _flush(self) -> None:
        held, self._held = self._held, b""
        if held:
            self._transport.write(held)


class SlowClientProtocol(_UvicornProtocol):  # type: ignore[misc]  # which class it is depends on what is installed
    """One connection, whose heads of requests have to be here, and whose answers have to be read, in time."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Begin to wait for the first head."""
        super().connection_made(_JoinedWrites(transport, self.loop))
        self._head: asyncio.TimerHandle | None = self.loop.call_later(HEAD_WITHIN_S, self.transport.close)
        self._head_bytes = 0
        self._unread: asyncio.TimerHandle | None = None

    def pause_writing(self) -> None:
        """The reader takes less than it is sent: hang up, unless it goes on in time."""
        super().pause_writing()
        # Closing would wait for the reader too.
        self._unread = self._unread or self.loop.call_later(READ_WITHIN_S, self.transport.abort)

    def resume_writing(self) -> None:
        """The reader has taken what it was sent."""
        self._read()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Go on waiting while a head is not complete."""
        before = self.cycle
        super().data_received(data)
        if self.cycle is before and (before is None or before.response_complete):
            self._head = self._head or self.loop.call_later(HEAD_WITHIN_S, self.transport.close)
            self._head_bytes += len(data)
            if self._head_bytes > MOST_HEAD_BYTES:
                self.transport.close()
        else:
            self._head_bytes = 0
            self._wait_no_more()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        self._wait_no_more()
        self._read()
        super().connection_lost(exc)

    def _read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _wait_no_more(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None


PORT = 8420
GRACE_S = 10.0
_BACKLOG = 2048
_KEEP_ALIVE_S = 30
_STARTS_WITHIN_S = 30.0
_logger = get_logger("rest")


class ServedApplication(Protocol):
    """What the server needs to know of an application, as its `state.service`."""

    @property
    def hub(self) -> Hub:
        """The memory behind it."""

    def end_streams(self) -> None:
        """Tell streams to end."""


class RestServer:
    """Serves an application: `async with RestServer(create_app(hub), Address(port=8420)) as server: ...`.

    Args:
        app: as `create_app` makes it, or another application with a `ServedApplication`.
        address: where to listen.
        has_tokens: whether callers have to show tokens; without it only this machine may reach the server.
        listening: a socket that listens already, when several processes share it.
        grace_s: seconds that calls under way get to end when the server stops.
    """

    def __init__(
        self,
        app: Starlette,
        address: ListenAddress | None = None,
        *,
        has_tokens: bool = False,
        listening: socket.socket | None = None,
        grace_s: float = GRACE_S,
    ) -> None:
        self._service: ServedApplication = app.state.service
        self._app = app
        self._address = address or ListenAddress(port=PORT)
        self._has_tokens = has_tokens
        self._listening = listening
        self._grace_s = grace_s
        self._running: tuple[_Uvicorn, asyncio.Task[None]] | None = None

    @property
    def address(self) -> ListenAddress:
        """Where it listens; while it runs with its real port."""
        return self._address

    @property
    def url(self) -> str:
        """What clients of this machine take to find it."""
        return f"{'https' if self._address.is_tls() else 'http'}://{self._address.address}"

    async def start(self) -> None:
        """Listen.

        Raises:
            ConfigError: the address cannot be listened at, a certificate is of no use, strangers could come in, or
                there are tokens while the hub's access policy is `open`.
            UnavailableError: the application did not start.
        """
        self._address.check(has_tokens=self._has_tokens)
        check_access(self._service.hub.settings, has_tokens=self._has_tokens)
        await asyncio.to_thread(self._address.check_files)
        sock = self._listening or open_socket(self._address)
        self._address = replace(self._address, port=sock.getsockname()[1])
        server = _Uvicorn(self._config())
        task = asyncio.create_task(server.serve(sockets=[sock]), name="rest server")
        ready = asyncio.create_task(server.ready.wait())
        await asyncio.wait({task, ready}, timeout=_STARTS_WITHIN_S, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            ready.cancel()
            sock.close()
            server.should_exit = True
            raise UnavailableError(f"the server at {self.url}", "the application did not start; its log says why")
        self._running = server, task

    async def wait(self) -> None:
        """Return when the server has stopped."""
        if self._running is not None:
            await asyncio.wait({self._running[1]})

    async def stop(self) -> None:
        """Take no more calls, end streams with a word, and let the other calls end in their time.

        The second call does nothing.
        """
        running, self._running = self._running, None
        if running is None:
            return
        server, task = running
        self._service.end_streams()
        server.should_exit = True
        await task

    def _config(self) -> uvicorn.Config:
        files = self._address
        return uvicorn.Config(
            self._app,
            http=SlowClientProtocol,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            ws="none",
            lifespan="on",
            backlog=_BACKLOG,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=int(self._grace_s) or 1,
            ssl_certfile=None if files.tls_cert_file is None else str(files.tls_cert_file),
            ssl_keyfile=None if files.tls_key_file is None else str(files.tls_key_file),
            ssl_ca_certs=None if files.tls_client_ca_file is None else str(files.tls_client_ca_file),
            ssl_cert_reqs=2 if files.tls_client_ca_file is not None else 0,
        )

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def __repr__(self) -> str:
        return f"<RestServer {self.url}>"


def quick_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes the quickest event loop that is installed; None where that is the usual one."""
    return uvicorn.Config("", log_config=None).get_loop_factory()


def open_socket(address: ListenAddress) -> socket.socket:
    """A socket that listens at an address.

    Raises:
        ConfigError: the port is in use, or the address is not of this machine.
    """
    try:
        kind, *_, place = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        # With its protocol named, asyncio sends small answers at once instead of after 40 ms (Nagle's algorithm).
        sock = socket.socket(kind, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    except OSError as error:
        raise _listen_error(address, error) from error
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(place)
        sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        raise _listen_error(address, error) from error
    sock.setblocking(False)
    return sock


def _listen_error(address: ListenAddress, error: OSError) -> ConfigError:
    field = "host" if isinstance(error, socket.gaierror) else "port"
    return ConfigError(field, "argument", f"cannot listen at {address.address}: {error.strerror}; choose another")


class _Uvicorn(uvicorn.Server):
    """A uvicorn that says when it listens, and leaves signals to who runs it."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.ready.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
