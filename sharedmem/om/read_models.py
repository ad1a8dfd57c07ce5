"""`om.models(store)`: read models of what a store remembers, decides and records.

Records are read by their ids in the index, within the rights of the store. The models come last: what each consists of,
what its index has, and the calls of the store that change its records.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property, partial
from typing import Any, Protocol

from sharedmem.cache.repository import CacheRepository
from sharedmem.errors import InvalidError, NotFoundError, UnsupportedError
from sharedmem.graph.access import EntityLookup, GraphAccess
from sharedmem.graph.backends import open_backend
from sharedmem.graph.backends.redis_layout import decode_group, make_record_id, search_scope, stamp_ms
from sharedmem.graph.records import KindCode, LookupRequest, to_latest_fact, to_stamp
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.memory.access import MemoryAccess
from sharedmem.memory.reader import MemoryReader
from sharedmem.models import CacheEntry, Entity, Fact, MemoryItem, Note, PlanRecord
from sharedmem.models.record import Record
from sharedmem.om import library
from sharedmem.om.expressions import IndexedFields, IndexedNumber, IndexedTag, IndexedWords, Scalar
from sharedmem.om.query import CalledStore, Caller, ObjectSource, Query
from sharedmem.om.record_sources import (
    DISTANCE,
    Build,
    EventRecords,
    IndexedSource,
    ModelSpec,
    PlanRecords,
    RecordReader,
    SessionEvent,
    SessionRecords,
    WalkedSource,
    record_fields,
)
from sharedmem.redis.scope import Scope
from sharedmem.search.protocol import Every, Index, Tagged
from sharedmem.store import require_memory
from sharedmem.synthesis.note_repository import NOTES_COLLECTION, RedisNoteRepository
from sharedmem.synthesis.note_serialization import record_name, unescape_app
from sharedmem.text.analysis import indexed_terms


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


# -- readers of records ---------------------------------------------------------------------------


class MemoryRecords:
    """The memories of a namespace, as `RecordReader` describes it."""

    def __init__(self, context: KnowledgeContext, scope: Scope) -> None:
        self._access = MemoryAccess(context, scope)
        self._reader = MemoryReader(self._access)
        self.index: Index = context.memories

    async def enter(self) -> None:
        """Check that the store may read memories."""
        await self._access.enter("read")

    async def narrowed(self, filters: Every) -> Every:
        """Return the filters: the index is of memories alone."""
        return filters

    async def read(self, ids: Sequence[str]) -> list[tuple[str, Record]]:
        """Return memories. One round trip."""
        return [(one.item.id, one.item) for one in await self._reader.fetch(ids)]

    async def ids_of(self, key: str) -> list[str]:
        """Return the key: it is the id."""
        return [key]


class CachedAnswerRecords:
    """The cached answers of a namespace, as `RecordReader` describes it."""

    def __init__(self, context: KnowledgeContext, scope: Scope) -> None:
        self._answers = CacheRepository(context, scope)
        self.index: Index = context.answers

    async def enter(self) -> None:
        """Check that the store may read the cache."""
        _ = self._answers.may_read

    async def narrowed(self, filters: Every) -> Every:
        """Return the filters: the index is of answers alone."""
        return filters

    async def read(self, ids: Sequence[str]) -> list[tuple[str, Record]]:
        """Return answers. One round trip."""
        return [(one.id, one) for one in await self._answers.entries(ids)]

    async def ids_of(self, key: str) -> list[str]:
        """Return the key: it is the id."""
        return [key]


class NoteRecords:
    """The synthesised notes of a namespace, as `RecordReader` describes it."""

    def __init__(self, context: KnowledgeContext, scope: Scope) -> None:
        self._scope = scope
        self._notes = RedisNoteRepository(context, scope)
        self.index: Index = context.notes

    async def enter(self) -> None:
        """Check that the store may read notes."""
        self._scope.common(NOTES_COLLECTION, "read")

    async def narrowed(self, filters: Every) -> Every:
        """Return the filters: the index is of notes alone."""
        return filters

    async def read(self, ids: Sequence[str]) -> list[tuple[str, Record]]:
        """Return notes. One round trip an app."""
        by_app: defaultdict[str, list[str]] = defaultdict(list)
        for named in ids:
            app, _, id_ = named.partition("/")
            by_app[unescape_app(app)].append(id_)
        found: dict[str, Record] = {}
        for app_id, some in by_app.items():
            notes = await self._notes.get(app_id, some)
            found |= {record_name(app_id, id_): note for id_, note in notes.items()}
        return [(named, found[named]) for named in ids if named in found]

    async def ids_of(self, key: str) -> list[str]:
        """Return where a note of this id may be: in any app. One round trip."""
        return [record_name(app_id, key) for app_id in await self._notes.apps()]


# -- readers of graphs ----------------------------------------------------------------------------


SCOPE_TAG = "shelf"
"""The tag with the group and the kind of a record."""
_MOST_GROUPS = 1000


def graph_moment(at: datetime) -> float:
    """The number of a time as the index of graphs has it."""
    return stamp_ms(to_stamp("time", at))


def group_scopes(value: Scalar, letters: tuple[KindCode, ...]) -> tuple[str, ...] | None:
    """Return the values of the tag for a group."""
    return tuple(search_scope(value, letter) for letter in letters) if isinstance(value, str) else None


class GraphRecords:
    """The entities or the facts of a namespace's graphs, as `RecordReader` describes it.

    Args:
        context: what the hub shares with its stores.
        scope: whose rights.
        kind: `n` for entities, `f` for facts.
    """

    def __init__(self, context: KnowledgeContext, scope: Scope, kind: KindCode) -> None:
        self._access = GraphAccess(context, scope)
        self._backend = open_backend(context, scope)
        self._lookup = EntityLookup(self._backend)
        self._kind = kind
        self.letters: tuple[KindCode, ...] = ("f", "p") if kind == "f" else (kind,)
        self.index: Index = context.graphs

    async def enter(self) -> None:
        """Check that the store may read graphs.

        Raises:
            AccessDeniedError: it may not.
            UnsupportedError: the graphs are in another database than Redis.
        """
        await self._access.enter_namespace()
        if self._backend.name != "redis":
            remedy = "use store.graph, which searches there; or the backend `redis`"
            raise UnsupportedError(f"read models of graphs in {self._backend.name}", remedy)

    async def narrowed(self, filters: Every) -> Every:
        """Return the filters with the groups of the namespace. One round trip unless they name groups themselves."""
        if any(isinstance(one, Tagged) and one.field == SCOPE_TAG for one in filters.conditions):
            return filters
        groups = await self._backend.groups()
        if len(groups) > _MOST_GROUPS:
            raise InvalidError("condition", "group_id", f"name the groups: there are more than {_MOST_GROUPS}")
        scopes = tuple(search_scope(group, letter) for group in sorted(groups) for letter in self.letters)
        return filters.also(Tagged(SCOPE_TAG, scopes))

    async def read(self, ids: Sequence[str]) -> list[tuple[str, Record]]:
        """Return entities with their attributes of now, or facts as they are known now. A few round trips a group."""
        by_group: defaultdict[str, list[str]] = defaultdict(list)
        for named in ids:
            group, kind, id_ = named.split("/", 2)
            if kind == self._kind:
                by_group[decode_group(group)].append(id_)
        found: dict[str, Record] = {}
        for group, some in by_group.items():
            records = await (self._facts(group, some) if self._kind == "f" else self._entities(group, some))
            found |= {make_record_id(group, self._kind, id_): record for id_, record in records.items()}
        return [(named, found[named]) for named in ids if named in found]

    async def ids_of(self, key: str) -> list[str]:
        """Return where a record of this id may be: in any group. One round trip."""
        return [make_record_id(group, self._kind, key) for group in sorted(await self._backend.groups())]

    async def _facts(self, group: str, ids: Sequence[str]) -> dict[str, Record]:
        seen = await self._backend.look(group, LookupRequest(facts=tuple(ids)))
        return {id_: to_latest_fact(row, group) for id_, row in seen.facts.items()}

    async def _entities(self, group: str, ids: Sequence[str]) -> dict[str, Record]:
        seen = await self._backend.look(group, LookupRequest(entities=tuple(ids)))
        now = self._access.point_in_time(None, None)
        entities = await self._lookup.entities(group, list(seen.entities.values()), now) if seen.entities else []
        return {entity.id: entity for entity in entities}


# -- the models -----------------------------------------------------------------------------------


_MEMORY_TAGS = {
    "user_id": "user",
    "agent_id": "agent",
    "thread_id": "thread",
    "run_id": "run",
    "category": "category",
    "importance": "importance",
    "memory_type": "type",
    "entity_id": "entity",
    "source_actor": "source",
    "tags": "tags",
    "collections": "collections",
}
_NOTE_TAGS = {"app_id": "app", "user_id": "user", "session_id": "session", "status": "status"}
_AT = "at"


def _query_terms(namespace: str, text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(indexed_terms(text, namespace).split()))


def _indexed(
    tags: Mapping[str, str], numbers: Mapping[str, str], words: tuple[str, ...], namespace: str
) -> IndexedFields:
    return {
        **{(name,): IndexedTag(tag) for name, tag in tags.items()},
        **{(name,): IndexedNumber(number) for name, number in numbers.items()},
        **{(name,): IndexedWords(partial(_query_terms, namespace)) for name in words},
    }


def _indexed_by(tags: Mapping[str, str], numbers: Mapping[str, str], *words: str) -> Callable[[str], IndexedFields]:
    return partial(_indexed, tags, numbers, words)


def _indexed_entities(namespace: str) -> IndexedFields:
    of_group = IndexedTag(SCOPE_TAG, partial(group_scopes, letters=("n",)))
    return {**_indexed({}, {"recorded_at": _AT}, ("name", "summary"), namespace), ("group_id",): of_group}


def _indexed_facts(namespace: str) -> IndexedFields:
    of_group = IndexedTag(SCOPE_TAG, partial(group_scopes, letters=("f", "p")))
    return {**_indexed({}, {}, ("fact",), namespace), ("group_id",): of_group}


MEMORY = ModelSpec(
    name="Memory",
    doc="A memory of the store, as `store.memory` returns it.",
    fields=record_fields(MemoryItem, has_vector=True),
    indexed=_indexed_by(_MEMORY_TAGS, {"timestamp": _AT}, "memory", "content"),
    numbers={"timestamp": _AT},
    instead={
        "save": "store.memory.add(...)",
        "update": "store.memory.update(id, ...)",
        "delete": "store.memory.delete(id)",
    },
)
CACHED_ANSWER = ModelSpec(
    name="CachedAnswer",
    doc="An answer of the semantic cache.",
    fields=record_fields(CacheEntry, has_vector=True),
    indexed=_indexed_by({"tags": "tags"}, {}),
    instead={
        "save": "store.cache.put(prompt, response)",
        "update": "store.cache.put(prompt, response)",
        "delete": "store.cache.invalidate(prompt=...)",
    },
)
NOTE = ModelSpec(
    name="Note",
    doc="A note that synthesis has made of conversations.",
    fields=record_fields(Note, has_vector=True),
    indexed=_indexed_by(_NOTE_TAGS, {"created_at": _AT}, "memory_note"),
    numbers={"created_at": _AT},
    instead={
        "save": "store.synthesis.add_memory(...)",
        "update": "store.synthesis.update_memory_status(id, ...)",
        "delete": "store.synthesis.delete_memory(id, app_id=...)",
    },
)
ENTITY = ModelSpec(
    name="Entity",
    doc="An entity of a knowledge graph, with its attributes of now.",
    fields=record_fields(Entity, has_vector=True),
    indexed=_indexed_entities,
    numbers={"recorded_at": _AT},
    moment=graph_moment,
    instead={
        "save": "store.graph.add_entity(...)",
        "update": "store.graph.add_entity(...)",
        "delete": "store.graph.merge(...) or store.graph.delete_by_group(group_id)",
    },
)
FACT = ModelSpec(
    name="Fact",
    doc="A fact of a knowledge graph, as it is known now.",
    fields=record_fields(Fact, has_vector=True),
    indexed=_indexed_facts,
    moment=graph_moment,
    instead={
        "save": "store.graph.add_relationship(...)",
        "update": "store.graph.add_relationship(...)",
        "delete": "store.graph.invalidate(fact_id, group_id=...)",
    },
)
PLAN = ModelSpec(
    name="Plan",
    doc="A plan of the decision log.",
    fields=record_fields(PlanRecord, key="plan_id"),
    indexed=_indexed_by({"session_id": "session"}, {}),
    instead={
        "save": "store.decisions.save_plan(...)",
        "update": "store.decisions.save_plan(...): a plan never changes",
        "delete": "store.decisions.forget(session)",
    },
)
EPISODE = ModelSpec(
    name="Episode",
    doc="An event of a session, as `store.episodes` keeps it.",
    fields=record_fields(SessionEvent),
    indexed=_indexed_by({"session": "session"}, {}),
    instead={
        "save": "store.episodes.append_event(session, event)",
        "update": "store.episodes.append_event(session, event): an event never changes",
        "delete": "store.clear(), or let the session expire",
    },
)
