"""How a record is written down in Cosmos DB: decided without I/O.

Everything of a record is a field that people and other programs can query; the body is plain JSON. What Cosmos DB
would not give back as it was (it keeps numbers as doubles, in an order of its own) stands beside it as exact text.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias

import orjson
from pydantic import ValidationError

from sharedmem.durable.texts import javascript_safe
from sharedmem.errors import ConfigError, InvalidError
from sharedmem.models import DurableRecord, Outcome

Document: TypeAlias = dict[str, Any]

OWN_NAMESPACE = "$sharedmem"
"""Where the container keeps what it says of itself; no user's namespace begins with `$`."""

KEPT_AFTER_S = 7 * 86_400
"""How long Cosmos DB keeps a tombstone, and what has expired: an older write that comes so late must still lose."""

_IDENTITY = f"{OWN_NAMESPACE}:identity"
_LAYOUT = 1
_LONGEST_TTL_S = 2**31 - 1
_FIELDS = tuple(name for name in DurableRecord.model_fields if name != "body")
# Their expiry is theirs alone; a structure's elements must not outlive or predecease its head.
_EXPIRE_ALONE = frozenset({"value", "counter"})
# Cosmos DB takes 128 levels, those of the document included.
_DEEPEST = 100
# Exact text and body together must stay below its 2 MB.
_LONGEST_TWICE = 700_000
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_BRACKET = re.compile(r"[\[\]{}]")


class Place(NamedTuple):
    """Where a document lies: its id, unique in the account, and the values of the partition key."""

    id: str
    partition: list[str]


def place_of(key: str, element: str = "") -> Place:
    """The place of a document.

    Args:
        key: absolute.
        element: empty for the head.
    """
    return Place(digest_of(key, element), partition_of(key))


def digest_of(key: str, element: str = "") -> str:
    """What stands for a key and an element where not every text may stand."""
    return hashlib.sha256(f"{key}\0{element}".encode(errors="surrogatepass")).hexdigest()


def partition_of(key: str) -> list[str]:
    """The values of the hierarchical partition key: namespace, scope and the whole key."""
    namespace, scope, *_ = (*key.split(":", 2), "")
    return [namespace, scope, key]


def document_of(record: DurableRecord, now_ms: int) -> Document:
    """The document of a record.

    Args:
        record: what is to be kept.
        now_ms: milliseconds since 1970; Cosmos DB counts a document's time to live from its last write.
    """
    place = place_of(record.key, record.element)
    namespace, scope, _ = place.partition
    fields = {name: getattr(record, name) for name in _FIELDS}
    document = {"id": place.id, "namespace": namespace, "scope": scope, **fields, **fields_of_body(record.body)}
    left_s = ttl_s(record, now_ms, alone=record.is_head and record.type in _EXPIRE_ALONE)
    return document if left_s is None else {**document, "ttl": left_s}


def record_of(document: Mapping[str, Any]) -> DurableRecord:
    """The record of a document, exactly as it was put.

    Raises:
        InvalidError: the document is none of ours.
    """
    try:
        return DurableRecord(**{name: document[name] for name in _FIELDS}, body=text_of_body(document))
    except (KeyError, ValidationError) as error:
        advice = "sharedmem did not write it; remove it from the container, which is for sharedmem alone"
        raise InvalidError("document", document.get("id"), advice) from error


def identity_document(database_id: str) -> Document:
    """What the container says of itself: the id given to it when it was made, and how its documents are laid out."""
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
    """The id of a container.

    Raises:
        ConfigError: its documents are laid out by a newer sharedmem.
    """
    if document["layout"] > _LAYOUT:
        problem = (
            f"container {container!r} is laid out by a newer sharedmem (layout {document['layout']}); upgrade this one"
        )
        raise ConfigError("cosmos_container", "the durable tier's settings", problem)
    database: str = document["database"]
    return database


def fields_of_body(text: str) -> Document:
    """The fields of a document that keep the text of a body: `body`, `exact`, or both."""
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
    """The text that those fields keep."""
    if "exact" in document:
        exact: str = document["exact"]
        return exact
    return orjson.dumps(document["body"]).decode() if "body" in document else ""


def is_too_deep(text: str) -> bool:
    """Whether JSON has more levels than Cosmos DB takes."""
    # Most texts have too few brackets to be deep, whatever stands in their strings.
    if text.count("[") + text.count("{") <= _DEEPEST:
        return False
    steps = (1 if bracket in "[{" else -1 for bracket in _BRACKET.findall(_STRING.sub("", text)))
    return max(accumulate(steps), default=0) > _DEEPEST


def ttl_s(record: DurableRecord, now_ms: int, *, alone: bool) -> int | None:
    """Seconds after which Cosmos DB may remove a document by itself, if it may.

    Args:
        record: what it keeps.
        now_ms: milliseconds since 1970.
        alone: whether its expiry is that of no other document.
    """
    if record.deleted:
        return KEPT_AFTER_S
    if not record.expires or not alone:
        return None
    left_s = max(0, -(-(record.expires - now_ms) // 1000))
    return min(left_s + KEPT_AFTER_S, _LONGEST_TTL_S)


# -- older and newer ------------------------------------------------------------------------------


def newest(records: Iterable[DurableRecord]) -> dict[tuple[str, str], DurableRecord]:
    """Of each key and element the record with the highest stamp; a head bears the highest floor of them all."""
    kept: dict[tuple[str, str], DurableRecord] = {}
    for record in records:
        place = record.key, record.element
        kept[place] = merged(record, kept[place]) if place in kept else record
    return kept


def merged(record: DurableRecord, other: DurableRecord) -> DurableRecord:
    """The newer of two records of one place, the first when they are equally new, with the higher floor of both."""
    newer = other if other.stamp > record.stamp else record
    floor = max(record.floor, other.floor)
    return newer if newer.floor == floor else newer.model_copy(update={"floor": floor})


def change(record: DurableRecord, held: DurableRecord | None) -> tuple[DurableRecord | None, Outcome]:
    """What to write over what is held, if anything, and what then became of the record."""
    if held is None:
        return record, Outcome.STORED
    result = merged(held, record)
    outcome = Outcome.OLDER if held.stamp > record.stamp else Outcome.STORED
    return None if result is held else result, outcome


def is_likely_new(record: DurableRecord) -> bool:
    """Whether there is probably no document of it yet: to try is cheaper than to look first."""
    return not record.deleted and record.created in {0, record.stamp}
