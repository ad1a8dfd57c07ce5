"""Conversations of a store: append to a log under a revision, read it, cut it, fork it, and patch its state."""

from __future__ import annotations

import builtins
import re
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from functools import partial
from typing import Literal, cast

from sharedmem.blobs.blobs import BlobReference
from sharedmem.context import HubContext
from sharedmem.conversations.access import KIND, ConversationAccess
from sharedmem.conversations.arguments import TAGS, check_count, check_tag, check_tags, check_version, checked_ttl_ms
from sharedmem.conversations.entries import encode_entries, encode_fields, encode_id, parse_entries
from sharedmem.conversations.large_entries import LargeEntries
from sharedmem.conversations.replies import (
    NO_ENTRY,
    NOT_FOUND,
    check_conditions,
    missing_entry_error,
    parse_change,
    parse_head,
)
from sharedmem.data.keys import KeyAccess
from sharedmem.errors import InvalidError, NotFoundError, VersionConflictError
from sharedmem.models import (
    Conversation,
    ConversationChange,
    ConversationErasure,
    ConversationList,
    ConversationPage,
    ConversationState,
    ConversationStats,
    PoppedEntries,
)
from sharedmem.models.record import of_checked
from sharedmem.redis.change_stream import as_list, text_of
from sharedmem.redis.codec import decode_member
from sharedmem.redis.conversation_heads import parse_fields
from sharedmem.redis.keys import SHARED_SCOPE, Space, Target
from sharedmem.redis.replies import Command, Reply
from sharedmem.redis.scope import Scope
from sharedmem.redis.scripts.conversations import (
    NO_TERMS,
    ConversationAppend,
    ConversationKeys,
    ConversationScripts,
    ConversationTerms,
)
from sharedmem.redis.scripts.data import WriteBatcher
from sharedmem.redis.service_keys import decoding
from sharedmem.runtime import Counters, measured
from sharedmem.runtime.concurrency import ProcessBound

Order = Literal["newest", "oldest"]
_MOST_READ = 10_000
_NOT_DUE = (b"0", 0)
_MOST_LISTED = 500
_MOST_POPPED = 100
_CURSOR = re.compile(r"[0-9]{16}")


class Conversations(ProcessBound):
    """Conversations of one namespace: each is a log of entries with a revision, and a document beside it.

    An id is a key: plain ids are in the store's own scope, and the rights are those of values.

    Args:
        context: dependencies that the hub shares with its stores.
        scope: returns keys within the actor's rights.
    """

    def __init__(self, context: HubContext, scope: Scope) -> None:
        self._counters: Counters = context.counters
        self._keys = KeyAccess(context, scope)
        self._scripts = ConversationScripts(context.executor)
        self._access = ConversationAccess(
            self._keys, WriteBatcher[Space, ConversationAppend](self._append_apart, context.background)
        )
        self._largest = context.settings.blob_threshold_bytes
        self._large = LargeEntries(context)

    async def append(
        self,
        id: str,  # noqa: A002  # the word of the field
        entries: Iterable[object],
        *,
        if_revision: int | None = None,
        entry_ids: Sequence[str] | None = None,
        state: Mapping[str, object] | None = None,
        if_state: int | None = None,
        tags: Mapping[str, str] | None = None,
        ttl: float | None = None,
        renew: bool = False,
    ) -> ConversationChange:
        """Append entries to a conversation, all or none; the first call creates it. One round trip.

        Args:
            id: plain (in this store's scope) or absolute.
            entries: up to 1,000 values as `write` accepts them; large ones go to the blob store.
            if_revision: append only if the log has this revision; 0: only if the conversation does not exist.
            entry_ids: an id for each entry, up to 128 bytes. Entries whose ids the log has are left out; if it has all
                of them, the call changes nothing and succeeds, whatever its conditions.
            state: fields to set in the state, in the same atomic step; None removes a field.
            if_state: append only if the state has this version; 0: only if it was never set.
            tags: any of `user`, `agent` and `app`, by which `list` finds the conversation; others stay unchanged.
            ttl: seconds until the conversation expires, counted from now; None: unchanged (at first: never).
            renew: with `ttl`: each append and read counts the seconds anew.

        Raises:
            VersionConflictError: the log or the state has another version.
            InvalidError: an argument is invalid. Nothing was written.
            AccessDeniedError: this actor may not write there.
            UnavailableError: the server cannot be reached; the entries may or may not have been appended.
        """
        target = self._keys.scope.to_write(id)
        fields = encode_fields(state, largest=self._largest) if state is not None else ()
        terms = NO_TERMS
        if fields or not (if_revision is None and if_state is None and ttl is None and tags is None):
            terms = ConversationTerms(
                check_version("if_revision", if_revision),
                check_version("if_state", if_state),
                checked_ttl_ms(ttl),
                renew,
                *check_tags(tags),
                fields=len(fields) // 2,
            )
        coded = encode_entries(entries, entry_ids)
        references: builtins.list[BlobReference] = []
        size = sum(map(len, coded))
        if size > self._largest:
            references = await self._large.stored(target, coded)
            size = sum(map(len, coded))
        reply = await self._append(target, terms, fields, coded, size=size + sum(map(len, fields)))
        if not references:
            return parse_change(target, reply, terms)
        try:
            change = parse_change(target, reply, terms)
        except VersionConflictError:
            await self._large.remove(target, references)
            raise
        if not change.added:
            await self._large.remove(target, references)
        return change

    async def read(
        self,
        id: str,  # noqa: A002  # as above
        *,
        last: int | None = None,
        after: str | None = None,
        around: str | None = None,
        limit: int = 100,
    ) -> ConversationPage:
        """Return entries of a conversation, oldest first; an empty page if it does not exist. One round trip.

        At the first read of a fork, or of a log that was cut below a fork, `last` takes two.

        Args:
            id: plain or absolute.
            last: the newest so many entries, at most 10,000.
            after: the entries behind this one: its cursor or id. A cursor is valid even if the entry was removed.
            around: the entries before and after this one, and it itself.
            limit: most entries with `after`, `around`, or none of them (from the oldest entry); at most 10,000.

        Raises:
            NotFoundError: the entry of `after` or `around` is not in the conversation, or the bytes of a large one
                are lost.
            InvalidError: the id or an argument is invalid, or several of `last`, `after` and `around` are given.
            AccessDeniedError, UnavailableError: as `read` of values.
        """
        target = self._keys.scope.to_read(id)
        if (last is not None) + (after is not None) + (around is not None) > 1:
            raise InvalidError("read", (last, after, around), "give only one of last, after and around")
        entry = after if around is None else around
        mode = "last" if last is not None else "around" if around is not None else "after"
        reference = b"" if entry is None else encode_id(mode, entry)
        most = check_count("limit", limit, _MOST_READ) if last is None else check_count("last", last, _MOST_READ)
        before: builtins.list[bytes] | None = None
        is_plain = last is not None and self._access.may_be_plain(target, most)
        while True:
            reply: Reply = await self._access.read_plain(target, most) if is_plain and before is None else None
            if reply is None:
                reply = await self._access.asked(target, partial(self._read, target, mode, reference, most), _is_none)
            if reply == NO_ENTRY:
                raise missing_entry_error(target, entry)
            if reply is None:
                return ConversationPage(revision=0, length=0, first=0, entries=[])
            *counts, is_due, page = as_list(reply)
            items = cast("builtins.list[bytes]", page)
            if is_due not in _NOT_DUE:
                await self._append(target, ConversationTerms(must_exist=True))
            try:
                return self._parse_page(target, counts, await self._large.resolved(target, items))
            except NotFoundError:
                # If a large entry was removed since it was read, the page is another one by now.
                if items == before:
                    raise
                before = items

    def _read(self, target: Target, mode: str, reference: bytes, limit: int) -> Awaitable[Reply]:
        is_alone = int(self._access.tier is None)
        return self._scripts.conversation_read(
            self._head(target), mode=mode, reference=reference, limit=limit, renews=is_alone
        )

    def _parse_page(self, target: Target, counts: Sequence[Reply], items: Sequence[bytes]) -> ConversationPage:
        with decoding(self._head(target)):
            revision, length, first = counts
            entries, known = parse_entries(items), _number(length)
            return of_checked(
                ConversationPage,
                {
                    "revision": _number(revision),
                    "length": known,
                    "first": known - len(entries) if first is None else _number(first),
                    "entries": entries,
                },
            )

    @measured("conversations.pop")
    async def pop(self, id: str, count: int = 1, *, if_revision: int | None = None) -> PoppedEntries:  # noqa: A002
        """Remove the newest entries and return them, oldest first. One round trip.

        A repeat after a lost reply returns the same entries. Forks keep the entries that they share.

        Args:
            id: plain or absolute.
            count: how many, at most 100: the server keeps the reply for a repeat.
            if_revision: only if the log has this revision.

        Raises:
            VersionConflictError: the log has another revision.
            InvalidError, AccessDeniedError, UnavailableError: as `append`.
        """
        target = self._keys.scope.to_write(id)
        terms = ConversationTerms(check_version("if_revision", if_revision))
        head = self._access.head(target)
        call = self._scripts.conversation_pop(
            target.space,
            ConversationKeys(head.physical),
            self._keys.actor,
            expect=terms.expected_revision,
            count=check_count("count", count, _MOST_POPPED),
            keep=self._access.keep(head),
        )
        reply = await self._access.changed(target, call)
        if reply == NOT_FOUND:
            return PoppedEntries(revision=0, length=0, entries=[])
        check_conditions(target, reply, terms)
        header, _, body = reply.partition(b"\n")
        items: builtins.list[bytes] = []
        at = 0
        with decoding(head.physical):
            revision, length, sizes = header.split(b" ")
            for size in sizes.split(b",") if sizes else ():
                items.append(body[at : at + int(size)])
                at += int(size)
        items = await self._large.resolved(target, items)
        with decoding(head.physical):
            entries = parse_entries(items)
        await self._large.remove(target, body[at:].split(b"\n")[1:])
        return PoppedEntries(revision=int(revision), length=int(length), entries=entries)

    @measured("conversations.replace_suffix")
    async def replace_suffix(
        self,
        id: str,  # noqa: A002  # as above
        after: str | None,
        entries: Iterable[object],
        *,
        entry_ids: Sequence[str] | None = None,
        if_revision: int | None = None,
        state: Mapping[str, object] | None = None,
        if_state: int | None = None,
    ) -> ConversationChange:
        """Replace all entries behind one of them, in one atomic step and one round trip.

        Forks keep the entries that they share.

        Args:
            id: plain or absolute.
            after: cursor or id of the last entry that stays; None: no entry stays.
            entries, entry_ids, if_revision, state, if_state: as `append`; ids of the removed entries may be used again.

        Raises:
            NotFoundError: the conversation does not exist, or has no such entry.
            VersionConflictError, InvalidError, AccessDeniedError, UnavailableError: as `append`.
        """
        target = self._keys.scope.to_write(id)
        fields = encode_fields(state, largest=self._largest)
        terms = ConversationTerms(
            check_version("if_revision", if_revision), check_version("if_state", if_state), fields=len(fields) // 2
        )
        last = b"" if after is None else encode_id("after", after)
        coded = encode_entries(entries, entry_ids)
        references = await self._large.stored(target, coded)
        head = self._access.head(target)
        call = self._scripts.conversation_replace(
            target.space,
            ConversationKeys(head.physical),
            self._keys.actor,
            terms=terms.text(),
            after=last,
            fields=fields,
            entries=coded,
            keep=self._access.keep(head),
        )
        reply, *loose = (await self._access.changed(target, call)).split(b"\n")
        try:
            change = parse_change(target, reply, terms, entry=after)
        except (VersionConflictError, NotFoundError):
            await self._large.remove(target, references)
            raise
        await self._large.remove(target, loose)
        return change

    @measured("conversations.clear")
    async def clear(self, id: str, *, if_revision: int | None = None) -> ConversationChange:  # noqa: A002
        """Remove all entries; the conversation, its state and its tags stay. One round trip.

        Raises:
            NotFoundError: the conversation does not exist.
            VersionConflictError, InvalidError, AccessDeniedError, UnavailableError: as `append`.
        """
        return await self.replace_suffix(id, None, (), if_revision=if_revision)

    @measured("conversations.delete")
    async def delete(self, id: str, *, if_revision: int | None = None) -> bool:  # noqa: A002
        """Delete a conversation with its state; return False if it did not exist. One round trip.

        Forks keep the entries that they share with it.

        Raises:
            VersionConflictError: the log has another revision.
            InvalidError, AccessDeniedError, UnavailableError: as `append`.
        """
        target = self._keys.scope.to_write(id)
        terms = ConversationTerms(check_version("if_revision", if_revision))
        head = self._access.head(target)
        call = self._scripts.conversation_delete(
            target.space,
            ConversationKeys(head.physical),
            self._keys.actor,
            expect=terms.expected_revision,
            keep=self._access.keep(head),
        )
        reply, *loose = (await self._access.changed(target, call)).split(b"\n")
        check_conditions(target, reply, terms)
        await self._large.remove(target, loose)
        return reply != b"0"

    @measured("conversations.fork")
    async def fork(
        self,
        id: str,  # noqa: A002  # as above
        new_id: str,
        *,
        at: str | None = None,
        tags: Mapping[str, str] | None = None,
        ttl: float | None = None,
        renew: bool = False,
    ) -> ConversationChange:
        """Create a conversation that begins with the entries of another; the entries are shared, not copied.

        Later changes of one do not affect the other. The state is copied. One round trip.

        Args:
            id: the conversation to fork: plain or absolute.
            new_id: the new one, in the same namespace.
            at: cursor or id of the last entry of the new one; None: all entries.
            tags, ttl, renew: as `append`; without them as the conversation that is forked.

        Raises:
            NotFoundError: the conversation does not exist, or has no such entry.
            VersionConflictError: the new conversation exists already.
            InvalidError, AccessDeniedError, UnavailableError: as `append`.
        """
        scope = self._keys.scope
        parent, target = scope.to_read(id), scope.to_write(new_id)
        if parent.space != target.space:
            raise InvalidError("new_id", new_id, f"a fork stays within the namespace of {id!r}")
        terms = ConversationTerms(0, None, checked_ttl_ms(ttl), renew, *check_tags(tags))
        head, forked = self._access.head(target), self._access.head(parent)
        call = self._scripts.conversation_fork(
            target.space,
            ConversationKeys(head.physical),
            self._keys.actor,
            parent=forked.physical,
            at=b"" if at is None else encode_id("at", at),
            terms=terms.text(),
            keep=self._access.keep(head, forked),
        )
        reply = await self._access.changed(target, call)
        if reply in {NOT_FOUND, NO_ENTRY}:
            return parse_change(parent, reply, terms, entry=at)
        return parse_change(target, reply, terms)

    @measured("conversations.state")
    async def state(self, id: str) -> ConversationState:  # noqa: A002
        """Return the state of a conversation; empty if it has none. One round trip.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `read`.
        """
        target = self._keys.scope.to_read(id)
        # The version is read first: if the state changes in between, a write on its condition fails.
        commands: list[Command] = [("HGET", self._head(target), "state"), ("HGETALL", self._part(target, "state"))]
        reply = await self._access.asked(target, partial(self._keys.client.read_many, commands), _is_first_none)
        version, flat = as_list(reply)
        pairs = as_list(flat)
        fields = zip(pairs[::2], pairs[1::2], strict=True)
        with decoding(self._head(target)):
            return ConversationState(
                fields={text_of(name): decode_member(item) for name, item in fields if isinstance(item, bytes)},
                version=int(text_of(version)) if version is not None else 0,
            )

    @measured("conversations.patch_state")
    async def patch_state(
        self,
        id: str,  # noqa: A002  # as above
        fields: Mapping[str, object],
        *,
        if_state: int | None = None,
    ) -> ConversationChange:
        """Set and remove fields of the state, in one atomic step; the first call creates the conversation.

        Other fields stay, so two writers of different fields do not need a condition. One round trip.

        Args:
            id: plain or absolute.
            fields: up to 1,000 values by name; None removes a field.
            if_state: only if the state has this version; 0: only if it was never set.

        Raises:
            VersionConflictError: the state has another version.
            InvalidError, AccessDeniedError, UnavailableError: as `append`.
        """
        if not fields:
            raise InvalidError("fields", fields, "give at least one; None removes a field")
        return await self.append(id, (), state=fields, if_state=if_state)

    @measured("conversations.expire")
    async def expire(
        self,
        id: str,  # noqa: A002  # as above
        ttl: float | None,
        *,
        renew: bool = False,
    ) -> bool:
        """Set when a conversation expires, counted from now; return False if it does not exist. One round trip.

        Args:
            id: plain or absolute.
            ttl: seconds; None: it never expires.
            renew: each append and read counts the seconds anew.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `append`.
        """
        target = self._keys.scope.to_write(id)
        terms = ConversationTerms(ttl_ms=checked_ttl_ms(ttl) or 0, renews=renew, must_exist=True)
        return await self._append(target, terms) != NOT_FOUND

    @measured("conversations.get")
    async def get(self, id: str) -> Conversation | None:  # noqa: A002
        """Return what is known of a conversation; None if it does not exist. One round trip.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `read`.
        """
        target = self._keys.scope.to_read(id)
        fields, now_ms = await self._access.read_head(target)
        if not fields:
            return None
        with decoding(self._head(target)):
            return parse_head(target.key, fields, now_ms)

    @measured("conversations.list")
    async def list(
        self,
        *,
        user: str | None = None,
        agent: str | None = None,
        app: str | None = None,
        scope: str | None = None,
        order: Order = "newest",
        cursor: str | None = None,
        limit: int = 50,
    ) -> ConversationList:
        """Return conversations of the namespace by their last change. One round trip.

        Each call looks at 1,000 conversations at most, so a page may have fewer than `limit` and still a cursor.

        Args:
            user, agent, app: only those with these tags.
            scope: only those of this scope: an actor's name, or `shared`.
            order: `newest` or `oldest` change first.
            cursor: the cursor of the page before; conversations that change meanwhile move.
            limit: most conversations, at most 500.

        Raises:
            InvalidError: an argument is invalid.
            AccessDeniedError, UnavailableError: as `read`.
        """
        tags = [check_tag(name, tag) for name, tag in (("user", user), ("agent", agent), ("app", app))]
        if order not in ("newest", "oldest"):
            raise InvalidError("order", order, "give 'newest' or 'oldest'")
        if cursor is not None and not (isinstance(cursor, str) and _CURSOR.fullmatch(cursor)):
            raise InvalidError("cursor", cursor, "give the cursor of a page, or leave it out")
        shared = self._keys.scope.common(f"{self._keys.scope.identity.namespace}:{SHARED_SCOPE}", "read")
        named = next(((name, tag) for name, tag in zip(TAGS, tags, strict=True) if tag), None)
        index = self._part(shared, "index") if named is None else self._part(shared, "tags", ":".join(named))
        example = self._head(self._keys.scope.keyspace.target(f"{shared.key}:any"))
        call = partial(
            self._scripts.conversation_list,
            index,
            example,
            order=order,
            cursor=cursor or "",
            limit=check_count("limit", limit, _MOST_LISTED),
            scope=check_tag("scope", scope),
            user=tags[0],
            agent=tags[1],
            app=tags[2],
        )
        await self._access.gather(shared.space.namespace)
        reply = await self._keys.explained(shared, KIND, call())
        with decoding(index):
            onward, now, *pairs = as_list(reply)
            now_ms = int(text_of(now))
            namespace = shared.space.namespace
            found = zip(pairs[::2], pairs[1::2], strict=True)
            return ConversationList(
                conversations=[
                    parse_head(f"{namespace}:{text_of(name)}", parse_fields(head), now_ms) for name, head in found
                ],
                cursor=str(int(float(text_of(onward)))) if onward else None,
            )

    @measured("conversations.erase")
    async def erase(
        self,
        *,
        user: str | None = None,
        agent: str | None = None,
        app: str | None = None,
        scope: str | None = None,
        dry_run: bool = False,
    ) -> ConversationErasure:
        """Delete all conversations with these tags, for good: with their states, also in the durable tier.

        Forks have the tags of their parents unless they were given others, and those with other tags keep the entries
        that they share. After an interruption, call it again to continue.

        Args:
            user, agent, app: only those with these tags.
            scope: only those of this scope: an actor's name, or `shared`.
            dry_run: whether to count only.

        Raises:
            InvalidError: no tag and no scope is given, or one is invalid.
            AccessDeniedError: this actor may not write one of them; those before it are deleted.
            UnavailableError: the server or the durable tier cannot be reached.
        """
        given = {"user": user, "agent": agent, "app": app, "scope": scope}
        if all(one is None for one in given.values()):
            raise InvalidError("user", None, "give at least one of user, agent, app and scope")
        conversations = entries = 0
        cursor: str | None = None
        while True:
            page = await self.list(**given, order="oldest", cursor=cursor, limit=_MOST_LISTED)
            for found in page.conversations:
                if dry_run or await self.delete(found.key):
                    conversations += 1
                    entries += found.length
            cursor = page.cursor
            if cursor is None:
                return ConversationErasure(conversations=conversations, entries=entries)

    @measured("conversations.stats")
    async def stats(self, id: str) -> ConversationStats | None:  # noqa: A002
        """Return the size of a conversation at the server; None if it does not exist. Two round trips.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `read`.
        """
        target = self._keys.scope.to_read(id)
        head = self._head(target)
        fields, _ = await self._access.read_head(target)
        if not fields:
            return None
        with decoding(head):
            length, segment = int(fields[b"length"]), fields[b"segment"].decode()
            shared = fields[b"chain"].decode().split("\n")[:-1:3]
        own: builtins.list[bytes] = [head, self._part(target, "state"), *self._segment_keys(target, segment)]
        of_others = [key for name in shared for key in self._segment_keys(target, name)]
        commands: builtins.list[Command] = [("MEMORY", "USAGE", key, "SAMPLES", 0) for key in (*own, *of_others)]
        sizes = [size if isinstance(size, int) else 0 for size in await self._keys.client.read_many(commands)]
        return ConversationStats(
            length=length,
            bytes=sum(sizes[: len(own)]),
            shared_bytes=sum(sizes[len(own) :]),
            segments=len(shared) + 1,
        )

    def _append_apart(self, space: Space, appends: Sequence[ConversationAppend]) -> Awaitable[bytes]:
        """Append to conversations in one call, each on its own condition."""
        return self._scripts.conversation_append(space, self._keys.actor, appends)

    def _append(
        self,
        target: Target,
        terms: ConversationTerms,
        fields: Sequence[bytes] = (),
        entries: Sequence[bytes] = (),
        *,
        size: int = 0,
    ) -> Awaitable[bytes]:
        """Return the reply line of an append; `size`: bytes of the fields and entries."""
        head, is_kept = self._access.head(target), self._access.tier is not None
        text = "" if terms is NO_TERMS else terms.text()
        return self._access.appended(target, ConversationAppend(head, text, fields, entries, size, is_kept))

    def _head(self, target: Target) -> bytes:
        return self._access.head(target).physical

    def _part(self, target: Target, part: str, name: str = "") -> bytes:
        key = self._keys.scope.keyspace.part(target, f"conversation.{part}")
        return key + b":" + name.encode() if name else key

    def _segment_keys(self, target: Target, segment: str) -> builtins.list[bytes]:
        service = self._keys.scope.keyspace.service
        return [service(target.space.namespace, f"conversation.{part}:{segment}") for part in ("log", "ids")]

    def __repr__(self) -> str:
        return f"<Conversations of {self._keys.scope.identity.namespace}>"


def _number(reply: Reply) -> int:
    return int(cast("bytes | int", reply))  # anything else raises what `decoding` turns into an error


def _is_none(reply: Reply) -> bool:
    return reply is None


def _is_first_none(reply: Reply) -> bool:
    return as_list(reply)[0] in (None, [])
