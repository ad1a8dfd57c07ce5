"""`Context`: what agents do is the same over the library and over gRPC."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable

import pytest
from support.backends import OnFakeredis

from sharedmem import Context, Hub, InvalidError, NotFoundError
from sharedmem.actor import AgentMemory
from sharedmem.clock import new_id
from sharedmem.decisions.decisions import Decisions
from sharedmem.faces.auth import Bearer
from sharedmem.faces.grpc import GrpcAddress, MemoryClient, MemoryServer

WHY = "Strong bullish trend detected"
RACERS = 16


class ContextSuite:
    """A planner and executors; the backend gives `memory` in the namespace `team`."""

    @pytest.fixture
    def team(self) -> str:
        return f"team-{new_id(8)}"

    @pytest.fixture
    def planner(self, memory: AgentMemory) -> Context:
        return Context("planner-btc", memory, session="btc")

    @pytest.fixture
    def executor(self, memory: AgentMemory) -> Context:
        return Context("executor-1", memory, session="btc")

    async def test_a_saved_plan_is_a_duplicate_for_a_while(self, planner: Context) -> None:
        assert await planner.check_duplicate_plan("BTC", "BUY", WHY, time_window_sec=300) == (False, None)
        plan_hash = await planner.save_plan("BTC", "BUY", 0.85, WHY, method="llm")

        is_duplicate, plan = await planner.check_duplicate_plan(symbol="BTC", action="BUY", reasoning=WHY)

        assert is_duplicate
        assert plan is not None
        assert (plan["plan_hash"], plan["confidence"], plan["method"]) == (plan_hash, 0.85, "llm")
        assert plan["time_since_ms"] >= 0

    async def test_of_racing_planners_one_saves(self, planner: Context) -> None:
        results = await asyncio.gather(*(planner.save_plan_if_new("BTC", "BUY", 0.5, WHY) for _ in range(RACERS)))

        assert sum(saved for saved, _ in results) == 1
        assert len({plan["plan_id"] for _, plan in results}) == 1
        assert len(await planner.get_recent_plans("BTC")) == 1

    async def test_recent_plans_are_dictionaries_newest_first(self, planner: Context) -> None:
        for symbol in ("BTC", "ETH", "BTC"):
            await planner.save_plan(symbol, "BUY", 0.5, f"{WHY} in {symbol}")

        assert [plan["symbol"] for plan in await planner.get_recent_plans()] == ["BTC", "ETH", "BTC"]
        (newest,) = await planner.get_recent_plans("BTC", limit=1)
        assert newest["reasoning"] == f"{WHY} in BTC"
        assert {"plan_id", "session_id", "timestamp_ms"} <= newest.keys()

    async def test_a_plan_is_executed_by_one_executor(self, planner: Context, executor: Context) -> None:
        plan_hash = await planner.save_plan("BTC", "BUY", 0.85, WHY)
        assert await executor.check_plan_executed(plan_hash) == (False, None)

        claims = await asyncio.gather(*(executor.begin_execution(plan_hash) for _ in range(RACERS)))
        (claim,) = (claim for claim in claims if claim["started"])
        renewed = await executor.renew_execution(plan_hash, claim["fence"], lease=60)
        record = await executor.mark_plan_executed(
            plan_hash=plan_hash,
            symbol="BTC",
            action="BUY",
            confidence=0.85,
            status="success",
            executed=True,
            order_id="order-123",
            order_size_usdt=100.0,
            fence=claim["fence"],
        )

        assert renewed["remaining_ms"] > 30_000
        assert await planner.check_plan_executed(plan_hash) == (True, record)
        assert (record["state"], record["order_id"]) == ("succeeded", "order-123")

    async def test_statistics_count_what_was_executed(self, planner: Context, executor: Context) -> None:
        assert (await planner.get_execution_stats("BTC"))["win_rate"] == 0.0
        for number, status in enumerate(("success", "error")):
            plan_hash = await planner.save_plan("BTC", "BUY", 0.5, f"{WHY} {number}")
            await executor.mark_plan_executed(plan_hash, "BTC", "BUY", 0.5, status, status == "success")

        stats = await planner.get_execution_stats("BTC")

        assert (stats["total_executions"], stats["successful_executions"], stats["win_rate"]) == (2, 1, 0.5)
        assert [record["status"] for record in stats["recent_executions"]] == ["error", "success"]

    async def test_sessions_know_nothing_of_each_other(self, memory: AgentMemory, planner: Context) -> None:
        plan_hash = await planner.save_plan("BTC", "BUY", 0.5, WHY)
        elsewhere = Context("planner-eth", memory, session="eth")

        assert await elsewhere.get_recent_plans() == []
        assert await elsewhere.check_duplicate_plan("BTC", "BUY", WHY) == (False, None)
        assert plan_hash

    async def test_agents_share_a_session_unless_told_otherwise(self, memory: AgentMemory) -> None:
        await Context("planner", memory).save_plan("BTC", "BUY", 0.5, WHY)

        assert len(await Context("executor", memory).get_recent_plans()) == 1

    async def test_an_event_tells_whose_it_is(self, planner: Context, hub: Hub, team: str) -> None:
        assert await planner.emit_event("executor.plan", {"plan_hash": "c18188c2"}) == 0
        async with hub.store(team).subscription("executor.plan") as messages:
            heard = await planner.emit_event(topic="executor.plan", data={"plan_hash": "c18188c2"})
            message = await anext(messages)

        assert heard == 1
        assert message.value == {
            "agent_id": "planner-btc",
            "topic": "executor.plan",
            "data": {"plan_hash": "c18188c2"},
        }

    async def test_any_operation_can_be_called_by_its_name(self, planner: Context) -> None:
        await planner.call("value.write", key="limits", value={"BTC": 0.5})
        await planner.call("queue.put", queue="jobs", payload=17)

        grant = await planner.call("lease.acquire", name="index")
        tasks = await planner.call("queue.peek", queue="jobs")

        assert await planner.call("value.read", key="limits") == {"BTC": 0.5}
        assert await planner.call("lease.release", name="index", id=grant["id"]) is True
        assert [task["payload"] for task in tasks] == [17]
        with pytest.raises(NotFoundError, match=r"value\.wrte"):
            await planner.call("value.wrte", key="limits")

    async def test_bad_input_is_refused(self, planner: Context, memory: AgentMemory) -> None:
        with pytest.raises(InvalidError, match="confidence"):
            await planner.save_plan("BTC", "BUY", 1.5, WHY)
        with pytest.raises(InvalidError, match="agent_id"):
            Context("", memory)

    async def test_it_says_who_it_is(self, planner: Context) -> None:
        assert (planner.agent_id, planner.session) == ("planner-btc", "btc")
        assert repr(planner) == "<Context of planner-btc in session 'btc'>"


@pytest.mark.parametrize(
    ("call", "of_the_log"),
    [
        (Context.save_plan, Decisions.save_plan),
        (Context.save_plan_if_new, Decisions.save_if_new),
        (Context.get_recent_plans, Decisions.get_recent_plans),
        (Context.check_duplicate_plan, Decisions.check_duplicate),
        (Context.begin_execution, Decisions.begin_execution),
        (Context.renew_execution, Decisions.renew),
        (Context.mark_plan_executed, Decisions.mark_executed),
        (Context.check_plan_executed, Decisions.check_executed),
        (Context.get_execution_stats, Decisions.get_execution_stats),
    ],
    ids=lambda function: function.__qualname__,
)
def test_a_call_has_all_arguments_of_the_log_but_the_session(
    call: Callable[..., object], of_the_log: Callable[..., object]
) -> None:
    def arguments(function: Callable[..., object]) -> list[tuple[str, object, object]]:
        found = inspect.signature(function).parameters.values()
        return [(one.name, one.kind, one.default) for one in found if one.name != "session"]

    assert arguments(call) == arguments(of_the_log)


class _OverTheLibrary(ContextSuite):
    @pytest.fixture
    async def memory(self, hub: Hub, team: str) -> AsyncIterator[AgentMemory]:
        yield hub.store(team, actor="ada")
        await hub.store(team).clear()


class _OverGrpc(ContextSuite):
    @pytest.fixture
    async def memory(self, hub: Hub, team: str) -> AsyncIterator[AgentMemory]:
        async with (
            MemoryServer(hub, GrpcAddress(port=0), everyone=Bearer.of(team, actor="ada"), grace_s=1) as server,
            MemoryClient(server.target) as memory,
        ):
            yield memory
        await hub.store(team).clear()


class TestContextOverTheLibrary(_OverTheLibrary):
    pass


class TestContextOverTheLibraryOnFakeredis(OnFakeredis, _OverTheLibrary):
    pass


class TestContextOverGrpc(_OverGrpc):
    pass


class TestContextOverGrpcOnFakeredis(OnFakeredis, _OverGrpc):
    pass
