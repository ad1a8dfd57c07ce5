"""Which part of a long memory a search has found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharedmem.store import SharedMemoryStore
from sharedmem.text.analysis import find_passage, query_terms

FILLER = [
    f"The {colour} shelf of the {place} holds {number} boxes of paper."
    for number, (colour, place) in enumerate(
        ((colour, place) for colour in ("red", "green", "blue") for place in ("hall", "attic", "cellar", "yard")), 10
    )
]
NEEDLE = "The crane on pier three may lift four tonnes, and nothing in rain."
LONG = " ".join([*FILLER, NEEDLE, *FILLER])
QUESTION = "How much may the crane lift?"


async def test_a_hit_of_a_long_memory_says_which_part_of_it_answers(store: SharedMemoryStore) -> None:
    await store.memory.add(LONG)

    (hit,) = await store.memory.search(QUESTION)

    assert hit.passage is not None
    assert hit.passage.text == LONG[hit.passage.start : hit.passage.end]
    assert NEEDLE in hit.passage.text
    assert 100 < len(hit.passage.text.split()) <= 120, "what is around it is part of it, as far as there is room"
    assert hit.passage.text.startswith("The")
    assert hit.passage.text.endswith(".")


async def test_a_short_memory_is_its_own_passage(store: SharedMemoryStore) -> None:
    await store.memory.add(" ".join([NEEDLE, *FILLER[:3]]))

    (hit,) = await store.memory.search(QUESTION)

    assert hit.passage is None


async def test_without_a_word_of_the_query_there_is_no_passage(store: SharedMemoryStore) -> None:
    await store.memory.add(" ".join(FILLER * 2))

    hits = await store.memory.search("Which zebra?")

    assert [hit.passage for hit in hits] == [None] * len(hits)


def test_the_rarest_words_decide() -> None:
    boxes = "Boxes boxes boxes of paper boxes are on the shelf."
    text = " ".join([*[boxes] * 20, NEEDLE, *FILLER, *[boxes] * 20])

    assert NEEDLE in cut(text, "boxes of paper, and the crane")


@pytest.mark.parametrize(
    ("text", "query", "part"),
    [
        ("word " * 500 + "needle " + "word " * 500, "needle", "needle"),
        ("\n".join([*FILLER, "Kran: vier Tonnen", *FILLER]), "Kran", "Kran: vier Tonnen"),
        (
            "これは倉庫の話です。" * 40 + "クレーンは四トンまで。" + "これは倉庫の話です。" * 40,
            "クレーン",
            "四トン",
        ),
    ],
    ids=["no sentences", "lines", "no blanks"],
)
def test_a_passage_is_found_in_any_text(text: str, query: str, part: str) -> None:
    found = cut(text, query)

    assert part in found
    assert len(found) < len(text) / 2


def cut(text: str, query: str) -> str:
    span = find_passage(query_terms(query), text)
    assert span is not None
    return text[span[0] : span[1]]


@given(
    st.lists(
        st.sampled_from(["crane", "lift", "box.", "Paper", "on\n", "\u3042\u3044\u3046", "x" * 30]),
        min_size=130,
        max_size=400,
    ),
    st.sampled_from(["crane", "lift paper", "none of them"]),
)
def test_a_passage_lies_in_its_text_and_has_a_word_of_the_query(words: list[str], query: str) -> None:
    text = " ".join(words)

    span = find_passage(query_terms(query), text)

    assert (span is not None) == any(word in text.casefold() for word in query.split())
    if span is not None:
        begin, end = span
        assert 0 <= begin < end <= len(text)
        assert not text[begin].isspace()
        assert not text[end - 1].isspace()
        assert any(word in text[begin:end].casefold() for word in query.split())


def test_an_endless_text_is_read_up_to_a_bound() -> None:
    assert find_passage(query_terms("crane"), "lift " * 1_000_000 + "crane") is None
    assert find_passage(query_terms("lift"), "lift. " * 200_000) is not None
