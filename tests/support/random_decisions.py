"""Agents that plan and execute at random, and all that can be asked of what they did."""

from __future__ import annotations

import random
from typing import Any

from sharedmem import ConflictError, ExecutionRecord, Hub, NotFoundError
from sharedmem.decisions.decisions import Decisions
from sharedmem.testing import ManualClock

_DAY_S = 86_400
SESSIONS = ("desk", "floor")
SYMBOLS = ("BTC", 'E"TH\\ ü\n', "SOL")
_REASONS = ("up", "down", "news", '"},"plan_id":"1","symbol":"X"')
_STATUSES = ("success", "failed", "unknown", "timeout")


class RandomDecisions:
    """Two agents decide at random; all that can be asked can be compared."""

    def __init__(self, hub: Hub, clock: ManualClock | None, seed: int) -> None:
        self.logs = [hub.store("desk", actor=actor).decisions for actor in ("ada", "bob")]
        self.clock = clock
        self.random = random.Random(seed)
        self.known: dict[str, set[str]] = {session: set() for session in SESSIONS}

    async def work(self, steps: int) -> None:
        for _ in range(steps):
            session, log = self.random.choice(SESSIONS), self.random.choice(self.logs)
            step = self.random.choices(
                (self._plan, self._begin, self._end, self._resolve, self._wait, self._forget), (8, 6, 6, 3, 2, 0.3)
            )[0]
            try:
                await step(log, session)
            except (ConflictError, NotFoundError):
                continue  # the other one was first, or there is no such plan

    async def _plan(self, log: Decisions, session: str) -> None:
        plan = (
            session,
            self.random.choice(SYMBOLS[:2]),
            "BUY",
            self.random.choice((0.25, 1.0)),
            self.random.choice(_REASONS),
        )
        window_s = self.random.choice((60, 3600, 30 * _DAY_S))
        result = await log.save_if_new(*plan, "llm", window_s)
        if not result.saved and self.random.random() < 0.5:
            await log.save_plan(*plan)
        for found in await log.get_recent_plans(session, limit=1):
            self.known[session] |= {found.plan_id, found.plan_hash}

    async def _begin(self, log: Decisions, session: str) -> None:
        policy: Any = self.random.choice(("never", "takeover"))
        await log.begin_execution(session, self._a_plan(session), lease=self.random.choice((60, _DAY_S)), policy=policy)

    async def _end(self, log: Decisions, session: str) -> None:
        plan, status = self._a_plan(session), self.random.choice(_STATUSES)
        if self.random.random() < 0.5:
            await log.mark_executed(session, plan, "SOL", "SELL", 1.0, status, True, "o-1", 2.0)
            return
        _, record = await log.check_executed(session, plan)
        if record is not None:
            await log.finish(session, plan, record.fence, status=status, order_id="ü-7", error='"x":1,')

    async def _resolve(self, log: Decisions, session: str) -> None:
        await log.resolve(session, self._a_plan(session), status=self.random.choice(_STATUSES))

    async def _wait(self, _log: Decisions, _session: str) -> None:
        if self.clock is not None:
            self.clock.advance(self.random.choice((1, 61, 3601, _DAY_S, 31 * _DAY_S)))

    async def _forget(self, log: Decisions, session: str) -> None:
        await log.erase(session)

    def _a_plan(self, session: str) -> str:
        return self.random.choice([*sorted(self.known[session])[-12:], "no-such-plan"])

    async def answers(self) -> dict[str, object]:
        """What every call that only looks answers."""
        log = self.logs[0]
        found: dict[str, object] = {"sessions": await log.sessions()}
        for session in SESSIONS:
            for symbol in (None, *SYMBOLS):
                found[f"{session} plans {symbol}"] = await log.get_recent_plans(session, symbol, 1000)
                found[f"{session} stats {symbol}"] = await log.get_execution_stats(session, symbol)
            found[f"{session} open"] = [_without_lease(one) for one in await log.get_open_executions(session)]
            for plan in sorted(self.known[session]):
                found[f"{session} executed {plan}"] = await self._execution_of(session, plan)
            for symbol, reason in ((symbol, reason) for symbol in SYMBOLS[:2] for reason in _REASONS):
                for window_s in (60, 3600, 30 * _DAY_S):
                    _, same = await log.check_duplicate(session, symbol, "BUY", reason, window_s)
                    told = same and same.model_copy(update={"time_since_ms": None})
                    found[f"{session} duplicate {symbol} {reason} {window_s}"] = told
        return found

    async def _execution_of(self, session: str, plan: str) -> object:
        try:
            executed, record = await self.logs[0].check_executed(session, plan)
        except NotFoundError:
            return "absent"
        return executed, record and _without_lease(record)


def _without_lease(record: ExecutionRecord) -> ExecutionRecord:
    """An execution whose lease is over may run once more after a loss: who has it may have renewed it."""
    state = "running" if record.state == "orphaned" else record.state
    return record.model_copy(update={"state": state, "lease_ends_ms": 0})
