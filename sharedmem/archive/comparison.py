"""Compare the keys of two archives, whatever the order of their documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Literal, NamedTuple

from sharedmem.archive.files import read_records
from sharedmem.archive.frames import LinePosition
from sharedmem.models import DurableRecord

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
