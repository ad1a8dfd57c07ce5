"""Finding memories again: by words, by meaning, by who said it; in scope, and without what is gone."""
# a test's name is its sentence

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from conformance.memory.base import FACTS, NOON, MemoryFixtures, add_texts, add_turns
from sharedmem.errors import InvalidError
from sharedmem.memory.memories import Memories
from sharedmem.memory.ranking import RankingWeights
from sharedmem.models import MemoryItem, SearchMode

ODD_QUERIES = (
    "the | and | zebra",
    "zebra) | (@ns:{x}",
    "@user:{ada} zebra",
    "-zebra",
    "zebra*",
    '"zebra mascot"',
    "zebra' OR 1=1 --",
    "{zebra}",
    "zebra\x00mascot",
    "ZEBRAS",
    "🦓 zebra",
    "zebra " * 5000,
    "zebra " + "x" * 1_000_000,
)


class MemorySearchTests(MemoryFixtures):
    """`search` and its relatives."""

    async def test_a_memory_is_found_by_its_words(self, memory: Memories) -> None:
        await add_texts(memory)

        hits = await memory.search("zebra")

        assert hits[0].item.memory == FACTS[3]
        assert (hits.mode, hits.degraded) == ("hybrid", None)
        assert hits[0].score >= hits[-1].score

    async def test_each_kind_of_search_finds_it(self, memory: Memories) -> None:
        ids = await add_texts(memory)
        item = await memory.get(ids[1], embedding=True)
        assert item is not None
        assert item.embedding is not None

        searches = (
            memory.search("When are invoices sent?"),
            memory.search("When are invoices sent?", mode="semantic"),
            memory.search("When are invoices sent?", mode="keywords"),
            memory.search_semantic(FACTS[1], threshold=0.99),
            memory.search_hybrid("sending bills", keywords="invoice"),
            memory.search_keywords("invoices"),
            memory.find_similar(item.embedding, threshold=0.9),
        )

        for searched in searches:
            assert (await searched)[0].item.id == ids[1]

    async def test_meaning_is_scored_by_cosine_similarity(self, memory: Memories) -> None:
        await add_texts(memory)

        hits = await memory.search_semantic(FACTS[4])

        assert hits[0].rank_score == pytest.approx(1, abs=0.01)
        assert [hit.rank_score for hit in hits] == sorted((hit.rank_score for hit in hits), reverse=True)
        near = await memory.search_semantic(FACTS[4], threshold=0.98)
        assert [hit.item.memory for hit in near] == [FACTS[4]]

    @pytest.mark.parametrize("mode", ["hybrid", "semantic", "keywords"])
    async def test_a_score_is_a_probability_that_falls_along_the_order(
        self, memory: Memories, mode: SearchMode
    ) -> None:
        await add_texts(memory)

        hits = await memory.search("Which zebra is the mascot?", mode=mode)

        scores = [hit.score for hit in hits]
        assert scores == sorted(scores, reverse=True)
        assert all(0 < score < 1 for score in scores)

    @pytest.mark.parametrize("mode", ["hybrid", "semantic", "keywords"])
    async def test_a_threshold_leaves_out_what_is_less_likely_in_every_mode(
        self, memory: Memories, mode: SearchMode
    ) -> None:
        await add_texts(memory)
        query = FACTS[3]
        hits = await memory.search(query, mode=mode)
        least = hits[0].score

        kept = await memory.search(query, mode=mode, threshold=least - 1e-6)
        none = await memory.search(query, mode=mode, threshold=1)

        assert [hit.item.id for hit in kept] == [hit.item.id for hit in hits if hit.score >= least - 1e-6]
        assert kept[0].score == pytest.approx(least)
        assert none == []

    async def test_a_score_does_not_depend_on_how_many_are_asked_for(self, memory: Memories) -> None:
        await add_texts(memory)

        few = await memory.search("zebra mascot", limit=3)
        many = await memory.search("zebra mascot", limit=10)

        assert [hit.score for hit in few] == pytest.approx([hit.score for hit in many[:3]])

    async def test_words_are_found_that_no_vector_is_near_to(self, memory: Memories) -> None:
        await add_texts(memory, [f"Nothing happened in minute {n} of the hour." for n in range(150)])
        (id_,) = await add_texts(memory, ["Ticket QX-4711 is about the lift."])

        hits = await memory.search("QX 4711 hour minute happened")

        assert id_ in [hit.item.id for hit in hits]

    async def test_the_limit_holds(self, memory: Memories) -> None:
        await add_texts(memory, [f"note number {n}" for n in range(110)])

        assert len(await memory.search("note")) == 10
        assert len(await memory.search("note", limit=1)) == 1
        assert len(await memory.search("note", limit=100)) == 100

    @pytest.mark.parametrize("limit", [0, 101, -1, True, 2.5])
    async def test_an_impossible_limit_is_refused(self, memory: Memories, limit: Any) -> None:
        refusals = (memory.search("x", limit=limit), memory.search_keywords("x", limit=limit))
        for refused in refusals:
            with pytest.raises(InvalidError, match="limit"):
                await refused

    @pytest.mark.parametrize("query", ["", "   ", "\n\t", None, 7])
    async def test_a_query_that_says_nothing_is_refused(self, memory: Memories, query: Any) -> None:
        refusals = (memory.search(query), memory.search_semantic(query), memory.search_keywords(query))
        for refused in refusals:
            with pytest.raises(InvalidError, match=r"query|phrase"):
                await refused

    @pytest.mark.parametrize(
        "asked",
        [
            {"mode": "psychic"},
            {"threshold": 1.5},
            {"threshold": float("nan")},
            {"diversity": -0.1},
        ],
    )
    async def test_an_impossible_search_is_refused(self, memory: Memories, asked: dict[str, Any]) -> None:
        with pytest.raises(InvalidError):
            await memory.search("x", **asked)

    @pytest.mark.parametrize("query", ODD_QUERIES, ids=range(len(ODD_QUERIES)))
    async def test_a_query_means_its_words_whatever_it_holds(self, memory: Memories, query: str) -> None:
        await add_texts(memory)

        assert (await memory.search(query))[0].item.memory == FACTS[3]
        assert [hit.item.memory for hit in await memory.search_keywords(query)] == [FACTS[3]]

    @pytest.mark.parametrize("query", ["the of and", "?!...", "🦄", "\u202e"])
    async def test_a_query_without_telling_words_finds_nothing_by_words(self, memory: Memories, query: str) -> None:
        await add_texts(memory)

        assert await memory.search_keywords(query) == []
        await memory.search(query)

    @pytest.mark.parametrize("text", ["שלום עולם", "東京都の天気", "Füße im Straßengraben", "naïve café", "🦓 only"])
    async def test_text_of_any_script_is_found(self, memory: Memories, text: str) -> None:
        await add_texts(memory)
        (id_,) = await add_texts(memory, [text])

        assert (await memory.search(text))[0].item.id == id_

    async def test_filters_narrow_a_search(self, memory: Memories) -> None:
        await memory.add_many(
            [
                MemoryItem(
                    memory=f"note {number}",
                    category=f"c{number % 2}",
                    tags=("even",) if number % 2 == 0 else ("odd", "even more"),
                    metadata={"n": number, "flag": number > 2},
                    timestamp=NOON + timedelta(hours=number),
                    importance="critical" if number == 3 else "low",
                )
                for number in range(5)
            ],
            dedup=False,
        )

        async def found(**filters: object) -> set[str]:
            return {hit.item.memory for hit in await memory.search("note", filters=filters)}

        assert await found() == {f"note {number}" for number in range(5)}
        assert await found(category="c1") == {"note 1", "note 3"}
        assert await found(category=("c0", "c1")) == await found()
        assert await found(tags="even") == {"note 0", "note 2", "note 4"}
        assert await found(tags=("odd", "even more")) == {"note 1", "note 3"}
        assert await found(metadata={"n": 3}) == {"note 3"}
        assert await found(metadata={"flag": True}) == {"note 3", "note 4"}
        assert await found(importance=("critical", "high")) == {"note 3"}
        assert await found(since=NOON + timedelta(hours=3)) == {"note 3", "note 4"}
        assert await found(until=NOON) == {"note 0"}
        assert await found(category="c1", importance="low") == {"note 1"}
        assert await found(category="c", user_id="nobody") == set()

    async def test_words_in_the_order_of_time(self, memory: Memories) -> None:
        ids = await add_texts(memory, ["lift lift lift", "the lift", "a lift and more words than that", "stairs"])

        newest = await memory.search_keywords("lift", order_by="timestamp")

        assert [hit.item.id for hit in newest] == [ids[2], ids[1], ids[0]]

    async def test_what_is_deleted_is_found_no_more(self, memory: Memories) -> None:
        ids = await add_texts(memory, [f"note {number}" for number in range(12)])
        for id_ in ids[:4]:
            await memory.delete(id_)

        hits = await memory.search("note", limit=10)

        assert {hit.item.id for hit in hits} == set(ids[4:])

    async def test_what_is_changed_is_found_as_it_is_now(self, memory: Memories) -> None:
        ids = await add_texts(memory)
        await memory.update(ids[3], memory="The mascot is a heron now.", content="The mascot is a heron now.")

        assert await memory.search_keywords("zebra") == []
        assert [hit.item.id for hit in await memory.search_keywords("herons")] == [ids[3]]

    async def test_who_spoke_counts_when_the_query_names_them(self, memory: Memories) -> None:
        turns = [("Caroline", "I went to the museum."), ("Melanie", "I went to the museum.")] * 3
        turns += [("Bob", f"Chatter {n} about the weather.") for n in range(4)]
        await add_turns(memory, *turns)

        hits = await memory.search("Where did Melanie go, to the museum?", limit=3)

        assert {hit.item.author for hit in hits} == {"Melanie"}

    async def test_turns_beside_a_hit_are_found_too(self, memory: Memories) -> None:
        ids = await add_turns(
            memory,
            ("Ann", "Filler about the weather today."),
            ("Ann", "Which animal is on our flag?"),
            ("Ben", "An old grey heron."),
            *(("Ann", f"Filler number {n}, about nothing.") for n in range(20)),
        )

        hits = await memory.search("animal on the flag", limit=4)

        assert ids[2] in [hit.item.id for hit in hits]

    async def test_neighbours_obey_the_filters(self, memory: Memories) -> None:
        thread = {"thread_id": "talk", "timestamp": NOON}
        for turn, (name, text, user) in enumerate(
            [("Ann", "Which animal is on our flag?", "u1"), ("Ben", "An old grey heron.", "u2")]
        ):
            await memory.add(
                MemoryItem.model_validate(
                    {
                        **thread,
                        "memory": text,
                        "user_id": user,
                        "turn_index": turn,
                        "messages": [{"role": "user", "name": name, "content": text}],
                    }
                ),
                dedup=False,
            )

        hits = await memory.search("animal on the flag", filters={"user_id": "u1"})

        assert [hit.item.user_id for hit in hits] == ["u1"]

    async def test_a_search_explains_itself(self, memory: Memories) -> None:
        await add_texts(memory)

        hits = await memory.search("zebra mascot", explain=True)

        why = hits[0].why
        assert why is not None
        assert {"text", "vector"} <= {signal.name for signal in why.signals}
        assert sum(signal.contribution for signal in why.signals) == pytest.approx(hits[0].rank_score, abs=1e-6)
        assert why.cost == hits.cost
        assert hits.cost.round_trips >= 2
        assert hits.cost.milliseconds > 0
        plain = await memory.search("zebra mascot")
        assert plain[0].why is None
        assert [hit.item.id for hit in plain] == [hit.item.id for hit in hits]

    async def test_another_recipe_gives_another_order(self, memory: Memories) -> None:
        await memory.add(MemoryItem(memory="lift lift", importance="low"), dedup=False)
        await memory.add(MemoryItem(memory="lift and many other words", importance="critical"), dedup=False)

        first = await memory.search("lift", recipe=RankingWeights(vector=0.0))
        urgent = await memory.search("lift", recipe=RankingWeights(vector=0.0, importance={"critical": 50.0}))

        assert first[0].item.importance == "low"
        assert urgent[0].item.importance == "critical"

    async def test_a_reranker_has_the_last_word(self, memory: Memories) -> None:
        await add_texts(memory)
        asked: list[str] = []

        async def favour_norway(query: str, items: Sequence[MemoryItem]) -> list[float]:
            asked.append(query)
            return [10.0 if "Norway" in item.memory else 0.0 for item in items]

        hits = await memory.search("zebra mascot", rerank=favour_norway, explain=True)

        assert asked == ["zebra mascot"]
        assert hits[0].item.memory == FACTS[4]
        assert hits[0].why is not None
        assert "reranker" in {signal.name for signal in hits[0].why.signals}

    async def test_a_reranker_answers_a_score_for_each(self, memory: Memories) -> None:
        await add_texts(memory)

        async def lazy(query: str, items: Sequence[MemoryItem]) -> list[float]:
            return [1.0 for item in items if item.memory in query]

        with pytest.raises(InvalidError, match="rerank"):
            await memory.search("the deploy of a database", rerank=lazy)

    async def test_variety_puts_the_like_behind_the_unlike(self, memory: Memories) -> None:
        await add_texts(memory, ["the lift is broken again", "the lift is broken again!", "a lift costs much money"])

        plain = await memory.search("lift is broken again", limit=2)
        varied = await memory.search("lift is broken again", limit=2, diversity=0.8)

        assert {hit.item.memory[:8] for hit in plain} == {"the lift"}
        assert [hit.item.memory[:6] for hit in varied] == ["the li", "a lift"]

    @pytest.mark.parametrize("vector", [[1.0], [], "text", [float("nan")] * 64])
    async def test_a_vector_that_is_none_is_refused(self, memory: Memories, vector: Any) -> None:
        with pytest.raises(InvalidError, match="embedding"):
            await memory.find_similar(vector)

    async def test_nothing_is_near_to_a_vector_of_zeros(self, memory: Memories) -> None:
        ids = await add_texts(memory)
        item = await memory.get(ids[0], embedding=True)
        assert item is not None
        assert item.embedding is not None

        assert await memory.find_similar([0.0] * len(item.embedding)) == []
