"""Faults of the SQLite file: each is told in words, costs nothing acknowledged, and leaves nothing half-written."""

from __future__ import annotations

import asyncio
import os
import resource
import sqlite3
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

import pytest
from support.forked_processes import ForkedProcess
from support.sqlite_processes import PARTS

from sharedmem import ConfigError, UnavailableError
from sharedmem.durable import sqlite_store as sqlite
from sharedmem.durable.sqlite_store import SqliteDurable
from sharedmem.models import DurableRecord
from sharedmem.testing.durable_suite.base import T, all_records_of, element, head

NOBODY = 65_534
SHORT_S = 0.2
ROUNDS = 3


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "cold.db"


@pytest.fixture
async def durable(file: Path) -> AsyncIterator[SqliteDurable]:
    durable = SqliteDurable(file, patience_s=SHORT_S)
    await durable.open()
    yield durable
    await durable.close()


@asynccontextmanager
async def opened(file: Path) -> AsyncIterator[SqliteDurable]:
    durable = SqliteDurable(file, patience_s=SHORT_S)
    await durable.open()
    try:
        yield durable
    finally:
        await durable.close()


def big(key: str, stamp: int, size: int = 20_000) -> DurableRecord:
    return head(key, stamp, body='"' + "x" * size + '"')


@asynccontextmanager
async def process(what: str, file: Path) -> AsyncIterator[ForkedProcess]:
    """A process that uses the file; it is killed at the end."""
    child = await ForkedProcess.start("support.sqlite_processes", what, file)
    try:
        yield child
    finally:
        child.kill()
        await child.communicate()


async def line(child: ForkedProcess) -> str:
    return (await asyncio.wait_for(child.stdout.readline(), 60)).decode().strip()


# -- locked ---------------------------------------------------------------------------------------


async def test_a_file_locked_by_another_process_refuses_puts_and_serves_reads(
    durable: SqliteDurable, file: Path
) -> None:
    await durable.put([head("ns:a", 1)])
    async with process("locker", file) as locker:
        assert await line(locker) == "locked"

        with pytest.raises(UnavailableError, match="another process has held its lock for too long") as refused:
            await durable.put([head("ns:b", 2)])

        assert refused.value.retry_after > 0
        assert await durable.get("ns:a") == head("ns:a", 1)
        async with opened(file) as other:
            assert await other.get("ns:b") is None

    await durable.put([head("ns:c", 3)])
    assert [one.key for one in await all_records_of(durable, "ns")] == ["ns:a", "ns:c"]


async def test_a_log_that_cannot_be_emptied_is_complained_of(
    durable: SqliteDurable, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "_LONG_LOG_PAGES", 100)
    await durable.put([head("ns:a", 1)])
    with closing(sqlite3.connect(file)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM documents").fetchone()
        await durable.put([big(f"ns:{number}", 1) for number in range(200)])

        (complaint,) = await durable.check()

    assert "pages wait in its log, since a process reads it; end that process" in complaint
    assert await durable.check() == []


# -- damaged --------------------------------------------------------------------------------------


def damage(file: Path) -> None:
    with file.open("r+b") as raw:
        raw.seek(4096)
        raw.write(os.urandom(file.stat().st_size - 4096))


async def test_a_damaged_file_says_so_and_a_backup_helps(durable: SqliteDurable, file: Path) -> None:
    await durable.put([big(f"ns:{number}", 1) for number in range(50)])
    await durable.backup(file.with_name("backup.db"))
    await durable.close()
    damage(file)

    with pytest.raises(UnavailableError, match="it is damaged; stop all hubs, and put a backup in its place"):
        async with opened(file) as damaged:
            await damaged.records("ns:7")

    file.with_name("backup.db").replace(file)
    async with opened(file) as restored:
        assert await restored.check() == []
        assert len(await all_records_of(restored, "ns")) == 50


async def test_check_finds_damage_that_reading_has_not_met(durable: SqliteDurable, file: Path) -> None:
    await durable.put([big(f"ns:{number}", 1) for number in range(50)])
    await durable.close()
    with closing(sqlite3.connect(file)) as plain:
        ((root,),) = plain.execute("SELECT rootpage FROM sqlite_master WHERE name = 'by_stamp'")
    overwrite(file, (root - 1) * 4096)

    async with opened(file) as damaged:
        assert await damaged.get("ns:7") is not None
        complaints = await damaged.check()

    assert complaints
    assert all("cold.db" in complaint for complaint in complaints)


def overwrite(file: Path, place: int) -> None:
    with file.open("r+b") as raw:
        raw.seek(place)
        raw.write(b"\xff" * 4096)


async def test_a_file_without_its_beginning_is_no_longer_taken_for_ours(durable: SqliteDurable, file: Path) -> None:
    await durable.put([head("ns:a", 1)])
    await durable.close()
    overwrite(file, 0)

    with pytest.raises(ConfigError, match="not a SQLite file, or its beginning is damaged"):
        await durable.open()


async def test_a_row_that_was_changed_by_hand_is_named(durable: SqliteDurable, file: Path) -> None:
    await durable.put([head("ns:a", 1), head("ns:b", 1)])
    with closing(sqlite3.connect(file)) as plain, plain:
        plain.execute("UPDATE documents SET stamp = 'late' WHERE key = 'ns:a'")

    with pytest.raises(UnavailableError, match="a row that is not a document; another program changed it"):
        await durable.get("ns:a")

    assert await durable.get("ns:b") == head("ns:b", 1)


async def test_a_dropped_table_is_no_riddle(durable: SqliteDurable, file: Path) -> None:
    with closing(sqlite3.connect(file)) as plain:
        plain.execute("DROP TABLE documents")

    with pytest.raises(UnavailableError, match="no such table: documents"):
        await durable.put([head("ns:a", 1)])


# -- full -----------------------------------------------------------------------------------------


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def put_until_it_fails(durable: SqliteDurable) -> tuple[list[str], UnavailableError]:
    """The keys acknowledged, each with an element in the same put; and why it ended."""
    stored: list[str] = []
    for number in range(1000):
        key = f"ns:{number:04}"
        try:
            await durable.put([big(key, 1), element(key, "x", 1, body='"' + "y" * 20_000 + '"')])
        except UnavailableError as error:
            return stored, error
        stored.append(key)
    raise AssertionError("it never got full")


async def test_a_file_that_may_not_grow_keeps_what_it_has(durable: SqliteDurable) -> None:
    with file_size_limit(2_000_000):
        stored, error = await put_until_it_fails(durable)
        found = await all_records_of(durable, "ns")

    assert "quota" in str(error) or "full" in str(error)
    assert sorted({one.key for one in found}) == stored
    assert len(found) == 2 * len(stored) > 10
    await durable.put([big("ns:later", 1)])
    assert await durable.check() == []


@contextmanager
def small_disk(megabytes: int) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", folder]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("no right to mount a small disk; the limit on a file's size above is the next best")
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", folder], check=True)


async def test_a_full_disk_says_so_and_space_mends_it() -> None:
    with small_disk(8) as folder:
        ballast = folder / "ballast"
        ballast.write_bytes(bytes(4_500_000))
        async with opened(folder / "cold.db") as durable:
            stored, error = await put_until_it_fails(durable)
            found = await all_records_of(durable, "ns")
            ballast.unlink()
            await durable.put([big("ns:later", 1)])

            assert "its disk is full; free some space" in str(error)
            assert sorted({one.key for one in found}) == stored
            assert len(found) == 2 * len(stored) > 10
            assert await durable.check() == []


# -- not allowed, not there -----------------------------------------------------------------------


@contextmanager
def as_ordinary_user() -> Iterator[Path]:
    """A folder of a user whom rights bind, who we are inside the block: the administrator may do anything."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        is_root = os.geteuid() == 0
        if is_root:
            os.chown(folder, NOBODY, NOBODY)
            os.seteuid(NOBODY)
        try:
            yield folder
        finally:
            folder.chmod(0o700)
            if is_root:
                os.seteuid(0)


async def test_a_file_that_may_not_be_written_is_refused_when_opened() -> None:
    with as_ordinary_user() as folder:
        file = folder / "cold.db"
        async with opened(file) as durable:
            await durable.put([head("ns:a", 1)])
        file.chmod(0o400)

        with pytest.raises(UnavailableError, match="this process may not write it; allow that"):
            await SqliteDurable(file).open()


async def test_a_folder_that_may_not_be_written_is_refused_when_opened() -> None:
    with as_ordinary_user() as folder:
        file = folder / "cold.db"
        async with opened(file):
            pass
        folder.chmod(0o500)

        with pytest.raises(UnavailableError, match="folder included"):
            await SqliteDurable(file).open()
        with pytest.raises(UnavailableError, match="Permission denied; check its folder"):
            await SqliteDurable(folder / "new.db").open()


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"there is no folder .*gone; create it, or check durable_url"):
        await SqliteDurable(tmp_path / "gone" / "cold.db").open()


def moved(file: Path, name: str) -> Path:
    return file.rename(file.with_name(name))


async def test_a_file_that_was_moved_takes_nothing_until_it_is_back(durable: SqliteDurable, file: Path) -> None:
    await durable.put([head("ns:a", 1)])
    elsewhere = moved(file, "elsewhere.db")

    for call in (
        durable.put([head("ns:b", 1)]),
        durable.get("ns:a"),
        durable.purge("ns", now_ms=0, tombstones_before=0),
    ):
        with pytest.raises(UnavailableError, match="it was moved, deleted or replaced"):
            await call
    assert len(await durable.check()) == 1

    moved(elsewhere, file.name)
    await durable.put([head("ns:c", 1)])
    assert [one.key for one in await all_records_of(durable, "ns")] == ["ns:a", "ns:c"]


async def test_a_file_in_the_place_of_ours_is_not_written_until_it_is_opened(
    durable: SqliteDurable, file: Path
) -> None:
    await durable.put([head("ns:a", 1)])
    await durable.backup(file.with_name("backup.db"))
    file.with_name("backup.db").replace(file)

    with pytest.raises(UnavailableError, match="restart its processes"):
        await durable.put([head("ns:b", 1)])


# -- killed ---------------------------------------------------------------------------------------


async def killed_writer(file: Path, after: int) -> dict[str, int]:
    """What a writer was told before SIGKILL."""
    async with process("writer", file) as writer:
        lines = [await line(writer) for _ in range(after)]
        writer.kill()
        lines += (await writer.stdout.read()).decode().splitlines()
    return {key: int(number) for key, number in map(str.split, lines)}


async def test_whatever_a_killed_writer_was_told_is_there_and_no_put_is_torn(file: Path) -> None:
    for round_ in range(ROUNDS):
        told = await asyncio.gather(*(killed_writer(file, 40 + 37 * round_) for _ in range(2)))

        async with opened(file) as durable:
            found: dict[str, list[DurableRecord]] = {}
            for one in await all_records_of(durable, "ns"):
                found.setdefault(one.key, []).append(one)
            assert await durable.check() == []

        assert all(len(documents) == 1 + PARTS for documents in found.values())
        acknowledged = told[0] | told[1]
        assert len(acknowledged) >= 2 * 40
        assert {key: found[key][0].stamp - T for key in acknowledged} == acknowledged


async def test_an_acknowledged_put_waits_for_the_disk(durable: SqliteDurable) -> None:
    connection = durable._file.connect()

    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()
