"""A queue does what a small model of it does: random calls of several workers, with a clock that the test turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import fakeredis
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from support.example_budget import example_count

from sharedmem import ClaimLostError, NotFoundError, QueuedTask, Settings, SharedMemoryError, Task
from sharedmem.clock import new_id
from sharedmem.sync import Hub, SharedMemoryStore, TaskQueue
from sharedmem.testing import ManualClock, connect_to_fake

VISIBILITY_S = 30
MOST_ATTEMPTS = 3
NOT_RENEWED = "its worker did not renew it before the visibility timeout"
CLIENTS = st.integers(0, 1)
DELAYS = st.sampled_from([0, 0, 5, 40])


@dataclass
class Known:
    """What the model knows of a task that is not done; `until` is when its delay or visibility ends."""

    payload: int
    priority: int
    dedup_id: str | None
    state: str = "ready"
    until: float = 0
    attempts: int = 0
    error: str | None = None
    token: int = 0


class Model:
    """A queue in plain Python."""

    def __init__(self) -> None:
        self.now = 0.0
        self.paused = False
        self.tasks: dict[str, Known] = {}
        self.results: dict[str, int] = {}
        self.counters = dict.fromkeys(("put", "done", "retried", "recovered", "dead", "discarded"), 0)

    def of(self, state: str) -> dict[str, Known]:
        return {id_: task for id_, task in self.tasks.items() if task.state == state}

    def under(self, dedup_id: str) -> str | None:
        return next((id_ for id_, task in self.tasks.items() if task.dedup_id == dedup_id), None)

    def move(self, task: Known, delay: float) -> None:
        task.state, task.until, task.token = ("delayed" if delay else "ready"), self.now + delay, 0

    def bury(self, task: Known, error: str) -> None:
        task.state, task.token, task.error = "dead", 0, error
        self.counters["dead"] += 1

    def claim(self, count: int) -> list[str]:
        """The ids of the tasks that come out."""
        if self.paused:
            return []
        for task in [task for task in self.of("claimed").values() if task.until <= self.now]:
            self._recover(task)
        for task in [task for task in self.of("delayed").values() if task.until <= self.now]:
            self.move(task, 0)
        in_order = sorted(self.of("ready").items(), key=lambda item: (-item[1].priority, item[0]))
        for _, task in in_order[:count]:
            task.state, task.until, task.attempts = "claimed", self.now + VISIBILITY_S, task.attempts + 1
        return [id_ for id_, _ in in_order[:count]]

    def _recover(self, task: Known) -> None:
        if task.attempts >= MOST_ATTEMPTS:
            self.bury(task, NOT_RENEWED)
            return
        self.move(task, 0)
        task.error = NOT_RENEWED
        self.counters["recovered"] += 1


class QueueMachine(RuleBasedStateMachine):
    """Workers of two hubs on one queue; receipts are kept, and shown again when they are long stale."""

    hubs: list[Hub]
    clock: ManualClock | None

    def __init__(self) -> None:
        super().__init__()
        self.namespace = f"model-{new_id(8)}"
        self.stores: list[SharedMemoryStore] = [hub.store(self.namespace) for hub in self.hubs]
        visibility = VISIBILITY_S if self.clock else 3600
        self.queues: list[TaskQueue] = [
            store.queue("jobs", visibility=visibility, max_attempts=MOST_ATTEMPTS) for store in self.stores
        ]
        self.model = Model()
        self.receipts: list[Task] = []
        self.latest: dict[str, int] = {}

    # -- putting

    @rule(client=CLIENTS, payload=st.integers(), priority=st.integers(-2, 2), delay=DELAYS)
    def put(self, client: int, payload: int, priority: int, delay: int) -> None:
        put = self.queues[client].put(payload, priority=priority, delay=delay)
        self._added(put.id, Known(payload, priority, None), delay)

    @rule(client=CLIENTS, payload=st.integers(), dedup_id=st.sampled_from("xy"), delay=DELAYS)
    def offer(self, client: int, payload: int, dedup_id: str, delay: int) -> None:
        known = self.model.under(dedup_id)
        put = self.queues[client].put(payload, id=dedup_id, delay=delay)
        assert put.is_new is (known is None)
        if known is None:
            self._added(put.id, Known(payload, 0, dedup_id), delay)
        else:
            assert put.id == known

    def _added(self, id_: str, task: Known, delay: int) -> None:
        assert id_ > max(self.model.tasks, default="")
        self.model.tasks[id_] = task
        self.model.move(task, delay)
        self.model.counters["put"] += 1

    # -- claiming

    @rule(client=CLIENTS, count=st.integers(1, 3))
    def claim(self, client: int, count: int) -> None:
        wanted = self.model.claim(count)
        claimed = self.queues[client].claim_many(count)
        assert [task.id for task in claimed] == wanted
        for task in claimed:
            known = self.model.tasks[task.id]
            assert (task.payload, task.attempt, task.error) == (known.payload, known.attempts, known.error)
            assert task.token > self.latest.get(task.id, 0)
            self.latest[task.id] = known.token = task.token
            self.receipts.append(task)

    # -- outcomes

    def _settle(self, pick: int, act: Callable[[Task], object]) -> Known | None:
        """The task, if the receipt that was picked is good; if it is not, that must be told."""
        if not self.receipts:
            return None
        task = self.receipts[pick % len(self.receipts)]
        known = self.model.tasks.get(task.id)
        if known is not None and known.token == task.token:
            act(task)
            return known
        with pytest.raises(ClaimLostError):
            act(task)
        return None

    def _id_of(self, known: Known) -> str:
        return next(id_ for id_, task in self.model.tasks.items() if task is known)

    @rule(client=CLIENTS, pick=st.integers(0, 99), result=st.integers())
    def ack(self, client: int, pick: int, result: int) -> None:
        if known := self._settle(pick, lambda task: self.queues[client].ack(task, result)):
            id_ = self._id_of(known)
            del self.model.tasks[id_]
            self.model.results[id_] = result
            self.model.counters["done"] += 1

    @rule(client=CLIENTS, pick=st.integers(0, 99), delay=DELAYS)
    def retry(self, client: int, pick: int, delay: int) -> None:
        if known := self._settle(pick, lambda task: self.queues[client].retry(task, error="again", delay=delay)):
            if known.attempts >= MOST_ATTEMPTS:
                self.model.bury(known, "again")
                return
            self.model.move(known, delay)
            known.error = "again"
            self.model.counters["retried"] += 1

    @rule(client=CLIENTS, pick=st.integers(0, 99))
    def fail(self, client: int, pick: int) -> None:
        if known := self._settle(pick, lambda task: self.queues[client].fail(task, "hopeless")):
            self.model.bury(known, "hopeless")

    @rule(client=CLIENTS, pick=st.integers(0, 99))
    def release(self, client: int, pick: int) -> None:
        if known := self._settle(pick, self.queues[client].release):
            self.model.move(known, 0)
            known.attempts -= 1

    @rule(client=CLIENTS, pick=st.integers(0, 99))
    def renew(self, client: int, pick: int) -> None:
        if known := self._settle(pick, self.queues[client].renew):
            known.until = self.model.now + VISIBILITY_S

    # -- keeping

    @rule(client=CLIENTS, pick=st.integers(0, 99))
    def redrive(self, client: int, pick: int) -> None:
        ids = sorted({*self.model.tasks, *self.model.results})
        if ids:
            id_ = ids[pick % len(ids)]
            known = self.model.of("dead").get(id_)
            assert self.queues[client].redrive(id_) is (known is not None)
            if known is not None:
                self.model.move(known, 0)
                known.attempts, known.error = 0, None

    @rule(client=CLIENTS, pick=st.integers(0, 99))
    def discard(self, client: int, pick: int) -> None:
        ids = sorted({*self.model.tasks, *self.model.results})
        if ids:
            id_ = ids[pick % len(ids)]
            known = self.model.tasks.pop(id_, None)
            assert self.queues[client].delete(id_) is (known is not None)
            self.model.counters["discarded"] += known is not None

    @rule(client=CLIENTS, rest=st.booleans())
    def pause(self, client: int, rest: bool) -> None:
        news = self.queues[client].pause() if rest else self.queues[client].resume()
        assert news is (rest != self.model.paused)
        self.model.paused = rest

    @rule(seconds=st.sampled_from([1, 5, 29, 30, 41]))
    def time_passes(self, seconds: int) -> None:
        if self.clock is not None:
            self.clock.advance(seconds)
            self.model.now += seconds

    # -- what always holds

    @invariant()
    def the_figures_are_a_recount(self) -> None:
        stats = self.queues[0].stats()
        figures = {state: getattr(stats, state) for state in ("ready", "delayed", "claimed", "dead")}
        assert figures == {state: len(self.model.of(state)) for state in figures}
        assert stats.counters.model_dump() == self.model.counters
        assert (stats.paused, stats.workers_waiting) == (self.model.paused, 0)

    @invariant()
    def every_task_lies_where_it_should(self) -> None:
        for state in ("ready", "delayed", "claimed"):
            shown = {
                task.id: (task.payload, task.attempts, task.error) for task in self.queues[1].peek(100, state=state)
            }
            assert shown == _summary(self.model.of(state))
        dead = {task.id: (task.payload, task.attempts, task.error) for task in self.queues[1].dead(100)}
        assert dead == _summary(self.model.of("dead"))

    @invariant()
    def every_outcome_can_be_asked_for(self) -> None:
        for id_, value in list(self.model.results.items())[-2:]:
            assert self.queues[0].result(id_).value == value
        for id_ in list(self.latest)[-2:]:
            if id_ in self.model.tasks:
                assert self.queues[0].result(id_).state == self.model.tasks[id_].state
            elif id_ not in self.model.results:
                with pytest.raises(NotFoundError):
                    self.queues[0].result(id_)

    def teardown(self) -> None:
        self.stores[0].clear()


def _shown(tasks: list[QueuedTask]) -> dict[str, tuple[int, int, str | None]]:
    return {task.id: (task.payload, task.attempts, task.error) for task in tasks}


def _summary(tasks: dict[str, Known]) -> dict[str, tuple[int, int, str | None]]:
    return {id_: (task.payload, task.attempts, task.error) for id_, task in tasks.items()}


def run(machine: type[QueueMachine], hubs: list[Hub], clock: ManualClock | None, **effort: Any) -> None:
    bound: Any = type("Bound", (machine,), {"hubs": hubs, "clock": clock})
    quiet = list(HealthCheck)  # a server is slower than hypothesis likes
    run_state_machine_as_test(bound, settings=settings(deadline=None, suppress_health_check=quiet, **effort))


@pytest.fixture
def two_hubs() -> Iterator[tuple[list[Hub], ManualClock]]:
    """Two hubs on one fake server, whose time a test turns."""

    clock, server = ManualClock(), fakeredis.FakeServer()
    with ExitStack() as stack:
        yield (
            [stack.enter_context(Hub(settings=Settings(), clock=clock, connect=connect_to_fake(server))) for _ in "ab"],
            clock,
        )


def test_a_queue_is_its_model_on_fakeredis(two_hubs: tuple[list[Hub], ManualClock]) -> None:
    hubs, clock = two_hubs
    run(QueueMachine, hubs, clock, max_examples=example_count(12, thorough=25), stateful_step_count=40)


def test_a_queue_is_its_model_on_a_real_server(redis_url: str) -> None:
    with ExitStack() as stack:
        hubs = [stack.enter_context(Hub.open(redis_url, settings=Settings())) for _ in "ab"]
        run(QueueMachine, hubs, None, max_examples=example_count(10, thorough=20), stateful_step_count=40)


def test_the_model_notices_a_wrong_answer(two_hubs: tuple[list[Hub], ManualClock]) -> None:
    class Forgetful(QueueMachine):
        @rule(client=CLIENTS, payload=st.integers())
        def put(self, client: int, payload: int) -> None:
            self.queues[client].put(payload)  # and the model is not told

    hubs, clock = two_hubs
    with pytest.raises((AssertionError, SharedMemoryError, pytest.fail.Exception)):
        run(
            Forgetful,
            hubs,
            clock,
            max_examples=50,
            stateful_step_count=20,
            phases=(Phase.generate,),
            database=None,
            report_multiple_bugs=False,
        )
