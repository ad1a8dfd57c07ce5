"""Chains under lock: who changes a chain of notes does so alone, and says by which right."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager

from sharedmem.coordination.ground import Ground
from sharedmem.coordination.leases import Leases
from sharedmem.models import Note
from sharedmem.wire.access import Scope

_LEASE_S = 30.0
_PATIENCE_S = 900.0


class Chains:
    """The locks of all chains of a namespace.

    Args:
        scope: hands out names within the actor's rights.
        ground: what the hub lends to locks.
        lease_s: seconds after which the chains of a process that died come free.
    """

    def __init__(self, scope: Scope, ground: Ground, *, lease_s: float = _LEASE_S) -> None:
        self._leases = Leases(ground, scope)
        self._lease_s = lease_s

    @asynccontextmanager
    async def held(self, app_id: str, chain_ids: Iterable[str]) -> AsyncIterator[dict[str, int]]:
        """Hold the locks of some chains while the block runs; two round trips a chain.

        All callers take them in the same order, so that no two wait for one another.

        Args:
            app_id: whose chains.
            chain_ids: any number of them.

        Yields:
            The fencing token of each chain, as a commit takes them.

        Raises:
            LockLostError: a lock was lost before the block ended, which was cancelled.
            LockHeldError: others held one for a quarter of an hour.
            AccessDeniedError, UnavailableError: as locks.
        """
        fences: dict[str, int] = {}
        async with AsyncExitStack() as stack:
            for chain_id in sorted(set(chain_ids)):
                lock = self._leases.lock(lock_name(app_id, chain_id), lease=self._lease_s, wait=_PATIENCE_S)
                fences[chain_id] = (await stack.enter_async_context(lock)).token
            yield fences


def chain_of(note: Note) -> str:
    """The id of the chain that a note is in: one that nothing has come together in is a chain of its own."""
    return note.chain_id or note.id


def lock_name(app_id: str, chain_id: str) -> str:
    """What the lock of a chain is called: of one length, as ids may be longer than names of locks."""
    parted = f"{len(app_id)}:{app_id}:{chain_id}"
    return f"synthesis-{hashlib.sha256(parted.encode()).hexdigest()[:32]}"
