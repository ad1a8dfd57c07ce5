"""Protocols of synthesis: the agents that read and judge, and the repository that keeps notes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from sharedmem.models import (
    ConsolidationReport,
    ConversationSummary,
    Note,
    NoteLink,
    NoteStatus,
    Resolution,
    StatusReason,
    SynthesisMessage,
)
from sharedmem.redis.vectors import Vector
from sharedmem.synthesis.schemas import EpisodicOutput, SummaryOutput

# -- agents -----------------------------------------------------------------------------------


class Consolidation(NamedTuple):
    """The text of a successor, as an agent proposes it."""

    note: str
    by: str
    """Name of the model, or `rules`."""
    report: ConsolidationReport = ConsolidationReport()
    """What the agent says of it."""


class Agents(Protocol):
    """Read conversations, judge conflicts and write successors.

    Every call raises `InvalidError` if an answer is unusable after repair and one retry, and `UnavailableError`,
    `LimitedError` or `ConfigError` as providers do. Agents never invent an answer: the caller decides what to do then.
    """

    @property
    def name(self) -> str:
        """Name of the model, or `rules`."""

    @property
    def is_offline(self) -> bool:
        """Whether it is the heuristic."""

    async def episodic(self, messages: Sequence[SynthesisMessage]) -> EpisodicOutput:
        """Return the analysis of the interaction."""

    async def summarizer(self, messages: Sequence[SynthesisMessage]) -> SummaryOutput:
        """Return the summary of the content."""

    async def fast_summary(self, messages: Sequence[SynthesisMessage]) -> ConversationSummary:
        """Return a plain text, in one call."""

    async def judge(self, new: Note, linked: Sequence[Note]) -> list[Resolution]:
        """Return one resolution for each linked note, in their order; invented ids are rejected."""

    async def consolidate(self, new: Note, old: Sequence[Note]) -> Consolidation:
        """Return the successor of all of them; the question contains their whole texts."""


PermissionCheck = Callable[[Note], None]
"""Raises `AccessDeniedError` if an actor may not change or erase a note."""


# -- repository -------------------------------------------------------------------------------


class UserNotesVersion(NamedTuple):
    """The state of one user's notes before a search: a commit with it fails if a newer change exists."""

    app_id: str
    user_id: str
    version: int


LEAST_WORD_SHARE = 0.6
"""Share of a query's distinct meaningful words from which a note that contains them is a hit: one of one, two of two or
three, three of four or five. This heuristic is not part of the article."""


class SimilarNote(NamedTuple):
    """A note, and its similarity."""

    note: Note
    similarity: float
    """Cosine similarity, 0 to 1."""
    word_share: float = 0.0
    """The share of the query's words that it contains, 0 to 1; 0 if the search by words has not found it."""


class NewNote(NamedTuple):
    """A new note with its vector."""

    note: Note
    vector: Vector | None


class NoteChange(NamedTuple):
    """A change of a stored note; None leaves a field as it is."""

    note: Note
    """The note as it was read: its version must still be the stored one."""
    status: NoteStatus | None = None
    reason: StatusReason | None = None
    next_id: str | None = None
    clears_next: bool = False
    """Removes `next_id` (a version is restored)."""
    sources: tuple[str, ...] | None = None
    chain_id: str | None = None
    links: tuple[NoteLink, ...] | None = None
    resolutions: tuple[Resolution, ...] | None = None
    degraded: tuple[str, ...] | None = None
    archived_at: datetime | None = None
    archival_location: str | None = None
    drops_body: bool = False
    """Text, messages and vector are removed (they were archived); the rest stays."""
    body: Note | None = None
    """The archived note whose text and messages are restored; it is not archived any more."""
    vector: Vector | None = None
    """A restored vector."""


class CommittedNotes(NamedTuple):
    """The commit was stored; notes by id, as they are now. For a repeat: as they were stored already."""

    notes: Mapping[str, Note]
    is_new: bool


class StaleNotes(NamedTuple):
    """Nothing was stored: a note was changed, added or erased since the read, or a fencing token is stale."""

    ids: tuple[str, ...]
    """Ids of these notes; empty if a note was added."""


class NoteRepository(Protocol):
    """Stores the notes of one namespace."""

    async def get(self, app_id: str, ids: Sequence[str]) -> dict[str, Note]:
        """Return the notes that exist, by id. One round trip."""

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
        """Return the nearest, best first, and the version. Two round trips, or one if no note is near.

        The version is taken before the search.

        Args:
            app_id, user_id, session_id, statuses: conditions on the notes.
            vector: embedding of the query; None for no search by meaning.
            terms: distinct words as `text.analysis.query_terms` spells them; notes that contain `LEAST_WORD_SHARE` of
                them follow the nearest.
            related: further words, of what a question asks for; notes that contain one of them follow too.
            k: most hits of each of the two searches.
            least_similarity: cosine from which notes are near, -1 to 1; less similar ones are only found by words.
        """

    async def commit(
        self,
        app_id: str,
        *,
        fresh: Sequence[NewNote] = (),
        changes: Sequence[NoteChange] = (),
        seen: UserNotesVersion | None = None,
        fences: Mapping[str, int] | None = None,
    ) -> CommittedNotes | StaleNotes:
        """Store everything in one atomic step, or nothing. One round trip.

        Args:
            app_id: id of the app.
            fresh: new notes; if an id exists already with the same `task_id`, the whole commit is a repeat.
            changes: changes of stored notes.
            seen: the commit fails with `StaleNotes(())` if an active or pending note of this user is newer.
            fences: the fencing token of each changed chain, by chain id; a lower one than an earlier token
                is `StaleNotes`.
        """

    async def page(self, app_id: str, *, after: str = "", limit: int = 500) -> list[Note]:
        """Return notes by id, with their texts; a call with the last id returns the next page. Two round trips."""

    async def apps(self) -> list[str]:
        """Return the apps that have notes. One round trip."""

    async def erase(self, app_id: str, ids: Sequence[str]) -> int:
        """Erase notes for good, here and in the durable tier; return how many existed. One round trip."""

    async def remembered(self, app_id: str, digests: Sequence[str]) -> dict[str, bytes]:
        """Return cached answers of models, by digest of the question. One round trip."""

    async def remember(self, app_id: str, answers: Mapping[str, bytes], *, ttl_s: int) -> None:
        """Cache answers, so that no question is paid for twice. One round trip."""

    async def clear_answers(self, app_id: str) -> int:
        """Delete all cached answers of an app; return how many. As many round trips as the namespace has pages."""
