"""docs/defaults.md: memory, cache, deduplication, lifetimes and searches by the settings of a hub and a namespace."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from sharedmem import ActorContext, Hub, InvalidError, RemembersMixin, Settings
from sharedmem.testing import fake_hub

OFF = {"memory_enabled": False, "dedup_enabled": False, "cache_enabled": False}


class Actor(RemembersMixin):
    def __init__(self, context: ActorContext) -> None:
        self.context = context

    def extract_memory(self, output: Any) -> str:
        """All of it."""
        return str(output)


@pytest.fixture
async def hub() -> AsyncIterator[Hub]:
    """A hub whose namespace `plain` has all switches off, and others of its own."""
    rules = {
        "plain": OFF,
        "archive": {"long_term_ttl_s": 60, "short_term_ttl_s": 7, "cache_ttl_s": 5},
        "narrow": {"search_limit": 2, "search_max_limit": 10, "search_mode": "keywords"},
    }
    async with fake_hub(settings=Settings(namespace_settings=rules)) as hub:
        yield hub


async def test_duplicates_are_merged_by_default_per_namespace_and_per_call(hub: Hub) -> None:
    plain, team = hub.store("plain").memory, hub.store("team").memory

    for memory in (plain, team):
        await memory.add("the lift is broken")
    merged = [(await memory.add("the lift is broken")).merged for memory in (plain, team)]

    assert merged == [False, True]
    assert (await plain.add("the lift is broken", dedup=True)).merged
    assert not (await team.add("the lift is broken", dedup=False)).merged
    assert [one.merged for one in await plain.add_many(["the roof leaks", "the roof leaks"])] == [False, False]


async def test_a_cache_that_is_off_stores_and_finds_nothing(hub: Hub) -> None:
    cache, calls = hub.store("plain").cache, []

    @cache.cached()
    async def answer(prompt: str) -> str:
        calls.append(prompt)
        return prompt.upper()

    assert await cache.put("who deploys?", "Ann")
    assert await cache.check("who deploys?") is None
    assert [await answer("why?"), await answer("why?")] == ["WHY?", "WHY?"]
    assert len(calls) == 2
    stats = await cache.stats()
    assert (stats.entries, stats.misses) == (0, 0)
    with pytest.raises(InvalidError, match="prompt"):
        await cache.check(" ")


async def test_actors_remember_where_memory_is_on(hub: Hub) -> None:
    quiet, other = (Actor(ActorContext(hub.store(name))) for name in ("plain", "team"))

    assert await quiet.remember_output("the lift is broken") is None
    assert await other.remember_output("the lift is broken") is not None


async def test_each_kind_of_memory_has_its_lifetime(hub: Hub) -> None:
    memory = hub.store("archive").memory

    items = [await memory.get((await memory.add(kind, memory_type=kind)).id) for kind in ("long-term", "short-term")]

    assert [item.ttl for item in items if item] == [60, 7]
    kept = await hub.store("team").memory.get((await hub.store("team").memory.add("for ever")).id)
    assert kept is not None
    assert kept.ttl == -1


async def test_searches_have_a_default_limit_a_highest_limit_and_a_mode(hub: Hub) -> None:
    memory = hub.store("narrow").memory
    await memory.add_many([f"note number {n}" for n in range(12)], dedup=False)

    hits = await memory.search("note")

    assert (len(hits), hits.mode) == (2, "keywords")
    assert len(await memory.search_keywords("note", limit=10)) == 10
    assert (await memory.search("note", mode="semantic")).mode == "semantic"
    for refused in (memory.search("note", limit=11), memory.search_semantic("note", limit=11)):
        with pytest.raises(InvalidError, match="whole number from 1 to 10"):
            await refused


async def test_a_store_without_a_name_is_in_the_namespace_of_the_settings() -> None:
    async with fake_hub(settings=Settings(namespace="global")) as hub, fake_hub() as plain:
        assert (hub.store(actor="ann").namespace, plain.store().namespace) == ("global", "default")
