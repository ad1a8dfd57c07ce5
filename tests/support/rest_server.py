"""A REST service for tests: in this process without a port, or behind a real one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote

import httpx2
from starlette.applications import Starlette

from sharedmem import Hub
from sharedmem.api.operation import operations
from sharedmem.config import Settings
from sharedmem.faces.auth import Admission, Bearer, TokenEntry, TokenFile, new_token
from sharedmem.faces.listen_address import ListenAddress
from sharedmem.faces.rest import RestApplication, RestOptions, RestServer, create_app
from sharedmem.testing import fake_hub

TERMS = RestOptions(longest_wait_s=0.05, body_patience_s=1.0)
API = "/api/v1"


def client_of_app(app: Starlette, token: str | None = None) -> httpx2.AsyncClient:
    """A client that calls an application without a network."""
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://memory", headers=headers)


@dataclass
class ServiceHarness:
    """A service, and tokens for it."""

    hub: Hub
    app: RestApplication
    tokens: dict[str, str] = field(default_factory=dict)

    def client(self, actor: str | None = None) -> httpx2.AsyncClient:
        """A client with the token of an actor, or without one."""
        return client_of_app(self.app, None if actor is None else self.tokens[actor])


def format_operation_request(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    """A request of an operation, as a client written by hand would send it."""
    route, left = operations()[name].http, dict(fields)
    defaults = operations()[name].takes.model_fields

    def filled(part: str) -> str:
        if part[:1] != "{":
            return part
        field_name = part[1:-1]
        return quote(str(left.pop(field_name, defaults[field_name].default)), safe="")

    parts = [filled(part) for part in route.path.split("/")]
    sent: dict[str, Any] = {"method": route.method, "url": API + "/".join(parts)}
    if route.method in {"POST", "PUT", "PATCH"}:
        return sent | ({"json": left} if left else {})
    return sent | {
        "params": {field: json.dumps(value) if isinstance(value, dict) else value for field, value in left.items()}
    }


def token_entries(*bearers: Bearer) -> tuple[dict[str, str], list[TokenEntry]]:
    """A token for each: by `namespace/actor`, and what a server knows of them."""
    made = {f"{bearer.namespace}/{bearer.actor}": new_token(bearer) for bearer in bearers}
    return {name: token for name, (token, _) in made.items()}, [entry for _, entry in made.values()]


@asynccontextmanager
async def open_service(*bearers: Bearer, terms: RestOptions = TERMS) -> AsyncIterator[ServiceHarness]:
    """A service over a fake server; with `bearers` only they may come."""
    tokens, known = token_entries(*bearers)
    admission: Admission | Literal["open_to_all"] = TokenFile(known) if known else "open_to_all"
    async with fake_hub(settings=Settings(access="namespaced" if known else "open", embedder="hashing")) as hub:
        yield ServiceHarness(hub, create_app(hub, admission=admission, terms=terms), tokens)


@asynccontextmanager
async def running_rest_server(
    *, terms: RestOptions = TERMS, grace_s: float = 1.0
) -> AsyncIterator[tuple[RestServer, Hub]]:
    """A server on a free port of this machine, over a fake server."""
    async with (
        fake_hub(settings=Settings(access="open", embedder="hashing")) as hub,
        RestServer(create_app(hub, admission="open_to_all", terms=terms), ListenAddress(), grace_s=grace_s) as server,
    ):
        yield server, hub
