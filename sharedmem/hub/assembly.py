"""Putting the parts of a hub together: the connection first, then what stands on it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from sharedmem.clock import Clock, new_id
from sharedmem.config import Settings
from sharedmem.coordination.ground import Ground
from sharedmem.coordination.waiting import Wakeups
from sharedmem.data.blob_folder import FolderStore
from sharedmem.data.blobs import Blobs
from sharedmem.data.lifetimes import Lifetimes
from sharedmem.data.structure import Means
from sharedmem.data.sweeping import Sweeper
from sharedmem.durable.azure_blobs import AzureBlobStore
from sharedmem.durable.opening import Opened, Server, open_behind
from sharedmem.durable.sqlite.store import SqliteDurable
from sharedmem.durable.tier import Behind, DurableTier, remembered_name
from sharedmem.errors import AccessDeniedError, ConfigError, UnsupportedError
from sharedmem.hub.deadline import OpenDeadline
from sharedmem.hub.large_results import LargeResults
from sharedmem.knowledge.decision_image import SessionImager
from sharedmem.knowledge.graph.image import GraphImager
from sharedmem.knowledge.memory.image import MemoryImager
from sharedmem.models import Powers
from sharedmem.synthesis.image import NoteImager
from sharedmem.tasks import Background
from sharedmem.telemetry import Counters
from sharedmem.wire.address import read_address
from sharedmem.wire.connection import POWER_QUESTIONS, open_line, powers_of
from sharedmem.wire.embedded import EmbeddedServer
from sharedmem.wire.faults import translate
from sharedmem.wire.kept_sender import KeptSender
from sharedmem.wire.keys import KeySpace
from sharedmem.wire.ledger import Ledger
from sharedmem.wire.line import Line
from sharedmem.wire.listen import Listener
from sharedmem.wire.mutations import Mutations
from sharedmem.wire.replies import Reply, ServerError
from sharedmem.wire.sender import Sender
from sharedmem.wire.tier import Imager

if TYPE_CHECKING:
    from sharedmem.providers.protocol import Embedder

LAYOUT_VERSION = 1
_DURABLE_FILE = "durable.sqlite3"


@dataclass(frozen=True)
class Connection:
    """An open line, and what belongs to it."""

    line: Line
    url: str
    mode: str
    leave: Callable[[], Awaitable[None]]
    """Gives back what was joined to get the line."""
    durable_url: str | None = None
    """Where what must last is kept when nobody says otherwise."""


Connect = Callable[[Settings, Clock], Awaitable[Connection]]


@dataclass(frozen=True)
class Parts:
    """What an open hub consists of."""

    connection: Connection
    keyspace: KeySpace
    means: Means
    ground: Ground
    powers: Powers
    tier: DurableTier | None
    """The durable tier, if one stands behind the server."""


async def connect(settings: Settings, clock: Clock) -> Connection:
    """A line to the server that the settings name, or to the embedded one.

    Raises:
        UnavailableError, UnsupportedError, ConfigError: there is no server to speak to.
    """
    if settings.redis_url is not None:
        address = read_address(settings.redis_url, settings)
        return Connection(open_line(address, settings, clock), address.url, address.mode, _nothing)
    check_embedded_allowed(settings)
    server = await EmbeddedServer.join(
        settings.data_dir,
        modules=settings.embedded_modules,
        fsync=settings.embedded_fsync,
        port=settings.embedded_port,
    )
    address = read_address(server.url, settings)
    return Connection(
        open_line(address, settings, clock),
        server.url,
        address.mode,
        server.leave,
        durable_url=SqliteDurable(settings.data_dir / _DURABLE_FILE).url,
    )


def check_embedded_allowed(settings: Settings) -> None:
    """Refuse to start a private server where the settings forbid it.

    Raises:
        ConfigError: they do.
    """
    if settings.embedded == "never":
        problem = "it is not set, and embedded=never forbids a private server; set SHAREDMEM_REDIS_URL"
        raise ConfigError("redis_url", settings.origin("redis_url"), problem)


async def _nothing() -> None:
    """There is nothing to give back."""


async def assembled(
    connection: Connection, settings: Settings, clock: Clock, *, embedder: Embedder | None = None
) -> Parts:
    """Connect a line and put on it what stands there, within `connect_timeout_s`.

    Up to four round trips after the log-in: questions, scripts, the id of the durable tier, the id of the data. The
    last three are only for a server that lacks them.

    Args:
        connection: the line.
        settings: in force.
        clock: the time to go by.
        embedder: who turns texts into vectors; None goes by the settings.

    Raises:
        UnavailableError, ConfigError: the server, or the durable tier behind it, cannot be used.
        UnsupportedError: a newer sharedmem has laid out this server's data.
    """
    line = connection.line
    deadline = OpenDeadline(settings.connect_timeout_s)
    keyspace = KeySpace(settings.prefix, client=new_id())
    greeting = await _greeting(connection, keyspace, deadline)
    opened = await open_behind(
        Server(line, keyspace, greeting.tier, connection.durable_url),
        settings,
        clock,
        step=deadline.step,
        dimension=lambda: _dimension(embedder, settings, clock),
    )
    try:
        known_as = await _known_as(connection, keyspace, greeting, opened, deadline)
        return _parts(connection, keyspace, settings, clock, opened=opened, known_as=known_as, powers=greeting.powers)
    except BaseException:
        if opened is not None:
            await opened.store.close()
        raise


class _Greeting(NamedTuple):
    """What a server said when it was first asked."""

    known_as: str | None
    """The id under which its data is known; nothing where it has none, None where it has no data of ours."""
    tier: str | None
    """Id and URL of the durable tier behind it."""
    powers: Powers


async def _greeting(connection: Connection, keyspace: KeySpace, deadline: OpenDeadline) -> _Greeting:
    line, server = connection.line, f"Redis at {connection.line.address}"
    kind = "TLS connection" if connection.url.startswith("rediss") else "connection"
    async with deadline.step(server, f"the {kind} and the log-in"):
        await line.open()
    async with deadline.step(server, "the answers to its first questions"):
        replies, missing = await line.greet([("GET", keyspace.layout), ("GET", keyspace.tier), *POWER_QUESTIONS])
    layout, tier = (_text(reply, line) for reply in replies[:2])
    known_as = None if layout is None else _known_in(layout)
    if missing:
        async with deadline.step(server, "its Lua scripts to be loaded"):
            await line.load_scripts(missing)
    return _Greeting(known_as, tier, powers_of(replies[2:], connection.mode))


def _text(reply: Reply, line: Line) -> str | None:
    if isinstance(reply, ServerError):
        raise translate(reply, line.address) from reply
    return reply.decode() if isinstance(reply, bytes) else None


def _parts(
    connection: Connection,
    keyspace: KeySpace,
    settings: Settings,
    clock: Clock,
    *,
    opened: Opened | None,
    known_as: str,
    powers: Powers,
) -> Parts:
    line = connection.line
    counters = Counters()
    background = Background(counters)
    lifetimes = Lifetimes(
        settings.kind_rules, ephemeral_ttl_s=settings.ephemeral_ttl_s, session_ttl_s=settings.session_ttl_s
    )
    ledger = Ledger(clock, retry_for_s=settings.retry_for_s)
    sender = Sender(line, ledger, change_log_length=settings.change_log_length)
    memories = MemoryImager(keyspace, embeds=settings.embedder != "none")
    graphs = GraphImager(keyspace, line, clock)
    notes = NoteImager(keyspace)
    sessions = SessionImager(keyspace)
    logs: dict[str, Imager] = {"$plan": sessions, "$memory": memories, "$graph": graphs, "$note": notes}
    behind = Behind(
        line,
        keyspace,
        sender,
        background,
        counters,
        clock,
        settings,
        lifetimes.rule,
        logs=logs,
        readers=(memories, graphs, notes),
    )
    tier = None if opened is None else DurableTier(opened, behind)
    if tier is not None:
        sender = KeptSender(line, ledger, tier, change_log_length=settings.change_log_length)
    blobs = _blobs(settings, known_as)
    means = Means(
        line=line,
        mutations=Mutations(sender),
        listener=_listener(line, background, counters, settings),
        blobs=blobs,
        sweeper=Sweeper(line, keyspace, blobs, background, clock, refers_elsewhere=tier.refers_to if tier else None),
        lifetimes=lifetimes,
        background=background,
        counters=counters,
        settings=settings,
        clock=clock,
        tier=tier,
        searches=powers.search,
    )
    ground = _ground(means, sender, keyspace, on_cluster=connection.mode == "cluster")
    if tier is not None:
        tier.start()
    return Parts(connection, keyspace, means, ground, powers, tier)


def _listener(line: Line, background: Background, counters: Counters, settings: Settings) -> Listener:
    waits = {"response_timeout_s": settings.response_timeout_s, "retry_for_s": settings.retry_for_s}
    return Listener(line, background, counters, **waits)


def _dimension(embedder: Embedder | None, settings: Settings, clock: Clock) -> int:
    """Numbers of the vectors of memories; 0 without any."""
    if embedder is None:
        # It takes a while to load, and only few stores ask.
        from sharedmem.providers.opening import open_embedder  # noqa: PLC0415

        embedder = open_embedder(settings, clock, Counters())
    return 0 if embedder is None else embedder.dimension


def _ground(means: Means, sender: Sender, keyspace: KeySpace, *, on_cluster: bool) -> Ground:
    wakeups = Wakeups(
        means.listener,
        means.background,
        keyspace,
        means.clock,
        pauses=means.line.pauses,
        retry_for_s=means.settings.retry_for_s,
        on_cluster=on_cluster,
    )
    return Ground(
        line=means.line,
        sender=sender,
        wakeups=wakeups,
        background=means.background,
        counters=means.counters,
        clock=means.clock,
        settings=means.settings,
        large=LargeResults(means.blobs, means.sweeper),
        tier=means.tier,
    )


def _blobs(settings: Settings, known_as: str) -> Blobs:
    if settings.blob_url is None:
        return Blobs(FolderStore(settings.blob_path() / known_as))
    key = None if settings.blob_key is None else settings.blob_key.get_secret_value()
    return Blobs(AzureBlobStore(settings.blob_url, key=key, folder=known_as))


def _known_in(layout: str) -> str:
    """The id under which data is known whose layout is written like that.

    Raises:
        UnsupportedError: a newer sharedmem has laid it out.
    """
    version, _, known_as = layout.partition(" ")
    if int(version) > LAYOUT_VERSION:
        remedy = f"this version knows layout {LAYOUT_VERSION}; upgrade sharedmem-hub"
        raise UnsupportedError(f"data layout {version} of this server", remedy)
    return known_as


async def _known_as(
    connection: Connection, keyspace: KeySpace, greeting: _Greeting, opened: Opened | None, deadline: OpenDeadline
) -> str:
    """The id under which this server's data is known, which keeps apart the blobs of servers that share a folder.

    It outlives the server's data where there is a tier, which may refer to blobs.
    """
    line, known_as = connection.line, greeting.known_as or ""
    if opened is not None:
        async with deadline.step(opened.store.url, "the id of its data"):
            known_as = await remembered_name(opened.store, known_as or new_id())
    if greeting.known_as is not None:
        return known_as or "unnamed"
    known_as = known_as or new_id()
    async with deadline.step(f"Redis at {line.address}", "the version of its data layout to be written"):
        try:
            # Another hub may have written it by now: then its id holds.
            held = await line.call("SET", keyspace.layout, f"{LAYOUT_VERSION} {known_as}", "NX", "GET")
        except AccessDeniedError:  # a user limited by ACL may only read it; another one writes it
            return known_as if opened is not None else "unnamed"
    return known_as if opened is not None or not isinstance(held, bytes) else _known_in(held.decode()) or "unnamed"
