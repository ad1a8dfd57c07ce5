"""The description of one kind of record: its index fields, and how its records are restored from the durable store.

A record is a Redis hash at `KeySpace.record(family, namespace, id)`. In the durable store it is one key,
`<namespace>:$<family>:<id>`, with one document.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, NamedTuple, TypeVar

from sharedmem.context import ServerContext
from sharedmem.models import DurableRecord
from sharedmem.redis.replies import Argument
from sharedmem.redis.scripts.durable import RecordRestoreScripts, RestoreLease

R = TypeVar("R")


class RestoreRun(NamedTuple):
    """One run that restores the records of a namespace, under a lease."""

    context: ServerContext
    scripts: RecordRestoreScripts
    lease: RestoreLease
    namespace: str


@dataclass(frozen=True, kw_only=True)
class DocumentFormat(Generic[R]):
    """How documents of a family in the durable store become hashes in Redis.

    Its functions are called when a hub restores records; they import slow modules when called.
    """

    parse: Callable[[DurableRecord], R]
    """Parse a document, a tombstone too. Raises ValueError, LookupError or TypeError where it is unreadable."""
    hash_fields: Callable[[R, str], Sequence[Argument]]
    """Return the fields of a record's hash in a namespace, each followed by its value; empty for a deleted record.
    Fields that other writers change (the mark of the index, fields that depend on the time) are left out."""
    restore: Callable[[RestoreRun, Sequence[R]], Awaitable[int | None]]
    """Restore records in the order of their keys, and return how many were missing; None if the lease was lost."""
    recounted: tuple[str, ...] = ()
    """Parts of the family's keys (`KeySpace.record_part`) that are deleted before a restore, which counts them anew."""


@dataclass(frozen=True)
class RecordFamily:
    """One kind of record, and how an index finds it."""

    name: str
    """Part of its keys: `memory`, `cache`."""
    tags: tuple[str, ...]
    """Names of the fields with one or more exact values."""
    numbers: tuple[str, ...]
    """Names of the fields with a number."""
    model: str = ""
    """Name of the embedder that makes its vectors; empty without vectors."""
    dimension: int = 0
    """Dimension of a vector; 0 without vectors."""
    schema_version: int = 1
    documents: DocumentFormat[Any] | None = field(default=None, repr=False, compare=False)
    """None: the durable store does not keep these records."""

    def with_vectors(self, model: str, dimension: int) -> RecordFamily:
        """Return the same family with the vectors of an embedder.

        Args:
            model: name of the embedder; empty without one.
            dimension: dimension of a vector; 0 without vectors.
        """
        return replace(self, model=model, dimension=dimension)
