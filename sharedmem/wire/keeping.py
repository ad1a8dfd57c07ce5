"""The typed callers of the scripts that move keys between Redis and the durable tier.

A change of a key that lasts leaves its documents in the namespace's outbox, in the same atomic step
(`lua/include/kept.lua`). What is not in Redis any more is brought back under a read lease, which every writer
takes away, so that nothing deleted or older ever comes back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

from sharedmem.wire.replies import Argument
from sharedmem.wire.sender import Sender


class LookKeys(NamedTuple):
    """What a look at an absent key touches."""

    key: bytes
    clock: bytes
    kept: bytes
    state: bytes


class FillKeys(NamedTuple):
    """What bringing a key back touches; the pairs of parts come behind."""

    key: bytes
    clock: bytes
    state: bytes


class JoinKeys(NamedTuple):
    """What joining a namespace touches."""

    clock: bytes
    changes: bytes
    kept: bytes


class DropKeys(NamedTuple):
    """What forgetting the copy of a key touches; what lies beside it comes behind."""

    kept: bytes
    state: bytes
    key: bytes


class KeptKey(NamedTuple):
    """A key that lasts, or where its presence shows, and its state."""

    key: bytes
    state: bytes


class Settled(NamedTuple):
    """An entry of the outbox of which the tier has what it will ever have."""

    entry: bytes
    documents: Mapping[int, int]
    """How many documents the tier has, by the number of their key in the list that goes with it, from 1 on."""


class Refusal(NamedTuple):
    """A field of an entry that the tier will never take."""

    entry: bytes
    field: int
    """Which of its fields, from 1 on."""
    reason: str


class Keeping:
    """Moves keys between Redis and the durable tier."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    async def key_look(self, keys: LookKeys, *, logical: str, mode: str, token: str, lease_ms: int) -> str:
        """Returns `hot`, `none`, `lost`, `pending`, `wait <ms>` or `load <ms since 1970>`."""
        return _text(await self._sender.run("key_look", keys, [logical, mode, token, lease_ms]))

    async def key_fill(
        self,
        keys: FillKeys,
        parts: Sequence[bytes] = (),
        *,
        token: str,
        expires: int = 0,
        cache_ms: int = 0,
        absent_ms: int = 0,
    ) -> bool:
        """Put parts that were made ready in their places (pairs of keys); False when somebody was faster."""
        reply = await self._sender.run("key_fill", [*keys, *parts], [token, expires, cache_ms, absent_ms])
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
        keys: Sequence[KeptKey],
        *,
        group: str,
        cache_ms: int,
        absent_ms: int,
        entries: Sequence[Settled],
        refused: Sequence[Refusal] = (),
    ) -> int:
        """Remove entries, bury what was refused, move the states of keys on; returns how many entries there were."""
        pairs = [part for one in keys for part in one]
        lines = b"\n".join(map(_line, entries))
        args: list[Argument] = [group, cache_ms, absent_ms, lines, *(part for one in refused for part in one)]
        return int(cast("int", await self._sender.run("outbox_settle", [outbox, dead, *pairs], args)))

    async def namespace_join(
        self, keys: JoinKeys, *, highest: int, restored: str = "", token: str, lease_ms: int
    ) -> str:
        """Returns `joined`, `behind <stamp>`, `empty 0`, `wait <ms>` or `provisional`."""
        return _text(await self._sender.run("namespace_join", keys, [highest, restored, token, lease_ms]))

    async def kept_restore(self, kept: bytes, *, token: str, lease_ms: int, pairs: Sequence[str]) -> str:
        """Renew the right to restore, and note pairs of keys and letters; returns `noted` or `taken`."""
        return _text(await self._sender.run("kept_restore", [kept], [token, lease_ms, *pairs]))

    async def key_drop(
        self, keys: DropKeys, parts: Sequence[bytes] = (), *, logical: str, kind: str, stamp: int, token: str = ""
    ) -> str:
        """Returns `dropped`, `newer`, `pending` or `taken`."""
        return _text(await self._sender.run("key_drop", [*keys, *parts], [logical, kind, stamp, token]))

    async def outbox_replay(self, dead: bytes, outbox: bytes, *, ids: Sequence[str]) -> int:
        """Put dead letters back; returns how many there were."""
        return int(cast("int", await self._sender.run("outbox_replay", [dead, outbox], ids)))


def _line(settled: Settled) -> bytes:
    """`<id> <number of a pair>=<documents> ...`."""
    return b" ".join((settled.entry, *(b"%d=%d" % pair for pair in settled.documents.items())))


def _text(reply: object) -> str:
    return reply.decode() if isinstance(reply, bytes) else str(reply)
