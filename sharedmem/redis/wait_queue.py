"""Waiting for a turn: the server notifies the hub of the task whose turn it is, with a timer as fallback.

Waiting tasks are queued at the server (`lua/include/waiters.lua`), so they need not poll. A notification can be lost
with its connection: then the waiter tries again when its timer ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import count

from sharedmem.clock import Clock
from sharedmem.errors import UnavailableError, UsageError
from sharedmem.redis.keys import KeySpace, Space
from sharedmem.redis.pubsub import Channel, PubSubHub
from sharedmem.runtime.background import Background
from sharedmem.runtime.single_flight import SingleFlight


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
