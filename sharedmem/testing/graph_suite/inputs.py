"""What is refused, before anything is written."""
# ruff: noqa: D102  # a test's name is its sentence

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from sharedmem.errors import InvalidError, NotFoundError
from sharedmem.knowledge.graph.graph import Graph
from sharedmem.testing.graph_suite.base import GROUP, GraphFixtures, day

NAIVE = datetime(2025, 1, 1)  # noqa: DTZ001  # that is what is refused


class InputSuite(GraphFixtures):
    """What can be neither told nor asked."""

    @pytest.mark.parametrize(
        "given",
        [
            {"valid_from": day(2025), "valid_to": day(2024)},
            {"valid_from": day(2025), "valid_to": day(2025)},
            {"valid_from": NAIVE},
            {"valid_to": NAIVE},
            {"recorded_at": NAIVE},
            {"source": " "},
            {"target": "!?"},
            {"type": ""},
            {"source": "x" * 300},
            {"group_id": ""},
            {"group_id": "a{b}"},
            {"group_id": "x" * 300},
            {"episode": "two words"},
        ],
    )
    async def test_a_relationship_that_is_none_is_refused_and_leaves_nothing(
        self, graph: Graph, given: dict[str, Any]
    ) -> None:
        sound = {"source": "Ann", "type": "lives_in", "target": "Oslo", "group_id": GROUP}
        asked = sound | given
        source, type_, target = asked.pop("source"), asked.pop("type"), asked.pop("target")

        with pytest.raises(InvalidError):
            await graph.add_relationship(source, type_, target, **asked)

        assert await graph.groups() == []

    @pytest.mark.parametrize(
        "given",
        [
            {"content": ""},
            {"content": "  "},
            {"content": {}},
            {"content": "x" * 200_001},
            {"content": {"a": {1, 2}}},
            {"content": "half \ud83d"},
            {"id": "two words"},
            {"id": "x" * 200},
            {"occurred_at": NAIVE},
            {"source": "two\nlines"},
            {"session": ""},
            {"group_id": None},
        ],
    )
    async def test_an_episode_that_is_none_is_refused_and_leaves_nothing(
        self, graph: Graph, given: dict[str, Any]
    ) -> None:
        asked: dict[str, Any] = {"content": "Ann lives in Oslo.", "group_id": GROUP} | given
        if asked.get("session") == "":
            asked["session"] = " "

        with pytest.raises(InvalidError):
            await graph.add_episode(asked.pop("content"), **asked)

        assert await graph.groups() == []

    async def test_what_is_not_there_is_told_with_its_group(self, graph: Graph) -> None:
        with pytest.raises(NotFoundError, match="nothing-here"):
            await graph.get("nothing-here", group_id=GROUP)
        with pytest.raises(NotFoundError, match="Nobody"):
            await graph.facts("Nobody", group_id=GROUP)
        with pytest.raises(NotFoundError):
            await graph.invalidate("nothing-here", group_id=GROUP)

    @pytest.mark.parametrize("when", [{"as_of": NAIVE}, {"known_at": NAIVE}])
    async def test_a_moment_without_a_zone_is_refused(self, graph: Graph, when: dict[str, Any]) -> None:
        await graph.add_entity("Ann", group_id=GROUP)

        with pytest.raises(InvalidError, match="time zone"):
            await graph.facts("Ann", group_id=GROUP, **when)
