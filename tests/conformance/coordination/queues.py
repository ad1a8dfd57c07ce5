"""What task queues promise on every backend."""
# a test's name is its sentence

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from conformance.coordination.queue_admin import QueueAdminTests, QueueInputTests
from conformance.coordination.queue_helpers import LONG_S, claim_all, waiting_worker
from sharedmem.clock import from_microseconds
from sharedmem.errors import ClaimLostError, InvalidError, NotFoundError
from sharedmem.models import Backoff, Receipt
from sharedmem.store import SharedMemoryStore
from sharedmem.testing.store_fixtures import StoreFixtures, eventually


class PutTests(StoreFixtures):
    """Putting."""

    async def test_equal_tasks_come_out_in_the_order_in_which_they_were_put(self, ada: SharedMemoryStore) -> None:
        queue = ada.queue("jobs")
        ids = [(await queue.put(number)).id for number in range(5)]

        tasks = await queue.claim_many(10)

        assert [task.payload for task in tasks] == [0, 1, 2, 3, 4]
        assert [task.id for task in tasks] == ids == sorted(ids)

    async def test_higher_priorities_come_first(self, ada: SharedMemoryStore) -> None:
        queue = ada.queue("jobs")
        for priority in (0, 5, -7, 5, 1_000_000_000, -1_000_000_000):
            await queue.put(priority, priority=priority)

        tasks = await queue.claim_many(10)

        assert [task.payload for task in tasks] == [1_000_000_000, 5, 5, 0, -7, -1_000_000_000]
        assert [task.priority for task in tasks] == [task.payload for task in tasks]
        assert tasks[1].id < tasks[2].id

    @pytest.mark.parametrize(
        "payload",
        [{"a": [1, None, "ü"]}, "text\nof two lines", b"\x00\x01", "", None, 2**70, {"raw": b"\n"}, "x" * 70_000],
    )
    async def test_a_payload_comes_out_as_it_was_put(self, ada: SharedMemoryStore, payload: Any) -> None:
        queue = ada.queue("jobs")
        await queue.put(payload)

        assert (await claim_all(queue)).payload == payload

    async def test_a_task_tells_where_it_comes_from(self, ada: SharedMemoryStore, bob: SharedMemoryStore) -> None:
        put = await ada.queue("jobs").put("a", priority=3, max_attempts=2, id="only once")

        task = await claim_all(bob.queue("jobs"))

        assert (task.id, task.put_by, task.priority, task.max_attempts) == (put.id, "ada", 3, 2)
        assert (task.dedup_id, task.attempt, task.error) == ("only once", 1, None)
        assert task.put_at == from_microseconds(int(put.id))

    async def test_many_are_put_in_one_step(self, ada: SharedMemoryStore) -> None:
        queue = ada.queue("jobs")

        put = await queue.put_many(range(500), priority=1)

        assert await queue.put_many([]) == []
        assert [task.payload for task in await queue.claim_many(100)] == list(range(100))
        assert (await queue.stats()).counters.put == 500
        assert len({result.id for result in put}) == 500

    async def test_a_delayed_task_is_not_claimed_before_its_time(self, ada: SharedMemoryStore) -> None:
        queue = ada.queue("jobs")
        put = await queue.put("later", delay=3600)

        assert await queue.claim() is None
        (task,) = await queue.peek(state="delayed")
        assert task.id == put.id
        assert task.at is not None
        assert abs((task.at - task.put_at).total_seconds() - 3600) < 1

    async def test_a_task_of_the_same_id_is_not_put_twice_while_the_first_is_not_done(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore
    ) -> None:
        first = await ada.queue("jobs").put("a", id="order 17")
        second = await bob.queue("jobs").put("b", id="order 17", priority=9)
        other = await ada.queue("jobs").put("c", id="order 18", delay=60)

        assert (first.is_new, second.is_new, other.is_new) == (True, False, True)
        assert second.id == first.id
        task = await claim_all(bob.queue("jobs"))
        assert (await ada.queue("jobs").put("d", id="order 17")).id == first.id
        await bob.queue("jobs").ack(task)
        assert (await ada.queue("jobs").put("e", id="order 17")).is_new

    async def test_an_id_can_be_refused_for_longer_than_the_task_lives(self, ada: SharedMemoryStore) -> None:
        queue = ada.queue("jobs")
        first = await queue.put("a", id="order 17", unique_for=60)
        await queue.ack(await claim_all(queue), "shipped")

        again = await queue.put("a", id="order 17")

        assert not again.is_new
        assert (await queue.result(again.id)).value == "shipped"
        assert again.id == first.id

    async def test_racing_puts_of_one_id_put_one_task(self, ada: SharedMemoryStore, bob: SharedMemoryStore) -> None:
        queues = [ada.queue("jobs"), bob.queue("jobs")]

        put = await asyncio.gather(*(queues[number % 2].put(number, id="one") for number in range(20)))

        assert sum(result.is_new for result in put) == 1
        assert len({result.id for result in put}) == 1
        assert (await queues[0].stats()).ready == 1


class ClaimTests(StoreFixtures):
    """Claiming, and what becomes of claims."""

    async def test_an_empty_queue_has_nothing(self, ada: SharedMemoryStore) -> None:
        queue = ada.queue("jobs")

        assert await queue.claim() is None
        assert await queue.claim_many(3) == []
        assert await queue.claim(wait=0.01) is None
        assert (await queue.stats()).workers_waiting == 0

    async def test_racing_workers_share_the_tasks_between_them(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore
    ) -> None:
        queues = [ada.queue("jobs"), bob.queue("jobs")]
        await queues[0].put_many(range(30))

        tasks = await asyncio.gather(*(queues[number % 2].claim() for number in range(40)))

        assert sorted(task.payload for task in tasks if task is not None) == list(range(30))
        assert tasks.count(None) == 10

    async def test_tasks_claimed_at_the_same_moment_go_to_one_caller_each(self, ada: SharedMemoryStore) -> None:
        queue = ada.queue("jobs")
        await queue.put_many([f"task\n{number}" for number in range(50)])

        asked = [queue.claim(wait=0 if number % 2 else 10) for number in range(40)]
        some, single = await asyncio.gather(queue.claim_many(7), asyncio.gather(*asked))

        tasks = [*some, *[task for task in single if task is not None]]
        assert len(some) == 7
        assert len({task.id for task in tasks}) == len({task.token for task in tasks}) == len(tasks) == 47
        assert sorted(task.payload for task in tasks) == sorted(f"task\n{number}" for number in range(47))
        for task in tasks:
            await queue.ack(task)
        rest = await asyncio.gather(*[queue.claim() for _ in range(6)])
        assert sorted(str(task and task.payload) for task in rest) == ["None"] * 3 + [
            f"task\n{number}" for number in range(47, 50)
        ]

    async def test_large_tasks_claimed_at_the_same_moment_are_all_handed_out(self, ada: SharedMemoryStore) -> None:
        queue = ada.queue("jobs")
        for number in range(12):
            await queue.put(str(number % 10) * 200_000)

        tasks = await asyncio.gather(*[queue.claim() for _ in range(12)])

        assert len({task.id for task in tasks if task is not None}) == 12

    async def test_a_task_that_is_done_leaves_its_result(self, ada: SharedMemoryStore, bob: SharedMemoryStore) -> None:
        queue = ada.queue("jobs")
        put = await queue.put("a")
        assert (await queue.result(put.id)).state == "ready"
        task = await claim_all(queue)
        assert (await queue.result(put.id)).state == "claimed"

        await queue.ack(task, {"rows": 3, "raw": b"\x00"})

        outcome = await bob.queue("jobs").result(put.id)
        assert (outcome.state, outcome.value, outcome.is_done) == ("done", {"rows": 3, "raw": b"\x00"}, True)
        assert await queue.claim() is None

    async def test_tasks_put_and_acknowledged_at_the_same_moment_are_independent(self, ada: SharedMemoryStore) -> None:
        queue = ada.queue("jobs")
        put = await asyncio.gather(*(queue.put(number, priority=number % 2) for number in range(60)))
        tasks = await queue.claim_many(100)
        assert [task.payload for task in tasks] == [*range(1, 60, 2), *range(0, 60, 2)]
        assert [task.id for task in tasks] == [put[task.payload].id for task in tasks]

        # One of them twice: its claim serves once.
        outcomes = await asyncio.gather(
            *(queue.ack(task, task.payload) for task in [*tasks, tasks[0]]), return_exceptions=True
        )

        assert [type(outcome) for outcome in outcomes if outcome is not None] == [ClaimLostError]
        assert [(await queue.result(one.id)).value for one in put] == list(range(60))
        assert (await queue.stats()).counters.done == 60

    async def test_a_queue_can_keep_no_results(self, ada: SharedMemoryStore) -> None:
        queue = ada.queue("jobs", result_ttl=0)
        await queue.put("a")
        task = await claim_all(queue)
        await queue.ack(task, "nobody asks")

        with pytest.raises(NotFoundError, match="its result has expired"):
            await queue.result(task.id)

    async def test_a_receipt_is_good_for_one_outcome(self, ada: SharedMemoryStore) -> None:
        queue = ada.queue("jobs")
        await queue.put("a")
        task = await claim_all(queue)
        await queue.ack(task, 1)

        for late in (
            queue.ack(task, 2),
            queue.retry(task),
            queue.fail(task, "no"),
            queue.release(task),
            queue.renew(task),
        ):
            with pytest.raises(ClaimLostError, match=f"task '{task.id}' is no longer yours \\(token {task.token}\\)"):
                await late
        assert (await queue.result(task.id)).value == 1

    async def test_a_task_whose_worker_falls_silent_is_given_to_the_next(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore
    ) -> None:
        slow, quick = ada.queue("jobs", visibility=0.1), bob.queue("jobs")
        await slow.put("a")
        first = await claim_all(slow)

        second = await claim_all(quick, wait=LONG_S)

        assert (second.id, second.attempt, second.payload) == (first.id, 2, "a")
        assert second.token > first.token
        assert second.error == "its worker did not renew it before the visibility timeout"
        with pytest.raises(ClaimLostError):
            await slow.ack(first, "too late")
        await quick.ack(second, "in time")
        assert (await slow.result(first.id)).value == "in time"
        assert (await slow.stats()).counters.recovered == 1

    async def test_a_worker_that_is_late_keeps_its_task_while_no_other_wants_it(self, ada: SharedMemoryStore) -> None:
        queue = ada.queue("jobs", visibility=0.05)
        await queue.put("a")
        task = await claim_all(queue)
        await asyncio.sleep(0.06)

        await queue.ack(task)

        assert (await queue.stats()).counters.done == 1

    async def test_a_retried_task_comes_back_with_its_error(self, ada: SharedMemoryStore) -> None:
        queue = ada.queue("jobs")
        await queue.put("a")
        task = await claim_all(queue)

        assert await queue.retry(task, error="no paper", delay=0)

        again = await claim_all(queue)
        assert (again.id, again.attempt, again.error) == (task.id, 2, "no paper")
        assert (await queue.result(task.id)).error == "no paper"
        assert (await queue.stats()).counters.retried == 1

    async def test_a_retry_backs_off(self, ada: SharedMemoryStore) -> None:
        queue = ada.queue("jobs", backoff=Backoff(first=3600, longest=3600))
        await queue.put("a")

        await queue.retry(await claim_all(queue))

        (task,) = await queue.peek(state="delayed")
        assert task.attempts == 1
        assert await queue.claim() is None

    async def test_after_the_last_attempt_a_task_is_a_dead_letter(self, ada: SharedMemoryStore) -> None:
        queue = ada.queue("jobs", max_attempts=2)
        put = await queue.put({"broken": True})
        assert await queue.retry(await claim_all(queue), error="once", delay=0)

        assert not await queue.retry(await claim_all(queue), error="twice", delay=0)

        assert await queue.claim() is None
        (letter,) = await queue.dead()
        assert (letter.id, letter.payload, letter.attempts, letter.error) == (put.id, {"broken": True}, 2, "twice")
        assert (letter.state, letter.worker, letter.put_by) == ("dead", "ada", "ada")
        assert letter.at is not None
        assert (await queue.result(put.id)).model_dump() == {
            "id": put.id,
            "state": "dead",
            "value": None,
            "error": "twice",
        }

    async def test_a_task_that_kills_its_workers_is_a_dead_letter_in_the_end(self, ada: SharedMemoryStore) -> None:
        queue = ada.queue("jobs", visibility=0.05, max_attempts=2)
        await queue.put("poison")
        for attempt in (1, 2):
            assert (await claim_all(queue, wait=LONG_S)).attempt == attempt

        assert await queue.claim(wait=0.3) is None

        (letter,) = await queue.dead()
        assert letter.error == "its worker did not renew it before the visibility timeout"

    async def test_a_hopeless_task_is_a_dead_letter_at_once_and_announced(self, ada: SharedMemoryStore) -> None:
        queue = ada.queue("jobs")
        await queue.put("a")
        start = await ada.write("mark", 1)

        await queue.fail(await claim_all(queue), "malformed")

        change = await anext(aiter(ada.watch(f"{ada.namespace}:shared:jobs", since=f"{start}-0")))
        assert (change.operation, change.actor) == ("queue.dead", "ada")
        assert [letter.error for letter in await queue.dead()] == ["malformed"]
        assert (await queue.stats()).counters.dead == 1

    async def test_a_task_given_back_has_lost_no_attempt(self, ada: SharedMemoryStore, bob: SharedMemoryStore) -> None:
        queue = ada.queue("jobs")
        await queue.put("a")
        await queue.retry(await claim_all(queue), error="before", delay=0)
        task = await claim_all(queue)

        await queue.release(task)

        again = await claim_all(bob.queue("jobs"))
        assert (again.id, again.attempt, again.error) == (task.id, 2, "before")
        assert again.token > task.token

    async def test_a_receipt_from_elsewhere_will_do(self, ada: SharedMemoryStore, bob: SharedMemoryStore) -> None:
        await ada.queue("jobs").put("a")
        task = await claim_all(ada.queue("jobs"))

        await bob.queue("jobs").ack(Receipt(id=task.id, token=task.token), "by another process")

        assert (await ada.queue("jobs").result(task.id)).value == "by another process"


class BlockTests(StoreFixtures):
    """Blocks and workers."""

    async def test_a_block_acknowledges_at_its_end(self, ada: SharedMemoryStore) -> None:
        queue = ada.queue("jobs")
        put = await queue.put({"n": 4})

        async with queue.claimed() as held:
            assert held is not None
            assert (held.id, held.payload, held.attempt, held.task.id) == (put.id, {"n": 4}, 1, put.id)
            held.finish(held.payload["n"] ** 2)

        assert (await queue.result(put.id)).value == 16

    async def test_a_block_without_a_task_gets_none(self, ada: SharedMemoryStore) -> None:
        async with ada.queue("jobs").claimed(wait=0.01) as held:
            assert held is None

    async def test_a_block_that_raises_leaves_the_task_to_be_retried(self, ada: SharedMemoryStore) -> None:
        queue = ada.queue("jobs", backoff=(0, 0))
        put = await queue.put("a")

        with pytest.raises(ZeroDivisionError):
            async with queue.claimed():
                raise ZeroDivisionError("no paper")

        again = await claim_all(queue)
        assert (again.id, again.attempt, again.error) == (put.id, 2, "ZeroDivisionError: no paper")

    async def test_a_block_keeps_its_task_for_as_long_as_it_takes(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore
    ) -> None:
        queue = ada.queue("jobs", visibility=1.0)
        await queue.put("long")

        async with queue.claimed() as held:
            assert held is not None
            assert await bob.queue("jobs").claim(wait=1.5) is None

        assert (await queue.stats()).counters.done == 1

    async def test_a_block_that_lost_its_task_is_told(self, ada: SharedMemoryStore) -> None:
        queue = ada.queue("jobs")
        put = await queue.put("a")

        with pytest.raises(ClaimLostError):
            async with queue.claimed():
                await queue.delete(put.id)

    async def test_a_result_that_cannot_be_kept_makes_a_dead_letter(self, ada: SharedMemoryStore) -> None:
        queue = ada.queue("jobs")
        await queue.put("a")

        with pytest.raises(InvalidError, match="cannot be shared"):
            await _finished(queue, object())

        (letter,) = await queue.dead()
        assert "cannot be shared" in (letter.error or "")

    async def test_tasks_come_one_by_one(self, ada: SharedMemoryStore) -> None:
        queue = ada.queue("jobs")
        await queue.put_many("abc")

        seen = []
        async for task in queue.tasks():
            seen.append(task.payload)
            await queue.ack(task)
            if len(seen) == 3:
                break

        assert seen == ["a", "b", "c"]


class WaitTests(StoreFixtures):
    """Waiting for tasks and for outcomes."""

    async def test_a_waiting_worker_is_called_when_a_task_is_put(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore
    ) -> None:
        queue = ada.queue("jobs")
        call = asyncio.ensure_future(bob.queue("jobs").claim(wait=LONG_S))
        await eventually(lambda: waiting_worker(queue, 1))

        put = await queue.put("a")

        task = await call
        assert task is not None
        assert task.id == put.id
        assert (await queue.stats()).workers_waiting == 0

    async def test_each_of_several_workers_is_called(self, ada: SharedMemoryStore, bob: SharedMemoryStore) -> None:
        queue = ada.queue("jobs")
        calls = [asyncio.ensure_future(bob.queue("jobs").claim(wait=LONG_S)) for _ in range(5)]
        await eventually(lambda: waiting_worker(queue, 5))

        await queue.put_many(range(3))
        await queue.put(3, id="x")
        await queue.put(4, delay=0.05)

        assert sorted(task.payload for task in await asyncio.gather(*calls) if task is not None) == [0, 1, 2, 3, 4]

    async def test_a_waiting_worker_gets_a_delayed_task_when_its_time_comes(self, ada: SharedMemoryStore) -> None:
        queue = ada.queue("jobs")
        await queue.put("later", delay=0.1)

        assert (await claim_all(queue, wait=LONG_S)).payload == "later"

    async def test_a_waiting_worker_gets_a_task_that_another_retries(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore
    ) -> None:
        queue = ada.queue("jobs")
        await queue.put("a")
        task = await claim_all(queue)
        call = asyncio.ensure_future(bob.queue("jobs").claim(wait=LONG_S))
        await eventually(lambda: waiting_worker(queue, 1))

        await queue.retry(task, delay=0)

        again = await call
        assert again is not None
        assert again.attempt == 2

    async def test_a_caller_that_waits_for_an_outcome_is_notified(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore
    ) -> None:
        queue = ada.queue("jobs")
        ids = [(await queue.put(name)).id for name in ("good", "bad")]
        calls = [asyncio.ensure_future(bob.queue("jobs").result(id_, wait=LONG_S)) for id_ in ids]
        await queue.ack(await claim_all(queue), "fine")
        await queue.fail(await claim_all(queue), "broken")

        outcomes = await asyncio.gather(*calls)

        assert [(outcome.state, outcome.value, outcome.error) for outcome in outcomes] == [
            ("done", "fine", None),
            ("dead", None, "broken"),
        ]

    async def test_a_caller_that_does_not_wait_long_enough_gets_the_present_state(self, ada: SharedMemoryStore) -> None:
        queue = ada.queue("jobs")
        put = await queue.put("a")

        assert (await queue.result(put.id, wait=0.02)).state == "ready"


async def _finished(queue: Any, result: object) -> None:
    """Do the next task with that result."""
    async with queue.claimed() as held:
        held.finish(result)


class QueueSuite(PutTests, ClaimTests, BlockTests, WaitTests, QueueAdminTests, QueueInputTests):
    """The whole of `queue`; a backend's test class inherits it and gives the fixture `hub`, an open `Hub`."""
