"""Links between notes: how near they are to each other, and what kind of relationship that is."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sharedmem.models import Note, NoteLink, Relationship
from sharedmem.synthesis.search import ScoredNote
from sharedmem.synthesis.tag_cleanup import normalize_item

NEAR_DUPLICATE_FROM = 0.95
"""Least similarity of notes that say nearly the same."""


def link_to(note: Note, older: ScoredNote) -> NoteLink:
    """Return the link of a note to an older one; its strength is the composite score.

    Source: "Self-Evolving Composite Memory Synthesis Architecture", Link Generation Algorithm.
    """
    scores = older.scores
    return NoteLink(
        memory_id=older.note.id,
        similarity_score=scores.similarity,
        composite_score=scores.composite,
        link_strength=scores.composite,
        relationship_type=relationship_of(note, older.note, scores.similarity),
    )


def relationship_of(note: Note, older: Note, similarity: float) -> Relationship:
    """Return the kind of relationship of two notes: the first of near duplicate, same topic, same session, similar."""
    if similarity >= NEAR_DUPLICATE_FROM:
        return "near_duplicate"
    if _topics(note) & _topics(older):
        return "same_topic"
    return "same_session" if note.session_id is not None and note.session_id == older.session_id else "similar"


def source_links(links: Iterable[NoteLink], ids: Collection[str]) -> tuple[NoteLink, ...]:
    """Return the links of a successor to the notes that were merged into it.

    Args:
        links: the links of the newest of them.
        ids: ids of the older ones.
    """
    return tuple(link.model_copy(update={"relationship_type": "source"}) for link in links if link.memory_id in ids)


def _topics(note: Note) -> frozenset[str]:
    return frozenset(filter(None, map(normalize_item, (*note.tags, *note.keywords))))
