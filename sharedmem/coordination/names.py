"""The names of locks and other primitives, with the rights of one actor, and the checks of lease and wait times."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import TypeVar

from sharedmem.context import HubContext
from sharedmem.errors import AccessDeniedError, InvalidError
from sharedmem.redis.change_stream import text_of
from sharedmem.redis.keys import Target
from sharedmem.redis.name_index import IndexedName, NameIndex
from sharedmem.redis.replies import ServerError, public_key_error
from sharedmem.redis.scope import Scope
from sharedmem.redis.scripts.coordination import NameScripts
from sharedmem.redis.service_keys import corruption_error, find_first_damage

T = TypeVar("T")
LONGEST_LEASE_S = 86_400.0
SHORTEST_LEASE_S = 0.05
_LONGEST_MARGIN_S = 1.0
_REFUSED = b"E "


class NameAccess:
    """The names that one actor may use for coordination, and the services that every primitive needs.

    Args:
        context: dependencies that the hub shares with its stores.
        scope: returns names within the actor's rights.
    """

    def __init__(self, context: HubContext, scope: Scope) -> None:
        self.context = context
        self.scope = scope
        self.actor = scope.signature

    def part(self, target: Target, part: str) -> bytes:
        """Return the service key of a name that holds one part of its state."""
        return self.scope.keyspace.part(target, part)

    @property
    def index(self) -> NameIndex:
        """The names in use in the namespace of the actor."""
        space, context = self.scope.home, self.context
        return context.shared(NameIndex, space.namespace, lambda: NameIndex(context.client, self.scope.keyspace, space))

    async def drop_names(self, gone: Sequence[IndexedName]) -> None:
        """Remove names that were found free from the index; those that are in use again stay. One round trip, or none.

        The Redis user of a reader may not: then another one does.
        """
        if gone:
            with suppress(AccessDeniedError):
                await NameScripts(self.context.executor).names_drop(
                    self.index.key, gone=[":".join(name) for name in gone]
                )

    async def explained(self, target: Target, call: Awaitable[T]) -> T:
        """Return the call's result; turn a refusal of the server into an error with the name.

        Raises:
            SharedMemoryError: the public error for the server's refusal.
        """
        try:
            return await call
        except ServerError as error:
            held = text_of(await self.context.client.call("TYPE", target.physical))
            address = self.context.client.address
            raise public_key_error(error, address, key=target.key, held=held, wanted="name to agree by") from error

    async def own_reply(self, target: Target, keys: Sequence[bytes], call: Awaitable[bytes]) -> bytes:
        """Return one caller's reply of a shared call; raise the error that the server gave for this one alone.

        Args:
            target: the key of the name.
            keys: the service keys of the name, that of its state first.
            call: gives the reply, `E <error>` for a refusal (lua/include/refusing.lua).

        Raises:
            CorruptionError: another client has written to one of the keys.
            SharedMemoryError: as `explained`.
        """
        reply = await self.explained(target, call)
        if not reply.startswith(_REFUSED):
            return reply
        damage = await find_first_damage(self.context.client.read_many, keys)
        raise damage or corruption_error(keys[0], reply.removeprefix(_REFUSED).decode(errors="replace"))


def safe_deadline(asked_at: float, lease_s: float) -> float:
    """Return when a holder must stop, on the local clock; this is before its lease expires at the server.

    Args:
        asked_at: when the request was sent, which is before the server began to count.
        lease_s: length of the lease at the server.
    """
    return asked_at + lease_s - min(lease_s / 10, _LONGEST_MARGIN_S)


def check_seconds(field: str, value: float, *, least: float, most: float) -> int:
    """Return a time in seconds as whole milliseconds, rounded up.

    Raises:
        InvalidError: the value is not a number, or out of bounds.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise InvalidError(field, value, f"give seconds from {least:g} to {most:g}")
    return -int(-value * 1000 // 1)


def check_lease_ms(lease: float) -> int:
    """Return a lease in seconds as whole milliseconds.

    Raises:
        InvalidError: the lease is under 0.05 s, or over a day.
    """
    return check_seconds("lease", lease, least=SHORTEST_LEASE_S, most=LONGEST_LEASE_S)


def check_wait(wait: float | None) -> float | None:
    """Return the longest wait in seconds; None without a limit.

    Raises:
        InvalidError: `wait` is not a number, or is negative.
    """
    if wait is None:
        return None
    if isinstance(wait, bool) or not isinstance(wait, int | float) or not wait >= 0:
        raise InvalidError("wait", wait, "give seconds, 0 to try once, or None to wait without a limit")
    return float(wait)
