"""Consumer groups on the change stream: shared work with acknowledgement, redelivery and dead letters."""

from __future__ import annotations

from collections.abc import AsyncIterator

from sharedmem.models import Change
from sharedmem.process_bound import ProcessBound
from sharedmem.telemetry import get_logger
from sharedmem.wire.changes import as_list, parse_change, text_of
from sharedmem.wire.faults import translate
from sharedmem.wire.keys import Space
from sharedmem.wire.line import Line
from sharedmem.wire.replies import Argument, LostError, Reply, ServerError

_BATCH = 50
_WAIT_S = 1.0
_MOST_DEAD = 10_000
_logger = get_logger("consumers")


class Consumer(ProcessBound):
    """One consumer of a group: an async iterator of changes that are its own to handle.

    A change that is not acknowledged comes again: to this consumer after a restart under its name, to another
    one when this one has been silent too long. So handle changes idempotently, by version. Changes come
    again one by one, so that one which kills its consumers drags no other into the dead letters.
    """

    def __init__(
        self, line: Line, space: Space, dead_letters: bytes, *, group: str, name: str, idle_ms: int, max_deliveries: int
    ) -> None:
        self._line = line
        self._space = space
        self.group = group
        self.name = name
        self._idle_ms = idle_ms
        self._max_deliveries = max_deliveries
        self._dead_key = dead_letters
        self._after = "-"

    async def join(self, start: str) -> None:
        """Make the group, beginning at `start`, unless it exists. One round trip.

        Raises:
            UnavailableError, AccessDeniedError: as `write`.
        """
        try:
            await self._line.call("XGROUP", "CREATE", self._space.changes, self.group, start, "MKSTREAM")
        except ServerError as error:
            if "BUSYGROUP" not in error.text:  # fakeredis says ERR before it
                raise translate(error, self._line.address) from error

    async def __aiter__(self) -> AsyncIterator[Change]:
        # First what this consumer had when it stopped, then what others left lying, then what is new.
        async for change in self._mine():
            yield change
        while True:
            if (abandoned := await self._abandoned()) is not None:
                yield abandoned
                continue
            async for change in self._fresh():
                yield change

    async def ack(self, *changes: Change) -> int:
        """Say that the work of these changes is done; returns how many were this group's. One round trip.

        Raises:
            UnavailableError, AccessDeniedError: as `write`.
        """
        cursors = [change.cursor for change in changes]
        done = await self._line.call("XACK", self._space.changes, self.group, *cursors) if cursors else 0
        return done if isinstance(done, int) else 0

    async def pending(self) -> int:
        """How many changes of the group are delivered but not acknowledged. One round trip."""
        summary = as_list(await self._line.call("XPENDING", self._space.changes, self.group))
        return summary[0] if summary and isinstance(summary[0], int) else 0

    async def dead_letters(self) -> list[Change]:
        """The changes that were delivered too often, oldest first. One round trip."""
        entries = as_list(await self._line.call("XRANGE", self._dead_key, "-", "+", "COUNT", _MOST_DEAD))
        letters = {letter.cursor: letter for letter in map(_letter, entries)}
        return sorted(letters.values(), key=lambda letter: letter.version)

    async def _mine(self) -> AsyncIterator[Change]:
        """What was delivered to this consumer, behind the newest that came through to it."""
        while (found := await self._first_pending(self._after, "+", 1, self.name)) is not None:
            self._after = f"({found[0]}"
            if (change := await self._claimed(*found, idle_ms=0)) is not None:
                yield change

    async def _abandoned(self) -> Change | None:
        """The oldest change whose consumer has been silent too long, now ours."""
        while (found := await self._first_pending("IDLE", self._idle_ms, "-", "+", 1)) is not None:
            if (change := await self._claimed(*found, idle_ms=self._idle_ms)) is not None:
                return change
        return None

    async def _fresh(self) -> AsyncIterator[Change]:
        wait_ms = int(_WAIT_S * 1000)
        # What is fetched ahead counts as delivered: where once is too often, nothing may be.
        count = _BATCH if self._max_deliveries > 1 else 1
        who = ("GROUP", self.group, self.name, "COUNT", count, "BLOCK", wait_ms)
        try:
            reply = await self._line.block("XREADGROUP", *who, "STREAMS", self._space.changes, ">", wait_s=_WAIT_S)
        except LostError as error:
            # The server may have handed changes to us that never came: they are ours already.
            _logger.warning("consumer %s of %s: %s", self.name, self.group, error)
            async for change in self._mine():
                yield change
            return
        except ServerError as error:
            raise translate(error, self._line.address) from error
        changes = _changes(reply)
        if changes:
            self._after = f"({changes[-1].cursor}"
        for change in changes:
            yield change

    async def _first_pending(self, *which: Argument) -> tuple[str, int] | None:
        """(cursor, deliveries so far) of the oldest unacknowledged change among those asked for."""
        rows = as_list(await self._line.call("XPENDING", self._space.changes, self.group, *which))
        if not rows:
            return None
        cursor, _, _, deliveries = as_list(rows[0])
        return text_of(cursor), deliveries if isinstance(deliveries, int) else 0

    async def _claimed(self, cursor: str, deliveries: int, *, idle_ms: int) -> Change | None:
        """The change, made ours; None when another was faster, it was trimmed, or it is a dead letter now."""
        reply = await self._line.call("XCLAIM", self._space.changes, self.group, self.name, idle_ms, cursor)
        for entry in filter(as_list, as_list(reply)):
            if deliveries < self._max_deliveries:
                return parse_change(entry)
            await self._bury(entry)
        return None

    async def _bury(self, entry: Reply) -> None:
        cursor, fields = as_list(entry)
        words: list[Argument] = [field for field in as_list(fields) if isinstance(field, bytes)]
        # Under an id of its own: letters are buried in any order, and twice when a reply was lost.
        await self._line.call("XADD", self._dead_key, "MAXLEN", "~", _MOST_DEAD, "*", "cursor", text_of(cursor), *words)
        await self._line.call("XACK", self._space.changes, self.group, text_of(cursor))


def _letter(entry: Reply) -> Change:
    """The change that a dead letter holds."""
    fields = as_list(as_list(entry)[1])
    return parse_change([fields[1], fields[2:]])


def _changes(reply: Reply) -> list[Change]:
    streams = as_list(reply)
    return [parse_change(entry) for entry in as_list(as_list(streams[0])[1])] if streams else []
