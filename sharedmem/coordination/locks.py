"""Locks, semaphores, read/write locks and leader election of a store: resources that are leased.

Of all candidates for a name one leads, and another takes over when its heartbeats end.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from typing import Literal

from sharedmem.context import HubContext
from sharedmem.coordination.lease_calls import LeaseCalls, LeaseResource
from sharedmem.coordination.lease_session import (
    Lease,
    LeaseBlock,
    LeaseSession,
    lease_renewer,
    parse_grant_id,
)
from sharedmem.coordination.names import NameAccess, check_lease_ms, check_wait
from sharedmem.errors import InvalidError, LockLostError, SharedMemoryError, UsageError
from sharedmem.models.coordination import Holder, LeaseGrant, LeaseState
from sharedmem.redis.change_stream import as_list
from sharedmem.redis.scripts.coordination import LeaseKeys, LeaseTerms, NamedLeaseKeys
from sharedmem.redis.service_keys import decoding
from sharedmem.runtime import get_logger
from sharedmem.runtime.concurrency import BackgroundTask, ProcessBound

MOST_READERS = 1_000_000
EnterLock = Callable[[int, float, float | None], LeaseBlock]


class ReadWriteLock(ProcessBound):
    """One read/write lock. All callers wait in one queue: readers that come after a writer do not delay it."""

    def __init__(self, name: str, enter: EnterLock) -> None:
        self._name = name
        self._enter = enter

    @property
    def name(self) -> str:
        """The name of the lock, as the caller gave it."""
        return self._name

    @asynccontextmanager
    async def reading(self, *, lease: float = 30.0, wait: float | None = None) -> AsyncIterator[Lease]:
        """Hold the lock together with other readers while the block runs; otherwise like `SharedMemoryStore.lock`.

        Args:
            lease: seconds until the lock is free if this process dies; renewed while the block runs.
            wait: longest wait in seconds; 0: try once; None: no limit.

        Raises:
            LockHeldError, LockLostError, InvalidError, UnavailableError: as `SharedMemoryStore.lock`.
        """
        async with self._enter(1, lease, wait) as held:
            yield held

    @asynccontextmanager
    async def writing(self, *, lease: float = 30.0, wait: float | None = None) -> AsyncIterator[Lease]:
        """Hold the lock exclusively while the block runs; otherwise like `SharedMemoryStore.lock`.

        Args:
            lease: seconds until the lock is free if this process dies; renewed while the block runs.
            wait: longest wait in seconds; 0: try once; None: no limit.

        Raises:
            LockHeldError, LockLostError, InvalidError, UnavailableError: as `SharedMemoryStore.lock`.
        """
        async with self._enter(MOST_READERS, lease, wait) as held:
            yield held

    def __repr__(self) -> str:
        return f"<ReadWriteLock {self._name!r}>"


LeaseKind = Literal["lock", "semaphore", "rwlock", "leader"]
MOST_PLACES = 1_000_000
_KINDS = ("lock", "semaphore", "rwlock", "leader")
_CACHED_RESOURCES = 4096
_HIGHEST_TOKEN = 1 << 53
_GAIN = b"leader.gain"


class Leases:
    """Locks, semaphores, read/write locks and leaders: names that are leased."""

    def __init__(self, names: NameAccess) -> None:
        self._lease_names = names

    @asynccontextmanager
    async def lock(self, name: str, *, lease: float = 30.0, wait: float | None = None) -> AsyncIterator[Lease]:
        """Hold a lock while the block runs; one holder at a time among all actors and processes.

        The lease is renewed in the background. If it is lost (the server was unreachable, or this process was frozen),
        the block is cancelled as by `asyncio.timeout`, and the `async with` raises LockLostError. Waiters queue, first
        come first served, and are notified when it is their turn. One round trip to take a free lock, one to release
        it.

        Args:
            name: plain (`<namespace>:shared:<name>`) or absolute, like a channel.
            lease: seconds until the lock is free if this process dies; from 0.05 to a day.
            wait: longest wait in seconds; 0: try once; None: no limit.

        Yields:
            The lease; send its `token` with every write under the lock.

        Raises:
            LockHeldError: the lock is held, and was not released within `wait`.
            LockLostError: the lock was lost before the block ended.
            AccessDeniedError: this actor may not write the name.
            InvalidError: a time is out of bounds, or the name is invalid.
            UnavailableError: the server cannot be reached; after the block: the lock is free when its lease expires.
        """
        terms = LeaseTerms(1, 1, check_lease_ms(lease))
        async with LeaseBlock(self._lease_calls, self._lease_resource("lock", name), terms, check_wait(wait)) as held:
            yield held

    @asynccontextmanager
    async def semaphore(
        self, name: str, limit: int, *, lease: float = 30.0, wait: float | None = None
    ) -> AsyncIterator[Lease]:
        """Hold one of `limit` places while the block runs; otherwise like `lock`.

        Args:
            name: plain or absolute. A semaphore and a lock of the same name are independent.
            limit: most holders at a time; should be the same for all users of the name.
            lease: seconds until the place is free if this process dies; from 0.05 to a day.
            wait: longest wait in seconds; 0: try once; None: no limit.

        Raises:
            LockHeldError, LockLostError, AccessDeniedError, InvalidError, UnavailableError: as `lock`.
        """
        terms = LeaseTerms(_check_limit(limit), 1, check_lease_ms(lease))
        async with LeaseBlock(
            self._lease_calls, self._lease_resource("semaphore", name), terms, check_wait(wait)
        ) as held:
            yield held

    def rwlock(self, name: str) -> ReadWriteLock:
        """Return a lock for many concurrent readers or one exclusive writer. No round trip.

        Args:
            name: plain or absolute.

        Raises:
            AccessDeniedError, InvalidError: as `lock`.
        """
        calls, place = self._lease_calls, self._lease_resource("rwlock", name)

        def enter(weight: int, lease: float, wait: float | None) -> LeaseBlock:
            return LeaseBlock(calls, place, LeaseTerms(MOST_READERS, weight, check_lease_ms(lease)), check_wait(wait))

        return ReadWriteLock(name, enter)

    @asynccontextmanager
    async def leader(
        self,
        name: str,
        *,
        lease: float = 15.0,
        on_gain: Callable[[int], Awaitable[None] | None] | None = None,
        on_loss: Callable[[int], Awaitable[None] | None] | None = None,
    ) -> AsyncIterator[Candidacy]:
        """Take part in an election while the block runs: one of all candidates for a name leads.

        Entering does not wait: the election runs in the background, and continues after a loss. Leaving the block ends
        the term at once, so that the next candidate leads. The start of a term is announced on the change feed
        (`leader.gain`).

        Args:
            name: plain or absolute.
            lease: seconds after which another candidate leads if this process dies or hangs.
            on_gain: a function or coroutine function, called with the token. It may run for as long as the candidate
                leads: it is cancelled when the term ends. Its exceptions are logged and counted
                (`sharedmem_callback_failures`), and the election continues.
            on_loss: a function or coroutine function, called with the token when the term has ended.

        Raises:
            AccessDeniedError, InvalidError: as `lock`.
        """
        place, lease_ms = self._lease_resource("leader", name), check_lease_ms(lease)

        def new_session(on_lost: Callable[[], None]) -> LeaseSession:
            return LeaseSession(self._lease_calls, place, LeaseTerms(1, 1, lease_ms, _GAIN), on_lost)

        campaign = Campaign(self._lease_names.context, new_session, on_gain, on_loss)
        running = self._lease_names.context.background.start(f"campaign for {name}", campaign.run())
        try:
            yield Candidacy(name, campaign)
        finally:
            campaign.end()
            await running.stop()

    async def lease_state(self, name: str, kind: LeaseKind = "lock") -> LeaseState:
        """Return the holders of a name, and the number of waiters. One round trip.

        Args:
            name: plain or absolute.
            kind: `lock`, `semaphore`, `rwlock` or `leader`: each kind has its own names.

        Raises:
            AccessDeniedError: this actor may not read the name.
            InvalidError, UnavailableError: as `lock`.
        """
        names = self._lease_names
        _check_kind(kind)
        target = names.scope.common(name, "read")
        places = LeaseKeys(names.part(target, kind), names.part(target, f"{kind}.waiters"))
        looks = (("TIME",), ("ZRANGE", places.holders, 0, -1, "WITHSCORES"), ("ZCARD", places.waiters))
        now, held, waiting = await names.explained(target, names.context.client.read_many(looks))
        pairs = as_list(held)
        asked_at = parse_server_time(as_list(now))
        with decoding(places.holders):
            holders = parse_holders(kind, pairs, asked_at)
        return LeaseState(holders=holders, waiting=waiting if isinstance(waiting, int) else 0)

    async def lease_acquire(
        self,
        name: str,
        *,
        kind: LeaseKind = "lock",
        limit: int | None = None,
        shared: bool = False,
        lease: float = 30.0,
        wait: float | None = 0.0,
    ) -> LeaseGrant:
        """Take a lock that is not renewed automatically, for clients that make separate calls. One round trip.

        In Python, prefer `lock`, `semaphore`, `rwlock` and `leader`: they renew their lease, and release it at the end
        of their block.

        Args:
            name: plain or absolute; the same names as for `lock`.
            kind: `lock`, `semaphore`, `rwlock` or `leader`: each kind has its own names.
            limit: most holders of a semaphore at a time.
            shared: hold a read/write lock for reading, together with other readers.
            lease: seconds until the lock is free if it is not renewed; from 0.05 to a day.
            wait: longest wait in seconds; 0: try once; None: no limit.

        Raises:
            LockHeldError, AccessDeniedError, InvalidError, UnavailableError: as `lock`.
        """
        terms, patience = _grant_terms(kind, limit, shared=shared, lease_ms=check_lease_ms(lease)), check_wait(wait)
        hold = LeaseSession(self._lease_calls, self._lease_resource(kind, name), terms, lambda: None)
        await hold.take(patience)
        lease_renewer(self._lease_names.context).stop_renewing(hold)
        return LeaseGrant(name=name, token=hold.token, id=hold.id, remaining=hold.remaining)

    async def lease_renew(
        self,
        name: str,
        id: str,  # noqa: A002  its name
        *,
        kind: LeaseKind = "lock",
        lease: float = 30.0,
    ) -> LeaseGrant:
        """Renew a lock from `lease_acquire`. One round trip.

        Args:
            name: the name as given to `lease_acquire`.
            id: id of the grant.
            kind: the kind as given to `lease_acquire`.
            lease: seconds from now.

        Raises:
            LockLostError: the lease has expired, or was released.
            AccessDeniedError, InvalidError, UnavailableError: as `lock`.
        """
        place, lease_ms = self._lease_resource(_check_kind(kind), name), check_lease_ms(lease)
        token, holder = parse_grant_id(id, self._lease_names.actor)
        if not await self._lease_calls.renew(place, holder, lease_ms=lease_ms):
            raise LockLostError(kind, name, token)
        return LeaseGrant(name=name, token=token, id=id, remaining=lease)

    async def lease_release(
        self,
        name: str,
        id: str,  # noqa: A002  its name
        *,
        kind: LeaseKind = "lock",
    ) -> bool:
        """Release a lock from `lease_acquire`; return whether it was held until now. One round trip.

        Args:
            name: the name as given to `lease_acquire`.
            id: id of the grant.
            kind: the kind as given to `lease_acquire`.

        Raises:
            AccessDeniedError, InvalidError, UnavailableError: as `lock`.
        """
        place = self._lease_resource(_check_kind(kind), name)
        _, holder = parse_grant_id(id, self._lease_names.actor)
        return await self._lease_calls.release(place, holder)

    async def lease_revoke(self, name: str, token: int, *, kind: LeaseKind = "lock") -> bool:
        """End the lease of another holder, by its fencing token; return whether it was held until now. One round trip.

        For a holder that hangs and goes on renewing its lease. It notices with its next renewal: its block is
        cancelled, with LockLostError. Until then it may still write, so the resource must reject tokens lower than
        that of the next holder. The change feed announces `<kind>.revoke` with the actor that revoked it.

        Args:
            name: plain or absolute.
            token: fencing token of the holder, from `lease_state`: only this lease is revoked, none that follows.
            kind: `lock`, `semaphore`, `rwlock` or `leader`: each kind has its own names.

        Raises:
            AccessDeniedError: this actor may not write the name.
            InvalidError, UnavailableError: as `lock`.
        """
        if isinstance(token, bool) or not isinstance(token, int) or not 0 < token <= _HIGHEST_TOKEN:
            raise InvalidError("token", token, "give the fencing token of a holder, as lease_state shows it")
        place = self._lease_resource(_check_kind(kind), name)
        return await self._lease_calls.revoke(place, token=token, change=f"{kind}.revoke")

    @cached_property
    def _lease_calls(self) -> LeaseCalls:
        return LeaseCalls(self._lease_names)

    @cached_property
    def _lease_resources(self) -> dict[tuple[str, str], LeaseResource]:
        return {}

    def _lease_resource(self, kind: LeaseKind, name: str) -> LeaseResource:
        names = self._lease_names
        known = self._lease_resources.get((kind, name))
        if known is not None:
            return known
        target = names.scope.common(name, "write")
        places = LeaseKeys(names.part(target, kind), names.part(target, f"{kind}.waiters"))
        if len(self._lease_resources) >= _CACHED_RESOURCES:
            self._lease_resources.clear()
        place = LeaseResource(kind, name, target, NamedLeaseKeys(*places, target.physical), places)
        return self._lease_resources.setdefault((kind, name), place)


def _check_kind(kind: LeaseKind) -> LeaseKind:
    if kind not in _KINDS:
        raise InvalidError("kind", kind, f"use one of {', '.join(_KINDS)}")
    return kind


def _grant_terms(kind: LeaseKind, limit: int | None, *, shared: bool, lease_ms: int) -> LeaseTerms:
    """Return the terms of a lock of a kind, as its block would use them."""
    _check_kind(kind)
    if limit is not None and kind != "semaphore":
        raise InvalidError("limit", limit, f"leave it out: a {kind} has no limit; only kind='semaphore' has")
    if shared and kind != "rwlock":
        raise InvalidError("shared", shared, f"leave it out: a {kind} has one holder; only kind='rwlock' can be shared")
    if kind == "semaphore":
        return LeaseTerms(_check_limit(limit), 1, lease_ms)
    if kind == "rwlock":
        return LeaseTerms(MOST_READERS, 1 if shared else MOST_READERS, lease_ms)
    return LeaseTerms(1, 1, lease_ms, _GAIN) if kind == "leader" else LeaseTerms(1, 1, lease_ms)


def _check_limit(limit: int | None) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST_PLACES:
        raise InvalidError("limit", limit, f"give a whole number from 1 to {MOST_PLACES}")
    return limit


def parse_holders(kind: str, pairs: Sequence[object], now: int) -> tuple[Holder, ...]:
    """Return the holders whose leases have not ended, from members and ends in turn; `now` in microseconds."""
    found = [_parse_holder(kind, member, ends, now) for member, ends in zip(pairs[::2], pairs[1::2], strict=True)]
    return tuple(holder for holder in found if holder.remaining_ms > 0)


def _parse_holder(kind: str, member: object, ends: object, now: int) -> Holder:
    assert isinstance(member, bytes)
    assert isinstance(ends, bytes)
    token, actor, weight, _ = member.decode().split(" ", 3)
    is_shared = kind == "semaphore" or (kind == "rwlock" and weight == "1")
    return Holder(token=int(token), actor=actor, remaining_ms=(int(float(ends)) - now) // 1000, shared=is_shared)


def parse_server_time(now: Sequence[object]) -> int:
    """Return the reply of TIME in microseconds."""
    seconds, rest = now
    assert isinstance(seconds, bytes)
    assert isinstance(rest, bytes)
    return int(seconds) * 1_000_000 + int(rest)


# -- leader election -----------------------------------------------------------------------------


TermCallback = Callable[[int], Awaitable[None] | None]
_PAUSE_S = 1.0
_logger = get_logger("leader")


class Campaign:
    """Runs the election of a `Candidacy` until it is stopped.

    Args:
        context: dependencies that the hub shares with its stores.
        new_session: creates the lease session of one term; its argument is called if the lease is lost.
        on_gain, on_loss: called with the token.
    """

    def __init__(
        self,
        context: HubContext,
        new_session: Callable[[Callable[[], None]], LeaseSession],
        on_gain: TermCallback | None,
        on_loss: TermCallback | None,
    ) -> None:
        self._context = context
        self._new_session = new_session
        self._on_gain = on_gain
        self._on_loss = on_loss
        self._hold: LeaseSession | None = None
        self._term_ends = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        # Set on election and at the end of the campaign; waiters then check which of both it is.
        self._news = asyncio.Event()
        self._is_over = False

    @property
    def token(self) -> int | None:
        """The fencing token while it leads, else None."""
        hold = self._hold
        return hold.token if hold is not None and hold.is_held() else None

    async def run(self) -> None:
        """Wait to be elected, lead, and start again."""
        try:
            while not self._is_over:
                hold = self._new_session(self._term_ends.set)
                try:
                    await hold.take(None)
                except SharedMemoryError as error:
                    _logger.warning("%s %r: the election continues after: %s", hold.place.kind, hold.place.name, error)
                    await self._context.clock.sleep(_PAUSE_S)
                else:
                    await self._lead(hold)
        finally:
            self.end()

    def end(self) -> None:
        """End the term and the campaign; a cancellation alone could be lost while a reply arrives."""
        self._is_over = True
        self._term_ends.set()
        self._news.set()

    async def elected(self) -> int:
        """Wait until it leads; return the token.

        Raises:
            UsageError: the campaign is over.
        """
        while (token := self.token) is None:
            if self._is_over:
                raise UsageError("this candidacy", "its block has ended; call leader() again")
            self._news.clear()
            await self._news.wait()
        return token

    async def resign(self) -> None:
        """End the term, and wait until that is done."""
        if not self._idle.is_set():
            self._term_ends.set()
            await self._idle.wait()

    async def _lead(self, hold: LeaseSession) -> None:
        self._hold = hold
        self._idle.clear()
        self._news.set()
        gaining = self._start_callback(self._on_gain, hold.token)
        try:
            await self._term_ends.wait()
        finally:
            # From here on `token` is None, but the lease is kept until the callback of this term has stopped.
            self._hold = None
            if gaining is not None:
                await gaining.stop()
            await self._step_down(hold)
            if not self._is_over:
                self._term_ends.clear()
            self._idle.set()

    async def _step_down(self, hold: LeaseSession) -> None:
        try:
            await hold.release()
        except SharedMemoryError as error:
            _logger.warning("%s %r: not released, its lease will expire: %s", hold.place.kind, hold.place.name, error)
        if self._on_loss is not None:
            await self._run_callback(self._on_loss, hold.token)

    def _start_callback(self, callback: TermCallback | None, token: int) -> BackgroundTask | None:
        """Start a callback in the background: it may run as long as the term, and is cancelled at its end."""
        return None if callback is None else self._context.background.start("lead", self._run_callback(callback, token))

    async def _run_callback(self, callback: TermCallback, token: int) -> None:
        try:
            answer = callback(token)
            if inspect.isawaitable(answer):
                await answer
        except Exception:
            self._context.counters.increment("callback_failures")
            _logger.exception("a callback of a candidate failed; the election continues")


class Candidacy(ProcessBound):
    """A candidate for election while its block runs."""

    def __init__(self, name: str, campaign: Campaign) -> None:
        self._name = name
        self._campaign = campaign

    @property
    def name(self) -> str:
        """The name of the election, as the caller gave it."""
        return self._name

    @property
    def is_leader(self) -> bool:
        """Whether it leads now, by the local clock, which ends the term before the server's lease expires."""
        return self._campaign.token is not None

    @property
    def token(self) -> int | None:
        """Fencing token of this term, higher than the tokens of all earlier leaders; None while it does not lead."""
        return self._campaign.token

    async def elected(self) -> int:
        """Wait until it leads.

        Returns:
            The token of the term.

        Raises:
            UnavailableError: the block was left.
        """
        return await self._campaign.elected()

    async def resign(self) -> None:
        """End the term now, so that the next candidate leads; then wait for election again, behind the others.

        Without other candidates it is elected again at once. If it does not lead, nothing happens. One round trip.
        """
        await self._campaign.resign()

    def __repr__(self) -> str:
        state = f"leads, token {self.token}" if self.is_leader else "does not lead"
        return f"<Candidacy for {self._name!r}, {state}>"
