"""Graphs that are to outlive Redis: a story, all that can be asked of it, and ways to lose it and to look behind it."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from redis.asyncio import Redis

from sharedmem import Hub, Settings
from sharedmem.durable.sqlite_store import SqliteDurable
from sharedmem.graph.graph import Graph
from sharedmem.models import GraphHit
from support.contexts import parts_of

GROUP = "acme:session-7"
BEGAN = datetime(2024, 1, 1, tzinfo=UTC)
NAMES = ("Bob", "Ann", "Zoe", "Rob", "Bobby", "Annie", "Acme")


async def drain_and_flush(hub: Hub) -> None:
    """What has reached the tier is all that is left."""
    await hub.durable.drain("research", timeout=60)
    async with Redis.from_url(hub.url) as raw:
        await raw.flushall()


async def found_items(hits: Awaitable[list[GraphHit]]) -> list[Any]:
    """What was found; the scores of words hang on what the index has ever held."""
    return [hit.item for hit in await hits]


@asynccontextmanager
async def reopen_sqlite(settings: Settings) -> AsyncIterator[SqliteDurable]:
    """The tier of an embedded hub, opened once more."""
    tier = SqliteDurable(settings.data_dir / "durable.sqlite3")
    await tier.open()
    try:
        yield tier
    finally:
        await tier.close()


async def durable_live_keys(hub: Hub) -> list[str]:
    """The keys of which the tier has a document that is no tombstone."""
    tier = parts_of(hub).tier
    assert tier is not None
    pages = [page async for page in tier.store.iterate("research", heads_only=True)]
    return [one.key for page in pages for one in page if not one.deleted]


async def durable_live_keys_after_drain(hub: Hub) -> list[str]:
    """The same, once it has all."""
    await hub.durable.drain("research", timeout=60)
    return await durable_live_keys(hub)


def day(number: int) -> datetime:
    return BEGAN + timedelta(days=number)


async def write_story(graph: Graph, group: str = GROUP) -> None:
    """A story in which homes change, two are one, one is not after all, and something is taken back."""
    for number, (name, town) in enumerate([("Bob", "Paris"), ("Ann", "Oslo"), ("Bob", "Rome"), ("Rob", "Bern")]):
        await graph.add_relationship(name, "lives_in", town, group_id=group, valid_from=day(10 * number))
    await graph.add_entity("Ann", group_id=group, type="person", aliases=["Annie", "A. Berg"])
    await graph.add_relationship("Ann", "works_for", "Acme", group_id=group, valid_from=day(3), valid_to=day(40))
    for id_, text in (("e1", "Ann moved from Oslo to Lima in March 2024."), ("e2", "Zoe lives in Cairo.")):
        await graph.add_episode(text, group_id=group, id=id_, session="s", occurred_at=day(60))
    await graph.undo("e2", group_id=group)
    await graph.merge("Rob", "Bob", group_id=group, reason="the same address")
    await graph.add_entity("Bobby", group_id=group)
    await graph.merge("Bobby", "Bob", group_id=group)
    await graph.unmerge("Bobby", group_id=group)


async def query_story(graph: Graph, began: datetime, group: str = GROUP) -> dict[str, Any]:
    """What the graph answers to many questions; those about the past of the same moments each time."""
    rng = random.Random(7)
    answers: dict[str, Any] = {"stats": await graph.stats(group_id=group), "groups": await graph.groups()}
    for name in NAMES:
        answers[f"entity {name}"] = await graph.entity(name, group_id=group)
        answers[f"aliases {name}"] = await graph.aliases(name, group_id=group)
        answers[f"history {name}"] = await graph.history(name, group_id=group)
    for number in range(40):
        name, world = rng.choice(NAMES), day(rng.randrange(100))
        known = began + timedelta(milliseconds=rng.randrange(1_000))
        answers[f"{number}"] = await graph.facts(name, group_id=group, as_of=world, known_at=known)
        answers[f"{number} as known now"] = await graph.facts(name, group_id=group, as_of=world)
    answers["as of"] = await graph.as_of(day(20), group_id=group)
    answers["episodes"] = await graph.episodes(group_id=group)
    answers["words"] = [hit.item for hit in await graph.text_search("Lima Oslo", group_id=group)]
    hits = await graph.vector_search("lives in Rome", group_id=group, kinds=("fact", "entity", "episode"))
    answers["near"] = [(hit.item, round(hit.score, 3)) for hit in hits]
    answers["around"] = await graph.traverse_from_entities(["Bob"], group_id=group)
    answers["retrieved"] = (await graph.retrieve("Where does Ann live?", group_id=group)).entities
    return answers
