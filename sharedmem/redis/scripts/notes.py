"""Typed callers of the scripts on synthesised notes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from sharedmem.redis.durability import DurabilityModes
from sharedmem.redis.keys import KeySpace, Space
from sharedmem.redis.replies import Argument
from sharedmem.redis.scripts.executor import ScriptExecutor

NOTE_FAMILY = "note"
"""The family of their records."""
_NAMESPACE_PARTS, _APP_PARTS = ("log", "place", "apps"), ("ids", "users", "chains")
# Ids, keys and the like of one note, about.
_FIXED_BYTES = 400


class NoteWrite(NamedTuple):
    """A note to be written, as the script takes it."""

    expect: int
    """Version that it has; 0 when it is new."""
    task: str
    user: str
    status: str
    chain: str
    told: str
    """What is told of it on the change stream."""
    vector: bytes
    """As text for the durable tier; empty where there is none."""
    drops: int
    """1 if its vector goes."""
    fields: tuple[Argument, ...]
    """Of its hash, each with its value behind it, its body first."""


def note_keys(keyspace: KeySpace, namespace: str, app: str) -> list[bytes]:
    """What lies beside the notes of an app, in the order in which the scripts take it.

    Args:
        keyspace: spells keys.
        namespace: whose.
        app: as it stands in keys.
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
        """Returns `ok <version>`, `repeat`, or `behind <place>...`."""
        args: list[Argument] = [app, reader, seen, *words]
        large = sum(map(_size, words))
        return (await self._sender.mutate("note_commit", space, keys, actor, args, large=large, keep=keep)).decode()

    async def note_erase(
        self, space: Space, actor: bytes, *, keys: Sequence[bytes], app: str, keep: DurabilityModes | None = None
    ) -> int:
        """Returns how many were there."""
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
        """Returns how many have got what they lacked."""
        large = sum(map(_size, values))
        return int(await self._sender.mutate("note_index", space, keys, actor, [field, *values], large=large))


def commit_arguments(fences: Sequence[tuple[str, int]], writes: Sequence[NoteWrite]) -> list[Argument]:
    """What `note_commit` takes of fencing tokens and notes."""
    words: list[Argument] = [len(fences)]
    for chain, token in fences:
        words += (chain, token)
    for write in writes:
        words += (*write[:-1], len(write.fields), *write.fields)
    return words


def _size(argument: Argument) -> int:
    return len(argument) if isinstance(argument, str | bytes) else 8
