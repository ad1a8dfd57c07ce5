"""Rate limits: how often a caller may do a thing."""

from __future__ import annotations

from sharedmem.coordination.ground import Primitive


class Limits(Primitive):
    """Rate limits: how often a caller may do a thing."""
