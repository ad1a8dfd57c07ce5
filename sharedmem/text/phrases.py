"""Phrases in queries: words in quotation marks, found only side by side and in this order."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from sharedmem.text.analysis import DENSE_RUN, LONGEST_TEXT, WORD, fold_text

# Straight and typographic marks; a mark without a partner has no meaning.
_QUOTED = re.compile('"([^"]+)"|\u201c([^\u201c\u201d]+)\u201d')
_BETWEEN = r"[\W_]+"


def find_phrases(query: str) -> tuple[str, ...]:
    """Return the texts in quotation marks that contain a word."""
    found = ((match[1] or match[2]).strip() for match in _QUOTED.finditer(query))
    return tuple(dict.fromkeys(phrase for phrase in found if WORD.search(phrase)))


def contains_phrases(texts: Iterable[str], phrases: Iterable[str]) -> bool:
    """Return whether each phrase is in one of the texts: its words side by side, in this order.

    Case, and blanks and signs between the words, do not matter; inflected forms are other words.
    """
    folded = [fold_text(text[:LONGEST_TEXT]) for text in texts]
    return all(any(_pattern(phrase).search(text) for text in folded) for phrase in phrases)


@lru_cache(maxsize=512)
def _pattern(phrase: str) -> re.Pattern[str]:
    words = WORD.findall(fold_text(phrase))
    # Scripts without blanks between words have no ends of words to look for.
    begin = "" if DENSE_RUN.match(words[0]) else r"(?<![^\W_])"
    end = "" if DENSE_RUN.match(words[-1]) else r"(?![^\W_])"
    return re.compile(begin + _BETWEEN.join(map(re.escape, words)) + end)
