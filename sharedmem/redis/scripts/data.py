"""Typed callers of the scripts on shared data: values, lists, hashes, sets, counters, messages, namespaces.

Values are written by group commit: one call sends the records that tasks of one actor write at the same moment. Each
record is independent in the call: it has its own condition, its own version and its own reply line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar, cast

from sharedmem.errors import SharedMemoryError, UsageError
from sharedmem.redis.codec import JSON
from sharedmem.redis.durability import DurabilityModes, UnsettledError
from sharedmem.redis.keys import Space, Target
from sharedmem.redis.replies import Argument
from sharedmem.redis.scripts.executor import ScriptExecutor, is_repeatable, split_version
from sharedmem.runtime.concurrency import Background

_MOST_RECORDS = 25
_MOST_BYTES = 49_152


class BatchedWrite(Protocol):
    """A write that may share a call with others."""

    @property
    def size(self) -> int:
        """Bytes of the arguments."""


W = TypeVar("W", bound=BatchedWrite)
G = TypeVar("G", bound=Hashable)
_Batch: TypeAlias = "list[tuple[W, asyncio.Future[bytes]]]"


def split_lines(replies: bytes) -> list[bytes]:
    """Return replies that are lines."""
    return replies.split(b"\n")


def join_replies(replies: Iterable[bytes]) -> bytes:
    """Return replies in the form that `split_replies` takes apart."""
    return b"".join([b"%d %b" % (len(reply), reply) for reply in replies])


def split_replies(replies: bytes) -> list[bytes]:
    """Return replies that may contain line feeds: each has its length and a space before it."""
    found, at = [], 0
    while at < len(replies):
        first = replies.index(b" ", at) + 1
        at = first + int(replies[at : first - 1])
        found.append(replies[first:at])
    return found


class WriteBatcher(Generic[G, W]):
    """Sends the writes of one actor; concurrent writes of a group share one call.

    Args:
        write: sends writes of a group, and returns the replies of all in one text; that of a single one as it is.
        background: runs a shared call, so that a cancelled caller does not cancel it for the others.
        split: takes the replies of several writes apart, in their order.
    """

    def __init__(
        self,
        write: Callable[[G, Sequence[W]], Awaitable[bytes]],
        background: Background,
        split: Callable[[bytes], list[bytes]] = split_lines,
    ) -> None:
        self._write = write
        self._split = split
        self._background = background
        self._gathering: dict[G, _Batch[W]] = {}
        # Writes of a single task are sent at once; concurrent writes are batched.
        self._crowded = False
        self._alone = 0

    def put(self, group: G, record: W) -> Awaitable[bytes]:
        """Write one record of a group, such as a namespace; return its reply.

        One round trip, shared with concurrent writes. The result has to be awaited in the same tick.
        """
        if is_repeatable():
            # A shared call would belong to all of its callers.
            return self._write_alone(group, record)
        gathered = self._gathering.get(group) if self._gathering else None
        if gathered is None:
            if self._crowded or self._alone:
                return self._gather(group, record)
            return self._write_alone(group, record)
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        gathered.append((record, future))
        return future

    async def _gather(self, group: G, record: W) -> bytes:
        """Write a record together with those that are written in this tick."""
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._gathering[group] = mine = [(record, future)]
        # Other tasks that run in this tick of the loop join before the first one continues.
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            future.cancel()
            raise
        finally:
            del self._gathering[group]
            self._crowded = len(mine) > 1
            if self._crowded:
                self._send(group, mine)
        return await (future if len(mine) > 1 else self._write_alone(group, record))

    async def _write_alone(self, group: G, record: W) -> bytes:
        self._alone += 1
        try:
            return await self._write(group, [record])
        finally:
            self._alone -= 1

    def _send(self, group: G, waiting: _Batch[W]) -> None:
        for part in _split_batch(waiting):
            try:
                work = self._background.start("write together", self._carry(group, part))
            except UsageError as error:
                _fail_batch(part, error)
            else:
                # The hub may close before its first step.
                work.when_done(partial(_fail_closed_batch, part))

    async def _carry(self, group: G, batch: _Batch[W]) -> None:
        # What was cancelled before it is sent is not done.
        waiting = [item for item in batch if not item[1].cancelled()]
        if not waiting:
            return
        records = [record for record, _ in waiting]
        try:
            replies = self._replies(await self._write(group, records), len(records))
        except UnsettledError as error:
            _settle_batch(waiting, self._replies(error.reply, len(records)), error.cause)
            return
        except Exception as error:  # noqa: BLE001  # any exception belongs to the waiting callers
            _fail_batch(waiting, error)
            return
        for (_, future), reply in zip(waiting, replies, strict=True):
            if not future.done():
                future.set_result(reply)

    def _replies(self, text: bytes, count: int) -> list[bytes]:
        return self._split(text) if count > 1 else [text]


def _fail_batch(waiting: _Batch[W], error: Exception) -> None:
    for _, future in waiting:
        if not future.done():
            future.set_exception(error)
            # Its caller may have been cancelled before it awaited this future.
            future.exception()


def _fail_closed_batch(waiting: _Batch[W]) -> None:
    _fail_batch(waiting, UsageError("a running write", "its hub was closed; it may or may not have happened"))


def _settle_batch(waiting: _Batch[W], replies: Sequence[bytes], cause: SharedMemoryError) -> None:
    """Raise an error for callers whose change is not durable yet; return the replies to the others."""
    for (_, future), reply in zip(waiting, replies, strict=True):
        if future.done():
            continue
        # Version 0: this one has changed nothing.
        if reply[:1].isdigit() and reply[:2] != b"0 ":
            future.set_exception(UnsettledError(reply, cause))
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


# -- values --------------------------------------------------------------------------------------


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

    @property
    def size(self) -> int:
        """Bytes of the payload."""
        return len(self.body)


class ValueScripts:
    """Writes values for the actors of one hub."""

    def __init__(self, executor: ScriptExecutor) -> None:
        self._executor = executor

    def value_write(
        self, space: Space, actor: bytes, records: Sequence[KeyWrite], *, together: bool
    ) -> Awaitable[bytes]:
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
        return self._executor.mutate("value_write", space, keys, actor, args, large=size, keep=keep)


# -- collections, messages, namespaces -----------------------------------------------------------


_USUAL_COUNTS = {"append": 1, "hset": 2, "hdel": 1, "hincrby": 2, "incr": 1, "sadd": 1, "srem": 1}


class CollectionChange(NamedTuple):
    """A change of a list, hash, set or counter."""

    target: Target
    operation: str
    """`append`, `hset`, `hdel`, `hincrby`, `incr`, `sadd` or `srem`."""
    arguments: Sequence[Argument]
    """As `lua/collection_change.lua` expects them for the operation."""
    ttl_ms: int
    """New expiry; 0: unchanged."""
    max_length: int
    """Length to which a list is trimmed; 0: it is not."""
    mode: str
    """Durability mode (see `redis.durability`); empty without a durable tier."""
    size: int
    """Bytes of the arguments."""


class DataScripts:
    """Changes shared data for the actors of one hub."""

    def __init__(self, executor: ScriptExecutor) -> None:
        self._executor = executor

    async def key_delete(self, key: Target, actor: bytes, *, keep: DurabilityModes | None = None) -> tuple[int, bytes]:
        """Return (version or 0, path of its blob or empty)."""
        return await self._one("key_delete", key, actor, keep=keep)

    async def key_expire(
        self, key: Target, actor: bytes, *, ttl_ms: int, keep: DurabilityModes | None = None
    ) -> tuple[int, bytes]:
        """Return (version or 0, b'1' if something changed)."""
        return await self._one("key_expire", key, actor, ttl_ms, keep=keep)

    def collection_change(self, space: Space, actor: bytes, changes: Sequence[CollectionChange]) -> Awaitable[bytes]:
        """Change collections of one namespace; return one reply line for each (see `lua/collection_change.lua`)."""
        args: list[Argument] = []
        keys: list[bytes] = []
        size = 0
        modes = ""
        for target, operation, arguments, ttl_ms, max_length, mode, bytes_ in changes:
            keys.append(target.physical)
            count = len(arguments)
            is_usual = not ttl_ms and not max_length and count == _USUAL_COUNTS[operation]
            args.append(operation if is_usual else f"{operation} {count} {ttl_ms} {max_length}")
            args += arguments
            size += bytes_
            modes += mode
        keep = DurabilityModes(tuple([change.target for change in changes]), modes) if modes else None
        return self._executor.mutate("collection_change", space, keys, actor, args, large=size, keep=keep)

    async def set_pop(self, set_: Target, actor: bytes, *, keep: DurabilityModes | None = None) -> tuple[int, bytes]:
        """Return (version or 0 when empty, the member)."""
        return await self._one("set_pop", set_, actor, keep=keep)

    async def set_move(
        self, source: Target, destination: Target, actor: bytes, *, member: bytes, keep: DurabilityModes | None = None
    ) -> tuple[int, bytes]:
        """Return (version or 0, b'1' if it has moved)."""
        keys = [source.physical, destination.physical]
        return split_version(await self._executor.mutate("set_move", source.space, keys, actor, [member], keep=keep))

    async def message_publish(self, operations: bytes, *, channel: bytes, message: bytes) -> int:
        """Return the number of subscribers that received it."""
        return int(await self._executor.run_once("message_publish", operations, [channel, message], large=len(message)))

    async def namespace_close(self, clock: bytes, *, lease_ms: int) -> int:
        """Reject writes to a namespace for `lease_ms` (0: allow them); return a version above all earlier ones."""
        return int(cast("bytes", await self._executor.run("namespace_close", [clock], [lease_ms])))

    async def namespace_cleared(self, space: Space, names: bytes, actor: bytes, *, logical: str) -> int:
        """Open a cleared namespace and announce that on its change feed; return the version of the clearing."""
        reply = await self._executor.run("namespace_cleared", [space.clock, space.changes, names], [actor, logical])
        return int(cast("bytes", reply))

    async def _one(
        self,
        script: str,
        key: Target,
        actor: bytes,
        *args: Argument,
        keep: DurabilityModes | None = None,
    ) -> tuple[int, bytes]:
        reply = await self._executor.mutate(script, key.space, [key.physical], actor, args, keep=keep)
        return split_version(reply)


# -- consumer groups -------------------------------------------------------------------------------


class GroupKeys(NamedTuple):
    """The keys of a consumer group of a change stream."""

    changes: bytes
    split: bytes
    """The changes that it got in packets, one by one, until they are acknowledged."""
    places: bytes
    """Their ids in `split`, where these are not their cursors."""


class GroupScripts:
    """Hands out changes within consumer groups."""

    def __init__(self, executor: ScriptExecutor) -> None:
        self._executor = executor

    async def group_join(self, keys: GroupKeys, *, group: str, start: str) -> bool:
        """Create a consumer group of a change stream that begins after `start`; return False if it exists."""
        return await self._executor.run("group_join", keys, [group, start]) == 1

    async def packet_split(self, keys: GroupKeys, *, group: str, ids: Sequence[str]) -> int:
        """Move the changes of delivered entries to the stream of their group; return how many were moved."""
        return int(cast("int", await self._executor.run("packet_split", keys, [group, *ids])))

    async def change_ack(self, keys: GroupKeys, *, group: str, cursors: Sequence[str]) -> int:
        """Acknowledge changes; return how many of them were pending in the group."""
        return int(cast("int", await self._executor.run("change_ack", keys, [group, *cursors])))
