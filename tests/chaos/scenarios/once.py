"""Work done once by processes that are killed and paused."""

from __future__ import annotations

import asyncio
import itertools
import signal

from support.once_processes import LEASE_S, OnceAgent, once_violations, running_once_agents
from support.redis_process import RedisProcess

from chaos.faults import kill_server, logging_server, repeat_fault, send_server_command
from chaos.scenario import Scenario, Trial

_AGENTS, _KEYS, _PATIENCE_S = 5, 20, 60.0
_KILL_SERVER_EVERY_S = 2.0


class Once(Scenario):
    """Rounds: agents go through the same keys, each asking for the result of one run."""

    name = "once"
    promise = "`once` stores one result a key, which all callers get; a runner that was overtaken stores none."
    fault = "Runners are killed and paused for longer than their lease, the server is killed with kill -9."
    work = "Five processes ask for the same keys at about the same time."
    control = "Processes that read, work and write, without `once`."

    async def run(self, trial: Trial) -> None:
        with logging_server() as server:
            await _rounds(trial, server)


async def _rounds(trial: Trial, server: RedisProcess) -> None:
    for round_ in itertools.count():
        await send_server_command(server, "FLUSHALL")
        await _round(trial, server, round_)
        if trial.is_over:
            break


async def _round(trial: Trial, server: RedisProcess, round_: int) -> None:
    how = "hope" if trial.is_control else "once"
    async with running_once_agents(_AGENTS, how, server.url, keys=_KEYS, seed=trial.dice.randrange(10**6)) as running:
        # Only now: an agent that opens its hub while the server is dead is told so, and ends.
        async with repeat_fault(_harm(trial, running), kill_server(trial, server, every_s=_KILL_SERVER_EVERY_S)):
            listening = asyncio.gather(*(agent.listen() for agent in running))
            try:
                await asyncio.wait_for(listening, _PATIENCE_S)
            except TimeoutError:
                trial.judge([f"round {round_} had not ended after {_PATIENCE_S:g} s"])
        events = [event for agent in running for event in agent.events]
    trial.did(len(events))
    trial.judge(once_violations(events))


async def _harm(trial: Trial, running: list[OnceAgent]) -> None:
    """Pause agents for longer than a lease, and kill some; two survive."""
    may_die = list(running[2:])
    while True:
        await trial.pause(0.1, 0.5)
        victim = trial.dice.choice(running)
        if victim in may_die and trial.dice.random() < 0.4:
            may_die.remove(victim)
            victim.signal(signal.SIGKILL)
        else:
            victim.signal(signal.SIGSTOP)
            await asyncio.sleep(trial.dice.uniform(1.0, 2.0) * LEASE_S)
            victim.signal(signal.SIGCONT)
        trial.broke()
