"""docs/archives.md: a killed process resumes where the last whole part ended, and loses nothing."""

from __future__ import annotations

import asyncio
import json
import random
import resource
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from support import archive_processes
from support.contexts import context_of

from sharedmem import ConflictError, Hub, Settings, SharedMemoryStore, UnavailableError
from sharedmem.archive import files as archive_files
from sharedmem.archive import transfer as archives
from sharedmem.archive.files import verify_archive
from sharedmem.archive.transfer import ProgressStep
from sharedmem.redis.scripts.data import DataScripts
from sharedmem.testing import fake_hub

KEYS = 2000
KILLED = -signal.SIGKILL
PADDING = "-" * 200


@pytest.fixture
async def full(store: SharedMemoryStore) -> SharedMemoryStore:
    """A namespace with many values and some structures."""
    for first in range(0, KEYS, 500):
        await store.write_many({f"key-{n}": f"{n}{PADDING}" for n in range(first, first + 500)})
    for number in range(20):
        await store.hset(f"hash-{number}", mapping={f"field-{n}": n for n in range(100)})
        for item in range(5):
            await store.append(f"list-{number}", item)
    await store.sadd("wide", *range(2500))
    return store


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose path is short enough for the socket of an embedded server."""
    with tempfile.TemporaryDirectory(prefix="sm-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


async def assert_full(store: SharedMemoryStore) -> None:
    found = await store.read_many([f"key-{n}" for n in range(KEYS)])
    assert found == {f"key-{n}": f"{n}{PADDING}" for n in range(KEYS)}
    for number in range(20):
        assert await store.hgetall(f"hash-{number}") == {f"field-{n}": n for n in range(100)}
        assert await store.read_list(f"list-{number}") == [0, 1, 2, 3, 4]
    assert await store.smembers("wide") == set(range(2500))


async def killed_until_done(seed: int, what: str, url: str, namespace: str, file: Path, *, most: int = 1) -> int:
    """Run it again and again, killed at a random step, until it gets to its end; returns how often it was killed."""
    chosen = random.Random(seed)
    for kills in range(20):
        after = chosen.randrange(1, 12) if kills < most else None
        code = await asyncio.to_thread(
            archive_processes.run_archive_process, what, url, namespace, file, kill_after=after
        )
        if code == 0:
            return kills
        assert code == KILLED
    raise AssertionError("it never got to its end")


async def test_an_export_and_an_import_that_are_killed_lose_nothing(
    full: SharedMemoryStore, redis_url: str, namespace: str, tmp_path: Path
) -> None:
    file = tmp_path / "a.jsonl.zst"

    kills = await killed_until_done(1, "export", redis_url, namespace, file, most=2)
    checked = await verify_archive(file)
    assert checked.footer.documents >= KEYS + 20 * 101 + 20 * 6 + 2501
    await full.clear()
    kills += await killed_until_done(2, "import", redis_url, namespace, file, most=2)

    assert kills > 0
    await assert_full(full)
    left = [file.with_name(f"{file.name}.{ending}") for ending in ("part", "checkpoint", "import")]
    assert not [path for path in left if path.exists()]


async def test_what_lasts_survives_kills_on_its_way_into_the_tier(short: Path) -> None:
    file = short / "a.jsonl.zst"
    async with Hub.open(settings=archive_processes.durable_settings(short)) as hub:
        store = hub.store("research")
        await store.write_many({f"key-{n}": f"{n}{PADDING}" for n in range(700)})
        await store.hset("hash", mapping={f"field-{n}": n for n in range(1500)})
        for item in range(50):
            await store.append("list", item)

        await killed_until_done(4, "export", archive_processes.EMBEDDED, "research", file)
        await store.clear()
        await killed_until_done(5, "import", archive_processes.EMBEDDED, "research", file)

        found = await store.read_many([f"key-{n}" for n in range(700)])
        assert found == {f"key-{n}": f"{n}{PADDING}" for n in range(700)}
        assert await store.hgetall("hash") == {f"field-{n}": n for n in range(1500)}
        assert await store.read_list("list") == list(range(50))


async def test_a_backfill_that_is_killed_writes_every_line(
    store: SharedMemoryStore, redis_url: str, namespace: str, tmp_path: Path
) -> None:
    file = tmp_path / "foreign.jsonl"
    rows = [{"space": namespace, "id": f"key-{n}", "value": f"{n}{PADDING * 20}"} for n in range(1000)]
    file.write_text("\n".join(map(json.dumps, rows)))

    await killed_until_done(3, "backfill", redis_url, namespace, file)

    found = await store.read_many([f"key-{n}" for n in range(1000)])
    assert found == {row["id"]: row["value"] for row in rows}


async def test_an_export_goes_on_where_it_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_files, "FRAME_BYTES", 10_000)
    async with fake_hub(settings=Settings(data_dir=tmp_path / "data")) as hub:
        store = hub.store("research")
        await store.write_many({f"key-{n}": PADDING for n in range(900)})
        file = tmp_path / "a.jsonl"

        with pytest.raises(_StoppedError):
            await hub.archive.export("research", file, progress=_Stop(4))
        note = json.loads(file.with_name("a.jsonl.checkpoint").read_bytes())
        begun = file.with_name("a.jsonl.part").read_bytes()[: note["size"]]
        await hub.archive.export("research", file)

        assert note["footer"]["keys"] > 0
        assert file.read_bytes().startswith(begun)
        assert (await verify_archive(file)).footer.keys >= 900


async def test_an_import_goes_on_where_it_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "_NOTE_EVERY_S", 0.0)
    monkeypatch.setattr("sharedmem.archive.files._BLOCK_BYTES", 5000)
    async with fake_hub(settings=Settings(data_dir=tmp_path / "data")) as hub:
        store = hub.store("research")
        await store.write_many({f"key-{n}": PADDING for n in range(300)})
        file = tmp_path / "a.jsonl"
        await hub.archive.export("research", file)
        await store.clear()

        with pytest.raises(_StoppedError):
            await hub.archive.import_(file, progress=_Stop(5, "importing"))
        assert file.with_name("a.jsonl.import").exists()
        done = await hub.archive.import_(file)

        assert (done.documents, done.imported + done.older) == (300, 300)
        assert done.older < 200, "it began anew"
        assert len(await store.read_many([f"key-{n}" for n in range(300)])) == 300


async def test_what_was_lost_since_is_imported_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "_NOTE_EVERY_S", 0.0)
    monkeypatch.setattr("sharedmem.archive.files._BLOCK_BYTES", 5000)
    file = tmp_path / "a.jsonl"
    async with fake_hub(settings=Settings(data_dir=tmp_path / "data")) as hub:
        await hub.store("research").write_many({f"key-{n}": PADDING for n in range(300)})
        await hub.archive.export("research", file)
        with pytest.raises(_StoppedError):
            await hub.archive.import_(file, progress=_Stop(5, "importing"))

    async with fake_hub(settings=Settings(data_dir=tmp_path / "data")) as hub:
        await hub.archive.import_(file)

        assert len(await hub.store("research").read_many([f"key-{n}" for n in range(300)])) == 300


async def test_two_do_not_write_the_same_file(tmp_path: Path) -> None:
    async with fake_hub(settings=Settings(data_dir=tmp_path / "data")) as hub:
        await hub.store("research").write("plan", 1)
        file = tmp_path / "a.jsonl"
        other = archive_files.ArchiveWriter(file, archive_files.ArchiveHeader(**_header("research")))
        await other.open()
        try:
            with pytest.raises(ConflictError, match="another process"):
                await hub.archive.export("research", file)
        finally:
            await other.leave()


async def test_the_beginning_of_another_archive_is_not_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_files, "FRAME_BYTES", 1000)
    async with fake_hub(settings=Settings(data_dir=tmp_path / "data")) as hub:
        await hub.store("research").write_many({f"key-{n}": PADDING for n in range(900)})
        await hub.store("desk").write("plan", 1)
        with pytest.raises(_StoppedError):
            await hub.archive.export("research", tmp_path / "a.jsonl", progress=_Stop(4))

        with pytest.raises(ConflictError, match="beginning of an archive of 'research'"):
            await hub.archive.export("desk", tmp_path / "a.jsonl")


async def test_a_full_disk_is_told_and_can_be_mended(tmp_path: Path) -> None:
    async with fake_hub(settings=Settings(data_dir=tmp_path / "data")) as hub:
        await hub.store("research").write_many({f"key-{n}": PADDING for n in range(300)})

        with files_up_to(20_000), pytest.raises(UnavailableError, match="fix that and run the same again"):
            await hub.archive.export("research", tmp_path / "a.jsonl")

        done = await hub.archive.export("research", tmp_path / "a.jsonl")
        assert done.keys == 300


async def test_an_import_that_meets_a_clearing_can_be_run_again(tmp_path: Path) -> None:
    async with fake_hub(settings=Settings(data_dir=tmp_path / "data")) as hub:
        store = hub.store("research")
        await store.write("plan", 1)
        await hub.archive.export("research", tmp_path / "a.jsonl")
        await store.delete("plan")
        context = context_of(store)
        clock, scripts = context.keyspace.space("research").clock, DataScripts(context.executor)
        await scripts.namespace_close(clock, lease_ms=60_000)

        with pytest.raises(UnavailableError, match="being cleared"):
            await hub.archive.import_(tmp_path / "a.jsonl")
        await scripts.namespace_close(clock, lease_ms=0)
        await hub.archive.import_(tmp_path / "a.jsonl")

        assert await store.read("plan") == 1


async def test_a_copy_goes_on_where_it_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "_NOTE_EVERY_S", 0.0)
    note = tmp_path / "copy.json"
    async with both(tmp_path) as (source, target):
        for name in ("desk", "research"):
            await source.store(name).write_many({f"key-{n}": PADDING for n in range(900)})

        with pytest.raises(_StoppedError):
            await source.archive.copy_to(target.archive, checkpoint=note, progress=_Stop(6))
        assert note.exists()
        copied = await source.archive.copy_to(target.archive, checkpoint=note)

        assert [one.namespace for one in copied] == ["desk", "research"]
        assert not note.exists()
        for name in ("desk", "research"):
            assert len(await target.store(name).read_many([f"key-{n}" for n in range(900)])) == 900


@asynccontextmanager
async def both(tmp_path: Path) -> AsyncIterator[tuple[Hub, Hub]]:
    """Two hubs that share nothing."""
    one, other = Settings(data_dir=tmp_path / "one"), Settings(data_dir=tmp_path / "other")
    async with fake_hub(settings=one) as source, fake_hub(settings=other) as target:
        yield source, target


class _StoppedError(Exception):
    """The power fails."""


class _Stop:
    """A progress callback that stops everything at its so many-th step."""

    def __init__(self, after: int, doing: str = "") -> None:
        self._left, self._doing = after, doing

    def __call__(self, step: ProgressStep) -> None:
        self._left -= not self._doing or step.doing == self._doing
        if self._left <= 0:
            raise _StoppedError


def _header(namespace: str) -> dict[str, str]:
    return {"version": "0", "namespace": namespace, "exported": "", "source": ""}


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """No file of this process may grow beyond that: as if the disk were full."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
