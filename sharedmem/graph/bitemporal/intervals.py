"""The interval algebra of the claims in one line: what holds when.

A line contains claims that may contradict each other, such as all claims about where Anna lives. Time has two
axes, as in Snodgrass' temporal relational algebra and in SQL:2011's system-versioned tables with an application-time
period: world time, which claims refer to, and knowledge time, at which they were recorded. For one knowledge time, the
claims known then are processed in the order of world time. The result is spans: half-open intervals that
never overlap in a line. In terms of Allen's relations between intervals:

- an equal claim *during*, *overlapped by* or *met by* a span joins it; of contradicting ends, the one recorded last
  counts. A claim that begins exactly where the span ends does not contradict that end, but continues it;
- another target that *starts* later ends the span there, for good: the span does not continue when the later one ends;
- of claims with *equal* starts and different targets, only the one recorded last counts;
- `ends` closes the current span, if it names no target or this one. At equal starts ends come first.

"Last" means recorded last, then by episode and number. The order in which claims arrive never matters.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from sharedmem.graph.records import Claim

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
