"""docs/durable-format.md: memories outlive Redis, and are all there again before one is looked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError
from support import durable_hub_fixtures
from support.contexts import tier_of
from support.durable_graphs import drain_and_flush
from support.waiting import wait_until

from sharedmem import Hub, Settings, SharedMemoryStore, UnavailableError
from sharedmem.models import DurableRecord
from sharedmem.providers.local_embedders import HashingEmbedder
from sharedmem.redis.keys import KeySpace
from sharedmem.testing import fake_hub

data_dir = durable_hub_fixtures.data_dir
settings = durable_hub_fixtures.settings
hub = durable_hub_fixtures.hub
store = durable_hub_fixtures.store
SPACE = KeySpace("sm", client="any")


async def texts(store: SharedMemoryStore, query: str) -> list[str]:
    return [hit.item.memory for hit in await store.memory.search(query)]


async def test_memories_are_found_again_after_redis_has_lost_everything(hub: Hub, store: SharedMemoryStore) -> None:
    added = await store.memory.add("the harbour master owns the tide table", category="port", tags=["tides"])
    await store.memory.add("invoices are paid on Fridays", category="money")
    before = await store.memory.get(added.id)
    await drain_and_flush(hub)

    assert (await texts(store, "who owns the tide table"))[0] == "the harbour master owns the tide table"
    assert await store.memory.get(added.id) == before
    assert [hit.item.id for hit in await store.memory.search("table", filters={"tags": "tides"})] == [added.id]


async def test_a_memory_taken_by_its_id_is_there_after_a_loss(hub: Hub, store: SharedMemoryStore) -> None:
    added = await store.memory.add("the harbour master owns the tide table")
    await drain_and_flush(hub)

    found = await store.memory.get(added.id)

    assert found is not None
    assert found.memory == "the harbour master owns the tide table"


async def test_merged_duplicates_stay_merged_after_a_loss(hub: Hub, store: SharedMemoryStore) -> None:
    for text in ("the harbour master owns the tide table", "The harbour master owns the tide table!"):
        await store.memory.add(text, dedup=False)
    await store.memory.merge_duplicates()
    await drain_and_flush(hub)

    (item,) = [one async for one in store.memory.export()]

    assert (item.memory, item.occurrences) == ("the harbour master owns the tide table", 2)


async def test_what_is_added_again_after_a_loss_is_no_second_memory(hub: Hub, store: SharedMemoryStore) -> None:
    added = await store.memory.add("the harbour master owns the tide table")
    await drain_and_flush(hub)

    again = await store.memory.add("the harbour master owns the tide table")

    assert (again.id, again.merged) == (added.id, True)
    assert (await store.memory.stats()).count == 1


async def test_what_was_deleted_or_has_changed_is_as_it_was_last(hub: Hub, store: SharedMemoryStore) -> None:
    gone = await store.memory.add("the crane is broken")
    kept = await store.memory.add("invoices are paid on Fridays")
    await store.memory.update(kept.id, memory="invoices are paid on Mondays")
    await store.memory.delete(gone.id)
    await drain_and_flush(hub)

    assert await texts(store, "crane broken invoices paid") == ["invoices are paid on Mondays"]
    assert (await store.memory.update(kept.id, memory="invoices are paid daily")).memory == "invoices are paid daily"


async def test_what_expires_still_does_so_after_a_loss(hub: Hub, store: SharedMemoryStore) -> None:
    added = await store.memory.add("lunch is at noon", ttl=3600)
    short = await store.memory.add("back in a second", ttl=1)
    await drain_and_flush(hub)
    async with Redis.from_url(hub.url) as raw:

        async def is_over() -> bool:
            return await store.memory.get(short.id) is None

        await wait_until(is_over, description="the short one is over")
        assert await store.memory.get(added.id) is not None
        left_ms = await raw.pttl(SPACE.record("memory", "research", added.id))
    assert 0 < left_ms <= 3_600_000


async def test_turns_go_on_after_those_that_came_back(hub: Hub, store: SharedMemoryStore) -> None:
    for text in ("good morning", "the tide is low"):
        await store.memory.add(text, thread_id="chat", messages=[{"role": "user", "name": "Bob", "content": text}])
    await drain_and_flush(hub)

    recent = await store.memory.recent("chat")
    added = await store.memory.add("so it is", thread_id="chat")

    assert [item.memory for item in recent] == ["the tide is low", "good morning"]
    found = await store.memory.get(added.id)
    assert found is not None
    assert found.turn_index == 2
    assert (await store.memory.thread_stats("chat")).turn_count == 3


async def test_of_several_hubs_that_come_at_once_each_finds_all(settings: Settings) -> None:
    async with AsyncExitStack() as stack:
        hubs = [
            await stack.enter_async_context(Hub.open(settings=settings, embedder=HashingEmbedder())) for _ in range(3)
        ]
        await hubs[0].store("research").memory.add_many([f"fact number {number} of many" for number in range(150)])
        await drain_and_flush(hubs[0])

        counts = await asyncio.gather(*(hub.store("research").memory.stats() for hub in hubs))

    assert [one.count for one in counts] == [150] * 3


async def test_a_hub_that_believes_all_are_there_waits_for_another_that_restores_them(settings: Settings) -> None:
    async with AsyncExitStack() as stack:
        believer, restorer = [
            await stack.enter_async_context(Hub.open(settings=settings, embedder=HashingEmbedder())) for _ in range(2)
        ]
        memory = believer.store("research").memory
        await memory.add_many([f"fact number {number} of many" for number in range(150)])
        assert (await memory.stats()).count == 150
        await drain_and_flush(believer)
        first_page, go_on = asyncio.Event(), asyncio.Event()
        tier: Any = tier_of(restorer).store
        iterate = tier.iterate

        async def in_two_pages(*args: Any, **options: Any) -> AsyncIterator[list[DurableRecord]]:
            async for page in iterate(*args, **options):
                yield page[:50]
                if options.get("after"):  # it reads memories, not what it has to forget
                    first_page.set()
                    await go_on.wait()
                yield page[50:]

        tier.iterate = in_two_pages
        restoring = asyncio.create_task(restorer.store("research").memory.stats())
        await first_page.wait()
        await believer.store("elsewhere").memory.stats()  # makes the index anew that namespaces share

        looking = asyncio.gather(
            memory.stats(), memory.list(limit=200), memory.search("fact number 140", limit=1), memory.recent(limit=99)
        )
        await asyncio.wait([looking], timeout=0.5)
        go_on.set()
        stats, listed, found, recent = await looking

        assert (await restoring).count == stats.count == len(listed) == 150
        assert (found[0].item.memory, len(recent)) == ("fact number 140 of many", 99)


_COPIES = """
for i = 1, 20000 do redis.call('COPY', KEYS[1], KEYS[1] .. i) end
"""


async def test_an_index_that_is_made_anew_is_found_by_other_hubs_when_it_is_complete(settings: Settings) -> None:
    async with (
        Hub.open(settings=settings, embedder=HashingEmbedder()) as maker,
        Hub.open(settings=settings, embedder=HashingEmbedder()) as other,
        Redis.from_url(maker.url) as raw,
    ):
        added = await maker.store("research").memory.add("the harbour master owns the tide table")
        assert (await other.store("research").memory.stats()).count == 1
        await raw.eval(_COPIES, 1, SPACE.record("memory", "research", added.id))
        (index,) = [name for name in await ask(raw, "FT._LIST") if b"memory" in name]
        await ask(raw, "FT.DROPINDEX", index)

        making = asyncio.create_task(maker.store("research").memory.stats())
        await wait_until(lambda: _is_there(raw, index), description="the index is made")

        assert (await other.store("research").memory.stats()).count == 20_001
        assert (await making).count == 20_001


async def ask(raw: Redis, *command: str | bytes) -> Any:
    return await raw.execute_command(*command)  # type: ignore[no-untyped-call]


async def _is_there(raw: Redis, index: bytes) -> bool:
    try:
        await ask(raw, "FT.INFO", index)
    except ResponseError:
        return False
    return True


async def test_restoring_brings_memories_back_before_anybody_asks(hub: Hub, store: SharedMemoryStore) -> None:
    added = await store.memory.add("the harbour master owns the tide table")
    await store.write("note", 1, kind="knowledge")
    await drain_and_flush(hub)

    assert await hub.durable.restore("research") == 2

    async with Redis.from_url(hub.url) as raw:
        assert await raw.exists(SPACE.record("memory", "research", added.id)) == 1


async def test_redis_and_the_tier_say_the_same_of_memories(hub: Hub, store: SharedMemoryStore) -> None:
    added = await store.memory.add("the harbour master owns the tide table", importance="high", metadata={"n": 1})
    await store.memory.add("invoices are paid on Fridays", ttl=600)
    await hub.durable.drain("research", timeout=60)
    assert (await hub.durable.verify("research")).differences == []

    await drain_and_flush(hub)
    await store.memory.get(added.id)
    assert (await hub.durable.verify("research")).differences == []

    async with Redis.from_url(hub.url) as raw:
        await raw.hset(SPACE.record("memory", "research", added.id), "digest", "forged")
    (difference,) = (await hub.durable.verify("research")).differences
    assert (difference.key, difference.element) == (f"research:$memory:{added.id}", "digest")


async def test_what_was_cleared_does_not_come_back(hub: Hub, store: SharedMemoryStore) -> None:
    await store.memory.add("the harbour master owns the tide table")
    await hub.durable.drain("research", timeout=60)

    await hub.store("research").clear()

    assert (await store.memory.stats()).count == 0
    await drain_and_flush(hub)
    assert await texts(store, "tide table") == []


async def test_an_archive_carries_memories_to_another_place(hub: Hub, store: SharedMemoryStore, tmp_path: Path) -> None:
    added = await store.memory.add("the harbour master owns the tide table", tags=["tides"])
    await hub.durable.drain("research", timeout=60)
    await hub.archive.export("research", tmp_path / "research.jsonl.gz")
    await hub.store("research").clear()

    await hub.archive.import_(tmp_path / "research.jsonl.gz")

    assert [hit.item.id for hit in await store.memory.search("tide table")] == [added.id]


async def test_sessions_of_decisions_are_not_taken_for_memories(hub: Hub, store: SharedMemoryStore) -> None:
    await store.memory.add("the harbour master owns the tide table")
    await store.decisions.save_plan("desk", "BTC", "BUY", 0.8, "a new high")
    await hub.durable.drain("research", timeout=60)

    assert await store.decisions.sessions() == ["desk"]
    assert [key async for key in store.keys("*")] == []


async def test_an_archive_without_a_tier_says_that_memories_are_left_out(tmp_path: Path) -> None:
    async with fake_hub(settings=Settings(data_dir=tmp_path, durable_url="none")) as hub:
        await hub.store("research").memory.add("the harbour master owns the tide table")

        report = await hub.archive.export("research", tmp_path / "research.jsonl.gz")

    assert report.left_out.count == 1


async def test_memories_copied_to_another_server_are_found_there(
    hub: Hub, store: SharedMemoryStore, tmp_path: Path
) -> None:
    added = await store.memory.add("the harbour master owns the tide table", tags=["tides"])
    await hub.durable.drain("research", timeout=60)
    await hub.archive.export("research", tmp_path / "research.jsonl.gz")
    settings = Settings(data_dir=tmp_path, durable_url=f"sqlite://{tmp_path}/other.db")
    async with fake_hub(settings=settings, embedder=HashingEmbedder()) as other:
        await other.store("research").memory.add("invoices are paid on Fridays")

        await other.archive.import_(tmp_path / "research.jsonl.gz")

        hits = await other.store("research").memory.search("harbour invoices")
        assert {hit.item.memory for hit in hits} == {
            "the harbour master owns the tide table",
            "invoices are paid on Fridays",
        }
        assert (await other.store("research").memory.get(added.id)) == await store.memory.get(added.id)


async def test_a_tier_that_cannot_be_asked_after_a_loss_is_told_and_nothing_is_answered(
    hub: Hub, store: SharedMemoryStore, data_dir: Path
) -> None:
    await store.memory.add("the harbour master owns the tide table")
    await drain_and_flush(hub)
    await tier_of(hub).store.close()

    with pytest.raises(UnavailableError):
        await store.memory.search("tide table")


async def test_a_server_without_a_query_engine_has_them_back_too(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, durable_url=f"sqlite://{tmp_path}/tier.db")
    async with fake_hub(settings=settings, embedder=HashingEmbedder()) as hub:
        added = await hub.store("research").memory.add("the harbour master owns the tide table", ttl=600)
        await hub.durable.drain("research", timeout=60)
    async with fake_hub(settings=settings, embedder=HashingEmbedder()) as anew:
        assert [hit.item.id for hit in await anew.store("research").memory.search("tide")] == [added.id]
        found = await anew.store("research").memory.get(added.id, embedding=True)
        assert found is not None
        assert found.embedding is not None


async def test_who_dies_while_it_brings_memories_back_is_followed_by_the_next(
    hub: Hub, store: SharedMemoryStore
) -> None:
    await store.memory.add_many([f"fact number {number} of many" for number in range(3)])
    await drain_and_flush(hub)
    await store.write("note", 1)
    async with Redis.from_url(hub.url) as raw:
        seconds, microseconds = await raw.time()
        ends_ms = seconds * 1000 + microseconds // 1000 + 300
        await raw.hset(SPACE.kept("research"), "$gathering", f"somebody-who-died {ends_ms}")

        assert len(await texts(store, "fact")) == 3
        assert await raw.hget(SPACE.kept("research"), "$gathered") == b"whole"


async def test_a_memory_that_waits_for_its_vector_waits_on_after_a_loss(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, durable_url=f"sqlite://{tmp_path}/tier.db")
    async with fake_hub(settings=settings.replace(embedder="none")) as hub:
        added = await hub.store("research").memory.add("the harbour master owns the tide table")
        await hub.durable.drain("research", timeout=60)
    async with fake_hub(settings=settings, embedder=HashingEmbedder()) as anew:
        memory = anew.store("research").memory
        assert [hit.item.id for hit in await memory.search_keywords("tide")] == [added.id]
        await memory.add("invoices are paid on Fridays")

        async def is_embedded() -> bool:
            found = await memory.get(added.id, embedding=True)
            return found is not None and found.embedding is not None

        await wait_until(is_embedded, description="it has got its vector")


async def test_a_server_that_was_set_back_in_time_gets_what_came_later(settings: Settings) -> None:
    async with Hub.open(settings=settings, embedder=HashingEmbedder()) as hub, Redis.from_url(hub.url) as raw:
        memory = hub.store("research").memory
        changed, gone = [
            (await memory.add(text)).id for text in ("invoices are paid on Fridays", "the crane is broken")
        ]
        await hub.durable.drain("research", timeout=60)
        keys = [key async for key in raw.scan_iter(match="*{research}*")]
        before = {key: await raw.dump(key) for key in keys}
        await memory.update(changed, memory="invoices are paid on Mondays")
        await memory.delete(gone)
        await memory.add("the tide table is new")
        await hub.durable.drain("research", timeout=60)
        now = [key async for key in raw.scan_iter(match="*{research}*")]
        async with raw.pipeline(transaction=True) as at_once:  # nobody sees half of it, or writes between
            at_once.unlink(*now)
            for key, held in before.items():
                if held is not None:
                    at_once.restore(key, 0, held, replace=True)
            await at_once.execute()

        async with Hub.open(settings=settings, embedder=HashingEmbedder()) as later:
            found = await later.store("research").memory.list()
            again = await later.store("research").memory.add("the crane is broken")
            recent = await later.store("research").memory.recent(order_by="turn_index")
            verified = await later.durable.verify("research")

    assert {item.memory for item in found} == {"invoices are paid on Mondays", "the tide table is new"}
    assert not again.merged
    assert len(recent) == 3
    assert verified.differences == []
