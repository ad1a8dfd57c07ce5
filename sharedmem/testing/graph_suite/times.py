"""Two axes of time: what was true, and what was known of it."""
# ruff: noqa: D102  # a test's name is its sentence

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from sharedmem.knowledge.graph.graph import Graph
from sharedmem.models import UNKNOWN
from sharedmem.testing.graph_suite.base import GROUP, GraphFixtures, day, targets


class TimeSuite(GraphFixtures):
    """What is answered for which time."""

    async def _moved(self, graph: Graph) -> None:
        """Ann moved in March; first that was told wrongly in June, and put right in August."""
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
            return targets(await graph.facts("Ann", group_id=GROUP, as_of=world, known_at=known))

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

        told = [(fact.target_name, fact.valid_from, fact.valid_to, fact.recorded_at) for fact in versions]
        assert told == [
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

    async def test_of_two_that_begin_together_the_one_told_last_counts(self, graph: Graph) -> None:
        for month, town in ((1, "Oslo"), (2, "Bergen")):
            await graph.add_relationship(
                "Ann", "lives_in", town, group_id=GROUP, valid_from=day(2025), recorded_at=day(2026, month)
            )

        assert targets(await graph.facts("Ann", group_id=GROUP)) == ["Bergen"]
        assert targets(await graph.facts("Ann", group_id=GROUP, known_at=day(2026, 1, 15))) == ["Oslo"]

    async def test_nobody_needs_to_know_since_when(self, graph: Graph) -> None:
        fact = await graph.add_relationship("Ann", "lives_in", "Oslo", group_id=GROUP, valid_from=UNKNOWN)
        await graph.add_relationship("Ann", "lives_in", "Bergen", group_id=GROUP, valid_from=day(2025))

        assert fact.valid_from is None
        assert targets(await graph.facts("Ann", group_id=GROUP, as_of=day(1900))) == ["Oslo"]
        assert targets(await graph.facts("Ann", group_id=GROUP)) == ["Bergen"]

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

        assert targets(await graph.as_of(day(2026, 4), group_id=GROUP)) == ["Bergen"]
        assert len(await graph.as_of(day(2026, 7), group_id=GROUP)) == 2
        assert targets(await graph.as_of(day(2026, 4), group_id=GROUP, known_at=day(2026, 7))) == ["Oslo"]
