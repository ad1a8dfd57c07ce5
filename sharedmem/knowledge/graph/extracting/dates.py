"""Times that a text speaks of, as moments: "since March", "two weeks ago", "from June to August".

A pattern of our own proposes where a time may stand; only those words are shown to the library that reads them, so
that a text without times costs next to nothing. All moments have the zone of the episode.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from importlib.util import find_spec
from typing import Literal, NamedTuple, cast

from sharedmem.errors import InvalidError, UnsupportedError
from sharedmem.knowledge.graph.extracting.date_words import DatePatterns, date_patterns
from sharedmem.knowledge.graph.times import stamp_of

Role = Literal["since", "until", "at", "between"]
Granularity = Literal["moment", "day", "week", "month", "quarter", "year"]
_Preference = Literal["past", "future", "current_period"]

REMEDY = "pip install 'sharedmem-hub[graph]'"
_CACHED = 4_096
_QUARTER = re.compile(r"q([1-4])\s(\d{4})", re.IGNORECASE)
_YEAR_AT_END = re.compile(r"(?:1\d|20|21)\d\d$")
_BESIDE = 24
"""Characters before a date in which a "not" may stand."""


class Dated(NamedTuple):
    """A time that a text speaks of."""

    span: tuple[int, int]
    """Where it stands, with the word before it: "since March"."""
    start: datetime | None
    """None for `until`."""
    end: datetime | None
    """None for `since`; of `at` the end of the day, month or year."""
    role: Role
    granularity: Granularity


class Period(NamedTuple):
    """A day, a month: from its first instant until before the next one's."""

    start: datetime
    end: datetime
    granularity: Granularity


class _Parse(NamedTuple):
    moment: datetime
    period: str


class DateReader:
    """Reads times in texts of some languages.

    Args:
        languages: of `en`, `de`, `fr`; the first one decides what 3/5/2024 is.

    Raises:
        UnsupportedError: dateparser is not installed.
    """

    def __init__(self, languages: Sequence[str] = ("en",)) -> None:
        if find_spec("dateparser") is None:
            raise UnsupportedError("reading dates in texts", REMEDY)
        self._languages = list(languages)
        self._patterns = _patterns(tuple(languages))
        self._parsed = lru_cache(_CACHED)(self._parse)
        # The words of a language are loaded with its first date; whoever opens a reader waits for that, not a text.
        self._parsed("1 may 2020", datetime(2020, 1, 1), "past")  # noqa: DTZ001  # naive inside, as dateparser wants

    def read(self, text: str, moment: datetime) -> list[Dated]:
        """The times in a text, in its order. What only looks like one is left out.

        Args:
            text: about one sentence; a verb of the future in it makes "in June" the next one.
            moment: when it was said, with a zone.
        """
        found = []
        for match in self._patterns.spans.finditer(text):
            if self._patterns.no_before.search(text, max(0, match.start() - _BESIDE), match.start()):
                continue
            try:
                dated = self._dated(match, moment)
            except (OverflowError, ValueError, InvalidError):
                continue  # the year 99999, the end of 9999: no moment that could be kept
            if dated is not None:
                found.append(dated)
        return found

    def _dated(self, match: re.Match[str], moment: datetime) -> Dated | None:
        patterns, text = self._patterns, match.string
        looking = _Looking(match, moment, bool(patterns.future.search(text)), bool(patterns.past.search(text)))
        if match["first"]:
            return self._between(looking)
        role = _role(match)
        if role is None and not _stands_alone(match):
            return None
        ahead = looking.future or (role == "until" and not looking.past)
        period = self._edge(looking, "", "future" if ahead else "past")
        return None if period is None else _placed(match, period, role or "at", looking.moment)

    def _between(self, looking: _Looking) -> Dated | None:
        match = looking.match
        last = self._edge(looking, "2", "future" if looking.future else "past")
        if last is None:
            return None
        first = self._first(looking, last)
        if first is None:
            return None
        if last.end <= first.start:  # "from November to February" goes over the new year
            last = self._edge(looking._replace(moment=_zoned(first.start, looking.moment)), "2", "future")
        if last is None or last.end <= first.start:
            return None
        start, end = _zoned(first.start, looking.moment), _zoned(last.end, looking.moment)
        return Dated(match.span(), start, end, "between", first.granularity)

    def _first(self, looking: _Looking, last: Period) -> Period | None:
        match = looking.match
        if match["day1"]:
            day = last.start.replace(day=int(match["day1"]))
            return Period(day, day + timedelta(days=1), "day")
        said = _YEAR_AT_END.search(match["whole2"] or "")
        named = match["name1"] or match["whole1"]
        if said and named and not re.search(r"\d{4}", named):
            parse = self._parsed(f"{_bare(named)} {said[0]}", last.start, "past")
            return None if parse is None else _period(parse, exact=False)
        return self._edge(looking, "1", "future" if looking.future else "past")

    def _edge(self, looking: _Looking, which: str, preference: _Preference) -> Period | None:
        """What a date means, of which the end, middle or beginning may be meant."""
        match = looking.match
        period = self._period(looking, which, preference)
        if period is None:
            return None
        if match[f"ending{which}"]:
            return period._replace(start=period.end - timedelta(days=1))
        if match[f"middle{which}"]:
            half = _floored(period.start + (period.end - period.start) / 2, "day")
            return period._replace(start=half)
        return period

    def _period(self, looking: _Looking, which: str, preference: _Preference) -> Period | None:
        match, base = looking.match, looking.moment.replace(tzinfo=None)
        if unit := match[f"unit{which}"]:
            return _around(base, cast("Granularity", unit.lower()), 0)
        if year := match[f"year{which}"]:
            return _around(base.replace(year=int(year), month=1, day=1), "year", 0)
        if name := match[f"name{which}"]:
            parse = self._parsed(_bare(name), _floored(base, "day"), _wish(match, which) or preference)
            return None if parse is None else _period(parse, exact=False)
        return self._whole(match[f"whole{which}"], looking.moment, preference)

    def _whole(self, text: str, moment: datetime, preference: _Preference) -> Period | None:
        base = moment.replace(tzinfo=None)
        if text[:4].isdigit():
            return _iso(text, moment)
        if quarter := _QUARTER.fullmatch(text):
            return _around(datetime(int(quarter[2]), 3 * int(quarter[1]) - 2, 1), "quarter", 0)  # noqa: DTZ001  # zoned later
        if steps := _counted(text, base):
            return steps
        exact = bool(self._patterns.exact.search(text))
        parse = self._parsed(_bare(text), base if exact else _floored(base, "day"), preference)
        return None if parse is None else _period(parse, exact=exact)

    def _parse(self, text: str, base: datetime, preference: _Preference) -> _Parse | None:
        from dateparser.date import DateDataParser  # noqa: PLC0415  # an extra, and slow to import

        numbers_dotted = re.fullmatch(r"[\d.]+", text) is not None
        settings = {
            "RELATIVE_BASE": base,
            "PREFER_DATES_FROM": preference,
            "PREFER_DAY_OF_MONTH": "first",
            "PREFER_MONTH_OF_YEAR": "first",
            "RETURN_AS_TIMEZONE_AWARE": False,
            "DATE_ORDER": "MDY" if self._languages[0] == "en" and not numbers_dotted else "DMY",
        }
        data = DateDataParser(languages=self._languages, settings=settings).get_date_data(text)
        return None if data.date_obj is None else _Parse(data.date_obj, data.period or "day")


class _Looking(NamedTuple):
    match: re.Match[str]
    moment: datetime
    future: bool
    past: bool


@lru_cache(8)
def _patterns(languages: tuple[str, ...]) -> DatePatterns:
    return date_patterns(languages)


def _role(match: re.Match[str]) -> Literal["since", "until", "after", "at"] | None:
    for role in ("since", "until", "after", "at"):
        if match[role]:
            return role
    return None


def _stands_alone(match: re.Match[str]) -> bool:
    """Whether it is a date without a word like "since" or "in" before it: "May" and "2024" may be something else."""
    named_day = match["name"] and (match["name"].lower().endswith(("day", "tag", "woch", "di", "che")))
    return bool(match["whole"] or named_day or _wish(match, "") or any(match[edge] for edge in _EDGES))


_EXCLUSIVE = frozenset({"before", "avant", "avant le"})
_EDGES = ("ending", "middle", "opening")
_WISHES: tuple[tuple[str, _Preference], ...] = (("last", "past"), ("following", "future"), ("this", "current_period"))


def _wish(match: re.Match[str], which: str) -> _Preference | None:
    return next((wish for name, wish in _WISHES if match[f"{name}{which}"]), None)


def _placed(match: re.Match[str], period: Period, role: str, moment: datetime) -> Dated:
    start, end = _zoned(period.start, moment), _zoned(period.end, moment)
    if role == "after":
        return Dated(match.span(), end, None, "since", period.granularity)
    if role == "since":
        return Dated(match.span(), end if match["ending"] else start, None, "since", period.granularity)
    if role == "at":
        return Dated(match.span(), start, end, "at", period.granularity)
    # A day is meant with all of it, and so is "the end of March"; "until March" is until it begins.
    whole = (period.granularity in {"day", "week"} or match["ending"]) and match["until"].lower() not in _EXCLUSIVE
    return Dated(match.span(), None, end if whole else start, "until", period.granularity)


def _zoned(naive: datetime, moment: datetime) -> datetime:
    """With the zone of the episode, if it is a moment that can be kept."""
    zoned = naive if naive.tzinfo is not None else naive.replace(tzinfo=moment.tzinfo)
    stamp_of("date", zoned)
    return zoned


def _bare(text: str) -> str:
    return " ".join(text.lower().replace(" of ", " ").split())


def _iso(text: str, moment: datetime) -> Period:
    said = datetime.fromisoformat(text.upper())
    if said.tzinfo is not None:
        said = said.astimezone(moment.tzinfo)
    return _period(_Parse(said.replace(tzinfo=None), "day"), exact=len(text) > 10)


def _period(parse: _Parse, *, exact: bool) -> Period:
    if exact:
        return Period(parse.moment, parse.moment, "moment")
    granularity = cast("Granularity", parse.period if parse.period in {"week", "month", "year"} else "day")
    return _around(parse.moment, granularity, 0)


_COUNTED = re.compile(
    r"(last|past|previous|this|current|next|coming)\s(week|month|quarter|year|weekend)", re.IGNORECASE
)
_STEPS = {"last": -1, "past": -1, "previous": -1, "this": 0, "current": 0, "next": 1, "coming": 1}


def _counted(text: str, base: datetime) -> Period | None:
    """What the calendar alone tells, such as "last quarter"."""
    match = _COUNTED.fullmatch(text)
    if match is None:
        return None
    steps, unit = _STEPS[match[1].lower()], match[2].lower()
    if unit != "weekend":
        return _around(base, cast("Granularity", unit), steps)
    week = _around(base, "week", steps)
    return Period(week.start + timedelta(days=5), week.end, "day")


def _around(moment: datetime, granularity: Granularity, steps: int) -> Period:
    """The day, week, month, quarter or year of a moment, or one some steps away."""
    start = _stepped(_floored(moment, granularity), granularity, steps)
    return Period(start, _stepped(start, granularity, 1), granularity)


def _floored(moment: datetime, granularity: Granularity) -> datetime:
    day = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    if granularity == "week":
        return day - timedelta(days=day.weekday())
    if granularity == "month":
        return day.replace(day=1)
    if granularity == "quarter":
        return day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1)
    return day.replace(month=1, day=1) if granularity == "year" else day


def _stepped(start: datetime, granularity: Granularity, steps: int) -> datetime:
    days = {"day": 1, "week": 7}.get(granularity)
    if days is not None:
        return start + timedelta(days=days * steps)
    months = start.year * 12 + start.month - 1 + steps * {"month": 1, "quarter": 3, "year": 12}[granularity]
    return start.replace(year=months // 12, month=months % 12 + 1)
