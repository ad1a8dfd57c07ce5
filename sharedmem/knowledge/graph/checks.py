"""Checking: whether a graph holds just what follows from what it was told."""

from __future__ import annotations

from sharedmem.knowledge.graph.base import GraphBase
from sharedmem.knowledge.graph.integrity import Integrity
from sharedmem.knowledge.graph.meanings import Meanings
from sharedmem.knowledge.graph.protocol import GraphProgress
from sharedmem.knowledge.graph.turns import Turns
from sharedmem.models import GraphCheck
from sharedmem.telemetry import measured


class Checks(GraphBase):
    """Compares graphs with the episodes from which they follow."""

    @measured("graph.check")
    async def check(self, *, group_id: str, repair: bool = False, progress: GraphProgress | None = None) -> GraphCheck:
        """Recompute every fact of a group from its claims, and report each difference.

        Also reports claims in the wrong lines, entities without a record, and index entries that are missing or belong
        to no record. Reads all episodes and facts of the group, 500 in a round trip, and holds its claims in memory.
        Others may write meanwhile: only what is wrong at one moment is reported. While a merge moves claims, and after
        one that was cut off, what is not moved yet counts as misplaced. A repair changes no episode's content; it
        writes in steps of about 100 lines of facts, each atomic and guarded like any other step.

        Use the same relations (`using`) as the processes that tell the group something: facts depend on them.

        Args:
            group_id: whose graph.
            repair: whether to write what should be there, and remove what should not.
            progress: called with (episodes read, episodes known so far).

        Returns:
            What was read, and every problem; `is_clean` when none is left.

        Raises:
            InvalidError: the group is invalid.
            ConflictError: the group is being deleted, or others change the same entities without end.
            AccessDeniedError: this actor may not read the namespace's graphs; to repair, may not write them.
            UnavailableError: the server stayed away; call it again to go on.
        """
        group = await self._enter(group_id, "write" if repair else "read")
        meanings = Meanings(self._minds, self._namespace)
        turns = Turns.of(self._minds, self._namespace)
        integrity = Integrity(self._backend, turns, self._ways.vocabulary, meanings)
        return await integrity.check(group, repair=repair, progress=progress)
