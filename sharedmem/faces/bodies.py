"""Bodies over HTTP: requests no longer than the service takes, and here in time; values of answers as JSON."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, AsyncIterable
from typing import Any

import orjson
from pydantic import BaseModel

from sharedmem.errors import Codes, InvalidError, SharedMemoryError

# -- requests -------------------------------------------------------------------------------------


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


async def whole_body(stream: AsyncIterable[bytes], *, announced: str, most_bytes: int, patience_s: float) -> bytes:
    """Return a body.

    Args:
        stream, announced, most_bytes: as `body_chunks`.
        patience_s: seconds within which the body has to be here.

    Raises:
        BodyTooLargeError: it is longer; the rest was not read.
        SlowBodyError: it was not here in time.
    """
    if announced.isdigit() and int(announced) > most_bytes:
        raise BodyTooLargeError(most_bytes)
    chunks, size = [], 0
    try:
        # One limit for all chunks: most bodies are here already, and a limit for each would be most of the work.
        async with asyncio.timeout(patience_s):
            async for chunk in stream:
                size += len(chunk)
                if size > most_bytes:
                    raise BodyTooLargeError(most_bytes)
                chunks.append(chunk)
    except TimeoutError:
        raise SlowBodyError(patience_s) from None
    return b"".join(chunks)


async def body_chunks(
    stream: AsyncIterable[bytes], *, announced: str, most_bytes: int, patience_s: float
) -> AsyncGenerator[bytes, None]:
    """Return a body as it comes in.

    Args:
        stream: of the request.
        announced: its header `Content-Length`, or `0`.
        most_bytes: of all chunks together.
        patience_s: seconds within which each chunk has to be here.

    Raises:
        BodyTooLargeError: it is longer; the rest was not read.
        SlowBodyError: a chunk was not here in time.
    """
    if announced.isdigit() and int(announced) > most_bytes:
        raise BodyTooLargeError(most_bytes)
    size = 0
    chunks = aiter(stream)
    while True:
        try:
            async with asyncio.timeout(patience_s):
                chunk = await anext(chunks, None)
        except TimeoutError:
            raise SlowBodyError(patience_s) from None
        if chunk is None:
            return
        size += len(chunk)
        if size > most_bytes:
            raise BodyTooLargeError(most_bytes)
        yield chunk


# -- answers --------------------------------------------------------------------------------------


def json_bytes(value: object) -> bytes:
    """A value as JSON.

    Times as ISO 8601 text, bytes as `{"$base64": "..."}`, sets as lists, arrays as lists of numbers, NaN and
    infinities as null, identifiers and decimals as their text.

    Raises:
        InvalidError: its parts are nested too deep.
    """
    try:
        return orjson.dumps(value, default=_to_plain, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:
        # Whole numbers of more than 64 bits.
        try:
            return json.dumps(value, default=_to_plain, ensure_ascii=False).encode()
        except RecursionError:
            # Our own writers refuse such values; another client, or an archive, may hold one.
            raise InvalidError("value", "...", "its parts are nested too deep for JSON") from None


def _to_plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump()
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    if isinstance(value, bytes | bytearray | memoryview):
        return {"$base64": base64.b64encode(bytes(value)).decode()}
    return value.tolist() if hasattr(value, "tolist") else str(value)
