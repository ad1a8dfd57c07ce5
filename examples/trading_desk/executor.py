"""An executor, a process of its own: claims plans from the queue and executes each at most once.

    python executor.py executor-1

The queue may deliver a plan twice, and executors may die: before an order is sent, `begin_execution` has granted
this executor the right to send it. An unknown result is looked up at the exchange, not guessed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from exchange import LANTERN, VENUES, Exchange, ExchangeTimeoutError, Order, Placed, RejectedError
from mishaps import Mishap
from trading import (
    CLOSED,
    CRASHED,
    DONE,
    NAMESPACE,
    PUT,
    QUEUE,
    SESSION,
    TERMS,
    Terms,
    Ticket,
    count,
    mishaps_of,
    say,
)

from sharedmem import (
    AlreadyExecutedError,
    ClaimLostError,
    ConflictError,
    Execution,
    ExecutionClaim,
    Hub,
    SharedMemoryStore,
)

_WAIT_S = 0.3


class Executor:
    """Executes plans, and dies where the terms require it.

    Args:
        store: its store of the namespace.
        terms: the terms of this run.
        exchange: its client of the exchange.
    """

    def __init__(self, store: SharedMemoryStore, terms: Terms, exchange: Exchange) -> None:
        self._store = store
        self._terms = terms
        self._exchange = exchange
        self._remembered: set[str] = set()
        self._queue = store.queue(QUEUE, visibility=terms.visibility_s)

    async def work(self) -> None:
        """Claim tasks until the planners have ended and no task is left."""
        carry_out = self._naively if self._terms.naive else self._carefully
        while not await self._is_over():
            task = await self._queue.claim(wait=_WAIT_S)
            if task is None:
                continue
            ticket = Ticket.model_validate(task.payload)
            outcome = await carry_out(ticket)
            # A task that took too long belongs to another executor by now, which finds the plan executed.
            with suppress(ClaimLostError):
                if outcome is None:
                    delay = self._terms.lease_s / 2
                    await self._queue.retry(task, error="another executor has it", delay=delay)
                else:
                    await self._store.sadd(DONE, ticket.task)
                    await self._queue.ack(task, result=outcome)

    async def _is_over(self) -> bool:
        if not await self._store.exists(CLOSED):
            return False
        return await self._store.scard(PUT) == await self._store.scard(DONE)

    # -- with the decision log ----------------------------------------------------------------------

    async def _carefully(self, ticket: Ticket) -> str | None:
        """Execute a plan at most once; return its result, or None while another executor has it."""
        # At a venue with look-ups, a successor can find out what its predecessor did. Elsewhere an unfinished execution
        # waits for the statement.
        policy: Literal["takeover", "never"] = "takeover" if VENUES[ticket.symbol] == LANTERN else "never"
        lease = self._terms.lease_s
        try:
            async with self._store.decisions.executing(
                SESSION, ticket.plan_id, lease=lease, policy=policy
            ) as execution:
                if not execution.started:
                    return await self._refused(ticket, execution.claim)
                return await self._execute(ticket, execution)
        except (ClaimLostError, AlreadyExecutedError):
            return "settled by another"

    async def _execute(self, ticket: Ticket, execution: Execution) -> str:
        if execution.claim.attempt > 1 and (placed := await self._looked_up(ticket)):
            await say(self._store, f"{ticket.name}: taken over, and found already placed as {placed.order_id}.")
            return await self._succeeded(execution, placed)
        if execution.claim.attempt > 1:
            await say(self._store, f"{ticket.name}: taken over, and not placed yet.")
        await self._perhaps_die(ticket, Mishap.CRASH_BEFORE)
        try:
            placed = await self._placed(ticket, execution.is_held)
        except RejectedError as error:
            await say(self._store, f"{ticket.name}: {error}.")
            await execution.finish(status="failed", error=str(error))
            return "rejected"
        except ExchangeTimeoutError as error:
            await say(self._store, f"{ticket.name}: {error}, so the result is unknown.")
            await execution.finish(status="timeout", error=str(error))
            return await self._settled(ticket)
        await self._perhaps_die(ticket, Mishap.CRASH_AFTER)
        return await self._succeeded(execution, placed)

    async def _succeeded(self, execution: Execution, placed: Placed) -> str:
        await execution.finish(status="success", order_id=placed.order_id, order_size_usdt=placed.size_usdt)
        return "success"

    async def _refused(self, ticket: Ticket, claim: ExecutionClaim) -> str | None:
        """Handle a refusal of the log: wait for another executor, look up an unknown result, else leave the plan."""
        if claim.state == "running":
            return None
        if claim.state == "unknown":
            return await self._settled(ticket)
        if claim.state == "orphaned":
            await say(self._store, f"{ticket.name}: its executor died, so it waits for the statement of the exchange.")
        return claim.state

    async def _settled(self, ticket: Ticket) -> str:
        """Resolve an unknown result by a look-up; without one, leave it to the statement."""
        if VENUES[ticket.symbol] != LANTERN:
            return "unknown"
        placed = await self._looked_up(ticket)
        what = f"has it as {placed.order_id}" if placed else "never got it"
        status, order_id = ("success", placed.order_id) if placed else ("failed", "")
        size = placed.size_usdt if placed else 0.0
        with suppress(ConflictError):  # another executor was faster
            await self._store.decisions.resolve(
                SESSION,
                ticket.plan_id,
                status=status,
                order_id=order_id,
                order_size_usdt=size,
                error="" if placed else f"{LANTERN} never got it",
            )
            await count(self._store, "unknown results resolved by look-up")
            await say(self._store, f"{ticket.name}: asked, and {LANTERN} {what}.")
        return status

    async def _looked_up(self, ticket: Ticket) -> Placed | None:
        return await asyncio.to_thread(self._exchange.look_up, ticket.plan_id)

    # -- without it ---------------------------------------------------------------------------------

    async def _naively(self, ticket: Ticket) -> str:
        """Execute a ticket unless this process remembers it; try again after a time-out."""
        if ticket.name in self._remembered:
            return "remembered"
        await self._perhaps_die(ticket, Mishap.CRASH_BEFORE)
        while True:
            try:
                await self._placed(ticket, lambda: True)
            except RejectedError:
                return "rejected"
            except ExchangeTimeoutError:
                continue
            await self._perhaps_die(ticket, Mishap.CRASH_AFTER)
            self._remembered.add(ticket.name)
            return "success"

    # -- the exchange and the end -------------------------------------------------------------------

    async def _placed(self, ticket: Ticket, permitted: Callable[[], bool]) -> Placed:
        order = Order(
            reference=ticket.plan_id or ticket.task,
            decision=ticket.name,
            venue=VENUES[ticket.symbol],
            price=ticket.price,
            size_usdt=ticket.size_usdt,
        )
        return await asyncio.to_thread(self._exchange.place, order, permitted=permitted)

    async def _perhaps_die(self, ticket: Ticket, where: Mishap) -> None:
        """End this process at once, without cleanup, if the terms require it for this ticket."""
        if await asyncio.to_thread(self._exchange.strikes, ticket.name, (where,)):
            os._exit(CRASHED)


async def main(name: str) -> None:
    """Open the store as this executor and work."""
    async with Hub.open() as hub:
        store = hub.store(NAMESPACE, actor=name)
        terms = Terms.model_validate(await store.read(TERMS))
        mishaps = mishaps_of(await asyncio.to_thread(terms.series), VENUES, terms.seed)
        exchange = Exchange(Path(terms.exchange), executor=name, mishaps=mishaps, hang_s=terms.hang_s)
        await Executor(store, terms, exchange).work()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="One executor of the trading desk; floor.py starts them all.")
    parser.add_argument("name", help="name of the actor")
    asyncio.run(main(parser.parse_args().name))
