"""Large answers over HTTP: they are sent as they are read, and block no client but their own."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack

import httpx2
import pytest
from fastapi import FastAPI
from starlette.responses import Response
from support.asgi_client import AsgiCaller
from support.rest_server import API, client_of_app, open_service, running_rest_server
from support.waiting import wait_until

from sharedmem.faces.auth import Bearer, TokenFile, new_token
from sharedmem.faces.rest import Call, Endpoint, create_app
from sharedmem.faces.rest import server as rest_server
from sharedmem.hub import Hub
from sharedmem.testing import fake_hub

MIB = 1 << 20
PIECE_BYTES = 64 * 1024


async def filled(hub: Hub, *, namespace: str = "desk", mib: int = 16) -> None:
    store = hub.store(namespace)
    for _ in range(4 * mib):
        await store.append("large", "x" * (MIB // 4 - 100))


def two_callers(hub: Hub) -> tuple[AsgiCaller, AsgiCaller]:
    made = [new_token(Bearer.of(namespace)) for namespace in ("desk", "lobby")]
    app = create_app(hub, admission=TokenFile(entry for _, entry in made))
    ada, eve = (AsgiCaller(app, token) for token, _ in made)
    return ada, eve


# -- the description ------------------------------------------------------------------------------


async def test_the_description_is_not_sent_again_to_who_has_it() -> None:
    """docs/rest.md: `/openapi.json` has an ETag."""
    async with open_service() as open_desk, open_desk.client() as http:
        first = await http.get("/openapi.json")
        again = await http.get("/openapi.json", headers={"if-none-match": first.headers["etag"]})
        other = await http.get("/openapi.json", headers={"if-none-match": '"another"'})

    assert (first.status_code, again.status_code, other.status_code) == (200, 304, 200)
    assert (again.content, again.headers["etag"]) == (b"", first.headers["etag"])


@pytest.mark.parametrize(
    ("accepted", "packed"), [("gzip, br", True), ("*", True), ("identity", False), ("gzip;q=0, br", False), ("", False)]
)
async def test_the_description_is_packed_for_who_takes_that(accepted: str, packed: bool) -> None:
    async with open_service() as open_desk, open_desk.client() as http:
        answer = await http.get("/openapi.json", headers={"accept-encoding": accepted})

        assert answer.headers["vary"] == "accept-encoding"
        assert ("content-encoding" in answer.headers) == packed
        assert answer.json() == json.loads(json.dumps(open_desk.app.openapi()))


async def test_a_mounted_service_describes_where_it_is() -> None:
    async with open_service() as open_desk:
        host = FastAPI()
        host.mount("/memory", open_desk.app)
        async with client_of_app(host) as http:
            told = (await http.get("/memory/openapi.json")).json()
            page = await http.get("/memory/docs")

    assert told["servers"] == [{"url": "/memory"}]
    assert "/memory/openapi.json" in page.text


# -- readers --------------------------------------------------------------------------------------


async def test_a_large_answer_is_sent_in_pieces() -> None:
    async with fake_hub() as hub:
        await filled(hub, mib=1)
        ada, _ = two_callers(hub)
        async with ada.asking("GET", "/store/lists/large") as asked:
            sizes = []
            while (piece := await asked.chunks.get()) is not None:
                sizes.append(len(piece))

    assert sum(sizes) == int(asked.headers["content-length"]) > MIB // 2
    assert max(sizes) <= PIECE_BYTES


async def test_a_client_that_does_not_read_large_answers_is_refused_more_and_blocks_no_other() -> None:
    """docs/rest.md: answers of 64 MiB may wait for the readers of a token."""
    async with fake_hub() as hub, AsyncExitStack() as asking:
        await filled(hub)
        await filled(hub, namespace="lobby", mib=1)
        ada, eve = two_callers(hub)
        for _ in range(5):
            unread = await asking.enter_async_context(ada.asking("GET", "/store/lists/large", reads=False))
            asking.callback(unread.takes.set)

        refused = await ada("GET", "/store/keys")
        other = await eve("GET", "/store/lists/large")

    assert (refused.status, refused.data["code"], refused.headers["retry-after"]) == (429, "limited", "1")
    assert other.status == 200


async def test_large_answers_of_one_operation_are_made_one_after_another() -> None:
    running = most = 0
    arrived = asyncio.Event()

    async def large(_: Call) -> Response:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return Response(b"x" * (32 * MIB))

    async def small(_: Call) -> Response:
        nonlocal running
        running += 1
        if running >= 20:
            arrived.set()
        await arrived.wait()
        return Response(b"x")

    async with fake_hub() as hub:
        document = {"summary": "x", "responses": {}}
        endpoints = [Endpoint("GET", f"/{f.__name__}", f.__name__, f, document) for f in (large, small)]
        token, entry = new_token(Bearer.of("desk"))
        ask = AsgiCaller(create_app(hub, admission=TokenFile([entry]), endpoints=endpoints), token)
        await ask("GET", "/large")
        running = most = 0
        await asyncio.gather(*(ask("GET", "/large") for _ in range(10)))
        assert most == 1

        running = 20
        await ask("GET", "/small")
        arrived.clear()
        running = 0
        answers = await asyncio.gather(*(ask("GET", "/small") for _ in range(20)))

    assert {answer.status for answer in answers} == {200}


async def test_who_takes_nothing_of_an_answer_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/rest.md: an answer of which nothing is read for a minute is given up."""
    monkeypatch.setattr(rest_server, "READ_WITHIN_S", 0.1)
    async with running_rest_server() as (server, hub):
        await filled(hub, namespace="default")
        reader, writer = await asyncio.open_connection(server.address.host, server.address.port, limit=1024)
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # of the transport of a socket
        writer.write(f"GET {API}/store/lists/large HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        assert server._running is not None
        connections = server._running[0].server_state.connections
        await wait_until(lambda: len(connections) == 1, description="it is connected")

        await wait_until(lambda: not connections, description="it is hung up on")

        async with httpx2.AsyncClient(base_url=server.url, timeout=60) as other:
            assert (await other.get("/health/live")).status_code == 200
        writer.transport.abort()
        del reader
