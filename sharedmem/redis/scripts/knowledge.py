"""Typed callers of the scripts on what agents know: memories, synthesised notes, graphs, cached answers, episodes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Literal, NamedTuple

from sharedmem.redis.durability import DurabilityModes
from sharedmem.redis.keys import KeySpace, Space
from sharedmem.redis.replies import Argument, Reply
from sharedmem.redis.scripts.executor import ScriptExecutor, split_version

# -- memories ------------------------------------------------------------------------------------


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


# -- notes ---------------------------------------------------------------------------------------


NOTE_FAMILY = "note"
"""The record family of notes."""
_NAMESPACE_PARTS, _APP_PARTS = ("log", "place", "apps"), ("ids", "users", "chains")
# Approximate bytes of ids, keys and the like of one note.


class NoteWrite(NamedTuple):
    """A note to write, in the form of the script."""

    expect: int
    """Its present version; 0: new."""
    task: str
    user: str
    status: str
    chain: str
    event: str
    """The operation on the change feed."""
    vector: bytes
    """The vector as text for the durable tier; empty without a durable tier."""
    drops: int
    """1 if its vector is deleted."""
    fields: tuple[Argument, ...]
    """Fields of its hash, each followed by its value, its body first."""


def note_keys(keyspace: KeySpace, namespace: str, app: str) -> list[bytes]:
    """Return the service keys for the notes of an app, in the order of the scripts.

    Args:
        keyspace: builds the keys.
        namespace: the namespace.
        app: name of the app, as used in keys.
    """
    common = [keyspace.record_part(NOTE_FAMILY, namespace, part) for part in _NAMESPACE_PARTS]
    return common + [keyspace.record_item(NOTE_FAMILY, namespace, part, app) for part in _APP_PARTS]


class NoteScripts:
    """Changes the notes of the actors of one hub."""

    def __init__(self, sender: ScriptExecutor) -> None:
        self._sender = sender

    async def note_commit(
        self,
        space: Space,
        actor: bytes,
        *,
        keys: Sequence[bytes],
        app: str,
        reader: str,
        seen: int,
        words: Sequence[Argument],
        keep: DurabilityModes | None = None,
    ) -> str:
        """Return `ok <version>`, `repeat`, or `behind <place>...`."""
        args: list[Argument] = [app, reader, seen, *words]
        large = sum(map(_argument_size, words))
        return (await self._sender.mutate("note_commit", space, keys, actor, args, large=large, keep=keep)).decode()

    async def note_erase(
        self, space: Space, actor: bytes, *, keys: Sequence[bytes], app: str, keep: DurabilityModes | None = None
    ) -> int:
        """Return the number of deleted notes."""
        large = _FIXED_BYTES * len(keys)
        return int(await self._sender.mutate("note_erase", space, keys, actor, [app], large=large, keep=keep))

    async def note_index(
        self,
        space: Space,
        actor: bytes,
        *,
        keys: Sequence[bytes],
        field: Literal["vector", "terms"],
        values: Sequence[Argument],
    ) -> int:
        """Return the number of updated notes."""
        large = sum(map(_argument_size, values))
        return int(await self._sender.mutate("note_index", space, keys, actor, [field, *values], large=large))


def commit_arguments(fences: Sequence[tuple[str, int]], writes: Sequence[NoteWrite]) -> list[Argument]:
    """Return the arguments of `note_commit` for fencing tokens and notes."""
    words: list[Argument] = [len(fences)]
    for name, token in fences:
        words += (name, token)
    for write in writes:
        words += (*write[:-1], len(write.fields), *write.fields)
    return words


def _argument_size(argument: Argument) -> int:
    return len(argument) if isinstance(argument, str | bytes) else 8


# -- graphs --------------------------------------------------------------------------------------


GRAPH_FAMILY = "graph"
"""The record family of graphs."""


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


# -- cached answers ------------------------------------------------------------------------------


class CachePutKeys(NamedTuple):
    """The key of an answer, and its further keys (see `lua/include/cache.lua`)."""

    record: bytes
    log: bytes
    endings: bytes
    gone: bytes
    place: bytes


class CacheScripts:
    """Changes the cached answers of the namespaces of one hub."""

    def __init__(self, sender: ScriptExecutor) -> None:
        self._sender = sender

    async def cache_put(
        self, space: Space, keys: CachePutKeys, actor: bytes, *, id_: str, ttl_ms: int, fields: Sequence[bytes]
    ) -> int:
        """Return the version of the answer."""
        args: list[Argument] = [id_, ttl_ms, *fields]
        large = sum(map(len, fields))
        return int(await self._sender.mutate("cache_put", space, keys, actor, args, large=large))

    async def cache_drop(self, space: Space, keys: Sequence[bytes], actor: bytes, *, ids: Sequence[str]) -> int:
        """Return the number of deleted answers; `keys`: the keys of the answers, then of log, endings and gone."""
        return int(await self._sender.mutate("cache_drop", space, keys, actor, ids))

    async def cache_count(self, space: Space, stats: bytes, actor: bytes, *, pairs: Sequence[str]) -> None:
        """Add amounts, given as field, amount, field, amount."""
        await self._sender.mutate("cache_count", space, [stats], actor, pairs)


# -- episodes ------------------------------------------------------------------------------------


class EpisodeKeys(NamedTuple):
    """The keys of an episode, and of the index of all episodes of its namespace."""

    episode: bytes
    summary: bytes
    sessions: bytes
    endings: bytes


class EpisodeScripts:
    """Changes the episodes of the actors of one hub."""

    def __init__(self, sender: ScriptExecutor) -> None:
        self._sender = sender

    async def episode_append(
        self, space: Space, keys: EpisodeKeys, actor: bytes, *, session: str, event: bytes, most: int, ttl_ms: int
    ) -> tuple[int, int]:
        """Return (version of the event, number of stored events)."""
        args: list[Argument] = [session, event, most, ttl_ms]
        reply = await self._sender.mutate("episode_append", space, keys, actor, args, large=len(event))
        version, kept = split_version(reply)
        return version, int(kept)

    async def episode_summarize(
        self, space: Space, episode: bytes, summary: bytes, actor: bytes, *, upto: int, text: bytes
    ) -> bool:
        """Return whether the summary was stored."""
        args: list[Argument] = [upto, text]
        return await self._sender.mutate("episode_summarize", space, [episode, summary], actor, args) == b"1"
