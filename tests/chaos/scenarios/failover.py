"""A master that dies, and its replica that takes over."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from support.faulty_hubs import persistent_settings
from support.topologies import SentinelGroup, sentinel_group
from support.waiting import wait_until

from chaos.faults import repeat_fault
from chaos.scenario import Scenario, Trial
from sharedmem import Hub, SharedMemoryStore, UnavailableError

_WRITERS, _KEYS, _PATIENCE_S = 3, 5, 45.0


@dataclass
class Log:
    """What the only writer of a key has tried, in order, and how much of it a replica is known to have."""

    tried: list[int] = field(default_factory=list)
    acknowledged: int = -1
    replicated: int = -1
    versions: list[int] = field(default_factory=list)


class Failover(Scenario):
    """Rounds: a group of its own each, whose master is killed while writers go on."""

    name = "failover"
    promise = "What the replica had when the master died is there after the failover, and versions go on rising."
    fault = "The master is killed with kill -9 while writers write; sentinels make its replica master."
    work = "Three writers write values under keys of their own, before, during and after the failover."
    control = "A replica that has lost what it had."

    async def run(self, trial: Trial) -> None:
        while True:
            async with sentinel_group() as group, Hub.open(settings=persistent_settings(group.url)) as hub:
                await _round(trial, group, hub)
            if trial.is_over:
                break


async def _round(trial: Trial, group: SentinelGroup, hub: Hub) -> None:
    store, logs = hub.store("failover"), [Log() for _ in range(_WRITERS * _KEYS)]
    async with repeat_fault(*(_write(trial, store, logs, writer) for writer in range(_WRITERS))):
        await trial.pause(0.3, 1.0)
        had = [log.acknowledged for log in logs]
        if await asyncio.to_thread(group.catch_up) != 1:
            return  # nothing is known of the replica
        for log, number in zip(logs, had, strict=True):
            log.replicated = number
        await trial.pause(0, 0.2)
        group.master.kill()
        trial.broke()
        try:
            await wait_until(group.has_failed_over, description="the replica has taken over", within_s=_PATIENCE_S)
        except AssertionError as late:
            trial.judge([str(late)])
            return
        if trial.is_control:
            await asyncio.to_thread(group.replica.tell, "FLUSHALL")
        else:
            await _gone_on(trial, logs)
    found = [await store.read(f"k{number}") for number in range(len(logs))]
    trial.judge(
        [sentence for number, log in enumerate(logs) for sentence in find_lost_writes(f"k{number}", log, found[number])]
    )


async def _write(trial: Trial, store: SharedMemoryStore, logs: Sequence[Log], writer: int) -> None:
    for number in itertools.count():
        at = writer * _KEYS + number % _KEYS
        log = logs[at]
        log.tried.append(number)
        with suppress(UnavailableError):
            log.versions.append(await store.write(f"k{at}", number))
            log.acknowledged = number
        trial.did()


async def _gone_on(trial: Trial, logs: Sequence[Log]) -> None:
    """Return when every key was written once more."""
    before = [log.acknowledged for log in logs]

    def have_all() -> bool:
        return all(log.acknowledged > number for log, number in zip(logs, before, strict=True))

    try:
        await wait_until(have_all, description="every key was written after the failover", within_s=_PATIENCE_S)
    except AssertionError as late:
        trial.judge([str(late)])


def find_lost_writes(key: str, log: Log, found: object) -> list[str]:
    """What is wrong with a key: less than was replicated, a value that was never written, or versions that fall."""
    sentences = []
    if log.replicated >= 0 and (not isinstance(found, int) or found < log.replicated):
        sentences.append(f"{key} is {found}; {log.replicated} was replicated")
    if found is not None and found not in log.tried:
        sentences.append(f"{key} is {found}, which was never written")
    if log.versions != sorted(set(log.versions)):
        sentences.append(f"the versions of {key} do not rise")
    return sentences
