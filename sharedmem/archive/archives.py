"""The archives of a hub: export, import, copy and backfill whole namespaces."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from collections.abc import Mapping as Fields
from contextlib import aclosing
from pathlib import Path

from sharedmem.archive import transfer as archives
from sharedmem.archive.backfill import Backfilled, BackfillMapping, backfill, read_mapping, validate_mapping
from sharedmem.archive.endpoint import ArchiveEndpoint
from sharedmem.archive.frames import UnpackLimits
from sharedmem.archive.transfer import Copied, Exported, Imported, Progress, stream_archive
from sharedmem.runtime.process_bound import ProcessBound

MappingLike = BackfillMapping | Fields[str, object] | Path | str
"""A mapping, its fields, or the YAML or JSON file that has them."""


class Archives(ProcessBound):
    """Namespaces as files and back.

    Args:
        parts: where they are.
        version: of this sharedmem, which archives name.
    """

    def __init__(self, parts: ArchiveEndpoint, *, version: str) -> None:
        self._parts = parts
        self._version = version

    @property
    def url(self) -> str:
        """What the place is called in archives."""
        return self._parts.url

    async def namespaces(self) -> list[str]:
        """The namespaces that can be exported or copied, in order. Pages of the server's scan.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: a side stayed away, or does not allow it.
        """
        return await archives.list_namespaces(self._parts)

    async def export(
        self, namespace: str, file: Path | str, *, replace: bool = False, progress: Progress | None = None
    ) -> Exported:
        """Write a namespace into an archive; the same call goes on after it was stopped.

        Args:
            namespace: which.
            file: where to; `.zst` at the end of its name compresses it.
            replace: whether a file of that name gives way, once the new one is whole.
            progress: told from time to time.

        Raises:
            NotFoundError: nothing was ever written to the namespace.
            ConflictError: the file exists, or another process is writing it.
            UnavailableError: a side stayed away, or the file cannot be written.
            UnsupportedError: the library that compresses is not installed.
        """
        return await archives.export(
            self._parts, namespace, Path(file), version=self._version, replace=replace, progress=progress
        )

    async def stream(self, namespace: str, *, compressed: bool = True) -> AsyncIterator[bytes]:
        """The bytes of an archive of a namespace, as they are made; a few MiB of memory. What is left out is not told.

        Args:
            namespace: which.
            compressed: zstd, as a file that ends in `.zst`; else text.

        Raises:
            NotFoundError: nothing was ever written to the namespace.
            UnavailableError: a side stayed away; without its last line an archive is known to be cut.
            UnsupportedError: the library that compresses is not installed.
        """
        async with aclosing(
            stream_archive(self._parts, namespace, version=self._version, compressed=compressed)
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
        """Put an archive back into its namespace; nothing older replaces anything newer.

        Args:
            file: the archive. A damaged or cut one changes nothing.
            namespace: refuse the archive of another one; None takes any.
            replace: let structures, counters and other clients' strings in Redis, which have no version, give way.
            progress: told from time to time.
            limits: how much text a compressed archive may stand for; None for one that you trust.

        Raises:
            InvalidError: the file is no archive, cut, damaged, of another namespace, or larger unpacked than allowed.
            UnsupportedError: a newer sharedmem has written it, or the library to unpack it is not installed.
            NotFoundError, UnavailableError: it cannot be read, or a side cannot take it now.
        """
        return await archives.import_(
            self._parts, Path(file), namespace=namespace, replace=replace, progress=progress, limits=limits
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
        """Stream namespaces into another place, as an export and an import would.

        Args:
            target: where to.
            namespaces: which; None takes all.
            checkpoint: a file that keeps how far it has come, so that the same call goes on after it was stopped.
            replace: as in `import_`.
            progress: told from time to time.

        Raises:
            InvalidError: the target is this place itself, or a name is none.
            UnavailableError, LimitedError, AccessDeniedError: a side stayed away, or does not allow it.
        """
        return await archives.copy(
            self._parts, target._parts, namespaces, checkpoint=checkpoint, replace=replace, progress=progress
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
        """Take foreign records into shared memory, a JSON object a line; what is there already is left as it is.

        Args:
            file: JSON lines; `.zst` at the end of the name means compressed.
            mapping: what becomes of a record.
            namespace: whose plain keys are, those without a colon.
            rejects: a file for the lines that cannot be used, each with its number and the reason.
            dry_run: only say what would happen.
            progress: told from time to time.

        Raises:
            InvalidError: the mapping is none, or a compressed file is damaged.
            NotFoundError, UnavailableError: a file cannot be read or written, or a side stayed away.
            UnsupportedError: the library to unpack it is not installed.
        """
        chosen = read_mapping(Path(mapping)) if isinstance(mapping, Path | str) else validate_mapping(mapping)
        return await backfill(
            self._parts,
            Path(file),
            chosen,
            namespace=namespace,
            rejects=rejects,
            dry_run=dry_run,
            progress=progress,
        )

    def __repr__(self) -> str:
        return f"<Archives of {self._parts.url}>"
