"""The change stream of a namespace: one entry for every mutation, read by cursor.

A reader that keeps its cursor misses nothing that is still in the stream. If entries were trimmed before it read them,
it receives a gap. The id of an entry is `<version>-0`, so a cursor is a version and a time.
"""

from __future__ import annotations

from collections.abc import Sequence

from sharedmem.clock import from_microseconds
from sharedmem.models import Change
from sharedmem.redis.client import RedisClient
from sharedmem.redis.keys import Space
from sharedmem.redis.replies import Command, Reply

START = "0-0"
BATCH = 500


async def newest_cursor(line: RedisClient, space: Space) -> str:
    """Return the cursor behind the newest change; `START` if there is no change. One round trip."""
    entries = await line.call("XREVRANGE", space.changes, "+", "-", "COUNT", 1)
    return _id_of(entries) or START


async def read_changes(line: RedisClient, space: Space, cursor: str) -> tuple[bool, list[Change]]:
    """Return the next changes after a cursor.

    Args:
        line: the client of the server.
        space: the namespace.
        cursor: position of the reader.

    Returns:
        (whether changes between the cursor and the first of these were trimmed, at most `BATCH` changes).
        One round trip, a second one if trimming is possible.
    """
    after, oldest = await line.read_many(
        [
            ("XRANGE", space.changes, f"({cursor}", "+", "COUNT", BATCH),
            ("XRANGE", space.changes, "-", "+", "COUNT", 1),
        ]
    )
    first = _id_of(oldest)
    passed = first is not None and position(first) > position(cursor)
    # From `START` every trimmed stream has lost entries; from another cursor, its own entry must still exist.
    gap = passed and (cursor != START or await _was_trimmed(line, space))
    return gap, [parse_change(entry) for entry in as_list(after)]


def next_changes_commands(space: Space, cursor: str, *, wait_ms: int) -> list[Command]:
    """Return the commands that wait for changes after a cursor; `next_changes` needs their replies."""
    return [
        ("XREAD", "BLOCK", wait_ms, "COUNT", BATCH, "STREAMS", space.changes, cursor),
        ("XRANGE", space.changes, "-", "+", "COUNT", 1),
    ]


def next_changes(cursor: str, replies: Sequence[Reply]) -> list[Change]:
    """Return the changes that a wait has brought; empty without changes, or if changes before them may be trimmed.

    Args:
        cursor: the position from which the wait began.
        replies: those to `next_changes_commands`. The oldest entry was read after the wait: if it is not behind the
            cursor, nothing was trimmed in between.
    """
    woken, oldest = replies
    first = _id_of(oldest)
    if not woken or first is None or position(first) > position(cursor):
        return []
    (stream,) = as_list(woken)
    return [parse_change(entry) for entry in as_list(as_list(stream)[1])]


def parse_change(entry: Reply) -> Change:
    """Return the change of a stream entry."""
    cursor, fields = as_list(entry)
    pairs = as_list(fields)
    # Entries of other clients that are not UTF-8 are passed on, so that they do not block readers.
    words = [word.decode(errors="replace") if isinstance(word, bytes) else str(word) for word in pairs]
    named = dict(zip(words[::2], words[1::2], strict=True))
    version = position(text_of(cursor))[0]
    return Change.model_construct(
        key=named.get("key", ""),
        operation=named.get("op", ""),
        version=version,
        actor=named.get("by", ""),
        at=from_microseconds(version),
        cursor=text_of(cursor),
    )


def text_of(reply: Reply) -> str:
    """Return a reply that is text."""
    return reply.decode() if isinstance(reply, bytes) else str(reply)


def as_list(reply: Reply) -> list[Reply]:
    """Return a reply that is a list, empty if absent."""
    return reply if isinstance(reply, list) else []


async def _was_trimmed(line: RedisClient, space: Space) -> bool:
    facts = as_list(await line.call("XINFO", "STREAM", space.changes))
    named = {text_of(facts[i]): facts[i + 1] for i in range(0, len(facts) - 1, 2)}
    added, length = named.get("entries-added"), named.get("length")
    return isinstance(added, int) and isinstance(length, int) and added > length


def _id_of(entries: Reply) -> str | None:
    found = as_list(entries)
    return text_of(as_list(found[0])[0]) if found else None


def position(cursor: str) -> tuple[int, int]:
    """Return a cursor as numbers that can be compared."""
    version, _, sequence = cursor.partition("-")
    return int(version), int(sequence or 0)
