"""Write-through: callers that wait for the durable store share one put."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass

from sharedmem.durable.outbox.delivery import OutboxDelivery
from sharedmem.durable.outbox.stream import OutboxStream, entry_time_ms
from sharedmem.errors import UnavailableError, UsageError
from sharedmem.redis.durability import ChangeLostError
from sharedmem.runtime.background import Background

_MOST_ENTRIES = 500


@dataclass(frozen=True, eq=False)
class WriteThroughWaiter:
    """Somebody who waits."""

    entries: Sequence[bytes]
    changed: Mapping[str, int]
    future: asyncio.Future[None]


_Waiters = list[WriteThroughWaiter]


class WriteThrough:
    """Settles single entries at once, many with one put.

    Args:
        carrier: carries them.
        stream_of: the outbox of a namespace.
        background: runs a shared put, which no single caller's cancellation may end.
    """

    def __init__(
        self, carrier: OutboxDelivery, stream_of: Callable[[str], OutboxStream], background: Background
    ) -> None:
        self._carrier = carrier
        self._stream_of = stream_of
        self._background = background
        self._waiting: dict[str, _Waiters] = {}
        self._carried: set[str] = set()

    async def settle(self, namespace: str, entries: Sequence[bytes], changed: Mapping[str, int]) -> None:
        """Return when the tier has what the entries hold; those that are gone were settled by others, or are lost.

        Two round trips and a put, shared with the callers that came while the one before was under way.

        Raises:
            ChangeLostError: one is gone, and the tier has not heard of the stamps that keys got by it.
            UnavailableError: the tier cannot be had, or has refused a document for good.
            LimitedError, AccessDeniedError: as `Durable.put`.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(namespace, []).append(WriteThroughWaiter(entries, changed, future))
        if namespace not in self._carried:
            self._begin(namespace)
        await future

    def _begin(self, namespace: str) -> None:
        try:
            work = self._background.start(f"settle {namespace}", self._carry(namespace))
        except UsageError as error:
            _fail_waiters(self._waiting.pop(namespace, []), error)
            return
        self._carried.add(namespace)
        work.when_done(lambda: self._ended(namespace))

    def _ended(self, namespace: str) -> None:
        self._carried.discard(namespace)
        if namespace in self._waiting:
            # They came after its last look, or it was stopped before its first.
            self._begin(namespace)

    async def _carry(self, namespace: str) -> None:
        while waiting := self._next(namespace):
            await self._carry_some(self._stream_of(namespace), waiting)

    def _next(self, namespace: str) -> _Waiters:
        """Those who wait, as many as go together."""
        waiting = self._waiting.pop(namespace, [])
        count = size = 0
        for waiter in waiting:
            size += len(waiter.entries)
            if count and size > _MOST_ENTRIES:
                self._waiting[namespace] = waiting[count:]
                break
            count += 1
        return waiting[:count]

    async def _carry_some(self, stream: OutboxStream, waiting: _Waiters) -> None:
        try:
            found = await stream.read([one for waiter in waiting for one in waiter.entries])
            refused = await self._carrier.carry(stream, found) if found else {}
            lost = await self._lost(stream.namespace, waiting, {entry.id for entry in found})
        except asyncio.CancelledError:
            _fail_waiters(waiting, UsageError("a change under way to the durable tier", "its hub was closed"))
            raise
        except Exception as error:  # noqa: BLE001  # whatever it is, it belongs to the callers who wait
            _fail_waiters(waiting, error)
            return
        for waiter in waiting:
            why = next((refused[one] for one in waiter.entries if one in refused), None)
            if waiter.future.done():
                continue
            if why is not None:
                refusal = UnavailableError("the durable tier", f"it refuses this for good: {why}")
                waiter.future.set_exception(refusal)
            elif (key := lost.get(waiter)) is not None:
                waiter.future.set_exception(ChangeLostError(key))
            else:
                waiter.future.set_result(None)

    async def _lost(self, namespace: str, waiting: _Waiters, found: Container[bytes]) -> dict[WriteThroughWaiter, str]:
        """A key of each whose entries are gone without anybody having settled them: Redis was flushed, or set back."""
        lost = {}
        for waiter in waiting:
            gone = [entry_time_ms(one) for one in waiter.entries if one not in found]
            if not gone:
                continue
            for key, stamp in waiter.changed.items():
                if not await self._carrier.has(key, stamp):
                    lost[waiter] = key
            if waiter not in lost:
                await self._carrier.readmit(namespace, waiter.changed, left_ms=min(gone))
        return lost


def _fail_waiters(waiting: _Waiters, error: Exception) -> None:
    for waiter in waiting:
        if not waiter.future.done():
            waiter.future.set_exception(error)
            # Its caller may have given up just now.
            waiter.future.exception()
