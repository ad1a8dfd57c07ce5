"""The durable tier in Azure Cosmos DB: one document per record, conditional on its stamp.

Nothing is incremented at the server, so that a request that is sent twice leaves the same documents. docs/cosmos.md
describes how to run it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from types import ModuleType
from typing import TYPE_CHECKING

from pydantic import SecretStr

from sharedmem.clock import Clock, SystemClock, new_id
from sharedmem.durable.cosmos.container import CosmosContainer, DocumentMapper, GraphMapper, MemoryMapper, RecordMapper
from sharedmem.durable.cosmos.endpoint import (
    CosmosTarget,
    CosmosTimeouts,
    ErrorResponse,
    container_missing_error,
    key_for,
    login_error,
    not_open_error,
    parse_endpoint,
    unreachable_error,
)
from sharedmem.durable.cosmos.graph_container import SCOPE as GRAPH_SCOPE
from sharedmem.durable.cosmos.graph_container import TYPES as GRAPH_TYPES
from sharedmem.durable.cosmos.layout import (
    ContainerLayout,
    check_partition_key,
    check_policies,
    differences,
    records_layout,
)
from sharedmem.durable.cosmos.memory_container import SCOPE as MEMORY_SCOPE
from sharedmem.durable.cosmos.memory_container import TYPE as MEMORY_TYPE
from sharedmem.durable.cosmos.memory_container import sample_query, sample_rows
from sharedmem.durable.cosmos.record_container import identity_document, identity_of, newest_of_each, place_of
from sharedmem.durable.protocol import Scalar, is_user_namespace
from sharedmem.durable.samples import NativeAnswer, SampleRequest
from sharedmem.errors import AccessDeniedError, ConfigError
from sharedmem.models import Charges, DurableRecord, Outcome, Put

if TYPE_CHECKING:
    from sharedmem.durable.cosmos.account import ChargeMeter, CosmosAccount

_Pages = AsyncGenerator[list[DurableRecord], None]

MEMORIES = "memories"
"""Default name of the container of memories."""

_AT_ONCE = 32
_ATTEMPTS = 12


class CosmosDurable:
    """A `Durable` in one container of a Cosmos DB account (NoSQL API).

    Args:
        url: `cosmos://account.documents.azure.com`, or `cosmos+http://host:port` for an emulator.
        key: the account key; None: log in with Entra ID (and to an emulator with its well-known key).
        database: name of the database.
        container: name of its container, which is for the records alone.
        clock: for pauses and times to live.
        patience: timeouts.
        memories: layout of a separate container for memories (`layout.memories_layout`); None: store them with the
            other records.
        memories_container: name of that container.
        graphs: layout of a separate container for graphs (`layout.graphs_layout`).

    Raises:
        ConfigError: the URL or the key is invalid.
    """

    def __init__(
        self,
        url: str,
        *,
        key: SecretStr | None = None,
        database: str = "sharedmem",
        container: str = "records",
        clock: Clock | None = None,
        patience: CosmosTimeouts = CosmosTimeouts(),  # noqa: B008  # immutable
        memories: ContainerLayout | None = None,
        memories_container: str = MEMORIES,
        graphs: ContainerLayout | None = None,
    ) -> None:
        self._url = url
        self._endpoint = parse_endpoint(url)
        self._key = key
        self._target = CosmosTarget(database, container, with_key=key_for(self._endpoint, key) is not None)
        self._clock: Clock = clock or SystemClock()
        self._patience = patience
        self._layouts = {container: records_layout()}
        # Separate containers by the scope of their keys.
        self._apart: dict[str, tuple[str, DocumentMapper]] = {}
        if memories is not None:
            self._layouts[memories_container] = memories
            self._apart[MEMORY_SCOPE] = memories_container, MemoryMapper()
        if graphs is not None:
            self._layouts[graphs.name] = graphs
            self._apart[GRAPH_SCOPE] = graphs.name, GraphMapper()
        self._held: dict[str, CosmosContainer] = {}
        self._opened: CosmosAccount | None = None
        self._meter: ChargeMeter | None = None
        self._slots = asyncio.Semaphore(_AT_ONCE)

    @property
    def url(self) -> str:
        """The URL of the account, without secrets."""
        return self._url

    async def open(self, *, create: bool = True) -> str:
        """Log in and check the container; return the id that it got when it was created. 3 requests.

        Args:
            create: whether to create the database and the container if they are missing.

        Raises:
            UnavailableError: the account cannot be reached.
            ConfigError: the key is wrong, rights are missing, or the container has another partition key.
            UnsupportedError: the extra `cosmos` is not installed, or the account lacks vector search.
            NotFoundError: the container does not exist, and `create` is false.
        """
        await self.close()
        self._opened = account = self._new_account(_import_account())
        try:
            await account.connect()
            for container, layout in self._layouts.items():
                # If the first container exists, the others may be created: accounts of early releases have only it.
                await self._ensure(container, layout, create=create or container != self._target.container)
            places = {"": (self._target.container, RecordMapper()), **self._apart}
            self._held = {
                scope: CosmosContainer(account.at(container), shape, self._clock, self._slots)
                for scope, (container, shape) in places.items()
            }
            return await self._identity()
        except AccessDeniedError as error:
            await self.close()
            raise login_error(str(error), with_key=self._target.with_key) from error
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close the connections; may be called again."""
        account, self._opened = self._opened, None
        self._held = {}
        if account is not None:
            await account.close()

    def _new_account(self, library: ModuleType) -> CosmosAccount:
        self._meter = self._meter or library.ChargeMeter()
        account: CosmosAccount = library.CosmosAccount(
            self._endpoint,
            key_for(self._endpoint, self._key) or library.entra_credential(),
            target=self._target,
            clock=self._clock,
            patience=self._patience,
            meter=self._meter,
        )
        return account

    async def _ensure(self, container: str, layout: ContainerLayout, *, create: bool) -> None:
        properties = await self._account.properties(container)
        if properties is None:
            if not create:
                raise container_missing_error(self._target._replace(container=container))
            await self._make(container, layout)
            properties = await self._account.properties(container) or {}
        # Another client may have created it at the same moment.
        check_partition_key(container, layout, properties)
        check_policies(container, layout, properties)

    async def _make(self, container: str, layout: ContainerLayout) -> None:
        try:
            await self._account.make(container, layout)
        except AccessDeniedError as error:
            problem = (
                f"{self._target.database}/{container} does not exist and the {self._target.identity} may not create it "
                "(roles of the data plane never may): deploy deploy/cosmos.bicep, see docs/cosmos.md"
            )
            raise ConfigError("cosmos_container", "the durable tier's settings", problem) from error

    async def _identity(self) -> str:
        document = identity_document(new_id(32))
        for _ in range(_ATTEMPTS):
            held = await self._account.read(place_of(document["key"]))
            if not isinstance(held, ErrorResponse):
                return identity_of(held, self._target.container)
            if not isinstance(await self._account.create(document), ErrorResponse):
                return identity_of(document, self._target.container)
        raise unreachable_error("it does not return the document that was just written")

    # -- writing ----------------------------------------------------------------------------------

    async def put(self, records: Sequence[DurableRecord]) -> list[Put]:
        """Store each record unless a document of the same key and element has the same or a higher stamp.

        Only the newest record of each document is sent, up to 32 at once; a new document takes one request, a changed
        one two, a memory two. Records are independent: some may be stored if the call fails, and storing them again is
        harmless.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: see `Durable.put`.
            NotFoundError: the container was removed.
        """
        winners = newest_of_each(records)
        puts: dict[tuple[str, str], Put] = {}
        for section in self._sections:
            own = [record for record in winners.values() if self._section_of(record.key) is section]
            stored = zip(own, await section.put(own), strict=True)
            puts |= {(record.key, record.element): put for record, put in stored}
        answers = []
        for record in records:
            place = record.key, record.element
            is_older = record.stamp < winners[place].stamp and puts[place].outcome is not Outcome.REFUSED
            answers.append(Put(outcome=Outcome.OLDER) if is_older else puts[place])
        return answers

    # -- reading ----------------------------------------------------------------------------------

    async def get(self, key: str, element: str = "") -> DurableRecord | None:
        """Return one document, tombstones and expired ones included: a point read (1 RU up to 1 KB), or a query.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: see `Durable.put`.
            NotFoundError: the container was removed.
        """
        return await self._section_of(key).get(key, element)

    async def records(self, key: str) -> list[DurableRecord]:
        """Return all documents of a key, the head first, then by element: one query in one partition, 200 a page.

        Raises:
            as `get`.
        """
        return await self._section_of(key).records(key)

    async def query(
        self, namespace: str, *, of_type: str, where: Mapping[str, Scalar] | None = None, limit: int = 100
    ) -> list[DurableRecord]:
        """Return documents of a namespace that are not deleted, newest stamp first; see `Durable.query`.

        Raises:
            InvalidError: a field name has other characters than letters, digits, `_`, dots; or the limit is wrong.
            UnavailableError, LimitedError, AccessDeniedError, NotFoundError: as `get`.
        """
        return await self._section_for(of_type).query(namespace, of_type, where=where or {}, limit=limit)

    async def sample_memories(self, request: SampleRequest) -> NativeAnswer | None:
        """Run a sample query as one query of the container of memories; None without that container.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError, NotFoundError: as `get`.
        """
        if MEMORY_SCOPE not in self._apart:
            return None
        query = sample_query(request)
        answered = await self._account.at(self._apart[MEMORY_SCOPE][0]).all(query)
        return NativeAnswer(sample_rows(request, answered), query.text)

    async def iterate(
        self, namespace: str, *, changed_after: int = 0, heads_only: bool = False, after: tuple[str, str] | None = None
    ) -> AsyncIterator[list[DurableRecord]]:
        """Yield pages of up to 200 documents of a namespace, tombstones included; see `Durable.iterate`.

        Raises:
            as `get`.
        """
        walks = {
            scope and f"{namespace}:{scope}:": section.iterate(
                namespace, changed_after=changed_after, heads_only=heads_only, after=after
            )
            for scope, section in sorted(self._by_scope.items())
        }
        async with aclosing(_merge_pages(walks)) as pages:
            async for page in pages:
                yield page

    async def highest(self, namespace: str) -> int:
        """Return the highest stamp of a namespace, 0 without any: a query that reads one document, for each container.

        Raises:
            as `get`.
        """
        return max([await section.highest(namespace) for section in self._sections])

    async def namespaces(self) -> list[str]:
        """Return the namespaces that have documents, sorted: one query each, over all partitions.

        Raises:
            as `get`.
        """
        found = {name for section in self._sections for name in await section.namespaces()}
        return sorted(filter(is_user_namespace, found))

    # -- maintenance -------------------------------------------------------------------------------------

    async def purge(self, namespace: str, *, now_ms: int, tombstones_before: int) -> int:
        """Delete documents that no reader can see any more; see `Durable.purge`. Reads the namespace without bodies.

        Raises:
            as `get`.
        """
        before = tombstones_before
        purges = [await one.purge(namespace, now_ms=now_ms, tombstones_before=before) for one in self._sections]
        return sum(purges)

    async def check(self) -> list[str]:
        """Return the differences from containers that `open` creates, in sentences. One request each.

        Raises:
            as `get`.
        """
        found: list[str] = []
        for container, layout in self._layouts.items():
            properties = await self._account.properties(container)
            if properties is None:
                raise container_missing_error(self._target._replace(container=container))
            found += differences(container, layout, properties)
        return found

    def charges(self) -> Charges:
        """Return the requests by kind, the number of throttled ones, and request units, since its creation."""
        return self._meter.charges() if self._meter else Charges()

    # -- tools ------------------------------------------------------------------------------------

    @property
    def _account(self) -> CosmosAccount:
        if self._opened is None:
            raise not_open_error("it is not open; open it first")
        return self._opened

    @property
    def _by_scope(self) -> dict[str, CosmosContainer]:
        """The containers by the scope of the keys in them, that of all others without one."""
        if not self._held:
            raise not_open_error("it is not open; open it first")
        return self._held

    @property
    def _sections(self) -> list[CosmosContainer]:
        """Return the container of the records, then separate ones of memories and graphs."""
        return list(self._by_scope.values())

    def _section_of(self, key: str) -> CosmosContainer:
        scope = (*key.split(":", 2), "")[1]
        return self._by_scope.get(scope) or self._by_scope[""]

    def _section_for(self, of_type: str) -> CosmosContainer:
        scope = MEMORY_SCOPE if of_type == MEMORY_TYPE else GRAPH_SCOPE if of_type in GRAPH_TYPES else ""
        return self._by_scope.get(scope) or self._by_scope[""]

    def __repr__(self) -> str:
        return f"<CosmosDurable {self._url} {self._target.database}/{self._target.container}>"


def _import_account() -> ModuleType:
    """Import the module that uses the SDK; it raises an error without the extra."""
    from sharedmem.durable.cosmos import account as cosmos_account  # noqa: PLC0415  # an extra

    return cosmos_account


async def _merge_pages(walks: Mapping[str, _Pages]) -> _Pages:
    """Merge the pages of all containers, ordered by key.

    Args:
        walks: pages by key prefix, in that order; the pages of the records first.
    """
    async with AsyncExitStack() as stack:
        entered = {prefix: await stack.enter_async_context(aclosing(walk)) for prefix, walk in walks.items()}
        records = entered.pop("")
        async for page in records:
            rest = page
            for prefix in [prefix for prefix in entered if rest[-1].key >= prefix]:
                below = [record for record in rest if record.key < prefix]
                if below:
                    yield below
                async for foreign in entered.pop(prefix):
                    yield foreign
                rest = rest[len(below) :]
            if rest:
                yield rest
        for walk in entered.values():
            async for foreign in walk:
                yield foreign
