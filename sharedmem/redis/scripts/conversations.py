"""Typed callers of the scripts on conversations."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import NamedTuple

from sharedmem.redis.durability import LOG_MODE, DurabilityModes
from sharedmem.redis.keys import Space, Target
from sharedmem.redis.replies import Argument, Reply
from sharedmem.redis.scripts.executor import POOLED_ABOVE_BYTES, ScriptExecutor

_USUAL_ENTRY_BYTES = 512


class ConversationKeys(NamedTuple):
    """The keys of a change: the head of a conversation; the other keys have its name."""

    head: bytes


class ConversationTerms(NamedTuple):
    """The conditions of a change, and the settings that it makes. None: any, or unchanged."""

    revision: int | None = None
    state: int | None = None
    ttl_ms: int | None = None
    """0: the conversation never expires."""
    renews: bool = False
    user: str = ""
    agent: str = ""
    app: str = ""
    fields: int = 0
    """Number of fields of the state that are set."""
    must_exist: bool = False

    @property
    def expected_revision(self) -> str:
        """The condition on the log for the scripts."""
        return "" if self.revision is None else str(self.revision)

    def text(self) -> str:
        """Return the text for the scripts."""
        if self is NO_TERMS:
            return ""
        revision, state, ttl = ("" if number is None else str(number) for number in self[:3])
        revision = "!" if self.must_exist else revision
        return "\n".join((revision, state, ttl, str(int(self.renews)), *self[4:7], str(self.fields)))


NO_TERMS = ConversationTerms()


class ConversationAppend(NamedTuple):
    """Entries to append to one conversation; `fields` and `entries` are flat pairs."""

    target: Target
    """The key that the durable tier knows: its physical name is that of the head."""
    terms: str
    fields: Sequence[bytes]
    entries: Sequence[bytes]
    size: int
    """Bytes of the fields and entries."""
    is_kept: bool
    """Whether there is a durable tier, which gets the change."""


class ConversationScripts:
    """Changes and reads the conversations of the actors of one hub."""

    def __init__(self, sender: ScriptExecutor) -> None:
        self._sender = sender

    def conversation_append(
        self, space: Space, actor: bytes, appends: Sequence[ConversationAppend]
    ) -> Awaitable[bytes]:
        """Append to conversations of one namespace; return one reply line for each (`lua/conversation_append.lua`)."""
        keys = [append.target.physical for append in appends]
        args: list[Argument] = []
        for append in appends:
            args += (append.terms, len(append.entries) // 2)
            args += append.fields
            args += append.entries
        size = sum([append.size for append in appends])
        keep = None
        if appends[0].is_kept:
            keep = DurabilityModes(tuple([append.target for append in appends]), LOG_MODE * len(appends))
        return self._sender.mutate("conversation_append", space, keys, actor, args, large=size, keep=keep)

    async def conversation_replace(
        self,
        space: Space,
        keys: ConversationKeys,
        actor: bytes,
        *,
        terms: str,
        after: bytes,
        fields: Sequence[bytes],
        entries: Sequence[bytes],
        keep: DurabilityModes | None,
    ) -> bytes:
        """Return the reply (see `lua/conversation_replace.lua`); `fields` and `entries` are flat pairs."""
        args: list[Argument] = [terms, after, *fields, *entries]
        size = sum(map(len, fields)) + sum(map(len, entries))
        return await self._sender.mutate("conversation_replace", space, keys, actor, args, large=size, keep=keep)

    async def conversation_pop(
        self,
        space: Space,
        keys: ConversationKeys,
        actor: bytes,
        *,
        expect: str,
        count: int,
        keep: DurabilityModes | None,
    ) -> bytes:
        """Return the reply (see `lua/conversation_pop.lua`)."""
        args: list[Argument] = [expect, count]
        size = count * _USUAL_ENTRY_BYTES
        return await self._sender.mutate("conversation_pop", space, keys, actor, args, large=size, keep=keep)

    async def conversation_delete(
        self, space: Space, keys: ConversationKeys, actor: bytes, *, expect: str, keep: DurabilityModes | None
    ) -> bytes:
        """Return the reply (see `lua/conversation_delete.lua`)."""
        args: list[Argument] = [expect]
        return await self._sender.mutate("conversation_delete", space, keys, actor, args, keep=keep)

    async def conversation_fork(
        self,
        space: Space,
        keys: ConversationKeys,
        actor: bytes,
        *,
        parent: bytes,
        at: bytes,
        terms: str,
        keep: DurabilityModes | None,
    ) -> bytes:
        """Return the reply (see `lua/conversation_fork.lua`)."""
        args: list[Argument] = [at, terms]
        return await self._sender.mutate("conversation_fork", space, [*keys, parent], actor, args, keep=keep)

    async def conversation_restore(
        self, space: Space, head: bytes, actor: bytes, *, parts: Sequence[bytes], updated: int, ends: int, replace: int
    ) -> bytes:
        """Return the reply (see `lua/conversation_restore.lua`)."""
        args: list[Argument] = [updated, ends, replace]
        return await self._sender.mutate("conversation_restore", space, [head, *parts], actor, args)

    async def conversation_read(self, head: bytes, *, mode: str, reference: bytes, limit: int, renews: int) -> Reply:
        """Return the reply (see `lua/conversation_read.lua`)."""
        is_large = limit * _USUAL_ENTRY_BYTES > POOLED_ABOVE_BYTES
        return await self._sender.run("conversation_read", [head], [mode, reference, limit, renews], aside=is_large)

    async def conversation_list(
        self,
        index: bytes,
        example: bytes,
        *,
        order: str,
        cursor: str,
        limit: int,
        scope: str,
        user: str,
        agent: str,
        app: str,
    ) -> Reply:
        """Return the reply (see `lua/conversation_list.lua`)."""
        args: list[Argument] = [order, cursor, limit, scope, user, agent, app]
        return await self._sender.run("conversation_list", [index, example], args)
