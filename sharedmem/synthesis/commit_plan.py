"""Plan a commit: from verdicts to the stored changes and the links between notes, without I/O.

Rules of "Self-Evolving Composite Memory Synthesis Architecture", section "Conflict Resolution", with one more: a note
is retired only in the same step in which its successor is stored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import NamedTuple

from sharedmem.models import ConsolidationReport, Depth, Note, NoteLink, Relationship, Resolution, Verdict
from sharedmem.models.notes import age_key
from sharedmem.synthesis.evolution import note_chain_id
from sharedmem.synthesis.note_text import SECTIONS, merge_items, normalize_item, parse_sections, related_topics
from sharedmem.synthesis.protocol import NewNote, NoteChange
from sharedmem.synthesis.search import ScoredNote

FALLBACK = "fallback"
"""Author of a verdict without a usable answer."""

_DEPTHS: tuple[Depth | None, ...] = ("high", "medium", "low", None)
_LABELS = ("tags", "keywords", "semantic_queries", "follow_up_potential")
_MOST_TOPICS = 10
_SORTED_LABELS = frozenset({"tags", "keywords"})
MOST_LABELS = 100
"""Most tags of a successor, and most keywords, questions and follow-ups: each is compared with each."""


class NotesByVerdict(NamedTuple):
    """The older notes, by verdict."""

    updated: tuple[Note, ...]
    deleted: tuple[Note, ...]
    skipped: tuple[Note, ...]


class CommitPlan(NamedTuple):
    """The changes of one commit."""

    fresh: tuple[NewNote, ...]
    changes: tuple[NoteChange, ...]


# -- verdicts ---------------------------------------------------------------------------------


def skip_resolution(note: Note, reason: str) -> Resolution:
    """Return the resolution that does not change an older note, for want of a better one."""
    return Resolution(memory_id=note.id, operation="SKIP", confidence_score=0, reasoning=reason, decided_by=FALLBACK)


def complete_resolutions(linked: Sequence[Note], given: Iterable[Resolution]) -> list[Resolution]:
    """Return one resolution for each older note, in their order.

    A verdict on a note that was not in the question is left out; a note without a verdict, or with two different ones,
    is skipped.

    Args:
        linked: the older notes.
        given: the resolutions in the answer.
    """
    given_by_id: dict[str, list[Resolution]] = {}
    for resolution in given:
        given_by_id.setdefault(resolution.memory_id, []).append(resolution)
    return [_complete_one(note, given_by_id.get(note.id, [])) for note in linked]


def _complete_one(note: Note, given: Sequence[Resolution]) -> Resolution:
    if not given:
        return skip_resolution(note, "the answer leaves this note out")
    if len({resolution.operation for resolution in given}) > 1:
        return skip_resolution(note, "the answer contradicts itself about this note")
    return given[0]


def skip_updates(resolutions: Sequence[Resolution], reason: str) -> list[Resolution]:
    """Return the resolutions with every UPDATE replaced by SKIP: no successor can be stored.

    Args:
        resolutions: the verdicts.
        reason: why there is no successor.
    """

    def spared(resolution: Resolution) -> Resolution:
        if resolution.operation != "UPDATE":
            return resolution
        changed = {"operation": "SKIP", "confidence_score": 0.0, "reasoning": reason, "decided_by": FALLBACK}
        return resolution.model_copy(update=changed)

    return [spared(resolution) for resolution in resolutions]


def group_by_verdict(linked: Sequence[Note], resolutions: Sequence[Resolution]) -> NotesByVerdict:
    """Return the older notes by their verdicts.

    Args:
        linked: the older notes.
        resolutions: one for each, in their order.
    """
    pairs = list(zip(linked, resolutions, strict=True))

    def those(verdict: Verdict) -> tuple[Note, ...]:
        return tuple(note for note, resolution in pairs if resolution.operation == verdict)

    return NotesByVerdict(those("UPDATE"), those("DELETE"), those("SKIP"))


# -- the commit -------------------------------------------------------------------------------


def oldest_chain(notes: Iterable[Note]) -> str:
    """Return the oldest chain: ids of notes begin with the time of their task."""
    return min(note_chain_id(note) for note in notes)


def shared_session(notes: Iterable[Note]) -> str | None:
    """Return the session that all of them share; None if there are several."""
    sessions = {note.session_id for note in notes}
    return sessions.pop() if len(sessions) == 1 else None


def plan_commit(
    new: Note,
    linked: Sequence[Note],
    resolutions: Sequence[Resolution],
    *,
    links: Sequence[NoteLink] = (),
    successor: NewNote | None = None,
    degraded: tuple[str, ...] = (),
) -> CommitPlan:
    """Return the one commit that settles a new note with the older ones that it resembles.

    Args:
        new: the stored, pending note.
        linked: the older notes, as they are stored.
        resolutions: one for each, in their order.
        links: the links of the new note to them.
        successor: the note that replaces the new one and all with verdict UPDATE; required if there are any.
        degraded: the steps that did not work as intended.
    """
    parts = group_by_verdict(linked, resolutions)
    base = NoteChange(
        new,
        links=tuple(links),
        resolutions=tuple(resolutions),
        degraded=(*new.degraded, *degraded),
    )
    heir = successor.note if successor else new
    chain_id = _successor_chain(heir, new, parts)
    retired = _retirements(parts, heir.id, chain_id)
    if successor is None:
        sources = (*new.sources, *(note.id for note in parts.deleted))
        own = base._replace(status="active", reason="created", sources=sources, chain_id=chain_id)
        return CommitPlan((), (own, *retired))
    sources = tuple(note.id for note in (new, *parts.updated, *parts.deleted))
    stored = successor.note.model_copy(update={"sources": sources, "chain_id": chain_id})
    own = base._replace(status="updated", reason="consolidated", next_id=stored.id, chain_id=chain_id)
    return CommitPlan((successor._replace(note=stored),), (own, *retired))


def _successor_chain(heir: Note, new: Note, parts: NotesByVerdict) -> str:
    """Return the oldest of the chains that the successor joins."""
    return oldest_chain((new, *parts.updated, *parts.deleted)) if heir is not new or parts.deleted else new.chain_id


def _retirements(parts: NotesByVerdict, heir_id: str, chain_id: str) -> list[NoteChange]:
    """Return the changes of the older notes; skipped ones only get a new time of change."""
    return [
        *(
            NoteChange(note, status="updated", reason="consolidated", next_id=heir_id, chain_id=chain_id)
            for note in parts.updated
        ),
        *(
            NoteChange(note, status="deleted", reason="contradicted", next_id=heir_id, chain_id=chain_id)
            for note in parts.deleted
        ),
        *(NoteChange(note) for note in parts.skipped),
    ]


class MergedLabels(NamedTuple):
    """The tags, keywords, questions and follow-ups of a successor."""

    fields: Mapping[str, tuple[str, ...]]
    """By the field of the note."""
    left_out: tuple[str, ...] = ()
    """A sentence for each field with more than `MOST_LABELS` items."""


def merge_labels(new: Note, updated: Sequence[Note]) -> MergedLabels:
    """Return what a successor takes over from a new note and older ones: each item once, tags and keywords sorted.

    Of more than `MOST_LABELS` the items of the newest notes stay.
    """
    newest_first = (new, *sorted(updated, key=age_key, reverse=True))
    fields: dict[str, tuple[str, ...]] = {}
    left_out = []
    for name in _LABELS:
        items = merge_items(chain.from_iterable(getattr(note, name) for note in newest_first))
        kept = items[:MOST_LABELS]
        fields[name] = tuple(sorted(kept, key=str.casefold)) if name in _SORTED_LABELS else kept
        if len(items) > MOST_LABELS:
            lacking = len(items) - MOST_LABELS
            left_out.append(f"{name}: {lacking} of the oldest were left out of the successor, which has {MOST_LABELS}")
    return MergedLabels(fields, tuple(left_out))


def related_to(new: Note, updated: Sequence[Note], *, apart: Sequence[Note], text: str) -> tuple[str, ...]:
    """Return the related topics of a successor: the tags of similar notes that are not merged into it, at most 10.

    Args:
        new: the newest note.
        updated: the older ones that are merged with it.
        apart: the similar notes that stay apart, best first.
        text: the consolidated text, with the related topics that its writer has named.
    """
    merged = (new, *updated)
    own = [item for note in merged for item in (*note.tags, *note.keywords)]
    known = [topic for each in (text, *(note.memory_note for note in merged)) for topic in related_topics(each)]
    topics = (*(tag for note in apart for tag in note.tags), *known)
    found = merge_items([*own, *topics])
    mine = frozenset(merge_items(own))
    return tuple(topic for topic in found if topic not in mine)[:_MOST_TOPICS]


def check_report(report: ConsolidationReport, notes: Sequence[Note], text: str) -> ConsolidationReport:
    """Return a report with the number of notes, and a warning if the text lacks a section that one of them has.

    Args:
        report: as the agent wrote it.
        notes: the notes that were merged.
        text: the consolidated text.
    """
    had = {name for note in notes for name in parse_sections(note.memory_note)}
    missing = [name for name in SECTIONS if name in had - parse_sections(text).keys()]
    changed: dict[str, object] = {"memories_merged": len(notes)}
    if missing:
        lacks = f"It lacks the sections {', '.join(missing)}."
        changed |= {"quality_check": "warning", "notes": f"{report.notes} {lacks}".strip()}
    return report.model_copy(update=changed)


def build_successor(  # its parts
    new: Note,
    updated: Sequence[Note],
    *,
    text: str,
    labels: MergedLabels,
    links: Sequence[NoteLink],
    report: ConsolidationReport,
    now: datetime,
) -> Note:
    """Return the note that replaces a new one and older ones; `plan_commit` sets its sources and its chain.

    Args:
        new: the newest note.
        updated: the older ones.
        text: the consolidated text.
        labels: its tags, keywords, questions and follow-ups.
        links: the links of the new note.
        report: what the consolidation did.
        now: the current time.
    """
    whole = (new, *updated)
    return Note(
        id=successor_id(new.id),
        app_id=new.app_id,
        user_id=new.user_id,
        session_id=shared_session(whole),
        created_by=new.created_by,
        memory_note=text,
        tags=labels.fields["tags"],
        keywords=labels.fields["keywords"],
        semantic_queries=labels.fields["semantic_queries"],
        follow_up_potential=labels.fields["follow_up_potential"],
        interaction_quality=min((note.interaction_quality for note in whole), key=_DEPTHS.index),
        conversation_complexity=max(note.conversation_complexity or 0 for note in whole) or None,
        status="active",
        status_reason="consolidated",
        created_at=now,
        updated_at=now,
        links=source_links(links, {note.id for note in updated}),
        consolidation=report,
        task_id=new.task_id,
    )


# -- results ----------------------------------------------------------------------------------


def successor_id(note_id: str) -> str:
    """Return the id of the note that consolidates this one with older ones."""
    return f"{note_id}-s"


def task_result(note: Note, successor: Note | None = None) -> dict[str, object]:
    """Return the result of a task: the status of its note, the verdicts, and the report of a consolidation.

    Args:
        note: the stored note.
        successor: the note that the task has consolidated it into; None without a consolidation.
    """
    report = successor.consolidation if successor is not None else None
    heir = successor_id(note.id)
    return {
        "memory_id": note.id,
        "status": note.status,
        "operations": count_operations(note.resolutions),
        "successor_id": heir if note.next_id == heir else None,
        "consolidation": report.model_dump(mode="json") if report is not None else None,
        "degraded": list(note.degraded),
    }


def count_operations(resolutions: Iterable[Resolution]) -> Mapping[str, int]:
    """Return how often each verdict was given; a new note without similar ones is a CREATE."""
    counts = {"CREATE": 0, "UPDATE": 0, "DELETE": 0, "SKIP": 0}
    for resolution in resolutions:
        counts[resolution.operation] += 1
    counts["CREATE"] = 0 if any(counts.values()) else 1
    return counts


# -- links between notes -------------------------------------------------------------------------


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
