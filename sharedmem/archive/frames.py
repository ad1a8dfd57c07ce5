"""Lines in a file that grows by whole frames: zstd frames where the file's name ends in `.zst`, else plain text.

Each frame can be read alone, so that a file can be cut behind any of them and written on, or read from any of them. Its
checksum finds damaged lines. Everything here blocks; callers keep it in threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import BinaryIO, NamedTuple

from sharedmem.errors import InvalidError, NotFoundError, UnavailableError, UnsupportedError

FRAME_BYTES = 4 << 20
"""About how much text a frame of ours holds."""

_SUFFIX = ".zst"
_LEVEL = 3
_CHUNK_BYTES = 1 << 18
_BLOCK_BYTES = 1 << 18
_LONGEST_LINE_BYTES = 1 << 26
# Each frame costs time, however little it holds; ours hold some MiB, but for the first, the last and a few empty ones.
_FREE_FRAMES = 1000
_LEAST_FRAME_BYTES = 1024


class UnpackLimits(NamedTuple):
    """How much text a compressed file may contain."""

    max_bytes: int
    """Of text, all frames together."""
    max_ratio: int
    """Bytes of text for each byte of the file ..."""
    free_bytes: int
    """... once there is more text than this."""

    def check(self, path: Path, *, text: int, read: int) -> None:
        """Refuse a file of which so much has been unpacked.

        Args:
            path: the file.
            text: bytes of text that its first bytes contain.
            read: how many bytes those are.

        Raises:
            InvalidError: it unpacks to more than is allowed.
        """
        if text > self.max_bytes:
            raise InvalidError(
                "file", str(path), f"it unpacks to more than {self.max_bytes >> 20} MiB; {_IMPORT_ELSEWHERE}"
            )
        if text > self.free_bytes and text > self.max_ratio * read:
            why = f"it unpacks to more than {self.max_ratio} times its size; send it uncompressed"
            raise InvalidError("file", str(path), why)


_IMPORT_ELSEWHERE = "import it with `sharedmem import` on a machine that reaches the server"


class LinePosition(NamedTuple):
    """Where a reader can go on."""

    frame: int = 0
    """Byte of the file at which a frame begins."""
    lines: int = 0
    """How many of the lines from there on have been read."""


class LineBlock(NamedTuple):
    """Some lines that follow each other, without their line ends."""

    place: LinePosition
    """Of the first of them."""
    lines: list[bytes]
    read: int
    """How many bytes of the file are read by then."""


def encode_frame(path: Path, text: bytes) -> bytes:
    """Return a frame that holds the text.

    Raises:
        UnsupportedError: the library is missing.
    """
    if path.suffix != _SUFFIX:
        return text
    return compress(text)


def compress(text: bytes) -> bytes:
    """Return a zstd frame with a checksum.

    Raises:
        UnsupportedError: the library is missing.
    """
    zstd = _import_zstd()
    options = {zstd.CompressionParameter.compression_level: _LEVEL, zstd.CompressionParameter.checksum_flag: 1}
    frame: bytes = zstd.compress(text, options=options)
    return frame


def decompress(frame: bytes, name: str, *, max_bytes: int) -> bytes:
    """Return the text of a zstd frame.

    Args:
        frame: whole.
        name: of what holds it, for messages.
        max_bytes: of text; a frame that holds more is not unpacked further.

    Raises:
        InvalidError: it is damaged, or holds more.
        UnsupportedError: the library is missing.
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
    """Yield the lines of a file from a place on; little of it is in memory at a time.

    A block may hold no line: so a caller that stops between blocks stops soon, however long the lines are.

    Args:
        path: the file.
        place: where to begin.
        ends: whether the last line must have an end.
        limits: how much text the file may contain; None for a file that the caller trusts.

    Raises:
        InvalidError: the file is damaged or cut, or unpacks to more than is allowed.
        NotFoundError, UnavailableError: it cannot be read.
        UnsupportedError: the library is missing.
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
                    why = f"its {frames} frames hold hardly any text; it is none of ours, make it again"
                    raise InvalidError("file", str(path), why)
    except zstd.ZstdError as error:
        raise InvalidError("file", str(path), f"it is damaged in the frame at byte {frame}: {error}") from error
    if frame != file.tell():
        raise InvalidError("file", str(path), f"it is cut in the frame at byte {frame}; make or copy it again")


def _split_lines(texts: Iterator[_FrameText], path: Path, *, ends: bool) -> Iterator[LineBlock]:
    """Whole lines; from a frame that begins within a line they count to the frame before."""
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
            # A few packed bytes may expand to more than there is memory.
            raise InvalidError("file", str(path), f"it has a line of more than {_LONGEST_LINE_BYTES >> 20} MiB")
        else:
            yield LineBlock(place, [], read)
    if size and not ends:
        yield LineBlock(place, [b"".join(waiting)], read)
    elif size:
        raise InvalidError("file", str(path), "its last line has no end: it was cut; make or copy it again")


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
