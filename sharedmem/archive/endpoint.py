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
from sharedmem.redis.scripts.durable import DurableScripts, KeyRestoreKeys, KeyRestoreScripts

DURABLE_KINDS = frozenset({"session", "knowledge", "log"})
SHARED_DATA_TYPES = frozenset({"value", "counter", "text", "list", "hash", "set"})
"""The types of document that Redis alone can hold; the others are made by their own parts of the house."""
BLOB_PART = "blob"
"""The type of the lines that hold the bytes of a large value, behind its head."""


WriteResult: TypeAlias = Literal["imported", "older", "skipped"]
"""What became of a document that was put somewhere."""


class ArchivedBlobReference(Record):
    """What the head of a large value holds (see `data.blobs.BlobReference`, which is no layer's of ours)."""

    type: str = "blob"
    path: str = ""
    size: int
    sha256: str
    content_type: str
    codec: str


class LargeValueStore(Protocol):
    """Where large values lie, as an archive needs it."""

    async def read(self, key: str, reference: str) -> bytes:
        """The bytes behind the JSON text of a reference.

        Raises:
            NotFoundError: they are gone, or not what was stored.
        """

    async def write(self, key: str, codec: bytes, body: bytes) -> str:
        """Store bytes; returns the JSON text of the reference to them."""

    async def remove(self, key: str, reference: str) -> None:
        """Remove what was just stored; one already gone is fine."""


@dataclass(frozen=True)
class RedisEndpoint:
    """A server with its parts."""

    line: RedisClient
    keyspace: KeySpace
    restoring: KeyRestoreScripts
    keeping: DurableScripts
    change_log_length: int

    def owner(self, space: Space) -> KeyRestoreKeys:
        """The service keys of a namespace that restoring touches."""
        return KeyRestoreKeys(space.clock, space.changes, self.keyspace.kept(space.namespace))


@dataclass(frozen=True)
class ArchiveEndpoint:
    """One end of an archive's way: a server, a durable store, or a server with the store behind it."""

    url: str
    """What it is called in an archive; without secrets."""
    clock: Clock
    redis: RedisEndpoint | None = None
    durable: Durable | None = None
    blobs: LargeValueStore | None = None
    """None leaves references to large values as they are."""
    large_from_bytes: int = 262_144
    """Coded bytes above which a value is a large one."""
    kind_of: KindOf = lambda _: EPHEMERAL
    """The kind that the rules give a key."""
    join: Callable[[str, bool], Awaitable[None]] | None = None
    """Makes sure that a namespace's clock is not behind the durable store: (namespace, whether it was lost)."""

    drain: Callable[[str], Awaitable[None]] | None = None
    """Lets what waits for the durable store get there, for some seconds: what is there need not be told twice."""

    gather: Callable[[str], Awaitable[object]] | None = None
    """Brings memories and graphs that have come into the durable store into the server, where they are looked for."""

    @property
    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return int(self.clock.now().timestamp() * 1000)

    @property
    def server(self) -> RedisEndpoint:
        """The server.

        Raises:
            UnavailableError: there is none.
        """
        if self.redis is None:
            raise UnavailableError(self.url, "there is no Redis server at this end")
        return self.redis

    async def joined(self, namespace: str, *, again: bool = False) -> None:
        """Let the namespace's clock hear of the durable store, where one stands behind the server."""
        if self.join is not None:
            await self.join(namespace, again)

    async def gathered(self, namespace: str) -> None:
        """Let memories and graphs that were taken in be found."""
        if self.gather is not None:
            await self.gather(namespace)

    async def drained(self, namespace: str) -> None:
        """Let what waits for the durable store get there, as far as it does soon."""
        if self.drain is not None:
            await self.drain(namespace)
