"""What every transport has to do (`wire.line.Transport`), as tests that its test file inherits.

Needs pytest and pytest-asyncio with `asyncio_mode = "auto"`.
"""
# a test's name is its sentence

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

from sharedmem.clock import new_id
from sharedmem.redis.client import Transport
from sharedmem.redis.replies import LostError, Reply, ServerError
from sharedmem.testing.pytest_required import pytest

_PATIENCE_S = 60.0
_PAUSE_S = 0.005


class OpenTransport(Protocol):
    """Makes a transport to the backend's server, not yet connected; the suite closes it."""

    def __call__(self, *, username: str | None = None, password: str | None = None) -> Transport:
        """For this user; None for the server's default one."""


class TransportSuite:
    """The whole of `Transport`.

    The backend gives the fixtures `open_transport` (an `OpenTransport`), and `drop_connections` (a coroutine function
    after which the server has closed every connection) or skips there, naming what the server lacks.
    """

    @pytest.fixture
    async def transport(self, open_transport: OpenTransport) -> AsyncIterator[Transport]:
        """A connected transport."""
        transport = open_transport()
        await transport.ready()
        yield transport
        await transport.close()

    @pytest.fixture
    async def key(self, transport: Transport) -> AsyncIterator[str]:
        """A key of this test alone; keys that begin with it are removed too."""
        key = f"suite-{new_id(8)}"
        yield key
        await _persist(lambda: transport.send(("DEL", key, f"{key}:2")))

    async def test_replies_come_to_those_who_asked(self, transport: Transport) -> None:
        words = [f"word {number}" for number in range(1000)]

        replies = await asyncio.gather(*(transport.send(("ECHO", word)) for word in words))

        assert replies == [word.encode() for word in words]

    async def test_every_kind_of_reply_arrives_as_it_was_sent(self, transport: Transport, key: str) -> None:
        raw = bytes(range(256)) + b"\r\n$-1\r\n"
        assert await transport.send(("SET", key, raw)) == b"OK"

        assert await transport.send(("GET", key)) == raw
        assert await transport.send(("GET", f"{key}:2")) is None
        assert await transport.send(("SET", key, "")) == b"OK"
        assert await transport.send(("GET", key)) == b""
        assert await transport.send(("EVAL", "return {1, {'a', {}}, false, 'z'}", 0)) == [1, [b"a", []], None, b"z"]

    async def test_an_error_comes_to_its_caller_alone(self, transport: Transport, key: str) -> None:
        await transport.send(("SET", key, "text"))

        async def ask(number: int) -> Reply:
            return await transport.send(("INCR", key) if number % 3 == 0 else ("ECHO", number))

        replies = await asyncio.gather(*map(ask, range(300)), return_exceptions=True)

        for number, reply in enumerate(replies):
            if number % 3 == 0:
                assert isinstance(reply, ServerError)
                assert reply.text == "ERR value is not an integer or out of range"
            else:
                assert reply == str(number).encode()

    async def test_a_refusal_keeps_its_code(self, transport: Transport, key: str) -> None:
        await transport.send(("SET", key, "text"))

        with pytest.raises(ServerError) as wrong_type:
            await transport.send(("LPUSH", key, 1))
        with pytest.raises(ServerError) as no_script:
            await transport.send(("EVALSHA", "f" * 40, 0))
        with pytest.raises(ServerError) as own:
            await transport.send(("EVAL", "return redis.error_reply('MYCODE some words')", 0))

        assert wrong_type.value.code == "WRONGTYPE"
        assert no_script.value.code == "NOSCRIPT"
        assert (own.value.code, own.value.text) == ("MYCODE", "MYCODE some words")

    async def test_a_cancelled_caller_shifts_no_reply(self, transport: Transport) -> None:
        tasks = [asyncio.create_task(_ask(transport, number)) for number in range(300)]
        await asyncio.sleep(0)
        for task in tasks[::3]:
            task.cancel()

        replies = await asyncio.gather(*tasks, return_exceptions=True)

        for number, reply in enumerate(replies):
            if number % 3:
                assert reply == str(number).encode()
            else:
                assert isinstance(reply, asyncio.CancelledError) or reply == str(number).encode()

    async def test_a_posted_command_answers_or_must_be_sent(self, transport: Transport, key: str) -> None:
        await transport.send(("SET", key, "text"))

        posted = transport.post(("GET", key))
        refused = transport.post(("INCR", key))

        assert posted is None or await posted == b"text"
        assert refused is None or isinstance(await refused, ServerError)

    async def test_a_posted_transaction_answers_or_must_be_sent(self, transport: Transport, key: str) -> None:
        await transport.send(("SET", key, "text"))

        posted = transport.post_many([("GET", key), ("LPUSH", key, 1)])
        refused = transport.post_many([("SET", key, "other"), ("NOSUCHCOMMAND", key)])

        if posted is not None:
            replies = await posted
            assert isinstance(replies, list)
            assert replies[0] == b"text"
            assert isinstance(replies[1], ServerError)
        if refused is not None:
            error = await refused
            assert isinstance(error, ServerError)
            assert "NOSUCHCOMMAND" in error.text
        assert await transport.send(("GET", key)) == b"text"

    async def test_commands_sent_together_are_atomic(self, transport: Transport, key: str) -> None:
        async def write() -> None:
            for _ in range(50):
                await transport.send_many([("INCR", key), ("INCR", f"{key}:2")])

        async def read() -> None:
            for _ in range(50):
                first, second = await transport.send_many([("GET", key), ("GET", f"{key}:2")])
                assert first == second

        await asyncio.gather(write(), write(), read(), read())

        assert await transport.send_many([("GET", key), ("GET", f"{key}:2")]) == [b"100", b"100"]

    async def test_a_refused_command_does_not_stop_those_beside_it(self, transport: Transport, key: str) -> None:
        replies = await transport.send_many([("SET", key, "text"), ("LPUSH", key, 1), ("GET", key)])

        assert replies[0] == b"OK"
        assert isinstance(replies[1], ServerError)
        assert replies[1].code == "WRONGTYPE"
        assert replies[2] == b"text"

    async def test_commands_that_cannot_be_queued_do_nothing_at_all(self, transport: Transport, key: str) -> None:
        with pytest.raises(ServerError):
            await transport.send_many([("SET", key, "text"), ("NOSUCHCOMMAND", key)])

        assert await transport.send(("EXISTS", key)) == 0

    async def test_a_big_reply_arrives_whole_beside_small_ones(self, transport: Transport, key: str) -> None:
        big = b"x" * 5_000_000
        await transport.send(("SET", key, big))

        small = [transport.send(("ECHO", number)) for number in range(50)]
        replies = await asyncio.gather(transport.send(("GET", key)), *small)

        assert replies[0] == big
        assert replies[1:] == [str(number).encode() for number in range(50)]

    async def test_more_than_the_connection_can_hold_waits_in_line(self, transport: Transport) -> None:
        payload = "x" * 50_000

        lengths = await asyncio.gather(*(_length(transport, payload) for _ in range(400)))

        assert set(lengths) == {50_000}

    async def test_many_may_wait_for_it_to_be_ready(self, open_transport: OpenTransport) -> None:
        transport = open_transport()
        try:
            await asyncio.gather(*(transport.ready() for _ in range(20)))
            assert await transport.send(("PING",)) == b"PONG"
        finally:
            await transport.close()

    async def test_it_connects_by_itself(self, open_transport: OpenTransport) -> None:
        transport = open_transport()
        try:
            replies = await asyncio.gather(*(_ask(transport, number) for number in range(30)))
            assert replies == [str(number).encode() for number in range(30)]
        finally:
            await transport.close()

    async def test_it_comes_back_when_the_server_has_dropped_it(
        self, transport: Transport, drop_connections: Callable[[], Awaitable[None]]
    ) -> None:
        for _ in range(3):
            await drop_connections()

            assert await _persist(lambda: transport.send(("ECHO", "again"))) == b"again"

    async def test_a_caller_that_waits_when_it_is_dropped_gets_an_error(
        self, transport: Transport, drop_connections: Callable[[], Awaitable[None]]
    ) -> None:
        tasks = [asyncio.create_task(_ask(transport, number)) for number in range(200)]
        await drop_connections()
        async with asyncio.timeout(_PATIENCE_S):
            replies = await asyncio.gather(*tasks, return_exceptions=True)

        for number, reply in enumerate(replies):
            assert isinstance(reply, LostError) or reply == str(number).encode()

    async def test_a_user_logs_in_with_its_password(
        self, transport: Transport, open_transport: OpenTransport, key: str
    ) -> None:
        try:
            await transport.send(("ACL", "SETUSER", key, "on", ">secret", "~*", "+@all"))
        except ServerError as error:
            pytest.skip(f"this server has no users: {error}")
        try:
            right, wrong = (open_transport(username=key, password=word) for word in ("secret", "guess"))
            await right.ready()
            assert await right.send(("ACL", "WHOAMI")) == key.encode()
            with pytest.raises(ServerError) as refused:
                await wrong.ready()
            assert refused.value.code == "WRONGPASS"
            for each in (right, wrong):
                await each.close()
        finally:
            await transport.send(("ACL", "DELUSER", key))


async def _ask(transport: Transport, number: int) -> Reply:
    return await transport.send(("ECHO", number))


async def _length(transport: Transport, payload: str) -> int:
    reply = await transport.send(("ECHO", payload))
    return len(reply) if isinstance(reply, bytes) else -1


async def _persist(attempt: Callable[[], Awaitable[Reply]]) -> Reply:
    """Try again as long as the connection is lost, which is the job of the line above a transport."""
    async with asyncio.timeout(_PATIENCE_S):
        while True:
            try:
                return await attempt()
            except LostError:
                await asyncio.sleep(_PAUSE_S)
