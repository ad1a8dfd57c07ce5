"""Key/value: what is written is read, under versions, on conditions, for as long as it was asked for."""
# a test's name is its sentence

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from sharedmem.errors import InvalidError, VersionConflictError, WrongTypeError
from sharedmem.hub import Hub
from sharedmem.store import SharedMemoryStore
from sharedmem.testing.store_fixtures import StoreFixtures, eventually, has_expired

_VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    2**63,
    -(2**80),
    0.1,
    "",
    "text with\nlines and ümlauts",
    [],
    {},
    [[], {}, [None]],
    {"topic": "AI", "sources": [1, 2.5, "three"], "empty": {}},
    12345678901234567,
    b"\x00\xff\n",
    datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
    date(2026, 1, 2),
    timedelta(days=-1, microseconds=7),
    UUID("12345678-1234-5678-1234-567812345678"),
    Decimal("3.140"),
    {1, "two", b"three"},
    {1: "one", "nested": {"raw": b"\x01"}},
]


def _name(value: object) -> str:
    # A set is spelled differently in every process, and several may share the tests.
    return "a set" if isinstance(value, set) else repr(value)[:30]


class ValueTests(StoreFixtures):
    """Whole values."""

    @pytest.mark.parametrize("value", _VALUES, ids=_name)
    async def test_a_value_is_read_as_it_was_written(self, ada: SharedMemoryStore, value: object) -> None:
        await ada.write("value", value)

        found = await ada.read("value", default="nothing")
        assert found == value
        assert type(found) is type(value)

    async def test_a_key_without_a_value_reads_as_the_default(self, ada: SharedMemoryStore) -> None:
        assert await ada.read("missing") is None
        assert await ada.read("missing", default=7) == 7

    async def test_a_written_none_is_a_value(self, ada: SharedMemoryStore) -> None:
        await ada.write("nothing", None)

        assert await ada.read("nothing", default="default") is None
        assert await ada.exists("nothing")

    async def test_the_last_write_wins(self, ada: SharedMemoryStore) -> None:
        for value in ("first", "second", "third"):
            await ada.write("key", value)

        assert await ada.read("key") == "third"

    async def test_an_entry_tells_who_wrote_when_and_for_how_long(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore, namespace: str
    ) -> None:
        await bob.write("plan", [1, 2], ttl=100)
        version = await bob.write("plan", [1, 2, 3], ttl=100)

        entry = await ada.entry(f"{namespace}:bob:plan")

        assert entry is not None
        assert (entry.key, entry.value, entry.version) == (f"{namespace}:bob:plan", [1, 2, 3], version)
        assert entry.actor == "bob"
        assert entry.created is not None
        assert entry.updated is not None
        assert entry.created < entry.updated
        assert entry.ttl is not None
        assert 90 < entry.ttl <= 100

    async def test_there_is_no_entry_without_a_value(self, ada: SharedMemoryStore) -> None:
        assert await ada.entry("missing") is None

    async def test_actors_of_a_namespace_read_each_other(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore, namespace: str
    ) -> None:
        await ada.write("finding", "water is wet")

        assert await bob.read("finding") is None
        assert await bob.read(f"{namespace}:ada:finding") == "water is wet"

    async def test_the_shared_scope_is_everyones(self, ada: SharedMemoryStore, bob: SharedMemoryStore) -> None:
        await ada.shared.write("topic", "tides")

        assert await bob.shared.read("topic") == "tides"

    async def test_a_deleted_value_is_gone(self, ada: SharedMemoryStore) -> None:
        await ada.write("key", 1)

        assert await ada.delete("key") is True
        assert await ada.delete("key") is False
        assert not await ada.exists("key")
        assert await ada.read("key") is None

    async def test_many_values_are_written_and_read_at_once(self, ada: SharedMemoryStore) -> None:
        versions = await ada.write_many({f"k{number}": number for number in range(250)})

        assert len(set(versions.values())) == 250
        keys = [f"k{number}" for number in range(250)]
        assert await ada.read_many(["missing", *keys]) == {key: number for number, key in enumerate(keys)}

    async def test_read_many_leaves_out_what_holds_no_value(self, ada: SharedMemoryStore) -> None:
        await ada.append("list", 1)

        assert await ada.read_many(["list", "missing"]) == {}

    async def test_write_many_writes_nothing_when_one_key_holds_a_list(self, ada: SharedMemoryStore) -> None:
        await ada.append("list", 1)

        with pytest.raises(WrongTypeError, match="holds a list"):
            await ada.write_many({"before": 1, "list": 2, "after": 3})

        assert await ada.read_many(["before", "after"]) == {}

    async def test_a_value_of_a_list_key_is_refused_with_its_type(self, ada: SharedMemoryStore) -> None:
        await ada.append("list", 1)

        for refused in (ada.read("list"), ada.write("list", 1), ada.entry("list")):
            with pytest.raises(WrongTypeError, match=r"ada:list'.* it holds a list, this call needs a value"):
                await refused

    async def test_a_large_value_is_read_as_it_was_written(self, hub: Hub, ada: SharedMemoryStore) -> None:
        large = {"text": "x" * (hub.settings.blob_threshold_bytes + 1)}
        await ada.write("large", large)

        assert await ada.read("large") == large
        assert await ada.read_many(["large"]) == {"large": large}
        await ada.write("large", "small")
        assert await ada.read("large") == "small"

    async def test_what_cannot_be_coded_is_refused_and_changes_nothing(self, ada: SharedMemoryStore) -> None:
        await ada.write("key", "before")

        with pytest.raises(InvalidError, match=r"value\.findings\[1\]\.when"):
            await ada.write("key", {"findings": [1, {"when": object()}]})

        assert await ada.read("key") == "before"

    @pytest.mark.parametrize("key", ["", "a{b", "a}b", "a\nb", ":a", "a:", "a::b", "x" * 513, "\x00"])
    async def test_an_impossible_key_is_refused(self, ada: SharedMemoryStore, key: str) -> None:
        with pytest.raises(InvalidError):
            await ada.write(key, 1)
        with pytest.raises(InvalidError):
            await ada.read(key)

    async def test_the_keys_of_the_service_are_refused(self, team: SharedMemoryStore, namespace: str) -> None:
        with pytest.raises(InvalidError, match="reserved for sharedmem"):
            await team.write(f"{namespace}:$clock", 1)


class ConditionTests(StoreFixtures):
    """Versions, and writes that depend on them."""

    async def test_each_write_has_a_higher_version(self, ada: SharedMemoryStore, bob: SharedMemoryStore) -> None:
        versions = [await store.write("key", 1) for store in (ada, bob, ada, ada, bob)]

        assert versions == sorted(set(versions))

    async def test_versions_of_racing_writes_are_unique(self, ada: SharedMemoryStore) -> None:
        versions = await asyncio.gather(*(ada.write(f"k{number % 7}", number) for number in range(100)))

        assert len(set(versions)) == 100

    async def test_a_deleted_key_never_gets_an_old_version_again(self, ada: SharedMemoryStore) -> None:
        before = await ada.write("key", 1)
        await ada.delete("key")

        assert await ada.write("key", 1) > before

    async def test_a_write_over_the_expected_version_succeeds(self, ada: SharedMemoryStore) -> None:
        version = await ada.write("key", 1, if_version=0)
        await ada.write("key", 2, if_version=version)

        assert await ada.read("key") == 2

    async def test_a_write_over_another_version_tells_the_current_one(self, ada: SharedMemoryStore) -> None:
        old = await ada.write("key", 1)
        current = await ada.write("key", 2)

        with pytest.raises(VersionConflictError) as caught:
            await ada.write("key", 3, if_version=old)

        assert (caught.value.expected, caught.value.current) == (old, current)
        assert await ada.read("key") == 2

    async def test_version_zero_means_that_there_must_be_no_value(self, ada: SharedMemoryStore) -> None:
        await ada.write("key", 1)

        with pytest.raises(VersionConflictError, match="expected no value"):
            await ada.write("key", 2, if_version=0)

    async def test_a_version_of_a_deleted_value_is_none_any_more(self, ada: SharedMemoryStore) -> None:
        version = await ada.write("key", 1)
        await ada.delete("key")

        with pytest.raises(VersionConflictError, match="holds no value"):
            await ada.write("key", 2, if_version=version)

    async def test_of_racing_claims_exactly_one_wins(self, ada: SharedMemoryStore, namespace: str) -> None:
        key = f"{namespace}:shared:claim"
        claims = (ada.write(key, number, if_version=0) for number in range(20))
        outcomes = await asyncio.gather(*claims, return_exceptions=True)

        winners = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, int)]
        assert len(winners) == 1
        assert sum(isinstance(outcome, VersionConflictError) for outcome in outcomes) == 19
        assert await ada.read(key) == winners[0]

    @pytest.mark.parametrize("version", [-1, 1.5, "1", True])
    async def test_what_is_no_version_is_refused(self, ada: SharedMemoryStore, version: Any) -> None:
        with pytest.raises(InvalidError, match="if_version"):
            await ada.write("key", 1, if_version=version)

    async def test_update_changes_what_is_there(self, ada: SharedMemoryStore) -> None:
        await ada.write("log", ["a"])

        written = await ada.update("log", lambda log: [*log, "b"])

        assert written == ["a", "b"]
        assert await ada.read("log") == ["a", "b"]

    async def test_update_begins_with_the_default(self, ada: SharedMemoryStore) -> None:
        assert await ada.update("count", lambda count: count + 1, default=41) == 42

    async def test_updates_that_race_all_count(self, ada: SharedMemoryStore) -> None:
        await asyncio.gather(*(ada.update("count", lambda count: count + 1, default=0) for _ in range(15)))

        assert await ada.read("count") == 15

    async def test_an_update_keeps_the_expiry(self, ada: SharedMemoryStore) -> None:
        await ada.write("key", 1, ttl=100)
        await ada.update("key", lambda value: value + 1)

        assert 90 < (await ada.ttl("key") or 0) <= 100

    async def test_a_failing_update_changes_nothing(self, ada: SharedMemoryStore) -> None:
        await ada.write("key", 1)

        with pytest.raises(TypeError):
            await ada.update("key", lambda value: value + "text")

        assert await ada.read("key") == 1


class LifetimeTests(StoreFixtures):
    """How long things live."""

    async def test_what_has_a_ttl_expires(self, ada: SharedMemoryStore) -> None:
        await ada.write("key", 1, ttl=0.05)

        await eventually(lambda: has_expired(ada, "key"))
        assert await ada.read("key") is None

    async def test_a_write_without_a_ttl_ends_an_older_one(self, ada: SharedMemoryStore) -> None:
        await ada.write("key", 1, ttl=100)
        await ada.write("key", 2)

        assert await ada.ttl("key") is None

    async def test_an_expiry_can_be_given_and_taken_away(self, ada: SharedMemoryStore) -> None:
        await ada.write("key", 1)

        assert await ada.expire("key", 100) is True
        assert 90 < (await ada.ttl("key") or 0) <= 100
        assert await ada.persist("key") is True
        assert await ada.ttl("key") is None
        assert await ada.persist("key") is False

    async def test_what_is_not_there_cannot_expire(self, ada: SharedMemoryStore) -> None:
        assert await ada.expire("missing", 100) is False
        assert await ada.persist("missing") is False
        assert await ada.ttl("missing") is None

    async def test_lists_hashes_sets_and_counters_expire_too(self, ada: SharedMemoryStore) -> None:
        await ada.append("list", 1, ttl=100)
        await ada.hset("hash", "field", 1, ttl=100)
        await ada.sadd("set", 1, ttl=100)
        await ada.incr("counter", ttl=100)

        for key in ("list", "hash", "set", "counter"):
            assert 90 < (await ada.ttl(key) or 0) <= 100, key

    @pytest.mark.parametrize("ttl", [0, -1, float("nan"), float("inf"), 1e12, True, "5"])
    async def test_an_impossible_ttl_is_refused(self, ada: SharedMemoryStore, ttl: Any) -> None:
        with pytest.raises(InvalidError, match="ttl"):
            await ada.write("key", 1, ttl=ttl)

        assert not await ada.exists("key")

    async def test_a_memory_kind_sets_the_default_life(self, hub: Hub, ada: SharedMemoryStore) -> None:
        await ada.write("note", 1, kind="ephemeral")
        await ada.write("chat", 1, kind="session")
        await ada.write("fact", 1, kind="knowledge")

        assert 0 < (await ada.ttl("note") or 0) <= hub.settings.ephemeral_ttl_s
        assert hub.settings.ephemeral_ttl_s < (await ada.ttl("chat") or 0) <= hub.settings.session_ttl_s
        assert await ada.ttl("fact") is None

    async def test_an_unknown_kind_is_refused(self, ada: SharedMemoryStore) -> None:
        with pytest.raises(InvalidError, match="kind"):
            await ada.write("key", 1, kind="forever")
