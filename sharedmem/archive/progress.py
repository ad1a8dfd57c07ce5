"""Progress of an archive run, and the report of what was left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

from pydantic import Field

from sharedmem.models.record import Record

_MOST_REASONS = 100


class ProgressStep(NamedTuple):
    """How far something has come."""

    doing: Literal["reading", "exporting", "checking", "importing", "copying", "backfilling"]
    what: str
    done: int
    total: int | None
    unit: Literal["keys", "documents", "bytes", "lines"]


Progress: TypeAlias = Callable[[ProgressStep], None]


class LeftOut(Record):
    """What could not be taken along."""

    count: int = 0
    reasons: dict[str, str] = Field(default_factory=dict)
    """Why, by key; the first hundred."""


class LeftOutReasons:
    """Collects what could not be taken along."""

    def __init__(self) -> None:
        self._count = 0
        self._reasons: dict[str, str] = {}

    def __call__(self, key: str, why: str) -> None:
        """Note one."""
        self._count += 1
        if len(self._reasons) < _MOST_REASONS:
            self._reasons[key] = why

    def told(self) -> LeftOut:
        """All that was noted."""
        return LeftOut(count=self._count, reasons=self._reasons)
