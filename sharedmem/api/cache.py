"""Operations of the semantic cache: look up, store and invalidate replies of a model."""

from __future__ import annotations

from typing import Any

from sharedmem.api.operation import Operation
from sharedmem.models import CachedResult, CacheStats, Record

# -- requests: field names are those of the calls' arguments, where their meaning and limits stand ------


class CacheRequest(Record):
    """The cache of the namespace."""


class CacheCheck(Record):
    """A prompt, and what must be the same besides it."""

    prompt: str
    threshold: float | None = None
    key: str = ""
    model: str = ""
    prompt_version: str = ""
    tags: tuple[str, ...] = ()


class CachePut(Record):
    """The answer to a prompt."""

    prompt: str
    response: Any
    ttl: float | None = None
    key: str = ""
    model: str = ""
    prompt_version: str = ""
    tags: tuple[str, ...] = ()
    cost: float = 0.0
    tokens: int = 0


class CacheInvalidate(Record):
    """Which answers to forget: all that is given must apply."""

    tag: str | None = None
    prompt: str | None = None
    key: str | None = None


class CachedReplyRequest(Record):
    """An answer that was given."""

    id: str


# -- rows -----------------------------------------------------------------------------------------

CACHE_CHECK = Operation(
    "cache.check",
    "The answer that fits a prompt, or nothing.",
    "read",
    CacheCheck,
    CachedResult | None,
    lambda store, ask: store.cache.check(
        ask.prompt,
        threshold=ask.threshold,
        key=ask.key,
        model=ask.model,
        prompt_version=ask.prompt_version,
        tags=ask.tags,
    ),
)
CACHE_PUT = Operation(
    "cache.put",
    "Keep the answer to a prompt, and tell its id.",
    "write",
    CachePut,
    str,
    lambda store, ask: store.cache.put(
        ask.prompt,
        ask.response,
        ttl=ask.ttl,
        key=ask.key,
        model=ask.model,
        prompt_version=ask.prompt_version,
        tags=ask.tags,
        cost=ask.cost,
        tokens=ask.tokens,
    ),
)
CACHE_INVALIDATE = Operation(
    "cache.invalidate",
    "Forget answers by tag, prompt or key, and tell how many there were.",
    "write",
    CacheInvalidate,
    int,
    lambda store, ask: store.cache.invalidate(tag=ask.tag, prompt=ask.prompt, key=ask.key),
)
CACHE_CLEAR = Operation(
    "cache.clear",
    "Forget all answers of the namespace, and tell how many there were.",
    "write",
    CacheRequest,
    int,
    lambda store, _: store.cache.clear(),
)
CACHE_REPORT = Operation(
    "cache.report",
    "Tell that an answer did not fit its prompt.",
    "read",
    CachedReplyRequest,
    None,
    lambda store, ask: store.cache.report_false_hit(ask.id),
)
CACHE_STATS = Operation(
    "cache.stats",
    "How the cache of the namespace has done.",
    "read",
    CacheRequest,
    CacheStats,
    lambda store, _: store.cache.stats(),
)

ROWS = tuple(row for row in list(globals().values()) if isinstance(row, Operation))
