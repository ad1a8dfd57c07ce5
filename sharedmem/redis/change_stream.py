"""The change stream of a namespace: one entry for every mutation, or for those of a shared call, read by cursor.

A reader that keeps its cursor misses nothing that is still in the stream. If entries were trimmed before it read them,
it receives a gap. The cursor of a change is `<version>-0`, so a cursor is a version and a time. An entry with several
changes, a packet, has the cursor of its last change as its id (`lua/include/packet.lua` describes it); a cursor may be
within it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sharedmem.clock import from_microseconds
from sharedmem.models import Change
from sharedmem.models.record import all_of_checked, of_checked
from sharedmem.redis.client import RedisClient
from sharedmem.redis.keys import Space
from sharedmem.redis.replies import Command, Reply

START = "0-0"
BATCH = 500
"""Entries that are read at once."""
_LONGEST_VERSION = 16
_FIRST_VERSION = re.compile(rb"[0-9]{1,16}(?=\n)")


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
        (whether changes between the cursor and the first of these were trimmed, the changes of at most `BATCH`
        entries). One round trip, a second one if trimming is possible.
    """
    after, oldest = await line.read_many(
        [
            ("XRANGE", space.changes, f"({cursor}", "+", "COUNT", BATCH),
            ("XRANGE", space.changes, "-", "+", "COUNT", 1),
        ]
    )
    first = _first_position(oldest)
    passed = first is not None and first > position(cursor)
    # From `START` every trimmed stream has lost entries; from another cursor, its own entry must still exist.
    gap = passed and (cursor != START or await _was_trimmed(line, space))
    return gap, _changes_after(cursor, after)


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
    first = _first_position(oldest)
    if not woken or first is None or first > position(cursor):
        return []
    (stream,) = as_list(woken)
    return _changes_after(cursor, as_list(stream)[1])


def _changes_after(cursor: str, entries: Reply) -> list[Change]:
    """Return the changes of entries after a cursor, which may be within the first of them."""
    changes = [change for entry in as_list(entries) for change in parse_changes(entry)]
    seen, passed = position(cursor), 0
    while passed < len(changes) and position(changes[passed].cursor) <= seen:
        passed += 1
    return changes[passed:]


def parse_changes(entry: Reply) -> list[Change]:
    """Return the changes of a stream entry, in the order of their versions."""
    words = _packet_words(entry)
    if words is None:
        return [parse_change(entry)]
    actor = as_list(as_list(entry)[1])[1]
    assert isinstance(actor, bytes)
    by = actor.decode(errors="replace")
    return all_of_checked(
        Change,
        [
            {
                "key": key,
                "operation": operation,
                "version": int(version),
                "actor": by,
                "at": from_microseconds(int(version)),
                "cursor": f"{version}-0",
            }
            for version, operation, key in zip(words[::3], words[1::3], words[2::3], strict=True)
        ],
    )


def parse_versions(entry: Reply) -> list[int]:
    """Return the versions of the changes of a stream entry, in their order."""
    words = _packet_words(entry)
    return [position(text_of(as_list(entry)[0]))[0]] if words is None else list(map(int, words[::3]))


def _packet_words(entry: Reply) -> list[str] | None:
    """Return version, operation and key of each change of a packet; None for an entry with one change."""
    if not is_packet(entry):
        return None
    id_, fields = as_list(entry)
    text = as_list(fields)[3]
    assert isinstance(text, bytes)
    words = text.decode(errors="replace").split("\n")
    last = 0
    for version in words[::3]:
        if not version.isdecimal() or len(version) > _LONGEST_VERSION or int(version) <= last:
            return None  # another client has written it, here and below
        last = int(version)
    return words if len(words) % 3 == 0 and f"{last}-0" == text_of(id_) else None


def is_packet(entry: Reply) -> bool:
    """Return whether a stream entry has several changes."""
    fields = as_list(as_list(entry)[1])
    return len(fields) == 4 and fields[2] == b"changes"


def parse_change(entry: Reply) -> Change:
    """Return the change of a stream entry that is no packet."""
    cursor, fields = as_list(entry)
    pairs = as_list(fields)
    # Entries of other clients that are not UTF-8 are passed on, so that they do not block readers.
    words = [word.decode(errors="replace") if isinstance(word, bytes) else str(word) for word in pairs]
    named = dict(zip(words[::2], words[1::2], strict=True))
    version = position(text_of(cursor))[0]
    return of_checked(
        Change,
        {
            "key": named.get("key", ""),
            "operation": named.get("op", ""),
            "version": version,
            "actor": named.get("by", ""),
            "at": from_microseconds(version),
            "cursor": text_of(cursor),
        },
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


def _first_position(entries: Reply) -> tuple[int, int] | None:
    """Return the position of the first change of the first entry; None without entries."""
    for entry in as_list(entries):
        id_, fields = as_list(entry)
        text = as_list(fields)[3] if is_packet(entry) else b""
        found = _FIRST_VERSION.match(text) if isinstance(text, bytes) else None
        return position(text_of(id_)) if found is None else (int(found[0]), 0)
    return None


def position(cursor: str) -> tuple[int, int]:
    """Return a cursor as numbers that can be compared."""
    version, _, sequence = cursor.partition("-")
    return int(version), int(sequence or 0)
