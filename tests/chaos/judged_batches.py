"""Batches of calls at random, each judged by the checker of histories."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from functools import partial

from support.lincheck import History, violations
from support.random_clients import CountingClient, RandomClient

from chaos.scenario import Trial
from sharedmem import Hub

_CLIENTS, _KEYS = 6, 15
_MOST_STATES = 300_000
"""Of one key: a few seconds of the judge's time."""


async def run_judged_batches(trial: Trial, hubs: Sequence[Hub]) -> None:
    """Play batch after batch until the trial is over."""
    for number in itertools.count():
        await run_judged_batch(trial, hubs, f"batch-{number}")
        if trial.is_over:
            return


async def run_judged_batch(trial: Trial, hubs: Sequence[Hub], namespace: str, *, calls: int = 120) -> None:
    """Let clients read, write, delete, count and append in a namespace of their own.

    Args:
        calls: of each client.
    """
    history = History()
    clients = [
        (RandomClient, CountingClient)[number % 2](
            hubs[number % len(hubs)].store(namespace), history, trial.dice.randrange(10**9), keys=_KEYS, calls=calls
        )
        for number in range(_CLIENTS)
    ]
    await asyncio.gather(*(client.work() for client in clients))
    undecided: list[str] = []
    found = await asyncio.to_thread(
        partial(violations, history.operations, most_states=_MOST_STATES, undecided=undecided)
    )
    # What the judge gave up on does not count as tried: a trial of which nothing counts fails.
    trial.did(sum(operation.key not in undecided for operation in history.operations))
    trial.judge(list(map(str, found)))
