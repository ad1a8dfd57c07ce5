"""Put tasks into a queue, one or many, with priority, delay and deduplication."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sharedmem.coordination.names import check_seconds
from sharedmem.coordination.queues.queue_access import (
    QueueAccess,
    check_dedup_id,
    check_delay_ms,
    check_max_attempts,
    check_priority,
)
from sharedmem.errors import InvalidError
from sharedmem.models.coordination import PutResult
from sharedmem.redis.codec import with_trace
from sharedmem.redis.scripts.queues import OfferKeys, PutKeys, PutTerms
from sharedmem.runtime.spans import current_traceparent

_MOST_AT_ONCE = 500
_LONGEST_WINDOW_S = 31 * 86_400.0


class QueueProducer:
    """The calls of producers."""

    def __init__(self, queue: QueueAccess) -> None:
        self._queue = queue

    async def put(
        self,
        payload: object,
        *,
        priority: int = 0,
        delay: float = 0.0,
        id: str | None = None,  # noqa: A002  # the public name
        unique_for: float = 0.0,
        max_attempts: int | None = None,
    ) -> PutResult:
        """As `TaskQueue.put`."""
        queue = self._queue
        terms = self._put_terms(priority, delay, max_attempts)
        coded = queue.encoded("payload", payload)
        if id is None and unique_for:
            raise InvalidError("unique_for", unique_for, "it needs a deduplication id; give id as well")
        with queue.span("send"):
            traced = with_trace(coded, current_traceparent())
            if id is not None:
                return await self._offer(traced, terms, check_dedup_id(id), unique_for)
            first = await self._put(terms, (traced,))
        return PutResult.model_construct(id=str(first), is_new=True)

    async def put_many(
        self,
        payloads: Iterable[object],
        *,
        priority: int = 0,
        delay: float = 0.0,
        max_attempts: int | None = None,
    ) -> list[PutResult]:
        """As `TaskQueue.put_many`."""
        queue = self._queue
        terms = self._put_terms(priority, delay, max_attempts)
        coded = [queue.encoded("payload", payload) for payload in payloads]
        if len(coded) > _MOST_AT_ONCE:
            raise InvalidError("payloads", f"({len(coded)} of them)", f"put at most {_MOST_AT_ONCE} at a time")
        if not coded:
            return []
        with queue.span("send"):
            traceparent = current_traceparent()
            first = await self._put(terms, [with_trace(one, traceparent) for one in coded])
        return [PutResult.model_construct(id=str(first + number), is_new=True) for number in range(len(coded))]

    async def _put(self, terms: PutTerms, payloads: Sequence[bytes]) -> int:
        """Put tasks; return the number of the first."""
        queue = self._queue
        call = queue.scripts.queue_put(queue.space, queue.keys(PutKeys), queue.actor, terms=terms, payloads=payloads)
        return await queue.explained(call)

    async def _offer(self, payload: bytes, terms: PutTerms, dedup_id: str, unique_for: float) -> PutResult:
        queue = self._queue
        window_ms = check_seconds("unique_for", unique_for, least=0, most=_LONGEST_WINDOW_S)
        call = queue.scripts.queue_offer(
            queue.space,
            queue.keys(OfferKeys),
            queue.item("queue.recent", dedup_id),
            queue.actor,
            terms=terms,
            unique=dedup_id,
            window_ms=window_ms,
            payload=payload,
        )
        task_id, is_new = await queue.explained(call)
        return PutResult.model_construct(id=task_id, is_new=is_new)

    def _put_terms(self, priority: int, delay: float, max_attempts: int | None) -> PutTerms:
        attempts = self._queue.terms.max_attempts if max_attempts is None else check_max_attempts(max_attempts)
        return PutTerms(check_priority(priority), check_delay_ms(delay), attempts)
