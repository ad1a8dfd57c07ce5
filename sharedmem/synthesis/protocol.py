"""Protocols of synthesis: the agents that read and judge, and the repository that keeps notes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from sharedmem.models import ConversationSummary, Note, NoteStatus, Resolution, StatusReason, SynthesisMessage
from sharedmem.redis.vectors import Vector
from sharedmem.synthesis.schemas import EpisodicOutput, SummaryOutput

# -- agents -----------------------------------------------------------------------------------


class Consolidation(NamedTuple):
    """The text of a successor, as an agent proposes it."""

    note: str
    by: str
    """Name of the model, or `rules`."""


class Agents(Protocol):
    """Who reads conversations, judges conflicts and writes successors.

    Every call raises `InvalidError` when an answer is of no use after repair and one more try, and `UnavailableError`,
    `LimitedError` or `ConfigError` as providers do. Nobody invents an answer: what to do then is for the caller.
    """

    @property
    def name(self) -> str:
        """Name of the model, or `rules`."""

    @property
    def is_offline(self) -> bool:
        """Whether it is the heuristic."""

    async def episodic(self, messages: Sequence[SynthesisMessage]) -> EpisodicOutput:
        """Return how they dealt with one another."""

    async def summarizer(self, messages: Sequence[SynthesisMessage]) -> SummaryOutput:
        """Return what it was about."""

    async def fast_summary(self, messages: Sequence[SynthesisMessage]) -> ConversationSummary:
        """Return a text alone, in one call."""

    async def judge(self, new: Note, linked: Sequence[Note]) -> list[Resolution]:
        """Return one resolution for each linked note, in their order; ids that were invented are refused."""

    async def consolidate(self, new: Note, old: Sequence[Note]) -> Consolidation:
        """Return the successor of all of them; their whole texts are in what is asked."""


PermissionCheck = Callable[[Note], None]
"""Raises `AccessDeniedError` where somebody may not change or erase a note."""


# -- repository -------------------------------------------------------------------------------


class UserNotesVersion(NamedTuple):
    """What a search of one user's notes has seen: a commit that goes by it fails if there is something newer."""

    app_id: str
    user_id: str
    version: int


LEAST_WORD_SHARE = 0.6
"""Share of a query's distinct telling words from which a note that holds them answers it: one of one, two of two or
three, three of four or five. A heuristic of ours, no part of the article."""


class SimilarNote(NamedTuple):
    """A note, and how near it is."""

    note: Note
    similarity: float
    """Cosine, 0 to 1."""
    word_share: float = 0.0
    """Which share of the words that were looked for it holds, 0 to 1; 0 where the search by words has not found it."""


class NewNote(NamedTuple):
    """A note to be stored, with its vector."""

    note: Note
    vector: Vector | None


class NoteChange(NamedTuple):
    """What is to become of a note that is stored; None leaves a field as it is."""

    note: Note
    """As it was read: its version must still be the one stored."""
    status: NoteStatus | None = None
    reason: StatusReason | None = None
    next_id: str | None = None
    clears_next: bool = False
    """Takes `next_id` away (a version is restored)."""
    sources: tuple[str, ...] | None = None
    chain_id: str | None = None
    links: tuple[str, ...] | None = None
    resolutions: tuple[Resolution, ...] | None = None
    degraded: tuple[str, ...] | None = None
    archived_at: datetime | None = None
    archival_location: str | None = None
    drops_body: bool = False
    """Text, messages and vector go (they were archived); the rest stays."""
    body: Note | None = None
    """Text and messages come back, of this (it was fetched from the archive), and it is archived no more."""
    vector: Vector | None = None
    """A vector comes back."""


class CommittedNotes(NamedTuple):
    """It was stored; notes by id, as they stand now. Of a repeat: as they stood already."""

    notes: Mapping[str, Note]
    is_new: bool


class StaleNotes(NamedTuple):
    """Nothing was done: a note has changed, has come or has gone since it was read, or a fencing token is stale."""

    ids: tuple[str, ...]
    """Those; empty when a new one has come."""


class NoteRepository(Protocol):
    """Where the notes of one namespace are kept."""

    async def get(self, app_id: str, ids: Sequence[str]) -> dict[str, Note]:
        """Return those that are there, by id. One round trip."""

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
        """The nearest, best first, and what was seen. Two round trips. `UserNotesVersion` is taken before the search.

        Args:
            app_id, user_id, session_id, statuses: which notes are meant.
            vector: what they should mean; None for no search by meaning.
            terms: distinct words as `text.analysis.query_terms` spells them; notes that hold `LEAST_WORD_SHARE` of
                them follow the nearest.
            k: how many each of the two searches answers at most.
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
        """Return all of it in one atomic step, or nothing. One round trip.

        Args:
            app_id: id of the app.
            fresh: new notes; one whose id is there already with the same `task_id` makes the whole a repeat.
            changes: to stored ones.
            seen: fails with `StaleNotes(())` when an active or pending note of this user has come or changed since.
            fences: the fencing token under which each chain is changed, by chain id; a lower one than was seen before
                is `StaleNotes`.
        """

    async def page(self, app_id: str, *, after: str = "", limit: int = 500) -> list[Note]:
        """Notes by id, with their texts; the whole app when called again with the last id. Two round trips."""

    async def apps(self) -> list[str]:
        """Return the apps that have notes. One round trip."""

    async def erase(self, app_id: str, ids: Sequence[str]) -> int:
        """Remove notes for good, here and in the durable tier; how many were there. One round trip."""

    async def remembered(self, app_id: str, digests: Sequence[str]) -> dict[str, bytes]:
        """Answers of models that were remembered, by digest of what they were asked. One round trip."""

    async def remember(self, app_id: str, answers: Mapping[str, bytes], *, ttl_s: int) -> None:
        """Keep answers, so that nobody argues the same again. One round trip."""

    async def clear_answers(self, app_id: str) -> int:
        """Drop all answers of an app, and say how many these were. As many round trips as the namespace has pages."""
