"""docs/memory.md: lifetimes that follow importance and use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import fakeredis
import pytest
from support.contexts import knowledge_of
from support.waiting import wait_until

from sharedmem import ConfigError, Hub, InvalidError, Settings
from sharedmem.memory.memories import Memories
from sharedmem.memory.validation import adapted_ttl
from sharedmem.models import Importance, MemoryItem
from sharedmem.testing import ManualClock, fake_hub

DAY = 86_400
ADAPTIVE = Settings(adaptive_ttl=True, short_term_ttl_s=DAY)


@pytest.mark.parametrize(
    ("importance", "uses", "days"),
    [
        ("medium", 0, 1),
        ("medium", 1, 2),
        ("medium", 2, 2),
        ("medium", 3, 3),
        ("medium", 7, 4),
        ("medium", 10**9, 8),
        ("low", 0, 0.5),
        ("low", 1, 1),
        ("high", 0, 2),
        ("high", 1, 4),
        ("critical", 0, 4),
        ("critical", 3, 8),
    ],
)
def test_the_lifetime_of_a_memory(importance: Importance, uses: int, days: float) -> None:
    assert adapted_ttl(DAY, importance, uses) == days * DAY


def test_a_lifetime_without_an_end_and_a_short_one_stay_sound() -> None:
    assert adapted_ttl(-1, "critical", 5) == -1
    assert adapted_ttl(1, "low", 0) == 1


@pytest.fixture
async def hub(clock: ManualClock) -> AsyncIterator[Hub]:
    async with fake_hub(settings=ADAPTIVE, clock=clock) as hub:
        yield hub


@pytest.fixture
def memory(hub: Hub) -> Memories:
    return hub.store("team").memory


async def added(memory: Memories, text: str = "the lift is broken", *, importance: Importance = "medium") -> str:
    return (await memory.add(text, memory_type="short-term", importance=importance)).id


async def left_s(hub: Hub, id_: str) -> float:
    """Seconds until a memory expires at the server."""
    context = knowledge_of(hub)
    left = await context.client.call("PTTL", context.keyspace.record("memory", "team", id_))
    assert isinstance(left, int)
    return left / 1000


async def used(memory: Memories, id_: str) -> MemoryItem | None:
    """Use a memory, and have its use counted."""
    item = await memory.get(id_)
    await memory.uses()
    return item


async def test_without_the_setting_no_use_extends_a_lifetime(clock: ManualClock) -> None:
    async with fake_hub(settings=Settings(short_term_ttl_s=DAY), clock=clock) as hub:
        memory = hub.store("team").memory
        id_ = await added(memory, importance="high")
        clock.advance(DAY / 2)

        item = await used(memory, id_)

        assert item is not None
        assert (item.ttl, item.adaptive_ttl) == (DAY, False)
        assert await left_s(hub, id_) == pytest.approx(DAY / 2, abs=5)


async def test_a_memory_begins_with_the_lifetime_of_its_importance(hub: Hub, memory: Memories) -> None:
    for importance, days in (("low", 0.5), ("medium", 1), ("high", 2)):
        id_ = await added(memory, f"a fact of {importance} value", importance=importance)  # type: ignore[arg-type]

        assert await left_s(hub, id_) == pytest.approx(days * DAY, abs=5)


async def test_a_use_begins_a_longer_lifetime(hub: Hub, memory: Memories, clock: ManualClock) -> None:
    id_ = await added(memory)
    clock.advance(DAY * 0.9)

    await used(memory, id_)

    assert await left_s(hub, id_) == pytest.approx(2 * DAY, abs=5)
    clock.advance(DAY * 1.5)
    item = await used(memory, id_)
    assert item is not None
    assert item.ttl == 2 * DAY
    assert await left_s(hub, id_) == pytest.approx(2 * DAY, abs=5)
    clock.advance(2 * DAY + 60)
    assert await memory.get(id_) is None


async def test_a_search_is_a_use(hub: Hub, memory: Memories, clock: ManualClock) -> None:
    id_ = await added(memory)
    clock.advance(DAY / 2)

    await memory.search("lift")
    await memory.uses()

    assert await left_s(hub, id_) == pytest.approx(2 * DAY, abs=5)


async def test_a_lifetime_is_extended_in_the_background(hub: Hub, memory: Memories, clock: ManualClock) -> None:
    id_ = await added(memory)
    await memory.get(id_)

    async def is_extended() -> bool:
        clock.advance(0.5)
        return await left_s(hub, id_) > DAY

    await wait_until(is_extended, description="the longer lifetime")


async def test_a_memory_that_is_used_all_the_time_is_rarely_written(memory: Memories, clock: ManualClock) -> None:
    id_ = await added(memory)
    for _ in range(40):
        await used(memory, id_)
        clock.advance(60)

    changes = [version.change for version in await memory.history(id_)]
    assert changes == ["extended"] * 5 + ["added"], "once for 1, 3, 7, 15 and 31 uses"


async def test_a_lifetime_from_a_caller_stays_to_the_second(hub: Hub, memory: Memories, clock: ManualClock) -> None:
    given = (await memory.add("a secret", ttl=DAY, importance="critical")).id
    changed = await added(memory)
    await memory.update(changed, ttl=2 * DAY)
    clock.advance(DAY / 2)

    for id_ in (given, changed):
        for _ in range(3):
            await used(memory, id_)

    assert await left_s(hub, given) == pytest.approx(DAY / 2, abs=5)
    assert await left_s(hub, changed) == pytest.approx(1.5 * DAY, abs=5)


async def test_what_lives_for_ever_is_not_adaptive(memory: Memories) -> None:
    item = await memory.get((await memory.add("for ever")).id)

    assert item is not None
    assert (item.ttl, item.adaptive_ttl) == (-1, False)


async def test_two_hubs_that_use_a_memory_extend_it_once(clock: ManualClock) -> None:
    server = fakeredis.FakeServer()
    async with (
        fake_hub(settings=ADAPTIVE, clock=clock, server=server) as one,
        fake_hub(settings=ADAPTIVE, clock=clock, server=server) as other,
    ):
        memories = [hub.store("team").memory for hub in (one, other)]
        id_ = await added(memories[0])
        clock.advance(DAY / 2)
        await asyncio.gather(*(memory.get(id_) for memory in memories))
        await asyncio.gather(*(memory.uses() for memory in memories))

        history = await memories[0].history(id_)
        extended = sum(version.change == "extended" for version in history)
        assert extended == sum(hub.counters.read("memory_lifetimes_extended") for hub in (one, other))
        assert 1 <= extended <= 2
        assert await left_s(one, id_) == pytest.approx(2 * DAY, abs=5)


async def test_a_hub_that_closes_extends_what_was_used(clock: ManualClock) -> None:
    server = fakeredis.FakeServer()
    async with fake_hub(settings=ADAPTIVE, clock=clock, server=server) as hub:
        id_ = await added(hub.store("team").memory)
        clock.advance(DAY / 2)
        await hub.store("team").memory.get(id_)

    async with fake_hub(settings=ADAPTIVE, clock=clock, server=server) as hub:
        assert await left_s(hub, id_) == pytest.approx(2 * DAY, abs=5)


async def test_an_extension_is_no_change_to_undo_and_disturbs_no_undo(memory: Memories, clock: ManualClock) -> None:
    id_ = await added(memory)
    await memory.update(id_, category="repairs")
    clock.advance(DAY / 2)
    await used(memory, id_)
    newest = (await memory.history(id_))[0]
    assert (newest.change, newest.actor) == ("extended", "shared")

    with pytest.raises(InvalidError, match="update `ttl` instead"):
        await memory.undo(id_, newest.version)
    item = await memory.undo(id_)

    assert (item.category, item.ttl) == (None, 2 * DAY)


async def test_a_merge_shortens_no_lifetime(hub: Hub, memory: Memories, clock: ManualClock) -> None:
    id_ = await added(memory)
    clock.advance(DAY / 2)
    await used(memory, id_)

    assert (await memory.add("the lift is broken", memory_type="short-term")).merged

    assert await left_s(hub, id_) == pytest.approx(2 * DAY, abs=5)


async def test_an_expired_memory_that_was_extended_leaves_nothing_behind(
    hub: Hub, memory: Memories, clock: ManualClock
) -> None:
    id_ = await added(memory)
    clock.advance(DAY / 2)
    await used(memory, id_)
    clock.advance(DAY)
    assert await memory.get(id_) is not None

    clock.advance(4 * DAY)
    await memory.add_many([f"note {n}" for n in range(40)], dedup=False)

    context = knowledge_of(hub)
    digests = await context.client.call("HVALS", context.keyspace.record_part("memory", "team", "digests"))
    assert isinstance(digests, list)
    assert id_.encode() not in digests


async def test_an_export_has_the_extended_lifetime(memory: Memories, clock: ManualClock) -> None:
    id_ = await added(memory)
    clock.advance(DAY / 2)
    await used(memory, id_)
    items = [item async for item in memory.export()]

    async with fake_hub(settings=ADAPTIVE, clock=clock) as other:
        target = other.store("team").memory
        await target.import_(items)
        assert await left_s(other, id_) == pytest.approx(2 * DAY, abs=5)
        copy = await target.get(id_)
    assert copy is not None
    assert copy.adaptive_ttl


async def test_the_durable_tier_has_the_extended_lifetime(tmp_path: Path, clock: ManualClock) -> None:
    settings = ADAPTIVE.replace(durable_url=f"sqlite://{tmp_path}/tier.db")
    async with fake_hub(settings=settings, clock=clock) as hub:
        memory = hub.store("team").memory
        id_ = await added(memory)
        clock.advance(DAY / 2)
        await used(memory, id_)

    clock.advance(DAY)
    async with fake_hub(settings=settings, clock=clock) as fresh:
        restored = await fresh.store("team").memory.get(id_)
        assert restored is not None, "this server is empty: the memory comes from the tier"
        assert await left_s(fresh, id_) == pytest.approx(DAY, abs=5)


async def test_a_scored_importance_counts_from_the_start(clock: ManualClock) -> None:
    async with fake_hub(settings=ADAPTIVE.replace(importance_scoring="rules"), clock=clock) as hub:
        id_ = (await hub.store("team").memory.add("thanks!", memory_type="short-term")).id

        assert await left_s(hub, id_) == pytest.approx(DAY / 2, abs=5)


async def test_a_namespace_may_adapt_alone(clock: ManualClock) -> None:
    settings = Settings(namespace_settings={"team": {"adaptive_ttl": True, "long_term_ttl_s": DAY}})
    async with fake_hub(settings=settings, clock=clock) as hub:
        items = [
            await memory.get((await memory.add("a fact", importance="high")).id)
            for memory in (hub.store("team").memory, hub.store("other").memory)
        ]

    assert [item.ttl for item in items if item] == [2 * DAY, -1]


async def test_the_mark_is_set_by_the_store_alone(memory: Memories) -> None:
    id_ = await added(memory)

    with pytest.raises(InvalidError, match="adaptive_ttl"):
        await memory.update(id_, adaptive_ttl=False)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="adaptive_ttl"):
        Settings().replace(adaptive_ttl="perhaps")
