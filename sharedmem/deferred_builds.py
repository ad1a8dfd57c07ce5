"""Whether pydantic builds the validator of a class at its first use instead of at its definition."""

from __future__ import annotations

from typing import Final

from pydantic import VERSION

_LOCKED_SINCE = (2, 14)

DEFER_BUILD: Final = tuple(int(part) for part in VERSION.split(".")[:2]) >= _LOCKED_SINCE
"""A start is shorter by what it does not use. Older versions build without a lock: two threads that use a class for the
first time at once could get the validator of its base class (pydantic, issues 11849 and 13419)."""
