"""The planner's data: the price series, and the rule that turns it into decisions. Pure functions.

The rule is very simple: buy when the 5-day average of the closes crosses above the 20-day average, sell when
it crosses below. It is not advice; it must only return the same decisions for the same prices.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

FAST_DAYS, SLOW_DAYS = 5, 20
METHOD = f"average crossover {FAST_DAYS}/{SLOW_DAYS}"
SIZE_USDT = 1_000.0
_LEAST_CONFIDENCE, _MOST_CONFIDENCE, _GAP_WEIGHT = 0.5, 0.95, 40.0


@dataclass(frozen=True)
class Series:
    """Closing prices by symbol, with their days."""

    days: Sequence[str]
    closes: Mapping[str, Sequence[float]]

    def first(self, days: int) -> Series:
        """Return the series cut to its first days."""
        return Series(self.days[:days], {symbol: closes[:days] for symbol, closes in self.closes.items()})


@dataclass(frozen=True)
class Decision:
    """The rule's decision on one day about one symbol."""

    day: str
    symbol: str
    action: str
    confidence: float
    reasoning: str
    price: float

    @property
    def name(self) -> str:
        """The name by which two decisions are the same."""
        return f"{self.day} {self.symbol} {self.action}"


def read_series(path: Path) -> Series:
    """Return the series of a CSV file: `date`, then a column a symbol."""
    with path.open(encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    columns = {symbol: [float(row[at]) for row in rows] for at, symbol in enumerate(head[1:], start=1)}
    return Series([row[0] for row in rows], columns)


def decisions_on(series: Series, day: int) -> Iterator[Decision]:
    """Yield the decisions of one day, by its number, from the prices up to its close."""
    for symbol, closes in series.closes.items():
        decision = _crossing(symbol, series.days[day], closes[: day + 1])
        if decision is not None:
            yield decision


def all_decisions(series: Series) -> list[Decision]:
    """Return the decisions of all days, in order."""
    return [decision for day in range(len(series.days)) for decision in decisions_on(series, day)]


def _crossing(symbol: str, day: str, closes: Sequence[float]) -> Decision | None:
    if len(closes) <= SLOW_DAYS:
        return None
    before, after = _gap(closes[:-1]), _gap(closes)
    if before <= 0 < after:
        action, direction = "buy", "above"
    elif before >= 0 > after:
        action, direction = "sell", "below"
    else:
        return None
    slow = _average(closes, SLOW_DAYS)
    reasoning = (
        f"On {day} the {FAST_DAYS}-day average of {symbol} ({_average(closes, FAST_DAYS):.2f}) crossed {direction}"
        f" its {SLOW_DAYS}-day average ({slow:.2f}); the close was {closes[-1]:.2f}."
    )
    confidence = min(_MOST_CONFIDENCE, _LEAST_CONFIDENCE + _GAP_WEIGHT * abs(after) / slow)
    return Decision(day, symbol, action, round(confidence, 3), reasoning, closes[-1])


def _gap(closes: Sequence[float]) -> float:
    return _average(closes, FAST_DAYS) - _average(closes, SLOW_DAYS)


def _average(closes: Sequence[float], days: int) -> float:
    return sum(closes[-days:]) / days
