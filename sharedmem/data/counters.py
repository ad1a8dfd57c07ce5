"""Counters: whole numbers that many agents count up and down at once."""

from __future__ import annotations

from sharedmem.config import Kind
from sharedmem.data.key_access import KeyAccess, check_integer


class IntegerCounters:
    """Counts up and down. A counter is a bare number in Redis; `read` reads it too."""

    def __init__(self, keys: KeyAccess) -> None:
        self._counter_keys = keys

    async def incr(self, key: str, by: int = 1, *, ttl: float | None = None, kind: Kind | str | None = None) -> int:
        """Add to a counter, which starts at 0. One round trip; a repeat after a lost reply counts once.

        Args:
            key: plain or absolute.
            by: how much, a whole number of 64 bits.
            ttl: seconds until the counter expires, counted anew; None goes by `kind` and the rules.
            kind: memory kind, which sets the default life.

        Returns:
            The new number.

        Raises:
            InvalidError: the key holds no whole number, or the result would leave 64 bits.
            WrongTypeError, AccessDeniedError, UnavailableError: as `write`.
        """
        access = self._counter_keys
        target = access.scope.to_write(key)
        ttl_ms = access.lifetimes.ttl_ms(target.key, ttl, kind)
        keep = access.durability(target, kind=kind)
        call = access.scripts.counter_increment(
            target, access.actor, by=check_integer("by", by), ttl_ms=ttl_ms, keep=keep
        )
        _, number = await access.explained(target, "counter", call)
        return int(number)

    async def decr(self, key: str, by: int = 1, *, ttl: float | None = None, kind: Kind | str | None = None) -> int:
        """Subtract from a counter; as `incr` with the opposite sign."""
        return await self.incr(key, -check_integer("by", by), ttl=ttl, kind=kind)
