"""Bulk work over HTTP: it ends with its caller, and takes nothing from other tenants."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import AsyncMock
from urllib.parse import quote

import pytest
from faces.rest.test_archive_streams import EXPORT, IMPORT, archive, value
from support import embedded_fixtures
from support.asgi_client import AsgiCaller, body_chunks
from support.waiting import wait_until

from sharedmem import Hub, Settings
from sharedmem.faces.auth import Bearer, TokenFile, new_token
from sharedmem.faces.rest import RestApplication, create_app
from sharedmem.testing import fake_hub

data_dir = embedded_fixtures.data_dir
MANY = 20_000


class Tenants(NamedTuple):
    """A service, and two tenants of it."""

    hub: Hub
    app: RestApplication
    desk: AsgiCaller
    lobby: AsgiCaller


async def tenants_of(hub: Hub) -> Tenants:
    made = [new_token(Bearer.of(namespace)) for namespace in ("desk", "lobby")]
    app = create_app(hub, admission=TokenFile(entry for _, entry in made))
    for namespace in ("desk", "lobby"):
        await hub.store(namespace).write("plan", namespace)
    return Tenants(hub, app, *(AsgiCaller(app, token) for token, _ in made))


@pytest.fixture
async def tenants() -> AsyncIterator[Tenants]:
    async with fake_hub() as hub:
        yield await tenants_of(hub)


@pytest.fixture
async def thrifty(data_dir: Path) -> AsyncIterator[Tenants]:
    """One CPU second an hour for each token, on a real server: a fake one would take it all for itself."""
    async with Hub.open(settings=Settings(data_dir=data_dir, embedded_modules=(), bulk_cpu_s=1)) as hub:
        yield await tenants_of(hub)


def large(count: int = MANY) -> bytes:
    return archive(*(value(f"desk:shared:k{number:06d}") for number in range(count)))


async def test_an_import_ends_when_its_caller_has_left(tenants: Tenants) -> None:
    """docs/rest.md: an import whose caller has left is stopped."""
    store, gone = tenants.hub.store("desk"), asyncio.Event()
    pieces = body_chunks(large())

    async def receive() -> dict[str, Any]:
        piece = next(pieces, None)
        if piece is None:
            await gone.wait()
        return piece or {"type": "http.disconnect"}

    async def has_begun() -> bool:
        return await store.exists("desk:shared:k000000")

    work = asyncio.ensure_future(tenants.app(tenants.desk.scope("POST", IMPORT, b""), receive, AsyncMock()))
    await wait_until(has_begun, description="the import has begun")
    gone.set()
    await work

    assert not await store.exists(f"desk:shared:k{MANY - 1:06d}")


async def test_archives_of_one_token_leave_room_for_those_of_others(tenants: Tenants) -> None:
    """docs/rest.md: each token may carry two archives at once."""
    unread = partial(tenants.desk.asking, "GET", EXPORT, reads=False)
    async with unread() as first, unread() as second:
        third = await tenants.desk("POST", IMPORT, archive())
        other = await tenants.lobby("GET", EXPORT)
        first.takes.set()
        second.takes.set()

    assert (third.status, third.data["code"]) == (429, "limited")
    assert other.status == 200


async def test_exports_that_begin_at_the_same_moment_are_counted(tenants: Tenants) -> None:
    async def export() -> int:
        return (await tenants.desk("GET", EXPORT)).status

    statuses = await asyncio.gather(*(export() for _ in range(6)))

    assert sorted(statuses) == [200, 200, 429, 429, 429, 429]
    assert (await tenants.desk("GET", EXPORT)).status == 200


async def test_the_bulk_work_of_a_token_has_so_much_cpu_time_and_no_more(thrifty: Tenants) -> None:
    """docs/rest.md: bulk work that has used up the CPU time of its token is stopped; what it has done stays."""
    stopped = await thrifty.desk("POST", IMPORT, large(6 * MANY))
    refused = [
        await thrifty.desk("GET", EXPORT),
        await thrifty.desk("POST", IMPORT, archive()),
        await thrifty.desk("POST", "/memory/batch", {"items": []}),
        await thrifty.desk("GET", "/namespace/usage"),
    ]

    for answer in (stopped, *refused):
        assert (answer.status, answer.data["code"]) == (429, "limited")
        assert "1 CPU seconds an hour" in answer.data["detail"]
        assert int(answer.headers["retry-after"]) <= 3600
    assert not await thrifty.hub.store("desk").exists(f"desk:shared:k{6 * MANY - 1:06d}")
    assert (await thrifty.desk("GET", "/store/keys")).status == 200, "what is no bulk work goes on"
    assert (await thrifty.lobby("GET", EXPORT)).status == 200, "the other tenant has a quota of its own"


async def test_another_process_counts_the_same_cpu_time() -> None:
    """docs/rest.md: the quota holds for all processes of all servers together."""
    server = pytest.importorskip("fakeredis").FakeServer()
    settings = Settings(bulk_cpu_s=1)
    token, entry = new_token(Bearer.of("desk"))
    async with fake_hub(server=server, settings=settings) as one, fake_hub(server=server, settings=settings) as two:
        await one.store("desk").write("plan", 1)
        first, second = (AsgiCaller(create_app(hub, admission=TokenFile([entry])), token) for hub in (one, two))

        assert (await first("GET", EXPORT)).status == 200

        assert (await second("GET", EXPORT)).status == 429, "the first process holds the second that there was"


async def test_deep_json_in_a_query_is_refused(tenants: Tenants) -> None:
    deep = quote('{"a":' * 100 + "1" + "}" * 100)

    answer = await tenants.desk("GET", f"/memory/items?filters={deep}")

    assert (answer.status, "64 levels deep" in answer.data["detail"]) == (400, True)


async def test_a_value_of_an_archive_that_is_too_deep_is_no_failure_of_the_service(tenants: Tenants) -> None:
    body = "[" * 900 + "]" * 900
    await tenants.desk("POST", IMPORT, archive(value("desk:shared:deep", body)))

    assert (await tenants.desk("GET", "/store/values/deep/value")).status < 500
