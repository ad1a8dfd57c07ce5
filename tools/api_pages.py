"""The pages of the API reference: the public classes of each page."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

from introspect import is_ours, own_members

import sharedmem
import sharedmem.client
import sharedmem.config
import sharedmem.models
from sharedmem.actor import AgentMemory, DecisionLog
from sharedmem.cache import SemanticCache
from sharedmem.client import operations
from sharedmem.client.http_protocol import ListPage
from sharedmem.client.service import ServiceFeeds
from sharedmem.data.keys import Access
from sharedmem.graph.graph import Graph
from sharedmem.indexes import Indexes
from sharedmem.memory.memories import Memories
from sharedmem.memory.rollups import MemoryRollups
from sharedmem.om.bound_models import BoundModel
from sharedmem.om.query import Query
from sharedmem.om.read_models import Models
from sharedmem.providers.protocol import Embedder, LanguageModel
from sharedmem.runtime import Counters
from sharedmem.synthesis.synthesis import Synthesis

_BASES = {"ServiceOperations"}
_NAME = re.compile(r"\b[A-Z]\w+\b")


class Page(NamedTuple):
    """A page of classes; `guide` is the page of docs/ that explains them with examples."""

    file: str
    title: str
    about: str
    guide: str
    roots: tuple[type, ...]


PAGES = (
    Page("hub", "Hub", "the connection of a process", "concepts", (sharedmem.Hub, Counters, Indexes)),
    Page(
        "store",
        "Store",
        "values, lists, hashes, sets, counters, messages, change feed; and access to locks, queues and the rest",
        "concepts",
        (sharedmem.SharedMemoryStore, Access, sharedmem.Grant),
    ),
    Page(
        "coordination",
        "Leases, queues, limits, barriers, presence",
        "the objects that `store.lock`, `store.queue` and the like return",
        "locks",
        (
            sharedmem.Lease,
            sharedmem.ReadWriteLock,
            sharedmem.Candidacy,
            sharedmem.TaskQueue,
            sharedmem.ClaimedTask,
            sharedmem.RateLimit,
            sharedmem.Barrier,
            sharedmem.Presence,
        ),
    ),
    Page(
        "memory",
        "Memory",
        "`store.memory`: sentences, found by meaning and by words",
        "memory",
        (Memories, MemoryRollups),
    ),
    Page("cache", "Semantic cache", "`store.cache`: answers of models", "cache", (SemanticCache,)),
    Page("graph", "Knowledge graph", "`store.graph`: entities and dated facts", "graph", (Graph,)),
    Page("synthesis", "Synthesis", "`store.synthesis`: notes of conversations", "synthesis", (Synthesis,)),
    Page(
        "decisions",
        "Decisions",
        "`store.decisions`: plans and their executions",
        "decisions",
        (sharedmem.Decisions, sharedmem.Execution),
    ),
    Page(
        "conversations",
        "Conversations",
        "`store.conversations`: logs of entries with a revision, forks, and a state",
        "conversations",
        (sharedmem.Conversations,),
    ),
    Page("episodes", "Session logs", "`store.episodes`: events by session", "episodes", (sharedmem.Episodes,)),
    Page(
        "durable",
        "Durable tier",
        "`hub.durable` and `store.durable`: the tier behind Redis",
        "durable",
        (sharedmem.DurableAdmin, sharedmem.NamespaceDurability),
    ),
    Page("archives", "Archives", "`hub.archive`: export and import", "archives", (sharedmem.Archives,)),
    Page(
        "actor",
        "Actors",
        "base classes and contexts for agents",
        "actors",
        (sharedmem.ActorContext, sharedmem.RemembersMixin, sharedmem.Context, AgentMemory, DecisionLog),
    ),
    Page(
        "objects",
        "Objects by redis-om",
        "`sharedmem.om`: read models (`om.models`) and the methods of models of users (`om.bind`)",
        "objects",
        (Models, Query, BoundModel),
    ),
    Page(
        "client",
        "HTTP client",
        "`sharedmem.client`",
        "clients",
        (sharedmem.client.SharedMemoryClient, ServiceFeeds, ListPage),
    ),
    Page(
        "client_operations",
        "HTTP client: operations",
        "the groups of operations of `SharedMemoryClient`",
        "clients",
        tuple(thing for name, thing in vars(operations).items() if name.endswith("Operations") and name not in _BASES),
    ),
    Page("providers", "Providers", "protocols of embedders and models", "providers", (Embedder, LanguageModel)),
)


def records() -> dict[str, list[type]]:
    """Return the classes of `sharedmem.models` by the name of their module, in the order of its source."""
    found = [thing for name in sharedmem.models.__all__ if isinstance(thing := getattr(sharedmem.models, name), type)]
    found.sort(key=lambda cls: (cls.__module__, inspect.getsourcelines(cls)[1]))
    return {
        module: [cls for cls in found if _last_part(cls.__module__) == module]
        for module in dict.fromkeys(_last_part(cls.__module__) for cls in found)
    }


def choices() -> dict[str, object]:
    """Return the names in `sharedmem.models` that mean a choice of texts."""
    named = {name: getattr(sharedmem.models, name) for name in sorted(sharedmem.models.__all__)}
    return {name: thing for name, thing in named.items() if hasattr(thing, "__args__")}


def classes() -> dict[Page, list[type]]:
    """Return the classes of each page: its roots, and the ones that their calls return, each on the first such page."""
    known = {sharedmem.config.Settings, *(cls for page in PAGES for cls in page.roots)}
    known |= {cls for of_module in records().values() for cls in of_module}
    described: dict[Page, list[type]] = {}
    for page in PAGES:
        described[page] = [*page.roots, *_returned(page.roots, but=known)]
        known.update(described[page])
    return described


def _returned(start: Iterable[type], *, but: Iterable[type]) -> list[type]:
    known, found, waiting = set(but), [], list(start)
    while waiting:
        for answer in _answers(waiting.pop(0)):
            if answer not in known and not issubclass(answer, BaseException):
                known.add(answer)
                found.append(answer)
                waiting.append(answer)
    return found


def _answers(cls: type) -> Iterator[type]:
    for base in filter(is_ours, cls.__mro__):
        for member in own_members(base):
            # Properties that lead to a facet are roots; the other properties are internal.
            answer = "" if member.kind == "property" else member.signature.rpartition("->")[2]
            found = (_resolved(base.__module__, name) for name in _NAME.findall(answer))
            yield from (thing for thing in found if isinstance(thing, type) and is_ours(thing))


@cache
def _resolved(module: str, name: str) -> object:
    """Return the object of a name in an annotation, also one that the module imports for type checkers only."""
    thing = vars(sys.modules[module]).get(name)
    return thing if thing is not None else _imports(module).get(name)


@cache
def _imports(module: str) -> dict[str, object]:
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {
        alias.asname or alias.name: getattr(importlib.import_module(node.module), alias.name, None)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("sharedmem")
        for alias in node.names
    }


def _last_part(module: str) -> str:
    return module.rpartition(".")[2]
