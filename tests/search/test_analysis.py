"""Words: text of any kind becomes words that no server reads otherwise."""

from __future__ import annotations

import re
import subprocess
import sys
import unicodedata

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sharedmem.text.analysis import (
    LONGEST_QUERY,
    LONGEST_TERM,
    LONGEST_TEXT,
    MOST_QUERY_TERMS,
    MOST_TERMS,
    PREFIX_LENGTH,
    document_terms,
    has_other_terms,
    namespace_term_prefix,
    query_terms,
)

ANY_TEXT = st.text(st.characters(), max_size=200)
PLAIN = re.compile(r"[a-z0-9]+")


def test_words_lose_case_ending_and_punctuation() -> None:
    assert document_terms("Interviewed: the geologists' RUNNING notes, v2!") == [
        "interview",
        "geolog",
        "run",
        "note",
        "v2",
    ]


def test_repeated_words_are_repeated() -> None:
    assert document_terms("plan, plans, planned") == ["plan", "plan", "plan"]


def test_a_query_has_each_word_once() -> None:
    assert query_terms("What did the geologist say about geologists?") == ("geolog", "say")


@pytest.mark.parametrize("text", ["", "what is it", "... ?! --", "\U0001f389 \U0001f600", "_", "\x00\x1f", "\ud800"])
def test_a_query_that_says_nothing_has_no_words(text: str) -> None:
    assert query_terms(text) == ()


def test_may_is_a_month() -> None:
    assert query_terms("When in May?") == ("may",)


@pytest.mark.parametrize("text", ["日本語テスト", "한국어를", "ภาษาไทย"])
def test_scripts_without_blanks_are_found_by_their_parts(text: str) -> None:
    whole = document_terms(text)

    assert len(whole) == len(text) - 1
    for start in range(len(text) - 1):
        assert set(query_terms(text[start : start + 2])) <= set(whole)


def test_scripts_may_be_mixed() -> None:
    assert document_terms("日本GPS日") == [*document_terms("日本"), "gps", *document_terms("日")]


@pytest.mark.parametrize("text", ["Müller", "ЖДЁШЬ", "ΣΊΣΥΦΟΣ", "naïve", "שלום", "مرحبا"])
def test_case_and_form_of_any_script_do_not_matter(text: str) -> None:
    spellings = {text, text.upper(), text.lower(), *(unicodedata.normalize(form, text) for form in ("NFC", "NFD"))}

    assert len({tuple(document_terms(spelling)) for spelling in spellings}) == 1


def test_a_foreign_word_never_meets_a_plain_one() -> None:
    (foreign,) = document_terms("é")

    assert PLAIN.fullmatch(foreign)
    assert document_terms(foreign) != [foreign]


@given(ANY_TEXT)
def test_every_word_is_plain_and_short(text: str) -> None:
    for term in [*document_terms(text), *query_terms(text)]:
        assert PLAIN.fullmatch(term)
        assert len(term) <= LONGEST_TERM


@given(ANY_TEXT)
def test_a_text_is_found_by_its_own_words(text: str) -> None:
    assert set(query_terms(text)) <= set(document_terms(text))


@given(ANY_TEXT, ANY_TEXT)
def test_words_do_not_depend_on_their_neighbours(first: str, second: str) -> None:
    apart = document_terms(first) + document_terms(second)

    assert document_terms(f"{first} \n {second}") == apart


@given(st.text(st.characters(categories=["Lu", "Ll"]), min_size=1, max_size=5))
def test_different_words_are_told_apart_by_their_own_letters(word: str) -> None:
    other = word + word
    folded = [unicodedata.normalize("NFKC", text).casefold() for text in (word, other)]
    assume(all(text.isalnum() and len(document_terms(text)) == 1 for text in folded))

    assert (document_terms(word) == document_terms(other)) is (folded[0] == folded[1])


@given(ANY_TEXT)
def test_a_query_stays_small(text: str) -> None:
    terms = query_terms(text * 5)

    assert len(terms) == len(set(terms)) <= MOST_QUERY_TERMS


@pytest.mark.parametrize(
    "piece",
    ["word ", "a", "é_", "日", "\ufdfa", "\u0301\u0327", "a\u0301\u0327", "\u2003", " ", "é ", "\U0001f600"],
    ids=ascii,
)
def test_a_megabyte_of_anything_ends_in_a_few_words(piece: str) -> None:
    text = "é" + piece * (1_000_000 // len(piece))

    assert len(document_terms(text)) <= MOST_TERMS
    assert len(query_terms(text)) <= MOST_QUERY_TERMS


def test_what_lies_beyond_the_limits_is_not_looked_at() -> None:
    assert document_terms("the " * (LONGEST_TEXT // 4) + "end") == []
    assert query_terms("the " * (LONGEST_QUERY // 4) + "end") == ()


def test_words_that_begin_alike_and_never_end_are_one() -> None:
    assert document_terms("x" * 1000) == document_terms("x" * 2000)


@given(st.text(min_size=1, max_size=30).filter(lambda name: name.isprintable()))
def test_a_prefix_is_some_letters_that_stay(namespace: str) -> None:
    assert re.fullmatch(r"[a-z]+", namespace_term_prefix(namespace))
    assert len(namespace_term_prefix(namespace)) == PREFIX_LENGTH
    assert namespace_term_prefix(namespace) == namespace_term_prefix(namespace)


def test_prefixes_of_namespaces_differ() -> None:
    assert len({namespace_term_prefix(f"team-{number}") for number in range(2000)}) == 2000


def test_who_does_not_search_loads_no_stemmer() -> None:
    script = "import sys, sharedmem; assert 'Stemmer' not in sys.modules"

    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


@pytest.mark.parametrize(
    ("text", "has_others"),
    [("She moved to Paris", False), ("the Paris of the moves", False), ("She moved to Rome", True), ("", False)],
)
def test_a_text_has_other_terms_than_some_if_one_of_its_words_is_not_among_them(text: str, has_others: bool) -> None:
    assert has_other_terms(text, set(query_terms("moving Paris"))) is has_others
