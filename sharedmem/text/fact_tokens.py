"""Split a text into tokens to compare the facts of two texts: words, numbers with units, ids, links, dates.

Blanks always separate tokens, so a text has the same tokens wherever it is quoted whole. Search terms (`text.analysis`)
do not fit: they drop stop words and endings, and a stem is not a fact. Dates are found in facts and in queries;
`graph.extraction.dates` reads prose such as `last week`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple

from sharedmem.text.analysis import WORD
from sharedmem.text.vocabulary import CURRENCIES, MONTH_LEADS, MONTHS

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


# -- dates ---------------------------------------------------------------------------------------


_YEAR_FIRST = re.compile(r"(\d{4})([-/.])(\d{1,2})\2(\d{1,2})")
_YEAR_LAST = re.compile(r"(\d{1,2})([-/.])(\d{1,2})\2(\d{4})")
_YEAR = re.compile(r"[12]\d{3}")
_DAY = re.compile(r"0?[1-9]|[12]\d|3[01]")
# No line ends within a date.
_NEAR = re.compile(r"[ \t,.]{0,3}")
_OF = frozenset({"of", "de"})
_COUNTED = ("年년", "月월", "日일号")
"""The characters after year, month and day in Chinese, Japanese and Korean."""

_ONE_DAY = timedelta(days=1)
# Years 6 and 9987: a moment outside of these is from a wrong clock, and must not break the calendar.
_EARLIEST_MS, _LATEST_MS = -62_000_000_000_000, 253_000_000_000_000
_MAY_HAVE_DATE = re.compile(rf"\d\D?\d\D?\d\D?\d|\d\s*[{''.join(_COUNTED)}]|\b(?:{'|'.join(MONTHS)})\b", re.IGNORECASE)

# In `April 6-7`, 6 is the day, and not a number of its own.
_RANGE = re.compile(r"(?<![\d-])(\d{1,2})-(\d{1,2})(?![\d-])")


class PartialDate(NamedTuple):
    """A date, or the part of it that a text names."""

    year: int | None
    month: int
    day: int | None

    def is_implied_by(self, other: PartialDate) -> bool:
        """Return whether another date contains at least these parts."""
        return all(mine in {None, theirs} for mine, theirs in zip(self, other, strict=True))

    def covers(self, at: datetime) -> bool:
        """Return whether a moment may be within it; for a day also on the days beside it, as time zones differ."""
        if self.day is None:
            return at.month == self.month and self.year in {None, at.year}
        return any(
            (day.month, day.day) == (self.month, self.day) and self.year in {None, day.year}
            for day in (at, at - _ONE_DAY, at + _ONE_DAY)
        )


class DateTokens(NamedTuple):
    """A date, and the first and last of its tokens."""

    first: int
    last: int
    day: PartialDate


def find_dates(text: str, tokens: Sequence[FactToken]) -> Iterator[DateTokens]:
    """Find the dates of a text that `plain_characters` prepared: `2024-05-03`, `13/5/2024`, `3 May`, `2024年5月3日`.

    `3/5/2024` may be in March or in May, so it is not a date.
    """
    for place, token in enumerate(tokens):
        if token.kind == "code" and (day := _numeric(token.form)):
            yield DateTokens(place, place, day)
        elif token.form in MONTHS:
            yield from _date_with_month_name(text, tokens, place)
        elif token.form in _COUNTED[0]:
            yield from _date_with_counters(tokens, place)


def find_query_dates(query: str) -> tuple[PartialDate, ...]:
    """Find the dates that a query names.

    A month alone counts only after a word such as `in`: May and June are names too.
    """
    if not _MAY_HAVE_DATE.search(query):
        return ()
    text = _RANGE.sub(r"\1 - \2", plain_characters(query))
    tokens = fact_tokens(text)
    dated = [
        date for date in find_dates(text, tokens) if date.day.day is not None or not _is_after_number(tokens, date)
    ]
    found = [date.day for date in dated]
    read = {place for date in dated for place in range(date.first, date.last + 1)}
    for place, token in enumerate(tokens[1:], 1):
        if place not in read and tokens[place - 1].form in MONTH_LEADS.get(token.form, ()):
            found.append(PartialDate(None, MONTHS[token.form], None))
    return tuple(found)


def _is_after_number(tokens: Sequence[FactToken], date: DateTokens) -> bool:
    """Return whether it follows a short number that is not a day: `99 May 2023`."""
    before = tokens[date.first - 1].form if date.first else ""
    return before.isdecimal() and len(before) <= 2


def datetime_from_ms(at_ms: int) -> datetime:
    """Return the moment of milliseconds since 1970."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=min(max(at_ms, _EARLIEST_MS), _LATEST_MS))


def _numeric(form: str) -> PartialDate | None:
    if found := _YEAR_FIRST.fullmatch(form):
        return _valid_date(int(found[1]), int(found[3]), int(found[4]))
    if not (found := _YEAR_LAST.fullmatch(form)):
        return None
    one, two, year = int(found[1]), int(found[3]), int(found[4])
    either = {_valid_date(year, two, one), _valid_date(year, one, two)} - {None}
    if found[2] == ".":
        return _valid_date(year, two, one)
    return either.pop() if len(either) == 1 else None


def _valid_date(year: int, month: int, day: int) -> PartialDate | None:
    return PartialDate(year, month, day) if 1 <= month <= 12 and 1 <= day <= 31 else None


def _date_with_month_name(text: str, tokens: Sequence[FactToken], place: int) -> Iterator[DateTokens]:
    first = last = place
    before, after = _day_before_month(text, tokens, place), place + 1
    day = None
    if before is not None:
        first, day = before, int(tokens[before].form)
    elif _follows(text, tokens, after) and _DAY.fullmatch(tokens[after].form):
        last, day = after, int(tokens[after].form)
    year_at = last + 1
    if _follows(text, tokens, year_at) and tokens[year_at].form in _OF:
        year_at += 1
    year = None
    if _follows(text, tokens, year_at) and _YEAR.fullmatch(tokens[year_at].form):
        last, year = year_at, int(tokens[year_at].form)
    if day or year:
        yield DateTokens(first, last, PartialDate(year, MONTHS[tokens[place].form], day))


def _day_before_month(text: str, tokens: Sequence[FactToken], place: int) -> int | None:
    """Return the place of a day before the month; None without one."""
    at = place - 1
    if at > 0 and tokens[at].form in _OF and _follows(text, tokens, place):
        at -= 1
    is_day = at >= 0 and _follows(text, tokens, at + 1) and _DAY.fullmatch(tokens[at].form)
    return at if is_day else None


def _follows(text: str, tokens: Sequence[FactToken], place: int) -> bool:
    """Return whether a token at this place follows directly after the one before it."""
    return 0 < place < len(tokens) and bool(_NEAR.fullmatch(text[tokens[place - 1].end : tokens[place].start]))


def _date_with_counters(tokens: Sequence[FactToken], place: int) -> Iterator[DateTokens]:
    run = tokens[max(place - 1, 0) : place + 5]
    numbers, signs = run[::2], run[1::2]
    is_date = len(run) == 6 and all(sign.form in known for sign, known in zip(signs, _COUNTED, strict=True))
    if is_date and all(number.form.isdecimal() for number in numbers):
        year, month, day = (int(number.form) for number in numbers)
        if sound := _valid_date(year, month, day):
            yield DateTokens(place - 1, place + 4, sound)
