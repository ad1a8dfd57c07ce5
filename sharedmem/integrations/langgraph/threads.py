"""Threads of checkpoints: one hash each, whose fields are the checkpoints, their channels and their writes."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple
from urllib.parse import quote, unquote

from sharedmem.data.key_access import KeyAccess, restored_in_vain_error
from sharedmem.errors import ConflictError, InvalidError
from sharedmem.redis.change_stream import as_list
from sharedmem.redis.codec import decode_member, encode_member
from sharedmem.redis.keys import Target
from sharedmem.redis.scripts.checkpoints import CheckpointScripts
from sharedmem.redis.service_keys import decoding
from sharedmem.store import SharedMemoryStore, StoreParts

_HASH = "hash"
_PREFIX = "langgraph:thread:"
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_MOST_TRIES = 20
_PAGE = 20
Typed = tuple[str, bytes]
"""The name of a coding and the coded bytes, as LangGraph's serializers give them."""


StoredWrites = tuple[str, str, list[tuple[int, str, str, bytes]]]
"""The path of a task, its id, and what it wrote: number, channel, coding, bytes."""


class StoredCheckpoint(NamedTuple):
    """One checkpoint as it is stored; the values are coded."""

    ns: str
    id: str
    parent: str | None
    checkpoint: Typed
    metadata: Typed
    channels: dict[str, Typed]
    writes: list[StoredWrites]


class NewCheckpoint(NamedTuple):
    """One checkpoint to store."""

    ns: str
    id: str
    parent: str | None
    run: str | None
    checkpoint: Typed
    metadata: Typed
    versions: Mapping[str, str]
    """The version of each channel that it has."""
    deltas: Sequence[str]
    """Channels whose values follow from the writes of its ancestors."""
    blobs: Mapping[str, Typed]
    """The values of channels that are new."""


class Threads:
    """The threads of a store.

    Args:
        store: whose scope has the threads, and whose rights are checked.
        parts: its parts.
        ttl_s: seconds until a thread expires, counted anew with each change; None: the rules for its key decide.
    """

    def __init__(self, store: SharedMemoryStore, parts: StoreParts, *, ttl_s: float | None) -> None:
        self._store = store
        self._keys = KeyAccess(parts.context, parts.scope)
        self._scripts = CheckpointScripts(parts.context.executor)
        self._most = parts.context.settings.blob_threshold_bytes
        self._prefix = f"{store.namespace}:{parts.scope.identity.scope}:{_PREFIX}"
        self._ttl_s = ttl_s

    async def put(self, thread: str, new: NewCheckpoint, *, follows: bool) -> None:
        """Store a checkpoint with its new channels. One round trip.

        Args:
            thread: id of the thread.
            new: the checkpoint.
            follows: whether its parent must be the newest checkpoint of the thread.

        Raises:
            ConflictError: the thread has gone on since the parent.
        """
        target = self._keys.scope.to_write(self._key(thread))
        parent, run = _part("checkpoint_id", new.parent or ""), _part("run_id", new.run or "")
        deltas = [_part("channel", channel) for channel in new.deltas]
        blobs = [_blob(new.ns, version, channel) for channel, version in new.versions.items()]
        pairs = [
            (
                _field("checkpoint", new.ns, new.id),
                "\r".join((parent, run, str(len(deltas)), *deltas, *blobs)).encode(),
            ),
            (_field("body", new.ns, new.id), encode_member([*new.checkpoint, *new.metadata])),
        ]
        pairs += [
            (_blob(new.ns, new.versions[channel], channel), encode_member(list(typed)))
            for channel, typed in new.blobs.items()
        ]
        call = self._scripts.checkpoint_put(
            target,
            self._keys.actor,
            ttl_ms=self._ttl_ms(target),
            most=self._most,
            parent=parent if follows else "",
            names=[(new.ns, new.id)],
            pairs=pairs,
            keep=self._keys.durability(target),
        )
        reply = await self._keys.explained(target, _HASH, call)
        if reply.startswith(b"C "):
            newest = reply[2:].decode()
            raise ConflictError(
                f"thread {thread!r} has gone on: its newest checkpoint is {newest}, this one follows {new.parent}; "
                "invoke the graph again, it begins with the newest"
            )

    async def write(self, thread: str, ns: str, id_: str, *, replaces: bool, writes: Mapping[str, object]) -> None:
        """Store the writes of a task beside a checkpoint. One round trip.

        Args:
            thread: id of the thread.
            ns, id_: the checkpoint, which may follow later.
            replaces: whether writes of the same name are replaced; otherwise they stay as they are.
            writes: by the names of their fields (see `writes_field`).
        """
        target = self._keys.scope.to_write(self._key(thread))
        call = self._scripts.checkpoint_write(
            target,
            self._keys.actor,
            ttl_ms=self._ttl_ms(target),
            most=self._most,
            name=(_part("checkpoint_ns", ns), _part("checkpoint_id", id_)),
            replaces=replaces,
            pairs=[(name, encode_member(value)) for name, value in writes.items()],
            keep=self._keys.durability(target),
        )
        await self._keys.explained(target, _HASH, call)

    async def look(self, thread: str, names: Sequence[tuple[str, str]]) -> list[StoredCheckpoint]:
        """Return checkpoints by namespace and id (empty: the newest), without missing ones.

        One round trip for 20 of them.
        """
        target = self._keys.scope.to_read(self._key(thread))
        found: list[StoredCheckpoint] = []
        for at in range(0, len(names), _PAGE):
            page = names[at : at + _PAGE]

            def ask(page: Sequence[tuple[str, str]] = page) -> Awaitable[Any]:
                return self._scripts.checkpoint_look(target.physical, page)

            with decoding(target.physical):
                found += [_parse(as_list(one)) for one in as_list(await self._ask(target, ask)) if one is not None]
        return found

    async def names(self, thread: str) -> list[tuple[str, str]]:
        """Return the namespaces and ids of a thread's checkpoints, the newest first. One round trip."""
        target = self._keys.scope.to_read(self._key(thread))
        reply = await self._ask(target, lambda: self._scripts.checkpoint_list(target.physical))
        pairs = [bytes(name).decode().partition("\n")[::2] for name in as_list(reply) if isinstance(name, bytes)]
        return sorted(pairs, key=lambda pair: pair[1], reverse=True)

    async def threads(self) -> AsyncIterator[str]:
        """Yield the ids of all threads of the store, in no order; reads the keys of its namespace."""
        async for key in self._store.keys(f"{self._prefix}*"):
            yield unquote(key[len(self._prefix) :])

    async def drop(self, thread: str, mode: Literal["old", "runs"], runs: Sequence[str] = ()) -> None:
        """Delete the checkpoints of some runs, or all but the newest of each namespace. One round trip."""
        target = self._keys.scope.to_write(self._key(thread))
        call = self._scripts.checkpoint_drop(
            target, self._keys.actor, mode=mode, runs=runs, keep=self._keys.durability(target)
        )
        await self._keys.explained(target, _HASH, call)

    async def delete(self, thread: str) -> None:
        """Delete a thread. One round trip."""
        await self._store.delete(self._key(thread))

    async def copy(self, thread: str, new: str) -> None:
        """Copy all checkpoints and writes of a thread into another. Two round trips."""
        source = self._keys.scope.to_read(self._key(thread))
        target = self._keys.scope.to_write(self._key(new))
        items = as_list(await self._keys.ask(source, _HASH, "HGETALL", source.physical))
        fields = {bytes(name).decode(): bytes(text) for name, text in _in_pairs(items)}
        heads = {name: text for name, text in fields.items() if name.startswith("head\n")}
        if not fields:
            return
        call = self._scripts.checkpoint_put(
            target,
            self._keys.actor,
            ttl_ms=self._ttl_ms(target),
            most=self._most,
            parent="",
            names=[(name.partition("\n")[2], text.decode()) for name, text in heads.items()],
            pairs=[(name, text) for name, text in fields.items() if name not in heads],
            keep=self._keys.durability(target),
        )
        await self._keys.explained(target, _HASH, call)

    async def _ask(self, target: Target, call: Callable[[], Awaitable[Any]]) -> Any:
        """Return what a script read; a thread that only the durable tier has is restored first."""
        await self._keys.ensure_joined(target)
        for _ in range(_MOST_TRIES):
            reply = await self._keys.explained(target, _HASH, call())
            if reply or not await self._keys.restore(target):
                return reply
        raise restored_in_vain_error(target)

    def _ttl_ms(self, target: Target) -> int:
        return self._keys.lifetimes.ttl_ms(target.key, self._ttl_s)

    def _key(self, thread: str) -> str:
        # Any text is one part of a key, and no two texts are the same one.
        return self._prefix + quote(_thread_id(thread), safe="")


def writes_field(ns: str, id_: str, task: str, number: int | None = None) -> str:
    """Return the name of the field with the writes of a task, or with a special one."""
    last = () if number is None else (str(number),)
    return _field("writes", ns, id_, _part("task_id", task), *last)


def _thread_id(thread: str) -> str:
    if not thread:
        raise InvalidError("thread_id", thread, "give a non-empty text")
    return thread


def _field(kind: str, ns: str, id_: str, *rest: str) -> str:
    return "\n".join((kind, _part("checkpoint_ns", ns), _part("checkpoint_id", id_), *rest))


def _blob(ns: str, version: str, channel: str) -> str:
    return _field("blob", ns, _part("version", version), _part("channel", channel))


def _part(name: str, text: str) -> str:
    if not isinstance(text, str) or _CONTROL.search(text):
        raise InvalidError(name, text, "give a text without control characters")
    return text


def _parse(reply: Sequence[Any]) -> StoredCheckpoint:
    ns, id_, info, body, blobs, writes = reply
    body = decode_member(body)
    return StoredCheckpoint(
        ns=bytes(ns).decode(),
        id=bytes(id_).decode(),
        parent=bytes(info).decode().partition("\r")[0] or None,
        checkpoint=_parse_typed(body[:2]),
        metadata=_parse_typed(body[2:]),
        channels={
            bytes(name).decode().split("\n", 3)[3]: _parse_typed(decode_member(text)) for name, text in _in_pairs(blobs)
        },
        writes=[_parse_writes(bytes(name).decode(), decode_member(text)) for name, text in _in_pairs(writes)],
    )


def _parse_writes(field: str, value: Any) -> StoredWrites:
    path, rows = value
    parsed = [(int(number), str(channel), *_parse_typed(typed)) for number, channel, *typed in rows]
    return str(path), field.split("\n")[3], parsed


def _parse_typed(value: Any) -> Typed:
    coding, body = value
    if not isinstance(coding, str) or not isinstance(body, bytes):
        raise TypeError(f"{value!r} is not a coding and bytes")
    return coding, body


def _in_pairs(items: Iterable[Any]) -> list[tuple[Any, Any]]:
    flat = list(items)
    return list(zip(flat[::2], flat[1::2], strict=True))
