"""Which facts follow from claims: every one of them, in every version that was ever known.

Facts are a pure function of the claims of their lines. It does not matter in which order claims came in, nor which
facts were there before; those only spare work.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from sharedmem.graph.bitemporal.intervals import PlacedClaim, Span, SpanChange, SpanHistory, intersect_spans
from sharedmem.graph.bitemporal.relations import Places, Vocabulary
from sharedmem.graph.records import OPEN, Claim, FactRow, Version

MOST_EPISODES = 64
"""That a fact names as its sources."""
_ID_BYTES = 10
_KNOWING_NOTHING = -1

Canonical = Callable[[str], str]
"""From an entity's own id to its id after merges."""


class _FactKey(NamedTuple):
    """What a fact says, whenever it holds."""

    source: str
    type: str
    target: str
    value: str


class _LearnedChange(NamedTuple):
    """What became of a span, and when that was learned."""

    known: int
    change: SpanChange


_ChangeLog = Sequence[_LearnedChange]


def fact_id(source: str, type_: str, target: str, value: str, start: int) -> str:
    """The id of a fact that holds since `start`: the same in every process, and however it was found to follow."""
    statement = "\x1f".join((source, type_, target, value, str(start)))
    return blake2b(statement.encode(), digest_size=_ID_BYTES).hexdigest()


def dependent_timelines(claims: Iterable[Claim], vocabulary: Vocabulary, canonical: Canonical) -> set[str]:
    """Return every line in which some claims stand, to be looked at as well before what follows from them is known.

    Where both ends of a relation are functional, a claim stands in two lines, and each has its say about the facts of
    the other. Look at the lines of what changes, then once more at the further lines of everything found there and of
    everything new; lines that are there already need no second look. After a merge or its undoing, the further lines
    are those to which claims move.

    Args:
        claims: found in the lines that change, and new ones.
        vocabulary: relation types.
        canonical: from own ids to ids after merges.
    """
    reader = _ClaimReader(vocabulary, canonical)
    return {line for claim in claims for line in reader.lines(reader.pair(claim))}


def project(
    claims_by_line: Mapping[str, Iterable[Claim]],
    *,
    former: Mapping[str, FactRow],
    vocabulary: Vocabulary,
    canonical: Canonical,
    since: int | None = None,
) -> list[FactRow]:
    """Return every fact that follows from some lines, with all its versions. Pure; the order of claims does not matter.

    O(n log n) for n claims that come in about the order in which they began; a claim that arrives late, or goes, costs
    as many steps as the spans have claims that it touches.

    Args:
        claims_by_line: all claims of each line that was looked at, an empty line too. In which line a claim stands is
            computed from the vocabulary and `canonical` anew, so that claims may still be where a merge found them.
            Facts of which a line was not looked at are left out.
        former: facts by id as they are stored, of these lines or of those that were these before a merge; they keep
            their `version`. A row that says the same as before comes back as the very same object.
        vocabulary: relation types.
        canonical: from own ids to ids after merges.
        since: a stamp before which nothing that was known is different from what `former` tells, all of whose rows on
            these lines are given then: versions recorded earlier are taken from there. The answer is the same as
            without.

    Returns:
        Facts by id. One that follows at no knowledge time any more (which merges bring about, never time) comes back
        without versions: it is to be deleted.
    """
    reader = _ClaimReader(vocabulary, canonical)
    field_ = _Timelines(reader, claims_by_line)
    held = [row for row in former.values() if row.versions and field_.speaks_of(row)]
    if since is not None and any(reader.is_newer(row, since) for row in held):
        since = None
    tracks = dict(_resume_versions(row, since) for row in held)
    for pair, changes in field_.changes(_KNOWING_NOTHING if since is None else since - 1):
        for known, change in changes:
            key = (pair, change.start)
            track = tracks.get(key)
            if track is None:
                track = tracks[key] = _FactVersions(change.start)
            track.see(known, change.span)
    rows = (_row(pair, track, reader) for (pair, _), track in tracks.items())
    return sorted((row for row in rows if row is not None), key=attrgetter("id"))


@dataclass(frozen=True, slots=True)
class _ClaimReader:
    """How claims are to be read."""

    vocabulary: Vocabulary
    canonical: Canonical
    _places: dict[_FactKey, Places] = field(default_factory=dict)

    def pair(self, statement: Claim | FactRow) -> _FactKey:
        """Return the content of a claim or fact, with ids after merges."""
        source = self.canonical(statement.source) if statement.source else ""
        target = self.canonical(statement.target) if statement.target else ""
        type_, source, target = self.vocabulary.canonical(statement.type, source, target)
        return _FactKey(source, type_, target, statement.value)

    def places(self, pair: _FactKey) -> Places:
        """Return its lines, each with the other end."""
        places = self._places.get(pair)
        if places is None:
            places = self.vocabulary.places(pair.type, pair.source, pair.target, pair.value)
            self._places[pair] = places
        return places

    def lines(self, pair: _FactKey) -> tuple[str, ...]:
        """Return its lines alone."""
        return tuple([line for line, _ in self.places(pair)])

    def has_moved(self, row: FactRow) -> bool:
        """Return whether a stored fact would stand somewhere else now."""
        pair = self.pair(row)
        return pair != (row.source, row.type, row.target, row.value) or self.lines(pair) != row.lines

    def is_newer(self, row: FactRow, since: int) -> bool:
        """Return whether what a stored fact tells of the time before `since` is not to be relied on."""
        return self.has_moved(row) or row.versions[-1].recorded >= since


class _Timelines:
    """Claims in the lines where they stand, and the pairs that may hold there."""

    def __init__(self, reader: _ClaimReader, claims_by_line: Mapping[str, Iterable[Claim]]) -> None:
        self._reader = reader
        self._lines: dict[str, list[PlacedClaim]] = {line: [] for line in claims_by_line}
        self._pairs: dict[_FactKey, Places] = {}
        for claim in _distinct(claim for claims in claims_by_line.values() for claim in claims):
            self._place(claim)

    def _place(self, claim: Claim) -> None:
        pair = self._reader.pair(claim)
        places = self._reader.places(pair)
        for line, other in places:
            if line in self._lines:
                self._lines[line].append(PlacedClaim(other, claim))
        if places and claim.says == "holds" and all(line in self._lines for line, _ in places):
            self._pairs[pair] = places

    def speaks_of(self, row: FactRow) -> bool:
        """Return whether these lines say everything about a stored fact."""
        return all(line in self._lines for line in row.lines) or self._reader.has_moved(row)

    def changes(self, floor: int) -> Iterator[tuple[_FactKey, _ChangeLog]]:
        """For each pair what became of its spans, from a knowledge time on."""
        logs = {line: _change_logs(standings, floor) for line, standings in self._lines.items()}
        for pair, places in self._pairs.items():
            each = [logs[line].get(other, ()) for line, other in places]
            yield pair, each[0] if len(each) == 1 else _intersect_logs(*each)


def _distinct(claims: Iterable[Claim]) -> Iterable[Claim]:
    found: dict[tuple[str, int], Claim] = {}
    for claim in claims:
        held = found.setdefault((claim.episode, claim.number), claim)
        # Claims are never brought back, so that of two copies the one that knows of its end is the newer.
        if claim.retracted < held.retracted:
            found[claim.episode, claim.number] = claim
    return found.values()


def _change_logs(standings: Iterable[PlacedClaim], floor: int) -> dict[str, list[_LearnedChange]]:
    """Return what became of the spans of one line, by other end; what was known at the floor counts as learned then."""
    came: dict[int, list[PlacedClaim]] = defaultdict(list)
    went: dict[int, list[PlacedClaim]] = defaultdict(list)
    for one in standings:
        begun = max(one.claim.recorded, floor)
        if begun < one.claim.retracted:
            came[begun].append(one)
            went[one.claim.retracted].append(one)
    went.pop(OPEN, None)
    course = SpanHistory()
    log: dict[str, list[_LearnedChange]] = defaultdict(list)
    for known in sorted({*came, *went}):
        for change in course.learn(came.get(known, ()), went.get(known, ())):
            log[change.other].append(_LearnedChange(known, change))
    return log


def _intersect_logs(first: _ChangeLog, second: _ChangeLog) -> list[_LearnedChange]:
    """Return what became of the intersection of two lines' spans of one pair."""
    sides: tuple[dict[int, Span], dict[int, Span]] = ({}, {})
    steps = [(known, side, change) for side, log in enumerate((first, second)) for known, change in log]
    found: list[_LearnedChange] = []
    before: set[int] = set()
    for known, together in groupby(sorted(steps, key=lambda step: step[0]), key=lambda step: step[0]):
        for _, side, change in together:
            if change.span is None:
                sides[side].pop(change.start, None)
            else:
                sides[side][change.start] = change.span
        now = intersect_spans(*(sorted(side.values(), key=attrgetter("start")) for side in sides))
        starts = {span.start for span in now}
        found += (_LearnedChange(known, SpanChange("", start, None)) for start in sorted(before - starts))
        found += (_LearnedChange(known, SpanChange(span.other, span.start, span)) for span in now)
        before = starts
    return found


@dataclass(slots=True)
class _FactVersions:
    """The versions of one fact as they come to light."""

    start: int
    former: FactRow | None = None
    past: list[Version] = field(default_factory=list)
    open: Version | None = None
    claims: tuple[Claim, ...] = ()
    """Of the newest version; empty when `former` knows better."""

    def see(self, known: int, span: Span | None) -> None:
        """From this knowledge time on it holds so, or not at all."""
        end = None if span is None else span.end
        if self.open is not None and self.open.end != end:
            self.past.append(self.open._replace(superseded=known))
            self.open = None
        if self.open is None and end is not None:
            self.open = Version(self.start, end, known, OPEN)
        if span is not None:
            self.claims = span.claims

    def versions(self) -> tuple[Version, ...]:
        """Return all of them."""
        return (*self.past, self.open) if self.open is not None else tuple(self.past)


def _resume_versions(row: FactRow, since: int | None) -> tuple[tuple[_FactKey, int], _FactVersions]:
    """Return a stored fact with those of its versions that were recorded before `since`."""
    track = _FactVersions(row.versions[0].start, row)
    if since is not None:
        track.past = list(row.versions)
        if track.past[-1].superseded >= since:
            track.open = track.past.pop()._replace(superseded=OPEN)
    return (_FactKey(row.source, row.type, row.target, row.value), track.start), track


def _row(pair: _FactKey, track: _FactVersions, reader: _ClaimReader) -> FactRow | None:
    former, versions = track.former, track.versions()
    if not versions:
        return None if former is None else replace(former, versions=())
    if not track.claims:
        return former
    row = _new_row(pair, track, reader)
    return former if row == former else row


def _new_row(pair: _FactKey, track: _FactVersions, reader: _ClaimReader) -> FactRow:
    """Return the row of a fact, in the words of the claim that began it."""
    former = track.former
    head = min(track.claims, key=lambda claim: (claim.start, claim.episode, claim.number))
    names = head.source_name, head.target_name
    if head.target and reader.canonical(head.source) != pair.source:
        names = names[1], names[0]
    text = head.text or reader.vocabulary.sentence(names[0], pair.type, names[1])
    return FactRow(
        id=fact_id(*pair, track.start) if former is None else former.id,
        lines=reader.lines(pair),
        source=pair.source,
        source_name=names[0],
        type=pair.type,
        target=pair.target,
        target_name=names[1],
        value=pair.value,
        text=text,
        versions=track.versions(),
        episodes=_newest_episodes(track.claims),
        version=0 if former is None else former.version,
        vector=former.vector if former is not None and former.text == text else None,
    )


def _newest_episodes(claims: Iterable[Claim]) -> tuple[str, ...]:
    newest = sorted(claims, key=lambda claim: (-claim.recorded, claim.episode))
    return tuple(dict.fromkeys(claim.episode for claim in newest))[:MOST_EPISODES]
