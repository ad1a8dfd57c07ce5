"""A hub opens in a few round trips, within its limit, and says what it waited for when it does not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from support import embedded_fixtures
from support.non_redis_server import non_redis_server
from support.redis_process import RedisProcess
from support.round_trip_proxy import RoundTripProxy
from support.topologies import redis_cluster, sentinel_group

from sharedmem import Hub, Settings, UnavailableError
from sharedmem.embedded.binaries import find_server
from sharedmem.hub import LAYOUT_VERSION
from sharedmem.redis.scripts import scripts

_MOST_TRIPS = 6
_LOG_IN = 1


@pytest.fixture(params=["search", "no search"])
def server(request: pytest.FixtureRequest) -> Iterator[RedisProcess]:
    options: dict[str, Any] = {}
    if request.param == "search":
        embedded_fixtures.need_module("search")
        options = {"loadmodule": find_server().modules["search"]}
    with RedisProcess(tcp=True, **options) as server:
        yield server


def _settings(tmp_path: Path, tier: str, **choices: object) -> Settings:
    url = "none" if tier == "none" else f"sqlite://{tmp_path}/durable.db"
    return Settings(data_dir=tmp_path, durable_url=url, embedder="hashing", connect_timeout_s=60).replace(**choices)


async def _trips_of_opening(proxy: RoundTripProxy, url: str, settings: Settings) -> int:
    """Round trips until a hub is open, its log-ins among them."""
    before = proxy.trips
    async with Hub.open(url, settings=settings) as hub:
        trips = proxy.trips - before
        await hub.store("team").write("key", "value")
        assert await hub.store("team").read("key") == "value"
    return trips


@pytest.mark.parametrize("tier", ["none", "sqlite"])
async def test_a_hub_opens_in_a_few_round_trips(server: RedisProcess, tier: str, tmp_path: Path) -> None:
    settings = _settings(tmp_path, tier)
    async with RoundTripProxy(server.port) as proxy:
        url = f"redis://127.0.0.1:{proxy.port_for(server.port)}/0"
        first = await _trips_of_opening(proxy, url, settings)
        second = await _trips_of_opening(proxy, url, settings)

    assert first <= _LOG_IN + _MOST_TRIPS
    # A server that knows the scripts and the tier has only its questions to answer.
    assert second == _LOG_IN + 1


async def test_a_password_and_a_database_take_no_further_round_trip(tmp_path: Path) -> None:
    with RedisProcess(tcp=True, password="secret") as server:
        async with RoundTripProxy(server.port) as proxy:
            url = f"redis://:secret@127.0.0.1:{proxy.port_for(server.port)}/3"
            await _trips_of_opening(proxy, url, _settings(tmp_path, "none"))

            assert await _trips_of_opening(proxy, url, _settings(tmp_path, "none")) == _LOG_IN + 1


@pytest.mark.parametrize("tier", ["none", "sqlite"])
async def test_a_hub_of_a_cluster_opens_in_a_few_round_trips(tier: str, tmp_path: Path) -> None:
    async with redis_cluster() as cluster, RoundTripProxy(*(each.port for each in cluster.masters)) as proxy:
        url = f"redis+cluster://127.0.0.1:{proxy.port_for(cluster.masters[0].port)}"
        first = await _trips_of_opening(proxy, url, _settings(tmp_path, tier))
        second = await _trips_of_opening(proxy, url, _settings(tmp_path, tier))
        known = [await _known_scripts(master) for master in cluster.masters]

    # The map of the slots takes a log-in of its own.
    assert first <= 2 * _LOG_IN + _MOST_TRIPS
    assert second <= first
    assert known == [len(scripts())] * 3


@pytest.mark.parametrize("tier", ["none", "sqlite"])
async def test_a_hub_behind_sentinels_opens_in_a_few_round_trips(tier: str, tmp_path: Path) -> None:
    async with sentinel_group() as group:
        servers = [group.master.port, group.replica.port]
        async with RoundTripProxy(*servers, *group.ports) as proxy:
            places = ",".join(f"127.0.0.1:{proxy.port_for(port)}" for port in group.ports)
            url = f"redis+sentinel://{places}/mymaster"
            first = await _trips_of_opening(proxy, url, _settings(tmp_path, tier))
            second = await _trips_of_opening(proxy, url, _settings(tmp_path, tier))

    # A sentinel is logged in to and asked for the master before that is logged in to.
    assert first <= 3 * _LOG_IN + _MOST_TRIPS
    assert second <= first


async def test_scripts_that_a_server_lacks_are_loaded_all_at_once(tmp_path: Path) -> None:
    with RedisProcess(tcp=True) as server:
        settings = _settings(tmp_path, "none")
        async with Hub.open(server.url, settings=settings):
            assert await _known_scripts(server) == len(scripts())
        server.tell("SCRIPT", "FLUSH")
        async with RoundTripProxy(server.port) as proxy:
            url = f"redis://127.0.0.1:{proxy.port_for(server.port)}/0"

            assert await _trips_of_opening(proxy, url, settings) == _LOG_IN + 2
            assert await _known_scripts(server) == len(scripts())


async def _known_scripts(server: RedisProcess) -> int:
    async with Redis(port=server.port, protocol=2) as client:
        return sum(await client.script_exists(*(script.digest for script in scripts().values())))


# -- the limit ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answered", "awaited"),
    [
        (0, "the connection and the log-in"),
        (1, "the replies to its first commands"),
        (2, "its Lua scripts to be loaded"),
        (3, "the id of the durable tier"),
        (4, "the version of its data layout"),
    ],
)
async def test_a_server_that_falls_silent_while_a_hub_opens_is_told_within_the_limit(
    answered: int, awaited: str, tmp_path: Path
) -> None:
    told = ""
    for limit_s in (1, 8, 60):  # on a busy machine the steps before may take longer than the first limits
        told = await _told_of_silence(_new_folder(tmp_path, limit_s), answered, limit_s)
        if awaited in told:
            break

    assert f"connect_timeout_s = {limit_s} s; it still waited for {awaited}" in told


def _new_folder(parent: Path, number: int) -> Path:
    folder = parent / str(number)
    folder.mkdir()
    return folder


async def _told_of_silence(folder: Path, answered: int, limit_s: float) -> str:
    """What a hub says that is opened at a server which falls silent; the server is well for others."""
    settings = _settings(folder, "sqlite", connect_timeout_s=limit_s, response_timeout_s=300, retry_for_s=300)
    with RedisProcess(tcp=True) as server:
        async with RoundTripProxy(server.port, answered=answered) as proxy:
            url = f"redis://127.0.0.1:{proxy.port_for(server.port)}/0"
            tasks = asyncio.all_tasks()
            with pytest.raises(UnavailableError) as raised:
                await Hub.open(url, settings=settings).__aenter__()
            left = asyncio.all_tasks() - tasks
        assert not [task for task in left if "sharedmem" in task.get_name()]
        async with Hub.open(server.url, settings=settings.replace(connect_timeout_s=60)) as hub:
            assert await hub.store("team").write("key", "value")
    return str(raised.value)


async def test_a_durable_tier_that_does_not_answer_is_told_within_the_limit(tmp_path: Path) -> None:
    async with non_redis_server() as port:
        choices = {"durable_url": f"cosmos+http://127.0.0.1:{port}", "connect_timeout_s": 2}
        with RedisProcess() as server, pytest.raises(UnavailableError) as raised:
            await Hub.open(server.url, settings=_settings(tmp_path, "none", **choices)).__aenter__()

    assert str(port) in str(raised.value)
    assert "connect_timeout_s = 2 s; it still waited for the durable tier to open" in str(raised.value)


@pytest.mark.parametrize("scheme", ["redis+cluster", "redis+sentinel"])
async def test_silent_servers_are_passed_over_when_another_one_answers(scheme: str, tmp_path: Path) -> None:
    """Two of three that are named swallow everything: the third is asked in time."""

    async with AsyncExitStack() as stack:
        ports = [await stack.enter_async_context(non_redis_server()) for _ in range(2)]
        if scheme == "redis+cluster":
            cluster = await stack.enter_async_context(redis_cluster())
            places, path = [*ports, cluster.masters[0].port], ""
        else:
            group = await stack.enter_async_context(sentinel_group())
            places, path = [*ports, group.ports[0]], "/mymaster"
        url = f"{scheme}://{','.join(f'127.0.0.1:{port}' for port in places)}{path}"

        async with Hub.open(url, settings=_settings(tmp_path, "none", connect_timeout_s=8)) as hub:
            assert await hub.store("team").write("key", "value")


async def test_a_hub_raises_the_layout_of_data_of_an_earlier_version(tmp_path: Path) -> None:
    with RedisProcess() as server:
        async with Hub.open(server.url, settings=_settings(tmp_path, "none")) as hub:
            await hub.store("team").write("key", "value")
        with server.client() as bare:
            known_as = bytes(bare.get("sm:$layout") or b"").partition(b" ")[2]
            bare.set("sm:$layout", b"1 " + known_as)

        async with Hub.open(server.url, settings=_settings(tmp_path, "none")) as hub:
            assert await hub.store("team").read("key") == "value"

        assert server.tell("GET", "sm:$layout") == b"%d %b" % (LAYOUT_VERSION, known_as)
