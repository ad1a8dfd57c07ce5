"""The sync face: the same store without `await`, from any thread, in one process."""

from __future__ import annotations

import asyncio
import inspect
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import pytest

import sharedmem
from sharedmem import InvalidError, Settings, SharedMemoryError, UnavailableError, UsageError
from sharedmem.sync import Hub, SharedMemoryStore
from sharedmem.testing import connect_to_fake


@pytest.fixture
def sync_hub(settings: Settings) -> Iterator[Hub]:
    with Hub(settings=settings, connect=connect_to_fake()) as hub:
        yield hub


@pytest.fixture
def sync_store(sync_hub: Hub) -> SharedMemoryStore:
    return sync_hub.store("research", actor="ada")


def test_a_store_is_used_without_await(redis_url: str, settings: Settings) -> None:
    with Hub.open(redis_url, settings=settings) as hub:
        store = hub.store("sync", actor="ada")
        version = store.write("k", 1)

        assert store.read("k") == 1
        assert store.entry("k") is not None
        assert store.shared.write("k", 2, if_version=0) > version
        assert sorted(store.keys()) == ["sync:ada:k", "sync:shared:k"]
        assert hub.health().ok
        hub.store("sync").clear()


def test_a_near_cache_is_opened_from_any_thread(redis_url: str, settings: Settings) -> None:
    with Hub.open(redis_url, settings=settings) as hub:
        store = hub.store("sync-near", actor="ada", near_cache=True)
        store.write("k", 1)

        assert [store.read("k"), store.read("k")] == [1, 1]
        hub.store("sync-near", actor="ada").write("k", 2)
        assert store.read("k") == 2
        store.delete("k")


def test_every_call_of_the_async_face_is_there() -> None:
    for name in ("Hub", "SharedMemoryStore"):
        wanted = {name for name in dir(getattr(sharedmem, name)) if not name.startswith("_")}
        assert wanted <= set(dir(getattr(sharedmem.sync, name)))
    assert not [name for name, thing in vars(SharedMemoryStore).items() if inspect.iscoroutinefunction(thing)]


def test_errors_come_as_they_are(sync_store: SharedMemoryStore) -> None:
    with pytest.raises(InvalidError, match=r"value\.when"):
        sync_store.write("k", {"when": object()})


def test_many_threads_share_a_hub(sync_store: SharedMemoryStore) -> None:
    with ThreadPoolExecutor(8) as threads:
        numbers = list(threads.map(lambda _: sync_store.incr("n"), range(200)))

    assert sorted(numbers) == list(range(1, 201))


def test_update_may_use_the_store_inside(sync_store: SharedMemoryStore) -> None:
    sync_store.write("step", 5)

    written = sync_store.update("n", lambda n: n + sync_store.read("step"), default=1)

    assert written == 6


def test_a_callback_may_use_the_store(sync_store: SharedMemoryStore) -> None:
    heard: queue.SimpleQueue[object] = queue.SimpleQueue()

    def callback(message: object) -> None:
        sync_store.write("last", message)
        heard.put(sync_store.read("last"))

    unsubscribe = sync_store.subscribe("news", callback)
    sync_store.publish("news", "hello")

    assert heard.get(timeout=10) == "hello"
    unsubscribe()
    assert sync_store.publish("news", "anybody?") == 0


def test_a_subscription_is_a_context_manager_and_an_iterator(sync_store: SharedMemoryStore) -> None:
    with sync_store.subscription("news") as messages:
        sync_store.publish("news", 1)
        sync_store.publish("news", 2)

        assert [message.value for message in islice(messages, 2)] == [1, 2]


def test_a_watcher_can_stop_when_it_has_seen_enough(sync_store: SharedMemoryStore) -> None:
    for number in range(5):
        sync_store.write(f"k{number}", number)

    changes = list(islice(sync_store.watch(since=0), 3))

    assert [change.key[-2:] for change in changes] == ["k0", "k1", "k2"]


def test_an_error_inside_of_a_context_manager_is_the_users_own(sync_store: SharedMemoryStore) -> None:
    with pytest.raises(KeyError, match="mine"), sync_store.subscription("news"):
        raise KeyError("mine")

    assert sync_store.publish("news", 1) == 0


def test_a_progress_function_that_waits_for_the_hub_is_told_so(sync_hub: Hub) -> None:
    store = sync_hub.store("research")
    store.write("k", 1)

    def progress(_: int) -> None:
        store.read("k")

    with pytest.raises(UsageError, match="cannot wait for itself"):
        store.clear(progress)


def test_a_system_exit_inside_of_an_update_reaches_its_caller(sync_store: SharedMemoryStore) -> None:
    with pytest.raises(SystemExit):
        sync_store.update("k", lambda _: sys.exit(3))

    assert sync_store.write("k", 1)


def test_a_closed_hub_says_so(settings: Settings) -> None:
    hub = Hub(settings=settings, connect=connect_to_fake())
    with pytest.raises(UsageError, match="not open"):
        hub.health()
    with hub:
        store = hub.store("research")
        watching = store.watch()
        with pytest.raises(UsageError, match="open already"), hub:
            pass
    with pytest.raises(UsageError, match="not open"):
        store.read("k")
    with pytest.raises(UsageError, match="not open"):
        next(watching)
    hub.close()


def test_a_hub_can_be_opened_again(settings: Settings) -> None:
    hub = Hub(settings=settings, connect=connect_to_fake())
    for number in range(2):
        with hub:
            assert hub.store("research").write("k", number)


def test_a_failed_opening_leaves_no_thread_behind() -> None:
    before = threading.active_count()
    unreachable = Settings(redis_url="redis://127.0.0.1:1", retry_for_s=0)

    with pytest.raises(UnavailableError), Hub(settings=unreachable):
        pass

    assert threading.active_count() == before


def test_a_call_under_way_ends_when_the_hub_closes(settings: Settings) -> None:
    outcome: list[Exception] = []
    with Hub(settings=settings, connect=connect_to_fake()) as hub:
        store = hub.store("research")
        started = threading.Event()

        def wait() -> None:
            with store.subscription("news") as messages:
                started.set()
                try:
                    next(messages)
                except UsageError as error:
                    outcome.append(error)
                    raise

        thread = threading.Thread(target=lambda: _quietly(wait))
        thread.start()
        assert started.wait(10)
    thread.join(10)

    assert len(outcome) == 1


def _quietly(function: object) -> None:
    assert callable(function)
    try:
        function()
    except SharedMemoryError:
        return


def test_ctrl_c_ends_the_call_and_leaves_the_hub_well(sync_store: SharedMemoryStore) -> None:
    timer = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
    with sync_store.subscription("news") as messages:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            next(messages)
        sync_store.publish("news", "still here")
        assert next(messages).value == "still here"
    timer.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_is_told_to_open_its_own_hub() -> None:
    script = """
import os, sys
from sharedmem import UsageError
from sharedmem.sync import Hub
from sharedmem.testing import connect_to_fake

with Hub(connect=connect_to_fake()) as hub:
    store = hub.store("research")
    store.write("k", 1)
    child = os.fork()
    if not child:
        try:
            store.read("k")
        except UsageError as error:
            os._exit(7 if "forked" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert store.read("k") == 1
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True, timeout=60)


def test_a_forgotten_hub_does_not_keep_the_interpreter_alive() -> None:
    script = """
from sharedmem.sync import Hub
from sharedmem.testing import connect_to_fake
hub = Hub(connect=connect_to_fake()).__enter__()
hub.store("research").write("k", 1)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


async def test_a_running_event_loop_may_use_the_sync_face(settings: Settings) -> None:
    def work() -> int:
        with Hub(settings=settings, connect=connect_to_fake()) as hub:
            return hub.store("research").incr("n")

    assert await asyncio.to_thread(work) == 1
    assert work() == 1
