"""Archives as files: a header, a line for each document, a footer that reveals a truncated or changed file.

A file in progress is called `<name>.part`; `<name>.checkpoint` contains how much of it is complete, and the position of
its source at that point. An interrupted run continues from there. docs/archives.md describes the lines.

The lines are in a file that grows by whole frames: zstd frames if the file's name ends in `.zst`, else plain text. Each
frame can be read alone, so a file can be truncated after any frame and continued, or read from any frame. Its checksum
finds damaged lines. Functions on frames block; callers run them in threads.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import BinaryIO, Literal, NamedTuple, TypeVar

from pydantic import Field, ValidationError

from sharedmem.errors import (
    ConflictError,
    InvalidError,
    NotFoundError,
    SharedMemoryError,
    UnavailableError,
    UnsupportedError,
)
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


# -- frames ---------------------------------------------------------------------------------------


FRAME_BYTES = 4 << 20
"""Approximate bytes of text in a frame."""

_SUFFIX = ".zst"
_LEVEL = 3
_CHUNK_BYTES = 1 << 18
_BLOCK_BYTES = 1 << 18
_LONGEST_LINE_BYTES = 1 << 26
# Each frame costs time, even an empty one; frames of sharedmem have some MiB, except the first, the last and a few.
_FREE_FRAMES = 1000
_LEAST_FRAME_BYTES = 1024


class UnpackLimits(NamedTuple):
    """Limits of the text in a compressed file."""

    max_bytes: int
    """Most bytes of text, all frames together."""
    max_ratio: int
    """Bytes of text for each byte of the file ..."""
    free_bytes: int
    """... once there is more text than this."""

    def check(self, path: Path, *, text: int, read: int) -> None:
        """Check how much of a file has been unpacked.

        Args:
            path: the file.
            text: bytes of text that its first bytes contain.
            read: number of these first bytes.

        Raises:
            InvalidError: the file unpacks to more than the limits allow.
        """
        if text > self.max_bytes:
            raise InvalidError(
                "file", str(path), f"it unpacks to more than {self.max_bytes >> 20} MiB; {_IMPORT_ELSEWHERE}"
            )
        if text > self.free_bytes and text > self.max_ratio * read:
            why = f"it unpacks to more than {self.max_ratio} times its size; send it uncompressed"
            raise InvalidError("file", str(path), why)


_IMPORT_ELSEWHERE = "import it with `sharedmem import` on a machine that can connect to the server"


class LinePosition(NamedTuple):
    """A position from which a reader can continue."""

    frame: int = 0
    """Offset in the file at which a frame begins."""
    lines: int = 0
    """Number of lines from there on that have been read."""


class LineBlock(NamedTuple):
    """Consecutive lines, without their line ends."""

    place: LinePosition
    """Position of the first of them."""
    lines: list[bytes]
    read: int
    """Bytes of the file read so far."""


def encode_frame(path: Path, text: bytes) -> bytes:
    """Return a frame with the text.

    Raises:
        UnsupportedError: the compression library is missing.
    """
    if path.suffix != _SUFFIX:
        return text
    return compress(text)


def compress(text: bytes) -> bytes:
    """Return a zstd frame with a checksum.

    Raises:
        UnsupportedError: the compression library is missing.
    """
    zstd = _import_zstd()
    options = {zstd.CompressionParameter.compression_level: _LEVEL, zstd.CompressionParameter.checksum_flag: 1}
    frame: bytes = zstd.compress(text, options=options)
    return frame


def decompress(frame: bytes, name: str, *, max_bytes: int) -> bytes:
    """Return the text of a zstd frame.

    Args:
        frame: a whole frame.
        name: name of its container, for messages.
        max_bytes: most bytes of text; a frame with more is not unpacked further.

    Raises:
        InvalidError: the frame is damaged, or has more text.
        UnsupportedError: the compression library is missing.
    """
    zstd = _import_zstd()
    unpacker = zstd.ZstdDecompressor()
    try:
        text: bytes = unpacker.decompress(frame, max_bytes + 1)
    except zstd.ZstdError as error:
        raise InvalidError("archive", name, f"it is damaged: {error}") from error
    if len(text) > max_bytes:
        raise InvalidError("archive", name, f"it unpacks to more than {max_bytes >> 20} MiB; export it again")
    if not unpacker.eof or unpacker.unused_data:
        raise InvalidError("archive", name, "it is damaged: it is not one whole frame")
    return text


def iterate_blocks(
    path: Path, place: LinePosition, *, ends: bool = True, limits: UnpackLimits | None = None
) -> Iterator[LineBlock]:
    """Yield the lines of a file from a position on; only a small part of it is in memory at a time.

    A block may have no line: so a caller that stops between blocks stops soon, however long the lines are.

    Args:
        path: the file.
        place: the start position.
        ends: whether the last line must have a line end.
        limits: limits of the unpacked size; None: no limits, for a trusted file.

    Raises:
        InvalidError: the file is damaged or truncated, or unpacks to more than the limits allow.
        NotFoundError, UnavailableError: the file cannot be read.
        UnsupportedError: the compression library is missing.
    """
    with _open_file(path) as file:
        file.seek(place.frame)
        texts = _read_compressed(file, path, limits) if path.suffix == _SUFFIX else _read_plain(file)
        for block in _split_lines(texts, path, ends=ends):
            known = place.lines - block.place.lines if block.place.frame == place.frame else 0
            if known <= 0:
                yield block
            elif known < len(block.lines):
                yield LineBlock(place, block.lines[known:], block.read)


class _FrameText(NamedTuple):
    """A piece of text, and the frame it comes from."""

    frame: int
    text: bytes
    read: int


def _open_file(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except FileNotFoundError as error:
        raise NotFoundError("file", str(path)) from error
    except OSError as error:
        raise UnavailableError(f"file {path}", f"it cannot be read: {error.strerror or error}") from error


def _read_plain(file: BinaryIO) -> Iterator[_FrameText]:
    start = file.tell()
    while chunk := file.read(_BLOCK_BYTES):
        yield _FrameText(start, chunk, file.tell())


def _read_compressed(file: BinaryIO, path: Path, limits: UnpackLimits | None) -> Iterator[_FrameText]:
    zstd = _import_zstd()
    frame = start = file.tell()
    unpacker = zstd.ZstdDecompressor()
    size = frames = 0
    try:
        while chunk := unpacker.unused_data or file.read(_CHUNK_BYTES):
            if unpacker.eof:
                unpacker = zstd.ZstdDecompressor()
            while True:
                text = unpacker.decompress(chunk, _BLOCK_BYTES)
                size += len(text)
                if limits is not None:
                    limits.check(path, text=size, read=file.tell() - start)
                yield _FrameText(frame, text, file.tell())
                if unpacker.eof or unpacker.needs_input:
                    break
                chunk = b""
            if unpacker.eof:
                frame = file.tell() - len(unpacker.unused_data)
                frames += 1
                if frames > _FREE_FRAMES and size < frames * _LEAST_FRAME_BYTES:
                    why = f"its {frames} frames have hardly any text; sharedmem did not write it, export it again"
                    raise InvalidError("file", str(path), why)
    except zstd.ZstdError as error:
        raise InvalidError("file", str(path), f"it is damaged in the frame at byte {frame}: {error}") from error
    if frame != file.tell():
        raise InvalidError("file", str(path), f"it is truncated in the frame at byte {frame}; export or copy it again")


def _split_lines(texts: Iterator[_FrameText], path: Path, *, ends: bool) -> Iterator[LineBlock]:
    """Yield whole lines; if a frame begins within a line, that line counts to the previous frame."""
    waiting, size, place, before, read = list[bytes](), 0, LinePosition(), -1, 0
    for frame, text, read in texts:
        if frame != before and not size:
            place = LinePosition(frame)
        before = frame
        if not text:
            continue
        waiting.append(text)
        size += len(text)
        if b"\n" in text:
            *lines, rest = b"".join(waiting).split(b"\n")
            yield LineBlock(place, lines, read)
            waiting, size, place = [rest], len(rest), place._replace(lines=place.lines + len(lines))
        elif size > _LONGEST_LINE_BYTES:
            # A few packed bytes may expand to more than the memory.
            raise InvalidError("file", str(path), f"it has a line of more than {_LONGEST_LINE_BYTES >> 20} MiB")
        else:
            yield LineBlock(place, [], read)
    if size and not ends:
        yield LineBlock(place, [b"".join(waiting)], read)
    elif size:
        raise InvalidError("file", str(path), "its last line has no end: it was truncated; export or copy it again")


def _import_zstd() -> ModuleType:
    try:
        from compression import zstd  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415  # since Python 3.14
    except ImportError:
        try:
            from backports import zstd  # noqa: PLC0415  # optional: only compressed archives need it
        except ImportError as error:
            remedy = "pip install 'sharedmem-hub[archive]', or name a file without .zst"
            raise UnsupportedError("zstd compression", remedy) from error
    module: ModuleType = zstd
    return module
