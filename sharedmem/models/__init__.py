"""The records that calls answer with: frozen, typed, the same on every face."""

from sharedmem.models.record import Record
from sharedmem.models.shared import Change, Entry, Gap, Health, Message, Missed, Powers, TypeUsage, Usage

__all__ = ["Change", "Entry", "Gap", "Health", "Message", "Missed", "Powers", "Record", "TypeUsage", "Usage"]
