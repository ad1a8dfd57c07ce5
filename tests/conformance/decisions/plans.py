"""Plans: saved, found again, and known again."""
# a test's name is its sentence

from __future__ import annotations

import asyncio

import pytest

from conformance.decisions.base import RACERS, WHY, DecisionFixtures, execute_plan, save_test_plan
from sharedmem.decisions.decisions import Decisions
from sharedmem.errors import NotFoundError
from sharedmem.models import PlanRecord
from sharedmem.testing.store_fixtures import eventually


class PlanTests(DecisionFixtures):
    """Saving, finding, and knowing again."""

    async def test_a_saved_plan_is_found_with_all_that_was_said(self, decisions: Decisions, session: str) -> None:
        short = await decisions.save_plan(session, "BTC", "BUY", 0.75, WHY, "llm")

        (plan,) = await decisions.get_recent_plans(session)

        assert (plan.plan_hash, plan.session_id, plan.symbol, plan.action) == (short, session, "BTC", "BUY")
        assert (plan.confidence, plan.reasoning, plan.method) == (0.75, WHY, "llm")
        assert plan.timestamp_ms == int(plan.plan_id) // 1000

    async def test_the_hash_is_the_beginning_of_md5_over_symbol_action_and_reasoning(
        self, decisions: Decisions, session: str
    ) -> None:
        short = await decisions.save_plan(session, "BTC", "BUY", 0.75, "20-day high on rising volume")

        assert short == "a2121dcf"

    async def test_the_newest_plans_come_first(self, decisions: Decisions, session: str) -> None:
        for number in range(5):
            await decisions.save_plan(session, "BTC", "BUY", 0.5, f"reason {number}")

        plans = await decisions.get_recent_plans(session, None, 3)

        assert [plan.reasoning for plan in plans] == ["reason 4", "reason 3", "reason 2"]

    async def test_plans_can_be_asked_for_by_symbol(self, decisions: Decisions, session: str) -> None:
        for symbol in ("BTC", "ETH", "BTC", "B"):
            await decisions.save_plan(session, symbol, "BUY", 0.5, WHY)

        assert [plan.symbol for plan in await decisions.get_recent_plans(session, "BTC")] == ["BTC", "BTC"]
        assert await decisions.get_recent_plans(session, "SOL") == []

    async def test_a_session_lists_so_many_plans_and_the_oldest_go(self, decisions: Decisions, session: str) -> None:
        for number in range(self.listed + 3):
            await decisions.save_plan(session, "BTC", "BUY", 0.5, f"reason {number}")

        plans = await decisions.get_recent_plans(session, limit=1000)

        assert [plan.reasoning for plan in plans] == [f"reason {number}" for number in range(self.listed + 2, 2, -1)]

    async def test_a_plan_that_has_gone_still_makes_the_same_one_a_duplicate(
        self, decisions: Decisions, session: str
    ) -> None:
        plan = await save_test_plan(decisions, session, reasoning="the first")
        for number in range(self.listed):
            await decisions.save_plan(session, "BTC", "BUY", 0.5, f"reason {number}")

        result = await decisions.save_if_new(session, "BTC", "BUY", 0.5, "the first")

        assert not result.saved
        assert result.plan.model_copy(update={"time_since_ms": None}) == plan

    async def test_a_plan_is_new_once(self, decisions: Decisions, session: str) -> None:
        first = await decisions.save_if_new(session, "BTC", "BUY", 0.75, WHY, "llm")
        second = await decisions.save_if_new(session, "BTC", "BUY", 0.25, WHY, "rules")

        assert (first.saved, first.time_since_ms, second.saved) == (True, 0, False)
        assert second.plan.plan_id == first.plan.plan_id
        assert (second.plan.confidence, second.plan.method) == (0.75, "llm")
        assert second.plan.time_since_ms == second.time_since_ms >= 0
        assert len(await decisions.get_recent_plans(session)) == 1

    async def test_of_racing_planners_one_saves(self, decisions: Decisions, session: str) -> None:
        results = await asyncio.gather(*(decisions.save_if_new(session, "BTC", "BUY", 0.5, WHY) for _ in range(RACERS)))

        assert sum(result.saved for result in results) == 1
        assert len({result.plan.plan_id for result in results}) == 1

    async def test_plans_saved_at_the_same_moment_are_each_saved_or_known_again(
        self, decisions: Decisions, session: str
    ) -> None:
        method = "by hand,\nin two lines"
        reasons = [f"reason {number % 30}" for number in range(60)]
        results = await asyncio.gather(
            *(decisions.save_if_new(session, "BTC", "BUY", 0.5, reason, method) for reason in reasons)
        )

        listed = {plan.plan_id: plan for plan in await decisions.get_recent_plans(session, limit=1000)}
        saved = [result.plan for result in results if result.saved]
        assert sorted(plan.reasoning for plan in saved) == sorted(set(reasons))
        assert len({plan.plan_id for plan in saved}) == 30
        assert set(listed) == set(sorted(plan.plan_id for plan in saved)[-self.listed :])
        for reason, result in zip(reasons, results, strict=True):
            assert (result.plan.reasoning, result.plan.method, result.plan.confidence) == (reason, method, 0.5)
            first = next(plan for plan in saved if plan.reasoning == reason)
            assert result.plan.plan_id == first.plan_id
        assert (await decisions.get_execution_stats(session)).duplicates_prevented == 30

    async def test_a_duplicate_is_told_with_its_age(self, decisions: Decisions, session: str, plan: PlanRecord) -> None:
        is_duplicate, same = await decisions.check_duplicate(session, "BTC", "BUY", WHY)

        assert is_duplicate
        assert same is not None
        assert same.time_since_ms is not None
        assert 0 <= same.time_since_ms < 300_000
        assert same.model_copy(update={"time_since_ms": None}) == plan

    async def test_another_symbol_action_or_reasoning_is_another_plan(
        self, decisions: Decisions, session: str, plan: PlanRecord
    ) -> None:
        assert plan.symbol == "BTC"
        for symbol, action, reasoning in (("ETH", "BUY", WHY), ("BTC", "SELL", WHY), ("BTC", "BUY", f"{WHY}.")):
            assert await decisions.check_duplicate(session, symbol, action, reasoning) == (False, None)

    async def test_plans_that_share_their_hash_are_no_duplicates(self, decisions: Decisions, session: str) -> None:
        one = await decisions.save_if_new(session, "A|B", "C", 0.5, "D")
        two = await decisions.save_if_new(session, "A", "B|C", 0.5, "D")

        assert one.plan.plan_hash == two.plan.plan_hash
        assert two.saved
        assert (await decisions.begin_execution(session, one.plan.plan_hash)).plan_id == two.plan.plan_id

    async def test_a_short_window_lets_the_same_plan_be_new_again(self, decisions: Decisions, session: str) -> None:
        await decisions.save_plan(session, "BTC", "BUY", 0.5, WHY)

        async def is_new() -> bool:
            return not (await decisions.check_duplicate(session, "BTC", "BUY", WHY, 0.02))[0]

        await eventually(is_new)
        assert (await decisions.save_if_new(session, "BTC", "BUY", 0.5, WHY, "", 0.02)).saved

    async def test_save_plan_saves_in_any_case(self, decisions: Decisions, session: str) -> None:
        hashes = {await decisions.save_plan(session, "BTC", "BUY", 0.5, WHY) for _ in range(2)}

        plans = await decisions.get_recent_plans(session)
        assert (len(hashes), len({plan.plan_id for plan in plans})) == (1, 2)

    async def test_sessions_know_nothing_of_each_other(
        self, decisions: Decisions, session: str, other_session: str, plan: PlanRecord
    ) -> None:
        assert await decisions.get_recent_plans(other_session) == []
        assert await decisions.check_duplicate(other_session, "BTC", "BUY", WHY) == (False, None)
        with pytest.raises(NotFoundError, match=other_session):
            await decisions.begin_execution(other_session, plan.plan_id)
        assert (await decisions.save_if_new(other_session, "BTC", "BUY", 0.5, WHY)).saved
        assert {session, other_session} <= set(await decisions.sessions())

    async def test_a_forgotten_session_is_as_new(self, decisions: Decisions, session: str, plan: PlanRecord) -> None:
        await execute_plan(decisions, session, plan)

        assert await decisions.erase(session) == 1

        assert session not in await decisions.sessions()
        assert await decisions.get_recent_plans(session) == []
        assert (await decisions.get_execution_stats(session)).total_executions == 0
        assert (await decisions.save_if_new(session, "BTC", "BUY", 0.5, WHY)).saved
        assert await decisions.erase(session) == 1
        assert await decisions.erase(session) == 0

    async def test_odd_texts_come_back_as_they_were(self, decisions: Decisions, session: str) -> None:
        odd = '"},"plan_id":"1","symbol":"X","action":"\\ {}[]%d\n\x00\x7f ü 漢 😀 |'
        saved = await decisions.save_if_new(session, odd, odd, 0.5, odd, odd)
        twice = await decisions.save_if_new(session, odd, odd, 0.5, odd, odd)

        assert await decisions.get_recent_plans(session, odd) == [saved.plan]
        assert twice.plan.model_copy(update={"time_since_ms": None}) == saved.plan
        record = await execute_plan(decisions, session, saved.plan)
        assert (record.symbol, record.action) == (odd, odd)
        stats = await decisions.get_execution_stats(session, odd)
        assert (stats.recent_executions, stats.duplicates_prevented) == ([record], 1)

    async def test_a_megabyte_of_reasoning_is_kept(self, decisions: Decisions, session: str) -> None:
        long = "because " * 131_072
        saved = await decisions.save_if_new(session, "BTC", "BUY", 0.5, long)

        assert (await decisions.get_recent_plans(session))[0].reasoning == long
        assert not (await decisions.save_if_new(session, "BTC", "BUY", 0.5, long)).saved
        assert (await decisions.begin_execution(session, saved.plan.plan_id)).started
