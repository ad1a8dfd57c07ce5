"""One export of a namespace each day, read back before older ones are deleted."""

from __future__ import annotations

import asyncio
from datetime import UTC
from pathlib import Path
from typing import Protocol

from sharedmem.archive.files import verify_archive
from sharedmem.archive.rotation import (
    DAMAGED,
    KeptExports,
    delete_exports,
    delete_unfinished,
    export_path,
    list_exports,
    outdated_exports,
)
from sharedmem.archive.transfer import Exported, Progress
from sharedmem.clock import Clock
from sharedmem.errors import InvalidError
from sharedmem.models.record import Record
from sharedmem.redis.keys import check_name


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
