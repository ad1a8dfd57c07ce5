"""What a question asks for and what a statement tells (docs/synthesis.md: found by what a question asks for)."""

from __future__ import annotations

import pytest

from sharedmem.text.statements import asked_by, attributes_of, best_match, related_terms


@pytest.mark.parametrize(
    ("question", "answer", "other"),
    [
        ("Where does she live?", "I moved to York.", "I work at a bank."),
        ("What does she do for a living?", "I am a nurse.", "I live in Cork."),
        ("When is her birthday?", "I was born on 4 May.", "My sister was born on 7 June."),
        ("Who is her husband?", "I married Tom.", "I report to Tom."),
        ("Which operating system does she use?", "My laptop runs Debian.", "The operation went well."),
        ("What does her sister do?", "My sister studies law.", "I study law."),
        ("How old is she?", "I am 47 years old.", "I have an old car."),
    ],
)
def test_a_statement_fits_a_question_without_a_word_in_common(question: str, answer: str, other: str) -> None:
    assert best_match(question, answer) > best_match(question, other)
    assert best_match(question, answer) >= 0.5


def test_the_best_sentence_of_a_text_counts() -> None:
    assert best_match("Where does she live?", "It rained. I moved to York in spring. The cat slept.") == 1.0


def test_a_question_about_somebody_else_is_not_answered() -> None:
    assert best_match("Where does Bo live?", "Ann moved to York.") == 0.0
    assert best_match("Where does Ann live?", "Ann moved to York.") == 1.0
    assert best_match("Where does Ann live?", "I moved to York.", speaker="Ann") == 1.0


def test_texts_without_attributes_fit_nothing() -> None:
    assert attributes_of("Der Kran ist kaputt.") == frozenset()
    assert best_match("zzz?", "I moved to York.") == 0.0
    assert best_match("Where does she live?", "") == 0.0


def test_only_a_question_about_somebody_is_personal() -> None:
    assert asked_by("Where does she live?").is_personal
    assert not asked_by("Where do pharaohs live?").is_personal


def test_words_of_all_attributes_are_searched_for() -> None:
    found = related_terms(attributes_of("her job and her home"), most=6)

    assert {"job", "live"} <= set(found)
    assert len(found) == 6
