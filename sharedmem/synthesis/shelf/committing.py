"""Writing notes, all of what belongs together or nothing, unless what they rely on has changed."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sharedmem.errors import DurabilityPendingError, InvalidError
from sharedmem.knowledge.growing import Growth
from sharedmem.models import Note
from sharedmem.search.tags import spelled
from sharedmem.synthesis.protocol import Behind, Change, Committed, Fresh, Seen
from sharedmem.synthesis.shelf.changing import changed, told_of
from sharedmem.synthesis.shelf.ground import check_ids
from sharedmem.synthesis.shelf.reading import Reading
from sharedmem.synthesis.shelf.rows import chain_of, check_name, check_person, fields, spelled_app
from sharedmem.wire.noting import NoteWrite, commit_words
from sharedmem.wire.replies import Command, ServerError
from sharedmem.wire.tier import UnsettledError
from sharedmem.wire.vectors import Vector, check_vector, to_half

MOST_AT_ONCE = 500
"""Notes that one commit writes: it holds up everybody for that long."""
_REPEAT = "repeat"


class _Write(NamedTuple):
    note: Note
    expect: int
    told: str
    vector: bytes
    """That it gets; empty where it keeps what it has."""
    drops: bool = False


class Committing(Reading):
    """Adds, changes and erases notes."""

    async def commit(
        self,
        app_id: str,
        *,
        fresh: Sequence[Fresh] = (),
        changes: Sequence[Change] = (),
        seen: Seen | None = None,
        fences: Mapping[str, int] | None = None,
    ) -> Committed | Behind:
        """See `Shelf.commit`. One round trip; one more of a repeat, and for notes that change where a tier takes them.

        Raises:
            InvalidError: over `MOST_AT_ONCE` notes, one twice, one of another app, or a vector of another dimension.
            AccessDeniedError: this actor may not write the namespace's notes.
            DurabilityPendingError: it is written, but the durable tier, which is waited for, does not have it.
            UnavailableError: the server cannot be reached.
        """
        check_name("app_id", app_id)
        writes = [*map(self._fresh, fresh), *map(self._changed, changes)]
        _check_together(app_id, writes, seen)
        await self._enter("write")
        if not writes:
            return Committed({}, is_new=True)
        ids = [write.note.id for write in writes]
        tokens = list((fences or {}).items())
        answer, *told = (await self._written(app_id, writes, seen, tokens)).split()
        if answer == _REPEAT:
            return Committed(await self.get(app_id, ids), is_new=False)
        if answer == "behind":
            named = (*ids, *(chain for chain, _ in tokens))
            return Behind(tuple(dict.fromkeys(named[int(place) - 1] for place in told)))
        Growth.of(self._minds, self._minds.notes, self._namespace).grew(len(fresh))
        version = int(told[0])
        notes = (write.note.model_copy(update={"version": version + at}) for at, write in enumerate(writes))
        return Committed({note.id: note for note in notes}, is_new=True)

    def _fresh(self, fresh: Fresh) -> _Write:
        check_name("id", fresh.note.id)
        check_person("user_id", fresh.note.user_id)
        if fresh.note.session_id is not None:
            check_person("session_id", fresh.note.session_id)
        return _Write(fresh.note, 0, "note.created", self._half(fresh.vector))

    def _changed(self, change: Change) -> _Write:
        note = changed(change, self._minds.clock.now())
        return _Write(note, note.version, told_of(change), self._half(change.vector), change.drops_body)

    def _half(self, vector: Vector | None) -> bytes:
        if vector is None:
            return b""
        checked = check_vector("vector", vector, self._minds.notes.family.dimension)
        # Nothing is near to a vector of zeros: it is none.
        return to_half(checked) if checked.any() else b""

    async def _written(
        self, app_id: str, writes: Sequence[_Write], seen: Seen | None, fences: Sequence[tuple[str, int]]
    ) -> str:
        kept = await self._vectors_kept(app_id, writes)
        ids = [write.note.id for write in writes]
        try:
            return await self._noting.note_commit(
                self._space,
                self._actor,
                keys=[*(self._record(app_id, id_) for id_ in ids), *self._beside(app_id)],
                app=spelled_app(app_id),
                reader=spelled(seen.user_id) if seen is not None and seen.user_id else "",
                seen=seen.version if seen is not None else 0,
                words=commit_words(fences, [self._terms(write, kept.get(write.note.id, b"")) for write in writes]),
                keep=self._keep(app_id, ids),
            )
        except ServerError as error:
            raise self._explained(error, app_id) from error
        except UnsettledError as error:
            version = int(error.reply.rpartition(b" ")[2])
            raise DurabilityPendingError(self._target(app_id, ids[0]).key, version, str(error.cause)) from error.cause

    def _terms(self, write: _Write, kept: bytes) -> NoteWrite:
        note, vector = write.note, write.vector or kept
        return NoteWrite(
            expect=write.expect,
            task=note.task_id or "",
            user=spelled(note.user_id),
            status=note.status,
            chain=chain_of(note),
            told=write.told,
            vector=b64encode(vector) if self._minds.tier is not None else b"",
            drops=int(write.drops),
            fields=(*fields(note, self._namespace), *(("vector", write.vector) if write.vector else ())),
        )

    async def _vectors_kept(self, app_id: str, writes: Sequence[_Write]) -> dict[str, bytes]:
        """Those that notes keep, which only the durable tier wants: it takes a note whole. One round trip."""
        keeping = [write.note.id for write in writes if write.expect and not (write.vector or write.drops)]
        if self._minds.tier is None or not keeping:
            return {}
        looks: list[Command] = [("HGET", self._record(app_id, id_), "vector") for id_ in keeping]
        found = zip(keeping, await self._line.read_each(looks), strict=True)
        return {id_: vector for id_, vector in found if isinstance(vector, bytes)}

    async def erase(self, app_id: str, ids: Sequence[str]) -> int:
        """See `Shelf.erase`. One round trip for every `MOST_AT_ONCE`.

        Raises:
            InvalidError: an id can be none.
            AccessDeniedError: this actor may not write the namespace's notes.
            DurabilityPendingError: they are gone here, but the durable tier, which is waited for, has them still.
            UnavailableError: the server cannot be reached.
        """
        check_name("app_id", app_id)
        wanted = check_ids(ids)
        await self._enter("write")
        erased = 0
        for first in range(0, len(wanted), MOST_AT_ONCE):
            erased += await self._erased(app_id, wanted[first : first + MOST_AT_ONCE])
        return erased

    async def _erased(self, app_id: str, ids: Sequence[str]) -> int:
        keys = [*(self._record(app_id, id_) for id_ in ids), *self._beside(app_id)]
        try:
            return await self._noting.note_erase(
                self._space, self._actor, keys=keys, app=spelled_app(app_id), keep=self._keep(app_id, ids)
            )
        except ServerError as error:
            raise self._explained(error, app_id) from error
        except UnsettledError as error:
            raise DurabilityPendingError(self._target(app_id, ids[0]).key, 0, str(error.cause)) from error.cause


def _check_together(app_id: str, writes: Sequence[_Write], seen: Seen | None) -> None:
    if len(writes) > MOST_AT_ONCE:
        raise InvalidError("notes", f"{len(writes)} of them", f"commit at most {MOST_AT_ONCE} at once")
    ids = [write.note.id for write in writes]
    if len(set(ids)) < len(ids):
        raise InvalidError("notes", sorted({id_ for id_ in ids if ids.count(id_) > 1}), "commit each of them once")
    strangers = sorted({write.note.app_id for write in writes} - {app_id})
    if strangers or (seen is not None and seen.app_id != app_id):
        raise InvalidError("app_id", app_id, f"what belongs to {strangers or seen} is committed there")
