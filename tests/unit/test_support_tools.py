"""The tools of the tests do what the tests believe: faults happen, waiting ends."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import hiredis
import pytest
from support.chaos_proxy import ChaosProxy
from support.forked_processes import ForkedProcess
from support.waiting import wait_until

# -- a server small enough to be right ------------------------------------------------------------


class CountingServer:
    """Answers every request with the number of requests so far, and remembers them."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = hiredis.Reader()
        with contextlib.closing(writer), contextlib.suppress(OSError):
            while chunk := await reader.read(65_536):
                frames.feed(chunk)
                while frame := frames.gets():
                    self.requests.append(b" ".join(frame))
                    writer.write(b":%d\r\n" % len(self.requests))


@pytest.fixture
async def server() -> AsyncIterator[CountingServer]:
    counting = CountingServer()
    listener = await asyncio.start_server(counting.serve, "127.0.0.1", 0)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        counting.url = f"redis://user:secret@127.0.0.1:{port}/3"
        yield counting


@pytest.fixture
async def proxy(server: CountingServer) -> AsyncIterator[ChaosProxy]:
    async with ChaosProxy(server.url) as chaos:
        yield chaos


class Client:
    """A client of the proxy that can pipeline."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def send(self, *requests: bytes) -> None:
        for request in requests:
            parts = request.split()
            self._writer.write(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(p), p) for p in parts))

    def send_raw(self, data: bytes) -> None:
        self._writer.write(data)

    async def reply(self) -> bytes:
        async with asyncio.timeout(60):
            return (await self._reader.readuntil(b"\r\n")).strip()


@contextlib.asynccontextmanager
async def connected(proxy: ChaosProxy) -> AsyncIterator[Client]:
    port = int(proxy.url.rsplit(":", 1)[1].split("/")[0])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


# -- the proxy ------------------------------------------------------------------------------------


async def test_the_proxy_keeps_credentials_and_database_in_its_url(proxy: ChaosProxy) -> None:
    assert proxy.url.startswith("redis://user:secret@127.0.0.1:")
    assert proxy.url.endswith("/3")


async def test_the_proxy_of_a_unix_socket_names_its_database_like_any_other() -> None:
    async with ChaosProxy("unix:///run/redis.sock?db=2") as proxy:
        assert proxy.url.startswith("redis://127.0.0.1:")
        assert proxy.url.endswith("/2")


async def test_the_proxy_passes_what_it_was_not_asked_to_spoil(proxy: ChaosProxy) -> None:
    async with connected(proxy) as client:
        client.send(b"INCR a", b"INCR b")

        assert [await client.reply(), await client.reply()] == [b":1", b":2"]


async def test_a_lost_reply_is_a_request_that_arrived_and_a_connection_that_was_reset(
    proxy: ChaosProxy, server: CountingServer
) -> None:
    proxy.lose_replies(b"INCR b")
    async with connected(proxy) as client:
        client.send(b"INCR a")
        assert await client.reply() == b":1"

        client.send(b"INCR b")

        with pytest.raises(ConnectionResetError):
            await client.reply()
        await proxy.cut.wait()
        assert server.requests == [b"INCR a", b"INCR b"]
        assert proxy.cuts == 1


async def test_no_reply_passes_between_a_matching_request_and_its_reset(
    proxy: ChaosProxy, server: CountingServer
) -> None:
    proxy.lose_replies(b"INCR 7")
    async with connected(proxy) as client:
        client.send(*(b"INCR %d" % number for number in range(9)))

        with pytest.raises(ConnectionResetError):
            await client.reply()
        assert b"INCR 7" in server.requests


async def test_a_matching_request_in_two_pieces_is_recognised(proxy: ChaosProxy, server: CountingServer) -> None:
    proxy.lose_replies(b"INCR secret")
    async with connected(proxy) as client:
        client.send_raw(b"*2\r\n$4\r\nINCR\r\n$6\r\nsec")
        await proxy.connected.wait()
        client.send_raw(b"ret\r\n")

        with pytest.raises(ConnectionResetError):
            await client.reply()
        assert server.requests == [b"INCR secret"]


async def test_as_many_replies_are_lost_as_were_ordered_after_those_to_skip(proxy: ChaosProxy) -> None:
    proxy.lose_replies(b"INCR", times=2, skip=1)
    async with connected(proxy) as client:
        client.send(b"INCR a")
        assert await client.reply() == b":1"
    for _ in range(2):
        async with connected(proxy) as client:
            client.send(b"INCR a")
            with pytest.raises(ConnectionResetError):
                await client.reply()

    async with connected(proxy) as client:
        client.send(b"INCR a")
        assert await client.reply() == b":4"


async def test_all_connections_can_be_reset_at_once(proxy: ChaosProxy) -> None:
    async with connected(proxy) as one, connected(proxy) as other:
        for client in (one, other):
            client.send(b"PING")
            await client.reply()

        assert proxy.reset_all() == 2

        for client in (one, other):
            with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                await client.reply()


async def test_a_black_hole_holds_requests_until_it_ends(proxy: ChaosProxy, server: CountingServer) -> None:
    async with connected(proxy) as client:
        with proxy.black_hole():
            client.send(b"INCR a")
            await proxy.held.wait()
            assert server.requests == []

        assert await client.reply() == b":1"


async def test_a_proxy_can_be_left_while_a_black_hole_holds_requests(server: CountingServer) -> None:
    async with ChaosProxy(server.url) as proxy, connected(proxy) as client:
        with proxy.black_hole():
            client.send(b"INCR a")
            await proxy.held.wait()
            proxy.reset_all()
            with pytest.raises(ConnectionResetError):
                await client.reply()


async def test_delayed_replies_still_arrive(proxy: ChaosProxy) -> None:
    async with connected(proxy) as client:
        with proxy.delayed(0.01):
            client.send(b"INCR a")
            assert await client.reply() == b":1"


async def test_a_refusing_proxy_resets_new_clients_and_keeps_the_old_ones(proxy: ChaosProxy) -> None:
    async with connected(proxy) as old:
        old.send(b"PING")
        await old.reply()
        with proxy.refusing():
            async with connected(proxy) as client:
                with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                    await client.reply()
            await proxy.refused.wait()
            old.send(b"PING")
            assert await old.reply() == b":2"


async def test_a_client_is_reset_when_there_is_no_server() -> None:
    async with ChaosProxy("unix:///nowhere/redis.sock") as proxy, connected(proxy) as client:
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await client.reply()


# -- waiting --------------------------------------------------------------------------------------


async def test_waiting_ends_when_the_condition_holds() -> None:
    answers = iter([False, False, True])

    await wait_until(lambda: next(answers), description="the third answer")

    assert next(answers, None) is None


async def test_waiting_takes_conditions_that_are_awaited() -> None:
    async def holds() -> bool:
        return True

    await wait_until(holds, description="what is true anyway")


async def test_waiting_in_vain_says_for_what() -> None:
    with pytest.raises(AssertionError, match=r"0.02 s in vain until pigs fly"):
        await wait_until(lambda: False, description="pigs fly", within_s=0.02)


async def test_a_timeout_of_the_condition_is_not_taken_for_ours() -> None:
    def fails() -> bool:
        raise TimeoutError("from inside")

    with pytest.raises(TimeoutError, match="from inside"):
        await wait_until(fails, description="never mind")


# -- processes that tests start -------------------------------------------------------------------


def test_a_process_of_a_test_ends_by_ctrl_c() -> None:
    words = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        try:
            assert _interrupted(process) != 0
        finally:
            process.kill()


def _interrupted(process: subprocess.Popen[bytes]) -> int:
    """Press Ctrl-C until the process ends: one that comes just before `sleep` begins to wait does not end the wait."""
    for _ in range(60):
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(1)
    raise AssertionError("sixty times Ctrl-C did not end the process")


def test_it_does_so_when_the_suite_runs_in_the_background_of_a_shell() -> None:
    name = test_a_process_of_a_test_ends_by_ctrl_c.__name__
    # As a shell without job control does with what it starts in the background.
    script = 'trap "" INT; exec "$@"'
    words = ["sh", "-c", script, "sh", sys.executable, "-m", "pytest", "-n", "0", "-q", f"{__file__}::{name}"]

    done = subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=300, cwd=Path(__file__).parents[2]
    )

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("ticks", range(8))
async def test_a_start_of_a_process_that_is_cancelled_at_any_await_leaves_nothing_open(ticks: int) -> None:
    starting = asyncio.create_task(ForkedProcess.start("support.queue_processes", "unix:///nowhere/redis.sock", 1, 1))
    for _ in range(ticks):
        await asyncio.sleep(0)
    starting.cancel()
    (outcome,) = await asyncio.gather(starting, return_exceptions=True)
    if isinstance(outcome, ForkedProcess):
        outcome.kill()
        await outcome.communicate()
    await asyncio.sleep(0)
    del starting, outcome

    gc.collect()  # what was left open is an error here
