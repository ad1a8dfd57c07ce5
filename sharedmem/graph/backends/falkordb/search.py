"""A search as parts of one query, and its hits from what comes back: pure.

The module ranks words by a TF-IDF of its own; the best of that are ranked again here by BM25, as every index does it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from sharedmem.errors import InvalidError
from sharedmem.graph.backends.falkordb import queries
from sharedmem.graph.backends.falkordb.rows import any_word_query, index_words, session_property, vector_text
from sharedmem.graph.records import LATEST, UNKNOWN_START, KindCode, RecordHits, RecordSearch, ScoredRecord
from sharedmem.search.scoring import inverse_document_frequency, term_score

_POOL = 4
"""For each hit by words that is wanted, how many are ranked again."""


class CypherQuery(NamedTuple):
    """A query that answers (search, part, letter, id, number, words)."""

    query: str
    parameters: dict[str, Any]


def build_query(searches: Sequence[RecordSearch], dimension: int) -> CypherQuery | None:
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
    return CypherQuery("UNION ALL".join(legs), parameters) if legs else None


def parse_hits(searches: Sequence[RecordSearch], rows: Sequence[Sequence[Any]]) -> list[RecordHits]:
    """The hits of each search, from what its query has answered."""
    found = [_SearchMatches() for _ in searches]
    for number, part, letter, id_, score, words in rows:
        found[number].take(part, letter, id_, score, words)
    return [each.hits(one) for each, one in zip(found, searches, strict=True)]


class _SearchMatches:
    """What was found by one search."""

    def __init__(self) -> None:
        self._texts: list[tuple[KindCode, str, Counter[str]]] = []
        self._vectors: list[ScoredRecord] = []
        self._holders: Counter[str] = Counter()
        self._documents = 0

    def take(self, part: str, letter: KindCode, id_: str, score: float, words: str) -> None:
        if part == "text":
            self._texts.append((letter, id_, Counter(words.split())))
        elif part == "vector":
            self._vectors.append(ScoredRecord(id_, letter, score))
        elif part == "holders":
            self._holders[id_] += int(score)
        else:
            self._documents += int(score or 0)

    def hits(self, search: RecordSearch) -> RecordHits:
        texts = self._ranked(index_words(search.terms).split()) if self._texts else []
        return RecordHits(*(_best(found, search.candidates) for found in (texts, self._vectors)))

    def _ranked(self, words: Sequence[str]) -> list[ScoredRecord]:
        lengths = np.array([counts.total() for _, _, counts in self._texts], dtype=np.float64)
        scores = np.zeros(len(self._texts))
        for word in words:
            frequencies = np.array([counts[word] for _, _, counts in self._texts], dtype=np.float64)
            # A deletion between the parts of a query cannot be; a record whose index lags behind can.
            rare = inverse_document_frequency(max(self._documents, self._holders[word]), self._holders[word])
            scores += rare * term_score(frequencies, lengths, float(lengths.mean()))
        return [
            ScoredRecord(id_, letter, float(score)) for (letter, id_, _), score in zip(self._texts, scores, strict=True)
        ]


def _vector(search: RecordSearch, dimension: int) -> str | None:
    if search.vector is None or not dimension:
        return None
    if search.vector.shape != (dimension,):
        raise InvalidError("vector", f"shape {search.vector.shape}", f"this graph takes vectors of {dimension} numbers")
    return vector_text(search.vector)


def _parameters(number: int, search: RecordSearch, vector: str | None) -> dict[str, Any]:
    told: dict[str, Any] = {
        "any": any_word_query(search.terms),
        "words": index_words(search.terms).split(),
        "pool": _POOL * search.candidates,
        "vector": vector,
        "most": search.candidates,
        "within": None if search.session is None else session_property(search.session),
        "since": UNKNOWN_START if search.since is None else search.since,
        "until": LATEST if search.until is None else search.until,
    }
    return {f"{name}{number}": value for name, value in told.items()}


def _best(found: Sequence[ScoredRecord], candidates: int) -> list[ScoredRecord]:
    return sorted(found, key=lambda one: (-one.score, one.id))[:candidates]
