"""Asking a service: one request for each call, sent again while that may help."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from pydantic import TypeAdapter

from sharedmem.client import line
from sharedmem.client.faults import not_understood, unreachable
from sharedmem.client.ways import DESCRIPTION, KNOWN, Sketch, Way, described_ways, sketch, way_to
from sharedmem.clock import Clock, SystemClock
from sharedmem.errors import SharedMemoryError, UnavailableError
from sharedmem.process_bound import Home, ProcessBound

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")


class Remote(ProcessBound):
    """A service, from the other end of its connections; what its clients stand on.

    Args:
        base_url, token, timeout, retry_for, max_connections, clock, transport: as `SharedMemoryClient`.

    Raises:
        InvalidError, UnsupportedError: as `SharedMemoryClient`.
    """

    def __init__(
        self,
        base_url: str = line.DEFAULT_URL,
        *,
        token: str | None = None,
        timeout: float = 60.0,
        retry_for: float = 10.0,
        max_connections: int = 20,
        clock: Clock | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._place = line.place_of(base_url)
        self._headers = line.headers_of(token)
        self._timeout_s = timeout
        self._retry_for_s = retry_for
        self._max_connections = max_connections
        self._clock: Clock = clock or SystemClock()
        self._transport = transport
        self._http: httpx2.AsyncClient | None = None
        self._home: Home | None = None
        self._opening = asyncio.Lock()
        self._described: dict[str, Way] | None = None

    async def close(self) -> None:
        """Give back connections; a later call opens others."""
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<SharedMemoryClient of {self._place.shown}>"

    # -- asking

    async def _ask(self, gives: TypeAdapter[T], name: str, **fields: object) -> T:
        operation = f"synthesis.{name}"
        return await self._done(gives, sketch(operation, await self._way_to(operation), fields))

    async def _way_to(self, operation: str) -> Way:
        if operation in KNOWN:
            return KNOWN[operation]
        if self._described is None:
            asked = Sketch("description", "GET", DESCRIPTION, (), None)
            content = await self._persisted(asked)
            try:
                self._described = described_ways(content)
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                raise not_understood(self._place.shown, DESCRIPTION, error) from error
        return way_to(operation, self._described, self._place.shown)

    async def _done(self, gives: TypeAdapter[T], request: Sketch) -> T:
        content = await self._persisted(request)
        return line.read(content, gives, server=self._place.shown, operation=request.operation)

    async def _persisted(self, request: Sketch) -> bytes:
        """The content of the answer, in as many tries as there is time for."""
        headers = line.headers_for(request)
        tries = line.Tries(self._retry_for_s, self._clock.monotonic())
        while True:
            try:
                return await self._sent(request, headers)
            except SharedMemoryError as error:
                pause_s = tries.pause_s(error, self._clock.monotonic())
            await self._clock.sleep(pause_s)

    async def _sent(self, request: Sketch, headers: dict[str, str]) -> bytes:
        import httpx2  # noqa: PLC0415  # only who has a client needs it

        http = await self._opened()
        try:
            async with asyncio.timeout(self._timeout_s):
                response = await http.request(
                    request.method, request.path, params=request.query, content=request.content, headers=headers
                )
        except TimeoutError as error:
            raise self._unreachable(f"no answer within {self._timeout_s:g} s") from error
        except httpx2.RequestError as error:
            raise self._unreachable(f"{type(error).__name__}: {error}".rstrip(": ")) from error
        return line.checked(response.status_code, response.content, server=self._place.shown)

    def _unreachable(self, why: str) -> UnavailableError:
        return unreachable(self._place.shown, why)

    async def _opened(self) -> httpx2.AsyncClient:
        async with self._opening:
            if self._http is None:
                # It reads the certificates of this machine.
                self._http = await asyncio.to_thread(self._new)
                self._home = Home("this client")
            elif self._home is not None:
                self._home.check()
            return self._http

    def _new(self) -> httpx2.AsyncClient:
        import httpx2  # noqa: PLC0415  # likewise

        limits = httpx2.Limits(max_connections=self._max_connections)
        transport = self._transport
        if transport is None and self._place.socket is not None:
            transport = httpx2.AsyncHTTPTransport(uds=self._place.socket, limits=limits)
        return httpx2.AsyncClient(
            base_url=self._place.url, headers=self._headers, timeout=None, limits=limits, transport=transport
        )
