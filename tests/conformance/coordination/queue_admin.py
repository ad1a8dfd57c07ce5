"""What operators of a queue are promised, and what is refused, on every backend."""
# a test's name is its sentence

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from conformance.coordination.queue_helpers import LONG_S, claim_all, waiting_worker
from sharedmem.errors import AccessDeniedError, ClaimLostError, InvalidError, NotFoundError
from sharedmem.hub import Hub
from sharedmem.models import Receipt
from sharedmem.store import SharedMemoryStore
from sharedmem.testing.store_fixtures import StoreFixtures, eventually

_UNKNOWN = "1234567890123456"


class QueueAdminTests(StoreFixtures):
    """Looking after a queue."""

    async def test_tasks_are_found_by_their_words_in_every_state(self, ada: SharedMemoryStore) -> None:
        queue = ada.queue("jobs")
        await queue.put_many([{"doc": "Tides.md"}, {"doc": "rents.md"}, {"doc": "tides of the north"}])
        dead = await claim_all(queue)
        await queue.fail(dead, "page 3 is MISSING")
        late = await queue.put({"doc": "tides"}, delay=60)
        running = await claim_all(queue)

        found = await queue.search("TIDES")
        assert (found.tasks[0].state, found.tasks[0].id) == ("dead", dead.id)
        assert {task.state for task in found.tasks} == {"dead", "ready", "delayed"}
        assert found.cursor is None
        assert found.looked_at == 4
        assert [task.id for task in (await queue.search("missing page")).tasks] == [dead.id]
        assert [task.id for task in (await queue.search("tides", state="delayed")).tasks] == [late.id]
        assert [task.id for task in (await queue.search(state="claimed")).tasks] == [running.id]
        assert (await queue.search("page tornado")).tasks == []

    async def test_a_task_is_found_by_its_id(self, ada: SharedMemoryStore) -> None:
        queue = ada.queue("jobs")
        put = await queue.put("a", priority=3)
        await queue.put(put.id)

        (task,) = (await queue.search(put.id)).tasks
        assert (task.id, task.state, task.payload, task.priority, task.at) == (put.id, "ready", "a", 3, None)
        assert (await queue.search(put.id, state="dead")).tasks == []
        assert (await queue.search("1" * 16)).tasks == []

    async def test_a_search_goes_on_where_it_ended_though_tasks_have_left_meanwhile(
        self, ada: SharedMemoryStore
    ) -> None:
        queue = ada.queue("jobs")
        for number in range(9):
            await queue.put(number, priority=number % 3, delay=60 if number > 6 else 0)

        page = await queue.search(limit=2)
        seen = [task.payload for task in page.tasks]
        await queue.delete(page.tasks[-1].id)
        while page.cursor is not None:
            page = await queue.search(limit=2, cursor=page.cursor)
            seen += [task.payload for task in page.tasks]

        assert seen == [2, 5, 1, 4, 0, 3, 6, 7, 8]

    @pytest.mark.parametrize(
        ("field", "bad"),
        [("state", "done"), ("limit", 0), ("limit", 1001), ("cursor", "x"), ("cursor", "ready.1.2"), ("cursor", "")],
    )
    async def test_an_impossible_search_is_refused(self, ada: SharedMemoryStore, field: str, bad: Any) -> None:
        with pytest.raises(InvalidError, match=field):
            await ada.queue("jobs").search(**{field: bad})
        with pytest.raises(InvalidError, match="cursor"):
            await ada.queue("jobs").search(state="dead", cursor="ready..")

    async def test_a_task_is_buried_in_any_state_and_taken_back(self, ada: SharedMemoryStore) -> None:
        queue = ada.queue("jobs")
        await queue.put_many(["a", "b"])
        late = await queue.put("c", delay=60)
        task = await claim_all(queue)
        ready = (await queue.peek())[0]

        for buried in (task, ready, late):
            assert await queue.bury(buried.id, error="nobody needs it")
        assert not await queue.bury(task.id)

        with pytest.raises(ClaimLostError):
            await queue.ack(task)
        letters = await queue.dead()
        assert [(letter.payload, letter.error, letter.attempts) for letter in letters] == [
            ("a", "nobody needs it", 1),
            ("b", "nobody needs it", 0),
            ("c", "nobody needs it", 0),
        ]
        assert (await queue.stats()).counters.dead == 3
        assert await queue.redrive(late.id)
        assert (await claim_all(queue)).payload == "c"

    async def test_statistics_are_a_recount(self, ada: SharedMemoryStore) -> None:
        queue = ada.queue("jobs", max_attempts=2)
        await queue.put_many(range(8))
        await queue.put("later", delay=60)
        done, failed, retried, kept, doomed = await queue.claim_many(5)
        await queue.ack(done)
        await queue.fail(failed, "bad")
        await queue.retry(retried, delay=60)
        await queue.delete(doomed.id)

        stats = await queue.stats()

        lines = [await queue.peek(100, state=state) for state in ("ready", "delayed", "claimed")]
        assert [len(line) for line in (*lines, await queue.dead(100))] == [3, 2, 1, 1]
        assert (stats.ready, stats.delayed, stats.claimed, stats.dead) == (3, 2, 1, 1)
        assert stats.counters.model_dump() == {
            "put": 9,
            "done": 1,
            "retried": 1,
            "recovered": 0,
            "dead": 1,
            "discarded": 1,
        }
        assert (stats.name, stats.paused) == ("jobs", False)
        assert stats.oldest_age is not None
        assert [task.id for task in lines[2]] == [kept.id]
        assert lines[2][0].worker == "ada"

    async def test_looking_changes_nothing(self, ada: SharedMemoryStore, bob: SharedMemoryStore) -> None:
        queue = ada.queue("jobs")
        await queue.put_many(["a", "b", "c"])

        seen = await bob.queue("jobs").peek(2)

        assert [(task.payload, task.attempts, task.worker, task.at) for task in seen] == [
            ("a", 0, None, None),
            ("b", 0, None, None),
        ]
        assert [task.payload for task in await queue.claim_many(5)] == ["a", "b", "c"]

    async def test_a_dead_letter_can_be_tried_again(self, ada: SharedMemoryStore) -> None:
        queue = ada.queue("jobs")
        await queue.put("a", id="x")
        task = await claim_all(queue)
        await queue.fail(task, "the printer was off")

        assert await queue.redrive(task.id)

        assert not await queue.redrive(task.id)
        assert not (await queue.put("a", id="x")).is_new
        again = await claim_all(queue)
        assert (again.id, again.attempt, again.error) == (task.id, 1, None)
        assert await queue.dead() == []

    async def test_all_dead_letters_can_be_tried_again(self, ada: SharedMemoryStore) -> None:
        queue = ada.queue("jobs")
        await queue.put_many(range(120))
        for _ in range(2):
            for task in await queue.claim_many(60):
                await queue.fail(task, "down")

        assert [letter.payload for letter in await queue.dead(3)] == [0, 1, 2]
        assert await queue.redrive_all() == 120
        assert await queue.redrive_all() == 0
        assert (await queue.stats()).ready == 120

    async def test_a_task_can_be_forgotten_in_every_state(self, ada: SharedMemoryStore) -> None:
        queue = ada.queue("jobs")
        ids = [(await queue.put(number, id=f"n{number}")).id for number in range(3)]
        ids.append((await queue.put(3, delay=60)).id)
        task = await claim_all(queue)
        await queue.fail(await claim_all(queue), "bad")

        assert [await queue.delete(id_) for id_ in ids] == [True] * 4

        assert not await queue.delete(ids[0])
        stats = await queue.stats()
        assert (stats.ready, stats.delayed, stats.claimed, stats.dead) == (0, 0, 0, 0)
        with pytest.raises(ClaimLostError):
            await queue.ack(task)
        with pytest.raises(NotFoundError):
            await queue.result(ids[0])
        assert (await queue.put("again", id="n0")).is_new

    async def test_a_paused_queue_hands_out_nothing(self, ada: SharedMemoryStore, bob: SharedMemoryStore) -> None:
        queue = ada.queue("jobs")
        await queue.put("before")
        task = await claim_all(queue)
        assert await queue.pause()
        assert not await queue.pause()
        await queue.put("meanwhile")

        assert await bob.queue("jobs").claim() is None
        assert (await queue.stats()).paused
        await queue.renew(task)
        await queue.ack(task)
        call = asyncio.ensure_future(bob.queue("jobs").claim(wait=LONG_S))
        await eventually(lambda: waiting_worker(queue, 1))

        assert await queue.resume()
        assert not await queue.resume()
        resumed = await call
        assert resumed is not None
        assert resumed.payload == "meanwhile"


class QueueInputTests(StoreFixtures):
    """What is refused before anything is sent."""

    @pytest.mark.parametrize(
        "named",
        [
            {"visibility": 0},
            {"visibility": float("nan")},
            {"visibility": True},
            {"visibility": 1e6},
            {"max_attempts": 0},
            {"max_attempts": 1.5},
            {"backoff": (2, 1)},
            {"backoff": (-1, 1)},
            {"backoff": 3},
            {"backoff": (float("nan"), 1)},
            {"result_ttl": -1},
            {"result_ttl": float("inf")},
        ],
    )
    async def test_impossible_terms_are_refused(self, ada: SharedMemoryStore, named: Any) -> None:
        with pytest.raises(InvalidError, match=next(iter(named))):
            ada.queue("jobs", **named)

    @pytest.mark.parametrize("name", ["", "a:", "x{y}", "$jobs:x:y", "a\nb", None, 7])
    async def test_an_impossible_name_is_refused(self, ada: SharedMemoryStore, name: Any) -> None:
        with pytest.raises(InvalidError):
            ada.queue(name)

    @pytest.mark.parametrize(
        "named",
        [
            {"priority": 1.5},
            {"priority": float("nan")},
            {"priority": 2**40},
            {"priority": "high"},
            {"delay": -1},
            {"delay": float("nan")},
            {"delay": float("inf")},
            {"delay": "soon"},
            {"max_attempts": 0},
            {"max_attempts": True},
            {"id": ""},
            {"id": "a\nb"},
            {"id": "a{b}"},
            {"id": "x" * 300},
            {"id": 7},
            {"unique_for": 5},
            {"id": "x", "unique_for": -1},
        ],
    )
    async def test_an_impossible_put_puts_nothing(self, ada: SharedMemoryStore, named: Any) -> None:
        queue = ada.queue("jobs")

        with pytest.raises(InvalidError, match="unique_for" if "unique_for" in named else next(iter(named))):
            await queue.put("a", **named)

        assert (await queue.stats()).counters.put == 0

    async def test_a_payload_that_cannot_be_kept_puts_nothing(self, ada: SharedMemoryStore) -> None:
        queue = ada.queue("jobs")
        most = 262_144

        with pytest.raises(InvalidError, match="put its key here"):
            await queue.put("x" * most)
        for payload in (object(), float("nan"), "\ud800"):
            with pytest.raises(InvalidError):
                await queue.put_many(["fine", payload])
        with pytest.raises(InvalidError, match="at most 500"):
            await queue.put_many(range(501))

        assert (await queue.stats()).counters.put == 0

    async def test_a_result_that_is_too_large_leaves_the_task_where_it_is(self, ada: SharedMemoryStore) -> None:
        queue = ada.queue("jobs")
        await queue.put("a")
        task = await claim_all(queue)

        with pytest.raises(InvalidError, match="result"):
            await queue.ack(task, "x" * 262_144)

        await queue.ack(task, "a short one")

    @pytest.mark.parametrize("task_id", ["", "7", "x" * 16, "12345678901234567", 1234567890123456, None, "\uff11" * 16])
    async def test_what_is_no_id_is_refused(self, ada: SharedMemoryStore, task_id: Any) -> None:
        queue = ada.queue("jobs")

        for call in (queue.result, queue.redrive, queue.delete):
            with pytest.raises(InvalidError, match="task id"):
                await call(task_id)

    async def test_an_unknown_id_is_told(self, ada: SharedMemoryStore) -> None:
        queue = ada.queue("jobs")

        with pytest.raises(NotFoundError, match="never put into this queue"):
            await queue.result(_UNKNOWN)
        with pytest.raises(NotFoundError):
            await queue.result(_UNKNOWN, wait=LONG_S)
        assert not await queue.redrive(_UNKNOWN)
        assert not await queue.delete(_UNKNOWN)

    async def test_a_task_of_another_queue_is_not_ours(self, ada: SharedMemoryStore) -> None:
        await ada.queue("jobs").put("a")
        task = await claim_all(ada.queue("jobs"))
        other = ada.queue("others")

        for call in (other.ack(task), other.retry(task), other.fail(task, "x"), other.renew(task), other.release(task)):
            with pytest.raises(ClaimLostError):
                await call

        await ada.queue("jobs").ack(task)

    @pytest.mark.parametrize("task", [None, "1234567890123456", 7, {}])
    async def test_what_is_no_receipt_is_refused(self, ada: SharedMemoryStore, task: Any) -> None:
        queue = ada.queue("jobs")

        for call in (queue.ack, queue.retry, queue.renew, queue.release):
            with pytest.raises(InvalidError, match="task"):
                await call(task)

    @pytest.mark.parametrize("token", [0, -1, 2**60])
    async def test_an_impossible_token_is_refused(self, ada: SharedMemoryStore, token: int) -> None:
        with pytest.raises(InvalidError, match="token"):
            await ada.queue("jobs").ack(Receipt(id=_UNKNOWN, token=token))

    async def test_impossible_counts_and_waits_are_refused(self, ada: SharedMemoryStore) -> None:
        queue: Any = ada.queue("jobs")

        for count in (0, -1, 1.5, True, 101):
            with pytest.raises(InvalidError, match="n"):
                await queue.claim_many(count)
        for wait in (-1, float("nan"), "long"):
            with pytest.raises(InvalidError, match="wait"):
                await queue.claim(wait=wait)
        with pytest.raises(InvalidError, match="state"):
            await queue.peek(state="done")
        with pytest.raises(InvalidError, match="concurrency"):
            await queue.work(print, concurrency=0)

    async def test_an_error_is_a_text_and_cut_short(self, ada: SharedMemoryStore) -> None:
        queue: Any = ada.queue("jobs")
        await queue.put("a")
        task = await claim_all(queue)

        with pytest.raises(InvalidError, match="error"):
            await queue.fail(task, None)
        await queue.fail(task, "é\n" * 5_000)

        (letter,) = await queue.dead()
        assert letter.error == "é\n" * 1_000

    async def test_namespaces_are_apart(self, hub: Hub, ada: SharedMemoryStore) -> None:
        elsewhere = hub.store(f"{ada.namespace}-b", actor="ada")
        await ada.queue("jobs").put("here", id="x")

        assert await elsewhere.queue("jobs").claim() is None
        assert (await elsewhere.queue("jobs").put("there", id="x")).is_new
        assert (await claim_all(ada.queue("jobs"))).payload == "here"
        await hub.store(elsewhere.namespace).clear()

    async def test_a_queue_takes_the_right_to_write_its_name(self, hub: Hub, ada: SharedMemoryStore) -> None:
        stranger = hub.store("elsewhere", actor="eve", subscribe=(ada.namespace,))

        with pytest.raises(AccessDeniedError, match="may not write"):
            stranger.queue(f"{ada.namespace}:shared:jobs")
