"""A shelf of notes in a hub without a server, with all that looks after it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from sharedmem import Settings, SharedMemoryStore
from sharedmem.models import Note
from sharedmem.synthesis.chains import Chains
from sharedmem.synthesis.checking import problems
from sharedmem.synthesis.embedding import embedded
from sharedmem.synthesis.parts import Parts
from sharedmem.synthesis.protocol import Committed, Fresh
from sharedmem.synthesis.repairing import every_note
from sharedmem.synthesis.shelf import NoteShelf
from sharedmem.testing import ManualClock, fake_hub
from sharedmem.wire.vectors import Vector
from support.noted import APP


class NoteGround:
    """The notes of one namespace, and who looks after them.

    Args:
        store: of the namespace.
        clock: the time that all go by.
    """

    def __init__(self, store: SharedMemoryStore, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock
        self.minds = store._thinking()
        self.shelf = NoteShelf(self.minds, store._scope)
        self.chains = Chains(store._scope, store._ground)
        parts = Parts(self.minds, store._scope, store._ground)
        self.archives, self.desk = parts.archives, parts.desk
        self.evolution, self.archiving = parts.evolution, parts.archiving
        self.forgetting, self.retention = parts.forgetting, parts.retention

    async def vector(self, text: str) -> Vector | None:
        """Of a text."""
        assert self.minds.embedder is not None
        return await embedded(self.minds.embedder, text)

    async def put(self, *notes: Note) -> None:
        """Store notes as they are, however damaged their chains; archived ones without a vector."""
        for app in dict.fromkeys(note.app_id for note in notes):
            some = [note for note in notes if note.app_id == app]
            fresh = [Fresh(note, await self.vector(note.memory_note) if note.memory_note else None) for note in some]
            assert isinstance(await self.shelf.commit(app, fresh=fresh), Committed)

    async def all(self, app_id: str = APP) -> dict[str, Note]:
        """Every note of an app, by id."""
        return {note.id: note async for page in every_note(self.shelf, app_id) for note in page}

    async def one(self, id_: str, app_id: str = APP) -> Note:
        """A note."""
        return (await self.shelf.get(app_id, [id_]))[id_]

    async def found(self, text: str) -> list[str]:
        """Ids of the active notes that are found by a text, best first."""
        vector = await self.vector(text)
        assert vector is not None
        return [near.note.id for near in (await self.shelf.near(APP, vector))[0]]

    async def archived(self) -> int:
        """How many archives there are, with and without notes that refer to them."""
        return len([loose async for loose in self.archives.loose(older_than_s=float("-inf"))])

    def pass_years(self, years: float) -> None:
        """Let time pass."""
        self.clock.advance(years * 365.25 * 86_400)

    async def is_sound(self) -> bool:
        """Whether the notes hang together."""
        return problems((await self.all()).values()) == []


@asynccontextmanager
async def note_grounds(names: Iterable[str] = ("team",)) -> AsyncIterator[list[NoteGround]]:
    """Grounds in one hub, a namespace each."""
    clock = ManualClock()
    async with fake_hub(clock=clock, settings=Settings(embedder="hashing")) as hub:
        yield [NoteGround(hub.store(name), clock) for name in names]
