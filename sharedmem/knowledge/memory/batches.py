"""Group commit: what is added to a namespace while a batch is under way forms the next batch.

A batch reads what is near to its memories, judges, and writes only if nothing newer than what it has read has changed;
else it looks at what has changed, and tries again. Ids are fixed before the first try, so a repeat finds its own work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sharedmem.errors import UsageError
from sharedmem.knowledge.growing import Growth
from sharedmem.knowledge.memory.desk import MOST_AT_ONCE, Desk
from sharedmem.knowledge.memory.drafts import Draft
from sharedmem.knowledge.memory.judging import Bench
from sharedmem.knowledge.memory.neighbours import Neighbours
from sharedmem.knowledge.memory.pending import Pending, embed_drafts
from sharedmem.knowledge.minds import Minds
from sharedmem.models import AddResult
from sharedmem.tasks import Work

_BATCH_BYTES = 48_000
_FIXED_BYTES = 400

Waiting = tuple[Draft, "asyncio.Future[AddResult]"]


class Batches:
    """What is added to one namespace, batch by batch; all stores of a hub share it.

    Args:
        minds: what the hub lends.
        namespace: whose memories.
    """

    def __init__(self, minds: Minds, namespace: str) -> None:
        self._minds = minds
        self.desk = Desk.of(minds, namespace)
        self.neighbours = Neighbours(minds, namespace)
        self._pending = Pending.of(minds, namespace)
        self._growth = Growth.of(minds, minds.memories, namespace)
        self._namespace = namespace
        self._waiting: list[Waiting] = []
        self._work: Work | None = None
        self._written = asyncio.Event()
        """Set once the batch taken last is written."""
        self._written.set()

    def put(self, drafts: Sequence[Draft]) -> list[asyncio.Future[AddResult]]:
        """Have these written; a future for each, in their order.

        Each gives its result, or raises what `Writing.add` raises.
        """
        loop = asyncio.get_running_loop()
        new: list[Waiting] = [(draft, loop.create_future()) for draft in drafts]
        self._waiting += new
        if self._work is None or self._work.done:
            self._begin()
        return [future for _, future in new]

    def _begin(self) -> None:
        work = self._work = self._minds.background.start(f"add memories of {self._namespace}", self._run())
        # The hub may close before anything was begun. Another one may have begun since this one has ended.
        work.when_done(lambda: _give_up(self._waiting) if work is self._work else None)

    async def _run(self) -> None:
        # Something may come when both have ended and this has not yet.
        while self._waiting:
            # While the server works on one batch, the next gets its vectors.
            if len(self._waiting) > MOST_AT_ONCE:
                await asyncio.gather(self._serve(), self._serve())
            else:
                await self._serve()

    async def _serve(self) -> None:
        batch: list[Waiting] = []
        try:
            while self._waiting:
                batch = self._take()
                before, self._written = self._written, asyncio.Event()
                await self._commit(batch, before=before, written=self._written)
        finally:
            # The hub closes: nobody waits for ever.
            _give_up(batch)

    def _take(self) -> list[Waiting]:
        """The next ones of one actor, as many as one script may write."""
        actor, size = self._waiting[0][0].actor, 0
        taken: list[Waiting] = []
        for one in self._waiting:
            size += self._size(one[0])
            if one[0].actor != actor or len(taken) == MOST_AT_ONCE or (taken and size > _BATCH_BYTES):
                break
            taken.append(one)
        del self._waiting[: len(taken)]
        return taken

    def _size(self, draft: Draft) -> int:
        """Bytes that it takes on its way, about: text, words and full text, and its vector, for the tier as text."""
        item = draft.item
        texts = 3 * len(item.memory) + (0 if item.content is item.memory else 2 * len(item.content))
        numbers = 0 if draft.vector is None else len(draft.vector)
        return _FIXED_BYTES + texts + numbers * (2 if self._minds.tier is None else 5)

    async def _commit(self, batch: list[Waiting], *, before: asyncio.Event, written: asyncio.Event) -> None:
        drafts = [draft for draft, _ in batch]
        futures = [future for _, future in batch]
        bench = Bench(self.desk, self.neighbours, drafts)
        try:
            await embed_drafts(self._minds, drafts)
            # The turns of a conversation stay in their order, and what one batch writes, the next has to look at.
            await before.wait()
            await bench.settle()
        except Exception as error:  # noqa: BLE001  # an embedder of a user may raise anything: who adds is told what
            bench.fail(error)
        finally:
            written.set()
        for future, result in zip(futures, bench.results, strict=True):
            if future.done():
                continue
            if isinstance(result, AddResult):
                future.set_result(result)
            else:
                future.set_exception(result)
        if bench.waiting:
            self._pending.wake()
        self._growth.grew(len(batch))


def _give_up(batch: list[Waiting]) -> None:
    for _, future in batch:
        if not future.done():
            future.set_exception(UsageError("memory", "its hub was closed before this was written"))
    batch.clear()
