"""Searching and retrieving: what is found, at which time, and within which walls."""
# ruff: noqa: D102  # a test's name is its sentence

from __future__ import annotations

from sharedmem.knowledge.graph.graph import Graph
from sharedmem.models import Episode, Fact
from sharedmem.testing.graph_suite.base import GROUP, OTHER, GraphFixtures, day


class AskingSuite(GraphFixtures):
    """What is found."""

    async def _talk(self, graph: Graph) -> None:
        said = (
            "Ann Lee lives in Oslo.",
            "The zebra printer on floor two is broken again.",
            "Ann Lee works for Globex.",
            "Lunch is at noon.",
        )
        for n, text in enumerate(said):
            await graph.add_episode(text, group_id=GROUP, id=f"e{n}", occurred_at=day(2025, 1, 1 + n))

    async def test_words_find_episodes(self, graph: Graph) -> None:
        await self._talk(graph)

        hits = await graph.text_search("which printers are broken?", group_id=GROUP)

        assert [hit.item.id for hit in hits] == ["e1"]
        assert isinstance(hits[0].item, Episode)
        assert hits[0].score > 0

    async def test_meaning_finds_episodes(self, graph: Graph) -> None:
        await self._talk(graph)

        hits = await graph.vector_search("The zebra printer on floor two is broken again.", group_id=GROUP, limit=1)

        assert [hit.item.id for hit in hits] == ["e1"]

    async def test_facts_and_entities_are_found_too(self, graph: Graph) -> None:
        await self._talk(graph)

        facts = await graph.text_search("Globex", group_id=GROUP, kinds=("fact",))
        entities = await graph.text_search("Globex", group_id=GROUP, kinds=("entity",))

        assert [hit.item.fact for hit in facts if isinstance(hit.item, Fact)] == ["Ann Lee works for Globex"]
        assert [hit.kind for hit in entities] == ["entity"]

    async def test_retrieval_answers_with_where_it_comes_from(self, graph: Graph) -> None:
        await self._talk(graph)

        context = await graph.retrieve("Where does Ann Lee live?", group_id=GROUP, explain=True)

        best = context.items[0]
        assert (best.kind, best.text, best.episode_ids) == ("fact", "Ann Lee lives in Oslo", ("e0",))
        assert best.signals
        assert "Ann Lee lives in Oslo" in context.as_prompt(max_tokens=60)

    async def test_retrieval_knows_only_what_held(self, graph: Graph) -> None:
        await self._talk(graph)
        await graph.add_episode("Ann Lee moved to Bergen.", group_id=GROUP, occurred_at=day(2025, 6))

        now = await graph.retrieve("Where does Ann Lee live?", group_id=GROUP)
        then = await graph.retrieve("Where does Ann Lee live?", group_id=GROUP, as_of=day(2025, 3))

        assert "Ann Lee lives in Oslo" not in {item.text for item in now.items if item.kind == "fact"}
        assert "Ann Lee lives in Bergen" in {item.text for item in now.items}
        assert "Ann Lee lives in Oslo" in {item.text for item in then.items}
        assert "Bergen" not in then.as_prompt(max_tokens=500)

    async def test_what_lies_two_steps_away_is_part_of_the_answer(self, graph: Graph) -> None:
        await self._talk(graph)
        await graph.add_relationship("Globex", "has_ceo", "Hank Scorpio", group_id=GROUP, valid_from=day(2020))

        context = await graph.retrieve("Who leads the employer of Ann Lee?", group_id=GROUP)

        found = {item.text: item for item in context.items}
        assert any("Hank Scorpio" in text for text in found)

    async def test_groups_with_the_same_names_do_not_see_each_other(self, graph: Graph) -> None:
        await self._talk(graph)
        await graph.add_episode("Ann Lee lives in Paris.", group_id=OTHER, id="e0")

        (fact,) = await graph.facts("Ann Lee", group_id=OTHER)
        context = await graph.retrieve("Where does Ann Lee live?", group_id=OTHER)

        assert fact.target_name == "Paris"
        assert "Oslo" not in context.as_prompt(max_tokens=1000)
        assert [hit.item.id for hit in await graph.text_search("Ann Lee", group_id=OTHER)] == ["e0"]
        assert await graph.text_search("zebra printer", group_id=OTHER) == []
        assert await graph.vector_search("zebra printer", group_id="acme", limit=5) == []

    async def test_tenants_do_not_see_each_other(self, graph: Graph, elsewhere: Graph) -> None:
        await self._talk(graph)

        assert await elsewhere.text_search("Ann Lee zebra", group_id=GROUP) == []
        assert (await elsewhere.retrieve("Where does Ann Lee live?", group_id=GROUP)).items == ()
        assert await elsewhere.groups() == []

    async def test_words_of_a_query_language_are_only_words(self, graph: Graph) -> None:
        await self._talk(graph)

        for query in ("@shelf:{*}", '") | (*', "the | and | zebra", "a' OR 1=1 //", "*", "%zebra%", "{}[]()|-~$"):
            hits = await graph.text_search(query, group_id=GROUP)
            assert {hit.item.id for hit in hits} <= {"e0", "e1", "e2", "e3"}
            await graph.retrieve(query, group_id=GROUP)

    async def test_deleting_a_group_leaves_the_others(self, graph: Graph) -> None:
        await self._talk(graph)
        await graph.add_episode("Ann Lee lives in Paris.", group_id=OTHER)

        gone = await graph.delete_by_group(GROUP)

        assert gone > 0
        assert await graph.text_search("Ann", group_id=GROUP) == []
        assert (await graph.stats(group_id=GROUP)).episodes == 0
        assert await graph.groups() == [OTHER]
        assert len(await graph.facts("Ann Lee", group_id=OTHER)) == 1
        again = await graph.add_episode("Ann Lee lives in Rome.", group_id=GROUP, id="e0")
        assert not again.repeated
