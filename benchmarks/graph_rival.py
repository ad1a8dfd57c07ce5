"""The other side of the benchmark of the graph: graphiti-core on the FalkorDB module of the same server.

It gets the same episodes, the same embedder, and a language model that returns the facts of the episode at once. It is
not a dependency of ours: if it is not installed, it is not measured.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from graph_data import LEARNT_AFTER, PersonChange, World
from harness import Call

from sharedmem.providers.protocol import Embedder
from sharedmem.redis.vectors import Matrix

INSTALL = "pip install 'graphiti-core[falkordb]'"
GRAPH = "bench"
"""Its group and the name of its graph: if the two differ, it opens the graph again for each call."""
RELATIONS = ("LIVES_IN", "WORKS_ON", "KNOWS")
_STEP = 250
"""Episodes in one batch of filling."""
_LISTED = re.compile(r"'idx': (\d+), 'fact': '([^']*)'")
_NEW_FACT = re.compile(r"<NEW FACT>\s*(.*?) lives in ")


def is_installed() -> bool:
    """Return whether the rival is installed."""
    return find_spec("graphiti_core") is not None and find_spec("falkordb") is not None


def _part(name: str) -> Any:
    """Return a module of graphiti, with its telemetry disabled."""
    os.environ["GRAPHITI_TELEMETRY_ENABLED"] = "false"
    logging.getLogger("graphiti_core").setLevel(logging.ERROR)
    return import_module(f"graphiti_core.{name}")


# -- its model and embedder ------------------------------------------------------------------------


class _Answers:
    """Answers of a language model on an episode, at once; it asks one after the other for each kind of answer."""

    def __init__(self) -> None:
        self.change: PersonChange | None = None

    def to(self, prompt: str, wanted: str) -> dict[str, object]:
        """Return an answer of a kind, recognised by the name of the model class that it must fit."""
        change = self.change
        assert change is not None
        names = (change.person, change.city, change.project, change.other)
        match wanted:
            case "ExtractedEntities":
                return {"extracted_entities": [{"name": name, "entity_type_id": 0} for name in names]}
            case "NodeResolutions":
                # Only the new person is ambiguous.
                return {"entity_resolutions": [{"id": 0, "name": change.other, "duplicate_candidate_id": -1}]}
            case "ExtractedEdges":
                ends = zip(RELATIONS, names[1:], change.sentences(), strict=True)
                return {"edges": [_edge(change, relation, target, fact) for relation, target, fact in ends]}
            case "EdgeDuplicate":
                return {"duplicate_facts": [], "contradicted_facts": _contradicted(prompt)}
            case "SummarizedEntities":
                return {"summaries": []}
        return {}


def _edge(change: PersonChange, relation: str, target: str, fact: str) -> dict[str, object]:
    ends = {"source_entity_name": change.person, "target_entity_name": target}
    return {**ends, "relation_type": relation, "fact": fact, "valid_at": change.at.isoformat()}


def _contradicted(prompt: str) -> list[int]:
    """Return the positions of the same person's former homes among the facts in a prompt."""
    asked = _NEW_FACT.search(prompt)
    if asked is None:
        return []
    return [int(number) for number, fact in _LISTED.findall(prompt) if fact.startswith(f"{asked[1]} lives in ")]


def _model(answers: _Answers) -> Any:
    base = _part("llm_client.client").LLMClient

    async def generate(
        _: object, messages: Sequence[Any], response_model: type | None = None, *_more: object
    ) -> object:
        return answers.to(messages[-1].content, response_model.__name__ if response_model else "")

    return type("Stub", (base,), {"_generate_response": generate})(None)


def _embedder(embedder: Embedder) -> Any:
    base = _part("embedder.client").EmbedderClient

    async def create(_: object, input_data: str | list[str]) -> list[float]:
        texts = [input_data] if isinstance(input_data, str) else input_data
        return (await _vectors(embedder, texts[:1]))[0]

    async def create_batch(_: object, input_data_list: list[str]) -> list[list[float]]:
        return await _vectors(embedder, input_data_list)

    return type("Ours", (base,), {"create": create, "create_batch": create_batch})()


async def _vectors(embedder: Embedder, texts: Sequence[str]) -> list[list[float]]:
    vectors: Matrix = (await embedder.embed(texts)).vectors
    found: list[list[float]] = vectors.tolist()
    return found


def _reranker() -> Any:
    base = _part("cross_encoder.client").CrossEncoderClient

    async def rank(_: object, query: str, passages: list[str]) -> list[tuple[str, float]]:  # noqa: ARG001  # none asks
        return [(passage, 0.0) for passage in passages]

    return type("None_", (base,), {"rank": rank})()


@asynccontextmanager
async def _opened(url: str, embedder: Embedder) -> AsyncIterator[tuple[Any, _Answers]]:
    """Open Graphiti over a unix socket, with its own indexes."""
    falkor = import_module("falkordb.asyncio").FalkorDB(unix_socket_path=urlsplit(url).path)
    driver = _part("driver.falkordb_driver").FalkorDriver(falkor_db=falkor, database=GRAPH)
    # It begins to create its indexes by itself, and does not wait for them.
    await driver._init_task  # noqa: SLF001
    answers = _Answers()
    graphiti = _part("graphiti").Graphiti(
        graph_driver=driver, llm_client=_model(answers), embedder=_embedder(embedder), cross_encoder=_reranker()
    )
    try:
        yield graphiti, answers
    finally:
        await graphiti.close()


# -- filling ---------------------------------------------------------------------------------------


async def fill(url: str, world: World, embedder: Embedder) -> None:
    """Write a world as its own ingestion would, by its own bulk writes."""
    async with _opened(url, embedder) as (graphiti, _):
        write = _part("utils.bulk_utils").add_nodes_and_edges_bulk
        known: set[str] = set()
        numbers = iter(range(world.episodes))
        while batch := [(number, world.tidings(number)) for number in islice(numbers, _STEP)]:
            names = {name for _, change in batch for name in (change.person, change.city, change.project, change.other)}
            vectors = await _by_text(embedder, [*names, *(fact for _, change in batch for fact in change.sentences())])
            nodes = [_node(name, vectors, batch[0][1].at) for name in sorted(names - known)]
            known |= names
            edges = [edge for number, change in batch for edge in _edges(world, number, change, vectors)]
            mentions = [mention for _, change in batch for mention in _mentions(change)]
            await write(graphiti.pooled, [_episode(change) for _, change in batch], mentions, nodes, edges, None)


async def _by_text(embedder: Embedder, texts: Iterable[str]) -> Mapping[str, list[float]]:
    wanted = list(dict.fromkeys(texts))
    return dict(zip(wanted, await _vectors(embedder, wanted), strict=True))


def _node(name: str, vectors: Mapping[str, list[float]], at: datetime) -> Any:
    make = _part("nodes").EntityNode
    return make(
        uuid=_id(name), name=name, group_id=GRAPH, labels=["Entity"], created_at=at, name_embedding=vectors[name]
    )


def _edges(world: World, number: int, change: PersonChange, vectors: Mapping[str, list[float]]) -> Iterator[Any]:
    """Yield the facts of an episode; a home ends with the next move."""
    make, learnt = _part("edges").EntityEdge, change.at + LEARNT_AFTER
    again = number + world.people
    moved = world.tidings(again).at if again < world.episodes else None
    targets = zip(RELATIONS, (change.city, change.project, change.other), change.sentences(), strict=True)
    for relation, target, fact in targets:
        end = moved if relation == "LIVES_IN" else None
        yield make(
            uuid=f"{change.id}-{relation}",
            name=relation,
            fact=fact,
            group_id=GRAPH,
            source_node_uuid=_id(change.person),
            target_node_uuid=_id(target),
            episodes=[change.id],
            created_at=learnt,
            valid_at=change.at,
            invalid_at=end,
            expired_at=end,
            reference_time=change.at,
            fact_embedding=vectors[fact],
        )


def _mentions(change: PersonChange) -> Iterator[Any]:
    make = _part("edges").EpisodicEdge
    for name in (change.person, change.city, change.project, change.other):
        yield make(source_node_uuid=change.id, target_node_uuid=_id(name), group_id=GRAPH, created_at=change.at)


def _episode(change: PersonChange) -> Any:
    nodes = _part("nodes")
    return nodes.EpisodicNode(
        uuid=change.id,
        name=change.id,
        group_id=GRAPH,
        labels=[],
        source_description="message",
        source=nodes.EpisodeType.message,
        content=change.text(),
        created_at=change.at + LEARNT_AFTER,
        valid_at=change.at,
        entity_edges=[f"{change.id}-{relation}" for relation in RELATIONS],
    )


def _id(name: str) -> str:
    return name.lower().replace(" ", "-")


def id_of(name: str) -> str:
    """Return the id of the node of a name."""
    return _id(name)


# -- sides -----------------------------------------------------------------------------------------


@asynccontextmanager
async def add_episode(url: str, world: World, embedder: Embedder, numbers: Iterator[int]) -> AsyncIterator[Call]:
    """Add new episodes."""
    source = _part("nodes").EpisodeType.message
    async with _opened(url, embedder) as (graphiti, answers):

        async def call(_: int) -> object:
            change = answers.change = world.tidings(next(numbers))
            return await graphiti.add_episode(
                change.id, change.text(), "message", change.at, source=source, group_id=GRAPH
            )

        yield call


@asynccontextmanager
async def search(url: str, world: World, embedder: Embedder, *, limit: int = 20) -> AsyncIterator[Call]:
    """Run its usual search: facts by words and by meaning, past ones too."""
    async with _opened(url, embedder) as (graphiti, _):
        yield lambda number: graphiti.search(world.question(number), group_ids=[GRAPH], num_results=limit)


@asynccontextmanager
async def search_all(url: str, world: World, embedder: Embedder, *, limit: int = 20) -> AsyncIterator[Call]:
    """Run its recipe for facts, entities, episodes and communities."""
    recipe = _part("search.search_config_recipes").COMBINED_HYBRID_SEARCH_RRF.model_copy(update={"limit": limit})
    async with _opened(url, embedder) as (graphiti, _):
        yield lambda number: graphiti.search_(world.question(number), recipe, group_ids=[GRAPH])


@asynccontextmanager
async def search_one_way(
    url: str, world: World, embedder: Embedder, *, method: str, limit: int = 10
) -> AsyncIterator[Call]:
    """Search facts in one way: `cosine_similarity` or `bm25`."""
    parts = _part("search.search_config")
    edges = parts.EdgeSearchConfig(search_methods=[parts.EdgeSearchMethod[method]])
    recipe = parts.SearchConfig(edge_config=edges, limit=limit)
    async with _opened(url, embedder) as (graphiti, _):
        yield lambda number: graphiti.search_(world.question(number), recipe, group_ids=[GRAPH])


@asynccontextmanager
async def search_as_of(url: str, world: World, embedder: Embedder, *, limit: int = 20) -> AsyncIterator[Call]:
    """Run its usual search among the facts that were true at a moment; it has no filter for past knowledge."""
    filters = _part("search.search_filters")
    date, comparing = filters.DateFilter, filters.ComparisonOperator

    def holding(moment: datetime) -> Any:
        begun = [[date(date=moment, comparison_operator=comparing.less_than_equal)]]
        ended = [
            [date(date=moment, comparison_operator=comparing.greater_than)],
            [date(date=None, comparison_operator=comparing.is_null)],
        ]
        return filters.SearchFilters(valid_at=begun, invalid_at=ended)

    async with _opened(url, embedder) as (graphiti, _):

        def call(number: int) -> Any:
            question, when = world.question(number), holding(world.moment(number))
            return graphiti.search(question, group_ids=[GRAPH], num_results=limit, search_filter=when)

        yield call
