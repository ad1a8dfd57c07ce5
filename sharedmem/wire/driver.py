"""The ordinary way to speak to Redis, by redis-py: Sentinel, Cluster, fakeredis, large and blocking calls, pub/sub."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any, cast

import redis.asyncio as redis
from redis.asyncio.client import PubSub
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.exceptions import RedisError, ResponseError

from sharedmem.wire.replies import Command, LostError, Reply, ServerError

Client = redis.Redis | RedisCluster
Server = ClusterNode | None


class Driver:
    """Calls through redis-py's pools, with its own retries and reply conversions off.

    Args:
        client: for ordinary calls, with a socket time-out.
        waiting: for blocking calls and pub/sub, without one.
        response_timeout_s: how long a reply may take, beyond the time a blocking call asked to wait.
    """

    def __init__(self, client: Client, waiting: redis.Redis, *, response_timeout_s: float) -> None:
        self._client = client
        self._waiting = waiting
        self._response_timeout_s = response_timeout_s
        for each in (client, waiting):
            _raw_replies(each)

    def post(self, args: Command) -> None:  # a pool has no line to put it in
        """Say that `send` must be used."""

    async def send(self, args: Command) -> Reply:
        """Send one command and return its reply.

        Raises:
            ServerError: the server refused it.
            LostError: the connection was lost; it may or may not have happened.
        """
        return await self._translated(self._client.execute_command(*args))

    async def send_many(self, commands: Sequence[Command]) -> list[Reply]:
        """Send commands as one atomic transaction; a refused command's reply is its `ServerError`.

        Raises:
            LostError: the connection was lost.
        """
        pipeline = self._client.pipeline(transaction=True)
        for command in commands:
            pipeline.execute_command(*command)
        replies = await self._translated(pipeline.execute(raise_on_error=False))
        return [_refusal(reply) if isinstance(reply, RedisError) else reply for reply in cast("list[Any]", replies)]

    async def servers(self, near: bytes | None) -> list[Server]:
        """The servers that hold the key `near`, or all that hold keys; one `None` unless this is a cluster.

        Raises:
            LostError: none of the cluster's nodes can be reached.
        """
        if not isinstance(self._client, RedisCluster):
            return [None]
        await self._translated(self._client.initialize())
        return [self._client.get_node_from_key(near.decode())] if near else list(self._client.get_primaries())

    async def send_to(self, server: Server, args: Command) -> Reply:
        """Send a command that names no key to one of the `servers`.

        Raises:
            ServerError, LostError: as `send`.
        """
        named = {} if server is None else {"target_nodes": server}
        return await self._translated(self._client.execute_command(*args, **named))

    async def block(self, args: Command, *, wait_s: float) -> Reply:
        """Send a blocking command that waits up to `wait_s` at the server, on a connection of its own.

        Raises:
            ServerError: the server refused it.
            LostError: the connection was lost, or the server did not answer in time.
        """
        try:
            async with asyncio.timeout(wait_s + self._response_timeout_s):
                client = self._waiting if not isinstance(self._client, RedisCluster) else self._client
                return await self._translated(client.execute_command(*args))
        except TimeoutError as error:
            raise LostError(f"no answer within {wait_s + self._response_timeout_s:g} s") from error

    def pubsub(self) -> PubSub:
        """A new pub/sub connection, which the caller closes."""
        return self._waiting.pubsub(ignore_subscribe_messages=False)

    async def ready(self) -> None:
        """Be connected, or try once.

        Raises:
            ServerError: the server refused the log-in.
            LostError: no connection can be had now.
        """
        await self.send(("PING",))

    async def close(self) -> None:
        """Close every connection."""
        await self._client.aclose()
        await self._waiting.aclose()

    async def _translated(self, answer: Awaitable[Any]) -> Reply:
        try:
            return cast("Reply", await answer)
        except RedisError as error:
            refused = _refusal(error)
            if refused is None:
                raise LostError(str(error) or type(error).__name__) from error
            raise refused from error
        except (OSError, EOFError) as error:
            raise LostError(str(error) or type(error).__name__) from error


def _refusal(error: RedisError) -> ServerError | None:
    """What the server said, with the code that redis-py strips; None when it said nothing."""
    code = getattr(error, "status_code", None)
    if code:
        return ServerError(f"{code} {error}")
    return ServerError(str(error)) if isinstance(error, ResponseError) else None


def _raw_replies(client: Client) -> None:
    # Replies come as RESP2 has them, as on the fast lane; the cluster client still reads its own slot map.
    callbacks = client.response_callbacks
    kept = ("CLUSTER", "COMMAND") if isinstance(client, RedisCluster) else ()
    for command in list(callbacks):
        if not str(command).startswith(kept):
            del callbacks[command]
