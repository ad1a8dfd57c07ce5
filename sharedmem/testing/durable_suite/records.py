"""`put`, `get` and `records`: which document is kept, and that keys, elements and bodies come back unchanged."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

import pytest

from sharedmem.durable.json_codec import from_text, to_text
from sharedmem.durable.protocol import Durable, living_documents
from sharedmem.models import DurableRecord, Outcome
from sharedmem.redis.codec import encode
from sharedmem.testing.durable_suite.base import (
    FAR_MS,
    NOW_MS,
    SEED,
    DurableFixtures,
    T,
    all_records_of,
    element,
    head,
    sort_by_key,
    tombstone,
)

# ruff: noqa: D102  # a test's name is its sentence


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
        assert living_documents(await durable.records(key), NOW_MS) == []

    async def test_a_key_can_be_written_again_after_its_tombstone(self, durable: Durable, key: str) -> None:
        anew = head(key, 6, body='"anew"', floor=T + 5)
        await durable.put([tombstone(key, 5)])

        await durable.put([anew])

        assert await durable.get(key) == anew

    async def test_expired_documents_and_tombstones_are_still_returned(self, durable: Durable, key: str) -> None:
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
        assert (await all_records_of(durable, ns))[1:] == elements

    async def test_a_put_reaches_several_namespaces(self, durable: Durable, ns: str) -> None:
        here, there = head(f"{ns}:a", 1), head(f"{ns}-other:a", 2)

        await durable.put([here, there])

        assert await all_records_of(durable, ns) == [here]
        assert await all_records_of(durable, f"{ns}-other") == [there]


def _history(key: str) -> list[DurableRecord]:
    """Return a hash that was created, changed, deleted, created again, and changed; each record twice."""
    made = [head(key, 1, type="hash", size=1, floor=T + 1), element(key, "a", 1, body="1")]
    changed = [head(key, 3, type="hash", size=2, floor=T + 1), element(key, "b", 3, body="3")]
    anew = [head(key, 6, type="hash", size=1, floor=T + 5), element(key, "a", 6, body="6")]
    more = [head(key, 9, type="hash", size=1, floor=T + 5), element(key, "b", 8, deleted=True, body="")]
    return [*made, *changed, tombstone(key, 5, type="hash"), *anew, *more] * 2


# ruff: noqa: D102  # a test's name is its sentence


class BodyTests(DurableFixtures):
    """Keys, elements and bodies come back as they were put."""

    @pytest.mark.parametrize(
        "value",
        [
            None,
            "text with ' and \" and \\ and \u2028",
            [True, 1, 2.5, "\u0000", "\U0001f600"],
            {"nested": {"list": [1, {"deep": []}]}, "": 0},
            b"\x00\xff",
            datetime(2026, 5, 1, tzinfo=UTC),
            date(2026, 5, 1),
            time(12, 30),
            timedelta(days=-3, microseconds=1),
            UUID(int=5),
            Decimal("1.10"),
            {1, "a", b"b"},
            {1: "whole", b"raw": None},
            {"$type": "bytes", "base64": b""},
            {"huge": 2**200},
        ],
        ids=lambda value: type(value).__name__,
    )
    async def test_every_type_of_value_comes_back(self, durable: Durable, key: str, value: object) -> None:
        codec, raw = encode(value)

        await durable.put([head(key, 1, codec=codec.decode(), body=to_text(codec, raw))])

        found = await durable.get(key)
        assert found is not None
        assert from_text(found.codec.encode(), found.body) == raw

    @pytest.mark.parametrize(
        "body",
        [
            "9007199254740993",
            "-9223372036854775808",
            "18446744073709551615",
            "123456789012345678901234567890",
            "1.0",
            "-0.0",
            "1e300",
            "0.1",
            '{"price":1.0,"big":[9007199254740993]}',
            '{"b":1,"1":2}',
            '{"a": 1}',
            '{"a":1,"a":2}',
            '"\\u00e9"',
            '""',
            "null",
            "[]",
            "",
        ],
    )
    async def test_a_body_comes_back_to_the_letter(self, durable: Durable, key: str, body: str) -> None:
        await durable.put([head(key, 1, body=body)])

        assert await durable.get(key) == head(key, 1, body=body)
        assert await durable.records(key) == [head(key, 1, body=body)]

    @pytest.mark.parametrize(
        "rest",
        [
            "a:b:c",
            "a b",
            "a ",
            "A",
            "it's",
            '"quoted"',
            "back\\slash",
            "a/b",
            "a#b",
            "a?b",
            "a%2Fb",
            "a;b--",
            "a|b",
            "..",
            "ünïcode-日本語-😀",
            "e\u0301",
            "\u00e9",
        ],
    )
    async def test_unusual_keys_and_elements_are_kept_apart(self, durable: Durable, ns: str, rest: str) -> None:
        key = f"{ns}:shared:{rest}"
        own = [head(key, 1, body='"head"'), element(key, rest, 2, body='"element"')]
        others = [head(f"{ns}:shared:{near}", 1) for near in (rest.swapcase(), rest + " ", rest + "x", rest[:-1] + "_")]

        await durable.put([*own, *(other for other in others if other.key != key)])

        assert await durable.records(key) == own
        assert await durable.get(key, rest) == own[1]
        walk = await all_records_of(durable, ns)
        assert [one for one in walk if one.key == key] == own
        assert await all_records_of(durable, ns, after=(key, rest)) == walk[walk.index(own[1]) + 1 :]

    async def test_a_key_and_its_element_are_not_another_key(self, durable: Durable, ns: str) -> None:
        alike = [
            head(f"{ns}:a", 1),
            head(f"{ns}:a:b", 2),
            head(f"{ns}:a:b:c", 3),
            element(f"{ns}:a", "b", 4),
            element(f"{ns}:a", "b:c", 5),
            element(f"{ns}:a:b", "c", 6),
        ]

        await durable.put(alike)

        assert {record.stamp - T for record in await all_records_of(durable, ns)} == {1, 2, 3, 4, 5, 6}
        assert [await durable.get(one.key, one.element) for one in alike] == alike

    async def test_the_longest_key_and_a_long_element_are_kept(self, durable: Durable, ns: str) -> None:
        key = f"{ns}:shared:".ljust(510, "k") + "é"
        long = "é" * 1500
        records = [head(key, 1), element(key, long, 1), element(key, long + "!", 1), element(key, "\x00\n\t", 1)]

        await durable.put(records)

        assert len(key.encode()) == 512
        assert [await durable.get(key, one.element) for one in records] == records
        assert sort_by_key(await durable.records(key)) == sort_by_key(records)

    async def test_a_body_of_a_megabyte_is_kept(self, durable: Durable, key: str) -> None:
        big = head(key, 1, body='"' + "é" * 500_000 + '"')

        await durable.put([big])

        assert await durable.get(key) == big

    async def test_what_is_too_big_is_refused_with_a_reason_and_nobody_else(self, durable: Durable, ns: str) -> None:
        huge, small = head(f"{ns}:huge", 1, body='"' + "x" * 3_000_000 + '"'), head(f"{ns}:small", 1)

        first, second = await durable.put([huge, small])

        assert second.outcome is Outcome.STORED
        assert await durable.get(small.key) == small
        if first.outcome is Outcome.STORED:
            assert await durable.get(huge.key) == huge
        else:
            assert (first.outcome, bool(first.reason)) == (Outcome.REFUSED, True)
            assert await durable.get(huge.key) is None
