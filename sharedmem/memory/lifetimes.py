"""Lifetimes of memories: by their type, and where `adaptive_ttl` is set by their importance and use."""

from __future__ import annotations

from math import floor, log2

from sharedmem.config import Settings
from sharedmem.models import Importance, MemoryItem

_FACTORS: dict[Importance, float] = {"low": 0.5, "medium": 1.0, "high": 2.0, "critical": 4.0}
_MOST = 8
"""The longest adapted lifetime, as a multiple of the default one. The shortest is half of it: the lowest factor."""


def default_ttl(memory_type: str, settings: Settings) -> int:
    """Return the lifetime in seconds of a memory of a type without its own; -1 for no end."""
    if memory_type == "short-term":
        return settings.short_term_ttl_s
    return settings.cache_ttl_s if memory_type == "semantic-cache" else settings.long_term_ttl_s


def adapted_ttl(default_s: int, importance: Importance, uses: int) -> int:
    """Return `default_s * factor * (1 + floor(log2(1 + uses)))` seconds, from half to 8 times the default.

    Args:
        default_s: lifetime that the settings give; -1 for no end, which stays.
        importance: its factor is 0.5 for low, 1 for medium, 2 for high, 4 for critical.
        uses: how often searches and `get` have returned the memory.
    """
    if default_s < 0:
        return default_s
    grown = _FACTORS[importance] * (1 + floor(log2(1 + uses)))
    return max(1, round(default_s * min(grown, _MOST)))


def starting_ttl(item: MemoryItem, settings: Settings) -> int:
    """Return the lifetime with which a memory without a lifetime from its caller begins."""
    default_s = default_ttl(item.memory_type, settings)
    return adapted_ttl(default_s, item.importance, 0) if item.adaptive_ttl else default_s
