"""Operations of coordination: locks and leaders, rate limits, presence, task queues."""

from __future__ import annotations

from typing import Any

from sharedmem.api.operation import Operation
from sharedmem.coordination.locks import LeaseKind
from sharedmem.coordination.rate_limits import Algorithm, RateLimit
from sharedmem.models import (
    LeaseGrant,
    LeaseState,
    LimitState,
    Permit,
    Present,
    PutResult,
    QueuedTask,
    QueueStats,
    Receipt,
    Record,
    Task,
    TaskOutcome,
)
from sharedmem.models.coordination import QueueLine
from sharedmem.store import SharedMemoryStore


class LeaseRequest(Record):
    """A name, and which kind of thing it names."""

    name: str
    kind: LeaseKind = "lock"


class LeaseAcquire(Record):
    """Which lock to take, for how long, and how long to wait for it."""

    name: str
    lease: float = 30.0
    wait: float | None = 0.0


class LeaseGrantRequest(Record):
    """A lock that was taken."""

    name: str
    id: str


class LeaseRenew(LeaseGrantRequest):
    """For how long to keep a lock."""

    lease: float = 30.0


async def _lease_state(store: SharedMemoryStore, ask: LeaseRequest) -> LeaseState:
    return await store.lease_state(ask.name, ask.kind)


LEASE_STATE = Operation(
    "lease.state", "Who holds a name, and how many wait.", "read", LeaseRequest, LeaseState, _lease_state
)
LEASE_ACQUIRE = Operation(
    "lease.acquire",
    "Take a lock; it comes free when its lease ends.",
    "write",
    LeaseAcquire,
    LeaseGrant,
    lambda store, ask: store.lease_acquire(ask.name, lease=ask.lease, wait=ask.wait),
)
LEASE_RENEW = Operation(
    "lease.renew",
    "Keep a lock that was taken.",
    "write",
    LeaseRenew,
    LeaseGrant,
    lambda store, ask: store.lease_renew(ask.name, ask.id, lease=ask.lease),
)
LEASE_RELEASE = Operation(
    "lease.release",
    "Give a lock back; whether it was held until now.",
    "write",
    LeaseGrantRequest,
    bool,
    lambda store, ask: store.lease_release(ask.name, ask.id),
)

LEASE_ROWS = (LEASE_STATE, LEASE_ACQUIRE, LEASE_RENEW, LEASE_RELEASE)


class RateLimitRequest(Record):
    """A rate limit with its numbers."""

    name: str
    limit: int
    per: float
    algorithm: Algorithm = "sliding_window"
    burst: int | None = None


class LimitTake(RateLimitRequest):
    """A cost to be admitted."""

    cost: int = 1


def _limit(store: SharedMemoryStore, ask: RateLimitRequest) -> RateLimit:
    return store.rate_limit(ask.name, limit=ask.limit, per=ask.per, algorithm=ask.algorithm, burst=ask.burst)


async def _limit_state(store: SharedMemoryStore, ask: RateLimitRequest) -> LimitState:
    return await _limit(store, ask).state()


async def _take_permit(store: SharedMemoryStore, ask: LimitTake) -> Permit:
    return await _limit(store, ask).take(ask.cost)


LIMIT_STATE = Operation(
    "limit.state", "What is left of a rate limit.", "write", RateLimitRequest, LimitState, _limit_state
)
LIMIT_TAKE = Operation(
    "limit.take", "Ask for a permit; a refusal tells when to ask again.", "write", LimitTake, Permit, _take_permit
)

LIMIT_ROWS = (LIMIT_STATE, LIMIT_TAKE)


class PresenceWho(Record):
    """Whom to look for."""

    role: str | None = None


PRESENCE_WHO = Operation(
    "presence.who",
    "Who is here, in the order in which they came.",
    "read",
    PresenceWho,
    list[Present],
    lambda store, ask: store.presence.who(ask.role),
)

PRESENCE_ROWS = (PRESENCE_WHO,)


# -- requests: field names are those of the calls' arguments, where their meaning and limits stand ------


class QueueRequest(Record):
    """A queue."""

    queue: str


class TaskPut(QueueRequest):
    """A task to put."""

    payload: Any
    priority: int = 0
    delay: float = 0.0
    id: str | None = None
    unique_for: float = 0.0
    max_attempts: int | None = None


class TaskPutMany(QueueRequest):
    """Several tasks of one kind to put."""

    payloads: tuple[Any, ...]
    priority: int = 0
    delay: float = 0.0
    max_attempts: int | None = None


class TaskClaim(QueueRequest):
    """Whose task to take, for how long, and how long to wait for one."""

    wait: float | None = 0.0
    visibility: float = 30.0


class TaskClaimRequest(QueueRequest):
    """A claimed task."""

    id: str
    token: int


class TaskRenew(TaskClaimRequest):
    """For how long to keep a claimed task."""

    visibility: float = 30.0


class TaskAck(TaskClaimRequest):
    """What came out of a task."""

    result: Any = None
    result_ttl: float = 86_400.0


class TaskRetry(TaskClaimRequest):
    """Why a task is to be tried again, and when."""

    error: str = ""
    delay: float | None = None
    attempt: int = 1


class TaskFail(TaskClaimRequest):
    """Why a task cannot be done."""

    error: str


class QueuedTaskRequest(QueueRequest):
    """A task, claimed or not."""

    id: str


class TaskResult(QueuedTaskRequest):
    """Whose outcome to tell, and how long to wait for it."""

    wait: float | None = 0.0


class TaskPeek(QueueRequest):
    """Which tasks to look at."""

    n: int = 10
    state: QueueLine = "ready"


class TaskDead(QueueRequest):
    """How many dead letters to look at."""

    n: int = 10


# -- rows -----------------------------------------------------------------------------------------


async def _put_task(store: SharedMemoryStore, ask: TaskPut) -> PutResult:
    return await store.queue(ask.queue).put(
        ask.payload,
        priority=ask.priority,
        delay=ask.delay,
        id=ask.id,
        unique_for=ask.unique_for,
        max_attempts=ask.max_attempts,
    )


async def _put_tasks(store: SharedMemoryStore, ask: TaskPutMany) -> list[PutResult]:
    return await store.queue(ask.queue).put_many(
        ask.payloads, priority=ask.priority, delay=ask.delay, max_attempts=ask.max_attempts
    )


async def _renew_task(store: SharedMemoryStore, ask: TaskRenew) -> None:
    # The deadline that the call answers is one of this process's clock.
    await store.queue(ask.queue, visibility=ask.visibility).renew(_receipt(ask))


async def _retry_task(store: SharedMemoryStore, ask: TaskRetry) -> bool:
    receipt = Receipt(id=ask.id, token=ask.token, attempt=ask.attempt)
    return await store.queue(ask.queue).retry(receipt, error=ask.error, delay=ask.delay)


def _receipt(ask: TaskClaimRequest) -> Receipt:
    return Receipt(id=ask.id, token=ask.token)


class QueuesRequest(Record):
    """Nothing needs to be said."""


QUEUE_LIST = Operation(
    "queue.list",
    "The queues of the namespace, sorted.",
    "read",
    QueuesRequest,
    list[str],
    lambda store, _: store.queues(),
)
QUEUE_PUT = Operation(
    "queue.put", "Put a task into a queue; tells its id, and whether it is new.", "write", TaskPut, PutResult, _put_task
)
QUEUE_PUT_MANY = Operation(
    "queue.put_many", "Put tasks into a queue in one step.", "write", TaskPutMany, list[PutResult], _put_tasks
)
QUEUE_CLAIM = Operation(
    "queue.claim",
    "Take the next task, which is nobody else's for the time of its visibility; nothing when there is none.",
    "write",
    TaskClaim,
    Task | None,
    lambda store, ask: store.queue(ask.queue, visibility=ask.visibility).claim(wait=ask.wait),
)
QUEUE_RENEW = Operation(
    "queue.renew", "Keep a claimed task for another visibility time.", "write", TaskRenew, None, _renew_task
)
QUEUE_ACK = Operation(
    "queue.ack",
    "Say that a claimed task is done, and what came out of it.",
    "write",
    TaskAck,
    None,
    lambda store, ask: store.queue(ask.queue, result_ttl=ask.result_ttl).ack(_receipt(ask), ask.result),
)
QUEUE_RETRY = Operation(
    "queue.retry",
    "Say that a claimed task failed; tells whether it will be tried again.",
    "write",
    TaskRetry,
    bool,
    _retry_task,
)
QUEUE_FAIL = Operation(
    "queue.fail",
    "Lay a claimed task with the dead letters.",
    "write",
    TaskFail,
    None,
    lambda store, ask: store.queue(ask.queue).fail(_receipt(ask), ask.error),
)
QUEUE_RELEASE = Operation(
    "queue.release",
    "Give back a claimed task that was not begun.",
    "write",
    TaskClaimRequest,
    None,
    lambda store, ask: store.queue(ask.queue).release(_receipt(ask)),
)
QUEUE_RESULT = Operation(
    "queue.result",
    "What became of a task.",
    "write",
    TaskResult,
    TaskOutcome,
    lambda store, ask: store.queue(ask.queue).result(ask.id, wait=ask.wait),
)
QUEUE_STATS = Operation(
    "queue.stats",
    "What is in a queue, and what has happened in it.",
    "write",
    QueueRequest,
    QueueStats,
    lambda store, ask: store.queue(ask.queue).stats(),
)
QUEUE_PEEK = Operation(
    "queue.peek",
    "Look at the next tasks of a queue.",
    "write",
    TaskPeek,
    list[QueuedTask],
    lambda store, ask: store.queue(ask.queue).peek(ask.n, state=ask.state),
)
QUEUE_DEAD = Operation(
    "queue.dead",
    "The dead letters of a queue, with their errors.",
    "write",
    TaskDead,
    list[QueuedTask],
    lambda store, ask: store.queue(ask.queue).dead(ask.n),
)
QUEUE_REDRIVE = Operation(
    "queue.redrive",
    "Try a dead letter again; tells whether there was one.",
    "write",
    QueuedTaskRequest,
    bool,
    lambda store, ask: store.queue(ask.queue).redrive(ask.id),
)
QUEUE_REDRIVE_ALL = Operation(
    "queue.redrive_all",
    "Try all dead letters again; tells how many there were.",
    "write",
    QueueRequest,
    int,
    lambda store, ask: store.queue(ask.queue).redrive_all(),
)
QUEUE_DISCARD = Operation(
    "queue.discard",
    "Forget a task that is not done; tells whether there was one.",
    "write",
    QueuedTaskRequest,
    bool,
    lambda store, ask: store.queue(ask.queue).discard(ask.id),
)
QUEUE_PAUSE = Operation(
    "queue.pause",
    "Hand out no more tasks; tells whether that is news.",
    "write",
    QueueRequest,
    bool,
    lambda store, ask: store.queue(ask.queue).pause(),
)
QUEUE_RESUME = Operation(
    "queue.resume",
    "Hand out tasks again; tells whether that is news.",
    "write",
    QueueRequest,
    bool,
    lambda store, ask: store.queue(ask.queue).resume(),
)

QUEUE_ROWS = tuple(row for row in list(globals().values()) if isinstance(row, Operation))
