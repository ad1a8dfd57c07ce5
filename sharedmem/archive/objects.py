"""Objects of users' models (`sharedmem.om`) as documents of an archive, and the commands that store them again.

An object is one document of type `object` and kind `om`. Its body is the object's own JSON, or of a hash a list of
`[field, "text" or "base64", value]`. It is in Redis alone: no durable store takes it.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Sequence

import orjson

from sharedmem.errors import InvalidError
from sharedmem.models import DurableRecord
from sharedmem.redis.client import RedisClient
from sharedmem.redis.keys import OBJECTS, KeySpace
from sharedmem.redis.replies import Argument, Command, Reply

OBJECT = "object"
_KIND = "om"
_AT_ONCE = 100
_READS: dict[bytes, tuple[str, ...]] = {b"hash": ("HGETALL",), b"ReJSON-RL": ("JSON.GET",)}


def is_object_key(key: str, namespace: str) -> bool:
    """Return whether an absolute key is that of an object."""
    return key.startswith(f"{namespace}:${OBJECTS}:")


async def object_documents(
    client: RedisClient, keyspace: KeySpace, places: Sequence[bytes], *, now_ms: int
) -> AsyncIterator[list[DurableRecord]]:
    """Yield the documents of objects, page by page. Two round trips for every 100.

    Raises:
        UnavailableError, AccessDeniedError: the server stayed away, or does not allow it.
    """
    for start in range(0, len(places), _AT_ONCE):
        some = places[start : start + _AT_ONCE]
        types = await client.read_many([("TYPE", place) for place in some])
        known = [(place, type_) for place, type_ in zip(some, types, strict=True) if type_ in _READS]
        commands: list[Command] = []
        for place, type_ in known:
            assert isinstance(type_, bytes)
            commands += [(*_READS[type_], place), ("PTTL", place)]
        replies = await client.read_each(commands, aside=True) if commands else []
        found = []
        for (place, _), held, left_ms in zip(known, replies[::2], replies[1::2], strict=True):
            expires = now_ms + left_ms if isinstance(left_ms, int) and left_ms > 0 else 0
            found += _document(keyspace.logical(place), held, expires)
        yield found


def _document(key: str, held: Reply, expires: int) -> list[DurableRecord]:
    if isinstance(held, bytes):
        codec, body = "json", held.decode()
    elif isinstance(held, list) and held:
        parts = [part for part in held if isinstance(part, bytes)]
        fields = [(name.decode(), *_spelled(value)) for name, value in zip(parts[::2], parts[1::2], strict=True)]
        codec, body = "hash", orjson.dumps(fields).decode()
    else:
        return []  # it has gone meanwhile
    return [
        DurableRecord(key=key, type=OBJECT, kind=_KIND, version=0, stamp=0, codec=codec, body=body, expires=expires)
    ]


def _spelled(value: bytes) -> tuple[str, str]:
    try:
        return "text", value.decode()
    except UnicodeDecodeError:
        return "base64", b64encode(value).decode()


def object_commands(head: DurableRecord, place: bytes) -> list[Command]:
    """Return the commands that store an object at a place.

    Raises:
        InvalidError: the document is not one of an object.
    """
    try:
        content = orjson.loads(head.body)
        if head.codec == "json":
            return [("JSON.SET", place, "$", head.body)]
        cells: list[Argument] = [cell for name, form, value in content for cell in (str(name), _value(form, value))]
    except (ValueError, TypeError):
        raise InvalidError("document", head.key, "its body is not that of an object") from None
    if head.codec != "hash" or not cells:
        raise InvalidError("document", head.key, "its body is not that of an object")
    return [("UNLINK", place), ("HSET", place, *cells)]


def _value(form: object, value: str) -> bytes:
    return b64decode(value, validate=True) if form == "base64" else value.encode()
