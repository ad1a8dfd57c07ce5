"""Factors: what makes a memory worth more or less than its words and its meaning say."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp2
from typing import NamedTuple

from sharedmem.knowledge.scoring.dates import moment, named_dates
from sharedmem.knowledge.scoring.facts import Facts
from sharedmem.knowledge.scoring.recipe import Recipe
from sharedmem.knowledge.scoring.words import names_author


class Factor(NamedTuple):
    """One of them; 1 where it does not apply."""

    name: str
    value: float


class Factors:
    """The factors of one search.

    Args:
        query: what was asked, whole.
        threads: how much was found in each thread.
        recipe: the weights.
        now_ms: milliseconds since 1970.
    """

    def __init__(self, query: str, threads: Mapping[str, float], recipe: Recipe, now_ms: int) -> None:
        self._query = query
        self._recipe = recipe
        self._now_ms = now_ms
        self._dates = named_dates(query) if recipe.date != 1.0 else ()
        most = max(threads.values(), default=0.0)
        self._by_thread = {thread: 1.0 + recipe.thread * much / most for thread, much in threads.items() if most > 0}
        self._by_author: dict[str | None, float] = {None: 1.0}

    @property
    def touch_only_turns(self) -> bool:
        """Whether all of them are 1 for a memory that is no turn of a conversation."""
        return not (self._dates or self._recipe.recency or self._recipe.importance)

    def product(self, known: Facts) -> float:
        """All of them."""
        recipe = self._recipe
        product = 1.0
        if known.author is not None:
            product = self._author(known.author) * self._by_thread.get(known.thread, 1.0)
            if known.asks:
                product *= recipe.question
        if self._dates:
            product *= self._date(known.at_ms)
        if recipe.recency:
            product *= self._recency(known.at_ms)
        if recipe.importance:
            product *= recipe.importance.get(known.importance, 1.0)
        return product

    def each(self, known: Facts) -> tuple[Factor, ...]:
        """One by one; their product is `product`."""
        recipe = self._recipe
        said = known.author is not None
        return (
            Factor("author", self._author(known.author)),
            Factor("thread", self._by_thread.get(known.thread, 1.0) if said else 1.0),
            Factor("question", recipe.question if said and known.asks else 1.0),
            Factor("date", self._date(known.at_ms)),
            Factor("recency", self._recency(known.at_ms)),
            Factor("importance", recipe.importance.get(known.importance, 1.0)),
        )

    def _author(self, author: str | None) -> float:
        known = self._by_author.get(author)
        if known is None:
            named = author is not None and names_author(self._query, author)
            known = self._by_author[author] = self._recipe.author if named else 1.0
        return known

    def _date(self, at_ms: int) -> float:
        if not self._dates:
            return 1.0
        at = moment(at_ms)
        return self._recipe.date if any(date.covers(at) for date in self._dates) else 1.0

    def _recency(self, at_ms: int) -> float:
        if not self._recipe.recency:
            return 1.0
        # A clock that runs ahead makes nothing newer than now.
        age_s = max(0, self._now_ms - at_ms) / 1000
        return 1.0 + self._recipe.recency * exp2(-age_s / self._recipe.half_life_s)
