"""Namespaces and rights: what there is, how much, away with it, and who may do that."""
# a test's name is its sentence

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from sharedmem.clock import new_id
from sharedmem.errors import AccessDeniedError, InvalidError
from sharedmem.hub import Hub
from sharedmem.redis.scope import Grant
from sharedmem.store import SharedMemoryStore
from sharedmem.testing.store_fixtures import StoreFixtures


class NamespaceTests(StoreFixtures):
    """A namespace as a whole."""

    async def test_keys_are_listed_by_pattern(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore, namespace: str
    ) -> None:
        for store in (ada, bob):
            await store.write_many({"note-1": 1, "note-2": 1, "other": 1})

        assert await _all(ada.keys("note-?")) == {
            f"{namespace}:{actor}:note-{number}" for actor in ("ada", "bob") for number in (1, 2)
        }
        assert await _all(ada.keys(f"{namespace}:bob:*")) == {
            f"{namespace}:bob:{key}" for key in ("note-1", "note-2", "other")
        }
        assert len(await _all(ada.keys())) == 6

    async def test_a_glob_character_in_a_key_means_itself(self, ada: SharedMemoryStore, namespace: str) -> None:
        await ada.write_many({"a[1]": 1, "a1": 1, "a\\b": 1})

        assert await _all(ada.keys("a[1]")) == {f"{namespace}:ada:a[1]"}

    async def test_usage_counts_keys_by_type(self, hub: Hub, ada: SharedMemoryStore, team: SharedMemoryStore) -> None:
        if hub.powers.server == "fakeredis":
            pytest.skip("fakeredis does not know MEMORY USAGE")
        await ada.write_many({"a": 1, "b": "x" * 1000})
        await ada.append("list", 1)
        await ada.sadd("set", 1)
        progress: list[int] = []

        usage = await team.usage(progress.append)

        assert {kind: count.keys for kind, count in usage.types.items()} == {"string": 2, "list": 1, "set": 1}
        assert usage.keys == 4
        assert usage.bytes > 1000
        assert progress[-1] == 4

    async def test_clearing_removes_every_key(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore, team: SharedMemoryStore
    ) -> None:
        await ada.write_many({f"k{number}": number for number in range(30)})
        await bob.append("list", 1)
        progress: list[int] = []

        assert await team.clear(progress.append) == 31
        assert await _all(team.keys()) == set()
        assert progress[-1] == 31
        assert await team.clear() == 0

    async def test_an_actor_clears_only_what_is_its_own(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore, namespace: str
    ) -> None:
        await ada.write("mine", 1)
        await bob.write("his", 1)

        assert await ada.clear() == 1
        assert await _all(ada.keys()) == {f"{namespace}:bob:his"}

    async def test_versions_go_on_rising_after_a_clearing(
        self, ada: SharedMemoryStore, team: SharedMemoryStore
    ) -> None:
        before = await ada.write("key", 1)
        await team.clear()

        assert await ada.write("key", 1, if_version=0) > before

    async def test_namespaces_are_listed(self, hub: Hub, ada: SharedMemoryStore, namespace: str) -> None:
        await ada.write("key", 1)

        assert namespace in await hub.namespaces()

    async def test_namespaces_do_not_see_each_other(self, hub: Hub, ada: SharedMemoryStore, namespace: str) -> None:
        # The name of one begins with the name of the other.
        neighbour = hub.store(f"{namespace}-2", actor="ada")
        await neighbour.write("key", "theirs")

        assert await ada.read("key") is None
        assert await _all(ada.keys()) == set()
        await ada.clear()
        assert await neighbour.read("key") == "theirs"
        await hub.store(f"{namespace}-2").clear()

    async def test_a_sweep_of_a_namespace_without_blobs_finds_nothing(self, team: SharedMemoryStore) -> None:
        assert await team.sweep() == 0


class AccessTests(StoreFixtures):
    """Who may do what."""

    async def test_an_actor_does_not_write_into_anothers_scope(self, ada: SharedMemoryStore, namespace: str) -> None:
        with pytest.raises(AccessDeniedError, match=f"actor 'ada' may not write '{namespace}:bob:key'"):
            await ada.write(f"{namespace}:bob:key", 1)

        assert not await ada.exists(f"{namespace}:bob:key")

    async def test_every_way_to_write_asks_for_the_right(self, ada: SharedMemoryStore, namespace: str) -> None:
        key = f"{namespace}:bob:key"
        refusals = (
            ada.write(key, 1),
            ada.write_many({"mine": 1, key: 1}),
            ada.update(key, lambda value: value),
            ada.delete(key),
            ada.expire(key, 1),
            ada.persist(key),
            ada.append(key, 1),
            ada.hset(key, "f", 1),
            ada.hdel(key, "f"),
            ada.hincrby(key, "f"),
            ada.sadd(key, 1),
            ada.srem(key, 1),
            ada.spop(key),
            ada.smove(key, "mine", 1),
            ada.smove("mine", key, 1),
            ada.incr(key),
            ada.decr(key),
        )
        for refused in refusals:
            with pytest.raises(AccessDeniedError):
                await refused

        assert await _all(ada.keys()) == set()

    async def test_every_way_to_read_asks_for_the_right(self, ada: SharedMemoryStore) -> None:
        key = "elsewhere:bob:key"
        refusals = (
            ada.read(key),
            ada.entry(key),
            ada.read_many([key]),
            ada.exists(key),
            ada.ttl(key),
            ada.read_list(key),
            ada.list_length(key),
            ada.hget(key, "f"),
            ada.hgetall(key),
            ada.smembers(key),
            ada.sismember(key, 1),
            ada.scard(key),
            _all(ada.keys("elsewhere:*")),
        )
        for refused in refusals:
            with pytest.raises(AccessDeniedError):
                await refused

    async def test_a_grant_opens_what_it_names(self, hub: Hub, namespace: str, team: SharedMemoryStore) -> None:
        other = f"{namespace}-other"
        guest = hub.store(
            other, actor="eve", grants=(f"{namespace}:shared:open-*", Grant(pattern=f"{namespace}:ada:*", writes=False))
        )
        await team.write(f"{namespace}:ada:key", "read me")

        await guest.write(f"{namespace}:shared:open-door", 1)

        assert await guest.read(f"{namespace}:ada:key") == "read me"
        for refused in (
            guest.write(f"{namespace}:ada:key", 1),
            guest.write(f"{namespace}:shared:closed", 1),
            guest.read(f"{namespace}:shared:closed"),
        ):
            with pytest.raises(AccessDeniedError):
                await refused

    async def test_a_subscriber_of_a_namespace_reads_but_does_not_write(
        self, hub: Hub, ada: SharedMemoryStore, namespace: str
    ) -> None:
        await ada.write("key", 1)
        reader = hub.store(f"{namespace}-other", actor="eve", subscribe=(namespace,))

        assert await reader.read(f"{namespace}:ada:key") == 1
        with pytest.raises(AccessDeniedError):
            await reader.write(f"{namespace}:ada:key", 2)

    async def test_the_global_namespace_is_everyones(self, ada: SharedMemoryStore, bob: SharedMemoryStore) -> None:
        key = f"global:suite:{new_id(8)}"
        await ada.write(key, 1, ttl=60)

        assert await bob.read(key) == 1
        assert await bob.delete(key)

    async def test_a_store_tells_its_rights(self, ada: SharedMemoryStore, namespace: str) -> None:
        assert ada.access.policy == "namespaced"
        assert ada.access.may("write", "key")
        assert ada.access.may("read", f"{namespace}:bob:key")
        assert not ada.access.may("write", f"{namespace}:bob:key")
        assert not ada.access.may("read", "elsewhere:bob:key")

    @pytest.mark.parametrize("name", ["", "a:b", "a b", "$a", "a*", "a{", "x" * 200])
    async def test_an_impossible_name_is_refused(self, hub: Hub, name: str) -> None:
        with pytest.raises(InvalidError, match="namespace"):
            hub.store(name)
        with pytest.raises(InvalidError, match="actor"):
            hub.store("fine", actor=name)


async def _all(keys: AsyncIterator[str]) -> set[str]:
    return {key async for key in keys}
