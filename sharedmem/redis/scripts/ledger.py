"""Operation ids: how a repeated call is known to be the same call.

Each hub keeps one ledger hash per namespace at the server. A call under way occupies a slot of it,
and its number rises with every call of this hub, so that the server can tell a repeat (answer again
what was answered) from a straggler of a connection long given up (refuse). The ledger is as large as
the most calls that were ever under way at once, not as the number of calls. The idea is the client
session of Raft (Ongaro, "Consensus: Bridging Theory and Practice", 6.3).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from sharedmem.clock import Clock

# A ledger outlives every call under way: it is prolonged often, and lives much longer than a call may last.
_SHORTEST_LIFE_S = 180.0
_LIFE_BEYOND_RETRIES_S = 120.0
_PROLONG_EVERY_S = 30.0


@dataclass(slots=True)
class _LedgerSlots:
    free: list[int] = field(default_factory=list)
    used: int = 0
    prolonged_at: float = float("-inf")


class OperationLedger:
    """Gives each mutation of one hub its slot and number.

    Args:
        clock: tells when a ledger's expiry is to be prolonged.
        retry_for_s: how long a call may be repeated, which its entry has to outlive.
    """

    def __init__(self, clock: Clock, *, retry_for_s: float) -> None:
        self._clock = clock
        self._keep_ms = round(max(_SHORTEST_LIFE_S, retry_for_s + _LIFE_BEYOND_RETRIES_S) * 1000)
        self._number = 0
        self._slots: defaultdict[bytes, _LedgerSlots] = defaultdict(_LedgerSlots)

    def take(self, operations: bytes) -> tuple[int, int, int]:
        """Occupy a slot of a ledger key.

        Returns:
            (slot, number of the operation, milliseconds by which to prolong the ledger or 0).
        """
        slots = self._slots[operations]
        self._number += 1
        if slots.free:
            slot = slots.free.pop()
            keep_ms = 0
        else:
            slot, slots.used = slots.used, slots.used + 1
            keep_ms = self._keep_ms
        now = self._clock.monotonic()
        if now - slots.prolonged_at > _PROLONG_EVERY_S:
            slots.prolonged_at, keep_ms = now, self._keep_ms
        return slot, self._number, keep_ms

    def give_back(self, operations: bytes, slot: int) -> None:
        """Free a slot: its call has been answered, or given up."""
        self._slots[operations].free.append(slot)
