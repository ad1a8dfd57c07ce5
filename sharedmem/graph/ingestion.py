"""Ingest episodes into a group, or undo one: read, decide without I/O, commit in one step, retry on conflict.

Without a language model an episode takes at most four round trips: names, candidates for names that nobody knows, the
lines in which its claims stand, the write. One more fetches candidates that resemble a new name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from sharedmem.errors import ConflictError, NotFoundError
from sharedmem.graph.bitemporal.changes import (
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
    latest_recorded,
    read_dependencies,
    read_timelines,
    required_mentions,
)
from sharedmem.graph.bitemporal.relations import Vocabulary
from sharedmem.graph.commits import CommitRetries, TextEmbeddings
from sharedmem.graph.episode_input import EpisodeInput, check_extractable, check_not_undone
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
from sharedmem.graph.resolution.names import check_encodable
from sharedmem.graph.resolution.resolver import NameResolution, NameResolver, entity_text, open_judge
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.models import Episode, EpisodeResult

FactGuard = Callable[[LookupResult], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class IngestResult:
    """What became of some tales."""

    rows: Mapping[str, EpisodeRow]
    """By id; of those that were there already too."""
    fresh: frozenset[str]
    """Ids of those that said something new."""
    warnings: Mapping[str, tuple[str, ...]]
    entities: Mapping[str, EntityRow]
    """By canonical id: everything that is mentioned."""
    shift: FactChanges
    turns: tuple[tuple[str, int], ...] = ()
    """Sessions that have got turns, with how many they have now."""


class Ingestion:
    """Ingests episodes into the graphs of a namespace, one atomic step at a time.

    Args:
        context: what the hub shares with its stores.
        namespace: whose graphs.
        backend: keeps them.
        vocabulary: how relations behave.
        permit: raises where nothing may be added to an episode that is there.
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
        self._lasts = context.memory_tier is not None
        self._backend = backend
        self._vocabulary = vocabulary
        self._meanings = TextEmbeddings(context, namespace)
        self._context = context
        self._turns = CommitRetries.of(context, namespace)

    async def take_in(
        self, group: str, tales: Sequence[EpisodeInput], *, permit: FactGuard | None = None
    ) -> IngestResult:
        """Make some episodes part of a group's graph, all in one step.

        Args:
            group: whose graph.
            tales: the episodes, with what was found in them.
            permit: looks at the facts that they contradict by id, and raises where these must stay as they are; what
                it has looked at is what is written over.

        Raises:
            ConflictError: an id is there with another content, or others change the same things without end.
            NotFoundError, InvalidError: as `apply_stored_state`.
            UnavailableError: the server cannot be reached.
        """
        # One judge for all attempts of a step: it decides a doubt that comes again as before.
        judge = open_judge(self._context)
        resolver = NameResolver(self._backend, self._meanings.of, clock=self._clock, judge=judge)
        return await self._turns.until_written(group, lambda: self._attempt(group, tales, permit, resolver))

    async def _attempt(
        self, group: str, tales: Sequence[EpisodeInput], permit: FactGuard | None, resolver: NameResolver
    ) -> IngestResult | StaleGroup:
        ids = tuple(tale.episode.id for tale in tales)
        covered = tuple(id_ for tale in tales for id_ in tale.episode.covers)
        contradicted = tuple(id_ for tale in tales for id_ in tale.extraction.contradicted)
        seen, resolution = await asyncio.gather(
            self._backend.look(group, LookupRequest(episodes=(*ids, *covered), facts=contradicted)),
            resolver.resolve(group, required_mentions(tales)),
        )
        if permit is not None:
            await permit(seen)
        told = [self._with_stored_state(tale, seen) for tale in new_inputs(tales, seen)]
        if not told:
            return IngestResult(seen.episodes, frozenset(), {}, {}, FactChanges((), ()))
        now = to_stamp("now", self._clock.now())
        saids, warnings = self._said(told, seen, resolution, now)
        ground, lines = await read_timelines(
            *(self._backend, group, [claim for said in saids for claim in said.fresh]),
            vocabulary=self._vocabulary,
            version=earliest_version(seen.version, resolution.version),
            into=resolution.into,
            entities=tuple(dict.fromkeys(id_ for said in saids for id_ in said.entities)),
        )
        saids = assign_recorded_times(saids, latest_recorded(ground.lines))
        shift = compute_fact_changes([claim for said in saids for claim in said.fresh], ground)
        rows = [build_episode_row(said, ground, shift.after) for said in saids]
        changes = build_commit(rows, shift, resolution, ground, former=[said.former for said in saids if said.former])
        embedded = await self._embedded(changes, shift)
        committed = await self._backend.commit(group, embedded, seen=lines.version)
        if isinstance(committed, StaleGroup):
            return StaleGroup()
        known = {**lines.entities, **{row.id: row for row in resolution.entities}}
        after = {**seen.episodes, **{row.id: row for row in embedded.episodes}}
        return IngestResult(after, frozenset(tale.episode.id for tale in told), warnings, known, shift, committed.turns)

    def _with_stored_state(self, tale: EpisodeInput, seen: LookupResult) -> EpisodeInput:
        """A tale that adds to an episode which is there: as that is by now, and still its author's."""
        tale = apply_stored_state(tale, seen)
        former = seen.episodes.get(tale.episode.id)
        if former is None:
            return tale
        held = to_episode(former)
        self._permit(held)
        return replace(tale, episode=tale.episode.model_copy(update={"created_by": held.created_by}))

    def _said(
        self, told: Sequence[EpisodeInput], seen: LookupResult, resolution: NameResolution, now: int
    ) -> tuple[list[ClaimedEpisode], dict[str, tuple[str, ...]]]:
        saids, warnings = [], {}
        for tale in told:
            former = seen.episodes.get(tale.episode.id)
            before = former.claims if former is not None else ()
            found = build_claims(
                tale,
                recorded=now,
                vocabulary=self._vocabulary,
                own=resolution.own_of,
                known=seen.facts,
                first=len(before),
            )
            named = (resolution.canonical_of(mention.name) for mention in required_mentions([tale]))
            moment = tale.episode.recorded_at
            recorded = now if moment is None else to_stamp("recorded_at", moment)
            saids.append(ClaimedEpisode(tale, (*before, *found.claims), recorded, former, tuple(dict.fromkeys(named))))
            warnings[tale.episode.id] = (*found.warnings, *resolution.warnings)
        return saids, warnings

    async def _embedded(self, changes: CommitRequest, shift: FactChanges) -> CommitRequest:
        """The same with vectors for what is new; what only changes keeps the one that it has.

        The durable tier takes records whole, so that there all of them bring their vectors along.
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


def apply_stored_state(tale: EpisodeInput, seen: LookupResult) -> EpisodeInput:
    """A tale that leans on episodes which are there, as these are by now.

    What it adds to, or sums up, was read before the step began: since then it may have been deleted or undone.

    Raises:
        NotFoundError: an episode that it adds to or sums up has gone, or a summed up one does not count any more.
        InvalidError: the episode that it adds to was undone, or its facts have been extracted already.
    """
    for id_ in tale.episode.covers:
        if id_ not in seen.episodes or seen.episodes[id_].undone != OPEN:
            raise NotFoundError("episode", id_, "it was deleted or undone while it was summed up")
    if not tale.adds:
        return tale
    former = seen.episodes.get(tale.episode.id)
    if former is None:
        raise NotFoundError("episode", tale.episode.id, "it was deleted meanwhile; say it with another episode")
    held = to_episode(former)
    (check_extractable if tale.extracts else check_not_undone)(held)
    moments = {"occurred_at": tale.episode.occurred_at, "recorded_at": tale.episode.recorded_at}
    done = {"extraction": "done"} if tale.extracts else {}
    return replace(tale, episode=held.model_copy(update={**moments, **done}), digest=former.digest)


def new_inputs(tales: Sequence[EpisodeInput], seen: LookupResult) -> list[EpisodeInput]:
    """The tales that say something new: one a id, and none that was told before.

    Raises:
        ConflictError: another episode has the id of one.
    """
    fresh: dict[str, EpisodeInput] = {}
    for tale in tales:
        id_ = tale.episode.id
        row = seen.episodes.get(id_)
        # What was only told by statements under an id may still become the episode of that id.
        held = fresh[id_].digest if id_ in fresh else None if row is None or row.letter == "m" else row.digest
        if held is None or tale.adds:
            fresh[id_] = tale
        elif held != tale.digest:
            raise ConflictError(f"an episode {id_!r} with another content is there already; give this one another id")
    return list(fresh.values())


class EpisodeUndo:
    """Takes episodes back.

    Args:
        context: what the hub shares with its stores.
        namespace: whose graphs.
        backend: keeps them.
        vocabulary: how relations behave.
        permit: raises where an episode must stay as it is.
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
            raise NotFoundError("episode", id_, f"group {group!r} has none of that id")
        self._permit(to_episode(row))
        if row.undone != OPEN:
            return EpisodeResult(id=id_, episode=to_episode(row), repeated=True)
        stored = {line for lines in row.lines for line in lines}
        ground, lines = await read_timelines(
            *(self._backend, group, row.claims), vocabulary=self._vocabulary, version=seen.version, stored=stored
        )
        undone = max(to_stamp("now", self._clock.now()), latest_recorded(ground.lines) + 1, row.recorded + 1)
        after = _retract_claims(row, undone)
        shift = compute_fact_changes(after.claims, ground)
        changes = _undo_commit(row, after, shift, ground)
        if isinstance(await self._backend.commit(group, changes, seen=lines.version), StaleGroup):
            return StaleGroup()
        facts = tuple(to_latest_fact(fact, group) for fact in shift.after)
        return EpisodeResult(id=id_, episode=to_episode(after), facts=facts)


def _retract_claims(row: EpisodeRow, undone: int) -> EpisodeRow:
    claims = tuple(replace(claim, retracted=min(claim.retracted, undone)) for claim in row.claims)
    told = to_episode(row).model_copy(update={"undone_at": from_stamp(undone)})
    return replace(row, claims=claims, undone=undone, body=told.model_dump_json(exclude_defaults=True).encode())


def _undo_commit(row: EpisodeRow, after: EpisodeRow, shift: FactChanges, ground: ProjectionInputs) -> CommitRequest:
    # While a merge is under way, claims lie in other lines than those in which they count.
    places = (*row.lines, *(claim_timelines(claim, ground) for claim in row.claims))
    own = {line for lines in places for line in lines}
    return CommitRequest(
        guards=tuple(sorted(own)),
        episodes=(after,),
        facts=shift.after,
        former=(row, *shift.former),
        told=change_events([after], shift),
        steady=read_dependencies(ground, row.claims, own),
    )
