"""`purge`, `open` and `close`."""
# ruff: noqa: D102  # a test's name is its sentence

from __future__ import annotations

from sharedmem.config import Settings
from sharedmem.durable.protocol import Durable, living_documents
from sharedmem.testing.durable_suite.base import NOW_MS, DurableFixtures, T, all_records_of, element, head, tombstone


class PurgeTests(DurableFixtures):
    """`purge` removes records that no reader can see, and nothing else."""

    async def _purged(self, durable: Durable, ns: str, *, tombstones_before: int = 0) -> int:
        return await durable.purge(ns, now_ms=NOW_MS, tombstones_before=tombstones_before)

    async def test_an_expired_key_goes_with_its_elements(self, durable: Durable, ns: str) -> None:
        expired = [head(f"{ns}:a", 2, type="hash", expires=NOW_MS, size=1), element(f"{ns}:a", "x", 1)]
        later = [head(f"{ns}:b", 2, type="hash", expires=NOW_MS + 1, size=1), element(f"{ns}:b", "x", 1)]
        never = [head(f"{ns}:c", 2), head(f"{ns}-2:a", 2, expires=NOW_MS)]
        await durable.put([*expired, *later, *never])
        survivors = [*later, never[0]]

        assert await self._purged(durable, ns) == 2

        # A store may drop expired documents by itself; here their expiry is in the future of the real clock.
        assert await all_records_of(durable, ns) == survivors
        assert await durable.get(f"{ns}-2:a") == never[1]

    async def test_elements_below_the_floor_go(self, durable: Durable, ns: str) -> None:
        below = [element(f"{ns}:a", "x", 4), element(f"{ns}:a", "z", 3, deleted=True, body="")]
        kept = [head(f"{ns}:a", 9, type="hash", floor=T + 5, size=1), element(f"{ns}:a", "y", 5)]
        gone = [tombstone(f"{ns}:b", 9, type="hash"), element(f"{ns}:b", "x", 8)]
        await durable.put([*below, *kept, *gone])

        assert await self._purged(durable, ns) == 3

        assert await all_records_of(durable, ns) == [*kept, gone[0]]

    async def test_what_was_cut_off_in_front_of_a_list_goes(self, durable: Durable, ns: str) -> None:
        items = [element(f"{ns}:a", f"{T + number}", number, type="list") for number in range(1, 7)]
        dead = items[4].model_copy(update={"deleted": True, "body": ""})
        kept = head(f"{ns}:a", 6, type="list", size=3, floor=T + 1)
        await durable.put([kept, *items[:4], dead, items[5]])
        before = living_documents(await durable.records(f"{ns}:a"), NOW_MS)

        assert await self._purged(durable, ns) == 2

        assert living_documents(await durable.records(f"{ns}:a"), NOW_MS) == before
        assert await all_records_of(durable, ns) == [kept, items[2], items[3], dead, items[5]]

    async def test_items_that_came_before_their_head_cost_no_older_ones(self, durable: Durable, ns: str) -> None:
        items = [element(f"{ns}:a", f"{T + number}", number, type="list") for number in (1, 2, 3)]
        await durable.put([head(f"{ns}:a", 2, type="list", size=2, floor=T + 1), *items])

        assert await self._purged(durable, ns) == 0

    async def test_other_structures_are_not_cut_to_their_size(self, durable: Durable, ns: str) -> None:
        fields = [element(f"{ns}:a", name, 1) for name in "abc"]
        await durable.put([head(f"{ns}:a", 1, type="hash", size=1), *fields])

        assert await self._purged(durable, ns) == 0

    async def test_old_tombstones_go_and_young_ones_stay(self, durable: Durable, ns: str) -> None:
        old = [tombstone(f"{ns}:a", 4), element(f"{ns}:b", "x", 4, deleted=True, body="")]
        young = [element(f"{ns}:b", "y", 5, deleted=True, body=""), tombstone(f"{ns}:c", 5)]
        kept = head(f"{ns}:b", 4, type="hash")
        await durable.put([*old, *young, kept])

        assert await self._purged(durable, ns, tombstones_before=T + 5) == 2

        assert await all_records_of(durable, ns) == [kept, *young]

    async def test_the_tombstone_of_a_key_stays_when_its_time_is_over_too(self, durable: Durable, ns: str) -> None:
        gone = tombstone(f"{ns}:a", 9, expires=NOW_MS - 1)
        await durable.put([gone])

        assert await self._purged(durable, ns, tombstones_before=T + 9) == 0
        assert await durable.get(f"{ns}:a") == gone

    async def test_many_documents_are_purged_in_one_call(self, durable: Durable, ns: str) -> None:
        expired = [head(f"{ns}:{number:04}", 1, expires=NOW_MS - 1) for number in range(400)]
        kept = head(f"{ns}:kept", 1)
        await durable.put([*expired, kept])

        assert await self._purged(durable, ns) == 400
        assert await self._purged(durable, ns) == 0
        assert await all_records_of(durable, ns) == [kept]


class OpenCloseTests(DurableFixtures):
    """`open`, `close`, `check`, `charges` and `url`."""

    async def test_closing_twice_is_fine_and_opening_again_gives_the_same_store(
        self, durable: Durable, key: str
    ) -> None:
        await durable.put([head(key, 1)])
        names = []

        for _ in range(2):
            await durable.close()
            await durable.close()
            names.append(await durable.open(create=False))

        assert names[0] == names[1] != ""
        assert await durable.get(key) == head(key, 1)

    async def test_a_healthy_store_has_nothing_to_complain_about(self, durable: Durable, key: str) -> None:
        await durable.put([head(key, 1)])

        assert await durable.check() == []

    async def test_what_was_asked_of_it_is_counted(self, durable: Durable, ns: str, key: str) -> None:
        before = durable.charges()

        await durable.put([head(key, 1)])
        await durable.get(key)
        await durable.query(ns, of_type="value")

        after = durable.charges()
        assert after.writes > before.writes
        assert after.reads > before.reads
        assert after.queries > before.queries

    def test_its_url_is_one_that_settings_take(self, durable: Durable) -> None:
        assert Settings(durable_url=durable.url).durable_url == durable.url
