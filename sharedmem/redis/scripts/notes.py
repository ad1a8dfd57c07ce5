"""Typed callers of the scripts on synthesised notes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from sharedmem.redis.durability import DurabilityModes
from sharedmem.redis.keys import KeySpace, Space
from sharedmem.redis.replies import Argument
from sharedmem.redis.scripts.executor import ScriptExecutor

NOTE_FAMILY = "note"
"""The record family of notes."""
_NAMESPACE_PARTS, _APP_PARTS = ("log", "place", "apps"), ("ids", "users", "chains")
# Approximate bytes of ids, keys and the like of one note.
_FIXED_BYTES = 400


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
        large = sum(map(_size, words))
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
        large = sum(map(_size, values))
        return int(await self._sender.mutate("note_index", space, keys, actor, [field, *values], large=large))


def commit_arguments(fences: Sequence[tuple[str, int]], writes: Sequence[NoteWrite]) -> list[Argument]:
    """Return the arguments of `note_commit` for fencing tokens and notes."""
    words: list[Argument] = [len(fences)]
    for chain, token in fences:
        words += (chain, token)
    for write in writes:
        words += (*write[:-1], len(write.fields), *write.fields)
    return words


def _size(argument: Argument) -> int:
    return len(argument) if isinstance(argument, str | bytes) else 8
