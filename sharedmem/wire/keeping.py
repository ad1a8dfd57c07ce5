"""The typed callers of the scripts that move keys between Redis and the durable tier.

A change of a key that lasts leaves its documents in the namespace's outbox, in the same atomic step
(`lua/include/kept.lua`). What is not in Redis any more is brought back under a read lease, which every writer
takes away, so that nothing deleted or older ever comes back.
"""

from __future__ import annotations

from collections.abc import Sequence
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


class Settled(NamedTuple):
    """A key whose documents the tier has, or where its presence shows."""

    key: bytes
    state: bytes
    stamp: int
    """The newest that the tier has; 0 leaves the state as it is."""


class Keeping:
    """Moves keys between Redis and the durable tier."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    async def key_look(self, keys: LookKeys, *, logical: str, mode: str, token: str, lease_ms: int) -> str:
        """Returns `hot`, `none`, `lost`, `pending`, `wait <ms>` or `load`."""
        return _text(await self._sender.run("key_look", keys, [logical, mode, token, lease_ms]))

    async def key_fill(
        self,
        keys: FillKeys,
        parts: Sequence[bytes] = (),
        *,
        token: str,
        ttl_ms: int = 0,
        cache_ms: int = 0,
        absent_ms: int = 0,
    ) -> bool:
        """Put parts that were made ready in their places (pairs of keys); False when somebody was faster."""
        reply = await self._sender.run("key_fill", [*keys, *parts], [token, ttl_ms, cache_ms, absent_ms])
        return reply == b"filled"

    async def outbox_settle(
        self, outbox: bytes, keys: Sequence[Settled], *, group: str, cache_ms: int, absent_ms: int, entries: str
    ) -> int:
        """Remove entries (ids with blanks between), move the states of keys on; returns how many entries there were."""
        pairs = [part for one in keys for part in (one.key, one.state)]
        args: list[Argument] = [group, cache_ms, absent_ms, entries, *(one.stamp for one in keys)]
        return int(cast("int", await self._sender.run("outbox_settle", [outbox, *pairs], args)))

    async def namespace_join(self, keys: JoinKeys, *, highest: int) -> None:
        """Raise the clock to the tier's highest stamp."""
        await self._sender.run("namespace_join", keys, [highest])

    async def key_drop(self, state: bytes, keys: Sequence[bytes]) -> None:
        """Forget the copy of a key."""
        await self._sender.run("key_drop", [state, *keys], [])


def _text(reply: object) -> str:
    return reply.decode() if isinstance(reply, bytes) else str(reply)
