"""Our side of the benchmark of the graph, and the bare commands behind its calls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from itertools import count, islice
from typing import cast

import graph_rival
from graph_data import LEARNT_AFTER, Prepared, World, episode_of, episodes
from harness import Call, WorkerState
from redis.asyncio import Redis

from sharedmem import Hub, Settings
from sharedmem.graph.graph import Graph
from sharedmem.providers.local_embedders import HashingEmbedder, WordLlamaEmbedder
from sharedmem.providers.local_embedders import is_installed as has_static
from sharedmem.providers.protocol import Embedder
from sharedmem.redis.replies import Command, Reply

NAMESPACE, GROUP = "bench", "bench:group"
LIMIT, CONTEXT = 10, 20
"""Results of a search, and of a retrieval."""
_AT_ONCE = 320
_APPROXIMATE_ABOVE = 40_000
_MANY_QUESTIONS = 200
_numbers = {"ours": count(), "theirs": count()}
"""Numbers of new episodes, each once in this process."""


def embedder() -> Embedder:
    """Return the embedder of both sides."""
    return WordLlamaEmbedder() if has_static() else HashingEmbedder(256)


@asynccontextmanager
async def opened(url: str, world: World, *, grows: bool = False) -> AsyncIterator[tuple[Hub, Graph]]:
    """Open the graph of a world. Its kind of index fits its size, and does not change while it is measured."""
    hnsw_above = 1 if grows and world.facts > _APPROXIMATE_ABOVE else 1_000_000_000
    settings = Settings(redis_url=url, durable_url="none", hnsw_above=hnsw_above, graph_summary_every=0)
    async with Hub.open(settings=settings, embedder=embedder()) as hub:
        yield hub, hub.store(NAMESPACE).graph.using(extractor=Prepared(world))


async def filled(_: WorkerState, url: str, world: World) -> None:
    """Run a job: add all episodes to the graph, 32 in a step."""
    async with opened(url, world, grows=True) as (hub, graph):
        stream = episodes(world, GROUP)
        await graph.add_episodes(list(islice(stream, 32)))
        # From the beginning in its final index: otherwise all records would be indexed three times.
        await hub.index.promote(NAMESPACE, family="graph")
        while batch := list(islice(stream, _AT_ONCE)):
            await graph.add_episodes(batch)


async def filled_rival(_: WorkerState, url: str, world: World) -> None:
    """Run a job: the same for graphiti."""
    await graph_rival.fill(url, world, embedder())


# -- ours ------------------------------------------------------------------------------------------


@asynccontextmanager
async def add_episode(url: str, world: World) -> AsyncIterator[Call]:
    """Add new episodes: three facts, one of which closes another, and a new person."""
    async with opened(url, world) as (_, graph):
        yield lambda _: graph.add_episode(episode_of(world.tidings(_next("ours", world)), GROUP))


def _next(side: str, world: World) -> int:
    return world.episodes + next(_numbers[side])


@asynccontextmanager
async def vector_search(url: str, world: World) -> AsyncIterator[Call]:
    """Search facts by meaning."""
    async with opened(url, world) as (_, graph):
        yield lambda number: graph.vector_search(world.question(number), group_id=GROUP, limit=LIMIT, kinds=("fact",))


@asynccontextmanager
async def text_search(url: str, world: World) -> AsyncIterator[Call]:
    """Search facts by words."""
    async with opened(url, world) as (_, graph):
        yield lambda number: graph.text_search(world.question(number), group_id=GROUP, limit=LIMIT, kinds=("fact",))


@asynccontextmanager
async def traverse(url: str, world: World) -> AsyncIterator[Call]:
    """Traverse two steps around a person."""
    async with opened(url, world) as (_, graph):
        yield lambda number: graph.traverse_from_entities([_somebody(world, number)], group_id=GROUP, depth=2)


def _somebody(world: World, number: int) -> str:
    return world.person(number * 7 % world.people)


@asynccontextmanager
async def retrieve(url: str, world: World) -> AsyncIterator[Call]:
    """Retrieve the context for a question, as of now."""
    async with opened(url, world) as (_, graph):
        yield lambda number: graph.retrieve(world.question(number), group_id=GROUP, k=CONTEXT)


@asynccontextmanager
async def retrieve_as_of(url: str, world: World) -> AsyncIterator[Call]:
    """Retrieve the context for a question, as of a past moment."""
    async with opened(url, world) as (_, graph):
        yield lambda number: graph.retrieve(
            world.question(number), group_id=GROUP, k=CONTEXT, as_of=world.moment(number)
        )


@asynccontextmanager
async def facts_now(url: str, world: World) -> AsyncIterator[Call]:
    """Read the facts of a person."""
    async with opened(url, world) as (_, graph):
        yield lambda number: graph.facts(_somebody(world, number), group_id=GROUP)


@asynccontextmanager
async def facts_as_of(url: str, world: World) -> AsyncIterator[Call]:
    """Read the facts of a person at a moment, as known an hour later."""
    async with opened(url, world) as (_, graph):

        def call(number: int) -> Awaitable[object]:
            when = world.moment(number)
            known = when + LEARNT_AFTER
            return graph.facts(_somebody(world, number), group_id=GROUP, as_of=when, known_at=known)

        yield call


# -- theirs ----------------------------------------------------------------------------------------


@asynccontextmanager
async def rival_add_episode(url: str, world: World) -> AsyncIterator[Call]:
    """Add an episode to graphiti."""
    numbers = (world.episodes + number for number in _numbers["theirs"])
    async with graph_rival.add_episode(url, world, embedder(), numbers) as call:
        yield call


@asynccontextmanager
async def rival_search(url: str, world: World) -> AsyncIterator[Call]:
    """Run graphiti's usual search."""
    async with graph_rival.search(url, world, embedder(), limit=CONTEXT) as call:
        yield call


@asynccontextmanager
async def rival_search_all(url: str, world: World) -> AsyncIterator[Call]:
    """Run graphiti's hybrid recipe for everything."""
    async with graph_rival.search_all(url, world, embedder(), limit=CONTEXT) as call:
        yield call


@asynccontextmanager
async def rival_search_as_of(url: str, world: World) -> AsyncIterator[Call]:
    """Run graphiti's usual search with a filter by dates."""
    async with graph_rival.search_as_of(url, world, embedder(), limit=CONTEXT) as call:
        yield call


@asynccontextmanager
async def rival_by_meaning(url: str, world: World) -> AsyncIterator[Call]:
    """Search facts by meaning, by graphiti."""
    async with graph_rival.search_one_way(url, world, embedder(), method="cosine_similarity", limit=LIMIT) as call:
        yield call


@asynccontextmanager
async def rival_by_words(url: str, world: World) -> AsyncIterator[Call]:
    """Search facts by words, by graphiti."""
    async with graph_rival.search_one_way(url, world, embedder(), method="bm25", limit=LIMIT) as call:
        yield call


# -- bare ------------------------------------------------------------------------------------------

_TWO_STEPS = (
    "MATCH (a:Entity {uuid: '%s'})-[r:RELATES_TO*1..2]-(b:Entity) WITH DISTINCT b LIMIT 200 RETURN b.uuid, b.name"
)


@asynccontextmanager
async def bare_cypher(url: str, world: World) -> AsyncIterator[Call]:
    """Traverse two steps around a person by one query of the FalkorDB module, in graphiti's graph."""
    async with Redis.from_url(url, protocol=2) as client:

        def call(number: int) -> Awaitable[object]:
            query = _TWO_STEPS % graph_rival.id_of(_somebody(world, number))
            return _sent(client, ("GRAPH.RO_QUERY", graph_rival.GRAPH, query))

        yield call


@asynccontextmanager
async def bare_searches(url: str, world: World) -> AsyncIterator[Call]:
    """Send only the searches of a retrieval, in one pipeline, and ignore their replies."""
    async with _record_commands(
        url, world, lambda graph, asked: graph.retrieve(asked, group_id=GROUP, k=CONTEXT)
    ) as call:
        yield call


@asynccontextmanager
async def bare_knn(url: str, world: World) -> AsyncIterator[Call]:
    """Send only the search for the nearest facts."""
    async with _record_commands(
        url, world, lambda graph, asked: graph.vector_search(asked, group_id=GROUP, limit=LIMIT, kinds=("fact",))
    ) as call:
        yield call


@asynccontextmanager
async def bare_words(url: str, world: World) -> AsyncIterator[Call]:
    """Send only the search by words."""
    async with _record_commands(
        url, world, lambda graph, asked: graph.text_search(asked, group_id=GROUP, limit=LIMIT, kinds=("fact",))
    ) as call:
        yield call


@asynccontextmanager
async def _record_commands(
    url: str, world: World, ask: Callable[[Graph, str], Awaitable[object]]
) -> AsyncIterator[Call]:
    """Record the commands of a call to the query engine, and send them by redis-py."""
    async with opened(url, world) as (hub, graph):
        with _recording_commands(hub) as found:
            for number in range(_MANY_QUESTIONS):
                await ask(graph, world.question(number))
    async with Redis.from_url(url, protocol=2) as client:

        async def call(number: int) -> object:
            pipe = client.pipeline(transaction=False)
            for command in found[number % len(found)]:
                pipe.execute_command(*command)
            return await pipe.execute()

        yield call


@contextmanager
def _recording_commands(hub: Hub) -> Iterator[list[list[Command]]]:
    """Record the searches of each call of a hub in the block."""
    line, found = hub._knowledge_context().client, []  # noqa: SLF001  # no public method shows what is sent
    send = line.read_many

    async def read_many(commands: Sequence[Command], *, aside: bool = False) -> list[Reply]:
        searches = [command for command in commands if command[0] == "FT.SEARCH"]
        if searches:
            found.append(searches)
        return await send(commands, aside=aside)

    line.read_many = read_many  # type: ignore[method-assign]  # it records, and changes nothing
    try:
        yield found
    finally:
        line.read_many = send  # type: ignore[method-assign]  # likewise


def _sent(client: Redis, command: Command) -> Awaitable[object]:
    return cast("Awaitable[object]", client.execute_command(*command))  # type: ignore[no-untyped-call]  # the library's
