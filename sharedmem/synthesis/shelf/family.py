"""How notes are found."""

from __future__ import annotations

from sharedmem.search.protocol import Family
from sharedmem.wire.noting import NOTE

TAGS = ("ns", "app", "user", "session", "status")
NUMBERS = ("at",)
"""`at`: milliseconds since 1970 at which it was made."""


def note_family(model: str, dimension: int) -> Family:
    """How notes are found, with the vectors of an embedder."""
    return Family(NOTE, TAGS, NUMBERS, model, dimension)
