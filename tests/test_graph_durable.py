"""docs/durable-format.md: graphs outlive Redis, and are all there again before anything is asked of one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from redis.asyncio import Redis
from support import private_server

from sharedmem import Hub, Settings, SharedMemoryStore
from sharedmem.durable.sqlite.store import SqliteDurable
from sharedmem.errors import NotFoundError, UnavailableError
from sharedmem.knowledge.graph.graph import Graph
from sharedmem.models import DurableRecord, Put
from sharedmem.providers.hashing import HashingEmbedder
from sharedmem.testing import fake_hub
from sharedmem.wire.keys import KeySpace

data_dir = private_server.data_dir
SPACE = KeySpace("sm", client="any")
GROUP = "acme:session-7"
BEGAN = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.fixture
def settings(data_dir: Path) -> Settings:
    return Settings(data_dir=data_dir)


@pytest.fixture
async def hub(settings: Settings) -> AsyncIterator[Hub]:
    """A hub on a server of its own, with a durable tier."""
    async with Hub.open(settings=settings, embedder=HashingEmbedder()) as hub:
        yield hub


@pytest.fixture
def store(hub: Hub) -> SharedMemoryStore:
    return hub.store("research", actor="ada")


@pytest.fixture
def graph(store: SharedMemoryStore) -> Graph:
    return store.graph


async def lose_everything(hub: Hub) -> None:
    """What has reached the tier is all that is left."""
    await hub.durable.drain("research", timeout=20)
    async with Redis.from_url(hub.url) as raw:
        await raw.flushall()


def day(number: int) -> datetime:
    return BEGAN + timedelta(days=number)


async def tell(graph: Graph, group: str = GROUP) -> None:
    """A story in which homes change, two are one, one is not after all, and something is taken back."""
    for number, (name, town) in enumerate([("Bob", "Paris"), ("Ann", "Oslo"), ("Bob", "Rome"), ("Robert Miller", "Bern")]):
        await graph.add_relationship(name, "lives_in", town, group_id=group, valid_from=day(10 * number))
    await graph.add_entity("Ann", group_id=group, type="person", aliases=["Annie", "A. Berg"])
    await graph.add_relationship("Ann", "works_for", "Acme", group_id=group, valid_from=day(3), valid_to=day(40))
    await graph.add_episode(
        "Ann moved from Oslo to Lima in March 2024.", group_id=group, id="e1", session="s", occurred_at=day(60)
    )
    await graph.add_episode("Zoe lives in Cairo.", group_id=group, id="e2", session="s", occurred_at=day(61))
    await graph.undo("e2", group_id=group)
    await graph.merge("Robert Miller", "Bob", group_id=group, reason="the same address")
    await graph.merge("Annie B", "Ann", group_id=group) if await is_known(graph, "Annie B", group) else None
    await graph.add_entity("Bobby", group_id=group)
    await graph.merge("Bobby", "Bob", group_id=group)
    await graph.unmerge("Bobby", group_id=group)


async def is_known(graph: Graph, name: str, group: str) -> bool:
    try:
        await graph.entity(name, group_id=group)
    except NotFoundError:
        return False
    return True


async def answers(graph: Graph, group: str = GROUP) -> dict[str, Any]:
    """What the graph answers to many questions."""
    rng = random.Random(7)
    told: dict[str, Any] = {"stats": await graph.stats(group_id=group)}
    now = datetime.now(UTC)
    for name in ("Bob", "Ann", "Zoe", "Robert Miller", "Bobby", "Annie", "Acme"):
        told[f"entity {name}"] = await graph.entity(name, group_id=group)
        told[f"aliases {name}"] = await graph.aliases(name, group_id=group)
        told[f"history {name}"] = await graph.history(name, group_id=group)
        for number in range(5):
            world, known = day(rng.randrange(100)), now - timedelta(milliseconds=rng.randrange(3_000))
            told[f"{name} {number}"] = len(await graph.facts(name, group_id=group, as_of=world))
            told[f"{name} {number} then"] = (world, known) and await graph.facts(
                name, group_id=group, as_of=world, known_at=day(400)
            )
    told["as of"] = await graph.as_of(day(20), group_id=group)
    told["episodes"] = await graph.episodes(group_id=group)
    told["found"] = [(hit.id, round(hit.score, 6)) for hit in await graph.text_search("Lima Oslo", group_id=group)]
    told["near"] = [
        (hit.id, round(hit.score, 4))
        for hit in await graph.vector_search("lives in Rome", group_id=group, kinds=("fact", "entity", "episode"))
    ]
    told["around"] = await graph.traverse_from_entities(["Bob"], group_id=group)
    return told


async def test_every_answer_is_the_same_after_redis_has_lost_everything(hub: Hub, graph: Graph) -> None:
    await tell(graph)
    before = await answers(graph)

    await lose_everything(hub)

    after = await answers(graph)
    assert after == before
