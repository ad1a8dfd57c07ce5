"""Ask each part of a store what it knows for a question."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple, Protocol

import orjson

from sharedmem.graph.graph import Graph
from sharedmem.graph.records import LookupRequest, to_episode
from sharedmem.memory.memories import Memories
from sharedmem.memory.serialization import owner_of, standing_of
from sharedmem.models import ContextItem, Entry, Episode, Hit, Note, NoteHit
from sharedmem.models.recall import RecallSource
from sharedmem.recall.candidates import Candidate
from sharedmem.synthesis.synthesis import Synthesis
from sharedmem.text.analysis import document_terms, query_terms

MOST_MEMORIES = 60
"""Memories that are searched for at most; more hardly fit into a budget."""
_MEMORIES_EACH = 20
"""One memory more is searched for per so many tokens of the budget."""
_FEWEST_MEMORIES = 10
_GRAPH_ITEMS = 20
_NOTES = 5
_NOTES_OF_THE_PAST = 20
_NOTE_TRIPS = 2
_STANDING, _MOST_STANDING = 30, 5
"""Standing instructions and preferences that are searched for, and that are shown."""
_NEAR = 1
"""Steps from an entity that the question names, within which a record is about it."""


class PartAnswer(NamedTuple):
    """What one part of a store answers."""

    candidates: list[Candidate]
    round_trips: int
    degraded: str | None = None
    """Why it was searched by words alone, or not in whole."""


class RecallQuery(NamedTuple):
    """A question, and whose records may answer it."""

    question: str
    as_of: datetime | None
    user_id: str | None
    group_id: str
    app_id: str
    budget: int
    """Most tokens of the answer."""


class ValueReader(Protocol):
    """Reads shared values."""

    async def entry(self, key: str) -> Entry | None:
        """Return the value of a key with its version, actor and times; None if it does not exist."""


Ask = Callable[[RecallQuery], Awaitable[PartAnswer]]


async def ask_memory(memory: Memories, asked: RecallQuery) -> PartAnswer:
    """Search memories. The round trips of `Memories.search`."""
    filters: dict[str, object] = {}
    if asked.user_id is not None:
        filters["user_id"] = asked.user_id
    if asked.as_of is not None:
        filters["until"] = asked.as_of
    limit = min(max(asked.budget // _MEMORIES_EACH, _FEWEST_MEMORIES), MOST_MEMORIES)
    hits = await memory.search(asked.question, limit=limit, filters=filters or None, explain=True)
    found = [_of_memory(place, hit) for place, hit in enumerate(hits)]
    return PartAnswer(found, hits.cost.round_trips, hits.degraded)


async def ask_standing(memory: Memories, owner: str, asked: RecallQuery) -> PartAnswer:
    """Search the standing instructions and preferences of an owner. The round trips of `Memories.search`.

    Instructions about everything always count, others where their topic or words have to do with the question.
    """
    filters: dict[str, object] = {"standing": ("instruction", "preference")}
    if asked.user_id is not None:
        filters["user_id"] = asked.user_id
    if asked.as_of is not None:
        filters["until"] = asked.as_of
    hits = await memory.search(asked.question, limit=_STANDING, filters=filters, explain=True, rerank=False)
    terms = frozenset(query_terms(asked.question))
    found = [hit for hit in hits if owner_of(hit.item) == owner and hit.superseded_by is None and _applies(hit, terms)]
    candidates = [replace(_of_memory(place, hit), standing=hit.standing) for place, hit in enumerate(found)]
    return PartAnswer(candidates[:_MOST_STANDING], hits.cost.round_trips, None)


def _applies(hit: Hit, terms: frozenset[str]) -> bool:
    standing = standing_of(hit.item)
    if standing is None:
        return False
    about_everything = standing.kind == "instruction" and not standing.topic
    return about_everything or not standing.terms.isdisjoint(terms)


def _of_memory(place: int, hit: Hit) -> Candidate:
    item = hit.item
    signals = {signal.name: signal for signal in hit.why.signals} if hit.why is not None else {}
    return Candidate(
        source="memory",
        id=item.id,
        text=item.memory,
        place=place,
        at=item.timestamp or item.created_at,
        author=item.author or item.source_actor or item.created_by,
        spoken=item.author is not None,
        similarity=signals["vector"].score if "vector" in signals else None,
        beside="neighbours" in signals,
    )


async def ask_graph(graph: Graph, asked: RecallQuery) -> PartAnswer:
    """Retrieve facts, entities and episodes, and who recorded them. At most four round trips."""
    found = await graph.retrieve(asked.question, group_id=asked.group_id, k=_GRAPH_ITEMS, as_of=asked.as_of)
    ids = tuple(dict.fromkeys(item.episode_ids[0] for item in found.items if item.episode_ids))
    rows = (await graph.backend.look(asked.group_id, LookupRequest(episodes=ids))).episodes if ids else {}
    episodes = {id_: to_episode(row) for id_, row in rows.items()}
    known = frozenset(found.entities.values())
    items = [_of_graph(place, item, episodes, bool(known)) for place, item in enumerate(found.items)]
    return PartAnswer(items, found.round_trips + bool(ids), found.degraded)


def _of_graph(place: int, item: ContextItem, episodes: Mapping[str, Episode], has_named: bool) -> Candidate:
    episode = episodes.get(item.episode_ids[0]) if item.episode_ids else None
    # An episode without the kind of its source before the text, so that a memory of the same words is a repeat of it.
    is_plain = item.kind == "episode" and episode is not None and isinstance(episode.content, str)
    return Candidate(
        source=item.kind,
        id=item.id,
        text=str(episode.content) if is_plain and episode is not None else item.text,
        place=place,
        at=item.occurred_at or item.valid_from,
        until=item.valid_to,
        author=None if episode is None else episode.user or episode.created_by,
        named=has_named and item.distance is not None and item.distance <= _NEAR,
    )


async def ask_notes(notes: Synthesis, asked: RecallQuery) -> PartAnswer:
    """Query notes. Two round trips. Of the past, also notes that were retired since."""
    of_past = asked.as_of is not None
    hits = await notes.query_memory(
        app_id=asked.app_id,
        query=asked.question,
        user_id=asked.user_id,
        n_results=_NOTES_OF_THE_PAST if of_past else _NOTES,
        recall="all" if of_past else "current",
    )
    kept = [hit for hit in hits if asked.as_of is None or _held(hit.metadata, asked.as_of)][:_NOTES]
    return PartAnswer([_of_note(place, hit) for place, hit in enumerate(kept)], _NOTE_TRIPS)


def _held(note: Note, at: datetime) -> bool:
    """Return whether a note was there at a time, and not retired yet."""
    return note.created_at <= at and (note.status in {"active", "conflict_pending"} or note.updated_at > at)


def _of_note(place: int, hit: NoteHit) -> Candidate:
    note = hit.metadata
    return Candidate(
        source="note",
        id=note.id,
        text=_note_text(hit.memory_note),
        place=place,
        at=note.updated_at if note.status == "active" else note.created_at,
        author=note.created_by,
        similarity=hit.similarity_score,
    )


def _note_text(text: str) -> str:
    """Return the sentences of a note: without headings and tags, and each line only if it says something new."""
    body, _, _ = text.partition("\n---")
    lines: list[str] = []
    known: set[str] = set()
    for line in body.splitlines():
        terms = set(document_terms(line))
        if not line.startswith("#") and terms - known:
            lines.append(line.strip())
            known |= terms
    return "\n".join(lines) or text


async def ask_values(values: ValueReader, keys: Sequence[str], asked: RecallQuery) -> PartAnswer:
    """Read the values that the caller has asked for. One round trip."""
    if asked.as_of is not None:
        return PartAnswer([], 0, "values have no history, so none is shown as of an earlier time")
    entries = await asyncio.gather(*(values.entry(key) for key in keys))
    found = [_of_value(place, entry) for place, entry in enumerate(filter(None, entries))]
    missing = [key for key, entry in zip(keys, entries, strict=True) if entry is None]
    return PartAnswer(found, 1, f"there is no value at {', '.join(missing)}" if missing else None)


def _of_value(place: int, entry: Entry) -> Candidate:
    value = entry.value
    text = value if isinstance(value, str) else orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS)
    source: RecallSource = "value"
    return Candidate(
        source=source,
        id=entry.key,
        text=text if isinstance(text, str) else text.decode(),
        place=place,
        at=entry.updated,
        author=entry.actor,
        asked=True,
    )
