"""Archives as files: a header, a line for each document, a footer that reveals a truncated or changed file.

A file in progress is called `<name>.part`; `<name>.checkpoint` contains how much of it is complete, and the position of
its source at that point. An interrupted run continues from there. docs/archives.md describes the lines.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple, TypeVar

from pydantic import Field, ValidationError

from sharedmem.archive.frames import FRAME_BYTES, LineBlock, LinePosition, UnpackLimits, encode_frame, iterate_blocks
from sharedmem.errors import ConflictError, InvalidError, SharedMemoryError, UnavailableError, UnsupportedError
from sharedmem.models import DurableRecord
from sharedmem.models.record import Record
from sharedmem.runtime import in_thread

FORMAT = 1

_EMPTY_DIGEST = hashlib.sha256().hexdigest()
_HEAD, _END = b'{"sharedmem":"archive",', b'{"sharedmem":"end",'
# No document is shorter than this. A line costs time, and a few compressed bytes may expand to millions of blank ones.
_SHORTEST_DOCUMENT_BYTES = len(b'{"key":"","type":"","kind":"","version":0,"stamp":0}')
_R = TypeVar("_R", bound=Record)


class ArchiveHeader(Record):
    """The first line of an archive."""

    sharedmem: Literal["archive"] = "archive"
    format: int = FORMAT
    version: str
    """Version of the sharedmem that wrote it."""
    namespace: str
    exported: str
    """Time of the export, in ISO 8601."""
    source: str
    """URL of the source, without secrets."""
    clock: int = 0
    """The namespace's last version before it was read; 0 without a server."""


class ArchiveFooter(Record):
    """The last line of an archive."""

    sharedmem: Literal["end"] = "end"
    documents: int = 0
    """Number of lines between header and footer."""
    keys: int = 0
    """Number of heads among them."""
    highest: int = 0
    """The highest version or stamp among them."""
    digest: str = _EMPTY_DIGEST
    """SHA-256, line by line: of the previous digest (in hexadecimal) and the line."""


class SourcePosition(Record):
    """The position in a source."""

    phase: Literal["redis", "tier"] = "redis"
    cursor: str = "0"
    """Cursor of Redis' SCAN."""
    server: str = ""
    """Run id of the server that gave the cursor: it is valid only there."""
    key: str = ""
    element: str = ""
    """Document of the durable tier after which to continue."""


class ExportCheckpoint(Record):
    """The complete part of a file in progress."""

    header: ArchiveHeader
    footer: ArchiveFooter
    position: SourcePosition
    size: int = Field(ge=0)
    """Complete bytes of the file."""


class VerifiedArchive(NamedTuple):
    """An archive that is complete and undamaged."""

    header: ArchiveHeader
    footer: ArchiveFooter
    size: int


class ArchiveWriter:
    """Writes an archive, frame by frame.

    Args:
        path: the archive; compressed if the name ends in `.zst`.
        header: its first line; a file that was begun before keeps its own.
        replace: whether to replace an existing archive.
    """

    def __init__(self, path: Path, header: ArchiveHeader, *, replace: bool = False) -> None:
        self.path = path
        self.header = header
        self._replace = replace
        self._part = path.with_name(f"{path.name}.part")
        self._beside = path.with_name(f"{path.name}.checkpoint")
        self._file: BinaryIO | None = None
        self._buffer: list[bytes] = []
        self._waiting = self._unnoted = 0
        self._footer = ArchiveFooter()
        self._position = SourcePosition()

    @property
    def footer(self) -> ArchiveFooter:
        """The footer for the documents so far."""
        return self._footer

    async def open(self) -> SourcePosition:
        """Begin, or continue an interrupted run; return the position of the source.

        Raises:
            ConflictError: the archive exists already, one of another namespace is in progress, or
                another process is writing it.
            UnavailableError: the file cannot be written.
        """
        with _translate_errors(self.path):
            await asyncio.to_thread(self._open)
        return self._position

    async def add(self, records: Sequence[DurableRecord], position: SourcePosition | None) -> None:
        """Write documents.

        Args:
            records: the documents.
            position: where the source must continue after them; None if it cannot continue there.

        Raises:
            UnavailableError: the file cannot be written.
        """
        for line in map(format_line, records):
            self._buffer.append(line)
            self._waiting += len(line)
        self._footer = extend_footer(self._footer, self._buffer[len(self._buffer) - len(records) :], records)
        if position is not None and self._waiting + self._unnoted >= FRAME_BYTES:
            await self._flush(position)
        elif self._waiting >= FRAME_BYTES:
            await self._flush()

    async def finish(self) -> ArchiveFooter:
        """Write the remaining documents and the footer, and give the file its name.

        Raises:
            UnavailableError: the file cannot be written.
        """
        self._buffer.append(format_line(self._footer))
        await self._flush()
        with _translate_errors(self.path):
            await asyncio.to_thread(self._name)
        return self._footer

    async def leave(self) -> None:
        """Close the file, to continue later; incomplete parts are then written again. May be called again."""
        file, self._file = self._file, None
        if file is not None:
            await asyncio.to_thread(file.close)

    async def _flush(self, position: SourcePosition | None = None) -> None:
        lines, self._buffer = self._buffer, []
        self._unnoted, self._waiting = self._unnoted + self._waiting if position is None else 0, 0
        with _translate_errors(self.path):
            await in_thread(self._write, lines, position)

    def _open(self) -> None:
        if self.path.exists() and not self._replace and not self._part.exists():
            raise ConflictError(f"file {str(self.path)!r} exists already; name another one, or allow replacing it")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = file = self._part.open("ab")
        _lock(file, self._part)
        checkpoint = _read_model(self._beside, ExportCheckpoint)
        if checkpoint is None or checkpoint.size > os.fstat(file.fileno()).st_size:
            file.truncate(0)
            self._buffer = [format_line(self.header)]
            return
        if checkpoint.header.namespace != self.header.namespace:
            known = f"{str(self._part)!r} is the beginning of an archive of {checkpoint.header.namespace!r}"
            raise ConflictError(f"{known}; name another file, or delete it")
        file.truncate(checkpoint.size)
        self.header, self._footer, self._position = checkpoint.header, checkpoint.footer, checkpoint.position

    def _write(self, lines: list[bytes], position: SourcePosition | None) -> None:
        assert self._file is not None
        self._file.write(encode_frame(self.path, b"".join(lines)))
        self._file.flush()
        os.fsync(self._file.fileno())
        if position is not None:
            size = os.fstat(self._file.fileno()).st_size
            note = ExportCheckpoint(header=self.header, footer=self._footer, position=position, size=size)
            write_checkpoint(self._beside, note)

    def _name(self) -> None:
        self._part.replace(self.path)
        self._beside.unlink(missing_ok=True)


async def verify_archive(
    path: Path, progress: Callable[[int, int], None] | None = None, *, limits: UnpackLimits | None = None
) -> VerifiedArchive:
    """Read a whole archive, so that no part of a damaged one is used.

    Args:
        path: the archive.
        progress: called with (bytes read, bytes of the file).
        limits: limits of the unpacked size; None: no limits, for a trusted archive.

    Raises:
        InvalidError: the file is not an archive, is truncated or damaged, or unpacks to more than the limits allow.
        UnsupportedError: a newer sharedmem wrote it, or the compression library is missing.
        NotFoundError, UnavailableError: the file cannot be read.
    """
    size = await asyncio.to_thread(lambda: path.stat().st_size if path.exists() else 0)
    header: ArchiveHeader | None = None
    footer: ArchiveFooter | None = None
    digest, count, behind = _EMPTY_DIGEST, 0, list[bytes]()
    async for block in read_blocks(path, limits=limits):
        lines = block.lines
        if header is None and lines:
            header, lines = parse_header(path, lines[0]), lines[1:]
        behind = lines if footer is not None else []
        if (end := next((n for n, line in enumerate(lines) if line.startswith(_END)), None)) is not None:
            footer, behind, lines = _parse_line(path, lines[end], ArchiveFooter), lines[end + 1 :], lines[:end]
        if behind:
            raise InvalidError("file", str(path), "there is data after its last line; export or copy it again")
        _check_lengths(path, lines, count)
        digest, count = await in_thread(_extend_digest, digest, lines), count + len(lines)
        if progress is not None:
            progress(block.read, size)
    if header is None or footer is None:
        why = "it ends without the last line of an archive: it is truncated, or is not an archive"
        raise InvalidError("file", str(path), why)
    if (footer.documents, footer.digest) != (count, digest):
        raise InvalidError("file", str(path), "its lines differ from what was written; export or copy it again")
    return VerifiedArchive(header, footer, size)


def _check_lengths(path: Path, lines: Sequence[bytes], before: int) -> None:
    for number, line in enumerate(lines, start=before + 2):
        if len(line) < _SHORTEST_DOCUMENT_BYTES:
            what = "empty" if not line.strip() else "too short for a document"
            raise InvalidError("file", str(path), f"its line {number} is {what}; export or copy it again")


def parse_header(path: Path, line: bytes) -> ArchiveHeader:
    """Return the first line of an archive.

    Raises:
        InvalidError: the file is not an archive.
        UnsupportedError: a newer sharedmem wrote it.
    """
    if not line.startswith(_HEAD):
        why = "it is not an archive of sharedmem; import foreign records with `backfill`"
        raise InvalidError("file", str(path), why)
    with suppress(ValidationError):
        header = _FormatVersion.model_validate_json(line)
        if header.format > FORMAT:
            raise UnsupportedError(
                f"archive format {header.format}", f"this version reads format {FORMAT}; upgrade sharedmem-hub"
            )
    return _parse_line(path, line, ArchiveHeader)


async def read_records(path: Path, place: LinePosition) -> AsyncIterator[tuple[LinePosition, int, list[DurableRecord]]]:
    """Yield (position of the first document, bytes of the file read, documents) of an archive from a position on.

    Raises:
        InvalidError, NotFoundError, UnavailableError, UnsupportedError: as `verify_archive`.
    """
    async for block in read_blocks(path, place):
        first = 1 if block.place == LinePosition() and block.lines else 0
        lines = [line for line in block.lines[first:] if not line.startswith(_END)]
        records = [_parse_line(path, line, DurableRecord) for line in lines]
        yield block.place._replace(lines=block.place.lines + first), block.read, records


async def read_blocks(
    path: Path, place: LinePosition | None = None, *, ends: bool = True, limits: UnpackLimits | None = None
) -> AsyncIterator[LineBlock]:
    """As `frames.iterate_blocks`, in a thread."""
    found = iterate_blocks(path, place or LinePosition(), ends=ends, limits=limits)
    while (block := await in_thread(next, found, None)) is not None:
        yield block


def read_checkpoint(path: Path, model: type[_R]) -> _R | None:
    """Return the checkpoint of an earlier run; None without a usable one."""
    return _read_model(path, model)


def write_checkpoint(path: Path, note: Record) -> None:
    """Write a checkpoint atomically."""
    unfinished = path.with_name(f"{path.name}.new")
    unfinished.write_text(note.model_dump_json(), encoding="utf-8")
    unfinished.replace(path)


class _FormatVersion(Record):
    model_config = Record.model_config | {"extra": "ignore"}

    format: int


def format_line(record: Record) -> bytes:
    """Return a record as JSON, its fields in the order of the model; without default values for a document."""
    return f"{record.model_dump_json(exclude_defaults=isinstance(record, DurableRecord))}\n".encode()


def extend_footer(footer: ArchiveFooter, lines: Sequence[bytes], records: Sequence[DurableRecord]) -> ArchiveFooter:
    """Return the footer after further lines with these documents."""
    return ArchiveFooter(
        documents=footer.documents + len(records),
        keys=footer.keys + sum(record.is_head for record in records),
        highest=max([footer.highest, *(max(record.version, record.stamp) for record in records)]),
        digest=_extend_digest(footer.digest, [line[:-1] for line in lines]),
    )


def _extend_digest(digest: str, lines: Sequence[bytes]) -> str:
    for line in lines:
        digest = hashlib.sha256(digest.encode() + line).hexdigest()
    return digest


def _parse_line(path: Path, line: bytes, model: type[_R]) -> _R:
    try:
        return model.model_validate_json(line)
    except ValidationError as error:
        shown = line[:60].decode(errors="replace")
        raise InvalidError("file", str(path), f"it has a line that does not belong to an archive: {shown}") from error


def _read_model(path: Path, model: type[_R]) -> _R | None:
    with suppress(OSError, ValidationError):
        return model.model_validate_json(path.read_bytes())
    return None


def _lock(file: BinaryIO, path: Path) -> None:
    try:
        import fcntl  # noqa: PLC0415  # not on Windows, where there is no lock
    except ImportError:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise ConflictError(f"file {str(path)!r} is being written by another process; wait for it") from error


@contextmanager
def _translate_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if isinstance(error, SharedMemoryError):
            raise
        why = f"it cannot be written: {error.strerror or error}; fix that and run the same again, finished parts stay"
        raise UnavailableError(f"file {path}", why) from error
