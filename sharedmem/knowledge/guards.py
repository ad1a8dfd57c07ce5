"""Guards: what tells two texts apart that an embedding takes for the same.

An embedding hardly sees whether it is 2 mg or 20 mg, may or may not, Paris or Rome. A guard looks at the words that
only one of the two texts has. A text that merely says less is no other text, unless what it leaves out is a number
or a name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple

from sharedmem.knowledge.guard_words import (
    ALIASES,
    ALSO_WORDS,
    COMMON_OPENERS,
    MEASURES,
    NEGATIONS,
    NUMBERS,
    OPPOSITES,
    UNITS,
    singular,
)

_TOKEN = re.compile(
    r"(?:[^\W\d_]\.){2,}"  # U.S.
    r"|[^\W\d_]{1,64}(?:['’][^\W\d_]{1,16})?(?:\+\+|\#)?"  # noqa: RUF001  # people type this apostrophe
    r"|(?<![\w.)])[-\u2212]?\d[\d.,:/]*(?<![.,:/])(?:(?:st|nd|rd|th|k)\b)?"  # 1,000 · 2.1.4 · 10:30 · 3/5 · 4th · -5
    r"|\d+(?:[.,:/]\d+)*"  # the 4 of iPhone4 and GPT-4
    r"|[<>=!]=|[<>=≤≥≠%$€£₹¥?!.;:\n]"
)
_THOUSANDS = re.compile(r",(?=\d{3}\b)")
_ORDINAL = re.compile(r"(?:st|nd|rd|th)$")
_ENDS = frozenset("?!.;:\n")
_NO_WORD = {""}
_JOINS = frozenset({"and", "or", "nor", "vs", "versus", "between"})
_OF_A_COUNTRY = ("n", "an", "ese")
_A_PAIR = 2
_TITLE = 4
"""Capitals from which a text may be a title."""

_Kind = Literal["word", "number", "maybe number", "negation", "end"]


class _Word(NamedTuple):
    """A word of a text, as it is compared."""

    form: str
    kind: _Kind
    capital: bool
    """Begins with a capital letter."""
    acronym: bool
    """Has a capital letter further on."""


class _Text(NamedTuple):
    """A text, as it is compared."""

    words: list[_Word]
    forms: set[str]


def differs(a: str, b: str) -> str | None:
    """What tells two texts apart, if a guard finds something.

    Args:
        a, b: two texts that are taken for near; their order does not matter.

    Returns:
        `numbers` (amounts, dates, versions, units), `negation`, `names`, `opposites` or `order` (the same words with
        two of them exchanged); None when nothing forbids to take them for the same. About 20 microseconds for two
        sentences, and linear in their length.
    """
    if a == b:
        return None
    left, right = _read(a), _read(b)
    fresh_left, fresh_right = left.forms - right.forms, right.forms - left.forms
    if not fresh_left and not fresh_right:
        return "order" if _exchanged(left.words, right.words) else None
    mine = [word for word in left.words if word.form in fresh_left]
    yours = [word for word in right.words if word.form in fresh_right]
    if _numbers_differ(mine, yours) or _denied_by(fresh_left, fresh_right, UNITS):
        return "numbers"
    if (_denies(mine) or _denies(yours)) and _denies(left.words) != _denies(right.words):
        return "negation"
    if _names_differ(left, right, fresh_left, fresh_right):
        return "names"
    return "opposites" if _denied_by(fresh_left, fresh_right, OPPOSITES) else None


def _read(text: str) -> _Text:
    words = list(map(_word, _TOKEN.findall(text)))
    return _Text(words, {word.form for word in words} - _NO_WORD)


@lru_cache(maxsize=16_384)
def _word(token: str) -> _Word:
    """A word as it is compared: case, plural and possessive do not count."""
    if token in _ENDS:
        return _Word("", "end", capital=False, acronym=False)
    if token[-1].isdigit() or token[0].isdigit():
        return _Word(_number(token), "number", capital=False, acronym=False)
    form = singular(token.casefold().replace("’", "'"))  # noqa: RUF001  # people type this apostrophe
    if form in NUMBERS:
        kind: _Kind = "maybe number" if form in ALSO_WORDS else "number"
        return _Word(NUMBERS[form], kind, capital=False, acronym=False)
    if form in NEGATIONS or form.endswith("n't"):
        return _Word(form, "negation", capital=False, acronym=False)
    return _Word(ALIASES.get(form, form), "word", token[0].isupper(), any(map(str.isupper, token[1:])))


def _number(token: str) -> str:
    """One spelling of a number: `1,000` and `1k` are `1000`, `2,5` is `2.5`, `4th` is `4`, `3.0` is `3`."""
    text = _ORDINAL.sub("", _THOUSANDS.sub("", token.replace("\u2212", "-"))).replace(",", ".")
    if text.endswith("k"):
        text = text[:-1] + "000" if text[:-1].isdecimal() else text
    return text.removesuffix(".0").lstrip("0") or "0"


def _numbers_differ(left: list[_Word], right: list[_Word]) -> bool:
    """Whether a number stands in one text only; what may be no number counts only against another number."""
    if any(word.kind == "number" for word in left) or any(word.kind == "number" for word in right):
        return True
    return all(any(word.kind == "maybe number" for word in side) for side in (left, right))


def _denies(words: list[_Word]) -> bool:
    return any(word.kind == "negation" for word in words)


def _names_differ(left: _Text, right: _Text, fresh_left: set[str], fresh_right: set[str]) -> bool:
    """Whether a name stands in one text only; what may be no name counts only against another name.

    A name of one text may stand in the other in small letters: not everybody types capitals.
    """
    mine, yours = _name(left.words, fresh_left, right.forms), _name(right.words, fresh_right, left.forms)
    return "name" in (mine, yours) or mine == yours == "maybe name"


def _name(words: list[_Word], fresh: set[str], others: set[str]) -> Literal["name", "maybe name", "none"]:
    """What the capitals of words that only this text has say."""
    candidates = {word for word in words if word.capital and word.form in fresh and _may_name(word, others)}
    if not candidates:
        return "none"
    inner = [word for before, word in pairwise(words) if before.kind != "end" and word.kind == "word"]
    capitals = sum(word.capital for word in inner)
    if capitals >= _TITLE and 2 * capitals > len(inner):  # as in a title, where capitals say little
        return "maybe name"
    return "name" if any(word.acronym or word in inner for word in candidates) else "maybe name"


def _may_name(word: _Word, others: set[str]) -> bool:
    if word.form in MEASURES or (word.form in COMMON_OPENERS and not word.acronym):
        return False
    # `India` and `Indian`, `Japan` and `Japanese`
    kin = [word.form + ending for ending in _OF_A_COUNTRY]
    kin += [word.form.removesuffix(ending) for ending in _OF_A_COUNTRY if word.form.endswith(ending)]
    return others.isdisjoint(kin)


def _denied_by(fresh: set[str], others: set[str], opposites: Mapping[str, frozenset[str]]) -> bool:
    """Whether a word of these says something else than one of the others."""
    return any(not others.isdisjoint(opposites[form]) for form in fresh if form in opposites)


def _exchanged(left: list[_Word], right: list[_Word]) -> bool:
    """Whether two words have changed places, which matters unless they are joined as equals (`A and B`)."""
    mine, yours = ([word.form for word in words if word.kind != "end"] for words in (left, right))
    if len(mine) != len(yours):
        return False
    moved = [place for place, (a, b) in enumerate(zip(mine, yours, strict=True)) if a != b]
    if len(moved) != _A_PAIR or any(mine[place] in COMMON_OPENERS for place in moved):
        return False
    first, last = moved
    if (mine[first], mine[last]) != (yours[last], yours[first]):
        return False
    if (mine[first] in MEASURES) != (mine[last] in MEASURES):  # `$5` and `5 dollars`
        return False
    return _JOINS.isdisjoint(mine[first + 1 : last])
