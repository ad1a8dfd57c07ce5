"""Calls of a service: requests, retries, parsing of replies; the same for the async and the blocking client."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from pydantic import ValidationError

from sharedmem.client import table
from sharedmem.client.errors import unexpected_reply_error
from sharedmem.client.http_protocol import RetryState, check_reply, request_headers
from sharedmem.client.routes import (
    OPENAPI_PATH,
    HttpRequest,
    ServiceOperation,
    build_request,
    find_route,
    parse_routes,
)
from sharedmem.errors import NotFoundError, SharedMemoryError
from sharedmem.models import SynthesisTask

T = TypeVar("T")
_FINAL_STATES = frozenset({"done", "failed"})
_FIRST_POLL_S, _LONGEST_POLL_S = 0.05, 1.0


class HttpReply(NamedTuple):
    """A reply of the service."""

    status: int
    content: bytes


class Sender(Protocol):
    """Sends requests and waits between them. The blocking one blocks instead of suspending its coroutine."""

    def monotonic(self) -> float:
        """Return the time in seconds since some moment."""

    async def pause(self, seconds: float) -> None:
        """Wait."""

    async def send(self, request: HttpRequest, headers: Mapping[str, str]) -> HttpReply:
        """Send a request once.

        Raises:
            UnavailableError: the service did not reply.
        """


class ServiceCalls:
    """Calls operations of a service, and repeats what a retry can help.

    Args:
        sender: sends the requests.
        server: address of the service, for messages.
        retry_for_s: seconds for which a call is repeated.
    """

    def __init__(self, sender: Sender, *, server: str, retry_for_s: float) -> None:
        self._sender = sender
        self._server = server
        self._retry_for_s = retry_for_s
        self._described: dict[str, ServiceOperation[Any]] | None = None

    async def run(self, operation: ServiceOperation[T], fields: Mapping[str, object]) -> T:
        """Call an operation. One request.

        Raises:
            SharedMemoryError: as the operation; InternalError when the answer has another form.
        """
        try:
            content = await self._requested(build_request(operation, operation.needed(fields)))
        except NotFoundError:
            if operation.none_if_absent:
                return cast("T", None)
            raise
        return self._parsed(content, operation)

    async def call(self, name: str, fields: Mapping[str, object]) -> Any:
        """Call an operation by its name; the answer is what JSON says. One request, and one to learn other routes.

        Raises:
            UnsupportedError: the service does not offer it.
            SharedMemoryError: as the operation.
        """
        operation = table.BY_NAME.get(name) or await self._find_described(name)
        operation = replace(operation, gives=Any)
        given = {field: value for field, value in fields.items() if value is not None}
        return self._parsed(await self._requested(build_request(operation, given)), operation)

    async def wait(self, task_id: str, timeout_s: float | None) -> SynthesisTask:
        """Poll a task until it is done or has failed, or the time is over."""
        began, pause_s = self._sender.monotonic(), 0.0
        while True:
            task = await self.run(table.SYNTHESIS_GET_TASK_STATUS, {"task_id": task_id})
            left_s = None if timeout_s is None else timeout_s - (self._sender.monotonic() - began)
            if task.status in _FINAL_STATES or (left_s is not None and left_s <= 0):
                return task
            pause_s = min(max(pause_s * 1.5, _FIRST_POLL_S), _LONGEST_POLL_S)
            await self._sender.pause(pause_s if left_s is None else min(pause_s, left_s))

    async def _find_described(self, name: str) -> ServiceOperation[Any]:
        if self._described is None:
            content = await self._requested(HttpRequest("description", "GET", OPENAPI_PATH, (), None))
            try:
                self._described = parse_routes(content)
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                raise unexpected_reply_error(self._server, OPENAPI_PATH, error) from error
        return find_route(name, self._described, self._server)

    async def _requested(self, request: HttpRequest) -> bytes:
        """Send a request until it succeeds or the time for retries is over; return the content of the reply."""
        headers = request_headers(request)
        tries = RetryState(self._retry_for_s, self._sender.monotonic())
        while True:
            try:
                reply = await self._sender.send(request, headers)
                return check_reply(reply.status, reply.content, server=self._server)
            except SharedMemoryError as error:
                pause_s = tries.pause_s(error, self._sender.monotonic())
            await self._sender.pause(pause_s)

    def _parsed(self, content: bytes, operation: ServiceOperation[T]) -> T:
        try:
            return operation.answer(operation.reply.validate_json(content))
        except (ValidationError, KeyError) as error:
            raise unexpected_reply_error(self._server, operation.name, error) from error


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine whose sender blocks: it ends without ever being suspended."""
    try:
        work.send(None)
    except StopIteration as done:
        return cast("T", done.value)
    raise RuntimeError("the sender of a blocking client has suspended its coroutine; use a blocking sender")
