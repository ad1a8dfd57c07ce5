"""The client's way to a server: one channel, its protection, and how calls are made on it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import grpc.aio
from google.protobuf.message import Message

from sharedmem.errors import InvalidError, UsageError
from sharedmem.faces.endpoint import is_loopback, pem
from sharedmem.faces.grpc.contract import METHODS, SERVICE
from sharedmem.faces.grpc.errors import raise_as_ours

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
class Protection:
    """How a channel is protected.

    Args:
        tls: None encrypts unless the server is on this machine.
        ca_file: PEM file of the authorities that may have signed the server; None takes those that grpc brings.
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
        contents = [pem(name, path) if path else None for name, path in zip(names, files, strict=True)]
        return grpc.ssl_channel_credentials(*contents)


class Line:
    """A channel to one server, made when it is opened.

    Args:
        target: `host:port`, or any other name that grpc knows.
        token: shown with every call.
        credentials: for TLS.
        timeout_s: seconds after which a call that has not answered is given up.
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
        self._metadata = () if token is None else (("authorization", f"Bearer {_sound(token)}"),)
        options = _options(max_reply_bytes)
        if credentials is None:
            self._channel = grpc.aio.insecure_channel(target, options)
        else:
            self._channel = grpc.aio.secure_channel(target, credentials, options)

    async def ask(self, name: str, request: Message, gives: type[Reply]) -> Reply:
        """Make a call that answers once.

        Raises:
            SharedMemoryError: as the server raised it, or as `raise_as_ours` says.
        """
        method = METHODS[name]
        call: Any = self._channel.unary_unary(method.path, _serialized, gives.FromString)
        try:
            answer: Reply = await call(request, timeout=self._timeout_s, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            raise_as_ours(error, name, self.target)
        except grpc.aio.UsageError as error:
            raise _closed(self.target) from error
        return answer

    async def follow(self, name: str, request: Message, gives: type[Reply]) -> AsyncGenerator[Reply, None]:
        """Make a call that goes on answering.

        Raises:
            SharedMemoryError: as `ask`.
        """
        method = METHODS[name]
        open_stream: Any = self._channel.unary_stream(method.path, _serialized, gives.FromString)
        try:
            call = open_stream(request, metadata=self._metadata)
        except grpc.aio.UsageError as error:
            raise _closed(self.target) from error
        try:
            async for answer in call:
                yield answer
        except grpc.aio.AioRpcError as error:
            raise_as_ours(error, name, self.target)
        finally:
            call.cancel()

    async def close(self) -> None:
        """Break off what is under way, and leave."""
        await self._channel.close()


def _options(max_reply_bytes: int) -> list[tuple[str, int | str]]:
    return [
        ("grpc.service_config", json.dumps(_SERVICE_CONFIG)),
        ("grpc.max_receive_message_length", max_reply_bytes),
        # A server that comes back is found within two seconds; grpc would wait up to two minutes.
        ("grpc.min_reconnect_backoff_ms", 200),
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.max_reconnect_backoff_ms", 2_000),
        # A watcher of a quiet namespace notices when the server is gone without a word.
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
    ]


def _serialized(message: Message) -> bytes:
    return message.SerializeToString()


def _sound(token: str) -> str:
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidError("token", "***", "give it just as `sharedmem token create` has shown it")
    return token


def _is_local(target: str) -> bool:
    """Whether the server is on this machine by its very name."""
    return target.startswith("unix:") or is_loopback(target.rpartition("/")[2].rpartition(":")[0])


def _closed(target: str) -> UsageError:
    return UsageError(f"the client of {target}", "it is closed; use it inside of: async with MemoryClient(...)")
