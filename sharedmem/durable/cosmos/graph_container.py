"""The container of knowledge graphs: its documents, and queries on facts, entities and episodes; no I/O.

Besides the fields of every record, a document has the group, the times as ISO texts, the searchable text, and the
embedding as numbers. All records of a group are in one partition.

`sharedmem` itself queries Redis; these queries are for direct use of the store: reports, other programs, a tier without
its Redis. Each names one group, which is one logical partition. All values of users are parameters; `TOP` is a number
in the text, as the service requires.
"""

from __future__ import annotations

import re
import struct
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
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
    text_of_body,
    ttl_s,
)
from sharedmem.errors import InvalidError
from sharedmem.models import DurableRecord

TYPES = frozenset({"episode", "entity", "fact", "name"})
SCOPE = "$graph"
"""The scope of graphs in absolute keys: `<namespace>:$graph:<group>/<letter>/<id>`."""

_RECORD = tuple(name for name in DurableRecord.model_fields if name != "body")
_PLAIN_ID = re.compile(r"[A-Za-z0-9_.@+=~-]{1,250}")
_HEAD = re.compile(r'\{"version":(\d+),"embedding":"([A-Za-z0-9+/=]*)",')
# With its own fields, its body and the exact text, a document must stay below 2 MB.
_LONGEST_NATIVE = 300_000
_NO_FIELDS: Document = {}
# Times in bodies: microseconds since the beginning of year 1, from 1; these values are not times.
_UNKNOWN, _OPEN = 0, 999_999_999_999_999_999
_BEGINNING = datetime(1, 1, 1, tzinfo=UTC)


def is_graph(key: str) -> bool:
    """Return whether an absolute key belongs to a record of a graph."""
    return key.split(":", 2)[1:2] == [SCOPE]


def place_of(key: str, element: str = "") -> DocumentLocation:
    """Return the location of a document, which follows from its key alone."""
    namespace, _, rest = (*key.split(":", 2), "", "")[:3]
    group, _, own = rest.partition("/")
    named = own.replace("/", ".", 1)
    plain = is_graph(key) and not element and _PLAIN_ID.fullmatch(named)
    id_ = named if plain else f"sha256:{digest_of(key, element)}"
    return DocumentLocation(id_, [namespace, group.replace("%2F", "/").replace("%25", "%")])


def document_of(record: DurableRecord, now_ms: int) -> Document:
    """Return the document of a record.

    Args:
        record: the record to store.
        now_ms: milliseconds since 1970; Cosmos DB counts a document's time to live from its last write.
    """
    place = place_of(record.key, record.element)
    namespace, group = place.partition
    fields = {name: getattr(record, name) for name in _RECORD}
    text, numbers = _split_embedding(record.body)
    native = _native_fields(record.type, text)
    own = {"id": place.id, "namespace": namespace, "group_id": group}
    document = {**native, **numbers, **fields, **own, **fields_of_body(text)}
    left_s = ttl_s(record, now_ms, alone=is_graph(record.key))
    return document if left_s is None else {**document, "ttl": left_s}


def record_of(document: Mapping[str, Any]) -> DurableRecord:
    """Return the record of a document, exactly as it was put.

    Raises:
        InvalidError: the document was not written by sharedmem.
    """
    try:
        body = text_of_body(document)
        if "embedding" in document:
            head, _, rest = body.partition(",")
            body = f'{head},"embedding":"{_to_float16(document["embedding"])}",{rest}'
        return DurableRecord(**{name: document[name] for name in _RECORD}, body=body)
    except (KeyError, ValidationError, struct.error) as error:
        advice = "sharedmem did not write it; delete it from the container, which is for sharedmem alone"
        raise InvalidError("document", document.get("id"), advice) from error


# -- the body ---------------------------------------------------------------------------------------


def _split_embedding(body: str) -> tuple[str, Document]:
    """Return (body without embedding, embedding as numbers); keep the body if it could not be restored exactly."""
    found = _HEAD.match(body)
    if found is None:
        return body, {}
    try:
        half = b64decode(found[2], validate=True)
        numbers = list(struct.unpack(f"<{len(half) // 2}e", half))
    except (ValueError, struct.error):
        return body, {}
    if _to_float16(numbers) != found[2] or not numbers:
        return body, {}
    return f'{{"version":{found[1]},{body[found.end() :]}', {"embedding": numbers}


def _to_float16(numbers: list[float]) -> str:
    return b64encode(struct.pack(f"<{len(numbers)}e", *numbers)).decode()


def _native_fields(type_: str, text: str) -> Document:
    """Return the queryable fields of a record's body; empty if it does not belong to a graph."""
    make = {"episode": _episode, "entity": _entity, "fact": _fact, "name": _name}.get(type_)
    if make is None or not text or len(text) > _LONGEST_NATIVE:
        return _NO_FIELDS
    try:
        return make(orjson.loads(text))
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError):
        return _NO_FIELDS


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
        "valid_from": _format_stamp(start),
        "valid_to": _format_stamp(end),
        "recorded_at": _format_stamp(recorded),
        "superseded_at": _format_stamp(superseded),
    }


def _entity(row: dict[str, Any]) -> Document:
    return {
        "name": row["name"],
        "entity_type": row["type"],
        "text": " ".join((row["name"], *row["aliases"], row["summary"])).strip(),
        "aliases": row["aliases"],
        "summary": row["summary"],
        "merged_into": row["merged_into"] or None,
        "recorded_at": _format_stamp(row["recorded"]),
    }


def _episode(row: dict[str, Any]) -> Document:
    return {
        "text": row["text"] if "text" in row else row["body"]["content"],
        "episode_kind": row["body"].get("kind", "episode"),
        "session": row["session"] or None,
        "user_id": row["user"] or None,
        "source": row["source"],
        "occurred_at": _format_stamp(row["occurred"]),
        "recorded_at": _format_stamp(row["recorded"]),
        "undone_at": _format_stamp(row["undone"]),
        "entity_ids": row["body"].get("entities", []),
        "fact_ids": row["body"].get("fact_ids", []),
    }


def _name(row: dict[str, Any]) -> Document:
    return {"name": row["name"], "entity_id": row["entity"]}


def _format_stamp(stamp: int) -> str | None:
    """Return a time as a sortable text; None for an open end and for an unknown beginning."""
    if stamp in {_UNKNOWN, _OPEN}:
        return None
    moment = _BEGINNING + timedelta(microseconds=stamp - 1)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


_LARGEST_LIMIT = 1_000
_ALIVE = "c.type = @type AND c.deleted = false"
_DISTANCE = "VectorDistance(c.embedding, @vector)"
_HAS_VERSION_AT = (
    "EXISTS(SELECT VALUE v FROM v IN c.versions WHERE (IS_NULL(v.valid_from) OR v.valid_from <= @world)"
    " AND (IS_NULL(v.valid_to) OR v.valid_to > @world)"
    " AND v.recorded_at <= @known AND (IS_NULL(v.superseded_at) OR v.superseded_at > @known))"
)
_SELECTED: Mapping[str, str] = {
    "fact": "c.id, c.fact, c.relation, c.source_id, c.source, c.target_id, c.target, c.attribute, c.valid_from,"
    " c.valid_to, c.recorded_at, c.superseded_at, c.versions, c.episode_ids",
    "entity": "c.id, c.name, c.entity_type, c.aliases, c.summary, c.merged_into",
    "episode": "c.id, c.text, c.session, c.user_id, c.occurred_at, c.recorded_at, c.entity_ids, c.fact_ids",
}

GraphRecordType = Literal["fact", "entity", "episode"]


class GraphQueryScope(NamedTuple):
    """The graph of a query."""

    namespace: str
    group_id: str


def entity_facts(
    where: GraphQueryScope, entity_id: str, limit: int, *, as_of: datetime, known_at: datetime
) -> CosmosQuery:
    """Return the facts of an entity that held at a time, as known at a time, the newest first.

    Args:
        where: the graph.
        entity_id: its id, after merges.
        limit: most results, 1 to 1,000.
        as_of, known_at: the requested valid time and transaction time; with a zone.

    Raises:
        InvalidError: the limit is out of bounds, or a time has no zone; the same for the other queries.
    """
    given: dict[str, QueryValue] = {
        "entity": entity_id,
        "world": _format_moment("as_of", as_of),
        "known": _format_moment("known_at", known_at),
    }
    about = "(c.source_id = @entity OR c.target_id = @entity)"
    return _query(where, "fact", limit, more=[about, _HAS_VERSION_AT], order="c.valid_from DESC", given=given)


def entity_history(where: GraphQueryScope, entity_id: str, limit: int) -> CosmosQuery:
    """Return every fact of an entity with all its versions, the newest first."""
    about = "(c.source_id = @entity OR c.target_id = @entity)"
    return _query(where, "fact", limit, more=[about], order="c.recorded_at DESC", given={"entity": entity_id})


def session_episodes(where: GraphQueryScope, session: str, limit: int) -> CosmosQuery:
    """Return the episodes of a session, oldest first."""
    more = ["c.session = @session"]
    return _query(where, "episode", limit, more=more, order="c.occurred_at ASC", given={"session": session})


def nearest(
    where: GraphQueryScope, vector: Sequence[float], limit: int, *, of_type: GraphRecordType = "fact"
) -> CosmosQuery:
    """Return the records nearest in meaning, with their `similarity`, the nearest first."""
    shown = f", {_DISTANCE} AS similarity"
    return _query(where, of_type, limit, shown=shown, order=_DISTANCE, given={"vector": list(vector)})


def with_phrase(
    where: GraphQueryScope, phrase: str, limit: int, *, of_type: GraphRecordType = "episode"
) -> CosmosQuery:
    """Return the newest records whose text contains a phrase."""
    has = "FullTextContains(c.text, @phrase)"
    return _query(where, of_type, limit, more=[has], order="c.recorded_at DESC", given={"phrase": phrase})


def _query(
    where: GraphQueryScope,
    of_type: str,
    limit: int,
    *,
    order: str,
    given: Mapping[str, QueryValue],
    more: Sequence[str] = (),
    shown: str = "",
) -> CosmosQuery:
    if of_type not in _SELECTED:
        raise InvalidError("of_type", of_type, f"give one of {', '.join(_SELECTED)}")
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= _LARGEST_LIMIT:
        raise InvalidError("limit", limit, f"ask for 1 to {_LARGEST_LIMIT:,} records")
    conditions = " AND ".join(["c.namespace = @namespace", "c.group_id = @group", _ALIVE, *more])
    # The only value of a user in the text is the limit, which is a number.
    text = f"SELECT TOP {limit} {_SELECTED[of_type]}{shown} FROM c WHERE {conditions} ORDER BY {order}"  # noqa: S608  # see above
    values: dict[str, QueryValue] = {"namespace": where.namespace, "group": where.group_id, "type": of_type}
    return CosmosQuery(text, {**values, **given}, [where.namespace, where.group_id])


def _format_moment(field: str, moment: datetime) -> str:
    if moment.utcoffset() is None:
        raise InvalidError(field, moment.isoformat(), "give it a time zone, such as datetime.UTC")
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
