"""A text is split the same way for summaries, notes and graphs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharedmem.text.analysis import sentence_spans, split_sentences


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ('She said "yes." Then she left.', ['She said "yes."', "Then she left."]),
        ("1. Buy milk. 2. Call Bob.", ["1. Buy milk.", "2. Call Bob."]),
        ("#### 1. **Speed** matters", ["#### 1. **Speed** matters"]),
        ("I don't. Anna does.", ["I don't.", "Anna does."]),
        ("**Ms. Marvel** and E.B. Stone came.", ["**Ms. Marvel** and E.B. Stone came."]),
        ("Am 3. Mai kam Eva. Sie blieb.", ["Am 3. Mai kam Eva.", "Sie blieb."]),
        ("/* ... */ and 3! = 6", ["/* ... */ and 3! = 6"]),
        ("it came. it went.", ["it came. it went."]),
    ],
)
def test_a_sentence_ends_where_a_reader_would_end_it(text: str, sentences: list[str]) -> None:
    assert split_sentences(text) == sentences


def test_sentences_in_small_letters_are_split_when_asked() -> None:
    assert split_sentences("it came. it went.", small_letters=True) == ["it came.", "it went."]


def test_a_long_sentence_ends_at_the_next_full_stop() -> None:
    first, second = f"we talked about {'x' * 300}.", "then we left."

    assert split_sentences(f"{first} {second}") == [first, second]


def test_no_sentence_ends_within_a_name_and_a_semicolon_ends_a_clause_when_asked() -> None:
    text = "Anna joined Globex Corp. She left; Bob stayed."
    is_free = bytearray(b"\x01") * len(text)
    is_free[12:24] = bytes(12)

    spans = sentence_spans(text, is_free=is_free, clauses=True)

    assert [text[begin:end] for begin, end in spans] == ["Anna joined Globex Corp. She left", "Bob stayed."]


@given(st.text(alphabet="aA1.!?;\"' \n。*", max_size=200))
def test_nothing_but_blanks_and_semicolons_is_lost(text: str) -> None:
    spans = list(sentence_spans(text, clauses=True))

    said = "".join(text[begin:end] for begin, end in spans)
    assert [letter for letter in said if letter not in " \n;"] == [letter for letter in text if letter not in " \n;"]
