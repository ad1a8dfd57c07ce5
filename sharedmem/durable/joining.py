"""Joining: before a namespace is touched, and after Redis may have lost data, it is made sure that Redis is not behind.

The server may have been flushed, replaced by an empty one, or set back to an old snapshot. Whether it was, and what of
it has been dealt with, says a mark that lies in Redis itself and goes where the data goes (`lua/namespace_join.lua`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import TypeVar

from sharedmem.durable.flights import Flights
from sharedmem.durable.gathering import MARK
from sharedmem.durable.images import DataImager
from sharedmem.durable.living import has_expired
from sharedmem.durable.shores import Shores
from sharedmem.errors import SharedMemoryError, UnavailableError
from sharedmem.models import DurableRecord
from sharedmem.telemetry import get_logger
from sharedmem.wire.keeping import DropKeys, JoinKeys
from sharedmem.wire.keys import is_lasting_record
from sharedmem.wire.replies import Argument
from sharedmem.wire.tier import BY_RULE, LOG, Imager

REPAIRS, PROVISIONAL = "durable_repairs", "durable_provisional_joins"
"""Counters: times that Redis was found behind the tier, and that the tier could not be asked."""

_TIER_CANNOT_BE_ASKED = -1
_joining: ContextVar[bool] = ContextVar("whether this task joins a namespace", default=False)
_MOST_TRIES = 10
_AT_ONCE = 200

T = TypeVar("T")
_logger = get_logger("durable")


class _AwayError(Exception):
    """The tier cannot be asked; why is its cause."""


class Joiner:
    """Joins namespaces, for one hub.

    Args:
        shores: Redis and the tier.
        kind_of: the kind that the rules give an absolute key, or None.
        imagers: how the documents of keys lie in Redis, by the letter of their mode; data without.
        nudge: told of a namespace whose outbox somebody waits for.
        retry_s: how soon a tier that could not be asked is asked again.
        patience_s: how long to wait for the outbox before a copy that may be old is left where it is.
    """

    def __init__(
        self,
        shores: Shores,
        *,
        kind_of: Callable[[str], str | None],
        imagers: Mapping[str, Imager],
        nudge: Callable[[str], None],
        retry_s: float = 5.0,
        patience_s: float = 10.0,
    ) -> None:
        self._line, self._keyspace, self._keeping, self._durable, self._clock, background, self._counters = shores
        self._kind_of = kind_of
        self._imagers = imagers
        self._data: Imager = DataImager()
        self._nudge = nudge
        self._retry_s, self._patience_s = retry_s, patience_s
        self._flights: Flights[None] = Flights("join", background)
        # By namespace: how often the line had been connected when it was joined.
        self._joined: dict[str, int] = {}
        # Joined without the tier: when to ask it again.
        self._ask_again_at: dict[str, float] = {}
        self._line.before_repeat(self._rejoin)

    def is_joined(self, namespace: str) -> bool:
        """Whether `join` has nothing to do."""
        return self._joined.get(namespace) == self._line.generation and not self._ask_again_at

    async def join(self, namespace: str, *, again: bool = False) -> None:
        """Make sure that Redis is not behind the tier; at once when that is known.

        Else one round trip to each side, and when data was lost as many as the tier has changes that Redis has not.
        When the tier cannot be asked, the namespace is used as it is, and the tier asked again some seconds later.

        Args:
            namespace: where.
            again: whatever was known of it: the server has lost the namespace's clock or mark.

        Raises:
            UnavailableError: Redis does not answer, or loses data as often as it is looked at.
        """
        if again or self._joined.get(namespace) != self._line.generation:
            await self._flights.share(namespace, lambda: self._join(namespace))
        elif self._is_due(namespace):
            # Nobody who does without the tier should wait for it.
            self._flights.launch(namespace, lambda: self._join(namespace))

    async def _rejoin(self) -> None:
        """What a call expects to find may have gone with the connection: nothing is repeated before that is mended."""
        if _joining.get():
            return
        doubtful = [one for one, generation in self._joined.items() if generation != self._line.generation]
        with suppress(SharedMemoryError):  # the call will say so itself
            await asyncio.gather(*map(self.join, doubtful))

    def _is_due(self, namespace: str) -> bool:
        if not self._ask_again_at:
            return False
        return self._clock.monotonic() >= self._ask_again_at.get(namespace, float("inf"))

    async def _join(self, namespace: str) -> None:
        _joining.set(True)
        # A connection that is lost from here on makes the next caller join anew.
        generation = self._line.generation
        waits = namespace in self._ask_again_at and not self._is_due(namespace)
        if waits:
            await self._keeping.namespace_join(self._keys(namespace), highest=_TIER_CANNOT_BE_ASKED)
        else:
            try:
                await self._catch_up(namespace)
                self._ask_again_at.pop(namespace, None)
            except _AwayError as error:
                await self._keeping.namespace_join(self._keys(namespace), highest=_TIER_CANNOT_BE_ASKED)
                self._go_on_without(namespace, error)
        self._joined[namespace] = generation

    async def _catch_up(self, namespace: str) -> None:
        keys, mended = self._keys(namespace), ""
        for _ in range(_MOST_TRIES):
            highest = await _asked(self._durable.highest(namespace))
            answer = await self._keeping.namespace_join(keys, highest=highest, mended=mended)
            if answer == "joined":
                return
            self._counters.increment(REPAIRS)
            extent, _, mended = answer.partition(" ")
            _logger.warning("namespace %r: Redis lacks changes that the durable tier has; catching up", namespace)
            await self._mend(namespace, since=int(mended), forget=extent == "behind")
        raise UnavailableError(f"namespace {namespace!r}", "Redis loses data as often as it is looked at")

    def _go_on_without(self, namespace: str, error: _AwayError) -> None:
        self._counters.increment(PROVISIONAL)
        if namespace not in self._ask_again_at:
            _logger.warning(
                "namespace %r is used without the durable tier, which cannot be asked: %s", namespace, error.__cause__
            )
        self._ask_again_at[namespace] = self._clock.monotonic() + self._retry_s

    async def _mend(self, namespace: str, *, since: int, forget: bool) -> None:
        """Forget what is older here than in the tier, and remember which keys last by argument."""
        # Memories and graphs may be among what is forgotten: all are to be looked for.
        await self._line.call("HDEL", self._keyspace.kept(namespace), MARK)
        doubtful: list[DurableRecord] = []
        pages = self._durable.iterate(namespace, changed_after=since, heads_only=True)
        async for heads in _paged(pages):
            if forget:
                doubtful += await self._forget(heads)
            else:
                await self._remember(namespace, heads)
        await self._forget_when_drained(namespace, doubtful)

    async def _remember(self, namespace: str, heads: Sequence[DurableRecord]) -> None:
        pairs: list[Argument] = []
        for head in heads:
            if letter := self._letter(head):
                pairs += (head.key, letter)
        for first in range(0, len(pairs), 2 * _AT_ONCE):
            await self._line.call("HSET", self._keyspace.kept(namespace), *pairs[first : first + 2 * _AT_ONCE])

    async def _forget(self, heads: Sequence[DurableRecord]) -> list[DurableRecord]:
        """Returns those whose copy has a change that the tier lacks."""
        doubtful = []
        # What lies beside a record says what it was: it stays until that takes its place which comes back.
        plain = [head for head in heads if not is_lasting_record(head.key)]
        for first in range(0, len(plain), _AT_ONCE):
            some = plain[first : first + _AT_ONCE]
            answers = await asyncio.gather(*map(self._forget_one, some))
            doubtful += [head for head, answer in zip(some, answers, strict=True) if answer == "pending"]
        return doubtful

    async def _forget_one(self, head: DurableRecord) -> str:
        target = self._keyspace.target(head.key)
        imager = self._imagers.get(LOG, self._data) if head.kind == "log" else self._data
        presence = imager.presence(target)
        places: list[bytes] = []
        if head.kind == "log":
            with suppress(ValueError, LookupError, TypeError):  # what cannot be read has no further places
                places += [part.place for part in imager.parts(target, [head]) if part.place != presence]
        keys = DropKeys(self._keyspace.kept(head.namespace), self._keyspace.state(target), presence)
        return await self._keeping.key_drop(keys, places, logical=head.key, kind=self._letter(head), stamp=head.stamp)

    async def _forget_when_drained(self, namespace: str, heads: list[DurableRecord]) -> None:
        """Of copies that were changed without hearing of the loss: once the tier has the change, it knows better."""
        deadline = self._clock.monotonic() + self._patience_s
        for pause in self._line.pauses():
            if not heads:
                return
            if self._clock.monotonic() + pause > deadline:
                text = "namespace %r: %d keys changed while Redis lacked data, %r among them; their copies here stay"
                _logger.warning(text, namespace, len(heads), heads[0].key)
                return
            self._nudge(namespace)
            await self._clock.sleep(pause)
            heads = await self._forget(heads)

    def _letter(self, head: DurableRecord) -> str:
        """How a key that lasts by argument is kept, else nothing."""
        now_ms = int(self._clock.now().timestamp() * 1000)
        if head.deleted or head.kind not in BY_RULE or has_expired(head, now_ms):
            return ""
        return "" if self._kind_of(head.key) == head.kind else BY_RULE[head.kind]

    def _keys(self, namespace: str) -> JoinKeys:
        space = self._keyspace.space(namespace)
        return JoinKeys(space.clock, space.changes, self._keyspace.kept(namespace))


async def _asked(answer: Awaitable[T]) -> T:
    try:
        return await answer
    except SharedMemoryError as error:
        raise _AwayError from error


async def _paged(pages: AsyncIterator[list[DurableRecord]]) -> AsyncIterator[list[DurableRecord]]:
    """The pages, whose failures are the tier's."""
    while True:
        try:
            page = await anext(pages)
        except StopAsyncIteration:
            return
        except SharedMemoryError as error:
            raise _AwayError from error
        yield page
