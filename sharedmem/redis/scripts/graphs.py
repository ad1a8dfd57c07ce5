"""Typed callers of the scripts on knowledge graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sharedmem.redis.durability import DurabilityModes
from sharedmem.redis.keys import Space
from sharedmem.redis.replies import Argument, Reply
from sharedmem.redis.scripts.executor import ScriptExecutor


class GraphLookKeys(NamedTuple):
    """The keys that a look-up reads besides records, in the order of the script."""

    groups: bytes
    changed: bytes
    names: bytes
    claims: bytes
    told: bytes


class GraphCloseKeys(NamedTuple):
    """The keys that closing a group deletes at once, in the order of the script."""

    groups: bytes
    edges: bytes
    claims: bytes
    names: bytes
    merges: bytes
    changed: bytes
    told: bytes


class WalkOptions(NamedTuple):
    """The edges that a traversal follows; times with leading zeros."""

    world: str
    world_back: str
    """Time counted backwards from the end of time."""
    known: str
    past: int
    """1: include superseded versions."""
    kinds: str
    """`r` relations, `a` attributes, `ra` both."""
    types: str
    """Types with U+001F around each; empty: all types."""
    depth: int
    fan_out: int
    limit: int
    patience: int
    """Most edges to read of one entity."""


class GraphScripts:
    """Reads and changes the knowledge graphs of the actors of one hub."""

    def __init__(self, sender: ScriptExecutor) -> None:
        self._sender = sender

    async def graph_look(
        self,
        keys: GraphLookKeys,
        *,
        records: Sequence[bytes],
        names_count: int,
        lines_count: int,
        has_vector: int,
        asked: Sequence[str],
    ) -> list[Reply]:
        """Return the reply of the script, unchanged."""
        args: list[Argument] = [names_count, lines_count, has_vector, *asked]
        return _check_list(await self._sender.run("graph_look", [*keys, *records], args))

    async def graph_commit(
        self,
        space: Space,
        actor: bytes,
        *,
        keys: Sequence[bytes],
        group: str,
        seen: int,
        words: Sequence[Argument],
        keep: DurabilityModes | None = None,
    ) -> bytes:
        """Return the version, `BEHIND` or `UNFINISHED`."""
        large = sum(8 if isinstance(word, int) else len(word) for word in words)
        args: list[Argument] = [group, seen, *words]
        return await self._sender.mutate("graph_commit", space, keys, actor, args, large=large, keep=keep)

    async def graph_walk(self, edges: bytes, around: WalkOptions, *, starts: Sequence[str]) -> list[Reply]:
        """Return whether edges were left out, then distance and member of each edge."""
        return _check_list(await self._sender.run("graph_walk", [edges], [*around, *starts]))

    async def graph_close(
        self, space: Space, keys: GraphCloseKeys, actor: bytes, *, group: str, token: str, lease_ms: int
    ) -> tuple[str, int] | None:
        """Return (token, number of remaining records); None if there is no such group."""
        reply = await self._sender.mutate("graph_close", space, keys, actor, [group, token, lease_ms])
        if reply == b"absent":
            return None
        holder, _, left = reply.decode().partition(" ")
        return holder, int(left)

    async def graph_forget(
        self,
        space: Space,
        actor: bytes,
        *,
        keys: Sequence[bytes],
        group: str,
        token: str,
        lease_ms: int,
        key: bytes,
        members: Sequence[bytes],
        keep: DurabilityModes | None = None,
    ) -> tuple[str, int]:
        """Return (`more`, `done` or `over`, number of deleted records)."""
        args: list[Argument] = [group, token, lease_ms, key, *members]
        reply = await self._sender.mutate("graph_forget", space, keys, actor, args, large=len(args) * 64, keep=keep)
        word, _, deleted = reply.decode().partition(" ")
        return word, int(deleted or 0)

    async def graph_embed(
        self, space: Space, actor: bytes, *, keys: Sequence[bytes], vectors: Sequence[Argument]
    ) -> int:
        """Return how many records got their vectors."""
        large = sum(8 if isinstance(word, int) else len(word) for word in vectors)
        return int(await self._sender.mutate("graph_embed", space, keys, actor, vectors, large=large))

    async def graph_mend(
        self, space: Space, actor: bytes, *, keys: Sequence[bytes], group: str, words: Sequence[Argument]
    ) -> int:
        """Return the number of repaired records."""
        large = sum(8 if isinstance(word, int) else len(word) for word in words)
        return int(await self._sender.mutate("graph_mend", space, keys, actor, [group, *words], large=large))

    async def graph_install(self, *, turn: bytes, graph: bytes, ready: bytes, token: str) -> bool:
        """Return whether the caller had the lease."""
        return await self._sender.run("graph_install", [turn, graph, ready], [token]) == 1


def _check_list(reply: Reply) -> list[Reply]:
    assert isinstance(reply, list)
    return reply
