"""What the ranking needs to know of a memory, small enough to come with every hit."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import orjson

_REMEMBERED = 32_768


class Facts(NamedTuple):
    """Facts of one memory."""

    thread: str
    position: int
    """Turn index in its thread."""
    author: str | None
    """Who speaks; None when it is no turn of a conversation."""
    asks: bool
    """Whether it is a question."""
    tokens: int
    """Words of its text."""
    at_ms: int
    """When it happened, in milliseconds since 1970."""
    importance: str

    def encoded(self) -> bytes:
        """The facts as they lie in Redis: a JSON array."""
        return orjson.dumps(tuple(self))


# A search reads them of hundreds of memories, and the next one of mostly the same.
@lru_cache(maxsize=_REMEMBERED)
def decode_facts(data: bytes) -> Facts:
    """The facts of those bytes; what somebody else has written there reads as nothing."""
    try:
        thread, position, author, asks, tokens, at_ms, importance = orjson.loads(data)
        author = author if isinstance(author, str) else None
        return Facts(str(thread), int(position), author, bool(asks), int(tokens), int(at_ms), str(importance))
    except (ValueError, TypeError, OverflowError):
        return Facts("", 0, None, asks=False, tokens=0, at_ms=0, importance="medium")
