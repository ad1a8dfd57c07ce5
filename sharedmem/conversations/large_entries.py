"""Entries above the blob threshold: the log has a reference, a blob store has the bytes, as of large values.

Forks share entries, so the blobs of all entries belong to the namespace's conversations (`entries_owner`). A script
that removes the last entry with a reference returns it, and its caller deletes the blob. What is left, since a
conversation expired or its entries were copied, is deleted by a sweep (`referenced_paths`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from pydantic import ValidationError

from sharedmem.blobs.blobs import BlobReference, entries_owner
from sharedmem.context import HubContext
from sharedmem.errors import NotFoundError
from sharedmem.redis.change_stream import as_list, text_of
from sharedmem.redis.client import RedisClient
from sharedmem.redis.keys import SHARED_SCOPE, KeySpace, Target
from sharedmem.redis.replies import Command

_IN_BLOB_STORE = b"\x02"
"""First byte of the member of a large entry; no encoded member begins with it (see `redis.codec`)."""
_CODEC = b"member"
_SIGN = b'\x02{"type":"blob"'
_PAGE = 500
_ITEMS = 1000
_AT_ONCE = 16


class LargeEntries:
    """Stores the large entries of conversations, and reads them.

    Args:
        context: dependencies that the hub shares with its stores.
    """

    def __init__(self, context: HubContext) -> None:
        self._blobs, self._gc = context.blobs, context.blob_gc
        self._largest = context.settings.blob_threshold_bytes
        self._is_kept = context.tier is not None

    async def stored(self, target: Target, entries: list[bytes]) -> list[BlobReference]:
        """Store the large ones of the entries of a call, and replace them by references; return these.

        Args:
            target: the conversation.
            entries: id, member, id, member, ... as `encode_entries` returns them.

        Raises:
            UnavailableError: the blob store cannot be written; nothing refers to what it has.
        """
        large = [at for at in range(1, len(entries), 2) if len(entries[at]) > self._largest]
        if not large:
            return []
        owner = entries_owner(target.space.namespace)
        self._gc.watch(target.space.namespace)
        references = []
        for at in large:
            reference = await self._blobs.put(owner, _CODEC, entries[at])
            entries[at] = _IN_BLOB_STORE + reference.model_dump_json().encode()
            references.append(reference)
        return references

    async def resolved(self, target: Target, items: list[bytes]) -> list[bytes]:
        """Return list items with the bytes of large entries instead of references.

        Raises:
            NotFoundError: the bytes of an entry are lost, or it was removed meanwhile.
            UnavailableError: the blob store cannot be read now.
        """
        if _SIGN not in b"".join(items):
            return items
        free = asyncio.Semaphore(_AT_ONCE)

        async def whole(item: bytes) -> bytes:
            at = _member_at(item)
            if item[at : at + 1] != _IN_BLOB_STORE:
                return item
            async with free:
                return item[:at] + await self._bytes_of(target, item, at)

        return list(await asyncio.gather(*map(whole, items)))

    async def remove(self, target: Target, references: Iterable[BlobReference | bytes]) -> None:
        """Delete blobs to which no entry refers; a failure is left to a sweep.

        With a durable tier all are left to it: if Redis were lost now, entries in the tier could refer to them.
        """
        if self._is_kept:
            return
        owner = entries_owner(target.space.namespace)
        for each in references:
            reference = each if isinstance(each, BlobReference) else _parse_reference(each)
            if reference is not None:
                await self._blobs.remove(owner, reference.path)

    async def _bytes_of(self, target: Target, item: bytes, at: int) -> bytes:
        reference = _parse_reference(item[at + 1 :])
        cursor = item[:16].decode(errors="replace")
        if reference is None:
            raise NotFoundError(
                "blob of entry", cursor, f"its reference in {target.key!r} is damaged; remove the entry"
            )
        try:
            return await self._blobs.get(entries_owner(target.space.namespace), reference)
        except NotFoundError as error:
            raise NotFoundError("blob of entry", cursor, f"of conversation {target.key!r}: {error}") from error


async def referenced_paths(client: RedisClient, keyspace: KeySpace, namespace: str) -> set[str]:
    """Return the paths of the blobs to which entries of a namespace refer.

    A few round trips for 500 conversations, and one for each 1,000 entries of a segment with large ones.

    Raises:
        UnavailableError: the server cannot be reached.
    """
    index = keyspace.service(namespace, f"conversation.index:{SHARED_SCOPE}")
    paths: set[str] = set()
    seen: set[str] = set()
    after = "-inf"
    # Conversations that change meanwhile move to the end, also new forks: each is found at least once.
    while page := as_list(await client.call("ZRANGEBYSCORE", index, after, "+inf", "WITHSCORES", "LIMIT", 0, _PAGE)):
        names, scores = page[::2], page[1::2]
        heads = [keyspace.service(namespace, f"conversation:{text_of(name)}") for name in names]
        facts = await client.read_many([("HMGET", head, "segment", "chain") for head in heads])
        segments = [name for fact in facts for name in _segments_of([text_of(part or b"") for part in as_list(fact)])]
        fresh = [name for name in dict.fromkeys(segments) if name not in seen]
        ids: list[Command] = [("HGET", keyspace.service(namespace, f"conversation.ids:{name}"), "") for name in fresh]
        marks = await client.read_many(ids) if ids else []
        for name, mark in zip(fresh, marks, strict=True):
            if mark is not None:
                paths |= await _paths_in(client, keyspace.service(namespace, f"conversation.log:{name}"))
        seen.update(fresh)
        after = f"({int(float(text_of(scores[-1])))}"
    return paths


async def _paths_in(client: RedisClient, log: bytes) -> set[str]:
    """Return the paths to which the entries of a segment refer."""
    found: set[str] = set()
    first = 0
    while items := as_list(await client.call_aside("LRANGE", log, first, first + _ITEMS - 1)):
        for item in items:
            if isinstance(item, bytes) and item[(at := _member_at(item)) :][:1] == _IN_BLOB_STORE:
                reference = _parse_reference(item[at + 1 :])
                found |= {reference.path} if reference is not None else set()
        first += len(items)
    return found


def _segments_of(fact: Sequence[str]) -> list[str]:
    own, chain = fact
    return [name for name in (own, *chain.split("\n")[:-1:3]) if name]


def _member_at(item: bytes) -> int:
    end = item.find(b"\n")
    size = item[:end].rpartition(b" ")[2]
    return end + 1 + (int(size) if size.isdigit() else 0)


def _parse_reference(text: bytes) -> BlobReference | None:
    try:
        return BlobReference.model_validate_json(text)
    except ValidationError:  # another client has written there
        return None
