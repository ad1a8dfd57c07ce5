"""What a consolidation must not drop: numbers, dates, amounts, addresses, ids, names, titles, and length."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.example_budget import example_count

from sharedmem.errors import InvalidError
from sharedmem.synthesis.fact_coverage import check_facts_preserved, is_long_enough, missing_facts
from sharedmem.synthesis.note_text import format_note
from sharedmem.synthesis.schemas import EpisodicOutput, SummaryOutput

# -- what is a fact -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("it took 17 days and 2.5 hours", ["17", "2.5"]),
        ("it paid $1,000.50, then 40 dollars, 12 % and €3", ["$1,000.50", "40 dollars", "12 %", "€3"]),
        ("it weighs 20mg at -5 degrees", ["20mg", "-5"]),
        ("on 2024-05-03, 3.5.2024 at 10:30", ["2024-05-03", "3.5.2024", "10:30"]),
        ("on May 3rd, 2024 or 4 June or July 2023", ["May 3rd, 2024", "4 June", "July 2023"]),
        ("el 3 de mayo de 2024", ["3 de mayo de 2024"]),
        ("write to ann.k+x@mail.example.org.", ["ann.k+x@mail.example.org"]),
        ("see (https://example.org/a?b=1#c), www.example.org/x!", ["https://example.org/a?b=1#c", "www.example.org/x"]),
        ("order A-123, ORD_77, #4711, run 0xdeadbeef", ["A-123", "ORD_77", "4711", "0xdeadbeef"]),
        ("hash cafebabe and v1.2.3 of user_name", ["cafebabe", "v1.2.3", "user_name"]),
        ("id 550e8400-e29b-41d4-a716-446655440000", ["550e8400-e29b-41d4-a716-446655440000"]),
        ("he met Ann Keller and O'Brien in New York", ["Ann Keller", "O'Brien", "New York"]),
        ("Yesterday it was Monday in Berlin.", ["Monday", "Berlin"]),
        ("Dr. Keller saw J. R. R. Tolkien. Prefers tea.", ["Keller", "J. R. R. Tolkien"]),
        ("NASA and GitHub are names anywhere. Others are not. I am none.", ["NASA", "GitHub"]),
        ("Customer: Ann Keller. Note: Please wait", ["Ann Keller"]),
        ('it liked "The Lord of War" and said "Come back soon."', ["The Lord of War", "Lord", "War"]),
        ("User: Hello, it is Ann\nAssistant: Wait", ["Ann"]),
        ("ich schreibe Ihnen, dass Sie in Bonn sind", ["Bonn"]),
        ("она живёт в Москве", ["Москве"]),  # so it is written
        ("2024年5月3日买了20个《红楼梦》", ["2024年5月3日", "20", "红楼梦"]),
        ("العدد ٣٥", ["35"]),
        ("nothing to be kept here, it is small talk", []),
        ("", []),
    ],
)
def test_facts_are_found_in_their_order(text: str, facts: list[str]) -> None:
    assert missing_facts([text], "") == facts


def test_headings_and_lead_ins_of_notes_are_no_names() -> None:
    note = format_note(
        EpisodicOutput.model_validate(
            {
                "what_worked": {"strategies": ["Short steps", "Links"], "pattern": "Speed mattered"},
                "what_failed": {"strategies": ["Jargon"]},
                "behavioral_profile": {"communication": "terse and polite"},
                "interaction_insights": {
                    "engagement_triggers": "deadlines",
                    "friction_points": "forms",
                    "optimal_approach": "calm",
                },
                "future_guidance": {"recommended_approaches": ["Ask"], "avoid_approaches": ["Wait"]},
            }
        ),
        SummaryOutput.model_validate(
            {
                "narrative": "It was settled.",
                "retrieval": {"tags": ["Refund Policy"], "keywords": ["Open Banking"]},
                "metadata": {"depth": "low", "follow_ups": ["Call back"]},
            }
        ),
    )

    assert missing_facts([note], "") == []


# -- how facts are compared -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("it paid 1,000", "1000 was paid"),
        ("it paid 1'000.50 and 1.000.000", "1000.50 and 1000000"),
        ("2,5 litres", "2.5 litres"),
        ("it paid $40 and 5%", "40 dollars, 5 percent"),
        ("20mg", "20 mg"),
        ("on May 3rd, 2024", "2024-05-03"),
        ("on 2024-05-03", "on 3 May 2024"),
        ("on 13/5/2024", "2024-05-13"),
        ("am 3. Mai 2024", "2024/05/03"),
        ("2024年5月3日", "2024-05-03"),
        ("on May 3", "on 3 May 2024"),
        ("it met ANN KELLER of Jean-Luc's", "ann keller, jean luc"),
        ("it costs ٣٥", "35"),
        ("see A\u2011123", "see a-123"),
        ("late\n---\nTags: 17 | Keywords: 00, 77", "late at 17:00, order A-77"),  # tags may be parts
    ],
)
def test_another_spelling_says_the_same(text: str, result: str) -> None:
    assert missing_facts([text], result) == []


@pytest.mark.parametrize(
    ("text", "result", "missing"),
    [
        ("order 1234", "order 12345, 01234 and 123.4", ["1234"]),
        ("it paid $40", "it paid €40", ["$40"]),
        ("at -5 degrees", "at 5 degrees", ["-5"]),
        ("order A-123", "orders A-123-9, BA-123, A123", ["A-123"]),
        ("on 2024-05-03", "on 2024-05-04 and 2023-05-03", ["2024-05-03"]),
        ("on 3 May 2024", "on 3 May", ["3 May 2024"]),
        ("on 03/05/2024", "on 2024-05-03", ["03/05/2024"]),  # or the fifth of March
        ("it met Ann Keller", "it met Ann Berger and Tom Keller", ["Ann Keller"]),
        ("see https://example.org/a", "see https://example.org/ab", ["https://example.org/a"]),
        ("mail a@example.org", "mail aa@example.org", ["a@example.org"]),
        ("twice 7 and 7", "never", ["7"]),
    ],
)
def test_what_is_only_alike_is_missing(text: str, result: str, missing: list[str]) -> None:
    assert missing_facts([text], result) == missing


def _as_itself(text: str) -> tuple[str, str]:
    return text, text


def _spoken(day: date) -> tuple[str, str]:
    return day.isoformat(), f"{day:%B} {day.day}, {day.year:04}"


# What it is, by which there are no two of the same, and how it is written.
numbers = st.integers(10_000, 10**12)
days = st.dates(date(1900, 1, 1), date(2999, 12, 31))
facts = st.one_of(
    numbers.map(str).map(_as_itself),
    numbers.map(lambda number: (str(number), f"{number:,}")),
    numbers.map(lambda number: (str(number), f"${number}")),
    st.decimals(-9_999, 9_999, places=2).map(str).map(_as_itself),
    days.map(date.isoformat).map(_as_itself),
    days.map(_spoken),
    st.from_regex(r"[A-Z]{2,4}[-_]?[0-9]{3,9}", fullmatch=True).map(_as_itself),
    st.from_regex(r"[0-9a-f]{6}[0-9][0-9a-f]{4}a", fullmatch=True).map(_as_itself),
    st.from_regex(r"[a-z]{2,8}[0-9]?@[a-z]{2,8}\.(com|org)", fullmatch=True).map(_as_itself),
    st.from_regex(r"https://[a-z]{2,8}\.org/[a-z0-9]{1,8}", fullmatch=True).map(_as_itself),
    st.uuids().map(str).map(_as_itself),
    st.from_regex(r"X[a-z]{3,8}( Q[a-z]{3,8})?", fullmatch=True).map(lambda name: (name.split()[0], name)),
)
sentences = st.sampled_from(
    ["it came with {} in the end", "the matter of {}.", "so it was {}; that is all", "with ({})"]
)


@settings(max_examples=example_count(15, thorough=40), deadline=None)
@given(st.lists(facts, min_size=2, max_size=8, unique_by=lambda fact: fact[0]), sentences, st.data())
def test_a_planted_fact_that_was_dropped_is_reported(
    planted: list[tuple[str, str]], sentence: str, data: st.DataObject
) -> None:
    inputs = [sentence.format(written) for _, written in planted]
    dropped = data.draw(st.integers(0, len(inputs) - 1))
    kept = inputs[:dropped] + inputs[dropped + 1 :]

    assert missing_facts(inputs, "\n".join(kept)) == [planted[dropped][1]]
    assert missing_facts(inputs, "\n".join(reversed(inputs))) == []


SIGNS = """Ann a-1 -5 $ 1,000 5% May 3 2024 of " Dune --- | 一 年 ٣ — . : x@y.zz http://a.b) « » ½ US kg \\---"""
signs = st.sampled_from([*SIGNS.split(), "## Guidance", "\n", "Do: ", "Tags: x", "e\u0301", "\u00ad", "\u2019s"])
glued = st.lists(signs | st.text(max_size=3), max_size=12).flatmap(
    lambda parts: st.sampled_from(["", " "]).map(lambda between: between.join(parts))
)


@settings(max_examples=example_count(15, thorough=40), deadline=None)
@given(st.lists(glued, max_size=3), st.sampled_from(["\n\n", "\n"]))
def test_a_result_that_quotes_all_inputs_whole_raises_no_alarm(inputs: list[str], between: str) -> None:
    result = between.join(["before", *reversed(inputs), "after"])

    assert missing_facts(inputs, result) == []
    assert is_long_enough(inputs, result)
    check_facts_preserved(inputs, result)


# -- length and refusal ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "result", "is_enough"),
    [
        ([], "", True),
        (["a cup of tea."], "a cup of tea.", True),
        (["a cup of tea.", "a"], "a cup of te", False),
        (["a   cup\n\n\nof tea."], "a cup\nof tea.", True),  # blanks say nothing
        (["it came. it came. it came."], "it came.", True),  # nor does what comes again
        (["it came. it went."], "it came. it came. it came.", False),
    ],
)
def test_a_result_is_as_long_as_the_longest_input_without_its_repetitions(
    inputs: list[str], result: str, is_enough: bool
) -> None:
    assert is_long_enough(inputs, result) is is_enough


def test_a_consolidation_that_drops_facts_is_refused_and_five_of_them_are_named() -> None:
    with pytest.raises(InvalidError, match=r"lacks '11', '12', '13', '14', '15' and 2 more"):
        check_facts_preserved(["the 11 12 13 14 15 16 17"], "a text that is long enough for all of that")


def test_a_consolidation_that_is_too_short_is_refused() -> None:
    with pytest.raises(InvalidError, match="shorter"):
        check_facts_preserved(["it was a long way home and it was dark"], "it was dark")


@pytest.mark.parametrize(
    "text",
    [
        " ".join(f"order A-{number} of Ann K{number} cost ${number},000 on May 3." for number in range(1_000)),
        *(part * 10_000 for part in ("a.", "a-", '"', "X ", "1,", "x+", " |", "a@", "#", "-", "$1 ")),
    ],
)
def test_long_texts_do_not_take_long(text: str) -> None:
    # What is quadratic would take minutes here.
    assert missing_facts([text], text) == []
    assert missing_facts([text], "") is not None
