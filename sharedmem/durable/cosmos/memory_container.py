"""The container of memories: its documents, and vector and text queries on them; no I/O.

The fields of a `MemoryItem` are at the top under their own names, the embedding as numbers, besides the fields of every
record. They are computed from the record's body and restore it exactly; if they cannot, the document also has the body
as exact text.

`sharedmem` itself searches in Redis; these queries are for direct use of the whole store: reports, other programs, a
tier without its Redis. Each names its tenant. All values of users are parameters; `TOP` is a number in the text, as the
service requires. Cosine `VectorDistance` is a similarity: 1 for the same direction, and the nearest are returned first
(`ORDER BY` accepts neither ASC nor DESC there).
"""

from __future__ import annotations

import re
import struct
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import orjson
from pydantic import ValidationError

from sharedmem.durable.cosmos.record_container import (
    CosmosQuery,
    Document,
    DocumentLocation,
    QueryValue,
    digest_of,
    fields_of_body,
    is_too_deep,
    text_of_body,
    ttl_s,
)
from sharedmem.durable.json_codec import javascript_safe
from sharedmem.durable.protocol import Scalar
from sharedmem.durable.samples import MEMORY_FIELDS, SampleRequest, SampleRow
from sharedmem.errors import InvalidError
from sharedmem.models import DurableRecord, MemoryItem
from sharedmem.text.analysis import text_hash

TYPE = "memory"
SCOPE = "$memory"
"""The scope of memories in absolute keys: `<namespace>:$memory:<id>`."""

_RECORD = tuple(name for name in DurableRecord.model_fields if name != "body")
# Cosmos DB itself uses the field `ttl`: when the document may be deleted.
_RENAMED = {"ttl": "lives_s"}
_ITEM = tuple(name for name in MemoryItem.model_fields if name not in {"id", "tenant_id", "version", "embedding"})
_USUAL = {"memory_type": "long-term", "importance": "medium", "thread_id": "main"}
"""Defaults that bodies leave out, but queries need."""
_PLAIN_ID = re.compile(r"[A-Za-z0-9_.@+=~-]{1,255}")
# With the embedding as numbers and the exact text, a document must stay below 2 MB.
_LONGEST_TWICE = 400_000


def is_memory(key: str) -> bool:
    """Return whether an absolute key belongs to a memory."""
    return key.split(":", 2)[1:2] == [SCOPE]


def id_of(key: str, element: str = "") -> str:
    """Return the id of a document in its tenant: that of the memory, if Cosmos DB accepts it."""
    _, scope, rest = (*key.split(":", 2), "", "")[:3]
    plain = scope == SCOPE and not element and _PLAIN_ID.fullmatch(rest)
    return rest if plain else f"sha256:{digest_of(key, element)}"


def place_in(document: Mapping[str, Any]) -> DocumentLocation:
    """Return the location of a document: a thread is a partition, and a change may move a memory to another thread."""
    return DocumentLocation(document["id"], [document["tenant_id"], document["thread_id"]])


def document_of(record: DurableRecord, now_ms: int, held: Document | None = None) -> Document:
    """Return the document of a memory's record.

    Args:
        record: the record to store.
        now_ms: milliseconds since 1970; Cosmos DB counts a document's time to live from its last write.
        held: the existing document: a tombstone stays where the memory was.
    """
    fields = {name: getattr(record, name) for name in _RECORD}
    native = _native_fields(record)
    thread = native.get("thread_id", "") if native or held is None else held["thread_id"]
    own = {"id": id_of(record.key, record.element), "tenant_id": record.namespace, "thread_id": thread}
    document = {**native, **fields, **own}
    if not native:
        document |= fields_of_body(record.body)
    elif not javascript_safe(record.body) or _rebuild_body(document) != record.body:
        document["exact"] = record.body
    left_s = ttl_s(record, now_ms, alone=record.type == TYPE)
    return document if left_s is None else {**document, "ttl": left_s}


def record_of(document: Mapping[str, Any]) -> DurableRecord:
    """Return the record of a document, exactly as it was put.

    Raises:
        InvalidError: the document was not written by sharedmem.
    """
    is_native = "told" in document and "exact" not in document
    body = _rebuild_body(document) if is_native else text_of_body(document)
    try:
        return DurableRecord(**{name: document[name] for name in _RECORD}, body=body)
    except (KeyError, ValidationError) as error:
        advice = "sharedmem did not write it; delete it from the container, which is for sharedmem alone"
        raise InvalidError("document", document.get("id"), advice) from error


# -- the body ---------------------------------------------------------------------------------------


def _native_fields(record: DurableRecord) -> Document:
    """Return the fields of a memory from the body of its record; empty if the body does not belong to a memory."""
    if not record.body or len(record.body) > _LONGEST_TWICE or is_too_deep(record.body):
        return {}
    try:
        body = orjson.loads(record.body)
        item = body["item"]
        numbers = _numbers(body.get("embedding"))
        fields = {_RENAMED.get(name, name): item[name] for name in _ITEM if name in item}
        if not isinstance(item.get("thread_id", ""), str):
            return {}
    except (ValueError, LookupError, TypeError, AttributeError, struct.error):
        return {}
    beside = {name: body[name] for name in ("turn_index", "digest", "change") if name in body}
    text = item.get("memory", "")
    usual = {**_USUAL, "content": text, "hash": text_hash(str(text)), "created_at": item.get("timestamp")}
    return {**usual, **fields, **beside, **numbers, "told": [*body], "says": [*item]}


def _numbers(embedding: object) -> Document:
    if not isinstance(embedding, str):
        return {}
    half = b64decode(embedding, validate=True)
    return {"embedding": list(struct.unpack(f"<{len(half) // 2}e", half))}


def _rebuild_body(document: Mapping[str, Any]) -> str:
    """Return the body from the fields."""
    item = {name: document.get(_RENAMED.get(name, name)) for name in document["says"]}
    known = {
        "id": document["id"],
        "version": document["version"],
        "expires_ms": document["expires"],
        "item": item,
        "embedding": _to_float16(document.get("embedding", [])),
    }
    body = {name: known.get(name, document.get(name)) for name in document["told"]}
    return orjson.dumps(body).decode()


def _to_float16(numbers: list[float]) -> str:
    return b64encode(struct.pack(f"<{len(numbers)}e", *numbers)).decode()


CACHE_SIMILARITY, DUPLICATE_SIMILARITY = 0.98, 0.95

_LARGEST_LIMIT = 1_000
_MOST_KEYWORDS = 30
_FILTER_FIELDS = frozenset(
    {"user_id", "agent_id", "run_id", "category", "importance", "memory_type", "entity_id", "source_actor"}
)
_SELECTED = "c.id, c.thread_id, c.turn_index, c.memory, c.content, c.timestamp, c.metadata"
_DISTANCE = "VectorDistance(c.embedding, @vector)"
_ALIVE = 'c.type = "memory" AND c.deleted = false AND (c.expires = 0 OR c.expires > @now)'


class MemoryQueryScope(NamedTuple):
    """The memories of a query."""

    tenant_id: str
    now_ms: int
    """Milliseconds since 1970: memories that have expired by then are left out."""
    thread_id: str | None = None
    """None: all threads of the tenant."""
    equal: Mapping[str, Scalar] = {}
    """Fields of a `MemoryItem` and the values they must have."""


def recent(
    where: MemoryQueryScope, limit: int, *, by: Literal["turn_index", "timestamp"] = "turn_index"
) -> CosmosQuery:
    """Return the newest memories, of a thread by turn index or of a tenant by time.

    Raises:
        InvalidError: the limit is out of bounds, or a field cannot be queried; the same for the other queries.
    """
    if by not in {"turn_index", "timestamp"}:
        raise InvalidError("by", by, "order by turn_index or timestamp")
    return _query(where, limit, shown=_SELECTED, order=f"c.{by} DESC")


def nearest(where: MemoryQueryScope, vector: Sequence[float], limit: int, *, least: float | None = None) -> CosmosQuery:
    """Return the memories nearest in meaning, with their `similarity`; only those above `least`, if that is given."""
    given: dict[str, QueryValue] = {"vector": list(vector)}
    further = []
    if least is not None:
        given["least"] = _checked_similarity(least)
        further = [f"{_DISTANCE} > @least"]
    return _query(
        where, limit, shown=f"{_SELECTED}, {_DISTANCE} AS similarity", order=_DISTANCE, more=further, given=given
    )


def hybrid(
    where: MemoryQueryScope,
    vector: Sequence[float],
    keywords: Sequence[str],
    limit: int,
    *,
    weights: Sequence[float] = (),
) -> CosmosQuery:
    """Return the best memories by meaning and words together: ranks fused as 1 / (60 + rank).

    Args:
        where: the memories to search.
        vector: vector of the query.
        keywords: at most 30; more are left out.
        limit: most results, 1 to 1,000.
        weights: of the vector, the words in `content` and the words in `memory`; empty: equal weights.
    """
    words, given = _keywords(keywords)
    legs = [_DISTANCE, *(f"FullTextScore(c.{field}, {words})" for field in ("content", "memory"))]
    if weights:
        if len(weights) != len(legs):
            raise InvalidError("weights", list(weights), f"give {len(legs)} numbers")
        legs.append(f"[{', '.join(repr(float(weight)) for weight in weights)}]")
    # No other clause may contain a score, so it is not selected.
    return _query(
        where, limit, shown=_SELECTED, order=f"RANK RRF({', '.join(legs)})", given={"vector": list(vector), **given}
    )


def ranked(where: MemoryQueryScope, keywords: Sequence[str], limit: int) -> CosmosQuery:
    """Return memories by the weight of some words in their content (BM25), best first; at most 30 words are used."""
    words, given = _keywords(keywords)
    return _query(where, limit, shown=_SELECTED, order=f"RANK FullTextScore(c.content, {words})", given=given)


def with_phrase(where: MemoryQueryScope, phrase: str, limit: int) -> CosmosQuery:
    """Return the newest memories that contain a phrase, of a thread or of a whole tenant."""
    has = "(FullTextContains(c.content, @phrase) OR FullTextContains(c.memory, @phrase))"
    return _query(where, limit, shown=_SELECTED, order="c.timestamp DESC", more=[has], given={"phrase": phrase})


def cached(where: MemoryQueryScope, vector: Sequence[float], *, least: float = CACHE_SIMILARITY) -> CosmosQuery:
    """Return the cached answer to the nearest prompt, if it is near enough; its thread is the key of the cache."""
    kept = where._replace(equal={**where.equal, "memory_type": "semantic-cache"})
    return nearest(kept, vector, 1, least=least)


def duplicates(
    where: MemoryQueryScope,
    vector: Sequence[float],
    *,
    category: str | None = None,
    least: float = DUPLICATE_SIMILARITY,
) -> CosmosQuery:
    """Return up to five memories of nearly the same meaning, within a tenant and category."""
    alike = where if category is None else where._replace(equal={**where.equal, "category": category})
    return nearest(alike, vector, 5, least=least)


def thread_statistics(where: MemoryQueryScope) -> CosmosQuery:
    """Return the number of turns of a thread, its first and last time, and its tokens: one row.

    Raises:
        InvalidError: no thread is given; several aggregates in one query need one partition.
    """
    if where.thread_id is None:
        raise InvalidError("thread_id", None, "name the thread")
    tokens = " + ".join(
        f"(IS_NUMBER(c.metrics.{side}) ? c.metrics.{side} : 0)" for side in ("input_tokens", "output_tokens")
    )
    shown = (
        "COUNT(1) AS turn_count, MIN(c.timestamp) AS first_turn_at, MAX(c.timestamp) AS last_turn_at,"
        f" SUM({tokens}) AS total_tokens"
    )
    return _query(where, None, shown=shown)


def count(where: MemoryQueryScope) -> CosmosQuery:
    """Return how many memories there are: one number."""
    return _query(where, None, shown="VALUE COUNT(1)")


# -- query texts ---------------------------------------------------------------------------------------


def _query(
    where: MemoryQueryScope,
    limit: int | None,
    *,
    shown: str,
    order: str = "",
    more: Sequence[str] = (),
    given: Mapping[str, QueryValue] | None = None,
) -> CosmosQuery:
    conditions, values = _conditions(where)
    clauses = " AND ".join([*conditions, *more])
    top = "" if limit is None else f"TOP {_checked_limit(limit)} "
    # The only values of users in the text are limits and weights, which are numbers.
    text = f"SELECT {top}{shown} FROM c WHERE {clauses}" + (f" ORDER BY {order}" if order else "")  # noqa: S608  # see above
    partition = None if where.thread_id is None else [where.tenant_id, where.thread_id]
    return CosmosQuery(text, {**values, **(given or {})}, partition)


def _conditions(where: MemoryQueryScope) -> tuple[list[str], dict[str, QueryValue]]:
    conditions, values = ["c.tenant_id = @tenant"], dict[str, QueryValue](tenant=where.tenant_id)
    if where.thread_id is not None:
        conditions.append("c.thread_id = @thread")
        values["thread"] = where.thread_id
    conditions.append(_ALIVE)
    values["now"] = where.now_ms
    for number, (field, value) in enumerate(where.equal.items()):
        if field not in _FILTER_FIELDS:
            raise InvalidError("field", field, f"give one of {', '.join(sorted(_FILTER_FIELDS))}")
        conditions.append(f"c.{field} = @equal{number}")
        values[f"equal{number}"] = value
    return conditions, values


def _keywords(keywords: Sequence[str]) -> tuple[str, dict[str, QueryValue]]:
    words = list(dict.fromkeys(word for word in keywords if word))[:_MOST_KEYWORDS]
    if not words:
        raise InvalidError("keywords", list(keywords), "give at least one word")
    values: dict[str, QueryValue] = {f"word{number}": word for number, word in enumerate(words)}
    return ", ".join(f"@{name}" for name in values), values


def _checked_limit(limit: int) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= _LARGEST_LIMIT:
        raise InvalidError("limit", limit, f"ask for 1 to {_LARGEST_LIMIT:,} memories")
    return limit


def _checked_similarity(least: float) -> float:
    if not -1 <= least <= 1:
        raise InvalidError("least", least, "a cosine similarity is between -1 and 1")
    return float(least)


# -- sample queries ------------------------------------------------------------------------------


def sample_query(request: SampleRequest) -> CosmosQuery:
    """Return the query of a sample."""
    where = MemoryQueryScope(request.namespace, request.now_ms, request.thread_id)
    limit, words, vector = request.limit, request.words, request.vector
    match request.name:
        case "recent-turns":
            return recent(where, limit)
        case "recent":
            return recent(where, limit, by="timestamp")
        case "nearest":
            return nearest(where, vector, limit)
        case "hybrid":
            return hybrid(where, vector, words, limit)
        case "words":
            return ranked(where, words, limit)
        case "phrase":
            return with_phrase(where, request.text, limit)
        case "duplicates":
            return duplicates(where, vector, category=request.category)
        case "thread-statistics":
            return thread_statistics(where)
        case _:
            return count(where)


def sample_rows(request: SampleRequest, answered: Iterable[Any]) -> list[SampleRow]:
    """Return the rows of a result with the same fields as every other store."""
    if request.name == "count":
        return [{"count": number} for number in answered]
    if request.name == "thread-statistics":
        return [dict(row) for row in answered]
    return [_memory_row(row) for row in answered]


def _memory_row(row: dict[str, Any]) -> SampleRow:
    shown = {name: row.get(name) for name in MEMORY_FIELDS} | {"metadata": row.get("metadata") or {}}
    return shown | ({"similarity": row["similarity"]} if "similarity" in row else {})
