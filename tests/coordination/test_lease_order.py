"""Waiters get a lease in their order, also when a process is slow; a frozen process does not block the others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from sharedmem.testing import ManualClock, fake_hub

Ask = Callable[[str], Awaitable[str]]
_LEASE_S = 1.0


@pytest.fixture
async def ask(clock: ManualClock) -> AsyncIterator[Ask]:
    """Asks for a lock in the name of a waiter `<hub>/<number>`: `got` or `wait`."""
    async with fake_hub(clock=clock) as hub:
        store = hub.store("team")
        environment, place = store._lease_environment, store._lease_resource("lock", "it")

        async def ask(waiter: str) -> str:
            reply = await environment.scripts.lease_acquire(
                place.target.space,
                place.contest,
                environment.names.actor,
                capacity=1,
                weight=1,
                lease_ms=int(_LEASE_S * 1000),
                asker=f"{waiter}~",  # as on a cluster, where a call is taken to be heard
                waits=1,
                gain=b"",
            )
            return reply.decode().partition(" ")[0]

        yield ask


async def _miss_a_turn(ask: Ask, clock: ManualClock) -> None:
    """One waiter of the slow hub holds the lock until its lease ends; the next is called, and does not come."""
    assert [await ask(f"slow/{number}") for number in range(1, 5)] == ["got", "wait", "wait", "wait"]
    clock.advance(_LEASE_S + 0.1)
    assert await ask("slow/4") == "wait"
    clock.advance(11)


async def test_a_slow_hub_that_asks_keeps_the_order_of_its_waiters(ask: Ask, clock: ManualClock) -> None:
    await _miss_a_turn(ask, clock)

    assert await ask("slow/4") == "wait"
    assert await ask("slow/3") == "wait"
    assert await ask("slow/2") == "got"
    clock.advance(_LEASE_S + 0.1)
    assert await ask("slow/4") == "wait"
    assert await ask("slow/3") == "got"


async def test_another_hub_passes_a_hub_that_missed_its_turn(ask: Ask, clock: ManualClock) -> None:
    await _miss_a_turn(ask, clock)

    assert await ask("other/1") == "got"


async def test_a_waiter_that_never_comes_is_passed_alone_after_a_minute(ask: Ask, clock: ManualClock) -> None:
    await _miss_a_turn(ask, clock)
    clock.advance(60)

    assert await ask("slow/4") == "wait"
    assert await ask("slow/3") == "got"
