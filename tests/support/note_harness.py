"""Harness of the maintenance tests: notes in a hub without a server, and the services that maintain them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from sharedmem import Settings, SharedMemoryStore
from sharedmem.models import Note
from sharedmem.redis.vectors import Vector
from sharedmem.synthesis.consistency import find_problems, read_all_notes
from sharedmem.synthesis.evolution import ChainLocks
from sharedmem.synthesis.note_repository import RedisNoteRepository
from sharedmem.synthesis.protocol import CommittedNotes, NewNote, NoteRepository
from sharedmem.synthesis.resolver import embed_note
from sharedmem.synthesis.worker import SynthesisServices
from sharedmem.testing import ManualClock, fake_hub
from support.contexts import context_of, knowledge_of, scope_of
from support.note_chains import APP


class NoteHarness:
    """The notes of one namespace, with the services that maintain them.

    Args:
        store: of the namespace.
        clock: the time that all go by.
    """

    def __init__(self, store: SharedMemoryStore, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock
        self.context = knowledge_of(store)
        self.repository = RedisNoteRepository(self.context, scope_of(store))
        self.chains = ChainLocks(scope_of(store), context_of(store))
        services = self.services(self.repository)
        self.archives, self.intake = services.archives, services.intake
        self.evolution, self.archiver = services.evolution, services.archiver
        self.eraser, self.retention = services.eraser, services.retention

    def services(self, repository: NoteRepository) -> SynthesisServices:
        """The services of this namespace over another repository, such as one that fails."""
        return SynthesisServices(self.context, scope_of(self.store), repository=repository)

    async def vector(self, text: str) -> Vector | None:
        """Of a text."""
        assert self.context.embedder is not None
        return await embed_note(self.context.embedder, text)

    async def put(self, *notes: Note) -> None:
        """Store notes as they are, however damaged their chains; archived ones without a vector."""
        for app in dict.fromkeys(note.app_id for note in notes):
            some = [note for note in notes if note.app_id == app]
            fresh = [NewNote(note, await self.vector(note.memory_note) if note.memory_note else None) for note in some]
            assert isinstance(await self.repository.commit(app, fresh=fresh), CommittedNotes)

    async def all(self, app_id: str = APP) -> dict[str, Note]:
        """Every note of an app, by id."""
        return {note.id: note async for page in read_all_notes(self.repository, app_id) for note in page}

    async def one(self, id_: str, app_id: str = APP) -> Note:
        """A note."""
        return (await self.repository.get(app_id, [id_]))[id_]

    async def found(self, text: str) -> list[str]:
        """Ids of the active notes that are found by a text, best first."""
        vector = await self.vector(text)
        assert vector is not None
        return [near.note.id for near in (await self.repository.near(APP, vector))[0]]

    async def archived(self) -> int:
        """How many archives there are, with and without notes that refer to them."""
        return len([loose async for loose in self.archives.list_archives(older_than_s=float("-inf"))])

    def pass_years(self, years: float) -> None:
        """Let time pass."""
        self.clock.advance(years * 365.25 * 86_400)

    async def is_sound(self) -> bool:
        """Whether the notes hang together."""
        return find_problems((await self.all()).values()) == []


@asynccontextmanager
async def open_note_harnesses(names: Iterable[str] = ("team",)) -> AsyncIterator[list[NoteHarness]]:
    """Grounds in one hub, a namespace each."""
    clock = ManualClock()
    async with fake_hub(clock=clock, settings=Settings(embedder="hashing")) as hub:
        yield [NoteHarness(hub.store(name), clock) for name in names]
