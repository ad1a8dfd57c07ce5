"""Presence: who is there, in what role."""

from __future__ import annotations

from sharedmem.coordination.ground import Primitive


class Presences(Primitive):
    """Presence: who is there, in what role."""
