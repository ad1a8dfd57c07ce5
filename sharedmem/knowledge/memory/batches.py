"""Group commit: what is added to a namespace while a batch is under way forms the next batch.

A batch reads what is near to its memories, judges, and writes only if nothing newer than what it has read has changed;
else it looks at what has changed, and tries again. Ids are fixed before the first try, so a repeat finds its own work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sharedmem.errors import SharedMemoryError
from sharedmem.knowledge.memory.desk import MOST_AT_ONCE, Desk
from sharedmem.knowledge.memory.drafts import Draft
from sharedmem.knowledge.memory.judging import Bench
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
        self.desk = minds.shared(Desk, namespace, lambda: Desk(minds, namespace))
        self._pending = minds.shared(Pending, namespace, lambda: Pending(self.desk))
        self._namespace = namespace
        self._waiting: list[Waiting] = []
        self._work: Work | None = None

    def put(self, drafts: Sequence[Draft]) -> list[asyncio.Future[AddResult]]:
        """Have these written; a future for each, in their order.

        Each gives its result, or raises what `Writing.add` raises.
        """
        loop = asyncio.get_running_loop()
        new: list[Waiting] = [(draft, loop.create_future()) for draft in drafts]
        self._waiting += new
        if self._work is None or self._work.done:
            self._work = self._minds.background.start(f"add memories of {self._namespace}", self._run())
        return [future for _, future in new]

    async def _run(self) -> None:
        batch: list[Waiting] = []
        try:
            while self._waiting:
                batch = self._take()
                await self._commit(batch)
        finally:
            # The hub closes: nobody waits for ever.
            for _, future in (*batch, *self._waiting):
                future.cancel()
            self._waiting.clear()

    def _take(self) -> list[Waiting]:
        """The next ones of one actor, as many as one script may write."""
        actor, size = self._waiting[0][0].actor, 0
        taken: list[Waiting] = []
        for one in self._waiting:
            size += _size(one[0])
            if one[0].actor != actor or len(taken) == MOST_AT_ONCE or (taken and size > _BATCH_BYTES):
                break
            taken.append(one)
        del self._waiting[: len(taken)]
        return taken

    async def _commit(self, batch: list[Waiting]) -> None:
        drafts = [draft for draft, _ in batch]
        futures = [future for _, future in batch]
        bench = Bench(self.desk, drafts)
        try:
            await embed_drafts(self._minds, drafts)
            await bench.settle()
        except SharedMemoryError as error:
            bench.fail(error)
        for future, result in zip(futures, bench.results, strict=True):
            if future.done():
                continue
            if isinstance(result, AddResult):
                future.set_result(result)
            else:
                future.set_exception(result)
        if bench.waiting:
            self._pending.wake()


def _size(draft: Draft) -> int:
    item = draft.item
    vector = 0 if draft.vector is None else 2 * len(draft.vector)
    # Text, words and full text.
    return _FIXED_BYTES + 3 * len(item.memory) + vector + (0 if item.content is item.memory else 2 * len(item.content))
