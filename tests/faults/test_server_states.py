"""Whatever state the server is in, a call ends in time with words that help, and the hub works again when it does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

import pytest
from redis import Redis
from support.chaos_proxy import ChaosProxy
from support.faulty_hubs import impatient_settings, persistent_settings
from support.footprint import contents_of
from support.non_redis_server import non_redis_server
from support.redis_process import RedisProcess, free_port
from support.waiting import wait_until

from sharedmem import ConfigError, Hub, SharedMemoryStore, UnavailableError, UnsupportedError
from sharedmem.hub import LAYOUT_VERSION

# Connecting, waiting for a reply and repeating take about three seconds together in an impatient hub.
PATIENCE_S = 60.0

WRITES: dict[str, Callable[[SharedMemoryStore], Awaitable[object]]] = {
    "write": lambda s: s.write("new", 1),
    "writes of one moment": lambda s: asyncio.gather(s.write("new", 1), s.write("other", 2)),
    "write_many": lambda s: s.write_many({"new": 1, "other": 2}),
    "write much": lambda s: s.write("new", "x" * 100_000),
    "update": lambda s: s.update("new", lambda _: 1),
    "append": lambda s: s.append("list", 1, max_length=2, ttl=5),
    "hset": lambda s: s.hset("hash", mapping={"a": 1, "b": 2}, ttl=5),
    "hincrby": lambda s: s.hincrby("hash", "n", ttl=5),
    "sadd": lambda s: s.sadd("set", 1, 2, ttl=5),
    "incr": lambda s: s.incr("counter", ttl=5),
    "publish": lambda s: s.publish("news", 1),
}


@pytest.fixture
async def store(bare_server: RedisProcess) -> AsyncIterator[SharedMemoryStore]:
    """A store of an impatient hub, which works when the test is over whatever it did to the server."""
    async with Hub.open(settings=impatient_settings(bare_server.url)) as hub:
        store = hub.store("team")
        await store.write("before", 1)
        yield store
        await works_again(store)


async def works_again(store: SharedMemoryStore) -> None:
    async def works() -> bool:
        with suppress(UnavailableError):
            return await store.write("k", 1) > 0 and await store.read("k") == 1
        return False

    await wait_until(works, description="the hub works again")


async def refused_in_time(store: SharedMemoryStore, act: Callable[[SharedMemoryStore], Awaitable[object]]) -> str:
    """The words with which a call is refused."""
    with pytest.raises(UnavailableError) as caught:
        async with asyncio.timeout(PATIENCE_S):
            await act(store)
    assert caught.value.retry_after > 0
    return str(caught.value)


# Logging in


@pytest.fixture(scope="module")
def locked_server() -> Iterator[RedisProcess]:
    with RedisProcess(tcp=True, password="open sesame") as server:
        yield server


@pytest.mark.parametrize(
    ("login", "advice"),
    [
        (":wrong@", "user or password is wrong"),
        ("nobody:open%20sesame@", "user or password is wrong"),
        ("", "requires a password"),
    ],
    ids=["wrong password", "wrong user", "no password"],
)
async def test_a_login_that_the_server_refuses_is_explained_and_no_password_is_shown(
    login: str, advice: str, locked_server: RedisProcess
) -> None:
    with pytest.raises(ConfigError, match=advice) as caught:
        async with Hub.open(settings=persistent_settings(locked_server.url.replace("://", f"://{login}"))):
            pass

    assert "wrong@" not in str(caught.value)
    assert "sesame" not in str(caught.value)


async def test_the_right_password_is_taken_from_the_url_or_the_settings(locked_server: RedisProcess) -> None:
    for settings in (
        persistent_settings(locked_server.url.replace("://", "://:open%20sesame@")),
        persistent_settings(locked_server.url, redis_password="open sesame"),
    ):
        async with Hub.open(settings=settings) as hub:
            await hub.store("team").publish("news", "hello")
            async with hub.store("team").subscription("news"):
                assert await hub.store("team").write("k", "x" * 100_000) > 0
            assert "sesame" not in hub.url + repr(hub)


async def test_a_password_for_a_server_that_has_none_is_told() -> None:
    with RedisProcess(tcp=True) as server, pytest.raises(ConfigError, match="has no password set"):
        async with Hub.open(settings=persistent_settings(server.url.replace("://", "://:secret@"))):
            pass


async def test_a_password_changed_while_a_hub_is_open_is_told(locked_server: RedisProcess) -> None:
    settings = impatient_settings(locked_server.url, redis_password="open sesame")
    async with Hub.open(settings=settings) as hub:
        store = hub.store("team")
        await store.write("k", 1)
        locked_server.tell("CONFIG", "SET", "requirepass", "another")
        try:
            with locked_server.client("another") as client:
                client.client_kill_filter(_type="normal")
            with pytest.raises(ConfigError, match="user or password is wrong"):
                await store.write("k", 2)
        finally:
            with locked_server.client("another") as client:
                client.config_set("requirepass", "open sesame")
        await works_again(store)


# No server


async def test_a_dead_port_is_told_at_once_with_the_address() -> None:
    port = free_port()
    with pytest.raises(UnavailableError, match=f"127.0.0.1:{port}.*is it running, and is the address right"):
        async with Hub.open(settings=persistent_settings(f"redis://127.0.0.1:{port}")):
            pass


async def test_a_socket_that_is_not_there_is_told_at_once() -> None:
    with pytest.raises(UnavailableError, match=r"/nonexistent/redis.sock.*is it running"):
        async with Hub.open(settings=persistent_settings("unix:///nonexistent/redis.sock")):
            pass


async def test_a_server_that_never_answers_does_not_hold_up_the_opening() -> None:
    async with non_redis_server() as port:
        with pytest.raises(UnavailableError, match=f"127.0.0.1:{port}.*connect_timeout_s = 2 s.*the connection"):
            async with asyncio.timeout(PATIENCE_S), Hub.open(settings=impatient_settings(f"redis://127.0.0.1:{port}")):
                pass


@pytest.mark.parametrize(
    ("answer", "advice"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is the address right"),
        (b"-ERR max number of clients reached\r\n", "it has too many clients"),
        (b"-LOADING Redis is loading the dataset in memory\r\n", "still loading"),
    ],
    ids=["a web server", "a server that is full", "a server that still loads"],
)
async def test_something_that_answers_otherwise_than_a_ready_redis_is_told(answer: bytes, advice: str) -> None:
    async with non_redis_server(answer) as port:
        with pytest.raises(UnavailableError, match=advice):
            async with asyncio.timeout(PATIENCE_S), Hub.open(settings=impatient_settings(f"redis://127.0.0.1:{port}")):
                pass


# Away for a while


@pytest.mark.parametrize("call", [*WRITES, "read", "entry", "keys", "health"])
async def test_while_the_server_is_down_a_call_fails_in_time(call: str) -> None:
    reads: dict[str, Callable[[SharedMemoryStore], Awaitable[object]]] = {
        "read": lambda s: s.read("k"),
        "entry": lambda s: s.entry("k"),
        "keys": lambda s: anext(s.keys()),
    }
    with RedisProcess() as server:
        async with Hub.open(settings=impatient_settings(server.url, connect_timeout_s=10.0)) as hub:
            store = hub.store("team")
            await store.write("k", 1)
            await asyncio.to_thread(server.kill)
            act = (WRITES | reads).get(call, lambda _: hub.health())
            assert "is it running" in await refused_in_time(store, act)
            await asyncio.to_thread(server.start)
            await works_again(store)


async def test_a_server_that_goes_in_mid_call_and_comes_back_causes_no_error() -> None:
    with RedisProcess(appendonly="yes", appendfsync="always") as server:
        async with Hub.open(settings=persistent_settings(server.url)) as hub:
            store = hub.store("team")
            counting = asyncio.gather(*(_count(store) for _ in range(10)))
            for target in (300, 600):
                await wait_until(partial(_reached, store, target), description=f"{target} are counted", within_s=60)
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
            await counting
            assert await store.read("n") == 1_000


async def _count(store: SharedMemoryStore) -> None:
    for _ in range(100):
        await store.incr("n")


async def _reached(store: SharedMemoryStore, target: int) -> bool:
    return (await store.read("n") or 0) >= target


async def test_a_call_that_is_cancelled_while_the_server_is_away_leaves_a_hub_that_works() -> None:
    with RedisProcess() as server:
        async with Hub.open(settings=persistent_settings(server.url)) as hub:
            store = hub.store("team")
            await asyncio.to_thread(server.kill)
            for act in WRITES.values():
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(act(store), 0.02)
            await asyncio.to_thread(server.start)
            await works_again(store)


@pytest.mark.parametrize("call", WRITES)
async def test_a_server_that_hangs_fails_calls_in_time_and_what_was_given_up_does_not_happen_twice(
    call: str, bare_server: RedisProcess, store: SharedMemoryStore
) -> None:
    with bare_server.frozen():
        words = await refused_in_time(store, WRITES[call])
    assert "Redis at" in words

    await works_again(store)
    # The call was sent, and may have happened after all: once.
    assert await store.list_length("list") <= 1
    assert await store.read("counter", 0) <= 1
    assert await store.hget("hash", "n", 0) <= 1


async def test_a_slow_server_is_waited_for_within_the_patience(proxy: ChaosProxy) -> None:
    async with Hub.open(settings=persistent_settings(proxy.url)) as hub:
        store = hub.store("team")
        with proxy.delayed(0.3):
            assert await asyncio.gather(*(store.incr("n") for _ in range(50))) == list(range(1, 51))
        assert proxy.cuts == 0


async def test_a_long_script_of_another_client_is_waited_for(bare_server: RedisProcess) -> None:
    bare_server.tell("CONFIG", "SET", "busy-reply-threshold", 50)
    spin = "local t = redis.call('TIME')[1] * 1 repeat local n = redis.call('TIME') until n[1] * 1 > t + 1 return 1"
    async with Hub.open(settings=persistent_settings(bare_server.url)) as hub:
        spinning = asyncio.create_task(asyncio.to_thread(bare_server.tell, "EVAL", spin, 0))
        while not spinning.done():
            await hub.store("team").incr("n")
        await spinning


# Refusing


async def test_a_read_only_replica_refuses_a_hub_and_says_what_to_use() -> None:
    with (
        RedisProcess(tcp=True, repl_diskless_sync_delay=0) as master,
        RedisProcess(replicaof=f"127.0.0.1 {master.port}") as replica,
    ):
        await wait_until(lambda: b"master_link_status:up" in _replication(replica), description="the replica follows")
        with pytest.raises(UnavailableError, match="read-only replica; connect to the master"):
            async with Hub.open(settings=impatient_settings(replica.url)):
                pass


async def test_a_master_that_becomes_a_replica_refuses_writes_but_still_reads(
    bare_server: RedisProcess, store: SharedMemoryStore, raw: Redis
) -> None:
    with (
        RedisProcess(tcp=True) as other,
        _state(bare_server, ("REPLICAOF", "127.0.0.1", other.port), "REPLICAOF NO ONE"),
    ):
        for act in WRITES.values():
            assert "read-only replica" in await refused_in_time(store, act)
        assert await store.read("none") is None


@pytest.mark.parametrize("call", WRITES)
async def test_a_full_server_refuses_writes_as_a_whole_and_still_reads_and_deletes(
    call: str, bare_server: RedisProcess, store: SharedMemoryStore, raw: Redis
) -> None:
    async with store.subscription("news") as messages:
        before = contents_of(raw)
        with _state(bare_server, ("CONFIG", "SET", "maxmemory", 1), "CONFIG SET maxmemory 0"):
            words = await refused_in_time(store, WRITES[call])
            assert contents_of(raw) == before
            assert await store.read("before") == 1
            assert await store.delete("before") is True
        assert "out of memory (maxmemory)" in words
        # What was refused was not sent to anybody either.
        await store.publish("news", "the end")
        assert (await anext(messages)).value == "the end"


async def test_a_server_that_cannot_save_refuses_writes_and_says_so() -> None:
    with RedisProcess(save="3600 1") as server:
        async with Hub.open(settings=impatient_settings(server.url)) as hub:
            store = hub.store("team")
            await store.write("k", 1)
            server.break_disk()
            server.tell("BGSAVE")
            await wait_until(
                lambda: b"rdb_last_bgsave_status:err" in server.info("persistence"), description="a save failed"
            )
            for act in WRITES.values():
                assert "cannot save to its disk" in await refused_in_time(store, act)
            assert await store.read("k") == 1


async def test_forgotten_scripts_are_loaded_again_without_anybody_noticing(
    bare_server: RedisProcess, store: SharedMemoryStore
) -> None:
    for act in WRITES.values():
        bare_server.tell("SCRIPT", "FLUSH")
        await act(store)
    bare_server.tell("SCRIPT", "FLUSH")
    # Repeated ones may come behind others, each once all the same.
    assert sorted(await asyncio.gather(*(store.incr("n") for _ in range(50)))) == list(range(1, 51))


async def test_a_flushed_server_is_an_empty_store_with_versions_that_still_rise(
    bare_server: RedisProcess, store: SharedMemoryStore
) -> None:
    before = await store.write("k", 1)
    bare_server.tell("FLUSHALL")

    assert await store.read("k") is None
    assert await store.write("k", 2, if_version=0) > before


async def test_data_of_a_newer_layout_is_not_touched(bare_server: RedisProcess, raw: Redis) -> None:
    raw.set("sm:$layout", LAYOUT_VERSION + 1)
    before = contents_of(raw)

    with pytest.raises(UnsupportedError, match=rf"layout {LAYOUT_VERSION + 1}.*upgrade sharedmem-hub"):
        async with Hub.open(settings=persistent_settings(bare_server.url)):
            pass

    assert contents_of(raw) == before


@contextmanager
def _state(server: RedisProcess, into: tuple[str | int, ...], out_of: str) -> Iterator[None]:
    server.tell(*into)
    try:
        yield
    finally:
        server.tell(*out_of.split())


def _replication(server: RedisProcess) -> bytes:
    return server.info("replication")
