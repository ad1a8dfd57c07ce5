"""Check whether the notes of an app are consistent, and repair broken chains on request.

All of it is decided without I/O: `plan_repair` takes every note, repairs them in memory step by step, and reports each
step as a problem. So the report and the repair are the same, and repaired notes have no problems
left.

The rules: a retired note names its successor (`next_id`), and that one names it among its `sources`; no
path along `next_id` is a circle or leads to another user; each chain has one head; every retired note can be reached
from a head that is alive or archived, except notes that a user deleted by hand. Then every message can be reached, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from sharedmem.models import Note, NoteCheck, NoteProblem, NoteStatus, StatusReason
from sharedmem.models.notes import age_key
from sharedmem.synthesis.evolution import MOST_ATTEMPTS, ChainLocks, group_by_chain, run_under_chain_locks
from sharedmem.synthesis.note_serialization import chain_id_of
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


# -- rules ---------------------------------------------------------------------------------------


_LIVE_STATUSES = ("active", "conflict_pending")


class RepairPlan(NamedTuple):
    """The problems, and the repaired state."""

    problems: tuple[NoteProblem, ...]
    changed: tuple[Note, ...]
    """The changed notes in their repaired state, by id."""
    chains: int
    """The number of heads after the repair."""


def find_problems(notes: Iterable[Note]) -> list[NoteProblem]:
    """Return the problems of the notes of an app, by note. Linear in the notes and their sources.

    Args:
        notes: all of them; texts and messages are not used.
    """
    return list(plan_repair(notes).problems)


def plan_repair(notes: Iterable[Note]) -> RepairPlan:
    """Return the notes of an app in their repaired state. Linear in the notes and their sources.

    Args:
        notes: all of them; texts and messages are not used.
    """
    return _RepairPlanner(notes).done()


def is_current(note: Note) -> bool:
    """Return whether a note is the head of its chain: alive, archived with its chain, or deleted by hand."""
    return note.status in (*_LIVE_STATUSES, "archived") or is_deleted_by_hand(note)


def is_deleted_by_hand(note: Note) -> bool:
    """Return whether a user has deleted the note."""
    return note.status == "deleted" and note.status_reason == "manual_update"


class _UnionFind:
    """Sets of connected notes (union-find); each set has a note without a successor."""

    def __init__(self, ids: Iterable[str]) -> None:
        self._above = {id_: id_ for id_ in ids}

    def of(self, id_: str) -> str:
        """Return the representative of the set of a note."""
        above = self._above
        while above[id_] != id_:
            above[id_] = above[above[id_]]
            id_ = above[id_]
        return id_

    def join(self, below: str, above: str) -> None:
        """Merge the set of one note into that of the other."""
        self._above[self.of(below)] = self.of(above)


class _NoteDraft:
    """The state of a note during the repair."""

    def __init__(self, note: Note) -> None:
        self.note = note
        self.next = note.next_id
        self.sources = list(dict.fromkeys(note.sources))
        self.status: NoteStatus = note.status
        self.reason: StatusReason = note.status_reason

    @property
    def result(self) -> Note:
        return self.note.model_copy(
            update={
                "next_id": self.next,
                "sources": tuple(self.sources),
                "status": self.status,
                "status_reason": self.reason,
            }
        )

    @property
    def is_changed(self) -> bool:
        before = self.note.next_id, self.note.sources, self.note.status, self.note.status_reason
        return before != (self.next, tuple(self.sources), self.status, self.reason)

    def retire(self) -> None:
        if self.status in _LIVE_STATUSES:
            self.status, self.reason = "updated", "manual_update"


class _RepairPlanner:
    """One pass over all notes; each step depends on the results of the steps before."""

    def __init__(self, notes: Iterable[Note]) -> None:
        ordered = sorted(notes, key=age_key)
        self._all = {note.id: _NoteDraft(note) for note in ordered}
        self._found: list[NoteProblem] = []

    def done(self) -> RepairPlan:
        self._drop_missing_sources()
        self._cut_dangling_successors()
        self._break_cycles()
        self._add_missing_sources()
        trees = self._trees()
        split = self._settle_claims(trees)
        self._join_heads(trees, split)
        self._settle_statuses()
        changed = sorted((state.result for state in self._all.values() if state.is_changed), key=lambda note: note.id)
        heads = sum(state.next is None for state in self._all.values())
        problems = sorted(self._found, key=lambda problem: (problem.note_id, problem.kind, problem.explanation))
        return RepairPlan(tuple(problems), tuple(changed), heads)

    def _report(self, kind: str, note_id: str, explanation: str, repair: str) -> None:
        problem = {"kind": kind, "note_id": note_id, "explanation": explanation, "repair": repair}
        self._found.append(NoteProblem.model_validate(problem))

    # -- steps

    def _drop_missing_sources(self) -> None:
        for id_, state in self._all.items():
            if len(state.sources) < len(state.note.sources):
                self._leave_out(id_, "it names a source more than once", "each is named once")
            for source in list(state.sources):
                why = "is itself" if source == id_ else self._lacks(state, source)
                if why:
                    self._leave_out(id_, f"its source {source!r} {why}")
                    state.sources.remove(source)

    def _leave_out(self, id_: str, explanation: str, repair: str = "it is left out of the sources") -> None:
        self._report("missing_source", id_, explanation, repair)

    def _cut_dangling_successors(self) -> None:
        for id_, state in self._all.items():
            if state.next is None:
                continue
            if state.next == id_:
                self._report("cycle", id_, "it is its own successor", "it is the head of its chain again")
                state.next = None
            elif why := self._lacks(state, state.next):
                explanation = f"its successor {state.next!r} {why}"
                self._report("dangling_next", id_, explanation, "it is the head of its chain again")
                state.next = None

    def _lacks(self, state: _NoteDraft, other: str) -> str:
        """Return why a note cannot be connected to another one; empty if it can."""
        if other not in self._all:
            return "does not exist"
        # Chains never connect two users: no user may read the messages of another one.
        return "" if self._all[other].note.user_id == state.note.user_id else "belongs to another user"

    def _break_cycles(self) -> None:
        settled: set[str] = set()
        for start in self._all:
            way: dict[str, None] = {}
            here: str | None = start
            while here is not None and here not in settled and here not in way:
                way[here] = None
                here = self._all[here].next
            if here is not None and here in way:
                ring = list(way)[list(way).index(here) :]
                self._open(ring)
            settled.update(way)

    def _open(self, ring: Sequence[str]) -> None:
        newest = max(ring, key=lambda id_: age_key(self._all[id_].note))
        state = self._all[newest]
        after = state.next
        assert after is not None
        explanation = f"its successors form a circle of {len(ring)} notes"
        self._report("cycle", newest, explanation, "it, the newest of them, is the head of its chain again")
        state.next = None
        if newest in self._all[after].sources:
            self._all[after].sources.remove(newest)

    def _add_missing_sources(self) -> None:
        named = {id_: set(state.sources) for id_, state in self._all.items()}
        for id_, state in self._all.items():
            if state.next is not None and id_ not in named[state.next]:
                explanation = f"its successor {state.next!r} does not name it among its sources"
                self._report("unreachable", id_, explanation, f"{state.next!r} names it among its sources")
                self._all[state.next].sources.append(id_)

    def _trees(self) -> _UnionFind:
        trees = _UnionFind(self._all)
        for id_, state in self._all.items():
            if state.next is not None:
                trees.join(id_, state.next)
        return trees

    def _settle_claims(self, trees: _UnionFind) -> list[tuple[str, str]]:
        """Drop sources that do not point back; return pairs of notes whose trees are parts of one chain."""
        split = []
        for id_, state in self._all.items():
            for source in [one for one in state.sources if self._all[one].next != id_]:
                is_apart = trees.of(source) != trees.of(id_)
                other = self._all[source].next
                if other is None and is_apart:
                    self._follow(source, id_, trees)
                    continue
                why = "is the head that it leads to" if other is None else f"has another successor, {other!r}"
                self._leave_out(id_, f"its source {source!r} {why}")
                state.sources.remove(source)
                if is_apart:
                    split.append((source, id_))
        return split

    def _follow(self, source: str, successor: str, trees: _UnionFind) -> None:
        explanation = f"it is a source of {successor!r} and names no successor"
        self._report("not_retired", source, explanation, f"{successor!r} becomes its successor")
        self._all[source].next = successor
        self._all[source].retire()
        trees.join(source, successor)

    def _join_heads(self, trees: _UnionFind, split: Iterable[tuple[str, str]]) -> None:
        groups = _UnionFind(self._all)
        for id_, state in self._all.items():
            if state.next is not None:
                groups.join(id_, state.next)
        for one, other in split:
            groups.join(one, other)
        first_head: dict[tuple[str, str], str] = {}
        for id_, state in self._all.items():
            if state.next is None:
                chain = state.note.user_id, chain_id_of(state.note)
                groups.join(id_, first_head.setdefault(chain, id_))
        heads: defaultdict[str, list[str]] = defaultdict(list)
        for id_, state in self._all.items():
            if state.next is None:
                heads[groups.of(id_)].append(id_)
        for rivals in heads.values():
            self._unite(rivals, trees)

    def _unite(self, rivals: Sequence[str], trees: _UnionFind) -> None:
        """Make the newest living note the successor of the others; their content can still be reached."""
        head = max(rivals, key=self._precedence)
        for id_ in rivals:
            if id_ == head:
                continue
            state = self._all[id_]
            explanation = f"its chain {chain_id_of(state.note)!r} has another head, {head!r}"
            repair = f"{head!r} becomes its successor, and names it among its sources"
            self._report("two_heads", id_, explanation, repair)
            state.next = head
            state.retire()
            self._all[head].sources.append(id_)
            trees.join(id_, head)

    def _precedence(self, id_: str) -> tuple[int, datetime, str]:
        state = self._all[id_]
        if state.status in _LIVE_STATUSES:
            rank = 2
        elif is_current(state.note):
            rank = 0
        else:
            rank = 1  # it becomes the head of its chain again
        return rank, *age_key(state.note)

    def _settle_statuses(self) -> None:
        lost = {problem.note_id for problem in self._found if problem.kind in ("dangling_next", "cycle")}
        for id_, state in self._all.items():
            if state.next is not None and state.status in _LIVE_STATUSES:
                explanation = f"it is {state.status} although {state.next!r} is its successor"
                self._report("not_retired", id_, explanation, "it becomes updated")
                state.retire()
            elif state.next is None and not is_current(state.result):
                if id_ not in lost:
                    explanation = f"it is {state.status}, and has no successor"
                    self._report("unreachable", id_, explanation, "it becomes active again")
                state.status, state.reason = "active", "manual_update"
