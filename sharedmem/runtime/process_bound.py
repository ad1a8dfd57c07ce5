"""Guards for objects that hold a connection: they work only in the process and event loop that opened them."""

from __future__ import annotations

import asyncio
import os
from typing import NoReturn, SupportsIndex

from sharedmem.errors import NotPicklableError, UsageError


class ProcessBound:
    """What a hub gives out; refuses `pickle` and `copy`, and with them arguments and results of process pools."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise NotPicklableError(type(self).__name__)


class EventLoopBinding:
    """The event loop and the process in which something was opened: the running ones.

    Args:
        what: was opened there, for errors.
        blocking: module of what several threads can share instead, for errors.
    """

    def __init__(self, what: str, *, blocking: str = "sharedmem.sync") -> None:
        self._what = what
        self._blocking = blocking
        self._loop = asyncio.get_running_loop()
        self._process = os.getpid()

    @property
    def is_another_process(self) -> bool:
        """Whether this process was forked from it since."""
        return os.getpid() != self._process

    def check(self) -> None:
        """Refuse to go on in another event loop or a forked process.

        Raises:
            UsageError: this is not where it was opened.
        """
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:  # a child that was forked from a coroutine has none
            here = None
        if here is not self._loop:
            raise UsageError(self._what, self._problem())

    def _problem(self) -> str:
        if self.is_another_process:
            return "it was opened before this process was forked; open another one here"
        if self._loop.is_closed():
            return "the event loop that it was opened in is closed; open another one in the loop that uses it"
        advice = f"open one in each loop, or use {self._blocking} from several threads"
        return f"it was opened in another event loop; {advice}"
