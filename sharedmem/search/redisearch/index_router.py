"""The location in which a namespace is searched: the index that small namespaces share, or its own.

The namespace's place key names its own index; without that key the namespace is in the shared index. A move is online:
the own index is built beside the shared one, the place is set, and only then the records leave the shared index. A
search reads the place after it has searched, so that it notices a move in between.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from sharedmem.config import Settings
from sharedmem.errors import AccessDeniedError, ConfigError
from sharedmem.record_family import RecordFamily
from sharedmem.redis.client import RedisClient
from sharedmem.redis.keys import KeySpace
from sharedmem.redis.replies import Reply, ServerError
from sharedmem.search.protocol import IndexProgress
from sharedmem.search.redisearch.queries import NO_FILTER, search_by_filter, within_namespace
from sharedmem.search.redisearch.server import (
    FIRST_BUILD,
    Algorithm,
    IndexInfo,
    IndexLayout,
    IndexServer,
    IndexSpec,
    is_missing,
)

_PAGE = 200


class IndexLocation(NamedTuple):
    """The index in which a namespace is searched."""

    searched: str
    """Name of the index, or its alias."""
    named: bytes | None
    """The value of its place key."""
    algorithm: Algorithm


class IndexRouter:
    """The known locations of the namespaces, and their moves.

    Args:
        client: client of the server.
        keyspace: builds keys.
        family: the record family of the index.
        settings: from how many records an index is approximate.
        server: the indexes of the server.
        layout: names and definitions of the indexes.
        on_cluster: whether each namespace has its own index, since an index never spans servers of a cluster.
    """

    def __init__(
        self,
        client: RedisClient,
        keyspace: KeySpace,
        family: RecordFamily,
        settings: Settings,
        *,
        server: IndexServer,
        layout: IndexLayout,
        on_cluster: bool,
    ) -> None:
        self._client = client
        self._keyspace = keyspace
        self._family = family
        self._hnsw_above = settings.hnsw_above
        self._server = server
        self._layout = layout
        self._on_cluster = on_cluster
        self._known: dict[str, IndexLocation] = {}
        self._generation = -1
        self._learned = -1
        self._settling: dict[str, asyncio.Lock] = {}

    def known(self, namespace: str) -> IndexLocation | None:
        """Return the location of a namespace, if it was seen on this connection."""
        if self._client.generation != self._generation:
            # Another connection may lead to another server, or to one that has lost its data.
            self._generation = self._client.generation
            self._known.clear()
        return self._known.get(namespace)

    async def of(self, namespace: str) -> IndexLocation:
        """Return the location of a namespace; its index exists and is complete. No round trip if it is known.

        Raises:
            ConfigError: the index there does not fit this family.
            UnavailableError: the server cannot be reached, or the index is only partly built.
        """
        if (place := self.known(namespace)) is not None:
            return place
        async with self._settling.setdefault(namespace, asyncio.Lock()):
            if (place := self.known(namespace)) is None:
                generation = self._generation
                place = await self._settled(namespace)
                if self._client.generation == generation:
                    self._known[namespace] = place
            return place

    def forget_location(self, namespace: str) -> None:
        """Forget the location of a namespace: its place has changed, or its index was dropped."""
        self._known.pop(namespace, None)

    def key(self, namespace: str) -> bytes:
        """Return the place key of a namespace."""
        return self._keyspace.record_place(self._family.name, namespace)

    async def promote(self, namespace: str, *, progress: IndexProgress | None) -> None:
        """See `Index.promote`; it can be called again after a crash at any step."""
        named = await self._named(namespace)
        total = await self._size(namespace)
        stages = _StagedProgress(progress, total)
        if named is None:
            named = await self._move_in(namespace, total, stages)
        moved = await self._leave_shared(namespace, total, stages)
        # Each record that left was indexed once more, and counts twice until the server's garbage collector has run.
        if moved or await self._has_outgrown(named, total):
            await self.rebuild(namespace, progress=stages.third)
        stages.end()

    async def rebuild(self, namespace: str | None, *, progress: IndexProgress | None) -> None:
        """See `Index.rebuild`."""
        named = None if namespace is None else await self._named(namespace)
        if namespace is not None and (named is not None or self._on_cluster):
            await self._rebuild_own(namespace, (named or b"").decode(), progress)
        elif not self._on_cluster:
            await self._rebuild_shared(progress)

    async def forget(self, namespace: str) -> None:
        """See `Index.forget`."""
        named = await self._named(namespace)
        await self._client.call("DEL", self.key(namespace))
        self.forget_location(namespace)
        self._settling.pop(namespace, None)
        for name in await self._own_names(namespace, named):
            await self._server.drop(name)

    async def _own_names(self, namespace: str, named: bytes | None) -> list[str]:
        if not self._on_cluster:
            head = self._keyspace.own_index(self._family.name, namespace)
            return [name for name in await self._server.names() if name.startswith(head)]
        build = self._next_build((named or b"").decode())
        return [self._layout.own(namespace, number).name for number in range(max(FIRST_BUILD, build - 1), build + 1)]

    # -- location -----------------------------------------------------------------------------

    async def _named(self, namespace: str) -> bytes | None:
        reply: Reply = await self._client.call("GET", self.key(namespace))
        return reply if isinstance(reply, bytes) else None

    async def _size(self, namespace: str) -> int:
        reply = await self._client.call("ZCARD", self._keyspace.record_log(self._family.name, namespace))
        return reply if isinstance(reply, int) else 0

    async def _settled(self, namespace: str) -> IndexLocation:
        named = await self._named(namespace)
        if named is None and self._on_cluster:
            named = await self._first_own(namespace)
        if named is None:
            facts = await self._shared_by(namespace)
        else:
            facts = await self._own(namespace, named.decode())
        index = self._layout.alias if named is None else facts.name
        if self._learned != self._generation:
            await self._server.learn(index)
            self._learned = self._generation
        return IndexLocation(index, named, facts.algorithm)

    async def _shared_by(self, namespace: str) -> IndexInfo:
        try:
            return await self._shared()
        except AccessDeniedError as error:
            # A Redis user limited by ACL must not read other tenants' records in the shared index.
            family = "" if self._family.name == "memory" else f" --family {self._family.name}"
            advice = (
                f"as a user with more rights, give {namespace!r} an index of its own:"
                f" sharedmem --namespace {namespace} index promote{family}"
            )
            raise AccessDeniedError("the Redis user", self._layout.alias, "search", advice) from error

    async def _shared(self) -> IndexInfo:
        layout, server = self._layout, self._server
        facts = await server.facts(layout.alias)
        if facts is None:
            spec = layout.shared()
            await server.make(spec, "FLAT")
            # Only now may other hubs find it under its alias, since they do not check whether it is complete.
            facts = await server.built(spec.name)
            await server.name_alias(layout.alias, spec.name)
        layout.check(facts, layout.shared())
        return await server.built(layout.alias) if facts.indexing else facts

    async def _own(self, namespace: str, name: str) -> IndexInfo:
        layout, server = self._layout, self._server
        spec = layout.own(namespace)._replace(name=name)
        facts = await server.facts(name)
        if facts is None:
            if not layout.is_ours(name):
                problem = f"index {name} does not exist; `sharedmem index rebuild` makes one for this hub's embedder"
                raise ConfigError("embedder", f"the place of {namespace!r}", problem)
            await server.make(spec, self._algorithm(await self._size(namespace)))
            facts = await server.built(name)
        layout.check(facts, spec)
        return await server.built(name) if facts.indexing else facts

    # -- builds and moves ---------------------------------------------------------------------

    def _algorithm(self, documents: int) -> Algorithm:
        return "HNSW" if documents > self._hnsw_above else "FLAT"

    def _next_build(self, name: str) -> int:
        parsed = self._layout.read_name(name)
        return FIRST_BUILD if parsed is None else parsed.build + 1

    async def _first_own(self, namespace: str) -> bytes | None:
        spec = self._layout.own(namespace)
        await self._server.make(spec, self._algorithm(await self._size(namespace)))
        await self._server.built(spec.name)
        await self._client.call("SET", self.key(namespace), spec.name, "NX")
        return await self._named(namespace)

    async def _move_in(self, namespace: str, total: int, stages: _StagedProgress) -> bytes:
        """Return an own index to begin with: an exact one, which takes the coming changes faster."""
        spec = self._layout.own(namespace)
        await self._build(spec, "FLAT", total, stages.first)
        await self._client.call("SET", self.key(namespace), spec.name)
        self.forget_location(namespace)
        return spec.name.encode()

    async def _build(self, spec: IndexSpec, algorithm: Algorithm, total: int, progress: IndexProgress | None) -> None:
        """Return a complete index; an earlier unfinished build is used if its definition fits."""
        left = await self._server.facts(spec.name)
        if left is not None and not self._is_usable(left, spec, algorithm):
            await self._server.drop(spec.name)
        await self._server.make(spec, algorithm)
        await self._server.built_at_last(spec.name, total=total, progress=progress)

    def _is_usable(self, facts: IndexInfo, spec: IndexSpec, algorithm: Algorithm) -> bool:
        try:
            self._layout.check(facts, spec)
        except ConfigError:
            return False
        return facts.algorithm == algorithm and (facts.dimension > 0) == (self._family.dimension > 0)

    async def _has_outgrown(self, named: bytes, total: int) -> bool:
        if not self._family.dimension:
            return False
        facts = await self._server.facts(named.decode())
        return facts is not None and facts.algorithm == "FLAT" and self._algorithm(total) == "HNSW"

    async def _rebuild_own(self, namespace: str, old: str, progress: IndexProgress | None) -> None:
        total = await self._size(namespace)
        spec = self._layout.own(namespace, self._next_build(old))
        await self._build(spec, self._algorithm(total), total, progress)
        await self._client.call("SET", self.key(namespace), spec.name)
        self.forget_location(namespace)
        if old:
            await self._server.drop(old)

    async def _rebuild_shared(self, progress: IndexProgress | None) -> None:
        layout, server = self._layout, self._server
        old = await server.facts(layout.alias)
        if old is None:
            await self._shared()
            return
        spec = layout.shared(self._next_build(old.name))
        await self._build(spec, "FLAT", old.documents, progress)
        await server.name_alias(layout.alias, spec.name, anew=True)
        self._known.clear()
        await server.drop(old.name)

    async def _leave_shared(self, namespace: str, total: int, stages: _StagedProgress) -> bool:
        """Remove the records from the shared index, page by page; return whether there were any in it."""
        if await self._has_left_shared(namespace):
            return False
        home = self._keyspace.records(self._family.name, namespace).encode()
        cursor, done, moved = b"0", 0, False
        while True:
            cursor, ids = await self._page(namespace, cursor)
            removed = await asyncio.gather(*(self._client.call("HDEL", home + id_, "pool") for id_ in ids))
            moved = moved or 1 in removed
            done += len(ids)
            stages.second(min(done, total))
            if cursor == b"0":
                return moved

    async def _has_left_shared(self, namespace: str) -> bool:
        """Return whether the shared index is known to contain none of its records, so that none need be checked."""
        query = search_by_filter(within_namespace(NO_FILTER, namespace), newest=None, offset=0, limit=0)
        try:
            found = await self._client.call("FT.SEARCH", self._layout.alias, *query)
        except AccessDeniedError:
            return False  # a Redis user limited by ACL may not look there
        except ServerError as error:
            if is_missing(error):
                return True
            raise
        return isinstance(found, list) and found[:1] == [0]

    async def _page(self, namespace: str, cursor: bytes) -> tuple[bytes, list[bytes]]:
        log = self._keyspace.record_log(self._family.name, namespace)
        reply = await self._client.call("ZSCAN", log, cursor, "COUNT", _PAGE)
        assert isinstance(reply, list)
        following, page = reply
        assert isinstance(following, bytes)
        assert isinstance(page, list)
        return following, [id_ for id_ in page[::2] if isinstance(id_, bytes)]


class _StagedProgress:
    """Progress of three stages over the same documents; each stage counts for a third."""

    def __init__(self, progress: IndexProgress | None, total: int) -> None:
        self._progress = progress
        self._total = total

    def first(self, done: int, _: int) -> None:
        self._report(done)

    def second(self, done: int) -> None:
        self._report(self._total + done)

    def third(self, done: int, _: int) -> None:
        self._report(2 * self._total + done)

    def end(self) -> None:
        self._report(3 * self._total)

    def _report(self, done: int) -> None:
        if self._progress:
            self._progress(done // 3, self._total)
