"""Operations of synthesis: add conversations, query notes, follow their history, archive and erase them."""

from __future__ import annotations

from sharedmem.api.operation import Operation
from sharedmem.errors import NotFoundError
from sharedmem.models import (
    ArchiveReport,
    ConversationSummary,
    EvolutionGraph,
    ForgetReport,
    GraphFormat,
    Note,
    NoteCheck,
    NoteHit,
    NoteStatus,
    PoolStats,
    Recall,
    Record,
    RetentionRules,
    StatusReason,
    SynthesisMessage,
    SynthesisTask,
)
from sharedmem.models.notes import ChainDirection, SummaryMode
from sharedmem.store import SharedMemoryStore

# -- requests: field names are those of the calls' arguments, where their meaning and limits stand ------


class AppsRequest(Record):
    """Nothing needs to be said."""


class AddMemoryRequest(Record):
    """A conversation to be remembered."""

    app_id: str
    user_id: str
    messages: list[SynthesisMessage]
    session_id: str | None = None
    callback_url: str | None = None
    task_id: str | None = None


class AddAgentMemoryRequest(Record):
    """What an agent wants remembered, as it is."""

    app_id: str
    user_id: str
    messages: list[SynthesisMessage] | str
    session_id: str | None = None
    callback_url: str | None = None
    task_id: str | None = None


class SummarizeConversation(Record):
    """A conversation to be summed up."""

    app_id: str
    user_id: str
    messages: list[SynthesisMessage] | str
    mode: SummaryMode = "fast"
    callback_url: str | None = None
    task_id: str | None = None


class QueryMemory(Record):
    """What is looked for, and among whose notes."""

    app_id: str
    query: str
    n_results: int | None = None
    user_id: str | None = None
    session_id: str | None = None
    similarity_threshold: float | None = None
    recall: Recall = "current"


class NoteRequest(Record):
    """A note."""

    app_id: str
    memory_id: str


class UpdateMemoryStatus(NoteRequest):
    """What a note is to be from now on."""

    new_status: NoteStatus
    archive_reason: StatusReason = "manual_update"


class TraverseChain(NoteRequest):
    """Which way to go from a note."""

    direction: ChainDirection = "forward"


class DrawChain(NoteRequest):
    """How to draw what a note came from and became."""

    format: GraphFormat = "mermaid"


class SynthesisTaskRequest(Record):
    """A task."""

    task_id: str


class AwaitTask(SynthesisTaskRequest):
    """A task, and for how long to wait until it is done or has failed."""

    wait: float | None = 0.0


class ListTasks(Record):
    """How many tasks to list."""

    limit: int = 100


class CheckNotes(Record):
    """Whose notes to check."""

    app_id: str
    repair: bool = False


class ArchiveNotes(Record):
    """Whose old notes to put away."""

    app_id: str
    dry_run: bool = False


class ForgetNotes(Record):
    """Whose notes to erase for good."""

    app_id: str
    user_id: str | None = None
    dry_run: bool = False


class RetainNotes(Record):
    """Which retired notes may be how old."""

    app_id: str
    rules: RetentionRules
    dry_run: bool = False


class NoArguments(Record):
    """Nothing to say."""


# -- what they do -------------------------------------------------------------------------------------


async def _add_memory(store: SharedMemoryStore, ask: AddMemoryRequest) -> SynthesisTask:
    return await store.synthesis.add_memory(
        app_id=ask.app_id,
        user_id=ask.user_id,
        messages=ask.messages,
        session_id=ask.session_id,
        callback_url=ask.callback_url,
        task_id=ask.task_id,
    )


async def _add_agent_memory(store: SharedMemoryStore, ask: AddAgentMemoryRequest) -> SynthesisTask:
    return await store.synthesis.add_agent_memory(
        app_id=ask.app_id,
        user_id=ask.user_id,
        messages=ask.messages,
        session_id=ask.session_id,
        callback_url=ask.callback_url,
        task_id=ask.task_id,
    )


async def _summarize(store: SharedMemoryStore, ask: SummarizeConversation) -> ConversationSummary | SynthesisTask:
    return await store.synthesis.summarize_conversation(
        app_id=ask.app_id,
        user_id=ask.user_id,
        messages=ask.messages,
        mode=ask.mode,
        callback_url=ask.callback_url,
        task_id=ask.task_id,
    )


async def _query(store: SharedMemoryStore, ask: QueryMemory) -> list[NoteHit]:
    return await store.synthesis.query_memory(
        app_id=ask.app_id,
        query=ask.query,
        n_results=ask.n_results,
        user_id=ask.user_id,
        session_id=ask.session_id,
        similarity_threshold=ask.similarity_threshold,
        recall=ask.recall,
    )


async def _get(store: SharedMemoryStore, ask: NoteRequest) -> Note:
    found = await store.synthesis.get_memory(ask.memory_id, app_id=ask.app_id)
    if found is None:
        raise NotFoundError("memory", ask.memory_id, f"app {ask.app_id!r} has none of that id")
    return found


async def _delete(store: SharedMemoryStore, ask: NoteRequest) -> bool:
    return await store.synthesis.delete_memory(ask.memory_id, app_id=ask.app_id)


async def _update_status(store: SharedMemoryStore, ask: UpdateMemoryStatus) -> Note:
    return await store.synthesis.update_memory_status(
        ask.memory_id, ask.new_status, app_id=ask.app_id, archive_reason=ask.archive_reason
    )


async def _restore(store: SharedMemoryStore, ask: NoteRequest) -> Note:
    return await store.synthesis.restore_memory(ask.memory_id, app_id=ask.app_id)


async def _traverse(store: SharedMemoryStore, ask: TraverseChain) -> list[Note]:
    return await store.synthesis.traverse_memory_evolution_chain(
        ask.memory_id, app_id=ask.app_id, direction=ask.direction
    )


async def _draw(store: SharedMemoryStore, ask: DrawChain) -> EvolutionGraph:
    return await store.synthesis.draw_evolution(ask.memory_id, app_id=ask.app_id, format=ask.format)


async def _task(store: SharedMemoryStore, ask: AwaitTask) -> SynthesisTask:
    if ask.wait == 0:
        return await store.synthesis.get_task_status(ask.task_id)
    return await store.synthesis.wait(ask.task_id, timeout=ask.wait)


async def _tasks(store: SharedMemoryStore, ask: ListTasks) -> list[SynthesisTask]:
    return await store.synthesis.tasks(limit=ask.limit)


async def _retry(store: SharedMemoryStore, ask: SynthesisTaskRequest) -> bool:
    return await store.synthesis.retry_task(ask.task_id)


async def _pool(store: SharedMemoryStore, _: NoArguments) -> PoolStats:
    return await store.synthesis.get_connection_pool_stats()


async def _check(store: SharedMemoryStore, ask: CheckNotes) -> NoteCheck:
    return await store.synthesis.fsck(app_id=ask.app_id, repair=ask.repair)


async def _archive(store: SharedMemoryStore, ask: ArchiveNotes) -> ArchiveReport:
    return await store.synthesis.archive(app_id=ask.app_id, dry_run=ask.dry_run)


async def _archived(store: SharedMemoryStore, ask: NoteRequest) -> Note:
    return await store.synthesis.recall_archived(ask.memory_id, app_id=ask.app_id)


async def _unarchive(store: SharedMemoryStore, ask: NoteRequest) -> Note:
    return await store.synthesis.unarchive(ask.memory_id, app_id=ask.app_id)


async def _retain(store: SharedMemoryStore, ask: RetainNotes) -> ForgetReport:
    return await store.synthesis.retain(ask.rules, app_id=ask.app_id, dry_run=ask.dry_run)


async def _forget(store: SharedMemoryStore, ask: ForgetNotes) -> ForgetReport:
    return await store.synthesis.forget(app_id=ask.app_id, user_id=ask.user_id, dry_run=ask.dry_run)


SYNTHESIS_ADD_MEMORY = Operation(
    "synthesis.add_memory", "Make a note of a conversation.", "write", AddMemoryRequest, SynthesisTask, _add_memory
)
SYNTHESIS_ADD_AGENT_MEMORY = Operation(
    "synthesis.add_agent_memory",
    "Make a note of what an agent says, without conflict resolution.",
    "write",
    AddAgentMemoryRequest,
    SynthesisTask,
    _add_agent_memory,
)
SYNTHESIS_SUMMARIZE_CONVERSATION = Operation(
    "synthesis.summarize_conversation",
    "Sum up a conversation without storing it.",
    "write",
    SummarizeConversation,
    ConversationSummary | SynthesisTask,
    _summarize,
)
SYNTHESIS_QUERY_MEMORY = Operation(
    "synthesis.query_memory", "Find notes by composite score.", "read", QueryMemory, list[NoteHit], _query
)
SYNTHESIS_APPS = Operation(
    "synthesis.apps",
    "The apps that have notes, sorted.",
    "read",
    AppsRequest,
    list[str],
    lambda store, _: store.synthesis.apps(),
)
SYNTHESIS_GET_MEMORY = Operation("synthesis.get_memory", "Read one note.", "read", NoteRequest, Note, _get)
SYNTHESIS_DELETE_MEMORY = Operation(
    "synthesis.delete_memory", "Mark a note as deleted.", "write", NoteRequest, bool, _delete
)
SYNTHESIS_UPDATE_MEMORY_STATUS = Operation(
    "synthesis.update_memory_status",
    "Change the status of a note by hand.",
    "write",
    UpdateMemoryStatus,
    Note,
    _update_status,
)
SYNTHESIS_RESTORE_MEMORY = Operation(
    "synthesis.restore_memory", "Make an earlier version the current one.", "write", NoteRequest, Note, _restore
)
SYNTHESIS_TRAVERSE_MEMORY_EVOLUTION_CHAIN = Operation(
    "synthesis.traverse_memory_evolution_chain",
    "Follow what became of a note, or what it came from.",
    "read",
    TraverseChain,
    list[Note],
    _traverse,
)
SYNTHESIS_GENERATE_EVOLUTION_GRAPH = Operation(
    "synthesis.generate_evolution_graph", "Draw the chain of a note.", "read", DrawChain, EvolutionGraph, _draw
)
SYNTHESIS_GET_TASK_STATUS = Operation(
    "synthesis.get_task_status", "How far a task is.", "read", AwaitTask, SynthesisTask, _task
)
SYNTHESIS_LIST_TASKS = Operation(
    "synthesis.list_tasks", "Tasks that are not done.", "read", ListTasks, list[SynthesisTask], _tasks
)
SYNTHESIS_RETRY_TASK = Operation(
    "synthesis.retry_task", "Try a task that has failed again.", "write", SynthesisTaskRequest, bool, _retry
)
SYNTHESIS_GET_CONNECTION_POOL_STATS = Operation(
    "synthesis.get_connection_pool_stats",
    "How the server is connected to Redis.",
    "read",
    NoArguments,
    PoolStats,
    _pool,
)
SYNTHESIS_FSCK = Operation(
    "synthesis.fsck", "Check the chains of an app, and repair them.", "write", CheckNotes, NoteCheck, _check
)
SYNTHESIS_ARCHIVE = Operation(
    "synthesis.archive", "Put old notes away.", "write", ArchiveNotes, ArchiveReport, _archive
)
SYNTHESIS_RECALL_ARCHIVED = Operation(
    "synthesis.recall_archived", "Read a note that was put away.", "read", NoteRequest, Note, _archived
)
SYNTHESIS_UNARCHIVE = Operation(
    "synthesis.unarchive", "Bring a chain that was put away back.", "write", NoteRequest, Note, _unarchive
)
SYNTHESIS_RETAIN = Operation(
    "synthesis.retain", "Erase what was retired and is too old.", "write", RetainNotes, ForgetReport, _retain
)
SYNTHESIS_FORGET = Operation("synthesis.forget", "Erase notes for good.", "write", ForgetNotes, ForgetReport, _forget)

ROWS = tuple(row for row in list(globals().values()) if isinstance(row, Operation))
