"""Past decisions of a session, also those that only the durable tier still has, and what tended to follow them.

`lift` is that of association rules (Brin et al., "Dynamic Itemset Counting and Implication Rules for Market Basket
Data"): the share of plans of a kind that were followed by another kind, divided by that share among all plans.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import orjson

from sharedmem.decisions.executions import ExecutionLog, parse_execution
from sharedmem.decisions.plans import Plans, parse_plan
from sharedmem.decisions.sessions import DecisionSessions
from sharedmem.decisions.validation import MOST_LISTED
from sharedmem.errors import NotFoundError
from sharedmem.models import DurableRecord, ExecutionRecord, PastDecision, PlanKind, PlanPattern, PlanRecord
from sharedmem.redis.service_keys import decoding


class DecisionHistory:
    """Reads past decisions.

    Args:
        sessions: the sessions of the namespace.
        plans: the listed plans.
        executions: the executions that Redis has.
    """

    def __init__(self, sessions: DecisionSessions, plans: Plans, executions: ExecutionLog) -> None:
        self._sessions = sessions
        self._plans = plans
        self._executions = executions

    async def with_execution(self, plans: Sequence[PlanRecord]) -> list[PastDecision]:
        """Return plans with their executions, as Redis has them. One round trip each."""
        ends = await asyncio.gather(*map(self._execution_of, plans))
        return [PastDecision(plan=plan, execution=end) for plan, end in zip(plans, ends, strict=True)]

    async def read(
        self, session: str, *, symbol: str | None, since_us: int, until_us: int, limit: int
    ) -> list[PastDecision]:
        """Return the decisions of a session within a time, newest first."""
        documents = await self._sessions.documents(session)
        listed = await self._plans.get_recent_plans(session, None, MOST_LISTED)
        by_id = self._kept_plans(session, documents) | {plan.plan_id: plan for plan in listed}
        wanted = sorted(
            (
                plan
                for plan in by_id.values()
                if since_us < int(plan.plan_id) < until_us and symbol in {None, plan.symbol}
            ),
            key=lambda plan: plan.plan_id,
            reverse=True,
        )[:limit]
        kept = self._kept_executions(session, documents)
        return [
            found
            if found.execution is not None
            else found.model_copy(update={"execution": kept.get(found.plan.plan_id)})
            for found in await self.with_execution(wanted)
        ]

    def _kept_plans(self, session: str, documents: Sequence[DurableRecord]) -> dict[str, PlanRecord]:
        with decoding(self._sessions.keys(session, "read").plans.plans):
            plans = [parse_plan(orjson.loads(one.body)) for one in documents if one.type == "plan"]
        return {plan.plan_id: plan for plan in plans}

    def _kept_executions(self, session: str, documents: Sequence[DurableRecord]) -> dict[str, ExecutionRecord]:
        key = self._sessions.keys(session, "read").executions.executions
        found = [parse_execution(key, one.body.encode()) for one in documents if one.type == "execution"]
        return {execution.plan_id: execution for execution in found}

    async def _execution_of(self, plan: PlanRecord) -> ExecutionRecord | None:
        try:
            return (await self._executions.check_executed(plan.session_id, plan.plan_id))[1]
        except NotFoundError:  # the plan is not listed any more
            return None


# -- patterns ------------------------------------------------------------------------------------


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
