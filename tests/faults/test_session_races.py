"""Processes on one session of the OpenAI Agents SDK lose nothing, and mix nothing."""

from __future__ import annotations

import asyncio
from typing import Any

from support.agent_processes import NAMESPACE, running_agents
from support.example_budget import example_count
from support.faulty_hubs import persistent_settings
from support.redis_process import RedisProcess
from support.session_processes import SESSION

from sharedmem import Hub
from sharedmem.integrations.openai_agents import SharedMemSession

_MODULE = "support.session_processes"
_ROUNDS = example_count(60, thorough=150)


async def test_two_processes_on_one_session_lose_nothing_and_keep_batches_together(bare_server: RedisProcess) -> None:
    async with running_agents(2, "add", bare_server.url, _ROUNDS, module=_MODULE) as agents:
        told = await asyncio.gather(*(agent.rest() for agent in agents))
    assert all(told)

    async with Hub.open(settings=persistent_settings(bare_server.url)) as hub:
        items: list[Any] = list(await SharedMemSession(SESSION, hub.store(NAMESPACE)).get_items())

    numbers: dict[str, list[int]] = {}
    for question, answer in zip(items[::2], items[1::2], strict=True):
        process, number, _ = question["content"].split()
        assert answer["content"] == f"{process} {number} answer"
        numbers.setdefault(process, []).append(int(number))
    assert list(numbers.values()) == [list(range(_ROUNDS))] * 2
