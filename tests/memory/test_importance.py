"""docs/memory.md: the importance of a memory, scored by rules or by the language model."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from sharedmem import ActorContext, ConfigError, Hub, RemembersMixin, Settings, UnavailableError
from sharedmem.memory.enrichment import points_by_rules
from sharedmem.memory.memories import Memories
from sharedmem.memory.ranking import RankingWeights
from sharedmem.providers.protocol import ChatMessage
from sharedmem.testing import ScriptedModel, fake_hub

BY_RULES = Settings(importance_scoring="rules")
BY_MODEL = Settings(importance_scoring="model")


async def importance_of(memory: Memories, id_: str) -> str:
    item = await memory.get(id_)
    assert item is not None
    return item.importance


@pytest.mark.parametrize(
    ("text", "points"),
    [
        ("The lift is broken.", 0),
        ("We decided on Friday to move the billing service to Postgres 16.", 5),
        ("The deploy of the billing service needs two approvals.", 4),
        ("She must never get penicillin.", 2),
        ("Ann prefers tea.", 1),
        ("He met Ada in the USA", 1),
        ("thanks!", -3),
        ("Good morning, thank you very much", -2),
        ("What is for lunch today?", -1),
        ("lunch?", -2),
        ("Wait a second", -1),
        ("I think I know", 0),
        ("", -3),
    ],
)
def test_the_points_of_a_text(text: str, points: int) -> None:
    assert points_by_rules(text) == points


async def test_without_the_setting_nothing_is_scored() -> None:
    async with fake_hub() as hub:
        memory = hub.store("team").memory

        assert await importance_of(memory, (await memory.add("thanks!")).id) == "medium"


async def test_rules_score_what_is_added_without_an_importance() -> None:
    async with fake_hub(settings=BY_RULES) as hub:
        memory = hub.store("team").memory
        high, low, medium = await memory.add_many(
            ["Ada decided that the contract must end on May 3.", "ok thanks", "The lift is broken."]
        )
        given = await memory.add("thanks a lot", importance="critical")
        said = await memory.add("", messages=[{"role": "user", "content": "thank you"}])

        found = [await importance_of(memory, one.id) for one in (high, low, medium, given, said)]
        assert found == ["high", "low", "medium", "critical", "low"]
        await memory.update(low.id, memory="We decided that Ann must approve 7 orders")
        assert await importance_of(memory, low.id) == "low", "it is scored once"


async def test_a_score_counts_in_a_ranking_that_asks_for_it() -> None:
    async with fake_hub(settings=BY_RULES) as hub:
        memory = hub.store("team").memory
        await memory.add_many(["the lift?", "We decided that Ann must repair the lift in house 4"], dedup=False)

        plain = await memory.search("lift", mode="hybrid", recipe=RankingWeights(vector=0.0))
        weighed = await memory.search("lift", recipe=RankingWeights(vector=0.0, importance={"high": 9.0, "low": 0.1}))

    assert (plain[0].item.importance, weighed[0].item.importance) == ("low", "high")


async def test_a_namespace_may_have_its_own_scoring() -> None:
    rules = Settings(namespace_settings={"scored": {"importance_scoring": "rules"}})
    async with fake_hub(settings=rules) as hub:
        found = [
            await importance_of(memory, (await memory.add("thanks!")).id)
            for memory in (hub.store("scored").memory, hub.store("plain").memory)
        ]

    assert found == ["low", "medium"]


async def test_an_import_keeps_the_importance() -> None:
    async with fake_hub(settings=BY_RULES) as hub:
        memory = hub.store("team").memory
        await memory.import_([{"id": "a", "memory": "thanks!"}])

        assert await importance_of(memory, "a") == "medium"


def judge(messages: Sequence[ChatMessage]) -> dict[str, str]:
    return {"importance": "high" if "contract" in messages[-1].content else "low"}


async def test_the_model_scores_each_new_memory_once_and_its_tokens_are_metrics() -> None:
    model = ScriptedModel({"ImportanceScore": judge})
    async with fake_hub(settings=BY_MODEL, model=model) as hub:
        memory = hub.store("team").memory
        several: list[str | dict[str, Any]] = ["a walk", {"memory": "x", "importance": "high"}]
        added = [await memory.add("a contract"), *await memory.add_many(several)]

        assert [await importance_of(memory, one.id) for one in added] == ["high", "low", "high"]
        item = await memory.get(added[0].id)

    assert [request.content for request in model.requests] == ["a contract", "a walk"]
    assert item is not None
    assert item.metrics["input_tokens"] > 0


@pytest.mark.parametrize(
    "wrong", [UnavailableError("the model", "it is away"), {"importance": "critical"}, "gibberish"]
)
async def test_where_the_model_fails_the_rules_score_and_one_warning_is_logged(
    wrong: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "sharedmem.memory")
    model = ScriptedModel({"ImportanceScore": [wrong, wrong]})
    async with fake_hub(settings=BY_MODEL, model=model) as hub:
        memory = hub.store("team").memory
        added = [await memory.add("thanks!"), await memory.add("She must never get penicillin, by order 4.")]

        assert [await importance_of(memory, one.id) for one in added] == ["low", "high"]
        assert hub.counters.read("memory_importance_fallbacks") == 2
    assert ["importance is scored by rules" in record.message for record in caplog.records] == [True]


async def test_the_offline_summariser_scores_nothing() -> None:
    async with fake_hub(settings=BY_MODEL) as hub:
        memory = hub.store("team").memory
        for refused in (memory.add("a fact"), memory.add_many(["a fact"])):
            with pytest.raises(ConfigError, match=r"importance_scoring.*set llm"):
                await refused

        assert (await memory.stats()).count == 0


@pytest.mark.parametrize("value", ["yes", "", True, 3])
def test_another_scoring_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="importance_scoring"):
        Settings().replace(importance_scoring=value)
    with pytest.raises(ConfigError, match="namespace_settings"):
        Settings(namespace_settings={"x": {"importance_scoring": value}})


class Agent(RemembersMixin):
    def __init__(self, hub: Hub) -> None:
        self.context = ActorContext(hub.store("team"))

    def extract_memory(self, output: Any) -> str:
        """All of it."""
        return str(output)


async def test_what_an_actor_remembers_is_scored_unless_it_says_how_important_it_is() -> None:
    async with fake_hub(settings=BY_RULES) as hub:
        agent = Agent(hub)
        added = [await agent.remember("thanks!"), await agent.remember("thanks a lot", "high")]
        added.append(await agent.remember_output("We agreed on 30 days for Ann"))

        found = [await importance_of(hub.store("team").memory, one.id) for one in added if one]
    assert found == ["low", "high", "high"]
