"""Vectors of notes made anew, and words of those that have none yet."""

from __future__ import annotations

from collections.abc import Sequence

from sharedmem.errors import InternalError
from sharedmem.knowledge.minds import Minds
from sharedmem.knowledge.revectoring import RevectoredRecords
from sharedmem.search.protocol import IndexProgress
from sharedmem.synthesis.shelf.missing_terms import MissingTerms
from sharedmem.synthesis.shelf.rows import decode
from sharedmem.wire.keys import SHARED_SCOPE
from sharedmem.wire.noting import Noting
from sharedmem.wire.replies import Argument


class RevectoredNotes(RevectoredRecords):
    """The notes that are searched in one index, before and after it is built anew.

    Args:
        minds: what the hub lends.
        namespace: whose index; None for the one that small namespaces share.
    """

    def __init__(self, minds: Minds, namespace: str | None) -> None:
        super().__init__(minds, minds.notes, namespace)
        self._noting = Noting(minds.sender)

    async def embed(self, progress: IndexProgress | None) -> None:
        """Give all that lack them their words, then their vectors; may be called again to go on.

        Raises:
            UnavailableError, LimitedError, ConfigError: the server or the provider does not.
        """
        namespaces, _ = await self._searched.begin()
        for namespace in namespaces:
            await MissingTerms.of(self._minds, namespace).fill()
        await super().embed(progress)

    def _text(self, id_: str, body: bytes) -> str:  # noqa: ARG002  # only graphs read what kind it is from the id
        try:
            return decode(body, 0).memory_note
        except InternalError:
            return ""

    async def _give(self, namespace: str, keys: Sequence[bytes], vectors: Sequence[Argument]) -> None:
        space = self._minds.keyspace.space(namespace)
        await self._noting.note_index(space, SHARED_SCOPE.encode(), keys=keys, field="vector", values=vectors)
