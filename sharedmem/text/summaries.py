"""Offline summaries: the most central sentences of some texts, in their original order."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log, sqrt

from sharedmem.text.analysis import split_sentences

MOST_SENTENCES_READ = 2_000
MOST_CHARACTERS_READ = 400_000
LONGEST_TEXT = 20_000
LONGEST_SENTENCE = 300

_RELEVANCE = 0.6
_RAISED_BY = 1.1

# Compound words and decimal numbers count as one word: parts of them would make a sentence look frequent.
_WORD = re.compile(r"\w+(?:[.,'\u2019\-]\w+)*")
_NAME = re.compile(r"(?<=[^.!?:\s]\s)[^\W\d_]*[A-ZÀ-ÖØ-ÞΑ-ΩА-Я][^\W_]*")
_DIGIT = re.compile(r"\d")
# English stop words; for other languages only frequency counts.
_STOP_WORDS_TEXT = (
    "a an and are as at be been but by did do does for from had has have he her his i if in into is it its me my no"
    " not of on or our out she so than that the their them then there these they this to too up us was we were what"
    " when which who will with would you your"
)
_STOP_WORDS = frozenset(_STOP_WORDS_TEXT.split())

SparseVector = Mapping[str, float]


def summarize(texts: Sequence[str], *, sentences: int = 7, characters: int = 1_000) -> str:
    """Return the most central sentences of texts, one a line, in their order; the newest texts are read.

    Args:
        texts: oldest first.
        sentences: most sentences.
        characters: most characters of the summary.

    Returns:
        The summary; empty for blank texts.
    """
    read = [_Sentence(text) for text in _distinct_sentences(texts)]
    vectors = _vectors(read)
    centre = _centroid(vectors)
    centrality = [_cosine(vector, centre) * sentence.raise_ for sentence, vector in zip(read, vectors, strict=True)]
    chosen = _select_sentences([len(sentence.text) for sentence in read], vectors, centrality, sentences, characters)
    return "\n".join(read[index].text for index in sorted(chosen))


def bounded_sentences(text: str) -> list[str]:
    """Return the sentences of the first 20,000 characters of a text; one beyond 300 characters is cut short."""
    return [_truncate(sentence) for sentence in split_sentences(text[:LONGEST_TEXT])]


@dataclass(frozen=True)
class _Sentence:
    text: str

    @cached_property
    def words(self) -> list[str]:
        return [word for word in _WORD.findall(self.text.casefold()) if word not in _STOP_WORDS]

    @property
    def raise_(self) -> float:
        """Return the factor for facts that must not be lost."""
        number = _RAISED_BY if _DIGIT.search(self.text) else 1.0
        return number * (_RAISED_BY if _NAME.search(self.text) else 1.0)


def _distinct_sentences(texts: Sequence[str]) -> list[str]:
    """Return the newest distinct sentences within the bounds, oldest first; of equal ones the first stays."""
    newest: list[str] = []
    characters = 0
    for text in reversed(texts):
        newest += reversed(bounded_sentences(text))
        characters += min(len(text), LONGEST_TEXT)
        if len(newest) >= MOST_SENTENCES_READ or characters >= MOST_CHARACTERS_READ:
            break
    by_words = {_comparison_key(sentence): sentence for sentence in newest[:MOST_SENTENCES_READ]}
    first_occurrences = dict.fromkeys(_comparison_key(sentence) for sentence in reversed(newest[:MOST_SENTENCES_READ]))
    return [by_words[essence] for essence in first_occurrences]


def _comparison_key(sentence: str) -> str:
    """Return the common form of sentences that differ only in case, blanks and punctuation."""
    return " ".join(_WORD.findall(sentence.casefold())) or sentence


def _vectors(read: Sequence[_Sentence]) -> list[SparseVector]:
    held_by = Counter(word for sentence in read for word in set(sentence.words))
    rarity = {word: log((1 + len(read)) / count) for word, count in held_by.items()}
    return [_unit({word: count * rarity[word] for word, count in Counter(s.words).items()}) for s in read]


def _centroid(vectors: Iterable[SparseVector]) -> SparseVector:
    total: defaultdict[str, float] = defaultdict(float)
    for vector in vectors:
        for word, weight in vector.items():
            total[word] += weight
    return _unit(total)


def _unit(vector: SparseVector) -> SparseVector:
    length = sqrt(sum(weight * weight for weight in vector.values()))
    return {word: weight / length for word, weight in vector.items()} if length else {}


def _cosine(one: SparseVector, other: SparseVector) -> float:
    if len(one) > len(other):
        one, other = other, one
    return sum(weight * other[word] for word, weight in one.items() if word in other)


def _select_sentences(
    lengths: Sequence[int], vectors: Sequence[SparseVector], centrality: Sequence[float], most: int, characters: int
) -> list[int]:
    """Return the indexes of the sentences to keep, best first."""
    closeness = [0.0] * len(lengths)
    open_ = set(range(len(lengths)))
    chosen: list[int] = []
    while len(chosen) < most and (open_ := {index for index in open_ if lengths[index] <= characters}):
        best = max(open_, key=lambda index: (_marginal_relevance(centrality[index], closeness[index]), -index))
        chosen.append(best)
        open_.discard(best)
        characters -= lengths[best] + 1
        for index in open_:
            closeness[index] = max(closeness[index], _cosine(vectors[index], vectors[best]))
    return chosen


def _marginal_relevance(centrality: float, closeness: float) -> float:
    return _RELEVANCE * centrality - (1 - _RELEVANCE) * closeness


def _truncate(sentence: str) -> str:
    if len(sentence) <= LONGEST_SENTENCE:
        return sentence
    head = sentence[: LONGEST_SENTENCE - 1]
    # At a blank, so that no number or name is cut in two.
    return f"{head.rpartition(' ')[0] or head}…"
