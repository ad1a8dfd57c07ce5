"""How notes lie in Redis, made again of what the durable tier has of them.

For the tier a note is one key, `<namespace>:$note:<app>/<id>`, with one document: the JSON of the note with its vector,
from which all follows that lies beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from sharedmem.models import DurableRecord
from sharedmem.redis.durability import RedisPart
from sharedmem.redis.keys import KeySpace, Target
from sharedmem.redis.replies import Argument, Command
from sharedmem.redis.scripts.durable import RecordRestoreScripts, RestoreLease
from sharedmem.redis.scripts.notes import NOTE_FAMILY, note_keys

if TYPE_CHECKING:
    # Texts are taken apart by what takes a while to load; a hub opens without it.
    from sharedmem.synthesis.note_repository.serialization import RestoredNote


class NoteRestorer:
    """Knows how notes lie in Redis (`wire.tier.Imager`, `durable.gathering.RecordReader`).

    Args:
        keyspace: how keys are spelled.
    """

    def __init__(self, keyspace: KeySpace) -> None:
        self._keyspace = keyspace

    def presence(self, target: Target) -> bytes:
        """Its hash."""
        return self._keyspace.presence(target)

    def parts(self, target: Target, records: Sequence[DurableRecord]) -> list[RedisPart]:
        """The fields of its hash, but for the mark of the index in which it is found.

        Raises:
            ValueError, LookupError, TypeError: it cannot be read.
        """
        one = self.remembered(records[0])
        if not one.fields:
            return []
        rows: list[tuple[Argument, ...]] = [
            ("version", one.version),
            *zip(one.fields[::2], one.fields[1::2], strict=True),
        ]
        return [RedisPart(self.presence(target), "HSET", rows, has_more=True)]

    def besides(self, target: Target) -> list[Command]:  # noqa: ARG002  # the script does it all in one step
        """Nothing."""
        return []

    @property
    def scope(self) -> str:
        """Of the keys of notes."""
        return f"${NOTE_FAMILY}"

    def anew(self, namespace: str) -> list[bytes]:  # noqa: ARG002  # each note that comes back is counted by itself
        """Nothing."""
        return []

    def remembered(self, record: DurableRecord) -> RestoredNote:
        """What a document says.

        Raises:
            ValueError, LookupError, TypeError: it cannot be read.
        """
        from sharedmem.synthesis.note_repository.serialization import parse_note_document  # noqa: PLC0415  # see above

        return parse_note_document(record)

    async def restore(
        self, bringing: RecordRestoreScripts, turn: RestoreLease, namespace: str, records: Sequence[RestoredNote]
    ) -> int | None:
        """Bring some back; how many were missing, None when somebody has taken over. One round trip an app."""
        restored = 0
        for app, some in groupby(records, key=attrgetter("app")):
            ones = list(some)
            places = [self._keyspace.record(NOTE_FAMILY, namespace, one.named) for one in ones]
            count = await bringing.note_restore(
                self._keyspace.kept(namespace),
                keys=[*places, *note_keys(self._keyspace, namespace, app)],
                app=app,
                token=turn.token,
                lease_ms=turn.lease_ms,
                words=[word for one in ones for word in one.words],
            )
            if count is None:
                return None
            restored += count
        return restored
