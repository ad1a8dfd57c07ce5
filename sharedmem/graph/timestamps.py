"""Moments as whole numbers, so that intervals compare, sort and store alike in every backend.

A stamp counts microseconds since the beginning of year 1, from 1; two stand for no moment at all.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sharedmem.errors import InvalidError

UNKNOWN_START = 0
"""Before every moment: since when something holds is not known."""
OPEN = 999_999_999_999_999_999
"""After every moment: it has not ended."""
LATEST = OPEN - 1
"""The last moment: asked of knowledge, it means what is known now."""
DIGITS = 18
"""A stamp written with leading zeros sorts as text."""

_EPOCH = datetime(1, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_stamp(field: str, moment: datetime) -> int:
    """The stamp of a moment.

    Raises:
        InvalidError: it has no time zone, or falls out of the years 1 to 9999 in UTC.
    """
    if not isinstance(moment, datetime):
        raise InvalidError(field, moment, "give a datetime with a time zone")
    if moment.utcoffset() is None:
        raise InvalidError(field, moment.isoformat(), "give it a time zone, such as datetime.UTC")
    try:
        # A difference of moments never overflows, whatever their zones are; only the way to UTC does.
        return (moment.astimezone(UTC) - _EPOCH) // _MICROSECOND + 1
    except OverflowError:
        raise InvalidError(field, moment.isoformat(), "in UTC it falls out of the years 1 to 9999") from None


def from_stamp(stamp: int) -> datetime | None:
    """The moment of a stamp; None for `UNKNOWN_START` and `OPEN`."""
    if stamp in {UNKNOWN_START, OPEN}:
        return None
    return _EPOCH + (stamp - 1) * _MICROSECOND


def ascending_text(stamp: int) -> str:
    """A stamp as text that sorts as the numbers do."""
    return f"{stamp:0{DIGITS}d}"


def descending_text(stamp: int) -> str:
    """A stamp as text that sorts the other way round."""
    return f"{OPEN - stamp:0{DIGITS}d}"
