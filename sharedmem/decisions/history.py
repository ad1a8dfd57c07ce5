"""Past decisions of a session: what it lists, and what only the durable tier still has."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import orjson

from sharedmem.decisions.executions import ExecutionLog, parse_execution
from sharedmem.decisions.plans import Plans, parse_plan
from sharedmem.decisions.sessions import DecisionSessions
from sharedmem.decisions.validation import MOST_LISTED
from sharedmem.errors import NotFoundError
from sharedmem.models import DurableRecord, ExecutionRecord, PastDecision, PlanRecord
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
