"""The operations of task queues: putting, claiming, what became of tasks, and keeping a queue."""

from __future__ import annotations

from typing import Any

from sharedmem.faces.operations.row import Operation
from sharedmem.models import PutResult, QueuedTask, QueueStats, Receipt, Record, Task, TaskOutcome
from sharedmem.models.tasks import QueueLine
from sharedmem.store import SharedMemoryStore

# -- requests: field names are those of the calls' arguments, where their meaning and limits stand ------


class OnQueue(Record):
    """A queue."""

    queue: str


class TaskPut(OnQueue):
    """A task to put."""

    payload: Any
    priority: int = 0
    delay: float = 0.0
    id: str | None = None
    unique_for: float = 0.0
    max_attempts: int | None = None


class TaskPutMany(OnQueue):
    """Several tasks of one kind to put."""

    payloads: tuple[Any, ...]
    priority: int = 0
    delay: float = 0.0
    max_attempts: int | None = None


class TaskClaim(OnQueue):
    """Whose task to take, for how long, and how long to wait for one."""

    wait: float | None = 0.0
    visibility: float = 30.0


class OnClaim(OnQueue):
    """A claimed task."""

    id: str
    token: int


class TaskRenew(OnClaim):
    """For how long to keep a claimed task."""

    visibility: float = 30.0


class TaskAck(OnClaim):
    """What came out of a task."""

    result: Any = None
    result_ttl: float = 86_400.0


class TaskRetry(OnClaim):
    """Why a task is to be tried again, and when."""

    error: str = ""
    delay: float | None = None
    attempt: int = 1


class TaskFail(OnClaim):
    """Why a task cannot be done."""

    error: str


class OnTask(OnQueue):
    """A task, claimed or not."""

    id: str


class TaskResult(OnTask):
    """Whose outcome to tell, and how long to wait for it."""

    wait: float | None = 0.0


class TaskPeek(OnQueue):
    """Which tasks to look at."""

    n: int = 10
    state: QueueLine = "ready"


class TaskDead(OnQueue):
    """How many dead letters to look at."""

    n: int = 10


# -- rows -----------------------------------------------------------------------------------------


async def _put(store: SharedMemoryStore, ask: TaskPut) -> PutResult:
    return await store.queue(ask.queue).put(
        ask.payload,
        priority=ask.priority,
        delay=ask.delay,
        id=ask.id,
        unique_for=ask.unique_for,
        max_attempts=ask.max_attempts,
    )


async def _put_many(store: SharedMemoryStore, ask: TaskPutMany) -> list[PutResult]:
    return await store.queue(ask.queue).put_many(
        ask.payloads, priority=ask.priority, delay=ask.delay, max_attempts=ask.max_attempts
    )


async def _renew(store: SharedMemoryStore, ask: TaskRenew) -> None:
    # The deadline that the call answers is one of this process's clock.
    await store.queue(ask.queue, visibility=ask.visibility).renew(_receipt(ask))


async def _retry(store: SharedMemoryStore, ask: TaskRetry) -> bool:
    receipt = Receipt(id=ask.id, token=ask.token, attempt=ask.attempt)
    return await store.queue(ask.queue).retry(receipt, error=ask.error, delay=ask.delay)


def _receipt(ask: OnClaim) -> Receipt:
    return Receipt(id=ask.id, token=ask.token)


class OfQueues(Record):
    """Nothing needs to be said."""


QUEUE_LIST = Operation(
    "queue.list", "The queues of the namespace, sorted.", "read", OfQueues, list[str], lambda store, _: store.queues()
)
QUEUE_PUT = Operation(
    "queue.put", "Put a task into a queue; tells its id, and whether it is new.", "write", TaskPut, PutResult, _put
)
QUEUE_PUT_MANY = Operation(
    "queue.put_many", "Put tasks into a queue in one step.", "write", TaskPutMany, list[PutResult], _put_many
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
    "queue.renew", "Keep a claimed task for another visibility time.", "write", TaskRenew, None, _renew
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
    _retry,
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
    OnClaim,
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
    OnQueue,
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
    OnTask,
    bool,
    lambda store, ask: store.queue(ask.queue).redrive(ask.id),
)
QUEUE_REDRIVE_ALL = Operation(
    "queue.redrive_all",
    "Try all dead letters again; tells how many there were.",
    "write",
    OnQueue,
    int,
    lambda store, ask: store.queue(ask.queue).redrive_all(),
)
QUEUE_DISCARD = Operation(
    "queue.discard",
    "Forget a task that is not done; tells whether there was one.",
    "write",
    OnTask,
    bool,
    lambda store, ask: store.queue(ask.queue).discard(ask.id),
)
QUEUE_PAUSE = Operation(
    "queue.pause",
    "Hand out no more tasks; tells whether that is news.",
    "write",
    OnQueue,
    bool,
    lambda store, ask: store.queue(ask.queue).pause(),
)
QUEUE_RESUME = Operation(
    "queue.resume",
    "Hand out tasks again; tells whether that is news.",
    "write",
    OnQueue,
    bool,
    lambda store, ask: store.queue(ask.queue).resume(),
)

ROWS = tuple(row for row in list(globals().values()) if isinstance(row, Operation))
