"""Agents in several processes share one store, and nothing is lost or done twice between them."""

from __future__ import annotations

import asyncio
from collections import Counter

from support.agent_processes import NAMESPACE, running_agents
from support.faulty_hubs import persistent_settings
from support.redis_process import RedisProcess

from sharedmem import Hub


async def test_eight_processes_with_1000_updates_each_of_one_key_end_at_exactly_8000(bare_server: RedisProcess) -> None:
    async with running_agents(8, "count", bare_server.url, 1_000) as counters:
        told = await asyncio.gather(*(counter.rest() for counter in counters))

    assert told == [[["counted", "1000"]]] * 8
    async with Hub.open(settings=persistent_settings(bare_server.url)) as hub:
        assert await hub.store(NAMESPACE).read("n") == 8_000


async def test_fifty_tasks_of_one_hub_update_one_key_without_losing_a_step(bare_server: RedisProcess) -> None:
    async with Hub.open(settings=persistent_settings(bare_server.url)) as hub:
        store = hub.store(NAMESPACE)

        async def count() -> None:
            for _ in range(20):
                await store.update("n", lambda number: (number or 0) + 1)

        await asyncio.gather(*(count() for _ in range(50)))

        assert await store.read("n") == 1_000


async def test_each_document_is_claimed_by_exactly_one_of_four_processes(bare_server: RedisProcess) -> None:
    async with running_agents(4, "claim", bare_server.url, 300) as claimers:
        told = await asyncio.gather(*(claimer.rest() for claimer in claimers))

    claimed = Counter(int(line[0]) for lines in told for line in lines)
    assert claimed == Counter(range(300))


async def test_each_member_of_a_set_is_popped_by_exactly_one_of_four_processes(bare_server: RedisProcess) -> None:
    async with Hub.open(settings=persistent_settings(bare_server.url)) as hub:
        await hub.store(NAMESPACE).sadd("tasks", *range(500))

    async with running_agents(4, "pop", bare_server.url) as poppers:
        told = await asyncio.gather(*(popper.rest() for popper in poppers))

    assert Counter(int(line[0]) for lines in told for line in lines) == Counter(range(500))
