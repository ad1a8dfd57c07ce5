"""Leader election: of all candidates for a name one leads, and another takes over when its heartbeats end."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable

from sharedmem.context import HubContext
from sharedmem.coordination.lease_session import LeaseSession
from sharedmem.errors import SharedMemoryError, UsageError
from sharedmem.runtime import get_logger
from sharedmem.runtime.background import BackgroundTask
from sharedmem.runtime.process_bound import ProcessBound

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
