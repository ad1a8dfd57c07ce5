"""Typed callers of the scripts that move keys and records between Redis, the durable tier and archives.

A change of a durable key adds its documents to the namespace's outbox, in the same atomic step
(`lua/include/kept.lua`). Data that is no longer in Redis is restored under a read lease, which every writer ends, so
that no deleted or older data is restored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

from sharedmem.errors import InternalError
from sharedmem.redis.keys import KeySpace, Space
from sharedmem.redis.replies import Argument
from sharedmem.redis.scripts.executor import POOLED_ABOVE_BYTES, ScriptExecutor


class ServiceKeys(NamedTuple):
    """The service keys of a namespace that looking for keys and restoring them need."""

    clock: bytes
    kept: bytes


class NamespaceJoinKeys(NamedTuple):
    """The keys for joining a namespace."""

    clock: bytes
    changes: bytes
    kept: bytes


class KeyDropKeys(NamedTuple):
    """The keys for dropping the copy of a key; its parts follow."""

    kept: bytes
    state: bytes
    key: bytes


class DurableKey(NamedTuple):
    """A durable key, or the key that shows its presence, and its state."""

    key: bytes
    state: bytes


class DeliveredEntry(NamedTuple):
    """An entry of the outbox that the tier has stored as far as it ever will."""

    entry: bytes
    stamp: bytes
    """Stamp of its first document, or `-`: after a loss of data another entry may have the same id."""
    documents: Mapping[int, int]
    """Number of documents that the tier has, by the index of their key in the accompanying list, from 1."""


class KeyLook(NamedTuple):
    """A key that was not found in Redis."""

    place: DurableKey
    logical: str
    mode: str
    """Its durability mode (see `redis.durability`)."""


class FilledPart(NamedTuple):
    """One Redis key of a key to restore."""

    place: bytes
    staged: bytes
    """The staged part; empty: it comes with the call."""
    command: str = ""
    row: Sequence[Argument] = ()
    """The arguments of the command after the key."""


class KeyFill(NamedTuple):
    """A key to restore, whose read lease the caller has."""

    place: DurableKey
    what: str
    """`cache`, `restore`, `absent` or `release`: see `lua/key_fill.lua`."""
    expires: int = 0
    """Milliseconds since 1970; 0: never."""
    stamp: int = 0
    """Stamp of a list's last change in the tier."""
    logical: str = ""
    """The logical key of a list; empty: not a list."""
    parts: Sequence[FilledPart] = ()
    size: int = 0
    """Bytes of the parts that come with the call."""


class RejectedField(NamedTuple):
    """A field of an entry that the tier rejects for good."""

    entry: bytes
    field: int
    """Index of the field, from 1."""
    reason: str


class DurableScripts:
    """Moves keys between Redis and the durable tier."""

    def __init__(self, sender: ScriptExecutor) -> None:
        self._sender = sender

    async def key_look(self, owner: ServiceKeys, looks: Sequence[KeyLook], *, token: str, lease_ms: int) -> list[str]:
        """Return of each key `hot`, `none`, `lost`, `pending`, `wait <ms>` or `load <ms since 1970>`."""
        keys = [part for one in looks for part in one.place]
        args = [part for one in looks for part in (one.logical, one.mode)]
        reply = await self._sender.run("key_look", [*owner, *keys], [token, lease_ms, *args])
        return _text(reply).split("\n")

    async def key_fill(
        self, owner: ServiceKeys, fills: Sequence[KeyFill], *, token: str, cache_ms: int = 0, absent_ms: int = 0
    ) -> list[bool]:
        """Restore keys; return of each whether it is done: False if another client was faster."""
        keys: list[bytes] = [*owner]
        args: list[Argument] = [token, cache_ms, absent_ms]
        for one in fills:
            keys += one.place
            letters = "".join("s" if part.staged else "h" for part in one.parts)
            args += (f"{one.what} {one.expires} {one.stamp} {letters}", one.logical)
            for part in one.parts:
                if part.staged:
                    keys += (part.place, part.staged)
                else:
                    keys.append(part.place)
                    args += (part.command, len(part.row), *part.row)
        is_large = sum(one.size for one in fills) > POOLED_ABOVE_BYTES
        reply = await self._sender.run("key_fill", keys, args, aside=is_large)
        return [letter == "f" for letter in _text(reply)]

    async def key_stage(
        self, staged: bytes, *, command: str, before: int, ttl_ms: int, row: Sequence[Argument]
    ) -> bool:
        """Append a row to a staged part after `before` rows; return False if these rows no longer exist."""
        return await self._sender.run("key_stage", [staged], [command, before, ttl_ms, *row]) == b"staged"

    async def outbox_settle(
        self,
        outbox: bytes,
        dead: bytes,
        keys: Sequence[DurableKey],
        *,
        group: str,
        cache_ms: int,
        absent_ms: int,
        entries: Sequence[DeliveredEntry],
        refused: Sequence[RejectedField] = (),
    ) -> tuple[int, int]:
        """Delete entries, bury rejected ones as dead letters, update states of keys.

        Returns:
            The number of entries, and of deleted keys that may have dead letters.
        """
        pairs = [part for one in keys for part in one]
        lines = b"\n".join(map(_format_entry, entries))
        args: list[Argument] = [group, cache_ms, absent_ms, lines, *(part for one in refused for part in one)]
        gone, ended = cast("list[int]", await self._sender.run("outbox_settle", [outbox, dead, *pairs], args))
        return gone, ended

    async def namespace_join(
        self, keys: NamespaceJoinKeys, *, highest: int, restored: str = "", token: str, lease_ms: int
    ) -> str:
        """Return `joined <epoch>`, `behind <stamp>`, `empty 0`, `wait <ms>` or `provisional <epoch>`."""
        return _text(await self._sender.run("namespace_join", keys, [highest, restored, token, lease_ms]))

    async def kept_restore(
        self, kept: bytes, *, token: str, lease_ms: int, step: int = 0, pairs: Sequence[str] = ()
    ) -> str:
        """Renew the lease of a restore, count a step, store pairs of keys and letters; return `noted` or `taken`."""
        return _text(await self._sender.run("kept_restore", [kept], [token, lease_ms, step, *pairs]))

    async def key_drop(
        self, keys: KeyDropKeys, parts: Sequence[bytes] = (), *, logical: str, kind: str, stamp: int, token: str = ""
    ) -> str:
        """Return `dropped`, `newer`, `pending` or `taken`."""
        return _text(await self._sender.run("key_drop", [*keys, *parts], [logical, kind, stamp, token]))

    async def outbox_replay(self, dead: bytes, outbox: bytes, *, ids: Sequence[str]) -> int:
        """Move dead letters back to the outbox; return their number."""
        return int(cast("int", await self._sender.run("outbox_replay", [dead, outbox], ids)))


def _format_entry(settled: DeliveredEntry) -> bytes:
    """Return `<id> <stamp> <number of a pair>=<documents> ...`."""
    return b" ".join((settled.entry, settled.stamp, *(b"%d=%d" % pair for pair in settled.documents.items())))


def _text(reply: object) -> str:
    return reply.decode() if isinstance(reply, bytes) else str(reply)


_MEMORY_FAMILY = "memory"
_NO_ACTOR = b"-"


class MemoryRestoreKeys(NamedTuple):
    """The keys that all memories of a namespace share; the keys of records and threads follow."""

    kept: bytes
    log: bytes
    digests: bytes
    endings: bytes
    authors: bytes
    pending: bytes
    place: bytes


class RestoreLease(NamedTuple):
    """The lease for restoring a namespace's records."""

    token: str
    lease_ms: int
    """Milliseconds after which the lease expires without a renewal."""


class RestoredMemory(NamedTuple):
    """A memory in the form of the script that restores it (`lua/memory_restore.lua`)."""

    id: str
    version: int
    turn: int
    digest: str
    thread: str
    author: str
    facts: bytes
    waits: int
    """1 if its vector must be computed again."""
    expires: int
    """Milliseconds since 1970; 0: never."""
    fields: tuple[Argument, ...]
    """Fields of its hash, each followed by its value; empty for a deleted memory."""


def memory_restore_keys(keyspace: KeySpace, namespace: str) -> MemoryRestoreKeys:
    """Return the keys of a namespace."""
    parts = (keyspace.record_part(_MEMORY_FAMILY, namespace, name) for name in MemoryRestoreKeys._fields[1:])
    return MemoryRestoreKeys(keyspace.kept(namespace), *parts)


class RecordRestoreScripts:
    """Restores memories, graphs and notes to Redis."""

    def __init__(self, sender: ScriptExecutor) -> None:
        self._sender = sender

    async def records_gather(
        self, kept: bytes, *, anew: Sequence[bytes], token: str, lease_ms: int, step: int = 0, done: int = 0
    ) -> str:
        """Return `whole`, `load`, `noted`, `wait <ms>`, `lost` or `overtaken`."""
        return _reply_text(await self._sender.run("records_gather", [kept, *anew], [token, lease_ms, step, done]))

    async def memory_restore(
        self,
        common: MemoryRestoreKeys,
        *,
        keys: Sequence[bytes],
        lease: RestoreLease,
        restores: Sequence[RestoredMemory],
    ) -> int | None:
        """Return the number of restored memories; None if another client restores them."""
        args: list[Argument] = [*lease]
        for one in restores:
            args += one[:-1]
            args.append(len(one.fields) // 2)
            args += one.fields
        reply = _reply_text(await self._sender.run("memory_restore", [*common, *keys], args))
        return None if reply == "overtaken" else int(reply.split()[1])

    async def graph_restore(
        self,
        space: Space,
        kept: bytes,
        *,
        keys: Sequence[bytes],
        group: str,
        lease: RestoreLease,
        words: Sequence[Argument],
    ) -> str:
        """Return `restored <number>`, `changed` or `overtaken`."""
        args: list[Argument] = [group, *lease, *words]
        large = sum(8 if isinstance(word, int | float) else len(word) for word in words)
        reply = await self._sender.mutate("graph_restore", space, [kept, *keys], _NO_ACTOR, args, large=large)
        return reply.decode()

    async def note_restore(
        self,
        kept: bytes,
        *,
        keys: Sequence[bytes],
        app: str,
        lease: RestoreLease,
        words: Sequence[Argument],
    ) -> int | None:
        """Return the number of restored notes; None if another client restores them."""
        reply = _reply_text(await self._sender.run("note_restore", [kept, *keys], [app, *lease, *words]))
        return None if reply == "overtaken" else int(reply.split()[1])


def _reply_text(reply: object) -> str:
    return reply.decode() if isinstance(reply, bytes) else str(reply)


LOST = "lost"
"""The reply of scripts if Redis may lack data of the durable tier: join the namespace first."""


class KeyRestoreKeys(NamedTuple):
    """The service keys of a namespace that a restore uses."""

    clock: bytes
    changes: bytes
    kept: bytes


class KeyRestoreOptions(NamedTuple):
    """Options of a restore: see the script."""

    cap: int
    replace: int
    joined: int


class KeyRestoreScripts:
    """Restores keys with their earlier versions.

    Args:
        sender: sends the scripts; each may be repeated.
    """

    def __init__(self, sender: ScriptExecutor) -> None:
        self._sender = sender

    async def key_restore(
        self,
        owner: KeyRestoreKeys,
        keys: Sequence[bytes],
        actor: bytes,
        terms: KeyRestoreOptions,
        rows: Sequence[Argument],
    ) -> str:
        """Return a letter for each pair of keys, or `lost`."""
        return _check_text(await self._sender.run("key_restore", [*owner, *keys], [actor, *terms, *rows]))

    async def version_take(self, owner: KeyRestoreKeys, *, count: int, above: int, joined: int) -> int | None:
        """Return the first of `count` new versions; None if the namespace must be joined first."""
        reply = _check_text(await self._sender.run("version_take", owner, [count, above, joined]))
        return None if reply == LOST else int(reply)


def _check_text(reply: object) -> str:
    if isinstance(reply, bytes):
        return reply.decode()
    raise InternalError(f"a script returned {reply!r} instead of text")
