"""Conditional writes of eight processes that are killed and frozen have an order that explains what all heard."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from support.agent_processes import AgentProcess, running_agents
from support.lincheck import Found, Operation, Refused, Written, violations
from support.random_clients import KEYS, parse_history
from support.redis_process import RedisProcess

PROCESSES, KILLED, FROZEN = 8, 2, 3
FROZEN_FOR_S = 0.3
CALLS_BEFORE = 60


async def history_of(what: str, server: RedisProcess) -> list[Operation]:
    """What eight processes sent and received; some were killed and some frozen in the middle."""
    async with running_agents(PROCESSES, what, server.url, module="support.random_clients") as clients:
        told = await asyncio.gather(*(some_lines(client) for client in clients))
        for client in clients[:KILLED]:
            client.kill()
        await asyncio.gather(*(freeze(client) for client in clients[KILLED : KILLED + FROZEN]))
        rest = await asyncio.gather(*(client.rest() for client in clients))
    return [operation for pair in zip(told, rest, strict=True) for operation in parse_history(pair[0] + pair[1])]


async def some_lines(client: AgentProcess) -> list[list[str]]:
    return [await client.line() for _ in range(CALLS_BEFORE)]


async def freeze(client: AgentProcess) -> None:
    with client.frozen():
        await asyncio.sleep(FROZEN_FOR_S)


def outcomes(history: Sequence[Operation]) -> Counter[type]:
    return Counter(type(operation.outcome) for operation in history)


async def test_conditional_writes_of_killed_and_frozen_processes_are_linearizable(bare_server: RedisProcess) -> None:
    history = await history_of("careful", bare_server)

    assert violations(history) == []
    heard = outcomes(history)
    assert min(heard[kind] for kind in (Written, Refused, Found)) > 50
    assert len({operation.key for operation in history}) == KEYS


async def test_control_writes_that_only_looked_at_the_version_before_are_found_out(bare_server: RedisProcess) -> None:
    assert violations(await history_of("careless", bare_server))
