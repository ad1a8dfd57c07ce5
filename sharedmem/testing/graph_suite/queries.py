"""Searching and traversing the graph, at any valid time and transaction time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from sharedmem.errors import InvalidError, NotFoundError
from sharedmem.graph.graph import Graph
from sharedmem.models import UNKNOWN, Episode, Fact
from sharedmem.testing.graph_suite.base import GROUP, OTHER, GraphFixtures, day, fact_targets

# ruff: noqa: D102  # a test's name is its sentence


class GraphSearchTests(GraphFixtures):
    """Search results."""

    async def _talk(self, graph: Graph) -> None:
        texts = (
            "Ann Lee lives in Oslo.",
            "The zebra printer on floor two is broken again.",
            "Ann Lee works for Globex.",
            "Lunch is at noon.",
        )
        for n, text in enumerate(texts):
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

    async def test_a_fact_two_steps_away_is_part_of_the_answer(self, graph: Graph) -> None:
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


# ruff: noqa: D102  # a test's name is its sentence


class GraphTraversalTests(GraphFixtures):
    """Results of a walk."""

    async def _linked(self, graph: Graph, *pairs: tuple[str, str], year: int = 2020) -> None:
        for source, target in pairs:
            await graph.add_relationship(source, "likes", target, group_id=GROUP, valid_from=day(year))

    async def test_distances_are_the_shortest_ones(self, graph: Graph) -> None:
        await self._linked(graph, ("A1", "B1"), ("B1", "C1"), ("C1", "D1"), ("A1", "D1"), ("D1", "E1"))

        around = await graph.traverse_from_entities(["A1"], group_id=GROUP, depth=3)

        assert {one.name: one.distance for one in around.reached} == {"A1": 0, "B1": 1, "D1": 1, "C1": 2, "E1": 2}
        assert all(len(one.path) == one.distance for one in around.reached)

    async def test_depth_bounds_a_walk(self, graph: Graph) -> None:
        await self._linked(graph, ("A1", "B1"), ("B1", "C1"), ("C1", "D1"))

        around = await graph.traverse_from_entities(["A1"], group_id=GROUP, depth=2)

        assert {one.name for one in around.reached} == {"A1", "B1", "C1"}

    async def test_cycles_and_self_loops_end(self, graph: Graph) -> None:
        await self._linked(graph, ("A1", "B1"), ("B1", "A1"), ("A1", "A1"), ("B1", "B1"))

        around = await graph.traverse_from_entities(["A1"], group_id=GROUP, depth=6)

        assert {one.name: one.distance for one in around.reached} == {"A1": 0, "B1": 1}
        assert len(around.facts) == 4

    async def test_a_walk_goes_along_what_held_at_its_time(self, graph: Graph) -> None:
        await graph.add_relationship("Ann", "works_for", "Globex", group_id=GROUP, valid_from=day(2020))
        for year, boss in ((2019, "Bob"), (2024, "Cleo")):
            await graph.add_relationship("Globex", "has_ceo", boss, group_id=GROUP, valid_from=day(year))

        then = await graph.traverse_from_entities(["Ann"], group_id=GROUP, as_of=day(2022))
        now = await graph.traverse_from_entities(["Ann"], group_id=GROUP)

        assert {one.name for one in then.reached} == {"Ann", "Globex", "Bob"}
        assert {one.name for one in now.reached} == {"Ann", "Globex", "Cleo"}

    async def test_a_bounded_walk_says_that_it_left_something_out(self, graph: Graph) -> None:
        await self._linked(graph, *(("Hub", f"Leaf {n}") for n in range(8)))

        around = await graph.traverse_from_entities(["Hub"], group_id=GROUP, fan_out=3)

        assert len(around.facts) == 3
        assert around.truncated

    async def test_the_shortest_way_between_two(self, graph: Graph) -> None:
        await self._linked(graph, ("A1", "B1"), ("C1", "B1"), ("C1", "D1"), ("A1", "X1"), ("X1", "Y1"))

        steps = await graph.path("A1", "D1", group_id=GROUP)

        assert [(step.fact.source_name, step.fact.target_name, step.forward) for step in steps] == [
            ("A1", "B1", True),
            ("C1", "B1", False),
            ("C1", "D1", True),
        ]
        assert await graph.path("A1", "D1", group_id=GROUP, max_depth=2) == ()

    async def test_an_unknown_entity_is_an_error(self, graph: Graph) -> None:
        with pytest.raises(NotFoundError, match="Nobody"):
            await graph.traverse_from_entities(["Nobody"], group_id=GROUP)

    @pytest.mark.parametrize("depth", [0, 7, -1])
    async def test_how_deep_has_bounds(self, graph: Graph, depth: int) -> None:
        await self._linked(graph, ("A1", "B1"))

        with pytest.raises(InvalidError, match="depth"):
            await graph.traverse_from_entities(["A1"], group_id=GROUP, depth=depth)


# ruff: noqa: D102  # a test's name is its sentence


class BitemporalTests(GraphFixtures):
    """Facts at each time, as known at each time."""

    async def _moved(self, graph: Graph) -> None:
        """Ann moved in March; this was recorded with an error in June, and corrected in August."""
        await graph.add_relationship(
            "Ann", "lives_in", "Oslo", group_id=GROUP, valid_from=day(2025), recorded_at=day(2026, 1)
        )
        await graph.add_relationship(
            "Ann", "lives_in", "Bergen", group_id=GROUP, valid_from=day(2026, 5), recorded_at=day(2026, 6)
        )
        await graph.add_relationship(
            "Ann", "lives_in", "Bergen", group_id=GROUP, valid_from=day(2026, 3), recorded_at=day(2026, 8)
        )

    async def test_both_times_can_be_asked_for(self, graph: Graph) -> None:
        await self._moved(graph)

        async def lived(world: datetime, known: datetime | None) -> list[str]:
            return fact_targets(await graph.facts("Ann", group_id=GROUP, as_of=world, known_at=known))

        assert await lived(day(2026, 4), day(2026, 5)) == ["Oslo"]
        assert await lived(day(2026, 4), day(2026, 7)) == ["Oslo"]
        assert await lived(day(2026, 4), day(2026, 9)) == ["Bergen"]
        assert await lived(day(2026, 4), None) == ["Bergen"]
        assert await lived(day(2026, 6), day(2026, 5)) == ["Oslo"]
        assert await lived(day(2026, 6), day(2026, 7)) == ["Bergen"]
        assert await lived(day(2026, 6), day(2025, 7)) == []

    async def test_history_holds_every_version(self, graph: Graph) -> None:
        await self._moved(graph)

        versions = await graph.history("Ann", group_id=GROUP)

        intervals = [(fact.target_name, fact.valid_from, fact.valid_to, fact.recorded_at) for fact in versions]
        assert intervals == [
            ("Oslo", day(2025), None, day(2026, 1)),
            ("Oslo", day(2025), day(2026, 5), day(2026, 6)),
            ("Bergen", day(2026, 5), None, day(2026, 6)),
            ("Oslo", day(2025), day(2026, 3), day(2026, 8)),
            ("Bergen", day(2026, 3), None, day(2026, 8)),
        ]
        assert [fact.superseded_at for fact in versions] == [day(2026, 6), day(2026, 8), day(2026, 8), None, None]

    async def test_an_interval_holds_from_its_first_moment_until_before_its_last(self, graph: Graph) -> None:
        await graph.add_relationship("Ann", "visits", "Oslo", group_id=GROUP, valid_from=day(2025), valid_to=day(2026))
        tick = timedelta(microseconds=1)

        for moment, holds in (
            (day(2025) - tick, False),
            (day(2025), True),
            (day(2026) - tick, True),
            (day(2026), False),
        ):
            assert bool(await graph.facts("Ann", group_id=GROUP, as_of=moment)) is holds

    async def test_of_two_that_begin_together_the_one_recorded_last_counts(self, graph: Graph) -> None:
        for month, town in ((1, "Oslo"), (2, "Bergen")):
            await graph.add_relationship(
                "Ann", "lives_in", town, group_id=GROUP, valid_from=day(2025), recorded_at=day(2026, month)
            )

        assert fact_targets(await graph.facts("Ann", group_id=GROUP)) == ["Bergen"]
        assert fact_targets(await graph.facts("Ann", group_id=GROUP, known_at=day(2026, 1, 15))) == ["Oslo"]

    async def test_nobody_needs_to_know_since_when(self, graph: Graph) -> None:
        fact = await graph.add_relationship("Ann", "lives_in", "Oslo", group_id=GROUP, valid_from=UNKNOWN)
        await graph.add_relationship("Ann", "lives_in", "Bergen", group_id=GROUP, valid_from=day(2025))

        assert fact.valid_from is None
        assert fact_targets(await graph.facts("Ann", group_id=GROUP, as_of=day(1900))) == ["Oslo"]
        assert fact_targets(await graph.facts("Ann", group_id=GROUP)) == ["Bergen"]

    async def test_the_first_and_the_last_year_can_be_used(self, graph: Graph) -> None:
        first, last = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
        await graph.add_relationship("Rome", "rules", "Gaul", group_id=GROUP, valid_from=first, valid_to=last)

        (fact,) = await graph.facts("Rome", group_id=GROUP, as_of=first)

        assert (fact.valid_from, fact.valid_to) == (first, last)
        assert await graph.facts("Rome", group_id=GROUP, as_of=last) == []

    async def test_a_moment_is_the_same_in_every_zone(self, graph: Graph) -> None:
        zone = timezone(timedelta(hours=5, minutes=30))
        await graph.add_relationship(
            "Ann", "lives_in", "Pune", group_id=GROUP, valid_from=datetime(2025, 1, 1, 5, 30, tzinfo=zone)
        )

        (fact,) = await graph.facts("Ann", group_id=GROUP, as_of=day(2025))

        assert fact.valid_from == day(2025)

    async def test_attributes_have_a_history(self, graph: Graph) -> None:
        await graph.add_entity("Ann", group_id=GROUP, attributes={"tier": "silver"}, at=day(2024))
        await graph.add_entity("Ann", group_id=GROUP, attributes={"tier": "gold", "points": 3}, at=day(2025))

        assert (await graph.entity("Ann", group_id=GROUP)).attributes == {"tier": "gold", "points": 3}
        past = await graph.entity("Ann", group_id=GROUP, as_of=day(2024, 6))
        assert past.attributes == {"tier": "silver"}

    async def test_all_that_was_true_at_a_moment(self, graph: Graph) -> None:
        await self._moved(graph)
        await graph.add_relationship("Bob", "knows", "Ann", group_id=GROUP, valid_from=day(2026, 6))

        assert fact_targets(await graph.as_of(day(2026, 4), group_id=GROUP)) == ["Bergen"]
        assert len(await graph.as_of(day(2026, 7), group_id=GROUP)) == 2
        assert fact_targets(await graph.as_of(day(2026, 4), group_id=GROUP, known_at=day(2026, 7))) == ["Oslo"]
