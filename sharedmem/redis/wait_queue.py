"""Waiting for one's turn: the server calls the hub of the task whose turn it is, and a timer stands behind that.

Waiting tasks stand in line at the server (`lua/include/waiters.lua`), so nobody asks again and again. A
call can be lost with its connection: whoever waits looks again when the timer ends.
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
    """One waiting task, known to the server by its name."""

    def __init__(self, name: str, clock: Clock) -> None:
        self.name = name
        self._clock = clock
        self._called = asyncio.Event()

    def call(self) -> None:
        """Wake it up, now or when it next waits."""
        self._called.set()

    @property
    def is_called(self) -> bool:
        """Whether a call has come since it last returned from waiting."""
        return self._called.is_set()

    async def wait(self, seconds: float) -> bool:
        """Return when it is called, or after that many seconds; whether it was called."""
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
    """The waiting tasks of one hub, and the channels on which the server calls them.

    Args:
        listener: hears the channels.
        background: runs the subscriptions.
        keyspace: names the channels and the waiters.
        clock: for the timers.
        pauses: seconds between tries to subscribe.
        retry_for_s: how long it tries.
        on_cluster: whether who calls may be another server than the one that is listened to.
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
        """How many callers of this hub wait now."""
        return len(self._waiters)

    @asynccontextmanager
    async def waiter(self, space: Space) -> AsyncIterator[Waiter]:
        """A waiter that the server can call while the block runs. One round trip the first time in a namespace.

        Raises:
            UnavailableError: the server does not confirm the subscription within the retry time.
            AccessDeniedError, ConfigError: it refuses this user.
        """
        await self._listen(space)
        waiter = Waiter(self._keyspace.waiter(next(self._numbers), on_cluster=self._on_cluster), self._clock)
        self._waiters[waiter.name] = waiter
        try:
            yield waiter
        finally:
            del self._waiters[waiter.name]

    def hear(self, channel: bytes, message: bytes) -> None:  # noqa: ARG002  # the waiter's name says all
        """Take a call from the server: the message is the name of the waiter."""
        waiter = self._waiters.get(message.decode(errors="replace"))
        # One who has just left passes the turn on itself, when it tells the server that it leaves.
        if waiter is not None:
            waiter.call()

    def missed(self, channel: bytes, reason: str) -> None:  # noqa: ARG002  # whoever waits looks again
        """Calls may have been lost: all look again."""
        self.call_all()

    def call_all(self) -> None:
        """Let all look again: they may have missed their call, or their hub is closing."""
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
