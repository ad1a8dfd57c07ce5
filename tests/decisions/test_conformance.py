"""The decision log: one suite on fakeredis, on the real server and through the sync face, and what only it can do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import fakeredis
import pytest
from conformance.decisions import DecisionSuite, RefusalTests
from redis import Redis
from support.sync_adapter import SyncAdapter

from sharedmem import Change, ClaimLostError, Hub, Message, Settings, SharedMemoryStore
from sharedmem.decisions.decisions import Decisions
from sharedmem.sync import Hub as SyncHub
from sharedmem.testing import ManualClock, fake_hub

DAY_S = 86_400
SESSION = "desk"
PLAN = (SESSION, "BTC", "BUY", 0.75, "the trend is strong")


class TestDecisionsOnFakeredis(DecisionSuite, RefusalTests):
    @pytest.fixture
    async def decisions(self) -> AsyncIterator[Decisions]:
        async with fake_hub() as hub:
            yield hub.store("desk", actor="ada").decisions


class TestDecisionsOnARealServer(DecisionSuite, RefusalTests):
    @pytest.fixture
    def decisions(self, hub: Hub, namespace: str) -> Decisions:
        return hub.store(namespace, actor="ada").decisions


@pytest.mark.nightly
class TestDecisionsThroughTheSyncFace(DecisionSuite):
    @pytest.fixture
    async def decisions(self, redis_url: str, settings: Settings, namespace: str) -> AsyncIterator[Decisions]:
        async with SyncAdapter(SyncHub.open(redis_url, settings=settings)) as hub:
            yield cast("Decisions", hub.store(namespace, actor="ada").decisions)


# -- time -----------------------------------------------------------------------------------------


@pytest.fixture
async def team(clock: ManualClock) -> AsyncIterator[SharedMemoryStore]:
    async with fake_hub(clock=clock) as hub:
        yield hub.store("team")


async def test_a_plan_is_a_duplicate_until_its_window_ends(team: SharedMemoryStore, clock: ManualClock) -> None:
    await team.decisions.save_plan(*PLAN)

    clock.advance(299.9)
    before = await team.decisions.save_if_new(*PLAN)
    clock.advance(0.1)
    after = await team.decisions.save_if_new(*PLAN)

    assert (before.saved, before.time_since_ms, after.saved) == (False, 299_900, True)


async def test_an_open_execution_shows_when_its_lease_ends(team: SharedMemoryStore, clock: ManualClock) -> None:
    log = team.decisions
    short = await log.save_plan(*PLAN)
    claim = await log.begin_execution(SESSION, short, lease=30)
    (running,) = await log.get_open_executions(SESSION)
    await log.renew(SESSION, short, claim.fence, lease=90)
    (renewed,) = await log.get_open_executions(SESSION)
    ended = await log.finish(SESSION, short, claim.fence, status="success")

    assert running.lease_ends_ms == running.timestamp_ms + 30_000
    assert renewed.lease_ends_ms == running.lease_ends_ms + 60_000
    assert ended.lease_ends_ms == 0


async def test_a_refused_duplicate_does_not_begin_the_window_anew(team: SharedMemoryStore, clock: ManualClock) -> None:
    await team.decisions.save_plan(*PLAN)

    saved = []
    for _ in range(4):
        clock.advance(100)
        saved.append((await team.decisions.save_if_new(*PLAN)).saved)

    assert saved == [False, False, True, False]


async def test_the_index_of_duplicates_forgets_after_thirty_days(clock: ManualClock) -> None:
    server = fakeredis.FakeServer()
    async with fake_hub(clock=clock, server=server) as hub:
        decisions = hub.store("team").decisions
        for number in range(40):
            await decisions.save_plan(SESSION, "BTC", "BUY", 0.5, f"old {number}")
        clock.advance(30 * DAY_S + 1)
        for number in range(64):
            await decisions.save_plan(SESSION, "BTC", "BUY", 0.5, f"new {number}")

    bare = Redis.from_pool(fakeredis.FakeStrictRedis(server=server).connection_pool)
    assert bare.zcard(f"sm:{{team}}:$plan.ages:shared:{SESSION}") == 64
    assert bare.hlen(f"sm:{{team}}:$plan.duplicates:shared:{SESSION}") == 64


async def test_an_execution_is_orphaned_when_its_lease_is_over(team: SharedMemoryStore, clock: ManualClock) -> None:
    short = await team.decisions.save_plan(*PLAN)
    await team.decisions.begin_execution(SESSION, short, lease=30)

    clock.advance(29.9)
    _, before = await team.decisions.check_executed(SESSION, short)
    clock.advance(0.2)
    _, after = await team.decisions.check_executed(SESSION, short)

    assert before is not None
    assert after is not None
    assert (before.state, after.state) == ("running", "orphaned")


async def test_a_block_renews_its_claim_as_long_as_it_takes(team: SharedMemoryStore, clock: ManualClock) -> None:
    short = await team.decisions.save_plan(*PLAN)

    async with team.decisions.executing(SESSION, short, lease=30) as execution:
        for _ in range(10):
            await asyncio.sleep(0.01)  # lets the renewal run, which goes by the clock that stands still
            clock.advance(10)
        await asyncio.sleep(0.01)
        assert execution.is_held()
        assert (await execution.finish(status="success")).attempt == 1


async def test_a_block_whose_claim_is_lost_knows_it(team: SharedMemoryStore, clock: ManualClock) -> None:
    short = await team.decisions.save_plan(*PLAN)

    async with team.decisions.executing(SESSION, short, lease=30) as execution:
        clock.advance(31)  # as if the process had been paused: no renewal came in time
        assert not execution.is_held()
        other = await team.decisions.begin_execution(SESSION, short, policy="takeover")
        with pytest.raises(ClaimLostError):
            await execution.finish(status="success")

    _, record = await team.decisions.check_executed(SESSION, short)
    assert record is not None
    assert (record.state, record.fence) == ("running", other.fence)


# -- limits ---------------------------------------------------------------------------------------


async def test_finished_executions_are_kept_to_a_thousand_but_none_of_a_plan_that_is_there() -> None:
    async with fake_hub(settings=Settings(plans_per_session=1)) as hub:
        decisions = hub.store("team").decisions
        ids = []
        for number in range(1003):
            ids.append((await decisions.save_if_new(SESSION, "BTC", "BUY", 0.5, f"reason {number}")).plan.plan_id)
            status = "unknown" if number == 0 else "success"
            await decisions.mark_executed(SESSION, ids[-1], "BTC", "BUY", 0.5, status, True)

        found = [await _is_known(decisions, ids[number]) for number in (0, 1, 2, 3, 1002)]
        stats = await decisions.get_execution_stats(SESSION)

    assert found == [True, False, False, True, True]
    assert stats.total_executions == 1003


async def _is_known(decisions: Decisions, plan: str) -> bool:
    try:
        return (await decisions.check_executed(SESSION, plan))[0]
    except LookupError:
        return False


async def test_an_execution_stays_while_its_plan_could_be_begun_again() -> None:
    async with fake_hub(settings=Settings(plans_per_session=2000)) as hub:
        decisions = hub.store("team").decisions
        first = (await decisions.save_if_new(SESSION, "BTC", "BUY", 0.5, "the first")).plan.plan_id
        await decisions.mark_executed(SESSION, first, "BTC", "BUY", 0.5, "success", True)
        for number in range(1001):
            plan = (await decisions.save_if_new(SESSION, "BTC", "BUY", 0.5, f"reason {number}")).plan
            await decisions.mark_executed(SESSION, plan.plan_id, "BTC", "BUY", 0.5, "success", True)

        assert not (await decisions.begin_execution(SESSION, first)).started


# -- events ---------------------------------------------------------------------------------------


async def test_changes_are_told_on_channels_and_on_the_feed(store: SharedMemoryStore, namespace: str) -> None:
    async with store.subscription(f"memory.{SESSION}.*") as subscription:
        saved = await store.decisions.save_if_new(*PLAN, "llm")
        await store.decisions.save_if_new(*PLAN)
        claim = await store.decisions.begin_execution(SESSION, saved.plan.plan_id)
        record = await store.decisions.finish(SESSION, saved.plan.plan_id, claim.fence, status="success")
        heard = [await _next(aiter(subscription)) for _ in range(4)]

    head = f"{namespace}:shared:memory.{SESSION}"
    assert [message.channel.removeprefix(head) for message in heard] == [
        ".plan.saved",
        ".stats.updated",
        ".execution.recorded",
        ".stats.updated",
    ]
    assert heard[0].value == saved.plan.model_dump(exclude={"time_since_ms", "similarity"})
    assert heard[2].value == record.model_dump(exclude={"lease_ends_ms"})
    assert heard[3].value == {
        "session_id": SESSION,
        "symbol": "BTC",
        "total_executions": 1,
        "successful_executions": 1,
        "failed_executions": 0,
        "win_rate": 1.0,
        "duplicates_prevented": 1,
    }
    changes = await _changes(store, 5)
    key = f"{namespace}:shared:{SESSION}"
    assert [(change.operation, change.key) for change in changes] == [
        ("plan.saved", f"{key}:{saved.plan.plan_id}"),
        ("stats.updated", key),
        ("execution.begun", f"{key}:{saved.plan.plan_id}"),
        ("execution.recorded", f"{key}:{saved.plan.plan_id}"),
        ("stats.updated", key),
    ]
    assert str(changes[0].version) == saved.plan.plan_id


async def _next(messages: AsyncIterator[Message]) -> Message:
    async with asyncio.timeout(60):
        return await anext(messages)


async def _changes(store: SharedMemoryStore, count: int) -> list[Change]:
    found: list[Change] = []
    async with asyncio.timeout(60):
        async for change in store.watch(since=0):
            found.append(change)
            if len(found) == count:
                break
    return found


async def test_what_lies_at_the_server_can_be_read_by_people(
    store: SharedMemoryStore, redis_url: str, namespace: str
) -> None:
    saved = await store.decisions.save_if_new(*PLAN)
    await store.decisions.begin_execution(SESSION, saved.plan.plan_id)

    with Redis.from_url(redis_url, decode_responses=True) as client:
        plan = client.hget(f"sm:{{{namespace}}}:$plan:shared:{SESSION}", saved.plan.plan_id)
        execution = client.hget(f"sm:{{{namespace}}}:$execution:shared:{SESSION}", saved.plan.plan_id)
        sessions = client.smembers(f"sm:{{{namespace}}}:$plan.sessions:shared")

    assert str(plan).startswith('{"timestamp_ms":')
    assert '"reasoning":"the trend is strong"' in str(plan)
    assert '"state":"running"' in str(execution)
    assert sessions == {SESSION}


async def test_clearing_the_namespace_removes_decisions(store: SharedMemoryStore) -> None:
    await store.decisions.save_plan(*PLAN)

    await store.clear()

    assert await store.decisions.sessions() == []
    assert await store.decisions.check_duplicate(SESSION, "BTC", "BUY", PLAN[-1]) == (False, None)
