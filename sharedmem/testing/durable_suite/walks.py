"""`iterate`, `highest` and `namespaces`: all there is, in order."""
# ruff: noqa: D102  # a test's name is its sentence

from __future__ import annotations

import random

import pytest

from sharedmem.durable.protocol import Durable
from sharedmem.models import DurableRecord
from sharedmem.testing.durable_suite.base import (
    FAR_MS,
    SEED,
    DurableFixtures,
    T,
    element,
    everything_of,
    head,
    tombstone,
)


class WalkTests(DurableFixtures):
    """`iterate`, `highest` and `namespaces`."""

    @pytest.fixture
    async def records(self, durable: Durable, ns: str) -> list[DurableRecord]:
        """A dozen documents in the order in which they are told; some are tombstones, some expired."""
        records = [
            head(f"{ns}:a:1", 5),
            element(f"{ns}:a:1", "x", 4),
            element(f"{ns}:a:1", "y", 3, deleted=True, body=""),
            tombstone(f"{ns}:a:2", 8),
            element(f"{ns}:b", "only", 7),
            head(f"{ns}:c", 6, expires=FAR_MS),
            element(f"{ns}:c", "z", 6, expires=FAR_MS),
        ]
        shuffled = random.Random(SEED).sample(records, len(records))  # noqa: S311  # no secret
        await durable.put([*shuffled, head(f"{ns}-2:a", 99), head(f"{ns[:-1]}:a", 99)])
        return records

    async def test_every_document_comes_once_and_in_order(
        self, durable: Durable, ns: str, records: list[DurableRecord]
    ) -> None:
        assert await everything_of(durable, ns) == records

    async def test_a_walk_goes_on_behind_any_document(
        self, durable: Durable, ns: str, records: list[DurableRecord]
    ) -> None:
        for number, record in enumerate(records, start=1):
            assert await everything_of(durable, ns, after=(record.key, record.element)) == records[number:]

    async def test_a_walk_goes_on_where_a_document_is_gone(
        self, durable: Durable, ns: str, records: list[DurableRecord]
    ) -> None:
        assert await everything_of(durable, ns, after=(f"{ns}:a:1", "w")) == records[1:]
        assert await everything_of(durable, ns, after=(f"{ns}:a:1", "xx")) == records[2:]
        assert await everything_of(durable, ns, after=(f"{ns}:zzz", "")) == []

    async def test_only_what_changed_after_a_stamp_is_told(
        self, durable: Durable, ns: str, records: list[DurableRecord]
    ) -> None:
        assert await everything_of(durable, ns, changed_after=T + 5) == [one for one in records if one.stamp > T + 5]
        assert await everything_of(durable, ns, changed_after=T + 8) == []

    async def test_only_heads_are_told_when_asked(
        self, durable: Durable, ns: str, records: list[DurableRecord]
    ) -> None:
        heads = [one for one in records if one.is_head]

        assert await everything_of(durable, ns, heads_only=True) == heads
        assert (
            await everything_of(durable, ns, heads_only=True, changed_after=T + 5, after=(heads[0].key, ""))
            == heads[1:]
        )

    async def test_a_long_walk_comes_in_pages_and_misses_nothing(self, durable: Durable, ns: str) -> None:
        records = [head(f"{ns}:{number:05}", number, body=str(number)) for number in range(1300)]
        for start in range(0, len(records), 500):
            await durable.put(records[start : start + 500])

        pages = [page async for page in durable.iterate(ns)]

        assert all(pages)
        assert [record for page in pages for record in page] == records

    async def test_a_walk_may_be_left_in_the_middle(
        self, durable: Durable, ns: str, records: list[DurableRecord]
    ) -> None:
        async for page in durable.iterate(ns):
            assert page[0] == records[0]
            break

        assert await everything_of(durable, ns) == records

    async def test_a_namespace_without_documents_has_no_pages(self, durable: Durable, ns: str) -> None:
        assert [page async for page in durable.iterate(ns)] == []

    async def test_the_highest_stamp_of_a_namespace_counts_tombstones_and_elements(
        self, durable: Durable, ns: str, key: str
    ) -> None:
        highest = [await durable.highest(ns)]
        for record in (head(key, 5), element(key, "a", 6), tombstone(key, 9), head(key, 7), head(f"{ns}-2:a", 50)):
            await durable.put([record])
            highest.append(await durable.highest(ns))

        assert highest == [0, T + 5, T + 6, T + 9, T + 9, T + 9]

    async def test_the_namespaces_are_told_in_order(self, durable: Durable, ns: str) -> None:
        names = [f"{ns}-b", f"{ns}-B", f"{ns}", f"{ns}-a"]

        await durable.put([head(f"{name}:x", 1) for name in [*names, f"${ns}"]] * 2)

        assert all("$" not in name for name in await durable.namespaces())
        assert [name for name in await durable.namespaces() if name.startswith(ns)] == sorted(names)
