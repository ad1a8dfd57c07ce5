"""Keys, elements and bodies come back as they were put."""
# ruff: noqa: D102  # a test's name is its sentence

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

import pytest

from sharedmem.durable.protocol import Durable
from sharedmem.durable.texts import from_text, to_text
from sharedmem.models import Outcome
from sharedmem.testing.durable_suite.base import (
    DurableFixtures,
    T,
    by_place,
    element,
    everything_of,
    head,
)
from sharedmem.wire.codec import encode


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
        walk = await everything_of(durable, ns)
        assert [one for one in walk if one.key == key] == own
        assert await everything_of(durable, ns, after=(key, rest)) == walk[walk.index(own[1]) + 1 :]

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

        assert {record.stamp - T for record in await everything_of(durable, ns)} == {1, 2, 3, 4, 5, 6}
        assert [await durable.get(one.key, one.element) for one in alike] == alike

    async def test_the_longest_key_and_a_long_element_are_kept(self, durable: Durable, ns: str) -> None:
        key = f"{ns}:shared:".ljust(510, "k") + "é"
        long = "é" * 1500
        records = [head(key, 1), element(key, long, 1), element(key, long + "!", 1), element(key, "\x00\n\t", 1)]

        await durable.put(records)

        assert len(key.encode()) == 512
        assert [await durable.get(key, one.element) for one in records] == records
        assert by_place(await durable.records(key)) == by_place(records)

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
