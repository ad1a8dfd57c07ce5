"""All operations by name. Modules are imported when they are first needed: each brings the libraries of its facet."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple

from sharedmem.api.operation import Facet, FeedOperation, Operation
from sharedmem.errors import NotFoundError
from sharedmem.store import require_memory


class _Module(NamedTuple):
    """A module beside this one, and the extra that it needs."""

    name: str
    nouns: tuple[str, ...]
    """First parts of the names of its operations."""
    feature: str = ""
    extra: str = ""

    def facets(self) -> tuple[Facet[Any], ...]:
        if self.extra:
            require_memory(self.feature, self.extra)
        facets: tuple[Facet[Any], ...] = import_module(f"sharedmem.api.{self.name}").FACETS
        return facets


_MODULES = (
    _Module("store", ("value", "key", "list", "hash", "set", "counter", "message", "change", "namespace")),
    _Module("decisions", ("plan", "execution")),
    _Module("coordination", ("lease", "once", "barrier", "limit", "presence", "queue")),
    _Module("episodes", ("episode",)),
    _Module("memory", ("memory", "thread"), "semantic memory", "memory"),
    _Module("graph", ("graph",), "the knowledge graph", "graph"),
    _Module("synthesis", ("synthesis",), "synthesis", "synthesis"),
    _Module("cache", ("cache",), "the semantic cache", "memory"),
)


@cache
def operations() -> Mapping[str, Operation[Any]]:
    """Return the calls with one answer, by name.

    Raises:
        UnsupportedError: the extra `memory` is missing.
    """
    facets = [facet for module in _MODULES for facet in module.facets()]
    return MappingProxyType({row.name: row for facet in facets for row in facet.rows})


@cache
def feeds() -> Mapping[str, FeedOperation[Any]]:
    """Return the calls that go on answering, by name."""
    facets = [facet for module in _MODULES if not module.extra for facet in module.facets()]
    return MappingProxyType({row.name: row for facet in facets for row in facet.feeds})


def find_operation(name: str) -> Operation[Any]:
    """Return an operation; imports no other facet than its own.

    Raises:
        NotFoundError: there is none of this name.
        UnsupportedError: it needs an extra that is missing.
    """
    noun = name.partition(".")[0]
    for module in _MODULES:
        if noun in module.nouns:
            rows = {row.name: row for facet in module.facets() for row in facet.rows}
            if name in rows:
                return rows[name]
    raise NotFoundError("operation", name, "sharedmem.api.table.operations() has all")
