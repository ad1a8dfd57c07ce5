"""What somebody waits for: the entries of callers of the same moment go to the durable tier together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from sharedmem.durable.outbox.carrying import Carrier
from sharedmem.durable.outbox.stream import OutboxStream
from sharedmem.errors import UnavailableError
from sharedmem.tasks import Background

_MOST_ENTRIES = 500

_Waiting = list[tuple[Sequence[bytes], "asyncio.Future[None]"]]


class Urgent:
    """Settles single entries at once, many with one put.

    Args:
        carrier: carries them.
        stream_of: the outbox of a namespace.
        background: runs a shared put, which no single caller's cancellation may end.
    """

    def __init__(self, carrier: Carrier, stream_of: Callable[[str], OutboxStream], background: Background) -> None:
        self._carrier = carrier
        self._stream_of = stream_of
        self._background = background
        self._waiting: dict[str, _Waiting] = {}
        self._carried: set[str] = set()

    async def settle(self, namespace: str, entries: Sequence[bytes]) -> None:
        """Return when the tier has what the entries hold; those that are gone were settled by others.

        Two round trips and a put, shared with the callers that came while the one before was under way.

        Raises:
            UnavailableError: the tier cannot be had, or has refused a document for good.
            LimitedError, AccessDeniedError: as `Durable.put`.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(namespace, []).append((entries, future))
        if namespace not in self._carried:
            self._background.start(f"settle {namespace}", self._carry(namespace))
            self._carried.add(namespace)
        await future

    async def _carry(self, namespace: str) -> None:
        try:
            while waiting := self._next(namespace):
                await self._carry_some(self._stream_of(namespace), waiting)
        finally:
            self._carried.discard(namespace)

    def _next(self, namespace: str) -> _Waiting:
        """Those who wait, as many as go together."""
        waiting = self._waiting.pop(namespace, [])
        count = size = 0
        for entries, _ in waiting:
            size += len(entries)
            if count and size > _MOST_ENTRIES:
                self._waiting[namespace] = waiting[count:]
                break
            count += 1
        return waiting[:count]

    async def _carry_some(self, stream: OutboxStream, waiting: _Waiting) -> None:
        try:
            found = await stream.read([one for entries, _ in waiting for one in entries])
            refused = await self._carrier.carry(stream, found) if found else {}
        except asyncio.CancelledError:
            _tell(waiting, UnavailableError("a change under way to the durable tier", "its hub was closed"))
            raise
        except Exception as error:  # noqa: BLE001  # whatever it is, it belongs to the callers who wait
            _tell(waiting, error)
            return
        for entries, future in waiting:
            why = next((refused[one] for one in entries if one in refused), None)
            if future.done():
                continue
            if why is None:
                future.set_result(None)
            else:
                future.set_exception(UnavailableError("the durable tier", f"it refuses this for good: {why}"))


def _tell(waiting: _Waiting, error: Exception) -> None:
    for _, future in waiting:
        if not future.done():
            future.set_exception(error)
