"""Plan one commit: claims of its episodes, timelines that it depends on, changes of facts, rows to write.

If both ends of a relation are functional, a fact depends on two lines. A step that changes the claims of one of them
writes that fact based on the other one too, so it depends on both (`read_dependencies`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain, count

import orjson

from sharedmem.errors import InvalidError
from sharedmem.graph.episode_input import EpisodeInput, content_text
from sharedmem.graph.projection import dependent_timelines, project
from sharedmem.graph.protocol import GraphBackend, Mention, Statement
from sharedmem.graph.records import (
    OPEN,
    UNKNOWN_START,
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
    from_stamp,
    to_stamp,
)
from sharedmem.graph.relations import Vocabulary
from sharedmem.graph.resolver import DatedMention, NameResolution
from sharedmem.models import UNKNOWN, Episode, Unknown

MOST_CLAIMS = 200
"""Most claims of one episode; an extractor that finds more is in error."""
LONGEST_TEXT = 2_000
_LONGEST_VALUE = 10_000


@dataclass(frozen=True, slots=True)
class EpisodeClaims:
    """The claims of an episode, and warnings for statements that could not be used."""

    claims: tuple[Claim, ...]
    warnings: tuple[str, ...]


def build_claims(
    episode_input: EpisodeInput,
    *,
    recorded: int,
    vocabulary: Vocabulary,
    own: Callable[[str], str],
    known: Mapping[str, FactRow],
    first: int = 0,
) -> EpisodeClaims:
    """Return the claims of an episode. Pure.

    Args:
        episode_input: the episode, with its mentions and statements.
        recorded: when the graph records it, unless the episode has its own time.
        vocabulary: relation types.
        own: returns the id of a name before merges.
        known: facts by id, some of which may be contradicted.
        first: number of the first claim; an episode with earlier claims continues their numbers.
    """
    builder = _ClaimBuilder(episode_input, recorded, vocabulary, own, count(first))
    claims = [*builder.attributes(), *builder.statements(), *builder.endings(known)]
    warnings = builder.warnings
    if len(claims) > MOST_CLAIMS:
        warnings.append(f"of {len(claims)} statements the first {MOST_CLAIMS} were used")
    return EpisodeClaims(tuple(claims[:MOST_CLAIMS]), tuple(warnings))


class _ClaimBuilder:
    def __init__(
        self,
        episode_input: EpisodeInput,
        recorded: int,
        vocabulary: Vocabulary,
        own: Callable[[str], str],
        numbers: Iterator[int],
    ) -> None:
        episode = episode_input.episode
        self._input = episode_input
        self._vocabulary = vocabulary
        self._own = own
        self._numbers = numbers
        self._recorded = to_stamp("recorded_at", episode.recorded_at) if episode.recorded_at else recorded
        self._occurred = to_stamp("occurred_at", episode.occurred_at) if episode.occurred_at else recorded
        self.warnings = list(episode_input.extraction.warnings)

    def attributes(self) -> Iterator[Claim]:
        for mention in self._input.extraction.mentions:
            for name, value in mention.attributes.items():
                yield from self._kept(Statement(mention.name, f"@{name}", value=value))

    def statements(self) -> Iterator[Claim]:
        for statement in self._input.extraction.statements:
            yield from self._kept(statement)

    def endings(self, known: Mapping[str, FactRow]) -> Iterator[Claim]:
        for id_ in dict.fromkeys(self._input.extraction.contradicted):
            row = known.get(id_)
            if row is None:
                self.warnings.append(f"a fact {id_!r} to be ended does not exist")
            else:
                yield self.ending(row)

    def ending(self, row: FactRow) -> Claim:
        return Claim(
            *(self._input.episode.id, next(self._numbers), "ends"),
            *(row.source, row.source_name, row.type, row.target, row.target_name, row.value),
            *(self._occurred, OPEN, self._recorded),
        )

    def _kept(self, statement: Statement) -> Iterator[Claim]:
        # A wrong statement gives a warning, and the others are used.
        try:
            yield self._claim(statement)
        except InvalidError as error:
            self.warnings.append(f"left out {statement.source} {statement.type} {statement.target}: {error}")

    def _claim(self, statement: Statement) -> Claim:
        type_ = self._vocabulary.normal(statement.type)
        source, target = self._own(statement.source), self._own(statement.target) if statement.target else ""
        names = {source: statement.source, target: statement.target}
        if target:
            type_, source, target = self._vocabulary.canonical(type_, source, target)
        start, end = self._interval(statement)
        value = encode_value(statement, type_)
        if not self._vocabulary.lines(type_, source, target, value):
            raise InvalidError("target", "", "name the target that has ended: this relation may have many targets")
        shown = _value_text(statement.value) if type_.startswith("@") else names[target]
        text = statement.text or self._vocabulary.sentence(names[source], type_, shown)
        return Claim(
            *(self._input.episode.id, next(self._numbers), statement.says),
            *(source, names[source], type_, target, shown, value),
            *(start, end, self._recorded),
            text=text[:LONGEST_TEXT],
        )

    def _interval(self, statement: Statement) -> tuple[int, int]:
        start = start_stamp(statement.valid_from, self._occurred)
        end = OPEN if statement.valid_to is None else to_stamp("valid_to", statement.valid_to)
        if statement.says == "holds" and end <= start and statement.valid_from is None:
            # The relation had ended when it was recorded: its start is unknown.
            start = UNKNOWN_START
        check_interval(start, end)
        return start, end


def start_stamp(valid_from: datetime | Unknown | None, occurred: int) -> int:
    """Return the time since which something holds; the time of recording if none is given."""
    if valid_from is None:
        return occurred
    if valid_from == UNKNOWN:
        return UNKNOWN_START
    return to_stamp("valid_from", valid_from)


def check_interval(start: int, end: int) -> None:
    """Reject an interval that contains no moment.

    Raises:
        InvalidError: it ends at its beginning or before.
    """
    if end <= start:
        raise InvalidError("valid_to", "...", "give a moment after valid_from")


def encode_value(statement: Statement, type_: str) -> str:
    """Return the JSON of an attribute's value; empty for a relation.

    Raises:
        InvalidError: the value is not JSON, or is too long.
    """
    if not type_.startswith("@"):
        return ""
    if statement.says == "ends" and statement.value is None:
        return ""
    try:
        coded = orjson.dumps(statement.value, option=orjson.OPT_SORT_KEYS).decode()
    except (TypeError, ValueError) as error:
        raise InvalidError(f"attribute {type_[1:]}", "...", f"give a JSON value: {error}") from None
    if len(coded) > _LONGEST_VALUE:
        raise InvalidError(f"attribute {type_[1:]}", "...", f"keep it within {_LONGEST_VALUE:,} characters")
    return coded


def _value_text(value: object) -> str:
    return value if isinstance(value, str) else orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def required_mentions(episode_inputs: Iterable[EpisodeInput]) -> list[Mention]:
    """Return one mention for every name that the inputs need, with everything that they contain about it."""
    found: dict[str, Mention] = {}
    for episode_input in episode_inputs:
        named = (
            Mention(name) for one in episode_input.extraction.statements for name in (one.source, one.target) if name
        )
        for mention in (*episode_input.extraction.mentions, *named):
            held = found.get(mention.name)
            found[mention.name] = mention if held is None else _merge_mentions(held, mention)
    return list(found.values())


def _merge_mentions(held: Mention, more: Mention) -> Mention:
    return Mention(
        held.name,
        held.type or more.type,
        tuple(dict.fromkeys((*held.aliases, *more.aliases))),
        {**held.attributes, **more.attributes},
        more.summary or held.summary,
        held.id or more.id,
    )


def dated_mentions(episode_inputs: Iterable[EpisodeInput], *, recorded: int) -> dict[str, list[DatedMention]]:
    """Return the mentions of each name, one for each episode that describes it, by name.

    Args:
        episode_inputs: the episodes, with their mentions and statements.
        recorded: the time of episodes without one.
    """
    found: dict[str, list[DatedMention]] = {}
    for episode_input in episode_inputs:
        episode = episode_input.episode
        start = recorded if episode.occurred_at is None else to_stamp("occurred_at", episode.occurred_at)
        moment = None if episode.recorded_at is None else to_stamp("recorded_at", episode.recorded_at)
        for mention in required_mentions([episode_input]):
            found.setdefault(mention.name, []).append(DatedMention(mention, start, moment))
    return found


EPISODE_KIND_CODES: Mapping[str, KindCode] = {"episode": "e", "summary": "s", "statement": "m"}
_MOST_FACTS_LISTED = 200


@dataclass(frozen=True, slots=True)
class ClaimedEpisode:
    """An input with its claims."""

    episode_input: EpisodeInput
    claims: tuple[Claim, ...]
    """All claims of the episode, earlier ones too."""
    recorded: int
    """When the graph records it."""
    former: EpisodeRow | None = None
    """The stored episode, if it has earlier claims."""
    entities: tuple[str, ...] = ()
    """Canonical ids of its mentions."""

    @property
    def fresh(self) -> tuple[Claim, ...]:
        """Its new claims; the earlier ones are in their lines already, wherever merges have moved them."""
        return self.claims if self.former is None else self.claims[len(self.former.claims) :]


@dataclass(frozen=True, slots=True)
class ProjectionInputs:
    """The content of the lines that a step reads (`lines.read_lines`), and the merges that apply to ids in it."""

    vocabulary: Vocabulary
    canonical: Callable[[str], str]
    lines: Mapping[str, tuple[Claim, ...]]
    """Claims by line, as they were read."""


@dataclass(frozen=True, slots=True)
class FactChanges:
    """The changed facts, before and after."""

    former: tuple[FactRow, ...]
    after: tuple[FactRow, ...]

    @property
    def known_before(self) -> frozenset[str]:
        """Ids of the facts that existed before."""
        return frozenset(row.id for row in self.former)


def claim_timelines(claim: Claim, projection: ProjectionInputs) -> tuple[str, ...]:
    """Return the lines that contain a claim, by canonical ids."""
    canonical = projection.canonical
    source, target = canonical(claim.source), canonical(claim.target) if claim.target else ""
    type_ = claim.type
    if target:
        type_, source, target = projection.vocabulary.canonical(type_, source, target)
    return projection.vocabulary.lines(type_, source, target, claim.value)


def compute_fact_changes(claims: Iterable[Claim], projection: ProjectionInputs) -> FactChanges:
    """Return the changes of facts that follow from claims, which are new or replace those with the same id.

    Args:
        claims: new claims, and old ones that were retracted.
        projection: the state before.
    """
    after: dict[str, dict[str, Claim]] = {
        line: {claim.id: claim for claim in before} for line, before in projection.lines.items()
    }
    for claim in claims:
        for line in claim_timelines(claim, projection):
            after.setdefault(line, {})[claim.id] = claim
    before = _project_by_id(projection.lines, projection)
    now = _project_by_id({line: tuple(each.values()) for line, each in after.items()}, projection)
    changed = [id_ for id_ in sorted(before.keys() | now.keys()) if before.get(id_) != now.get(id_)]
    return FactChanges(
        tuple(before[id_] for id_ in changed if id_ in before), tuple(now[id_] for id_ in changed if id_ in now)
    )


def _project_by_id(lines: Mapping[str, tuple[Claim, ...]], projection: ProjectionInputs) -> dict[str, FactRow]:
    rows = project(lines, former={}, vocabulary=projection.vocabulary, canonical=projection.canonical)
    return {row.id: row for row in rows}


def build_episode_row(claimed: ClaimedEpisode, projection: ProjectionInputs, facts: Sequence[FactRow]) -> EpisodeRow:
    """Return the row of an episode.

    Args:
        claimed: the episode and its claims.
        projection: for its lines.
        facts: facts that follow from its claims, among others.
    """
    episode = claimed.episode_input.episode
    own = tuple(row.id for row in facts if episode.id in row.episodes)
    mentioned, before = claimed.entities, claimed.former
    if before is not None:
        past = Episode.model_validate_json(before.body)
        own = tuple(dict.fromkeys((*past.fact_ids, *own)))
        mentioned = tuple(dict.fromkeys((*past.entities, *mentioned)))
    stored = episode.model_copy(
        update={
            "entities": mentioned,
            "fact_ids": own[:_MOST_FACTS_LISTED],
            "recorded_at": from_stamp(claimed.recorded),
        }
    )
    return EpisodeRow(
        id=episode.id,
        body=orjson.dumps(stored.model_dump(mode="json", exclude_defaults=True)),
        digest=claimed.episode_input.digest,
        letter=EPISODE_KIND_CODES[episode.kind],
        occurred=claimed.recorded if stored.occurred_at is None else to_stamp("occurred_at", stored.occurred_at),
        recorded=claimed.recorded,
        session=episode.session or "",
        user=episode.user or "",
        source=episode.source,
        text=content_text(episode.content),
        claims=claimed.claims,
        lines=(*(before.lines if before else ()), *(claim_timelines(claim, projection) for claim in claimed.fresh)),
    )


def build_commit(
    rows: Sequence[EpisodeRow],
    shift: FactChanges,
    resolution: NameResolution,
    projection: ProjectionInputs,
    *,
    former: Sequence[EpisodeRow],
) -> CommitRequest:
    """Return the rows and guards that a step writes.

    Args:
        rows: the episodes.
        shift: the changed facts.
        resolution: the entities of names, with the new and changed ones.
        projection: the lines that were read.
        former: the former state of rewritten episodes.
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
        steady=tuple(dict.fromkeys((*resolution.steady, *read_dependencies(projection, claims, lines)))),
        events=change_events(rows, shift),
    )


def read_dependencies(projection: ProjectionInputs, claims: Iterable[Claim], own: Collection[str]) -> tuple[str, ...]:
    """Return the dependencies of a step besides its own lines: other lines that it has read, and the merges of all ids.

    Args:
        projection: the lines that were read.
        claims: claims that the step writes.
        own: lines that count as changed afterwards.
    """
    ids = {id_ for claim in chain(claims, *projection.lines.values()) for id_ in (claim.source, claim.target) if id_}
    ids |= {projection.canonical(id_) for id_ in ids}
    return (*sorted(projection.lines.keys() - set(own)), *sorted(f"@{id_}" for id_ in ids))


def change_events(rows: Sequence[EpisodeRow], shift: FactChanges) -> tuple[tuple[str, str], ...]:
    """Return the change events of a step: its episodes, and each fact that begins or ends."""
    before = {row.id: row.current for row in shift.former}
    events = [("graph.episode" if row.undone == OPEN else "graph.undone", row.id) for row in rows]
    for row in shift.after:
        word = _fact_event(before.get(row.id), row.current)
        if word:
            events.append((word, row.id))
    return tuple(events)


def _fact_event(before: Version | None, after: Version | None) -> str:
    if after is None:
        return "graph.withdrawn" if before is not None else ""
    if before is None:
        return "graph.fact"
    if before.end != after.end:
        return "graph.closed" if after.end < before.end else "graph.reopened"
    return ""


def assign_recorded_times(claimed_episodes: Sequence[ClaimedEpisode], newest: int) -> list[ClaimedEpisode]:
    """Return the episodes with rising times of recording, after everything in their lines; a given time is kept."""
    risen = []
    for claimed in claimed_episodes:
        if claimed.episode_input.episode.recorded_at is not None:
            # A later addition to an episode does not change when the episode was recorded.
            risen.append(claimed if claimed.former is None else replace(claimed, recorded=claimed.former.recorded))
            continue
        newest = max(newest + 1, claimed.recorded)
        risen.append(_with_recorded_time(claimed, newest))
    return risen


def _with_recorded_time(claimed: ClaimedEpisode, recorded: int) -> ClaimedEpisode:
    kept = claimed.former.claims if claimed.former is not None else ()
    claims = tuple(claim if claim in kept else replace(claim, recorded=recorded) for claim in claimed.claims)
    return replace(claimed, claims=claims, recorded=recorded if claimed.former is None else claimed.former.recorded)


def latest_recorded(lines: Mapping[str, tuple[Claim, ...]]) -> int:
    """Return the last time of recording in some lines."""
    claims = [claim for each in lines.values() for claim in each]
    recorded = (claim.recorded for claim in claims)
    retracted = (claim.retracted for claim in claims if claim.retracted != OPEN)
    return max((*recorded, *retracted), default=0)


async def read_timelines(  # each is a property of the step
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
    """Read the lines and entities that a step with claims needs. One round trip; two if relations form chains.

    Args:
        backend: stores the graph.
        group: group of the graph.
        claims: the claims to write, new or retracted.
        vocabulary: relation types.
        version: a version that includes everything that the step has read before.
        stored: lines in which the claims are already.
        into: merges that the step has read already, or makes.
        entities: ids of entities whose rows are read too.

    Returns:
        The lines; the entities, and the version that includes everything that the step has read.

    Raises:
        UnavailableError: the server cannot be reached.
    """
    known = into or {}
    found = LookupResult(version)

    def canonical(id_: str) -> str:
        return known.get(id_) or found.into.get(id_, id_)

    projection = ProjectionInputs(vocabulary, canonical, found.claims)
    own = set(stored)
    while True:
        own |= {line for claim in claims for line in claim_timelines(claim, projection)}
        there = chain(claims, *(found.claims.get(line, ()) for line in own))
        missing = (own | dependent_timelines(there, vocabulary, canonical)) - found.claims.keys()
        if not missing and not entities:
            return projection, found
        seen = await backend.look(group, LookupRequest(lines=tuple(sorted(missing)), entities=entities))
        found.claims |= seen.claims
        found.into |= seen.into
        found.entities |= seen.entities
        found.version = earliest_version(found.version, seen.version)
        entities = ()
