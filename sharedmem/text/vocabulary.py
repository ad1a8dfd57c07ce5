"""Words of several languages that more than one rule uses: months, weekdays, abbreviations, currencies.

To add a language to the rules, begin here: dates, contradictions, facts and graphs read these tables.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class CalendarWords(NamedTuple):
    """The calendar of one language, as words in small letters with blanks between them."""

    months: str
    """January to December; each may be followed by `|` and abbreviations."""
    weekdays: str
    """Monday to Sunday."""
    month_leads: str
    """Words before a month that has neither day nor year beside it: `in May`."""

    def month_numbers(self) -> dict[str, int]:
        """Return the number of each month by its names and abbreviations."""
        return {name: number for number, names in enumerate(self.months.split(), 1) for name in names.split("|")}


CALENDARS = {
    "en": CalendarWords(
        "january|jan february|feb march|mar april|apr may june|jun july|jul august|aug september|sep|sept october|oct "
        "november|nov december|dec",
        "monday tuesday wednesday thursday friday saturday sunday",
        "in during since until last early late mid around",
    ),
    "de": CalendarWords(
        "januar|jänner|jan februar|feb märz april|apr mai juni juli august|aug september|sep|sept oktober|okt "
        "november|nov dezember|dez",
        "montag dienstag mittwoch donnerstag freitag samstag sonntag",
        "im seit bis anfang mitte ende letzten",
    ),
    "fr": CalendarWords(
        "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
        "lundi mardi mercredi jeudi vendredi samedi dimanche",
        "en depuis fin début",
    ),
    "es": CalendarWords(
        "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
        "lunes martes miércoles jueves viernes sábado domingo",
        "en desde hasta",
    ),
}

MONTHS = {name: number for words in CALENDARS.values() for name, number in words.month_numbers().items()}
"""The number of a month by each of its names and abbreviations."""
MONTH_LEADS = {
    name: frozenset(
        lead for words in CALENDARS.values() if name in words.month_numbers() for lead in words.month_leads.split()
    )
    for name in MONTHS
}
"""By the name of a month, the words that may precede it if it has neither day nor year."""
ENGLISH_MONTHS = tuple(names.partition("|")[0] for names in CALENDARS["en"].months.split())
"""January to December."""
CALENDAR_NAMES = MONTHS.keys() | {day for words in CALENDARS.values() for day in words.weekdays.split()}
"""The names of all months and weekdays."""

CURRENCIES = {"$": "dollar usd", "€": "euro eur", "£": "pound gbp", "¥": "yen jpy", "₹": "rupee inr"}
"""By its sign: the name of a currency in the singular, and its code."""

_ABBREVIATIONS = r"dr|mr|mrs|ms|prof|st|no|nr|vs|etc|e\.g|i\.e|cf|approx|inc|ltd|co|jr|sr|z\.b|bzw"
ABBREVIATION_END = re.compile(rf"(?<![\w'\u2019])(?:[^\W\d_]|{_ABBREVIATIONS})\.$", re.IGNORECASE)
"""The end of a text whose full stop belongs to an abbreviation or an initial."""


def month_alternatives(language: str) -> str:
    """Return the names and abbreviations of all months of a language, as alternatives of a regular expression."""
    return "|".join(CALENDARS[language].months.split())


def weekday_alternatives(language: str) -> str:
    """Return the names of the weekdays of a language, as alternatives of a regular expression."""
    return CALENDARS[language].weekdays.replace(" ", "|")
