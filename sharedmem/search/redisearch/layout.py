"""Names and definitions of indexes, and whether an existing index fits: no I/O.

The shared index of a family is searched under an alias, so that it can be rebuilt beside itself: the index behind the
alias is named `<head><model>:<dimension>:v<schema>:<build>`. The place key of a namespace has the full name of its own.
"""

from __future__ import annotations

import re
from typing import Any, Literal, NamedTuple

from sharedmem.errors import ConfigError
from sharedmem.record_family import RecordFamily
from sharedmem.redis.keys import KeySpace
from sharedmem.redis.replies import Argument, Command, Reply
from sharedmem.search.protocol import SEPARATOR
from sharedmem.search.redisearch.queries import parse_pairs

Algorithm = Literal["FLAT", "HNSW"]
FIRST_BUILD = 1
_ALIAS = "current"
_NO_MODEL = "words"
_NAME = re.compile(r":(?P<model>[^:]*):(?P<dimension>\d+):v(?P<schema>\d+):(?P<build>\d+)")
# A record under another namespace's keys does not belong to a namespace, whatever its fields claim. A name contains no
# brace, so it is the key's own if the key begins with it.
_OWN_ONLY = 'exists(@pool) && exists(@ns) && !contains(@ns, "}}") && startswith(@__key, format("{head}%s}}:", @ns))'
_HNSW_OPTIONS = ("M", 16, "EF_RUNTIME", 100)


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
        tags = [word for tag in self._family.tags for word in (tag, "TAG", "SEPARATOR", SEPARATOR, "CASESENSITIVE")]
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
        options: tuple[Argument, ...] = ("TYPE", "FLOAT16", "DIM", self._family.dimension, "DISTANCE_METRIC", "COSINE")
        if algorithm == "HNSW":
            options = (*options, *_HNSW_OPTIONS, "EF_CONSTRUCTION", self._family.ef_construction)
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
