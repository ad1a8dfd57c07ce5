"""Processes that contend for leases, for tests that kill and freeze them: `support.agent_processes` with other work.

They write to a resource that checks tokens (`support.holder_history`), on a connection of their own, and print what
they see.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Callable

from redis import Redis

from sharedmem import Hub, Lease, LockLostError, SharedMemoryStore
from support.agent_processes import NAMESPACE
from support.faulty_hubs import persistent_settings
from support.holder_history import CHECKING
from support.printed_lines import print_line

HIGHEST, JOURNAL = "resource:highest", "resource:journal"
LEASE_S = 0.5
Write = Callable[[int], bool]


async def take_lock_forever(store: SharedMemoryStore, write: Write) -> None:
    """Take the lock, work under it, and give it back, for ever."""
    while True:
        asked_at = time.monotonic()
        try:
            async with store.lock("it", lease=LEASE_S) as lease:
                got_at = time.monotonic()
                await _work(lease, write, f"{asked_at} {got_at}")
        except LockLostError as error:
            print_line("lost", error.token)


async def _work(lease: Lease, write: Write, times: str) -> None:
    for _ in range(random.randrange(1, 4)):
        seen_at = time.monotonic()
        if lease.is_held():
            print_line("held", lease.token, times, seen_at)
        # As a careless program does: without another look at the lease, and without a pause for the event loop.
        time.sleep(random.uniform(0, 0.01))  # noqa: ASYNC251  # holds up the loop on purpose
        write(lease.token)
        await asyncio.sleep(random.uniform(0, 0.01))


async def hold_lock(store: SharedMemoryStore, _: Write) -> None:
    """Take the lock and keep it."""
    async with store.lock("it", lease=LEASE_S) as lease:
        print_line("holds", lease.token)
        await asyncio.Event().wait()


async def lead_and_write(store: SharedMemoryStore, write: Write) -> None:
    """Lead, and write once when told so, without looking whether it still leads."""
    async with store.leader("boss", lease=LEASE_S) as candidacy:
        token = await candidacy.elected()
        print_line("leads", token)
        await asyncio.to_thread(sys.stdin.readline)
        print_line("wrote", int(write(token)))
        await asyncio.Event().wait()


_JOBS = {"contend": take_lock_forever, "hold": hold_lock, "lead": lead_and_write}


async def _main(what: str, url: str, manner: str) -> None:
    with Redis.from_url(url) as resource:
        checking = resource.register_script(CHECKING)

        def write(token: int) -> bool:
            return bool(checking(keys=[HIGHEST, JOURNAL], args=[token, "careless" if manner == "1" else "careful"]))

        async with Hub.open(settings=persistent_settings(url)) as hub:
            print_line("ready")
            await asyncio.to_thread(sys.stdin.readline)
            await _JOBS[what](hub.store(NAMESPACE), write)


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
