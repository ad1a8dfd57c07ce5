"""The hub: a connection to one server, and the stores that share it."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from sharedmem.clock import Clock, SystemClock
from sharedmem.config import Settings
from sharedmem.errors import UnsupportedError, UsageError
from sharedmem.hub.composition import Connect, OpenHub, assemble, build_knowledge_context
from sharedmem.hub.composition import connect as default_connect
from sharedmem.models import Health, Powers
from sharedmem.redis.connect import read_server_info
from sharedmem.redis.keys import check_name
from sharedmem.redis.scope import Grant, Identity, Scope, check_grants
from sharedmem.runtime import Counters
from sharedmem.runtime.process_bound import ProcessBound
from sharedmem.store import SharedMemoryStore, require_memory

if TYPE_CHECKING:
    from sharedmem.archive.archives import Archives
    from sharedmem.durable.admin import DurableAdmin
    from sharedmem.indexes import Indexes
    from sharedmem.knowledge_context import KnowledgeContext
    from sharedmem.providers.protocol import Embedder, LanguageModel
    from sharedmem.redis.token_storage import TokenStorage


class Hub(ProcessBound):
    """A connection to shared memory: `async with Hub.open() as hub: ...`.

    Args:
        url: the Redis server; None goes by `settings`, then starts or joins the embedded server.
        settings: None reads arguments, environment and files.
        clock: the time this process goes by.
        connect: how to get a line, for tests.
        embedder: who turns texts into vectors; None goes by the settings.
        model: who writes summaries; None goes by the settings.
    """

    _opening: ClassVar[str] = "async with Hub.open() as hub"

    def __init__(
        self,
        url: str | None = None,
        *,
        settings: Settings | None = None,
        clock: Clock | None = None,
        connect: Connect | None = None,
        embedder: Embedder | None = None,
        model: LanguageModel | None = None,
    ) -> None:
        self._url = url
        self._given = settings
        self._clock = clock or SystemClock()
        self._connect = connect or default_connect
        self._embedder = embedder
        self._model = model
        self._opened: OpenHub | None = None
        self._knowledge: KnowledgeContext | None = None

    @classmethod
    def open(
        cls,
        url: str | None = None,
        *,
        settings: Settings | None = None,
        embedder: Embedder | None = None,
        model: LanguageModel | None = None,
    ) -> Self:
        """Return a hub to open: `async with Hub.open() as hub`, or `hub = await Hub.open()` with `await hub.close()`.

        Args:
            url: `redis://`, `rediss://`, `unix://`, `redis+sentinel://` or `redis+cluster://`. Without it
                `SHAREDMEM_REDIS_URL` decides, and without that a private server of this machine is started or joined.
            settings: everything else; None reads `SHAREDMEM_*`, `sharedmem.yaml` and `pyproject.toml`.
            embedder: who turns texts into vectors; None goes by the settings.
            model: who writes summaries; None goes by the settings.

        Raises (when it is opened):
            UnavailableError: the server cannot be reached, or the embedded one does not start, or the hub could not be
                opened within `connect_timeout_s`; the error names what it still waited for.
            ConfigError: a setting is wrong, or the server refuses the log-in.
            UnsupportedError: there is no server to start, or a newer sharedmem has laid out this one's data.
        """
        return cls(url, settings=settings, embedder=embedder, model=model)

    def store(
        self,
        namespace: str,
        *,
        actor: str | None = None,
        subscribe: Iterable[str] = (),
        grants: Iterable[str | Grant] = (),
    ) -> SharedMemoryStore:
        """A namespace as one actor sees it. No round trip.

        Args:
            namespace: whose plain keys it reads and writes.
            actor: who acts; None speaks for the namespace itself and may write all of it.
            subscribe: further namespaces it may read.
            grants: further keys it may read and write, as absolute patterns (`chat:team-alpha*`) or `Grant`s.

        Raises:
            InvalidError: a name or pattern is none.
        """
        opened = self._require_open()
        identity = Identity(
            namespace=check_name("namespace", namespace),
            actor=None if actor is None else check_name("actor", actor),
            subscribe=tuple(check_name("subscribe", name) for name in subscribe),
            grants=check_grants(grants),
            policy=opened.context.settings.access,
            memory_rights=opened.context.settings.memory_rights,
        )
        return SharedMemoryStore(opened.context, Scope(opened.context.keyspace, identity), self._knowledge_context)

    @property
    def url(self) -> str:
        """The server in use, as a client on this machine can open it; a password is left out."""
        return self._require_open().connection.url

    @property
    def powers(self) -> Powers:
        """What the server can do; `powers.missing` says what each absent power takes."""
        return self._require_open().context.powers

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._require_open().context.settings

    @property
    def counters(self) -> Counters:
        """What this hub has counted: failed callbacks, lost connections, background failures."""
        return self._require_open().context.counters

    @property
    def durable(self) -> DurableAdmin:
        """The durable tier behind this server: how it is, what waits for it, and how to bring things back.

        Raises:
            UnsupportedError: none stands behind it.
        """
        tier = self._require_open().tier
        if tier is None:
            remedy = "set durable_url, for example to sqlite:///path/file.db, in every hub of this server"
            raise UnsupportedError("a durable tier", remedy)
        return tier.admin

    @property
    def archive(self) -> Archives:
        """Whole namespaces as files and back, and from one place to another."""
        from sharedmem.hub.archives import build_archives  # noqa: PLC0415  # few processes move whole namespaces

        return build_archives(self._require_open())

    @property
    def index(self) -> Indexes:
        """The search indexes of this server: how they are, and building them anew.

        Raises:
            UnsupportedError: the settings name an embedder that is not installed.
        """
        require_memory("search indexes", "memory")
        from sharedmem.indexes import Indexes  # noqa: PLC0415  # loads what only memory needs
        from sharedmem.synthesis.note_repository.index import NOTE_VECTORS  # noqa: PLC0415

        return Indexes(self._knowledge_context(), {"note": NOTE_VECTORS})

    async def health(self) -> Health:
        """Ask the server how it is. Two round trips.

        Raises:
            UnavailableError: it does not answer within the retry time.
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
        """The namespaces that were ever written to on this server, in order; pages of the server's scan.

        Raises:
            UnavailableError: the server stayed away.
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

        What background work has to give back at the server (claimed tasks, places in line) is given back first, and
        the changes of this hub are carried to the durable tier; for a few seconds each. A call that other tasks have
        under way meanwhile fails with `UsageError`. Every step is taken, whatever became of the one before.

        A closed hub may be closed again; in a forked process it only forgets what belongs to the parent.

        Raises:
            UsageError: called in another event loop than the hub was opened in.
        """
        if self._opened is not None and not self._opened.connection.client.is_of_another_process:
            self._opened.connection.client.check()
        opened, self._opened = self._opened, None
        knowledge, self._knowledge = self._knowledge, None
        if opened is None or opened.connection.client.is_of_another_process:
            # Connections and the embedded server are the parent's: a child that gave them back would take them away.
            return
        async with AsyncExitStack() as steps:
            # The last one is taken first.
            steps.push_async_callback(opened.connection.leave)
            # Whoever waits for a turn finds the line closed.
            steps.callback(opened.context.wait_notifier.call_all)
            steps.push_async_callback(opened.connection.client.close)
            steps.push_async_callback(opened.context.blobs.close)
            if opened.tier is not None:
                # After the background work, whose last changes it carries.
                steps.push_async_callback(opened.tier.close)
            if knowledge is not None:
                steps.push_async_callback(knowledge.close)
            steps.push_async_callback(opened.context.background.close)
            steps.push_async_callback(opened.context.listener.close)
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
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _load(self) -> Settings:
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


def token_storage_of(hub: Hub) -> TokenStorage:
    """The tokens of a hub's server. No round trip.

    Args:
        hub: an open one, whose Redis user may reach more than one namespace.

    Raises:
        UsageError: the hub is not open.
    """
    from sharedmem.redis.token_storage import TokenStorage  # noqa: PLC0415  # only services have tokens

    opened = hub._require_open()  # noqa: SLF001  the same package
    return TokenStorage(opened.context.client, opened.context.executor, opened.context.keyspace)
