"""One container of the account: put, read, page through and purge documents, conditional on their stamps.

`durable.protocol` decides which documents a reader gets. This module decides the same with only some columns of each
document, in one pass over a namespace that is sorted by key and element. A change may have arrived only in part: its
elements may be there before its head.

Nothing is incremented at the server, so that a request that is sent twice leaves the same documents.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

import orjson

from sharedmem.clock import Clock
from sharedmem.durable.cosmos import graph_container, memory_container, record_container
from sharedmem.durable.cosmos.endpoint import ErrorResponse, shorten_message, unreachable_error
from sharedmem.durable.cosmos.record_container import (
    Document,
    DocumentLocation,
    choose_write,
    document_of,
    is_likely_new,
    place_of,
    record_of,
)
from sharedmem.durable.protocol import Scalar
from sharedmem.models import DurableRecord, Outcome, Put
from sharedmem.runtime.concurrency import backoff_pause

if TYPE_CHECKING:
    from sharedmem.durable.cosmos.account import CosmosAccount


PURGE_COLUMNS = "c.key, c.element, c.type, c.stamp, c.floor, c.size, c.expires, c.deleted, c._etag"


class PurgeRow(NamedTuple):
    """The columns of a document for a purge."""

    key: str
    element: str
    type: str
    stamp: int
    floor: int
    size: int
    expires: int
    deleted: bool
    etag: str
    place: DocumentLocation = DocumentLocation("", [])
    """The location of the document."""


class PurgeFilter:
    """Selects dead documents for a purge.

    Args:
        now_ms: milliseconds since 1970.
        tombstones_before: tombstones with a lower stamp are no longer needed.
    """

    def __init__(self, *, now_ms: int, tombstones_before: int) -> None:
        self._now_ms = now_ms
        self._tombstones_before = tombstones_before
        self._head: PurgeRow | None = None
        self._newest: deque[PurgeRow] = deque()

    def dead(self, row: PurgeRow) -> PurgeRow | None:
        """Return the document that is dead after reading the next one: this one, one before it, or None."""
        if not row.element:
            self._head, self._newest = row, deque()
            return row if self._is_over(row) or self._is_old_tombstone(row) else None
        head = self._head
        if head is None or head.key != row.key:
            # The head may still arrive; a change that is older than all tombstones has arrived or never will.
            return row if row.stamp < self._tombstones_before else None
        if row.stamp < head.floor or (self._is_over(head) and row.stamp <= head.stamp):
            return row
        if row.deleted:
            return row if self._is_old_tombstone(row) else None
        return self._pushed_out(row, head)

    def keep(self, keys: Collection[str]) -> None:
        """Keep the elements of heads that could not be deleted, since they have changed."""
        if self._head is not None and self._head.key in keys:
            self._head = self._head._replace(type="", expires=0, floor=0)

    def _pushed_out(self, row: PurgeRow, head: PurgeRow) -> PurgeRow | None:
        """Return the oldest item of a list with more items than its head counts."""
        if head.type != "list" or row.stamp > head.stamp:
            return None
        self._newest.append(row)
        return self._newest.popleft() if len(self._newest) > head.size else None

    def _is_over(self, row: PurgeRow) -> bool:
        return not row.deleted and 0 < row.expires <= self._now_ms

    def _is_old_tombstone(self, row: PurgeRow) -> bool:
        return row.deleted and row.stamp < self._tombstones_before


_T = TypeVar("_T")
_R = TypeVar("_R")
_ATTEMPTS = 12
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.005, 0.5
_PERMANENT_STATUSES = frozenset({400, 413})


class DocumentMapper(Protocol):
    """Maps records to the documents of a container, and back."""

    columns: record_container.ColumnNames
    row: str
    """Columns that a purge reads of each document."""

    def place(self, document: Mapping[str, object]) -> DocumentLocation:
        """Return the location of a document."""

    def is_likely_new(self, record: DurableRecord) -> bool:
        """Return whether to create its document without a read before."""

    def document(self, record: DurableRecord, now_ms: int, held: Document | None) -> Document:
        """Return the document to write, in place of the existing one, if there is one."""

    def record(self, document: Document) -> DurableRecord:
        """Return the record of a document."""

    async def held(self, account: CosmosAccount, key: str, element: str) -> list[Document]:
        """Return the documents of one place; after an interrupted change there may be several, newest first."""


class RecordMapper:
    """One logical partition for each key: the key gives the location of a document."""

    columns = record_container.RECORD_COLUMNS
    row = f"{PURGE_COLUMNS}, c.id, c.namespace, c.scope"

    def place(self, document: Mapping[str, object]) -> DocumentLocation:
        """Return the location of a document."""
        return place_of(str(document["key"]), str(document["element"]))

    def is_likely_new(self, record: DurableRecord) -> bool:
        """Return whether this change created the key: then no other change can have created its document."""
        return is_likely_new(record)

    def document(self, record: DurableRecord, now_ms: int, held: Document | None) -> Document:  # noqa: ARG002  # its place never changes
        """Return the document to write."""
        return document_of(record, now_ms)

    def record(self, document: Document) -> DurableRecord:
        """Return the record of a document."""
        return record_of(document)

    async def held(self, account: CosmosAccount, key: str, element: str) -> list[Document]:
        """Read the document: one point read."""
        answer = await account.read(place_of(key, element))
        return [] if isinstance(answer, ErrorResponse) else [answer]


class MemoryMapper:
    """One logical partition for each thread: a key does not name it, so a document is searched in its tenant."""

    columns = record_container.MEMORY_COLUMNS
    row = f"{PURGE_COLUMNS}, c.id, c.tenant_id, c.thread_id"

    def place(self, document: Mapping[str, object]) -> DocumentLocation:
        """Return the location of a document."""
        return memory_container.place_in(document)

    def is_likely_new(self, record: DurableRecord) -> bool:  # noqa: ARG002  # its tombstone may be anywhere
        """Return False: a document in another partition would not conflict with a new one."""
        return False

    def document(self, record: DurableRecord, now_ms: int, held: Document | None) -> Document:
        """Return the document to write."""
        return memory_container.document_of(record, now_ms, held)

    def record(self, document: Document) -> DurableRecord:
        """Return the record of a document."""
        return memory_container.record_of(document)

    async def held(self, account: CosmosAccount, key: str, element: str) -> list[Document]:
        """Find the documents: one query."""
        id_ = memory_container.id_of(key, element)
        found: list[Document] = await account.all(record_container.query_id(key.partition(":")[0], id_))
        return sorted(found, key=lambda document: -int(document["stamp"]))


class GraphMapper:
    """One logical partition for each group: the key gives the location of a document."""

    columns = record_container.GRAPH_COLUMNS
    row = f"{PURGE_COLUMNS}, c.id, c.namespace, c.group_id"

    def place(self, document: Mapping[str, object]) -> DocumentLocation:
        """Return the location of a document."""
        return graph_container.place_of(str(document["key"]), str(document["element"]))

    def is_likely_new(self, record: DurableRecord) -> bool:
        """Return whether this change created the record, as far as the record shows."""
        return is_likely_new(record)

    def document(self, record: DurableRecord, now_ms: int, held: Document | None) -> Document:  # noqa: ARG002  # its place never changes
        """Return the document to write."""
        return graph_container.document_of(record, now_ms)

    def record(self, document: Document) -> DurableRecord:
        """Return the record of a document."""
        return graph_container.record_of(document)

    async def held(self, account: CosmosAccount, key: str, element: str) -> list[Document]:
        """Read the document: one point read."""
        answer = await account.read(graph_container.place_of(key, element))
        return [] if isinstance(answer, ErrorResponse) else [answer]


class CosmosContainer:
    """The documents of one container.

    Args:
        account: a connection to the container.
        shape: maps records to documents.
        clock: for pauses and times to live.
        slots: limits concurrent requests.
    """

    def __init__(self, account: CosmosAccount, shape: DocumentMapper, clock: Clock, slots: asyncio.Semaphore) -> None:
        self._account = account
        self._shape = shape
        self._clock = clock
        self._slots = slots

    # -- writing ----------------------------------------------------------------------------------

    async def put(self, records: Iterable[DurableRecord]) -> list[Put]:
        """Store each record, no two of one place, unless a document there has the same or a higher stamp."""
        return await self._each(records, self._put)

    async def _put(self, record: DurableRecord) -> Put:
        shape = self._shape
        held = [] if shape.is_likely_new(record) else await self._held(record)
        for attempt in range(_ATTEMPTS):
            wanted, outcome = choose_write(record, shape.record(held[0]) if held else None)
            if wanted is None:
                return Put(outcome=outcome)
            document = shape.document(wanted, self._now_ms(), held[0] if held else None)
            answer = await self._store(document, held)
            if not isinstance(answer, ErrorResponse):
                return Put(outcome=outcome)
            if answer.status in _PERMANENT_STATUSES:
                return Put(outcome=Outcome.REFUSED, reason=_rejection_reason(answer, document))
            # Another writer was faster, or an earlier attempt whose reply was lost: the stamp shows which.
            await self._clock.sleep(backoff_pause(attempt, _FIRST_PAUSE_S, _LONGEST_PAUSE_S))
            held = await self._held(record)
        raise unreachable_error(f"other writers changed {record.key!r} {_ATTEMPTS} times in between")

    async def _store(self, document: Document, held: list[Document]) -> Document | ErrorResponse:
        """Replace the document in the same place; one in another place is deleted after the write."""
        place = self._shape.place(document)
        there = next((one for one in held if self._shape.place(one) == place), None)
        if there is None:
            answer = await self._account.create(document)
        else:
            answer = await self._account.replace(document, there["_etag"])
        if not isinstance(answer, ErrorResponse):
            for stray in (one for one in held if one is not there):
                await self._account.remove(self._shape.place(stray), stray["_etag"])
        return answer

    async def _held(self, record: DurableRecord) -> list[Document]:
        return await self._shape.held(self._account, record.key, record.element)

    # -- reading ----------------------------------------------------------------------------------

    async def get(self, key: str, element: str) -> DurableRecord | None:
        """Return one document, tombstones and expired ones included."""
        held = await self._shape.held(self._account, key, element)
        return self._shape.record(held[0]) if held else None

    async def records(self, key: str) -> list[DurableRecord]:
        """Return all documents of a key, the head first, then by element."""
        pages = self._pages(lambda after: record_container.query_key(key, after, at=self._shape.columns))
        return [record async for page in pages for record in page]

    async def query(
        self, namespace: str, of_type: str, *, where: Mapping[str, Scalar], limit: int
    ) -> list[DurableRecord]:
        """Return documents of one type that are not deleted, newest stamp first."""
        query = record_container.query_type(namespace, of_type, where=where, limit=limit, at=self._shape.columns)
        return [self._shape.record(document) for document in await self._account.all(query)]

    def iterate(
        self, namespace: str, *, changed_after: int, heads_only: bool, after: record_container.DocumentCursor | None
    ) -> AsyncGenerator[list[DurableRecord], None]:
        """Return pages of the documents of a namespace, by key and element."""

        def build(position: record_container.DocumentCursor | None) -> record_container.CosmosQuery:
            return record_container.query_namespace(
                namespace, position, changed_after=changed_after, heads_only=heads_only, at=self._shape.columns
            )

        return self._pages(build, after)

    async def _pages(
        self,
        build: Callable[[record_container.DocumentCursor | None], record_container.CosmosQuery],
        after: record_container.DocumentCursor | None = None,
    ) -> AsyncGenerator[list[DurableRecord], None]:
        last: DurableRecord | None = None
        async with aclosing(self._account.pages(build, after)) as pages:
            async for page in pages:
                records = list(map(self._shape.record, page))
                found = _newest_of_each(records if last is None else [last, *records])
                last = found.pop()
                if found:
                    yield found
        if last is not None:
            yield [last]

    async def highest(self, namespace: str) -> int:
        """Return the highest stamp of a namespace, 0 when it has none: one query that reads one document."""
        return next(
            iter(await self._account.all(record_container.query_highest_stamp(namespace, at=self._shape.columns))), 0
        )

    async def namespaces(self) -> list[str]:
        """Return the namespaces that have documents, sorted: one query each, over all partitions."""
        found: list[str] = []
        latest = ""
        while names := await self._account.all(record_container.query_next_namespace(latest, at=self._shape.columns)):
            latest = names[0]
            found.append(latest)
        return found

    # -- maintenance -------------------------------------------------------------------------------------

    async def purge(self, namespace: str, *, now_ms: int, tombstones_before: int) -> int:
        """Delete documents that no reader can see any more. Reads the whole namespace, without bodies.

        A head is deleted before its elements; if it has changed by then, they stay.
        """
        sieve = PurgeFilter(now_ms=now_ms, tombstones_before=tombstones_before)
        removed = 0
        shape = self._shape
        pages = self._account.pages(
            lambda after: record_container.query_namespace(namespace, after, columns=shape.row, at=shape.columns)
        )
        async with aclosing(pages):
            async for page in pages:
                removed += await self._purge(map(self._row, page), sieve)
        return removed

    async def _purge(self, rows: Iterable[PurgeRow], sieve: PurgeFilter) -> int:
        dead = [row for row in map(sieve.dead, rows) if row]
        heads = [row for row in dead if not row.element]
        gone = await self._each(heads, self._remove)
        kept = {head.key for head, is_gone in zip(heads, gone, strict=True) if not is_gone}
        sieve.keep(kept)
        elements = [row for row in dead if row.element and row.key not in kept]
        return sum(gone) + sum(await self._each(elements, self._remove))

    async def _remove(self, row: PurgeRow) -> bool:
        return await self._account.remove(row.place, row.etag) is None

    def _row(self, document: Document) -> PurgeRow:
        columns = {name: document[name] for name in PurgeRow._fields if name in document}
        return PurgeRow(**columns, etag=document["_etag"], place=self._shape.place(document))

    # -- tools ------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return int(self._clock.now().timestamp() * 1000)

    async def _each(self, items: Iterable[_T], do: Callable[[_T], Awaitable[_R]]) -> list[_R]:
        """Call a function for each item, some concurrently; the first error ends the others."""

        async def one(item: _T) -> _R:
            async with self._slots:
                return await do(item)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(item)) for item in items]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [task.result() for task in tasks]


def _newest_of_each(records: Iterable[DurableRecord]) -> list[DurableRecord]:
    """Return the newest document of each place; after an interrupted change there may be several."""
    found: list[DurableRecord] = []
    for record in records:
        is_same = bool(found) and (found[-1].key, found[-1].element) == (record.key, record.element)
        if not is_same:
            found.append(record)
        elif record.stamp > found[-1].stamp:
            found[-1] = record
    return found


def _rejection_reason(refusal: ErrorResponse, document: Document) -> str:
    what = f"a document of {len(orjson.dumps(document)):,} bytes"
    if refusal.status == 413:
        return f"Cosmos DB accepts documents of up to 2 MB, this is {what}; keep large values as blobs"
    return f"Cosmos DB rejects {what}: {shorten_message(refusal.message)}"
