"""Deduplication: find near memories, decide whether two are duplicates, and merge them.

Two memories are duplicates if they are comparable (see `NewMemory.alike`) and either have the same text or are so near
in meaning that no guard finds a contradiction. A turn of a conversation is a duplicate only of itself.

A search costs the server more than a write. If few memories are added, each is searched for. If very many are added,
the vectors of the whole namespace are held in this process, grouped by user and category, and updated at each write.
"""

from __future__ import annotations

import asyncio
import re
import unicodedata
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import cache
from typing import NamedTuple

import numpy as np

from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.memory.access import MEMORY, matches_filter, to_index_filter
from sharedmem.memory.validation import LONGEST_TEXT_BYTES, NewMemory, more_important
from sharedmem.models import MemoryItem, MemoryType
from sharedmem.redis.vectors import Matrix, Vector, finite_half_or_none, from_half, main_directions, products
from sharedmem.search.protocol import IndexHit
from sharedmem.text.analysis import encode_tag, normalize_text

_WORD_OR_MARK = re.compile(r"[^\W_]+|[^\w\s]")


def is_comparable(draft: NewMemory, other: MemoryItem) -> bool:
    """Return whether two memories share category and user and match the draft's filter, whatever their texts."""
    return (
        draft.item.category == other.category
        and draft.item.user_id == other.user_id
        and matches_filter(draft.alike, other)
    )


def merge_items(old: MemoryItem, new: MemoryItem, now: datetime) -> MemoryItem:
    """Return the memory that results from merging another one with the same meaning into it.

    The old memory keeps its fact, place and embedding; new text of the other is appended to the full text.
    """
    memory_type = _longer_lived(old.memory_type, new.memory_type)
    return old.model_copy(
        update={
            "content": _merge_content(old, new),
            "summary": old.summary or new.summary,
            "metadata": {**old.metadata, **new.metadata},
            "metrics": {**old.metrics, **new.metrics},
            "tags": _union(old.tags, new.tags),
            "collections": _union(old.collections, new.collections),
            "related_memory_ids": _union(old.related_memory_ids, new.related_memory_ids),
            "importance": more_important(old.importance, new.importance),
            "memory_type": memory_type,
            "ttl": -1 if -1 in {old.ttl, new.ttl} else max(old.ttl or 1, new.ttl or 1),
            "occurrences": old.occurrences + new.occurrences,
            "updated_at": now,
        }
    )


def _merge_content(old: MemoryItem, new: MemoryItem) -> str:
    fact, present = normalize_text(old.memory), _words_of(f"{old.memory}\n{old.content}")
    texts = [text for text in dict.fromkeys((new.memory, new.content)) if normalize_text(text) != fact]
    fresh = [text for text in texts if _words_of(text) not in present]
    # The full text of the other memory may contain its fact too.
    if len(fresh) > 1 and fresh[0] in fresh[1]:
        del fresh[0]
    joined = "\n".join([old.content, *fresh])
    return joined if len(joined.encode()) <= LONGEST_TEXT_BYTES else old.content


def _words_of(text: str) -> str:
    """Return the words and symbols of a text, without case, blanks and punctuation; an emoji is a symbol."""
    lines = (
        " ".join(filter(_is_word_or_symbol, _WORD_OR_MARK.findall(normalize_text(line)))) for line in text.splitlines()
    )
    # Words at the end of one line and the start of the next are not a phrase.
    return f" {' / '.join(lines)} "


def _is_word_or_symbol(found: str) -> bool:
    return found[0].isalnum() or unicodedata.category(found[0]).startswith("S")


def _longer_lived(one: MemoryType, other: MemoryType) -> MemoryType:
    return one if one == other else "long-term"


def _union(one: Iterable[str], other: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*one, *other)))


HIGHEST_NEAR_SIMILARITY = 0.999999
"""The highest similarity for nearness in meaning: 1 is for equal texts only."""
_FEW, _MANY = 10, 50
"""The nearest memories that are considered: first few, and many where all of these are near."""
_ASKED_AT_ONCE = 16
"""Searches that the server makes in one command: it serves no other client meanwhile."""
_WORTHWHILE = 500
_LARGER = 16
"""If a namespace is more than so many times larger than the batch, fetching it takes longer than searching."""
_MOST_BYTES = 128 * 1024 * 1024
_PAGE = 500

DedupGroup = tuple[bytes, bytes]
"""User and category: memories of different ones are never duplicates."""
_GROUPED = frozenset({"user_id", "category"})


class NearMemories(NamedTuple):
    """The memories near to several drafts."""

    found: list[dict[str, float]]
    """For each draft, similarities by id; some of these memories may not be comparable with the draft."""
    version: int
    """The newest change that these results surely include."""
    items: Mapping[str, MemoryItem] = {}
    """Some of these memories as they are at that change, by id: they need not be read."""


class NearMemoryFinder:
    """Finds memories near to drafts in one namespace.

    Args:
        context: dependencies that the hub shares with its stores.
        namespace: the namespace to search.
        threshold: least cosine similarity.
    """

    def __init__(self, context: KnowledgeContext, namespace: str, threshold: float) -> None:
        self._context = context
        self._namespace = namespace
        self.threshold = threshold
        """The similarity from which a memory is near."""
        self._rows: _NamespaceVectors | None = None
        self._many = 0

    @asynccontextmanager
    async def expecting(self, count: int) -> AsyncIterator[None]:
        """Prepare for `count` additions in the block; fetch the vectors if that is faster than searching."""
        if count < _WORTHWHILE or not self._context.memories.family.dimension:
            yield
            return
        self._many += 1
        try:
            if self._rows is None:
                self._rows = await self._fetched(count)
            yield
        finally:
            self._many -= 1
            if not self._many:
                self._rows = None

    async def of(self, drafts: Sequence[NewMemory]) -> NearMemories:
        """Return possible duplicates of drafts with vectors. One round trip for every 16; none for very many drafts."""
        rows = self._rows
        if rows is not None:
            return NearMemories(rows.near(drafts, self.threshold), rows.version, rows.items)
        await self._context.memories.ensure(self._namespace)
        return await self._asked(drafts)

    def learn(
        self, seen: int, version: int, changed: Iterable[tuple[MemoryItem, Vector]], *, merged: Iterable[str] = ()
    ) -> None:
        """Apply all changes between two versions to the fetched vectors.

        Args:
            seen, version: the versions.
            changed: the memories as they are now, with their vectors.
            merged: ids of memories that have kept their vector and changed otherwise.
        """
        if self._rows is not None and self._rows.version == seen:
            self._rows.version = version
            for item, vector in changed:
                self._rows.put(item.id, _dedup_group(item), vector)
                self._rows.items[item.id] = item
            for id_ in merged:
                self._rows.items.pop(id_, None)

    def forget(self) -> None:
        """Drop the fetched vectors, since too much has changed; searches follow from here on."""
        self._rows = None

    async def _asked(self, drafts: Sequence[NewMemory]) -> NearMemories:
        index, namespace = self._context.memories, self._namespace
        vectors = [_vector_of(draft) for draft in drafts]
        parts = (vectors[at : at + _ASKED_AT_ONCE] for at in range(0, len(vectors), _ASKED_AT_ONCE))
        # Without a filter: searching everything takes the server less time than searching the memories of one user.
        asked = await asyncio.gather(*(index.nearest_each(namespace, part, k=_FEW) for part in parts))
        found = [near for part in asked for near in part]
        version = min(near.version for near in found)
        # If every hit is near, more near memories may follow, among them the duplicate.
        crowded = [at for at, near in enumerate(found) if len(near.vector) == _FEW and self._is_near(near.vector[-1])]
        again = await asyncio.gather(
            *(
                index.nearest(namespace, vectors[at], filters=to_index_filter(drafts[at].alike), k=_MANY)
                for at in crowded
            )
        )
        for at, near in zip(crowded, again, strict=True):
            found[at] = near
        return NearMemories(
            [{one.id: one.score for one in near.vector if self._is_near(one)} for near in found], version
        )

    def _is_near(self, candidate: IndexHit) -> bool:
        return candidate.score >= self.threshold

    async def _fetched(self, count: int) -> _NamespaceVectors | None:
        """Return the vectors of all memories, page by page; None if that takes too long or too much memory."""
        line, dimension = self._context.client, self._context.memories.family.dimension
        log = self._context.keyspace.record_log(MEMORY, self._namespace)
        size, newest = await line.read_many([("ZCARD", log), ("ZRANGE", log, 0, 0, "REV", "WITHSCORES")])
        assert isinstance(size, int)
        assert isinstance(newest, list)
        if size > _LARGER * count or (size + count) * (dimension + _DIRECTIONS + 1) * 4 > _MOST_BYTES:
            return None
        score = newest[1] if newest else b"0"
        assert isinstance(score, bytes)
        rows = _NamespaceVectors(dimension, int(score))
        after = b"0"
        while True:
            # A write reports changes that are newer than the version read here.
            span = (b"(" + after, rows.version, "WITHSCORES", "LIMIT", 0, _PAGE)
            page = await line.call("ZRANGEBYSCORE", log, *span)
            assert isinstance(page, list)
            if not page:
                return rows
            entries = [one for one in page if isinstance(one, bytes)]
            await self._fetch(rows, entries[::2])
            after = entries[-1]

    async def _fetch(self, rows: _NamespaceVectors, ids: Sequence[bytes]) -> None:
        home = self._context.keyspace.records(MEMORY, self._namespace).encode()
        looks = [("HMGET", home + id_, "vector", "user", "category") for id_ in ids]
        for id_, reply in zip(ids, await self._context.client.read_each(looks, aside=True), strict=True):
            vector, user, category = reply if isinstance(reply, list) else (None, None, None)
            half = finite_half_or_none(vector, self._context.memories.family.dimension)
            if half is not None:
                about = (user if isinstance(user, bytes) else b"", category if isinstance(category, bytes) else b"")
                rows.put(id_.decode(errors="replace"), about, from_half(half))


_FIRST_ROWS = 8
_DIRECTIONS = 63
"""Directions in which vectors are compared first: with the length of the rest an outline has 64 numbers."""
_SAMPLE = 512
"""Vectors from which the directions are found."""
_ROUNDING = 1e-3
"""Most by which rounding can make a product too small: the length of a short rest is the root of a difference."""


@cache
def _first_numbers(dimension: int) -> Matrix:
    """Return the directions before there are vectors to find some in; all groups share them."""
    return np.eye(min(_DIRECTIONS, dimension), dimension, dtype=np.float32)


class _GroupVectors:
    """The vectors of one user and category.

    Each has an outline: its numbers in the main directions of all vectors, and the length of the rest. The product of
    two outlines is at least the product of the vectors, by the inequality of Cauchy and Schwarz for the rest. So few
    vectors are compared in full.
    """

    def __init__(self, dimension: int) -> None:
        self.ids: list[str] = []
        self._vectors: Matrix = np.zeros((_FIRST_ROWS, dimension), dtype=np.float32)
        self._directions = _first_numbers(dimension)
        self._outlines: Matrix = np.zeros((_FIRST_ROWS, len(self._directions) + 1), dtype=np.float32)
        self._outlined = 0
        """How many vectors have their outline."""

    def add(self, id_: str, vector: Vector) -> None:
        place = len(self.ids)
        if place == len(self._vectors):
            self._grow()
        self._vectors[place] = vector
        self.ids.append(id_)

    def remove(self, place: int) -> None:
        """Make a vector match nothing any more."""
        self._vectors[place] = self._outlines[place] = 0

    def near(self, vectors: Matrix, threshold: float, *, most: int | None) -> Iterator[tuple[int, str, float]]:
        """Yield (row of the vector, id, similarity) for all that are near; a vector of zeros is near to none.

        Args:
            vectors: shape (n, dimension).
            threshold: least similarity.
            most: how many of the nearest each vector gets; None for all.
        """
        count, least = len(self.ids), threshold - _ROUNDING
        self._outlines[self._outlined : count] = self._outline(self._vectors[self._outlined : count])
        self._outlined = count
        may_be_near = (products(self._outlines[:count], self._outline(vectors)) >= least).any(axis=1)
        compared = np.flatnonzero(may_be_near)
        nearness = products(self._vectors[compared], vectors)
        if most is not None and len(compared) > most:
            further = np.argpartition(nearness, -most, axis=0)[:-most]
            nearness[further, np.arange(len(vectors))] = -np.inf
        places, rows = np.nonzero(nearness >= least)
        similarities = np.vecdot(vectors[rows], self._vectors[compared[places]])
        for at in np.flatnonzero(similarities >= threshold).tolist():
            yield int(rows[at]), self.ids[compared[places[at]]], float(similarities[at])

    def _grow(self) -> None:
        """Make room for as many again; find the main directions anew if there are enough vectors."""
        self._vectors = np.concatenate([self._vectors, np.zeros_like(self._vectors)])
        self._outlines = np.concatenate([self._outlines, np.zeros_like(self._outlines)])
        if len(self.ids) >= _SAMPLE:
            sample = self._vectors[: len(self.ids) : len(self.ids) // _SAMPLE]
            self._directions = main_directions(sample, len(self._directions))
            self._outlined = 0

    def _outline(self, vectors: Matrix) -> Matrix:
        along = products(vectors, self._directions)
        rest = np.vecdot(vectors, vectors) - np.vecdot(along, along)
        return np.column_stack([along, np.sqrt(np.maximum(rest, 0))])


class _NamespaceVectors:
    """The vectors of one namespace.

    Args:
        dimension: numbers in each vector.
        version: the newest change that the vectors include.
    """

    def __init__(self, dimension: int, version: int) -> None:
        self.version = version
        self.items: dict[str, MemoryItem] = {}
        """The memories that this process has written, by id."""
        self._dimension = dimension
        self._groups: dict[DedupGroup, _GroupVectors] = {}
        self._places: dict[str, tuple[_GroupVectors, int]] = {}

    def put(self, id_: str, about: DedupGroup, vector: Vector) -> None:
        if id_ in self._places:
            group, place = self._places[id_]
            group.remove(place)
        group = self._groups.get(about) or self._groups.setdefault(about, _GroupVectors(self._dimension))
        self._places[id_] = group, len(group.ids)
        group.add(id_, vector)

    def near(self, drafts: Sequence[NewMemory], threshold: float) -> list[dict[str, float]]:
        found: list[dict[str, float]] = [{} for _ in drafts]
        alike: dict[tuple[DedupGroup, int | None], list[int]] = {}
        for place, draft in enumerate(drafts):
            # Where only some of its group are comparable with a draft, the nearest need not be among them.
            most = _MANY if draft.alike.model_fields_set <= _GROUPED else None
            alike.setdefault((_dedup_group(draft.item), most), []).append(place)
        for (about, most), places in alike.items():
            group = self._groups.get(about)
            if group is not None:
                vectors = np.stack([_vector_of(drafts[place]) for place in places])
                for row, id_, similarity in group.near(vectors, threshold, most=most):
                    found[places[row]][id_] = similarity
        return found


def _dedup_group(item: MemoryItem) -> DedupGroup:
    return _encode_label(item.user_id), _encode_label(item.category)


def _encode_label(label: str | None) -> bytes:
    return encode_tag(label).encode() if label else b""


def _vector_of(draft: NewMemory) -> Vector:
    assert draft.vector is not None
    return draft.vector
