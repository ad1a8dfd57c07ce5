"""The contests of coordination: each primitive beside redis-py, which does the same by the simplest means.

Three rivals. `EVALSHA` is redis-py with our own scripts and prepared keys and arguments: the bare client
with a script of exactly the same size, without the library around it (names, rights, records,
leases that renew themselves). `Lock` is redis-py's own lock. `saq` is a queue library on redis-py.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

from harness import Call, Opener
from redis.asyncio import Redis
from saq import Status
from saq.queue.redis import RedisQueue
from store_contests import DEFAULT, QUEUEING, VALUE, bare_client

from sharedmem import Hub, Settings, SharedMemoryStore
from sharedmem.clock import SystemClock, new_id
from sharedmem.coordination.names import NameAccess
from sharedmem.coordination.queue_access import QueueAccess, QueueTerms
from sharedmem.decisions.sessions import DecisionSessions
from sharedmem.decisions.validation import plan_digest, plan_hash
from sharedmem.models.coordination import Backoff
from sharedmem.redis.codec import encode_member
from sharedmem.redis.keys import KeySpace, Space
from sharedmem.redis.replies import Argument, Reply
from sharedmem.redis.scope import Identity, Scope
from sharedmem.redis.scripts import scripts
from sharedmem.redis.scripts.coordination import LeaseKeys as Line
from sharedmem.redis.scripts.coordination import (
    LeaseScripts,
    LeaseTerms,
    LimitRequest,
    OnceEnd,
    OnceKeys,
    OnceRequest,
    OnceScripts,
    RateLimitScripts,
)
from sharedmem.redis.scripts.coordination import NamedLeaseKeys as Places
from sharedmem.redis.scripts.decisions import DecisionScripts, ExecutionBegin, PlanTerms, PlanWrite
from sharedmem.redis.scripts.executor import OperationLedger, ScriptExecutor
from sharedmem.redis.scripts.task_queues import AckKeys, ClaimKeys, DoneTask, PutKeys, PutTerms, QueueScripts

Store = SharedMemoryStore
OURS = "sharedmem"
EVALSHA = {f"EVALSHA by {pool}": pool for pool in (QUEUEING, DEFAULT)}
LOCK, SAQ = "redis-py's Lock", "saq"
NAMES = [f"job-{number}" for number in range(1000)]
ACTOR = b"agent"
LEASE_S = 30.0
MOST_PLANS = 100
_PAYLOAD = encode_member(VALUE)
_REASONING = "The fast average crossed the slow one from below; volume agrees."


@dataclass(frozen=True)
class CoordinationContest:
    """One primitive, with the function of each side."""

    steps: str
    ours: Callable[[Store], Call]
    bare: Callable[[BareRedis], Call] | None
    peer: tuple[str, Callable[[str], AbstractAsyncContextManager[Call]]] | None = None


class BareRedis:
    """Our scripts called by redis-py, with all arguments prepared."""

    def __init__(self, client: Redis, namespace: str) -> None:
        line: Any = _BareClient(client)
        self.sender = ScriptExecutor(line, OperationLedger(SystemClock(), retry_for_s=30.0), change_log_length=100_000)
        self._keyspace = KeySpace("sm", new_id())
        self._namespace = namespace
        self.space: Space = self._keyspace.space(namespace)
        # As long as a primitive only builds keys, it uses nothing else of its context.
        context: Any = SimpleNamespace(executor=self.sender, settings=None, tier=None)
        scope = Scope(self._keyspace, Identity(namespace, "agent"))
        names = NameAccess(context, scope)
        self.sessions = DecisionSessions(names)
        terms = QueueTerms(30.0, 30_000, 5, Backoff(), 0)
        self.queue = QueueAccess(names, "work", scope.common("work", "write"), terms)

    def key(self, name: str) -> bytes:
        """Return the key of a name."""
        return self._keyspace.target(f"{self._namespace}:shared:{name}").physical

    def part(self, name: str, part: str) -> bytes:
        """Return the key of a part beside it."""
        return self._keyspace.part(self._keyspace.target(f"{self._namespace}:shared:{name}"), part)


class _BareClient:
    """The client that `ScriptExecutor` uses."""

    def __init__(self, client: Redis) -> None:
        self._client: Any = client

    async def call(self, *args: Argument) -> Reply:
        return cast("Reply", await self._client.execute_command(*args))

    call_aside = call


# -- how sides are opened --------------------------------------------------------------------------


def openers(contest: str, url: str, worker: int) -> dict[str, Opener]:
    """Return the functions by which a worker process opens the sides of a contest."""
    chosen = CONTESTS[contest]
    sides: dict[str, Opener] = {OURS: partial(open_ours, contest, url, f"bench-{worker}")}
    if chosen.bare is not None:
        sides |= {side: partial(open_bare, contest, url, f"bare-{worker}", pool) for side, pool in EVALSHA.items()}
    if chosen.peer is not None:
        sides[chosen.peer[0]] = partial(open_peer, contest, url)
    return sides


@asynccontextmanager
async def open_ours(contest: str, url: str, namespace: str) -> AsyncIterator[Call]:
    """Open our side of a contest."""
    async with Hub.open(settings=Settings(redis_url=url, plans_per_session=MOST_PLANS)) as hub:
        yield CONTESTS[contest].ours(hub.store(namespace, actor="agent"))


@asynccontextmanager
async def open_bare(contest: str, url: str, namespace: str, pool: str) -> AsyncIterator[Call]:
    """Open the same scripts by redis-py."""
    bare = CONTESTS[contest].bare
    assert bare is not None
    async with bare_client(url, pool) as client:
        for script in scripts().values():
            await client.script_load(script.source)
        yield bare(BareRedis(client, namespace))


@asynccontextmanager
async def open_peer(contest: str, url: str) -> AsyncIterator[Call]:
    """Open another library's side."""
    peer = CONTESTS[contest].peer
    assert peer is not None
    async with peer[1](url) as call:
        yield call


def _name(number: int) -> str:
    return NAMES[number % len(NAMES)]


# -- locks -----------------------------------------------------------------------------------------


def _lock(store: Store) -> Call:
    async def call(number: int) -> None:
        async with store.lock(_name(number), lease=LEASE_S):
            pass

    return call


def _one_lock(store: Store) -> Call:
    async def call(_: int) -> None:
        async with store.lock("one", lease=LEASE_S):
            pass

    return call


def _bare_places(bare: BareRedis, part: str, *, capacity: int) -> Call:
    leasing, askers = LeaseScripts(bare.sender), count()
    keys = {name: (bare.part(name, part), bare.part(name, f"{part}.waiters")) for name in NAMES}
    places = {name: Places(*pair, bare.key(name)) for name, pair in keys.items()}
    lines = {name: Line(*pair) for name, pair in keys.items()}
    terms = LeaseTerms(capacity, 1, int(LEASE_S * 1000))

    async def call(number: int) -> None:
        name, asker = _name(number), f"{next(askers):012x}"
        reply = await leasing.lease_acquire(bare.space, [places[name]], ACTOR, terms, waits=0, askers=[asker])
        holder = b"%b %b 1 %b" % (reply.split()[1], ACTOR, asker.encode())
        assert await leasing.lease_release(bare.space, [lines[name]], ACTOR, holders=[holder]) == b"released"

    return call


@asynccontextmanager
async def _redis_lock(url: str) -> AsyncIterator[Call]:
    async with bare_client(url, QUEUEING) as client:

        async def call(number: int) -> None:
            async with client.lock(f"lock:{_name(number)}", timeout=LEASE_S):
                pass

        yield call


@asynccontextmanager
async def _one_redis_lock(url: str) -> AsyncIterator[Call]:
    async with bare_client(url, QUEUEING) as client:

        async def call(_: int) -> None:
            # It checks again every 0.1 s by default.
            async with client.lock("lock:one", timeout=LEASE_S):
                pass

        yield call


def _semaphore(store: Store) -> Call:
    async def call(number: int) -> None:
        async with store.semaphore(_name(number), 4, lease=LEASE_S):
            pass

    return call


def _shared_semaphore(store: Store) -> Call:
    async def call(_: int) -> None:
        async with store.semaphore("four", 4, lease=LEASE_S):
            pass

    return call


# -- queues ----------------------------------------------------------------------------------------


def _queue(store: Store) -> Call:
    queue = store.queue("work")

    async def call(_: int) -> None:
        await queue.put(VALUE)
        task = await queue.claim(wait=None)
        assert task is not None
        await queue.ack(task, "done")

    return call


def _bare_queue(bare: BareRedis) -> Call:
    queueing, result = QueueScripts(bare.sender), encode_member("done")
    put, claim, ack = bare.queue.keys(PutKeys), bare.queue.keys(ClaimKeys), bare.queue.keys(AckKeys)

    async def call(_: int) -> None:
        await queueing.queue_put(bare.space, put, ACTOR, terms=PutTerms(0, 0, 5), payloads=(_PAYLOAD,))
        taken = await queueing.queue_claim(bare.space, claim, ACTOR, count=1, visibility_ms=30_000, waiter="")
        receipt = taken.split(b" ", 2)
        task_id = receipt[0].decode()
        held = await queueing.queue_ack(
            bare.space,
            ack,
            [bare.part(f"work:{task_id}", "queue.result")],
            ACTOR,
            keep_result_ms=86_400_000,
            acks=[DoneTask(task_id, int(receipt[1]), result)],
        )
        assert held == b"1"

    return call


@asynccontextmanager
async def _saq(url: str) -> AsyncIterator[Call]:
    logging.getLogger("saq").setLevel(logging.WARNING)
    async with bare_client(url, QUEUEING) as client:
        queue = RedisQueue(client, max_concurrent_ops=50)

        async def call(_: int) -> None:
            await queue.enqueue("work", **VALUE)
            job = await queue.dequeue(timeout=5)
            assert job is not None
            await job.finish(Status.COMPLETE, result="done")

        yield call


# -- decisions -------------------------------------------------------------------------------------


def _reasons() -> Iterator[str]:
    """Yield reasonings that were never used before."""
    run = new_id()
    return (f"{_REASONING} {run} {number}" for number in count())


def _save_if_new(store: Store) -> Call:
    reasons = _reasons()

    async def call(_: int) -> None:
        result = await store.decisions.save_if_new("day", "BTC", "BUY", 0.8, next(reasons), "cross")
        assert result.saved

    return call


def _bare_save(bare: BareRedis) -> Callable[[int], Awaitable[bytes]]:
    day, deciding, reasons = bare.sessions.keys("day", "write"), DecisionScripts(bare.sender), _reasons()
    terms = PlanTerms(MOST_PLANS, day.events)

    async def call(_: int) -> bytes:
        reasoning = next(reasons)
        short = plan_hash("BTC", "BUY", reasoning)
        body = (
            f'"plan_hash":"{short}","session_id":"day","symbol":"BTC","action":"BUY","confidence":0.8,'
            f'"method":"cross","reasoning":"{reasoning}"}}'
        ).encode()
        same = plan_digest("BTC", "BUY", reasoning)
        saving = PlanWrite(300_000, same, short.encode(), b"BTC", b"0.8 cross", body)
        return await deciding.plan_save(bare.space, day.saving, ACTOR, terms, saves=[saving])

    return call


def _begin_execution(store: Store) -> Call:
    reasons = _reasons()

    async def call(_: int) -> None:
        saved = await store.decisions.save_if_new("night", "BTC", "BUY", 0.8, next(reasons), "cross")
        claim = await store.decisions.begin_execution("night", saved.plan.plan_id)
        assert claim.started

    return call


def _bare_begin(bare: BareRedis) -> Call:
    save, deciding, day = _bare_save(bare), DecisionScripts(bare.sender), bare.sessions.keys("day", "write")

    async def call(number: int) -> None:
        plan = (await save(number)).split()[1].decode()
        claim = ExecutionBegin(plan, 30_000, "never")
        reply = await deciding.execution_begin(bare.space, day.begin, ACTOR, events=day.events, claims=[claim])
        assert reply.startswith(b"started")

    return call


# -- once, rate limits -----------------------------------------------------------------------------


def _once(store: Store) -> Call:
    run, numbers = new_id(), count()

    async def call(_: int) -> None:
        await store.once(f"report-{run}-{next(numbers)}", lambda: "done", ttl=5)

    return call


def _bare_once(bare: BareRedis) -> Call:
    settling, result, run, numbers = OnceScripts(bare.sender), encode_member("done"), new_id(), count()

    async def call(_: int) -> None:
        name = f"report-{run}-{next(numbers)}"
        keys = OnceKeys(bare.part(name, "once"), bare.part(name, "once.waiters"))
        reply = await settling.once_begin(bare.space, ACTOR, [OnceRequest(keys, name, 0, 30_000, 5000)])
        token = int(reply.split()[1])
        await settling.once_finish(bare.space, ACTOR, [OnceEnd(keys, token, 5000, result)])

    return call


def _once_known(store: Store) -> Call:
    return lambda _: store.once("report", lambda: "done", ttl=600)


def _bare_once_known(bare: BareRedis) -> Call:
    settling = OnceScripts(bare.sender)
    keys = OnceKeys(bare.part("report", "once"), bare.part("report", "once.waiters"))

    async def call(_: int) -> None:
        reply = await settling.once_begin(bare.space, ACTOR, [OnceRequest(keys, "asker", 0, 30_000, 600_000)])
        if reply.startswith(b"yours"):
            token = int(reply.split()[1])
            await settling.once_finish(bare.space, ACTOR, [OnceEnd(keys, token, 600_000, b'"done"')])

    return call


def _bucket(store: Store) -> Call:
    limits = {name: store.rate_limit(name, limit=10_000, per=1, algorithm="token_bucket") for name in NAMES}
    return lambda number: limits[_name(number)].take()


def _bare_bucket(bare: BareRedis) -> Call:
    limiting = RateLimitScripts(bare.sender)
    keys = {name: bare.part(name, "limit") for name in NAMES}
    return lambda number: limiting.limit_bucket_take(
        bare.space, ACTOR, [LimitRequest(keys[_name(number)], (10_000, 100, 1, 1))]
    )


def _window(store: Store) -> Call:
    limits = {name: store.rate_limit(name, limit=100, per=1) for name in NAMES}
    return lambda number: limits[_name(number)].take()


def _bare_window(bare: BareRedis) -> Call:
    limiting = RateLimitScripts(bare.sender)
    keys = {name: bare.part(name, "limit") for name in NAMES}
    return lambda number: limiting.limit_window_take(
        bare.space, ACTOR, [LimitRequest(keys[_name(number)], (100, 1_000_000, 1))]
    )


FREE_LOCK, ONE_LOCK, QUEUE = "lock", "lock, all want one", "queue: put, claim, ack"
CONTESTS: dict[str, CoordinationContest] = {
    FREE_LOCK: CoordinationContest(
        "acquire, release", _lock, partial(_bare_places, part="lock", capacity=1), (LOCK, _redis_lock)
    ),
    ONE_LOCK: CoordinationContest("acquire, release", _one_lock, None, (LOCK, _one_redis_lock)),
    "semaphore": CoordinationContest(
        "acquire, release", _semaphore, partial(_bare_places, part="semaphore", capacity=4)
    ),
    "semaphore, all want one of four": CoordinationContest("acquire, release", _shared_semaphore, None),
    QUEUE: CoordinationContest("put, claim, ack", _queue, _bare_queue, (SAQ, _saq)),
    "save_if_new": CoordinationContest("one step", _save_if_new, _bare_save),
    "begin_execution": CoordinationContest("save_if_new, begin", _begin_execution, _bare_begin),
    "once, new": CoordinationContest("begin, finish", _once, _bare_once),
    "once, known": CoordinationContest("one step", _once_known, _bare_once_known),
    "rate limit, token bucket": CoordinationContest("one step", _bucket, _bare_bucket),
    "rate limit, sliding window": CoordinationContest("one step", _window, _bare_window),
}
"""Contests without a bare side are about waiting, which the bare client does not support."""
