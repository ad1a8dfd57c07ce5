"""Work that ends when the client disconnects: bodies that are sent piece by piece, and calls that wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Message as Sent
from starlette.types import Receive, Send

from sharedmem.errors import UnavailableError

T = TypeVar("T")
_BACK_AFTER_S = 0.5


class StreamSender:
    """Where the bytes go.

    Args:
        send: of the request that is answered.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._quiet = True
        self.busy_since: float | None = None
        """When the present send began; None between sends."""

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
        """Send the end of the response."""
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


async def run_until_disconnect(
    work: Coroutine[Any, Any, T], receive: Receive, *, closing: asyncio.Event | None = None
) -> T:
    """Return what some work gives; it is cancelled when the caller leaves.

    Args:
        work: begun here.
        receive: of the request, whose body has been read.
        closing: cancels the work too when it is set.

    Raises:
        ClientDisconnect: the caller has left.
        UnavailableError: the service ends before there is something to answer.
    """
    async with (
        cancel_on_exit(work) as working,
        cancel_on_exit(wait_for_disconnect(receive)) as left,
        cancel_on_exit((closing or asyncio.Event()).wait()) as ending,
    ):
        await asyncio.wait({working, left, ending}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return await working
        if left.done():
            raise ClientDisconnect
        raise UnavailableError("this server", "it shuts down; call again", retry_after=_BACK_AFTER_S)
