"""Summaries: long conversations are told shorter, by and by, and never by whoever speaks in them.

After every N turns of a session a task is put on the task queue `graph-summaries` of the namespace. A worker of any
process takes it; who dies over it is followed by another, since the task comes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from sharedmem.coordination.queues import Queues, TaskQueue
from sharedmem.errors import AccessDeniedError, ConflictError, InvalidError, NotFoundError, SharedMemoryError
from sharedmem.knowledge.graph.condensing import Due, covered_by, digest_of, next_due, question, summary_of
from sharedmem.knowledge.graph.ingesting import Ingestion
from sharedmem.knowledge.graph.lookups import Lookups
from sharedmem.knowledge.graph.naming import check_group
from sharedmem.knowledge.graph.records import Wanted
from sharedmem.knowledge.graph.tales import checked_episode, tale_of
from sharedmem.knowledge.graph.views import episode_of
from sharedmem.models import Episode
from sharedmem.tasks import Work
from sharedmem.telemetry import get_logger, measured
from sharedmem.wire.keys import SHARED_SCOPE

QUEUE = "graph-summaries"
MOST_TURNS = 100_000
_AT_ONCE = 500
_MOST_LOOKED_UP = 20_000
"""Turns that are not summed up yet, of which it is told at once what is due: more come with the next summary."""
_VISIBILITY_S = 60.0
"""After a worker dies, another one gets its task after that; who lives renews it."""
_LINGER_S = 30.0
_PAUSE_S = 1.0
_MOST_ATTEMPTS = 10
_log = get_logger("graph")


class Summaries:
    """The worker of one hub that makes a namespace's summaries, while there are tasks for it."""

    def __init__(self) -> None:
        self.work: Work | None = None


class Summarising(Lookups):
    """Sums up what was told."""

    @property
    def _ingestion(self) -> Ingestion:
        return Ingestion(self._minds, self._namespace, self._backend, self._ways.vocabulary, self._check_author)

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
        while (due := await self._next_due(group, session)) is not None:
            text = (await self._minds.model.write(question(due.covers))).strip()
            if not text:
                raise InvalidError("summary", text, f"{self._minds.model.name} has written nothing; ask it again")
            summary = self._signed(checked_episode(summary_of(text, due), self._minds.clock))
            # The model takes its time: meanwhile another worker may have made it, or turns were told late.
            if await self._next_due(group, session) == due and await self._is_kept(group, summary):
                made.append(summary)
        return made

    async def _is_kept(self, group: str, summary: Episode) -> bool:
        """Whether a summary is in the graph by this call; not when another worker was faster, or a turn has gone."""
        try:
            taken = await self._ingestion.take_in(group, [tale_of(summary)])
        except NotFoundError:
            return False
        except ConflictError:
            if summary.id in (await self._backend.look(group, Wanted(episodes=(summary.id,)))).episodes:
                return False
            raise
        return summary.id in taken.fresh

    async def _next_due(self, group: str, session: str) -> Due | None:
        summaries = await self._looked_up(group, await self._listed(group, "summary", session))
        # Of a long conversation most turns are summed up, and need not be fetched.
        covered = covered_by(summary for summary in summaries if summary.level == 1)
        left = [id_ for id_ in await self._listed(group, "episode", session) if id_ not in covered]
        turns = await self._looked_up(group, left[:_MOST_LOOKED_UP])
        return next_due(turns, summaries, every=self._minds.settings.graph_summary_every)

    async def _listed(self, group: str, kind: str, session: str) -> list[str]:
        """The ids of a session, by when it occurred."""
        ids, after = await self._backend.listed(group, kind, limit=_AT_ONCE, session=session)
        while after and len(ids) < MOST_TURNS:
            more, after = await self._backend.listed(group, kind, after=after, limit=_AT_ONCE, session=session)
            ids += more
        return ids

    async def _looked_up(self, group: str, ids: Sequence[str]) -> list[Episode]:
        found: list[Episode] = []
        for first in range(0, len(ids), _AT_ONCE):
            wanted = Wanted(episodes=tuple(ids[first : first + _AT_ONCE]))
            found += map(episode_of, (await self._backend.look(group, wanted)).episodes.values())
        return found

    async def _note_turns(self, group: str, turns: Sequence[tuple[str, int]], added: int) -> None:
        """Ask for summaries where turns have made them due; nothing that goes wrong with that is the teller's."""
        every = self._minds.settings.graph_summary_every
        if not every or not turns:
            return
        crossed = [(session, now) for session, now in turns if now // every > (now - added) // every]
        with suppress(SharedMemoryError):
            for session, now in crossed:
                payload = {"group_id": group, "session": session}
                await self._queue.put(payload, id=f"{digest_of(group, session)}-{now // every}")
        # The first time also for tasks that a process has left behind.
        if crossed or self._minds.shared(Summaries, self._namespace, Summaries).work is None:
            self._work_in_the_background()

    def _work_in_the_background(self) -> None:
        summaries = self._minds.shared(Summaries, self._namespace, Summaries)
        if summaries.work is None or summaries.work.done:
            own = self._acting_as(SHARED_SCOPE)
            with suppress(SharedMemoryError):  # the hub closes: the tasks stay for others
                summaries.work = self._minds.background.start(f"summarize {self._namespace}", own._work_off())  # noqa: SLF001  # its own

    async def _work_off(self) -> None:
        """Do the tasks that are there, and wait for those that others have or that are to be tried again."""
        try:
            while await self._is_worked_on(self._queue):
                pass
        except AccessDeniedError as error:
            _log.warning("summaries in %s are left to others: %s", self._namespace, error)

    async def _is_worked_on(self, queue: TaskQueue) -> bool:
        """Do the next task; False when there is none, not even one that somebody else has."""
        try:
            left = await queue.stats()
            if not left.ready + left.delayed + left.claimed:
                return False
            async with queue.claimed(wait=_LINGER_S) as hand:
                if hand is not None:
                    # A summary is its requester's, whoever happens to make it.
                    requester = self._acting_as(hand.task.put_by)
                    made = await requester._summarized(**_wanted(hand.payload))  # noqa: SLF001  # likewise
                    hand.finish([episode.id for episode in made])
        except AccessDeniedError:
            raise
        except SharedMemoryError as error:
            _log.warning("a summary in %s could not be made: %s", self._namespace, error)
            self._minds.counters.increment("graph_summary_failures", code=error.code)
            await self._minds.clock.sleep(_PAUSE_S)
        return True

    def _acting_as(self, actor: str) -> Summarising:
        """The same graphs, in the name of another actor of the namespace."""
        raise NotImplementedError

    @property
    def _queue(self) -> TaskQueue:
        return Queues(self._ground, self._scope).queue(QUEUE, visibility=_VISIBILITY_S, max_attempts=_MOST_ATTEMPTS)


def _wanted(payload: Any) -> dict[str, str]:
    """Of which group and session is to be summed up; anybody in the namespace may have put that there."""
    if not isinstance(payload, dict) or not isinstance(session := payload.get("session"), str):
        raise InvalidError("payload", payload, "a task for a summary names a group_id and a session")
    return {"group": check_group(payload.get("group_id", "")), "session": session}
