"""The client without `await`: the same calls for programs that block, from any number of threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from pydantic import TypeAdapter

from sharedmem.client import http_protocol
from sharedmem.client.client import MessageInput
from sharedmem.client.errors import unexpected_reply_error, unreachable_error
from sharedmem.client.routes import (
    KNOWN_ROUTES,
    OPENAPI_PATH,
    HttpRequest,
    ServiceRoute,
    build_request,
    find_route,
    parse_routes,
)
from sharedmem.errors import NotFoundError, SharedMemoryError, UnavailableError
from sharedmem.models import (
    ConversationSummary,
    EvolutionGraph,
    GraphFormat,
    Note,
    NoteHit,
    NoteStatus,
    PoolStats,
    Recall,
    StatusReason,
    SynthesisTask,
)
from sharedmem.models.notes import ChainDirection, SummaryMode
from sharedmem.runtime.process_bound import ProcessBound
from sharedmem.visualization.chain import draw_chain

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")


class SharedMemoryClient(ProcessBound):
    """A memory service: `with SharedMemoryClient("http://127.0.0.1:8420", token=...) as memory: ...`.

    What each call takes, answers and raises stands at `sharedmem.client.SharedMemoryClient`.

    Args:
        base_url: `http://host:port`, `https://...`, or `unix:/path/of.sock`.
        token: made by `sharedmem token`; None where the service takes everybody.
        timeout: seconds after which a request that was not answered is given up.
        retry_for: seconds for which a call is repeated.
        max_connections: requests that are under way at a time; others wait.
        sleep: pauses the thread between tries.
        transport: how requests are sent; None opens connections.

    Raises:
        InvalidError: URL or token cannot be one.
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
        self._place = http_protocol.parse_service_url(base_url)
        self._headers = http_protocol.base_headers(token)
        self._timeout_s = timeout
        self._retry_for_s = retry_for
        self._max_connections = max_connections
        self._sleep = sleep
        self._transport = transport
        self._http: httpx2.Client | None = None
        self._opening = threading.Lock()
        self._described_routes: dict[str, ServiceRoute] | None = None

    def add_memory(
        self,
        *,
        app_id: str,
        user_id: str,
        messages: MessageInput,
        session_id: str | None = None,
        callback_url: str | None = None,
        task_id: str | None = None,
    ) -> SynthesisTask:
        """Have a note made of a conversation, and settled with what is known already. One request."""
        return self._ask(
            http_protocol.TASK,
            "add_memory",
            app_id=app_id,
            user_id=user_id,
            messages=messages,
            session_id=session_id,
            callback_url=callback_url,
            task_id=task_id,
        )

    def add_agent_memory(
        self,
        *,
        app_id: str,
        user_id: str,
        messages: MessageInput | str,
        session_id: str | None = None,
        callback_url: str | None = None,
        task_id: str | None = None,
    ) -> SynthesisTask:
        """Have kept what an agent says, with one summary and without settling conflicts. One request."""
        return self._ask(
            http_protocol.TASK,
            "add_agent_memory",
            app_id=app_id,
            user_id=user_id,
            messages=messages,
            session_id=session_id,
            callback_url=callback_url,
            task_id=task_id,
        )

    def summarize_conversation(
        self,
        *,
        app_id: str,
        user_id: str,
        messages: MessageInput | str,
        mode: SummaryMode = "fast",
        callback_url: str | None = None,
        task_id: str | None = None,
    ) -> ConversationSummary | SynthesisTask:
        """What a conversation was about, without storing it; with a `callback_url` a task that tells it there."""
        return self._ask(
            http_protocol.SUMMARY,
            "summarize_conversation",
            app_id=app_id,
            user_id=user_id,
            messages=messages,
            mode=mode,
            callback_url=callback_url,
            task_id=task_id,
        )

    def query_memory(
        self,
        *,
        app_id: str,
        query: str,
        n_results: int | None = None,
        user_id: str | None = None,
        session_id: str | None = None,
        similarity_threshold: float | None = None,
        recall: Recall = "current",
    ) -> list[NoteHit]:
        """The notes that a text is about, the best first. One request."""
        return self._ask(
            http_protocol.HITS,
            "query_memory",
            app_id=app_id,
            query=query,
            n_results=n_results,
            user_id=user_id,
            session_id=session_id,
            similarity_threshold=similarity_threshold,
            recall=recall,
        )

    def get_memory(self, memory_id: str, *, app_id: str) -> Note | None:
        """One note, whatever its status; None when there is none. One request."""
        try:
            return self._ask(http_protocol.NOTE_OR_NONE, "get_memory", memory_id=memory_id, app_id=app_id)
        except NotFoundError:
            return None

    def delete_memory(self, memory_id: str, *, app_id: str) -> bool:
        """Mark a note as deleted; its text stays to be looked up. One request."""
        return self._ask(http_protocol.BOOLEAN, "delete_memory", memory_id=memory_id, app_id=app_id)

    def update_memory_status(
        self,
        memory_id: str,
        new_status: NoteStatus,
        *,
        app_id: str,
        archive_reason: StatusReason = "manual_update",
    ) -> Note:
        """Change the status of a note by hand. One request."""
        return self._ask(
            http_protocol.NOTE,
            "update_memory_status",
            memory_id=memory_id,
            new_status=new_status,
            app_id=app_id,
            archive_reason=archive_reason,
        )

    def restore_memory(self, memory_id: str, *, app_id: str) -> Note:
        """Make an earlier version the current one: a new note with its text, the head of the chain. One request."""
        return self._ask(http_protocol.NOTE, "restore_memory", memory_id=memory_id, app_id=app_id)

    def traverse_memory_evolution_chain(
        self, memory_id: str, *, app_id: str, direction: ChainDirection = "forward"
    ) -> list[Note]:
        """What became of a note, or what it came from, in that order. One request."""
        return self._ask(
            http_protocol.NOTES,
            "traverse_memory_evolution_chain",
            memory_id=memory_id,
            app_id=app_id,
            direction=direction,
        )

    def draw_evolution(
        self,
        memory_id: str,
        *,
        app_id: str,
        format: GraphFormat = "mermaid",  # noqa: A002  # what users call it
    ) -> EvolutionGraph:
        """The whole chain of a note as a picture. One request."""
        return self._ask(
            http_protocol.GRAPH, "generate_evolution_graph", memory_id=memory_id, app_id=app_id, format=format
        )

    def generate_evolution_graph(
        self,
        chain: Sequence[Note],
        format: GraphFormat = "mermaid",  # noqa: A002  # likewise
    ) -> EvolutionGraph:
        """A chain that was traversed as a picture, drawn here. No request."""
        return draw_chain(chain, format)

    def get_task_status(self, task_id: str) -> SynthesisTask:
        """How far a task is. One request."""
        return self._ask(http_protocol.TASK, "get_task_status", task_id=task_id)

    def wait(self, task_id: str, *, timeout: float | None = None) -> SynthesisTask:
        """As `get_task_status`, as soon as it is done or has failed. A request each time it is looked after."""
        began, pause_s = time.monotonic(), 0.0
        while True:
            task = self.get_task_status(task_id)
            left_s = None if timeout is None else timeout - (time.monotonic() - began)
            if task.status in http_protocol.FINAL_STATES or (left_s is not None and left_s <= 0):
                return task
            pause_s = http_protocol.next_poll_s(pause_s)
            self._sleep(pause_s if left_s is None else min(pause_s, left_s))

    def warm_up(self) -> bool:
        """Open a connection now, so that the first call need not wait for it; True. One request."""
        self.get_connection_pool_stats()
        return True

    def get_connection_pool_stats(self) -> PoolStats:
        """How the service is connected to Redis. One request."""
        return self._ask(http_protocol.POOL, "get_connection_pool_stats")

    def call(self, operation: str, **fields: Any) -> Any:
        """Any operation that the service describes, such as `value.write` or `graph.ask`."""
        return self._done(http_protocol.ANYTHING, build_request(operation, self._find_route(operation), fields))

    def close(self) -> None:
        """Give back connections; a later call opens others."""
        with self._opening:
            http, self._http = self._http, None
        if http is not None:
            http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<SharedMemoryClient of {self._place.shown}>"

    # -- asking

    def _ask(self, gives: TypeAdapter[T], name: str, **fields: object) -> T:
        operation = f"synthesis.{name}"
        return self._done(gives, build_request(operation, self._find_route(operation), fields))

    def _find_route(self, operation: str) -> ServiceRoute:
        if operation in KNOWN_ROUTES:
            return KNOWN_ROUTES[operation]
        if self._described_routes is None:
            content = self._request_with_retries(HttpRequest("description", "GET", OPENAPI_PATH, (), None))
            try:
                self._described_routes = parse_routes(content)
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                raise unexpected_reply_error(self._place.shown, OPENAPI_PATH, error) from error
        return find_route(operation, self._described_routes, self._place.shown)

    def _done(self, gives: TypeAdapter[T], request: HttpRequest) -> T:
        content = self._request_with_retries(request)
        return http_protocol.parse_reply(content, gives, server=self._place.shown, operation=request.operation)

    def _request_with_retries(self, request: HttpRequest) -> bytes:
        """Send a request until it succeeds or the time for retries is over; return the content of the reply."""
        headers = http_protocol.request_headers(request)
        tries = http_protocol.RetryState(self._retry_for_s, time.monotonic())
        while True:
            try:
                return self._sent(request, headers)
            except SharedMemoryError as error:
                pause_s = tries.pause_s(error, time.monotonic())
            self._sleep(pause_s)

    def _sent(self, request: HttpRequest, headers: dict[str, str]) -> bytes:
        import httpx2  # noqa: PLC0415  # only who has a client needs it

        try:
            response = self._opened().request(
                request.method, request.path, params=request.query, content=request.content, headers=headers
            )
        except httpx2.RequestError as error:
            raise self._unreachable(f"{type(error).__name__}: {error}".rstrip(": ")) from error
        return http_protocol.check_reply(response.status_code, response.content, server=self._place.shown)

    def _unreachable(self, why: str) -> UnavailableError:
        return unreachable_error(self._place.shown, why)

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
