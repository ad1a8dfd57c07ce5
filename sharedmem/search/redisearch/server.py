"""Create, drop, wait for and inspect indexes on the server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sharedmem.errors import ConfigError, SharedMemoryError, UnavailableError
from sharedmem.models import IndexStatus
from sharedmem.record_family import RecordFamily
from sharedmem.redis.client import RedisClient
from sharedmem.redis.keys import KeySpace
from sharedmem.redis.replies import Argument, Reply, ServerError, public_error
from sharedmem.search.protocol import IndexProgress
from sharedmem.search.redisearch.layout import Algorithm, IndexInfo, IndexLayout, IndexSpec, parse_index_info

_STANDSTILL_S = 300.0
_FIRST_LOOK_S, _LAST_LOOK_S = 0.02, 1.0
_BEST_SCORER = "BM25STD"
_OLDER_SCORER = "BM25"


def is_missing(error: ServerError) -> bool:
    """Return whether the server replied that the index does not exist; each command has its own message."""
    text = error.text.lower()
    return "no such index" in text or "unknown index" in text or "index does not exist" in text


class IndexServer:
    """The server's indexes.

    Args:
        client: client of the server.
        layout: names and definitions of the indexes.
        patience_s: how long a caller waits for an index that is being built.
        on_cluster: whether there are several servers, whose settings are not changed.
    """

    def __init__(self, client: RedisClient, layout: IndexLayout, *, patience_s: float, on_cluster: bool) -> None:
        self._client = client
        self._layout = layout
        self._patience_s = patience_s
        self._on_cluster = on_cluster
        self.scorer = _BEST_SCORER
        """The best scorer of this server."""
        self.fails_on_timeout = False
        """Whether a search that takes too long is an error, not a part of the hits."""

    async def learn(self, name: str) -> None:
        """Detect the scorer, and set the server to fail instead of returning a part. Two or three round trips.

        Args:
            name: name of an existing index.
        """
        try:
            probe = ("@terms:(x)", "SCORER", _BEST_SCORER, "LIMIT", 0, 0, "DIALECT", 2)
            await self._client.call("FT.SEARCH", name, *probe)
            self.scorer = _BEST_SCORER
        except ServerError as error:
            if is_missing(error):
                raise
            self.scorer = _OLDER_SCORER
        self.fails_on_timeout = not self._on_cluster and await self._fail_on_timeout()

    async def facts(self, name: str) -> IndexInfo | None:
        """Return the state of an index, or None if it does not exist. One round trip.

        Raises:
            UnavailableError, AccessDeniedError, ConfigError: as `RedisClient.call`.
        """
        try:
            return parse_index_info(await self.ask("FT.INFO", name))
        except ServerError as error:
            if is_missing(error):
                return None
            raise public_error(error, self._client.address) from error

    async def make(self, spec: IndexSpec, algorithm: Algorithm) -> None:
        """Create an index, if it does not exist. One round trip.

        Raises:
            UnavailableError, AccessDeniedError, ConfigError: as `RedisClient.call`.
        """
        await self._do(self._layout.creation(spec, algorithm), but="already exists")

    async def name_alias(self, alias: str, name: str, *, anew: bool = False) -> None:
        """Give an index an alias; `anew`: also if the alias belongs to another index. One round trip."""
        await self._do(("FT.ALIASUPDATE" if anew else "FT.ALIASADD", alias, name), but="already exists")

    async def drop(self, name: str) -> None:
        """Drop an index, but none of its documents. One round trip."""
        await self._do(("FT.DROPINDEX", name), but="ndex name")

    async def names(self) -> list[str]:
        """Return the names of all indexes of this server. One round trip."""
        reply = await self._client.call("FT._LIST")
        return [name.decode() for name in reply if isinstance(name, bytes)] if isinstance(reply, list) else []

    async def built(self, name: str) -> IndexInfo:
        """Wait, for a while, until the server has indexed all documents.

        Raises:
            UnavailableError: it takes longer, or the index was dropped.
        """
        deadline = asyncio.get_running_loop().time() + self._patience_s

        def is_over(_: IndexInfo) -> bool:
            return asyncio.get_running_loop().time() > deadline

        return await self._wait(name, is_over, lambda _: None)

    async def built_at_last(self, name: str, *, total: int, progress: IndexProgress | None) -> IndexInfo:
        """Wait until the server has indexed all documents, as long as it makes progress.

        Raises:
            UnavailableError: it makes no progress, or the index was dropped.
        """
        clock = asyncio.get_running_loop()
        seen, since = (-1.0, -1, -1), clock.time()

        def makes_no_progress(facts: IndexInfo) -> bool:
            nonlocal seen, since
            # For a graph with a hundred thousand vectors the percentage alone does not change for minutes.
            now = (facts.percent, facts.documents, facts.bytes)
            if now != seen:
                seen, since = now, clock.time()
            return clock.time() - since > _STANDSTILL_S

        def report(facts: IndexInfo) -> None:
            if progress:
                progress(min(facts.documents, total), total)

        return await self._wait(name, makes_no_progress, report)

    async def ask(self, *args: Argument) -> Reply:
        """Send one command; raise `ServerError` if the server refuses it."""
        return await self._client.call(*args)

    async def _wait(
        self, name: str, is_over: Callable[[IndexInfo], bool], report: Callable[[IndexInfo], None]
    ) -> IndexInfo:
        pause_s = _FIRST_LOOK_S
        while True:
            facts = await self.facts(name)
            if facts is None:
                raise UnavailableError(
                    f"search index {name}", "another client has dropped it; try again, it is rebuilt"
                )
            report(facts)
            if not facts.indexing:
                return facts
            if is_over(facts):
                raise UnavailableError(
                    f"search index {name}", f"it is partly built ({facts.percent:.0%} of its documents); try again"
                )
            await asyncio.sleep(pause_s)
            # For a large graph of vectors one status read takes the server tens of milliseconds during a build.
            pause_s = min(1.2 * pause_s, _LAST_LOOK_S)

    async def _do(self, command: tuple[Argument, ...], *, but: str) -> None:
        """Send a command; a refusal with the message `but` means that it was done before."""
        try:
            await self._client.call(*command)
        except ServerError as error:
            if but not in error.text:
                raise public_error(error, self._client.address) from error

    async def _fail_on_timeout(self) -> bool:
        # Redis 8 has it among its own settings; a user that may not set it detects a timeout by the time a search took.
        for command in (("FT.CONFIG", "SET", "ON_TIMEOUT", "fail"), ("CONFIG", "SET", "search-on-timeout", "fail")):
            try:
                await self._client.call(*command)
            except (ServerError, SharedMemoryError):
                continue
            return True
        return False


class IndexOverview:
    """Reads the status of all indexes of a family.

    Args:
        client: client of the server.
        keyspace: builds keys.
        family: the record family of the indexes.
        server: the indexes of the server.
        layout: names and definitions of the indexes.
        on_cluster: whether indexes are spread over several servers.
    """

    def __init__(
        self,
        client: RedisClient,
        keyspace: KeySpace,
        family: RecordFamily,
        *,
        server: IndexServer,
        layout: IndexLayout,
        on_cluster: bool,
    ) -> None:
        self._client = client
        self._keyspace = keyspace
        self._family = family
        self._server = server
        self._layout = layout
        self._on_cluster = on_cluster

    async def statuses(self) -> list[IndexStatus]:
        """Return the status of each index. A round trip each, and on a cluster a scan of its keys."""
        names = await (self._placed() if self._on_cluster else self._listed())
        return [status for name in sorted(names) if (status := await self._status(name)) is not None]

    async def _listed(self) -> list[str]:
        shared = self._keyspace.shared_index(self._family.name)
        return [
            name
            for name in await self._server.names()
            if name.startswith(shared) or self._namespace_of(name) is not None
        ]

    async def _placed(self) -> list[str]:
        found: set[str] = set()
        # A star is not part of any namespace's name, and here a glob for all of them.
        async for keys in self._client.scan(self._keyspace.record_place(self._family.name, "*"), near=None):
            for key in keys:
                named = await self._client.call("GET", key)
                found |= {named.decode()} if isinstance(named, bytes) else set()
        return list(found)

    async def _status(self, name: str) -> IndexStatus | None:
        facts = await self._server.facts(name)
        if facts is None:
            return None
        namespace = self._namespace_of(name)
        parsed = self._layout.read_name(name)
        return IndexStatus(
            name=name,
            family=self._family.name,
            namespaces=() if namespace is None else (namespace,),
            documents=facts.documents,
            algorithm=facts.algorithm,
            dimension=facts.dimension,
            model=self._layout.model_of(name),
            schema_version=parsed.schema_version if parsed else 0,
            failures=facts.failures,
            indexing=facts.indexing,
            bytes=facts.bytes,
            problems=tuple(await self._problems(facts, namespace)),
        )

    async def _problems(self, facts: IndexInfo, namespace: str | None) -> list[str]:
        found = []
        if facts.failures:
            found.append(
                f"the server could not index {facts.failures} records, such as {facts.failed_key!r}"
                f" ({facts.failed_why}); they are not found until they are written again"
            )
        if facts.indexing:
            found.append(f"it is only partly built: {facts.percent:.0%} of its documents")
        if not await self._is_searched(facts.name, namespace):
            found.append("it is not in use: an unfinished build; `sharedmem index rebuild` continues it")
        layout = self._layout
        spec = layout.shared() if namespace is None else layout.own(namespace)
        try:
            layout.check(facts, spec)
        except ConfigError as error:
            found.append(str(error))
        return found

    async def _is_searched(self, name: str, namespace: str | None) -> bool:
        if namespace is None:
            current = await self._server.facts(self._layout.alias)
            return current is not None and current.name == name
        return (
            await self._client.call("GET", self._keyspace.record_place(self._family.name, namespace)) == name.encode()
        )

    def _namespace_of(self, name: str) -> str | None:
        """Return the namespace whose own index this is; None if it is not one of this family."""
        namespace = name.partition("}:$")[0].partition(":{")[2]
        head = self._keyspace.own_index(self._family.name, namespace)
        return namespace if namespace and name.startswith(head) else None
