"""A restore drill: import an archive into an empty place, and compare what comes out with the archive.

By default that is a private server in a temporary folder; it is stopped and deleted afterwards. On a given server the
keys have a prefix of their own, and are deleted afterwards. Production data is neither read nor written. Keys are
compared whatever the order of their documents.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import Field

from sharedmem.archive.daily_exports import DRILL
from sharedmem.archive.files import LinePosition, read_records, verify_archive, write_checkpoint
from sharedmem.archive.transfer import LeftOut
from sharedmem.clock import Clock, SystemClock, new_id
from sharedmem.config import Settings
from sharedmem.hub.hub import Hub
from sharedmem.models import DurableRecord, Record
from sharedmem.redis.address import parse_address
from sharedmem.redis.connect import open_client

_MOST_SHOWN = 100
_PREFIX_LENGTH = 64


class DrillReport(Record):
    """The outcome of a restore drill."""

    ok: bool
    """Whether everything in the archive came back, and nothing else."""
    namespace: str
    file: str
    exported: str
    """When the archive was written, in ISO 8601."""
    at: datetime
    """When the drill ended."""
    seconds: float
    """How long the import took: about the time of a real restore on such a machine."""
    documents: int
    keys: int
    """Keys of the archive."""
    expired: int
    """Keys among them that have expired by now."""
    missing: int
    changed: int
    unexpected: int
    differences: dict[str, Difference] = Field(default_factory=dict)
    """What is wrong with which key; the first hundred."""
    left_out: LeftOut
    """What could not be imported."""


async def drill_archive(file: Path | str, *, settings: Settings, server: str | None = None) -> DrillReport:
    """Restore an archive into an empty place, compare counts and checksums, and clear the place.

    The report is also written beside the archive, as `<file>.drill`.

    Args:
        file: the archive.
        settings: of the private server, and of its blobs; nothing is written to the server that they name.
        server: URL of a server to restore into; None starts a private one.

    Raises:
        InvalidError: the file is not an archive, truncated or damaged.
        NotFoundError, UnavailableError, UnsupportedError: the file cannot be read, or there is no such server.
    """
    path = Path(file)
    header, footer, _ = await verify_archive(path)
    archived = await read_checksums(path)
    clock = SystemClock()
    with tempfile.TemporaryDirectory(prefix="sharedmem-drill-", ignore_cleanup_errors=True) as folder:
        copy = Path(folder) / "restored.jsonl"
        scratch = _scratch_settings(settings, Path(folder), server)
        try:
            async with Hub.open(settings=scratch) as hub:
                began = clock.monotonic()
                done = await hub.archive.import_(path)
                took_s = clock.monotonic() - began
                await hub.archive.export(header.namespace, copy)
        finally:
            if server is not None:
                await _clear(server, scratch, clock)
        restored = await read_checksums(copy)
    ended = clock.now()
    now_ms = round(ended.timestamp() * 1000)
    different = compare_checksums(archived, restored, now_ms)
    counted = list(different.values())
    report = DrillReport(
        ok=not different and not done.left_out.count,
        namespace=header.namespace,
        file=str(path),
        exported=header.exported,
        at=ended,
        seconds=round(took_s, 3),
        documents=footer.documents,
        keys=len(archived),
        expired=count_expired(list(archived.values()), now_ms),
        missing=counted.count("missing"),
        changed=counted.count("changed"),
        unexpected=counted.count("unexpected"),
        differences=dict(sorted(different.items())[:_MOST_SHOWN]),
        left_out=done.left_out,
    )
    await asyncio.to_thread(write_checkpoint, path.with_name(path.name + DRILL), report)
    return report


def _scratch_settings(settings: Settings, folder: Path, server: str | None) -> Settings:
    """Return the settings of a place that holds nothing."""
    return settings.replace(
        redis_url=server,
        # Unique also where several drills use one server.
        prefix=f"{settings.prefix[: _PREFIX_LENGTH - 20]}-drill-{new_id(10)}",
        data_dir=folder,
        durable_url=f"sqlite://{folder}/durable.db",
        blob_dir=folder / "blobs",
        blob_url=None,
        embedded="auto",
        embedded_port=0,
        access="open",
        actor=None,
        metrics_port=None,
        otlp_endpoint=None,
    )


async def _clear(server: str, scratch: Settings, clock: Clock) -> None:
    """Delete every key of the scratch prefix, once its hub is closed and writes no more."""
    client = open_client(parse_address(server, scratch), scratch, clock)
    await client.open()
    try:
        async for keys in client.scan(f"{scratch.prefix}:*".encode(), near=None):
            await asyncio.gather(*(client.call("UNLINK", key) for key in keys))
    finally:
        await client.close()


# -- comparison of two archives -------------------------------------------------------------------


Difference = Literal["missing", "changed", "unexpected"]
_EXPIRY_TOLERANCE_MS = 2_000
"""Redis counts a lifetime from its own clock, so an expiry that was read twice may differ a little."""
_DIGEST_BYTES = 16


class KeyChecksum(NamedTuple):
    """What an archive holds of one key."""

    documents: int
    digest: int
    """Sum of the digests of its documents: their order does not matter."""
    expires: int
    """Milliseconds since 1970; 0: never."""


async def read_checksums(file: Path) -> dict[str, KeyChecksum]:
    """Return the checksum of each key of an archive.

    Raises:
        InvalidError, NotFoundError, UnavailableError, UnsupportedError: as `verify_archive`.
    """
    found: dict[str, KeyChecksum] = {}
    async for _, _, records in read_records(file, LinePosition()):
        for record in records:
            held = found.get(record.key, KeyChecksum(0, 0, 0))
            found[record.key] = KeyChecksum(
                held.documents + 1, held.digest + _digest(record), max(held.expires, record.expires)
            )
    return found


def compare_checksums(
    archived: Mapping[str, KeyChecksum], restored: Mapping[str, KeyChecksum], now_ms: int
) -> dict[str, Difference]:
    """Return the keys that differ, without expired keys.

    Args:
        archived: the keys of the archive.
        restored: the keys that were restored from it.
        now_ms: milliseconds since 1970, after both were read.
    """
    different: dict[str, Difference] = {}
    for key, held in archived.items():
        if 0 < held.expires <= now_ms + _EXPIRY_TOLERANCE_MS:
            continue
        other = restored.get(key)
        if other is None:
            different[key] = "missing"
        elif other[:2] != held[:2] or abs(other.expires - held.expires) > _EXPIRY_TOLERANCE_MS:
            different[key] = "changed"
    different.update(dict.fromkeys(restored.keys() - archived.keys(), "unexpected"))
    return different


def count_expired(checksums: Sequence[KeyChecksum], now_ms: int) -> int:
    """Return how many of these keys have expired."""
    return sum(0 < one.expires <= now_ms + _EXPIRY_TOLERANCE_MS for one in checksums)


def _digest(record: DurableRecord) -> int:
    """Return a digest of a document, without what only orders its writes."""
    plain = record.model_copy(update={"stamp": 0, "floor": 0, "expires": 0})
    text = plain.model_dump_json(exclude_defaults=True).encode()
    return int.from_bytes(blake2b(text, digest_size=_DIGEST_BYTES).digest())
