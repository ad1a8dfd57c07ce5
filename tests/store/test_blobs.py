"""docs/blobs.md: large values live and go with their keys, in a folder and in Azure Blob Storage."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import fakeredis
import pytest
from pydantic import SecretStr
from support.azurite_emulator import Azurite, azurite
from support.contexts import client_of, context_of, parts_of
from support.waiting import wait_until

from sharedmem import Hub, NotFoundError, Settings, SharedMemoryStore, UnavailableError, VersionConflictError
from sharedmem.blobs.azure import AzureBlobStore
from sharedmem.blobs.blobs import BlobGarbageCollector
from sharedmem.clock import new_id
from sharedmem.testing import fake_hub

__all__ = ["azurite"]

LARGE, OTHER = "x" * 5_000, "y" * 5_000
AN_HOUR_AGO = (0, 0)


@pytest.fixture(params=["a folder", "Azure Blob Storage"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    common = Settings(data_dir=tmp_path, blob_threshold_bytes=1_000)
    if request.param == "a folder":
        return common
    emulator: Azurite = request.getfixturevalue("azurite")
    return common.replace(blob_url=f"{emulator.url}/c{new_id()}", blob_key=SecretStr(emulator.key))


@pytest.fixture
async def hub(settings: Settings) -> AsyncIterator[Hub]:
    async with fake_hub(settings=settings) as hub:
        yield hub


@pytest.fixture
def store(hub: Hub) -> SharedMemoryStore:
    return hub.store("n")


async def names(hub: Hub) -> list[str]:
    """The last parts of all objects there are."""
    blobs = context_of(hub).blobs
    return sorted([name.rpartition("/")[2] async for name, _ in blobs._store.list("") if name != "lock"])


def contents(found: list[str]) -> int:
    return found.count("content")


async def test_a_large_value_is_read_back_and_goes_with_its_key(hub: Hub, store: SharedMemoryStore) -> None:
    await store.write("a", LARGE)
    await store.write("b", LARGE)

    assert await store.read_many(["a", "b"]) == {"a": LARGE, "b": LARGE}
    assert (contents(await names(hub)), len(await names(hub))) == (1, 3)

    await store.delete("a")
    assert await store.read("b") == LARGE
    await store.write("b", "small")
    assert await names(hub) == []


async def test_a_key_may_be_written_anew_with_the_same_value(hub: Hub, store: SharedMemoryStore) -> None:
    for _ in range(3):
        await store.write("a", LARGE)

    assert await store.read("a") == LARGE
    assert len(await names(hub)) == 2


async def test_a_refused_write_of_what_is_there_takes_nothing_away(hub: Hub, store: SharedMemoryStore) -> None:
    await store.write("a", LARGE)

    with pytest.raises(VersionConflictError):
        await store.write("a", LARGE, if_version=1)

    assert await store.read("a") == LARGE
    assert len(await names(hub)) == 2


async def test_agents_that_write_the_same_values_to_the_same_keys_lose_none(hub: Hub, store: SharedMemoryStore) -> None:
    async def agent(number: int) -> None:
        for turn in range(4):
            await store.write(f"k{(number + turn) % 3}", LARGE if turn % 2 else OTHER)
            assert await store.read(f"k{number % 3}") in {LARGE, OTHER, None}

    await asyncio.gather(*(agent(number) for number in range(6)))

    held = [await store.read(f"k{number}") for number in range(3)]
    assert set(held) <= {LARGE, OTHER}
    assert len(await names(hub)) == 3 + len(set(held))


async def test_a_large_value_can_be_read_while_it_is_replaced(store: SharedMemoryStore) -> None:
    await store.write("a", LARGE)
    over = asyncio.Event()

    async def read() -> int:
        reads = 0
        while not over.is_set():
            entry = await store.entry("a")
            assert entry is not None
            assert entry.value[1:] in {LARGE[1:], OTHER[1:]}
            assert len(await store.read("a")) == len((await store.read_many(["a"]))["a"]) == len(LARGE)
            reads += 1
        return reads

    async with asyncio.TaskGroup() as group:
        readers = [group.create_task(read()) for _ in range(3)]
        for number in range(15):
            await store.write("a", str(number % 10) + (OTHER if number % 2 else LARGE)[1:])
        over.set()

    assert all(reader.result() > 0 for reader in readers)


async def test_updates_of_a_large_value_are_all_there(store: SharedMemoryStore) -> None:
    await store.write("a", LARGE)

    await asyncio.gather(*(store.update("a", lambda text: text + "!") for _ in range(5)))

    assert await store.read("a") == LARGE + "!" * 5


async def test_a_value_whose_blob_is_gone_says_so(hub: Hub, store: SharedMemoryStore) -> None:
    await store.write("a", LARGE)
    await context_of(hub).blobs.clear("n")

    with pytest.raises(NotFoundError, match="blob of key 'n:shared:a'"):
        await store.read("a")


async def test_clearing_a_namespace_removes_its_blobs_and_no_others(hub: Hub, store: SharedMemoryStore) -> None:
    await store.write("a", LARGE)
    await hub.store("nn").write("a", LARGE)

    await store.clear()

    assert await hub.store("nn").read("a") == LARGE
    assert len(await names(hub)) == 2


async def test_hubs_that_share_a_store_read_each_others_large_values(settings: Settings) -> None:
    server = fakeredis.FakeServer()
    async with fake_hub(settings=settings, server=server) as one, fake_hub(settings=settings, server=server) as other:
        await one.store("n").write("a", LARGE)

        assert await other.store("n").read("a") == LARGE
        await other.store("n").delete("a")
        assert await names(one) == []


async def test_servers_that_share_a_store_keep_their_blobs_apart(settings: Settings) -> None:
    async with fake_hub(settings=settings) as one, fake_hub(settings=settings) as other:
        await one.store("n").write("a", LARGE)
        await other.store("n").write("a", LARGE)

        await other.store("n").clear()

        assert await one.store("n").read("a") == LARGE


# -- sweeping, where a file can be made older ------------------------------------------------------


@pytest.fixture
async def in_a_folder(tmp_path: Path) -> AsyncIterator[Hub]:
    async with fake_hub(settings=Settings(data_dir=tmp_path, blob_threshold_bytes=1_000)) as hub:
        yield hub


def make_old(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, AN_HOUR_AGO)


async def lose(hub: Hub, key: str) -> None:
    """As an expiry does it: without a change entry."""
    await client_of(hub).call("DEL", key)


async def test_a_sweep_removes_the_blobs_of_expired_keys_and_keeps_those_in_use(
    in_a_folder: Hub, tmp_path: Path
) -> None:
    store = in_a_folder.store("n")
    for key, value in (("kept", LARGE), ("same", LARGE), ("gone", OTHER)):
        await store.write(key, value)
    await lose(in_a_folder, "sm:{n}:shared:same")
    await lose(in_a_folder, "sm:{n}:shared:gone")

    assert await store.sweep() == 0
    make_old(tmp_path)
    assert await store.sweep(remove=False) == 2
    assert await store.sweep() == 2
    assert await store.sweep() == 0
    assert await store.read("kept") == LARGE
    assert len(await names(in_a_folder)) == 2


async def no_entries(namespace: str) -> set[str]:
    """The namespace has no conversations."""
    assert namespace
    return set()


async def test_a_sweep_asks_for_what_is_kept_elsewhere(in_a_folder: Hub, tmp_path: Path) -> None:
    parts = parts_of(in_a_folder)
    means, store = parts.context, in_a_folder.store("n")
    await store.write("a", LARGE)
    await store.write("b", OTHER)
    await lose(in_a_folder, "sm:{n}:shared:a")
    await lose(in_a_folder, "sm:{n}:shared:b")
    make_old(tmp_path)
    asked: dict[str, str] = {}

    async def refers(key: str, path: str) -> bool:
        asked[key] = path
        return key == "n:shared:a"

    sweeper = BlobGarbageCollector(
        means.client,
        parts.context.keyspace,
        means.blobs,
        means.background,
        means.clock,
        entry_paths=no_entries,
        refers_elsewhere=refers,
    )

    assert await sweeper.sweep("n") == 1
    assert set(asked) == {"n:shared:a", "n:shared:b"}
    assert [pair async for pair in means.blobs.referrers("n", older_than_s=0)] == [("n:shared:a", asked["n:shared:a"])]


async def test_the_value_before_stays_until_the_durable_tier_has_the_new_one(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/cold.db"
    settings = Settings(data_dir=tmp_path, blob_threshold_bytes=1_000, durable_url=url)
    async with fake_hub(settings=settings) as hub:
        store = hub.store("n")
        await store.write("gone", "x", kind="knowledge")
        with held_up(tmp_path / "cold.db"):
            await store.write("kept", LARGE, kind="knowledge")
            await store.write("kept", OTHER, kind="knowledge")
            await store.write("gone", LARGE + "!", kind="knowledge")
            await store.delete("gone")
            await store.write("plain", LARGE + "?")
            await store.write("plain", "small")

            assert contents(await names(hub)) == 3

        make_old(tmp_path / "blobs")
        await wait_until(lambda: one_is_left(hub), description="what the durable tier does not need is swept")
        assert await store.read("kept") == OTHER


@contextmanager
def held_up(file: Path) -> Iterator[None]:
    """Nothing can be written to the durable tier inside the block."""
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


async def one_is_left(hub: Hub) -> bool:
    await hub.store("n").sweep()
    return contents(await names(hub)) == 1


async def test_a_sweep_that_cannot_ask_removes_nothing(in_a_folder: Hub, tmp_path: Path) -> None:
    parts = parts_of(in_a_folder)
    means = parts.context
    await in_a_folder.store("n").write("a", LARGE)
    await lose(in_a_folder, "sm:{n}:shared:a")
    make_old(tmp_path)

    async def away(key: str, _: str) -> bool:
        raise UnavailableError("the durable tier", f"it cannot be asked for {key}")

    sweeper = BlobGarbageCollector(
        means.client,
        parts.context.keyspace,
        means.blobs,
        means.background,
        means.clock,
        entry_paths=no_entries,
        refers_elsewhere=away,
    )

    with pytest.raises(UnavailableError, match="n:shared:a"):
        await sweeper.sweep("n")
    assert len(await names(in_a_folder)) == 2


# -- trouble --------------------------------------------------------------------------------------


async def test_a_write_whose_blob_cannot_be_stored_changes_nothing(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, blob_threshold_bytes=1_000)
    async with fake_hub(settings=settings) as hub:
        await hub.store("n").write("a", "before")
        (tmp_path / "blobs").write_text("in the way")

        with pytest.raises(UnavailableError, match="blob folder"):
            await hub.store("n").write("a", LARGE)

        assert await hub.store("n").read("a") == "before"


async def test_a_write_succeeds_also_when_what_it_replaced_cannot_be_removed_yet(
    azurite: Azurite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{azurite.url}/c{new_id()}"
    settings = Settings(data_dir=tmp_path, blob_threshold_bytes=1_000, blob_url=url, blob_key=SecretStr(azurite.key))
    async with fake_hub(settings=settings) as hub:
        await hub.store("n").write("a", LARGE)
        away = AzureBlobStore("azure+http://127.0.0.1:1/account/container", key=azurite.key, folder="x", tries_again=0)
        with monkeypatch.context() as network:
            network.setattr(context_of(hub).blobs, "_store", away)
            await hub.store("n").write("a", "small")
        await away.close()

        assert await hub.store("n").read("a") == "small"
        assert len(await names(hub)) == 2


async def test_neither_the_hub_nor_its_settings_show_the_key(azurite: Azurite, tmp_path: Path) -> None:
    settings = Settings(
        data_dir=tmp_path,
        blob_threshold_bytes=1_000,
        blob_url=f"{azurite.url}/c{new_id()}",
        blob_key=SecretStr(azurite.key),
    )
    async with fake_hub(settings=settings) as hub:
        await hub.store("n").write("a", LARGE)
        blobs = context_of(hub).blobs
        with suppress(NotFoundError):
            await blobs.clear("n")
            await hub.store("n").read("a")

        shown = f"{hub!r} {hub.settings!r} {blobs!r} {blobs._store!r} {hub.settings.model_dump_json()}"
    assert azurite.key not in shown
