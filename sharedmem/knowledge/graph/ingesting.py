"""Taking in what was told: look, decide without I/O, write everything in one step; look again when somebody was faster.

Without a language model an episode takes at most four round trips: names, candidates for names that nobody knows, the
lines in which its claims stand, the write. One more fetches candidates that resemble a new name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from sharedmem.errors import ConflictError, NotFoundError
from sharedmem.knowledge.graph.claiming import claims_of, mentions_of
from sharedmem.knowledge.graph.judging import judge_of
from sharedmem.knowledge.graph.lines import read_lines
from sharedmem.knowledge.graph.meanings import Meanings
from sharedmem.knowledge.graph.planning import Said, Shift, changes_of, episode_row, newest_of, rising, shifted
from sharedmem.knowledge.graph.protocol import GraphBackend
from sharedmem.knowledge.graph.records import Behind, Changes, EntityRow, EpisodeRow, FactRow, Seen, Wanted, earliest
from sharedmem.knowledge.graph.relations import Vocabulary
from sharedmem.knowledge.graph.resolving import Resolution, Resolver, entity_text
from sharedmem.knowledge.graph.tales import Tale, check_counts, check_extractable
from sharedmem.knowledge.graph.times import OPEN, stamp_of
from sharedmem.knowledge.graph.turns import Turns
from sharedmem.knowledge.graph.views import episode_of
from sharedmem.knowledge.minds import Minds
from sharedmem.models import Episode

Permit = Callable[[Seen], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class TakenIn:
    """What became of some tales."""

    rows: Mapping[str, EpisodeRow]
    """By id; of those that were there already too."""
    fresh: frozenset[str]
    """Ids of those that said something new."""
    warnings: Mapping[str, tuple[str, ...]]
    entities: Mapping[str, EntityRow]
    """By canonical id: everything that is mentioned."""
    shift: Shift
    turns: tuple[tuple[str, int], ...] = ()
    """Sessions that have got turns, with how many they have now."""


class Ingestion:
    """Takes tales into the graphs of a namespace.

    Args:
        minds: what the hub lends.
        namespace: whose graphs.
        backend: keeps them.
        vocabulary: how relations behave.
        permit: raises where nothing may be added to an episode that is there.
    """

    def __init__(
        self,
        minds: Minds,
        namespace: str,
        backend: GraphBackend,
        vocabulary: Vocabulary,
        permit: Callable[[Episode], None],
    ) -> None:
        self._permit = permit
        self._clock = minds.clock
        self._lasts = minds.tier is not None
        self._backend = backend
        self._vocabulary = vocabulary
        self._meanings = Meanings(minds, namespace)
        self._resolver = Resolver(backend, self._meanings.of, clock=minds.clock, judge=judge_of(minds))
        self._turns = Turns.of(minds, namespace)

    async def take_in(self, group: str, tales: Sequence[Tale], *, permit: Permit | None = None) -> TakenIn:
        """Make some episodes part of a group's graph, all in one step.

        Args:
            group: whose graph.
            tales: the episodes, with what was found in them.
            permit: looks at the facts that they contradict by id, and raises where these must stay as they are; what
                it has looked at is what is written over.

        Raises:
            ConflictError: an id is there with another content, or others change the same things without end.
            NotFoundError, InvalidError: as `as_it_is`.
            UnavailableError: the server cannot be reached.
        """
        return await self._turns.until_written(group, lambda: self._attempt(group, tales, permit))

    async def _attempt(self, group: str, tales: Sequence[Tale], permit: Permit | None) -> TakenIn | Behind:
        ids = tuple(tale.episode.id for tale in tales)
        covered = tuple(id_ for tale in tales for id_ in tale.episode.covers)
        contradicted = tuple(id_ for tale in tales for id_ in tale.extraction.contradicted)
        seen, resolution = await asyncio.gather(
            self._backend.look(group, Wanted(episodes=(*ids, *covered), facts=contradicted)),
            self._resolver.resolve(group, mentions_of(tales)),
        )
        if permit is not None:
            await permit(seen)
        told = [self._as_it_is(tale, seen) for tale in fresh_among(tales, seen)]
        if not told:
            return TakenIn(seen.episodes, frozenset(), {}, {}, Shift((), ()))
        now = stamp_of("now", self._clock.now())
        saids, warnings = self._said(told, seen, resolution, now)
        ground, lines = await read_lines(
            *(self._backend, group, [claim for said in saids for claim in said.fresh]),
            vocabulary=self._vocabulary,
            version=earliest(seen.version, resolution.version),
            into=resolution.into,
            entities=tuple(dict.fromkeys(id_ for said in saids for id_ in said.entities)),
        )
        saids = rising(saids, newest_of(ground.lines))
        shift = shifted([claim for said in saids for claim in said.fresh], ground)
        rows = [episode_row(said, ground, shift.after) for said in saids]
        changes = changes_of(rows, shift, resolution, ground, former=[said.former for said in saids if said.former])
        embedded = await self._embedded(changes, shift)
        committed = await self._backend.commit(group, embedded, seen=lines.version)
        if isinstance(committed, Behind):
            return Behind()
        known = {**lines.entities, **{row.id: row for row in resolution.entities}}
        after = {**seen.episodes, **{row.id: row for row in embedded.episodes}}
        return TakenIn(after, frozenset(tale.episode.id for tale in told), warnings, known, shift, committed.turns)

    def _as_it_is(self, tale: Tale, seen: Seen) -> Tale:
        """A tale that adds to an episode which is there: as that is by now, and still its author's."""
        tale = as_it_is(tale, seen)
        former = seen.episodes.get(tale.episode.id)
        if former is None:
            return tale
        held = episode_of(former)
        self._permit(held)
        return replace(tale, episode=tale.episode.model_copy(update={"created_by": held.created_by}))

    def _said(
        self, told: Sequence[Tale], seen: Seen, resolution: Resolution, now: int
    ) -> tuple[list[Said], dict[str, tuple[str, ...]]]:
        saids, warnings = [], {}
        for tale in told:
            former = seen.episodes.get(tale.episode.id)
            before = former.claims if former is not None else ()
            found = claims_of(
                tale,
                recorded=now,
                vocabulary=self._vocabulary,
                own=resolution.own_of,
                known=seen.facts,
                first=len(before),
            )
            named = (resolution.canonical_of(mention.name) for mention in mentions_of([tale]))
            moment = tale.episode.recorded_at
            recorded = now if moment is None else stamp_of("recorded_at", moment)
            saids.append(Said(tale, (*before, *found.claims), recorded, former, tuple(dict.fromkeys(named))))
            warnings[tale.episode.id] = (*found.warnings, *resolution.warnings)
        return saids, warnings

    async def _embedded(self, changes: Changes, shift: Shift) -> Changes:
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


def as_it_is(tale: Tale, seen: Seen) -> Tale:
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
    held = episode_of(former)
    (check_extractable if tale.extracts else check_counts)(held)
    moments = {"occurred_at": tale.episode.occurred_at, "recorded_at": tale.episode.recorded_at}
    done = {"extraction": "done"} if tale.extracts else {}
    return replace(tale, episode=held.model_copy(update={**moments, **done}), digest=former.digest)


def fresh_among(tales: Sequence[Tale], seen: Seen) -> list[Tale]:
    """The tales that say something new: one a id, and none that was told before.

    Raises:
        ConflictError: another episode has the id of one.
    """
    fresh: dict[str, Tale] = {}
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
