"""The search indexes of users' models (`sharedmem.om`), which are dropped when their namespace is cleared."""

from __future__ import annotations

from contextlib import suppress

from sharedmem.errors import AccessDeniedError
from sharedmem.redis.client import RedisClient
from sharedmem.redis.keys import KeySpace
from sharedmem.redis.replies import ServerError


async def drop_object_indexes(client: RedisClient, keyspace: KeySpace, namespace: str) -> None:
    """Drop the indexes of a namespace's models, but none of their objects. One round trip, and one for each index.

    Raises:
        UnavailableError: the server cannot be reached.
    """
    head = keyspace.object_index(namespace).encode()
    # A Redis user that may not list the indexes made none.
    with suppress(AccessDeniedError, ServerError):
        names = await client.call_near(keyspace.space(namespace).clock, "FT._LIST")
        for name in names if isinstance(names, list) else ():
            if isinstance(name, bytes) and name.startswith(head):
                await client.call("FT.DROPINDEX", name)
