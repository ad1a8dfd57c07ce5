"""Ingest episodes into a group, or undo one: read, decide without I/O, commit in one step, retry on conflict.

Without a language model an episode takes at most four round trips: names, candidates for unknown names, the lines of
its claims, the write. One more fetches candidates that resemble a new name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from sharedmem.errors import ConflictError, NotFoundError
from sharedmem.graph.access import CommitRetries, TextEmbeddings
from sharedmem.graph.changes import (
    ClaimedEpisode,
    FactChanges,
    ProjectionInputs,
    assign_recorded_times,
    build_claims,
    build_commit,
    build_episode_row,
    change_events,
    claim_timelines,
    compute_fact_changes,
    dated_mentions,
    latest_recorded,
    read_dependencies,
    read_timelines,
    required_mentions,
)
from sharedmem.graph.episode_input import EpisodeInput, check_extractable, check_not_undone
from sharedmem.graph.names import check_encodable
from sharedmem.graph.protocol import GraphBackend
from sharedmem.graph.records import (
    OPEN,
    CommitRequest,
    EntityRow,
    EpisodeRow,
    FactRow,
    LookupRequest,
    LookupResult,
    StaleGroup,
    earliest_version,
    from_stamp,
    to_episode,
    to_latest_fact,
    to_stamp,
)
from sharedmem.graph.relations import Vocabulary
from sharedmem.graph.resolver import NameResolution, NameResolver, entity_text, open_judge
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.models import Episode, EpisodeResult

FactGuard = Callable[[LookupResult], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class IngestResult:
    """The outcome of ingesting some episodes."""

    rows: Mapping[str, EpisodeRow]
    """By id; with episodes that existed already."""
    fresh: frozenset[str]
    """Ids of the episodes with something new."""
    warnings: Mapping[str, tuple[str, ...]]
    entities: Mapping[str, EntityRow]
    """By canonical id: all mentioned entities."""
    shift: FactChanges
    turns: tuple[tuple[str, int], ...] = ()
    """Sessions that have new turns, with their number of turns now."""


class Ingestion:
    """Ingests episodes into the graphs of a namespace, one atomic step at a time.

    Args:
        context: dependencies that the hub shares with its stores.
        namespace: namespace of the graphs.
        backend: stores the graphs.
        vocabulary: relation types.
        permit: raises if nothing may be added to an existing episode.
    """

    def __init__(
        self,
        context: KnowledgeContext,
        namespace: str,
        backend: GraphBackend,
        vocabulary: Vocabulary,
        permit: Callable[[Episode], None],
    ) -> None:
        self._permit = permit
        self._clock = context.clock
        self._lasts = context.record_tier.is_durable
        self._backend = backend
        self._vocabulary = vocabulary
        self._meanings = TextEmbeddings(context, namespace)
        self._context = context
        self._turns = CommitRetries.of(context, namespace)

    async def take_in(
        self, group: str, episode_inputs: Sequence[EpisodeInput], *, permit: FactGuard | None = None
    ) -> IngestResult:
        """Add some episodes to a group's graph, all in one step.

        Args:
            group: group of the graph.
            episode_inputs: the episodes, with their mentions and statements.
            permit: reads the facts that they contradict by id, and raises if these must not change; exactly the
                state that it reads is replaced.

        Raises:
            ConflictError: an id exists with another content, or other writers keep changing the same records.
            NotFoundError, InvalidError: as `apply_stored_state`.
            UnavailableError: the server cannot be reached.
        """
        # One judge for all attempts of a step: it decides the same question as before.
        judge = open_judge(self._context)
        resolver = NameResolver(self._backend, self._meanings.of, clock=self._clock, judge=judge)
        return await self._turns.until_written(group, lambda: self._attempt(group, episode_inputs, permit, resolver))

    async def _attempt(
        self, group: str, episode_inputs: Sequence[EpisodeInput], permit: FactGuard | None, resolver: NameResolver
    ) -> IngestResult | StaleGroup:
        ids = tuple(episode_input.episode.id for episode_input in episode_inputs)
        covered = tuple(id_ for episode_input in episode_inputs for id_ in episode_input.episode.covers)
        contradicted = tuple(id_ for episode_input in episode_inputs for id_ in episode_input.extraction.contradicted)
        dated = dated_mentions(episode_inputs, recorded=to_stamp("now", self._clock.now()))
        seen, resolution = await asyncio.gather(
            self._backend.look(group, LookupRequest(episodes=(*ids, *covered), facts=contradicted)),
            resolver.resolve(group, required_mentions(episode_inputs), dated),
        )
        if permit is not None:
            await permit(seen)
        new = [self._with_stored_state(episode_input, seen) for episode_input in new_inputs(episode_inputs, seen)]
        if not new:
            return IngestResult(seen.episodes, frozenset(), {}, {}, FactChanges((), ()))
        now = to_stamp("now", self._clock.now())
        claimed, warnings = self._build_claims(new, seen, resolution, now)
        projection, lines = await read_timelines(
            *(self._backend, group, [claim for one in claimed for claim in one.fresh]),
            vocabulary=self._vocabulary,
            version=earliest_version(seen.version, resolution.version),
            into=resolution.into,
            entities=tuple(dict.fromkeys(id_ for one in claimed for id_ in one.entities)),
        )
        claimed = assign_recorded_times(claimed, latest_recorded(projection.lines))
        shift = compute_fact_changes([claim for one in claimed for claim in one.fresh], projection)
        rows = [build_episode_row(one, projection, shift.after) for one in claimed]
        changes = build_commit(
            rows, shift, resolution, projection, former=[one.former for one in claimed if one.former]
        )
        embedded = await self._embedded(changes, shift)
        committed = await self._backend.commit(group, embedded, seen=lines.version)
        if isinstance(committed, StaleGroup):
            return StaleGroup()
        known = {**lines.entities, **{row.id: row for row in resolution.entities}}
        after = {**seen.episodes, **{row.id: row for row in embedded.episodes}}
        return IngestResult(
            after, frozenset(episode_input.episode.id for episode_input in new), warnings, known, shift, committed.turns
        )

    def _with_stored_state(self, episode_input: EpisodeInput, seen: LookupResult) -> EpisodeInput:
        """Return an input that adds to a stored episode with that episode's state; its author stays."""
        episode_input = apply_stored_state(episode_input, seen)
        former = seen.episodes.get(episode_input.episode.id)
        if former is None:
            return episode_input
        held = to_episode(former)
        self._permit(held)
        return replace(episode_input, episode=episode_input.episode.model_copy(update={"created_by": held.created_by}))

    def _build_claims(
        self, new: Sequence[EpisodeInput], seen: LookupResult, resolution: NameResolution, now: int
    ) -> tuple[list[ClaimedEpisode], dict[str, tuple[str, ...]]]:
        claimed, warnings = [], {}
        for episode_input in new:
            former = seen.episodes.get(episode_input.episode.id)
            before = former.claims if former is not None else ()
            found = build_claims(
                episode_input,
                recorded=now,
                vocabulary=self._vocabulary,
                own=resolution.own_of,
                known=seen.facts,
                first=len(before),
            )
            named = (resolution.canonical_of(mention.name) for mention in required_mentions([episode_input]))
            moment = episode_input.episode.recorded_at
            recorded = now if moment is None else to_stamp("recorded_at", moment)
            claimed.append(
                ClaimedEpisode(episode_input, (*before, *found.claims), recorded, former, tuple(dict.fromkeys(named)))
            )
            warnings[episode_input.episode.id] = (*found.warnings, *resolution.warnings)
        return claimed, warnings

    async def _embedded(self, changes: CommitRequest, shift: FactChanges) -> CommitRequest:
        """Return the changes with vectors for new rows; changed rows keep the vector that they have.

        The durable tier takes whole records, so with it all rows get their vectors.
        """
        before: frozenset[str] = frozenset() if self._lasts else shift.known_before
        fresh = [row for row in changes.facts if row.id not in before]
        texts = [row.text for row in changes.episodes] + [row.text for row in fresh]
        halves = await self._meanings.halves([*texts, *(entity_text(row) for row in changes.entities)])

        def fact(row: FactRow) -> FactRow:
            return row if row.id in before else replace(row, vector=halves.get(row.text))

        return replace(
            changes,
            episodes=tuple(replace(row, vector=halves.get(row.text)) for row in changes.episodes),
            entities=tuple(replace(row, vector=halves.get(entity_text(row))) for row in changes.entities),
            facts=tuple(fact(row) for row in changes.facts),
        )


def apply_stored_state(episode_input: EpisodeInput, seen: LookupResult) -> EpisodeInput:
    """Return an input that refers to stored episodes with their current state.

    The episodes that it adds to, or summarises, were read before the step: since then they may be deleted or undone.

    Raises:
        NotFoundError: an episode that it adds to or summarises was deleted, or a summarised one was undone.
        InvalidError: the episode that it adds to was undone, or its facts were extracted already.
    """
    for id_ in episode_input.episode.covers:
        if id_ not in seen.episodes or seen.episodes[id_].undone != OPEN:
            raise NotFoundError("episode", id_, "it was deleted or undone while it was summarised")
    if not episode_input.adds:
        return episode_input
    former = seen.episodes.get(episode_input.episode.id)
    if former is None:
        raise NotFoundError("episode", episode_input.episode.id, "it was deleted meanwhile; use another episode")
    held = to_episode(former)
    (check_extractable if episode_input.extracts else check_not_undone)(held)
    moments = {"occurred_at": episode_input.episode.occurred_at, "recorded_at": episode_input.episode.recorded_at}
    done = {"extraction": "done"} if episode_input.extracts else {}
    return replace(episode_input, episode=held.model_copy(update={**moments, **done}), digest=former.digest)


def new_inputs(episode_inputs: Sequence[EpisodeInput], seen: LookupResult) -> list[EpisodeInput]:
    """Return the inputs with something new: one for each id, and none that is stored already.

    Raises:
        ConflictError: another episode has the same id.
    """
    fresh: dict[str, EpisodeInput] = {}
    for episode_input in episode_inputs:
        id_ = episode_input.episode.id
        row = seen.episodes.get(id_)
        # An id that only statements have used so far may still become an episode.
        held = fresh[id_].digest if id_ in fresh else None if row is None or row.letter == "m" else row.digest
        if held is None or episode_input.adds:
            fresh[id_] = episode_input
        elif held != episode_input.digest:
            raise ConflictError(f"an episode {id_!r} with another content exists already; give this one another id")
    return list(fresh.values())


class EpisodeUndo:
    """Undoes episodes.

    Args:
        context: dependencies that the hub shares with its stores.
        namespace: namespace of the graphs.
        backend: stores the graphs.
        vocabulary: relation types.
        permit: raises if an episode must not change.
    """

    def __init__(
        self,
        context: KnowledgeContext,
        namespace: str,
        backend: GraphBackend,
        vocabulary: Vocabulary,
        permit: Callable[[Episode], None],
    ) -> None:
        self._permit = permit
        self._clock = context.clock
        self._turns = CommitRetries.of(context, namespace)
        self._backend = backend
        self._vocabulary = vocabulary

    async def undo(self, group: str, episode_id: str) -> EpisodeResult:
        """Retract all that an episode claims. Three round trips; four where relations form chains.

        Raises:
            NotFoundError: there is no such episode.
        """
        return await self._turns.until_written(group, lambda: self._attempt(group, episode_id))

    async def _attempt(self, group: str, id_: str) -> EpisodeResult | StaleGroup:
        seen = await self._backend.look(group, LookupRequest(episodes=(check_encodable("episode", id_),)))
        row = seen.episodes.get(id_)
        if row is None:
            raise NotFoundError("episode", id_, f"group {group!r} has no episode with that id")
        self._permit(to_episode(row))
        if row.undone != OPEN:
            return EpisodeResult(id=id_, episode=to_episode(row), repeated=True)
        stored = {line for lines in row.lines for line in lines}
        projection, lines = await read_timelines(
            *(self._backend, group, row.claims), vocabulary=self._vocabulary, version=seen.version, stored=stored
        )
        undone = max(to_stamp("now", self._clock.now()), latest_recorded(projection.lines) + 1, row.recorded + 1)
        after = _retract_claims(row, undone)
        shift = compute_fact_changes(after.claims, projection)
        changes = _undo_commit(row, after, shift, projection)
        if isinstance(await self._backend.commit(group, changes, seen=lines.version), StaleGroup):
            return StaleGroup()
        facts = tuple(to_latest_fact(fact, group) for fact in shift.after)
        return EpisodeResult(id=id_, episode=to_episode(after), facts=facts)


def _retract_claims(row: EpisodeRow, undone: int) -> EpisodeRow:
    claims = tuple(replace(claim, retracted=min(claim.retracted, undone)) for claim in row.claims)
    episode = to_episode(row).model_copy(update={"undone_at": from_stamp(undone)})
    return replace(row, claims=claims, undone=undone, body=episode.model_dump_json(exclude_defaults=True).encode())


def _undo_commit(row: EpisodeRow, after: EpisodeRow, shift: FactChanges, projection: ProjectionInputs) -> CommitRequest:
    # While a merge is in progress, claims are in other lines than those in which they count.
    places = (*row.lines, *(claim_timelines(claim, projection) for claim in row.claims))
    own = {line for lines in places for line in lines}
    return CommitRequest(
        guards=tuple(sorted(own)),
        episodes=(after,),
        facts=shift.after,
        former=(row, *shift.former),
        events=change_events([after], shift),
        steady=read_dependencies(projection, row.claims, own),
    )
