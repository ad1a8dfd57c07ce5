"""Who calls: what the service knows of the token that a call shows."""

from __future__ import annotations

from datetime import datetime
from importlib.metadata import version
from typing import Any

from pydantic import TypeAdapter
from starlette.responses import Response

from sharedmem.faces.auth import TokenEntry
from sharedmem.faces.rest.context import Call, Endpoint, json_response
from sharedmem.models import Record


class TokenRights(Record):
    """The actor of a token, and what it may do."""

    namespace: str
    actor: str | None
    """None speaks for the namespace itself."""
    read_only: bool
    """Whether it may look and change nothing."""
    operator: bool
    """Whether it sees the health and the metrics of all namespaces."""
    administrator: bool
    """Whether it may list, make and revoke tokens of its namespace."""
    readable: list[str]
    """Patterns of the keys that it may read."""
    writable: list[str]
    """Patterns of the keys that it may write."""
    label: str
    expires: datetime | None
    """From when on the token is refused; None never."""
    version: str
    """Of the service."""


async def _tell(call: Call) -> Response:
    bearer, access = call.bearer, call.store.access
    entry = bearer if isinstance(bearer, TokenEntry) else None
    found = TokenRights(
        namespace=bearer.namespace,
        actor=bearer.actor,
        read_only=bearer.read_only,
        operator=bearer.operator,
        administrator=bearer.administrator,
        readable=access.allowed("read"),
        writable=[] if bearer.read_only else access.allowed("write"),
        label="" if entry is None else entry.label,
        expires=None if entry is None else entry.expires,
        version=version("sharedmem-hub"),
    )
    return json_response(found)


def caller_endpoint() -> Endpoint:
    """Return what answers `GET /caller`."""
    return Endpoint("GET", "/caller", "caller.get", _tell, _document)


def _document() -> dict[str, Any]:
    schema = TypeAdapter(TokenRights).json_schema(mode="serialization")
    return {
        "summary": "Return the actor, namespace and rights of the token.",
        "tags": ["service"],
        "responses": {"200": {"description": "The caller.", "content": {"application/json": {"schema": schema}}}},
    }
