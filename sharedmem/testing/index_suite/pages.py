"""Records are listed in pages and counted by their tags."""
# ruff: noqa: D102  # a test's name is its sentence

from __future__ import annotations

import pytest

from sharedmem.errors import InvalidError
from sharedmem.search.filters import ALL, Every, Tagged
from sharedmem.search.protocol import Index
from sharedmem.testing.index_suite.base import IndexFixtures, Shelf

_SOME = 25


class PageTests(IndexFixtures):
    """Listing and counting."""

    async def test_pages_are_sorted_by_a_number_highest_first(self, index: Index, shelf: Shelf) -> None:
        for number in range(_SOME):
            await shelf.put(f"n{number:02}", "apple", at=(number * 7) % _SOME)
        order = sorted(range(_SOME), key=lambda number: -((number * 7) % _SOME))

        pages = [
            await index.matching(shelf.namespace, ALL, newest="at", offset=offset, limit=10)
            for offset in (0, 10, 20, 30)
        ]

        assert [id_ for page in pages for id_ in page.ids] == [f"n{number:02}" for number in order]
        assert [page.total for page in pages] == [_SOME] * 4

    async def test_times_in_milliseconds_keep_their_order(self, index: Index, shelf: Shelf) -> None:
        for number in range(3):
            await shelf.put(f"n{number}", at=1_795_245_066_123 + number)

        assert (await index.matching(shelf.namespace, ALL, newest="at")).ids == ["n2", "n1", "n0"]

    async def test_pages_in_no_order_hold_each_record_once(self, index: Index, shelf: Shelf) -> None:
        for number in range(_SOME):
            await shelf.put(f"n{number:02}", user=f"u{number % 2}")
        even = Every((Tagged("user", ("u0",)),))

        found = [await index.matching(shelf.namespace, even, offset=offset, limit=5) for offset in (0, 5, 10, 15)]

        assert sorted(id_ for page in found for id_ in page.ids) == [f"n{number:02}" for number in range(0, _SOME, 2)]

    async def test_a_page_of_nothing_still_tells_how_many_there_are(self, index: Index, shelf: Shelf) -> None:
        for number in range(3):
            await shelf.put(f"n{number}", at=number)

        assert await index.matching(shelf.namespace, ALL, limit=0) == ([], 3)
        assert await index.matching(shelf.namespace, ALL, limit=0, offset=2) == ([], 3)
        assert await index.matching(shelf.namespace, ALL, newest="at", offset=7) == ([], 3)

    async def test_what_is_no_page_is_refused(self, index: Index, shelf: Shelf) -> None:
        for offset, limit in ((-1, 5), (0, -1)):
            with pytest.raises(InvalidError, match="begin at 0"):
                await index.matching(shelf.namespace, ALL, offset=offset, limit=limit)
        with pytest.raises(InvalidError, match="at, size"):
            await index.matching(shelf.namespace, ALL, newest="user")

    async def test_records_are_counted_by_each_of_their_values(self, index: Index, shelf: Shelf) -> None:
        await shelf.put("a", user="x", tags=("red", "big"))
        await shelf.put("b", user="X", tags=("red",))
        await shelf.put("c", user="x", tags=("a,b", " odd "))
        await shelf.put("d")

        assert await index.counts(shelf.namespace, ALL, "user") == {"x": 2, "X": 1, "": 1}
        assert await index.counts(shelf.namespace, ALL, "tags") == {"red": 2, "big": 1, "a,b": 1, " odd ": 1, "": 1}
        only = Every((Tagged("user", ("x",)),))
        assert await index.counts(shelf.namespace, only, "tags") == {"red": 1, "big": 1, "a,b": 1, " odd ": 1}

    async def test_only_tags_are_counted_by(self, index: Index, shelf: Shelf) -> None:
        for field in ("at", "nothing", "terms"):
            with pytest.raises(InvalidError, match="user"):
                await index.counts(shelf.namespace, ALL, field)

    async def test_more_values_than_a_handful_are_all_counted(self, index: Index, shelf: Shelf) -> None:
        for number in range(60):
            await shelf.put(f"n{number:02}", user=f"u{number}")

        assert await index.counts(shelf.namespace, ALL, "user") == {f"u{number}": 1 for number in range(60)}
