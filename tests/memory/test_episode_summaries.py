"""docs/episodes.md: the summary quotes, keeps numbers and names, repeats nothing, and reads no more than it should."""
# ruff: noqa: RUF001  # texts in other scripts are what is tested

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharedmem.episodes import format_event
from sharedmem.text.analysis import split_sentences
from sharedmem.text.summaries import (
    LONGEST_SENTENCE,
    LONGEST_TEXT,
    MOST_CHARACTERS_READ,
    MOST_SENTENCES_READ,
    bounded_sentences,
    summarize,
)

CHATTER = [
    "Good morning everybody.",
    "Hello.",
    "I am here now.",
    "Give me a moment.",
    "Thanks.",
    "Nice weather today.",
    "One more coffee.",
    "Back again.",
    "Sorry for the wait.",
]
PUMP = [
    "The pump in Harbour Lane failed at 04:12.",
    "Ines Vale measured 7.35 bar at the pump before it failed.",
    "Replacing the pump costs 18,400 pounds.",
    "The pump was replaced by Torben Ash on Tuesday.",
]


# -- what is kept ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_what_a_session_keeps_coming_back_to_is_told_and_the_chatter_is_not(seed: int) -> None:
    texts = PUMP + CHATTER
    random.Random(seed).shuffle(texts)

    summary = summarize(texts, sentences=4).splitlines()

    assert set(summary) == set(PUMP)


@pytest.mark.parametrize(
    "text",
    [
        "Order 4711 was filled at 101.25.",
        "Ada Lovelace met Dr. Grace Hopper, who owns 3.5 % of it.",
        "The route is 10.0.0.7:6379, i.e. the spare one.",
        "Der Umsatz stieg um 1.234,56 € bzw. 7 %.",
    ],
)
def test_numbers_and_names_survive_as_they_were_written(text: str) -> None:
    assert summarize([text]) == text


@pytest.mark.parametrize(
    ("plain", "telling"),
    [("pump failed again", "pump failed 7"), ("pump failed again", "pump failed Torben")],
)
def test_a_number_or_a_name_is_worth_more(plain: str, telling: str) -> None:
    assert summarize([plain, telling], sentences=1) == telling


def test_sentences_stay_in_the_order_in_which_they_were_said() -> None:
    texts = [f"Pump {number} runs at {number * 7} bar." for number in range(40)]

    told_ = summarize(texts).splitlines()

    assert told_ == sorted(told_, key=texts.index)


def test_of_sentences_that_say_the_same_one_is_told_before_the_other() -> None:
    texts = [
        "The pump failed at night, said the harbour master.",
        "At night the pump failed, the harbour master said.",
        "The harbour master said the pump failed at night again.",
        "A replacement pump arrives on Friday.",
    ]

    assert "A replacement pump arrives on Friday." in summarize(texts, sentences=2)


@pytest.mark.parametrize("again", ["The pump failed.", "the PUMP failed!", "  The  pump\tfailed ..."])
def test_no_sentence_is_told_twice(again: str) -> None:
    assert summarize(["The pump failed.", "It was replaced.", again]) == "The pump failed.\nIt was replaced."


# -- odd input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "summary"),
    [
        ([], ""),
        ([""], ""),
        (["  \n\t "], ""),
        (["one event"], "one event"),
        (["!!!", "???"], "!!!\n???"),
        (["!!!", "!!!"], "!!!"),
        (["🦆", "🦆 🦆"], "🦆\n🦆 🦆"),
        (["the and of"], "the and of"),
        (["東京は晴れ。大阪は雨。"], "東京は晴れ。\n大阪は雨。"),
        (["Привет, Мир. Здравствуй."], "Привет, Мир.\nЗдравствуй."),
        (["İstanbul'da yağmur yağdı."], "İstanbul'da yağmur yağdı."),
        (["a\u0301 b\u0301. C\u0327"], "a\u0301 b\u0301.\nC\u0327"),
        (["line one\r\nline two\u2028line three"], "line one\nline two\nline three"),
    ],
)
def test_odd_texts_have_sound_summaries(texts: list[str], summary: str) -> None:
    assert summarize(texts) == summary


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("It rose to 7.35 bar. Then it fell.", ["It rose to 7.35 bar.", "Then it fell."]),
        ("Ask Dr. Venn vs. Mr. Ash etc. Today.", ["Ask Dr. Venn vs. Mr. Ash etc. Today."]),
        ("J. S. Bach wrote it. Really?! Yes.", ["J. S. Bach wrote it.", "Really?!", "Yes."]),
        ("see e.g. example.com. it stays one", ["see e.g. example.com. it stays one"]),
        ("Wait… What?", ["Wait…", "What?"]),
        ("Ab 1. Mai 2026 gilt Plus. Danke.", ["Ab 1. Mai 2026 gilt Plus.", "Danke."]),
        ("Es sind 12. Mehr nicht.", ["Es sind 12.", "Mehr nicht."]),
        ("", []),
    ],
)
def test_a_text_is_split_where_its_sentences_end(text: str, sentences: list[str]) -> None:
    assert split_sentences(text) == sentences


def test_an_endless_sentence_is_cut_between_words() -> None:
    (sentence,) = bounded_sentences("12345 " * 1000)

    assert len(sentence) <= LONGEST_SENTENCE
    assert set(sentence.removesuffix("…").split()) == {"12345"}


def test_a_word_without_end_is_cut_all_the_same() -> None:
    (sentence,) = bounded_sentences("x" * 10 * LONGEST_TEXT)

    assert len(sentence) == LONGEST_SENTENCE


# -- bounds ---------------------------------------------------------------------------------------


@given(st.lists(st.text(max_size=400), max_size=30), st.integers(1, 9), st.integers(1, 500))
def test_a_summary_keeps_to_its_bounds_and_quotes(texts: list[str], most: int, characters: int) -> None:
    lines = summarize(texts, sentences=most, characters=characters).split("\n")
    lines = [line for line in lines if line]

    assert len(lines) <= most
    assert sum(map(len, lines)) + len(lines) - 1 <= characters
    assert len(set(lines)) == len(lines)
    assert set(lines) <= {sentence for text in texts for sentence in bounded_sentences(text)}


def test_of_more_than_can_be_read_the_newest_is_told() -> None:
    old = [f"Old matter {number} of the pump." for number in range(MOST_SENTENCES_READ)]
    new = [f"New matter {number} of the ferry." for number in range(MOST_SENTENCES_READ)]

    assert "Old" not in summarize(old + new)


class Counted(list[str]):
    """Counts how many of its texts are looked at."""

    looked_at = 0

    def __reversed__(self) -> Iterator[str]:
        for text in super().__reversed__():
            self.looked_at += 1
            yield text


def test_very_long_input_is_not_read_to_its_end() -> None:
    texts = Counted(["word " * 1_000_000] * 1_000)

    assert summarize(texts)
    assert texts.looked_at == MOST_CHARACTERS_READ // LONGEST_TEXT


@pytest.mark.parametrize("piece", [" ", "a. ", ". ", "Dr. ", "…。", "x-", "A"])
def test_text_made_to_be_slow_is_not(piece: str) -> None:
    assert len(bounded_sentences(piece * 100_000)) <= LONGEST_TEXT
    assert len(summarize([piece * 100_000])) <= 1_000


# -- telling --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "text"),
    [
        ("as it is", "as it is"),
        ({"by": "ada", "text": "hello"}, "ada: hello"),
        ({"role": "user", "content": "hello"}, "user: hello"),
        ({"text": "hello", "score": 3}, "hello"),
        ({"price": 101.25, "symbol": "KELP"}, "price: 101.25, symbol: KELP"),
        ({"legs": [1, {"a": None}]}, 'legs: [1,{"a":null}]'),
        ({}, ""),
        (7, "7"),
        (None, "null"),
        ([1, "two"], '[1,"two"]'),
        (2**70, str(2**70)),
        (b"raw", "b'raw'"),
    ],
)
def test_an_event_is_told_as_people_would(event: object, text: str) -> None:
    assert format_event(event) == text
