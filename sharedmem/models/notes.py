"""Notes that synthesis makes of conversations, and its results."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal

from pydantic import AwareDatetime, Field, model_validator

from sharedmem.models.record import Record

NoteStatus = Literal["active", "conflict_pending", "updated", "deleted", "archived"]
"""`conflict_pending`: it is stored, but conflicts with similar notes are not resolved yet."""
StatusReason = Literal["created", "consolidated", "contradicted", "manual_update", "age_decay"]
Verdict = Literal["UPDATE", "DELETE", "SKIP"]
Recall = Literal["current", "flagged", "all"]
"""The notes that a query may return: active ones; these and pending ones; these and retired ones."""
Depth = Literal["high", "medium", "low"]
SynthesisState = Literal["pending", "running", "done", "failed"]
GraphFormat = Literal["mermaid", "dot", "html"]
ChainDirection = Literal["forward", "backward", "both"]
SummaryMode = Literal["fast", "full"]
Relationship = Literal["near_duplicate", "same_topic", "same_session", "similar", "source"]
"""`near_duplicate`: a similarity of 0.95 or more; `same_topic`: a tag or keyword in common; `similar`: by meaning
alone; `source`: the note was made of it."""


class SynthesisMessage(Record):
    """One message of a conversation."""

    role: Literal["user", "assistant", "system", "tool"]
    content: str
    name: str | None = None
    """Name of the speaker, if the role does not identify it."""
    timestamp: AwareDatetime | None = None


class Resolution(Record):
    """The decision on one older note that resembles a newer one."""

    memory_id: str
    operation: Verdict
    confidence_score: float = Field(ge=0, le=1)
    reasoning: str
    decided_by: str = ""
    """Name of the model, `rules` for the offline heuristic, `fallback` if an answer was unusable."""


class NoteLink(Record):
    """A note that another one resembles; the scores were computed when the link was made."""

    memory_id: str
    similarity_score: float | None = None
    """Cosine similarity, 0 to 1; None in notes of earlier versions."""
    composite_score: float | None = None
    """The similarity, raised by recency and importance of the older note."""
    link_strength: float | None = None
    """The composite score: what the links of a note are sorted by."""
    relationship_type: Relationship | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_id(cls, value: object) -> object:
        """Earlier versions stored the id alone."""
        return {"memory_id": value} if isinstance(value, str) else value


class ConsolidationReport(Record):
    """What a consolidation did, as its agent reports it; sharedmem adds the number of notes and the check."""

    memories_merged: int = Field(0, ge=0)
    """Number of notes in the successor, with the new one."""
    new_information_added: Depth | None = None
    """How much the new note adds; None if the model has not said it."""
    deduplication_count: int = Field(0, ge=0)
    """Number of sentences that were in several notes, and are in the successor once; a model's is an estimate."""
    quality_check: Literal["pass", "warning"] = "pass"
    """`warning` if the model has doubts, or the successor lacks a section that one of its notes has."""
    notes: str = ""
    """One sentence on what has changed, with the reason of a warning."""


class Note(Record):
    """One synthesised memory, in one version of its chain."""

    id: str
    app_id: str
    user_id: str
    session_id: str | None = None
    created_by: str | None = None
    """The actor that requested it, `shared` for the namespace itself; None in notes of earlier versions."""
    kind: Literal["memory", "agent"] = "memory"
    """`agent`: the fast path, one summary and no conflict resolution."""
    memory_note: str
    """The text, in sections."""
    tags: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    semantic_queries: tuple[str, ...] = ()
    follow_up_potential: tuple[str, ...] = ()
    interaction_quality: Depth | None = None
    conversation_complexity: int | None = Field(None, ge=1, le=5)
    """From 1 to 5; of a successor that of its most complex source. None in notes of earlier versions."""
    embedding_dimensions: int | None = None
    """Length of its vector when it was stored; None without a vector, and in notes of earlier versions."""
    messages: tuple[SynthesisMessage, ...] = ()
    """The messages that it was made of; empty for a consolidated note: its `sources` have them."""
    status: NoteStatus = "active"
    status_reason: StatusReason = "created"
    created_at: AwareDatetime
    updated_at: AwareDatetime
    next_id: str | None = None
    """The note that supersedes it."""
    sources: tuple[str, ...] = ()
    """The notes that it supersedes."""
    chain_id: str = ""
    """The first note of the oldest chain that was merged into it."""
    links: tuple[NoteLink, ...] = ()
    """Notes that it resembled when it was made."""
    resolutions: tuple[Resolution, ...] = ()
    """The decisions on these notes."""
    consolidation: ConsolidationReport | None = None
    """Of a successor: what was merged into it."""
    task_id: str | None = None
    degraded: tuple[str, ...] = ()
    """Steps that failed, in sentences: a failed model call, a rejected consolidation."""
    archived_at: AwareDatetime | None = None
    archival_location: str | None = None
    version: int = 0
    """Version of its record in Redis; 0 if it is not stored."""


class NoteHit(Record):
    """One result of a query, with the parts of its score."""

    rank: int
    similarity_score: float
    composite_score: float
    recency_score: float
    importance_score: float
    memory_note: str
    metadata: Note
    flagged: bool = False
    """Whether it has an unresolved conflict, or is no longer valid."""
    by_words: bool = False
    """Whether it was found by its words or what they are about alone: its scores may be below the thresholds."""
    relevance: float = 0.0
    """What the order follows: similarity, the question's words, and what it asks for; higher is better."""
    archived: bool = False
    """Whether its text comes from an archive; `updated_at` of its `metadata` is the time before it was archived."""


class SynthesisTask(Record):
    """A task of synthesis and its state."""

    task_id: str
    status: Literal["accepted", "pending", "running", "done", "failed"]
    attempts: int = 0
    result: dict[str, Any] | None = None
    error: str | None = None


class ConversationSummary(Record):
    """A summary that is returned, and not stored."""

    summary: str
    mode: SummaryMode = "fast"
    tags: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    semantic_queries: tuple[str, ...] = ()
    follow_ups: tuple[str, ...] = ()
    depth: Depth | None = None
    offline: bool = False
    """Whether the offline heuristic made it."""


class EvolutionGraph(Record):
    """A chain as a picture."""

    format: GraphFormat
    text: str


class NoteProblem(Record):
    """A problem that `fsck` found."""

    kind: Literal["two_heads", "dangling_next", "cycle", "unreachable", "missing_source", "not_retired"]
    note_id: str
    explanation: str
    repair: str
    """Effect of a repair."""
    repaired: bool = False


class NoteCheck(Record):
    """The result of `fsck`."""

    app_id: str
    notes: int
    chains: int
    problems: tuple[NoteProblem, ...] = ()

    @property
    def is_clean(self) -> bool:
        """Whether nothing is left to repair."""
        return all(problem.repaired for problem in self.problems)


class ArchiveReport(Record):
    """The result of archiving."""

    app_id: str
    looked_at: int
    archived: tuple[str, ...] = ()
    """Ids of notes."""
    chains: int = 0
    bytes: int = 0
    dry_run: bool = False


class EraseReport(Record):
    """The result of an erasure."""

    app_id: str
    user_id: str | None
    """None: all users."""
    notes: int = 0
    messages: int = 0
    archives: int = 0
    tasks: int = 0
    oldest: datetime | None = None
    newest: datetime | None = None
    dry_run: bool = False


class RetentionRule(Record):
    """How long notes of some kind are kept after they were retired."""

    statuses: tuple[Literal["updated", "deleted", "archived"], ...] = Field(
        ("updated", "deleted", "archived"), min_length=1
    )
    """Values of `Note.status`."""
    kinds: tuple[Literal["memory", "agent"], ...] = Field(("memory", "agent"), min_length=1)
    max_age_days: float = Field(ge=0, allow_inf_nan=False)
    """Highest age in days since the last change, which is when the note was retired or archived."""


class RetentionRules(Record):
    """The rules for erasing old notes. Active and pending notes are never erased."""

    rules: tuple[RetentionRule, ...]
    """A note may be erased if one of these rules matches."""
    keeps_heads: bool = True
    """Whether the head of a chain stays, also an archived one or one that was deleted by hand."""


class PoolStats(Record):
    """The connections of this hub."""

    mode: Literal["multiplexed", "pool"]
    """Multiplexed: all calls share one connection."""
    max_connections: int
    open_connections: int
    active: int
    """Number of calls that wait for their replies."""


def age_key(note: Note) -> tuple[datetime, str]:
    """Sort key that puts older notes first."""
    return note.created_at, note.id


def sort_by_succession(notes: Iterable[Note]) -> tuple[Note, ...]:
    """Return notes in order: each before the notes that supersede it, otherwise by age.

    Notes of a ring, which has no such order, come last.
    """
    known = {note.id: note for note in notes}
    waits_for = Counter(note.next_id for note in known.values() if note.next_id in known)
    ready = [age_key(note) for note in known.values() if not waits_for[note.id]]
    heapq.heapify(ready)
    found: dict[str, Note] = {}
    while ready:
        note = known[heapq.heappop(ready)[1]]
        found[note.id] = note
        after = known.get(note.next_id or "")
        if after is not None:
            waits_for[after.id] -= 1
            if not waits_for[after.id]:
                heapq.heappush(ready, age_key(after))
    ring = sorted((note for note in known.values() if note.id not in found), key=age_key)
    return (*found.values(), *ring)
