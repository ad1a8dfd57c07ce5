"""Group commit: one call sends the records that tasks of one actor write at the same moment.

Each record is independent in the call: it has its own condition, its own version and its own reply line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Generic, Protocol, TypeAlias, TypeVar

from sharedmem.errors import UsageError
from sharedmem.redis.durability import UnsettledError
from sharedmem.redis.keys import Space, Target
from sharedmem.redis.scripts.executor import is_repeatable
from sharedmem.runtime.background import Background

_MOST_RECORDS = 25
_MOST_BYTES = 49_152


class BatchedWrite(Protocol):
    """A write that may share a call with others of its namespace."""

    @property
    def target(self) -> Target:
        """The key that is written."""

    @property
    def size(self) -> int:
        """Bytes of the arguments."""


W = TypeVar("W", bound=BatchedWrite)
_Batch: TypeAlias = "list[tuple[W, asyncio.Future[bytes]]]"


class WriteBatcher(Generic[W]):
    """Sends the writes of one actor; concurrent writes to a namespace share one call.

    Args:
        write: sends writes to a namespace, and returns one reply line for each.
        background: runs a shared call, so that a cancelled caller does not cancel it for the others.
    """

    def __init__(self, write: Callable[[Space, Sequence[W]], Awaitable[list[bytes]]], background: Background) -> None:
        self._write = write
        self._background = background
        self._gathering: dict[Space, _Batch[W]] = {}
        # Writes of a single task are sent at once; concurrent writes are batched.
        self._crowded = False
        self._alone = 0

    async def put(self, record: W) -> bytes:
        """Write one record; return its reply line. One round trip, shared with concurrent writes."""
        if is_repeatable():
            # A shared call would belong to all of its callers.
            return await self._write_alone(record)
        space = record.target.space
        gathered = self._gathering.get(space)
        if gathered is None and not self._crowded and not self._alone:
            self._alone += 1
            try:
                return (await self._write(space, [record]))[0]
            finally:
                self._alone -= 1
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if gathered is not None:
            gathered.append((record, future))
            return await future
        self._gathering[space] = mine = [(record, future)]
        # Other tasks that run in this tick of the loop join before the first one continues.
        try:
            await asyncio.sleep(0)
        finally:
            del self._gathering[space]
            self._crowded = len(mine) > 1
            if self._crowded:
                self._send(space, mine)
        return await (future if len(mine) > 1 else self._write_alone(record))

    async def _write_alone(self, record: W) -> bytes:
        self._alone += 1
        try:
            replies = await self._write(record.target.space, [record])
        finally:
            self._alone -= 1
        return replies[0]

    def _send(self, space: Space, waiting: _Batch[W]) -> None:
        for part in _split_batch(waiting):
            try:
                work = self._background.start("write together", self._carry(space, part))
            except UsageError as error:
                _fail_batch(part, error)
            else:
                # The hub may close before its first step.
                work.when_done(partial(_fail_closed_batch, part))

    async def _carry(self, space: Space, waiting: _Batch[W]) -> None:
        records = [record for record, _ in waiting]
        try:
            replies = await self._write(space, records)
        except UnsettledError as error:
            _settle_batch(waiting, error)
            return
        except Exception as error:  # noqa: BLE001  # any exception belongs to the waiting callers
            _fail_batch(waiting, error)
            return
        for (_, future), reply in zip(waiting, replies, strict=True):
            if not future.done():
                future.set_result(reply)


def _fail_batch(waiting: _Batch[W], error: Exception) -> None:
    for _, future in waiting:
        if not future.done():
            future.set_exception(error)
            # Its caller may have been cancelled before it awaited this future.
            future.exception()


def _fail_closed_batch(waiting: _Batch[W]) -> None:
    _fail_batch(waiting, UsageError("a running write", "its hub was closed; it may or may not have happened"))


def _settle_batch(waiting: _Batch[W], error: UnsettledError) -> None:
    """Raise the error for callers whose change is not durable yet; return the replies to the others."""
    for (_, future), reply in zip(waiting, error.reply.split(b"\n"), strict=True):
        if future.done():
            continue
        # Version 0: this one has changed nothing.
        if reply[:1].isdigit() and reply[:2] != b"0 ":
            future.set_exception(UnsettledError(reply, error.cause))
        else:
            future.set_result(reply)


def _split_batch(waiting: _Batch[W]) -> list[_Batch[W]]:
    """Return parts of about equal size, so that no part is much smaller than the others."""
    most = -(-len(waiting) // -(-len(waiting) // _MOST_RECORDS))
    parts: list[_Batch[W]] = [[]]
    size = 0
    for item in waiting:
        size += item[0].size
        if parts[-1] and (len(parts[-1]) >= most or size > _MOST_BYTES):
            parts.append([])
            size = item[0].size
        parts[-1].append(item)
    return parts
