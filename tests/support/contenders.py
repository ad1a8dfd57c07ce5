"""Processes that contend for leases, for tests that kill and freeze them: `support.children` with other work.

They write to a resource that checks tokens (`support.history`), on a connection of their own, and print what they see.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Callable

from redis import Redis

from sharedmem import Hub, Lease, LockLostError, SharedMemoryStore
from support.children import NAMESPACE
from support.faulty_hubs import persistent
from support.history import CHECKING

HIGHEST, JOURNAL = "resource:highest", "resource:journal"
LEASE_S = 0.5
Write = Callable[[int], bool]


async def contend(store: SharedMemoryStore, write: Write) -> None:
    """Take the lock, work under it, and give it back, for ever."""
    while True:
        asked_at = time.monotonic()
        try:
            async with store.lock("it", lease=LEASE_S) as lease:
                got_at = time.monotonic()
                await _work(lease, write, f"{asked_at} {got_at}")
        except LockLostError as error:
            _say("lost", error.token)


async def _work(lease: Lease, write: Write, times: str) -> None:
    for _ in range(random.randrange(1, 4)):
        seen_at = time.monotonic()
        if lease.is_held():
            _say("held", lease.token, times, seen_at)
        # As a careless program does: without another look at the lease, and without a pause for the event loop.
        time.sleep(random.uniform(0, 0.01))  # noqa: ASYNC251  # holds up the loop on purpose
        write(lease.token)
        await asyncio.sleep(random.uniform(0, 0.01))


async def hold(store: SharedMemoryStore, _: Write) -> None:
    """Take the lock and keep it."""
    async with store.lock("it", lease=LEASE_S) as lease:
        _say("holds", lease.token)
        await asyncio.Event().wait()


async def lead(store: SharedMemoryStore, write: Write) -> None:
    """Lead, and write once when told so, without looking whether it still leads."""
    async with store.leader("boss", lease=LEASE_S) as candidacy:
        token = await candidacy.elected()
        _say("leads", token)
        await asyncio.to_thread(sys.stdin.readline)
        _say("wrote", int(write(token)))
        await asyncio.Event().wait()


_JOBS = {job.__name__: job for job in (contend, hold, lead)}


def _say(*words: object) -> None:
    sys.stdout.write(f"{' '.join(map(str, words))}\n")
    sys.stdout.flush()


async def _main(what: str, url: str, manner: str) -> None:
    with Redis.from_url(url) as resource:
        checking = resource.register_script(CHECKING)

        def write(token: int) -> bool:
            return bool(checking(keys=[HIGHEST, JOURNAL], args=[token, "careless" if manner == "1" else "careful"]))

        async with Hub.open(settings=persistent(url)) as hub:
            _say("ready")
            await asyncio.to_thread(sys.stdin.readline)
            await _JOBS[what](hub.store(NAMESPACE), write)


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
