"""Lines in a file that grows by whole frames: zstd frames if the file's name ends in `.zst`, else plain text.

Each frame can be read alone, so a file can be truncated after any frame and continued, or read from any frame. Its
checksum finds damaged lines. All functions here block; callers run them in threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import BinaryIO, NamedTuple

from sharedmem.errors import InvalidError, NotFoundError, UnavailableError, UnsupportedError

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
