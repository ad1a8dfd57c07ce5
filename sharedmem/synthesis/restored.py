"""A note, made of its document in the durable tier as `shelf` makes it."""

from __future__ import annotations

from base64 import b64decode
from typing import Any, NamedTuple

import orjson

from sharedmem.models import DurableRecord, Note
from sharedmem.search.tags import spelled
from sharedmem.synthesis.shelf.rows import chain_of, fields
from sharedmem.wire.replies import Argument

_BESIDE_NOTE = ("version", "embedding")


class Recalled(NamedTuple):
    """A note as the durable tier has it."""

    named: str
    """As its key ends: `<app>/<id>`."""
    version: int
    user: str = ""
    chain: str = ""
    fields: tuple[Argument, ...] = ()
    """Of its hash, each with its value behind it; none when it was erased."""

    @property
    def app(self) -> str:
        """As it stands in keys."""
        return self.named.partition("/")[0]

    @property
    def words(self) -> tuple[Argument, ...]:
        """What `lua/note_restore.lua` takes."""
        return (self.version, self.user, self.chain, len(self.fields), *self.fields)


def recalled(record: DurableRecord) -> Recalled:
    """What a document says.

    Raises:
        ValueError, LookupError, TypeError: it cannot be read.
    """
    named = record.key.split(":", 2)[2]
    if record.deleted:
        return Recalled(named, record.stamp)
    told: dict[str, Any] = orjson.loads(record.body)
    body = orjson.dumps({name: value for name, value in told.items() if name not in _BESIDE_NOTE})
    note = Note.model_validate_json(body)
    words = fields(note, record.namespace)
    if told.get("embedding"):
        words += ("vector", b64decode(told["embedding"]))
    return Recalled(named, record.version, spelled(note.user_id), chain_of(note), tuple(words))
