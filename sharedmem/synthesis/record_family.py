"""The record family of notes: its index fields, and how Redis restores notes from the durable store.

A note's id in its namespace is `<app>/<id>`; its document is the JSON of the note with its vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from sharedmem.models import DurableRecord
from sharedmem.record_family import DocumentFormat, RecordFamily, RestoreRun
from sharedmem.redis.replies import Argument
from sharedmem.redis.scripts.knowledge import NOTE_FAMILY, note_keys

if TYPE_CHECKING:
    # Loading this module takes a while; a hub opens without it.
    from sharedmem.synthesis.note_serialization import RestoredNote

TAGS = ("ns", "app", "user", "session", "status")
NUMBERS = ("at",)
"""`at`: milliseconds since 1970 at which the note was made."""


def _parse(record: DurableRecord) -> RestoredNote:
    from sharedmem.synthesis.note_serialization import parse_note_document  # noqa: PLC0415  # see above

    return parse_note_document(record)


def _hash_fields(record: RestoredNote, namespace: str) -> Sequence[Argument]:  # noqa: ARG001  # is in the fields
    return ("version", record.version, *record.fields) if record.fields else ()


async def _restore(run: RestoreRun, records: Sequence[RestoredNote]) -> int | None:
    """Restore notes. One round trip for each app."""
    keyspace, namespace, restored = run.context.keyspace, run.namespace, 0
    for app, some in groupby(records, key=attrgetter("app")):
        ones = list(some)
        keys = [keyspace.record(NOTE_FAMILY, namespace, one.named) for one in ones]
        count = await run.scripts.note_restore(
            keyspace.kept(namespace),
            keys=[*keys, *note_keys(keyspace, namespace, app)],
            app=app,
            lease=run.lease,
            words=[word for one in ones for word in one.words],
        )
        if count is None:
            return None
        restored += count
    return restored


NOTE_RECORDS = RecordFamily(
    NOTE_FAMILY,
    TAGS,
    NUMBERS,
    documents=DocumentFormat(parse=_parse, hash_fields=_hash_fields, restore=_restore),
)
