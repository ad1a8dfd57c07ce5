"""Entities: whom names mean, and what happens when two turn out to be one."""
# ruff: noqa: D102  # a test's name is its sentence

from __future__ import annotations

import pytest

from sharedmem.errors import ConflictError, InvalidError
from sharedmem.knowledge.graph.graph import Graph
from sharedmem.testing.graph_suite.base import GROUP, GraphFixtures, day, targets


class EntitySuite(GraphFixtures):
    """Who is who."""

    async def test_names_differ_in_more_than_case_and_blanks(self, graph: Graph) -> None:
        first = await graph.add_entity("Globex Corp", group_id=GROUP, type="company")
        again = await graph.add_entity("  globex   CORP. ", group_id=GROUP)

        assert again.id == first.id
        assert (again.name, again.type) == ("Globex Corp", "company")

    async def test_an_alias_leads_to_its_entity(self, graph: Graph) -> None:
        await graph.add_entity("Globex Corporation", group_id=GROUP, aliases=["GBX"])
        await graph.add_relationship("Ann", "works_for", "gbx", group_id=GROUP, valid_from=day(2020))

        assert len(await graph.facts("Globex Corporation", group_id=GROUP)) == 1

    async def test_numbers_tell_names_apart(self, graph: Graph) -> None:
        one = await graph.add_entity("order 1234", group_id=GROUP, type="order")
        other = await graph.add_entity("order 1235", group_id=GROUP, type="order")

        assert one.id != other.id

    async def test_an_entity_has_an_embedding_for_those_who_ask(self, graph: Graph) -> None:
        await graph.add_entity("Globex Corp", group_id=GROUP, type="company")

        asked = await graph.entity("Globex Corp", group_id=GROUP, embedding=True)

        assert asked.embedding is not None
        assert sum(number * number for number in asked.embedding) == pytest.approx(1, abs=0.01)
        assert (await graph.entity("Globex Corp", group_id=GROUP)).embedding is None

    async def test_an_entity_is_told_by_its_id_too(self, graph: Graph) -> None:
        ann = await graph.add_entity("Ann Lee", group_id=GROUP)
        await graph.add_relationship(ann.id, "lives_in", "Oslo", group_id=GROUP, valid_from=day(2020))

        assert targets(await graph.facts(ann.id, group_id=GROUP)) == ["Oslo"]
        assert targets(await graph.facts("Ann Lee", group_id=GROUP)) == ["Oslo"]

    async def test_a_merge_brings_facts_together_and_unmerging_takes_them_apart(self, graph: Graph) -> None:
        await graph.add_relationship("Ann Lee", "lives_in", "Oslo", group_id=GROUP, valid_from=day(2020))
        await graph.add_relationship("A. Lee", "lives_in", "Bergen", group_id=GROUP, valid_from=day(2024))
        before = [await graph.facts(name, group_id=GROUP) for name in ("Ann Lee", "A. Lee")]

        merge = await graph.merge("A. Lee", "Ann Lee", group_id=GROUP, reason="same passport")

        assert merge.reason == "same passport"
        assert targets(await graph.facts("A. Lee", group_id=GROUP)) == ["Bergen"]
        assert targets(await graph.facts("Ann Lee", group_id=GROUP, as_of=day(2022))) == ["Oslo"]
        parted = await graph.unmerge("A. Lee", group_id=GROUP)
        assert parted.undone_at is not None
        after = [await graph.facts(name, group_id=GROUP) for name in ("Ann Lee", "A. Lee")]
        assert [[(f.id, f.valid_to) for f in facts] for facts in after] == [
            [(f.id, f.valid_to) for f in facts] for facts in before
        ]

    async def test_merged_twice_it_is_the_same_merge(self, graph: Graph) -> None:
        for name in ("Ann Lee", "A. Lee", "Zoe Fox"):
            await graph.add_entity(name, group_id=GROUP)
        first = await graph.merge("A. Lee", "Ann Lee", group_id=GROUP)

        again = await graph.merge(first.source_id, "Ann Lee", group_id=GROUP)

        assert again == first
        with pytest.raises(ConflictError):
            await graph.merge(first.source_id, "Zoe Fox", group_id=GROUP)

    async def test_nobody_is_merged_into_himself(self, graph: Graph) -> None:
        await graph.add_entity("Ann Lee", group_id=GROUP)

        with pytest.raises(InvalidError, match="same entity"):
            await graph.merge("Ann Lee", "ann lee", group_id=GROUP)

    async def test_what_is_said_of_a_merged_name_is_said_of_what_it_became(self, graph: Graph) -> None:
        for name in ("Ann Lee", "A. Lee"):
            await graph.add_entity(name, group_id=GROUP)
        await graph.merge("A. Lee", "Ann Lee", group_id=GROUP)

        await graph.add_relationship("A. Lee", "lives_in", "Oslo", group_id=GROUP, valid_from=day(2020))

        assert targets(await graph.facts("Ann Lee", group_id=GROUP)) == ["Oslo"]
