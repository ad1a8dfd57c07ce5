"""Create, drop, wait for and inspect indexes on the server: their names, definitions, and whether an existing one fits.

The shared index of a family is searched under an alias, so that it can be rebuilt beside itself: the index behind the
alias is named `<head><model>:<dimension>:v<schema>:<build>`. The place key of a namespace has the full name of its own.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from sharedmem.errors import ConfigError, SharedMemoryError, UnavailableError
from sharedmem.models import IndexStatus
from sharedmem.record_family import RecordFamily
from sharedmem.redis.client import RedisClient
from sharedmem.redis.keys import KeySpace
from sharedmem.redis.replies import Argument, Command, Reply, ServerError, public_error
from sharedmem.search.protocol import IndexProgress
from sharedmem.search.redisearch.queries import parse_pairs
from sharedmem.text.analysis import TAG_SEPARATOR

Algorithm = Literal["FLAT", "HNSW"]
FIRST_BUILD = 1
_ALIAS = "current"
_NO_MODEL = "words"
_NAME = re.compile(r":(?P<model>[^:]*):(?P<dimension>\d+):v(?P<schema>\d+):(?P<build>\d+)")
# A record under another namespace's keys does not belong to a namespace, whatever its fields claim. A name contains no
# brace, so it is the key's own if the key begins with it.
_OWN_ONLY = 'exists(@pool) && exists(@ns) && !contains(@ns, "}}") && startswith(@__key, format("{head}%s}}:", @ns))'
# With EF_CONSTRUCTION 200 a vector takes 1.6 times as long to place, and of 100 nearest ones 0.5 more are found.
_HNSW_OPTIONS = ("M", 16, "EF_RUNTIME", 100, "EF_CONSTRUCTION", 100)
_FLAT_OPTIONS = ("BLOCK_SIZE", 1000)
"""Vectors of one allocation. With 1024, the default, an allocation is a little larger than a power of two, and the
allocator rounds it up by a fourth."""


class IndexSpec(NamedTuple):
    """One index: its name and definition."""

    name: str
    prefix: str
    """Prefix of its records' keys."""
    shares: bool
    """Whether several namespaces share it."""


class IndexInfo(NamedTuple):
    """The state of an index, as the server reports it."""

    name: str
    """The real name, also if it was requested by its alias."""
    documents: int
    failures: int
    indexing: bool
    percent: float
    bytes: int
    algorithm: Algorithm
    dimension: int
    """0 without vectors."""
    metric: str
    prefixes: tuple[str, ...]
    filter: str
    """The filter for its documents; empty for all under the prefixes."""
    fields: frozenset[tuple[str, str]]
    """(name, type) of each."""
    failed_key: str
    """Key of the last record that could not be indexed."""
    failed_why: str


class IndexName(NamedTuple):
    """The parts of the name of an index."""

    model: str
    dimension: int
    schema_version: int
    build: int


class IndexLayout:
    """How the indexes of one family are laid out.

    Args:
        keyspace: builds keys.
        family: the record family of the index.
    """

    def __init__(self, keyspace: KeySpace, family: RecordFamily) -> None:
        self._keyspace = keyspace
        self._family = family
        self.alias = f"{keyspace.shared_index(family.name)}{_ALIAS}"
        """The alias of the shared index."""

    def shared(self, build: int = FIRST_BUILD) -> IndexSpec:
        """Return the index that small namespaces share."""
        family = self._family.name
        return IndexSpec(
            f"{self._keyspace.shared_index(family)}{self._tail(build)}", self._keyspace.family(family), True
        )

    def own(self, namespace: str, build: int = FIRST_BUILD) -> IndexSpec:
        """Return a namespace's own index."""
        family = self._family.name
        head = self._keyspace.own_index(family, namespace)
        return IndexSpec(f"{head}{self._tail(build)}", self._keyspace.records(family, namespace), False)

    def creation(self, spec: IndexSpec, algorithm: Algorithm) -> Command:
        """Return the command that creates an index."""
        only = ("FILTER", self._filter(spec)) if spec.shares else ()
        head = ("FT.CREATE", spec.name, "ON", "HASH", "PREFIX", 1, spec.prefix, *only, "NOOFFSETS", "NOHL")
        tags = [word for tag in self._family.tags for word in (tag, "TAG", "SEPARATOR", TAG_SEPARATOR, "CASESENSITIVE")]
        numbers = [word for number in self._family.numbers for word in (number, "NUMERIC", "SORTABLE")]
        words = ("terms", "TEXT", "NOSTEM", *tags, *numbers, *self._vector(algorithm))
        return (*head, "STOPWORDS", 0, "SCHEMA", *words)

    def read_name(self, name: str) -> IndexName | None:
        """Parse the name of one of the family's indexes; None for any other name."""
        tail = f":{':'.join(name.rsplit(':', 4)[1:])}"
        found = _NAME.fullmatch(tail)
        if found is None:
            return None
        return IndexName(found["model"], int(found["dimension"]), int(found["schema"]), int(found["build"]))

    def is_ours(self, name: str) -> bool:
        """Return whether this family would create an index of that name."""
        parsed = self.read_name(name)
        wanted = (self._slug(), self._family.dimension, self._family.schema_version)
        return parsed is not None and parsed[:3] == wanted

    def check(self, facts: IndexInfo, spec: IndexSpec) -> None:
        """Reject an index whose definition does not fit this family.

        Raises:
            ConfigError: the message names the existing and the expected value.
        """
        parsed = self.read_name(facts.name)
        for what, there, wanted, setting in self._compared(facts, parsed, spec):
            if there != wanted:
                advice = f"`{self._rebuilding(spec)}` rebuilds it, and deletes no records"
                raise ConfigError(
                    setting, f"index {facts.name}", f"it has {what} {there}, this hub expects {wanted}; {advice}"
                )

    def _rebuilding(self, spec: IndexSpec) -> str:
        """Return the command line that rebuilds an index."""
        namespace = spec.prefix.partition("{")[2].rpartition("}")[0]
        family = "" if self._family.name == "memory" else f" --family {self._family.name}"
        return f"sharedmem index rebuild {'--shared' if spec.shares else f'-n {namespace}'}{family}"

    def model_of(self, name: str) -> str:
        """Return the embedder of an index's vectors, from the name of the index."""
        parsed = self.read_name(name)
        if parsed is None:
            return ""
        return self._family.model if parsed.model == self._slug() else parsed.model.removeprefix(_NO_MODEL)

    def _compared(
        self, facts: IndexInfo, parsed: IndexName | None, spec: IndexSpec
    ) -> list[tuple[str, object, object, str]]:
        family = self._family
        rows: list[tuple[str, object, object, str]] = []
        # A hub that searches by words alone can use any index.
        if family.dimension:
            model = parsed.model if parsed else ""
            rows += (
                ("vectors of dimension", facts.dimension, family.dimension, "embedder"),
                ("vectors of the model", model, self._slug(), "embedder"),
                ("the metric", facts.metric, "COSINE", "embedder"),
            )
        schema = parsed.schema_version if parsed else 0
        lacking = sorted(f"{name} ({kind})" for name, kind in self._fields() - facts.fields)
        return [
            *rows,
            ("schema version", schema, family.schema_version, "search index"),
            ("the fields", f"none named {', '.join(lacking)}" if lacking else "all", "all", "search index"),
            ("documents under", facts.prefixes, (spec.prefix,), "search index"),
            ("the filter", facts.filter, self._filter(spec), "search index"),
        ]

    def _filter(self, spec: IndexSpec) -> str:
        return _OWN_ONLY.format(head=spec.prefix) if spec.shares else ""

    def _fields(self) -> frozenset[tuple[str, str]]:
        family = self._family
        tags, numbers = ((tag, "TAG") for tag in family.tags), ((number, "NUMERIC") for number in family.numbers)
        return frozenset((("terms", "TEXT"), *tags, *numbers))

    def _vector(self, algorithm: Algorithm) -> tuple[Argument, ...]:
        if not self._family.dimension:
            return ()
        own = _HNSW_OPTIONS if algorithm == "HNSW" else _FLAT_OPTIONS
        options = ("TYPE", "FLOAT16", "DIM", self._family.dimension, "DISTANCE_METRIC", "COSINE", *own)
        return ("vector", "VECTOR", algorithm, len(options), *options)

    def _tail(self, build: int) -> str:
        return f"{self._slug()}:{self._family.dimension}:v{self._family.schema_version}:{build}"

    def _slug(self) -> str:
        if not self._family.dimension:
            return _NO_MODEL
        return re.sub(r"[^A-Za-z0-9._-]+", "-", self._family.model)


def parse_index_info(reply: Reply) -> IndexInfo:
    """Parse the reply of `FT.INFO`."""
    info = parse_pairs(reply)
    attributes = [parse_pairs([word for word in row if not isinstance(word, list)]) for row in info["attributes"]]
    vector: dict[str, Any] = next((row for row in attributes if row.get("type") == b"VECTOR"), {})
    definition = parse_pairs(info["index_definition"])
    errors = parse_pairs(info.get("Index Errors", []))
    return IndexInfo(
        name=info["index_name"].decode(),
        documents=int(float(info["num_docs"])),
        failures=int(float(info["hash_indexing_failures"])),
        indexing=bool(int(float(info["indexing"]))),
        percent=float(info["percent_indexed"]),
        bytes=_index_bytes(info),
        algorithm="HNSW" if vector.get("algorithm") == b"HNSW" else "FLAT",
        dimension=int(vector.get("dim", 0)),
        metric=vector.get("distance_metric", b"").decode(),
        prefixes=tuple(prefix.decode() for prefix in definition["prefixes"]),
        filter=definition.get("filter", b"").decode(),
        fields=frozenset((row["attribute"].decode(), row["type"].decode()) for row in attributes),
        failed_key=errors.get("last indexing error key", b"").decode(errors="replace"),
        failed_why=errors.get("last indexing error", b"").decode(errors="replace"),
    )


def _index_bytes(info: dict[str, Any]) -> int:
    sizes = (info.get("total_index_memory_sz_mb"), info.get("vector_index_sz_mb"))
    found = [float(size) for size in sizes if size is not None]
    return round(sum(size for size in found if size == size) * 1_048_576)  # noqa: PLR0124  # leaves out NaN


# -- indexes on the server -----------------------------------------------------------------------


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
