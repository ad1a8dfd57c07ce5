"""A search finds what is there, by words and by meaning, and nothing that is gone."""
# ruff: noqa: D102  # a test's name is its sentence

from __future__ import annotations

import numpy as np
import pytest

from sharedmem.errors import InvalidError
from sharedmem.search.filters import ALL, Every, Tagged
from sharedmem.search.protocol import Index, Query
from sharedmem.testing.index_suite.base import DIMENSION, IndexFixtures, Shelf, by_meaning, by_words, direction, ids
from sharedmem.testing.store_suite.base import eventually

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


class SearchTests(IndexFixtures):
    """One search."""

    async def test_a_record_is_found_by_a_word_and_by_its_meaning(self, index: Index, shelf: Shelf) -> None:
        await shelf.put("a", "Apples are ripe", vector=direction(1), facts=b"of a")
        await shelf.put("b", "Pears are sweet", vector=direction(0, 1), facts=b"of b")
        await index.ensure(shelf.namespace)

        found = await index.search(shelf.namespace, Query(terms=("appl",), vector=direction(1, 0.1)))

        assert [(hit.id, hit.facts) for hit in found.text] == [("a", b"of a")]
        assert [(hit.id, hit.facts) for hit in found.vector] == [("a", b"of a"), ("b", b"of b")]
        assert found.vector[0].score == pytest.approx(0.995, abs=2e-3)

    async def test_both_searches_take_one_round_trip(self, index: Index, shelf: Shelf) -> None:
        await shelf.put("a", "apple", vector=direction(1))
        query = Query(terms=("appl",), vector=direction(1))
        await index.search(shelf.namespace, query)

        found = await index.search(shelf.namespace, query)

        assert found.round_trips == 1

    async def test_any_of_the_words_may_match(self, index: Index, shelf: Shelf) -> None:
        await shelf.put("a", "red apple")
        await shelf.put("b", "green pear")
        await shelf.put("c", "blue plum")

        assert set(await by_words(index, shelf, "apple pear")) == {"a", "b"}

    async def test_several_searches_take_one_round_trip_and_find_what_each_alone_would(
        self, index: Index, shelf: Shelf
    ) -> None:
        await shelf.put("a", "red apple", vector=direction(1), user="alice")
        await shelf.put("b", "green apple", vector=direction(0, 1), user="bob")
        await shelf.put("c", "blue plum", vector=direction(0, 0, 1), user="bob")
        of_bob = Every((Tagged("user", ("bob",)),))
        queries = [
            Query(terms=("appl",)),
            Query(),
            Query(terms=("appl", "plum"), vector=direction(0, 1), filters=of_bob, candidates=1),
            Query(vector=direction(0, 0, 1)),
        ]
        alone = [await index.search(shelf.namespace, query) for query in queries]

        together = await index.search_each(shelf.namespace, queries)

        assert [found[:3] for found in together] == [found[:3] for found in alone]
        assert {found.round_trips for found in together} == {1}
        assert ids(together[2].vector) == ["b"]
        assert await index.search_each(shelf.namespace, []) == []

    async def test_vectors_of_zeros_are_in_nobodys_way_in_several_searches(self, index: Index, shelf: Shelf) -> None:
        await shelf.put("a", "apple", vector=direction(1))
        for number in range(3):
            await shelf.put(f"zero-{number}", "apple", vector=direction())
        queries = [Query(terms=("appl",)), Query(vector=direction(1), candidates=2)]

        words, near = await index.search_each(shelf.namespace, queries)

        assert len(words.text) == 4
        assert ids(near.vector) == ["a"]

    async def test_the_version_is_that_of_the_newest_change(self, index: Index, shelf: Shelf) -> None:
        before = await index.search(shelf.namespace, Query(terms=("appl",)))
        first = await shelf.put("a", "apple")
        second = await shelf.put("b", "apple")

        found = await index.search(shelf.namespace, Query(terms=("appl",)))

        assert before == ([], [], 0, before.round_trips)
        assert first < second == found.version

    async def test_a_query_for_nothing_finds_nothing(self, index: Index, shelf: Shelf) -> None:
        version = await shelf.put("a", "apple", vector=direction(1))

        found = await index.search(shelf.namespace, Query())

        assert (found.text, found.vector, found.version) == ([], [], version)

    async def test_words_alone_and_a_vector_alone_will_do(self, index: Index, shelf: Shelf) -> None:
        await shelf.put("a", "apple", vector=direction(1))

        words = await index.search(shelf.namespace, Query(terms=("appl",)))
        meaning = await index.search(shelf.namespace, Query(vector=direction(1)))

        assert (ids(words.text), words.vector) == (["a"], [])
        assert (meaning.text, ids(meaning.vector)) == ([], ["a"])

    async def test_the_nearest_are_as_many_as_were_asked_for(self, index: Index, shelf: Shelf) -> None:
        for number in range(30):
            await shelf.put(f"n{number:02}", vector=direction(1, number / 30))

        found = await index.nearest(shelf.namespace, direction(1), k=20)

        assert ids(found.vector) == [f"n{number:02}" for number in range(20)]
        assert found.text == []

    async def test_several_vectors_are_answered_as_each_would_be(self, index: Index, shelf: Shelf) -> None:
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

    async def test_no_search_answers_more_than_was_asked_for(self, index: Index, shelf: Shelf) -> None:
        for number in range(12):
            await shelf.put(f"n{number:02}", "apple", vector=direction(1, number / 30))

        found = await index.search(shelf.namespace, Query(terms=("appl",), vector=direction(1), candidates=3))

        assert (len(found.text), ids(found.vector)) == (3, ["n00", "n01", "n02"])
        with pytest.raises(InvalidError, match="at least one"):
            await index.search(shelf.namespace, Query(terms=("appl",), candidates=0))

    async def test_a_record_without_a_vector_is_found_by_its_words(self, index: Index, shelf: Shelf) -> None:
        await shelf.put("a", "apple")
        await shelf.put("b", "apple", vector=direction(1))

        assert await by_words(index, shelf, "apple") == ["a", "b"]
        assert await by_meaning(index, shelf, direction(1)) == ["b"]

    async def test_a_record_without_words_is_found_by_its_vector(self, index: Index, shelf: Shelf) -> None:
        await shelf.put("a", vector=direction(1))

        assert await by_meaning(index, shelf, direction(1)) == ["a"]

    async def test_nothing_is_near_to_a_vector_of_zeros(self, index: Index, shelf: Shelf) -> None:
        await shelf.put("a", vector=direction(1))

        assert await by_meaning(index, shelf, direction(0)) == []

    async def test_records_with_vectors_of_zeros_spoil_no_search(self, index: Index, shelf: Shelf) -> None:
        """Their distance is no number, by which a server may sort."""
        for number in range(30):
            await shelf.put(f"n{number:02}", vector=direction(0) if number % 3 == 0 else direction(1, 3 - number / 10))
        sound = [f"n{number:02}" for number in range(29, 0, -1) if number % 3]

        found = await index.nearest(shelf.namespace, direction(1), k=10)

        assert ids(found.vector) == sound[:10]

    async def test_a_changed_record_is_found_as_it_is_now(self, index: Index, shelf: Shelf) -> None:
        await shelf.put("a", "apple", vector=direction(1), facts=b"old")
        await by_words(index, shelf, "apple")
        await shelf.put("a", "pear", vector=direction(0, 1), facts=b"new")

        found = await index.search(shelf.namespace, Query(terms=("appl", "pear"), vector=direction(0, 1)))

        assert [(hit.id, hit.facts) for hit in found.text] == [("a", b"new")]
        assert [(hit.id, hit.facts) for hit in found.vector] == [("a", b"new")]
        assert found.vector[0].score == pytest.approx(1, abs=1e-3)
        assert await by_words(index, shelf, "apple") == []

    async def test_a_deleted_record_is_not_found(self, index: Index, shelf: Shelf) -> None:
        await shelf.put("a", "apple", vector=direction(1))
        await shelf.put("b", "apple", vector=direction(1))
        await by_words(index, shelf, "apple")

        await shelf.delete("a")

        assert await by_words(index, shelf, "apple") == ["b"]
        assert await by_meaning(index, shelf, direction(1)) == ["b"]

    async def test_an_expired_record_is_soon_not_found(self, index: Index, shelf: Shelf) -> None:
        await shelf.put("a", "apple", vector=direction(1))
        await shelf.put("b", "apple")
        assert await by_words(index, shelf, "apple") == ["a", "b"]

        await shelf.expire("a", 1)

        async def is_gone() -> bool:
            return not await shelf.exists("a") and await by_words(index, shelf, "apple") == ["b"]

        await eventually(is_gone)
        assert await by_meaning(index, shelf, direction(1)) == []

    @pytest.mark.parametrize("dimension", [0, 1, DIMENSION - 1, DIMENSION + 1])
    async def test_a_vector_of_another_dimension_is_refused(self, index: Index, shelf: Shelf, dimension: int) -> None:
        vector = np.ones(dimension, np.float32)

        with pytest.raises(InvalidError, match=f"{DIMENSION} numbers"):
            await index.search(shelf.namespace, Query(vector=vector))
        with pytest.raises(InvalidError, match=f"{DIMENSION} numbers"):
            await index.nearest(shelf.namespace, vector)

    @pytest.mark.parametrize("number", [float("nan"), float("inf")])
    async def test_a_vector_with_what_is_no_number_is_refused(self, index: Index, shelf: Shelf, number: float) -> None:
        with pytest.raises(InvalidError, match="no finite number"):
            await index.search(shelf.namespace, Query(vector=np.full(DIMENSION, number, np.float32)))

    @pytest.mark.parametrize("terms", _STRANGE_TERMS, ids=lambda terms: repr(terms)[:30])
    async def test_what_is_no_word_finds_nothing_and_harms_nobody(
        self, index: Index, shelf: Shelf, terms: tuple[str, ...]
    ) -> None:
        await shelf.put("a", "apple pear", user="x", vector=direction(1))

        found = await index.search(shelf.namespace, Query(terms=terms, vector=direction(1)))

        assert (found.text, ids(found.vector)) == ([], ["a"])

    async def test_one_word_that_is_none_does_not_spoil_the_others(self, index: Index, shelf: Shelf) -> None:
        await shelf.put("a", "apple pear")

        found = await index.search(shelf.namespace, Query(terms=("-", "appl", "|")))

        assert ids(found.text) == ["a"]
