"""The client without `await`: the same calls for programs that block, from any number of threads."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from sharedmem.client import http_protocol
from sharedmem.client.http_protocol import HttpRequest, check_reply, unreachable_error
from sharedmem.client.service import BlockingServiceFeeds, FeedReader, HttpReply, ServiceCalls, run_blocking
from sharedmem.client.sync_operations import BlockingServiceOperations
from sharedmem.models import EvolutionGraph, GraphFormat, Note, SynthesisTask
from sharedmem.runtime.concurrency import ProcessBound
from sharedmem.visualization import draw_chain

if TYPE_CHECKING:
    import httpx2


class BlockingSender:
    """Sends requests through connections that it keeps, and blocks the calling thread meanwhile.

    Args:
        place, headers, timeout_s, max_connections, sleep, transport: as `SharedMemoryClient`.
    """

    def __init__(
        self,
        place: http_protocol.ServiceUrl,
        headers: Mapping[str, str],
        *,
        timeout_s: float,
        max_connections: int,
        sleep: Callable[[float], None],
        transport: httpx2.BaseTransport | None,
    ) -> None:
        self._place = place
        self._headers = headers
        self._timeout_s = timeout_s
        self._max_connections = max_connections
        self._sleep = sleep
        self._transport = transport
        self._http: httpx2.Client | None = None
        self._opening = threading.Lock()

    def monotonic(self) -> float:
        """Return the time of this machine."""
        return time.monotonic()

    async def pause(self, seconds: float) -> None:
        """Block the thread."""
        self._sleep(seconds)

    async def send(self, request: HttpRequest, headers: Mapping[str, str]) -> HttpReply:
        """Send a request once.

        Raises:
            UnavailableError: the service did not reply in time, or cannot be reached.
        """
        import httpx2  # noqa: PLC0415  # only who has a client needs it

        try:
            response = self._opened().request(
                request.method, request.path, params=request.query, content=request.content, headers=headers
            )
        except httpx2.RequestError as error:
            raise unreachable_error(self._place.shown, f"{type(error).__name__}: {error}".rstrip(": ")) from error
        return HttpReply(response.status_code, response.content)

    @asynccontextmanager
    async def stream(self, request: HttpRequest, headers: Mapping[str, str]) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a stream; reading its parts blocks the thread.

        Raises:
            SharedMemoryError: the service refuses; UnavailableError also when no part comes for the time of a request.
        """
        import httpx2  # noqa: PLC0415  # only who has a client needs it

        try:
            with self._opened().stream(request.method, request.path, params=request.query, headers=headers) as response:
                if not response.is_success:
                    check_reply(response.status_code, response.read(), server=self._place.shown)
                yield _parts(response)
        except httpx2.RequestError as error:
            raise unreachable_error(self._place.shown, f"{type(error).__name__}: {error}".rstrip(": ")) from error

    def close(self) -> None:
        """Close the connections; a later request opens others."""
        with self._opening:
            http, self._http = self._http, None
        if http is not None:
            http.close()

    def _opened(self) -> httpx2.Client:
        with self._opening:
            if self._http is None:
                self._http = self._new()
            return self._http

    def _new(self) -> httpx2.Client:
        import httpx2  # noqa: PLC0415  # likewise

        limits = httpx2.Limits(max_connections=self._max_connections)
        transport = self._transport
        if transport is None and self._place.socket is not None:
            transport = httpx2.HTTPTransport(uds=self._place.socket, limits=limits)
        return httpx2.Client(
            base_url=self._place.url,
            headers=self._headers,
            timeout=self._timeout_s,
            limits=limits,
            transport=transport,
        )


async def _parts(response: httpx2.Response) -> AsyncIterator[bytes]:
    for part in response.iter_bytes():
        yield part


class SharedMemoryClient(BlockingServiceOperations, ProcessBound):
    """A memory service: `with SharedMemoryClient("http://127.0.0.1:8420", token=...) as memory: ...`.

    `sharedmem.client.SharedMemoryClient` has the same calls and documents them.

    Args:
        base_url: `http://host:port`, `https://...`, or `unix:/path/of.sock`.
        token: made by `sharedmem token`; None where the service takes every caller.
        timeout: seconds to wait for a response.
        retry_for: seconds for which a call is repeated.
        max_connections: requests that are under way at a time; others wait.
        sleep: pauses the thread between tries.
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
        sleep: Callable[[float], None] = time.sleep,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        place = http_protocol.parse_service_url(base_url)
        self._server = place.shown
        self._sender = BlockingSender(
            place,
            http_protocol.base_headers(token),
            timeout_s=timeout,
            max_connections=max_connections,
            sleep=sleep,
            transport=transport,
        )
        self._calls = ServiceCalls(self._sender, server=place.shown, retry_for_s=retry_for)
        super().__init__(self._calls)
        self.feeds = BlockingServiceFeeds(FeedReader(self._sender, server=place.shown, retry_for_s=retry_for))
        """Changes, messages and events of memories, as they happen."""

    def call(self, operation: str, **fields: Any) -> Any:
        """Call any operation that the service describes by its name, such as `value.write`."""
        return run_blocking(self._calls.call(operation, fields))

    def wait(self, task_id: str, *, timeout: float | None = None) -> SynthesisTask:
        """Return a task of synthesis as soon as it is done or has failed. One request for each poll."""
        return run_blocking(self._calls.wait(task_id, timeout))

    def warm_up(self) -> bool:
        """Open a connection now, so that the first call need not wait for it; True. One request."""
        self.get_connection_pool_stats()
        return True

    def generate_evolution_graph(
        self,
        chain: Sequence[Note],
        format: GraphFormat = "mermaid",  # noqa: A002  # what users call it
    ) -> EvolutionGraph:
        """Draw a chain of notes here. No request."""
        return draw_chain(chain, format)

    def close(self) -> None:
        """Close the connections; a later call opens others."""
        self._sender.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<SharedMemoryClient of {self._server}>"
