"""The durable tier of a Redis server: the object through which the rest of the package uses it, and opening its store.

The store is in the settings or the record at the server. The server holds the id of its store, so that no hub works
without the store or with another one by mistake.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Container, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

import orjson

from sharedmem.clock import Clock
from sharedmem.config import NO_TIER, Kind, Settings
from sharedmem.context import ServerContext
from sharedmem.durable.key_loader import KeyLoader, LoadTimes, LogRestorer
from sharedmem.durable.loss_detection import DataLossGuard
from sharedmem.durable.outbox_documents import parse_records
from sharedmem.durable.outbox_relay import OutboxRelay, RelayLimits
from sharedmem.durable.protocol import Durable, DurableContext, has_expired, living_documents
from sharedmem.durable.record_recovery import RECOVERED_MARK, NamespaceRecovery, RecordKeyRestorer, RecordRecovery
from sharedmem.errors import AccessDeniedError, ConfigError, NotFoundError
from sharedmem.models import DurableRecord
from sharedmem.record_family import RecordFamily
from sharedmem.redis.change_stream import as_list, text_of
from sharedmem.redis.client import RedisClient
from sharedmem.redis.durability import LOG_MODE, RULE_MODES, DurabilityModes, KeyRestorer
from sharedmem.redis.keys import KeySpace, Target, is_lasting_record
from sharedmem.redis.replies import Reply
from sharedmem.redis.scripts.durable import DurableScripts, RecordRestoreScripts

if TYPE_CHECKING:
    from sharedmem.durable.admin import DurableAdmin

_PAGE = 500
_ABSENT_STATES, _PENDING = (b"deleted", b"missing"), b"pending"
_LOG_KIND = "log"
_BLOB = "blob"
# No namespace of users begins with a dollar.
_NAME_KEY = "$hub:known-as"
_NEVER = float("-inf")


class DurableTier:
    """The durable tier of one hub (`redis.durability.Tier`).

    Args:
        server: the server in front of the tier.
        opened: the store with the documents.
        kind_of: returns the kind of an absolute key by the rules.
        logs: restores logs, by the scope of their keys, such as `$plan` for sessions of decisions.
        families: families of records, which are restored together.
    """

    def __init__(
        self,
        server: ServerContext,
        opened: OpenedStore,
        *,
        kind_of: Callable[[str], Kind | None],
        logs: Mapping[str, KeyRestorer],
        families: Collection[RecordFamily],
    ) -> None:
        self.store, self._id = opened
        self._client, self._keyspace, self._clock = server.client, server.keyspace, server.clock
        self._limit = server.settings.durable_queue_length
        self._through = _write_through_letters(server.settings)
        records = {f"${family.name}": RecordKeyRestorer(server.keyspace, family) for family in families}
        restorers = {LOG_MODE: LogRestorer({**logs, **records})}
        context = server.extended(DurableContext, scripts=DurableScripts(server.executor), durable=self.store)
        self._context, self._kind_of, self._restorers = context, kind_of, restorers
        cache_ms = server.settings.knowledge_cache_s * 1000
        self.relay = OutboxRelay(
            context,
            cache_ms=cache_ms,
            # Before changes are rejected, callers wait for the relay.
            limits=RelayLimits(hurry=self._limit // 10),
            readmit=self._readmit,
        )
        self._loss_guard = DataLossGuard(context, kind_of=kind_of, restorers=restorers, nudge=self.relay.note)
        self.loader = KeyLoader(
            context, restorers=restorers, drain=self.relay.drain, join=self.join, times=LoadTimes(cache_ms=cache_ms)
        )
        self.records = RecordRecovery(
            context, RecordRestoreScripts(server.executor), families, drain=self.relay.drain, join=self.join
        )
        """The tier of memories, graphs and notes."""

    @cached_property
    def admin(self) -> DurableAdmin:
        """What looks at the tier, and restores namespaces."""
        from sharedmem.durable.admin import AdminServices, DurableAdmin  # noqa: PLC0415  # few processes use it
        from sharedmem.durable.inspection import Inspector  # noqa: PLC0415  # likewise
        from sharedmem.durable.samples import MemorySamples  # noqa: PLC0415  # likewise

        inspector = Inspector(
            self._context,
            self._id,
            self.relay,
            kind_of=self._kind_of,
            restorers=self._restorers,
            remembers=self._context.settings.memory_durability,
        )
        warmer = NamespaceRecovery(self.store, self._keyspace, self.loader, self.records)
        samples = MemorySamples(self.store, self._clock)
        return DurableAdmin(AdminServices(self.store, self.relay, inspector, warmer, self.join, samples))

    # -- for writers and readers of keys

    def extras(self, keep: DurabilityModes) -> tuple[list[bytes], tuple[str, str, int, str]]:
        """Return the keys and arguments that the durable form of a script takes after its own."""
        namespace = keep.targets[0].space.namespace
        keyspace = self._keyspace
        states = [keyspace.state(target) for target in keep.targets]
        args = (keep.modes, self._through, self._limit, self._loss_guard.epochs.get(namespace, ""))
        return [keyspace.outbox(namespace), keyspace.kept(namespace), *states], args

    def note(self, namespace: str) -> None:
        """Wake the relay for a namespace."""
        self.relay.note(namespace)

    def is_joined(self, namespace: str) -> bool:
        """Return whether Redis is known to be up to date with the store."""
        return self._loss_guard.is_joined(namespace)

    def is_ready(self, namespace: str) -> bool:
        """Return whether it is joined and registered, so that other hubs take over if this one dies.

        Every change calls this, so it reads the facts directly, without a call to each of their owners.
        """
        joiner = self._loss_guard
        return (
            joiner.joined.get(namespace) == self._client.generation
            and not joiner.ask_again_at
            and self._clock.monotonic() < self.relay.enrolled_until.get(namespace, _NEVER)
        )

    async def join(self, namespace: str, *, again: bool = False) -> None:
        """Bring Redis up to date with the store."""
        await self._loss_guard.join(namespace, again=again)
        # Before the first change: if this hub dies, others deliver the outbox.
        await self.relay.enrol(namespace, again=again)
        if again:
            # A server that has lost the clock has lost this as well.
            await self._client.call("SET", self._keyspace.tier, f"{self._id} {self.store.url}", "NX")

    async def recall(self, target: Target, mode: str) -> bool:
        """Load a key that Redis lacks, and return whether Redis has it now; records are restored all together."""
        if is_lasting_record(target.key):
            await self.records.gather(target.space.namespace, again=True)
            return True
        return await self.loader.recall(target, mode)

    async def documents(self, target: Target) -> list[DurableRecord]:
        """Return the living documents of a key, its head first."""
        now_ms = round(self._clock.now().timestamp() * 1000)
        return living_documents(await self.store.records(target.key), now_ms)

    async def recall_all(self, keep: DurabilityModes) -> None:
        """Load the keys that a script uses."""
        namespaces: set[str] = set()
        for target, mode in zip(keep.targets, keep.modes, strict=True):
            if not is_lasting_record(target.key):
                await self.loader.recall(target, mode)
            elif target.space.namespace not in namespaces:
                namespaces.add(target.space.namespace)
                await self.records.gather(target.space.namespace, again=True)

    async def settle(self, namespace: str, entries: Sequence[bytes], changed: Mapping[str, int]) -> None:
        """Wait until the tier has these entries of the outbox."""
        await self.relay.settle(namespace, entries, changed)

    async def absent(self, namespace: str, present: Container[str]) -> AsyncIterator[list[str]]:
        """Yield pages of the durable keys that are not in Redis now."""
        async for page in self._listed(namespace, lambda head: head.kind != _LOG_KIND and head.key not in present):
            yield page

    async def logs(self, namespace: str, scope: str) -> AsyncIterator[list[str]]:
        """Yield pages of the keys of durable logs of one scope, in Redis or not."""
        async for page in self._listed(
            namespace, lambda head: head.kind == _LOG_KIND and _is_in_scope(head.key, scope)
        ):
            yield page

    async def _listed(self, namespace: str, wanted: Callable[[DurableRecord], bool]) -> AsyncIterator[list[str]]:
        now_ms = round(self._clock.now().timestamp() * 1000)
        async for page in self.store.iterate(namespace, heads_only=True):
            alive = [one.key for one in page if not one.deleted and not has_expired(one, now_ms) and wanted(one)]
            if not alive:
                continue
            targets = [self._keyspace.target(key) for key in alive]
            states = await self._client.read_many([("GET", self._keyspace.state(one)) for one in targets])
            yield [key for key, state in zip(alive, states, strict=True) if not _is_known_absent(state, now_ms)]

    async def clear(self, namespace: str, stamp: int) -> None:
        """Delete all keys of a namespace whose changes are older than a stamp, and the entries in its outbox."""
        async for page in self._heads(namespace):
            await self.store.put([_tombstone(head, stamp) for head in page if not head.deleted])
        keyspace = self._keyspace
        dead, kept = keyspace.dead_outbox(namespace), keyspace.kept(namespace)
        await self._client.call("UNLINK", keyspace.outbox(namespace), dead, kept)
        # Without the first mark the next change would search for lost data (see lua/namespace_join.lua); without the
        # second, the next search would restore records.
        await self._client.call("HSET", kept, "$joined", f"joined {stamp} {stamp}", RECOVERED_MARK, "whole")

    async def _readmit(self, namespace: str, changed: Mapping[str, int], *, left_ms: int) -> set[str]:
        return await self._loss_guard.readmit(namespace, changed, left_ms=left_ms)

    async def _heads(self, namespace: str) -> AsyncIterator[list[DurableRecord]]:
        """Yield the heads of all keys that the tier has, or will get."""
        # In this order: a key that is delivered in between is read twice rather than not at all.
        after = "-"
        outbox = self._keyspace.outbox(namespace)
        while entries := as_list(await self._client.call("XRANGE", outbox, after, "+", "COUNT", _PAGE)):
            fields = [cast("list[bytes]", as_list(as_list(entry)[1])) for entry in entries]
            left = [one for each in fields for one in parse_records(each, namespace)]
            yield list({one.key: one for one in left if one.is_head}.values())
            after = f"({text_of(as_list(entries[-1])[0])}"
        async for page in self.store.iterate(namespace, heads_only=True):
            yield page

    async def refers_to(self, key: str, path: str) -> bool:
        """Return whether a key refers to a blob in the tier: it may be absent from Redis."""
        head = await self.store.get(key)
        return head is not None and not head.deleted and head.codec == _BLOB and path in head.body

    # -- start and close

    def start(self) -> None:
        """Start to deliver waiting changes."""
        self.relay.start()

    async def close(self) -> None:
        """Deliver waiting changes for a few seconds, and close the store."""
        await self.relay.close()
        await self.store.close()


async def registered_name(store: Durable, name: str) -> str:
    """Return the id of a server's data: the first one that was stored in its store.

    Args:
        store: an open store.
        name: id to store if there is no id yet.
    """
    found = await store.get(_NAME_KEY)
    if found is None:
        body = orjson.dumps(name).decode()
        record = DurableRecord(key=_NAME_KEY, type="value", kind="log", version=1, stamp=1, body=body)
        await store.put([record])
        found = await store.get(_NAME_KEY)
    return name if found is None else str(orjson.loads(found.body))


def _is_in_scope(key: str, scope: str) -> bool:
    return key.split(":", 2)[1] == scope


def _write_through_letters(settings: Settings) -> str:
    """Return the modes of the kinds with write-through durability."""
    chosen = {
        RULE_MODES[Kind.SESSION]: settings.session_durability,
        RULE_MODES[Kind.KNOWLEDGE]: settings.knowledge_durability,
        LOG_MODE: settings.log_durability,
    }
    return "".join(letter for letter, durability in chosen.items() if durability == "through")


def _is_known_absent(state: Reply, now_ms: int) -> bool:
    """Return whether a key of the store is known to be deleted or expired, even if the store does not have that yet."""
    if not isinstance(state, bytes):
        return False
    what, *words = state.split()
    return what in _ABSENT_STATES or (what == _PENDING and 0 < int(words[1]) <= now_ms)


def _tombstone(head: DurableRecord, stamp: int) -> DurableRecord:
    return head.model_copy(
        update={"version": stamp, "stamp": stamp, "floor": stamp, "size": 0, "expires": 0, "deleted": True, "body": ""}
    )


# -- opening the store ---------------------------------------------------------------------------


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
        from sharedmem.durable.sqlite_store import SqliteDurable  # noqa: PLC0415  # only one kind of store is needed

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
