"""Patterns with a rule for each, as settings hold them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

V = TypeVar("V")


class PatternRules(Mapping[str, V]):
    """Patterns with the rule of each, in the given order; immutable and hashable."""

    def __init__(self, rules: Mapping[str, V]) -> None:
        self._rules = dict(rules)

    def __getitem__(self, pattern: str) -> V:
        return self._rules[pattern]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rules)

    def __len__(self) -> int:
        return len(self._rules)

    def __hash__(self) -> int:
        return hash(frozenset(self._rules.items()))
