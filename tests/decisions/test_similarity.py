"""docs/decisions.md: plans are compared by meaning where a caller asks for it, and past decisions are found so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest
from support.angle_embedder import AngleEmbedder

from sharedmem import Hub, InvalidError, Settings, UnavailableError, UnsupportedError
from sharedmem.clock import new_id
from sharedmem.decisions.decisions import Decisions
from sharedmem.providers.protocol import Embeddings, Purpose
from sharedmem.testing import ManualClock, fake_hub

UP, RISING, DOWN = "the trend is strong", "a strong trend carries it", "weak hands are selling"
NEAR = 0.9
SESSION = "desk"


class InterruptedEmbedder(AngleEmbedder):
    """An embedder during whose work a test lets something happen, once."""

    happens: Callable[[], Awaitable[None]] | None = None

    async def embed(self, texts: Sequence[str], *, purpose: Purpose = "document") -> Embeddings:
        found = await super().embed(texts, purpose=purpose)
        if self.happens is not None:
            happens, self.happens = self.happens, None
            await happens()
        return found


@pytest.fixture
def compass() -> InterruptedEmbedder:
    return InterruptedEmbedder(**{UP: 0, RISING: 10, DOWN: 90})


@pytest.fixture(params=["fake", "real"])
async def decisions(
    request: pytest.FixtureRequest, compass: InterruptedEmbedder, clock: ManualClock, settings: Settings
) -> AsyncIterator[Decisions]:
    if request.param == "fake":
        async with fake_hub(clock=clock, embedder=compass) as hub:
            yield hub.store("desk", actor="ada").decisions
        return
    url = request.getfixturevalue("redis_url")
    async with Hub.open(url, settings=settings, embedder=compass) as hub:
        namespace = f"test-{new_id(8)}"
        yield hub.store(namespace, actor="ada").decisions
        await hub.store(namespace).clear()


async def saved(decisions: Decisions, reasoning: str, *, symbol: str = "BTC", action: str = "BUY", **more: Any) -> bool:
    result = await decisions.save_if_new(SESSION, symbol, action, 0.5, reasoning, similar=NEAR, **more)
    return result.saved


# -- duplicates by meaning ------------------------------------------------------------------------


async def test_a_plan_like_an_earlier_one_is_a_duplicate(decisions: Decisions) -> None:
    assert await saved(decisions, UP)

    result = await decisions.save_if_new(SESSION, "BTC", "BUY", 0.7, RISING, similar=NEAR)

    assert (result.saved, result.plan.reasoning, result.plan.confidence) == (False, UP, 0.5)
    assert result.plan.similarity == pytest.approx(0.985, abs=0.001)
    assert result.time_since_ms == result.plan.time_since_ms
    assert len(await decisions.get_recent_plans(SESSION)) == 1
    assert (await decisions.get_execution_stats(SESSION)).duplicates_prevented == 1


async def test_the_most_similar_of_several_is_reported(decisions: Decisions, compass: AngleEmbedder) -> None:
    compass.point("first", 20)
    compass.point("second", 12)
    for reasoning in ("first", "second"):
        await decisions.save_plan(SESSION, "BTC", "BUY", 0.5, reasoning)

    result = await decisions.save_if_new(SESSION, "BTC", "BUY", 0.5, RISING, similar=NEAR)

    assert result.plan.reasoning == "second"


async def test_another_symbol_action_or_meaning_makes_another_plan(decisions: Decisions) -> None:
    assert await saved(decisions, UP)

    assert await saved(decisions, RISING, symbol="ETH")
    assert await saved(decisions, RISING, action="SELL")
    assert await saved(decisions, DOWN)


async def test_a_text_that_says_the_contrary_makes_another_plan(decisions: Decisions, compass: AngleEmbedder) -> None:
    compass.point("volume rises by 5 percent", 0)
    compass.point("volume rises by 50 percent", 1)
    assert await saved(decisions, "volume rises by 5 percent")

    assert await saved(decisions, "volume rises by 50 percent")


@pytest.mark.parametrize(("text", "opposite"), [("price rises", "price falls"), ("price rose", "price fell")])
async def test_the_opposite_makes_another_plan(
    decisions: Decisions, compass: AngleEmbedder, text: str, opposite: str
) -> None:
    compass.point(f"{text} on volume", 0)
    compass.point(f"{opposite} on volume", 1)
    assert await saved(decisions, f"{text} on volume")

    assert await saved(decisions, f"{opposite} on volume")


async def test_without_a_threshold_only_equal_texts_are_duplicates(
    decisions: Decisions, compass: AngleEmbedder
) -> None:
    assert (await decisions.save_if_new(SESSION, "BTC", "BUY", 0.5, UP)).saved
    assert (await decisions.save_if_new(SESSION, "BTC", "BUY", 0.5, RISING)).saved
    assert compass.asked == []


async def test_beyond_the_window_a_similar_plan_is_new(compass: AngleEmbedder, clock: ManualClock) -> None:
    async with fake_hub(clock=clock, embedder=compass) as hub:
        decisions = hub.store("desk").decisions
        assert await saved(decisions, UP)
        clock.advance(299)
        assert not await saved(decisions, RISING)
        assert (await decisions.check_duplicate(SESSION, "BTC", "BUY", RISING, similar=NEAR))[0]
        clock.advance(2)

        assert not (await decisions.check_duplicate(SESSION, "BTC", "BUY", RISING, similar=NEAR))[0]
        assert await saved(decisions, RISING)


async def test_of_planners_that_race_with_similar_reasons_one_saves(
    decisions: Decisions, compass: AngleEmbedder
) -> None:
    reasons = [compass.point(f"reason {chr(97 + number)}", number) for number in range(12)]

    results = await asyncio.gather(*(saved(decisions, reason) for reason in reasons))

    assert sum(results) == 1
    assert len(await decisions.get_recent_plans(SESSION)) == 1


async def test_a_plan_that_is_saved_during_the_comparison_is_compared_too(
    decisions: Decisions, compass: InterruptedEmbedder
) -> None:
    async def another_planner() -> None:
        await decisions.save_plan(SESSION, "BTC", "BUY", 0.5, UP)

    await decisions.save_plan(SESSION, "BTC", "BUY", 0.5, DOWN)
    compass.happens = another_planner

    result = await decisions.save_if_new(SESSION, "BTC", "BUY", 0.5, RISING, similar=NEAR)

    assert (result.saved, result.plan.reasoning) == (False, UP)


async def test_a_plan_for_something_else_that_is_saved_meanwhile_causes_no_conflict(
    decisions: Decisions, compass: InterruptedEmbedder
) -> None:
    async def another_planner() -> None:
        await decisions.save_plan(SESSION, "ETH", "BUY", 0.5, UP)

    await decisions.save_plan(SESSION, "BTC", "BUY", 0.5, DOWN)
    compass.happens = another_planner
    asked = len(compass.asked)

    assert await saved(decisions, RISING)
    assert len(compass.asked) == asked + 2, "the plans were compared once"


async def test_a_check_finds_what_is_similar_and_counts_nothing(decisions: Decisions) -> None:
    assert await saved(decisions, UP)

    is_duplicate, plan = await decisions.check_duplicate(SESSION, "BTC", "BUY", RISING, similar=NEAR)
    is_other, nothing = await decisions.check_duplicate(SESSION, "BTC", "BUY", DOWN, similar=NEAR)

    assert plan is not None
    assert (is_duplicate, plan.reasoning, plan.time_since_ms is not None) == (True, UP, True)
    assert (is_other, nothing) == (False, None)
    assert (await decisions.get_execution_stats(SESSION)).duplicates_prevented == 0


# -- past decisions -------------------------------------------------------------------------------


async def test_similar_decisions_are_found_in_all_sessions_with_how_they_went(decisions: Decisions) -> None:
    await decisions.save_plan("monday", "BTC", "BUY", 0.5, UP)
    await decisions.save_plan("tuesday", "ETH", "SELL", 0.5, RISING)
    await decisions.save_plan("tuesday", "ETH", "SELL", 0.5, DOWN)
    (plan,) = await decisions.get_recent_plans("monday")
    claim = await decisions.begin_execution("monday", plan.plan_id)
    await decisions.finish("monday", plan.plan_id, claim.fence, status="success")

    found = await decisions.find_similar(UP)

    assert [(one.plan.symbol, one.plan.reasoning) for one in found] == [("BTC", UP), ("ETH", RISING)]
    assert [one.execution and one.execution.state for one in found] == ["succeeded", None]
    assert found[0].plan.similarity == pytest.approx(1)
    assert [one.plan.symbol for one in await decisions.find_similar(UP, symbol="ETH")] == ["ETH"]
    assert [one.plan.symbol for one in await decisions.find_similar(UP, action="BUY")] == ["BTC"]
    assert [one.plan.symbol for one in await decisions.find_similar(UP, session="tuesday")] == ["ETH"]
    assert len(await decisions.find_similar(UP, limit=1)) == 1
    assert await decisions.find_similar(UP, session="wednesday") == []


async def test_what_tended_to_follow_is_counted_with_how_it_went(decisions: Decisions) -> None:
    for number, (symbol, action) in enumerate([("OIL", "SELL"), ("AIR", "BUY"), ("OIL", "SELL"), ("AIR", "BUY")]):
        await decisions.save_plan(SESSION, symbol, action, 0.5, f"reason {number}")
    newest, *_ = await decisions.get_recent_plans(SESSION, "AIR")
    claim = await decisions.begin_execution(SESSION, newest.plan_id)
    await decisions.finish(SESSION, newest.plan_id, claim.fence, status="success")

    (pattern,) = [one for one in await decisions.patterns(symbol="OIL") if one.then.symbol == "AIR"]

    assert (pattern.first.action, pattern.then.action) == ("SELL", "BUY")
    assert (pattern.times, pattern.share) == (2, 1.0)
    # Of four plans, three were followed by a purchase of AIR.
    assert pattern.lift == pytest.approx(1 / 0.75)
    assert (pattern.ended, pattern.succeeded) == (1, 1)
    assert [one.then.symbol for one in await decisions.patterns(symbol="OIL", action="BUY")] == []


async def test_what_comes_too_late_does_not_follow(compass: AngleEmbedder, clock: ManualClock) -> None:
    async with fake_hub(clock=clock, embedder=compass) as hub:
        decisions = hub.store("desk").decisions
        await decisions.save_plan(SESSION, "OIL", "SELL", 0.5, UP)
        clock.advance(61)
        await decisions.save_plan(SESSION, "AIR", "BUY", 0.5, UP)

        assert await decisions.patterns(within=60) == []
        assert [one.times for one in await decisions.patterns(within=120)] == [1]


# -- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize("similar", [0, -0.5, 1.1, True, "0.9", float("nan")])
async def test_a_threshold_that_is_none_is_refused_before_anything_is_saved(decisions: Decisions, similar: Any) -> None:
    with pytest.raises(InvalidError, match="similar"):
        await decisions.save_if_new(SESSION, "BTC", "BUY", 0.5, UP, similar=similar)
    with pytest.raises(InvalidError, match="similar"):
        await decisions.check_duplicate(SESSION, "BTC", "BUY", UP, similar=similar)
    with pytest.raises(InvalidError, match="threshold"):
        await decisions.find_similar(UP, threshold=similar)

    assert await decisions.get_recent_plans(SESSION) == []


@pytest.mark.parametrize(
    "kind",
    [{"symbol": ""}, {"action": " "}, {"symbol": "x" * 300}, {"action": 5}],
    ids=["empty", "blank", "long", "no text"],
)
async def test_a_condition_that_no_plan_can_meet_is_refused(decisions: Decisions, kind: dict[str, Any]) -> None:
    with pytest.raises(InvalidError, match=next(iter(kind))):
        await decisions.find_similar(UP, **kind)
    with pytest.raises(InvalidError, match=next(iter(kind))):
        await decisions.patterns(**kind)


@pytest.mark.parametrize("within", [0, -1, 31 * 86_400, True, "1"])
async def test_a_time_of_patterns_that_is_none_is_refused(decisions: Decisions, within: Any) -> None:
    with pytest.raises(InvalidError, match="within"):
        await decisions.patterns(within=within)


async def test_an_embedder_that_fails_saves_nothing(decisions: Decisions, compass: AngleEmbedder) -> None:
    assert await saved(decisions, DOWN)
    compass.failure = UnavailableError("the embedder", "it is away")

    with pytest.raises(UnavailableError, match="it is away"):
        await decisions.save_if_new(SESSION, "BTC", "BUY", 0.5, UP, similar=NEAR)

    assert [plan.reasoning for plan in await decisions.get_recent_plans(SESSION)] == [DOWN]


async def test_without_an_embedder_the_caller_learns_what_is_missing(settings: Settings, redis_url: str) -> None:
    async with Hub.open(redis_url, settings=settings.replace(embedder="none")) as hub:
        with pytest.raises(UnsupportedError, match="comparing plans by meaning"):
            await hub.store("desk").decisions.save_if_new(SESSION, "BTC", "BUY", 0.5, UP, similar=NEAR)
