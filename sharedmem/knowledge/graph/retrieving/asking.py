"""Which relations a question asks for, by the words of their names. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from sharedmem.knowledge.graph.relations import Vocabulary
from sharedmem.search.analysis import query_terms


class Asking:
    """What the words of a question ask for.

    Args:
        vocabulary: knows how relations are called from either end.
        terms: the words, as `search.analysis` spells them.
    """

    def __init__(self, vocabulary: Vocabulary, terms: Iterable[str]) -> None:
        self._vocabulary = vocabulary
        self._terms = frozenset(terms)
        self._overlaps: dict[str, float] = {}

    def overlap(self, type_: str) -> float:
        """Which share of the words of a relation the question holds; of its two names, the one that it holds more of.

        `Who employs Bo?` asks for `works_for` as much as `Where does Bo work?`.
        """
        found = self._overlaps.get(type_)
        if found is None:
            declared = self._vocabulary.declared(type_)
            found = self._overlaps[type_] = max(map(self._share, (declared.name, declared.inverse or "")))
        return found

    def _share(self, name: str) -> float:
        words = _words_of(name)
        return len(words & self._terms) / len(words) if words else 0.0


@lru_cache(maxsize=4096)
def _words_of(type_: str) -> frozenset[str]:
    return frozenset(query_terms(type_.replace("_", " ")))
