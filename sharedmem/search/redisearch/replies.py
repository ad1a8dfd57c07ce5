"""Parse replies of the query engine (RESP2 lists)."""

from __future__ import annotations

import math
from collections import Counter
from functools import partial
from typing import Any

from sharedmem.redis.replies import Reply
from sharedmem.search.protocol import IndexHit, RecordPage
from sharedmem.search.redisearch.query_builder import DISTANCE
from sharedmem.search.tags import split_tags

_DISTANCE = DISTANCE.encode()
_candidate = partial(tuple.__new__, IndexHit)
"""A candidate of its parts, in a third of the time: there are hundreds a search."""


def scored_hits(reply: Reply, home: bytes) -> list[IndexHit]:
    """The hits of a search by words, best first; ties by id.

    Args:
        reply: `[total, key, score, [facts, ...], ...]`.
        home: what the keys of the namespace's records begin with; others' are left out.
    """
    words = _as_items(reply)
    # A record that has just expired has no fields any more.
    rows = zip(_record_ids(words[1::3], home), map(float, words[2::3]), words[3::3], strict=True)
    told = [(id_, score, fields[1] if fields else b"") for id_, score, fields in rows if id_ and fields is not None]
    return _sort_ties(list(map(_candidate, told)))


def near_hits(reply: Reply, home: bytes) -> list[IndexHit]:
    """The hits of a search by meaning, most similar first; ties by id.

    Args:
        reply: `[total, key, [distance and facts by name], ...]`.
        home: as for `scored_hits`.
    """
    words = _as_items(reply)
    rows = zip(_record_ids(words[1::2], home), words[2::2], strict=True)
    told = [(id_, *_distance_and_facts(fields)) for id_, fields in rows if id_ and fields]
    # A vector of zeros has no direction, so nothing is near to it.
    return _sort_ties([_candidate((id_, 1.0 - far, facts)) for id_, far, facts in told if not math.isnan(far)])


def has_zero_distance(reply: Reply, taken: int) -> bool:
    """Whether there is a hit at no distance, which the server cannot sort by: it may have left out nearer ones.

    Args:
        reply: of a search by meaning.
        taken: how many of its hits `near_hits` has taken; when it took all there is none.
    """
    fields = _as_items(reply)[2::2]
    return taken < len(fields) and any(row and math.isnan(_distance_and_facts(row)[0]) for row in fields)


def named_hits(reply: Reply, home: bytes) -> RecordPage:
    """The hits of `[total, key, ...]`, in their order."""
    words, start = _as_items(reply), len(home)
    return RecordPage([str(key[start:], "utf-8", "replace") for key in words[1:] if key.startswith(home)], words[0])


def top_score(reply: Reply) -> tuple[int, float]:
    """(hits in all, score of the best) of `[total, key, score]`."""
    words = _as_items(reply)
    return words[0], float(words[2]) if len(words) > 2 else 0.0


def parse_counts(reply: Reply) -> dict[str, int]:
    """How many records there are by value, of `[groups, [tag, values, "n", count], ...]`.

    A group is what the field holds, so its values are still to be parted.
    """
    found: Counter[str] = Counter()
    for row in _as_items(reply)[1:]:
        field, count = (row[1] or b"").decode(errors="replace"), int(row[3])
        for value in dict.fromkeys(split_tags(field)) or ("",):
            found[value] += count
    return dict(found)


def newest_version(reply: Reply) -> int:
    """The score of `[member, score]`, 0 when there is none."""
    words = _as_items(reply)
    return int(float(words[1])) if words else 0


def parse_pairs(reply: Reply) -> dict[str, Any]:
    """A list of names and values in turn."""
    words = _as_items(reply)
    return {words[at].decode(): words[at + 1] for at in range(0, len(words) - 1, 2)}


def _record_ids(keys: list[bytes], home: bytes) -> list[str]:
    """What the keys of the namespace's records are named; nothing for those of others."""
    start = len(home)
    return [key[start:].decode(errors="replace") if key.startswith(home) else "" for key in keys]


def _distance_and_facts(fields: list[bytes]) -> tuple[float, bytes]:
    if len(fields) == 4:
        return (float(fields[1]), fields[3]) if fields[0] == _DISTANCE else (float(fields[3]), fields[1])
    return (float(fields[1]) if fields[0] == _DISTANCE else math.nan), b""


def _sort_ties(found: list[IndexHit]) -> list[IndexHit]:
    """The hits, which come in the order of their scores, with equal ones in the order of their ids."""
    if len({hit[1] for hit in found}) < len(found):
        found.sort(key=_sort_key)
    return found


def _sort_key(hit: IndexHit) -> tuple[float, str]:
    return -hit.score, hit.id


def _as_items(reply: Reply) -> list[Any]:
    assert isinstance(reply, list)
    return reply
