"""How a record of a knowledge graph is written down in Cosmos DB: with what people and its own search ask for, no I/O.

Beside what every record has (`documents`) stand the group, the times as ISO texts, the text that is searched, and the
embedding as numbers. All records of a group lie together.
"""

from __future__ import annotations

import re
import struct
from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
from pydantic import ValidationError

from sharedmem.durable.cosmos.documents import Document, Place, digest_of, fields_of_body, text_of_body, ttl_s
from sharedmem.errors import InvalidError
from sharedmem.models import DurableRecord

TYPES = frozenset({"episode", "entity", "fact", "name"})
SCOPE = "$graph"
"""The scope of graphs in absolute keys: `<namespace>:$graph:<group>/<letter>/<id>`."""

_RECORD = tuple(name for name in DurableRecord.model_fields if name != "body")
_PLAIN_ID = re.compile(r"[A-Za-z0-9_.@+=~-]{1,250}")
_HEAD = re.compile(r'\{"version":(\d+),"embedding":"([A-Za-z0-9+/=]*)",')
# With the fields of its own, its body and the exact text, a document must stay below 2 MB.
_LONGEST_NATIVE = 300_000
_NOTHING: Document = {}
# Times in bodies: microseconds since the beginning of year 1, from 1; these stand for no moment at all.
_UNKNOWN, _OPEN = 0, 999_999_999_999_999_999
_BEGINNING = datetime(1, 1, 1, tzinfo=UTC)


def is_graph(key: str) -> bool:
    """Whether an absolute key is that of a record of a graph."""
    return key.split(":", 2)[1:2] == [SCOPE]


def place_of(key: str, element: str = "") -> Place:
    """The place of a document, which its key alone tells."""
    namespace, _, rest = (*key.split(":", 2), "", "")[:3]
    group, _, own = rest.partition("/")
    named = own.replace("/", ".", 1)
    plain = is_graph(key) and not element and _PLAIN_ID.fullmatch(named)
    id_ = named if plain else f"sha256:{digest_of(key, element)}"
    return Place(id_, [namespace, group.replace("%2F", "/").replace("%25", "%")])


def document_of(record: DurableRecord, now_ms: int) -> Document:
    """The document of a record.

    Args:
        record: what is to be kept.
        now_ms: milliseconds since 1970; Cosmos DB counts a document's time to live from its last write.
    """
    place = place_of(record.key, record.element)
    namespace, group = place.partition
    fields = {name: getattr(record, name) for name in _RECORD}
    text, numbers = _parted(record.body)
    native = _native(record.type, text)
    own = {"id": place.id, "namespace": namespace, "group_id": group}
    document = {**native, **numbers, **fields, **own, **fields_of_body(text)}
    left_s = ttl_s(record, now_ms, alone=is_graph(record.key))
    return document if left_s is None else {**document, "ttl": left_s}


def record_of(document: Mapping[str, Any]) -> DurableRecord:
    """The record of a document, exactly as it was put.

    Raises:
        InvalidError: the document is none of ours.
    """
    try:
        body = text_of_body(document)
        if "embedding" in document:
            head, _, rest = body.partition(",")
            body = f'{head},"embedding":"{_half(document["embedding"])}",{rest}'
        return DurableRecord(**{name: document[name] for name in _RECORD}, body=body)
    except (KeyError, ValidationError, struct.error) as error:
        advice = "sharedmem did not write it; remove it from the container, which is for sharedmem alone"
        raise InvalidError("document", document.get("id"), advice) from error


# -- the body ---------------------------------------------------------------------------------------


def _parted(body: str) -> tuple[str, Document]:
    """A body without its embedding, and that as numbers; the body as it is where that would not give it back."""
    found = _HEAD.match(body)
    if found is None:
        return body, {}
    try:
        half = b64decode(found[2], validate=True)
        numbers = list(struct.unpack(f"<{len(half) // 2}e", half))
    except (ValueError, struct.error):
        return body, {}
    if _half(numbers) != found[2] or not numbers:
        return body, {}
    return f'{{"version":{found[1]},{body[found.end() :]}', {"embedding": numbers}


def _half(numbers: list[float]) -> str:
    return b64encode(struct.pack(f"<{len(numbers)}e", *numbers)).decode()


def _native(type_: str, text: str) -> Document:
    """What people ask for, of the body of a record; nothing when it is not that of a graph's record."""
    make = {"episode": _episode, "entity": _entity, "fact": _fact, "name": _name}.get(type_)
    if make is None or not text or len(text) > _LONGEST_NATIVE:
        return _NOTHING
    try:
        return make(orjson.loads(text))
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError):
        return _NOTHING


def _fact(row: dict[str, Any]) -> Document:
    versions = [_version(*version) for version in row["versions"]]
    return {
        "fact": row["text"],
        "text": row["text"],
        "relation": row["type"],
        "source_id": row["source"],
        "source": row["source_name"],
        "target_id": row["target"],
        "target": row["target_name"],
        "attribute": orjson.loads(row["value"]) if row["value"] else None,
        "versions": versions,
        "episode_ids": row["episodes"],
        **(versions[-1] if versions else {}),
    }


def _version(start: int, end: int, recorded: int, superseded: int) -> Document:
    return {
        "valid_from": _iso(start),
        "valid_to": _iso(end),
        "recorded_at": _iso(recorded),
        "superseded_at": _iso(superseded),
    }


def _entity(row: dict[str, Any]) -> Document:
    return {
        "name": row["name"],
        "entity_type": row["type"],
        "text": " ".join((row["name"], *row["aliases"], row["summary"])).strip(),
        "aliases": row["aliases"],
        "summary": row["summary"],
        "merged_into": row["merged_into"] or None,
        "recorded_at": _iso(row["recorded"]),
    }


def _episode(row: dict[str, Any]) -> Document:
    return {
        "text": row["text"],
        "episode_kind": row["body"].get("kind", "episode"),
        "session": row["session"] or None,
        "user_id": row["user"] or None,
        "source": row["source"],
        "occurred_at": _iso(row["occurred"]),
        "recorded_at": _iso(row["recorded"]),
        "undone_at": _iso(row["undone"]),
        "entity_ids": row["body"].get("entities", []),
        "fact_ids": row["body"].get("fact_ids", []),
    }


def _name(row: dict[str, Any]) -> Document:
    return {"name": row["name"], "entity_id": row["entity"]}


def _iso(stamp: int) -> str | None:
    """A time as a text that sorts as it does; None for an open end, and for a beginning that nobody knows."""
    if stamp in {_UNKNOWN, _OPEN}:
        return None
    moment = _BEGINNING + timedelta(microseconds=stamp - 1)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
