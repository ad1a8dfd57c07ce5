"""The durable tier on SQLite: the whole suite, and what only a file can do."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import pytest

from sharedmem import ConfigError, InvalidError, NotFoundError, Settings, UnavailableError, UsageError
from sharedmem.clock import SystemClock
from sharedmem.durable.protocol import living_documents
from sharedmem.durable.sqlite_store import SqliteDurable
from sharedmem.durable.tier import durable_store_at
from sharedmem.models import DurableRecord, Outcome
from sharedmem.testing import ManualClock
from sharedmem.testing.durable_suite import DurableSuite
from sharedmem.testing.durable_suite.base import NOW_MS, T, all_records_of, element, head


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "cold.db"


@pytest.fixture
async def durable(file: Path) -> AsyncIterator[SqliteDurable]:
    durable = SqliteDurable(file)
    await durable.open()
    yield durable
    await durable.close()


class TestSqliteDurable(DurableSuite):
    """The suite, on a file of each test's own."""


# -- many records at once -----------------------------------------------------------------------


async def test_of_many_records_each_has_its_own_outcome(durable: SqliteDurable) -> None:
    await durable.put([head("ns:key-60", 9, body="9"), head("ns:key-61", 9, body="9")])
    records = [head(f"ns:key-{n}", 1, body=str(n)) for n in range(120)]
    records[61] = head("ns:key-61", 1, floor=T + 4)
    records[70] = head("ns:key-70", 1, size=2**63)

    puts = await durable.put(records)

    outcomes = {60: Outcome.OLDER, 61: Outcome.OLDER, 70: Outcome.REFUSED}
    assert [put.outcome for put in puts] == [outcomes.get(n, Outcome.STORED) for n in range(120)]
    found = {record.key: record for record in await all_records_of(durable, "ns")}
    assert len(found) == 119
    assert (found["ns:key-60"].body, found["ns:key-61"].floor, found["ns:key-71"].body) == ("9", T + 4, "71")


async def test_of_a_put_that_fails_in_the_middle_nothing_is_kept(durable: SqliteDurable, file: Path) -> None:
    with closing(sqlite3.connect(file)) as plain:
        stop = "SELECT RAISE(ABORT, 'no')"
        plain.execute(f"CREATE TRIGGER stop BEFORE INSERT ON documents WHEN new.key = 'ns:key-70' BEGIN {stop}; END")

    with pytest.raises(UnavailableError):
        await durable.put([head(f"ns:key-{n}", 1) for n in range(120)])

    assert await all_records_of(durable, "ns") == []


# -- the file -------------------------------------------------------------------------------------


async def test_a_file_is_made_for_its_owner_alone(durable: SqliteDurable, file: Path) -> None:
    await durable.put([head("ns:a", 1)])

    made = {path.name: stat.S_IMODE(path.stat().st_mode) for path in file.parent.iterdir()}

    assert made == {"cold.db": 0o600, "cold.db-wal": 0o600, "cold.db-shm": 0o600}


async def test_closing_leaves_one_file_which_plain_sqlite_reads(durable: SqliteDurable, file: Path) -> None:
    """docs/durable-format.md: a document is a row of the table documents."""
    await durable.put([head("ns:shared:a", 1, body='{"title":"x"}')])
    await durable.close()

    assert [path.name for path in file.parent.iterdir()] == ["cold.db"]
    with closing(sqlite3.connect(file)) as plain:
        rows = plain.execute("SELECT key, type, version, json_extract(body, '$.title') FROM documents").fetchall()
    assert rows == [("ns:shared:a", "value", T + 1, "x")]


async def test_the_layout_is_the_one_that_its_number_stands_for(durable: SqliteDurable, file: Path) -> None:
    with closing(sqlite3.connect(file)) as plain:
        tables = [sql for (sql,) in plain.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name")]
        layout = plain.execute("PRAGMA user_version").fetchone()

    assert layout == (1,), "another layout: write how a file of layout 1 becomes one of it"
    assert "; ".join(tables) == (
        "CREATE INDEX by_stamp ON documents (namespace, stamp); "
        "CREATE INDEX by_type ON documents (namespace, type, stamp); "
        "CREATE TABLE documents (namespace TEXT NOT NULL, key TEXT NOT NULL, element TEXT NOT NULL, "
        "type TEXT NOT NULL, kind TEXT NOT NULL, version INTEGER NOT NULL, stamp INTEGER NOT NULL, "
        "floor INTEGER NOT NULL, size INTEGER NOT NULL, created INTEGER NOT NULL, expires INTEGER NOT NULL, "
        "actor TEXT NOT NULL, codec TEXT NOT NULL, deleted INTEGER NOT NULL, body TEXT NOT NULL, "
        "PRIMARY KEY (namespace, key, element)); "
        "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)"
    )


async def test_a_file_keeps_its_id_and_two_files_have_two(durable: SqliteDurable, file: Path) -> None:
    again, other = SqliteDurable(file), SqliteDurable(file.with_name("other.db"))

    identity = await durable.open()

    assert await again.open(create=False) == identity
    assert await other.open() != identity
    await again.close()
    await other.close()


async def test_a_file_says_when_it_was_made(file: Path) -> None:
    durable = SqliteDurable(file, clock=ManualClock())
    await durable.open()
    await durable.close()

    with closing(sqlite3.connect(file)) as plain:
        assert dict(plain.execute("SELECT * FROM meta"))["made"] == "2026-01-01T00:00:00+00:00"


async def test_its_url_opens_the_same_file(tmp_path: Path) -> None:
    first = SqliteDurable(tmp_path / "ünusual @ 100% #name?.db")
    identity = await first.open()
    second = SqliteDurable.at(first.url)

    assert await second.open(create=False) == identity
    assert first.url.startswith("sqlite:///")
    assert durable_store_at(first.url, Settings(), SystemClock()).url == first.url
    assert "open" in repr(second)
    await first.close()
    await second.close()


@pytest.mark.parametrize("url", ["sqlite://cold.db", "sqlite:cold.db", "postgres:///cold.db", ""])
def test_a_url_without_a_whole_path_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"sqlite:///path/file\.db"):
        SqliteDurable.at(url)


async def test_several_openers_of_a_new_file_agree_on_its_id(file: Path) -> None:
    stores = [SqliteDurable(file) for _ in range(6)]

    identities = await asyncio.gather(*(store.open() for store in stores))

    assert len(set(identities)) == 1
    await asyncio.gather(*(store.close() for store in stores))


async def test_what_is_missing_is_not_made_unless_asked_for(file: Path) -> None:
    with pytest.raises(NotFoundError, match="does not exist; check durable_url"):
        await SqliteDurable(file).open(create=False)

    assert content(file) is None
    empty(file)
    with pytest.raises(NotFoundError, match="it is empty"):
        await SqliteDurable(file).open(create=False)


def content(file: Path) -> bytes | None:
    return file.read_bytes() if file.is_file() else None


def empty(file: Path) -> None:
    file.touch()


def foreign_tables(file: Path) -> None:
    with closing(sqlite3.connect(file)) as other:
        other.execute("CREATE TABLE documents (key TEXT)")


def newer_layout(file: Path) -> None:
    with closing(sqlite3.connect(file)) as other:
        other.execute(f"PRAGMA application_id = {0x734D656D}")
        other.execute("PRAGMA user_version = 2")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (foreign_tables, "it has tables of another program; name another file"),
        (newer_layout, "its layout 2 is newer than 1, which this sharedmem supports; upgrade sharedmem"),
        (lambda file: file.write_bytes(b"no database " * 1000), "not a SQLite file, or its beginning is damaged"),
        (Path.mkdir, "it is a folder; name a file in it"),
    ],
)
async def test_a_file_that_is_not_ours_is_refused_and_left_alone(
    file: Path, make: Callable[[Path], None], says: str
) -> None:
    make(file)
    before = content(file)

    with pytest.raises(ConfigError, match=says):
        await SqliteDurable(file).open()

    assert content(file) == before


async def test_a_closed_store_says_so(durable: SqliteDurable) -> None:
    await durable.close()

    for call in (durable.put([head("ns:a", 1)]), durable.get("ns:a"), durable.highest("ns")):
        with pytest.raises(UsageError, match="open it first"):
            await call


async def test_closing_finishes_the_puts_at_hand(durable: SqliteDurable, file: Path) -> None:
    puts = [asyncio.create_task(durable.put([head(f"ns:{number}", 1)])) for number in range(50)]
    await asyncio.sleep(0)

    await durable.close()

    assert [put[0].outcome for put in await asyncio.gather(*puts)] == [Outcome.STORED] * 50


# -- sharing it -----------------------------------------------------------------------------------


async def test_what_one_opener_puts_the_other_finds(durable: SqliteDurable, file: Path) -> None:
    other = SqliteDurable(file)
    await other.open()

    puts = await asyncio.gather(*((durable, other)[n % 2].put([head("ns:a", n, body=str(n))]) for n in range(1, 41)))

    assert all(put[0].outcome in Outcome for put in puts)
    assert await durable.get("ns:a") == await other.get("ns:a") == head("ns:a", 40, body="40")
    await other.close()


async def test_a_walk_left_in_the_middle_lets_the_log_be_emptied(durable: SqliteDurable, file: Path) -> None:
    await durable.put([head(f"ns:{number:04}", 1, body='"' + "x" * 5000 + '"') for number in range(600)])
    pages = durable.iterate("ns")
    await anext(pages)

    with closing(sqlite3.connect(file)) as other:
        busy, _, _ = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    assert busy == 0
    assert len(await anext(pages)) == 100


async def test_a_cancelled_put_costs_its_neighbours_nothing(durable: SqliteDurable) -> None:
    puts = [asyncio.create_task(durable.put([head(f"ns:{number}", 1)])) for number in range(20)]
    await asyncio.sleep(0)
    for put in puts[::2]:
        put.cancel()

    answers = await asyncio.gather(*puts, return_exceptions=True)

    assert all(isinstance(answer, asyncio.CancelledError) or answer[0].outcome == "stored" for answer in answers)  # type: ignore[index]  # no other error


async def test_only_what_no_column_can_hold_is_refused(durable: SqliteDurable) -> None:
    good = head("ns:good", 1)
    bad = [
        head("ns:number", 1, version=2**63),
        DurableRecord.model_construct(**{**dict(head("ns:text", 1)), "body": "\ud800"}),
    ]

    answers = await asyncio.gather(durable.put([*bad, good]), durable.put([head("ns:other", 1)]))

    assert [put.outcome for put in answers[0]] == [Outcome.REFUSED, Outcome.REFUSED, Outcome.STORED]
    assert all("SQLite cannot store it" in put.reason for put in answers[0][:2])
    assert await all_records_of(durable, "ns") == [good, head("ns:other", 1)]


# -- pages and purging ----------------------------------------------------------------------------


async def test_pages_of_large_bodies_are_short(durable: SqliteDurable) -> None:
    await durable.put([head(f"ns:{number:02}", 1, body='"' + "x" * 1_000_000 + '"') for number in range(12)])

    pages = [len(page) async for page in durable.iterate("ns")]

    assert pages == [4, 4, 4]


@pytest.mark.parametrize("changed", [1, 2500])
async def test_many_changes_and_few_are_told_alike(durable: SqliteDurable, changed: int) -> None:
    records = [head(f"ns:{number:04}", number * 7919 % 3000) for number in range(3000)]
    await durable.put(records)

    found = await all_records_of(durable, "ns", changed_after=T + 2999 - changed)

    assert found == [one for one in records if one.stamp > T + 2999 - changed]
    assert len(found) == changed


async def test_a_long_purge_goes_part_by_part_and_splits_no_key(durable: SqliteDurable) -> None:
    items = [element("ns:list", f"{T + number}", number, type="list") for number in range(3000)]
    others = [head(f"ns:key-{number:04}", 1, expires=NOW_MS * (number % 2)) for number in range(2400)]
    await durable.put([head("ns:list", 3000, type="list", size=10), *items, *others])
    before = living_documents(await durable.records("ns:list"), NOW_MS)

    removed = await durable.purge("ns", now_ms=NOW_MS, tombstones_before=0)

    assert removed == 2990 + 1200
    assert living_documents(await durable.records("ns:list"), NOW_MS) == before
    assert len(await all_records_of(durable, "ns")) == 11 + 1200


# -- backup and check -----------------------------------------------------------------------------


async def test_a_backup_is_the_store_as_it_was(durable: SqliteDurable, file: Path) -> None:
    """docs/durable-format.md: the same id, the same documents."""
    records = [head(f"ns:{number:04}", 1, body='"' + "x" * 3000 + '"') for number in range(3000)]
    await durable.put(records)
    told: list[tuple[int, int]] = []
    target = file.with_name("backup.db")

    backup = asyncio.create_task(durable.backup(target, lambda done, pages: told.append((done, pages))))
    while not backup.done():
        await durable.put([head("ns:late", len(told) + 1)])
    await backup

    copy = SqliteDurable(target)
    assert await copy.open(create=False) == await durable.open()
    assert [one for one in await all_records_of(copy, "ns") if one.key != "ns:late"] == records
    assert await copy.check() == []
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1] > 1000
    await copy.close()


async def test_a_backup_replaces_the_last_one_and_never_the_file_itself(durable: SqliteDurable, file: Path) -> None:
    target = file.with_name("backup.db")
    for number in (1, 2):
        await durable.put([head("ns:a", number)])
        await durable.backup(target)

    with pytest.raises(InvalidError, match="it is the file itself"):
        await durable.backup(file.parent / "." / file.name)

    copy = SqliteDurable(target)
    await copy.open()
    assert await copy.get("ns:a") == head("ns:a", 2)
    await copy.close()


async def test_a_backup_that_cannot_be_written_leaves_nothing(durable: SqliteDurable, file: Path) -> None:
    with pytest.raises(UnavailableError, match=r"backup .*gone/backup\.db"):
        await durable.backup(file.parent / "gone" / "backup.db")

    assert {path.name.partition("-")[0] for path in file.parent.iterdir()} == {"cold.db"}


def open_to_all(file: Path) -> None:
    file.chmod(0o644)


async def test_a_file_that_everyone_may_read_is_complained_of(durable: SqliteDurable, file: Path) -> None:
    open_to_all(file)

    assert await durable.check() == [f"durable file {file} can be read by every user of this machine; run chmod o-rwx"]
