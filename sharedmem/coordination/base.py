"""Base class of the coordination primitives, and the checks of their arguments."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from sharedmem.context import HubContext
from sharedmem.errors import InvalidError
from sharedmem.redis.change_stream import text_of
from sharedmem.redis.errors import public_key_error
from sharedmem.redis.keys import Target
from sharedmem.redis.replies import ServerError
from sharedmem.redis.scope import Scope
from sharedmem.runtime.process_bound import ProcessBound

T = TypeVar("T")
LONGEST_LEASE_S = 86_400.0
SHORTEST_LEASE_S = 0.05
_LONGEST_MARGIN_S = 1.0


class CoordinationBase(ProcessBound):
    """One way to agree, seen with the rights of one actor.

    Args:
        context: what the hub shares with its stores.
        scope: hands out names within the actor's rights.
    """

    def __init__(self, context: HubContext, scope: Scope) -> None:
        self._context = context
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
            held = text_of(await self._context.client.call("TYPE", target.physical))
            address = self._context.client.address
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
