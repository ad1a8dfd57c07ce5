"""Facts of a graph that two processes change at the same time."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import AsyncExitStack
from typing import Any

from support.agent_processes import running_agents
from support.chaos_proxy import ChaosProxy
from support.faulty_hubs import persistent_settings
from support.redis_process import RedisProcess

from chaos.faults import repeat_fault
from chaos.graph_agents import CAREFUL, CARELESS, GROUP, NAMESPACE, SETTINGS
from chaos.scenario import Scenario, Trial
from sharedmem import Hub
from sharedmem.embedded.binaries import find_server
from sharedmem.redis.scripts import scripts

_PATIENCE_S, _MOST_DELAY_S = 60.0, 0.02
_MOST_SHOWN, _PAIRS_OF_A_CONTROL = 5, 2


class GraphFacts(Scenario):
    """Rounds: a graph is made, checked and forgotten."""

    name = "graph"
    promise = "The facts of a graph follow from its claims, whichever hubs changed it at the same time."
    fault = "One process is slow and its replies are lost; it is killed in some of the rounds."
    work = "Two processes state facts of a type that is symmetric and functional at both ends (`married_to`)."
    control = "Steps of four processes that are not told when what they have read was changed; since short rounds may \
hide that, the record of one fact is removed, too."

    async def run(self, trial: Trial) -> None:
        modules = find_server().modules
        more: dict[str, Any] = {"loadmodule": modules["search"]} if "search" in modules else {}
        with RedisProcess(**more) as server:
            for _ in itertools.count():
                await asyncio.to_thread(server.tell, "FLUSHALL")
                async with ChaosProxy(server.url) as proxy:
                    await _round(trial, server, proxy)
                if trial.is_over:
                    break


async def _round(trial: Trial, server: RedisProcess, proxy: ChaosProxy) -> None:
    how = CARELESS if trial.is_control else CAREFUL
    async with AsyncExitStack() as stack:
        urls = (server.url, proxy.url) * (_PAIRS_OF_A_CONTROL if trial.is_control else 1)
        seeds = [trial.dice.randrange(10**6) for _ in urls]
        made = [
            running_agents(1, how, url, seed, module="chaos.graph_agents")
            for url, seed in zip(urls, seeds, strict=True)
        ]
        agents = [agent for one in made for agent in await stack.enter_async_context(one)]
        stack.enter_context(proxy.delayed(trial.dice.uniform(0.002, _MOST_DELAY_S)))
        async with repeat_fault(_lose_commits(trial, proxy)):
            if not trial.is_control and trial.dice.random() < 0.3:
                for _ in range(trial.dice.randrange(1, 10)):
                    await agents[1].line()
                agents[1].kill()
                trial.broke()
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    told = await asyncio.gather(*(agent.rest() for agent in agents))
                    trial.did(sum(len(lines) for lines in told))
            except TimeoutError:
                trial.judge([f"the processes had not ended after {_PATIENCE_S:g} s"])
    async with Hub.open(settings=persistent_settings(server.url, **SETTINGS)) as hub:
        if trial.is_control:
            await asyncio.to_thread(_forge, server)
        checked = await hub.store(NAMESPACE).graph.check(group_id=GROUP)
    trial.judge([f"seeds {seeds}: {problem}" for problem in checked.problems[:_MOST_SHOWN]])


def _forge(server: RedisProcess) -> None:
    """Remove the record of a fact behind the graph's back."""
    with server.client() as client:
        client.unlink(next(client.scan_iter(match=f"*{{{NAMESPACE}}}:{GROUP}/f/*", count=1000)))


async def _lose_commits(trial: Trial, proxy: ChaosProxy) -> None:
    commit = scripts()["graph_commit"].digest.encode()
    while True:
        proxy.lose_replies(commit, skip=trial.dice.randrange(5))
        await proxy.cut.wait()
        proxy.cut.clear()
        trial.broke()
