"""Rounds of work on keys that last, in which Redis is lost again and again."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from support.chaos_proxy import ChaosProxy
from support.crash_rounds import CrashRound, RoundEnvironment
from support.invariants import RecordedCall
from support.process_groups import AgentPool, RewindableRedis

from chaos.faults import restart
from chaos.scenario import Trial

Durability = Literal["behind", "through"]
Manner = Literal["know", "arg", "once"]
HarmTier = Callable[[Trial], Awaitable[None]]
_BROKEN = ("acknowledges before it puts", "keeps what is deleted")
_PATIENCE_S = 90.0
_DELAYED_LEAST_S, _DELAYED_MOST_S = 0.05, 0.4


@dataclass(repr=False)
class LossRound(CrashRound):
    """A round that loses Redis for as long as its agents work.

    Args:
        trial: counts the faults.
        proxy: what the second agent reaches the server through, which delays it now and then.
        harm_tier: makes the tier fail for a while.
    """

    trial: Trial = field(kw_only=True)
    proxy: ChaosProxy = field(kw_only=True)
    harm_tier: HarmTier = field(kw_only=True)
    _lost_at: float = 0.0

    def _order(self, agent: int, *, steps: int | None = None) -> dict[str, Any]:
        order = super()._order(agent, steps=steps)
        if agent == 1:
            order["settings"] = order["settings"] | {"redis_url": self.proxy.url, "response_timeout_s": 5.0}
        return order

    def __repr__(self) -> str:
        return f"<storm {self.seed}: kinds by {self.manner}, {self.durability}>"

    async def suffer(self) -> bool:
        """Lose Redis, kill the server and agents, harm the tier, one after the other."""
        told = 0
        while self.is_under_way:
            told += self.dice.randrange(1, 12)
            await self.reach(told)
            if self.dice.random() < 0.3:
                await self.harm_tier(self.trial)
            delayed_s = self.dice.choice((0.0, self.dice.uniform(_DELAYED_LEAST_S, _DELAYED_MOST_S)))
            with self.proxy.delayed(delayed_s):
                await self._break()
                await asyncio.sleep(self.dice.uniform(0, 3 * delayed_s))
            self.trial.broke()
        return False

    async def _break(self) -> None:
        match self.dice.choice(("flush", "flush", "flush", "restart", "kill")):
            case "flush":
                had = await self.carried() if self.durability == "behind" else []
                await asyncio.to_thread(self.server.tell, "FLUSHALL")
                self._promise(had)
            case "restart":
                await restart(self.server)
            case _:
                # Perhaps while it brings back what was lost. One writer survives, and the relays.
                await asyncio.sleep(self.dice.uniform(0, 0.05))
                victim = self.agents[1]
                if victim.is_alive:
                    victim.kill()

    def _promise(self, had: Sequence[RecordedCall]) -> None:
        """Redis was lost: what the tier had then lasts; what was begun before the loss and was not there may be gone.

        What agents tell is heard late when the machine is busy: only the time says what was begun before.
        """
        for attempt in had:
            attempt.promised = attempt.promised or attempt.began > self._lost_at
        self._lost_at = time.monotonic()


async def run_loss_rounds(
    trial: Trial,
    tier: dict[str, Any],
    *,
    plays: Sequence[tuple[Manner, Durability]],
    harm_tier: HarmTier,
    steps: int = 60,
) -> None:
    """Round after round until the trial is over, each judged by itself.

    Args:
        tier: the settings that name the durable tier.
        plays: how keys get their kind (see `CrashRound`), and when calls are acknowledged, in turn.
        harm_tier: makes the tier fail for a while.
        steps: calls of each agent and round.
    """
    first = trial.dice.randrange(10**6)
    with RewindableRedis("always") as server:
        async with AgentPool() as agents, ChaosProxy(server.url) as proxy:
            environment = RoundEnvironment(agents, {"always": server, "everysec": server}, tier)
            made = partial(
                LossRound, trial=trial, proxy=proxy, harm_tier=harm_tier, steps=steps, patience_s=_PATIENCE_S
            )
            for number in itertools.count():
                manner, durability = plays[number % len(plays)]
                broken = _BROKEN[number % len(_BROKEN)] if trial.is_control else ""
                round_ = made(environment, first + number, broken=broken, manner=manner, durability=durability)
                trial.judge([f"{round_}: {sentence}" for sentence in await _judged(round_)])
                trial.did(sum(len(attempts) for attempts in round_.history))
                if trial.is_over:
                    return


async def _judged(round_: LossRound) -> list[str]:
    try:
        return await round_.run()
    except TimeoutError:
        return [f"its agents had not ended after {_PATIENCE_S:g} s"]
