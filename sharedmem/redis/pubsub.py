"""One pub/sub connection for all subscriptions of a hub, and for its tasks that wait for their turn.

The connection reconnects by itself and reports that. Redis does not store messages for an absent subscriber. After each
interruption, subscribers are notified that messages may be lost. Data that must arrive belongs on the change feed.

Waiting tasks are queued at the server (`lua/include/waiters.lua`), so they need not poll: the server notifies the hub
of the task whose turn it is. A notification can be lost with its connection: then the waiter tries again when its
timer ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from sharedmem.clock import Clock
from sharedmem.errors import UnavailableError, UsageError
from sharedmem.redis.client import RedisClient
from sharedmem.redis.keys import KeySpace, Space
from sharedmem.redis.replies import LostError, ServerError, public_error
from sharedmem.runtime import Counters, get_logger
from sharedmem.runtime.concurrency import Background, BackgroundTask, SingleFlight

if TYPE_CHECKING:
    from sharedmem.redis.pooled import PubSubConnection

_PING_AFTER_S = 15.0
_logger = get_logger("listen")


class Subscriber(Protocol):
    """A receiver of the messages of a channel."""

    def receive(self, channel: bytes, message: bytes) -> None:
        """Take a message; must not block."""

    def missed(self, channel: bytes, reason: str) -> None:
        """Take the notice that messages may have been lost; must not block."""


class Channel(NamedTuple):
    """A channel or a pattern of channels."""

    channel: bytes
    """Physical name, or a glob over such names."""
    pattern: bool = False


class PubSubHub:
    """The subscriptions of one hub.

    Args:
        line: opens the connection.
        background: runs the reader.
        counters: counts reconnections.
        response_timeout_s: timeout for the confirmation of a subscription or a ping.
        retry_for_s: seconds for which a subscription is retried after a lost connection.
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
        self._subscribers: dict[Channel, list[Subscriber]] = {}
        self._confirmed: dict[Channel, asyncio.Future[None]] = {}
        self._missed: dict[Channel, str] = {}
        """Why messages of a topic may be lost, until the server has subscribed it again."""
        self._pubsub: PubSubConnection | None = None
        self._reading: BackgroundTask | None = None
        self._changing = asyncio.Lock()
        self._is_closed = False

    async def add(self, topic: Channel, subscriber: Subscriber) -> None:
        """Subscribe, and wait until the server has confirmed it; reconnect if the connection is lost before.

        Raises:
            UnavailableError: the server does not confirm within `retry_for_s`.
            AccessDeniedError, ConfigError: the server rejects this user.
            UsageError: the hub is closed, or was opened in another event loop or another process.
        """
        self._client.check()
        async with self._changing:
            if self._is_closed:
                raise _closed_error()
            if topic in self._subscribers:
                self._subscribers[topic].append(subscriber)
                return
            self._subscribers[topic] = [subscriber]
            self._confirmed[topic] = asyncio.get_running_loop().create_future()
            try:
                await self._subscribe(topic)
            except BaseException:
                await self._forget(topic, subscriber)
                raise

    async def remove(self, topic: Channel, subscriber: Subscriber) -> None:
        """End a subscription; after the last one of a topic, unsubscribe at the server."""
        async with self._changing:
            if subscriber in self._subscribers.get(topic, ()):
                await self._forget(topic, subscriber)

    async def close(self) -> None:
        """End every subscription, and reject new ones; callers that wait for a confirmation get an error."""
        self._is_closed = True
        for waiting in self._confirmed.values():
            if not waiting.done():
                waiting.set_exception(_closed_error())
                waiting.exception()  # its caller may have been cancelled just now
        await self._rest()

    async def _rest(self) -> None:
        """Stop reading until there is a subscription again."""
        if self._reading is not None:
            await self._reading.stop()
        await self._drop()

    async def _subscribe(self, topic: Channel) -> None:
        give_up = asyncio.get_running_loop().time() + self._retry_for_s
        try:
            await self._subscribe_once(topic)
        except UnavailableError as error:
            # redis-py reconnects within a failing call without a notice. The restarted reader notifies the other
            # subscribers of what they may have missed, and subscribes to this topic as well.
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
        except (LostError, ServerError) as error:
            if self._is_closed:
                raise _closed_error() from error
            raise public_error(error, self._client.address) from error

    async def _forget(self, topic: Channel, subscriber: Subscriber) -> None:
        self._subscribers[topic].remove(subscriber)
        if self._subscribers[topic]:
            return
        del self._subscribers[topic]
        self._confirmed.pop(topic, None)
        self._missed.pop(topic, None)
        if not self._subscribers:
            await self._rest()
        elif self._pubsub is not None and not self._is_closed:
            # After a loss, the reconnection does not subscribe to this channel again.
            with suppress(LostError, ServerError):
                await self._pubsub.unsubscribe(topic.channel, is_pattern=topic.pattern)

    async def _read(self, lost: str = "") -> None:
        pauses = self._client.pauses()
        while True:
            try:
                if lost:
                    await asyncio.sleep(next(pauses))
                    await self._reconnect(lost)
                    lost, pauses = "", self._client.pauses()
                await self._read_once()
            except (LostError, ServerError, TimeoutError) as error:
                lost = f"the connection was lost: {error}"
                _logger.warning("subscriptions to %s: %s", self._client.address, lost)

    async def _read_once(self) -> None:
        assert self._pubsub is not None
        message = await self._pubsub.next_message(wait_s=_PING_AFTER_S)
        if message is None:
            # Silence may mean a dead connection: a ping shows it.
            await self._pubsub.ping()
            message = await self._pubsub.next_message(wait_s=self._response_timeout_s)
        if message is None:
            raise LostError("no reply to a ping")
        self._pass_on(message)

    def _pass_on(self, message: dict[str, Any]) -> None:
        kind, channel = message["type"], message["channel"]
        if kind in {"subscribe", "psubscribe"}:
            self._confirm(Channel(channel, kind == "psubscribe"))
        elif kind == "message":
            self._deliver(Channel(channel), channel, message["data"])
        elif kind == "pmessage":
            self._deliver(Channel(message["pattern"], pattern=True), channel, message["data"])

    def _confirm(self, topic: Channel) -> None:
        waiting, reason = self._confirmed.get(topic), self._missed.pop(topic, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)
        if reason is not None:
            # Not earlier: what they read now, and what they hear from now on, leaves no gap.
            for subscriber in list(self._subscribers.get(topic, ())):
                subscriber.missed(topic.channel, reason)

    def _deliver(self, topic: Channel, channel: bytes, data: bytes) -> None:
        for subscriber in self._subscribers.get(topic, ()):
            subscriber.receive(channel, data)

    async def _reconnect(self, reason: str) -> None:
        self._counters.increment("listener_losses")
        # Swapped in one step: a concurrent subscription must not open a third connection.
        dead, self._pubsub = self._pubsub, self._client.pubsub()
        # A topic that was never confirmed has missed no messages.
        self._missed |= {topic: reason for topic, confirmed in self._confirmed.items() if confirmed.done()}
        if dead is not None:
            await dead.close()
        # A connection may also hang while it opens.
        async with asyncio.timeout(self._response_timeout_s):
            await _send_subscribe(self._pubsub, list(self._subscribers))

    async def _drop(self) -> None:
        pubsub, self._pubsub = self._pubsub, None
        if pubsub is not None:
            await pubsub.close()


async def _send_subscribe(pubsub: PubSubConnection, topics: list[Channel]) -> None:
    await pubsub.subscribe(
        channels=[topic.channel for topic in topics if not topic.pattern],
        patterns=[topic.channel for topic in topics if topic.pattern],
    )


def _closed_error() -> UsageError:
    return UsageError("this hub", "it is closed; open another one")


# -- waiting for a turn --------------------------------------------------------------------------


class Waiter:
    """One waiting task; the server has its name."""

    def __init__(self, name: str, clock: Clock) -> None:
        self.name = name
        self._clock = clock
        self._called = asyncio.Event()

    def call(self) -> None:
        """Wake the waiter, now or at its next wait."""
        self._called.set()

    @property
    def is_called(self) -> bool:
        """Whether a notification has arrived since the last wait ended."""
        return self._called.is_set()

    async def wait(self, seconds: float) -> bool:
        """Wait for a notification, at most so many seconds; return whether it arrived."""
        if not self._called.is_set():
            ends = [asyncio.ensure_future(self._called.wait()), asyncio.ensure_future(self._clock.sleep(seconds))]
            try:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for end in ends:
                    end.cancel()
        was_called = self._called.is_set()
        self._called.clear()
        return was_called


class WaitNotifier:
    """The waiting tasks of one hub, and the channels on which the server notifies them.

    Args:
        listener: subscribes to the channels.
        background: runs the subscriptions.
        keyspace: names the channels and the waiters.
        clock: for the timers.
        pauses: seconds between attempts to subscribe.
        retry_for_s: seconds for which it retries.
        on_cluster: whether another server than the subscribed one may send notifications.
    """

    def __init__(
        self,
        listener: PubSubHub,
        background: Background,
        keyspace: KeySpace,
        clock: Clock,
        *,
        pauses: Callable[[], Iterator[float]],
        retry_for_s: float,
        on_cluster: bool,
    ) -> None:
        self._listener = listener
        self._keyspace = keyspace
        self._clock = clock
        self._pauses = pauses
        self._retry_for_s = retry_for_s
        self._on_cluster = on_cluster
        self._numbers = count(1)
        self._waiters: dict[str, Waiter] = {}
        self._listening: set[str] = set()
        self._subscriptions: SingleFlight[None] = SingleFlight("subscribe", background)

    @property
    def waiting(self) -> int:
        """The number of callers of this hub that wait now."""
        return len(self._waiters)

    @asynccontextmanager
    async def waiter(self, space: Space) -> AsyncIterator[Waiter]:
        """Yield a waiter that the server can notify while the block runs. One round trip the first time in a namespace.

        Raises:
            UnavailableError: the server does not confirm the subscription within the retry time.
            AccessDeniedError, ConfigError: the server rejects this user.
        """
        await self._listen(space)
        waiter = Waiter(self._keyspace.waiter(next(self._numbers), on_cluster=self._on_cluster), self._clock)
        self._waiters[waiter.name] = waiter
        try:
            yield waiter
        finally:
            del self._waiters[waiter.name]

    def receive(self, channel: bytes, message: bytes) -> None:  # noqa: ARG002  # the waiter's name is enough
        """Take a notification: the message is the name of the waiter."""
        waiter = self._waiters.get(message.decode(errors="replace"))
        # A waiter that has just left passes the turn on itself when it leaves at the server.
        if waiter is not None:
            waiter.call()

    def missed(self, channel: bytes, reason: str) -> None:  # noqa: ARG002  # all waiters try again
        """Wake all waiters: notifications may have been lost."""
        self.call_all()

    def call_all(self) -> None:
        """Wake all waiters: they may have missed a notification, or their hub is closing."""
        for waiter in self._waiters.values():
            waiter.call()

    async def _listen(self, space: Space) -> None:
        """Subscribe to the namespace's channel of this hub, once; concurrent callers wait for the same subscription."""
        namespace = space.namespace
        if namespace not in self._listening:
            try:
                await self._subscriptions.share(namespace, lambda: self._subscribe(space))
            except UsageError as error:
                raise UsageError("this hub", "it is closed; open another one") from error

    async def _subscribe(self, space: Space) -> None:
        await self._add(Channel(self._keyspace.wake(space)))
        self._listening.add(space.namespace)

    async def _add(self, topic: Channel) -> None:
        give_up_at = self._clock.monotonic() + self._retry_for_s
        for pause in self._pauses():
            try:
                await self._listener.add(topic, self)
            except UnavailableError:
                if self._clock.monotonic() + pause > give_up_at:
                    raise
                await self._clock.sleep(pause)
            else:
                return
