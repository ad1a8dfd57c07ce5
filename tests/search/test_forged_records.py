"""docs/security.md: what one namespace's Redis user forges takes nothing away from what another namespace finds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from redis.asyncio import Redis
from support import embedded_fixtures

from sharedmem import ConfigError, Hub, Settings, SharedMemoryStore
from sharedmem.providers.local_embedders import HashingEmbedder
from sharedmem.redis.vectors import to_half
from sharedmem.text.analysis import namespace_term_prefix

data_dir = embedded_fixtures.data_dir
PASSWORD = "correct horse"
# More than any search looks at, so that nothing is gained by looking at more.
FORGED = 3_000
PAGE = 500
GROUP, APP = "circle", "desk"
MEMORY, GRAPH, ANSWER, NOTE = "north door code", "Ada lives", "what is the code of the north doors?", "north door"


class Ground(NamedTuple):
    """A namespace with memories, a graph, answers and notes; and the Redis user of another namespace."""

    team: SharedMemoryStore
    eve: Any
    root: Any

    async def sample(self, family: str) -> list[dict[bytes, bytes]]:
        """The team's records of a family, as Redis stores them."""
        found = [key async for key in self.root.scan_iter(f"sm:${family}:{{team}}:*")]
        return [await self.root.hgetall(key) for key in sorted(found)]

    async def forge(self, family: str, asked: str) -> None:
        """Write records under the keys of the user's own namespace that a search of the team would like best."""
        records = [claim for record in await self.sample(family) for claim in await claims_of(record, asked)]
        for first in range(0, FORGED, PAGE):
            async with self.eve.pipeline(transaction=False) as pipeline:
                for number in range(first, first + PAGE):
                    record = records[number % len(records)]
                    # As a key, the second one begins as those of a namespace would that is named by several tags.
                    tail = "evil" if number % 2 else record[b"ns"].decode().partition("}:")[2] or "evil"
                    pipeline.hset(f"sm:${family}:{{eves}}:{tail}}}:{number}", mapping={**record, b"pool": b"1"})
                await pipeline.execute()


@pytest.fixture
async def ground(data_dir: Path) -> AsyncIterator[Ground]:
    settings = Settings(data_dir=data_dir, embedder="hashing", durable_url="none")
    async with Hub.open(settings=settings) as hub:
        team = hub.store("team")
        for text in ("The north door code is 7781", "The ferry leaves Skarn at noon", "Buoys are painted red in May"):
            await team.memory.add(text)
        await team.graph.add_episode("Ada knows Bob. Ada lives in Rome.", group_id=GROUP)
        await team.cache.put("what is the code of the north door?", "7781")
        await team.synthesis.add_agent_memory(app_id=APP, user_id="kim", messages="The north door is open on Mondays")
        while await team.synthesis.work_once():
            pass
        await hub.store("eves", actor="eve").access.apply("eve", password=PASSWORD)
        async with (
            Redis.from_url(hub.url, protocol=2) as root,
            Redis.from_url(hub.url, username="eve", password=PASSWORD, protocol=2) as eve,
        ):
            yield Ground(team, eve, root)


async def of_memory(team: SharedMemoryStore) -> object:
    memory, words = team.memory, MEMORY
    searches = (memory.search, memory.search_keywords, memory.search_semantic)
    hits = [[hit.item.id for hit in await search(words, limit=3)] for search in searches]
    return hits, [item.id for item in await memory.recent(limit=5)], (await memory.stats()).count


async def of_graph(team: SharedMemoryStore) -> object:
    graph = team.graph
    texts = await graph.text_search("Ada", group_id=GROUP, limit=3)
    near = await graph.vector_search(GRAPH, group_id=GROUP, limit=3)
    told = await graph.retrieve("where does Ada live", group_id=GROUP, k=3)
    found = [[hit.item.id for hit in hits] for hits in (texts, near)]
    return found, [item.text for item in told.items], await graph.stats(group_id=GROUP)


async def of_cache(team: SharedMemoryStore) -> object:
    found = await team.cache.check(ANSWER, threshold=0.3)
    assert found is not None
    return found.response, (await team.cache.stats()).entries


async def of_notes(team: SharedMemoryStore) -> object:
    found = await team.synthesis.query_memory(app_id=APP, query=NOTE)
    return [(hit.memory_note, hit.similarity_score) for hit in found]


async def claims_of(record: dict[bytes, bytes], asked: str) -> list[dict[bytes, bytes]]:
    """A record as another namespace may forge it: with its tag, with several tags, and with its words alone.

    Its vector is nearer to what is asked than any other.
    """
    (vector,) = (await HashingEmbedder(len(record.get(b"vector", b"")) // 2 or 64).embed([asked])).vectors
    body = {**record, b"body": b'{"memory":"EVIL"}'} | ({b"vector": to_half(vector)} if b"vector" in record else {})
    several = b"eves}:x\x1fteam\x1f"
    words = record.get(b"terms", b"") + b" " + namespace_term_prefix("team").encode() + b"north"
    return [body, {**body, b"ns": several}, {**body, b"ns": b"eves", b"terms": words}]


@pytest.mark.parametrize(
    ("family", "look", "asked"),
    [
        ("memory", of_memory, MEMORY),
        ("graph", of_graph, GRAPH),
        ("cache", of_cache, ANSWER),
        ("note", of_notes, NOTE),
    ],
    ids=["memory", "graph", "cache", "note"],
)
async def test_forged_records_push_nothing_out_of_what_another_namespace_finds(
    ground: Ground, family: str, look: Callable[[SharedMemoryStore], Awaitable[object]], asked: str
) -> None:
    before = await look(ground.team)

    await ground.forge(family, asked)

    assert await look(ground.team) == before


async def test_a_memory_that_is_added_again_is_known_behind_forged_ones(ground: Ground) -> None:
    (known,) = [hit.item for hit in await ground.team.memory.search_keywords("ferry", limit=1)]
    await ground.forge("memory", "The ferry leaves Skarn at noon")

    again = await ground.team.memory.add("The ferry leaves Skarn at noon")

    assert again.id == known.id


async def test_a_shared_index_that_takes_forged_records_is_refused(ground: Ground, data_dir: Path) -> None:
    alias = "sm:$index:memory:current"
    facts = await ground.root.execute_command("FT.INFO", alias)
    name = facts[facts.index(b"index_name") + 1]
    await ground.root.execute_command("FT.DROPINDEX", name)
    before = ("ON", "HASH", "PREFIX", 1, "sm:$memory:{", "FILTER", "exists(@pool)", "SCHEMA", "terms", "TEXT")
    await ground.root.execute_command("FT.CREATE", name, *before)
    await ground.root.execute_command("FT.ALIASADD", alias, name)

    settings = Settings(data_dir=data_dir, embedder="none", durable_url="none")
    async with Hub.open(settings=settings) as hub:
        with pytest.raises(ConfigError, match="sharedmem index rebuild --shared"):
            await hub.store("team").memory.search("door")
        await hub.index.rebuild(None)
        assert await hub.store("team").memory.search_keywords("door")
