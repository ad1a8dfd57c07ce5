"""Base class of the coordination primitives, and the dependencies that a hub shares with them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeVar

from sharedmem.clock import Clock
from sharedmem.config import Settings
from sharedmem.coordination.lease_renewal import LeaseRenewer
from sharedmem.coordination.wait_queue import WaitNotifier
from sharedmem.errors import InvalidError, SharedMemoryError
from sharedmem.redis.change_stream import text_of
from sharedmem.redis.client import RedisClient
from sharedmem.redis.durability import Tier
from sharedmem.redis.errors import public_key_error
from sharedmem.redis.keys import Target
from sharedmem.redis.replies import ServerError
from sharedmem.redis.scope import Scope
from sharedmem.redis.scripts.executor import ScriptExecutor
from sharedmem.runtime import Counters
from sharedmem.runtime.background import Background
from sharedmem.runtime.process_bound import ProcessBound

T = TypeVar("T")
LONGEST_LEASE_S = 86_400.0
SHORTEST_LEASE_S = 0.05
_LONGEST_MARGIN_S = 1.0


class ResultStore(Protocol):
    """Where results lie that are too large for Redis."""

    async def read(self, key: str, reference: str) -> bytes:
        """The bytes behind a reference.

        Raises:
            NotFoundError: they are gone, or not what was stored.
            UnavailableError: the place cannot be read just now.
        """

    async def write(self, key: str, codec: bytes, body: bytes) -> str:
        """Store bytes; returns the reference to them.

        Raises:
            UnavailableError: the place cannot be written.
        """


@dataclass(frozen=True)
class CoordinationContext:
    """What a hub lends to the primitives of its stores."""

    line: RedisClient
    sender: ScriptExecutor
    wakeups: WaitNotifier
    background: Background
    counters: Counters
    clock: Clock
    settings: Settings
    large: ResultStore
    tier: Tier | None = None
    """The durable tier, if one stands behind."""

    @cached_property
    def lease_renewer(self) -> LeaseRenewer:
        """Renews what the tasks of this hub hold."""
        return LeaseRenewer(self.background, self.clock)

    def release_in_background(self, name: str, say: Callable[[], Awaitable[object]]) -> None:
        """Tell the server, in the background, what a caller that is gone cannot; timers mend what does not arrive.

        A hub that closes waits for it, a few seconds at most.

        Args:
            name: of the work, a verb first.
            say: makes the call; what goes wrong with it is nobody's any more.
        """

        async def said() -> None:
            with suppress(SharedMemoryError):
                await say()

        with suppress(SharedMemoryError):  # the hub is closed
            self.background.start_cleanup(name, said())


class CoordinationBase(ProcessBound):
    """One way to agree, seen with the rights of one actor.

    Args:
        ground: what the hub lends.
        scope: hands out names within the actor's rights.
    """

    def __init__(self, ground: CoordinationContext, scope: Scope) -> None:
        self._ground = ground
        self._scope = scope
        self._actor = scope.signature

    def _part(self, target: Target, part: str) -> bytes:
        return self._scope.keyspace.part(target, part)

    async def _translated(self, target: Target, call: Awaitable[T]) -> T:
        """The call's result; what the server refuses is told with the name it was about.

        Raises:
            SharedMemoryError: the server's refusal, as people read it.
        """
        try:
            return await call
        except ServerError as error:
            held = text_of(await self._ground.line.call("TYPE", target.physical))
            address = self._ground.line.address
            raise public_key_error(error, address, key=target.key, held=held, wanted="name to agree by") from error


def safe_deadline(asked_at: float, lease_s: float) -> float:
    """Up to when a lease surely lasts, on the local clock: whoever holds it steps down before it ends at the server.

    Args:
        asked_at: when it was asked for, which is before the server began to count.
        lease_s: how long it lasts there.
    """
    return asked_at + lease_s - min(lease_s / 10, _LONGEST_MARGIN_S)


def check_seconds(field: str, value: float, *, least: float, most: float) -> int:
    """A time in seconds as whole milliseconds, rounded up.

    Raises:
        InvalidError: not a number, or out of bounds.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise InvalidError(field, value, f"give seconds from {least:g} to {most:g}")
    return -int(-value * 1000 // 1)


def check_lease_ms(lease: float) -> int:
    """A lease in seconds as whole milliseconds.

    Raises:
        InvalidError: under 0.05 s, or over a day.
    """
    return check_seconds("lease", lease, least=SHORTEST_LEASE_S, most=LONGEST_LEASE_S)


def check_wait(wait: float | None) -> float | None:
    """How many seconds a caller would wait; None for as long as it takes.

    Raises:
        InvalidError: it is no number, or negative.
    """
    if wait is None:
        return None
    if isinstance(wait, bool) or not isinstance(wait, int | float) or not wait >= 0:
        raise InvalidError("wait", wait, "give seconds, 0 to try once, None to wait for as long as it takes")
    return float(wait)
