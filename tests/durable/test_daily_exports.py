"""docs/archives.md: one export a day, read back before older ones are deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import fakeredis
import pytest

from sharedmem import ConflictError, Hub, InvalidError, NotFoundError, UnavailableError
from sharedmem.archive import daily_exports
from sharedmem.archive.daily_exports import (
    KeptExports,
    StoredExport,
    delete_exports,
    export_path,
    list_exports,
    outdated_exports,
)
from sharedmem.archive.files import verify_archive
from sharedmem.testing import ManualClock, fake_hub

DAY = 86_400
SUNDAY = date(2026, 3, 1)


def stored(day: date, namespace: str = "team") -> StoredExport:
    return StoredExport(
        namespace=namespace, day=day, file=f"{namespace}.{day}.jsonl", bytes=1, written=datetime(2026, 1, 1, tzinfo=UTC)
    )


def days_before(newest: date, count: int) -> list[StoredExport]:
    return [stored(newest - timedelta(days=age)) for age in range(count)]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def cut(path: Path) -> None:
    """Lose the end of a file, as a full or damaged disk does."""
    path.write_bytes(path.read_bytes()[:-9])


# -- which exports are kept -----------------------------------------------------------------------


def test_the_newest_days_and_the_newest_of_each_week_are_kept() -> None:
    exports = days_before(SUNDAY, 40)

    outdated = {one.day for one in outdated_exports(exports, KeptExports(daily=3, weekly=4))}
    kept = sorted({one.day for one in exports} - outdated, reverse=True)

    sundays = [SUNDAY - timedelta(weeks=age) for age in range(4)]
    assert kept == sorted({SUNDAY, SUNDAY - timedelta(days=1), SUNDAY - timedelta(days=2), *sundays}, reverse=True)


def test_each_day_deletes_at_most_what_no_later_day_wants() -> None:
    kept, there = KeptExports(daily=7, weekly=4), list[StoredExport]()
    for number in range(100):
        there = [stored(SUNDAY + timedelta(days=number)), *there]
        outdated = outdated_exports(there, kept)
        there = [one for one in there if one not in outdated]

    ages = [(there[0].day - one.day).days for one in there]
    assert ages[:7] == list(range(7))
    assert len({one.day.isocalendar()[:2] for one in there}) == 4
    assert ages[-1] >= 15, "on a Monday the oldest of four weeks ended 15 days ago"


def test_days_without_an_export_do_not_shorten_the_past() -> None:
    exports = [stored(SUNDAY), stored(SUNDAY - timedelta(days=200)), stored(SUNDAY - timedelta(days=400))]

    assert outdated_exports(exports, KeptExports(daily=3, weekly=0)) == []
    assert [one.day for one in outdated_exports(exports, KeptExports(daily=1, weekly=2))] == [exports[2].day]


@pytest.mark.parametrize("wrong", [{"daily": 0}, {"daily": -1}, {"weekly": -1}, {"daily": 1.5}, {"daily": True}])
async def test_a_number_that_is_none_is_refused_before_anything_is_written(
    hub: Hub, tmp_path: Path, wrong: dict[str, Any]
) -> None:
    with pytest.raises(InvalidError, match=r"daily|weekly"):
        await hub.archive.export_daily("team", tmp_path / "exports", **wrong)

    assert not (tmp_path / "exports").exists()


# -- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("namespace", ["team", "a.b", "übung", "a/b", "..", "team.2026-03-01.jsonl", "%41"])
def test_every_namespace_has_files_of_its_own(tmp_path: Path, namespace: str) -> None:
    path = export_path(tmp_path, namespace, SUNDAY, compressed=True)
    path.write_bytes(b"")

    assert path.parent == tmp_path
    assert [(one.namespace, one.day) for one in list_exports(tmp_path)] == [(namespace, SUNDAY)]
    assert list_exports(tmp_path, "other") == []


def test_other_files_are_no_exports(tmp_path: Path) -> None:
    for name in ("notes.txt", "team.jsonl", "team.2026-03-01.jsonl.part", "team.2026-13-01.jsonl", ".2026-03-01.jsonl"):
        (tmp_path / name).write_text("")
    (tmp_path / "team.2026-03-01.jsonl.damaged").write_text("")

    assert list_exports(tmp_path) == []
    assert list_exports(tmp_path / "missing") == []
    with pytest.raises(UnavailableError, match="cannot be read"):
        list_exports(tmp_path / "notes.txt")


def test_a_deleted_export_takes_its_report_along(tmp_path: Path) -> None:
    path = export_path(tmp_path, "team", SUNDAY, compressed=False)
    report = path.with_name(f"{path.name}.drill")
    for one in (path, report):
        one.write_text("{}")

    assert delete_exports(list_exports(tmp_path)) == [str(path)]
    assert not report.exists()


# -- exports of a hub -----------------------------------------------------------------------------


@pytest.fixture
async def hub(clock: ManualClock) -> AsyncIterator[Hub]:
    async with fake_hub(clock=clock) as hub:
        await hub.store("team").write("plan", {"topic": "tides"})
        yield hub


async def test_there_is_one_export_a_day_and_old_ones_are_deleted(hub: Hub, tmp_path: Path, clock: ManualClock) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    files = []
    for _ in range(5):
        done = await hub.archive.export_daily("team", tmp_path, daily=2, weekly=0)
        again = await hub.archive.export_daily("team", tmp_path, daily=2, weekly=0)
        assert done.exported is not None
        assert (again.file, again.exported, again.deleted) == (done.file, None, ())
        files.append(done.file)
        clock.advance(DAY)

    assert done.deleted == (files[2],)
    assert done.kept == 2
    assert names(tmp_path) == ["mine.txt", *(Path(file).name for file in files[3:])]


async def test_namespaces_do_not_delete_each_others_exports(hub: Hub, tmp_path: Path, clock: ManualClock) -> None:
    await hub.store("other").write("plan", 1)
    await hub.archive.export_daily("other", tmp_path, daily=1, weekly=0)
    clock.advance(DAY)
    await hub.archive.export_daily("team", tmp_path, daily=1, weekly=0)

    assert {one.namespace for one in list_exports(tmp_path)} == {"team", "other"}


async def test_an_export_that_cannot_be_read_back_is_no_export_and_deletes_nothing(
    hub: Hub, tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await hub.archive.export_daily("team", tmp_path, daily=1, weekly=0)
    clock.advance(DAY)
    whole = verify_archive

    async def verify_a_damaged_disk(path: Path) -> object:
        cut(path)
        return await whole(path)

    monkeypatch.setattr(daily_exports, "verify_archive", verify_a_damaged_disk)
    with pytest.raises(InvalidError):
        await hub.archive.export_daily("team", tmp_path, daily=1, weekly=0)

    assert [one.file for one in list_exports(tmp_path)] == [first.file]
    assert sum(name.endswith(".damaged") for name in names(tmp_path)) == 1
    monkeypatch.undo()
    second = await hub.archive.export_daily("team", tmp_path, daily=1, weekly=0)
    assert second.exported is not None
    assert second.deleted == (first.file,)


async def test_two_processes_make_one_export(clock: ManualClock, tmp_path: Path) -> None:
    server = fakeredis.FakeServer()
    async with fake_hub(clock=clock, server=server) as one, fake_hub(clock=clock, server=server) as other:
        await one.store("team").write("plan", "x" * 10_000)
        outcomes = await asyncio.gather(
            *(hub.archive.export_daily("team", tmp_path) for hub in (one, other)), return_exceptions=True
        )

    assert sum(getattr(outcome, "exported", None) is not None for outcome in outcomes) == 1
    assert all(not isinstance(outcome, Exception) or isinstance(outcome, ConflictError) for outcome in outcomes)
    assert len(list_exports(tmp_path)) == 1


async def test_what_an_interrupted_export_of_an_earlier_day_has_left_is_deleted(
    hub: Hub, tmp_path: Path, clock: ManualClock
) -> None:
    today = clock.now().date()
    old = export_path(tmp_path, "team", today - timedelta(days=1), compressed=True)
    other = export_path(tmp_path, "other", today - timedelta(days=1), compressed=True)
    for path in (old, other):
        path.with_name(f"{path.name}.part").write_text("half")
        path.with_name(f"{path.name}.checkpoint").write_text("{}")

    await hub.archive.export_daily("team", tmp_path)

    assert [Path(name).suffix for name in names(tmp_path)] == [".checkpoint", ".part", ".zst"]


async def test_a_namespace_that_was_never_written_is_an_error(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="nothing was ever written"):
        await hub.archive.export_daily("nobody", tmp_path)
