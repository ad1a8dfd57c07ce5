"""Tenants: whoever calls, by whatever name, nothing of another namespace is told, and nothing in it changes.

The requests are made of the service's own description, so that an endpoint which is added is tried too.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import fakeredis
import pytest
from fastapi import FastAPI
from support.footprint import contents_of
from support.rest_requests import Lure, Request, requests
from support.rest_service import Answer, Caller, Reader, at

from sharedmem import Grant, Hub
from sharedmem.faces.auth import Bearer, new_token
from sharedmem.faces.rest import create_app
from sharedmem.faces.tokens import Registry
from sharedmem.hub.admitting import credentials_of
from sharedmem.testing import ManualClock, fake_hub

MARKER = "QUINCE-7781"
TEXT = f"The code of the north door is {MARKER}."
STREAMS = {"change.watch", "message.subscribe"}


@dataclass(frozen=True)
class Room:
    """A service with the data of one tenant, `acme`, in which every secret holds the marker."""

    server: fakeredis.FakeServer
    hub: Hub
    registry: Registry
    app: FastAPI
    ids: dict[str, str | int]
    """Of what `acme` has, by the field that takes it; `<part of a path> <field>` where it depends on that."""

    def lure(self, name: str, path: str) -> str | int:
        """What a thief who knows all names of `acme` would put into a field."""
        for part in path.split("/"):
            if (found := self.ids.get(f"{part} {name}")) is not None:
                return found
        return self.ids.get(name, "secret")

    async def caller(self, bearer: Bearer) -> Caller:
        """Somebody with a token."""
        return Caller(self.app, (await self.registry.create(bearer))[0])


@asynccontextmanager
async def planted() -> AsyncIterator[Room]:
    server = fakeredis.FakeServer()
    async with fake_hub(server=server) as hub:
        registry = Registry(hub)
        yield Room(server, hub, registry, create_app(hub, admission=registry), await secrets_in(hub))


async def secrets_in(hub: Hub) -> dict[str, str | int]:
    acme = hub.store("acme")
    await acme.write("secret", {"text": TEXT})
    await acme.append("secret-list", TEXT)
    await acme.hset("secret-hash", mapping={"colour": TEXT})
    await acme.sadd("secret-set", TEXT)
    await acme.incr("secret-count", 7781)
    await acme.episodes.append_event("desk", {"role": "user", "content": TEXT})
    await acme.decisions.save_plan("desk", "BTC", "BUY", 0.5, TEXT)
    (plan,) = await acme.decisions.get_recent_plans("desk", None, 1)
    claim = await acme.decisions.begin_execution("desk", plan.plan_hash)
    job = await acme.queue("mail").put({"text": TEXT}, id="job")
    await acme.queue("mail").put({"text": TEXT})
    await acme.rate_limit("index", limit=5, per=60).take()
    remembered = await acme.memory.remember(TEXT, category="code", thread_id="main")
    await acme.cache.put("what is the code of the north door?", TEXT)
    told = {"id": "first", "group_id": "circle", "content": f"Ada lives in {MARKER}.", "occurred_at": "2020-01-01T00:00:00Z"}
    await Caller(create_app(hub, admission=None))("POST", "/graph/episodes", {"episode": told})
    return {
        "lists key": "secret-list",
        "hashes key": "secret-hash",
        "sets key": "secret-set",
        "counters key": "secret-count",
        "source": "secret-set",
        "field": "colour",
        "channel": "news",
        "session": "desk",
        "query": "the code of the north door",
        "prompt": "what is the code of the north door?",
        "symbol": "BTC",
        "action": "BUY",
        "plan_hash": plan.plan_hash,
        "fence": getattr(claim, "fence", 1),
        "token": 1,
        "wait": 0,
        "queue": "mail",
        "name": "index",
        "limit": 5,
        "n": 5,
        "queues id": job if isinstance(job, str) else "job",
        "items id": remembered.id,
        "thread_id": "main",
        "group_id": "circle",
        "entity": "Ada",
        "a": "Ada",
        "b": MARKER,
        "episode_id": "first",
        "when": "2021-01-01T00:00:00Z",
        "app_id": "support",
        "user_id": "kim",
        "role": "user",
        "pattern": "*",
    }
