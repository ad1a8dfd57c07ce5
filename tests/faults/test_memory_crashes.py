"""Servers and processes are killed with -9 while they remember: nothing acknowledged is lost, and nothing doubled."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.faulty_hubs import impatient_settings, persistent_settings
from support.redis_process import RedisProcess
from support.waiting import wait_until

from sharedmem import Hub, Settings
from sharedmem.embedded.binaries import find_server
from sharedmem.errors import SharedMemoryError, UnavailableError
from sharedmem.memory.memories import Memories
from sharedmem.models import AddResult, MemoryItem

MANY, FEWER = 2000, 800
# Each try takes a hub without patience about a second; that many wait for the same does not make it more.
PATIENCE_S = 60.0
_TESTS = Path(__file__).resolve().parent.parent
_CHILD = """
import asyncio, sys
from faults.test_memory_crashes import texts
from sharedmem import Hub, Settings

async def main():
    async with Hub.open(sys.argv[1], settings=Settings(embedder="hashing")) as hub:
        memory = hub.store("team").memory
        print("ready", flush=True)
        await memory.add_many(texts(), on_progress=lambda done, total: print(done, flush=True))

asyncio.run(main())
"""


def texts(count: int = FEWER) -> list[str]:
    """So many facts that differ: guards keep numbers apart."""
    return [f"Meter {number} of the plant stands at {number * 7} units" for number in range(count)]


@pytest.fixture(scope="module", params=[pytest.param("exact", marks=pytest.mark.nightly), "redisearch"])
def lasting_server(request: pytest.FixtureRequest) -> Iterator[RedisProcess]:
    """A real server that forgets nothing it has acknowledged, with and without a query engine."""
    if request.param == "exact":
        with RedisProcess(appendonly="yes", appendfsync="always") as server:
            yield server
        return
    if "search" not in (modules := find_server().modules):
        pytest.skip("the search module is not installed on this platform")
    with RedisProcess(appendonly="yes", appendfsync="always", loadmodule=modules["search"]) as server:
        yield server


@pytest.fixture
def server(lasting_server: RedisProcess) -> RedisProcess:
    """It is empty."""
    lasting_server.tell("FLUSHALL")
    return lasting_server


@asynccontextmanager
async def memory_at(settings: Settings) -> AsyncIterator[Memories]:
    async with Hub.open(settings=settings.replace(embedder="hashing")) as hub:
        yield hub.store("team").memory


async def all_of(memory: Memories) -> list[MemoryItem]:
    return [item async for item in memory.export()]


async def is_built(memory: Memories) -> bool:
    try:
        await memory.stats()
    except UnavailableError:
        return False
    return True


async def wait_until_built(memory: Memories) -> None:
    await wait_until(lambda: is_built(memory), description="the index has what the server has loaded", within_s=600)


async def check_whole(memory: Memories, items: list[MemoryItem], count: int = FEWER) -> None:
    """All is there once, has its own turn, and is found."""
    assert sorted(item.memory for item in items) == sorted(texts(count))
    assert len({item.turn_index for item in items}) == count
    await wait_until_built(memory)
    assert (await memory.stats()).count == count
    # What was killed has nothing half-written that is found and cannot be read, or the other way round.
    (hit,) = await memory.search_semantic(texts()[678], limit=1)
    assert hit.item.memory == texts()[678]
    assert (await memory.thread_stats()).turn_count == count


async def test_a_server_killed_in_the_middle_of_add_many_leaves_nothing_lost_or_doubled(server: RedisProcess) -> None:
    restarting: list[asyncio.Future[None]] = []

    def kill_once(done: int, _: int) -> None:
        if done < MANY and not restarting:
            server.kill()
            restarting.append(asyncio.ensure_future(asyncio.to_thread(server.start)))

    async with memory_at(persistent_settings(server.url)) as memory:
        results = await memory.add_many(texts(MANY), on_progress=kill_once)
        await restarting[0]

        items = await all_of(memory)
        assert not any(result.merged for result in results)
        assert {item.occurrences for item in items} == {1}
        await check_whole(memory, items, MANY)


async def test_a_hub_without_patience_goes_on_where_it_was_when_it_is_called_again(server: RedisProcess) -> None:
    seen: list[int] = []

    def kill_once(done: int, _: int) -> None:
        seen.append(done)
        server.kill()

    async with memory_at(impatient_settings(server.url)) as memory:
        with pytest.raises(UnavailableError):
            async with asyncio.timeout(PATIENCE_S):
                await memory.add_many(texts(), on_progress=kill_once)
        await asyncio.to_thread(server.start)

        calls: list[None] = []

        def again() -> Awaitable[list[AddResult]]:
            calls.append(None)
            return memory.add_many(texts())

        results = await tried(again)

        assert sum(result.merged for result in results) >= seen[0]
        items = await all_of(memory)
        assert max(item.occurrences for item in items) <= 1 + len(calls)
        await check_whole(memory, items)


async def tried(call: Callable[[], Awaitable[list[AddResult]]]) -> list[AddResult]:
    """What a call answers as soon as the server is well again."""
    answers: list[AddResult] = []

    async def works() -> bool:
        try:
            answers[:] = await call()
        except UnavailableError:
            return False
        return True

    await wait_until(works, description="the server is well again", within_s=60)
    return answers


async def test_ids_that_are_given_make_a_repeat_count_nothing_twice(server: RedisProcess) -> None:
    items = [MemoryItem(id=f"meter-{number}", memory=text) for number, text in enumerate(texts())]
    async with memory_at(impatient_settings(server.url)) as memory:
        with pytest.raises(UnavailableError):
            await memory.add_many(items, on_progress=lambda *_: server.kill())
        await asyncio.to_thread(server.start)

        await tried(lambda: memory.add_many(items))

        kept = await all_of(memory)
        assert Counter(item.occurrences for item in kept) == {1: FEWER}
        await check_whole(memory, kept)


async def test_a_process_killed_while_it_adds_is_replaced_by_another_that_adds_the_same(server: RedisProcess) -> None:
    child = await started(server.url)
    assert child.stdout is not None
    assert await child.stdout.readline() == b"ready\n"
    assert int(await child.stdout.readline()) < FEWER
    child.kill()
    await child.communicate()

    async with memory_at(persistent_settings(server.url)) as memory:
        left = await all_of(memory)
        await wait_until_built(memory)
        assert len({item.memory for item in left}) == len(left) == (await memory.stats()).count

        await memory.add_many(texts())

        await check_whole(memory, await all_of(memory))


async def started(url: str) -> Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-c", _CHILD, url), cwd=_TESTS, stdout=PIPE
    )


async def test_calls_of_every_kind_while_the_server_dies_and_comes_back_end_in_answers_or_sentences(
    server: RedisProcess,
) -> None:
    async with memory_at(impatient_settings(server.url)) as memory:
        added = await memory.add("The zebra sleeps")
        calls = (
            *(memory.add(text) for text in texts()[:20]),
            memory.search("zebra"),
            memory.update(added.id, tags=("seen",)),
            memory.get(added.id),
            memory.history(added.id),
            memory.list(),
            memory.stats(),
            memory.thread_stats(),
        )
        under_way = [asyncio.ensure_future(call) for call in calls]
        await asyncio.sleep(0)
        server.kill()
        restart = asyncio.ensure_future(asyncio.to_thread(server.start))

        done, left = await asyncio.wait(under_way, timeout=60)

        await restart
        assert not left
        failures = [task.exception() for task in done if task.exception() is not None]
        assert all(isinstance(failure, SharedMemoryError) for failure in failures), failures
        await tried(lambda: memory.add_many(texts()[:20]))
        kept = [item.memory for item in await all_of(memory)]
        assert sorted(kept) == sorted([*texts()[:20], "The zebra sleeps"])
