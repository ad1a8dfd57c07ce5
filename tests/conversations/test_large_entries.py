"""Entries above the blob threshold: their bytes come with them, and go with the last conversation that has them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from conformance.conversations import MOST_LINKS, read_all, values_of
from support.contexts import client_of

from sharedmem import Hub, NotFoundError, Settings, SharedMemoryStore, UnavailableError, VersionConflictError
from sharedmem.conversations.conversations import Conversations
from sharedmem.redis.change_stream import as_list
from sharedmem.testing import ManualClock, fake_hub

LARGE, OTHER, THIRD = ("x" * 5_000, {"y": "y" * 5_000}, b"z" * 5_000)


@pytest.fixture
async def hub(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Hub]:
    async with fake_hub(settings=Settings(data_dir=tmp_path, blob_threshold_bytes=1_000), clock=clock) as hub:
        yield hub


@pytest.fixture
def store(hub: Hub) -> SharedMemoryStore:
    return hub.store("n", actor="ada")


@pytest.fixture
def talks(store: SharedMemoryStore) -> Conversations:
    return store.conversations


def stored(folder: Path) -> int:
    """The number of contents in the blob store."""
    return sum(1 for _ in folder.rglob("content"))


def lose(folder: Path) -> None:
    for path in folder.rglob("content"):
        path.unlink()


def make_old(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (0, 0))


async def test_an_entry_keeps_little_in_redis(hub: Hub, talks: Conversations, tmp_path: Path) -> None:
    await talks.append("c", [LARGE, OTHER, "small", THIRD])

    assert await read_all(talks, "c") == [LARGE, OTHER, "small", THIRD]
    assert stored(tmp_path) == 3
    items = await client_of(hub).call("LRANGE", "sm:{n}:$conversation.log:ada:c{0s}", 0, -1)
    assert all(isinstance(item, bytes) and len(item) < 500 for item in as_list(items))


@pytest.mark.parametrize("how", ["pop", "replace", "clear", "delete"])
async def test_bytes_go_with_their_entry(talks: Conversations, tmp_path: Path, how: str) -> None:
    await talks.append("c", ["first"], entry_ids=["first"])
    await talks.append("c", [LARGE, OTHER])

    if how == "pop":
        await talks.pop("c", 2)
    elif how == "replace":
        await talks.replace_suffix("c", "first", [THIRD])
    else:
        await (talks.clear("c") if how == "clear" else talks.delete("c"))

    assert stored(tmp_path) == (1 if how == "replace" else 0)


async def test_popped_entries_bring_their_bytes(talks: Conversations) -> None:
    await talks.append("c", [LARGE, "small", OTHER])

    assert values_of(await talks.pop("c", 3)) == [LARGE, "small", OTHER]


async def test_forks_keep_the_bytes_that_they_share(talks: Conversations, tmp_path: Path) -> None:
    await talks.append("p", [LARGE, OTHER], entry_ids=["e0", "e1"])
    await talks.fork("p", "f")
    await talks.pop("p", 2)
    await talks.delete("p")
    assert await read_all(talks, "f") == [LARGE, OTHER]

    await talks.delete("f")

    assert stored(tmp_path) == 0


async def test_what_is_not_appended_is_not_stored(talks: Conversations, tmp_path: Path) -> None:
    change = await talks.append("c", [LARGE], entry_ids=["e"])

    assert (await talks.append("c", [LARGE], entry_ids=["e"])).added == 0
    for call in (
        talks.append("c", [OTHER], if_revision=change.revision + 1),
        talks.replace_suffix("c", None, [OTHER], if_revision=change.revision + 1),
    ):
        with pytest.raises(VersionConflictError):
            await call
    with pytest.raises(NotFoundError):
        await talks.replace_suffix("none", None, [OTHER])

    assert stored(tmp_path) == 1
    assert await read_all(talks, "c") == [LARGE]


async def test_a_sweep_leaves_what_entries_refer_to(
    talks: Conversations, store: SharedMemoryStore, tmp_path: Path, clock: ManualClock
) -> None:
    await store.write("value", "v" * 5_000)
    await talks.append("p", [LARGE], entry_ids=["e0"])
    await talks.fork("p", "f", ttl=1000)
    await talks.delete("p")
    await talks.append("over", [OTHER], ttl=60)
    # Of a batch that a caller repeats, the entries that are there leave their new bytes to the sweep.
    await talks.append("f", [THIRD], entry_ids=["e1"])
    await talks.append("f", [THIRD + b"!", "new"], entry_ids=["e1", "e2"])
    clock.advance(100)
    make_old(tmp_path)
    assert stored(tmp_path) == 5

    assert await store.sweep(remove=False) == 2
    assert await store.sweep() == 2

    assert stored(tmp_path) == 3
    assert await read_all(talks, "f") == [LARGE, THIRD, "new"]
    clock.advance(1000)
    assert await store.sweep() == 2
    assert await store.read("value") == "v" * 5_000


async def test_a_long_chain_of_forks_is_copied_and_its_bytes_stay(
    talks: Conversations, store: SharedMemoryStore, tmp_path: Path
) -> None:
    await talks.append("c0", [LARGE], entry_ids=["e0"])
    for number in range(1, MOST_LINKS + 3):
        await talks.fork(f"c{number - 1}", f"c{number}")
        await talks.append(f"c{number}", [number])
    for number in range(MOST_LINKS + 2):
        await talks.delete(f"c{number}")
    make_old(tmp_path)

    assert await store.sweep() == 0
    assert (await read_all(talks, f"c{MOST_LINKS + 2}"))[0] == LARGE
    await talks.delete(f"c{MOST_LINKS + 2}")
    assert await store.sweep() == 1
    assert stored(tmp_path) == 0


async def test_lost_bytes_are_named_and_other_entries_can_be_read(talks: Conversations, tmp_path: Path) -> None:
    await talks.append("c", ["small", LARGE])
    lose(tmp_path)

    with pytest.raises(NotFoundError, match="n:ada:c"):
        await talks.read("c")

    assert values_of(await talks.read("c", limit=1)) == ["small"]


async def test_nothing_is_appended_if_bytes_cannot_be_stored(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, blob_threshold_bytes=1_000)
    async with fake_hub(settings=settings) as hub:
        talks = hub.store("n").conversations
        await talks.append("c", ["before"])
        (tmp_path / "blobs").write_text("in the way")

        with pytest.raises(UnavailableError, match="blob folder"):
            await talks.append("c", ["small", LARGE])

        assert await read_all(talks, "c") == ["before"]


async def test_clearing_the_namespace_removes_the_bytes(hub: Hub, talks: Conversations, tmp_path: Path) -> None:
    await talks.append("c", [LARGE])

    await hub.store("n").clear()

    assert stored(tmp_path) == 0
