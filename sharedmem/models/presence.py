"""What presence answers."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sharedmem.models.record import Record


class Present(Record):
    """An actor who is here."""

    actor: str
    role: str
    info: Any
    """What it says of itself."""
    since: datetime
    last_seen: datetime
    remaining: float
    """Seconds until it counts as lapsed, unless it is heard of again."""
