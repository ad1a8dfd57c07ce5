"""The words of dates, by language: where a text may speak of a time, for `dates` to look closer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple


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
    """Dates that stand for themselves."""
    weekday: str
    month: str
    last: str
    following: str
    this: str
    exact: str
    """In a date that is told to the hour."""
    future: str
    """In a sentence that speaks of what will be."""
    past: str
    """In a sentence that speaks of what went on, and whose "until" lies behind it."""
    no: str


_DAY = r"(?:0?[1-9]|[12]\d|3[01])"
_YEAR = r"(?:1\d|20|21)\d\d"
_CLOCK = r"(?:,?\s(?:at\s)?(?:[01]?\d|2[0-3])(?::[0-5]\d(?:\s?[ap]m)?|\s?[ap]m)\b)?"

_MONTH_EN = (
    r"(?:january|february|march|april|may|june|july|august|september|october|november|december"
    r"|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)\b\.?"
)
_WEEKDAY_EN = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day"
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

_MONTH_DE = (
    r"(?:januar|februar|m\u00e4rz|april|mai|juni|juli|august|september|oktober|november|dezember|jan|feb|apr|aug|sept?|okt"
    r"|nov|dez)\b\.?"
)
_WEEKDAY_DE = r"(?:montag|dienstag|mittwoch|donnerstag|freitag|samstag|sonntag)"
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

_MONTH_FR = r"(?:janvier|f\u00e9vrier|mars|avril|mai|juin|juillet|ao\u00fbt|septembre|octobre|novembre|d\u00e9cembre)\b"
_WEEKDAY_FR = r"(?:lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche)"
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
    """What to look for in texts of these languages."""
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
