"""Lists, hashes, sets and counters: what is put in comes out, also when many put and take at once."""
# a test's name is its sentence

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sharedmem.errors import InvalidError, WrongTypeError
from sharedmem.store import SharedMemoryStore
from sharedmem.testing.store_fixtures import StoreFixtures

_LARGEST = 2**63 - 1


class ListTests(StoreFixtures):
    """Lists."""

    async def test_a_list_keeps_the_order_and_the_values(self, ada: SharedMemoryStore) -> None:
        values: list[Any] = ["text", 1, None, {"a": [1]}, b"\x01raw", [], ""]
        lengths = [await ada.append("list", value) for value in values]

        assert lengths == [1, 2, 3, 4, 5, 6, 7]
        assert await ada.read_list("list") == values
        assert await ada.list_length("list") == 7

    @pytest.mark.parametrize(
        ("start", "end"), [(0, -1), (2, 4), (-3, -1), (-100, 2), (3, 100), (5, 2), (100, 200), (-2, -5), (0, 0)]
    )
    async def test_a_part_of_a_list_is_read_like_in_redis(self, ada: SharedMemoryStore, start: int, end: int) -> None:
        for number in range(8):
            await ada.append("list", number)

        first = max(start + 8, 0) if start < 0 else start
        last = end + 8 if end < 0 else end
        assert await ada.read_list("list", start, end) == [n for n in range(8) if first <= n <= last]

    async def test_a_list_is_cut_to_its_newest(self, ada: SharedMemoryStore) -> None:
        for number in range(6):
            length = await ada.append("list", number, max_length=3)

        assert length == 3
        assert await ada.read_list("list") == [3, 4, 5]

    async def test_a_long_list_is_read_whole(self, ada: SharedMemoryStore) -> None:
        await asyncio.gather(*(ada.append("list", number) for number in range(1100)))

        assert sorted(await ada.read_list("list")) == list(range(1100))
        assert len(await ada.read_list("list", -1050, -1)) == 1050

    async def test_a_list_that_is_not_there_is_empty(self, ada: SharedMemoryStore) -> None:
        assert await ada.read_list("missing") == []
        assert await ada.list_length("missing") == 0

    @pytest.mark.parametrize("length", [0, -1, 1.5, True])
    async def test_an_impossible_length_is_refused(self, ada: SharedMemoryStore, length: Any) -> None:
        with pytest.raises(InvalidError, match="max_length"):
            await ada.append("list", 1, max_length=length)

        assert await ada.list_length("list") == 0

    async def test_another_type_is_no_list(self, ada: SharedMemoryStore) -> None:
        await ada.hset("hash", "field", 1)

        empty = ada.read_list("hash", 1, 0)
        for refused in (ada.append("hash", 1), ada.read_list("hash"), empty, ada.list_length("hash")):
            with pytest.raises(WrongTypeError, match="holds a hash, this call needs a list"):
                await refused


class HashTests(StoreFixtures):
    """Hashes."""

    async def test_fields_keep_their_values(self, ada: SharedMemoryStore) -> None:
        assert await ada.hset("hash", "one", 1) == 1
        assert await ada.hset("hash", mapping={"one": "uno", "raw": b"\x00", "list": [1, {}]}) == 2

        assert await ada.hget("hash", "one") == "uno"
        assert await ada.hgetall("hash") == {"one": "uno", "raw": b"\x00", "list": [1, {}]}

    async def test_a_missing_field_is_the_default(self, ada: SharedMemoryStore) -> None:
        await ada.hset("hash", "field", None)

        assert await ada.hget("hash", "field", default=7) is None
        assert await ada.hget("hash", "other", default=7) == 7
        assert await ada.hget("missing", "field") is None
        assert await ada.hgetall("missing") == {}

    async def test_a_large_hash_is_read_whole(self, ada: SharedMemoryStore) -> None:
        facts = {f"field {number}": number for number in range(1500)}
        await ada.hset("hash", mapping=facts)

        assert await ada.hgetall("hash") == facts

    async def test_fields_are_removed(self, ada: SharedMemoryStore) -> None:
        await ada.hset("hash", mapping={"a": 1, "b": 2, "c": 3})

        assert await ada.hdel("hash", "a", "b", "missing") == 2
        assert await ada.hgetall("hash") == {"c": 3}
        assert await ada.hdel("hash", "missing") == 0

    async def test_a_field_counts(self, ada: SharedMemoryStore) -> None:
        assert await ada.hincrby("hash", "count") == 1
        assert await ada.hincrby("hash", "count", -43) == -42
        assert await ada.hget("hash", "count") == -42

    async def test_a_field_that_is_no_number_does_not_count(self, ada: SharedMemoryStore) -> None:
        await ada.hset("hash", "text", "three")

        with pytest.raises(InvalidError, match="not a whole number"):
            await ada.hincrby("hash", "text")

        assert await ada.hget("hash", "text") == "three"

    async def test_a_field_and_its_value_belong_together(self, ada: SharedMemoryStore) -> None:
        for refused in (ada.hset("hash"), ada.hset("hash", "field"), ada.hset("hash", mapping={}), ada.hdel("hash")):
            with pytest.raises(InvalidError):
                await refused
        with pytest.raises(InvalidError):
            await ada.hset("hash", "", 1)

    async def test_another_type_is_no_hash(self, ada: SharedMemoryStore) -> None:
        await ada.write("value", 1)

        refusals = (
            ada.hset("value", "f", 1),
            ada.hget("value", "f"),
            ada.hgetall("value"),
            ada.hdel("value", "f"),
            ada.hincrby("value", "f"),
        )
        for refused in refusals:
            with pytest.raises(WrongTypeError, match="holds a string, this call needs a hash"):
                await refused


class SetTests(StoreFixtures):
    """Sets."""

    async def test_a_set_holds_each_member_once(self, ada: SharedMemoryStore) -> None:
        assert await ada.sadd("set", "a", 1, b"raw", ("pair", 2)) == 4
        assert await ada.sadd("set", "a", "b") == 1

        assert await ada.smembers("set") == {"a", "b", 1, b"raw", ("pair", 2)}
        assert await ada.scard("set") == 5
        assert await ada.sismember("set", ("pair", 2))
        assert not await ada.sismember("set", "1")

    async def test_members_are_removed(self, ada: SharedMemoryStore) -> None:
        await ada.sadd("set", 1, 2, 3)

        assert await ada.srem("set", 1, 2, "missing") == 2
        assert await ada.srem("set", 1) == 0
        assert await ada.smembers("set") == {3}

    async def test_of_racing_takers_exactly_one_gets_each_member(self, ada: SharedMemoryStore) -> None:
        await ada.sadd("set", *range(20))

        taken = await asyncio.gather(*(ada.spop("set") for _ in range(25)))

        assert sorted(member for member in taken if member is not None) == list(range(20))
        assert await ada.scard("set") == 0

    async def test_a_member_moves_to_another_set(self, ada: SharedMemoryStore) -> None:
        await ada.sadd("pending", "task")

        assert await ada.smove("pending", "done", "task") is True
        assert await ada.smove("pending", "done", "task") is False
        assert (await ada.smembers("pending"), await ada.smembers("done")) == (set(), {"task"})

    async def test_a_member_does_not_move_to_another_namespace(self, ada: SharedMemoryStore) -> None:
        await ada.sadd("set", 1)

        with pytest.raises(InvalidError, match="stays within the namespace"):
            await ada.smove("set", "global:news:set", 1)

    async def test_a_set_that_is_not_there_is_empty(self, ada: SharedMemoryStore) -> None:
        assert await ada.smembers("missing") == set()
        assert await ada.spop("missing") is None
        assert await ada.scard("missing") == 0
        assert not await ada.sismember("missing", 1)

    async def test_a_large_set_is_read_whole(self, ada: SharedMemoryStore) -> None:
        await ada.sadd("set", *range(1500))

        assert await ada.smembers("set") == set(range(1500))

    async def test_what_cannot_be_a_member_is_refused(self, ada: SharedMemoryStore) -> None:
        for refused in (ada.sadd("set"), ada.sadd("set", {"a": 1}), ada.srem("set"), ada.sadd("set", 1, object())):
            with pytest.raises(InvalidError):
                await refused

        assert await ada.scard("set") == 0

    async def test_another_type_is_no_set(self, ada: SharedMemoryStore) -> None:
        await ada.append("list", 1)
        await ada.sadd("set", 1)

        refusals = (
            ada.sadd("list", 1),
            ada.srem("list", 1),
            ada.smembers("list"),
            ada.scard("list"),
            ada.sismember("list", 1),
            ada.spop("list"),
            ada.smove("list", "set", 1),
        )
        for refused in refusals:
            with pytest.raises(WrongTypeError, match="holds a list, this call needs a set"):
                await refused

    async def test_a_move_into_another_type_tells_which_key_is_wrong(self, ada: SharedMemoryStore) -> None:
        await ada.append("list", 1)
        await ada.sadd("set", 1)

        with pytest.raises(WrongTypeError, match=r"ada:list'.* holds a list"):
            await ada.smove("set", "list", 1)

        assert await ada.smembers("set") == {1}


class CounterTests(StoreFixtures):
    """Counters."""

    async def test_a_counter_starts_at_zero(self, ada: SharedMemoryStore) -> None:
        assert await ada.incr("count") == 1
        assert await ada.incr("count", 41) == 42
        assert await ada.decr("count", 2) == 40
        assert await ada.read("count") == 40

    async def test_racing_counts_all_count(self, ada: SharedMemoryStore) -> None:
        numbers = await asyncio.gather(*(ada.incr("count") for _ in range(50)))

        assert sorted(numbers) == list(range(1, 51))

    async def test_a_counter_keeps_all_64_bits(self, ada: SharedMemoryStore) -> None:
        assert await ada.incr("count", _LARGEST) == _LARGEST
        with pytest.raises(InvalidError, match="range of 64-bit"):
            await ada.incr("count")

        assert await ada.read("count") == _LARGEST

    @pytest.mark.parametrize("by", [1.5, "1", True, 2**64])
    async def test_an_impossible_step_is_refused(self, ada: SharedMemoryStore, by: Any) -> None:
        with pytest.raises(InvalidError, match="by"):
            await ada.incr("count", by)

    async def test_a_value_is_no_counter(self, ada: SharedMemoryStore) -> None:
        await ada.write("value", 1)

        with pytest.raises(InvalidError, match="not a whole number"):
            await ada.incr("value")

        assert await ada.read("value") == 1

    async def test_another_type_is_no_counter(self, ada: SharedMemoryStore) -> None:
        await ada.sadd("set", 1)

        with pytest.raises(WrongTypeError, match="holds a set, this call needs a counter"):
            await ada.incr("set")

    async def test_changes_of_one_moment_are_independent(self, ada: SharedMemoryStore) -> None:
        await ada.hset("hash", "word", "text")
        before = await ada.cursor()

        results: list[Any] = await asyncio.gather(
            *(ada.append("list", number) for number in range(30)),
            ada.append("hash", 1),
            ada.hincrby("hash", "word"),
            ada.hset("hash", mapping={"a": 1, "b": 2}),
            ada.hdel("hash", "missing"),
            ada.sadd("set", "a", "b"),
            ada.srem("set", "c"),
            ada.incr("count", 2**60),
            return_exceptions=True,
        )

        wrong_type, no_number, added, *rest = results[30:]
        assert sorted(results[:30]) == list(range(1, 31))
        assert isinstance(wrong_type, WrongTypeError)
        assert isinstance(no_number, InvalidError)
        assert [added, *rest] == [2, 0, 2, 0, 2**60]
        assert sorted(await ada.read_list("list")) == list(range(30))
        changes = []
        async for change in ada.watch(since=before):
            changes.append(change)
            if len(changes) == 33:
                break
        assert sorted({change.operation for change in changes}) == ["append", "hset", "incr", "sadd"]
        assert len({change.version for change in changes}) == 33
