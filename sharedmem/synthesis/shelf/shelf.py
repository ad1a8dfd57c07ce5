"""The shelf: notes, and the answers of models that need not be asked again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from sharedmem.errors import InvalidError
from sharedmem.synthesis.shelf.committing import Committing
from sharedmem.synthesis.shelf.rows import check_name, spelled_app
from sharedmem.wire.keys import glob_escaped
from sharedmem.wire.noting import NOTE


class NoteShelf(Committing):
    """A `Shelf` over hashes that are searched, and the scripts `lua/note_*.lua`."""

    async def remembered(self, app_id: str, digests: Sequence[str]) -> dict[str, bytes]:
        """See `Shelf.remembered`.

        Raises:
            InvalidError: an app or digest can be none.
            AccessDeniedError: this actor may not read the namespace's notes.
            UnavailableError: the server cannot be reached.
        """
        keys = [self._answer(app_id, digest) for digest in digests]
        await self._enter("read")
        found = await self._line.call("MGET", *keys) if keys else []
        answers = found if isinstance(found, list) else []
        return {digest: one for digest, one in zip(digests, answers, strict=True) if isinstance(one, bytes)}

    async def remember(self, app_id: str, answers: Mapping[str, bytes], *, ttl_s: int) -> None:
        """See `Shelf.remember`.

        Raises:
            InvalidError: an app or digest can be none, or the time is below a second.
            AccessDeniedError: this actor may not write the namespace's notes.
            UnavailableError: the server cannot be reached.
        """
        if ttl_s < 1:
            raise InvalidError("ttl_s", ttl_s, "keep answers for a second at least")
        kept = [(self._answer(app_id, digest), answer) for digest, answer in answers.items()]
        await self._enter("write")
        await asyncio.gather(*(self._line.call("SET", key, answer, "EX", ttl_s) for key, answer in kept))

    async def disremember(self, app_id: str) -> int:
        """See `Shelf.disremember`.

        Raises:
            InvalidError: an app can be none.
            AccessDeniedError: this actor may not write the namespace's notes.
            UnavailableError: the server cannot be reached.
        """
        named = glob_escaped(f"$note.answer:{spelled_app(check_name('app_id', app_id))}/")
        await self._enter("write")
        gone = 0
        async for page in self._line.scan(self._keyspace.pattern(self._namespace, f"{named}*"), near=self._space.clock):
            unlinked = await self._line.call_aside("UNLINK", *page) if page else 0
            gone += unlinked if isinstance(unlinked, int) else 0
        return gone

    def _answer(self, app_id: str, digest: str) -> bytes:
        named = f"{spelled_app(check_name('app_id', app_id))}/{check_name('digest', digest)}"
        return self._keyspace.record_item(NOTE, self._namespace, "answer", named)

    def __repr__(self) -> str:
        return f"<NoteShelf of {self._namespace}>"
