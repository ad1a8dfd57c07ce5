"""Tools on what is remembered: the profiles `memory`, `graph`, `notes`, and `context` over all of them at once.

Memories are remembered, searched, read, changed and forgotten, and there is the pair that ChatGPT asks for; facts about
entities are dated; notes are messages that agents leave for each other, and decisions.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import AwareDatetime, Field

from sharedmem.errors import InvalidError, NotFoundError
from sharedmem.faces.mcp.pages import PageCursor, cut_text, fit, paged, tokens_of
from sharedmem.faces.mcp.tool import ToolCall, ToolKind
from sharedmem.models import Fact, MemoryItem, PlanRecord, Record

_TITLE_LENGTH = 80
_MOST_FOUND = 100

Limit = Annotated[int, Field(ge=1, le=_MOST_FOUND, description="Most items of the answer.")]
Cursor = Annotated[str | None, Field(description="`next_cursor` of the answer before; leave it out for the first.")]
MemoryId = Annotated[str, Field(description="Id of a memory, as searches return it.")]
Tags = Annotated[list[str] | None, Field(description="Tags.")]
UserId = Annotated[str | None, Field(description="The person whom it concerns.")]
ThreadId = Annotated[str | None, Field(description="The conversation that it belongs to.")]


class Memory(Record):
    """A memory."""

    id: str
    content: str
    score: float | None = None
    """Higher is better; comparable within one answer only."""
    tags: list[str] | None = None
    user_id: str | None = None
    agent_id: str | None = None
    thread_id: str | None = None
    happened_at: datetime | None = None
    version: int = 0
    is_cut: bool | None = None
    """True if only the beginning of the content is shown."""


class MemoriesFound(Record):
    """A page of memories."""

    memories: list[Memory]
    next_cursor: str | None = None
    """Pass it as `cursor` for the next page; absent on the last one."""
    note: str | None = None
    """What the reader should know of this answer."""


class MemoryContent(Record):
    """A memory, or a part of a long one."""

    memory: Memory
    next_cursor: str | None = None
    """Pass it as `cursor` for the rest of the content; absent if this is all."""


class Remembered(Record):
    """The result of `remember`."""

    id: str
    merged: bool
    """Whether the same was known already: then this is the id of the older memory."""
    version: int


class Forgotten(Record):
    """The result of `forget`."""

    id: str
    deleted: bool
    """False if there was no such memory."""


class SearchResult(Record):
    """A result of `search`."""

    id: str
    title: str
    url: str


class SearchResults(Record):
    """The results of `search`."""

    results: list[SearchResult]


class Document(Record):
    """A memory as a document."""

    id: str
    title: str
    text: str
    url: str
    metadata: dict[str, str]


async def remember(
    ctx: ToolCall,
    content: Annotated[str, Field(description="The fact, decision or preference, as a whole sentence.")],
    tags: Tags = None,
    user_id: UserId = None,
    thread_id: ThreadId = None,
    expires_in: Annotated[int | None, Field(ge=1, description="Seconds until it is deleted; default: never.")] = None,
) -> Remembered:
    """Store a fact that other agents, or a later session, should know.

    A fact that is known already is merged into the older memory.
    """
    # The id follows from the key of a retry: however often the call is made, there is one memory.
    fields = {
        "id": "" if ctx.idempotency_key is None else ctx.idempotency_key[:32],
        "memory": content,
        "tags": tags or (),
        "user_id": user_id,
        "thread_id": thread_id,
        "ttl": -1 if expires_in is None else expires_in,
    }
    item = {name: value for name, value in fields.items() if value is not None}
    added = await ctx.run("memory.add", item=item)
    return Remembered(id=added.id, merged=added.merged, version=added.version)


async def search_memory(
    ctx: ToolCall,
    query: Annotated[str, Field(description="What to look for, in everyday language.")],
    limit: Limit = 10,
    tags: Annotated[list[str] | None, Field(description="Only memories that have all of these tags.")] = None,
    user_id: UserId = None,
    thread_id: ThreadId = None,
    since: Annotated[datetime | None, Field(description="Only what happened since then; ISO 8601 with zone.")] = None,
    cursor: Cursor = None,
) -> MemoriesFound:
    """Find what is remembered, by meaning and by words, best first. Call it before you answer from memory."""
    at = PageCursor.parse(cursor)
    wanted = min(at.skip + limit, _MOST_FOUND)
    filters = _filters(tags=tags, user_id=user_id, thread_id=thread_id, since=since)
    reply = await ctx.run("memory.search", query=query, limit=wanted, filters=filters)
    found = [memory_view(ctx, hit.item, score=round(hit.score, 4)) for hit in reply.hits[at.skip :]]
    has_more = len(reply.hits) == wanted < _MOST_FOUND
    count, behind = paged(found, at, limit=limit, tokens=ctx.options.max_tokens, next_page=None)
    if behind is None and has_more:
        behind = str(PageCursor(wanted))
    note = f"searched by words only: {reply.degraded}" if reply.degraded else None
    return MemoriesFound(memories=found[:count], next_cursor=behind if found else None, note=note)


async def recent_memories(
    ctx: ToolCall,
    limit: Limit = 10,
    thread_id: ThreadId = None,
    user_id: UserId = None,
    cursor: Cursor = None,
) -> MemoriesFound:
    """List the newest memories, newest first: what happened lately, in one conversation or in all."""
    at = PageCursor.parse(cursor)
    filters = _filters(thread_id=thread_id, user_id=user_id)
    page = await ctx.run(
        "memory.list", filters=filters, limit=min(at.skip + limit, _MOST_FOUND), cursor=at.page or None
    )
    found = [memory_view(ctx, item) for item in page.items[at.skip :]]
    count, behind = paged(found, at, limit=limit, tokens=ctx.options.max_tokens, next_page=page.cursor)
    return MemoriesFound(memories=found[:count], next_cursor=behind)


async def get_memory(ctx: ToolCall, id: MemoryId, cursor: Cursor = None) -> MemoryContent:  # noqa: A002  # as others
    """Read one memory by its id; a long one comes in parts."""
    item = await _item(ctx, id)
    at, version = PageCursor.of_part(cursor, item.version), str(item.version)
    left = item.content[at.skip :]
    empty = _described(item, "").model_copy(update={"is_cut": True})
    cursor_behind_all = str(PageCursor(len(item.content), version))
    frame = MemoryContent(memory=empty, next_cursor=cursor_behind_all).model_dump(mode="json", exclude_none=True)
    part = cut_text(left, tokens=max(ctx.options.max_tokens - tokens_of(frame), 1))
    behind = None if len(part) == len(left) else str(PageCursor(at.skip + len(part), version))
    view = empty.model_copy(update={"content": part, "is_cut": True if behind or at.skip else None})
    return MemoryContent(memory=view, next_cursor=behind)


async def update_memory(
    ctx: ToolCall,
    id: MemoryId,  # noqa: A002  # as others name it
    content: Annotated[str | None, Field(description="The new text; leave it out to keep the old one.")] = None,
    tags: Annotated[list[str] | None, Field(description="The new tags, all of them; leave out to keep.")] = None,
    if_version: Annotated[int | None, Field(description="Change it only if it still has this version.")] = None,
) -> Memory:
    """Change a memory that is wrong or out of date. `undo` brings the earlier version back."""
    changes: dict[str, Any] = {"memory": content, "content": content, "tags": tags}
    given = {name: value for name, value in changes.items() if value is not None}
    if not given:
        raise InvalidError("content", "", "give a new content or new tags")
    return memory_view(ctx, await ctx.run("memory.update", id=id, changes=given, if_version=if_version))


async def forget(
    ctx: ToolCall,
    id: MemoryId,  # noqa: A002  # as others name it
    reason: Annotated[str | None, Field(description="Why; for the log of the team.")] = None,
) -> Forgotten:
    """Delete a memory, because it is wrong or its owner asks for it. `undo` brings it back."""
    deleted = await ctx.run("memory.delete", id=id)
    if deleted and reason:
        event = {"text": f"forgot memory {id}: {reason}", "memory": id}
        await ctx.run("episode.append", session="forgotten", event=event)
    return Forgotten(id=id, deleted=deleted)


async def undo(ctx: ToolCall, id: MemoryId) -> Memory:  # noqa: A002  # as others name it
    """Take back the last change of a memory: an update, a merge, or that it was forgotten."""
    return memory_view(ctx, await ctx.run("memory.undo", id=id))


async def search(
    ctx: ToolCall, query: Annotated[str, Field(description="What to look for, in everyday language.")]
) -> SearchResults:
    """Search the shared memory; `fetch` returns the text of a result."""
    reply = await ctx.run("memory.search", query=query, limit=20)
    found = [SearchResult(id=hit.item.id, title=title_of(hit.item), url=_url(hit.item.id)) for hit in reply.hits]
    count, _ = paged(found, PageCursor(), limit=len(found), tokens=ctx.options.max_tokens, next_page=None)
    return SearchResults(results=found[:count])


async def fetch(ctx: ToolCall, id: MemoryId) -> Document:  # noqa: A002  # ChatGPT names it so
    """Return the text of a result of `search`."""
    item = await _item(ctx, id)
    text = cut_text(item.content, tokens=_text_tokens(ctx))
    told = {
        "user_id": item.user_id,
        "agent_id": item.agent_id,
        "thread_id": item.thread_id,
        "happened_at": item.timestamp and item.timestamp.isoformat(),
        "tags": ", ".join(item.tags),
        "is_cut": "true" if len(text) < len(item.content) else "",
    }
    metadata = {name: value for name, value in told.items() if value}
    return Document(id=item.id, title=title_of(item), text=text, url=_url(item.id), metadata=metadata)


MEMORY_TOOLS = (
    (search_memory, ToolKind("Search memory", "memory")),
    (recent_memories, ToolKind("Recent memories", "memory", at_once=True)),
    (get_memory, ToolKind("Get a memory", "memory", at_once=True)),
    (search, ToolKind("Search", "memory")),
    (fetch, ToolKind("Fetch", "memory", at_once=True)),
    (remember, ToolKind("Remember", "memory", writes=True)),
    (update_memory, ToolKind("Update a memory", "memory", writes=True, destructive=True)),
    (forget, ToolKind("Forget", "memory", writes=True, destructive=True)),
    (undo, ToolKind("Undo a change of a memory", "memory", writes=True, idempotent=False)),
)


async def _item(ctx: ToolCall, id_: str) -> MemoryItem:
    item: MemoryItem | None = await ctx.run("memory.get", id=id_)
    if item is None:
        raise NotFoundError("memory", id_, "it was deleted or has expired, or is in another namespace; search for it")
    return item


def _filters(**fields: Any) -> dict[str, Any] | None:
    given = {name: value for name, value in fields.items() if value is not None}
    return given or None


def memory_view(ctx: ToolCall, item: MemoryItem, *, score: float | None = None) -> Memory:
    """Return a memory as tools show it; a long one is cut."""
    return _described(item, cut_text(item.content, tokens=_text_tokens(ctx)), score=score)


def _described(item: MemoryItem, content: str, *, score: float | None = None) -> Memory:
    return Memory(
        id=item.id,
        content=content,
        score=score,
        tags=list(item.tags) or None,
        user_id=item.user_id,
        agent_id=item.agent_id,
        thread_id=item.thread_id,
        happened_at=item.timestamp,
        version=item.version,
        is_cut=True if len(content) < len(item.content) else None,
    )


def _text_tokens(ctx: ToolCall) -> int:
    """Most tokens of the text of one memory: the rest of an answer has place too."""
    return ctx.options.max_tokens * 3 // 4


def title_of(item: MemoryItem) -> str:
    """Return the first line of a memory, cut to 80 characters."""
    first = item.content.strip().partition("\n")[0]
    return first if len(first) <= _TITLE_LENGTH else first[: _TITLE_LENGTH - 1] + "…"


def _url(id_: str) -> str:
    return f"memory://{id_}"


# -- graph ----------------------------------------------------------------------------------------


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
    found = [_fact_view(fact) for fact in known.facts[at.skip :]]
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
    return _fact_view(
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


GRAPH_TOOLS = (
    (graph_facts, ToolKind("Facts about an entity", "graph")),
    (note_fact, ToolKind("Note a fact", "graph", writes=True)),
)


def _fact_view(fact: Fact) -> DatedFact:
    return DatedFact(
        id=fact.id,
        fact=fact.fact,
        subject=fact.source_name,
        relation=fact.type,
        object=fact.target_name,
        valid_from=fact.valid_from,
        valid_to=fact.valid_to,
    )


# -- notes ----------------------------------------------------------------------------------------


Channel = Annotated[str, Field(description="Name of the channel, without blanks and colons.")]


class Posted(Record):
    """The result of `post_message`."""

    channel: str
    messages: int
    """How many messages the channel has now."""


class PostedMessage(Record):
    """A message."""

    actor: str
    at: datetime
    content: Any


class MessagesFound(Record):
    """Messages of a channel, oldest first."""

    messages: list[PostedMessage]
    next_cursor: str | None = None
    """Pass it as `after` to read on, now or later; absent if there is no message."""
    has_more: bool = False


class Decision(Record):
    """A decision."""

    id: str
    topic: str
    action: str
    reasoning: str
    confidence: float


class DecisionSaved(Record):
    """The result of `save_decision`."""

    saved: bool
    """False if the same was decided just before: then `decision` is the earlier one."""
    decision: Decision


async def post_message(
    ctx: ToolCall,
    channel: Channel,
    content: Annotated[Any, Field(description="Text, or any JSON value.")],
) -> Posted:
    """Leave a message for other agents. It stays in the channel, and each agent reads it when it likes."""
    return Posted(channel=channel, messages=await ctx.run("episode.append", session=channel, event=content))


async def read_messages(
    ctx: ToolCall,
    channel: Channel,
    after: Annotated[str | None, Field(description="`next_cursor` of the answer before; default: the oldest.")] = None,
    limit: Annotated[int, Field(ge=1, le=100, description="Most messages of the answer.")] = 20,
) -> MessagesFound:
    """Read the messages of a channel, from the oldest on, or what came after the last answer."""
    events = await ctx.run("episode.events", session=channel, since=after, limit=limit + 1)
    found = [PostedMessage(actor=event.actor, at=event.at, content=event.event) for event in events]
    count = min(fit(found, tokens=ctx.options.max_tokens), limit)
    cursor = events[count - 1].cursor if count else after
    return MessagesFound(messages=found[:count], next_cursor=cursor, has_more=count < len(found))


async def save_decision(
    ctx: ToolCall,
    topic: Annotated[str, Field(description="What the decision is about, such as a customer, file or symbol.")],
    action: Annotated[str, Field(description="What is to be done, in a word or two.")],
    reasoning: Annotated[str, Field(description="Why.")],
    confidence: Annotated[float, Field(ge=0, le=1, description="How sure you are.")] = 1.0,
    session: Annotated[str, Field(description="The project or session that it belongs to.")] = "main",
) -> DecisionSaved:
    """Record a decision, unless the same was decided in the last five minutes."""
    result = await ctx.run(
        "plan.save_if_new", session=session, symbol=topic, action=action, confidence=confidence, reasoning=reasoning
    )
    return DecisionSaved(saved=result.saved, decision=_decision_view(result.plan))


NOTE_TOOLS = (
    (read_messages, ToolKind("Read messages", "notes", at_once=True)),
    (post_message, ToolKind("Post a message", "notes", writes=True, idempotent=False, at_once=True)),
    (save_decision, ToolKind("Save a decision", "notes", writes=True)),
)


def _decision_view(plan: PlanRecord) -> Decision:
    return Decision(
        id=plan.plan_hash,
        topic=plan.symbol,
        action=plan.action,
        reasoning=plan.reasoning,
        confidence=plan.confidence,
    )


# -- everything at once ---------------------------------------------------------------------------


_FEWEST_TOKENS = 100


class ContextRecalled(Record):
    """What is known, as text."""

    text: str
    """Stored records, quoted as data; empty if nothing that is known has to do with the question."""
    tokens: int
    left_out: int = 0
    """How many more records had no room."""
    degraded: list[str] | None = None
    """What could not be searched in full, and why."""


async def recall_context(
    ctx: ToolCall,
    question: Annotated[str, Field(description="What you have to do or answer, in everyday language.")],
    tokens: Annotated[int, Field(ge=_FEWEST_TOKENS, description="Most tokens of the answer.")] = 1500,
    user_id: Annotated[str | None, Field(description="Only what concerns this person.")] = None,
    as_of: Annotated[AwareDatetime | None, Field(description="What was known and true then; default: now.")] = None,
) -> ContextRecalled:
    """Say what is known that helps with a task: memories, facts and notes in one text. Call it before you begin."""
    # The text is in a JSON string, whose quotes are escaped once more.
    most = max(ctx.options.max_tokens // 2, _FEWEST_TOKENS)
    known = await ctx.run("knowledge.recall", question=question, tokens=min(tokens, most), user_id=user_id, as_of=as_of)
    return ContextRecalled(
        text=known.text, tokens=known.tokens, left_out=known.left_out, degraded=list(known.degraded) or None
    )


CONTEXT_TOOLS = ((recall_context, ToolKind("Recall what is known", "context")),)
