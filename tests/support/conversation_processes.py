"""Agents in processes of their own that append to one conversation, for tests that race them.

`python -m support.conversation_processes <what> <url> <rounds>` runs one of the functions below.
"""

from __future__ import annotations

import asyncio
import os
import sys

from sharedmem import Hub, SharedMemoryStore, VersionConflictError
from support.agent_processes import NAMESPACE
from support.faulty_hubs import persistent_settings
from support.printed_lines import print_line

TALK = "talk"


async def append(store: SharedMemoryStore, rounds: int) -> None:
    """Append pairs that belong together, each batch twice, as a caller does that lost its reply."""
    mine = os.getpid()
    for number in range(rounds):
        pair, ids = [[mine, number, "question"], [mine, number, "answer"]], [f"{mine}-{number}-{side}" for side in "qa"]
        for _ in range(2):
            await store.conversations.append(TALK, pair, entry_ids=ids)
    print_line(mine)


async def count(store: SharedMemoryStore, rounds: int) -> None:
    """Append the length of the log that was read, on the condition that the log has not grown since."""
    for _ in range(rounds):
        while True:
            page = await store.conversations.read(TALK, last=1)
            try:
                await store.conversations.append(TALK, [page.length], if_revision=page.revision)
            except VersionConflictError:
                continue
            break
    print_line("done")


_JOBS = {job.__name__: job for job in (append, count)}


async def _main(what: str, url: str, rounds: str) -> None:
    async with Hub.open(settings=persistent_settings(url)) as hub:
        print_line("ready")
        await asyncio.to_thread(sys.stdin.readline)
        await _JOBS[what](hub.store(NAMESPACE), int(rounds))


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
