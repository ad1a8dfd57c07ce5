"""Read, search, commit and erase notes in Redis, and cache the answers of models."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from operator import not_
from typing import Any, NamedTuple, get_args

from sharedmem.errors import DurabilityPendingError, InvalidError, SharedMemoryError
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.models import Note, NoteStatus
from sharedmem.redis.durability import LOG_MODE, DurabilityModes, UnsettledError
from sharedmem.redis.keys import Target, escape_glob
from sharedmem.redis.replies import Command, Reply, ServerError, public_key_error
from sharedmem.redis.scope import Need, Scope
from sharedmem.redis.scripts.knowledge import NOTE_FAMILY, NoteScripts, NoteWrite, commit_arguments, note_keys
from sharedmem.redis.service_keys import corruption_error, decoding
from sharedmem.redis.vectors import Vector, check_vector, stored_similarities, to_half
from sharedmem.runtime import get_logger
from sharedmem.search.protocol import Condition, Every, IndexQuery, IndexResult, Tagged
from sharedmem.synthesis.note_serialization import (
    MissingTermsFiller,
    chain_id_of,
    check_ids,
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
from sharedmem.text.analysis import encode_tag

NOTES_COLLECTION = "notes"
"""The key that an actor needs rights to (`<namespace>:shared:notes`)."""


class NoteKeys:
    """The keys of a namespace's notes, and the rights of an actor on them.

    Args:
        context: dependencies that the hub shares with its stores.
        scope: the namespace and the actor.
    """

    def __init__(self, context: KnowledgeContext, scope: Scope) -> None:
        self._scope = scope
        self.context = context
        self.client = context.client
        self.namespace = scope.identity.namespace
        self.actor = scope.signature
        self.space = context.keyspace.space(self.namespace)
        self.scripts = NoteScripts(context.executor)
        self._records = context.keyspace.records(NOTE_FAMILY, self.namespace).encode()

    async def enter(self, need: Need) -> None:
        """Check the actor's right; if Redis lost notes, restore them from the durable tier first.

        Raises:
            AccessDeniedError: this actor may not read or write the namespace's notes.
            UnavailableError: Redis lacks some of them, and the tier cannot be reached.
        """
        self._scope.common(NOTES_COLLECTION, need)
        await self.context.record_tier.gather(self.namespace)

    def record(self, app_id: str, id_: str) -> bytes:
        """Return the key of a note's hash."""
        return self._records + record_name(app_id, id_).encode()

    def script_keys(self, app_id: str, ids: Sequence[str]) -> list[bytes]:
        """Return the keys of a script: the hashes of these notes, then the keys of their app."""
        hashes = [self.record(app_id, id_) for id_ in ids]
        return hashes + note_keys(self.context.keyspace, self.namespace, escape_app(app_id))

    def app_set(self) -> bytes:
        """Return the key of the set of apps."""
        return self.context.keyspace.record_part(NOTE_FAMILY, self.namespace, "apps")

    def id_set(self, app_id: str) -> bytes:
        """Return the key of the sorted set of the ids of an app's notes."""
        return self.context.keyspace.record_item(NOTE_FAMILY, self.namespace, "ids", escape_app(app_id))

    def answer(self, app_id: str, digest: str) -> bytes:
        """Return the key of a cached answer of a model."""
        name = f"{escape_app(check_key_part('app_id', app_id))}/{check_key_part('digest', digest)}"
        return self.context.keyspace.record_item(NOTE_FAMILY, self.namespace, "answer", name)

    def answer_pattern(self, app_id: str) -> bytes:
        """Return the pattern that matches the keys of all cached answers of an app."""
        name = escape_glob(f"$note.answer:{escape_app(check_key_part('app_id', app_id))}/")
        return self.context.keyspace.pattern(self.namespace, f"{name}*")

    def target(self, app_id: str, id_: str) -> Target:
        """Return a note, as errors and the durable tier name it."""
        return self.context.keyspace.target(f"{self.namespace}:${NOTE_FAMILY}:{record_name(app_id, id_)}")

    def durability(self, app_id: str, ids: Sequence[str]) -> DurabilityModes | None:
        """Return the durability modes of these notes: logs, which stay in Redis; None without a durable tier."""
        if not self.context.record_tier.is_durable or not ids:
            return None
        return DurabilityModes(tuple(self.target(app_id, id_) for id_ in ids), LOG_MODE * len(ids))

    def explain(self, error: ServerError, app_id: str) -> SharedMemoryError:
        """Return the public error for an error of the server."""
        key = f"{self.namespace}:${NOTE_FAMILY}:{escape_app(app_id)}"
        return public_key_error(error, self.client.address, key=key, held="foreign value", wanted=NOTE_FAMILY)


MOST_IN_A_PAGE = 1000
_MOST_INLINE_READS = 90
"""Notes that are read on the shared connection, as they are small: thirty by meaning and sixty by words."""
_STATUSES: tuple[str, ...] = get_args(NoteStatus)


class NoteReader:
    """Reads and searches notes. With a durable tier, an empty result makes it check whether Redis lost its data.

    Args:
        keys: keys of the namespace, with the actor's rights.
    """

    def __init__(self, keys: NoteKeys) -> None:
        self._keys = keys

    async def get(self, app_id: str, ids: Sequence[str]) -> dict[str, Note]:
        """Return the notes that exist, by id."""
        check_key_part("app_id", app_id)
        wanted = check_ids(ids)
        await self._keys.enter("read")
        if not wanted:
            return {}
        read = partial(self._read_notes, app_id, wanted)
        return await self._keys.context.record_tier.retry_after_restore(self._keys.namespace, read, not_)

    async def near(
        self,
        app_id: str,
        vector: Vector | None,
        *,
        terms: tuple[str, ...] = (),
        related: tuple[str, ...] = (),
        user_id: str | None = None,
        session_id: str | None = None,
        statuses: Sequence[NoteStatus] = ("active",),
        k: int = 30,
        least_similarity: float = -1.0,
    ) -> tuple[list[SimilarNote], UserNotesVersion]:
        """Return the most similar notes, best first, and the version of the user's notes before the search."""
        check_key_part("app_id", app_id)
        filters = _filters(app_id, user_id, session_id, statuses)
        await self._keys.enter("read")
        if terms:
            # Notes of an earlier release lack their terms.
            MissingTermsFiller.of(self._keys.context, self._keys.namespace).wake()
        searched = tuple(dict.fromkeys((*terms, *related)))
        query = IndexQuery(terms=searched, vector=vector, filters=filters, candidates=2 * k if related else k)
        search = partial(self._keys.context.notes.search, self._keys.namespace, query)
        found = await self._keys.context.record_tier.retry_after_restore(self._keys.namespace, search, _is_empty_result)
        found = found._replace(vector=[hit for hit in found.vector[:k] if hit.score >= least_similarity])
        hits = await self._read_hits(app_id, found, terms, related, vector)
        # Notes may have changed since the search: a note with another status now is left out. The version is that of
        # the newest change in the log before the search began.
        version = UserNotesVersion(app_id, user_id or "", found.version)
        return [hit for hit in hits if hit.note.status in statuses], version

    async def _read_hits(
        self, app_id: str, found: IndexResult, terms: Sequence[str], related: Sequence[str], vector: Vector | None
    ) -> list[SimilarNote]:
        """Read the hits of a search that still exist. One round trip; none without hits.

        A hit of the text search alone must contain `LEAST_WORD_SHARE` of the words, or a related one.
        """
        start = len(record_name(app_id, ""))
        scores = {hit.id[start:]: hit.score for hit in found.vector}
        worded = {hit.id[start:]: None for hit in found.text}
        fields: dict[str, tuple[str, ...]] = {id_: ("terms",) if id_ in worded else () for id_ in scores}
        fields |= {id_: ("terms", "vector") for id_ in worded if id_ not in scores}
        if not fields:
            return []
        reads: list[Command] = [(*self._read_command(app_id, id_), *more) for id_, more in fields.items()]
        replies = await self._keys.client.read_each(reads, aside=len(reads) > _MOST_INLINE_READS)
        wanted = prefixed_terms(terms, self._keys.namespace)
        others = prefixed_terms(related, self._keys.namespace)
        kept: list[tuple[str, Note, float]] = []
        halves: dict[str, Reply] = {}
        for id_, reply in zip(fields, replies, strict=True):
            body, version, held, half = [*reply, None, None][:4] if isinstance(reply, list) else [None] * 4
            share = word_share(wanted, held)
            if id_ not in scores and share < LEAST_WORD_SHARE and not word_share(others, held):
                continue  # true for most hits of the text search: they are not decoded
            note = _decode_reply(self._keys.record(app_id, id_), [body, version])
            if note is not None:
                kept.append((id_, note, share))
                if id_ not in scores:
                    halves[id_] = half
        if vector is not None and halves:
            scores |= zip(halves, stored_similarities(halves.values(), vector), strict=True)
        return [SimilarNote(note, min(max(scores.get(id_, 0.0), 0.0), 1.0), share) for id_, note, share in kept]

    def _read_command(self, app_id: str, id_: str) -> Command:
        return ("HMGET", self._keys.record(app_id, id_), "body", "version")

    async def page(self, app_id: str, *, after: str = "", limit: int = 500) -> list[Note]:
        """Return the notes that follow an id, in the order of their ids."""
        check_key_part("app_id", app_id)
        if not 1 <= limit <= MOST_IN_A_PAGE:
            raise InvalidError("limit", limit, f"give a number from 1 to {MOST_IN_A_PAGE}")
        await self._keys.enter("read")
        ids = await self._keys.context.record_tier.retry_after_restore(
            self._keys.namespace, partial(self._list_ids, app_id, after, limit), not_
        )
        # All notes of a page may be erased before they are fetched: there may be more after it.
        while ids and not (notes := await self._read_notes(app_id, ids)):
            ids = await self._list_ids(app_id, ids[-1], limit)
        return list(notes.values()) if ids else []

    async def apps(self) -> list[str]:
        """Return the apps that have notes, sorted."""
        await self._keys.enter("read")
        return await self._keys.context.record_tier.retry_after_restore(self._keys.namespace, self._list_apps, not_)

    async def _list_apps(self) -> list[str]:
        found = await self._keys.client.call("SMEMBERS", self._keys.app_set())
        members = found if isinstance(found, list | set) else ()
        return sorted(unescape_app(member.decode()) for member in members if isinstance(member, bytes))

    async def _list_ids(self, app_id: str, after: str, limit: int) -> list[str]:
        begin = f"({after}" if after else "-"
        try:
            found = await self._keys.client.call(
                "ZRANGEBYLEX", self._keys.id_set(app_id), begin, "+", "LIMIT", 0, limit
            )
        except ServerError as error:
            raise self._keys.explain(error, app_id) from error
        with decoding(self._keys.id_set(app_id)):
            return [id_.decode() for id_ in found if isinstance(id_, bytes)] if isinstance(found, list) else []

    async def _read_notes(self, app_id: str, ids: Sequence[str]) -> dict[str, Note]:
        """Read the notes that exist, in the order of their ids. One round trip."""
        replies = await self._keys.client.read_each(
            [self._read_command(app_id, id_) for id_ in ids], aside=len(ids) > _MOST_INLINE_READS
        )
        taken = (
            (id_, _decode_reply(self._keys.record(app_id, id_), reply)) for id_, reply in zip(ids, replies, strict=True)
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
    """Return the note as the commit stores it; its `updated_at` is now.

    Raises:
        InvalidError: the change contradicts itself, or the body is that of another note.
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
        # Its text is in Redis again, and no longer in the archive.
        fields |= {"archived_at": None, "archival_location": None}
    return change.note.model_copy(update={**fields, "updated_at": now})


def change_event_kind(change: NoteChange) -> str:
    """Return the kind of the entry on the change feed: the new status, if the status changes."""
    if change.status is None or change.status == change.note.status:
        return "note.changed"
    return f"note.{change.status}"


def _check_change(change: NoteChange) -> None:
    id_ = change.note.id
    if change.note.version < 1:
        raise InvalidError("changes", id_, "change notes that were read; this one has no version")
    if change.clears_next and change.next_id is not None:
        raise InvalidError("changes", id_, "set a successor or remove it, not both")
    if change.drops_body and (change.body is not None or change.vector is not None):
        raise InvalidError("changes", id_, "remove its text or restore it, not both")
    if change.body is not None and change.archival_location is not None:
        raise InvalidError("changes", id_, "restore its text or set its location, not both")
    if change.body is not None and change.body.id != id_:
        raise InvalidError("changes", id_, f"its text is that of {change.body.id!r}")


MOST_AT_ONCE = 500
"""Notes that one commit writes: the server serves no other client for that long."""
_REPEAT = "repeat"
_logger = get_logger("synthesis")


class _PendingWrite(NamedTuple):
    note: Note
    expect: int
    event: str
    vector: bytes
    """The new vector; empty to keep the stored one."""
    drops: bool = False


class NoteWriter:
    """Adds, changes and erases notes.

    Args:
        keys: keys of the namespace, with the actor's rights.
        reader: reads the stored notes if a commit turns out to be a repeat.
    """

    def __init__(self, keys: NoteKeys, reader: NoteReader) -> None:
        self._keys = keys
        self._reader = reader

    async def commit(
        self,
        app_id: str,
        *,
        fresh: Sequence[NewNote] = (),
        changes: Sequence[NoteChange] = (),
        seen: UserNotesVersion | None = None,
        fences: Mapping[str, int] | None = None,
    ) -> CommittedNotes | StaleNotes:
        """Store everything in one atomic step, or nothing."""
        check_key_part("app_id", app_id)
        writes = [*map(self._write_of_new, fresh), *map(self._write_of_change, changes)]
        _check_commit(app_id, writes, seen)
        await self._keys.enter("write")
        if not writes:
            return CommittedNotes({}, is_new=True)
        ids = [write.note.id for write in writes]
        tokens = list((fences or {}).items())
        answer, *details = (await self._run_commit(app_id, writes, seen, tokens)).split()
        if answer == _REPEAT:
            return CommittedNotes(await self._reader.get(app_id, ids), is_new=False)
        if answer == "behind":
            named = (*ids, *(chain for chain, _ in tokens))
            return StaleNotes(tuple(dict.fromkeys(named[int(place) - 1] for place in details)))
        self._keys.context.notes.count_writes(self._keys.namespace, len(fresh))
        version = int(details[0])
        notes = [write.note.model_copy(update={"version": version + at}) for at, write in enumerate(writes)]
        self._report(app_id, writes)
        return CommittedNotes({note.id: note for note in notes}, is_new=True)

    def _report(self, app_id: str, writes: Sequence[_PendingWrite]) -> None:
        """Count what a commit did to each note, as metrics and as a log line."""
        counters = self._keys.context.counters
        counters.observe_batch("synthesis.commit", len(writes))
        for write in writes:
            counters.increment("synthesis_notes", event=write.event.removeprefix("note."))
        _logger.info(
            "notes committed",
            extra={
                "namespace": self._keys.namespace,
                "app_id": app_id,
                "notes": {write.note.id: write.event for write in writes},
            },
        )

    def _write_of_new(self, fresh: NewNote) -> _PendingWrite:
        check_key_part("id", fresh.note.id)
        check_user("user_id", fresh.note.user_id)
        if fresh.note.session_id is not None:
            check_user("session_id", fresh.note.session_id)
        vector = self._packed_vector(fresh.vector)
        return _PendingWrite(self._with_dimensions(fresh.note, vector), 0, "note.created", vector)

    def _write_of_change(self, change: NoteChange) -> _PendingWrite:
        note = apply_change(change, self._keys.context.clock.now())
        vector = self._packed_vector(change.vector)
        if vector or change.drops_body:
            note = self._with_dimensions(note, vector)
        return _PendingWrite(note, note.version, change_event_kind(change), vector, change.drops_body)

    def _with_dimensions(self, note: Note, vector: bytes) -> Note:
        dimensions = self._keys.context.notes.family.dimension if vector else None
        return note.model_copy(update={"embedding_dimensions": dimensions})

    def _packed_vector(self, vector: Vector | None) -> bytes:
        if vector is None:
            return b""
        checked = check_vector("vector", vector, self._keys.context.notes.family.dimension)
        # A vector of zeros is similar to nothing: it is not stored.
        return to_half(checked) if checked.any() else b""

    async def _run_commit(
        self,
        app_id: str,
        writes: Sequence[_PendingWrite],
        seen: UserNotesVersion | None,
        fences: Sequence[tuple[str, int]],
    ) -> str:
        kept = await self._stored_vectors(app_id, writes)
        ids = [write.note.id for write in writes]
        try:
            return await self._keys.scripts.note_commit(
                self._keys.space,
                self._keys.actor,
                keys=self._keys.script_keys(app_id, ids),
                app=escape_app(app_id),
                reader=encode_tag(seen.user_id) if seen is not None and seen.user_id else "",
                seen=seen.version if seen is not None else 0,
                words=commit_arguments(fences, [self._terms(write, kept.get(write.note.id, b"")) for write in writes]),
                keep=self._keys.durability(app_id, ids),
            )
        except ServerError as error:
            raise self._keys.explain(error, app_id) from error
        except UnsettledError as error:
            version = int(error.reply.rpartition(b" ")[2])
            raise DurabilityPendingError(
                self._keys.target(app_id, ids[0]).key, version, str(error.cause)
            ) from error.cause

    def _terms(self, write: _PendingWrite, kept: bytes) -> NoteWrite:
        note, vector = write.note, write.vector or kept
        return NoteWrite(
            expect=write.expect,
            task=note.task_id or "",
            user=encode_tag(note.user_id),
            status=note.status,
            chain=chain_id_of(note),
            event=write.event,
            vector=b64encode(vector) if self._keys.context.record_tier.is_durable else b"",
            drops=int(write.drops),
            fields=(*hash_fields(note, self._keys.namespace), *(("vector", write.vector) if write.vector else ())),
        )

    async def _stored_vectors(self, app_id: str, writes: Sequence[_PendingWrite]) -> dict[str, bytes]:
        """Read the vectors that notes keep; only the durable tier needs them, as it stores whole notes. One trip."""
        keeping = [write.note.id for write in writes if write.expect and not (write.vector or write.drops)]
        if not self._keys.context.record_tier.is_durable or not keeping:
            return {}
        reads: list[Command] = [("HGET", self._keys.record(app_id, id_), "vector") for id_ in keeping]
        found = zip(keeping, await self._keys.client.read_each(reads), strict=True)
        return {id_: vector for id_, vector in found if isinstance(vector, bytes)}

    async def erase(self, app_id: str, ids: Sequence[str]) -> int:
        """Erase notes from Redis and the durable tier; return how many existed."""
        check_key_part("app_id", app_id)
        wanted = check_ids(ids)
        await self._keys.enter("write")
        erased = 0
        for first in range(0, len(wanted), MOST_AT_ONCE):
            erased += await self._erase_batch(app_id, wanted[first : first + MOST_AT_ONCE])
        return erased

    async def _erase_batch(self, app_id: str, ids: Sequence[str]) -> int:
        keys = self._keys.script_keys(app_id, ids)
        try:
            return await self._keys.scripts.note_erase(
                self._keys.space,
                self._keys.actor,
                keys=keys,
                app=escape_app(app_id),
                keep=self._keys.durability(app_id, ids),
            )
        except ServerError as error:
            raise self._keys.explain(error, app_id) from error
        except UnsettledError as error:
            raise DurabilityPendingError(self._keys.target(app_id, ids[0]).key, 0, str(error.cause)) from error.cause


def _check_commit(app_id: str, writes: Sequence[_PendingWrite], seen: UserNotesVersion | None) -> None:
    if len(writes) > MOST_AT_ONCE:
        raise InvalidError("notes", f"{len(writes)} of them", f"commit at most {MOST_AT_ONCE} at once")
    ids = [write.note.id for write in writes]
    if len(set(ids)) < len(ids):
        raise InvalidError("notes", sorted({id_ for id_ in ids if ids.count(id_) > 1}), "commit each of them once")
    strangers = sorted({write.note.app_id for write in writes} - {app_id})
    if strangers or (seen is not None and seen.app_id != app_id):
        raise InvalidError("app_id", app_id, f"pass only its own notes and version; got {strangers or seen}")


class ModelAnswerCache:
    """Caches answers of models, by a digest of the question.

    Args:
        keys: keys of the namespace, with the actor's rights.
    """

    def __init__(self, keys: NoteKeys) -> None:
        self._keys = keys

    async def read(self, app_id: str, digests: Sequence[str]) -> dict[str, bytes]:
        """Return the cached answers, by digest. One round trip."""
        keys = [self._keys.answer(app_id, digest) for digest in digests]
        await self._keys.enter("read")
        found = await self._keys.client.call("MGET", *keys) if keys else []
        answers = found if isinstance(found, list) else []
        return {digest: one for digest, one in zip(digests, answers, strict=True) if isinstance(one, bytes)}

    async def write(self, app_id: str, answers: Mapping[str, bytes], *, ttl_s: int) -> None:
        """Cache answers for some seconds. One round trip."""
        if ttl_s < 1:
            raise InvalidError("ttl_s", ttl_s, "give at least one second")
        entries = [(self._keys.answer(app_id, digest), answer) for digest, answer in answers.items()]
        await self._keys.enter("write")
        await asyncio.gather(*(self._keys.client.call("SET", key, answer, "EX", ttl_s) for key, answer in entries))

    async def clear(self, app_id: str) -> int:
        """Delete all cached answers of an app; return how many existed."""
        pattern = self._keys.answer_pattern(app_id)
        await self._keys.enter("write")
        deleted = 0
        async for page in self._keys.client.scan(pattern, near=self._keys.space.clock):
            unlinked = await self._keys.client.call_aside("UNLINK", *page) if page else 0
            deleted += unlinked if isinstance(unlinked, int) else 0
        return deleted


class RedisNoteRepository:
    """A `NoteRepository` over Redis hashes, a search index and the scripts `lua/note_*.lua`.

    Args:
        context: dependencies that the hub shares with its stores.
        scope: the namespace and the actor.
    """

    def __init__(self, context: KnowledgeContext, scope: Scope) -> None:
        keys = NoteKeys(context, scope)
        self._namespace = keys.namespace
        self._reader = NoteReader(keys)
        self._writer = NoteWriter(keys, self._reader)
        self._answers = ModelAnswerCache(keys)

    async def get(self, app_id: str, ids: Sequence[str]) -> dict[str, Note]:
        """See `NoteRepository.get`.

        Raises:
            InvalidError: an app or id is invalid.
            AccessDeniedError: this actor may not read the namespace's notes.
            InternalError: another client has written there.
            UnavailableError: the server cannot be reached.
        """
        return await self._reader.get(app_id, ids)

    async def near(
        self,
        app_id: str,
        vector: Vector | None,
        *,
        terms: tuple[str, ...] = (),
        related: tuple[str, ...] = (),
        user_id: str | None = None,
        session_id: str | None = None,
        statuses: Sequence[NoteStatus] = ("active",),
        k: int = 30,
        least_similarity: float = -1.0,
    ) -> tuple[list[SimilarNote], UserNotesVersion]:
        """See `NoteRepository.near`. Without a user, the version guards nothing: commits are guarded user by user.

        Raises:
            InvalidError: an app, user, session or status is invalid; a vector of another dimension; `k` below one.
            AccessDeniedError, UnavailableError: as `get`.
        """
        return await self._reader.near(
            app_id,
            vector,
            terms=terms,
            related=related,
            user_id=user_id,
            session_id=session_id,
            statuses=statuses,
            k=k,
            least_similarity=least_similarity,
        )

    async def page(self, app_id: str, *, after: str = "", limit: int = 500) -> list[Note]:
        """See `NoteRepository.page`; the page is empty only after the last note.

        Raises:
            InvalidError: the app is invalid, or the limit is not 1 to `MOST_IN_A_PAGE`.
            AccessDeniedError, InternalError, UnavailableError: as `get`.
        """
        return await self._reader.page(app_id, after=after, limit=limit)

    async def apps(self) -> list[str]:
        """See `NoteRepository.apps`.

        Raises:
            AccessDeniedError, UnavailableError: as `get`.
        """
        return await self._reader.apps()

    async def commit(
        self,
        app_id: str,
        *,
        fresh: Sequence[NewNote] = (),
        changes: Sequence[NoteChange] = (),
        seen: UserNotesVersion | None = None,
        fences: Mapping[str, int] | None = None,
    ) -> CommittedNotes | StaleNotes:
        """See `NoteRepository.commit`. One round trip; one more for a repeat, and for changes with a durable tier.

        Raises:
            InvalidError: over `MOST_AT_ONCE` notes, one twice, one of another app, or a vector of another dimension.
            AccessDeniedError: this actor may not write the namespace's notes.
            DurabilityPendingError: Redis stored it; the durable tier, which the commit waits for, has not.
            UnavailableError: the server cannot be reached.
        """
        return await self._writer.commit(app_id, fresh=fresh, changes=changes, seen=seen, fences=fences)

    async def erase(self, app_id: str, ids: Sequence[str]) -> int:
        """See `NoteRepository.erase`. One round trip for every `MOST_AT_ONCE`.

        Raises:
            InvalidError: an id is invalid.
            AccessDeniedError: this actor may not write the namespace's notes.
            DurabilityPendingError: Redis erased them; the durable tier, which the call waits for, has not.
            UnavailableError: the server cannot be reached.
        """
        return await self._writer.erase(app_id, ids)

    async def remembered(self, app_id: str, digests: Sequence[str]) -> dict[str, bytes]:
        """See `NoteRepository.remembered`.

        Raises:
            InvalidError: an app or digest is invalid.
            AccessDeniedError: this actor may not read the namespace's notes.
            UnavailableError: the server cannot be reached.
        """
        return await self._answers.read(app_id, digests)

    async def remember(self, app_id: str, answers: Mapping[str, bytes], *, ttl_s: int) -> None:
        """See `NoteRepository.remember`.

        Raises:
            InvalidError: an app or digest is invalid, or the time is below a second.
            AccessDeniedError: this actor may not write the namespace's notes.
            UnavailableError: the server cannot be reached.
        """
        await self._answers.write(app_id, answers, ttl_s=ttl_s)

    async def clear_answers(self, app_id: str) -> int:
        """See `NoteRepository.clear_answers`.

        Raises:
            InvalidError: the app is invalid.
            AccessDeniedError: this actor may not write the namespace's notes.
            UnavailableError: the server cannot be reached.
        """
        return await self._answers.clear(app_id)

    def __repr__(self) -> str:
        return f"<RedisNoteRepository of {self._namespace}>"
