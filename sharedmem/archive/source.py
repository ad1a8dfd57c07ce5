"""The source of an archive: the keys of a namespace in Redis, then further keys in its durable store.

A durable key is read from the store, which has the versions of all its elements, unless Redis has a change that the
store does not have yet. So a key may occur twice; the reader of the archive keeps the newer one.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Sequence

from pydantic import ValidationError

from sharedmem.archive.conversations import ConversationReader, LargeEntryDocuments
from sharedmem.archive.endpoint import (
    BLOB_PART,
    DURABLE_KINDS,
    SHARED_DATA_TYPES,
    ArchivedBlobReference,
    ArchiveEndpoint,
    RedisEndpoint,
)
from sharedmem.archive.files import SourcePosition
from sharedmem.archive.objects import is_object_key, object_documents
from sharedmem.archive.snapshots import LeaveOut, SnapshotReader, snapshot
from sharedmem.durable.conversation_documents import ENTRY, is_conversation_key
from sharedmem.durable.protocol import Durable, has_expired
from sharedmem.errors import InvalidError, NotFoundError
from sharedmem.models import DurableRecord
from sharedmem.redis.change_stream import as_list
from sharedmem.redis.keys import LASTING_FAMILIES, SHARED_SCOPE, Target, absolute_key
from sharedmem.runtime import in_thread

_BLOB = "blob"
_ELSEWHERE = {"memory": "; else use store.memory.export"}
"""Other ways to move records."""
_PENDING, _DELETED = b"pending", b"deleted"
_PART_BYTES = 786_432
_AT_ONCE = 16
_MOST_TRIES = 3

Batch = tuple[SourcePosition | None, list[DurableRecord]]
"""(position after the documents, documents); None as position within the documents of a key."""


class ArchiveSource:
    """Reads the documents of a namespace.

    Args:
        endpoint: the source.
        namespace: the namespace.
        leave_out: called with (key, why) for data that cannot be archived.
    """

    def __init__(self, endpoint: ArchiveEndpoint, namespace: str, leave_out: LeaveOut) -> None:
        self._endpoint = endpoint
        self._namespace = namespace
        self._leave_out = leave_out

    async def batches(self, position: SourcePosition) -> AsyncIterator[Batch]:
        """Yield all documents from a position on, a few MiB at a time.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: an endpoint is unavailable, or forbids it.
        """
        if self._endpoint.redis is not None and position.phase == "redis":
            async for batch in self._hot(self._endpoint.redis, position):
                yield batch
            await self._report_left_out_records(self._endpoint.redis)
        if self._endpoint.durable is not None:
            async for batch in self._cold(self._endpoint.durable, position):
                yield batch

    async def count(self) -> int | None:
        """Return the number of keys in Redis; None without a server. Reads pages with SCAN."""
        if self._endpoint.redis is None:
            return None
        client, keyspace = self._endpoint.redis.client, self._endpoint.redis.keyspace
        near, found = keyspace.space(self._namespace).clock, 0
        async for page in client.scan(keyspace.pattern(self._namespace), near=near, count=2000):
            names = [keyspace.logical(key) for key in page if keyspace.is_service(key)]
            found += len(page) - len(names)
            found += sum(is_object_key(name, self._namespace) or self._is_talk(name) for name in names)
        return found

    # -- keys in Redis

    async def _hot(self, redis: RedisEndpoint, position: SourcePosition) -> AsyncIterator[Batch]:
        pattern, near = redis.keyspace.pattern(self._namespace), redis.keyspace.space(self._namespace).clock
        run = await redis.client.server_run_id(near)
        cursor = position.cursor if run and position.server == run else "0"
        while True:
            cursor, keys = await redis.client.scan_from(pattern, near=near, cursor=cursor)
            async for page in self._snapshots(redis).documents(await self._own(redis, self._named(redis, keys))):
                async for piece in self._whole(page):
                    yield None, piece
            talks = [redis.keyspace.target(name) for name in map(redis.keyspace.logical, keys) if self._is_talk(name)]
            reader = ConversationReader(redis, self._leave_out)
            async for page in reader.documents(talks, are_kept=self._endpoint.durable is not None):
                async for piece in self._whole(page):
                    yield None, piece
            objects = [key for key in keys if self._is_object(redis, key)]
            async for page in object_documents(redis.client, redis.keyspace, objects, now_ms=self._endpoint.now_ms):
                yield None, page
            if cursor == "0":
                yield SourcePosition(phase="tier"), []
                return
            yield SourcePosition(cursor=cursor, server=run), []

    def _is_object(self, redis: RedisEndpoint, physical: bytes) -> bool:
        return is_object_key(redis.keyspace.logical(physical), self._namespace)

    def _is_talk(self, key: str) -> bool:
        return is_conversation_key(key, self._namespace)

    def _named(self, redis: RedisEndpoint, keys: Sequence[bytes]) -> list[Target]:
        found = []
        for key in keys:
            if redis.keyspace.is_service(key):
                continue
            target = redis.keyspace.target(redis.keyspace.logical(key))
            try:
                absolute_key(target.key, self._namespace, SHARED_SCOPE)
            except InvalidError as error:
                self._leave_out(target.key, f"another client has written it: {error}")
                continue
            if target.physical == key:
                found.append(target)
            else:
                self._leave_out(target.key, "another client has written it, under a name that is not a text")
        return found

    async def _own(self, redis: RedisEndpoint, targets: Sequence[Target]) -> list[Target]:
        """Return the keys that are newer in Redis than in the durable store, or only there."""
        if self._endpoint.durable is None or not targets:
            return list(targets)
        kept = redis.keyspace.kept(self._namespace)
        states = await redis.client.read_many([("GET", redis.keyspace.state(target)) for target in targets])
        by_argument = await redis.client.call("HMGET", kept, *(target.key for target in targets))
        assert isinstance(by_argument, list)
        free = asyncio.Semaphore(_AT_ONCE)

        async def is_own(target: Target, state: object, letter: object, durable: Durable) -> bool:
            lasts = letter is not None or self._endpoint.kind_of(target.key) in DURABLE_KINDS
            if not lasts or (isinstance(state, bytes) and state.startswith(_PENDING)):
                return True
            async with free:
                head = await durable.get(target.key)
            return head is None or head.deleted or has_expired(head, self._endpoint.now_ms)

        facts = zip(targets, states, by_argument, strict=True)
        own = await asyncio.gather(*(is_own(*fact, self._endpoint.durable) for fact in facts))
        return [target for target, is_mine in zip(targets, own, strict=True) if is_mine]

    async def _report_left_out_records(self, redis: RedisEndpoint) -> None:
        """Report memories and graphs as left out without a durable store: only it has their documents."""
        for family in LASTING_FAMILIES if self._endpoint.durable is None else ():
            log = redis.keyspace.record_log(family, self._namespace)
            if await redis.client.call("EXISTS", log) == 1:
                why = f"it can be moved only with a durable tier{_ELSEWHERE.get(family, '')}"
                self._leave_out(f"{self._namespace}:${family}", why)

    # -- keys in the durable store

    async def _cold(self, durable: Durable, position: SourcePosition) -> AsyncIterator[Batch]:
        after = (position.key, position.element) if position.phase == "tier" and position.key else None
        # In the middle of a key, its head was read before.
        head = await durable.get(position.key) if after and position.element else None
        async for page in durable.iterate(self._namespace, after=after):
            states = await self._states([record for record in page if record.is_head])
            # Elements at the beginning of the page belong to the previous key; nothing may come in between.
            first = next((n for n, record in enumerate(page) if record.is_head), len(page))
            records = [record for record in page[:first] if head is not None and self._counts(head, record)]
            async for piece in self._whole(records):
                yield None, piece
            async for piece in self._ahead([key for key, state in states.items() if state.startswith(_PENDING)]):
                yield None, piece
            records = []
            for record in page[first:]:
                if record.is_head:
                    head = None if record.key in states else record
                if head is not None and self._counts(head, record):
                    records.append(record)
            async for piece in self._whole(records):
                yield None, piece
            yield SourcePosition(phase="tier", key=page[-1].key, element=page[-1].element), []

    def _counts(self, head: DurableRecord, record: DurableRecord) -> bool:
        if head.key != record.key or head.deleted or has_expired(head, self._endpoint.now_ms):
            return False
        return record.is_head or not (record.deleted or record.stamp < head.floor)

    async def _states(self, heads: Sequence[DurableRecord]) -> dict[str, bytes]:
        """Return the states of keys whose last change the durable store does not have."""
        if self._endpoint.redis is None or not heads:
            return {}
        keyspace = self._endpoint.redis.keyspace
        states = [keyspace.state(keyspace.target(head.key)) for head in heads]
        replies = await self._endpoint.redis.client.read_many([("MGET", *states)])
        by_head = zip(heads, as_list(replies[0]), strict=True)
        return {head.key: state for head, state in by_head if isinstance(state, bytes) and _is_ahead(head, state)}

    async def _ahead(self, keys: Sequence[str]) -> AsyncIterator[list[DurableRecord]]:
        """Yield documents in Redis of keys that changed since Redis was read: they may have been only in the store."""
        if self._endpoint.redis is None or not keys:
            return
        keyspace = self._endpoint.redis.keyspace
        async for page in self._snapshots(self._endpoint.redis).documents([keyspace.target(key) for key in keys]):
            async for piece in self._whole(page):
                yield piece

    def _snapshots(self, redis: RedisEndpoint) -> SnapshotReader:
        return SnapshotReader(redis.client, redis.keyspace, kind_of=self._endpoint.kind_of, leave_out=self._leave_out)

    # -- large values

    async def _whole(self, records: Sequence[DurableRecord]) -> AsyncIterator[list[DurableRecord]]:
        """Yield the documents with the bytes of large values instead of references."""
        if self._endpoint.blobs is None:
            yield list(records)
            return
        plain: list[DurableRecord] = []
        for record in records:
            if record.type == ENTRY:
                found = await LargeEntryDocuments(self._endpoint.blobs, self._leave_out).whole(record)
                plain += [found] if found is not None else []
                continue
            if record.codec != _BLOB:
                plain.append(record)
                continue
            yield plain
            plain = []
            async for piece in self._parted(record):
                yield piece
        yield plain

    async def _parted(self, head: DurableRecord) -> AsyncIterator[list[DurableRecord]]:
        found = await self._with_bytes(head)
        if found is None:
            return
        head, body = found
        if body is None:
            yield [head]
            return
        reference = ArchivedBlobReference.model_validate_json(head.body)
        yield [head.model_copy(update={"body": reference.model_copy(update={"path": ""}).model_dump_json()})]
        for number, first in enumerate(range(0, len(body), _PART_BYTES)):
            text = await in_thread(b64encode, body[first : first + _PART_BYTES])
            update = {"element": f"{number:08d}", "type": BLOB_PART, "codec": "base64", "body": text.decode()}
            yield [head.model_copy(update={**update, "floor": 0, "created": 0, "expires": 0, "actor": ""})]

    async def _with_bytes(self, head: DurableRecord) -> tuple[DurableRecord, bytes | None] | None:
        """Return the head and its bytes; another client may have replaced the value just now."""
        assert self._endpoint.blobs is not None
        why = ""
        for _ in range(_MOST_TRIES):
            if head.codec != _BLOB:
                return head, None
            try:
                return head, await self._endpoint.blobs.read(head.key, head.body)
            except (NotFoundError, ValidationError) as error:
                why = str(error)
            fresh = await self._fresh(head)
            if fresh is None:
                return None
            if fresh.body == head.body:
                break
            head = fresh
        self._leave_out(head.key, f"its bytes cannot be read: {why}")
        return None

    async def _fresh(self, head: DurableRecord) -> DurableRecord | None:
        if self._endpoint.redis is not None:
            redis = self._endpoint.redis
            found = await snapshot(
                redis.client, redis.keyspace, redis.keyspace.target(head.key), kind_of=self._endpoint.kind_of
            )
            if found:
                return found[0] if found[0].type == "value" else None
        return None if self._endpoint.durable is None else await self._endpoint.durable.get(head.key)


def _is_ahead(head: DurableRecord, state: bytes) -> bool:
    # Other types cannot be read from Redis here: their last changes are in the next export.
    return state.startswith(_DELETED) or (state.startswith(_PENDING) and head.type in SHARED_DATA_TYPES)
