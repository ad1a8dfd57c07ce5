"""The target of an archive: writes document by document, each only if no newer one exists.

Durable keys are written to the durable store, if there is one, and their copies in Redis are dropped; other keys are
written to Redis. The head of a key is written after its elements, so that no reader gets a part of them. Importing the
same documents again changes nothing. A key that was deleted since it was archived is restored as a new change: with its
old version, but a new stamp, which is higher than that of its tombstone.
"""

from __future__ import annotations

import asyncio
import hashlib
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from pydantic import ValidationError

from sharedmem.archive.conversations import ConversationWriter, LargeEntryDocuments
from sharedmem.archive.endpoint import (
    BLOB_PART,
    DURABLE_KINDS,
    SHARED_DATA_TYPES,
    ArchivedBlobReference,
    ArchiveEndpoint,
    RedisEndpoint,
    WriteResult,
)
from sharedmem.archive.objects import OBJECT, is_object_key, object_commands
from sharedmem.archive.snapshots import LeaveOut
from sharedmem.clock import new_id
from sharedmem.durable.conversation_documents import CONVERSATION
from sharedmem.durable.key_loader import SharedDataRestorer
from sharedmem.durable.protocol import Durable, has_expired
from sharedmem.durable.record_recovery import RECOVERED_MARK
from sharedmem.errors import InvalidError, UnavailableError
from sharedmem.models import DurableRecord, Outcome
from sharedmem.models.record import Record
from sharedmem.redis.durability import RULE_MODES
from sharedmem.redis.keys import SHARED_SCOPE, Target, absolute_key, check_durable_key, is_lasting_record
from sharedmem.redis.replies import Argument, Command, ServerError, public_error
from sharedmem.redis.scripts.durable import LOST, KeyDropKeys, KeyRestoreOptions

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


# -- writers --------------------------------------------------------------------------------------


_ACTOR = b"archive"
_VALUE = "value"
_STRUCTURES = frozenset({"list", "hash", "set"})
_STAGED = "kept.staged"
_STAGED_MS = 3_600_000
_MOST_KEYS = 200
_MOST_TRIES = 5
_RESTORE_OUTCOMES: dict[str, WriteResult] = {"y": "imported", "n": "older", "e": "skipped"}


class _StagedKey(NamedTuple):
    """A key that is staged completely."""

    head: DurableRecord
    documents: int
    place: bytes
    ready: bytes
    text: bytes


class RedisWriter:
    """Writes documents to Redis.

    Args:
        endpoint: the endpoint with the server.
        namespace: the namespace.
        replace: whether to replace structures, counters and strings of other clients, which have no version.
        report: called with (head, number of documents, outcome).
    """

    def __init__(
        self,
        endpoint: ArchiveEndpoint,
        namespace: str,
        *,
        replace: bool,
        report: Callable[[DurableRecord, int, WriteResult], None],
    ) -> None:
        self._endpoint = endpoint
        self._redis = endpoint.server
        self._space = self._redis.keyspace.space(namespace)
        joined = endpoint.join is not None
        self._terms = KeyRestoreOptions(self._redis.change_log_length, int(replace), int(joined))
        self._report = report
        self._restorer = SharedDataRestorer()
        # Several imports may stage the same key at the same time.
        self._mark, self._number = new_id(), 0
        self._commands: list[Command] = []
        self._waiting: list[_StagedKey] = []
        self._bytes = 0
        self._conversations = ConversationWriter(self._redis, self._mark, replace=replace)
        # The elements of the conversation that is being read.
        self._entries: list[DurableRecord] = []

    async def accepts(self, head: DurableRecord) -> bool:
        """Return whether a value would be written, as far as can be known before."""
        start = await self._redis.client.call("TYPE", self._target(head).physical)
        if start != b"string":
            return True
        start = await self._redis.client.call("GETRANGE", self._target(head).physical, 0, 15)
        return not (isinstance(start, bytes) and len(start) == 16 and start.isdigit() and int(start) >= head.version)

    async def elements(self, head: DurableRecord, elements: Sequence[DurableRecord], before: int) -> None:
        """Stage elements, after `before` earlier ones."""
        if head.type == CONVERSATION:
            self._entries += elements
            return
        target = self._target(head)
        (part,) = self._restorer.parts(target, [head, *elements])
        ready = self._ready(target)
        if not before:
            self._commands.append(("UNLINK", ready))
        elif head.type == "list":
            # If the reply is lost, the same rows are sent again.
            self._commands.append(("LTRIM", ready, 0, before - 1))
        cells = [cell for row in part.rows for cell in row]
        self._commands += [(part.command, ready, *cells), ("PEXPIRE", ready, _STAGED_MS)]
        self._bytes += _total_bytes(cells)
        await self._settle_some()

    async def key(self, head: DurableRecord, documents: int) -> None:
        """End a key: all of its documents were passed."""
        if head.type == CONVERSATION:
            await self._write_conversation(head, documents)
            return
        target = self._target(head)
        place = ready = target.physical
        text = b""
        if head.type in _STRUCTURES and documents == 1:
            self._report(head, 1, "skipped")  # the key is empty
            return
        if head.type in _STRUCTURES:
            ready = self._ready(target)
            if head.type == "list" and head.size < documents - 1:
                self._commands.append(("LTRIM", ready, -head.size, -1))
        elif head.type == OBJECT:
            ready = self._ready(target)
            self._commands += [*object_commands(head, ready), ("PEXPIRE", ready, _STAGED_MS)]
            self._bytes += len(head.body)
        else:
            (part,) = self._restorer.parts(target, [head])
            text = _cell_bytes(part.rows[0][0])
        self._number += 1
        self._waiting.append(_StagedKey(head, documents, place, ready, text))
        self._bytes += len(text)
        await self._settle_some()

    async def settle(self) -> None:
        """Write the staged keys.

        Raises:
            UnavailableError: the server cannot be reached, is full, or the namespace is being cleared.
        """
        commands, self._commands = self._commands, []
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        try:
            if commands:
                await self._redis.client.read_many(commands, aside=True)
            letters = await self._restored(waiting) if waiting else ""
        except ServerError as error:
            raise public_error(error, self._redis.client.address) from error
        for one, letter in zip(waiting, letters, strict=True):
            if letter not in _RESTORE_OUTCOMES:
                raise UnavailableError(f"key {one.head.key!r}", "its staged data has expired; run it again")
            self._report(one.head, one.documents, _RESTORE_OUTCOMES[letter])

    async def _write_conversation(self, head: DurableRecord, documents: int) -> None:
        elements, self._entries = self._entries, []
        above = max(record.version for record in (head, *elements))
        await allocate_versions(self._endpoint, self._redis, head.namespace, count=0, above=above)
        try:
            self._report(head, documents, await self._conversations.write(head, elements, _ACTOR))
        except ServerError as error:
            raise public_error(error, self._redis.client.address) from error

    async def _settle_some(self) -> None:
        if self._bytes >= _MOST_BYTES or len(self._waiting) >= _MOST_KEYS or len(self._commands) >= 4 * _MOST_KEYS:
            await self.settle()

    async def _restored(self, waiting: Sequence[_StagedKey]) -> str:
        keys = [key for one in waiting for key in (one.place, one.ready)]
        rows: list[Argument] = []
        for one in waiting:
            rows += (one.head.version if one.head.type == _VALUE else 0, one.head.expires, one.text)
        for _ in range(_MOST_TRIES):
            letters = await self._redis.restore_scripts.key_restore(
                self._redis.owner(self._space), keys, _ACTOR, self._terms, rows
            )
            if letters != LOST:
                return letters
            await self._endpoint.joined(self._space.namespace, again=True)
        raise UnavailableError(
            f"namespace {self._space.namespace!r}",
            "Redis lacks data of the durable tier, which cannot be restored now; try again",
        )

    def _target(self, head: DurableRecord) -> Target:
        return self._redis.keyspace.target(head.key)

    def _ready(self, target: Target) -> bytes:
        return self._redis.keyspace.item(target, _STAGED, f"{self._mark}.{self._number}")


def _total_bytes(cells: Sequence[Argument]) -> int:
    return sum(len(cell) for cell in cells if isinstance(cell, bytes | str))


def _cell_bytes(cell: Argument) -> bytes:
    if isinstance(cell, bytes):
        return cell
    raise InvalidError("body", cell, "it is not valid for a string")


# Instead of a stamp.
_OWN, _NEW, _OVERTAKEN = 0, -1, -2
_MOST_RECORDS = 200
_AT_ONCE = 16
_DROP_TIMEOUT_S = 10.0
_PAUSE_S = 0.05
_OUTCOMES: dict[Outcome, WriteResult] = {
    Outcome.STORED: "imported",
    Outcome.OLDER: "older",
    Outcome.REFUSED: "skipped",
}


class TierWriter:
    """Writes documents to a durable store.

    Args:
        endpoint: the store, and its server if there is one.
        durable: the same store.
        base: stamp of documents without their own: they come from Redis, which has none for structures.
        report: called with (document, number of documents, outcome).
        leave_out: called with (key, why) for documents that the store rejects for good.
    """

    def __init__(
        self,
        endpoint: ArchiveEndpoint,
        durable: Durable,
        *,
        base: int,
        report: Callable[[DurableRecord, int, WriteResult], None],
        leave_out: LeaveOut,
    ) -> None:
        self._endpoint = endpoint
        self._durable = durable
        self._base = base
        self._report = report
        self._leave_out = leave_out
        self._elements: list[DurableRecord] = []
        self._heads: list[DurableRecord] = []
        self._bytes = 0
        self._raised = 0
        self._stamps: dict[str, int] = {}

    async def look(self, heads: Sequence[DurableRecord], *, going_on: str) -> None:
        """Read the store's documents of keys that are written next. One round trip a key, some at a time.

        Args:
            heads: heads of these keys.
            going_on: a key with more documents to follow.
        """
        free = asyncio.Semaphore(_AT_ONCE)

        async def one(head: DurableRecord) -> DurableRecord | None:
            async with free:
                return await self._durable.get(head.key)

        known = await asyncio.gather(*(one(head) for head in heads))
        gone = await self._deletions([head.key for head in heads])
        self._stamps = {key: stamp for key, stamp in self._stamps.items() if key == going_on}
        for head, there in zip(heads, known, strict=True):
            self._stamps[head.key] = self._stamp(head, there, gone.get(head.key, 0))
        revived = [key for key, stamp in self._stamps.items() if stamp == _NEW]
        if revived:
            first = await self._new_stamps(heads[0].namespace, len(revived))
            self._stamps |= {key: first + number for number, key in enumerate(revived)}

    def accepts(self, head: DurableRecord) -> bool:
        """Return whether a key would be written, as far as is known."""
        return self._stamps[head.key] != _OVERTAKEN

    async def elements(self, head: DurableRecord, elements: Sequence[DurableRecord], before: int) -> None:  # noqa: ARG002  # only Redis must count
        """Add elements."""
        for one in elements:
            self._elements.append(self._stamped(one, head))
            self._bytes += len(one.body)
        await self._settle_some()

    async def key(self, head: DurableRecord, documents: int) -> None:  # noqa: ARG002  # likewise
        """End a key: all of its documents were passed."""
        self._heads.append(self._stamped(head, head))
        self._bytes += len(head.body)
        await self._settle_some()

    async def settle(self) -> None:
        """Write the waiting documents.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: the store or the server cannot write now.
        """
        elements, self._elements = self._elements, []
        heads, self._heads, self._bytes = self._heads, [], 0
        await self._raise_clock([*elements, *heads])
        await self._put(elements)
        stored = await self._put(heads)
        if self._endpoint.redis is not None:
            await self._drop_redis_copies(self._endpoint.redis, stored)

    async def _settle_some(self) -> None:
        if self._bytes >= _MOST_BYTES or len(self._elements) + len(self._heads) >= _MOST_RECORDS:
            await self.settle()

    def _stamp(self, head: DurableRecord, known: DurableRecord | None, deleted: int) -> int:
        """Return the stamp for all documents of a key; `_OWN`, `_NEW`, or `_OVERTAKEN`: the key is not written."""
        if known is not None and (known.deleted or has_expired(known, self._endpoint.now_ms)):
            deleted = max(deleted, known.stamp)
        elif known is not None and known.stamp > deleted:
            if head.stamp:
                # Their stamps decide, document by document, unless no reader could see any of them.
                is_over = known.floor > head.stamp or (head.type == _VALUE and known.stamp >= head.stamp)
                return _OVERTAKEN if is_over else _OWN
            # Items of a structure without stamps could not be distinguished from existing ones.
            return _OVERTAKEN if known.stamp > self._base else self._base
        if deleted >= (head.stamp or self._base):
            return _NEW
        return _OWN if head.stamp else self._base

    async def _deletions(self, keys: Sequence[str]) -> dict[str, int]:
        """Return the stamps of deletions that the store does not have yet."""
        if self._endpoint.redis is None or not keys:
            return {}
        redis = self._endpoint.redis
        states = await redis.client.read_many(
            [("GET", redis.keyspace.state(redis.keyspace.target(key))) for key in keys]
        )
        states_by_key = {
            key: state.split() for key, state in zip(keys, states, strict=True) if isinstance(state, bytes)
        }
        return {key: int(words[1]) for key, words in states_by_key.items() if words[0] == b"deleted"}

    async def _new_stamps(self, namespace: str, count: int) -> int:
        if self._endpoint.redis is not None:
            return await allocate_versions(self._endpoint, self._endpoint.redis, namespace, count=count)
        microseconds = round(self._endpoint.clock.now().timestamp() * 1_000_000)
        return max(microseconds, await self._durable.highest(namespace) + 1)

    def _stamped(self, record: DurableRecord, head: DurableRecord) -> DurableRecord:
        stamp = self._stamps[head.key]
        update: dict[str, object] = {"kind": head.kind}
        if stamp != _OWN:
            update |= {"stamp": stamp, "version": record.version or stamp}
            update |= {"floor": stamp} if record.is_head else {}
        return record.model_copy(update=update)

    async def _put(self, records: list[DurableRecord]) -> list[DurableRecord]:
        if not records:
            return []
        stored = []
        for record, put in zip(records, await self._durable.put(records), strict=True):
            if put.outcome is Outcome.REFUSED:
                self._leave_out(record.key, put.reason)
            if put.outcome is Outcome.STORED:
                stored.append(record)
            self._report(record, 1, _OUTCOMES[put.outcome])
        return stored

    async def _raise_clock(self, records: Sequence[DurableRecord]) -> None:
        """Raise the clock, so that no version in the store is assigned again."""
        highest = max((max(one.stamp, one.version) for one in records), default=0)
        if self._endpoint.redis is None or highest <= self._raised:
            return
        redis, namespace = self._endpoint.redis, records[0].namespace
        await allocate_versions(self._endpoint, redis, namespace, count=0, above=highest)
        self._raised = highest

    async def _drop_redis_copies(self, redis: RedisEndpoint, heads: Sequence[DurableRecord]) -> None:
        free = asyncio.Semaphore(_AT_ONCE)

        async def one(head: DurableRecord) -> None:
            async with free:
                await self._drop(redis, head)

        await asyncio.gather(*(one(head) for head in heads))
        if any(is_lasting_record(head.key) for head in heads):
            # The next restore reads the present documents of the store.
            await redis.client.call("HDEL", redis.keyspace.kept(heads[0].namespace), RECOVERED_MARK)

    async def _drop(self, redis: RedisEndpoint, head: DurableRecord) -> None:
        if is_lasting_record(head.key):
            return  # a restore replaces older records (lua/*_restore.lua)
        target = redis.keyspace.target(head.key)
        here = redis.keyspace.presence(target)
        if head.type not in SHARED_DATA_TYPES and await redis.client.call("EXISTS", here) == 1:
            return  # a session that is used in Redis is newer
        by_argument = "" if self._endpoint.kind_of(head.key) == head.kind else RULE_MODES.get(head.kind, "")
        keys = KeyDropKeys(redis.keyspace.kept(head.namespace), redis.keyspace.state(target), here)
        deadline = self._endpoint.clock.monotonic() + _DROP_TIMEOUT_S
        while True:
            answer = await redis.durable_scripts.key_drop(keys, logical=head.key, kind=by_argument, stamp=head.stamp)
            if answer != "pending" or self._endpoint.clock.monotonic() > deadline:
                return
            await self._endpoint.clock.sleep(_PAUSE_S)


async def allocate_versions(
    endpoint: ArchiveEndpoint, redis: RedisEndpoint, namespace: str, *, count: int, above: int = 0
) -> int:
    """Return the first of `count` new versions of a namespace.

    Raises:
        UnavailableError: the server cannot be reached, or loses the namespace after each join.
    """
    space, joined = redis.keyspace.space(namespace), int(endpoint.join is not None)
    for _ in range(_MOST_TRIES):
        first = await redis.restore_scripts.version_take(redis.owner(space), count=count, above=above, joined=joined)
        if first is not None:
            return first
        await endpoint.joined(namespace, again=True)
    raise UnavailableError(
        f"namespace {namespace!r}",
        "Redis lacks data of the durable tier, which cannot be restored now; try again",
    )
