"""Export a namespace to a file or a stream, import it, or copy it to another place.

All of it streams, a few MiB at a time. An interrupted run continues after its last complete part. Repeated steps are
idempotent, and at the end the documents are counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from datetime import UTC
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from pydantic import Field

from sharedmem.archive.endpoint import ArchiveEndpoint
from sharedmem.archive.files import (
    FRAME_BYTES,
    ArchiveFooter,
    ArchiveHeader,
    ArchiveWriter,
    LinePosition,
    SourcePosition,
    UnpackLimits,
    VerifiedArchive,
    encode_frame,
    extend_footer,
    format_line,
    read_checkpoint,
    read_records,
    verify_archive,
    write_checkpoint,
)
from sharedmem.archive.sink import ArchiveSink, TransferTally
from sharedmem.archive.source import ArchiveSource
from sharedmem.errors import InternalError, InvalidError, NotFoundError
from sharedmem.models import DurableRecord
from sharedmem.models.record import Record
from sharedmem.redis.keys import check_name
from sharedmem.runtime import in_thread

_MOST_REASONS = 100


class ProgressStep(NamedTuple):
    """The progress of a run."""

    doing: Literal["reading", "exporting", "checking", "importing", "copying", "backfilling"]
    what: str
    done: int
    total: int | None
    unit: Literal["keys", "documents", "bytes", "lines"]


Progress: TypeAlias = Callable[[ProgressStep], None]


class LeftOut(Record):
    """Data that could not be transferred."""

    count: int = 0
    reasons: dict[str, str] = Field(default_factory=dict)
    """Reasons by key; the first hundred."""


class LeftOutReasons:
    """Collects data that could not be transferred."""

    def __init__(self) -> None:
        self._count = 0
        self._reasons: dict[str, str] = {}

    def __call__(self, key: str, why: str) -> None:
        """Add one key."""
        self._count += 1
        if len(self._reasons) < _MOST_REASONS:
            self._reasons[key] = why

    def report(self) -> LeftOut:
        """Return the collected keys."""
        return LeftOut(count=self._count, reasons=self._reasons)


_NOTE_EVERY_S = 2.0


class Exported(Record):
    """The result of an export."""

    namespace: str
    file: str
    documents: int
    keys: int
    digest: str
    """SHA-256 over the documents, as in the file's last line."""
    left_out: LeftOut


class Imported(Record):
    """The result of an import."""

    namespace: str
    file: str
    documents: int
    imported: int
    older: int
    """Documents that were not newer than existing data, or met data without a version."""
    skipped: int
    """Documents that had expired, or cannot be written there."""
    left_out: LeftOut


class Copied(Record):
    """The result of copying a namespace."""

    namespace: str
    documents: int
    imported: int
    older: int
    skipped: int
    left_out: LeftOut


class ImportCheckpoint(Record):
    """The progress of an import."""

    digest: str
    target: str
    clock: int
    frame: int
    lines: int
    tally: TransferTally


class CopyCheckpoint(Record):
    """The progress of a copy."""

    source: str
    target: str
    done: tuple[Copied, ...] = ()
    namespace: str = ""
    position: SourcePosition = SourcePosition()
    base: int = 0
    documents: int = 0
    clock: int = 0
    tally: TransferTally = TransferTally()


async def export(
    endpoint: ArchiveEndpoint,
    namespace: str,
    file: Path,
    *,
    version: str,
    replace: bool = False,
    progress: Progress | None = None,
) -> Exported:
    """Write a namespace to an archive.

    Values keep their versions, authors and times; large ones are written with their bytes. Locks, queues and presence
    are not written, since they are temporary. Keys that change during the export are written in one of their states. An
    interrupted run leaves `<file>.part` and `<file>.checkpoint`; the same call continues from there.

    Args:
        endpoint: the source.
        namespace: the namespace.
        file: the archive; compressed if the name ends in `.zst`.
        version: version of this sharedmem, for the file's first line.
        replace: whether to replace an existing file, once the new one is complete.
        progress: called from time to time.

    Raises:
        NotFoundError: the namespace was never written.
        ConflictError: the file exists, or another process is writing it.
        UnavailableError: an endpoint is unavailable, or the file cannot be written.
        UnsupportedError: the compression library is not installed.
    """
    check_name("namespace", namespace)
    if not await latest_version(endpoint, namespace):
        raise NotFoundError("namespace", namespace, "nothing was ever written to it there; check its name")
    await endpoint.joined(namespace)
    await endpoint.drained(namespace)
    clock, left_out = await latest_version(endpoint, namespace), LeftOutReasons()
    moment = endpoint.clock.now().astimezone(UTC).isoformat()
    header = ArchiveHeader(version=version, namespace=namespace, exported=moment, source=endpoint.url, clock=clock)
    writer = ArchiveWriter(file, header, replace=replace)
    source = ArchiveSource(endpoint, namespace, left_out)
    try:
        position = await writer.open()
        total = await source.count() if progress else None
        async for place, records in source.batches(position):
            await writer.add(records, place)
            if progress is not None:
                progress(ProgressStep("exporting", namespace, writer.footer.keys, total, "keys"))
        footer = await writer.finish()
    finally:
        await writer.leave()
    return Exported(
        namespace=namespace,
        file=str(file),
        documents=footer.documents,
        keys=footer.keys,
        digest=footer.digest,
        left_out=left_out.report(),
    )


async def import_(
    endpoint: ArchiveEndpoint,
    file: Path,
    *,
    namespace: str | None = None,
    replace: bool = False,
    progress: Progress | None = None,
    limits: UnpackLimits | None = None,
) -> Imported:
    """Import an archive into its namespace.

    First the file is checked: a truncated or damaged one changes nothing. A value is written unless one with the same
    or a higher version exists. Structures, counters and other clients' strings, which have no version, are written only
    if the key does not exist. Durable keys are written to the durable store, if there is one, and loaded when read. A
    second import changes nothing. An interrupted run leaves `<file>.import`; the same call continues from there.

    Args:
        endpoint: the target.
        file: the archive.
        namespace: reject the archive of another namespace; None: accept any.
        replace: replace structures, counters and other clients' strings in Redis with the content of the archive.
        progress: called from time to time.
        limits: limits of the unpacked size; None: no limits, for a trusted archive.

    Raises:
        InvalidError: the file is not an archive, truncated, damaged, of another namespace, or too large unpacked.
        UnsupportedError: a newer sharedmem wrote it, or the compression library is not installed.
        NotFoundError, UnavailableError: the file cannot be read, or an endpoint cannot write now.
    """
    checked = await verify_archive(file, _byte_progress(progress, file), limits=limits)
    header, footer, _ = checked
    if namespace not in {None, header.namespace}:
        raise InvalidError("file", str(file), f"it is of namespace {header.namespace!r}, not of {namespace!r}")
    await endpoint.joined(header.namespace)
    left_out = LeftOutReasons()
    beside = file.with_name(f"{file.name}.import")
    note = await _valid_checkpoint(
        endpoint, checked, await asyncio.to_thread(read_checkpoint, beside, ImportCheckpoint)
    )
    base = max(header.clock, footer.highest)
    tally = note.tally if note else None
    sink = ArchiveSink(endpoint, header.namespace, base=base, leave_out=left_out, replace=replace, tally=tally)
    await _Import(endpoint, file, beside, checked, sink, progress).run(
        LinePosition(note.frame, note.lines) if note else LinePosition()
    )
    await endpoint.gathered(header.namespace)
    if sink.tally.documents != footer.documents:
        raise InternalError(f"of {footer.documents} documents of {file} {sink.tally.documents} were accounted for")
    await asyncio.to_thread(beside.unlink, missing_ok=True)
    return Imported(
        namespace=header.namespace,
        file=str(file),
        documents=footer.documents,
        **sink.tally.model_dump(),
        left_out=left_out.report(),
    )


class _Import:
    """One run of an import."""

    def __init__(
        self,
        endpoint: ArchiveEndpoint,
        file: Path,
        beside: Path,
        checked: VerifiedArchive,
        sink: ArchiveSink,
        progress: Progress | None,
    ) -> None:
        self._endpoint, self._file, self._beside, self._checked = endpoint, file, beside, checked
        self._sink, self._progress = sink, progress
        self._due = endpoint.clock.monotonic() + _NOTE_EVERY_S

    async def run(self, start: LinePosition) -> None:
        async for place, _, records in read_records(self._file, start):
            head = self._next_head(records)
            if head is not None:
                await self._sink.take(records[:head])
                await self._note(place._replace(lines=place.lines + head))
            await self._sink.take(records[head or 0 :])
            if self._progress is not None:
                done, total = self._sink.tally.documents, self._checked.footer.documents
                self._progress(ProgressStep("importing", self._checked.header.namespace, done, total, "documents"))
        await self._sink.settle()

    def _next_head(self, records: list[DurableRecord]) -> int | None:
        """Return the position for a checkpoint, if it is time for one: all keys before it are complete."""
        if self._endpoint.clock.monotonic() < self._due:
            return None
        return next((number for number, record in enumerate(records) if record.is_head), None)

    async def _note(self, place: LinePosition) -> None:
        await self._sink.settle()
        header, footer, _ = self._checked
        note = ImportCheckpoint(
            digest=footer.digest,
            target=self._endpoint.url,
            clock=await latest_version(self._endpoint, header.namespace),
            frame=place.frame,
            lines=place.lines,
            tally=self._sink.tally,
        )
        await _save_checkpoint(self._beside, note)
        self._due = self._endpoint.clock.monotonic() + _NOTE_EVERY_S


async def copy(
    source: ArchiveEndpoint,
    target: ArchiveEndpoint,
    namespaces: Iterable[str] | None = None,
    *,
    checkpoint: Path | None = None,
    replace: bool = False,
    progress: Progress | None = None,
) -> list[Copied]:
    """Stream namespaces from one endpoint to another, like an export and an import without a file.

    Args:
        source: the source: a server, a durable store, or both.
        target: the target: a server, a durable store, or both.
        namespaces: names of namespaces; None: all.
        checkpoint: a file for the position, so that the same call continues after an interruption.
        replace: as in `import_`.
        progress: called from time to time.

    Raises:
        InvalidError: source and target are the same, or a name is invalid.
        UnavailableError, LimitedError, AccessDeniedError: an endpoint is unavailable, or forbids it.
    """
    if source.url == target.url and await _server_id(source) == await _server_id(target):
        raise InvalidError("target", target.url, "it is the source itself")
    chosen = list(namespaces) if namespaces is not None else await list_namespaces(source)
    note = await _load_checkpoint(source, target, checkpoint)
    done = {one.namespace: one for one in note.done}
    for name in chosen:
        check_name("namespace", name)
        if name in done:
            continue
        fresh = CopyCheckpoint(source=source.url, target=target.url, done=tuple(done.values()), namespace=name)
        goes_on = note.namespace == name and note.clock <= await latest_version(target, name)
        run = _Copy(source, target, note if goes_on else fresh, checkpoint, progress)
        done[name] = await run.run(replace=replace)
        await _save_checkpoint(checkpoint, fresh.model_copy(update={"done": tuple(done.values()), "namespace": ""}))
    if checkpoint is not None:
        await asyncio.to_thread(checkpoint.unlink, missing_ok=True)
    return [done[name] for name in chosen]


class _Copy:
    """The copy of one namespace."""

    def __init__(
        self,
        source: ArchiveEndpoint,
        target: ArchiveEndpoint,
        note: CopyCheckpoint,
        checkpoint: Path | None,
        progress: Progress | None,
    ) -> None:
        self._source, self._target, self._note = source, target, note
        self._checkpoint, self._progress = checkpoint, progress
        self._due = target.clock.monotonic() + _NOTE_EVERY_S

    async def run(self, *, replace: bool) -> Copied:
        name, left_out = self._note.namespace, LeftOutReasons()
        await self._source.joined(name)
        await self._source.drained(name)
        await self._target.joined(name)
        base = self._note.base or await latest_version(self._source, name)
        source = ArchiveSource(self._source, name, left_out)
        sink = ArchiveSink(self._target, name, base=base, leave_out=left_out, replace=replace, tally=self._note.tally)
        total = await source.count() if self._progress else None
        read, here = self._note.documents, None
        async for position, records in source.batches(self._note.position):
            if here is not None and records and records[0].is_head and self._is_due():
                await sink.settle()
                await self._keep(here, base, read, sink.tally)
            here = position if records or position is not None else here
            read += len(records)
            await sink.take(records)
            if self._progress is not None:
                self._progress(ProgressStep("copying", name, read, total, "documents"))
        await sink.settle()
        await self._target.gathered(name)
        if sink.tally.documents != read:
            raise InternalError(f"of {read} documents of {name!r} {sink.tally.documents} were accounted for")
        return Copied(namespace=name, documents=read, **sink.tally.model_dump(), left_out=left_out.report())

    def _is_due(self) -> bool:
        return self._target.clock.monotonic() >= self._due

    async def _keep(self, position: SourcePosition, base: int, read: int, tally: TransferTally) -> None:
        self._note = self._note.model_copy(
            update={
                "position": position,
                "base": base,
                "documents": read,
                "clock": await latest_version(self._target, self._note.namespace),
                "tally": tally,
            }
        )
        await _save_checkpoint(self._checkpoint, self._note)
        self._due = self._target.clock.monotonic() + _NOTE_EVERY_S


async def list_namespaces(endpoint: ArchiveEndpoint) -> list[str]:
    """Return the namespaces of an endpoint, sorted.

    Raises:
        UnavailableError, LimitedError, AccessDeniedError: the endpoint is unavailable, or forbids it.
    """
    found = set(await endpoint.durable.namespaces()) if endpoint.durable is not None else set()
    if endpoint.redis is not None:
        keyspace = endpoint.redis.keyspace
        async for page in endpoint.redis.client.scan(keyspace.clocks(), near=None):
            found |= {keyspace.logical(key).partition(":")[0] for key in page}
    return sorted(found)


async def latest_version(endpoint: ArchiveEndpoint, namespace: str) -> int:
    """Return the last version of a namespace at an endpoint; 0 if it has none."""
    if endpoint.redis is not None:
        held = await endpoint.redis.client.call("GET", endpoint.redis.keyspace.space(namespace).clock)
        if isinstance(held, bytes):
            return int(held.split(b" ")[0])
    return await endpoint.durable.highest(namespace) if endpoint.durable is not None else 0


async def _server_id(endpoint: ArchiveEndpoint) -> object:
    """Return an id that distinguishes a server from others with the same name, such as those of tests."""
    return None if endpoint.redis is None else await endpoint.redis.client.call("GET", endpoint.redis.keyspace.layout)


async def _valid_checkpoint(
    endpoint: ArchiveEndpoint, checked: VerifiedArchive, note: ImportCheckpoint | None
) -> ImportCheckpoint | None:
    """Return the checkpoint of an earlier run of this file, if the target still has the data that it wrote."""
    if note is None or (note.digest, note.target) != (checked.footer.digest, endpoint.url):
        return None
    return note if note.clock <= await latest_version(endpoint, checked.header.namespace) else None


async def _load_checkpoint(source: ArchiveEndpoint, target: ArchiveEndpoint, checkpoint: Path | None) -> CopyCheckpoint:
    fresh = CopyCheckpoint(source=source.url, target=target.url)
    note = None if checkpoint is None else await asyncio.to_thread(read_checkpoint, checkpoint, CopyCheckpoint)
    return note if note is not None and (note.source, note.target) == (source.url, target.url) else fresh


async def _save_checkpoint(beside: Path | None, note: Record) -> None:
    """Write a checkpoint; without it the next run begins again, which is harmless."""
    if beside is None:
        return
    try:
        await asyncio.to_thread(write_checkpoint, beside, note)
    except OSError:
        return


def _byte_progress(progress: Progress | None, file: Path) -> Callable[[int, int], None] | None:
    if progress is None:
        return None
    return lambda read, size: progress(ProgressStep("checking", file.name, read, size, "bytes"))


async def stream_archive(
    endpoint: ArchiveEndpoint, namespace: str, *, version: str, compressed: bool = True
) -> AsyncGenerator[bytes, None]:
    """Yield an archive of a namespace, some MiB of text at a time; without its last line it is incomplete.

    Args:
        endpoint: the source.
        namespace: the namespace.
        version: version of this sharedmem, for the first line.
        compressed: true: zstd frames; false: text.

    Raises:
        NotFoundError: the namespace was never written; raised before anything is read.
        UnavailableError: an endpoint is unavailable.
        UnsupportedError: the compression library is not installed; raised before anything is read.
    """
    check_name("namespace", namespace)
    if not await latest_version(endpoint, namespace):
        raise NotFoundError("namespace", namespace, "nothing was ever written to it there; check its name")
    await endpoint.joined(namespace)
    await endpoint.drained(namespace)
    moment = endpoint.clock.now().astimezone(UTC).isoformat()
    clock = await latest_version(endpoint, namespace)
    frames = _FrameBuilder(compressed=compressed)
    yield await frames.frame(
        [
            format_line(
                ArchiveHeader(version=version, namespace=namespace, exported=moment, source=endpoint.url, clock=clock)
            )
        ]
    )
    async for _, records in ArchiveSource(endpoint, namespace, LeftOutReasons()).batches(SourcePosition()):
        if (frame := await frames.add(records)) is not None:
            yield frame
    yield await frames.last()


class _FrameBuilder:
    """Collects lines into frames of a suitable size."""

    def __init__(self, *, compressed: bool) -> None:
        # The name selects the compression.
        self._name = Path("stream.zst" if compressed else "stream")
        self._waiting: list[bytes] = []
        self._bytes = 0
        self._footer = ArchiveFooter()

    async def add(self, records: list[DurableRecord]) -> bytes | None:
        """Add documents; return a frame, once there is enough text for one."""
        lines = [format_line(record) for record in records]
        self._footer = extend_footer(self._footer, lines, records)
        self._waiting += lines
        self._bytes += sum(map(len, lines))
        if self._bytes < FRAME_BYTES:
            return None
        frame, self._waiting, self._bytes = await self.frame(self._waiting), [], 0
        return frame

    async def last(self) -> bytes:
        """Return the remaining lines and the footer."""
        return await self.frame([*self._waiting, format_line(self._footer)])

    async def frame(self, lines: Iterable[bytes]) -> bytes:
        """Return lines as a frame."""
        return await in_thread(encode_frame, self._name, b"".join(lines))
