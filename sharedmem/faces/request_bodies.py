"""Bodies of requests over HTTP: no longer than the service takes, and here in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable

from sharedmem.errors import Codes, InvalidError, SharedMemoryError


class RequestError(InvalidError):
    """A request that is refused before it reaches the memory."""

    def __init__(self, sentence: str) -> None:
        SharedMemoryError.__init__(self, sentence)
        self.field = ""


class BodyTooLargeError(RequestError):
    """A body is longer than the service takes."""

    codes = Codes("body_too_large", 413, "RESOURCE_EXHAUSTED", 2)

    def __init__(self, most_bytes: int) -> None:
        super().__init__(f"the body is longer than {most_bytes} bytes; send less at once")


class SlowBodyError(RequestError):
    """A body did not come in time."""

    codes = Codes("body_too_slow", 408, "DEADLINE_EXCEEDED", 2)

    def __init__(self, patience_s: float) -> None:
        super().__init__(f"the body was not here within {patience_s:g} s; send it at once")


async def body_chunks(
    stream: AsyncIterable[bytes], *, announced: str, most_bytes: int, patience_s: float, each_in_time: bool = False
) -> AsyncGenerator[bytes, None]:
    """Return a body as it comes in.

    Args:
        stream: of the request.
        announced: its header `Content-Length`, or `0`.
        most_bytes: of all chunks together.
        patience_s: seconds within which the body has to be here.
        each_in_time: whether each chunk may take as long as otherwise the whole body.

    Raises:
        BodyTooLargeError: it is longer; the rest was not read.
        SlowBodyError: it was not here in time.
    """
    if announced.isdigit() and int(announced) > most_bytes:
        raise BodyTooLargeError(most_bytes)
    size, loop = 0, asyncio.get_running_loop()
    ends_at = loop.time() + patience_s
    chunks = aiter(stream)
    while True:
        try:
            async with asyncio.timeout_at(ends_at):
                chunk = await anext(chunks, None)
        except TimeoutError:
            raise SlowBodyError(patience_s) from None
        if chunk is None:
            return
        size += len(chunk)
        if size > most_bytes:
            raise BodyTooLargeError(most_bytes)
        yield chunk
        if each_in_time:
            ends_at = loop.time() + patience_s
