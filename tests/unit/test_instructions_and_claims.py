"""Standing instructions, preferences and claims in what somebody says (docs/memory.md)."""

from __future__ import annotations

import pytest

from sharedmem.text.statements import claims_of, find_standing, is_lookup


@pytest.mark.parametrize(
    ("text", "kind", "topic"),
    [
        ("Always include version numbers when I ask about libraries.", "instruction", "libraries"),
        ("Thanks! Please never use emojis.", "instruction", ""),
        ("From now on, answer in French.", "instruction", ""),
        ("Format dates as day and month when I ask about deadlines.", "instruction", "deadlines"),
        ("I prefer automated deployments.", "preference", ""),
        ("My favourite editor is Vim.", "preference", ""),
        ("I can\u2019t stand long answers.", "preference", ""),
    ],
)
def test_instructions_and_preferences_are_found_with_their_topic(text: str, kind: str, topic: str) -> None:
    found = find_standing(text)

    assert found is not None
    assert (found.kind, found.topic) == (kind, topic)


@pytest.mark.parametrize(
    "text", ["I always forget my keys.", "Do you prefer tea?", "It never rains here.", "The crane is broken.", ""]
)
def test_habits_questions_and_facts_stand_for_nothing(text: str) -> None:
    found = find_standing(text)

    assert found is None or found.kind != "instruction"
    assert text != "The crane is broken." or found is None


def test_a_question_about_what_was_said_is_a_lookup() -> None:
    assert is_lookup("When did I move?")
    assert is_lookup("What is the average age of my cranes?")
    assert is_lookup("Which event happened first, the launch or the review?")
    assert is_lookup("In which order do I test the gates?")
    assert not is_lookup("How should I deploy this service?")
    assert not is_lookup("Any tips on what to bake for my colleagues?")


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("I live in York.", "We moved to Leeds last week."),
        ("Ann lives in York.", "Ann has now moved to Leeds."),
        ("I work for Acme.", "I joined Initech in May."),
        ("My phone number is 555-0101.", "My phone number is now 555-0199."),
        ("The deadline of the report is 5 May.", "The deadline of the report was moved to 9 May."),
        ("The crane on pier 3 lifts 40 tons.", "The crane on pier 3 now lifts 30 tons."),
        ("Always answer in French when I ask about wine.", "Never answer in French when I ask about wine."),
    ],
)
def test_statements_that_replace_each_other_claim_the_same(older: str, newer: str) -> None:
    (before,), (after,) = claims_of(older), claims_of(newer)

    assert (before.subject, before.attribute) == (after.subject, after.attribute)
    assert before.value != after.value
    assert before.encoded("ada")[:12] == after.encoded("ada")[:12]
    assert before.encoded("ada")[:12] != after.encoded("bob")[:12]


@pytest.mark.parametrize(
    "text",
    [
        "I ran 5 km.",
        "Saturday works for me!",
        "They played, so I joined in.",
        "Where do I live?",
        "I like tea.",
        "I live in York. " + "The rest is a document. " * 20,
    ],
)
def test_events_questions_likes_and_documents_claim_nothing(text: str) -> None:
    assert claims_of(text) == ()


def test_different_subjects_are_different_claims() -> None:
    (third,), (fourth,) = (
        claims_of("The crane on pier 3 lifts 40 tons."),
        claims_of("The crane on pier 4 lifts 30 tons."),
    )

    assert third.attribute != fourth.attribute
