"""The network fails between hubs and Redis, and between hubs and their durable tier: late, cut, reset, half open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from faults.test_lost_replies import MUTATORS, Mutator, change_together
from redis import Redis
from support.chaos_proxy import ChaosProxy
from support.contexts import tier_of
from support.cosmos_emulator import emulator
from support.faulty_hubs import persistent_settings
from support.footprint import Footprint, take_footprint
from support.redis_process import RedisProcess
from support.waiting import wait_until

from sharedmem import DurabilityPendingError, Hub, Settings, UnavailableError
from sharedmem.models import DurableRecord
from sharedmem.redis.scripts import scripts

NAMESPACE, CALM = "storm", "calm"
RULES = {"storm:*": "knowledge", "calm:*": "knowledge"}
# A caller waits ten seconds for the tier, and as long for a key that is to come back.
BOUND_S = 25
WRITES = 300


def in_a_file(folder: Path, **choices: Any) -> dict[str, Any]:
    """What settings say of a tier in a file."""
    return {"durable_url": f"sqlite://{folder}/tier.sqlite3", "data_dir": folder, "kind_rules": RULES} | choices


# Between hub and Redis: replies are lost


@pytest.fixture
async def direct(bare_server: RedisProcess, tmp_path: Path) -> AsyncIterator[Hub]:
    """A hub that no fault reaches."""
    async with Hub.open(settings=persistent_settings(bare_server.url, **in_a_file(tmp_path))) as hub:
        yield hub


@dataclass(frozen=True)
class Trace:
    """What a call has left on both sides."""

    redis: Footprint
    tier: list[tuple[object, ...]]


async def trace_of(mutator: Mutator, hub: Hub, direct: Hub, raw: Redis, namespace: str) -> Trace:
    """What a mutator leaves; only the call itself goes through the given hub."""
    await mutator.prepare(direct.store(namespace, actor="a"))
    answer = await mutator.act(hub.store(namespace, actor="a"))
    await direct.durable.drain(namespace)
    records = [one for key in await keys_of(direct, namespace) for one in await direct.durable.records(key)]
    return Trace(take_footprint(raw, namespace, answer), ranked(records))


async def keys_of(hub: Hub, namespace: str) -> list[str]:
    pages = tier_of(hub).store.iterate(namespace, heads_only=True)
    return [record.key async for page in pages for record in page]


def ranked(records: list[DurableRecord]) -> list[tuple[object, ...]]:
    """Documents as plain data, in which the time of the run does not matter."""
    stamps = sorted({one.stamp for one in records} | {one.version for one in records})
    ranks = {stamp: rank for rank, stamp in enumerate(stamps, 1)} | {0: 0}

    def plain(one: DurableRecord) -> tuple[object, ...]:
        element = ranks[int(one.element)] if one.type == "list" and one.element else one.element
        versions = [ranks.get(number, "?") for number in (one.version, one.stamp, one.floor, one.created)]
        place = one.key.partition(":")[2], element, one.type, one.kind
        return *place, *versions, one.size, one.expires > 0, one.actor, one.codec, one.deleted, one.body

    return sorted(map(plain, records), key=repr)


def without_order(trace: Trace) -> Trace:
    """The trace of concurrent changes: which of them was first has no meaning."""
    left = replace(trace.redis, changes=sorted(trace.redis.changes))
    rows = [(row[0], "" if row[2] == "list" else row[1], *row[2:4], *row[8:]) for row in trace.tier]
    return Trace(left, sorted(rows, key=repr))


@pytest.mark.parametrize("durability", ["behind", "through"])
@pytest.mark.parametrize("mutator", MUTATORS, ids=lambda mutator: mutator.name)
async def test_a_change_whose_reply_was_lost_has_happened_once_on_both_sides(
    mutator: Mutator, durability: str, direct: Hub, proxy: ChaosProxy, raw: Redis, tmp_path: Path
) -> None:
    calm = await trace_of(mutator, direct, direct, raw, CALM)

    settings = persistent_settings(proxy.url, **in_a_file(tmp_path, knowledge_durability=durability))
    async with Hub.open(settings=settings) as hub:
        proxy.lose_replies(scripts()[f"{mutator.script}.kept"].digest.encode())
        stormy = await trace_of(mutator, hub, direct, raw, NAMESPACE)

    assert proxy.cuts == 1
    if mutator.act is change_together:
        stormy, calm = without_order(stormy), without_order(calm)
    assert stormy == calm
    assert calm.tier


@pytest.mark.parametrize("step", [b"XRANGE", scripts()["outbox_settle"].digest.encode()], ids=["fetching", "settling"])
async def test_a_reply_of_the_tier_that_is_lost_is_still_waited_for(
    step: bytes, proxy: ChaosProxy, direct: Hub, tmp_path: Path
) -> None:
    settings = persistent_settings(proxy.url, **in_a_file(tmp_path, knowledge_durability="through"))
    async with Hub.open(settings=settings) as hub:
        proxy.lose_replies(step)
        version = await hub.store(NAMESPACE).write("k", 1)

    assert proxy.cuts == 1
    [record] = await direct.durable.records(f"{NAMESPACE}:shared:k")
    assert (record.stamp, record.body) == (version, "1")


@pytest.mark.parametrize("durability", ["behind", "through"])
async def test_everything_arrives_while_connections_are_reset_again_and_again(
    durability: str, direct: Hub, proxy: ChaosProxy, tmp_path: Path
) -> None:
    async def change(hub: Hub, mine: int) -> None:
        store = hub.store(NAMESPACE)
        for number in range(WRITES // 10):
            await store.append("list", [mine, number])
            await store.incr("count")

    async def rage() -> None:
        while True:
            await asyncio.sleep(0.02)
            proxy.reset_all()

    settings = persistent_settings(proxy.url, **in_a_file(tmp_path, knowledge_durability=durability))
    async with Hub.open(settings=settings) as hub:
        raging = asyncio.create_task(rage())
        await asyncio.gather(*(change(hub, mine) for mine in range(10)))
        await hub.durable.drain(NAMESPACE)
        raging.cancel()

    verified = await direct.durable.verify(NAMESPACE)
    assert (verified.waiting, verified.differences) == (0, [])
    assert await direct.store(NAMESPACE).read("count") == WRITES
    records = await direct.durable.records(f"{NAMESPACE}:shared:list")
    assert len(records) == WRITES + 1


async def test_a_connection_that_is_half_open_holds_a_change_up_and_does_not_double_it(
    direct: Hub, proxy: ChaosProxy, tmp_path: Path
) -> None:
    settings = persistent_settings(
        proxy.url, **in_a_file(tmp_path, knowledge_durability="through", response_timeout_s=0.3)
    )
    async with Hub.open(settings=settings) as hub:
        store = hub.store(NAMESPACE)
        await store.incr("n")
        with proxy.black_hole():
            proxy.held.clear()
            counting = asyncio.create_task(store.incr("n"))
            await proxy.held.wait()
        assert await counting == 2
        await hub.durable.drain(NAMESPACE)

    [record] = await direct.durable.records(f"{NAMESPACE}:shared:n")
    assert record.body == "2"


# Between hub and tier


@contextmanager
def cut(proxy: ChaosProxy) -> Iterator[None]:
    """Connections are reset, and new ones are rejected."""
    with proxy.refusing():
        proxy.reset_all()
        yield


Trouble = Callable[[ChaosProxy], AbstractContextManager[None]]
each_trouble = pytest.mark.parametrize("trouble", [cut, ChaosProxy.black_hole], ids=["cut", "half open"])


@pytest.fixture
async def way(pytestconfig: pytest.Config) -> AsyncIterator[ChaosProxy]:
    """The way to the tier."""
    shim = emulator(pytestconfig)
    async with ChaosProxy(f"redis://127.0.0.1:{shim.port}/0", understands=False) as proxy:
        yield proxy


@pytest.fixture
async def far(bare_server: RedisProcess, way: ChaosProxy, pytestconfig: pytest.Config, tmp_path: Path) -> Settings:
    """Settings of hubs whose tier is behind that way."""
    return persistent_settings(
        bare_server.url,
        durable_url=f"cosmos+http://127.0.0.1:{way.port}",
        cosmos_database=emulator(pytestconfig).room().database,
        data_dir=tmp_path,
        kind_rules={"storm:*": "knowledge", "calm:*": "session"},
    )


async def wait_in_vain(waiting: Hub) -> int:
    """A change that waits for the tier fails clearly, and is made all the same; returns its version."""
    store = waiting.store(NAMESPACE)
    with pytest.raises(DurabilityPendingError) as caught:
        await store.write("waited for", 2)
    assert await store.read("waited for") == 2
    return caught.value.version


async def ask_in_vain(hub: Hub) -> None:
    """What only the tier can know cannot be said."""
    store = hub.store(NAMESPACE)
    calls = (store.read("cold"), store.append("new list", 1), store.write("new", 1, if_version=0))
    for error in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(error, UnavailableError)


async def go_on(hub: Hub) -> None:
    """What is in Redis is served and changed, and what is not can be written."""
    store = hub.store(NAMESPACE)
    for number in range(1, WRITES):
        await store.append("list", number)
    await store.write("hot", "during")
    await store.write("written", "blindly")
    assert await store.read("hot") == "during"
    assert await store.read_list("list", -1) == [WRITES - 1]


@each_trouble
async def test_while_the_tier_is_out_of_reach_redis_goes_on_and_what_needs_the_tier_fails_clearly(
    far: Settings, way: ChaosProxy, raw: Redis, trouble: Trouble
) -> None:
    waiting = Hub.open(settings=far.replace(knowledge_durability="through"))
    async with Hub.open(settings=far) as hub, waiting:
        store = hub.store(NAMESPACE)
        await store.write_many({"cold": 1, "hot": 2})
        await store.append("list", 0)
        await hub.durable.drain(NAMESPACE)
        raw.unlink(f"sm:{{{NAMESPACE}}}:shared:cold", f"sm:{{{NAMESPACE}}}:$kept.state:shared:cold")
        await waiting.store(NAMESPACE).exists("hot")

        with trouble(way):
            async with asyncio.timeout(BOUND_S):
                version, _, _ = await asyncio.gather(wait_in_vain(waiting), ask_in_vain(hub), go_on(hub))
        await hub.durable.drain(NAMESPACE)

        assert await store.read("cold") == 1
        assert await store.append("new list", 1) == 1
        [record] = await hub.durable.records(f"{NAMESPACE}:shared:waited for")
        assert record.stamp == version
        assert len(await hub.durable.records(f"{NAMESPACE}:shared:list")) == WRITES + 1
        await hub.durable.drain(NAMESPACE)
        verified = await hub.durable.verify(NAMESPACE)
        assert (verified.keys, verified.waiting, verified.differences) == (6, 0, [])


async def test_a_tier_that_is_slow_is_only_slow(far: Settings, way: ChaosProxy) -> None:
    async with Hub.open(settings=far.replace(knowledge_durability="through")) as hub:
        store = hub.store(NAMESPACE)
        with way.delayed(0.1):
            await asyncio.gather(*(store.write(f"k{number}", number) for number in range(20)))

        verified = await hub.durable.verify(NAMESPACE)
        assert (verified.keys, verified.waiting, verified.differences) == (20, 0, [])


async def test_a_worker_whose_connections_are_reset_again_and_again_gets_everything_there(
    far: Settings, way: ChaosProxy
) -> None:
    async with Hub.open(settings=far) as hub:
        store = hub.store(NAMESPACE)
        for number in range(WRITES):
            await store.write(f"k{number % 30}", number)
            if not number % 10:
                way.reset_all()
                await asyncio.sleep(0.01)
        await wait_until(lambda: _is_drained(hub), description="the outbox is empty", within_s=BOUND_S)

        verified = await hub.durable.verify(NAMESPACE)
        assert (verified.keys, verified.waiting, verified.differences) == (30, 0, [])


async def _is_drained(hub: Hub) -> bool:
    return (await hub.durable.lag(NAMESPACE)).waiting == 0
