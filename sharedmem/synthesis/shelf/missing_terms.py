"""Words of notes that were stored before notes had any: meaning finds these meanwhile."""

from __future__ import annotations

from sharedmem.errors import AccessDeniedError, InternalError, SharedMemoryError
from sharedmem.knowledge.minds import Minds
from sharedmem.knowledge.searched import Searched
from sharedmem.synthesis.shelf.rows import decode, terms_of
from sharedmem.tasks import Work
from sharedmem.wire.keys import SHARED_SCOPE
from sharedmem.wire.noting import NOTE, Noting
from sharedmem.wire.replies import Argument, Command


class MissingTerms:
    """Gives the notes of one namespace the words that they lack.

    Args:
        minds: what the hub lends.
        namespace: whose notes.
    """

    def __init__(self, minds: Minds, namespace: str) -> None:
        self._minds = minds
        self._namespace = namespace
        self._searched = Searched(minds, minds.notes, namespace)
        self._noting = Noting(minds.sender)
        self._work: Work | None = None
        self._is_done = False

    @classmethod
    def of(cls, minds: Minds, namespace: str) -> MissingTerms:
        """The one that all stores of a namespace share in this hub."""
        return minds.shared(cls, namespace, lambda: cls(minds, namespace))

    def wake(self) -> None:
        """Look in the background, once a hub, for notes that lack their words; when that fails, at the next call."""
        if not self._is_done and (self._work is None or self._work.done):
            self._work = self._minds.background.start(f"index notes of {self._namespace}", self._run())

    async def fill(self) -> int:
        """Give all notes that lack them their words, and return how many these were.

        One round trip for every 200 notes, and two more where some lack words.

        Raises:
            AccessDeniedError: this hub may not write here.
            UnavailableError: the server cannot be reached; call it again to go on.
        """
        # Who gets words moves to the end of the log: it is read whole before.
        pages = [page async for page in self._searched.pages(self._namespace)]
        return sum([await self._filled(page) for page in pages])

    async def _run(self) -> None:
        try:
            await self.fill()
        except AccessDeniedError:
            pass  # who may only read leaves them to others
        except SharedMemoryError:
            return
        self._is_done = True

    async def _filled(self, ids: list[str]) -> int:
        record, line = self._minds.keyspace.record, self._minds.line
        keys = {id_: record(NOTE, self._namespace, id_) for id_ in ids}
        has = await line.read_each([("HEXISTS", key, "terms") for key in keys.values()])
        lacking = [id_ for id_, there in zip(keys, has, strict=True) if there == 0]
        looks: list[Command] = [("HMGET", keys[id_], "body", "version") for id_ in lacking]
        values: list[Argument] = []
        given: list[bytes] = []
        for id_, reply in zip(lacking, await line.read_each(looks, aside=True) if looks else (), strict=True):
            body, version = reply if isinstance(reply, list) else (None, None)
            terms = self._terms(body) if isinstance(body, bytes) and isinstance(version, bytes) else None
            if terms is not None and isinstance(version, bytes):
                values += (id_, version, terms)
                given.append(keys[id_])
        if not given:
            return 0
        space, log = self._minds.keyspace.space(self._namespace), self._minds.keyspace.record_log(NOTE, self._namespace)
        return await self._noting.note_index(
            space, SHARED_SCOPE.encode(), keys=[*given, log], field="terms", values=values
        )

    def _terms(self, body: bytes) -> str | None:
        """The words of a note; None where another client has written something else."""
        try:
            return terms_of(decode(body, 0), self._namespace)
        except (ValueError, InternalError):
            return None
