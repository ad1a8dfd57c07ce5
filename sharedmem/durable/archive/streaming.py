"""Archives as streams: the lines of a file of them, for whoever reads as they are made; nothing lies on a disk."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from datetime import UTC
from pathlib import Path

from sharedmem.durable.archive.files import Footer, Header, Position, counted, line_of
from sharedmem.durable.archive.frames import FRAME_BYTES, packed
from sharedmem.durable.archive.moving import clock_of
from sharedmem.durable.archive.parts import ArchiveParts
from sharedmem.durable.archive.source import Source
from sharedmem.durable.archive.steps import Reasons
from sharedmem.errors import NotFoundError
from sharedmem.models import DurableRecord
from sharedmem.telemetry import in_thread
from sharedmem.wire.keys import check_name


async def streamed(
    parts: ArchiveParts, namespace: str, *, version: str, compressed: bool = True
) -> AsyncGenerator[bytes, None]:
    """An archive of a namespace as it is made, some MiB of text at a time; without its last line it is cut.

    Args:
        parts: where the namespace is.
        namespace: which.
        version: of this sharedmem, for the first line.
        compressed: zstd frames; else text.

    Raises:
        NotFoundError: nothing was ever written to the namespace; before anything is told.
        UnavailableError: a side stayed away.
        UnsupportedError: the library that compresses is not installed; before anything is told.
    """
    check_name("namespace", namespace)
    if not await clock_of(parts, namespace):
        raise NotFoundError("namespace", namespace, "nothing was ever written to it there; check its name")
    await parts.joined(namespace)
    await parts.drained(namespace)
    moment = parts.clock.now().astimezone(UTC).isoformat()
    clock = await clock_of(parts, namespace)
    frames = _Frames(compressed=compressed)
    yield await frames.frame(
        [line_of(Header(version=version, namespace=namespace, exported=moment, source=parts.url, clock=clock))]
    )
    async for _, records in Source(parts, namespace, Reasons()).batches(Position()):
        if (frame := await frames.add(records)) is not None:
            yield frame
    yield await frames.last()


class _Frames:
    """Lines that are put together to frames of a good size."""

    def __init__(self, *, compressed: bool) -> None:
        # The name says how it is packed.
        self._name = Path("stream.zst" if compressed else "stream")
        self._waiting: list[bytes] = []
        self._bytes = 0
        self._footer = Footer()

    async def add(self, records: list[DurableRecord]) -> bytes | None:
        """Take in documents; returns a frame, once there is enough for one."""
        lines = [line_of(record) for record in records]
        self._footer = counted(self._footer, lines, records)
        self._waiting += lines
        self._bytes += sum(map(len, lines))
        if self._bytes < FRAME_BYTES:
            return None
        frame, self._waiting, self._bytes = await self.frame(self._waiting), [], 0
        return frame

    async def last(self) -> bytes:
        """What is left, and the last line."""
        return await self.frame([*self._waiting, line_of(self._footer)])

    async def frame(self, lines: Iterable[bytes]) -> bytes:
        """These lines as a frame."""
        return await in_thread(packed, self._name, b"".join(lines))
