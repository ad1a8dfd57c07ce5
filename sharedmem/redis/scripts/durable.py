"""Typed callers of the scripts that move keys and records between Redis, the durable tier and archives.

A change of a key that lasts leaves its documents in the namespace's outbox, in the same atomic step
(`lua/include/kept.lua`). What is not in Redis any more is brought back under a read lease, which every writer
takes away, so that nothing deleted or older ever comes back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

from sharedmem.errors import InternalError
from sharedmem.redis.keys import KeySpace, Space
from sharedmem.redis.replies import Argument
from sharedmem.redis.scripts.executor import ScriptExecutor


class KeyLookKeys(NamedTuple):
    """What a look at an absent key touches."""

    key: bytes
    clock: bytes
    kept: bytes
    state: bytes


class KeyFillKeys(NamedTuple):
    """What bringing a key back touches; the pairs of parts come behind."""

    key: bytes
    clock: bytes
    kept: bytes
    state: bytes


class NamespaceJoinKeys(NamedTuple):
    """What joining a namespace touches."""

    clock: bytes
    changes: bytes
    kept: bytes


class KeyDropKeys(NamedTuple):
    """What forgetting the copy of a key touches; what lies beside it comes behind."""

    kept: bytes
    state: bytes
    key: bytes


class DurableKey(NamedTuple):
    """A key that lasts, or where its presence shows, and its state."""

    key: bytes
    state: bytes


class DeliveredEntry(NamedTuple):
    """An entry of the outbox of which the tier has what it will ever have."""

    entry: bytes
    documents: Mapping[int, int]
    """How many documents the tier has, by the number of their key in the list that goes with it, from 1 on."""


class RejectedField(NamedTuple):
    """A field of an entry that the tier will never take."""

    entry: bytes
    field: int
    """Which of its fields, from 1 on."""
    reason: str


class DurableScripts:
    """Moves keys between Redis and the durable tier."""

    def __init__(self, sender: ScriptExecutor) -> None:
        self._sender = sender

    async def key_look(self, keys: KeyLookKeys, *, logical: str, mode: str, token: str, lease_ms: int) -> str:
        """Returns `hot`, `none`, `lost`, `pending`, `wait <ms>` or `load <ms since 1970>`."""
        return _text(await self._sender.run("key_look", keys, [logical, mode, token, lease_ms]))

    async def key_fill(
        self,
        keys: KeyFillKeys,
        parts: Sequence[bytes] = (),
        *,
        token: str,
        expires: int = 0,
        cache_ms: int = 0,
        absent_ms: int = 0,
        logical: str = "",
        stamp: int = 0,
    ) -> bool:
        """Put parts that were made ready in their places (pairs of keys); False when somebody was faster."""
        args: list[Argument] = [token, expires, cache_ms, absent_ms, logical, stamp]
        reply = await self._sender.run("key_fill", [*keys, *parts], args)
        return reply == b"filled"

    async def key_stage(
        self, staged: bytes, *, command: str, before: int, ttl_ms: int, row: Sequence[Argument]
    ) -> bool:
        """Make a part ready, after as many rows as there are; False when these are not there any more."""
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
    ) -> int:
        """Remove entries, bury what was refused, move the states of keys on; returns how many entries there were."""
        pairs = [part for one in keys for part in one]
        lines = b"\n".join(map(_format_entry, entries))
        args: list[Argument] = [group, cache_ms, absent_ms, lines, *(part for one in refused for part in one)]
        return int(cast("int", await self._sender.run("outbox_settle", [outbox, dead, *pairs], args)))

    async def namespace_join(
        self, keys: NamespaceJoinKeys, *, highest: int, restored: str = "", token: str, lease_ms: int
    ) -> str:
        """Returns `joined <epoch>`, `behind <stamp>`, `empty 0`, `wait <ms>` or `provisional <epoch>`."""
        return _text(await self._sender.run("namespace_join", keys, [highest, restored, token, lease_ms]))

    async def kept_restore(self, kept: bytes, *, token: str, lease_ms: int, pairs: Sequence[str]) -> str:
        """Renew the right to restore, and note pairs of keys and letters; returns `noted` or `taken`."""
        return _text(await self._sender.run("kept_restore", [kept], [token, lease_ms, *pairs]))

    async def key_drop(
        self, keys: KeyDropKeys, parts: Sequence[bytes] = (), *, logical: str, kind: str, stamp: int, token: str = ""
    ) -> str:
        """Returns `dropped`, `newer`, `pending` or `taken`."""
        return _text(await self._sender.run("key_drop", [*keys, *parts], [logical, kind, stamp, token]))

    async def outbox_replay(self, dead: bytes, outbox: bytes, *, ids: Sequence[str]) -> int:
        """Put dead letters back; returns how many there were."""
        return int(cast("int", await self._sender.run("outbox_replay", [dead, outbox], ids)))


def _format_entry(settled: DeliveredEntry) -> bytes:
    """`<id> <number of a pair>=<documents> ...`."""
    return b" ".join((settled.entry, *(b"%d=%d" % pair for pair in settled.documents.items())))


def _text(reply: object) -> str:
    return reply.decode() if isinstance(reply, bytes) else str(reply)


_MEMORY_FAMILY = "memory"
_NO_ACTOR = b"-"


class MemoryRestoreKeys(NamedTuple):
    """What all memories of a namespace share; the records and their threads come behind."""

    kept: bytes
    log: bytes
    digests: bytes
    endings: bytes
    authors: bytes
    pending: bytes
    place: bytes


class RestoreLease(NamedTuple):
    """The right to bring a namespace's records back."""

    token: str
    lease_ms: int
    """How long its holder may be silent."""


class RestoredMemory(NamedTuple):
    """A memory as the script takes it that brings it back (`lua/memory_restore.lua`)."""

    id: str
    version: int
    turn: int
    digest: str
    thread: str
    author: str
    facts: bytes
    waits: int
    """1 if its vector is to be made anew."""
    expires: int
    """Milliseconds since 1970; 0 for never."""
    fields: tuple[Argument, ...]
    """Of its hash, each with its value behind it; none when it has been deleted."""


def memory_restore_keys(keyspace: KeySpace, namespace: str) -> MemoryRestoreKeys:
    """Return those of a namespace."""
    parts = (keyspace.record_part(_MEMORY_FAMILY, namespace, name) for name in MemoryRestoreKeys._fields[1:])
    return MemoryRestoreKeys(keyspace.kept(namespace), *parts)


class RecordRestoreScripts:
    """Brings memories, graphs and notes back into Redis."""

    def __init__(self, sender: ScriptExecutor) -> None:
        self._sender = sender

    async def records_gather(self, kept: bytes, *, anew: Sequence[bytes], token: str, lease_ms: int, done: int) -> str:
        """Returns `whole`, `load`, `wait <ms>`, `lost` or `overtaken`."""
        return _reply_text(await self._sender.run("records_gather", [kept, *anew], [token, lease_ms, done]))

    async def memory_restore(
        self,
        common: MemoryRestoreKeys,
        *,
        keys: Sequence[bytes],
        lease: RestoreLease,
        restores: Sequence[RestoredMemory],
    ) -> int | None:
        """Returns how many are here now that were not; None when somebody else brings them back."""
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
        """Returns `restored <how many>`, `changed` or `overtaken`."""
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
        """Returns how many are here now that were not; None when somebody else brings them back."""
        reply = _reply_text(await self._sender.run("note_restore", [kept, *keys], [app, *lease, *words]))
        return None if reply == "overtaken" else int(reply.split()[1])


def _reply_text(reply: object) -> str:
    return reply.decode() if isinstance(reply, bytes) else str(reply)


LOST = "lost"
"""What the scripts answer where Redis may lack what the durable tier has: join the namespace first."""


class KeyRestoreKeys(NamedTuple):
    """What restoring in a namespace touches of its service keys."""

    clock: bytes
    changes: bytes
    kept: bytes


class KeyRestoreOptions(NamedTuple):
    """How keys are restored: see the script."""

    cap: int
    replace: int
    joined: int


class KeyRestoreScripts:
    """Puts keys back with the versions that they had.

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
        """Returns a letter for each pair of keys, or `lost`."""
        return _check_text(await self._sender.run("key_restore", [*owner, *keys], [actor, *terms, *rows]))

    async def version_take(self, owner: KeyRestoreKeys, *, count: int, above: int, joined: int) -> int | None:
        """Return the first of so many versions; None when the namespace has to be joined."""
        reply = _check_text(await self._sender.run("version_take", owner, [count, above, joined]))
        return None if reply == LOST else int(reply)


def _check_text(reply: object) -> str:
    if isinstance(reply, bytes):
        return reply.decode()
    raise InternalError(f"a script answered {reply!r} where it promises text")
