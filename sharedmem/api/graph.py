"""Operations of the knowledge graph: add episodes, query facts by valid time and transaction time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import AwareDatetime

from sharedmem.api.operation import Facet
from sharedmem.graph.graph import Graph
from sharedmem.models import Entity, EntityFacts, Episode, EpisodeResult, Fact, Record, RelationType, Step
from sharedmem.models.graph import Direction
from sharedmem.store import SharedMemoryStore

T = TypeVar("T")

# -- requests that differ from the arguments of their methods ---------------------------------------


class GraphAdd(Record):
    """An episode to take in."""

    episode: Episode
    extract: bool = True
    """Whether entities and facts are extracted now."""


class RelationsRequest(Record):
    """The vocabulary of the graph."""


class EntityAtRequest(Record):
    """An entity at a time, as known at a time, and which of its facts."""

    group_id: str
    entity: str
    """Its name or id."""
    as_of: AwareDatetime | None = None
    known_at: AwareDatetime | None = None
    embedding: bool = False
    """Whether its `embedding` is wanted too."""
    type: str | None = None
    """Only facts of this relation."""
    direction: Direction = "both"
    limit: int = 1000


class FactPage(Record):
    """One page of facts."""

    items: list[Fact]
    cursor: str
    """Of the next page; empty after the last one."""


class EpisodePage(Record):
    """One page of episodes."""

    items: list[Episode]
    cursor: str
    """Of the next page; empty after the last one."""


class EntityPage(Record):
    """One page of entities."""

    items: list[Entity]
    cursor: str
    """Of the next page; empty after the last one."""


class AliasPage(Record):
    """One page of names of an entity."""

    items: list[str]
    cursor: str
    """Of the next page; empty after the last one."""


def _page_of(kind: type[T]) -> dict[str, Any]:
    """How a page of the graph is returned."""
    make: Callable[..., T] = kind
    return {"reply": lambda page: make(items=list(page), cursor=page.cursor), "gives": kind, "paging": "after"}


async def _add(store: SharedMemoryStore, ask: GraphAdd) -> EpisodeResult:
    return await store.graph.add_episode(ask.episode, extract=ask.extract)


async def _relations(store: SharedMemoryStore, _: RelationsRequest) -> list[RelationType]:
    return list(store.graph.relations())


async def _entity(store: SharedMemoryStore, ask: EntityAtRequest) -> EntityFacts:
    group, as_of, known_at = ask.group_id, ask.as_of, ask.known_at
    entity = await store.graph.entity(
        ask.entity, group_id=group, as_of=as_of, known_at=known_at, embedding=ask.embedding
    )
    facts = await store.graph.facts(
        entity.id,
        group_id=group,
        as_of=as_of,
        known_at=known_at,
        type=ask.type,
        direction=ask.direction,
        limit=ask.limit,
    )
    return EntityFacts(entity=entity, facts=facts)


def _steps(path: tuple[Step, ...]) -> list[Step]:
    return list(path)


# -- operations -------------------------------------------------------------------------------------

_GROUP = "/graph/{group_id}"
_ENTITY = _GROUP + "/entities/{entity}"
_graph = Facet("graph", lambda store, _: store.graph)

_graph.written(
    "graph.relations",
    Graph.relations,
    "GET /graph/relations",
    _relations,
    takes=RelationsRequest,
    gives=list[RelationType],
)
_graph.operation("graph.groups", Graph.groups, "GET /graph", paging="names")
_graph.written(
    "graph.add",
    Graph.add_episode,
    "POST /graph/episodes",
    _add,
    created=201,
    location="/graph/{episode.group_id}/records/{id}",
    is_new=lambda result: not result.repeated,
    takes=GraphAdd,
    gives=EpisodeResult,
)
_graph.operation("graph.add_many", Graph.add_episodes, "POST /graph/episodes/batch", bulk=True)
_graph.operation("graph.delete", Graph.delete_by_group, f"DELETE {_GROUP}", answer="deleted", bulk=True)
_graph.operation(
    "graph.search",
    Graph.retrieve,
    f"POST {_GROUP}/search",
    needs="read",
    formerly=["graph.ask", f"POST {_GROUP}/ask"],
)
_graph.operation(
    "graph.search_keywords",
    Graph.text_search,
    f"POST {_GROUP}/search/keywords",
    needs="read",
    formerly=["graph.search_words", f"POST {_GROUP}/search/words"],
)
_graph.operation(
    "graph.search_semantic",
    Graph.vector_search,
    f"POST {_GROUP}/search/semantic",
    needs="read",
    formerly=["graph.search_meaning", f"POST {_GROUP}/search/meaning"],
)
_graph.operation("graph.traverse", Graph.traverse_from_entities, f"POST {_GROUP}/traverse", needs="read")
_graph.operation("graph.get", Graph.get, f"GET {_GROUP}/records/{{id}}", names={"id_": "id"})
_graph.operation("graph.entities", Graph.entities, f"GET {_GROUP}/entities", **_page_of(EntityPage))
_graph.operation("graph.add_entity", Graph.add_entity, f"POST {_GROUP}/entities")
_graph.written(
    "graph.entity",
    Graph.entity,
    f"GET {_ENTITY}",
    _entity,
    takes=EntityAtRequest,
    gives=EntityFacts,
    summary="Return an entity, and the facts that hold of it at a time, as known at a time.",
)
_graph.operation("graph.entity_versions", Graph.entity_versions, f"GET {_ENTITY}/versions")
_graph.operation("graph.facts", Graph.facts, f"GET {_ENTITY}/facts")
_graph.operation("graph.history", Graph.history, f"GET {_ENTITY}/history")
_graph.operation("graph.aliases", Graph.aliases, f"GET {_ENTITY}/aliases", **_page_of(AliasPage))
_graph.operation("graph.add_alias", Graph.add_alias, f"POST {_ENTITY}/aliases")
_graph.operation("graph.path", Graph.path, f"GET {_GROUP}/path", reply=_steps, gives=list[Step])
_graph.operation("graph.as_of", Graph.as_of, f"GET {_GROUP}/facts", **_page_of(FactPage))
_graph.operation(
    "graph.add_relationship",
    Graph.add_relationship,
    f"POST {_GROUP}/facts",
)
_graph.operation("graph.invalidate", Graph.invalidate, f"POST {_GROUP}/facts/{{fact_id}}/invalidate")
_graph.operation("graph.episodes", Graph.episodes, f"GET {_GROUP}/episodes", **_page_of(EpisodePage))
_graph.operation("graph.extract", Graph.extract, f"POST {_GROUP}/episodes/{{episode_id}}/extract")
_graph.operation("graph.undo", Graph.undo, f"DELETE {_GROUP}/episodes/{{episode_id}}")
_graph.operation("graph.summarize", Graph.summarize, f"POST {_GROUP}/summaries")
_graph.operation("graph.merge", Graph.merge, f"POST {_GROUP}/merges")
_graph.operation("graph.unmerge", Graph.unmerge, f"DELETE {_GROUP}/merges/{{entity}}")
_graph.operation("graph.stats", Graph.stats, f"GET {_GROUP}/stats")
_graph.operation("graph.check", Graph.check, f"POST {_GROUP}/check")
_graph.operation("graph.draw", Graph.drawing, f"GET {_GROUP}/drawing", bulk=True)

FACETS = (_graph,)
