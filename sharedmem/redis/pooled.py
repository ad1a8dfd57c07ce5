"""Calls through redis-py's connection pools: Sentinel, fakeredis, large and blocking calls, pub/sub.

A client imports this on its first such call: redis-py takes as long to import as a short command runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from typing import Any, cast
from weakref import WeakSet

import redis.asyncio as redis
from redis.asyncio.client import PubSub
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError, Sentinel
from redis.backoff import NoBackoff
from redis.credentials import CredentialProvider
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError
from redis.maint_notifications import MaintNotificationsConfig

from sharedmem.config import Settings
from sharedmem.redis.address import RedisAddress
from sharedmem.redis.credentials import Credentials, Login
from sharedmem.redis.replies import (
    LOGIN_REFUSALS,
    Command,
    CredentialsError,
    Load,
    LostError,
    Reply,
    ServerError,
    raise_if_error,
)

Place = tuple[str, int]
Server = bytes | Place | None
"""One of a cluster's servers, identified by its address or by one of its keys; None if there is only one server."""
# Blocking calls and subscriptions use one connection each, without a time limit.
_WITHOUT_TIMEOUT: dict[str, Any] = {"socket_timeout": None, "max_connections": 1 << 31}
# With RESP2 a connection with subscriptions cannot log in again.
_LISTENING: dict[str, Any] = _WITHOUT_TIMEOUT | {
    "protocol": 3,
    # With RESP3 redis-py would ask for notices of maintenance, and move connections by itself.
    "maint_notifications_config": MaintNotificationsConfig(enabled=False),
}


def open_pool(address: RedisAddress, settings: Settings, credentials: Credentials | None) -> PooledConnection:
    """Return the pools of one server, without connections yet."""
    place: dict[str, Any] = {"unix_socket_path": address.path}
    if not address.path:
        place = dict(zip(("host", "port"), address.hosts[0], strict=True))
    options = _options(address, settings, credentials) | place | {"db": address.database}
    return PooledConnection(
        redis.Redis(**options),
        redis.Redis(**options | _WITHOUT_TIMEOUT),
        None if credentials is None else redis.Redis(**options | _LISTENING),
        response_timeout_s=settings.response_timeout_s,
        at_once=settings.max_connections,
        credentials=credentials,
    )


def open_sentinel_pool(
    address: RedisAddress, settings: Settings, credentials: Credentials | None
) -> SentinelPooledConnection:
    """Return the pools of the master that sentinels report, without connections yet."""
    sentinel: Any = Sentinel  # its constructor carries no types
    options = _options(address, settings, credentials) | {"db": address.database}
    return SentinelPooledConnection(
        sentinel(list(address.hosts), sentinel_kwargs=_sentinel_options(options, len(address.hosts)), **options),
        address.service or "",
        response_timeout_s=settings.response_timeout_s,
        at_once=settings.max_connections,
        credentials=credentials,
    )


def _sentinel_options(options: dict[str, Any], count: int) -> dict[str, Any]:
    # Sentinels are asked one after the other: silent ones must leave time for the last one and for the master.
    share_s = options["socket_connect_timeout"] / (count + 1)
    own = {"socket_connect_timeout": share_s, "socket_timeout": min(share_s, options["socket_timeout"])}
    # Sentinels have users and databases of their own.
    of_master = {"username", "password", "credential_provider", "db"}
    return {name: value for name, value in options.items() if name not in of_master} | own


class _CurrentLogin(CredentialProvider):
    """Gives redis-py the current credentials for each new connection.

    Args:
        credentials: is asked for them.
    """

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    async def get_credentials_async(self) -> tuple[str, str]:
        """Return (user name, password)."""
        try:
            login = await self._credentials.login()
        except CredentialsError as error:
            # After another error redis-py would keep the connection, without a log-in.
            raise RedisConnectionError(str(error)) from error
        return login.username, login.password


def _options(address: RedisAddress, settings: Settings, credentials: Credentials | None) -> dict[str, Any]:
    options: dict[str, Any] = {
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),  # sharedmem retries itself, with an operation id
        "max_connections": settings.max_connections,
        "socket_timeout": settings.response_timeout_s,
        "socket_connect_timeout": settings.connect_timeout_s,
    }
    if credentials is None:
        options |= {"username": address.username, "password": address.password}
    else:
        options["credential_provider"] = _CurrentLogin(credentials)
    if address.tls:
        options |= {
            "ssl": True,
            "ssl_ca_certs": address.tls_ca_file,
            "ssl_certfile": address.tls_cert_file,
            "ssl_keyfile": address.tls_key_file,
            "ssl_cert_reqs": "required" if address.tls_verify else "none",
            "ssl_check_hostname": address.tls_verify,
        }
    return options


class PooledConnection:
    """Calls through redis-py's pools, with the pools' own retries and reply conversions off.

    Args:
        client: for ordinary calls, with a socket timeout.
        waiting: for blocking calls and pub/sub, without a timeout.
        listening: for pub/sub alone; None: `waiting`.
        response_timeout_s: longest wait for a reply, beyond the time that a blocking call asks to wait.
        at_once: most concurrent ordinary calls; more wait. None: no limit.
        credentials: those that the clients use, if they change.
    """

    def __init__(
        self,
        client: redis.Redis,
        waiting: redis.Redis,
        listening: redis.Redis | None = None,
        *,
        response_timeout_s: float,
        at_once: int | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self._client: Any = client  # redis-py has types for only a part of it
        self._waiting: Any = waiting
        self._listening: Any = listening or waiting
        self._pubsubs: WeakSet[PubSubConnection] = WeakSet()
        self._credentials = credentials
        if credentials is not None:
            credentials.add(self)
        self._response_timeout_s = response_timeout_s
        # A full pool would raise an error; here callers wait.
        self._room: AbstractAsyncContextManager[None] = nullcontext() if at_once is None else asyncio.Semaphore(at_once)
        for each in (client, waiting):
            # Replies have the form of RESP2, as on the multiplexed connection.
            each.response_callbacks.clear()
        self._under_way = 0
        self.generation = 0
        """A number that rises when a connection is lost, and when it is back; not for connections that a pool adds."""
        self._seen: WeakSet[AbstractConnection] = WeakSet()
        self._client.connection_pool.connection_kwargs["redis_connect_func"] = self._greet

    @property
    def load(self) -> Load:
        """The load of the pools."""
        return Load(sum(connection.is_connected for connection in self._seen), self._under_way)

    def post(self, args: Command) -> None:
        """Return None: nothing can be sent without waiting; see `Transport.post`."""

    def post_many(self, commands: Sequence[Command]) -> None:
        """As `post`."""

    async def send(self, args: Command) -> Reply:
        """Send one command and return its reply.

        Raises:
            ServerError: the server refused it.
            LostError: the connection was lost; the command may or may not have been executed.
        """
        async with self._room:
            self._under_way += 1
            try:
                return await self._translated(self._client.execute_command(*args))
            finally:
                self._under_way -= 1

    async def send_many(self, commands: Sequence[Command]) -> list[Reply]:
        """Send commands as one atomic transaction; a refused command's reply is its `ServerError`.

        Raises:
            ServerError: the server refused to queue one of them, so none has run.
            LostError: the connection was lost.
        """
        return await self._pipelined(commands, transaction=True)

    async def send_each(self, commands: Sequence[Command]) -> list[Reply]:
        """Send commands in one packet, in order, each on its own; a refused command's reply is its `ServerError`.

        Raises:
            LostError: the connection was lost.
        """
        return await self._pipelined(commands, transaction=False)

    async def servers(self, near: bytes | None) -> list[Server]:  # noqa: ARG002  # only a cluster must choose
        """Return the servers of the key `near`, or all servers with keys: here there is only one."""
        return [None]

    async def send_to(self, server: Server, args: Command) -> Reply:  # noqa: ARG002  # likewise
        """Send a command without a key to one of the `servers`.

        Raises:
            ServerError, LostError: as `send`.
        """
        return await self.send(args)

    async def block(self, args: Command, *, wait_s: float) -> Reply:
        """Send a blocking command that waits up to `wait_s` at the server, on a connection of its own.

        Raises:
            ServerError: the server refused it.
            LostError: the connection was lost, or the server did not reply in time.
        """
        try:
            async with asyncio.timeout(wait_s + self._response_timeout_s):
                return await self._translated(self._waiting.execute_command(*args))
        except TimeoutError as error:
            raise LostError(f"no answer within {wait_s + self._response_timeout_s:g} s") from error

    async def block_each(self, commands: Sequence[Command], *, wait_s: float) -> list[Reply]:
        """As `block`, for a blocking command and those that are executed right after it, all in one packet.

        Raises:
            ServerError: the server refused one of them.
            LostError: as `block`.
        """
        pipeline = self._waiting.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        try:
            async with asyncio.timeout(wait_s + self._response_timeout_s):
                replies = await self._translated(pipeline.execute(raise_on_error=False))
        except TimeoutError as error:
            raise LostError(f"no answer within {wait_s + self._response_timeout_s:g} s") from error
        return [
            raise_if_error(_server_error(reply) if isinstance(reply, RedisError) else reply)
            for reply in cast("list[Any]", replies)
        ]

    def pubsub(self) -> PubSubConnection:
        """Return a new pub/sub connection, which the caller closes."""
        pubsub = PubSubConnection(self._listening.pubsub(ignore_subscribe_messages=False), self._credentials)
        self._pubsubs.add(pubsub)
        return pubsub

    async def authenticate(self, login: Login) -> None:
        """Use other credentials: idle connections are closed, busy ones after their call, and pub/sub logs in again.

        Raises:
            ServerError, LostError: a pub/sub connection was refused, or lost.
        """
        for client in (self._client, self._waiting):
            await client.connection_pool.update_active_connections_for_reconnect()
            await client.connection_pool.disconnect(inuse_connections=False)
        for pubsub in list(self._pubsubs):
            await pubsub.authenticate(login)

    async def ready(self) -> None:
        """Connect if necessary: one attempt.

        Raises:
            ServerError: the server refused the log-in.
            LostError: no connection is possible now.
        """
        await self.send(("PING",))

    async def close(self) -> None:
        """Close every connection."""
        for client in {self._client, self._waiting, self._listening}:
            await client.aclose()

    async def _greet(self, connection: AbstractConnection) -> None:
        await connection.on_connect()
        if connection in self._seen:
            self.generation += 1
        self._seen.add(connection)

    async def _pipelined(self, commands: Sequence[Command], *, transaction: bool) -> list[Reply]:
        pipeline = self._client.pipeline(transaction=transaction)
        for command in commands:
            pipeline.execute_command(*command)
        async with self._room:
            replies = await self._translated(pipeline.execute(raise_on_error=False))
        return [
            _server_error(reply) if isinstance(reply, RedisError) else reply for reply in cast("list[Any]", replies)
        ]

    async def _translated(self, answer: Awaitable[Any]) -> Reply:
        try:
            return cast("Reply", await _translated(answer))
        except LostError:
            self.generation += 1
            raise
        except ServerError as error:
            if self._credentials is not None and error.code in LOGIN_REFUSALS:
                raise self._credentials.rejection(error) from error
            raise


class PubSubConnection:
    """A pub/sub connection of redis-py; its errors are those of the other connections.

    Args:
        pubsub: not connected yet.
        credentials: with which it logs in, if they change.
    """

    def __init__(self, pubsub: PubSub, credentials: Credentials | None) -> None:
        self._pubsub: Any = pubsub  # redis-py has types for only a part of it
        self._credentials = credentials
        self._is_closed = False

    async def subscribe(self, *, channels: Sequence[bytes], patterns: Sequence[bytes]) -> None:
        """Ask the server for the messages of channels and of patterns; connect first if necessary.

        Raises:
            ServerError: the server refused it.
            LostError: the connection was lost, or closed meanwhile.
        """
        credentials = self._credentials
        renewals = 0 if credentials is None else credentials.renewals
        if channels:
            await self._checked(self._pubsub.subscribe(*channels))
        if patterns:
            await self._checked(self._pubsub.psubscribe(*patterns))
        # They may have changed while it logged in with the earlier ones.
        if credentials is not None and credentials.renewals != renewals and credentials.latest is not None:
            await self.authenticate(credentials.latest)

    async def unsubscribe(self, channel: bytes, *, is_pattern: bool) -> None:
        """End a subscription.

        Raises:
            ServerError, LostError: as `subscribe`.
        """
        await self._checked(self._pubsub.punsubscribe(channel) if is_pattern else self._pubsub.unsubscribe(channel))

    async def next_message(self, *, wait_s: float) -> dict[str, Any] | None:
        """Return the next message or confirmation, as redis-py has it; None if none arrives in time.

        Raises:
            ServerError, LostError: as `subscribe`.
        """
        return cast("dict[str, Any] | None", await self._checked(self._pubsub.get_message(timeout=wait_s)))

    async def ping(self) -> None:
        """Send a ping, whose reply is a message.

        Raises:
            ServerError, LostError: as `subscribe`.
        """
        await self._checked(self._pubsub.ping())

    async def authenticate(self, login: Login) -> None:
        """Log in with other credentials; the reply comes among the messages, a refusal as `next_message` raises it.

        Raises:
            LostError: the connection was lost.
        """
        connection = self._pubsub.connection
        if connection is not None and connection.is_connected and not self._is_closed:
            await _translated(connection.send_command("AUTH", login.username, login.password, check_health=False))

    async def close(self) -> None:
        """Close the connection; calls that wait on it fail."""
        self._is_closed = True
        with suppress(LostError, ServerError):
            await _translated(self._pubsub.aclose())

    async def _checked(self, answer: Awaitable[Any]) -> Any:
        try:
            return await _translated(answer)
        except AttributeError as error:
            # redis-py raises it in a call whose connection is closed meanwhile.
            if not self._is_closed:
                raise
            raise LostError("the connection was closed") from error


async def _translated(answer: Awaitable[Any]) -> Any:
    """Return the result of redis-py.

    Raises:
        ServerError: the server refused.
        LostError: the connection was lost, or is not possible now.
    """
    try:
        return await _await_cancellable(answer)
    except MasterNotFoundError as error:
        # The text after the colon is about internals of redis-py.
        raise LostError(str(error).partition(" : ")[0]) from error
    except RedisError as error:
        if isinstance(error.__cause__, CredentialsError):
            raise error.__cause__ from error
        # A rejected log-in is raised as a failure to connect, whose cause is the rejection.
        refused = _server_error(error) or _server_error(error.__cause__)
        raise refused or LostError(str(error) or type(error).__name__) from error
    except (OSError, EOFError) as error:
        raise LostError(str(error) or type(error).__name__) from error


async def _await_cancellable(answer: Awaitable[Any]) -> Any:
    """Return the result of redis-py; raise a cancellation that redis-py swallowed while it connected."""
    task = asyncio.current_task()
    before = task.cancelling() if task else 0
    try:
        return await answer
    finally:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError


class SentinelPooledConnection(PooledConnection):
    """Calls to the server that the sentinels report as master.

    Args:
        watchers: the sentinels.
        service: the name of the master that they watch.
        response_timeout_s, at_once, credentials: as `PooledConnection`.
    """

    def __init__(
        self,
        watchers: Sentinel,
        service: str,
        *,
        response_timeout_s: float,
        at_once: int | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self._watchers: Any = watchers  # redis-py has no types for it
        kinds = [{}, _WITHOUT_TIMEOUT] if credentials is None else [{}, _WITHOUT_TIMEOUT, _LISTENING]
        clients = [self._watchers.master_for(service, **options) for options in kinds]
        super().__init__(*clients, response_timeout_s=response_timeout_s, at_once=at_once, credentials=credentials)

    async def ready(self) -> None:
        """Connect if necessary: one attempt.

        Raises:
            ServerError: the server refused the log-in.
            LostError: no connection is possible now; if no sentinel replies, the error says so.
        """
        try:
            return await super().ready()
        except LostError as error:
            lost = error
        silences = await asyncio.gather(*map(self._check_sentinel, self._watchers.sentinels))
        has_replied = None in silences
        raise lost if has_replied else (silences[0] or lost)

    async def close(self) -> None:
        """Close every connection."""
        await super().close()
        await self._watchers.aclose()

    async def _check_sentinel(self, sentinel: Any) -> LostError | None:
        try:
            await self._translated(sentinel.execute_command("PING"))
        except LostError as error:
            return error
        except ServerError:
            pass
        return None


def _server_error(error: BaseException | None) -> ServerError | None:
    """Return the server's error text, with the code that redis-py strips; None without an error of the server."""
    code = getattr(error, "status_code", None)
    if code:
        return ServerError(f"{code} {error}")
    return ServerError(str(error)) if isinstance(error, ResponseError) else None
