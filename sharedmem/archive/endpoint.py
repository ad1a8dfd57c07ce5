"""An endpoint of an archive run: a Redis server, a durable store, or both."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from sharedmem.archive.snapshots import EPHEMERAL, KindOf
from sharedmem.clock import Clock
from sharedmem.durable.protocol import Durable
from sharedmem.errors import UnavailableError
from sharedmem.models.record import Record
from sharedmem.redis.client import RedisClient
from sharedmem.redis.keys import KeySpace, Space
from sharedmem.redis.scripts.conversations import ConversationScripts
from sharedmem.redis.scripts.durable import DurableScripts, KeyRestoreKeys, KeyRestoreScripts

DURABLE_KINDS = frozenset({"session", "knowledge", "log"})
SHARED_DATA_TYPES = frozenset({"value", "counter", "text", "list", "hash", "set"})
"""The types of documents that Redis alone can store; other packages create the other types."""
BLOB_PART = "blob"
"""The type of the lines with the bytes of a large value, after its head."""


WriteResult: TypeAlias = Literal["imported", "older", "skipped"]
"""The outcome of writing a document."""


class ArchivedBlobReference(Record):
    """The head of a large value (see `data.blobs.BlobReference`, which this layer does not import)."""

    type: str = "blob"
    path: str = ""
    size: int
    sha256: str
    content_type: str
    codec: str


class LargeValueStore(Protocol):
    """The store of large values, as archives use it."""

    async def read(self, key: str, reference: str) -> bytes:
        """Return the bytes of a reference, given as JSON text.

        Raises:
            NotFoundError: the bytes are lost or damaged.
        """

    async def write(self, key: str, codec: bytes, body: bytes) -> str:
        """Store bytes; return the JSON text of their reference."""

    async def remove(self, key: str, reference: str) -> None:
        """Delete bytes that were just stored, if they still exist."""


@dataclass(frozen=True)
class RedisEndpoint:
    """A server, and the scripts that read and write its keys."""

    client: RedisClient
    keyspace: KeySpace
    restore_scripts: KeyRestoreScripts
    durable_scripts: DurableScripts
    conversation_scripts: ConversationScripts
    change_log_length: int

    def owner(self, space: Space) -> KeyRestoreKeys:
        """Return the service keys of a namespace that a restore uses."""
        return KeyRestoreKeys(space.clock, space.changes, self.keyspace.kept(space.namespace))


@dataclass(frozen=True)
class ArchiveEndpoint:
    """One end of a transfer: a server, a durable store, or a server with its store."""

    url: str
    """Its name in archives; without secrets."""
    clock: Clock
    redis: RedisEndpoint | None = None
    durable: Durable | None = None
    blobs: LargeValueStore | None = None
    """None: copy references to large values unchanged."""
    large_from_bytes: int = 262_144
    """Encoded size above which a value is stored as a large one."""
    kind_of: KindOf = lambda _: EPHEMERAL
    """Returns the kind of a key by the rules."""
    join: Callable[[str, bool], Awaitable[None]] | None = None
    """Brings a namespace's clock up to date with the durable store: (namespace, whether it was lost)."""

    drain: Callable[[str], Awaitable[None]] | None = None
    """Drains a namespace's outbox, for a few seconds."""

    gather: Callable[[str], Awaitable[object]] | None = None
    """Restores memories and graphs in Redis that were written to the durable store, so that searches find them."""

    @property
    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return int(self.clock.now().timestamp() * 1000)

    @property
    def server(self) -> RedisEndpoint:
        """The server.

        Raises:
            UnavailableError: this end has no server.
        """
        if self.redis is None:
            raise UnavailableError(self.url, "there is no Redis server at this end")
        return self.redis

    async def joined(self, namespace: str, *, again: bool = False) -> None:
        """Join the namespace, if the server has a durable store."""
        if self.join is not None:
            await self.join(namespace, again)

    async def gathered(self, namespace: str) -> None:
        """Restore imported memories and graphs in Redis."""
        if self.gather is not None:
            await self.gather(namespace)

    async def drained(self, namespace: str) -> None:
        """Drain the namespace's outbox, for a few seconds."""
        if self.drain is not None:
            await self.drain(namespace)
