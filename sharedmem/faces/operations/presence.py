"""The operations of presence."""

from __future__ import annotations

from sharedmem.faces.operations.row import Operation
from sharedmem.models import Present, Record


class PresenceWho(Record):
    """Whom to look for."""

    role: str | None = None


PRESENCE_WHO = Operation(
    "presence.who",
    "Who is here, in the order in which they came.",
    "read",
    PresenceWho,
    list[Present],
    lambda store, ask: store.presence.who(ask.role),
)

ROWS = (PRESENCE_WHO,)
