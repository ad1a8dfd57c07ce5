"""Adding episodes: which facts and entities are stored, and which inputs are rejected."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import pytest

from sharedmem.errors import ConflictError, InvalidError, NotFoundError
from sharedmem.graph.graph import Graph
from sharedmem.models import Episode, RelationType
from sharedmem.testing.graph_suite.base import GROUP, GraphFixtures, day, fact_targets, fact_texts

# ruff: noqa: D102  # a test's name is its sentence


class GraphEpisodeTests(GraphFixtures):
    """The results of statements."""

    async def test_a_relationship_makes_its_entities(self, graph: Graph) -> None:
        fact = await graph.add_relationship("Ann Lee", "works_for", "Globex", group_id=GROUP, valid_from=day(2024))

        assert (fact.source_name, fact.type, fact.target_name) == ("Ann Lee", "works_for", "Globex")
        assert (fact.valid_from, fact.valid_to) == (day(2024), None)
        assert (await graph.entity("ann  LEE", group_id=GROUP)).id == fact.source_id
        assert (await graph.entity("Globex", group_id=GROUP)).id == fact.target_id

    async def test_a_later_target_of_a_functional_relation_closes_the_earlier_one(self, graph: Graph) -> None:
        await graph.add_relationship("Ann", "lives_in", "Oslo", group_id=GROUP, valid_from=day(2020))
        await graph.add_relationship("Ann", "lives_in", "Bergen", group_id=GROUP, valid_from=day(2024))

        assert fact_targets(await graph.facts("Ann", group_id=GROUP)) == ["Bergen"]
        (oslo,) = await graph.facts("Ann", group_id=GROUP, as_of=day(2022))
        assert (oslo.target_name, oslo.valid_to) == ("Oslo", day(2024))
        assert oslo.invalidated_at is not None

    async def test_relations_that_nobody_declared_hold_of_many(self, graph: Graph) -> None:
        for city in ("Oslo", "Bergen"):
            await graph.add_relationship("Ann", "likes", city, group_id=GROUP, valid_from=day(2020))

        assert fact_targets(await graph.facts("Ann", group_id=GROUP)) == ["Bergen", "Oslo"]

    async def test_an_application_declares_its_own_relations(self, graph: Graph) -> None:
        strict = graph.using(relations=[RelationType(name="drives", functional=True, inverse="driven_by")])
        await strict.add_relationship("Ann", "drives", "Volvo", group_id=GROUP, valid_from=day(2020))
        await strict.add_relationship("Saab", "driven by", "Ann", group_id=GROUP, valid_from=day(2024))

        assert fact_targets(await strict.facts("Ann", group_id=GROUP)) == ["Saab"]

    async def test_a_repeated_fact_is_one_fact_with_two_episodes(self, graph: Graph) -> None:
        for moment, episode in ((day(2020), "first"), (day(2022), "second")):
            await graph.add_relationship("Ann", "lives_in", "Oslo", group_id=GROUP, valid_from=moment, episode=episode)

        (fact,) = await graph.facts("Ann", group_id=GROUP)

        assert fact.valid_from == day(2020)
        assert set(fact.episode_ids) == {"first", "second"}

    async def test_a_marriage_closes_the_former_ones_of_both(self, graph: Graph) -> None:
        await graph.add_relationship("Ann", "married_to", "Bob", group_id=GROUP, valid_from=day(2010))
        await graph.add_relationship("Cleo", "married_to", "Dan", group_id=GROUP, valid_from=day(2012))
        await graph.add_relationship("Dan", "married_to", "Ann", group_id=GROUP, valid_from=day(2020))

        assert len(await graph.as_of(day(2015), group_id=GROUP)) == 2
        (now,) = await graph.as_of(day(2021), group_id=GROUP)
        assert {now.source_name, now.target_name} == {"Ann", "Dan"}

    async def test_an_end_can_be_given_at_once_or_later(self, graph: Graph) -> None:
        fact = await graph.add_relationship("Ann", "works_for", "Globex", group_id=GROUP, valid_from=day(2020))
        await graph.add_relationship(
            "Bob", "works_for", "Globex", group_id=GROUP, valid_from=day(2020), valid_to=day(2021)
        )

        closed = await graph.invalidate(fact.id, group_id=GROUP, at=day(2023))

        assert closed.valid_to == day(2023)
        assert await graph.facts("Globex", group_id=GROUP) == []
        assert len(await graph.facts("Globex", group_id=GROUP, as_of=day(2020, 6))) == 2

    async def test_an_episode_returns_its_facts_and_those_that_it_closes(self, graph: Graph) -> None:
        await graph.add_episode("Ann Lee lives in Oslo.", group_id=GROUP, occurred_at=day(2024))

        result = await graph.add_episode(
            "Ann Lee moved to Bergen.", group_id=GROUP, id="move", occurred_at=day(2025), session="s", user="ann"
        )

        assert fact_texts(result.facts) == ["Ann Lee lives in Bergen"]
        assert fact_texts(result.closed) == ["Ann Lee lives in Oslo"]
        assert {entity.name for entity in result.entities} == {"Ann Lee", "Bergen"}
        kept = await graph.get("move", group_id=GROUP)
        assert isinstance(kept, Episode)
        assert (kept.content, kept.session, kept.user) == ("Ann Lee moved to Bergen.", "s", "ann")
        assert kept.fact_ids == (result.facts[0].id,)

    async def test_a_repeated_episode_changes_nothing(self, graph: Graph) -> None:
        first = await graph.add_episode("Ann Lee lives in Oslo.", group_id=GROUP, id="e", occurred_at=day(2024))
        before = await graph.history("Ann Lee", group_id=GROUP)

        again = await graph.add_episode("Ann Lee lives in Oslo.", group_id=GROUP, id="e", occurred_at=day(2025))

        assert not first.repeated
        assert again.repeated
        assert again.episode.occurred_at == day(2024)
        assert await graph.history("Ann Lee", group_id=GROUP) == before

    async def test_another_episode_under_a_known_id_is_refused(self, graph: Graph) -> None:
        await graph.add_episode("Ann Lee lives in Oslo.", group_id=GROUP, id="e")

        with pytest.raises(ConflictError, match="another content"):
            await graph.add_episode("Ann Lee lives in Bergen.", group_id=GROUP, id="e")

        assert fact_targets(await graph.facts("Ann Lee", group_id=GROUP)) == ["Oslo"]

    async def test_data_is_an_episode_too(self, graph: Graph) -> None:
        await graph.add_episode({"order": 7, "lines": [{"sku": "zebra-1"}]}, group_id=GROUP, id="data", source="shop")

        (hit,) = await graph.text_search("zebra", group_id=GROUP)

        assert isinstance(hit.item, Episode)
        assert hit.item.content == {"order": 7, "lines": [{"sku": "zebra-1"}]}

    async def test_many_episodes_at_once_are_as_one_after_the_other(self, graph: Graph) -> None:
        towns = ("Oslo", "Bergen", "Narvik", "Hamar")
        episodes = [
            Episode(content=f"Ann Lee moved to {town}.", group_id=GROUP, id=f"e{n}", occurred_at=day(2020 + n))
            for n, town in enumerate(towns)
        ]

        results = await graph.add_episodes([*episodes, episodes[0]])

        assert [result.repeated for result in results] == [False, False, False, False, True]
        for n, town in enumerate(towns):
            assert fact_targets(await graph.facts("Ann Lee", group_id=GROUP, as_of=day(2020 + n, 6))) == [town]

    async def test_episodes_out_of_order_give_the_same_facts(self, graph: Graph) -> None:
        for year, town in ((2024, "Hamar"), (2020, "Oslo"), (2022, "Bergen")):
            await graph.add_relationship("Ann", "lives_in", town, group_id=GROUP, valid_from=day(year))

        lived: tuple[tuple[int, list[str]], ...] = (
            (2019, []),
            (2020, ["Oslo"]),
            (2021, ["Oslo"]),
            (2022, ["Bergen"]),
            (2024, ["Hamar"]),
            (2026, ["Hamar"]),
        )
        for year, towns in lived:
            assert fact_targets(await graph.facts("Ann", group_id=GROUP, as_of=day(year, 6))) == towns

    async def test_undoing_an_episode_opens_exactly_what_it_closed(self, graph: Graph) -> None:
        await graph.add_relationship("Ann", "lives_in", "Oslo", group_id=GROUP, valid_from=day(2020))
        await graph.add_relationship("Ann", "works_for", "Globex", group_id=GROUP, valid_from=day(2020))
        before = await graph.facts("Ann", group_id=GROUP)
        await graph.add_relationship("Ann", "lives_in", "Bergen", group_id=GROUP, valid_from=day(2024), episode="move")
        known = (await graph.facts("Ann", group_id=GROUP, type="lives_in"))[0].recorded_at

        undone = await graph.undo("move", group_id=GROUP)

        after = await graph.facts("Ann", group_id=GROUP)
        assert {(f.id, f.valid_from, f.valid_to) for f in after} == {(f.id, f.valid_from, f.valid_to) for f in before}
        assert undone.episode.undone_at is not None
        assert fact_targets(await graph.facts("Ann", group_id=GROUP, type="lives_in", known_at=known)) == ["Bergen"]
        assert (await graph.undo("move", group_id=GROUP)).repeated

    async def test_undoing_an_unknown_episode_is_an_error(self, graph: Graph) -> None:
        with pytest.raises(NotFoundError, match="episode"):
            await graph.undo("nothing", group_id=GROUP)

    async def test_what_began_then_or_later_cannot_be_closed(self, graph: Graph) -> None:
        fact = await graph.add_relationship("Ann", "lives_in", "Oslo", group_id=GROUP, valid_from=day(2020))

        with pytest.raises(InvalidError, match="begins then or later"):
            await graph.invalidate(fact.id, group_id=GROUP, at=day(2020))

    async def test_many_who_tell_at_once_lose_nothing(self, graph: Graph) -> None:
        towns = [f"Town {n}" for n in range(20)]

        await asyncio.gather(
            *(
                graph.add_relationship("Ann", "lives_in", town, group_id=GROUP, valid_from=day(2000 + n))
                for n, town in enumerate(towns)
            )
        )

        for n, town in enumerate(towns):
            assert fact_targets(await graph.facts("Ann", group_id=GROUP, as_of=day(2000 + n, 6))) == [town]


# ruff: noqa: D102  # a test's name is its sentence


class GraphEntityTests(GraphFixtures):
    """Identity of entities."""

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

    async def test_an_entity_is_found_by_its_id_too(self, graph: Graph) -> None:
        ann = await graph.add_entity("Ann Lee", group_id=GROUP)
        await graph.add_relationship(ann.id, "lives_in", "Oslo", group_id=GROUP, valid_from=day(2020))

        assert fact_targets(await graph.facts(ann.id, group_id=GROUP)) == ["Oslo"]
        assert fact_targets(await graph.facts("Ann Lee", group_id=GROUP)) == ["Oslo"]

    async def test_a_merge_brings_facts_together_and_unmerging_takes_them_apart(self, graph: Graph) -> None:
        await graph.add_relationship("Ann Lee", "lives_in", "Oslo", group_id=GROUP, valid_from=day(2020))
        await graph.add_relationship("A. Lee", "lives_in", "Bergen", group_id=GROUP, valid_from=day(2024))
        before = [await graph.facts(name, group_id=GROUP) for name in ("Ann Lee", "A. Lee")]

        merge = await graph.merge("A. Lee", "Ann Lee", group_id=GROUP, reason="same passport")

        assert merge.reason == "same passport"
        assert fact_targets(await graph.facts("A. Lee", group_id=GROUP)) == ["Bergen"]
        assert fact_targets(await graph.facts("Ann Lee", group_id=GROUP, as_of=day(2022))) == ["Oslo"]
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

    async def test_a_fact_of_a_merged_name_is_a_fact_of_the_merged_entity(self, graph: Graph) -> None:
        for name in ("Ann Lee", "A. Lee"):
            await graph.add_entity(name, group_id=GROUP)
        await graph.merge("A. Lee", "Ann Lee", group_id=GROUP)

        await graph.add_relationship("A. Lee", "lives_in", "Oslo", group_id=GROUP, valid_from=day(2020))

        assert fact_targets(await graph.facts("Ann Lee", group_id=GROUP)) == ["Oslo"]


# ruff: noqa: D102  # a test's name is its sentence


NAIVE = datetime(2025, 1, 1)  # noqa: DTZ001  # that is what is refused


class GraphInputTests(GraphFixtures):
    """Invalid inputs and queries."""

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

    async def test_a_missing_record_is_an_error_with_its_group(self, graph: Graph) -> None:
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
