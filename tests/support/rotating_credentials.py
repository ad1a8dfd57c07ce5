"""A scripted identity provider: it gives the credentials that a test says, and tells its listener when they change."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from redis.credentials import StreamingCredentialProvider


class RotatingCredentials(StreamingCredentialProvider):
    """A provider as redis-py describes it.

    Args:
        user: the first user name.
        password: the first password.
    """

    def __init__(self, user: str, password: str) -> None:
        self.login = (user, password)
        self.failure: Exception | None = None
        """Raised instead of an answer."""
        self.held = asyncio.Event()
        """Set when an answer is held back."""
        self._release: asyncio.Event | None = None
        self._on_next: Callable[[Any], Any] | None = None
        self._on_error: Callable[[Exception], Any] | None = None

    def get_credentials(self) -> tuple[str, str]:
        """Return the current credentials."""
        if self.failure is not None:
            raise self.failure
        return self.login

    async def get_credentials_async(self) -> tuple[str, str]:
        """As `get_credentials`."""
        answer = self.get_credentials()
        release, self._release = self._release, None
        if release is not None:
            self.held.set()
            await release.wait()
        return answer

    def hold_next(self) -> asyncio.Event:
        """Hold the next answer back, until the event is set."""
        self._release = release = asyncio.Event()
        return release

    def on_next(self, callback: Callable[[Any], Any]) -> None:
        """Call back after `rotate`."""
        self._on_next = callback

    def on_error(self, callback: Callable[[Exception], Any]) -> None:
        """Call back after `fail`."""
        self._on_error = callback

    def is_streaming(self) -> bool:
        """Return whether there is a listener."""
        return self._on_next is not None

    async def rotate(self, user: str, password: str) -> None:
        """Give other credentials from now on, and say so."""
        self.login, self.failure = (user, password), None
        await _told(self._on_next, None)

    async def fail(self, failure: Exception) -> None:
        """Give none from now on, and say so."""
        self.failure = failure
        await _told(self._on_error, failure)


async def _told(callback: Callable[[Any], Any] | None, what: object) -> None:
    assert callback is not None
    answer = callback(what)
    if inspect.isawaitable(answer):
        await answer
