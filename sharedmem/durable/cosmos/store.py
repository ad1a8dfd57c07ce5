"""The durable tier in Azure Cosmos DB: one document per record, conditional on its stamp.

Nothing is ever counted up at the server, so that whatever is sent twice, or meets its own earlier attempt, leaves
the same documents. docs/cosmos.md tells how to run it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

import orjson
from pydantic import SecretStr

from sharedmem.clock import Clock, SystemClock, new_id
from sharedmem.durable.cosmos import queries
from sharedmem.durable.cosmos.address import Patience, endpoint_of, key_for
from sharedmem.durable.cosmos.documents import (
    Document,
    change,
    document_of,
    identity_document,
    identity_of,
    is_likely_new,
    newest,
    place_of,
    record_of,
)
from sharedmem.durable.cosmos.errors import Refusal, Target, missing, short, unreachable, wrong_login
from sharedmem.durable.cosmos.layout import Layout, check_partition_key, differences, records_layout
from sharedmem.durable.cosmos.purging import COLUMNS, Row, Sieve
from sharedmem.durable.living import is_of_users
from sharedmem.durable.protocol import Scalar
from sharedmem.errors import AccessDeniedError, ConfigError, UnsupportedError
from sharedmem.models import Charges, DurableRecord, Outcome, Put

if TYPE_CHECKING:
    from sharedmem.durable.cosmos.account import Account, Meter

_T = TypeVar("_T")
_R = TypeVar("_R")
_MEMORIES = "memories"
_AT_ONCE = 32
_ATTEMPTS = 12
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.005, 0.5
_HOPELESS = frozenset({400, 413})


class CosmosDurable:
    """A `Durable` in one container of a Cosmos DB account (NoSQL API).

    Args:
        url: `cosmos://account.documents.azure.com`, or `cosmos+http://host:port` for an emulator.
        key: the account key; None logs in with Entra ID (and to an emulator with the key that they all have).
        database: its database.
        container: its container, for the records alone.
        clock: for pauses and times to live.
        patience: how long to wait for the service.
        memories: `open` also makes the container `memories`, as `cosmos_layout.memories_layout` says.

    Raises:
        ConfigError: the URL or the key cannot be one.
    """

    def __init__(
        self,
        url: str,
        *,
        key: SecretStr | None = None,
        database: str = "sharedmem",
        container: str = "records",
        clock: Clock | None = None,
        patience: Patience = Patience(),  # noqa: B008  # cannot change
        memories: Layout | None = None,
    ) -> None:
        self._url = url
        self._endpoint = endpoint_of(url)
        self._key = key
        self._target = Target(database, container, with_key=key_for(self._endpoint, key) is not None)
        self._clock: Clock = clock or SystemClock()
        self._patience = patience
        self._layouts = {container: records_layout()} | ({_MEMORIES: memories} if memories else {})
        self._opened: Account | None = None
        self._meter: Meter | None = None
        self._slots = asyncio.Semaphore(_AT_ONCE)

    @property
    def url(self) -> str:
        """Where the account is; it holds no secrets."""
        return self._url

    async def open(self, *, create: bool = True) -> str:
        """Log in and look at the container; returns the id that it was given when it was made. 3 requests.

        Args:
            create: whether to make the database and the container if they are missing.

        Raises:
            UnavailableError: the account cannot be reached.
            ConfigError: the key is wrong, rights are missing, or the container is partitioned otherwise.
            UnsupportedError: the extra `cosmos` is not installed, or the account lacks vector search.
            NotFoundError: the container does not exist, and was not to be made.
        """
        await self.close()
        self._opened = account = self._new_account(_library())
        try:
            await account.connect()
            for container, layout in self._layouts.items():
                await self._ensure(container, layout, create=create)
            return await self._identity()
        except AccessDeniedError as error:
            await self.close()
            raise wrong_login(str(error), with_key=self._target.with_key) from error
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close the connections; may be called again."""
        account, self._opened = self._opened, None
        if account is not None:
            await account.close()

    def _new_account(self, library: ModuleType) -> Account:
        self._meter = self._meter or library.Meter()
        account: Account = library.Account(
            self._endpoint,
            key_for(self._endpoint, self._key) or library.entra_login(),
            target=self._target,
            clock=self._clock,
            patience=self._patience,
            meter=self._meter,
        )
        return account

    async def _ensure(self, container: str, layout: Layout, *, create: bool) -> None:
        properties = await self._account.properties(container)
        if properties is None:
            if not create:
                raise missing(self._target._replace(container=container))
            await self._make(container, layout)
            properties = await self._account.properties(container) or {}
        # Somebody else may have made it at the same moment.
        check_partition_key(container, layout, properties)

    async def _make(self, container: str, layout: Layout) -> None:
        try:
            await self._account.make(container, layout)
        except AccessDeniedError as error:
            problem = (
                f"{self._target.database}/{container} does not exist and the {self._target.who} may not make it "
                "(roles of the data plane never may): deploy deploy/cosmos.bicep, see docs/cosmos.md"
            )
            raise ConfigError("cosmos_container", "the durable tier's settings", problem) from error

    async def _identity(self) -> str:
        document = identity_document(new_id(32))
        for _ in range(_ATTEMPTS):
            if held := await self._held(document["key"]):
                return identity_of(held, self._target.container)
            if not isinstance(await self._account.create(document), Refusal):
                return identity_of(document, self._target.container)
        raise unreachable("it does not show what it has just been given")

    # -- writing ----------------------------------------------------------------------------------

    async def put(self, records: Sequence[DurableRecord]) -> list[Put]:
        """Store each record unless a document of the same key and element has the same or a higher stamp.

        Of each document only the newest record is sent, up to 32 at once; a new document takes one request, a
        changed one two. Records stand alone: some may be stored when the call fails, and to put them again is harmless.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: see `Durable.put`.
            NotFoundError: the container was removed.
        """
        winners = newest(records)
        puts = dict(zip(winners, await self._each(winners.values(), self._put), strict=True))
        answers = []
        for record in records:
            place = record.key, record.element
            is_older = record.stamp < winners[place].stamp and puts[place].outcome is not Outcome.REFUSED
            answers.append(Put(outcome=Outcome.OLDER) if is_older else puts[place])
        return answers

    async def _put(self, record: DurableRecord) -> Put:
        held = None if is_likely_new(record) else await self._held(record.key, record.element)
        for attempt in range(_ATTEMPTS):
            wanted, outcome = change(record, record_of(held) if held else None)
            if wanted is None:
                return Put(outcome=outcome)
            document = document_of(wanted, self._now_ms())
            answer = await self._store(document, held)
            if not isinstance(answer, Refusal):
                return Put(outcome=outcome)
            if answer.status in _HOPELESS:
                return Put(outcome=Outcome.REFUSED, reason=_reason(answer, document))
            # Somebody else was faster, or an earlier attempt of ours that was lost: its stamp tells.
            await self._clock.sleep(random.uniform(0, min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**attempt)))  # noqa: S311  # no secret
            held = await self._held(record.key, record.element)
        raise unreachable(f"others wrote {record.key!r} {_ATTEMPTS} times in between")

    async def _store(self, document: Document, held: Document | None) -> Document | Refusal:
        if held is None:
            return await self._account.create(document)
        return await self._account.replace(document, held["_etag"])

    async def _held(self, key: str, element: str = "") -> Document | None:
        answer = await self._account.read(place_of(key, element))
        return None if isinstance(answer, Refusal) else answer

    # -- reading ----------------------------------------------------------------------------------

    async def get(self, key: str, element: str = "") -> DurableRecord | None:
        """One document, tombstones and expired ones included: one point read (1 RU up to 1 KB).

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: see `Durable.put`.
            NotFoundError: the container was removed.
        """
        held = await self._held(key, element)
        return record_of(held) if held else None

    async def records(self, key: str) -> list[DurableRecord]:
        """All documents of a key, the head first, then by element: one query in one partition, 200 documents a page.

        Raises:
            as `get`.
        """
        pages = self._account.pages(lambda after: queries.of_key(key, after))
        return [record_of(document) async for page in pages for document in page]

    async def query(
        self, namespace: str, *, of_type: str, where: Mapping[str, Scalar] | None = None, limit: int = 100
    ) -> list[DurableRecord]:
        """Documents of a namespace that are not deleted, newest stamp first; see `Durable.query`.

        Raises:
            InvalidError: a field name with other than letters, digits, `_` and dots, or a limit out of bounds.
            UnavailableError, LimitedError, AccessDeniedError, NotFoundError: as `get`.
        """
        found = await self._account.all(queries.of_type(namespace, of_type, where=where or {}, limit=limit))
        return [record_of(document) for document in found]

    async def iterate(
        self, namespace: str, *, changed_after: int = 0, heads_only: bool = False, after: tuple[str, str] | None = None
    ) -> AsyncIterator[list[DurableRecord]]:
        """Pages of up to 200 documents of a namespace, tombstones included, by key and element; see `Durable.iterate`.

        Raises:
            as `get`.
        """

        def build(position: queries.Position | None) -> queries.Query:
            return queries.of_namespace(namespace, position, changed_after=changed_after, heads_only=heads_only)

        async with aclosing(self._account.pages(build, after)) as pages:
            async for page in pages:
                yield [record_of(document) for document in page]

    async def highest(self, namespace: str) -> int:
        """The highest stamp of a namespace, 0 when it has none: one query that reads one document.

        Raises:
            as `get`.
        """
        return next(iter(await self._account.all(queries.highest_stamp(namespace))), 0)

    async def namespaces(self) -> list[str]:
        """The namespaces that have documents, in order: one query each, over all partitions.

        Raises:
            as `get`.
        """
        found: list[str] = []
        latest = ""
        while names := await self._account.all(queries.next_namespace(latest)):
            latest = names[0]
            found.append(latest)
        return list(filter(is_of_users, found))

    # -- care -------------------------------------------------------------------------------------

    async def purge(self, namespace: str, *, now_ms: int, tombstones_before: int) -> int:
        """Remove what no reader can see any more; see `Durable.purge`. Reads all of the namespace, without bodies.

        A head goes before its elements; when it has changed by then, they stay.

        Raises:
            as `get`.
        """
        sieve = Sieve(now_ms=now_ms, tombstones_before=tombstones_before)
        removed = 0
        pages = self._account.pages(lambda after: queries.of_namespace(namespace, after, columns=COLUMNS))
        async with aclosing(pages):
            async for page in pages:
                removed += await self._purge(map(_row, page), sieve)
        return removed

    async def _purge(self, rows: Iterable[Row], sieve: Sieve) -> int:
        dead = [row for row in map(sieve.dead, rows) if row]
        heads = [row for row in dead if not row.element]
        gone = await self._each(heads, self._remove)
        kept = {head.key for head, is_gone in zip(heads, gone, strict=True) if not is_gone}
        sieve.keep(kept)
        elements = [row for row in dead if row.element and row.key not in kept]
        return sum(gone) + sum(await self._each(elements, self._remove))

    async def _remove(self, row: Row) -> bool:
        return await self._account.remove(place_of(row.key, row.element), row.etag) is None

    async def check(self) -> list[str]:
        """What of the containers is not as `open` makes them, in sentences. One request each.

        Raises:
            as `get`.
        """
        found: list[str] = []
        for container, layout in self._layouts.items():
            properties = await self._account.properties(container)
            if properties is None:
                raise missing(self._target._replace(container=container))
            found += differences(container, layout, properties)
        return found

    def charges(self) -> Charges:
        """Requests by kind, how many of them were throttled, and request units, since it was made."""
        return self._meter.charges() if self._meter else Charges()

    # -- tools ------------------------------------------------------------------------------------

    @property
    def _account(self) -> Account:
        if self._opened is None:
            raise unreachable("it is not open")
        return self._opened

    def _now_ms(self) -> int:
        return int(self._clock.now().timestamp() * 1000)

    async def _each(self, items: Iterable[_T], do: Callable[[_T], Awaitable[_R]]) -> list[_R]:
        """Do it with each, some at once; the first error ends the others."""

        async def one(item: _T) -> _R:
            async with self._slots:
                return await do(item)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(item)) for item in items]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [task.result() for task in tasks]

    def __repr__(self) -> str:
        return f"<CosmosDurable {self._url} {self._target.database}/{self._target.container}>"


def _library() -> ModuleType:
    """The SDK's side of the tier."""
    try:
        from sharedmem.durable.cosmos import account as cosmos_account  # noqa: PLC0415  # an extra
    except ModuleNotFoundError as error:
        raise UnsupportedError("Cosmos DB", "pip install 'sharedmem-hub[cosmos]'") from error
    return cosmos_account


def _row(document: Document) -> Row:
    etag = document.pop("_etag")
    return Row(**document, etag=etag)


def _reason(refusal: Refusal, document: Document) -> str:
    what = f"a document of {len(orjson.dumps(document)):,} bytes"
    if refusal.status == 413:
        return f"Cosmos DB takes documents of up to 2 MB, this is {what}; keep large values as blobs"
    return f"Cosmos DB does not take {what}: {short(refusal.message)}"
