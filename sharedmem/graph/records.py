"""Stamps, rows and requests that a graph backend exchanges, as plain values, and the public models of rows. Pure.

A stamp is a moment as a whole number, so that intervals compare, sort and store alike in every backend. It counts
microseconds since the beginning of year 1, from 1; two stamps stand for no moment at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

import orjson

from sharedmem.errors import InternalError, InvalidError
from sharedmem.models import Entity, Episode, Fact, GraphKind

UNKNOWN_START = 0
"""Before every moment: since when something holds is not known."""
OPEN = 999_999_999_999_999_999
"""After every moment: it has not ended."""
LATEST = OPEN - 1
"""The last moment: asked of knowledge, it means what is known now."""
DIGITS = 18
"""A stamp written with leading zeros sorts as text."""

_EPOCH = datetime(1, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_stamp(field: str, moment: datetime) -> int:
    """Return the stamp of a moment.

    Raises:
        InvalidError: it has no time zone, or falls out of the years 1 to 9999 in UTC.
    """
    if not isinstance(moment, datetime):
        raise InvalidError(field, moment, "give a datetime with a time zone")
    if moment.utcoffset() is None:
        raise InvalidError(field, moment.isoformat(), "give it a time zone, such as datetime.UTC")
    try:
        # A difference of moments never overflows, whatever their zones are; only the way to UTC does.
        return (moment.astimezone(UTC) - _EPOCH) // _MICROSECOND + 1
    except OverflowError:
        raise InvalidError(field, moment.isoformat(), "in UTC it falls out of the years 1 to 9999") from None


def from_stamp(stamp: int) -> datetime | None:
    """Return the moment of a stamp; None for `UNKNOWN_START` and `OPEN`."""
    if stamp in {UNKNOWN_START, OPEN}:
        return None
    return _EPOCH + (stamp - 1) * _MICROSECOND


def ascending_text(stamp: int) -> str:
    """Return a stamp as text that sorts as the numbers do."""
    return f"{stamp:0{DIGITS}d}"


def descending_text(stamp: int) -> str:
    """Return a stamp as text that sorts the other way round."""
    return f"{OPEN - stamp:0{DIGITS}d}"


GRAPH = "graph"

KindCode = Literal["e", "s", "m", "n", "f", "p"]
"""Kinds of record as a search tells them apart: episode, summary, statement, entity, fact known to be true, past fact.

`f` is a fact with a version that is known now and has an open or a future end; `p` any other.
"""


@dataclass(frozen=True, slots=True)
class Claim:
    """One thing that one episode says of the world."""

    episode: str
    number: int
    """Place among what the episode says."""
    says: Literal["holds", "ends"]
    """`ends`: from `start` on it does not hold any more."""
    source: str
    """Id of an entity, as it was when this was recorded; merges do not change it."""
    source_name: str
    type: str
    """In canonical direction (see `relations`)."""
    target: str
    """Id of an entity; empty for an attribute, and for an `ends` of whatever holds."""
    target_name: str
    value: str
    """JSON of an attribute's value; else empty."""
    start: int
    end: int
    """OPEN when none is given."""
    recorded: int
    retracted: int = OPEN
    """When the episode was undone."""
    text: str = ""
    """As a sentence."""

    @property
    def id(self) -> str:
        """Its own, in the group."""
        return f"{self.episode}#{self.number}"


class Version(NamedTuple):
    """A rectangle in the plane of world time and knowledge time, half-open on both axes."""

    start: int
    end: int
    recorded: int
    superseded: int

    def holds(self, world: int, known: int) -> bool:
        """Return whether it was true at a moment, as known at a moment."""
        return self.start <= world < self.end and self.recorded <= known < self.superseded


@dataclass(frozen=True, slots=True)
class FactRow:
    """A fact with every version of what was known of it."""

    id: str
    lines: tuple[str, ...]
    """The lines of claims from which it follows: one, or two where both ends are functional."""
    source: str
    """Id of the entity, after merges."""
    source_name: str
    type: str
    target: str
    target_name: str
    value: str
    text: str
    versions: tuple[Version, ...]
    """By `recorded`, then `start`; the knowledge intervals do not overlap."""
    episodes: tuple[str, ...]
    """The newest 64 that say so."""
    version: int = 0
    """Of its record; 0 where it was worked out and not looked at: what guards a fact are its lines."""
    vector: bytes | None = field(default=None, repr=False)
    """Half precision; None leaves the one that lies there."""

    @property
    def current(self) -> Version | None:
        """What is known now; None when it is known to be wrong."""
        newest = self.versions[-1] if self.versions else None
        return newest if newest is not None and newest.superseded == OPEN else None


@dataclass(frozen=True, slots=True)
class EntityRow:
    """An entity."""

    id: str
    name: str
    type: str
    names: tuple[str, ...]
    """Normalised names that lead to it, its own first, as the entity's own record tells; at most 100. More lie in the
    backend's names alone."""
    aliases: tuple[str, ...]
    """As they were written, at most 100."""
    alias_count: int
    summary: str
    recorded: int
    merged_into: str = ""
    version: int = 0
    vector: bytes | None = field(default=None, repr=False)
    merge: str = ""
    """JSON of the `EntityMerge` that was made of it last, also when that was taken back since: as
    `CommitRequest.merges` had it, so that a record which comes back brings the log of its merge along."""


@dataclass(frozen=True, slots=True)
class EpisodeRow:
    """An episode with what it says."""

    id: str
    body: bytes
    """JSON of the `Episode`."""
    digest: str
    """Of its content, to tell a repetition."""
    letter: KindCode
    occurred: int
    recorded: int
    session: str
    user: str
    source: str
    text: str
    """Whose words are found."""
    claims: tuple[Claim, ...]
    lines: tuple[tuple[str, ...], ...]
    """Of each claim, the lines in which it stands."""
    undone: int = OPEN
    version: int = 0
    vector: bytes | None = field(default=None, repr=False)


Row = FactRow | EntityRow | EpisodeRow


@dataclass(frozen=True, slots=True)
class LookupRequest:
    """What a look asks for, all in one round trip."""

    names: tuple[str, ...] = ()
    """Normalised."""
    lines: tuple[str, ...] = ()
    episodes: tuple[str, ...] = ()
    entities: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()


@dataclass(slots=True)
class LookupResult:
    """What a look found; what is not there is left out."""

    version: int
    """The group's newest change that it surely includes."""
    names: dict[str, str] = field(default_factory=dict)
    """Entity id by normalised name, after merges: where a name leads to an entity with `merged_into`, it leads on to
    that one, however many there are one after the other. Thus one row redirects all names of an entity."""
    owners: dict[str, str] = field(default_factory=dict)
    """Entity id by normalised name, before merges: as `CommitRequest.names` had it."""
    into: dict[str, str] = field(default_factory=dict)
    """Of the entities that claims in `claims` were said with, and of those in `LookupRequest.entities`: what they were
    merged into in the end. Those that were not merged are left out."""
    claims: dict[str, tuple[Claim, ...]] = field(default_factory=dict)
    """By line; an empty line is an empty tuple."""
    episodes: dict[str, EpisodeRow] = field(default_factory=dict)
    entities: dict[str, EntityRow] = field(default_factory=dict)
    facts: dict[str, FactRow] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """What one step writes, all or nothing."""

    guards: tuple[str, ...]
    """Lines, `=<normalised name>`s, `@<entity id>`s (merges) and `~<letters>` (new names that begin and end with them)
    that must be as they were seen; they count as changed afterwards."""
    episodes: tuple[EpisodeRow, ...] = ()
    entities: tuple[EntityRow, ...] = ()
    facts: tuple[FactRow, ...] = ()
    """In full, as they are to be; `former` tells what they were."""
    former: tuple[Row, ...] = ()
    """The rows as they were seen that are replaced, so that a backend knows what lies beside them. A fact among them
    that is not in `facts` goes, with all that lies beside it; one that was not there anyway may be among them."""
    names: tuple[tuple[str, str], ...] = ()
    """(normalised name, entity id) to be set; an empty id takes the name away."""
    merges: tuple[tuple[str, bytes], ...] = ()
    """(id of the entity that was merged, JSON of the `EntityMerge`)."""
    told: tuple[tuple[str, str], ...] = ()
    """What the change stream says: (`graph.<what>`, id)."""
    steady: tuple[str, ...] = ()
    """As guards, but they do not count as changed afterwards: everything else that the step has read and relies on.
    Lines on which facts of its own lines depend as well, and `@<entity id>` of the entities that it relies on to lead
    where they led, so that steps which only read the same are not in each other's way, but a change of it is."""


class CommitReceipt(NamedTuple):
    """It is written."""

    version: int
    turns: tuple[tuple[str, int], ...] = ()
    """(session, how many episodes of letter `e` it has now) of each session to which the step has added one; episodes
    without a session count as those of the session with an empty name."""


class StaleGroup(NamedTuple):
    """Nothing was written: something that was seen has changed since. Look again."""


@dataclass(frozen=True, slots=True)
class RecordSearch:
    """One search among the records of a group."""

    letters: tuple[KindCode, ...]
    terms: tuple[str, ...] = ()
    vector: Any = None
    """`wire.vectors.Vector`, of unit length, or None."""
    candidates: int = 50
    session: str | None = None
    since: int | None = None
    until: int | None = None
    """`start` of a fact, `occurred` of an episode; closed."""


class ScoredRecord(NamedTuple):
    """A record that a search found, with what ranking needs of it."""

    id: str
    letter: KindCode
    score: float


class IndexDiscrepancy(NamedTuple):
    """Something that lies beside a record, and does not follow from it; or that follows from it, and is missing."""

    part: str
    """Where it lies, as the backend calls it."""
    entry: str
    value: str
    """Of an entry that has one."""
    kind: str
    """Letter of the record to which it belongs."""
    id: str
    """Of that record."""
    version: int
    """Of that record; 0 where there is none."""
    is_there: bool
    """Whether it is there and should not be; else it should be there and is not."""


class RecordHits(NamedTuple):
    """What one search found, best first."""

    text: list[ScoredRecord]
    vector: list[ScoredRecord]


class Edge(NamedTuple):
    """One version of a fact, seen from one of its ends."""

    entity: str
    """From where."""
    other: str
    """To where; empty for an attribute."""
    forward: bool
    type: str
    fact: str
    """Id."""
    version: Version


class WalkResult(NamedTuple):
    """What a walk came along."""

    edges: list[tuple[int, Edge]]
    """Each with the distance of its far end, nearest first, as seen from its nearer end; the first edge to an entity
    is on a shortest path."""
    truncated: bool


@dataclass(frozen=True, slots=True)
class BitemporalPoint:
    """Of which time a call asks."""

    world: int
    known: int
    """LATEST: as known now."""

    @property
    def is_past_knowledge(self) -> bool:
        """Whether superseded versions may matter."""
        return self.known != LATEST


def earliest_version(*versions: int) -> int:
    """Return the version of a step whose looks have seen these: all of them include it.

    A group that was there in one look and not in another came or went in between. What was seen of it belongs to two
    groups then, and no commit takes -1.
    """
    return -1 if 0 in versions and any(versions) else min(versions)


def written_rows(changes: CommitRequest) -> Sequence[Row]:
    """Return every record that a step writes."""
    return (*changes.episodes, *changes.entities, *changes.facts)


ATTRIBUTE_PREFIX = "@"
"""What the type of an attribute begins with; alone it stands for the types of all of them."""
KINDS: Mapping[KindCode, GraphKind] = {
    "e": "episode",
    "m": "episode",
    "s": "summary",
    "n": "entity",
    "f": "fact",
    "p": "fact",
}


def to_episode(row: EpisodeRow) -> Episode:
    """Return an episode as it was added, with the time since which it does not count."""
    episode = Episode.model_validate_json(row.body)
    undone = from_stamp(row.undone)
    return episode if episode.undone_at == undone else episode.model_copy(update={"undone_at": undone})


def to_entity(row: EntityRow, group: str, attributes: Mapping[str, Any]) -> Entity:
    """Return an entity.

    Args:
        row: as it is kept.
        group: group of the graph.
        attributes: as they are at the time that is asked for; see `attribute_values`.
    """
    return Entity(
        id=row.id,
        name=row.name,
        type=row.type,
        aliases=row.aliases,
        alias_count=row.alias_count,
        attributes=dict(attributes),
        summary=row.summary,
        group_id=group,
        recorded_at=from_stamp(row.recorded),
        merged_into=row.merged_into or None,
    )


def attribute_values(rows: Iterable[FactRow], when: BitemporalPoint) -> dict[str, Any]:
    """Return the values of those attributes that hold at a time, by name."""
    return {
        row.type.removeprefix(ATTRIBUTE_PREFIX): attribute_value(row)
        for row in sorted(rows, key=lambda row: row.type)
        if row.type.startswith(ATTRIBUTE_PREFIX) and version_at(row, when) is not None
    }


def attribute_value(row: FactRow) -> Any:
    """Return the value of an attribute; None of a relation."""
    return orjson.loads(row.value) if row.value else None


def version_at(row: FactRow, when: BitemporalPoint) -> Version | None:
    """Return the version that holds at a time, as known at a time; None when the fact does not."""
    for version in reversed(row.versions):
        if version.holds(when.world, when.known):
            return version
    return None


def version_known(row: FactRow, when: BitemporalPoint) -> Version | None:
    """What is known at a time of a fact that had begun by then, whether it still holds or not; None if nothing is."""
    for version in reversed(row.versions):
        if version.recorded <= when.known < version.superseded and version.start <= when.world:
            return version
    return None


def to_fact(row: FactRow, version: Version, group: str) -> Fact:
    """Return a fact in one of its versions."""
    is_attribute = row.type.startswith(ATTRIBUTE_PREFIX)
    return Fact(
        id=row.id,
        group_id=group,
        source_id=row.source,
        source_name=row.source_name,
        type=row.type,
        target_id=None if is_attribute else row.target,
        target_name=row.target_name,
        value=attribute_value(row) if is_attribute else None,
        fact=row.text,
        valid_from=from_stamp(version.start),
        valid_to=from_stamp(version.end),
        recorded_at=_recorded_time(version),
        superseded_at=from_stamp(version.superseded),
        invalidated_at=invalidated_at(row, version),
        episode_ids=row.episodes,
    )


def to_latest_fact(row: FactRow, group: str) -> Fact:
    """Return a fact as it is known now, or as it was last known."""
    return to_fact(row, row.versions[-1], group)


def invalidated_at(row: FactRow, version: Version) -> datetime | None:
    """Return when the graph learned that a fact had ended, or that it had been wrong altogether; None while it holds.

    Of several versions with an end in a row, the first tells: later ones only correct the date.
    """
    learned, known_until = OPEN, 0
    for place, each in enumerate(row.versions):
        if each.end == OPEN:
            learned = each.superseded if _is_withdrawn(row, place) else OPEN
        elif learned == OPEN or each.recorded > known_until:
            learned = each.recorded
        if each == version:
            break
        known_until = each.superseded
    return from_stamp(learned)


def _is_withdrawn(row: FactRow, place: int) -> bool:
    """Return whether nothing was known of a fact after one of its versions."""
    ended = row.versions[place].superseded
    return ended != OPEN and (place + 1 == len(row.versions) or row.versions[place + 1].recorded > ended)


def _recorded_time(version: Version) -> datetime:
    moment = from_stamp(version.recorded)
    if moment is None:
        raise InternalError(f"a version of a fact was recorded at no moment: {version}")
    return moment
