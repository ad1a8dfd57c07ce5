"""Split a text into sentences, the same way for summaries, notes and the rules of graphs."""

from __future__ import annotations

import re
from collections.abc import Iterator

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
