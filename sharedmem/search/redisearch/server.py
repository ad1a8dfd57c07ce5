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
    """Return whether the server replied that there is no such index; each command has its own message."""
    text = error.text.lower()
    return "no such index" in text or "unknown index" in text or "index does not exist" in text


class IndexServer:
    """The server's indexes.

    Args:
        client: of the server.
        layout: how indexes are made.
        patience_s: how long a caller waits for an index that is being built.
        on_cluster: whether there are several servers, whose settings are left alone.
    """

    def __init__(self, client: RedisClient, layout: IndexLayout, *, patience_s: float, on_cluster: bool) -> None:
        self._client = client
        self._layout = layout
        self._patience_s = patience_s
        self._on_cluster = on_cluster
        self.scorer = _BEST_SCORER
        """How this server ranks words best."""
        self.fails_on_timeout = False
        """Whether it answers an error, not part of the hits, when a search takes too long."""

    async def learn(self, name: str) -> None:
        """Find out how this server ranks, and have it fail rather than answer a part. Two or three round trips.

        Args:
            name: of an index that is there.
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
        """Return what there is to know of an index, or None if there is none. One round trip.

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
        """Make an index, if it is not there. One round trip.

        Raises:
            UnavailableError, AccessDeniedError, ConfigError: as `RedisClient.call`.
        """
        await self._do(self._layout.creation(spec, algorithm), but="already exists")

    async def name_alias(self, alias: str, name: str, *, anew: bool = False) -> None:
        """Let an index be searched under another name too; `anew`: also if another index has that name. One trip."""
        await self._do(("FT.ALIASUPDATE" if anew else "FT.ALIASADD", alias, name), but="already exists")

    async def drop(self, name: str) -> None:
        """Drop an index, and none of its documents. One round trip."""
        await self._do(("FT.DROPINDEX", name), but="ndex name")

    async def names(self) -> list[str]:
        """Return the names of all indexes of this server. One round trip."""
        reply = await self._client.call("FT._LIST")
        return [name.decode() for name in reply if isinstance(name, bytes)] if isinstance(reply, list) else []

    async def built(self, name: str) -> IndexInfo:
        """Wait, for a while, until the server has looked at all documents.

        Raises:
            UnavailableError: it takes longer, or the index is gone.
        """
        deadline = asyncio.get_running_loop().time() + self._patience_s

        def is_over(_: IndexInfo) -> bool:
            return asyncio.get_running_loop().time() > deadline

        return await self._wait(name, is_over, lambda _: None)

    async def built_at_last(self, name: str, *, total: int, progress: IndexProgress | None) -> IndexInfo:
        """Wait until the server has looked at all documents, as long as it goes on.

        Raises:
            UnavailableError: it does not go on, or the index is gone.
        """
        clock = asyncio.get_running_loop()
        seen, since = (-1.0, -1, -1), clock.time()

        def stands_still(facts: IndexInfo) -> bool:
            nonlocal seen, since
            # Of a graph with a hundred thousand vectors the percentage alone does not change for minutes.
            now = (facts.percent, facts.documents, facts.bytes)
            if now != seen:
                seen, since = now, clock.time()
            return clock.time() - since > _STANDSTILL_S

        def report(facts: IndexInfo) -> None:
            if progress:
                progress(min(facts.documents, total), total)

        return await self._wait(name, stands_still, report)

    async def ask(self, *args: Argument) -> Reply:
        """Send one command, whose refusal comes as a `ServerError`."""
        return await self._client.call(*args)

    async def _wait(
        self, name: str, is_over: Callable[[IndexInfo], bool], report: Callable[[IndexInfo], None]
    ) -> IndexInfo:
        pause_s = _FIRST_LOOK_S
        while True:
            facts = await self.facts(name)
            if facts is None:
                raise UnavailableError(f"search index {name}", "somebody has dropped it; try again, it is made anew")
            report(facts)
            if not facts.indexing:
                return facts
            if is_over(facts):
                raise UnavailableError(
                    f"search index {name}", f"it is half built ({facts.percent:.0%} of its documents); try again"
                )
            await asyncio.sleep(pause_s)
            # Of a large graph of vectors one look takes the server tens of milliseconds while it is built.
            pause_s = min(1.2 * pause_s, _LAST_LOOK_S)

    async def _do(self, command: tuple[Argument, ...], *, but: str) -> None:
        """Send a command; a refusal with the message `but` means that it was done before."""
        try:
            await self._client.call(*command)
        except ServerError as error:
            if but not in error.text:
                raise public_error(error, self._client.address) from error

    async def _fail_on_timeout(self) -> bool:
        # Redis 8 has it among its own settings; whoever may not set it sees by the time a search took.
        for command in (("FT.CONFIG", "SET", "ON_TIMEOUT", "fail"), ("CONFIG", "SET", "search-on-timeout", "fail")):
            try:
                await self._client.call(*command)
            except (ServerError, SharedMemoryError):
                continue
            return True
        return False


class IndexOverview:
    """Looks at all indexes of a family.

    Args:
        client: of the server.
        keyspace: spells keys.
        family: of the records.
        server: its indexes.
        layout: how they are laid out.
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
        """Return one for each index. A round trip each, and on a cluster a scan of its keys."""
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
        # A star is a name that no namespace has, and here a glob for all of them.
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
                f" ({facts.failed_why}); they are not found until they are written anew"
            )
        if facts.indexing:
            found.append(f"it is half built: {facts.percent:.0%} of its documents")
        if not await self._is_searched(facts.name, namespace):
            found.append("nobody searches it: a build that has not ended; `sharedmem index rebuild` goes on with it")
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
        """Whose own index of this family it is; None if it is none."""
        namespace = name.partition("}:$")[0].partition(":{")[2]
        head = self._keyspace.own_index(self._family.name, namespace)
        return namespace if namespace and name.startswith(head) else None
