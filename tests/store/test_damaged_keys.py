"""Another client's junk in sharedmem's own keys: told with the key and what to do, or harmless; never anything else."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from redis import Redis, RedisError
from support import embedded_fixtures
from support.example_budget import example_count

from sharedmem import (
    CorruptionError,
    Hub,
    InternalError,
    NotFoundError,
    Settings,
    SharedMemoryError,
    SharedMemoryStore,
)
from sharedmem.clock import new_id
from sharedmem.models.coordination import LeaseGrant, OnceGrant
from sharedmem.redis.replies import Command, Reply
from sharedmem.redis.service_keys import find_damage

data_dir = embedded_fixtures.data_dir
JUNK = (b"\xff\xfe\x00", b"", b"-99999999999999999999", b'{"a": [1, {"b": null}]}', b"[]", b"17", b"inf")
GROUP = "circle"
PATIENCE_S = 60
TIME_S = example_count(20, thorough=3600)
"""Some junk makes a call wait for a hub that will never come, so a whole round takes minutes."""
CALLS_EACH = example_count(6, thorough=40)
CALLS_EACH_WITH_A_TIER = example_count(4, thorough=40)


class Ground(NamedTuple):
    """A namespace in which everything was used, another client, and the content of each key."""

    hub: Hub
    store: SharedMemoryStore
    bare: Redis
    dumps: dict[bytes, bytes]

    def put_back(self, key: bytes) -> None:
        """Make a key what it was."""
        self.bare.restore(key, 0, self.dumps[key], replace=True)

    def named(self, part: str) -> bytes:
        """Where a service key of the namespace lies."""
        return f"sm:{{{self.store.namespace}}}:${part}".encode()

    def record(self, kind: str) -> bytes:
        """A record of the graph: `e` an episode, `n` an entity, `f` a fact."""
        return next(key for key in self.dumps if f"}}:{GROUP}/{kind}/".encode() in key)


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
    await store.conversations.append(
        "talk", ["hello", {"n": 1}, "bye"], entry_ids=["a", "b", "c"], state={"step": 1}, tags={"user": "kim"}
    )
    await store.conversations.fork("talk", "branch", at="b")
    await store.conversations.append("plain", ["hello", "bye"])
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
    """Public calls that meet service keys, the reading ones first."""
    queue, memory, graph, synthesis = store.queue("mail"), store.memory, store.graph, store.synthesis
    return (
        calls_of_conversations(store)
        | calls_of_decisions(store)
        | {
            "watch": lambda: first_of(store.watch("*", since=0)),
            "usage": store.usage,
            "queue stats": queue.stats,
            "queue peek": queue.peek,
            "queue dead": queue.dead,
            "queue claimed": lambda: queue.peek(state="claimed"),
            "queue delayed": lambda: queue.peek(state="delayed"),
            "queue search": lambda: queue.search("one"),
            "limit": lambda: store.rate_limit("window", limit=5, per=60).state(),
            "lease": lambda: store.lease_state("lock"),
            "once": lambda: store.once_state("work"),
            "list": store.presence.list,
            "events": lambda: store.episodes.events("desk"),
            "sessions": store.episodes.sessions,
            "summary": lambda: store.episodes.summarize_episode("desk"),
            "memory": lambda: memory.get(memory_id),
            "memory search": lambda: memory.search("north door"),
            "memory recent": memory.recent,
            "memory history": lambda: memory.history(memory_id),
            "memory stats": memory.stats,
            "memory uses": memory.uses,
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
            "check graph": lambda: graph.check(group_id=GROUP),
            "add fact": lambda: graph.add_relationship("Ada", "likes", "Rome", group_id=GROUP),
            "add memory": lambda: memory.add("The north door code is 7781"),
            "put answer": lambda: store.cache.put("what is that?", "x"),
        }
    )


def calls_of_conversations(store: SharedMemoryStore) -> dict[str, Callable[[], Awaitable[Any]]]:
    """Public calls on conversations, the reading ones first."""
    talks = store.conversations
    return {
        "talk": lambda: talks.read("talk"),
        "newest of a talk": lambda: talks.read("talk", last=2),
        "newest of a plain talk": lambda: talks.read("plain", last=2),
        "talk around": lambda: talks.read("talk", around="b"),
        "branch": lambda: talks.read("branch", last=5),
        "talk state": lambda: talks.state("talk"),
        "talk stats": lambda: talks.stats("talk"),
        "talk head": lambda: talks.get("talk"),
        "talks": talks.list,
        "talks of a user": lambda: talks.list(user="kim"),
        "append to talk": lambda: talks.append("talk", ["more"], entry_ids=["d"]),
        "append to plain talk": lambda: talks.append("plain", ["more"]),
        "append to branch": lambda: talks.append("branch", ["more"], state={"step": 2}),
        "pop of a talk": lambda: talks.pop("talk"),
        "replace in a talk": lambda: talks.replace_suffix("talk", "a", ["other"]),
        "fork a talk": lambda: talks.fork("talk", new_id(4)),
    }


def calls_of_decisions(store: SharedMemoryStore) -> dict[str, Callable[[], Awaitable[Any]]]:
    """Public calls on plans and executions, the reading ones first."""
    decisions = store.decisions

    async def begin() -> object:
        saved = await decisions.save_if_new("desk", "BTC", "BUY", 0.5, "because", time_window_sec=600)
        return await decisions.begin_execution("desk", saved.plan.plan_id)

    return {
        "plans": lambda: decisions.get_recent_plans("desk"),
        "same plan": lambda: decisions.check_duplicate("desk", "BTC", "BUY", "because"),
        "refusals": lambda: decisions.get_refusals("desk"),
        "executions": lambda: decisions.get_open_executions("desk"),
        "execution stats": lambda: decisions.get_execution_stats("desk"),
        "decision history": lambda: decisions.history("desk"),
        "decision patterns": decisions.patterns,
        "save plan": lambda: decisions.save_plan("desk", "ETH", "SELL", 0.5, "because"),
        "save the same plan": lambda: decisions.save_if_new("desk", "BTC", "BUY", 0.5, "because"),
        "begin execution": begin,
    }


def calls_of_a_tier(ground: Ground) -> dict[str, Callable[[], Awaitable[Any]]]:
    """Public calls that bring the durable tier and Redis together."""
    durable, space, store = ground.hub.durable, ground.store.namespace, ground.store

    async def recall() -> Any:
        ground.bare.delete(f"sm:{{{space}}}:shared:kept")
        return await store.read("kept")

    return {
        "status": durable.status,
        "dead letters": lambda: durable.dead_letters(space),
        "replay": lambda: durable.replay(space),
        "verify": lambda: durable.verify(space),
        "drain": lambda: durable.drain(space, timeout=2),
        "recall": recall,
        "write what lasts": lambda: store.write("kept", 2, kind="knowledge"),
        "extend": lambda: store.expire("kept", 600),
        "append what lasts": lambda: store.append("log", "x"),
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
        yield partial(bare.hset, key, b"\xff\xfe", b"\xff")
        for field in fields[:8]:
            yield from (partial(bare.hset, key, field, junk) for junk in JUNK[:4])
            yield partial(bare.hdel, key, field)
    if kind == b"zset":
        yield partial(bare.zadd, key, {b"\xff\xfe": 1, b"": float("inf"), b"low": float("-inf")})
        members: Any = bare.zrange(key, 0, 3)
        yield from (partial(bare.zadd, key, {member: float("inf")}) for member in members)
    if kind == b"list":
        yield partial(bare.lpush, key, b"\xff\xfe", b"", b"{")
        yield from (partial(bare.execute_command, "LSET", key, -1, junk) for junk in JUNK)
    if kind == b"set":
        yield partial(bare.sadd, key, b"\xff\xfe", b"")
    if kind == b"stream":
        info: Any = bare.xinfo_stream(key)
        following = info["last-generated-id"].split(b"-")[0] + b"-7"
        yield partial(bare.xadd, key, {b"\xff": b"\xfe"}, id=following)


@asynccontextmanager
async def prepared(settings: Settings) -> AsyncIterator[Ground]:
    async with Hub.open(settings=settings) as hub:
        store = hub.store(f"damaged-{new_id(4)}")
        await used(store)
        await hub.store(store.namespace, actor="ada").presence.announce(role="r", info={"i": 1}, ttl=600)
        if settings.durable_url != "none":
            await store.write("kept", 1, kind="knowledge")
            await store.append("log", 1, kind="session")
            await hub.durable.drain()
        with Redis.from_url(hub.url, protocol=2) as bare:
            keys: Any = bare.keys("*$*")
            dumps: Any = {key: bare.dump(key) for key in sorted(keys) if store.namespace.encode() in key}
            yield Ground(hub, store, bare, {key: dump for key, dump in dumps.items() if dump is not None})


@pytest.fixture
async def ground(data_dir: Path) -> AsyncIterator[Ground]:
    settings = Settings(data_dir=data_dir, embedder="hashing", durable_url="none", retry_for_s=1)
    async with prepared(settings) as ground:
        yield ground


@pytest.fixture
async def backed(data_dir: Path) -> AsyncIterator[Ground]:
    """With a durable tier behind."""
    settings = Settings(data_dir=data_dir, embedder="hashing", durable_url=f"sqlite://{data_dir}/tier.db")
    async with prepared(settings.replace(retry_for_s=1, knowledge_durability="behind")) as ground:
        yield ground


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


async def spoiled(
    ground: Ground, every: Mapping[str, Callable[[], Awaitable[Any]]], *, calls_each: int
) -> list[tuple[bytes, str, str]]:
    """What goes wrong in some of the calls while each key in its turn holds junk; as much as there is time for."""
    chance, ends_at = random.Random(7), time.monotonic() + TIME_S
    assert [name for name, call in every.items() if name != "acquire" and await outcome(call)] == []
    wrong: list[tuple[bytes, str, str]] = []
    spoils = [(key, spoil) for key in ground.dumps for spoil in junk_of(ground.bare, key)]
    for key, spoil in chance.sample(spoils, len(spoils)):
        if time.monotonic() > ends_at:
            break
        try:
            spoil()
        except RedisError:
            continue
        found = {name: await outcome(every[name]) for name in chance.sample(sorted(every), calls_each)}
        wrong += [(key, name, told) for name, told in found.items() if told is not None]
        ground.put_back(key)
    return wrong


async def test_junk_in_any_service_key_is_told_in_our_words_or_harmless(ground: Ground) -> None:
    (item,) = await ground.store.memory.recent(limit=1)

    wrong = await spoiled(ground, calls(ground.store, item.id), calls_each=CALLS_EACH)

    assert len(ground.dumps) > 40
    assert not wrong, "\n".join(map(str, wrong))


async def test_junk_in_any_service_key_before_a_durable_tier_is_told_in_our_words_or_harmless(backed: Ground) -> None:
    (item,) = await backed.store.memory.recent(limit=1)
    every = calls(backed.store, item.id) | calls_of_a_tier(backed)

    wrong = await spoiled(backed, every, calls_each=CALLS_EACH_WITH_A_TIER)

    assert {b"kept", b"outbox"} <= {key.partition(b":$")[2] for key in backed.dumps}
    assert not wrong, "\n".join(map(str, wrong))


async def test_a_lock_that_another_client_has_written_to_fails_alone_among_those_asked_for_at_once(
    ground: Ground,
) -> None:
    store, (holders,) = ground.store, [key for key in ground.dumps if b"$lock:shared:" in key]
    for spoil in (lambda: ground.bare.set(holders, "x"), lambda: ground.bare.zadd(holders, {"x": 9e15})):
        ground.bare.delete(holders)
        spoil()
        answers = await asyncio.gather(
            *[store.lease_acquire(name) for name in ("a", "b", "lock", "c")], return_exceptions=True
        )
        assert isinstance(answers[2], CorruptionError)
        grants = [answer for answer in answers if isinstance(answer, LeaseGrant)]
        assert [grant.name for grant in grants] == ["a", "b", "c"]
        assert all([await store.lease_release(grant.name, grant.id) for grant in grants])


async def test_work_whose_key_another_client_has_written_to_fails_alone_among_what_is_stored_or_asked_for_at_once(
    ground: Ground,
) -> None:
    store, names = ground.store, ["a", "b", "spoilt", "c"]
    begun = {name: await store.once_begin(name) for name in names}
    key = f"sm:{{{store.namespace}}}:$once:shared:spoilt"
    ground.bare.delete(key)
    ground.bare.lpush(key, "x")

    answers = await asyncio.gather(
        *[store.once_finish(name, grant.token, name) for name, grant in begun.items()], return_exceptions=True
    )

    asked = await asyncio.gather(*[store.once_begin(name) for name in names], return_exceptions=True)

    for error in (answers[2], asked[2]):
        assert isinstance(error, CorruptionError)
        assert error.key == key
    assert [grant.result for grant in asked if isinstance(grant, OnceGrant)] == ["a", "b", "c"]
    ground.bare.delete(key)
    assert [(await store.once_state(name)).state for name in names] == ["done", "done", "none", "done"]


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


@pytest.mark.parametrize("field", ["change", "turn", "body"])
async def test_a_memory_that_lacks_a_field_is_told_in_our_words_or_changed(ground: Ground, field: str) -> None:
    text = f"The {field} of the pier was painted blue"
    added = await ground.store.memory.add(text)
    key = f"sm:$memory:{{{ground.store.namespace}}}:{added.id}"
    for call in (
        lambda: ground.store.memory.add(text),
        lambda: ground.store.memory.update(added.id, category="port"),
        lambda: ground.store.memory.delete(added.id),
    ):
        ground.bare.hdel(key, field)

        with suppress(CorruptionError, NotFoundError):
            await call()


async def test_a_key_that_goes_while_it_is_checked_is_not_told_as_damaged(ground: Ground) -> None:
    record = ground.record("n")

    async def ask(commands: Sequence[Command]) -> list[Reply]:
        replies: list[Reply] = [ground.bare.execute_command(*command) for command in commands]  # type: ignore[no-untyped-call]
        if commands[0][0] == "TYPE":
            ground.bare.delete(record)
        return replies

    assert [error async for error in find_damage(ask, [record])] == []


async def test_a_clock_of_another_client_stops_writes_before_anything_is_written(ground: Ground) -> None:
    key = f"sm:{{{ground.store.namespace}}}:$clock"
    for clock in (b"99999999999999999999", b"", b"yesterday", b"17 5", b"12345678901234x6"):
        ground.bare.set(key, clock)

        with pytest.raises(CorruptionError, match="the next change creates it again"):
            await ground.store.write("value", "new")
        assert await ground.store.read("value") == {"n": 1}

    ground.bare.delete(key)
    await ground.store.write("value", "new")
    assert await ground.store.damaged_keys() == {}


async def test_a_group_that_lost_its_beginning_or_its_guards_can_be_written_to(ground: Ground) -> None:
    graph, groups, changed = ground.store.graph, ground.named("graph.groups"), ground.named(f"graph.changed:{GROUP}")
    spoils: list[Callable[[], object]] = [
        lambda: ground.bare.hdel(groups, GROUP),
        lambda: ground.bare.hset(groups, GROUP, b"\xff"),
        lambda: ground.bare.hset(groups, GROUP, b"9" * 20),
        lambda: ground.bare.hset(groups, "", b"\xff"),
        lambda: ground.bare.delete(changed),
        lambda: ground.bare.zrem(changed, ""),
        lambda: ground.bare.zadd(changed, {"": 1}),
        lambda: ground.bare.zadd(changed, dict.fromkeys(("@ada", "=ada", "junk"), 2**52)),
    ]
    for number, spoil in enumerate(spoils):
        spoil()

        async with asyncio.timeout(PATIENCE_S):
            fact = await graph.add_relationship("Ada", "knows", f"Friend {number}", group_id=GROUP)
        assert fact.id in [one.id for one in await graph.facts("Ada", group_id=GROUP)]
        assert await graph.groups() == [GROUP]

    assert (await graph.check(group_id=GROUP)).is_clean


async def test_a_version_that_was_never_given_is_told_with_the_record_that_has_it(ground: Ground) -> None:
    record = ground.record("f")
    ground.bare.hset(record, "version", b"9" * 16)

    with pytest.raises(CorruptionError, match="was never given") as caught:
        async with asyncio.timeout(PATIENCE_S):
            await ground.store.graph.undo("first", group_id=GROUP)
    assert caught.value.key == record.decode()


@pytest.mark.parametrize("body", [b"{}", b"\xff\xfe", b"[]"], ids=["nothing", "bytes", "a list"])
async def test_a_check_of_a_graph_names_the_record_that_cannot_be_read(ground: Ground, body: bytes) -> None:
    for kind in "enf":
        record = ground.record(kind)
        ground.bare.hset(record, "body", body)

        with pytest.raises(CorruptionError, match="sharedmem restore") as caught:
            await ground.store.graph.check(group_id=GROUP)
        assert caught.value.key == record.decode()
        ground.put_back(record)


async def test_a_state_of_another_client_stops_a_write_before_anything_is_written(backed: Ground) -> None:
    key = f"sm:{{{backed.store.namespace}}}:$kept.state:shared:kept"
    for spoil in (b"\xff", b"pending", b"pending 1 x k 1", b"cached and more", None):
        backed.bare.delete(key)
        if spoil is None:
            backed.bare.rpush(key, "x")
        else:
            backed.bare.set(key, spoil)

        with pytest.raises(CorruptionError, match="durable verify") as caught:
            await backed.store.write("kept", "new")
        assert caught.value.key == key
        assert list(await backed.store.damaged_keys()) == [key]
        assert await backed.store.read("kept") == 1

    backed.bare.delete(key)
    await backed.store.write("kept", "new")
    assert await backed.store.damaged_keys() == {}


async def test_a_kind_of_another_client_stops_a_write_before_anything_is_written(backed: Ground) -> None:
    kept = backed.named("kept")
    backed.bare.hset(kept, f"{backed.store.namespace}:shared:kept", b"\xff")

    with pytest.raises(CorruptionError, match="durable verify") as caught:
        await backed.store.write("kept", "new")
    assert caught.value.key == kept.decode()
    assert await backed.store.read("kept") == 1

    backed.bare.delete(kept)
    await backed.store.write("kept", "new")
    assert await backed.store.read("kept") == "new"


async def test_a_document_that_cannot_be_read_is_a_difference(backed: Ground) -> None:
    space, memory = backed.store.namespace, backed.store.memory
    (item,) = await memory.recent(limit=1)
    backed.bare.hset(next(key for key in backed.dumps if item.id.encode() in key), "turn", b"9" * 18)
    with suppress(SharedMemoryError):
        await memory.update(item.id, tags=("z",))
    backed.bare.xadd(
        backed.named("outbox"),
        {f"log l 0 {2**52} 0 0 0 0 json ada {space}:$memory:{item.id}".encode(): b'{"item":1}'},
    )
    await backed.hub.durable.drain(space)

    found = await backed.hub.durable.verify(space)

    assert [(one.key, one.what) for one in found.differences if one.what == "form"] == [
        (f"{space}:$memory:{item.id}", "form")
    ]


async def test_letters_and_entries_of_another_client_are_listed_and_discarded(backed: Ground) -> None:
    space, durable = backed.store.namespace, backed.hub.durable
    backed.bare.xadd(backed.named("outbox.dead"), {b"\xff": b"\xfe"})
    backed.bare.xadd(backed.named("outbox.dead"), {b"name": b"\xff", b"body": b""}, id="18446744073709551615-1")

    assert [letter.key for letter in await durable.dead_letters(space)] == ["", ""]
    await durable.replay(space)
    await durable.drain(space)
    assert await durable.discard(space) >= 1
    assert await durable.dead_letters(space) == []
