"""Add episodes, entities and relationships to the graph, invalidate facts and undo episodes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from sharedmem.errors import InvalidError, NotFoundError, SharedMemoryError
from sharedmem.graph.access import EntityLookup, GraphAccess, IngestRules
from sharedmem.graph.changes import check_interval, start_stamp
from sharedmem.graph.entity_versions import to_entity
from sharedmem.graph.episode_input import (
    EpisodeInput,
    check_extractable,
    check_not_undone,
    complete_episode,
    content_text,
    make_input,
)
from sharedmem.graph.ingestion import EpisodeUndo, Ingestion, IngestResult
from sharedmem.graph.names import check_entity_name, check_group, check_id, looks_like_entity_id
from sharedmem.graph.projection import MOST_EPISODES
from sharedmem.graph.protocol import Extraction, GraphBackend, GraphProgress, Known, Mention, Statement
from sharedmem.graph.records import (
    OPEN,
    EpisodeRow,
    FactRow,
    LookupRequest,
    LookupResult,
    RecordSearch,
    to_episode,
    to_latest_fact,
    to_stamp,
)
from sharedmem.graph.relations import SUMMARY_RELATION
from sharedmem.graph.resolver import ALIASES_AT_ONCE
from sharedmem.graph.summaries import ConversationSummaries
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.models import Entity, Episode, EpisodeResult, Fact
from sharedmem.text.analysis import query_terms

_MOST_KNOWN = 20


async def known_facts(backend: GraphBackend, group: str, episode: Episode) -> Known:
    """Return the facts and entities that share most words with an episode. Two round trips.

    Raises:
        UnavailableError: the server cannot be reached.
    """
    terms = query_terms(content_text(episode.content))
    if not terms:
        return Known()
    searches = [
        RecordSearch(("f",), terms, candidates=_MOST_KNOWN, with_letters=False),
        RecordSearch(("n",), terms, candidates=_MOST_KNOWN, with_letters=False),
    ]
    facts, entities = [
        tuple(hit.id for hit in hits.text[:_MOST_KNOWN]) for hits in await backend.search(group, searches)
    ]
    seen = await backend.look(group, LookupRequest(facts=facts, entities=entities))
    rows = [seen.facts[id_] for id_ in facts if id_ in seen.facts]
    return Known(
        [to_entity(seen.entities[id_], group, {}) for id_ in entities if id_ in seen.entities],
        # A model has nothing to say about the links of summaries.
        [to_latest_fact(row, group) for row in rows if row.current is not None and row.type != SUMMARY_RELATION],
    )


def build_results(taken: IngestResult, episode_inputs: Sequence[EpisodeInput], group: str) -> list[EpisodeResult]:
    """Return the outcome of some inputs, in their order; the second of two equal ones is not new."""
    fresh = set(taken.fresh)
    results = []
    for episode_input in episode_inputs:
        results.append(_build_result(taken, episode_input.episode.id, group, is_new=episode_input.episode.id in fresh))
        fresh.discard(episode_input.episode.id)
    return results


def _build_result(taken: IngestResult, id_: str, group: str, *, is_new: bool) -> EpisodeResult:
    """Return the outcome of one input.

    Entities are returned without attributes, which `entity` returns; for a repeated episode only the episode.
    """
    row = taken.rows[id_]
    episode = to_episode(row)
    if not is_new:
        return EpisodeResult(id=id_, episode=episode, repeated=True)
    facts = [fact for fact in taken.shift.after if id_ in fact.episodes]
    return EpisodeResult(
        id=id_,
        episode=episode,
        entities=tuple(to_entity(entity, group, {}) for one in episode.entities if (entity := taken.entities.get(one))),
        facts=tuple(to_latest_fact(fact, group) for fact in facts),
        closed=tuple(to_latest_fact(fact, group) for fact in closed_facts(taken, row)),
        warnings=taken.warnings.get(id_, ()),
    )


def closed_facts(taken: IngestResult, row: EpisodeRow) -> list[FactRow]:
    """Return the facts that were known before, and end earlier or not at all since an episode was recorded."""
    before = {fact.id: fact.current for fact in taken.shift.former}
    moments = {claim.recorded for claim in row.claims}
    return [fact for fact in taken.shift.after if before.get(fact.id) is not None and _is_shortened(fact, moments)]


def _is_shortened(fact: FactRow, moments: set[int]) -> bool:
    """Return whether a fact was shortened, or found to be wrong, at one of some moments."""
    newest = fact.versions[-1]
    if fact.current is None:
        return newest.superseded in moments
    shorter = [one for one in fact.versions[:-1] if one.end > newest.end]
    return bool(shorter) and newest.recorded in moments


MOST_AT_ONCE = 32
"""Episodes of one step."""


class GraphWriter:
    """Writes to the graphs of a namespace as one actor.

    Args:
        context: dependencies that the hub shares with its stores.
        access: rights of the actor.
        backend: stores the graphs.
        rules: relation types and extractor.
        summaries: notified of turns that were added to conversations.
    """

    def __init__(
        self,
        context: KnowledgeContext,
        access: GraphAccess,
        backend: GraphBackend,
        rules: IngestRules,
        summaries: ConversationSummaries,
    ) -> None:
        self._access = access
        self._backend = backend
        self._vocabulary = rules.vocabulary
        self._extractor = rules.extractor
        self._summaries = summaries
        self._clock = context.clock
        self._counters = context.counters
        self._lookup = EntityLookup(backend)
        step = (context, access.namespace, backend, rules.vocabulary, access.check_author)
        self._ingestion = Ingestion(*step)
        self._undoing = EpisodeUndo(*step)

    async def add_episode(
        self, content: str | Mapping[str, Any] | Episode, fields: Mapping[str, object], *, extract: bool
    ) -> EpisodeResult:
        """Ingest one episode; see `Graph.add_episode`."""
        (result,) = await self._ingest([complete_episode(content, self._clock, **fields)], extract=extract)
        return result

    async def add_episodes(self, episodes: Sequence[Episode], *, extract: bool) -> list[EpisodeResult]:
        """Ingest episodes, up to 32 of one group in one step; see `Graph.add_episodes`."""
        checked = [complete_episode(episode, self._clock) for episode in episodes]
        results: list[EpisodeResult] = []
        for first in range(0, len(checked), MOST_AT_ONCE):
            results += await self._ingest(checked[first : first + MOST_AT_ONCE], extract=extract)
        return results

    async def extract(self, group_id: str, episode_id: str) -> EpisodeResult:
        """Extract entities and facts of a stored episode; see `Graph.extract`."""
        group = await self._access.enter(group_id, "write")
        episode, digest = await self._episode(group, episode_id)
        check_extractable(episode)
        self._access.check_author(episode)
        extraction = await self._extractor.extract(episode, await self._known(group, episode))
        return await self._one(group, EpisodeInput(episode, digest, extraction, adds=True, extracts=True))

    async def add_entity(self, group_id: str, mention: Mention, at: datetime | None) -> Entity:
        """Find or create an entity; see `Graph.add_entity`."""
        group = await self._access.enter(group_id, "write")
        if len(mention.aliases) > ALIASES_AT_ONCE:
            advice = f"pass up to {ALIASES_AT_ONCE} with the entity and the others to add_alias"
            raise InvalidError("aliases", f"{len(mention.aliases)} names", advice)
        mention = replace(
            mention,
            name=check_entity_name("name", mention.name),
            aliases=tuple(check_entity_name("alias", alias) for alias in mention.aliases),
        )
        text = f"{mention.name}{f' is a {mention.type}' if mention.type else ''}"
        episode_input = self._statement(group, text, Extraction((mention,)), occurred_at=at)
        taken = await self._ingestion.take_in(group, [episode_input])
        self._refuse(taken, episode_input)
        (entity,) = await self._lookup.entities(
            group, list(taken.entities.values())[:1], self._access.point_in_time(None, None)
        )
        return entity

    async def add_relationship(
        self, group_id: str, statement: Statement, *, episode: str | None, recorded_at: datetime | None
    ) -> Fact:
        """Add a relationship between two entities; see `Graph.add_relationship`."""
        group = await self._access.enter(group_id, "write")
        ways = self._vocabulary
        statement = replace(statement, type=ways.normal(statement.type))
        now = to_stamp("now", self._clock.now())
        ends = OPEN if statement.valid_to is None else to_stamp("valid_to", statement.valid_to)
        check_interval(start_stamp(statement.valid_from, now), ends)
        mentions = [await self._mention(group, name) for name in (statement.source, statement.target)]
        statement = replace(statement, source=mentions[0].name, target=mentions[1].name)
        text = statement.text or ways.sentence(statement.source, statement.type, statement.target)
        extraction = Extraction(tuple(mentions), (statement,))
        episode_input = await self._episode_input(group, episode, text, extraction, recorded_at)
        taken = await self._ingestion.take_in(group, [episode_input])
        self._refuse(taken, episode_input)
        return await self._stated_fact(group, taken, episode_input)

    async def invalidate(self, group_id: str, fact_id: str, at: datetime | None, episode: str | None) -> Fact:
        """Close a fact; see `Graph.invalidate`."""
        group = await self._access.enter(group_id, "write")
        row = await self._fact_row(group, fact_id)
        ended = self._clock.now() if at is None else at
        stamp, current = to_stamp("at", ended), row.current
        if current is None or current.end <= stamp:
            return to_latest_fact(row, group)
        if current.start >= stamp:
            raise InvalidError("at", ended, "the fact begins then or later; undo its episode instead")
        statement = Extraction(contradicted=(fact_id,))
        episode_input = await self._episode_input(
            group, episode, f"Not any more: {row.text}", statement, None, occurred_at=ended
        )
        await self._ingestion.take_in(group, [episode_input], permit=partial(self._permit_to_close, group))
        return to_latest_fact(await self._fact_row(group, fact_id), group)

    async def undo(self, group_id: str, episode_id: str) -> EpisodeResult:
        """Retract all claims of an episode; see `Graph.undo`."""
        return await self._undoing.undo(await self._access.enter(group_id, "write"), episode_id)

    async def delete_group(self, group_id: str, progress: GraphProgress | None) -> int:
        """Delete everything of a group; see `Graph.delete_by_group`."""
        group = await self._access.enter(group_id, "write")
        self._access.check_everyone(group)
        return await self._backend.delete(group, progress=progress)

    async def _permit_to_close(self, group: str, seen: LookupResult) -> None:
        """Reject closing a fact of another actor's episode, if `memory_rights` is `owner`."""
        if self._access.may_change_everything():
            return
        for row in seen.facts.values():
            if len(row.episodes) >= MOST_EPISODES:
                # More episodes may state the fact than it lists.
                self._access.check_everyone(row.id)
            found_episodes = await self._backend.look(group, LookupRequest(episodes=row.episodes))
            for episode in map(to_episode, found_episodes.episodes.values()):
                if episode.undone_at is None:
                    self._access.check_author(episode)

    async def _ingest(self, episodes: Sequence[Episode], *, extract: bool) -> list[EpisodeResult]:
        by_group: dict[str, list[Episode]] = {}
        for episode in map(self._access.sign, episodes):
            by_group.setdefault(check_group(episode.group_id), []).append(episode)
        found: dict[str, Iterator[EpisodeResult]] = {}
        for group, own in by_group.items():
            await self._access.enter(group, "write")
            episode_inputs = await asyncio.gather(
                *(self._extracted(group, episode, extract=extract) for episode in own)
            )
            taken = await self._ingestion.take_in(group, episode_inputs)
            await self._summaries.note_turns(group, taken.turns, len(episode_inputs))
            found[group] = iter(build_results(taken, episode_inputs, group))
        return [next(found[episode.group_id]) for episode in episodes]

    async def _extracted(self, group: str, episode: Episode, *, extract: bool) -> EpisodeInput:
        if not extract:
            return make_input(episode)
        try:
            extraction = await self._extractor.extract(episode, await self._known(group, episode))
        except SharedMemoryError as error:
            # A failure of the model must not lose the episode.
            self._counters.increment("graph_extraction_failures", extractor=self._extractor.name)
            failed = episode.model_copy(update={"extraction": "failed"})
            return make_input(failed, Extraction(warnings=(f"nothing was extracted: {error}",)))
        return make_input(episode.model_copy(update={"extraction": "done"}), extraction)

    async def _mention(self, group: str, name: str) -> Mention:
        """Return an entity, by its name or by its id."""
        if looks_like_entity_id(name):
            row = (await self._backend.look(group, LookupRequest(entities=(name,)))).entities.get(name)
            if row is not None:
                return Mention(row.name, id=row.id)
        return Mention(check_entity_name("entity", name))

    async def _known(self, group: str, episode: Episode) -> Known:
        if not self._extractor.wants_known:
            return Known()
        return await known_facts(self._backend, group, episode)

    async def _one(self, group: str, episode_input: EpisodeInput) -> EpisodeResult:
        (result,) = build_results(await self._ingestion.take_in(group, [episode_input]), [episode_input], group)
        return result

    async def _episode_input(
        self,
        group: str,
        episode: str | None,
        text: str,
        extraction: Extraction,
        recorded_at: datetime | None,
        *,
        occurred_at: datetime | None = None,
    ) -> EpisodeInput:
        """Return a statement as an episode of its own, or as an addition to an existing episode."""
        if episode is None:
            return self._statement(group, text, extraction, occurred_at=occurred_at, recorded_at=recorded_at)
        seen = await self._backend.look(group, LookupRequest(episodes=(check_id("episode", episode),)))
        row = seen.episodes.get(episode)
        if row is None:
            moments = {"occurred_at": occurred_at, "recorded_at": recorded_at}
            return self._statement(group, text, extraction, id_=episode, **moments)
        held = to_episode(row)
        check_not_undone(held)
        moments = {"recorded_at": recorded_at, "occurred_at": occurred_at or held.occurred_at}
        return EpisodeInput(held.model_copy(update=moments), row.digest, extraction, adds=True)

    def _statement(
        self,
        group: str,
        text: str,
        extraction: Extraction,
        *,
        occurred_at: datetime | None = None,
        recorded_at: datetime | None = None,
        id_: str = "",
    ) -> EpisodeInput:
        episode = complete_episode(
            text, self._clock, group_id=group, id=id_, occurred_at=occurred_at, recorded_at=recorded_at
        )
        kind = {"kind": "statement", "source": self._access.actor_name}
        stated = self._access.sign(episode).model_copy(update=kind)
        return make_input(stated, extraction)

    def _refuse(self, taken: IngestResult, episode_input: EpisodeInput) -> None:
        # Statements of a model may be partly wrong; statements of a program must be right.
        warnings = taken.warnings.get(episode_input.episode.id, ())
        if warnings and not taken.rows[episode_input.episode.id].claims and episode_input.extraction.statements:
            raise InvalidError("relationship", episode_input.episode.content, warnings[0])

    async def _stated_fact(self, group: str, taken: IngestResult, episode_input: EpisodeInput) -> Fact:
        (result,) = build_results(taken, [episode_input], group)
        if result.facts:
            return result.facts[-1]
        (*_, id_) = to_episode(taken.rows[episode_input.episode.id]).fact_ids
        return to_latest_fact(await self._fact_row(group, id_), group)

    async def _episode(self, group: str, id_: str) -> tuple[Episode, str]:
        row = (await self._backend.look(group, LookupRequest(episodes=(id_,)))).episodes.get(id_)
        if row is None:
            raise NotFoundError("episode", id_, f"group {group!r} has no episode with that id")
        return to_episode(row), row.digest

    async def _fact_row(self, group: str, id_: str) -> FactRow:
        row = (await self._backend.look(group, LookupRequest(facts=(id_,)))).facts.get(id_)
        if row is None:
            raise NotFoundError("fact", id_, f"group {group!r} has no fact with that id")
        return row
