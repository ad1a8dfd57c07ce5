"""Another client's junk in sharedmem's own keys: told with the key and what to do, or harmless; never anything else."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from redis import Redis, RedisError
from support import private_server
from support.effort import examples

from sharedmem import CorruptionError, Hub, InternalError, Settings, SharedMemoryError, SharedMemoryStore
from sharedmem.clock import new_id

data_dir = private_server.data_dir
JUNK = (b"\xff\xfe\x00", b"", b"-99999999999999999999", b'{"a": [1, {"b": null}]}', b"[]", b"17", b"inf")
GROUP = "circle"
PATIENCE_S = 20
CALLS_EACH = examples(6, thorough=40)


class Ground(NamedTuple):
    """A namespace in which everything was used, another client, and what lay in each key."""

    store: SharedMemoryStore
    bare: Redis
    dumps: dict[bytes, bytes]

    def put_back(self, key: bytes) -> None:
        """Make a key what it was."""
        self.bare.restore(key, 0, self.dumps[key], replace=True)


async def used(store: SharedMemoryStore) -> None:
    """Leave something in every kind of service key."""
    queue = store.queue("mail")
    for task in ("one", "two", "three"):
        await queue.put(task, id=task)
    await queue.put("later", delay=600)
    await queue.put("never", max_attempts=1, priority=9)
    if claimed := await queue.claim():
        await queue.fail(claimed, "broken")
    await queue.claim()
    await store.write("value", {"n": 1})
    await store.rate_limit("window", limit=5, per=60).take()
    await store.rate_limit("bucket", limit=5, per=60, algorithm="token_bucket").take()
    await store.lease_acquire("lock", lease=600)
    await store.once("work", answer, ttl=600)
    await store.episodes.append_event("desk", {"role": "user", "content": "hello"})
    await store.episodes.summarize_episode("desk")
    await store.decisions.save_plan("desk", "BTC", "BUY", 0.5, "because")
    (plan,) = await store.decisions.get_recent_plans("desk", None, 1)
    await store.decisions.begin_execution("desk", plan.plan_hash)
    await store.decisions.save_plan("desk", "BTC", "BUY", 0.5, "because")
    item = await store.memory.add("The north door code is 7781", thread_id="main", tags=("t",))
    await store.memory.update(item.id, importance="high")
    await store.cache.put("what is the code?", "7781")
    await store.graph.add_episode("Ada knows Bob. Ada lives in Rome.", id="first", group_id=GROUP)
    await store.synthesis.add_agent_memory(app_id="app", user_id="kim", messages="The door is open on Mondays")
    while await store.synthesis.work_once():
        pass


async def answer() -> str:
    return "answer"


async def first_of(changes: AsyncIterator[Any]) -> Any:
    async for change in changes:
        return change
    return None


def calls(store: SharedMemoryStore, memory_id: str) -> dict[str, Callable[[], Awaitable[Any]]]:
    """Public calls that meet service keys, those that only look first."""
    queue, memory, graph, synthesis = store.queue("mail"), store.memory, store.graph, store.synthesis
    return {
        "watch": lambda: first_of(store.watch("*", since=0)),
        "usage": store.usage,
        "queue stats": queue.stats,
        "queue peek": queue.peek,
        "queue dead": queue.dead,
        "queue claimed": lambda: queue.peek(state="claimed"),
        "queue delayed": lambda: queue.peek(state="delayed"),
        "limit": lambda: store.rate_limit("window", limit=5, per=60).state(),
        "lease": lambda: store.lease_state("lock"),
        "once": lambda: store.once_state("work"),
        "who": store.presence.who,
        "events": lambda: store.episodes.events("desk"),
        "sessions": store.episodes.sessions,
        "summary": lambda: store.episodes.summarize_episode("desk"),
        "plans": lambda: store.decisions.get_recent_plans("desk"),
        "executions": lambda: store.decisions.get_open_executions("desk"),
        "execution stats": lambda: store.decisions.get_execution_stats("desk"),
        "memory": lambda: memory.get(memory_id),
        "memory search": lambda: memory.search("north door"),
        "memory recent": memory.recent,
        "memory history": lambda: memory.history(memory_id),
        "memory stats": memory.stats,
        "memory uses": memory.use,
        "thread": lambda: memory.thread_stats("main"),
        "cache": lambda: store.cache.check("what is the code?"),
        "cache stats": store.cache.stats,
        "graph episodes": lambda: graph.episodes(group_id=GROUP),
        "graph facts": lambda: graph.facts("Ada", group_id=GROUP),
        "graph history": lambda: graph.history("Ada", group_id=GROUP),
        "graph words": lambda: graph.text_search("Ada", group_id=GROUP),
        "graph meaning": lambda: graph.vector_search("Ada", group_id=GROUP),
        "graph walk": lambda: graph.traverse_from_entities(["Ada"], group_id=GROUP),
        "graph stats": lambda: graph.stats(group_id=GROUP),
        "graph groups": graph.groups,
        "notes": lambda: synthesis.query_memory(app_id="app", query="door"),
        "tasks": synthesis.tasks,
        "fsck": lambda: synthesis.fsck(app_id="app"),
        "write": lambda: store.write("value", 2),
        "append": lambda: store.append("list", 1, max_length=5),
        "put": lambda: queue.put("more"),
        "claim": queue.claim,
        "redrive": queue.redrive_all,
        "take": lambda: store.rate_limit("bucket", limit=5, per=60, algorithm="token_bucket").take(),
        "acquire": lambda: store.lease_acquire("lock", wait=0),
        "begin once": lambda: store.once("work", answer, ttl=600),
        "append event": lambda: store.episodes.append_event("desk", {"a": 1}),
        "save plan": lambda: store.decisions.save_plan("desk", "ETH", "SELL", 0.5, "because"),
        "add memory": lambda: memory.add("The north door code is 7781"),
        "put answer": lambda: store.cache.put("what is that?", "x"),
    }


def junk_of(bare: Redis, key: bytes) -> Iterator[Callable[[], object]]:
    """What another client may make of a key."""
    kind: Any = bare.type(key)

    def retype() -> None:
        bare.delete(key)
        bare.set(key, "x") if kind != b"string" else bare.rpush(key, "x")

    yield retype
    if kind == b"string":
        yield from (partial(bare.set, key, junk) for junk in JUNK)
    if kind == b"hash":
        fields: Any = bare.hkeys(key)
        for field in fields[:8]:
            yield from (partial(bare.hset, key, field, junk) for junk in JUNK[:4])
            yield partial(bare.hdel, key, field)
    if kind == b"zset":
        yield partial(bare.zadd, key, {b"\xff\xfe": 1, b"": float("inf"), b"low": float("-inf")})
    if kind == b"list":
        yield partial(bare.lpush, key, b"\xff\xfe", b"", b"{")
    if kind == b"set":
        yield partial(bare.sadd, key, b"\xff\xfe", b"")
    if kind == b"stream":
        info: Any = bare.xinfo_stream(key)
        following = info["last-generated-id"].split(b"-")[0] + b"-7"
        yield partial(bare.xadd, key, {b"\xff": b"\xfe"}, id=following)


@pytest.fixture
async def ground(data_dir: Path) -> AsyncIterator[Ground]:
    settings = Settings(data_dir=data_dir, embedder="hashing", durable_url="none", retry_for_s=1)
    async with Hub.open(settings=settings) as hub:
        store = hub.store(f"damaged-{new_id(4)}")
        await used(store)
        await hub.store(store.namespace, actor="ada").presence.announce(role="r", info={"i": 1}, ttl=600)
        with Redis.from_url(hub.url, protocol=2) as bare:
            keys: Any = bare.keys("*$*")
            dumps: Any = {key: bare.dump(key) for key in sorted(keys) if store.namespace.encode() in key}
            yield Ground(store, bare, {key: dump for key, dump in dumps.items() if dump is not None})


async def outcome(call: Callable[[], Awaitable[Any]]) -> str | None:
    """What is wrong with how a call ended; None when it answered or said what is the matter."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            await call()
    except InternalError as error:
        return f"InternalError: {error}"
    except SharedMemoryError:
        return None
    except TimeoutError:
        return "it did not end"
    except Exception as error:  # noqa: BLE001  # whatever it is, this is what is looked for
        return repr(error)
    return None


async def test_junk_in_any_service_key_is_told_in_our_words_or_harmless(ground: Ground) -> None:
    chance = random.Random(7)
    (item,) = await ground.store.memory.recent(limit=1)
    every = calls(ground.store, item.id)
    assert [name for name, call in every.items() if name != "acquire" and await outcome(call)] == []
    wrong: list[tuple[bytes, str, str]] = []
    for key in ground.dumps:
        for spoil in junk_of(ground.bare, key):
            try:
                spoil()
            except RedisError:
                continue
            found = {name: await outcome(every[name]) for name in chance.sample(sorted(every), CALLS_EACH)}
            wrong += [(key, name, told) for name, told in found.items() if told is not None]
            ground.put_back(key)

    assert len(ground.dumps) > 40
    assert not wrong, "\n".join(map(str, wrong))


async def test_a_key_of_another_type_is_named_by_the_call_that_meets_it_and_by_the_check(ground: Ground) -> None:
    space = ground.store.namespace
    meets: dict[str, Callable[[], Awaitable[object]]] = {
        "$clock": lambda: ground.store.write("value", 2),
        "$changes": lambda: ground.store.write("value", 2),
        "$queue.tasks:shared:mail": lambda: ground.store.queue("mail").put("x"),
        "$once:shared:work": lambda: ground.store.once_state("work"),
        "$graph.names:circle": lambda: ground.store.graph.facts("Ada", group_id=GROUP),
        "$memory.log": lambda: ground.store.memory.add("The ferry leaves Skarn at noon"),
        "$execution.stats:shared:desk": lambda: ground.store.decisions.get_execution_stats("desk"),
    }
    assert await ground.store.damaged_keys() == {}
    for name, call in meets.items():
        key = f"sm:{{{space}}}:{name}"
        before = await ground.store.read("value")
        ground.bare.delete(key)
        ground.bare.lpush(key, "x")

        with pytest.raises(CorruptionError, match=r"it is a list and should be a .*; ") as caught:
            await call()
        assert caught.value.key == key
        assert list(await ground.store.damaged_keys()) == [key]

        if key.encode() in ground.dumps:
            ground.put_back(key.encode())
        else:
            ground.bare.delete(key)
        assert await ground.store.read("value") == before


async def test_a_clock_of_another_client_stops_writes_before_anything_is_written(ground: Ground) -> None:
    key = f"sm:{{{ground.store.namespace}}}:$clock"
    for clock in (b"99999999999999999999", b"", b"yesterday", b"17 5", b"12345678901234x6"):
        ground.bare.set(key, clock)

        with pytest.raises(CorruptionError, match="the next change makes it anew"):
            await ground.store.write("value", "new")
        assert await ground.store.read("value") == {"n": 1}

    ground.bare.delete(key)
    await ground.store.write("value", "new")
    assert await ground.store.damaged_keys() == {}
