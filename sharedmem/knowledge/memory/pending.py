"""Embeddings that have to wait for their provider: the memories are found by their words meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sharedmem.errors import AccessDeniedError, ConfigError, LimitedError, SharedMemoryError, UnavailableError
from sharedmem.knowledge.memory.desk import Desk
from sharedmem.knowledge.memory.drafts import Draft
from sharedmem.knowledge.minds import Minds
from sharedmem.providers.protocol import Embedder, Embeddings
from sharedmem.search.protocol import IndexProgress
from sharedmem.tasks import Work
from sharedmem.wire.keys import SHARED_SCOPE

PATIENCE_S = 5.0
"""How long who adds waits for the provider, per hundred texts."""
_CLAIMED_AT_ONCE = 64
_LEASE_MS = 60_000
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 60.0
_WORKER = SHARED_SCOPE.encode()
_TEXTS_FOR_PATIENCE = 100


class Outage:
    """Whether the provider of a hub is known to be away, so that nobody waits for it again."""

    def __init__(self) -> None:
        self.lasts = False


def outage_of(minds: Minds) -> Outage:
    """What is known of the provider; all namespaces of a hub share it."""
    return minds.shared(Outage, "", Outage)


async def embed_drafts(minds: Minds, drafts: Sequence[Draft]) -> None:
    """Give drafts the vectors that they lack; when the provider is away, mark them to be embedded later.

    Raises:
        ConfigError: the provider refuses the key or model, or vectors have another dimension than the index.
    """
    lacking = [draft for draft in drafts if draft.vector is None and not draft.is_embedded and not draft.waits]
    if minds.embedder is None or not lacking:
        return
    embedder = minds.embedder_of(lacking[0].item.tenant_id)
    outage = outage_of(minds)
    if embedder is None or (not outage.lasts and await _embedded(embedder, lacking)):
        return
    outage.lasts = True
    for draft in lacking:
        draft.waits = True


async def _embedded(embedder: Embedder, drafts: Sequence[Draft]) -> bool:
    # One in this process may take its time: it loads its model, and is never away.
    is_remote = getattr(embedder, "is_remote", True)
    patience_s = PATIENCE_S * max(1.0, len(drafts) / _TEXTS_FOR_PATIENCE) if is_remote else None
    try:
        async with asyncio.timeout(patience_s):
            made = await embedder.embed([draft.item.memory for draft in drafts])
    except (UnavailableError, LimitedError, TimeoutError, OSError):
        return False
    _check_dimension(embedder, made)
    # A text without a meaning has zeros: it is near to nothing, and never will be.
    for draft, vector in zip(drafts, made.vectors, strict=True):
        draft.is_embedded = True
        draft.vector = vector if vector.any() else None
    return True


def _check_dimension(embedder: Embedder, made: Embeddings) -> None:
    # A vector of another length would vanish from the index without a word.
    if made.vectors.shape[1:] != (embedder.dimension,):
        problem = f"{embedder.name} gave vectors of shape {made.vectors.shape}, not of {embedder.dimension} numbers"
        raise ConfigError("embedder", "the embedder", problem)


class Pending:
    """Makes the embeddings that wait in one namespace; of all hubs that try, each embedding is made by one.

    Args:
        desk: the namespace.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._minds = desk.minds
        self._work: Work | None = None

    @classmethod
    def of(cls, minds: Minds, namespace: str) -> Pending:
        """The one that all stores of a namespace share in this hub."""
        return minds.shared(cls, namespace, lambda: cls(Desk.of(minds, namespace)))

    def wake(self) -> None:
        """Some wait: work until none do."""
        if self._minds.embedder is not None and (self._work is None or self._work.done):
            self._work = self._minds.background.start(f"embed memories of {self._desk.namespace}", self._run())

    async def work_off(self, progress: IndexProgress | None = None) -> None:
        """Embed all that wait and that no other hub has taken.

        Args:
            progress: called with (how many are embedded, how many there were).

        Raises:
            UnavailableError, LimitedError, ConfigError: the provider does not; they go on waiting.
        """
        waiting, done = await self._minds.line.call("ZCARD", self._desk.pending_key), 0
        while isinstance(found := await self._desk.claim(_CLAIMED_AT_ONCE, _LEASE_MS), list):
            await self._embed(found)
            done += len(found)
            if progress is not None:
                progress(done, max(done, waiting if isinstance(waiting, int) else 0))

    async def _run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                found = await self._desk.claim(_CLAIMED_AT_ONCE, _LEASE_MS)
                if isinstance(found, list):
                    await self._embed(found)
            except AccessDeniedError:
                return  # who may only read leaves them to others
            except (SharedMemoryError, OSError) as error:
                await self._minds.clock.sleep(max(pause_s, _asked_for(error)))
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
                continue
            pause_s = _FIRST_PAUSE_S
            if found == 0:
                return
            if isinstance(found, int):
                await self._minds.clock.sleep(min(found / 1000, _LONGEST_PAUSE_S))

    async def _embed(self, ids: list[str]) -> None:
        embedder = self._minds.embedder_of(self._desk.namespace)
        assert embedder is not None
        held = await self._desk.held(ids)
        # Those that are gone, or have no meaning, wait no more.
        gone = [id_ for id_ in ids if id_ not in held]
        if gone:
            await self._minds.line.call("ZREM", self._desk.pending_key, *gone)
        found = list(held.values())
        if not found:
            return
        try:
            made = await embedder.embed([one.item.memory for one in found])
        except (SharedMemoryError, OSError):
            await self._give_back(ids)
            raise
        _check_dimension(embedder, made)
        outage_of(self._minds).lasts = False
        pairs = list(zip(found, made.vectors, strict=True))
        await self._desk.embed(_WORKER, [(one, vector) for one, vector in pairs if vector.any()])
        mute = [one.item.id for one, vector in pairs if not vector.any()]
        if mute:
            await self._minds.line.call("ZREM", self._desk.pending_key, *mute)

    async def _give_back(self, ids: list[str]) -> None:
        """Others may try at once, and so may this hub after its pause."""
        pairs = [part for id_ in ids for part in (0, id_)]
        await self._minds.line.call("ZADD", self._desk.pending_key, "XX", *pairs)


def _asked_for(error: Exception) -> float:
    """Seconds that a provider has asked for."""
    return error.retry_after if isinstance(error, LimitedError) else 0.0
