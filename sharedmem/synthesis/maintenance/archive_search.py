"""Search archived notes: choose by what stays of them in Redis, then read their archives and score their texts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np

from sharedmem.errors import InvalidError, NotFoundError
from sharedmem.models import Note
from sharedmem.models.notes import age_key
from sharedmem.providers.protocol import Embedder
from sharedmem.redis.vectors import Vector, normalize
from sharedmem.runtime import get_logger
from sharedmem.synthesis.maintenance.chain_archive import ChainArchiveStore
from sharedmem.synthesis.maintenance.fsck import read_all_notes
from sharedmem.synthesis.note_repository.serialization import prefixed_terms, word_share
from sharedmem.synthesis.note_text import searchable_text
from sharedmem.synthesis.protocol import NoteRepository, SimilarNote
from sharedmem.synthesis.resolver import embed_note
from sharedmem.synthesis.search import NoteQuery
from sharedmem.text.analysis import indexed_terms

MOST_DESCRIBED = 300
"""Archived notes whose tags, keywords, questions and follow-ups are compared with a query by meaning."""
MOST_READ = 100
"""Archived notes whose texts one query reads."""
_MOST_AT_ONCE = 8
_logger = get_logger("synthesis")


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
