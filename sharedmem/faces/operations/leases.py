"""The operations of locks, semaphores, read/write locks and leaders: what can be asked of them from outside."""

from __future__ import annotations

from sharedmem.coordination.leases import LeaseKind
from sharedmem.faces.operations.row import Operation
from sharedmem.models import LeaseGrant, LeaseState, Record
from sharedmem.store import SharedMemoryStore


class OnLease(Record):
    """A name, and which kind of thing it names."""

    name: str
    kind: LeaseKind = "lock"


class LeaseAcquire(Record):
    """Which lock to take, for how long, and how long to wait for it."""

    name: str
    lease: float = 30.0
    wait: float | None = 0.0


class OnGrant(Record):
    """A lock that was taken."""

    name: str
    id: str


class LeaseRenew(OnGrant):
    """For how long to keep a lock."""

    lease: float = 30.0


async def _state(store: SharedMemoryStore, ask: OnLease) -> LeaseState:
    return await store.lease_state(ask.name, ask.kind)


LEASE_STATE = Operation("lease.state", "Who holds a name, and how many wait.", "read", OnLease, LeaseState, _state)
LEASE_ACQUIRE = Operation(
    "lease.acquire",
    "Take a lock; it comes free when its lease ends.",
    "write",
    LeaseAcquire,
    LeaseGrant,
    lambda store, ask: store.lease_acquire(ask.name, lease=ask.lease, wait=ask.wait),
)
LEASE_RENEW = Operation(
    "lease.renew",
    "Keep a lock that was taken.",
    "write",
    LeaseRenew,
    LeaseGrant,
    lambda store, ask: store.lease_renew(ask.name, ask.id, lease=ask.lease),
)
LEASE_RELEASE = Operation(
    "lease.release",
    "Give a lock back; whether it was held until now.",
    "write",
    OnGrant,
    bool,
    lambda store, ask: store.lease_release(ask.name, ask.id),
)

ROWS = (LEASE_STATE, LEASE_ACQUIRE, LEASE_RENEW, LEASE_RELEASE)
