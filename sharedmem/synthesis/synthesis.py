"""The facade `store.synthesis`: turn conversations into notes, query them and maintain them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.models import (
    ArchiveReport,
    ConversationSummary,
    EraseReport,
    EvolutionGraph,
    GraphFormat,
    Note,
    NoteCheck,
    NoteHit,
    NoteStatus,
    PoolStats,
    Recall,
    RetentionRules,
    StatusReason,
    SynthesisTask,
)
from sharedmem.models.notes import ChainDirection, SummaryMode, SynthesisMessage
from sharedmem.redis.scope import Need, Scope
from sharedmem.runtime import Counters, measured
from sharedmem.runtime.concurrency import ProcessBound
from sharedmem.synthesis.batcher import Batcher
from sharedmem.synthesis.consistency import fsck
from sharedmem.synthesis.note_repository import NOTES_COLLECTION
from sharedmem.synthesis.note_text import check_fuzzy_matching
from sharedmem.synthesis.tasks import (
    AddAgentMemoryTask,
    AddMemoryTask,
    CallerTask,
    SummarizeTask,
    check_id,
    check_messages,
)
from sharedmem.synthesis.worker import SynthesisServices
from sharedmem.visualization import draw_chain

ConversationInput: TypeAlias = Sequence[SynthesisMessage | Mapping[str, object]] | str
NoteProgress: TypeAlias = Callable[[int], None]
"""Called with the number of notes that were read."""


class Synthesis(ProcessBound):
    """Turns conversations of one namespace into notes, which are consolidated and superseded, and never lost.

    Notes belong to an app and a user, optionally to a session; `app_id` is part of every call.

    Args:
        context: dependencies that the hub shares with its stores.
        scope: the namespace and the actor.
        services: the services that do the work.
    """

    def __init__(self, context: KnowledgeContext, scope: Scope, services: SynthesisServices) -> None:
        self._context = context
        self._scope = scope
        self._services = services
        self._namespace = scope.identity.namespace

    @property
    def _counters(self) -> Counters:
        return self._context.counters

    def _permit(self, need: Need) -> None:
        """Reject an actor that may not read or write the namespace's notes."""
        self._scope.common(NOTES_COLLECTION, need)

    async def _put(self, request: CallerTask, task_id: str | None) -> SynthesisTask:
        self._permit("write")
        if request.callback_url is not None:
            await self._services.webhooks.check(request.callback_url)
        task = await self._services.intake.put(request, idempotency_key=task_id)
        self._services.worker.start()
        return task

    # -- making notes

    @measured("synthesis.add_memory")
    async def add_memory(
        self,
        *,
        app_id: str,
        user_id: str,
        messages: Sequence[SynthesisMessage | Mapping[str, object]],
        session_id: str | None = None,
        callback_url: str | None = None,
        task_id: str | None = None,
    ) -> SynthesisTask:
        """Put a task: make a note of a conversation, and settle it with known notes. Returns at once; two round trips.

        The first call of a hub starts its workers (setting `synthesis_concurrency`). `wait` and `get_task_status`
        return the outcome.

        Args:
            app_id: id of the app; free text up to 256 bytes, without braces.
            user_id: id of the user, with the same limits.
            messages: the messages, or mappings with `role` and `content`; at most 30 (setting
                `synthesis_max_messages`).
            session_id: id of the session; then the note is settled only with notes of this session.
            callback_url: URL that receives the outcome.
            task_id: a key of yours: a repeated key of the same user returns the same task.

        Raises:
            InvalidError: an argument is invalid; nothing was written.
            AccessDeniedError, UnavailableError: as `write`.
        """
        request = AddMemoryTask(
            app_id=app_id,
            user_id=user_id,
            session_id=session_id,
            messages=check_messages(messages, self._context.settings),
            callback_url=callback_url,
        )
        return await self._put(request, task_id)

    @measured("synthesis.add_agent_memory")
    async def add_agent_memory(
        self,
        *,
        app_id: str,
        user_id: str,
        messages: ConversationInput,
        session_id: str | None = None,
        callback_url: str | None = None,
        task_id: str | None = None,
    ) -> SynthesisTask:
        """Put a task: make a short note, without conflict resolution: one call of a model. Returns at once.

        Args:
            messages: the messages, or a text, which counts as one message of the agent.
            app_id, user_id, session_id, callback_url, task_id: as `add_memory` takes them.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `add_memory`.
        """
        request = AddAgentMemoryTask(
            app_id=app_id,
            user_id=user_id,
            session_id=session_id,
            messages=check_messages(_to_messages(messages), self._context.settings),
            callback_url=callback_url,
        )
        return await self._put(request, task_id)

    @measured("synthesis.summarize_conversation")
    async def summarize_conversation(
        self,
        *,
        app_id: str,
        user_id: str,
        messages: ConversationInput,
        mode: SummaryMode = "fast",
        callback_url: str | None = None,
        task_id: str | None = None,
    ) -> ConversationSummary | SynthesisTask:
        """Return a summary of a conversation; nothing is stored.

        Args:
            messages: the messages, or a text.
            mode: `fast` returns a text; `full` also tags, keywords and open points, with two calls of a model.
            callback_url: with a URL the call returns a task at once, and the summary is sent there.
            app_id, user_id, task_id: as `add_memory` takes them.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `add_memory`.
        """
        request = SummarizeTask(
            app_id=app_id,
            user_id=user_id,
            mode=mode,
            messages=check_messages(_to_messages(messages), self._context.settings),
            callback_url=callback_url,
        )
        if callback_url is not None:
            return await self._put(request, task_id)
        self._permit("write")
        check_id("app_id", app_id)
        check_id("user_id", user_id)
        return await self._services.pipeline.summarize(request)

    def batcher(
        self,
        *,
        app_id: str,
        user_id: str,
        session_id: str | None = None,
        size: int | None = None,
        wait_s: float = 30.0,
    ) -> Batcher:
        """Return a batcher, which makes a note after so many messages or so much time. No round trip.

        Args:
            size: messages of a note; None for the most that one note is made from.
            wait_s: seconds after which a note is made although there are fewer.
            app_id, user_id, session_id: as `add_memory` takes them.

        Raises:
            InvalidError, AccessDeniedError: as `add_memory`.
        """
        self.start()
        return Batcher(
            self._context,
            self._scope,
            self._services.intake,
            app_id=app_id,
            user_id=user_id,
            session_id=session_id,
            size=size,
            wait_s=wait_s,
        )

    # -- tasks

    @measured("synthesis.get_task_status")
    async def get_task_status(self, task_id: str) -> SynthesisTask:
        """Return the state of a task: pending, running, done with its result, or failed with a reason. One round trip.

        Raises:
            NotFoundError: the task does not exist, or its result has expired (setting `synthesis_result_s`).
            AccessDeniedError, UnavailableError: as `read`.
        """
        return await self._services.intake.status(task_id)

    async def wait(self, task_id: str, *, timeout: float | None = None) -> SynthesisTask:  # noqa: ASYNC109  # as queues
        """Return what `get_task_status` returns, as soon as the task is done or has failed.

        Args:
            task_id: id of the task.
            timeout: seconds; then the task is returned in its current state. None waits without limit.

        Raises:
            NotFoundError, AccessDeniedError, UnavailableError: as `get_task_status`.
        """
        self._permit("read")
        self.start()
        return await self._services.intake.wait(task_id, timeout=timeout)

    async def tasks(self, *, limit: int = 100) -> list[SynthesisTask]:
        """Return the tasks that run, wait, or have failed. Four round trips.

        Args:
            limit: most tasks of each state, up to 1000.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `read`.
        """
        return await self._services.intake.list(limit)

    async def retry_task(self, task_id: str) -> bool:
        """Retry a failed task; return False if it does not exist. One round trip.

        Raises:
            AccessDeniedError, UnavailableError: as `write`.
        """
        done = await self._services.intake.redrive(task_id)
        self.start()
        return done

    def start(self) -> None:
        """Start the workers of this hub in the background, as the first `add_memory` does. No round trip.

        Raises:
            UsageError: the hub is closed.
        """
        self._services.worker.start()

    async def drain(self) -> None:
        """Claim no more tasks in this hub, and return when the running ones have ended."""
        await self._services.worker.drain()

    async def work_once(self, *, wait: float | None = 0.0) -> bool:
        """Claim one task and do it, for workers of your own; return False if there is no task.

        Args:
            wait: seconds to wait for a task; None waits without limit.

        Raises:
            SharedMemoryError: the task has failed; the queue retries it, or has made it a dead letter.
        """
        return await self._services.worker.work_once(wait=wait)

    # -- searching and reading notes

    @measured("synthesis.query_memory")
    async def query_memory(
        self,
        *,
        app_id: str,
        query: str,
        n_results: int | None = None,
        user_id: str | None = None,
        session_id: str | None = None,
        similarity_threshold: float | None = None,
        recall: Recall = "current",
        archived: bool = False,
    ) -> list[NoteHit]:
        """Return the notes that answer a question, best first, by composite score. Two round trips.

        The search is by meaning and by words: a note that contains at least 3 of 5 of the question's meaningful words
        is a hit too (`by_words`), however low its similarity. Without an embedder only words find notes.

        Args:
            app_id: id of the app.
            query: the question, in words.
            n_results: most notes; None uses the setting `synthesis_results`.
            user_id: only notes of this user; None means all users of the app.
            session_id: only notes of this session.
            similarity_threshold: least cosine similarity, 0 to 1, of every hit; None uses the setting, which does
                not apply to hits by words.
            recall: `current` notes; `flagged` also notes that are not settled yet; `all` also retired notes.
            archived: whether to look into archives too. This reads every note of the app, a few hundred a round trip,
                and the archives of up to 100 notes, whose texts are embedded and ranked with the rest.

        Raises:
            InvalidError: an argument is invalid.
            AccessDeniedError, UnavailableError: as `read`.
        """
        self._permit("read")
        return await self._services.search.query(
            app_id,
            query,
            user_id=user_id,
            session_id=session_id,
            n=n_results,
            recall=recall,
            archived=archived,
            recall_threshold=similarity_threshold,
        )

    @measured("synthesis.apps")
    async def apps(self) -> list[str]:
        """Return the ids of the apps that have notes, sorted. One round trip.

        Raises:
            AccessDeniedError, UnavailableError: as `read`.
        """
        return await self._services.repository.apps()

    @measured("synthesis.list_memories")
    async def list_memories(self, *, app_id: str, after: str = "", limit: int = 100) -> list[Note]:
        """Return the notes of an app in the order of their ids, whatever their status, page by page. Two round trips.

        Args:
            app_id: id of the app.
            after: id of the last note of the page before; empty for the first page.
            limit: most notes, 1 to 1,000.

        Returns:
            The notes; none after the last page.

        Raises:
            InvalidError: the id or the limit is invalid.
            AccessDeniedError, UnavailableError: as `read`.
        """
        self._permit("read")
        check_id("app_id", app_id)
        return await self._services.repository.page(app_id, after=after, limit=limit)

    @measured("synthesis.get_memory")
    async def get_memory(self, memory_id: str, *, app_id: str) -> Note | None:
        """Return one note, whatever its status; None if it does not exist. One round trip.

        An archived note has no text: `archival_location` has the place, and `get_archived` reads it.

        Raises:
            InvalidError: an id is invalid.
            AccessDeniedError, UnavailableError: as `read`.
        """
        return (await self._services.repository.get(check_id("app_id", app_id), [memory_id])).get(memory_id)

    @measured("synthesis.traverse_memory_evolution_chain")
    async def traverse_memory_evolution_chain(
        self, memory_id: str, *, app_id: str, direction: ChainDirection = "forward"
    ) -> list[Note]:
        """Return the successors of a note, in order; or its sources. A round trip for each generation.

        Args:
            memory_id: id of the first note.
            app_id: id of the app.
            direction: `forward` along successors, `backward` along sources, with branches, or `both`.

        Raises:
            NotFoundError: there is no such note.
            InvalidError, AccessDeniedError, UnavailableError: as `get_memory`.
        """
        return list((await self._services.evolution.chain(app_id, memory_id, direction)).notes)

    def generate_evolution_graph(self, chain: Sequence[Note], format: GraphFormat = "mermaid") -> EvolutionGraph:  # noqa: A002  # the name users know
        """Return a drawing of a chain. No round trip.

        Args:
            chain: the result of `traverse_memory_evolution_chain`, with any direction.
            format: `mermaid`, `dot` (Graphviz) or `html`, a self-contained page.

        Raises:
            InvalidError: the format is invalid.
        """
        return draw_chain(chain, format)

    @measured("synthesis.draw_evolution")
    async def draw_evolution(
        self,
        memory_id: str,
        *,
        app_id: str,
        format: GraphFormat = "mermaid",  # noqa: A002  # likewise
    ) -> EvolutionGraph:
        """Return a drawing of the sources and successors of a note. A round trip for each generation.

        Raises:
            NotFoundError: there is no such note.
            InvalidError, AccessDeniedError, UnavailableError: as `get_memory`.
        """
        return draw_chain(
            (await self._services.evolution.chain(app_id, memory_id, "both")).notes, format, chosen=memory_id
        )

    # -- changing notes by hand

    @measured("synthesis.delete_memory")
    async def delete_memory(self, memory_id: str, *, app_id: str) -> bool:
        """Mark a note as deleted; False if it does not exist. Its text stays until `erase`. About four round trips.

        Raises:
            InvalidError: the note is archived; unarchive it first.
            ConflictError: other callers keep changing its chain.
            AccessDeniedError, UnavailableError: as `write`.
        """
        self._permit("write")
        if await self.get_memory(memory_id, app_id=app_id) is None:
            return False
        await self._services.evolution.delete(app_id, memory_id)
        return True

    @measured("synthesis.update_memory_status")
    async def update_memory_status(
        self,
        memory_id: str,
        new_status: NoteStatus,
        *,
        app_id: str,
        archive_reason: StatusReason = "manual_update",
    ) -> Note:
        """Change the status of a note by hand; return the changed note. About four round trips.

        Args:
            memory_id: id of the note.
            new_status: `deleted`; or `active` for a note that was deleted by hand or is not settled yet.
            app_id: id of the app.
            archive_reason: `manual_update`; the other reasons are set by synthesis only.

        Raises:
            NotFoundError: there is no such note.
            InvalidError: this change is not possible by hand; the message contains the call to use instead.
            ConflictError: other callers keep changing its chain.
            AccessDeniedError, UnavailableError: as `write`.
        """
        self._permit("write")
        return await self._services.evolution.set_status(app_id, memory_id, new_status, archive_reason)

    @measured("synthesis.restore_memory")
    async def restore_memory(self, memory_id: str, *, app_id: str) -> Note:
        """Make an earlier version the current one: a new note with its text, the head of the chain.

        Returns:
            The note that is current now.

        Raises:
            NotFoundError: there is no such note.
            InvalidError: the note is archived; unarchive it first.
            ConflictError: other callers keep changing its chain.
            AccessDeniedError, UnavailableError: as `write`.
        """
        self._permit("write")
        return await self._services.evolution.restore(app_id, memory_id)

    # -- maintenance

    @measured("synthesis.fsck")
    async def fsck(self, *, app_id: str, repair: bool = False, progress: NoteProgress | None = None) -> NoteCheck:
        """Check that no message is lost, no chain has two heads, and none ends in a missing note or is a circle.

        Reads every note of the app, a few hundred a round trip. A repair erases nothing.

        Args:
            app_id: id of the app.
            repair: whether to repair the problems.
            progress: called with the number of notes read so far.

        Raises:
            InvalidError: the id is invalid.
            AccessDeniedError, UnavailableError: as `read`; repairing as `write`.
        """
        self._permit("write" if repair else "read")
        check_id("app_id", app_id)
        services = self._services
        return await fsck(
            services.repository, services.chains, app_id, repair=repair, permit=services.permit, progress=progress
        )

    @measured("synthesis.archive")
    async def archive(
        self, *, app_id: str, dry_run: bool = False, progress: NoteProgress | None = None
    ) -> ArchiveReport:
        """Archive old chains: texts, messages and vectors move to the blob store, where they are still readable.

        A whole chain is archived, once each of its notes is older than `synthesis_archive_after_days` and its recency
        is low.

        Args:
            app_id: id of the app.
            dry_run: whether to only return what would be archived.
            progress: called with the number of notes read so far.

        Raises:
            InvalidError: the id is invalid.
            ConflictError: other callers keep changing a chain.
            AccessDeniedError, UnavailableError: as `write`; or the blob store is unavailable.
        """
        self._permit("write")
        check_id("app_id", app_id)
        return await self._services.archiver.archive(app_id, dry_run=dry_run, progress=progress)

    @measured("synthesis.get_archived")
    async def get_archived(self, memory_id: str, *, app_id: str) -> Note:
        """Return a note with its text and messages, also when it is archived; it stays archived.

        Raises:
            NotFoundError: the note or its archive does not exist.
            InvalidError, AccessDeniedError, UnavailableError: as `get_memory`; or the blob store cannot be read.
        """
        self._permit("read")
        return await self._services.archiver.get_archived(check_id("app_id", app_id), memory_id)

    @measured("synthesis.archived_memories")
    async def archived_memories(
        self, *, app_id: str, user_id: str | None = None, words: str = "", limit: int = 100
    ) -> list[Note]:
        """Return the archived notes, without their texts, newest first: queries find these with `archived=True`.

        Reads every note of the app, a few hundred a round trip.

        Args:
            app_id: id of the app.
            user_id: None means all users of the app.
            words: only notes that have each of these words among their tags, keywords, queries and open questions.
            limit: most notes.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `fsck`.
        """
        self._permit("read")
        check_id("app_id", app_id)
        return await self._services.archiver.archived(app_id, user_id=user_id, words=words, limit=limit)

    @measured("synthesis.unarchive")
    async def unarchive(self, memory_id: str, *, app_id: str) -> Note:
        """Restore the chain of an archived note with its texts and vectors; return the restored note.

        Raises:
            NotFoundError: the note or its archive does not exist.
            ConflictError: other callers keep changing its chain.
            InvalidError, AccessDeniedError, UnavailableError: as `archive`.
        """
        self._permit("write")
        return await self._services.archiver.unarchive(check_id("app_id", app_id), memory_id)

    @measured("synthesis.erase")
    async def erase(
        self,
        *,
        app_id: str,
        user_id: str | None = None,
        dry_run: bool = False,
        progress: NoteProgress | None = None,
    ) -> EraseReport:
        """Erase notes, their messages and archives, and open tasks, for good: in Redis and in the durable tier.

        After an interruption, call it again to continue. A conversation that is added for that user meanwhile may
        leave a note: call it again when no conversations are added for that user.

        Args:
            app_id: id of the app.
            user_id: None means all users of the app.
            dry_run: whether to count only; tasks are not counted then.
            progress: called with the number of notes read so far.

        Raises:
            InvalidError: an id is invalid.
            AccessDeniedError, UnavailableError: as `write`; or the tier or the blob store cannot be reached.
        """
        self._permit("write")
        check_id("app_id", app_id)
        whose = None if user_id is None else check_id("user_id", user_id)
        return await self._services.eraser.forget(app_id, whose, dry_run=dry_run, progress=progress)

    @measured("synthesis.retain")
    async def retain(
        self,
        rules: RetentionRules,
        *,
        app_id: str,
        dry_run: bool = False,
        progress: NoteProgress | None = None,
    ) -> EraseReport:
        """Erase retired notes that are older than the rules allow; the current note of a chain stays.

        Args:
            rules: the greatest age of retired notes.
            app_id: id of the app.
            dry_run: whether to count only.
            progress: called with the number of notes read so far.

        Raises:
            InvalidError: the id is invalid.
            ConflictError: other callers keep changing a chain.
            AccessDeniedError, UnavailableError: as `erase`.
        """
        self._permit("write")
        check_id("app_id", app_id)
        return await self._services.retention.apply(app_id, rules, dry_run=dry_run, progress=progress)

    # -- the system

    async def warm_up(self) -> bool:
        """Connect, create the index, load the embedder: then the first call is as fast as later ones.

        Raises:
            UnavailableError: the server or the embedder cannot be reached.
        """
        await self._context.notes.ensure(self._namespace)
        embedder = self._context.embedder_of(self._namespace)
        if embedder is not None:
            await embedder.embed(["warm up"])
        return True

    async def get_connection_pool_stats(self) -> PoolStats:
        """Return the state of this hub's connections to Redis. No round trip."""
        client = self._context.client
        return PoolStats(
            mode="multiplexed" if client.is_multiplexed else "pool",
            max_connections=self._context.settings.max_connections,
            open_connections=client.load.open,
            active=client.load.waiting,
        )

    def __repr__(self) -> str:
        return f"<Synthesis of {self._namespace}, {self._services.agents.name}>"


def build_synthesis(context: KnowledgeContext, scope: Scope) -> Synthesis:
    """Return the synthesis of a namespace, with the rights of an actor. No round trip.

    Raises:
        UnsupportedError: the extra `synthesis`, or a requirement of the settings, is not installed.
    """
    check_fuzzy_matching()
    return Synthesis(context, scope, SynthesisServices(context, scope))


def _to_messages(conversation: ConversationInput) -> Sequence[SynthesisMessage | Mapping[str, object]]:
    return [SynthesisMessage(role="assistant", content=conversation)] if isinstance(conversation, str) else conversation
