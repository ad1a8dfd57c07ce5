"""How a memory is written down in Cosmos DB: with fields that its own vector and text search can use, without I/O.

The fields of a `MemoryItem` lie at the top under their own names, the embedding as numbers; beside them what every
record has (`documents`). They are made of the record's body and give it back to the letter; where they cannot, the
body stands beside them as exact text.
"""

from __future__ import annotations

import re
import struct
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

import orjson
from pydantic import ValidationError

from sharedmem.durable.cosmos.documents import (
    Document,
    Place,
    digest_of,
    fields_of_body,
    is_too_deep,
    text_of_body,
    ttl_s,
)
from sharedmem.durable.texts import javascript_safe
from sharedmem.errors import InvalidError
from sharedmem.models import DurableRecord, MemoryItem

TYPE = "memory"
SCOPE = "$memory"
"""The scope of memories in absolute keys: `<namespace>:$memory:<id>`."""

_RECORD = tuple(name for name in DurableRecord.model_fields if name != "body")
# What Cosmos DB itself takes a `ttl` for is when the document may go.
_RENAMED = {"ttl": "lives_s"}
_ITEM = tuple(name for name in MemoryItem.model_fields if name not in {"id", "tenant_id", "version", "embedding"})
_USUAL = {"memory_type": "long-term", "importance": "medium", "thread_id": "main"}
"""What bodies leave out, and queries ask for."""
_PLAIN_ID = re.compile(r"[A-Za-z0-9_.@+=~-]{1,255}")
# With the embedding as numbers and the exact text, a document must stay below 2 MB.
_LONGEST_TWICE = 400_000


def is_memory(key: str) -> bool:
    """Whether an absolute key is that of a memory."""
    return key.split(":", 2)[1:2] == [SCOPE]


def id_of(key: str, element: str = "") -> str:
    """The id of a document in its tenant: that of the memory where Cosmos DB takes it as it is."""
    _, scope, rest = (*key.split(":", 2), "", "")[:3]
    plain = scope == SCOPE and not element and _PLAIN_ID.fullmatch(rest)
    return rest if plain else f"sha256:{digest_of(key, element)}"


def place_in(document: Mapping[str, Any]) -> Place:
    """The place of a document: memories of a thread lie together, and a change may move one to another thread."""
    return Place(document["id"], [document["tenant_id"], document["thread_id"]])


def document_of(record: DurableRecord, now_ms: int, held: Document | None = None) -> Document:
    """The document of a memory's record.

    Args:
        record: what is to be kept.
        now_ms: milliseconds since 1970; Cosmos DB counts a document's time to live from its last write.
        held: the document that is there: a tombstone stays where the memory was.
    """
    fields = {name: getattr(record, name) for name in _RECORD}
    native = _native(record)
    thread = native.get("thread_id", "") if native or held is None else held["thread_id"]
    own = {"id": id_of(record.key, record.element), "tenant_id": record.namespace, "thread_id": thread}
    document = {**native, **fields, **own}
    if not native:
        document |= fields_of_body(record.body)
    elif _rebuilt(document) != record.body:
        document["exact"] = record.body
    left_s = ttl_s(record, now_ms, alone=record.type == TYPE)
    return document if left_s is None else {**document, "ttl": left_s}


def record_of(document: Mapping[str, Any]) -> DurableRecord:
    """The record of a document, exactly as it was put.

    Raises:
        InvalidError: the document is none of ours.
    """
    is_native = "told" in document and "exact" not in document
    body = _rebuilt(document) if is_native else text_of_body(document)
    try:
        return DurableRecord(**{name: document[name] for name in _RECORD}, body=body)
    except (KeyError, ValidationError) as error:
        advice = "sharedmem did not write it; remove it from the container, which is for sharedmem alone"
        raise InvalidError("document", document.get("id"), advice) from error


# -- the body ---------------------------------------------------------------------------------------


def _native(record: DurableRecord) -> Document:
    """The fields of a memory, of the body of its record; nothing when the body is not that of a memory."""
    if not record.body or len(record.body) > _LONGEST_TWICE or is_too_deep(record.body):
        return {}
    try:
        body = orjson.loads(record.body)
        item = body["item"]
        numbers = _numbers(body.get("embedding"))
        fields = {_RENAMED.get(name, name): item[name] for name in _ITEM if name in item}
        if not isinstance(item.get("thread_id", ""), str) or not javascript_safe(record.body):
            return {}
    except (ValueError, LookupError, TypeError, AttributeError, struct.error):
        return {}
    beside = {name: body[name] for name in ("turn_index", "digest", "change") if name in body}
    usual = {**_USUAL, "content": item.get("memory", "")}
    return {**usual, **fields, **beside, **numbers, "told": [*body], "says": [*item]}


def _numbers(embedding: object) -> Document:
    if not isinstance(embedding, str):
        return {}
    half = b64decode(embedding, validate=True)
    return {"embedding": list(struct.unpack(f"<{len(half) // 2}e", half))}


def _rebuilt(document: Mapping[str, Any]) -> str:
    """The body of the fields."""
    item = {name: document.get(_RENAMED.get(name, name)) for name in document["says"]}
    known = {
        "id": document["id"],
        "version": document["version"],
        "expires_ms": document["expires"],
        "item": item,
        "embedding": _half(document.get("embedding", [])),
    }
    body = {name: known.get(name, document.get(name)) for name in document["told"]}
    return orjson.dumps(body).decode()


def _half(numbers: list[float]) -> str:
    return b64encode(struct.pack(f"<{len(numbers)}e", *numbers)).decode()
