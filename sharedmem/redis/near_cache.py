"""Copies of values in this process, which the server invalidates.

A hub has one tracking connection. The server sends it the names of changed keys (`CLIENT TRACKING` in broadcast mode,
with a prefix for each scope that is read), and their copies are dropped. The age of a copy is bounded too: it is used
for `staleness_s` after its read was sent, however the connection behaves.

Copies are dropped when

- the server says that their key has changed, or that everything was deleted;
- this hub has changed their key: before the caller gets its answer;
- this hub has read another version of the key in another way;
- the tracking connection is lost;
- their age, or the expiry of their key, is reached; or the memory bound, the oldest first.

A read that was sent before one of these events does not create a copy after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from sharedmem.clock import Clock
from sharedmem.errors import UnsupportedError
from sharedmem.redis.client import RedisClient
from sharedmem.redis.multiplexer import MultiplexedConnection
from sharedmem.redis.replies import Command, LostError, Reply, ServerError, public_error, raise_if_error
from sharedmem.runtime import Counters, get_logger
from sharedmem.runtime.concurrency import Background, BackgroundTask

MOST_SCOPES = 1_000
"""Scopes whose keys are tracked; keys of further ones are read from the server."""
_BYTES_A_COPY = 300
"""What a copy takes besides the bytes of its key and value, approximately."""
_VERSION_BYTES = 16
_INVALIDATE = b"invalidate"
_logger = get_logger("near_cache")


class _CopiedValue(NamedTuple):
    until: float
    """On the monotonic clock."""
    body: bytes
    version: bytes
    size: int


class _PendingRead(NamedTuple):
    """A read under way that may create a copy."""

    begun: float
    number: int


class NearCache:
    """Copies of values for all stores of a hub that want them.

    Args:
        client: the client of the server.
        background: opens the tracking connection again.
        counters: show how often copies are used.
        clock: measures the age of copies.
        staleness_s: longest age of a copy.
        most_bytes: approximate memory for copies.

    Raises:
        UnsupportedError: the client has no multiplexed connection with a single server.
    """

    def __init__(
        self,
        client: RedisClient,
        background: Background,
        counters: Counters,
        clock: Clock,
        *,
        staleness_s: float,
        most_bytes: int,
    ) -> None:
        link = client.sibling(wait_s=0, on_push=self._receive, on_lost=self.drop_all)
        if link is None:
            remedy = "it needs a single server that is not found through Sentinel or a cluster; read without it"
            raise UnsupportedError("near_cache", remedy)
        self._link: MultiplexedConnection = link
        self._client = client
        self._background = background
        self._now = clock.monotonic
        self._staleness_s = staleness_s
        self._most_bytes = most_bytes
        self._copies: dict[bytes, _CopiedValue] = {}
        self._bytes = 0
        self._fills: dict[bytes, _PendingRead] = {}
        self._tracked: set[bytes] = set()
        self._known: dict[bytes, BackgroundTask] = {}
        self._refusal: ServerError | None = None
        self._pinged_at = float("-inf")
        self.hits = 0
        self.misses = 0
        self.invalidations = 0
        self._register_gauges(counters)

    def get(self, physical: bytes) -> bytes | None:
        """Return the JSON of the copy of a key; None without a copy that is young enough."""
        copy = self._copies.get(physical)
        if copy is None:
            return None
        if self._now() >= copy.until:
            self.drop(physical)
            return None
        self.hits += 1
        return copy.body

    async def begin(self, physical: bytes) -> _PendingRead | None:
        """Return a token for a read of a key at the server that may create a copy; None if it may not.

        Raises:
            AccessDeniedError, UnsupportedError: the server does not track keys for this user.
            UsageError: the hub is closed.
        """
        self.misses += 1
        prefix = _scope_of(physical)
        if not prefix:
            return None
        if prefix not in self._tracked:
            await self._ensure_tracked(prefix)
            if prefix not in self._tracked:
                return None
        self._ping()
        token = self._fills[physical] = _PendingRead(self._now(), self.misses)
        return token

    def fill(self, physical: bytes, token: _PendingRead | None, header: int, raw: bytes | None, left_ms: Reply) -> None:
        """Create a copy of what was read, unless the key may have changed since the token was given.

        Args:
            physical: the key.
            token: of `begin`.
            header: length of the header before the JSON of the record; 0: it is not in JSON.
            raw: the record; None: the key does not exist.
            left_ms: milliseconds until the key expires, as `PTTL` returns them.
        """
        if token is None or self._fills.get(physical) is not token:
            return
        del self._fills[physical]
        if raw is None or not header or not isinstance(left_ms, int):
            return
        lifetime_s = self._staleness_s if left_ms < 0 else min(self._staleness_s, left_ms / 1000)
        size = len(physical) + len(raw) + _BYTES_A_COPY
        self.drop(physical)
        if size > self._most_bytes:
            return
        while self._bytes + size > self._most_bytes:
            self.drop(next(iter(self._copies)))
        self._copies[physical] = _CopiedValue(token.begun + lifetime_s, raw[header:], raw[:_VERSION_BYTES], size)
        self._bytes += size

    def compare(self, physical: bytes, raw: object) -> None:
        """Drop the copy of a key if the server has returned another version of it."""
        copy = self._copies.get(physical)
        if copy is None or not isinstance(raw, bytes) or raw[:_VERSION_BYTES] != copy.version:
            self.drop(physical)

    def drop(self, physical: bytes) -> None:
        """Drop the copy of a key, and let no read that is under way create one."""
        self._fills.pop(physical, None)
        if (copy := self._copies.pop(physical, None)) is not None:
            self._bytes -= copy.size

    def drop_each(self, keys: Sequence[bytes]) -> None:
        """Drop the copies of keys that this hub has changed, or may have."""
        for key in keys:
            self.drop(key)

    def drop_all(self) -> None:
        """Drop everything: the connection is lost, so that changes may be missed."""
        self._tracked.clear()
        self._forget_copies()

    def _forget_copies(self) -> None:
        self._fills.clear()
        self._copies.clear()
        self._bytes = 0

    async def drop_namespace(self, namespace: str) -> None:  # noqa: ARG002  # the hook of clearing gives it
        """Drop all copies: a namespace was cleared."""
        self._forget_copies()

    def _receive(self, push: Sequence[Reply]) -> None:
        """Handle a push of the server."""
        if push[0] != _INVALIDATE:
            return
        self.invalidations += 1
        if isinstance(keys := push[1], list):
            for key in keys:
                if isinstance(key, bytes):
                    self.drop(key)
        else:  # all keys of the server were deleted
            self._forget_copies()

    async def _ensure_tracked(self, prefix: bytes) -> None:
        """Let the server track the keys of a scope: the first reader waits for it, later ones after a loss do not."""
        if self._refusal is not None:
            raise public_error(self._refusal, self._client.address) from self._refusal
        work = self._known.get(prefix)
        if work is None and len(self._known) >= MOST_SCOPES:
            return
        if work is not None and not work.done:
            return
        ready = asyncio.Event()
        self._known[prefix] = begun = self._background.start("track keys", self._track(prefix))
        begun.when_done(ready.set)
        if work is None:
            await ready.wait()
            if self._refusal is not None:
                raise public_error(self._refusal, self._client.address) from self._refusal

    async def _track(self, prefix: bytes) -> None:
        link = self._link
        try:
            await link.ready()
            generation = link.generation
            # Both at once, on the connection of this generation: on a later one the server would track the keys without
            # our notice, and refuse to track them again.
            posted = [link.post(command) for command in _tracking_commands(prefix)]
            for reply in await asyncio.gather(*(one for one in posted if one is not None)):
                raise_if_error(reply)
        except ServerError as error:
            self._refusal = error
        except LostError as error:
            _logger.warning("copies are off: %s", error)
        else:
            # A connection that was lost meanwhile tracks nothing.
            if link.generation == generation and None not in posted:
                self._tracked.add(prefix)

    def _ping(self) -> None:
        """Ask the connection for a reply now and then, so that one that is dead is closed and opened again."""
        now = self._now()
        if now - self._pinged_at >= self._staleness_s:
            self._pinged_at = now
            if (reply := self._link.post(("PING",))) is not None:
                reply.add_done_callback(_consume)

    def _register_gauges(self, counters: Counters) -> None:
        shown: dict[str, Callable[[], float]] = {
            "near_cache_hits": lambda: self.hits,
            "near_cache_misses": lambda: self.misses,
            "near_cache_invalidations": lambda: self.invalidations,
            "near_cache_copies": lambda: len(self._copies),
            "near_cache_bytes": lambda: self._bytes,
        }
        for name, value in shown.items():
            counters.register_gauge(name, value)


def _tracking_commands(prefix: bytes) -> tuple[Command, Command]:
    return ("HELLO", "3"), ("CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", prefix)


def _scope_of(physical: bytes) -> bytes:
    """Return the beginning of a physical key up to its identifier; empty without one: prefixes must not overlap."""
    return physical[: physical.find(b":", physical.index(b"}") + 2) + 1]


def _consume(reply: asyncio.Future[Reply]) -> None:
    if not reply.cancelled():
        reply.exception()
