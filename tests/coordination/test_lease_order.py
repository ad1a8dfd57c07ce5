"""Waiters get a lease in their order, also when a process is slow; a frozen process does not block the others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from sharedmem.redis.scripts.coordination import LeaseTerms
from sharedmem.testing import ManualClock, fake_hub

Ask = Callable[[str], Awaitable[str]]
_LEASE_S = 1.0
_LEASE_MS = 1000


@pytest.fixture
async def ask(clock: ManualClock) -> AsyncIterator[Ask]:
    """Asks for a lock in the name of a waiter `<hub>/<number>`: `got` or `wait`."""
    async with fake_hub(clock=clock) as hub:
        store = hub.store("team")
        calls, place, terms = store._lease_calls, store._lease_resource("lock", "it"), LeaseTerms(1, 1, _LEASE_MS)

        async def ask(waiter: str) -> str:
            # With a tilde, as on a cluster, where a call is taken to be heard.
            reply = await calls.acquire(place, terms, f"{waiter}~", waits=1)
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
