"""Calls through redis-py's connection pools: Sentinel, fakeredis, large and blocking calls, pub/sub."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, cast
from weakref import WeakSet

import redis.asyncio as redis
from redis.asyncio.client import PubSub
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.sentinel import MasterNotFoundError, Sentinel
from redis.exceptions import RedisError, ResponseError

from sharedmem.redis.replies import Command, Load, LostError, Reply, ServerError, raise_if_error

Place = tuple[str, int]
Server = bytes | Place | None
"""One of a cluster's servers, identified by its address or by one of its keys; None if there is only one server."""


class PooledConnection:
    """Calls through redis-py's pools, with the pools' own retries and reply conversions off.

    Args:
        client: for ordinary calls, with a socket timeout.
        waiting: for blocking calls and pub/sub, without a timeout.
        response_timeout_s: longest wait for a reply, beyond the time that a blocking call asks to wait.
        at_once: most concurrent ordinary calls; more wait. None: no limit.
    """

    def __init__(
        self,
        client: redis.Redis,
        waiting: redis.Redis,
        *,
        response_timeout_s: float,
        at_once: int | None = None,
    ) -> None:
        self._client: Any = client  # redis-py has types for only a part of it
        self._waiting: Any = waiting
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

    def pubsub(self) -> PubSub:
        """Return a new pub/sub connection, which the caller closes."""
        return cast("PubSub", self._waiting.pubsub(ignore_subscribe_messages=False))

    async def ready(self) -> None:
        """Connect if necessary: one attempt.

        Raises:
            ServerError: the server refused the log-in.
            LostError: no connection is possible now.
        """
        await self.send(("PING",))

    async def close(self) -> None:
        """Close every connection."""
        await self._client.aclose()
        await self._waiting.aclose()

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
            return cast("Reply", await _await_cancellable(answer))
        except MasterNotFoundError as error:
            # The text after the colon is about internals of redis-py.
            raise LostError(str(error).partition(" : ")[0]) from error
        except RedisError as error:
            # A rejected log-in is raised as a failure to connect, whose cause is the rejection.
            refused = _server_error(error) or _server_error(error.__cause__)
            if refused is None:
                raise self._lost(error) from error
            raise refused from error
        except (OSError, EOFError) as error:
            raise self._lost(error) from error

    def _lost(self, error: Exception) -> LostError:
        self.generation += 1
        return LostError(str(error) or type(error).__name__)


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
        patient: options of connections for blocking calls.
    """

    def __init__(
        self,
        watchers: Sentinel,
        service: str,
        *,
        patient: Mapping[str, Any],
        response_timeout_s: float,
        at_once: int | None = None,
    ) -> None:
        self._watchers: Any = watchers  # redis-py has no types for it
        clients = self._watchers.master_for(service), self._watchers.master_for(service, **patient)
        super().__init__(*clients, response_timeout_s=response_timeout_s, at_once=at_once)

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
