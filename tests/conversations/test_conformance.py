"""Conversations: one suite on fakeredis, on the real server and through the sync face, and what only it can do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from conformance.conversations import ConversationSuite, read_all
from redis import Redis
from support.backends import OnFakeredis, ThroughTheSyncFace

from sharedmem import CorruptionError, SharedMemoryError, SharedMemoryStore
from sharedmem.conversations.conversations import Conversations
from sharedmem.testing import ManualClock, fake_hub


class TestConversationsOnFakeredis(OnFakeredis, ConversationSuite):
    """Every promise, on fakeredis."""


class TestConversationsOnARealServer(ConversationSuite):
    """Every promise, on a real server."""

    async def test_the_size_of_a_fork_is_its_own_and_what_it_shares(self, talks: Conversations) -> None:
        await talks.append("p", ["x" * 1000] * 20)
        await talks.fork("p", "f")
        await talks.append("f", ["y"])

        assert await talks.stats("none") is None
        assert (stats := await talks.stats("f")) is not None
        assert (stats.segments, stats.length) == (2, 21)
        assert stats.shared_bytes > 20_000
        assert stats.bytes < 5_000

    async def test_an_entry_of_200_bytes_takes_at_most_1_6_times_as_much(self, talks: Conversations) -> None:
        bodies = [f"{number:0198}" for number in range(1000)]
        await talks.append("c", bodies[:1], entry_ids=[str(uuid4())])
        await talks.append("c", bodies[1:], entry_ids=[str(uuid4()) for _ in bodies[1:]])

        assert (stats := await talks.stats("c")) is not None
        assert stats.length == 1000
        assert stats.bytes <= 1.6 * 200 * len(bodies)


@pytest.mark.nightly
class TestConversationsThroughTheSyncFace(ThroughTheSyncFace, ConversationSuite):
    """Every promise, through the sync face."""

    async def leftovers(self, team: SharedMemoryStore) -> list[str]:
        """The sync face has no client to ask; the other backends look."""
        assert team
        return []


# -- time -----------------------------------------------------------------------------------------


@pytest.fixture
async def team(clock: ManualClock) -> AsyncIterator[SharedMemoryStore]:
    async with fake_hub(clock=clock) as hub:
        yield hub.store("team")


async def test_a_conversation_expires_as_a_whole(team: SharedMemoryStore, clock: ManualClock) -> None:
    talks = team.conversations
    await talks.append("c", [1], ttl=60, tags={"user": "u"})
    clock.advance(30)
    await talks.append("c", [2], entry_ids=["e2"], state={"n": 1})
    clock.advance(29)
    assert await read_all(talks, "c") == [1, 2]

    clock.advance(2)

    assert await read_all(talks, "c") == []
    assert (await talks.state("c")).fields == {}
    assert (await talks.list(user="u")).conversations == []
    await talks.append("other", [1])
    assert [found.key for found in (await talks.list()).conversations] == ["team:shared:other"]
    await talks.delete("other")
    assert await ConversationSuite().leftovers(team) == [], "an index keeps no conversation that has expired"


async def test_use_begins_the_lifetime_anew_if_asked_for(team: SharedMemoryStore, clock: ManualClock) -> None:
    talks = team.conversations
    await talks.append("c", [1], ttl=60, renew=True)
    for _ in range(3):
        clock.advance(50)
        assert await read_all(talks, "c") == [1]
    clock.advance(50)
    await talks.append("c", [2])
    clock.advance(50)
    await talks.append("other", [1])
    assert [found.key for found in (await talks.list()).conversations] == ["team:shared:other", "team:shared:c"]
    clock.advance(11)
    assert await read_all(talks, "c") == []


async def test_a_lifetime_is_set_and_taken_away(team: SharedMemoryStore, clock: ManualClock) -> None:
    talks = team.conversations
    await talks.append("c", [1], entry_ids=["e1"])
    assert await talks.expire("c", 60)
    assert (known := await talks.get("c")) is not None
    assert known.ttl == pytest.approx(60, abs=1)
    assert await talks.expire("c", None)
    clock.advance(100)

    assert await read_all(talks, "c") == [1]
    assert (await talks.append("c", [1], entry_ids=["e1"])).added == 0


async def test_what_a_fork_shares_lives_as_long_as_the_fork(team: SharedMemoryStore, clock: ManualClock) -> None:
    talks = team.conversations
    await talks.append("p", [1, 2], entry_ids=["e1", "e2"], ttl=60)
    await talks.fork("p", "f", ttl=200)
    await talks.fork("p", "g")
    clock.advance(100)

    assert await read_all(talks, "p") == []
    assert await read_all(talks, "g") == []
    assert await read_all(talks, "f") == [1, 2]
    await talks.append("p", ["new"])
    assert (await talks.append("f", [2], entry_ids=["e2"])).added == 0
    assert await talks.expire("f", None)
    clock.advance(1000)
    assert await read_all(talks, "f") == [1, 2]
    assert await talks.delete("f")
    assert await read_all(talks, "p") == ["new"]


# -- damage ---------------------------------------------------------------------------------------


async def test_a_key_that_another_client_wrote_is_named_and_others_are_not_affected(
    store: SharedMemoryStore, redis_url: str
) -> None:
    talks = store.conversations
    await talks.append("c", [1])
    with Redis.from_url(redis_url) as raw:
        (head,) = raw.keys(f"*{{{store.namespace}}}:$conversation:shared:c")
        raw.set(head.replace(b":c", b":bad"), "theirs", ex=60)

    outcomes = await asyncio.gather(*(talks.append(name, [2]) for name in ("c", "bad", "d")), return_exceptions=True)

    assert isinstance(outcomes[1], CorruptionError)
    assert "$conversation:shared:bad" in str(outcomes[1])
    assert (await read_all(talks, "c"), await read_all(talks, "d")) == ([1, 2], [2])
    with pytest.raises(SharedMemoryError):
        await talks.read("bad")
    assert list(await store.damaged_keys()) == [head.replace(b":c", b":bad").decode()]


@pytest.mark.parametrize("junk", ["theirs", "1795829845953503 ada ", "1795829845953503 ada 3", ""])
async def test_an_entry_that_another_client_wrote_is_reported_by_the_read(
    store: SharedMemoryStore, redis_url: str, junk: str
) -> None:
    talks = store.conversations
    await talks.append("c", [1])
    with Redis.from_url(redis_url) as raw:
        (log,) = raw.keys(f"*{{{store.namespace}}}:$conversation.log:shared:c*")
        raw.rpush(log, junk)

    with pytest.raises(CorruptionError, match=r"\$conversation"):
        await talks.read("c", last=2)


@pytest.mark.parametrize("field", ["length", "revision"])
@pytest.mark.parametrize("last", [2, None])
async def test_a_number_of_the_head_that_another_client_wrote_is_reported_by_each_read(
    store: SharedMemoryStore, redis_url: str, field: str, last: int | None
) -> None:
    talks = store.conversations
    await talks.append("c", [1])
    with Redis.from_url(redis_url) as raw:
        (head,) = raw.keys(f"*{{{store.namespace}}}:$conversation:shared:c")
        raw.hset(head, mapping={"plain": "1", field: "theirs"})

    with pytest.raises(CorruptionError, match=r"\$conversation:shared:c"):
        await talks.read("c", last=last)


async def test_an_index_that_another_client_wrote_is_reported(store: SharedMemoryStore, redis_url: str) -> None:
    talks = store.conversations
    await talks.append("c", [1])
    with Redis.from_url(redis_url) as raw:
        (index,) = raw.keys(f"*{{{store.namespace}}}:$conversation.index:shared")
        raw.set(index, "theirs", ex=60)

        outcomes = await asyncio.gather(*(talks.append("c", [number]) for number in range(3)), return_exceptions=True)

        assert [type(outcome) for outcome in outcomes] == [CorruptionError] * 3
        assert list(await store.damaged_keys()) == [index.decode()]
        raw.delete(index)
    assert (await talks.append("c", ["again"])).added == 1
    assert [found.key for found in (await talks.list()).conversations] == [f"{store.namespace}:shared:c"]
