"""One REST call: the request with the store and rights of its caller, the endpoint that handles it, and its answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from starlette.requests import Request
from starlette.responses import Response

from sharedmem.faces.auth import Bearer
from sharedmem.faces.bodies import body_chunks, json_bytes
from sharedmem.faces.limits import CpuQuotas
from sharedmem.faces.rest.options import RestOptions
from sharedmem.hub import Hub
from sharedmem.redis.scope import Need
from sharedmem.store import SharedMemoryStore


@dataclass(slots=True)
class Call:
    """What an endpoint is given."""

    request: Request
    hub: Hub
    store: SharedMemoryStore
    """The namespace with the rights of the caller."""
    bearer: Bearer
    caller: str
    """Tells callers apart without telling their tokens: a digest, or `everyone` where there are no tokens."""
    params: dict[str, str]
    """The parameters in the path, decoded."""
    terms: RestOptions
    closing: asyncio.Event
    """Set when the service ends: streams should say so to their readers and end too."""
    quotas: CpuQuotas
    """Bulk work runs in here, on the CPU time of the caller."""
    _body: bytes | None = field(default=None, repr=False)

    def header(self, name: str) -> str | None:
        """A header in lower case letters, or None."""
        return self.request.headers.get(name)

    async def body(self) -> bytes:
        """The whole body.

        Raises:
            BodyTooLargeError: it is longer than the terms say; the rest was not read.
            SlowBodyError: it was not here in time.
        """
        if self._body is None:
            self._body = b"".join([chunk async for chunk in self.chunks(self.terms.max_body_bytes)])
        return self._body

    def chunks(self, most_bytes: int, *, each_in_time: bool = False) -> AsyncGenerator[bytes, None]:
        """The body as it comes in.

        Args:
            most_bytes: of all chunks together.
            each_in_time: whether each chunk may take as long as otherwise the whole body.

        Raises (when read):
            BodyTooLargeError: it is longer.
            SlowBodyError: it was not here in time.
        """
        return body_chunks(
            self.request.stream(),
            announced=self.request.headers.get("content-length", "0"),
            most_bytes=most_bytes,
            patience_s=self.terms.body_patience_s,
            each_in_time=each_in_time,
        )


def json_response(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A response that holds a value."""
    return Response(json_bytes(value), status, headers, "application/json")


Handler: TypeAlias = Callable[[Call], Coroutine[Any, Any, Response]]
Gate: TypeAlias = Callable[[Call], Awaitable[Mapping[str, str]]]
"""Called before each call: returns headers for the response, or raises LimitedError."""


@dataclass(frozen=True)
class Endpoint:
    """The handler of a path: an operation, or a stream.

    Args:
        method: `GET` and so on.
        path: below `/api/v1`; `{name}` matches one part of the path, percent-encoded.
        name: of the operation.
        handler: answers.
        document: the OpenAPI operation object, without operationId and the parameters of the path; or makes it.
    """

    method: str
    path: str
    name: str
    handler: Handler
    document: dict[str, Any] | Callable[[], dict[str, Any]]
    is_limited: bool = True
    """Whether the answer has to be here in the time of the terms; streams may take longer to begin."""
    is_bulk: bool = False
    """Whether it counts for the caller's quota of CPU time; streams see to that themselves."""
    successor: str = ""
    """The path to use instead, where this one is a former one of the operation."""
    needs: Need = "read"
    """What the caller must be allowed to do."""
    waits: bool = False
    """Whether it may wait for others, and should stop when its caller has left."""
