"""Open the durable store of a server, from the settings or the record at the server.

The server holds the id of its store, so that no hub works without the store or with another one by mistake.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from sharedmem.clock import Clock
from sharedmem.config import NO_TIER, Settings
from sharedmem.durable.protocol import Durable
from sharedmem.errors import AccessDeniedError, ConfigError, NotFoundError
from sharedmem.redis.client import RedisClient
from sharedmem.redis.keys import KeySpace

_COSMOS = "cosmos"


class OpenedStore(NamedTuple):
    """An open store."""

    store: Durable
    id: str


def durable_store_at(url: str, settings: Settings, clock: Clock, *, dimension: int | None = None) -> Durable:
    """Return the store at a URL, not opened yet.

    Args:
        url: as in `durable_url`.
        settings: keys, names and layout of the store.
        clock: for the store.
        dimension: length of the vectors of memories; None: as in the settings; 0: no vectors.

    Raises:
        ConfigError: the scheme is unknown, or the path of a file is not absolute.
    """
    scheme = url.partition("://")[0]
    if scheme == "sqlite":
        from sharedmem.durable.sqlite.store import SqliteDurable  # noqa: PLC0415  # only one kind of store is needed

        return SqliteDurable.at(url, clock=clock)
    if scheme.startswith(_COSMOS):
        from sharedmem.durable.cosmos.layout import graphs_layout, memories_layout  # noqa: PLC0415  # likewise
        from sharedmem.durable.cosmos.store import CosmosDurable  # noqa: PLC0415

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
    raise ConfigError("durable_url", settings.origin("durable_url"), f"{url!r} is not a durable store")


class BackedServer(NamedTuple):
    """A Redis server that may have a durable store."""

    client: RedisClient
    keyspace: KeySpace
    known: str | None
    """Id and URL of the store from the server; None without a store."""
    usual_url: str | None
    """The store's URL if neither the settings nor the server name one; None: no store."""


class StepTimeout(Protocol):
    """A function that limits the time of one step of opening."""

    def __call__(self, server: str, awaited: str) -> AbstractAsyncContextManager[None]:
        """Raise `UnavailableError` if a server does not complete the step in time."""


async def open_durable_store(
    server: BackedServer,
    settings: Settings,
    clock: Clock,
    *,
    step: StepTimeout,
    dimension: Callable[[], int | None] = lambda: None,
) -> OpenedStore | None:
    """Open the store of a server; return None if neither the server nor the settings name one.

    One round trip to the server if it has no store yet, else none. Only the store's own timeouts limit the creation of
    a database.

    Args:
        server: may hold the id of its store.
        settings: may name a store, or forbid one.
        clock: for the store.
        step: limits the time of the other steps.
        dimension: returns the length of the vectors of memories, for stores that need it.

    Raises:
        ConfigError: this server has another store, or the settings forbid the store that it has.
        UnavailableError, UnsupportedError: the store cannot be opened.
    """
    known = None if server.known is None else _RememberedStore.read(server.known)
    url = _chosen_url(settings, known) or server.usual_url
    if url is None or settings.durable_url == NO_TIER:
        return None
    is_cosmos = url.startswith(_COSMOS)
    store = durable_store_at(url, settings, clock, dimension=dimension() if is_cosmos else None)
    try:
        opened = OpenedStore(
            store, await _open_store(store, step, make=known is None or settings.durable_url is not None)
        )
        async with step(f"Redis at {server.client.address}", "the id of the durable tier to be written"):
            await _register_store(server, settings, opened)
    except BaseException:
        await store.close()
        raise
    return opened


async def _open_store(store: Durable, step: StepTimeout, *, make: bool) -> str:
    """Open a store, and create its database if `make`; return its id."""
    try:
        async with step(store.url, "the durable tier to open"):
            return await store.open(create=False)
    except NotFoundError:
        if not make:
            raise
    return await store.open(create=True)


class _RememberedStore(NamedTuple):
    """The record of a store at its server."""

    id: str
    url: str

    @classmethod
    def read(cls, text: str) -> _RememberedStore:
        id_, _, url = text.partition(" ")
        return cls(id_, url)


def _chosen_url(settings: Settings, known: _RememberedStore | None) -> str | None:
    if settings.durable_url == NO_TIER and known is not None:
        advice = f"this server has its durable tier at {known.url}; leave durable_url out, or use that URL"
        raise ConfigError("durable_url", settings.origin("durable_url"), advice)
    return settings.durable_url or (known and known.url)


async def _register_store(server: BackedServer, settings: Settings, opened: OpenedStore) -> None:
    """Write the store's id to the server, unless the server has another one."""
    key, held = server.keyspace.tier, server.known
    if held is None:
        try:
            reply = await server.client.call("SET", key, f"{opened.id} {opened.store.url}", "NX", "GET")
        except AccessDeniedError:
            return  # an ACL forbids it; another user has written it
        held = reply.decode() if isinstance(reply, bytes) else None
    known = None if held is None else _RememberedStore.read(held)
    if known is not None and known.id != opened.id:
        advice = (
            f"this server has its durable tier at {known.url}, not at {opened.store.url}; copy its data there first"
            f" (`sharedmem copy`), then delete the key {key.decode()!r}"
        )
        raise ConfigError("durable_url", settings.origin("durable_url"), advice)
