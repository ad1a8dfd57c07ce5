"""Once is a small machine, none, running or done: random calls by several clients, compared with a model of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import fakeredis
import pytest
from hypothesis import HealthCheck, Phase
from hypothesis import settings as efforts
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from support.example_budget import example_count

from sharedmem import ClaimLostError, Hub, LockHeldError, Settings, SharedMemoryError, SharedMemoryStore
from sharedmem.clock import Clock, SystemClock, new_id
from sharedmem.testing import ManualClock, connect_to_fake

# No sum of the times that pass is a time-to-live: what holds in that very millisecond is not promised.
LEASE_S, TTL_S = 30.0, 100.5
CLIENTS = st.integers(0, 2)


@dataclass
class Model:
    """What the machine should be in."""

    state: str = "none"
    owner: int | None = None
    deadline: float = 0.0
    result: int | None = None
    attempt: int = 0
    forgotten_at: float = field(default=float("inf"))

    def at(self, now: float) -> None:
        """Let time pass: what has ended is gone."""
        if self.state == "running" and now >= self.deadline:
            self.state, self.owner = "none", None
            self.forgotten_at = self.deadline + TTL_S
        if self.state == "done" and now >= self.deadline:
            self.state, self.attempt = "none", 0
        if self.state == "none" and now >= self.forgotten_at:
            self.attempt, self.forgotten_at = 0, float("inf")


class Runner:
    """One client's call that is under way."""

    def __init__(self, store: SharedMemoryStore, loop: asyncio.AbstractEventLoop) -> None:
        self._began = asyncio.Event()
        self._outcome: asyncio.Future[int] = loop.create_future()
        self.call = loop.create_task(store.once("work", self._work, ttl=TTL_S, lease=LEASE_S, wait=0))

    async def begun(self) -> bool:
        """Whether the work is this client's."""
        begins = asyncio.ensure_future(self._began.wait())
        await asyncio.wait([begins, self.call], return_when=asyncio.FIRST_COMPLETED)
        begins.cancel()
        return self._began.is_set()

    def end(self, outcome: int | Exception) -> None:
        if isinstance(outcome, Exception):
            self._outcome.set_exception(outcome)
        else:
            self._outcome.set_result(outcome)

    async def _work(self) -> int:
        self._began.set()
        return await self._outcome


class OnceMachine(RuleBasedStateMachine):
    """Three clients ask for one piece of work, which each ends as it likes; leases and results run out."""

    loop: asyncio.AbstractEventLoop
    hubs: list[Hub]
    clock: Clock

    def __init__(self) -> None:
        super().__init__()
        self.namespace = f"model-{new_id(8)}"
        self.stores = [hub.store(self.namespace, actor=f"a{number}") for number, hub in enumerate(self.hubs)]
        self.model = Model()
        self.running: dict[int, Runner] = {}
        self.numbers = iter(range(1_000_000))
        self.last_token = 0

    def run(self, coroutine: Any) -> Any:
        return self.loop.run_until_complete(coroutine)

    @rule(client=CLIENTS)
    def ask(self, client: int) -> None:
        if client in self.running:
            return
        runner = Runner(self.stores[client], self.loop)
        begun = self.run(runner.begun())
        assert begun is (self.model.state == "none")
        if begun:
            self.running[client] = runner
            self.model.attempt += 1
            self.model.state, self.model.owner = "running", client
            self.model.deadline = self.clock.monotonic() + LEASE_S
        elif self.model.state == "done":
            assert self.run(runner.call) == self.model.result
        else:
            with pytest.raises(LockHeldError):
                self.run(runner.call)

    @precondition(lambda self: self.running)
    @rule(number=st.integers(0, 2))
    def finish(self, number: int) -> None:
        client = sorted(self.running)[number % len(self.running)]
        runner, result = self.running.pop(client), next(self.numbers)
        runner.end(result)
        if self.model.owner == client:
            assert self.run(runner.call) == result
            self.model.state, self.model.owner, self.model.result = "done", None, result
            self.model.deadline = self.clock.monotonic() + TTL_S
        else:
            with pytest.raises(ClaimLostError):
                self.run(runner.call)

    @precondition(lambda self: self.running)
    @rule(number=st.integers(0, 2))
    def fail(self, number: int) -> None:
        client = sorted(self.running)[number % len(self.running)]
        runner = self.running.pop(client)
        runner.end(ZeroDivisionError())
        with pytest.raises(ZeroDivisionError):
            self.run(runner.call)
        if self.model.owner == client:
            self.model.state, self.model.owner = "none", None
            self.model.forgotten_at = self.clock.monotonic() + TTL_S

    @rule(client=CLIENTS)
    def forget(self, client: int) -> None:
        assert self.run(self.stores[client].once_delete("work")) is (self.model.state == "done")
        if self.model.state != "running":
            self.model.state, self.model.attempt = "none", 0

    @invariant()
    def everyone_sees_the_state_of_the_model(self) -> None:
        for store in self.stores:
            found = self.run(store.once_state("work"))
            assert (found.state, found.attempt) == (self.model.state, self.model.attempt)
            assert found.token >= self.last_token or self.model.attempt == 0
        self.last_token = max(found.token, self.last_token)

    def teardown(self) -> None:
        for runner in self.running.values():
            runner.end(ZeroDivisionError())
            self.run(asyncio.wait([runner.call]))
            assert runner.call.exception() is not None
        self.run(self.hubs[0].store(self.namespace).clear())


class OnceMachineInTime(OnceMachine):
    """The same, with runners that send nothing: their processes hang."""

    @rule(seconds=st.sampled_from([1.0, 29.0, 31.0, 99.0, 140.0]))
    def let_time_pass(self, seconds: float) -> None:
        assert isinstance(self.clock, ManualClock)
        self.clock.advance(seconds)
        self.model.at(self.clock.monotonic())


class HangingClock(ManualClock):
    """A clock by which no lease is renewed: the processes of all runners hang while they work."""

    async def sleep(self, seconds: float) -> None:
        if seconds < 1:
            await super().sleep(seconds)
        else:
            await asyncio.Event().wait()


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Where the clients live; between the steps of a machine it stands still."""
    with asyncio.Runner() as runner:
        yield runner.get_loop()


@pytest.fixture
def bind(loop: asyncio.AbstractEventLoop) -> Iterator[Callable[..., Any]]:
    """Gives a machine its three clients."""
    with ExitStack() as stack:

        def close(hub: Hub) -> None:
            loop.run_until_complete(hub.close())

        def bound(machine: type[OnceMachine], clock: Clock, *hubs: Hub) -> Any:
            for hub in hubs:
                loop.run_until_complete(hub.__aenter__())
                stack.callback(close, hub)
            return type("Bound", (machine,), {"loop": loop, "hubs": list(hubs), "clock": clock})

        yield bound


def run(machine: Any, **effort: Any) -> None:
    quiet = list(HealthCheck)  # a server is slower than hypothesis likes
    run_state_machine_as_test(machine, settings=efforts(deadline=None, suppress_health_check=quiet, **effort))


def on_fakeredis(bind: Callable[..., Any], machine: type[OnceMachine], given: Settings) -> Any:
    server, clock = fakeredis.FakeServer(), HangingClock()
    return bind(machine, clock, *(Hub(settings=given, clock=clock, connect=connect_to_fake(server)) for _ in range(3)))


def test_once_is_a_small_machine(bind: Callable[..., Any], settings: Settings) -> None:
    run(
        on_fakeredis(bind, OnceMachineInTime, settings),
        max_examples=example_count(20, thorough=40),
        stateful_step_count=25,
    )


def test_once_is_the_same_machine_on_a_real_server(
    bind: Callable[..., Any], settings: Settings, redis_url: str
) -> None:
    hubs = [Hub.open(redis_url, settings=settings) for _ in range(3)]

    run(bind(OnceMachine, SystemClock(), *hubs), max_examples=15, stateful_step_count=20)


def test_the_model_notices_a_result_that_is_stored_without_a_lease(
    bind: Callable[..., Any], settings: Settings
) -> None:
    class Lenient(OnceMachineInTime):
        @rule()
        def believe_that_leases_last_for_ever(self) -> None:
            if self.model.state == "running":
                self.model.deadline = float("inf")

    no_shrinking = {"phases": (Phase.generate,), "database": None, "report_multiple_bugs": False}
    with pytest.raises((AssertionError, SharedMemoryError, pytest.fail.Exception)):
        run(on_fakeredis(bind, Lenient, settings), max_examples=500, **no_shrinking)
