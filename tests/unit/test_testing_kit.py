"""The kit for users' tests: a hub without a server, and a clock that stands still until it is turned."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta

import fakeredis
import pytest

from sharedmem import InvalidError, Settings, SharedMemoryStore, UnsupportedError
from sharedmem.clock import from_microseconds
from sharedmem.testing import ManualClock, fake_hub


async def test_a_fake_hub_needs_no_server() -> None:
    async with fake_hub() as hub:
        store = hub.store("research", actor="ada")
        await store.write("topic", "tides")

        assert await store.read("topic") == "tides"
        assert hub.powers.server == "fakeredis"


async def test_fake_hubs_do_not_share_what_they_hold() -> None:
    async with fake_hub() as one, fake_hub() as other:
        await one.store("research").write("topic", "tides")

        assert await other.store("research").read("topic") is None


async def test_fake_hubs_on_one_server_are_like_processes() -> None:
    server = fakeredis.FakeServer()
    async with fake_hub(server=server) as one, fake_hub(server=server) as other:
        async with other.store("research").subscription("news") as messages:
            await one.store("research").publish("news", "hello")
            async with asyncio.timeout(60):
                assert (await anext(messages)).value == "hello"
        await one.store("research").write("topic", "tides")

        assert await other.store("research").read("topic") == "tides"


async def test_a_fake_hub_keeps_large_values_out_of_the_users_folders() -> None:
    async with fake_hub(settings=Settings(blob_threshold_bytes=100)) as hub:
        await hub.store("research").write("large", "x" * 300)
        folder = hub.settings.blob_path()

        assert await hub.store("research").read("large") == "x" * 300
        assert folder.is_dir()
    assert not folder.exists()


async def test_many_calls_at_once_wait_in_line() -> None:
    async with fake_hub() as hub:
        store = hub.store("research")
        await asyncio.gather(*(store.incr("count") for _ in range(200)))

        assert await store.read("count") == 200


async def test_a_clock_that_is_turned_lets_things_expire() -> None:
    clock = ManualClock()
    async with fake_hub(clock=clock) as hub:
        store = hub.store("research")
        await store.write("note", 1, ttl=60)
        await store.append("list", 1, ttl=90)

        clock.advance(59.999)
        assert await store.read("note") == 1
        assert await store.ttl("note") == pytest.approx(0.001)
        clock.advance(0.002)
        assert await store.read("note") is None
        assert await store.ttl("list") == pytest.approx(29.999)
        clock.advance(30)
        assert await store.read_list("list") == []


async def test_versions_are_the_time_of_the_clock() -> None:
    clock = ManualClock(datetime(2031, 5, 6, tzinfo=UTC))
    async with fake_hub(clock=clock) as hub:
        store = hub.store("research")
        first = await store.write("key", 1)
        second = await store.write("key", 2)
        clock.advance(3600)
        third = await store.write("key", 3)

    assert from_microseconds(first) == datetime(2031, 5, 6, tzinfo=UTC)
    assert second == first + 1
    assert from_microseconds(third) == datetime(2031, 5, 6, 1, tzinfo=UTC)


async def test_only_the_server_of_the_clock_sees_its_time() -> None:
    clock = ManualClock(datetime(2031, 5, 6, tzinfo=UTC))
    async with fake_hub(clock=clock) as clocked, fake_hub() as other:
        await clocked.store("research").write("key", 1)
        version = await other.store("research").write("key", 1)

    assert abs(version / 1e6 - time.time()) < 60


async def test_what_a_dead_consumer_held_is_free_when_the_clock_is_turned() -> None:
    clock = ManualClock()
    async with fake_hub(clock=clock) as hub:
        store = hub.store("research")
        await store.write("key", 1)
        async with store.consumer("workers", "dead", since=0) as dead:
            held = await anext(aiter(dead))
        clock.advance(61)
        async with store.consumer("workers", "heir") as heir, asyncio.timeout(60):
            inherited = await anext(aiter(heir))

    assert inherited == held


async def test_updates_that_race_need_no_turn_of_the_clock() -> None:
    async with fake_hub(clock=ManualClock()) as hub:
        store: SharedMemoryStore = hub.store("research")
        async with asyncio.timeout(60):
            await asyncio.gather(*(store.update("n", lambda n: n + 1, default=0) for _ in range(20)))

        assert await store.read("n") == 20


async def test_sleepers_wake_in_their_order_when_the_clock_is_turned() -> None:
    clock = ManualClock()
    woken: list[int] = []

    async def sleeper(seconds: int) -> None:
        await clock.sleep(seconds)
        woken.append(seconds)

    tasks = [asyncio.create_task(sleeper(seconds)) for seconds in (30, 10, 20)]
    await asyncio.sleep(0)
    clock.advance(9.9)
    await asyncio.sleep(0)
    assert woken == []
    clock.advance(10.1)
    await asyncio.gather(*tasks[1:])
    assert woken == [10, 20]
    tasks[0].cancel()
    await asyncio.wait(tasks)
    clock.advance(100)


async def test_a_sleep_counts_from_its_call_although_its_task_starts_later() -> None:
    clock = ManualClock()
    sleeper = asyncio.ensure_future(clock.sleep(10))
    clock.advance(12)

    await sleeper

    assert clock.monotonic() == 12


def test_a_clock_shows_what_has_passed() -> None:
    clock = ManualClock()
    before = clock.now()
    clock.advance(1.5)

    assert clock.now() - before == timedelta(seconds=1.5)
    assert clock.monotonic() == 1.5


@pytest.mark.parametrize("seconds", [-1, float("nan")])
def test_a_clock_does_not_go_back(seconds: float) -> None:
    with pytest.raises(InvalidError, match="only goes forward"):
        ManualClock().advance(seconds)


def test_a_clock_needs_a_time_zone() -> None:
    with pytest.raises(InvalidError, match="time zone"):
        ManualClock(datetime(2026, 1, 1))  # noqa: DTZ001  # that is the point


async def test_without_fakeredis_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fakeredis", None)

    with pytest.raises(UnsupportedError, match=r"pip install 'sharedmem-hub\[testing\]'"):
        async with fake_hub():
            pass


def test_the_kit_can_be_imported_without_pytest_and_fakeredis() -> None:
    script = "import sys; sys.modules.update(pytest=None, fakeredis=None); from sharedmem.testing import fake_hub"

    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
