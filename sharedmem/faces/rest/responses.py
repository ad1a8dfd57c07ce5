"""Responses: values as JSON, and bodies that are sent piece by piece until the client disconnects."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel
from starlette.responses import Response
from starlette.types import Message as Sent
from starlette.types import Receive, Send

from sharedmem.errors import InvalidError

_JSON = "application/json"


def json_bytes(value: object) -> bytes:
    """A value as JSON.

    Times as ISO 8601 text, bytes as `{"$base64": "..."}`, sets as lists, arrays as lists of numbers, NaN and
    infinities as null, identifiers and decimals as their text.

    Raises:
        InvalidError: its parts lie too deep inside of each other.
    """
    try:
        return orjson.dumps(value, default=_to_plain, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:
        # Whole numbers of more than 64 bits.
        try:
            return json.dumps(value, default=_to_plain, ensure_ascii=False).encode()
        except RecursionError:
            # Our own writers refuse such values; another client, or an archive, may hold one.
            raise InvalidError("value", "...", "its parts lie too deep inside of each other for JSON") from None


def json_response(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A response that holds a value."""
    return Response(json_bytes(value), status, headers, _JSON)


def _to_plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump()
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    if isinstance(value, bytes | bytearray | memoryview):
        return {"$base64": base64.b64encode(bytes(value)).decode()}
    return value.tolist() if hasattr(value, "tolist") else str(value)


T = TypeVar("T")


class StreamSender:
    """Where the bytes go.

    Args:
        send: of the request that is answered.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._quiet = True
        self.busy_since: float | None = None
        """When the send that is under way began; None while there is none."""

    async def begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """Send the head."""
        await self._put({"type": "http.response.start", "status": status, "headers": headers})

    async def put(self, text: bytes) -> None:
        """Send; waits for as long as the reader's buffers are full, so that no more is read from Redis meanwhile."""
        self._quiet = False
        await self._put({"type": "http.response.body", "body": text, "more_body": True})

    async def idle(self) -> None:
        """Show that the stream lives, if nothing was sent since this was called last."""
        if self._quiet:
            await self._put({"type": "http.response.body", "body": b": still here\n\n", "more_body": True})
        self._quiet = True

    async def end(self) -> None:
        """Tell the reader that this was all."""
        await self._put({"type": "http.response.body", "body": b"", "more_body": False})

    async def _put(self, message: Sent) -> None:
        self.busy_since = asyncio.get_running_loop().time()
        try:
            await self._send(message)
        finally:
            self.busy_since = None


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when the reader has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


@asynccontextmanager
async def cancel_on_exit(work: Coroutine[Any, Any, T]) -> AsyncIterator[asyncio.Task[T]]:
    """Work beside the block, which is cancelled at its end; what it raises is there to be asked for."""
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()
