"""Group commit with deduplication: memories added during one batch form the next batch (ADR 22).

A batch reads the memories near to its own, decides what is a duplicate, and writes only if nothing has changed since
that read; otherwise it reads the changes and tries again. Ids are fixed before the first try, so a retry finds what it
wrote.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

import numpy as np
import orjson

from sharedmem.errors import InvalidError, UnavailableError, UsageError, VersionConflictError
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.memory.access import MEMORY, MemoryAccess
from sharedmem.memory.dedup import HIGHEST_NEAR_SIMILARITY, NearMemoryFinder, is_comparable, merge_items
from sharedmem.memory.embedding_queue import EmbeddingQueue
from sharedmem.memory.enrichment import ImportanceScorer, write_summary
from sharedmem.memory.repository import (
    MOST_AT_ONCE,
    MemoryRepository,
    MemoryWriteConflict,
    MemoryWriteResult,
    MemoryWriteStatus,
    StoredMemory,
)
from sharedmem.memory.serialization import encode_body, encode_change
from sharedmem.memory.validation import MemoryScope, NewMemory, check_summarize, prepare_memory, with_measured
from sharedmem.models import AddResult, MemoryItem
from sharedmem.redis.scripts.knowledge import MemoryWrite
from sharedmem.redis.vectors import Vector, from_half, products, to_half
from sharedmem.runtime import elapsed_ms, get_logger, log_event, metric_key
from sharedmem.runtime.concurrency import BackgroundTask
from sharedmem.text.contradictions import find_contradiction

_MOST_ROUNDS = 200
_logger = get_logger("memory")
_EXACT_SIMILARITY = 1.0
_LOGGED = {False: "memory added", True: "memory merged"}
_ADDED, _MERGED = (metric_key("memory_additions", outcome=outcome) for outcome in ("added", "merged"))


@dataclass(slots=True, eq=False)
class PendingMemory:
    """A draft that is being added."""

    draft: NewMemory
    place: int
    """Position in its batch."""
    near: dict[str, float] = field(default_factory=dict)
    """Possible duplicates: similarity by id."""
    over: str = ""
    """Id under which its digest is registered although that memory is no duplicate any more."""
    twins: list[PendingMemory] = field(default_factory=list)
    """Drafts of the same batch with the same digest."""
    into: StoredMemory | None = None
    """The memory that it is merged into, in this round."""
    guard: str | None = None
    """The guard that kept it apart from a near memory."""
    addition: MemoryWrite | None = None
    """Its write as a new memory without twins, once that is made."""

    @property
    def deduplicates_by_meaning(self) -> bool:
        """Whether near memories are duplicates too."""
        draft = self.draft
        return draft.dedup and not draft.is_exact and draft.vector is not None

    @property
    def vector(self) -> Vector:
        """The draft's vector; only for drafts that are deduplicated by meaning."""
        assert self.draft.vector is not None
        return self.draft.vector

    def duplicates(self, other: MemoryItem) -> bool:
        """Return whether a memory that is near in meaning counts as a duplicate; set `guard` if one forbids that."""
        if other.messages or not is_comparable(self.draft, other):
            return False
        guard = find_contradiction(self.draft.item.memory, other.memory)
        self.guard = guard or self.guard
        return guard is None

    def may_repeat(self, known: MemoryItem) -> bool:
        """Return whether a near memory may count as a duplicate, so that it must be read."""
        return known.hash == self.draft.item.hash or self.duplicates(known)

    def candidates(self) -> Iterable[str]:
        """Return the ids to compare it with; if the caller gave an id, a memory of that id may exist already."""
        return (self.draft.item.id, *self.near) if self.draft.is_named else self.near

    def whole(self, now: datetime) -> MemoryItem:
        """Return its item with its twins merged into it."""
        item = self.draft.item
        for twin in self.twins:
            item = merge_items(item, twin.draft.item, now)
        return item


class DedupBatch:
    """Writes the drafts of one actor.

    Args:
        repository: the repository of their namespace.
        neighbours: finds near memories in that namespace.
        drafts: at most as many as one script may write.
    """

    def __init__(self, repository: MemoryRepository, neighbours: NearMemoryFinder, drafts: Sequence[NewMemory]) -> None:
        self._repository = repository
        self._neighbours = neighbours
        self._context = repository.context
        self._actor = drafts[0].actor
        self._added_change = encode_change("added", self._actor.decode())
        self._threshold = neighbours.threshold
        self._cases = [PendingMemory(draft, place) for place, draft in enumerate(drafts)]
        self._results: list[AddResult | Exception | None] = [None] * len(drafts)
        self._seen: int | None = None
        self._near_places: dict[int, dict[int, float]] | None = None
        self.waiting = 0
        """Memories of the namespace that wait for their embedding."""

    @property
    def results(self) -> list[AddResult | Exception]:
        """The result or error of each draft."""
        return [result if result is not None else _too_many_conflicts() for result in self._results]

    def report(self, began: float) -> None:
        """Count the batch, what became of its drafts, and the near memories that a guard kept apart; log what was done.

        Args:
            began: when the batch began, by `time.perf_counter`.
        """
        counters = self._context.counters
        done = [result for result in self._results if isinstance(result, AddResult)]
        merged = sum(result.merged for result in done)
        counters.observe_batch("memory.add", len(self._cases), ((_ADDED, len(done) - merged), (_MERGED, merged)))
        for case in self._cases:
            result = self._results[case.place]
            if case.guard is not None and isinstance(result, AddResult) and not result.merged:
                counters.increment("memory_guarded", guard=case.guard)
        if done and _logger.isEnabledFor(logging.INFO):
            namespace, ended = self._repository.namespace, time.perf_counter()
            if len(self._cases) == 1:
                (result,), item = done, self._cases[0].draft.item
                of_item = item.thread_id, item.memory_type, len(item.memory)
                fields = partial(_one_logged, namespace, result.id, of_item, result.similarity, began, ended)
                log_event(_logger, _LOGGED[result.merged], fields)
            else:
                log_event(_logger, "memories added", partial(_batch_logged, namespace, done, began, ended))

    def fail(self, error: Exception) -> None:
        """Set an error for each draft that has no result yet."""
        self._results = [error if result is None else result for result in self._results]

    def prepare(self) -> None:
        """Make the writes of all drafts as new memories, and compare the drafts with each other.

        A batch that waits for the one before does this while the server works on that one.
        """
        for case in self._cases:
            self._addition(case)
        self._between()

    async def settle(self) -> None:
        """Write all drafts.

        Raises:
            SharedMemoryError: the server cannot be reached; `results` contain what was written until then.
        """
        cases = _merge_exact_duplicates(self._cases)
        await self._look_around(cases)
        for _ in range(_MOST_ROUNDS):
            if not cases:
                return
            cases = await self._round(cases)

    async def _look_around(self, cases: Sequence[PendingMemory]) -> None:
        """Find the near memories; after this only later changes can add nearer ones."""
        looking = [case for case in cases if case.deduplicates_by_meaning]
        if not looking:
            return
        near = await self._neighbours.of([case.draft for case in looking])
        for case, found in zip(looking, near.found, strict=True):
            case.near |= {
                id_: min(similarity, HIGHEST_NEAR_SIMILARITY)
                for id_, similarity in found.items()
                if (known := near.items.get(id_)) is None or case.may_repeat(known)
            }
        self._seen = near.version

    async def _round(self, cases: list[PendingMemory]) -> list[PendingMemory]:
        """Write what can be written now; return the remaining drafts."""
        held = await self._repository.held(id_ for case in cases for id_ in case.candidates())
        now = self._context.clock.now()
        ready, later = self._split_by_readiness(cases, held)
        depends = any(case.deduplicates_by_meaning and case.into is None for case in ready)
        writes = [self._write_of(case, now) for case in ready]
        outcome = await self._repository.write(self._actor, writes, seen=self._seen if depends else None)
        if isinstance(outcome, MemoryWriteConflict):
            await self._catch_up(outcome, cases)
            return cases
        self.waiting = outcome.waiting
        written = [int(verdict.rest[0]) for verdict in outcome.verdicts if verdict.word == "ok"]
        if depends and written:
            self._note_seen_version(max(written), ready, outcome, now)
        verdicts = zip(ready, outcome.verdicts, strict=True)
        left = [case for case, verdict in verdicts if not self._is_settled(case, verdict)]
        return sorted([*left, *later], key=lambda case: case.place)

    def _note_seen_version(
        self, version: int, ready: Sequence[PendingMemory], outcome: MemoryWriteResult, now: datetime
    ) -> None:
        """Record that no other writer has changed anything up to that version."""
        assert self._seen is not None
        verdicts = zip(ready, outcome.verdicts, strict=True)
        written = [case for case, verdict in verdicts if verdict.word == "ok"]
        fresh = [
            (case.whole(now), case.vector) for case in written if case.into is None and case.draft.vector is not None
        ]
        merged = [case.into.item.id for case in written if case.into is not None]
        self._neighbours.learn(self._seen, version, fresh, merged=merged)
        self._seen = version

    def _split_by_readiness(
        self, cases: Sequence[PendingMemory], held: dict[str, StoredMemory]
    ) -> tuple[list[PendingMemory], list[PendingMemory]]:
        """Return (drafts that can be written now, with their merge targets; drafts that wait for one of these)."""
        ready: list[PendingMemory] = []
        later: list[PendingMemory] = []
        taken: set[str] = set()
        for case in cases:
            case.into = self._find_duplicate(case, held)
            target = case.into.item.id if case.into else case.draft.item.id
            if target in taken or (case.into is None and self._matches_new_memory(case, ready)):
                later.append(case)
            else:
                ready.append(case)
                taken.add(target)
        return ready, later

    def _find_duplicate(self, case: PendingMemory, held: dict[str, StoredMemory]) -> StoredMemory | None:
        """Return the memory that it duplicates, if any; a memory with the draft's own id is found by the script."""
        if case.draft.item.id in held:
            return None
        for id_, similarity in sorted(case.near.items(), key=lambda pair: (-pair[1], pair[0])):
            found = held.get(id_)
            if found is not None and _is_stored_duplicate(case, found):
                return found
            del case.near[id_]
            if similarity == _EXACT_SIMILARITY:
                # The memory registered for the digest was deleted, or has another text by now.
                case.over = id_
        return None

    def _matches_new_memory(self, case: PendingMemory, ready: Sequence[PendingMemory]) -> bool:
        """Return whether it duplicates a new memory of this round; it waits until that one is written."""
        if not case.deduplicates_by_meaning:
            return False
        near = self._between().get(case.place, {})
        for other in ready:
            similarity = near.get(other.place)
            if similarity is not None and other.into is None and case.duplicates(other.draft.item):
                case.near[other.draft.item.id] = min(similarity, HIGHEST_NEAR_SIMILARITY)
                return True
        return False

    def _between(self) -> dict[int, dict[int, float]]:
        """Return which drafts of the batch are near to each other, by position, and how near."""
        if self._near_places is None:
            self._near_places = _similarities_in_batch(self._cases, self._threshold)
        return self._near_places

    async def _catch_up(self, behind: MemoryWriteConflict, cases: Sequence[PendingMemory]) -> None:
        """Read what others have changed meanwhile, and only that."""
        if not behind.version:
            self._neighbours.forget()
            await self._look_around(cases)
            return
        held = (await self._repository.held(behind.ids)).values()
        changed = [(one.item, from_half(one.vector)) for one in held if one.vector is not None]
        assert self._seen is not None
        self._neighbours.learn(self._seen, behind.version, changed)
        self._seen = behind.version
        if not changed:
            return
        matrix = np.stack([vector for _, vector in changed])
        for case in cases:
            if case.deduplicates_by_meaning:
                near = np.vecdot(matrix, case.vector).tolist()
                pairs = zip(changed, near, strict=True)
                case.near |= {
                    item.id: min(s, HIGHEST_NEAR_SIMILARITY) for (item, _), s in pairs if s >= self._threshold
                }

    def _addition(self, case: PendingMemory) -> MemoryWrite:
        """Return the write of a draft as a new memory."""
        if case.addition is None:
            case.addition = self._write_of_new(case.draft, case.draft.item)
        return case.addition._replace(over=case.over) if case.draft.dedup else case.addition

    def _write_of_new(self, draft: NewMemory, item: MemoryItem) -> MemoryWrite:
        return self._repository.write_of(
            "added",
            with_measured(item, draft.measured),
            self._added_change,
            draft.digest,
            None if draft.vector is None else to_half(draft.vector),
            over="*",
            waits=draft.waits,
            turn="" if item.turn_index is None else item.turn_index,
        )

    def _write_of(self, case: PendingMemory, now: datetime) -> MemoryWrite:
        if case.into is None and not case.twins:
            return self._addition(case)
        item = case.whole(now)
        if case.into is None:
            return self._write_of_new(case.draft, item)._replace(over=case.over)
        old = case.into
        similarity = self._similarity(case)
        merged_change = encode_change(
            "merged", self._actor.decode(), similarity=similarity, merged=orjson.loads(encode_body(item))
        )
        return self._repository.write_of(
            "merged",
            merge_items(old.item, item, now),
            merged_change,
            old.digest,
            old.vector,
            before=old,
            waits=old.vector is None and self._context.embedder is not None,
            turn=old.item.turn_index or 0,
        )

    def _similarity(self, case: PendingMemory) -> float:
        if case.into is None or case.into.digest == case.draft.digest:
            return _EXACT_SIMILARITY
        return round(case.near[case.into.item.id], 6)

    def _is_settled(self, case: PendingMemory, verdict: MemoryWriteStatus) -> bool:
        """Return whether this status completes a draft."""
        word, rest = verdict
        id_ = case.draft.item.id
        if word == "stale":
            return False
        if word == "dup":
            case.near[rest[0]] = _EXACT_SIMILARITY
            return False
        if word == "here" and rest[2] != case.draft.digest:
            key = f"{self._repository.namespace}:${MEMORY}:{id_}"
            self._note(case, VersionConflictError(key, 0, int(rest[0])))
            return True
        version = int(rest[0])
        if case.into is None:
            case.draft.turn = int(rest[1])
            self._note(case, AddResult(id=id_, version=version, embedded=not case.draft.waits))
        else:
            embedded = case.into.vector is not None or self._context.embedder is None
            similarity = self._similarity(case)
            result = AddResult(
                id=case.into.item.id, merged=True, similarity=similarity, version=version, embedded=embedded
            )
            self._note(case, result)
        return True

    def _note(self, case: PendingMemory, result: AddResult | Exception) -> None:
        self._results[case.place] = result
        if not case.twins:
            return
        twin = result
        if isinstance(result, AddResult):
            twin = result.model_copy(update={"merged": True, "similarity": result.similarity or _EXACT_SIMILARITY})
        for one in case.twins:
            self._results[one.place] = twin


def _merge_exact_duplicates(cases: Sequence[PendingMemory]) -> list[PendingMemory]:
    """Return the cases with distinct digests; a repeated one becomes a twin of the first."""
    first: dict[str, PendingMemory] = {}
    found: list[PendingMemory] = []
    for case in cases:
        digest = case.draft.digest
        if case.draft.dedup and digest in first:
            first[digest].twins.append(case)
            continue
        found.append(case)
        if case.draft.dedup:
            first[digest] = case
    return found


def _similarities_in_batch(cases: Sequence[PendingMemory], threshold: float) -> dict[int, dict[int, float]]:
    looking = [case for case in cases if case.deduplicates_by_meaning]
    if len(looking) < 2:
        return {}
    matrix = np.stack([case.vector for case in looking])
    found: dict[int, dict[int, float]] = {}
    similarities = products(matrix, matrix)
    for row, column in np.argwhere(similarities >= threshold).tolist():
        if row != column:
            near = found.setdefault(looking[row].place, {})
            near[looking[column].place] = float(similarities[row, column])
    return found


def _is_stored_duplicate(case: PendingMemory, held: StoredMemory) -> bool:
    if held.digest == case.draft.digest and is_comparable(case.draft, held.item):
        return True
    return case.deduplicates_by_meaning and held.vector is not None and case.duplicates(held.item)


def _too_many_conflicts() -> UnavailableError:
    return UnavailableError("memory", "other writers keep changing the same memories; try again")


_PAGE = 512
_BATCH_BYTES = 48_000
_FIXED_BYTES = 400

WaitingMemory = tuple[NewMemory, "asyncio.Future[AddResult]"]


class GroupCommit:
    """Writes the additions to one namespace, batch by batch; all stores of a hub share it.

    Args:
        context: dependencies that the hub shares with its stores.
        namespace: the namespace of the memories.
    """

    def __init__(self, context: KnowledgeContext, namespace: str) -> None:
        self._context = context
        self.repository = MemoryRepository.of(context, namespace)
        self.neighbours = NearMemoryFinder(context, namespace, context.dedup_similarity(namespace))
        self.embeddings = EmbeddingQueue.of(context, namespace)
        self._namespace = namespace
        self._waiting: list[WaitingMemory] = []
        self._work: BackgroundTask | None = None
        self._written = asyncio.Event()
        """Set when the batch taken last is written."""
        self._written.set()

    @classmethod
    def of(cls, context: KnowledgeContext, namespace: str) -> GroupCommit:
        """Return the instance that all stores of a namespace share in this hub."""
        return context.shared(cls, namespace, lambda: cls(context, namespace))

    def put(self, drafts: Sequence[NewMemory]) -> list[asyncio.Future[AddResult]]:
        """Queue drafts to be written; return a future for each, in their order.

        A future returns the result of its draft, or raises what `Memories.add` raises.
        """
        loop = asyncio.get_running_loop()
        new: list[WaitingMemory] = [(draft, loop.create_future()) for draft in drafts]
        self._waiting += new
        if self._work is None or self._work.done:
            self._begin()
        return [future for _, future in new]

    def _begin(self) -> None:
        work = self._work = self._context.background.start(f"add memories of {self._namespace}", self._run())
        # The hub may close before the work begins, and another task may have started after this one ended.
        work.when_done(lambda: _fail_waiting(self._waiting) if work is self._work else None)

    async def _run(self) -> None:
        # A draft may arrive when both loops have ended and this task has not.
        while self._waiting:
            # While the server works on one batch, the next one is embedded.
            if len(self._waiting) > MOST_AT_ONCE:
                await asyncio.gather(self._serve(), self._serve())
            else:
                await self._serve()

    async def _serve(self) -> None:
        batch: list[WaitingMemory] = []
        try:
            while self._waiting:
                batch = self._take()
                before, self._written = self._written, asyncio.Event()
                await self._commit(batch, before=before, written=self._written)
        finally:
            # The hub closes: the waiting callers must get an error.
            _fail_waiting(batch)

    def _take(self) -> list[WaitingMemory]:
        """Return the next drafts of one actor, at most as many as one script may write."""
        actor, size = self._waiting[0][0].actor, 0
        taken: list[WaitingMemory] = []
        for one in self._waiting:
            size += self._size(one[0])
            if one[0].actor != actor or len(taken) == MOST_AT_ONCE or (taken and size > _BATCH_BYTES):
                break
            taken.append(one)
        del self._waiting[: len(taken)]
        return taken

    def _size(self, draft: NewMemory) -> int:
        """Return about its bytes on the way: text, words and full text, and its vector, which the tier gets as text."""
        item = draft.item
        texts = 3 * len(item.memory) + (0 if item.content is item.memory else 2 * len(item.content))
        numbers = 0 if draft.vector is None else len(draft.vector)
        return _FIXED_BYTES + texts + numbers * (5 if self._context.record_tier.is_durable else 2)

    async def _commit(self, batch: list[WaitingMemory], *, before: asyncio.Event, written: asyncio.Event) -> None:
        drafts = [draft for draft, _ in batch]
        futures = [future for _, future in batch]
        dedup_batch = DedupBatch(self.repository, self.neighbours, drafts)
        began = time.perf_counter()
        try:
            await self.embeddings.embed(drafts)
            if not before.is_set():
                dedup_batch.prepare()
            # The turns of a conversation stay in their order, and each batch must read what the one before wrote.
            await before.wait()
            await dedup_batch.settle()
        except Exception as error:  # noqa: BLE001  # a user's embedder may raise anything; it goes to the caller
            dedup_batch.fail(error)
        finally:
            written.set()
        for future, result in zip(futures, dedup_batch.results, strict=True):
            if future.done():
                continue
            if isinstance(result, AddResult):
                future.set_result(result)
            else:
                future.set_exception(result)
        dedup_batch.report(began)
        if dedup_batch.waiting:
            self.embeddings.wake()
        self._context.memories.count_writes(self._namespace, len(batch))


def _fail_waiting(batch: list[WaitingMemory]) -> None:
    for _, future in batch:
        if not future.done():
            future.set_exception(UsageError("memory", "the hub was closed before this memory was written"))
    batch.clear()


class MemoryAdder:
    """Adds memories in one scope, as one actor.

    Args:
        access: rights and scope of the caller.
        on_added: called with what was added; None: not called.
    """

    def __init__(self, access: MemoryAccess, on_added: Callable[[Sequence[NewMemory]], None] | None = None) -> None:
        self._access = access
        self._context = access.context
        self._on_added = on_added
        self._home = MemoryScope.of(access)
        self._commit = GroupCommit.of(access.context, access.namespace)
        self._scorer = ImportanceScorer.of(access.context, access.namespace)

    async def add(
        self,
        memory: object,
        fields: Mapping[str, Any],
        *,
        dedup: bool | None,
        dedup_keys: Sequence[str] = (),
        summarize: bool = False,
    ) -> AddResult:
        """Add one memory; see `Memories.add`."""
        draft = self._draft(memory, fields, self._context.clock.now(), dedup=dedup, dedup_keys=dedup_keys)
        if check_summarize(draft.item, summarize):
            await self._summarize([draft])
        if self._scorer is not None:
            await self._scorer.score([draft])
        (future,) = self._commit.put([draft])
        result = await future
        if self._on_added is not None:
            self._on_added([draft])
        return result

    async def add_many(
        self,
        items: Iterable[object],
        *,
        dedup: bool | None,
        dedup_keys: Sequence[str],
        on_progress: Callable[[int, int], None] | None,
        summarize: bool = False,
    ) -> list[AddResult]:
        """Add many memories; see `Memories.add_many`."""
        now = self._context.clock.now()
        drafts = [self._draft(item, {}, now, dedup=dedup, dedup_keys=dedup_keys) for item in _check_items(items)]
        asked = [draft for draft in drafts if check_summarize(draft.item, summarize)]
        results: list[AddResult] = []
        looking = sum(one.dedup and not one.is_exact for one in drafts)
        async with self._commit.neighbours.expecting(looking), aclosing(self._ready_pages(drafts, asked)) as pages:
            async for page in pages:
                results += await _gather_results(self._commit.put(page))
                if self._on_added is not None:
                    self._on_added(page)
                if on_progress is not None:
                    on_progress(len(results), len(drafts))
        return results

    async def _ready_pages(
        self, drafts: Sequence[NewMemory], asked: Sequence[NewMemory]
    ) -> AsyncGenerator[Sequence[NewMemory]]:
        """Yield the drafts, page by page, ready to be written; the caller writes one while the next is made ready."""
        made = asyncio.create_task(self._make_ready(drafts[:_PAGE], asked[:_PAGE]))
        try:
            for first in range(0, len(drafts), _PAGE):
                end = first + _PAGE
                await made
                made = asyncio.create_task(self._make_ready(drafts[end : end + _PAGE], asked[end : end + _PAGE]))
                yield drafts[first:end]
        finally:
            made.cancel()
            await asyncio.gather(made, return_exceptions=True)

    async def _make_ready(self, page: Sequence[NewMemory], asked: Sequence[NewMemory]) -> None:
        """Write the summaries of some drafts, and score and embed those of a page."""
        await self._summarize(asked)
        if self._scorer is not None and page:
            await self._scorer.score(page)
        await self._commit.embeddings.embed(page)

    async def _summarize(self, drafts: Sequence[NewMemory]) -> None:
        """Write the summaries of some drafts; the model decides how many requests run at a time."""
        model, clock = self._context.model, self._context.clock
        written = await asyncio.gather(*(write_summary(draft.item, model, clock) for draft in drafts))
        for draft, summary in zip(drafts, written, strict=True):
            draft.item = draft.item.model_copy(update={"summary": summary.text})
            if summary.metrics:
                draft.measure(summary.metrics)

    def _draft(
        self, given: object, fields: Mapping[str, Any], now: datetime, *, dedup: bool | None, dedup_keys: Sequence[str]
    ) -> NewMemory:
        settings = self._access.settings
        merges = settings.dedup_enabled if dedup is None else dedup
        draft = prepare_memory(given, fields, self._home, settings, now, dedup=merges, dedup_keys=dedup_keys)
        draft.actor = self._access.actor
        return draft


async def _gather_results(futures: Sequence[asyncio.Future[AddResult]]) -> list[AddResult]:
    """Return the results of all futures, once all are done.

    Raises:
        SharedMemoryError: the first failure.
    """
    results = await asyncio.gather(*futures, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if isinstance(result, AddResult)]


def _check_items(items: Iterable[object]) -> Iterable[object]:
    # A text would be read as its characters, a mapping as its keys, an item as its fields.
    if isinstance(items, str | bytes | Mapping | MemoryItem) or not isinstance(items, Iterable):
        raise InvalidError("items", items, "give a list of texts, items or mappings; pass a single one to add()")
    return items


def _one_logged(
    namespace: str,
    id_: str,
    of_item: tuple[str | None, str, int],
    similarity: float | None,
    began: float,
    ended: float,
) -> dict[str, object]:
    """Return the fields of a log line; it is called later, and must not keep the batch in memory until then."""
    thread_id, memory_type, characters = of_item
    return {
        "namespace": namespace,
        "memory_id": id_,
        "thread_id": thread_id,
        "memory_type": memory_type,
        "characters": characters,
        "similarity": similarity,
        "latency_ms": elapsed_ms(began, ended),
    }


def _batch_logged(namespace: str, done: Sequence[AddResult], began: float, ended: float) -> dict[str, object]:
    # One line for a batch: under load a line for each addition would slow them all.
    added = [result.id for result in done if not result.merged]
    merged = [result.id for result in done if result.merged]
    return {"namespace": namespace, "added": added, "merged": merged, "latency_ms": elapsed_ms(began, ended)}
