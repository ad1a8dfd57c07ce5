"""Build the archives of a hub, or of a durable store alone."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING

from sharedmem.archive.archives import Archives
from sharedmem.archive.endpoint import ArchiveEndpoint, RedisEndpoint
from sharedmem.archive.snapshots import EPHEMERAL
from sharedmem.blobs.blobs import BlobReference, Blobs
from sharedmem.clock import Clock
from sharedmem.context import HubContext
from sharedmem.conversations.access import restore_conversations
from sharedmem.durable.protocol import Durable
from sharedmem.errors import SharedMemoryError
from sharedmem.hub.composition import OpenHub
from sharedmem.redis.scripts.conversations import ConversationScripts
from sharedmem.redis.scripts.durable import DurableScripts, KeyRestoreScripts

if TYPE_CHECKING:
    from sharedmem.durable.tier import DurableTier

_DISTRIBUTION = "sharedmem-hub"
_DRAIN_TIMEOUT_S = 10.0


class ArchivedBlobs:
    """The blobs of a hub, for archives.

    Args:
        blobs: the blob store.
    """

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    async def read(self, key: str, reference: str) -> bytes:
        """Return the bytes of a reference."""
        return await self._blobs.get(key, BlobReference.model_validate_json(reference))

    async def write(self, key: str, codec: bytes, body: bytes) -> str:
        """Store bytes and return their reference."""
        return (await self._blobs.put(key, codec, body)).model_dump_json()

    async def remove(self, key: str, reference: str) -> None:
        """Delete bytes that were just stored."""
        await self._blobs.remove(key, BlobReference.model_validate_json(reference).path)


def build_archives(opened: OpenHub) -> Archives:
    """Return the archives of a hub.

    Args:
        opened: an open hub.
    """
    context, tier, sender = opened.context, opened.tier, opened.context.executor
    endpoint = RedisEndpoint(
        context.client,
        context.keyspace,
        KeyRestoreScripts(sender),
        DurableScripts(sender),
        ConversationScripts(sender),
        context.settings.change_log_length,
    )

    def kind_of(key: str) -> str:
        return context.lifetimes.rule(key) or EPHEMERAL

    async def join(namespace: str, again: bool) -> None:
        if tier is not None:
            await tier.join(namespace, again=again)

    async def drain(namespace: str) -> None:
        if tier is not None:
            # Changes that are not delivered in time are read from Redis instead.
            with suppress(SharedMemoryError):
                await tier.admin.drain(namespace, timeout=_DRAIN_TIMEOUT_S)

    ends = ArchiveEndpoint(
        url=opened.connection.url,
        clock=context.clock,
        redis=endpoint,
        durable=tier.store if tier is not None else None,
        blobs=ArchivedBlobs(context.blobs),
        large_from_bytes=context.settings.blob_threshold_bytes,
        kind_of=kind_of,
        join=join if tier is not None else None,
        drain=drain,
        gather=None if tier is None else partial(_gather, tier, context),
    )
    return Archives(ends, version=version(_DISTRIBUTION))


async def _gather(tier: DurableTier, context: HubContext, namespace: str) -> None:
    """Restore what is found by searches and lists."""
    await tier.records.gather(namespace, again=True)
    await restore_conversations(tier, context.client, context.keyspace, namespace)


def build_durable_archives(durable: Durable, clock: Clock) -> Archives:
    """Return the archives of a durable store alone: references to large values stay as they are.

    Args:
        durable: an open store.
        clock: gives the time.
    """
    return Archives(ArchiveEndpoint(url=durable.url, clock=clock, durable=durable), version=version(_DISTRIBUTION))
