"""Conversations: entries of a log, pages of them, and what is known of a conversation."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sharedmem.models.record import Record


class ConversationEntry(Record):
    """One entry of a conversation."""

    id: str
    """The id that the caller gave; without one, the cursor."""
    value: Any
    actor: str
    at: datetime
    cursor: str
    """Version of the entry: pass it as `after` to read on behind it."""


class ConversationPage(Record):
    """Entries of a conversation that follow each other, oldest first."""

    revision: int
    """Version of the last change of the log; 0 if the conversation does not exist."""
    length: int
    """Number of entries in the whole log."""
    first: int
    """Position of the first entry of this page, counted from 0."""
    entries: list[ConversationEntry]

    @property
    def cursor(self) -> str | None:
        """The cursor of the last entry: pass it as `after`; None on an empty page."""
        return self.entries[-1].cursor if self.entries else None

    @property
    def has_more(self) -> bool:
        """Whether the log had entries behind this page."""
        return self.first + len(self.entries) < self.length


class ConversationChange(Record):
    """The result of a change of a conversation."""

    revision: int
    """Version of the last change of the log: pass it as `if_revision`."""
    length: int
    """Number of entries in the log."""
    added: int
    """Number of new entries; those whose ids were in the log already are not counted."""
    state_version: int
    """Version of the last change of the state: pass it as `if_state`; 0 without a state."""


class PoppedEntries(Record):
    """Entries that were removed from the end of a conversation, oldest first."""

    revision: int
    length: int
    entries: list[ConversationEntry]


class ConversationState(Record):
    """The document beside the log of a conversation."""

    fields: dict[str, Any]
    version: int
    """Version of its last change: pass it as `if_state`; 0 if it was never set."""


class Conversation(Record):
    """What is known of a conversation, without its entries."""

    key: str
    """Its absolute key, `<namespace>:<scope>:<id>`, which every operation accepts as id."""
    revision: int
    length: int
    state_version: int
    actor: str
    """The actor that created it."""
    created: datetime
    updated: datetime
    """Time of the last change of its log or state."""
    user: str | None
    agent: str | None
    app: str | None
    parent: str | None
    """The absolute key of the conversation from which it was forked."""
    shared: int
    """Number of entries that it got from its parent."""
    ttl: float | None
    """Seconds until it expires, as of the call; None if it never expires."""
    renews: bool
    """Whether each use begins its lifetime anew."""


class ConversationList(Record):
    """Conversations by their last change."""

    conversations: list[Conversation]
    cursor: str | None
    """Pass it as `cursor` to continue; None after the last one."""


class ConversationErasure(Record):
    """What an erasure of conversations deleted, or would delete."""

    conversations: int
    entries: int
    """Number of their entries, with the entries that they share with forks."""


class ConversationStats(Record):
    """Size of a conversation at the server."""

    length: int
    bytes: int
    """Memory of its own keys, without segments that it shares with other conversations."""
    shared_bytes: int
    """Memory of the segments that it shares."""
    segments: int
    """Number of lists that hold its entries."""
