"""Any language reaches all of a store: each public method is an operation, or the reason why it is none is here."""

from __future__ import annotations

import inspect
from functools import cached_property
from typing import Any, cast

import pytest

from sharedmem import SharedMemoryStore
from sharedmem.api import FeedOperation, Operation
from sharedmem.api.operation import feeds, find_operation, operations
from sharedmem.cache.semantic_cache import SemanticCache
from sharedmem.conversations.conversations import Conversations
from sharedmem.coordination.barriers import Barrier
from sharedmem.coordination.presence import Presence
from sharedmem.coordination.queues import TaskQueue
from sharedmem.coordination.rate_limits import RateLimit
from sharedmem.decisions.decisions import Decisions
from sharedmem.durable.admin import NamespaceDurability
from sharedmem.episodes import Episodes
from sharedmem.errors import NotFoundError
from sharedmem.graph.graph import Graph
from sharedmem.memory.memories import Memories
from sharedmem.synthesis.synthesis import Synthesis

FACETS: tuple[type, ...] = (
    SharedMemoryStore,
    Barrier,
    RateLimit,
    Presence,
    TaskQueue,
    Decisions,
    Episodes,
    NamespaceDurability,
    Conversations,
    Memories,
    SemanticCache,
    Graph,
    Synthesis,
)
LOCAL_PARTS = {
    "access": "the rights of this store, for Redis users too; a service answers 403 for what a token may not do",
    "counters": "what this process has counted; a service shows it under /metrics",
    "shared": "the same store on another scope; over HTTP a key says its scope",
}
_MAKES = "makes a local object, whose methods are operations: the fields of its constructor are those of each request"
_HELD = "holds a lock that renews itself for a block of code; elsewhere lease.acquire, lease.renew and lease.release"
_WORKS = "runs work of this process; a service has workers of its own (`sharedmem task work`)"
REASONS = {
    "SharedMemoryStore.barrier": _MAKES,
    "SharedMemoryStore.queue": _MAKES,
    "SharedMemoryStore.rate_limit": _MAKES,
    "SharedMemoryStore.lock": _HELD,
    "SharedMemoryStore.semaphore": _HELD,
    "SharedMemoryStore.rwlock": _HELD,
    "SharedMemoryStore.leader": _HELD,
    "SharedMemoryStore.decr": "counter.increment with a negative `by`",
    "SharedMemoryStore.update": "calls a function with the value; elsewhere value.entry and value.write with If-Match",
    "SharedMemoryStore.once": "runs a function; elsewhere once.begin, once.renew, and once.finish or once.fail",
    "SharedMemoryStore.once_token": "asks inside of the function that `once` runs; elsewhere once.begin returns it",
    "SharedMemoryStore.subscribe": "calls a function with each message; elsewhere the feed message.subscribe",
    "SharedMemoryStore.consumer": "shares a feed among processes for a block; elsewhere change.watch from a cursor",
    "Presence.here": "sends heartbeats for a block of code; elsewhere presence.announce and presence.leave",
    "TaskQueue.claimed": "renews a task for a block of code; elsewhere queue.claim, .renew and .ack",
    "TaskQueue.tasks": "goes on yielding tasks; elsewhere queue.claim again and again",
    "TaskQueue.work": "calls a function with each task; elsewhere queue.claim and queue.ack",
    "Decisions.executing": "renews a claim for a block of code; elsewhere execution.begin, .renew and .finish",
    "NamespaceDurability.check_writes_all": "asks what this store may; a service answers 403",
    "Memories.within": "narrows a local object; elsewhere the filters of each request",
    "Memories.export": "yields all memories one by one; elsewhere memory.list page by page",
    "SemanticCache.cached": "decorates a function; elsewhere cache.check and cache.put",
    "Graph.using": "sets relations and an extractor, which are objects, for this process",
    "Synthesis.batcher": "gathers messages in this process; elsewhere the client does so before synthesis.add_memory",
    "Synthesis.generate_evolution_graph": "draws notes that the caller has; by id it is an operation",
    "Synthesis.wait": "synthesis.get_task_status with `wait`",
    "Synthesis.start": _WORKS,
    "Synthesis.drain": _WORKS,
    "Synthesis.work_once": _WORKS,
    "Synthesis.warm_up": "loads the models of this process",
}


def public_methods(facet: type) -> dict[str, object]:
    """The public methods of a facet, by `<Facet>.<name>`, as functions."""
    found = {name: inspect.getattr_static(facet, name) for name in dir(facet) if not name.startswith("_")}
    return {f"{facet.__name__}.{name}": one for name, one in found.items() if inspect.isfunction(one)}


METHODS = {name: method for facet in FACETS for name, method in public_methods(facet).items()}
ROWS: list[Operation[Any] | FeedOperation[Any]] = [*operations().values(), *feeds().values()]
OFFERED = {inspect.unwrap(row.method) for row in ROWS}


def test_each_public_method_is_an_operation_or_has_a_reason() -> None:
    without = {name for name, method in METHODS.items() if inspect.unwrap(method) not in OFFERED}  # type: ignore[arg-type]  # a function

    assert without - REASONS.keys() == set()
    assert REASONS.keys() - without == set()


def test_each_part_of_a_store_is_looked_at() -> None:
    parts = {}
    for name in dir(SharedMemoryStore):
        part = inspect.getattr_static(SharedMemoryStore, name)
        if isinstance(part, cached_property | property) and not name.startswith("_"):
            getter = part.func if isinstance(part, cached_property) else part.fget
            parts[name] = str(cast("Any", getter).__annotations__["return"])

    objects = {name: kind for name, kind in parts.items() if kind not in {"str", "str | None", "bool"}}
    assert {name for name, kind in objects.items() if kind not in {facet.__name__ for facet in FACETS}} <= {
        *LOCAL_PARTS
    }


@pytest.mark.parametrize("name", sorted({old for row in operations().values() for old in row.former_names}))
def test_a_former_name_finds_its_operation(name: str) -> None:
    assert name not in operations()
    assert name in find_operation(name).former_names


def test_a_name_that_never_was_is_refused() -> None:
    with pytest.raises(NotFoundError, match=r"graph\.gossip"):
        find_operation("graph.gossip")


def test_former_routes_are_of_nothing_else() -> None:
    routes = [row.http for row in operations().values()]
    former = [route for row in operations().values() for route in row.former_routes]
    known = [(route.method, route.path) for route in (*routes, *former)]

    assert len(set(known)) == len(known)
