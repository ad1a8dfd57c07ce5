"""Administer the durable tier, of a server or of one namespace: lag, dead letters, verification and restoring."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from sharedmem.durable.inspection import Inspector
from sharedmem.durable.key_loader import JoinNamespace
from sharedmem.durable.outbox_relay import OutboxRelay
from sharedmem.durable.protocol import Durable, Scalar
from sharedmem.durable.record_recovery import NamespaceRecovery
from sharedmem.durable.samples import SAMPLES, MemorySamples
from sharedmem.errors import InvalidError, UnsupportedError
from sharedmem.models import (
    DeadLetter,
    DurableLag,
    DurableRecord,
    DurableState,
    DurableStatus,
    SampleQuery,
    SampleResult,
    Verification,
)
from sharedmem.redis.scope import Scope
from sharedmem.runtime.concurrency import ProcessBound

_MOST_LETTERS = 1000


def no_tier_error() -> UnsupportedError:
    """Return the error of a server without a durable tier."""
    remedy = "set durable_url, for example to sqlite:///path/file.db, in every hub of this server"
    return UnsupportedError("a durable tier", remedy)


class AdminServices(NamedTuple):
    """The parts that do the work."""

    durable: Durable
    relay: OutboxRelay
    inspector: Inspector
    warmer: NamespaceRecovery
    join: JoinNamespace
    samples: MemorySamples


class DurableAdmin(ProcessBound):
    """The public side of `hub.durable`.

    Args:
        staff: the parts that do the work.
    """

    def __init__(self, staff: AdminServices) -> None:
        self._staff = staff

    async def namespaces(self) -> list[str]:
        """Return the namespaces that have documents in the store, sorted. One request to the store.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: the store is unavailable.
        """
        return await self._staff.durable.namespaces()

    async def records(self, key: str) -> list[DurableRecord]:
        """Return all documents of a key in the store, its head first, tombstones included. One request.

        Args:
            key: absolute key.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: as `namespaces`.
        """
        return await self._staff.durable.records(key)

    async def query(
        self, namespace: str, *, of_type: str, where: Mapping[str, Scalar] | None = None, limit: int = 100
    ) -> list[DurableRecord]:
        """Return documents of a namespace that are not deleted, newest first. One query.

        Args:
            namespace: the namespace.
            of_type: `value`, `list`, `plan`, ... (see `DurableRecord`).
            where: fields of the JSON body that must be equal, with dots for inner ones (`address.city`).
            limit: most results, 1 to 1,000.

        Raises:
            InvalidError: a field name has other characters than letters, digits, `_`, dots; or the limit is wrong.
            UnavailableError, LimitedError, AccessDeniedError: as `namespaces`.
        """
        return await self._staff.durable.query(namespace, of_type=of_type, where=where, limit=limit)

    def samples(self) -> tuple[SampleQuery, ...]:
        """Return the sample queries on memories that `run_sample` runs. No request."""
        return SAMPLES

    async def run_sample(  # each is a parameter of some sample
        self,
        name: str,
        namespace: str,
        *,
        thread_id: str | None = None,
        text: str | None = None,
        vector: Sequence[float] | None = None,
        category: str | None = None,
        limit: int = 10,
    ) -> SampleResult:
        """Run a sample query on the memories in the store, without Redis.

        Changes that still wait for the store are not in the result (`drain`), nor are expired memories. In Cosmos DB
        with a container for memories it is one query in its language; of any other store, all memories of the
        namespace are read.

        Args:
            name: one of `samples`.
            namespace: the namespace of the memories.
            thread_id: only memories of this thread.
            text: words, or a phrase.
            vector: the embedding of a text, by the embedder of the memories; vectors of another length do not match.
            category: only memories of this category.
            limit: most memories, 1 to 1,000; `duplicates` returns at most five.

        Raises:
            InvalidError: there is no such sample, or a parameter is missing, invalid, or not one of this sample.
            UnavailableError, LimitedError, AccessDeniedError: as `namespaces`.
        """
        return await self._staff.samples.run(
            name, namespace, thread_id=thread_id, text=text, vector=vector, category=category, limit=limit
        )

    async def status(self) -> DurableStatus:
        """Return the state of the store and its lag; it works also during an outage of the store.

        Two requests to the tier, and six round trips to Redis for each namespace with changes.

        Raises:
            UnavailableError, AccessDeniedError: Redis cannot be reached, or does not allow it.
        """
        return await self._staff.inspector.status()

    async def state(self, namespace: str) -> DurableState:
        """Return whether the store is reachable, and the lag of one namespace; it works also during an outage.

        Two requests to the tier, and six round trips to Redis.

        Raises:
            UnavailableError, AccessDeniedError: as `status`.
        """
        check = await self._staff.inspector.check()
        return DurableState(reachable=not check.code, why=check.code, lag=await self._staff.relay.lag(namespace))

    async def lag(self, namespace: str) -> DurableLag:
        """Return how far the store is behind in a namespace, and whether Redis is behind the store. Six round trips.

        Raises:
            UnavailableError, AccessDeniedError: Redis cannot be reached, or does not allow it.
        """
        return await self._staff.relay.lag(namespace)

    async def lags(self) -> list[DurableLag]:
        """Return the lag of each namespace that a hub changed lately.

        Raises:
            UnavailableError, AccessDeniedError: as `lag`.
        """
        return [await self.lag(name) for name in await self._staff.relay.namespaces()]

    async def drain(self, namespace: str | None = None, *, timeout: float = 60.0) -> None:  # noqa: ASYNC109  # as `drain` of queues
        """Wait until the store has all changes that any hub has made until now.

        Args:
            namespace: the namespace of the changes; None: all that were changed lately.
            timeout: longest wait in seconds.

        Raises:
            UnavailableError: the wait was longer; the rest stays in Redis and is delivered later.
        """
        await self._staff.relay.drain(namespace, timeout=timeout)

    async def dead_letters(self, namespace: str, *, limit: int = 100) -> list[DeadLetter]:
        """Return the dead letters: documents that the store rejected for good, oldest first. One round trip.

        Args:
            namespace: the namespace.
            limit: most results.

        Raises:
            UnavailableError, AccessDeniedError: as `lag`.
        """
        return await self._staff.relay.dead_letters(namespace, limit=limit)

    async def replay(self, namespace: str) -> int:
        """Deliver all dead letters of a namespace once more, oldest first; return their number.

        Raises:
            UnavailableError, AccessDeniedError: as `lag`.
        """
        return await self._staff.relay.replay(namespace)

    async def discard(self, namespace: str, ids: Sequence[str] | None = None) -> int:
        """Delete dead letters; return their number. The store keeps its earlier documents.

        Args:
            namespace: the namespace.
            ids: ids of dead letters; None: all.

        Raises:
            InvalidError: an id is invalid.
            UnavailableError, AccessDeniedError: as `lag`.
        """
        return await self._staff.relay.discard(namespace, ids)

    async def verify(self, namespace: str, progress: Callable[[int], None] | None = None) -> Verification:
        """Compare the durable keys in Redis with the store.

        Keys only in the tier are no difference; keys with waiting changes are counted, but not compared. One request to
        the tier for some hundred documents, and a few round trips a key, many at once.

        Args:
            namespace: the namespace.
            progress: called with the number of keys compared so far.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: Redis or the store is unavailable.
        """
        await self._staff.join(namespace)
        return await self._staff.inspector.verify(namespace, progress)

    async def restore(self, namespace: str, progress: Callable[[int], None] | None = None) -> int:
        """Restore a namespace in Redis from the store; return how many of its keys Redis has then.

        It is optional: reading a key restores it. Keys that are in Redis are not changed.

        Args:
            namespace: the namespace.
            progress: called with the number of keys restored so far.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: Redis or the store is unavailable; restored keys stay.
        """
        # The loss may not have been detected yet.
        await self._staff.join(namespace, again=True)
        report = None if progress is None else lambda done, _: progress(done)
        return await self._staff.warmer.warm(namespace, report)


class NamespaceDurability(ProcessBound):
    """The public side of `store.durable`: the durable tier of one namespace, with the rights of one actor.

    Args:
        admin: the tier of the server.
        scope: the namespace, and the rights of the actor.
    """

    def __init__(self, admin: DurableAdmin, scope: Scope) -> None:
        self._admin = admin
        self._scope = scope

    @property
    def _namespace(self) -> str:
        return self._scope.identity.namespace

    def check_writes_all(self) -> None:
        """Raise if this actor may not change anything here: that takes every key of the namespace. No request.

        Raises:
            AccessDeniedError: the actor may not write every key of the namespace.
        """
        self._scope.check_writes_all()

    async def state(self) -> DurableState:
        """Return whether the tier is reachable, and how far it is behind; it works also during an outage of the tier.

        Two requests to the tier, and six round trips to Redis.

        Raises:
            UnavailableError: Redis cannot be reached.
        """
        return await self._admin.state(self._namespace)

    async def dead_letters(self, *, limit: int = 100) -> list[DeadLetter]:
        """Return the dead letters: documents that the tier rejected for good, oldest first. One round trip.

        Args:
            limit: most results, 1 to 1,000.

        Raises:
            InvalidError: the limit is wrong.
            UnavailableError: as `state`.
        """
        if not 1 <= limit <= _MOST_LETTERS:
            raise InvalidError("limit", limit, f"give 1 to {_MOST_LETTERS}")
        return await self._admin.dead_letters(self._namespace, limit=limit)

    async def replay(self) -> int:
        """Deliver all dead letters once more, oldest first; return their number.

        Raises:
            AccessDeniedError: the actor may not write every key of the namespace.
            UnavailableError: as `state`.
        """
        self.check_writes_all()
        return await self._admin.replay(self._namespace)

    async def discard(self, ids: Sequence[str] | None = None) -> int:
        """Delete dead letters; return their number. The tier keeps its earlier documents.

        Args:
            ids: ids of dead letters; None: all.

        Raises:
            InvalidError: an id is invalid.
            AccessDeniedError, UnavailableError: as `replay`.
        """
        self.check_writes_all()
        return await self._admin.discard(self._namespace, ids)

    async def drain(self, *, wait: float = 20.0) -> None:
        """Deliver what waits in Redis, and return when the tier has all changes that were made until now.

        Args:
            wait: longest wait in seconds.

        Raises:
            AccessDeniedError: as `replay`.
            UnavailableError: the wait was longer; the rest stays in Redis and is delivered later.
        """
        self.check_writes_all()
        await self._admin.drain(self._namespace, timeout=wait)

    async def verify(self, progress: Callable[[int], None] | None = None) -> Verification:
        """Compare the durable keys in Redis with the tier; nothing is changed.

        Keys only in the tier are no difference; keys with waiting changes are counted, but not compared. One request to
        the tier for some hundred documents, and a few round trips a key, many at once.

        Args:
            progress: called with the number of keys compared so far.

        Raises:
            UnavailableError, LimitedError: Redis or the tier is unavailable.
        """
        return await self._admin.verify(self._namespace, progress)

    async def restore(self, progress: Callable[[int], None] | None = None) -> int:
        """Restore the namespace in Redis from the tier; return how many of its keys Redis has then.

        It is optional: reading a key restores it. Keys that are in Redis are not changed.

        Args:
            progress: called with the number of keys restored so far.

        Raises:
            AccessDeniedError: as `replay`.
            UnavailableError, LimitedError: Redis or the tier is unavailable; restored keys stay.
        """
        self.check_writes_all()
        return await self._admin.restore(self._namespace, progress)
