"""What a durable store has to do; `testing.DurableSuite` holds each of them to it.

A store keeps documents (`DurableRecord`) and knows nothing of Redis. All conditions are on the record's stamp, so
that the same records put twice, in any order, by several processes, leave the same documents.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol, TypeAlias

from sharedmem.models import Charges, DurableRecord, Put

Scalar: TypeAlias = "str | int | float | bool"


class Durable(Protocol):
    """A durable store."""

    @property
    def url(self) -> str:
        """Where it is, without secrets: what `durable_url` takes to open it again."""

    async def open(self, *, create: bool = True) -> str:
        """Connect and check the layout; returns the id that was given to this database when it was made.

        Args:
            create: whether to make the database and its container if they are missing.

        Raises:
            UnavailableError: it cannot be reached.
            ConfigError: wrong credentials, or another layout than ours, which cannot be changed later.
            UnsupportedError: the library it needs is not installed.
            NotFoundError: it does not exist, and was not to be made.
        """

    async def close(self) -> None:
        """Give back connections and files; may be called again."""

    async def put(self, records: Sequence[DurableRecord]) -> list[Put]:
        """Store each record unless a document of the same key and element has the same or a higher stamp.

        A head that comes too late still raises the floor of the newer one. Records stand alone: some may be stored
        when the call fails. Putting them again is harmless.

        Raises:
            UnavailableError: the store cannot take them now; `retry_after` says when to try again.
            LimitedError: it asks for fewer requests, beyond what waiting here could mend.
            AccessDeniedError: the credentials do not allow writing.
        """

    async def get(self, key: str, element: str = "") -> DurableRecord | None:
        """One document, tombstones and expired ones included: one point read.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: as `put`.
        """

    async def records(self, key: str) -> list[DurableRecord]:
        """All documents of a key, the head first, then by element (`durable.living` says what of them counts).

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: as `put`.
        """

    async def query(
        self, namespace: str, *, of_type: str, where: Mapping[str, Scalar] | None = None, limit: int = 100
    ) -> list[DurableRecord]:
        """Documents of a namespace that are not deleted, newest stamp first.

        Args:
            namespace: whose.
            of_type: only documents of that type.
            where: fields of the JSON body that must be equal, dots for inner ones (`address.city`).
            limit: how many at most, 1 to 1,000.

        Raises:
            InvalidError: a field name with other than letters, digits, `_` and dots, or a limit out of bounds.
            UnavailableError, LimitedError, AccessDeniedError: as `put`.
        """

    def iterate(
        self, namespace: str, *, changed_after: int = 0, heads_only: bool = False, after: tuple[str, str] | None = None
    ) -> AsyncIterator[list[DurableRecord]]:
        """Pages of the documents of a namespace, tombstones included, by key and element.

        Args:
            namespace: whose.
            changed_after: only those with a higher stamp.
            heads_only: without elements.
            after: (key, element) behind which to go on.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: as `put`.
        """

    async def highest(self, namespace: str) -> int:
        """The highest stamp of a namespace; 0 when it has none.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: as `put`.
        """

    async def namespaces(self) -> list[str]:
        """The namespaces that have documents, in order; those whose name begins with `$` are our own, and left out.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: as `put`.
        """

    async def purge(self, namespace: str, *, now_ms: int, tombstones_before: int) -> int:
        """Remove what no reader can see any more; returns how many documents.

        Expired keys and their elements, elements below their head's floor or beyond its size, and tombstones
        whose stamp is lower than `tombstones_before`.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: as `put`.
        """

    async def check(self) -> list[str]:
        """What is wrong with the store itself (a damaged file, another policy than ours), in sentences."""

    def charges(self) -> Charges:
        """What was asked of it since it was opened."""
