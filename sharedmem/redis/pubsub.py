"""One pub/sub connection for all subscriptions of a hub, which comes back by itself and says so.

Redis forgets what it sent while a subscriber was away; whoever subscribes here is told of each such
time. What must not be missed belongs on the change stream.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from sharedmem.errors import SharedMemoryError, UnavailableError, UsageError
from sharedmem.redis.client import RedisClient
from sharedmem.redis.replies import LostError, ServerError, public_error
from sharedmem.runtime import Counters, get_logger
from sharedmem.runtime.background import Background, BackgroundTask

_PING_AFTER_S = 15.0
_logger = get_logger("listen")


class Subscriber(Protocol):
    """What gets the messages of a channel."""

    def hear(self, channel: bytes, message: bytes) -> None:
        """A message has come; must not block."""

    def missed(self, channel: bytes, reason: str) -> None:
        """Messages may have been lost just now."""


class Channel(NamedTuple):
    """What can be subscribed to."""

    channel: bytes
    """Physical name, or a glob over such names."""
    pattern: bool = False


class PubSubHub:
    """The subscriptions of one hub.

    Args:
        line: opens the connection.
        background: reads it.
        counters: counts reconnections.
        response_timeout_s: how long the server may take to confirm a subscription or a ping.
        retry_for_s: how long a subscription whose connection was lost is tried again.
    """

    def __init__(
        self,
        line: RedisClient,
        background: Background,
        counters: Counters,
        *,
        response_timeout_s: float,
        retry_for_s: float,
    ) -> None:
        self._client = line
        self._background = background
        self._counters = counters
        self._response_timeout_s = response_timeout_s
        self._retry_for_s = retry_for_s
        self._ears: dict[Channel, list[Subscriber]] = {}
        self._confirmed: dict[Channel, asyncio.Future[None]] = {}
        self._pubsub: PubSub | None = None
        self._reading: BackgroundTask | None = None
        self._changing = asyncio.Lock()
        self._is_closed = False

    async def add(self, topic: Channel, ear: Subscriber) -> None:
        """Subscribe, and return when the server has confirmed it; a connection that is lost meanwhile is made anew.

        Raises:
            UnavailableError: the server does not confirm within `retry_for_s`.
            AccessDeniedError, ConfigError: it refuses this user.
            UsageError: the hub is closed, or was opened in another event loop or another process.
        """
        self._client.check()
        async with self._changing:
            if self._is_closed:
                raise _closed_error()
            if topic in self._ears:
                self._ears[topic].append(ear)
                return
            self._ears[topic] = [ear]
            self._confirmed[topic] = asyncio.get_running_loop().create_future()
            try:
                await self._subscribe(topic)
            except BaseException:
                await self._forget(topic, ear)
                raise

    async def remove(self, topic: Channel, ear: Subscriber) -> None:
        """End a subscription; the last one of a topic tells the server."""
        async with self._changing:
            if ear in self._ears.get(topic, ()):
                await self._forget(topic, ear)

    async def close(self) -> None:
        """End every subscription, and refuse new ones; who waits for the server to confirm one is told."""
        self._is_closed = True
        for waiting in self._confirmed.values():
            if not waiting.done():
                waiting.set_exception(_closed_error())
                waiting.exception()  # its caller may have given up just now
        await self._rest()

    async def _rest(self) -> None:
        """Read no more until there is a subscription again."""
        if self._reading is not None:
            await self._reading.stop()
        await self._drop()

    async def _subscribe(self, topic: Channel) -> None:
        give_up = asyncio.get_running_loop().time() + self._retry_for_s
        try:
            await self._subscribe_once(topic)
        except UnavailableError as error:
            # redis-py connects again within a call that fails, and tells nobody: what others have missed on the way
            # is told by a reader that comes back, which subscribes to this topic as well.
            await self._ensure_reader(lost=str(error))
            try:
                async with asyncio.timeout_at(give_up):
                    await asyncio.shield(self._confirmed[topic])
            except TimeoutError:
                raise error from None

    async def _ensure_reader(self, *, lost: str = "") -> None:
        if lost and self._reading is not None:
            await self._reading.stop()
        if self._reading is None or self._reading.done:
            self._reading = self._background.start("listen to channels", self._read(lost))

    async def _subscribe_once(self, topic: Channel) -> None:
        if self._pubsub is None:
            self._pubsub = self._client.pubsub()
        try:
            async with asyncio.timeout(self._response_timeout_s):
                await _send_subscribe(self._pubsub, [topic])
                await self._ensure_reader()
                await asyncio.shield(self._confirmed[topic])
        except TimeoutError as error:
            raise UnavailableError(f"channel {topic.channel.decode()}", "the server does not confirm it") from error
        except (RedisError, OSError, AttributeError) as error:
            # What is closed under its feet, redis-py tells as an attribute of nothing.
            if self._is_closed:
                raise _closed_error() from error
            if isinstance(error, AttributeError):
                raise
            raise _to_public_error(error, self._client.address) from error

    async def _forget(self, topic: Channel, ear: Subscriber) -> None:
        self._ears[topic].remove(ear)
        if self._ears[topic]:
            return
        del self._ears[topic]
        self._confirmed.pop(topic, None)
        if not self._ears:
            await self._rest()
        elif self._pubsub is not None and not self._is_closed:
            # A lost connection has forgotten the channel anyway, and comes back without it.
            with suppress(RedisError, OSError):
                end = self._pubsub.punsubscribe if topic.pattern else self._pubsub.unsubscribe
                await end(topic.channel)

    async def _read(self, lost: str = "") -> None:
        pauses = self._client.pauses()
        while True:
            try:
                if lost:
                    await asyncio.sleep(next(pauses))
                    await self._reconnect(lost)
                    lost, pauses = "", self._client.pauses()
                await self._read_once()
            except (RedisError, OSError, LostError) as error:
                lost = f"the connection was lost: {error}"
                _logger.warning("subscriptions to %s: %s", self._client.address, lost)

    async def _read_once(self) -> None:
        assert self._pubsub is not None
        message = await self._pubsub.get_message(timeout=_PING_AFTER_S)
        if message is None:
            # Silence may be a dead peer: a ping tells.
            await self._pubsub.ping()
            message = await self._pubsub.get_message(timeout=self._response_timeout_s)
        if message is None:
            raise LostError("no answer to a ping")
        self._pass_on(message)

    def _pass_on(self, message: dict[str, Any]) -> None:
        kind, channel = message["type"], message["channel"]
        if kind in {"subscribe", "psubscribe"}:
            waiting = self._confirmed.get(Channel(channel, kind == "psubscribe"))
            if waiting is not None and not waiting.done():
                waiting.set_result(None)
        elif kind == "message":
            self._tell(Channel(channel), channel, message["data"])
        elif kind == "pmessage":
            self._tell(Channel(message["pattern"], pattern=True), channel, message["data"])

    def _tell(self, topic: Channel, channel: bytes, data: bytes) -> None:
        for ear in self._ears.get(topic, ()):
            ear.hear(channel, data)

    async def _reconnect(self, reason: str) -> None:
        self._counters.increment("listener_losses")
        # Exchanged in one step: a subscription that comes now must not open a third connection.
        dead, self._pubsub = self._pubsub, self._client.pubsub()
        await _close_pubsub(dead)
        # A connection may also die in silence while it opens.
        async with asyncio.timeout(self._response_timeout_s):
            await _send_subscribe(self._pubsub, list(self._ears))
        for topic, ears in list(self._ears.items()):
            # A topic that is not confirmed yet has missed nothing.
            for ear in ears if self._confirmed[topic].done() else ():
                ear.missed(topic.channel, reason)

    async def _drop(self) -> None:
        pubsub, self._pubsub = self._pubsub, None
        await _close_pubsub(pubsub)


async def _close_pubsub(pubsub: PubSub | None) -> None:
    if pubsub is not None:
        with suppress(RedisError, OSError):
            await pubsub.aclose()  # type: ignore[no-untyped-call]  # redis-py has not typed it


async def _send_subscribe(pubsub: PubSub, topics: list[Channel]) -> None:
    if channels := [topic.channel for topic in topics if not topic.pattern]:
        await pubsub.subscribe(*channels)
    if patterns := [topic.channel for topic in topics if topic.pattern]:
        await pubsub.psubscribe(*patterns)


def _closed_error() -> UsageError:
    return UsageError("this hub", "it is closed; open another one")


def _to_public_error(error: Exception, address: str) -> SharedMemoryError:
    code = getattr(error, "status_code", None)
    return public_error(ServerError(f"{code} {error}") if code else LostError(str(error)), address)
