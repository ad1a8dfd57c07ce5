"""Processes are killed with -9 in the middle of their work: what was acknowledged stays, what hangs together too."""

from __future__ import annotations

import asyncio
from pathlib import Path

from support import embedded_fixtures
from support.agent_processes import NAMESPACE, AgentProcess, running_agents
from support.closed_iterators import closed_at_exit
from support.embedded_fixtures import kill_server
from support.faulty_hubs import persistent_settings
from support.redis_process import RedisProcess
from support.waiting import wait_until

from sharedmem import Hub
from sharedmem.config import Settings

data_dir = embedded_fixtures.data_dir


async def acknowledged(child: AgentProcess, steps: int) -> list[tuple[int, int]]:
    """(number, version) of the next so many steps that were acknowledged to a child."""
    lines = [await child.line() for _ in range(steps)]
    return [(int(number), int(version)) for number, version in lines]


async def acknowledged_until_killed(child: AgentProcess) -> list[tuple[int, int]]:
    """The same of all that a child was told until it was killed."""
    child.kill()
    return [(int(number), int(version)) for number, version in await child.rest()]


async def killed_and_started(server: RedisProcess) -> None:
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)


async def members_of(server: RedisProcess) -> list[int]:
    async with Hub.open(settings=persistent_settings(server.url)) as hub:
        members: list[int] = await hub.store(NAMESPACE).read_list("list")
        return members


# The client


async def test_a_client_killed_in_the_middle_of_its_writes_leaves_whole_steps_only(bare_server: RedisProcess) -> None:
    async with running_agents(1, "append", bare_server.url) as [writer]:
        steps = await acknowledged(writer, 200) + await acknowledged_until_killed(writer)

    async with Hub.open(settings=persistent_settings(bare_server.url)) as hub:
        store = hub.store(NAMESPACE)
        members, count = await store.read_list("list"), await store.read("count")
        pair = await store.read_many(["left", "right"])
        # The dead one holds nothing up.
        assert await store.append("list", "next") == len(members) + 1

    assert members == list(range(len(members)))
    assert len(steps) <= pair["left"] + 1 <= count <= len(members) <= len(steps) + 1
    assert pair["left"] == pair["right"]


# The server


async def test_with_fsync_always_a_killed_server_has_kept_every_write_that_was_acknowledged() -> None:
    with RedisProcess(appendonly="yes", appendfsync="always") as server:
        async with running_agents(1, "append", server.url) as [writer]:
            steps = await acknowledged(writer, 300)
            await killed_and_started(server)
            steps += await acknowledged(writer, 300) + await acknowledged_until_killed(writer)
        members = await members_of(server)

    # The other process went on by itself, and the step that the kill interrupted has happened once.
    assert [number for number, _ in steps] == list(range(len(steps)))
    assert members == list(range(len(members)))
    assert len(steps) <= len(members) <= len(steps) + 1
    assert [version for _, version in steps] == sorted({version for _, version in steps})


async def test_with_fsync_everysec_a_killed_server_has_kept_what_was_forced_to_disk_and_a_beginning_of_the_rest() -> (
    None
):
    with RedisProcess(appendonly="yes", appendfsync="everysec") as server:
        async with running_agents(1, "append", server.url) as [writer]:
            forced = len(await acknowledged(writer, 200))
            await asyncio.to_thread(server.force_to_disk)
            await acknowledged(writer, 200)
            await killed_and_started(server)
            kept = await members_of(server)
            await acknowledged_until_killed(writer)
        members = await members_of(server)

    assert len(kept) >= forced
    assert members[: len(kept)] == kept
    following = members[len(kept) :]
    assert following == list(range(following[0], following[0] + len(following))) if following else True


async def test_hubs_of_an_embedded_server_that_was_killed_work_again_when_the_next_one_opens_it(data_dir: Path) -> None:
    settings = Settings(data_dir=data_dir, embedded_modules=(), embedded_fsync="always", retry_for_s=30.0)
    async with Hub.open(settings=settings) as hub:
        await hub.store("team").write("k", "before")
        await kill_server(data_dir)
        written = asyncio.create_task(hub.store("team").write("during", "the outage"))

        async with Hub.open(settings=settings) as next_hub:
            await written
            assert await hub.store("team").read("k") == "before"
            assert await next_hub.store("team").read("during") == "the outage"


async def test_subscriptions_and_watchers_of_a_killed_server_go_on_after_its_restart() -> None:
    with RedisProcess(appendonly="yes", appendfsync="always") as server:
        async with Hub.open(settings=persistent_settings(server.url)) as hub:
            store = hub.store("team")
            messages: list[object] = []
            await store.subscribe("news", messages.append, on_missed=messages.append)
            await store.write("before", 1)
            async with closed_at_exit(store.watch(since=0)) as changes:
                assert (await anext(changes)).key == "team:shared:before"

                await killed_and_started(server)
                await store.write("after", 1)

                assert (await anext(changes)).key == "team:shared:after"
            await wait_until(lambda: len(messages) == 1, description="the subscriber was told of the loss")
            await store.publish("news", "hello")
            await wait_until(lambda: messages[-1] == "hello", description="the subscription went on")
