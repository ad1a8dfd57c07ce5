"""Readers of the change feed that are slow, are cut off, and find that changes were trimmed meanwhile."""

from __future__ import annotations

import asyncio
import itertools
from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from redis.exceptions import RedisError
from support.chaos_proxy import ChaosProxy
from support.closed_iterators import closed_at_exit
from support.faulty_hubs import persistent_settings
from support.footprint import changes_of
from support.redis_process import RedisProcess
from support.waiting import wait_until

from chaos.faults import kill_server, logging_server, repeat_fault
from chaos.scenario import Scenario, Trial
from sharedmem import Change, Gap, Hub, SharedMemoryStore

NAMESPACE = "feed"
_KEPT, _WRITERS, _READERS, _BURST = 100, 3, 3, 60
_RESTS, _LEAVES = 0.02, 0.005
_PATIENCE_S, _RESET_EVERY_S, _KILL_SERVER_EVERY_S = 60.0, 0.4, 4.0


class Seen(NamedTuple):
    """What a reader was given: a change, or the news that some are missing."""

    version: int
    is_gap: bool


class Feed(Scenario):
    """Readers follow one namespace from the beginning until all has been written."""

    name = "feed"
    promise = "A reader of the change feed gets each change once and in order, or an explicit gap where some are gone."
    fault = "Readers are slower than writers, so that changes are trimmed; connections are reset, readers go away and \
come back with their cursor, the server is killed with kill -9."
    work = "Three writers write bursts; three readers watch."
    control = "Readers of the plain stream, who go on after the last entry that they have seen."

    async def run(self, trial: Trial) -> None:
        with logging_server() as server:
            async with (
                ChaosProxy(server.url) as proxy,
                Hub.open(settings=persistent_settings(server.url, change_log_length=_KEPT)) as hub,
                Hub.open(settings=persistent_settings(proxy.url, change_log_length=_KEPT)) as shaken,
            ):
                readers = [_Reader(trial, shaken.store(NAMESPACE), server) for _ in range(_READERS)]
                rages = (
                    _reset(trial, proxy),
                    kill_server(trial, server, every_s=_KILL_SERVER_EVERY_S),
                    *(reader.read() for reader in readers),
                )
                async with repeat_fault(*rages):
                    written = await _write(trial, hub.store(NAMESPACE))
                    await _wait(trial, readers, written[-1])
        for reader in readers:
            trial.judge(find_missed_changes(written, reader.seen))


async def _write(trial: Trial, store: SharedMemoryStore) -> list[int]:
    """Write bursts until the trial is over; returns all versions, in order."""
    versions: list[int] = []
    for burst in itertools.count():
        named = [f"k{burst % 7}-{number}" for number in range(_BURST)]
        for part in range(_WRITERS):
            versions += await asyncio.gather(*(store.write(key, burst) for key in named[part::_WRITERS]))
        trial.did(_BURST)
        if trial.is_over:
            return sorted(versions)
        await trial.pause(0, 0.2)
    raise AssertionError


async def _wait(trial: Trial, readers: Sequence[_Reader], last: int) -> None:
    def are_done() -> bool:
        return all(reader.seen and reader.seen[-1].version >= last for reader in readers)

    for reader in readers:
        reader.is_slow = False
    try:
        await wait_until(are_done, description="every reader has seen the last change", within_s=_PATIENCE_S)
    except AssertionError as late:
        trial.judge([str(late)])


async def _reset(trial: Trial, proxy: ChaosProxy) -> None:
    while True:
        await asyncio.sleep(trial.dice.uniform(0, 2 * _RESET_EVERY_S))
        trial.broke(proxy.reset_all())


class _Reader:
    """One who follows the feed with pauses, and what it was given."""

    def __init__(self, trial: Trial, store: SharedMemoryStore, server: RedisProcess) -> None:
        self._trial, self._store, self._server = trial, store, server
        self.seen: list[Seen] = []
        self.is_slow = True

    async def read(self) -> None:
        """Follow for ever; go away now and then, and come back with the last cursor."""
        cursor = "0"
        while True:
            changes = self._plain(cursor) if self._trial.is_control else self._store.watch(since=cursor)
            async with closed_at_exit(changes) as followed:
                async for change in followed:
                    cursor = change.cursor
                    self.seen.append(Seen(change.version, isinstance(change, Gap)))
                    if self.is_slow and self._trial.dice.random() < _RESTS:
                        await asyncio.sleep(self._trial.dice.uniform(0, 0.5))
                    if self._trial.dice.random() < _LEAVES:
                        break

    async def _plain(self, cursor: str) -> AsyncIterator[Change]:
        """What a reader of the stream gets as the next entries."""
        while True:
            entries: Any = []
            with suppress(RedisError, OSError):
                entries = await asyncio.to_thread(self._entries, cursor)
            for change in changes_of(entries):
                cursor = change.cursor
                yield change
            await asyncio.sleep(0.01)

    def _entries(self, cursor: str) -> Any:
        with self._server.client() as client:
            return client.xrange(f"sm:{{{NAMESPACE}}}:$changes", f"({cursor}", "+", count=20)


def find_missed_changes(written: Sequence[int], seen: Sequence[Seen]) -> list[str]:
    """What is wrong: a change came twice or out of order, or some are missing and no gap says so.

    Args:
        written: the versions of all changes, in order.
        seen: what one reader was given, from the first change on.
    """
    found, last, is_told = [], 0, False
    for version, is_gap in seen:
        if is_gap:
            is_told = True
            continue
        if version <= last:
            found.append(f"change {version} came after {last}")
        between = written[bisect_right(written, last) : bisect_left(written, version)]
        if between and not is_told:
            found.append(f"{len(between)} changes between {last} and {version} are missing without a gap")
        last, is_told = max(last, version), False
    return found
