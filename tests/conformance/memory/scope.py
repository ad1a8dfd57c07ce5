"""Scopes of memory: nothing is seen or written outside of them, by search, by listing or by id."""
# a test's name is its sentence

from __future__ import annotations

import asyncio

import pytest

from conformance.memory.base import MemoryFixtures, add_texts
from sharedmem.errors import AccessDeniedError, InvalidError, NotFoundError
from sharedmem.memory.memories import Memories
from sharedmem.models import MemoryItem

# Names that a search engine, or a clumsy key, could take for each other.
ALIKE = (
    "alice",
    "Alice",
    "alices",
    "alic",
    "a",
    "alice,bob",
    "alice|bob",
    "alice-bob",
    "alice bob",
    "alice:bob",
    "al:ice",
    "the",
    "user 1",
    "user 10",
    "*",
    "alice*",
    'ali"ce',
    "ali\\ce",
    "@alice",
    "élise",
)
FIELDS = ("user_id", "agent_id", "thread_id", "run_id")


class MemoryScopeTests(MemoryFixtures):
    """`within`, tenants and filters."""

    @pytest.mark.parametrize("field", FIELDS)
    async def test_each_name_sees_its_own_alone(self, memory: Memories, field: str) -> None:
        for name in ALIKE:
            await memory.within(**{field: name}).add(f"a secret of {ALIKE.index(name)}", dedup=False)

        for name in ALIKE:
            narrowed = memory.within(**{field: name})
            own = f"a secret of {ALIKE.index(name)}"
            answers = await asyncio.gather(
                narrowed.search("secret", limit=100),
                narrowed.search_keywords("secret", limit=100),
                narrowed.search_semantic(own, limit=100),
                memory.search("secret", filters={field: name}, limit=100),
            )
            assert [[hit.item.memory for hit in hits] for hits in answers] == [[own]] * 4
            assert [item.memory for item in await narrowed.list()] == [own]
            assert [item.memory async for item in narrowed.export()] == [own]
            assert (await narrowed.stats()).count == 1

    @pytest.mark.parametrize("field", FIELDS)
    async def test_ids_of_others_lead_nowhere(self, memory: Memories, field: str) -> None:
        alice, bob = memory.within(**{field: "alice"}), memory.within(**{field: "bob"})
        added = await alice.add("what alice knows")

        assert await bob.get(added.id) is None
        assert await bob.delete(added.id) is False
        with pytest.raises(NotFoundError):
            await bob.update(added.id, memory="what bob makes of it")
        assert await bob.history(added.id) == []
        with pytest.raises(NotFoundError):
            await bob.undo(added.id)
        kept = await alice.get(added.id)
        assert kept is not None
        assert kept.memory == "what alice knows"
        assert getattr(kept, field) == "alice"

    async def test_ids_of_another_tenant_lead_nowhere(self, memory: Memories, elsewhere: Memories) -> None:
        added = await elsewhere.add("what the neighbours know")

        assert await memory.get(added.id) is None
        assert await memory.delete(added.id) is False
        assert await memory.search("neighbours") == []
        assert [item.memory async for item in memory.export()] == []
        assert (await elsewhere.get(added.id)) is not None

    async def test_the_same_id_at_two_tenants_is_two_memories(self, memory: Memories, elsewhere: Memories) -> None:
        await memory.add(MemoryItem(id="same", memory="ours"))
        await elsewhere.add(MemoryItem(id="same", memory="theirs"))

        await memory.delete("same")

        kept = await elsewhere.get("same")
        assert kept is not None
        assert kept.memory == "theirs"
        assert await memory.get("same") is None

    async def test_a_namespace_and_a_user_of_one_name_are_two_things(
        self, memory: Memories, elsewhere: Memories, namespace: str
    ) -> None:
        await elsewhere.within(user_id=namespace).add("theirs")

        assert await memory.search("theirs") == []
        assert await memory.search("theirs", filters={"user_id": namespace}) == []

    async def test_another_tenants_item_is_refused(self, memory: Memories, namespace: str) -> None:
        with pytest.raises(AccessDeniedError, match=f"{namespace}0"):
            await memory.add(MemoryItem(memory="x", tenant_id=f"{namespace}0"))

        assert (await memory.stats()).count == 0

    async def test_a_filter_cannot_widen_a_scope(self, memory: Memories) -> None:
        await memory.within(user_id="alice").add("what alice knows")
        bob = memory.within(user_id="bob")
        await bob.add("what bob knows")

        assert await bob.search("knows", filters={"user_id": "alice"}) == []
        assert await bob.search("knows", filters={"user_id": ("alice", "nobody")}) == []
        hits = await bob.search("knows", filters={"user_id": ("alice", "bob")})
        assert [hit.item.memory for hit in hits] == ["what bob knows"]
        assert await bob.list({"user_id": "alice"}) == []

    async def test_what_is_added_gets_the_scope_and_cannot_contradict_it(self, memory: Memories) -> None:
        narrowed = memory.within(user_id="alice", run_id="r1")
        added = await narrowed.add("a note")

        kept = await memory.get(added.id)
        assert kept is not None
        assert (kept.user_id, kept.run_id, kept.thread_id) == ("alice", "r1", "main")
        with pytest.raises((AccessDeniedError, InvalidError)):
            await narrowed.add("another note", user_id="bob")
        assert (await memory.stats()).count == 1

    async def test_a_scope_is_narrowed_further_and_never_widened(self, memory: Memories) -> None:
        alice = memory.within(user_id="alice")

        both = alice.within(thread_id="t1")
        added = await both.add("a note")

        assert await alice.get(added.id) is not None
        assert await alice.within(thread_id="t2").get(added.id) is None
        with pytest.raises(AccessDeniedError, match="alice"):
            alice.within(user_id="bob")

    @pytest.mark.parametrize("name", ["", 7, "x" * 300])
    async def test_an_impossible_scope_is_refused(self, memory: Memories, name: str) -> None:
        with pytest.raises(InvalidError, match="user_id"):
            memory.within(user_id=name)

    async def test_threads_are_seen_within_the_scope(self, memory: Memories) -> None:
        alice, bob = memory.within(user_id="alice"), memory.within(user_id="bob")
        await alice.add("hers", thread_id="t", dedup=False)
        await bob.add("his", thread_id="t", dedup=False)

        assert [item.memory for item in await bob.recent("t")] == ["his"]
        assert [item.memory for item in await bob.recent("t", order_by="turn_index")] == ["his"]
        assert (await bob.thread_stats("t")).turn_count == 1
        assert (await memory.thread_stats("t")).turn_count == 2
        assert await alice.within(thread_id="t").recent("u") == []

    async def test_a_deletion_within_a_scope_spares_the_others(self, memory: Memories) -> None:
        alice, bob = memory.within(user_id="alice"), memory.within(user_id="bob")
        await add_texts(alice)
        await bob.add("bob's note")

        assert await bob.delete_all({}) == 1
        assert (await memory.stats()).count == 5
