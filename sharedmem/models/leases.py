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


class LeaseState(Record):
    """Who holds a name, and how many wait for it."""

    holders: tuple[Holder, ...]
    """In the order in which their leases end."""
    waiting: int
