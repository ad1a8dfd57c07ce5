"""The search index of notes: fill in missing terms, and the texts of vectors."""

from __future__ import annotations

from collections.abc import Sequence

from sharedmem.context import ServerContext
from sharedmem.errors import AccessDeniedError, InternalError, SharedMemoryError
from sharedmem.index_maintenance import IndexedRecords, VectorSource
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.redis.keys import SHARED_SCOPE
from sharedmem.redis.replies import Argument, Command
from sharedmem.redis.scripts.knowledge import NOTE_FAMILY, NoteScripts
from sharedmem.runtime.background import BackgroundTask
from sharedmem.synthesis.note_serialization import decode_note, note_terms
from sharedmem.synthesis.note_text import own_text


class MissingTermsFiller:
    """Adds the terms that notes of one namespace lack.

    Args:
        context: dependencies that the hub shares with its stores.
        namespace: namespace of the notes.
    """

    def __init__(self, context: KnowledgeContext, namespace: str) -> None:
        self._context = context
        self._namespace = namespace
        self._searched = IndexedRecords(context, context.notes, namespace)
        self._noting = NoteScripts(context.executor)
        self._work: BackgroundTask | None = None
        self._is_done = False

    @classmethod
    def of(cls, context: KnowledgeContext, namespace: str) -> MissingTermsFiller:
        """Return the instance that all stores of a namespace share in this hub."""
        return context.shared(cls, namespace, lambda: cls(context, namespace))

    def wake(self) -> None:
        """Search in the background, once per hub, for notes without terms; after a failure again at the next call."""
        if not self._is_done and (self._work is None or self._work.done):
            self._work = self._context.background.start(f"index notes of {self._namespace}", self._run())

    async def fill(self) -> int:
        """Add the terms to all notes that lack them, and return how many there were.

        One round trip for every 200 notes, and two more if some lack terms.

        Raises:
            AccessDeniedError: this hub may not write here.
            UnavailableError: the server cannot be reached; call it again to continue.
        """
        # An updated note moves to the end of the log: the whole log is read first.
        pages = [page async for page in self._searched.pages(self._namespace)]
        return sum([await self._filled(page) for page in pages])

    async def _run(self) -> None:
        try:
            await self.fill()
        except AccessDeniedError:
            pass  # hubs that may only read leave this to other hubs
        except SharedMemoryError:
            return
        self._is_done = True

    async def _filled(self, ids: list[str]) -> int:
        record, client = self._context.keyspace.record, self._context.client
        keys = {id_: record(NOTE_FAMILY, self._namespace, id_) for id_ in ids}
        has = await client.read_each([("HEXISTS", key, "terms") for key in keys.values()])
        lacking = [id_ for id_, there in zip(keys, has, strict=True) if there == 0]
        looks: list[Command] = [("HMGET", keys[id_], "body", "version") for id_ in lacking]
        values: list[Argument] = []
        given: list[bytes] = []
        for id_, reply in zip(lacking, await client.read_each(looks, aside=True) if looks else (), strict=True):
            body, version = reply if isinstance(reply, list) else (None, None)
            terms = self._terms(body) if isinstance(body, bytes) and isinstance(version, bytes) else None
            if terms is not None and isinstance(version, bytes):
                values += (id_, version, terms)
                given.append(keys[id_])
        if not given:
            return 0
        space, log = (
            self._context.keyspace.space(self._namespace),
            self._context.keyspace.record_log(NOTE_FAMILY, self._namespace),
        )
        return await self._noting.note_index(
            space, SHARED_SCOPE.encode(), keys=[*given, log], field="terms", values=values
        )

    def _terms(self, body: bytes) -> str | None:
        """Return the terms of a note; None if another client has written something else."""
        try:
            return note_terms(decode_note(body, 0), self._namespace)
        except (ValueError, InternalError):
            return None


def _embedding_text(_id: str, body: bytes) -> str:
    try:
        return own_text(decode_note(body, 0).memory_note)
    except InternalError:
        return ""


async def _write_vectors(
    context: ServerContext, namespace: str, keys: Sequence[bytes], vectors: Sequence[Argument]
) -> None:
    space, author = context.keyspace.space(namespace), SHARED_SCOPE.encode()
    await NoteScripts(context.executor).note_index(space, author, keys=keys, field="vector", values=vectors)


async def _fill_terms(context: KnowledgeContext, namespace: str) -> None:
    await MissingTermsFiller.of(context, namespace).fill()


NOTE_VECTORS = VectorSource(_embedding_text, _write_vectors, prepare=_fill_terms)
