"""Erase notes for good: all of a user or an app, or retired notes by retention rules."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from sharedmem.clock import Clock
from sharedmem.models import EraseReport, Note, RetentionRules
from sharedmem.models.notes import sort_by_succession
from sharedmem.synthesis.chain_archive import ChainArchiveStore
from sharedmem.synthesis.consistency import plan_repair, read_all_notes, without_body
from sharedmem.synthesis.evolution import ChainLocks, group_by_chain, run_under_chain_locks
from sharedmem.synthesis.note_serialization import chain_id_of
from sharedmem.synthesis.protocol import NoteChange, NoteRepository, PermissionCheck, StaleNotes

ForgetTasks = Callable[[str, str | None], Awaitable[int]]
"""Discards the open tasks of an app, or of one of its users; returns how many they were."""

CheckTasks = Callable[[str, str | None], Awaitable[None]]
"""Raises if a task must not be discarded."""

_ROUNDS = 3


class ErasureCounts:
    """Counts of erased notes, or of notes that would be erased.

    Args:
        app_id: id of the app.
        user_id: None means all users.
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

    def report(self) -> EraseReport:
        """Return the counts."""
        oldest, newest = (self._moments[0], self._moments[1]) if self._moments else (None, None)
        return EraseReport(
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


class NoteEraser:
    """Erases the notes of one namespace.

    Args:
        repository: stores the notes.
        archives: the archived chains.
        check_tasks: raises if a task must not be discarded.
        tasks: discards open tasks.
        permit: raises if a note must not be erased.
    """

    def __init__(
        self,
        *,
        repository: NoteRepository,
        archives: ChainArchiveStore,
        check_tasks: CheckTasks,
        tasks: ForgetTasks,
        permit: PermissionCheck,
    ) -> None:
        self._check_tasks = check_tasks
        self._permit = permit
        self._repository = repository
        self._archives = archives
        self._tasks = tasks

    async def forget(
        self,
        app_id: str,
        user_id: str | None = None,
        *,
        dry_run: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> EraseReport:
        """Erase notes with their messages and archives, open tasks and waiting messages, and cached answers of models.

        They are erased here and in the durable tier, for good. The call works page by page, tasks first; after an
        interruption, call it again to continue. Cached answers of models have no user: all of the app's are deleted.
        A task in progress, or a conversation that is added for that user meanwhile, may leave a
        note: call it again when no conversations are added for that user. Vectors of texts expire
        in the caches, results of tasks after `synthesis_result_s`, and archives that a
        crash has left are deleted by the next `archive`. Archived messages are not counted: their archives are.

        Args:
            app_id: id of the app.
            user_id: None means all users of the app.
            dry_run: whether to count only; tasks are not counted then.
            progress: called with the number of notes read so far.

        Raises:
            AccessDeniedError: this actor may not write the namespace's notes.
            UnavailableError: the server, the durable tier or the blob store cannot be reached.
        """
        erasure = ErasureCounts(app_id, user_id, dry_run=dry_run)
        if dry_run:
            async for page in read_all_notes(self._repository, app_id, progress):
                erasure.count(_notes_of_user(page, user_id))
            return erasure.report()
        await self._check_tasks(app_id, user_id)
        async for page in read_all_notes(self._repository, app_id):
            self._check_authors(_notes_of_user(page, user_id))
        erasure.tasks = await self._tasks(app_id, user_id)
        for _ in range(_ROUNDS):
            if not await self._sweep_through(erasure, app_id, user_id, progress):
                break
        await self._drop_orphaned_archives(app_id, None if user_id is None else erasure.ids)
        await self._repository.clear_answers(app_id)
        return erasure.report()

    def _check_authors(self, notes: Iterable[Note]) -> None:
        for note in notes:
            self._permit(note)

    async def _sweep_through(
        self, erasure: ErasureCounts, app_id: str, user_id: str | None, progress: Callable[[int], None] | None
    ) -> bool:
        """Erase the existing notes; return whether there were any, since more may have been added meanwhile."""
        found = False
        async for page in read_all_notes(self._repository, app_id, progress):
            erased = _notes_of_user(page, user_id)
            self._check_authors(erased)
            erasure.count(erased)
            await erase_notes(self._repository, self._archives, app_id, erased)
            found = found or bool(erased)
        return found

    async def _drop_orphaned_archives(self, app_id: str, ids: Container[str] | None) -> None:
        """Delete archives of these notes that no note ever referred to; None: of the whole app."""
        async for loose in self._archives.list_archives(older_than_s=float("-inf")):
            if loose.app_id == app_id and (ids is None or loose.note_id in ids):
                await self._archives.drop(loose)


async def erase_notes(
    repository: NoteRepository, archives: ChainArchiveStore, app_id: str, notes: Iterable[Note]
) -> None:
    """Erase notes with their archives for good. Archives first: after a crash the remaining notes still refer to them.

    Args:
        repository: stores the notes.
        archives: the archives of their texts.
        app_id: id of the app.
        notes: the notes; other notes in an archive of one of them lose it too.
    """
    erased = list(notes)
    for location in dict.fromkeys(note.archival_location for note in erased):
        if location is not None:
            await archives.remove(app_id, location)
    if erased:
        await repository.erase(app_id, [note.id for note in erased])


def _notes_of_user(notes: Iterable[Note], user_id: str | None) -> list[Note]:
    return [note for note in notes if user_id is None or note.user_id == user_id]


# A note that its successor does not name any more, or one that was erased but is still named.
_REPAIRABLE_PROBLEMS = ("unreachable", "missing_source")


def expired_notes(chain: Sequence[Note], rules: RetentionRules, *, now: datetime) -> list[Note]:
    """Return the notes of a chain that may be erased: they match a rule, and all their sources are erased as well.

    So the rest of a chain stays connected, and its newest versions stay longest. Notes that share an archive are all
    erased or none. Nothing of a damaged chain is erased: repair it first. An interrupted erasure continues.

    Args:
        chain: all connected notes.
        rules: the retention rules.
        now: when.
    """
    found = plan_repair(chain)
    if any(problem.kind not in _REPAIRABLE_PROBLEMS for problem in found.problems):
        return []
    changed = {note.id: note for note in found.changed}
    chain = [changed.get(note.id, note) for note in chain]
    named = {note.id for note in chain if _matches_rule(note, rules, now)}
    while True:
        erased = _with_predecessors(chain, named)
        going = {note.id for note in erased}
        needed = {note.archival_location for note in chain if note.id not in going} - {None}
        spared = {note.id for note in erased if note.archival_location in needed}
        if not spared:
            return erased
        named -= spared


def _with_predecessors(chain: Sequence[Note], named: Container[str]) -> list[Note]:
    erased: dict[str, Note] = {}
    for note in sort_by_succession(chain):
        if note.id in named and all(source in erased for source in note.sources):
            erased[note.id] = note
    return list(erased.values())


def _matches_rule(note: Note, rules: RetentionRules, now: datetime) -> bool:
    if rules.keeps_heads and note.next_id is None:
        return False
    age = now - max(note.created_at, note.updated_at)
    return any(
        note.status in rule.statuses and note.kind in rule.kinds and age >= timedelta(days=rule.max_age_days)
        for rule in rules.rules
    )


class NoteRetention:
    """Applies rules to the notes of one namespace.

    Args:
        repository: stores the notes.
        chains: locks of the chains.
        archives: the archived chains.
        clock: the current time.
        permit: raises if a note must not be erased.
    """

    def __init__(
        self,
        *,
        repository: NoteRepository,
        chains: ChainLocks,
        archives: ChainArchiveStore,
        clock: Clock,
        permit: PermissionCheck,
    ) -> None:
        self._permit = permit
        self._repository = repository
        self._chains = chains
        self._archives = archives
        self._clock = clock

    async def apply(
        self,
        app_id: str,
        rules: RetentionRules,
        *,
        dry_run: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> EraseReport:
        """Erase the notes that match the rules (see `expired_notes`) for good, chain by chain, each under its lock.

        First the remaining notes stop naming the others, and only then these are erased: after an interruption, the
        next call continues.

        Args:
            app_id: id of the app.
            rules: the retention rules.
            dry_run: whether to count only.
            progress: called with the number of notes read so far.

        Raises:
            ConflictError: other callers keep changing a chain, or hold its lock; notes erased before stay erased.
            AccessDeniedError, UnavailableError: as the repository and the blob store.
        """
        erasure = ErasureCounts(app_id, None, dry_run=dry_run)
        notes = [
            without_body(note) async for page in read_all_notes(self._repository, app_id, progress) for note in page
        ]
        chains = list(group_by_chain(notes))
        if not dry_run:
            self._check_authors(note for chain in chains for note in expired_notes(chain, rules, now=self._clock.now()))
        for chain in chains:
            erased = expired_notes(chain, rules, now=self._clock.now())
            if erased and dry_run:
                erasure.count((await self._repository.get(app_id, [note.id for note in erased])).values())
            elif erased:
                erasure.count(await self._shortened(app_id, chain, rules))
        return erasure.report()

    def _check_authors(self, notes: Iterable[Note]) -> None:
        for note in notes:
            self._permit(note)

    async def _shortened(self, app_id: str, chain: Sequence[Note], rules: RetentionRules) -> list[Note]:
        ids = [note.id for note in chain]

        async def work(fences: Mapping[str, int]) -> list[Note] | StaleNotes | set[str]:
            now = await self._repository.get(app_id, ids)
            needed = {chain_id_of(note) for note in now.values()}
            if not needed <= fences.keys():
                return needed
            erased = expired_notes(list(now.values()), rules, now=self._clock.now())
            self._check_authors(erased)
            done = await self._repository.commit(app_id, changes=_without_sources(now.values(), erased), fences=fences)
            if isinstance(done, StaleNotes):
                return done
            await erase_notes(self._repository, self._archives, app_id, erased)
            return erased

        return await run_under_chain_locks(self._chains, app_id, chain, work)


def _without_sources(notes: Iterable[Note], erased: Iterable[Note]) -> list[NoteChange]:
    """Return the changes of the remaining notes of a chain, which name no erased source any more."""
    ids = {note.id for note in erased}
    staying = (note for note in notes if note.id not in ids and not ids.isdisjoint(note.sources))
    return [NoteChange(note, sources=tuple(one for one in note.sources if one not in ids)) for note in staying]
