"""Calls and feeds of a service: requests, retries, parsing of replies; the same for the async and the blocking client.

Feeds are changes, messages and events of memories, read from server-sent events. A stream that breaks is opened again.
Changes and events of memories go on after the last one that was read, so nothing is missed; a channel has no past, so a
`Missed` says that messages may have been lost.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

from pydantic import ValidationError
from pydantic_core import from_json

from sharedmem.client import table
from sharedmem.client.http_protocol import (
    OPENAPI_PATH,
    HttpRequest,
    RetryState,
    ServiceOperation,
    build_request,
    check_reply,
    find_route,
    parse_routes,
    raise_problem,
    request_headers,
    unexpected_reply_error,
    unreachable_error,
)
from sharedmem.errors import InvalidError, NotFoundError, SharedMemoryError
from sharedmem.models import Change, Gap, MemoryEvent, MemoryFilter, Message, Missed, Record, SynthesisTask

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


# -- feeds ----------------------------------------------------------------------------------------


Event = TypeVar("Event", bound=Record)
_LONGEST_EVENT = 1 << 26
"""Bytes; a service sends no longer ones."""


class FeedEvent(NamedTuple):
    """One event of a stream."""

    name: str
    data: bytes
    id: str
    """Empty if it has none."""


class StreamOpener(Protocol):
    """Opens streams and waits between tries."""

    def monotonic(self) -> float:
        """Return the time in seconds since some moment."""

    async def pause(self, seconds: float) -> None:
        """Wait."""

    def stream(
        self, request: HttpRequest, headers: Mapping[str, str]
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open a stream; its parts come as they arrive.

        Raises:
            SharedMemoryError: the service refuses; UnavailableError also when a part does not come.
        """


@dataclass(frozen=True)
class ServiceFeed(Generic[Event]):
    """A feed as a client reads it: its route, and the type of each of its events."""

    operation: ServiceOperation[Any]
    events: Mapping[str, type[Event]]
    after_break: Callable[[Mapping[str, object]], Event] | None = None
    """Makes what a reader gets after a break in which something may have been lost; None: nothing can be."""

    def parsed(self, event: FeedEvent, server: str) -> Event | None:
        """Return what an event says; None for one that a later version has added."""
        kind = self.events.get(event.name)
        if kind is None:
            return None
        try:
            return kind.model_validate_json(event.data)
        except ValidationError as error:
            raise unexpected_reply_error(server, self.operation.name, error) from error


CHANGE_WATCH: ServiceFeed[Change] = ServiceFeed(
    ServiceOperation("change.watch", "GET", "/api/v1/changes", defaults={"pattern": "*", "since": None}),
    {"change": Change, "gap": Gap},
)
MESSAGE_SUBSCRIBE: ServiceFeed[Message] = ServiceFeed(
    ServiceOperation("message.subscribe", "GET", "/api/v1/channels/{channel}/messages"),
    {"message": Message, "missed": Missed},
    lambda fields: Missed(channel=str(fields["channel"]), value="the connection to the service was lost"),
)
MEMORY_SUBSCRIBE: ServiceFeed[MemoryEvent] = ServiceFeed(
    ServiceOperation(
        "memory.subscribe",
        "GET",
        "/api/v1/memory/events",
        as_json=frozenset({"filters"}),
        defaults={"threshold": None, "filters": None, "since": None},
    ),
    dict.fromkeys(("written", "changed", "withdrawn", "gap"), MemoryEvent),
)
FEEDS = {feed.operation.name: feed for feed in (CHANGE_WATCH, MESSAGE_SUBSCRIBE, MEMORY_SUBSCRIBE)}


@dataclass
class _FeedPlace:
    """Where the reader of a feed is."""

    last_id: str = ""
    tries: RetryState | None = None
    """None while events come."""
    pause_s: float = 0.0
    was_open: bool = False
    """Whether a stream has been open."""


class FeedReader:
    """Reads feeds, and opens broken streams again.

    Args:
        sender: opens the streams.
        server: address of the service, for messages.
        retry_for_s: seconds for which a broken stream is opened again.
    """

    def __init__(self, sender: StreamOpener, *, server: str, retry_for_s: float) -> None:
        self._sender = sender
        self._server = server
        self._retry_for_s = retry_for_s

    async def read(self, feed: ServiceFeed[Event], fields: Mapping[str, object]) -> AsyncGenerator[Event, None]:
        """Yield the events of a feed, for as long as the caller reads.

        Raises:
            SharedMemoryError: the service refuses the feed, or could not be reached for `retry_for_s`.
        """
        request = build_request(feed.operation, feed.operation.needed(fields))
        place = _FeedPlace()
        while True:
            async with aclosing(self._until_broken(request, place)) as events:
                async for event in events:
                    if event.name == "started" and place.was_open and feed.after_break is not None:
                        yield feed.after_break(fields)
                    place.was_open = True
                    found = feed.parsed(event, self._server)
                    if found is not None:
                        yield found
            await self._sender.pause(place.pause_s)

    async def _until_broken(self, request: HttpRequest, place: _FeedPlace) -> AsyncGenerator[FeedEvent, None]:
        """Yield the events after a place until the stream breaks; then the place says how long to wait.

        Raises:
            SharedMemoryError: opening it again cannot help, or there is no time for it.
        """
        try:
            async with aclosing(self._events(request, place.last_id)) as events:
                async for event in events:
                    place.last_id, place.tries = event.id or place.last_id, None
                    yield event
            raise unreachable_error(self._server, "the stream has ended")
        except SharedMemoryError as error:
            now = self._sender.monotonic()
            place.tries = place.tries or RetryState(self._retry_for_s, now)
            place.pause_s = place.tries.pause_s(error, now)

    async def _events(self, request: HttpRequest, last_id: str) -> AsyncGenerator[FeedEvent, None]:
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_id} if last_id else {})
        async with self._sender.stream(request, headers) as parts, aclosing(_parsed_events(parts)) as events:
            async for event in events:
                if event.name == "problem":
                    told = from_json(event.data)
                    raise_problem(int(told.get("status", 500)), event.data, server=self._server)
                yield event


async def _parsed_events(parts: AsyncIterator[bytes]) -> AsyncGenerator[FeedEvent, None]:
    """Yield the events of a stream; comments are left out.

    Lines end by a line feed alone: JSON may have other characters that end a line elsewhere.
    """
    rest = b""
    async for part in parts:
        *blocks, rest = (rest + part).split(b"\n\n")
        if len(rest) > _LONGEST_EVENT:
            raise InvalidError("event", f"{len(rest)} bytes", "the stream sends no whole event; is this the service?")
        for block in blocks:
            fields = dict(_fields(block))
            if b"event" in fields:
                yield FeedEvent(
                    fields[b"event"].decode(), fields.get(b"data", b"null"), fields.get(b"id", b"").decode()
                )


def _fields(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    for line in block.split(b"\n"):
        name, colon, value = line.partition(b":")
        if name and colon:
            yield name, value.removeprefix(b" ")


class ServiceFeeds:
    """The feeds of a service; each is read with `async for`, and ends when the caller stops.

    Each takes one of the client's connections for as long as it is read. A stream that breaks is opened again for
    up to `retry_for` seconds.

    Args:
        reader: reads them.
    """

    def __init__(self, reader: FeedReader) -> None:
        self._reader = reader

    def changes(self, pattern: str = "*", *, since: str | int | None = None) -> AsyncGenerator[Change, None]:
        """Yield the changes of keys, oldest first, as `SharedMemoryStore.watch`; none is missed.

        Args:
            pattern: keys to follow, with `*` and `?`.
            since: cursor or version to continue after; None for from now on.

        Yields:
            A `Change`; a `Gap` where changes were trimmed before they could be read.

        Raises:
            AccessDeniedError, InvalidError, LimitedError: the service refuses.
            UnavailableError: it could not be reached for `retry_for` seconds.
        """
        return self._reader.read(CHANGE_WATCH, {"pattern": pattern, "since": since})

    def messages(self, channel: str) -> AsyncGenerator[Message, None]:
        """Yield the messages of a channel, from now on, as `SharedMemoryStore.subscription`.

        Args:
            channel: its name.

        Yields:
            A `Message`; a `Missed` where messages may have been lost just before.

        Raises:
            AccessDeniedError, InvalidError, LimitedError, UnavailableError: as `changes`.
        """
        return self._reader.read(MESSAGE_SUBSCRIBE, {"channel": channel})

    def memories(
        self,
        query: str,
        *,
        threshold: float | None = None,
        filters: MemoryFilter | Mapping[str, Any] | None = None,
        since: str | None = None,
    ) -> AsyncGenerator[MemoryEvent, None]:
        """Yield events of the memories that match a query, as `Memories.subscribe`; none is missed.

        Args:
            query: the text to match, in everyday language.
            threshold: least likeness, 0 to 1; None for 0.5.
            filters: which memories to follow.
            since: `cursor` of the last event that was read; None for from now on.

        Raises:
            AccessDeniedError, InvalidError, LimitedError, UnavailableError: as `changes`.
        """
        fields = {"query": query, "threshold": threshold, "filters": filters, "since": since}
        return self._reader.read(MEMORY_SUBSCRIBE, fields)


class BlockingServiceFeeds:
    """The feeds of a service for programs that block; each is read with `for`.

    `ServiceFeeds` has the same methods and documents them.

    Args:
        reader: reads them; its sender blocks.
    """

    def __init__(self, reader: FeedReader) -> None:
        self._feeds = ServiceFeeds(reader)

    def changes(self, pattern: str = "*", *, since: str | int | None = None) -> Iterator[Change]:
        """Yield the changes of keys, oldest first."""
        return _iterate_blocking(self._feeds.changes(pattern, since=since))

    def messages(self, channel: str) -> Iterator[Message]:
        """Yield the messages of a channel, from now on."""
        return _iterate_blocking(self._feeds.messages(channel))

    def memories(
        self,
        query: str,
        *,
        threshold: float | None = None,
        filters: MemoryFilter | Mapping[str, Any] | None = None,
        since: str | None = None,
    ) -> Iterator[MemoryEvent]:
        """Yield events of the memories that match a query."""
        return _iterate_blocking(self._feeds.memories(query, threshold=threshold, filters=filters, since=since))


def _iterate_blocking(events: AsyncGenerator[Event, None]) -> Iterator[Event]:
    async def next_event() -> Event | None:
        return await anext(events, None)

    try:
        while (event := run_blocking(next_event())) is not None:
            yield event
    finally:
        run_blocking(events.aclose())
