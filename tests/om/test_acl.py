"""A Redis ACL user with an actor's rights reaches the objects of its scope, reads others', and writes none of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aredis_om import Field, HashModel, JsonModel
from redis.asyncio import Redis
from redis.exceptions import NoPermissionError
from support import embedded_fixtures

from sharedmem import AccessDeniedError, Hub, Settings, om

data_dir = embedded_fixtures.data_dir
PASSWORD = "correct horse"


class Ticket(JsonModel, index=True):
    title: str = Field(index=True)


class Part(HashModel, index=True):
    code: str = Field(primary_key=True)
    status: str = Field(index=True)


@pytest.fixture
async def operator(data_dir: Path) -> AsyncIterator[Hub]:
    async with Hub.open(settings=Settings(data_dir=data_dir, embedder="hashing")) as hub:
        await hub.store("research", actor="ada").access.apply("ada", password=PASSWORD)
        yield hub


@pytest.fixture
async def restricted(operator: Hub) -> AsyncIterator[Hub]:
    """A hub that is logged in as that user."""
    url = operator.url.replace("unix://", f"unix://ada:{PASSWORD.replace(' ', '%20')}@")
    async with Hub.open(url, settings=Settings(embedder="hashing")) as hub:
        yield hub


async def test_a_user_works_with_its_own_objects(operator: Hub, restricted: Hub) -> None:
    ada = restricted.store("research", actor="ada")
    tickets, parts = om.bind(ada, Ticket), om.bind(ada, Part)
    one = await tickets(title="Crane").save()
    await parts(code="c1", status="new").save()

    assert (await tickets.get(one.pk)).title == "Crane"
    assert (await parts.get("c1")).status == "new"
    with pytest.raises(AccessDeniedError, match="one query there is enough"):
        await tickets.find().count()
    assert await om.bind(operator.store("research", actor="ada"), Ticket).find().count() == 1
    assert await tickets.find(tickets.title == "Crane").count() == 1
    assert await tickets.delete(one.pk) == 1


async def test_a_raw_client_of_the_user_writes_no_object_of_another_actor(operator: Hub) -> None:
    theirs = om.bind(operator.store("research", actor="bob"), Ticket)
    secret = om.bind(operator.store("payroll", actor="bob"), Ticket)
    part = await om.bind(operator.store("research", actor="bob"), Part)(code="c1", status="new").save()
    one, other = await theirs(title="Crane").save(), await secret(title="Salary").save()
    async with Redis.from_url(operator.url, username="ada", password=PASSWORD, protocol=2) as client:
        raw: Any = client
        assert await raw.execute_command("HGETALL", part.key())
        refused: list[tuple[Any, ...]] = [
            ("JSON.SET", one.key(), "$", "{}"),
            ("DEL", one.key()),
            ("PEXPIRE", one.key(), 1),
            ("JSON.GET", other.key()),
            ("JSON.SET", "sm:{research}:$om:bob:Ticket:x:ada:y", "$", "{}"),
            ("HSET", "sm:{research}:$om:bob:Part:x", "a", "b"),
        ]
        for command in refused:
            with pytest.raises(NoPermissionError):
                await raw.execute_command(*command)
        assert await raw.execute_command("HSET", "sm:{research}:$om:ada:Part:x", "code", "x") == 1
