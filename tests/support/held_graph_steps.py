"""A step on a graph that is held before one of its calls of the backend, while another step is made."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from sharedmem.graph.graph import Graph
from sharedmem.graph.protocol import GraphBackend

_HELD = frozenset({"look", "commit", "lines_of", "edges", "merges"})


class HeldBackend:
    """A backend that waits once, before its call number `at`, until it is let go.

    Args:
        backend: that does the work.
        at: number of the call, from 0; a step that makes fewer is not held.
    """

    def __init__(self, backend: GraphBackend, at: int) -> None:
        self._backend = backend
        self._left = at
        self.is_held = asyncio.Event()
        self.stop_renewing = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._backend, name)
        return self._holding(call) if name in _HELD else call

    def _holding(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def held(*args: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left == -1:
                self.is_held.set()
                await self.stop_renewing.wait()
            return await call(*args, **named)

        return held


def hold_backend(graph: Graph, at: int) -> tuple[Graph, HeldBackend]:
    """The same graph on a backend that waits before its call number `at`."""
    backend: Any = HeldBackend(graph.backend, at)
    return graph.using(backend=backend), backend


async def run_interleaved(
    graph: Graph, at: int, step: Callable[[Graph], Awaitable[object]], other: Callable[[], Awaitable[object]]
) -> None:
    """Begin a step, make another one when the first comes to its call number `at`, and let the first one end."""
    holding, backend = hold_backend(graph, at)
    first = asyncio.ensure_future(step(holding))
    reached = asyncio.ensure_future(backend.is_held.wait())
    await asyncio.wait([first, reached], return_when=asyncio.FIRST_COMPLETED)
    await other()
    backend.stop_renewing.set()
    reached.cancel()
    await first
