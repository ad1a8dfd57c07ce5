"""Composition of a hub: connect to the server, then build the objects that its stores share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from sharedmem.blobs.blobs import BlobGarbageCollector, Blobs
from sharedmem.blobs.folder import FolderBlobStore
from sharedmem.clock import Clock, new_id
from sharedmem.config import Settings
from sharedmem.context import HubContext, ServerContext
from sharedmem.errors import AccessDeniedError, ConfigError, UnavailableError, UnsupportedError
from sharedmem.models import Powers
from sharedmem.redis.address import RedisAddress, parse_address
from sharedmem.redis.client import RedisClient
from sharedmem.redis.connect import POWER_COMMANDS, open_client, parse_powers
from sharedmem.redis.credentials import CredentialProvider
from sharedmem.redis.durability import Lifetimes, NoRecordTier
from sharedmem.redis.keys import KeySpace
from sharedmem.redis.pubsub import PubSubHub, WaitNotifier
from sharedmem.redis.replies import Load, Reply, ServerError, public_error
from sharedmem.redis.scripts.executor import DurableScriptExecutor, OperationLedger, ScriptExecutor
from sharedmem.runtime import Counters, get_logger
from sharedmem.runtime.concurrency import Background

if TYPE_CHECKING:
    from sharedmem.durable.tier import DurableTier, OpenedStore
    from sharedmem.knowledge_context import KnowledgeContext
    from sharedmem.providers.protocol import Embedder, LanguageModel
    from sharedmem.record_family import RecordFamily
    from sharedmem.redis.near_cache import NearCache
    from sharedmem.search.protocol import Index


class OpenDeadline:
    """One limit for all steps of the opening of a hub; it begins with its creation.

    Args:
        limit_s: seconds that all steps may take together.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._ends_at = asyncio.get_running_loop().time() + limit_s

    @asynccontextmanager
    async def step(self, server: str, awaited: str) -> AsyncIterator[None]:
        """Run one step.

        Args:
            server: the server of this step, for the error.
            awaited: what the step waits for, for the error.

        Raises:
            UnavailableError: the deadline passed in this step.
        """
        timeout = asyncio.timeout_at(self._ends_at)
        try:
            async with timeout:
                yield
        except TimeoutError as error:
            if not timeout.expired():
                raise
            why = (
                f"the hub could not be opened within connect_timeout_s = {self._limit_s:g} s; it still waited for"
                f" {awaited}. Check the server and the network, or raise connect_timeout_s"
            )
            raise UnavailableError(server, why) from error


LAYOUT_VERSION = 2
_logger = get_logger("memory")
_DURABLE_FILE = "durable.sqlite3"


@dataclass(frozen=True)
class Connection:
    """An open client with its URL and cleanup."""

    client: RedisClient
    url: str
    mode: str
    leave: Callable[[], Awaitable[None]]
    """Leaves the embedded server, if the connection joined one."""
    durable_url: str | None = None
    """Default URL of the durable tier."""
    address: RedisAddress | None = None
    """The server, if further connections can log in there by the address alone, and no call needs a trace."""


Connect = Callable[[Settings, Clock], Awaitable[Connection]]


@dataclass(frozen=True)
class OpenHub:
    """The parts of an open hub."""

    connection: Connection
    context: HubContext
    tier: DurableTier | None
    """The durable tier, if the hub has one."""


async def connect(settings: Settings, clock: Clock, *, credentials: CredentialProvider | None = None) -> Connection:
    """Connect to the server that the settings name, or to the embedded one.

    Args:
        settings: the server.
        clock: for deadlines.
        credentials: log in at the server; None: as the settings say.

    Raises:
        UnavailableError, UnsupportedError, ConfigError: there is no server to connect to.
    """
    if settings.redis_url is not None:
        address = parse_address(settings.redis_url, settings)
        client = open_client(address, settings, clock, credentials)
        is_plain = address.mode == "standalone" and credentials is None and settings.redis_auth == "password"
        direct = address if is_plain and not settings.trace_redis else None
        return Connection(client, address.url, address.mode, _leave_nothing, address=direct)
    if credentials is not None or settings.redis_auth != "password":
        problem = "credentials of a provider are for a server of yours; set SHAREDMEM_REDIS_URL"
        raise ConfigError("redis_url", settings.origin("redis_url"), problem)
    check_embedded_allowed(settings)
    from sharedmem.durable.sqlite_store import SqliteDurable  # noqa: PLC0415  # most hubs connect to a given server
    from sharedmem.embedded.server import EmbeddedServer  # noqa: PLC0415

    server = await EmbeddedServer.join(
        settings.data_dir,
        modules=settings.embedded_modules,
        fsync=settings.embedded_fsync,
        port=settings.embedded_port,
    )
    address = parse_address(server.url, settings)
    return Connection(
        open_client(address, settings, clock),
        server.url,
        address.mode,
        server.leave,
        durable_url=SqliteDurable(settings.data_dir / _DURABLE_FILE).url,
        address=None if settings.trace_redis else address,
    )


def check_embedded_allowed(settings: Settings) -> None:
    """Check that the settings allow a private server.

    Raises:
        ConfigError: they forbid it.
    """
    if settings.embedded == "never":
        problem = "it is not set, and embedded=never forbids a private server; set SHAREDMEM_REDIS_URL"
        raise ConfigError("redis_url", settings.origin("redis_url"), problem)


async def _leave_nothing() -> None:
    """Do nothing: there is nothing to release."""


async def assemble(
    connection: Connection, settings: Settings, clock: Clock, *, embedder: Embedder | None = None
) -> OpenHub:
    """Connect a client and build the parts of the hub on it, within `connect_timeout_s`.

        Up to four round trips after the log-in: questions to the server, scripts, the id of the durable tier, the id of
        the data. The last three are only for a server that lacks them.

    Args:
        connection: the connection with its client.
        settings: settings of the hub.
        clock: gives the time.
        embedder: computes embeddings; None: as in the settings.

    Raises:
        UnavailableError, ConfigError: the server or its durable tier cannot be used.
        UnsupportedError: a newer version of sharedmem wrote this server's data.
    """
    line = connection.client
    deadline = OpenDeadline(settings.connect_timeout_s)
    keyspace = KeySpace(settings.prefix, client=new_id())
    greeting = await _greet(connection, keyspace, deadline)
    opened = None
    if any((greeting.tier, connection.durable_url, settings.durable_url)):
        from sharedmem.durable.tier import BackedServer, open_durable_store  # noqa: PLC0415  # many servers have none

        opened = await open_durable_store(
            BackedServer(line, keyspace, greeting.tier, connection.durable_url),
            settings,
            clock,
            step=deadline.step,
            dimension=lambda: _embedding_dimension(embedder, settings, clock),
        )
    try:
        known_as = await _find_data_id(connection, keyspace, greeting, opened, deadline)
        return _build_open_hub(
            connection, keyspace, settings, clock, opened=opened, known_as=known_as, powers=greeting.powers
        )
    except BaseException:
        if opened is not None:
            await opened.store.close()
        raise


class _Greeting(NamedTuple):
    """The replies of a server to the first questions."""

    known_as: str | None
    """The id of its data; empty without an id, None without data of sharedmem."""
    tier: str | None
    """Id and URL of its durable tier."""
    powers: Powers


async def _greet(connection: Connection, keyspace: KeySpace, deadline: OpenDeadline) -> _Greeting:
    line, server = connection.client, f"Redis at {connection.client.address}"
    kind = "TLS connection" if connection.url.startswith("rediss") else "connection"
    async with deadline.step(server, f"the {kind} and the log-in"):
        await line.open()
    async with deadline.step(server, "the replies to its first commands"):
        replies, missing = await line.handshake([("GET", keyspace.layout), ("GET", keyspace.tier), *POWER_COMMANDS])
    layout, tier = (_reply_text(reply, line) for reply in replies[:2])
    known_as = None if layout is None else _parse_data_id(layout)
    if layout is not None and int(layout.partition(" ")[0]) < LAYOUT_VERSION:
        async with deadline.step(server, "the version of its data layout to be raised"):
            await _raise_layout(line, keyspace, layout)
    if missing:
        async with deadline.step(server, "its Lua scripts to be loaded"):
            await line.load_scripts(missing)
    return _Greeting(known_as, tier, parse_powers(replies[2:], connection.mode))


def _reply_text(reply: Reply, line: RedisClient) -> str | None:
    if isinstance(reply, ServerError):
        raise public_error(reply, line.address) from reply
    return reply.decode() if isinstance(reply, bytes) else None


def _build_open_hub(
    connection: Connection,
    keyspace: KeySpace,
    settings: Settings,
    clock: Clock,
    *,
    opened: OpenedStore | None,
    known_as: str,
    powers: Powers,
) -> OpenHub:
    client, counters = connection.client, Counters()
    _register_gauges(counters, client)
    ledger = OperationLedger(clock, retry_for_s=settings.retry_for_s)
    server = ServerContext(
        client=client,
        keyspace=keyspace,
        executor=ScriptExecutor(client, ledger, change_log_length=settings.change_log_length),
        background=Background(counters),
        counters=counters,
        clock=clock,
        settings=settings,
    )
    lifetimes = Lifetimes(
        settings.kind_rules, ephemeral_ttl_s=settings.ephemeral_ttl_s, session_ttl_s=settings.session_ttl_s
    )
    tier, executor = None, server.executor
    if opened is not None:
        tier = _build_tier(server, opened, lifetimes)
        executor = DurableScriptExecutor(client, ledger, tier, change_log_length=settings.change_log_length)
    blobs = _build_blobs(settings, known_as)
    listener = PubSubHub(
        client,
        server.background,
        counters,
        response_timeout_s=settings.response_timeout_s,
        retry_for_s=settings.retry_for_s,
    )
    context = server.extended(
        HubContext,
        executor=executor,
        listener=listener,
        wait_notifier=_build_wait_notifier(server, listener, on_cluster=connection.mode == "cluster"),
        blobs=blobs,
        blob_gc=_build_blob_gc(server, blobs, tier),
        lifetimes=lifetimes,
        powers=powers,
        tier=tier,
    )
    if context.powers.search:
        context.clear_hooks.append(partial(drop_object_indexes, context.client, context.keyspace))
    if tier is not None:
        tier.start()
    return OpenHub(connection, context, tier)


def open_near_cache(context: HubContext) -> NearCache:
    """Return the copies of values that the stores of a hub share.

    Raises:
        UnsupportedError: the server is a cluster, or found through Sentinel, or a fake.
    """
    from sharedmem.redis.near_cache import NearCache  # noqa: PLC0415  # most hubs have none

    def make() -> NearCache:
        near = NearCache(
            context.client,
            context.background,
            context.counters,
            context.clock,
            staleness_s=context.settings.near_cache_staleness_s,
            most_bytes=context.settings.near_cache_bytes,
        )
        context.executor.when_changed(near.drop_each)
        context.clear_hooks.append(near.drop_namespace)
        return near

    return context.shared(NearCache, "", make)


def _build_blob_gc(server: ServerContext, blobs: Blobs, tier: DurableTier | None) -> BlobGarbageCollector:
    return BlobGarbageCollector(
        server.client,
        server.keyspace,
        blobs,
        server.background,
        server.clock,
        entry_paths=partial(_entry_paths, server, tier),
        refers_elsewhere=tier.refers_to if tier else None,
    )


async def _entry_paths(server: ServerContext, tier: DurableTier | None, namespace: str) -> set[str]:
    from sharedmem.conversations.access import restore_conversations  # noqa: PLC0415  # only few hubs sweep blobs
    from sharedmem.conversations.large_entries import referenced_paths  # noqa: PLC0415  # likewise

    if tier is not None:
        await tier.join(namespace)
        await restore_conversations(tier, server.client, server.keyspace, namespace)
    return await referenced_paths(server.client, server.keyspace, namespace)


def _register_gauges(counters: Counters, client: RedisClient) -> None:
    """Show the connections of a hub, and the calls that wait for a reply, as metrics."""

    def show(kind: str, load: Callable[[], Load]) -> None:
        counters.register_gauge("connection_pool_size", lambda: load().open, kind=kind)
        counters.register_gauge("connection_pool_active", lambda: load().waiting, kind=kind)

    show("pooled", lambda: client.pool_load)
    if client.is_multiplexed:
        show("multiplexed", lambda: client.load)


def _build_tier(server: ServerContext, opened: OpenedStore, lifetimes: Lifetimes) -> DurableTier:
    from sharedmem.decisions.sessions import SessionRestorer  # noqa: PLC0415  # only a durable tier restores
    from sharedmem.durable.conversation_documents import ConversationRestorer  # noqa: PLC0415
    from sharedmem.durable.tier import DurableTier  # noqa: PLC0415
    from sharedmem.graph.record_family import GRAPH_RECORDS  # noqa: PLC0415
    from sharedmem.memory.record_family import MEMORY_RECORDS  # noqa: PLC0415
    from sharedmem.synthesis.record_family import NOTE_RECORDS  # noqa: PLC0415

    return DurableTier(
        server,
        opened,
        kind_of=lifetimes.rule,
        logs={"$plan": SessionRestorer(server.keyspace), "$conversation": ConversationRestorer(server.keyspace)},
        families=(MEMORY_RECORDS, GRAPH_RECORDS, NOTE_RECORDS),
    )


def _build_wait_notifier(server: ServerContext, listener: PubSubHub, *, on_cluster: bool) -> WaitNotifier:
    return WaitNotifier(
        listener,
        server.background,
        server.keyspace,
        server.clock,
        pauses=server.client.pauses,
        retry_for_s=server.settings.retry_for_s,
        on_cluster=on_cluster,
    )


def _embedding_dimension(embedder: Embedder | None, settings: Settings, clock: Clock) -> int:
    """Return the dimension of memory vectors; 0 without vectors."""
    if embedder is None:
        # It is slow to load, and only few stores need it.
        from sharedmem.providers.factory import open_embedder  # noqa: PLC0415

        embedder = open_embedder(settings, clock, Counters())
    return 0 if embedder is None else embedder.dimension


def _build_blobs(settings: Settings, known_as: str) -> Blobs:
    if settings.blob_url is None:
        return Blobs(FolderBlobStore(settings.blob_path() / known_as))
    if settings.blob_url.startswith("azure"):
        from sharedmem.blobs.azure import AzureBlobStore  # noqa: PLC0415  # few hubs have blobs there

        key = None if settings.blob_key is None else settings.blob_key.get_secret_value()
        return Blobs(AzureBlobStore(settings.blob_url, key=key, folder=known_as))
    from sharedmem.blobs.cloud import open_bucket  # noqa: PLC0415  # likewise

    if settings.blob_key is not None:
        problem = f"it is the key of an Azure account; leave it out: {settings.blob_url} has other credentials"
        raise ConfigError("blob_key", "settings", problem)
    return Blobs(open_bucket(settings.blob_url, folder=known_as))


def _parse_data_id(layout: str) -> str:
    """Return the id of the data from its layout record.

    Raises:
        UnsupportedError: a newer version of sharedmem wrote the data.
    """
    version, _, known_as = layout.partition(" ")
    if int(version) > LAYOUT_VERSION:
        remedy = f"this version supports layout {LAYOUT_VERSION}; upgrade sharedmem-hub"
        raise UnsupportedError(f"data layout {version} of this server", remedy)
    return known_as


async def _raise_layout(line: RedisClient, keyspace: KeySpace, layout: str) -> None:
    """Let earlier versions of sharedmem refuse data that this version is going to write. One round trip."""
    known_as = layout.partition(" ")[2]
    # A user limited by ACL may only read it; another client raises it.
    with suppress(AccessDeniedError):
        await line.call("SET", keyspace.layout, f"{LAYOUT_VERSION} {known_as}".rstrip(), "XX")


async def _find_data_id(
    connection: Connection, keyspace: KeySpace, greeting: _Greeting, opened: OpenedStore | None, deadline: OpenDeadline
) -> str:
    """Return the id of this server's data, which separates the blobs of servers that share a folder.

    With a durable tier, which may refer to blobs, the id survives the loss of the server's data.
    """
    line, known_as = connection.client, greeting.known_as or ""
    if opened is not None:
        from sharedmem.durable.tier import registered_name  # noqa: PLC0415  # only where there is a tier

        async with deadline.step(opened.store.url, "the id of its data"):
            known_as = await registered_name(opened.store, known_as or new_id())
    if greeting.known_as is not None:
        return known_as or "unnamed"
    known_as = known_as or new_id()
    async with deadline.step(f"Redis at {line.address}", "the version of its data layout to be written"):
        try:
            # Another hub may have written it by now: then its id is valid.
            held = await line.call("SET", keyspace.layout, f"{LAYOUT_VERSION} {known_as}", "NX", "GET")
        except AccessDeniedError:  # a user limited by ACL may only read it; another client writes it
            return known_as if opened is not None else "unnamed"
    return known_as if opened is not None or not isinstance(held, bytes) else _parse_data_id(held.decode()) or "unnamed"


def build_knowledge_context(hub: OpenHub, embedder: Embedder | None, model: LanguageModel | None) -> KnowledgeContext:
    """Return the context of an open hub with its indexes and providers.

    Args:
        hub: an open hub.
        embedder: computes embeddings; None: as in the settings.
        model: writes summaries; None: as in the settings.

    Raises:
        UnsupportedError: the settings name a provider that is not installed.
    """
    from sharedmem.cache import CACHE_RECORDS  # noqa: PLC0415  # see above
    from sharedmem.graph.record_family import GRAPH_RECORDS  # noqa: PLC0415
    from sharedmem.knowledge_context import KnowledgeContext  # noqa: PLC0415
    from sharedmem.memory.record_family import MEMORY_RECORDS  # noqa: PLC0415
    from sharedmem.memory.repository import MemoryRepository  # noqa: PLC0415
    from sharedmem.providers.factory import open_embedder, open_model, open_reranker, with_cache  # noqa: PLC0415
    from sharedmem.providers.protocol import low_dedup_thresholds  # noqa: PLC0415
    from sharedmem.synthesis.record_family import NOTE_RECORDS  # noqa: PLC0415

    base = hub.context
    settings, clock, counters = base.settings, base.clock, base.counters
    given = None if embedder is None else with_cache(embedder, settings, clock=clock, counters=counters)
    chosen = given or open_embedder(settings, clock, counters)
    writer = model or open_model(settings, clock, counters)
    name, dimension = (chosen.name, chosen.dimension) if chosen else ("", 0)
    for low in low_dedup_thresholds(settings, name) if chosen else ():
        extra = {"threshold": low.similarity, "recommended": low.recommended, "embedder": name}
        _logger.warning("%s", low.warning, extra=extra)
    context = base.extended(
        KnowledgeContext,
        memories=_build_index(hub, MEMORY_RECORDS.with_vectors(name, dimension)),
        answers=_build_index(hub, CACHE_RECORDS.with_vectors(name, dimension)),
        graphs=_build_index(hub, GRAPH_RECORDS.with_vectors(name, dimension)),
        notes=_build_index(hub, NOTE_RECORDS.with_vectors(name, dimension)),
        embedder=chosen,
        model=writer,
        reranker=open_reranker(settings, clock, counters, model=writer),
        record_tier=hub.tier.records if hub.tier is not None and settings.memory_durability else NoRecordTier(),
    )
    indexes = (context.memories, context.answers, context.graphs, context.notes)
    context.clear_hooks.extend(index.forget for index in indexes)
    context.sweep_hooks.append(lambda namespace, remove: MemoryRepository.of(context, namespace).sweep(remove=remove))
    return context


def _build_index(hub: OpenHub, family: RecordFamily) -> Index:
    context = hub.context
    if context.powers.search:
        from sharedmem.search.redisearch import RediSearchIndex  # noqa: PLC0415  # see above

        on_cluster = hub.connection.mode == "cluster"
        return RediSearchIndex(context, family, on_cluster=on_cluster)
    from sharedmem.search.exact_index import ExactIndex  # noqa: PLC0415

    return ExactIndex(context.client, context.keyspace, family, context.clock)


async def drop_object_indexes(client: RedisClient, keyspace: KeySpace, namespace: str) -> None:
    """Drop the indexes of a namespace's models, but none of their objects. One round trip, and one for each index.

    Raises:
        UnavailableError: the server cannot be reached.
    """
    head = keyspace.object_index(namespace).encode()
    # A Redis user that may not list the indexes made none.
    with suppress(AccessDeniedError, ServerError):
        names = await client.call_near(keyspace.space(namespace).clock, "FT._LIST")
        for name in names if isinstance(names, list) else ():
            if isinstance(name, bytes) and name.startswith(head):
                await client.call("FT.DROPINDEX", name)
