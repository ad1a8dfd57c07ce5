"""The ranking of what was found: pure functions, tested with small tables (docs/retrieval.md)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharedmem.memory.ranking import NeighbourTurns, RankingWeights, neighbour_ranges, rank, remove_speakers
from sharedmem.memory.serialization import RankingFeatures, decode_features, indexed_text, ranking_features
from sharedmem.models import MemoryItem, MemoryMessage
from sharedmem.search.protocol import IndexHit, IndexResult

NOON = datetime(2023, 5, 7, 12, tzinfo=UTC)
NOW_MS = 1_700_000_000_000
STILL = RankingWeights(
    text=0.6,
    vector=0.4,
    author=1.0,
    previous=(),
    following=(),
    answer=1.0,
    thread=0.0,
    question=1.0,
    date=1.0,
    time=1.0,
    number=1.0,
    name=1.0,
    length=0.0,
)
PLAIN = RankingFeatures("main", 0, None, asks=False, tokens=8, at_ms=NOW_MS, importance="medium")


def said(
    position: int, author: str = "Ada", *, thread: str = "t", asks: bool = False, tokens: int = 8
) -> RankingFeatures:
    return RankingFeatures(thread, position, author, asks, tokens, round(NOON.timestamp() * 1000), "medium")


def found(
    facts: dict[str, RankingFeatures], text: dict[str, float], vector: dict[str, float] | None = None
) -> IndexResult:
    lists = [
        [IndexHit(id_, score, facts[id_].encoded()) for id_, score in sorted(hits.items(), key=lambda hit: -hit[1])]
        for hits in (text, vector or {})
    ]
    return IndexResult(lists[0], lists[1], 1, 1)


def ranked(  # each is another part of a search
    facts: dict[str, RankingFeatures],
    text: dict[str, float],
    vector: dict[str, float] | None = None,
    *,
    query: str = "what about it",
    recipe: RankingWeights = STILL,
    neighbours: NeighbourTurns | None = None,
) -> dict[str, float]:
    order = rank(query, found(facts, text, vector), neighbours or {}, recipe, now_ms=NOW_MS)
    assert [one.score for one in order] == sorted((one.score for one in order), reverse=True)
    return {one.id: one.score for one in order}


# -- words and meaning -----------------------------------------------------------------------------


def test_words_count_by_their_share_of_the_best_and_meaning_by_its_place_between_worst_and_best() -> None:
    facts = dict.fromkeys("abc", PLAIN)

    scores = ranked(facts, {"a": 8.0, "b": 4.0}, {"b": 0.9, "c": 0.5, "a": 0.7})

    assert scores == pytest.approx({"a": 0.6 + 0.2, "b": 0.3 + 0.4, "c": 0.0})


def test_reciprocal_ranks_look_at_places_alone() -> None:
    facts = dict.fromkeys("ab", PLAIN)
    recipe = replace(STILL, fusion="rrf", text=1.0, vector=1.0)

    scores = ranked(facts, {"a": 8.0, "b": 7.9}, {"b": 0.9, "a": 0.1}, recipe=recipe)

    assert scores["a"] == pytest.approx(scores["b"]) == pytest.approx(1 + 61 / 62)


def test_hits_without_any_score_are_told_all_the_same() -> None:
    facts = dict.fromkeys("ab", PLAIN)

    assert ranked(facts, {"b": 0.0, "a": 0.0}) == {"a": 0.0, "b": 0.0}
    assert ranked(facts, {}, {"b": 0.3, "a": 0.3}) == {"a": 0.4, "b": 0.4}
    assert ranked({}, {}) == {}


def test_ties_are_told_by_id_and_a_limit_keeps_the_best() -> None:
    facts = dict.fromkeys("cab", PLAIN)
    hits = found(facts, dict.fromkeys("cab", 1.0))

    order = rank("q", hits, {}, STILL, now_ms=NOW_MS, limit=2)

    assert [one.id for one in order] == ["a", "b"]


def test_dialogue_changes_nothing_among_memories_without_a_speaker() -> None:
    facts = {"a": PLAIN._replace(asks=True), "b": PLAIN._replace(position=1)}
    hits = {"a": 2.0, "b": 1.0}

    assert ranked(facts, hits, query="what did I say?", recipe=RankingWeights(date=1.0)) == ranked(facts, hits)
    assert neighbour_ranges(found(facts, hits), RankingWeights()) == {}


@given(st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 30), min_size=2), st.floats(0.1, 5))
def test_a_better_score_in_a_search_never_costs_a_place(scores: dict[str, float], more: float) -> None:
    facts = {id_: said(place) for place, id_ in enumerate(scores)}
    raised = next(iter(scores))

    before = list(ranked(facts, scores))
    after = list(ranked(facts, scores | {raised: scores[raised] + more}))

    assert after.index(raised) <= before.index(raised)


# -- who, when, to whom ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "author", "is_meant"),
    [
        ("What did Ada buy?", "Ada", True),
        ("what is ada's plan", "Ada", True),
        ("Is Adam there?", "Ada", False),
        ("what did Ada Lovelace write", "Ada Lovelace", True),
        ("What did Ada write?", "Ada Lovelace", True),
        ("what did the researcher write", "researcher-1", False),
        ("what did researcher-1 write", "researcher-1", True),
        ("where did I park my car", "user", True),
        ("where is the car of that user", "user", False),
        ("which book did you recommend", "assistant", True),
        ("which book did you recommend", "user", False),
        ("what does (C++) say", "(C++)", True),
    ],
)
def test_what_was_said_by_whom_the_query_means_weighs_more(query: str, author: str, is_meant: bool) -> None:
    scores = ranked({"a": said(0, author)}, {"a": 1.0}, query=query, recipe=replace(STILL, author=2.0))

    assert scores == {"a": pytest.approx(1.2 if is_meant else 0.6)}


def test_names_of_speakers_are_left_out_of_what_is_embedded() -> None:
    asked = "What did Ada and Bo's team tell the user?"

    assert remove_speakers(asked, ["Ada", "Bo", "user"]) == "What did and team tell the user?"
    assert remove_speakers("Ada?", ["Ada"]) == "Ada?"
    assert remove_speakers(asked, []) == asked


def test_neighbours_lend_score_also_to_turns_that_no_search_found() -> None:
    facts = {"b": said(5)}
    around: NeighbourTurns = {("t", at): [(f"at{at}", said(at))] for at in (2, 3, 4, 6, 7, 8)}
    recipe = replace(STILL, previous=(0.4, 0.2), following=(0.3, 0.15))

    scores = ranked(facts, {"b": 1.0}, recipe=recipe, neighbours=around)

    gate = 1 / (1 + (8 / recipe.talkative) ** 3)
    lent = {"at6": 0.4, "at7": 0.2, "at4": 0.3, "at3": 0.15}
    assert scores == pytest.approx({"b": 0.6} | {id_: 0.6 * share * gate**2 for id_, share in lent.items()})


def test_the_answer_to_a_question_gains_more_and_the_question_itself_weighs_less() -> None:
    recipe = replace(STILL, previous=(0.4,), answer=1.5, question=0.8)
    answer: NeighbourTurns = {("t", 1): [("answer", said(1))]}

    asked = ranked({"q": said(0, asks=True)}, {"q": 1.0}, recipe=recipe, neighbours=answer)
    told = ranked({"q": said(0)}, {"q": 1.0}, recipe=recipe, neighbours=answer)

    assert asked["q"] == pytest.approx(0.8 * told["q"])
    assert asked["answer"] == pytest.approx(1.5 * told["answer"])


def test_long_turns_neither_lend_nor_take_much() -> None:
    recipe = replace(STILL, previous=(0.4,))
    short: NeighbourTurns = {("t", 1): [("next", said(1))]}
    long: NeighbourTurns = {("t", 1): [("next", said(1, tokens=800))]}

    taken = ranked({"a": said(0)}, {"a": 1.0}, recipe=recipe, neighbours=long)["next"]
    lent = ranked({"a": said(0, tokens=800)}, {"a": 1.0}, recipe=recipe, neighbours=short)["next"]

    assert taken == pytest.approx(lent)
    assert lent < 0.01


def test_other_memories_at_the_same_place_gain_nothing() -> None:
    recipe = replace(STILL, previous=(0.4,))
    facts = {"a": said(0), "note": PLAIN._replace(thread="t", position=1)}

    scores = ranked(facts, {"a": 1.0, "note": 0.5}, recipe=recipe)

    assert scores == pytest.approx({"a": 0.6, "note": 0.3})


def test_turns_of_the_thread_in_which_most_was_found_gain() -> None:
    facts = {"a": said(0), "b": said(9), "c": said(0, thread="u")}

    scores = ranked(facts, {"a": 1.0, "b": 1.0, "c": 1.0}, recipe=replace(STILL, thread=0.1))

    assert scores == pytest.approx({"a": 0.66, "b": 0.66, "c": 0.63})


@pytest.mark.parametrize(
    ("query", "is_meant"),
    [
        ("What happened on 7 May 2023?", True),
        ("what happened on May 7th", True),
        ("what happened on the 8th of May, 2023", True),
        ("what happened in May?", True),
        ("what happened in mid-May 2023", True),
        ("since 2023-05-07", True),
        ("what happened in May 2022", False),
        ("what happened on 10 May 2023", False),
        ("may we meet", False),
        ("what did April say in 2023", False),
        ("on 99 May 2023", False),
    ],
)
def test_what_was_said_when_the_query_names_the_day_or_month_weighs_more(query: str, is_meant: bool) -> None:
    scores = ranked({"a": said(0)}, {"a": 1.0}, query=query, recipe=replace(STILL, date=1.5))

    assert scores == {"a": pytest.approx(0.9 if is_meant else 0.6)}


@pytest.mark.parametrize("at_ms", [-(10**18), 10**18])
def test_a_clock_from_beyond_the_calendar_breaks_nothing(at_ms: int) -> None:
    recipe = replace(RankingWeights(), recency=1.0)

    assert ranked({"a": PLAIN._replace(at_ms=at_ms)}, {"a": 1.0}, query="in May", recipe=recipe)


@pytest.mark.parametrize(
    ("query", "text", "signal"),
    [
        ("When did Bo leave?", "He left last week, on the ferry.", "time"),
        ("What year was it?", "It was in 1987, I believe so.", "time"),
        ("How many boats are there?", "We counted seven of them there.", "number"),
        ("How old is the pier?", "It is 90 and looks it.", "number"),
        ("Where did Bo go?", "He took the train to Oslo.", "name"),
    ],
)
def test_a_turn_weighs_more_if_it_contains_the_kind_of_answer_that_is_asked_for(
    query: str, text: str, signal: str
) -> None:
    facts = {"a": ranking_features(turn(text), 0), "b": ranking_features(turn("the quay was wet and cold"), 20)}
    recipe = replace(STILL, **cast("dict[str, Any]", {signal: 2.0}))

    scores = ranked(facts, {"a": 1.0, "b": 1.0}, query=query, recipe=recipe)
    other = ranked(facts, {"a": 1.0, "b": 1.0}, query="Tell me about Bo.", recipe=recipe)

    assert scores == {"a": pytest.approx(1.2), "b": pytest.approx(0.6)}
    assert other == {"a": pytest.approx(0.6), "b": pytest.approx(0.6)}


def test_short_turns_weigh_less_and_beyond_25_words_length_does_not_matter() -> None:
    facts = {"a": said(0, tokens=3), "b": said(20, tokens=25), "c": said(40, tokens=300), "d": PLAIN}

    scores = ranked(facts, dict.fromkeys("abcd", 1.0), recipe=replace(STILL, length=0.5))

    assert scores["a"] == pytest.approx(0.6 * (4 / 26) ** 0.5)
    assert scores["b"] == scores["c"] == scores["d"] == pytest.approx(0.6)


def test_recency_and_importance_count_when_they_are_asked_for() -> None:
    half_life_s = 100.0
    recipe = replace(STILL, recency=0.5, half_life_s=half_life_s, importance={"critical": 2.0})
    facts = {
        "now": PLAIN,
        "old": PLAIN._replace(at_ms=NOW_MS - 100_000),
        "ahead": PLAIN._replace(at_ms=NOW_MS + 10**9),
        "vital": PLAIN._replace(importance="critical"),
    }

    scores = ranked(facts, dict.fromkeys(facts, 1.0), recipe=recipe)

    assert scores == pytest.approx({"now": 0.9, "old": 0.75, "ahead": 0.9, "vital": 1.8})


def test_neighbours_are_asked_for_once_in_ranges_that_lie_apart() -> None:
    facts = {"a": said(0), "b": said(3), "c": said(20), "d": said(7, thread="u"), "e": PLAIN}

    wanted = neighbour_ranges(found(facts, dict.fromkeys(facts, 1.0)), RankingWeights())

    assert wanted == {"t": [(0, 5), (18, 22)], "u": [(5, 9)]}


def test_without_lending_no_neighbour_is_read() -> None:
    assert neighbour_ranges(found({"a": said(0)}, {"a": 1.0}), STILL) == {}


# -- reasons ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("fusion", ["weighted", "rrf"])
def test_what_the_signals_contributed_adds_up_to_the_score(fusion: str) -> None:
    facts = {"a": said(0, asks=True), "b": said(1, "Bo"), "c": PLAIN}
    hits = found(facts, {"a": 5.0, "c": 1.0}, {"b": 0.8, "a": 0.2})
    recipe = RankingWeights(fusion="rrf" if fusion == "rrf" else "weighted", recency=0.3, importance={"medium": 1.1})
    around: NeighbourTurns = {("t", 2): [("d", said(2))]}

    told = rank("what did Ada say in May?", hits, around, recipe, now_ms=NOW_MS, explain=True)

    assert [(one.id, one.score) for one in told] == [
        (one.id, one.score) for one in rank("what did Ada say in May?", hits, around, recipe, now_ms=NOW_MS)
    ]
    for one in told:
        assert sum(signal.contribution for signal in one.signals) == pytest.approx(one.score)
    names = {one.id: [signal.name for signal in one.signals] for one in told}
    assert names["a"] == [
        *("text", "vector", "neighbours"),
        *("author", "thread", "question", "length", "date", "recency", "importance"),
    ]
    assert names["d"][0] == "neighbours"
    assert {signal.rank for one in told for signal in one.signals if signal.name == "vector"} == {1, 2}


# -- what is kept of a memory ----------------------------------------------------------------------


def turn(text: str, name: str | None = "Ada") -> MemoryItem:
    return MemoryItem(memory=text, timestamp=NOON, messages=(MemoryMessage(role="user", name=name, content=text),))


def test_a_turn_is_found_by_its_speaker_and_its_date_too() -> None:
    assert indexed_text(turn("We moved.")) == "[7 May 2023] Ada: We moved."
    assert indexed_text(turn("We moved.", name=None)) == "[7 May 2023] user: We moved."
    assert indexed_text(turn("We moved.").model_copy(update={"timestamp": None})) == "Ada: We moved."


def test_a_memory_is_found_by_its_fact_and_its_full_text_each_once() -> None:
    assert indexed_text(MemoryItem(memory="fact", content="the fact in full")) == "the fact in full"
    assert indexed_text(MemoryItem(memory="fact", content="the whole")) == "fact\nthe whole"
    assert indexed_text(MemoryItem(memory="fact", timestamp=NOON)) == "fact"


@pytest.mark.parametrize(
    ("text", "asks"), [("Where? ", True), ("What? Gone.", False), ("\u5728\u54ea\uff1f", True), ("", False)]
)
def test_the_facts_of_a_turn_come_back_as_they_were(text: str, asks: bool) -> None:
    facts = ranking_features(turn(text), 7)

    assert facts == RankingFeatures("main", 7, "Ada", asks, len(text.split()), round(NOON.timestamp() * 1000), "medium")
    assert decode_features(facts.encoded()) == facts


def test_features_that_an_earlier_version_has_written_contain_no_kinds_of_answer() -> None:
    features = decode_features(b'["t",3,"Ada",false,8,1683460800000,"medium"]')

    assert features == RankingFeatures("t", 3, "Ada", asks=False, tokens=8, at_ms=1683460800000, importance="medium")
    assert features.cues == 0


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'["t",0,["a"],0,1,0,"low"]', b'["t",1e999,null,0,1,0,"low"]'])
def test_foreign_facts_are_no_turn(data: bytes) -> None:
    assert decode_features(data).author is None
