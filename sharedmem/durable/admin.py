"""Administer the durable tier: status, lag, dead letters, verification and restoring."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from sharedmem.durable.inspection import Inspector
from sharedmem.durable.key_loader import JoinNamespace
from sharedmem.durable.outbox.relay import OutboxRelay
from sharedmem.durable.protocol import Durable, Scalar
from sharedmem.durable.record_recovery import NamespaceRecovery
from sharedmem.models import DeadLetter, DurableLag, DurableRecord, DurableStatus, Verification
from sharedmem.runtime.process_bound import ProcessBound


class AdminServices(NamedTuple):
    """Who does what is asked for."""

    durable: Durable
    drainer: OutboxRelay
    inspector: Inspector
    warmer: NamespaceRecovery
    join: JoinNamespace


class DurableAdmin(ProcessBound):
    """The public side of `hub.durable`.

    Args:
        staff: who does what is asked for.
    """

    def __init__(self, staff: AdminServices) -> None:
        self._staff = staff

    async def namespaces(self) -> list[str]:
        """The namespaces that the tier has something of, in order. One request to it.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: the tier cannot be asked.
        """
        return await self._staff.durable.namespaces()

    async def records(self, key: str) -> list[DurableRecord]:
        """All documents of a key as the tier has them, its head first, tombstones included. One request.

        Args:
            key: absolute.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: as `namespaces`.
        """
        return await self._staff.durable.records(key)

    async def query(
        self, namespace: str, *, of_type: str, where: Mapping[str, Scalar] | None = None, limit: int = 100
    ) -> list[DurableRecord]:
        """Documents of a namespace that are not deleted, newest first. One query.

        Args:
            namespace: whose.
            of_type: `value`, `list`, `plan`, ... (see `DurableRecord`).
            where: fields of the JSON body that must be equal, dots for inner ones (`address.city`).
            limit: how many at most, 1 to 1,000.

        Raises:
            InvalidError: a field name with other than letters, digits, `_` and dots, or a limit out of bounds.
            UnavailableError, LimitedError, AccessDeniedError: as `namespaces`.
        """
        return await self._staff.durable.query(namespace, of_type=of_type, where=where, limit=limit)

    async def status(self) -> DurableStatus:
        """How the tier is, and how far it is behind; an answer also when it is away.

        Two requests to the tier, and six round trips to Redis for each namespace with changes.

        Raises:
            UnavailableError, AccessDeniedError: Redis stayed away, or does not allow it.
        """
        return await self._staff.inspector.status()

    async def lag(self, namespace: str) -> DurableLag:
        """How far the tier is behind in a namespace, and whether Redis is behind the tier. Six round trips.

        Raises:
            UnavailableError, AccessDeniedError: Redis stayed away, or does not allow it.
        """
        return await self._staff.drainer.lag(namespace)

    async def lags(self) -> list[DurableLag]:
        """The same for each namespace that was changed lately, by whatever hub.

        Raises:
            UnavailableError, AccessDeniedError: as `lag`.
        """
        return [await self.lag(name) for name in await self._staff.drainer.namespaces()]

    async def drain(self, namespace: str | None = None, *, timeout: float = 60.0) -> None:  # noqa: ASYNC109  # as `drain` of queues
        """Return when all that has been changed by now is in the tier, whoever changed it.

        Args:
            namespace: whose changes; None for those of all that were changed lately.
            timeout: seconds.

        Raises:
            UnavailableError: it could not be done in that time; the rest stays in Redis and is carried later.
        """
        await self._staff.drainer.drain(namespace, timeout=timeout)

    async def dead_letters(self, namespace: str, *, limit: int = 100) -> list[DeadLetter]:
        """What the tier has refused for good, oldest first. One round trip.

        Args:
            namespace: whose.
            limit: how many at most.

        Raises:
            UnavailableError, AccessDeniedError: as `lag`.
        """
        return await self._staff.drainer.dead_letters(namespace, limit=limit)

    async def replay(self, namespace: str) -> int:
        """Try all dead letters of a namespace again, oldest first, each once; returns how many.

        Raises:
            UnavailableError, AccessDeniedError: as `lag`.
        """
        return await self._staff.drainer.replay(namespace)

    async def discard(self, namespace: str, ids: Sequence[str] | None = None) -> int:
        """Give dead letters up for good; returns how many were there. The tier keeps what it had before.

        Args:
            namespace: whose.
            ids: which; None for all.

        Raises:
            InvalidError: an id that is none.
            UnavailableError, AccessDeniedError: as `lag`.
        """
        return await self._staff.drainer.discard(namespace, ids)

    async def verify(self, namespace: str, progress: Callable[[int], None] | None = None) -> Verification:
        """Compare what Redis holds of the keys that last with what the tier holds of them.

        What is in the tier alone is as it should be; what still waits for it is counted, and not compared. A request
        to the tier for some hundred documents, and a few round trips a key, many at once.

        Args:
            namespace: which.
            progress: called with the number of keys looked at so far.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: either side cannot be had.
        """
        await self._staff.join(namespace)
        return await self._staff.inspector.verify(namespace, progress)

    async def restore(self, namespace: str, progress: Callable[[int], None] | None = None) -> int:
        """Load into Redis what the tier has of a namespace; returns how many keys are there then.

        It need not be done: a key that is asked for comes back by itself. Keys that are in Redis stay as they are.

        Args:
            namespace: which.
            progress: called with the number of keys looked at so far.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: either side cannot be had; what is back stays.
        """
        # Nobody may have noticed yet that Redis is empty.
        await self._staff.join(namespace, again=True)
        told = None if progress is None else lambda done, _: progress(done)
        return await self._staff.warmer.warm(namespace, told)
