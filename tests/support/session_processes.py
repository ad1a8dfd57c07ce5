"""Processes that add items to one session of the OpenAI Agents SDK, for tests that race them.

`python -m support.session_processes add <url> <rounds>` is one of them.
"""

from __future__ import annotations

import asyncio
import os
import sys

from sharedmem import Hub
from sharedmem.integrations.openai_agents import SharedMemSession
from support.agent_processes import NAMESPACE
from support.faulty_hubs import persistent_settings
from support.printed_lines import print_line

SESSION = "talk"


async def add(session: SharedMemSession, rounds: int) -> None:
    """Add pairs that belong together."""
    mine = os.getpid()
    for number in range(rounds):
        question, answer = f"{mine} {number} question", f"{mine} {number} answer"
        await session.add_items([{"role": "user", "content": question}, {"role": "assistant", "content": answer}])
    print_line(mine)


async def _main(_what: str, url: str, rounds: str) -> None:
    async with Hub.open(settings=persistent_settings(url)) as hub:
        session = SharedMemSession(SESSION, hub.store(NAMESPACE))
        print_line("ready")
        await asyncio.to_thread(sys.stdin.readline)
        await add(session, int(rounds))


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
