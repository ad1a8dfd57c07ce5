"""Growth: a namespace that grows gets the index that its size calls for, while it is used and without being asked."""

from __future__ import annotations

from sharedmem.errors import SharedMemoryError
from sharedmem.knowledge.minds import Minds
from sharedmem.search.protocol import Index
from sharedmem.tasks import Work
from sharedmem.telemetry import get_logger

_log = get_logger("search")
_TURN_MS = 600_000


class Growth:
    """Watches the records of one family in one namespace, as far as this hub writes them.

    Args:
        minds: what the hub lends.
        index: of the family.
        namespace: whose records.
    """

    def __init__(self, minds: Minds, index: Index, namespace: str) -> None:
        self._minds = minds
        self._index = index
        self._namespace = namespace
        # A tenth of the size at which something happens: it may happen so much late.
        self._every = max(1, minds.settings.promote_above // 10)
        self._unseen = self._every
        self._stage = 0
        self._work: Work | None = None

    @classmethod
    def of(cls, minds: Minds, index: Index, namespace: str) -> Growth:
        """The one that all stores of the namespace share in this hub."""
        return minds.shared(cls, f"{index.family.name}:{namespace}", lambda: cls(minds, index, namespace))

    def grew(self, count: int) -> None:
        """Note that so many records were written; looks at the size once in a while, in the background."""
        self._unseen += count
        if self._index.algorithm == "exact" or self._unseen < self._every:
            return
        if self._work is None or self._work.done:
            self._unseen = 0
            self._work = self._minds.background.start(f"tend the index of {self._namespace}", self._tend())

    async def _tend(self) -> None:
        keyspace, line, family = self._minds.keyspace, self._minds.line, self._index.family.name
        size = await line.call("ZCARD", keyspace.record_log(family, self._namespace))
        stage = self._stage_of(size) if isinstance(size, int) else 0
        # To promote looks at every record: once for the index of its own, and once when that is to be approximate.
        if stage <= self._stage:
            return
        # One hub does it; if it dies, another one goes on when the turn has ended.
        turn = keyspace.record_part(family, self._namespace, "tending")
        if await line.call("SET", turn, "1", "NX", "PX", _TURN_MS) is None:
            return
        try:
            await self._index.promote(self._namespace)
            self._stage = stage
        except SharedMemoryError as error:
            # Searching goes on in the index that it has; the next look tries again.
            _log.warning("the index of %s (%s) could not be tended: %s", self._namespace, family, error)
            self._minds.counters.increment("index_tending_failures", family=family)
        finally:
            await line.call("DEL", turn)

    def _stage_of(self, size: int) -> int:
        settings = self._minds.settings
        return (size > settings.promote_above) + (size > max(settings.promote_above, settings.hnsw_above))
