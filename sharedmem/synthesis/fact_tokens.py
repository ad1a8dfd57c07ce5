"""A text as the tokens by which facts are compared: `1,000` and `1000` are one, as are `May 3rd` and `may 3`.

Blanks always part tokens, so a text has the same tokens wherever it is quoted whole.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Literal, NamedTuple

Kind = Literal["word", "number", "unit", "code", "link", "sign"]

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
_CURLED = "\N{RIGHT SINGLE QUOTATION MARK}"
_AFTER_LINK = ".,;:!?)]}'\"*_`|~"
_WORD = re.compile(r"[^\W_]+")
_IS_CODE = re.compile(r"[\d_]|^[a-f]{8,}$")
_PREFIXED = frozenset("$€£¥₹₩₽₺₴₿₪")
_SIGN_WORDS = {
    **dict.fromkeys(("dollar", "dollars", "usd"), "$"),
    **dict.fromkeys(("euro", "euros", "eur"), "€"),
    **dict.fromkeys(("pound", "pounds", "gbp"), "£"),
    **dict.fromkeys(("yen", "jpy"), "¥"),
    **dict.fromkeys(("percent", "pct"), "%"),
}

_PLAIN = re.compile(r"-?\d+(?:\.\d+)?")
_ORDINAL = re.compile(r"(\d+)(?:st|nd|rd|th)")
_COMMAS = re.compile(r"-?\d{1,3}(?:,\d{2,3})*,\d{3}(?:\.\d+)?|-?\d{1,3}(?:'\d{3})+(?:\.\d+)?")
_DOTS = re.compile(r"-?\d{1,3}(?:\.\d{3})+,\d+|-?\d{1,3}(?:\.\d{3}){2,}")
_DECIMAL_COMMA = re.compile(r"-?\d+,\d+")
_IS_ONE_NUMBER = re.compile(rf"(?:{_COMMAS.pattern}|{_DOTS.pattern}|{_DECIMAL_COMMA.pattern})[^\W\d_]{{0,3}}")
_WITH_UNIT = re.compile(r"(-?\d(?:[\d.,:]*\d)?)([^\W\d_]{1,3})")


class Token(NamedTuple):
    """A token of a text."""

    form: str
    """As it is compared."""
    kind: Kind
    start: int
    end: int
    """Where it stands; the parts of `20mg` stand in one place."""

    @property
    def is_prefix(self) -> bool:
        """Whether it is the sign of a currency, which may stand before its number."""
        return self.form in _PREFIXED


class _Letters(dict[int, str]):
    """What stands for a letter when texts are compared, found out when it is first met."""

    def __missing__(self, codepoint: int) -> str:
        letter = chr(codepoint)
        self[codepoint] = read = _read(letter, unicodedata.category(letter))
        return read


def readable(text: str) -> str:
    """A text in its compatible form, with ASCII digits and hyphens, and nothing invisible."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text).translate(_letters)


def tokens_of(text: str) -> list[Token]:
    """The tokens of a readable text. Linear in its length."""
    return [token for match in _TOKEN.finditer(text) for token in _tokens(match)]


def _read(letter: str, category: str) -> str:
    if category == "Nd":
        return str(unicodedata.decimal(letter))
    if category == "Pd" or letter == "\N{MINUS SIGN}":
        return " - " if letter in "\N{EM DASH}\N{HORIZONTAL BAR}\N{TWO-EM DASH}\N{THREE-EM DASH}" else "-"
    if category == "Cf":
        return ""
    return {"\N{ARABIC DECIMAL SEPARATOR}": ".", "\N{ARABIC THOUSANDS SEPARATOR}": ",", _CURLED: "'"}.get(
        letter, letter
    )


_letters = _Letters()


def _tokens(match: re.Match[str]) -> Iterator[Token]:
    text, start, end = match.group(), *match.span()
    if match["link"]:
        bare = text.rstrip(_AFTER_LINK)
        yield Token(bare.casefold(), "link", start, start + len(bare))
    elif match["joined"] and not _IS_CODE.search(text.casefold()):
        yield from (_word(word, start) for word in _WORD.finditer(text))
    elif match["joined"]:
        yield from _codes(text, start)
    else:
        yield Token(text, "sign" if match["sign"] else "word", start, end)


def _word(word: re.Match[str], start: int) -> Token:
    form = word.group().casefold()
    kind: Kind = "sign" if form in _SIGN_WORDS else "word"
    return Token(_SIGN_WORDS.get(form, form), kind, start + word.start(), start + word.end())


def _codes(code: str, start: int) -> Iterator[Token]:
    """The tokens of what has a digit in it; `1,2,3` are three."""
    parts = [code] if _IS_ONE_NUMBER.fullmatch(code) else code.split(",")
    for part in parts:
        yield from (Token(form, kind, start, start + len(part)) for form, kind in _forms(part.casefold()))
        start += len(part) + 1


def _forms(code: str) -> list[tuple[str, Kind]]:
    """One spelling of a number, a number with its unit, or an id."""
    if _PLAIN.fullmatch(code):
        return [(code, "number")]
    if ordinal := _ORDINAL.fullmatch(code):
        return [(ordinal[1], "number")]
    if _COMMAS.fullmatch(code):
        return [(code.replace(",", "").replace("'", ""), "number")]
    if _DOTS.fullmatch(code):
        return [(code.replace(".", "").replace(",", "."), "number")]
    if _DECIMAL_COMMA.fullmatch(code):
        return [(code.replace(",", "."), "number")]
    if measure := _WITH_UNIT.fullmatch(code):
        return [*_forms(measure[1]), (measure[2], "unit")]
    return [(code, "code")]
