"""Messages: pub/sub between agents that are connected now."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from sharedmem.data.keys import KeyAccess
from sharedmem.models import Message, Missed
from sharedmem.redis.codec import decode_member, encode_member
from sharedmem.redis.pubsub import Channel
from sharedmem.redis.scope import Scope
from sharedmem.runtime import Counters, get_logger
from sharedmem.runtime.concurrency import ProcessBound

Callback = Callable[[Any], Awaitable[None] | None]
Unsubscribe = Callable[[], Awaitable[None]]
_logger = get_logger("messages")


class Subscription(ProcessBound):
    """The messages of some channels: an async iterator of `Message` and, where messages may be lost, `Missed`."""

    def __init__(self, scope: Scope, *, longest_queue: int) -> None:
        self._keyspace = scope.keyspace
        self._identity = scope.identity
        self._longest_queue = longest_queue
        self._queue: deque[Message] = deque()
        self._arrived = asyncio.Event()

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        while not self._queue:
            self._arrived.clear()
            await self._arrived.wait()
        return self._queue.popleft()

    def receive(self, channel: bytes, message: bytes) -> None:
        """Store a message from the connection; if the queue is full, drop the oldest one."""
        name = self._keyspace.logical(channel)
        if not self._identity.may("read", name):
            return  # a pattern may match channels that its reader may not read
        if len(self._queue) >= self._longest_queue:
            self._queue.clear()
            self._put(Missed(channel=name, value=f"{self._longest_queue} messages waited unread and were dropped"))
        self._put(Message(channel=name, value=decode_member(message)))

    def missed(self, channel: bytes, reason: str) -> None:
        """Store a notice that messages of a channel may be lost."""
        self._put(Missed(channel=self._keyspace.logical(channel), value=reason))

    def _put(self, message: Message) -> None:
        self._queue.append(message)
        self._arrived.set()


class Messages:
    """Publishes and subscribes. Messages can be lost: use a list or the change feed for data that must arrive."""

    def __init__(self, keys: KeyAccess) -> None:
        self._message_keys = keys

    async def publish(self, channel: str, message: object) -> int:
        """Send a message to the present subscribers. One round trip; a repeat after a lost reply sends once.

        Args:
            channel: plain (`<namespace>:shared:<channel>`) or absolute, as keys are.
            message: a value as in `write`.

        Returns:
            The number of subscriptions that received it (on this server only, if it is a cluster).

        Raises:
            AccessDeniedError: this actor may not write there.
            InvalidError, UnavailableError: as `write`.
        """
        access = self._message_keys
        target = access.scope.common(channel, "write")
        call = access.scripts.message_publish(
            target.space.operations, channel=target.physical, message=encode_member(message)
        )
        return await access.explained(target, "channel", call)

    async def subscribe(
        self, channel: str, callback: Callback, *, on_missed: Callable[[Missed], Awaitable[None] | None] | None = None
    ) -> Unsubscribe:
        """Call `callback(value)` for each message, one after the other, from now until unsubscribed.

        Args:
            channel: plain or absolute; `*` and `?` make it a pattern.
            callback: a function or coroutine function. Its exceptions are logged and counted
                (`sharedmem_callback_failures`), and the subscription continues.
            on_missed: called when messages may be lost: after a lost connection, or if the callbacks are so slow that
                too many messages wait.

        Returns:
            A coroutine function that ends the subscription.

        Raises:
            AccessDeniedError: this actor may not read there.
            InvalidError, UnavailableError: as `read`.
        """
        access = self._message_keys
        subscription, topic = await self._listen(channel)
        listener = access.context.listener
        calls = self._call_each(subscription, callback, on_missed)
        work = access.context.background.start("deliver messages", calls)

        async def unsubscribe() -> None:
            await listener.remove(topic, subscription)
            await work.stop()

        return unsubscribe

    @asynccontextmanager
    async def subscription(self, *channels: str) -> AsyncIterator[Subscription]:
        """Subscribe for the length of the block; yield a `Subscription` to iterate over.

        Args:
            channels: plain or absolute; `*` and `?` make one a pattern.

        Raises:
            AccessDeniedError: this actor may not read there.
            InvalidError, UnavailableError: as `read`.
        """
        subscription = self._subscription()
        topics = [self._topic(channel) for channel in channels]
        listener = self._message_keys.context.listener
        try:
            for topic in topics:
                await listener.add(topic, subscription)
            yield subscription
        finally:
            for topic in topics:
                await listener.remove(topic, subscription)

    async def _listen(self, channel: str) -> tuple[Subscription, Channel]:
        subscription, topic = self._subscription(), self._topic(channel)
        await self._message_keys.context.listener.add(topic, subscription)
        return subscription, topic

    def _subscription(self) -> Subscription:
        access = self._message_keys
        return Subscription(access.scope, longest_queue=access.context.settings.subscriber_queue_length)

    def _topic(self, channel: str) -> Channel:
        access = self._message_keys
        target = access.scope.common(channel, "read")
        if "*" not in channel and "?" not in channel:
            return Channel(target.physical)
        return Channel(access.scope.keyspace.target_glob(target.key).physical, pattern=True)

    async def _call_each(
        self,
        subscription: Subscription,
        callback: Callback,
        on_missed: Callable[[Missed], Awaitable[None] | None] | None,
    ) -> None:
        access = self._message_keys
        async for message in subscription:
            if isinstance(message, Missed):
                if on_missed is not None:
                    await _run_callback(on_missed, message, access.context.counters)
            else:
                await _run_callback(callback, message.value, access.context.counters)


async def _run_callback(
    callback: Callable[[Any], Awaitable[None] | None], argument: object, counters: Counters
) -> None:
    try:
        answer = callback(argument)
        if inspect.isawaitable(answer):
            await answer
    except Exception:
        counters.increment("callback_failures")
        _logger.exception("a subscriber's callback failed; the subscription goes on")
