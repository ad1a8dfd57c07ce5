"""Plan one commit: read the timelines that it depends on, compute the fact changes, build the rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import orjson

from sharedmem.graph.bitemporal.projection import dependent_timelines, project
from sharedmem.graph.bitemporal.relations import Vocabulary
from sharedmem.graph.episode_input import EpisodeInput, content_text
from sharedmem.graph.protocol import GraphBackend
from sharedmem.graph.records import (
    Claim,
    CommitRequest,
    EpisodeRow,
    FactRow,
    KindCode,
    LookupRequest,
    LookupResult,
    Row,
    Version,
    earliest_version,
)
from sharedmem.graph.resolution.resolver import NameResolution
from sharedmem.graph.timestamps import OPEN, from_stamp, to_stamp
from sharedmem.models import Episode

EPISODE_KIND_CODES: Mapping[str, KindCode] = {"episode": "e", "summary": "s", "statement": "m"}
_MOST_FACTS_LISTED = 200


@dataclass(frozen=True, slots=True)
class ClaimedEpisode:
    """A tale with the claims that follow from it."""

    tale: EpisodeInput
    claims: tuple[Claim, ...]
    """All that the episode claims, those of before too."""
    recorded: int
    """When the graph learns of it."""
    former: EpisodeRow | None = None
    """As it was, when it said something before."""
    entities: tuple[str, ...] = ()
    """Canonical ids of what it mentions."""

    @property
    def fresh(self) -> tuple[Claim, ...]:
        """What it claims only now; the rest stands in its lines already, wherever merges have moved it."""
        return self.claims if self.former is None else self.claims[len(self.former.claims) :]


@dataclass(frozen=True, slots=True)
class ProjectionInputs:
    """What stands in the lines that a step reads (`lines.read_lines`), and how ids are to be read."""

    vocabulary: Vocabulary
    canonical: Callable[[str], str]
    lines: Mapping[str, tuple[Claim, ...]]
    """Claims by line, as they were."""


@dataclass(frozen=True, slots=True)
class FactChanges:
    """The facts that change, as they were and as they are to be."""

    former: tuple[FactRow, ...]
    after: tuple[FactRow, ...]

    @property
    def known_before(self) -> frozenset[str]:
        """Ids of those that were there."""
        return frozenset(row.id for row in self.former)


def claim_timelines(claim: Claim, ground: ProjectionInputs) -> tuple[str, ...]:
    """The lines in which a claim stands, told by canonical ids."""
    canonical = ground.canonical
    source, target = canonical(claim.source), canonical(claim.target) if claim.target else ""
    type_ = claim.type
    if target:
        type_, source, target = ground.vocabulary.canonical(type_, source, target)
    return ground.vocabulary.lines(type_, source, target, claim.value)


def compute_fact_changes(claims: Iterable[Claim], ground: ProjectionInputs) -> FactChanges:
    """What becomes of the facts when claims come in, or take the place of those with the same id.

    Args:
        claims: new ones, and old ones that were retracted.
        ground: how it was.
    """
    after: dict[str, dict[str, Claim]] = {
        line: {claim.id: claim for claim in before} for line, before in ground.lines.items()
    }
    for claim in claims:
        for line in claim_timelines(claim, ground):
            after.setdefault(line, {})[claim.id] = claim
    before = _project_by_id(ground.lines, ground)
    now = _project_by_id({line: tuple(each.values()) for line, each in after.items()}, ground)
    changed = [id_ for id_ in sorted(before.keys() | now.keys()) if before.get(id_) != now.get(id_)]
    return FactChanges(
        tuple(before[id_] for id_ in changed if id_ in before), tuple(now[id_] for id_ in changed if id_ in now)
    )


def _project_by_id(lines: Mapping[str, tuple[Claim, ...]], ground: ProjectionInputs) -> dict[str, FactRow]:
    rows = project(lines, former={}, vocabulary=ground.vocabulary, canonical=ground.canonical)
    return {row.id: row for row in rows}


def build_episode_row(said: ClaimedEpisode, ground: ProjectionInputs, facts: Sequence[FactRow]) -> EpisodeRow:
    """The row of an episode.

    Args:
        said: what it says.
        ground: for its lines.
        facts: that follow from what it says, among others.
    """
    episode = said.tale.episode
    own = tuple(row.id for row in facts if episode.id in row.episodes)
    mentioned, before = said.entities, said.former
    if before is not None:
        past = Episode.model_validate_json(before.body)
        own = tuple(dict.fromkeys((*past.fact_ids, *own)))
        mentioned = tuple(dict.fromkeys((*past.entities, *mentioned)))
    told = episode.model_copy(
        update={
            "entities": mentioned,
            "fact_ids": own[:_MOST_FACTS_LISTED],
            "recorded_at": from_stamp(said.recorded),
        }
    )
    return EpisodeRow(
        id=episode.id,
        body=orjson.dumps(told.model_dump(mode="json", exclude_defaults=True)),
        digest=said.tale.digest,
        letter=EPISODE_KIND_CODES[episode.kind],
        occurred=said.recorded if told.occurred_at is None else to_stamp("occurred_at", told.occurred_at),
        recorded=said.recorded,
        session=episode.session or "",
        user=episode.user or "",
        source=episode.source,
        text=content_text(episode.content),
        claims=said.claims,
        lines=(*(before.lines if before else ()), *(claim_timelines(claim, ground) for claim in said.fresh)),
    )


def build_commit(
    rows: Sequence[EpisodeRow],
    shift: FactChanges,
    resolution: NameResolution,
    ground: ProjectionInputs,
    *,
    former: Sequence[EpisodeRow],
) -> CommitRequest:
    """What a step writes.

    Args:
        rows: the episodes.
        shift: the facts that change.
        resolution: what names lead to, and the entities that are new or have learnt something.
        ground: the lines that were read.
        former: episodes as they were that are written anew.
    """
    lines = {line for row in rows for lines in row.lines for line in lines}
    claims = [claim for row in rows for claim in row.claims]
    replaced: tuple[Row, ...] = (*former, *resolution.former, *shift.former)
    return CommitRequest(
        guards=(*sorted(lines), *resolution.guards),
        episodes=tuple(rows),
        entities=resolution.entities,
        facts=shift.after,
        former=replaced,
        names=resolution.names,
        merges=resolution.merges,
        steady=tuple(dict.fromkeys((*resolution.steady, *read_dependencies(ground, claims, lines)))),
        told=change_events(rows, shift),
    )


def read_dependencies(ground: ProjectionInputs, claims: Iterable[Claim], own: Collection[str]) -> tuple[str, ...]:
    """What a step relies on besides its own lines: the other lines that it has read, and what all ids lead to.

    Args:
        ground: the lines that were read.
        claims: that the step writes.
        own: lines that count as changed afterwards.
    """
    ids = {id_ for claim in chain(claims, *ground.lines.values()) for id_ in (claim.source, claim.target) if id_}
    ids |= {ground.canonical(id_) for id_ in ids}
    return (*sorted(ground.lines.keys() - set(own)), *sorted(f"@{id_}" for id_ in ids))


def change_events(rows: Sequence[EpisodeRow], shift: FactChanges) -> tuple[tuple[str, str], ...]:
    """What the change stream says of a step: its episodes, and each fact that begins or ends."""
    before = {row.id: row.current for row in shift.former}
    told = [("graph.episode" if row.undone == OPEN else "graph.undone", row.id) for row in rows]
    for row in shift.after:
        word = _fact_event(before.get(row.id), row.current)
        if word:
            told.append((word, row.id))
    return tuple(told)


def _fact_event(before: Version | None, after: Version | None) -> str:
    if after is None:
        return "graph.withdrawn" if before is not None else ""
    if before is None:
        return "graph.fact"
    if before.end != after.end:
        return "graph.closed" if after.end < before.end else "graph.reopened"
    return ""


def assign_recorded_times(saids: Sequence[ClaimedEpisode], newest: int) -> list[ClaimedEpisode]:
    """The same, recorded one after the other, after everything that their lines know of; who says when, keeps it."""
    risen = []
    for said in saids:
        if said.tale.episode.recorded_at is not None:
            # What is added to an episode later does not change when that was learned of.
            risen.append(said if said.former is None else replace(said, recorded=said.former.recorded))
            continue
        newest = max(newest + 1, said.recorded)
        risen.append(_with_recorded_time(said, newest))
    return risen


def _with_recorded_time(said: ClaimedEpisode, recorded: int) -> ClaimedEpisode:
    kept = said.former.claims if said.former is not None else ()
    claims = tuple(claim if claim in kept else replace(claim, recorded=recorded) for claim in said.claims)
    return replace(said, claims=claims, recorded=recorded if said.former is None else said.former.recorded)


def latest_recorded(lines: Mapping[str, tuple[Claim, ...]]) -> int:
    """When something was last learnt in some lines."""
    claims = [claim for each in lines.values() for claim in each]
    recorded = (claim.recorded for claim in claims)
    retracted = (claim.retracted for claim in claims if claim.retracted != OPEN)
    return max((*recorded, *retracted), default=0)


async def read_timelines(  # each is a fact of the step
    backend: GraphBackend,
    group: str,
    claims: Collection[Claim],
    *,
    vocabulary: Vocabulary,
    version: int,
    stored: Iterable[str] = (),
    into: Mapping[str, str] | None = None,
    entities: tuple[str, ...] = (),
) -> tuple[ProjectionInputs, LookupResult]:
    """Read what a step needs that writes some claims. One round trip; a second one where relations form chains.

    Args:
        backend: keeps the graph.
        group: whose graph.
        claims: that are written, new or retracted.
        vocabulary: how relations behave.
        version: that all includes what the step has read before.
        stored: lines in which the claims are already.
        into: merges that the step knows already, or makes.
        entities: whose rows are read as well.

    Returns:
        The lines; the entities, and the version that includes all that the step has read.

    Raises:
        UnavailableError: the server cannot be reached.
    """
    known = into or {}
    found = LookupResult(version)

    def canonical(id_: str) -> str:
        return known.get(id_) or found.into.get(id_, id_)

    ground = ProjectionInputs(vocabulary, canonical, found.claims)
    own = set(stored)
    while True:
        own |= {line for claim in claims for line in claim_timelines(claim, ground)}
        there = chain(claims, *(found.claims.get(line, ()) for line in own))
        missing = (own | dependent_timelines(there, vocabulary, canonical)) - found.claims.keys()
        if not missing and not entities:
            return ground, found
        seen = await backend.look(group, LookupRequest(lines=tuple(sorted(missing)), entities=entities))
        found.claims |= seen.claims
        found.into |= seen.into
        found.entities |= seen.entities
        found.version = earliest_version(found.version, seen.version)
        entities = ()
