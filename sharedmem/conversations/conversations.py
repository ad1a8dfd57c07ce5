"""Conversations of a store: append to a log under a revision, read it, cut it, fork it, and patch its state."""

from __future__ import annotations

import builtins
import re
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Literal

from sharedmem.clock import from_microseconds
from sharedmem.context import HubContext
from sharedmem.conversations.entries import encode_entries, encode_fields, encode_id, parse_entry
from sharedmem.data.key_access import KeyAccess, check_integer
from sharedmem.errors import InvalidError, NotFoundError, UnavailableError, VersionConflictError
from sharedmem.models import (
    Conversation,
    ConversationChange,
    ConversationEntry,
    ConversationList,
    ConversationPage,
    ConversationState,
    ConversationStats,
    PoppedEntries,
)
from sharedmem.models.record import of_checked
from sharedmem.redis.change_stream import as_list, text_of
from sharedmem.redis.codec import decode_member
from sharedmem.redis.keys import SHARED_SCOPE, Space, Target
from sharedmem.redis.lifetimes import check_ttl_ms
from sharedmem.redis.replies import Command, Reply
from sharedmem.redis.scope import Scope
from sharedmem.redis.scripts.conversations import (
    NO_TERMS,
    ConversationAppend,
    ConversationKeys,
    ConversationScripts,
    ConversationTerms,
)
from sharedmem.redis.scripts.write_batcher import WriteBatcher
from sharedmem.redis.service_keys import corruption_error, decoding
from sharedmem.runtime import Counters, measured
from sharedmem.runtime.process_bound import ProcessBound

Order = Literal["newest", "oldest"]
_KIND = "conversation"
_UPDATES, _ENDINGS = (f"$conversation.{part}:{SHARED_SCOPE}".encode() for part in ("index", "endings"))
_MOST_READ = 10_000
_MOST_LISTED = 500
_MOST_POPPED = 100
_TAGS = ("user", "agent", "app")
_MOST_TAG_BYTES = 128
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_CURSOR = re.compile(r"[0-9]{16}")
_NOT_FOUND, _NO_ENTRY = b"N", b"A"
_REFUSED = b"E "
_REVISION_CONFLICT, _STATE_CONFLICT = b"C", b"S"


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
        self._largest = context.settings.blob_threshold_bytes
        self._appender = WriteBatcher[ConversationAppend](self._append_apart, context.background)

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
            entries: up to 1,000 values as `write` accepts them, each up to the blob threshold.
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
        fields = encode_fields(state, largest=self._largest)
        terms = NO_TERMS
        if fields or any(given is not None for given in (if_revision, if_state, ttl, tags)):
            terms = ConversationTerms(
                _check_version("if_revision", if_revision),
                _check_version("if_state", if_state),
                _ttl_ms(ttl),
                renew,
                *_check_tags(tags),
                fields=len(fields) // 2,
            )
        coded = encode_entries(entries, entry_ids, largest=self._largest)
        return _parse_change(target, await self._append(target, terms, fields, coded), terms)

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

        Args:
            id: plain or absolute.
            last: the newest so many entries, at most 10,000.
            after: the entries behind this one: its cursor or id. A cursor is valid even if the entry was removed.
            around: the entries before and after this one, and it itself.
            limit: most entries with `after`, `around`, or none of them (from the oldest entry); at most 10,000.

        Raises:
            NotFoundError: the entry of `after` or `around` is not in the conversation.
            InvalidError: the id or an argument is invalid, or several of `last`, `after` and `around` are given.
            AccessDeniedError, UnavailableError: as `read` of values.
        """
        target = self._keys.scope.to_read(id)
        given = [name for name, value in (("last", last), ("after", after), ("around", around)) if value is not None]
        if len(given) > 1:
            raise InvalidError("read", given, f"give only one of {' and '.join(given)}")
        entry = after if around is None else around
        mode = "last" if last is not None else "around" if around is not None else "after"
        call = self._scripts.conversation_read(
            self._head(target),
            mode=mode,
            reference=b"" if entry is None else encode_id(mode, entry),
            limit=_check_count("limit", limit, _MOST_READ) if last is None else _check_count("last", last, _MOST_READ),
        )
        reply = await self._keys.explained(target, _KIND, call)
        if reply == _NO_ENTRY:
            raise _missing_entry_error(target, entry)
        if reply is None:
            return ConversationPage(revision=0, length=0, first=0, entries=[])
        with decoding(self._head(target)):
            revision, length, first, *items = as_list(reply)
            return of_checked(
                ConversationPage,
                {
                    "revision": int(text_of(revision)),
                    "length": int(text_of(length)),
                    "first": int(text_of(first)),
                    "entries": [parse_entry(item) for item in items if isinstance(item, bytes)],
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
        terms = ConversationTerms(_check_version("if_revision", if_revision))
        call = self._scripts.conversation_pop(
            target.space,
            self._keys_of(target),
            self._keys.actor,
            expect=terms.expected_revision,
            count=_check_count("count", count, _MOST_POPPED),
        )
        reply = await self._keys.explained(target, _KIND, call)
        if reply == _NOT_FOUND:
            return PoppedEntries(revision=0, length=0, entries=[])
        _check_conditions(target, reply, terms)
        header, _, body = reply.partition(b"\n")
        revision, length, sizes = header.split(b" ")
        entries: list[ConversationEntry] = []
        at = 0
        for size in sizes.split(b",") if sizes else ():
            entries.append(parse_entry(body[at : at + int(size)]))
            at += int(size)
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
            _check_version("if_revision", if_revision), _check_version("if_state", if_state), fields=len(fields) // 2
        )
        call = self._scripts.conversation_replace(
            target.space,
            self._keys_of(target),
            self._keys.actor,
            terms=terms.text(),
            after=b"" if after is None else encode_id("after", after),
            fields=fields,
            entries=encode_entries(entries, entry_ids, largest=self._largest),
        )
        return _parse_change(target, await self._keys.explained(target, _KIND, call), terms, entry=after)

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
        terms = ConversationTerms(_check_version("if_revision", if_revision))
        call = self._scripts.conversation_delete(
            target.space, self._keys_of(target), self._keys.actor, expect=terms.expected_revision
        )
        reply = await self._keys.explained(target, _KIND, call)
        _check_conditions(target, reply, terms)
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
        terms = ConversationTerms(0, None, _ttl_ms(ttl), renew, *_check_tags(tags))
        call = self._scripts.conversation_fork(
            target.space,
            self._keys_of(target),
            self._keys.actor,
            parent=self._head(parent),
            at=b"" if at is None else encode_id("at", at),
            terms=terms.text(),
        )
        reply = await self._keys.explained(target, _KIND, call)
        if reply in {_NOT_FOUND, _NO_ENTRY}:
            return _parse_change(parent, reply, terms, entry=at)
        return _parse_change(target, reply, terms)

    @measured("conversations.state")
    async def state(self, id: str) -> ConversationState:  # noqa: A002
        """Return the state of a conversation; empty if it has none. One round trip.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `read`.
        """
        target = self._keys.scope.to_read(id)
        # The version is read first: if the state changes in between, a write on its condition fails.
        commands: list[Command] = [("HGET", self._head(target), "state"), ("HGETALL", self._part(target, "state"))]
        version, flat = await self._keys.explained(target, _KIND, self._keys.client.read_many(commands))
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
        terms = ConversationTerms(ttl_ms=_ttl_ms(ttl) or 0, renews=renew, must_exist=True)
        return await self._append(target, terms, (), ()) != _NOT_FOUND

    @measured("conversations.get")
    async def get(self, id: str) -> Conversation | None:  # noqa: A002
        """Return what is known of a conversation; None if it does not exist. One round trip.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `read`.
        """
        target = self._keys.scope.to_read(id)
        commands: list[Command] = [("HGETALL", self._head(target)), ("TIME",)]
        flat, now = await self._keys.explained(target, _KIND, self._keys.client.read_many(commands))
        fields = as_list(flat)
        if not fields:
            return None
        with decoding(self._head(target)):
            return _parse_head(target.key, fields, _milliseconds(now))

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
        tags = [_check_tag(name, tag) for name, tag in (("user", user), ("agent", agent), ("app", app))]
        if order not in ("newest", "oldest"):
            raise InvalidError("order", order, "give 'newest' or 'oldest'")
        if cursor is not None and not (isinstance(cursor, str) and _CURSOR.fullmatch(cursor)):
            raise InvalidError("cursor", cursor, "give the cursor of a page, or leave it out")
        shared = self._keys.scope.common(f"{self._keys.scope.identity.namespace}:{SHARED_SCOPE}", "read")
        named = next(((name, tag) for name, tag in zip(_TAGS, tags, strict=True) if tag), None)
        index = self._part(shared, "index") if named is None else self._part(shared, "tags", ":".join(named))
        example = self._head(self._keys.scope.keyspace.target(f"{shared.key}:any"))
        call = self._scripts.conversation_list(
            index,
            example,
            order=order,
            cursor=cursor or "",
            limit=_check_count("limit", limit, _MOST_LISTED),
            scope=_check_tag("scope", scope),
            user=tags[0],
            agent=tags[1],
            app=tags[2],
        )
        reply = await self._keys.explained(shared, _KIND, call)
        with decoding(index):
            onward, now, *pairs = as_list(reply)
            now_ms = int(text_of(now))
            namespace = shared.space.namespace
            found = zip(pairs[::2], pairs[1::2], strict=True)
            return ConversationList(
                conversations=[
                    _parse_head(f"{namespace}:{text_of(name)}", as_list(head), now_ms) for name, head in found
                ],
                cursor=str(int(float(text_of(onward)))) if onward else None,
            )

    @measured("conversations.stats")
    async def stats(self, id: str) -> ConversationStats | None:  # noqa: A002
        """Return the size of a conversation at the server; None if it does not exist. Two round trips.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `read`.
        """
        target = self._keys.scope.to_read(id)
        head = self._head(target)
        reply = await self._keys.explained(
            target, _KIND, self._keys.client.call("HMGET", head, "length", "segment", "chain")
        )
        length, segment, chain = as_list(reply)
        if length is None:
            return None
        shared = text_of(chain).split("\n")[:-1:3]
        own: builtins.list[bytes] = [head, self._part(target, "state"), *self._segment_keys(target, text_of(segment))]
        of_others = [key for name in shared for key in self._segment_keys(target, name)]
        commands: builtins.list[Command] = [("MEMORY", "USAGE", key, "SAMPLES", 0) for key in (*own, *of_others)]
        sizes = [size if isinstance(size, int) else 0 for size in await self._keys.client.read_many(commands)]
        return ConversationStats(
            length=int(text_of(length)),
            bytes=sum(sizes[: len(own)]),
            shared_bytes=sum(sizes[len(own) :]),
            segments=len(shared) + 1,
        )

    def _append_apart(self, space: Space, appends: Sequence[ConversationAppend]) -> Awaitable[builtins.list[bytes]]:
        """Append to conversations in one call, each on its own condition."""
        return self._scripts.conversation_append(space, self._keys.actor, appends)

    async def _append(
        self, target: Target, terms: ConversationTerms, fields: Sequence[bytes], entries: Sequence[bytes]
    ) -> bytes:
        """Return the reply line of an append, which shares its call with concurrent ones.

        Raises:
            CorruptionError: another client has written to a key of the conversation.
            UnavailableError: the server is out of memory.
        """
        size = sum(map(len, entries)) + sum(map(len, fields))
        keys = self._keys_of(target)
        reply = await self._appender.put(ConversationAppend(target, keys, terms.text(), fields, entries, size))
        if reply[:2] != _REFUSED:
            return reply
        text = reply[2:].decode(errors="replace")
        if "OOM" in text:
            why = "it is out of memory (maxmemory); delete keys, give them a ttl, or raise maxmemory"
            raise UnavailableError(f"Redis at {self._keys.client.address}", why)
        raise corruption_error(keys.head, f"the server refused a command on it: {text[:120]}")

    def _head(self, target: Target) -> bytes:
        return self._keys.scope.keyspace.part(target, "conversation")

    def _part(self, target: Target, part: str, name: str = "") -> bytes:
        key = self._keys.scope.keyspace.part(target, f"conversation.{part}")
        return key + b":" + name.encode() if name else key

    def _segment_keys(self, target: Target, segment: str) -> builtins.list[bytes]:
        service = self._keys.scope.keyspace.service
        return [service(target.space.namespace, f"conversation.{part}:{segment}") for part in ("log", "ids")]

    def _keys_of(self, target: Target) -> ConversationKeys:
        # Built as every part is (`KeySpace.part`), but faster: each append needs them.
        head = target.space.clock.removesuffix(b"$clock")
        return ConversationKeys(
            head + _UPDATES, head + _ENDINGS, head + b"$conversation:" + target.physical.removeprefix(head)
        )

    def __repr__(self) -> str:
        return f"<Conversations of {self._keys.scope.identity.namespace}>"


def _parse_change(
    target: Target, reply: bytes, terms: ConversationTerms, *, entry: str | None = None
) -> ConversationChange:
    """Return the result of a change.

    Raises:
        NotFoundError: the conversation does not exist, or has no such entry.
        VersionConflictError: a condition does not hold.
    """
    if reply == _NOT_FOUND:
        raise NotFoundError("conversation", target.key)
    if reply == _NO_ENTRY:
        raise _missing_entry_error(target, entry)
    _check_conditions(target, reply, terms)
    revision, length, added, state = map(int, reply.split(b" "))
    return of_checked(
        ConversationChange, {"revision": revision, "length": length, "added": added, "state_version": state}
    )


def _check_conditions(target: Target, reply: bytes, terms: ConversationTerms) -> None:
    mark, current = reply[:1], reply[2:]
    if mark == _REVISION_CONFLICT:
        raise VersionConflictError(target.key, terms.revision or 0, int(current))
    if mark == _STATE_CONFLICT:
        raise VersionConflictError(f"{target.key} (its state)", terms.state or 0, int(current))


def _missing_entry_error(target: Target, entry: str | None) -> NotFoundError:
    advice = "read it again: the entry may have been removed"
    return NotFoundError(f"in conversation {target.key!r} entry", entry or "", advice)


def _parse_head(key: str, flat: builtins.list[Reply], now_ms: int) -> Conversation:
    """Return a conversation from the fields of its head."""
    fields = {text_of(name): text_of(value) for name, value in zip(flat[::2], flat[1::2], strict=True)}
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


def _milliseconds(time: Reply) -> int:
    """Return the reply of TIME in milliseconds."""
    seconds, microseconds = as_list(time)
    return int(text_of(seconds)) * 1000 + int(text_of(microseconds)) // 1000


def _check_tags(tags: Mapping[str, str] | None) -> tuple[str, str, str]:
    """Return user, agent and app as the scripts expect them: an absent one is empty.

    Raises:
        InvalidError: a tag is unknown or invalid.
    """
    if tags is None:
        return "", "", ""
    if not isinstance(tags, Mapping) or not tags.keys() <= set(_TAGS):
        raise InvalidError("tags", tags, f"give any of {', '.join(_TAGS)} by name")
    user, agent, app = (_check_tag(name, tags.get(name)) for name in _TAGS)
    return user, agent, app


def _check_tag(name: str, tag: str | None) -> str:
    """Return a tag; an absent one is empty.

    Raises:
        InvalidError: the tag is empty, over 128 bytes, or has control characters.
    """
    if tag is None:
        return ""
    if not isinstance(tag, str) or not tag or _CONTROL.search(tag) or len(tag.encode()) > _MOST_TAG_BYTES:
        raise InvalidError(name, tag, f"give a text of 1 to {_MOST_TAG_BYTES} bytes without control characters")
    return tag


def _ttl_ms(ttl: float | None) -> int | None:
    return None if ttl is None else check_ttl_ms(ttl)


def _check_version(field: str, version: int | None) -> int | None:
    """Return an expected version.

    Raises:
        InvalidError: it is negative or not a whole number.
    """
    if version is not None and check_integer(field, version) < 0:
        raise InvalidError(field, version, "give a version, 0 for none, or leave it out")
    return version


def _check_count(field: str, count: int, most: int) -> int:
    """Return a number of entries or conversations.

    Raises:
        InvalidError: it is not a whole number from 1 to `most`.
    """
    if not 1 <= check_integer(field, count) <= most:
        raise InvalidError(field, count, f"give a whole number from 1 to {most:,}")
    return count
