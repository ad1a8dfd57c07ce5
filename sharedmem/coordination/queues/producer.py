"""Put tasks into a queue, one or many, with priority, delay and deduplication."""

from __future__ import annotations

from collections.abc import Iterable

from sharedmem.coordination.base import check_seconds
from sharedmem.coordination.queues.base import (
    QueueBase,
    check_dedup_id,
    check_delay_ms,
    check_max_attempts,
    check_priority,
)
from sharedmem.errors import InvalidError
from sharedmem.models.coordination import PutResult
from sharedmem.redis.scripts.queues import OfferKeys, PutKeys, PutTerms

_MOST_AT_ONCE = 500
_LONGEST_WINDOW_S = 31 * 86_400.0


class QueueProducer(QueueBase):
    """The calls of those who want something done."""

    async def put(
        self,
        payload: object,
        *,
        priority: int = 0,
        delay: float = 0.0,
        id: str | None = None,  # noqa: A002  # what users call it
        unique_for: float = 0.0,
        max_attempts: int | None = None,
    ) -> PutResult:
        """Put a task into the queue. One round trip.

        Args:
            payload: what there is to do, as values of `write`, up to the blob threshold (256 KiB).
            priority: the higher, the sooner; equal ones in the order in which they were put.
            delay: seconds until somebody may have it.
            id: deduplication id: while a task put under it is not done, another put answers that task.
            unique_for: seconds from now for which that also holds once the task is done.
            max_attempts: how often it is tried; None goes by the queue.

        Returns:
            The task's `id`, and whether it is new (`is_new`).

        Raises:
            InvalidError: an argument is refused, or the payload cannot be coded or is too large.
            AccessDeniedError, UnavailableError: as `write`.
        """
        terms = self._put_terms(priority, delay, max_attempts)
        coded = self._coded("payload", payload)
        if id is not None:
            return await self._offer(coded, terms, check_dedup_id(id), unique_for)
        if unique_for:
            raise InvalidError("unique_for", unique_for, "it goes with a deduplication id; give id as well")
        call = self._queueing.queue_put(self._space, self._keys(PutKeys), self._actor, terms=terms, payloads=(coded,))
        first = await self._translated(self._target, call)
        return PutResult.model_construct(id=str(first), is_new=True)

    async def put_many(
        self,
        payloads: Iterable[object],
        *,
        priority: int = 0,
        delay: float = 0.0,
        max_attempts: int | None = None,
    ) -> list[PutResult]:
        """Put up to 500 tasks of one kind in one atomic step, in their order. One round trip.

        Args:
            payloads: what there is to do, a task each.
            priority, delay, max_attempts: as `put`, for all of them.

        Raises:
            InvalidError: there are more than 500, or `put` would refuse one of them.
            AccessDeniedError, UnavailableError: as `write`.
        """
        terms = self._put_terms(priority, delay, max_attempts)
        coded = [self._coded("payload", payload) for payload in payloads]
        if len(coded) > _MOST_AT_ONCE:
            raise InvalidError("payloads", f"({len(coded)} of them)", f"put at most {_MOST_AT_ONCE} at a time")
        if not coded:
            return []
        call = self._queueing.queue_put(self._space, self._keys(PutKeys), self._actor, terms=terms, payloads=coded)
        first = await self._translated(self._target, call)
        return [PutResult.model_construct(id=str(first + number), is_new=True) for number in range(len(coded))]

    async def _offer(self, payload: bytes, terms: PutTerms, dedup_id: str, unique_for: float) -> PutResult:
        window_ms = check_seconds("unique_for", unique_for, least=0, most=_LONGEST_WINDOW_S)
        call = self._queueing.queue_offer(
            self._space,
            self._keys(OfferKeys),
            self._item("queue.recent", dedup_id),
            self._actor,
            terms=terms,
            unique=dedup_id,
            window_ms=window_ms,
            payload=payload,
        )
        task_id, is_new = await self._translated(self._target, call)
        return PutResult.model_construct(id=task_id, is_new=is_new)

    def _put_terms(self, priority: int, delay: float, max_attempts: int | None) -> PutTerms:
        attempts = self._terms.max_attempts if max_attempts is None else check_max_attempts(max_attempts)
        return PutTerms(check_priority(priority), check_delay_ms(delay), attempts)
