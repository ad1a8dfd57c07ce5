"""Parse graph records of the durable tier, and build the arguments of the restore script."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import orjson

from sharedmem.graph.backends.redis.layout import (
    NO_ENTRIES,
    SEPARATOR,
    IndexEntries,
    decode_group,
    decode_row,
    hash_fields,
    index_entries,
    join_entries,
    name_body,
    name_record_id,
)
from sharedmem.graph.records import EntityRow, Row
from sharedmem.models import DurableRecord
from sharedmem.redis.replies import Argument

_NAME = "x"
_BY_TIME = ("facts", "shelf")
"""Fields of a hash that change when a fact becomes past."""


class ExtraName(NamedTuple):
    """A name that does not fit into the row of its entity."""

    name: str
    entity: str


class DurableGraphRecord(NamedTuple):
    """A record as the durable tier stores it."""

    named: str
    """The end of its key: `<group>/<kind>/<id>`."""
    version: int
    row: Row | ExtraName | None
    """None if the record was deleted."""

    @property
    def group(self) -> str:
        """The group, as keys encode it."""
        return self.named.partition("/")[0]

    @property
    def kind(self) -> str:
        """The letter of its kind."""
        return self.named.split("/", 2)[1]


class StoredGraphRecord(NamedTuple):
    """The stored state of a record in Redis."""

    version: int = 0
    body: bytes = b""


def parse_durable_record(record: DurableRecord) -> DurableGraphRecord:
    """Return the record in a document.

    Raises:
        ValueError, LookupError, TypeError: the document cannot be read.
    """
    named = record.key.split(":", 2)[2]
    kind = named.split("/", 2)[1]
    if record.deleted:
        return DurableGraphRecord(named, record.stamp, None)
    body: Any = orjson.loads(record.body)
    if not isinstance(body, dict):
        raise TypeError(f"{named} is not an object")
    if kind == _NAME:
        return DurableGraphRecord(named, record.version, _parse_name(record.body))
    vector = b64decode(body["embedding"]) if body.get("embedding") else None
    return DurableGraphRecord(
        named, record.version, decode_row(kind, record.body.encode(), version=record.version, vector=vector)
    )


def stable_hash_fields(one: DurableGraphRecord, namespace: str) -> dict[str, Argument]:
    """Return the fields of a record's hash that do not change with time; none for a deleted one."""
    if one.row is None:
        return {}
    words = _record_fields(one, namespace, now=0)
    pairs = {str(words[at]): words[at + 1] for at in range(0, len(words), 2)}
    return {"version": one.version} | {name: value for name, value in pairs.items() if name not in _BY_TIME}


def is_newer(one: DurableGraphRecord, held: StoredGraphRecord) -> bool:
    """Return whether a record replaces the stored one."""
    return one.version > held.version and (one.row is not None or held.version > 0)


def restore_arguments(
    pairs: Sequence[tuple[DurableGraphRecord, StoredGraphRecord]], namespace: str, *, now: int
) -> list[Argument]:
    """Return the arguments of `lua/graph_restore.lua` for some records of a group, each with its stored state."""
    words: list[Argument] = []
    for one, held in pairs:
        fields = _record_fields(one, namespace, now=now)
        words += (held.version, one.version if fields else 0, int(one.kind != _NAME), len(fields), *fields)
    rows = [one.row for one, _ in pairs]
    gone_ones = [row for one, held in pairs if one.row is None and (row := _stored_row(one, held)) is not None]
    before = join_entries([*(_entries(_stored_row(one, held)) for one, held in pairs), _registered_names(gone_ones)])
    after = join_entries(_entries(row) for row in rows)
    for old, new in zip(before[:3], after[:3], strict=True):
        words += _block(sorted(old - new))
        words += _block([word for member in sorted(new - old) for word in (0, member)])
    still = dict(after.into)
    unmerged = [word for id_, into in sorted(before.into) if id_ not in still for word in (f">{id_}", into)]
    words += _block([*unmerged, *(word for name, id_ in _names(gone_ones) for word in (f"={name}", id_))])
    words += _block([word for id_, into in sorted(after.into) for word in (f">{id_}", into)])
    words += _block(list(chain.from_iterable(_names(rows))))
    return words + _block(
        [word for row in rows if isinstance(row, EntityRow) and row.merge for word in (row.id, row.merge)]
    )


def _record_fields(one: DurableGraphRecord, namespace: str, *, now: int) -> list[Argument]:
    if one.row is None:
        return []
    if isinstance(one.row, ExtraName):
        return ["body", name_body(one.row.name, one.row.entity)]
    return hash_fields(one.row, namespace, decode_group(one.group), now=now)


def _stored_row(one: DurableGraphRecord, held: StoredGraphRecord) -> Row | ExtraName | None:
    """Return the stored row; None if it does not exist or cannot be read."""
    if not held.body:
        return None
    try:
        return _parse_name(held.body) if one.kind == _NAME else decode_row(one.kind, held.body, version=held.version)
    except (ValueError, LookupError, TypeError):
        return None


def _parse_name(body: str | bytes) -> ExtraName:
    fields = orjson.loads(body)
    return ExtraName(str(fields["name"]), str(fields["entity"]))


def _registered_names(rows: Iterable[Row | ExtraName | None]) -> IndexEntries:
    """Return the register entries for the names of some rows."""
    return IndexEntries(told=frozenset(f"a{id_}{SEPARATOR}{name}" for name, id_ in _names(rows)))


def _entries(row: Row | ExtraName | None) -> IndexEntries:
    if row is None:
        return NO_ENTRIES
    return (
        IndexEntries(told=frozenset((f"x{name_record_id(row.name)}",)))
        if isinstance(row, ExtraName)
        else index_entries(row)
    )


def _names(rows: Iterable[Row | ExtraName | None]) -> Iterable[tuple[str, str]]:
    """Return (name, entity) of all names in rows."""
    for row in rows:
        if isinstance(row, ExtraName):
            yield row
        elif isinstance(row, EntityRow):
            yield from ((name, row.id) for name in row.names)


def _block(words: Sequence[Argument]) -> list[Argument]:
    return [len(words), *words]
