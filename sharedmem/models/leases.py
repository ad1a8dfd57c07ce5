"""What can be told of locks, semaphores, read/write locks and leaders."""

from __future__ import annotations

from sharedmem.models.record import Record


class Holder(Record):
    """Somebody who holds something now."""

    token: int
    """Fencing token: higher than those of all earlier holders."""
    actor: str
    remaining_ms: int
    """Until the lease ends if it is not renewed, by the server's clock."""


class LeaseGrant(Record):
    """A lock that was given to a holder who renews it by itself, call by call."""

    name: str
    token: int
    """Fencing token: goes along with what is written under the lock."""
    id: str
    """Renews the lease, and gives it back: whoever knows it may."""
    remaining: float
    """Seconds until it ends if it is not renewed."""


class LeaseState(Record):
    """Who holds a name, and how many wait for it."""

    holders: tuple[Holder, ...]
    """In the order in which their leases end."""
    waiting: int
