"""Write values: one script call sends the records that tasks write at the same moment.

Each record is independent in the call: it has its own condition, its own version and its own reply line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from sharedmem.errors import UsageError
from sharedmem.redis.codec import JSON
from sharedmem.redis.durability import DurabilityModes, UnsettledError
from sharedmem.redis.keys import Space, Target
from sharedmem.redis.replies import Argument
from sharedmem.redis.scripts.executor import ScriptExecutor
from sharedmem.runtime.background import Background

_MOST_RECORDS = 25
_MOST_BYTES = 49_152
_ANY = "*"


class KeyWrite(NamedTuple):
    """A value to write."""

    target: Target
    expect: str
    """`*`: any; empty: absent; `x`: a string without a header; otherwise the exact version."""
    ttl_ms: int
    codec: bytes
    body: bytes
    mode: str = ""
    """Durability mode (see `redis.durability`); empty without a durable tier."""


class ValueScripts:
    """Writes values for the actors of one hub."""

    def __init__(self, executor: ScriptExecutor) -> None:
        self._executor = executor

    async def value_write(
        self, space: Space, actor: bytes, records: Sequence[KeyWrite], *, together: bool
    ) -> list[bytes]:
        """Write records of one namespace; return one reply line for each (see `lua/value_write.lua`)."""
        args: list[Argument] = [int(together)]
        keys: list[bytes] = []
        size = 0
        for target, expect, ttl_ms, codec, body, _ in records:
            keys.append(target.physical)
            usual = expect == _ANY and not ttl_ms and codec == JSON
            args += (b"" if usual else f"{expect} {ttl_ms} {codec.decode()}", body)
            size += len(body)
        keep = None
        if modes := "".join([record.mode for record in records]):
            is_repeatable = all(record.expect == _ANY for record in records)
            keep = DurabilityModes(tuple([record.target for record in records]), modes, is_repeatable)
        reply = await self._executor.mutate("value_write", space, keys, actor, args, large=size, keep=keep)
        return reply.split(b"\n")


_Batch = list[tuple[KeyWrite, "asyncio.Future[bytes]"]]


class WriteBatcher:
    """Sends the writes of one actor; concurrent writes to a namespace share one call.

    Args:
        scripts: sends the writes.
        actor: actor of the writes.
        background: runs a shared call, so that a cancelled caller does not cancel it for the others.
    """

    def __init__(self, scripts: ValueScripts, actor: bytes, background: Background) -> None:
        self._scripts = scripts
        self._actor = actor
        self._background = background
        self._gathering: dict[Space, _Batch] = {}
        # Writes of a single task are sent at once; concurrent writes are batched.
        self._crowded = False
        self._alone = 0

    async def put(self, record: KeyWrite) -> bytes:
        """Write one record; return its reply line (see `lua/value_write.lua`). One round trip, shared."""
        space = record.target.space
        gathered = self._gathering.get(space)
        if gathered is None and not self._crowded and not self._alone:
            return await self._write_alone(record)
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

    async def _write_alone(self, record: KeyWrite) -> bytes:
        self._alone += 1
        try:
            replies = await self._scripts.value_write(record.target.space, self._actor, [record], together=False)
        finally:
            self._alone -= 1
        return replies[0]

    def _send(self, space: Space, waiting: _Batch) -> None:
        for part in _split_batch(waiting):
            try:
                work = self._background.start("write together", self._carry(space, part))
            except UsageError as error:
                _fail_batch(part, error)
            else:
                # The hub may close before its first step.
                work.when_done(partial(_fail_closed_batch, part))

    async def _carry(self, space: Space, waiting: _Batch) -> None:
        records = [record for record, _ in waiting]
        try:
            replies = await self._scripts.value_write(space, self._actor, records, together=False)
        except UnsettledError as error:
            _settle_batch(waiting, error)
            return
        except Exception as error:  # noqa: BLE001  # any exception belongs to the waiting callers
            _fail_batch(waiting, error)
            return
        for (_, future), reply in zip(waiting, replies, strict=True):
            if not future.done():
                future.set_result(reply)


def _fail_batch(waiting: _Batch, error: Exception) -> None:
    for _, future in waiting:
        if not future.done():
            future.set_exception(error)
            # Its caller may have been cancelled before it awaited this future.
            future.exception()


def _fail_closed_batch(waiting: _Batch) -> None:
    _fail_batch(waiting, UsageError("a running write", "its hub was closed; it may or may not have happened"))


def _settle_batch(waiting: _Batch, error: UnsettledError) -> None:
    """Raise the error for callers whose change is not durable yet; return the replies to the others."""
    for (_, future), reply in zip(waiting, error.reply.split(b"\n"), strict=True):
        if future.done():
            continue
        if reply[:1].isdigit():
            future.set_exception(UnsettledError(reply, error.cause))
        else:
            future.set_result(reply)


def _split_batch(waiting: _Batch) -> list[_Batch]:
    """Return parts of about equal size, so that no part is much smaller than the others."""
    most = -(-len(waiting) // -(-len(waiting) // _MOST_RECORDS))
    parts: list[_Batch] = [[]]
    size = 0
    for item in waiting:
        size += len(item[0].body)
        if parts[-1] and (len(parts[-1]) >= most or size > _MOST_BYTES):
            parts.append([])
            size = len(item[0].body)
        parts[-1].append(item)
    return parts
