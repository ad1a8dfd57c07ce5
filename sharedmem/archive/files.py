"""Archives as files: a header, a line for each document, a footer by which a cut or changed file is known.

A file that is being written is called `<name>.part`; beside it `<name>.checkpoint` holds how much of it is complete and
the position of its source then, so that a stopped run continues from there. docs/archives.md describes the lines.
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
# No document is shorter. Each line costs time, and a few compressed bytes may expand to millions of blank ones.
_SHORTEST_DOCUMENT_BYTES = len(b'{"key":"","type":"","kind":"","version":0,"stamp":0}')
_R = TypeVar("_R", bound=Record)


class ArchiveHeader(Record):
    """The first line of an archive."""

    sharedmem: Literal["archive"] = "archive"
    format: int = FORMAT
    version: str
    """Of the sharedmem that wrote it."""
    namespace: str
    exported: str
    """When, in ISO 8601."""
    source: str
    """Where from, without secrets."""
    clock: int = 0
    """The namespace's last version before it was read; 0 where no server was asked."""


class ArchiveFooter(Record):
    """The last line of an archive."""

    sharedmem: Literal["end"] = "end"
    documents: int = 0
    """Lines between header and footer."""
    keys: int = 0
    """How many of them are heads."""
    highest: int = 0
    """The highest version or stamp among them."""
    digest: str = _EMPTY_DIGEST
    """SHA-256, line by line: of the digest before (in hexadecimal) and the line."""


class SourcePosition(Record):
    """How far a source has been read."""

    phase: Literal["redis", "tier"] = "redis"
    cursor: str = "0"
    """Of Redis' SCAN."""
    server: str = ""
    """Which run of the server gave the cursor: to another one it means nothing."""
    key: str = ""
    element: str = ""
    """Document of the durable tier behind which to go on."""


class ExportCheckpoint(Record):
    """What of a file under way is whole."""

    header: ArchiveHeader
    footer: ArchiveFooter
    position: SourcePosition
    size: int = Field(ge=0)
    """Bytes of the file that are whole."""


class VerifiedArchive(NamedTuple):
    """An archive that is whole and sound."""

    header: ArchiveHeader
    footer: ArchiveFooter
    size: int


class ArchiveWriter:
    """Writes an archive, frame by frame.

    Args:
        path: the archive; `.zst` at its end compresses it.
        header: its first line; of a file that was begun before, the one it has already stays.
        replace: whether an archive of that name gives way.
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
        """What the last line would say now."""
        return self._footer

    async def open(self) -> SourcePosition:
        """Begin, or go on where another run was stopped; return the position of the source.

        Raises:
            ConflictError: there is an archive of that name already, one of another namespace is under way, or
                another process is writing it.
            UnavailableError: the file cannot be written.
        """
        with _translate_errors(self.path):
            await asyncio.to_thread(self._open)
        return self._position

    async def add(self, records: Sequence[DurableRecord], position: SourcePosition | None) -> None:
        """Write documents.

        Args:
            records: what to write.
            position: where the source has to go on after them; None where it cannot begin.

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
        """Write what is left and the last line, and give the file its name.

        Raises:
            UnavailableError: the file cannot be written.
        """
        self._buffer.append(format_line(self._footer))
        await self._flush()
        with _translate_errors(self.path):
            await asyncio.to_thread(self._name)
        return self._footer

    async def leave(self) -> None:
        """Let go of the file, to go on later; what is not whole is done anew then. May be called again."""
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
            raise ConflictError(f"file {str(self.path)!r} exists already; name another one, or say that it gives way")
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
    """Read an archive through, so that nothing of a damaged one is used.

    Args:
        path: the archive.
        progress: called with (bytes read, bytes of the file).
        limits: how much text it may contain; None for an archive that the caller trusts.

    Raises:
        InvalidError: it is invalid, cut, or damaged, or unpacks to more than is allowed.
        UnsupportedError: a newer sharedmem has written it, or the library to unpack it is missing.
        NotFoundError, UnavailableError: it cannot be read.
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
            raise InvalidError("file", str(path), "something follows its last line; make or copy it again")
        _check_lengths(path, lines, count)
        digest, count = await in_thread(_extend_digest, digest, lines), count + len(lines)
        if progress is not None:
            progress(block.read, size)
    if header is None or footer is None:
        raise InvalidError("file", str(path), "it ends without the last line of an archive: it is cut, or is none")
    if (footer.documents, footer.digest) != (count, digest):
        raise InvalidError("file", str(path), "its lines are not those that were written; make or copy it again")
    return VerifiedArchive(header, footer, size)


def _check_lengths(path: Path, lines: Sequence[bytes], before: int) -> None:
    for number, line in enumerate(lines, start=before + 2):
        if len(line) < _SHORTEST_DOCUMENT_BYTES:
            what = "empty" if not line.strip() else "too short for a document"
            raise InvalidError("file", str(path), f"its line {number} is {what}; make or copy it again")


def parse_header(path: Path, line: bytes) -> ArchiveHeader:
    """Return the first line of an archive.

    Raises:
        InvalidError: it is invalid.
        UnsupportedError: a newer sharedmem has written it.
    """
    if not line.startswith(_HEAD):
        raise InvalidError("file", str(path), "it is no archive of sharedmem; foreign records come in by `backfill`")
    with suppress(ValidationError):
        header = _FormatVersion.model_validate_json(line)
        if header.format > FORMAT:
            raise UnsupportedError(
                f"archive format {header.format}", f"this version reads format {FORMAT}; upgrade sharedmem-hub"
            )
    return _parse_line(path, line, ArchiveHeader)


async def read_records(path: Path, place: LinePosition) -> AsyncIterator[tuple[LinePosition, int, list[DurableRecord]]]:
    """Yield (place of the first, bytes of the file read, documents) of an archive from a place on.

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
    """As `frames.blocks`, in a thread."""
    found = iterate_blocks(path, place or LinePosition(), ends=ends, limits=limits)
    while (block := await in_thread(next, found, None)) is not None:
        yield block


def read_checkpoint(path: Path, model: type[_R]) -> _R | None:
    """What a run before has noted beside a file; None when there is nothing of use."""
    return _read_model(path, model)


def write_checkpoint(path: Path, note: Record) -> None:
    """Note something beside a file: whole or not at all."""
    unfinished = path.with_name(f"{path.name}.new")
    unfinished.write_text(note.model_dump_json(), encoding="utf-8")
    unfinished.replace(path)


class _FormatVersion(Record):
    model_config = Record.model_config | {"extra": "ignore"}

    format: int


def format_line(record: Record) -> bytes:
    """JSON, its fields in the order of the model; of a document, those with default values are left out."""
    return f"{record.model_dump_json(exclude_defaults=isinstance(record, DurableRecord))}\n".encode()


def extend_footer(footer: ArchiveFooter, lines: Sequence[bytes], records: Sequence[DurableRecord]) -> ArchiveFooter:
    """Return the last line, after these lines with these documents."""
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
        raise InvalidError("file", str(path), f"it has a line that is none of an archive's: {shown}") from error


def _read_model(path: Path, model: type[_R]) -> _R | None:
    with suppress(OSError, ValidationError):
        return model.model_validate_json(path.read_bytes())
    return None


def _lock(file: BinaryIO, path: Path) -> None:
    try:
        import fcntl  # noqa: PLC0415  # not on Windows, where nobody is kept out
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
        why = f"it cannot be written: {error.strerror or error}; what is whole stays, mend it and run the same again"
        raise UnavailableError(f"file {path}", why) from error
