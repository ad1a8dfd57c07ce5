"""Changes that are made at the same moment share an entry of the change stream: readers do not notice it."""
# a test's name is its sentence

from __future__ import annotations

import asyncio
from itertools import pairwise
from operator import itemgetter

from conformance.store.messages import take_first
from sharedmem.models import Change
from sharedmem.store import SharedMemoryStore
from sharedmem.testing.store_fixtures import StoreFixtures

ODD = [
    "1 write 3 abc",
    "1795816373989007",
    "a b",
    " ",
    "é",
    "\N{PILE OF POO}",
    "by",
    "changes",
    "-0",
    "'\"\\",
    "x" * 300,
    "%d%s",
    "0",
]


def name_of(change: Change) -> str:
    return change.key.rpartition(":")[2]


async def write_at_once(store: SharedMemoryStore, *names: str) -> dict[str, int]:
    """Write keys at the same moment; return their versions, in order."""
    versions = await asyncio.gather(*(store.write(name, name) for name in names))
    return dict(sorted(zip(names, versions, strict=True), key=itemgetter(1)))


def names(count: int) -> list[str]:
    return [f"k{number:02}" for number in range(count)]


class SharedChangeTests(StoreFixtures):
    """Watchers and consumers of changes that were made at the same moment."""

    async def test_changes_of_one_moment_are_watched_one_by_one_from_any_cursor(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore, team: SharedMemoryStore, namespace: str
    ) -> None:
        versions = await write_at_once(ada, *names(20))
        await bob.write("alone", 1)
        made = 21
        for store in (ada, bob):
            await asyncio.gather(
                *(store.append("list", number) for number in range(3)),
                *(store.hset("hash", f"f{number}", number) for number in range(3)),
                *(store.incr("count") for _ in range(3)),
                *(store.sadd("set", number) for number in range(3)),
            )
            made += 12

        changes = await take_first(made, team.watch(since=0))

        assert [(change.key, change.version) for change in changes[:20]] == [
            (f"{namespace}:ada:{name}", version) for name, version in versions.items()
        ]
        assert [change.actor for change in changes] == ["ada"] * 20 + ["bob"] + ["ada"] * 12 + ["bob"] * 12
        operations = [change.operation for change in changes]
        assert {name: operations.count(name) for name in set(operations)} == {
            "write": 21,
            **dict.fromkeys(("append", "hset", "incr", "sadd"), 6),
        }
        assert all(one.version < next_one.version for one, next_one in pairwise(changes))
        assert all(change.cursor == f"{change.version}-0" for change in changes)
        for at in range(0, made - 1, 3):
            assert await take_first(made - at - 1, team.watch(since=changes[at].cursor)) == changes[at + 1 :]
            assert await take_first(1, team.watch(since=changes[at].version)) == changes[at + 1 : at + 2]

    async def test_a_waiting_watcher_gets_all_changes_of_one_moment(
        self, ada: SharedMemoryStore, team: SharedMemoryStore
    ) -> None:
        start = await ada.write("start", 0)
        waiting = [asyncio.create_task(take_first(count, team.watch(since=start))) for count in (1, 7, 10)]
        await asyncio.sleep(0)
        written = list(await write_at_once(ada, *names(10)))

        seen = [[name_of(change) for change in await watcher] for watcher in waiting]
        assert seen == [written[:1], written[:7], written]

    async def test_a_pattern_lets_single_changes_of_one_moment_through(
        self, ada: SharedMemoryStore, team: SharedMemoryStore
    ) -> None:
        written = await write_at_once(ada, "note-1", "other", "note-2", "another", "note-3")

        changes = await take_first(3, team.watch("note-*", since=0))

        assert [name_of(change) for change in changes] == [name for name in written if name.startswith("note")]

    async def test_any_key_is_announced_as_it_is(self, ada: SharedMemoryStore, team: SharedMemoryStore) -> None:
        written = await write_at_once(ada, *ODD)

        changes = await take_first(len(ODD), team.watch(since=0))

        assert [name_of(change) for change in changes] == list(written)

    async def test_changes_of_one_moment_are_acknowledged_one_by_one(
        self, ada: SharedMemoryStore, team: SharedMemoryStore
    ) -> None:
        written = [*await write_at_once(ada, *names(6)), "alone"]
        await ada.write("alone", 1)
        written += await write_at_once(ada, "x", "y")

        async with team.consumer("indexers", "one", since=0) as one, team.consumer("indexers", "two") as two:
            found = await take_first(9, aiter(one))
            assert [name_of(change) for change in found] == written
            assert await one.pending() == 9
            assert await one.ack(*found[::2]) == 5
            assert await two.pending() == 4
            assert await two.ack(*found) == 4
            assert (await one.pending(), await two.ack(*found)) == (0, 0)

    async def test_what_a_dead_consumer_did_not_acknowledge_of_one_moment_goes_to_another(
        self, ada: SharedMemoryStore, team: SharedMemoryStore
    ) -> None:
        written = list(await write_at_once(ada, *names(8)))
        async with team.consumer("indexers", "dead", since=0) as dead:
            held = await take_first(3, aiter(dead))
            await dead.ack(held[0], held[2])

        async with team.consumer("indexers", "heir", idle=0.001) as heir:
            inherited = []
            for _ in range(6):
                inherited += await take_first(1, aiter(heir))
                assert await heir.ack(inherited[-1]) == 1
            assert inherited[0] == held[1]
            assert [name_of(change) for change in inherited] == [written[1], *written[3:]]
            assert await heir.pending() == 0

    async def test_a_consumer_that_restarts_gets_the_rest_of_one_moment_in_order(
        self, ada: SharedMemoryStore, team: SharedMemoryStore
    ) -> None:
        written = list(await write_at_once(ada, *names(6)))
        async with team.consumer("indexers", "one", since=0) as before:
            await before.ack(*await take_first(2, aiter(before)))

        async with team.consumer("indexers", "one") as after:
            await ada.write("next", 1)
            rest = await take_first(5, aiter(after))

        assert [name_of(change) for change in rest] == [*written[2:], "next"]

    async def test_a_change_of_one_moment_becomes_a_dead_letter_alone(
        self, ada: SharedMemoryStore, team: SharedMemoryStore
    ) -> None:
        await write_at_once(ada, "good-1", "poison", "good-2")
        handled: set[str] = set()
        letters: list[Change] = []
        async with asyncio.timeout(60):
            life = 0
            while not letters or handled != {"good-1", "good-2", "more"}:
                life += 1
                async with team.consumer("workers", f"w{life}", since=0, idle=0.001, max_deliveries=3) as consumer:
                    await ada.write("more", 1)
                    [change] = await take_first(1, aiter(consumer))
                    if name_of(change) != "poison":  # else it dies of it
                        handled.add(name_of(change))
                        await consumer.ack(change)
                    letters = await consumer.dead_letters()

        [poison] = letters
        assert (name_of(poison), poison.operation, poison.actor) == ("poison", "write", "ada")

    async def test_where_one_delivery_is_allowed_no_other_change_of_the_moment_is_lost(
        self, ada: SharedMemoryStore, team: SharedMemoryStore
    ) -> None:
        await write_at_once(ada, *names(5))
        async with team.consumer("workers", "dead", since=0, max_deliveries=1) as dead:
            [held] = await take_first(1, aiter(dead))
            assert await dead.pending() == 1

        async with team.consumer("workers", "heir", idle=0.001, max_deliveries=1) as heir:
            others = []
            for _ in range(4):
                [change] = await take_first(1, aiter(heir))
                await heir.ack(change)
                others.append(name_of(change))
            while held not in await heir.dead_letters():
                await ada.write("more", 1)
                await heir.ack(*await take_first(1, aiter(heir)))

        assert sorted([name_of(held), *others]) == names(5)

    async def test_a_group_begins_after_a_change_of_one_moment(
        self, ada: SharedMemoryStore, team: SharedMemoryStore
    ) -> None:
        written, versions = zip(*(await write_at_once(ada, *names(6))).items(), strict=True)
        await ada.write("last", 1)

        for at in (0, 3, 4, 5):
            async with team.consumer(f"group-{at}", "one", since=versions[at]) as one:
                found = await take_first(6 - at, aiter(one))
                assert [name_of(change) for change in found] == [*written[at + 1 :], "last"]
                assert await one.ack(*found) == 6 - at
                assert await one.pending() == 0

    async def test_a_cleared_namespace_leaves_a_group_no_changes_of_before(
        self, ada: SharedMemoryStore, team: SharedMemoryStore
    ) -> None:
        await write_at_once(ada, *names(6))
        async with team.consumer("indexers", "one", since=0, idle=0.001) as one:
            await take_first(2, aiter(one))
            await team.clear()
            await write_at_once(ada, "new-1", "new-2")
            seen: list[str] = []
            async with asyncio.timeout(60):
                while {"new-1", "new-2"} - set(seen):
                    [change] = await take_first(1, aiter(one))
                    seen.append(name_of(change))
                    await one.ack(change)

        assert not set(seen) & set(names(6))
