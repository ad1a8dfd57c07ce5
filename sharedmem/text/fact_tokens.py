"""Split a text into the tokens by which facts of two texts are compared: words, numbers with units, ids, links.

Blanks always part tokens, so a text has the same tokens wherever it is quoted whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from sharedmem.text.normalization import DECIMAL_COMMA, GROUPED_NUMBER, normalize_number
from sharedmem.text.vocabulary import CURRENCIES

FactTokenKind = Literal["word", "number", "unit", "code", "link", "sign"]

# Scripts that put no blank between words, or between a number and what is counted: their letters stand alone.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
_W = rf"[^\W_{_UNSPACED}]"
_JOINT = rf"(?:[-_](?={_W})|(?<=\d)[.,:](?=\d)|/(?=\d)|(?<=\d)'(?=\d\d\d))"
_TOKEN = re.compile(
    rf"(?P<link>(?:[a-z][a-z0-9+.-]{{1,20}}://|www\.)[!#-;=?-~\u00c0-\u024f\u0370-\u04ff]+"
    rf"|{_W}(?:{_W}|[.+_-]){{0,63}}@{_W}(?:{_W}|-){{0,62}}(?:\.{_W}(?:{_W}|-){{0,62}}){{1,8}})"
    # A minus, and no hyphen: nothing stands before it.
    rf"|(?P<joined>(?:(?<![^\s(])-(?=\d))?{_W}+(?:{_JOINT}{_W}+)*)"
    r"|(?P<sign>[$€£¥₹₩₽₺₴₿₪%‰])"
    rf"|(?P<letter>[{_UNSPACED}])",
    re.IGNORECASE,
)
_AFTER_LINK = ".,;:!?)]}'\"*_`|~"
_WORD = re.compile(r"[^\W_]+")
_IS_CODE = re.compile(r"[\d_]|^[a-f]{8,}$")
_PREFIXED = frozenset("$€£¥₹₩₽₺₴₿₪")
_SIGN_WORDS = {
    form: sign
    for sign, words in {**CURRENCIES, "%": "percent pct"}.items()
    for word in words.split()
    for form in (word, f"{word}s")
}

_IS_ONE_NUMBER = re.compile(rf"(?:{GROUPED_NUMBER}|{DECIMAL_COMMA})[^\W\d_]{{0,3}}")
_WITH_UNIT = re.compile(r"(-?\d(?:[\d.,:]*\d)?)([^\W\d_]{1,3})")


class FactToken(NamedTuple):
    """A token of a text."""

    form: str
    """As it is compared."""
    kind: FactTokenKind
    start: int
    end: int
    """Where it stands; the parts of `20mg` stand in one place."""

    @property
    def is_prefix(self) -> bool:
        """Whether it is the sign of a currency, which may stand before its number."""
        return self.form in _PREFIXED


def fact_tokens(text: str) -> list[FactToken]:
    """Split a text that `plain_characters` has prepared. Linear in its length."""
    return [token for match in _TOKEN.finditer(text) for token in _match_tokens(match)]


def _match_tokens(match: re.Match[str]) -> Iterator[FactToken]:
    text, start, end = match.group(), *match.span()
    if match["link"]:
        bare = text.rstrip(_AFTER_LINK)
        yield FactToken(bare.casefold(), "link", start, start + len(bare))
    elif match["joined"] and not _IS_CODE.search(text.casefold()):
        yield from (_word_tokens(word, start) for word in _WORD.finditer(text))
    elif match["joined"]:
        yield from _code_tokens(text, start)
    else:
        yield FactToken(text, "sign" if match["sign"] else "word", start, end)


def _word_tokens(word: re.Match[str], start: int) -> FactToken:
    form = word.group().casefold()
    kind: FactTokenKind = "sign" if form in _SIGN_WORDS else "word"
    return FactToken(_SIGN_WORDS.get(form, form), kind, start + word.start(), start + word.end())


def _code_tokens(code: str, start: int) -> Iterator[FactToken]:
    """The tokens of what has a digit in it; `1,2,3` are three."""
    parts = [code] if _IS_ONE_NUMBER.fullmatch(code) else code.split(",")
    for part in parts:
        yield from (FactToken(form, kind, start, start + len(part)) for form, kind in _normalize_code(part.casefold()))
        start += len(part) + 1


def _normalize_code(code: str) -> list[tuple[str, FactTokenKind]]:
    """One spelling of a number, a number with its unit, or an id."""
    if number := normalize_number(code):
        return [(number, "number")]
    if measure := _WITH_UNIT.fullmatch(code):
        return [*_normalize_code(measure[1]), (measure[2], "unit")]
    return [(code, "code")]
