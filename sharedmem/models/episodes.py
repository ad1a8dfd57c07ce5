"""What calls on episodes answer with."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sharedmem.models.record import Record


class EpisodeEvent(Record):
    """One event of a session."""

    at: datetime
    """Server time."""
    actor: str
    event: Any
    cursor: str
    """Pass it as `since` to go on after this event."""
