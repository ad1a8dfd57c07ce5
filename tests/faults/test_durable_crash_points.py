"""A client or a server is killed at each step of one change that is to last: it has happened once, on both sides."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.chaos_proxy import ChaosProxy
from support.crash_rounds import read_all_keys
from support.durable_agents import PlannedCall
from support.invariants import Seen
from support.process_groups import AgentHandle, AgentPool, RewindableRedis
from support.waiting import wait_until

from sharedmem import Hub, Settings
from sharedmem.redis.scripts import scripts

NAMESPACE = "know"
Reported = Callable[[str], None]
LOOK = PlannedCall("look", "v0-0", "", 0)


async def fill(hub: Hub) -> None:
    """Everything is there before, and the tier has it."""
    store = hub.store(NAMESPACE)
    await store.write("v0-0", 1)
    await store.hset("h0-0", mapping={"f": 1, "g": 1})
    await store.sadd("s0-0", 0, 1)
    await store.append("l0-0", 1)
    await store.incr("count")
    await hub.durable.drain(NAMESPACE)


CALLS = {
    "write": (PlannedCall("write", "v0-0", "", 7), "value_write"),
    "write over a version": (PlannedCall("write_if", "v0-0", "", 7), "value_write"),
    "update": (PlannedCall("update", "v0-0", "", 7), "value_write"),
    "append": (PlannedCall("append", "l0-0", "7", 7), "collection_change"),
    "hset": (PlannedCall("hset", "h0-0", "f", 7), "collection_change"),
    "hdel": (PlannedCall("hdel", "h0-0", "f", 0), "collection_change"),
    "sadd": (PlannedCall("sadd", "s0-0", "2", 0), "collection_change"),
    "srem": (PlannedCall("srem", "s0-0", "1", 0), "collection_change"),
    "incr": (PlannedCall("incr", "count", "", 1), "collection_change"),
    "delete": (PlannedCall("delete", "h0-0", "", 0), "key_delete"),
}
each_call = pytest.mark.parametrize(("call", "script"), CALLS.values(), ids=CALLS)
both = pytest.mark.parametrize("durability", ["behind", "through"])


@pytest.fixture(scope="module")
def only_server() -> Iterator[RewindableRedis]:
    with RewindableRedis("always") as server:
        yield server


@pytest.fixture
def server(only_server: RewindableRedis) -> RewindableRedis:
    """It is empty, and has on disk what it has acknowledged."""
    only_server.tell("FLUSHALL")
    return only_server


@pytest.fixture
async def agent() -> AsyncIterator[AgentHandle]:
    """One that may be killed."""
    async with AgentPool() as agents:
        yield (await agents.take(1))[0]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tier.sqlite3"


class Scene:
    """One agent that makes one call, and its observers.

    Args:
        server: where.
        file: the tier.
        durability: whether callers wait for it.
    """

    def __init__(self, server: RewindableRedis, file: Path, durability: str) -> None:
        self.server = server
        self._chosen: dict[str, Any] = {
            "redis_url": server.url,
            "durable_url": f"sqlite://{file}",
            "data_dir": str(file.parent),
            "kind_rules": {"know*": "knowledge"},
            "knowledge_durability": durability,
            "retry_for_s": 30.0,
        }

    @asynccontextmanager
    async def hub(self) -> AsyncIterator[Hub]:
        """One that is not killed."""
        async with Hub.open(settings=Settings(**self._chosen)) as hub:
            yield hub

    def begin(
        self, agent: AgentHandle, call: PlannedCall, *, url: str | None = None, reported: Reported | None = None
    ) -> asyncio.Task[None]:
        """Let an agent make a call."""
        chosen = self._chosen | ({"redis_url": url} if url else {})
        order = {"settings": chosen, "broken": "", "namespace": NAMESPACE, "kind": None, "calls": [call]}
        return asyncio.create_task(agent.carry_out(order, reported or _ignore))

    async def expected(self, call: PlannedCall) -> Seen:
        """What is there after the call has happened once, in a place of its own."""
        async with self.hub() as hub:
            await fill(hub)
            seen = await read_all_keys(hub.store(NAMESPACE))
        return after(seen, call)

    async def check(self, expected: Seen) -> None:
        """What is expected is in Redis, and in the tier alone."""
        async with self.hub() as hub:
            store = hub.store(NAMESPACE)
            assert await read_all_keys(store) == expected
            await hub.durable.drain(NAMESPACE)
            verified = await hub.durable.verify(NAMESPACE)
            assert (verified.waiting, verified.differences) == (0, [])
            self.server.tell("FLUSHALL")
            assert await read_all_keys(store) == expected


def _ignore(_: str) -> None:
    """What the agent reports is of no interest."""


def after(seen: Seen, call: PlannedCall) -> Seen:
    """What keys hold once a call was made, decided by another one than the store."""
    value = seen[call.key]
    match call.what, value:
        case ("append", list()):
            value = [*value, call.value]
        case ("hset", dict()):
            value = value | {call.part: call.value}
        case ("hdel", dict()):
            value = {part: held for part, held in value.items() if part != call.part}
        case ("sadd", set()):
            value = value | {int(call.part)}
        case ("srem", set()):
            value = value - {int(call.part)}
        case ("incr", int()):
            value = value + 1
        case ("delete", dict()):
            value = {}
        case _:
            value = call.value
    return seen | {call.key: value}


# The client


@both
@each_call
async def test_a_client_that_is_killed_before_it_hears_of_its_change_has_made_it_once(
    server: RewindableRedis, file: Path, agent: AgentHandle, durability: str, call: PlannedCall, script: str
) -> None:
    scene = Scene(server, file, durability)
    expected = await scene.expected(call)
    async with ChaosProxy(server.url) as proxy:
        await scene.begin(agent, LOOK, url=proxy.url)
        proxy.lose_replies(scripts()[f"{script}.kept"].digest.encode())
        with proxy.refusing():
            work = scene.begin(agent, call, url=proxy.url)
            await proxy.cut.wait()
            agent.kill()
            await work

    assert [attempt.outcome for attempt in agent.attempts] == ["tried"]
    await scene.check(expected)


@both
@each_call
async def test_a_client_that_is_killed_as_soon_as_it_has_heard_of_its_change_leaves_it(
    server: RewindableRedis, file: Path, agent: AgentHandle, durability: str, call: PlannedCall, script: str
) -> None:
    assert script
    scene = Scene(server, file, durability)
    expected = await scene.expected(call)

    def kill_when_acknowledged(what: str) -> None:
        if what == "acknowledged":
            agent.kill()

    await scene.begin(agent, call, reported=kill_when_acknowledged)

    assert [attempt.outcome for attempt in agent.attempts] == ["acknowledged"]
    if durability == "through":
        # The tier has it whatever becomes of Redis.
        server.tell("FLUSHALL")
    await scene.check(expected)


# The server


@both
@each_call
async def test_a_server_that_is_killed_right_after_a_change_has_kept_it(
    server: RewindableRedis, file: Path, agent: AgentHandle, durability: str, call: PlannedCall, script: str
) -> None:
    assert script
    scene = Scene(server, file, durability)
    expected = await scene.expected(call)

    await scene.begin(agent, call)
    await asyncio.to_thread(server.restart)

    await scene.check(expected)


@both
@each_call
async def test_a_server_that_is_set_back_right_after_the_tier_has_a_change_loses_nothing(
    server: RewindableRedis, file: Path, agent: AgentHandle, durability: str, call: PlannedCall, script: str
) -> None:
    assert script
    scene = Scene(server, file, durability)
    expected = await scene.expected(call)
    position = server.position()

    await scene.begin(agent, call)
    if durability == "behind":
        async with scene.hub() as hub:
            await hub.durable.drain(NAMESPACE)
    await asyncio.to_thread(server.set_back, position)

    await scene.check(expected)


@both
async def test_a_server_that_is_killed_while_it_starts_does_not_block_clients(
    server: RewindableRedis, file: Path, agent: AgentHandle, durability: str
) -> None:
    call = CALLS["append"][0]
    scene = Scene(server, file, durability)
    expected = await scene.expected(call)
    await scene.begin(agent, LOOK)
    await asyncio.to_thread(server.kill)
    work = scene.begin(agent, call)
    for _ in range(3):
        await asyncio.to_thread(server.stumble)
    await asyncio.to_thread(server.start)

    await work

    assert agent.attempts[0].outcome == "acknowledged"
    await scene.check(expected)


# Between the two sides


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """No process can write to the tier inside the block."""
    with sqlite3.connect(file, isolation_level=None) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        yield
        connection.rollback()
    connection.close()


@pytest.mark.parametrize("loss", ["kill", "flush"])
@each_call
async def test_a_change_of_which_the_tier_is_just_told_outlives_the_server(
    server: RewindableRedis, file: Path, agent: AgentHandle, loss: str, call: PlannedCall, script: str
) -> None:
    assert script
    scene = Scene(server, file, "through")
    expected = await scene.expected(call)
    with locked(file):
        work = scene.begin(agent, call)
        await wait_until(lambda: _is_in_outbox(server), description="the change is on its way to the tier")
        if loss == "kill":
            await asyncio.to_thread(server.restart)
        else:
            server.tell("FLUSHALL")
    await work

    outcome = agent.attempts[0].outcome
    assert outcome == "acknowledged" or loss == "flush"
    before = await scene_before(scene, call, expected) if outcome != "acknowledged" else expected
    await scene.check(before)


async def scene_before(scene: Scene, call: PlannedCall, expected: Seen) -> Seen:
    """Nothing was promised: it has happened, or it has not."""
    async with scene.hub() as hub:
        found = await read_all_keys(hub.store(NAMESPACE))
    assert {key for key in found if found[key] != expected[key]} <= {call.key}
    return found


def _is_in_outbox(server: RewindableRedis) -> bool:
    return bool(server.tell("XLEN", f"sm:{{{NAMESPACE}}}:$outbox"))
