"""The archives of a hub: export, import, copy and backfill whole namespaces."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from collections.abc import Mapping as Fields
from contextlib import aclosing
from pathlib import Path

from sharedmem.archive import transfer as archives
from sharedmem.archive.backfill import Backfilled, BackfillMapping, backfill, read_mapping, validate_mapping
from sharedmem.archive.daily_exports import DEFAULT_DAILY, DEFAULT_WEEKLY, KeptExports, RotatedExport, export_daily
from sharedmem.archive.endpoint import ArchiveEndpoint
from sharedmem.archive.files import UnpackLimits
from sharedmem.archive.transfer import Copied, Exported, Imported, Progress, stream_archive
from sharedmem.runtime.concurrency import ProcessBound

MappingLike = BackfillMapping | Fields[str, object] | Path | str
"""A mapping, its fields, or the YAML or JSON file with them."""


class Archives(ProcessBound):
    """Exports, imports and copies namespaces.

    Args:
        endpoint: the server and its store.
        version: version of this sharedmem, for the headers of archives.
    """

    def __init__(self, endpoint: ArchiveEndpoint, *, version: str) -> None:
        self._endpoint = endpoint
        self._version = version

    @property
    def url(self) -> str:
        """The name of this endpoint in archives."""
        return self._endpoint.url

    async def namespaces(self) -> list[str]:
        """Return the namespaces that can be exported or copied, sorted. One scan of the server.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: an endpoint is unavailable, or forbids it.
        """
        return await archives.list_namespaces(self._endpoint)

    async def export(
        self, namespace: str, file: Path | str, *, replace: bool = False, progress: Progress | None = None
    ) -> Exported:
        """Write a namespace to an archive; after an interruption, the same call continues it.

        Args:
            namespace: the namespace.
            file: the archive; a name that ends in `.zst` compresses it.
            replace: whether to replace an existing file, once the new one is complete.
            progress: called from time to time.

        Raises:
            NotFoundError: the namespace was never written.
            ConflictError: the file exists, or another process is writing it.
            UnavailableError: an endpoint is unavailable, or the file cannot be written.
            UnsupportedError: the compression library is not installed.
        """
        return await archives.export(
            self._endpoint, namespace, Path(file), version=self._version, replace=replace, progress=progress
        )

    async def export_daily(
        self,
        namespace: str,
        folder: Path | str,
        *,
        daily: int = DEFAULT_DAILY,
        weekly: int = DEFAULT_WEEKLY,
        compressed: bool = True,
        progress: Progress | None = None,
    ) -> RotatedExport:
        """Export a namespace unless it has an export of today (UTC), read it back, then delete outdated exports.

        The same call continues an export that was interrupted today. Only files that are named as these exports are
        deleted, and only after the new one was read back without an error.

        Args:
            namespace: the namespace.
            folder: where its exports are; created when missing.
            daily: how many of the newest exports are kept, from 1.
            weekly: of how many of the newest weeks (Monday to Sunday) the newest export is kept too.
            compressed: whether new files are compressed (`.jsonl.zst`).
            progress: called from time to time.

        Returns:
            The file of today, what was exported (None if it existed), and the deleted files.

        Raises:
            InvalidError: a number is out of bounds; or the export could not be read back. Then its name ends in
                `.damaged`, and nothing is deleted.
            ConflictError: another process is writing the export of today.
            NotFoundError, UnavailableError, UnsupportedError: as `export`, or a file cannot be deleted.
        """
        kept = KeptExports(daily, weekly)
        return await export_daily(
            self, namespace, Path(folder), kept, clock=self._endpoint.clock, compressed=compressed, progress=progress
        )

    async def stream(self, namespace: str, *, compressed: bool = True) -> AsyncIterator[bytes]:
        """Stream an archive of a namespace, in a few MiB of memory. Left-out documents are not reported.

        Args:
            namespace: the namespace.
            compressed: true: zstd, as in a file that ends in `.zst`; false: text.

        Raises:
            NotFoundError: the namespace was never written.
            UnavailableError: an endpoint is unavailable; an archive without its last line is rejected by an import.
            UnsupportedError: the compression library is not installed.
        """
        async with aclosing(
            stream_archive(self._endpoint, namespace, version=self._version, compressed=compressed)
        ) as pieces:
            async for piece in pieces:
                yield piece

    async def import_(
        self,
        file: Path | str,
        *,
        namespace: str | None = None,
        replace: bool = False,
        progress: Progress | None = None,
        limits: UnpackLimits | None = None,
    ) -> Imported:
        """Import an archive into its namespace; older documents never replace newer ones.

        Args:
            file: the archive. A damaged or truncated one changes nothing.
            namespace: reject the archive of another namespace; None: accept any.
            replace: overwrite structures, counters and foreign strings in Redis, which have no version.
            progress: called from time to time.
            limits: limits of the unpacked size; None: no limits, for a trusted archive.

        Raises:
            InvalidError: the file is not an archive, truncated, damaged, of another namespace, or too large unpacked.
            UnsupportedError: a newer sharedmem wrote it, or the compression library is not installed.
            NotFoundError, UnavailableError: the file cannot be read, or an endpoint is unavailable.
        """
        return await archives.import_(
            self._endpoint, Path(file), namespace=namespace, replace=replace, progress=progress, limits=limits
        )

    async def copy_to(
        self,
        target: Archives,
        namespaces: Iterable[str] | None = None,
        *,
        checkpoint: Path | None = None,
        replace: bool = False,
        progress: Progress | None = None,
    ) -> list[Copied]:
        """Copy namespaces to another endpoint, like an export and an import.

        Args:
            target: the other endpoint.
            namespaces: names of namespaces; None: all.
            checkpoint: a file for the position, so that the same call continues after an interruption.
            replace: as in `import_`.
            progress: called from time to time.

        Raises:
            InvalidError: the target is this endpoint itself, or a name is invalid.
            UnavailableError, LimitedError, AccessDeniedError: an endpoint is unavailable, or forbids it.
        """
        return await archives.copy(
            self._endpoint, target._endpoint, namespaces, checkpoint=checkpoint, replace=replace, progress=progress
        )

    async def backfill(
        self,
        file: Path | str,
        mapping: MappingLike,
        *,
        namespace: str,
        rejects: Path | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> Backfilled:
        """Import foreign records, one JSON object a line; existing keys stay unchanged.

        Args:
            file: JSON lines; compressed if the name ends in `.zst`.
            mapping: mapping from records to keys and values.
            namespace: namespace of keys without a colon.
            rejects: a file for rejected lines, each with its number and the reason.
            dry_run: report what would happen, and write nothing.
            progress: called from time to time.

        Raises:
            InvalidError: the mapping is invalid, or a compressed file is damaged.
            NotFoundError, UnavailableError: a file cannot be read or written, or an endpoint is unavailable.
            UnsupportedError: the compression library is not installed.
        """
        chosen = read_mapping(Path(mapping)) if isinstance(mapping, Path | str) else validate_mapping(mapping)
        return await backfill(
            self._endpoint,
            Path(file),
            chosen,
            namespace=namespace,
            rejects=rejects,
            dry_run=dry_run,
            progress=progress,
        )

    def __repr__(self) -> str:
        return f"<Archives of {self._endpoint.url}>"
