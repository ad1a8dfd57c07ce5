"""What a namespace holds and announces, as plain data that two runs can be compared by."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from redis import Redis

from sharedmem import Change
from sharedmem.redis.change_stream import parse_changes

_VERSION = re.compile(rb"\d{16}")


@dataclass(frozen=True)
class Footprint:
    """Versions are told by their rank (`v0`, `v1`, ...), so that the time of a run does not matter.

    Attributes:
        answer: what the call answered.
        contents: (type, content, whether it expires) by key without namespace.
        changes: the entries of the change stream in order: operation, key without namespace, actor.
    """

    answer: object
    contents: dict[bytes, tuple[bytes, object, bool]]
    changes: list[tuple[bytes, bytes, bytes]]


def take_footprint(client: Redis, namespace: str, answer: object = None) -> Footprint:
    """What a namespace holds now; `answer` is that of the call that led there."""
    head = f"sm:{{{namespace}}}:".encode()
    changes = read_changes(client, namespace)
    ranks = {str(change.version).encode(): b"v%d" % rank for rank, change in enumerate(changes)}
    keys = [key for key in client.scan_iter(head + b"*", count=1000) if not key.startswith(head + b"$")]
    return Footprint(
        answer=_ranked(answer, ranks),
        contents={key.removeprefix(head): _content(client, key, ranks) for key in sorted(keys)},
        changes=[
            (change.operation.encode(), change.key.partition(":")[2].encode(), change.actor.encode())
            for change in changes
        ],
    )


def read_changes(client: Redis, namespace: str) -> list[Change]:
    """Every change that the stream of a namespace has."""
    return changes_of(client.xrange(f"sm:{{{namespace}}}:$changes"))


def changes_of(entries: Any) -> list[Change]:
    """The changes of some entries, as redis-py returns them."""
    flat = [[cursor, [part for pair in told.items() for part in pair]] for cursor, told in entries]
    return [change for entry in flat for change in parse_changes(entry)]


def contents_of(server: Redis, match: str | None = None) -> dict[bytes, object]:
    """Every key of a server and what it holds, bar the clocks and ledgers, which also refused calls may move.

    Args:
        server: a bare client.
        match: only keys of this pattern.
    """
    found = server.scan_iter(match=match, count=1000)
    keys = [key for key in found if b"$clock" not in key and b"$ops" not in key]
    # All at once: a server that many tests share holds thousands, and some tests look after each call.
    with server.pipeline(transaction=False) as asked:
        for key in keys:
            asked.dump(key)
            asked.pexpiretime(key)
        replies = asked.execute()
    return dict(zip(keys, zip(replies[::2], replies[1::2], strict=True), strict=True))


def _content(server: Redis, key: bytes, ranks: dict[bytes, bytes]) -> tuple[bytes, object, bool]:
    client: Any = server  # redis-py types its answers for both of its faces at once
    kind = client.type(key)
    reading: dict[bytes, Any] = {
        b"string": lambda: _VERSION.sub(lambda found: ranks.get(found[0], b"v?"), client.get(key)),
        b"list": lambda: client.lrange(key, 0, -1),
        b"hash": lambda: client.hgetall(key),
        b"set": lambda: client.smembers(key),
    }
    return kind, reading[kind](), client.pttl(key) > 0


def _ranked(answer: object, ranks: dict[bytes, bytes]) -> object:
    if isinstance(answer, dict):
        return {key: _ranked(item, ranks) for key, item in answer.items()}
    if isinstance(answer, list):
        return [_ranked(item, ranks) for item in answer]
    return ranks.get(str(answer).encode(), answer)
