"""The target of an archive: writes document by document, each only if no newer one exists.

Durable keys are written to the durable store, if there is one, and their copies in Redis are dropped; other keys are
written to Redis. The head of a key is written after its elements, so that no reader gets a part of them. Importing the
same documents again changes nothing.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode
from collections.abc import Iterator, Sequence

from pydantic import ValidationError

from sharedmem.archive.conversations import LargeEntryDocuments
from sharedmem.archive.endpoint import (
    BLOB_PART,
    DURABLE_KINDS,
    SHARED_DATA_TYPES,
    ArchivedBlobReference,
    ArchiveEndpoint,
    WriteResult,
)
from sharedmem.archive.objects import OBJECT, is_object_key
from sharedmem.archive.snapshots import LeaveOut
from sharedmem.archive.writers import RedisWriter, TierWriter
from sharedmem.durable.conversation_documents import CONVERSATION
from sharedmem.durable.liveness import has_expired
from sharedmem.errors import InvalidError
from sharedmem.models import DurableRecord
from sharedmem.models.record import Record
from sharedmem.redis.keys import SHARED_SCOPE, absolute_key, check_durable_key

_BLOB = "blob"
_KINDS = {b"s": "session", b"k": "knowledge"}
_MOST_ELEMENTS = 500
_MOST_BYTES = 1 << 20


class TransferTally(Record):
    """Counts of documents by outcome."""

    imported: int = 0
    """Documents that were written."""
    older: int = 0
    """Documents that were not newer than existing data, or met data without a version."""
    skipped: int = 0
    """Documents that had expired, or cannot be written there."""

    @property
    def documents(self) -> int:
        """The number of all documents."""
        return self.imported + self.older + self.skipped

    def with_more(self, landed: WriteResult, number: int) -> TransferTally:
        """Return the tally with further documents."""
        return self.model_copy(update={landed: getattr(self, landed) + number})


class ArchiveSink:
    """Writes documents of one namespace, which arrive with the head of each key before its elements.

    Args:
        endpoint: the target.
        namespace: the namespace.
        base: stamp for documents without their own (see `TierWriter`).
        replace: see `RedisWriter`.
        leave_out: called with (key, why) for data that cannot be written there.
        tally: counts of earlier documents.
    """

    def __init__(
        self,
        endpoint: ArchiveEndpoint,
        namespace: str,
        *,
        base: int,
        leave_out: LeaveOut,
        replace: bool = False,
        tally: TransferTally | None = None,
    ) -> None:
        self.tally = tally or TransferTally()
        """Counts of documents by outcome."""
        self.keys = TransferTally()
        """The same for keys."""
        self._endpoint = endpoint
        self._namespace = namespace
        self._leave_out = leave_out
        self._redis = RedisWriter(endpoint, namespace, replace=replace, report=self._count) if endpoint.redis else None
        durable = endpoint.durable
        self._tier = (
            TierWriter(endpoint, durable, base=base, report=self._count, leave_out=leave_out) if durable else None
        )
        # The head of the key that is being written.
        self._head: DurableRecord | None = None
        self._landing: RedisWriter | TierWriter | None = None
        self._fate: WriteResult = "skipped"
        self._waiting: list[DurableRecord] = []
        self._bytes = self._elements = self._parts_written = 0
        self._blob = bytearray()
        # By key: the reference to its stored bytes, and their number of lines.
        self._blobs: dict[str, tuple[str, int]] = {}
        self._unused: list[tuple[str, str]] = []
        self._entries = LargeEntryDocuments(endpoint.blobs, leave_out) if endpoint.blobs is not None else None
        self._kept: dict[str, str] = {}

    async def take(self, records: Sequence[DurableRecord]) -> None:
        """Accept documents; they are certainly written only after `settle`.

        Raises:
            InvalidError: a document is of another namespace, or an element arrives without its head.
            UnavailableError, LimitedError, AccessDeniedError: an endpoint cannot write them now.
        """
        for number, run in enumerate(_split_by_repeated_key(records)):
            if number:
                await self._close()
                await self._settle()
            await self._look_ahead(run)
            for record in run:
                await self._take(record)
        await self._remove_unused()

    async def settle(self) -> None:
        """Wait until all accepted documents are written.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: an endpoint cannot write them now.
        """
        await self._close()
        await self._settle()
        await self._remove_unused()

    async def _take(self, record: DurableRecord) -> None:
        if record.namespace != self._namespace:
            raise InvalidError("key", record.key, f"it is not of namespace {self._namespace!r}")
        if record.type in SHARED_DATA_TYPES:
            absolute_key(record.key, self._namespace, SHARED_SCOPE)
        elif record.type == OBJECT and not is_object_key(record.key, self._namespace):
            raise InvalidError("key", record.key, "an object of a model is not stored there")
        else:
            check_durable_key(record.key)
        if record.is_head:
            await self._close()
            await self._open(record)
        else:
            await self._element(record)

    async def _settle(self) -> None:
        for landing in (self._redis, self._tier):
            if landing is not None:
                await landing.settle()

    # -- a key, from its head to its last element

    async def _open(self, head: DurableRecord) -> None:
        kind = self._kind(head)
        self._head, self._fate, self._landing = head, "skipped", None
        if head.deleted or has_expired(head, self._endpoint.now_ms):
            return
        self._landing = self._route(head, kind)
        if self._landing is None or self._landing is not self._tier:
            return
        self._head = head.model_copy(update={"kind": kind})
        if not self._tier.accepts(head):
            self._fate, self._landing = "older", None

    def _kind(self, head: DurableRecord) -> str:
        return head.kind if head.kind in DURABLE_KINDS else self._kept.get(head.key, self._endpoint.kind_of(head.key))

    def _route(self, head: DurableRecord, kind: str) -> RedisWriter | TierWriter | None:
        if kind in DURABLE_KINDS and self._tier is not None and head.type != OBJECT:
            return self._tier
        is_for_redis = head.type in SHARED_DATA_TYPES or head.type in {OBJECT, CONVERSATION}
        if is_for_redis and self._redis is not None:
            return self._redis
        where = "a Redis server" if is_for_redis else "a durable store"
        self._leave_out(head.key, f"a {head.type} of kind {kind} needs {where}, which the target does not have")
        return None

    async def _element(self, record: DurableRecord) -> None:
        head = self._head
        if head is None or head.key != record.key:
            raise InvalidError("document", f"{record.key} {record.element}", "the head of its key does not precede it")
        if record.type == BLOB_PART:
            self._parts_written += 1
            self._blob += b64decode(record.body)
            return
        self._elements += 1
        if self._entries is not None and self._landing is not None:
            record = await self._entries.stored(record, large_from=self._endpoint.large_from_bytes)
        self._waiting.append(record)
        self._bytes += len(record.body)
        if len(self._waiting) >= _MOST_ELEMENTS or self._bytes >= _MOST_BYTES:
            await self._pass_on(head)

    async def _pass_on(self, head: DurableRecord) -> None:
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        if self._landing is not None and waiting:
            await self._landing.elements(head, waiting, self._elements - len(waiting))

    async def _close(self) -> None:
        head, self._head = self._head, None
        if head is None:
            return
        await self._pass_on(head)
        if self._parts_written and self._landing is not None:
            head = await self._with_blob(head, self._landing)
        if self._landing is not None:
            await self._landing.key(head, 1 + self._elements)
        else:
            self._count(head, 1 + self._elements + self._parts_written, self._fate)
        self._elements = self._parts_written = 0
        self._blob = bytearray()

    # -- large values

    async def _with_blob(self, head: DurableRecord, landing: RedisWriter | TierWriter) -> DurableRecord:
        """Return the head with a reference to its stored bytes."""
        try:
            reference = ArchivedBlobReference.model_validate_json(head.body)
        except ValidationError as error:
            raise InvalidError("value of key", head.key, "it is not a reference to the bytes that follow it") from error
        if len(self._blob) != reference.size or hashlib.sha256(self._blob).hexdigest() != reference.sha256:
            raise InvalidError("value of key", head.key, "its bytes differ from what was written; copy it again")
        if head.key in self._blobs:
            await self._settle()
        if self._endpoint.blobs is None or (isinstance(landing, RedisWriter) and not await landing.accepts(head)):
            if self._endpoint.blobs is None:
                self._leave_out(head.key, "it is a large value, and the target has no store for those")
            self._landing, self._fate = None, "skipped" if self._endpoint.blobs is None else "older"
            return head
        body = await self._endpoint.blobs.write(head.key, reference.codec.encode(), bytes(self._blob))
        self._blobs[head.key] = body, self._parts_written
        return head.model_copy(update={"body": body})

    async def _remove_unused(self) -> None:
        unused, self._unused = self._unused, []
        for key, reference in unused:
            if self._endpoint.blobs is not None:
                await self._endpoint.blobs.remove(key, reference)

    # -- counts

    def _count(self, record: DurableRecord, documents: int, landed: WriteResult) -> None:
        if record.is_head and record.key in self._blobs:
            reference, parts = self._blobs.pop(record.key)
            documents += parts
            if landed != "imported":
                self._unused.append((record.key, reference))
        self.tally = self.tally.with_more(landed, documents)
        if record.is_head:
            self.keys = self.keys.with_more(landed, 1)

    # -- look-ahead

    async def _look_ahead(self, records: Sequence[DurableRecord]) -> None:
        heads = [record for record in records if record.is_head]
        if self._tier is None or not heads:
            return
        self._kept = await self._kept_of(heads)
        lasting = [head for head in heads if self._kind(head) in DURABLE_KINDS]
        await self._tier.look(lasting, going_on=self._head.key if self._head is not None else "")

    async def _kept_of(self, heads: Sequence[DurableRecord]) -> dict[str, str]:
        """Return the kinds of keys that are durable by argument at the target, which the archive does not contain."""
        keys = [head.key for head in heads if head.kind not in DURABLE_KINDS]
        if self._endpoint.redis is None or not keys:
            return {}
        redis = self._endpoint.redis
        letters = await redis.client.call("HMGET", redis.keyspace.kept(self._namespace), *keys)
        found = zip(keys, letters if isinstance(letters, list) else [], strict=True)
        return {key: _KINDS[letter] for key, letter in found if isinstance(letter, bytes) and letter in _KINDS}


def _split_by_repeated_key(records: Sequence[DurableRecord]) -> Iterator[Sequence[DurableRecord]]:
    """Yield parts in which each key occurs once: a second write of a key must see the result of the first one."""
    first, known = 0, set[str]()
    for number, record in enumerate(records):
        if record.is_head and record.key in known:
            yield records[first:number]
            first, known = number, set()
        if record.is_head:
            known.add(record.key)
    yield records[first:]
