"""Once: work that is done a single time, however many ask for it."""

from __future__ import annotations

from sharedmem.coordination.ground import Primitive


class Once(Primitive):
    """Once: work that is done a single time, however many ask for it."""
