"""The protocol of durable stores, and the context of the parts that move keys between Redis and a store.

A store keeps documents (`DurableRecord`) and is independent of Redis. All conditions are on the record's stamp, so
that the same records put twice, in any order, by several processes, leave the same documents.

A document is alive if it has not expired and was neither deleted nor superseded.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from sharedmem.context import ServerContext
from sharedmem.models import Charges, DurableRecord, Put
from sharedmem.redis.scripts.durable import DurableScripts

Scalar: TypeAlias = "str | int | float | bool"


class Durable(Protocol):
    """A durable store."""

    @property
    def url(self) -> str:
        """Its URL without secrets, as in `durable_url`."""

    async def open(self, *, create: bool = True) -> str:
        """Connect and check the layout; return the id that the database got when it was created.

        Args:
            create: whether to create the database and its container if they are missing.

        Raises:
            UnavailableError: the store is unreachable.
            ConfigError: the credentials are wrong, or the database has another layout, which cannot be changed later.
            UnsupportedError: a required library is not installed.
            NotFoundError: the database does not exist, and `create` is false.
        """

    async def close(self) -> None:
        """Close connections and files; may be called again."""

    async def put(self, records: Sequence[DurableRecord]) -> list[Put]:
        """Store each record unless a document of the same key and element has the same or a higher stamp.

        A late head still raises the floor of the newer one. Records are independent: some may be stored if the call
        fails. Putting them again is harmless.

        Raises:
            UnavailableError: the store is unavailable; try again after `retry_after` seconds.
            LimitedError: the store throttles requests for longer than the wait.
            AccessDeniedError: the credentials do not allow writing.
        """

    async def get(self, key: str, element: str = "") -> DurableRecord | None:
        """Return one document, also a tombstone or an expired one: one point read.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: as `put`.
        """

    async def records(self, key: str) -> list[DurableRecord]:
        """Return all documents of a key, the head first, then by element (`living_documents` filters them).

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: as `put`.
        """

    async def query(
        self, namespace: str, *, of_type: str, where: Mapping[str, Scalar] | None = None, limit: int = 100
    ) -> list[DurableRecord]:
        """Return documents of a namespace that are not deleted, newest stamp first.

        Args:
            namespace: the namespace.
            of_type: only documents of that type.
            where: fields of the JSON body that must be equal, with dots for inner ones (`address.city`).
            limit: most results, 1 to 1,000.

        Raises:
            InvalidError: a field name has other characters than letters, digits, `_`, dots; or the limit is wrong.
            UnavailableError, LimitedError, AccessDeniedError: as `put`.
        """

    def iterate(
        self, namespace: str, *, changed_after: int = 0, heads_only: bool = False, after: tuple[str, str] | None = None
    ) -> AsyncIterator[list[DurableRecord]]:
        """Yield pages of the documents of a namespace, tombstones included, by key and element.

        Args:
            namespace: the namespace.
            changed_after: only documents with a higher stamp.
            heads_only: without elements.
            after: (key, element) after which to continue.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: as `put`.
        """

    async def highest(self, namespace: str) -> int:
        """Return the highest stamp of a namespace; 0 without documents.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: as `put`.
        """

    async def namespaces(self) -> list[str]:
        """Return the namespaces that have documents, sorted, without internal ones, whose names begin with `$`.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: as `put`.
        """

    async def purge(self, namespace: str, *, now_ms: int, tombstones_before: int) -> int:
        """Delete documents that no reader can see any more; return their number.

        These are expired keys with their elements, elements below their head's floor or beyond its size, and tombstones
        whose stamp is lower than `tombstones_before`.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: as `put`.
        """

    async def check(self) -> list[str]:
        """Return the problems of the store itself (a damaged file, another policy than expected), in sentences."""

    def charges(self) -> Charges:
        """Return the requests since it was opened."""


@dataclass(frozen=True, kw_only=True)
class DurableContext(ServerContext):
    """The objects that parts between Redis and the durable store need."""

    scripts: DurableScripts
    durable: Durable


# -- documents that are alive --------------------------------------------------------------------


_LIST = "list"


def is_user_namespace(namespace: str) -> bool:
    """Return whether users can name a namespace; the others hold internal records."""
    return not namespace.startswith("$")


def has_expired(record: DurableRecord, now_ms: int) -> bool:
    """Return whether the key has expired."""
    return 0 < record.expires <= now_ms


def living_documents(records: Sequence[DurableRecord], now_ms: int) -> list[DurableRecord]:
    """Return the head and the elements that a reader sees, in order of element; empty when the key does not exist.

    Args:
        records: all documents of one key, in any order.
        now_ms: milliseconds since 1970.
    """
    if len(records) == 1 and not records[0].element:
        return [] if records[0].deleted or has_expired(records[0], now_ms) else [records[0]]
    head = next((record for record in records if record.is_head), None)
    if head is None or head.deleted or has_expired(head, now_ms):
        return []
    elements = sorted(
        (one for one in records if one.element and not one.deleted and one.stamp >= head.floor),
        key=lambda one: one.element,
    )
    if head.type == _LIST:
        # Items that were trimmed at the front are not deleted one by one.
        # Items may arrive before the head that counts them: the ones it counts are taken from its end.
        known = sum(one.stamp <= head.stamp for one in elements)
        elements = elements[max(0, known - head.size) :]
    return [head, *elements]
