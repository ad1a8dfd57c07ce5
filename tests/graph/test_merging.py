"""Entities that turn out to be one, and that turn out not to be after all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import graph_fixtures
from support.example_budget import example_count

from sharedmem import Hub, SharedMemoryStore
from sharedmem.config import Settings
from sharedmem.errors import ConflictError, InvalidError, NotFoundError, UnavailableError
from sharedmem.graph import access, merges
from sharedmem.graph.graph import Graph
from sharedmem.models import Episode, Fact
from sharedmem.testing import fake_hub

GROUP = "acme:people"
graph, fake_graph, real_graph = graph_fixtures.graph, graph_fixtures.fake_graph, graph_fixtures.real_graph
falkor_graph, falkor_server = graph_fixtures.falkor_graph, graph_fixtures.falkor_server


def day(number: int) -> datetime:
    return datetime(2024, 1, number, tzinfo=UTC)


async def everything(graph: Graph, *names: str, group: str = GROUP) -> dict[str, list[Fact]]:
    """All that is and was known of some entities, by id."""
    found = {}
    for name in names:
        entity = await graph.entity(name, group_id=group)
        facts = await graph.history(name, group_id=group)
        found[entity.id] = sorted(facts, key=lambda fact: (fact.id, fact.recorded_at))
    return found


async def people(graph: Graph) -> None:
    """Bob lives in Paris, then in Rome; Robert lives in Oslo and works for Acme; Zoe knows Bob."""
    for source, relation, target, since in (
        ("Bob", "lives_in", "Paris", 1),
        ("Robert Miller", "lives_in", "Oslo", 5),
        ("Bob", "lives_in", "Rome", 10),
        ("Robert Miller", "works_for", "Acme", 2),
        ("Zoe", "admires", "Bob", 3),
        ("Bob", "admires", "Zoe", 4),
    ):
        await graph.add_relationship(source, relation, target, group_id=GROUP, valid_from=day(since))


async def lives_in(graph: Graph, name: str, at: datetime) -> list[str]:
    return [
        fact.target_name
        for fact in await graph.facts(name, group_id=GROUP, as_of=at)
        if fact.type == "lives_in" and fact.source_name != fact.target_name
    ]


async def test_what_is_said_of_the_one_holds_of_the_other_after_a_merge(graph: Graph) -> None:
    await people(graph)

    merge = await graph.merge("Bob", "Robert Miller", group_id=GROUP, reason="his nickname")

    robert = await graph.entity("Robert Miller", group_id=GROUP)
    assert (await graph.entity("bob", group_id=GROUP)).id == robert.id == merge.into_id
    assert [await lives_in(graph, "Robert Miller", day(number)) for number in (2, 6, 11)] == [
        ["Paris"],
        ["Oslo"],
        ["Rome"],
    ]
    zoe = await graph.facts("Zoe", group_id=GROUP, as_of=day(9))
    assert {(fact.source_id == robert.id, fact.target_id == robert.id) for fact in zoe} == {
        (True, False),
        (False, True),
    }
    assert merge.reason == "his nickname"
    assert (await graph.stats(group_id=GROUP)).merges == 1


async def test_a_fact_names_its_episode_and_the_episode_its_fact_after_a_merge(graph: Graph) -> None:
    await people(graph)

    await graph.merge("Bob", "Robert Miller", group_id=GROUP)

    for fact in await graph.facts("Robert Miller", group_id=GROUP, as_of=day(20)):
        for id_ in fact.episode_ids:
            episode = await graph.get(id_, group_id=GROUP)
            assert isinstance(episode, Episode)
            assert fact.id in episode.fact_ids
        assert (await graph.get(fact.id, group_id=GROUP)) == fact


async def test_unmerge_restores_exactly_what_was_before(graph: Graph) -> None:
    await people(graph)
    names = ("Bob", "Robert Miller", "Zoe", "Paris", "Rome", "Oslo")
    before = await everything(graph, *names)

    merge = await graph.merge("Bob", "Robert Miller", group_id=GROUP)
    undone = await graph.unmerge("Bob", group_id=GROUP)

    assert await everything(graph, *names) == before
    assert undone.undone_at is not None
    assert undone.model_copy(update={"undone_at": None}) == merge
    assert list(await graph.aliases("Robert Miller", group_id=GROUP)) == ["robert miller"]


async def test_what_came_meanwhile_stays_with_whose_name_was_said(graph: Graph) -> None:
    await people(graph)
    await graph.merge("Bob", "Robert Miller", group_id=GROUP)
    await graph.add_relationship("Robert Miller", "admires", "Berlin", group_id=GROUP, valid_from=day(12))
    await graph.add_relationship("Bob", "admires", "Vienna", group_id=GROUP, valid_from=day(12))
    robert = await graph.entity("Robert Miller", group_id=GROUP)
    meanwhile = [fact.target_name for fact in await graph.facts(robert.id, group_id=GROUP, as_of=day(13))]

    await graph.unmerge("Bob", group_id=GROUP)

    assert {"Berlin", "Vienna"} <= set(meanwhile)
    bobs = {fact.target_name for fact in await graph.facts("Bob", group_id=GROUP, as_of=day(13))}
    roberts = {fact.target_name for fact in await graph.facts("Robert Miller", group_id=GROUP, as_of=day(13))}
    assert bobs == {"Rome", "Zoe", "Bob", "Vienna"}
    assert roberts == {"Oslo", "Acme", "Berlin"}


async def test_merging_twice_is_the_same_merge(graph: Graph) -> None:
    await people(graph)
    first = await graph.merge("Bob", "Robert Miller", group_id=GROUP)
    merged = await everything(graph, "Robert Miller", "Zoe")

    again = await graph.merge("Bob", "Robert Miller", group_id=GROUP, reason="told again")

    assert again == first
    assert await everything(graph, "Robert Miller", "Zoe") == merged
    assert (await graph.stats(group_id=GROUP)).merges == 1


async def test_merging_into_a_third_one_says_what_to_do(graph: Graph) -> None:
    await people(graph)
    await graph.merge("Bob", "Robert Miller", group_id=GROUP)

    with pytest.raises(ConflictError, match="unmerge it first, or merge"):
        await graph.merge("Bob", "Zoe", group_id=GROUP)


@pytest.mark.parametrize(("source", "into"), [("Bob", "BOB"), ("Robert Miller", "Bob")])
async def test_no_entity_is_merged_into_itself_nor_round_in_a_circle(graph: Graph, source: str, into: str) -> None:
    await people(graph)
    await graph.merge("Bob", "Robert Miller", group_id=GROUP)

    with pytest.raises(InvalidError, match=r"both are the same|unmerge it before"):
        await graph.merge(source, into, group_id=GROUP)


async def test_who_was_never_merged_or_never_named_is_told_so(graph: Graph) -> None:
    await people(graph)

    with pytest.raises(InvalidError, match="nothing to undo"):
        await graph.unmerge("Bob", group_id=GROUP)
    with pytest.raises(NotFoundError, match="'Nobody'"):
        await graph.merge("Nobody", "Bob", group_id=GROUP)
    with pytest.raises(NotFoundError, match="'Nobody'"):
        await graph.unmerge("Nobody", group_id=GROUP)


async def test_unmerging_twice_gives_the_same_answer(graph: Graph) -> None:
    await people(graph)
    await graph.merge("Bob", "Robert Miller", group_id=GROUP)

    first = await graph.unmerge("Bob", group_id=GROUP)

    assert await graph.unmerge("Bob", group_id=GROUP) == first


async def test_merges_of_merged_ones_lead_to_the_end_and_come_apart_in_any_order(graph: Graph) -> None:
    await people(graph)
    names = ("Bob", "Robert Miller", "Zoe", "Acme", "Rome")
    before = await everything(graph, *names)
    await graph.merge("Bob", "Robert Miller", group_id=GROUP)
    await graph.merge("Robert Miller", "Zoe", group_id=GROUP)
    zoe = await graph.entity("Zoe", group_id=GROUP)
    ends = {(await graph.entity(name, group_id=GROUP)).id for name in ("Bob", "Robert Miller")}

    await graph.unmerge("Bob", group_id=GROUP)
    between = await everything(graph, "Bob")
    await graph.unmerge("Robert Miller", group_id=GROUP)

    assert ends == {zoe.id}
    assert {fact.target_name for facts in between.values() for fact in facts} == {"Paris", "Rome", "Zoe", "Bob"}
    assert await everything(graph, *names) == before


async def test_an_undone_merge_can_be_done_again(graph: Graph) -> None:
    await people(graph)
    await graph.merge("Bob", "Robert Miller", group_id=GROUP)
    merged = await everything(graph, "Robert Miller")
    await graph.unmerge("Bob", group_id=GROUP)

    again = await graph.merge("Bob", "Robert Miller", group_id=GROUP)

    assert again.undone_at is None
    assert await everything(graph, "Robert Miller") == merged


async def test_a_merge_that_resolution_made_is_taken_apart(graph: Graph) -> None:
    john = await graph.add_entity("John Smith", group_id=GROUP)
    await graph.add_relationship("Jon Smith", "lives_in", "Berlin", group_id=GROUP, valid_from=day(1))
    merged = await graph.facts("John Smith", group_id=GROUP)

    undone = await graph.unmerge("Jon Smith", group_id=GROUP)

    assert [fact.source_id for fact in merged] == [john.id]
    assert undone.reason.startswith("typo of 'john smith'")
    assert await graph.facts("John Smith", group_id=GROUP) == []
    assert [fact.target_name for fact in await graph.facts("Jon Smith", group_id=GROUP)] == ["Berlin"]


async def test_names_once_parted_stay_apart(graph: Graph) -> None:
    await graph.add_entity("John Smith", group_id=GROUP)
    await graph.add_entity("Jon Smith", group_id=GROUP)
    await graph.unmerge("Jon Smith", group_id=GROUP)

    again = await graph.add_entity("Jon Smith", group_id=GROUP)

    assert again.id != (await graph.entity("John Smith", group_id=GROUP)).id


async def test_the_same_names_in_another_group_are_left_alone(graph: Graph) -> None:
    await people(graph)
    for name in ("Bob", "Robert Miller"):
        await graph.add_relationship(name, "lives_in", "Prague", group_id="other:1", valid_from=day(1))
    before = await everything(graph, "Bob", "Robert Miller", group="other:1")

    await graph.merge("Bob", "Robert Miller", group_id=GROUP)

    assert await everything(graph, "Bob", "Robert Miller", group="other:1") == before
    with pytest.raises(InvalidError):
        await graph.unmerge("Bob", group_id="other:1")


async def test_attributes_follow_a_merge_and_come_back(graph: Graph) -> None:
    await graph.add_entity("Bob", group_id=GROUP, attributes={"tier": "gold"}, at=day(5))
    await graph.add_entity("Robert Miller", group_id=GROUP, attributes={"tier": "iron", "age": 40}, at=day(1))

    await graph.merge("Bob", "Robert Miller", group_id=GROUP)
    merged = await graph.entity("Robert Miller", group_id=GROUP)
    await graph.unmerge("Bob", group_id=GROUP)

    assert merged.attributes == {"tier": "gold", "age": 40}
    assert (await graph.entity("Bob", group_id=GROUP)).attributes == {"tier": "gold"}
    assert (await graph.entity("Robert Miller", group_id=GROUP)).attributes == {"tier": "iron", "age": 40}


async def test_an_end_said_of_one_name_closes_what_the_other_began(graph: Graph) -> None:
    await graph.add_relationship("Robert Miller", "lives_in", "Oslo", group_id=GROUP, valid_from=day(1))
    fact = await graph.add_relationship("Bob", "lives_in", "Oslo", group_id=GROUP, valid_from=day(2))
    await graph.invalidate(fact.id, group_id=GROUP, at=day(9))

    await graph.merge("Bob", "Robert Miller", group_id=GROUP)

    (only,) = await graph.facts("Robert Miller", group_id=GROUP, as_of=day(5))
    assert (only.valid_from, only.valid_to) == (day(1), day(9))


async def test_ten_thousand_aliases_lead_to_one_entity_and_are_listed_page_by_page(store: SharedMemoryStore) -> None:
    graph = store.graph
    names = [f"nickname {number:05}" for number in range(10_000)]
    with pytest.raises(InvalidError, match="add_alias"):
        await graph.add_entity("Robert Miller", group_id=GROUP, aliases=names)
    begun = await graph.add_entity("Robert Miller", group_id=GROUP, aliases=names[:300])
    known = await graph.add_alias("Robert Miller", names, group_id=GROUP)
    await graph.add_entity("Bob", group_id=GROUP)

    await graph.merge("Robert Miller", "Bob", group_id=GROUP)

    found: list[str] = []
    page = await graph.aliases("Bob", group_id=GROUP, limit=3000)
    while True:
        found += page
        if not page.cursor:
            break
        page = await graph.aliases("Bob", group_id=GROUP, limit=3000, after=page.cursor)
    assert (begun.alias_count, known.alias_count) == (300, 10_000)
    assert len(known.aliases) == 100
    assert found == ["bob", *names, "robert miller"]
    bob = await graph.entity("Bob", group_id=GROUP)
    assert (await graph.entity("nickname 09999", group_id=GROUP)).id == bob.id
    await graph.unmerge("Robert Miller", group_id=GROUP)
    assert (await graph.entity("nickname 09999", group_id=GROUP)).id == known.id


async def test_an_alias_is_added_once_and_never_taken_from_another(graph: Graph) -> None:
    await people(graph)

    first = await graph.add_alias("Robert Miller", "Bobby M.", group_id=GROUP)
    again = await graph.add_alias("Robert Miller", "BOBBY M", group_id=GROUP)

    assert first.aliases == again.aliases == ("Bobby M.",)
    assert (await graph.entity("bobby m", group_id=GROUP)).id == first.id
    assert list(await graph.aliases("Robert Miller", group_id=GROUP)) == ["bobby m", "robert miller"]
    with pytest.raises(ConflictError, match="merge the two"):
        await graph.add_alias("Robert Miller", "Zoe", group_id=GROUP)


async def test_a_hub_is_moved_step_by_step_with_its_progress(store: SharedMemoryStore) -> None:
    graph = store.graph
    for first in range(0, 500, 100):
        await asyncio.gather(
            *(
                graph.add_relationship(f"Visitor {number}", "visited", "Old Hall", group_id=GROUP, valid_from=day(1))
                for number in range(first, first + 100)
            )
        )
    await graph.add_entity("New Hall", group_id=GROUP)
    told: list[tuple[int, int]] = []

    await graph.merge("Old Hall", "New Hall", group_id=GROUP, progress=lambda done, whole: told.append((done, whole)))

    facts = await graph.facts("New Hall", group_id=GROUP, as_of=day(2))
    assert len({fact.source_name for fact in facts}) == 500
    assert len(told) > 2
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1]


async def test_a_merge_that_was_cut_off_goes_on(store: SharedMemoryStore) -> None:
    graph = store.graph
    for number in range(450):
        await graph.add_relationship(f"Visitor {number}", "visited", "Old Hall", group_id=GROUP, valid_from=day(1))
    await graph.add_entity("New Hall", group_id=GROUP)

    def cut(done: int, _: int) -> None:
        raise KeyboardInterrupt if done > 400 else TimeoutError(done)

    with pytest.raises(TimeoutError):
        await graph.merge("Old Hall", "New Hall", group_id=GROUP, progress=cut)
    some = await graph.facts("New Hall", group_id=GROUP, as_of=day(2))
    await graph.merge("Old Hall", "New Hall", group_id=GROUP)

    assert 0 < len(some) < 450
    assert len(await graph.facts("New Hall", group_id=GROUP, as_of=day(2))) == 450


@pytest.mark.parametrize("doing", ["merge", "unmerge", "both"])
async def test_a_move_that_breaks_off_at_any_commit_goes_on_when_called_again(
    fake_graph: Graph, monkeypatch: pytest.MonkeyPatch, doing: str
) -> None:
    names = ("Bob", "Robert Miller", "Zoe", "Paris", "Rome", "Oslo")
    await people(fake_graph)
    before = await everything(fake_graph, *names)
    await fake_graph.merge("Bob", "Robert Miller", group_id=GROUP)
    merged = await everything(fake_graph, "Robert Miller", *names[2:])
    await fake_graph.unmerge("Bob", group_id=GROUP)
    monkeypatch.setattr(merges, "LINES_AT_ONCE", 1)
    monkeypatch.setattr(access, "RECORDS_AT_ONCE", 1)

    await persistently(fake_graph, monkeypatch, lambda: fake_graph.merge("Bob", "Robert Miller", group_id=GROUP))
    then = await everything(fake_graph, "Robert Miller", *names[2:])
    if doing != "merge":
        await persistently(fake_graph, monkeypatch, lambda: fake_graph.unmerge("Bob", group_id=GROUP))
    if doing == "both":
        await persistently(fake_graph, monkeypatch, lambda: fake_graph.merge("Robert Miller", "Bob", group_id=GROUP))
        await persistently(fake_graph, monkeypatch, lambda: fake_graph.unmerge("Robert Miller", group_id=GROUP))

    assert then == merged
    if doing != "merge":
        assert await everything(fake_graph, *names) == before


async def persistently(graph: Graph, monkeypatch: pytest.MonkeyPatch, call: Callable[[], Awaitable[object]]) -> None:
    """Make a call again and again, while each time the connection breaks after one commit more than before."""
    backend, commit = type(graph.backend), type(graph.backend).commit
    left = [0]

    async def breaking(*arguments: Any, **named: Any) -> Any:
        if not left[0]:
            raise UnavailableError("redis", "the test")
        left[0] -= 1
        return await commit(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(backend, "commit", breaking)
        for commits in range(200):
            left[0] = commits % 4
            try:
                await call()
            except UnavailableError:
                continue
            return
    raise AssertionError("it never came to an end")


async def test_what_is_told_while_entities_are_merged_lands_at_the_target(
    store: SharedMemoryStore, redis_url: str, namespace: str, settings: Settings
) -> None:
    graph = store.graph
    for number in range(100):
        await graph.add_relationship("Old Hall", "hosts", f"Guest {number}", group_id=GROUP, valid_from=day(1))
    await graph.add_entity("New Hall", group_id=GROUP)
    async with Hub.open(redis_url, settings=settings) as other:
        tellers = [
            other.store(namespace).graph.add_relationship(
                "Old Hall", "hosts", f"Late guest {number}", group_id=GROUP, valid_from=day(1)
            )
            for number in range(100)
        ]

        await asyncio.gather(graph.merge("Old Hall", "New Hall", group_id=GROUP), *tellers)

    hall = await graph.entity("New Hall", group_id=GROUP)
    facts = await graph.facts("Old Hall", group_id=GROUP, as_of=day(2))
    assert len(facts) == 200
    assert {fact.source_id for fact in facts} == {hall.id}


WHO = ("Ada Byron", "Ben Curie", "Cay Dirac", "Dov Euler")
steps = st.lists(
    st.tuples(
        st.sampled_from(["tell", "tell", "tell", "merge", "unmerge", "undo"]),
        st.sampled_from(WHO),
        st.sampled_from(WHO),
        st.sampled_from(["lives_in", "admires", "married_to"]),
        st.integers(1, 9),
    ),
    max_size=12,
)


@hypothesis.settings(max_examples=example_count(10, thorough=25), deadline=None)
@given(steps)
async def test_taking_every_merge_back_leaves_what_was_told(
    doings: list[tuple[str, str, str, str, int]],
) -> None:
    async with fake_hub() as hub:
        merged, plain = hub.store("merged").graph, hub.store("plain").graph
        episodes: list[str] = []
        for number, (doing, one, other, relation, since) in enumerate(doings):
            if doing == "tell":
                episodes.append(f"e{number}")
                for each in (merged, plain):
                    await each.add_relationship(
                        *(one, relation, other),
                        group_id=GROUP,
                        episode=episodes[-1],
                        valid_from=day(since),
                        recorded_at=day(10 + number),
                    )
            elif doing == "undo" and episodes:
                id_ = episodes.pop()
                for each in (merged, plain):
                    await each.undo(id_, group_id=GROUP)
            elif doing in {"merge", "unmerge"}:
                await tried(merged, doing, one, other)
        for name in WHO:
            await tried(merged, "unmerge", name, "")

        for name in WHO:
            assert await shape(merged, name) == await shape(plain, name)


async def tried(graph: Graph, doing: str, one: str, other: str) -> None:
    try:
        if doing == "merge":
            await graph.merge(one, other, group_id=GROUP)
        else:
            await graph.unmerge(one, group_id=GROUP)
    except (InvalidError, ConflictError, NotFoundError):
        pass


async def shape(graph: Graph, name: str) -> list[tuple[str, str, str | None, datetime | None, datetime | None]]:
    """What holds of an entity by what is known now."""
    try:
        facts = await graph.history(name, group_id=GROUP)
    except NotFoundError:
        return []
    known = [fact for fact in facts if fact.superseded_at is None]
    return sorted((fact.id, fact.type, fact.target_id, fact.valid_from, fact.valid_to) for fact in known)
