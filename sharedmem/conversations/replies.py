"""Replies of the scripts on conversations as records and errors."""

from __future__ import annotations

from collections.abc import Mapping

from sharedmem.clock import from_microseconds
from sharedmem.errors import NotFoundError, VersionConflictError
from sharedmem.models import Conversation, ConversationChange
from sharedmem.models.record import of_checked
from sharedmem.redis.keys import Target
from sharedmem.redis.scripts.conversations import ConversationTerms

NOT_FOUND, NO_ENTRY = b"N", b"A"
_REVISION_CONFLICT, _STATE_CONFLICT = b"C", b"S"


def parse_change(
    target: Target, reply: bytes, terms: ConversationTerms, *, entry: str | None = None
) -> ConversationChange:
    """Return the result of a change.

    Raises:
        NotFoundError: the conversation does not exist, or has no such entry.
        VersionConflictError: a condition does not hold.
    """
    if not reply[:1].isdigit():
        if reply == NOT_FOUND:
            raise NotFoundError("conversation", target.key)
        if reply == NO_ENTRY:
            raise missing_entry_error(target, entry)
        check_conditions(target, reply, terms)
    revision, length, added, state = map(int, reply.split(b" "))
    return of_checked(
        ConversationChange, {"revision": revision, "length": length, "added": added, "state_version": state}
    )


def check_conditions(target: Target, reply: bytes, terms: ConversationTerms) -> None:
    """Check the reply to a change.

    Raises:
        VersionConflictError: a condition does not hold.
    """
    mark, current = reply[:1], reply[2:]
    if mark == _REVISION_CONFLICT:
        raise VersionConflictError(target.key, terms.revision or 0, int(current))
    if mark == _STATE_CONFLICT:
        raise VersionConflictError(f"{target.key} (its state)", terms.state or 0, int(current))


def missing_entry_error(target: Target, entry: str | None) -> NotFoundError:
    """Return the error for an entry that is not in a conversation."""
    advice = "read it again: the entry may have been removed"
    return NotFoundError(f"in conversation {target.key!r} entry", entry or "", advice)


def parse_head(key: str, head: Mapping[bytes, bytes], now_ms: int) -> Conversation:
    """Return a conversation from the fields of its head."""
    fields = {name.decode(): value.decode() for name, value in head.items()}
    namespace, ends = key.partition(":")[0], int(fields["ends"])
    return Conversation(
        key=key,
        revision=int(fields["revision"]),
        length=int(fields["length"]),
        state_version=int(fields["state"]),
        actor=fields["by"],
        created=from_microseconds(int(fields["created"])),
        updated=from_microseconds(int(fields["updated"])),
        user=fields["user"] or None,
        agent=fields["agent"] or None,
        app=fields["app"] or None,
        parent=f"{namespace}:{fields['parent']}" if fields["parent"] else None,
        shared=int(fields["at"]),
        ttl=max(ends - now_ms, 0) / 1000 if ends else None,
        renews=fields["renews"] == "1",
    )
