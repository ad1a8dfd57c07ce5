"""docs/graph-rules.md: times that a text speaks of are resolved against the time of the episode, in its zone."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.example_budget import example_count

from sharedmem.errors import InvalidError, UnsupportedError
from sharedmem.graph.extraction.dates import DateReader
from sharedmem.graph.records import to_stamp

ZONE = timezone(timedelta(hours=2))
WEDNESDAY = datetime(2024, 5, 15, 10, 30, tzinfo=ZONE)
ENGLISH = DateReader()
ALL = DateReader(("en", "de", "fr"))


def day(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).replace(tzinfo=ZONE)


SAID = [
    ("2024-05-03", "at", "2024-05-03", "2024-05-04"),
    ("on 3 May 2024", "at", "2024-05-03", "2024-05-04"),
    ("on May 3rd, 2024", "at", "2024-05-03", "2024-05-04"),
    ("on the 3rd of May", "at", "2024-05-03", "2024-05-04"),
    ("03/05/2024", "at", "2024-03-05", "2024-03-06"),
    ("3.5.2024", "at", "2024-05-03", "2024-05-04"),
    ("yesterday", "at", "2024-05-14", "2024-05-15"),
    ("last week", "at", "2024-05-06", "2024-05-13"),
    ("next week", "at", "2024-05-20", "2024-05-27"),
    ("last Tuesday", "at", "2024-05-14", "2024-05-15"),
    ("on Friday", "at", "2024-05-10", "2024-05-11"),
    ("next Monday", "at", "2024-05-20", "2024-05-21"),
    ("this weekend", "at", "2024-05-18", "2024-05-20"),
    ("last quarter", "at", "2024-01-01", "2024-04-01"),
    ("Q3 2023", "at", "2023-07-01", "2023-10-01"),
    ("two months ago", "at", "2024-03-01", "2024-04-01"),
    ("in 2021", "at", "2021-01-01", "2022-01-01"),
    ("in March", "at", "2024-03-01", "2024-04-01"),
    ("in December", "at", "2023-12-01", "2024-01-01"),
    ("in early March", "at", "2024-03-01", "2024-04-01"),
    ("in mid-March", "at", "2024-03-16", "2024-04-01"),
    ("since March", "since", "2024-03-01", None),
    ("since the end of 2022", "since", "2023-01-01", None),
    ("after March 2023", "since", "2023-04-01", None),
    ("as of next Monday", "since", "2024-05-20", None),
    ("from 3 May 2024", "since", "2024-05-03", None),
    ("until Friday", "until", None, "2024-05-18"),
    ("by Friday", "until", None, "2024-05-18"),
    ("until March", "until", None, "2025-03-01"),
    ("I lived there until March", "until", None, "2024-03-01"),
    ("until the end of March 2024", "until", None, "2024-04-01"),
    ("by the end of the month", "until", None, "2024-06-01"),
    ("before 3 May 2024", "until", None, "2024-05-03"),
    ("from June to August", "between", "2023-06-01", "2023-09-01"),
    ("I will be there from June to August", "between", "2024-06-01", "2024-09-01"),
    ("between 3 and 9 May", "between", "2024-05-03", "2024-05-10"),
    ("from 2019 to 2021", "between", "2019-01-01", "2022-01-01"),
    ("from March to May 2023", "between", "2023-03-01", "2023-06-01"),
    ("from November to February", "between", "2023-11-01", "2024-03-01"),
    ("I will move in June", "at", "2024-06-01", "2024-07-01"),
    ("I'll start from 1 June", "since", "2024-06-01", None),
]


@pytest.mark.parametrize(("text", "role", "start", "end"), SAID, ids=[text for text, *_ in SAID])
def test_a_time_is_resolved_against_the_episode(text: str, role: str, start: str | None, end: str | None) -> None:
    (dated,) = ENGLISH.read(text, WEDNESDAY)

    assert (dated.role, dated.start, dated.end) == (role, day(start), day(end))


def test_a_month_keeps_that_it_is_one_and_where_it_stands() -> None:
    (dated,) = ENGLISH.read("I live here since March, mostly", WEDNESDAY)

    assert dated.granularity == "month"
    assert "I live here since March, mostly"[slice(*dated.span)] == "since March"


def test_a_time_of_day_is_a_moment() -> None:
    ago, at, written = ENGLISH.read("3 hours ago, on 3 May 2024 at 5pm, or 2024-05-03T10:00:00Z", WEDNESDAY)

    assert ago.start == WEDNESDAY - timedelta(hours=3)
    assert at.start == datetime(2024, 5, 3, 17, tzinfo=ZONE)
    assert written.start == datetime(2024, 5, 3, 10, tzinfo=UTC)
    assert {ago.granularity, at.granularity, written.granularity} == {"moment"}


def test_a_day_has_the_zone_of_the_episode_also_when_the_clocks_change() -> None:
    berlin = ZoneInfo("Europe/Berlin")

    (dated,) = ENGLISH.read("yesterday", datetime(2024, 3, 31, 12, tzinfo=berlin))

    assert dated.start == datetime(2024, 3, 29, 23, tzinfo=UTC)
    assert dated.end == datetime(2024, 3, 30, 23, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "it may march on",
        "May I ask?",
        "order 2024-05-03-7",
        "2024 boxes",
        "31 June 2024",
        "2024-13-45",
        "in 99999",
        "on 12 May 99999",
        "I waited for a week",
        "the end",
        "#2021",
        "3.5.6.2024",
        "sundry things",
    ],
)
def test_what_only_looks_like_a_time_is_a_word_like_any_other(text: str) -> None:
    assert ENGLISH.read(text, WEDNESDAY) == []


@pytest.mark.parametrize("text", ["la\u017ft week", "th\u0130s weekend", "next wee\u212a"])
def test_letters_that_only_ignoring_case_takes_for_ascii_stop_nobody(text: str) -> None:
    assert all(mention.start is not None for mention in ENGLISH.read(f"She left {text}.", WEDNESDAY))


def test_a_date_that_is_denied_is_left_aside() -> None:
    (dated,) = ENGLISH.read("in March, not in May", WEDNESDAY)

    assert dated.start == day("2024-03-01")


@pytest.mark.parametrize(
    ("text", "year"), [("last year", 1), ("in two weeks", 9999), ("two months ago", 1), ("next year", 9999)]
)
def test_what_falls_out_of_all_years_is_no_time(text: str, year: int) -> None:
    edge = datetime(year, 1, 1, tzinfo=UTC) if year == 1 else datetime(year, 12, 31, 23, tzinfo=UTC)

    assert ENGLISH.read(text, edge) == []


@pytest.mark.parametrize(
    "moment",
    [
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=12))),
        datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-12))),
    ],
)
def test_what_falls_out_of_all_years_in_utc_has_no_stamp(moment: datetime) -> None:
    with pytest.raises(InvalidError, match="is outside of the years 1 to 9999"):
        to_stamp("valid_from", moment)


@pytest.mark.parametrize(
    ("text", "role", "start", "end"),
    [
        ("gestern", "at", "2024-05-14", "2024-05-15"),
        ("seit M\u00e4rz", "since", "2024-03-01", None),
        ("vor zwei Monaten", "at", "2024-03-01", "2024-04-01"),
        ("am 3. Mai 2024", "at", "2024-05-03", "2024-05-04"),
        ("bis Freitag", "until", None, "2024-05-18"),
        ("ab n\u00e4chsten Montag", "since", "2024-05-20", None),
        ("von Juni bis August 2023", "between", "2023-06-01", "2023-09-01"),
        ("depuis mars", "since", "2024-03-01", None),
        ("il y a deux mois", "at", "2024-03-01", "2024-04-01"),
        ("le 3 mai 2024", "at", "2024-05-03", "2024-05-04"),
        ("jusqu'\u00e0 vendredi", "until", None, "2024-05-18"),
        ("de juin \u00e0 ao\u00fbt 2023", "between", "2023-06-01", "2023-09-01"),
        ("la semaine derni\u00e8re", "at", "2024-05-06", "2024-05-13"),
    ],
)
def test_german_and_french_are_read_where_they_are_asked_for(
    text: str, role: str, start: str | None, end: str | None
) -> None:
    (dated,) = ALL.read(text, WEDNESDAY)

    assert (dated.role, dated.start, dated.end) == (role, day(start), day(end))


def test_without_the_library_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dateparser", None)

    with pytest.raises(UnsupportedError, match=r"sharedmem-hub\[graph\]"):
        DateReader()


WORDS = """
    since until from to between and in on by the end of last next this week month year quarter Monday May March 3 31 0
    99 1st 2021 9999 0001 99999 2024-02-30 ago two hours days yesterday tomorrow , . - / : 12/12/1212 Q4 mid- not will
    31.12.9999 beginning at 5pm seit bis vor zwei Tagen depuis mars jusqu'\u00e0
"""
SAYINGS = st.one_of(st.lists(st.sampled_from(WORDS.split()), max_size=12).map(" ".join), st.text(max_size=80))


@settings(max_examples=example_count(50, thorough=150), deadline=None)
@given(
    SAYINGS,
    st.datetimes(timezones=st.sampled_from([UTC, ZONE, timezone(timedelta(hours=-12))])).filter(
        lambda moment: 2 <= moment.year <= 9998
    ),
)
def test_no_text_stops_the_reader_and_every_time_can_be_kept(text: str, moment: datetime) -> None:
    for dated in ALL.read(text, moment):
        begin, finish = dated.span
        assert 0 <= begin < finish <= len(text)
        for stamp in (dated.start, dated.end):
            assert stamp is None or to_stamp("date", stamp) > 0
        if dated.start is not None and dated.end is not None:
            assert dated.start <= dated.end
