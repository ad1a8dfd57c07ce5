"""The port of the durable tier: what scripts and facets call, and how a key is marked as durable."""

from __future__ import annotations

from collections.abc import AsyncIterator, Container, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from sharedmem.errors import SharedMemoryError, UnavailableError
from sharedmem.redis.keys import Target
from sharedmem.redis.replies import Argument, Command

if TYPE_CHECKING:
    from sharedmem.models import DurableRecord

# How a key is kept: read by lua/include/kept.lua.
RULE_MODES = {"session": "s", "knowledge": "k"}
ARGUMENT_MODES = {"session": "S", "knowledge": "K"}
LOG_MODE = "l"
UNCHANGED_MODE = "a"
"""As it was kept before, if it was: nobody has said anything of this key."""
DROP_MODE = "d"
DROP_AGAINST_RULE_MODE = "D"


CACHED_STATE = b"cached"
"""State of a key whose expiry in Redis is not its own: the durable tier keeps it."""


class DurabilityModes(NamedTuple):
    """How the first own keys of a call are kept."""

    targets: tuple[Target, ...]
    modes: str
    """A letter for each."""
    is_repeatable: bool = False
    """Whether a change that is made twice leaves, and answers, what one does that is made once."""


class UnsettledError(Exception):
    """The change is made, but the durable tier, which the caller wants to wait for, does not have it yet.

    Args:
        reply: what the script answered.
        cause: why the tier does not have it.
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
        key: which.
        perhaps: whether the tier may have it all the same.
    """

    def __init__(self, key: str, *, perhaps: bool = False) -> None:
        surely = "Redis has lost this change before the durable tier had it; make it again"
        unsure = "Redis has lost data, and this change may be lost with it: read the key, and make it again if it is"
        super().__init__(f"key {key!r}", unsure if perhaps else surely)


class KindUnknownError(UnavailableError):
    """Redis has lost which keys last by argument, and the durable tier, which knows, cannot be asked.

    Args:
        key: whose kind is wanted; nothing was written.
    """

    def __init__(self, key: str) -> None:
        why = "whether it lasts is not known: Redis has lost data, and the durable tier, which knows, cannot be asked"
        super().__init__(f"key {key!r}", f"{why}; nothing was written: say its kind, or try again", retry_after=5.0)


class Tier(Protocol):
    """What stands behind Redis; inside the house only."""

    def extras(self, keep: DurabilityModes) -> tuple[list[bytes], tuple[str, str, int, str]]:
        """Return (keys, arguments) that the kept form of a script takes behind its own; they are of the data known by now."""

    def note(self, namespace: str) -> None:
        """Something was left in the outbox of a namespace: it is to be fetched soon."""

    def is_joined(self, namespace: str) -> bool:
        """Return whether it is known that Redis is not behind the tier, so that `join` need not be called before a read."""

    def is_ready(self, namespace: str) -> bool:
        """Return whether `join` need not be called before a change either."""

    async def join(self, namespace: str, *, again: bool = False) -> None:
        """Make sure that Redis is not behind the tier; quick when that is known.

        Args:
            namespace: where.
            again: whatever was known of it: the server has lost the namespace's clock.
        """

    async def recall(self, target: Target, mode: str) -> bool:
        """Bring back a key that is not in Redis; whether it is there now.

        Raises:
            UnavailableError: neither is it here, nor can the tier be asked.
        """

    async def recall_all(self, keep: DurabilityModes) -> None:
        """Bring back all keys that a script works on.

        Raises:
            UnavailableError: as `recall`.
        """

    def absent(self, namespace: str, present: Container[str]) -> AsyncIterator[list[str]]:
        """Return pages of the keys that last and are not in Redis just now.

        Args:
            namespace: whose.
            present: keys that are known to be in Redis, which are left out.
        """

    def logs(self, namespace: str, scope: str) -> AsyncIterator[list[str]]:
        """Return pages of the keys of logs that last, such as the sessions of decisions, in Redis or not.

        Args:
            namespace: whose.
            scope: which: `$plan` for sessions of decisions.
        """

    async def gather(self, namespace: str, *, again: bool = False) -> bool:
        """Make sure that Redis has all memories and graphs of a namespace; at once when that is known.

        Args:
            namespace: whose.
            again: whatever was known of it: something was not found. One round trip when they are there.

        Returns:
            Whether they were not all there, and are now.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: they are not all here, and the tier cannot be asked.
        """

    async def has_all_records(self, namespace: str) -> bool:
        """Return whether Redis holds all memories, graphs and notes of a namespace now. One round trip.

        Another hub may restore them at this moment, while this one believes that all are there.

        Raises:
            UnavailableError, AccessDeniedError: the server cannot be reached, or does not allow it.
        """

    async def clear(self, namespace: str, stamp: int) -> None:
        """Forget all keys of a namespace whose changes are older than a stamp, and what waits in its outbox.

        Raises:
            UnavailableError, LimitedError: it cannot be done now; call it again.
        """

    async def settle(self, namespace: str, entries: Sequence[bytes], changed: Mapping[str, int]) -> None:
        """Return when the tier has what these entries of the outbox hold.

        Args:
            namespace: whose outbox.
            entries: their ids.
            changed: the stamp that each key got, 0 for none: it tells whether an entry that is gone was settled.

        Raises:
            UnavailableError, LimitedError: it cannot take them now; they stay where they are.
            ChangeLostError: they are gone, and the tier does not have them, or may lack them.
        """


class RedisPart(NamedTuple):
    """One Redis key to be made of documents."""

    place: bytes
    """Where it belongs."""
    command: str
    """What makes it, with as many rows as wanted: `SET`, `RPUSH`, `HSET`, `SADD`, `ZADD`."""
    rows: list[tuple[Argument, ...]]
    """What comes behind the key, row by row."""
    has_more: bool = False
    """Whether there may be more in it of which the documents say nothing."""


class KeyRestorer(Protocol):
    """Knows how the documents of one kind of key lie in Redis."""

    def presence(self, target: Target) -> bytes:
        """Return the Redis key that is there if and only if the key is."""

    def parts(self, target: Target, records: Sequence[DurableRecord]) -> list[RedisPart]:
        """What the living documents of a key, its head first, are in Redis."""

    def besides(self, target: Target) -> list[Command]:
        """What else is to be done when the key is back; harmless when repeated."""
