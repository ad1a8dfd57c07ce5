"""Leases: what one, or some, may hold at a time."""

from __future__ import annotations

from sharedmem.coordination.ground import Primitive


class Leases(Primitive):
    """Leases: what one, or some, may hold at a time."""
