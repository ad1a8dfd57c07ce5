"""A call on a queue whose reply was lost is repeated, and has happened once; what happens without the ids."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from redis import Redis
from support.chaos_proxy import ChaosProxy
from support.faulty_hubs import hub_without_ids, persistent_settings

from sharedmem import ClaimLostError, Hub, Task, TaskQueue
from sharedmem.redis.scripts import scripts

NAMESPACE, CALM = "storm", "calm"
_VERSION = re.compile(rb"\d{16}")
Act = Callable[[TaskQueue, list[Task]], Awaitable[object]]


@dataclass(frozen=True)
class Mutator:
    """One call on a queue; `claims` of the three tasks in it are claimed before, by a hub that no fault reaches."""

    name: str
    script: str
    act: Act
    claims: int = 0
    prepare: Act = field(default=lambda _q, _t: asyncio.sleep(0))
    visibility: float = 30.0
    repeats_harmlessly: bool = False
    """Whether it is invisible that it happened twice."""


async def facts(tasks: Awaitable[list[Task]]) -> list[object]:
    return [(task.payload, task.attempt, task.error) for task in await tasks]


async def fail_all(queue: TaskQueue, tasks: list[Task]) -> None:
    for task in tasks:
        await queue.fail(task, "broken")


async def given_up(queue: TaskQueue, _: list[Task]) -> object:
    """A claim that waits in vain: the queue is paused."""
    await queue.pause()
    return await queue.claim(wait=0.02)


async def followed(queue: TaskQueue, tasks: list[Task]) -> object:
    return (await queue.result(tasks[0].id, wait=0.02)).state


async def renewed(queue: TaskQueue, tasks: list[Task]) -> bool:
    return await queue.renew(tasks[0]) > 0


async def recovered(queue: TaskQueue, _: list[Task]) -> object:
    await asyncio.sleep(0.06)
    return await facts(queue.claim_many(5))


MUTATORS = [
    Mutator("put", "queue_put", lambda q, _: q.put("new")),
    Mutator("put later", "queue_put", lambda q, _: q.put("new", delay=60)),
    Mutator("put_many", "queue_put", lambda q, _: q.put_many(range(3))),
    Mutator("put under an id", "queue_offer", lambda q, _: q.put("new", id="x", unique_for=60)),
    Mutator("claim", "queue_claim", lambda q, _: facts(q.claim_many(1))),
    Mutator("claim_many", "queue_claim", lambda q, _: facts(q.claim_many(2))),
    Mutator("claim what is overdue", "queue_recover", recovered, 2, visibility=0.05, repeats_harmlessly=True),
    Mutator("renew", "queue_renew", renewed, 1, repeats_harmlessly=True),
    Mutator("ack", "queue_ack", lambda q, t: q.ack(t[0], {"rows": 3}), 1),
    Mutator("retry", "queue_retry", lambda q, t: q.retry(t[0], error="no", delay=0), 1),
    Mutator("retry later", "queue_retry", lambda q, t: q.retry(t[0], error="no", delay=60), 1),
    Mutator("fail", "queue_retry", lambda q, t: q.fail(t[0], "never"), 1),
    Mutator("release", "queue_release", lambda q, t: q.release(t[0]), 1),
    Mutator("give up waiting", "queue_leave", given_up, repeats_harmlessly=True),
    Mutator("pause", "queue_pause", lambda q, _: q.pause()),
    Mutator("resume", "queue_pause", lambda q, _: q.resume(), prepare=lambda q, _: q.pause()),
    Mutator("redrive", "queue_redrive", lambda q, t: q.redrive(t[0].id), 1, fail_all),
    Mutator("redrive_all", "queue_redrive", lambda q, _: q.redrive_all(), 2, fail_all),
    Mutator("delete", "queue_discard", lambda q, t: q.delete(t[0].id), 1),
    Mutator("wait for an outcome", "queue_follow", followed, 1, repeats_harmlessly=True),
]
each_mutator = pytest.mark.parametrize("mutator", MUTATORS, ids=lambda mutator: mutator.name)


async def trace(mutator: Mutator, namespace: str, hub: Hub, direct: Hub, raw: Redis) -> object:
    """What a mutator answers and leaves behind; only the call itself goes through the given hub."""
    calm = direct.store(namespace, actor="a").queue("jobs", visibility=mutator.visibility)
    await calm.put_many(["one", "two", "three"])
    tasks = await calm.claim_many(mutator.claims) if mutator.claims else []
    await mutator.prepare(calm, tasks)
    queue = hub.store(namespace, actor="a").queue("jobs", visibility=30.0)
    answer = await mutator.act(queue, tasks)
    return re.sub(r"\d{16}", "#", repr(answer)), contents(raw, namespace), (await calm.stats()).counters


def contents(raw: Redis, namespace: str) -> dict[bytes, object]:
    """The keys of the queues of a namespace and what they hold, without times."""
    client: Any = raw  # redis-py types its answers for both of its faces at once
    head = f"sm:{{{namespace}}}:$queue.".encode()
    reading: dict[bytes, Callable[[bytes], object]] = {
        b"hash": lambda key: sorted(client.hvals(key)),
        b"zset": client.zcard,
        b"string": client.get,
    }
    held: dict[bytes, object] = {}
    for key in client.scan_iter(head + b"*", count=1000):
        shown = reading[client.type(key)](key)
        name = _VERSION.sub(b"#", key.removeprefix(head))
        held[name] = _VERSION.sub(b"#", repr(shown).encode()), client.pttl(key) > 0
    return held


@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])
@each_mutator
async def test_a_call_on_a_queue_whose_reply_was_lost_has_happened_once(
    mutator: Mutator, times: int, direct: Hub, proxy: ChaosProxy, raw: Redis
) -> None:
    calm = await trace(mutator, CALM, direct, direct, raw)

    async with Hub.open(settings=persistent_settings(proxy.url)) as hub:
        proxy.lose_replies(scripts()[mutator.script].digest.encode(), times)
        stormy = await trace(mutator, NAMESPACE, hub, direct, raw)

    assert stormy == calm
    assert proxy.cuts == times


@pytest.mark.parametrize("mutator", [one for one in MUTATORS if not one.repeats_harmlessly], ids=lambda one: one.name)
async def test_control_without_operation_ids_a_lost_reply_shows(
    mutator: Mutator, direct: Hub, proxy: ChaosProxy, raw: Redis
) -> None:
    calm = await trace(mutator, CALM, direct, direct, raw)

    async with hub_without_ids(persistent_settings(proxy.url)) as hub:
        proxy.lose_replies(scripts()[mutator.script].digest.encode())
        try:
            stormy = await trace(mutator, NAMESPACE, hub, direct, raw)
        except ClaimLostError:
            return  # it was told that its own claim is gone

    assert stormy != calm


async def test_a_large_task_whose_replies_were_lost_is_put_and_claimed_once(direct: Hub, proxy: ChaosProxy) -> None:
    async with Hub.open(settings=persistent_settings(proxy.url)) as hub:
        queue = hub.store(NAMESPACE, actor="a").queue("jobs")
        for script in ("queue_put", "queue_claim", "queue_ack"):
            proxy.lose_replies(scripts()[script].digest.encode())
        put = await queue.put("x" * 100_000)
        task = await queue.claim()
        assert task is not None
        await queue.ack(task, "y" * 100_000)

        assert (task.id, task.payload, task.attempt) == (put.id, "x" * 100_000, 1)
        assert (await direct.store(NAMESPACE).queue("jobs").result(put.id)).value == "y" * 100_000
        assert (await queue.stats()).counters.put == 1
    assert proxy.cuts == 3


async def test_tasks_that_share_a_call_whose_reply_was_lost_are_put_and_acknowledged_once(
    direct: Hub, proxy: ChaosProxy
) -> None:
    async with Hub.open(settings=persistent_settings(proxy.url)) as hub:
        queue = hub.store(NAMESPACE, actor="a").queue("jobs")
        for script in ("queue_put", "queue_ack"):
            proxy.lose_replies(scripts()[script].digest.encode(), 2)
        put = await asyncio.gather(*(queue.put(number) for number in range(40)))
        tasks = await queue.claim_many(100)
        assert {task.id: task.payload for task in tasks} == {one.id: number for number, one in enumerate(put)}
        await asyncio.gather(*(queue.ack(task, task.payload) for task in tasks))

        seen = direct.store(NAMESPACE).queue("jobs")
        assert [(await seen.result(one.id)).value for one in put] == list(range(40))
        assert (await seen.stats()).counters.done == 40
    assert proxy.cuts == 4
