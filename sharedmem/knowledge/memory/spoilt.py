"""Memories that cannot be read since some other client has written there: passed over, and told."""

from __future__ import annotations

import logging

from sharedmem.knowledge.minds import Minds
from sharedmem.telemetry import Counters

_log = logging.getLogger(__name__)
_MOST_NAMED = 1000


class Spoilt:
    """What this hub has come across in one namespace.

    Args:
        namespace: whose memories.
        counters: get `memory_unreadable` for each time.
    """

    def __init__(self, namespace: str, counters: Counters) -> None:
        self._namespace = namespace
        self._counters = counters
        # In the order in which they were met.
        self._ids: dict[str, None] = {}

    def note(self, id_: str) -> None:
        """A memory could not be read; the first time it is logged."""
        self._counters.increment("memory_unreadable")
        if id_ not in self._ids and len(self._ids) < _MOST_NAMED:
            self._ids[id_] = None
            _log.warning("memory %r of %s cannot be read: some other client has written there", id_, self._namespace)

    def problems(self) -> list[str]:
        """What is wrong, in sentences."""
        if not self._ids:
            return []
        first = next(iter(self._ids))
        found = f"{len(self._ids)} memories of {self._namespace!r} could not be read, such as {first!r}"
        return [f"{found}: some other client has written there; put them back from a backup, or delete their keys"]


def spoilt_of(minds: Minds, namespace: str) -> Spoilt:
    """What is known of a namespace; all stores of a hub share it."""
    return minds.shared(Spoilt, namespace, lambda: Spoilt(namespace, minds.counters))
