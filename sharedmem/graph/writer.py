"""Add episodes, entities and relationships to the graph, invalidate facts and undo episodes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from sharedmem.errors import InvalidError, NotFoundError, SharedMemoryError
from sharedmem.graph.bitemporal.changes import check_interval, start_stamp
from sharedmem.graph.bitemporal.projection import MOST_EPISODES
from sharedmem.graph.episode_input import (
    EpisodeInput,
    check_extractable,
    check_not_undone,
    complete_episode,
    content_text,
    make_input,
)
from sharedmem.graph.extraction.protocol import Extraction, Known, Mention, Statement
from sharedmem.graph.ingestion import EpisodeUndo, IngestResult
from sharedmem.graph.protocol import GraphBackend
from sharedmem.graph.records import (
    GRAPH,
    OPEN,
    EpisodeRow,
    FactRow,
    LookupRequest,
    LookupResult,
    RecordSearch,
    to_entity,
    to_episode,
    to_latest_fact,
    to_stamp,
)
from sharedmem.graph.resolution.names import check_entity_name, check_group, check_id, looks_like_entity_id
from sharedmem.graph.resolution.resolver import ALIASES_AT_ONCE
from sharedmem.graph.summaries import ConversationSummaries
from sharedmem.models import Entity, Episode, EpisodeResult, Fact, Unknown
from sharedmem.redis.scope import EVERYONE
from sharedmem.runtime import measured
from sharedmem.text.analysis import query_terms

_MOST_KNOWN = 20


async def known_facts(backend: GraphBackend, group: str, episode: Episode) -> Known:
    """The facts and entities that share most words with an episode. Two round trips.

    Raises:
        UnavailableError: the server cannot be reached.
    """
    terms = query_terms(content_text(episode.content))
    if not terms:
        return Known()
    searches = [
        RecordSearch(("f",), terms, candidates=_MOST_KNOWN),
        RecordSearch(("n",), terms, candidates=_MOST_KNOWN),
    ]
    facts, entities = [
        tuple(hit.id for hit in hits.text[:_MOST_KNOWN]) for hits in await backend.search(group, searches)
    ]
    seen = await backend.look(group, LookupRequest(facts=facts, entities=entities))
    rows = [seen.facts[id_] for id_ in facts if id_ in seen.facts]
    return Known(
        [to_entity(seen.entities[id_], group, {}) for id_ in entities if id_ in seen.entities],
        [to_latest_fact(row, group) for row in rows if row.current is not None],
    )


def build_results(taken: IngestResult, tales: Sequence[EpisodeInput], group: str) -> list[EpisodeResult]:
    """What became of some tales, in their order; of one that comes twice, the second time tells nothing new."""
    fresh = set(taken.fresh)
    results = []
    for tale in tales:
        results.append(_build_result(taken, tale.episode.id, group, is_new=tale.episode.id in fresh))
        fresh.discard(tale.episode.id)
    return results


def _build_result(taken: IngestResult, id_: str, group: str, *, is_new: bool) -> EpisodeResult:
    """What became of one.

    Entities are told without attributes, which `entity` answers; of an episode that was there already only itself.
    """
    row = taken.rows[id_]
    episode = to_episode(row)
    if not is_new:
        return EpisodeResult(id=id_, episode=episode, repeated=True)
    said = [fact for fact in taken.shift.after if id_ in fact.episodes]
    return EpisodeResult(
        id=id_,
        episode=episode,
        entities=tuple(to_entity(entity, group, {}) for one in episode.entities if (entity := taken.entities.get(one))),
        facts=tuple(to_latest_fact(fact, group) for fact in said),
        closed=tuple(to_latest_fact(fact, group) for fact in closed_facts(taken, row)),
        warnings=taken.warnings.get(id_, ()),
    )


def closed_facts(taken: IngestResult, row: EpisodeRow) -> list[FactRow]:
    """The facts that were known before, and end earlier or not at all since an episode was recorded."""
    before = {fact.id: fact.current for fact in taken.shift.former}
    moments = {claim.recorded for claim in row.claims}
    return [fact for fact in taken.shift.after if before.get(fact.id) is not None and _is_shortened(fact, moments)]


def _is_shortened(fact: FactRow, moments: set[int]) -> bool:
    """Whether it was shortened, or found to be wrong, at one of some moments."""
    newest = fact.versions[-1]
    if fact.current is None:
        return newest.superseded in moments
    shorter = [one for one in fact.versions[:-1] if one.end > newest.end]
    return bool(shorter) and newest.recorded in moments


MOST_AT_ONCE = 32
"""Episodes that one step takes in."""


class GraphWriter(ConversationSummaries):
    """What actors tell the graphs of a namespace."""

    @measured("graph.add_episode")
    async def add_episode(  # noqa: PLR0913  # each is a fact of the episode
        self,
        content: str | Mapping[str, Any] | Episode,
        *,
        group_id: str | None = None,
        id: str = "",  # noqa: A002  # as the specification has it
        occurred_at: datetime | None = None,
        recorded_at: datetime | None = None,
        source: str = "",
        session: str | None = None,
        user: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        extract: bool = True,
    ) -> EpisodeResult:
        """Take in an episode: what it mentions and says becomes part of the graph, all in one atomic step.

        Facts that it contradicts are closed, never deleted. Told again with the same id and content, nothing changes.
        At most four round trips without a language model, five when a new name resembles a known one; more only while
        others change the same entities.

        Args:
            content: what happened, as text or data, or a whole `Episode`.
            group_id: whose graph, `tenant:session`; may be left out with an `Episode`, which says it.
            id: yours, for idempotence; made when empty.
            occurred_at: when it happened, with a time zone; now when not given.
            recorded_at: when the graph learned of it, to tell old news again; now when not given.
            source: what or who it comes from; `message` when not given.
            session, user: which conversation it belongs to, and whose it is.
            metadata: anything that is to be kept with it.
            extract: whether entities and facts are looked for in it.

        Returns:
            What it mentions and says, and what it closed. Where the model that extracts cannot be asked, the episode
            is kept and found all the same, `episode.extraction` is `failed`, and `extract()` tries again.

        Raises:
            InvalidError: the content, id, group or a moment is none.
            ConflictError: the id is there with another content, or the group is being deleted.
            AccessDeniedError: this actor may not write the namespace's graphs.
            UnavailableError: the server cannot be reached.
        """
        fields: dict[str, object] = {
            "group_id": group_id,
            "id": id,
            "occurred_at": occurred_at,
            "recorded_at": recorded_at,
        }
        fields |= {"source": source, "session": session, "user": user, "metadata": metadata}
        episode = complete_episode(content, self._context.clock, **fields)
        (result,) = await self._told([episode], extract=extract)
        return result

    @measured("graph.add_episodes")
    async def add_episodes(self, episodes: Sequence[Episode], *, extract: bool = True) -> list[EpisodeResult]:
        """As `add_episode` for each, in their order, up to 32 of one group in one step.

        Args:
            episodes: any number, also of several groups.
            extract: whether entities and facts are looked for in them.

        Raises:
            InvalidError: one of them is none; nothing was written then.
            ConflictError, AccessDeniedError, UnavailableError: as `add_episode`; those before are in the graph.
        """
        checked = [complete_episode(episode, self._context.clock) for episode in episodes]
        results: list[EpisodeResult] = []
        for first in range(0, len(checked), MOST_AT_ONCE):
            results += await self._told(checked[first : first + MOST_AT_ONCE], extract=extract)
        return results

    @measured("graph.extract")
    async def extract(self, episode_id: str, *, group_id: str) -> EpisodeResult:
        """Look again for entities and facts in an episode whose extraction has failed, or never was asked for.

        Raises:
            NotFoundError: there is no such episode, or it was deleted meanwhile.
            InvalidError: its facts have been extracted already, or it was undone.
            UnavailableError, LimitedError, ConfigError: the model cannot be asked.
            AccessDeniedError, ConflictError: as `add_episode`.
        """
        group = await self._enter(group_id, "write")
        episode, digest = await self._episode(group, episode_id)
        check_extractable(episode)
        self._check_author(episode)
        extraction = await self._ways.extractor.extract(episode, await self._known(group, episode))
        return await self._one(group, EpisodeInput(episode, digest, extraction, adds=True, extracts=True))

    @measured("graph.add_entity")
    async def add_entity(  # each is a fact of the entity
        self,
        name: str,
        *,
        group_id: str,
        type: str = "",  # noqa: A002  # as add_relationship has it
        aliases: Sequence[str] = (),
        attributes: Mapping[str, Any] | None = None,
        summary: str = "",
        at: datetime | None = None,
    ) -> Entity:
        """An entity: found by its name, an alias or a very similar name, or made.

        Args:
            name: as people write it.
            group_id: whose graph.
            type: one word, such as `person`.
            aliases: further names that lead to it, up to 300; `add_alias` takes any number.
            attributes: values by name, as JSON has them; each is a fact with a history of its own.
            summary: what it is, in a sentence.
            at: since when the attributes have these values; now when not given.

        Returns:
            The entity with all that is known of it now.

        Raises:
            InvalidError: a name, an attribute or a moment is none.
            ConflictError, AccessDeniedError, UnavailableError: as `add_episode`.
        """
        group = await self._enter(group_id, "write")
        if len(aliases) > ALIASES_AT_ONCE:
            advice = f"give up to {ALIASES_AT_ONCE} with the entity and the others to add_alias"
            raise InvalidError("aliases", f"{len(aliases)} names", advice)
        mention = Mention(
            check_entity_name("name", name),
            type.strip(),
            tuple(check_entity_name("alias", alias) for alias in aliases),
            dict(attributes or {}),
            summary,
        )
        said = f"{mention.name}{f' is a {mention.type}' if mention.type else ''}"
        tale = self._statement(group, said, Extraction((mention,)), occurred_at=at)
        taken = await self._ingestion.take_in(group, [tale])
        self._refuse(taken, tale)
        (entity,) = await self._entities(group, list(taken.entities.values())[:1], self._when(None, None))
        return entity

    @measured("graph.add_relationship")
    async def add_relationship(  # each is a fact of the relationship
        self,
        source: str,
        type: str,  # noqa: A002  # as the specification has it
        target: str,
        *,
        group_id: str,
        valid_from: datetime | Unknown | None = None,
        valid_to: datetime | None = None,
        recorded_at: datetime | None = None,
        episode: str | None = None,
        fact: str | None = None,
    ) -> Fact:
        """Say that something holds between two entities, which are made where they are new.

        A relation that is functional (`lives_in`) closes the fact that it contradicts at `valid_from`. Said again, the
        fact is one fact with two episodes.

        Args:
            source, target: names, or ids of entities.
            type: of the relation; turned around where it is declared as the inverse of another.
            group_id: whose graph.
            valid_from: since when; when it was said where nothing is given; `"unknown"` when nobody knows.
            valid_to: until when, exclusive; None while it holds.
            recorded_at: when the graph learned of it; now when not given.
            episode: id of the episode that says so; made where there is none.
            fact: as a sentence; made of the names when not given.

        Returns:
            The fact as it is known now.

        Raises:
            InvalidError: a name, a type or a moment is none, or it would end before it begins; the episode was undone.
            NotFoundError: the episode was deleted meanwhile.
            ConflictError, AccessDeniedError, UnavailableError: as `add_episode`.
        """
        group = await self._enter(group_id, "write")
        ways = self._ways.vocabulary
        statement = Statement(
            *(source, ways.normal(type), target),
            valid_from=valid_from,
            valid_to=valid_to,
            text=(fact or "").strip(),
        )
        now = to_stamp("now", self._context.clock.now())
        check_interval(start_stamp(valid_from, now), OPEN if valid_to is None else to_stamp("valid_to", valid_to))
        mentions = [await self._mention(group, name) for name in (source, target)]
        statement = replace(statement, source=mentions[0].name, target=mentions[1].name)
        said = statement.text or ways.sentence(statement.source, statement.type, statement.target)
        extraction = Extraction(tuple(mentions), (statement,))
        tale = await self._tale(group, episode, said, extraction, recorded_at)
        taken = await self._ingestion.take_in(group, [tale])
        self._refuse(taken, tale)
        return await self._stated_fact(group, taken, tale)

    @measured("graph.invalidate")
    async def invalidate(
        self, fact_id: str, *, group_id: str, at: datetime | None = None, episode: str | None = None
    ) -> Fact:
        """Close a fact: it does not hold any more. Nothing is deleted, and `undo` of the episode opens it again.

        Args:
            fact_id: which.
            group_id: whose graph.
            at: since when it does not hold; now when not given.
            episode: id of the episode that says so; made where there is none.

        Returns:
            The fact as it is known now; as it was when it had ended by then already. It stays open where an episode
            says that it holds from that very moment on: undo that one.

        Raises:
            NotFoundError: there is no such fact.
            InvalidError: it had not begun by then.
            ConflictError, AccessDeniedError, UnavailableError: as `add_episode`.
        """
        group = await self._enter(group_id, "write")
        row = await self._fact_row(group, fact_id)
        ended = self._context.clock.now() if at is None else at
        stamp, current = to_stamp("at", ended), row.current
        if current is None or current.end <= stamp:
            return to_latest_fact(row, group)
        if current.start >= stamp:
            raise InvalidError("at", ended, "the fact begins then or later; undo the episode that says so instead")
        statement = Extraction(contradicted=(fact_id,))
        tale = await self._tale(group, episode, f"Not any more: {row.text}", statement, None, occurred_at=ended)
        await self._ingestion.take_in(group, [tale], permit=partial(self._permit_to_close, group))
        return to_latest_fact(await self._fact_row(group, fact_id), group)

    @measured("graph.undo")
    async def undo(self, episode_id: str, *, group_id: str) -> EpisodeResult:
        """Take back all that an episode said: its facts go, and exactly what it had closed is open again.

        What was known before stays known: asked with `known_at` before this call, the graph answers as ever. An
        episode that was undone before stays as it is (`repeated`).

        Returns:
            The episode, and in `facts` what changed.

        Raises:
            NotFoundError: there is no such episode.
            AccessDeniedError, UnavailableError, ConflictError: as `add_episode`.
        """
        group = await self._enter(group_id, "write")
        undoing = EpisodeUndo(self._context, self._namespace, self._backend, self._ways.vocabulary, self._check_author)
        return await undoing.undo(group, episode_id)

    async def _permit_to_close(self, group: str, seen: LookupResult) -> None:
        """Refuse to close a fact that an episode of another actor says, where `memory_rights` is `owner`."""
        if self._scope.identity.may_change(EVERYONE, GRAPH):
            return
        for row in seen.facts.values():
            if len(row.episodes) >= MOST_EPISODES:
                # More may say so than the fact knows by name.
                self._check_everyone(row.id)
            told = await self._backend.look(group, LookupRequest(episodes=row.episodes))
            for episode in map(to_episode, told.episodes.values()):
                if episode.undone_at is None:
                    self._check_author(episode)

    async def _told(self, episodes: Sequence[Episode], *, extract: bool) -> list[EpisodeResult]:
        by_group: dict[str, list[Episode]] = {}
        for episode in map(self._signed, episodes):
            by_group.setdefault(check_group(episode.group_id), []).append(episode)
        found: dict[str, Iterator[EpisodeResult]] = {}
        for group, own in by_group.items():
            await self._enter(group, "write")
            tales = await asyncio.gather(*(self._extracted(group, episode, extract=extract) for episode in own))
            taken = await self._ingestion.take_in(group, tales)
            await self._note_turns(group, taken.turns, len(tales))
            found[group] = iter(build_results(taken, tales, group))
        return [next(found[episode.group_id]) for episode in episodes]

    async def _extracted(self, group: str, episode: Episode, *, extract: bool) -> EpisodeInput:
        if not extract:
            return make_input(episode)
        try:
            extraction = await self._ways.extractor.extract(episode, await self._known(group, episode))
        except SharedMemoryError as error:
            # The episode itself is never lost to a model's mood.
            self._counters.increment("graph_extraction_failures", extractor=self._ways.extractor.name)
            failed = episode.model_copy(update={"extraction": "failed"})
            return make_input(failed, Extraction(warnings=(f"nothing was extracted: {error}",)))
        return make_input(episode.model_copy(update={"extraction": "done"}), extraction)

    async def _mention(self, group: str, name: str) -> Mention:
        """An entity told by its name, or by its id."""
        if looks_like_entity_id(name):
            row = (await self._backend.look(group, LookupRequest(entities=(name,)))).entities.get(name)
            if row is not None:
                return Mention(row.name, id=row.id)
        return Mention(check_entity_name("entity", name))

    async def _known(self, group: str, episode: Episode) -> Known:
        if not self._ways.extractor.wants_known:
            return Known()
        return await known_facts(self._backend, group, episode)

    async def _one(self, group: str, tale: EpisodeInput) -> EpisodeResult:
        (result,) = build_results(await self._ingestion.take_in(group, [tale]), [tale], group)
        return result

    async def _tale(
        self,
        group: str,
        episode: str | None,
        said: str,
        extraction: Extraction,
        recorded_at: datetime | None,
        *,
        occurred_at: datetime | None = None,
    ) -> EpisodeInput:
        """A statement of its own, or one more of an episode that is there."""
        if episode is None:
            return self._statement(group, said, extraction, occurred_at=occurred_at, recorded_at=recorded_at)
        seen = await self._backend.look(group, LookupRequest(episodes=(check_id("episode", episode),)))
        row = seen.episodes.get(episode)
        if row is None:
            moments = {"occurred_at": occurred_at, "recorded_at": recorded_at}
            return self._statement(group, said, extraction, id_=episode, **moments)
        held = to_episode(row)
        check_not_undone(held)
        moments = {"recorded_at": recorded_at, "occurred_at": occurred_at or held.occurred_at}
        return EpisodeInput(held.model_copy(update=moments), row.digest, extraction, adds=True)

    def _statement(
        self,
        group: str,
        said: str,
        extraction: Extraction,
        *,
        occurred_at: datetime | None = None,
        recorded_at: datetime | None = None,
        id_: str = "",
    ) -> EpisodeInput:
        episode = complete_episode(
            said, self._context.clock, group_id=group, id=id_, occurred_at=occurred_at, recorded_at=recorded_at
        )
        kind = {"kind": "statement", "source": self._scope.identity.name}
        stated = self._signed(episode).model_copy(update=kind)
        return make_input(stated, extraction)

    def _refuse(self, taken: IngestResult, tale: EpisodeInput) -> None:
        # What comes from a model may be wrong in parts; what a program says must be right.
        warnings = taken.warnings.get(tale.episode.id, ())
        if warnings and not taken.rows[tale.episode.id].claims and tale.extraction.statements:
            raise InvalidError("relationship", tale.episode.content, warnings[0])

    async def _stated_fact(self, group: str, taken: IngestResult, tale: EpisodeInput) -> Fact:
        (result,) = build_results(taken, [tale], group)
        if result.facts:
            return result.facts[-1]
        (*_, id_) = to_episode(taken.rows[tale.episode.id]).fact_ids
        return to_latest_fact(await self._fact_row(group, id_), group)

    async def _episode(self, group: str, id_: str) -> tuple[Episode, str]:
        row = (await self._backend.look(group, LookupRequest(episodes=(id_,)))).episodes.get(id_)
        if row is None:
            raise NotFoundError("episode", id_, f"group {group!r} has none of that id")
        return to_episode(row), row.digest

    async def _fact_row(self, group: str, id_: str) -> FactRow:
        row = (await self._backend.look(group, LookupRequest(facts=(id_,)))).facts.get(id_)
        if row is None:
            raise NotFoundError("fact", id_, f"group {group!r} has none of that id")
        return row
