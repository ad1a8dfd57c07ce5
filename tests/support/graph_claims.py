"""Claims for tests of the graph's algebra, and an oracle that computes what holds without any span or line.

Days are stamps here: `make_claim("anna lives_in rome", day=3)` holds since day 3, and is recorded then too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

from hypothesis import strategies as st

from sharedmem.graph.projection import project
from sharedmem.graph.records import OPEN, Claim, FactRow
from sharedmem.graph.relations import Vocabulary
from sharedmem.models import RelationType

VOCABULARY = Vocabulary(
    [
        RelationType(name="sits_on", functional=True, inverse_functional=True),
        RelationType(name="leads", inverse_functional=True),
    ]
)
TYPES = ("lives_in", "likes", "knows", "married_to", "sits_on", "leads", "@tier")
SYMMETRIC = {"knows", "married_to"}
ONE_TARGET = {"lives_in", "married_to", "sits_on", "@tier"}
ONE_SOURCE = {"married_to", "sits_on", "leads"}

Fact = tuple[str, str, str, str]
"""Source, type, target, value."""


def make_claim(
    statement: str,
    *,
    day: int,
    until: int = OPEN,
    recorded: int | None = None,
    retracted: int = OPEN,
    by: str = "",
    says: Literal["holds", "ends"] = "holds",
    text: str = "",
) -> Claim:
    """A claim such as `anna lives_in rome`; `anna lives_in` names no target, `anna @tier 1` has a value.

    It comes from an episode of its own unless `by` names one and the number in it.
    """
    source, type_, other = (*statement.split(), "")[:3]
    if not type_.startswith("@"):
        type_, source, other = VOCABULARY.canonical(type_, source, other)
    target, value = ("", other) if type_.startswith("@") else (other, "")
    recorded = day if recorded is None else recorded
    episode, number = by.split("#") if by else (f"{recorded:04} {day:04} {statement} {says}", "0")
    return Claim(
        *(episode, int(number), says),
        *(source, source.title(), type_, target, (target or value).title(), value),
        *(day, until, recorded, retracted),
        text=text,
    )


def make_end_claim(statement: str, *, day: int, recorded: int | None = None, retracted: int = OPEN) -> Claim:
    """A claim that something does not hold any more."""
    return make_claim(statement, day=day, recorded=recorded, says="ends", retracted=retracted)


def group_by_line(claims: Iterable[Claim]) -> dict[str, list[Claim]]:
    """Claims in the lines where they stand, while nothing is merged."""
    lines: dict[str, list[Claim]] = {}
    for claim in claims:
        for line in VOCABULARY.lines(claim.type, claim.source, claim.target, claim.value):
            lines.setdefault(line, []).append(claim)
    return lines


def identity(id_: str) -> str:
    """What an id leads to while nothing is merged."""
    return id_


def project_claims(
    claims: Iterable[Claim], *, former: Iterable[FactRow] = (), since: int | None = None
) -> dict[str, FactRow]:
    """All facts that follow from claims, by id."""
    before = {row.id: row for row in former}
    rows = project(group_by_line(claims), former=before, vocabulary=VOCABULARY, canonical=identity, since=since)
    return {row.id: row for row in rows}


def facts_true_at(rows: Iterable[FactRow], *, world: int, known: int) -> set[Fact]:
    """What some facts answer, asked for a moment as known at a moment."""
    return {
        (row.source, row.type, row.target, row.value)
        for row in rows
        if any(version.holds(world, known) for version in row.versions)
    }


# -- the oracle -----------------------------------------------------------------------------------


def oracle_true_at(claims: Sequence[Claim], *, world: int, known: int) -> set[Fact]:
    """What holds at a moment as known at a moment, told by looking at the claims alone."""
    alive = [claim for claim in claims if claim.recorded <= known < claim.retracted]
    alive += [
        replace(claim, source=claim.target, target=claim.source)
        for claim in alive
        if claim.type in SYMMETRIC and claim.source != claim.target
    ]
    heard = [claim for claim in alive if claim.says == "holds"]
    asked = {(claim.source, claim.type, claim.target, claim.value) for claim in heard}
    return {fact for fact in asked if _is_kept(fact) and _holds(alive, fact, world)}


def _is_kept(fact: Fact) -> bool:
    return fact[1] not in SYMMETRIC or fact[0] <= fact[2]


def _holds(alive: Sequence[Claim], fact: Fact, world: int) -> bool:
    source, type_, target, value = fact
    same = [claim for claim in alive if claim.type == type_]
    of_source = [(claim.target or claim.value, claim) for claim in same if claim.source == source]
    of_target = [(claim.source, claim) for claim in same if claim.target == target]
    of_both = [(other, claim) for other, claim in of_source if other == target]
    views = []
    if type_ in ONE_TARGET:
        views.append((of_source, target or value))
    if type_ in ONE_SOURCE:
        views.append((of_target, source))
    return all(_wins(view, other, world) for view, other in views or [(of_both, target)])


def _order(claim: Claim) -> tuple[int, str, int]:
    return claim.recorded, claim.episode, claim.number


def _wins(view: Sequence[tuple[str, Claim]], asked: str, world: int) -> bool:
    """Whether one of rivals holds: nothing came between its claims and this moment, and it has not run out."""
    heard = [(o, c) for o, c in view if c.says == "holds" and c.start < c.end and c.start <= world]
    last = {start: max((c for _, c in heard if c.start == start), key=_order) for start in {c.start for _, c in heard}}
    winner = {start: next(o for o, c in heard if c is last[start]) for start in last}
    closed = [c.start for o, c in view if c.says == "ends" and o in {"", asked} and c.start <= world]
    taken = [start for start, other in winner.items() if other != asked]
    mine = [c for o, c in heard if o == asked == winner[c.start]]
    mine = [c for c in mine if c.start >= max(closed, default=0) and c.start > max(taken, default=-1)]
    end, by = -1, (0, "", 0)
    for claim in sorted(mine, key=lambda c: (c.start, _order(c))):
        if claim.start >= end or _order(claim) > by:
            end, by = claim.end, _order(claim)
    return world < end


# -- at random ------------------------------------------------------------------------------------


@st.composite
def claim_lists(draw: st.DrawFn, *, types: Sequence[str] = TYPES, most: int = 12) -> list[Claim]:
    """A few claims of a small world, so that they touch, contradict and meet each other often."""
    count = draw(st.integers(0, most))
    type_ = st.sampled_from(types)
    return [draw(_claims(type_, number)) for number in range(count)]


@st.composite
def _claims(draw: st.DrawFn, types: st.SearchStrategy[str], number: int) -> Claim:
    type_, day = draw(types), draw(st.integers(0, 7))
    says: Literal["holds", "ends"] = "ends" if draw(st.integers(0, 3)) == 3 else "holds"
    other = draw(st.sampled_from("ab" if type_ != "@tier" else "12"))
    if says == "ends" and type_ in ONE_TARGET and draw(st.booleans()):
        other = ""
    until = OPEN if says == "ends" else draw(st.one_of(st.just(OPEN), st.integers(day, day + 5)))
    recorded = draw(st.integers(1, 7))
    retracted = draw(st.one_of(st.just(OPEN), st.integers(recorded, 9)))
    return make_claim(
        f"{draw(st.sampled_from('abc'))} {type_} {other}",
        day=day,
        until=until,
        recorded=recorded,
        retracted=retracted,
        by=f"e{draw(st.integers(1, 5))}#{number}",
        says=says,
    )
