"""Server-sent events: the change feed and the channels of a namespace, as streams that a client can go on with.

A stream of changes is resumed by `Last-Event-ID`, which is the cursor of the last change seen: nothing is missed, or
an event `gap` says that something was. A channel has no past: an event `missed` says where messages may be lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import orjson
from pydantic import ValidationError
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sharedmem.api.memory import MemoryFollow
from sharedmem.api.operation import feeds
from sharedmem.api.store import ChangeWatch
from sharedmem.data.change_feed import parse_cursor
from sharedmem.errors import InternalError, SharedMemoryError, UnavailableError
from sharedmem.faces.auth import Admission, TokenRefusedError
from sharedmem.faces.bodies import json_bytes
from sharedmem.faces.limits import CallerSlots
from sharedmem.faces.rest.context import Call, Endpoint, parse_json
from sharedmem.faces.rest.disconnect import StreamSender, cancel_on_exit, wait_for_disconnect
from sharedmem.faces.rest.problems import FieldsError, problem_response
from sharedmem.memory.subscriptions import StandingQuery
from sharedmem.models import Change, Gap, Message, Missed
from sharedmem.runtime import get_logger

CHANGES, MESSAGES, MEMORIES = "/changes", "/channels/{channel}/messages", "/memory/events"
VERIFY, RESTORE = "/durable/verify/events", "/durable/restore/events"
_TYPE = "text/event-stream"
_AGAIN_MS = 1000
_CLOSING_PATIENCE_S = 1.0
_PROGRESS_EVERY_S = 0.25
_LAST_SEEN = "last-event-id"
_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}
_logger = get_logger("rest.events")


class ServerSentEvent(NamedTuple):
    """One event of a stream."""

    name: str
    data: object
    id: str | None = None
    """What a client shows as `Last-Event-ID` when it comes back; None leaves the one before."""

    def spelled(self) -> bytes:
        """As it goes over the wire."""
        head = f"event: {self.name}\n" + (f"id: {self.id}\n" if self.id else "")
        return head.encode() + b"data: " + json_bytes(self.data) + b"\n\n"


@dataclass(frozen=True)
class EventStreamOptions:
    """How streams behave.

    Args:
        tick_s: seconds of silence after which a comment shows that the stream lives; so often the token is looked at
            again, and a reader that has left in silence is noticed.
        stalled_s: seconds after which a reader that takes nothing any more is left.
        most: streams of this process.
        most_each: streams of one caller in this process.
    """

    tick_s: float = 5.0
    stalled_s: float = 60.0
    most: int = 1000
    most_each: int = 100


class EventEndpoints:
    """The streams of one service.

    Args:
        admission: asked again while a stream runs, so that a token that is taken back ends it.
        manners: how they behave.
    """

    def __init__(self, admission: Admission, manners: EventStreamOptions | None = None) -> None:
        self._admission = admission
        self.manners = manners or EventStreamOptions()
        most, most_each = self.manners.most, self.manners.most_each
        self.slots = CallerSlots("streams", most=most, most_each=most_each, retry_after=_CLOSING_PATIENCE_S)

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Return the endpoints that stream."""
        return (
            Endpoint("GET", CHANGES, "change.watch", self.changes, _CHANGES_DOCUMENT),
            Endpoint("GET", MESSAGES, "message.subscribe", self.messages, _MESSAGES_DOCUMENT),
            Endpoint("GET", MEMORIES, "memory.subscribe", self.memories, _MEMORIES_DOCUMENT),
            Endpoint("POST", VERIFY, "durable.verify_events", self.verify, _VERIFY_DOCUMENT),
            Endpoint("POST", RESTORE, "durable.restore_events", self.restore, _RESTORE_DOCUMENT, needs="write"),
        )

    async def changes(self, call: Call) -> Response:
        """The changes of the keys that match.

        Raises:
            AccessDeniedError, InvalidError, UnavailableError: as `SharedMemoryStore.watch`.
            LimitedError: the caller has too many streams open.
        """
        asked = _query(call, {"pattern", "since"})
        pattern, since = asked.get("pattern", "*"), call.header(_LAST_SEEN) or asked.get("since")
        newest = await call.store.cursor(pattern)
        cursor = newest if since is None else parse_cursor(since)
        feed = feeds()["change.watch"].run(call.store, ChangeWatch(pattern=pattern, since=cursor))
        events = _change_events(cast("AsyncGenerator[Change, None]", feed), cursor)
        return self._stream(call, events, AsyncExitStack())

    async def messages(self, call: Call) -> Response:
        """The messages of a channel, from now on.

        Raises:
            AccessDeniedError, InvalidError, UnavailableError: as `SharedMemoryStore.subscription`.
            LimitedError: the caller has too many streams open.
        """
        _query(call, set())
        channel, held = call.params["channel"], AsyncExitStack()
        # Entered here, so that a refusal is an answer of its own, and who gets the headers is subscribed.
        messages = await held.enter_async_context(call.store.subscription(channel))
        try:
            return self._stream(call, _message_events(messages, channel), held)
        except BaseException:
            await held.aclose()
            raise

    async def memories(self, call: Call) -> Response:
        """The memories that come to match a query, change, or match no more.

        Raises:
            AccessDeniedError, InvalidError, UnavailableError: as `Memories.subscribe`.
            LimitedError: the caller has too many streams open.
        """
        fields: dict[str, Any] = dict(_query(call, set(MemoryFollow.model_fields)))
        if "filters" in fields:
            fields["filters"] = parse_json("filters", fields["filters"].encode())
        fields["since"] = call.header(_LAST_SEEN) or fields.get("since")
        try:
            asked = MemoryFollow.model_validate(fields)
        except ValidationError as error:
            raise FieldsError.of(error) from None
        held = AsyncExitStack()
        following = call.store.memory.subscribe(
            asked.query, threshold=asked.threshold, filters=asked.filters, since=asked.since
        )
        events = await held.enter_async_context(following)
        try:
            return self._stream(call, _memory_events(events), held)
        except BaseException:
            await held.aclose()
            raise

    async def verify(self, call: Call) -> Response:
        """Progress and result of a comparison of Redis with the durable tier; it ends when its reader leaves.

        Raises:
            UnsupportedError: there is no durable tier.
            LimitedError: the caller has too many streams open.
        """
        durable = call.store.durable
        return await self._progress(call, "verified", durable.verify)

    async def restore(self, call: Call) -> Response:
        """Progress and result of restoring the namespace from the durable tier; it ends when its reader leaves.

        Raises:
            UnsupportedError: there is no durable tier.
            AccessDeniedError: the caller may not write every key of the namespace.
            LimitedError: the caller has too many streams open.
        """
        durable = call.store.durable

        async def restore(report: Callable[[int], None]) -> dict[str, int]:
            return {"restored": await durable.restore(report)}

        durable.check_writes_all()
        return await self._progress(call, "restored", restore)

    async def _progress(
        self, call: Call, name: str, work: Callable[[Callable[[int], None]], Coroutine[Any, Any, object]]
    ) -> Response:
        _query(call, set())
        # Read to its end, so that afterwards only the departure of the reader is received.
        await call.body()

        def begin(report: Callable[[int], None]) -> Coroutine[Any, Any, object]:
            return call.quotas.run(call.bearer, work(report))

        return self._stream(call, _progress_events(name, begin), AsyncExitStack())

    def _stream(self, call: Call, events: AsyncGenerator[ServerSentEvent, None], held: AsyncExitStack) -> Response:
        self.slots.check(call.caller)
        held.push_async_callback(events.aclose)
        return EventStreamResponse(call, events, held, streams=self)

    async def refusal(self, call: Call) -> TokenRefusedError | None:
        """Why the caller would not be let in any more."""
        try:
            await self._admission.admit(call.header("authorization"))
        except TokenRefusedError as error:
            return error
        except UnavailableError:
            pass  # who it is cannot be looked up just now; the feed itself waits for the server too
        return None


def _query(call: Call, known: set[str]) -> Mapping[str, str]:
    """Return the parameters of the query.

    Raises:
        FieldsError: there is something else in it.
    """
    query = call.request.query_params
    if unknown := sorted(set(query) - known):
        raise FieldsError([(name[:40], "there is no such parameter") for name in unknown])
    return query


class EventStreamResponse(Response):
    """A response that goes on until its reader leaves, the service ends, or the token is taken back."""

    def __init__(
        self,
        call: Call,
        events: AsyncGenerator[ServerSentEvent, None],
        held: AsyncExitStack,
        *,
        streams: EventEndpoints,
    ) -> None:
        super().__init__(headers=_HEADERS, media_type=_TYPE)
        del self.headers["content-length"]
        self._call, self._events, self._held, self._streams = call, events, held, streams
        self._is_complete = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream."""
        with self._streams.slots.taken(self._call.caller):
            async with self._held:
                await self._sent(StreamSender(send), scope, receive)

    async def _sent(self, pipe: StreamSender, scope: Scope, receive: Receive) -> None:
        await pipe.begin(self.status_code, self.raw_headers)
        if scope["method"] == "HEAD":
            await pipe.end()
            return
        async with (
            cancel_on_exit(self._pump(pipe)) as pump,
            cancel_on_exit(wait_for_disconnect(receive)) as left,
            cancel_on_exit(self._call.closing.wait()) as closing,
        ):
            farewell = await self._until_over(pipe, {pump, left, closing})
        if farewell is not None and not self._is_complete:
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSING_PATIENCE_S):
                    await pipe.put(farewell.spelled())
                    await pipe.end()

    async def _pump(self, pipe: StreamSender) -> None:
        await pipe.put(b"retry: %d\n\n" % _AGAIN_MS)
        async for event in self._events:
            await pipe.put(event.spelled())
        self._is_complete = True
        await pipe.end()

    async def _until_over(self, pipe: StreamSender, tasks: set[asyncio.Future[Any]]) -> ServerSentEvent | None:
        """Return the last event for the client; None when the client is gone."""
        loop = asyncio.get_running_loop()
        while True:
            done, _ = await asyncio.wait(
                tasks, timeout=self._streams.manners.tick_s, return_when=asyncio.FIRST_COMPLETED
            )
            if done:
                return _closing_event(done, is_closing=self._call.closing.is_set())
            if (refusal := await self._streams.refusal(self._call)) is not None:
                return ServerSentEvent("problem", _problem_body(refusal))
            if pipe.busy_since is None:
                await pipe.idle()
            elif loop.time() - pipe.busy_since > self._streams.manners.stalled_s:
                _logger.warning("a reader takes nothing any more; its stream ends")
                return None


def _closing_event(done: set[asyncio.Future[Any]], *, is_closing: bool) -> ServerSentEvent | None:
    if is_closing:
        return ServerSentEvent(
            "closing", {"again_in_ms": _AGAIN_MS, "why": "this server ends; come back with your last id"}
        )
    error = next((failed for task in done if (failed := task.exception()) is not None), None)
    if isinstance(error, SharedMemoryError):
        return ServerSentEvent("problem", _problem_body(error))
    if error is not None and not isinstance(error, OSError):
        _logger.error("a stream failed", exc_info=error)
        return ServerSentEvent("problem", _problem_body(InternalError("the stream failed")))
    return None


def _problem_body(error: SharedMemoryError) -> object:
    """What a refusal of its own would have said."""
    told: object = orjson.loads(problem_response(error).body)
    return told


async def _change_events(feed: AsyncGenerator[Change, None], cursor: str) -> AsyncGenerator[ServerSentEvent, None]:
    # Now the caller knows from where on nothing is missed, even if it leaves before the first change.
    yield ServerSentEvent("started", {"cursor": cursor}, cursor)
    async with aclosing(feed):
        async for change in feed:
            yield ServerSentEvent("gap" if isinstance(change, Gap) else "change", change, change.cursor)


async def _message_events(messages: AsyncIterator[Message], channel: str) -> AsyncGenerator[ServerSentEvent, None]:
    yield ServerSentEvent("started", {"channel": channel})
    async for message in messages:
        yield ServerSentEvent("missed" if isinstance(message, Missed) else "message", message)


async def _memory_events(events: StandingQuery) -> AsyncGenerator[ServerSentEvent, None]:
    cursor = events.cursor
    yield ServerSentEvent("started", {"cursor": cursor}, cursor)
    async for event in events:
        yield ServerSentEvent(event.event, event, event.cursor)


async def _progress_events(
    name: str, begin: Callable[[Callable[[int], None]], Coroutine[Any, Any, object]]
) -> AsyncGenerator[ServerSentEvent, None]:
    done = told = 0

    def report(count: int) -> None:
        nonlocal done
        done = count

    yield ServerSentEvent("started", {"done": 0})
    async with cancel_on_exit(begin(report)) as work:
        while not (await asyncio.wait({work}, timeout=_PROGRESS_EVERY_S))[0]:
            if done != told:
                told = done
                yield ServerSentEvent("progress", {"done": done})
        yield ServerSentEvent(name, work.result())


# -- OpenAPI --------------------------------------------------------------------------------------


def _document(summary: str, tag: str, description: str, parameters: list[dict[str, Any]]) -> dict[str, Any]:
    stream = {"description": "Events for as long as the reader stays.", "content": {_TYPE: {"schema": _TEXT}}}
    return {
        "summary": summary,
        "tags": [tag],
        "description": description,
        "parameters": parameters,
        "responses": {"200": stream},
    }


_TEXT = {"type": "string"}
_CHANGES_DOCUMENT = _document(
    feeds()["change.watch"].summary,
    "messages",
    "Events: `started` (its id: the feed's present position), `change`, `gap` where changes were trimmed before they "
    "could be read, `closing` when this server ends, `problem` when the stream cannot go on. The id of each is a "
    "cursor: a client that comes back with it in `Last-Event-ID` misses nothing. A comment shows every few seconds "
    "that the stream lives.",
    [
        {
            "name": "pattern",
            "in": "query",
            "description": "Keys to follow, with `*` and `?`; without `:` in every scope of the own namespace.",
            "schema": _TEXT | {"default": "*"},
        },
        {
            "name": "since",
            "in": "query",
            "description": "A cursor or version to go on from; 0 from the oldest that is kept; without it from now on.",
            "schema": _TEXT,
        },
        {
            "name": "Last-Event-ID",
            "in": "header",
            "description": "As `since`, and before it: clients send it by themselves when they come back.",
            "schema": _TEXT,
        },
    ],
)
_MESSAGES_DOCUMENT = _document(
    feeds()["message.subscribe"].summary,
    "messages",
    "Events: `started`, `message`, `missed` where messages may have been lost just before, `closing`, `problem`. A "
    "channel has no past: nothing can be replayed, so the events have no id. What must not be missed is followed "
    "under `/changes`.",
    [],
)
_LIKENESS = {"type": "number", "minimum": 0, "maximum": 1}
_FILTERS = {"application/json": {"schema": {"type": "object"}}}
_MEMORIES_DOCUMENT = _document(
    feeds()["memory.subscribe"].summary,
    "memory",
    "Events: `started` (its id: the feed's present position), `written` when a memory comes to match, `changed`, "
    "`withdrawn` when it is deleted or matches no more, `gap` where memories may be gone without an event, `closing`, "
    "`problem`. The id of each event of a "
    "memory is a cursor: a client that comes back with it in `Last-Event-ID` misses nothing.",
    [
        {"name": "query", "in": "query", "required": True, "schema": _TEXT, "example": "delivery address"},
        {"name": "threshold", "in": "query", "description": "Least likeness.", "schema": _LIKENESS | {"default": 0.5}},
        {"name": "filters", "in": "query", "description": "As `memory.search` takes them.", "content": _FILTERS},
        {"name": "since", "in": "query", "description": "Cursor of the last event seen.", "schema": _TEXT},
        {"name": "Last-Event-ID", "in": "header", "description": "As `since`, and before it.", "schema": _TEXT},
    ],
)
_PROGRESS = (
    "Events: `started`, `progress` with the number of keys `done` so far, then {what}, and the end; `problem` when it "
    "cannot go on. When the reader leaves, the work ends."
)
_VERIFY_DOCUMENT = _document(
    "Compare Redis with the durable tier, and show how far it is.",
    "durable",
    _PROGRESS.format(what="`verified` with the result of `POST /durable/verify`"),
    [],
)
_RESTORE_DOCUMENT = _document(
    "Restore the namespace in Redis from the durable tier, and show how far it is.",
    "durable",
    _PROGRESS.format(what="`restored` with the number of keys") + " Keys that are restored by then stay.",
    [],
)
