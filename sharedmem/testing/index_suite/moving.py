"""A namespace that moves, or whose index is built anew, is searched as if nothing happened."""
# ruff: noqa: D102  # a test's name is its sentence

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

from sharedmem.search.filters import ALL
from sharedmem.search.protocol import Index, Query
from sharedmem.testing.index_suite.base import IndexFixtures, Shelf, Shelves, direction, ids

_RECORDS = 120
_WRITES = 60
_MOST_WRITES = 300


async def _fill(shelf: Shelf, count: int = _RECORDS) -> list[str]:
    for number in range(count):
        await shelf.put(f"n{number:03}", "apple", user=f"u{number % 3}", vector=direction(1, number / 100), at=number)
    return [f"n{number:03}" for number in range(count)]


async def _all_of(index: Index, shelf: Shelf) -> list[str]:
    """Everything that is found, by each way."""
    found = await index.search(shelf.namespace, Query(("appl",), vector=direction(1), candidates=500))
    page = await index.matching(shelf.namespace, ALL, limit=500)
    assert sorted(ids(found.text)) == sorted(ids(found.vector)) == sorted(page.ids)
    assert page.total == len(page.ids)
    return sorted(page.ids)


async def _while_it_is_used(index: Index, shelf: Shelf, move: Callable[[], Awaitable[None]]) -> None:
    """Move under writes and searches: nothing that was written is lost to a search, and nothing is found twice."""
    written = await _fill(shelf)
    moving = True

    async def write() -> None:
        number = 0
        while moving or number < _WRITES:
            if number < _MOST_WRITES:
                await shelf.put(f"w{number:04}", "apple", vector=direction(1, number / 100), at=number)
                written.append(f"w{number:04}")
            # Also a change of what was there before.
            await shelf.put(f"n{number % _RECORDS:03}", "apple", vector=direction(1, number / 100), at=number)
            number += 1

    async def search() -> None:
        while moving:
            before = set(written)
            found = await index.search(shelf.namespace, Query(("appl",), vector=direction(1), candidates=1000))
            for hits in (ids(found.text), ids(found.vector)):
                assert before <= set(hits)
                assert not [id_ for id_, times in Counter(hits).items() if times > 1]

    async with asyncio.TaskGroup() as group:
        group.create_task(write())
        group.create_task(search())
        await move()
        moving = False
    assert await _all_of(index, shelf) == sorted(written)


class MovingTests(IndexFixtures):
    """Promotion, rebuilding, and what they leave."""

    async def test_a_promoted_namespace_finds_what_it_found_before(self, index: Index, shelves: Shelves) -> None:
        shelf, other = shelves("team"), shelves("other")
        expected = await _fill(shelf)
        await other.put("x", "apple", vector=direction(1))
        before = await index.search("team", Query(("appl",), vector=direction(1), candidates=500))

        await index.promote("team")

        assert await _all_of(index, shelf) == expected
        assert await _all_of(index, other) == ["x"]
        after = await index.search("team", Query(("appl",), vector=direction(1), candidates=500))
        assert ids(after.text) == ids(before.text)
        assert after.vector == before.vector

    async def test_a_promoted_namespace_takes_changes(self, index: Index, shelf: Shelf) -> None:
        await _fill(shelf, 10)
        await index.promote(shelf.namespace)

        await shelf.put("new", "apple", vector=direction(1))
        await shelf.delete("n003")

        expected = sorted([*(f"n{number:03}" for number in range(10) if number != 3), "new"])
        assert await _all_of(index, shelf) == expected

    async def test_promoting_again_changes_nothing(self, index: Index, shelf: Shelf) -> None:
        expected = await _fill(shelf, 10)

        for _ in range(3):
            await index.promote(shelf.namespace)

        assert await _all_of(index, shelf) == expected

    async def test_promotion_tells_how_far_it_is(self, index: Index, shelf: Shelf) -> None:
        await _fill(shelf, 10)
        told: list[tuple[int, int]] = []

        await index.promote(shelf.namespace, progress=lambda done, total: told.append((done, total)))

        assert [done for done, _ in told] == sorted(done for done, _ in told)
        assert all(done <= total for done, total in told)
        assert not told or told[-1][0] == told[-1][1]

    async def test_an_empty_namespace_can_be_promoted(self, index: Index, shelf: Shelf) -> None:
        await index.promote(shelf.namespace)
        await shelf.put("a", "apple", vector=direction(1))

        assert await _all_of(index, shelf) == ["a"]

    async def test_nothing_is_lost_or_doubled_while_a_namespace_is_promoted(self, index: Index, shelf: Shelf) -> None:
        async def promote() -> None:
            await index.promote(shelf.namespace)

        await _while_it_is_used(index, shelf, promote)

    async def test_nothing_is_lost_or_doubled_while_the_index_is_rebuilt(self, index: Index, shelf: Shelf) -> None:
        async def rebuild() -> None:
            await index.rebuild()
            await index.rebuild(shelf.namespace)
            await index.promote(shelf.namespace)
            await index.rebuild(shelf.namespace)

        await _while_it_is_used(index, shelf, rebuild)

    async def test_the_status_tells_what_there_is(self, index: Index, shelf: Shelf) -> None:
        await _fill(shelf, 10)
        await index.promote(shelf.namespace)
        await _all_of(index, shelf)

        found = [status for status in await index.status() if status.namespaces == (shelf.namespace,)]

        assert [(status.documents, status.family, status.dimension) for status in found] == [
            (10, index.family.name, index.family.dimension)
        ]
        assert [(status.failures, status.problems, status.model) for status in found] == [(0, (), "suite:model")]

    async def test_what_was_forgotten_can_begin_anew(self, index: Index, shelves: Shelves) -> None:
        shelf = shelves("team")
        await _fill(shelf, 5)
        await index.promote("team")
        await shelf.clear()
        await index.forget("team")

        await shelf.put("new", "apple", vector=direction(1))

        assert await _all_of(index, shelf) == ["new"]
