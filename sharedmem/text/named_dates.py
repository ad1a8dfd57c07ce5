"""Dates that a query names: `on 7 May 2023`, `in July`, `2023-05-07`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_NUMBERS = {name[:3].lower(): number for number, name in enumerate(MONTHS, 1)}
_ISO = re.compile(r"\b((?:19|20)\d\d)-(\d\d)-(\d\d)\b")
# Without a number beside it, a word must stand before it: May, April and June are more than months.
_SPELLED = re.compile(
    r"""
    (?: \b (?P<lead> in | during | since | until | last | early | late | mid | around ) [\s-]+ )?
    (?: \b (?P<day> \d{1,2} ) (?: st | nd | rd | th )? \s+ (?: of \s+ )? )?
    \b (?P<month> jan(?:uary)? | feb(?:ruary)? | mar(?:ch)? | apr(?:il)? | may | june? | july? | aug(?:ust)?
        | sept?(?:ember)? | oct(?:ober)? | nov(?:ember)? | dec(?:ember)? ) \b \.?
    (?: \s+ (?P<day_behind> \d{1,2} ) (?: st | nd | rd | th )? \b )?
    (?: ,? \s+ (?P<year> (?: 19 | 20 ) \d\d ) \b )?
    """,
    re.IGNORECASE | re.VERBOSE,
)
_ONE_DAY = timedelta(days=1)
# Years 6 and 9987: what lies beyond has a clock that nobody trusts, and must not break the calendar.
_EARLIEST_MS, _LATEST_MS = -62_000_000_000_000, 253_000_000_000_000


class NamedDate(NamedTuple):
    """A date, as far as it is told."""

    year: int | None
    month: int
    day: int | None

    def covers(self, at: datetime) -> bool:
        """Whether this moment may be meant; of a day also those beside it, as time zones differ."""
        if self.day is None:
            return at.month == self.month and self.year in {None, at.year}
        return any(
            (day.month, day.day) == (self.month, self.day) and self.year in {None, day.year}
            for day in (at, at - _ONE_DAY, at + _ONE_DAY)
        )


def find_named_dates(query: str) -> tuple[NamedDate, ...]:
    """The days and months that a query names, in English or as ISO dates."""
    found = [NamedDate(int(year), int(month), int(day)) for year, month, day in _ISO.findall(query)]
    for match in _SPELLED.finditer(query):
        day = match["day"] or match["day_behind"]
        if day or match["year"] or match["lead"]:
            year = int(match["year"]) if match["year"] else None
            found.append(NamedDate(year, _NUMBERS[match["month"][:3].lower()], int(day) if day else None))
    return tuple(found)


def datetime_from_ms(at_ms: int) -> datetime:
    """The moment of milliseconds since 1970."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=min(max(at_ms, _EARLIEST_MS), _LATEST_MS))
