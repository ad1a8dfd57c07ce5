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
    _Module("coordination", ("coordination", "lease", "once", "barrier", "limit", "presence", "queue")),
    _Module("durable", ("durable",)),
    _Module("episodes", ("episode",)),
    _Module("conversations", ("conversation",)),
    _Module("memory", ("memory", "thread"), "semantic memory", "memory"),
    _Module("graph", ("graph",), "the knowledge graph", "graph"),
    _Module("synthesis", ("synthesis",), "synthesis", "synthesis"),
    _Module("knowledge", ("knowledge",), "recall", "memory"),
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
    """Return the calls that go on answering, by name.

    Raises:
        UnsupportedError: the extra `memory` is missing.
    """
    facets = [facet for module in _MODULES for facet in module.facets()]
    return MappingProxyType({row.name: row for facet in facets for row in facet.feeds})


def find_operation(name: str) -> Operation[Any]:
    """Return an operation by its name or a former one; imports no other facet than its own.

    Raises:
        NotFoundError: there is no operation of this name.
        UnsupportedError: it needs an extra that is missing.
    """
    for facet in _facets_of(name):
        for row in facet.rows:
            if name == row.name or name in row.former_names:
                return row
    raise NotFoundError("operation", name, "sharedmem.api.table.operations() has all")


def find_feed(name: str) -> FeedOperation[Any]:
    """Return a feed by its name; imports no other facet than its own.

    Raises:
        NotFoundError: there is no operation of this name.
        UnsupportedError: it needs an extra that is missing.
    """
    for facet in _facets_of(name):
        for row in facet.feeds:
            if name == row.name:
                return row
    raise NotFoundError("feed", name, "sharedmem.api.table.feeds() has all")


def _facets_of(name: str) -> tuple[Facet[Any], ...]:
    """The facets of the module that has operations of this noun."""
    noun = name.partition(".")[0]
    return next((module.facets() for module in _MODULES if noun in module.nouns), ())
