"""The gRPC server: its address and TLS, health, reflection, graceful shutdown."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from sharedmem.clock import Clock, SystemClock
from sharedmem.errors import ConfigError, SharedMemoryError, UnavailableError
from sharedmem.faces.auth import Admission, Bearer, Everyone
from sharedmem.faces.grpc.contract import SERVICE
from sharedmem.faces.grpc.service import MemoryService
from sharedmem.faces.listen_address import ListenAddress, check_access, format_address, read_pem
from sharedmem.hub import Hub
from sharedmem.runtime import get_logger
from sharedmem.runtime.background import Background

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
"""Room for the longest reasoning (1 MiB) and what goes with it, four times over."""
_MOST_MESSAGE_BYTES = 256 * 1024 * 1024
_LEAST_MESSAGE_BYTES = 1024


@dataclass(frozen=True)
class GrpcAddress(ListenAddress):
    """An address for gRPC, and who may come to it.

    Args:
        host, tls_cert_file, tls_key_file, tls_client_ca_file, trust_network: as `ListenAddress`.
        port: 0 takes a free one.
        max_message_bytes: longer requests are refused with RESOURCE_EXHAUSTED.
    """

    port: int = 50_051
    max_message_bytes: int = MAX_MESSAGE_BYTES

    def check(self, *, has_tokens: bool) -> None:
        """Refuse what cannot work, and what would let strangers in.

        Raises:
            ConfigError: a number is out of bounds, TLS is half given, or others could come in unasked.
        """
        if not _LEAST_MESSAGE_BYTES <= self.max_message_bytes <= _MOST_MESSAGE_BYTES:
            wish = f"give {_LEAST_MESSAGE_BYTES} to {_MOST_MESSAGE_BYTES} bytes"
            raise ConfigError("max_message_bytes", "argument", f"{self.max_message_bytes} is refused: {wish}")
        super().check(has_tokens=has_tokens)

    def credentials(self) -> grpc.ServerCredentials | None:
        """What grpc needs for TLS; None without TLS. Reads files.

        Raises:
            ConfigError: a file cannot be read, holds no PEM, or the key is another certificate's.
        """
        if self.tls_cert_file is None or self.tls_key_file is None:
            return None
        self.check_files()
        authorities = (
            None if self.tls_client_ca_file is None else read_pem("tls_client_ca_file", self.tls_client_ca_file)
        )
        pair = (read_pem("tls_key_file", self.tls_key_file), read_pem("tls_cert_file", self.tls_cert_file))
        return grpc.ssl_server_credentials([pair], authorities, authorities is not None)


GRACE_S = 10.0
_HEALTH_EVERY_S = 2.0
_HEALTH_PATIENCE_S = 2.0
_SERVED = ("", SERVICE)
_logger = get_logger("grpc")


class MemoryServer:
    """Serves a hub: `async with MemoryServer(hub, tokens=Tokens.read(path)) as server: await server.wait()`.

    Health checks and reflection need no token: they show whether it works and what can be called.

    Args:
        hub: the memory; it must be open for as long as the server runs, and stays open afterwards.
        endpoint: where to listen.
        tokens: who may call: `Tokens` of a file, a `Registry`. None treats every caller as `everyone`.
        everyone: whom callers are taken for where there are no tokens.
        grace_s: seconds that calls under way get to end when the server stops.
        health_every_s: seconds between two looks whether Redis answers.
        clock: source of the time.
    """

    def __init__(
        self,
        hub: Hub,
        endpoint: GrpcAddress | None = None,
        *,
        tokens: Admission | None = None,
        everyone: Bearer | None = None,
        grace_s: float = GRACE_S,
        health_every_s: float = _HEALTH_EVERY_S,
        clock: Clock | None = None,
    ) -> None:
        self._hub = hub
        self._endpoint = endpoint or GrpcAddress()
        self._tokens = tokens
        self._admission = tokens or Everyone(everyone or Bearer(namespace="default"))
        self._grace_s = grace_s
        self._health_every_s = health_every_s
        self._clock = clock or SystemClock()
        self._running: _RunningServer | None = None

    @property
    def endpoint(self) -> GrpcAddress:
        """Where it listens; while it runs with its real port."""
        return self._endpoint

    @property
    def target(self) -> str:
        """What clients of this machine take to find it."""
        return self._endpoint.address

    async def start(self) -> None:
        """Listen.

        Raises:
            ConfigError: the address cannot be listened at, a certificate is of no use, strangers could come in, or
                there are tokens while the hub's access policy is `open`.
        """
        endpoint = self._endpoint
        endpoint.check(has_tokens=self._tokens is not None)
        check_access(self._hub.settings, has_tokens=self._tokens is not None)
        credentials = await asyncio.to_thread(endpoint.credentials)
        await asyncio.to_thread(endpoint.check_free)
        running = _RunningServer(self._hub, MemoryService(self._hub, self._admission), endpoint)
        port = running.listen(endpoint, credentials)
        await self._tell_health(running)
        await running.server.start()
        self._endpoint = replace(endpoint, port=port)
        running.background.start("watch health", self._follow_health(running))
        self._running = running

    async def wait(self) -> None:
        """Return when the server has stopped."""
        if self._running is not None:
            await self._running.server.wait_for_termination()

    async def stop(self) -> None:
        """Say so to health checks, take no more calls, send watchers away, and let the other calls end in their time.

        The second call does nothing.
        """
        running, self._running = self._running, None
        if running is None:
            return
        await running.background.close()
        await running.health.enter_graceful_shutdown()
        running.service.end_streams()
        await running.server.stop(self._grace_s)

    async def _follow_health(self, running: _RunningServer) -> None:
        while True:
            await self._clock.sleep(self._health_every_s)
            await self._tell_health(running)

    async def _tell_health(self, running: _RunningServer) -> None:
        """Report to health checks whether Redis answers, and log changes of that."""
        answers = await self._redis_answers()
        if answers != running.answers:
            _logger.warning("%s: Redis %s", self.target, "answers" if answers else "does not answer any more")
        running.answers = answers
        for name in _SERVED:
            await running.health.set(name, _STATUS[answers])

    async def _redis_answers(self) -> bool:
        try:
            async with asyncio.timeout(_HEALTH_PATIENCE_S):
                return (await self._hub.health()).ok
        except (SharedMemoryError, TimeoutError):
            return False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def __repr__(self) -> str:
        who = repr(self._tokens) if self._tokens else "everybody"
        return f"<MemoryServer {format_address(self._endpoint.host, self._endpoint.port)} for {who}>"


_STATUS = {
    True: health_pb2.HealthCheckResponse.SERVING,
    False: health_pb2.HealthCheckResponse.NOT_SERVING,
}


class _RunningServer:
    """The parts of a server that listens."""

    def __init__(self, hub: Hub, service: MemoryService, endpoint: GrpcAddress) -> None:
        self.service = service
        self.answers = True
        self.health = health.aio.HealthServicer()
        self.background = Background(hub.counters)
        self.server = grpc.aio.server(options=_options(endpoint))
        self.server.add_generic_rpc_handlers((service.handlers(),))
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self.server)
        reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), self.server)

    def listen(self, endpoint: GrpcAddress, credentials: grpc.ServerCredentials | None) -> int:
        """Take the port; returns which one it is.

        Raises:
            UnavailableError: another process has taken it in this moment.
        """
        try:
            if credentials is None:
                return self.server.add_insecure_port(endpoint.address)
            return self.server.add_secure_port(endpoint.address, credentials)
        except RuntimeError as error:
            raise UnavailableError(f"listening at {endpoint.address}", str(error)) from error


def _options(endpoint: GrpcAddress) -> list[tuple[str, int]]:
    return [
        # Two servers on one port would each answer half of the calls.
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", endpoint.max_message_bytes),
        # A long plan list is the caller's wish; what it takes is the caller's setting.
        ("grpc.max_send_message_length", -1),
        # Clients look with pings whether a silent connection still lives: every 30 s, also without a call.
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
    ]
