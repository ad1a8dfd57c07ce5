"""A sentence as rules look at it: small words in lower case, one sign for each name and date, nothing that only fills.

Names stand as single characters of a private range of Unicode, so that a rule is a regular expression over a few dozen
short tokens, and "Anna de Vries" costs as much as "Bo".
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sharedmem.knowledge.graph.extracting.plain_words import FILLERS
from sharedmem.knowledge.graph.extracting.spots import Spot

FIRST_SIGN, DATE_SIGN = 0xE000, "\uf8ff"
NAME_SIGNS = "\ue000-\uf7ff"
_MOST_SIGNS = 0xF7FF - FIRST_SIGN
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


class Token(NamedTuple):
    """A word as rules see it, and where it stands in the text."""

    text: str
    begin: int
    end: int


class Masked(NamedTuple):
    """A sentence as rules look at it."""

    text: str
    """Tokens with one blank around each."""
    tokens: list[Token]
    starts: list[int]
    """Where each token begins in `text`."""
    spots: dict[str, Spot]
    """By sign."""

    def token_at(self, position: int) -> int:
        """Number of the token that begins at or after a position of `text`."""
        return bisect_left(self.starts, position)


def without_signs(text: str) -> str:
    """A text without characters that mean something here; as long as before."""
    return _PRIVATE.sub(" ", text).replace("\u2019", "'")


def sentences_of(text: str, is_free: bytearray) -> Iterator[tuple[int, int]]:
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
        yield from _short_enough(begin, at)
        begin = found.end()
    yield from _short_enough(begin, len(text))


def _short_enough(begin: int, end: int) -> Iterator[tuple[int, int]]:
    return ((at, min(at + _LONGEST_SENTENCE, end)) for at in range(begin, end, _LONGEST_SENTENCE))


def words_of(text: str, offset: int = 0) -> Iterator[Token]:
    """The words of a piece of text as they are compared."""
    for found in _TOKEN.finditer(text):
        yield from _plain(found[0].lower(), found.start() + offset, found.end() + offset)


def _plain(word: str, begin: int, end: int) -> Iterator[Token]:
    if word in FILLERS:
        return
    if word in _NOT or word.endswith("n't"):
        yield Token(_NOT.get(word, word[:-3]), begin, end)
        yield Token("not", begin, end)
        return
    yield Token(_SHORT.get(word, word), begin, end)


def masked(text: str, span: tuple[int, int], spots: Sequence[Spot], dates: Sequence[tuple[int, int]]) -> Masked:
    """A sentence as rules look at it.

    Args:
        text: the whole text.
        span: of the sentence.
        spots: names in the sentence.
        dates: spans of its dates, which overlap neither each other nor a name.
    """
    marks: list[tuple[int, int, Spot | None]] = [(spot.begin, spot.end, spot) for spot in spots[:_MOST_SIGNS]]
    marks += [(begin, end, None) for begin, end in dates]
    tokens: list[Token] = []
    signs: dict[str, Spot] = {}
    at = span[0]
    for begin, end, spot in sorted(marks, key=lambda mark: mark[:2]):
        tokens += words_of(text[at:begin], at)
        sign = DATE_SIGN if spot is None else chr(FIRST_SIGN + len(signs))
        if spot is not None:
            signs[sign] = spot
        tokens.append(Token(sign, begin, end))
        if spot is not None and spot.possessive:
            tokens.append(Token("'s", end, end))
        at = end
    tokens += words_of(text[at : span[1]], at)
    return _joined(_subjects_repeated(_commas_left(tokens), signs), signs)


def _commas_left(tokens: list[Token]) -> list[Token]:
    """Without commas beside a date: "I moved, last week, to Rome"."""
    kept: list[Token] = []
    for token in tokens:
        if token.text == "," and kept and kept[-1].text == DATE_SIGN:
            continue
        if token.text == DATE_SIGN and kept and kept[-1].text == ",":
            kept.pop()
        kept.append(token)
    return kept


def _subjects_repeated(tokens: list[Token], signs: dict[str, Spot]) -> list[Token]:
    """Who did the first thing also did what follows an "and": "Anna left Acme and joined Globex"."""
    subject = next((token for token in tokens if token.text in signs), None)
    if subject is None:
        return tokens
    told = list(tokens)
    for number in range(len(tokens) - 2, 0, -1):
        word, after = tokens[number], tokens[number + 1]
        if word.text in {"and", "but"} and after.text.isalpha() and after.text not in signs:
            told.insert(number + 1, Token(subject.text, after.begin, after.begin))
    return told


def _joined(tokens: list[Token], signs: dict[str, Spot]) -> Masked:
    starts, at = [], 1
    for token in tokens:
        starts.append(at)
        at += len(token.text) + 1
    return Masked(f" {' '.join(token.text for token in tokens)} ", tokens, starts, signs)
