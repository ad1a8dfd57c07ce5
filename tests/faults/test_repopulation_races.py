"""Nothing deleted or older comes back: the races of write-through, each held still at its worst moment, and all orders.

Each cure is shown to matter by a control: the same test with that line of the script taken out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import count, repeat
from pathlib import Path
from typing import Any, NamedTuple

import fakeredis
import pytest
from support import recovery_fixtures as fixtures
from support.recovery_harness import (
    CACHE_MS,
    PausableDurable,
    PauseAtCall,
    RecoveryHarness,
    delete_namespace,
    open_recovery_harness,
)
from support.schedules import DictDurable, Program, Schedule, SteppedClock, run_all_schedules

from sharedmem import Settings
from sharedmem.durable.key_loader import OVERTAKEN, LoadTimes
from sharedmem.errors import UnavailableError
from sharedmem.hub.composition import Connect
from sharedmem.testing.fakes import connect_to_fake

NO_LEASE_CHECK = ("key_fill", "redis.call('GET', state) ~= 'loading ' .. token or ", "")
NO_PENDING = ("key_look", "if what == 'pending' then", "if what == 'never' then")
NO_DELETED = ("key_look", "what == 'missing' or what == 'deleted'", "what == 'missing'")
NO_STATE = (
    "value_write.kept",
    "    write_states(unpack(new))\n",
    "",
)
NO_COLD = ("collection_change.kept", "elseif is_cold(i) then", "elseif is_cold(i) and false then")
SETTLED_AT_ONCE = ("outbox_settle", "if left > 0 then", "if left > 99 then")


tier, connect, where = fixtures.tier, fixtures.connect, fixtures.where
limits, hub, other = fixtures.limits, fixtures.hub, fixtures.other


@asynccontextmanager
async def reader_held_up(hub: RecoveryHarness, tier: PausableDurable) -> AsyncIterator[asyncio.Task[bool]]:
    """A reader who has what the tier said in hand while the block runs, and then goes on."""
    tier.after = pause = PauseAtCall("records")
    reader = asyncio.create_task(hub.recalled("key"))
    await pause.reached.wait()
    yield reader
    pause.over.set()
    await reader


# -- a reader puts back what it read before a change ----------------------------------------------


async def overwrite_and_evict(hub: RecoveryHarness, other: RecoveryHarness, tier: PausableDurable) -> None:
    await hub.write("key", "1")
    await hub.settled("key")
    async with reader_held_up(hub, tier):
        await other.write("key", "2")
        await other.settled("key")


async def test_a_reader_does_not_put_back_an_old_value_after_an_eviction(
    hub: RecoveryHarness, other: RecoveryHarness, tier: PausableDurable
) -> None:
    await overwrite_and_evict(hub, other, tier)

    assert await hub.held("key") == "2"
    assert hub.counters.read(OVERTAKEN) == 1


async def test_without_the_lease_an_old_value_comes_back(
    hub: RecoveryHarness, other: RecoveryHarness, tier: PausableDurable
) -> None:
    await hub.use_mutant(*NO_LEASE_CHECK)

    await overwrite_and_evict(hub, other, tier)

    assert await hub.held("key") == "1"


async def test_a_reader_does_not_overwrite_a_newer_value(
    hub: RecoveryHarness, other: RecoveryHarness, tier: PausableDurable
) -> None:
    await hub.write("key", "1")
    await hub.settled("key")

    async with reader_held_up(hub, tier):
        await other.write("key", "2")

    assert await hub.held("key") == "2"


async def delete_meanwhile(hub: RecoveryHarness, other: RecoveryHarness, tier: PausableDurable) -> bool:
    await hub.write("key", "1")
    await hub.settled("key")
    async with reader_held_up(hub, tier) as reader:
        # A deletion loads what is not there first; it is there by now.
        await other.write("key", "2")
        await other.delete("key")
    return await reader


async def test_a_reader_does_not_bring_back_a_deleted_key(
    hub: RecoveryHarness, other: RecoveryHarness, tier: PausableDurable
) -> None:
    assert not await delete_meanwhile(hub, other, tier)

    assert await hub.held("key") is None
    await hub.drain()
    assert await hub.read("key") is None


async def test_without_the_lease_a_deleted_key_comes_back(
    hub: RecoveryHarness, other: RecoveryHarness, tier: PausableDurable
) -> None:
    await hub.use_mutant(*NO_LEASE_CHECK)

    assert await delete_meanwhile(hub, other, tier)


async def test_a_reader_whose_lease_ended_changes_nothing(
    connect: Connect, where: Settings, hub: RecoveryHarness, tier: PausableDurable
) -> None:
    await hub.write("key", "1")
    await hub.settled("key")
    times = LoadTimes(cache_ms=CACHE_MS, lease_ms=20)
    async with open_recovery_harness(connect, tier, hub.namespace, settings=where, times=times) as slow:
        await slow.join(hub.namespace)
        async with reader_held_up(slow, tier):
            await hub.recalled("key")
            await hub.write("key", "2")
            await hub.settled("key")
        assert slow.counters.read(OVERTAKEN) >= 1

    assert await hub.held("key") == "2"


async def test_a_key_that_was_written_meanwhile_is_not_marked_as_missing(
    hub: RecoveryHarness, other: RecoveryHarness, tier: PausableDurable
) -> None:
    await hub.join(hub.namespace)

    async with reader_held_up(hub, tier):
        await other.write("key", "1")
        await other.settled("key")

    assert await hub.read("key") == "1"


async def test_a_fill_that_comes_late_after_a_lost_connection_changes_nothing(
    hub: RecoveryHarness, tier: PausableDurable
) -> None:
    await hub.write("key", "1")
    await hub.settled("key")
    fills: list[Callable[[], Awaitable[list[bool]]]] = []
    fill = hub.keeping.key_fill

    async def remembered(*args: Any, **named: Any) -> list[bool]:
        fills.append(partial(fill, *args, **named))
        return await fill(*args, **named)

    hub.keeping.key_fill = remembered  # type: ignore[method-assign]  # a fault
    await hub.recalled("key")
    await hub.write("key", "2")
    await hub.settled("key")

    assert await fills[0]() == [False]
    assert await hub.read("key") == "2"


# -- the tier is behind ---------------------------------------------------------------------------


async def test_a_value_that_went_before_it_was_drained_is_not_read_as_it_was(hub: RecoveryHarness) -> None:
    await hub.write("key", "1")
    await hub.drain()
    await hub.write("key", "2")
    await hub.evict("key")
    hub.drains_on_load = True

    assert await hub.read("key") == "2"


async def test_without_its_state_it_would_be(hub: RecoveryHarness) -> None:
    await hub.use_mutant(*NO_PENDING)
    await hub.write("key", "1")
    await hub.drain()
    await hub.write("key", "2")
    await hub.evict("key")

    assert await hub.read("key") == "1"


async def test_a_deletion_holds_before_the_tier_knows_of_it(hub: RecoveryHarness, other: RecoveryHarness) -> None:
    await hub.write("key", "1")
    await hub.drain()
    await hub.delete("key")

    assert await other.read("key") is None
    await other.drain()
    assert await other.read("key") is None


async def test_without_its_tombstone_a_deleted_key_is_read(hub: RecoveryHarness, other: RecoveryHarness) -> None:
    await other.use_mutant(*NO_DELETED)
    await hub.write("key", "1")
    await hub.drain()
    await hub.delete("key")

    assert await other.read("key") == "1"


async def test_changes_that_reach_the_tier_in_the_wrong_order_leave_the_newest(
    hub: RecoveryHarness, tier: PausableDurable
) -> None:
    await hub.write("key", "1")
    first = await hub.line.call("XRANGE", hub.keyspace.outbox(hub.namespace), "-", "+")
    await hub.write("key", "2")
    await hub.settled("key")
    assert isinstance(first, list)
    entry = first[0]
    assert isinstance(entry, list)
    fields = entry[1]
    assert isinstance(fields, list)
    await hub.line.call("XADD", hub.keyspace.outbox(hub.namespace), "*", *fields)  # type: ignore[arg-type]  # bytes
    await hub.drain()

    assert await hub.read("key") == "2"


# -- changes of what is not in Redis --------------------------------------------------------------


async def test_a_change_of_a_cold_list_builds_on_what_the_tier_has(hub: RecoveryHarness) -> None:
    await hub.append("list", "1")
    await hub.settled("list")

    await hub.append("list", "2")

    assert await members(hub) == [b"1", b"2"]


async def test_without_that_the_list_loses_what_it_had(hub: RecoveryHarness) -> None:
    await hub.use_mutant(*NO_COLD)
    await hub.append("list", "1")
    await hub.settled("list")

    await hub.append("list", "2")

    assert await members(hub) == [b"2"]


async def test_a_change_of_a_cold_list_that_is_deleted_meanwhile_begins_a_new_one(
    hub: RecoveryHarness, other: RecoveryHarness, tier: PausableDurable
) -> None:
    await hub.append("list", "1")
    await hub.settled("list")
    await other.join(hub.namespace)
    tier.after = pause = PauseAtCall("records")
    appending = asyncio.create_task(hub.append("list", "2"))
    await pause.reached.wait()
    tier.after = PauseAtCall("nothing")
    await other.line.call("DEL", other.keyspace.state(other.target("list")))  # as when the lease has ended
    await other.delete("list")
    pause.over.set()
    await appending

    assert await members(hub) == [b"2"]
    await hub.settled("list")
    assert await hub.recalled("list")
    assert await members(hub) == [b"2"]


async def members(hub: RecoveryHarness) -> object:
    return await hub.line.call("LRANGE", hub.target("list").physical, 0, -1)


# -- every order ----------------------------------------------------------------------------------


class Model:
    """What must hold of one key after each step, and at the end.

    Args:
        hubs: their programs run against each other.
    """

    def __init__(self, hubs: list[RecoveryHarness], clock: SteppedClock, tier: PausableDurable) -> None:
        self.hubs, self._clock, self._tier = hubs, clock, tier
        self._numbers = count()
        self.versions: list[int] = []
        self.newest = 0
        """The version under the key after the newest change; 0 when that was a deletion."""

    async def run(self, schedule: Schedule, orders: Orders) -> None:
        hub = self.hubs[0]
        for one in self.hubs:
            one.namespace = f"order-{next(self._numbers)}" if one is hub else hub.namespace
            await one.join(one.namespace)
        self.versions, self.newest = [], 0
        self._tier.before = lambda name: schedule.gate() if name == "records" else _at_once()
        self._clock.schedule = schedule
        self.gate = schedule.gate
        for one in self.hubs:
            one.line.pauses = lambda: repeat(1.0)  # type: ignore[method-assign]  # an order is to be the same again
        for one in self.hubs:
            for name in ("key_look", "key_fill", "outbox_settle"):
                setattr(one.keeping, name, partial(_gated, schedule, getattr(type(one.keeping), name), one.keeping))
        await self.write("1")()
        if orders.drained:
            await hub.settled("key")
        await schedule.run(orders.programs(self), self._check)
        await self._end()

    async def _check(self) -> None:
        held = await self.hubs[0].version("key")
        assert held in {0, self.newest}, f"{held} is in Redis after {self.newest}"

    async def _end(self) -> None:
        hub = self.hubs[0]
        await hub.drain()
        assert len(set(self.versions)) == len(self.versions)
        await hub.read("key")
        assert await hub.version("key") == self.newest
        head = await hub.kept("key")
        assert head is not None
        assert (0 if head.deleted else head.version) == self.newest
        await delete_namespace(hub)

    # -- programs

    def write(self, body: str, hub: int = 0) -> Program:
        async def program() -> None:
            if self.versions:
                await self.gate()
            self.newest = await self.hubs[hub].write("key", body)
            self.versions.append(self.newest)

        return program

    def delete(self, hub: int = 0) -> Program:
        async def program() -> None:
            await self.gate()
            with suppress(UnavailableError):
                if version := await self.hubs[hub].delete("key"):
                    self.versions.append(version)
                    self.newest = 0

        return program

    def read(self, hub: int = 0) -> Program:
        async def program() -> None:
            # It may have to wait for a relay that has had its turn.
            with suppress(UnavailableError):
                await self.hubs[hub].recalled("key")

        return program

    def evict(self) -> Program:
        async def program() -> None:
            await self.gate()
            await self.hubs[0].evict("key")

        return program

    def drain(self, hub: int = 0) -> Program:
        async def program() -> None:
            await self.gate()
            made = self.hubs[hub]
            stream = made.relay._stream(made.namespace)
            await made.relay._delivery.deliver(stream, await stream.oldest(100))

        return program


async def _at_once() -> None:
    """No step of its own."""


async def _gated(schedule: Schedule, call: Callable[..., Awaitable[object]], *args: Any, **named: Any) -> object:
    await schedule.gate()
    return await call(*args, **named)


@pytest.fixture
async def model(tmp_path: Path) -> AsyncIterator[Model]:
    server, clock, tier = fakeredis.FakeServer(), SteppedClock(), PausableDurable(DictDurable())
    settings = Settings(data_dir=tmp_path)
    connect = connect_to_fake(server)
    times = LoadTimes(cache_ms=CACHE_MS, patience_s=1.5)
    async with (
        open_recovery_harness(connect, tier, "order", settings=settings, clock=clock, times=times) as one,
        open_recovery_harness(connect, tier, "order", settings=settings, clock=clock, times=times) as two,
    ):
        yield Model([one, two], clock, tier)


class Orders(NamedTuple):
    """What runs against each other."""

    programs: Callable[[Model], dict[str, Program]]
    drained: bool = True
    """Whether the tier has what is under the key at first, and Redis has not; else the other way round."""


def reading_and_writing(model: Model) -> dict[str, Program]:
    return {"read": model.read(1), "write": model.write("2"), "drain": model.drain(), "evict": model.evict()}


def deleting(model: Model) -> dict[str, Program]:
    return {"read": model.read(1), "delete": model.delete(), "drain": model.drain()}


def deleting_and_evicting(model: Model) -> dict[str, Program]:
    return {"delete": model.delete(), "drain": model.drain(), "evict": model.evict()}


def two_readers(model: Model) -> dict[str, Program]:
    return {"read": model.read(1), "read too": model.read(0), "write": model.write("2")}


ORDERS = {
    "a reader, a writer, a relay, an eviction": Orders(reading_and_writing),
    "the same, with a change that waits": Orders(reading_and_writing, drained=False),
    "a reader, a deleter, a relay": Orders(deleting),
    "a deleter of what waits, a relay, an eviction": Orders(deleting_and_evicting, drained=False),
    "two readers, a writer": Orders(two_readers),
}


@pytest.mark.parametrize("name", ORDERS)
async def test_in_no_order_does_anything_old_come_back(model: Model, name: str) -> None:
    assert await run_all_schedules(lambda schedule: model.run(schedule, ORDERS[name])) > 10


@pytest.mark.parametrize(
    ("mutant", "name"),
    [
        (NO_LEASE_CHECK, "a reader, a writer, a relay, an eviction"),
        (NO_PENDING, "a reader, a writer, a relay, an eviction"),
        (NO_STATE, "a reader, a writer, a relay, an eviction"),
        (NO_DELETED, "a reader, a deleter, a relay"),
        (SETTLED_AT_ONCE, "the same, with a change that waits"),
    ],
    ids=lambda choice: choice if isinstance(choice, str) else choice[0],
)
async def test_without_a_cure_something_old_comes_back_in_some_order(
    model: Model, mutant: tuple[str, str, str], name: str
) -> None:
    for one in model.hubs:
        await one.use_mutant(*mutant)

    with pytest.raises(AssertionError, match="in the order"):
        await run_all_schedules(lambda schedule: model.run(schedule, ORDERS[name]))
