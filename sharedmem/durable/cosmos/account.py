"""One account of Cosmos DB: requests with timeouts, retries and counters.

The SDK's own retries are off, except those between regions: it waits for a throttled request without a limit, repeats
lost requests silently, and does not retry other errors. Requests from here may arrive twice.

Raises (when imported):
    UnsupportedError: the SDK is not installed.
"""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from sharedmem.clock import Clock
from sharedmem.durable.cosmos.endpoint import (
    NO_ANSWER,
    CosmosEndpoint,
    CosmosTarget,
    CosmosTimeouts,
    ErrorResponse,
    is_expected,
    is_transient,
    not_open_error,
    shorten_message,
    to_error,
)
from sharedmem.durable.cosmos.layout import ContainerLayout
from sharedmem.durable.cosmos.record_container import CosmosQuery, Document, DocumentCursor, DocumentLocation
from sharedmem.errors import NotFoundError, UnsupportedError
from sharedmem.models import Charges
from sharedmem.runtime.concurrency import backoff_pause
from sharedmem.runtime.telemetry import charge

try:
    from azure.core import MatchConditions
    from azure.core.async_paging import AsyncItemPaged
    from azure.core.credentials_async import AsyncTokenCredential
    from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError
    from azure.core.pipeline import PipelineResponse
    from azure.cosmos import PartitionKey
    from azure.cosmos.aio import ContainerProxy, CosmosClient
except ImportError as error:
    raise UnsupportedError("Cosmos DB", "pip install 'sharedmem-hub[cosmos]'") from error

_T = TypeVar("_T")
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0
_PAGE = 200


class ChargeMeter:
    """Counts requests and request units of all responses."""

    def __init__(self) -> None:
        self._counts = {"reads": 0, "writes": 0, "queries": 0, "throttled": 0}
        self._request_units = 0.0

    def __call__(self, response: PipelineResponse[Any, Any]) -> None:
        """Count one response."""
        request, answer = response.http_request, response.http_response
        units = float(answer.headers.get("x-ms-request-charge") or 0)
        self._request_units += units
        charge(units)
        self._counts["throttled"] += answer.status_code == 429
        if "/docs" in request.url:
            self._counts[_request_kind(request)] += 1

    def charges(self) -> Charges:
        """Return the present counts."""
        return Charges(**self._counts, request_units=round(self._request_units, 2))


def _request_kind(request: Any) -> str:
    if "x-ms-documentdb-isquery" in request.headers:
        return "queries"
    return "reads" if request.method == "GET" else "writes"


def entra_credential() -> AsyncTokenCredential:
    """Return a credential of this process: a managed identity, a workload identity, or a developer's login."""
    # It loads more slowly than all of sharedmem, and account keys do not need it.
    from azure.identity.aio import DefaultAzureCredential  # noqa: PLC0415

    return DefaultAzureCredential()


class CosmosAccount:
    """A connection to one container of an account.

    Args:
        endpoint: the account.
        credential: its key, or a source of tokens from Entra ID; closed with the account.
        target: the database and container.
        clock: for pauses and deadlines.
        patience: timeouts.
        meter: counts requests.
    """

    def __init__(
        self,
        endpoint: CosmosEndpoint,
        credential: str | AsyncTokenCredential,
        *,
        target: CosmosTarget,
        clock: Clock,
        patience: CosmosTimeouts,
        meter: ChargeMeter,
    ) -> None:
        self._endpoint = endpoint
        self._credential = credential
        self._target = target
        self._clock = clock
        self._patience = patience
        self._meter = meter
        self._client: CosmosClient | None = None

    def at(self, container: str) -> CosmosAccount:
        """Return the same connection, to another container of the database."""
        other = copy.copy(self)
        other._target = self._target._replace(container=container)  # noqa: SLF001  # same class
        return other

    async def connect(self) -> None:
        """Log in.

        Raises:
            UnavailableError, AccessDeniedError: the account is unreachable, or rejects the log-in.
        """
        self._client = self._answered(await self._ask(self._entered))

    async def close(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()
        if not isinstance(self._credential, str):
            await self._credential.close()

    async def _entered(self) -> CosmosClient:
        client = CosmosClient(
            self._endpoint.url,
            self._credential,
            enable_endpoint_discovery=not self._endpoint.is_emulator,
            enable_compact_utf8_item_writes=True,
            no_response_on_write=True,
            raw_response_hook=self._meter,
            # 0 would mean the default of the SDK.
            retry_throttle_total=-1,
            retry_connect=0,
            retry_read=0,
            user_agent_suffix="sharedmem",
        )
        try:
            await client.__aenter__()
        except BaseException:
            await client.close()
            raise
        return client

    # -- the container ----------------------------------------------------------------------------

    async def properties(self, container: str) -> Document | None:
        """Return the properties of a container; None if it does not exist."""
        try:
            found = await self._ask(lambda: self._proxy(container).read())
        except NotFoundError:
            return None
        return None if isinstance(found, ErrorResponse) and found.status == 404 else self._answered(found)

    async def make(self, container: str, layout: ContainerLayout) -> None:
        """Create the database and a container unless they exist; the container's documents may expire.

        Raises:
            AccessDeniedError: the login may not create them.
            UnsupportedError: the account has no vector search, or rejects the policies.
            UnavailableError, LimitedError: as for any request.
        """
        await self._made(lambda: self._connected.create_database(self._target.database))
        policies: dict[str, Any] = {"indexing_policy": layout.indexing}
        given = {"vector_embedding_policy": layout.vectors, "full_text_policy": layout.full_text}
        policies |= {name: policy for name, policy in given.items() if policy is not None}
        database = self._connected.get_database_client(self._target.database)
        key = PartitionKey(path=list(layout.partition_key), kind="MultiHash")
        refusal = await self._made(lambda: database.create_container(container, key, default_ttl=-1, **policies))
        if refusal is not None and layout.vectors is not None:
            reason = shorten_message(refusal.message)
            remedy = f"az cosmosdb update --capabilities EnableNoSQLVectorSearch, then try again ({reason})"
            raise UnsupportedError("vector search in this Cosmos DB account", remedy)
        if refusal is not None:
            raise to_error(refusal, self._target)

    async def _made(self, send: Callable[[], Awaitable[object]]) -> ErrorResponse | None:
        """Return why it was not created; None if it exists now, since another client may have created it."""
        answer = await self._ask(send)
        return answer if isinstance(answer, ErrorResponse) and answer.status != 409 else None

    # -- documents --------------------------------------------------------------------------------

    async def read(self, place: DocumentLocation) -> Document | ErrorResponse:
        """Read a document: one point read."""
        return await self._ask(lambda: self._records.read_item(place.id, partition_key=place.partition))

    async def create(self, document: Document) -> Document | ErrorResponse:
        """Create a document; 409 if it exists."""
        return await self._ask(lambda: self._records.create_item(document))

    async def replace(self, document: Document, etag: str) -> Document | ErrorResponse:
        """Replace a document; 412 if it has changed, 404 if it does not exist."""
        return await self._ask(
            lambda: self._records.replace_item(
                document["id"], document, etag=etag, match_condition=MatchConditions.IfNotModified
            )
        )

    async def remove(self, place: DocumentLocation, etag: str) -> ErrorResponse | None:
        """Delete a document; 412 if it has changed, 404 if it does not exist."""
        return await self._ask(
            lambda: self._records.delete_item(
                place.id, place.partition, etag=etag, match_condition=MatchConditions.IfNotModified
            )
        )

    async def all(self, query: CosmosQuery) -> list[Any]:
        """Return all results of a short query.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError, ConfigError: see `cosmos_errors`.
        """

        async def send() -> list[Any]:
            return [row async for row in self._rows(query)]

        return self._answered(await self._ask(send))

    async def pages(
        self, build: Callable[[DocumentCursor | None], CosmosQuery], after: DocumentCursor | None = None
    ) -> AsyncGenerator[list[Document], None]:
        """Yield the results of a query page by page; after a failure continue behind the last document.

        Args:
            build: builds the query from a position on; it sorts by that position.
            after: the start position.

        Raises:
            as `all`.
        """
        reading = _PageReader(lambda position: self._rows(build(position)), after)
        while (page := self._answered(await self._ask(reading.next_page))) is not None:
            yield page

    def _rows(self, query: CosmosQuery) -> AsyncItemPaged[Any]:
        return self._records.query_items(
            query.text, parameters=query.parameters, max_item_count=_PAGE, partition_key=query.partition
        )

    @property
    def _connected(self) -> CosmosClient:
        if self._client is None:
            raise not_open_error("it is closed")
        return self._client

    def _proxy(self, container: str) -> ContainerProxy:
        return self._connected.get_database_client(self._target.database).get_container_client(container)

    @property
    def _records(self) -> ContainerProxy:
        return self._proxy(self._target.container)

    # -- requests -----------------------------------------------------------------------------------

    async def _ask(self, send: Callable[[], Awaitable[_T]]) -> _T | ErrorResponse:
        """Send a request, with retries; return its result, or an error about the requested document."""
        give_up = self._clock.monotonic() + self._patience.total_s
        attempt = 0
        while True:
            try:
                async with asyncio.timeout(self._patience.request_s):
                    return await send()
            except (AzureError, TimeoutError) as problem:
                refusal = _to_error_response(problem, self._patience)
                if is_expected(refusal):
                    return refusal
                pause_s = _retry_pause_s(refusal, attempt)
                if not is_transient(refusal) or self._clock.monotonic() + pause_s > give_up:
                    raise to_error(refusal, self._target) from problem
            await self._clock.sleep(pause_s)
            attempt += 1

    def _answered(self, answer: _T | ErrorResponse) -> _T:
        """Return the result of a request that should not fail; raise otherwise."""
        if isinstance(answer, ErrorResponse):
            raise to_error(answer, self._target)
        return answer


class _PageReader:
    """The position of a reader of pages."""

    def __init__(
        self, rows: Callable[[DocumentCursor | None], AsyncItemPaged[Any]], after: DocumentCursor | None
    ) -> None:
        self._rows = rows
        self._after = after
        self._pages: AsyncIterator[AsyncIterator[Document]] | None = None

    async def next_page(self) -> list[Document] | None:
        """Return the next page, None at the end; may be called again after a failure."""
        # A page iterator that failed or was cancelled is not used again.
        pages, self._pages = self._pages or self._rows(self._after).by_page(), None
        page = await anext(pages, None)
        if page is None:
            return None
        found = [document async for document in page]
        self._pages = pages
        if found:
            self._after = found[-1]["key"], found[-1]["element"]
        return found


def _retry_pause_s(refusal: ErrorResponse, attempt: int) -> float:
    """Return seconds until the next attempt: as the service asks, otherwise growing; with jitter."""
    if refusal.retry_after_s is not None:
        return refusal.retry_after_s * random.uniform(1.0, 1.2)  # noqa: S311  # no secret
    return backoff_pause(attempt, _FIRST_PAUSE_S, _LONGEST_PAUSE_S, least=0.5)


def _to_error_response(problem: AzureError | TimeoutError, patience: CosmosTimeouts) -> ErrorResponse:
    if isinstance(problem, TimeoutError):
        return ErrorResponse(NO_ANSWER, message=f"no answer within {patience.request_s:g} s")
    if isinstance(problem, HttpResponseError) and (problem.status_code or 0) >= 400:
        headers = getattr(problem, "headers", None) or {}
        wait_ms = headers.get("x-ms-retry-after-ms")
        return ErrorResponse(
            status=problem.status_code or 0,
            substatus=getattr(problem, "sub_status", None) or 0,
            message=str(getattr(problem, "http_error_message", None) or problem.message),
            retry_after_s=None if wait_ms is None else float(wait_ms) / 1000,
        )
    # A login that fails before a request is sent has no status.
    return ErrorResponse(401 if isinstance(problem, ClientAuthenticationError) else NO_ANSWER, message=str(problem))
