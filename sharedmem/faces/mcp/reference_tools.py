"""Tools of the profile `reference-memory`, as of the protocol's reference memory server, over a graph.

A call that writes is one episode, so it is stored as a whole. Observations are values of the attribute `observation`,
and an entity is there as long as its attribute `entity_type` holds. What is deleted ends: the history stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from sharedmem.errors import InvalidError, NotFoundError
from sharedmem.faces.mcp.pages import PageCursor, paged
from sharedmem.faces.mcp.tool import ToolCall, ToolKind
from sharedmem.graph.graph import Graph
from sharedmem.graph.names import check_entity_name, normalize_name
from sharedmem.graph.protocol import Extraction, Known, Mention, Statement
from sharedmem.models import Episode, Fact, Record, RelationType

_GROUP: Literal["reference-memory"] = "reference-memory"
_OBSERVATION, _TYPE = "@observation", "@entity_type"
_LONGEST_OBSERVATION = 5000
_MOST_AT_ONCE = 100
_MOST_FACTS = 10_000
_PAGE = 1000
_TICK = timedelta(microseconds=1)
_MOST_UNITS = 1_000_000

Name = Annotated[str, Field(description="The name of the entity")]
Observation = Annotated[str, Field(max_length=_LONGEST_OBSERVATION)]
Cursor = Annotated[str | None, Field(description="`next_cursor` of the answer before.")]


class ReferenceEntity(Record):
    """An entity and what was observed of it."""

    name: Name
    entityType: Annotated[str, Field(description="The type of the entity")]  # noqa: N815  # as clients send it
    observations: Annotated[list[Observation], Field(description="What is known of it, one sentence each")]


class ReferenceRelation(Record):
    """A relation between two entities, in active voice."""

    model_config = ConfigDict(populate_by_name=True)

    source: Annotated[str, Field(alias="from", description="The name of the entity where the relation starts")]
    target: Annotated[str, Field(alias="to", description="The name of the entity where the relation ends")]
    relationType: Annotated[str, Field(description="The type of the relation")]  # noqa: N815  # as clients send it


class NewObservations(Record):
    """Observations to add to an entity."""

    entityName: Name  # noqa: N815  # as clients send it
    contents: Annotated[list[Observation], Field(description="The observations to add")]


class AddedObservations(Record):
    """The observations that were new."""

    entityName: str  # noqa: N815  # as clients read it
    addedObservations: list[str]  # noqa: N815  # likewise


class ObservationDeletion(Record):
    """Observations to delete from an entity."""

    entityName: Name  # noqa: N815  # as clients send it
    observations: Annotated[list[str], Field(description="The observations to delete")]


class EntitiesCreated(Record):
    """The entities that were new."""

    entities: list[ReferenceEntity]


class RelationsCreated(Record):
    """The relations that were new."""

    relations: list[ReferenceRelation]


class ObservationsAdded(Record):
    """What was new, by entity."""

    results: list[AddedObservations]


class Deleted(Record):
    """That it is done."""

    success: bool
    message: str


class ReferenceGraph(Record):
    """A page of a graph: an entity with many observations may go on on the next page."""

    entities: list[ReferenceEntity]
    relations: list[ReferenceRelation]
    next_cursor: str | None = None
    """Pass it as `cursor` for the next page; absent on the last one."""


@dataclass
class _Node:
    """What holds of a name now."""

    name: str
    type: Fact | None = None
    """None: relations name it, but it was not created, or was deleted."""
    observations: dict[str, Fact] = field(default_factory=dict)
    relations: list[Fact] = field(default_factory=list)

    def facts(self) -> list[Fact]:
        return [*([self.type] if self.type else []), *self.observations.values(), *self.relations]


class _Given:
    """An extractor that extracts what a call says."""

    name: str = _GROUP
    wants_known = False

    def __init__(self, extraction: Extraction) -> None:
        self._extraction = extraction

    async def extract(self, episode: Episode, known: Known) -> Extraction:  # noqa: ARG002  # the names are the protocol's
        return self._extraction


class _ReferenceMemory:
    """The graph behind the tools.

    Args:
        call: the caller of a tool.
    """

    def __init__(self, call: ToolCall) -> None:
        graph = call.store.graph
        # As in the reference, relations of any type may have many ends, and have one direction.
        plain = [RelationType(name=kind.name) for kind in graph.relations()]
        self._relations = [*plain, RelationType(name=_OBSERVATION)]
        self._graph = graph.using(relations=self._relations)

    def _writing(self, statements: Sequence[Statement]) -> Graph:
        names = dict.fromkeys(name for one in statements for name in (one.source, one.target) if name)
        mentions = tuple(Mention(name) for name in names)
        return self._graph.using(extractor=_Given(Extraction(mentions, tuple(statements))))

    async def write(self, content: Mapping[str, Any], statements: Sequence[Statement]) -> None:
        """Store what a call says, all of it or nothing."""
        if not statements:
            return
        # In the order in which they were sent.
        now = datetime.now(UTC)
        dated = [
            Statement(one.source, one.type, one.target, one.value, valid_from=now + number * _TICK, text=one.text)
            for number, one in enumerate(statements)
        ]
        await self._writing(dated).add_episode(dict(content), group_id=_GROUP, source="mcp", occurred_at=now)

    async def end(self, facts: Iterable[Fact]) -> None:
        """Let facts hold no more."""
        for fact in {fact.id: fact for fact in facts}.values():
            # A clock of another machine may be ahead.
            begun = fact.valid_from or datetime.min.replace(tzinfo=UTC)
            await self._graph.invalidate(fact.id, group_id=_GROUP, at=max(datetime.now(UTC), begun + _TICK))

    async def nodes(self, names: Iterable[str]) -> dict[str, _Node]:
        """Return what holds of names, by name as given."""
        wanted = list(dict.fromkeys(names))
        found = await asyncio.gather(*(self._facts(name) for name in wanted))
        return {name: _node_of(facts, name) for name, facts in zip(wanted, found, strict=True)}

    async def everything(self) -> list[_Node]:
        """Return what holds of all names, the oldest first."""
        facts: list[Fact] = []
        now, after = datetime.now(UTC), ""
        while True:
            page = await self._graph.as_of(now, group_id=_GROUP, limit=_PAGE, after=after)
            facts += page
            after = page.cursor
            if not after:
                return list(_nodes_of(facts).values())

    async def _facts(self, name: str) -> list[Fact]:
        try:
            return await self._graph.facts(name, group_id=_GROUP, limit=_MOST_FACTS)
        except NotFoundError:
            return []


async def create_entities(
    ctx: ToolCall, entities: Annotated[list[ReferenceEntity], Field(max_length=_MOST_AT_ONCE)]
) -> EntitiesCreated:
    """Create multiple new entities in the knowledge graph. Existing ones stay as they are."""
    memory = _ReferenceMemory(ctx)
    for one in entities:
        check_entity_name("entities", one.name)
    known = await memory.nodes(one.name for one in entities)
    fresh = {normalize_name(one.name): one for one in reversed(entities) if known[one.name].type is None}
    created = [one for one in entities if fresh.get(normalize_name(one.name)) is one]
    statements = [
        statement
        for one in created
        for statement in (
            Statement(one.name, _TYPE, value=one.entityType),
            *(Statement(one.name, _OBSERVATION, value=text) for text in dict.fromkeys(one.observations)),
        )
    ]
    await memory.write(EntitiesCreated(entities=created).model_dump(), statements)
    return EntitiesCreated(entities=created)


async def create_relations(
    ctx: ToolCall, relations: Annotated[list[ReferenceRelation], Field(max_length=_MOST_AT_ONCE)]
) -> RelationsCreated:
    """Create multiple new relations between entities. Relations should be in active voice."""
    memory = _ReferenceMemory(ctx)
    for one in relations:
        for name in (one.source, one.target, one.relationType):
            check_entity_name("relations", name)
    known = await memory.nodes(one.source for one in relations)
    held = {_relation_key(_relation(fact)) for node in known.values() for fact in node.relations}
    created = [one for key, one in {_relation_key(one): one for one in relations}.items() if key not in held]
    await memory.write(
        RelationsCreated(relations=created).model_dump(by_alias=True),
        [
            Statement(one.source, one.relationType, one.target, text=f"{one.source} {one.relationType} {one.target}")
            for one in created
        ],
    )
    return RelationsCreated(relations=created)


async def add_observations(
    ctx: ToolCall, observations: Annotated[list[NewObservations], Field(max_length=_MOST_AT_ONCE)]
) -> ObservationsAdded:
    """Add new observations to existing entities in the knowledge graph."""
    memory = _ReferenceMemory(ctx)
    known = await memory.nodes(one.entityName for one in observations)
    missing = [one.entityName for one in observations if known[one.entityName].type is None]
    if missing:
        raise NotFoundError("entity", missing[0], "create it with create_entities first; nothing was added")
    results: list[AddedObservations] = []
    for one in observations:
        held = known[one.entityName].observations
        fresh = [text for text in dict.fromkeys(one.contents) if text not in held]
        results.append(AddedObservations(entityName=one.entityName, addedObservations=fresh))
    added = ObservationsAdded(results=results)
    await memory.write(
        added.model_dump(),
        [Statement(one.entityName, _OBSERVATION, value=text) for one in results for text in one.addedObservations],
    )
    return added


async def delete_entities(
    ctx: ToolCall,
    entityNames: Annotated[  # noqa: N803  # as clients send it
        list[str], Field(max_length=_MOST_AT_ONCE, description="The names of the entities to delete")
    ],
) -> Deleted:
    """Delete multiple entities and their relations from the knowledge graph."""
    memory = _ReferenceMemory(ctx)
    known = await memory.nodes(entityNames)
    await memory.end(fact for node in known.values() for fact in node.facts())
    return Deleted(success=True, message="Entities deleted successfully")


async def delete_observations(
    ctx: ToolCall, deletions: Annotated[list[ObservationDeletion], Field(max_length=_MOST_AT_ONCE)]
) -> Deleted:
    """Delete specific observations from entities in the knowledge graph."""
    memory = _ReferenceMemory(ctx)
    known = await memory.nodes(one.entityName for one in deletions)
    held = [(known[one.entityName].observations, text) for one in deletions for text in one.observations]
    await memory.end(texts[text] for texts, text in held if text in texts)
    return Deleted(success=True, message="Observations deleted successfully")


async def delete_relations(
    ctx: ToolCall, relations: Annotated[list[ReferenceRelation], Field(max_length=_MOST_AT_ONCE)]
) -> Deleted:
    """Delete multiple relations from the knowledge graph."""
    memory = _ReferenceMemory(ctx)
    known = await memory.nodes(one.source for one in relations)
    unwanted = {_relation_key(one) for one in relations}
    held = [fact for node in known.values() for fact in node.relations]
    await memory.end(fact for fact in held if _relation_key(_relation(fact)) in unwanted)
    return Deleted(success=True, message="Relations deleted successfully")


async def read_graph(ctx: ToolCall, cursor: Cursor = None) -> ReferenceGraph:
    """Read the knowledge graph, page by page."""
    found = await _ReferenceMemory(ctx).everything()
    return _page(ctx, found, found, cursor)


async def search_nodes(
    ctx: ToolCall,
    query: Annotated[str, Field(description="Part of the names, types or observations to look for")],
    cursor: Cursor = None,
) -> ReferenceGraph:
    """Search for nodes whose name, type or observations contain a text; their relations come with them."""
    everything = await _ReferenceMemory(ctx).everything()
    sought = query.casefold()
    found = [
        node
        for node in everything
        if node.type is not None
        and any(sought in text.casefold() for text in (node.name, str(node.type.value), *node.observations))
    ]
    return _page(ctx, found, everything, cursor)


async def open_nodes(
    ctx: ToolCall,
    names: Annotated[list[str], Field(max_length=_MOST_AT_ONCE, description="The names of the entities to retrieve")],
    cursor: Cursor = None,
) -> ReferenceGraph:
    """Open specific nodes in the knowledge graph by their names; their relations come with them."""
    found = list((await _ReferenceMemory(ctx).nodes(names)).values())
    return _page(ctx, found, found, cursor)


REFERENCE_TOOLS = (
    (create_entities, ToolKind("Create entities", _GROUP, writes=True)),
    (create_relations, ToolKind("Create relations", _GROUP, writes=True)),
    (add_observations, ToolKind("Add observations", _GROUP, writes=True)),
    (delete_entities, ToolKind("Delete entities", _GROUP, writes=True, destructive=True)),
    (delete_observations, ToolKind("Delete observations", _GROUP, writes=True, destructive=True)),
    (delete_relations, ToolKind("Delete relations", _GROUP, writes=True, destructive=True)),
    (read_graph, ToolKind("Read the graph", _GROUP)),
    (search_nodes, ToolKind("Search nodes", _GROUP)),
    (open_nodes, ToolKind("Open nodes", _GROUP)),
)


def _node_of(facts: Iterable[Fact], name: str) -> _Node:
    """Return the entity whose facts these are, with the relations that begin or end at it."""
    nodes = _nodes_of(facts)
    # It may have another name than it was asked for by; attributes are its own.
    own = next((node for node in nodes.values() if node.type or node.observations), None)
    own = own or nodes.get(normalize_name(name)) or _Node(name)
    own.relations = [fact for node in nodes.values() for fact in node.relations]
    return own


def _nodes_of(facts: Iterable[Fact]) -> dict[str, _Node]:
    """Return nodes by normalised name; a relation stands with its source."""
    found: dict[str, _Node] = {}
    for fact in sorted(facts, key=_begun):
        node = found.setdefault(normalize_name(fact.source_name), _Node(fact.source_name))
        if fact.type == _TYPE:
            node.type = fact
        elif fact.type == _OBSERVATION:
            node.observations[str(fact.value)] = fact
        elif not fact.type.startswith("@"):
            node.relations.append(fact)
    return found


def _begun(fact: Fact) -> tuple[datetime, datetime]:
    return fact.valid_from or datetime.min.replace(tzinfo=UTC), fact.recorded_at


def _relation(fact: Fact) -> ReferenceRelation:
    """Return a relation with its type as it was sent: the graph has it in snake case, and the sentence as it was."""
    source, target, text = fact.source_name, fact.target_name, fact.fact
    sent = text[len(source) + 1 : len(text) - len(target) - 1]
    is_whole = text.casefold() == f"{source} {sent} {target}".casefold()
    return ReferenceRelation(source=source, target=target, relationType=sent if is_whole else fact.type)


def _relation_key(relation: ReferenceRelation) -> tuple[str, str, str]:
    return (
        normalize_name(relation.source),
        "".join(letter for letter in relation.relationType.casefold() if letter.isalnum()),
        normalize_name(relation.target),
    )


def _page(ctx: ToolCall, found: Sequence[_Node], among: Sequence[_Node], cursor: str | None) -> ReferenceGraph:
    """Return a page of nodes, and of the relations that begin or end at them."""
    at = PageCursor.parse(cursor)
    names = {normalize_name(node.name) for node in found}
    facts = {fact.id: fact for node in among for fact in node.relations}
    units: list[ReferenceEntity | ReferenceRelation] = [
        unit for node in found if node.type is not None for unit in _units(node.name, str(node.type.value), node)
    ]
    units += [
        _relation(fact)
        for fact in sorted(facts.values(), key=_begun)
        if names & {normalize_name(fact.source_name), normalize_name(fact.target_name)}
    ]
    if at.page or at.skip > len(units):
        raise InvalidError("cursor", cursor, "give the next_cursor of the answer before, or none for the first page")
    count, behind = paged(units[at.skip :], at, limit=_MOST_UNITS, tokens=ctx.options.max_tokens, next_page=None)
    shown = units[at.skip : at.skip + count]
    entities: dict[str, ReferenceEntity] = {}
    for unit in shown:
        if isinstance(unit, ReferenceEntity):
            before = entities.get(unit.name)
            texts = [*(before.observations if before else []), *unit.observations]
            entities[unit.name] = unit.model_copy(update={"observations": texts})
    return ReferenceGraph(
        entities=list(entities.values()),
        relations=[unit for unit in shown if isinstance(unit, ReferenceRelation)],
        next_cursor=behind,
    )


def _units(name: str, type_: str, node: _Node) -> list[ReferenceEntity]:
    """Return an entity in parts of one observation, so that a page may end between any two."""
    texts = [[text] for text in node.observations] or [[]]
    return [ReferenceEntity(name=name, entityType=type_, observations=one) for one in texts]
