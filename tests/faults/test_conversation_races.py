"""Processes that write one conversation lose nothing, mix nothing, and store nothing twice."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from support.agent_processes import NAMESPACE, running_agents
from support.conversation_processes import TALK
from support.faulty_hubs import persistent_settings
from support.redis_process import RedisProcess

from sharedmem import Hub

_MODULE = "support.conversation_processes"
_ROUNDS = 150


async def test_pairs_of_four_processes_stay_together_and_are_stored_once(bare_server: RedisProcess) -> None:
    async with running_agents(4, "append", bare_server.url, _ROUNDS, module=_MODULE) as agents:
        told = await asyncio.gather(*(agent.rest() for agent in agents))
    assert all(told)

    async with Hub.open(settings=persistent_settings(bare_server.url)) as hub:
        page = await hub.store(NAMESPACE).conversations.read(TALK, limit=10_000)

    values = [entry.value for entry in page.entries]
    numbers = defaultdict(list)
    for question, answer in zip(values[::2], values[1::2], strict=True):
        assert (question[2], answer[2]) == ("question", "answer")
        assert question[:2] == answer[:2]
        numbers[question[0]].append(question[1])
    assert list(numbers.values()) == [list(range(_ROUNDS))] * 4


async def test_of_processes_that_append_on_a_revision_none_overlooks_another(bare_server: RedisProcess) -> None:
    async with running_agents(3, "count", bare_server.url, 40, module=_MODULE) as agents:
        told = await asyncio.gather(*(agent.rest() for agent in agents))
    assert told == [[["done"]]] * 3

    async with Hub.open(settings=persistent_settings(bare_server.url)) as hub:
        page = await hub.store(NAMESPACE).conversations.read(TALK, limit=1000)

    assert [entry.value for entry in page.entries] == list(range(120))
