"""docs/retrieval.md: a short statement is found by what a question about a person asks for."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from sharedmem import Hub, MemoryItem, MemoryMessage, Settings
from sharedmem.memory.memories import Memories
from sharedmem.memory.ranking import RankingWeights
from sharedmem.memory.serialization import decode_features, ranking_features
from sharedmem.testing import fake_hub

HOME = "I moved to York in spring."
OTHERS = (
    "She gave a concert where many people were.",
    "She does yoga where the old mill was.",
    "Her bicycle was stolen.",
    "The invoices are due on the fifteenth.",
    "Bob sings in the choir of the cathedral.",
)
QUESTION = "Where does she live?"
WITHOUT = RankingWeights(attribute=0.0)


@pytest.fixture
async def memory() -> AsyncIterator[Memories]:
    async with fake_hub(settings=Settings(embedder="wordllama")) as hub:
        memory = hub.store("facts").memory
        await memory.add_many([HOME, *OTHERS], dedup=False)
        yield memory


async def first(memory: Memories, question: str, recipe: RankingWeights | None = None) -> str:
    return (await memory.search(question, limit=1, recipe=recipe))[0].item.memory


async def test_a_statement_without_a_word_of_the_question_is_found_by_what_it_is_about(memory: Memories) -> None:
    assert await first(memory, QUESTION, WITHOUT) != HOME
    assert await first(memory, QUESTION) == HOME


async def test_what_it_contributes_is_explained(memory: Memories) -> None:
    hit = (await memory.search(QUESTION, explain=True))[0]

    assert hit.why is not None
    signals = {signal.name: signal for signal in hit.why.signals}
    assert signals["attribute"].contribution == signals["attribute"].score * RankingWeights().attribute
    assert sum(signal.contribution for signal in signals.values()) == pytest.approx(hit.rank_score)


async def test_a_statement_that_fits_is_likely_to_be_relevant(memory: Memories) -> None:
    fits = (await memory.search(QUESTION))[0]
    unrelated = (await memory.search("What is the boiling point of tungsten?"))[0]

    assert fits.score > 5 * unrelated.score


async def test_a_statement_of_somebody_else_does_not_answer_for_a_person_who_is_named(memory: Memories) -> None:
    assert "Bob" in await first(memory, "Tell me, where does Bob live?")


@pytest.mark.parametrize("question", ["Wo wohnt die, die lebt?", "home house address", "Where is the invoice?"])
async def test_a_question_that_is_not_about_a_person_or_not_english_is_left_alone(
    memory: Memories, question: str
) -> None:
    hits = await memory.search(question, explain=True)

    assert hits
    names = {signal.name for hit in hits for signal in (hit.why.signals if hit.why else ())}
    assert "attribute" not in names


@pytest.mark.parametrize(
    "item",
    [
        MemoryItem(memory=HOME, messages=(MemoryMessage(role="user", name="Ada", content=HOME),)),
        MemoryItem(memory=f"{HOME} {'The road was long. ' * 30}"),
        MemoryItem(memory="Should I move to York?"),
        MemoryItem(memory="The sum of both was correct."),
    ],
    ids=["turn", "document", "question", "about nothing"],
)
def test_only_short_statements_store_what_they_are_about(item: MemoryItem) -> None:
    assert ranking_features(item, 0).told == ()


def test_what_a_statement_is_about_comes_back_as_it_was() -> None:
    features = ranking_features(MemoryItem(memory=HOME), 0)

    assert {"home", "=place"} <= set(features.told)
    assert decode_features(features.encoded()) == features


def test_a_memory_of_an_earlier_version_is_about_nothing() -> None:
    older = decode_features(b'["t",3,null,false,8,1683460800000,"low",0,"",["ab"]]')

    assert (older.told, older.claims, older.importance) == ((), ("ab",), "low")


async def test_every_index_returns_what_statements_are_about(hub: Hub, namespace: str) -> None:
    memory = hub.store(namespace).memory
    await memory.add_many([HOME, *OTHERS], dedup=False)

    hits = await memory.search(QUESTION, explain=True)

    lifted = [hit for hit in hits if hit.why and "attribute" in {signal.name for signal in hit.why.signals}]
    assert [hit.item.memory for hit in lifted] == [HOME]
