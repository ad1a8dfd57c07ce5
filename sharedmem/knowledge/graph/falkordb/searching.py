"""A search as parts of one query, and its hits from what comes back: pure.

The module ranks words by a TF-IDF of its own; the best of that are ranked again here by BM25, as every index does it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from sharedmem.errors import InvalidError
from sharedmem.knowledge.graph.falkordb import queries
from sharedmem.knowledge.graph.falkordb.rows import numbers_of, within
from sharedmem.knowledge.graph.falkordb.writing import any_of, words_of
from sharedmem.knowledge.graph.records import Candidate, Hits, Letter, Search
from sharedmem.knowledge.graph.times import LATEST, UNKNOWN_START
from sharedmem.search.bm25 import rarity, relevance

_POOL = 4
"""For each hit by words that is wanted, how many are ranked again."""


class Asked(NamedTuple):
    """A query that answers (search, part, letter, id, number, words)."""

    query: str
    parameters: dict[str, Any]


def asked_of(searches: Sequence[Search], dimension: int) -> Asked | None:
    """All searches as one query; None when nothing is looked for.

    Raises:
        InvalidError: a vector has another dimension.
    """
    legs: list[str] = []
    parameters: dict[str, Any] = {}
    for number, one in enumerate(searches):
        vector = _vector(one, dimension)
        is_narrowed = one.since is not None or one.until is not None
        has_session = one.session is not None
        for letter in dict.fromkeys(one.letters):
            if one.terms:
                legs.append(queries.text_leg(number, letter, is_narrowed=is_narrowed, has_session=has_session))
                legs += queries.rarity_legs(number, letter)
            if vector is not None:
                legs.append(queries.vector_leg(number, letter, is_narrowed=is_narrowed, has_session=has_session))
        parameters |= _parameters(number, one, vector)
    return Asked("UNION ALL".join(legs), parameters) if legs else None


def hits_of(searches: Sequence[Search], rows: Sequence[Sequence[Any]]) -> list[Hits]:
    """The hits of each search, from what its query has answered."""
    found = [_Found() for _ in searches]
    for number, part, letter, id_, score, words in rows:
        found[number].take(part, letter, id_, score, words)
    return [each.hits(one) for each, one in zip(found, searches, strict=True)]


class _Found:
    """What was found by one search."""

    def __init__(self) -> None:
        self._texts: list[tuple[Letter, str, Counter[str]]] = []
        self._vectors: list[Candidate] = []
        self._holders: Counter[str] = Counter()
        self._documents = 0

    def take(self, part: str, letter: Letter, id_: str, score: float, words: str) -> None:
        if part == "text":
            self._texts.append((letter, id_, Counter(words.split())))
        elif part == "vector":
            self._vectors.append(Candidate(id_, letter, score))
        elif part == "holders":
            self._holders[id_] += int(score)
        else:
            self._documents += int(score or 0)

    def hits(self, search: Search) -> Hits:
        texts = self._ranked(words_of(search.terms).split()) if self._texts else []
        return Hits(*(_best(found, search.candidates) for found in (texts, self._vectors)))

    def _ranked(self, words: Sequence[str]) -> list[Candidate]:
        lengths = np.array([counts.total() for _, _, counts in self._texts], dtype=np.float64)
        scores = np.zeros(len(self._texts))
        for word in words:
            frequencies = np.array([counts[word] for _, _, counts in self._texts], dtype=np.float64)
            # A deletion between the parts of a query cannot be; a record whose index lags behind can.
            rare = rarity(max(self._documents, self._holders[word]), self._holders[word])
            scores += rare * relevance(frequencies, lengths, float(lengths.mean()))
        return [
            Candidate(id_, letter, float(score)) for (letter, id_, _), score in zip(self._texts, scores, strict=True)
        ]


def _vector(search: Search, dimension: int) -> str | None:
    if search.vector is None or not dimension:
        return None
    if search.vector.shape != (dimension,):
        raise InvalidError("vector", f"shape {search.vector.shape}", f"this graph takes vectors of {dimension} numbers")
    return numbers_of(search.vector)


def _parameters(number: int, search: Search, vector: str | None) -> dict[str, Any]:
    told: dict[str, Any] = {
        "any": any_of(search.terms),
        "words": words_of(search.terms).split(),
        "pool": _POOL * search.candidates,
        "vector": vector,
        "most": search.candidates,
        "within": None if search.session is None else within(search.session),
        "since": UNKNOWN_START if search.since is None else search.since,
        "until": LATEST if search.until is None else search.until,
    }
    return {f"{name}{number}": value for name, value in told.items()}


def _best(found: Sequence[Candidate], candidates: int) -> list[Candidate]:
    return sorted(found, key=lambda one: (-one.score, one.id))[:candidates]
