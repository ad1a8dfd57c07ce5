"""The record family of memories: its index fields, and how Redis restores memories from the durable store.

The durable store has the current version of a memory only, not its past versions. It knows how often the memory was
merged only from the memory itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from sharedmem.models import DurableRecord
from sharedmem.record_family import DocumentFormat, RecordFamily, RestoreRun
from sharedmem.redis.replies import Argument
from sharedmem.redis.scripts.durable import RestoredMemory, memory_restore_keys
from sharedmem.redis.scripts.knowledge import MEMORY_FAMILY

TAGS = (
    *("ns", "user", "agent", "thread", "run", "category", "importance"),
    *("type", "entity", "source", "tags", "collections", "meta"),
)
NUMBERS = ("at",)
"""`at`: milliseconds since 1970 of the item's timestamp."""


def _parse(record: DurableRecord) -> RestoredMemory:
    id_ = record.key.split(":", 2)[2]
    if record.deleted:
        return RestoredMemory(id_, record.stamp, 0, "", "", "", b"", 0, 0, ())
    from sharedmem.memory.serialization import decode_durable_record  # noqa: PLC0415  # loads numpy

    return decode_durable_record(id_, record)


def _hash_fields(record: RestoredMemory, namespace: str) -> Sequence[Argument]:  # noqa: ARG001  # is in the fields
    return record.fields


async def _restore(run: RestoreRun, records: Sequence[RestoredMemory]) -> int | None:
    """Restore a batch of memories. One round trip."""
    keyspace, namespace = run.context.keyspace, run.namespace
    if run.context.settings.embedder == "none":
        records = [record._replace(waits=0) for record in records]
    keys = [keyspace.record(MEMORY_FAMILY, namespace, one.id) for one in records]
    keys += [keyspace.record_item(MEMORY_FAMILY, namespace, "turns", one.thread) for one in records]
    return await run.scripts.memory_restore(
        memory_restore_keys(keyspace, namespace), keys=keys, lease=run.lease, restores=records
    )


MEMORY_RECORDS = RecordFamily(
    MEMORY_FAMILY,
    TAGS,
    NUMBERS,
    documents=DocumentFormat(parse=_parse, hash_fields=_hash_fields, restore=_restore, recounted=("authors",)),
)
