"""A sentence as rules look at it: small words in lower case, one sign for each name and date, nothing that only fills.

Names stand as single characters of a private range of Unicode, so that a rule is a regular expression over a few dozen
short tokens, and "Anna de Vries" costs as much as "Bo".
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sharedmem.graph.extraction.entity_spans import FILLERS, EntitySpan

FIRST_PLACEHOLDER, DATE_PLACEHOLDER = 0xE000, "\uf8ff"
NAME_PLACEHOLDERS = "\ue000-\uf7ff"
_MOST_PLACEHOLDERS = 0xF7FF - FIRST_PLACEHOLDER
_PRIVATE = re.compile(r"[\ue000-\uf8ff]")
_TOKEN = re.compile(r"'(?:s|m|ve|ll|d|re)\b|\d+(?:[.,:]\d+)*|[^\W\d_]\w*(?:[-']\w+)*|\w+|[^\s\w]")
_SHORT = {"'m": "am", "'ve": "have", "'ll": "will", "'d": "would", "'re": "are"}
_NOT = {"won't": "will", "can't": "can", "shan't": "shall", "cannot": "can"}
_BREAKS = re.compile(r"(?<=[.!?])[\"')\]\u201d]?\s+(?=[\"'(\u201c]?[^\W_a-z])|\n\s*|;\s")
_ABBREVIATION = re.compile(
    r"(?:\b(?:mr|mrs|ms|dr|prof|st|no|nr|vs|etc|e\.g|i\.e|jr|sr|[a-z])|^\d{1,2})\.$", re.IGNORECASE
)
_LONGEST_ABBREVIATION = 6
_LONGEST_SENTENCE = 2_000


class MaskedToken(NamedTuple):
    """A word as rules see it, and where it stands in the text."""

    text: str
    begin: int
    end: int


class MaskedSentence(NamedTuple):
    """A sentence as rules look at it."""

    text: str
    """Tokens with one blank around each."""
    tokens: list[MaskedToken]
    starts: list[int]
    """Where each token begins in `text`."""
    spots: dict[str, EntitySpan]
    """By sign."""

    def token_at(self, position: int) -> int:
        """Number of the token that begins at or after a position of `text`."""
        return bisect_left(self.starts, position)


def remove_placeholders(text: str) -> str:
    """A text without characters that mean something here; as long as before."""
    return _PRIVATE.sub(" ", text).replace("\u2019", "'")


def split_sentences(text: str, is_free: bytearray) -> Iterator[tuple[int, int]]:
    """Where the sentences of a text begin and end.

    Args:
        text: any text.
        is_free: for each character 0 where a name stands; no sentence ends there.
    """
    begin = 0
    for found in _BREAKS.finditer(text):
        at = found.start()
        shortened = _ABBREVIATION.search(text, max(begin, at - _LONGEST_ABBREVIATION), at)
        if "\n" not in found[0] and (shortened or not is_free[max(0, at - 1)]):
            continue
        yield from _split_long(begin, at)
        begin = found.end()
    yield from _split_long(begin, len(text))


def _split_long(begin: int, end: int) -> Iterator[tuple[int, int]]:
    return ((at, min(at + _LONGEST_SENTENCE, end)) for at in range(begin, end, _LONGEST_SENTENCE))


def split_words(text: str, offset: int = 0) -> Iterator[MaskedToken]:
    """The words of a piece of text as they are compared."""
    for found in _TOKEN.finditer(text):
        yield from _expand_word(found[0].lower(), found.start() + offset, found.end() + offset)


def _expand_word(word: str, begin: int, end: int) -> Iterator[MaskedToken]:
    if word in FILLERS:
        return
    if word in _NOT or word.endswith("n't"):
        yield MaskedToken(_NOT.get(word, word[:-3]), begin, end)
        yield MaskedToken("not", begin, end)
        return
    yield MaskedToken(_SHORT.get(word, word), begin, end)


def mask_sentence(
    text: str, span: tuple[int, int], spots: Sequence[EntitySpan], dates: Sequence[tuple[int, int]]
) -> MaskedSentence:
    """A sentence as rules look at it.

    Args:
        text: the whole text.
        span: of the sentence.
        spots: names in the sentence.
        dates: spans of its dates, which overlap neither each other nor a name.
    """
    marks: list[tuple[int, int, EntitySpan | None]] = [
        (spot.begin, spot.end, spot) for spot in spots[:_MOST_PLACEHOLDERS]
    ]
    marks += [(begin, end, None) for begin, end in dates]
    tokens: list[MaskedToken] = []
    signs: dict[str, EntitySpan] = {}
    at = span[0]
    for begin, end, spot in sorted(marks, key=lambda mark: mark[:2]):
        tokens += split_words(text[at:begin], at)
        sign = DATE_PLACEHOLDER if spot is None else chr(FIRST_PLACEHOLDER + len(signs))
        if spot is not None:
            signs[sign] = spot
        tokens.append(MaskedToken(sign, begin, end))
        if spot is not None and spot.possessive:
            tokens.append(MaskedToken("'s", end, end))
        at = end
    tokens += split_words(text[at : span[1]], at)
    return _build_masked(_repeat_subjects(_drop_date_commas(tokens), signs), signs)


def _drop_date_commas(tokens: list[MaskedToken]) -> list[MaskedToken]:
    """Without commas beside a date: "I moved, last week, to Rome"."""
    kept: list[MaskedToken] = []
    for token in tokens:
        if token.text == "," and kept and kept[-1].text == DATE_PLACEHOLDER:
            continue
        if token.text == DATE_PLACEHOLDER and kept and kept[-1].text == ",":
            kept.pop()
        kept.append(token)
    return kept


def _repeat_subjects(tokens: list[MaskedToken], signs: dict[str, EntitySpan]) -> list[MaskedToken]:
    """Who did the first thing also did what follows an "and": "Anna left Acme and joined Globex"."""
    subject = next((token for token in tokens if token.text in signs), None)
    if subject is None:
        return tokens
    told = list(tokens)
    for number in range(len(tokens) - 2, 0, -1):
        word, after = tokens[number], tokens[number + 1]
        if word.text in {"and", "but"} and after.text.isalpha() and after.text not in signs:
            told.insert(number + 1, MaskedToken(subject.text, after.begin, after.begin))
    return told


def _build_masked(tokens: list[MaskedToken], signs: dict[str, EntitySpan]) -> MaskedSentence:
    starts, at = [], 1
    for token in tokens:
        starts.append(at)
        at += len(token.text) + 1
    return MaskedSentence(f" {' '.join(token.text for token in tokens)} ", tokens, starts, signs)
