"""The rows of a graph, made of their documents in the durable tier, and how they lie in Redis."""

from __future__ import annotations

from base64 import b64decode
from typing import Any, NamedTuple

import orjson

from sharedmem.knowledge.graph.records import Row
from sharedmem.knowledge.graph.redis.rows import decode, fields, unspelled_group
from sharedmem.models import DurableRecord
from sharedmem.wire.replies import Argument

ROWS = "enf"
_BY_TIME = ("facts", "shelf")
"""Fields of a hash that change when a fact becomes past."""


class Place(NamedTuple):
    """Where a record of a graph belongs."""

    group: str
    """As it stands in keys."""
    kind: str
    id: str


def place_of(key: str) -> Place:
    """Where the record of a key of the durable tier belongs.

    Raises:
        ValueError: it is none.
    """
    group, kind, id_ = key.split(":", 2)[2].split("/", 2)
    return Place(group, kind, id_)


def row_of(record: DurableRecord) -> Row:
    """The row of a document, which is no tombstone.

    Raises:
        ValueError, LookupError, TypeError: it cannot be read.
    """
    told: dict[str, Any] = orjson.loads(record.body)
    vector = told.get("embedding")
    return decode(
        place_of(record.key).kind,
        orjson.dumps(told),
        version=int(told["version"]),
        vector=b64decode(vector) if vector else None,
    )


def hashed(record: DurableRecord) -> dict[str, Argument]:
    """The fields of a record's hash that stay as they are, however time goes by; none where it has no hash.

    Raises:
        ValueError, LookupError, TypeError: it cannot be read.
    """
    place = place_of(record.key)
    if place.kind not in ROWS:
        return {}
    row = row_of(record)
    words = fields(row, record.namespace, unspelled_group(place.group), now=0)
    pairs = {str(words[at]): words[at + 1] for at in range(0, len(words), 2)}
    return {"version": row.version} | {name: value for name, value in pairs.items() if name not in _BY_TIME}
