"""docs/memory.md: summaries of memories, and what providers took for a memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from support.memory_fixtures import FaultyEmbedder

from sharedmem import Hub, InvalidError, NotFoundError, Settings, UnavailableError
from sharedmem.memory.memories import Memories
from sharedmem.providers.protocol import ChatMessage, Embeddings, Purpose
from sharedmem.testing import ScriptedModel, fake_hub

LONG = "The lift in house four is broken. Ann has called the firm. They come on Friday at nine."


class PaidEmbedder(FaultyEmbedder):
    """An embedder that counts ten tokens a text, as a service does."""

    async def embed(self, texts: Sequence[str], *, purpose: Purpose = "document") -> Embeddings:
        """See `Embedder.embed`."""
        made = await super().embed(texts, purpose=purpose)
        return made._replace(tokens=10 * len(texts))


def quoting(messages: Sequence[ChatMessage]) -> str:
    return f"In short: {messages[-1].content.split('.')[0]}"


@pytest.fixture
async def hub() -> AsyncIterator[Hub]:
    async with fake_hub(model=ScriptedModel({"text": [quoting] * 5})) as hub:
        yield hub


async def item_of(memory: Memories, id_: str) -> Any:
    item = await memory.get(id_)
    assert item is not None
    return item


async def test_a_summary_is_written_when_a_memory_is_added(memory: Memories) -> None:
    added = await memory.add(LONG, summarize=True)
    several = await memory.add_many(["A tree fell.", "A bus came."], summarize=True)

    item = await item_of(memory, added.id)
    assert (item.memory, item.summary) == (LONG, "In short: The lift in house four is broken")
    assert [(await item_of(memory, one.id)).summary for one in several] == [
        "In short: A tree fell",
        "In short: A bus came",
    ]
    assert (await item_of(memory, (await memory.add("no wish")).id)).summary is None


async def test_a_stored_memory_is_summarised_on_demand(memory: Memories) -> None:
    said = [{"role": "user", "content": "Zebras cross here. Often."}]
    added = await memory.add("", messages=said)
    other = ScriptedModel({"text": ["By another model"]})

    item = await memory.summarize(added.id)
    again = await memory.summarize(added.id, model=other)

    assert item.summary == "In short: Zebras cross here"
    assert (again.summary, (await item_of(memory, added.id)).summary) == ("By another model",) * 2
    assert [one.change for one in await memory.history(added.id)] == ["updated", "updated", "added"]


async def test_offline_a_summary_is_made_of_sentences() -> None:
    async with fake_hub() as hub:
        memory = hub.store("team").memory
        item = await item_of(memory, (await memory.add(LONG, summarize=True)).id)

    assert item.summary
    assert all(line in LONG for line in item.summary.splitlines())
    assert item.metrics == {}


async def test_when_the_model_fails_nothing_is_stored() -> None:
    failure = UnavailableError("the model", "it is away")
    async with fake_hub(model=ScriptedModel({"text": [failure, failure]})) as hub:
        memory = hub.store("team").memory
        with pytest.raises(UnavailableError, match="it is away"):
            await memory.add(LONG, summarize=True)
        with pytest.raises(UnavailableError, match="it is away"):
            await memory.add_many([LONG], summarize=True)

        assert (await memory.stats()).count == 0


async def test_a_summary_twice_or_of_nothing_is_refused(memory: Memories) -> None:
    wrong: Any = "yes"
    for refused in (
        memory.add(LONG, summary="mine", summarize=True),
        memory.add_many([{"memory": LONG, "summary": "mine"}], summarize=True),
        memory.add(LONG, summarize=wrong),
    ):
        with pytest.raises(InvalidError, match="summarize"):
            await refused
    with pytest.raises(NotFoundError):
        await memory.summarize("unknown")
    with pytest.raises(NotFoundError):
        await memory.within(user_id="bob").summarize((await memory.add(LONG)).id)


async def test_a_thread_can_be_summed_up_by_another_model(memory: Memories) -> None:
    await memory.add("The lift is broken. Again.", thread_id="t")
    other = ScriptedModel({"text": ["By another model"]})

    assert await memory.summarize_thread("t") == "In short: The lift is broken"
    assert await memory.summarize_thread("t", model=other) == "By another model"
    assert await memory.summarize_thread("t", model=other) == "By another model", "it is not asked again"


# -- what providers took --------------------------------------------------------------------------


async def test_tokens_and_latency_of_providers_are_metrics_of_a_memory() -> None:
    async with fake_hub(embedder=PaidEmbedder(), model=ScriptedModel({"text": ["Short"]})) as hub:
        memory = hub.store("team").memory
        plain = await item_of(memory, (await memory.add("the roof leaks", thread_id="t")).id)
        summed = await item_of(memory, (await memory.add(LONG, thread_id="t", summarize=True)).id)
        stats = await memory.thread_stats("t")

    assert plain.metrics["input_tokens"] == 10
    assert plain.metrics["latency_ms"] >= 0
    assert "output_tokens" not in plain.metrics
    assert summed.metrics["input_tokens"] > 10
    assert summed.metrics["output_tokens"] == 1
    spent = sum(item.metrics.get(name, 0) for item in (plain, summed) for name in ("input_tokens", "output_tokens"))
    assert (stats.total_tokens, stats.tokens_from) == (round(spent), "metrics")


async def test_metrics_that_the_caller_gives_stay_as_they_are() -> None:
    async with fake_hub(embedder=PaidEmbedder()) as hub:
        memory = hub.store("team").memory
        given = {"output_tokens": 300.0, "latency_ms": 12.5}
        first = await memory.add("the roof leaks", metrics=given)
        again = await memory.add("the roof leaks")

        assert (await item_of(memory, first.id)).metrics == given
        assert again.merged
    async with fake_hub(settings=Settings(embedder="hashing")) as hub:
        memory = hub.store("team").memory
        assert (await item_of(memory, (await memory.add("the roof leaks")).id)).metrics == {}
