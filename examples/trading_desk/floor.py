"""The trading desk: two planners and three executors share a decision log, some die, and no order is placed twice.

    python floor.py                  # about fifteen seconds
    python floor.py --naive          # the same desk without the decision log: it places orders twice
    python floor.py --json --speed 3

The floor (this process) publishes the terms, starts planners and executors as processes of their own, restarts
executors that died, resolves open executions by the exchange's statement after the close, and then
compares the exchange's file with the decision log. Exit code 0: nothing was doubled or lost; 1: something was.

The prices are synthetic: a random walk made by generate_prices.py. Its symbols are invented.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

# The command line loads this file by its path, so its folder must be added to the import path.
sys.path.insert(0, str(Path(__file__).resolve().parent))

from exchange import Exchange
from market import all_decisions
from proof import Summary, checks_of_log, checks_of_orders, doubles, picture, too_many
from pydantic import BaseModel, ConfigDict, Field
from rich.console import Console
from rich.text import Text
from trading import CLOSED, COUNTS, CRASHED, NAMESPACE, PUT, SESSION, TERMS, Terms, say

from sharedmem import ExecutionRecord, Hub, Settings, SharedMemoryError, SharedMemoryStore, UnavailableError

FOLDER = Path(__file__).resolve().parent
_PLANNERS = ("planner-1", "planner-2")
_APPENDED = "episode.append"
_LAST_WORDS = "Everything is carried out, and the exchange is closed."
_COLOURS = {"planner": "cyan", "executor": "yellow", "floor": "magenta"}


class Options(BaseModel):
    """Options of the desk; with the defaults it takes about fifteen seconds."""

    model_config = ConfigDict(frozen=True)

    naive: bool = Field(default=False, description="Without the decision log: the control that places orders twice.")
    days: int = Field(260, ge=30, le=260, description="Trading days of the series to go through.")
    speed: float = Field(1.0, gt=0, le=10, description="How much faster all pauses, leases and hangs are.")
    seed: int = Field(7, description="Seed of the simulated failures.")
    executors: int = Field(3, ge=1, le=16, description="Executor processes.")
    patience_s: float = Field(180.0, gt=0, description="Seconds after which the floor gives up.")
    json_only: bool = Field(default=False, description="The summary as JSON, and nothing else on standard output.")
    redis_url: str | None = Field(None, description="Server to use; by default the one of the settings.")
    data_dir: Path | None = Field(None, description="Data folder of the embedded server and of the exchange's file.")


class DeskFailedError(SharedMemoryError):
    """A process of the desk ended with an error of its own."""

    def __init__(self, name: str, code: int, output: str) -> None:
        super().__init__(f"{name} ended with exit code {code}; its last words:\n{output[-2000:]}")


@dataclass
class Floor:
    """The processes of the desk."""

    store: SharedMemoryStore
    console: Console
    environment: Mapping[str, str]
    processes: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)
    crashes: Counter[str] = field(default_factory=Counter)

    async def run(self, executors: int) -> None:
        """Run all processes, from the first to the last."""
        async with asyncio.TaskGroup() as desk:
            for number in range(1, executors + 1):
                desk.create_task(self._keep("executor", f"executor-{number}"))
            await asyncio.gather(*(self._keep("planner", name) for name in _PLANNERS))
            await say(self.store, "The planners have ended.")
            await self.store.write(CLOSED, value=True)

    async def follow(self) -> None:
        """Print the episode of this run as it grows."""
        cursor = None
        async for change in self.store.watch(f"{NAMESPACE}:*", since=0):
            if change.operation != _APPENDED:
                continue
            for event in await self.store.episodes.events(SESSION, since=cursor):
                cursor = event.cursor
                self._print(event.actor, event.event["text"])
                if event.event["text"] == _LAST_WORDS:
                    return

    def _print(self, actor: str, text: str) -> None:
        colour = _COLOURS.get(actor.partition("-")[0], "white")
        self.console.print(Text.assemble((f"{actor:<11} ", colour), text), soft_wrap=True)

    async def end(self) -> None:
        """End all running processes, after an error."""
        for process in self.processes.values():
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
            await process.wait()

    async def _keep(self, role: str, name: str) -> None:
        """Run a process to its end; restart one that dies on purpose."""
        while (code := await self._run(role, name)) == CRASHED:
            self.crashes[name] += 1
            await say(self.store, f"{name} died and is restarted.")
        if code:
            raise DeskFailedError(name, code, "(see above)")

    async def _run(self, role: str, name: str) -> int:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(FOLDER / f"{role}.py"),
            name,
            env=self.environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip - program, arguments and pipes each on their line
        self.processes[name] = process
        output, _ = await process.communicate()
        if process.returncode not in {0, CRASHED}:
            raise DeskFailedError(name, process.returncode or 0, output.decode(errors="replace"))
        return process.returncode or 0


async def run(options: Options | None = None) -> Summary:
    """Run the desk from an empty namespace to its summary, which is also printed.

    Raises:
        SharedMemoryError: no server is available, or a process failed.
        UnavailableError: the run took longer than `patience_s`.
    """
    chosen = options or Options()
    try:
        async with asyncio.timeout(chosen.patience_s):
            return await _run(chosen)
    except TimeoutError as error:
        raise UnavailableError("the trading desk", f"it was not done within {chosen.patience_s:g} s") from error


async def _run(chosen: Options) -> Summary:
    settings = await asyncio.to_thread(Settings.load, redis_url=chosen.redis_url, data_dir=chosen.data_dir)
    terms = _terms(chosen, settings)
    decisions = len(all_decisions(await asyncio.to_thread(terms.series)))
    # The log keeps a number of plans in each session: all of this run, however long it is.
    settings = settings.replace(plans_per_session=max(settings.plans_per_session, decisions))
    exchange = Exchange(Path(terms.exchange))
    await asyncio.to_thread(exchange.found)
    console = Console(stderr=chosen.json_only)
    async with Hub.open(settings=settings) as hub:
        await hub.store(NAMESPACE).clear()
        store = hub.store(NAMESPACE, actor="floor")
        await store.write(TERMS, terms.model_dump())
        floor = Floor(store, console, _environment(chosen, settings))
        started = time.monotonic()
        await _work(floor, chosen.executors)
        resolved = await _after_the_close(store, exchange)
        seconds = time.monotonic() - started
        summary = await _summed_up(
            store, exchange, floor, terms, decisions=decisions, orphans=resolved, seconds=seconds
        )
        summary = summary.model_copy(update={"server": hub.url})
    if chosen.json_only:
        sys.stdout.write(summary.model_dump_json(indent=2) + "\n")
    else:
        console.print(picture(summary))
    return summary


async def _work(floor: Floor, executors: int) -> None:
    following = asyncio.create_task(floor.follow())
    try:
        await floor.run(executors)
        await say(floor.store, _LAST_WORDS)
        await following
    except* SharedMemoryError as several:
        raise several.exceptions[0] from several
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await floor.end()


async def _after_the_close(store: SharedMemoryStore, exchange: Exchange) -> int:
    """Resolve open executions by the exchange's statement, after all trading; return how many."""
    orders = {order.reference: order for order in await asyncio.to_thread(exchange.statement)}
    open_ = await store.decisions.get_open_executions(SESSION)
    for execution in open_:
        placed = orders.get(execution.plan_id)
        await store.decisions.resolve(
            SESSION,
            execution.plan_id,
            status="success" if placed else "failed",
            order_id=placed.order_id if placed else "",
            order_size_usdt=placed.size_usdt if placed else 0.0,
            error="" if placed else "not on the statement",
        )
    return len(open_)


async def _summed_up(
    store: SharedMemoryStore,
    exchange: Exchange,
    floor: Floor,
    terms: Terms,
    *,
    decisions: int,
    orphans: int,
    seconds: float,
) -> Summary:
    """Make the summary from the data of the exchange and the store, not from the view."""
    orders = await asyncio.to_thread(exchange.statement)
    executions = {} if terms.naive else await _executions(store)
    stats = await store.decisions.get_execution_stats(SESSION)
    counts = await store.hgetall(COUNTS)
    checks = checks_of_orders(orders)
    if not terms.naive:
        checks += checks_of_log(orders, executions, decisions=decisions, stats=stats)
    by_planners, by_executors = too_many(orders)
    return Summary(
        naive=terms.naive,
        decisions=decisions,
        plans_saved=len(executions),
        orders=len(orders),
        doubled=doubles(orders),
        doubled_by_planners=by_planners,
        doubled_by_executors=by_executors,
        win_rate=stats.win_rate,
        executions_succeeded=stats.successful_executions,
        executions_failed=stats.failed_executions,
        duplicates_prevented=stats.duplicates_prevented,
        plans_refused=int(counts.get("plans refused as duplicates", 0)),
        taken_over=sum(record is not None and record.attempt > 1 for record in executions.values()),
        orphans_resolved=orphans,
        unknowns_settled=int(counts.get("unknown results resolved by look-up", 0)),
        crashes=floor.crashes.total(),
        mishaps=await asyncio.to_thread(exchange.mishaps),
        checks=tuple(checks),
        seconds=seconds,
        exchange=terms.exchange,
        server="",
    )


async def _executions(store: SharedMemoryStore) -> dict[str, ExecutionRecord | None]:
    """Return the log's record of every plan in the queue."""
    plans = sorted(await store.smembers(PUT))
    found = await asyncio.gather(*(store.decisions.check_executed(SESSION, plan) for plan in plans))
    return {plan: record for plan, (_, record) in zip(plans, found, strict=True)}


def _terms(chosen: Options, settings: Settings) -> Terms:
    return Terms(
        prices=str(FOLDER / "prices.csv"),
        exchange=str(settings.data_dir / "trading-desk" / "exchange.sqlite"),
        days=chosen.days,
        seed=chosen.seed,
        naive=chosen.naive,
        day_s=0.015 / chosen.speed,
        lease_s=1.5 / chosen.speed,
        visibility_s=2.0 / chosen.speed,
        hang_s=3.0 / chosen.speed,
    )


def _environment(options: Options, settings: Settings) -> dict[str, str]:
    """Return the environment of the processes: ours, or with the settings of the options."""
    overrides = {
        "SHAREDMEM_REDIS_URL": options.redis_url,
        "SHAREDMEM_DATA_DIR": options.data_dir,
        "SHAREDMEM_PLANS_PER_SESSION": settings.plans_per_session,
    }
    return {**os.environ, **{name: str(value) for name, value in overrides.items() if value is not None}}


def main() -> int:
    """Run the command line; return 0 if nothing was doubled or lost."""
    parser = argparse.ArgumentParser(description="Planners and executors that never place an order twice.")
    parser.add_argument("--naive", action="store_true", help="without the decision log: it places orders twice")
    parser.add_argument("--days", type=int, default=260, help="trading days to go through, 30 to 260")
    parser.add_argument("--speed", type=float, default=1.0, help="how much faster, up to 10")
    parser.add_argument("--seed", type=int, default=7, help="seed of the simulated failures")
    parser.add_argument("--executors", type=int, default=3, help="executor processes")
    parser.add_argument("--json", action="store_true", dest="json_only", help="the summary as JSON")
    try:
        return 0 if asyncio.run(run(Options(**vars(parser.parse_args())))).ok else 1
    except SharedMemoryError as error:
        sys.stderr.write(f"the trading desk failed: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
