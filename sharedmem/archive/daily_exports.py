"""Daily exports of a namespace in a folder: one each day, read back before older ones are deleted, and which are kept.

A file is called `<namespace>.<day>.jsonl`, or `.jsonl.zst`; signs of a namespace that a file name may not have are
percent-encoded. Other files of the folder are never touched. A finished export is read through before it counts as one,
so the newest file of a namespace is its newest good export.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import quote, unquote

from pydantic import ValidationError

from sharedmem.archive.files import verify_archive
from sharedmem.archive.transfer import Exported, Progress
from sharedmem.clock import Clock
from sharedmem.errors import InvalidError, UnavailableError
from sharedmem.models.record import Record
from sharedmem.redis.keys import check_name

DEFAULT_DAILY, DEFAULT_WEEKLY = 7, 4
_MOST_KEPT = 10_000
_NAME = re.compile(r"(?P<namespace>.+)\.(?P<day>\d{4}-\d{2}-\d{2})\.jsonl(?:\.zst)?")
_UNFINISHED = (".part", ".checkpoint", ".checkpoint.new")
DAMAGED = ".damaged"
"""Ends the name of an export that could not be read back."""
DRILL = ".drill"
"""Ends the name of the report of a restore drill, beside its export."""


class StoredExport(Record):
    """An export in a folder."""

    namespace: str
    day: date
    """Day of the export, in UTC."""
    file: str
    bytes: int
    written: datetime
    """When the file was last written."""
    drilled: datetime | None = None
    """When a restore drill of it succeeded; None without one, or if the last one failed."""


class KeptExports(NamedTuple):
    """How many exports of a namespace are kept."""

    daily: int
    """The newest ones."""
    weekly: int
    """Of so many of the newest weeks (Monday to Sunday), the newest of each."""

    def check(self) -> None:
        """Check both numbers.

        Raises:
            InvalidError: no export would be kept, or a number is out of bounds.
        """
        for name, number, least in (("daily", self.daily, 1), ("weekly", self.weekly, 0)):
            if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= _MOST_KEPT:
                raise InvalidError(name, number, f"give a whole number from {least} to {_MOST_KEPT}")


def export_path(folder: Path, namespace: str, day: date, *, compressed: bool) -> Path:
    """Return the file of a namespace's export on a day."""
    return folder / f"{quote(namespace, safe='')}.{day.isoformat()}.jsonl{'.zst' if compressed else ''}"


def list_exports(folder: Path, namespace: str | None = None) -> list[StoredExport]:
    """Return the finished exports of a folder, newest first; none if the folder does not exist.

    Args:
        folder: where they are.
        namespace: only this one's; None: of all namespaces.

    Raises:
        UnavailableError: the folder cannot be read.
    """
    found: list[StoredExport] = []
    try:
        entries = sorted(folder.iterdir()) if folder.exists() else []
    except OSError as error:
        raise UnavailableError(f"folder {folder}", f"it cannot be read: {error.strerror or error}") from error
    for path in entries:
        named = _NAME.fullmatch(path.name)
        if named is None or (namespace is not None and unquote(named["namespace"]) != namespace):
            continue
        # Another process may delete it meanwhile, and a name may hold a day that no calendar has.
        with suppress(OSError, ValueError):
            status = path.stat()
            found.append(
                StoredExport(
                    namespace=unquote(named["namespace"]),
                    day=date.fromisoformat(named["day"]),
                    file=str(path),
                    bytes=status.st_size,
                    written=datetime.fromtimestamp(status.st_mtime, UTC),
                    drilled=_drilled_at(path),
                )
            )
    return sorted(found, key=lambda one: (one.day, one.written), reverse=True)


class _DrillOutcome(Record):
    model_config = Record.model_config | {"extra": "ignore"}

    ok: bool
    at: datetime


def _drilled_at(path: Path) -> datetime | None:
    with suppress(OSError, ValidationError):
        outcome = _DrillOutcome.model_validate_json(path.with_name(path.name + DRILL).read_bytes())
        return outcome.at if outcome.ok else None
    return None


def outdated_exports(newest_first: Sequence[StoredExport], kept: KeptExports) -> list[StoredExport]:
    """Return the exports of one namespace that are not kept: neither among the newest days, nor the newest of a week.

    Args:
        newest_first: its exports.
        kept: how many are kept.
    """
    days = sorted({one.day for one in newest_first}, reverse=True)
    stays = set(days[: kept.daily])
    weeks: dict[tuple[int, int], date] = {}
    for day in days:
        weeks.setdefault(day.isocalendar()[:2], day)
    stays.update(list(weeks.values())[: kept.weekly])
    return [one for one in newest_first if one.day not in stays]


def delete_exports(exports: Iterable[StoredExport]) -> list[str]:
    """Delete exports, with the reports of their drills; return their files.

    Raises:
        UnavailableError: a file cannot be deleted.
    """
    deleted = []
    for one in exports:
        path = Path(one.file)
        try:
            path.unlink(missing_ok=True)
            path.with_name(path.name + DRILL).unlink(missing_ok=True)
        except OSError as error:
            raise UnavailableError(f"file {path}", f"it cannot be deleted: {error.strerror or error}") from error
        deleted.append(one.file)
    return deleted


def delete_unfinished(folder: Path, namespace: str, before: date) -> None:
    """Delete what interrupted exports of a namespace on earlier days have left: no call continues them."""
    for ending in _UNFINISHED:
        for path in folder.glob(f"*{ending}"):
            named = _NAME.fullmatch(path.name.removesuffix(ending))
            if named is None or unquote(named["namespace"]) != namespace:
                continue
            with suppress(OSError, ValueError):
                if date.fromisoformat(named["day"]) < before:
                    path.unlink()


# -- one day's exports ----------------------------------------------------------------------------


class NamespaceExporter(Protocol):
    """Exports whole namespaces, such as the archives of a hub."""

    async def export(
        self, namespace: str, file: Path | str, *, replace: bool = False, progress: Progress | None = None
    ) -> Exported:
        """Write a namespace to an archive; after an interruption, the same call continues it."""


class RotatedExport(Record):
    """The outcome of a daily export."""

    namespace: str
    file: str
    """The export of today."""
    exported: Exported | None
    """None: there was an export of today already."""
    kept: int
    """Exports of the namespace that are there now."""
    deleted: tuple[str, ...]
    """Files that were deleted."""


async def export_daily(
    exporter: NamespaceExporter,
    namespace: str,
    folder: Path,
    kept: KeptExports,
    *,
    clock: Clock,
    compressed: bool = True,
    progress: Progress | None = None,
) -> RotatedExport:
    """Export a namespace unless there is an export of today, then delete outdated ones; see `Archives.export_daily`."""
    check_name("namespace", namespace)
    kept.check()
    today = clock.now().astimezone(UTC).date()
    there = [one for one in await asyncio.to_thread(list_exports, folder, namespace) if one.day == today]
    path = Path(there[0].file) if there else export_path(folder, namespace, today, compressed=compressed)
    exported = None
    if not there:
        exported = await exporter.export(namespace, path, progress=progress)
        await _read_back(path)
    found = await asyncio.to_thread(list_exports, folder, namespace)
    deleted = await asyncio.to_thread(delete_exports, outdated_exports(found, kept))
    await asyncio.to_thread(delete_unfinished, folder, namespace, today)
    return RotatedExport(
        namespace=namespace,
        file=str(path),
        exported=exported,
        kept=len(found) - len(deleted),
        deleted=tuple(deleted),
    )


async def _read_back(path: Path) -> None:
    """Read an export through; give it another name if that fails, so that it does not count as one."""
    try:
        await verify_archive(path)
    except InvalidError:
        await asyncio.to_thread(path.replace, path.with_name(path.name + DAMAGED))
        raise
