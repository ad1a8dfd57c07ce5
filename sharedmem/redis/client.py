"""The client of Redis for all other packages: calls, retries, deadlines, errors, and spans (setting `trace_redis`).

sharedmem retries calls itself: a call whose reply was lost is repeated with the same arguments, operation id included,
so that a mutation is applied once however often it is sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar, cast

from sharedmem.clock import Clock
from sharedmem.errors import AccessDeniedError, CorruptionError, UnsupportedError, UsageError
from sharedmem.redis.credentials import Credentials
from sharedmem.redis.multiplexer import MultiplexedConnection
from sharedmem.redis.replies import (
    Argument,
    Command,
    CredentialsError,
    Load,
    LostError,
    Reply,
    ServerError,
    public_error,
    raise_if_error,
)
from sharedmem.redis.scripts import Script, by_digest, scripts
from sharedmem.redis.service_keys import corruption_error, damaged_key, find_first_damage
from sharedmem.runtime.concurrency import EventLoopBinding, ProcessBound, backoff
from sharedmem.runtime.telemetry import AttributeValue, is_in_span, work_span

if TYPE_CHECKING:
    from sharedmem.redis.cluster import ClusterPooledConnection
    from sharedmem.redis.pooled import PooledConnection, PubSubConnection, Server

Driver: TypeAlias = "PooledConnection | ClusterPooledConnection"
T = TypeVar("T")
_FIRST_PAUSE_S = 0.005
_LONGEST_PAUSE_S = 0.5
_WRONG_TYPE = "WRONGTYPE"
_HUB = "this hub"
_CLOSED = "it is closed; open another one"


class Transport(Protocol):
    """A transport of calls: the multiplexed connection, or redis-py. `testing.TransportSuite` tests the contract."""

    @property
    def generation(self) -> int:
        """A number that rises with each reconnection: by then the server may be another one."""

    @property
    def load(self) -> Load:
        """The load of the transport."""

    def post(self, args: Command) -> asyncio.Future[Reply] | None:
        """Send one command without waiting; None if `send` must be used. The reply may be a `ServerError`."""

    def post_many(self, commands: Sequence[Command]) -> asyncio.Future[Reply] | None:
        """As `post`, for one atomic transaction: the reply is a list, or the `ServerError` for which none has run."""

    async def send(self, args: Command) -> Reply:
        """Send one command; raises `ServerError` or `LostError`."""

    async def send_many(self, commands: Sequence[Command]) -> list[Reply]:
        """Send commands as one atomic transaction; the reply of a refused one is its `ServerError`."""

    async def send_each(self, commands: Sequence[Command]) -> list[Reply]:
        """Send commands in one packet, each on its own; the reply of a refused one is its `ServerError`."""

    async def servers(self, near: bytes | None) -> list[Server]:
        """Return the server of the key `near`, or all servers with keys; None for the only one."""

    async def ready(self) -> None:
        """Connect, or raise the reason for a failure."""

    async def close(self) -> None:
        """Close every connection."""


class RedisClient(ProcessBound):
    """The client of one hub for its server.

    Args:
        transport: sends the ordinary calls; None: the driver sends them, too.
        open_driver: returns what sends large and blocking calls and pub/sub; called for the first of them.
        address: the server, for errors.
        clock: for deadlines.
        retry_for_s: seconds for which a call whose reply was lost is repeated.
        credentials: those of all connections, if they change; renewed while the client is open.
    """

    def __init__(
        self,
        transport: Transport | None,
        open_driver: Callable[[], Driver],
        *,
        address: str,
        clock: Clock,
        retry_for_s: float,
        credentials: Credentials | None = None,
    ) -> None:
        self._credentials = credentials
        self._open_driver = open_driver
        self._opened_driver: Driver | None = None
        self._transport: Transport = transport or self._driver
        self.is_multiplexed = transport is not None
        """Whether all ordinary calls share a connection with each server."""
        self._clock = clock
        self._retry_for_s = retry_for_s
        self._post = self._transport.post
        self._send = self._transport.send
        self._is_closed = False
        self._home: EventLoopBinding | None = None
        self._before_repeat: Callable[[], Awaitable[None]] | None = None
        self._siblings: list[MultiplexedConnection] = []
        self.address = address

    @property
    def generation(self) -> int:
        """A number that rises with each new connection: earlier knowledge of the server's data may be wrong then."""
        return self._transport.generation

    @property
    def load(self) -> Load:
        """The number of connections for ordinary calls, and of calls that wait for a reply."""
        return self._transport.load

    @property
    def pool_load(self) -> Load:
        """The load of the pools behind the multiplexed connection: large calls, and all calls without it."""
        return Load(0, 0) if self._opened_driver is None else self._opened_driver.load

    def before_retry(self, hook: Callable[[], Awaitable[None]]) -> None:
        """Await `hook` before a lost call is sent again: the server may have lost more than that call."""
        self._before_repeat = hook

    async def open(self) -> None:
        """Connect and log in: one attempt, so that a wrong address raises an error at once.

        Raises:
            UnavailableError: the server cannot be reached.
            ConfigError: the server rejects the log-in.
        """
        self._home = EventLoopBinding(_HUB)
        if self._credentials is not None:
            self._credentials.start()
        try:
            await self._transport.ready()
        except (LostError, ServerError) as error:
            raise public_error(error, self.address) from error

    async def handshake(self, questions: Sequence[Command]) -> tuple[list[Reply], list[Script]]:
        """Send the first questions of a new client: one attempt, one round trip, one packet.

        Args:
            questions: reading commands.

        Returns:
            The replies (a `ServerError` for a refused command), and the scripts that the server lacks.

        Raises:
            UnavailableError: the connection was lost.
        """
        known = list(scripts().values())
        asked = ("SCRIPT", "EXISTS", *(script.digest for script in known))
        try:
            *replies, flags = await self._transport.send_each([*questions, asked])
        except (LostError, ServerError) as error:
            raise public_error(error, self.address) from error
        # A server without a valid reply counts as having no script.
        there = flags if isinstance(flags, list) else [0] * len(known)
        return replies, [script for script, flag in zip(known, there, strict=True) if not flag]

    async def load_scripts(self, missing: Sequence[Script]) -> None:
        """Load scripts: one attempt, one round trip, one packet.

        Raises:
            UnavailableError: the connection was lost.
            AccessDeniedError: this user may not load scripts.
        """
        loads: list[Command] = [("SCRIPT", "LOAD", script.source) for script in missing]
        try:
            for reply in await self._transport.send_each(loads):
                raise_if_error(reply)
        except (LostError, ServerError) as error:
            raise public_error(error, self.address) from error

    def check(self) -> None:
        """Raise for calls that cannot work, before anything is sent.

        Raises:
            UsageError: the hub is closed, or was opened in another event loop or another process.
        """
        if self._is_closed:
            raise UsageError(_HUB, _CLOSED)
        if self._home is not None:
            self._home.check()

    @property
    def is_of_another_process(self) -> bool:
        """Whether the client was opened before this process was forked."""
        return self._home is not None and self._home.is_another_process

    async def call(self, *args: Argument) -> Reply:
        """Send one command: one round trip.

        Raises:
            UnavailableError: the server cannot be reached for the whole retry time.
            AccessDeniedError, ConfigError: the server rejects this user.
            UsageError: as `check`.
            ServerError: the server rejects this command.
        """
        self.check()
        try:
            posted = self._post(args)
            if posted is None:
                return await self._send(args)
            reply = await posted
            if isinstance(reply, ServerError):
                raise reply
        except (LostError, ServerError) as error:
            return await self._persist(lambda: self._send(args), error, (args,))
        return reply

    async def call_aside(self, *args: Argument) -> Reply:
        """As `call`, on another connection: for commands that are so large that they would delay others."""
        self.check()
        try:
            return await self._driver.send(args)
        except (LostError, ServerError) as error:
            return await self._persist(lambda: self._driver.send(args), error, (args,))

    async def call_noting(self, losses: list[LostError], args: Command, *, aside: bool = False) -> Reply:
        """As `call` or `call_aside`; add each lost attempt that the server may have executed to `losses`."""
        self.check()
        send = self._driver.send if aside else self._send
        try:
            posted = None if aside else self._post(args)
            if posted is None:
                return await send(args)
            reply = await posted
            if isinstance(reply, ServerError):
                raise reply
        except (LostError, ServerError) as error:
            return await self._persist(lambda: send(args), error, (args,), losses)
        return reply

    async def call_near(self, near: bytes, *args: Argument) -> Reply:
        """As `call_aside`, for a command without a key: sent to the server that has, or would have, the key `near`.

        Raises:
            UnavailableError, AccessDeniedError, ConfigError, ServerError: as `call`.
        """
        (server,) = await self._servers(near)
        try:
            return await self._driver.send_to(server, args)
        except (LostError, ServerError) as error:
            return await self._persist(lambda: self._driver.send_to(server, args), error, (args,))

    async def read_many(self, commands: Sequence[Command], *, aside: bool = False) -> list[Reply]:
        """Send reading commands as one atomic transaction: one round trip.

        Args:
            commands: reading commands.
            aside: on another connection, for large replies.

        Raises:
            ServerError: the first refusal among the replies.
            UnavailableError, AccessDeniedError, ConfigError: as `call`.
        """
        self.check()
        transport: Transport = self._driver if aside else self._transport
        try:
            posted = transport.post_many(commands)
            return _checked(await transport.send_many(commands) if posted is None else await posted)
        except (LostError, ServerError) as error:

            async def again() -> list[Reply]:
                return _checked(await transport.send_many(commands))

            return await self._persist(again, error, commands)

    async def read_each(self, commands: Sequence[Command], *, aside: bool = False) -> list[Reply]:
        """As `read_many`; None for a key of a wrong type, which another client has written.

        With such a key it takes one more round trip, and the replies are not from one moment.
        """
        try:
            return await self.read_many(commands, aside=aside)
        except CorruptionError:
            pass  # a key of a wrong type: read one by one
        except ServerError as error:
            if error.code != _WRONG_TYPE:
                raise
        return list(await asyncio.gather(*(self._read(command) for command in commands)))

    async def _read(self, command: Command) -> Reply:
        try:
            return await self.call(*command)
        except CorruptionError:
            return None
        except ServerError as error:
            if error.code != _WRONG_TYPE:
                raise
            return None

    async def scan(self, pattern: bytes, *, near: bytes | None, count: int = 500) -> AsyncIterator[list[bytes]]:
        """Yield the physical keys that match a Redis glob, page by page; a key may come twice.

        Args:
            pattern: the glob.
            near: a key of the namespace, which selects the server; None: all servers of a cluster.
            count: approximate number of keys that the server scans for a page.

        Raises:
            UnavailableError, AccessDeniedError, ConfigError, ServerError: as `call`.
        """
        for server in await self._servers(near):
            cursor: bytes | None = b"0"
            while cursor is not None:
                cursor, keys = await self._scan_page(server, ("SCAN", cursor, "MATCH", pattern, "COUNT", count))
                if keys:
                    yield keys

    async def scan_from(self, pattern: bytes, *, near: bytes, cursor: str, count: int = 500) -> tuple[str, list[bytes]]:
        """Return (cursor of the next page, `0` after the last; keys) of one page of `scan`, to continue later.

        Raises:
            UnavailableError, AccessDeniedError, ConfigError, ServerError: as `call`.
        """
        (server,) = await self._servers(near)
        following, keys = await self._scan_page(server, ("SCAN", cursor, "MATCH", pattern, "COUNT", count))
        return (following or b"0").decode(), keys

    async def server_run_id(self, near: bytes) -> str:
        """Return the run id of the server that has a key, or empty if unknown: cursors are valid in one run only.

        Raises:
            UnavailableError, ConfigError: as `call`.
        """
        (server,) = await self._servers(near)

        async def attempt() -> Reply:
            return await self._driver.send_to(server, ("INFO", "server"))

        try:
            facts = await attempt()
        except (LostError, ServerError) as error:
            with suppress(UnsupportedError, AccessDeniedError):
                return _parse_run_id(await self._persist(attempt, error, ()))
            return ""
        return _parse_run_id(facts)

    async def server_time_us(self) -> int:
        """Return the server's time in microseconds since 1970. One round trip.

        Raises:
            UnavailableError: the server cannot be reached.
        """
        seconds, rest = cast("list[bytes]", await self.call("TIME"))
        return int(seconds) * 1_000_000 + int(rest)

    async def block(self, *args: Argument, wait_s: float) -> Reply:
        """Send a blocking command once, on a connection of its own; after a loss the caller must repeat it.

        Raises:
            LostError: the connection was lost, or the server is not available now.
            ServerError: the server refused it.
            UsageError: as `check`.
        """
        self.check()
        return await _raising_transient(self._driver.block(args, wait_s=wait_s))

    async def block_each(self, commands: Sequence[Command], *, wait_s: float) -> list[Reply]:
        """As `block`, for a blocking command and reading ones that the server executes right after it.

        Raises:
            LostError, ServerError, UsageError: as `block`.
        """
        self.check()
        return await _raising_transient(self._driver.block_each(commands, wait_s=wait_s))

    def sibling(
        self,
        *,
        wait_s: float,
        on_push: Callable[[list[Reply]], None] | None = None,
        on_lost: Callable[[], None] | None = None,
    ) -> MultiplexedConnection | None:
        """Return a further connection, which this client closes at last; None without one server and multiplexing.

        Args:
            wait_s: seconds for which blocking commands may wait.
            on_push, on_lost: as `MultiplexedConnection`.
        """
        self.check()
        if not isinstance(self._transport, MultiplexedConnection):
            return None
        self._siblings = [link for link in self._siblings if not link.is_closed]
        self._siblings.append(link := self._transport.sibling(wait_s=wait_s, on_push=on_push, on_lost=on_lost))
        return link

    def pubsub(self) -> PubSubConnection:
        """Return a new pub/sub connection, which the caller closes."""
        self.check()
        return self._driver.pubsub()

    def pauses(self) -> Iterator[float]:
        """Yield the pauses between attempts in seconds: doubling, with full jitter."""
        return backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)

    async def close(self) -> None:
        """Close every connection; running calls fail, and so do later ones."""
        self._is_closed = True
        for link in self._siblings:
            await link.close()
        await self._transport.close()
        if self._opened_driver is not None:
            await self._opened_driver.close()
        if self._credentials is not None:
            await self._credentials.close()

    @property
    def _driver(self) -> Driver:
        if self._opened_driver is None:
            self._opened_driver = self._open_driver()
        return self._opened_driver

    async def _servers(self, near: bytes | None) -> list[Server]:
        self.check()
        try:
            return await self._transport.servers(near)
        except (LostError, ServerError) as error:
            return await self._persist(lambda: self._transport.servers(near), error, ())

    async def _scan_page(self, server: Server, args: Command) -> tuple[bytes | None, list[bytes]]:
        """Return (cursor of the next page or None, keys)."""

        async def attempt() -> Reply:
            return await (self._send(args) if server is None else self._driver.send_to(server, args))

        try:
            reply = await attempt()
        except (LostError, ServerError) as error:
            try:
                reply = await self._persist(attempt, error, (args,))
            except ServerError as refused:
                raise public_error(refused, self.address) from refused
        assert isinstance(reply, list)
        cursor, page = reply
        following = cursor if isinstance(cursor, bytes) else str(cursor).encode()
        keys = [key for key in page if isinstance(key, bytes)] if isinstance(page, list) else []
        return (None if following == b"0" else following), keys

    async def _persist(
        self,
        attempt: Callable[[], Awaitable[T]],
        error: LostError | ServerError,
        commands: Sequence[Command],
        losses: list[LostError] | None = None,
    ) -> T:
        deadline = self._clock.monotonic() + self._retry_for_s
        for pause in self.pauses():
            if losses is not None and isinstance(error, LostError):
                losses.append(error)
            if self._is_closed:
                raise UsageError(_HUB, _CLOSED) from error
            if not await self._mended(error, commands):
                if not _is_transient(error) and not await self._logged_in_again(error):
                    raise await self._public(error, commands) from error
                if self._clock.monotonic() + pause > deadline:
                    raise public_error(error, self.address) from error
                await self._clock.sleep(pause)
            if self._before_repeat is not None and isinstance(error, LostError):
                await self._before_repeat()
            try:
                return await attempt()
            except (LostError, ServerError) as again:
                error = again
        raise AssertionError  # the pauses never end

    async def _logged_in_again(self, error: LostError | ServerError) -> bool:
        """Return whether the connections have logged in again, because the server has ended the log-in of one."""
        if self._credentials is None or not (isinstance(error, ServerError) and error.is_logged_out):
            return False
        with suppress(CredentialsError):
            await self._credentials.renew()
        return True

    async def _mended(self, error: LostError | ServerError, commands: Sequence[Command]) -> bool:
        """Repair the cause if possible: load a script that the server lacks; return whether that was done."""
        if not isinstance(error, ServerError) or error.code != "NOSCRIPT" or not commands or len(commands[0]) < 2:
            return False
        script = by_digest()[_text(commands[0][1])]
        await self.call("SCRIPT", "LOAD", script.source)
        return True

    async def _public(self, error: LostError | ServerError, commands: Sequence[Command]) -> Exception:
        translated = public_error(error, self.address)
        if not isinstance(error, ServerError) or translated.code != "internal":
            return translated
        named = damaged_key(error.text)
        keys = [key for args in commands for key in _keys_of(args)]
        with suppress(ServerError):
            damage = await find_first_damage(self.read_many, keys if named is None else [named])
            if damage is not None:
                return damage
        if named is not None:
            return corruption_error(named, "its content cannot be read")
        # Errors that depend on a user's key are translated by the caller, which has the key.
        args = commands[0] if commands else ()
        script = by_digest().get(_text(args[1])) if len(args) > 1 else None
        return ServerError(script.with_file_lines(error.text)) if script else error


def _parse_run_id(facts: Reply) -> str:
    _, _, rest = (facts if isinstance(facts, bytes) else b"").partition(b"run_id:")
    return rest.partition(b"\r")[0].decode()


def _checked(replies: Reply) -> list[Reply]:
    """Return the replies of a transaction; raise the first refusal among them."""
    if not isinstance(replies, list):
        raise_if_error(replies)
    assert isinstance(replies, list)
    for reply in replies:  # hundreds after a search: no function call for each
        if isinstance(reply, ServerError):
            raise reply
    return replies


def _is_transient(error: LostError | ServerError) -> bool:
    return isinstance(error, LostError) or error.is_transient


def _text(argument: Argument) -> str:
    return argument.decode() if isinstance(argument, bytes) else str(argument)


def _keys_of(args: Command) -> list[bytes]:
    """Return the keys of a command, as far as they are known."""
    if _text(args[0]) == "EVALSHA":
        return [key for key in args[3 : 3 + int(args[2])] if isinstance(key, bytes)]
    return [key for key in args[1:] if isinstance(key, bytes)]


async def _raising_transient(call: Awaitable[T]) -> T:
    """Return the result of a call; a temporary refusal is a lost call."""
    try:
        return await call
    except ServerError as error:
        if error.is_transient:
            raise LostError(error.text) from error
        raise


_NO_SPAN: AbstractContextManager[object] = nullcontext()


class TracedRedisClient(RedisClient):
    """A client whose calls are spans by the conventions of databases; keys and values are left out.

    A call outside of a span, such as the renewal of a lease, creates none: it would be a trace of its own.
    """

    async def call(self, *args: Argument) -> Reply:
        """As `RedisClient.call`."""
        with _span((args,)):
            return await super().call(*args)

    async def call_aside(self, *args: Argument) -> Reply:
        """As `RedisClient.call_aside`."""
        with _span((args,)):
            return await super().call_aside(*args)

    async def call_noting(self, losses: list[LostError], args: Command, *, aside: bool = False) -> Reply:
        """As `RedisClient.call_noting`."""
        with _span((args,)):
            return await super().call_noting(losses, args, aside=aside)

    async def read_many(self, commands: Sequence[Command], *, aside: bool = False) -> list[Reply]:
        """As `RedisClient.read_many`."""
        with _span(commands):
            return await super().read_many(commands, aside=aside)


def _span(commands: Sequence[Command]) -> AbstractContextManager[object]:
    """Return the span of one command, or of a transaction."""
    if not commands or not is_in_span():
        return _NO_SPAN
    operation = _text(commands[0][0])
    attributes: dict[str, AttributeValue] = {"db.system.name": "redis"}
    name = operation
    if len(commands) > 1:
        is_uniform = all(command[0] == commands[0][0] for command in commands)
        name = operation = f"MULTI {operation}" if is_uniform else "MULTI"
        attributes["db.operation.batch.size"] = len(commands)
    elif operation == "EVALSHA" and (script := by_digest().get(_text(commands[0][1]))) is not None:
        attributes["db.stored_procedure.name"] = script.name
        name = f"{operation} {script.name}"
    attributes["db.operation.name"] = operation
    return work_span(name, attributes, role="client")
