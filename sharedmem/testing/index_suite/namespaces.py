"""Isolation of namespaces, pages and tag counts, and moves to another index."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from sharedmem.errors import InvalidError
from sharedmem.search.protocol import ALL, Every, Index, IndexQuery, Tagged
from sharedmem.testing.index_suite.base import (
    IndexedNamespace,
    IndexFixtures,
    OpenIndexedNamespace,
    direction,
    ids_of,
    search_by_vector,
    search_by_words,
)

# ruff: noqa: D102  # a test's name is its sentence


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


class NamespaceIsolationTests(IndexFixtures):
    """Several namespaces at a time."""

    async def test_each_namespace_finds_its_own_alone(self, index: Index, shelves: OpenIndexedNamespace) -> None:
        for number, name in enumerate(_NAMES):
            await shelves(name).put(f"of-{number}", "apple", user="alice", vector=direction(1))
            await shelves(name).put("same-id", "pear", user="team", vector=direction(0, 1), facts=name.encode())

        for number, name in enumerate(_NAMES):
            shelf, alice = shelves(name), Every((Tagged("user", ("alice",)),))
            for filters in (ALL, alice):
                assert await search_by_words(index, shelf, "apple", filters) == [f"of-{number}"], name
            assert await search_by_vector(index, shelf, direction(1)) == [f"of-{number}", "same-id"], name
            assert await search_by_vector(index, shelf, direction(1), alice) == [f"of-{number}"], name
            assert sorted((await index.matching(name, ALL)).ids) == sorted([f"of-{number}", "same-id"]), name
            assert await index.counts(name, ALL, "user") == {"alice": 1, "team": 1}, name
            found = await index.search(name, IndexQuery(("pear",)))
            assert [hit.facts for hit in found.text] == [name.encode()]

    async def test_an_empty_namespace_finds_nothing_of_others(
        self, index: Index, shelves: OpenIndexedNamespace
    ) -> None:
        await shelves("full").put("a", "apple", vector=direction(1))
        shelves("empty")

        found = await index.search("empty", IndexQuery(("appl",), vector=direction(1)))

        assert (found.text, found.vector) == ([], [])
        assert await index.matching("empty", ALL) == ([], 0)
        assert await index.counts("empty", ALL, "user") == {}

    async def test_a_filter_on_another_namespace_finds_nothing(
        self, index: Index, shelves: OpenIndexedNamespace
    ) -> None:
        await shelves("mine").put("a", "apple", vector=direction(1))
        await shelves("theirs").put("b", "apple", vector=direction(1))
        theirs = Every((Tagged("ns", ("theirs",)),))

        assert await search_by_words(index, shelves("mine"), "apple", theirs) == []
        assert await search_by_vector(index, shelves("mine"), direction(1), theirs) == []
        assert await index.matching("mine", theirs) == ([], 0)

    async def test_the_words_of_another_namespace_do_not_count(
        self, index: Index, shelves: OpenIndexedNamespace
    ) -> None:
        """A rare word of this namespace has a high weight, even if it is common in another one."""
        for number in range(20):
            await shelves("next-door").put(f"n{number}", "apple")
            await shelves("here").put(f"n{number}", "apple rare" if number == 3 else "apple pie")

        assert (await search_by_words(index, shelves("here"), "rare apple"))[0] == "n3"

    @pytest.mark.parametrize("id_", ["1", "a:b", "ü", "{x}", "a b", "x" * 200, "}:", "*"])
    async def test_ids_come_back_as_they_were(self, index: Index, shelf: IndexedNamespace, id_: str) -> None:
        await shelf.put(id_, "apple", vector=direction(1))

        found = await index.search(shelf.namespace, IndexQuery(("appl",), vector=direction(1)))

        assert (ids_of(found.text), ids_of(found.vector)) == ([id_], [id_])


# ruff: noqa: D102  # a test's name is its sentence


_SOME = 25


class IndexPageTests(IndexFixtures):
    """Lists and counts."""

    async def test_pages_are_sorted_by_a_number_highest_first(self, index: Index, shelf: IndexedNamespace) -> None:
        for number in range(_SOME):
            await shelf.put(f"n{number:02}", "apple", at=(number * 7) % _SOME)
        order = sorted(range(_SOME), key=lambda number: -((number * 7) % _SOME))

        pages = [
            await index.matching(shelf.namespace, ALL, newest="at", offset=offset, limit=10)
            for offset in (0, 10, 20, 30)
        ]

        assert [id_ for page in pages for id_ in page.ids] == [f"n{number:02}" for number in order]
        assert [page.total for page in pages] == [_SOME] * 4

    async def test_times_in_milliseconds_keep_their_order(self, index: Index, shelf: IndexedNamespace) -> None:
        for number in range(3):
            await shelf.put(f"n{number}", at=1_795_245_066_123 + number)

        assert (await index.matching(shelf.namespace, ALL, newest="at")).ids == ["n2", "n1", "n0"]

    async def test_pages_in_no_order_hold_each_record_once(self, index: Index, shelf: IndexedNamespace) -> None:
        for number in range(_SOME):
            await shelf.put(f"n{number:02}", user=f"u{number % 2}")
        even = Every((Tagged("user", ("u0",)),))

        found = [await index.matching(shelf.namespace, even, offset=offset, limit=5) for offset in (0, 5, 10, 15)]

        assert sorted(id_ for page in found for id_ in page.ids) == [f"n{number:02}" for number in range(0, _SOME, 2)]

    async def test_an_empty_page_still_has_the_total(self, index: Index, shelf: IndexedNamespace) -> None:
        for number in range(3):
            await shelf.put(f"n{number}", at=number)

        assert await index.matching(shelf.namespace, ALL, limit=0) == ([], 3)
        assert await index.matching(shelf.namespace, ALL, limit=0, offset=2) == ([], 3)
        assert await index.matching(shelf.namespace, ALL, newest="at", offset=7) == ([], 3)

    async def test_an_invalid_page_is_refused(self, index: Index, shelf: IndexedNamespace) -> None:
        for offset, limit in ((-1, 5), (0, -1)):
            with pytest.raises(InvalidError, match="give 0 or more"):
                await index.matching(shelf.namespace, ALL, offset=offset, limit=limit)
        with pytest.raises(InvalidError, match="at, size"):
            await index.matching(shelf.namespace, ALL, newest="user")

    async def test_records_are_counted_by_each_of_their_values(self, index: Index, shelf: IndexedNamespace) -> None:
        await shelf.put("a", user="x", tags=("red", "big"))
        await shelf.put("b", user="X", tags=("red",))
        await shelf.put("c", user="x", tags=("a,b", " odd "))
        await shelf.put("d")

        assert await index.counts(shelf.namespace, ALL, "user") == {"x": 2, "X": 1, "": 1}
        assert await index.counts(shelf.namespace, ALL, "tags") == {"red": 2, "big": 1, "a,b": 1, " odd ": 1, "": 1}
        only = Every((Tagged("user", ("x",)),))
        assert await index.counts(shelf.namespace, only, "tags") == {"red": 1, "big": 1, "a,b": 1, " odd ": 1}

    async def test_only_tags_are_counted_by(self, index: Index, shelf: IndexedNamespace) -> None:
        for field in ("at", "nothing", "terms"):
            with pytest.raises(InvalidError, match="user"):
                await index.counts(shelf.namespace, ALL, field)

    async def test_more_values_than_a_handful_are_all_counted(self, index: Index, shelf: IndexedNamespace) -> None:
        for number in range(60):
            await shelf.put(f"n{number:02}", user=f"u{number}")

        assert await index.counts(shelf.namespace, ALL, "user") == {f"u{number}": 1 for number in range(60)}


# ruff: noqa: D102  # a test's name is its sentence


_RECORDS = 120
_WRITES = 60
_MOST_WRITES = 300


async def _put_records(shelf: IndexedNamespace, count: int = _RECORDS) -> list[str]:
    for number in range(count):
        await shelf.put(f"n{number:03}", "apple", user=f"u{number % 3}", vector=direction(1, number / 100), at=number)
    return [f"n{number:03}" for number in range(count)]


async def _list_all_ids(index: Index, shelf: IndexedNamespace) -> list[str]:
    """Return the ids that any kind of search finds."""
    found = await index.search(shelf.namespace, IndexQuery(("appl",), vector=direction(1), candidates=500))
    page = await index.matching(shelf.namespace, ALL, limit=500)
    assert sorted(ids_of(found.text)) == sorted(ids_of(found.vector)) == sorted(page.ids)
    assert page.total == len(page.ids)
    return sorted(page.ids)


async def _migrate_under_load(index: Index, shelf: IndexedNamespace, move: Callable[[], Awaitable[None]]) -> None:
    """Move under writes and searches: no search misses a written record, and none returns one twice."""
    written = await _put_records(shelf)
    moving = True

    async def write() -> None:
        number = 0
        while moving or number < _WRITES:
            if number < _MOST_WRITES:
                await shelf.put(f"w{number:04}", "apple", vector=direction(1, number / 100), at=number)
                written.append(f"w{number:04}")
            # Also a change of an earlier record.
            await shelf.put(f"n{number % _RECORDS:03}", "apple", vector=direction(1, number / 100), at=number)
            number += 1

    async def search() -> None:
        while moving:
            before = set(written)
            found = await index.search(shelf.namespace, IndexQuery(("appl",), vector=direction(1), candidates=1000))
            for hits in (ids_of(found.text), ids_of(found.vector)):
                assert before <= set(hits)
                assert not [id_ for id_, times in Counter(hits).items() if times > 1]

    async with asyncio.TaskGroup() as group:
        group.create_task(write())
        group.create_task(search())
        await move()
        moving = False
    assert await _list_all_ids(index, shelf) == sorted(written)


class IndexMigrationTests(IndexFixtures):
    """Promotion, rebuilding, and the state afterwards."""

    async def test_a_promoted_namespace_finds_what_it_found_before(
        self, index: Index, shelves: OpenIndexedNamespace
    ) -> None:
        shelf, other = shelves("team"), shelves("other")
        expected = await _put_records(shelf)
        await other.put("x", "apple", vector=direction(1))
        before = await index.search("team", IndexQuery(("appl",), vector=direction(1), candidates=500))

        await index.promote("team")

        assert await _list_all_ids(index, shelf) == expected
        assert await _list_all_ids(index, other) == ["x"]
        after = await index.search("team", IndexQuery(("appl",), vector=direction(1), candidates=500))
        assert ids_of(after.text) == ids_of(before.text)
        assert after.vector == before.vector

    async def test_a_promoted_namespace_takes_changes(self, index: Index, shelf: IndexedNamespace) -> None:
        await _put_records(shelf, 10)
        await index.promote(shelf.namespace)

        await shelf.put("new", "apple", vector=direction(1))
        await shelf.delete("n003")

        expected = sorted([*(f"n{number:03}" for number in range(10) if number != 3), "new"])
        assert await _list_all_ids(index, shelf) == expected

    async def test_promoting_again_changes_nothing(self, index: Index, shelf: IndexedNamespace) -> None:
        expected = await _put_records(shelf, 10)

        for _ in range(3):
            await index.promote(shelf.namespace)

        assert await _list_all_ids(index, shelf) == expected

    async def test_promotion_reports_its_progress(self, index: Index, shelf: IndexedNamespace) -> None:
        await _put_records(shelf, 10)
        steps: list[tuple[int, int]] = []

        await index.promote(shelf.namespace, progress=lambda done, total: steps.append((done, total)))

        assert [done for done, _ in steps] == sorted(done for done, _ in steps)
        assert all(done <= total for done, total in steps)
        assert not steps or steps[-1][0] == steps[-1][1]

    async def test_an_empty_namespace_can_be_promoted(self, index: Index, shelf: IndexedNamespace) -> None:
        await index.promote(shelf.namespace)
        await shelf.put("a", "apple", vector=direction(1))

        assert await _list_all_ids(index, shelf) == ["a"]

    async def test_nothing_is_lost_or_doubled_while_a_namespace_is_promoted(
        self, index: Index, shelf: IndexedNamespace
    ) -> None:
        async def promote() -> None:
            await index.promote(shelf.namespace)

        await _migrate_under_load(index, shelf, promote)

    async def test_nothing_is_lost_or_doubled_while_the_index_is_rebuilt(
        self, index: Index, shelf: IndexedNamespace
    ) -> None:
        async def rebuild() -> None:
            await index.rebuild()
            await index.rebuild(shelf.namespace)
            await index.promote(shelf.namespace)
            await index.rebuild(shelf.namespace)

        await _migrate_under_load(index, shelf, rebuild)

    async def test_the_status_lists_the_indexes(self, index: Index, shelf: IndexedNamespace) -> None:
        await _put_records(shelf, 10)
        await index.promote(shelf.namespace)
        await _list_all_ids(index, shelf)

        found = [status for status in await index.status() if status.namespaces == (shelf.namespace,)]

        assert [(status.documents, status.family, status.dimension) for status in found] == [
            (10, index.family.name, index.family.dimension)
        ]
        assert [(status.failures, status.problems, status.model) for status in found] == [(0, (), "suite:model")]

    async def test_what_was_forgotten_can_begin_anew(self, index: Index, shelves: OpenIndexedNamespace) -> None:
        shelf = shelves("team")
        await _put_records(shelf, 5)
        await index.promote("team")
        await shelf.clear()
        await index.forget("team")

        await shelf.put("new", "apple", vector=direction(1))

        assert await _list_all_ids(index, shelf) == ["new"]
