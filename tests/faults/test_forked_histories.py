"""docs/durable.md: what was acknowledged `through` is part of what everybody goes on with after Redis has lost data.

One hub is held up on its way to the tier; Redis loses its data; another hub restores what the tier has by then and
changes the same key. Stamps alone say nothing then: the later change was made without the earlier one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from support import recovery_fixtures as fixtures
from support.recovery_harness import (
    PausableDurable,
    PauseAtCall,
    RecoveryHarness,
    delete_namespace,
    memorised,
    open_recovery_harness,
)
from support.waiting import wait_until

from sharedmem import Settings
from sharedmem.clock import new_id
from sharedmem.hub.composition import Connect
from sharedmem.redis.change_stream import as_list
from sharedmem.redis.durability import ChangeLostError

KNOWLEDGE = "k"
KEY = "key"


tier, connect, where = fixtures.tier, fixtures.connect, fixtures.where


@pytest.fixture
async def hub(connect: Connect, where: Settings, tier: PausableDurable) -> AsyncIterator[RecoveryHarness]:
    async with open_recovery_harness(connect, tier, f"test-{new_id(8)}", settings=where) as made:
        made._through = KNOWLEDGE
        yield made
        await delete_namespace(made)


@pytest.fixture
async def other(
    connect: Connect, where: Settings, tier: PausableDurable, hub: RecoveryHarness
) -> AsyncIterator[RecoveryHarness]:
    async with open_recovery_harness(connect, tier, hub.namespace, settings=where) as made:
        made._through = KNOWLEDGE
        yield made


# -- changes that rely on what was there ----------------------------------------------------------

Change = Callable[[RecoveryHarness], Awaitable[object]]


async def count_on(hub: RecoveryHarness) -> object:
    return await hub.increment(KEY)


async def total_up(hub: RecoveryHarness) -> object:
    """Write one more than there is, unless another writer was faster."""
    total = await hub.read(KEY)
    return await hub.write_over(KEY, await hub.version(KEY), str(int(total or 0) + 1))


async def number(hub: RecoveryHarness) -> int:
    """What the key holds when it is not in Redis any more."""
    await hub.settled(KEY)
    assert await hub.recalled(KEY)
    raw = await hub.line.call("GET", hub.target(KEY).physical)
    assert isinstance(raw, bytes)
    return int(raw.split(b"\n")[-1])


CHANGES = {"a counter": count_on, "a conditional write": total_up}


@pytest.fixture(params=CHANGES)
def change(request: pytest.FixtureRequest) -> Change:
    return CHANGES[request.param]


# -- held up on the way ---------------------------------------------------------------------------


def held_before_its_entry_is_read(hub: RecoveryHarness) -> PauseAtCall:
    """Its next change is made, and the hub does not go on to the tier yet."""
    pause, settle = PauseAtCall("settle"), hub.settle

    async def late(namespace: str, entries: list[bytes], changed: dict[str, int]) -> None:
        await pause("settle")
        await settle(namespace, entries, changed)

    hub.settle = late  # type: ignore[method-assign,assignment]  # it is slow
    return pause


def held_before_the_tier_has_it(tier: PausableDurable) -> PauseAtCall:
    """The next put does not get there yet."""
    tier.before = pause = PauseAtCall("put")
    return pause


@pytest.fixture(params=["before its entry is read", "before the tier has it"])
def held(request: pytest.FixtureRequest, hub: RecoveryHarness, tier: PausableDurable) -> Callable[[], PauseAtCall]:
    if request.param == "before its entry is read":
        return lambda: held_before_its_entry_is_read(hub)
    return lambda: held_before_the_tier_has_it(tier)


async def under_way(change: Change, hub: RecoveryHarness, pause: PauseAtCall) -> asyncio.Task[object]:
    """The change of a hub that stands still."""
    changing = asyncio.create_task(_made(change(hub)))
    await pause.reached.wait()
    return changing


async def _made(change: Awaitable[object]) -> object:
    return await change


async def test_what_others_count_on_without_it_is_not_acknowledged(
    hub: RecoveryHarness, other: RecoveryHarness, change: Change, held: Callable[[], PauseAtCall]
) -> None:
    await change(hub)
    pause = held()
    changing = await under_way(change, hub, pause)
    await delete_namespace(hub)
    await change(other)

    pause.over.set()

    with pytest.raises(ChangeLostError):
        await changing
    assert await number(other) == 2


async def test_after_a_set_back_of_which_the_tier_shows_nothing_it_is_not_acknowledged_either(
    hub: RecoveryHarness, other: RecoveryHarness, change: Change
) -> None:
    await change(hub)
    set_back = await memorised(hub)
    pause = held_before_its_entry_is_read(hub)
    changing = await under_way(change, hub, pause)
    await set_back()
    await change(other)

    pause.over.set()

    with pytest.raises(ChangeLostError):
        await changing
    assert await number(other) == 2


async def test_a_change_that_an_ephemeral_list_hides_after_a_set_back_is_not_acknowledged(
    hub: RecoveryHarness, other: RecoveryHarness, tier: PausableDurable
) -> None:
    await hub.append(KEY, "1", mode="D")
    await hub.line.call("PEXPIRE", hub.target(KEY).physical, 60_000)
    await hub.drain()
    set_back = await memorised(hub)
    pause = held_before_the_tier_has_it(tier)
    changing = await under_way(lambda hub: hub.append(KEY, "2"), hub, pause)
    await set_back()
    await other.write("another key", "1")

    pause.over.set()

    with pytest.raises(ChangeLostError, match="may be lost"):
        await changing


async def test_a_change_is_reported_as_unsure_if_the_data_was_changed_after_the_loss(
    hub: RecoveryHarness, other: RecoveryHarness, tier: PausableDurable, change: Change
) -> None:
    await change(hub)
    tier.after = pause = PauseAtCall("put")
    changing = await under_way(change, hub, pause)
    await delete_namespace(hub)
    await change(other)

    pause.over.set()

    with pytest.raises(ChangeLostError, match="may be lost"):
        await changing
    assert await number(other) == 3


async def test_what_was_not_changed_since_is_acknowledged(
    hub: RecoveryHarness, other: RecoveryHarness, tier: PausableDurable, change: Change
) -> None:
    await change(hub)
    pause = held_before_the_tier_has_it(tier)
    changing = await under_way(change, hub, pause)
    await delete_namespace(hub)
    assert await other.recalled(KEY)  # as it was before

    pause.over.set()

    await changing
    await change(other)
    assert await number(other) == 3


async def test_what_was_deleted_since_is_acknowledged(
    hub: RecoveryHarness, other: RecoveryHarness, change: Change, held: Callable[[], PauseAtCall]
) -> None:
    await change(hub)
    pause = held()
    changing = await under_way(change, hub, pause)
    await delete_namespace(hub)
    await other.delete(KEY)

    pause.over.set()

    await changing
    await other.settled(KEY)
    assert not await other.recalled(KEY)


async def test_what_others_settle_is_acknowledged_although_it_was_changed_since(
    hub: RecoveryHarness, other: RecoveryHarness, change: Change
) -> None:
    pause = held_before_its_entry_is_read(hub)
    changing = await under_way(change, hub, pause)
    await other.drain()
    await change(other)

    pause.over.set()

    await changing
    assert await number(other) == 2


async def test_a_cut_change_stream_is_no_sign_of_a_loss(
    hub: RecoveryHarness, other: RecoveryHarness, change: Change
) -> None:
    await change(other)  # so that the present data is older than what follows
    await a_moment_later(hub)
    pause = held_before_its_entry_is_read(hub)
    changing = await under_way(change, hub, pause)
    await other.drain()
    await change(other)
    await hub.line.call("XTRIM", hub.keyspace.space(hub.namespace).changes, "MAXLEN", 1)

    pause.over.set()

    await changing
    assert await number(other) == 3


async def a_moment_later(hub: RecoveryHarness) -> None:
    """Entries are dated in milliseconds."""
    began = await hub.line.server_time_us()

    async def has_passed() -> bool:
        return await hub.line.server_time_us() > began + 2_000

    await wait_until(has_passed, description="two milliseconds have passed at the server")


async def test_an_item_that_comes_late_pushes_no_older_one_out_of_its_list(
    hub: RecoveryHarness, other: RecoveryHarness, tier: PausableDurable
) -> None:
    await hub.append(KEY, "1")
    pause = held_before_the_tier_has_it(tier)
    changing = await under_way(lambda hub: hub.append(KEY, "lost"), hub, pause)
    await delete_namespace(hub)
    await other.append(KEY, "3")

    pause.over.set()

    with pytest.raises(ChangeLostError):
        await changing
    await other.settled(KEY)
    assert await other.recalled(KEY)
    items = await other.line.call("LRANGE", other.target(KEY).physical, 0, -1)
    assert items in ([b"1", b"3"], [b"1", b"lost", b"3"])


# -- entries of lost data and of the present data with the same id -------------------------------


async def give_id(hub: RecoveryHarness, id_: bytes) -> None:
    """Give the only entry the id of a lost one, as a server with a slow clock would: ids are times in milliseconds."""
    outbox = hub.keyspace.outbox(hub.namespace)
    [entry] = as_list(await hub.line.call("XRANGE", outbox, "-", "+"))
    fields = [field for field in as_list(as_list(entry)[1]) if isinstance(field, bytes)]
    await hub.line.call("DEL", outbox)
    await hub.line.call("XADD", outbox, id_, *fields)


async def test_a_late_worker_does_not_settle_another_entry_with_the_same_id(
    hub: RecoveryHarness, other: RecoveryHarness, tier: PausableDurable
) -> None:
    hub._through = other._through = ""
    await hub.write(KEY, "1")
    entry = await hub.newest_entry()
    pause = held_before_the_tier_has_it(tier)
    late = asyncio.create_task(other.drain())
    await pause.reached.wait()
    await hub.drain()
    await delete_namespace(hub)
    await hub.write(KEY, "2")
    await give_id(hub, entry)

    pause.over.set()

    await late
    await hub.settled(KEY)
    assert await hub.read(KEY) == "2"


@pytest.mark.parametrize("key", [KEY, "another key"])
async def test_a_lost_change_is_not_acknowledged_because_another_entry_has_its_id(
    hub: RecoveryHarness, other: RecoveryHarness, key: str
) -> None:
    other._through = ""
    pause = held_before_its_entry_is_read(hub)
    changing = await under_way(lambda hub: hub.write(key, "1"), hub, pause)
    entry = await hub.newest_entry()
    await delete_namespace(hub)
    await other.write(KEY, "2")
    await give_id(other, entry)

    pause.over.set()

    with pytest.raises(ChangeLostError):
        await changing
    await other.settled(KEY)
    assert await other.read(KEY) == "2"
