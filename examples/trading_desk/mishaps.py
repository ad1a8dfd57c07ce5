"""Simulated failures: a seed assigns mishaps to decisions, so that every run has the same ones."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from enum import StrEnum
from itertools import cycle

from market import Decision


class Mishap(StrEnum):
    """A failure of a decision on its way to the exchange; each happens to it once."""

    CRASH_AFTER = "executor dies after the order"
    TIMEOUT_ACCEPTED = "time-out after acceptance"
    CRASH_BEFORE = "executor dies before the order"
    HANG = "exchange hangs, then accepts"
    TIMEOUT_LOST = "time-out, order never arrived"
    REJECTION = "rejection"


AT_THE_EXCHANGE = (Mishap.TIMEOUT_ACCEPTED, Mishap.HANG, Mishap.TIMEOUT_LOST, Mishap.REJECTION)
# One deck for each dozen of decisions at a venue; the other decisions of a dozen have no mishap.
_DECK: tuple[Mishap | None, ...] = (
    *(Mishap.CRASH_AFTER, None, Mishap.TIMEOUT_ACCEPTED, None, Mishap.CRASH_BEFORE, None),
    *(Mishap.HANG, None, Mishap.TIMEOUT_LOST, None, Mishap.REJECTION, None),
)


def dealt(decisions: Iterable[Decision], venues: Mapping[str, str], *, seed: int) -> dict[str, Mishap]:
    """Return the mishap of each decision that has one, by the decision's name.

    Args:
        decisions: all decisions of the run.
        venues: the venue of each symbol; every venue gets its share of every mishap.
        seed: another seed assigns them differently.
    """
    by_venue: dict[str, list[Decision]] = {venue: [] for venue in sorted(set(venues.values()))}
    for decision in decisions:
        by_venue[venues[decision.symbol]].append(decision)
    found: dict[str, Mishap] = {}
    for venue, traded in by_venue.items():
        random.Random(f"{seed} {venue}").shuffle(traded)  # noqa: S311  # it must be the same every time
        found |= {decision.name: mishap for decision, mishap in zip(traded, cycle(_DECK), strict=False) if mishap}
    return found
