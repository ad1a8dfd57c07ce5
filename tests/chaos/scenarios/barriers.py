"""Barriers whose parties lose replies and whose server is killed."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from support.chaos_proxy import ChaosProxy

from chaos.faults import kill_server, logging_server, lose_replies, repeat_fault
from chaos.hubs import open_hubs
from chaos.scenario import Scenario, Trial
from sharedmem import Barrier, BarrierError

_PARTIES, _HUBS = 5, 3
_KILL_SERVER_EVERY_S, _TIMEOUT_S = 4.0, 30.0


class Passage(NamedTuple):
    """One party that went through."""

    party: int
    generation: int
    position: int
    came_at: float
    went_at: float


class Barriers(Scenario):
    """Parties meet at one barrier again and again."""

    name = "barriers"
    promise = "Nobody passes a barrier before all have come, and each opening lets each of them through once."
    fault = "Replies to waiters are lost, connections are reset, the server is killed with kill -9."
    work = "Five parties of three hubs wait for each other, again and again."
    control = "Hubs whose repeated calls carry a new operation id each time: who comes once counts twice."

    async def run(self, trial: Trial) -> None:
        passed: list[Passage] = []
        with logging_server() as server:
            async with (
                ChaosProxy(server.url) as proxy,
                open_hubs(proxy.url, _HUBS, is_control=trial.is_control) as hubs,
            ):
                barriers = [hubs[party % _HUBS].store("meet").barrier("start", _PARTIES) for party in range(_PARTIES)]
                rages = (
                    lose_replies(trial, proxy, b"EVALSHA"),
                    kill_server(trial, server, every_s=_KILL_SERVER_EVERY_S),
                )
                async with repeat_fault(*rages):
                    while not trial.is_over:
                        await _meet(trial, barriers, passed)
                        trial.judge(find_broken_passages(passed) if trial.is_control else [])
        trial.did(len(passed))
        trial.judge([] if trial.is_control else find_broken_passages(passed))


async def _meet(trial: Trial, barriers: list[Barrier], passed: list[Passage]) -> None:
    """All come once, each after a while of its own."""

    timeout_s = 3.0 if trial.is_control else _TIMEOUT_S

    async def come(party: int) -> None:
        await asyncio.sleep(trial.dice.uniform(0, 0.05))
        came_at = time.monotonic()
        arrival = await barriers[party].wait(timeout=timeout_s)
        passed.append(Passage(party, arrival.generation, arrival.position, came_at, time.monotonic()))

    for outcome in await asyncio.gather(*(come(party) for party in range(_PARTIES)), return_exceptions=True):
        if isinstance(outcome, BarrierError):
            trial.judge([f"all had come, and one waited in vain: {outcome}"])
        elif isinstance(outcome, BaseException):
            raise outcome


def find_broken_passages(passed: Iterable[Passage]) -> list[str]:
    """What is wrong: a party passed before all had arrived, or passed twice with one opening."""
    found, openings = [], defaultdict[int, list[Passage]](list)
    for passage in passed:
        openings[passage.generation].append(passage)
    for generation, those in sorted(openings.items()):
        parties, places = [one.party for one in those], sorted(one.position for one in those)
        if sorted(parties) != list(range(_PARTIES)):
            found.append(f"opening {generation} let through the parties {sorted(parties)}")
        if places != list(range(_PARTIES)):
            found.append(f"opening {generation} gave the places {places}")
        if max(one.came_at for one in those) > min(one.went_at for one in those):
            found.append(f"opening {generation} let one through before all had come")
    return found
