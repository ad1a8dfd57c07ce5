"""Once, rate limits, presence and barriers when a reply is lost: the call is repeated, and has happened once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, pairwise
from typing import Any

import pytest
from redis import Redis
from support.chaos_proxy import ChaosProxy
from support.faulty_hubs import hub_without_ids, persistent_settings
from support.footprint import read_changes
from support.waiting import wait_until

from sharedmem import BarrierError, Hub, LockHeldError, SharedMemoryError, SharedMemoryStore
from sharedmem.redis.scripts import scripts

NAMESPACE, CALM = "storm", "calm"
PATIENCE_S = 1.0


@dataclass(frozen=True)
class Scene:
    """One call through the storm, beside a store that no fault reaches."""

    store: SharedMemoryStore
    direct: SharedMemoryStore
    raw: Redis
    is_over: Callable[[], bool] = lambda: True
    """Whether all replies that were to be lost are lost."""

    def key(self, part: str, name: str) -> str:
        return f"sm:{{{self.store.namespace}}}:${part}:shared{name}"

    async def changes(self) -> list[tuple[bytes, bytes]]:
        """What is on the change feed."""
        found = read_changes(self.raw, self.store.namespace)
        return [(change.operation.encode(), change.key.rpartition(":")[2].encode()) for change in found]


Act = Callable[[Scene], Awaitable[object]]


async def runs_once(scene: Scene) -> object:
    runs = count(1)
    result = await scene.store.once("k", lambda: next(runs), ttl=600, wait=PATIENCE_S)
    state = await scene.direct.once_state("k")
    return result, next(runs), state.state, state.attempt


async def keeps_its_lease(scene: Scene) -> object:
    seen: list[float] = []

    async def is_prolonged() -> bool:
        seen.append((await scene.direct.once_state("k")).remaining)
        return scene.is_over() and any(later > earlier for earlier, later in pairwise(seen))

    async def work() -> str:
        await wait_until(is_prolonged, description="the lease was prolonged")
        return "done"

    return await scene.store.once("k", work, ttl=600, lease=2.0)


async def fails(scene: Scene) -> object:
    def work() -> object:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await scene.store.once("k", work, ttl=600)
    state = await scene.direct.once_state("k")
    return state.state, state.attempt, await scene.direct.once("k", lambda: "next", ttl=600)


async def leaves_the_line(scene: Scene) -> object:
    may_end, begun = asyncio.Event(), asyncio.Event()

    async def work() -> str:
        begun.set()
        await may_end.wait()
        return "done"

    running = asyncio.create_task(scene.direct.once("k", work, ttl=600))
    await begun.wait()
    with pytest.raises(LockHeldError):
        await scene.store.once("k", work, ttl=600, wait=0.05)
    left = scene.raw.zcard(scene.key("once.waiters", ":k"))
    may_end.set()
    return left, await running


async def finishes_call_by_call(scene: Scene) -> object:
    begun = await scene.store.once_begin("k", lease=60)
    await scene.store.once_finish("k", begun.token, "done", ttl=600)
    return begun.attempt, await scene.direct.once("k", lambda: "never", ttl=600)


async def fails_call_by_call(scene: Scene) -> object:
    begun = await scene.store.once_begin("k", lease=60)
    return await scene.store.once_fail("k", begun.token), (await scene.direct.once_state("k")).state


async def forgets(scene: Scene) -> object:
    await scene.direct.once("k", lambda: 1, ttl=600)
    return await scene.store.once_delete("k"), (await scene.direct.once_state("k")).state


async def takes_of_a_window(scene: Scene) -> object:
    permit = await scene.store.rate_limit("l", limit=5, per=600).take(2)
    return permit, (await scene.direct.rate_limit("l", limit=5, per=600).state()).remaining


async def takes_of_a_bucket(scene: Scene) -> object:
    def limit(store: SharedMemoryStore) -> Any:
        return store.rate_limit("l", limit=5, per=6000, algorithm="token_bucket")

    return await limit(scene.store).take(2), (await limit(scene.direct).state()).remaining


async def comes(scene: Scene) -> object:
    await scene.store.presence.announce(role="planner")
    return [one.actor for one in await scene.direct.presence.list()], await scene.changes()


async def goes(scene: Scene) -> object:
    await scene.direct.presence.announce()
    return await scene.store.presence.leave(), await scene.direct.presence.list(), await scene.changes()


async def tells_of_a_lapse(scene: Scene) -> object:
    await scene.direct.presence.announce()
    scene.raw.zadd(scene.key("presence", ""), {"a": 1})
    return await scene.store.presence.list(), await scene.changes()


async def comes_last(scene: Scene) -> object:
    first = asyncio.create_task(scene.direct.barrier("b", 2).wait())
    await wait_until(lambda: waits_at(scene, 1), description="one waits")
    last = await scene.store.barrier("b", 2).wait(timeout=PATIENCE_S)
    return (await first).position, last.position, await scene.direct.barrier("b", 2).waiting()


async def finds_it_open(scene: Scene) -> object:
    first = asyncio.create_task(scene.store.barrier("b", 2).wait(timeout=PATIENCE_S))
    await wait_until(lambda: waits_at(scene, 1), description="one waits")
    last = await scene.direct.barrier("b", 2).wait()
    return (await first).position, last.position, await scene.direct.barrier("b", 2).waiting()


async def goes_away(scene: Scene) -> object:
    with pytest.raises(BarrierError) as closed:
        await scene.store.barrier("b", 3).wait(timeout=0)
    return closed.value.came, await scene.direct.barrier("b", 3).waiting()


async def waits_at(scene: Scene, number: int) -> bool:
    return await scene.direct.barrier("b", 2).waiting() == number


ACTS: list[tuple[str, Act]] = [
    ("once_begin", runs_once),
    ("once_finish", runs_once),
    ("once_renew", keeps_its_lease),
    ("once_release", fails),
    ("once_leave", leaves_the_line),
    ("once_forget", forgets),
    ("limit_window_take", takes_of_a_window),
    ("limit_bucket_take", takes_of_a_bucket),
    ("presence_beat", comes),
    ("presence_leave", goes),
    ("presence_lapse", tells_of_a_lapse),
    ("barrier_arrive", comes_last),
    ("barrier_stay", finds_it_open),
    ("barrier_leave", goes_away),
]
# A repeat of these does the same again.
HARMLESS = {"once_renew", "once_release", "once_leave", "presence_beat", "presence_lapse", "barrier_leave"}


def each(acts: list[tuple[str, Act]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("script", "act"), acts, ids=[script for script, _ in acts])


async def played(act: Act, hub: Hub, direct: Hub, raw: Redis, *, namespace: str, **terms: Any) -> object:
    return await act(Scene(hub.store(namespace, actor="a"), direct.store(namespace, actor="a"), raw, **terms))


def lose(proxy: ChaosProxy, script: str, times: int) -> None:
    proxy.lose_replies(scripts()[script].digest.encode(), times)


@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])
@each(ACTS)
async def test_a_call_whose_reply_was_lost_has_happened_once(
    script: str, act: Act, times: int, direct: Hub, proxy: ChaosProxy, raw: Redis
) -> None:
    calm = await played(act, direct, direct, raw, namespace=CALM)

    async with Hub.open(settings=persistent_settings(proxy.url)) as hub:
        lose(proxy, script, times)
        stormy = await played(act, hub, direct, raw, namespace=NAMESPACE, is_over=lambda: proxy.cuts == times)

    assert stormy == calm
    assert proxy.cuts == times


@each([(script, act) for script, act in ACTS if script not in HARMLESS])
async def test_control_without_operation_ids_a_lost_reply_shows(
    script: str, act: Act, direct: Hub, proxy: ChaosProxy, raw: Redis
) -> None:
    calm = await played(act, direct, direct, raw, namespace=CALM)

    async with hub_without_ids(persistent_settings(proxy.url)) as hub:
        lose(proxy, script, 1)
        stormy: object = None
        with suppress(SharedMemoryError):
            stormy = await played(act, hub, direct, raw, namespace=NAMESPACE)

    assert stormy != calm
