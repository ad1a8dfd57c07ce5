"""Putting the parts of a hub together: the connection first, then what stands on it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
from sharedmem.durable.opening import open_behind
from sharedmem.durable.sqlite.store import SqliteDurable
from sharedmem.durable.tier import Behind, DurableTier
from sharedmem.errors import AccessDeniedError, UnsupportedError
from sharedmem.knowledge.decision_image import SessionImager
from sharedmem.knowledge.graph.image import GraphImager
from sharedmem.knowledge.memory.image import MemoryImager
from sharedmem.models import Powers
from sharedmem.synthesis.image import NoteImager
from sharedmem.tasks import Background
from sharedmem.telemetry import Counters
from sharedmem.wire.address import read_address
from sharedmem.wire.connection import detect_powers, open_line
from sharedmem.wire.embedded import EmbeddedServer
from sharedmem.wire.kept_sender import KeptSender
from sharedmem.wire.keys import KeySpace
from sharedmem.wire.ledger import Ledger
from sharedmem.wire.line import Line
from sharedmem.wire.listen import Listener
from sharedmem.wire.mutations import Mutations
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


async def _nothing() -> None:
    """There is nothing to give back."""


async def assembled(
    connection: Connection, settings: Settings, clock: Clock, *, embedder: Embedder | None = None
) -> Parts:
    """What stands on an open line.

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
    await line.open()
    keyspace = KeySpace(settings.prefix, client=new_id())
    await _check_layout(line, keyspace)
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
    logs: dict[str, Imager] = {
        "$plan": SessionImager(keyspace),
        "$memory": memories,
        "$graph": graphs,
        "$note": notes,
    }
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
    tier = await _tier(behind, connection.durable_url, lambda: _dimension(embedder, behind))
    if tier is not None:
        sender = KeptSender(line, ledger, tier, change_log_length=settings.change_log_length)
    blobs = _blobs(settings, await _known_as(line, keyspace, tier))
    powers = await detect_powers(line, connection.mode)
    means = Means(
        line=line,
        mutations=Mutations(sender),
        listener=Listener(line, background, counters, response_timeout_s=settings.response_timeout_s),
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
    return Parts(connection, keyspace, means, ground, powers, tier)


async def _tier(behind: Behind, usual_url: str | None, dimension: Callable[[], int]) -> DurableTier | None:
    opened = await open_behind(
        behind.line, behind.keyspace, behind.settings, behind.clock, usual_url=usual_url, dimension=dimension
    )
    if opened is None:
        return None
    tier = DurableTier(opened, behind)
    await tier.start()
    return tier


def _dimension(embedder: Embedder | None, behind: Behind) -> int:
    """Numbers of the vectors of memories; 0 without any."""
    if embedder is None:
        # It takes a while to load, and only few stores ask.
        from sharedmem.providers.opening import open_embedder  # noqa: PLC0415

        embedder = open_embedder(behind.settings, behind.clock, behind.counters)
    return 0 if embedder is None else embedder.dimension


def _ground(means: Means, sender: Sender, keyspace: KeySpace, *, on_cluster: bool) -> Ground:
    wakeups = Wakeups(
        means.listener,
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
        tier=means.tier,
    )


def _blobs(settings: Settings, known_as: str) -> Blobs:
    if settings.blob_url is None:
        return Blobs(FolderStore(settings.blob_path() / known_as))
    key = None if settings.blob_key is None else settings.blob_key.get_secret_value()
    return Blobs(AzureBlobStore(settings.blob_url, key=key, folder=known_as))


async def _check_layout(line: Line, keyspace: KeySpace) -> str:
    """Refuse to touch data that a newer sharedmem has laid out; returns the id under which this data is known."""
    found = await line.call("GET", keyspace.layout)
    version, _, known_as = (found.decode() if isinstance(found, bytes) else str(LAYOUT_VERSION)).partition(" ")
    if int(version) > LAYOUT_VERSION:
        remedy = f"this version knows layout {LAYOUT_VERSION}; upgrade sharedmem-hub"
        raise UnsupportedError(f"data layout {version} of this server", remedy)
    return known_as


async def _known_as(line: Line, keyspace: KeySpace, tier: DurableTier | None) -> str:
    """The id under which this server's data is known, which keeps apart the blobs of servers that share a folder.

    It outlives the server's data where there is a tier, which may refer to blobs.
    """
    known_as = await _check_layout(line, keyspace)
    if tier is not None:
        known_as = await tier.known_as(known_as or new_id())
    with suppress(AccessDeniedError):  # a user limited by ACL may only read it; another one has written it
        await line.call("SET", keyspace.layout, f"{LAYOUT_VERSION} {known_as or new_id()}", "NX")
    return known_as or await _check_layout(line, keyspace) or "unnamed"
