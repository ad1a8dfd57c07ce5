"""Common words: what nearly every record holds tells little, and costs a search most of its time."""

from __future__ import annotations

from collections.abc import Mapping


def telling(holders: Mapping[str, int], commonest: int | None) -> list[str]:
    """The words of a query that are worth looking for, in their order.

    Args:
        holders: how many records of the namespace hold each word.
        commonest: words that more records hold are left out where rarer ones find something; None keeps all.

    Returns:
        The words that few enough records hold, and those that none does; where that would find nothing, the rarest of
        those that find something.
    """
    if commonest is None:
        return list(holders)
    kept = [word for word, count in holders.items() if count <= commonest]
    if any(holders[word] for word in kept):
        return kept
    common = [word for word, count in holders.items() if count]
    return [*kept, min(common, key=holders.__getitem__)] if common else kept
