"""Agents that state facts of one group: `python -m chaos.graph_agents <careful|careless> <url> <seed>`.

A careless agent's steps are never told that what they have read has changed meanwhile. Each prints a line for a step,
and `done` at the end.
"""

from __future__ import annotations

import asyncio
import random
import sys
from contextlib import suppress
from typing import Any

from support.faulty_hubs import persistent_settings
from support.graph_rows import day
from support.printed_lines import print_line

from sharedmem import ConflictError, Hub
from sharedmem.graph.graph import Graph
from sharedmem.graph.protocol import GraphBackend
from sharedmem.graph.records import CommitReceipt, CommitRequest, StaleGroup

NAMESPACE, GROUP = "weddings", "team:registry"
CAREFUL, CARELESS = "careful", "careless"
PEOPLE = ("Adam Ash", "Berta Beck", "Carl Cole", "Dora Dunn", "Emil Eck")
SETTINGS = {"embedder": "hashing", "durable_url": "none", "graph_summary_every": 0, "response_timeout_s": 5.0}
_STEPS, _DAYS, _FAR, _CARELESS_S, _DELAY_S = 12, 20, 2**62, 0.5, 0.2


class _UnguardedBackend:
    """A backend that takes a step for newer than every change."""

    def __init__(self, backend: GraphBackend) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> object:
        return getattr(self._backend, name)

    async def commit(self, group: str, changes: CommitRequest, *, seen: int) -> CommitReceipt | StaleGroup:
        # A group that is not there yet has no changes; to it all are careful.
        if not seen:
            return await self._backend.commit(group, changes, seen=seen)
        await asyncio.sleep(_DELAY_S)  # what it has read grows old
        with suppress(TimeoutError, RecursionError):
            async with asyncio.timeout(_CARELESS_S):
                return await self._backend.commit(group, changes, seen=_FAR)
        # A record that is there already cannot be made once more, however careless one is.
        return await self._backend.commit(group, changes, seen=seen)


async def _state_facts(graph: Graph, dice: random.Random) -> None:
    """Marry people to each other: the type is symmetric, and functional at both ends."""
    for number in range(_STEPS):
        first, second = dice.sample(PEOPLE, 2)
        starts = dice.randrange(_DAYS)
        ends = starts + dice.randrange(1, 20) if dice.random() < 0.3 else None
        try:
            await graph.add_relationship(
                *(first, "married_to", second),
                group_id=GROUP,
                valid_from=day(starts),
                valid_to=None if ends is None else day(ends),
            )
        except ConflictError as refused:
            print_line(number, type(refused).__name__)
        else:
            print_line(number)


async def _main(how: str, url: str, seed: str) -> None:
    async with Hub.open(settings=persistent_settings(url, **SETTINGS)) as hub:
        graph = hub.store(NAMESPACE, actor=f"agent-{seed}").graph
        if how == CARELESS:
            unguarded: Any = _UnguardedBackend(graph.backend)
            graph = graph.using(backend=unguarded)
        print_line("ready")
        await asyncio.to_thread(sys.stdin.readline)
        await _state_facts(graph, random.Random(seed))
    print_line("done")


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
