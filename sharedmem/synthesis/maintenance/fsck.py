"""Check the notes of an app for broken chains, and repair them on request."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

from sharedmem.models import Note, NoteCheck, NoteProblem
from sharedmem.synthesis.chains import ChainLocks, group_by_chain
from sharedmem.synthesis.evolution import MOST_ATTEMPTS, run_under_chain_locks
from sharedmem.synthesis.maintenance.consistency import plan_repair
from sharedmem.synthesis.note_repository.serialization import chain_id_of
from sharedmem.synthesis.protocol import NoteChange, NoteRepository, PermissionCheck, StaleNotes

_PAGE = 500


async def read_all_notes(
    repository: NoteRepository, app_id: str, progress: Callable[[int], None] | None = None
) -> AsyncIterator[list[Note]]:
    """Yield all notes of an app, page by page. Two round trips a page.

    Args:
        repository: stores the notes.
        app_id: id of the app.
        progress: called with the number of notes read so far.
    """
    after, seen = "", 0
    while page := await repository.page(app_id, after=after, limit=_PAGE):
        after = page[-1].id
        seen += len(page)
        yield page
        if progress is not None:
            progress(seen)


async def fsck(
    repository: NoteRepository,
    chains: ChainLocks,
    app_id: str,
    *,
    repair: bool = False,
    permit: PermissionCheck | None = None,
    progress: Callable[[int], None] | None = None,
) -> NoteCheck:
    """Check that the notes of an app are consistent (see `checking`), and repair them on request.

    While others add memories, pages are not a snapshot: what looks wrong is read once more before it is
    reported. A repair works chain by chain, each under the locks of all chains that it changes and in one commit; it
    changes statuses and links, never a text, and erases no note. Afterwards no problem is left, except new damage by
    others.

    Args:
        repository: stores the notes.
        chains: locks of the chains.
        app_id: id of the app.
        repair: whether to repair the problems.
        permit: raises if a note must not change; None permits all repairs.
        progress: called with the number of notes read so far.

    Raises:
        ConflictError: other callers keep changing a chain that needs a repair, or hold its lock.
        AccessDeniedError, UnavailableError: as the repository.
    """
    slim = [without_body(note) async for page in read_all_notes(repository, app_id, progress) for note in page]
    whole = plan_repair(slim)
    found: list[NoteProblem] = []
    if whole.problems:
        spoilt = {problem.note_id for problem in whole.problems}
        for notes in group_by_chain(slim):
            if spoilt.isdisjoint(note.id for note in notes):
                continue
            family = _BrokenChain(repository, chains, app_id, notes, permit)
            found += await (family.mend() if repair else family.look())
    found.sort(key=lambda problem: (problem.note_id, problem.kind))
    return NoteCheck(app_id=app_id, notes=len(slim), chains=whole.chains, problems=tuple(found))


class _BrokenChain:
    """Connected notes with a problem."""

    def __init__(
        self,
        repository: NoteRepository,
        chains: ChainLocks,
        app_id: str,
        notes: Sequence[Note],
        permit: PermissionCheck | None,
    ) -> None:
        self._permit = permit
        self._repository = repository
        self._chains = chains
        self._app_id = app_id
        self._notes = notes

    async def look(self) -> list[NoteProblem]:
        """Return the problems that still exist. Repeat the read until no note was changed during it."""
        before, now = await self._now(), await self._now()
        for _ in range(MOST_ATTEMPTS):
            if before == now:
                break
            before, now = now, await self._now()
        return list(plan_repair(now.values()).problems)

    async def mend(self) -> list[NoteProblem]:
        """Repair the chain under its locks; return the repaired problems."""
        return await run_under_chain_locks(self._chains, self._app_id, self._notes, self._mended)

    async def _mended(self, fences: Mapping[str, int]) -> list[NoteProblem] | StaleNotes | set[str]:
        now = await self._now()
        needed = {chain_id_of(note) for note in now.values()}
        if not needed <= fences.keys():
            return needed
        found = plan_repair(now.values())
        if self._permit is not None:
            for note in found.changed:
                self._permit(note)
        changes = [_note_change(now[note.id], note) for note in found.changed]
        done = await self._repository.commit(self._app_id, changes=changes, fences=fences)
        if isinstance(done, StaleNotes):
            return done
        return [problem.model_copy(update={"repaired": True}) for problem in found.problems]

    async def _now(self) -> dict[str, Note]:
        """Return the notes as they are now, with all that they refer to. A round trip for each step of distance."""
        found: dict[str, Note] = {}
        asked: set[str] = set()
        wanted = {note.id for note in self._notes}
        while wanted:
            asked |= wanted
            met = await self._repository.get(self._app_id, sorted(wanted))
            found |= met
            wanted = set(_referenced_ids(met.values())) - asked
        return found


def _referenced_ids(notes: Iterable[Note]) -> Iterable[str]:
    for note in notes:
        yield from note.sources
        if note.next_id is not None:
            yield note.next_id


def _note_change(before: Note, after: Note) -> NoteChange:
    return NoteChange(
        before,
        status=after.status,
        reason=after.status_reason,
        next_id=after.next_id,
        clears_next=after.next_id is None and before.next_id is not None,
        sources=after.sources,
    )


def without_body(note: Note) -> Note:
    """Return a note without its large fields: an app may have very many notes."""
    return note.model_copy(
        update={"memory_note": "", "messages": (), "resolutions": (), "keywords": (), "semantic_queries": ()}
    )
