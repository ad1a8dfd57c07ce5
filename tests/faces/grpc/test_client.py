"""The Python client: the same errors as the library, and what it does while its server is away."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import pytest
from support.chaos_proxy import ChaosProxy
from support.contexts import context_of, scope_of

from sharedmem import Change, Gap, Hub, InvalidError, UnavailableError, UsageError
from sharedmem.faces.auth import Bearer
from sharedmem.faces.grpc import GrpcAddress, MemoryClient, MemoryServer
from sharedmem.faces.grpc.client import ChannelSecurity

DESK = Bearer.of("desk", actor="ada")


@pytest.fixture
async def server(fake: Hub) -> AsyncIterator[MemoryServer]:
    async with MemoryServer(fake, GrpcAddress(port=0), everyone=DESK, grace_s=1) as server:
        yield server


@pytest.fixture
async def memory(server: MemoryServer) -> AsyncIterator[MemoryClient]:
    async with MemoryClient(server.target) as memory:
        yield memory


def changes_of(memory: MemoryClient, **more: Any) -> Any:
    """The feed, with an end."""
    return aclosing(cast("Any", memory.watch(**more)))


# -- episodes and messages ------------------------------------------------------------------------


async def test_events_are_stored_found_and_summarized(memory: MemoryClient, fake: Hub) -> None:
    assert await memory.episodes.summarize_episode("day") is None
    assert await memory.episodes.append_event("day", {"by": "ada", "text": "The ferry is late."}) == 1
    assert await memory.episodes.append_event("day", "The tide is high.") == 2

    assert await memory.episodes.retrieve("FERRY") == await fake.store("desk").episodes.retrieve("FERRY")
    assert len(await memory.episodes.retrieve("", k=1, filters={"session": "day"})) == 1
    assert await memory.episodes.summarize_episode("day") == await fake.store("desk").episodes.summarize_episode("day")


async def test_a_message_reaches_subscribers_of_the_library(memory: MemoryClient, fake: Hub) -> None:
    async with fake.store("desk").subscription("news") as messages:
        assert await memory.publish("news", {"n": [1, 2.5, None, "ä"]}) == 1
        message = await anext(messages)

    assert message.value == {"n": [1, 2.5, None, "ä"]}


@pytest.mark.parametrize("value", [b"bytes", {1: 2}, 2**70, object(), "\ud800"])
async def test_what_json_cannot_hold_is_refused(memory: MemoryClient, value: object) -> None:
    with pytest.raises(InvalidError, match="JSON"):
        await memory.publish("news", value)
    with pytest.raises(InvalidError, match="JSON"):
        await memory.episodes.append_event("day", value)


@pytest.mark.parametrize("k", [0, True, 2**40])
async def test_a_count_that_is_none_is_refused(memory: MemoryClient, k: int) -> None:
    with pytest.raises(InvalidError, match="k "):
        await memory.episodes.retrieve("x", k)


async def test_a_text_that_is_none_is_refused(memory: MemoryClient) -> None:
    with pytest.raises(InvalidError, match="channel"):
        await memory.publish(cast("str", 7), "x")
    with pytest.raises(InvalidError, match="session"):
        await memory.episodes.summarize_episode("\ud800")


# -- the feed -------------------------------------------------------------------------------------


async def test_a_server_whose_answers_come_late_is_reached(server: MemoryServer, fake: Hub) -> None:
    """Between continents, or on a busy machine, a connection takes most of a second to be made."""
    await fake.store("desk").write("k", 1)
    async with ChaosProxy(f"redis://{server.target}", understands=False) as proxy:
        with proxy.delayed(0.4):
            async with MemoryClient(f"127.0.0.1:{proxy.port}") as memory:
                assert await memory.publish("news", 1) == 0
            async with MemoryClient(f"127.0.0.1:{proxy.port}") as memory, changes_of(memory, since=0) as changes:
                assert (await anext(changes)).key == "desk:shared:k"


async def test_changes_are_those_of_the_library(memory: MemoryClient, fake: Hub) -> None:
    store = fake.store("desk", actor="bob")
    await store.write("k", 1)
    await store.delete("k")

    async with changes_of(memory, since=0) as changes:
        seen = [await anext(changes), await anext(changes)]

    async with aclosing(cast("Any", store.watch(since=0))) as expected:
        assert seen == [await anext(expected), await anext(expected)]
    assert [type(change) for change in seen] == [Change, Change]


async def test_a_gap_is_one_here_too(memory: MemoryClient, fake: Hub) -> None:
    store = fake.store("desk")
    await store.write("k", 1)
    await store.write("k", 2)
    await context_of(store).client.call("XTRIM", scope_of(store).home.changes, "MAXLEN", 1)

    async with changes_of(memory, since=1) as changes:
        gap = await anext(changes)

    assert isinstance(gap, Gap)
    assert (gap.key, gap.operation) == ("desk", "gap")


async def test_a_feed_goes_on_when_its_server_is_back(fake: Hub) -> None:
    store = fake.store("desk")
    await store.write("k", 1)
    first = MemoryServer(fake, GrpcAddress(port=0), everyone=DESK, grace_s=1)
    await first.start()
    async with (
        MemoryClient(first.target, retry_for=30) as memory,
        changes_of(memory, since=0) as changes,
    ):
        before = await anext(changes)
        await first.stop()
        await store.write("k", 2)
        async with MemoryServer(fake, GrpcAddress(port=first.endpoint.port), everyone=DESK, grace_s=1):
            after = await anext(changes)

    assert before.version < after.version
    assert (before.key, after.key) == ("desk:shared:k", "desk:shared:k")


async def test_a_feed_whose_server_stays_away_ends_with_an_error(fake: Hub) -> None:
    await fake.store("desk").write("k", 1)
    server = MemoryServer(fake, GrpcAddress(port=0), everyone=DESK, grace_s=1)
    await server.start()
    async with MemoryClient(server.target, retry_for=0) as memory, changes_of(memory, since=0) as changes:
        await anext(changes)
        await server.stop()
        with pytest.raises(UnavailableError):
            await anext(changes)


async def test_a_pattern_that_may_not_be_read_is_refused(memory: MemoryClient) -> None:
    with pytest.raises(PermissionError, match="elsewhere"):
        await anext(memory.watch("elsewhere:*"))


# -- servers that are not there -------------------------------------------------------------------


@pytest.fixture
async def nobody(fake: Hub) -> str:
    """A target where nothing listens any more."""
    async with MemoryServer(fake, GrpcAddress(port=0)) as server:
        return server.target


async def test_a_server_that_is_not_there_is_reported_with_advice(nobody: str) -> None:
    async with MemoryClient(nobody) as memory:
        with pytest.raises(UnavailableError, match=f"SavePlan at {nobody}: .* `sharedmem serve grpc` running"):
            await memory.decisions.save_plan("btc", "BTC", "BUY", 0.5, "")
        with pytest.raises(UnavailableError):
            await anext(memory.watch())


async def test_a_server_that_comes_back_is_found(fake: Hub, nobody: str) -> None:
    async with MemoryClient(nobody) as memory:
        with pytest.raises(UnavailableError):
            await memory.decisions.save_plan("btc", "BTC", "BUY", 0.5, "")
        async with MemoryServer(fake, GrpcAddress(port=int(nobody.rpartition(":")[2])), everyone=DESK):
            # A call that only looks is repeated until the channel is there again.
            assert await memory.decisions.sessions() == []


async def test_a_client_that_is_not_open_says_so(server: MemoryServer) -> None:
    memory = MemoryClient(server.target)
    with pytest.raises(UsageError, match="async with MemoryClient"):
        await memory.decisions.sessions()

    async with memory:
        assert await memory.decisions.sessions() == []

    with pytest.raises(UsageError, match="async with MemoryClient"):
        await anext(memory.watch())


async def test_an_answer_that_is_too_long_is_refused_with_advice(server: MemoryServer) -> None:
    async with MemoryClient(server.target, max_message_bytes=4096) as memory:
        for number in range(10):
            await memory.decisions.save_plan("btc", "BTC", "BUY", 0.5, f"{number}" * 1000)

        with pytest.raises(InvalidError, match="ask for less at once, or raise max_message_bytes"):
            await memory.decisions.get_recent_plans("btc")
        assert len(await memory.decisions.get_recent_plans("btc", limit=2)) == 2


# -- protection -----------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["127.0.0.1:1", "localhost:1", "[::1]:1", "dns:///localhost:1", "unix:/a/b"])
def test_a_server_on_this_machine_needs_no_tls(target: str) -> None:
    assert ChannelSecurity().credentials(target) is None
    assert ChannelSecurity(tls=True).credentials(target) is not None


@pytest.mark.parametrize("target", ["memory.example:1", "10.0.0.1:1", "dns:///memory.example:1"])
def test_any_other_is_spoken_to_in_secret_unless_told_otherwise(target: str) -> None:
    assert ChannelSecurity().credentials(target) is not None
    assert ChannelSecurity(tls=False).credentials(target) is None


async def test_a_token_is_never_shown() -> None:
    memory = MemoryClient("127.0.0.1:1", token="smt_secret with blanks")

    assert "secret" not in repr(memory)
    with pytest.raises(InvalidError, match="sharedmem token") as refusal:
        async with memory:
            pass
    assert "secret" not in str(refusal.value)


# -- the door -------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["grpc", "grpc_health", "grpc_reflection"])
def test_without_the_extra_one_sentence_says_what_to_install(missing: str) -> None:
    script = f"import sys; sys.modules[{missing!r}] = None; import sharedmem.faces.grpc"

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)

    assert "UnsupportedError: the gRPC face is not available here: pip install 'sharedmem-hub[grpc]'" in done.stderr


def test_the_description_comes_with_the_package() -> None:
    import sharedmem.faces.grpc.v1

    assert (Path(sharedmem.faces.grpc.v1.__file__).parent / "memory.proto").is_file()
