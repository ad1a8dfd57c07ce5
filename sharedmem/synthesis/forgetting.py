"""Forgetting: what is known of a user, or of a whole app, is erased for good."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterable
from datetime import datetime

from sharedmem.models import ForgetReport, Note
from sharedmem.synthesis.archives import Archives
from sharedmem.synthesis.protocol import Permit, Shelf
from sharedmem.synthesis.repairing import every_note

ForgetTasks = Callable[[str, str | None], Awaitable[int]]
"""Discards what is still to be done for an app, or one of its users; answers how much it was."""

CheckTasks = Callable[[str, str | None], Awaitable[None]]
"""Raises where some of that must not be discarded."""

_ROUNDS = 3


class Erasure:
    """What was erased, or would be, while it is counted.

    Args:
        app_id: whose.
        user_id: None means everybody's.
        dry_run: whether nothing is erased.
    """

    def __init__(self, app_id: str, user_id: str | None, *, dry_run: bool) -> None:
        self._app_id = app_id
        self._user_id = user_id
        self._dry_run = dry_run
        self._moments: tuple[datetime, ...] = ()
        self._locations: set[str] = set()
        self._messages = 0
        self.ids: set[str] = set()
        self.tasks = 0

    def count(self, notes: Iterable[Note]) -> None:
        """Count some notes."""
        for note in notes:
            self.ids.add(note.id)
            self._messages += len(note.messages)
            self._moments = (
                min(note.created_at, *self._moments, note.created_at),
                max(note.created_at, *self._moments, note.created_at),
            )
            if note.archival_location is not None:
                self._locations.add(note.archival_location)

    def report(self) -> ForgetReport:
        """What was counted."""
        oldest, newest = (self._moments[0], self._moments[1]) if self._moments else (None, None)
        return ForgetReport(
            app_id=self._app_id,
            user_id=self._user_id,
            notes=len(self.ids),
            messages=self._messages,
            archives=len(self._locations),
            tasks=self.tasks,
            oldest=oldest,
            newest=newest,
            dry_run=self._dry_run,
        )


class Forgetting:
    """Erases the notes of one namespace.

    Args:
        shelf: where the notes are.
        archives: where those lie that were put away.
        check_tasks: raises where something must not be discarded.
        tasks: who discards what is still to be done.
        permit: raises where a note must stay.
    """

    def __init__(
        self, *, shelf: Shelf, archives: Archives, check_tasks: CheckTasks, tasks: ForgetTasks, permit: Permit
    ) -> None:
        self._check_tasks = check_tasks
        self._permit = permit
        self._shelf = shelf
        self._archives = archives
        self._tasks = tasks

    async def forget(
        self,
        app_id: str,
        user_id: str | None = None,
        *,
        dry_run: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> ForgetReport:
        """Erase notes with their messages and archives, what waits to be made of conversations, and answers of models.

        Here and in the durable tier; nothing can bring them back. Page by page, tasks first: when it is broken off,
        call it again and it goes on. What models have answered is remembered without names: all of the app's goes.
        A task that is worked on while this runs, or a conversation of that user that is told meanwhile, may leave a
        note behind the last look: forget once more when nobody adds for that user any longer. Vectors of texts expire
        in the caches by themselves, results of tasks that are done after `synthesis_result_s`, and archives that a
        crash left behind go with the next `archive`. Messages that are archived are not counted: their archives are.

        Args:
            app_id: whose.
            user_id: None means all users of the app.
            dry_run: whether to count only; tasks are not counted then.
            progress: called with the number of notes looked at so far.

        Raises:
            AccessDeniedError: this actor may not write the namespace's notes.
            UnavailableError: the server, the durable tier or the blob store cannot be reached.
        """
        erasure = Erasure(app_id, user_id, dry_run=dry_run)
        if dry_run:
            async for page in every_note(self._shelf, app_id, progress):
                erasure.count(_of(page, user_id))
            return erasure.report()
        await self._check_tasks(app_id, user_id)
        async for page in every_note(self._shelf, app_id):
            self._check_authors(_of(page, user_id))
        erasure.tasks = await self._tasks(app_id, user_id)
        for _ in range(_ROUNDS):
            if not await self._sweep_through(erasure, app_id, user_id, progress):
                break
        await self._drop_what_is_loose(app_id, None if user_id is None else erasure.ids)
        await self._shelf.disremember(app_id)
        return erasure.report()

    def _check_authors(self, notes: Iterable[Note]) -> None:
        for note in notes:
            self._permit(note)

    async def _sweep_through(
        self, erasure: Erasure, app_id: str, user_id: str | None, progress: Callable[[int], None] | None
    ) -> bool:
        """Erase what is there; whether there was anything, and so may be more that came meanwhile."""
        found = False
        async for page in every_note(self._shelf, app_id, progress):
            gone = _of(page, user_id)
            self._check_authors(gone)
            erasure.count(gone)
            await erase(self._shelf, self._archives, app_id, gone)
            found = found or bool(gone)
        return found

    async def _drop_what_is_loose(self, app_id: str, ids: Container[str] | None) -> None:
        """Remove archives that were written and never referred to, of these notes; None: of the whole app."""
        async for loose in self._archives.loose(older_than_s=float("-inf")):
            if loose.app_id == app_id and (ids is None or loose.note_id in ids):
                await self._archives.drop(loose)


async def erase(shelf: Shelf, archives: Archives, app_id: str, notes: Iterable[Note]) -> None:
    """Erase notes with their archives for good. The archives go first: what is left of a crash still leads to them.

    Args:
        shelf: where the notes are.
        archives: where their texts may be.
        app_id: whose.
        notes: which; whoever shares an archive with one of them loses it as well.
    """
    gone = list(notes)
    for location in dict.fromkeys(note.archival_location for note in gone):
        if location is not None:
            await archives.remove(app_id, location)
    if gone:
        await shelf.erase(app_id, [note.id for note in gone])


def _of(notes: Iterable[Note], user_id: str | None) -> list[Note]:
    return [note for note in notes if user_id is None or note.user_id == user_id]
