"""docs/durable.md: a call that is repeated because its reply was lost has one effect, also if Redis is lost in between.

The ledger that tells a repeat from a new call is lost with the data; what the first try has changed may be in the tier.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count

import pytest
from support import recovery_fixtures as fixtures
from support.recovery_harness import PausableDurable, RecoveryHarness, delete_namespace, open_recovery_harness

from sharedmem import Settings
from sharedmem.clock import new_id
from sharedmem.hub.composition import Connect
from sharedmem.redis.durability import ChangeLostError
from sharedmem.redis.replies import Command, LostError, Reply

tier, connect, where = fixtures.tier, fixtures.connect, fixtures.where


@pytest.fixture
async def hub(connect: Connect, where: Settings, tier: PausableDurable) -> AsyncIterator[RecoveryHarness]:
    async with open_recovery_harness(connect, tier, f"test-{new_id(8)}", settings=where) as made:
        yield made
        await delete_namespace(made)


@pytest.fixture
async def other(
    connect: Connect, where: Settings, tier: PausableDurable, hub: RecoveryHarness
) -> AsyncIterator[RecoveryHarness]:
    async with open_recovery_harness(connect, tier, hub.namespace, settings=where) as made:
        yield made


def lose_the_next_reply(hub: RecoveryHarness, meanwhile: Callable[[], Awaitable[object]]) -> None:
    """The server makes the hub's next call; its reply is lost, and this happens before the call is repeated."""
    line = hub.line
    post, send, tries = line._post, line._send, count()

    async def lost(args: Command) -> Reply:
        line._post, line._send = post, send
        reply = await send(args)
        if next(tries):
            return reply
        await meanwhile()
        raise LostError("the reply was lost")

    line._post, line._send = (lambda _: None), lost  # type: ignore[assignment]  # a fault


CHANGES: dict[str, Callable[[RecoveryHarness], Awaitable[object]]] = {
    "increment": lambda hub: hub.increment("key"),
    "append": lambda hub: hub.append("key", "1"),
    "create": lambda hub: hub.create("key", "1"),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_that_may_be_in_the_tier_is_not_made_again(
    change: str, hub: RecoveryHarness, other: RecoveryHarness
) -> None:
    await hub.join(hub.namespace)
    await hub.line.call("SET", hub.keyspace.state(hub.target("key")), "missing")  # so that it is made at once

    async def redis_is_lost() -> None:
        await other.drain()
        await delete_namespace(hub)
        await other.join(hub.namespace, again=True)

    lose_the_next_reply(hub, redis_is_lost)
    with pytest.raises(ChangeLostError, match="may be lost"):
        await CHANGES[change](hub)

    head = await hub.kept("key")
    assert head is not None
    await hub.drain()
    assert await hub.kept("key") == head


async def test_nor_is_it_when_no_hub_has_joined_since(hub: RecoveryHarness, other: RecoveryHarness) -> None:
    await hub.increment("key")

    async def redis_is_lost() -> None:
        await other.drain()
        await delete_namespace(hub)

    lose_the_next_reply(hub, redis_is_lost)
    with pytest.raises(ChangeLostError, match="may be lost"):
        await hub.increment("key")

    assert await hub.increment("key") == 3


async def test_a_value_is_written_again_since_that_makes_no_difference(
    hub: RecoveryHarness, other: RecoveryHarness
) -> None:
    async def redis_is_lost() -> None:
        await other.drain()
        await delete_namespace(hub)
        await other.join(hub.namespace, again=True)

    await hub.join(hub.namespace)
    lose_the_next_reply(hub, redis_is_lost)

    version = await hub.write("key", "1")

    assert await hub.version("key") == version


async def test_what_does_not_last_is_made_again_since_it_was_lost_with_redis(hub: RecoveryHarness) -> None:
    assert await hub.increment("key", mode="a") == 1

    lose_the_next_reply(hub, lambda: delete_namespace(hub))

    assert await hub.increment("key", mode="a") == 1


async def test_a_change_is_repeated_when_redis_has_lost_nothing(hub: RecoveryHarness, other: RecoveryHarness) -> None:
    await hub.increment("key")

    lose_the_next_reply(hub, other.drain)

    assert await hub.increment("key") == 2


async def test_a_hub_that_has_not_heard_of_a_loss_makes_its_change_once_it_has(
    hub: RecoveryHarness, other: RecoveryHarness
) -> None:
    await hub.increment("key")
    await hub.drain()
    await delete_namespace(hub)
    await other.join(hub.namespace)

    assert await hub.increment("key") == 2
