"""Backfill: map foreign JSON records to keys and write the keys that do not exist yet."""

from __future__ import annotations

import asyncio
import hashlib
import re
from base64 import b64encode
from collections.abc import Mapping as Mapping_
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import orjson
from pydantic import Field, ValidationError, field_validator

from sharedmem.archive.endpoint import BLOB_PART, DURABLE_KINDS, ArchivedBlobReference, ArchiveEndpoint
from sharedmem.archive.files import LinePosition, read_blocks, read_checkpoint, write_checkpoint
from sharedmem.archive.sink import ArchiveSink, allocate_versions
from sharedmem.archive.snapshots import SnapshotReader
from sharedmem.archive.transfer import LeftOut, LeftOutReasons, Progress, ProgressStep, latest_version
from sharedmem.durable.json_codec import member_to_text, to_text
from sharedmem.durable.protocol import living_documents
from sharedmem.errors import InternalError, InvalidError, NotFoundError, UnavailableError
from sharedmem.models import DurableRecord
from sharedmem.models.record import Record
from sharedmem.redis.codec import encode, encode_member, encode_set_member
from sharedmem.redis.keys import absolute_key

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"

_REFERENCE = re.compile(r"\{([^{}]*)\}")
# Seconds, milliseconds and microseconds since 1970 are distinguished by their size: all give years from 1973 to 5138.
_MILLISECONDS_FROM, _MICROSECONDS_FROM = 1e11, 1e14
_LATEST = 10**16 - 1


class BackfillMapping(Record):
    """How foreign records become keys; docs/archives.md shows one."""

    key: str = Field(min_length=1)
    """The key, with fields of the record in braces: `knowledge:{source}:{meta.id}`; with dots for inner objects."""
    value: str | None = None
    """The field with the value; default: the whole record."""
    type: Literal["value", "hash", "list", "set"] = "value"
    """The type of the key: a value, or the elements of an object (hash) or an array (list, set)."""
    kind: Literal["ephemeral", "session", "knowledge"] | None = None
    """The kind of the key; default: the key rules decide."""
    ttl: float | None = Field(None, gt=0)
    """Seconds to live from now on."""
    timestamp: str | None = None
    """The field with the time of the first write: ISO 8601, or seconds, milliseconds or microseconds."""
    actor: str = Field("backfill", pattern=r"^[^\s:$][^\s:]*$", max_length=128)
    """The actor of the writes."""

    @field_validator("key")
    @classmethod
    def _has_references(cls, key: str) -> str:
        if not all(_REFERENCE.findall(key)) or set("{}") & set(_REFERENCE.sub("", key)):
            raise ValueError("each brace should enclose the name of a field, as in {id}")
        if not _REFERENCE.search(key):
            raise ValueError("it should contain a field in braces, as in knowledge:{id}, or all records share a key")
        return key


class MappedRecord(NamedTuple):
    """The key and value of a record."""

    key: str
    value: Json
    created: int
    """Microseconds since 1970; 0: unknown."""


def read_mapping(path: Path) -> BackfillMapping:
    """Return the mapping in a YAML or JSON file.

    Raises:
        NotFoundError: the file does not exist.
        InvalidError: it does not contain a valid mapping.
    """
    import yaml  # noqa: PLC0415  # only mappings in files need it

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise NotFoundError("file", str(path)) from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidError("mapping", str(path), f"it cannot be read: {' '.join(str(error).split())}") from error
    return validate_mapping(content, str(path))


def validate_mapping(content: object, source: str = "mapping") -> BackfillMapping:
    """Validate a mapping from a file or a program.

    Raises:
        InvalidError: the mapping is invalid; the error names the wrong field.
    """
    try:
        return BackfillMapping.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "it"
        raise InvalidError("mapping", source, f"{place}: {first['msg']}") from error


def map_line(line: bytes, mapping: BackfillMapping, namespace: str) -> MappedRecord:
    """Map a line to a key and a value.

    Args:
        line: a JSON object.
        mapping: the mapping.
        namespace: namespace of plain keys.

    Raises:
        InvalidError: the line is not a JSON object, lacks a field, or its key or time is invalid.
    """
    try:
        record: Json = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise InvalidError("line", line[:60].decode(errors="replace"), f"it is not JSON: {error}") from error
    if not isinstance(record, dict):
        raise InvalidError("line", line[:60].decode(errors="replace"), "it is not a JSON object")
    value = record if mapping.value is None else _lookup_field(record, mapping.value)
    wanted = {"hash": dict, "list": list, "set": list}.get(mapping.type, object)
    if not isinstance(value, wanted) or (mapping.type != "value" and not value):
        what = "object" if mapping.type == "hash" else "array"
        raise InvalidError(mapping.value or "record", value, f"a {mapping.type} needs an {what} that is not empty")
    created = (
        0 if mapping.timestamp is None else _parse_time(mapping.timestamp, _lookup_field(record, mapping.timestamp))
    )
    return MappedRecord(_format_key(record, mapping.key, namespace), value, created)


def _format_key(record: dict[str, Json], template: str, namespace: str) -> str:
    def filled(found: re.Match[str]) -> str:
        value = _lookup_field(record, found[1])
        if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
            raise InvalidError(found[1], value, "a part of a key must be a text or a whole number")
        # The author of a record must not choose the namespace or scope, unless the mapping uses a field there.
        if ":" in str(value) and template.count(":", 0, found.start()) < 2:
            raise InvalidError(found[1], value, "a namespace or scope has no colon")
        return str(value)

    return absolute_key(_REFERENCE.sub(filled, template), namespace, "shared")


def _lookup_field(record: dict[str, Json], path: str) -> Json:
    found: Json = record
    for name in path.split("."):
        if not isinstance(found, dict) or name not in found:
            raise InvalidError("record", record, f"it has no field {path!r}")
        found = found[name]
    return found


def _parse_time(field: str, value: Json) -> int:
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError as error:
            raise InvalidError(field, value, "write a time like 2026-03-01T12:00:00Z") from error
        value = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise InvalidError(field, value, "give a time since 1970, as ISO 8601 or as a number")
    factor = 1 if value >= _MICROSECONDS_FROM else 1000 if value >= _MILLISECONDS_FROM else 1_000_000
    microseconds = round(value * factor)
    if microseconds > _LATEST:
        raise InvalidError(field, value, "it is later than the year 2286")
    return microseconds


_BLOB = "blob"
_AT_ONCE = 200
_PREVIEWED = 5
_NOTE_EVERY_S = 2.0


class BackfillPreview(Record):
    """The key and value that a line would give."""

    line: int
    key: str
    type: str
    kind: str
    created: int
    value: object


class Backfilled(Record):
    """The result of a backfill."""

    file: str
    lines: int
    written: int
    unchanged: int
    """Lines whose key has the same value already."""
    overtaken: int
    """Lines whose key another client wrote at the same moment."""
    rejected: int
    """Lines that could not be used."""
    reasons: dict[str, str]
    """Reasons by line number; the first hundred."""
    preview: tuple[BackfillPreview, ...] = ()
    """The first usable lines of a dry run."""


class BackfillTally(Record):
    """Counts of lines by outcome."""

    lines: int = 0
    written: int = 0
    unchanged: int = 0
    overtaken: int = 0
    rejected: int = 0


class BackfillCheckpoint(Record):
    """The progress of a backfill."""

    identity: str
    clocks: dict[str, int]
    frame: int
    lines: int
    tally: BackfillTally


class _MappedLine(NamedTuple):
    """A usable line."""

    number: int
    mapped: MappedRecord
    documents: list[DurableRecord]
    large: bytes
    """Bytes of a large value; empty for others."""


async def backfill(
    endpoint: ArchiveEndpoint,
    file: Path,
    mapping: BackfillMapping,
    *,
    namespace: str,
    rejects: Path | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Backfilled:
    """Import foreign records: one JSON object a line, plain or compressed with zstd.

    Each becomes a key with a new version, unless the key has the same value already. Unusable lines are counted and
    reported; the run continues. An interrupted run leaves `<file>.backfill`, and the same call continues from there. Of
    several lines with the same key the last one wins.

    Args:
        endpoint: the target.
        file: JSON lines; compressed if the name ends in `.zst`.
        mapping: mapping from records to keys and values.
        namespace: namespace of plain keys, those without a colon.
        rejects: a file for unusable lines, each with its number and the reason.
        dry_run: only report what would happen.
        progress: called from time to time.

    Raises:
        InvalidError: the compressed file is damaged.
        NotFoundError, UnavailableError: a file cannot be read or written, or an endpoint is unavailable.
        UnsupportedError: the compression library is not installed.
    """
    run = _BackfillRun(endpoint, file, mapping, namespace, rejects, dry_run=dry_run)
    return await run.run(progress)


class _BackfillRun:
    """One run."""

    def __init__(
        self,
        endpoint: ArchiveEndpoint,
        file: Path,
        mapping: BackfillMapping,
        namespace: str,
        rejects: Path | None,
        *,
        dry_run: bool,
    ) -> None:
        self._endpoint, self._redis = endpoint, endpoint.server
        self._file, self._mapping, self._namespace = file, mapping, namespace
        self._rejects, self._dry_run = rejects, dry_run
        self._beside = file.with_name(f"{file.name}.backfill")
        self._touched: set[str] = set()
        self._reasons = LeftOutReasons()
        self._counts: dict[str, int] = dict.fromkeys(BackfillTally.model_fields, 0)
        self._previews: list[BackfillPreview] = []
        self._refused: list[bytes] = []
        self._due = endpoint.clock.monotonic() + _NOTE_EVERY_S

    async def run(self, progress: Progress | None) -> Backfilled:
        size = await asyncio.to_thread(lambda: self._file.stat().st_size if self._file.exists() else 0)
        identity = hashlib.sha256(f"{size} {self._endpoint.url} {self._mapping.model_dump_json()}".encode()).hexdigest()
        start = await self._begun(identity)
        async for block in read_blocks(self._file, start, ends=False):
            for first in range(0, len(block.lines), _AT_ONCE):
                lines = block.lines[first : first + _AT_ONCE]
                await self._some(lines)
                await self._note(identity, LinePosition(block.place.frame, block.place.lines + first + len(lines)))
            if progress is not None:
                progress(ProgressStep("backfilling", self._file.name, block.read, size, "bytes"))
        await self._write_rejects()
        tally = BackfillTally(**self._counts)
        if tally.lines != tally.written + tally.unchanged + tally.overtaken + tally.rejected:
            raise InternalError(f"of {tally.lines} lines of {self._file} some are not accounted for: {tally}")
        if not self._dry_run:
            await asyncio.to_thread(self._beside.unlink, missing_ok=True)
        left_out: LeftOut = self._reasons.report()
        return Backfilled(
            file=str(self._file), **tally.model_dump(), reasons=left_out.reasons, preview=tuple(self._previews)
        )

    async def _some(self, lines: Sequence[bytes]) -> None:
        usable: dict[str, _MappedLine] = {}
        for text in lines:
            self._counts["lines"] += 1
            if not text.strip():
                self._reject(text, "it is empty")
                continue
            try:
                line = self._line(text)
            except InvalidError as error:
                self._reject(text, str(error))
                continue
            if line.mapped.key in usable:
                await self._write(list(usable.values()))
                usable = {}
            usable[line.mapped.key] = line
        await self._write(list(usable.values()))
        await self._write_rejects()

    def _line(self, text: bytes) -> _MappedLine:
        found = map_line(text, self._mapping, self._namespace)
        documents, large = self._documents(found)
        return _MappedLine(self._counts["lines"], found, documents, large)

    # -- documents of a line

    def _documents(self, found: MappedRecord) -> tuple[list[DurableRecord], bytes]:
        """Return the documents of a line, and the bytes of a large value."""
        kind = self._mapping.kind or self._endpoint.kind_of(found.key)
        ttl_ms = 0 if self._mapping.ttl is None else round(self._mapping.ttl * 1000)
        head = DurableRecord(
            key=found.key,
            type=self._mapping.type,
            kind=kind,
            version=0,
            stamp=0,
            created=found.created,
            expires=self._endpoint.now_ms + ttl_ms if ttl_ms else 0,
            actor=self._mapping.actor,
        )
        if self._mapping.type != "value":
            elements = self._elements(head, found.value)
            return [head.model_copy(update={"size": len(elements), "actor": "", "created": 0}), *elements], b""
        codec, body = encode(found.value)
        if len(body) <= self._endpoint.large_from_bytes:
            return [head.model_copy(update={"codec": codec.decode(), "body": to_text(codec, body)})], b""
        reference = ArchivedBlobReference(
            size=len(body),
            sha256=hashlib.sha256(body).hexdigest(),
            content_type="application/json" if codec == b"json" else "application/x-msgpack",
            codec=codec.decode(),
        )
        return [head.model_copy(update={"codec": _BLOB, "body": reference.model_dump_json()})], body

    def _elements(self, head: DurableRecord, value: Json) -> list[DurableRecord]:
        if isinstance(value, dict):
            return [self._element(head, name, encode_member(item)) for name, item in value.items()]
        items = value if isinstance(value, list) else []
        if head.type == "list":
            return [self._element(head, f"{n:016d}", encode_member(item)) for n, item in enumerate(items, 1)]
        members = {encode_set_member(item) for item in items}
        return [self._element(head, hashlib.sha256(member).hexdigest(), member) for member in sorted(members)]

    def _element(self, head: DurableRecord, element: str, member: bytes) -> DurableRecord:
        if not element:
            raise InvalidError("field", element, "a field of a hash needs a name")
        if len(member) > self._endpoint.large_from_bytes:
            raise InvalidError(element, "...", f"it has {len(member)} bytes, too many for an element of a {head.type}")
        codec, body = member_to_text(member)
        kind = head.kind
        return DurableRecord(
            key=head.key, element=element, type=head.type, kind=kind, version=0, stamp=0, codec=codec, body=body
        )

    # -- writing

    async def _write(self, lines: list[_MappedLine]) -> None:
        by_namespace: dict[str, list[_MappedLine]] = {}
        for line in lines:
            by_namespace.setdefault(line.documents[0].namespace, []).append(line)
        for namespace, group in by_namespace.items():
            await self._endpoint.joined(namespace)
            held = await self._held([line.mapped.key for line in group])
            new = [
                line
                for line in group
                if _comparable_content(held.get(line.mapped.key, [])) != _comparable_content(line.documents)
            ]
            self._counts["unchanged"] += len(group) - len(new)
            if self._dry_run:
                self._preview(new)
            elif new:
                await self._put(namespace, new, held)

    async def _put(
        self, namespace: str, lines: Sequence[_MappedLine], held: Mapping_[str, list[DurableRecord]]
    ) -> None:
        version = await allocate_versions(self._endpoint, self._redis, namespace, count=len(lines))
        sink = ArchiveSink(self._endpoint, namespace, base=version, leave_out=self._reasons, replace=True)
        for number, line in enumerate(lines):
            before = next(iter(held.get(line.mapped.key, [])), None)
            await sink.take(_with_version(line, version + number, before))
        await sink.settle()
        self._touched.add(namespace)
        self._counts["written"] += sink.keys.imported
        self._counts["overtaken"] += sink.keys.older + sink.keys.skipped

    async def _held(self, keys: Sequence[str]) -> dict[str, list[DurableRecord]]:
        """Return the present documents of keys."""
        targets = [self._redis.keyspace.target(key) for key in keys]
        found: dict[str, list[DurableRecord]] = {}
        async for page in SnapshotReader(self._redis.client, self._redis.keyspace).documents(targets):
            for record in page:
                found.setdefault(record.key, []).append(record)
        if self._endpoint.durable is not None:
            for key in keys:
                if key not in found and self._lasts(key):
                    found[key] = living_documents(await self._endpoint.durable.records(key), self._endpoint.now_ms)
        return found

    def _lasts(self, key: str) -> bool:
        return (self._mapping.kind or self._endpoint.kind_of(key)) in DURABLE_KINDS

    def _preview(self, lines: Sequence[_MappedLine]) -> None:
        self._counts["written"] += len(lines)
        for line in lines[: _PREVIEWED - len(self._previews)]:
            head = line.documents[0]
            value, created = line.mapped.value, line.mapped.created
            self._previews.append(
                BackfillPreview(
                    line=line.number, key=head.key, type=head.type, kind=head.kind, created=created, value=value
                )
            )

    # -- rejected lines

    def _reject(self, text: bytes, why: str) -> None:
        self._counts["rejected"] += 1
        number = self._counts["lines"]
        self._reasons(str(number), why)
        if self._rejects is not None:
            shown = {"line": number, "reason": why, "text": text.decode(errors="replace")}
            self._refused.append(orjson.dumps(shown, option=orjson.OPT_APPEND_NEWLINE))

    async def _write_rejects(self) -> None:
        refused, self._refused = self._refused, []
        if self._rejects is not None and refused:
            await asyncio.to_thread(_append, self._rejects, b"".join(refused))

    # -- checkpoints

    async def _begun(self, identity: str) -> LinePosition:
        note = None if self._dry_run else await asyncio.to_thread(read_checkpoint, self._beside, BackfillCheckpoint)
        if note is not None and note.identity == identity and await self._still_there(note):
            self._counts = note.tally.model_dump()
            self._touched = set(note.clocks)
            return LinePosition(note.frame, note.lines)
        if self._rejects is not None:
            await asyncio.to_thread(self._rejects.unlink, missing_ok=True)
        return LinePosition()

    async def _still_there(self, note: BackfillCheckpoint) -> bool:
        """Return whether the data that the earlier run wrote still exists."""
        for namespace, clock in note.clocks.items():
            if await latest_version(self._endpoint, namespace) < clock:
                return False
        return True

    async def _note(self, identity: str, place: LinePosition) -> None:
        if self._dry_run or self._endpoint.clock.monotonic() < self._due:
            return
        clocks = {namespace: await latest_version(self._endpoint, namespace) for namespace in self._touched}
        tally = BackfillTally(**self._counts)
        note = BackfillCheckpoint(identity=identity, clocks=clocks, frame=place.frame, lines=place.lines, tally=tally)
        with suppress(OSError):  # without it the next run begins again, which is harmless
            await asyncio.to_thread(write_checkpoint, self._beside, note)
        self._due = self._endpoint.clock.monotonic() + _NOTE_EVERY_S


def _with_version(line: _MappedLine, version: int, before: DurableRecord | None) -> list[DurableRecord]:
    """Return the documents of a line with their version."""
    head, *elements = line.documents
    known = before.created if before is not None and before.type == head.type else 0
    created = (head.created or known or version) if head.type == "value" else 0
    stamped = {"version": version, "stamp": version}
    documents = [head.model_copy(update={**stamped, "floor": version, "created": created})]
    if line.large:
        part = {"element": "00000000", "type": BLOB_PART, "codec": "base64", "body": b64encode(line.large).decode()}
        elements = [head.model_copy(update=part)]
    return documents + [one.model_copy(update=stamped) for one in elements]


def _comparable_content(documents: Sequence[DurableRecord]) -> object:
    """Return the content of a key in a comparable form; None if it does not exist."""
    if not documents:
        return None
    head, *elements = documents
    if head.type == "list":
        return head.type, tuple((one.codec, one.body) for one in elements)
    if elements:
        return head.type, frozenset((one.element, one.codec, one.body) for one in elements)
    if head.codec == _BLOB:
        reference = orjson.loads(head.body)
        return _BLOB, reference.get("sha256"), reference.get("size"), reference.get("codec")
    return head.type, head.codec, head.body


def _append(path: Path, text: bytes) -> None:
    try:
        with path.open("ab") as file:
            file.write(text)
    except OSError as error:
        raise UnavailableError(f"file {path}", f"it cannot be written: {error.strerror or error}") from error
