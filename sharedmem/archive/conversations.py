"""Conversations of an archive: read from Redis, with the bytes of large entries, and written to Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from sharedmem.archive.endpoint import LargeValueStore, RedisEndpoint, WriteResult
from sharedmem.archive.snapshots import LeaveOut
from sharedmem.blobs.blobs import entries_owner
from sharedmem.durable.conversation_documents import (
    ENTRY,
    ConversationRestorer,
    entry_from_text,
    large_reference,
    read_documents,
    referring,
    with_member,
)
from sharedmem.errors import InvalidError, NotFoundError, UnavailableError
from sharedmem.models import DurableRecord
from sharedmem.redis.codec import MARKER
from sharedmem.redis.durability import RedisPart
from sharedmem.redis.keys import Target
from sharedmem.redis.replies import Argument, Command

_STAGED = "kept.staged"
_STAGED_MS = 3_600_000
_PAGE = 500
_CODEC = b"member"
_OUTCOMES: dict[bytes, WriteResult] = {b"y": "imported", b"n": "older"}
_MOST_ENTRY_BYTES = 24 << 20
"""A longer line could not be read again (see `frames`)."""
_DAMAGED = (ValueError, LookupError, TypeError)


class ConversationReader:
    """Reads conversations that are in Redis alone.

    Args:
        redis: the server.
        leave_out: called with (key, why) for conversations that cannot be read.
    """

    def __init__(self, redis: RedisEndpoint, leave_out: LeaveOut) -> None:
        self._redis = redis
        self._leave_out = leave_out

    async def documents(self, targets: Sequence[Target], *, are_kept: bool) -> AsyncIterator[list[DurableRecord]]:
        """Yield the documents of conversations, one conversation at a time.

        Args:
            targets: the keys of their heads.
            are_kept: whether there is a durable store, which copies the conversations that it has.

        Raises:
            UnavailableError, AccessDeniedError: the server cannot be reached, or does not allow it.
        """
        for target in targets:
            if are_kept and await self._redis.client.call("HGET", target.physical, "kept") == b"1":
                continue
            try:
                yield await read_documents(self._redis.client, self._redis.keyspace, target)
            except _DAMAGED as error:
                self._leave_out(target.key, f"another client has written there: {error}")


class LargeEntryDocuments:
    """Replaces references in documents of entries by the bytes, and bytes by references.

    Args:
        blobs: the store of large values.
        leave_out: called with (key, why) for entries whose bytes cannot be read.
    """

    def __init__(self, blobs: LargeValueStore, leave_out: LeaveOut) -> None:
        self._blobs = blobs
        self._leave_out = leave_out

    async def whole(self, record: DurableRecord) -> DurableRecord | None:
        """Return the document of an entry with its bytes; None if they are lost, or too many."""
        try:
            reference = large_reference(record)
            if reference is None:
                return record
            member = await self._blobs.read(entries_owner(record.namespace), reference)
        except (NotFoundError, *_DAMAGED) as error:
            self._leave_out(record.key, f"the bytes of entry {record.element} cannot be read: {error}")
            return None
        if len(member) > _MOST_ENTRY_BYTES:
            self._leave_out(record.key, f"entry {record.element} has {len(member)} bytes: too many for an archive")
            return None
        return with_member(record, member)

    async def stored(self, record: DurableRecord, *, large_from: int) -> DurableRecord:
        """Return the document of an entry with a reference, if it has more bytes than `large_from`."""
        if record.type != ENTRY or len(record.body) <= large_from:
            return record
        try:
            item = entry_from_text(record)
        except _DAMAGED as error:
            raise InvalidError("document", f"{record.key} {record.element}", "it is not an entry") from error
        if item.is_large or len(item.member.removeprefix(MARKER)) <= large_from:
            return record
        return referring(record, await self._blobs.write(entries_owner(record.namespace), _CODEC, item.member))


class ConversationWriter:
    """Writes conversations to a server without a durable store.

    Args:
        redis: the server.
        mark: part of the names of staged keys that no other import has.
        replace: whether to replace a conversation that is as new.
    """

    def __init__(self, redis: RedisEndpoint, mark: str, *, replace: bool) -> None:
        self._redis = redis
        self._mark = mark
        self._replace = replace
        self._restorer = ConversationRestorer(redis.keyspace)

    async def write(self, head: DurableRecord, elements: Sequence[DurableRecord], actor: bytes) -> WriteResult:
        """Write a conversation, unless there is one as new.

        Raises:
            InvalidError: the documents are not a conversation.
            UnavailableError: the server cannot be reached, or the namespace is being cleared.
        """
        target = self._redis.keyspace.target(head.key)
        try:
            parts = [part for part in self._restorer.parts(target, [head, *elements]) if part.rows]
        except _DAMAGED as error:
            raise InvalidError("document", head.key, "it is not that of a conversation") from error
        pairs: list[bytes] = []
        commands: list[Command] = []
        for number, part in enumerate(parts):
            staged = self._redis.keyspace.item(target, _STAGED, f"{self._mark}.c{number}")
            commands += [("UNLINK", staged), *_staging(part, staged), ("PEXPIRE", staged, _STAGED_MS)]
            pairs += (staged, part.place)
        await self._redis.client.read_many(commands, aside=True)
        reply = await self._redis.conversation_scripts.conversation_restore(
            target.space,
            target.physical,
            actor,
            parts=pairs,
            updated=head.version,
            ends=head.expires,
            replace=int(self._replace),
        )
        if reply not in _OUTCOMES:
            raise UnavailableError(f"key {head.key!r}", "its staged data has expired; run it again")
        return _OUTCOMES[reply]


def _staging(part: RedisPart, staged: bytes) -> list[Command]:
    commands: list[Command] = []
    for first in range(0, len(part.rows), _PAGE):
        cells: list[Argument] = [cell for row in part.rows[first : first + _PAGE] for cell in row]
        commands.append((part.command, staged, *cells))
    return commands
