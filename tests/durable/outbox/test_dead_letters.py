"""What the durable tier will never take becomes a dead letter, and holds nothing else up."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.outbox_harness import FaultyDurable, OutboxHarness, reject_key
from support.waiting import wait_until

from sharedmem import InvalidError
from sharedmem.durable.outbox_delivery import REFUSED

_TESTS = Path(__file__).resolve().parents[2]
FAR_US = 9_000_000_000_000_000


async def is_gone(team: OutboxHarness, key: str) -> bool:
    return await team.line.call("EXISTS", team.target(key).physical) == 0


# -- dead letters ---------------------------------------------------------------------------------


async def test_what_the_tier_refuses_becomes_a_dead_letter_and_the_rest_goes_on(
    team: OutboxHarness, faulty: FaultyDurable
) -> None:
    faulty.answer = reject_key(team, "huge")
    await team.write_many({"note": "1", "huge": "2", "other": "3"})

    await team.relay.drain(team.namespace)

    (letter,) = await team.relay.dead_letters(team.namespace)
    assert (letter.key, letter.reason, letter.size) == (team.target("huge").key, "too large", 1)
    assert await team.kept("note") is not None
    assert await team.kept("other") is not None
    assert await team.is_empty()
    assert team.counters.read(REFUSED) == 1
    assert (await team.relay.lag(team.namespace)).dead == 1


async def test_a_key_of_which_a_document_was_refused_stays_in_redis(team: OutboxHarness, faulty: FaultyDurable) -> None:
    faulty.answer = reject_key(team, "huge")
    await team.write("huge", "1")

    await team.relay.drain(team.namespace)

    assert await team.state("huge") == "pending"
    assert await team.line.call("PTTL", team.target("huge").physical) == -1


async def test_dead_letters_are_replayed_once_each(team: OutboxHarness, faulty: FaultyDurable) -> None:
    faulty.answer = reject_key(team, "huge")
    for number in range(3):
        await team.write("huge", str(number))
        await team.relay.drain(team.namespace)
    faulty.answer = lambda _: None

    assert await team.relay.replay(team.namespace) == 3
    assert await team.relay.replay(team.namespace) == 0
    await team.relay.drain(team.namespace)

    head = await team.kept("huge")
    assert head is not None
    assert head.body == "2"
    assert await team.state("huge") == "cached"
    assert await team.relay.dead_letters(team.namespace) == []


@pytest.mark.parametrize("end", ["deleted", "expired"])
async def test_a_replay_does_not_bring_back_a_key_that_was_deleted_or_expired_long_ago(
    team: OutboxHarness, faulty: FaultyDurable, end: str
) -> None:
    faulty.answer = reject_key(team, "huge")
    await team.write("huge", "1")
    await team.relay.drain(team.namespace)
    faulty.answer = lambda _: None
    if end == "deleted":
        await team.delete("huge")
    else:
        await team.write("huge", "2", ttl_ms=1)
    await team.relay.drain(team.namespace)
    await wait_until(lambda: is_gone(team, "huge"), description="the key has ended")
    await faulty.purge(team.namespace, now_ms=FAR_US // 1000, tombstones_before=FAR_US)

    await team.relay.replay(team.namespace)
    await team.relay.drain(team.namespace)

    assert await team.kept("huge") is None
    assert await team.relay.dead_letters(team.namespace) == []
    assert await team.state("huge") == "missing"


async def test_a_deletion_also_drops_what_the_tier_refused_of_its_key(
    team: OutboxHarness, faulty: FaultyDurable
) -> None:
    faulty.answer = reject_key(team, "huge")
    await team.write_many({"huge": "1", "note": "1"})
    await team.leave_junk()
    await team.relay.drain(team.namespace)
    await team.write("huge", "2")
    await team.relay.drain(team.namespace)
    assert len(await team.relay.dead_letters(team.namespace)) == 3
    faulty.answer = lambda _: None

    await team.delete("huge")
    await team.relay.drain(team.namespace)

    (junk,) = await team.relay.dead_letters(team.namespace)
    assert junk.key == ""
    assert await team.state("huge") == "missing"
    assert await team.kept("note") is not None


async def test_a_replay_delivers_a_deletion_that_the_tier_refused(team: OutboxHarness, faulty: FaultyDurable) -> None:
    await team.write("huge", "1")
    await team.relay.drain(team.namespace)
    faulty.answer = reject_key(team, "huge")
    await team.delete("huge")
    await team.relay.drain(team.namespace)
    faulty.answer = lambda _: None

    assert await team.relay.replay(team.namespace) == 1
    await team.relay.drain(team.namespace)

    head = await team.kept("huge")
    assert head is not None
    assert head.deleted


async def test_a_replay_of_what_is_refused_again_ends(team: OutboxHarness, faulty: FaultyDurable) -> None:
    faulty.answer = reject_key(team, "huge")
    team.relay.start()
    await team.write("huge", "1")
    await wait_until(team.is_empty, description="it was refused")

    assert await team.relay.replay(team.namespace) == 1
    await wait_until(team.is_empty, description="it was refused again")

    assert len(await team.relay.dead_letters(team.namespace)) == 1


async def test_dead_letters_are_discarded_by_id_or_all(team: OutboxHarness, faulty: FaultyDurable) -> None:
    faulty.answer = reject_key(team, "huge")
    for number in range(3):
        await team.write("huge", str(number))
        await team.relay.drain(team.namespace)
    first, *_ = await team.relay.dead_letters(team.namespace)

    assert await team.relay.discard(team.namespace, [first.id]) == 1
    assert await team.state("huge") == "pending"
    assert await team.relay.discard(team.namespace) == 2
    assert await team.state("huge") == "cached"
    with pytest.raises(InvalidError, match="give the id of a dead letter"):
        await team.relay.discard(team.namespace, ["*"])


async def test_an_unreadable_entry_becomes_a_dead_letter(team: OutboxHarness) -> None:
    await team.leave_junk()
    await team.leave_junk(b"value k 1 1 1 0 0 1 json ada elsewhere:shared:x", b"1")
    await team.write("note", "1")
    team.relay.start()

    await wait_until(team.is_empty, description="the outbox is empty")

    junk, forged = await team.relay.dead_letters(team.namespace)
    assert (junk.key, junk.name) == ("", "no document at all")
    assert "of namespace 'elsewhere'" in forged.reason
    assert await team.kept("note") is not None


async def test_a_document_on_which_the_tier_stumbles_holds_no_other_up(
    team: OutboxHarness, faulty: FaultyDurable
) -> None:
    faulty.fault = lambda records: ZeroDivisionError("oops") if any(one.body == "13" for one in records) else None
    for number in range(20):
        await team.write(f"note-{number}", str(number))

    await team.relay.drain(team.namespace)

    (letter,) = await team.relay.dead_letters(team.namespace)
    assert (letter.key, letter.reason) == (team.target("note-13").key, "ZeroDivisionError: oops")
    assert await team.kept("note-19") is not None
