"""The container of ordinary records: its documents, and the queries that all containers share; no I/O.

All fields of a record are queryable by people and other programs; the body is plain JSON. Where Cosmos DB would not
return the body exactly (it stores numbers as doubles, and sorts fields), the exact text is stored as well.

The queries use only features of both the service and the test emulator: no DISTINCT, OFFSET or GROUP BY. A sort
names the namespace first, so that a composite index of the container serves it (see `layout`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias

import orjson
from pydantic import ValidationError

from sharedmem.durable.json_codec import javascript_safe
from sharedmem.durable.protocol import Scalar
from sharedmem.errors import ConfigError, InvalidError
from sharedmem.models import DurableRecord, Outcome

Document: TypeAlias = dict[str, Any]

OWN_NAMESPACE = "$sharedmem"
"""Namespace of the container's own description; no user's namespace begins with `$`."""

KEPT_AFTER_S = 7 * 86_400
"""Seconds for which Cosmos DB keeps tombstones and expired documents: until then an older write must be rejected."""

_IDENTITY = f"{OWN_NAMESPACE}:identity"
_LAYOUT = 1
_LONGEST_TTL_S = 2**31 - 1
_FIELDS = tuple(name for name in DurableRecord.model_fields if name != "body")
# These expire alone; a structure's elements and its head must expire together.
_EXPIRE_NATIVELY = frozenset({"value", "counter"})
# Cosmos DB supports 128 levels, the levels of the document included.
_DEEPEST = 100
# Exact text and body together must stay below its 2 MB.
_LONGEST_TWICE = 700_000
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_BRACKET = re.compile(r"[\[\]{}]")


class DocumentLocation(NamedTuple):
    """The location of a document: its id, unique in the account, and the values of the partition key."""

    id: str
    partition: list[str]


def place_of(key: str, element: str = "") -> DocumentLocation:
    """Return the location of a document.

    Args:
        key: absolute key.
        element: the element; empty for the head.
    """
    return DocumentLocation(digest_of(key, element), partition_of(key))


def digest_of(key: str, element: str = "") -> str:
    """Return a digest of a key and an element, for places that do not allow every text."""
    return hashlib.sha256(f"{key}\0{element}".encode(errors="surrogatepass")).hexdigest()


def partition_of(key: str) -> list[str]:
    """Return the values of the hierarchical partition key: namespace, scope and the whole key."""
    namespace, scope, *_ = (*key.split(":", 2), "")
    return [namespace, scope, key]


def document_of(record: DurableRecord, now_ms: int) -> Document:
    """Return the document of a record.

    Args:
        record: the record to store.
        now_ms: milliseconds since 1970; Cosmos DB counts a document's time to live from its last write.
    """
    place = place_of(record.key, record.element)
    namespace, scope, _ = place.partition
    fields = {name: getattr(record, name) for name in _FIELDS}
    document = {"id": place.id, "namespace": namespace, "scope": scope, **fields, **fields_of_body(record.body)}
    left_s = ttl_s(record, now_ms, alone=record.is_head and record.type in _EXPIRE_NATIVELY)
    return document if left_s is None else {**document, "ttl": left_s}


def record_of(document: Mapping[str, Any]) -> DurableRecord:
    """Return the record of a document, exactly as it was put.

    Raises:
        InvalidError: the document was not written by sharedmem.
    """
    try:
        return DurableRecord(**{name: document[name] for name in _FIELDS}, body=text_of_body(document))
    except (KeyError, ValidationError) as error:
        advice = "sharedmem did not write it; delete it from the container, which is for sharedmem alone"
        raise InvalidError("document", document.get("id"), advice) from error


def identity_document(database_id: str) -> Document:
    """Return the description of the container: the id that it got when it was created, and its layout."""
    place = place_of(_IDENTITY)
    namespace, scope, key = place.partition
    return {
        "id": place.id,
        "namespace": namespace,
        "scope": scope,
        "key": key,
        "database": database_id,
        "layout": _LAYOUT,
    }


def identity_of(document: Mapping[str, Any], container: str) -> str:
    """Return the id of a container.

    Raises:
        ConfigError: a newer version of sharedmem wrote its documents.
    """
    if document["layout"] > _LAYOUT:
        problem = (
            f"container {container!r} was written by a newer sharedmem (layout {document['layout']}); upgrade this one"
        )
        raise ConfigError("cosmos_container", "the durable tier's settings", problem)
    database: str = document["database"]
    return database


def fields_of_body(text: str) -> Document:
    """Return the fields of a document that store the text of a body: `body`, `exact`, or both."""
    if not text:
        return {}
    if javascript_safe(text) and not is_too_deep(text):
        return {"body": orjson.loads(text)}
    if len(text) > _LONGEST_TWICE or is_too_deep(text):
        return {"exact": text}
    try:
        return {"body": orjson.loads(text), "exact": text}
    except ValueError:
        return {"exact": text}


def text_of_body(document: Mapping[str, Any]) -> str:
    """Return the text from those fields."""
    if "exact" in document:
        exact: str = document["exact"]
        return exact
    return orjson.dumps(document["body"]).decode() if "body" in document else ""


def is_too_deep(text: str) -> bool:
    """Return whether JSON has more levels than Cosmos DB supports."""
    # Most texts have too few brackets to be so deep.
    if text.count("[") + text.count("{") <= _DEEPEST:
        return False
    steps = (1 if bracket in "[{" else -1 for bracket in _BRACKET.findall(_STRING.sub("", text)))
    return max(accumulate(steps), default=0) > _DEEPEST


def ttl_s(record: DurableRecord, now_ms: int, *, alone: bool) -> int | None:
    """Return seconds after which Cosmos DB may delete a document itself; None if it may not.

    Args:
        record: the record of the document.
        now_ms: milliseconds since 1970.
        alone: whether no other document must expire with it.
    """
    if record.deleted:
        return KEPT_AFTER_S
    if not record.expires or not alone:
        return None
    left_s = max(0, -(-(record.expires - now_ms) // 1000))
    return min(left_s + KEPT_AFTER_S, _LONGEST_TTL_S)


# -- older and newer ------------------------------------------------------------------------------


def newest_of_each(records: Iterable[DurableRecord]) -> dict[tuple[str, str], DurableRecord]:
    """Return the record with the highest stamp by key and element; a head gets the highest floor of all its records."""
    kept: dict[tuple[str, str], DurableRecord] = {}
    for record in records:
        place = record.key, record.element
        kept[place] = merge_records(record, kept[place]) if place in kept else record
    return kept


def merge_records(record: DurableRecord, other: DurableRecord) -> DurableRecord:
    """Return the newer of two records of one place, the first if they are equally new, with the higher floor."""
    newer = other if other.stamp > record.stamp else record
    floor = max(record.floor, other.floor)
    return newer if newer.floor == floor else newer.model_copy(update={"floor": floor})


def choose_write(record: DurableRecord, held: DurableRecord | None) -> tuple[DurableRecord | None, Outcome]:
    """Return (record to write over the existing one, or None; outcome for the new record)."""
    if held is None:
        return record, Outcome.STORED
    result = merge_records(held, record)
    outcome = Outcome.OLDER if held.stamp > record.stamp else Outcome.STORED
    return None if result is held else result, outcome


def is_likely_new(record: DurableRecord) -> bool:
    """Return whether there is probably no document yet: then trying to create it is cheaper than reading first."""
    return not record.deleted and record.created in {0, record.stamp}


QueryValue: TypeAlias = "Scalar | list[float]"
"""The values that a parameter may have."""

DocumentCursor = tuple[str, str]
"""Key and element of the last document read."""

_LARGEST_LIMIT = 1_000
_FIELD = re.compile(r"[A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*")
_AFTER_CURSOR = "(c.key > @key OR (c.key = @key AND c.element > @element))"


class ColumnNames(NamedTuple):
    """The names of queried fields in the documents of a container."""

    namespace: str
    on_top: str
    """With this prefix in a query, fields of the body are at the top of a document, otherwise in its `body`."""
    by_key: bool
    """Whether each key has its own logical partition."""


RECORD_COLUMNS = ColumnNames("namespace", "", by_key=True)
MEMORY_COLUMNS = ColumnNames("tenant_id", "item", by_key=False)
GRAPH_COLUMNS = ColumnNames("namespace", "", by_key=False)


class CosmosQuery(NamedTuple):
    """A query text and the values of its parameters.

    `partition` is the whole partition key if a single logical partition has the results. Otherwise it is None, although
    the text names the namespace: then the service names the physical partitions, and the SDK merges their sorted
    results. With the namespace as a prefix of the key, the SDK would concatenate them without merging.
    """

    text: str
    values: Mapping[str, QueryValue]
    partition: list[str] | None = None

    @property
    def parameters(self) -> list[dict[str, object]]:
        """Return the parameters in the form of the SDK."""
        return [{"name": f"@{name}", "value": value} for name, value in self.values.items()]


def query_key(key: str, after: DocumentCursor | None, *, at: ColumnNames = RECORD_COLUMNS) -> CosmosQuery:
    """Return all documents of a key, the head first, then by element."""
    namespace, scope, _ = partition = partition_of(key)
    conditions = [f"c.{at.namespace} = @namespace"]
    values: dict[str, Scalar] = {"namespace": namespace}
    if at.by_key:
        conditions.append("c.scope = @scope")
        values["scope"] = scope
    conditions.append("c.key = @key")
    values["key"] = key
    if after:
        conditions.append("c.element > @element")
        values["element"] = after[1]
    order = "c.element ASC" if at.by_key else f"c.{at.namespace} ASC, c.key ASC, c.element ASC"
    return CosmosQuery(_select("*", conditions, order), values, partition if at.by_key else None)


def query_id(namespace: str, id_: str) -> CosmosQuery:
    """Return the documents of a memory from its whole tenant, newest first; more than one while it moves."""
    conditions = ["c.tenant_id = @namespace", "c.id = @id"]
    return CosmosQuery(_select("*", conditions, "c.stamp DESC"), {"namespace": namespace, "id": id_})


def query_namespace(
    namespace: str,
    after: DocumentCursor | None,
    *,
    changed_after: int = 0,
    heads_only: bool = False,
    columns: str = "*",
    at: ColumnNames = RECORD_COLUMNS,
) -> CosmosQuery:
    """Return the documents of a namespace, by key and element."""
    conditions = [f"c.{at.namespace} = @namespace"]
    values: dict[str, Scalar] = {"namespace": namespace}
    if changed_after:
        conditions.append("c.stamp > @stamp")
        values["stamp"] = changed_after
    if heads_only:
        conditions.append('c.element = ""')
    if after:
        conditions.append(_AFTER_CURSOR)
        values |= {"key": after[0], "element": after[1]}
    return CosmosQuery(_select(columns, conditions, f"c.{at.namespace} ASC, c.key ASC, c.element ASC"), values)


def query_type(
    namespace: str, type_: str, *, where: Mapping[str, Scalar], limit: int, at: ColumnNames = RECORD_COLUMNS
) -> CosmosQuery:
    """Return documents of one type, newest first.

    Raises:
        InvalidError: a field is not a path of names, or the limit is out of bounds.
    """
    if not 1 <= limit <= _LARGEST_LIMIT:
        raise InvalidError("limit", limit, f"ask for 1 to {_LARGEST_LIMIT:,} documents")
    conditions = [f"c.{at.namespace} = @namespace", "c.type = @type", "c.deleted = false"]
    values: dict[str, Scalar] = {"namespace": namespace, "type": type_}
    for number, (field, value) in enumerate(where.items()):
        conditions.append(f"c{_path(field, at.on_top)} = @where{number}")
        values[f"where{number}"] = value
    order = f"c.{at.namespace} DESC, c.type DESC, c.stamp DESC"
    return CosmosQuery(_select(f"TOP {limit} *", conditions, order), values)


def query_highest_stamp(namespace: str, *, at: ColumnNames = RECORD_COLUMNS) -> CosmosQuery:
    """Return the query for the highest stamp of a namespace."""
    conditions = [f"c.{at.namespace} = @namespace"]
    text = _select("TOP 1 VALUE c.stamp", conditions, f"c.{at.namespace} DESC, c.stamp DESC")
    return CosmosQuery(text, {"namespace": namespace})


def query_next_namespace(after: str, *, at: ColumnNames = RECORD_COLUMNS) -> CosmosQuery:
    """Return the query for the first namespace after another one: each step reads one entry of the index."""
    name = f"c.{at.namespace}"
    return CosmosQuery(_select(f"TOP 1 VALUE {name}", [f"{name} > @after"], f"{name} ASC"), {"after": after})


def _select(what: str, conditions: Sequence[str], order: str) -> str:
    # The only values of users in the text are a limit and field names, which are checked.
    return f"SELECT {what} FROM c WHERE {' AND '.join(conditions)} ORDER BY {order}"  # noqa: S608  # see above


def _path(field: str, on_top: str) -> str:
    """Return a field of the body, in brackets: names such as `order` are keywords of the query language."""
    if not _FIELD.fullmatch(field):
        raise InvalidError("where", field, "name a field with letters, digits and '_', with dots before inner ones")
    names = field.split(".")
    names = names[1:] if names[0] == on_top and len(names) > 1 else ["body", *names]
    return "".join(f'["{name}"]' for name in names)
