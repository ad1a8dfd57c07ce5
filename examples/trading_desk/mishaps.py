"""What goes wrong: which decision meets which mishap, dealt out by a seed, so that every run meets the same ones."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from enum import StrEnum
from itertools import cycle

from market import Decision


class Mishap(StrEnum):
    """What can happen to a decision on its way to the exchange; each happens to it once."""

    CRASH_AFTER = "executor dies after the order"
    TIMEOUT_ACCEPTED = "time-out after acceptance"
    CRASH_BEFORE = "executor dies before the order"
    HANG = "exchange hangs, then accepts"
    TIMEOUT_LOST = "time-out, order never arrived"
    REJECTION = "rejection"


AT_THE_EXCHANGE = (Mishap.TIMEOUT_ACCEPTED, Mishap.HANG, Mishap.TIMEOUT_LOST, Mishap.REJECTION)
# One deck for each dozen of decisions at a venue; the rest of a dozen goes well.
_DECK: tuple[Mishap | None, ...] = (
    *(Mishap.CRASH_AFTER, None, Mishap.TIMEOUT_ACCEPTED, None, Mishap.CRASH_BEFORE, None),
    *(Mishap.HANG, None, Mishap.TIMEOUT_LOST, None, Mishap.REJECTION, None),
)


def dealt(decisions: Iterable[Decision], venues: Mapping[str, str], *, seed: int) -> dict[str, Mishap]:
    """Return the mishap of each decision that meets one, by the decision's name.

    Args:
        decisions: all that will be made.
        venues: where each symbol is traded; every venue gets its share of every mishap.
        seed: another one deals otherwise.
    """
    by_venue: dict[str, list[Decision]] = {venue: [] for venue in sorted(set(venues.values()))}
    for decision in decisions:
        by_venue[venues[decision.symbol]].append(decision)
    found: dict[str, Mishap] = {}
    for venue, traded in by_venue.items():
        random.Random(f"{seed} {venue}").shuffle(traded)  # noqa: S311  # the same every time is the point
        found |= {decision.name: mishap for decision, mishap in zip(traded, cycle(_DECK), strict=False) if mishap}
    return found
