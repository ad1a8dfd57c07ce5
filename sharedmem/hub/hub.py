"""The hub: a connection to one server, and the stores that share it."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from sharedmem.clock import Clock, SystemClock
from sharedmem.config import Settings
from sharedmem.errors import ConfigError, UsageError
from sharedmem.hub.composition import Connect, OpenHub, assemble, build_knowledge_context, open_near_cache
from sharedmem.hub.composition import connect as default_connect
from sharedmem.models import Health, Powers
from sharedmem.redis.blocking_reads import BlockingConnections
from sharedmem.redis.connect import read_server_info
from sharedmem.redis.keys import check_name
from sharedmem.redis.scope import Grant, Identity, Scope, check_grants
from sharedmem.runtime import Counters
from sharedmem.runtime.concurrency import ProcessBound
from sharedmem.store import SharedMemoryStore, require_memory

if TYPE_CHECKING:
    from sharedmem.archive.archives import Archives
    from sharedmem.durable.admin import DurableAdmin
    from sharedmem.indexes import Indexes
    from sharedmem.knowledge_context import KnowledgeContext
    from sharedmem.providers.protocol import Embedder, LanguageModel
    from sharedmem.redis.credentials import CredentialProvider
    from sharedmem.redis.token_storage import TokenStorage
    from sharedmem.runtime.metrics_export import MetricsServer, OtlpMetrics

_OTLP_EVERY_S = 15.0


class Hub(ProcessBound):
    """A connection to shared memory: `async with Hub.open() as hub: ...`.

    Args:
        url: the Redis server; None: as in `settings`, otherwise start or join the embedded server.
        settings: None: read arguments, environment and files.
        clock: gives the time of this process.
        connect: creates the connection, for tests.
        credentials: a provider of credentials that change; None: as in the settings.
        embedder: computes embeddings; None: as in the settings.
        model: writes summaries; None: as in the settings.
    """

    _opening: ClassVar[str] = "async with Hub.open() as hub"

    def __init__(
        self,
        url: str | None = None,
        *,
        settings: Settings | None = None,
        clock: Clock | None = None,
        connect: Connect | None = None,
        credentials: CredentialProvider | None = None,
        embedder: Embedder | None = None,
        model: LanguageModel | None = None,
    ) -> None:
        self._url = url
        self._given = settings
        self._clock = clock or SystemClock()
        self._connect = connect or partial(default_connect, credentials=credentials)
        self._embedder = embedder
        self._model = model
        self._opened: OpenHub | None = None
        self._knowledge: KnowledgeContext | None = None
        self._metrics: MetricsServer | None = None
        self._sent_metrics: OtlpMetrics | None = None

    @classmethod
    def open(
        cls,
        url: str | None = None,
        *,
        settings: Settings | None = None,
        credentials: CredentialProvider | None = None,
        embedder: Embedder | None = None,
        model: LanguageModel | None = None,
    ) -> Self:
        """Return a hub to open: `async with Hub.open() as hub`, or `hub = await Hub.open()` with `await hub.close()`.

        Args:
            url: `redis://`, `rediss://`, `unix://`, `redis+sentinel://` or `redis+cluster://`. Without it
                `SHAREDMEM_REDIS_URL` decides, without that the hub starts or joins a private server on this machine.
            settings: all other settings; None: read `SHAREDMEM_*`, `sharedmem.yaml` and `pyproject.toml`.
            credentials: log in with tokens that expire: a `credential_provider` of redis-py, which the caller closes.
                None: with user and password of the URL or the settings, or as `redis_auth` says.
            embedder: computes embeddings; None: as in the settings.
            model: writes summaries; None: as in the settings.

        Raises (when it is opened):
            UnavailableError: the server cannot be reached, or the embedded one does not start, or the hub could not be
                opened within `connect_timeout_s`; the error names the step that it still waited for.
            ConfigError: a setting is wrong, or the server rejects the log-in.
            UnsupportedError: there is no server to start, or a newer version of sharedmem wrote this server's data.
        """
        return cls(url, settings=settings, credentials=credentials, embedder=embedder, model=model)

    def store(
        self,
        namespace: str | None = None,
        *,
        actor: str | None = None,
        subscribe: Iterable[str] = (),
        grants: Iterable[str | Grant] = (),
        near_cache: bool = False,
    ) -> SharedMemoryStore:
        """Return a namespace as one actor sees it. No round trip.

        Args:
            namespace: namespace of plain keys; None takes the setting `namespace` (`default`).
            actor: name of the actor; None: the namespace itself, which may write all of it.
            subscribe: further namespaces that it may read.
            grants: further keys that it may read and write, as absolute patterns (`chat:team-alpha*`) or `Grant`s.
            near_cache: let `read` use copies in this process, which the server invalidates. They are at most
                `near_cache_staleness_s` old; own changes are always seen.

        Raises:
            InvalidError: a name or pattern is invalid.
            UnsupportedError: `near_cache` needs a single server, without Sentinel, that tracks the keys of its clients.
        """
        opened = self._require_open()
        named = opened.context.settings.namespace if namespace is None else namespace
        identity = Identity(
            namespace=check_name("namespace", named),
            actor=None if actor is None else check_name("actor", actor),
            subscribe=tuple(check_name("subscribe", name) for name in subscribe),
            grants=check_grants(grants),
            policy=opened.context.settings.access,
            memory_rights=opened.context.settings.memory_rights,
        )
        scope = Scope(opened.context.keyspace, identity)
        near = open_near_cache(opened.context) if near_cache else None
        return SharedMemoryStore(opened.context, scope, self._knowledge_context, near=near)

    @property
    def url(self) -> str:
        """The URL of the server in use, for clients on this machine; without the password."""
        return self._require_open().connection.url

    @property
    def powers(self) -> Powers:
        """Features of the server; `powers.missing` says how to get each missing one."""
        return self._require_open().context.powers

    @property
    def settings(self) -> Settings:
        """The settings of this hub."""
        return self._require_open().context.settings

    @property
    def counters(self) -> Counters:
        """Counters of this hub: failed callbacks, lost connections, background failures."""
        return self._require_open().context.counters

    @property
    def metrics_url(self) -> str | None:
        """Where this hub serves its metrics for Prometheus; None without the setting `metrics_port`."""
        self._require_open()
        return None if self._metrics is None else self._metrics.address

    @property
    def durable(self) -> DurableAdmin:
        """The durable tier of this server: its status, waiting changes, and restore.

        Raises:
            UnsupportedError: the server has no durable tier.
        """
        tier = self._require_open().tier
        if tier is None:
            from sharedmem.durable.admin import no_tier_error  # noqa: PLC0415  # only for the error

            raise no_tier_error()
        return tier.admin

    @property
    def archive(self) -> Archives:
        """Export and import of whole namespaces, and copies between places."""
        from sharedmem.hub.archives import build_archives  # noqa: PLC0415  # few processes move whole namespaces

        return build_archives(self._require_open())

    @property
    def index(self) -> Indexes:
        """The search indexes of this server: their state, and rebuilding them.

        Raises:
            UnsupportedError: the settings name an embedder that is not installed.
        """
        require_memory("search indexes", "memory")
        from sharedmem.indexes import Indexes  # noqa: PLC0415  # only memory needs it
        from sharedmem.synthesis.note_serialization import NOTE_VECTORS  # noqa: PLC0415

        return Indexes(self._knowledge_context(), {"note": NOTE_VECTORS})

    async def health(self) -> Health:
        """Return the health of the server. Two round trips.

        Raises:
            UnavailableError: the server does not reply within the retry time.
        """
        opened = self._require_open()
        line = opened.connection.client
        started = self._clock.monotonic()
        await line.call("PING")
        latency_ms = (self._clock.monotonic() - started) * 1000
        facts = await read_server_info(line, "all")
        return Health(
            ok=True,
            latency_ms=round(latency_ms, 3),
            server=opened.context.powers.server,
            version=opened.context.powers.version,
            used_memory_bytes=int(facts.get("used_memory", 0)),
            connected_clients=int(facts.get("connected_clients", 0)),
            uptime_s=int(facts.get("uptime_in_seconds", 0)),
        )

    async def namespaces(self) -> list[str]:
        """Return the namespaces that were ever written to on this server, sorted; read in pages with SCAN.

        Raises:
            UnavailableError: the server cannot be reached.
            AccessDeniedError: this Redis user may not list keys.
        """
        opened = self._require_open()
        found: set[str] = set()
        async for page in opened.connection.client.scan(opened.context.keyspace.clocks(), near=None):
            found |= {opened.context.keyspace.logical(key).partition(":")[0] for key in page}
        if opened.tier is not None:
            found.update(await opened.tier.store.namespaces())
        return sorted(found)

    async def close(self) -> None:
        """End subscriptions and background work, close connections, leave the embedded server.

        First the background work releases claimed tasks and places in queues at the server, and the hub delivers its
        changes to the durable tier; for a few seconds each. Concurrent calls of other tasks fail with `UsageError`.
        Every step runs, even if the step before has failed.

        A closed hub may be closed again; in a forked process it only drops the objects of the parent.

        Raises:
            UsageError: called in another event loop than the hub was opened in.
        """
        if self._opened is not None and not self._opened.connection.client.is_of_another_process:
            self._opened.connection.client.check()
        opened, self._opened = self._opened, None
        metrics, self._metrics = self._metrics, None
        sent_metrics, self._sent_metrics = self._sent_metrics, None
        knowledge, self._knowledge = self._knowledge, None
        if opened is None or opened.connection.client.is_of_another_process:
            # Connections and the embedded server belong to the parent: a child must not close them.
            return
        async with AsyncExitStack() as steps:
            # The last step runs first.
            steps.push_async_callback(opened.connection.leave)
            # Waiters are woken and find the client closed.
            steps.callback(opened.context.wait_notifier.call_all)
            steps.push_async_callback(opened.connection.client.close)
            steps.push_async_callback(opened.context.blobs.close)
            if opened.tier is not None:
                # After the background work, because it delivers that work's last changes.
                steps.push_async_callback(opened.tier.close)
            if knowledge is not None:
                steps.push_async_callback(knowledge.close)
            steps.push_async_callback(opened.context.background.close)
            steps.push_async_callback(opened.context.listener.close)
            if metrics is not None:
                steps.push_async_callback(asyncio.to_thread, metrics.close)
            if sent_metrics is not None:
                steps.push_async_callback(asyncio.to_thread, sent_metrics.close)
            if knowledge is not None:
                steps.push_async_callback(knowledge.end_work)

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        if self._opened is not None:
            raise UsageError("this hub", "it is open already; open another one")
        settings = await self._load()
        connection = await self._connect(settings, self._clock)
        try:
            self._opened = await assemble(connection, settings, self._clock, embedder=self._embedder)
        except BaseException:
            await connection.client.close()
            await connection.leave()
            raise
        try:
            self._metrics = _serve_metrics(settings, self.counters)
            self._sent_metrics = _send_metrics(settings, self.counters)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _load(self) -> Settings:
        url: object = self._url
        if isinstance(url, Settings):
            raise ConfigError("redis_url", "argument", "it is a Settings, give that as: Hub.open(settings=...)")
        if self._given is None:
            return await asyncio.to_thread(Settings.load, redis_url=self._url)
        return self._given if self._url is None else self._given.replace(redis_url=self._url)

    def _knowledge_context(self) -> KnowledgeContext:
        if self._knowledge is None:
            self._knowledge = build_knowledge_context(self._require_open(), self._embedder, self._model)
        return self._knowledge

    def _require_open(self) -> OpenHub:
        if self._opened is None:
            raise UsageError("this hub", f"it is not open; use it inside of: {self._opening}")
        return self._opened

    def __repr__(self) -> str:
        return f"<Hub {self._opened.connection.url if self._opened else 'closed'}>"


def blocking_connections(hub: Hub) -> BlockingConnections | None:
    """Return connections on which threads may read beside an open hub; None if its server allows none.

    They are opened when they are needed; the caller closes them.
    """
    opened = hub._require_open()  # noqa: SLF001  # the same module
    address = opened.connection.address
    return None if address is None else BlockingConnections(address, opened.context.settings)


def _serve_metrics(settings: Settings, counters: Counters) -> MetricsServer | None:
    """Serve the metrics of a hub, if the settings ask for that.

    Raises:
        ConfigError: the address cannot be listened on.
    """
    port, host = settings.metrics_port, settings.metrics_host
    if port is None:
        return None
    from sharedmem.runtime.metrics_export import MetricsServer  # noqa: PLC0415  # few hubs serve metrics

    try:
        return MetricsServer(counters, host=host, port=port)
    except OSError as error:
        problem = f"{host}:{port} cannot be listened on: {error.strerror or error}; give each process a port of its own"
        raise ConfigError("metrics_port", settings.origin("metrics_port"), problem) from error


def _send_metrics(settings: Settings, counters: Counters) -> OtlpMetrics | None:
    """Send the metrics of a hub to a collector, if the settings ask for that."""
    if settings.otlp_endpoint is None:
        return None
    from sharedmem.runtime.metrics_export import OtlpMetrics  # noqa: PLC0415  # few hubs send metrics

    return OtlpMetrics(counters, endpoint=settings.otlp_endpoint, every_s=_OTLP_EVERY_S)


def token_storage_of(hub: Hub) -> TokenStorage:
    """Return the tokens of a hub's server. No round trip.

    Args:
        hub: an open hub, whose Redis user may access more than one namespace.

    Raises:
        UsageError: the hub is not open.
    """
    from sharedmem.redis.token_storage import TokenStorage  # noqa: PLC0415  # only services have tokens

    opened = hub._require_open()  # noqa: SLF001  the same package
    return TokenStorage(opened.context.client, opened.context.executor, opened.context.keyspace)
