"""Processes that ask the same at the same time: one of them computes, also when another one dies over it."""

from __future__ import annotations

import asyncio

from support.cache_processes import running_cache_processes

from sharedmem import SharedMemoryStore


async def test_of_eight_processes_one_computes(redis_url: str, store: SharedMemoryStore) -> None:
    async with running_cache_processes([60] * 8, redis_url, store.namespace, seconds=0.3) as crowd:
        for asker in crowd:
            asker.go()
        said = await asyncio.gather(*(asker.rest() for asker in crowd))

    assert sum("computing" in lines for lines in said) == 1
    assert len({lines[-1] for lines in said}) == 1


async def test_when_who_computes_is_killed_another_process_does(redis_url: str, store: SharedMemoryStore) -> None:
    async with running_cache_processes([0.5, 60, 60], redis_url, store.namespace, seconds=0.2) as (first, *others):
        first.go()
        assert await first.line() == "computing"
        first.process.kill()
        for asker in others:
            asker.go()
        said = await asyncio.gather(*(asker.rest() for asker in others))

    assert sum("computing" in lines for lines in said) == 1
    assert len({lines[-1] for lines in said}) == 1
