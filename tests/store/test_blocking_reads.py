"""Reads of the sync face on connections of the calling threads: the same answers, from the same data."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pydantic import BaseModel
from support.redis_process import RedisProcess

from sharedmem import AccessDeniedError, InvalidError, Settings, UnavailableError, UsageError, WrongTypeError
from sharedmem.sync import Hub, SharedMemoryStore

MANY = 20
"""More reads than a hub makes through its event loop before it opens a further connection."""


@pytest.fixture
def server() -> Iterator[RedisProcess]:
    with RedisProcess() as server:
        yield server


@pytest.fixture
def hub(server: RedisProcess, settings: Settings) -> Iterator[Hub]:
    few = settings.replace(response_timeout_s=2, retry_for_s=2, blob_threshold_bytes=1000)
    with Hub.open(server.url, settings=few) as hub:
        yield hub


@pytest.fixture
def store(hub: Hub) -> SharedMemoryStore:
    store = hub.store("research", actor="ada")
    warm_up(store)
    return store


def warm_up(store: SharedMemoryStore) -> None:
    """Read so often that the next read is on a connection of the threads."""
    store.write("warm", 1)
    for _ in range(MANY):
        assert store.read("warm") == 1


def connections(server: RedisProcess) -> int:
    """Connections of clients, but for the one that asks."""
    with server.client() as client:
        return len(client.client_list()) - 1


def gets_through_the_loop(server: RedisProcess, store: SharedMemoryStore) -> bool:
    """Whether a read is sent on the connection that also carries writes."""
    with server.client() as client:
        store.write("k", 1)
        last_writer = {one["id"] for one in client.client_list() if one["cmd"] in {"evalsha", "fcall"}}
        store.read("k")
        return bool(last_writer & {one["id"] for one in client.client_list() if one["cmd"] == "get"})


def test_a_program_of_few_reads_opens_no_further_connection(server: RedisProcess, hub: Hub) -> None:
    before = connections(server)

    hub.store("research").read("k")

    assert connections(server) == before


def test_many_reads_have_a_connection_of_their_own(server: RedisProcess, store: SharedMemoryStore) -> None:
    before = connections(server)
    for _ in range(MANY):
        store.read("warm")

    assert not gets_through_the_loop(server, store)
    assert connections(server) == before


class Note(BaseModel):
    text: str


@pytest.mark.parametrize(
    "value", [1, "text", None, [1, {"a": 2.5}], b"\x00\xff", "long " * 1000], ids=lambda value: str(value)[:8]
)
def test_a_value_is_what_was_written(store: SharedMemoryStore, value: Any) -> None:
    store.write("k", value)

    assert store.read("k") == value


def test_a_value_is_read_as_its_type(store: SharedMemoryStore) -> None:
    store.write("k", {"text": "tides"})

    assert store.read("k", as_=Note) == Note(text="tides")
    with pytest.raises(WrongTypeError, match="k"):
        store.read("k", as_=list[int])


def test_a_missing_value_is_the_default(store: SharedMemoryStore) -> None:
    assert store.read("absent") is None
    assert store.read("absent", 7) == 7
    assert store.read("absent", 7, as_=str) == 7


def test_refusals_are_the_same(store: SharedMemoryStore) -> None:
    store.append("log", "line")

    with pytest.raises(WrongTypeError, match="list"):
        store.read("log")
    with pytest.raises(InvalidError):
        store.read("")
    with pytest.raises(AccessDeniedError):
        store.read("other:ada:k")


def test_own_writes_are_seen(store: SharedMemoryStore) -> None:
    for number in range(200):
        store.write("k", number)

        assert store.read("k") == number


def test_a_connection_that_breaks_is_not_missed(server: RedisProcess, store: SharedMemoryStore) -> None:
    for _ in range(3):
        server.tell("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        for _ in range(MANY):
            assert store.read("warm") == 1


def test_a_right_that_is_taken_away_is_missing_at_once(server: RedisProcess, settings: Settings) -> None:
    server.tell("ACL", "SETUSER", "ada", "on", ">secret", "~*", "&*", "+@all")
    with Hub.open(
        settings=settings.replace(redis_url=server.url, redis_username="ada", redis_password="secret")
    ) as hub:
        store = hub.store("research", actor="ada")
        warm_up(store)
        server.tell("ACL", "SETUSER", "ada", "-get")

        with pytest.raises(AccessDeniedError, match="get"):
            store.read("warm")


def test_a_server_that_hangs_is_unavailable(server: RedisProcess, store: SharedMemoryStore) -> None:
    with server.frozen(), pytest.raises(UnavailableError):
        store.read("warm")

    assert store.read("warm") == 1


def test_ctrl_c_leaves_no_reply_for_the_next_read(server: RedisProcess, settings: Settings) -> None:
    with Hub.open(server.url, settings=settings) as hub:
        store = hub.store("research", actor="ada")
        warm_up(store)
        store.write("k", "own")
        timer = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
        with server.frozen():
            timer.start()
            with pytest.raises(KeyboardInterrupt):
                store.read("warm")
        timer.join()

        assert store.read("k") == "own"


def test_each_thread_gets_its_own_value(server: RedisProcess, hub: Hub) -> None:
    store = hub.store("research", actor="ada")
    store.write_many({f"k{number}": number for number in range(40)})

    def read(number: int) -> list[int]:
        return [store.read(f"k{number}") for _ in range(100)]

    with ThreadPoolExecutor(40) as threads:
        assert list(threads.map(read, range(40))) == [[number] * 100 for number in range(40)]


def test_a_closed_hub_leaves_no_connection_and_reads_no_more(server: RedisProcess, settings: Settings) -> None:
    with Hub.open(server.url, settings=settings) as hub:
        store = hub.store("research", actor="ada")
        warm_up(store)
        assert connections(server) > 1

    with pytest.raises(UsageError, match="not open"):
        store.read("warm")
    with server.client() as client:
        # The server may close a connection a moment after its client.
        while len(client.client_list()) > 1:
            pass


def test_reads_beside_a_closing_hub_end(server: RedisProcess, settings: Settings) -> None:
    reading = threading.Event()

    def read_on(store: SharedMemoryStore) -> None:
        try:
            while True:
                store.read("warm")
                reading.set()
        except UsageError:
            return

    with ThreadPoolExecutor(4) as threads:
        with Hub.open(server.url, settings=settings) as hub:
            store = hub.store("research", actor="ada")
            warm_up(store)
            ends = [threads.submit(read_on, store) for _ in range(4)]
            assert reading.wait(60)
        for end in ends:
            end.result(60)


def test_a_server_that_is_set_back_is_mended_before_it_is_read(server: RedisProcess, settings: Settings) -> None:
    tier = f"sqlite:///{server.home}/tier.sqlite3"
    with Hub.open(server.url, settings=settings.replace(durable_url=tier, retry_for_s=60)) as hub:
        store = hub.store("research")
        store.write("plan", "old", kind="knowledge")
        store.write("warm", 1, kind="knowledge")
        for number in range(3):
            for _ in range(MANY):
                store.read("warm")
            server.tell("SAVE")
            store.write("plan", number, kind="knowledge")
            store.durable.drain()
            server.kill()
            server.start()

            assert store.read("plan") == number
            assert store.read("warm") == 1
