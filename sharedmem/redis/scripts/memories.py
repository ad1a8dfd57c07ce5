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
"""The parts that every change of memories uses, in the order of the scripts."""

# Approximate bytes of ids, keys and the like of one write.
_FIXED_BYTES = 400


class MemoryWrite(NamedTuple):
    """A memory to write, in the form of the script."""

    id: str
    expect: int
    """Its present version; 0: new."""
    change: str
    change_json: bytes
    digest: str
    former: str
    over: str
    ttl_ms: Argument
    """-1: for ever; empty: unchanged."""
    turn: Argument
    """Empty: the next one."""
    thread: str
    head: bytes
    tail: bytes
    author: str
    body: bytes
    waits: int
    vector: bytes
    """The vector as text for the durable tier; empty without a durable tier."""
    afresh: int
    fields: tuple[Argument, ...]
    """Further fields of its hash, each followed by its value."""

    @classmethod
    def deletion(cls, id_: str, expect: int, change_json: bytes, thread: str, author: str) -> MemoryWrite:
        """Return the deletion of a memory, for a step that also writes others."""
        return cls(
            id=id_,
            expect=expect,
            change="deleted",
            change_json=change_json,
            digest="",
            former="",
            over="*",
            ttl_ms="",
            turn="",
            thread=thread,
            head=b"",
            tail=b"",
            author=author,
            body=b"",
            waits=0,
            vector=b"",
            afresh=0,
            fields=(),
        )


class MemoryDelete(NamedTuple):
    """A memory to delete, in the form of the script."""

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
        """Return `<waiting> <verdict>...` in lines, or `BEHIND <newest> <id>...`."""
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
        change_json: bytes,
        deletes: Sequence[MemoryDelete],
        keep: DurabilityModes | None = None,
    ) -> list[bytes]:
        """Return the version of each, `stale <version>`, or `gone`."""
        args: list[Argument] = [most, history_s, change_json, *chain.from_iterable(deletes)]
        reply = await self._sender.mutate("memory_delete", space, keys, actor, args, large=len(args) * 64, keep=keep)
        return reply.split(b"\n")

    async def memory_lapse(self, space: Space, actor: bytes, *, keys: Sequence[bytes], endings: Sequence[bytes]) -> int:
        """Return the number of deleted memories."""
        return int(await self._sender.mutate("memory_lapse", space, keys, actor, endings))

    async def memory_claim(self, *, pending: bytes, most: int, lease_ms: int) -> list[bytes] | int:
        """Return ids to embed; otherwise the milliseconds until the next ones are due, 0 if none are waiting."""
        reply = await self._sender.run("memory_claim", [pending], [most, lease_ms])
        ids = [one for one in reply if isinstance(one, bytes)] if isinstance(reply, list) else []
        if ids[:1] == [b""]:
            return max(1, int(ids[1]))
        return ids or 0

    async def memory_embed(
        self, space: Space, actor: bytes, *, keys: Sequence[bytes], vectors: Sequence[Argument]
    ) -> int:
        """Return how many memories got their vectors."""
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
        """Return how many of the read-only ids exist, and the ids to check next time."""
        args: list[Argument] = [start, most, *terms]
        reply = await self._sender.mutate("memory_use", space, [used, touched, *records], actor, args)
        there, *following = reply.decode().split("\n")
        return int(there), following


def _write_size(write: MemoryWrite) -> int:
    # The words with their prefixes are about as long as their text; the vector is the last field.
    last = _size(write.fields[-1]) if write.fields else 0
    return _FIXED_BYTES + 2 * len(write.body) + len(write.vector) + last


def _size(argument: Argument) -> int:
    return 8 if isinstance(argument, int) else len(argument)
