"""`om.models(store)`: read models of what a store remembers, decides and records."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Protocol

from sharedmem.errors import InvalidError, NotFoundError
from sharedmem.models.record import Record
from sharedmem.om import library
from sharedmem.om.callers import CalledStore, Caller
from sharedmem.om.catalog import CACHED_ANSWER, ENTITY, EPISODE, FACT, MEMORY, NOTE, PLAN
from sharedmem.om.graph_readers import GraphRecords
from sharedmem.om.model_spec import DISTANCE, ModelSpec
from sharedmem.om.query import ObjectSource, Query
from sharedmem.om.record_readers import CachedAnswerRecords, MemoryRecords, NoteRecords
from sharedmem.om.record_sources import Build, IndexedSource, RecordReader
from sharedmem.om.walked_sources import EventRecords, PlanRecords, SessionRecords, WalkedSource
from sharedmem.store import require_memory


class ReadSource(ObjectSource[Any], Protocol):
    """Where the objects of a read model come from."""

    async def get(self, key: str) -> Any:
        """Return the object of a key; None if it does not exist."""


class Models:
    """The read models of one store: each finds the records of its namespace that the store may read, and changes none.

    Args:
        store: whose records.
    """

    def __init__(self, store: CalledStore) -> None:
        self._parts, self._caller = store

    @cached_property
    def Memory(self) -> Any:  # noqa: N802  # a class
        """Memories (`store.memory`)."""
        require_memory("the model Memory", "memory")
        return self._indexed(MEMORY, MemoryRecords(self._parts.knowledge(), self._parts.scope))

    @cached_property
    def CachedAnswer(self) -> Any:  # noqa: N802  # a class
        """Answers of the semantic cache (`store.cache`)."""
        require_memory("the model CachedAnswer", "memory")
        return self._indexed(CACHED_ANSWER, CachedAnswerRecords(self._parts.knowledge(), self._parts.scope))

    @cached_property
    def Note(self) -> Any:  # noqa: N802  # a class
        """Synthesised notes (`store.synthesis`)."""
        require_memory("the model Note", "memory")
        return self._indexed(NOTE, NoteRecords(self._parts.knowledge(), self._parts.scope))

    @cached_property
    def Entity(self) -> Any:  # noqa: N802  # a class
        """Entities of the knowledge graphs (`store.graph`)."""
        require_memory("the model Entity", "memory")
        return self._indexed(ENTITY, GraphRecords(self._parts.knowledge(), self._parts.scope, "n"))

    @cached_property
    def Fact(self) -> Any:  # noqa: N802  # a class
        """Facts of the knowledge graphs (`store.graph`)."""
        require_memory("the model Fact", "memory")
        return self._indexed(FACT, GraphRecords(self._parts.knowledge(), self._parts.scope, "f"))

    @cached_property
    def Plan(self) -> Any:  # noqa: N802  # a class
        """Plans of the decision log (`store.decisions`)."""
        return self._walked(PLAN, PlanRecords(self._parts.context, self._parts.scope))

    @cached_property
    def Episode(self) -> Any:  # noqa: N802  # a class
        """Events of sessions (`store.episodes`)."""
        return self._walked(EPISODE, EventRecords(self._parts.context, self._parts.scope))

    def _indexed(self, spec: ModelSpec, reader: RecordReader) -> Any:
        def make(build: Build) -> IndexedSource:
            return IndexedSource(self._parts.knowledge(), self._parts.scope.identity.namespace, spec, reader, build)

        return _make(spec, make, self._caller)

    def _walked(self, spec: ModelSpec, records: SessionRecords) -> Any:
        return _make(spec, lambda build: WalkedSource(spec, records, build), self._caller)

    def __repr__(self) -> str:
        return f"<Models of {self._parts.scope.identity.namespace}>"


def _make(spec: ModelSpec, make_source: Callable[[Build], ReadSource], caller: Caller) -> Any:
    """Return the class of a model.

    Args:
        spec: of the model.
        make_source: makes the source of its objects, of how these are built.
        caller: runs its calls.
    """
    model: Any = None

    def build(record: Record, distance: float | None) -> Any:
        values = {name: getattr(record, name) for name in spec.fields if name in type(record).model_fields}
        return library.construct(model, values if distance is None else values | {DISTANCE: distance})

    source = make_source(build)

    class ReadModel:
        """What a read model does in place of redis-om."""

        @classmethod
        def find(cls, *conditions: Any, knn: Any = None) -> Any:
            """Return a query for the objects that meet all conditions; nothing is sent yet.

            Args:
                conditions: comparisons of fields, such as `Memory.user_id == "ada"`, joined by `&`, `|` and `~`.
                knn: a `KNNExpression` of redis-om; `Query.nearest` is shorter.

            Raises:
                InvalidError: a condition is not one, or compares with what is not a value.
            """
            query: Query[Any] = Query(source, library.read_expressions(conditions, source.names, source.moment))
            return caller.query(query if knn is None else query.nearest_by(library.read_nearest(knn, source.names)))

        @classmethod
        def get(cls, pk: str) -> Any:
            """Return the object of a key.

            Raises:
                NotFoundError: it does not exist, or the store may not read it.
            """
            return caller.call(_get(source, pk))

    for call in ("save", "update", "delete", "add", "delete_many", "expire", "db"):
        setattr(ReadModel, call, _refused(spec, call))
    model = library.make_model(spec.name, spec.doc, spec.fields, ReadModel)
    return model


def _refused(spec: ModelSpec, call: str) -> Any:
    def refuse(*_args: object, **_named: object) -> None:
        raise spec.refuse(call)

    refuse.__doc__ = "Raise UnsupportedError, which names the call of the store to use instead."
    return staticmethod(refuse)


async def _get(source: ReadSource, key: str) -> Any:
    if not isinstance(key, str) or not key:
        raise InvalidError("pk", key, "give a text that is not empty")
    await source.enter()
    found = await source.get(key)
    if found is None:
        raise NotFoundError(source.name, key, "check the key, or look for it with find()")
    return found
