"""Commands that a thread sends and waits for by itself, without an event loop: for blocking reads."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import hiredis

from sharedmem.config import Settings
from sharedmem.redis.address import RedisAddress
from sharedmem.redis.replies import Argument, Command, LostError, Reply, ServerError, raise_if_error
from sharedmem.runtime.concurrency import ProcessBound

_MOST_OPEN = 16
# A program of a few reads opens no further connection.
_READS_BEFORE_OPENING = 8
_CHUNK_BYTES = 1 << 16
_NOTHING: Final = object()


class BlockingConnections(ProcessBound):
    """Connections to one server that threads use in turn, each for one command at a time.

    They neither retry nor reconnect: a caller whose command fails sends it through the event loop instead.

    Args:
        address: a single server, with the user and password to log in.
        settings: timeouts, and the most connections.
    """

    def __init__(self, address: RedisAddress, settings: Settings) -> None:
        self._address = address
        self._settings = settings
        self._most = min(_MOST_OPEN, settings.max_connections)
        self._lock = threading.Lock()
        self._free: list[_BlockingConnection] = []
        self._open = 0
        self._reads_since_opening = 0
        self._closed = False

    def call(self, *args: Argument) -> Reply:
        """Send one command on a free connection: one round trip.

        Raises:
            LostError: no connection is free, or this one was lost; the command may or may not have been executed.
            ServerError: the server refused it.
        """
        try:
            connection = self._free.pop()
        except IndexError:
            raise LostError("no connection is free") from None
        try:
            reply = connection.call(args)
        except BaseException:  # a thread that is interrupted leaves a reply behind
            self._drop(connection)
            raise
        self._keep(connection)
        return raise_if_error(reply)

    @contextmanager
    def read_elsewhere(self) -> Iterator[None]:
        """Read through the event loop in this block; after several such reads there is one more connection.

        The event loop notices a server that lost its data when its own connection breaks. A connection that was opened
        before a read there succeeded is to the same start of the server, and breaks with it.
        """
        fresh = self._open_another() if self._is_another_due() else None
        try:
            yield
        except BaseException:
            self._reads_since_opening = 0
            if fresh is not None:
                self._drop(fresh)
            raise
        self._reads_since_opening += 1
        if fresh is not None:
            self._keep(fresh)

    def close(self) -> None:
        """Close all connections; one in use is closed after its command."""
        self._closed = True
        while self._free:
            try:
                connection = self._free.pop()
            except IndexError:  # another thread took it, and closes it
                return
            self._drop(connection)

    def _is_another_due(self) -> bool:
        with self._lock:
            if self._closed or self._open >= self._most or self._reads_since_opening < _READS_BEFORE_OPENING:
                return False
            self._open += 1
            self._reads_since_opening = 0
            return True

    def _open_another(self) -> _BlockingConnection | None:
        try:
            return _BlockingConnection(self._address, self._settings)
        except BaseException as error:
            with self._lock:
                self._open -= 1
            if isinstance(error, LostError | ServerError):
                return None  # the event loop reads on, and reports what is wrong
            raise

    def _keep(self, connection: _BlockingConnection) -> None:
        self._free.append(connection)
        if self._closed:
            self.close()

    def _drop(self, connection: _BlockingConnection) -> None:
        connection.close()
        with self._lock:
            self._open -= 1


class _BlockingConnection:
    """One connection, logged in.

    Raises:
        LostError: it cannot be opened.
        ServerError: the server refuses the log-in.
    """

    def __init__(self, address: RedisAddress, settings: Settings) -> None:
        self._reader = hiredis.Reader(replyError=ServerError, notEnoughData=_NOTHING)
        try:
            self._socket = _connect(address, settings.connect_timeout_s)
        except OSError as error:
            raise LostError(str(error)) from error
        try:
            self._socket.settimeout(settings.response_timeout_s)
            for command in address.login_commands():
                raise_if_error(self.call(command))
        except BaseException:
            self.close()
            raise

    def call(self, args: Command) -> Reply:
        """Send a command and return its reply, which may be a `ServerError`.

        Raises:
            LostError: the connection was lost, or is silent for the response timeout.
        """
        reader = self._reader
        reply: Reply
        try:
            self._socket.sendall(hiredis.pack_command(args))  # type: ignore[arg-type]  # as in the multiplexer
            while (reply := reader.gets()) is _NOTHING:
                data = self._socket.recv(_CHUNK_BYTES)
                if not data:
                    raise LostError("the connection was closed")
                reader.feed(data)
        except (OSError, hiredis.ProtocolError) as error:
            raise LostError(str(error)) from error
        return reply

    def close(self) -> None:
        self._socket.close()


def _connect(address: RedisAddress, timeout_s: float) -> socket.socket:
    if address.path:
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        link.settimeout(timeout_s)
        try:
            link.connect(address.path)
        except BaseException:
            link.close()
            raise
        return link
    link = socket.create_connection(address.hosts[0], timeout=timeout_s)
    try:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        context = address.ssl_context()
        return link if context is None else context.wrap_socket(link, server_hostname=address.hosts[0][0])
    except BaseException:
        link.close()
        raise
