"""A lease from request to release: acquire, wait, renew, release; a lost lease cancels its block.

One background task renews all leases of a hub. Most leases are released long before their first renewal is due, so
a task for each of them would cost too much.
"""

from __future__ import annotations

import asyncio
import base64
import heapq
import random
from collections.abc import Callable
from itertools import count
from types import TracebackType
from typing import NamedTuple, Protocol

from sharedmem.clock import Clock, new_id
from sharedmem.context import HubContext
from sharedmem.coordination.lease_calls import LeaseCalls, LeaseResource
from sharedmem.coordination.names import safe_deadline
from sharedmem.errors import InvalidError, LockHeldError, LockLostError, SharedMemoryError, UnavailableError
from sharedmem.redis.pubsub import Waiter
from sharedmem.redis.scripts.coordination import LeaseTerms
from sharedmem.runtime import get_logger
from sharedmem.runtime.concurrency import Background, BackgroundTask, ProcessBound

_SPARE_ENTRIES = 64
_IDLE_S = 10.0
_NEVER = float("inf")


class Renewable(Protocol):
    """A lease that can be renewed; times are seconds of the hub's monotonic clock."""

    renew_at: float
    deadline: float

    async def renew(self) -> bool:
        """Renew the lease and advance both times; return False if it is lost."""

    def lose(self) -> None:
        """Handle the loss of the lease."""


class LeaseRenewer:
    """Renews leases for the tasks of one hub.

    Args:
        background: runs the renewer and the renewals.
        clock: gives the time.
    """

    def __init__(self, background: Background, clock: Clock) -> None:
        self._background = background
        self._clock = clock
        self._planned: dict[Renewable, float] = {}
        # Entries that are not in `_planned` (any more) stay in the heap and are skipped.
        self._plan: list[tuple[float, int, Renewable]] = []
        self._order = count()
        self._alarm = Waiter("keeper", clock)
        self._wakes_at = -_NEVER
        self._work: BackgroundTask | None = None

    def keep(self, kept: Renewable) -> None:
        """Renew a lease from now on.

        Raises:
            UsageError: the hub is closed.
        """
        if self._work is None or self._work.done:
            self._work = self._background.start("keep leases", self._run())
        self._schedule(kept, kept.renew_at)

    def stop_renewing(self, kept: Renewable) -> None:
        """Stop renewing a lease; it gets no more calls."""
        self._planned.pop(kept, None)
        if len(self._plan) > 2 * len(self._planned) + _SPARE_ENTRIES:
            self._plan = [entry for entry in self._plan if self._planned.get(entry[2]) == entry[0]]
            heapq.heapify(self._plan)

    def _schedule(self, kept: Renewable, when: float) -> None:
        self._planned[kept] = when
        heapq.heappush(self._plan, (when, next(self._order), kept))
        if when < self._wakes_at:
            self._alarm.call()

    async def _run(self) -> None:
        while self._planned or await self._wait_idle():
            self._renew_due()
            if self._planned:
                await self._sleep_until(self._plan[0][0])

    async def _wait_idle(self) -> bool:
        """Wait a while before the task ends: a released lease is often taken again soon."""
        ends_at = self._clock.monotonic() + _IDLE_S
        while not self._planned and self._clock.monotonic() < ends_at:
            # Not beyond the last plan: the next lease is renewed later, and need not wake this task.
            await self._sleep_until(min(self._plan[0][0], ends_at) if self._plan else ends_at)
            self._renew_due()
        return bool(self._planned)

    async def _sleep_until(self, when: float) -> None:
        self._wakes_at = when
        await self._alarm.wait(when - self._clock.monotonic())
        self._wakes_at = -_NEVER

    def _renew_due(self) -> None:
        while self._plan and self._plan[0][0] <= self._clock.monotonic():
            when, _, kept = heapq.heappop(self._plan)
            if self._planned.get(kept) == when:
                self._renew_or_lose(kept)

    def _renew_or_lose(self, kept: Renewable) -> None:
        if self._clock.monotonic() >= kept.deadline:
            self._drop(kept)
            return
        # The renewal may take longer than the lease: its deadline is watched as well.
        self._schedule(kept, kept.deadline)
        self._background.start("renew a lease", self._renew(kept))

    async def _renew(self, kept: Renewable) -> None:
        is_kept = await kept.renew()
        if kept not in self._planned:
            return
        if is_kept:
            self._schedule(kept, min(kept.renew_at, kept.deadline))
        else:
            self._drop(kept)

    def _drop(self, kept: Renewable) -> None:
        self.stop_renewing(kept)
        kept.lose()


def lease_renewer(context: HubContext) -> LeaseRenewer:
    """Return the renewer of a hub, which renews the leases of all its tasks."""
    return context.shared(LeaseRenewer, "", lambda: LeaseRenewer(context.background, context.clock))


_ENDED = float("-inf")
# Waiters behind the first ones are notified in time; they poll only in case a notification was lost.
_LONGEST_POLL_S = 45.0
_POLL_GROWTH_RANKS = 16
_logger = get_logger("leases")


class LeaseRefusal(NamedTuple):
    """A refusal, because other holders have the name."""

    remaining_ms: int
    rank: int
    """Number of waiters before this one."""


def parse_grant_id(id: str, actor: bytes) -> tuple[int, bytes]:  # noqa: A002  the field of grants
    """Return (fencing token, member at the server) of a lease of weight 1 from its id.

    Raises:
        InvalidError: the id is invalid.
    """
    try:
        words = base64.b64decode(id + "=" * (-len(id) % 4), altchars=b"-_", validate=True).decode().split(" ")
        token, asker = int(words[0]), words[1]
    except (ValueError, IndexError):
        raise InvalidError("id", id, "give the id of the grant as it was returned") from None
    return token, b"%d %b 1 %b" % (token, actor, asker.encode())


class LeaseSession:
    """One lease, from the request to the release.

    Args:
        calls: the calls of leases for the store.
        place: the name to lease.
        terms: the terms of the lease.
        on_lost: called when the lease is lost against the will of its holder.
    """

    __slots__ = (
        "_asker",
        "_calls",
        "_holder",
        "_on_lost",
        "deadline",
        "is_gone",
        "place",
        "renew_at",
        "terms",
        "token",
    )

    def __init__(self, calls: LeaseCalls, place: LeaseResource, terms: LeaseTerms, on_lost: Callable[[], None]) -> None:
        self._calls = calls
        self._on_lost = on_lost
        self._asker = ""
        self._holder = b""
        self.place = place
        self.terms = terms
        self.token = 0
        self.is_gone = False
        self.deadline = self.renew_at = _ENDED

    @property
    def actor(self) -> str:
        """The actor that holds the lease."""
        return self._calls.names.actor.decode()

    @property
    def id(self) -> str:
        """Id for `parse_grant_id`: other callers can renew and release the lease with it."""
        return base64.urlsafe_b64encode(f"{self.token} {self._asker}".encode()).decode().rstrip("=")

    @property
    def remaining(self) -> float:
        """Seconds until the lease expires if it is not renewed, by the local clock."""
        return max(0.0, self.deadline - self._calls.names.context.clock.monotonic())

    def is_held(self) -> bool:
        """Return whether the lease has not expired, by the local clock."""
        return self._calls.names.context.clock.monotonic() < self.deadline

    def lost(self) -> LockLostError:
        """Return the error for a lost lease."""
        return LockLostError(self.place.kind, self.place.name, self.token)

    # -- request

    async def take(self, wait: float | None) -> None:
        """Acquire the lease, and renew it from now on. One round trip if it is free; a few while it waits.

        Args:
            wait: longest wait in seconds; 0: try once; None: no limit.

        Raises:
            LockHeldError: other holders have the name.
            SharedMemoryError: as the calls of a store.
        """
        clock = self._calls.names.context.clock
        give_up_at = None if wait is None else clock.monotonic() + wait
        refused = await self._ask(new_id(), waits=0)
        if refused is not None:
            if wait == 0:
                raise self._lock_held_error(refused)
            await self._wait_for_turn(give_up_at)
        lease_renewer(self._calls.names.context).keep(self)

    async def _wait_for_turn(self, give_up_at: float | None) -> None:
        async with self._calls.names.context.wait_notifier.waiter(self.place.target.space) as waiter:
            while (refused := await self._ask(waiter.name, waits=1)) is not None:
                try:
                    await self._wait_for_notification(waiter, refused, give_up_at)
                except asyncio.CancelledError:
                    self._leave_in_background(waiter.name)
                    raise

    async def _wait_for_notification(self, waiter: Waiter, refused: LeaseRefusal, give_up_at: float | None) -> None:
        pause = self._pause(refused)
        if give_up_at is not None:
            left = give_up_at - self._calls.names.context.clock.monotonic()
            if left <= 0:
                await self._leave(waiter.name)
                raise self._lock_held_error(refused)
            pause = min(pause, left)
        await waiter.wait(pause)

    async def _ask(self, asker: str, *, waits: int) -> LeaseRefusal | None:
        names, place, terms = self._calls.names, self.place, self.terms
        asked_at = names.context.clock.monotonic()
        try:
            reply = await self._calls.acquire(place, terms, asker, waits=waits)
        except (asyncio.CancelledError, UnavailableError):
            # The lease may have been granted although the caller no longer waited for the reply.
            self._leave_in_background(asker)
            raise
        verdict, *words = reply.split()
        if verdict == b"got":
            self.token, self._asker = int(words[0]), asker
            self._holder = b"%b %b %d %b" % (words[0], names.actor, terms.weight, asker.encode())
            self._set_deadlines(asked_at)
            return None
        return LeaseRefusal(int(words[0]), int(words[1]))

    def _set_deadlines(self, asked_at: float) -> None:
        lease = self.terms.lease_ms / 1000
        self.renew_at = asked_at + lease / 3
        self.deadline = safe_deadline(asked_at, lease)

    def _pause(self, refused: LeaseRefusal) -> float:
        """Return the seconds after which to try again without a notification."""
        remaining = refused.remaining_ms / 1000
        if refused.rank == 0:
            return remaining
        patience = self.terms.lease_ms / 1000 * (1 + refused.rank / _POLL_GROWTH_RANKS)
        looks_in = min(patience, _LONGEST_POLL_S) * random.uniform(2 / 3, 4 / 3)  # noqa: S311  # spreads the attempts
        # The first waiter may be dead: the second one also tries when a lease expires.
        return min(looks_in, remaining) if refused.rank == 1 else looks_in

    def _lock_held_error(self, refused: LeaseRefusal) -> LockHeldError:
        return LockHeldError(self.place.kind, self.place.name, remaining=refused.remaining_ms / 1000)

    # -- renewal

    async def renew(self) -> bool:
        """Renew the lease; return False if it is lost. One round trip."""
        place = self.place
        clock = self._calls.names.context.clock
        asked_at = clock.monotonic()
        try:
            self.is_gone = not await self._calls.renew(place, self._holder, lease_ms=self.terms.lease_ms)
        except SharedMemoryError as error:
            _logger.warning("%s %r could not be renewed and is tried again: %s", place.kind, place.name, error)
            self.renew_at = clock.monotonic() + self.terms.lease_ms / 1000 / 10
            return True
        # A lease that was released here in the meantime stays released.
        if not self.is_gone and self.is_held():
            self._set_deadlines(asked_at)
        return not self.is_gone

    def lose(self) -> None:
        """Mark the lease as lost; called by the renewer."""
        self.deadline = _ENDED
        self._calls.names.context.counters.increment("leases_lost", kind=self.place.kind)
        _logger.warning("%s %r of %s was lost (token %d)", self.place.kind, self.place.name, self.actor, self.token)
        self._on_lost()

    # -- release

    async def release(self) -> bool:
        """Release the lease for the next waiter; return whether it was held until now. One round trip.

        A lost lease is released in the background, since its server may be unreachable.

        Raises:
            SharedMemoryError: as the calls of a store; the name is free when the lease expires.
        """
        was_held = self.is_held()
        self.deadline = _ENDED
        lease_renewer(self._calls.names.context).stop_renewing(self)
        if not was_held:
            if not self.is_gone:
                self._leave_in_background(self._asker)
            return False
        try:
            return await self._calls.release(self.place, self._holder)
        except asyncio.CancelledError:
            self._leave_in_background(self._asker)
            raise

    def _leave_in_background(self, asker: str) -> None:
        self._calls.names.context.background.start_last_call("leave a line", lambda: self._leave(asker))

    async def _leave(self, asker: str) -> None:
        place = self.place
        try:
            await self._calls.leave(place, asker)
        except SharedMemoryError as error:
            _logger.warning("%s %r could not be released, its lease will expire: %s", place.kind, place.name, error)


class Lease(ProcessBound):
    """A lease that is held. It is renewed while its block runs.

    Send `token` with every write that the lock protects. Tokens rise with every holder, so the resource can reject
    a token that is lower than the highest that it has received.
    """

    def __init__(self, hold: LeaseSession) -> None:
        self._hold = hold

    @property
    def name(self) -> str:
        """The name of the lease, as the caller gave it."""
        return self._hold.place.name

    @property
    def token(self) -> int:
        """Fencing token: higher than the tokens of all earlier holders of anything in the namespace."""
        return self._hold.token

    @property
    def remaining(self) -> float:
        """Seconds for which the lease is valid without a renewal; 0 if it has ended.

        Measured by this machine's monotonic clock, and a little shorter than at the server.
        """
        return self._hold.remaining

    def is_held(self) -> bool:
        """Return whether the lease is still held. No round trip."""
        return self._hold.is_held()

    def check(self) -> None:
        """Raise if the lease is no longer held. No round trip.

        Raises:
            LockLostError: the lease has ended.
        """
        if not self._hold.is_held():
            raise self._hold.lost()

    def __repr__(self) -> str:
        state = f"{self.remaining:.1f} s left" if self.is_held() else "ended"
        return f"<Lease {self.name!r} held by {self._hold.actor}, token {self.token}, {state}>"


class LeaseBlock:
    """Holds a lease while a block runs, and cancels the block if the lease is lost, as `asyncio.timeout` does.

    Args:
        calls, place, terms: as `LeaseSession`.
        wait: as `LeaseSession.take`.
    """

    __slots__ = ("_cancelling", "_hold", "_interrupted", "_task", "_wait")

    def __init__(self, calls: LeaseCalls, place: LeaseResource, terms: LeaseTerms, wait: float | None) -> None:
        self._hold = LeaseSession(calls, place, terms, self._interrupt)
        self._wait = wait
        self._interrupted = False
        self._cancelling = 0
        self._task: asyncio.Task[object] | None = None

    async def __aenter__(self) -> Lease:
        await self._hold.take(self._wait)
        self._task = asyncio.current_task()
        self._cancelling = self._task.cancelling() if self._task else 0
        return Lease(self._hold)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        # Other code may have cancelled the task as well; then it must stay cancelled.
        is_ours = self._interrupted and task is not None and task.uncancel() <= self._cancelling
        was_held = self._hold.is_held()
        try:
            was_held = await self._hold.release()
        except SharedMemoryError:
            if kind is None:
                raise
        if not was_held and (kind is None or (is_ours and issubclass(kind, asyncio.CancelledError))):
            raise self._hold.lost() from error

    def _interrupt(self) -> None:
        if self._task is not None:
            self._interrupted = self._task.cancel()
