"""What archives are made from and put back into, of the parts of a hub or of a durable store alone."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from importlib.metadata import version

from sharedmem.clock import Clock
from sharedmem.data.blobs import BlobReference, Blobs
from sharedmem.durable.archive.archives import Archives
from sharedmem.durable.archive.parts import ArchiveParts, Shore
from sharedmem.durable.archive.snapshots import EPHEMERAL
from sharedmem.durable.protocol import Durable
from sharedmem.errors import SharedMemoryError
from sharedmem.hub.assembly import Parts
from sharedmem.wire.keeping import Keeping
from sharedmem.wire.restoring import Restoring

_DISTRIBUTION = "sharedmem-hub"
_PATIENCE_S = 10.0


class ArchivedBlobs:
    """The blobs of a hub as archives need them.

    Args:
        blobs: where they lie.
    """

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    async def read(self, key: str, reference: str) -> bytes:
        """The bytes behind a reference."""
        return await self._blobs.get(key, BlobReference.model_validate_json(reference))

    async def write(self, key: str, codec: bytes, body: bytes) -> str:
        """Store bytes; returns the reference to them."""
        return (await self._blobs.put(key, codec, body)).model_dump_json()

    async def remove(self, key: str, reference: str) -> None:
        """Remove what was just stored."""
        await self._blobs.remove(key, BlobReference.model_validate_json(reference).path)


def archives_of(parts: Parts) -> Archives:
    """The archives of a hub.

    Args:
        parts: of an open hub.
    """
    means, tier, sender = parts.means, parts.tier, parts.ground.sender
    shore = Shore(means.line, parts.keyspace, Restoring(sender), Keeping(sender), means.settings.change_log_length)

    def kind_of(key: str) -> str:
        return means.lifetimes.rule(key) or EPHEMERAL

    async def join(namespace: str, again: bool) -> None:
        if tier is not None:
            await tier.join(namespace, again=again)

    async def drain(namespace: str) -> None:
        if tier is not None:
            # What does not get there in time is told as Redis has it.
            with suppress(SharedMemoryError):
                await tier.desk.drain(namespace, timeout=_PATIENCE_S)

    ends = ArchiveParts(
        url=parts.connection.url,
        clock=means.clock,
        redis=shore,
        durable=tier.store if tier is not None else None,
        blobs=ArchivedBlobs(means.blobs),
        large_from_bytes=means.settings.blob_threshold_bytes,
        kind_of=kind_of,
        join=join if tier is not None else None,
        drain=drain,
        gather=None if tier is None else partial(tier.gather, again=True),
    )
    return Archives(ends, version=version(_DISTRIBUTION))


def archives_of_durable(durable: Durable, clock: Clock) -> Archives:
    """The archives of a durable store alone: references to large values stay as they are.

    Args:
        durable: an open store.
        clock: the time to go by.
    """
    return Archives(ArchiveParts(url=durable.url, clock=clock, durable=durable), version=version(_DISTRIBUTION))
