"""Which durable store stands behind a server: what the settings say, and what the server itself remembers.

The server holds the id of the store, so that nobody writes past it or connects it to another one by mistake.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sharedmem.clock import Clock
from sharedmem.config import NO_TIER, Settings
from sharedmem.durable.cosmos.layout import graphs_layout, memories_layout
from sharedmem.durable.cosmos.store import CosmosDurable
from sharedmem.durable.protocol import Durable
from sharedmem.durable.sqlite.store import SqliteDurable
from sharedmem.errors import AccessDeniedError, ConfigError
from sharedmem.wire.keys import KeySpace
from sharedmem.wire.line import Line

_COSMOS = "cosmos"


class Opened(NamedTuple):
    """A store that is open."""

    store: Durable
    id: str


def durable_at(url: str, settings: Settings, clock: Clock, *, dimension: int | None = None) -> Durable:
    """The store that a URL names; it is not opened yet.

    Args:
        url: as `durable_url` takes it.
        settings: what else there is to know.
        clock: given to the store.
        dimension: numbers of the vectors of memories; None: as the settings say, 0: none.

    Raises:
        ConfigError: there is no such kind of store, or a file without its whole path.
    """
    scheme = url.partition("://")[0]
    if scheme == "sqlite":
        return SqliteDurable.at(url, clock=clock)
    if scheme.startswith(_COSMOS):
        numbers = (settings.embedding_dimension or 0) if dimension is None else dimension
        many, by_tenant = settings.cosmos_many_memories, settings.cosmos_index_by_tenant
        return CosmosDurable(
            url,
            key=settings.cosmos_key,
            database=settings.cosmos_database,
            container=settings.cosmos_container,
            clock=clock,
            memories=memories_layout(numbers, many=many, shard_by_tenant=by_tenant),
            memories_container=settings.cosmos_memories,
            graphs=graphs_layout(numbers, name=settings.cosmos_graphs, many=many, shard_by_tenant=by_tenant),
        )
    raise ConfigError("durable_url", settings.origin("durable_url"), f"{url!r} is no durable store")


async def open_behind(
    line: Line,
    keyspace: KeySpace,
    settings: Settings,
    clock: Clock,
    *,
    usual_url: str | None,
    dimension: Callable[[], int | None] = lambda: None,
) -> Opened | None:
    """Open the store behind a server; None when there is none, and none is wanted.

    Args:
        line: the way to the server.
        keyspace: how keys are spelled.
        settings: may name the store, or refuse one.
        clock: given to the store.
        usual_url: where it is when neither the settings nor the server say so; None for none.
        dimension: asked for the numbers of the vectors of memories where the store has to know them.

    Raises:
        ConfigError: another one stands behind this server, or none is to be used although one does.
        UnavailableError, UnsupportedError: it cannot be opened.
    """
    known = await _known(line, keyspace)
    url = _wanted(settings, known) or usual_url
    if url is None or settings.durable_url == NO_TIER:
        return None
    is_cosmos = url.startswith(_COSMOS)
    store = durable_at(url, settings, clock, dimension=dimension() if is_cosmos else None)
    try:
        opened = Opened(store, await store.open(create=known is None or settings.durable_url is not None))
        await _agree(line, keyspace, settings, opened)
    except BaseException:
        await store.close()
        raise
    return opened


def _wanted(settings: Settings, known: tuple[str, str] | None) -> str | None:
    if settings.durable_url == NO_TIER and known is not None:
        advice = f"what must last on this server is kept at {known[1]}; leave durable_url out, or name that"
        raise ConfigError("durable_url", settings.origin("durable_url"), advice)
    return settings.durable_url or (known and known[1])


async def _known(line: Line, keyspace: KeySpace) -> tuple[str, str] | None:
    """(id, URL) of the store that stands behind the server."""
    found = await line.call("GET", keyspace.tier)
    if not isinstance(found, bytes):
        return None
    known_id, _, url = found.decode().partition(" ")
    return known_id, url


async def _agree(line: Line, keyspace: KeySpace, settings: Settings, opened: Opened) -> None:
    try:
        await line.call("SET", keyspace.tier, f"{opened.id} {opened.store.url}", "NX")
    except AccessDeniedError:
        return  # a user limited by ACL may not; another one has
    known = await _known(line, keyspace)
    if known is not None and known[0] != opened.id:
        advice = (
            f"what must last on this server is kept at {known[1]}, not at {opened.store.url}; copy it there first"
            f" (`sharedmem copy`), then delete the key {keyspace.tier.decode()!r}"
        )
        raise ConfigError("durable_url", settings.origin("durable_url"), advice)
