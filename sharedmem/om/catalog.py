"""The read models: what each consists of, what its index has, and the calls of the store that change its records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from sharedmem.models import CacheEntry, Entity, Fact, MemoryItem, Note, PlanRecord
from sharedmem.om.compiler import IndexedFields, IndexedNumber, IndexedTag, IndexedWords
from sharedmem.om.graph_readers import SCOPE_TAG, graph_moment, group_scopes
from sharedmem.om.model_spec import ModelSpec, record_fields
from sharedmem.om.walked_sources import SessionEvent
from sharedmem.text.analysis import indexed_terms

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
