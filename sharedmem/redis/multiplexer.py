"""The multiplexed connection: the ordinary calls of all tasks share one connection.

Every call is queued at once, and replies arrive in the same order. Calls of one event-loop tick are sent in one packet,
so that they share the cost of the system call. Commands with slow replies (blocking ones, large replies) would delay
the others, so they use other connections.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, cast

import hiredis

from sharedmem.config import Settings
from sharedmem.redis.address import RedisAddress
from sharedmem.redis.credentials import Credentials, Login
from sharedmem.redis.replies import (
    LOGIN_REFUSALS,
    Command,
    Load,
    LostError,
    Reply,
    ServerError,
    raise_if_error,
)

if TYPE_CHECKING:
    from sharedmem.redis.pooled import Server

_NOTHING: Final = object()
_MOST_IN_FLIGHT = 20_000
# Concurrent commands are sent in packets of this size: the server executes one while the next is built.
_PACKET = 25
_CHECKS_PER_TIMEOUT = 4
_MULTI, _EXEC = hiredis.pack_command(("MULTI",)), hiredis.pack_command(("EXEC",))


class _QueuedReply:
    """Consumes the `QUEUED` replies of a transaction; the first refusal among them is the transaction's reply.

    Args:
        executed: awaits the reply.
    """

    __slots__ = ("_executed",)

    def __init__(self, executed: asyncio.Future[Reply]) -> None:
        self._executed = executed

    def done(self) -> bool:
        """Return whether no more replies are expected."""
        return False

    def set_result(self, reply: Reply) -> None:
        """Take a reply; the first refusal is the reason why no command is executed."""
        if isinstance(reply, ServerError) and not self._executed.done():
            self._executed.set_result(reply)

    def set_exception(self, error: Exception) -> None:
        """Ignore a lost connection: the future of the transaction itself reports it."""


class _RedisProtocol(asyncio.Protocol):
    """One connection: requests out, replies back in the same order."""

    def __init__(self, on_lost: Callable[[_RedisProtocol], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_lost = on_lost
        self._reader = hiredis.Reader(replyError=ServerError, notEnoughData=_NOTHING)
        self._waiting: deque[asyncio.Future[Reply] | _QueuedReply] = deque()
        self._outgoing: list[bytes] = []
        self._writable = True
        self._transport: asyncio.Transport | None = None
        self.congested = False
        """Whether a caller should wait for `relieved` before it sends more."""
        self.relieved: asyncio.Future[None] | None = None

    @property
    def waiting(self) -> deque[asyncio.Future[Reply] | _QueuedReply]:
        """Calls without a reply, oldest first."""
        return self._waiting

    def send(self, args: Command) -> asyncio.Future[Reply]:
        """Queue a command."""
        packed = hiredis.pack_command(args)  # type: ignore[arg-type]  # its stub forgets tuples of any length
        future = self._loop.create_future()
        waiting = self._waiting
        waiting.append(future)
        outgoing = self._outgoing
        if outgoing:
            outgoing.append(packed)
            if len(outgoing) >= _PACKET:
                self._flush()
            if len(waiting) > _MOST_IN_FLIGHT:
                self.congested = True
        elif len(waiting) == 1 and self._transport:
            # The server begins with the first command while the others are still being packed.
            self._transport.write(packed)
        else:
            outgoing.append(packed)
            self._loop.call_soon(self._flush)
        return future

    def send_transaction(self, commands: Sequence[Command]) -> asyncio.Future[Reply]:
        """Queue commands as one transaction; those of one tick are sent together, as other commands are."""
        executed = self._loop.create_future()
        refusal = _QueuedReply(executed)
        waiting, outgoing = self._waiting, self._outgoing
        is_alone, is_first = not waiting, not outgoing
        outgoing += (_MULTI, *map(hiredis.pack_command, commands), _EXEC)  # type: ignore[arg-type]  # as in `send`
        waiting.extend([refusal] * (1 + len(commands)))
        waiting.append(executed)
        if is_alone or len(outgoing) >= _PACKET:
            self._flush()
        elif is_first:
            self._loop.call_soon(self._flush)
        if len(waiting) > _MOST_IN_FLIGHT:
            self.congested = True
        return executed

    async def send_pipelined(self, commands: Sequence[Command]) -> list[Reply]:
        """Queue commands one after the other, and return their replies; the replies of rejected commands are errors."""
        # All are queued before the first reply is awaited.
        return list(await asyncio.gather(*[self.send(command) for command in commands]))

    def _flush(self) -> None:
        if self._transport and self._outgoing:
            self._transport.write(b"".join(self._outgoing))
        self._outgoing.clear()

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not asserted: the transports of uvloop are not subclasses.
        self._transport = cast("asyncio.Transport", transport)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family != getattr(socket, "AF_UNIX", None):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        reader, waiting = self._reader, self._waiting
        try:
            reader.feed(data)
            while (reply := reader.gets()) is not _NOTHING:
                future = waiting.popleft()
                if not future.done():  # the reply of a cancelled caller arrives nevertheless
                    future.set_result(reply)
        except (hiredis.ProtocolError, IndexError):
            self.abort()
        if self.congested and self._writable and len(waiting) < _MOST_IN_FLIGHT // 2:
            self._resume_senders()

    def pause_writing(self) -> None:
        self._writable = False
        self.congested = True

    def resume_writing(self) -> None:
        self._writable = True
        self._resume_senders()

    def _resume_senders(self) -> None:
        self.congested = False
        relieved, self.relieved = self.relieved, None
        if relieved is not None and not relieved.done():
            relieved.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._on_lost(self)
        self._resume_senders()
        lost = LostError(str(exc) if exc else "the connection was closed")
        lost.__cause__ = exc
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_exception(lost)


class _PushProtocol(_RedisProtocol):
    """A connection on which the server also sends pushes of RESP3, which are replies to no call."""

    def __init__(self, on_lost: Callable[[_RedisProtocol], None], on_push: Callable[[list[Reply]], None]) -> None:
        super().__init__(on_lost)
        self._on_push = on_push

    def data_received(self, data: bytes) -> None:
        reader, waiting = self._reader, self._waiting
        try:
            reader.feed(data)
            while (reply := reader.gets()) is not _NOTHING:
                if isinstance(reply, hiredis.PushNotification):
                    self._on_push(reply)
                elif not (future := waiting.popleft()).done():
                    future.set_result(reply)
        except (hiredis.ProtocolError, IndexError):
            self.abort()


def open_multiplexed(
    address: RedisAddress, settings: Settings, credentials: Credentials | None
) -> MultiplexedConnection:
    """Return the multiplexed connection to one server, not yet connected."""
    return MultiplexedConnection(
        address,
        connect_timeout_s=settings.connect_timeout_s,
        response_timeout_s=settings.response_timeout_s,
        credentials=credentials,
    )


class MultiplexedConnection:
    """A connection that many tasks share and that reconnects by itself.

    Args:
        address: address of the server.
        connect_timeout_s: limit for a new connection, log-in included.
        response_timeout_s: a connection whose oldest call waits longer than this is closed.
        credentials: log in; None: user and password of the address.
        on_push: receives the pushes of RESP3; without it there must be none.
        on_lost: is called when the connection is lost.
    """

    def __init__(
        self,
        address: RedisAddress,
        *,
        connect_timeout_s: float,
        response_timeout_s: float,
        credentials: Credentials | None = None,
        on_push: Callable[[list[Reply]], None] | None = None,
        on_lost: Callable[[], None] | None = None,
    ) -> None:
        self._credentials = credentials
        if credentials is not None:
            credentials.add(self)
        self._on_push = on_push
        self._when_lost = on_lost
        self._address = address
        self._connect_timeout_s = connect_timeout_s
        self._response_timeout_s = response_timeout_s
        self._link: _RedisProtocol | None = None
        self._opening: asyncio.Task[None] | None = None
        self._check: asyncio.TimerHandle | None = None
        self._oldest: asyncio.Future[Reply] | _QueuedReply | None = None
        self._checks_without_progress = 0
        self._closed = False
        self.generation = 0
        """A number that rises when the connection is lost, and when there is a new one."""

    @property
    def load(self) -> Load:
        """The load of the connection."""
        link = self._link
        return Load(0, 0) if link is None else Load(1, len(link.waiting))

    @property
    def is_closed(self) -> bool:
        """Whether its owner has closed it."""
        return self._closed

    def sibling(
        self,
        *,
        wait_s: float,
        on_push: Callable[[list[Reply]], None] | None = None,
        on_lost: Callable[[], None] | None = None,
    ) -> MultiplexedConnection:
        """Return another connection to the same server, whose calls may wait `wait_s` longer for their replies."""
        return MultiplexedConnection(
            self._address,
            connect_timeout_s=self._connect_timeout_s,
            response_timeout_s=self._response_timeout_s + wait_s,
            credentials=self._credentials,
            on_push=on_push,
            on_lost=on_lost,
        )

    def post(self, args: Command) -> asyncio.Future[Reply] | None:
        """Queue a command without waiting, if that is possible now.

        Returns:
            A future of the reply, which may be a `ServerError`; None if `send` must be used.
        """
        link = self._link
        if link is None or link.congested:
            return None
        if self._check is None:
            self._watch()
        return link.send(args)

    def post_many(self, commands: Sequence[Command]) -> asyncio.Future[Reply] | None:
        """Queue commands as one atomic transaction without waiting, if that is possible now.

        Returns:
            A future of the list of replies, or of the `ServerError` for which none has run; None if `send_many` must
            be used.
        """
        link = self._link
        if link is None or link.congested:
            return None
        if self._check is None:
            self._watch()
        return link.send_transaction(commands)

    async def send(self, args: Command) -> Reply:
        """Send one command and return its reply.

        Raises:
            ServerError: the server refused it.
            LostError: the connection was lost; the command may or may not have been executed.
        """
        link = await self._wait_until_usable()
        self._watch()
        return raise_if_error(await link.send(args))

    async def send_many(self, commands: Sequence[Command]) -> list[Reply]:
        """Send commands as one atomic transaction.

        Returns:
            The replies; that of a refused command is its `ServerError`.

        Raises:
            ServerError: the server refused to queue one of them, so none has run.
            LostError: the connection was lost.
        """
        link = await self._wait_until_usable()
        self._watch()
        replies = raise_if_error(await link.send_transaction(commands))
        assert isinstance(replies, list)
        return replies

    async def send_each(self, commands: Sequence[Command]) -> list[Reply]:
        """Send commands in one packet, each on its own; a refused command's reply is its `ServerError`.

        Raises:
            LostError: the connection was lost.
        """
        link = await self._wait_until_usable()
        self._watch()
        return await link.send_pipelined(commands)

    async def servers(self, near: bytes | None) -> list[Server]:  # noqa: ARG002  # only a cluster must choose
        """Return the servers of the key `near`, or all servers with keys: here there is only one."""
        return [None]

    async def ready(self) -> None:
        """Connect if necessary: one attempt.

        Raises:
            LostError: no connection is possible now.
            ServerError: the server refused the log-in.
        """
        if self._closed:
            raise LostError("this hub is closed")
        if self._link is None:
            if self._opening is None:
                self._opening = asyncio.ensure_future(self._open())
                self._opening.add_done_callback(_consume_exception)
            opening = self._opening
            try:
                await asyncio.shield(opening)
            finally:
                if opening.done() and self._opening is opening:
                    self._opening = None

    async def authenticate(self, login: Login) -> None:
        """Log the live connection in with other credentials, in order with its calls; a later one takes them itself.

        Raises:
            ServerError: the server refused; the connection keeps its log-in.
            LostError: the connection was lost.
        """
        if self._link is not None:
            self._watch()
            raise_if_error(await self._link.send(("AUTH", login.username, login.password)))

    async def close(self) -> None:
        """Close the connection; running calls fail with `LostError`."""
        opening = self._opening
        self.drop()
        if opening is not None:
            with suppress(asyncio.CancelledError, LostError, ServerError):
                await opening
        await asyncio.sleep(0)  # let the transport call connection_lost

    def drop(self) -> None:
        """As `close`, without waiting."""
        self._closed = True
        if self._check is not None:
            self._check.cancel()
        if self._opening is not None:
            self._opening.cancel()
        if self._link is not None:
            self._link.abort()

    async def _wait_until_usable(self) -> _RedisProtocol:
        await self.ready()
        link = self._link
        while link is not None and link.congested:
            if link.relieved is None:
                link.relieved = asyncio.get_running_loop().create_future()
            await asyncio.shield(link.relieved)
            link = self._link
        if link is None:
            raise LostError("the connection was closed")
        return link

    async def _open(self) -> None:
        credentials = self._credentials
        renewals = 0 if credentials is None else credentials.renewals
        login = None if credentials is None else await credentials.login()
        await self._open_as(login)
        if credentials is not None and credentials.renewals != renewals and credentials.latest is not None:
            # Changed while this connection was opened: it was not there to be renewed.
            with suppress(ServerError, LostError):
                await self.authenticate(credentials.latest)

    async def _open_as(self, login: Login | None) -> None:
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                link = await self._connect()
                await self._log_in(link, login)
        except LostError as error:
            # Since TLS 1.3 a server rejects a missing or wrong client certificate only after the handshake.
            unshown = self._address.tls and self._address.tls_cert_file is None
            hint = ", perhaps because no client certificate is set (tls_cert_file)" if unshown else ""
            raise LostError(f"{error}{hint}") from error
        except TimeoutError as error:
            what = "TLS connection" if self._address.tls else "connection"
            raise LostError(f"no {what} within {self._connect_timeout_s:g} s") from error
        except OSError as error:
            raise LostError(str(error)) from error
        self._link = link
        self.generation += 1

    async def _connect(self) -> _RedisProtocol:
        loop = asyncio.get_running_loop()
        address = self._address
        if address.path:
            _, link = await loop.create_unix_connection(self._new_link, address.path)
        else:
            host, port = address.hosts[0]
            _, link = await loop.create_connection(self._new_link, host, port, ssl=address.ssl_context())
        return link

    def _new_link(self) -> _RedisProtocol:
        return _RedisProtocol(self._on_lost) if self._on_push is None else _PushProtocol(self._on_lost, self._on_push)

    async def _log_in(self, link: _RedisProtocol, login: Login | None) -> None:
        commands = self._address.login_commands(None if login is None else (login.username, login.password))
        try:
            for reply in await link.send_pipelined(commands or [("PING",)]):
                # A server that is loading its data refuses the ping; what it still serves, the calls find out.
                if not isinstance(reply, ServerError) or not reply.is_transient:
                    raise_if_error(reply)
        except BaseException as error:
            link.abort()
            refused = isinstance(error, ServerError) and error.code in LOGIN_REFUSALS
            if refused and self._credentials is not None:
                raise self._credentials.rejection(cast("ServerError", error)) from error
            raise

    def _on_lost(self, link: _RedisProtocol) -> None:
        if self._link is link:
            self._link = None
            self.generation += 1
            if self._when_lost is not None:
                self._when_lost()

    # One timer for all calls: replies keep their order, so checking the oldest call is enough.

    def _watch(self) -> None:
        if self._check is None and not self._closed:
            pause = self._response_timeout_s / _CHECKS_PER_TIMEOUT
            self._check = asyncio.get_running_loop().call_later(pause, self._look)

    def _look(self) -> None:
        self._check = None
        link = self._link
        if link is None or not link.waiting:
            self._oldest = None
            return
        stuck = link.waiting[0] is self._oldest
        self._checks_without_progress = self._checks_without_progress + 1 if stuck else 0
        self._oldest = link.waiting[0]
        if self._checks_without_progress >= _CHECKS_PER_TIMEOUT:
            link.abort()
        self._watch()


def _consume_exception(task: asyncio.Task[None]) -> None:
    # All waiting callers may be cancelled; retrieve the exception so that the event loop does not log it.
    if not task.cancelled():
        task.exception()
