"""The decision log does what a few dictionaries would do: random calls by two hubs, compared with a small model."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, TypeVar

import fakeredis
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from support.example_budget import example_count

from sharedmem import (
    AlreadyExecutedError,
    ClaimLostError,
    ConflictError,
    Hub,
    NotFoundError,
    Settings,
    SharedMemoryError,
)
from sharedmem.clock import new_id
from sharedmem.decisions.decisions import Decisions
from sharedmem.decisions.validation import plan_hash
from sharedmem.testing import ManualClock, fake_hub

T = TypeVar("T")
KEPT, RECENT = 4, 20
SESSION = "desk"
LEASE_S = 100
CLIENTS = st.integers(0, 1)
SYMBOLS = st.sampled_from(["BTC", 'E"TH\\'])
REASONS = st.sampled_from(["up", "down", "news"])
WINDOWS_S = st.sampled_from([60, 300, 2_592_000])
STEPS_S = st.sampled_from([1, 50, 100, 250, 300, 86_400])
STATUSES = st.sampled_from(["success", "error", "failed", "unknown", "timeout"])
STATES = {"success": "succeeded", "error": "failed", "failed": "failed", "unknown": "unknown", "timeout": "unknown"}
FENCES = st.sampled_from(["its own", "an old one", "a future one"])
PICKS = st.integers(0, 5)


@dataclass
class Execution:
    """The execution of a plan: `ends_us` while it runs."""

    plan_id: str
    symbol: str
    state: str
    fence: int
    attempt: int = 1
    ends_us: int = 0
    told: tuple[str, str] = ("", "")
    older_fences: list[int] = field(default_factory=list)


@dataclass
class Model:
    """A session: its plans oldest first, what was planned when, and what was executed how."""

    plans: list[tuple[str, str, str]] = field(default_factory=list)  # id, symbol, reasoning
    newest: dict[tuple[str, str], str] = field(default_factory=dict)  # id by symbol and reasoning
    names: dict[str, str] = field(default_factory=dict)  # id by hash
    past_names: dict[str, str] = field(default_factory=dict)  # of evicted plans that were executed
    executions: dict[str, Execution] = field(default_factory=dict)
    finished: list[str] = field(default_factory=list)
    prevented: Counter[str] = field(default_factory=Counter)
    known: dict[str, tuple[str, str]] = field(default_factory=dict)  # symbol and hash of every plan there ever was

    def save(self, plan_id: str, symbol: str, reasoning: str) -> None:
        short = plan_hash(symbol, "BUY", reasoning)
        self.plans.append((plan_id, symbol, reasoning))
        self.newest[symbol, reasoning] = self.names[short] = plan_id
        self.known[plan_id] = (symbol, short)
        if len(self.plans) > KEPT:
            self.evict()

    def evict(self) -> None:
        plan_id, symbol, reasoning = self.plans.pop(0)
        short = plan_hash(symbol, "BUY", reasoning)
        if self.names[short] == plan_id:
            del self.names[short]
            if plan_id in self.executions:
                self.past_names[short] = plan_id

    def named(self, name: str) -> str | None:
        """The plan of a hash or an id, if it can be executed or was."""
        plan_id = self.names.get(name, self.past_names.get(name, "")) if len(name) == 8 else name
        is_there = plan_id in self.executions or any(plan_id == kept for kept, _, _ in self.plans)
        return plan_id if is_there else None

    def end(self, execution: Execution, status: str, order_id: str) -> None:
        execution.state, execution.told, execution.ends_us = STATES[status], (status, order_id), 0
        if execution.plan_id in self.finished:
            self.finished.remove(execution.plan_id)
        self.finished.insert(0, execution.plan_id)


class DecisionMachine(RuleBasedStateMachine):
    """Two hubs work on one session; each answer is the model's."""

    runner: asyncio.Runner
    hubs: list[Hub]
    clock: ManualClock | None

    def __init__(self) -> None:
        super().__init__()
        namespace = f"model-{new_id(8)}"
        self.stores = [hub.store(namespace) for hub in self.hubs]
        self.logs: list[Decisions] = [store.decisions for store in self.stores]
        self.model = Model()

    def run(self, call: Awaitable[T]) -> T:
        async def awaited() -> T:
            return await call

        return self.runner.run(awaited())

    @property
    def now_us(self) -> int:
        # Without a clock to turn no time passes that a window or lease would notice.
        if self.clock is None:
            return max(map(int, self.model.known), default=0)
        return round(self.clock.now().timestamp() * 1_000_000)

    def state(self, execution: Execution) -> str:
        is_over = execution.state == "running" and execution.ends_us <= self.now_us
        return "orphaned" if is_over else execution.state

    def a_name(self, pick: int, by_hash: bool) -> str:
        plan_id = sorted(self.model.known)[-1 - pick % len(self.model.known)]
        return self.model.known[plan_id][1] if by_hash else plan_id

    def a_fence(self, execution: Execution | None, choice: str) -> int:
        if execution is None or choice == "a future one":
            return (execution.fence if execution else 0) + 1
        return execution.fence if choice == "its own" else [execution.fence - 1, *execution.older_fences][-1]

    def same_newer(self, symbol: str, reasoning: str, window_s: int) -> str | None:
        plan_id = self.model.newest.get((symbol, reasoning))
        return plan_id if plan_id and self.now_us - int(plan_id) < window_s * 1_000_000 else None

    # -- plans

    @rule(client=CLIENTS, symbol=SYMBOLS, reasoning=REASONS)
    def save(self, client: int, symbol: str, reasoning: str) -> None:
        short = self.run(self.logs[client].save_plan(SESSION, symbol, "BUY", 0.5, reasoning))
        plan = self.run(self.logs[1 - client].get_recent_plans(SESSION, None, 1))[0]
        assert short == plan.plan_hash == plan_hash(symbol, "BUY", reasoning)
        assert plan.plan_id > max(self.model.known, default="")
        self.model.save(plan.plan_id, symbol, reasoning)

    @rule(client=CLIENTS, symbol=SYMBOLS, reasoning=REASONS, window_s=WINDOWS_S)
    def save_if_new(self, client: int, symbol: str, reasoning: str, window_s: int) -> None:
        same = self.same_newer(symbol, reasoning, window_s)
        result = self.run(self.logs[client].save_if_new(SESSION, symbol, "BUY", 0.5, reasoning, "", window_s))
        assert result.saved is (same is None)
        if same is None:
            self.model.save(result.plan.plan_id, symbol, reasoning)
        else:
            assert result.plan.plan_id == same
            self.model.prevented[symbol] += 1

    @rule(client=CLIENTS, symbol=SYMBOLS, reasoning=REASONS, window_s=WINDOWS_S)
    def check_duplicate(self, client: int, symbol: str, reasoning: str, window_s: int) -> None:
        same = self.same_newer(symbol, reasoning, window_s)
        is_same, plan = self.run(self.logs[client].check_duplicate(SESSION, symbol, "BUY", reasoning, window_s))
        assert (is_same, plan and plan.plan_id) == (same is not None, same)

    @rule(client=CLIENTS, symbol=st.none() | SYMBOLS, limit=st.integers(1, KEPT + 1))
    def get_recent_plans(self, client: int, symbol: str | None, limit: int) -> None:
        found = self.run(self.logs[client].get_recent_plans(SESSION, symbol, limit))
        wanted = [plan for plan in reversed(self.model.plans) if symbol in {None, plan[1]}][:limit]
        assert [(plan.plan_id, plan.symbol, plan.reasoning) for plan in found] == wanted

    # -- executions

    @precondition(lambda self: self.model.known)
    @rule(client=CLIENTS, pick=PICKS, by_hash=st.booleans(), policy=st.sampled_from(["never", "takeover"]))
    def begin(self, client: int, pick: int, by_hash: bool, policy: Any) -> None:
        name = self.a_name(pick, by_hash)
        plan_id = self.model.named(name)
        call = self.logs[client].begin_execution(SESSION, name, lease=LEASE_S, policy=policy)
        if plan_id is None:
            return self.refused(call, NotFoundError)
        claim = self.run(call)
        held = self.model.executions.get(plan_id)
        assert claim.plan_id == plan_id
        if held and not (self.state(held) == "orphaned" and policy == "takeover"):
            assert (claim.started, claim.state, claim.attempt) == (False, self.state(held), held.attempt)
            self.model.prevented[held.symbol] += 1
            return None
        assert (claim.started, claim.attempt) == (True, held.attempt + 1 if held else 1)
        older = [*held.older_fences, held.fence] if held else []
        assert claim.fence > max(older, default=0)
        ends_us = self.now_us + LEASE_S * 1_000_000
        symbol = self.model.known[plan_id][0]
        self.model.executions[plan_id] = Execution(
            plan_id, symbol, "running", claim.fence, claim.attempt, ends_us, older_fences=older
        )
        return None

    @precondition(lambda self: self.model.known)
    @rule(client=CLIENTS, pick=PICKS, choice=FENCES)
    def renew(self, client: int, pick: int, choice: str) -> None:
        name = self.a_name(pick, by_hash=False)
        plan_id = self.model.named(name)
        held = self.model.executions.get(plan_id or "")
        fence = self.a_fence(held, choice)
        call = self.logs[client].renew(SESSION, name, fence, lease=LEASE_S)
        if plan_id is None:
            return self.refused(call, NotFoundError)
        if held is None or held.fence != fence or self.state(held) != "running":
            return self.refused(call, ClaimLostError)
        assert self.run(call).attempt == held.attempt
        held.ends_us = self.now_us + LEASE_S * 1_000_000
        return None

    @precondition(lambda self: self.model.known)
    @rule(client=CLIENTS, pick=PICKS, choice=FENCES, status=STATUSES, order_id=st.sampled_from(["", "o-1"]))
    def finish(self, client: int, pick: int, choice: str, status: str, order_id: str) -> None:
        name = self.a_name(pick, by_hash=False)
        held = self.model.executions.get(name)
        fence = self.a_fence(held, choice)
        call = self.logs[client].finish(SESSION, name, fence, status=status, order_id=order_id)
        if self.model.named(name) is None:
            return self.refused(call, NotFoundError)
        if held is None or held.fence != fence:
            return self.refused(call, ClaimLostError)
        return self.ended(call, held, status, order_id)

    @precondition(lambda self: self.model.known)
    @rule(client=CLIENTS, pick=PICKS, by_hash=st.booleans(), status=STATUSES, choice=st.none() | FENCES)
    def mark(self, client: int, pick: int, by_hash: bool, status: str, choice: str | None) -> None:
        name = self.a_name(pick, by_hash)
        plan_id = self.model.named(name)
        held = self.model.executions.get(plan_id or "")
        fence = None if choice is None else self.a_fence(held, choice)
        call = self.logs[client].mark_executed(SESSION, name, "SOL", "SELL", 0.5, status, True, fence=fence)
        if plan_id is None:
            return self.refused(call, NotFoundError)
        if held is None and fence is None:
            record = self.run(call)
            self.model.executions[plan_id] = marked = Execution(plan_id, "SOL", record.state, record.fence)
            return self.model.end(marked, status, "")
        is_free = fence is None and held is not None and held.state != "running"
        if held is None or not (is_free or held.fence == fence):
            return self.refused(call, ClaimLostError)
        if held.state == "running":
            held.symbol = "SOL"
        return self.ended(call, held, status, "")

    @precondition(lambda self: self.model.known)
    @rule(client=CLIENTS, pick=PICKS, by_hash=st.booleans(), status=STATUSES)
    def resolve(self, client: int, pick: int, by_hash: bool, status: str) -> None:
        name = self.a_name(pick, by_hash)
        held = self.model.executions.get(self.model.named(name) or "")
        call = self.logs[client].resolve(SESSION, name, status=status)
        if held is None:
            return self.refused(call, NotFoundError)
        if self.state(held) == "running":
            return self.refused(call, ConflictError)
        if self.state(held) != "orphaned" and (held.state != "unknown" or held.told == (status, "")):
            return self.ended(call, held, status, "")
        record = self.run(call)
        assert record.fence > held.fence
        held.older_fences.append(held.fence)
        held.fence = record.fence
        return self.model.end(held, status, "")

    def ended(self, call: Awaitable[Any], held: Execution, status: str, order_id: str) -> None:
        """An end told of an execution: it is recorded, or was so already, or it had another one."""
        if held.state != "running" and held.told != (status, order_id):
            return self.refused(call, AlreadyExecutedError)
        record = self.run(call)
        assert (record.state, record.order_id, record.fence) == (STATES[status], order_id, held.fence)
        return self.model.end(held, status, order_id) if held.state == "running" else None

    def refused(self, call: Awaitable[object], why: type[Exception]) -> None:
        with pytest.raises(why):
            self.run(call)

    @precondition(lambda self: self.clock is not None)
    @rule(seconds=STEPS_S)
    def pass_time(self, seconds: int) -> None:
        assert self.clock is not None
        self.clock.advance(seconds)

    # -- always

    @invariant()
    def everyone_counts_as_the_model_does(self) -> None:
        for symbol in (None, "BTC", 'E"TH\\', "SOL"):
            ended = [self.model.executions[plan_id] for plan_id in self.model.finished]
            mine = [execution for execution in ended if symbol in {None, execution.symbol}]
            states = Counter(execution.state for execution in mine)
            stats = self.run(self.logs[0].get_execution_stats(SESSION, symbol))
            assert stats.total_executions == len(mine)
            assert (stats.successful_executions, stats.failed_executions) == (states["succeeded"], states["failed"])
            assert stats.duplicates_prevented == (
                self.model.prevented.total() if symbol is None else self.model.prevented[symbol]
            )
            assert [record.plan_id for record in stats.recent_executions] == [
                execution.plan_id for execution in mine[:RECENT]
            ]

    @invariant()
    def every_execution_is_in_its_state(self) -> None:
        for plan_id in self.model.known:
            held = self.model.executions.get(plan_id)
            call = self.logs[1].check_executed(SESSION, plan_id)
            if self.model.named(plan_id) is None:
                self.refused(call, NotFoundError)
                continue
            is_executed, record = self.run(call)
            assert is_executed is (held is not None)
            if held is not None and record is not None:
                assert (record.state, record.fence, record.attempt) == (self.state(held), held.fence, held.attempt)

    def teardown(self) -> None:
        try:
            self.what_is_open_can_be_found()
        finally:
            self.run(self.stores[0].clear())

    def what_is_open_can_be_found(self) -> None:
        waiting = self.run(self.logs[0].get_open_executions(SESSION))
        held = self.model.executions.values()
        wanted = {execution.plan_id: self.state(execution) for execution in held}
        done = {"succeeded", "failed"}
        assert {record.plan_id: record.state for record in waiting} == {
            plan_id: state for plan_id, state in wanted.items() if state not in done
        }


@pytest.fixture(params=["fakeredis", "redis"])
def means(request: pytest.FixtureRequest, settings: Settings) -> Iterator[dict[str, Any]]:
    """Two hubs of one server in an event loop of their own, and the clock that turns it if it can be turned."""
    few = settings.replace(plans_per_session=KEPT)
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        clock = None
        opened: list[Any]
        if request.param == "fakeredis":
            server, clock = fakeredis.FakeServer(), ManualClock()
            opened = [fake_hub(clock=clock, settings=few, server=server) for _ in range(2)]
        else:
            opened = [Hub.open(request.getfixturevalue("redis_url"), settings=few) for _ in range(2)]
        hubs = [runner.run(_entered(stack, hub)) for hub in opened]
        yield {"runner": runner, "hubs": hubs, "clock": clock}
        runner.run(_left(stack))


async def _entered(stack: AsyncExitStack, hub: Any) -> Hub:
    entered: Hub = await stack.enter_async_context(hub)
    return entered


async def _left(stack: AsyncExitStack) -> None:
    await stack.aclose()


def run(machine: type[DecisionMachine], means: dict[str, Any], **effort: Any) -> None:
    quiet = list(HealthCheck)  # a server is slower than hypothesis likes
    bound: Any = type("Bound", (machine,), means)
    run_state_machine_as_test(bound, settings=settings(deadline=None, suppress_health_check=quiet, **effort))


def test_the_decision_log_is_a_few_dictionaries_that_agents_share(means: dict[str, Any]) -> None:
    run(DecisionMachine, means, max_examples=example_count(7, thorough=20), stateful_step_count=30)


def test_the_model_notices_a_wrong_answer(means: dict[str, Any]) -> None:
    class Forgetful(DecisionMachine):
        @rule(symbol=SYMBOLS, reasoning=REASONS)
        def save_behind_its_back(self, symbol: str, reasoning: str) -> None:
            self.run(self.logs[0].save_plan(SESSION, symbol, "BUY", 0.5, reasoning))

    no_shrinking = {"phases": (Phase.generate,), "database": None, "report_multiple_bugs": False}
    with pytest.raises((AssertionError, SharedMemoryError, pytest.fail.Exception)):
        run(Forgetful, means, max_examples=50, stateful_step_count=30, **no_shrinking)
