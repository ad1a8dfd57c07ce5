"""Stamps, rows and requests that a graph backend exchanges, as plain values, and the public models of rows. Pure.

A stamp is a moment as a whole number, so that intervals compare, sort and store alike in every backend. It counts
microseconds since the beginning of year 1, from 1; two stamps are no moments: unknown and open.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

import orjson

from sharedmem.errors import InternalError, InvalidError
from sharedmem.models import Episode, Fact, GraphKind

UNKNOWN_START = 0
"""Before every moment: the start is unknown."""
OPEN = 999_999_999_999_999_999
"""After every moment: it has not ended."""
LATEST = OPEN - 1
"""The last moment: as a time of knowledge, it means current knowledge."""
DIGITS = 18
"""A stamp written with leading zeros sorts as text."""

_EPOCH = datetime(1, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_stamp(field: str, moment: datetime) -> int:
    """Return the stamp of a moment.

    Raises:
        InvalidError: the moment has no time zone, or is outside of the years 1 to 9999 in UTC.
    """
    if not isinstance(moment, datetime):
        raise InvalidError(field, moment, "give a datetime with a time zone")
    if moment.utcoffset() is None:
        raise InvalidError(field, moment.isoformat(), "give it a time zone, such as datetime.UTC")
    try:
        # A difference of moments never overflows, whatever their zones; only a conversion to UTC does.
        return (moment.astimezone(UTC) - _EPOCH) // _MICROSECOND + 1
    except OverflowError:
        raise InvalidError(field, moment.isoformat(), "in UTC it is outside of the years 1 to 9999") from None


def from_stamp(stamp: int) -> datetime | None:
    """Return the moment of a stamp; None for `UNKNOWN_START` and `OPEN`."""
    if stamp in {UNKNOWN_START, OPEN}:
        return None
    return _EPOCH + (stamp - 1) * _MICROSECOND


def ascending_text(stamp: int) -> str:
    """Return a stamp as text that sorts in the order of numbers."""
    return f"{stamp:0{DIGITS}d}"


def descending_text(stamp: int) -> str:
    """Return a stamp as text that sorts in reverse order."""
    return f"{OPEN - stamp:0{DIGITS}d}"


KindCode = Literal["e", "s", "m", "n", "f", "p"]
"""Kinds of record in searches: episode, summary, statement, entity, fact known to be true, past fact.

`f` is a fact with a version that is known now and has an open or a future end; `p` any other.
"""


@dataclass(frozen=True, slots=True)
class Claim:
    """One statement of one episode about the world."""

    episode: str
    number: int
    """Position among the claims of the episode."""
    says: Literal["holds", "ends"]
    """`ends`: from `start` on it does not hold any more."""
    source: str
    """Id of an entity, as it was when this was recorded; merges do not change it."""
    source_name: str
    type: str
    """In canonical direction (see `relations`)."""
    target: str
    """Id of an entity; empty for an attribute, and for an `ends` of any target."""
    target_name: str
    value: str
    """JSON of an attribute's value; else empty."""
    start: int
    end: int
    """OPEN if none is given."""
    recorded: int
    retracted: int = OPEN
    """When the episode was undone."""
    text: str = ""
    """As a sentence."""

    @property
    def id(self) -> str:
        """Its id in the group."""
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
    """A fact with every version that was ever known."""

    id: str
    lines: tuple[str, ...]
    """The lines of its claims: one, or two if both ends are functional."""
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
    """Ids of the newest 64 episodes that state it."""
    version: int = 0
    """Version of its record; 0 if it was computed and not read: a fact is guarded by its lines."""
    vector: bytes | None = field(default=None, repr=False)
    """Half precision; None keeps the stored one."""

    @property
    def current(self) -> Version | None:
        """The current version; None if the fact is known to be wrong."""
        newest = self.versions[-1] if self.versions else None
        return newest if newest is not None and newest.superseded == OPEN else None


class EntityChange(NamedTuple):
    """One change of an entity since a moment: its type, its summary, further names, or a merge."""

    what: Literal["type", "summary", "aliases", "merge"]
    value: str | int
    """The type, the summary, how many aliases it has since, or the entity that it leads to (empty: to itself)."""
    start: int
    """Since when this is true; `UNKNOWN_START` for a merge, as two that are one have always been."""
    recorded: int


@dataclass(frozen=True, slots=True)
class EntityRow:
    """An entity as it is known now, and what has changed since it was first recorded."""

    id: str
    name: str
    type: str
    names: tuple[str, ...]
    """Normalised names that lead to it, its own first, as in the entity's own record; at most 100. Further names are
    only in the backend's names."""
    aliases: tuple[str, ...]
    """In their original spelling, at most 100."""
    alias_count: int
    summary: str
    recorded: int
    merged_into: str = ""
    version: int = 0
    vector: bytes | None = field(default=None, repr=False)
    merge: str = ""
    """JSON of the last `EntityMerge` of it, also if that was undone since: as in `CommitRequest.merges`, so that a
    restored record restores the log of its merge too."""
    start: int = UNKNOWN_START
    """Since when what it was first recorded with is true; unknown in records of earlier releases."""
    changes: tuple[EntityChange, ...] = ()
    """In the order of their commits, the newest 200. A value without a change is that of the first record."""


@dataclass(frozen=True, slots=True)
class EpisodeRow:
    """An episode with its claims."""

    id: str
    body: bytes
    """JSON of the `Episode`."""
    digest: str
    """Digest of its content, to detect a repetition."""
    letter: KindCode
    occurred: int
    recorded: int
    session: str
    user: str
    source: str
    text: str
    """The text whose words are found."""
    claims: tuple[Claim, ...]
    lines: tuple[tuple[str, ...], ...]
    """The lines of each claim."""
    undone: int = OPEN
    version: int = 0
    vector: bytes | None = field(default=None, repr=False)


Row = FactRow | EntityRow | EpisodeRow


@dataclass(frozen=True, slots=True)
class LookupRequest:
    """The records that a read requests, all in one round trip."""

    names: tuple[str, ...] = ()
    """Normalised."""
    lines: tuple[str, ...] = ()
    episodes: tuple[str, ...] = ()
    entities: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    with_claims: bool = True
    """Whether a step may replace the episodes. Without, a backend may leave out their claims and lines, which are most
    of a record, and returns them as of version 0, so that no commit takes them."""


@dataclass(slots=True)
class LookupResult:
    """The result of a read; missing records are left out."""

    version: int
    """The group's newest change that the result surely includes."""
    names: dict[str, str] = field(default_factory=dict)
    """Entity id by normalised name, after merges: a name of an entity with `merged_into` leads on to that one, through
    a chain of any length. Thus one row redirects all names of an entity."""
    owners: dict[str, str] = field(default_factory=dict)
    """Entity id by normalised name, before merges: as in `CommitRequest.names`."""
    into: dict[str, str] = field(default_factory=dict)
    """For the entities with which claims in `claims` were recorded, and those in `LookupRequest.entities`: the entity
    at the end of their merges. Entities that were not merged are left out."""
    claims: dict[str, tuple[Claim, ...]] = field(default_factory=dict)
    """By line; an empty line is an empty tuple."""
    episodes: dict[str, EpisodeRow] = field(default_factory=dict)
    entities: dict[str, EntityRow] = field(default_factory=dict)
    facts: dict[str, FactRow] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """The changes of one step, all or nothing."""

    guards: tuple[str, ...]
    """Lines, `=<normalised name>`s, `@<entity id>`s (merges) and `~<letters>` (new names that begin and end with them)
    that must be unchanged since they were read; they count as changed afterwards."""
    episodes: tuple[EpisodeRow, ...] = ()
    entities: tuple[EntityRow, ...] = ()
    facts: tuple[FactRow, ...] = ()
    """In full, in their new state; `former` has the old state."""
    former: tuple[Row, ...] = ()
    """The replaced rows as they were read, so that a backend finds their index entries. A fact among them that is not
    in `facts` is deleted with all its entries; a fact that did not exist may be among them."""
    names: tuple[tuple[str, str], ...] = ()
    """(normalised name, entity id) to set; an empty id removes the name."""
    merges: tuple[tuple[str, bytes], ...] = ()
    """(id of the entity that was merged, JSON of the `EntityMerge`)."""
    events: tuple[tuple[str, str], ...] = ()
    """Events for the change stream: (`graph.<what>`, id)."""
    steady: tuple[str, ...] = ()
    """Guards that do not count as changed afterwards: everything else that the step has read and depends on. These are
    lines on which facts of its own lines depend as well, and `@<entity id>` of entities whose merges it depends on. So
    steps that only read the same do not conflict, but a step conflicts with a change of it."""


class CommitReceipt(NamedTuple):
    """The commit was written."""

    version: int
    turns: tuple[tuple[str, int], ...] = ()
    """(session, its number of episodes of letter `e` now) of each session to which the step has added one; episodes
    without a session count as episodes of the session with an empty name."""


class StaleGroup(NamedTuple):
    """Nothing was written: something that was read has changed since. Read again."""


@dataclass(frozen=True, slots=True)
class RecordSearch:
    """One search among the records of a group."""

    letters: tuple[KindCode, ...]
    terms: tuple[str, ...] = ()
    vector: Any = None
    """A unit vector of type `wire.vectors.Vector`, or None."""
    candidates: int = 50
    session: str | None = None
    since: int | None = None
    until: int | None = None
    """`start` of a fact, `occurred` of an episode; closed."""
    with_letters: bool = True
    """Whether hits need their exact letters. Without, a backend may return the letter of the kind alone: `e` for any
    episode, `n`, and `f` for any fact."""


class ScoredRecord(NamedTuple):
    """A record that a search found, with its fields for the ranking."""

    id: str
    letter: KindCode
    score: float


class IndexDiscrepancy(NamedTuple):
    """An index entry that does not follow from its record; or one that follows from it, and is missing."""

    part: str
    """The structure that contains it, in the backend's terms."""
    entry: str
    value: str
    """Value of an entry that has one."""
    kind: str
    """Letter of the record that it belongs to."""
    id: str
    """Id of that record."""
    version: int
    """Version of that record; 0 if it does not exist."""
    is_there: bool
    """Whether it exists and should not; else it should exist and does not."""


class RecordHits(NamedTuple):
    """The hits of one search, best first."""

    text: list[ScoredRecord]
    vector: list[ScoredRecord]


class Edge(NamedTuple):
    """One version of a fact, seen from one of its ends."""

    entity: str
    """Id of the near end."""
    other: str
    """Id of the far end; empty for an attribute."""
    forward: bool
    type: str
    fact: str
    """Id."""
    version: Version


class WalkResult(NamedTuple):
    """The edges of a walk."""

    edges: list[tuple[int, Edge]]
    """Each with the distance of its far end, nearest first, as seen from its nearer end; the first edge to an entity
    is on a shortest path."""
    truncated: bool


@dataclass(frozen=True, slots=True)
class BitemporalPoint:
    """The point in both times that a call reads."""

    world: int
    known: int
    """LATEST: as known now."""
    is_present: bool = False
    """Whether the caller named neither time."""

    @property
    def is_past_knowledge(self) -> bool:
        """Whether superseded versions may matter."""
        return self.known != LATEST


def earliest_version(*versions: int) -> int:
    """Return a version for a step that all its reads include.

    A group that existed in one read and not in another was created or deleted in between. Then the reads are of two
    different groups, and no commit accepts -1.
    """
    return -1 if 0 in versions and any(versions) else min(versions)


def written_rows(changes: CommitRequest) -> Sequence[Row]:
    """Return every record that a step writes."""
    return (*changes.episodes, *changes.entities, *changes.facts)


ATTRIBUTE_PREFIX = "@"
"""Prefix of the type of an attribute; alone it means the types of all attributes."""
KINDS: Mapping[KindCode, GraphKind] = {
    "e": "episode",
    "m": "episode",
    "s": "summary",
    "n": "entity",
    "f": "fact",
    "p": "fact",
}


def to_episode(row: EpisodeRow) -> Episode:
    """Return an episode as it was added, with the time of its undo if there is one."""
    episode = Episode.model_validate_json(row.body)
    undone = from_stamp(row.undone)
    return episode if episode.undone_at == undone else episode.model_copy(update={"undone_at": undone})


def attribute_values(rows: Iterable[FactRow], when: BitemporalPoint) -> dict[str, Any]:
    """Return the values of the attributes that hold at a time, by name."""
    return {
        row.type.removeprefix(ATTRIBUTE_PREFIX): attribute_value(row)
        for row in sorted(rows, key=lambda row: row.type)
        if row.type.startswith(ATTRIBUTE_PREFIX) and version_at(row, when) is not None
    }


def attribute_value(row: FactRow) -> Any:
    """Return the value of an attribute; None for a relation."""
    return orjson.loads(row.value) if row.value else None


def version_at(row: FactRow, when: BitemporalPoint) -> Version | None:
    """Return the version that holds at a time, as known at a time; None if the fact does not."""
    for version in reversed(row.versions):
        if version.holds(when.world, when.known):
            return version
    return None


def version_known(row: FactRow, when: BitemporalPoint) -> Version | None:
    """Return the version known at a time of a fact that had begun by then, ended or not; None if none exists."""
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
    """Return when the graph recorded that a fact had ended, or that it had been wrong altogether; None while it holds.

    The first of several consecutive versions with an end decides: later ones only correct the date.
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
