"""Operations of coordination: locks, work that is done once, barriers, rate limits, presence, task queues."""

from __future__ import annotations

from typing import Any

from sharedmem.api.operation import Facet
from sharedmem.coordination.barriers import Barrier
from sharedmem.coordination.presence import Presence
from sharedmem.coordination.queues import TaskQueue
from sharedmem.coordination.rate_limits import Algorithm, RateLimit
from sharedmem.models import Receipt, Record
from sharedmem.store import SharedMemoryStore as Store

_REQUIRED = ...

# -- locks, and work that is done once -----------------------------------------------------------------

_coordination = Facet[Store]("coordination")

_coordination.operation("lease.state", Store.lease_state, "GET /locks/{name}")
_coordination.operation(
    "lease.acquire", Store.lease_acquire, "POST /locks/{name}", created=201, location="/locks/{name}"
)
_coordination.operation("lease.renew", Store.lease_renew, "PUT /locks/{name}/{id}")
_coordination.operation("lease.release", Store.lease_release, "DELETE /locks/{name}/{id}", answer="released")
_coordination.operation("lease.revoke", Store.lease_revoke, "DELETE /locks/{name}/holders/{token}", answer="revoked")
_coordination.operation("coordination.list", Store.coordination_names, "GET /coordination")
_coordination.operation("once.state", Store.once_state, "GET /once/{key}")
_coordination.operation(
    "once.begin",
    Store.once_begin,
    "POST /once/{key}",
    created=201,
    location="/once/{key}",
    is_new=lambda grant: not grant.done,
)
_coordination.operation("once.renew", Store.once_renew, "POST /once/{key}/renew")
_coordination.operation("once.finish", Store.once_finish, "POST /once/{key}/finish")
_coordination.operation("once.fail", Store.once_fail, "POST /once/{key}/fail", answer="released")
_coordination.operation(
    "once.delete", Store.once_delete, "DELETE /once/{key}", answer="deleted", formerly=["once.forget"]
)

# -- barriers ----------------------------------------------------------------------------------------


class BarrierRequest(Record):
    """A barrier."""

    name: str


async def _waiting(store: Store, ask: BarrierRequest) -> int:
    # How many have to come does not matter to who only looks.
    return await store.barrier(ask.name, 1).waiting()


_barriers = Facet(
    "coordination",
    lambda store, ask: store.barrier(ask.name, ask.parties, lease=ask.lease),
    {"name": (str, _REQUIRED), "parties": (int, _REQUIRED), "lease": (float, 30.0)},
)

_barriers.operation(
    "barrier.wait",
    Barrier.wait,
    "POST /barriers/{name}/wait",
    names={"timeout": "wait"},
    fields={"timeout": (float | None, 0.0)},
)
_barriers.written(
    "barrier.waiting",
    Barrier.waiting,
    "GET /barriers/{name}",
    _waiting,
    needs="write",
    answer="waiting",
    takes=BarrierRequest,
    gives=int,
)

# -- rate limits -------------------------------------------------------------------------------------


def _rate_limit(store: Store, ask: Any) -> RateLimit:
    return store.rate_limit(ask.name, limit=ask.limit, per=ask.per, algorithm=ask.algorithm, burst=ask.burst)


_limits = Facet(
    "coordination",
    _rate_limit,
    {
        "name": (str, _REQUIRED),
        "limit": (int, _REQUIRED),
        "per": (float, _REQUIRED),
        "algorithm": (Algorithm, "sliding_window"),
        "burst": (int | None, None),
    },
)

_limits.operation("limit.state", RateLimit.state, "GET /limits/{name}", needs="write")
_limits.operation("limit.take", RateLimit.take, "POST /limits/{name}/take")
_limits.operation(
    "limit.acquire", RateLimit.acquire, "POST /limits/{name}/acquire", fields={"wait": (float | None, 0.0)}
)

# -- presence ----------------------------------------------------------------------------------------

_presence = Facet("coordination", lambda store, _: store.presence)

_presence.operation("presence.list", Presence.list, "GET /presence", formerly=["presence.who"])
_presence.operation("presence.announce", Presence.announce, "PUT /presence")
_presence.operation("presence.leave", Presence.leave, "DELETE /presence", answer="left")

# -- task queues -------------------------------------------------------------------------------------

_QUEUE: dict[str, tuple[object, object]] = {"queue": (str, _REQUIRED)}
_ID = {"task_id": "id"}
_TASK = "/queues/{queue}/tasks/{id}"


class TaskClaimRequest(Record):
    """A claimed task."""

    queue: str
    id: str
    token: int
    """Fencing token of the claim."""


class TaskRenew(TaskClaimRequest):
    """For how long to keep a claimed task."""

    visibility: float = 30.0


class TaskAck(TaskClaimRequest):
    """The result of a task."""

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


def _receipt(ask: TaskClaimRequest, attempt: int = 1) -> Receipt:
    return Receipt(id=ask.id, token=ask.token, attempt=attempt)


async def _renew(store: Store, ask: TaskRenew) -> None:
    # The deadline that the call returns is one of this process's clock.
    await store.queue(ask.queue, visibility=ask.visibility).renew(_receipt(ask))


async def _ack(store: Store, ask: TaskAck) -> None:
    await store.queue(ask.queue, result_ttl=ask.result_ttl).ack(_receipt(ask), ask.result)


async def _retry(store: Store, ask: TaskRetry) -> bool:
    return await store.queue(ask.queue).retry(_receipt(ask, ask.attempt), error=ask.error, delay=ask.delay)


async def _fail(store: Store, ask: TaskFail) -> None:
    await store.queue(ask.queue).fail(_receipt(ask), ask.error)


async def _release(store: Store, ask: TaskClaimRequest) -> None:
    await store.queue(ask.queue).release(_receipt(ask))


_all_queues = Facet[Store]("queues")
_queue = Facet("queues", lambda store, ask: store.queue(ask.queue), _QUEUE)
_claims = Facet(
    "queues",
    lambda store, ask: store.queue(ask.queue, visibility=ask.visibility),
    _QUEUE | {"visibility": (float, 30.0)},
)

_all_queues.operation("queue.list", Store.queues, "GET /queues", paging="names")
_queue.operation("queue.stats", TaskQueue.stats, "GET /queues/{queue}")
_queue.operation(
    "queue.put",
    TaskQueue.put,
    "POST /queues/{queue}/tasks",
    created=201,
    location="/queues/{queue}/tasks/{id}",
    is_new=lambda put: put.is_new,
)
_queue.operation("queue.put_many", TaskQueue.put_many, "POST /queues/{queue}/batch", bulk=True)
_queue.operation("queue.peek", TaskQueue.peek, "GET /queues/{queue}/tasks")
_claims.operation("queue.claim", TaskQueue.claim, "POST /queues/{queue}/claim", answer="task")
_claims.operation("queue.claim_many", TaskQueue.claim_many, "POST /queues/{queue}/claim/batch")
_queue.operation("queue.result", TaskQueue.result, f"GET {_TASK}", names=_ID)
_queue.operation(
    "queue.delete", TaskQueue.delete, f"DELETE {_TASK}", answer="deleted", names=_ID, formerly=["queue.discard"]
)
_queue.written("queue.renew", TaskQueue.renew, f"POST {_TASK}/renew", _renew, takes=TaskRenew, gives=None)
_queue.written("queue.ack", TaskQueue.ack, f"POST {_TASK}/ack", _ack, takes=TaskAck, gives=None)
_queue.written(
    "queue.retry", TaskQueue.retry, f"POST {_TASK}/retry", _retry, answer="retried", takes=TaskRetry, gives=bool
)
_queue.written("queue.fail", TaskQueue.fail, f"POST {_TASK}/fail", _fail, takes=TaskFail, gives=None)
_queue.written(
    "queue.release", TaskQueue.release, f"POST {_TASK}/release", _release, takes=TaskClaimRequest, gives=None
)
_queue.operation("queue.search", TaskQueue.search, "GET /queues/{queue}/search")
_queue.operation("queue.bury", TaskQueue.bury, f"POST {_TASK}/bury", answer="buried", names=_ID)
_queue.operation("queue.dead", TaskQueue.dead, "GET /queues/{queue}/dead")
_queue.operation(
    "queue.redrive_all", TaskQueue.redrive_all, "POST /queues/{queue}/redrive", answer="redriven", bulk=True
)
_queue.operation(
    "queue.redrive", TaskQueue.redrive, "POST /queues/{queue}/dead/{id}/redrive", answer="redriven", names=_ID
)
_queue.operation("queue.pause", TaskQueue.pause, "POST /queues/{queue}/pause", answer="paused")
_queue.operation("queue.resume", TaskQueue.resume, "POST /queues/{queue}/resume", answer="resumed")

FACETS = (_coordination, _barriers, _limits, _presence, _all_queues, _queue, _claims)
