"""The heads of conversations. One may be behind its log, which then counts (`lua/include/conversation.lua`)."""

from __future__ import annotations

from sharedmem.redis.change_stream import as_list, text_of
from sharedmem.redis.client import RedisClient
from sharedmem.redis.keys import KeySpace, Target
from sharedmem.redis.replies import Command, Reply
from sharedmem.redis.service_keys import decoding

_VERSION_BYTES = 16
_BEHIND = (b"3", b"4")


def is_behind(plain: Reply) -> bool:
    """Return whether a head is behind its log, by its field `plain`."""
    return plain in _BEHIND


def newest_version(item: Reply) -> bytes:
    """Return the version of the newest entry of a log, from its list item; 0 without one."""
    return item[:_VERSION_BYTES] if isinstance(item, bytes) else b"0"


def first_segment(head: Target) -> str:
    """Return the name of the segment in which a conversation begins."""
    return f"{head.key.split(':', 2)[2]}{{0s}}"


def log_key(keyspace: KeySpace, head: Target, segment: str) -> bytes:
    """Return the key of the entries of a segment."""
    return keyspace.service(head.space.namespace, f"conversation.log:{segment}")


def parse_fields(flat: Reply) -> dict[bytes, bytes]:
    """Return the fields of a head; of a field that comes twice, the later one counts."""
    words = [word for word in as_list(flat) if isinstance(word, bytes)]
    return dict(zip(words[::2], words[1::2], strict=True))


async def read_head(client: RedisClient, keyspace: KeySpace, head: Target) -> tuple[dict[bytes, bytes], int]:
    """Return the fields of a head, with the progress of its log, and the time in ms; no fields if it does not exist.

    One round trip; two if it is behind its log and the conversation began anew since its creation.

    Raises:
        CorruptionError: another client has written to a key of the conversation.
        UnavailableError, AccessDeniedError: as `RedisClient.read_many`.
    """
    segment = first_segment(head)
    while True:
        log = log_key(keyspace, head, segment)
        commands: list[Command] = [("HGETALL", head.physical), ("LLEN", log), ("LINDEX", log, -1), ("TIME",)]
        flat, length, newest, time = await client.read_many(commands)
        seconds, microseconds = map(text_of, as_list(time))
        now_ms = int(seconds) * 1000 + int(microseconds) // 1000
        with decoding(head.physical):
            fields = parse_fields(flat)
            if not is_behind(fields.get(b"plain")):
                return fields, now_ms
            own = fields[b"segment"].decode()
        if own == segment:
            revision = newest_version(newest)
            progress = {b"revision": revision, b"updated": revision, b"length": text_of(length).encode()}
            return fields | progress, now_ms
        segment = own
