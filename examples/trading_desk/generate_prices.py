"""Write prices.csv: daily closes of four invented symbols, a geometric random walk with changing regimes.

    python generate_prices.py            # the same seed writes the same file, byte for byte

No symbol, price or date is real. Each symbol moves by itself: `close * exp(drift + volatility * z)`
with `z` from the normal distribution, under a regime (rising, falling, calm, wild) that holds for three weeks on
average.
"""

from __future__ import annotations

import math
import random
from datetime import date, timedelta
from pathlib import Path
from typing import NamedTuple

SEED = 20310106
FIRST_DAY = date(2031, 1, 6)
TRADING_DAYS = 260
OPENING_PRICES = {"KELP": 48.0, "SALT": 12.5, "ROPE": 131.0, "TIDE": 77.0}
CHANCE_OF_CHANGE = 1 / 15
SATURDAY = 5


class Regime(NamedTuple):
    """The movement of a price for a while, per day, in logarithms."""

    drift: float
    volatility: float


REGIMES = (Regime(0.004, 0.012), Regime(-0.004, 0.014), Regime(0.0, 0.006), Regime(0.0, 0.024))


def closes(generator: random.Random, opening: float) -> list[float]:
    """Return the closing prices of one symbol."""
    price, regime = opening, generator.choice(REGIMES)
    found = []
    for _ in range(TRADING_DAYS):
        if generator.random() < CHANCE_OF_CHANGE:
            regime = generator.choice(REGIMES)
        price *= math.exp(regime.drift + regime.volatility * generator.gauss(0, 1))
        found.append(round(price, 2))
    return found


def days() -> list[date]:
    """Return the trading days: Monday to Friday."""
    found: list[date] = []
    day = FIRST_DAY
    while len(found) < TRADING_DAYS:
        if day.weekday() < SATURDAY:
            found.append(day)
        day += timedelta(days=1)
    return found


def table() -> str:
    """Return the whole file."""
    generator = random.Random(SEED)  # noqa: S311  # the walk must be the same every time
    columns = [closes(generator, opening) for opening in OPENING_PRICES.values()]
    rows = (
        ",".join([f"{day}", *(f"{close:.2f}" for close in row)]) for day, *row in zip(days(), *columns, strict=True)
    )
    return "\n".join([",".join(["date", *OPENING_PRICES]), *rows]) + "\n"


if __name__ == "__main__":
    (Path(__file__).parent / "prices.csv").write_text(table(), encoding="utf-8")
