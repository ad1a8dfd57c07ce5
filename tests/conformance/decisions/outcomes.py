"""Statistics, and what is refused before anything changes."""
# a test's name is its sentence

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from math import inf, nan

import pytest

from conformance.decisions.base import WHY, DecisionFixtures, execute_plan, save_test_plan
from sharedmem.decisions.decisions import Decisions
from sharedmem.errors import InvalidError, NotFoundError
from sharedmem.models import ExecutionStats, PlanRecord

_RECENT = 20
_LONG = "x" * 257


class StatsTests(DecisionFixtures):
    """How executions went."""

    async def test_a_session_without_executions_has_zeros(self, decisions: Decisions, session: str) -> None:
        stats = await decisions.get_execution_stats(session, "BTC")

        assert stats == ExecutionStats(
            total_executions=0,
            successful_executions=0,
            failed_executions=0,
            win_rate=0.0,
            duplicates_prevented=0,
            recent_executions=[],
        )

    async def test_statistics_are_those_of_a_recount(self, decisions: Decisions, session: str) -> None:
        ends = [("BTC", "success"), ("ETH", "error"), ("BTC", "failed"), ("BTC", "timeout"), ("ETH", "success")]
        records = []
        for number, (symbol, status) in enumerate(ends):
            plan = await save_test_plan(decisions, session, symbol, f"reason {number}")
            records.append(await execute_plan(decisions, session, plan, status))

        for asked in (None, "BTC", "ETH"):
            mine = [record for record in reversed(records) if asked in {None, record.symbol}]
            states = Counter(record.state for record in mine)
            stats = await decisions.get_execution_stats(session, asked)
            assert stats.total_executions == len(mine)
            assert (stats.successful_executions, stats.failed_executions) == (states["succeeded"], states["failed"])
            assert stats.win_rate == pytest.approx(states["succeeded"] / len(mine))
            assert stats.recent_executions == mine

    async def test_the_last_twenty_executions_are_shown(self, decisions: Decisions, session: str) -> None:
        for number in range(_RECENT + 2):
            await execute_plan(decisions, session, await save_test_plan(decisions, session, "BTC", f"reason {number}"))

        stats = await decisions.get_execution_stats(session)

        assert (stats.total_executions, len(stats.recent_executions)) == (_RECENT + 2, _RECENT)
        ids = [int(record.plan_id) for record in stats.recent_executions]
        assert ids == sorted(ids, reverse=True)

    async def test_prevented_duplicates_are_counted(self, decisions: Decisions, session: str, plan: PlanRecord) -> None:
        for _ in range(2):
            await decisions.save_if_new(session, "BTC", "BUY", 0.5, WHY)
        for _ in range(3):
            await decisions.begin_execution(session, plan.plan_id)
        await decisions.check_duplicate(session, "BTC", "BUY", WHY)

        assert (await decisions.get_execution_stats(session)).duplicates_prevented == 4
        assert (await decisions.get_execution_stats(session, "BTC")).duplicates_prevented == 4
        assert (await decisions.get_execution_stats(session, "ETH")).duplicates_prevented == 0

    async def test_what_still_runs_is_not_counted(self, decisions: Decisions, session: str, plan: PlanRecord) -> None:
        await decisions.begin_execution(session, plan.plan_id)

        stats = await decisions.get_execution_stats(session)

        assert (stats.total_executions, stats.recent_executions) == (0, [])


Call = Callable[[Decisions, str, str], Awaitable[object]]
_REFUSED: dict[str, tuple[str, Call]] = {
    "confidence above one": ("confidence", lambda d, s, _: d.save_plan(s, "BTC", "BUY", 1.01, WHY)),
    "confidence below zero": ("confidence", lambda d, s, _: d.save_plan(s, "BTC", "BUY", -0.5, WHY)),
    "confidence not a number": ("confidence", lambda d, s, _: d.save_if_new(s, "BTC", "BUY", nan, WHY)),
    "symbol empty": ("symbol", lambda d, s, _: d.save_plan(s, "", "BUY", 0.5, WHY)),
    "symbol blank": ("symbol", lambda d, s, _: d.save_if_new(s, " ", "BUY", 0.5, WHY)),
    "symbol too long": ("symbol", lambda d, s, _: d.save_plan(s, _LONG, "BUY", 0.5, WHY)),
    "action empty": ("action", lambda d, s, _: d.check_duplicate(s, "BTC", "", WHY)),
    "method too long": ("method", lambda d, s, _: d.save_plan(s, "BTC", "BUY", 0.5, WHY, _LONG)),
    "reasoning too long": ("reasoning", lambda d, s, _: d.save_plan(s, "BTC", "BUY", 0.5, "y" * 1_048_577)),
    "window of nothing": ("time_window_sec", lambda d, s, _: d.check_duplicate(s, "BTC", "BUY", WHY, 0)),
    "window negative": ("time_window_sec", lambda d, s, _: d.save_if_new(s, "BTC", "BUY", 0.5, WHY, "", -1)),
    "window of months": ("time_window_sec", lambda d, s, _: d.check_duplicate(s, "BTC", "BUY", WHY, 2_592_001)),
    "limit zero": ("limit", lambda d, s, _: d.get_recent_plans(s, None, 0)),
    "limit too high": ("limit", lambda d, s, _: d.get_recent_plans(s, None, 1001)),
    "session of two parts": ("session", lambda d, _, __: d.save_plan("a:b", "BTC", "BUY", 0.5, WHY)),
    "session with braces": ("session", lambda d, _, __: d.begin_execution("a{b}", "00000000")),
    "session empty": ("session", lambda d, _, __: d.get_execution_stats("")),
    "status unheard of": ("status", lambda d, s, p: d.finish(s, p, 1, status="won")),
    "order size infinite": (
        "order_size_usdt",
        lambda d, s, p: d.mark_executed(s, p, "BTC", "BUY", 0.5, "success", True, "", inf),
    ),
    "order size negative": ("order_size_usdt", lambda d, s, p: d.finish(s, p, 1, status="error", order_size_usdt=-1)),
    "plan empty": ("plan_hash", lambda d, s, _: d.check_executed(s, "")),
    "fence of nothing": ("fence", lambda d, s, p: d.renew(s, p, 0)),
    "lease of nothing": ("lease", lambda d, s, p: d.begin_execution(s, p, lease=0)),
    "policy unheard of": ("policy", lambda d, s, p: d.begin_execution(s, p, policy="always")),  # type: ignore[arg-type]  # that is the test
}
_UNKNOWN: dict[str, Call] = {
    "begin": lambda d, s, p: d.begin_execution(s, p),
    "renew": lambda d, s, p: d.renew(s, p, 1),
    "finish": lambda d, s, p: d.finish(s, p, 1, status="success"),
    "mark": lambda d, s, p: d.mark_executed(s, p, "BTC", "BUY", 0.5, "success", True),
    "resolve": lambda d, s, p: d.resolve(s, p, status="success"),
    "check": lambda d, s, p: d.check_executed(s, p),
}


class RefusalTests(DecisionFixtures):
    """Duplicates that were refused."""

    async def test_refused_plans_and_executions_are_listed_newest_first(
        self, decisions: Decisions, session: str
    ) -> None:
        result = await decisions.save_if_new(session, "BTC \u2028", "BUY", 0.5, WHY)
        await decisions.save_if_new(session, "BTC \u2028", "BUY", 0.9, WHY)
        await decisions.begin_execution(session, result.plan.plan_id)
        await decisions.begin_execution(session, result.plan.plan_id)

        refused = await decisions.get_refusals(session)

        assert [(one.what, one.plan_id, one.symbol) for one in refused] == [
            ("execution", result.plan.plan_id, "BTC \u2028"),
            ("plan", result.plan.plan_id, "BTC \u2028"),
        ]
        assert refused[0].timestamp_ms >= refused[1].timestamp_ms >= result.plan.timestamp_ms
        assert (await decisions.get_execution_stats(session)).duplicates_prevented == 2

    async def test_the_newest_fifty_are_kept(self, decisions: Decisions, session: str) -> None:
        for _ in range(53):
            await decisions.save_if_new(session, "BTC", "BUY", 0.5, WHY)

        assert len(await decisions.get_refusals(session)) == 50
        assert (await decisions.get_execution_stats(session)).duplicates_prevented == 52

    async def test_a_session_that_is_erased_has_none(self, decisions: Decisions, session: str) -> None:
        for _ in range(2):
            await decisions.save_if_new(session, "BTC", "BUY", 0.5, WHY)
        await decisions.erase(session)

        assert await decisions.get_refusals(session) == []


class DecisionInputTests(DecisionFixtures):
    """What is refused changes nothing."""

    @pytest.mark.parametrize("case", list(_REFUSED))
    async def test_bad_input_is_refused_by_its_name(
        self, decisions: Decisions, session: str, plan: PlanRecord, case: str
    ) -> None:
        field, call = _REFUSED[case]

        with pytest.raises(InvalidError, match=f"^{field} "):
            await call(decisions, session, plan.plan_id)

        assert await decisions.get_recent_plans(session) == [plan]
        assert await decisions.check_executed(session, plan.plan_id) == (False, None)

    @pytest.mark.parametrize("name", ["deadbeef", "1795200000000000", "nonsense", "x"])
    @pytest.mark.parametrize("verb", list(_UNKNOWN))
    async def test_a_plan_that_is_not_there_is_told_as_missing(
        self, decisions: Decisions, session: str, verb: str, name: str
    ) -> None:
        with pytest.raises(NotFoundError, match=name):
            await _UNKNOWN[verb](decisions, session, name)

        assert session not in await decisions.sessions()

    async def test_an_error_too_long_to_keep_does_not_stand_in_the_way(
        self, decisions: Decisions, session: str, plan: PlanRecord
    ) -> None:
        claim = await decisions.begin_execution(session, plan.plan_id)

        record = await decisions.finish(session, plan.plan_id, claim.fence, status="error", error="e" * 100_000)

        assert record.error == "e" * 4000
