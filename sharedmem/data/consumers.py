"""Consumer groups on the change stream: shared work with acknowledgement, redelivery and dead letters."""

from __future__ import annotations

from collections.abc import AsyncIterator

from sharedmem.models import Change
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


class Consumer:
    """One consumer of a group: an async iterator of changes that are its own to handle.

    A change that is not acknowledged comes again: to this consumer after a lost connection or a restart,
    to another one when this one has been silent too long. So handle changes idempotently, by version.
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

    async def join(self, start: str) -> None:
        """Make the group, beginning at `start`, unless it exists. One round trip.

        Raises:
            UnavailableError, AccessDeniedError: as `write`.
        """
        try:
            await self._line.call("XGROUP", "CREATE", self._space.changes, self.group, start, "MKSTREAM")
        except ServerError as error:
            if error.code != "BUSYGROUP":
                raise translate(error, self._line.address) from error

    async def __aiter__(self) -> AsyncIterator[Change]:
        # First what this consumer had when it stopped, then what others left lying, then what is new.
        for change in await self._mine():
            yield change
        while True:
            for change in await self._abandoned() or await self._fresh():
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
        entries = await self._line.call("XRANGE", self._dead_key, "-", "+", "COUNT", _MOST_DEAD)
        return [parse_change(entry) for entry in as_list(entries)]

    async def _mine(self) -> list[Change]:
        return self._changes(await self._read("0"))

    async def _fresh(self) -> list[Change]:
        wait_ms = int(_WAIT_S * 1000)
        args = self._reading("BLOCK", wait_ms, cursor=">")
        try:
            return self._changes(await self._line.block(*args, wait_s=_WAIT_S))
        except LostError as error:
            # The server may have handed changes to us that never came: they are ours already.
            _logger.warning("consumer %s of %s: %s", self.name, self.group, error)
            return await self._mine()
        except ServerError as error:
            raise translate(error, self._line.address) from error

    async def _abandoned(self) -> list[Change]:
        """Changes whose consumers have been silent too long, now ours; those delivered too often are buried."""
        args = (self.group, self.name, self._idle_ms, "0-0", "COUNT", _BATCH)
        reply = as_list(await self._line.call("XAUTOCLAIM", self._space.changes, *args))
        entries = [entry for entry in as_list(reply[1] if len(reply) > 1 else None) if as_list(entry)]
        if not entries:
            return []
        worn = await self._worn_out()
        for entry in entries:
            if text_of(as_list(entry)[0]) in worn:
                await self._bury(entry)
        return [change for change in map(parse_change, entries) if change.cursor not in worn]

    async def _worn_out(self) -> set[str]:
        pending = await self._line.call("XPENDING", self._space.changes, self.group, "-", "+", _BATCH * 20, self.name)
        rows = [as_list(row) for row in as_list(pending)]
        return {text_of(row[0]) for row in rows if isinstance(row[3], int) and row[3] > self._max_deliveries}

    async def _bury(self, entry: Reply) -> None:
        cursor, fields = as_list(entry)
        words: list[Argument] = [field for field in as_list(fields) if isinstance(field, bytes)]
        try:
            await self._line.call("XADD", self._dead_key, "MAXLEN", "~", _MOST_DEAD, text_of(cursor), *words)
        except ServerError as error:
            # Its id is there already: it was buried before, by a call whose reply was lost.
            _logger.debug("burying %s: %s", text_of(cursor), error)
        await self._line.call("XACK", self._space.changes, self.group, text_of(cursor))

    async def _read(self, cursor: str) -> Reply:
        return await self._line.call(*self._reading(cursor=cursor))

    def _reading(self, *options: Argument, cursor: str) -> tuple[Argument, ...]:
        who: tuple[Argument, ...] = ("XREADGROUP", "GROUP", self.group, self.name, "COUNT", _BATCH)
        return (*who, *options, "STREAMS", self._space.changes, cursor)

    @staticmethod
    def _changes(reply: Reply) -> list[Change]:
        streams = as_list(reply)
        entries = as_list(as_list(streams[0])[1]) if streams else []
        # A trimmed entry that is still pending comes without fields: nothing is left of it to handle.
        return [parse_change(entry) for entry in entries if as_list(as_list(entry)[1])]
