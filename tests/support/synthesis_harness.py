"""Harness of the synthesis tests: agents by script, a pipeline with task intake and worker, and the invariants."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from sharedmem import SharedMemoryStore
from sharedmem.models import (
    ConsolidationReport,
    ConversationSummary,
    Note,
    Resolution,
    SynthesisMessage,
    Verdict,
)
from sharedmem.synthesis.consistency import find_problems
from sharedmem.synthesis.evolution import ChainLocks
from sharedmem.synthesis.note_repository import RedisNoteRepository
from sharedmem.synthesis.note_text import SUMMARY, join_sections, parse_sections
from sharedmem.synthesis.pipeline import Pipeline
from sharedmem.synthesis.protocol import Agents, Consolidation, NoteRepository
from sharedmem.synthesis.schemas import EpisodicOutput, SummaryMetadata, SummaryOutput, SummaryRetrieval
from sharedmem.synthesis.search import NoteSearch
from sharedmem.synthesis.tasks import AddAgentMemoryTask, AddMemoryTask, TaskIntake
from sharedmem.synthesis.worker import ActorServices, SynthesisServices, SynthesisWorker, TaskAnnouncer
from support.contexts import knowledge_of, scope_of

APP, USER = "support", "ada"
ALIVE = ("active", "conflict_pending")


def numbered_fact(number: int) -> str:
    """One of many statements about one topic: near to each other, and each with a fact of its own."""
    return f"The billing service of team Falcon runs in region {number} of the Orion cluster."


def user_messages(*texts: str) -> tuple[SynthesisMessage, ...]:
    """What a user says."""
    return tuple(SynthesisMessage(role="user", content=text) for text in texts)


def note_request(*texts: str, app_id: str = APP, user_id: str = USER, session_id: str | None = None) -> AddMemoryTask:
    """A request for a note."""
    return AddMemoryTask(app_id=app_id, user_id=user_id, session_id=session_id, messages=user_messages(*texts))


def agent_note_request(*texts: str, app_id: str = APP, user_id: str = USER) -> AddAgentMemoryTask:
    """A request for a short note."""
    return AddAgentMemoryTask(app_id=app_id, user_id=user_id, messages=user_messages(*texts))


class ScriptedAgents:
    """Agents that keep every word, agree by default, and do as a test says."""

    name = "test:panel"
    is_offline = False

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.errors: dict[str, BaseException] = {}
        """Raised by these parts."""
        self.verdict: Callable[[Note], Verdict] = lambda _: "UPDATE"
        self.judging: Callable[[Note, list[Resolution]], Awaitable[list[Resolution]]] | None = None
        """Looks at the verdicts before they are answered."""
        self.rewrite: Callable[[str], str] = lambda text: text
        """What becomes of a consolidation before it is answered."""
        self.metadata = SummaryMetadata()
        self.report = ConsolidationReport()
        self.retrieval = SummaryRetrieval(
            tags=("billing", "regions"), keywords=("Orion",), queries=("Where does it run?",)
        )

    async def episodic(self, _: Sequence[SynthesisMessage]) -> EpisodicOutput:
        self._called("episodic")
        return EpisodicOutput()

    async def summarizer(self, messages: Sequence[SynthesisMessage]) -> SummaryOutput:
        self._called("summarizer")
        said = "\n".join(message.content for message in messages)
        return SummaryOutput(narrative=said, retrieval=self.retrieval, metadata=self.metadata)

    async def fast_summary(self, messages: Sequence[SynthesisMessage]) -> ConversationSummary:
        self._called("fast_summary")
        return ConversationSummary(summary="\n".join(message.content for message in messages))

    async def judge(self, new: Note, linked: Sequence[Note]) -> list[Resolution]:
        self._called("judge")
        resolutions = [
            Resolution(
                memory_id=note.id,
                operation=self.verdict(note),
                confidence_score=0.9,
                reasoning="said by script",
                decided_by=self.name,
            )
            for note in linked
        ]
        return resolutions if self.judging is None else await self.judging(new, resolutions)

    async def consolidate(self, new: Note, old: Sequence[Note]) -> Consolidation:
        self._called("consolidate")
        return Consolidation(self.rewrite(concatenate_notes((*old, new))), self.name, self.report)

    def _called(self, part: str) -> None:
        self.calls[part] += 1
        if (error := self.errors.get(part)) is not None:
            raise error


def concatenate_notes(notes: Sequence[Note]) -> str:
    """A note that says every line of some notes once."""
    lines = [line for note in notes for line in parse_sections(note.memory_note).get(SUMMARY, "").splitlines()]
    return join_sections({SUMMARY: "\n".join(dict.fromkeys(lines))})


class SynthesisHarness(NamedTuple):
    """The parts of synthesis in one namespace."""

    store: SharedMemoryStore
    repository: NoteRepository
    agents: Agents
    intake: TaskIntake
    pipeline: Pipeline
    worker: SynthesisWorker
    search: NoteSearch

    async def notes(self, app_id: str = APP) -> list[Note]:
        """All notes of an app."""
        found: list[Note] = []
        while page := await self.repository.page(app_id, after=found[-1].id if found else ""):
            found += page
        return found

    async def heads(self, app_id: str = APP) -> list[Note]:
        """The notes that are alive."""
        return [note for note in await self.notes(app_id) if note.status in ALIVE]

    async def check(self, app_id: str = APP, *, facts: Sequence[str] = ()) -> None:
        """The invariants hold, and each of these texts is reached from a note that is alive."""
        notes = await self.notes(app_id)
        assert [problem.explanation for problem in find_problems(notes)] == []
        reached = _reachable_ids(notes)
        assert [text for text in facts if text not in reached] == []


def _reachable_ids(notes: Sequence[Note]) -> set[str]:
    by_id = {note.id: note for note in notes}
    to_see, seen = [note.id for note in notes if note.status in ALIVE], set[str]()
    while to_see:
        id_ = to_see.pop()
        if id_ not in seen and id_ in by_id:
            seen.add(id_)
            to_see += by_id[id_].sources
    return {message.content for id_ in seen for message in by_id[id_].messages}


def make_synthesis_harness(
    store: SharedMemoryStore,
    agents: Agents,
    *,
    repository: NoteRepository | None = None,
    chains: Any = None,
    webhooks: TaskAnnouncer | None = None,
    backoff: tuple[float, float] = (0.01, 0.02),
    visibility: float = 30.0,
    concurrency: int = 4,
) -> SynthesisHarness:
    """The parts of synthesis on a store."""
    context, scope = knowledge_of(store), scope_of(store)
    kept = repository or RedisNoteRepository(context, scope)
    intake = TaskIntake(context, scope, backoff=backoff, visibility=visibility)
    pipeline = Pipeline(context, scope, repository=kept, agents=agents, chains=chains)

    def requester(_: str) -> ActorServices:
        return ActorServices(scope, intake, pipeline, webhooks)

    worker = SynthesisWorker(context, intake=intake, requester=requester, webhooks=webhooks, concurrency=concurrency)
    search = SynthesisServices(context, scope, repository=kept).search
    return SynthesisHarness(store, kept, agents, intake, pipeline, worker, search)


# -- dying ------------------------------------------------------------------------------------


class SimulatedCrashError(BaseException):
    """The process ends here, as far as the code above can tell."""


class CrashPoint:
    """Counts calls, and dies at one of them.

    Args:
        dies_at: at which call, from 1 on; 0 never.
        after: whether the call is made before that.
    """

    def __init__(self, dies_at: int = 0, *, after: bool = False) -> None:
        self.burnt = 0
        self._dies_at = dies_at
        self._after = after

    async def around(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Make a call, or die before or after it."""
        self.burnt += 1
        if self.burnt != self._dies_at:
            return await call()
        if self._after:
            await call()
        raise SimulatedCrashError(f"at call {self.burnt}")


class CrashingProxy:
    """Stands before a part of the pipeline; each call of it may be the last."""

    def __init__(self, inner: Any, fuse: CrashPoint) -> None:
        self._inner = inner
        self._fuse = fuse

    def __getattr__(self, name: str) -> Any:
        part = getattr(self._inner, name)
        if not callable(part):
            return part

        async def called(*args: Any, **named: Any) -> Any:
            return await self._fuse.around(lambda: part(*args, **named))

        return called


class CrashingChains:
    """Locks of chains that may be the last thing that was taken, or given back."""

    def __init__(self, inner: ChainLocks, fuse: CrashPoint) -> None:
        self._inner = inner
        self._fuse = fuse

    @asynccontextmanager
    async def held(self, app_id: str, chain_ids: Sequence[str]) -> AsyncIterator[dict[str, int]]:
        async with self._inner.held(app_id, chain_ids) as fences:
            await self._fuse.around(_do_nothing)
            yield fences
        await self._fuse.around(_do_nothing)


async def _do_nothing() -> None:
    """There is nothing to do."""
