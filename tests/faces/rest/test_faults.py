"""A REST service on a real port takes what attackers and clumsy clients do, and goes on answering."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import closing, suppress
from pathlib import Path

import httpx2
import pytest
import pytest_asyncio
import trustme
from support.rest_server import API, running_rest_server
from support.waiting import wait_until

from sharedmem import ConfigError, Settings
from sharedmem.coordination.queues import TaskQueue
from sharedmem.faces.listen_address import ListenAddress
from sharedmem.faces.rest import Call, RestOptions, RestServer, create_app
from sharedmem.faces.rest import server as rest_server
from sharedmem.testing import fake_hub

pytestmark = pytest.mark.asyncio(loop_scope="module")
MIB = 1024 * 1024


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[RestServer]:
    async with running_rest_server(terms=RestOptions(body_patience_s=0.3, longest_wait_s=0.5)) as (running, _):
        yield running


async def exchanged(server: RestServer, *parts: bytes) -> bytes:
    """All that the server answers until it closes, to a client that sends all it has before it looks."""
    reader, writer = await asyncio.open_connection(server.address.host, server.address.port)
    # A server that hangs up while there is more to read resets the connection.
    with closing(writer), suppress(ConnectionError):
        for part in parts:
            writer.write(part)
            await writer.drain()
        async with asyncio.timeout(60):
            return await reader.read()
    return b""


async def alive(server: RestServer) -> bool:
    async with httpx2.AsyncClient(base_url=server.url, timeout=60) as calling:
        return (await calling.get("/health/live")).status_code == 200


def head(method: str, path: str, *headers: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "host: memory", *headers, "", ""]).encode("latin-1")


def told(answer: bytes) -> tuple[int, str]:
    """Status and code of the problem in an answer."""
    top, _, body = answer.partition(b"\r\n\r\n")
    return int(top.split(b" ")[1]), json.loads(body)["code"]


# -- bodies ---------------------------------------------------------------------------------------


async def test_ten_megabytes_are_refused_in_words_that_their_sender_sees(server: RestServer) -> None:
    long = head("PUT", f"{API}/store/values/k", f"content-length: {10 * MIB}", "content-type: application/json")

    answer = await exchanged(server, long, b"[" * (10 * MIB))

    assert told(answer) == (413, "body_too_large")
    assert await alive(server)


async def test_a_body_that_never_ends_is_refused(server: RestServer) -> None:
    endless = head("PUT", f"{API}/store/values/k", "transfer-encoding: chunked", "content-type: application/json")
    chunk = b"100000\r\n" + b" " * MIB + b"\r\n"

    answer = await exchanged(server, endless, *([chunk] * 6), b"0\r\n\r\n")

    assert told(answer) == (413, "body_too_large")


async def test_deep_json_is_refused(server: RestServer) -> None:
    body = b'{"value": ' + b"[" * MIB + b"]" * MIB + b"}"
    deep = head("PUT", f"{API}/store/values/k", f"content-length: {len(body)}", "connection: close")

    assert told(await exchanged(server, deep, body)) == (400, "invalid")


async def test_a_body_that_trickles_in_is_given_up(server: RestServer) -> None:
    slow = head("PUT", f"{API}/store/values/k", "content-length: 100", "content-type: application/json")

    assert told(await exchanged(server, slow, b'{"value"')) == (408, "body_too_slow")


async def test_a_client_that_leaves_in_the_middle_of_a_body_does_no_harm(
    server: RestServer, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(20):
        _, writer = await asyncio.open_connection(server.address.host, server.address.port)
        writer.write(head("PUT", f"{API}/store/values/k", "content-length: 100") + b"{")
        await writer.drain()
        writer.transport.abort()

    assert await alive(server)
    assert "failed" not in caplog.text


# -- heads ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\xff\xfe garbage\r\n\r\n",
        b"GET / HTPP/1.1\r\n\r\n",
        head("PUT", f"{API}/store/values/k", "content-length: 5", "content-length: 6"),
        head("PUT", f"{API}/store/values/k", "content-length: -1"),
        head("GET", "/", "x: " + "y" * 400_000)[:-4],
    ],
    ids=["garbage", "version", "two lengths", "negative length", "endless head"],
)
async def test_what_is_no_http_is_turned_away(server: RestServer, sent: bytes) -> None:
    answer = await exchanged(server, sent, b"x" * 10)

    assert answer == b"" or answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 431"))
    assert await alive(server)


async def test_headers_that_are_too_long_are_refused_as_a_problem(server: RestServer) -> None:
    headers = [f"x-{number}: " + "y" * 100 for number in range(500)]

    answer = await exchanged(server, head("GET", "/", *headers, "connection: close"))

    assert told(answer) == (431, "headers_too_large")


async def test_over_tls_it_answers_those_who_know_its_authority(tmp_path: Path) -> None:
    authority = trustme.CA()
    pair = authority.issue_cert("127.0.0.1")
    pair.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    pair.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    address = ListenAddress(tls_cert_file=tmp_path / "cert.pem", tls_key_file=tmp_path / "key.pem")
    context = ssl.create_default_context()
    authority.configure_trust(context)
    async with fake_hub() as hub, RestServer(create_app(hub, admission="open_to_all"), address) as encrypted:
        assert encrypted.url.startswith("https://")
        async with httpx2.AsyncClient(base_url=encrypted.url, verify=context, timeout=60) as calling:
            assert (await calling.get("/health/live")).status_code == 200


async def test_bytes_that_are_no_text_are_refused_as_a_problem(server: RestServer) -> None:
    for path in (f"{API}/store/values/%ff%fe", f"{API}/store/keys?pattern=%ff"):
        assert told(await exchanged(server, head("GET", path, "connection: close"))) == (400, "invalid")


async def test_who_never_ends_a_head_is_hung_up_on(server: RestServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest_server, "HEAD_WITHIN_S", 0.1)

    assert await exchanged(server) == b""
    assert await exchanged(server, b"GET / HTTP/1.1\r\nhost: ") == b""
    reader, writer = await asyncio.open_connection(server.address.host, server.address.port)
    with closing(writer):
        writer.write(head("GET", "/health/live"))
        assert (await reader.readuntil(b'"}')).startswith(b"HTTP/1.1 200")
        writer.write(b"GET / HTTP/1.1\r\n")
        async with asyncio.timeout(60):
            assert await reader.read() == b""


# -- many at once, and the end --------------------------------------------------------------------


async def test_two_hundred_connections_are_answered(server: RestServer) -> None:
    limits = httpx2.Limits(max_connections=200, max_keepalive_connections=0)
    async with httpx2.AsyncClient(base_url=server.url, limits=limits, timeout=30) as calling:
        body = {"value": "x" * 100}
        answered = await asyncio.gather(*(calling.put(f"{API}/store/values/k{n}", json=body) for n in range(200)))

    assert {one.status_code for one in answered} == {200}


async def test_who_leaves_while_it_waits_takes_nothing_away() -> None:
    async with running_rest_server(terms=RestOptions(longest_wait_s=30)) as (server, hub):
        queue = hub.store("default", actor="shared").queue("q")
        _, writer = await asyncio.open_connection(server.address.host, server.address.port)
        body = b'{"wait": 30}'
        claim = head("POST", f"{API}/queues/q/claim", f"content-length: {len(body)}", "content-type: application/json")
        writer.write(claim + body)
        await wait_until(lambda: waiting(queue, 1), description="it waits")
        writer.transport.abort()
        await wait_until(lambda: waiting(queue, 0), description="it does not wait any more")
        await queue.put(1)

        task = await queue.claim(wait=0)

    assert (task and task.attempt) == 1


async def waiting(queue: TaskQueue, count: int) -> bool:
    return (await queue.stats()).workers_waiting == count


async def test_a_call_under_way_is_answered_when_the_server_ends() -> None:
    came, may_go = asyncio.Event(), asyncio.Event()

    async def gate(_: Call) -> dict[str, str]:
        came.set()
        await may_go.wait()
        return {}

    async with (
        fake_hub(settings=Settings(access="open")) as hub,
        RestServer(create_app(hub, admission="open_to_all", gate=gate), ListenAddress(), grace_s=5) as server,
        httpx2.AsyncClient(base_url=server.url, timeout=60) as calling,
    ):
        under_way = asyncio.create_task(calling.get(f"{API}/presence"))
        await came.wait()
        ending = asyncio.create_task(server.stop())
        may_go.set()
        assert (await under_way).json() == {"items": []}
        await ending
        with pytest.raises(httpx2.ConnectError):
            await calling.get("/")


async def test_who_waits_when_the_server_ends_is_told_to_come_back() -> None:
    async with running_rest_server(terms=RestOptions(longest_wait_s=30), grace_s=5) as (server, hub):
        queue = hub.store("default", actor="shared").queue("q")
        async with httpx2.AsyncClient(base_url=server.url, timeout=60) as calling:
            claim = asyncio.create_task(calling.post(f"{API}/queues/q/claim", json={"wait": 30}))
            await wait_until(lambda: waiting(queue, 1), description="it waits")
            await server.stop()

            assert ((await claim).status_code, (await claim).headers["retry-after"]) == (503, "1")


async def test_what_cannot_be_served_is_refused_before_it_begins() -> None:
    async with fake_hub(settings=Settings(access="open")) as hub:
        app = create_app(hub, admission="open_to_all")
        with pytest.raises(ConfigError, match="other machines reach"):
            await RestServer(app, ListenAddress(host="0.0.0.0")).start()
        with pytest.raises(ConfigError, match="separate no callers"):
            await RestServer(app, ListenAddress(), has_tokens=True).start()
        async with RestServer(app, ListenAddress()) as first:
            with pytest.raises(ConfigError, match="in use; choose another"):
                await RestServer(app, first.address).start()
