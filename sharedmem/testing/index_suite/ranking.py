"""Ranking by words is BM25 over the namespace's records, whatever is filtered; equal scores are in the order of ids."""
# ruff: noqa: D102  # a test's name is its sentence

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from typing import TypeAlias

import pytest

from sharedmem.search.analysis import query_terms
from sharedmem.search.filters import ALL, Between, Every, Tagged
from sharedmem.search.protocol import Index, Query
from sharedmem.testing.index_suite.base import IndexFixtures, Shelf, by_meaning, by_words, direction, ids

_K1, _B = 1.2, 0.5
_WORDS = [f"word{number}" for number in range(60)]
_RECORDS = 150
_LetsThrough: TypeAlias = Callable[[int], bool]
_FILTERS: dict[str, tuple[Every, _LetsThrough]] = {
    "none": (ALL, lambda _: True),
    "user": (Every((Tagged("user", ("u1",)),)), lambda n: n % 3 == 1),
    "users": (Every((Tagged("user", ("u1", "u2")),)), lambda n: n % 3 > 0),
    "tag": (Every((Tagged("tags", ("even",)),)), lambda n: n % 2 == 0),
    "time": (Every((Between("at", 50, None),)), lambda n: n >= 50),
    "all": (
        Every((Tagged("user", ("u0", "u1")), Every((Tagged("tags", ("odd",)), Between("at", 20, 120))))),
        lambda n: n % 3 < 2 and n % 2 == 1 and 20 <= n <= 120,
    ),
}


def _bm25(documents: list[list[str]], query: list[str]) -> dict[int, float]:
    """The score of each document that holds a word of the query, spelled out as in a textbook."""
    frequencies = [Counter(document) for document in documents]
    average = sum(map(len, documents)) / len(documents)
    scores: dict[int, float] = {}
    for word in query:
        holders = sum(word in counts for counts in frequencies)
        rarity = math.log(1 + (len(documents) - holders + 0.5) / (holders + 0.5))
        for number, counts in enumerate(frequencies):
            if found := counts[word]:
                length = 1 - _B + _B * len(documents[number]) / average
                scores[number] = scores.get(number, 0) + rarity * found * (_K1 + 1) / (found + _K1 * length)
    return scores


class RankingTests(IndexFixtures):
    """The order of hits."""

    @pytest.mark.parametrize("asked", [1, 2, 5, 16, 17, 21, 32])
    @pytest.mark.parametrize("chosen", _FILTERS)
    async def test_words_are_ranked_by_bm25_also_below_a_filter(
        self, index: Index, shelf: Shelf, chosen: str, asked: int
    ) -> None:
        chance = random.Random(f"{chosen} {asked}")  # noqa: S311  # a draw that can be repeated
        documents = []
        for number in range(_RECORDS):
            documents.append(chance.choices(_WORDS, weights=range(60, 0, -1), k=chance.randint(3, 30)))
            text, parity = " ".join(documents[-1]), "even" if number % 2 == 0 else "odd"
            await shelf.put(f"{number:03}", text, user=f"u{number % 3}", tags=(parity, "all"), at=number)
        query = chance.sample(_WORDS, asked)
        filters, lets_through = _FILTERS[chosen]
        expected = {f"{number:03}": score for number, score in _bm25(documents, query).items() if lets_through(number)}

        found = (await index.search(shelf.namespace, Query(tuple(query), filters=filters, candidates=200))).text

        assert {hit.id: hit.score for hit in found} == pytest.approx(expected, rel=1e-4)
        assert [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)

    @pytest.mark.parametrize(
        ("asked", "commonest", "found"),
        [
            (("zebra", "third"), None, {"0", "1", "2", "3", "4", "5", "6", "7", "8"}),
            (("zebra", "third"), 3, {"0", "3", "6"}),
            (("zebra", "third"), 2, {"0", "3", "6"}),
            (("zebra", "absent"), 3, {"0", "1", "2", "3", "4", "5", "6", "7", "8"}),
            (("zebra",), 3, {"0", "1", "2", "3", "4", "5", "6", "7", "8"}),
            (("absent", "missing"), 3, set()),
        ],
    )
    async def test_common_words_are_left_out_where_rarer_ones_find_something(
        self, index: Index, shelf: Shelf, asked: tuple[str, ...], commonest: int | None, found: set[str]
    ) -> None:
        for number in range(9):
            await shelf.put(str(number), "zebra third" if number % 3 == 0 else "zebra fourth")
        words = tuple(term for word in asked for term in query_terms(word))

        await index.search(shelf.namespace, Query(words, commonest=commonest))  # some count words for the next search
        hits = (await index.search(shelf.namespace, Query(words, commonest=commonest))).text

        assert {hit.id for hit in hits} == found

    async def test_equal_scores_are_in_the_order_of_ids(self, index: Index, shelf: Shelf) -> None:
        for id_ in ("c", "a", "d", "b"):
            await shelf.put(id_, "apple pie", vector=direction(1))

        assert await by_words(index, shelf, "apple") == ["a", "b", "c", "d"]
        assert await by_meaning(index, shelf, direction(1)) == ["a", "b", "c", "d"]

    async def test_similarity_is_the_cosine(self, index: Index, shelf: Shelf) -> None:
        await shelf.put("same", vector=direction(1))
        await shelf.put("half", vector=direction(0.5, math.sqrt(0.75)))
        await shelf.put("none", vector=direction(0, 1))
        await shelf.put("against", vector=direction(-1))

        found = await index.nearest(shelf.namespace, direction(1), k=4)

        assert ids(found.vector) == ["same", "half", "none", "against"]
        assert [hit.score for hit in found.vector] == pytest.approx([1, 0.5, 0, -1], abs=2e-3)

    async def test_a_word_that_all_records_hold_tells_little_also_after_changes(
        self, index: Index, shelf: Shelf
    ) -> None:
        await index.ensure(shelf.namespace)
        for _ in range(3):
            for number in range(10):
                await shelf.put(f"n{number}", f"loan {'rare' if number == 7 else 'plain words of every day'}")

        found = (await index.search(shelf.namespace, Query(("loan", "rare"), candidates=3))).text

        assert found[0].id == "n7"
        assert found[0].score < 20
