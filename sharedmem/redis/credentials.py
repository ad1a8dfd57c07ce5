"""Credentials that change: each new connection logs in with the current ones, and live connections are renewed.

A provider of credentials is asked for each log-in. One that renews its tokens is also asked twice a minute, and when it
says that there is a new token; if the credentials have changed, all connections are renewed before the old ones expire.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Protocol, cast, runtime_checkable
from weakref import WeakSet

from sharedmem.clock import Clock
from sharedmem.redis.replies import CredentialsError, LostError, ServerError
from sharedmem.runtime import get_logger

_CHECK_EVERY_S = 30.0
_LONGEST_REASON = 200
_DEFAULT_USER = "default"
_logger = get_logger("credentials")


class CredentialProvider(Protocol):
    """A source of user names and passwords: the providers of redis-py, and those for it."""

    async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
        """Return (user name, password), or (password,)."""


@runtime_checkable
class RenewingProvider(CredentialProvider, Protocol):
    """A provider that replaces its tokens before they expire, as the streaming providers of redis-py do."""

    def on_next(self, callback: Callable[[Any], Any], /) -> None:
        """Call back when there is a new token."""

    def on_error(self, callback: Callable[[Exception], Any], /) -> None:
        """Call back when a renewal has failed."""


@dataclass(frozen=True, slots=True)
class Login:
    """A user name with its password or token."""

    username: str
    password: str = field(repr=False)


class RenewableConnection(Protocol):
    """Connections to one server that can change to other credentials."""

    async def authenticate(self, login: Login) -> None:
        """Use the credentials from now on; raises `LostError` or `ServerError`."""


class Credentials:
    """The current credentials of one client, for all of its connections.

    Args:
        provider: is asked for them.
        address: the server, for log lines.
        clock: for the pauses between questions.
        timeout_s: longest wait for an answer of the provider.
        close_provider: is awaited at last.
    """

    def __init__(
        self,
        provider: CredentialProvider,
        *,
        address: str,
        clock: Clock,
        timeout_s: float,
        close_provider: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._provider = provider
        self._address = address
        self._clock = clock
        self._timeout_s = timeout_s
        self._close_provider = close_provider
        self._connections: WeakSet[RenewableConnection] = WeakSet()
        self._called = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        self._known: Login | None = None
        self.renewals = 0
        """How often the credentials have changed."""

    def add(self, connection: RenewableConnection) -> None:
        """Renew this connection, too, for as long as it exists."""
        self._connections.add(connection)

    def start(self) -> None:
        """Begin to ask the provider in the background, if it renews its tokens."""
        if not isinstance(self._provider, RenewingProvider):
            return
        loop = asyncio.get_running_loop()
        notice = _Notice(loop, self._called)
        self._provider.on_next(notice)
        self._provider.on_error(notice)
        self._watching = loop.create_task(self._watch())

    async def login(self) -> Login:
        """Return the current credentials.

        Raises:
            CredentialsError: the provider fails, or has no answer in time.
        """
        name = type(self._provider).__name__
        try:
            async with asyncio.timeout(self._timeout_s):
                found = _parse(await self._ask())
        except TimeoutError as error:
            problem = f"the credential provider {name} has no answer within {self._timeout_s:g} s (connect_timeout_s)"
            raise CredentialsError(problem) from error
        except Exception as error:
            # Whatever it is: providers are not ours.
            reason = (str(error).splitlines() or [""])[0][:_LONGEST_REASON]
            if self._known is not None:
                reason = reason.replace(self._known.password, "***")
            why = f"{type(error).__name__}: {reason}" if reason else type(error).__name__
            raise CredentialsError(f"the credential provider {name} fails ({why}); check its own log-in") from error
        if self._known is None:
            self._known = found
        return found

    async def renew(self) -> None:
        """Ask the provider now, and log all live connections in with its answer.

        Raises:
            CredentialsError: as `login`.
        """
        await self._change(await self.login())

    def rejection(self, error: ServerError) -> CredentialsError:
        """Return the error for credentials that the server does not accept."""
        name = type(self._provider).__name__
        user = "" if self._known is None else f" for the user {self._known.username!r}"
        advice = "check the rights of this identity at the server"
        return CredentialsError(f"it does not accept the credentials of {name}{user} ({error.code}); {advice}")

    async def close(self) -> None:
        """Stop asking, and close the provider if it is not the caller's."""
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.cancel()
            await asyncio.wait({watching})
        if self._close_provider is not None:
            await self._close_provider()

    @property
    def latest(self) -> Login | None:
        """The credentials to which live connections were changed at last."""
        return self._known

    async def _ask(self) -> tuple[str, ...]:
        answer = type(self._provider).get_credentials_async
        if answer.__module__ == "redis.credentials":
            # The base class calls the synchronous method in the event loop, and logs a warning each time.
            blocking = cast("Callable[[], tuple[str, ...]]", self._provider.get_credentials)  # type: ignore[attr-defined]  # every provider of redis-py has it
            return await asyncio.to_thread(blocking)
        return await self._provider.get_credentials_async()

    async def _watch(self) -> None:
        while True:
            await self._pause()
            try:
                login = await self.login()
            except CredentialsError as error:
                _logger.warning("Redis at %s: %s; the earlier credentials stay in use", self._address, error)
                continue
            if login != self._known:
                await self._change(login)

    async def _pause(self) -> None:
        """Wait until the provider calls, or it is time to ask it."""
        ends = [asyncio.ensure_future(self._called.wait()), asyncio.ensure_future(self._clock.sleep(_CHECK_EVERY_S))]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
        self._called.clear()

    async def _change(self, login: Login) -> None:
        self._known = login
        self.renewals += 1
        renewed = [connection.authenticate(login) for connection in list(self._connections)]
        for outcome in await asyncio.gather(*renewed, return_exceptions=True):
            if isinstance(outcome, ServerError):
                _logger.warning("Redis at %s: a connection keeps its log-in: %s", self._address, outcome.text)
            elif isinstance(outcome, BaseException) and not isinstance(outcome, LostError):
                raise outcome

    def __repr__(self) -> str:
        return f"<Credentials of {type(self._provider).__name__}>"


class _Notice:
    """What a provider calls; may be called in any thread, and awaited or not.

    Args:
        loop: the loop of the event.
        called: is set.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, called: asyncio.Event) -> None:
        self._loop = loop
        self._called = called

    def __call__(self, _token_or_error: object = None) -> _Notice:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._called.set)
        return self

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


def _parse(found: tuple[str, ...]) -> Login:
    user, password = found if len(found) == 2 else (_DEFAULT_USER, *found)
    return Login(user or _DEFAULT_USER, password)
