"""Moving claims to the lines where they belong, after an entity was merged into another one or parted from it.

Claims keep the ids they were said with; which lines they stand in, and which facts follow, depends on what these ids
lead to. A hub with very many claims is moved page by page. Each page is a step of its own that is written whole or not
at all, so that a move which was cut off can be begun again: what lies where it belongs is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import orjson

from sharedmem.errors import ConflictError
from sharedmem.knowledge.graph.meanings import Meanings
from sharedmem.knowledge.graph.planning import Ground, lines_of
from sharedmem.knowledge.graph.projecting import further_lines, project
from sharedmem.knowledge.graph.protocol import GraphBackend, GraphProgress
from sharedmem.knowledge.graph.records import Behind, Changes, Claim, EpisodeRow, FactRow, Row, Seen, Wanted
from sharedmem.knowledge.graph.relations import Vocabulary
from sharedmem.knowledge.graph.times import OPEN
from sharedmem.knowledge.graph.turns import Turns

LINES_AT_ONCE = 100
"""Lines that one step moves, besides those that depend on them."""
RECORDS_AT_ONCE = 400
"""Records that one commit writes, of a step that has to write more."""


@dataclass(frozen=True, slots=True)
class Move:
    """Whose claims move, and between whom."""

    said: tuple[str, ...]
    """Ids with which they were said."""
    old: str
    """The entity to which these led before."""
    new: str
    """The one to which they lead now."""


@dataclass(frozen=True, slots=True)
class Found:
    """Some lines and what depends on them."""

    seen: Seen
    """With `claims` of all these lines, and `into` of the entities in them as it is now."""
    move: Move
    vocabulary: Vocabulary

    def now(self, id_: str) -> str:
        """What an id leads to."""
        return self.seen.into.get(id_, id_)

    def before(self, id_: str) -> str:
        """What an id led to before the move."""
        return self.move.old if id_ in self.move.said else self.now(id_)

    def itself(self, id_: str) -> str:
        """What an id led to before an earlier move, if that was cut off."""
        return id_ if id_ in self.move.said else self.now(id_)

    def ways(self) -> list[Callable[[str], str]]:
        """All ways in which ids may have been read when these lines were written."""
        return [self.now, self.before, self.itself] if len(self.move.said) > 1 else [self.now, self.before]

    def facts(self, canonical: Callable[[str], str]) -> dict[str, FactRow]:
        """What follows from all these lines."""
        rows = project(self.seen.claims, former={}, vocabulary=self.vocabulary, canonical=canonical)
        return {row.id: row for row in rows}

    def moved(self) -> dict[str, set[str]]:
        """Ids of claims that were said with a moved id, by episode."""
        moved: dict[str, set[str]] = {}
        for claims in self.seen.claims.values():
            for claim in claims:
                if not {claim.source, claim.target}.isdisjoint(self.move.said):
                    moved.setdefault(claim.episode, set()).add(claim.id)
        return moved


def changes_of_move(found: Found, former: Mapping[str, FactRow]) -> Changes | None:
    """What a step has to write so that some lines are as they should be. Pure.

    Args:
        found: the lines, with the episodes of the claims that move in `seen.episodes`.
        former: the facts that lie there, of those that should and those that should not.

    Returns:
        None when everything is where it belongs.
    """
    right = found.facts(found.now)
    fresh = {id_: _kept(row, former.get(id_)) for id_, row in right.items()}
    changed = [row for id_, row in fresh.items() if row != former.get(id_)]
    gone = [row for id_, row in former.items() if id_ not in right]
    pairs = _rewritten(found, gone, changed)
    if not changed and not gone and not pairs:
        return None
    replaced: list[Row] = [before for before, _ in pairs]
    replaced += [*gone, *(former[row.id] for row in changed if row.id in former)]
    lines = {*found.seen.claims, *(line for _, row in pairs for lines in row.lines for line in lines)}
    return Changes(
        guards=tuple(sorted(lines)),
        steady=(f"@{found.move.old}", f"@{found.move.new}"),
        episodes=tuple(after for _, after in pairs),
        facts=tuple(changed),
        former=tuple(replaced),
    )


def _kept(row: FactRow, held: FactRow | None) -> FactRow:
    """A fact as it should be, with what lies there already."""
    return row if held is None else replace(row, version=held.version, vector=held.vector)


def _rewritten(
    found: Found, gone: Iterable[FactRow], changed: Iterable[FactRow]
) -> list[tuple[EpisodeRow, EpisodeRow]]:
    """The episodes that are not as they should be, each with how it should be."""
    moved, ground = found.moved(), Ground(found.vocabulary, found.now, {})
    ended = {row.id for row in gone}
    come: dict[str, list[str]] = {}
    for fact in changed:
        for id_ in fact.episodes:
            come.setdefault(id_, []).append(fact.id)
    pairs = []
    for row in found.seen.episodes.values():
        claims = moved.get(row.id, set())
        each = zip(row.claims, row.lines, strict=True)
        lines = tuple(lines_of(claim, ground) if claim.id in claims else held for claim, held in each)
        pairs.append((row, replace(row, lines=lines, body=_body(row, ended, come.get(row.id, ())))))
    return [(before, after) for before, after in pairs if before != after]


def _body(row: EpisodeRow, ended: set[str], come: Iterable[str]) -> bytes:
    """The episode as it is told, naming the facts that follow from it now."""
    told = orjson.loads(row.body)
    before = told.get("fact_ids", [])
    fresh = [id_ for id_ in come if id_ not in before]
    if ended.isdisjoint(before) and not fresh:
        return row.body
    told["fact_ids"] = [*(id_ for id_ in before if id_ not in ended), *fresh]
    return orjson.dumps(told)


def pieces(changes: Changes) -> list[Changes]:
    """The same in parts of so many records as one commit may write: the episodes first, then the facts."""
    former = {(type(row), row.id): row for row in changes.former}
    left: list[Row] = [*changes.episodes, *changes.facts]
    taken = {(type(row), row.id) for row in left}
    gone = [row for key, row in former.items() if key not in taken]
    every = [*left, *gone]
    return [
        replace(
            changes,
            episodes=tuple(row for row in some if isinstance(row, EpisodeRow)),
            facts=tuple(row for row in some if isinstance(row, FactRow) and (FactRow, row.id) in taken),
            former=tuple(former[type(row), row.id] for row in some if (type(row), row.id) in former),
        )
        for some in (every[first : first + RECORDS_AT_ONCE] for first in range(0, len(every), RECORDS_AT_ONCE))
    ]


class Relocation:
    """Moves the claims of some entities, page by page.

    Args:
        backend: keeps the graph.
        turns: among the tasks of one hub.
        vocabulary: how relations behave.
        meanings: vectors for facts that come to be.
    """

    def __init__(self, backend: GraphBackend, turns: Turns, vocabulary: Vocabulary, meanings: Meanings) -> None:
        self._backend = backend
        self._turns = turns
        self._vocabulary = vocabulary
        self._meanings = meanings

    async def move(self, group: str, move: Move, progress: GraphProgress | None = None) -> None:
        """Move all of them. About four round trips a page of 100 lines; one where nothing is to be done.

        Raises:
            ConflictError: somebody merges or parts the same entities meanwhile.
            UnavailableError: the server cannot be reached; begin again to go on.
        """
        after, done = "", 0
        while True:
            lines, after = await self._backend.lines_of(group, move.said, after=after, limit=LINES_AT_ONCE)
            if lines:
                await self._turns.until_written(group, partial(self._page, group, move, tuple(lines)))
            done += len(lines)
            if progress is not None:
                progress(done, done if not after else done + LINES_AT_ONCE)
            if not after:
                return

    async def _page(self, group: str, move: Move, lines: Sequence[str]) -> bool | Behind:
        found = await self._found(group, move, lines)
        ids = {id_ for canonical in found.ways() for id_ in found.facts(canonical)}
        rows = await self._backend.look(
            group, Wanted(episodes=tuple(found.moved()), facts=tuple(sorted(ids)), entities=move.said)
        )
        if any(rows.into.get(id_, id_) != move.new for id_ in move.said):
            raise ConflictError(
                "somebody merges or parts the same entities meanwhile; look at them, then call it again"
            )
        found.seen.episodes = rows.episodes
        changes = changes_of_move(found, rows.facts)
        if changes is None:
            return True
        embedded = await self._embedded(changes, rows.facts)
        return await self._written(group, embedded, min(found.seen.version, rows.version))

    async def _written(self, group: str, changes: Changes, seen: int) -> bool | Behind:
        """Write a step. Cut off between two commits, it is begun again and finds what is still to be done."""
        for piece in pieces(changes):
            outcome = await self._backend.commit(group, piece, seen=seen)
            if isinstance(outcome, Behind):
                return outcome
            # Nobody was between: else this piece would have found its lines changed.
            seen = outcome.version
        return True

    async def _found(self, group: str, move: Move, lines: Sequence[str]) -> Found:
        """Some lines with all on which they depend, before and after the move."""
        found = Found(Seen(OPEN), move, self._vocabulary)
        missing = set(lines)
        while missing:
            seen = await self._backend.look(group, Wanted(lines=tuple(sorted(missing))))
            found.seen.version = min(found.seen.version, seen.version)
            found.seen.claims |= seen.claims
            found.seen.into |= seen.into
            claims = [claim for each in found.seen.claims.values() for claim in each]
            missing = self._further(claims, found) - found.seen.claims.keys()
        return found

    def _further(self, claims: Sequence[Claim], found: Found) -> set[str]:
        places = (further_lines(claims, self._vocabulary, canonical) for canonical in found.ways())
        return set().union(*places)

    async def _embedded(self, changes: Changes, former: Mapping[str, FactRow]) -> Changes:
        fresh = [row.text for row in changes.facts if row.id not in former]
        halves = await self._meanings.halves(fresh)
        facts = tuple(row if row.id in former else replace(row, vector=halves.get(row.text)) for row in changes.facts)
        return replace(changes, facts=facts)
