"""Read the dates and periods that a text mentions, in English, German and French.

Own patterns propose where a date may be. Only those words are passed to the date library, so that
a text without dates costs next to nothing. All moments have the time zone of the episode.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from importlib.util import find_spec
from typing import Literal, NamedTuple, cast

from sharedmem.errors import InvalidError, UnsupportedError
from sharedmem.graph.records import to_stamp
from sharedmem.text.vocabulary import month_alternatives, weekday_alternatives


class DateWords(NamedTuple):
    """Patterns of one language, each without groups of its own."""

    since: str
    until: str
    after: str
    at: str
    first: str
    """Before the first of two dates: `from`."""
    second: str
    """Between the two."""
    ending: str
    """`the end of`."""
    middle: str
    opening: str
    whole: str
    """Dates that are certain without a word before them."""
    weekday: str
    month: str
    last: str
    following: str
    this: str
    exact: str
    """In a date that has an hour."""
    future: str
    """In a sentence about the future."""
    past: str
    """In a sentence about something that lasted, where an "until" is in the past."""
    no: str


_DAY = r"(?:0?[1-9]|[12]\d|3[01])"
_YEAR = r"(?:1\d|20|21)\d\d"
_CLOCK = r"(?:,?\s(?:at\s)?(?:[01]?\d|2[0-3])(?::[0-5]\d(?:\s?[ap]m)?|\s?[ap]m)\b)?"

_MONTH_EN = rf"(?:{month_alternatives('en')})\b\.?"
_WEEKDAY_EN = rf"(?:{weekday_alternatives('en')})"
_NUMBER_EN = r"(?:\d{1,3}|an?|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)"
_UNIT_EN = r"(?:second|minute|hour|day|week|fortnight|month|year|decade)s?"
_ORDINAL_EN = rf"(?:the\s)?{_DAY}(?:st|nd|rd|th)?"

ENGLISH = DateWords(
    since=r"(?:ever\s)?since|from|starting(?:\s(?:from|on|in))?|as\s(?:of|from)|(?:with\s)?effect(?:ive)?(?:\sfrom)?",
    until=r"until|till?|by|up\sto|through|before",
    after=r"after",
    at=r"on|in|at|during|around|back\sin|early\sin|late\sin",
    first=r"from|between",
    second=r"to|and|until|till|through|-|\u2013",
    ending=r"(?:the\s)?end\sof\s(?:the\s)?|late\s",
    middle=r"(?:the\s)?middle\sof\s(?:the\s)?|mid[- ]",
    opening=r"(?:the\s)?(?:beginning|start)\sof\s(?:the\s)?|early\s",
    whole="|".join(
        (
            rf"{_ORDINAL_EN}(?:\sof)?\s{_MONTH_EN}(?:,?\s{_YEAR})?{_CLOCK}",
            rf"{_MONTH_EN}\s{_ORDINAL_EN}\b(?:,?\s{_YEAR})?{_CLOCK}",
            rf"{_MONTH_EN},?\s(?:of\s)?{_YEAR}",
            r"(?:last|past|previous|next|coming|this|current)\s(?:week|month|quarter|year|weekend)",
            r"the\sday\s(?:before\syesterday|after\stomorrow)|yesterday|today|tonight|tomorrow",
            rf"{_NUMBER_EN}\s{_UNIT_EN}\sago|in\s{_NUMBER_EN}\s{_UNIT_EN}(?!\sago)",
        )
    ),
    weekday=_WEEKDAY_EN,
    month=_MONTH_EN,
    last=r"last|past|previous",
    following=r"next|coming",
    this=r"this|current",
    exact=r"second|minute|hour|:|\d\s?[ap]m\b",
    future=r"will|\w{1,5}'ll|shall|going\sto|moving|starting|plans?|planning|next|tomorrow|soon",
    past=r"lived|worked|stayed|served|resided|used\sto|had|belonged",
    no=r"not|never|rather\sthan|instead\sof",
)

_MONTH_DE = rf"(?:{month_alternatives('de')})\b\.?"
_WEEKDAY_DE = rf"(?:{weekday_alternatives('de')})"
_NUMBER_DE = r"(?:\d{1,3}|eine[mnr]?|zwei|drei|vier|f\u00fcnf|sechs|sieben|acht|neun|zehn|elf|zw\u00f6lf)"
_UNIT_DE = r"(?:sekunden?|minuten?|stunden?|tag(?:en?)?|wochen?|monat(?:en?)?|jahr(?:en?)?)"

GERMAN = DateWords(
    since=r"seit(?:\sdem)?|ab(?:\sdem)?|vom|von",
    until=r"bis(?:\s(?:zum|zu))?",
    after=r"nach(?:\sdem)?",
    at=r"am|im|in|um",
    first=r"vom|von|zwischen(?:\sdem)?",
    second=r"bis(?:\szum)?|und(?:\sdem)?|-|\u2013",
    ending=r"ende\s(?:des\s)?",
    middle=r"mitte\s(?:des\s)?",
    opening=r"(?:anfang|beginn)\s(?:des\s)?",
    whole="|".join(
        (
            rf"(?:dem\s|den\s)?{_DAY}\.\s?{_MONTH_DE}(?:\s{_YEAR})?",
            rf"{_MONTH_DE}\s{_YEAR}",
            r"(?:letzte|vorige|n\u00e4chste|kommende|diese)[mnrs]?\s(?:woche|monat|jahr)",
            r"vorgestern|gestern|heute|morgen|\u00fcbermorgen",
            rf"(?:vor|in)\s{_NUMBER_DE}\s{_UNIT_DE}",
        )
    ),
    weekday=_WEEKDAY_DE,
    month=_MONTH_DE,
    last=r"letzte[mnrs]?|vorige[mnrs]?",
    following=r"n\u00e4chste[mnrs]?|kommende[mnrs]?",
    this=r"diese[mnrs]?",
    exact=r"sekunde|minute|stunde|:",
    future=r"werden?|wirst|wird|ziehe|morgen|bald|n\u00e4chste[mnrs]?",
    past=r"wohnten?|lebten?|arbeiteten?|blieb(?:en)?|hatten?|gewohnt|gelebt|gearbeitet",
    no=r"nicht|statt",
)

_MONTH_FR = rf"(?:{month_alternatives('fr')})\b"
_WEEKDAY_FR = rf"(?:{weekday_alternatives('fr')})"
_NUMBER_FR = r"(?:\d{1,3}|une?|deux|trois|quatre|cinq|six|sept|huit|neuf|dix|onze|douze)"
_UNIT_FR = r"(?:secondes?|minutes?|heures?|jours?|semaines?|mois|ans?|ann\u00e9es?)"

FRENCH = DateWords(
    since=r"depuis(?:\sle)?|d\u00e8s(?:\sle)?|\u00e0\s(?:partir|compter)\sd[eu]",
    until=r"jusqu'(?:\u00e0|au|en)|avant(?:\sle)?",
    after=r"apr\u00e8s(?:\sle)?",
    at=r"en|le|au",
    first=r"du|de|entre(?:\sle)?",
    second=r"au|\u00e0|et(?:\sle)?|-|\u2013",
    ending=r"(?:la\s)?fin\s(?:de\s|du\s)?",
    middle=r"mi-",
    opening=r"(?:le\s)?d\u00e9but\s(?:de\s|du\s)?",
    whole="|".join(
        (
            rf"(?:le\s)?(?:1er|{_DAY})\s{_MONTH_FR}(?:\s{_YEAR})?",
            rf"{_MONTH_FR}\s{_YEAR}",
            r"(?:la\ssemaine|le\smois|l'ann\u00e9e)\s(?:derni\u00e8re?|dernier|prochaine?)",
            r"avant-hier|hier|aujourd'hui|apr\u00e8s-demain|demain",
            rf"(?:il\sy\sa|dans)\s{_NUMBER_FR}\s{_UNIT_FR}",
        )
    ),
    weekday=_WEEKDAY_FR,
    month=_MONTH_FR,
    last=r"(?!)",
    following=r"(?!)",
    this=r"(?!)",
    exact=r"seconde|minute|heure|:",
    future=r"vais|va|demain|bient\u00f4t|prochaine?",
    past=r"\w{2,20}(?:ait|aient)|habit\u00e9|v\u00e9cu|travaill\u00e9",
    no=r"pas",
)

LANGUAGES = {"en": ENGLISH, "de": GERMAN, "fr": FRENCH}

_EVERYWHERE = "|".join(
    (
        r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?:Z|[+-]\d\d:?\d\d)?)?\b(?![-/]\d)",
        rf"{_DAY}[./](?:0?[1-9]|1[0-2]|[12]\d|3[01])[./]{_YEAR}\b(?![./]\d)",
        rf"q[1-4]\s{_YEAR}",
    )
)
_ON_ITS_OWN = rf"{_YEAR}\b(?![-/.,:%]?\d|[-/]\w)"


class DatePatterns(NamedTuple):
    """The patterns of some languages together."""

    spans: re.Pattern[str]
    """Groups: role (since, until, after, at, first), edge (ending, middle, opening), side, name, whole, year; and of a
    second date the same with a `2`."""
    exact: re.Pattern[str]
    future: re.Pattern[str]
    past: re.Pattern[str]
    no_before: re.Pattern[str]


def date_patterns(languages: Sequence[str]) -> DatePatterns:
    """Return the patterns for texts in these languages."""
    words = [LANGUAGES[language] for language in languages]

    def either(field: str) -> str:
        return "|".join(getattr(each, field) for each in words)

    def date(suffix: str) -> str:
        sides = "|".join(f"(?P<{side}{suffix}>(?:{either(side)}))\\s" for side in ("last", "following", "this"))
        edges = "|".join(f"(?P<{edge}{suffix}>(?:{either(edge)}))" for edge in ("ending", "middle", "opening"))
        return (
            rf"(?:{edges})?(?:(?P<whole{suffix}>{either('whole')}|{_EVERYWHERE})"
            rf"|(?:{sides})?(?P<name{suffix}>{either('weekday')}|{either('month')})"
            rf"|(?P<year{suffix}>{_ON_ITS_OWN})|(?P<unit{suffix}>week|month|quarter|year))(?!\w|,?\s\d{{5}})"
        )

    roles = "|".join(f"(?P<{role}>(?:{either(role)}))\\s" for role in ("since", "until", "after", "at"))
    two = rf"(?P<first>(?:{either('first')}))\s(?:{date('1')}|(?P<day1>{_DAY}))\s?(?:{either('second')})\s?{date('2')}"
    return DatePatterns(
        re.compile(rf"(?<![\w.#$\u20ac/-])(?:{two}|(?:{roles})?{date('')})", re.IGNORECASE),
        re.compile(either("exact"), re.IGNORECASE),
        re.compile(rf"(?<!\w)(?:{either('future')})(?!\w)", re.IGNORECASE),
        re.compile(rf"(?<!\w)(?:{either('past')})(?!\w)", re.IGNORECASE),
        re.compile(rf"(?<!\w)(?:{either('no')})\s*$", re.IGNORECASE),
    )


Role = Literal["since", "until", "at", "between"]
Granularity = Literal["moment", "day", "week", "month", "quarter", "year"]
_Preference = Literal["past", "future", "current_period"]

REMEDY = "pip install 'sharedmem-hub[graph]'"
_CACHED = 4_096
_QUARTER = re.compile(r"q([1-4])\s(\d{4})", re.IGNORECASE)
_YEAR_AT_END = re.compile(r"(?:1\d|20|21)\d\d$")
_BESIDE = 24
"""Characters before a date in which a "not" may be."""


class DateMention(NamedTuple):
    """A date or period in a text."""

    span: tuple[int, int]
    """Its position, with the word before it: "since March"."""
    start: datetime | None
    """None for `until`."""
    end: datetime | None
    """None for `since`; for `at` the end of the day, month or year."""
    role: Role
    granularity: Granularity


class Period(NamedTuple):
    """A day or month, from its first instant until before the next one's."""

    start: datetime
    end: datetime
    granularity: Granularity


class _Parse(NamedTuple):
    moment: datetime
    period: str


class DateReader:
    """Reads dates in texts of some languages.

    Args:
        languages: some of `en`, `de`, `fr`; the first one decides how 3/5/2024 is read.

    Raises:
        UnsupportedError: dateparser is not installed.
    """

    def __init__(self, languages: Sequence[str] = ("en",)) -> None:
        if find_spec("dateparser") is None:
            raise UnsupportedError("reading dates in texts", REMEDY)
        self._languages = list(languages)
        self._patterns = _patterns(tuple(languages))
        self._parsed = lru_cache(_CACHED)(self._parse)
        # The words of a language are loaded with its first date; this load happens here, not while a text is read.
        self._parsed("1 may 2020", datetime(2020, 1, 1), "past")  # noqa: DTZ001  # naive inside, as dateparser requires

    def read(self, text: str, moment: datetime) -> list[DateMention]:
        """Return the dates in a text, in its order. Words that only look like a date are left out.

        Args:
            text: about one sentence; a verb of the future in it makes "in June" the next one.
            moment: when the text was written, with a time zone.
        """
        found = []
        for match in self._patterns.spans.finditer(text):
            if self._patterns.no_before.search(text, max(0, match.start() - _BESIDE), match.start()):
                continue
            try:
                dated = self._dated(match, moment)
            except (OverflowError, ValueError, InvalidError):
                continue  # the year 99999, the end of 9999: outside of the years of datetime
            if dated is not None:
                found.append(dated)
        return found

    def _dated(self, match: re.Match[str], moment: datetime) -> DateMention | None:
        patterns, text = self._patterns, match.string
        looking = _DateMatch(match, moment, bool(patterns.future.search(text)), bool(patterns.past.search(text)))
        if match["first"]:
            return self._between(looking)
        role = _role(match)
        if role is None and not _stands_alone(match):
            return None
        ahead = looking.future or (role == "until" and not looking.past)
        period = self._edge(looking, "", "future" if ahead else "past")
        return None if period is None else _to_mention(match, period, role or "at", looking.moment)

    def _between(self, looking: _DateMatch) -> DateMention | None:
        match = looking.match
        last = self._edge(looking, "2", "future" if looking.future else "past")
        if last is None:
            return None
        first = self._first(looking, last)
        if first is None:
            return None
        if last.end <= first.start:  # "from November to February" goes over the new year
            last = self._edge(looking._replace(moment=_with_zone(first.start, looking.moment)), "2", "future")
        if last is None or last.end <= first.start:
            return None
        start, end = _with_zone(first.start, looking.moment), _with_zone(last.end, looking.moment)
        return DateMention(match.span(), start, end, "between", first.granularity)

    def _first(self, looking: _DateMatch, last: Period) -> Period | None:
        match = looking.match
        if match["day1"]:
            day = last.start.replace(day=int(match["day1"]))
            return Period(day, day + timedelta(days=1), "day")
        year = _YEAR_AT_END.search(match["whole2"] or "")
        named = match["name1"] or match["whole1"]
        if year and named and not re.search(r"\d{4}", named):
            parse = self._parsed(f"{_normalize_phrase(named)} {year[0]}", last.start, "past")
            return None if parse is None else _period(parse, exact=False)
        return self._edge(looking, "1", "future" if looking.future else "past")

    def _edge(self, looking: _DateMatch, which: str, preference: _Preference) -> Period | None:
        """Return the period of a date, or its end, middle or beginning."""
        match = looking.match
        period = self._period(looking, which, preference)
        if period is None:
            return None
        if match[f"ending{which}"]:
            return period._replace(start=period.end - timedelta(days=1))
        if match[f"middle{which}"]:
            half = _floor(period.start + (period.end - period.start) / 2, "day")
            return period._replace(start=half)
        return period

    def _period(self, looking: _DateMatch, which: str, preference: _Preference) -> Period | None:
        match, base = looking.match, looking.moment.replace(tzinfo=None)
        if unit := match[f"unit{which}"]:
            return _period_around(base, cast("Granularity", unit.lower()), 0)
        if year := match[f"year{which}"]:
            return _period_around(base.replace(year=int(year), month=1, day=1), "year", 0)
        if name := match[f"name{which}"]:
            parse = self._parsed(_normalize_phrase(name), _floor(base, "day"), _preference(match, which) or preference)
            return None if parse is None else _period(parse, exact=False)
        return self._whole(match[f"whole{which}"], looking.moment, preference)

    def _whole(self, text: str, moment: datetime, preference: _Preference) -> Period | None:
        base = moment.replace(tzinfo=None)
        if text[:4].isdigit():
            return _iso(text, moment)
        if quarter := _QUARTER.fullmatch(text):
            return _period_around(datetime(int(quarter[2]), 3 * int(quarter[1]) - 2, 1), "quarter", 0)  # noqa: DTZ001  # zoned later
        if steps := _relative_period(text, base):
            return steps
        exact = bool(self._patterns.exact.search(text))
        parse = self._parsed(_normalize_phrase(text), base if exact else _floor(base, "day"), preference)
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


class _DateMatch(NamedTuple):
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
    """Return whether a date counts without "since" or "in" before it: "May" and "2024" may be something else."""
    named_day = match["name"] and (match["name"].lower().endswith(("day", "tag", "woch", "di", "che")))
    return bool(match["whole"] or named_day or _preference(match, "") or any(match[edge] for edge in _EDGES))


_EXCLUSIVE = frozenset({"before", "avant", "avant le"})
_EDGES = ("ending", "middle", "opening")
_PREFERENCES: tuple[tuple[str, _Preference], ...] = (
    ("last", "past"),
    ("following", "future"),
    ("this", "current_period"),
)


def _preference(match: re.Match[str], which: str) -> _Preference | None:
    return next((wish for name, wish in _PREFERENCES if match[f"{name}{which}"]), None)


def _to_mention(match: re.Match[str], period: Period, role: str, moment: datetime) -> DateMention:
    start, end = _with_zone(period.start, moment), _with_zone(period.end, moment)
    if role == "after":
        return DateMention(match.span(), end, None, "since", period.granularity)
    if role == "since":
        return DateMention(match.span(), end if match["ending"] else start, None, "since", period.granularity)
    if role == "at":
        return DateMention(match.span(), start, end, "at", period.granularity)
    # A day counts as a whole, and so does "the end of March"; "until March" is until its beginning.
    whole = (period.granularity in {"day", "week"} or match["ending"]) and match["until"].lower() not in _EXCLUSIVE
    return DateMention(match.span(), None, end if whole else start, "until", period.granularity)


def _with_zone(naive: datetime, moment: datetime) -> datetime:
    """Return a moment in the zone of the episode, or None if a datetime cannot represent it."""
    zoned = naive if naive.tzinfo is not None else naive.replace(tzinfo=moment.tzinfo)
    to_stamp("date", zoned)
    return zoned


def _normalize_phrase(text: str) -> str:
    return " ".join(text.lower().replace(" of ", " ").split())


def _iso(text: str, moment: datetime) -> Period:
    parsed = datetime.fromisoformat(text.upper())
    if parsed.tzinfo is not None:
        parsed = parsed.astimezone(moment.tzinfo)
    return _period(_Parse(parsed.replace(tzinfo=None), "day"), exact=len(text) > 10)


def _period(parse: _Parse, *, exact: bool) -> Period:
    if exact:
        return Period(parse.moment, parse.moment, "moment")
    granularity = cast("Granularity", parse.period if parse.period in {"week", "month", "year"} else "day")
    return _period_around(parse.moment, granularity, 0)


# ASCII: without it "la\u017ft" would match too, which is no key below.
_RELATIVE_PERIOD = re.compile(
    r"(last|past|previous|this|current|next|coming)\s(week|month|quarter|year|weekend)", re.IGNORECASE | re.ASCII
)
_STEPS = {"last": -1, "past": -1, "previous": -1, "this": 0, "current": 0, "next": 1, "coming": 1}


def _relative_period(text: str, base: datetime) -> Period | None:
    """Return a period that follows from the calendar alone, such as "last quarter"."""
    match = _RELATIVE_PERIOD.fullmatch(text)
    if match is None:
        return None
    steps, unit = _STEPS[match[1].lower()], match[2].lower()
    if unit != "weekend":
        return _period_around(base, cast("Granularity", unit), steps)
    week = _period_around(base, "week", steps)
    return Period(week.start + timedelta(days=5), week.end, "day")


def _period_around(moment: datetime, granularity: Granularity, steps: int) -> Period:
    """Return the day, week, month, quarter or year of a moment, or one some steps away."""
    start = _shift_period(_floor(moment, granularity), granularity, steps)
    return Period(start, _shift_period(start, granularity, 1), granularity)


def _floor(moment: datetime, granularity: Granularity) -> datetime:
    day = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    if granularity == "week":
        return day - timedelta(days=day.weekday())
    if granularity == "month":
        return day.replace(day=1)
    if granularity == "quarter":
        return day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1)
    return day.replace(month=1, day=1) if granularity == "year" else day


def _shift_period(start: datetime, granularity: Granularity, steps: int) -> datetime:
    days = {"day": 1, "week": 7}.get(granularity)
    if days is not None:
        return start + timedelta(days=days * steps)
    months = start.year * 12 + start.month - 1 + steps * {"month": 1, "quarter": 3, "year": 12}[granularity]
    return start.replace(year=months // 12, month=months % 12 + 1)
