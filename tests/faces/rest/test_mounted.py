"""Who may call an application, who opens its hub, and what it shows of itself to strangers, tenants and operators."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from fastapi import FastAPI
from support import embedded_fixtures
from support.rest_server import API, ServiceHarness, client_of_app, open_service

from sharedmem import ConfigError, Hub, Settings
from sharedmem.faces.auth import Bearer
from sharedmem.faces.rest import create_app, lifespan_of

data_dir = embedded_fixtures.data_dir
ADA, BOB = Bearer.of("team", actor="ada"), Bearer.of("team", actor="bob")
STRANGER = Bearer.of("others", actor="eve")


@pytest.fixture
async def team() -> AsyncIterator[ServiceHarness]:
    async with open_service(ADA, BOB, STRANGER) as open_desk:
        yield open_desk


async def test_strangers_are_told_whether_it_is_up_and_nothing_else(team: ServiceHarness) -> None:
    """docs/rest.md: details of the health need a token."""
    async with (
        team.client() as nobody,
        client_of_app(team.app, "smt_guessed") as guesser,
        team.client("team/ada") as ada,
    ):
        told_strangers = [await calling.get("/health") for calling in (nobody, guesser)]
        known = await ada.get("/health")
        team.app.state.service.end_streams()
        ending = await nobody.get("/health")

    assert [(one.status_code, one.json()) for one in told_strangers] == [(200, {"status": "up"})] * 2
    assert set(known.json()["checks"]) == {"redis", "durable", "queues", "embedder"}
    assert (ending.status_code, ending.json()) == (503, {"status": "down"})


async def test_a_token_is_told_the_backlog_of_its_namespace_and_an_operator_that_of_the_service() -> None:
    operator = Bearer.of("default", actor="monitor", operator=True)
    async with open_service(ADA, STRANGER, operator) as open_desk:
        await open_desk.hub.store("team").queue("synthesis").put({"not": "a task"}, delay=60)
        await open_desk.hub.store("default").queue("synthesis").put({"not": "a task"}, delay=60)
        await open_desk.hub.store("default").queue("synthesis").put({"not": "a task"}, delay=60)

        async def backlog(who: str) -> int:
            async with open_desk.client(who) as calling:
                told: int = (await calling.get("/health")).json()["checks"]["queues"]["backlog"]["synthesis"]
                return told

        assert [await backlog(who) for who in ("team/ada", "others/eve", "default/monitor")] == [1, 0, 2]


async def test_a_mounted_application_opens_its_hub_with_its_host_or_at_its_first_call(data_dir: Path) -> None:
    """docs/rest.md: a host enters `lifespan_of`; without it the first call opens the hub."""
    settings = Settings(data_dir=data_dir, embedded_modules=(), embedder="hashing", access="open")
    for starts in (True, False):
        hub = Hub(settings=settings)
        api = create_app(hub, admission="open_to_all", opens_hub=True)
        host = FastAPI()
        host.mount("/memory", api)
        async with client_of_app(host) as calling, AsyncExitStack() as running:
            if starts:
                await running.enter_async_context(lifespan_of(api))
            answered = await asyncio.gather(*(calling.get(f"/memory{API}/presence") for _ in range(5)))
            health = await calling.get("/memory/health")

            assert [one.json() for one in answered] == [{"items": []}] * 5
            assert health.json()["status"] == "ready"
        await hub.close()


def test_an_application_that_does_not_know_who_may_call_is_not_made() -> None:
    with pytest.raises(ConfigError, match="admission='open_to_all'"):
        create_app(Hub(settings=Settings()))


async def test_a_token_is_told_the_metrics_of_its_namespace_alone(team: ServiceHarness) -> None:
    """docs/rest.md: a tenant is told of its own calls; an operator's token of all."""
    async with team.client("team/ada") as ada, team.client("team/bob") as bob, team.client("others/eve") as eve:
        team.hub.counters.increment("retries")
        for calling in (ada, bob, eve, eve, eve):
            await calling.get(f"{API}/presence")
        of_team, of_others = [(await calling.get("/metrics")).text for calling in (ada, eve)]

    assert 'sharedmem_http_requests_total{operation="presence.list",status="200"} 2' in of_team
    assert 'sharedmem_http_requests_total{operation="presence.list",status="200"} 3' in of_others
    assert "retries" not in of_team + of_others
