"""Barriers: nobody goes on before all have come."""

from __future__ import annotations

from sharedmem.coordination.ground import Primitive


class Barriers(Primitive):
    """Barriers: nobody goes on before all have come."""
