"""Versions of entities, each with the time at which it was true and the time at which it was known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import pytest

from sharedmem.errors import InvalidError, NotFoundError
from sharedmem.graph.graph import Graph
from sharedmem.graph.protocol import Extraction, Known, Mention
from sharedmem.models import Entity, Episode
from sharedmem.testing.graph_suite.base import GROUP, GraphFixtures, day

# ruff: noqa: D102  # a test's name is its sentence


class DescribingExtractor:
    """Describes the entity of an episode's data (`name`, `type`, `summary`, `aliases`), as a model would."""

    name = "describing"
    wants_known = False

    async def extract(self, episode: Episode, known: Known) -> Extraction:  # noqa: ARG002  # the protocol's
        """Return one mention."""
        assert isinstance(episode.content, Mapping)
        fields = {"type": "", "summary": "", **episode.content}
        return Extraction((Mention(**{**fields, "aliases": tuple(fields.get("aliases", ()))}),))


def shown_versions(versions: Iterable[Entity]) -> list[tuple[str, datetime | None, datetime | None, bool]]:
    """Return the summary of each version, when it was true, and whether it is the present knowledge."""
    return [(one.summary, one.valid_from, one.valid_to, one.superseded_at is None) for one in versions]


class EntityVersionTests(GraphFixtures):
    """Versions of entities."""

    async def _described(self, graph: Graph, at: datetime, recorded: datetime | None = None, **fields: object) -> None:
        told = graph.using(extractor=DescribingExtractor())
        content = {"name": "Acme", **fields}
        await told.add_episode(content, group_id=GROUP, occurred_at=at, recorded_at=recorded)

    async def test_a_later_summary_ends_the_earlier_one_and_both_stay_readable(self, graph: Graph) -> None:
        await self._described(graph, day(2025, 1), day(2025, 1), summary="Sells anvils.")
        await self._described(graph, day(2025, 6), day(2025, 7), summary="Sells rockets.")

        versions = await graph.entity_versions("acme", group_id=GROUP)

        assert shown_versions(versions) == [
            ("Sells anvils.", day(2025, 1), None, False),
            ("Sells anvils.", day(2025, 1), day(2025, 6), True),
            ("Sells rockets.", day(2025, 6), None, True),
        ]
        assert [(one.recorded_at, one.superseded_at) for one in versions] == [
            (day(2025, 1), day(2025, 7)),
            (day(2025, 7), None),
            (day(2025, 7), None),
        ]

    async def test_an_entity_is_read_as_of_both_times(self, graph: Graph) -> None:
        await self._described(graph, day(2025, 1), day(2025, 1), summary="Sells anvils.")
        await self._described(graph, day(2025, 6), day(2025, 7), summary="Sells rockets.", aliases=["The Acme Company"])

        async def summary(as_of: datetime | None = None, known_at: datetime | None = None) -> str:
            return (await graph.entity("Acme", group_id=GROUP, as_of=as_of, known_at=known_at)).summary

        assert await summary() == "Sells rockets."
        assert await summary(as_of=day(2025, 3)) == "Sells anvils."
        assert await summary(as_of=day(2025, 6)) == "Sells rockets."
        assert await summary(as_of=day(2025, 6), known_at=day(2025, 6, 30)) == "Sells anvils."
        before = await graph.entity("Acme", group_id=GROUP, known_at=day(2025, 6, 30))
        after = await graph.entity("Acme", group_id=GROUP)
        assert (before.aliases, after.aliases) == ((), ("The Acme Company",))

    async def test_of_a_time_before_anything_was_known_only_the_name_is_left(self, graph: Graph) -> None:
        await self._described(graph, day(2025, 1), day(2025, 2), type="company", summary="Sells anvils.")

        for as_of, known_at in ((day(2024), None), (None, day(2025, 1, 15))):
            entity = await graph.entity("Acme", group_id=GROUP, as_of=as_of, known_at=known_at)

            assert (entity.name, entity.type, entity.summary, entity.recorded_at) == ("Acme", "", "", None)

    async def test_what_is_told_late_of_an_earlier_time_does_not_replace_the_present(self, graph: Graph) -> None:
        await self._described(graph, day(2025, 6), day(2025, 6), summary="Sells rockets.")
        await self._described(graph, day(2025, 1), day(2025, 8), summary="Sells anvils.")

        assert (await graph.entity("Acme", group_id=GROUP)).summary == "Sells rockets."
        assert (await graph.entity("Acme", group_id=GROUP, as_of=day(2025, 3))).summary == "Sells anvils."
        assert shown_versions(await graph.entity_versions("Acme", group_id=GROUP)) == [
            ("Sells rockets.", day(2025, 6), None, True),
            ("Sells anvils.", day(2025, 1), day(2025, 6), True),
        ]

    async def test_episodes_of_one_step_make_the_versions_of_several_steps(self, graph: Graph) -> None:
        episodes = [
            Episode(
                content={"name": "Acme", "summary": f"Sells {what}."},
                group_id=GROUP,
                id=what,
                occurred_at=day(2025, month),
                recorded_at=day(2025, month),
            )
            for month, what in ((1, "anvils"), (2, "rockets"), (3, "magnets"))
        ]
        told = graph.using(extractor=DescribingExtractor())

        await told.add_episodes(episodes)
        at_once = await graph.entity_versions("Acme", group_id=GROUP)
        await graph.delete_by_group(GROUP)
        for episode in episodes:
            await told.add_episode(episode)

        assert len(at_once) == 5
        assert await graph.entity_versions("Acme", group_id=GROUP) == at_once

    async def test_the_same_told_again_makes_no_version(self, graph: Graph) -> None:
        for month in (1, 2, 3):
            await self._described(graph, day(2025, month), type="company", summary="Sells anvils.")

        (version,) = await graph.entity_versions("Acme", group_id=GROUP)

        assert (version.type, version.valid_from, version.valid_to) == ("company", day(2025, 1), None)

    async def test_a_type_that_is_told_later_is_not_known_before(self, graph: Graph) -> None:
        await self._described(graph, day(2025, 1), day(2025, 1))
        await self._described(graph, day(2025, 1), day(2025, 5), type="company")
        await self._described(graph, day(2025, 6), day(2025, 6), type="person")

        types = [(one.type, one.recorded_at) for one in await graph.entity_versions("Acme", group_id=GROUP)]

        assert types == [("", day(2025, 1)), ("company", day(2025, 5))]
        assert (await graph.entity("Acme", group_id=GROUP)).type == "company"

    async def test_versions_tell_since_when_an_entity_was_merged_and_unmerged(self, graph: Graph) -> None:
        acme = await graph.add_entity("Acme", group_id=GROUP, type="company")
        other = await graph.add_entity("A.C.M.E.", group_id=GROUP, summary="Sells anvils.")
        merge = await graph.merge("A.C.M.E.", "Acme", group_id=GROUP)
        undone = await graph.unmerge("A.C.M.E.", group_id=GROUP)
        await graph.merge("A.C.M.E.", "Acme", group_id=GROUP)

        versions = await graph.entity_versions(other.id, group_id=GROUP)

        assert [one.merged_into for one in versions] == [None, acme.id, None, acme.id]
        assert (versions[1].recorded_at, versions[1].superseded_at) == (merge.at, undone.undone_at)
        assert {one.summary for one in versions} == {"Sells anvils."}
        assert len(await graph.entity_versions("Acme", group_id=GROUP)) == 1
        assert (await graph.check(group_id=GROUP)).is_clean
        assert await graph.entity_versions("A.C.M.E.", group_id=GROUP) == versions

    async def test_names_that_are_added_are_known_since_then(self, graph: Graph) -> None:
        before = await graph.add_entity("Acme", group_id=GROUP, aliases=["The Acme Company"])
        after = await graph.add_alias("Acme", ["Acme Corp", "Acme Inc"], group_id=GROUP)

        versions = await graph.entity_versions("acme inc", group_id=GROUP)

        known = [one.aliases for one in versions if one.superseded_at is not None]
        assert known == [before.aliases]
        assert versions[-1].aliases == after.aliases == ("The Acme Company", "Acme Corp", "Acme Inc")
        assert [one.alias_count for one in versions] == [1, 1, 3]

    async def test_an_entity_keeps_its_newest_changes(self, graph: Graph) -> None:
        base = day(2025)
        episodes = [
            Episode(
                content={"name": "Acme", "summary": f"Number {n}."},
                group_id=GROUP,
                id=f"e{n}",
                occurred_at=base + timedelta(days=n),
                recorded_at=base + timedelta(days=n),
            )
            for n in range(230)
        ]
        await graph.using(extractor=DescribingExtractor()).add_episodes(episodes)

        present = [one for one in await graph.entity_versions("Acme", group_id=GROUP) if one.superseded_at is None]

        assert present[-1].summary == (await graph.entity("Acme", group_id=GROUP)).summary == "Number 229."
        assert {"Number 30.", "Number 229."} <= {one.summary for one in present}
        assert "Number 29." not in {one.summary for one in present}

    async def test_only_entities_that_are_there_have_versions(self, graph: Graph) -> None:
        await graph.add_entity("Acme", group_id=GROUP)

        with pytest.raises(NotFoundError, match="Nobody"):
            await graph.entity_versions("Nobody", group_id=GROUP)
        for wrong in ("", "  ", "x" * 300):
            with pytest.raises(InvalidError, match="entity"):
                await graph.entity_versions(wrong, group_id=GROUP)
        with pytest.raises(NotFoundError):
            await graph.entity_versions("Acme", group_id="acme:elsewhere")
