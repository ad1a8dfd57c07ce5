"""The ranking of what is found for a question, and the prompt that is made of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.graph_rows import GROUP, day, edge, entity_row, episode_row, fact_row, stamp, version

from sharedmem.graph.ranking import CandidatePool, RankedRecord, RankingQuery, RelationMatcher, Weights, rank
from sharedmem.graph.records import LATEST, OPEN, BitemporalPoint, EntityRow, EpisodeRow, FactRow
from sharedmem.graph.relations import Vocabulary
from sharedmem.graph.retriever import (
    WalkOrigins,
    format_items,
    match_entities,
    match_partial_names,
    word_runs,
)
from sharedmem.graph.traversal import ShortestPaths
from sharedmem.models import ContextItem, ContextSet
from sharedmem.providers.chunks import count_tokens
from sharedmem.text.analysis import query_terms

WEIGHTS = Weights()


def question(
    text: str = "", *names: str, now: float = 100, known: float | None = None, past: bool = False
) -> RankingQuery:
    when = BitemporalPoint(stamp(now), LATEST if known is None else stamp(known))
    asking = RelationMatcher(Vocabulary(), query_terms(text))
    return RankingQuery({name: name for name in names}, when, OPEN, asking.overlap, include_past=past)


def pool(
    *rows: FactRow | EpisodeRow | EntityRow,
    words: Mapping[str, float] | None = None,
    near: Mapping[str, float] | None = None,
) -> CandidatePool:
    return CandidatePool(
        {row.id: row for row in rows if isinstance(row, FactRow)},
        {row.id: row for row in rows if isinstance(row, EpisodeRow)},
        {row.id: row for row in rows if isinstance(row, EntityRow)},
        words or {},
        {},
        near or {},
    )


def ids(ranked: Iterable[RankedRecord]) -> list[str]:
    return [one.id for one in ranked]


def ranked_ids(asked: RankingQuery, found: CandidatePool, *, k: int = 20) -> list[str]:
    return ids(rank(asked, found, WEIGHTS, k=k))


# -- time -----------------------------------------------------------------------------------------

BERLIN = fact_row("berlin", "Ada", "lives_in", "Berlin", version(0, 50, recorded=60), episodes=("e1",))
PARIS = fact_row("paris", "Ada", "lives_in", "Paris", version(50, recorded=60), episodes=("e2",))


@pytest.mark.parametrize(
    ("now", "known", "found"),
    [(100, None, ["paris"]), (49, None, ["berlin"]), (50, None, ["paris"]), (100, 59, []), (49, 61, ["berlin"])],
)
def test_a_fact_that_does_not_hold_then_as_known_then_is_out(now: float, known: float, found: list[str]) -> None:
    assert ranked_ids(question(now=now, known=known), pool(BERLIN, PARIS)) == found


def test_facts_that_have_ended_are_in_when_the_past_is_wanted() -> None:
    wrong = fact_row("rome", "Ada", "lives_in", "Rome", version(0, recorded=1, superseded=2))
    later = fact_row("oslo", "Ada", "lives_in", "Oslo", version(200, recorded=1))

    assert set(ranked_ids(question(past=True), pool(BERLIN, PARIS, wrong, later))) == {"berlin", "paris"}


@pytest.mark.parametrize(
    ("until", "known", "found"),
    [(100, 30, True), (9, 30, False), (100, 19, False), (100, 40, False), (100, 39, True)],
)
def test_an_episode_is_out_before_it_occurred_was_known_or_after_it_was_undone(
    until: float, known: float, found: bool
) -> None:
    asked = replace(question(known=known), until=stamp(until))

    assert ranked_ids(asked, pool(episode_row("e", "It rained.", 10, recorded=20, undone=40))) == ["e"] * found


# -- signals --------------------------------------------------------------------------------------


def test_the_fact_that_a_question_asks_for_comes_first() -> None:
    job = fact_row("job", "Ada", "works_for", "Acme")
    home = fact_row("home", "Ada", "lives_in", "Berlin")

    assert ranked_ids(question("Where does Ada live?", "ada"), pool(job, home)) == ["home", "job"]
    assert ranked_ids(question("Where does Ada work?", "ada"), pool(job, home)) == ["job", "home"]


def test_nearer_facts_come_before_farther_ones() -> None:
    rows = [fact_row(name, name, "knows", "Bo") for name in ("far", "near", "away")]

    found = pool(*rows, near={"far": 0.3, "near": 0.5})

    assert ranked_ids(question(), found) == ["near", "far", "away"]


def test_namesakes_come_behind_what_lies_two_steps_from_whom_the_question_names() -> None:
    found = pool(
        fact_row("own", "Ben Fischer", "ordered", "Order 7"),
        fact_row("inside", "Order 7", "contains", "Laptop"),
        fact_row("namesake", "Ben Hansen", "ordered", "Order 8"),
        words={"own": 0.6, "namesake": 0.55},
        near={"inside": 0.5},
    )

    assert ranked_ids(question("Which product did Ben Fischer buy?", "ben fischer"), found) == [
        "own",
        "inside",
        "namesake",
    ]


def test_an_episode_mentions_whom_it_names_also_when_nothing_was_extracted() -> None:
    found = pool(
        episode_row("other", "Ben Hansen called."),
        episode_row("own", "BEN FISCHER called."),
        words={"other": 0.6, "own": 0.5},
    )

    assert ranked_ids(question("Ben Fischer?", "ben fischer"), found) == ["own", "other"]


def test_of_two_equal_facts_the_fresh_one_comes_first() -> None:
    old = fact_row("a-old", "Ada", "ordered", "Chair", version(0))
    new = fact_row("b-new", "Ada", "ordered", "Table", version(99))

    assert ranked_ids(question(), pool(old, new)) == ["b-new", "a-old"]


def test_an_episode_that_mentions_whom_the_question_names_comes_first() -> None:
    found = pool(episode_row("a", "It rained."), episode_row("b", "She laughed.", entities=("ada",)))

    assert ranked_ids(question("Ada?", "ada"), found) == ["b", "a"]


def test_summaries_win_for_what_is_long_past_and_raw_episodes_for_what_is_recent() -> None:
    def places(occurred: float) -> list[str]:
        found = pool(
            episode_row("raw", "The order came late.", occurred),
            episode_row("sum", "Orders came late all month.", occurred, letter="s"),
        )
        return ranked_ids(question(), found)

    assert places(99) == ["raw", "sum"]
    assert places(0) == ["sum", "raw"]


def test_an_entity_is_told_of_only_when_something_is_said_of_it() -> None:
    found = pool(
        entity_row("Ada"),
        entity_row("Bo", summary="Runs the docks."),
        entity_row("Cy", summary="Bo.", merged_into="bo"),
        entity_row("Di", summary="Not known yet.", recorded=stamp(200)),
    )

    assert ranked_ids(question("Bo?", "bo", known=100), found) == ["bo"]


def test_what_the_signals_add_is_the_score() -> None:
    found = pool(PARIS, episode_row("e", "Ada moved.", 80, entities=("ada",)), words={"paris": 0.5, "e": 0.6})

    ranked = rank(question("Where does Ada live?", "ada"), found, WEIGHTS, k=5)

    assert all(one.score == pytest.approx(sum(one.signals.values())) for one in ranked)
    assert ranked[0].signals.keys() == {"words", "near", "answer", "fresh"}


# -- what says nothing new ------------------------------------------------------------------------


def test_the_same_fact_of_two_times_is_told_once() -> None:
    again = fact_row("again", "Ada", "lives_in", "Berlin", version(60, 90))

    assert len(ranked_ids(question(past=True), pool(BERLIN, again))) == 1


def test_an_episode_that_says_no_more_than_a_fact_is_left_out() -> None:
    found = pool(PARIS, episode_row("e2", "Ada lives in Paris."), episode_row("e3", "Ada lives in Paris."))

    assert set(ranked_ids(question(), found)) == {"paris", "e3"}


def test_an_episode_that_says_more_than_a_fact_stays() -> None:
    found = pool(PARIS, episode_row("e2", "Ada lives in Paris, above the bakery."))

    assert set(ranked_ids(question(), found)) == {"paris", "e2"}


def test_old_episodes_give_way_to_the_summary_of_them_and_recent_ones_do_not() -> None:
    found = pool(
        episode_row("old", "The first order came late.", 0),
        episode_row("new", "The last order came in time.", 95),
        episode_row("sum", "Orders were late, then in time.", 96, letter="s", covers=("old", "new")),
    )

    assert set(ranked_ids(question(), found)) == {"new", "sum"}


@given(st.permutations(range(8)), st.integers(1, 10))
def test_the_order_does_not_depend_on_the_order_in_which_things_were_found(order: list[int], k: int) -> None:
    rows = [fact_row(f"f{number}", f"S{number % 3}", "knows", f"T{number}") for number in range(8)]
    words = {f"f{number}": number % 4 / 10 for number in range(8)}

    shuffled = ranked_ids(question(), pool(*(rows[place] for place in order), words=words), k=k)

    assert shuffled == ranked_ids(question(), pool(*rows, words=words), k=k)
    assert len(shuffled) == min(k, 8)


# -- names ----------------------------------------------------------------------------------------


def named(query: str, **known: str) -> dict[str, str]:
    return match_entities(word_runs(query), {name.replace("_", " "): id_ for name, id_ in known.items()})


def test_the_longest_name_in_a_question_counts() -> None:
    assert named("Who moved to New York?", new_york="ny", york="y", who="w") == {"new york": "ny"}
    assert named("From York to New York", new_york="ny", york="y") == {"new york": "ny", "york": "y"}


@pytest.mark.parametrize(
    "query", ["Where is Ada's order?", "ADA: where?", "\u201cAda\u201d?", "Is it Ada\u2019s?", "ada"]
)
def test_a_name_is_recognised_however_it_stands_there(query: str) -> None:
    assert named(query, ada="a") == {"ada": "a"}


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("Where does Mara live?", {"mara": "m"}),
        ("What of Mara's order?", {"mara": "m"}),
        ("Is it mara?", {}),
        ("Mara?", {}),
        ("Is Berg there?", {}),
        ("Which new address has Bo Li?", {}),
        ("What was in order 4711?", {"4711": "o"}),
    ],
)
def test_a_part_of_a_name_is_recognised_where_only_one_can_be_meant(query: str, found: dict[str, str]) -> None:
    known = {"m": "Mara Berg", "t": "Tor Berg", "n": "New York", "o": "Order 4711", "b": "Bo Li Wu"}

    assert match_partial_names(query, known) == found


def test_words_that_say_nothing_are_no_names() -> None:
    assert named("Who is it? The who.", it="i", who="w", the_who="band") == {"the who": "band"}


@given(st.text(max_size=400))
def test_any_text_can_be_a_question(text: str) -> None:
    runs = word_runs(text)

    assert [run.length for run in runs] == sorted((run.length for run in runs), reverse=True)


@pytest.mark.parametrize(
    ("query", "type_", "share"),
    [
        ("Where does Bo work?", "works_for", 1),
        ("Who employs Bo?", "works_for", 1),
        ("Who employs Bo?", "lives_in", 0),
        ("In which home town?", "home_town_of_birth", 2 / 3),
        ("What is the tier of Bo?", "@tier", 1),
        ("Is it in?", "in", 0),
    ],
)
def test_a_question_asks_for_a_relation_by_its_words_told_from_either_end(query: str, type_: str, share: float) -> None:
    assert RelationMatcher(Vocabulary(), query_terms(query)).overlap(type_) == pytest.approx(share)


# -- what is told ---------------------------------------------------------------------------------


def told(
    *rows: FactRow | EpisodeRow | EntityRow, around: WalkOrigins | None = None, explain: bool = False
) -> list[ContextItem]:
    found = pool(*rows)
    return format_items(
        rank(question("", "ada"), found, WEIGHTS, k=9), found, around or WalkOrigins(), GROUP, explain=explain
    )


def test_each_item_says_where_it_comes_from_and_when_it_held() -> None:
    fact, episode = told(PARIS, episode_row("e9", "Rain again.", 3))

    assert (fact.kind, fact.text, fact.episode_ids) == ("fact", "Ada lives in Paris", ("e2",))
    assert (fact.valid_from, fact.valid_to) == (day(50), None)
    assert (episode.kind, episode.occurred_at, episode.episode_ids) == ("episode", day(3), ("e9",))
    assert not fact.signals


def test_a_fact_tells_the_way_on_which_it_was_found() -> None:
    knows = fact_row("knows", "Ada", "knows", "Bo")
    works = fact_row("works", "Bo", "works_for", "Acme")
    reach = ShortestPaths(["ada"], [(1, edge(knows)), (2, edge(works))])
    around = WalkOrigins(reach, {"knows": "ada", "works": "bo"}, {"knows": knows, "works": works})

    near, far = told(knows, works, around=around, explain=True)

    assert (near.distance, near.path) == (0, ())
    assert (far.distance, [step.fact.id for step in far.path]) == (1, ["knows"])
    assert near.signals["near"] == WEIGHTS.near


def context(*lines: str) -> ContextSet:
    items = [
        ContextItem(kind="fact", id=str(place), text=line, score=1.0, valid_from=day(0), episode_ids=("e1", "e2", "e3"))
        for place, line in enumerate(lines)
    ]
    counted = [item.model_copy(update={"tokens": count_tokens(item.as_line()) + 1}) for item in items]
    return ContextSet(query="?", group_id=GROUP, items=tuple(counted))


def test_a_prompt_has_a_line_for_each_item_with_its_dates_and_sources() -> None:
    assert context("Ada lives in Paris").as_prompt() == (
        "What is known:\n- Ada lives in Paris (since 2026-01-01; from e1, e2...)"
    )


def test_a_prompt_says_of_which_time_it_is() -> None:
    asked = context("Ada lives in Paris").model_copy(update={"as_of": day(1), "known_at": day(2.5)})

    assert asked.as_prompt().startswith("What is known, as of 2026-01-02, as known on 2026-01-03 12:00:\n")


def test_a_text_of_many_lines_is_one_line_of_a_prompt() -> None:
    assert context("Ada:\n- I am known.\n\n- So am I.").as_prompt().count("\n") == 1


@given(st.lists(st.text(min_size=1, max_size=200), max_size=8), st.integers(0, 300))
def test_a_prompt_keeps_to_its_budget_and_cuts_nothing(texts: list[str], budget: int) -> None:
    asked = context(*texts)

    prompt = asked.as_prompt(max_tokens=budget)

    assert count_tokens(prompt) <= budget
    assert set(prompt.split("\n")[1:]) <= {item.as_line() for item in asked.items}


def test_a_prompt_without_room_is_empty() -> None:
    assert context("Ada lives in Paris").as_prompt(max_tokens=10) == ""
    assert context().as_prompt() == ""
