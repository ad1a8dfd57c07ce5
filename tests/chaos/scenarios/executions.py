"""Executions of plans by processes that hang, are paused and die."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from contextlib import suppress

from support.agent_processes import AgentProcess
from support.chaos_proxy import ChaosProxy
from support.executor_processes import (
    LEASE_S,
    NAMESPACE,
    ExecutorEvent,
    find_double_starts,
    find_order_violations,
    parse_events,
    start_executor,
)
from support.faulty_hubs import persistent_settings
from support.redis_process import RedisProcess
from support.waiting import wait_until

from chaos.faults import kill_server, logging_server, lose_replies, repeat_fault, send_server_command
from chaos.scenario import Scenario, Trial
from sharedmem import Hub

_EXECUTORS, _PLANS, _PATIENCE_S = 4, 15, 60.0
_KILL_SERVER_EVERY_S = 5.0


class Executions(Scenario):
    """Rounds: executors race for the plans of two sessions until all that may be taken over have ended."""

    name = "executions"
    promise = "A plan under policy `never` is started once; under `takeover` only the newest claim can end it."
    fault = "Executors hang, are killed and paused for longer than their lease, their replies are lost, the server is \
killed with kill -9."
    work = "Four processes call `begin_execution` and `finish` for the same plans."
    control = "Executors that check, execute and mark, without a claim."

    async def run(self, trial: Trial) -> None:
        with logging_server() as server:
            # A hub that is opened while the server is dead is told so: this one is there before.
            async with ChaosProxy(server.url) as proxy, Hub.open(settings=persistent_settings(server.url)) as hub:
                rages = (
                    lose_replies(trial, proxy, b"EVALSHA"),
                    kill_server(trial, server, every_s=_KILL_SERVER_EVERY_S),
                )
                async with repeat_fault(*rages):
                    await _rounds(trial, server, hub, proxy.url)


async def _rounds(trial: Trial, server: RedisProcess, hub: Hub, url: str) -> None:
    for round_ in itertools.count():
        await send_server_command(server, "FLUSHALL")
        trial.judge(_judged(await _round(trial, hub, url, round_), trial))
        if trial.is_over:
            break


def _judged(history: list[ExecutorEvent], trial: Trial) -> list[str]:
    trial.did(len(history))
    if trial.is_control:
        return find_double_starts([event for event in history if event.session == "careless"])
    careful = [event for event in history if event.session != "careless"]
    return find_double_starts([event for event in careful if event.session == "never"]) + find_order_violations(careful)


async def _round(trial: Trial, hub: Hub, url: str, round_: int) -> list[ExecutorEvent]:
    sessions = ("careless",) if trial.is_control else ("never", "takeover")
    log = hub.store(NAMESPACE).decisions
    for session in sessions:
        for number in range(_PLANS):
            await log.save_plan(session, "BTC", "BUY", 0.5, f"reason {round_} {number}")
    executors = _Executors(trial, url)

    async def have_all_ended() -> bool:
        return (await log.get_execution_stats(sessions[-1])).total_executions >= _PLANS

    try:
        await executors.start()
        async with repeat_fault(executors.disturb()):
            await wait_until(have_all_ended, description="all have ended", within_s=_PATIENCE_S)
    except AssertionError:
        trial.judge([f"round {round_}: not every plan had ended after {_PATIENCE_S:g} s"])
    return await executors.end()


class _Executors:
    """Executors that are paused, killed and replaced, and what they printed."""

    def __init__(self, trial: Trial, url: str) -> None:
        self._trial, self._url = trial, url
        self._at_work: list[AgentProcess] = []
        self._all: list[AgentProcess] = []
        self._output: list[asyncio.Task[list[list[str]]]] = []

    async def start(self) -> None:
        for child in await asyncio.gather(*(self._start() for _ in range(_EXECUTORS))):
            child.go()

    async def disturb(self) -> None:
        """Kill one and pause another, again and again."""
        while True:
            await self._trial.pause(0.3, 0.8)
            victim, sleeper = self._trial.dice.sample(self._at_work, 2)
            _signal(sleeper, signal.SIGSTOP)
            self._at_work.remove(victim)
            victim.kill()
            (await self._start()).go()
            await asyncio.sleep(self._trial.dice.uniform(1.0, 2.0) * LEASE_S)
            _signal(sleeper, signal.SIGCONT)
            self._trial.broke(2)

    async def end(self) -> list[ExecutorEvent]:
        """Kill them; what all of them did."""
        for child in self._at_work:
            child.kill()
        lines = [line for printed in await asyncio.gather(*self._output) for line in printed]
        for child in self._all:
            await child.end()
        return parse_events(lines)

    async def _start(self) -> AgentProcess:
        child = None
        while child is None:
            with suppress(AssertionError):  # it was to open its hub while the server was dead
                child = await start_executor(self._url, self._trial.dice.randrange(10**9))
        self._at_work.append(child)
        self._all.append(child)
        self._output.append(asyncio.create_task(child.rest()))
        return child


def _signal(child: AgentProcess, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(child.pid, number)
