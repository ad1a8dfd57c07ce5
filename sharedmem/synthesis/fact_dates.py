"""Dates among the tokens of a text: `2024-05-03`, `3.5.2024`, `May 3rd, 2024`, `3 de mayo`, `2024年5月3日`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sharedmem.synthesis.fact_tokens import Token

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


class Day(NamedTuple):
    """A date, or as much of it as was said."""

    year: int | None
    month: int
    day: int | None

    def is_said_by(self, other: Day) -> bool:
        """Whether another date says at least this."""
        return all(mine in {None, theirs} for mine, theirs in zip(self, other, strict=True))


class Dated(NamedTuple):
    """A date, and the tokens that it is made of."""

    first: int
    last: int
    day: Day


def is_of_calendar(form: str) -> bool:
    """Whether a word is the name of a month or of a day of the week."""
    return form in _CALENDAR


def dates_in(text: str, tokens: Sequence[Token]) -> Iterator[Dated]:
    """The dates of a readable text; which of day and month `3/5/2024` means first nobody can tell, so it is none."""
    for place, token in enumerate(tokens):
        if token.kind == "code" and (day := _numeric(token.form)):
            yield Dated(place, place, day)
        elif token.form in _MONTHS:
            yield from _spoken(text, tokens, place)
        elif token.form in _COUNTED[0]:
            yield from _counted(tokens, place)


def _numeric(form: str) -> Day | None:
    if found := _YEAR_FIRST.fullmatch(form):
        return _sound(int(found[1]), int(found[3]), int(found[4]))
    if not (found := _YEAR_LAST.fullmatch(form)):
        return None
    one, two, year = int(found[1]), int(found[3]), int(found[4])
    either = {_sound(year, two, one), _sound(year, one, two)} - {None}
    if found[2] == ".":
        return _sound(year, two, one)
    return either.pop() if len(either) == 1 else None


def _sound(year: int, month: int, day: int) -> Day | None:
    return Day(year, month, day) if 1 <= month <= 12 and 1 <= day <= 31 else None


def _spoken(text: str, tokens: Sequence[Token], place: int) -> Iterator[Dated]:
    first = last = place
    before, after = _before(text, tokens, place), place + 1
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
        yield Dated(first, last, Day(year, _MONTHS[tokens[place].form], day))


def _before(text: str, tokens: Sequence[Token], place: int) -> int | None:
    """Where the day stands, if it stands before the month."""
    at = place - 1
    if at > 0 and tokens[at].form in _OF and _follows(text, tokens, place):
        at -= 1
    is_day = at >= 0 and _follows(text, tokens, at + 1) and _DAY.fullmatch(tokens[at].form)
    return at if is_day else None


def _follows(text: str, tokens: Sequence[Token], place: int) -> bool:
    """Whether there is a token at this place, right behind the one before it."""
    return 0 < place < len(tokens) and bool(_NEAR.fullmatch(text[tokens[place - 1].end : tokens[place].start]))


def _counted(tokens: Sequence[Token], place: int) -> Iterator[Dated]:
    run = tokens[max(place - 1, 0) : place + 5]
    numbers, signs = run[::2], run[1::2]
    is_date = len(run) == 6 and all(sign.form in known for sign, known in zip(signs, _COUNTED, strict=True))
    if is_date and all(number.form.isdecimal() for number in numbers):
        year, month, day = (int(number.form) for number in numbers)
        if sound := _sound(year, month, day):
            yield Dated(place - 1, place + 4, sound)
