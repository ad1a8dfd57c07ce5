"""`put`, `get` and `records`: which document stays."""
# ruff: noqa: D102  # a test's name is its sentence

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime

from sharedmem.durable.living import living
from sharedmem.durable.protocol import Durable
from sharedmem.models import DurableRecord, Outcome
from sharedmem.testing.durable_suite.base import (
    FAR_MS,
    NOW_MS,
    SEED,
    DurableFixtures,
    T,
    element,
    everything_of,
    head,
    tombstone,
)


class PutTests(DurableFixtures):
    """`put`, `get` and `records`."""

    async def test_a_document_comes_back_with_every_field(self, durable: Durable, key: str) -> None:
        whole = DurableRecord(
            key=key,
            element="field",
            type="hash",
            kind="session",
            version=T + 1,
            stamp=T + 2,
            floor=0,
            size=0,
            created=T,
            expires=FAR_MS,
            actor="ada",
            codec="msgpack",
            body='{"$type":"bytes","base64":"AA=="}',
        )
        of_list = head(key, 3, type="list", floor=T, size=12, expires=FAR_MS, kind="log", version=T + 2)

        assert [put.outcome for put in await durable.put([whole, of_list])] == [Outcome.STORED] * 2

        assert await durable.get(key, "field") == whole
        assert await durable.get(key) == of_list
        assert await durable.records(key) == [of_list, whole]

    async def test_what_was_never_put_is_not_there(self, durable: Durable, ns: str, key: str) -> None:
        await durable.put([element(key, "field", 1)])

        assert await durable.get(key) is None
        assert await durable.get(key, "fiel") is None
        assert await durable.get(f"{ns}:shared") is None
        assert await durable.records(f"{ns}:shared:not") == []

    async def test_nothing_put_is_nothing_answered(self, durable: Durable) -> None:
        assert await durable.put([]) == []

    async def test_a_newer_document_replaces_an_older_one(self, durable: Durable, key: str) -> None:
        newer = head(key, 2, body='"new"', expires=0, actor="bob", kind="session")
        await durable.put([head(key, 1, body='"old"', expires=FAR_MS)])

        (put,) = await durable.put([newer])

        assert put.outcome is Outcome.STORED
        assert await durable.get(key) == newer

    async def test_an_older_document_never_replaces_a_newer_one(self, durable: Durable, key: str) -> None:
        newer = head(key, 2, body='"new"')
        await durable.put([newer, element(key, "a", 5, body="5")])

        puts = await durable.put([head(key, 1, body='"old"'), element(key, "a", 4, body="4")])

        assert [put.outcome for put in puts] == [Outcome.OLDER] * 2
        assert await durable.records(key) == [newer, element(key, "a", 5, body="5")]

    async def test_a_document_put_again_counts_as_stored(self, durable: Durable, key: str) -> None:
        record = head(key, 1, body='"text"')
        await durable.put([record])

        (again,) = await durable.put([record])

        assert again.outcome is Outcome.STORED
        assert await durable.get(key) == record

    async def test_of_two_in_one_put_the_newer_stays(self, durable: Durable, key: str) -> None:
        old, new = element(key, "a", 1, body="1"), element(key, "a", 2, body="2")

        first = await durable.put([old, new])
        second = await durable.put([new, old])

        assert first[1].outcome is second[0].outcome is Outcome.STORED
        assert second[1].outcome is Outcome.OLDER
        assert await durable.get(key, "a") == new

    async def test_the_stamp_decides_and_not_the_version(self, durable: Durable, key: str) -> None:
        await durable.put([head(key, 9, version=T + 1, expires=FAR_MS)])

        (put,) = await durable.put([head(key, 5, version=T + 5)])

        found = await durable.get(key)
        assert put.outcome is Outcome.OLDER
        assert found is not None
        assert (found.version, found.expires) == (T + 1, FAR_MS)

    async def test_a_late_older_head_still_raises_the_floor(self, durable: Durable, key: str) -> None:
        newer = head(key, 9, type="hash", floor=T + 2, size=3)
        await durable.put([newer])

        (late,) = await durable.put([tombstone(key, 7)])

        assert late.outcome is Outcome.OLDER
        assert await durable.get(key) == newer.model_copy(update={"floor": T + 7})

    async def test_a_newer_head_never_lowers_the_floor(self, durable: Durable, key: str) -> None:
        newer = head(key, 9, type="hash", floor=T + 2)
        await durable.put([tombstone(key, 7)])

        await durable.put([newer])

        assert await durable.get(key) == newer.model_copy(update={"floor": T + 7})

    async def test_a_late_head_with_a_lower_floor_changes_nothing(self, durable: Durable, key: str) -> None:
        newer = head(key, 9, type="hash", floor=T + 8)
        await durable.put([newer])

        await durable.put([head(key, 7, type="hash", floor=T + 6)])

        assert await durable.get(key) == newer

    async def test_a_tombstone_wins_over_what_comes_later_and_is_older(self, durable: Durable, key: str) -> None:
        gone = tombstone(key, 5)
        await durable.put([gone])

        (put,) = await durable.put([head(key, 4, body='"late"')])

        assert put.outcome is Outcome.OLDER
        assert await durable.get(key) == gone
        assert living(await durable.records(key), NOW_MS) == []

    async def test_a_key_can_be_written_again_after_its_tombstone(self, durable: Durable, key: str) -> None:
        anew = head(key, 6, body='"anew"', floor=T + 5)
        await durable.put([tombstone(key, 5)])

        await durable.put([anew])

        assert await durable.get(key) == anew

    async def test_expired_documents_and_tombstones_are_still_told(self, durable: Durable, key: str) -> None:
        expired = head(key, 1, expires=int(datetime.now(UTC).timestamp() * 1000) - 1000)
        gone = element(key, "a", 1, deleted=True, body="")

        await durable.put([expired, gone])

        assert await durable.get(key) == expired
        assert await durable.records(key) == [expired, gone]

    async def test_any_order_of_the_same_records_gives_the_same_documents(self, durable: Durable, ns: str) -> None:
        chance = random.Random(SEED)  # noqa: S311  # no secret
        outcomes = set()
        for attempt in range(12):
            key = f"{ns}:shared:order-{attempt}"
            records = _history(key)
            chance.shuffle(records)
            for start in range(0, len(records), 3):
                await durable.put(records[start : start + 3])
            outcomes.add(tuple(one.model_copy(update={"key": ""}) for one in await durable.records(key)))

        (only,) = outcomes
        assert [one.stamp - T for one in only] == [9, 6, 8]
        assert only[0].floor == T + 5

    async def test_many_writers_of_one_document_leave_the_newest(self, durable: Durable, key: str) -> None:
        stamps = list(range(1, 61))
        random.Random(SEED).shuffle(stamps)  # noqa: S311  # no secret

        await asyncio.gather(*(durable.put([head(key, stamp, body=str(stamp))]) for stamp in stamps))

        assert await durable.get(key) == head(key, 60, body="60")

    async def test_five_hundred_records_can_be_put_at_once(self, durable: Durable, ns: str, key: str) -> None:
        elements = [element(key, f"{number:04}", number, body=str(number)) for number in range(499)]

        puts = await durable.put([head(key, 499, type="hash", size=499), *elements])

        assert [put.outcome for put in puts] == [Outcome.STORED] * 500
        assert (await durable.records(key))[1:] == elements
        assert (await everything_of(durable, ns))[1:] == elements

    async def test_a_put_reaches_several_namespaces(self, durable: Durable, ns: str) -> None:
        here, there = head(f"{ns}:a", 1), head(f"{ns}-other:a", 2)

        await durable.put([here, there])

        assert await everything_of(durable, ns) == [here]
        assert await everything_of(durable, f"{ns}-other") == [there]


def _history(key: str) -> list[DurableRecord]:
    """A hash that was made, changed, deleted, made anew, and changed; each record twice."""
    made = [head(key, 1, type="hash", size=1, floor=T + 1), element(key, "a", 1, body="1")]
    changed = [head(key, 3, type="hash", size=2, floor=T + 1), element(key, "b", 3, body="3")]
    anew = [head(key, 6, type="hash", size=1, floor=T + 5), element(key, "a", 6, body="6")]
    more = [head(key, 9, type="hash", size=1, floor=T + 5), element(key, "b", 8, deleted=True, body="")]
    return [*made, *changed, tombstone(key, 5, type="hash"), *anew, *more] * 2
