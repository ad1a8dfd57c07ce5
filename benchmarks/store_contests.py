"""The contests of the store: each call beside the plain command of redis-py that does the same.

A contest opens on both sides once in every worker process. Bare redis-py gets payloads that are encoded
already and returns bytes; the store encodes and decodes values, and maintains versions, rights and changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import orjson
import redis
from harness import BlockingCall, Call, Opener
from redis.asyncio import BlockingConnectionPool, Redis

from sharedmem import Hub, Settings, SharedMemoryStore

KEYS = [f"finding-{number}" for number in range(1000)]
VALUE = {
    "topic": "solid state batteries",
    "source": "https://example.org/17",
    "confidence": 0.83,
    "findings": [17, 4],
}
PAYLOAD = orjson.dumps(VALUE)
MANY = 100
HOT = 100
LISTS = 100
POOL_SIZE = 50
CHANGES_KEPT = 100_000
_PATIENCE_S = 0.2

OURS, QUEUEING, DEFAULT = "sharedmem", "redis-py, pool of 50", "redis-py, default pool"
BARE = [QUEUEING, DEFAULT]

Store = SharedMemoryStore
OurSide = Callable[[Store], AbstractAsyncContextManager[Call]]
BareSide = Callable[["Redis", "Names"], AbstractAsyncContextManager[Call]]


class Names:
    """The same keys as a user of bare redis-py would spell them."""

    def __init__(self, namespace: str) -> None:
        self.prefix = f"{namespace}:agent:"
        self.keys = [self.prefix + key for key in KEYS]


@dataclass(frozen=True)
class StoreContest:
    """One call, and the command it is measured against."""

    command: str
    ours: OurSide
    bare: BareSide
    near_cache: bool = False


# -- how sides are opened --------------------------------------------------------------------------


def openers(contest: str, url: str, worker: int) -> dict[str, Opener]:
    """Return the functions that open the three sides of a contest; each process has a namespace of its own."""
    namespace = f"bench-{worker}"
    sides: dict[str, Opener] = {side: partial(open_bare, contest, url, namespace, side) for side in BARE}
    return {OURS: partial(open_ours, contest, url, namespace)} | sides


@asynccontextmanager
async def open_ours(contest: str, url: str, namespace: str) -> AsyncIterator[Call | BlockingCall]:
    """Open our side of a contest."""
    options: dict[str, Any] = {"near_cache": True} if CONTESTS[contest].near_cache else {}
    async with (
        Hub.open(settings=Settings(redis_url=url)) as hub,
        CONTESTS[contest].ours(hub.store(namespace, actor="agent", **options)) as call,
    ):
        yield call


@asynccontextmanager
async def open_bare(contest: str, url: str, namespace: str, side: str) -> AsyncIterator[Call | BlockingCall]:
    """Open bare redis-py's side, configured for many tasks or with its defaults."""
    async with bare_client(url, side) as client, CONTESTS[contest].bare(client, Names(namespace)) as call:
        yield call


@asynccontextmanager
async def bare_client(url: str, side: str = DEFAULT) -> AsyncIterator[Redis]:
    """Open bare redis-py with one of its pools."""
    if side == QUEUEING:
        pool: BlockingConnectionPool = BlockingConnectionPool.from_url(url, max_connections=POOL_SIZE)
        client = Redis.from_pool(pool)
    else:
        client = Redis.from_url(url)
    async with client:
        yield client


def _ours(act: Callable[[Store], Call], *, prepare: Callable[[Store], Awaitable[object]] | None = None) -> OurSide:
    @asynccontextmanager
    async def side(store: Store) -> AsyncIterator[Call]:
        if prepare is not None:
            await prepare(store)
        yield act(store)

    return side


def _bare(
    act: Callable[[Redis, Names], Call], *, prepare: Callable[[Redis, Names], Awaitable[object]] | None = None
) -> BareSide:
    @asynccontextmanager
    async def side(client: Redis, names: Names) -> AsyncIterator[Call]:
        if prepare is not None:
            await prepare(client, names)
        yield act(client, names)

    return side


def _fill(store: Store) -> Awaitable[object]:
    return store.write_many(dict.fromkeys(KEYS, VALUE))


def _fill_bare(client: Redis, names: Names) -> Awaitable[object]:
    return client.mset(dict.fromkeys(names.keys, PAYLOAD))


# -- calls that end with their reply ---------------------------------------------------------------


def _write(store: Store) -> Call:
    return lambda number: store.write(KEYS[number % len(KEYS)], VALUE)


def _set(client: Redis, names: Names) -> Call:
    return lambda number: client.set(names.keys[number % len(KEYS)], PAYLOAD)


def _read(store: Store) -> Call:
    return lambda number: store.read(KEYS[number % len(KEYS)])


def _get(client: Redis, names: Names) -> Call:
    return lambda number: client.get(names.keys[number % len(KEYS)])


def _read_hot(store: Store) -> Call:
    return lambda number: store.read(KEYS[number % HOT])


def _get_hot(client: Redis, names: Names) -> Call:
    return lambda number: client.get(names.keys[number % HOT])


def _append(store: Store) -> Call:
    lists = [f"list-{number}" for number in range(LISTS)]
    return lambda number: store.append(lists[number % LISTS], VALUE)


def _rpush(client: Redis, names: Names) -> Call:
    lists = [f"{names.prefix}list-{number}" for number in range(LISTS)]
    return lambda number: client.rpush(lists[number % LISTS], PAYLOAD)


def _hset(store: Store) -> Call:
    return lambda number: store.hset("hash", KEYS[number % len(KEYS)], VALUE)


def _hset_bare(client: Redis, names: Names) -> Call:
    hash_ = names.prefix + "hash"
    return lambda number: client.hset(hash_, KEYS[number % len(KEYS)], PAYLOAD)


def _sadd(store: Store) -> Call:
    return lambda number: store.sadd(f"set-{number % LISTS}", number)


def _sadd_bare(client: Redis, names: Names) -> Call:
    return lambda number: client.sadd(f"{names.prefix}set-{number % LISTS}", number)


def _incr(store: Store) -> Call:
    return lambda _: store.incr("counter")


def _incrby(client: Redis, names: Names) -> Call:
    counter = names.prefix + "counter"
    return lambda _: client.incrby(counter, 1)


def _read_many(store: Store) -> Call:
    pages = [KEYS[start : start + MANY] for start in range(0, len(KEYS), MANY)]
    return lambda number: store.read_many(pages[number % len(pages)])


def _mget(client: Redis, names: Names) -> Call:
    pages = [names.keys[start : start + MANY] for start in range(0, len(KEYS), MANY)]
    return lambda number: client.mget(pages[number % len(pages)])


# -- calls that end when another client has received them --------------------------------------------


class Arrivals:
    """Sent messages whose arrival is awaited."""

    def __init__(self) -> None:
        self._expected: dict[object, asyncio.Future[None]] = {}

    async def of(self, name: object, sending: Awaitable[object]) -> None:
        """Send a message, and return when it has arrived."""
        arrival = self._expected[name] = asyncio.get_running_loop().create_future()
        await sending
        await arrival

    def note(self, name: object) -> None:
        """Record that a message has arrived."""
        arrival = self._expected.pop(name, None)
        if arrival is not None:
            arrival.set_result(None)


async def _cancel_and_wait(task: asyncio.Task[None]) -> None:
    # More than once: redis-py, cancelled in the moment of a reply, can lose the cancellation.
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=_PATIENCE_S)


@asynccontextmanager
async def _publish(store: Store) -> AsyncIterator[Call]:
    arrivals = Arrivals()
    unsubscribe = await store.subscribe("news", lambda message: arrivals.note(message["id"]))
    yield lambda number: arrivals.of(number, store.publish("news", {"id": number, **VALUE}))
    await unsubscribe()


@asynccontextmanager
async def _publish_bare(client: Redis, names: Names) -> AsyncIterator[Call]:
    arrivals, channel = Arrivals(), names.prefix + "news"

    async def listen(pubsub: Any) -> None:
        async for message in pubsub.listen():
            if message["type"] == "message":
                arrivals.note(int(message["data"][:8]))

    async with client.pubsub() as pubsub:
        await pubsub.subscribe(channel)
        listening = asyncio.create_task(listen(pubsub))
        yield lambda number: arrivals.of(number, client.publish(channel, b"%08d" % number + PAYLOAD))
        await _cancel_and_wait(listening)


@asynccontextmanager
async def _watch(store: Store) -> AsyncIterator[Call]:
    arrivals = Arrivals()
    start = await store.write("start", VALUE)
    absolute = [f"{store.namespace}:{store.actor}:{key}" for key in KEYS]

    async def follow() -> None:
        async for change in store.watch(since=start):
            arrivals.note(change.key)

    following = asyncio.create_task(follow())
    yield lambda number: arrivals.of(absolute[number % len(KEYS)], store.write(KEYS[number % len(KEYS)], VALUE))
    await _cancel_and_wait(following)


@asynccontextmanager
async def _watch_bare(client: Redis, names: Names) -> AsyncIterator[Call]:
    arrivals, stream = Arrivals(), names.prefix + "changes"
    last = await client.xadd(stream, {"id": -1})

    async def follow(cursor: Any) -> None:
        while True:
            replies: Any = await client.xread({stream: cursor}, block=1000, count=500)
            for _, entries in replies:
                cursor = entries[-1][0]
                for _, fields in entries:
                    arrivals.note(int(fields[b"id"]))

    following = asyncio.create_task(follow(last))
    yield lambda number: arrivals.of(
        number, client.xadd(stream, {"id": number, "value": PAYLOAD}, maxlen=CHANGES_KEPT, approximate=True)
    )
    await _cancel_and_wait(following)


CONTESTS: dict[str, StoreContest] = {
    "write": StoreContest("SET", _ours(_write), _bare(_set)),
    "read": StoreContest("GET", _ours(_read, prepare=_fill), _bare(_get, prepare=_fill_bare)),
    "near_read": StoreContest(
        f"GET, {HOT} hot keys",
        _ours(_read_hot, prepare=_fill),
        _bare(_get_hot, prepare=_fill_bare),
        near_cache=True,
    ),
    "append": StoreContest("RPUSH", _ours(_append), _bare(_rpush)),
    "hset": StoreContest("HSET", _ours(_hset), _bare(_hset_bare)),
    "incr": StoreContest("INCRBY", _ours(_incr), _bare(_incrby)),
    "sadd": StoreContest("SADD", _ours(_sadd), _bare(_sadd_bare)),
    "read_many": StoreContest(f"MGET of {MANY}", _ours(_read_many, prepare=_fill), _bare(_mget, prepare=_fill_bare)),
    "publish": StoreContest("PUBLISH until heard", _publish, _publish_bare),
    "watch": StoreContest("XADD until XREAD", _watch, _watch_bare),
}


# -- the sync face ---------------------------------------------------------------------------------


def has_sync_face() -> bool:
    """Return whether this checkout has `sharedmem.sync`."""
    return hasattr(_sync_face(), "Hub")


def _sync_face() -> Any:
    return import_module("sharedmem.sync") if find_spec("sharedmem.sync") else None


def sync_openers(url: str) -> dict[str, Opener]:
    """Return the functions that open both sides of the blocking read."""
    return {OURS: partial(open_sync_ours, url), DEFAULT: partial(open_sync_bare, url)}


@asynccontextmanager
async def open_sync_ours(url: str) -> AsyncIterator[Call | BlockingCall]:
    """Open our blocking read."""
    with _sync_face().Hub.open(settings=Settings(redis_url=url)) as hub:
        store = hub.store("bench-sync", actor="agent")
        store.write_many(dict.fromkeys(KEYS, VALUE))
        yield lambda number: store.read(KEYS[number % len(KEYS)])


@asynccontextmanager
async def open_sync_bare(url: str) -> AsyncIterator[Call | BlockingCall]:
    """Open the blocking GET of redis-py."""
    names = Names("bench-sync")
    with redis.Redis.from_url(url) as client:
        client.mset(dict.fromkeys(names.keys, PAYLOAD))
        yield lambda number: client.get(names.keys[number % len(KEYS)])
