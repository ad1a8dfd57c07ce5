"""Barriers: nobody goes on before all have come."""

from __future__ import annotations

from sharedmem.coordination.names import NameAccess, check_lease_ms, check_wait
from sharedmem.errors import BarrierError, ConflictError, InvalidError
from sharedmem.models.coordination import Arrival
from sharedmem.redis.keys import Target
from sharedmem.redis.scripts.coordination import BarrierKeys, BarrierScripts
from sharedmem.redis.wait_queue import Waiter
from sharedmem.runtime.process_bound import ProcessBound

MOST_PARTIES = 1000


class Barriers:
    """Barriers: nobody goes on before all have come."""

    def __init__(self, names: NameAccess) -> None:
        self._barrier_names = names

    def barrier(self, name: str, parties: int, *, lease: float = 30.0) -> Barrier:
        """A place where so many wait for each other, again and again. No round trip.

        Args:
            name: plain is `<namespace>:shared:<name>`.
            parties: how many have to come, 1 to 1,000; all have to name the same number.
            lease: seconds after which a waiter that sends no heartbeat no longer counts;
                renewed while it waits.

        Raises:
            InvalidError: an argument is out of bounds.
            AccessDeniedError: this actor may not take part.
        """
        if isinstance(parties, bool) or not isinstance(parties, int) or not 1 <= parties <= MOST_PARTIES:
            raise InvalidError("parties", parties, f"give a whole number from 1 to {MOST_PARTIES}")
        target = self._barrier_names.scope.common(name, "write")
        return Barrier(self._barrier_names, target, parties=parties, lease_ms=check_lease_ms(lease))


class Barrier(ProcessBound):
    """One barrier, shared by all who use its name. Made by `barrier`."""

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
        """How many have to come."""
        return self._parties

    async def wait(self, *, timeout: float | None = None) -> Arrival:  # noqa: ASYNC109  # it also tells the server
        """Wait until all have come. Then all are called at once, and the barrier is closed again for the next time.

        Who dies while it waits no longer counts when its lease has ended: the barrier waits for somebody who lives.
        One round trip for the last to come, two and one every `lease` / 3 seconds for the others.

        Args:
            timeout: seconds to wait at most; 0 goes through only as the last to come, None for as long as it takes.

        Returns:
            The place in the order of arrival, and the generation: a number that rises with every opening.

        Raises:
            BarrierError: not all came in that time; this one has left again, and no longer counts.
            ConflictError: others wait at this barrier for another number of parties.
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
        """How many wait here now. One round trip.

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
        """Through it, or the entry under which it is there."""
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
        """Renew the entry, or find that the barrier has opened; whose entry has lapsed comes anew."""
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
        """Go away, unless it has opened just now."""
        call = self._scripts.barrier_leave(self._target.space, self._keys, self._names.actor, waiter=waiter.name)
        word, rest = _split_reply(await self._names.explained(self._target, call))
        if word == b"opened":
            return _parse_arrival(rest)
        raise BarrierError(self.name, came=int(rest) + 1, parties=self._parties)

    def _leave_in_background(self, name: str) -> None:
        """Tell the server that this one is gone, without holding it up."""
        self._names.context.release_in_background(
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
