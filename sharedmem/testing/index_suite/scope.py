"""A search stays within its namespace, however alike the names are."""
# ruff: noqa: D102  # a test's name is its sentence

from __future__ import annotations

import pytest

from sharedmem.search.filters import ALL, Every, Tagged
from sharedmem.search.protocol import Index, Query
from sharedmem.testing.index_suite.base import IndexFixtures, Shelf, Shelves, by_meaning, by_words, direction, ids

_NAMES = (
    *(
        "team",
        "Team",
        "TEAM",
        "teams",
        "teamed",
        "tea",
        "t",
        "the",
        "and",
        "a",
        "b",
        "team-a",
        "team,a",
        "team|a",
        "team.a",
    ),
    *("team_a", "1", "10", "01", "-1", "~a", "@ns", "(team)", "%team%", "'", "ü", "日本", "alice", "x" * 120),
)


class ScopeTests(IndexFixtures):
    """Namespaces side by side."""

    async def test_each_namespace_finds_its_own_alone(self, index: Index, shelves: Shelves) -> None:
        for number, name in enumerate(_NAMES):
            await shelves(name).put(f"of-{number}", "apple", user="alice", vector=direction(1))
            await shelves(name).put("same-id", "pear", user="team", vector=direction(0, 1), facts=name.encode())

        for number, name in enumerate(_NAMES):
            shelf, alice = shelves(name), Every((Tagged("user", ("alice",)),))
            for filters in (ALL, alice):
                assert await by_words(index, shelf, "apple", filters) == [f"of-{number}"], name
            assert await by_meaning(index, shelf, direction(1)) == [f"of-{number}", "same-id"], name
            assert await by_meaning(index, shelf, direction(1), alice) == [f"of-{number}"], name
            assert sorted((await index.matching(name, ALL)).ids) == sorted([f"of-{number}", "same-id"]), name
            assert await index.counts(name, ALL, "user") == {"alice": 1, "team": 1}, name
            found = await index.search(name, Query(("pear",)))
            assert [hit.facts for hit in found.text] == [name.encode()]

    async def test_an_empty_namespace_finds_nothing_of_others(self, index: Index, shelves: Shelves) -> None:
        await shelves("full").put("a", "apple", vector=direction(1))
        shelves("empty")

        found = await index.search("empty", Query(("appl",), vector=direction(1)))

        assert (found.text, found.vector) == ([], [])
        assert await index.matching("empty", ALL) == ([], 0)
        assert await index.counts("empty", ALL, "user") == {}

    async def test_a_filter_on_another_namespace_finds_nothing(self, index: Index, shelves: Shelves) -> None:
        await shelves("mine").put("a", "apple", vector=direction(1))
        await shelves("theirs").put("b", "apple", vector=direction(1))
        theirs = Every((Tagged("ns", ("theirs",)),))

        assert await by_words(index, shelves("mine"), "apple", theirs) == []
        assert await by_meaning(index, shelves("mine"), direction(1), theirs) == []
        assert await index.matching("mine", theirs) == ([], 0)

    async def test_the_words_of_another_namespace_do_not_count(self, index: Index, shelves: Shelves) -> None:
        """A word that is rare here stays telling, however common it is next door."""
        for number in range(20):
            await shelves("next-door").put(f"n{number}", "apple")
            await shelves("here").put(f"n{number}", "apple rare" if number == 3 else "apple pie")

        assert (await by_words(index, shelves("here"), "rare apple"))[0] == "n3"

    @pytest.mark.parametrize("id_", ["1", "a:b", "ü", "{x}", "a b", "x" * 200, "}:", "*"])
    async def test_ids_come_back_as_they_were(self, index: Index, shelf: Shelf, id_: str) -> None:
        await shelf.put(id_, "apple", vector=direction(1))

        found = await index.search(shelf.namespace, Query(("appl",), vector=direction(1)))

        assert (ids(found.text), ids(found.vector)) == ([id_], [id_])
