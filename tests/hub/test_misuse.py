"""A mistake in the program is told as one, at once: not as a fault of the server that may pass by waiting."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.contexts import context_of, portal_of
from support.waiting import wait_until

from sharedmem import (
    ConfigError,
    Hub,
    InvalidError,
    Settings,
    SharedMemoryStore,
    UnavailableError,
    UnsupportedError,
    UsageError,
)
from sharedmem.client import SharedMemoryClient
from sharedmem.durable.sqlite_store import SqliteDurable
from sharedmem.faces.grpc import MemoryClient
from sharedmem.sync import Hub as SyncHub
from sharedmem.testing import fake_hub

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")  # from Python 3.12 on


async def lock(store: SharedMemoryStore) -> None:
    async with store.lock("index"):
        pass


async def listen(store: SharedMemoryStore) -> None:
    async with store.subscription("news"):
        pass


async def keys(store: SharedMemoryStore) -> None:
    async for _ in store.keys("*"):
        pass


async def watch(store: SharedMemoryStore) -> None:
    async for _ in store.watch():
        pass


CALLS: dict[str, Callable[[SharedMemoryStore], Awaitable[object]]] = {
    "read": lambda store: store.read("topic"),
    "write": lambda store: store.write("topic", "tides"),
    "large write": lambda store: store.write("topic", "tides" * 20_000),
    "update": lambda store: store.update("topic", lambda _: 1),
    "read_many": lambda store: store.read_many(["topic", "other"]),
    "append": lambda store: store.append("list", 1),
    "publish": lambda store: store.publish("news", "hello"),
    "subscription": listen,
    "keys": keys,
    "watch": watch,
    "lock": lock,
    "put": lambda store: store.queue("work").put("task"),
    "claim": lambda store: store.queue("work").claim(wait=None),
    "once": lambda store: store.once("report", lambda: 1, ttl=60),
    "plan": lambda store: store.decisions.save_plan("s", "ABC", "buy", 0.5, "cheap"),
    "remember": lambda store: store.memory.add("the tide turns at six"),
    "recall": lambda store: store.memory.search("tide"),
    "usage": lambda store: store.usage(),
    "clear": lambda store: store.clear(),
}
every_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


@every_call
async def test_a_call_on_a_closed_hub_is_a_mistake_and_not_worth_a_retry(
    call: Callable[[SharedMemoryStore], Awaitable[object]], redis_url: str, settings: Settings
) -> None:
    async with Hub.open(redis_url, settings=settings) as hub:
        store = hub.store("misuse", actor="ada")
        store.memory  # noqa: B018  # its parts are made while the hub is open

    with pytest.raises(UsageError, match="closed") as found:
        await asyncio.wait_for(call(store), 20)
    assert not isinstance(found.value, UnavailableError)
    assert not hasattr(found.value, "retry_after")


@every_call
async def test_a_call_from_another_event_loop_is_refused_before_anything_is_sent(
    call: Callable[[SharedMemoryStore], Awaitable[object]], hub: Hub, namespace: str
) -> None:
    store = hub.store(namespace, actor="ada")
    store.memory  # noqa: B018  # likewise

    def elsewhere() -> None:
        asyncio.run(asyncio.wait_for(call(store), 20))

    with pytest.raises(UsageError, match=r"this hub: it was opened in another event loop; .*sharedmem\.sync"):
        await asyncio.to_thread(elsewhere)
    assert await store.read("topic") is None


def ran(program: str, url: str) -> list[str]:
    """What a program prints that leaves an event loop behind, without its complaints at its end."""
    command = [sys.executable, "-W", "ignore", "-c", program, url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.splitlines()


_TWO_LOOPS = """
import asyncio, sys
from sharedmem import Hub, UsageError

async def opened():
    hub = await Hub.open(sys.argv[1]).__aenter__()
    return hub, hub.store("misuse", actor="ada")

hub, store = asyncio.run(opened())
for late in (store.read("topic"), hub.close()):
    try:
        asyncio.run(late)
    except UsageError as error:
        print(error)
"""


def test_a_hub_of_an_event_loop_that_has_ended_names_the_dead_loop(redis_url: str) -> None:
    dead = "this hub: the event loop that it was opened in is closed; open another one in the loop that uses it"
    assert ran(_TWO_LOOPS, redis_url) == [dead, dead]


def in_a_child(act: Callable[[], str]) -> str:
    """What a forked process says."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            said = act()
        except BaseException as error:  # noqa: BLE001  # the parent judges it
            said = f"{type(error).__name__}: {error}"
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(child, 0)
    return said


FORKED = "UsageError: this hub: it was opened before this process was forked; open another one here"


async def test_a_forked_process_is_told_to_open_a_hub_of_its_own(hub: Hub, namespace: str) -> None:
    store = hub.store(namespace, actor="ada")
    await store.write("topic", "tides", ttl=60)

    assert in_a_child(lambda: asyncio.run(store.read("topic"))) == FORKED
    # A child that was forked from a coroutine goes on in it.
    assert in_a_child(lambda: step(store.read("topic"))) == FORKED
    assert await store.read("topic") == "tides"
    await store.delete("topic")


def step(coroutine: Awaitable[object]) -> str:
    coroutine.__await__().send(None)
    return "it went on"


def tell(store: SharedMemoryStore, said: multiprocessing.SimpleQueue[str]) -> None:
    try:
        asyncio.run(store.read("topic"))
    except UsageError as error:
        said.put(f"UsageError: {error}")


async def test_a_process_of_multiprocessing_that_inherits_a_hub_is_told_so(hub: Hub, namespace: str) -> None:
    fork = multiprocessing.get_context("fork")
    said: multiprocessing.SimpleQueue[str] = fork.SimpleQueue()

    child = fork.Process(target=tell, args=(hub.store(namespace), said))
    child.start()
    assert await asyncio.to_thread(said.get) == FORKED
    await asyncio.to_thread(child.join)


async def test_a_forked_process_that_closes_the_hub_leaves_the_parents_server_alone(tmp_path: Path) -> None:
    async with Hub.open(settings=Settings(data_dir=tmp_path / "d", embedder="none")) as hub:
        store = hub.store("forked")

        def close() -> str:
            asyncio.run(hub.close())
            return repr(hub)

        assert in_a_child(close) == "<Hub closed>"
        await store.write("topic", "tides", ttl=60)
        async with Hub.open(settings=Settings(data_dir=tmp_path / "d", embedder="none")) as other:
            assert await other.store("forked").read("topic") == "tides"


def test_the_sync_api_names_each_mistake(redis_url: str, settings: Settings) -> None:
    hub = SyncHub.open(redis_url, settings=settings)
    with pytest.raises(UsageError, match=r"it is not open; use it inside of: with Hub\.open\(\) as hub"):
        hub.health()
    with hub:
        store = hub.store("misuse")
        with pytest.raises(UsageError, match="it is open already"):
            hub.__enter__()
        with pytest.raises(UsageError, match="cannot wait for itself"):
            portal_of(hub).run(in_the_thread_of(hub))
        assert in_a_child(lambda: str(store.read("topic"))) == FORKED
        assert in_a_child(lambda: closed(hub)) == "it closed"
        assert store.read("topic") is None
    with pytest.raises(UsageError, match="it is not open"):
        store.read("topic")


def closed(hub: SyncHub) -> str:
    hub.close()
    return "it closed"


async def in_the_thread_of(hub: SyncHub) -> None:
    hub.health()


_DEAD_LOOP = """
import sys, threading, time
from sharedmem import UsageError
from sharedmem.sync import Hub

hub = Hub.open(sys.argv[1])
hub.__enter__()
store = hub.store("misuse")

def wait():
    try:
        store.queue("work").claim(wait=None)
    except UsageError as error:
        print(error)

waiting = threading.Thread(target=wait)
waiting.start()
loop, thread = hub._portal._loop, hub._portal._thread
while not hub._portal._calls:
    time.sleep(0.001)
threading.excepthook = lambda _: None
loop.call_soon_threadsafe(loop._selector.close)  # as what closes all descriptors does
waiting.join()
thread.join()
try:
    store.read("topic")
except UsageError as error:
    print(error)
hub.close()
"""


def test_the_sync_api_names_an_event_loop_that_has_ended_and_leaves_no_caller_waiting(redis_url: str) -> None:
    assert ran(_DEAD_LOOP, redis_url) == [
        "this hub: it was closed while the call was under way; it may or may not have happened",
        "this hub: its event loop has ended; open another one",
    ]


async def test_a_hub_is_opened_before_it_is_used_and_once(redis_url: str, settings: Settings) -> None:
    hub = Hub.open(redis_url, settings=settings)
    with pytest.raises(UsageError, match=r"it is not open; use it inside of: async with Hub\.open\(\) as hub"):
        hub.store("misuse")
    async with hub:
        with pytest.raises(UsageError, match="it is open already"):
            await hub.__aenter__()
    await hub.close()


async def test_settings_in_the_place_of_the_url_are_told_where_they_belong(settings: Settings) -> None:
    given: Any = settings

    with pytest.raises(ConfigError, match=r"redis_url.*Hub\.open\(settings="):
        await Hub.open(given)


async def test_clients_and_tiers_that_are_not_open_say_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="it is not open"):
        await MemoryClient("127.0.0.1:1").publish("news", "hello")
    with pytest.raises(UsageError, match="it is not open"):
        await SqliteDurable(tmp_path / "tier.db").get("key")


async def test_a_worker_of_a_closed_hub_ends_and_does_not_try_for_ever(redis_url: str, settings: Settings) -> None:
    async with fake_hub() as hub:
        work = asyncio.ensure_future(hub.store("misuse").queue("work").work(lambda _: None))
        wakeups = context_of(hub.store("misuse")).wait_notifier
        await wait_until(lambda: bool(wakeups.waiting), description="the worker waits for a task")

    with pytest.raises(UsageError, match="closed"):
        await asyncio.wait_for(work, 20)


async def test_an_update_takes_a_function_and_says_so() -> None:
    async with fake_hub() as hub:
        with pytest.raises(InvalidError, match="give a function that takes the value and returns the new one"):
            await hub.store("nc").update("count", 5)  # type: ignore[call-overload]  # a mistake


async def test_a_block_that_closes_its_hub_fails_for_its_own_reason() -> None:
    async with fake_hub() as hub:
        store = hub.store("misuse", actor="ada")

        async def fail() -> None:
            await hub.close()
            raise LookupError("its own")

        with pytest.raises(LookupError, match="its own"):
            async with store.presence.here():
                await fail()
    async with fake_hub() as hub:
        store = hub.store("misuse", actor="ada")
        with pytest.raises(LookupError, match="its own"):
            await store.once("report", fail, ttl=60)


async def test_a_database_that_the_server_lacks_is_a_setting_to_change(redis_url: str, settings: Settings) -> None:
    url = redis_url.replace("db=0", "db=99")
    with pytest.raises(ConfigError, match=r"redis_url.*no database with that number; end the URL with a smaller one"):
        await Hub.open(url, settings=settings).__aenter__()


@pytest.mark.parametrize(("column", "value"), [("http_status", 500), ("grpc_status", "INTERNAL"), ("exit_code", 70)])
def test_mistakes_of_a_program_are_told_by_every_interface_as_bugs_are(column: str, value: object) -> None:
    assert getattr(UsageError.codes, column) == value
    assert sys.modules["sharedmem"].UsageError is UsageError


async def test_a_remote_client_stays_in_its_event_loop() -> None:
    over_http = SharedMemoryClient("http://hub", transport=httpx2.MockTransport(lambda _: httpx2.Response(404)))
    async with over_http, MemoryClient("127.0.0.1:1") as over_grpc:
        with pytest.raises(UnsupportedError):
            await over_http.get_memory("m", app_id="a")
        for late in (over_http.get_memory("m", app_id="a"), over_grpc.publish("news", "hello")):
            with pytest.raises(UsageError, match="this client: it was opened in another event loop"):
                await asyncio.to_thread(asyncio.run, late)
