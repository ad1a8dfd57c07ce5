"""Plans and executions come back from the durable tier as they were, whatever the server has lost."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import fakeredis
import pytest
from conformance.decisions import (
    DecisionSuite,
    ExecutionBlockTests,
    ExecutionClaimTests,
    ExecutionResolveTests,
    PlanTests,
    StatsTests,
)
from support.contexts import client_of
from support.example_budget import seeds
from support.random_decisions import SYMBOLS, RandomDecisions
from support.redis_loss import RedisLosingProxy, dump_server, lose_redis, restore_dump
from support.redis_process import RedisProcess

from sharedmem import ClaimLostError, Hub, NotFoundError, Settings, UnavailableError
from sharedmem.clock import new_id
from sharedmem.decisions.decisions import Decisions
from sharedmem.decisions.validation import plan_hash
from sharedmem.durable.protocol import living_documents
from sharedmem.errors import DurabilityPendingError
from sharedmem.models import PlanRecord
from sharedmem.testing import ManualClock, fake_hub

DAY_S = 86_400
KEPT = 5
SESSION = "desk"
PLAN = (SESSION, "BTC", "BUY", 0.75, "the trend is strong")


def tiered(folder: Path, **changes: Any) -> Settings:
    return Settings(
        data_dir=folder, durable_url=f"sqlite://{folder}/durable.sqlite3", prefix=f"t{new_id(6)}", **changes
    )


# -- the whole suite ------------------------------------------------------------------------------


@pytest.mark.nightly
class TestDecisionsThatWaitForTheTier(DecisionSuite):
    @pytest.fixture
    async def decisions(self, bare_server: RedisProcess, tmp_path: Path) -> AsyncIterator[Decisions]:
        async with Hub.open(bare_server.url, settings=tiered(tmp_path, log_durability="through")) as hub:
            yield hub.store("desk", actor="ada").decisions


# Not those about orphans: a claim runs for its lease once more after each loss.
class TestDecisionsWhenRedisIsLostBeforeEachCall(
    PlanTests, ExecutionClaimTests, ExecutionResolveTests, ExecutionBlockTests, StatsTests
):
    listed = KEPT

    @pytest.fixture
    async def decisions(self, tmp_path: Path) -> AsyncIterator[Decisions]:
        async with fake_hub(settings=tiered(tmp_path, plans_per_session=KEPT)) as hub:
            yield cast("Decisions", RedisLosingProxy(hub.store("desk", actor="ada").decisions, hub))

    async def test_a_claim_is_prolonged(self, decisions: Decisions, session: str, plan: PlanRecord) -> None:
        claim = await decisions.begin_execution(session, plan.plan_id, lease=30)
        renewed = await decisions.renew(session, plan.plan_id, claim.fence, lease=300)

        # Prolonging is not kept: a lease is no history.
        other = await decisions.begin_execution(session, plan.plan_id)
        assert other.remaining_ms <= 30_000 < renewed.remaining_ms


@pytest.fixture(scope="module")
def bare_server() -> Iterator[RedisProcess]:
    with RedisProcess() as server:
        yield server


# -- a loss in the middle of anything -------------------------------------------------------------


@pytest.mark.parametrize("seed", seeds(3, nightly=8))
async def test_all_answers_are_the_same_after_a_loss(seed: int, tmp_path: Path) -> None:
    clock = ManualClock()
    async with fake_hub(clock=clock, settings=tiered(tmp_path, plans_per_session=KEPT)) as hub:
        desk = RandomDecisions(hub, clock, seed)
        for _ in range(4):
            await desk.work(40)
            before = await desk.answers()

            await lose_redis(hub)

            assert await desk.answers() == before


async def test_what_many_have_decided_at_the_same_moment_is_the_same_after_a_loss(tmp_path: Path) -> None:
    async with fake_hub(settings=tiered(tmp_path, plans_per_session=KEPT)) as hub:
        decisions = hub.store("desk", actor="ada").decisions
        saves = [decisions.save_if_new(SESSION, "BTC", "BUY", 0.5, f"reason {number % 15}") for number in range(30)]
        saved = [result.plan.plan_id for result in await asyncio.gather(*saves) if result.saved]
        listed = [plan.plan_id for plan in await decisions.get_recent_plans(SESSION)]
        await asyncio.gather(*(decisions.begin_execution(SESSION, plan) for plan in [*listed, *listed]))

        async def answers() -> tuple[object, ...]:
            begun = [(await decisions.check_executed(SESSION, plan))[1] for plan in listed]
            known = [await decisions.check_duplicate(SESSION, "BTC", "BUY", f"reason {number}") for number in range(15)]
            return (
                await decisions.get_recent_plans(SESSION),
                [(is_known, plan and plan.plan_id) for is_known, plan in known],
                # A claim runs for its lease once more after a loss.
                [record and record.model_copy(update={"lease_ends_ms": 0}) for record in begun],
                await decisions.get_execution_stats(SESSION),
            )

        before = await answers()
        assert (len(saved), len(listed)) == (15, KEPT)

        await lose_redis(hub)

        assert await answers() == before


@pytest.mark.parametrize("seed", seeds(1, nightly=3))
async def test_all_answers_are_the_same_after_a_loss_on_a_real_server(
    seed: int, bare_server: RedisProcess, tmp_path: Path
) -> None:
    async with Hub.open(bare_server.url, settings=tiered(tmp_path, plans_per_session=KEPT)) as hub:
        desk = RandomDecisions(hub, None, seed)
        for _ in range(3):
            await desk.work(40)
            before = await desk.answers()

            await lose_redis(hub)

            assert await desk.answers() == before


@pytest.mark.parametrize("seed", seeds(2, nightly=6))
async def test_all_answers_are_the_newest_when_the_server_is_set_back(seed: int, tmp_path: Path) -> None:
    clock = ManualClock()
    settings = tiered(tmp_path, plans_per_session=KEPT)
    server = fakeredis.FakeServer()
    desk: RandomDecisions | None = None
    async with fake_hub(clock=clock, settings=settings, server=server) as hub:
        desk = RandomDecisions(hub, clock, seed)
        await desk.work(40)
        held = await dump_server(hub)
        await desk.work(40)
        before = await desk.answers()
        await restore_dump(hub, held)
    async with fake_hub(clock=clock, settings=settings, server=server) as hub:
        desk.logs = [hub.store("desk", actor=actor).decisions for actor in ("ada", "bob")]

        assert await desk.answers() == before


@pytest.mark.parametrize("seed", seeds(2, nightly=6))
async def test_what_comes_back_is_what_lay_there_to_the_letter(seed: int, tmp_path: Path) -> None:
    clock = ManualClock()
    async with fake_hub(clock=clock, settings=tiered(tmp_path, plans_per_session=KEPT)) as hub:
        desk = RandomDecisions(hub, clock, seed)
        await desk.work(60)
        before = await _sessions_in_redis(hub)
        await lose_redis(hub)

        await desk.answers()

        assert await _sessions_in_redis(hub) == before


_LEASE_END = re.compile(rb'"lease_ends_us":\d+,')


async def _sessions_in_redis(hub: Hub) -> dict[bytes, object]:
    """What redis-cli would show, without the ends of leases; of duplicates the ones that a window can reach."""
    line, found = client_of(hub), dict[bytes, object]()
    async for page in line.scan(f"{hub.settings.prefix}:*".encode(), near=None):
        for key in page:
            part = key.partition(b"}:$")[2].partition(b":")[0]
            if part == b"plan.sessions":
                found[key] = sorted(cast("list[bytes]", await line.call("SMEMBERS", key)))
            elif part in {b"plan.order", b"execution.finished"}:
                found[key] = await line.call("LRANGE", key, 0, -1)
            elif part in {b"plan", b"execution", b"execution.stats"}:
                pairs = cast("list[bytes]", await line.call("HGETALL", key))
                cells = [_LEASE_END.sub(b"", value) for value in pairs[1::2]]
                found[key] = {field: cell for field, cell in zip(pairs[::2], cells, strict=True) if cell != b"0"}
    return found


# -- what must not happen twice -------------------------------------------------------------------


@pytest.fixture
async def hub(clock: ManualClock, tmp_path: Path) -> AsyncIterator[Hub]:
    async with fake_hub(clock=clock, settings=tiered(tmp_path)) as hub:
        yield hub


@pytest.fixture
def decisions(hub: Hub) -> Decisions:
    return hub.store("desk", actor="ada").decisions


async def test_what_was_begun_before_a_loss_is_not_begun_again(
    hub: Hub, decisions: Decisions, clock: ManualClock
) -> None:
    saved = await decisions.save_if_new(*PLAN)
    claim = await decisions.begin_execution(SESSION, saved.plan.plan_id, lease=30)
    await lose_redis(hub)

    before = await decisions.begin_execution(SESSION, saved.plan.plan_hash)
    clock.advance(31)
    after = await decisions.begin_execution(SESSION, saved.plan.plan_id)

    assert (before.started, before.state, after.started, after.state) == (False, "running", False, "orphaned")
    assert (await decisions.finish(SESSION, saved.plan.plan_id, claim.fence, status="success")).state == "succeeded"


async def test_a_claim_goes_on_after_a_loss_while_its_first_lease_lasts(hub: Hub, decisions: Decisions) -> None:
    saved = await decisions.save_if_new(*PLAN)
    claim = await decisions.begin_execution(SESSION, saved.plan.plan_id, lease=30)
    await lose_redis(hub)

    renewed = await decisions.renew(SESSION, saved.plan.plan_id, claim.fence, lease=60)

    assert (renewed.fence, renewed.remaining_ms) == (claim.fence, 60_000)


async def test_a_claim_that_lives_by_renewals_has_no_successor_after_a_loss(
    hub: Hub, decisions: Decisions, clock: ManualClock
) -> None:
    saved = await decisions.save_if_new(*PLAN)
    claim = await decisions.begin_execution(SESSION, saved.plan.plan_id, lease=30)
    clock.advance(20)
    await decisions.renew(SESSION, saved.plan.plan_id, claim.fence, lease=30)
    clock.advance(20)
    await lose_redis(hub)

    refused = await decisions.begin_execution(SESSION, saved.plan.plan_id, policy="takeover")
    renewed = await decisions.renew(SESSION, saved.plan.plan_id, claim.fence, lease=30)

    assert (refused.started, refused.state) == (False, "running")
    assert renewed.fence == claim.fence


async def test_a_claim_whose_executor_died_is_an_orphan_a_lease_after_a_loss(
    hub: Hub, decisions: Decisions, clock: ManualClock
) -> None:
    saved = await decisions.save_if_new(*PLAN)
    claim = await decisions.begin_execution(SESSION, saved.plan.plan_id, lease=30)
    clock.advance(40)
    await lose_redis(hub)

    assert [record.state for record in await decisions.get_open_executions(SESSION)] == ["running"]
    clock.advance(31)

    assert [record.state for record in await decisions.get_open_executions(SESSION)] == ["orphaned"]
    with pytest.raises(ClaimLostError):
        await decisions.renew(SESSION, saved.plan.plan_id, claim.fence)
    assert (await decisions.begin_execution(SESSION, saved.plan.plan_id, policy="takeover")).fence > claim.fence


async def test_a_renewed_claim_is_no_difference_between_redis_and_the_tier(hub: Hub, decisions: Decisions) -> None:
    saved = await decisions.save_if_new(*PLAN)
    claim = await decisions.begin_execution(SESSION, saved.plan.plan_id, lease=30)
    await decisions.renew(SESSION, saved.plan.plan_id, claim.fence, lease=60)

    await hub.durable.drain("desk")

    report = await hub.durable.verify("desk")

    assert (report.keys, report.waiting, report.differences) == (1, 0, [])


async def test_a_plan_that_has_gone_from_the_list_is_a_duplicate_for_its_whole_window_after_a_loss(
    hub: Hub, decisions: Decisions, clock: ManualClock
) -> None:
    await decisions.save_plan(*PLAN, "llm")
    for number in range(100):
        await decisions.save_plan(SESSION, "BTC", "BUY", 0.5, f"reason {number}")
    clock.advance(3000)
    await lose_redis(hub)

    within = await decisions.save_if_new(*PLAN, "rules", 3600)
    clock.advance(600)
    beyond = await decisions.save_if_new(*PLAN, "rules", 3600)

    assert (within.saved, within.plan.method) == (False, "llm")
    assert 3_000_000 <= within.time_since_ms < 3_100_000
    assert beyond.saved


async def test_a_session_keeps_its_hundred_newest_plans_over_a_loss(hub: Hub, decisions: Decisions) -> None:
    for number in range(105):
        await decisions.save_plan(SESSION, "BTC", "BUY", 0.5, f"reason {number}")
    await lose_redis(hub)
    await decisions.save_plan(SESSION, "BTC", "BUY", 0.5, "reason 105")

    plans = await decisions.get_recent_plans(SESSION, limit=1000)

    assert [plan.reasoning for plan in plans] == [f"reason {number}" for number in range(105, 5, -1)]
    with pytest.raises(NotFoundError):
        await decisions.begin_execution(SESSION, plan_hash("BTC", "BUY", "reason 5"))


async def test_a_forgotten_session_stays_forgotten(hub: Hub, decisions: Decisions) -> None:
    saved = await decisions.save_if_new(*PLAN)
    await decisions.mark_executed(SESSION, saved.plan.plan_id, "BTC", "BUY", 0.5, "success", True)
    await lose_redis(hub)
    assert await decisions.erase(SESSION) == 1
    await lose_redis(hub)

    assert await decisions.sessions() == []
    assert await decisions.get_recent_plans(SESSION) == []
    assert (await decisions.save_if_new(*PLAN)).saved
    await lose_redis(hub)
    assert (await decisions.get_execution_stats(SESSION)).total_executions == 0
    assert len(await decisions.get_recent_plans(SESSION)) == 1


async def test_a_session_that_was_forgotten_is_not_listed_when_the_server_is_set_back(
    clock: ManualClock, tmp_path: Path
) -> None:
    server, settings = fakeredis.FakeServer(), tiered(tmp_path)
    async with fake_hub(clock=clock, settings=settings, server=server) as hub:
        await hub.store("desk").decisions.save_plan(*PLAN)
        held = await dump_server(hub)
        await hub.store("desk").decisions.erase(SESSION)
        await restore_dump(hub, held)

    async with fake_hub(clock=clock, settings=settings, server=server) as hub:
        assert await hub.store("desk").decisions.sessions() == []
        assert (await hub.store("desk").decisions.save_if_new(*PLAN)).saved


async def test_after_a_loss_one_of_all_racing_executors_starts(clock: ManualClock, tmp_path: Path) -> None:
    server, settings = fakeredis.FakeServer(), tiered(tmp_path)
    async with (
        fake_hub(clock=clock, settings=settings, server=server) as one,
        fake_hub(clock=clock, settings=settings, server=server) as other,
    ):
        logs = [hub.store("desk").decisions for hub in (one, other)]
        saved = await logs[0].save_if_new(*PLAN)
        await lose_redis(one)

        claims = await asyncio.gather(
            *(log.begin_execution(SESSION, saved.plan.plan_id) for log in logs for _ in range(8))
        )
        plans = await asyncio.gather(*(log.save_if_new(*PLAN) for log in logs for _ in range(8)))

        assert sum(claim.started for claim in claims) == 1
        assert {result.plan.plan_id for result in plans} == {saved.plan.plan_id}
        assert (await logs[0].get_execution_stats(SESSION)).duplicates_prevented == 15 + 16


# -- the tier holds what the session holds --------------------------------------------------------


async def test_counts_in_the_tier_are_those_of_a_recount(hub: Hub, decisions: Decisions, clock: ManualClock) -> None:
    desk = RandomDecisions(hub, clock, seed=7)
    await desk.work(150)
    await lose_redis(hub)

    for session in await decisions.sessions():
        total = await decisions.get_execution_stats(session)
        by_symbol = [await decisions.get_execution_stats(session, symbol) for symbol in SYMBOLS]
        documents = living_documents(await hub.durable.records(f"desk:$plan:shared:{session}"), now_ms=0)
        ended = [one for one in documents if one.type == "execution" and '"state":"running"' not in one.body]
        assert total.total_executions == sum(stats.total_executions for stats in by_symbol) == len(ended)
        assert total.duplicates_prevented == sum(stats.duplicates_prevented for stats in by_symbol)


async def test_the_tier_keeps_no_more_plans_than_anybody_can_find(
    hub: Hub, decisions: Decisions, clock: ManualClock
) -> None:
    for number in range(250):
        await decisions.save_plan(SESSION, "BTC", "HOLD", 0.5, f"nothing {number % 2}")
    assert await _plans_in_the_tier(hub) == 100
    clock.advance(31 * DAY_S)
    for number in range(250):
        await decisions.save_plan(SESSION, "BTC", "BUY", 0.5, f"reason {number}")
    # The same plan twice within the list, and twice with the first one gone from it.
    await decisions.save_plan(SESSION, "BTC", "BUY", 0.5, "reason 249")
    await decisions.save_plan(SESSION, "BTC", "BUY", 0.5, "reason 0")

    assert await _plans_in_the_tier(hub) == 251
    clock.advance(31 * DAY_S)
    for number in range(400):
        await decisions.save_plan(SESSION, "BTC", "BUY", 0.5, f"later {number}")
    assert await _plans_in_the_tier(hub) == 400


async def _plans_in_the_tier(hub: Hub) -> int:
    await hub.durable.drain("desk")
    return len(await hub.durable.query("desk", of_type="plan", limit=1000))


async def test_of_ended_executions_a_thousand_come_back(bare_server: RedisProcess, tmp_path: Path) -> None:
    settings = tiered(tmp_path, plans_per_session=1)
    async with Hub.open(bare_server.url, settings=settings) as hub:
        decisions = hub.store("desk").decisions
        for number in range(1003):
            saved = await decisions.save_if_new(SESSION, "BTC", "BUY", 0.5, f"reason {number}")
            status = "unknown" if number == 0 else "success"
            await decisions.mark_executed(SESSION, saved.plan.plan_id, "BTC", "BUY", 0.5, status, True)
        before = await _sessions_in_redis(hub)
        await lose_redis(hub)
        found = [
            await _is_known(decisions, plan_hash("BTC", "BUY", f"reason {number}")) for number in (0, 1, 2, 3, 1002)
        ]

        assert found == [True, False, False, True, True]
        assert await _sessions_in_redis(hub) == before
        assert (await decisions.get_execution_stats(SESSION)).total_executions == 1003


async def _is_known(decisions: Decisions, plan: str) -> bool:
    try:
        return (await decisions.check_executed(SESSION, plan))[0]
    except NotFoundError:
        return False


async def test_a_key_of_the_same_name_is_another_thing(hub: Hub) -> None:
    store = hub.store("desk")
    await store.write(SESSION, "a note", kind="knowledge")
    await store.decisions.save_plan(*PLAN)
    await lose_redis(hub)
    assert await store.delete(SESSION)
    await lose_redis(hub)

    assert len(await store.decisions.get_recent_plans(SESSION)) == 1
    left = store.keys()
    assert [key async for key in left] == []


# -- waiting for the tier -------------------------------------------------------------------------


@pytest.fixture
async def waiting(clock: ManualClock, tmp_path: Path) -> AsyncIterator[Hub]:
    async with fake_hub(clock=clock, settings=tiered(tmp_path, log_durability="through")) as hub:
        yield hub


async def test_a_claim_is_durable_before_the_order_is_placed(waiting: Hub) -> None:
    decisions = waiting.store("desk").decisions
    saved = await decisions.save_if_new(*PLAN)
    claim = await decisions.begin_execution(SESSION, saved.plan.plan_id)
    await client_of(waiting).call("FLUSHALL")

    again = await decisions.begin_execution(SESSION, saved.plan.plan_id)

    assert (again.started, again.execution and again.execution.fence) == (False, claim.fence)


async def test_what_the_tier_cannot_take_is_done_all_the_same_and_said_to_wait(waiting: Hub, tmp_path: Path) -> None:
    decisions = waiting.store("desk").decisions
    first = await decisions.save_if_new(*PLAN)
    with _away(tmp_path):
        with pytest.raises(DurabilityPendingError, match="do not repeat") as saved:
            await decisions.save_if_new(SESSION, "ETH", "SELL", 0.5, "the news are bad")
        with pytest.raises(DurabilityPendingError) as begun:
            await decisions.begin_execution(SESSION, first.plan.plan_id)
        # No caller waits for a count.
        refused = await decisions.begin_execution(SESSION, first.plan.plan_id)
        with pytest.raises(DurabilityPendingError):
            await decisions.finish(SESSION, first.plan.plan_id, begun.value.version, status="failed")
    await lose_redis(waiting)

    assert (await decisions.get_recent_plans(SESSION))[0].plan_id == str(saved.value.version)
    assert not refused.started
    _, record = await decisions.check_executed(SESSION, first.plan.plan_id)
    assert record is not None
    assert (record.state, record.fence) == ("failed", begun.value.version)


async def test_a_block_is_not_entered_unless_its_claim_is_durable(waiting: Hub, tmp_path: Path) -> None:
    decisions = waiting.store("desk").decisions
    saved = await decisions.save_if_new(*PLAN)
    with _away(tmp_path), pytest.raises(DurabilityPendingError):
        async with decisions.executing(SESSION, saved.plan.plan_id):
            pytest.fail("an order would be placed")

    assert [record.state for record in await decisions.get_open_executions(SESSION)] == ["running"]


async def test_a_block_whose_end_waits_for_the_tier_has_ended(waiting: Hub, tmp_path: Path) -> None:
    decisions = waiting.store("desk").decisions
    saved = await decisions.save_if_new(*PLAN)
    async with decisions.executing(SESSION, saved.plan.plan_id) as execution:
        with _away(tmp_path), pytest.raises(DurabilityPendingError):
            await execution.finish(status="success", order_id="o-1")
        assert not execution.is_held()
    await lose_redis(waiting)

    _, record = await decisions.check_executed(SESSION, saved.plan.plan_id)
    assert record is not None
    assert (record.state, record.order_id) == ("succeeded", "o-1")


async def test_what_redis_lacks_cannot_be_told_while_the_tier_is_away(
    hub: Hub, decisions: Decisions, clock: ManualClock, tmp_path: Path
) -> None:
    saved = await decisions.save_if_new(*PLAN)
    await lose_redis(hub)
    with _away(tmp_path):
        with pytest.raises(UnavailableError):
            await decisions.get_recent_plans(SESSION)
        with pytest.raises(UnavailableError):
            await decisions.begin_execution(SESSION, saved.plan.plan_id)
    clock.advance(60)  # it is asked again after a while

    assert not (await decisions.save_if_new(*PLAN)).saved


@contextmanager
def _away(folder: Path) -> Iterator[None]:
    """The file of the tier is not where it should be."""
    file = folder / "durable.sqlite3"
    file.rename(folder / "away")
    try:
        yield
    finally:
        (folder / "away").rename(file)
