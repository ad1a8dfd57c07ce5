"""Every order in which the steps of several programs can happen, one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from sharedmem.clock import SystemClock
from sharedmem.models import Charges, DurableRecord, Outcome, Put

Program = Callable[[], Coroutine[Any, Any, None]]
_who: ContextVar[str | None] = ContextVar("the program whose step it is", default=None)
_MOST_STEPS = 200
_PATIENCE_S = 300


class Schedule:
    """One order: programs stop before each of their steps, and one at a time goes on.

    Args:
        choices: which of the runnable ones goes on, step by step; the first one when they are used up.
    """

    def __init__(self, choices: Sequence[int]) -> None:
        self._choices = choices
        self._parked: dict[str, asyncio.Future[None]] = {}
        self._idle: dict[str, int] = {}
        self._running: set[str] = set()
        self._changed = asyncio.Event()
        self.trail: list[tuple[int, int]] = []
        """(how many could go on, which did), step by step."""
        self.steps: list[str] = []

    async def gate(self) -> None:
        """A program's step begins here; nothing for others."""
        who = _who.get()
        if who is not None:
            await self._park(who)

    async def rest(self) -> None:
        """A program goes on when another one has made a step, or when no other one can."""
        who = _who.get()
        if who is not None:
            self._idle[who] = len(self.steps)
            await self._park(who)
            self._idle.pop(who, None)

    async def run(self, programs: Mapping[str, Program], check: Callable[[], Awaitable[None]]) -> None:
        """Run them to their ends, and look after each step whether all is well."""
        tasks = [asyncio.create_task(self._follow(name, program)) for name, program in programs.items()]
        try:
            while options := await self._options():
                at = self._choices[len(self.trail)] if len(self.trail) < len(self._choices) else 0
                self.trail.append((len(options), at))
                self.steps.append(options[at])
                assert len(self.steps) < _MOST_STEPS, f"it does not end: {self.steps}"
                self._running.add(options[at])
                self._parked.pop(options[at]).set_result(None)
                await self._settled()
                await check()
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, name: str, program: Program) -> None:
        _who.set(name)
        self._running.add(name)
        try:
            await program()
        finally:
            self._running.discard(name)
            self._changed.set()

    async def _park(self, who: str) -> None:
        self._parked[who] = future = asyncio.get_running_loop().create_future()
        self._running.discard(who)
        self._changed.set()
        await future

    async def _options(self) -> list[str]:
        await asyncio.sleep(0)
        await self._settled()
        able = [name for name in sorted(self._parked) if self._idle.get(name) != len(self.steps)]
        return able or sorted(self._parked)

    async def _settled(self) -> None:
        while self._running:
            self._changed.clear()
            async with asyncio.timeout(_PATIENCE_S):
                await self._changed.wait()


async def run_all_schedules(one: Callable[[Schedule], Awaitable[None]]) -> int:
    """Run `one` under every order; returns how many there are."""
    choices: list[int] = []
    count = 0
    while True:
        schedule = Schedule(choices)
        try:
            await one(schedule)
        except AssertionError as error:
            raise AssertionError(f"{error}, in the order {' '.join(schedule.steps)}") from error
        count += 1
        trail = schedule.trail
        while trail and trail[-1][1] + 1 == trail[-1][0]:
            trail.pop()
        if not trail:
            return count
        choices = [at for _, at in trail[:-1]] + [trail[-1][1] + 1]


class SteppedClock(SystemClock):
    """A clock whose sleepers wait for the steps of others."""

    def __init__(self) -> None:
        self.schedule: Schedule | None = None
        self._slept_s = 0.0

    def monotonic(self) -> float:
        return self._slept_s

    async def sleep(self, seconds: float) -> None:
        self._slept_s += seconds
        if self.schedule is not None and _who.get() is not None:
            await self.schedule.rest()
        else:
            await super().sleep(seconds)


class DictDurable:
    """A durable tier in a dictionary, in which a test of thousands of orders loses no time."""

    url = "memory:"

    def __init__(self) -> None:
        self.documents: dict[tuple[str, str], DurableRecord] = {}

    async def open(self, *, create: bool = True) -> str:  # noqa: ARG002  # there is nothing to make
        return "memory"

    async def close(self) -> None:
        """Nothing is open."""

    async def put(self, records: Sequence[DurableRecord]) -> list[Put]:
        return [self._put(record) for record in records]

    async def get(self, key: str, element: str = "") -> DurableRecord | None:
        return self.documents.get((key, element))

    async def records(self, key: str) -> list[DurableRecord]:
        return [self.documents[place] for place in sorted(self.documents) if place[0] == key]

    async def query(self, namespace: str, **_: object) -> list[DurableRecord]:
        raise NotImplementedError(namespace)

    async def iterate(
        self, namespace: str, *, changed_after: int = 0, heads_only: bool = False, after: tuple[str, str] | None = None
    ) -> AsyncIterator[list[DurableRecord]]:
        page = [
            one
            for place, one in sorted(self.documents.items())
            if one.namespace == namespace
            and one.stamp > changed_after
            and (one.is_head or not heads_only)
            and place > (after or ("", ""))
        ]
        if page:
            yield page

    async def highest(self, namespace: str) -> int:
        return max((one.stamp for one in self.documents.values() if one.namespace == namespace), default=0)

    async def namespaces(self) -> list[str]:
        return sorted({one.namespace for one in self.documents.values()})

    async def purge(self, namespace: str, *, now_ms: int, tombstones_before: int) -> int:
        raise NotImplementedError(namespace, now_ms, tombstones_before)

    async def check(self) -> list[str]:
        return []

    def charges(self) -> Charges:
        return Charges()

    def _put(self, record: DurableRecord) -> Put:
        place = record.key, record.element
        held = self.documents.get(place)
        floor = max(record.floor, held.floor if held else 0)
        older = held is not None and held.stamp >= record.stamp
        kept = held if held is not None and older else record
        self.documents[place] = kept.model_copy(update={"floor": floor})
        return Put(outcome=Outcome.OLDER if held is not None and held.stamp > record.stamp else Outcome.STORED)
