"""What tended to follow plans of a kind: counts over the plans of sessions, and how their executions went.

`lift` is that of association rules (Brin et al., "Dynamic Itemset Counting and Implication Rules for Market Basket
Data"): the share of plans of a kind that were followed by another kind, divided by that share among all plans.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from sharedmem.models import PlanKind, PlanPattern, PlanRecord


class _Follower(NamedTuple):
    """The first plan of a kind that followed another plan."""

    first: PlanRecord
    then: PlanRecord


def find_patterns(
    sessions: Iterable[Sequence[PlanRecord]],
    states: Mapping[str, str],
    *,
    within_ms: float,
    symbol: str | None,
    action: str | None,
) -> list[PlanPattern]:
    """Return what followed plans of a kind, the most frequent first. O(plans x plans within the time).

    Args:
        sessions: the plans of each session, oldest first.
        states: state of the execution by plan id.
        within_ms: most milliseconds between a plan and the one that followed it.
        symbol: only what followed plans with this symbol; None: any.
        action: likewise.
    """
    listed = [list(plans) for plans in sessions]
    plans_of = Counter(_kind(plan) for plans in listed for plan in plans)
    followers = [found for plans in listed for found in _followers(plans, within_ms)]
    before_each = Counter(_kind(found.then) for found in followers)
    pairs: defaultdict[tuple[PlanKind, PlanKind], list[str]] = defaultdict(list)
    for found in followers:
        if symbol in {None, found.first.symbol} and action in {None, found.first.action}:
            pairs[_kind(found.first), _kind(found.then)].append(states.get(found.then.plan_id, "none"))
    total = plans_of.total()
    patterns = [
        PlanPattern(
            first=first,
            then=then,
            times=len(ends),
            share=(share := len(ends) / plans_of[first]),
            lift=share / (before_each[then] / total),
            ended=sum(state in {"succeeded", "failed"} for state in ends),
            succeeded=ends.count("succeeded"),
        )
        for (first, then), ends in pairs.items()
    ]
    return sorted(patterns, key=lambda found: (-found.times, -found.lift, str(found.first), str(found.then)))


def _followers(plans: Sequence[PlanRecord], within_ms: float) -> Iterator[_Follower]:
    """Yield for each plan the first one of each kind that followed it in time."""
    for at, first in enumerate(plans):
        seen: set[PlanKind] = set()
        for then in plans[at + 1 :]:
            if then.timestamp_ms - first.timestamp_ms > within_ms:
                break
            if (kind := _kind(then)) not in seen:
                seen.add(kind)
                yield _Follower(first, then)


def _kind(plan: PlanRecord) -> PlanKind:
    return PlanKind(symbol=plan.symbol, action=plan.action)
