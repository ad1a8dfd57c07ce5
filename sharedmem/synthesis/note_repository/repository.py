"""Read, search, commit and erase notes in Redis, and cache the answers of models."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from operator import not_
from typing import Any, NamedTuple, get_args

import numpy as np

from sharedmem.errors import DurabilityPendingError, InvalidError, SharedMemoryError
from sharedmem.index_maintenance import IndexPromoter
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.models import Note, NoteStatus
from sharedmem.redis.durability import LOG_MODE, DurabilityModes, UnsettledError
from sharedmem.redis.errors import public_key_error
from sharedmem.redis.keys import Target, escape_glob
from sharedmem.redis.replies import Command, Reply, ServerError
from sharedmem.redis.scope import Need, Scope
from sharedmem.redis.scripts.notes import NOTE_FAMILY, NoteScripts, NoteWrite, commit_arguments, note_keys
from sharedmem.redis.service_keys import corruption_error, decoding
from sharedmem.redis.vectors import Vector, check_vector, finite_half_or_none, from_half, normalize, to_half
from sharedmem.search.filters import Condition, Every, Tagged
from sharedmem.search.protocol import IndexQuery, IndexResult
from sharedmem.search.tags import encode_tag
from sharedmem.synthesis.note_repository.index import MissingTermsFiller
from sharedmem.synthesis.note_repository.serialization import (
    chain_id_of,
    check_key_part,
    check_user,
    decode_note,
    escape_app,
    hash_fields,
    prefixed_terms,
    record_name,
    unescape_app,
    word_share,
)
from sharedmem.synthesis.protocol import (
    LEAST_WORD_SHARE,
    CommittedNotes,
    NewNote,
    NoteChange,
    SimilarNote,
    StaleNotes,
    UserNotesVersion,
)

NOTES_COLLECTION = "notes"
"""What an actor needs rights to (`<namespace>:shared:notes`)."""


class NoteKeys:
    """What every part of the shelf stands on.

    Args:
        context: what the hub shares with its stores.
        scope: hands out keys within the actor's rights.
    """

    def __init__(self, context: KnowledgeContext, scope: Scope) -> None:
        self._context = context
        self._scope = scope
        self._namespace = scope.identity.namespace
        self._actor = scope.signature
        self._client = context.client
        self._keyspace = context.keyspace
        self._space = context.keyspace.space(self._namespace)
        self._noting = NoteScripts(context.executor)
        self._records = context.keyspace.records(NOTE_FAMILY, self._namespace).encode()

    async def _enter(self, need: Need) -> None:
        """Refuse who may not; then Redis has all notes: where it was lost they come back from the durable tier first.

        Raises:
            AccessDeniedError: this actor may not read or write the namespace's notes.
            UnavailableError: they are not all in Redis, and the tier cannot be asked.
        """
        self._scope.common(NOTES_COLLECTION, need)
        if self._context.memory_tier is not None:
            await self._context.memory_tier.gather(self._namespace)

    def _record(self, app_id: str, id_: str) -> bytes:
        return self._records + record_name(app_id, id_).encode()

    def _beside(self, app_id: str) -> list[bytes]:
        return note_keys(self._keyspace, self._namespace, escape_app(app_id))

    @property
    def _apps(self) -> bytes:
        return self._keyspace.record_part(NOTE_FAMILY, self._namespace, "apps")

    def _ids(self, app_id: str) -> bytes:
        return self._keyspace.record_item(NOTE_FAMILY, self._namespace, "ids", escape_app(app_id))

    def _target(self, app_id: str, id_: str) -> Target:
        return self._keyspace.target(f"{self._namespace}:${NOTE_FAMILY}:{record_name(app_id, id_)}")

    def _keep(self, app_id: str, ids: Sequence[str]) -> DurabilityModes | None:
        """How notes last, where they do: as logs, which never leave Redis by themselves."""
        if self._context.memory_tier is None or not ids:
            return None
        return DurabilityModes(tuple(self._target(app_id, id_) for id_ in ids), LOG_MODE * len(ids))

    def _explained(self, error: ServerError, app_id: str) -> SharedMemoryError:
        key = f"{self._namespace}:${NOTE_FAMILY}:{escape_app(app_id)}"
        return public_key_error(error, self._client.address, key=key, held="foreign value", wanted=NOTE_FAMILY)


def check_ids(ids: Sequence[str]) -> list[str]:
    """Ids of notes, each once.

    Raises:
        InvalidError: one of them can be none.
    """
    return list(dict.fromkeys(check_key_part("id", id_) for id_ in ids))


MOST_IN_A_PAGE = 1000
_MOST_SCANNED_APPS = 60
"""Notes whose texts are small enough to come by the way that all others take: the candidates of a usual query, thirty
by meaning and thirty by words."""
_STATUSES: tuple[str, ...] = get_args(NoteStatus)


class NoteReader(NoteKeys):
    """Finds notes. Where a durable tier stands behind, and nothing is found, it looks whether Redis was emptied."""

    async def get(self, app_id: str, ids: Sequence[str]) -> dict[str, Note]:
        """See `Shelf.get`.

        Raises:
            InvalidError: an app or id can be none.
            AccessDeniedError: this actor may not read the namespace's notes.
            InternalError: another client has written there.
            UnavailableError: the server cannot be reached.
        """
        check_key_part("app_id", app_id)
        wanted = check_ids(ids)
        await self._enter("read")
        return await self._surely_taken(app_id, wanted) if wanted else {}

    async def near(
        self,
        app_id: str,
        vector: Vector | None,
        *,
        terms: tuple[str, ...] = (),
        user_id: str | None = None,
        session_id: str | None = None,
        statuses: Sequence[NoteStatus] = ("active",),
        k: int = 30,
    ) -> tuple[list[SimilarNote], UserNotesVersion]:
        """See `Shelf.near`. Without a user, what was seen guards nothing: commits are guarded user by user.

        Raises:
            InvalidError: an app, user, session or status can be none; a vector of another dimension; `k` below one.
            AccessDeniedError, UnavailableError: as `get`.
        """
        check_key_part("app_id", app_id)
        filters = _filters(app_id, user_id, session_id, statuses)
        await self._enter("read")
        if terms:
            # Notes of an earlier release lack their words.
            MissingTermsFiller.of(self._context, self._namespace).wake()
        query = IndexQuery(terms=terms, vector=vector, filters=filters, candidates=k)
        search = partial(self._context.notes.search, self._namespace, query)
        found = await self._context.retry_after_restore(self._namespace, search, _is_empty_result)
        hits = await self._fetched(app_id, found, terms, vector)
        # Since the search some may have changed: what would not be found now is left out. What the search has surely
        # seen is the newest change in the log before it began.
        return [hit for hit in hits if hit.note.status in statuses], UserNotesVersion(
            app_id, user_id or "", found.version
        )

    async def _fetched(
        self, app_id: str, found: IndexResult, terms: Sequence[str], vector: Vector | None
    ) -> list[SimilarNote]:
        """What a search has found and is still there, but for what holds too few of the words and was found by no more.

        One round trip; none where nothing was found.
        """
        start = len(record_name(app_id, ""))
        scores = {hit.id[start:]: hit.score for hit in found.vector}
        worded = {hit.id[start:]: None for hit in found.text}
        fields: dict[str, tuple[str, ...]] = {id_: ("terms",) if id_ in worded else () for id_ in scores}
        fields |= {id_: ("terms", "vector") for id_ in worded if id_ not in scores}
        if not fields:
            return []
        looks: list[Command] = [(*self._look(app_id, id_), *more) for id_, more in fields.items()]
        replies = await self._client.read_each(looks, aside=len(looks) > _MOST_SCANNED_APPS)
        wanted = prefixed_terms(terms, self._namespace)
        hits = []
        for id_, reply in zip(fields, replies, strict=True):
            body, version, held, half = [*reply, None, None][:4] if isinstance(reply, list) else [None] * 4
            share = word_share(wanted, held)
            if id_ not in scores and share < LEAST_WORD_SHARE:
                continue  # most of what holds any of the words: it is not decoded
            note = _decode_reply(self._record(app_id, id_), [body, version])
            if note is not None:
                score = scores[id_] if id_ in scores else self._similarity(half, vector)
                hits.append(SimilarNote(note, min(max(score, 0.0), 1.0), share))
        return hits

    def _similarity(self, packed: Reply, vector: Vector | None) -> float:
        half = finite_half_or_none(packed, self._context.notes.family.dimension)
        if half is None or vector is None:
            return 0.0
        return float(np.dot(normalize(from_half(half)), normalize(vector)))

    def _look(self, app_id: str, id_: str) -> Command:
        return ("HMGET", self._record(app_id, id_), "body", "version")

    async def page(self, app_id: str, *, after: str = "", limit: int = 500) -> list[Note]:
        """See `Shelf.page`; it is empty only behind the last one.

        Raises:
            InvalidError: an app can be none, or the limit is not 1 to `MOST_IN_A_PAGE`.
            AccessDeniedError, InternalError, UnavailableError: as `get`.
        """
        check_key_part("app_id", app_id)
        if not 1 <= limit <= MOST_IN_A_PAGE:
            raise InvalidError("limit", limit, f"ask for 1 to {MOST_IN_A_PAGE}")
        await self._enter("read")
        ids = await self._context.retry_after_restore(
            self._namespace, partial(self._listed, app_id, after, limit), not_
        )
        # All of a page may be erased before it is fetched: behind it there may be more.
        while ids and not (notes := await self._taken(app_id, ids)):
            ids = await self._listed(app_id, ids[-1], limit)
        return list(notes.values()) if ids else []

    async def apps(self) -> list[str]:
        """See `Shelf.apps`.

        Raises:
            AccessDeniedError, UnavailableError: as `get`.
        """
        await self._enter("read")
        return await self._context.retry_after_restore(self._namespace, self._known_apps, not_)

    async def _known_apps(self) -> list[str]:
        found = await self._client.call("SMEMBERS", self._apps)
        members = found if isinstance(found, list | set) else ()
        return sorted(unescape_app(member.decode()) for member in members if isinstance(member, bytes))

    async def _listed(self, app_id: str, after: str, limit: int) -> list[str]:
        begin = f"({after}" if after else "-"
        try:
            found = await self._client.call("ZRANGEBYLEX", self._ids(app_id), begin, "+", "LIMIT", 0, limit)
        except ServerError as error:
            raise self._explained(error, app_id) from error
        with decoding(self._ids(app_id)):
            return [id_.decode() for id_ in found if isinstance(id_, bytes)] if isinstance(found, list) else []

    async def _surely_taken(self, app_id: str, ids: Sequence[str]) -> dict[str, Note]:
        return await self._context.retry_after_restore(self._namespace, partial(self._taken, app_id, ids), not_)

    async def _taken(self, app_id: str, ids: Sequence[str]) -> dict[str, Note]:
        """Those that are there, in the order of their ids. One round trip."""
        replies = await self._client.read_each(
            [self._look(app_id, id_) for id_ in ids], aside=len(ids) > _MOST_SCANNED_APPS
        )
        taken = (
            (id_, _decode_reply(self._record(app_id, id_), reply)) for id_, reply in zip(ids, replies, strict=True)
        )
        return {id_: note for id_, note in taken if note is not None}


def _is_empty_result(found: IndexResult) -> bool:
    return not found.vector and not found.text


def _decode_reply(key: bytes, reply: Reply) -> Note | None:
    body, version = reply if isinstance(reply, list) else (None, None)
    if body is None and version is None:
        return None
    if not isinstance(body, bytes) or not isinstance(version, bytes) or not version.isdigit():
        raise corruption_error(key, "it lacks a body or a version")
    with decoding(key):
        return decode_note(body, int(version))


def _filters(app_id: str, user_id: str | None, session_id: str | None, statuses: Sequence[NoteStatus]) -> Every:
    unknown = [status for status in statuses if status not in _STATUSES]
    if unknown or not statuses:
        raise InvalidError("statuses", unknown or statuses, f"give some of {', '.join(_STATUSES)}")
    conditions: list[Condition] = [Tagged("app", (app_id,)), Tagged("status", tuple(statuses))]
    if user_id is not None:
        conditions.append(Tagged("user", (check_user("user_id", user_id),)))
    if session_id is not None:
        conditions.append(Tagged("session", (check_user("session_id", session_id),)))
    return Every(tuple(conditions))


_COPIED_FIELDS = ("status", "next_id", "chain_id", "archived_at", "archival_location")
_COPIED_LISTS = ("sources", "links", "resolutions", "degraded")


def apply_change(change: NoteChange, now: datetime) -> Note:
    """The note as it is to be stored; whatever changes, its `updated_at` is now.

    Raises:
        InvalidError: it contradicts itself, or the body is that of another note.
    """
    _check_change(change)
    fields: dict[str, Any] = {name: value for name in _COPIED_FIELDS if (value := getattr(change, name)) is not None}
    fields |= {name: tuple(rows) for name in _COPIED_LISTS if (rows := getattr(change, name)) is not None}
    if change.reason is not None:
        fields["status_reason"] = change.reason
    if change.clears_next:
        fields["next_id"] = None
    if change.drops_body:
        fields |= {"memory_note": "", "messages": ()}
    if change.body is not None:
        fields |= {"memory_note": change.body.memory_note, "messages": change.body.messages}
        fields |= {"archived_at": None, "archival_location": None}
        # It lies here again, and in the archive no more.
        fields |= {"archived_at": None, "archival_location": None}
    return change.note.model_copy(update={**fields, "updated_at": now})


def change_event_kind(change: NoteChange) -> str:
    """What is told of a change on the change stream: the status that it gets, if another one."""
    if change.status is None or change.status == change.note.status:
        return "note.changed"
    return f"note.{change.status}"


def _check_change(change: NoteChange) -> None:
    id_ = change.note.id
    if change.note.version < 1:
        raise InvalidError("changes", id_, "change notes that were read; this one has no version")
    if change.clears_next and change.next_id is not None:
        raise InvalidError("changes", id_, "either it gets a successor, or it loses it")
    if change.drops_body and (change.body is not None or change.vector is not None):
        raise InvalidError("changes", id_, "either its text goes, or it comes back")
    if change.body is not None and change.archival_location is not None:
        raise InvalidError("changes", id_, "either its text comes back, or it lies elsewhere")
    if change.body is not None and change.body.id != id_:
        raise InvalidError("changes", id_, f"its text is that of {change.body.id!r}")


MOST_AT_ONCE = 500
"""Notes that one commit writes: it holds up everybody for that long."""
_REPEAT = "repeat"


class _PendingWrite(NamedTuple):
    note: Note
    expect: int
    told: str
    vector: bytes
    """That it gets; empty where it keeps what it has."""
    drops: bool = False


class NoteWriter(NoteReader):
    """Adds, changes and erases notes."""

    async def commit(
        self,
        app_id: str,
        *,
        fresh: Sequence[NewNote] = (),
        changes: Sequence[NoteChange] = (),
        seen: UserNotesVersion | None = None,
        fences: Mapping[str, int] | None = None,
    ) -> CommittedNotes | StaleNotes:
        """See `Shelf.commit`. One round trip; one more of a repeat, and for notes that change where a tier takes them.

        Raises:
            InvalidError: over `MOST_AT_ONCE` notes, one twice, one of another app, or a vector of another dimension.
            AccessDeniedError: this actor may not write the namespace's notes.
            DurabilityPendingError: it is written, but the durable tier, which is waited for, does not have it.
            UnavailableError: the server cannot be reached.
        """
        check_key_part("app_id", app_id)
        writes = [*map(self._fresh, fresh), *map(self._changed, changes)]
        _check_commit(app_id, writes, seen)
        await self._enter("write")
        if not writes:
            return CommittedNotes({}, is_new=True)
        ids = [write.note.id for write in writes]
        tokens = list((fences or {}).items())
        answer, *told = (await self._written(app_id, writes, seen, tokens)).split()
        if answer == _REPEAT:
            return CommittedNotes(await self.get(app_id, ids), is_new=False)
        if answer == "behind":
            named = (*ids, *(chain for chain, _ in tokens))
            return StaleNotes(tuple(dict.fromkeys(named[int(place) - 1] for place in told)))
        IndexPromoter.of(self._context, self._context.notes, self._namespace).count_writes(len(fresh))
        version = int(told[0])
        notes = (write.note.model_copy(update={"version": version + at}) for at, write in enumerate(writes))
        return CommittedNotes({note.id: note for note in notes}, is_new=True)

    def _fresh(self, fresh: NewNote) -> _PendingWrite:
        check_key_part("id", fresh.note.id)
        check_user("user_id", fresh.note.user_id)
        if fresh.note.session_id is not None:
            check_user("session_id", fresh.note.session_id)
        return _PendingWrite(fresh.note, 0, "note.created", self._half(fresh.vector))

    def _changed(self, change: NoteChange) -> _PendingWrite:
        note = apply_change(change, self._context.clock.now())
        return _PendingWrite(
            note, note.version, change_event_kind(change), self._half(change.vector), change.drops_body
        )

    def _half(self, vector: Vector | None) -> bytes:
        if vector is None:
            return b""
        checked = check_vector("vector", vector, self._context.notes.family.dimension)
        # Nothing is near to a vector of zeros: it is none.
        return to_half(checked) if checked.any() else b""

    async def _written(
        self,
        app_id: str,
        writes: Sequence[_PendingWrite],
        seen: UserNotesVersion | None,
        fences: Sequence[tuple[str, int]],
    ) -> str:
        kept = await self._vectors_kept(app_id, writes)
        ids = [write.note.id for write in writes]
        try:
            return await self._noting.note_commit(
                self._space,
                self._actor,
                keys=[*(self._record(app_id, id_) for id_ in ids), *self._beside(app_id)],
                app=escape_app(app_id),
                reader=encode_tag(seen.user_id) if seen is not None and seen.user_id else "",
                seen=seen.version if seen is not None else 0,
                words=commit_arguments(fences, [self._terms(write, kept.get(write.note.id, b"")) for write in writes]),
                keep=self._keep(app_id, ids),
            )
        except ServerError as error:
            raise self._explained(error, app_id) from error
        except UnsettledError as error:
            version = int(error.reply.rpartition(b" ")[2])
            raise DurabilityPendingError(self._target(app_id, ids[0]).key, version, str(error.cause)) from error.cause

    def _terms(self, write: _PendingWrite, kept: bytes) -> NoteWrite:
        note, vector = write.note, write.vector or kept
        return NoteWrite(
            expect=write.expect,
            task=note.task_id or "",
            user=encode_tag(note.user_id),
            status=note.status,
            chain=chain_id_of(note),
            told=write.told,
            vector=b64encode(vector) if self._context.memory_tier is not None else b"",
            drops=int(write.drops),
            fields=(*hash_fields(note, self._namespace), *(("vector", write.vector) if write.vector else ())),
        )

    async def _vectors_kept(self, app_id: str, writes: Sequence[_PendingWrite]) -> dict[str, bytes]:
        """Those that notes keep, which only the durable tier wants: it takes a note whole. One round trip."""
        keeping = [write.note.id for write in writes if write.expect and not (write.vector or write.drops)]
        if self._context.memory_tier is None or not keeping:
            return {}
        looks: list[Command] = [("HGET", self._record(app_id, id_), "vector") for id_ in keeping]
        found = zip(keeping, await self._client.read_each(looks), strict=True)
        return {id_: vector for id_, vector in found if isinstance(vector, bytes)}

    async def erase(self, app_id: str, ids: Sequence[str]) -> int:
        """See `Shelf.erase`. One round trip for every `MOST_AT_ONCE`.

        Raises:
            InvalidError: an id can be none.
            AccessDeniedError: this actor may not write the namespace's notes.
            DurabilityPendingError: they are gone here, but the durable tier, which is waited for, has them still.
            UnavailableError: the server cannot be reached.
        """
        check_key_part("app_id", app_id)
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
                self._space, self._actor, keys=keys, app=escape_app(app_id), keep=self._keep(app_id, ids)
            )
        except ServerError as error:
            raise self._explained(error, app_id) from error
        except UnsettledError as error:
            raise DurabilityPendingError(self._target(app_id, ids[0]).key, 0, str(error.cause)) from error.cause


def _check_commit(app_id: str, writes: Sequence[_PendingWrite], seen: UserNotesVersion | None) -> None:
    if len(writes) > MOST_AT_ONCE:
        raise InvalidError("notes", f"{len(writes)} of them", f"commit at most {MOST_AT_ONCE} at once")
    ids = [write.note.id for write in writes]
    if len(set(ids)) < len(ids):
        raise InvalidError("notes", sorted({id_ for id_ in ids if ids.count(id_) > 1}), "commit each of them once")
    strangers = sorted({write.note.app_id for write in writes} - {app_id})
    if strangers or (seen is not None and seen.app_id != app_id):
        raise InvalidError("app_id", app_id, f"what belongs to {strangers or seen} is committed there")


class RedisNoteRepository(NoteWriter):
    """A `Shelf` over hashes that are searched, and the scripts `lua/note_*.lua`."""

    async def remembered(self, app_id: str, digests: Sequence[str]) -> dict[str, bytes]:
        """See `Shelf.remembered`.

        Raises:
            InvalidError: an app or digest can be none.
            AccessDeniedError: this actor may not read the namespace's notes.
            UnavailableError: the server cannot be reached.
        """
        keys = [self._answer(app_id, digest) for digest in digests]
        await self._enter("read")
        found = await self._client.call("MGET", *keys) if keys else []
        answers = found if isinstance(found, list) else []
        return {digest: one for digest, one in zip(digests, answers, strict=True) if isinstance(one, bytes)}

    async def remember(self, app_id: str, answers: Mapping[str, bytes], *, ttl_s: int) -> None:
        """See `Shelf.remember`.

        Raises:
            InvalidError: an app or digest can be none, or the time is below a second.
            AccessDeniedError: this actor may not write the namespace's notes.
            UnavailableError: the server cannot be reached.
        """
        if ttl_s < 1:
            raise InvalidError("ttl_s", ttl_s, "keep answers for a second at least")
        kept = [(self._answer(app_id, digest), answer) for digest, answer in answers.items()]
        await self._enter("write")
        await asyncio.gather(*(self._client.call("SET", key, answer, "EX", ttl_s) for key, answer in kept))

    async def clear_answers(self, app_id: str) -> int:
        """See `Shelf.disremember`.

        Raises:
            InvalidError: an app can be none.
            AccessDeniedError: this actor may not write the namespace's notes.
            UnavailableError: the server cannot be reached.
        """
        named = escape_glob(f"$note.answer:{escape_app(check_key_part('app_id', app_id))}/")
        await self._enter("write")
        gone = 0
        async for page in self._client.scan(
            self._keyspace.pattern(self._namespace, f"{named}*"), near=self._space.clock
        ):
            unlinked = await self._client.call_aside("UNLINK", *page) if page else 0
            gone += unlinked if isinstance(unlinked, int) else 0
        return gone

    def _answer(self, app_id: str, digest: str) -> bytes:
        named = f"{escape_app(check_key_part('app_id', app_id))}/{check_key_part('digest', digest)}"
        return self._keyspace.record_item(NOTE_FAMILY, self._namespace, "answer", named)

    def __repr__(self) -> str:
        return f"<NoteShelf of {self._namespace}>"
