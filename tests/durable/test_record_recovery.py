"""docs/durable.md: after a loss one hub restores what the tier has, and nothing that may last is changed before.

Two hubs share a server and a tier; the test holds one of them up while it restores.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from support import recovery_fixtures as fixtures
from support.recovery_harness import (
    PausableDurable,
    PauseAtCall,
    RecoveryHarness,
    delete_namespace,
    open_recovery_harness,
)
from support.waiting import wait_until

from sharedmem import Settings
from sharedmem.durable.loss_detection import JoinLimits
from sharedmem.durable.outbox_stream import entry_time_ms
from sharedmem.errors import UnavailableError, UsageError
from sharedmem.hub.composition import Connect
from sharedmem.models import DurableRecord
from sharedmem.redis.change_stream import as_list
from sharedmem.redis.durability import KindUnknownError

SHORT_LEASE = JoinLimits(retry_s=1, drain_s=2, lease_ms=150)
RENEWED_LEASE = JoinLimits(retry_s=1, drain_s=2, lease_ms=900)
LONG_LEASE = JoinLimits(retry_s=1, drain_s=2, lease_ms=60_000)


tier, connect, where = fixtures.tier, fixtures.connect, fixtures.where
hub, other = fixtures.hub, fixtures.other


@pytest.fixture
def limits() -> JoinLimits:
    return LONG_LEASE


async def held_up(other: RecoveryHarness, tier: PausableDurable) -> tuple[asyncio.Task[None], PauseAtCall]:
    """The other hub begins to restore, and is held up before it reads what the tier has."""
    tier.before = pause = PauseAtCall("iterate")
    restoring = asyncio.create_task(other.join(other.namespace))
    await pause.reached.wait()
    return restoring, pause


async def looked_again(tier: PausableDurable) -> None:
    """A hub that waits for another one asks the tier from time to time how far it is."""
    calls = tier.calls.count("highest")
    await wait_until(lambda: tier.calls.count("highest") > calls + 1, description="a waiting hub has looked again")


CHANGES: dict[str, Callable[[RecoveryHarness], Awaitable[object]]] = {
    "write": lambda hub: hub.write("mine", "2", mode="a"),
    "create": lambda hub: hub.create("mine", "2", mode="a"),
    "delete": lambda hub: hub.delete("mine", mode="a"),
    "increment": lambda hub: hub.increment("counter", mode="a"),
    "append": lambda hub: hub.append("list", "2", mode="a"),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_waits_while_another_hub_restores(
    change: str, hub: RecoveryHarness, other: RecoveryHarness, tier: PausableDurable
) -> None:
    await hub.write("mine", "1", mode="K")
    await hub.increment("counter", mode="K")
    await hub.append("list", "1", mode="K")
    await hub.drain()
    await delete_namespace(hub)
    restoring, pause = await held_up(other, tier)

    changing = asyncio.create_task(_outcome(CHANGES[change](hub)))
    await looked_again(tier)

    assert not changing.done()
    pause.over.set()
    await restoring
    outcome = await changing
    await hub.settled("mine", "counter", "list")
    wanted = {"write": "2", "create": "1", "delete": None}
    assert await hub.read("mine", "a") == wanted.get(change, "1")
    if change == "create":
        assert outcome == b"L"  # load it first: it is in the tier alone
    if change == "increment":
        assert outcome == 2
    if change == "append":
        assert await hub.recalled("list", "a")
        assert await hub.line.call("LRANGE", hub.target("list").physical, 0, -1) == [b"1", b"2"]


async def _outcome(change: Awaitable[object]) -> object:
    return await change


async def test_what_was_changed_after_the_wait_survives_the_next_loss(
    hub: RecoveryHarness, other: RecoveryHarness, tier: PausableDurable
) -> None:
    await hub.write("mine", "1", mode="K")
    await hub.drain()
    await delete_namespace(hub)
    restoring, pause = await held_up(other, tier)
    changing = asyncio.create_task(hub.write("mine", "2", mode="a"))
    await looked_again(tier)
    pause.over.set()
    await asyncio.gather(restoring, changing)
    await hub.drain()

    await delete_namespace(hub)

    assert await other.read("mine", "a") == "2"


@pytest.mark.parametrize("limits", [SHORT_LEASE], ids=["short lease"])
async def test_a_hub_that_dies_while_it_restores_is_replaced(
    hub: RecoveryHarness, other: RecoveryHarness, tier: PausableDurable
) -> None:
    await hub.write("mine", "1", mode="K")
    await hub.drain()
    await delete_namespace(hub)
    restoring, _ = await held_up(other, tier)
    await other.background.close()
    with pytest.raises(UsageError, match="it was closed"):
        await restoring

    await hub.write("mine", "2", mode="a")

    await hub.settled("mine")
    assert await hub.read("mine", "a") == "2"


@pytest.mark.parametrize("limits", [RENEWED_LEASE], ids=["renewed lease"])
async def test_a_hub_that_is_slow_and_alive_is_waited_for_and_the_wait_ends(
    connect: Connect, where: Settings, hub: RecoveryHarness, other: RecoveryHarness, tier: PausableDurable
) -> None:
    await hub.write("mine", "1", mode="K")
    await hub.drain()
    await delete_namespace(hub)
    restoring, pause = await held_up(other, tier)
    impatient = JoinLimits(wait_s=3.5, lease_ms=RENEWED_LEASE.lease_ms)

    # Several leases long, so that only renewals keep the other one's right.
    async with open_recovery_harness(connect, tier, hub.namespace, settings=where, limits=impatient) as third:
        with pytest.raises(UnavailableError, match=r"being restored .* try again"):
            await third.write("mine", "2", mode="a")

    pause.over.set()
    await restoring
    assert await hub.read("mine", "a") == "1"
    assert tier.calls.count("iterate") == 1


async def test_a_hub_that_was_replaced_changes_nothing_more(
    hub: RecoveryHarness, other: RecoveryHarness, tier: PausableDurable
) -> None:
    await hub.write("mine", "1", mode="K")
    await hub.drain()
    await delete_namespace(hub)
    restoring, pause = await held_up(other, tier)
    kept = hub.keyspace.kept(hub.namespace)
    mark = await hub.line.call("HGET", kept, "$joined")
    assert isinstance(mark, bytes)
    since, epoch = mark.split()[1:3]
    await hub.line.call("HSET", kept, "$joined", b" ".join((b"recovering", since, epoch, b"somebody", b"9" * 15)))

    pause.over.set()
    await looked_again(tier)

    assert set(as_list(await hub.line.call("HKEYS", kept))) == {b"$joined", b"$steps"}
    await hub.line.call("HDEL", kept, "$joined")
    await restoring
    assert await hub.line.call("HGET", kept, hub.target("mine").key) == b"k"


# -- a tier that is away --------------------------------------------------------------------------


async def away(_name: str) -> None:
    raise UnavailableError("the tier", "it is away")


async def test_without_the_tier_a_key_of_unknown_kind_is_refused_after_a_loss(
    hub: RecoveryHarness, tier: PausableDurable
) -> None:
    await hub.write("mine", "1", mode="K")
    await hub.drain()
    await delete_namespace(hub)
    tier.before = away

    for change in CHANGES.values():
        with pytest.raises(KindUnknownError, match="the durable tier, which has the kind, is unreachable"):
            await change(hub)

    assert await hub.line.call("EXISTS", hub.target("mine").physical) == 0
    tier.before = PauseAtCall("nothing")
    hub.joiner.ask_again_at[hub.namespace] = 0.0
    await hub.write("mine", "2", mode="a")
    await hub.settled("mine")
    assert await hub.read("mine", "a") == "2"


async def test_without_the_tier_keys_whose_kind_is_known_go_on(hub: RecoveryHarness, tier: PausableDurable) -> None:
    await hub.write("ruled", "1")
    await hub.write("mine", "1", mode="K")
    await hub.drain()
    await delete_namespace(hub)
    tier.before = away

    await hub.write("ruled", "2")
    await hub.write("mine", "2", mode="K")
    await hub.write("mine", "3", mode="a")

    tier.before = PauseAtCall("nothing")
    hub.joiner.ask_again_at[hub.namespace] = 0.0
    await hub.join(hub.namespace, again=True)
    await hub.settled("ruled", "mine")
    assert [await hub.read("ruled"), await hub.read("mine", "a")] == ["2", "3"]


async def test_of_values_written_together_only_the_unknown_ones_are_refused(
    hub: RecoveryHarness, tier: PausableDurable
) -> None:
    await hub.write("mine", "1", mode="K")
    await hub.drain()
    await delete_namespace(hub)
    tier.before = away

    replies = await hub.write_each({"known": "K", "unknown": "a", "ruled": "k"})

    assert [reply.isdigit() for reply in replies] == [True, False, True]
    assert replies[1] == b"U"


async def test_what_was_made_ephemeral_without_the_tier_stays_so_when_it_is_back(
    hub: RecoveryHarness, tier: PausableDurable
) -> None:
    await hub.write("mine", "1", mode="K")
    await hub.drain()
    await delete_namespace(hub)
    tier.before = away
    await hub.write("mine", "2", mode="d")
    await hub.write("mine", "3", mode="a")

    tier.before = PauseAtCall("nothing")
    hub.joiner.ask_again_at[hub.namespace] = 0.0
    await hub.join(hub.namespace, again=True)
    await hub.drain()

    assert await hub.held("mine") == "3"
    await hub.settled("mine")
    assert await hub.read("mine", "a") is None


# -- entries that outlive their Redis -------------------------------------------------------------


async def test_a_change_that_reaches_the_tier_after_the_loss_is_known_to_last(
    hub: RecoveryHarness, other: RecoveryHarness, tier: PausableDurable
) -> None:
    await hub.write("late", "1", mode="K")
    tier.before = pause = PauseAtCall("put")
    carrying = asyncio.create_task(hub.drain())
    await pause.reached.wait()
    await delete_namespace(hub)
    await other.write("another", "1")  # the other hub restores, and finds nothing of it in the tier

    pause.over.set()
    await carrying

    assert await other.read("late", "a") == "1"
    await other.write("late", "2", mode="a")
    await other.settled("late")
    assert await other.read("late", "a") == "2"


async def test_a_change_that_was_waited_for_is_known_to_last_as_well(
    hub: RecoveryHarness, other: RecoveryHarness, tier: PausableDurable
) -> None:
    version = await hub.write("late", "1", mode="K")
    entry = await hub.newest_entry()
    tier.before = pause = PauseAtCall("put")
    changed = {hub.target("late").key: version}
    settling = asyncio.create_task(hub.settle(hub.namespace, [entry], changed))
    await pause.reached.wait()
    await delete_namespace(hub)
    await other.write("another", "1")

    pause.over.set()
    await settling

    assert await other.read("late", "a") == "1"


async def test_a_loss_in_the_very_millisecond_of_a_change_is_noticed(
    hub: RecoveryHarness, other: RecoveryHarness, tier: PausableDurable
) -> None:
    await hub.write("late", "1", mode="K")
    left_ms = entry_time_ms(await hub.newest_entry())
    tier.before = pause = PauseAtCall("put")
    carrying = asyncio.create_task(hub.drain())
    await pause.reached.wait()
    await delete_namespace(hub)
    await other.write("another", "1")
    await other.line.call("HSET", other.keyspace.kept(other.namespace), "$joined", f"joined 0 {left_ms * 1000}")

    pause.over.set()
    await carrying

    assert await other.read("late", "a") == "1"


async def test_a_key_that_is_made_anew_after_a_late_deletion_goes_on_lasting(
    hub: RecoveryHarness, other: RecoveryHarness, tier: PausableDurable
) -> None:
    await hub.append("list", "1", mode="K")
    await hub.delete("list", mode="a")
    tier.before = put = PauseAtCall("put")
    carrying = asyncio.create_task(hub.drain())
    await put.reached.wait()
    await delete_namespace(hub)
    await other.write("another", "1")
    looked, get = PauseAtCall("get"), tier.get

    async def late(key: str, element: str = "") -> DurableRecord | None:
        found = await get(key, element)
        await looked("get")
        return found

    tier.get = late  # it is slow
    put.over.set()
    await looked.reached.wait()  # the tier has the deletion, and the hub is about to say so to Redis
    await other.append("list", "2", mode="K")
    await other.drain()

    looked.over.set()
    await carrying

    await other.append("list", "3", mode="a")
    await other.settled("list")
    assert await other.recalled("list", "a")
    assert await other.line.call("LRANGE", other.target("list").physical, 0, -1) == [b"2", b"3"]


async def test_a_list_that_was_made_ephemeral_after_the_loss_is_not_dropped_for_a_late_change(
    hub: RecoveryHarness, other: RecoveryHarness, tier: PausableDurable
) -> None:
    await hub.append("list", "1")
    tier.before = pause = PauseAtCall("put")
    carrying = asyncio.create_task(hub.drain())
    await pause.reached.wait()
    await delete_namespace(hub)
    await other.append("list", "2", mode="D")
    await other.line.call("PEXPIRE", other.target("list").physical, 60_000)
    await other.drain()

    pause.over.set()
    await carrying

    assert await other.line.call("LRANGE", other.target("list").physical, 0, -1) == [b"2"]


async def test_a_record_that_reaches_the_tier_late_is_gathered_by_the_present_gatherer(
    hub: RecoveryHarness, tier: PausableDurable
) -> None:
    await hub.join(hub.namespace)
    kept, key = hub.keyspace.kept(hub.namespace), f"{hub.namespace}:$memory:late"
    await hub.line.call("HSET", kept, "$gathering", "somebody 9999999999999")
    await tier.put([DurableRecord(key=key, type="memory", kind="log", version=1, stamp=1, body="{}")])

    await hub.readmit(hub.namespace, {key: 1}, left_ms=0)

    # He hears that he has been overtaken, and begins anew.
    assert await hub.line.call("HMGET", kept, "$gathered", "$gathering") == [None, None]


async def test_operators_see_what_becomes_of_a_namespace(
    hub: RecoveryHarness, other: RecoveryHarness, tier: PausableDurable
) -> None:
    async def recovery() -> str:
        return (await hub.relay.lag(hub.namespace)).recovery

    await hub.write("mine", "1", mode="K")
    await hub.drain()
    assert await recovery() == "complete"
    await delete_namespace(hub)
    assert await recovery() == "not begun"
    restoring, pause = await held_up(other, tier)
    assert await recovery() == "running"
    pause.over.set()
    await restoring
    assert await recovery() == "complete"

    await delete_namespace(hub)
    tier.before = away
    await hub.write("ruled", "1")

    assert await recovery() == "tier away"
