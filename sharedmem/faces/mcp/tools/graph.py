"""Tools of the profile `graph`: dated facts about entities."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import AwareDatetime, Field

from sharedmem.faces.mcp.pages import PageCursor, paged
from sharedmem.faces.mcp.tool import ToolCall, ToolKind
from sharedmem.models import Fact, Record

_MOST_FACTS = 1000
Group = Annotated[str, Field(description="Name of the graph; most teams have one.")]


class DatedFact(Record):
    """A fact, and when it holds."""

    id: str
    fact: str
    subject: str
    relation: str
    object: str
    valid_from: datetime | None = None
    """Absent if unknown."""
    valid_to: datetime | None = None
    """Absent while it holds."""


class FactsFound(Record):
    """A page of facts about an entity."""

    entity: str
    summary: str = ""
    facts: list[DatedFact]
    next_cursor: str | None = None
    """Pass it as `cursor` for the next page; absent on the last one."""


async def graph_facts(
    ctx: ToolCall,
    entity: Annotated[str, Field(description="Name of a person, company, order or idea.")],
    as_of: Annotated[AwareDatetime | None, Field(description="Which facts held then; default: now.")] = None,
    limit: Annotated[int, Field(ge=1, le=100, description="Most facts of the answer.")] = 20,
    graph: Group = "main",
    cursor: Annotated[str | None, Field(description="`next_cursor` of the answer before.")] = None,
) -> FactsFound:
    """List the facts that hold about an entity, now or at a date."""
    at = PageCursor.parse(cursor)
    wanted = min(at.skip + limit + 1, _MOST_FACTS)
    known = await ctx.run("graph.entity", entity=entity, group_id=graph, as_of=as_of, limit=wanted)
    found = [_view(fact) for fact in known.facts[at.skip :]]
    count, behind = paged(found, at, limit=limit, tokens=ctx.options.max_tokens, next_page=None)
    summary = known.entity.summary[: ctx.options.max_tokens]
    return FactsFound(entity=known.entity.name, summary=summary, facts=found[:count], next_cursor=behind)


async def note_fact(
    ctx: ToolCall,
    subject: Annotated[str, Field(description="Name of an entity; a new one is created.")],
    relation: Annotated[str, Field(description="Relation in snake case, such as works_for.")],
    object: Annotated[str, Field(description="Name of the other entity.")],  # noqa: A002  # the field's term
    valid_from: Annotated[AwareDatetime | None, Field(description="Since when it holds; default: now.")] = None,
    valid_to: Annotated[AwareDatetime | None, Field(description="Until when; leave it out while it holds.")] = None,
    fact: Annotated[str | None, Field(description="The fact as a sentence; default: made from the names.")] = None,
    graph: Group = "main",
) -> DatedFact:
    """Record a dated fact about two entities. A fact that it contradicts ends when this one begins."""
    return _view(
        await ctx.run(
            "graph.add_relationship",
            source=subject,
            type=relation,
            target=object,
            group_id=graph,
            valid_from=valid_from,
            valid_to=valid_to,
            fact=fact,
        )
    )


TOOLS = (
    (graph_facts, ToolKind("Facts about an entity", "graph")),
    (note_fact, ToolKind("Note a fact", "graph", writes=True)),
)


def _view(fact: Fact) -> DatedFact:
    return DatedFact(
        id=fact.id,
        fact=fact.fact,
        subject=fact.source_name,
        relation=fact.type,
        object=fact.target_name,
        valid_from=fact.valid_from,
        valid_to=fact.valid_to,
    )
