"""The hub: a connection, and the only place where parts are put together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from sharedmem.clock import Clock, SystemClock, new_id
from sharedmem.config import Settings
from sharedmem.coordination.ground import Ground
from sharedmem.coordination.waiting import Wakeups
from sharedmem.data.blob_folder import FolderStore
from sharedmem.data.blobs import Blobs
from sharedmem.data.lifetimes import Lifetimes
from sharedmem.data.structure import Means
from sharedmem.data.sweeping import Sweeper
from sharedmem.durable.azure_blobs import AzureBlobStore
from sharedmem.errors import AccessDeniedError, UnavailableError, UnsupportedError
from sharedmem.models import Health, Powers
from sharedmem.store import SharedMemoryStore
from sharedmem.tasks import Background
from sharedmem.telemetry import Counters
from sharedmem.wire.access import Grant, Identity, Scope, check_grants
from sharedmem.wire.address import read_address
from sharedmem.wire.connection import detect_powers, open_line, server_facts
from sharedmem.wire.embedded import EmbeddedServer
from sharedmem.wire.keys import KeySpace, check_name
from sharedmem.wire.ledger import Ledger
from sharedmem.wire.line import Line
from sharedmem.wire.listen import Listener
from sharedmem.wire.mutations import Mutations
from sharedmem.wire.sender import Sender

LAYOUT_VERSION = 1


@dataclass(frozen=True)
class Connection:
    """An open line, and what belongs to it."""

    line: Line
    url: str
    mode: str
    leave: Callable[[], Awaitable[None]]
    """Gives back what was joined to get the line."""


Connect = Callable[[Settings, Clock], Awaitable[Connection]]


class Hub:
    """A connection to shared memory: `async with Hub.open() as hub: ...`.

    Args:
        url: the Redis server; None goes by `settings`, then starts or joins the embedded server.
        settings: None reads arguments, environment and files.
        clock: the time this process goes by.
        connect: how to get a line, for tests.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        settings: Settings | None = None,
        clock: Clock | None = None,
        connect: Connect | None = None,
    ) -> None:
        self._url = url
        self._given = settings
        self._clock = clock or SystemClock()
        self._connect = connect or _connect
        self._parts: _Parts | None = None

    @classmethod
    def open(cls, url: str | None = None, *, settings: Settings | None = None) -> Self:
        """A hub to be entered with `async with`.

        Args:
            url: `redis://`, `rediss://`, `unix://`, `redis+sentinel://` or `redis+cluster://`. Without it
                `SHAREDMEM_REDIS_URL` decides, and without that a private server of this machine is started or joined.
            settings: everything else; None reads `SHAREDMEM_*`, `sharedmem.yaml` and `pyproject.toml`.

        Raises (when entered):
            UnavailableError: the server cannot be reached, or the embedded one does not start.
            ConfigError: a setting is wrong, or the server refuses the log-in.
            UnsupportedError: there is no server to start, or a newer sharedmem has laid out this one's data.
        """
        return cls(url, settings=settings)

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
        parts = self._open_parts()
        identity = Identity(
            namespace=check_name("namespace", namespace),
            actor=None if actor is None else check_name("actor", actor),
            subscribe=tuple(check_name("subscribe", name) for name in subscribe),
            grants=check_grants(grants),
            policy=parts.means.settings.access,
        )
        return SharedMemoryStore(parts.means, parts.ground, Scope(parts.keyspace, identity))

    @property
    def url(self) -> str:
        """The server in use, as a client on this machine can open it; a password is left out."""
        return self._open_parts().connection.url

    @property
    def powers(self) -> Powers:
        """What the server can do; `powers.missing` says what each absent power takes."""
        return self._open_parts().powers

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._open_parts().means.settings

    @property
    def counters(self) -> Counters:
        """What this hub has counted: failed callbacks, lost connections, background failures."""
        return self._open_parts().means.counters

    async def health(self) -> Health:
        """Ask the server how it is. Two round trips.

        Raises:
            UnavailableError: it does not answer within the retry time.
        """
        parts = self._open_parts()
        line = parts.connection.line
        started = self._clock.monotonic()
        await line.call("PING")
        latency_ms = (self._clock.monotonic() - started) * 1000
        facts = await server_facts(line, "all")
        return Health(
            ok=True,
            latency_ms=round(latency_ms, 3),
            server=parts.powers.server,
            version=parts.powers.version,
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
        parts = self._open_parts()
        found: set[str] = set()
        async for page in parts.connection.line.scan(parts.keyspace.clocks(), near=None):
            found |= {parts.keyspace.logical(key).partition(":")[0] for key in page}
        return sorted(found)

    async def close(self) -> None:
        """End subscriptions and background work, close connections, leave the embedded server."""
        parts, self._parts = self._parts, None
        if parts is None:
            return
        await parts.means.listener.close()
        await parts.means.background.close()
        await parts.means.blobs.close()
        await parts.connection.line.close()
        # Whoever waits for a turn finds the line closed.
        parts.ground.wakeups.call_all()
        await parts.connection.leave()

    async def __aenter__(self) -> Self:
        if self._parts is not None:
            raise UnavailableError("this hub", "it is open already; open another one")
        settings = await self._load()
        connection = await self._connect(settings, self._clock)
        try:
            self._parts = await _assembled(connection, settings, self._clock)
        except BaseException:
            await connection.line.close()
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

    def _open_parts(self) -> _Parts:
        if self._parts is None:
            raise UnavailableError("this hub", "it is not open; use it inside of: async with Hub.open() as hub")
        return self._parts

    def __repr__(self) -> str:
        return f"<Hub {self._parts.connection.url if self._parts else 'closed'}>"


@dataclass(frozen=True)
class _Parts:
    """What an open hub consists of."""

    connection: Connection
    keyspace: KeySpace
    means: Means
    ground: Ground
    powers: Powers


async def _connect(settings: Settings, clock: Clock) -> Connection:
    if settings.redis_url is not None:
        address = read_address(settings.redis_url, settings)
        return Connection(open_line(address, settings, clock), address.url, address.mode, _nothing)
    server = await EmbeddedServer.join(
        settings.data_dir,
        modules=settings.embedded_modules,
        fsync=settings.embedded_fsync,
        port=settings.embedded_port,
    )
    address = read_address(server.url, settings)
    return Connection(open_line(address, settings, clock), server.url, address.mode, server.leave)


async def _nothing() -> None:
    """There is nothing to give back."""


async def _assembled(connection: Connection, settings: Settings, clock: Clock) -> _Parts:
    line = connection.line
    await line.open()
    keyspace = KeySpace(settings.prefix, client=new_id())
    known_as = await _agree_on_layout(line, keyspace)
    counters = Counters()
    background = Background(counters)
    ledger = Ledger(clock, retry_for_s=settings.retry_for_s)
    sender = Sender(line, ledger, change_log_length=settings.change_log_length)
    blobs = _blobs(settings, known_as)
    means = Means(
        line=line,
        mutations=Mutations(sender),
        listener=Listener(line, background, counters, response_timeout_s=settings.response_timeout_s),
        blobs=blobs,
        sweeper=Sweeper(line, keyspace, blobs, background, clock),
        lifetimes=Lifetimes(
            settings.kind_rules, ephemeral_ttl_s=settings.ephemeral_ttl_s, session_ttl_s=settings.session_ttl_s
        ),
        background=background,
        counters=counters,
        settings=settings,
        clock=clock,
    )
    ground = Ground(
        line=line,
        sender=sender,
        wakeups=Wakeups(
            means.listener,
            keyspace,
            clock,
            pauses=line.pauses,
            retry_for_s=settings.retry_for_s,
            on_cluster=connection.mode == "cluster",
        ),
        background=background,
        counters=counters,
        clock=clock,
        settings=settings,
    )
    return _Parts(connection, keyspace, means, ground, await detect_powers(line, connection.mode))


def _blobs(settings: Settings, known_as: str) -> Blobs:
    if settings.blob_url is None:
        return Blobs(FolderStore(settings.blob_path() / known_as))
    key = None if settings.blob_key is None else settings.blob_key.get_secret_value()
    return Blobs(AzureBlobStore(settings.blob_url, key=key, folder=known_as))


async def _agree_on_layout(line: Line, keyspace: KeySpace) -> str:
    """Refuse to touch data that a newer sharedmem has laid out; returns the id under which this data is known.

    The id keeps apart the blobs of servers that share a blob folder.
    """
    with suppress(AccessDeniedError):  # a user limited by ACL may only read it; another one has written it
        await line.call("SET", keyspace.layout, f"{LAYOUT_VERSION} {new_id()}", "NX")
    found = await line.call("GET", keyspace.layout)
    version, _, known_as = (found.decode() if isinstance(found, bytes) else str(LAYOUT_VERSION)).partition(" ")
    if int(version) > LAYOUT_VERSION:
        remedy = f"this version knows layout {LAYOUT_VERSION}; upgrade sharedmem-hub"
        raise UnsupportedError(f"data layout {version} of this server", remedy)
    return known_as or "unnamed"
