"""Changing a group: in turn within one hub, and again when another hub was faster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from sharedmem.errors import ConflictError
from sharedmem.knowledge.graph.records import Behind
from sharedmem.knowledge.minds import Minds

_MOST_TRIES = 200
T = TypeVar("T")


class Turns:
    """Whose turn it is to change a group of a namespace, among the tasks of one hub: they would only collide."""

    def __init__(self, minds: Minds) -> None:
        self._minds = minds
        self._locks: dict[str, asyncio.Lock] = {}
        self._users: dict[str, int] = {}

    @classmethod
    def of(cls, minds: Minds, namespace: str) -> Turns:
        """The one that all stores of a namespace share in this hub."""
        return minds.shared(cls, namespace, lambda: cls(minds))

    async def until_written(self, group: str, attempt: Callable[[], Awaitable[T | Behind]]) -> T:
        """What an attempt gives as soon as nobody else was faster.

        Args:
            group: which is changed.
            attempt: looks, decides and commits; `Behind` when it has to look again.

        Raises:
            ConflictError: somebody else was faster again and again.
        """
        async with self._turn(group):
            for tries, pause in enumerate(self._minds.line.pauses()):
                outcome = await attempt()
                if not isinstance(outcome, Behind):
                    return outcome
                self._minds.counters.increment("graph_conflicts")
                if tries >= _MOST_TRIES:
                    break
                # The first time at once: who was faster is done by now.
                await self._minds.clock.sleep(pause if tries else 0)
        advice = f"others change the same entities of group {group!r} without end; try again later"
        raise ConflictError(advice)

    @asynccontextmanager
    async def _turn(self, group: str) -> AsyncIterator[None]:
        lock = self._locks.setdefault(group, asyncio.Lock())
        self._users[group] = self._users.get(group, 0) + 1
        try:
            async with lock:
                yield
        finally:
            self._users[group] -= 1
            if not self._users[group]:
                del self._locks[group], self._users[group]
