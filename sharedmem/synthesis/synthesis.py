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
    SynthesisMessage,
    SynthesisTask,
)
from sharedmem.models.notes import ChainDirection, SummaryMode
from sharedmem.redis.scope import Need, Scope
from sharedmem.runtime import Counters, measured
from sharedmem.runtime.process_bound import ProcessBound
from sharedmem.synthesis.batcher import Batcher
from sharedmem.synthesis.maintenance.fsck import fsck
from sharedmem.synthesis.note_repository.repository import NOTES_COLLECTION
from sharedmem.synthesis.services import SynthesisServices
from sharedmem.synthesis.tag_cleanup import check_fuzzy_matching
from sharedmem.synthesis.tasks import (
    AddAgentMemoryTask,
    AddMemoryTask,
    CallerTask,
    SummarizeTask,
    check_id,
    check_messages,
)
from sharedmem.visualization.chain import draw_chain

ConversationInput: TypeAlias = Sequence[SynthesisMessage | Mapping[str, object]] | str
NoteProgress: TypeAlias = Callable[[int], None]
"""Called with the number of notes that were read."""


class Synthesis(ProcessBound):
    """Conversations of one namespace become notes, which are consolidated and superseded, and never lost.

    Notes belong to an app and a user, perhaps to a session; `app_id` is part of every call.

    Args:
        context: dependencies that the hub shares with its stores.
        scope: the namespace and the actor.
        services: do the work.
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
        """Raise AccessDeniedError where this actor may not read or write the namespace's notes."""
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
        """Have a note made of a conversation, and settled with what is known. Answers at once; two round trips.

        The first call of a hub starts its workers (setting `synthesis_concurrency`). `wait` and `get_task_status` tell
        how it went.

        Args:
            app_id: whose notes; free text up to 256 bytes, without braces.
            user_id: whose conversation it is, likewise.
            messages: or mappings with `role` and `content`; 30 at most (setting `synthesis_max_messages`).
            session_id: which conversation it is; it is then settled with notes of this session alone.
            callback_url: who is told how it went.
            task_id: a key of yours: the same one of the same user answers the same task.

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
        """Have a short note made, without conflict resolution: one call of a model. Answers at once.

        Args:
            messages: or a text, which counts as one message of the agent.
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
        """Return what a conversation was about; nothing is stored.

        Args:
            messages: or a text.
            mode: `fast` writes a text; `full` also tags, keywords and what is still open, with two calls of a model.
            callback_url: with it a task is answered at once, and the summary goes there.
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
        """Collects the messages of a conversation, and has notes made of them, so many or so long after. No round trip.

        Args:
            size: messages of a note; None takes the most that one is made of.
            wait_s: seconds after which a note is made though there are fewer.
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
        """Return how far a task is: pending, running, done with its result, or failed with its reason. One round trip.

        Raises:
            NotFoundError: the task does not exist, or its result has expired (setting `synthesis_result_s`).
            AccessDeniedError, UnavailableError: as `read`.
        """
        return await self._services.intake.status(task_id)

    async def wait(self, task_id: str, *, timeout: float | None = None) -> SynthesisTask:  # noqa: ASYNC109  # as queues
        """As `get_task_status`, as soon as the task is done or has failed.

        Args:
            task_id: what adding answered.
            timeout: seconds; then the task is answered as it stands. None waits for as long as it takes.

        Raises:
            NotFoundError, AccessDeniedError, UnavailableError: as `get_task_status`.
        """
        self._permit("read")
        self.start()
        return await self._services.intake.wait(task_id, timeout=timeout)

    async def tasks(self, *, limit: int = 100) -> list[SynthesisTask]:
        """Return the tasks under way, those that wait, and those that have failed. Four round trips.

        Args:
            limit: of each state, up to 1000.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `read`.
        """
        return await self._services.intake.list(limit)

    async def retry_task(self, task_id: str) -> bool:
        """Try a task that has failed again; False if none exists. One round trip.

        Raises:
            AccessDeniedError, UnavailableError: as `write`.
        """
        done = await self._services.intake.redrive(task_id)
        self.start()
        return done

    def start(self) -> None:
        """Work on tasks in the background of this hub, as the first `add_memory` does. No round trip.

        Raises:
            UsageError: the hub is closed.
        """
        self._services.worker.start()

    async def drain(self) -> None:
        """Take no more tasks in this hub, and return when those under way have ended."""
        await self._services.worker.drain()

    async def work_once(self, *, wait: float | None = 0.0) -> bool:
        """Take one task and do it, for those who run workers of their own; False if none exists.

        Args:
            wait: seconds to wait for one; None for as long as it takes.

        Raises:
            SharedMemoryError: the task has failed; the queue knows, and tries it again or has given it up.
        """
        return await self._services.worker.work_once(wait=wait)

    # -- finding and reading notes

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
    ) -> list[NoteHit]:
        """Return the notes that answer a question, best first, by composite score. Two round trips.

        They are searched by meaning and by words: a note that holds at least 3 of 5 of the question's telling words is
        an answer too (`by_words`), however low its similarity. Without an embedder words alone find notes.

        Args:
            app_id: id of the app.
            query: the question, in words.
            n_results: at most so many; None uses the setting `synthesis_results`.
            user_id: only notes of this user; None means all users of the app.
            session_id: only notes of this session.
            similarity_threshold: least cosine similarity, 0 to 1, of every answer; None uses the setting, which what
                is found by words need not reach.
            recall: `current` notes; `flagged` also those that are not settled yet; `all` also what was retired.

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
            recall_threshold=similarity_threshold,
        )

    @measured("synthesis.apps")
    async def apps(self) -> list[str]:
        """Return the ids of the apps that have notes, sorted. One round trip.

        Raises:
            AccessDeniedError, UnavailableError: as `read`.
        """
        return await self._services.repository.apps()

    @measured("synthesis.get_memory")
    async def get_memory(self, memory_id: str, *, app_id: str) -> Note | None:
        """Return one note, whatever its status; None if it does not exist. One round trip.

        Of an archived note the text is away: `archival_location` says where, and `get_archived` reads it.

        Raises:
            InvalidError: an id is invalid.
            AccessDeniedError, UnavailableError: as `read`.
        """
        return (await self._services.repository.get(check_id("app_id", app_id), [memory_id])).get(memory_id)

    @measured("synthesis.traverse_memory_evolution_chain")
    async def traverse_memory_evolution_chain(
        self, memory_id: str, *, app_id: str, direction: ChainDirection = "forward"
    ) -> list[Note]:
        """Return what became of a note, in that order; or what it came from. A round trip for each generation.

        Args:
            memory_id: where to begin.
            app_id: id of the app.
            direction: `forward` along successors, `backward` along sources, with branches, or `both`.

        Raises:
            NotFoundError: there is no such note.
            InvalidError, AccessDeniedError, UnavailableError: as `get_memory`.
        """
        return list((await self._services.evolution.chain(app_id, memory_id, direction)).notes)

    def generate_evolution_graph(self, chain: Sequence[Note], format: GraphFormat = "mermaid") -> EvolutionGraph:  # noqa: A002  # the name users know
        """Return a chain as a picture. No round trip.

        Args:
            chain: what `traverse_memory_evolution_chain` answered, with any direction.
            format: `mermaid`, `dot` (Graphviz) or `html`, a page that needs nothing else.

        Raises:
            InvalidError: there is no such format.
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
        """Return where a note comes from and what became of it, as a picture. A round trip for each generation.

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
        """Mark a note as deleted; False if none exists. Its text stays until `erase`. About four round trips.

        Raises:
            InvalidError: it is archived; unarchive it first.
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
        """Change the status of a note by hand; the note as it is then. About four round trips.

        Args:
            memory_id: which.
            new_status: `deleted`; or `active` for one that was deleted by hand or waits to be settled.
            app_id: id of the app.
            archive_reason: `manual_update`; the other reasons are synthesis's own.

        Raises:
            NotFoundError: there is no such note.
            InvalidError: it cannot become that by hand; the message says what to do instead.
            ConflictError: other callers keep changing its chain.
            AccessDeniedError, UnavailableError: as `write`.
        """
        self._permit("write")
        return await self._services.evolution.set_status(app_id, memory_id, new_status, archive_reason)

    @measured("synthesis.restore_memory")
    async def restore_memory(self, memory_id: str, *, app_id: str) -> Note:
        """Make an earlier version the current one: a new note with its text, the head of the chain.

        Returns:
            The note that is valid now.

        Raises:
            NotFoundError: there is no such note.
            InvalidError: it is archived; unarchive it first.
            ConflictError: other callers keep changing its chain.
            AccessDeniedError, UnavailableError: as `write`.
        """
        self._permit("write")
        return await self._services.evolution.restore(app_id, memory_id)

    # -- maintenance

    @measured("synthesis.fsck")
    async def fsck(self, *, app_id: str, repair: bool = False, progress: NoteProgress | None = None) -> NoteCheck:
        """Check that no message is lost, no chain has two heads, and none leads nowhere or in a circle.

        Reads every note of the app, a few hundred a round trip. Repairing removes nothing.

        Args:
            app_id: id of the app.
            repair: whether to mend what is found.
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
        """Put old chains away: texts, messages and vectors go to the blob store, where they can still be read.

        A chain goes whole, when each of its notes is older than `synthesis_archive_after_days` and has faded.

        Args:
            app_id: id of the app.
            dry_run: whether to say only what would go.
            progress: called with the number of notes read so far.

        Raises:
            InvalidError: the id is invalid.
            ConflictError: other callers keep changing a chain.
            AccessDeniedError, UnavailableError: as `write`; or the blob store cannot be used.
        """
        self._permit("write")
        check_id("app_id", app_id)
        return await self._services.archiver.archive(app_id, dry_run=dry_run, progress=progress)

    @measured("synthesis.get_archived")
    async def get_archived(self, memory_id: str, *, app_id: str) -> Note:
        """Return a note with its text and messages, also when it was archived; it stays archived.

        Raises:
            NotFoundError: there is no such note, or its archive is gone.
            InvalidError, AccessDeniedError, UnavailableError: as `get_memory`; or the blob store cannot be read.
        """
        self._permit("read")
        return await self._services.archiver.get_archived(check_id("app_id", app_id), memory_id)

    @measured("synthesis.archived_memories")
    async def archived_memories(
        self, *, app_id: str, user_id: str | None = None, words: str = "", limit: int = 100
    ) -> list[Note]:
        """Return the notes that were put away, without their texts, newest first: queries do not find them any more.

        Reads every note of the app, a few hundred a round trip.

        Args:
            app_id: id of the app.
            user_id: None means all users of the app.
            words: only notes that have each of these among their tags, keywords, queries and open questions.
            limit: at most so many.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `fsck`.
        """
        self._permit("read")
        check_id("app_id", app_id)
        return await self._services.archiver.archived(app_id, user_id=user_id, words=words, limit=limit)

    @measured("synthesis.unarchive")
    async def unarchive(self, memory_id: str, *, app_id: str) -> Note:
        """Bring the chain of an archived note back, with its texts and vectors; the note as it is then.

        Raises:
            NotFoundError: there is no such note, or its archive is gone.
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
        """Erase notes, their messages and archives, and tasks that wait, for good: here and in the durable tier.

        Broken off, it goes on when it is called again. A conversation of that user that is told meanwhile may leave a
        note: erase once more when nobody adds for that user any longer.

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
        """Erase what was retired and is older than rules allow; the current note of a chain stays.

        Args:
            rules: which retired notes may be how old.
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
        """Connect, make the index, load the embedder: the first call afterwards is as quick as the others.

        Raises:
            UnavailableError: the server or the embedder cannot be reached.
        """
        await self._context.notes.ensure(self._namespace)
        embedder = self._context.embedder_of(self._namespace)
        if embedder is not None:
            await embedder.embed(["warm up"])
        return True

    async def get_connection_pool_stats(self) -> PoolStats:
        """Return how this hub is connected to Redis. No round trip."""
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
        UnsupportedError: the extra `synthesis` is missing, or what the settings name is not installed.
    """
    check_fuzzy_matching()
    return Synthesis(context, scope, SynthesisServices(context, scope))


def _to_messages(said: ConversationInput) -> Sequence[SynthesisMessage | Mapping[str, object]]:
    return [SynthesisMessage(role="assistant", content=said)] if isinstance(said, str) else said
