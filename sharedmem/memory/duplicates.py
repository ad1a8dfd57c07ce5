"""Merge duplicates among the stored memories, which were added without deduplication, or under another threshold.

Each memory is compared with those near to it, by the rules of an addition (see `dedup`); of two duplicates the newer
is merged into the older in one step: the older gets a version with both, the newer is deleted. A pass that ends early
leaves nothing half done, and repeating it continues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

import orjson

from sharedmem.errors import AccessDeniedError, InvalidError, SharedMemoryError
from sharedmem.memory.access import MEMORY, MemoryAccess
from sharedmem.memory.dedup import HIGHEST_NEAR_SIMILARITY, NearMemoryFinder, is_comparable, merge_items
from sharedmem.memory.reader import SUMMARY, MemoryReader
from sharedmem.memory.repository import MOST_AT_ONCE, StoredMemory
from sharedmem.memory.serialization import encode_change
from sharedmem.memory.validation import LONGEST_TEXT_BYTES, NewMemory, check_item, duplicate_filter
from sharedmem.memory.writer import MOST_TRIES, MemoryRewriter
from sharedmem.models import DuplicateMemory, DuplicateReport, MemoryFilter, MemoryItem
from sharedmem.redis.scripts.knowledge import MemoryWrite
from sharedmem.redis.vectors import from_half
from sharedmem.text.contradictions import find_contradiction

DuplicateProgress = Callable[[int, int], None]
"""Called with (memories compared, duplicates found)."""
_MOST_LISTED = 1000
_EXACT_SIMILARITY = 1.0
_LOWEST_SIMILARITY = 0.7


class _Candidate(NamedTuple):
    """A duplicate of a memory."""

    held: StoredMemory
    similarity: float


class DuplicateMerger:
    """Finds and merges duplicates among the memories of one scope.

    Args:
        access: rights and scope of the caller.
        reader: reads memories of this scope.
        rewriter: writes whole memories.
    """

    def __init__(self, access: MemoryAccess, reader: MemoryReader, rewriter: MemoryRewriter) -> None:
        self._access = access
        self._reader = reader
        self._rewriter = rewriter

    async def merge(
        self,
        filters: MemoryFilter,
        *,
        similarity: float | None,
        dry_run: bool,
        on_progress: DuplicateProgress | None,
    ) -> DuplicateReport:
        """Merge duplicates, or only report them; see `Memories.merge_duplicates`."""
        threshold = (
            self._access.context.dedup_similarity(self._access.namespace)
            if similarity is None
            else _check_similarity(similarity)
        )
        finder = NearMemoryFinder(self._access.context, self._access.namespace, threshold)
        run = _DuplicateRun(self._access, self._rewriter, finder, filters, dry_run=dry_run)
        newest = await self._access.retry_after_restore(self._newest_version)
        async for page in self._reader.logged(after=0):
            ids = [one.id for one in page if one.version <= newest]
            for first in range(0, len(ids), MOST_AT_ONCE):
                await run.compare(ids[first : first + MOST_AT_ONCE])
                if on_progress is not None:
                    on_progress(run.compared, run.duplicates)
            # What this pass has changed comes after all that it began with.
            if page[-1].version >= newest:
                break
        return run.report()

    async def _newest_version(self) -> int:
        log = self._access.context.keyspace.record_log(MEMORY, self._access.namespace)
        newest = await self._reader.sorted_set("ZRANGE", log, 0, 0, "REV", "WITHSCORES")
        return int(newest[1]) if newest else 0


class _DuplicateRun:
    """One pass over the memories.

    Args:
        access: rights and scope of the caller.
        rewriter: writes whole memories.
        finder: finds near memories, from the threshold of this pass on.
        filters: conditions for both memories of a pair.
        dry_run: whether to change nothing.
    """

    def __init__(
        self,
        access: MemoryAccess,
        rewriter: MemoryRewriter,
        finder: NearMemoryFinder,
        filters: MemoryFilter,
        *,
        dry_run: bool,
    ) -> None:
        self._access = access
        self._rewriter = rewriter
        self._repository = rewriter.repository
        self._finder = finder
        self._filters = filters
        self._dry_run = dry_run
        # The memory with each digest that was seen first: without a vector only the same text is a duplicate.
        self._by_digest: dict[str, str] = {}
        self._listed: list[DuplicateMemory] = []
        self._kept_apart: set[frozenset[str]] = set()
        self.compared = 0
        self.duplicates = 0

    def report(self) -> DuplicateReport:
        """Return what was found and done so far."""
        return DuplicateReport(
            compared=self.compared,
            found=self.duplicates,
            merged=0 if self._dry_run else self.duplicates,
            kept_apart=len(self._kept_apart),
            duplicates=tuple(self._listed),
        )

    async def compare(self, ids: Sequence[str]) -> None:
        """Compare some memories with all others, and merge their duplicates."""
        held = {id_: one for id_, one in (await self._repository.held(ids)).items() if self._takes_part(one.item)}
        candidates = await self._candidates(held)
        self.compared += len(held)
        others = {id_ for near in candidates.values() for id_ in near} - held.keys()
        held |= await self._repository.held(others)
        for id_, near in candidates.items():
            await self._settle(id_, near, held)

    async def _candidates(self, held: dict[str, StoredMemory]) -> dict[str, dict[str, float]]:
        """Return the ids of possible duplicates of each memory, with their similarities."""
        found: dict[str, dict[str, float]] = {id_: {} for id_ in held}
        with_vector = [id_ for id_, one in held.items() if one.vector is not None]
        if with_vector:
            near = await self._finder.of([self._draft(held[id_]) for id_ in with_vector])
            for id_, similarities in zip(with_vector, near.found, strict=True):
                found[id_] |= {other: min(s, HIGHEST_NEAR_SIMILARITY) for other, s in similarities.items()}
        for id_, one in held.items():
            twin = self._by_digest.setdefault(one.digest, id_)
            found[id_][twin] = _EXACT_SIMILARITY
            found[id_].pop(id_, None)
        return {id_: near for id_, near in found.items() if near}

    async def _settle(self, id_: str, near: dict[str, float], held: dict[str, StoredMemory]) -> None:
        """Merge one memory with its duplicates, until none is left or it is merged itself."""
        for _ in range(MOST_TRIES):
            best = self._best(held[id_], near, held) if id_ in held else None
            if best is None:
                return
            kept, gone = sorted((held[id_], best.held), key=_age)
            if self._dry_run:
                # Each pair is found from both sides; a memory is reported where it would be merged.
                if gone is held[id_]:
                    self._note(kept.item, gone.item, best.similarity)
                    return
                del near[gone.item.id]
                continue
            if await self._merge(kept, gone, best.similarity):
                self._note(kept.item, gone.item, best.similarity)
            # Others may have changed them meanwhile; without that, too, the merged one has a new version.
            both = [kept.item.id, gone.item.id]
            for each in both:
                held.pop(each, None)
            held |= await self._repository.held(both)

    def _best(self, own: StoredMemory, near: dict[str, float], held: dict[str, StoredMemory]) -> _Candidate | None:
        """Return the nearest duplicate among the candidates, the oldest of equally near ones."""
        pairs = ((held[id_], similarity) for id_, similarity in near.items() if id_ in held)
        found = [
            _Candidate(other, _EXACT_SIMILARITY if own.item.memory == other.item.memory else similarity)
            for other, similarity in pairs
            if self._is_duplicate(own, other)
        ]
        return min(found, key=lambda one: (-one.similarity, *_age(one.held)), default=None)

    def _is_duplicate(self, own: StoredMemory, other: StoredMemory) -> bool:
        if not self._takes_part(other.item) or not is_comparable(self._draft(own), other.item):
            return False
        if find_contradiction(own.item.memory, other.item.memory) is not None or not _fits(own.item, other.item):
            self._kept_apart.add(frozenset((own.item.id, other.item.id)))
            return False
        return True

    def _takes_part(self, item: MemoryItem) -> bool:
        """Return whether a memory is compared: a turn of a conversation, or a summary of one, is never a duplicate."""
        if item.messages or item.category == SUMMARY or not self._access.covers(item, self._filters):
            return False
        try:
            self._access.check_author(item)
        except AccessDeniedError:
            return False
        return True

    def _draft(self, held: StoredMemory) -> NewMemory:
        return NewMemory(
            item=held.item,
            digest=held.digest,
            alike=duplicate_filter(held.item, self._access.within),
            vector=None if held.vector is None else from_half(held.vector),
            is_exact=False,
            dedup=True,
        )

    async def _merge(self, kept: StoredMemory, gone: StoredMemory, similarity: float) -> bool:
        """Merge one memory into another; return False if either has changed meanwhile. One round trip."""
        actor = self._access.actor.decode()
        item = merge_items(kept.item, gone.item, self._access.context.clock.now())
        change = encode_change("merged", actor, similarity=similarity, merged=orjson.loads(gone.body))
        merged = self._repository.write_of(
            "merged",
            item,
            change,
            kept.digest,
            kept.vector,
            before=kept,
            over="*",
            waits=kept.vector is None and self._access.context.embedder is not None,
            turn=kept.item.turn_index or 0,
        )
        deleted = MemoryWrite.deletion(
            gone.item.id,
            gone.item.version,
            encode_change("deleted", actor, merged_into=kept.item.id),
            gone.item.thread_id,
            gone.item.author or "",
        )
        return await self._rewriter.write([merged, deleted], item) is not None

    def _note(self, kept: MemoryItem, gone: MemoryItem, similarity: float) -> None:
        self.duplicates += 1
        if len(self._listed) < _MOST_LISTED:
            self._listed.append(
                DuplicateMemory(
                    id=gone.id,
                    memory=gone.memory,
                    into=kept.id,
                    into_memory=kept.memory,
                    similarity=round(similarity, 6),
                )
            )


def _age(held: StoredMemory) -> tuple[datetime, str]:
    return _created(held.item), held.item.id


def _created(item: MemoryItem) -> datetime:
    assert item.created_at is not None  # every stored memory has it
    return item.created_at


def _fits(one: MemoryItem, other: MemoryItem) -> bool:
    """Return whether the merged memory can hold all of both."""
    texts: Iterable[str] = (one.content, other.memory, other.content, one.memory)
    if sum(len(text.encode()) for text in texts) > LONGEST_TEXT_BYTES:
        return False
    try:
        check_item(merge_items(one, other, _created(one)))
    except SharedMemoryError:
        return False
    return True


def _check_similarity(similarity: object) -> float:
    if isinstance(similarity, bool) or not isinstance(similarity, int | float):
        raise InvalidError("similarity", similarity, "give a cosine similarity, such as 0.95")
    if not _LOWEST_SIMILARITY <= similarity <= 1:
        advice = (
            f"give a cosine similarity from {_LOWEST_SIMILARITY:g}, below which texts hardly ever mean the same, to 1"
        )
        raise InvalidError("similarity", similarity, advice)
    return float(similarity)
