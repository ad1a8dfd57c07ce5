"""Bounds of one caller: sessions and streams open at once. Streams end with the service, and with the token."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.types import Message, Send

from sharedmem.clock import Clock, SystemClock
from sharedmem.errors import LimitedError, UnavailableError
from sharedmem.faces.limits import CallerSlots

SESSION_IDLE_S = 1800.0
"""Seconds after which a session without a request ends."""
_MOST_SESSIONS_EACH = 100
_MOST_KNOWN = 10_000
_MOST_STREAMS, _MOST_STREAMS_EACH = 1000, 100
_BACK_AFTER_S = 5.0


class CallerSessions:
    """The sessions of each caller in this process, so that one of them cannot take the room of all.

    Args:
        clock: source of the time.
    """

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._used_s: dict[str, dict[str, float]] = {}

    def check(self, caller: str) -> None:
        """Refuse a caller that wants a further session.

        Raises:
            LimitedError: it has too many that were used lately.
        """
        if len(self._used_s) > _MOST_KNOWN:
            for known in list(self._used_s):
                self._forget_idle(known)
        self._forget_idle(caller)
        if len(self._used_s.get(caller, ())) >= _MOST_SESSIONS_EACH:
            what = f"{_MOST_SESSIONS_EACH} sessions of this caller are open"
            raise LimitedError(f"{what}; go on in one of them, or end them with DELETE", _BACK_AFTER_S)

    def note(self, caller: str, session: str) -> None:
        """Take note that a session was used."""
        self._used_s.setdefault(caller, {})[session] = self._clock.monotonic()

    def end(self, caller: str, session: str) -> None:
        """Take note that a caller has ended a session."""
        self._used_s.get(caller, {}).pop(session, None)

    def _forget_idle(self, caller: str) -> None:
        since_s = self._clock.monotonic() - SESSION_IDLE_S
        left = {session: used_s for session, used_s in self._used_s.get(caller, {}).items() if used_s > since_s}
        if left:
            self._used_s[caller] = left
        else:
            self._used_s.pop(caller, None)


class CallerStreams:
    """The streams that are open: each ends when its client leaves, its token is taken back, or the service ends.

    Args:
        closing: set when the service ends.
        check_s: so often the caller of a stream is looked at again, in seconds.
    """

    def __init__(self, closing: asyncio.Event, *, check_s: float) -> None:
        self._closing = closing
        self._check_s = check_s
        self._slots = CallerSlots(
            "streams", most=_MOST_STREAMS, most_each=_MOST_STREAMS_EACH, retry_after=_BACK_AFTER_S
        )

    def check(self, caller: str) -> None:
        """Refuse a caller that has too many.

        Raises:
            LimitedError: it has, or all callers together have.
        """
        self._slots.check(caller)

    async def run(
        self,
        caller: str,
        answer: Callable[[Send], Awaitable[None]],
        send: Send,
        *,
        is_known: Callable[[], Awaitable[bool]],
    ) -> None:
        """Answer a request with a stream.

        Args:
            caller: whose it is.
            answer: sends the stream, until it is cancelled.
            send: of the request.
            is_known: whether the token of the caller still counts; the stream ends when it does not.

        Raises:
            UnavailableError: the service ends before the stream has begun.
        """
        has_begun = False

        async def sending(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        with self._slots.taken(caller):
            work = asyncio.ensure_future(answer(sending))
            ending = asyncio.ensure_future(self._closing.wait())
            try:
                while not await _any_done({work, ending}, within_s=self._check_s) and await is_known():
                    pass
            finally:
                ending.cancel()
                work.cancel()
                await asyncio.wait({work})
            if not work.cancelled():
                work.result()
            elif not has_begun:
                raise UnavailableError("this server", "it shuts down; call again", retry_after=_BACK_AFTER_S)
            else:
                await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _any_done(tasks: set[asyncio.Future[Any]], *, within_s: float) -> bool:
    done, _ = await asyncio.wait(tasks, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
    return bool(done)
