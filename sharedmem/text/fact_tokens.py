"""Split a text into tokens to compare the facts of two texts: words, numbers with units, ids, links.

Blanks always separate tokens, so a text has the same tokens wherever it is quoted whole. Search terms (`text.analysis`)
do not fit: they drop stop words and endings, and a stem is not a fact.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Literal, NamedTuple

from sharedmem.text.analysis import WORD
from sharedmem.text.vocabulary import CURRENCIES

# -- characters and numbers in one spelling --------------------------------------------------

_PLAIN_FORMS = {
    "\N{ARABIC DECIMAL SEPARATOR}": ".",
    "\N{ARABIC THOUSANDS SEPARATOR}": ",",
    "\N{RIGHT SINGLE QUOTATION MARK}": "'",
}


class _LetterTable(dict[int, str]):
    """The plain form of each character, computed when it is first needed."""

    def __missing__(self, codepoint: int) -> str:
        letter = chr(codepoint)
        self[codepoint] = read = _normalize_letter(letter, unicodedata.category(letter))
        return read


def plain_characters(text: str) -> str:
    """Return a text with ASCII digits, hyphens and apostrophes and without invisible characters; case is kept."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text).translate(_LETTERS)


def _normalize_letter(letter: str, category: str) -> str:
    if category == "Nd":
        return str(unicodedata.decimal(letter))
    if category == "Pd" or letter == "\N{MINUS SIGN}":
        return " - " if letter in "\N{EM DASH}\N{HORIZONTAL BAR}\N{TWO-EM DASH}\N{THREE-EM DASH}" else "-"
    if category == "Cf":
        return ""
    return _PLAIN_FORMS.get(letter, letter)


_LETTERS = _LetterTable()

_GROUPED_NUMBER = (
    r"-?\d{1,3}(?:,\d{2,3})*,\d{3}(?:\.\d+)?|-?\d{1,3}(?:'\d{3})+(?:\.\d+)?"
    r"|-?\d{1,3}(?:\.\d{3})+,\d+|-?\d{1,3}(?:\.\d{3}){2,}"
)
"""A number with separators of thousands: `1,000.5`, `12,34,567`, `1'000`, `1.000,5`, `1.000.000`."""
_DECIMAL_COMMA = r"-?\d+,\d+"
_PLAIN = re.compile(r"-?\d+(?:\.\d+)?")
_ORDINAL = re.compile(r"(\d+)(?:st|nd|rd|th)")
_GROUPED = re.compile(_GROUPED_NUMBER)
_DOTS = re.compile(r"-?\d{1,3}(?:\.\d{3})+(?:,\d+)?")
_DECIMAL = re.compile(_DECIMAL_COMMA)


def normalize_number(text: str) -> str | None:
    """Return the normal form of a number: `1,000` is `1000`, `2,5` is `2.5`, `4th` is `4`; None for no single number.

    Args:
        text: in lower case, with ASCII digits.
    """
    if _PLAIN.fullmatch(text):
        return text
    if ordinal := _ORDINAL.fullmatch(text):
        return ordinal[1]
    if _GROUPED.fullmatch(text):
        if _DOTS.fullmatch(text):
            return text.replace(".", "").replace(",", ".")
        return text.replace(",", "").replace("'", "")
    return text.replace(",", ".") if _DECIMAL.fullmatch(text) else None


# -- tokens -----------------------------------------------------------------------------------

FactTokenKind = Literal["word", "number", "unit", "code", "link", "sign"]

# Scripts without blanks between words, or between a number and its unit: each of their letters is a token.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
_W = rf"[^\W_{_UNSPACED}]"
_JOINT = rf"(?:[-_](?={_W})|(?<=\d)[.,:](?=\d)|/(?=\d)|(?<=\d)'(?=\d\d\d))"
_TOKEN = re.compile(
    rf"(?P<link>(?:[a-z][a-z0-9+.-]{{1,20}}://|www\.)[!#-;=?-~\u00c0-\u024f\u0370-\u04ff]+"
    rf"|{_W}(?:{_W}|[.+_-]){{0,63}}@{_W}(?:{_W}|-){{0,62}}(?:\.{_W}(?:{_W}|-){{0,62}}){{1,8}})"
    # A minus, not a hyphen: it has no character before it.
    rf"|(?P<joined>(?:(?<![^\s(])-(?=\d))?{_W}+(?:{_JOINT}{_W}+)*)"
    r"|(?P<sign>[$€£¥₹₩₽₺₴₿₪%‰])"
    rf"|(?P<letter>[{_UNSPACED}])",
    re.IGNORECASE,
)
_AFTER_LINK = ".,;:!?)]}'\"*_`|~"
_IS_CODE = re.compile(r"[\d_]|^[a-f]{8,}$")
_PREFIXED = frozenset("$€£¥₹₩₽₺₴₿₪")
_SIGN_WORDS = {
    form: sign
    for sign, words in {**CURRENCIES, "%": "percent pct"}.items()
    for word in words.split()
    for form in (word, f"{word}s")
}

_IS_ONE_NUMBER = re.compile(rf"(?:{_GROUPED_NUMBER}|{_DECIMAL_COMMA})[^\W\d_]{{0,3}}")
_WITH_UNIT = re.compile(r"(-?\d(?:[\d.,:]*\d)?)([^\W\d_]{1,3})")


class FactToken(NamedTuple):
    """A token of a text."""

    form: str
    """The form that is compared."""
    kind: FactTokenKind
    start: int
    end: int
    """Its position; the parts of `20mg` have the same position."""

    @property
    def is_prefix(self) -> bool:
        """Whether it is the sign of a currency, which may be before its number."""
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
        yield from (_word_tokens(word, start) for word in WORD.finditer(text))
    elif match["joined"]:
        yield from _code_tokens(text, start)
    else:
        yield FactToken(text, "sign" if match["sign"] else "word", start, end)


def _word_tokens(word: re.Match[str], start: int) -> FactToken:
    form = word.group().casefold()
    kind: FactTokenKind = "sign" if form in _SIGN_WORDS else "word"
    return FactToken(_SIGN_WORDS.get(form, form), kind, start + word.start(), start + word.end())


def _code_tokens(code: str, start: int) -> Iterator[FactToken]:
    """Yield the tokens of a word with a digit in it; `1,2,3` are three."""
    parts = [code] if _IS_ONE_NUMBER.fullmatch(code) else code.split(",")
    for part in parts:
        yield from (FactToken(form, kind, start, start + len(part)) for form, kind in _normalize_code(part.casefold()))
        start += len(part) + 1


def _normalize_code(code: str) -> list[tuple[str, FactTokenKind]]:
    """Return the normal form of a number, a number with its unit, or an id."""
    if number := normalize_number(code):
        return [(number, "number")]
    if measure := _WITH_UNIT.fullmatch(code):
        return [*_normalize_code(measure[1]), (measure[2], "unit")]
    return [(code, "code")]
