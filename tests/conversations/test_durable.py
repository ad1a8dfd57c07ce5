"""Conversations come back from the durable tier as they were, whatever the server has lost."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from sqlite3 import connect
from typing import Any, cast

import fakeredis
import pytest
from conformance.conversations import ConversationSuite, read_all
from support.contexts import client_of
from support.redis_loss import RedisLosingProxy, dump_server, lose_redis, restore_dump
from support.redis_process import RedisProcess

from sharedmem import Hub, Settings, SharedMemoryStore, UnavailableError, VersionConflictError
from sharedmem.clock import new_id
from sharedmem.conversations.conversations import Conversations
from sharedmem.errors import DurabilityPendingError
from sharedmem.redis.change_stream import as_list
from sharedmem.testing import ManualClock, fake_hub

LARGE = "x" * 5_000
_NEWEST = ("later", "c", "f")


def tiered(folder: Path, **changes: Any) -> Settings:
    return Settings(
        data_dir=folder, durable_url=f"sqlite://{folder}/durable.sqlite3", prefix=f"t{new_id(6)}", **changes
    )


class LosingStore:
    """A store whose conversations lose Redis before each call."""

    def __init__(self, store: SharedMemoryStore, hub: Hub) -> None:
        self._store = store
        self.conversations = RedisLosingProxy(store.conversations, hub)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class TestConversationsWhenRedisIsLostBeforeEachCall(ConversationSuite):
    """Every promise, with only what the tier has."""

    @pytest.fixture
    async def hub(self, tmp_path: Path) -> AsyncIterator[Hub]:
        async with fake_hub(settings=tiered(tmp_path)) as hub:
            yield hub

    @pytest.fixture
    def ada(self, hub: Hub, namespace: str) -> SharedMemoryStore:
        return cast("SharedMemoryStore", LosingStore(hub.store(namespace, actor="ada"), hub))

    @pytest.fixture
    def bob(self, hub: Hub, namespace: str) -> SharedMemoryStore:
        return cast("SharedMemoryStore", LosingStore(hub.store(namespace, actor="bob"), hub))

    async def leftovers(self, team: SharedMemoryStore) -> list[str]:
        """What the tier has left for a reader."""
        return [found.key for found in (await team.conversations.list()).conversations]

    async def test_each_change_is_on_the_feed(self, talks: Conversations, team: SharedMemoryStore) -> None:
        """The feed is lost with Redis."""

    async def test_of_writers_on_one_revision_one_wins(self, ada: SharedMemoryStore, team: SharedMemoryStore) -> None:
        """Redis is lost before the race: a change of `team`, which does not wait for the tier, may go with it."""
        mine = await ada.conversations.append("c", ["start"])
        key = (await ada.conversations.list()).conversations[0].key
        calls = [team.conversations.append(key, [n], if_revision=mine.revision) for n in range(10)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)

        assert sum(isinstance(outcome, VersionConflictError) for outcome in outcomes) == 9
        assert len(await read_all(ada.conversations, "c")) == 2


@pytest.fixture(scope="module")
def bare_server() -> Iterator[RedisProcess]:
    with RedisProcess() as server:
        yield server


@pytest.mark.nightly
class TestConversationsThatWaitForTheTier(ConversationSuite):
    """Every promise, on a real server, with a tier that has each change before its call returns."""

    @pytest.fixture
    async def hub(self, bare_server: RedisProcess, tmp_path: Path) -> AsyncIterator[Hub]:
        async with Hub.open(bare_server.url, settings=tiered(tmp_path, log_durability="through")) as hub:
            yield hub


# -- one loss -------------------------------------------------------------------------------------


@pytest.fixture
async def hub(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Hub]:
    async with fake_hub(settings=tiered(tmp_path, blob_threshold_bytes=1_000), clock=clock) as hub:
        yield hub


@pytest.fixture
def talks(hub: Hub) -> Conversations:
    return hub.store("n", actor="ada").conversations


async def test_a_conversation_is_back_with_its_revision_state_and_entries(hub: Hub, talks: Conversations) -> None:
    ids = ["6f1e2d3c-0a1b-4c2d-8e3f-123456789abc", "plain ✓", "1795000000000000"]
    await talks.append("c", ["hello", {"n": 2**70}, b"\x00\nraw"], entry_ids=ids, state={"a": [1], "b": {2}})
    await hub.store("n", actor="bob").conversations.append(
        "n:shared:s", [7], ttl=600, tags={"user": 'u"\\1', "app": "a"}
    )
    await talks.append("c", [LARGE, "end"], tags={"agent": "x"})
    before = [await talks.read("c"), await talks.state("c"), await talks.get("c"), await talks.read("n:shared:s")]
    listed = [found.key for found in (await talks.list()).conversations]

    await lose_redis(hub)

    assert [
        await talks.read("c"),
        await talks.state("c"),
        await talks.get("c"),
        await talks.read("n:shared:s"),
    ] == before
    assert [found.key for found in (await talks.list()).conversations] == listed
    assert (await talks.list(user='u"\\1', app="a")).conversations[0].key == "n:shared:s"
    assert not (await hub.durable.verify("n")).differences
    revision = (await talks.read("c")).revision
    assert (await talks.append("c", ["hello", "new"], entry_ids=[ids[0], "new"], if_revision=revision)).added == 1


async def test_all_are_listed_before_the_first_was_read(hub: Hub, talks: Conversations) -> None:
    for number in range(70):
        await talks.append(f"c{number}", [number], tags={"user": f"u{number % 2}"})

    await lose_redis(hub)

    assert len((await talks.list(user="u1")).conversations) == 35
    await lose_redis(hub)
    assert len((await talks.list(limit=100)).conversations) == 70


async def test_a_namespace_is_restored_with_its_conversations(hub: Hub, talks: Conversations) -> None:
    for number in range(5):
        await talks.append(f"c{number}", [number, LARGE], entry_ids=["a", "b"], state={"n": number})
    await lose_redis(hub)

    assert await hub.durable.restore("n") == 5

    heads = await client_of(hub).call("KEYS", "*}:$conversation:ada:*")
    assert len(as_list(heads)) == 5
    assert await read_all(talks, "c3") == [3, LARGE]
    assert not (await hub.durable.verify("n")).differences


async def test_a_difference_from_the_tier_is_found(hub: Hub, talks: Conversations) -> None:
    await talks.append("c", [0], state={"n": 1})
    await hub.durable.drain("n")
    prefix = hub.settings.prefix
    await client_of(hub).call("HSET", f"{prefix}:{{n}}:$conversation:ada:c", "length", 7)
    await client_of(hub).call("HSET", f"{prefix}:{{n}}:$conversation.state:ada:c", "n", "2")

    found = (await hub.durable.verify("n")).differences

    assert [(one.key, one.what) for one in found] == [("n:$conversation:ada:c", "element")] * 2


async def test_forks_come_back_independent_of_each_other(hub: Hub, talks: Conversations) -> None:
    await talks.append("p", [0, LARGE, 2], entry_ids=["e0", "e1", "e2"], state={"n": 1})
    await talks.fork("p", "f", at="e1")
    await talks.append("f", ["f"])
    await talks.delete("p")

    await lose_redis(hub)

    assert await read_all(talks, "f") == [0, LARGE, "f"]
    assert (await talks.state("f")).fields == {"n": 1}
    assert await read_all(talks, "p") == []
    assert (known := await talks.get("f")) is not None
    assert (known.parent, known.shared) == ("n:ada:p", 2)


async def test_what_was_removed_does_not_come_back(hub: Hub, talks: Conversations) -> None:
    await talks.append("popped", [0, 1, 2])
    await talks.pop("popped", 2)
    await talks.append("cleared", [0, 1], state={"n": 1})
    await talks.clear("cleared")
    await talks.append("replaced", [0, 1, 2], entry_ids=["a", "b", "c"])
    await talks.replace_suffix("replaced", "a", ["sum"])
    await talks.append("deleted", [0])
    await talks.delete("deleted")
    await talks.patch_state("deleted", {"n": 2})

    await lose_redis(hub)

    assert await read_all(talks, "popped") == [0]
    assert (await read_all(talks, "cleared"), (await talks.state("cleared")).fields) == ([], {"n": 1})
    assert await read_all(talks, "replaced") == [0, "sum"]
    assert (await read_all(talks, "deleted"), (await talks.state("deleted")).fields) == ([], {"n": 2})


async def test_the_lifetime_is_the_same_in_the_tier(hub: Hub, talks: Conversations, clock: ManualClock) -> None:
    await talks.append("over", [1], ttl=60)
    await talks.append("renewed", [1], ttl=60, renew=True)
    clock.advance(50)
    assert await read_all(talks, "renewed") == [1]
    clock.advance(50)
    await hub.durable.drain("n")

    await lose_redis(hub)

    assert await read_all(talks, "over") == []
    assert await read_all(talks, "renewed") == [1]
    clock.advance(70)
    assert await read_all(talks, "renewed") == []
    await lose_redis(hub)
    assert await read_all(talks, "renewed") == []


async def test_a_server_that_is_set_back_has_the_newest_conversations(tmp_path: Path) -> None:
    server, settings = fakeredis.FakeServer(), tiered(tmp_path)
    async with fake_hub(settings=settings, server=server) as hub:
        talks = hub.store("n").conversations
        await talks.append("c", [0, 1], state={"old": 1})
        await talks.append("gone", [0])
        await talks.fork("c", "f")
        await talks.list()
        held = await dump_server(hub)
        await talks.append("c", [2])
        await talks.patch_state("c", {"old": None, "new": 2})
        await talks.delete("gone")
        await talks.append("later", [0])
        await restore_dump(hub, held)

    async with fake_hub(settings=settings, server=server) as hub:
        talks = hub.store("n").conversations
        assert [found.key for found in (await talks.list()).conversations] == [f"n:shared:{id_}" for id_ in _NEWEST]
        assert (await read_all(talks, "c"), (await talks.state("c")).fields) == ([0, 1, 2], {"new": 2})
        assert await read_all(talks, "gone") == []
        assert await read_all(talks, "f") == [0, 1]


async def test_a_conversation_from_before_the_tier_is_kept_whole(tmp_path: Path) -> None:
    settings = tiered(tmp_path)
    async with fake_hub(settings=settings) as hub:
        talks = hub.store("n").conversations
        await talks.append("c", [0, 1], entry_ids=["a", "b"], state={"n": 1})
        # As if the tier had come later: it has nothing, and Redis does not know of it.
        await hub.durable.drain("n")
        head = f"{settings.prefix}:{{n}}:$conversation:shared:c"
        await client_of(hub).call("HDEL", head, "kept")
        with closing(connect(tmp_path / "durable.sqlite3")) as file:
            file.execute("DELETE FROM documents WHERE key LIKE '%$conversation:%'")
            file.commit()
        await talks.append("c", [2])

        await lose_redis(hub)

        assert (await read_all(talks, "c"), (await talks.state("c")).fields) == ([0, 1, 2], {"n": 1})


async def test_a_sweep_leaves_what_only_the_tier_refers_to(hub: Hub, talks: Conversations, tmp_path: Path) -> None:
    await talks.append("c", [LARGE])
    await talks.append("p", ["y" * 5_000])
    await talks.pop("p")
    await lose_redis(hub)
    age(tmp_path / "blobs")

    assert await hub.store("n").sweep() == 1
    assert await read_all(talks, "c") == [LARGE]


def age(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (0, 0))


# -- the tier is away -----------------------------------------------------------------------------


@contextmanager
def away(folder: Path) -> Iterator[None]:
    """The file of the tier is not where it should be."""
    file = folder / "durable.sqlite3"
    file.rename(folder / "away")
    try:
        yield
    finally:
        (folder / "away").rename(file)


async def test_a_change_that_the_tier_does_not_have_is_made_and_says_so(tmp_path: Path, clock: ManualClock) -> None:
    settings = tiered(tmp_path, log_durability="through")
    async with fake_hub(settings=settings, clock=clock) as hub:
        talks = hub.store("n").conversations
        await talks.append("c", ["before"])
        with away(tmp_path):
            for call in (
                talks.append("c", ["after"]),
                talks.replace_suffix("c", None, ["anew"]),
                talks.pop("c"),
                talks.delete("c"),
            ):
                with pytest.raises(DurabilityPendingError):
                    await call
            with pytest.raises(UnavailableError):
                await talks.append("new", [1])
        assert await read_all(talks, "c") == []

        await lose_redis(hub)

        assert await read_all(talks, "c") == []
        assert await read_all(talks, "new") == []
