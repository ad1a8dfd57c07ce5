"""Compute facts from claims: every fact, in every version that was ever known.

Facts are a pure function of the claims of their lines. Neither the order in which claims arrived nor the facts that
existed before matter; former facts only save work.

The interval algebra decides what of a line holds when. A line contains claims that may contradict each other, such as
all claims about where Anna lives. Time has two axes, as in Snodgrass' temporal relational algebra and in SQL:2011's
system-versioned tables with an application-time period: world time, which claims refer to, and knowledge time, at
which they were recorded. For one knowledge time, the claims known then are processed in the order of world time. The
result is spans: half-open intervals that never overlap in a line. In terms of Allen's relations between intervals:

- an equal claim *during*, *overlapped by* or *met by* a span joins it; of contradicting ends, the one recorded last
  counts. A claim that begins exactly where the span ends does not contradict that end, but continues it;
- another target that *starts* later ends the span there, for good: the span does not continue when the later one ends;
- of claims with *equal* starts and different targets, only the one recorded last counts;
- `ends` closes the current span, if it names no target or this one. At equal starts ends come first.

"Last" means recorded last, then by episode and number. The order in which claims arrive never matters.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from sharedmem.graph.records import OPEN, Claim, FactRow, Version
from sharedmem.graph.relations import Places, Vocabulary

MOST_EPISODES = 64
"""Most source episodes of a fact."""
_ID_BYTES = 10
_KNOWING_NOTHING = -1

Canonical = Callable[[str], str]
"""Returns the id of an entity after merges for its id before."""


class _FactKey(NamedTuple):
    """The content of a fact, without its times."""

    source: str
    type: str
    target: str
    value: str


class _LearnedChange(NamedTuple):
    """A change of a span, and when it was recorded."""

    known: int
    change: SpanChange


_ChangeLog = Sequence[_LearnedChange]


def fact_id(source: str, type_: str, target: str, value: str, start: int) -> str:
    """Return the id of a fact that holds since `start`: the same in every process, independent of its derivation."""
    statement = "\x1f".join((source, type_, target, value, str(start)))
    return blake2b(statement.encode(), digest_size=_ID_BYTES).hexdigest()


def dependent_timelines(claims: Iterable[Claim], vocabulary: Vocabulary, canonical: Canonical) -> set[str]:
    """Return every line of some claims; these must be read too before the facts of the claims are known.

    If both ends of a relation are functional, a claim is in two lines, and each of them affects the facts of the other.
    Read the lines of the changed claims, then the further lines of all claims found there and of all new claims; lines
    that were read need no second read. After a merge or unmerge, the further lines are those to which claims move.

    Args:
        claims: claims in the changed lines, and new claims.
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

    O(n log n) for n claims that arrive about in the order in which they begin. A claim that arrives late, or is
    removed, costs as many steps as there are claims in the spans that it touches.

    Args:
        claims_by_line: all claims of each line that was read, with empty lines. The line of a claim is computed
            again from the vocabulary and `canonical`, so that claims may still be in their line from before a merge.
            Facts with a line that was not read are left out.
        former: the stored facts by id, of these lines or of their lines before a merge; they keep their
            `version`. An unchanged row is returned as the same object.
        vocabulary: relation types.
        canonical: from ids before merges to ids after merges.
        since: a stamp before which all knowledge is as in `former`, which then contains all rows of
            these lines: versions recorded earlier are taken from there. The result is the same as
            without it.

    Returns:
        Facts by id. A fact that follows at no knowledge time any more (which merges cause, never time) has no
            versions: it must be deleted.
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
    """Reads claims: their content and lines after merges."""

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
        """Return only its lines."""
        return tuple([line for line, _ in self.places(pair)])

    def has_moved(self, row: FactRow) -> bool:
        """Return whether a stored fact belongs to other lines now."""
        pair = self.pair(row)
        return pair != (row.source, row.type, row.target, row.value) or self.lines(pair) != row.lines

    def is_newer(self, row: FactRow, since: int) -> bool:
        """Return whether a stored fact cannot be used for the time before `since`."""
        return self.has_moved(row) or row.versions[-1].recorded >= since


class _Timelines:
    """Claims in their lines, and the pairs that may hold there."""

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
        """Return whether these lines determine a stored fact completely."""
        return all(line in self._lines for line in row.lines) or self._reader.has_moved(row)

    def changes(self, floor: int) -> Iterator[tuple[_FactKey, _ChangeLog]]:
        """Yield for each pair the changes of its spans, from a knowledge time on."""
        logs = {line: _change_logs(standings, floor) for line, standings in self._lines.items()}
        for pair, places in self._pairs.items():
            each = [logs[line].get(other, ()) for line, other in places]
            yield pair, each[0] if len(each) == 1 else _intersect_logs(*each)


def _distinct(claims: Iterable[Claim]) -> Iterable[Claim]:
    found: dict[tuple[str, int], Claim] = {}
    for claim in claims:
        held = found.setdefault((claim.episode, claim.number), claim)
        # A retraction is final, so that of two copies of a claim the retracted one is the newer.
        if claim.retracted < held.retracted:
            found[claim.episode, claim.number] = claim
    return found.values()


def _change_logs(standings: Iterable[PlacedClaim], floor: int) -> dict[str, list[_LearnedChange]]:
    """Return the changes of the spans of one line, by other end; knowledge before the floor counts as recorded then."""
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
    """Return the changes of the intersection of two lines' spans of one pair."""
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
    """The versions of one fact, built in the order of knowledge time."""

    start: int
    former: FactRow | None = None
    past: list[Version] = field(default_factory=list)
    open: Version | None = None
    claims: tuple[Claim, ...] = ()
    """Claims of the newest version; empty if `former` has it."""

    def see(self, known: int, span: Span | None) -> None:
        """Set the span that is known from this knowledge time on; None if the fact does not hold."""
        end = None if span is None else span.end
        if self.open is not None and self.open.end != end:
            self.past.append(self.open._replace(superseded=known))
            self.open = None
        if self.open is None and end is not None:
            self.open = Version(self.start, end, known, OPEN)
        if span is not None:
            self.claims = span.claims

    def versions(self) -> tuple[Version, ...]:
        """Return all versions."""
        return (*self.past, self.open) if self.open is not None else tuple(self.past)


def _resume_versions(row: FactRow, since: int | None) -> tuple[tuple[_FactKey, int], _FactVersions]:
    """Return a stored fact with its versions that were recorded before `since`."""
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
    """Return the row of a fact, with the text of the claim that began it."""
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


# -- the algebra of intervals --------------------------------------------------------------------


Order = tuple[int, bool, int, str, int]


class PlacedClaim(NamedTuple):
    """A claim in its line."""

    other: str
    """The other end or the value, in which claims of the line differ. Empty for an `ends` of any target."""
    claim: Claim


class Span(NamedTuple):
    """An interval in which one target holds."""

    other: str
    start: int
    end: int
    claims: tuple[Claim, ...]
    """The claims for it, by start."""


class SpanChange(NamedTuple):
    """The change of the span of one target with one start."""

    other: str
    start: int
    span: Span | None
    """None: the span no longer exists."""


def compute_spans(standings: Iterable[PlacedClaim], *, known: int) -> list[Span]:
    """Return the spans of a line as known at a moment, by start. O(n log n).

    Args:
        standings: all claims of the line, in any order.
        known: stamp of knowledge time; claims that were recorded by then and not yet retracted count.
    """
    alive = [one for one in standings if one.claim.recorded <= known < one.claim.retracted]
    runs: list[_OpenSpan] = []
    for group in _by_start(sorted(map(_with_order, alive))):
        _advance(runs, group)
    return [run.span() for run in runs]


def intersect_spans(first: Sequence[Span], second: Sequence[Span]) -> list[Span]:
    """Return where both hold: the intersection of two lists of spans, each by start and without overlaps.

    The spans have the `other` of the first list, and the claims of both without repetitions. O(n + m).
    """
    found = []
    left = right = 0
    while left < len(first) and right < len(second):
        one, two = first[left], second[right]
        start, end = max(one.start, two.start), min(one.end, two.end)
        if start < end:
            found.append(Span(one.other, start, end, _union_claims(one.claims, two.claims)))
        if one.end <= two.end:
            left += 1
        else:
            right += 1
    return found


class SpanHistory:
    """The spans of a line while claims are added and removed; only changed parts are computed again.

    A new claim costs as many steps as there are claims in the spans that it touches; a claim that is last in world time
    costs one step.
    """

    def __init__(self) -> None:
        self._order: list[tuple[Order, PlacedClaim]] = []
        self._runs: list[_OpenSpan] = []

    def learn(self, came: Iterable[PlacedClaim], went: Iterable[PlacedClaim] = ()) -> list[SpanChange]:
        """Add claims and remove others; return every span that may have changed.

        Args:
            came: new claims.
            went: claims to remove.
        """
        fresh, lost = sorted(map(_with_order, came)), sorted(map(_with_order, went))
        if not fresh and not lost:
            return []
        if not lost and (not self._order or _start(fresh[0]) > _start(self._order[-1])):
            return self._carry_on(fresh)
        return self._revise(fresh, lost)

    def _carry_on(self, fresh: list[tuple[Order, PlacedClaim]]) -> list[SpanChange]:
        # All new claims are later than the known ones: only the last span can change, and new ones follow it.
        first = max(len(self._runs) - 1, 0)
        self._order += fresh
        for group in _by_start(fresh):
            _advance(self._runs, group)
        return [run.change() for run in self._runs[first:]]

    def _revise(
        self, fresh: list[tuple[Order, PlacedClaim]], lost: list[tuple[Order, PlacedClaim]]
    ) -> list[SpanChange]:
        for one in lost:
            del self._order[bisect_left(self._order, one[0], key=_order)]
        for one in fresh:
            insort(self._order, one, key=_order)
        starts = [_start(one) for one in (*fresh, *lost)]
        first = max(bisect_left(self._runs, min(starts), key=_OpenSpan.begin) - 1, 0)
        # The span before the first change may end elsewhere now, so the computation begins with it.
        before = self._runs[first:]
        begin = min([*starts, *(run.start for run in before[:1])])
        after, kept = self._walked(begin, before, settled=max(starts))
        self._runs[first:] = [*after, *before[kept:]]
        gone = {(run.other, run.start) for run in before[:kept]} - {(run.other, run.start) for run in after}
        return [*(SpanChange(other, start, None) for other, start in sorted(gone)), *(run.change() for run in after)]

    def _walked(self, begin: int, before: list[_OpenSpan], *, settled: int) -> tuple[list[_OpenSpan], int]:
        """Return the runs from a moment on, and the index of the former run from which nothing differs."""
        known = {(run.start, run.other): place for place, run in enumerate(before)}
        runs: list[_OpenSpan] = []
        for group in _by_start(self._order[bisect_left(self._order, begin, key=_start) :]):
            count = len(runs)
            _advance(runs, group)
            newest = (runs[-1].start, runs[-1].other) if len(runs) > count else None
            # A new run depends only on later claims, and after the last change these are unchanged.
            if newest in known and newest[0] > settled:
                runs.pop()
                return runs, known[newest]
        return runs, len(before)


class _OpenSpan:
    """A span that may still grow or be shortened."""

    __slots__ = ("_order", "claims", "end", "other", "start")

    def __init__(self, other: str, start: int) -> None:
        self.other = other
        self.start = start
        self.end = start
        self.claims: list[Claim] = []
        self._order: tuple[int, str, int] = (0, "", 0)

    def begin(self) -> int:
        return self.start

    def join(self, claim: Claim) -> None:
        order = (claim.recorded, claim.episode, claim.number)
        if claim.start == self.end or order > self._order:
            self.end, self._order = claim.end, order
        self.claims.append(claim)

    def close(self, at: int) -> None:
        self.end = min(self.end, at)

    def span(self) -> Span:
        return Span(self.other, self.start, self.end, tuple(self.claims))

    def change(self) -> SpanChange:
        return SpanChange(self.other, self.start, self.span())


def _advance(runs: list[_OpenSpan], group: Sequence[PlacedClaim]) -> None:
    """Take one step in world time: all claims that begin at one moment, ends first, then in order of recording."""
    start = group[0].claim.start
    running = runs[-1] if runs else None
    for other, claim in group:
        if claim.says == "ends" and running is not None and other in {"", running.other}:
            running.close(start)
    holding = [one for one in group if one.claim.says == "holds" and one.claim.end > start]
    if not holding:
        return
    winner = holding[-1].other
    if running is not None and running.other != winner:
        running.close(start)
    if running is None or running.other != winner or running.end < start:
        running = _OpenSpan(winner, start)
        runs.append(running)
    for other, claim in holding:
        if other == winner:
            running.join(claim)


def _with_order(standing: PlacedClaim) -> tuple[Order, PlacedClaim]:
    claim = standing.claim
    return (claim.start, claim.says == "holds", claim.recorded, claim.episode, claim.number), standing


def _order(one: tuple[Order, PlacedClaim]) -> Order:
    return one[0]


def _start(one: tuple[Order, PlacedClaim]) -> int:
    return one[0][0]


def _by_start(ordered: Iterable[tuple[Order, PlacedClaim]]) -> Iterator[list[PlacedClaim]]:
    for _, group in groupby(ordered, key=_start):
        yield [standing for _, standing in group]


def _union_claims(first: tuple[Claim, ...], second: tuple[Claim, ...]) -> tuple[Claim, ...]:
    held = {(claim.episode, claim.number): claim for claim in (*first, *second)}
    return tuple(sorted(held.values(), key=lambda claim: (claim.start, claim.episode, claim.number)))
