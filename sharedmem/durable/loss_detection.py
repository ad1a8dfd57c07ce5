"""Detect data loss in Redis: before a namespace is used, bring Redis up to date with the store (joining).

The server may have been flushed, replaced by an empty one, or set back to an old snapshot. A mark in Redis, which is
lost or set back with the data, shows that, and shows which hub restores the data (`lua/namespace_join.lua`). One hub at
a time restores, under a lease that it renews; until it is done, durable keys are not changed.

A flush, a rollback or a failover deletes changes, and later changes have higher stamps nevertheless. But the change
stream is part of the data: it is deleted, rolled back and replaced together with it, and lists the stamps.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import NamedTuple, TypeVar

from sharedmem.clock import new_id
from sharedmem.durable.key_loader import SharedDataRestorer
from sharedmem.durable.protocol import DurableContext, has_expired
from sharedmem.durable.record_recovery import GATHERING, RECOVERED_MARK
from sharedmem.errors import SharedMemoryError, UnavailableError
from sharedmem.models import DurableRecord
from sharedmem.redis.change_stream import as_list, parse_versions, text_of
from sharedmem.redis.client import RedisClient
from sharedmem.redis.durability import LOG_MODE, RULE_MODES, KeyRestorer
from sharedmem.redis.keys import KeySpace, is_lasting_record
from sharedmem.redis.replies import Command, Reply
from sharedmem.redis.scripts.durable import KeyDropKeys, NamespaceJoinKeys
from sharedmem.runtime import get_logger
from sharedmem.runtime.concurrency import SingleFlight

REPAIRS, PROVISIONAL = "durable_repairs", "durable_provisional_joins"
"""Counters: times that Redis was behind the store, and joins without the store because it was unavailable."""

_TIER_CANNOT_BE_ASKED = -1
_joining: ContextVar[bool] = ContextVar("whether this task joins a namespace", default=False)
_MOST_TRIES = 10
_AT_ONCE = 200
_LOG_KIND, _PENDING, _EPHEMERAL = "log", "pending", "ephemeral"

T = TypeVar("T")
_logger = get_logger("durable")


class _TierUnreachableError(Exception):
    """The store is unavailable; the cause is chained."""


class _RestoreLostError(Exception):
    """Another hub has taken over the restore, or Redis has lost data again."""


class JoinLimits(NamedTuple):
    """Timeouts of a join."""

    retry_s: float = 5.0
    """Seconds until an unavailable store is tried again."""
    drain_s: float = 10.0
    """Seconds to wait for the outbox before a possibly old copy is left in Redis."""
    wait_s: float = 15.0
    """Seconds that a caller waits while this or another hub restores; longer than a lease whose holder died."""
    lease_ms: int = 8_000
    """Lease of the hub that restores; when it expires, another hub takes over."""


_DEFAULT_LIMITS = JoinLimits()


class DataLossGuard:
    """Joins namespaces, for one hub.

    Args:
        context: the server and the durable store.
        kind_of: returns the kind of an absolute key by the rules, or None.
        restorers: restorers by durability mode; shared data for other modes.
        nudge: called with a namespace whose outbox should be delivered at once.
        limits: timeouts.
    """

    def __init__(
        self,
        context: DurableContext,
        *,
        kind_of: Callable[[str], str | None],
        restorers: Mapping[str, KeyRestorer],
        nudge: Callable[[str], None],
        limits: JoinLimits = _DEFAULT_LIMITS,
    ) -> None:
        self._client, self._keyspace, self._scripts = context.client, context.keyspace, context.scripts
        self._durable, self._clock, self._counters = context.durable, context.clock, context.counters
        background = context.background
        self._background = background
        self._kind_of = kind_of
        self._restorers = restorers
        self._data: KeyRestorer = SharedDataRestorer()
        self._nudge = nudge
        self._limits = limits
        self._flights: SingleFlight[None] = SingleFlight("join", background)
        self.joined: dict[str, int] = {}
        """By namespace: the client's generation when the namespace was joined."""
        self.epochs: dict[str, str] = {}
        """By namespace: the epoch of the data that this hub has joined (see `lua/namespace_join.lua`)."""
        self.ask_again_at: dict[str, float] = {}
        """By namespace joined without the store: when to try the store again, on the monotonic clock."""
        self._client.before_retry(self._rejoin)

    def is_joined(self, namespace: str) -> bool:
        """Return whether `join` has nothing to do."""
        return self.joined.get(namespace) == self._client.generation and not self.ask_again_at

    async def join(self, namespace: str, *, again: bool = False) -> None:
        """Bring Redis up to date with the store; no round trip if that is known.

        Otherwise one round trip to each side; after a loss, as many as the tier has changes that Redis lacks. While
        another hub restores them, this one waits for it, and takes over if its lease expires. If the tier is
        unreachable, the namespace is used as it is, and the tier is tried again some seconds later.

        Args:
            namespace: the namespace.
            again: check even if it was known before: the server has lost the namespace's clock or mark.

        Raises:
            UnavailableError: Redis does not reply, or loses data again and again, or the restore takes longer than a
                caller waits.
        """
        if again or self.joined.get(namespace) != self._client.generation:
            try:
                async with asyncio.timeout(self._limits.wait_s):
                    await self._flights.share(namespace, lambda: self._join(namespace))
            except TimeoutError as error:
                why = f"its lost data is being restored from the durable tier, which takes longer than \
{self._limits.wait_s:g} s; try again"
                raise UnavailableError(f"namespace {namespace!r}", why, retry_after=self._limits.retry_s) from error
        elif self._is_due(namespace):
            # A caller that continues without the store must not wait for it.
            self._flights.launch(namespace, lambda: self._join(namespace))

    async def readmit(self, namespace: str, changed: Mapping[str, int], *, left_ms: int) -> set[str]:
        """Update Redis with changes that the store has, where Redis has lost their outbox entries.

        A hub that restored the namespace may have read the tier before these changes were there. One round trip, and
        for each key whose change Redis lacks two requests to the tier and two round trips.

        Args:
            namespace: the namespace.
            changed: the stamp of the newest of these changes, by absolute key.
            left_ms: when the oldest of the entries was written, in milliseconds since 1970 by the server's clock.

        Returns:
            The keys whose change may be lost: Redis lacks it, and they were changed since, perhaps without it.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: Redis or the store is unavailable; call it again.
        """
        present = await present_data(self._client, self._keyspace, namespace, changed.values(), left_ms=left_ms)
        lost = {key: stamp for key, stamp in changed.items() if stamp in present.missing}
        if not lost:
            return set()
        doubtful: list[DurableRecord] = []
        # Without a mark a restore is still to come, and reads the store after this.
        if present.began_ms:
            found = [head for head in await _ask_each(lost, self._durable.get) if head is not None]
            # A change of a log may be unannounced: only its date shows that Redis lacks it.
            heads = [head for head in found if head.kind != _LOG_KIND or left_ms <= present.began_ms]
            doubtful = await self._forget(heads, token="")
            if any(is_lasting_record(head.key) for head in heads):
                # A hub that is restoring records may have passed these: it must begin again.
                await self._client.call("HDEL", self._keyspace.kept(namespace), RECOVERED_MARK, GATHERING)
        survive = await _ask_each(lost, lambda key: self._survives(key, lost[key]))
        await self._forget_when_drained(namespace, doubtful, token="")
        return {key for key, survives in zip(lost, survive, strict=True) if not survives}

    async def _survives(self, key: str, stamp: int) -> bool:
        """Return whether all later changes of a key are based on this one, or do not depend on earlier data."""
        # A copy that was loaded before the store had the change is dropped by now. Only a change made since then can
        # lack it, and that one waits for the store, or is in it.
        state = await self._client.call("GET", self._keyspace.state(self._keyspace.target(key)))
        what, *words = text_of(state).split() if isinstance(state, bytes) else [""]
        if what == _PENDING and words and int(words[0]) > stamp:
            return False
        head = await self._durable.get(key)
        if what == _EPHEMERAL and head is not None and not head.deleted:
            return False  # readers see the ephemeral content, which knows nothing of it
        # A deletion undoes it, whether it was based on it or not.
        return head is not None and (head.stamp == stamp or (head.deleted and head.stamp > stamp))

    async def _rejoin(self) -> None:
        """Join before a call is repeated: the data may be lost with the connection."""
        if _joining.get():
            return
        doubtful = [one for one, generation in self.joined.items() if generation != self._client.generation]
        with suppress(SharedMemoryError):  # the call itself raises it
            await asyncio.gather(*map(self.join, doubtful))

    def _is_due(self, namespace: str) -> bool:
        if not self.ask_again_at:
            return False
        return self._clock.monotonic() >= self.ask_again_at.get(namespace, float("inf"))

    async def _join(self, namespace: str) -> None:
        _joining.set(True)
        # A connection that is lost from here on makes the next caller join again.
        generation, token = self._client.generation, new_id()
        waits = namespace in self.ask_again_at and not self._is_due(namespace)
        if waits:
            await self._join_without(namespace, token)
        else:
            try:
                await self._catch_up(namespace, token)
                self.ask_again_at.pop(namespace, None)
            except _TierUnreachableError as error:
                await self._join_without(namespace, token)
                self._proceed_without_tier(namespace, error)
        self.joined[namespace] = generation

    async def _join_without(self, namespace: str, token: str) -> None:
        """Join while the store is unavailable to this hub; wait for another hub that restores."""
        for pause in self._client.pauses():
            answer, _, number = (await self._step(namespace, token, highest=_TIER_CANNOT_BE_ASKED)).partition(" ")
            if answer != "wait":
                self.epochs[namespace] = number
                return
            await self._clock.sleep(min(pause, int(number) / 1000))

    async def _step(self, namespace: str, token: str, *, highest: int, restored: str = "") -> str:
        space = self._keyspace.space(namespace)
        keys = NamespaceJoinKeys(space.clock, space.changes, self._keyspace.kept(namespace))
        lease_ms = self._limits.lease_ms
        return await self._scripts.namespace_join(
            keys, highest=highest, restored=restored, token=token, lease_ms=lease_ms
        )

    async def _catch_up(self, namespace: str, token: str) -> None:
        restored, tries = "", 0
        for pause in self._client.pauses():
            highest = await _ask_store(self._durable.highest(namespace))
            answer, _, number = (await self._step(namespace, token, highest=highest, restored=restored)).partition(" ")
            if answer == "joined":
                self.epochs[namespace] = number
                return
            restored = ""
            if answer == "wait":
                await self._clock.sleep(min(pause, int(number) / 1000))
                continue
            tries += 1
            if tries > _MOST_TRIES:
                break
            self._counters.increment(REPAIRS)
            _logger.warning("namespace %r: Redis lacks changes that the durable tier has; restoring them", namespace)
            with suppress(_RestoreLostError):
                steps = await self._restore(namespace, token, since=int(number), forget=answer == "behind")
                restored = f"{number} {steps}"
        raise UnavailableError(f"namespace {namespace!r}", "Redis loses data again and again")

    def _proceed_without_tier(self, namespace: str, error: _TierUnreachableError) -> None:
        self._counters.increment(PROVISIONAL)
        if namespace not in self.ask_again_at:
            _logger.warning(
                "namespace %r is used without the durable tier, which is unreachable: %s", namespace, error.__cause__
            )
        self.ask_again_at[namespace] = self._clock.monotonic() + self._limits.retry_s

    async def _restore(self, namespace: str, token: str, *, since: int, forget: bool) -> int:
        """Drop copies that are older than in the store, and store which keys are durable by argument.

        Returns:
            The number of steps, by which the server shows later that it still has all of them.
        """
        renewal = self._background.start(f"renew restoring of {namespace}", self._renew(namespace, token))
        steps = 0
        try:
            doubtful: list[DurableRecord] = []
            pages = self._durable.iterate(namespace, changed_after=since, heads_only=True)
            async for heads in _store_pages(pages):
                if forget:
                    doubtful += await self._forget(heads, token=token)
                for pairs in [()] if forget else self._kinds(heads):
                    steps += 1
                    await self._note(namespace, token, pairs, step=steps)
            if doubtful:
                await self._forget_when_drained(namespace, doubtful, token=token)
                steps += 1
                await self._note(namespace, token, step=steps)
        finally:
            await renewal.stop()
        return steps

    async def _renew(self, namespace: str, token: str) -> None:
        """Renew the restore lease while this process lives, however slow the store is."""
        while True:
            await self._clock.sleep(self._limits.lease_ms / 3000)
            with suppress(SharedMemoryError, _RestoreLostError):  # the restore notices it at the next step
                await self._note(namespace, token)

    def _kinds(self, heads: Sequence[DurableRecord]) -> list[Sequence[str]]:
        """Return the keys that are durable by argument, each followed by its letter, some at a time."""
        pairs = [part for head in heads if (letter := self._letter(head)) for part in (head.key, letter)]
        return [pairs[first : first + 2 * _AT_ONCE] for first in range(0, len(pairs), 2 * _AT_ONCE)]

    async def _note(self, namespace: str, token: str, pairs: Sequence[str] = (), *, step: int = 0) -> None:
        kept, lease_ms = self._keyspace.kept(namespace), self._limits.lease_ms
        reply = await self._scripts.kept_restore(kept, token=token, lease_ms=lease_ms, step=step, pairs=pairs)
        if reply != "noted":
            raise _RestoreLostError

    async def _forget(self, heads: Sequence[DurableRecord], *, token: str) -> list[DurableRecord]:
        """Drop old copies; return the keys whose copy has a change that the store lacks."""
        doubtful = []
        # The indexes of a record describe its old state: they stay until the restored record replaces them.
        plain = [head for head in heads if not is_lasting_record(head.key)]
        for first in range(0, len(plain), _AT_ONCE):
            some = plain[first : first + _AT_ONCE]
            answers = await asyncio.gather(*(self._forget_one(head, token=token) for head in some))
            if "taken" in answers:
                raise _RestoreLostError
            doubtful += [head for head, answer in zip(some, answers, strict=True) if answer == "pending"]
        return doubtful

    async def _forget_one(self, head: DurableRecord, *, token: str) -> str:
        target = self._keyspace.target(head.key)
        restorer = self._restorers.get(LOG_MODE, self._data) if head.kind == _LOG_KIND else self._data
        presence = restorer.presence(target)
        places: list[bytes] = []
        if head.kind == _LOG_KIND:
            with suppress(ValueError, LookupError, TypeError):  # an unreadable document has no further keys
                places += [part.place for part in restorer.parts(target, [head]) if part.place != presence]
        keys = KeyDropKeys(self._keyspace.kept(head.namespace), self._keyspace.state(target), presence)
        kind = self._letter(head)
        return await self._scripts.key_drop(keys, places, logical=head.key, kind=kind, stamp=head.stamp, token=token)

    async def _forget_when_drained(self, namespace: str, heads: list[DurableRecord], *, token: str) -> None:
        """Drop copies that were changed before the loss was noticed, once the store has the change."""
        deadline = self._clock.monotonic() + self._limits.drain_s
        for pause in self._client.pauses():
            if not heads:
                return
            if self._clock.monotonic() + pause > deadline:
                text = "namespace %r: %d keys changed while Redis lacked data, %r among them; their copies here stay"
                _logger.warning(text, namespace, len(heads), heads[0].key)
                return
            self._nudge(namespace)
            await self._clock.sleep(pause)
            heads = await self._forget(heads, token=token)

    def _letter(self, head: DurableRecord) -> str:
        """Return the durability mode of a key that is durable by argument, else empty."""
        if head.deleted or head.kind not in RULE_MODES or self._kind_of(head.key) == head.kind:
            return ""
        now_ms = int(self._clock.now().timestamp() * 1000)
        return "" if has_expired(head, now_ms) else RULE_MODES[head.kind]


async def _ask_each(keys: Iterable[str], ask: Callable[[str], Awaitable[T]]) -> list[T]:
    """Return the result for each key, some at a time."""
    asked, answers = list(keys), list[T]()
    for first in range(0, len(asked), _AT_ONCE):
        answers += await asyncio.gather(*map(ask, asked[first : first + _AT_ONCE]))
    return answers


async def _ask_store(answer: Awaitable[T]) -> T:
    try:
        return await answer
    except SharedMemoryError as error:
        raise _TierUnreachableError from error


async def _store_pages(pages: AsyncIterator[list[DurableRecord]]) -> AsyncIterator[list[DurableRecord]]:
    """Yield the pages; translate failures of the store."""
    while True:
        try:
            page = await anext(pages)
        except StopAsyncIteration:
            return
        except SharedMemoryError as error:
            raise _TierUnreachableError from error
        yield page


# -- changes that the present data includes ------------------------------------------------------


_MARK_FIELD = "$joined"
_EPOCH = 2
"""Index of the word of the mark with the start of the present data in microseconds (see lua/namespace_join.lua)."""


class PresentData(NamedTuple):
    """The changes that the present data in Redis includes."""

    began_ms: int
    """When the present data began, in milliseconds since 1970; 0 if no hub has joined since."""
    missing: frozenset[int]
    """The stamps of changes that are not, or perhaps not, part of the present data."""


async def present_data(
    client: RedisClient, keyspace: KeySpace, namespace: str, stamps: Collection[int], *, left_ms: int
) -> PresentData:
    """Return which changes of a namespace are part of the present data. One round trip.

    Args:
        client, keyspace: of the server.
        namespace: namespace of the changes.
        stamps: their stamps. Unannounced changes, such as the beginning of an execution, count as missing.
        left_ms: when the oldest of them was made, in milliseconds since 1970 by the server's clock.

    Raises:
        UnavailableError, AccessDeniedError: the server cannot be reached, or does not allow it.
    """
    asked, changes = sorted(set(stamps)), keyspace.space(namespace).changes
    commands: list[Command] = [("HGET", keyspace.kept(namespace), _MARK_FIELD)]
    commands.append(("XRANGE", changes, "-", "+", "COUNT", 1))
    # The change is in the first entry from there on, if in any: a packet has the id of its last change.
    commands += [("XRANGE", changes, stamp, "+", "COUNT", 1) for stamp in asked]
    mark, first, *found = await client.read_many(commands)
    words = text_of(mark).split() if isinstance(mark, bytes) else []
    began_ms = int(words[_EPOCH]) // 1000 if len(words) > _EPOCH else 0
    # The stream is trimmed to its newest changes, and does not show older ones. Entries are dated in milliseconds, so a
    # change of the very millisecond in which the present data began may have been lost before.
    cut_at = next(iter(_stamps(first)), 0) if began_ms and left_ms > began_ms else 0
    listed = zip(asked, map(_stamps, found), strict=True)
    missing = [stamp for stamp, stamps in listed if stamp not in stamps and stamp >= cut_at]
    return PresentData(began_ms, frozenset(missing))


def _stamps(page: Reply) -> list[int]:
    return [version for entry in as_list(page) for version in parse_versions(entry)]
