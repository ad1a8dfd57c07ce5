"""Workers of synthesis are killed with -9: every task is done once all the same, and every message is kept."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.agent_processes import running_agents
from support.redis_process import RedisProcess
from support.synthesis_harness import (
    ScriptedAgents,
    SynthesisHarness,
    make_synthesis_harness,
    note_request,
    numbered_fact,
)
from support.synthesis_processes import MODULE, NAMESPACE, VISIBILITY_S, chosen
from support.waiting import wait_until

from sharedmem import Hub

MANY = 500
USERS = 250
TOPIC, KILLS = 24, 6
_TESTS = Path(__file__).resolve().parent.parent


@pytest.fixture
async def bench(bare_server: RedisProcess) -> AsyncIterator[SynthesisHarness]:
    async with Hub.open(settings=chosen(bare_server.url)) as hub:
        yield make_synthesis_harness(hub.store(NAMESPACE), ScriptedAgents(), visibility=VISIBILITY_S)


async def test_five_hundred_tasks_outlive_the_worker_that_was_killed_over_them(
    bench: SynthesisHarness, bare_server: RedisProcess
) -> None:
    requests = [note_request(numbered_fact(number), user_id=f"user-{number % USERS}") for number in range(MANY)]
    tasks = await asyncio.gather(*(bench.intake.put(request) for request in requests))

    async def some_are_done() -> bool:
        stats = await bench.intake.queue.stats()
        return stats.counters.done >= MANY // 5 and stats.claimed > 0

    async with running_agents(1, "work", bare_server.url, module=MODULE) as (worker,):
        await wait_until(some_are_done, description="a fifth is done", within_s=60)
        worker.kill()
        await worker.rest()

    async with running_agents(1, "work", bare_server.url, module=MODULE):
        done = await asyncio.gather(*(bench.intake.wait(task.task_id, timeout=60) for task in tasks))

    assert [task for task in done if task.status != "done"] == []
    notes = {note.id for note in await bench.notes()}
    assert notes >= {f"note-{task.task_id}" for task in tasks}
    assert len({(note.task_id, note.memory_note) for note in await bench.notes()}) == len(notes)
    await bench.check(facts=[numbered_fact(number) for number in range(MANY)])


async def test_a_topic_on_which_worker_after_worker_is_killed_ends_in_one_head(
    bench: SynthesisHarness, bare_server: RedisProcess
) -> None:
    tasks = [await bench.intake.put(note_request(numbered_fact(number))) for number in range(TOPIC)]
    words = (sys.executable, "-m", MODULE, "phoenix", bare_server.url, str(KILLS))
    environment = os.environ | {"PYTHONPATH": str(_TESTS)}
    phoenix = await asyncio.create_subprocess_exec(*words, env=environment, start_new_session=True)
    try:
        done = await asyncio.gather(*(bench.intake.wait(task.task_id, timeout=60) for task in tasks))
    finally:
        os.killpg(phoenix.pid, signal.SIGKILL)
        await phoenix.wait()

    assert [task for task in done if task.status != "done"] == []
    (head,) = await bench.heads()
    assert [number for number in range(TOPIC) if numbered_fact(number) not in head.memory_note] == []
    assert len(await bench.notes()) == 2 * TOPIC - 1
    await bench.check(facts=[numbered_fact(number) for number in range(TOPIC)])


async def test_a_worker_killed_under_the_locks_leaves_a_task_that_another_one_ends(
    bench: SynthesisHarness, bare_server: RedisProcess
) -> None:
    panel = bench.agents
    assert isinstance(panel, ScriptedAgents)
    first = await bench.intake.put(note_request(numbered_fact(1)))
    await bench.worker.work_once()
    second = await bench.intake.put(note_request(numbered_fact(2)))

    async with running_agents(1, "stall", bare_server.url, module=MODULE) as (worker,):
        assert await worker.line() == ["judging", f"note-{second.task_id}"]
        assert sorted(note.status for note in await bench.heads()) == ["active", "conflict_pending"]
        worker.kill()
        await worker.rest()

    # What it held comes free by itself: the task soon, the locks when their lease has ended.
    await wait_until(bench.worker.work_once, description="another worker has the task", within_s=60)
    done = await bench.intake.status(second.task_id)

    assert (done.status, done.attempts) == ("done", 2)
    assert panel.calls["episodic"] == 1
    (head,) = await bench.heads()
    assert head.id == f"note-{second.task_id}-s"
    assert (await bench.intake.status(first.task_id)).status == "done"
    await bench.check(facts=[numbered_fact(1), numbered_fact(2)])
