"""From claims to facts: every fact in every version that was ever known, whatever the order of the claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.example_budget import example_count
from support.graph_claims import (
    ONE_SOURCE,
    ONE_TARGET,
    SYMMETRIC,
    VOCABULARY,
    claim_lists,
    facts_true_at,
    group_by_line,
    identity,
    make_claim,
    make_end_claim,
    oracle_true_at,
    project_claims,
)

from sharedmem.graph.projection import MOST_EPISODES, dependent_timelines, fact_id, project
from sharedmem.graph.records import OPEN, UNKNOWN_START, Claim, FactRow, Version

TODAY = 50
often = settings(max_examples=example_count(50, thorough=100), deadline=None)
very_often = settings(max_examples=example_count(150, thorough=400), deadline=None)


def versions(claims: Iterable[Claim]) -> dict[str, tuple[tuple[int, int, int, int], ...]]:
    """Of each fact `source type other start` its versions."""
    return {
        f"{row.source} {row.type} {row.target or row.value} {row.versions[0].start}": row.versions
        for row in project_claims(claims).values()
    }


# -- stories --------------------------------------------------------------------------------------


def test_a_fact_holds_from_when_it_began_and_is_known_since_it_was_said() -> None:
    assert versions([make_claim("anna lives_in rome", day=3, recorded=5)]) == {
        "anna lives_in rome 3": ((3, OPEN, 5, OPEN),)
    }


def test_a_later_place_closes_the_earlier_one_and_what_was_believed_before_is_still_told() -> None:
    told = versions([make_claim("anna lives_in rome", day=1), make_claim("anna lives_in oslo", day=5, recorded=8)])

    assert told == {
        "anna lives_in rome 1": ((1, OPEN, 1, 8), (1, 5, 8, OPEN)),
        "anna lives_in oslo 5": ((5, OPEN, 8, OPEN),),
    }


def test_what_arrives_late_takes_its_place_in_the_past() -> None:
    told = versions([make_claim("anna lives_in oslo", day=5), make_claim("anna lives_in rome", day=1, recorded=8)])

    assert told == {
        "anna lives_in oslo 5": ((5, OPEN, 5, OPEN),),
        "anna lives_in rome 1": ((1, 5, 8, OPEN),),
    }


def test_a_correction_at_the_same_moment_takes_back_what_it_corrects() -> None:
    told = versions([make_claim("anna lives_in rome", day=1), make_claim("anna lives_in oslo", day=1, recorded=4)])

    assert told == {
        "anna lives_in rome 1": ((1, OPEN, 1, 4),),
        "anna lives_in oslo 1": ((1, OPEN, 4, OPEN),),
    }


def test_a_marriage_ends_where_either_of_the_two_marries_another() -> None:
    told = versions([make_claim("anna married_to bob", day=1), make_claim("zoe married_to bob", day=5)])

    assert told == {
        "anna married_to bob 1": ((1, OPEN, 1, 5), (1, 5, 5, OPEN)),
        "bob married_to zoe 5": ((5, OPEN, 5, OPEN),),
    }


def test_a_marriage_that_the_other_end_contradicts_begins_later() -> None:
    told = versions(
        [make_claim("bob married_to zoe", day=1), make_claim("anna married_to bob", day=1, recorded=2),
         make_claim("bob married_to zoe", day=5, recorded=3)]
    )  # fmt: skip

    assert told == {
        "bob married_to zoe 1": ((1, OPEN, 1, 2),),
        "anna married_to bob 1": ((1, OPEN, 2, 3), (1, 5, 3, OPEN)),
        "bob married_to zoe 5": ((5, OPEN, 3, OPEN),),
    }


def test_an_ending_of_whatever_marriage_holds_ends_it_for_both() -> None:
    told = versions([make_claim("anna married_to bob", day=1), make_end_claim("bob married_to", day=5)])

    assert told == {"anna married_to bob 1": ((1, OPEN, 1, 5), (1, 5, 5, OPEN))}


def test_an_entity_may_have_a_relation_to_itself() -> None:
    told = versions(
        [
            make_claim("anna knows anna", day=1),
            make_claim("anna married_to anna", day=2),
            make_claim("anna sits_on anna", day=3),
        ]
    )

    assert told == {
        "anna knows anna 1": ((1, OPEN, 1, OPEN),),
        "anna married_to anna 2": ((2, OPEN, 2, OPEN),),
        "anna sits_on anna 3": ((3, OPEN, 3, OPEN),),
    }


def test_a_chair_has_one_person_and_a_person_one_chair() -> None:
    told = versions(
        [
            make_claim("anna sits_on red", day=1),
            make_claim("bob sits_on blue", day=2),
            make_claim("anna sits_on blue", day=5),
        ]
    )

    assert told == {
        "anna sits_on red 1": ((1, OPEN, 1, 5), (1, 5, 5, OPEN)),
        "bob sits_on blue 2": ((2, OPEN, 2, 5), (2, 5, 5, OPEN)),
        "anna sits_on blue 5": ((5, OPEN, 5, OPEN),),
    }


def test_an_attribute_has_one_value_at_a_time() -> None:
    told = versions([make_claim("anna @tier 1", day=1), make_claim("anna @tier 2", day=5)])

    assert told == {
        "anna @tier 1 1": ((1, OPEN, 1, 5), (1, 5, 5, OPEN)),
        "anna @tier 2 5": ((5, OPEN, 5, OPEN),),
    }


def test_of_a_relation_to_many_none_closes_another() -> None:
    told = versions(
        [
            make_claim("anna likes tea", day=1),
            make_claim("anna likes jazz", day=2),
            make_end_claim("anna likes tea", day=4),
        ]
    )

    assert told == {
        "anna likes tea 1": ((1, OPEN, 1, 4), (1, 4, 4, OPEN)),
        "anna likes jazz 2": ((2, OPEN, 2, OPEN),),
    }


def test_an_unknown_start_that_becomes_known_is_another_fact() -> None:
    told = versions(
        [make_claim("anna lives_in rome", day=UNKNOWN_START, recorded=1, retracted=4),
         make_claim("anna lives_in rome", day=2, recorded=4)]
    )  # fmt: skip

    assert told == {
        "anna lives_in rome 0": ((UNKNOWN_START, OPEN, 1, 4),),
        "anna lives_in rome 2": ((2, OPEN, 4, OPEN),),
    }


def test_an_end_before_it_was_known_and_a_new_beginning_are_two_facts() -> None:
    told = versions(
        [make_claim("anna lives_in rome", day=1), make_end_claim("anna lives_in rome", day=3, recorded=9),
         make_claim("anna lives_in rome", day=6, recorded=10)]
    )  # fmt: skip

    assert told == {
        "anna lives_in rome 1": ((1, OPEN, 1, 9), (1, 3, 9, OPEN)),
        "anna lives_in rome 6": ((6, OPEN, 10, OPEN),),
    }


def test_an_undone_episode_leaves_what_it_had_closed_as_it_was() -> None:
    before = project_claims([make_claim("anna lives_in rome", day=1)])
    mistake = make_claim("anna lives_in oslo", day=5, retracted=8)

    after = project_claims([make_claim("anna lives_in rome", day=1), mistake])

    (rome,) = before.values()
    assert after[rome.id].current == Version(1, OPEN, 8, OPEN)
    assert replace(after[rome.id], versions=rome.versions) == rome
    assert [row.versions for row in after.values() if row.target == "oslo"] == [(Version(5, OPEN, 5, 8),)]


# -- what a row tells -----------------------------------------------------------------------------


def test_a_fact_speaks_in_the_words_of_the_claim_that_began_it() -> None:
    again = make_claim("anna lives_in rome", day=3, text="Anna still lives in Rome.")
    first = make_claim("anna lives_in rome", day=1, text="Anna moved to Rome.", recorded=3)

    (row,) = project_claims([again, first]).values()

    assert (row.text, row.source_name, row.target_name) == ("Anna moved to Rome.", "Anna", "Rome")


def test_a_fact_without_words_gets_a_plain_sentence() -> None:
    (row,) = project_claims([make_claim("anna lives_in rome", day=1)]).values()

    assert row.text == "Anna lives in Rome"


def test_a_fact_names_its_newest_episodes_and_no_retracted_one() -> None:
    claims = [make_claim("anna lives_in rome", day=1, recorded=n, by=f"e{n:03}#0") for n in range(1, 101)]
    claims.append(make_claim("anna lives_in rome", day=1, recorded=101, by="undone#0", retracted=102))

    (row,) = project_claims(claims).values()

    assert row.episodes == tuple(f"e{n:03}" for n in range(100, 100 - MOST_EPISODES, -1))


def test_a_fact_whose_episodes_were_undone_still_names_them() -> None:
    (row,) = project_claims([make_claim("anna lives_in rome", day=1, by="e7#0", retracted=4)]).values()

    assert row.episodes == ("e7",)
    assert row.current is None


def test_the_id_of_a_fact_tells_its_parts_apart() -> None:
    parts = [("a", "b", "c", "", 1), ("a", "bc", "", "", 1), ("a", "b", "", "c", 1), ("a", "b", "c", "", 2)]

    assert len({fact_id(*each) for each in parts}) == len(parts)
    (row,) = project_claims([make_claim("anna lives_in rome", day=1)]).values()
    assert row.id == fact_id("anna", "lives_in", "rome", "", 1)


# -- lines and what was stored --------------------------------------------------------------------


def test_a_line_that_was_not_looked_at_keeps_its_facts_out() -> None:
    lines = group_by_line([make_claim("anna married_to bob", day=1), make_claim("bob married_to zoe", day=4)])
    stored = project_claims([make_claim("bob married_to zoe", day=4)])

    rows = project(
        {line: lines[line] for line in ("anna>married_to", "bob>married_to")},
        former=stored, vocabulary=VOCABULARY, canonical=identity,
    )  # fmt: skip

    assert [(row.source, row.target) for row in rows] == [("anna", "bob")]


def test_further_lines_are_those_at_the_other_ends() -> None:
    claims = [
        make_claim("anna married_to bob", day=1),
        make_claim("anna likes tea", day=1),
        make_end_claim("anna married_to", day=3),
    ]

    assert dependent_timelines(claims, VOCABULARY, identity) == {"anna>married_to", "bob>married_to", "anna>likes>tea"}


def test_facts_that_stay_the_same_come_back_as_the_very_same_rows() -> None:
    claims = [make_claim("anna lives_in rome", day=1), make_claim("anna lives_in oslo", day=5)]
    stored = {id_: replace(row, version=7) for id_, row in project_claims(claims).items()}

    now = project_claims([*claims, make_claim("anna lives_in bonn", day=9)], former=stored.values(), since=9)

    changed = {row.target: row.version for id_, row in now.items() if row is not stored.get(id_)}
    assert changed == {"oslo": 7, "bonn": 0}


def test_a_merge_moves_facts_to_the_entity_that_stays() -> None:
    claims = [make_claim("anna lives_in rome", day=1), make_claim("ann lives_in oslo", day=5)]
    stored = project_claims(claims)

    def canonical(id_: str) -> str:
        return "anna" if id_ == "ann" else id_

    rows = project(group_by_line(claims), former=stored, vocabulary=VOCABULARY, canonical=canonical)

    told = {(row.source, row.target): [version[:2] for version in row.versions] for row in rows}
    assert told == {
        ("anna", "rome"): [(1, OPEN), (1, 5)],
        ("anna", "oslo"): [(5, OPEN)],
        ("ann", "oslo"): [],
    }


def test_after_a_merge_stored_rows_are_no_ground_to_carry_on_from() -> None:
    claims = [make_claim("anna lives_in rome", day=1), make_claim("ann lives_in oslo", day=5)]

    rows = project(
        group_by_line(claims),
        former=project_claims(claims),
        vocabulary=VOCABULARY,
        canonical=lambda id_: id_[:3],
        since=TODAY,
    )

    told = {(row.source, row.target): row.versions for row in rows if row.versions}
    assert told == {
        ("ann", "rom"): (Version(1, OPEN, 1, 5), Version(1, 5, 5, OPEN)),
        ("ann", "osl"): (Version(5, OPEN, 5, OPEN),),
    }


def test_who_carries_on_at_the_very_moment_of_an_undoing_tells_it_right() -> None:
    undone = make_claim("anna lives_in rome", day=1, retracted=5)
    stored = project_claims([undone])

    claims = [undone, make_claim("anna lives_in oslo", day=9, recorded=5)]

    assert project_claims(claims, former=stored.values(), since=5) == project_claims(claims)


def test_undoing_a_merge_gives_the_facts_of_before_back() -> None:
    claims = [make_claim("anna lives_in rome", day=1), make_claim("ann lives_in oslo", day=5)]
    before = project_claims(claims)

    def canonical(id_: str) -> str:
        return "anna" if id_ == "ann" else id_

    merged = project(group_by_line(claims), former=before, vocabulary=VOCABULARY, canonical=canonical)
    after = project_claims(claims, former=[row for row in merged if row.versions])

    assert {id_: row for id_, row in after.items() if row.versions} == before
    assert [(row.source, row.target) for row in after.values() if not row.versions] == [("anna", "oslo")]


def test_a_marriage_told_from_the_other_end_after_a_merge_keeps_names_with_their_ids() -> None:
    claim = make_claim("ann married_to bob", day=1)
    lines: dict[str, list[Claim]] = {"bob>married_to": [claim], "zann>married_to": []}

    (row,) = project(lines, former={}, vocabulary=VOCABULARY, canonical=lambda id_: "zann" if id_ == "ann" else id_)

    assert (row.source, row.source_name, row.target, row.target_name) == ("bob", "Bob", "zann", "Ann")


def test_of_two_copies_of_a_claim_the_one_that_was_retracted_counts() -> None:
    claim = make_claim("anna lives_in rome", day=1)
    gone = replace(claim, retracted=4)

    for copies in ([claim, gone], [gone, claim]):
        (row,) = project_claims(copies).values()
        assert row.versions == (Version(1, OPEN, 1, 4),)


# -- at random ------------------------------------------------------------------------------------


@very_often
@given(claim_lists(), st.integers(0, 14), st.integers(0, 10))
def test_at_every_moment_facts_tell_what_the_claims_say(claims: list[Claim], world: int, known: int) -> None:
    rows = project_claims(claims).values()

    assert facts_true_at(rows, world=world, known=known) == oracle_true_at(claims, world=world, known=known)


@often
@given(claim_lists(), st.integers(0, 14), st.integers(0, 10))
def test_a_functional_relation_has_one_value_at_a_time(claims: list[Claim], world: int, known: int) -> None:
    holding = Counter[tuple[str, str, str]]()
    for source, type_, target, _ in facts_true_at(project_claims(claims).values(), world=world, known=known):
        ends = {"from": source, "to": target} if type_ not in SYMMETRIC else dict.fromkeys({source, target}, "")
        if type_ in SYMMETRIC and type_ in ONE_TARGET:
            holding.update((end, type_, "") for end in ends)
        elif type_ not in SYMMETRIC:
            holding.update([(source, type_, "from")] * (type_ in ONE_TARGET))
            holding.update([(target, type_, "to")] * (type_ in ONE_SOURCE))

    assert not [owner for owner, count in holding.items() if count > 1]


@often
@given(claim_lists())
def test_versions_of_a_fact_follow_one_another_and_differ(claims: list[Claim]) -> None:
    for row in project_claims(claims).values():
        for one, two in pairwise(row.versions):
            assert one.recorded < one.superseded <= two.recorded
            assert one.start == two.start
            assert one.end != two.end or one.superseded < two.recorded


@often
@given(claim_lists(), st.integers(0, 8))
def test_what_is_learned_later_changes_nothing_of_what_was_known(claims: list[Claim], known: int) -> None:
    earlier = [replace(one, retracted=OPEN if one.retracted > known else one.retracted) for one in claims]
    before = project_claims(claim for claim in earlier if claim.recorded <= known)

    after = project_claims(claims)

    assert before.keys() <= after.keys()
    for world in range(15):
        for moment in range(known + 1):
            asked = {"world": world, "known": moment}
            assert facts_true_at(before.values(), **asked) == facts_true_at(after.values(), **asked)


@often
@given(claim_lists(), st.randoms(use_true_random=False))
def test_the_order_in_which_claims_come_in_never_matters(claims: list[Claim], random: Random) -> None:
    shuffled = list(claims)
    random.shuffle(shuffled)

    assert list(project_claims(shuffled).items()) == list(project_claims(claims).items())


@often
@given(claim_lists(), st.integers(1, 5))
def test_an_undone_episode_is_as_if_it_had_never_been_told(claims: list[Claim], number: int) -> None:
    undone = [replace(one, retracted=TODAY) if one.episode == f"e{number}" else one for one in claims]
    rest = [one for one in claims if one.episode != f"e{number}"]

    after, without = project_claims(undone), project_claims(rest)

    assert _now(after.values()) == _now(without.values())


def _now(rows: Iterable[FactRow]) -> dict[str, FactRow]:
    """What is known today, without since when it is."""
    known = {row.id: row.current for row in rows}
    return {
        row.id: replace(row, versions=(version._replace(recorded=0),))
        for row in rows
        if (version := known[row.id]) is not None
    }


@very_often
@given(claim_lists(most=14), st.sets(st.integers(0, 13)), st.sets(st.integers(0, 13)))
def test_carrying_on_from_stored_rows_tells_the_same_as_beginning_anew(
    claims: list[Claim], new: set[int], undone: set[int]
) -> None:
    gone = {n for n, one in enumerate(claims) if n in undone and one.retracted != OPEN}
    earlier = [replace(one, retracted=OPEN) if n in gone else one for n, one in enumerate(claims)]
    stored = project_claims(one for n, one in enumerate(earlier) if n not in new)
    numbered = [replace(row, version=number) for number, row in enumerate(stored.values(), 1)]
    since = min(
        [*(claims[n].retracted for n in gone), *(one.recorded for n, one in enumerate(claims) if n in new)],
        default=TODAY,
    )

    assert project_claims(claims, former=numbered, since=since) == project_claims(claims, former=numbered)


@often
@given(claim_lists(types=("lives_in", "married_to", "knows", "sits_on")), st.sampled_from(["ab", "ba", "bc", "ca"]))
def test_a_merge_gives_what_would_follow_if_one_name_had_been_said_always(claims: list[Claim], who: str) -> None:
    def canonical(id_: str) -> str:
        return who[1] if id_ == who[0] else id_

    stored = project_claims(claims)
    looked = group_by_line(claims) | {line: [] for line in dependent_timelines(claims, VOCABULARY, canonical)}

    rows = project(looked | group_by_line(claims), former=stored, vocabulary=VOCABULARY, canonical=canonical)

    renamed = [replace(one, source=canonical(one.source), target=canonical(one.target)) for one in claims]
    turned = [_turned(one) for one in renamed]
    expected = {id_: row.versions for id_, row in project_claims(turned).items()}
    assert {row.id: row.versions for row in rows if row.versions} == expected
    assert {row.id for row in rows if not row.versions} == stored.keys() - expected.keys()


def _turned(claim: Claim) -> Claim:
    _, source, target = VOCABULARY.canonical(claim.type, claim.source, claim.target)
    return replace(claim, source=source, target=target)


@pytest.mark.parametrize("since", [None, 2_000])
def test_a_long_line_is_told_in_full(since: int | None) -> None:
    claims = [make_claim(f"anna lives_in place{n % 7}", day=n, by=f"e{n}#0") for n in range(1, 1_001)]
    stored = project_claims(claims)

    now = project_claims(
        [*claims, make_claim("anna lives_in rome", day=500, recorded=2_000)], former=stored.values(), since=since
    )

    changed = {row.target for id_, row in now.items() if row is not stored.get(id_)}
    assert changed == {"rome", "place3"}
