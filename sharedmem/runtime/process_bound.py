"""Guards for objects that hold a connection: they work only in the process and event loop that opened them."""

from __future__ import annotations

import asyncio
import os
from typing import NoReturn, SupportsIndex

from sharedmem.errors import NotPicklableError, UsageError


class ProcessBound:
    """Base of objects with a connection; rejects `pickle` and `copy`, and so use as arguments of process pools."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise NotPicklableError(type(self).__name__)


class EventLoopBinding:
    """The event loop and the process in which an object was opened: the current ones.

    Args:
        what: name of the object, for errors.
        blocking: module of the blocking interface that several threads can share, for errors.
    """

    def __init__(self, what: str, *, blocking: str = "sharedmem.sync") -> None:
        self._what = what
        self._blocking = blocking
        self._loop = asyncio.get_running_loop()
        self._process = os.getpid()

    @property
    def is_another_process(self) -> bool:
        """Whether this process was forked after the object was opened."""
        return os.getpid() != self._process

    def check(self) -> None:
        """Raise in another event loop or a forked process.

        Raises:
            UsageError: the object was opened elsewhere.
        """
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:  # a child that was forked from a coroutine has no loop
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
