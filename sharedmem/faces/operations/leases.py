"""The operations of locks, semaphores, read/write locks and leaders: what can be asked of them from outside."""

from __future__ import annotations

from sharedmem.coordination.leases import LeaseKind
from sharedmem.faces.operations.row import Operation
from sharedmem.models import LeaseState, Record
from sharedmem.store import SharedMemoryStore


class OnLease(Record):
    """A name, and which kind of thing it names."""

    name: str
    kind: LeaseKind = "lock"


async def _state(store: SharedMemoryStore, ask: OnLease) -> LeaseState:
    return await store.lease_state(ask.name, ask.kind)


LEASE_STATE = Operation("lease.state", "Who holds a name, and how many wait.", "read", OnLease, LeaseState, _state)

ROWS = (LEASE_STATE,)
