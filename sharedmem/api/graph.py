"""Operations of the knowledge graph: add episodes, query facts by valid time and transaction time."""

from __future__ import annotations

from pydantic import AwareDatetime

from sharedmem.api.operation import Operation
from sharedmem.models import (
    ContextSet,
    Entity,
    EntityMerge,
    Episode,
    EpisodeResult,
    Fact,
    GraphCheck,
    GraphDrawing,
    GraphStats,
    Record,
    Step,
)
from sharedmem.store import SharedMemoryStore

# -- requests: field names are those of the calls' arguments, where their meaning and limits stand ------


class GraphGroupsRequest(Record):
    """The groups of the namespace."""


class GraphGroupRequest(Record):
    """A graph."""

    group_id: str


class BitemporalRequest(GraphGroupRequest):
    """A graph at a time of the world, as known at a time."""

    as_of: AwareDatetime | None = None
    known_at: AwareDatetime | None = None


class GraphAdd(Record):
    """An episode to take in."""

    episode: Episode
    extract: bool = True


class GraphAddMany(Record):
    """Episodes to take in."""

    episodes: list[Episode]
    extract: bool = True


class GraphAsk(BitemporalRequest):
    """A question."""

    query: str
    k: int = 20
    depth: int = 2
    session: str | None = None
    include_past: bool = False
    explain: bool = False


class EntityAtRequest(BitemporalRequest):
    """An entity, by name or id, at a time."""

    entity: str


class EntityRequest(GraphGroupRequest):
    """An entity, by name or id."""

    entity: str


class GraphHistory(EntityRequest):
    """How much of the history of an entity."""

    limit: int = 1000


class GraphPath(BitemporalRequest):
    """Between which entities a way is looked for."""

    a: str
    b: str


class GraphAsOf(GraphGroupRequest):
    """Of which moment all facts are listed."""

    when: AwareDatetime
    known_at: AwareDatetime | None = None
    limit: int = 1000
    after: str = ""


class GraphEpisodeRequest(GraphGroupRequest):
    """An episode, by its id."""

    episode_id: str


class GraphMerge(GraphGroupRequest):
    """Which two entities are one."""

    source: str
    into: str
    reason: str = ""


class GraphEpisodes(GraphGroupRequest):
    """Which page of episodes to list."""

    session: str | None = None
    after: str = ""
    limit: int = 100


class CheckGraph(GraphGroupRequest):
    """A graph to check."""

    repair: bool = False


class GraphDraw(GraphGroupRequest):
    """Which part of a graph to draw."""

    entity: str | None = None
    depth: int = 2
    limit: int = 500


# -- answers --------------------------------------------------------------------------------------


class EntityFacts(Record):
    """An entity, and what holds of it."""

    entity: Entity
    facts: list[Fact]


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


async def _entity(store: SharedMemoryStore, ask: EntityAtRequest) -> EntityFacts:
    group, as_of, known_at = ask.group_id, ask.as_of, ask.known_at
    entity = await store.graph.entity(ask.entity, group_id=group, as_of=as_of, known_at=known_at)
    facts = await store.graph.facts(entity.id, group_id=group, as_of=as_of, known_at=known_at)
    return EntityFacts(entity=entity, facts=facts)


async def _ask(store: SharedMemoryStore, ask: GraphAsk) -> ContextSet:
    return await store.graph.retrieve(
        ask.query,
        group_id=ask.group_id,
        k=ask.k,
        as_of=ask.as_of,
        known_at=ask.known_at,
        depth=ask.depth,
        session=ask.session,
        include_past=ask.include_past,
        explain=ask.explain,
    )


async def _path(store: SharedMemoryStore, ask: GraphPath) -> list[Step]:
    way = await store.graph.path(ask.a, ask.b, group_id=ask.group_id, as_of=ask.as_of, known_at=ask.known_at)
    return list(way)


async def _as_of(store: SharedMemoryStore, ask: GraphAsOf) -> FactPage:
    page = await store.graph.as_of(
        ask.when, group_id=ask.group_id, known_at=ask.known_at, limit=ask.limit, after=ask.after
    )
    return FactPage(items=list(page), cursor=page.cursor)


async def _episodes(store: SharedMemoryStore, ask: GraphEpisodes) -> EpisodePage:
    page = await store.graph.episodes(group_id=ask.group_id, session=ask.session, after=ask.after, limit=ask.limit)
    return EpisodePage(items=list(page), cursor=page.cursor)


# -- rows -----------------------------------------------------------------------------------------

GRAPH_ADD = Operation(
    "graph.add",
    "Take in an episode: what it mentions and says becomes part of the graph.",
    "write",
    GraphAdd,
    EpisodeResult,
    lambda store, ask: store.graph.add_episode(ask.episode, extract=ask.extract),
)
GRAPH_ADD_MANY = Operation(
    "graph.add_many",
    "Take in many episodes, in their order.",
    "write",
    GraphAddMany,
    list[EpisodeResult],
    lambda store, ask: store.graph.add_episodes(ask.episodes, extract=ask.extract),
)
GRAPH_ASK = Operation(
    "graph.ask",
    "What is worth knowing for a question, by words, meaning and nearness in the graph.",
    "read",
    GraphAsk,
    ContextSet,
    _ask,
)
GRAPH_ENTITY = Operation(
    "graph.entity",
    "An entity, and the facts that hold of it at a time, as known at a time.",
    "read",
    EntityAtRequest,
    EntityFacts,
    _entity,
)
GRAPH_HISTORY = Operation(
    "graph.history",
    "Every version of every fact of an entity.",
    "read",
    GraphHistory,
    list[Fact],
    lambda store, ask: store.graph.history(ask.entity, group_id=ask.group_id, limit=ask.limit),
)
GRAPH_PATH = Operation(
    "graph.path",
    "A shortest way between two entities; empty where there is none.",
    "read",
    GraphPath,
    list[Step],
    _path,
)
GRAPH_AS_OF = Operation("graph.as_of", "All that was true at a moment.", "read", GraphAsOf, FactPage, _as_of)
GRAPH_UNDO = Operation(
    "graph.undo",
    "Take back all that an episode said, and open again what it had closed.",
    "write",
    GraphEpisodeRequest,
    EpisodeResult,
    lambda store, ask: store.graph.undo(ask.episode_id, group_id=ask.group_id),
)
GRAPH_MERGE = Operation(
    "graph.merge",
    "Say that two entities are one.",
    "write",
    GraphMerge,
    EntityMerge,
    lambda store, ask: store.graph.merge(ask.source, ask.into, group_id=ask.group_id, reason=ask.reason),
)
GRAPH_UNMERGE = Operation(
    "graph.unmerge",
    "Take a merge apart again.",
    "write",
    EntityRequest,
    EntityMerge,
    lambda store, ask: store.graph.unmerge(ask.entity, group_id=ask.group_id),
)
GRAPH_STATS = Operation(
    "graph.stats",
    "What a graph holds.",
    "read",
    GraphGroupRequest,
    GraphStats,
    lambda store, ask: store.graph.stats(group_id=ask.group_id),
)
GRAPH_EPISODES = Operation(
    "graph.episodes", "A page of episodes, oldest first.", "read", GraphEpisodes, EpisodePage, _episodes
)
GRAPH_GROUPS = Operation(
    "graph.groups",
    "The groups of the namespace that have a graph.",
    "read",
    GraphGroupsRequest,
    list[str],
    lambda store, _: store.graph.groups(),
)
GRAPH_DELETE = Operation(
    "graph.delete",
    "Delete a graph with everything in it; tells how many records it had.",
    "write",
    GraphGroupRequest,
    int,
    lambda store, ask: store.graph.delete_by_group(ask.group_id),
)
GRAPH_CHECK = Operation(
    "graph.check",
    "Recompute the facts of a graph from its claims, report every difference, and repair them if asked to.",
    "write",
    CheckGraph,
    GraphCheck,
    lambda store, ask: store.graph.check(group_id=ask.group_id, repair=ask.repair),
)
GRAPH_DRAW = Operation(
    "graph.draw",
    "A part of a graph with all its times, for pictures.",
    "read",
    GraphDraw,
    GraphDrawing,
    lambda store, ask: store.graph.drawing(group_id=ask.group_id, entity=ask.entity, depth=ask.depth, limit=ask.limit),
)

ROWS = tuple(row for row in list(globals().values()) if isinstance(row, Operation))
