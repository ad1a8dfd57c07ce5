"""Notes that synthesis makes of conversations, and its results."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal

from pydantic import AwareDatetime, Field

from sharedmem.models.record import Record

NoteStatus = Literal["active", "conflict_pending", "updated", "deleted", "archived"]
"""`conflict_pending`: it is kept, and not yet settled with the notes that it resembles."""
StatusReason = Literal["created", "consolidated", "contradicted", "manual_update", "age_decay"]
Verdict = Literal["UPDATE", "DELETE", "SKIP"]
Recall = Literal["current", "flagged", "all"]
"""Of which notes a query may answer: active ones; those and pending ones; those and what was retired."""
Depth = Literal["high", "medium", "low"]
SynthesisState = Literal["pending", "running", "done", "failed"]
GraphFormat = Literal["mermaid", "dot", "html"]
ChainDirection = Literal["forward", "backward", "both"]
SummaryMode = Literal["fast", "full"]


class SynthesisMessage(Record):
    """One message of a conversation."""

    role: Literal["user", "assistant", "system", "tool"]
    content: str
    name: str | None = None
    """Who speaks, where the role does not say it."""
    timestamp: AwareDatetime | None = None


class Resolution(Record):
    """What was decided of one older note when a newer one was found to resemble it."""

    memory_id: str
    operation: Verdict
    confidence_score: float = Field(ge=0, le=1)
    reasoning: str
    decided_by: str = ""
    """Name of the model, `rules` for the offline heuristic, `fallback` when an answer was of no use."""


class Note(Record):
    """One synthesised memory, in one version of its chain."""

    id: str
    app_id: str
    user_id: str
    session_id: str | None = None
    created_by: str | None = None
    """The actor who asked for it, `shared` for the namespace itself; None in notes of earlier versions."""
    kind: Literal["memory", "agent"] = "memory"
    """`agent`: the fast path, one summary and no conflict resolution."""
    memory_note: str
    """The text, in sections."""
    tags: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    semantic_queries: tuple[str, ...] = ()
    follow_up_potential: tuple[str, ...] = ()
    interaction_quality: Depth | None = None
    messages: tuple[SynthesisMessage, ...] = ()
    """What it was made of; a consolidated note has none: those lie with its `sources`."""
    status: NoteStatus = "active"
    status_reason: StatusReason = "created"
    created_at: AwareDatetime
    updated_at: AwareDatetime
    next_id: str | None = None
    """The note that has taken its place."""
    sources: tuple[str, ...] = ()
    """The notes whose place it has taken."""
    chain_id: str = ""
    """The first note of the oldest chain that has come together in it."""
    links: tuple[str, ...] = ()
    """Notes that it resembled when it was made."""
    resolutions: tuple[Resolution, ...] = ()
    """What was decided of those."""
    task_id: str | None = None
    degraded: tuple[str, ...] = ()
    """What could not be done as asked, in sentences: a model that failed, a consolidation that was rejected."""
    archived_at: AwareDatetime | None = None
    archival_location: str | None = None
    version: int = 0
    """Of its record in Redis; 0 for one that is not stored."""


class NoteHit(Record):
    """One answer to a query, with the parts of its score."""

    rank: int
    similarity_score: float
    composite_score: float
    recency_score: float
    importance_score: float
    memory_note: str
    metadata: Note
    flagged: bool = False
    """Whether it is not settled, or not valid any more."""
    by_words: bool = False
    """Whether it was found by its words alone: its scores may be below the thresholds."""


class SynthesisTask(Record):
    """Something that synthesis was asked to do, and how far it is."""

    task_id: str
    status: Literal["accepted", "pending", "running", "done", "failed"]
    attempts: int = 0
    result: dict[str, Any] | None = None
    error: str | None = None


class ConversationSummary(Record):
    """A summary that is told, and not stored."""

    summary: str
    mode: SummaryMode = "fast"
    tags: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    semantic_queries: tuple[str, ...] = ()
    follow_ups: tuple[str, ...] = ()
    depth: Depth | None = None
    offline: bool = False
    """Whether it was made by the heuristic."""


class EvolutionGraph(Record):
    """A chain as a picture."""

    format: GraphFormat
    text: str


class NoteProblem(Record):
    """Something that `fsck` has found."""

    kind: Literal["two_heads", "dangling_next", "cycle", "unreachable", "missing_source", "not_retired"]
    note_id: str
    explanation: str
    repair: str
    """What repairing would do."""
    repaired: bool = False


class NoteCheck(Record):
    """What `fsck` has looked at, and found."""

    app_id: str
    notes: int
    chains: int
    problems: tuple[NoteProblem, ...] = ()

    @property
    def is_clean(self) -> bool:
        """Whether nothing is left to repair."""
        return all(problem.repaired for problem in self.problems)


class ArchiveReport(Record):
    """What was archived."""

    app_id: str
    looked_at: int
    archived: tuple[str, ...] = ()
    """Ids of notes."""
    chains: int = 0
    bytes: int = 0
    dry_run: bool = False


class EraseReport(Record):
    """What was erased for good."""

    app_id: str
    user_id: str | None
    """None: everybody's."""
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
    """As `Note.status`."""
    kinds: tuple[Literal["memory", "agent"], ...] = Field(("memory", "agent"), min_length=1)
    max_age_days: float = Field(ge=0, allow_inf_nan=False)
    """Since it was last changed, which is when it was retired or archived."""


class RetentionRules(Record):
    """What may be erased. A note that is active, or waits to be settled, never is."""

    rules: tuple[RetentionRule, ...]
    """A note may go when one of them says so."""
    keeps_heads: bool = True
    """Whether the head of a chain stays, also an archived one or one that was deleted by hand."""


class PoolStats(Record):
    """How this hub is connected."""

    mode: Literal["multiplexed", "pool"]
    """Multiplexed: all calls share one connection."""
    max_connections: int
    open_connections: int
    active: int
    """Calls that wait for their answers."""


def age_key(note: Note) -> tuple[datetime, str]:
    """Sort key that puts older notes first."""
    return note.created_at, note.id


def sort_by_succession(notes: Iterable[Note]) -> tuple[Note, ...]:
    """Notes in the order in which they came about: each before those that took its place, else by age.

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
