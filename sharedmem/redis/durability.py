"""The interface of the durable tier for scripts and facets, and the marks of durable keys.

Lifetimes and modes of keys follow from ttl arguments, kinds and rules, computed without I/O.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Container, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from sharedmem.config import Kind
from sharedmem.errors import InvalidError, SharedMemoryError, UnavailableError
from sharedmem.redis.keys import Target
from sharedmem.redis.replies import Argument, Command
from sharedmem.redis.scope import Matcher

if TYPE_CHECKING:
    from sharedmem.models import DurableRecord

T = TypeVar("T")

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


class RecordTier(Protocol):
    """The durable tier behind the memories, graphs and notes in Redis, which are restored all together."""

    @property
    def is_durable(self) -> bool:
        """Whether changes of records are written to a durable store."""

    async def gather(self, namespace: str, *, again: bool = False) -> bool:
        """Ensure that Redis has all records of a namespace; return at once if that is known.

        Args:
            namespace: the namespace.
            again: check even if it was known before: something was not found. One round trip if they are there.

        Returns:
            Whether records were missing, and are restored now.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: records are missing, and the tier is unreachable.
        """

    async def retry_after_restore(
        self, namespace: str, look: Callable[[], Awaitable[T]], is_empty: Callable[[T], bool]
    ) -> T:
        """Return the result of a read; repeat the read if records were missing and have been restored.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: as `gather`.
        """


class NoRecordTier:
    """The tier of records that only Redis has: they are lost with it."""

    is_durable = False

    async def gather(self, namespace: str, *, again: bool = False) -> bool:  # noqa: ARG002  # nothing can be restored
        """Return False: nothing can be restored."""
        return False

    async def retry_after_restore(
        self,
        namespace: str,  # noqa: ARG002  # nothing can be restored
        look: Callable[[], Awaitable[T]],
        is_empty: Callable[[T], bool],  # noqa: ARG002  # likewise
    ) -> T:
        """Return the result of a read."""
        return await look()


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


# -- lifetimes -----------------------------------------------------------------------------------


NO_EXPIRY = 0
KEEP_EXPIRY = -1
LONGEST_TTL_S = 100 * 365 * 86_400


class Lifetimes:
    """Turns a `ttl`, else a `kind`, else the rule for the key, into milliseconds.

    Args:
        rules: kind of the keys that a pattern matches; the first match decides.
        ephemeral_ttl_s: default lifetime of ephemeral keys.
        session_ttl_s: default lifetime of session keys.
    """

    def __init__(self, rules: Mapping[str, Kind], *, ephemeral_ttl_s: float, session_ttl_s: float) -> None:
        self._rules = [(pattern.partition(":")[0], Matcher(pattern), kind) for pattern, kind in rules.items()]
        # Most namespaces have no rule, and their writes should not pay for the rules of others.
        self._anywhere = any("*" in namespace or "?" in namespace for namespace, _, _ in self._rules)
        self._namespaces = {namespace for namespace, _, _ in self._rules}
        self._latest: tuple[str, Kind | None] = "", None
        # Knowledge has no expiry; with a durable tier, its copy in Redis gets one after the tier has it.
        self._default_ms = {
            Kind.EPHEMERAL: round(ephemeral_ttl_s * 1000),
            Kind.SESSION: round(session_ttl_s * 1000),
            Kind.KNOWLEDGE: NO_EXPIRY,
        }

    def ttl_ms(self, key: str, ttl: float | None, kind: Kind | str | None = None) -> int:
        """Return the milliseconds to live of an absolute key; 0: for ever.

        Args:
            key: the absolute key.
            ttl: seconds, over 0 and at most 100 years; None: use the kind.
            kind: kind of the key; None: use the rules.

        Raises:
            InvalidError: the ttl or kind is invalid.
        """
        if ttl is not None:
            return check_ttl_ms(ttl)
        if kind is not None:
            return self._default_ms[_parse_kind(kind)]
        rule = self.rule(key)
        return NO_EXPIRY if rule is None else self._default_ms[rule]

    def mode(self, key: str, kind: Kind | str | None = None) -> str:
        """Return the durability mode of an absolute key (see `sharedmem.redis.durability`).

        Raises:
            InvalidError: the kind is invalid.
        """
        rule = self.rule(key)
        if kind is None:
            return UNCHANGED_MODE if rule is None else RULE_MODES.get(rule, DROP_MODE)
        given = _parse_kind(kind)
        if given == Kind.EPHEMERAL:
            return DROP_AGAINST_RULE_MODE if rule in RULE_MODES else DROP_MODE
        return (RULE_MODES if given == rule else ARGUMENT_MODES)[given]

    def rule(self, key: str) -> Kind | None:
        """Return the kind of an absolute key by the rules; None if no rule matches."""
        if not self._anywhere and key.partition(":")[0] not in self._namespaces:
            return None
        # A write asks twice about its key, for the lifetime and the mode.
        if key != self._latest[0]:
            self._latest = key, next((kind for _, matches, kind in self._rules if matches(key)), None)
        return self._latest[1]


def check_ttl_ms(ttl: float) -> int:
    """Return a time-to-live in seconds as whole milliseconds.

    Raises:
        InvalidError: the ttl is not a number, not positive, under a millisecond, or over 100 years.
    """
    if isinstance(ttl, bool) or not isinstance(ttl, int | float):
        raise InvalidError("ttl", ttl, "give a number of seconds")
    if not 0.001 <= ttl <= LONGEST_TTL_S:
        raise InvalidError("ttl", ttl, f"give seconds from 0.001 to {LONGEST_TTL_S} (100 years); leave it out for ever")
    return round(ttl * 1000)


def _parse_kind(kind: Kind | str) -> Kind:
    try:
        return Kind(kind)
    except ValueError as error:
        raise InvalidError("kind", kind, f"choose one of {', '.join(Kind)}") from error
