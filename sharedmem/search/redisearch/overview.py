"""Every index of a family as people see it, and what is wrong with it."""

from __future__ import annotations

from sharedmem.errors import ConfigError
from sharedmem.models import IndexStatus
from sharedmem.search.protocol import Family
from sharedmem.search.redisearch.layout import Facts, Layout
from sharedmem.search.redisearch.server import IndexServer
from sharedmem.wire.keys import KeySpace
from sharedmem.wire.line import Line


class Overview:
    """Looks at all indexes of a family.

    Args:
        line: the way to the server.
        keyspace: spells keys.
        family: of the records.
        server: its indexes.
        layout: how they are laid out.
        on_cluster: whether indexes are spread over several servers.
    """

    def __init__(
        self,
        line: Line,
        keyspace: KeySpace,
        family: Family,
        *,
        server: IndexServer,
        layout: Layout,
        on_cluster: bool,
    ) -> None:
        self._line = line
        self._keyspace = keyspace
        self._family = family
        self._server = server
        self._layout = layout
        self._on_cluster = on_cluster

    async def statuses(self) -> list[IndexStatus]:
        """One for each index. A round trip each, and on a cluster a scan of its keys."""
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
        async for keys in self._line.scan(self._keyspace.record_place(self._family.name, "*"), near=None):
            for key in keys:
                named = await self._line.call("GET", key)
                found |= {named.decode()} if isinstance(named, bytes) else set()
        return list(found)

    async def _status(self, name: str) -> IndexStatus | None:
        facts = await self._server.facts(name)
        if facts is None:
            return None
        namespace = self._namespace_of(name)
        said = self._layout.read_name(name)
        return IndexStatus(
            name=name,
            family=self._family.name,
            namespaces=() if namespace is None else (namespace,),
            documents=facts.documents,
            algorithm=facts.algorithm,
            dimension=facts.dimension,
            model=self._layout.model_of(name),
            schema_version=said.schema_version if said else 0,
            failures=facts.failures,
            indexing=facts.indexing,
            bytes=facts.bytes,
            problems=tuple(await self._problems(facts, namespace)),
        )

    async def _problems(self, facts: Facts, namespace: str | None) -> list[str]:
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
        return await self._line.call("GET", self._keyspace.record_place(self._family.name, namespace)) == name.encode()

    def _namespace_of(self, name: str) -> str | None:
        """Whose own index of this family it is; None if it is none."""
        namespace = name.partition("}:$")[0].partition(":{")[2]
        head = self._keyspace.own_index(self._family.name, namespace)
        return namespace if namespace and name.startswith(head) else None
