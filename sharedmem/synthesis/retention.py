"""Retention: what was retired is erased once a rule says that it was kept long enough."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from sharedmem.clock import Clock
from sharedmem.models import ForgetReport, Note, RetentionRules
from sharedmem.synthesis.archives import Archives
from sharedmem.synthesis.chains import Chains
from sharedmem.synthesis.checking import mended
from sharedmem.synthesis.evolution import under_locks
from sharedmem.synthesis.forgetting import Erasure, erase
from sharedmem.synthesis.lineage import evolved, together
from sharedmem.synthesis.protocol import Behind, Change, Permit, Shelf
from sharedmem.synthesis.repairing import every_note, lean
from sharedmem.synthesis.shelf.rows import chain_of

# A note that its successor does not name any more, or one that is erased but still named.
_LEFT_BY_A_CRASH = ("unreachable", "missing_source")


def expired(chain: Sequence[Note], rules: RetentionRules, *, now: datetime) -> list[Note]:
    """The notes of a chain that may be erased: those that a rule names, as far as all that they came from goes as well.

    So what stays of a chain hangs together, and its newest versions stay longest. Of notes that share an archive all
    go or none. Nothing of a damaged chain goes: repair it first. One that this was broken off in goes on.

    Args:
        chain: all notes that hang together.
        rules: which notes.
        now: when.
    """
    found = mended(chain)
    if any(problem.kind not in _LEFT_BY_A_CRASH for problem in found.problems):
        return []
    changed = {note.id: note for note in found.changed}
    chain = [changed.get(note.id, note) for note in chain]
    named = {note.id for note in chain if _is_named(note, rules, now)}
    while True:
        gone = _with_all_before(chain, named)
        going = {note.id for note in gone}
        needed = {note.archival_location for note in chain if note.id not in going} - {None}
        spared = {note.id for note in gone if note.archival_location in needed}
        if not spared:
            return gone
        named -= spared


def _with_all_before(chain: Sequence[Note], named: Container[str]) -> list[Note]:
    gone: dict[str, Note] = {}
    for note in evolved(chain):
        if note.id in named and all(source in gone for source in note.sources):
            gone[note.id] = note
    return list(gone.values())


def _is_named(note: Note, rules: RetentionRules, now: datetime) -> bool:
    if rules.keeps_heads and note.next_id is None:
        return False
    age = now - max(note.created_at, note.updated_at)
    return any(
        note.status in rule.statuses and note.kind in rule.kinds and age >= timedelta(days=rule.max_age_days)
        for rule in rules.rules
    )


class Retention:
    """Applies rules to the notes of one namespace.

    Args:
        shelf: where the notes are.
        chains: the locks of their chains.
        archives: where those lie that were put away.
        clock: the time to go by.
        permit: raises where a note must stay.
    """

    def __init__(self, *, shelf: Shelf, chains: Chains, archives: Archives, clock: Clock, permit: Permit) -> None:
        self._permit = permit
        self._shelf = shelf
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
    ) -> ForgetReport:
        """Erase for good what the rules name (see `expired`), chain by chain, each under its lock.

        What stays stops naming what goes, and only then that is erased: when it is broken off, the next call goes on.

        Args:
            app_id: whose.
            rules: what may go.
            dry_run: whether to count only.
            progress: called with the number of notes looked at so far.

        Raises:
            ConflictError: others change a chain all the time, or hold its lock; what went until then is gone.
            AccessDeniedError, UnavailableError: as the shelf and the blob store.
        """
        erasure = Erasure(app_id, None, dry_run=dry_run)
        notes = [lean(note) async for page in every_note(self._shelf, app_id, progress) for note in page]
        chains = list(together(notes))
        if not dry_run:
            self._check_authors(note for chain in chains for note in expired(chain, rules, now=self._clock.now()))
        for chain in chains:
            gone = expired(chain, rules, now=self._clock.now())
            if gone and dry_run:
                erasure.count((await self._shelf.get(app_id, [note.id for note in gone])).values())
            elif gone:
                erasure.count(await self._shortened(app_id, chain, rules))
        return erasure.report()

    def _check_authors(self, notes: Iterable[Note]) -> None:
        for note in notes:
            self._permit(note)

    async def _shortened(self, app_id: str, chain: Sequence[Note], rules: RetentionRules) -> list[Note]:
        ids = [note.id for note in chain]

        async def work(fences: Mapping[str, int]) -> list[Note] | Behind | set[str]:
            now = await self._shelf.get(app_id, ids)
            needed = {chain_of(note) for note in now.values()}
            if not needed <= fences.keys():
                return needed
            gone = expired(list(now.values()), rules, now=self._clock.now())
            self._check_authors(gone)
            done = await self._shelf.commit(app_id, changes=_without(now.values(), gone), fences=fences)
            if isinstance(done, Behind):
                return done
            await erase(self._shelf, self._archives, app_id, gone)
            return gone

        return await under_locks(self._chains, app_id, chain, work)


def _without(notes: Iterable[Note], gone: Iterable[Note]) -> list[Change]:
    """What stays of a chain, once it names no source that goes."""
    ids = {note.id for note in gone}
    staying = (note for note in notes if note.id not in ids and not ids.isdisjoint(note.sources))
    return [Change(note, sources=tuple(one for one in note.sources if one not in ids)) for note in staying]
