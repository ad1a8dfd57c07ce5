"""The gRPC client: decisions, episodes, messages and changes of a store over one channel."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc.aio
import orjson
from google.protobuf.message import Message

from sharedmem.clock import Clock, SystemClock, from_microseconds
from sharedmem.errors import InvalidError, UnavailableError, UsageError
from sharedmem.faces.grpc.contract import METHODS, SERVICE, raise_sharedmem_error
from sharedmem.faces.grpc.decisions import RemoteDecisions
from sharedmem.faces.grpc.v1 import memory_pb2 as pb
from sharedmem.faces.listen_address import is_loopback, read_pem
from sharedmem.models import Change, Gap
from sharedmem.runtime import Counters
from sharedmem.runtime.concurrency import Background, EventLoopBinding, ProcessBound
from sharedmem.runtime.telemetry import trace_headers

Reply = TypeVar("Reply", bound=Message)
MAX_REPLY_BYTES = 64 * 1024 * 1024
# These look and change nothing, so that to repeat them does no harm. Of the others grpc repeats only what has
# demonstrably never reached the server.
READS = (
    *("GetRecentPlans", "CheckDuplicate", "CheckExecuted", "GetOpenExecutions", "GetExecutionStats"),
    *("ListSessions", "Retrieve"),
)
_RETRIES = {
    "maxAttempts": 4,
    "initialBackoff": "0.1s",
    "maxBackoff": "1s",
    "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE"],
}
_SERVICE_CONFIG = {
    "methodConfig": [{"name": [{"service": SERVICE, "method": name} for name in READS], "retryPolicy": _RETRIES}]
}


@dataclass(frozen=True)
class ChannelSecurity:
    """How a channel is protected.

    Args:
        tls: None encrypts unless the server is on this machine.
        ca_file: PEM file of the authorities that may have signed the server; None takes the ones of grpc.
        cert_file: PEM file of the client's own certificate, where the server asks for one.
        key_file: PEM file of its key.
    """

    tls: bool | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None

    def credentials(self, target: str) -> grpc.ChannelCredentials | None:
        """What grpc needs for TLS to this server; None without TLS. Reads files.

        Raises:
            ConfigError: a file cannot be read, or holds no PEM.
        """
        files = (self.ca_file, self.key_file, self.cert_file)
        wanted = self.tls if self.tls is not None else any(files) or not _is_local(target)
        if not wanted:
            return None
        names = ("tls_ca_file", "tls_key_file", "tls_cert_file")
        contents = [read_pem(name, path) if path else None for name, path in zip(names, files, strict=True)]
        return grpc.ssl_channel_credentials(*contents)


class GrpcChannel:
    """A channel to one server, made when it is opened.

    Args:
        target: `host:port`, or any other name that grpc knows.
        token: shown with every call.
        credentials: for TLS.
        timeout_s: seconds to wait for a reply.
        max_reply_bytes: longer answers are refused.
    """

    def __init__(
        self,
        target: str,
        *,
        token: str | None,
        credentials: grpc.ChannelCredentials | None,
        timeout_s: float,
        max_reply_bytes: int,
    ) -> None:
        self.target = target
        self._timeout_s = timeout_s
        self._metadata = () if token is None else (("authorization", f"Bearer {_check_token(token)}"),)
        options = _options(max_reply_bytes)
        if credentials is None:
            self._channel = grpc.aio.insecure_channel(target, options)
        else:
            self._channel = grpc.aio.secure_channel(target, credentials, options)

    async def ask(self, name: str, request: Message, gives: type[Reply]) -> Reply:
        """Make a call that answers once.

        Raises:
            SharedMemoryError: as the server raised it, or as `raise_sharedmem_error` says.
        """
        method = METHODS[name]
        call: Any = self._channel.unary_unary(method.path, _serialized, gives.FromString)
        try:
            answer: Reply = await call(request, timeout=self._timeout_s, metadata=self._sent_metadata())
        except grpc.aio.AioRpcError as error:
            raise_sharedmem_error(error, name, self.target)
        except grpc.aio.UsageError as error:
            raise _closed_error(self.target) from error
        return answer

    async def follow(self, name: str, request: Message, gives: type[Reply]) -> AsyncGenerator[Reply, None]:
        """Make a call that goes on answering.

        Raises:
            SharedMemoryError: as `ask`.
        """
        method = METHODS[name]
        open_stream: Any = self._channel.unary_stream(method.path, _serialized, gives.FromString)
        try:
            call = open_stream(request, metadata=self._sent_metadata())
        except grpc.aio.UsageError as error:
            raise _closed_error(self.target) from error
        try:
            async for answer in call:
                yield answer
        except grpc.aio.AioRpcError as error:
            raise_sharedmem_error(error, name, self.target)
        finally:
            call.cancel()

    def _sent_metadata(self) -> tuple[tuple[str, str], ...]:
        return (*self._metadata, *trace_headers().items())

    async def close(self) -> None:
        """Break off what is under way, and leave."""
        await self._channel.close()


def _options(max_reply_bytes: int) -> list[tuple[str, int | str]]:
    return [
        ("grpc.service_config", json.dumps(_SERVICE_CONFIG)),
        ("grpc.max_receive_message_length", max_reply_bytes),
        # A server that comes back is found within two seconds; grpc would wait up to two minutes. The first of these is
        # how long an attempt to connect may take, too: a handshake of TLS over the ocean takes most of a second.
        ("grpc.min_reconnect_backoff_ms", 5_000),
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.max_reconnect_backoff_ms", 2_000),
        # A watcher of a quiet namespace notices when the server is gone without a word.
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
    ]


def _serialized(message: Message) -> bytes:
    return message.SerializeToString()


def _check_token(token: str) -> str:
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidError("token", "***", "give it just as `sharedmem token create` has shown it")
    return token


def _is_local(target: str) -> bool:
    """Whether the server is on this machine by its very name."""
    return target.startswith("unix:") or is_loopback(target.rpartition("/")[2].rpartition(":")[0])


def _closed_error(target: str) -> UsageError:
    return UsageError(f"the client of {target}", "it is closed; use it inside of: async with MemoryClient(...)")


_PAUSE_S = 0.25


class MemoryClient(ProcessBound):
    """A memory service: `async with MemoryClient("127.0.0.1:50051", token=...) as memory: ...`.

    It has the calls of a `SharedMemoryStore` whose namespace, actor and rights the token decides; they raise the
    same errors. Calls that only look are repeated while the server is away; for the others a lost answer is reported as
    `UnavailableError`, and whether it did its work is to be looked up. `save_if_new` and `begin_execution` may be
    repeated then: a plan is not saved twice, an execution not started twice.

    Args:
        target: `host:port` of the server.
        token: made by `sharedmem token create`; None where the server needs none.
        tls: None encrypts unless the server is on this machine.
        tls_ca_file: PEM file of the authorities that may have signed the server.
        tls_cert_file: PEM file of a certificate of one's own, where the server asks for one.
        tls_key_file: PEM file of its key.
        timeout: seconds to wait for a reply.
        retry_for: seconds for which `watch` looks for a server that went away.
        max_message_bytes: longer answers are refused.
    """

    def __init__(
        self,
        target: str = "127.0.0.1:50051",
        *,
        token: str | None = None,
        tls: bool | None = None,
        tls_ca_file: str | Path | None = None,
        tls_cert_file: str | Path | None = None,
        tls_key_file: str | Path | None = None,
        timeout: float = 30.0,
        retry_for: float = 10.0,
        max_message_bytes: int = MAX_REPLY_BYTES,
    ) -> None:
        self._target = target
        self._token = token
        files = (Path(file) if file else None for file in (tls_ca_file, tls_cert_file, tls_key_file))
        self._protection = ChannelSecurity(tls, *files)
        self._timeout_s = timeout
        self._retry_for_s = retry_for
        self._max_message_bytes = max_message_bytes
        self._clock: Clock = SystemClock()
        self._background = Background(Counters())
        self._client: GrpcChannel | None = None
        self._home: EventLoopBinding | None = None
        self._decisions = RemoteDecisions(self._ask, self._clock, self._background)
        self._episodes = RemoteEpisodes(self)

    @property
    def decisions(self) -> RemoteDecisions:
        """Plans and their executions, as `store.decisions`."""
        return self._decisions

    @property
    def episodes(self) -> RemoteEpisodes:
        """Events of sessions, as `store.episodes`."""
        return self._episodes

    async def publish(self, channel: str, message: object) -> int:
        """Send a message to the present subscribers, as `store.publish`.

        Args:
            channel: plain (`<namespace>:shared:<channel>`) or absolute.
            message: what JSON can hold.

        Returns:
            How many subscriptions got it.

        Raises:
            InvalidError: JSON cannot hold it.
            AccessDeniedError, UnavailableError: as every call.
        """
        request = pb.PublishRequest(channel=_check_text("channel", channel), message_json=_to_json("message", message))
        return (await self._ask("Publish", request, pb.PublishResponse)).receivers

    async def call(self, operation: str, **fields: object) -> Any:
        """Call any operation of the server by its name, such as `value.write` or `memory.search`.

        The operations and their fields are the same as in the REST service.

        Args:
            operation: the name.
            fields: of the request, as JSON can hold them.

        Returns:
            What JSON says: records are mappings, times are texts.

        Raises:
            NotFoundError: there is no such operation, or what it asks for does not exist.
            InvalidError: a field is invalid.
            SharedMemoryError: as the operation.
        """
        request = pb.CallRequest(operation=_check_text("operation", operation), request_json=_to_json("fields", fields))
        return orjson.loads((await self._ask("Call", request, pb.CallResponse)).answer_json)

    async def watch(self, pattern: str = "*", *, since: str | int | None = None) -> AsyncIterator[Change]:
        """Yield every change of the keys that match, in order, for ever, as `store.watch`.

        A server that goes away is looked for, and the feed goes on where it was: nothing is lost or doubled by it.

        Args:
            pattern: with `*` and `?`; without `:` it is matched in every scope of the namespace.
            since: the `cursor` of the last change seen, or a version; 0 from the oldest kept; None from now on.

        Yields:
            `Change`, and `Gap` (a kind of it) where changes were trimmed before they could be read.

        Raises:
            UnavailableError: the server stayed away for longer than `retry_for`; go on from the last cursor.
            AccessDeniedError, InvalidError: as `store.watch`.
        """
        place = _FeedPosition("" if since is None else str(since))
        while True:
            try:
                async with aclosing(self._changes(_check_text("pattern", pattern), place)) as changes:
                    async for change in changes:
                        yield change
            except UnavailableError:
                if place.away_for(self._clock.monotonic()) >= self._retry_for_s:
                    raise
                await self._clock.sleep(_PAUSE_S)

    async def _changes(self, pattern: str, place: _FeedPosition) -> AsyncGenerator[Change, None]:
        """The changes from a place on, for as long as the stream lasts."""
        steps = self._opened().follow("Watch", pb.WatchRequest(pattern=pattern, cursor=place.cursor), pb.WatchResponse)
        async with aclosing(steps):
            async for step in steps:
                place.reach(step.cursor)
                if not step.HasField("started"):
                    yield _parse_change(step)

    async def close(self) -> None:
        """End what is under way, and leave the server."""
        await self._background.close()
        line, self._client = self._client, None
        if line is not None:
            await line.close()

    async def _ask(self, name: str, request: Message, gives: type[Reply]) -> Reply:
        return await self._opened().ask(name, request, gives)

    def _opened(self) -> GrpcChannel:
        if self._client is None or self._home is None:
            problem = "it is not open; use it inside of: async with MemoryClient(...) as memory"
            raise UsageError("this client", problem)
        self._home.check()
        return self._client

    async def __aenter__(self) -> Self:
        credentials = await asyncio.to_thread(self._protection.credentials, self._target)
        self._home = EventLoopBinding("this client")
        self._client = GrpcChannel(
            self._target,
            token=self._token,
            credentials=credentials,
            timeout_s=self._timeout_s,
            max_reply_bytes=self._max_message_bytes,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<MemoryClient of {self._target}, {'open' if self._client else 'closed'}>"


class _FeedPosition:
    """Where a watcher is in the feed, and how long its server has been away."""

    def __init__(self, cursor: str) -> None:
        self.cursor = cursor
        self._connected = False
        self._away_since: float | None = None

    def reach(self, cursor: str) -> None:
        """The server has sent the feed up to there."""
        self.cursor, self._connected, self._away_since = cursor, True, None

    def away_for(self, now: float) -> float:
        """Seconds since it went away; for ever when it was never there."""
        if self._away_since is None:
            self._away_since = now
        return now - self._away_since if self._connected else float("inf")


class RemoteEpisodes:
    """Episodic memory at the other end; made by `MemoryClient`."""

    def __init__(self, client: MemoryClient) -> None:
        self._ask = client._ask  # noqa: SLF001  one thing in two parts

    async def append_event(self, session: str, event: object) -> int:
        """Put an event at the end of a session's episode, as `store.episodes.append_event`.

        Args:
            session: a name without colons and blanks.
            event: what JSON can hold.

        Returns:
            How many events the episode keeps.

        Raises:
            InvalidError: the name is invalid, or JSON cannot hold the event.
            AccessDeniedError, UnavailableError: as every call.
        """
        request = pb.StoreRequest(session_id=_check_text("session", session), event_json=_to_json("event", event))
        return (await self._ask("Store", request, pb.StoreResponse)).events

    async def summarize_episode(self, session: str) -> str | None:
        """What a session was about, as `store.episodes.summarize_episode`.

        Raises:
            InvalidError: the name is invalid.
            AccessDeniedError, UnavailableError: as every call.
        """
        request = pb.SummarizeRequest(session_id=_check_text("session", session))
        reply = await self._ask("Summarize", request, pb.SummarizeResponse)
        return reply.summary if reply.HasField("summary") else None

    async def retrieve(self, query: str, k: int = 5, filters: Mapping[str, object] | None = None) -> list[str]:
        """The newest events and summaries that hold a piece of text, as `store.episodes.retrieve`.

        Args:
            query: searched for as it is.
            k: at most so many answers.
            filters: any of `session`, `actor`, `since` and `until`.

        Raises:
            InvalidError: k is below one, or a filter is unknown or none.
            AccessDeniedError, UnavailableError: as every call.
        """
        if isinstance(k, bool) or not isinstance(k, int) or not 0 < k < 2**31:
            raise InvalidError("k", k, "give a whole number from one up")
        filters_json = _to_json("filters", dict(filters)) if filters else ""
        request = pb.RetrieveRequest(query=_check_text("query", query), k=k, filters_json=filters_json)
        return list((await self._ask("Retrieve", request, pb.RetrieveResponse)).events)


def _parse_change(step: pb.WatchResponse) -> Change:
    if step.HasField("gap"):
        return Gap(
            key=step.gap.namespace,
            operation="gap",
            version=step.gap.next_version,
            actor="",
            at=from_microseconds(step.gap.next_version),
            cursor=step.cursor,
        )
    change = step.change
    return Change(
        key=change.key,
        operation=change.operation,
        version=change.version,
        actor=change.actor,
        at=from_microseconds(change.version),
        cursor=step.cursor,
    )


def _check_text(field: str, text: str) -> str:
    """The text.

    Raises:
        InvalidError: it is not text, or UTF-8 cannot hold it.
    """
    try:
        text.encode()
    except (AttributeError, UnicodeEncodeError) as error:
        raise InvalidError(field, text, "give a text") from error
    return text


def _to_json(field: str, value: object) -> str:
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError as error:
        raise InvalidError(field, value, f"over gRPC it must be what JSON can hold ({error})") from error
