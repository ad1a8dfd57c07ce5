"""What cannot be done is refused with words that help, and nothing is written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from support.faulty_hubs import persistent_settings
from support.footprint import contents_of
from support.redis_process import RedisProcess

from sharedmem import CorruptionError, Hub, InvalidError, SharedMemoryStore, VersionConflictError, WrongTypeError

Act = Callable[[SharedMemoryStore, Any], Awaitable[object]]


@pytest.fixture
async def store(bare_server: RedisProcess, tmp_path: Path) -> AsyncIterator[SharedMemoryStore]:
    """A store with one key of each type."""
    async with Hub.open(settings=persistent_settings(bare_server.url, data_dir=tmp_path)) as hub:
        store = hub.store("team", actor="ada")
        await store.write("value", {"a": 1}, ttl=1000)
        await store.append("list", 1)
        await store.hset("hash", "word", "text")
        await store.sadd("set", "a")
        await store.incr("counter")
        yield store


@contextmanager
def nothing_written(raw: Redis) -> Iterator[None]:
    before = contents_of(raw)
    yield
    assert contents_of(raw) == before


# Keys

TAKES_A_KEY: dict[str, Act] = {
    "write": lambda s, key: s.write(key, 1),
    "write_many": lambda s, key: s.write_many({"fine": 1, key: 2}),
    "read": lambda s, key: s.read(key),
    "read_many": lambda s, key: s.read_many(["value", key]),
    "entry": lambda s, key: s.entry(key),
    "update": lambda s, key: s.update(key, lambda value: value),
    "exists": lambda s, key: s.exists(key),
    "delete": lambda s, key: s.delete(key),
    "expire": lambda s, key: s.expire(key, 1),
    "ttl": lambda s, key: s.ttl(key),
    "persist": lambda s, key: s.persist(key),
    "append": lambda s, key: s.append(key, 1),
    "read_list": lambda s, key: s.read_list(key),
    "list_length": lambda s, key: s.list_length(key),
    "hset": lambda s, key: s.hset(key, "f", 1),
    "hget": lambda s, key: s.hget(key, "f"),
    "hgetall": lambda s, key: s.hgetall(key),
    "hdel": lambda s, key: s.hdel(key, "f"),
    "hincrby": lambda s, key: s.hincrby(key, "f"),
    "sadd": lambda s, key: s.sadd(key, 1),
    "srem": lambda s, key: s.srem(key, 1),
    "smembers": lambda s, key: s.smembers(key),
    "sismember": lambda s, key: s.sismember(key, 1),
    "scard": lambda s, key: s.scard(key),
    "spop": lambda s, key: s.spop(key),
    "smove from": lambda s, key: s.smove(key, "set", "a"),
    "smove to": lambda s, key: s.smove("set", key, "a"),
    "incr": lambda s, key: s.incr(key),
    "decr": lambda s, key: s.decr(key),
    "publish": lambda s, key: s.publish(key, 1),
    "subscribe": lambda s, key: s.subscribe(key, print),
}
BAD_KEYS = {
    "empty": ("", "non-empty"),
    "an opening brace": ("a{b", "braces"),
    "a closing brace": ("a}b", "braces"),
    "a control character": ("a\nb", "control characters"),
    "a NUL": ("a\0b", "control characters"),
    "a lone surrogate": ("a\ud800b", "control characters"),
    "over 512 bytes": ("ä" * 257, "within 512 bytes"),
    "over 512 bytes with its scope": ("k" * 505, "within 512 bytes"),
    "an empty part": ("team::k", "no part between colons may be empty"),
    "an empty first part": (":k", "no part between colons may be empty"),
    "an empty last part": ("team:", "no part between colons may be empty"),
    "a service scope": ("team:$clock", "scopes that begin with '\\$'"),
    "a glob as namespace": ("te*m:ada:k", "namespace"),
    "bytes": (b"k", "non-empty text"),
    "a number": (7, "non-empty text"),
    "None": (None, "non-empty text"),
}


@pytest.mark.parametrize("call", TAKES_A_KEY)
async def test_no_call_takes_a_key_that_is_none(call: str, store: SharedMemoryStore, raw: Redis) -> None:
    for key, advice in BAD_KEYS.values():
        with nothing_written(raw), pytest.raises(InvalidError, match=advice):
            await TAKES_A_KEY[call](store, key)


async def test_the_longest_key_and_odd_but_honest_ones_are_taken(store: SharedMemoryStore) -> None:
    for key in ("k" * (512 - len("team:ada:")), "a b", "*", "a[b]?", "ключ", "team:ada:a:b:c", "$", "\\"):
        await store.write(key, key)
        assert await store.read(key) == key
    assert {key async for key in store.keys("a[b]?")} == {"team:ada:a[b]?"}


# Values

TAKES_A_VALUE: dict[str, Act] = {
    "write": lambda s, value: s.write("new", value),
    "write_many": lambda s, value: s.write_many({"fine": 1, "new": value}),
    "update": lambda s, value: s.update("value", lambda _: value),
    "append": lambda s, value: s.append("list", value),
    "hset": lambda s, value: s.hset("hash", mapping={"fine": 1, "new": value}),
    "sadd": lambda s, value: s.sadd("set", "fine", value),
    "publish": lambda s, value: s.publish("news", value),
}


@dataclass(frozen=True)
class Point:
    x: int
    y: int


def _recursive() -> list[object]:
    loop: list[object] = []
    loop.append({"inner": loop})
    return loop


def _deep() -> list[object]:
    value: list[object] = []
    for _ in range(500):
        value = [value]
    return value


BAD_VALUES: dict[str, tuple[object, str]] = {
    "an object": (object(), "type object"),
    "one in the middle": ({"findings": [1, 2, 3, {"when": object()}]}, r"findings\[3\].when"),
    "a function": ({"odd key": print}, r"\['odd key'\]"),
    "a complex number": ((1j,), r"\[0\].*complex"),
    "NaN": (float("nan"), "NaN and infinity"),
    "infinity": ({"a": float("-inf")}, "value.a .*NaN and infinity"),
    "recursion": (_recursive(), "nested over 200 deep or contains itself"),
    "depth": (_deep(), "nested over 200 deep or contains itself"),
    "a lone surrogate": ({"a": "\ud800"}, "value.a .*surrogates"),
    "a key of a mapping": ({(1, 2): 3}, "keys of a mapping"),
    "a key with a surrogate": ({"\ud800": 1}, "surrogates"),
    "a NaN key": ({1.5: 3}, "keys of a mapping"),
}


@pytest.mark.parametrize("call", TAKES_A_VALUE)
async def test_no_call_takes_a_value_that_cannot_be_coded_and_the_path_is_told(
    call: str, store: SharedMemoryStore, raw: Redis
) -> None:
    for value, advice in BAD_VALUES.values():
        with nothing_written(raw), pytest.raises(InvalidError, match=advice):
            await TAKES_A_VALUE[call](store, value)


async def test_a_set_takes_only_what_can_be_hashed(store: SharedMemoryStore, raw: Redis) -> None:
    for member in ({"a": 1}, [{"a": 1}], ("a", {"b": 1}), Point(1, 2)):
        with nothing_written(raw), pytest.raises(InvalidError, match="hashable"):
            await store.sadd("set", member)
    with nothing_written(raw), pytest.raises(InvalidError, match="at least one"):
        await store.sadd("set")


async def test_sets_and_lists_come_back_as_members_that_can_be_hashed(store: SharedMemoryStore, raw: Redis) -> None:
    members = {frozenset({1, 2}), (1, ("a", b"b")), None, True, 2.5, "text", b"bytes"}
    await store.sadd("new", *members, [1, ["a", b"b"]])
    assert await store.smembers("new") == members

    raw.sadd("sm:{team}:ada:new", '{"a": 1}', b"\x01\xc1")
    assert await store.smembers("new") == members | {'{"a": 1}', b"\x01\xc1"}


async def test_members_over_the_blob_threshold_are_sent_to_write(store: SharedMemoryStore, raw: Redis) -> None:
    much = "x" * 300_000
    for call in (store.append("list", much), store.hset("hash", "f", much), store.sadd("set", much)):
        with nothing_written(raw), pytest.raises(InvalidError, match="store it as a value"):
            await call


# Times to live, numbers, versions

TAKES_A_TTL: dict[str, Act] = {
    "write": lambda s, ttl: s.write("new", 1, ttl=ttl),
    "write_many": lambda s, ttl: s.write_many({"new": 1}, ttl=ttl),
    "update": lambda s, ttl: s.update("value", lambda value: value, ttl=ttl),
    "append": lambda s, ttl: s.append("list", 1, ttl=ttl),
    "hset": lambda s, ttl: s.hset("hash", "f", 1, ttl=ttl),
    "hincrby": lambda s, ttl: s.hincrby("hash", "f", ttl=ttl),
    "sadd": lambda s, ttl: s.sadd("set", 1, ttl=ttl),
    "incr": lambda s, ttl: s.incr("counter", ttl=ttl),
    "decr": lambda s, ttl: s.decr("counter", ttl=ttl),
    "expire": lambda s, ttl: s.expire("value", ttl),
}


@pytest.mark.parametrize("call", TAKES_A_TTL)
async def test_no_call_takes_a_ttl_that_is_none(call: str, store: SharedMemoryStore, raw: Redis) -> None:
    for ttl in (0, -1, 0.0001, 1e12, 10**400, float("nan"), float("inf"), "60", True, datetime.now(UTC)):
        with nothing_written(raw), pytest.raises(InvalidError, match=r"^ttl .*seconds"):
            await TAKES_A_TTL[call](store, ttl)


CALLS_WITH_BAD_ARGUMENTS: dict[str, tuple[Callable[[SharedMemoryStore], Awaitable[object]], str]] = {
    "no length": (lambda s: s.append("list", 1, max_length=0), "max_length 0 .*at least one"),
    "a negative length": (lambda s: s.append("list", 1, max_length=-5), "max_length -5 .*at least one"),
    "half a length": (lambda s: s.append("list", 1, max_length=1.5), "max_length 1.5 .*whole number"),  # type: ignore[arg-type]  # on purpose
    "a huge length": (lambda s: s.append("list", 1, max_length=1 << 64), "max_length .*64 bits"),
    "a huge start": (lambda s: s.read_list("list", 1 << 64), "start .*64 bits"),
    "an end that is text": (lambda s: s.read_list("list", 0, "9"), "end '9' .*whole number"),  # type: ignore[arg-type]  # on purpose
    "a huge step": (lambda s: s.incr("counter", 1 << 63), "by .*64 bits"),
    "a huge step down": (lambda s: s.decr("counter", 1 << 70), "by .*64 bits"),
    "half a step": (lambda s: s.incr("counter", 0.5), "by 0.5 .*whole number"),  # type: ignore[arg-type]  # on purpose
    "a step that is a truth": (lambda s: s.incr("counter", True), "by True .*whole number"),
    "an overflow": (lambda s: s.incr("counter", (1 << 63) - 1), "range of 64-bit"),
    "an overflow downwards": (lambda s: s.decr("below", (1 << 63) - 1), "range of 64-bit"),
    "an overflow in a hash": (lambda s: s.hincrby("hash", "most", 1), "range of 64-bit"),
    "no number in a hash": (lambda s: s.hincrby("hash", "word"), "not a whole number"),
    "no number in a counter": (lambda s: s.incr("value"), "not a whole number"),
    "a version below zero": (lambda s: s.write("value", 1, if_version=-1), "if_version -1"),
    "a version that is text": (lambda s: s.write("value", 1, if_version="1"), "if_version '1'"),  # type: ignore[arg-type]  # on purpose
    "a version that is a truth": (lambda s: s.write("value", 1, if_version=True), "if_version True"),
    "a kind that is none": (lambda s: s.write("value", 1, kind="forever"), "ephemeral, session, knowledge"),
    "an empty field": (lambda s: s.hset("hash", "", 1), "field '' .*non-empty"),
    "a field that is no text": (lambda s: s.hset("hash", mapping={1: 1}), "field 1 .*non-empty text"),  # type: ignore[dict-item]  # on purpose
    "a field with a surrogate": (lambda s: s.hset("hash", "\ud800", 1), "field .*surrogates"),
    "a field without its value": (lambda s: s.hset("hash", "f"), "field and its value"),
    "a value without its field": (lambda s: s.hset("hash", value=1), "field and its value"),
    "no fields": (lambda s: s.hset("hash"), "mapping"),
    "no fields to remove": (lambda s: s.hdel("hash"), "at least one"),
    "a move to another namespace": (lambda s: s.smove("set", "global:x:y", "a"), "within the namespace"),
    "too many at once": (lambda s: s.write_many({f"k{n}": n for n in range(1_001)}), "split 1001 into several"),
}


@pytest.mark.parametrize("case", CALLS_WITH_BAD_ARGUMENTS)
async def test_an_argument_that_cannot_be_meant_is_refused(case: str, store: SharedMemoryStore, raw: Redis) -> None:
    await store.decr("below", 2)
    await store.hset("hash", "most", (1 << 63) - 1)
    act, advice = CALLS_WITH_BAD_ARGUMENTS[case]

    with nothing_written(raw), pytest.raises(InvalidError, match=advice):
        await act(store)


async def test_a_version_that_was_never_handed_out_is_a_conflict(store: SharedMemoryStore, raw: Redis) -> None:
    for version in (1, 1 << 64, 10**40):
        with nothing_written(raw), pytest.raises(VersionConflictError, match="read it again"):
            await store.write("value", 1, if_version=version)


async def test_numbers_at_the_edges_come_back_whole(store: SharedMemoryStore) -> None:
    for number in ((1 << 63) - 1, -(1 << 63), 1 << 64, -(10**40), 2**53 + 1, 0.1, -0.0, 5e-324):
        await store.write("edge", number)
        assert await store.read("edge") == number
    assert await store.incr("edge-counter", (1 << 63) - 1) == (1 << 63) - 1
    assert await store.read("edge-counter") == (1 << 63) - 1


# Keys that hold another type

NEEDS: dict[str, tuple[str, Act]] = {
    "write": ("value", lambda s, key: s.write(key, 1)),
    "write_many": ("value", lambda s, key: s.write_many({"fine": 1, key: 2})),
    "conditional write": ("value", lambda s, key: s.write(key, 1, if_version=0)),
    "read": ("value", lambda s, key: s.read(key)),
    "entry": ("value", lambda s, key: s.entry(key)),
    "update": ("value", lambda s, key: s.update(key, lambda value: value)),
    "append": ("list", lambda s, key: s.append(key, 1, ttl=5)),
    "read_list": ("list", lambda s, key: s.read_list(key, -5)),
    "list_length": ("list", lambda s, key: s.list_length(key)),
    "hset": ("hash", lambda s, key: s.hset(key, "f", 1, ttl=5)),
    "hget": ("hash", lambda s, key: s.hget(key, "f")),
    "hgetall": ("hash", lambda s, key: s.hgetall(key)),
    "hdel": ("hash", lambda s, key: s.hdel(key, "f")),
    "hincrby": ("hash", lambda s, key: s.hincrby(key, "f", ttl=5)),
    "sadd": ("set", lambda s, key: s.sadd(key, 1, ttl=5)),
    "srem": ("set", lambda s, key: s.srem(key, 1)),
    "smembers": ("set", lambda s, key: s.smembers(key)),
    "sismember": ("set", lambda s, key: s.sismember(key, 1)),
    "scard": ("set", lambda s, key: s.scard(key)),
    "spop": ("set", lambda s, key: s.spop(key)),
    "smove from": ("set", lambda s, key: s.smove(key, "set", "a")),
    "smove to": ("set", lambda s, key: s.smove("set", key, "a")),
    "incr": ("counter", lambda s, key: s.incr(key, ttl=5)),
    "decr": ("counter", lambda s, key: s.decr(key, ttl=5)),
}
REDIS_TYPE = {"value": "string", "counter": "string"}


@pytest.mark.parametrize("call", NEEDS)
async def test_a_key_of_another_type_is_refused_with_the_type_it_has(
    call: str, store: SharedMemoryStore, raw: Redis
) -> None:
    wanted, act = NEEDS[call]
    for held in ("value", "list", "hash", "set", "counter"):
        kind = REDIS_TYPE.get(held, held)
        if kind == REDIS_TYPE.get(wanted, wanted):
            continue
        advice = f"'team:ada:{held}' .* holds a {kind}, this call needs a {wanted}"
        with nothing_written(raw), pytest.raises(WrongTypeError, match=advice):
            await act(store, held)


async def test_a_write_beside_a_refused_one_of_the_same_moment_is_done(store: SharedMemoryStore) -> None:
    answers = await asyncio.gather(
        store.write("one", 1), store.write("list", 2), store.write("three", 3), return_exceptions=True
    )

    assert isinstance(answers[1], WrongTypeError)
    assert await store.read_many(["one", "three"]) == {"one": 1, "three": 3}


# Patterns, names, cursors


async def test_odd_channel_patterns_match_what_they_say_and_no_more(store: SharedMemoryStore) -> None:
    for pattern, heard, not_heard in (
        ("news-[ab]*", "news-[ab]c", "news-a"),
        ("news\\*", "news\\x", "news*"),
        ("a?c", "abc", "abbc"),
        ("[*", "[x", "x"),
        ("**", "anything", None),
    ):
        async with store.subscription(pattern) as messages:
            if not_heard is not None:
                assert await store.publish(not_heard, "wrong") == 0, pattern
            assert await store.publish(heard, pattern) == 1
            assert (await anext(messages)).value == pattern


@pytest.mark.parametrize(
    "act",
    [
        lambda s: s.watch("te*m:x").__anext__(),
        lambda s: s.watch("").__anext__(),
        lambda s: s.watch(since="yesterday").__anext__(),
        lambda s: s.watch(since=-1).__anext__(),
        lambda s: s.watch(since=True).__anext__(),
        lambda s: s.watch(since="1-2-3").__anext__(),
        lambda s: s.watch(since="\u00b2").__anext__(),
        lambda s: s.watch(since=1 << 70).__anext__(),
        lambda s: s.consumer("", "name").__aenter__(),
        lambda s: s.consumer("group", "a:b").__aenter__(),
        lambda s: s.consumer("group", "name", idle=0).__aenter__(),
        lambda s: s.consumer("group", "name", idle=float("nan")).__aenter__(),
        lambda s: s.consumer("group", "name", max_deliveries=0).__aenter__(),
        lambda s: s.keys("{").__anext__(),
    ],
)
async def test_patterns_cursors_and_names_that_are_none_are_refused(
    act: Callable[[SharedMemoryStore], Awaitable[object]], store: SharedMemoryStore, raw: Redis
) -> None:
    with nothing_written(raw), pytest.raises(InvalidError):
        await act(store)


@pytest.mark.parametrize("name", ["", "a:b", "a b", "a*", "{a}", "$a", "a\n", "x" * 200, 3])
async def test_a_namespace_or_actor_that_is_no_name_is_refused(name: Any, bare_server: RedisProcess) -> None:
    async with Hub.open(settings=persistent_settings(bare_server.url)) as hub:
        with pytest.raises(InvalidError, match="namespace"):
            hub.store(name)
        with pytest.raises(InvalidError, match="actor"):
            hub.store("team", actor=name)


@pytest.mark.parametrize("grant", ["", "team", "*:x", "te?m:x", "team:$x", "team:", "{team}:x", ":x"])
async def test_a_grant_that_could_reach_too_far_is_refused(grant: str, bare_server: RedisProcess) -> None:
    async with Hub.open(settings=persistent_settings(bare_server.url)) as hub:
        with pytest.raises(InvalidError):
            hub.store("team", actor="ada", grants=(grant,))


# What other clients have damaged


@pytest.mark.parametrize(
    "damaged",
    [
        b"1795245066123456 someone json\n{cut off",
        b"1795245066123456 someone msgpack\n\xc1",
        b"1795245066123456 \xff\xfe json\n{",
        b"1795245066123456 someone nonsense\n{",
        b"1795245066123456 someone blob\n{}",
    ],
)
async def test_a_damaged_record_is_told_as_such(store: SharedMemoryStore, raw: Redis, damaged: bytes) -> None:
    raw.set("sm:{team}:ada:damaged", damaged)

    with pytest.raises(CorruptionError, match="damaged"):
        await store.read("damaged")

    assert await store.write("damaged", "whole again")
    assert await store.read("damaged") == "whole again"


async def test_a_hash_field_that_is_no_text_does_not_hide_the_others(store: SharedMemoryStore, raw: Redis) -> None:
    raw.hset("sm:{team}:ada:hash", b"\xff", b"1")

    assert await store.hgetall("hash") == {"word": "text", "\\xff": 1}
