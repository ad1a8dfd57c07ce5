"""Conversations within the rights of one actor: their keys, and how the durable tier keeps them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple, TypeVar

from sharedmem.clock import new_id
from sharedmem.data.keys import MOST_TRIES, KeyAccess, durability_pending_error, restored_in_vain_error
from sharedmem.errors import AccessDeniedError, UnavailableError
from sharedmem.redis.change_stream import as_list
from sharedmem.redis.client import RedisClient
from sharedmem.redis.conversation_heads import first_segment, is_behind, log_key, newest_version, read_head
from sharedmem.redis.durability import LOG_MODE, DurabilityModes, Tier, UnsettledError
from sharedmem.redis.keys import KeySpace, Space, Target
from sharedmem.redis.replies import Command, Reply, ServerError
from sharedmem.redis.scripts.conversations import ConversationAppend
from sharedmem.redis.scripts.data import WriteBatcher
from sharedmem.redis.service_keys import corruption_error

T = TypeVar("T")

KIND = "conversation"
SCOPE = f"${KIND}"
_REFUSED = b"E "
_AT_ONCE = 32
_REMEMBERED = 4096
_MOST_PLAIN = 128
"""Larger pages are read on another connection."""
_PLAIN_FIELDS = ("plain", "revision", "length", "segment")
_ODD = (None, b"0")
_MARK = "$listed"
"""Field of a namespace's `$kept`, whose value is lost together with the data."""


class _FirstLog(NamedTuple):
    """The segment in which a conversation begins."""

    segment: bytes
    key: bytes
    """Of its entries."""
    ask: Command
    """Reads what the conversation's head says of it."""
    length: Command
    """Reads its number of entries."""


class ConversationAccess:
    """The heads of the conversations that one actor may use, and changes and reads of them.

    Args:
        keys: the keys within the actor's rights.
        appender: sends appends, which share calls.
    """

    def __init__(self, keys: KeyAccess, appender: WriteBatcher[Space, ConversationAppend]) -> None:
        self._keys = keys
        self._appender = appender
        self.tier = keys.tier
        # Conversations whose newest entries only a script can read.
        self._odd: set[str] = set()
        # By absolute key: each append needs one.
        self._heads: dict[str, Target] = {}
        # By absolute key: each read of the newest entries needs one.
        self._first_logs: dict[str, _FirstLog] = {}
        # The mark of the data in Redis that has all conversations, and the connection count of the client at that time.
        self._whole: tuple[Reply, int] = None, 0

    def head(self, target: Target) -> Target:
        """Return the key of a conversation's head; for the durable tier it is the whole conversation."""
        known = self._heads.get(target.key)
        if known is not None:
            return known
        if len(self._heads) >= _REMEMBERED:
            self._heads.clear()
            self._odd.clear()
        head = self._heads[target.key] = self._keys.scope.keyspace.beside(target, KIND)
        return head

    def keep(self, *heads: Target) -> DurabilityModes | None:
        """Return how the durable tier keeps changes of conversations; None without one."""
        return None if self.tier is None else DurabilityModes(heads, LOG_MODE * len(heads))

    async def changed(self, target: Target, call: Awaitable[bytes]) -> bytes:
        """Return the reply of a change.

        Raises:
            DurabilityPendingError: the change is made, but the durable tier does not have it yet.
            SharedMemoryError: the public error for the server's refusal.
        """
        return await self._keys.explained(target, KIND, call)

    async def appended(self, target: Target, append: ConversationAppend) -> bytes:
        """Return the reply line of an append, which shares its call with concurrent ones.

        Raises:
            CorruptionError: another client has written to a key of the conversation.
            DurabilityPendingError: as `changed`.
            UnavailableError: the server is out of memory.
        """
        try:
            reply = await self._appender.put(append.target.space, append)
        except UnsettledError as error:
            raise durability_pending_error(target, error) from error.cause
        if reply[:2] != _REFUSED:
            return reply
        text = reply[2:].decode(errors="replace")
        if "OOM" in text:
            why = "it is out of memory (maxmemory); delete keys, give them a ttl, or raise maxmemory"
            raise UnavailableError(f"Redis at {self._keys.client.address}", why)
        raise corruption_error(append.target.physical, f"the server refused a command on it: {text[:120]}")

    def may_be_plain(self, target: Target, count: int) -> bool:
        """Return whether it is worth a try to read the newest entries of a conversation by `read_plain`.

        A caller alone waits for the server, for which commands take less; many callers share the time of this process,
        for which a script takes less.
        """
        if self.tier is not None or count > _MOST_PLAIN or target.key in self._odd:
            return False
        return self._keys.client.load.waiting == 0

    async def read_plain(self, target: Target, count: int) -> Reply:
        """Return the newest entries of a plain conversation, as `conversation_read` does, without a script.

        The position of the first entry is None: it follows from the length of the log and of the page.
        Most conversations are plain, and the start of a script takes longer than the read itself.

        Raises:
            SharedMemoryError: as `changed`.
        """
        first = self._first_logs.get(target.key) or self._first_log(target)
        commands = [first.ask, first.length, ("LRANGE", first.key, -count, -1)]
        try:
            facts, entries, page = await self._keys.client.read_many(commands)
        except ServerError as error:
            raise await self._keys.key_error(error, target, KIND) from error
        plain, revision, length, held = as_list(facts)
        if plain in _ODD or held != first.segment:
            if plain is not None:
                self._odd.add(target.key)
            return None
        if is_behind(plain):
            length, revision = entries, newest_version((as_list(page) or [None])[-1])
        return [revision, length, None, 0, page]

    def _first_log(self, target: Target) -> _FirstLog:
        if len(self._first_logs) >= _REMEMBERED:
            self._first_logs.clear()
        head = self.head(target)
        segment = first_segment(head)
        key = log_key(self._keys.scope.keyspace, head, segment)
        ask: Command = ("HMGET", head.physical, *_PLAIN_FIELDS)
        found = self._first_logs[target.key] = _FirstLog(segment.encode(), key, ask, ("LLEN", key))
        return found

    async def read_head(self, target: Target) -> tuple[dict[bytes, bytes], int]:
        """Return the fields of a conversation's head and the time in ms; no fields if it does not exist.

        Raises:
            UnavailableError, SharedMemoryError: as `asked`.
        """
        head = self.head(target)
        reading = partial(read_head, self._keys.client, self._keys.scope.keyspace, head)
        return await self.asked(target, reading, lambda reply: not reply[0])

    async def asked(self, target: Target, call: Callable[[], Awaitable[T]], is_absent: Callable[[T], bool]) -> T:
        """Return the reply of a read; a conversation that only the durable tier has is restored first.

        Args:
            target: the conversation.
            call: reads it.
            is_absent: whether a reply says that there is no conversation.

        Raises:
            UnavailableError: it is not in Redis, and the tier is unreachable.
            SharedMemoryError: as `changed`.
        """
        if self.tier is None:
            return await self._keys.explained(target, KIND, call())
        await self._keys.ensure_joined(target)
        for _ in range(MOST_TRIES):
            reply = await self._keys.explained(target, KIND, call())
            if not is_absent(reply) or not await self.tier.recall(self.head(target), LOG_MODE):
                return reply
        raise restored_in_vain_error(target)

    async def gather(self, namespace: str) -> None:
        """Ensure that Redis has all conversations of a namespace, so that they can be listed.

        One round trip if that is known; as `restore_conversations` at first, and after a loss of Redis.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: some may be missing, and the tier is unavailable.
        """
        if self.tier is None:
            return
        await self.tier.join(namespace)
        call, kept = self._keys.client.call, self._keys.scope.keyspace.kept(namespace)
        # A server that was set back has an earlier mark; then its connections were lost.
        generation = self._keys.client.generation
        joined, mark = as_list(await call("HMGET", kept, "$joined", _MARK))
        if joined is None:
            await self.tier.join(namespace, again=True)
        if mark is None:
            await call("HSETNX", kept, _MARK, f"{new_id()} 0")
            mark = await call("HGET", kept, _MARK)
        if (mark, generation) != self._whole:
            await restore_conversations(self.tier, self._keys.client, self._keys.scope.keyspace, namespace)
            self._whole = mark, generation


async def restore_conversations(tier: Tier, client: RedisClient, keyspace: KeySpace, namespace: str) -> None:
    """Restore all conversations of a namespace that only the durable tier has.

    One round trip for some hundred that Redis has; as `Tier.recall` for each that it lacks, some at a time. A user of
    the server who may not write a conversation leaves it to others.

    Raises:
        UnavailableError, LimitedError, AccessDeniedError: the tier is unavailable.
    """
    free = asyncio.Semaphore(_AT_ONCE)

    async def restore(target: Target) -> None:
        async with free:
            with suppress(AccessDeniedError):
                await tier.recall(target, LOG_MODE)

    async for page in tier.logs(namespace, SCOPE):
        targets = [keyspace.target(key) for key in page]
        there = await client.read_many([("EXISTS", target.physical) for target in targets])
        await asyncio.gather(
            *(restore(target) for target, is_there in zip(targets, there, strict=True) if not is_there)
        )
