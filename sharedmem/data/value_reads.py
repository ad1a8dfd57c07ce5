"""Reading whole values: from Redis, from where large ones lie, and from the durable tier what Redis does not hold."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from sharedmem.clock import from_microseconds
from sharedmem.data.blobs import BlobReference
from sharedmem.data.records import Stored, take_apart, value_of
from sharedmem.data.structure import Means, Structure
from sharedmem.errors import (
    CorruptionError,
    NotFoundError,
    VersionConflictError,
    WrongTypeError,
)
from sharedmem.models import Entry
from sharedmem.wire.access import Scope
from sharedmem.wire.changes import as_list
from sharedmem.wire.codec import BLOB, decode
from sharedmem.wire.keys import Space, Target
from sharedmem.wire.replies import Reply, ServerError

_READ_AT_ONCE = 200
_RECALL_AT_ONCE = 32
MOST_TRIES = 20
VALUE = "value"


class ValueReads(Structure):
    """Reads of whole values."""

    def __init__(self, means: Means, scope: Scope) -> None:
        super().__init__(means, scope)
        self._call = means.line.call
        self._blobs = means.blobs

    async def read(self, key: str, default: Any = None) -> Any:
        """The value of a key, or `default` when there is none. One round trip.

        Raises:
            WrongTypeError: the key holds a list, hash or set.
            AccessDeniedError, InvalidError, UnavailableError: as `write`.
        """
        target = self._scope.to_read(key)
        if self._tier is not None and not self._tier.is_joined(target.space.namespace):
            await self._tier.join(target.space.namespace)
        try:
            raw = await self._call(b"GET", target.physical)
        except ServerError as error:
            raise await self._explanation(error, target, VALUE) from error
        if not isinstance(raw, bytes):
            raw = await self._brought_back(target)
            if raw is None:
                return default
        value = value_of(raw)
        if value is not NotImplemented:
            return value
        try:
            return await self._resolved(target, take_apart(raw))
        except ReplacedError:
            return await self.read(key, default)

    async def entry(self, key: str) -> Entry | None:
        """The value of a key with its version, actor, times and ttl, or None. One round trip.

        Raises:
            WrongTypeError, AccessDeniedError, InvalidError, UnavailableError: as `read`.
        """
        target = self._scope.to_read(key)
        raw, left_ms = await self._with_expiry(target)
        if raw is None:
            return None
        stored = take_apart(raw)
        try:
            value = await self._resolved(target, stored)
        except ReplacedError:
            return await self.entry(key)
        return Entry(
            key=target.key,
            value=value,
            version=stored.version,
            actor=stored.actor,
            created=from_microseconds(stored.created) if stored.version else None,
            updated=from_microseconds(stored.version) if stored.version else None,
            ttl=None if left_ms is None else left_ms / 1000,
        )

    async def read_many(self, keys: Iterable[str]) -> dict[str, Any]:
        """The values of those keys that have one, by the names they were asked for under.

        One round trip for 200 keys of a namespace. Keys that hold lists, hashes or sets are left out.

        Raises:
            AccessDeniedError, InvalidError, UnavailableError: as `write`.
        """
        asked = [(key, self._scope.to_read(key)) for key in dict.fromkeys(keys)]
        by_space: defaultdict[Space, list[tuple[str, Target]]] = defaultdict(list)
        for item in asked:
            by_space[item[1].space].append(item)
        found: dict[str, Any] = {}
        for items in by_space.values():
            for start in range(0, len(items), _READ_AT_ONCE):
                found |= await self._read_page(items[start : start + _READ_AT_ONCE])
        return {key: found[key] for key, _ in asked if key in found}

    async def _brought_back(self, target: Target) -> bytes | None:
        """What a key holds that was not in Redis but lasts; None when it is nowhere."""
        for _ in range(MOST_TRIES):
            if not await self._recalled(target):
                return None
            raw = await self._explained(target, VALUE, self._line.call("GET", target.physical))
            if isinstance(raw, bytes):
                return raw
        return None

    async def _with_expiry(self, target: Target) -> tuple[bytes | None, int | None]:
        """(what a key holds, milliseconds until it expires)."""
        commands = [("GET", target.physical), *self._asking_for_life(target)]
        await self._joined(target)
        for _ in range(MOST_TRIES):
            raw, *life = await self._explained(target, VALUE, self._line.read_many(commands))
            if isinstance(raw, bytes):
                return raw, self._left_ms(target, life)
            if not await self._recalled(target):
                break
        return None, None

    async def _resolved(self, target: Target, stored: Stored) -> Any:
        if stored.codec != BLOB:
            return stored.value(target.key)
        try:
            reference = BlobReference.model_validate_json(stored.body)
        except ValueError as error:
            problem = "the reference to its large value cannot be read"
            raise CorruptionError(target.key, problem, "write() it anew, or delete it") from error
        try:
            body = await self._blobs.get(target.key, reference)
        except NotFoundError:
            await self._check_unchanged(target, stored)
            raise
        return decode(reference.codec.encode(), body, key=target.key)

    async def _check_unchanged(self, target: Target, stored: Stored) -> None:
        """Whoever replaced a value meanwhile has removed its blob: then there is another one to read."""
        raw = await self._explained(target, VALUE, self._line.call("GET", target.physical))
        current = take_apart(raw).version if isinstance(raw, bytes) else 0
        if current != stored.version:
            raise ReplacedError(target.key, stored.version, current)

    async def _read_page(self, items: list[tuple[str, Target]]) -> dict[str, Any]:
        replies = await self._read_raw([target for _, target in items])
        found: dict[str, Any] = {}
        for (key, target), raw in zip(items, replies, strict=True):
            if not isinstance(raw, bytes):
                continue
            value = value_of(raw)
            try:
                found[key] = await self._resolved(target, take_apart(raw)) if value is NotImplemented else value
            except ReplacedError:
                found |= await self._read_page([(key, target)])
        return found

    async def _read_raw(self, targets: list[Target]) -> list[Reply]:
        """What keys of one namespace hold; those that are not in Redis but last are brought back, some at a time."""
        await self._joined(targets[0])
        call = self._line.call("MGET", *(target.physical for target in targets))
        replies = as_list(await self._explained(targets[0], VALUE, call))
        absent = [at for at, raw in enumerate(replies) if raw is None] if self._tier else []
        for first in range(0, len(absent), _RECALL_AT_ONCE):
            page = absent[first : first + _RECALL_AT_ONCE]
            for at, raw in zip(page, await self._brought_back_all([targets[at] for at in page]), strict=True):
                replies[at] = raw
        return replies

    async def _brought_back_all(self, targets: list[Target]) -> list[bytes | None]:
        return await asyncio.gather(*(self._unless_other(target) for target in targets))

    async def _unless_other(self, target: Target) -> bytes | None:
        try:
            return await self._brought_back(target)
        except WrongTypeError:
            return None


class ReplacedError(VersionConflictError):
    """A large value was replaced while it was read."""
