"""The records of a graph, made of their documents in the durable tier, and what the script takes to bring them back."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import orjson

from sharedmem.knowledge.graph.records import EntityRow, Row
from sharedmem.knowledge.graph.redis.rows import (
    BETWEEN,
    NOTHING,
    Entries,
    decode,
    entries,
    fields,
    name_body,
    name_id,
    unspelled_group,
)
from sharedmem.models import DurableRecord
from sharedmem.wire.replies import Argument

_NAME = "x"
_BY_TIME = ("facts", "shelf")
"""Fields of a hash that change when a fact becomes past."""


class Name(NamedTuple):
    """A name for which the row of its entity has no room."""

    name: str
    entity: str


class Recalled(NamedTuple):
    """A record as the durable tier has it."""

    named: str
    """As its key ends: `<group>/<kind>/<id>`."""
    version: int
    row: Row | Name | None
    """None when it was deleted."""

    @property
    def group(self) -> str:
        """As it stands in keys."""
        return self.named.partition("/")[0]

    @property
    def kind(self) -> str:
        """The letter of its kind."""
        return self.named.split("/", 2)[1]


class Held(NamedTuple):
    """What is here of a record."""

    version: int = 0
    body: bytes = b""


def recalled(record: DurableRecord) -> Recalled:
    """What a document says.

    Raises:
        ValueError, LookupError, TypeError: it cannot be read.
    """
    named = record.key.split(":", 2)[2]
    kind = named.split("/", 2)[1]
    if record.deleted:
        return Recalled(named, record.stamp, None)
    told: Any = orjson.loads(record.body)
    if not isinstance(told, dict):
        raise TypeError(f"{named} is no object")
    if kind == _NAME:
        return Recalled(named, record.version, _name(record.body))
    vector = b64decode(told["embedding"]) if told.get("embedding") else None
    return Recalled(named, record.version, decode(kind, record.body.encode(), version=record.version, vector=vector))


def hashed(one: Recalled, namespace: str) -> dict[str, Argument]:
    """The fields of a record's hash that stay as they are, however time goes by; none of one that was deleted."""
    if one.row is None:
        return {}
    words = _fields(one, namespace, now=0)
    pairs = {str(words[at]): words[at + 1] for at in range(0, len(words), 2)}
    return {"version": one.version} | {name: value for name, value in pairs.items() if name not in _BY_TIME}


def is_newer(one: Recalled, held: Held) -> bool:
    """Whether a record is to take the place of what is here."""
    return one.version > held.version and (one.row is not None or held.version > 0)


def restoring_words(pairs: Sequence[tuple[Recalled, Held]], namespace: str, *, now: int) -> list[Argument]:
    """What `lua/graph_restore.lua` takes for some records of a group, each with what is here of it."""
    words: list[Argument] = []
    for one, held in pairs:
        told = _fields(one, namespace, now=now)
        words += (held.version, one.version if told else 0, int(one.kind != _NAME), len(told), *told)
    rows = [one.row for one, _ in pairs]
    gone_ones = [row for one, held in pairs if one.row is None and (row := _row_here(one, held)) is not None]
    before = _together([*(_entries(_row_here(one, held)) for one, held in pairs), _named_by(gone_ones)])
    after = _together(_entries(row) for row in rows)
    for gone, there in zip(before[:3], after[:3], strict=True):
        words += _block(sorted(gone - there))
        words += _block([word for member in sorted(there - gone) for word in (0, member)])
    still = dict(after.into)
    unmerged = [word for id_, into in sorted(before.into) if id_ not in still for word in (f">{id_}", into)]
    words += _block([*unmerged, *(word for name, id_ in _names(gone_ones) for word in (f"={name}", id_))])
    words += _block([word for id_, into in sorted(after.into) for word in (f">{id_}", into)])
    words += _block(list(chain.from_iterable(_names(rows))))
    return words + _block(
        [word for row in rows if isinstance(row, EntityRow) and row.merge for word in (row.id, row.merge)]
    )


def _fields(one: Recalled, namespace: str, *, now: int) -> list[Argument]:
    if one.row is None:
        return []
    if isinstance(one.row, Name):
        return ["body", name_body(one.row.name, one.row.entity)]
    return fields(one.row, namespace, unspelled_group(one.group), now=now)


def _row_here(one: Recalled, held: Held) -> Row | Name | None:
    """The row that is here; None when there is none that can be read."""
    if not held.body:
        return None
    try:
        return _name(held.body) if one.kind == _NAME else decode(one.kind, held.body, version=held.version)
    except (ValueError, LookupError, TypeError):
        return None


def _name(body: str | bytes) -> Name:
    told = orjson.loads(body)
    return Name(str(told["name"]), str(told["entity"]))


def _named_by(rows: Iterable[Row | Name | None]) -> Entries:
    """What the register has of the names of some rows."""
    return Entries(told=frozenset(f"a{id_}{BETWEEN}{name}" for name, id_ in _names(rows)))


def _entries(row: Row | Name | None) -> Entries:
    if row is None:
        return NOTHING
    return Entries(told=frozenset((f"x{name_id(row.name)}",))) if isinstance(row, Name) else entries(row)


def _together(parts: Iterable[Entries]) -> Entries:
    every = [NOTHING, *parts]
    return Entries(*(frozenset().union(*column) for column in zip(*every, strict=True)))


def _names(rows: Iterable[Row | Name | None]) -> Iterable[tuple[str, str]]:
    """(name, entity) of all names that rows tell."""
    for row in rows:
        if isinstance(row, Name):
            yield row
        elif isinstance(row, EntityRow):
            yield from ((name, row.id) for name in row.names)


def _block(words: Sequence[Argument]) -> list[Argument]:
    return [len(words), *words]
