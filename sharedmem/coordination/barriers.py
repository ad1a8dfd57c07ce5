"""Barriers: no party continues before all have arrived."""

from __future__ import annotations

from sharedmem.coordination.names import NameAccess, check_lease_ms, check_wait
from sharedmem.errors import BarrierError, ConflictError, InvalidError
from sharedmem.models.coordination import Arrival
from sharedmem.redis.keys import Target
from sharedmem.redis.pubsub import Waiter
from sharedmem.redis.scripts.coordination import BarrierKeys, BarrierScripts
from sharedmem.runtime.concurrency import ProcessBound

MOST_PARTIES = 1000


class Barriers:
    """Barriers: no party continues before all have arrived."""

    def __init__(self, names: NameAccess) -> None:
        self._barrier_names = names

    def barrier(self, name: str, parties: int, *, lease: float = 30.0) -> Barrier:
        """Return a barrier, at which `parties` callers wait for each other, any number of times. No round trip.

        Args:
            name: plain (`<namespace>:shared:<name>`) or absolute.
            parties: number of parties that must arrive, 1 to 1,000; all callers must give the same number.
            lease: seconds after which a waiter that sends no heartbeat no longer counts;
                renewed while it waits.

        Raises:
            InvalidError: an argument is out of bounds.
            AccessDeniedError: this actor may not use the name.
        """
        if isinstance(parties, bool) or not isinstance(parties, int) or not 1 <= parties <= MOST_PARTIES:
            raise InvalidError("parties", parties, f"give a whole number from 1 to {MOST_PARTIES}")
        target = self._barrier_names.scope.common(name, "write")
        return Barrier(self._barrier_names, target, parties=parties, lease_ms=check_lease_ms(lease))


class Barrier(ProcessBound):
    """One barrier, shared by all users of its name. Created by `barrier`."""

    def __init__(self, names: NameAccess, target: Target, *, parties: int, lease_ms: int) -> None:
        self._names = names
        self._target = target
        self._keys = BarrierKeys(names.part(target, "barrier"), names.part(target, "barrier.opened"))
        self._parties = parties
        self._lease_ms = lease_ms
        self._scripts = BarrierScripts(names.context.executor)

    @property
    def name(self) -> str:
        """The absolute name."""
        return self._target.key

    @property
    def parties(self) -> int:
        """The number of parties that must arrive."""
        return self._parties

    async def wait(self, *, timeout: float | None = None) -> Arrival:  # noqa: ASYNC109  # the server uses it too
        """Wait until all parties have arrived. Then the barrier notifies all of them at once and closes again.

        A party that dies while it waits no longer counts after its lease has expired; the barrier then waits for
        another one. One round trip for the last party; two, and one every `lease` / 3 seconds, for the others.

        Args:
            timeout: longest wait in seconds; 0: pass only as the last party; None: no limit.

        Returns:
            The position in the order of arrival, and the generation: a number that rises with every opening.

        Raises:
            BarrierError: not all parties came in time; this one no longer counts as arrived.
            ConflictError: other callers wait at this barrier with another number of parties.
            InvalidError, UnavailableError: as `write`.
        """
        patience = check_wait(timeout)
        deadline = float("inf") if patience is None else self._names.context.clock.monotonic() + patience
        async with self._names.context.wait_notifier.waiter(self._target.space) as waiter:
            try:
                return await self._wait_until_open(waiter, deadline)
            except BaseException as error:
                if not isinstance(error, ConflictError):
                    self._leave_in_background(waiter.name)
                raise

    async def waiting(self) -> int:
        """Return the number of parties that wait now. One round trip.

        Raises:
            UnavailableError: as `read`.
        """
        return await self._names.explained(self._target, self._scripts.barrier_look(self._keys.barrier))

    async def _wait_until_open(self, waiter: Waiter, deadline: float) -> Arrival:
        place = await self._arrive(waiter)
        while not isinstance(place, Arrival):
            left = deadline - self._names.context.clock.monotonic()
            if left <= 0:
                return await self._leave(waiter)
            await waiter.wait(min(left, self._lease_ms / 3000))
            place = await self._stay(waiter, place)
        return place

    async def _arrive(self, waiter: Waiter) -> Arrival | bytes:
        """Arrive; return the passage, or the entry under which this party waits."""
        call = self._scripts.barrier_arrive(
            self._target.space,
            self._keys,
            self._names.actor,
            waiter=waiter.name,
            parties=self._parties,
            lease_ms=self._lease_ms,
        )
        word, rest = _split_reply(await self._names.explained(self._target, call))
        if word == b"parties":
            others = f"others wait there for {int(rest)} parties"
            advice = "give all the same number, or another name"
            raise ConflictError(f"barrier {self.name!r} is to open for {self._parties} parties, {others}; {advice}")
        return _parse_arrival(rest) if word == b"opened" else rest

    async def _stay(self, waiter: Waiter, entry: bytes) -> Arrival | bytes:
        """Renew the entry, or pass if the barrier has opened; arrive again if the entry has expired."""
        call = self._scripts.barrier_stay(
            self._target.space,
            self._keys,
            self._names.actor,
            waiter=waiter.name,
            arrival=entry,
            lease_ms=self._lease_ms,
        )
        word, rest = _split_reply(await self._names.explained(self._target, call))
        if word == b"gone":
            return await self._arrive(waiter)
        return _parse_arrival(rest) if word == b"opened" else rest

    async def _leave(self, waiter: Waiter) -> Arrival:
        """Leave the barrier, unless it has opened just now."""
        call = self._scripts.barrier_leave(self._target.space, self._keys, self._names.actor, waiter=waiter.name)
        word, rest = _split_reply(await self._names.explained(self._target, call))
        if word == b"opened":
            return _parse_arrival(rest)
        raise BarrierError(self.name, came=int(rest) + 1, parties=self._parties)

    def _leave_in_background(self, name: str) -> None:
        """Leave the barrier at the server in the background."""
        self._names.context.background.start_last_call(
            f"leave barrier {self.name}",
            lambda: self._scripts.barrier_leave(self._target.space, self._keys, self._names.actor, waiter=name),
        )

    def __repr__(self) -> str:
        return f"<Barrier {self.name} for {self._parties}>"


def _split_reply(reply: bytes) -> tuple[bytes, bytes]:
    word, _, rest = reply.partition(b" ")
    return word, rest


def _parse_arrival(rest: bytes) -> Arrival:
    generation, position = rest.split()
    return Arrival(position=int(position), generation=int(generation))
