"""A string that another client has set under a key: one rule for all calls.

It exists, has version 0 and no actor, and only who says so replaces it: `write` without `if_version`, or `update`.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import fakeredis
import pytest
from redis import Redis
from support.waiting import wait_until

from sharedmem import CorruptionError, Hub, InvalidError, Settings, SharedMemoryStore, VersionConflictError
from sharedmem.clock import new_id
from sharedmem.testing import connect_to_fake

VERSION = b"1795340279254406"
# Nearly records: another client's, or ours cut, copied or edited by hand.
FOREIGN = {
    "empty": b"",
    "text": b"plain words",
    "number": b"41",
    "bytes": bytes(range(256)),
    "a line feed": b"\n",
    "no codec": VERSION + b" ada\n{}",
    "a codec in capitals": VERSION + b" ada JSON\n1",
    "a short version": VERSION[1:] + b" ada json\n1",
    "a word too many": VERSION + b" ada eve json\n1",
    "a time beyond all days": VERSION + b" ada 9999999999999999999999 json\n1",
    "no blank behind the version": VERSION + b"x ada json\n1",
    "a header over 256 bytes": VERSION + b" " + b"a" * 300 + b" json\n1",
}


class Ground(NamedTuple):
    """A store, and another client of the same server."""

    store: SharedMemoryStore
    bare: Redis
    prefix: str

    def set(self, text: bytes) -> None:
        """What another client does."""
        self.bare.set(self.physical, text)

    @property
    def physical(self) -> str:
        """Where the key lies."""
        return f"{self.prefix}:{{{self.store.namespace}}}:shared:key"


@pytest.fixture(params=["fakeredis", "redis", "redis with a tier"])
async def ground(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ground]:
    wanted = Settings(data_dir=tmp_path, durable_url="none")
    if request.param == "redis with a tier":
        tier = f"sqlite://{tmp_path}/durable.sqlite3"
        wanted = wanted.replace(prefix=f"t{new_id(6)}", durable_url=tier, kind_rules={"*": "knowledge"})
    if request.param == "fakeredis":
        server = fakeredis.FakeServer()
        hub = Hub(settings=wanted, connect=connect_to_fake(server))
        bare = Redis.from_pool(fakeredis.FakeStrictRedis(server=server).connection_pool)
    else:
        url = request.getfixturevalue("redis_url")
        hub, bare = Hub(url, settings=wanted), Redis.from_url(url)
    async with hub:
        store = hub.store(f"foreign-{new_id(8)}")
        with bare:
            yield Ground(store, bare, wanted.prefix)
        await store.clear()


@pytest.mark.parametrize("text", FOREIGN.values(), ids=FOREIGN)
async def test_every_call_agrees_that_a_foreign_string_is_there_without_a_version(ground: Ground, text: bytes) -> None:
    ground.set(text)

    entry = await ground.store.entry("key")

    assert entry is not None
    assert (entry.version, entry.actor, entry.created, entry.updated) == (0, "", None, None)
    assert await ground.store.exists("key")
    assert await ground.store.read("key", "absent") == entry.value
    assert await ground.store.read_many(["key"]) == {"key": entry.value}


@pytest.mark.parametrize("text", FOREIGN.values(), ids=FOREIGN)
async def test_a_write_of_a_new_value_does_not_replace_a_foreign_string(ground: Ground, text: bytes) -> None:
    ground.set(text)

    for expected in (0, 17, int(VERSION)):
        with pytest.raises(VersionConflictError, match="holds a value without a version") as caught:
            await ground.store.write("key", "new", if_version=expected)
        assert (caught.value.expected, caught.value.current) == (expected, 0)

    assert ground.bare.get(ground.physical) == text


@pytest.mark.parametrize("text", FOREIGN.values(), ids=FOREIGN)
async def test_an_update_changes_a_foreign_string_at_the_first_try(ground: Ground, text: bytes) -> None:
    ground.set(text)
    seen: list[Any] = []

    def change(value: Any) -> str:
        seen.append(value)
        return "new"

    await ground.store.update("key", change)

    assert len(seen) == 1
    assert await ground.store.read("key") == "new"


async def test_an_update_of_a_foreign_string_that_changes_meanwhile_is_made_again(ground: Ground) -> None:
    ground.set(b"")
    seen: list[Any] = []

    async def change(value: Any) -> Any:
        seen.append(value)
        if len(seen) == 1:
            await ground.store.write("key", "ours")
        return [value]

    assert await ground.store.update("key", change) == ["ours"]
    assert seen == ["", "ours"]


async def test_a_counter_is_no_free_place_for_a_new_value(ground: Ground) -> None:
    await ground.store.incr("key", 5)

    with pytest.raises(VersionConflictError, match="a counter"):
        await ground.store.write("key", "new", if_version=0)

    assert await ground.store.read("key") == 5


async def test_an_empty_string_is_no_number_and_can_be_deleted(ground: Ground) -> None:
    ground.set(b"")

    with pytest.raises(InvalidError, match="not a whole number"):
        await ground.store.incr("key")
    assert await ground.store.expire("key", 60)
    assert await ground.store.delete("key")
    assert await ground.store.write("key", 1, if_version=0)


@pytest.mark.parametrize(
    "body", [b"json\n{", b"msgpack\n\xc1", b"pickle\n{}", b"blob\n{}"], ids=["json", "msgpack", "?", "blob"]
)
async def test_a_value_of_ours_that_was_damaged_is_told_with_its_key_and_written_anew(
    ground: Ground, body: bytes
) -> None:
    ground.set(VERSION + b" ada " + body)
    key = f"{ground.store.namespace}:shared:key"

    for call in (ground.store.read, ground.store.entry, lambda key: ground.store.read_many([key])):
        with pytest.raises(CorruptionError, match="write\\(\\) it anew, or delete it") as caught:
            await call("key")
        assert caught.value.key == key
    with pytest.raises(CorruptionError):
        await ground.store.update("key", lambda value: value)

    version = await ground.store.write("key", 1, if_version=int(VERSION))
    assert version > int(VERSION)


async def test_empty_members_of_another_client_are_empty_texts(ground: Ground) -> None:
    head = ground.physical.removesuffix("key")
    ground.bare.rpush(f"{head}list", b"", b"1")
    ground.bare.hset(f"{head}hash", mapping={b"field": b"", b"": b"2"})
    ground.bare.sadd(f"{head}set", b"", b"3")

    assert await ground.store.read_list("list") == ["", 1]
    assert await ground.store.hget("hash", "field", "absent") == ""
    assert await ground.store.hgetall("hash") == {"field": "", "": 2}
    with pytest.raises(InvalidError, match="not a whole number"):
        await ground.store.hincrby("hash", "field")
    assert await ground.store.smembers("set") == {"", 3}
    assert {await ground.store.spop("set"), await ground.store.spop("set")} == {"", 3}


async def test_what_an_entry_tells_is_what_an_update_finds(ground: Ground) -> None:
    """The script and the reader know one grammar of headers."""
    words = [VERSION, VERSION[1:], b"Ada", b"", b"json", b"JSON", b"\t", b"\xff"]
    for count in range(4):
        for rest in itertools.product(words, repeat=count):
            ground.set(b" ".join([VERSION, *rest]) + b"\n1")
            entry = await ground.store.entry("key")
            seen: list[Any] = []
            await ground.store.update("key", lambda value, seen=seen: seen.append(value))  # type: ignore[misc]  # a default

            assert entry is not None
            assert seen == [entry.value], rest


@pytest.fixture
async def tiered(tmp_path: Path) -> AsyncIterator[tuple[Hub, Ground]]:
    """With a durable tier, on a server that is emptied."""
    tier = f"sqlite://{tmp_path}/tier.db"
    settings = Settings(data_dir=tmp_path, durable_url=tier, kind_rules={"*": "knowledge"})
    server = fakeredis.FakeServer()
    bare = Redis.from_pool(fakeredis.FakeStrictRedis(server=server).connection_pool)
    async with Hub(settings=settings, connect=connect_to_fake(server)) as hub:
        with bare:
            yield hub, Ground(hub.store("foreign"), bare, settings.prefix)


@pytest.mark.parametrize("text", FOREIGN.values(), ids=FOREIGN)
async def test_a_foreign_string_comes_back_from_the_durable_tier_as_it_was(
    tiered: tuple[Hub, Ground], text: bytes
) -> None:
    hub, ground = tiered
    ground.set(text)
    assert await ground.store.expire("key", 600)
    await hub.durable.drain("foreign")
    ground.bare.flushall()

    async def is_back() -> bool:
        entry = await ground.store.entry("key")
        assert entry is not None
        assert entry.version == 0
        return ground.bare.get(ground.physical) == text

    # A delivery that ran beside `drain` may notice the loss only now. It drops a copy without a version, which may be
    # older than its change; the next read loads the key again.
    await wait_until(is_back, description="Redis has the string again")


@pytest.mark.parametrize("text", FOREIGN.values(), ids=FOREIGN)
async def test_an_import_leaves_a_foreign_string_unless_it_is_told_to_replace(tmp_path: Path, text: bytes) -> None:
    server = fakeredis.FakeServer()
    bare = Redis.from_pool(fakeredis.FakeStrictRedis(server=server).connection_pool)
    settings = Settings(data_dir=tmp_path, durable_url="none")
    async with Hub(settings=settings, connect=connect_to_fake(server)) as hub:
        ground = Ground(hub.store("foreign"), bare, settings.prefix)
        await ground.store.write("key", "ours")
        await hub.archive.export("foreign", tmp_path / "a.jsonl")
        for older in (text, text.replace(VERSION, b"0" * 16)):
            ground.set(older)
            await hub.archive.import_(tmp_path / "a.jsonl")
            assert bare.get(ground.physical) == older

        await hub.archive.import_(tmp_path / "a.jsonl", replace=True)
        assert await ground.store.read("key") == "ours"


@pytest.mark.parametrize("text", FOREIGN.values(), ids=FOREIGN)
async def test_what_is_imported_into_the_tier_takes_the_place_of_any_foreign_string(
    tiered: tuple[Hub, Ground], tmp_path: Path, text: bytes
) -> None:
    hub, ground = tiered
    await ground.store.write("key", "ours")
    await hub.durable.drain("foreign")
    await hub.archive.export("foreign", tmp_path / "a.jsonl")
    await ground.store.delete("key")
    await hub.durable.drain("foreign")
    ground.set(text.replace(VERSION, b"9" * 16))

    await hub.archive.import_(tmp_path / "a.jsonl")

    assert await ground.store.read("key") == "ours"
