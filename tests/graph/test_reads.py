"""Reading and traversing graphs, on each backend."""

from __future__ import annotations

import pytest
from support import small_graph_fixtures
from support.graph_rows import GROUP, day
from support.small_graph_fixtures import add_unrelated_episode, sorted_fact_texts

from sharedmem import Hub
from sharedmem.errors import InvalidError, NotFoundError
from sharedmem.graph.graph import Graph
from sharedmem.models import Entity, Episode, Fact

server, provider, hub, graph = (
    small_graph_fixtures.server,
    small_graph_fixtures.provider,
    small_graph_fixtures.hub,
    small_graph_fixtures.graph,
)
OTHER = "acme:billing"


# -- facts of an entity ---------------------------------------------------------------------------


async def test_facts_are_those_that_hold_now_as_known_now(graph: Graph) -> None:
    assert sorted_fact_texts(await graph.facts("ada", group_id=GROUP)) == [
        "Ada lives in Paris",
        "Ada works for Acme Ltd",
    ]


@pytest.mark.parametrize(
    ("as_of", "known_at", "town"),
    [
        (49, None, "Berlin"),
        (50, None, "Paris"),
        (55, 59, "Berlin"),
        (55, 60, "Paris"),
        (0, 0.5, None),
        (-1, None, None),
    ],
)
async def test_facts_at_a_time_are_those_that_held_then_as_known_then(
    graph: Graph, as_of: float, known_at: float | None, town: str | None
) -> None:
    known = None if known_at is None else day(known_at)

    found = await graph.facts("Ada", group_id=GROUP, as_of=day(as_of), known_at=known, type="lives_in")

    assert [fact.target_name for fact in found] == ([town] if town else [])


async def test_facts_of_one_direction_are_told_from_the_end_that_is_asked(graph: Graph) -> None:
    outward = await graph.facts("Acme Ltd", group_id=GROUP, direction="out")
    inward = await graph.facts("Acme Ltd", group_id=GROUP, direction="in")

    assert sorted_fact_texts(outward) == ["Acme Ltd located in Oslo"]
    assert sorted_fact_texts(inward) == ["Ada works for Acme Ltd", "Bo works for Acme Ltd"]


async def test_an_inverse_asks_for_the_same_facts_from_the_other_end(graph: Graph) -> None:
    employed = await graph.facts("Acme Ltd", group_id=GROUP, type="employs", direction="out")

    assert sorted_fact_texts(employed) == ["Ada works for Acme Ltd", "Bo works for Acme Ltd"]
    assert not await graph.facts("Acme Ltd", group_id=GROUP, type="employs", direction="in")


async def test_a_symmetric_relation_is_found_from_both_ends_in_any_direction(graph: Graph) -> None:
    await graph.add_relationship("Zoe", "knows", "Bo", group_id=GROUP)

    assert len(await graph.facts("Zoe", group_id=GROUP, type="knows", direction="in")) == 1
    assert len(await graph.facts("Bo", group_id=GROUP, type="knows", direction="in")) == 1


async def test_history_tells_every_version_oldest_knowledge_first(graph: Graph) -> None:
    versions = await graph.history("Ada", group_id=GROUP)

    assert [(fact.target_name, fact.recorded_at, fact.valid_to, fact.superseded_at) for fact in versions] == [
        ("Berlin", day(1), None, day(60)),
        ("Acme Ltd", day(11), None, None),
        ("Berlin", day(60), day(50), None),
        ("Paris", day(60), None, None),
    ]
    assert versions[2].invalidated_at == day(60)


async def test_facts_of_an_unknown_entity_are_an_error(graph: Graph) -> None:
    for call in (graph.facts, graph.history, graph.entity):
        with pytest.raises(NotFoundError, match="Carol"):
            await call("Carol", group_id=GROUP)


async def test_a_group_knows_nothing_of_another(graph: Graph) -> None:
    await graph.add_relationship("Carol", "lives_in", "Rome", group_id=OTHER)

    with pytest.raises(NotFoundError):
        await graph.facts("Ada", group_id=OTHER)
    assert (await graph.retrieve("Where does Ada live?", group_id=OTHER)).entities == {}
    assert "Carol" not in str((await graph.retrieve("Where does Carol live?", group_id=GROUP)).items)
    assert await graph.groups() == [OTHER, GROUP]


async def test_a_merged_entity_is_followed_to_what_it_became(graph: Graph) -> None:
    await graph.add_relationship("Ada Lovelace", "owns", "A boat", group_id=GROUP)
    old = (await graph.entity("Ada Lovelace", group_id=GROUP)).id
    await graph.merge("Ada Lovelace", "Ada", group_id=GROUP)

    assert (await graph.entity(old, group_id=GROUP)).name == "Ada"
    assert len(await graph.facts(old, group_id=GROUP)) == 3
    assert len(await graph.facts("Ada Lovelace", group_id=GROUP)) == 3


# -- everything -----------------------------------------------------------------------------------


async def test_all_that_was_true_at_a_moment(graph: Graph) -> None:
    assert sorted_fact_texts(await graph.as_of(day(15), group_id=GROUP)) == [
        "Acme Ltd located in Oslo",
        "Ada lives in Berlin",
        "Ada works for Acme Ltd",
    ]
    assert sorted_fact_texts(await graph.as_of(day(15), group_id=GROUP, known_at=day(1.5))) == ["Ada lives in Berlin"]


async def test_all_that_was_true_comes_page_by_page(graph: Graph) -> None:
    pages, cursor = [], ""
    for _ in range(9):
        page = await graph.as_of(day(100), group_id=GROUP, limit=3, after=cursor)
        pages.append(sorted_fact_texts(page))
        cursor = page.cursor
        if not cursor:
            break

    whole = sorted_fact_texts(await graph.as_of(day(100), group_id=GROUP))
    assert [len(page) for page in pages] == [3, 1]
    assert sorted(fact for page in pages for fact in page) == whole


async def test_episodes_and_entities_come_page_by_page(graph: Graph) -> None:
    for number in range(3):
        await add_unrelated_episode(graph, f"rain-{number}", at=number)

    first = await graph.episodes(group_id=GROUP, session="s1", limit=2)
    rest = await graph.episodes(group_id=GROUP, session="s1", after=first.cursor)
    people = await graph.entities(group_id=GROUP)

    assert [episode.id for episode in [*first, *rest]] == ["rain-0", "rain-1", "rain-2"]
    assert rest.cursor == ""
    assert {entity.name for entity in people} == {"Ada", "Berlin", "Paris", "Acme Ltd", "Bo", "Oslo"}


async def test_a_record_is_read_by_its_id(graph: Graph) -> None:
    await add_unrelated_episode(graph, "rain")
    (fact,) = await graph.facts("Bo", group_id=GROUP)

    found = [await graph.get(id_, group_id=GROUP) for id_ in ("rain", fact.id, fact.source_id)]

    assert [type(one) for one in found] == [Episode, Fact, Entity]
    assert found[1] == fact
    with pytest.raises(NotFoundError, match="nothing-of-that"):
        await graph.get("nothing-of-that", group_id=GROUP)
    with pytest.raises(InvalidError):
        await graph.get("", group_id=GROUP)


async def test_an_entity_has_the_attributes_of_the_time_that_is_asked_for(graph: Graph) -> None:
    await graph.add_entity("Ada", group_id=GROUP, attributes={"tier": "silver"}, at=day(0))
    await graph.add_entity("Ada", group_id=GROUP, attributes={"tier": "gold"}, at=day(30))

    assert (await graph.entity("ada", group_id=GROUP)).attributes == {"tier": "gold"}
    assert (await graph.entity("ada", group_id=GROUP, as_of=day(29))).attributes == {"tier": "silver"}
    assert (await graph.entity("ada", group_id=GROUP, as_of=day(-1))).attributes == {}
    assert (await graph.get((await graph.entity("ada", group_id=GROUP)).id, group_id=GROUP)) == await graph.entity(
        "ada", group_id=GROUP
    )


async def test_a_deleted_group_is_gone_and_the_others_stay(graph: Graph) -> None:
    await graph.add_relationship("Carol", "lives_in", "Rome", group_id=OTHER)

    deleted = await graph.delete_by_group(GROUP)

    assert deleted > 0
    assert await graph.groups() == [OTHER]
    assert (await graph.stats(group_id=GROUP)).facts == 0
    assert sorted_fact_texts(await graph.facts("Carol", group_id=OTHER)) == ["Carol lives in Rome"]


async def test_the_vocabulary_says_how_relations_behave(graph: Graph) -> None:
    by_name = {relation.name: relation for relation in graph.relations()}

    assert by_name["lives_in"].functional
    assert by_name["works_for"].inverse == "employs"


# -- ways -----------------------------------------------------------------------------------------


async def test_a_traversal_tells_true_distances_and_a_shortest_way(graph: Graph) -> None:
    around = await graph.traverse_from_entities(["Ada"], group_id=GROUP, depth=3)

    assert {one.name: one.distance for one in around.reached} == {
        "Ada": 0,
        "Paris": 1,
        "Acme Ltd": 1,
        "Bo": 2,
        "Oslo": 2,
    }
    assert [one.distance for one in around.reached] == sorted(one.distance for one in around.reached)
    (bo,) = [one for one in around.reached if one.name == "Bo"]
    assert [(step.fact.fact, step.forward) for step in bo.path] == [
        ("Ada works for Acme Ltd", True),
        ("Bo works for Acme Ltd", False),
    ]
    assert not around.truncated


async def test_a_traversal_keeps_to_its_time_and_its_bounds(graph: Graph) -> None:
    past = await graph.traverse_from_entities(["Ada"], group_id=GROUP, depth=1, as_of=day(5))
    narrow = await graph.traverse_from_entities(["Acme Ltd"], group_id=GROUP, depth=1, fan_out=1)

    assert {one.name for one in past.reached} == {"Ada", "Berlin"}
    assert len(narrow.facts) == 1
    assert narrow.truncated


async def test_a_path_is_a_shortest_one_and_leads_from_the_first_to_the_second(graph: Graph) -> None:
    steps = await graph.path("Oslo", "Ada", group_id=GROUP)

    assert [(step.fact.fact, step.forward) for step in steps] == [
        ("Acme Ltd located in Oslo", False),
        ("Ada works for Acme Ltd", False),
    ]
    assert await graph.path("Ada", "ada", group_id=GROUP) == ()
    assert await graph.path("Bo", "Berlin", group_id=GROUP) == ()
    assert await graph.path("Oslo", "Ada", group_id=GROUP, max_depth=1) == ()
    assert len(await graph.path("Bo", "Berlin", group_id=GROUP, as_of=day(30))) == 3


async def test_ways_end_in_circles(graph: Graph) -> None:
    for source, target in (("A1", "B1"), ("B1", "C1"), ("C1", "A1"), ("A1", "A1"), ("C1", "D1")):
        await graph.add_relationship(source, "follows", target, group_id=OTHER)

    around = await graph.traverse_from_entities(["A1"], group_id=OTHER, depth=6)

    assert {one.name: one.distance for one in around.reached} == {"A1": 0, "B1": 1, "C1": 1, "D1": 2}
    assert len(await graph.path("A1", "D1", group_id=OTHER)) == 2


# -- what is refused ------------------------------------------------------------------------------


async def test_what_makes_no_sense_is_refused(graph: Graph) -> None:
    naive = day(1).replace(tzinfo=None)
    for wrong in (
        graph.facts("Ada", group_id=GROUP, as_of=naive),
        graph.facts("Ada", group_id=GROUP, known_at=naive),
        graph.facts("Ada", group_id=GROUP, direction="up"),  # type: ignore[arg-type]  # on purpose
        graph.facts("Ada", group_id=GROUP, limit=0),
        graph.facts("  ", group_id=GROUP),
        graph.facts("Ada", group_id=" "),
        graph.as_of(naive, group_id=GROUP),
        graph.text_search(" ", group_id=GROUP),
        graph.text_search("x", group_id=GROUP, kinds=()),
        graph.text_search("x", group_id=GROUP, kinds=("dream",)),  # type: ignore[arg-type]  # on purpose
        graph.retrieve("", group_id=GROUP),
        graph.retrieve("x", group_id=GROUP, k=0),
        graph.retrieve("x", group_id=GROUP, depth=7),
        graph.traverse_from_entities([], group_id=GROUP),
        graph.traverse_from_entities("Ada", group_id=GROUP),
        graph.traverse_from_entities(["Ada"], group_id=GROUP, depth=0),
        graph.traverse_from_entities(["Ada"], group_id=GROUP, depth=True),
        graph.traverse_from_entities(["Ada"], group_id=GROUP, fan_out=0),
        graph.path("Ada", "Bo", group_id=GROUP, max_depth=7),
    ):
        with pytest.raises(InvalidError):
            await wrong


async def test_another_namespace_sees_nothing_of_a_group_of_the_same_name(hub: Hub, graph: Graph) -> None:
    stranger = hub.store("elsewhere", actor="eve").graph

    assert await stranger.groups() == []
    assert (await stranger.retrieve("Where does Ada live?", group_id=GROUP)).items == ()
    assert await stranger.vector_search("Ada", group_id=GROUP, kinds=("fact", "entity")) == []
    assert await stranger.delete_by_group(GROUP) == 0
    with pytest.raises(NotFoundError):
        await stranger.facts("Ada", group_id=GROUP)
    assert len(await graph.facts("Ada", group_id=GROUP)) == 2
