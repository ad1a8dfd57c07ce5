"""Find dates in facts that are compared and in queries. `graph.extraction.dates` reads prose such as `last week`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from sharedmem.text.fact_tokens import FactToken, fact_tokens, plain_characters
from sharedmem.text.vocabulary import MONTH_LEADS, MONTHS

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
