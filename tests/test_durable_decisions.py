"""Plans and executions come back from the durable tier as they were: on fakeredis and on a real server, whatever it loses."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, cast

import fakeredis
import pytest
from support.bare_server import BareServer
from support.losses import Forgetful, line_of, lose, memorised, set_back

from sharedmem import ClaimLostError, Hub, NotFoundError, Settings, SharedMemoryError
from sharedmem.errors import DurabilityPendingError
from sharedmem.knowledge.decisions import Decisions
from sharedmem.knowledge.digests import plan_hash
from sharedmem.testing import ManualClock, fake_hub
from sharedmem.testing.decision_suite import DecisionSuite

DAY_S = 86_400
KEPT = 5
LEASE_S = 86_400
SESSION, SESSIONS = "desk", ("desk", "floor")
PLAN = (SESSION, "BTC", "BUY", 0.75, "the trend is strong")
SYMBOLS = ("BTC", 'E"TH\\ ü\n')
REASONS = ("up", "down", "news", '"},"plan_id":"1","symbol":"X"')
STATUSES = ("success", "failed", "unknown", "timeout")


def tiered(folder: Path, **changes: Any) -> Settings:
    return Settings(data_dir=folder, durable_url=f"sqlite://{folder}/durable.sqlite3", **changes)


# -- the whole suite ------------------------------------------------------------------------------


class TestDecisionsWithATierOnFakeredis(DecisionSuite):
    @pytest.fixture
    async def decisions(self, tmp_path: Path) -> AsyncIterator[Decisions]:
        async with fake_hub(settings=tiered(tmp_path)) as hub:
            yield hub.store("desk", actor="ada").decisions


class TestDecisionsThatWaitForTheTier(DecisionSuite):
    @pytest.fixture
    async def decisions(self, bare_server: BareServer, tmp_path: Path) -> AsyncIterator[Decisions]:
        async with Hub.open(bare_server.url, settings=tiered(tmp_path, log_durability="through")) as hub:
            yield hub.store("desk", actor="ada").decisions


class TestDecisionsWhenRedisIsLostBeforeEachCall(DecisionSuite):
    @pytest.fixture
    async def decisions(self, tmp_path: Path) -> AsyncIterator[Decisions]:
        async with fake_hub(settings=tiered(tmp_path)) as hub:
            yield cast("Decisions", Forgetful(hub.store("desk", actor="ada").decisions, hub))


@pytest.fixture(scope="module")
def bare_server() -> Iterator[BareServer]:
    with BareServer() as server:
        yield server


# -- a loss in the middle of anything -------------------------------------------------------------


class Desk:
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
            except SharedMemoryError as refusal:
                assert not isinstance(refusal, DurabilityPendingError)

    async def _plan(self, log: Decisions, session: str) -> None:
        plan = (session, self.random.choice(SYMBOLS), "BUY", self.random.choice((0.25, 1.0)), self.random.choice(REASONS))
        window_s = self.random.choice((60, 3600, 30 * DAY_S))
        result = await log.save_if_new(*plan, "llm", window_s)
        if not result.saved and self.random.random() < 0.5:
            await log.save_plan(*plan)
        for found in await log.get_recent_plans(session, limit=1):
            self.known[session] |= {found.plan_id, found.plan_hash}

    async def _begin(self, log: Decisions, session: str) -> None:
        policy: Any = self.random.choice(("never", "takeover"))
        await log.begin_execution(session, self._a_plan(session), lease=self.random.choice((60, LEASE_S)), policy=policy)

    async def _end(self, log: Decisions, session: str) -> None:
        plan, status = self._a_plan(session), self.random.choice(STATUSES)
        if self.random.random() < 0.5:
            await log.mark_executed(session, plan, "SOL", "SELL", 1.0, status, True, "o-1", 2.0)
            return
        _, record = await log.check_executed(session, plan)
        if record is not None:
            await log.finish(session, plan, record.fence, status=status, order_id="ü-7", error='"x":1,')

    async def _resolve(self, log: Decisions, session: str) -> None:
        await log.resolve(session, self._a_plan(session), status=self.random.choice(STATUSES))

    async def _wait(self, log: Decisions, session: str) -> None:
        if self.clock is not None:
            self.clock.advance(self.random.choice((1, 61, 3601, DAY_S, 31 * DAY_S)))

    async def _forget(self, log: Decisions, session: str) -> None:
        await log.forget(session)

    def _a_plan(self, session: str) -> str:
        return self.random.choice([*sorted(self.known[session])[-12:], "no-such-plan"])

    async def answers(self) -> dict[str, object]:
        """What every call that only looks answers."""
        log = self.logs[0]
        found: dict[str, object] = {"sessions": await log.sessions()}
        for session in SESSIONS:
            for symbol in (None, *SYMBOLS, "SOL"):
                found[f"{session} plans {symbol}"] = await log.get_recent_plans(session, symbol, 1000)
                found[f"{session} stats {symbol}"] = await log.get_execution_stats(session, symbol)
            found[f"{session} open"] = await log.get_open_executions(session)
            for plan in sorted(self.known[session]):
                found[f"{session} executed {plan}"] = await self._execution_of(session, plan)
            for symbol, reason in ((symbol, reason) for symbol in SYMBOLS for reason in REASONS):
                for window_s in (60, 3600, 30 * DAY_S):
                    _, same = await log.check_duplicate(session, symbol, "BUY", reason, window_s)
                    told = same and same.model_copy(update={"time_since_ms": None})
                    found[f"{session} duplicate {symbol} {reason} {window_s}"] = told
        return found

    async def _execution_of(self, session: str, plan: str) -> object:
        try:
            return await self.logs[0].check_executed(session, plan)
        except NotFoundError:
            return "absent"


@pytest.mark.parametrize("seed", range(12))
async def test_all_answers_are_the_same_after_a_loss(seed: int, tmp_path: Path) -> None:
    clock = ManualClock()
    async with fake_hub(clock=clock, settings=tiered(tmp_path, plans_per_session=KEPT)) as hub:
        desk = Desk(hub, clock, seed)
        for _ in range(4):
            await desk.work(40)
            before = await desk.answers()

            await lose(hub)

            assert await desk.answers() == before


@pytest.mark.parametrize("seed", range(3))
async def test_all_answers_are_the_same_after_a_loss_on_a_real_server(
    seed: int, bare_server: BareServer, tmp_path: Path
) -> None:
    async with Hub.open(bare_server.url, settings=tiered(tmp_path, plans_per_session=KEPT)) as hub:
        desk = Desk(hub, None, seed)
        for _ in range(3):
            await desk.work(40)
            before = await desk.answers()

            await lose(hub)

            assert await desk.answers() == before


@pytest.mark.parametrize("seed", range(6))
async def test_all_answers_are_the_newest_when_the_server_is_set_back(seed: int, tmp_path: Path) -> None:
    clock = ManualClock()
    settings = tiered(tmp_path, plans_per_session=KEPT)
    server = fakeredis.FakeServer()
    desk: Desk | None = None
    async with fake_hub(clock=clock, settings=settings, server=server) as hub:
        desk = Desk(hub, clock, seed)
        await desk.work(40)
        held = await memorised(hub)
        await desk.work(40)
        before = await desk.answers()
        await set_back(hub, held)
    async with fake_hub(clock=clock, settings=settings, server=server) as hub:
        desk.logs = [hub.store("desk", actor=actor).decisions for actor in ("ada", "bob")]

        assert await desk.answers() == before


@pytest.mark.parametrize("seed", range(6))
async def test_what_comes_back_is_what_lay_there_to_the_letter(seed: int, tmp_path: Path) -> None:
    clock = ManualClock()
    async with fake_hub(clock=clock, settings=tiered(tmp_path, plans_per_session=KEPT)) as hub:
        desk = Desk(hub, clock, seed)
        await desk.work(60)
        before = await _sessions_in_redis(hub)
        await lose(hub)

        await desk.answers()

        assert await _sessions_in_redis(hub) == before


async def _sessions_in_redis(hub: Hub) -> dict[bytes, object]:
    """What people would see with redis-cli; of duplicates those that a window can reach."""
    line, found = line_of(hub), dict[bytes, object]()
    async for page in line.scan(b"*", near=None):
        for key in page:
            part = key.partition(b"}:$")[2].partition(b":")[0]
            if part == b"plan.sessions":
                found[key] = sorted(cast("list[bytes]", await line.call("SMEMBERS", key)))
            elif part in {b"plan.order", b"execution.finished"}:
                found[key] = await line.call("LRANGE", key, 0, -1)
            elif part in {b"plan", b"execution", b"execution.stats"}:
                pairs = cast("list[bytes]", await line.call("HGETALL", key))
                found[key] = {field: value for field, value in zip(pairs[::2], pairs[1::2], strict=True) if value != b"0"}
    return found
