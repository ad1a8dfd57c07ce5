"""Normalize a text to tokens, numbers and dates by which facts of two texts are compared."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

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


class _LetterTable(dict[int, str]):
    """What stands for a letter when texts are compared, found out when it is first met."""

    def __missing__(self, codepoint: int) -> str:
        letter = chr(codepoint)
        self[codepoint] = read = _normalize_letter(letter, unicodedata.category(letter))
        return read


def normalize_text(text: str) -> str:
    """A text in its compatible form, with ASCII digits and hyphens, and nothing invisible."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text).translate(_LETTERS)


def fact_tokens(text: str) -> list[FactToken]:
    """The tokens of a readable text. Linear in its length."""
    return [token for match in _TOKEN.finditer(text) for token in _match_tokens(match)]


def _normalize_letter(letter: str, category: str) -> str:
    if category == "Nd":
        return str(unicodedata.decimal(letter))
    if category == "Pd" or letter == "\N{MINUS SIGN}":
        return " - " if letter in "\N{EM DASH}\N{HORIZONTAL BAR}\N{TWO-EM DASH}\N{THREE-EM DASH}" else "-"
    if category == "Cf":
        return ""
    return {"\N{ARABIC DECIMAL SEPARATOR}": ".", "\N{ARABIC THOUSANDS SEPARATOR}": ",", _CURLED: "'"}.get(
        letter, letter
    )


_LETTERS = _LetterTable()


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
        return [*_normalize_code(measure[1]), (measure[2], "unit")]
    return [(code, "code")]


_YEAR_FIRST = re.compile(r"(\d{4})([-/.])(\d{1,2})\2(\d{1,2})")
_YEAR_LAST = re.compile(r"(\d{1,2})([-/.])(\d{1,2})\2(\d{4})")
_YEAR = re.compile(r"[12]\d{3}")
_DAY = re.compile(r"0?[1-9]|[12]\d|3[01]")
# No line ends within a date.
_NEAR = re.compile(r"[ \t,.]{0,3}")
_LANGUAGES = (
    "january february march april may june july august september october november december",
    "jan feb mar apr may jun jul aug sep oct nov dec",
    "januar februar märz april mai juni juli august september oktober november dezember",
    "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
)
_MONTHS = {"sept": 9} | {name: number for names in _LANGUAGES for number, name in enumerate(names.split(), 1)}
_OF = frozenset({"of", "de"})
_COUNTED = ("年년", "月월", "日일号")
"""What stands behind year, month and day in Chinese, Japanese and Korean."""
_CALENDAR = _MONTHS.keys() | {"monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"}


class PartialDate(NamedTuple):
    """A date, or as much of it as was said."""

    year: int | None
    month: int
    day: int | None

    def is_implied_by(self, other: PartialDate) -> bool:
        """Whether another date says at least this."""
        return all(mine in {None, theirs} for mine, theirs in zip(self, other, strict=True))


class DateTokens(NamedTuple):
    """A date, and the tokens that it is made of."""

    first: int
    last: int
    day: PartialDate


def is_calendar_word(form: str) -> bool:
    """Whether a word is the name of a month or of a day of the week."""
    return form in _CALENDAR


def find_dates(text: str, tokens: Sequence[FactToken]) -> Iterator[DateTokens]:
    """The dates of a readable text; which of day and month `3/5/2024` means first nobody can tell, so it is none."""
    for place, token in enumerate(tokens):
        if token.kind == "code" and (day := _numeric(token.form)):
            yield DateTokens(place, place, day)
        elif token.form in _MONTHS:
            yield from _date_with_month_name(text, tokens, place)
        elif token.form in _COUNTED[0]:
            yield from _date_with_counters(tokens, place)


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
        yield DateTokens(first, last, PartialDate(year, _MONTHS[tokens[place].form], day))


def _day_before_month(text: str, tokens: Sequence[FactToken], place: int) -> int | None:
    """Where the day stands, if it stands before the month."""
    at = place - 1
    if at > 0 and tokens[at].form in _OF and _follows(text, tokens, place):
        at -= 1
    is_day = at >= 0 and _follows(text, tokens, at + 1) and _DAY.fullmatch(tokens[at].form)
    return at if is_day else None


def _follows(text: str, tokens: Sequence[FactToken], place: int) -> bool:
    """Whether there is a token at this place, right behind the one before it."""
    return 0 < place < len(tokens) and bool(_NEAR.fullmatch(text[tokens[place - 1].end : tokens[place].start]))


def _date_with_counters(tokens: Sequence[FactToken], place: int) -> Iterator[DateTokens]:
    run = tokens[max(place - 1, 0) : place + 5]
    numbers, signs = run[::2], run[1::2]
    is_date = len(run) == 6 and all(sign.form in known for sign, known in zip(signs, _COUNTED, strict=True))
    if is_date and all(number.form.isdecimal() for number in numbers):
        year, month, day = (int(number.form) for number in numbers)
        if sound := _valid_date(year, month, day):
            yield DateTokens(place - 1, place + 4, sound)
