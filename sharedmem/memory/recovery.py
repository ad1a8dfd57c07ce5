"""How a memory lies in Redis, made again of what the durable tier has of it.

For the tier a memory is one key, `<namespace>:$memory:<id>`, with one document (see `documents`). Its past versions are
not kept there, and how often it was merged only as far as it says so itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from sharedmem.models import DurableRecord
from sharedmem.redis.durability import RedisPart, RestoredMemory
from sharedmem.redis.keys import KeySpace, Target
from sharedmem.redis.replies import Argument, Command
from sharedmem.redis.scripts.durable import RecordRestoreScripts, RestoreLease, memory_restore_keys
from sharedmem.redis.scripts.memories import MEMORY_FAMILY


class MemoryRestorer:
    """Knows how memories lie in Redis (`wire.tier.Imager`, `durable.gathering.RecordReader`).

    Args:
        keyspace: how keys are spelled.
        embeds: whether vectors that are missing are to be made.
    """

    def __init__(self, keyspace: KeySpace, *, embeds: bool) -> None:
        self._keyspace = keyspace
        self._embeds = embeds

    def presence(self, target: Target) -> bytes:
        """Its hash."""
        return self._keyspace.presence(target)

    def parts(self, target: Target, records: Sequence[DurableRecord]) -> list[RedisPart]:
        """The fields of its hash, but for the mark of the index in which it is found.

        Raises:
            ValueError, LookupError, TypeError: it cannot be read.
        """
        fields = self.remembered(records[0]).fields
        rows: list[tuple[Argument, ...]] = list(zip(fields[::2], fields[1::2], strict=True))
        return [RedisPart(self.presence(target), "HSET", rows, has_more=True)] if rows else []

    def besides(self, target: Target) -> list[Command]:  # noqa: ARG002  # the script does it all in one step
        """Nothing."""
        return []

    @property
    def scope(self) -> str:
        """Of the keys of memories."""
        return f"${MEMORY_FAMILY}"

    def anew(self, namespace: str) -> list[bytes]:
        """The turns by author."""
        return [self._keyspace.record_part(MEMORY_FAMILY, namespace, "authors")]

    def remembered(self, record: DurableRecord) -> RestoredMemory:
        """What the script takes that brings a memory back; without fields when it was deleted.

        Raises:
            ValueError, LookupError, TypeError: it cannot be read.
        """
        if record.deleted:
            return RestoredMemory(_id_of(record.key), record.stamp, 0, "", "", "", b"", 0, 0, ())
        # Vectors are crunched by a library that takes a while to load; a hub opens without it.
        from sharedmem.memory.serialization import decode_durable_record  # noqa: PLC0415

        return decode_durable_record(_id_of(record.key), record, embeds=self._embeds)

    async def restore(
        self, bringing: RecordRestoreScripts, turn: RestoreLease, namespace: str, records: Sequence[RestoredMemory]
    ) -> int | None:
        """Bring some back; how many were missing, None when somebody has taken over. One round trip."""
        places = [self._keyspace.record(MEMORY_FAMILY, namespace, one.id) for one in records]
        places += [self._keyspace.record_item(MEMORY_FAMILY, namespace, "turns", one.thread) for one in records]
        keys = memory_restore_keys(self._keyspace, namespace)
        return await bringing.memory_restore(
            keys, keys_=places, token=turn.token, lease_ms=turn.lease_ms, restores=records
        )


def _id_of(key: str) -> str:
    return key.split(":", 2)[2]
