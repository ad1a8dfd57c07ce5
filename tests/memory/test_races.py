"""Many remember the same at the same time, and it is there once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from support.faulty_hubs import persistent_settings
from support.memory_processes import FACTS, distinct_facts, paraphrases, race_processes
from support.redis_process import RedisProcess

from sharedmem import Hub, Settings
from sharedmem.clock import new_id
from sharedmem.testing import fake_hub


@pytest.fixture
async def hub(redis_url: str, settings: Settings) -> AsyncIterator[Hub]:
    async with Hub.open(redis_url, settings=settings.replace(embedder="hashing")) as hub:
        yield hub


async def all_of(hub: Hub, namespace: str) -> list[tuple[str, int]]:
    """(text, occurrences) of every memory of a namespace."""
    return [(item.memory, item.occurrences) async for item in hub.store(namespace).memory.export()]


async def test_eight_processes_that_add_the_same_facts_leave_each_once(
    hub: Hub, redis_url: str, namespace: str
) -> None:
    assert len(set(distinct_facts())) == FACTS

    await race_processes(redis_url, namespace, processes=8)

    found = await all_of(hub, namespace)
    assert sorted(text for text, _ in found) == sorted(distinct_facts())
    assert {times for _, times in found} == {8}


async def test_two_hubs_that_add_very_many_of_the_same_leave_each_once(
    hub: Hub, redis_url: str, settings: Settings, namespace: str
) -> None:
    texts = [" ".join(new_id(5) for _ in range(8)) for _ in range(600)]
    again = [f"{text}!" for text in texts]
    async with Hub.open(redis_url, settings=settings.replace(embedder="hashing")) as other:
        await asyncio.gather(
            hub.store(namespace).memory.add_many(texts), other.store(namespace).memory.add_many(again[::-1])
        )

    found = await all_of(hub, namespace)
    assert sorted(text.rstrip("!") for text, _ in found) == sorted(texts)
    assert {times for _, times in found} == {2}


async def test_racing_paraphrases_end_as_one_memory(hub: Hub, redis_url: str, namespace: str) -> None:
    await race_processes(redis_url, namespace, processes=4, what="paraphrases")

    ((text, times),) = await all_of(hub, namespace)
    assert text in paraphrases()
    assert times == 4 * len(paraphrases())


async def test_hubs_on_the_exact_index_agree_on_one_memory_too(settings: Settings) -> None:
    import fakeredis

    server = fakeredis.FakeServer()
    chosen = settings.replace(embedder="hashing")
    async with fake_hub(settings=chosen, server=server) as one, fake_hub(settings=chosen, server=server) as other:
        name = f"race-{new_id(6)}"
        calls = [hub.store(name).memory.add(text) for text in paraphrases() for hub in (one, other)]
        results = await asyncio.gather(*calls)

        assert len({result.id for result in results}) == 1
        assert sum(not result.merged for result in results) == 1
        ((_, times),) = await all_of(one, name)
        assert times == len(results)


async def test_changes_and_merges_of_one_memory_at_once_are_all_there(hub: Hub, namespace: str) -> None:
    memory = hub.store(namespace, actor="ann").memory
    first = await memory.add("The kettle is broken")

    await asyncio.gather(
        *(memory.add("The kettle is broken", metadata={f"seen-{n}": n}) for n in range(20)),
        *(memory.update(first.id, tags=(f"t{n}",)) for n in range(5)),
    )

    held = await memory.get(first.id)
    assert held is not None
    assert held.occurrences == 21
    assert {f"seen-{n}" for n in range(20)} <= held.metadata.keys()
    versions = await memory.history(first.id)
    assert [one.version for one in versions] == sorted((one.version for one in versions), reverse=True)
    assert len(versions) == len({one.version for one in versions})


async def test_turns_of_a_thread_are_numbered_without_gaps_by_many_at_once(hub: Hub, namespace: str) -> None:
    stores = [hub.store(namespace, actor=f"a{n}").memory for n in range(4)]

    results = await asyncio.gather(
        *(
            memory.add(f"turn {n} of {who}", thread_id="talk", dedup=False)
            for who, memory in enumerate(stores)
            for n in range(25)
        )
    )

    turns = {item.id: item.turn_index async for item in stores[0].export()}
    assert sorted(turns[result.id] or 0 for result in results) == list(range(100))


@pytest.mark.parametrize("dedup", [True, False])
async def test_a_server_that_restarts_while_many_are_added_ends_with_each_once(
    settings: Settings, *, dedup: bool
) -> None:
    with RedisProcess(appendonly="yes", appendfsync="always") as server:
        chosen = persistent_settings(server.url, data_dir=settings.data_dir, embedder="hashing")
        async with Hub.open(settings=chosen) as hub:
            memory = hub.store("restarts").memory
            steps: list[int] = []
            reached = {n: asyncio.Event() for n in (500, 1000)}

            def note(done: int, _: int) -> None:
                steps.append(done)
                for step, event in reached.items():
                    if done >= step:
                        event.set()

            texts = [f"{fact} since {year}" for year in range(1991, 1995) for fact in distinct_facts()]
            adding = asyncio.ensure_future(memory.add_many(texts, dedup=dedup, on_progress=note))
            for event in reached.values():
                await event.wait()
                server.kill()
                await asyncio.to_thread(server.start)
            results = await adding

            assert len({result.id for result in results}) == len(texts)
            assert sorted(await all_of(hub, "restarts")) == sorted((text, 1) for text in texts)
