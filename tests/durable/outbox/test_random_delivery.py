"""Whatever several hubs change, and however often the tier fails them, both sides agree in the end."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import fakeredis
import pytest
from support.example_budget import seeds
from support.outbox_harness import FaultyDurable, OutboxHarness, open_outbox_harness, reject_key, unavailable_error

from sharedmem import Settings, SharedMemoryError
from sharedmem.durable.outbox_relay import RelayLimits
from sharedmem.durable.protocol import living_documents
from sharedmem.durable.sqlite_store import SqliteDurable
from sharedmem.models import Put
from sharedmem.redis.change_stream import as_list
from sharedmem.redis.durability import UnsettledError
from sharedmem.testing.fakes import connect_to_fake

_STEPS = 60
_LISTS, _VALUES = ("list-1", "list-2"), ("note-1", "note-2", "note-3")


async def change(team: OutboxHarness, dice: random.Random) -> None:
    """One change, made by one of the hubs."""
    try:
        match dice.randrange(8):
            case 0 | 1 | 2:
                await team.write(dice.choice(_VALUES), str(dice.randrange(1000)))
            case 3 | 4 | 5:
                await team.append(dice.choice(_LISTS), str(dice.randrange(1000)))
            case 6:
                await team.delete(dice.choice(_LISTS + _VALUES))
            case _:
                await team.write_many({key: str(dice.randrange(1000)) for key in _VALUES})
    except UnsettledError:
        pass  # the tier was away: it is made all the same, and waits


async def carry(team: OutboxHarness, dice: random.Random) -> None:
    """Carry what waits, or a part of it, in whatever order."""
    entries = as_list(await team.line.call("XRANGE", team.keyspace.outbox(team.namespace), "-", "+"))
    chosen = [as_list(entry)[0] for entry in entries if dice.random() < 0.4]
    try:
        if dice.random() < 0.3:
            await team.relay.drain(team.namespace, timeout=0.2)
        elif chosen:
            await team.settle(team.namespace, [one for one in chosen if isinstance(one, bytes)])
    except SharedMemoryError:
        pass


def spoil(faulty: FaultyDurable, team: OutboxHarness, dice: random.Random) -> None:
    """The tier fails before it stores anything, or when it has; refuses one key; or is well."""
    refuses = reject_key(team, dice.choice(_VALUES))
    faulty.fault = lambda _: unavailable_error() if dice.random() < 0.2 else None
    faulty.after = lambda _: unavailable_error() if dice.random() < 0.2 else None

    def answer(record: object) -> Put | None:
        return refuses(record) if dice.random() < 0.1 else None

    faulty.answer = answer


async def held(team: OutboxHarness, key: str) -> list[str]:
    """What Redis holds under a key."""
    place = team.target(key).physical
    if key in _LISTS:
        return [
            item.decode() for item in as_list(await team.line.call("LRANGE", place, 0, -1)) if isinstance(item, bytes)
        ]
    value = await team.line.call("GET", place)
    return [value.partition(b"\n")[2].decode()] if isinstance(value, bytes) else []


async def kept(team: OutboxHarness, key: str) -> list[str]:
    """What the tier holds of it."""
    found = living_documents(await team.durable.records(team.target(key).key), now_ms=0)
    return [record.body for record in found if bool(record.element) == (key in _LISTS)]


@pytest.mark.parametrize("seed", seeds(4, nightly=12))
async def test_both_sides_agree_when_all_is_carried(seed: int, tmp_path: Path, settings: Settings) -> None:
    dice = random.Random(seed)
    durable = SqliteDurable(tmp_path / "tier.db")
    await durable.open()
    faulty = FaultyDurable(durable)
    connect = connect_to_fake(fakeredis.FakeServer())
    async with (
        open_outbox_harness(connect, faulty, "team", settings=settings, pace=RelayLimits(idle_ms=1)) as one,
        open_outbox_harness(
            connect, faulty, "team", settings=settings, through="k", pace=RelayLimits(settle_s=1)
        ) as two,
    ):
        spoil(faulty, one, dice)
        for _ in range(_STEPS):
            hub, other = dice.sample([one, two], 2)
            step = carry(other, dice) if dice.random() < 0.4 else change(other, dice)
            await asyncio.gather(change(hub, dice), step)

        faulty.fault = faulty.after = lambda _: None
        faulty.answer = lambda _: None
        while await one.relay.replay("team") or await one.waiting():
            await one.relay.drain("team")

        for key in _LISTS + _VALUES:
            assert await kept(one, key) == await held(one, key), key
            assert await one.state(key) == ("cached" if await held(one, key) else "missing"), key
    await durable.close()
