"""Searches by words and vectors, BM25 ranking, and filters."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import pytest

from sharedmem.errors import InvalidError
from sharedmem.search.protocol import (
    ALL,
    Between,
    Condition,
    Either,
    Every,
    Index,
    IndexQuery,
    Inverse,
    Tagged,
    Worded,
)
from sharedmem.testing.index_suite.base import (
    DIMENSION,
    IndexedNamespace,
    IndexFixtures,
    direction,
    ids_of,
    search_by_vector,
    search_by_words,
)
from sharedmem.testing.store_fixtures import eventually
from sharedmem.text.analysis import indexed_terms, query_terms

# ruff: noqa: D102  # a test's name is its sentence


_LONG = "x" * 5000
_STRANGE_TERMS = (
    ("the", "|", "and", "|", "interview"),
    ("*",),
    ("-apple",),
    ("apple*",),
    ("@user:{x}",),
    ("",),
    (" ",),
    ("%apple%",),
    ("$t0", "$v"),
    ("(apple", ")"),
    ("apple|pear",),
    ("apple\x00",),
    ("APPLE",),
    ("ünï",),
    (_LONG,),
    ("'", '"', "\\"),
    tuple(f"word{number}" for number in range(300)),
)


class IndexSearchTests(IndexFixtures):
    """One search."""

    async def test_a_record_is_found_by_a_word_and_by_its_meaning(self, index: Index, shelf: IndexedNamespace) -> None:
        await shelf.put("a", "Apples are ripe", vector=direction(1), facts=b"of a")
        await shelf.put("b", "Pears are sweet", vector=direction(0, 1), facts=b"of b")
        await index.ensure(shelf.namespace)

        found = await index.search(shelf.namespace, IndexQuery(terms=("appl",), vector=direction(1, 0.1)))

        assert [(hit.id, hit.facts) for hit in found.text] == [("a", b"of a")]
        assert [(hit.id, hit.facts) for hit in found.vector] == [("a", b"of a"), ("b", b"of b")]
        assert found.vector[0].score == pytest.approx(0.995, abs=2e-3)

    async def test_a_search_that_needs_no_facts_finds_the_same_records(
        self, index: Index, shelf: IndexedNamespace
    ) -> None:
        for number in range(6):
            await shelf.put(f"n{number}", "apple " * (number + 1), vector=direction(1, number / 10), facts=b"x")
        query = IndexQuery(terms=("appl",), vector=direction(1))

        whole = await index.search(shelf.namespace, query)
        bare = await index.search(shelf.namespace, replace(query, with_facts=False))

        assert [hit[:2] for hit in bare.text] == [hit[:2] for hit in whole.text]
        assert [hit[:2] for hit in bare.vector] == [hit[:2] for hit in whole.vector]

    async def test_both_searches_take_one_round_trip(self, index: Index, shelf: IndexedNamespace) -> None:
        await shelf.put("a", "apple", vector=direction(1))
        query = IndexQuery(terms=("appl",), vector=direction(1))
        await index.search(shelf.namespace, query)

        found = await index.search(shelf.namespace, query)

        assert found.round_trips == 1

    async def test_any_of_the_words_may_match(self, index: Index, shelf: IndexedNamespace) -> None:
        await shelf.put("a", "red apple")
        await shelf.put("b", "green pear")
        await shelf.put("c", "blue plum")

        assert set(await search_by_words(index, shelf, "apple pear")) == {"a", "b"}

    async def test_several_searches_take_one_round_trip_and_find_what_each_alone_would(
        self, index: Index, shelf: IndexedNamespace
    ) -> None:
        await shelf.put("a", "red apple", vector=direction(1), user="alice")
        await shelf.put("b", "green apple", vector=direction(0, 1), user="bob")
        await shelf.put("c", "blue plum", vector=direction(0, 0, 1), user="bob")
        of_bob = Every((Tagged("user", ("bob",)),))
        queries = [
            IndexQuery(terms=("appl",)),
            IndexQuery(),
            IndexQuery(terms=("appl", "plum"), vector=direction(0, 1), filters=of_bob, candidates=1),
            IndexQuery(vector=direction(0, 0, 1)),
        ]
        alone = [await index.search(shelf.namespace, query) for query in queries]

        together = await index.search_each(shelf.namespace, queries)

        assert [found[:3] for found in together] == [found[:3] for found in alone]
        assert {found.round_trips for found in together} == {1}
        assert ids_of(together[2].vector) == ["b"]
        assert await index.search_each(shelf.namespace, []) == []

    async def test_vectors_of_zeros_are_in_nobodys_way_in_several_searches(
        self, index: Index, shelf: IndexedNamespace
    ) -> None:
        await shelf.put("a", "apple", vector=direction(1))
        for number in range(3):
            await shelf.put(f"zero-{number}", "apple", vector=direction())
        queries = [IndexQuery(terms=("appl",)), IndexQuery(vector=direction(1), candidates=2)]

        words, near = await index.search_each(shelf.namespace, queries)

        assert len(words.text) == 4
        assert ids_of(near.vector) == ["a"]

    async def test_the_version_is_that_of_the_newest_change(self, index: Index, shelf: IndexedNamespace) -> None:
        before = await index.search(shelf.namespace, IndexQuery(terms=("appl",)))
        first = await shelf.put("a", "apple")
        second = await shelf.put("b", "apple")

        found = await index.search(shelf.namespace, IndexQuery(terms=("appl",)))

        assert before == ([], [], 0, before.round_trips)
        assert first < second == found.version

    async def test_a_query_for_nothing_finds_nothing(self, index: Index, shelf: IndexedNamespace) -> None:
        version = await shelf.put("a", "apple", vector=direction(1))

        found = await index.search(shelf.namespace, IndexQuery())

        assert (found.text, found.vector, found.version) == ([], [], version)

    async def test_words_alone_and_a_vector_alone_will_do(self, index: Index, shelf: IndexedNamespace) -> None:
        await shelf.put("a", "apple", vector=direction(1))

        words = await index.search(shelf.namespace, IndexQuery(terms=("appl",)))
        meaning = await index.search(shelf.namespace, IndexQuery(vector=direction(1)))

        assert (ids_of(words.text), words.vector) == (["a"], [])
        assert (meaning.text, ids_of(meaning.vector)) == ([], ["a"])

    async def test_the_nearest_are_as_many_as_were_asked_for(self, index: Index, shelf: IndexedNamespace) -> None:
        for number in range(30):
            await shelf.put(f"n{number:02}", vector=direction(1, number / 30))

        found = await index.nearest(shelf.namespace, direction(1), k=20)

        assert ids_of(found.vector) == [f"n{number:02}" for number in range(20)]
        assert found.text == []

    async def test_several_vectors_are_answered_as_each_would_be(self, index: Index, shelf: IndexedNamespace) -> None:
        for number in range(30):
            near = direction(0) if number % 7 == 0 else direction(1, number / 30)
            await shelf.put(f"n{number:02}", vector=near, user="ada" if number % 2 else "bob")
        asked = [direction(1), direction(0), direction(0, 1)]

        for filters in (ALL, Every((Tagged("user", ("ada",)),))):
            found = await index.nearest_each(shelf.namespace, asked, filters=filters, k=5)
            single = [await index.nearest(shelf.namespace, vector, filters=filters, k=5) for vector in asked]

            assert [each.vector for each in found] == [each.vector for each in single]
            assert [len(each.vector) for each in found] == [5, 0, 5]
            assert {each.version for each in found} == {single[0].version}
        assert await index.nearest_each(shelf.namespace, []) == []
        with pytest.raises(InvalidError, match="at least one"):
            await index.nearest_each(shelf.namespace, asked, k=0)

    async def test_no_search_answers_more_than_was_asked_for(self, index: Index, shelf: IndexedNamespace) -> None:
        for number in range(12):
            await shelf.put(f"n{number:02}", "apple", vector=direction(1, number / 30))

        found = await index.search(shelf.namespace, IndexQuery(terms=("appl",), vector=direction(1), candidates=3))

        assert (len(found.text), ids_of(found.vector)) == (3, ["n00", "n01", "n02"])
        with pytest.raises(InvalidError, match="at least one"):
            await index.search(shelf.namespace, IndexQuery(terms=("appl",), candidates=0))

    async def test_a_record_without_a_vector_is_found_by_its_words(self, index: Index, shelf: IndexedNamespace) -> None:
        await shelf.put("a", "apple")
        await shelf.put("b", "apple", vector=direction(1))

        assert await search_by_words(index, shelf, "apple") == ["a", "b"]
        assert await search_by_vector(index, shelf, direction(1)) == ["b"]

    async def test_a_record_without_words_is_found_by_its_vector(self, index: Index, shelf: IndexedNamespace) -> None:
        await shelf.put("a", vector=direction(1))

        assert await search_by_vector(index, shelf, direction(1)) == ["a"]

    async def test_nothing_is_near_to_a_vector_of_zeros(self, index: Index, shelf: IndexedNamespace) -> None:
        await shelf.put("a", vector=direction(1))

        assert await search_by_vector(index, shelf, direction(0)) == []

    async def test_records_with_vectors_of_zeros_spoil_no_search(self, index: Index, shelf: IndexedNamespace) -> None:
        """The distance to such a vector is NaN, by which a server may sort."""
        for number in range(30):
            await shelf.put(f"n{number:02}", vector=direction(0) if number % 3 == 0 else direction(1, 3 - number / 10))
        sound = [f"n{number:02}" for number in range(29, 0, -1) if number % 3]

        found = await index.nearest(shelf.namespace, direction(1), k=10)

        assert ids_of(found.vector) == sound[:10]

    async def test_a_changed_record_is_found_as_it_is_now(self, index: Index, shelf: IndexedNamespace) -> None:
        await shelf.put("a", "apple", vector=direction(1), facts=b"old")
        await search_by_words(index, shelf, "apple")
        await shelf.put("a", "pear", vector=direction(0, 1), facts=b"new")

        found = await index.search(shelf.namespace, IndexQuery(terms=("appl", "pear"), vector=direction(0, 1)))

        assert [(hit.id, hit.facts) for hit in found.text] == [("a", b"new")]
        assert [(hit.id, hit.facts) for hit in found.vector] == [("a", b"new")]
        assert found.vector[0].score == pytest.approx(1, abs=1e-3)
        assert await search_by_words(index, shelf, "apple") == []

    async def test_a_deleted_record_is_not_found(self, index: Index, shelf: IndexedNamespace) -> None:
        await shelf.put("a", "apple", vector=direction(1))
        await shelf.put("b", "apple", vector=direction(1))
        await search_by_words(index, shelf, "apple")

        await shelf.delete("a")

        assert await search_by_words(index, shelf, "apple") == ["b"]
        assert await search_by_vector(index, shelf, direction(1)) == ["b"]

    async def test_an_expired_record_is_soon_not_found(self, index: Index, shelf: IndexedNamespace) -> None:
        await shelf.put("a", "apple", vector=direction(1))
        await shelf.put("b", "apple")
        assert await search_by_words(index, shelf, "apple") == ["a", "b"]

        await shelf.expire("a", 1)

        async def is_gone() -> bool:
            return not await shelf.exists("a") and await search_by_words(index, shelf, "apple") == ["b"]

        await eventually(is_gone)
        assert await search_by_vector(index, shelf, direction(1)) == []

    @pytest.mark.parametrize("dimension", [0, 1, DIMENSION - 1, DIMENSION + 1])
    async def test_a_vector_of_another_dimension_is_refused(
        self, index: Index, shelf: IndexedNamespace, dimension: int
    ) -> None:
        vector = np.ones(dimension, np.float32)

        with pytest.raises(InvalidError, match=f"{DIMENSION} numbers"):
            await index.search(shelf.namespace, IndexQuery(vector=vector))
        with pytest.raises(InvalidError, match=f"{DIMENSION} numbers"):
            await index.nearest(shelf.namespace, vector)

    @pytest.mark.parametrize("number", [float("nan"), float("inf")])
    async def test_a_vector_without_finite_numbers_is_refused(
        self, index: Index, shelf: IndexedNamespace, number: float
    ) -> None:
        with pytest.raises(InvalidError, match="not a finite number"):
            await index.search(shelf.namespace, IndexQuery(vector=np.full(DIMENSION, number, np.float32)))

    @pytest.mark.parametrize("terms", _STRANGE_TERMS, ids=lambda terms: repr(terms)[:30])
    async def test_what_is_no_word_finds_nothing_and_harms_nobody(
        self, index: Index, shelf: IndexedNamespace, terms: tuple[str, ...]
    ) -> None:
        await shelf.put("a", "apple pear", user="x", vector=direction(1))

        found = await index.search(shelf.namespace, IndexQuery(terms=terms, vector=direction(1)))

        assert (found.text, ids_of(found.vector)) == ([], ["a"])

    async def test_one_word_that_is_none_does_not_spoil_the_others(self, index: Index, shelf: IndexedNamespace) -> None:
        await shelf.put("a", "apple pear")

        found = await index.search(shelf.namespace, IndexQuery(terms=("-", "appl", "|")))

        assert ids_of(found.text) == ["a"]


# ruff: noqa: D102  # a test's name is its sentence


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
    """Return the score of each document that holds a word of the query, spelled out as in a textbook."""
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


class IndexRankingTests(IndexFixtures):
    """The order of hits."""

    @pytest.mark.parametrize("asked", [1, 2, 5, 16, 17, 21, 32])
    @pytest.mark.parametrize("chosen", _FILTERS)
    async def test_words_are_ranked_by_bm25_also_below_a_filter(
        self, index: Index, shelf: IndexedNamespace, chosen: str, asked: int
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

        found = (await index.search(shelf.namespace, IndexQuery(tuple(query), filters=filters, candidates=200))).text

        assert {hit.id: hit.score for hit in found} == pytest.approx(expected, rel=1e-4)
        assert [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)

    @pytest.mark.parametrize(
        ("asked", "commonest", "found"),
        [
            (("zebra", "third"), None, {"0", "1", "2", "3", "4", "5", "6", "7", "8"}),
            (("zebra", "third"), 3, {"0", "3", "6"}),
            (("zebra", "third"), 2, {"0", "3", "6"}),
            (("zebra", "third"), 9, {"0", "1", "2", "3", "4", "5", "6", "7", "8"}),
            (("zebra", "absent"), 3, {"0", "1", "2", "3", "4", "5", "6", "7", "8"}),
            (("zebra",), 3, {"0", "1", "2", "3", "4", "5", "6", "7", "8"}),
            (("absent", "missing"), 3, set()),
        ],
    )
    async def test_common_words_are_left_out_where_rarer_ones_find_something(
        self, index: Index, shelf: IndexedNamespace, asked: tuple[str, ...], commonest: int | None, found: set[str]
    ) -> None:
        for number in range(9):
            await shelf.put(str(number), "zebra third" if number % 3 == 0 else "zebra fourth")
        words = tuple(term for word in asked for term in query_terms(word))

        await index.search(
            shelf.namespace, IndexQuery(words, commonest=commonest)
        )  # some count words for the next search
        hits = (await index.search(shelf.namespace, IndexQuery(words, commonest=commonest))).text

        assert {hit.id for hit in hits} == found

    async def test_equal_scores_are_in_the_order_of_ids(self, index: Index, shelf: IndexedNamespace) -> None:
        for id_ in ("c", "a", "d", "b"):
            await shelf.put(id_, "apple pie", vector=direction(1))

        assert await search_by_words(index, shelf, "apple") == ["a", "b", "c", "d"]
        assert await search_by_vector(index, shelf, direction(1)) == ["a", "b", "c", "d"]

    async def test_similarity_is_the_cosine(self, index: Index, shelf: IndexedNamespace) -> None:
        await shelf.put("same", vector=direction(1))
        await shelf.put("half", vector=direction(0.5, math.sqrt(0.75)))
        await shelf.put("none", vector=direction(0, 1))
        await shelf.put("against", vector=direction(-1))

        found = await index.nearest(shelf.namespace, direction(1), k=4)

        assert ids_of(found.vector) == ["same", "half", "none", "against"]
        assert [hit.score for hit in found.vector] == pytest.approx([1, 0.5, 0, -1], abs=2e-3)

    async def test_a_word_in_all_records_has_a_low_weight_also_after_changes(
        self, index: Index, shelf: IndexedNamespace
    ) -> None:
        await index.ensure(shelf.namespace)
        for _ in range(3):
            for number in range(10):
                await shelf.put(f"n{number}", f"loan {'rare' if number == 7 else 'plain words of every day'}")

        found = (await index.search(shelf.namespace, IndexQuery(("loan", "rare"), candidates=3))).text

        assert found[0].id == "n7"
        assert found[0].score < 20


# ruff: noqa: D102  # a test's name is its sentence


_VALUES = (
    *("alice", "Alice", "ALICE", "alices", "alic", "alice ", " alice", "alice\n", "\talice", "ali ce", "a", "b", "the"),
    *("a,b", "a|b", "a b", "a-b", "a:b", "a.b", "{a}", "a}", "(a", "[a]", "*", "a*", "?", "%", "%a", "%a%", "%20a"),
    *("$f0", "$v", "@user:{alice}", "~a", "-a", "!a", "\\", "\\a", "a\\", "\\ alice", "'", '"', "=>[KNN 1 @vector $v]"),
    *(
        "1",
        "10",
        "-1",
        "inf",
        "ü",
        "u\u0308",
        "é",
        "ß",
        "SS",
        "日本",
        "👩‍💻",
        "\u200b",
        "\ufeffa",
        "\u00a0a",
        "a\u00a0",
        "",
        " ",
        "  ",
    ),
    *("a\x00b", "a\x00c", "\x1f", "a\x1fb", "\x7f", "secret) | (@ns:{victim}", "x" * 3000),
)


class IndexFilterTests(IndexFixtures):
    """What filters let through."""

    async def test_each_value_is_found_by_itself_alone(self, index: Index, shelf: IndexedNamespace) -> None:
        for number, value in enumerate(_VALUES):
            await shelf.put(f"n{number}", "apple", user=value, tags=("x", value), vector=direction(1))

        for number, value in enumerate(_VALUES):
            for field in ("user", "tags"):
                only = Every((Tagged(field, (value,)),))
                assert await search_by_words(index, shelf, "apple", only) == [f"n{number}"], (field, value)
                assert await search_by_vector(index, shelf, direction(1), only) == [f"n{number}"], (field, value)
                assert (await index.matching(shelf.namespace, only)).ids == [f"n{number}"], (field, value)

    @pytest.mark.parametrize(
        ("conditions", "passing"),
        [
            ((), "abcd"),
            ((Tagged("user", ("x",)),), "ab"),
            ((Tagged("user", ("x", "y")),), "abc"),
            ((Tagged("user", ("x", "nobody")),), "ab"),
            ((Tagged("user", ()),), ""),
            ((Tagged("user", ("nobody",)),), ""),
            ((Tagged("tags", ("red",)),), "ac"),
            ((Tagged("tags", ("red",)), Tagged("tags", ("big",))), "a"),
            ((Tagged("user", ("x",)), Tagged("tags", ("red",))), "a"),
            ((Between("at", 2, 3),), "bc"),
            ((Between("at", None, 2),), "ab"),
            ((Between("at", 2, None),), "bc"),
            ((Between("at", 3, 2),), ""),
            ((Between("at"),), "abc"),
            ((Between("at", 1.5, 2.5),), "b"),
            ((Between("at", -1e30, 1e30),), "abc"),
            ((Between("size", 1, None),), ""),
            ((Every(),), "abcd"),
            ((Every((Every((Tagged("user", ("x",)),)),)), Between("at", 2, None)), "b"),
        ],
    )
    async def test_all_conditions_hold_of_what_is_found(
        self, index: Index, shelf: IndexedNamespace, conditions: tuple[Condition, ...], passing: str
    ) -> None:
        await shelf.put("a", "apple pie", user="x", tags=("red", "big"), at=1, vector=direction(1))
        await shelf.put("b", "apple", user="x", tags=("green",), at=2, vector=direction(1))
        await shelf.put("c", "apple", user="y", tags=("red",), at=3, vector=direction(1))
        await shelf.put("d", "apple", vector=direction(1))
        filters = ALL.also(*conditions)

        assert sorted(await search_by_words(index, shelf, "apple pie", filters)) == list(passing)
        assert sorted(await search_by_vector(index, shelf, direction(1), filters)) == list(passing)
        assert sorted((await index.matching(shelf.namespace, filters)).ids) == list(passing)

    async def test_conditions_combine_by_either_inverse_and_words(self, index: Index, shelf: IndexedNamespace) -> None:
        await shelf.put("a", "red apples", user="ada", tags=["new"], at=1)
        await shelf.put("b", "green apples", user="bob", at=2)
        await shelf.put("c", "red plums", user="ada|bob", at=3)
        await shelf.put("d", "nothing")
        ada, bob, late = Tagged("user", ("ada",)), Tagged("user", ("bob",)), Between("at", low=2)

        def worded(text: str) -> Worded:
            return Worded(tuple(indexed_terms(text, shelf.namespace).split()))

        expected: list[tuple[Condition, str]] = [
            (Either((ada, late)), "abc"),
            (Either((ada, Every((bob, late)))), "ab"),
            (Inverse(ada), "bcd"),
            (Inverse(Either((ada, bob))), "cd"),
            (Every((Inverse(ada), late)), "bc"),
            (Every((Inverse(ada), Inverse(bob))), "cd"),
            (Either((Inverse(late), bob)), "abd"),
            (Inverse(Every((ada, Inverse(late)))), "bcd"),
            (worded("apple"), "ab"),
            (worded("red apple"), "a"),
            (Inverse(worded("red apple")), "bcd"),
            (Either((worded("plum"), Tagged("tags", ("new",)))), "ac"),
            (Worded(()), ""),
            (Worded(("|", "*")), ""),
            (Either(()), ""),
            (Inverse(Either(())), "abcd"),
            (Inverse(Every(())), ""),
            (Inverse(Tagged("user", ())), "abcd"),
        ]

        for condition, ids in expected:
            page = await index.matching(shelf.namespace, Every((condition,)))
            assert ("".join(sorted(page.ids)), page.total) == (ids, len(ids)), condition

    async def test_a_search_by_words_may_require_words(self, index: Index, shelf: IndexedNamespace) -> None:
        await shelf.put("a", "red apples", user="ada")
        await shelf.put("b", "green apples and red plums", user="ada")
        await shelf.put("c", "red apples and plums", user="bob")
        required = Worded(tuple(indexed_terms("red apple", shelf.namespace).split()))
        query = IndexQuery(query_terms("red apple plum"), filters=Every((required, Tagged("user", ("ada",)))))

        found = await index.search(shelf.namespace, query)
        without = await index.search(shelf.namespace, IndexQuery(query.terms))

        assert sorted(hit.id for hit in found.text) == ["a", "b"]
        scores = {hit.id: hit.score for hit in without.text}
        for hit in found.text:
            assert hit.score == pytest.approx(scores[hit.id], rel=1e-3), "what is required adds nothing to a score"

    async def test_records_come_in_either_order_of_a_number_and_those_without_it_last(
        self, index: Index, shelf: IndexedNamespace
    ) -> None:
        for id_, at in (("b", 2.0), ("c", 3.0), ("none", None), ("a", 1.0)):
            await shelf.put(id_, at=at)

        assert (await index.matching(shelf.namespace, ALL, oldest="at")).ids == ["a", "b", "c", "none"]
        assert (await index.matching(shelf.namespace, ALL, newest="at")).ids == ["c", "b", "a", "none"]
        assert (await index.matching(shelf.namespace, ALL, oldest="at", offset=1, limit=2)).ids == ["b", "c"]
        with pytest.raises(InvalidError, match="give one of both"):
            await index.matching(shelf.namespace, ALL, oldest="at", newest="at")

    async def test_the_nearest_are_among_those_that_any_condition_lets_through(
        self, index: Index, shelf: IndexedNamespace
    ) -> None:
        await shelf.put("a", "apple", vector=direction(1), user="ada")
        await shelf.put("b", "apple", vector=direction(1, 0.5), user="bob")
        await shelf.put("c", "plum", vector=direction(1, 1), user="cleo")
        word = Worded(tuple(indexed_terms("plum", shelf.namespace).split()))

        not_ada = await index.nearest(
            shelf.namespace, direction(1), filters=Every((Inverse(Tagged("user", ("ada",))),))
        )
        either = await index.nearest(
            shelf.namespace, direction(1), filters=Every((Either((word, Tagged("user", ("ada",)))),)), k=5
        )

        assert (ids_of(not_ada.vector), ids_of(either.vector)) == (["b", "c"], ["a", "c"])

    async def test_a_search_by_words_takes_tags_and_intervals_alone(
        self, index: Index, shelf: IndexedNamespace
    ) -> None:
        await shelf.put("a", "apple")

        with pytest.raises(InvalidError, match="tags, intervals and words alone"):
            await index.search(shelf.namespace, IndexQuery(terms=("appl",), filters=Every((Either(()),))))

    @pytest.mark.parametrize(
        "condition",
        [
            Tagged("nothing", ("x",)),
            Tagged("at", ("1",)),
            Between("user", 1, 2),
            Between("nothing"),
            Tagged("", ("x",)),
        ],
    )
    async def test_a_field_that_is_none_is_refused_by_name(
        self, index: Index, shelf: IndexedNamespace, condition: Condition
    ) -> None:
        wrong = Every((Every((condition,)),))

        with pytest.raises(InvalidError, match=r"filter|tags|numbers"):
            await index.search(shelf.namespace, IndexQuery(("appl",), filters=wrong))
        with pytest.raises(InvalidError, match=r"filter|tags|numbers"):
            await index.search(shelf.namespace, IndexQuery(filters=wrong))
        with pytest.raises(InvalidError, match=r"filter|tags|numbers"):
            await index.matching(shelf.namespace, wrong)

    async def test_a_bound_that_is_no_number_is_refused(self, index: Index, shelf: IndexedNamespace) -> None:
        with pytest.raises(InvalidError, match="number"):
            await index.matching(shelf.namespace, Every((Between("at", float("nan"), None),)))
