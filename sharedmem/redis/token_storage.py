"""Storage of the access tokens of a server, as digests, and of their call limits.

The network interfaces define the values of the hash; this module only stores them. No tenant can write its key.
"""

from __future__ import annotations

import math

from sharedmem.redis.change_stream import as_list
from sharedmem.redis.client import RedisClient
from sharedmem.redis.keys import KeySpace
from sharedmem.redis.replies import Reply
from sharedmem.redis.scripts.coordination import LimitDecision, LimitRequest, RateLimitScripts, read_decision
from sharedmem.redis.scripts.executor import ScriptExecutor

_SIGNATURE = b"-"


class TokenStorage:
    """The tokens of one server.

    Args:
        line: the client of the server.
        sender: sends the script that counts calls.
        keyspace: builds the keys.
    """

    def __init__(self, line: RedisClient, sender: ScriptExecutor, keyspace: KeySpace) -> None:
        self._client = line
        self._limiting = RateLimitScripts(sender)
        self._keyspace = keyspace

    async def get(self, digest: str) -> bytes | None:
        """Return the record of a token; None if it does not exist. One round trip.

        Raises:
            UnavailableError: the server cannot be reached.
        """
        held = await self._client.call("HGET", self._keyspace.tokens, digest)
        return held if isinstance(held, bytes) else None

    async def put(self, digest: str, record: bytes) -> None:
        """Store a token. One round trip; raises as `get`."""
        await self._client.call("HSET", self._keyspace.tokens, digest, record)

    async def remove(self, digest: str) -> bool:
        """Delete a token; return whether it existed. Two round trips; raises as `get`."""
        was_there = await self._client.call("HDEL", self._keyspace.tokens, digest) == 1
        await self._client.call("HDEL", self._keyspace.tokens_used, digest)
        return was_there

    async def seen(self, digest: str, at_ms: int) -> None:
        """Record when a token was used. One round trip; raises as `get`."""
        await self._client.call("HSET", self._keyspace.tokens_used, digest, at_ms)

    async def all(self) -> list[tuple[bytes, int | None]]:
        """Return (record, last use in ms since 1970) of every token. Two round trips.

        Raises:
            UnavailableError: as `get`.
        """
        # Two calls: on a cluster the two keys may be on two servers.
        held = _pairs(await self._client.call("HGETALL", self._keyspace.tokens))
        used = _pairs(await self._client.call("HGETALL", self._keyspace.tokens_used))
        return [(held[digest], int(used[digest]) if digest in used else None) for digest in sorted(held)]

    async def take(self, namespace: str, id_: str, *, limit: int, per_ms: int, burst: int, cost: int) -> LimitDecision:
        """Take calls from the bucket of a token, which all its servers share. One round trip.

        Args:
            namespace: namespace of the token.
            id_: id of the token.
            limit: calls added to the bucket ...
            per_ms: ... in so many milliseconds.
            burst: calls in a full bucket.
            cost: requested calls: all of them or none.

        Raises:
            UnavailableError: the server cannot be reached, or the namespace is being cleared.
        """
        per_us = per_ms * 1000
        common = math.gcd(limit, per_us)
        space, where = self._keyspace.space(namespace), self._keyspace.token_limit(namespace, id_)
        request = LimitRequest(where, (burst, per_us // common, limit // common, cost))
        reply = await self._limiting.limit_bucket_take(space, _SIGNATURE, [request])
        return await read_decision(self._client.read_many, where, reply)


def _pairs(reply: Reply) -> dict[bytes, bytes]:
    texts = [text for text in as_list(reply) if isinstance(text, bytes)]
    return dict(zip(texts[::2], texts[1::2], strict=True))
