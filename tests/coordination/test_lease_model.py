"""Locks, semaphores and read/write locks do what a small model says: random takers, waiters, leavers, and time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import fakeredis
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test
from support.example_budget import example_count

from sharedmem import Hub, Lease, LockHeldError, LockLostError, Settings, SharedMemoryError, SharedMemoryStore
from sharedmem.clock import new_id
from sharedmem.testing import ManualClock, connect_to_fake

LEASE_S, RENEWAL_S, MARGIN_S = 30.0, 10.0, 1.0
ALL = 1_000_000


class Way(NamedTuple):
    """A way to take something: how much of what there is."""

    kind: str
    capacity: int
    weight: int


WAYS = (Way("lock", 1, 1), Way("semaphore", 2, 1), Way("rwlock", ALL, 1), Way("rwlock", ALL, ALL))
CLIENTS = st.integers(0, 1)
each_way = st.sampled_from(WAYS)


@dataclass(eq=False)
class Agent:
    """A task that takes something and keeps it until it is told to leave, and what the model says of it."""

    way: Way
    renewed_at: float = 0.0
    leave: asyncio.Event = field(default_factory=asyncio.Event)
    lease: Lease | None = None
    task: asyncio.Task[None] | None = None

    def has_left(self, seconds: float) -> bool:
        return self.lease is not None and self.lease.remaining == pytest.approx(seconds)

    async def run(self, store: SharedMemoryStore, wait: float | None) -> None:
        kind, capacity, weight = self.way
        rwlock = store.rwlock("it")
        blocks = {
            "lock": lambda: store.lock("it", lease=LEASE_S, wait=wait),
            "semaphore": lambda: store.semaphore("it", capacity, lease=LEASE_S, wait=wait),
            "rwlock": lambda: (rwlock.writing if weight == ALL else rwlock.reading)(lease=LEASE_S, wait=wait),
        }
        async with blocks[kind]() as self.lease:
            await self.leave.wait()


class Model:
    """Who holds what and who waits: first come, first served."""

    def __init__(self) -> None:
        self.holding: list[Agent] = []
        self.line: list[Agent] = []

    def fits(self, agent: Agent) -> bool:
        kind, capacity, weight = agent.way
        return sum(other.way.weight for other in self.holding if other.way.kind == kind) + weight <= capacity

    def may_come(self, agent: Agent) -> bool:
        return self.fits(agent) and all(other.way.kind != agent.way.kind for other in self.line)

    def let_in(self, now: float) -> None:
        for agent in list(self.line):
            before = self.line[: self.line.index(agent)]
            if self.fits(agent) and all(other.way.kind != agent.way.kind for other in before):
                self.line.remove(agent)
                self.hold(agent, now)

    def hold(self, agent: Agent, now: float) -> None:
        agent.renewed_at = now
        self.holding.append(agent)

    def pass_time(self, now: float) -> list[Agent]:
        """The holders that have lost their lease."""
        lost = [agent for agent in self.holding if now - agent.renewed_at >= LEASE_S - MARGIN_S]
        self.holding = [agent for agent in self.holding if agent not in lost]
        for agent in self.holding:
            if now - agent.renewed_at >= RENEWAL_S:
                agent.renewed_at = now
        return lost


class LeaseMachine(RuleBasedStateMachine):
    """Two hubs, whose agents take and leave; after each step exactly those hold it whom the model names."""

    open_hub: Callable[[], Hub]
    clock: ManualClock | None
    patience_s = 10.0

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.model = Model()
        self.tokens = [0]
        self.agents: list[Agent] = []
        self.stack = AsyncExitStack()
        self.stores = self.do(self.opened())

    def do(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(coroutine)

    async def opened(self) -> list[SharedMemoryStore]:
        namespace = f"model-{new_id(8)}"
        hubs = [await self.stack.enter_async_context(type(self).open_hub()) for _ in range(2)]
        return [hub.store(namespace, actor=f"agent-{number}") for number, hub in enumerate(hubs)]

    def now(self) -> float:
        return self.clock.monotonic() if self.clock else 0.0

    def start(self, agent: Agent, client: int, *, wait: float | None) -> None:
        self.agents.append(agent)
        agent.task = asyncio.create_task(agent.run(self.stores[client], wait))

    @rule(client=CLIENTS, way=each_way)
    def take(self, client: int, way: Way) -> None:
        self.do(self.taken(client, Agent(way)))

    async def taken(self, client: int, agent: Agent) -> None:
        may_come = self.model.may_come(agent)
        self.start(agent, client, wait=0)
        await until(lambda: agent.lease is not None or (agent.task is not None and agent.task.done()))
        assert (agent.lease is not None) is may_come
        if agent.lease is not None:
            self.model.hold(agent, self.now())
            self.note_token(agent)
        else:
            assert agent.task is not None
            assert isinstance(agent.task.exception(), LockHeldError)

    @rule(client=CLIENTS, way=each_way)
    def wait(self, client: int, way: Way) -> None:
        self.do(self.waiting(client, Agent(way)))

    async def waiting(self, client: int, agent: Agent) -> None:
        self.model.line.append(agent)
        self.start(agent, client, wait=None)
        await self.settle()

    @precondition(lambda self: self.model.holding)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        agent = data.draw(st.sampled_from(self.model.holding), label="who leaves")
        self.model.holding.remove(agent)
        agent.leave.set()
        self.do(self.ended(agent))

    async def ended(self, agent: Agent) -> None:
        assert agent.task is not None
        await agent.task
        await self.settle()

    @precondition(lambda self: self.model.line)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        agent = data.draw(st.sampled_from(self.model.line), label="who gives up")
        self.model.line.remove(agent)
        self.do(self.cancelled(agent))

    async def cancelled(self, agent: Agent) -> None:
        assert agent.task is not None
        agent.task.cancel()
        await asyncio.wait([agent.task])
        await self.settle()

    async def settle(self) -> None:
        """Wait until all is as the model says."""
        self.model.let_in(self.now())
        await until(lambda: all(agent.lease is not None for agent in self.model.holding))
        for kind, capacity, _ in WAYS:
            holding = [agent for agent in self.model.holding if agent.way.kind == kind]
            assert sum(agent.way.weight for agent in holding) <= capacity
            await self.is_told(kind, len(holding), sum(agent.way.kind == kind for agent in self.model.line))
        for agent in self.model.holding:
            self.note_token(agent)
        assert all(agent.lease is None for agent in self.model.line)

    async def is_told(self, kind: Any, holding: int, waiting: int) -> None:
        # Its own deadline: a cancellation by a timeout can get lost in redis-py.
        gives_up_at = time.monotonic() + self.patience_s
        while True:
            state = await self.stores[0].lease_state("it", kind)
            if (len(state.holders), state.waiting) == (holding, waiting):
                return
            assert time.monotonic() < gives_up_at, f"{kind}: {state} is not {holding} and {waiting} waiting"
            await asyncio.sleep(0)

    def note_token(self, agent: Agent) -> None:
        assert agent.lease is not None
        assert agent.lease.is_held()
        if agent.lease.token not in self.tokens:
            assert agent.lease.token > max(token for token in self.tokens if self.same_turn(token))
            self.tokens.append(agent.lease.token)

    def same_turn(self, token: int) -> bool:
        # Readers that came in together may be noted in any order.
        return token not in {agent.lease.token for agent in self.model.holding if agent.lease}

    def teardown(self) -> None:
        self.do(self.closed())
        self.runner.close()

    async def closed(self) -> None:
        tasks = [agent.task for agent in self.agents if agent.task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.stack.aclose()


class TimedLeaseMachine(LeaseMachine):
    """The same, and time goes by: leases are renewed, or lost when too much passes at once."""

    # In steps of four seconds no lease ends within a second, which a manual clock would let pass by itself.
    @rule(steps=st.sampled_from([1, 2, 3, 7, 8, 20]))
    def pass_time(self, steps: int) -> None:
        self.do(self.passed(steps * 4.0))

    async def passed(self, seconds: float) -> None:
        assert self.clock is not None
        self.clock.advance(seconds)
        for agent in self.model.pass_time(self.now()):
            assert agent.lease is not None
            assert not agent.lease.is_held()
            assert agent.task is not None
            with pytest.raises(LockLostError, match=str(agent.lease.token)):
                await agent.task
        await self.settle()
        for agent in self.model.holding:
            left = agent.renewed_at + LEASE_S - MARGIN_S - self.now()
            await until(partial(agent.has_left, left))


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110  # the condition lies behind a server
            await asyncio.sleep(0)


def run(machine: type[LeaseMachine], **effort: Any) -> None:
    quiet = list(HealthCheck)  # a server is slower than hypothesis likes
    run_state_machine_as_test(machine, settings=settings(deadline=None, suppress_health_check=quiet, **effort))


def on_fakeredis(machine: type[LeaseMachine], chosen: Settings) -> type[LeaseMachine]:
    clock = ManualClock()
    server = fakeredis.FakeServer()

    def open_hub() -> Hub:
        return Hub(settings=chosen, clock=clock, connect=connect_to_fake(server))

    bound: Any = type("Bound", (machine,), {"open_hub": staticmethod(open_hub), "clock": clock})
    return bound  # type: ignore[no-any-return]  # a class made at run time


@pytest.fixture
def on_redis(redis_url: str, settings: Settings) -> type[LeaseMachine]:
    def open_hub() -> Hub:
        return Hub.open(redis_url, settings=settings)

    bound: Any = type("Bound", (LeaseMachine,), {"open_hub": staticmethod(open_hub), "clock": None})
    return bound  # type: ignore[no-any-return]  # a class made at run time


def test_leases_do_what_the_model_says_while_time_passes(settings: Settings) -> None:
    run(on_fakeredis(TimedLeaseMachine, settings), max_examples=example_count(10, thorough=25), stateful_step_count=20)


def test_leases_do_what_the_model_says_on_a_real_server(on_redis: type[LeaseMachine]) -> None:
    run(on_redis, max_examples=15, stateful_step_count=20)


def test_the_model_notices_a_wrong_answer(settings: Settings) -> None:
    class Forgetful(TimedLeaseMachine):
        patience_s = 0.5

        async def taken(self, client: int, agent: Agent) -> None:
            await super().taken(client, agent)
            if agent in self.model.holding:
                self.model.holding.remove(agent)  # as if it had been given back

    no_shrinking = {"phases": (Phase.generate,), "database": None, "report_multiple_bugs": False}
    with pytest.raises((AssertionError, SharedMemoryError, TimeoutError)):
        run(on_fakeredis(Forgetful, settings), max_examples=5, **no_shrinking)
