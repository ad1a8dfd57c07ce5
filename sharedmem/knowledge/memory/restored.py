"""The hash of a memory, made of its document in the durable tier as `desk` makes it of an item."""

from __future__ import annotations

from typing import Any

import orjson

from sharedmem.knowledge.memory.documents import embedding_bytes, item_of_body, tags_of
from sharedmem.knowledge.scoring import facts_of, indexed_text
from sharedmem.models import DurableRecord
from sharedmem.search.analysis import indexed_terms
from sharedmem.wire.replies import Argument
from sharedmem.wire.tier import Remembered


def restored(id_: str, record: DurableRecord, *, embeds: bool) -> Remembered:
    """What the script takes that brings a memory back.

    Args:
        id_: its id.
        record: its document, which is no tombstone.
        embeds: whether a vector that is missing is to be made.

    Raises:
        ValueError, LookupError, TypeError: it cannot be read.
    """
    told: dict[str, Any] = orjson.loads(record.body)
    body = orjson.dumps(told["item"])
    turn, digest = int(told["turn_index"]), str(told["digest"])
    item = item_of_body(id_, record.namespace, orjson.loads(body), record.version, turn)
    vector = embedding_bytes(told.get("embedding"))
    facts = facts_of(item, turn).encoded()
    hashed: dict[str, Argument] = {
        "version": record.version,
        "turn": turn,
        "digest": digest,
        "change": orjson.dumps(told["change"]),
        "body": body,
        "facts": facts,
        "terms": indexed_terms(indexed_text(item), record.namespace),
        "at": round(item.timestamp.timestamp() * 1000) if item.timestamp else 0,
        **tags_of(item, record.namespace),
    }
    if vector is not None:
        hashed["vector"] = vector
    return Remembered(
        id=id_,
        version=record.version,
        turn=turn,
        digest=digest,
        thread=item.thread_id,
        author=item.author or "",
        facts=facts,
        waits=int(vector is None and embeds),
        expires=record.expires,
        fields=tuple(part for pair in hashed.items() for part in pair),
    )
