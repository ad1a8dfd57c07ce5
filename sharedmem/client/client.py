"""The async HTTP client of a hub: every operation of the service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from sharedmem.client import http_protocol
from sharedmem.client.http_protocol import HttpRequest, check_reply, unreachable_error
from sharedmem.client.operations import ServiceOperations
from sharedmem.client.service import FeedReader, HttpReply, ServiceCalls, ServiceFeeds
from sharedmem.clock import Clock, SystemClock
from sharedmem.models import EvolutionGraph, GraphFormat, Note, SynthesisTask
from sharedmem.runtime.concurrency import EventLoopBinding, ProcessBound
from sharedmem.visualization import draw_chain

if TYPE_CHECKING:
    import httpx2


class AsyncSender:
    """Sends requests through connections that it keeps.

    Args:
        place, headers, timeout_s, max_connections, clock, transport: as `SharedMemoryClient`.
    """

    def __init__(
        self,
        place: http_protocol.ServiceUrl,
        headers: Mapping[str, str],
        *,
        timeout_s: float,
        max_connections: int,
        clock: Clock,
        transport: httpx2.AsyncBaseTransport | None,
    ) -> None:
        self._place = place
        self._headers = headers
        self._timeout_s = timeout_s
        self._max_connections = max_connections
        self._clock = clock
        self._transport = transport
        self._http: httpx2.AsyncClient | None = None
        self._home: EventLoopBinding | None = None
        self._opening = asyncio.Lock()

    def monotonic(self) -> float:
        """Return the time of the clock."""
        return self._clock.monotonic()

    async def pause(self, seconds: float) -> None:
        """Wait by the clock."""
        await self._clock.sleep(seconds)

    async def send(self, request: HttpRequest, headers: Mapping[str, str]) -> HttpReply:
        """Send a request once.

        Raises:
            UnavailableError: the service did not reply in time, or cannot be reached.
        """
        import httpx2  # noqa: PLC0415  # only who has a client needs it

        http = await self._opened()
        try:
            async with asyncio.timeout(self._timeout_s):
                response = await http.request(
                    request.method, request.path, params=request.query, content=request.content, headers=headers
                )
        except TimeoutError as error:
            raise unreachable_error(self._place.shown, f"no answer within {self._timeout_s:g} s") from error
        except httpx2.RequestError as error:
            raise unreachable_error(self._place.shown, f"{type(error).__name__}: {error}".rstrip(": ")) from error
        return HttpReply(response.status_code, response.content)

    @asynccontextmanager
    async def stream(self, request: HttpRequest, headers: Mapping[str, str]) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a stream; its parts come as they arrive.

        Raises:
            SharedMemoryError: the service refuses; UnavailableError also when no part comes for the time of a request.
        """
        import httpx2  # noqa: PLC0415  # only who has a client needs it

        http, timeout = await self._opened(), httpx2.Timeout(self._timeout_s)
        try:
            async with http.stream(
                request.method, request.path, params=request.query, headers=headers, timeout=timeout
            ) as response:
                if not response.is_success:
                    check_reply(response.status_code, await response.aread(), server=self._place.shown)
                yield response.aiter_bytes()
        except httpx2.RequestError as error:
            raise unreachable_error(self._place.shown, f"{type(error).__name__}: {error}".rstrip(": ")) from error

    async def close(self) -> None:
        """Close the connections; a later request opens others."""
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()

    async def _opened(self) -> httpx2.AsyncClient:
        async with self._opening:
            if self._http is None:
                # Making a client reads the certificates of this machine, which blocks.
                self._http = await asyncio.to_thread(self._new)
                self._home = EventLoopBinding("this client", blocking="sharedmem.client.sync")
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


class SharedMemoryClient(ServiceOperations, ProcessBound):
    """A memory service: `async with SharedMemoryClient("http://127.0.0.1:8420", token=...) as memory: ...`.

    Each operation of the service is a method, grouped by noun: `memory.value.write("findings", 1)`,
    `memory.queue.put("jobs", {"doc": 17})`, `memory.memory.search("what is broken?", limit=3)`. The calls of synthesis
    are also methods of the client itself: `memory.query_memory(...)`. They use the namespace of the token, and raise
    the errors of the library. Calls are repeated while the service cannot be reached or asks for a later call; the
    service does nothing twice. Connections are opened by the first call, and kept.

    Args:
        base_url: `http://host:port`, `https://...`, or `unix:/path/of.sock`.
        token: made by `sharedmem token`; None where the service takes every caller.
        timeout: seconds to wait for a response.
        retry_for: seconds for which a call is repeated.
        max_connections: requests that are under way at a time; others wait.
        clock: for pauses between tries.
        transport: how requests are sent; None opens connections.

    Raises:
        InvalidError: the URL or token is invalid.
        UnsupportedError: the HTTP client is not installed.
    """

    def __init__(
        self,
        base_url: str = http_protocol.DEFAULT_URL,
        *,
        token: str | None = None,
        timeout: float = 60.0,
        retry_for: float = 10.0,
        max_connections: int = 20,
        clock: Clock | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        place = http_protocol.parse_service_url(base_url)
        self._server = place.shown
        self._sender = AsyncSender(
            place,
            http_protocol.base_headers(token),
            timeout_s=timeout,
            max_connections=max_connections,
            clock=clock or SystemClock(),
            transport=transport,
        )
        self._calls = ServiceCalls(self._sender, server=place.shown, retry_for_s=retry_for)
        super().__init__(self._calls)
        self.feeds = ServiceFeeds(FeedReader(self._sender, server=place.shown, retry_for_s=retry_for))
        """Changes, messages and events of memories, as they happen."""

    async def call(self, operation: str, **fields: Any) -> Any:
        """Call any operation that the service describes by its name, such as `value.write`.

        Args:
            operation: its name, such as `value.write`; in its `/openapi.json` it is `x-operation`.
            fields: of the request; fields that are None are left out.

        Returns:
            What JSON says, undecoded: times are texts.

        Raises:
            UnsupportedError: the service does not offer it.
            SharedMemoryError: as the operation.
        """
        return await self._calls.call(operation, fields)

    async def wait(self, task_id: str, *, timeout: float | None = None) -> SynthesisTask:  # noqa: ASYNC109  # as queues
        """Return a task of synthesis as soon as it is done or has failed. One request for each poll.

        Args:
            task_id: as returned by `add_memory`.
            timeout: seconds after which the task is returned as it is; None waits without a limit.

        Raises:
            NotFoundError: there is no such task, or its result has expired.
            InvalidError, AccessDeniedError, LimitedError, UnavailableError: as `get_task_status`.
        """
        return await self._calls.wait(task_id, timeout)

    async def warm_up(self) -> bool:
        """Open a connection now, so that the first call need not wait for it; True. One request.

        Raises:
            AccessDeniedError, UnavailableError: the service takes no calls from here.
        """
        await self.get_connection_pool_stats()
        return True

    def generate_evolution_graph(
        self,
        chain: Sequence[Note],
        format: GraphFormat = "mermaid",  # noqa: A002  # what users call it
    ) -> EvolutionGraph:
        """Draw a chain of notes here. No request.

        Args:
            chain: as returned by `traverse_memory_evolution_chain`, in any direction.
            format: `mermaid`, `dot`, or `html`, a page that needs a browser alone.

        Raises:
            InvalidError: the format is unknown.
        """
        return draw_chain(chain, format)

    async def close(self) -> None:
        """Close the connections; a later call opens others."""
        await self._sender.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<SharedMemoryClient of {self._server}>"
