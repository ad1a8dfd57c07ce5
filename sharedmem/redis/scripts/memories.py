"""Typed callers of the scripts on memories."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from sharedmem.redis.durability import DurabilityModes
from sharedmem.redis.keys import Space
from sharedmem.redis.replies import Argument
from sharedmem.redis.scripts.executor import ScriptExecutor

MEMORY_FAMILY = "memory"
COMMON_PARTS = ("log", "digests", "endings", "authors", "pending", "stats", "place")
"""What every change of memories touches, in the order in which the scripts take it."""

# Ids, keys and the like of one write, about.
_FIXED_BYTES = 400


class MemoryWrite(NamedTuple):
    """A memory to be written, as the script takes it."""

    id: str
    expect: int
    """Version that it has; 0 when it is new."""
    change: str
    told: bytes
    digest: str
    former: str
    over: str
    ttl_ms: Argument
    """-1 for ever; empty: as before."""
    turn: Argument
    """Empty: the next one."""
    thread: str
    head: bytes
    tail: bytes
    author: str
    body: bytes
    waits: int
    vector: bytes
    """As text for the durable tier; empty where there is none."""
    afresh: int
    fields: tuple[Argument, ...]
    """Further fields of its hash, each with its value behind it."""


class MemoryDelete(NamedTuple):
    """A memory to be deleted, as the script takes it."""

    id: str
    expect: Argument
    author: str
    thread: str


class MemoryScripts:
    """Changes the memories of the actors of one hub."""

    def __init__(self, sender: ScriptExecutor) -> None:
        self._sender = sender

    async def memory_write(
        self,
        space: Space,
        actor: bytes,
        *,
        keys: Sequence[bytes],
        seen: Argument,
        whole: int,
        most: int,
        history_s: int,
        writes: Sequence[MemoryWrite],
        keep: DurabilityModes | None = None,
    ) -> bytes:
        """Returns `<waiting> <verdict>...` in lines, or `BEHIND <newest> <id>...`."""
        args: list[Argument] = [seen, whole, most, history_s]
        for write in writes:
            args += write[:-1]
            args.append(len(write.fields) // 2)
            args += write.fields
        large = sum(map(_write_size, writes))
        return await self._sender.mutate("memory_write", space, keys, actor, args, large=large, keep=keep)

    async def memory_delete(
        self,
        space: Space,
        actor: bytes,
        *,
        keys: Sequence[bytes],
        most: int,
        history_s: int,
        told: bytes,
        deletes: Sequence[MemoryDelete],
        keep: DurabilityModes | None = None,
    ) -> list[bytes]:
        """Returns for each its version, `stale <version>`, or `gone`."""
        args: list[Argument] = [most, history_s, told, *chain.from_iterable(deletes)]
        reply = await self._sender.mutate("memory_delete", space, keys, actor, args, large=len(args) * 64, keep=keep)
        return reply.split(b"\n")

    async def memory_lapse(self, space: Space, actor: bytes, *, keys: Sequence[bytes], endings: Sequence[bytes]) -> int:
        """Returns how many were cleared away."""
        return int(await self._sender.mutate("memory_lapse", space, keys, actor, endings))

    async def memory_claim(self, *, pending: bytes, most: int, lease_ms: int) -> list[bytes] | int:
        """Returns ids to be embedded; else the milliseconds until there will be some, 0 when none wait."""
        reply = await self._sender.run("memory_claim", [pending], [most, lease_ms])
        ids = [one for one in reply if isinstance(one, bytes)] if isinstance(reply, list) else []
        if ids[:1] == [b""]:
            return max(1, int(ids[1]))
        return ids or 0

    async def memory_embed(
        self, space: Space, actor: bytes, *, keys: Sequence[bytes], vectors: Sequence[Argument]
    ) -> int:
        """Returns how many have got their vectors."""
        large = sum(map(_size, vectors))
        return int(await self._sender.mutate("memory_embed", space, keys, actor, vectors, large=large))

    async def memory_use(
        self,
        space: Space,
        actor: bytes,
        *,
        used: bytes,
        touched: bytes,
        records: Sequence[bytes],
        start: int,
        most: int,
        terms: Sequence[Argument],
    ) -> tuple[int, list[str]]:
        """Returns how many of those only looked at are there, and ids to look at next time."""
        args: list[Argument] = [start, most, *terms]
        reply = await self._sender.mutate("memory_use", space, [used, touched, *records], actor, args)
        there, *following = reply.decode().split("\n")
        return int(there), following


def _write_size(write: MemoryWrite) -> int:
    # The words are about as long as the text that they come from, with their prefixes; the vector comes last.
    return _FIXED_BYTES + 2 * len(write.body) + len(write.vector) + _size(write.fields[-1])


def _size(argument: Argument) -> int:
    return 8 if isinstance(argument, int) else len(argument)
