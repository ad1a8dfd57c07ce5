"""docs/decisions.md: past decisions can be read, also when a session no longer lists them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.redis_loss import lose_redis

from sharedmem import Hub, InvalidError, Settings
from sharedmem.decisions.decisions import Decisions
from sharedmem.testing import ManualClock, fake_hub

SESSION, LISTED, MADE = "desk", 3, 8


def settings(folder: Path, *, history: bool) -> Settings:
    url = f"sqlite://{folder}/durable.sqlite3"
    return Settings(data_dir=folder, durable_url=url, plans_per_session=LISTED, decision_history=history)


@pytest.fixture
async def hub(clock: ManualClock, tmp_path: Path) -> AsyncIterator[Hub]:
    async with fake_hub(clock=clock, settings=settings(tmp_path, history=True)) as hub:
        yield hub


@pytest.fixture
def decisions(hub: Hub) -> Decisions:
    return hub.store("team", actor="ada").decisions


async def decide(decisions: Decisions, clock: ManualClock, count: int = MADE) -> None:
    """Save plans and execute them, a day apart."""
    for number in range(count):
        symbol = "BTC" if number % 2 else "ETH"
        saved = await decisions.save_if_new(SESSION, symbol, "BUY", 0.5, f"reason {number}")
        claim = await decisions.begin_execution(SESSION, saved.plan.plan_id)
        await decisions.finish(SESSION, saved.plan.plan_id, claim.fence, status="success", order_id=f"o-{number}")
        clock.advance(86_400)


async def test_decisions_that_left_the_list_are_read_with_how_they_went(
    hub: Hub, decisions: Decisions, clock: ManualClock
) -> None:
    await decide(decisions, clock, 40)
    await hub.durable.drain("team")

    past = await decisions.history(SESSION, limit=1000)

    assert len(await decisions.get_recent_plans(SESSION, limit=1000)) == LISTED
    assert [one.plan.reasoning for one in past] == [f"reason {number}" for number in range(39, -1, -1)]
    assert [one.execution and one.execution.order_id for one in past] == [f"o-{number}" for number in range(39, -1, -1)]


async def test_history_is_read_by_time_symbol_and_page(hub: Hub, decisions: Decisions, clock: ManualClock) -> None:
    began = clock.now()
    await decide(decisions, clock)
    await hub.durable.drain("team")

    first = await decisions.history(SESSION, limit=3)
    rest = await decisions.history(SESSION, until=first[-1].plan.plan_id)
    within = await decisions.history(SESSION, since=began + timedelta(days=1.5), until=began + timedelta(days=3.5))

    assert [one.plan.reasoning for one in first + rest] == [f"reason {number}" for number in range(7, -1, -1)]
    assert [one.plan.reasoning for one in within] == ["reason 3", "reason 2"]
    assert {one.plan.symbol for one in await decisions.history(SESSION, symbol="ETH")} == {"ETH"}


async def test_after_a_loss_the_session_is_as_before_and_its_history_too(
    hub: Hub, decisions: Decisions, clock: ManualClock
) -> None:
    await decide(decisions, clock, 40)
    await hub.durable.drain("team")
    before = await decisions.get_recent_plans(SESSION), await decisions.history(SESSION, limit=1000)
    await lose_redis(hub)

    assert (await decisions.get_recent_plans(SESSION), await decisions.history(SESSION, limit=1000)) == before
    assert (await decisions.check_duplicate(SESSION, "BTC", "BUY", "reason 39", 30 * 86_400))[0]
    assert not (await decisions.check_duplicate(SESSION, "BTC", "BUY", "reason 1", 30 * 86_400))[0]


async def test_what_is_listed_is_history_before_the_tier_has_it(decisions: Decisions) -> None:
    await decisions.save_plan(SESSION, "BTC", "BUY", 0.5, "a reason")

    assert [one.plan.reasoning for one in await decisions.history(SESSION)] == ["a reason"]


async def test_an_erased_session_has_no_history(hub: Hub, decisions: Decisions, clock: ManualClock) -> None:
    await decide(decisions, clock)
    await decisions.erase(SESSION)
    await hub.durable.drain("team")

    assert await decisions.history(SESSION) == []


async def test_without_the_setting_history_is_what_the_session_lists(clock: ManualClock, tmp_path: Path) -> None:
    async with fake_hub(clock=clock, settings=settings(tmp_path, history=False)) as hub:
        decisions = hub.store("team").decisions
        await decide(decisions, clock, 40)
        await hub.durable.drain("team")

        found = {one.plan.reasoning for one in await decisions.history(SESSION)}

    assert {f"reason {number}" for number in range(40 - LISTED, 40)} <= found
    assert "reason 0" not in found


@pytest.mark.parametrize(
    "given",
    [
        {"since": datetime(2026, 1, 1)},  # noqa: DTZ001  # without a zone on purpose
        {"until": "yesterday"},
        {"since": 5},
        {"limit": 0},
        {"limit": 1001},
    ],
    ids=["no zone", "no moment", "a number", "none", "too many"],
)
async def test_a_bad_argument_is_refused(decisions: Decisions, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidError, match=next(iter(given))):
        await decisions.history(SESSION, **given)


async def test_times_of_any_zone_mean_the_same_moment(decisions: Decisions) -> None:
    await decisions.save_plan(SESSION, "BTC", "BUY", 0.5, "a reason")

    assert await decisions.history(SESSION, since=datetime(2100, 1, 1, tzinfo=UTC)) == []
