"""Normalize texts and numbers before they are compared, stored as a hash or searched."""

from __future__ import annotations

import re
import unicodedata

# -- texts ------------------------------------------------------------------------------------


def normalize_text(text: str) -> str:
    """Return a text in compatible form (NFKC), without case and with single blanks.

    Hashes of memories and keys of the semantic cache are made of it: another result means that they are not found.
    """
    if text.isascii():
        return " ".join(text.lower().split())
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def fold(text: str) -> str:
    """Return a text in compatible form without case; unlike `normalize_text` in normal form again after that."""
    # Folding the case does not always leave the normal form: U+0390 becomes three characters.
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


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

# -- numbers ----------------------------------------------------------------------------------

GROUPED_NUMBER = (
    r"-?\d{1,3}(?:,\d{2,3})*,\d{3}(?:\.\d+)?|-?\d{1,3}(?:'\d{3})+(?:\.\d+)?"
    r"|-?\d{1,3}(?:\.\d{3})+,\d+|-?\d{1,3}(?:\.\d{3}){2,}"
)
"""A number with separators of thousands: `1,000.5`, `12,34,567`, `1'000`, `1.000,5`, `1.000.000`."""
DECIMAL_COMMA = r"-?\d+,\d+"
_PLAIN = re.compile(r"-?\d+(?:\.\d+)?")
_ORDINAL = re.compile(r"(\d+)(?:st|nd|rd|th)")
_GROUPED = re.compile(GROUPED_NUMBER)
_DOTS = re.compile(r"-?\d{1,3}(?:\.\d{3})+(?:,\d+)?")
_DECIMAL = re.compile(DECIMAL_COMMA)


def normalize_number(text: str) -> str | None:
    """Return one spelling of a number: `1,000` is `1000`, `2,5` is `2.5`, `4th` is `4`; None if it is no single number.

    Args:
        text: with small letters and ASCII digits.
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
