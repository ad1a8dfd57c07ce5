"""Operations of synthesis: add conversations, query notes, follow their history, archive and erase them."""

from __future__ import annotations

from typing import Any

from sharedmem.api.operation import Facet
from sharedmem.errors import NotFoundError
from sharedmem.models import Note, Record, SynthesisMessage, SynthesisTask
from sharedmem.store import SharedMemoryStore
from sharedmem.synthesis.synthesis import Synthesis

# -- requests that differ from the arguments of their methods ---------------------------------------


class NoteRequest(Record):
    """A note."""

    app_id: str
    memory_id: str


class AwaitTask(Record):
    """A task, and for how many seconds to wait until it is done or has failed."""

    task_id: str
    wait: float | None = 0.0


async def _get(store: SharedMemoryStore, ask: NoteRequest) -> Note:
    found = await store.synthesis.get_memory(ask.memory_id, app_id=ask.app_id)
    if found is None:
        raise NotFoundError("memory", ask.memory_id, f"app {ask.app_id!r} has none of that id")
    return found


async def _task(store: SharedMemoryStore, ask: AwaitTask) -> SynthesisTask:
    if ask.wait == 0:
        return await store.synthesis.get_task_status(ask.task_id)
    return await store.synthesis.wait(ask.task_id, timeout=ask.wait)


# -- operations -------------------------------------------------------------------------------------

_NOTE = "/memories/{memory_id}"
_MESSAGES = {"messages": list[SynthesisMessage]}
_TEXT_OR_MESSAGES = {"messages": list[SynthesisMessage] | str}
_ACCEPTED: dict[str, Any] = {"created": 202, "location": "/tasks/{task_id}"}
_synthesis = Facet("synthesis", lambda store, _: store.synthesis)

_synthesis.operation("synthesis.add_memory", Synthesis.add_memory, "POST /memories", fields=_MESSAGES, **_ACCEPTED)
_synthesis.operation("synthesis.list_memories", Synthesis.list_memories, "GET /memories")
_synthesis.operation("synthesis.query_memory", Synthesis.query_memory, "GET /memories/query")
_synthesis.written("synthesis.get_memory", Synthesis.get_memory, f"GET {_NOTE}", _get, takes=NoteRequest, gives=Note)
_synthesis.operation("synthesis.delete_memory", Synthesis.delete_memory, f"DELETE {_NOTE}", answer="deleted")
_synthesis.operation("synthesis.update_memory_status", Synthesis.update_memory_status, f"PUT {_NOTE}/status")
_synthesis.operation(
    "synthesis.restore_memory",
    Synthesis.restore_memory,
    f"POST {_NOTE}/restore",
)
_synthesis.operation(
    "synthesis.traverse_memory_evolution_chain",
    Synthesis.traverse_memory_evolution_chain,
    f"GET {_NOTE}/evolution",
)
_synthesis.operation(
    "synthesis.generate_evolution_graph",
    Synthesis.draw_evolution,
    f"GET {_NOTE}/evolution/graph",
    page=lambda drawing: drawing.text if drawing.format == "html" else None,
)
_synthesis.operation("synthesis.archived_memories", Synthesis.archived_memories, "GET /memories/archived")
_synthesis.operation(
    "synthesis.get_archived", Synthesis.get_archived, f"GET {_NOTE}/archived", formerly=["synthesis.recall_archived"]
)
_synthesis.operation("synthesis.unarchive", Synthesis.unarchive, f"POST {_NOTE}/unarchive")
_synthesis.operation(
    "synthesis.add_agent_memory",
    Synthesis.add_agent_memory,
    "POST /agent/memories",
    fields=_TEXT_OR_MESSAGES,
    **_ACCEPTED,
)
_synthesis.operation(
    "synthesis.summarize_conversation",
    Synthesis.summarize_conversation,
    "POST /agent/summaries",
    fields=_TEXT_OR_MESSAGES,
    is_new=lambda answer: isinstance(answer, SynthesisTask),
    **_ACCEPTED,
)
_synthesis.operation("synthesis.apps", Synthesis.apps, "GET /apps", paging="names")
_synthesis.operation("synthesis.list_tasks", Synthesis.tasks, "GET /tasks")
_synthesis.written(
    "synthesis.get_task_status",
    Synthesis.get_task_status,
    "GET /tasks/{task_id}",
    _task,
    takes=AwaitTask,
    gives=SynthesisTask,
)
_synthesis.operation("synthesis.retry_task", Synthesis.retry_task, "POST /tasks/{task_id}/retry", answer="retried")
_synthesis.operation(
    "synthesis.get_connection_pool_stats",
    Synthesis.get_connection_pool_stats,
    "GET /system/pool-stats",
)
_synthesis.operation("synthesis.fsck", Synthesis.fsck, "POST /system/fsck", bulk=True)
_synthesis.operation("synthesis.archive", Synthesis.archive, "POST /system/archive", bulk=True)
_synthesis.operation("synthesis.retain", Synthesis.retain, "POST /system/retain", bulk=True)
_synthesis.operation(
    "synthesis.erase",
    Synthesis.erase,
    "POST /system/erase",
    bulk=True,
    formerly=["synthesis.forget", "POST /system/forget"],
)

FACETS = (_synthesis,)
