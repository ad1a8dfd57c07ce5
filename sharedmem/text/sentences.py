"""Split a text into sentences, the same way for summaries, notes and the rules of graphs, and choose the most central.

An offline extractive summary is the most central sentences of some texts, in their original order.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log, sqrt

from sharedmem.text.vocabulary import ABBREVIATION_END, CALENDARS

# A sentence does not begin with signs of code, mathematics or markup alone: `... */`, `3! = 6`.
_END = re.compile(
    r"(?<=[.!?…])[\"')\]\u201d\u00bb]?\s+(?=\S)(?![-*/<>=|{}()]+(?:\s|$)|\\)"
    r"|(?<=[\u3002\uff01\uff1f])|[\r\n\u2028\u2029]\s*"
)
_CLAUSE_END = re.compile(rf"{_END.pattern}|;\s")
_SMALL_LETTER = re.compile(r"[\"'(\u201c\u201e\u00ab]?[a-zß-öø-ÿ]")
_ENDS_LINE = frozenset("\r\n\u2028\u2029")
_CLOSING = "\"')]\u201d\u00bb"
_LONGEST_ABBREVIATION = 12
_LONGEST_JOINED = 300
"""Length from which every full stop ends a sentence: a text of nothing but abbreviations has more than one."""
_LIST_NUMBER = re.compile(r"[\s#*>-]*\d{1,2}\.")
# A German date, `1. Mai 2026`: elsewhere months that follow a full stop have no capital.
_DAY = re.compile(r"(?<!\d)\d{1,2}\.$")
_MONTH = re.compile(rf"\s*(?:{'|'.join(CALENDARS['de'].months.split())})\b", re.IGNORECASE)


def split_sentences(text: str, *, small_letters: bool = False) -> list[str]:
    """Return the sentences and lines of a text, each with single blanks and none around it.

    Args:
        text: any text.
        small_letters: whether a sentence may begin with a small letter, as some models and people write.
    """
    spans = sentence_spans(text, small_letters=small_letters)
    pieces = (" ".join(text[begin:end].split()) for begin, end in spans)
    return [piece for piece in pieces if piece]


def sentence_spans(
    text: str, *, is_free: bytearray | None = None, clauses: bool = False, small_letters: bool = False
) -> Iterator[tuple[int, int]]:
    """Yield where the sentences of a text begin and end. Linear in its length.

    Args:
        text: any text.
        is_free: for each character 0 inside a name, in which no sentence ends; None without names.
        clauses: whether a semicolon ends a sentence.
        small_letters: as `split_sentences` takes it.
    """
    begin = 0
    for found in (_CLAUSE_END if clauses else _END).finditer(text):
        at, following = found.span()
        if _ENDS_LINE.isdisjoint(found[0]):
            if is_free is not None and not is_free[at - 1]:
                continue
            if at - begin < _LONGEST_JOINED and not found[0].startswith(";"):
                goes_on = not small_letters and _SMALL_LETTER.match(text, following)
                if goes_on or _is_abbreviation(text, begin, at, following):
                    continue
        # A closing quote after the full stop belongs to the sentence.
        yield begin, at + (text[at : at + 1] in _CLOSING and at < following)
        begin = following
    yield begin, len(text)


def _is_abbreviation(text: str, begin: int, at: int, following: int) -> bool:
    """Return whether the full stop before a place belongs to an abbreviation, a list number or the day of a date."""
    if text[at - 1] != ".":
        return False
    end = text[max(begin, at - _LONGEST_ABBREVIATION) : at]
    if ABBREVIATION_END.search(end) or (at - begin <= _LONGEST_ABBREVIATION and _LIST_NUMBER.fullmatch(end)):
        return True
    return bool(_DAY.search(end) and _MONTH.match(text, following))


# -- summaries -----------------------------------------------------------------------------------


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
