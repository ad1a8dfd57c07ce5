"""Filters as values: what a record must match, independent of any query language."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Tagged:
    """The tag field holds one of these values, exactly."""

    field: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Between:
    """The number lies in a closed interval; None for an open end."""

    field: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Every:
    """All of these hold; `Every()` lets everything through."""

    conditions: tuple[Condition, ...] = ()

    def also(self, *conditions: Condition) -> Every:
        """What holds if these hold too."""
        return Every((*self.conditions, *conditions))

    def of_tags(self) -> Every:
        """The conditions on tags alone: they let through what all conditions do, and perhaps more."""
        kept = (one.of_tags() if isinstance(one, Every) else one for one in self.conditions)
        return Every(tuple(one for one in kept if not isinstance(one, Between)))


Condition: TypeAlias = "Tagged | Between | Every"
ALL = Every()
