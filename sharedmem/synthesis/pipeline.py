"""The pipeline: a conversation becomes a note, in two phases.

First the note is written, and stored before anything else is decided. Then it is settled with similar notes. A
repeated task finds its stored note, continues from there, and pays no model for it again.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import Literal, NamedTuple, TypeVar

from pydantic import ValidationError

from sharedmem.errors import SharedMemoryError, UnavailableError
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.models import ConversationSummary, Note
from sharedmem.redis.scope import Scope
from sharedmem.redis.vectors import Vector
from sharedmem.synthesis.commit_plan import successor_id, task_result
from sharedmem.synthesis.evolution import ChainLocks
from sharedmem.synthesis.note_text import clean_items, deduplicate, format_agent_note, format_note
from sharedmem.synthesis.protocol import Agents, CommittedNotes, NewNote, NoteRepository, StaleNotes
from sharedmem.synthesis.resolver import OUTAGES, ConflictResolver, LinkedNotes, PendingNote
from sharedmem.synthesis.rule_agents import RuleAgents
from sharedmem.synthesis.rule_notes import rate_complexity
from sharedmem.synthesis.schemas import EpisodicOutput, SummaryOutput
from sharedmem.synthesis.tasks import AddAgentMemoryTask, AddMemoryTask, CallerTask, SummarizeTask

T = TypeVar("T")

_MOST_ATTEMPTS = 8
_DRAFT_S = 86_400
# Below it, a handover to a thread takes longer than the work.
_AT_ONCE_CHARACTERS = 20_000
_OFFLINE = "it was done without a model"


class TaskAttempt(NamedTuple):
    """One attempt at a task."""

    task_id: str
    attempt: int = 1
    is_last: bool = False
    """Whether this is the last attempt, which does not wait for outages of models."""


class Pipeline:
    """Does the tasks of synthesis.

    Args:
        context: dependencies that the hub shares with its stores.
        scope: the namespace and the actor, with the actor's rights.
        repository: stores the notes.
        agents: read, judge and write.
        chains: locks of chains; None for those of the namespace.
    """

    def __init__(  # its parts
        self,
        context: KnowledgeContext,
        scope: Scope,
        *,
        repository: NoteRepository,
        agents: Agents,
        chains: ChainLocks | None = None,
    ) -> None:
        self._context = context
        self._author = scope.identity.name
        self._repository = repository
        self._agents = agents
        self._offline: Agents = RuleAgents()
        held = chains or ChainLocks(scope, context)
        self._resolver = ConflictResolver(
            context, scope.identity.namespace, repository=repository, agents=agents, chains=held
        )

    async def do(self, request: CallerTask, turn: TaskAttempt) -> dict[str, object]:
        """Do a task and return its result; a repeated task has the same result.

        Args:
            request: the task.
            turn: the attempt.

        Returns:
            The result of the task: ids, counts, states and remarks, no texts of notes except a summary.

        Raises:
            UnavailableError, LimitedError, ConfigError: a retry may succeed.
            InvalidError: a retry would fail in the same way.
        """
        match request:
            case AddMemoryTask():
                note = await self.add_memory(request, turn)
                return task_result(note, await self._successor(note))
            case AddAgentMemoryTask():
                return task_result(await self.add_agent_memory(request, turn))
            case SummarizeTask():
                summary = await self.summarize(request, is_last=turn.is_last)
                return {"summary": summary.model_dump(mode="json")}

    async def _successor(self, note: Note) -> Note | None:
        """Return the note that a note was consolidated into by its own task. One round trip if there is one."""
        id_ = successor_id(note.id)
        return (await self._repository.get(note.app_id, (id_,))).get(id_) if note.next_id == id_ else None

    # -- the three kinds of tasks

    async def add_memory(self, request: AddMemoryTask, turn: TaskAttempt) -> Note:
        """Make a note of a conversation, and settle it with known notes; return the stored note.

        A dozen round trips, and at most four calls of models: two to read the conversation, one to judge, one to
        write a successor.

        Args:
            request: the conversation, with its app and user.
            turn: the id of the note is derived from its task.

        Raises:
            UnavailableError, LimitedError, ConfigError: a provider or the server is unavailable. In the last attempt
                only if the vector is missing: a note that cannot be found is not stored.
        """
        note_id = note_id_of(turn.task_id)
        note = (await self._repository.get(request.app_id, (note_id,))).get(note_id)
        if note is not None and note.status != "conflict_pending":
            return note
        if note is not None:
            vector = await self._resolver.embed(note.memory_note)
            links = await self._resolver.links(note, vector)
        else:
            note, vector = await self._written(request, turn)
            note, links = await self._stored(note, vector)
        if note.status != "conflict_pending":
            return note
        return await self._resolver.settle(PendingNote(note, vector, is_last=turn.is_last), links.chains)

    async def add_agent_memory(self, request: AddAgentMemoryTask, turn: TaskAttempt) -> Note:
        """Make a short note of a conversation: one call of a model, links to similar notes, no conflict resolution.

        Args, Raises: as `add_memory`.
        """
        note_id = note_id_of(turn.task_id)
        found = (await self._repository.get(request.app_id, (note_id,))).get(note_id)
        if found is not None:
            return found
        note, vector = await self._written(request, turn)
        links = await self._resolver.links(note, vector)
        linked = note.model_copy(update={"links": links.links})
        done = await self._repository.commit(request.app_id, fresh=(NewNote(linked, vector),))
        assert isinstance(done, CommittedNotes), "nothing was asked that could have changed"
        return done.notes[note.id]

    async def summarize(self, request: SummarizeTask, *, is_last: bool = True) -> ConversationSummary:
        """Return a summary of a conversation; nothing is stored. One call of a model, or two for `full`.

        Args:
            request: the conversation.
            is_last: whether this is the last attempt: during an outage the heuristic is used.

        Raises:
            UnavailableError, LimitedError, ConfigError: the model is unavailable, and a retry follows.
        """
        if request.mode == "fast":
            summary, _ = await self._fast(request, is_last=is_last)
            return summary
        episodic, summary_parts, lacks = await self._read(request, is_last=is_last)
        return ConversationSummary(
            summary=format_note(episodic, summary_parts),
            mode="full",
            tags=_clean_tags(summary_parts.retrieval.tags),
            keywords=_clean_tags(summary_parts.retrieval.keywords),
            semantic_queries=_clean_tags(summary_parts.retrieval.queries),
            follow_ups=_clean_tags(summary_parts.metadata.follow_ups),
            depth=summary_parts.metadata.depth,
            offline=self._agents.is_offline or bool(lacks),
        )

    # -- phase one

    async def _written(
        self, request: AddMemoryTask | AddAgentMemoryTask, turn: TaskAttempt
    ) -> tuple[Note, Vector | None]:
        """Return the new note, not stored yet, with its vector."""
        digest = hashlib.sha256(f"draft {turn.task_id}".encode()).hexdigest()
        # Only an earlier attempt can have left a draft.
        note = await self._draft(request.app_id, digest) if turn.attempt > 1 else None
        if note is None:
            drafted = self._memory if isinstance(request, AddMemoryTask) else self._agent_memory
            note = await drafted(request, turn)
        try:
            vector = await self._resolver.embed(note.memory_note)
        except OUTAGES:
            await self._keep_draft(note, digest)
            raise
        if vector is None:
            lack = "it has no vector, so no search finds it: the embedder found no meaning in its text, or is missing"
            note = note.model_copy(update={"degraded": (*note.degraded, lack)})
        return note, vector

    async def _draft(self, app_id: str, digest: str) -> Note | None:
        kept = (await self._repository.remembered(app_id, (digest,))).get(digest)
        try:
            return None if kept is None else Note.model_validate_json(kept)
        except ValidationError:
            return None

    async def _keep_draft(self, note: Note, digest: str) -> None:
        """Store the answers of models as a draft; without it they are called again."""
        try:
            await self._repository.remember(note.app_id, {digest: note.model_dump_json().encode()}, ttl_s=_DRAFT_S)
        except SharedMemoryError:
            return

    async def _memory(self, request: AddMemoryTask | AddAgentMemoryTask, turn: TaskAttempt) -> Note:
        episodic, summary, lacks = await self._read(request, is_last=turn.is_last)
        retrieval, metadata = summary.retrieval, summary.metadata
        return self._note(request, turn, "memory", format_note(episodic, summary)).model_copy(
            update={
                "tags": _clean_tags(retrieval.tags),
                "keywords": _clean_tags(retrieval.keywords),
                "semantic_queries": _clean_tags(retrieval.queries),
                "follow_up_potential": _clean_tags(metadata.follow_ups),
                "interaction_quality": metadata.depth,
                "conversation_complexity": metadata.complexity or await _complexity(request),
                "degraded": lacks,
            }
        )

    async def _agent_memory(self, request: AddMemoryTask | AddAgentMemoryTask, turn: TaskAttempt) -> Note:
        summary, lacks = await self._fast(request, is_last=turn.is_last)
        return self._note(request, turn, "agent", format_agent_note(summary)).model_copy(
            update={
                "tags": _clean_tags(summary.tags),
                "keywords": _clean_tags(summary.keywords),
                "semantic_queries": _clean_tags(summary.semantic_queries),
                "follow_up_potential": _clean_tags(summary.follow_ups),
                "interaction_quality": summary.depth,
                "conversation_complexity": await _complexity(request),
                "degraded": lacks,
            }
        )

    def _note(
        self,
        request: AddMemoryTask | AddAgentMemoryTask,
        turn: TaskAttempt,
        kind: Literal["memory", "agent"],
        text: str,
    ) -> Note:
        now = self._context.clock.now()
        note_id = note_id_of(turn.task_id)
        return Note(
            id=note_id,
            app_id=request.app_id,
            user_id=request.user_id,
            session_id=request.session_id,
            created_by=self._author,
            kind=kind,
            # The conversation is kept even if the agents found no content.
            memory_note=text or "\n".join(message.content for message in request.messages),
            messages=request.messages,
            created_at=now,
            updated_at=now,
            chain_id=note_id,
            task_id=turn.task_id,
        )

    async def _stored(self, note: Note, vector: Vector | None) -> tuple[Note, LinkedNotes]:
        """Return the stored note: active if it resembles none, else pending, with the notes that it resembles."""
        for turn in range(_MOST_ATTEMPTS):
            links = await self._resolver.links(note, vector)
            # A note that is overtaken too often is settled under the locks, where other writers do not matter.
            is_alone = not links.notes and turn < _MOST_ATTEMPTS - 1
            seen = links.seen if is_alone and vector is not None else None
            pending = {"status": "active" if is_alone else "conflict_pending", "links": links.links}
            done = await self._repository.commit(
                note.app_id, fresh=(NewNote(note.model_copy(update=pending), vector),), seen=seen
            )
            if not isinstance(done, StaleNotes):
                return done.notes[note.id], links
        raise UnavailableError(f"storing note {note.id!r}", "its neighbours keep changing")

    # -- models

    async def _read(
        self, request: AddMemoryTask | AddAgentMemoryTask | SummarizeTask, *, is_last: bool
    ) -> tuple[EpisodicOutput, SummaryOutput, tuple[str, ...]]:
        """Return the results of two concurrent agents on a conversation; and the steps done without a model."""
        messages = request.messages
        readings = await asyncio.gather(
            self._or_offline("episodic", lambda agents: agents.episodic(messages), is_last=is_last),
            self._or_offline("summarizer", lambda agents: agents.summarizer(messages), is_last=is_last),
            return_exceptions=True,
        )
        for reading in readings:
            if isinstance(reading, BaseException):
                raise reading
        (episodic, lack), (summary, other) = readings  # type: ignore[misc]  # no exception is left
        return episodic, summary, tuple(filter(None, (lack, other)))

    async def _fast(
        self, request: AddMemoryTask | AddAgentMemoryTask | SummarizeTask, *, is_last: bool
    ) -> tuple[ConversationSummary, tuple[str, ...]]:
        messages = request.messages
        summary, lack = await self._or_offline(
            "fast summary", lambda agents: agents.fast_summary(messages), is_last=is_last
        )
        return summary, (lack,) if lack else ()

    async def _or_offline(self, part: str, ask: Callable[[Agents], Awaitable[T]], *, is_last: bool) -> tuple[T, str]:
        """Return a model's answer, or the heuristic's if that is unusable; and the reason, if so."""
        answer, reason = await self._resolver.useful(part, lambda: ask(self._agents), is_last=is_last, else_=_OFFLINE)
        return (await ask(self._offline), reason) if answer is None else (answer, "")


async def _complexity(request: AddMemoryTask | AddAgentMemoryTask) -> int:
    """Return how complex a conversation is, by counting; no model was asked, or it has not said it."""
    if sum(len(message.content) for message in request.messages) <= _AT_ONCE_CHARACTERS:
        return rate_complexity(request.messages)
    return await asyncio.to_thread(rate_complexity, request.messages)


def note_id_of(task_id: str) -> str:
    """Return the id of the note that a task makes, so that a repeat of the task finds the note."""
    return f"note-{task_id}"


def _clean_tags(items: tuple[str, ...]) -> tuple[str, ...]:
    return deduplicate(clean_items(items))
