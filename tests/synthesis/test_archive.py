"""Memories that were not used for years are archived whole, found again on demand, and never lost on the way."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.contexts import scope_of
from support.note_chains import APP, START, chain_of_two_consolidations, make_chain_note
from support.note_harness import NoteHarness, open_note_harnesses

from sharedmem import InvalidError, NotFoundError
from sharedmem.models import Note
from sharedmem.runtime import JsonFormatter
from sharedmem.synthesis.chain_archive import has_faded, is_archivable
from sharedmem.synthesis.note_repository import RedisNoteRepository
from sharedmem.synthesis.protocol import CommittedNotes, NewNote, NoteChange, StaleNotes, UserNotesVersion


class FallenError(Exception):
    """The process is gone."""


@pytest.mark.parametrize(
    ("days", "after_days", "faded"),
    [(3651, 3650, True), (3649, 3650, False), (2102, 1, True), (2100, 1, False), (2102, 2103, False), (-5, 1, False)],
)
def test_a_note_fades_when_it_is_old_and_its_recency_below_a_hundredth(days: int, after_days: int, faded: bool) -> None:
    assert has_faded(make_chain_note("a"), now=START + timedelta(days=days), after_days=after_days) is faded


def with_head(**fields: object) -> tuple[Note, ...]:
    *rest, head = chain_of_two_consolidations()
    return (*rest, head.model_copy(update=fields))


@pytest.mark.parametrize(
    ("chain", "ripe"),
    [
        (chain_of_two_consolidations(), True),
        (with_head(updated_at=START + timedelta(days=4000)), False),
        (with_head(status="conflict_pending"), False),
        (with_head(status="deleted", status_reason="manual_update"), False),
        (with_head(status="archived"), False),
        (chain_of_two_consolidations()[:-1], False),
        ((make_chain_note("a"), make_chain_note("b", chain_id="a")), False),
    ],
)
def test_a_chain_goes_whole_or_not_at_all(chain: tuple[Note, ...], ripe: bool) -> None:
    assert is_archivable(chain, now=START + timedelta(days=4018), after_days=3650) is ripe


async def put_old_and_new(harness: NoteHarness) -> None:
    """Two chains of eleven years ago, and what must stay."""
    await harness.put(
        *chain_of_two_consolidations(),
        make_chain_note("lone", kind="agent"),
        make_chain_note("gone", status="deleted", status_reason="manual_update"),
    )
    harness.pass_years(11)
    await harness.put(make_chain_note("fresh", day=4017))


async def test_what_has_faded_is_put_away_and_comes_back_as_it_was(harness: NoteHarness) -> None:
    await put_old_and_new(harness)
    before = await harness.all()
    seen: list[int] = []

    told = await harness.archiver.archive(APP, dry_run=True)
    assert (told.looked_at, told.chains, told.archived) == (8, 2, ("a", "b", "c", "lone", "s1", "s2"))
    assert (await harness.all(), await harness.archived()) == (before, 0)

    done = await harness.archiver.archive(APP, progress=seen.append)
    assert (done.archived, done.chains, seen) == (told.archived, 2, [8])
    assert 0 < done.bytes < 4000
    away = await harness.one("s2")
    assert (away.status, away.status_reason, away.memory_note, away.messages) == ("archived", "age_decay", "", ())
    assert (away.next_id, away.sources, away.archived_at) == (None, ("c", "s1"), harness.clock.now())
    assert str(away.archival_location).startswith("blob:")
    assert await harness.found("text of s2") == ["fresh"]
    assert await harness.is_sound()
    assert (await harness.archiver.archive(APP)).archived == ()

    whole = await harness.archiver.get_archived(APP, "a")
    assert (whole.memory_note, whole.messages) == (before["a"].memory_note, before["a"].messages)
    assert (whole.status, whole.archival_location) == ("archived", away.archival_location)
    assert await harness.one("s2") == away

    back = await harness.archiver.unarchive(APP, "b")
    after = await harness.all()
    kept = {"version", "updated_at"}
    assert [one.model_dump(exclude=kept) for one in after.values() if one.chain_id == "a" or one.id in "abc"] == [
        one.model_dump(exclude=kept) for one in before.values() if one.chain_id == "a" or one.id in "abc"
    ]
    assert back == after["b"]
    assert set(await harness.found("text of s2")) == {"s2", "fresh"}
    assert await harness.is_sound()
    assert await harness.archived() == 1
    assert (await harness.archiver.archive(APP)).archived == ()


async def test_archived_memories_are_found_by_what_stays_of_them(harness: NoteHarness) -> None:
    tagged: dict[str, Any] = {"tags": ("Hafen",), "keywords": ("Zoll",)}
    await harness.put(
        make_chain_note("a", **tagged),
        make_chain_note("b", day=1, user_id="bob", **tagged),
        make_chain_note("c", tags=("Hafen",)),
    )
    harness.pass_years(11)
    await harness.archiver.archive(APP)
    await harness.put(make_chain_note("d", day=4017, **tagged))

    async def ids(**narrowed: Any) -> list[str]:
        return [one.id for one in await harness.archiver.archived(APP, **narrowed)]

    assert await ids() == ["b", "c", "a"]
    assert await ids(words="zoll HAFEN") == ["b", "a"]
    assert await ids(words="zoll", user_id="ada") == ["a"]
    assert (await ids(limit=1), await ids(words="nothing")) == (["b"], [])


async def test_without_zstd_archives_are_plain_and_read_all_the_same(
    harness: NoteHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("backports", "compression"):
        monkeypatch.setitem(sys.modules, name, None)
    await harness.put(make_chain_note("a"))
    harness.pass_years(11)
    await harness.archiver.archive(APP)

    assert (await harness.archiver.get_archived(APP, "a")).memory_note.endswith("text of a")
    (content,) = _contents(harness)
    assert b"text of a" in _bytes(content)


async def test_notes_that_are_not_archived_are_answered_as_they_are(harness: NoteHarness) -> None:
    await harness.put(make_chain_note("a"))

    assert await harness.archiver.get_archived(APP, "a") == await harness.one("a")
    assert await harness.archiver.unarchive(APP, "a") == await harness.one("a")
    for call in (harness.archiver.get_archived, harness.archiver.unarchive):
        with pytest.raises(NotFoundError, match="nobody"):
            await call(APP, "nobody")


class FallingRepository(RedisNoteRepository):
    """A repository whose process falls before or after its commits."""

    falls = ""

    async def commit(
        self,
        app_id: str,
        *,
        fresh: Sequence[NewNote] = (),
        changes: Sequence[NoteChange] = (),
        seen: UserNotesVersion | None = None,
        fences: Mapping[str, int] | None = None,
    ) -> CommittedNotes | StaleNotes:
        if self.falls == "before":
            raise FallenError
        done = await super().commit(app_id, fresh=fresh, changes=changes, seen=seen, fences=fences)
        if self.falls == "after":
            raise FallenError
        return done


@pytest.mark.parametrize(("falls", "archives"), [("before", 2), ("after", 1)])
async def test_a_crash_while_archiving_harms_nothing_and_the_next_call_goes_on(
    harness: NoteHarness, falls: str, archives: int
) -> None:
    await harness.put(*chain_of_two_consolidations())
    harness.pass_years(11)
    repository = FallingRepository(harness.context, scope_of(harness.store))
    archiver, repository.falls = harness.services(repository).archiver, falls
    with pytest.raises(FallenError):
        await archiver.archive(APP)
    repository.falls = ""

    await archiver.archive(APP)

    assert {one.status for one in (await harness.all()).values()} == {"archived"}
    assert (await harness.archiver.get_archived(APP, "a")).memory_note.endswith("text of a")
    assert await harness.archived() == archives
    _age_archives(harness)
    await harness.archiver.archive(APP)
    assert await harness.archived() == 1
    assert (await harness.archiver.get_archived(APP, "c")).memory_note.endswith("text of c")


def _age_archives(harness: NoteHarness) -> None:
    """Make everything in the blob store two hours older."""
    for path in Path(harness.context.settings.blob_path()).rglob("*"):
        if path.is_file():
            stat = path.stat()
            os.utime(path, (stat.st_atime - 7200, stat.st_mtime - 7200))


async def test_a_crash_while_a_chain_comes_back_harms_nothing(harness: NoteHarness) -> None:
    await harness.put(*chain_of_two_consolidations())
    harness.pass_years(11)
    await harness.archiver.archive(APP)
    repository = FallingRepository(harness.context, scope_of(harness.store))
    archiver = harness.services(repository).archiver
    for falls in ("before", "after"):
        repository.falls = falls
        with pytest.raises(FallenError):
            await archiver.unarchive(APP, "s2")
    repository.falls = ""

    assert (await archiver.unarchive(APP, "s2")).status == "active"
    assert await harness.found("text of s2") == ["s2"]
    assert await harness.is_sound()


@pytest.mark.parametrize("spoil", [lambda _: b"", lambda body: body[:-1], lambda _: None], ids=["empty", "cut", "gone"])
async def test_an_archive_that_was_spoilt_is_told(harness: NoteHarness, spoil: Callable[[bytes], bytes | None]) -> None:
    await harness.put(make_chain_note("a"))
    harness.pass_years(11)
    await harness.archiver.archive(APP)
    _spoil(harness, spoil)

    for call in (harness.archiver.get_archived, harness.archiver.unarchive):
        with pytest.raises(NotFoundError, match="blob"):
            await call(APP, "a")
    assert (await harness.one("a")).status == "archived"


def _contents(harness: NoteHarness) -> list[Path]:
    return list(Path(harness.context.settings.blob_path()).rglob("content"))


def _bytes(content: Path) -> bytes:
    return content.read_bytes()


def _spoil(harness: NoteHarness, spoil: Callable[[bytes], bytes | None]) -> None:
    (content,) = _contents(harness)
    body = spoil(content.read_bytes())
    content.unlink() if body is None else content.write_bytes(body)


async def test_a_location_that_leads_nowhere_or_to_another_app_is_refused(harness: NoteHarness) -> None:
    await harness.put(make_chain_note("a"), make_chain_note("a", app_id="other"))
    harness.pass_years(11)
    await harness.archiver.archive(APP)
    location = (await harness.one("a")).archival_location or ""

    for wrong in (
        "",
        "blob:x",
        "blob:x?note=a&size=1&codec=json",
        f"{location}1",
        "file:///x?note=a&size=1&codec=json",
    ):
        with pytest.raises((InvalidError, NotFoundError)):
            await harness.archives.get(APP, wrong)
    with pytest.raises(NotFoundError):
        await harness.archives.get("other", location)
    await harness.archives.remove("other", location)
    assert "a" in await harness.archives.get(APP, location)


async def test_archives_survive_sweeps_and_go_with_their_namespace() -> None:
    async with open_note_harnesses(("one", "two")) as (harness, other):
        for each in (harness, other):
            await each.put(make_chain_note("a"))
        harness.pass_years(11)
        for each in (harness, other):
            await each.archiver.archive(APP)
        _age_archives(harness)

        assert await harness.store.sweep() == 0
        assert (await harness.archiver.get_archived(APP, "a")).memory_note.endswith("text of a")

        await harness.store.clear()
        assert (await harness.archived(), await other.archived()) == (0, 1)


async def test_what_was_archived_is_logged_by_its_ids(harness: NoteHarness, caplog: pytest.LogCaptureFixture) -> None:
    await put_old_and_new(harness)
    with caplog.at_level(logging.INFO, logger="sharedmem.synthesis"):
        await harness.archiver.archive(APP, dry_run=True)
        done = await harness.archiver.archive(APP)

    (record,) = [record for record in caplog.records if record.message == "notes archived"]
    assert vars(record)["notes"] == list(done.archived)
    assert (vars(record)["chains"], vars(record)["bytes"]) == (done.chains, done.bytes)
    assert all("text of" not in JsonFormatter().format(one) for one in caplog.records)
