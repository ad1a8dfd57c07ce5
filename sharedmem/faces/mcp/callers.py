"""Who calls: the actor and the rights of a request. They come from its token, never from an argument of a tool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mcp.server import ServerRequestContext
from starlette.types import Scope

from sharedmem.errors import InternalError
from sharedmem.faces.auth import Bearer, TokenEntry
from sharedmem.hub import Hub
from sharedmem.store import SharedMemoryStore

_SCOPE_KEY = "sharedmem.caller"
_IDEMPOTENCY_META = "sharedmem/idempotencyKey"
_IDEMPOTENCY_HEADER = "idempotency-key"
_MOST_STORES = 1024


@dataclass(frozen=True)
class McpCaller:
    """An actor, and whether it may change anything through this server."""

    bearer: Bearer
    may_write: bool

    @property
    def id(self) -> str:
        """Tells callers apart: the digest of the token, or the names where there are no tokens."""
        if isinstance(self.bearer, TokenEntry):
            return self.bearer.sha256
        return f"{self.bearer.namespace}\n{self.bearer.actor or ''}"


def set_caller(scope: Scope, caller: McpCaller) -> None:
    """Record who sent an HTTP request."""
    scope[_SCOPE_KEY] = caller


class Callers:
    """Finds the caller of a request, and the caller's store.

    Args:
        hub: the memory; it has to be open when calls come.
        local: who calls over standard input and output.
    """

    def __init__(self, hub: Hub, local: McpCaller) -> None:
        self._hub = hub
        self._local = local
        self._stores: dict[Bearer, SharedMemoryStore] = {}

    def of(self, context: ServerRequestContext[Any, Any]) -> McpCaller:
        """Return who sent a request.

        Raises:
            InternalError: it came over HTTP past the check of its token.
        """
        if context.request is None:
            return self._local
        found = context.request.scope.get(_SCOPE_KEY)
        if not isinstance(found, McpCaller):
            raise InternalError("a request over HTTP has no caller; mount McpApplication, not the server inside of it")
        return found

    def store(self, caller: McpCaller) -> SharedMemoryStore:
        """Return the namespace as the caller sees it. No round trip."""
        store = self._stores.get(caller.bearer)
        if store is None:
            if len(self._stores) >= _MOST_STORES:
                self._stores.clear()
            store = self._stores[caller.bearer] = caller.bearer.store(self._hub)
        return store


def idempotency_key_of(context: ServerRequestContext[Any, Any]) -> str | None:
    """Return the key by which a client marks retries of one call: in `_meta`, or in the header of the request."""
    meta = (context.params or {}).get("_meta")
    found = meta.get(_IDEMPOTENCY_META) if isinstance(meta, Mapping) else None
    if found is None and context.request is not None:
        found = context.request.headers.get(_IDEMPOTENCY_HEADER)
    return None if found is None else str(found)
