"""Serialization of memories: to and from Redis hashes, and from documents of the durable tier.

A memory is a hash (`KeySpace.record`). `body` is the JSON of its item (see `encode_body`). Fields that the server
assigns are stored beside it: `version` of the last change, and `turn`, the turn index. `change` is the JSON of that
change. For searches there are `terms`, the words by which the memory is found, and `facts`, the features that the
ranking needs (`RankingFeatures`). A past version is one JSON text,
`{"version":1,"turn_index":0,"change":{...},"item":{...}}`, whose item is such a body.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

import orjson

from sharedmem.clock import from_microseconds
from sharedmem.models import DurableRecord, MemoryItem, MemoryMessage, MemoryVersion
from sharedmem.models.record import of_checked
from sharedmem.redis.keys import SHARED_SCOPE
from sharedmem.redis.replies import Argument
from sharedmem.redis.scripts.durable import RestoredMemory
from sharedmem.redis.vectors import from_half
from sharedmem.text.analysis import WORD, encode_tag, indexed_terms, join_tags, text_hash
from sharedmem.text.statements import (
    LONGEST_STATEMENT,
    Standing,
    StandingKind,
    claims_of,
    encode_told,
    find_standing,
    text_cues,
    told_by,
)
from sharedmem.text.vocabulary import ENGLISH_MONTHS

READ_FIELDS = ("body", "version", "turn")
"""The fields that a reader fetches, in the order in which `decode_item` takes them; `vector` too for embeddings."""
_PLACEHOLDER = "-"
"""Id of a member of `memory.turns` that only marks the highest turn index of its thread."""

_FIRST_FEATURES = 7
_NEWER_FEATURES: tuple[Any, ...] = (0, "", (), ())
"""Features that memories of earlier versions lack, as those have them."""
_PLAIN_FEATURES = 8
"""Features that every memory has."""
_LONGEST_META_BYTES = 200
_MOST_REMEMBERED = 32_768
# Assigned by the server, part of the key, or stored in a field of its own.
_BESIDE_BODY = frozenset({"id", "tenant_id", "turn_index", "embedding", "version"})
_IN_BODY = tuple(name for name in MemoryItem.model_fields if name not in _BESIDE_BODY)
_DEFAULTS: dict[str, Any] = {
    name: field.get_default(call_default_factory=True, validated_data={})
    for name, field in MemoryItem.model_fields.items()
}
_MESSAGE_DEFAULTS: dict[str, Any] = {"entity_id": None, "name": None, "timestamp": None, "embedding": None}
_TIMES = ("timestamp", "created_at", "updated_at")
_TUPLES = ("related_memory_ids", "tags", "collections", "turn_embedding")


def meta_tag(key: str, value: object) -> str | None:
    """Return the value of the tag field `meta` for one entry of `metadata`; None for a value that is not a scalar.

    Writers and filters use it alike. A whole number is the same as float and int; long texts become their digest.
    """
    if not isinstance(value, str | int | float | bool):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = f"{key}={orjson.dumps(value).decode()}" if _is_storable_number(value) else f"{key}={value}"
    if len(text) <= _LONGEST_META_BYTES and text.isprintable() and text == text.strip():
        return text
    return f"#{blake2b(text.encode(errors='surrogatepass'), digest_size=16).hexdigest()}"


def _is_storable_number(value: object) -> bool:
    # orjson cannot write whole numbers of more than 64 bits, so Python does.
    return not isinstance(value, int) or -(2**63) <= value < 2**64


_STANDING = "$standing"
"""Name beside those of metadata under which the kind of a standing memory is indexed."""
_KINDS: Mapping[str, StandingKind] = {"instruction": "instruction", "preference": "preference"}
_NAMELESS = frozenset({"user", "human", "me"})
"""Names of speakers that say nothing of who it is."""
_LISTENING = frozenset({"agent", "tool", "system"})
"""Roles whose turns give no instructions."""


def standing_of(item: MemoryItem) -> Standing | None:
    """Return the standing instruction or preference that a memory is, by its category or its words; None for others.

    Agents and tools give no instructions: an instruction is that of a user.
    """
    if item.messages and item.messages[0].role in _LISTENING:
        return None
    found = find_standing(item.memory)
    kind = _KINDS.get(item.category or "")
    if kind is None or (found is not None and found.kind == kind):
        return found
    return Standing(kind, item.memory, "")


def owner_of(item: MemoryItem) -> str:
    """Return the owner of what is said: the user, else a speaker with a name, else the actor that added it."""
    author = item.author
    speaker = None if author is None or author.lower() in _NAMELESS else author
    return owner_key(item.user_id or speaker, item.created_by)


def owner_key(user_id: str | None, actor: str | None) -> str:
    """Return the owner as ranking features have it: a digest, for names may be long."""
    name = f"actor {actor or SHARED_SCOPE}" if user_id is None else f"user {user_id}"
    return blake2b(name.encode(errors="replace"), digest_size=4).hexdigest()


def standing_tag(kind: str) -> str:
    """Return the value of the tag field `meta` of standing memories."""
    return f"{_STANDING}={kind}"


def tag_fields(item: MemoryItem, namespace: str) -> dict[str, str]:
    """Return the tag fields of a memory; those without a value are left out."""
    found = {
        "user": item.user_id,
        "agent": item.agent_id,
        "thread": item.thread_id,
        "run": item.run_id,
        "category": item.category,
        "importance": item.importance,
        "type": item.memory_type,
        "entity": item.entity_id,
        "source": item.source_actor,
    }
    several = {"tags": item.tags, "collections": item.collections, "meta": _all_meta_tags(item)}
    # The name of a namespace is stored unencoded, so that an index can compare it with the key.
    tags = {"ns": namespace} | {name: encode_tag(value) for name, value in found.items() if value}
    return tags | {name: field for name, values in several.items() if (field := join_tags(values))}


def _all_meta_tags(item: MemoryItem) -> Iterable[str]:
    yield from _meta_tags(item.metadata)
    standing = standing_of(item)
    if standing is not None:
        yield standing_tag(standing.kind)


def _meta_tags(metadata: Mapping[str, Any]) -> Iterable[str]:
    for key, value in metadata.items():
        tag = meta_tag(key, value)
        if tag is not None:
            yield tag


# -- search fields: words and features --------------------------------------------------------------


class RankingFeatures(NamedTuple):
    """Features of one memory that the ranking reads."""

    thread: str
    position: int
    """Turn index in its thread."""
    author: str | None
    """The author; None if the memory is not a turn of a conversation."""
    asks: bool
    """Whether it is a question."""
    tokens: int
    """Words of its text."""
    at_ms: int
    """When it happened, in milliseconds since 1970."""
    importance: str
    cues: int = 0
    """Kinds of answer that a turn contains (`text.statements`); 0 if an earlier version has written the memory."""
    standing: str = ""
    """Of a standing instruction or preference: its kind, a colon, and its owner (`owner_of`)."""
    claims: tuple[str, ...] = ()
    """What it says of subjects in the present, as `text.statements.StatementClaim.encoded`."""
    told: tuple[str, ...] = ()
    """Of a short statement that is no turn: what it is about, as `text.statements.encode_told`."""

    def encoded(self) -> bytes:
        """Return the features as Redis stores them: a JSON array, without the last ones if these are empty."""
        return orjson.dumps(tuple(self) if self.standing or self.claims or self.told else self[:_PLAIN_FEATURES])


# A search reads the features of hundreds of memories, and the next search reads mostly the same.
@lru_cache(maxsize=_MOST_REMEMBERED)
def decode_features(data: bytes) -> RankingFeatures:
    """Return the features in these bytes; defaults if another client has written something else there."""
    try:
        values: list[Any] = orjson.loads(data)
        thread, position, author, asks, tokens, at_ms, importance = values[:_FIRST_FEATURES]
        newer = values[_FIRST_FEATURES:]
        cues, standing, claims, told = [*newer, *_NEWER_FEATURES[len(newer) :]]
        return RankingFeatures(
            str(thread),
            int(position),
            author if isinstance(author, str) else None,
            bool(asks),
            int(tokens),
            int(at_ms),
            str(importance),
            int(cues),
            str(standing),
            tuple(map(str, claims)),
            tuple(map(str, told)),
        )
    except (ValueError, TypeError, OverflowError):
        return RankingFeatures("", 0, None, asks=False, tokens=0, at_ms=0, importance="medium")


class ThreadTurn(NamedTuple):
    """One memory among the turns of its thread."""

    id: str
    turn: int
    facts: bytes
    """Its features; `null` if it has no author, for which its neighbours do not matter."""


def parse_turns(reply: object) -> list[ThreadTurn]:
    """Return the turns in a reply with scores that reads a part of `memory.turns`."""
    parts = [part for part in reply if isinstance(part, bytes)] if isinstance(reply, list) else []
    members = ((member.partition(b" "), score) for member, score in zip(parts[::2], parts[1::2], strict=True))
    found = (ThreadTurn(id_.decode(), int(float(score)), facts) for (id_, _, facts), score in members)
    return [one for one in found if one.id != _PLACEHOLDER]


def indexed_text(item: MemoryItem) -> str:
    """Return the words by which a memory is found; for a turn of a conversation also its messages, date and author.

    The date is spelled as in queries (`7 May 2023`), whatever the locale of this process.
    """
    if not item.messages:
        return _full_text(item)
    text = "\n".join(searchable_texts(item))
    at = item.timestamp
    day = f"[{at.day} {ENGLISH_MONTHS[at.month - 1].title()} {at.year}] " if at else ""
    return f"{day}{item.author}: {text}"


def searchable_texts(item: MemoryItem) -> list[str]:
    """Return the texts of a memory in which words are found: the full text, and the messages that it does not contain.

    A phrase is within one of them.
    """
    texts = [_full_text(item)]
    texts += [message.content for message in item.messages if message.content not in texts[0]]
    return texts


def _full_text(item: MemoryItem) -> str:
    fact, whole = item.memory, item.content
    if not whole or fact in whole:
        return whole or fact
    return whole if whole in fact else f"{fact}\n{whole}"


def ranking_features(item: MemoryItem, position: int) -> RankingFeatures:
    """Return the features of a memory for the ranking.

    Args:
        item: complete, with its timestamp.
        position: its turn index.
    """
    text = _full_text(item)
    at_ms = round(item.timestamp.timestamp() * 1000) if item.timestamp else 0
    words = WORD.findall(text)
    owner, standing = owner_of(item), standing_of(item)
    return RankingFeatures(
        thread=item.thread_id,
        position=position,
        author=item.author,
        asks=_is_question(text),
        tokens=len(words),
        at_ms=at_ms,
        importance=item.importance,
        cues=text_cues(text, words) if item.author is not None else 0,
        standing="" if standing is None else f"{standing.kind}:{owner}",
        claims=tuple(claim.encoded(f"{owner} {item.author or ''}") for claim in claims_of(item.memory)),
        told=encode_told(told_by(text)) if is_short_statement(item) else (),
    )


def is_short_statement(item: MemoryItem) -> bool:
    """Return whether a memory is neither a turn, nor a document, nor a question."""
    text = _full_text(item)
    return item.author is None and len(text) <= LONGEST_STATEMENT and not _is_question(text)


def _is_question(text: str) -> bool:
    """Return whether the text ends with a question."""
    return text.rstrip().endswith(("?", "\uff1f", "\u061f"))


# -- the body ---------------------------------------------------------------------------------------


def encode_body(item: MemoryItem) -> bytes:
    """Return the JSON of an item, without fields that are stored beside it, defaults, and what follows from others.

    `content` follows from `memory` where it is the same, `hash` where it is that of `memory`, and `created_at` where it
    is `timestamp`.
    """
    values = item.__dict__
    body = {name: values[name] for name in _IN_BODY if values[name] != _DEFAULTS[name]}
    if body.get("content") == item.memory:
        del body["content"]
    if item.hash and item.hash == text_hash(item.memory):
        del body["hash"]
    if item.timestamp is not None and item.created_at == item.timestamp:
        del body["created_at"]
    if item.messages:
        body["messages"] = [_encode_message(message) for message in item.messages]
    for name in _TIMES:
        if name in body:
            body[name] = body[name].astimezone(UTC)
    return orjson.dumps(body)


def _encode_message(message: MemoryMessage) -> dict[str, Any]:
    body = {name: value for name, value in message.__dict__.items() if value is not None and value != {}}
    if message.timestamp is not None:
        body["timestamp"] = message.timestamp.astimezone(UTC)
    return body


def decode_item(
    id_: str, namespace: str, body: bytes, version: bytes | int, turn: bytes | int, *, vector: bytes | None = None
) -> MemoryItem:
    """Return the memory in these fields of its hash.

    Args:
        id_, namespace: id and namespace of the memory.
        body, version, turn: as `READ_FIELDS` names them.
        vector: the vector field, if the embedding is requested.
    """
    item = item_from_body(id_, namespace, orjson.loads(body), int(version), int(turn))
    if vector is None:
        return item
    return item.model_copy(update={"embedding": tuple(from_half(vector).tolist())})


def decode_item_if_readable(
    id_: str, namespace: str, body: bytes, version: bytes | int, turn: bytes | int, *, vector: bytes | None = None
) -> MemoryItem | None:
    """As `decode_item`; return None if these fields are not a memory, because another client has written there."""
    try:
        item = decode_item(id_, namespace, body, version, turn, vector=vector)
    except (ValueError, TypeError, AttributeError):
        return None
    return item if isinstance(item.memory, str) else None


def item_from_body(id_: str, namespace: str, body: dict[str, Any], version: int, turn_index: int) -> MemoryItem:
    """Return the memory of a decoded body; this modifies the body."""
    beside = {"id": id_, "tenant_id": namespace, "version": version, "turn_index": turn_index}
    for name in _TIMES:
        if name in body:
            body[name] = datetime.fromisoformat(body[name])
    for name in _TUPLES:
        if name in body:
            body[name] = tuple(body[name])
    if "messages" in body:
        body["messages"] = tuple(_decode_message(message) for message in body["messages"])
    memory = body.setdefault("memory", "")
    body.setdefault("content", memory)
    if "hash" not in body and isinstance(memory, str):
        body["hash"] = text_hash(memory)
    if "created_at" not in body:
        body["created_at"] = body.get("timestamp")
    known = {name: value for name, value in body.items() if name in _DEFAULTS}
    # Items must not share mutable defaults.
    fresh: dict[str, Any] = {"metrics": {}, "metadata": {}}
    return of_checked(MemoryItem, {**_DEFAULTS, **fresh, **known, **beside})


def _decode_message(body: dict[str, Any]) -> MemoryMessage:
    if "timestamp" in body:
        body["timestamp"] = datetime.fromisoformat(body["timestamp"])
    if "embedding" in body:
        body["embedding"] = tuple(body["embedding"])
    return of_checked(MemoryMessage, {**_MESSAGE_DEFAULTS, "metadata": {}, **body})


def decode_version(id_: str, namespace: str, entry: bytes) -> MemoryVersion:
    """Return one version of a memory, as `memory.history` stores past versions."""
    return version_from_json(id_, namespace, orjson.loads(entry))


def version_from_json(id_: str, namespace: str, version_json: Mapping[str, Any]) -> MemoryVersion:
    """Return one version of a memory from its decoded JSON; this modifies the item in it."""
    version, change = version_json["version"], version_json["change"]
    merged = change.get("merged")
    return MemoryVersion(
        version=version,
        at=from_microseconds(version),
        actor=change["actor"],
        change=change["change"],
        item=item_from_body(id_, namespace, version_json["item"], version, version_json["turn_index"]),
        merged_text=None if merged is None else merged.get("memory", ""),
        similarity=change.get("similarity"),
        undoes=change.get("undoes"),
        merged_into=change.get("merged_into"),
    )


def encode_change(change: str, actor: str, **more: object) -> bytes:
    """Return the JSON of a change.

    Args:
        change: the name of the change, as in `MemoryVersion`.
        actor: the actor of the change.
        more: `similarity`, `undoes`, `merged_into`, and as `merged` the body of the item that was merged in; None is
            left out.
    """
    fields = {name: value for name, value in more.items() if value is not None}
    return orjson.dumps({"change": change, "actor": actor} | fields)


# -- durable tier -----------------------------------------------------------------------------------
# One document per memory: the hash as JSON, from which a restore writes the same hash. lua/include/memory.lua defines
# it: {"id", "version", "turn_index", "digest", "change", "item", "embedding"?, "expires_ms"?}; `embedding` is the
# base64 of the half-precision numbers.


def encode_embedding(vector: bytes | None) -> bytes:
    """Return a half-precision vector as the document in the durable tier spells it; empty without a vector."""
    return b64encode(vector) if vector else b""


def decode_embedding(text: str | None) -> bytes | None:
    """Return the half-precision vector of the document, as the hash stores it."""
    return b64decode(text) if text else None


def decode_durable_record(id_: str, record: DurableRecord) -> RestoredMemory:
    """Return the arguments of the script that restores a memory.

    Args:
        id_: its id.
        record: its document, which is no tombstone.

    Raises:
        ValueError, LookupError, TypeError: the document cannot be read.
    """
    document: dict[str, Any] = orjson.loads(record.body)
    body = orjson.dumps(document["item"])
    turn, digest = int(document["turn_index"]), str(document["digest"])
    item = item_from_body(id_, record.namespace, orjson.loads(body), record.version, turn)
    vector = decode_embedding(document.get("embedding"))
    facts = ranking_features(item, turn).encoded()
    hashed: dict[str, Argument] = {
        "version": record.version,
        "turn": turn,
        "digest": digest,
        "change": orjson.dumps(document["change"]),
        "body": body,
        "facts": facts,
        "terms": indexed_terms(indexed_text(item), record.namespace),
        "at": round(item.timestamp.timestamp() * 1000) if item.timestamp else 0,
        **tag_fields(item, record.namespace),
    }
    if vector is not None:
        hashed["vector"] = vector
    return RestoredMemory(
        id=id_,
        version=record.version,
        turn=turn,
        digest=digest,
        thread=item.thread_id,
        author=item.author or "",
        facts=facts,
        waits=int(vector is None),
        expires=record.expires,
        fields=tuple(part for pair in hashed.items() for part in pair),
    )
