"""What the parts of the suite share: sessions of their own, and plans in them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import ClassVar

import pytest

from sharedmem.clock import new_id
from sharedmem.decisions.decisions import Decisions
from sharedmem.models import ExecutionRecord, PlanRecord
from sharedmem.testing.store_fixtures import eventually

SHORT_LEASE_S = 0.05
RACERS = 16
WHY = "the trend is strong, and the volume rises"


class DecisionFixtures:
    """Two sessions; `decisions` comes from who inherits."""

    listed: ClassVar[int] = 100
    """Plans that a session lists (setting `plans_per_session`)."""

    @pytest.fixture
    async def session(self, decisions: Decisions) -> AsyncIterator[str]:
        """A session of this test alone."""
        name = f"session-{new_id(8)}"
        yield name
        await decisions.erase(name)

    @pytest.fixture
    async def other_session(self, decisions: Decisions) -> AsyncIterator[str]:
        """Another one."""
        name = f"other-{new_id(8)}"
        yield name
        await decisions.erase(name)

    @pytest.fixture
    async def plan(self, decisions: Decisions, session: str) -> PlanRecord:
        """A plan to buy BTC that was not executed."""
        return await save_test_plan(decisions, session)


async def save_test_plan(decisions: Decisions, session: str, symbol: str = "BTC", reasoning: str = WHY) -> PlanRecord:
    """A plan just saved."""
    await decisions.save_plan(session, symbol, "BUY", 0.75, reasoning, "llm")
    return (await decisions.get_recent_plans(session, limit=1))[0]


async def execute_plan(
    decisions: Decisions, session: str, plan: PlanRecord, status: str = "success"
) -> ExecutionRecord:
    """Its execution, claimed and finished."""
    claim = await decisions.begin_execution(session, plan.plan_id)
    return await decisions.finish(session, plan.plan_id, claim.fence, status=status, order_id="order-1")


async def state_of(decisions: Decisions, session: str, plan: PlanRecord) -> str:
    """The state of its execution."""
    _, record = await decisions.check_executed(session, plan.plan_id)
    return "none" if record is None else record.state


async def orphan_execution(decisions: Decisions, session: str, plan: PlanRecord) -> int:
    """Let an executor claim it and vanish; the fence of its claim."""
    claim = await decisions.begin_execution(session, plan.plan_id, lease=SHORT_LEASE_S)

    async def is_over() -> bool:
        return await state_of(decisions, session, plan) == "orphaned"

    await eventually(is_over)
    return claim.fence
