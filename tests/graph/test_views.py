"""What users see of the rows of a graph."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.graph_rows import GROUP, day, edge, entity_row, episode_row, fact_row, stamp, version

from sharedmem.graph.entity_versions import to_entity
from sharedmem.graph.records import (
    LATEST,
    UNKNOWN_START,
    BitemporalPoint,
    Edge,
    Version,
    attribute_values,
    invalidated_at,
    to_episode,
    to_fact,
    to_latest_fact,
    version_at,
    version_known,
)
from sharedmem.graph.traversal import ShortestPaths, nearness_by_id, path_steps, reverse_path, shortest_common_path

BERLIN = fact_row(
    "f1",
    "Ada",
    "lives_in",
    "Berlin",
    version(1, recorded=2, superseded=11),
    version(1, 10, recorded=11),
    episodes=("e1",),
)


def known(world: float, knowledge: float | None = None) -> BitemporalPoint:
    return BitemporalPoint(stamp(world), LATEST if knowledge is None else stamp(knowledge))


# -- facts ----------------------------------------------------------------------------------------


def test_a_fact_is_shown_with_both_its_times_and_the_names_of_its_ends() -> None:
    fact = to_latest_fact(BERLIN, GROUP)

    assert (fact.source_id, fact.source_name, fact.type) == ("ada", "Ada", "lives_in")
    assert (fact.target_id, fact.target_name, fact.fact) == ("berlin", "Berlin", "Ada lives in Berlin")
    assert (fact.valid_from, fact.valid_to) == (day(1), day(10))
    assert (fact.recorded_at, fact.superseded_at, fact.invalidated_at) == (day(11), None, day(11))
    assert fact.episode_ids == ("e1",)


def test_a_version_that_was_superseded_shows_what_was_known_then() -> None:
    fact = to_fact(BERLIN, BERLIN.versions[0], GROUP)

    assert (fact.valid_from, fact.valid_to) == (day(1), None)
    assert (fact.recorded_at, fact.superseded_at, fact.invalidated_at) == (day(2), day(11), None)


def test_an_unknown_beginning_is_none() -> None:
    since_ever = Version(UNKNOWN_START, stamp(5), stamp(1), LATEST + 1)

    fact = to_latest_fact(fact_row("f", "Ada", "knows", "Bo", since_ever), GROUP)

    assert (fact.valid_from, fact.valid_to) == (None, day(5))


def test_an_attribute_has_a_value_and_no_target() -> None:
    fact = to_latest_fact(fact_row("f", "Ada", "@tier", "gold", value={"name": "gold", "since": 3}), GROUP)

    assert (fact.target_id, fact.target_name, fact.value) == (None, "gold", {"name": "gold", "since": 3})


@pytest.mark.parametrize(
    ("versions", "learned"),
    [
        pytest.param([version(1, recorded=2)], None, id="it holds"),
        pytest.param([version(1, 5, recorded=2)], 2, id="it had ended when it was told"),
        pytest.param([version(1, 5, recorded=2, superseded=7), version(1, 4, recorded=7)], 2, id="its end corrected"),
        pytest.param([version(1, recorded=2, superseded=7), version(1, 4, recorded=7)], 7, id="it was closed"),
        pytest.param([version(1, 5, recorded=2, superseded=7), version(1, recorded=7)], None, id="opened again"),
        pytest.param([version(1, recorded=2, superseded=7)], 7, id="it was wrong altogether"),
        pytest.param(
            [version(1, recorded=2, superseded=7), version(1, 4, recorded=9)], 9, id="wrong, then told with an end"
        ),
    ],
)
def test_when_the_graph_learned_that_a_fact_had_ended(versions: list[Version], learned: float | None) -> None:
    row = fact_row("f", "Ada", "lives_in", "Berlin", *versions)

    assert invalidated_at(row, versions[-1]) == (None if learned is None else day(learned))


@pytest.mark.parametrize(
    ("when", "place"),
    [
        (known(0.5), None),
        (known(1), 1),
        (known(9.9), 1),
        (known(10), None),
        (known(12, 5), 0),
        (known(5, 1.9), None),
        (known(5, 2), 0),
        (known(5, 11), 1),
    ],
)
def test_the_version_at_a_time_is_the_one_that_held_then_as_known_then(
    when: BitemporalPoint, place: int | None
) -> None:
    assert version_at(BERLIN, when) == (None if place is None else BERLIN.versions[place])


def test_what_has_ended_is_still_known_to_have_been() -> None:
    assert version_known(BERLIN, known(20)) == BERLIN.versions[1]
    assert version_known(BERLIN, known(0)) is None
    assert version_known(BERLIN, known(20, 1)) is None


moments = st.integers(0, 12)


@given(st.lists(st.tuples(moments, moments), min_size=1, max_size=4), moments, moments)
def test_a_version_found_at_a_time_is_the_only_one_that_holds(
    spans: list[tuple[int, int]], world: int, knowledge: int
) -> None:
    versions = [
        version(start, max(start + 1, end), recorded=place * 3, superseded=place * 3 + 3)
        for place, (start, end) in enumerate(spans)
    ]
    row, when = fact_row("f", "Ada", "lives_in", "Berlin", *versions), known(world, knowledge)

    holding = [one for one in versions if one.holds(when.world, when.known)]

    assert [one for one in [version_at(row, when)] if one] == holding


# -- episodes and entities ------------------------------------------------------------------------


def test_an_episode_is_shown_as_it_was_told() -> None:
    episode = to_episode(episode_row("e1", "I moved to Berlin.", 3, recorded=4))

    assert (episode.id, episode.content, episode.occurred_at) == ("e1", "I moved to Berlin.", day(3))
    assert (episode.recorded_at, episode.undone_at) == (day(4), None)


def test_an_episode_that_was_undone_says_since_when() -> None:
    assert to_episode(episode_row("e1", "I moved.", undone=9)).undone_at == day(9)


def test_an_entity_has_the_attributes_of_the_time_that_is_asked_for() -> None:
    tiers = [
        fact_row("f1", "Ada", "@tier", "silver", version(0, 5), value="silver"),
        fact_row("f2", "Ada", "@tier", "gold", version(5), value="gold"),
        fact_row("f3", "Ada", "lives_in", "Berlin"),
    ]

    shown = {
        number: to_entity(entity_row("Ada"), GROUP, attribute_values(tiers, known(number))).attributes
        for number in (-1, 3, 5)
    }

    assert shown == {-1: {}, 3: {"tier": "silver"}, 5: {"tier": "gold"}}


def test_an_entity_that_was_merged_says_into_which() -> None:
    assert to_entity(entity_row("Ada", merged_into="ada-l"), GROUP, {}).merged_into == "ada-l"
    assert to_entity(entity_row("Ada"), GROUP, {}).merged_into is None


# -- ways -----------------------------------------------------------------------------------------

AB = fact_row("ab", "A", "knows", "B")
BC = fact_row("bc", "B", "knows", "C")
AD = fact_row("ad", "A", "knows", "D")
DC = fact_row("dc", "D", "knows", "C")
CC = fact_row("cc", "C", "knows", "C")
ROWS = {row.id: row for row in (AB, BC, AD, DC, CC)}
WALK = [(1, edge(AB)), (1, edge(AD)), (2, edge(BC)), (2, edge(DC)), (2, edge(CC))]


def test_the_distance_of_an_entity_is_that_of_the_shortest_way() -> None:
    reach = ShortestPaths(["a"], WALK)

    assert reach.distances == {"a": 0, "b": 1, "d": 1, "c": 2}
    assert [one.fact for one in reach.to("c")] == ["ab", "bc"]
    assert reach.to("a") == reach.to("nobody") == ()


def test_what_many_have_in_common_is_less_near() -> None:
    town = [fact_row(f"t{number}", f"P{number}", "lives_in", "B") for number in range(3)]
    edges = [edge(AB), edge(AD), *(edge(row, backward=True) for row in town), edge(DC)]
    reach = ShortestPaths(["a"], [(1, edge(AB)), (1, edge(AD)), *((2, one) for one in edges[2:])])

    near = nearness_by_id(reach, edges)

    assert (near["a"], near["b"], near["c"]) == (1, 1 / 2, 1 / 3)
    assert near["ab"] == near["ad"] == 1
    assert near["dc"] == 1 / 2
    assert near["t0"] == pytest.approx(1 / 2 / 3**0.5)


def test_two_walks_that_meet_give_the_shortest_way_between_their_beginnings() -> None:
    here = ShortestPaths(["a"], [(1, edge(AB)), (1, edge(AD))])
    there = ShortestPaths(["c"], [(1, edge(BC, backward=True))])

    way = shortest_common_path(here, there)

    assert way is not None
    assert [(step.fact.id, step.forward) for step in path_steps(way, ROWS, GROUP)] == [("ab", True), ("bc", True)]
    assert shortest_common_path(here, ShortestPaths(["x"], [])) is None


def test_a_way_walked_back_goes_through_the_same_facts() -> None:
    way = (edge(AB), edge(BC))

    back = reverse_path(way)

    assert [(one.entity, one.other, one.forward) for one in back] == [("c", "b", False), ("b", "a", False)]
    assert reverse_path(back) == way


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=14))
def test_distances_are_those_of_a_search_in_breadth(pairs: list[tuple[int, int]]) -> None:
    expected, walk = _breadth_first(pairs)

    reach = ShortestPaths(["0"], walk)

    assert reach.distances == expected
    assert all(len(reach.to(entity)) == distance for entity, distance in expected.items())


def _breadth_first(pairs: list[tuple[int, int]]) -> tuple[dict[str, int], list[tuple[int, Edge]]]:
    distances, walk, front = {"0": 0}, [], ["0"]
    for entity in front:
        for place, (some, other) in enumerate(pairs):
            if str(some) == entity:
                row = fact_row(f"f{place}", str(some), "knows", str(other))
                fresh = str(other) not in distances
                distance = distances.setdefault(str(other), distances[entity] + 1)
                walk.append((distance, edge(row)))
                front += [str(other)] * fresh
    return distances, walk
