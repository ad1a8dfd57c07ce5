"""Task queues: work that is handed out, and handed out again when its worker dies."""

from __future__ import annotations

from sharedmem.coordination.ground import Primitive


class Queues(Primitive):
    """Task queues: work that is handed out, and handed out again when its worker dies."""
