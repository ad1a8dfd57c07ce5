"""Task queues of a store: at-least-once delivery, redelivery when a worker dies."""

from __future__ import annotations

from sharedmem.coordination.base import LONGEST_LEASE_S, SHORTEST_LEASE_S, CoordinationBase, check_seconds
from sharedmem.coordination.queues.admin import QueueAdmin
from sharedmem.coordination.queues.base import QueueTerms, check_backoff, check_max_attempts
from sharedmem.coordination.queues.producer import QueueProducer
from sharedmem.coordination.queues.worker import QueueWorker
from sharedmem.models.coordination import Backoff
from sharedmem.redis.keys import plain_name

_LONGEST_RESULT_S = 366 * 86_400.0


class TaskQueue(QueueProducer, QueueWorker, QueueAdmin):
    """A queue of tasks, each of which is done at least once, however many workers die over it.

    A task is given to one worker at a time. Who has it renews it (heartbeat) within the visibility time and says what
    became of it; else somebody else gets it. After the last attempt it lies with the dead letters.
    """


class Queues(CoordinationBase):
    """Task queues: work that is handed out, and handed out again when its worker dies."""

    async def queues(self) -> list[str]:
        """The queues of the namespace, sorted, as `queue()` takes their names; pages of the server's scan.

        A queue is listed while it holds a task, is paused, or has counted one lately.

        Raises:
            AccessDeniedError: this Redis user may not list keys.
            UnavailableError: the server stayed away.
        """
        keyspace, home = self._scope.keyspace, self._scope.home
        found: set[str] = set()
        async for page in self._context.client.scan(keyspace.queues_glob(home.namespace), near=home.clock):
            found |= {keyspace.queue_of(key) for key in page} - {""}
        return sorted(plain_name(key, home.namespace) for key in found)

    def queue(
        self,
        name: str,
        *,
        visibility: float = 30.0,
        max_attempts: int = 5,
        backoff: Backoff | tuple[float, float] = (1.0, 300.0),
        result_ttl: float = 86_400.0,
    ) -> TaskQueue:
        """A queue of tasks; those of one name are one queue, whoever opens it. No round trip.

        Args:
            name: like a channel: a plain one is `<namespace>:shared:<name>`.
            visibility: seconds for which a claimed task is nobody else's, unless it is renewed.
            max_attempts: how often tasks put by this object are tried.
            backoff: pauses between attempts of tasks retried by this object, in seconds: (at first, at most).
            result_ttl: seconds for which results given by this object can be asked for; 0 keeps none.

        Raises:
            InvalidError: an argument is refused.
            AccessDeniedError: the actor may not write the name.
        """
        terms = QueueTerms(
            visibility_s=visibility,
            visibility_ms=check_seconds("visibility", visibility, least=SHORTEST_LEASE_S, most=LONGEST_LEASE_S),
            max_attempts=check_max_attempts(max_attempts),
            backoff=check_backoff(backoff),
            result_ms=check_seconds("result_ttl", result_ttl, least=0, most=_LONGEST_RESULT_S),
        )
        return TaskQueue(self._context, self._scope, name, self._scope.common(name, "write"), terms)
