"""What barriers answer."""

from __future__ import annotations

from sharedmem.models.record import Record


class Arrival(Record):
    """How somebody came through a barrier."""

    position: int
    """0 for who came first, up to the number of parties less one; each is given once a generation."""
    generation: int
    """Fencing token of this opening, the same for all parties: it rises with every opening."""
