"""`store.recall`: what an agent should know now, from all parts of a store, in a budget of tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import NamedTuple, Protocol, get_args

import orjson

from sharedmem.errors import InvalidError, SharedMemoryError, UnsupportedError
from sharedmem.graph.graph import Graph
from sharedmem.graph.records import LookupRequest, to_episode
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.memory.memories import Memories
from sharedmem.memory.relevance import standing_applies
from sharedmem.memory.search import check_query
from sharedmem.memory.serialization import owner_key, owner_of, standing_of
from sharedmem.models import ContextItem, Entry, Episode, Hit, Note, NoteHit
from sharedmem.models.recall import RecalledContext, RecallPart, RecallSource
from sharedmem.providers.chunks import token_encoding
from sharedmem.providers.protocol import thresholds_of
from sharedmem.recall.candidates import RELATED, Candidate, pack, rate
from sharedmem.redis.scope import Scope
from sharedmem.runtime import measured
from sharedmem.synthesis.synthesis import Synthesis
from sharedmem.text.analysis import document_terms, query_terms

PARTS: tuple[RecallPart, ...] = get_args(RecallPart)
MAIN = "main"
"""The group of the graph and the app of notes, unless the caller names others."""
FEWEST_TOKENS = 100
MOST_TOKENS = 100_000
_MOST_VALUES = 100
_VALUES, _STANDING = "values", "standing"


def group_of(group_id: str | None, user_id: str | None) -> str:
    """Return the group of the graph: the caller's, or one for each user, so that no user reads facts of others."""
    if group_id is not None:
        return group_id
    return MAIN if user_id is None else f"{MAIN}:{user_id}"


@dataclass(frozen=True)
class StoreFacets:
    """The parts of a store, opened when they are first needed."""

    memory: Callable[[], Memories]
    graph: Callable[[], Graph]
    notes: Callable[[], Synthesis]
    values: ValueReader


class ContextRecall:
    """Answers what an agent should know now, with the rights of one actor.

    Args:
        context: dependencies that the hub shares with its stores.
        scope: the namespace and the actor, whose standing instructions count where there is no user.
        facets: the parts of the store, with the rights of the same actor.
    """

    def __init__(self, context: KnowledgeContext, scope: Scope, facets: StoreFacets) -> None:
        self._context = context
        self._counters = context.counters
        self._facets = facets
        self._offers_standing = context.settings_of(scope.identity.namespace).standing_memories
        self._actor = scope.signature.decode()

    @measured("recall")
    async def recall(  # noqa: PLR0913  # each narrows what is looked for
        self,
        question: str,
        *,
        tokens: int,
        as_of: datetime | None,
        user_id: str | None,
        parts: Sequence[RecallPart] | None,
        values: Sequence[str],
        group_id: str | None,
        app_id: str | None,
        threshold: float | None,
        model: str,
    ) -> RecalledContext:
        """Return what is known; see `SharedMemoryStore.recall`."""
        asked = RecallQuery(
            question=check_query("question", question),
            as_of=_check_moment(as_of),
            user_id=user_id,
            group_id=group_of(group_id, user_id),
            app_id=MAIN if app_id is None else app_id,
            budget=_check_tokens(tokens),
        )
        least = RELATED if threshold is None else _check_threshold(threshold)
        chosen = _check_parts(parts)
        calls = self._calls(chosen, is_named=parts is not None)
        if keys := _check_keys(values):
            calls[_VALUES] = partial(ask_values, self._facets.values, keys)
        if self._offers_standing and "memory" in chosen:
            calls[_STANDING] = partial(ask_standing, self._facets.memory(), owner_key(user_id, self._actor))
        answers, failures = await _ask_all(calls, asked)
        standing = answers.pop(_STANDING).candidates if _STANDING in answers else []
        scale = thresholds_of(self._context.embedder_name)
        rated = rate(asked.question, [answer.candidates for answer in answers.values()], scale, least=least)
        packed = pack(
            rated,
            budget=asked.budget,
            terms=frozenset(query_terms(asked.question)),
            now=self._context.clock.now(),
            model=model,
            standing=standing,
        )
        less = {name: answer.degraded for name, answer in answers.items() if answer.degraded} | failures
        if less:
            self._counters.increment("recall_degraded")
        return RecalledContext(
            question=asked.question,
            text=packed.text,
            items=packed.items,
            standing=packed.standing,
            tokens=packed.tokens,
            tokens_by=token_encoding(model) or "estimate",
            left_out=packed.left_out,
            repeated=packed.repeated,
            as_of=as_of,
            degraded=tuple(f"{name}: {reason}" for name, reason in less.items()),
            round_trips=max((answer.round_trips for answer in answers.values()), default=0),
        )

    def _calls(self, parts: Sequence[RecallPart], *, is_named: bool) -> dict[str, Ask]:
        """Return the call for each part; a part that is not installed is left out unless the caller has named it."""
        openers: dict[RecallPart, Callable[[], Ask]] = {
            "memory": lambda: partial(ask_memory, self._facets.memory()),
            "graph": lambda: partial(ask_graph, self._facets.graph()),
            "notes": lambda: partial(ask_notes, self._facets.notes()),
        }
        calls: dict[str, Ask] = {}
        for part in parts:
            try:
                calls[part] = openers[part]()
            except UnsupportedError:
                if is_named:
                    raise
        return calls


async def _ask_all(calls: Mapping[str, Ask], asked: RecallQuery) -> tuple[dict[str, PartAnswer], dict[str, str]]:
    """Return the answers of the parts, and why others have failed.

    Raises:
        InvalidError: an argument is invalid.
        SharedMemoryError: a value cannot be read, which the caller has named; or all parts have failed.
    """
    found = await asyncio.gather(*(call(asked) for call in calls.values()), return_exceptions=True)
    answers: dict[str, PartAnswer] = {}
    failures: dict[str, SharedMemoryError] = {}
    for name, answer in zip(calls, found, strict=True):
        if isinstance(answer, PartAnswer):
            answers[name] = answer
        elif name != _VALUES and isinstance(answer, SharedMemoryError) and not isinstance(answer, InvalidError):
            failures[name] = answer
        else:
            raise answer
    if failures and not answers:
        raise next(iter(failures.values()))
    return answers, {name: str(error) for name, error in failures.items()}


# -- checks ---------------------------------------------------------------------------------------


def _check_tokens(tokens: int) -> int:
    if isinstance(tokens, bool) or not isinstance(tokens, int) or not FEWEST_TOKENS <= tokens <= MOST_TOKENS:
        raise InvalidError("tokens", tokens, f"give a whole number from {FEWEST_TOKENS} to {MOST_TOKENS}")
    return tokens


def _check_moment(as_of: datetime | None) -> datetime | None:
    if as_of is None:
        return None
    if not isinstance(as_of, datetime) or as_of.tzinfo is None:
        raise InvalidError("as_of", as_of, "give a time with a time zone")
    return as_of


def _check_threshold(threshold: float) -> float:
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 <= threshold <= 1:
        raise InvalidError("threshold", threshold, "give a number from 0, which answers anything, to 1")
    return float(threshold)


def _check_parts(parts: Sequence[RecallPart] | None) -> tuple[RecallPart, ...]:
    if parts is None:
        return PARTS
    if isinstance(parts, str) or not isinstance(parts, Sequence) or not set(parts) <= set(PARTS):
        raise InvalidError("parts", parts, f"give a list of some of {', '.join(PARTS)}")
    return tuple(dict.fromkeys(parts))


def _check_keys(values: Sequence[str]) -> tuple[str, ...]:
    if isinstance(values, str) or not isinstance(values, Sequence) or len(values) > _MOST_VALUES:
        raise InvalidError("values", values, f"give a list of up to {_MOST_VALUES} keys")
    return tuple(dict.fromkeys(values))


# -- the parts of a store ------------------------------------------------------------------------


MOST_MEMORIES = 60
"""Memories that are searched for at most; more hardly fit into a budget."""
_MEMORIES_EACH = 20
"""One memory more is searched for per so many tokens of the budget."""
_FEWEST_MEMORIES = 10
_GRAPH_ITEMS = 20
_NOTES = 5
_NOTES_OF_THE_PAST = 20
_NOTE_TRIPS = 2
_STANDING_SOUGHT, _MOST_STANDING = 30, 5
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
    hits = await memory.search(asked.question, limit=_STANDING_SOUGHT, filters=filters, explain=True, rerank=False)
    terms = frozenset(query_terms(asked.question))
    found = [hit for hit in hits if owner_of(hit.item) == owner and hit.superseded_by is None and _applies(hit, terms)]
    candidates = [replace(_of_memory(place, hit), standing=hit.standing) for place, hit in enumerate(found)]
    return PartAnswer(candidates[:_MOST_STANDING], hits.cost.round_trips, None)


def _applies(hit: Hit, terms: frozenset[str]) -> bool:
    standing = standing_of(hit.item)
    return standing is not None and standing_applies(standing, terms)


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
