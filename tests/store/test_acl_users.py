"""docs/security.md: an agent that logs in as its Redis ACL user has its rights through the library, and no more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator
from pathlib import Path

import pytest
from redis.asyncio import Redis
from redis.exceptions import NoPermissionError
from support import embedded_fixtures
from support.waiting import wait_until

from sharedmem import AccessDeniedError, Change, Hub, Settings, SharedMemoryStore
from sharedmem.data.change_feed import Consumer

data_dir = embedded_fixtures.data_dir
PASSWORD = "correct horse"


@pytest.fixture
async def operator(data_dir: Path) -> AsyncIterator[Hub]:
    async with Hub.open(settings=Settings(data_dir=data_dir)) as hub:
        yield hub


@pytest.fixture
async def limited(operator: Hub) -> AsyncIterator[Hub]:
    """A hub logged in as the user made for actor `ada` of `research`, who is also granted `news:today`."""
    ada = operator.store("research", actor="ada", grants=("news:today*",))
    await ada.access.apply("ada", password=PASSWORD)
    settings = operator.settings.replace(redis_url=operator.url, redis_username="ada", redis_password=PASSWORD)
    async with Hub.open(settings=settings) as hub:
        yield hub


def as_ada(hub: Hub) -> SharedMemoryStore:
    return hub.store("research", actor="ada", grants=("news:today*",))


async def first_of(changes: AsyncIterable[Change]) -> Change:
    return await anext(aiter(changes))


async def has_dead_letters(consumer: Consumer) -> bool:
    return bool(await consumer.dead_letters())


async def stopped(task: asyncio.Task[Change]) -> None:
    task.cancel()
    await asyncio.wait([task])


async def test_an_acl_user_sees_which_names_are_in_use_in_its_namespace_alone(operator: Hub, limited: Hub) -> None:
    bob, ada = operator.store("research", actor="bob"), as_ada(limited)
    await operator.store("news", actor="carl").lease_acquire("press", lease=60)
    await bob.lease_acquire("index", lease=60)
    await bob.queue("jobs").put(1)
    await ada.lease_acquire("gate", lease=60)

    assert [one.name for one in (await ada.coordination_names()).entries] == ["gate", "index"]
    assert await ada.queues() == ["jobs"]
    # Nothing has looked through the data of earlier versions, which this user may not.
    await operator.store("research").clear()
    assert (await ada.coordination_names()).entries == []


async def test_an_acl_user_has_conversations_of_its_own(operator: Hub, limited: Hub) -> None:
    ada, bob = as_ada(limited).conversations, operator.store("research", actor="bob").conversations
    await bob.append("talk", ["his"], entry_ids=["e0"])

    await ada.append("talk", [1, 2], entry_ids=["a", "b"], state={"n": 1}, tags={"user": "u"}, ttl=60, renew=True)
    await ada.fork("talk", "other", at="a")
    await ada.pop("talk", 2)
    await ada.replace_suffix("other", "a", [3])

    assert [entry.value for entry in (await ada.read("other")).entries] == [1, 3]
    assert (await ada.state("other")).fields == {"n": 1}
    assert [found.key for found in (await ada.list(user="u")).conversations] == [
        "research:ada:other",
        "research:ada:talk",
    ]
    for call in (
        ada.read("research:bob:talk"),  # the server asks for the right to write every key of a script
        ada.append("research:bob:talk", ["hers"]),
        ada.fork("research:bob:talk", "copy"),
    ):
        with pytest.raises(AccessDeniedError):
            await call
    assert await ada.delete("talk")
    assert await ada.delete("other")


async def test_an_acl_user_can_do_what_its_actor_may(limited: Hub) -> None:
    ada = as_ada(limited)

    version = await ada.write("plan", "read")
    await ada.write("plan", "write", if_version=version)
    await ada.shared.append("log", "done")
    await ada.hset("facts", "depth_m", 12.5)
    await ada.sadd("topics", "tides")
    await ada.incr("documents")
    await ada.write("global:news", "seen")
    await ada.write("news:today:weather", "rain")

    assert await ada.read("plan") == "write"
    assert await ada.shared.read_list("log") == ["done"]
    assert await ada.spop("topics") == "tides"
    assert await ada.delete("facts")


async def test_an_acl_user_hears_messages_and_follows_changes(limited: Hub) -> None:
    ada = as_ada(limited)
    version = await ada.write("plan", "read")
    await ada.write("plan", "write")

    async with ada.subscription("news") as messages:
        await ada.publish("news", "rain")
        assert (await anext(messages)).value == "rain"
    change = await anext(aiter(ada.watch(since=version)))

    assert change.key == "research:ada:plan"


async def test_an_acl_user_can_bury_a_change_that_was_delivered_too_often(limited: Hub) -> None:
    ada = as_ada(limited)
    await ada.write("plan", "read")
    async with ada.consumer("readers", "first", since=0, idle=0.001, max_deliveries=1) as first:
        await anext(aiter(first))

        async with ada.consumer("readers", "second", idle=0.001, max_deliveries=1) as second:
            reading = asyncio.create_task(first_of(second))
            await wait_until(lambda: has_dead_letters(second), description="the change is buried")
            await stopped(reading)

            assert [change.key for change in await second.dead_letters()] == ["research:ada:plan"]


async def test_an_acl_user_agrees_with_others(limited: Hub, operator: Hub) -> None:
    ada, bob = as_ada(limited), operator.store("research", actor="bob")

    async with ada.lock("index") as lease, ada.semaphore("gpu", 2), ada.leader("planner") as candidacy:
        waiting = asyncio.create_task(taken(bob))
        await wait_until(lambda: a_caller_waits(ada), description="bob waits in line")
        await candidacy.elected()
    assert await waiting > lease.token
    async with bob.lock("index"):
        called = asyncio.create_task(taken(ada))
        await wait_until(lambda: a_caller_waits(bob), description="ada waits in line")
    assert await called > lease.token

    assert await ada.once("report", lambda: "done", ttl=60) == "done"
    assert (await ada.rate_limit("calls", limit=1, per=60).take()).allowed
    async with ada.presence.here(role="reader"):
        assert [present.actor for present in await bob.presence.list()] == ["ada"]
    arrivals = await asyncio.gather(ada.barrier("start", 2).wait(), bob.barrier("start", 2).wait())
    assert len(arrivals) == 2


async def test_an_acl_user_decides_and_remembers(limited: Hub) -> None:
    ada = as_ada(limited)

    saved = await ada.decisions.save_if_new("desk", "BTC", "BUY", 0.8, "a new high")
    async with ada.decisions.executing("desk", saved.plan.plan_id) as execution:
        await execution.finish(status="success", order_id="A-1")
    await ada.episodes.append_event("desk", "the order went through")

    assert (await ada.decisions.get_execution_stats("desk")).win_rate == 1
    assert await ada.episodes.retrieve("order") == ["the order went through"]


async def test_an_acl_user_takes_no_part_where_its_actor_may_not(operator: Hub, limited: Hub) -> None:
    async with operator.store("payroll").lock("month"):
        stranger = as_ada(limited)

        with pytest.raises(AccessDeniedError, match="may not write 'payroll:shared:month'"):
            async with stranger.lock("payroll:shared:month"):
                raise AssertionError("it is not hers")
        # Past the library, which would not even ask:
        trespasser = limited.store("payroll")
        with pytest.raises(AccessDeniedError):
            await trespasser.queue("orders").put(1)
        with pytest.raises(AccessDeniedError):
            await trespasser.decisions.save_plan("desk", "BTC", "BUY", 0.8, "a new high")


async def taken(store: SharedMemoryStore) -> int:
    async with store.lock("index") as lease:
        return lease.token


async def a_caller_waits(store: SharedMemoryStore) -> bool:
    return (await store.lease_state("index")).waiting > 0


async def test_a_grant_for_one_queue_reaches_its_results_and_no_other_queue(operator: Hub) -> None:
    grants = ("desk:shared:jobs",)
    await operator.store("research", actor="eve", grants=grants).access.apply("eve", password=PASSWORD)
    await operator.store("desk").queue("desk:shared:jobs:secret").put("a", id="x", unique_for=60)
    settings = operator.settings.replace(redis_url=operator.url, redis_username="eve", redis_password=PASSWORD)

    async with Hub.open(settings=settings) as hub:
        queue = hub.store("research", actor="eve", grants=grants).queue("desk:shared:jobs")
        put = await queue.put("b", id="x", unique_for=60)
        task = await queue.claim(wait=10)
        assert task is not None
        await queue.ack(task, "done")
        assert (await queue.result(put.id)).value == "done"
        with pytest.raises(AccessDeniedError):
            await hub.store("desk").queue("desk:shared:jobs:secret").stats()


async def test_the_server_refuses_an_acl_user_what_the_library_would(operator: Hub, limited: Hub) -> None:
    await operator.store("payroll").write("salaries", [1, 2])

    with pytest.raises(AccessDeniedError):
        await limited.store("payroll").read("salaries")
    with pytest.raises(AccessDeniedError):
        await limited.store("research").write("research:bob:plan", "forged")


async def test_the_server_refuses_a_raw_client_of_an_acl_user_what_leads_past_its_keys(
    operator: Hub, limited: Hub
) -> None:
    await operator.store("payroll").write("salaries", [1, 2])
    raw = Redis.from_url(limited.url, username="ada", password=PASSWORD)

    for command in ("GET sm:{payroll}:shared:salaries", "SCAN 0", "KEYS *", "RANDOMKEY", "FLUSHALL", "CONFIG GET *"):
        with pytest.raises(NoPermissionError):
            await raw.execute_command(*command.split())  # type: ignore[no-untyped-call]  # redis-py has not typed it
    await raw.aclose()
