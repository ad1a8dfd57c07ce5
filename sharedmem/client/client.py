"""The async HTTP client of a hub: synthesis and every other operation of the service."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from pydantic import TypeAdapter

from sharedmem.client import http_protocol
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
from sharedmem.clock import Clock, SystemClock
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
    SynthesisMessage,
    SynthesisTask,
)
from sharedmem.models.notes import ChainDirection, SummaryMode
from sharedmem.runtime.process_bound import EventLoopBinding, ProcessBound
from sharedmem.visualization.chain import draw_chain

if TYPE_CHECKING:
    import httpx2


T = TypeVar("T")


class ServiceConnection(ProcessBound):
    """Connections to a service, with retries: the base of its clients.

    Args:
        base_url, token, timeout, retry_for, max_connections, clock, transport: as `SharedMemoryClient`.

    Raises:
        InvalidError, UnsupportedError: as `SharedMemoryClient`.
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
        self._place = http_protocol.parse_service_url(base_url)
        self._headers = http_protocol.base_headers(token)
        self._timeout_s = timeout
        self._retry_for_s = retry_for
        self._max_connections = max_connections
        self._clock: Clock = clock or SystemClock()
        self._transport = transport
        self._http: httpx2.AsyncClient | None = None
        self._home: EventLoopBinding | None = None
        self._opening = asyncio.Lock()
        self._described_routes: dict[str, ServiceRoute] | None = None

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
        return await self._done(gives, build_request(operation, await self._find_route(operation), fields))

    async def _find_route(self, operation: str) -> ServiceRoute:
        if operation in KNOWN_ROUTES:
            return KNOWN_ROUTES[operation]
        if self._described_routes is None:
            asked = HttpRequest("description", "GET", OPENAPI_PATH, (), None)
            content = await self._request_with_retries(asked)
            try:
                self._described_routes = parse_routes(content)
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                raise unexpected_reply_error(self._place.shown, OPENAPI_PATH, error) from error
        return find_route(operation, self._described_routes, self._place.shown)

    async def _done(self, gives: TypeAdapter[T], request: HttpRequest) -> T:
        content = await self._request_with_retries(request)
        return http_protocol.parse_reply(content, gives, server=self._place.shown, operation=request.operation)

    async def _request_with_retries(self, request: HttpRequest) -> bytes:
        """Send a request until it succeeds or the time for retries is over; return the content of the reply."""
        headers = http_protocol.request_headers(request)
        tries = http_protocol.RetryState(self._retry_for_s, self._clock.monotonic())
        while True:
            try:
                return await self._sent(request, headers)
            except SharedMemoryError as error:
                pause_s = tries.pause_s(error, self._clock.monotonic())
            await self._clock.sleep(pause_s)

    async def _sent(self, request: HttpRequest, headers: dict[str, str]) -> bytes:
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
        return http_protocol.check_reply(response.status_code, response.content, server=self._place.shown)

    def _unreachable(self, why: str) -> UnavailableError:
        return unreachable_error(self._place.shown, why)

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


MessageInput = Sequence[SynthesisMessage | Mapping[str, object]]


class SharedMemoryClient(ServiceConnection):
    """A memory service: `async with SharedMemoryClient("http://127.0.0.1:8420", token=...) as memory: ...`.

    Its calls are those of `store.synthesis` of the namespace that the token decides, and raise the same errors. They
    are repeated while the service is away or asks to come later; none is done twice for that. Connections are opened
    with the first call, and kept.

    Args:
        base_url: `http://host:port`, `https://...`, or `unix:/path/of.sock`.
        token: made by `sharedmem token`; None where the service takes everybody.
        timeout: seconds after which a request that was not answered is given up.
        retry_for: seconds for which a call is repeated.
        max_connections: requests that are under way at a time; others wait.
        clock: for pauses between tries.
        transport: how requests are sent; None opens connections.

    Raises:
        InvalidError: URL or token cannot be one.
        UnsupportedError: the HTTP client is not installed.
    """

    # -- memories

    async def add_memory(
        self,
        *,
        app_id: str,
        user_id: str,
        messages: MessageInput,
        session_id: str | None = None,
        callback_url: str | None = None,
        task_id: str | None = None,
    ) -> SynthesisTask:
        """Have a note made of a conversation, and settled with what is known already. One request.

        Args:
            app_id: whose shelf.
            user_id: of whom the conversation tells.
            messages: in their order, 30 at most unless the service takes more; records, or mappings with `role` and
                `content`.
            session_id: narrows with which notes it is settled.
            callback_url: told when it is done or has failed.
            task_id: an id of yours: repeated with the same one, it answers the same task.

        Returns:
            The task, accepted; `wait` tells when it is done.

        Raises:
            InvalidError: an argument is refused.
            AccessDeniedError, LimitedError, UnavailableError: the caller may not do this, or not now.
        """
        return await self._ask(
            http_protocol.TASK,
            "add_memory",
            app_id=app_id,
            user_id=user_id,
            messages=messages,
            session_id=session_id,
            callback_url=callback_url,
            task_id=task_id,
        )

    async def add_agent_memory(
        self,
        *,
        app_id: str,
        user_id: str,
        messages: MessageInput | str,
        session_id: str | None = None,
        callback_url: str | None = None,
        task_id: str | None = None,
    ) -> SynthesisTask:
        """Have kept what an agent says, with one summary and without settling conflicts. One request.

        Args:
            app_id, user_id, session_id, callback_url, task_id: as `add_memory`.
            messages: a text will do.

        Raises:
            InvalidError, AccessDeniedError, LimitedError, UnavailableError: as `add_memory`.
        """
        return await self._ask(
            http_protocol.TASK,
            "add_agent_memory",
            app_id=app_id,
            user_id=user_id,
            messages=messages,
            session_id=session_id,
            callback_url=callback_url,
            task_id=task_id,
        )

    async def summarize_conversation(
        self,
        *,
        app_id: str,
        user_id: str,
        messages: MessageInput | str,
        mode: SummaryMode = "fast",
        callback_url: str | None = None,
        task_id: str | None = None,
    ) -> ConversationSummary | SynthesisTask:
        """What a conversation was about, without storing it; with a `callback_url` a task that tells it there.

        Args:
            app_id, user_id, callback_url, task_id: as `add_memory`.
            messages: a text will do.
            mode: `full` also tells tags, questions that it answers, and what may follow. One request.

        Raises:
            InvalidError, AccessDeniedError, LimitedError, UnavailableError: as `add_memory`.
        """
        return await self._ask(
            http_protocol.SUMMARY,
            "summarize_conversation",
            app_id=app_id,
            user_id=user_id,
            messages=messages,
            mode=mode,
            callback_url=callback_url,
            task_id=task_id,
        )

    async def query_memory(
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
        """The notes that a text is about, the best first. One request.

        Args:
            app_id: whose shelf.
            query: what is looked for.
            n_results: how many at most; None goes by the service (10).
            user_id: None looks at all users' notes.
            session_id: None looks at all sessions' notes.
            similarity_threshold: least cosine similarity, 0 to 1, of every answer; None goes by the service, whose
                threshold a note that holds the words of the query need not reach.
            recall: `current` notes alone, also those that are not settled (`flagged`), or `all`.

        Raises:
            InvalidError, AccessDeniedError, LimitedError, UnavailableError: as `add_memory`.
        """
        return await self._ask(
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

    async def get_memory(self, memory_id: str, *, app_id: str) -> Note | None:
        """One note, whatever its status; None when there is none. One request.

        Args:
            memory_id: which.
            app_id: whose shelf.

        Raises:
            InvalidError, AccessDeniedError, LimitedError, UnavailableError: as `add_memory`.
        """
        try:
            return await self._ask(http_protocol.NOTE_OR_NONE, "get_memory", memory_id=memory_id, app_id=app_id)
        except NotFoundError:
            return None

    async def delete_memory(self, memory_id: str, *, app_id: str) -> bool:
        """Mark a note as deleted; its text stays to be looked up. One request.

        Args:
            memory_id: which.
            app_id: whose shelf.

        Returns:
            Whether it was deleted by this.

        Raises:
            InvalidError, AccessDeniedError, LimitedError, UnavailableError: as `add_memory`.
        """
        return await self._ask(http_protocol.BOOLEAN, "delete_memory", memory_id=memory_id, app_id=app_id)

    async def update_memory_status(
        self,
        memory_id: str,
        new_status: NoteStatus,
        *,
        app_id: str,
        archive_reason: StatusReason = "manual_update",
    ) -> Note:
        """Change the status of a note by hand. One request.

        Args:
            memory_id: which.
            new_status: what it is to be.
            app_id: whose shelf.
            archive_reason: why.

        Raises:
            NotFoundError: there is no such note.
            InvalidError, AccessDeniedError, LimitedError, UnavailableError: as `add_memory`.
        """
        return await self._ask(
            http_protocol.NOTE,
            "update_memory_status",
            memory_id=memory_id,
            new_status=new_status,
            app_id=app_id,
            archive_reason=archive_reason,
        )

    async def restore_memory(self, memory_id: str, *, app_id: str) -> Note:
        """Make an earlier version the current one: a new note with its text, the head of the chain. One request.

        Args:
            memory_id: which version.
            app_id: whose shelf.

        Raises:
            NotFoundError: there is no such note.
            InvalidError, AccessDeniedError, LimitedError, UnavailableError: as `add_memory`.
        """
        return await self._ask(http_protocol.NOTE, "restore_memory", memory_id=memory_id, app_id=app_id)

    # -- how they came about

    async def traverse_memory_evolution_chain(
        self, memory_id: str, *, app_id: str, direction: ChainDirection = "forward"
    ) -> list[Note]:
        """What became of a note, or what it came from, in that order. One request.

        Args:
            memory_id: where to begin; it is the first.
            app_id: whose shelf.
            direction: `forward` to what took its place, `backward` to its sources, or both.

        Raises:
            NotFoundError: there is no such note.
            InvalidError, AccessDeniedError, LimitedError, UnavailableError: as `add_memory`.
        """
        return await self._ask(
            http_protocol.NOTES,
            "traverse_memory_evolution_chain",
            memory_id=memory_id,
            app_id=app_id,
            direction=direction,
        )

    async def draw_evolution(
        self,
        memory_id: str,
        *,
        app_id: str,
        format: GraphFormat = "mermaid",  # noqa: A002  # what users call it
    ) -> EvolutionGraph:
        """The whole chain of a note as a picture. One request.

        Args:
            memory_id: of any note in it.
            app_id: whose shelf.
            format: `mermaid`, `dot`, or `html`, a page that needs nothing but a browser.

        Raises:
            NotFoundError: there is no such note.
            InvalidError, AccessDeniedError, LimitedError, UnavailableError: as `add_memory`.
        """
        return await self._ask(
            http_protocol.GRAPH, "generate_evolution_graph", memory_id=memory_id, app_id=app_id, format=format
        )

    def generate_evolution_graph(
        self,
        chain: Sequence[Note],
        format: GraphFormat = "mermaid",  # noqa: A002  # likewise
    ) -> EvolutionGraph:
        """A chain that was traversed as a picture, drawn here. No request.

        Args:
            chain: what `traverse_memory_evolution_chain` answered, in any direction.
            format: as `draw_evolution`.

        Raises:
            InvalidError: there is no such format.
        """
        return draw_chain(chain, format)

    # -- tasks and the service

    async def get_task_status(self, task_id: str) -> SynthesisTask:
        """How far a task is. One request.

        Args:
            task_id: what `add_memory` answered.

        Raises:
            NotFoundError: there is none, or its result has expired.
            InvalidError, AccessDeniedError, LimitedError, UnavailableError: as `add_memory`.
        """
        return await self._ask(http_protocol.TASK, "get_task_status", task_id=task_id)

    async def wait(self, task_id: str, *, timeout: float | None = None) -> SynthesisTask:  # noqa: ASYNC109  # as queues
        """As `get_task_status`, as soon as it is done or has failed. A request each time it is looked after.

        Args:
            task_id: what `add_memory` answered.
            timeout: seconds; then the task is answered as it stands. None waits for as long as it takes.

        Raises:
            NotFoundError, InvalidError, AccessDeniedError, LimitedError, UnavailableError: as `get_task_status`.
        """
        began, pause_s = self._clock.monotonic(), 0.0
        while True:
            task = await self.get_task_status(task_id)
            left_s = None if timeout is None else timeout - (self._clock.monotonic() - began)
            if task.status in http_protocol.FINAL_STATES or (left_s is not None and left_s <= 0):
                return task
            pause_s = http_protocol.next_poll_s(pause_s)
            await self._clock.sleep(pause_s if left_s is None else min(pause_s, left_s))

    async def warm_up(self) -> bool:
        """Open a connection now, so that the first call need not wait for it; True. One request.

        Raises:
            AccessDeniedError, UnavailableError: the service takes no calls from here.
        """
        await self.get_connection_pool_stats()
        return True

    async def get_connection_pool_stats(self) -> PoolStats:
        """How the service is connected to Redis. One request.

        Raises:
            AccessDeniedError, LimitedError, UnavailableError: as `add_memory`.
        """
        return await self._ask(http_protocol.POOL, "get_connection_pool_stats")

    async def call(self, operation: str, **fields: Any) -> Any:
        """Any operation that the service describes, such as `value.write` or `graph.ask`.

        Args:
            operation: the `operationId` in its `/openapi.json`, which is asked for once.
            fields: of the request; those that are None are left out.

        Returns:
            What JSON says, undecoded: times are texts.

        Raises:
            UnsupportedError: the service does not offer it.
            SharedMemoryError: as the operation.
        """
        return await self._done(
            http_protocol.ANYTHING, build_request(operation, await self._find_route(operation), fields)
        )
