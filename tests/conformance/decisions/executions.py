"""Executions: claimed once, ended once, and resolved by people."""
# a test's name is its sentence

from __future__ import annotations

import asyncio

import pytest

from conformance.decisions.base import (
    RACERS,
    WHY,
    DecisionFixtures,
    execute_plan,
    orphan_execution,
    save_test_plan,
    state_of,
)
from sharedmem.decisions.decisions import Decisions
from sharedmem.errors import AlreadyExecutedError, ClaimLostError, ConflictError, NotFoundError
from sharedmem.models import ExecutionClaim, PlanRecord

_LEASE_S = 30.0


class ExecutionClaimTests(DecisionFixtures):
    """Executing a plan at most once."""

    async def test_of_racing_executors_one_starts(self, decisions: Decisions, session: str, plan: PlanRecord) -> None:
        claims = await asyncio.gather(*(decisions.begin_execution(session, plan.plan_hash) for _ in range(RACERS)))

        (started,) = (claim for claim in claims if claim.started)
        assert (started.state, started.attempt, started.plan_id) == ("running", 1, plan.plan_id)
        assert started.fence > 0
        for claim in claims:
            assert claim.started or (claim.state, claim.fence) == ("running", 0)
            assert 0 < claim.remaining_ms <= _LEASE_S * 1000

    async def test_plans_begun_at_the_same_moment_have_claims_of_their_own(
        self, decisions: Decisions, session: str
    ) -> None:
        for number in range(4):
            await decisions.save_plan(session, "BTC", "BUY", 0.5, f"{WHY} {number}")
        plans = [plan.plan_id for plan in await decisions.get_recent_plans(session)]
        missing = ["1", *plans, "00000000", *plans]
        claims = await asyncio.gather(
            *(decisions.begin_execution(session, plan) for plan in missing), return_exceptions=True
        )

        begun = [claim for claim in claims if isinstance(claim, ExecutionClaim)]
        assert [type(claim) for claim in claims if claim not in begun] == [NotFoundError, NotFoundError]
        assert sorted(claim.plan_id for claim in begun if claim.started) == sorted(plans)
        assert len({claim.fence for claim in begun if claim.started}) == 4
        for claim in begun:
            _, record = await decisions.check_executed(session, claim.plan_id)
            assert record is not None
            assert not claim.started or record.fence == claim.fence

    async def test_a_plan_that_was_not_begun_is_not_executed(
        self, decisions: Decisions, session: str, plan: PlanRecord
    ) -> None:
        assert await decisions.check_executed(session, plan.plan_hash) == (False, None)

    async def test_a_check_reports_a_running_execution(
        self, decisions: Decisions, session: str, plan: PlanRecord
    ) -> None:
        claim = await decisions.begin_execution(session, plan.plan_id)

        is_executed, record = await decisions.check_executed(session, plan.plan_hash)

        assert is_executed
        assert record is not None
        assert (record.state, record.fence, record.executed, record.status) == ("running", claim.fence, False, "")
        assert (record.symbol, record.action, record.confidence) == ("BTC", "BUY", 0.75)

    @pytest.mark.parametrize(
        ("status", "state"),
        [
            ("success", "succeeded"),
            ("error", "failed"),
            ("failed", "failed"),
            ("unknown", "unknown"),
            ("timeout", "unknown"),
        ],
    )
    async def test_each_status_ends_an_execution_for_good(
        self, decisions: Decisions, session: str, plan: PlanRecord, status: str, state: str
    ) -> None:
        record = await execute_plan(decisions, session, plan, status)

        again = await decisions.begin_execution(session, plan.plan_id, policy="takeover")

        assert (record.status, record.state, record.executed) == (status, state, state == "succeeded")
        assert (again.started, again.state, again.fence, again.remaining_ms) == (False, state, 0, 0)
        assert again.execution == record
        assert await decisions.check_executed(session, plan.plan_hash) == (True, record)

    async def test_a_record_holds_what_the_executor_said(
        self, decisions: Decisions, session: str, plan: PlanRecord
    ) -> None:
        claim = await decisions.begin_execution(session, plan.plan_id)

        record = await decisions.finish(
            session,
            plan.plan_hash,
            claim.fence,
            status="error",
            executed=True,
            order_id="o-7",
            order_size_usdt=12.5,
            error="half of it",
        )

        assert (record.executed, record.order_id, record.order_size_usdt) == (True, "o-7", 12.5)
        assert (record.error, record.fence, record.attempt) == ("half of it", claim.fence, 1)
        assert (record.plan_id, record.plan_hash, record.session_id) == (plan.plan_id, plan.plan_hash, session)
        assert record.timestamp_ms >= plan.timestamp_ms

    async def test_the_same_end_told_twice_is_told_once(
        self, decisions: Decisions, session: str, plan: PlanRecord
    ) -> None:
        claim = await decisions.begin_execution(session, plan.plan_id)
        ends = [
            await decisions.finish(session, plan.plan_id, claim.fence, status="success", order_id="o-1")
            for _ in range(2)
        ]

        assert ends[0] == ends[1]
        assert (await decisions.get_execution_stats(session)).total_executions == 1
        with pytest.raises(AlreadyExecutedError, match="succeeded"):
            await decisions.finish(session, plan.plan_id, claim.fence, status="success", order_id="o-2")

    async def test_only_the_holder_of_the_fence_renews_and_finishes(
        self, decisions: Decisions, session: str, plan: PlanRecord
    ) -> None:
        claim = await decisions.begin_execution(session, plan.plan_id)

        with pytest.raises(ClaimLostError):
            await decisions.renew(session, plan.plan_id, claim.fence - 1)
        with pytest.raises(ClaimLostError):
            await decisions.finish(session, plan.plan_id, claim.fence + 1, status="success")
        assert await state_of(decisions, session, plan) == "running"

    async def test_a_claim_is_prolonged(self, decisions: Decisions, session: str, plan: PlanRecord) -> None:
        claim = await decisions.begin_execution(session, plan.plan_id, lease=_LEASE_S)

        renewed = await decisions.renew(session, plan.plan_id, claim.fence, lease=600)

        assert (renewed.started, renewed.fence, renewed.attempt) == (True, claim.fence, 1)
        refused = await decisions.begin_execution(session, plan.plan_id)
        assert _LEASE_S * 1000 < refused.remaining_ms <= 600_000

    async def test_an_execution_that_was_never_begun_cannot_be_finished(
        self, decisions: Decisions, session: str, plan: PlanRecord
    ) -> None:
        with pytest.raises(ClaimLostError):
            await decisions.finish(session, plan.plan_id, 7, status="success")
        with pytest.raises(ClaimLostError):
            await decisions.renew(session, plan.plan_id, 7)

    async def test_an_execution_outlives_its_plan(self, decisions: Decisions, session: str, plan: PlanRecord) -> None:
        record = await execute_plan(decisions, session, plan)
        unbegun = await save_test_plan(decisions, session, reasoning="nobody begins this one")
        for number in range(self.listed):
            await decisions.save_plan(session, "BTC", "BUY", 0.5, f"reason {number}")

        assert await decisions.check_executed(session, plan.plan_id) == (True, record)
        assert await decisions.check_executed(session, plan.plan_hash) == (True, record)
        assert not (await decisions.begin_execution(session, plan.plan_hash)).started
        with pytest.raises(NotFoundError, match=unbegun.plan_id):
            await decisions.begin_execution(session, unbegun.plan_id)


async def _resolves(decisions: Decisions, session: str, plan: PlanRecord, fence: int) -> None:
    """A person reports how it ended; its executor cannot any more."""
    record = await decisions.resolve(session, plan.plan_hash, status="success", order_id="found")

    assert (record.state, record.order_id, record.executed) == ("succeeded", "found", True)
    assert await decisions.resolve(session, plan.plan_hash, status="success", order_id="found") == record
    with pytest.raises(ClaimLostError):
        await decisions.finish(session, plan.plan_id, fence, status="error")
    with pytest.raises(AlreadyExecutedError):
        await decisions.resolve(session, plan.plan_id, status="failed")
    stats = await decisions.get_execution_stats(session)
    assert (stats.total_executions, stats.successful_executions) == (1, 1)


class ExecutionOrphanTests(DecisionFixtures):
    """What becomes of an execution whose executor died."""

    async def test_an_orphan_is_not_begun_anew_by_default(
        self, decisions: Decisions, session: str, plan: PlanRecord
    ) -> None:
        await orphan_execution(decisions, session, plan)

        claim = await decisions.begin_execution(session, plan.plan_id)

        assert (claim.started, claim.state, claim.attempt, claim.remaining_ms) == (False, "orphaned", 1, 0)

    async def test_an_orphan_can_be_taken_over_and_its_old_executor_is_refused(
        self, decisions: Decisions, session: str, plan: PlanRecord
    ) -> None:
        fence = await orphan_execution(decisions, session, plan)

        claim = await decisions.begin_execution(session, plan.plan_id, policy="takeover")

        assert (claim.started, claim.attempt) == (True, 2)
        assert claim.fence > fence
        with pytest.raises(ClaimLostError):
            await decisions.finish(session, plan.plan_id, fence, status="success", order_id="late")
        record = await decisions.finish(session, plan.plan_id, claim.fence, status="success")
        assert (record.attempt, record.fence) == (2, claim.fence)

    async def test_a_late_executor_may_still_say_how_it_ended(
        self, decisions: Decisions, session: str, plan: PlanRecord
    ) -> None:
        fence = await orphan_execution(decisions, session, plan)

        with pytest.raises(ClaimLostError):
            await decisions.renew(session, plan.plan_id, fence)
        record = await decisions.finish(session, plan.plan_id, fence, status="success")

        assert record.state == "succeeded"

    async def test_an_orphan_can_be_resolved(self, decisions: Decisions, session: str, plan: PlanRecord) -> None:
        fence = await orphan_execution(decisions, session, plan)

        await _resolves(decisions, session, plan, fence)

    async def test_what_waits_for_an_end_is_listed(self, decisions: Decisions, session: str) -> None:
        plans = [await save_test_plan(decisions, session, reasoning=f"reason {number}") for number in range(4)]
        await decisions.begin_execution(session, plans[0].plan_id)
        await orphan_execution(decisions, session, plans[1])
        await execute_plan(decisions, session, plans[2], "unknown")
        await execute_plan(decisions, session, plans[3])

        waiting = await decisions.get_open_executions(session)

        found = [(record.plan_id, record.state) for record in waiting]
        states = ("running", "orphaned", "unknown")
        assert found == [(plan.plan_id, state) for plan, state in zip(plans, states, strict=False)]


class ExecutionResolveTests(DecisionFixtures):
    """What a person or a probe decides, and what executors without claims tell."""

    async def test_an_unknown_end_can_be_resolved(self, decisions: Decisions, session: str, plan: PlanRecord) -> None:
        fence = (await execute_plan(decisions, session, plan, "timeout")).fence

        await _resolves(decisions, session, plan, fence)

    async def test_what_is_still_at_work_is_not_resolved(
        self, decisions: Decisions, session: str, plan: PlanRecord
    ) -> None:
        await decisions.begin_execution(session, plan.plan_id)

        with pytest.raises(ConflictError, match="is being executed"):
            await decisions.resolve(session, plan.plan_id, status="failed")
        assert await state_of(decisions, session, plan) == "running"

    async def test_what_was_never_begun_is_not_resolved(
        self, decisions: Decisions, session: str, plan: PlanRecord
    ) -> None:
        with pytest.raises(NotFoundError, match="was begun"):
            await decisions.resolve(session, plan.plan_id, status="failed")

    async def test_the_first_to_mark_a_plan_wins(self, decisions: Decisions, session: str, plan: PlanRecord) -> None:
        mark = (session, plan.plan_hash, "BTC", "BUY", 0.75, "success", True)
        record = await decisions.mark_executed(*mark, "A-1001", 100.0)

        assert (record.state, record.order_id, record.order_size_usdt) == ("succeeded", "A-1001", 100.0)
        assert await decisions.mark_executed(*mark, "A-1001", 100.0) == record
        with pytest.raises(AlreadyExecutedError, match=plan.plan_hash):
            await decisions.mark_executed(*mark, "order-124", 100.0)
        assert not (await decisions.begin_execution(session, plan.plan_id)).started
        assert (await decisions.get_execution_stats(session)).total_executions == 1

    async def test_a_claimed_plan_is_marked_only_by_who_has_the_claim(
        self, decisions: Decisions, session: str, plan: PlanRecord
    ) -> None:
        claim = await decisions.begin_execution(session, plan.plan_id)
        mark = (session, plan.plan_id, "BTC", "SELL", 0.25, "error", False, "", 0.0, "no funds")

        for fence in (None, claim.fence + 1):
            with pytest.raises(ClaimLostError):
                await decisions.mark_executed(*mark, fence=fence)
        record = await decisions.mark_executed(*mark, fence=claim.fence)

        assert (record.state, record.action, record.confidence) == ("failed", "SELL", 0.25)
        assert (record.error, record.fence) == ("no funds", claim.fence)


class ExecutionBlockTests(DecisionFixtures):
    """Executing in a block."""

    async def test_a_block_claims_and_finishes(self, decisions: Decisions, session: str, plan: PlanRecord) -> None:
        async with decisions.executing(session, plan.plan_hash) as execution:
            assert (execution.started, execution.is_held()) == (True, True)
            assert (await decisions.begin_execution(session, plan.plan_id)).state == "running"
            record = await execution.finish(status="success", order_id="o-1")

        assert not execution.is_held()
        assert await decisions.check_executed(session, plan.plan_id) == (True, record)

    async def test_a_block_that_fails_leaves_the_end_unknown(
        self, decisions: Decisions, session: str, plan: PlanRecord
    ) -> None:
        with pytest.raises(RuntimeError, match="exchange"):
            async with decisions.executing(session, plan.plan_id):
                raise RuntimeError("the exchange hung up")

        _, record = await decisions.check_executed(session, plan.plan_id)
        assert record is not None
        assert (record.state, record.error) == ("unknown", "RuntimeError: the exchange hung up")

    async def test_a_block_that_says_nothing_leaves_the_end_unknown(
        self, decisions: Decisions, session: str, plan: PlanRecord
    ) -> None:
        async with decisions.executing(session, plan.plan_id) as execution:
            assert execution.claim.attempt == 1

        assert await state_of(decisions, session, plan) == "unknown"

    async def test_a_block_that_may_not_start_is_told_so(
        self, decisions: Decisions, session: str, plan: PlanRecord
    ) -> None:
        record = await execute_plan(decisions, session, plan)

        async with decisions.executing(session, plan.plan_id) as execution:
            assert (execution.started, execution.is_held()) == (False, False)
            assert execution.claim.execution == record
            with pytest.raises(ClaimLostError):
                await execution.finish(status="error")

        assert await decisions.check_executed(session, plan.plan_id) == (True, record)
