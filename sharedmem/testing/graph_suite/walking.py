"""Traversal: what lies around entities, how far, and at what time."""
# ruff: noqa: D102  # a test's name is its sentence

from __future__ import annotations

import pytest

from sharedmem.errors import InvalidError, NotFoundError
from sharedmem.knowledge.graph.graph import Graph
from sharedmem.testing.graph_suite.base import GROUP, GraphFixtures, day


class WalkingSuite(GraphFixtures):
    """What a walk comes to."""

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

    async def test_whom_nobody_knows_is_told(self, graph: Graph) -> None:
        with pytest.raises(NotFoundError, match="Nobody"):
            await graph.traverse_from_entities(["Nobody"], group_id=GROUP)

    @pytest.mark.parametrize("depth", [0, 7, -1])
    async def test_how_deep_has_bounds(self, graph: Graph, depth: int) -> None:
        await self._linked(graph, ("A1", "B1"))

        with pytest.raises(InvalidError, match="depth"):
            await graph.traverse_from_entities(["A1"], group_id=GROUP, depth=depth)
