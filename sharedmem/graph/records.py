"""Rows and requests that a graph backend exchanges, as plain values, and the family of their search index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from sharedmem.graph.timestamps import LATEST, OPEN
from sharedmem.search.protocol import RecordFamily

GRAPH = "graph"
TAGS = ("ns", "shelf", "session")
NUMBERS = ("at",)
"""`at`: milliseconds since 1970 of the start of a fact, or of when an episode occurred."""
_EF_CONSTRUCTION = 100
"""An episode brings some seven vectors. With 100 instead of 200 each costs half as much, and of the 50 nearest 99.5 in
100 are still found."""


def graph_family(model: str, dimension: int) -> RecordFamily:
    """How episodes, entities and facts are found, with the vectors of an embedder."""
    return RecordFamily(GRAPH, TAGS, NUMBERS, model, dimension, care=_EF_CONSTRUCTION)


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
    """Id of an entity, as it was when this was said; merges do not change it."""
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
    """OPEN when nothing is said of it."""
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
        """Whether it was true at a moment, as known at a moment."""
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
    """Each with the distance of its far end, nearest first, told from its nearer end; the first edge to an entity lies
    on a shortest way."""
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
    """The version of a step whose looks have seen these: all of them include it.

    A group that was there in one look and not in another came or went in between. What was seen of it belongs to two
    groups then, and no commit takes -1.
    """
    return -1 if 0 in versions and any(versions) else min(versions)


def written_rows(changes: CommitRequest) -> Sequence[Row]:
    """Every record that a step writes."""
    return (*changes.episodes, *changes.entities, *changes.facts)
