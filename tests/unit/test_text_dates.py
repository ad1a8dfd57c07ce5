"""Dates of queries: in four languages, and only where a reader would see a date."""

from __future__ import annotations

import pytest

from sharedmem.text.fact_tokens import find_query_dates


@pytest.mark.parametrize(
    ("query", "dates"),
    [
        ("What happened on 7 May 2023?", [(2023, 5, 7)]),
        ("what is planned for April 6-7 and April 8", [(None, 4, 6), (None, 4, 8)]),
        ("since 2023-05-07", [(2023, 5, 7)]),
        ("am 13.5.2023", [(2023, 5, 13)]),
        ("wer kam im März?", [(None, 3, None)]),
        ("qui est venu le 3 août 2024", [(2024, 8, 3)]),
        ("2024年5月3日に何が", [(2024, 5, 3)]),
        ("may we meet in room 12", []),
        ("what did April say in 2023", []),
        ("on 99 May 2023", []),
        ("on 3/5/2024", []),
    ],
)
def test_the_dates_of_a_query(query: str, dates: list[tuple[int | None, int, int | None]]) -> None:
    assert [tuple(date) for date in find_query_dates(query)] == dates
