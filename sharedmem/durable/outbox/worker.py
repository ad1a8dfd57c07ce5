"""The worker that carries what changes have left to the durable tier, behind the callers' backs.

It is woken by the changes of its own hub, and looks now and then for namespaces whose hubs have died. Of each namespace
it carries one batch at a time, of a few namespaces at once.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress

from sharedmem.clock import Clock
from sharedmem.durable.outbox.carrying import Carrier
from sharedmem.durable.outbox.stream import Entry, OutboxStream
from sharedmem.errors import AccessDeniedError, SharedMemoryError
from sharedmem.tasks import Background, Work
from sharedmem.telemetry import get_logger
from sharedmem.wire.changes import as_list, text_of
from sharedmem.wire.faults import translate
from sharedmem.wire.line import Line
from sharedmem.wire.replies import ServerError

_AT_ONCE = 4
_FIRST_COUNT = 32
_MOST_FIELDS = 2_000
_MOST_BYTES = 4 << 20
# While changes come in, those who make them go first: batches grow, and many changes of a key become one document.
_SHORTEST_GATHER_S, _LONGEST_GATHER_S = 0.05, 0.9
_GATHER_PER_WORK = 8
_REST_S = 1.0
_LOOK_S = 5.0
_ENROL_AGAIN_S = 60.0
# Much longer than the time after which whoever still changes something enrols again.
_FORGET_AFTER_S = 600.0
_NAMESPACES_AT_ONCE = 100
# What says something of the tier or of Redis; others' keys under the name of an outbox among it.
_PASSING = (SharedMemoryError, OSError)
_logger = get_logger("durable")


class Batches:
    """How many entries to ask for next, so that a batch is neither long to carry nor too small to pay.

    Args:
        most: entries at most.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.count = min(_FIRST_COUNT, most)

    def had(self, entries: list[Entry]) -> None:
        """Learn from a batch."""
        fields = sum(len(entry.fields) for entry in entries) // 2
        size = sum(entry.size for entry in entries)
        if fields > _MOST_FIELDS or size > _MOST_BYTES:
            self.count = max(1, self.count // 2)
        elif len(entries) >= self.count and fields <= _MOST_FIELDS // 2 and size <= _MOST_BYTES // 2:
            self.count = min(self._most, self.count * 2)


class Enrolment:
    """The set of namespaces that may have something for the tier, so that other hubs take over when one dies.

    Args:
        line: the way to the server.
        outboxes: the set's key.
        clock: says when to enrol again.
    """

    def __init__(self, line: Line, outboxes: bytes, clock: Clock) -> None:
        self._line = line
        self._outboxes = outboxes
        self._clock = clock
        self._enrolled: dict[str, float] = {}
        self._empty_since: dict[str, float] = {}

    def is_enrolled(self, namespace: str) -> bool:
        """Whether `enrol` has nothing to do."""
        return self._clock.monotonic() < self._enrolled.get(namespace, float("-inf")) + _ENROL_AGAIN_S

    async def enrol(self, namespace: str, *, again: bool = False) -> None:
        """Make sure that other hubs look after a namespace; one round trip a minute at most, unless it is `again`.

        A user whom the server does not let do that goes without: its own hubs look after it.

        Raises:
            UnavailableError: the server stayed away.
        """
        if self.is_enrolled(namespace) and not again:
            return
        self._enrolled[namespace] = self._clock.monotonic()
        try:
            with suppress(AccessDeniedError):
                await self._line.call("SADD", self._outboxes, namespace)
        except SharedMemoryError:
            del self._enrolled[namespace]
            raise

    async def all(self) -> list[str]:
        """The namespaces of all hubs; those of this one where more may not be read. One round trip.

        Raises:
            UnavailableError: the server stayed away.
        """
        try:
            found = {text_of(name) for name in as_list(await self._line.call("SMEMBERS", self._outboxes))}
        except AccessDeniedError:
            found = set()
        except ServerError as error:
            raise translate(error, self._line.address) from error
        return sorted(found | set(self._enrolled))

    async def saw(self, namespace: str, *, empty: bool) -> None:
        """Strike a namespace out when nothing was left in it for long. Seldom a round trip.

        Raises:
            UnavailableError: the server stayed away.
        """
        now = self._clock.monotonic()
        if not empty:
            self._empty_since.pop(namespace, None)
        elif now > self._empty_since.setdefault(namespace, now) + _FORGET_AFTER_S:
            self._empty_since.pop(namespace)
            self._enrolled.pop(namespace, None)
            with suppress(AccessDeniedError):
                await self._line.call("SREM", self._outboxes, namespace)


class Worker:
    """Carries batches for as long as a hub is open.

    Args:
        carrier: carries them.
        stream_of: the outbox of a namespace.
        enrolment: the namespaces of all hubs.
        background: runs the work.
        clock: paces it.
        batch: entries carried at once, at most.
        idle_ms: entries that another worker has held for so long are taken over.
        hurry: when so many entries wait, callers do not go first any more.
    """

    def __init__(
        self,
        carrier: Carrier,
        stream_of: Callable[[str], OutboxStream],
        enrolment: Enrolment,
        background: Background,
        clock: Clock,
        *,
        batch: int,
        idle_ms: int,
        hurry: int,
    ) -> None:
        self._carrier = carrier
        self._stream_of = stream_of
        self._enrolment = enrolment
        self._background = background
        self._clock = clock
        self._batch = batch
        self._idle_ms = idle_ms
        self._hurry = hurry
        self._due: set[str] = set()
        self._serving: dict[str, Work] = {}
        self._woken = asyncio.Event()
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._work: Work | None = None
        self._looked_at = float("-inf")

    def note(self, namespace: str) -> None:
        """There is something in a namespace's outbox."""
        if namespace not in self._due:
            self._due.add(namespace)
            self._woken.set()

    def start(self) -> None:
        """Begin, unless it has begun."""
        if self._work is None or self._work.done:
            self._work = self._background.start("drain outboxes", self._run())

    async def stop(self) -> None:
        """End; what is under way stays in the outbox until somebody carries it again."""
        works = [self._work, *self._serving.values()]
        self._work = None
        await asyncio.gather(*(work.stop() for work in works if work is not None))

    async def _run(self) -> None:
        while True:
            if self._clock.monotonic() >= self._looked_at + _LOOK_S:
                await self._look_around()
            self._woken.clear()
            for namespace in self._due - self._serving.keys():
                self._due.discard(namespace)
                self._serving[namespace] = self._background.start(f"drain {namespace}", self._serve(namespace))
            await self._rest()

    async def _rest(self) -> None:
        """Sleep until there is something to do, or it is time to look around."""
        # Spread, so that the hubs of a server do not all look at once.
        pause_s = _LOOK_S * random.uniform(1.0, 1.3)  # noqa: S311  # guards no secret
        waits = [asyncio.ensure_future(self._woken.wait()), asyncio.ensure_future(self._clock.sleep(pause_s))]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _look_around(self) -> None:
        """Find the namespaces in which something lies, whoever left it there."""
        self._looked_at = self._clock.monotonic()
        try:
            names = await self._enrolment.all()
        except SharedMemoryError as error:
            _logger.info("the namespaces with changes cannot be listed: %s", error)
            return
        for first in range(0, len(names), _NAMESPACES_AT_ONCE):
            await asyncio.gather(*map(self._look, names[first : first + _NAMESPACES_AT_ONCE]))

    async def _look(self, namespace: str) -> None:
        try:
            waiting = await self._stream_of(namespace).length()
            await self._enrolment.saw(namespace, empty=not waiting)
        except _PASSING as error:
            _logger.info("the outbox of %s cannot be looked at: %s", namespace, error)
            return
        if waiting:
            self._due.add(namespace)

    async def _serve(self, namespace: str) -> None:
        """Carry batches of a namespace until nothing is left that may be carried now."""
        stream = self._stream_of(namespace)
        batches = Batches(self._batch)
        try:
            while (worked_s := await self._carry_next(stream, batches)) is not None:
                await self._let_callers_go_first(stream, worked_s)
        finally:
            del self._serving[namespace]
            self._woken.set()

    async def _carry_next(self, stream: OutboxStream, batches: Batches) -> float | None:
        """Carry one batch, in turn with other namespaces; the seconds that it took, or None when there is nothing."""
        async with self._places:
            began = self._clock.monotonic()
            try:
                entries = await self._fetched(stream, batches.count)
            except _PASSING as error:
                # It is looked at again when the hub looks around.
                _logger.info("the outbox of %s cannot be read: %s", stream.namespace, error)
                return None
            if not entries:
                return None
            await self._carry(stream, entries)
            batches.had(entries)
            return self._clock.monotonic() - began

    async def _fetched(self, stream: OutboxStream, count: int) -> list[Entry]:
        await self._enrolment.enrol(stream.namespace)
        return await stream.fresh(count) or await stream.abandoned(count, idle_ms=self._idle_ms)

    async def _let_callers_go_first(self, stream: OutboxStream, worked_s: float) -> None:
        """Pause when this hub is changing something just now, unless too much waits already."""
        if stream.namespace not in self._due:
            return
        self._due.discard(stream.namespace)
        with suppress(*_PASSING):
            if await stream.length() < self._hurry:
                pause_s = max(_SHORTEST_GATHER_S, min(worked_s * _GATHER_PER_WORK, _LONGEST_GATHER_S))
                await self._clock.sleep(pause_s)

    async def _carry(self, stream: OutboxStream, entries: list[Entry]) -> None:
        """Carry a batch, however long that takes."""
        while True:
            await self._clock.sleep(self._carrier.outage.remaining_s)
            try:
                await self._carrier.carry(stream, entries)
            except _PASSING as error:
                # What is wrong with the tier is told by its outage.
                _logger.info("%d changes of %s stay in Redis for now: %s", len(entries), stream.namespace, error)
                await self._clock.sleep(0.0 if self._carrier.outage.remaining_s else _REST_S)
            else:
                return
