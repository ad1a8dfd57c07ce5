"""The interface of the durable tier for scripts and facets, and the marks of durable keys."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Container, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from sharedmem.errors import SharedMemoryError, UnavailableError
from sharedmem.redis.keys import Target
from sharedmem.redis.replies import Argument, Command

if TYPE_CHECKING:
    from sharedmem.models import DurableRecord

# Letters for the durability of a key: read by lua/include/kept.lua.
RULE_MODES = {"session": "s", "knowledge": "k"}
ARGUMENT_MODES = {"session": "S", "knowledge": "K"}
LOG_MODE = "l"
UNCHANGED_MODE = "a"
"""Mode "unchanged": neither the caller nor a rule sets a kind for this key."""
DROP_MODE = "d"
DROP_AGAINST_RULE_MODE = "D"


CACHED_STATE = b"cached"
"""State of a key whose expiry in Redis applies to the copy only: the durable tier has the key."""


class DurabilityModes(NamedTuple):
    """The durability modes of the first own keys of a call."""

    targets: tuple[Target, ...]
    modes: str
    """One letter for each key."""
    is_repeatable: bool = False
    """Whether the change is idempotent, in its effect and its reply."""


class UnsettledError(Exception):
    """The change is made, but the durable tier, for which the caller waits, does not have it yet.

    Args:
        reply: the reply of the script.
        cause: why the tier does not have the change.
    """

    def __init__(self, reply: bytes, cause: SharedMemoryError) -> None:
        super().__init__(reply, cause)
        self.reply = reply
        self.cause = cause

    def __str__(self) -> str:
        return str(self.cause)


class ChangeLostError(UnavailableError):
    """Redis has lost a change before the durable tier had it, or may have.

    Args:
        key: the changed key.
        perhaps: whether the tier may have the change nevertheless.
    """

    def __init__(self, key: str, *, perhaps: bool = False) -> None:
        surely = "Redis has lost this change before the durable tier had it; make it again"
        unsure = "Redis has lost data, and this change may be lost with it: read the key, and make it again if it is"
        super().__init__(f"key {key!r}", unsure if perhaps else surely)


class KindUnknownError(UnavailableError):
    """Redis has lost the kinds of keys that callers set, and the durable tier, which has them, is unreachable.

    Args:
        key: the key whose kind is unknown; nothing was written.
    """

    def __init__(self, key: str) -> None:
        why = "its kind is unknown: Redis has lost data, and the durable tier, which has the kind, is unreachable"
        super().__init__(f"key {key!r}", f"{why}; nothing was written: give its kind, or try again", retry_after=5.0)


class Tier(Protocol):
    """The durable tier behind Redis; internal interface."""

    def extras(self, keep: DurabilityModes) -> tuple[list[bytes], tuple[str, str, int, str]]:
        """Return (keys, arguments) that the durable form of a script takes after its own, for the present data."""

    def note(self, namespace: str) -> None:
        """Notify the tier that the outbox of a namespace has entries."""

    def is_joined(self, namespace: str) -> bool:
        """Return whether Redis is known to be up to date with the tier, so that reads need no `join` before them."""

    def is_ready(self, namespace: str) -> bool:
        """Return whether changes need no `join` before them either."""

    async def join(self, namespace: str, *, again: bool = False) -> None:
        """Bring Redis up to date with the tier; fast if that is known.

        Args:
            namespace: the namespace.
            again: check even if it was known before: the server has lost the namespace's clock.
        """

    async def recall(self, target: Target, mode: str) -> bool:
        """Restore a key that is not in Redis; return whether it exists now.

        Raises:
            UnavailableError: the key is not in Redis, and the tier is unreachable.
        """

    async def documents(self, target: Target) -> list[DurableRecord]:
        """Return the living documents of a key, its head first; documents that still wait for delivery are missing.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: the tier is unavailable.
        """

    async def recall_all(self, keep: DurabilityModes) -> None:
        """Restore all keys that a script uses.

        Raises:
            UnavailableError: as `recall`.
        """

    def absent(self, namespace: str, present: Container[str]) -> AsyncIterator[list[str]]:
        """Return pages of the durable keys that are not in Redis now.

        Args:
            namespace: the namespace.
            present: keys that are known to be in Redis; they are left out.
        """

    def logs(self, namespace: str, scope: str) -> AsyncIterator[list[str]]:
        """Return pages of the keys of durable logs, such as sessions of decisions, in Redis or not.

        Args:
            namespace: the namespace.
            scope: scope of the logs: `$plan` for sessions of decisions.
        """

    async def gather(self, namespace: str, *, again: bool = False) -> bool:
        """Ensure that Redis has all memories and graphs of a namespace; return at once if that is known.

        Args:
            namespace: the namespace.
            again: check even if it was known before: something was not found. One round trip if they are there.

        Returns:
            Whether records were missing, and are restored now.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: records are missing, and the tier is unreachable.
        """

    async def has_all_records(self, namespace: str) -> bool:
        """Return whether Redis has all memories, graphs and notes of a namespace now. One round trip.

        Another hub may be restoring them at this moment, although this one has seen them complete before.

        Raises:
            UnavailableError, AccessDeniedError: the server cannot be reached, or does not allow it.
        """

    async def clear(self, namespace: str, stamp: int) -> None:
        """Delete all keys of a namespace whose changes are older than a stamp, and the entries in its outbox.

        Raises:
            UnavailableError, LimitedError: it cannot be done now; call it again.
        """

    async def settle(self, namespace: str, entries: Sequence[bytes], changed: Mapping[str, int]) -> None:
        """Wait until the tier has these entries of the outbox.

        Args:
            namespace: namespace of the outbox.
            entries: their ids.
            changed: the new stamp of each key, 0 for none: it shows whether a missing entry was delivered.

        Raises:
            UnavailableError, LimitedError: the tier cannot store them now; they stay in the outbox.
            ChangeLostError: the entries are lost, and the tier does not have them, or may lack them.
        """


class RedisPart(NamedTuple):
    """One Redis key to build from documents."""

    place: bytes
    """The physical key."""
    command: str
    """The command that writes its rows: `SET`, `RPUSH`, `HSET`, `SADD`, `ZADD`."""
    rows: list[tuple[Argument, ...]]
    """The arguments after the key, row by row."""
    has_more: bool = False
    """Whether the key may have more data than the documents contain."""
    settled: Callable[[bytes], bytes] | None = None
    """Returns of a cell what the durable tier must have as well; None: all of it."""
    compared: Container[bytes] | None = None
    """The fields that must be the same in Redis; None: all. A key of which none are compared may be elsewhere."""


class KeyRestorer(Protocol):
    """Maps the documents of one kind of key to Redis keys."""

    def presence(self, target: Target) -> bytes:
        """Return the Redis key that exists if and only if the logical key exists."""

    def parts(self, target: Target, records: Sequence[DurableRecord], *, now_ms: int = 0) -> list[RedisPart]:
        """Return the Redis keys for the valid documents of a key, its head first.

        Args:
            target: the key.
            records: its documents.
            now_ms: the server's time in milliseconds since 1970: a lease that comes back runs from then on.
        """

    def besides(self, target: Target, head: DurableRecord) -> list[Command]:
        """Return further commands to run before the restore; idempotent.

        Args:
            target: the key.
            head: its head.
        """
