"""Looking at the durable tier: how it is, and whether Redis and the tier say the same."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import fakeredis
import pytest
from support.contexts import client_of, tier_of

from sharedmem import Hub, Settings, SharedMemoryStore
from sharedmem.hub.composition import Connect
from sharedmem.hub.composition import connect as connect_to_server
from sharedmem.models import Verification
from sharedmem.redis.client import RedisClient
from sharedmem.testing.fakes import connect_to_fake

TEAM = "team"


@pytest.fixture(params=["fakeredis", "real server"])
def connect(request: pytest.FixtureRequest) -> Connect:
    """To a server of the test's own: a tier behind the shared one would stand behind every other test."""
    return connect_to_fake(fakeredis.FakeServer()) if request.param == "fakeredis" else connect_to_server


@pytest.fixture
def settings() -> Iterator[Settings]:
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="sm"))
    yield Settings(data_dir=folder, durable_url=f"sqlite://{folder}/tier.db", embedded_modules=())
    shutil.rmtree(folder)


@pytest.fixture
async def hub(connect: Connect, settings: Settings) -> AsyncIterator[Hub]:
    async with Hub(settings=settings, connect=connect) as hub:
        yield hub


@pytest.fixture
def store(hub: Hub) -> SharedMemoryStore:
    return hub.store(TEAM)


@pytest.fixture
def line(hub: Hub) -> RedisClient:
    """A raw way to the server, for tests that spoil things."""
    return client_of(hub)


def place(key: str) -> str:
    return f"sm:{{{TEAM}}}:shared:{key}"


async def fill(hub: Hub) -> None:
    store = hub.store(TEAM)
    await store.write("note", {"a": 1.5, "b": [None, True]}, kind="knowledge")
    await store.write("photo", b"\x00\xff", kind="knowledge", ttl=5000)
    await store.write("talk", "hello", kind="session")
    for number in range(12):
        await store.append("log", number, max_length=10, kind="session")
    await store.hset("facts", mapping={"a": 1, "b": {"c": 2}}, kind="knowledge")
    await store.hincrby("facts", "n", 3)
    await store.sadd("tags", "x", "y", b"z", kind="knowledge")
    await store.incr("seen", kind="knowledge")
    await store.write("scratch", 1)
    await store.delete("talk")
    plan = await store.decisions.save_plan("desk", "BTC", "BUY", 0.75, "trend")
    await store.decisions.save_plan("desk", "BTC", "BUY", 0.75, "trend")
    await store.decisions.save_plan("desk", "ETH", "SELL", 1.0, "news")
    claim = await store.decisions.begin_execution("desk", plan)
    await store.decisions.finish("desk", plan, claim.fence, status="success")
    await hub.durable.drain()


def told(found: Verification) -> list[tuple[str, str, str, str, str]]:
    return [(one.key.rpartition(":")[2], one.element, one.what, one.redis, one.tier) for one in found.differences]


# -- verify ---------------------------------------------------------------------------------------


async def test_both_sides_hold_the_same_however_it_came_about(hub: Hub) -> None:
    await fill(hub)

    found = await hub.durable.verify(TEAM)

    assert found.differences == []
    assert (found.keys, found.waiting) == (8, 0)


async def test_what_was_lost_here_is_no_difference(hub: Hub, line: RedisClient) -> None:
    await fill(hub)
    await line.call("UNLINK", place("log"), place("note"))

    assert (await hub.durable.verify(TEAM)).differences == []


async def test_what_came_back_is_the_same(hub: Hub, line: RedisClient) -> None:
    await fill(hub)
    await line.call("FLUSHALL")

    assert await hub.durable.restore(TEAM) == 7

    assert (await hub.durable.verify(TEAM)).differences == []


async def test_a_value_that_was_changed_behind_our_back_is_named(
    hub: Hub, store: SharedMemoryStore, line: RedisClient
) -> None:
    version = await store.write("note", {"a": 1}, kind="knowledge")
    await hub.durable.drain()
    await line.call("SET", place("note"), f'{version} {TEAM} json\n{{"a":2}}')

    (one,) = (await hub.durable.verify(TEAM)).differences

    assert (one.key, one.what) == (f"{TEAM}:shared:note", "value")
    assert one.redis.endswith('{"a":2}')
    assert one.tier.endswith('{"a":1}')


async def test_elements_that_differ_are_named_one_by_one(hub: Hub, line: RedisClient) -> None:
    await fill(hub)
    await line.call("LSET", place("log"), 3, "99")
    await line.call("HSET", place("facts"), "a", "7")
    await line.call("SREM", place("tags"), '"x"')
    await line.call("SET", place("seen"), "5")

    found = told(await hub.durable.verify(TEAM))

    assert found == [
        ("facts", "a", "element", "7", "1"),
        ("log", "3", "element", "99", "5"),
        ("seen", "", "value", "5", "1"),
        ("tags", "", "size", "2", "3"),
        ("tags", '"x"', "element", "nothing", '"x"'),
    ]


async def test_another_type_and_another_end_are_named(hub: Hub, line: RedisClient) -> None:
    await fill(hub)
    await line.call("UNLINK", place("tags"))
    await line.call("RPUSH", place("tags"), "1")
    await line.call("PEXPIRE", place("log"), 50_000)

    found = (await hub.durable.verify(TEAM)).differences

    assert [(one.key.rpartition(":")[2], one.what) for one in found] == [("log", "expiry"), ("tags", "type")]
    assert found[1].redis == "list"


async def test_what_should_last_and_is_not_in_the_tier_is_named(
    hub: Hub, store: SharedMemoryStore, line: RedisClient, settings: Settings
) -> None:
    await fill(hub)
    await store.write("other", 1)
    with sqlite3.connect(f"{settings.durable_url}".removeprefix("sqlite://")) as file:
        (table,) = file.execute("SELECT name FROM sqlite_master WHERE sql LIKE '%element%' LIMIT 1").fetchone()
        file.execute(f"DELETE FROM {table} WHERE key LIKE ?", ("%:note",))
        file.execute(f"DELETE FROM {table} WHERE key LIKE ?", ("%:$plan:%",))
    file.close()

    found = told(await hub.durable.verify(TEAM))

    assert sorted(found) == [
        ("desk", "", "missing", "present", "nothing"),
        ("note", "", "missing", "present", "nothing"),
    ]


async def test_what_still_waits_is_counted_and_not_compared(hub: Hub, store: SharedMemoryStore) -> None:
    await fill(hub)
    relay = tier_of(hub).relay
    await relay.close()
    await store.write("note", 2)
    await store.write("fresh", 3, kind="knowledge")

    found = await hub.durable.verify(TEAM)

    assert found.differences == []
    assert found.waiting == 2


async def test_a_key_that_was_made_ephemeral_may_be_here_alone(hub: Hub, store: SharedMemoryStore) -> None:
    await store.write("note", 1, kind="knowledge")
    await store.write("note", 2, kind="ephemeral")
    await store.write("note", 3)
    await hub.durable.drain()

    assert (await hub.durable.verify(TEAM)).differences == []


async def test_progress_is_told_while_much_is_compared(hub: Hub, store: SharedMemoryStore) -> None:
    for number in range(100):
        await store.write(f"note-{number}", number, kind="knowledge")
    await hub.durable.drain()
    steps: list[int] = []

    assert (await hub.durable.verify(TEAM, steps.append)).keys == 100

    assert len(steps) > 2
    assert sorted(steps) == steps


# -- status ---------------------------------------------------------------------------------------


async def test_the_status_tells_where_it_is_and_what_waits(hub: Hub, settings: Settings) -> None:
    await fill(hub)

    status = await hub.durable.status()

    assert (status.url, status.reachable, status.problems) == (settings.durable_url, True, [])
    assert [(lag.namespace, lag.waiting, lag.dead) for lag in status.namespaces] == [(TEAM, 0, 0)]
    assert status.charges.writes > 0


async def test_the_status_of_a_tier_that_is_away_says_why(hub: Hub) -> None:
    await fill(hub)
    await tier_of(hub).store.close()

    status = await hub.durable.status()

    assert not status.reachable
    assert status.why
