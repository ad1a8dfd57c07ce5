"""Move old chains of notes to the blob store, restore them on demand, and search them.

An archive is JSON of whole notes, compressed with zstd if that is installed. Each archived note has the location of
its archive. The blob store stores each content once, with a reference for each archive of it. A search chooses by what
stays of the notes in Redis, then reads their archives and scores their texts.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode

import numpy as np
import orjson
from pydantic import TypeAdapter, ValidationError

from sharedmem.archive.files import compress, decompress
from sharedmem.blobs.blobs import BlobReference, Blobs, annex_namespace
from sharedmem.errors import ConflictError, InvalidError, NotFoundError, UnsupportedError
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.models import ArchiveReport, Note
from sharedmem.models.notes import age_key
from sharedmem.providers.protocol import Embedder
from sharedmem.redis.vectors import Vector, normalize
from sharedmem.runtime import elapsed_ms, get_logger, in_thread
from sharedmem.synthesis.consistency import find_problems, read_all_notes, without_body
from sharedmem.synthesis.evolution import ChainLocks, Embed, group_by_chain, run_under_chain_locks
from sharedmem.synthesis.note_repository import MOST_AT_ONCE
from sharedmem.synthesis.note_serialization import chain_id_of, prefixed_terms, word_share
from sharedmem.synthesis.note_text import searchable_text
from sharedmem.synthesis.protocol import NoteChange, NoteRepository, PermissionCheck, SimilarNote, StaleNotes
from sharedmem.synthesis.resolver import embed_note
from sharedmem.synthesis.search import LEAST_RECENCY, NoteQuery, decay
from sharedmem.text.analysis import indexed_terms

ORPHAN_MIN_AGE_S = 3600.0
"""A younger archive may belong to a commit that is about to refer to it."""

_FORMAT = 1
# Bytes of text, far above any chain of notes: content of another client must not fill the memory.
_LONGEST_BYTES = 1 << 28
_logger = get_logger("synthesis")
_PACKED, _PLAIN = "json.zst", "json"
_LOCATION = re.compile(r"blob:(?P<path>[^?]+)\?(?P<facts>.+)")
_NOTES = TypeAdapter(tuple[Note, ...])


class StoredArchive(NamedTuple):
    """An archive that was written."""

    location: str
    bytes: int
    """Compressed bytes."""


class ArchiveEntry(NamedTuple):
    """An archive in the blob store, with or without notes that refer to it."""

    app_id: str
    note_id: str
    """Id of its first note."""
    path: str


class ChainArchiveStore:
    """The archives of one namespace.

    Args:
        blobs: the blob store.
        namespace: namespace of the notes.
    """

    def __init__(self, blobs: Blobs, namespace: str) -> None:
        self._blobs = blobs
        self._annex = annex_namespace(namespace)

    async def put(self, app_id: str, notes: Sequence[Note]) -> StoredArchive:
        """Store notes, and check that they can be read again. Two objects are written, two are read.

        Args:
            app_id: id of the app.
            notes: at least one.

        Raises:
            UnavailableError: the blob store is unavailable.
        """
        first = notes[0].id
        codec, body = await asyncio.to_thread(_pack, notes)
        reference = await self._blobs.put(self._key(app_id, first), codec.encode(), body)
        facts = {"note": first, "size": reference.size, "codec": codec}
        location = f"blob:{reference.path}?{urlencode(facts)}"
        if await self.get(app_id, location) != {note.id: note for note in notes}:
            await self.remove(app_id, location)
            raise InvalidError("archive", location, "it reads back with other content; nothing was archived")
        return StoredArchive(location, reference.size)

    async def get(self, app_id: str, location: str) -> dict[str, Note]:
        """Return the notes of an archive, by id, in their state before the archive. Two objects are read.

        Raises:
            InvalidError: the location is invalid, or the archive is damaged.
            NotFoundError: the archive does not exist, or belongs to another app.
            UnavailableError: the blob store is unavailable.
            UnsupportedError: the archive is compressed, and zstd is not installed.
        """
        first, reference = _parse_location(location)
        body = await self._blobs.get(self._key(app_id, first), reference)
        return await in_thread(_unpack, body, reference.codec, location)

    async def remove(self, app_id: str, location: str) -> None:
        """Delete an archive, and its content if no other archive has the same; a missing archive is no error."""
        first, reference = _parse_location(location)
        await self._blobs.remove(self._key(app_id, first), reference.path)

    async def list_archives(self, *, older_than_s: float = ORPHAN_MIN_AGE_S) -> AsyncIterator[ArchiveEntry]:
        """Yield all existing archives; the caller checks whether a note still refers to each.

        Args:
            older_than_s: younger archives are left out.

        Raises:
            UnavailableError: the blob store is unavailable.
        """
        async for key, path in self._blobs.referrers(self._annex, older_than_s=older_than_s):
            app_id, note_id = orjson.loads(key.partition(":")[2])
            yield ArchiveEntry(app_id, note_id, path)

    async def drop(self, loose: ArchiveEntry) -> None:
        """Delete an archive that no note refers to."""
        await self._blobs.remove(self._key(loose.app_id, loose.note_id), loose.path)

    def _key(self, app_id: str, first: str) -> str:
        return f"{self._annex}:{orjson.dumps([app_id, first]).decode()}"


def archive_path(location: str) -> str:
    """Return the path of an archive, as in `ArchiveEntry`."""
    return location.removeprefix("blob:").partition("?")[0]


def _parse_location(location: str) -> tuple[str, BlobReference]:
    """Return the first note of an archive, and the reference to its blob."""
    found = _LOCATION.fullmatch(location)
    facts = dict(parse_qsl(found["facts"])) if found else {}
    if found is None or not facts.keys() >= {"note", "size", "codec"} or not facts["size"].isdigit():
        raise InvalidError("archival_location", location, "it is not the location of an archive")
    path = found["path"]
    sha256 = path.split("/")[-2] if "/" in path else ""
    reference = BlobReference(path=path, size=int(facts["size"]), sha256=sha256, content_type="", codec=facts["codec"])
    return facts["note"], reference


def _pack(notes: Sequence[Note]) -> tuple[str, bytes]:
    document = {"format": _FORMAT, "notes": [note.model_dump(mode="json") for note in notes]}
    text = orjson.dumps(document)
    try:
        return _PACKED, compress(text)
    except UnsupportedError:
        return _PLAIN, text


def _unpack(body: bytes, codec: str, location: str) -> dict[str, Note]:
    text = decompress(body, location, max_bytes=_LONGEST_BYTES) if codec == _PACKED else body
    try:
        document = orjson.loads(text)
        if document["format"] != _FORMAT:
            raise NotFoundError("archive of a known format", location, "a newer sharedmem has written it; upgrade")
        return {note.id: note for note in _NOTES.validate_python(document["notes"])}
    except (KeyError, TypeError, orjson.JSONDecodeError, ValidationError) as error:
        raise InvalidError("archival_location", location, f"it contains no archive of notes: {error}") from error


_RETIRED_OR_ACTIVE = ("active", "updated")


def has_faded(note: Note, *, now: datetime, after_days: int) -> bool:
    """Return whether a note is old enough for the archive, and its recency is below 0.01.

    Source: "Self-Evolving Composite Memory Synthesis Architecture", Memory Evolution Decay and Long-Term Storage. The
    recency in scores never falls below 0.01, so that literally nothing would ever be archived: here it
    is used without that floor (`scoring.decay`), and is below it after 50,429 hours, some 5.8 years. Age counts from
    the later of the note's creation and last change.

    Args:
        note: the note.
        now: the current time.
        after_days: least age in days.
    """
    age = now - max(note.created_at, note.updated_at)
    return age >= timedelta(days=after_days) and decay(note.created_at, note.updated_at, now=now) < LEAST_RECENCY


def is_archivable(chain: Sequence[Note], *, now: datetime, after_days: int) -> bool:
    """Return whether a whole chain may be archived: all of it is old, its head is active or updated, and it is sound.

    A chain is archived whole or not at all: an old version of a recently changed memory stays with it.

    Args:
        chain: all connected notes.
        now: the current time.
        after_days: least age in days.
    """
    heads = [note for note in chain if note.next_id is None]
    if len(heads) != 1 or heads[0].status not in _RETIRED_OR_ACTIVE or find_problems(chain):
        return False
    return all(has_faded(note, now=now, after_days=after_days) for note in chain if note.status != "archived")


class ChainArchiver:
    """Archives chains of one namespace, and restores them.

    Args:
        context: dependencies that the hub shares with its stores.
        repository: stores the notes.
        chains: locks of the chains.
        archives: stores the archives.
        embed: makes the vectors of restored notes.
        permit: raises if a note must not change.
    """

    def __init__(
        self,
        context: KnowledgeContext,
        *,
        repository: NoteRepository,
        chains: ChainLocks,
        archives: ChainArchiveStore,
        embed: Embed,
        permit: PermissionCheck,
    ) -> None:
        self._permit = permit
        self._repository = repository
        self._chains = chains
        self._archives = archives
        self._embed = embed
        self._clock = context.clock
        self._after_days = context.settings.synthesis_archive_after_days

    async def archive(
        self, app_id: str, *, dry_run: bool = False, progress: Callable[[int], None] | None = None
    ) -> ArchiveReport:
        """Archive old chains (see `is_archivable`).

        For each chain the texts, messages and vectors are written to one archive in the blob store, which is read back
        before anything else happens. Then, in one commit under the chain's lock, its notes become
        `archived`/`age_decay` with the location of the archive. A crash between the two leaves an archive without a
        reference: the next call archives the chain again, and deletes the other archive once it is an hour old.

        Args:
            app_id: id of the app.
            dry_run: whether to only return what would be archived.
            progress: called with the number of notes read so far.

        Raises:
            ConflictError: other callers keep changing a chain, or hold its lock; chains archived before stay archived.
            AccessDeniedError, UnavailableError: as the repository and the blob store.
        """
        began = time.perf_counter()
        notes = [
            without_body(note) async for page in read_all_notes(self._repository, app_id, progress) for note in page
        ]
        ripe = [chain for chain in group_by_chain(notes) if self._is_ripe(chain)]
        if not dry_run:
            self._check_authors(note for chain in ripe for note in chain)
        archived: list[str] = []
        written = chains = 0
        for chain in ripe:
            ids, size = (_to_archive(chain), 0) if dry_run else await self._put_away(app_id, chain)
            archived += ids
            written += size
            chains += bool(ids)
        if notes and not dry_run:
            await self._sweep(app_id, notes)
        if archived and not dry_run:
            _logger.info(
                "notes archived",
                extra={
                    "app_id": app_id,
                    "notes": sorted(archived),
                    "chains": chains,
                    "bytes": written,
                    "latency_ms": elapsed_ms(began),
                },
            )
        return ArchiveReport(
            app_id=app_id,
            looked_at=len(notes),
            archived=tuple(sorted(archived)),
            chains=chains,
            bytes=written,
            dry_run=dry_run,
        )

    async def get_archived(self, app_id: str, memory_id: str) -> Note:
        """Return a memory with its text and messages, also when it is archived; nothing changes. Two reads of blobs.

        Raises:
            NotFoundError: the memory or its archive does not exist.
            UnavailableError: the blob store cannot be read.
        """
        note = await self._one(app_id, memory_id)
        if note.archival_location is None:
            return note
        try:
            kept = (await self._archives.get(app_id, note.archival_location))[memory_id]
        except (NotFoundError, KeyError):
            now = await self._one(app_id, memory_id)
            if now.archival_location is None:  # it was restored at this moment
                return now
            raise
        return note.model_copy(update={"memory_note": kept.memory_note, "messages": kept.messages})

    async def archived(
        self, app_id: str, *, user_id: str | None = None, words: str = "", limit: int = 100
    ) -> list[Note]:
        """Return the archived memories, without their texts, newest first; a query finds these with `archived=True`.

        Reads all notes of the app, two round trips for every 500.

        Args:
            app_id: id of the app.
            user_id: None means all users.
            words: only memories that have each of these words in their tags, keywords, queries or open questions; in
                any case.
            limit: most memories.

        Raises:
            AccessDeniedError, UnavailableError: as the repository.
        """
        wanted = words.casefold().split()
        found = [
            note
            async for page in read_all_notes(self._repository, app_id)
            for note in page
            if note.status == "archived" and user_id in (None, note.user_id) and _contains_words(note, wanted)
        ]
        return sorted(found, key=age_key, reverse=True)[: max(limit, 0)]

    async def unarchive(self, app_id: str, memory_id: str) -> Note:
        """Restore a chain from the archive: its notes get their former state, and searches find them again.

        Its age starts again, so that it is not archived at once. The archive is deleted after that.

        Args:
            app_id: id of the app.
            memory_id: any note of the chain; one that is not archived is returned unchanged.

        Raises:
            NotFoundError: the memory or its archive does not exist.
            ConflictError: other callers keep changing the chain, or hold its lock.
            UnavailableError: the blob store cannot be read.
        """
        note = await self._one(app_id, memory_id)
        if note.archival_location is None:
            return note
        location = note.archival_location
        kept = await self._archives.get(app_id, location)
        vectors = {id_: await self._embed(one.memory_note) for id_, one in kept.items()}

        async def work(fences: Mapping[str, int]) -> Note | StaleNotes | set[str]:
            now = await self._repository.get(app_id, list(kept))
            needed = {chain_id_of(one) for one in now.values()}
            if not needed <= fences.keys():
                return needed
            self._check_authors(now.values())
            changes = [
                NoteChange(one, kept[id_].status, kept[id_].status_reason, body=kept[id_], vector=vectors[id_])
                for id_, one in now.items()
                if one.archival_location == location
            ]
            behind = await self._commit(app_id, changes, fences)
            return behind or await self._one(app_id, memory_id)

        back = await run_under_chain_locks(self._chains, app_id, kept.values(), work)
        await self._archives.remove(app_id, location)
        return back

    # -- parts

    def _is_ripe(self, chain: Sequence[Note]) -> bool:
        return is_archivable(chain, now=self._clock.now(), after_days=self._after_days)

    async def _one(self, app_id: str, memory_id: str) -> Note:
        note = (await self._repository.get(app_id, [memory_id])).get(memory_id)
        if note is None:
            raise NotFoundError("memory", memory_id, f"app {app_id!r} has no memory with that id")
        return note

    def _check_authors(self, notes: Iterable[Note]) -> None:
        for note in notes:
            self._permit(note)

    async def _put_away(self, app_id: str, chain: Sequence[Note]) -> tuple[list[str], int]:
        """Archive one chain; return the ids of its notes and the bytes written, none if the chain has changed."""
        ids = [note.id for note in chain]

        async def work(fences: Mapping[str, int]) -> tuple[list[str], int] | StaleNotes | set[str]:
            now = await self._repository.get(app_id, ids)
            if now.keys() != set(ids) or not self._is_ripe(list(now.values())):
                return [], 0
            needed = {chain_id_of(note) for note in now.values()}
            if not needed <= fences.keys():
                return needed
            self._check_authors(now.values())
            leaving = [now[id_] for id_ in _to_archive(now.values())]
            return await self._archived(app_id, leaving, fences)

        return await run_under_chain_locks(self._chains, app_id, chain, work)

    async def _archived(
        self, app_id: str, notes: Sequence[Note], fences: Mapping[str, int]
    ) -> tuple[list[str], int] | StaleNotes:
        archive = await self._archives.put(app_id, notes)
        behind = await self._commit(app_id, [self._leaving(note, archive) for note in notes], fences)
        if behind is not None:
            await self._archives.remove(app_id, archive.location)
            return behind
        return [note.id for note in notes], archive.bytes

    def _leaving(self, note: Note, archive: StoredArchive) -> NoteChange:
        return NoteChange(
            note,
            status="archived",
            reason="age_decay",
            archived_at=self._clock.now(),
            archival_location=archive.location,
            drops_body=True,
        )

    async def _commit(self, app_id: str, changes: Sequence[NoteChange], fences: Mapping[str, int]) -> StaleNotes | None:
        """Commit all changes, at once if they fit; after each part of them the notes are readable."""
        for first in range(0, len(changes), MOST_AT_ONCE):
            some = changes[first : first + MOST_AT_ONCE]
            done = await self._repository.commit(app_id, changes=some, fences=fences)
            if isinstance(done, StaleNotes):
                if first:
                    raise ConflictError(f"the chain of memory {some[0].note.id!r} was changed halfway; try again")
                return done
        return None

    async def _sweep(self, app_id: str, notes: Iterable[Note]) -> None:
        """Delete archives that no note of the app refers to, neither now nor when they were an hour old."""
        referred = {archive_path(note.archival_location) for note in notes if note.archival_location is not None}
        async for loose in self._archives.list_archives():
            if loose.app_id == app_id and loose.path not in referred:
                await self._archives.drop(loose)


def _to_archive(chain: Iterable[Note]) -> list[str]:
    return sorted(note.id for note in chain if note.status != "archived")


def _contains_words(note: Note, wanted: Iterable[str]) -> bool:
    kept = (*note.tags, *note.keywords, *note.semantic_queries, *note.follow_up_potential)
    words = "\n".join(kept).casefold()
    return all(word in words for word in wanted)


# -- search of archived notes --------------------------------------------------------------------


MOST_DESCRIBED = 300
"""Archived notes whose tags, keywords, questions and follow-ups are compared with a query by meaning."""
MOST_READ = 100
"""Archived notes whose texts one query reads."""
_MOST_AT_ONCE = 8


class ArchiveSearch:
    """Finds archived notes of one namespace.

    Args:
        namespace: namespace of the notes.
        repository: stores the notes.
        archives: stores the archives.
        embedder: makes vectors; None to search by words alone.
    """

    def __init__(
        self, namespace: str, *, repository: NoteRepository, archives: ChainArchiveStore, embedder: Embedder | None
    ) -> None:
        self._namespace = namespace
        self._repository = repository
        self._archives = archives
        self._embedder = embedder

    async def near(self, wanted: NoteQuery) -> list[SimilarNote]:
        """Return archived notes with their texts and their similarity to a query, in no order.

        All notes of the app are read, two round trips for every 500. Those of `MOST_DESCRIBED` archived notes whose
        tags, keywords, questions and follow-ups are nearest to the query are read from the blob store and embedded:
        `wanted.k` notes, at most `MOST_READ`. A note whose archive is missing or damaged is left out.

        Raises:
            AccessDeniedError, UnavailableError, LimitedError, ConfigError: as for reads, the blob store, the embedder.
        """
        archived = [
            note
            async for page in read_all_notes(self._repository, wanted.app_id)
            for note in page
            if note.archival_location is not None and wanted.admits_archived(note)
        ]
        chosen = await self._chosen(archived, wanted)
        gate = asyncio.Semaphore(_MOST_AT_ONCE)
        locations = dict.fromkeys(note.archival_location or "" for note in chosen)
        read = await asyncio.gather(*(self._read(wanted.app_id, location, gate) for location in locations))
        whole = {id_: note for notes in read for id_, note in notes.items()}
        texts = [note.model_copy(update=_former(whole[note.id])) for note in chosen if note.id in whole]
        scores = await asyncio.gather(*(self._similarity(note, wanted.vector, gate) for note in texts))
        terms = prefixed_terms(wanted.terms, self._namespace)
        return [
            SimilarNote(note, score, word_share(terms, self._terms(note.memory_note)))
            for note, score in zip(texts, scores, strict=True)
            if whole[note.id].status in wanted.statuses
        ]

    async def _chosen(self, notes: Sequence[Note], wanted: NoteQuery) -> list[Note]:
        """Return the notes whose descriptions are nearest to the query; those with its words first."""
        terms = prefixed_terms(wanted.terms, self._namespace)
        shares = {note.id: word_share(terms, self._terms(_description(note))) for note in notes}
        newest = sorted(notes, key=age_key, reverse=True)
        described = sorted(newest, key=lambda note: -shares[note.id])[:MOST_DESCRIBED]
        scores = await self._similarities([_description(note) for note in described], wanted.vector)
        best = sorted(zip(described, scores, strict=True), key=lambda one: -max(one[1], shares[one[0].id]))
        return [note for note, _ in best[: min(wanted.k, MOST_READ)]]

    async def _similarities(self, texts: Sequence[str], vector: Vector | None) -> list[float]:
        distinct = list(dict.fromkeys(filter(str.strip, texts)))
        if self._embedder is None or vector is None or not distinct:
            return [0.0] * len(texts)
        rows, _ = await self._embedder.embed(distinct)
        scores = dict(zip(distinct, (rows @ normalize(vector)).tolist(), strict=True))
        return [scores.get(text, 0.0) for text in texts]

    async def _similarity(self, note: Note, vector: Vector | None, gate: asyncio.Semaphore) -> float:
        if self._embedder is None or vector is None:
            return 0.0
        async with gate:
            own = await embed_note(self._embedder, note.memory_note)
        return 0.0 if own is None else min(max(float(np.dot(own, normalize(vector))), 0.0), 1.0)

    async def _read(self, app_id: str, location: str, gate: asyncio.Semaphore) -> dict[str, Note]:
        try:
            async with gate:
                return await self._archives.get(app_id, location)
        except (NotFoundError, InvalidError) as error:
            # It was restored or erased at this moment, or is damaged: the other notes are found all the same.
            _logger.warning("an archive of app %r was not searched: %s", app_id, error)
            return {}

    def _terms(self, text: str) -> bytes:
        return indexed_terms(searchable_text(text), self._namespace).encode()


def _description(note: Note) -> str:
    return "\n".join((*note.tags, *note.keywords, *note.semantic_queries, *note.follow_up_potential))


def _former(kept: Note) -> dict[str, object]:
    """Return the fields of an archived note as they were before: its age counts from its last change of content."""
    return {"memory_note": kept.memory_note, "messages": kept.messages, "updated_at": kept.updated_at}
