"""Summaries: long conversations are told shorter, by and by, and never by whoever speaks in them.

After every N turns of a session a task is put on the task queue `graph-summaries` of the namespace. A worker of any
process takes it; who dies over it is followed by another, since the task comes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from sharedmem.coordination.queues import Queues, TaskQueue
from sharedmem.errors import InvalidError, SharedMemoryError
from sharedmem.knowledge.graph.condensing import digest_of, due, question, summary_of
from sharedmem.knowledge.graph.ingesting import Ingestion
from sharedmem.knowledge.graph.lookups import Lookups
from sharedmem.knowledge.graph.records import Wanted
from sharedmem.knowledge.graph.tales import tale_of
from sharedmem.knowledge.graph.views import episode_of
from sharedmem.models import Episode, Task
from sharedmem.tasks import Work
from sharedmem.telemetry import get_logger, measured

QUEUE = "graph-summaries"
MOST_TURNS = 100_000
_AT_ONCE = 500
_VISIBILITY_S = 300.0
_log = get_logger("graph")


class Summaries:
    """The worker of one hub that makes a namespace's summaries, while there are tasks for it."""

    def __init__(self) -> None:
        self.work: Work | None = None


class Summarising(Lookups):
    """Sums up what was told."""

    @property
    def _ingestion(self) -> Ingestion:
        return Ingestion(self._minds, self._namespace, self._backend, self._ways.vocabulary)

    @measured("graph.summarize")
    async def summarize(self, *, group_id: str, session: str | None = None) -> list[Episode]:
        """Make the summaries that are due: of each N turns of a session, and of each N summaries of one level.

        Nobody has to call this: it is done in the background when turns are added (setting `graph_summary_every`).
        What was summed up is not touched; `retrieve` prefers summaries for what is long ago.

        Args:
            group_id: whose graph.
            session: which conversation; None for the turns that belong to none.

        Returns:
            The new summaries, oldest first; none when none are due.

        Raises:
            InvalidError: the group is none, or summaries are switched off.
            UnavailableError, LimitedError, ConfigError: the server or the language model cannot be asked.
            AccessDeniedError: this actor may not write the namespace's graphs.
        """
        group = await self._enter(group_id, "write")
        if not self._minds.settings.graph_summary_every:
            raise InvalidError("graph_summary_every", 0, "summaries are switched off; set it to a number of turns")
        return await self._summarized(group, session or "")

    async def _summarized(self, group: str, session: str) -> list[Episode]:
        made: list[Episode] = []
        # What is made on one level may be due on the next.
        while found := due(
            await self._all(group, "episode", session),
            await self._all(group, "summary", session),
            every=self._minds.settings.graph_summary_every,
        ):
            for level, covered in found:
                text = await self._minds.model.write(question(covered))
                summary = summary_of(text, covered, level)
                await self._ingestion.take_in(group, [tale_of(summary)])
                made.append(summary)
        return made

    async def _all(self, group: str, kind: str, session: str) -> list[Episode]:
        """Every episode of a session that counts, by when it occurred."""
        found: list[Episode] = []
        after = ""
        while len(found) < MOST_TURNS:
            ids, after = await self._backend.listed(group, kind, after=after, limit=_AT_ONCE, session=session)
            rows = (await self._backend.look(group, Wanted(episodes=tuple(ids)))).episodes
            found += [episode_of(rows[id_]) for id_ in ids if id_ in rows]
            if not after:
                break
        return [episode for episode in found if episode.undone_at is None]

    async def _note_turns(self, group: str, turns: Sequence[tuple[str, int]], added: int) -> None:
        """Ask for summaries where turns have made them due; nothing that goes wrong with that is the teller's."""
        every = self._minds.settings.graph_summary_every
        crossed = [(session, now) for session, now in turns if every and now // every > (now - added) // every]
        with suppress(SharedMemoryError):
            for session, now in crossed:
                payload = {"group_id": group, "session": session}
                await self._queue.put(payload, id=f"{digest_of(group, session)}-{now // every}")
        if crossed:
            self._work_in_the_background()

    def _work_in_the_background(self) -> None:
        summaries = self._minds.shared(Summaries, self._namespace, Summaries)
        if summaries.work is None or summaries.work.done:
            with suppress(SharedMemoryError):  # the hub closes: the tasks stay for others
                summaries.work = self._minds.background.start(f"summarize {self._namespace}", self._work_off())

    async def _work_off(self) -> None:
        """Do what tasks there are."""
        while (task := await self._queue.claim()) is not None:
            try:
                made = await self._summarized(**_wanted(task))
            except SharedMemoryError as error:
                _log.warning("a summary in %s could not be made: %s", self._namespace, error)
                self._minds.counters.increment("graph_summary_failures", code=error.code)
                await self._queue.retry(task, error=str(error))
            else:
                await self._queue.ack(task, [episode.id for episode in made])

    @property
    def _queue(self) -> TaskQueue:
        return Queues(self._ground, self._scope).queue(QUEUE, visibility=_VISIBILITY_S)


def _wanted(task: Task) -> dict[str, str]:
    return {"group": str(task.payload["group_id"]), "session": str(task.payload["session"])}
